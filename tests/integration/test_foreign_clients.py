"""test_foreign_clients.py: MessagePack-RPC clients that know nothing of ratelimitd, against the real daemon: Neovim (from
Vim script and from Lua), pynvim's session, twenty lines of Python, and bytes through socat. examples/ has the code of
a user."""

import os
import re
import shutil
import subprocess
import sys

import msgpack
import pytest

from harness import PATIENCE_S, ROOT

EXAMPLES = ROOT / "tests" / "integration" / "examples"
CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 10s}
"""


@pytest.fixture
def daemon(ratelimitd):
    """Its clock stands still, 8 s before the window's end."""
    started = ratelimitd(CONFIG, arguments=["--test-clock"])
    started.ctl("test-clock", 2_000_000, check=True)
    return started


def run(daemon, *argv, **options):
    return subprocess.run(argv, env={**os.environ, "RATELIMIT_SOCKET": daemon.socket}, timeout=PATIENCE_S,
                          **{"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **options})


def nvim(daemon, *commands):
    """Run commands in a bare Neovim. Returns their output (from standard error)."""
    if not shutil.which("nvim"):
        pytest.skip("no nvim here")
    options = [word for command in [*commands, "qall!"] for word in ("-c", command)]
    done = run(daemon, "nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", *options)
    return done.stdout + done.stderr


def test_neovim_asks_with_rpcrequest(daemon):
    output = nvim(daemon, f"source {EXAMPLES}/check.vim", "for i in range(6) | echo RateLimit('login', 'alice').remaining | endfor",
                "echo RateLimit('login', 'alice').allowed", "echo RateLimit('login', 'alice').retry_after_ms")
    assert output.split() == ["4", "3", "2", "1", "0", "0", "v:false", "8000"]


def test_neovim_asks_from_lua(daemon):
    output = [nvim(daemon, f"luafile {EXAMPLES}/check.lua").strip() for _ in range(6)]
    assert output == ["allowed"] * 5 + ["denied, retry in 8000 ms"]


def test_neovim_shows_an_error_and_goes_on(daemon):
    output = nvim(daemon, f"source {EXAMPLES}/check.vim", "try | call RateLimit('nosuch', 'alice') | catch | echo v:exception | endtry",
                "echo RateLimit('login', 'alice').remaining")
    assert "UNKNOWN_POLICY" in output and output.split()[-1] == "4"


def test_neovims_notifications_charge_nothing(daemon):
    output = nvim(daemon, "let d = sockconnect('pipe', $RATELIMIT_SOCKET, {'rpc': v:true})", "call rpcnotify(d, 'check', 'login', 'alice')",
                "call rpcnotify(d, 'nvim_set_client_info', 'x')", "echo rpcrequest(d, 'peek', 'login', 'alice').remaining")
    assert output.split() == ["5"]


def test_the_examples_print_the_delay(ratelimitd):
    """Earlier, all of them ignored delay_ms and continued at once."""
    shaping = ratelimitd("policies: {login: {algorithm: leaky_bucket, limit: 1, window: 1d, burst: 1, max_wait: 10d}}")
    asked = [run(shaping, sys.executable, str(EXAMPLES / "check.py"), "login", "alice").stdout for _ in range(2)]
    assert asked[0] == "allowed\n" and re.fullmatch(r"allowed, go ahead in \d+ ms\n", asked[1])
    if shutil.which("nvim"):
        assert re.fullmatch(r"allowed, go ahead in \d+ ms", nvim(shaping, f"luafile {EXAMPLES}/check.lua").strip())


def test_twenty_lines_of_python_ask(daemon):
    asked = [run(daemon, sys.executable, str(EXAMPLES / "check.py"), "login", "alice") for _ in range(6)]
    assert [done.stdout.strip() for done in asked] == ["allowed"] * 5 + ["denied, retry in 8000 ms"], asked[0].stderr
    refused = run(daemon, sys.executable, str(EXAMPLES / "check.py"), "nosuch", "alice")
    assert refused.returncode != 0 and "UNKNOWN_POLICY" in refused.stderr


def test_pynvims_session_asks_and_sees_errors(daemon):
    script = """
import os
from pynvim.msgpack_rpc import socket_session
session = socket_session(os.environ["RATELIMIT_SOCKET"])
session.error_wrapper = RuntimeError  # its own looks for Neovim's [number, text]
print([session.request("check", "login", "alice")["allowed"] for _ in range(6)])
try:
    session.request("check", "nosuch", "alice")
except RuntimeError as error:
    print(error)
print(session.request("peek", "login", "bob")["remaining"], session.request("ping"))
"""
    done = run(daemon, sys.executable, "-c", script)
    lines = done.stdout.splitlines()
    assert lines[0] == "[True, True, True, True, True, False]", done.stderr
    assert "UNKNOWN_POLICY: " in lines[1]
    assert lines[2] == "5 pong"


def test_bytes_through_socat_are_answered_before_the_end(daemon):
    if not shutil.which("socat"):
        pytest.skip("no socat here")
    requests = b"".join(msgpack.packb([0, number, "check", ["login", "alice"]]) for number in range(7))
    done = run(daemon, "socat", "-t", "10", "-", f"UNIX-CONNECT:{daemon.socket}", text=False, stdin=None, input=requests)
    unpacker = msgpack.Unpacker()
    unpacker.feed(done.stdout)
    answers = {msgid: result["allowed"] for _, msgid, error, result in unpacker if error is None}
    assert answers == {number: number < 5 for number in range(7)}


def test_a_client_that_gives_every_call_the_same_number_gets_an_answer_to_each(daemon, connect):
    client = connect(daemon)
    client.send_bytes(msgpack.packb([0, 7, "check", ["login", "alice"]]) * 6)
    answers = [client.recv() for _ in range(6)]
    assert all(answer[:3] == [1, 7, None] for answer in answers)
    assert sorted(answer[3]["allowed"] for answer in answers) == [False] + [True] * 5


def test_a_shell_asks_with_printf(daemon):
    if not shutil.which("socat"):
        pytest.skip("no socat here")
    done = run(daemon, "sh", "-c", r"""printf '\224\000\001\244ping\220' | socat - "UNIX-CONNECT:$RATELIMIT_SOCKET" """, text=False)
    assert done.stdout == b"\x94\x01\x01\xc0\xa4pong"
