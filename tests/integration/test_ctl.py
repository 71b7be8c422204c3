"""test_ctl.py: ratelimitctl: its output, its exit statuses, and that it always ends by its deadline."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

import msgpack
import pytest

from harness import PATIENCE_S, ROOT, eventually, program, short_directory

CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 10s}
  day: {algorithm: fixed_window, limit: 5, window: 1d}
  never: {algorithm: fixed_window, limit: 0, window: 1d}
"""
DONE, DENIED, USAGE, UNREACHABLE, REFUSED, OUTPUT = range(6)


@pytest.fixture
def daemon(ratelimitd):
    """Its clock stands at 2 s, so a window of 10 s ends in 8 s."""
    started = ratelimitd(CONFIG, arguments=["--test-clock"])
    assert started.ctl("test-clock", 2_000_000).stdout == "2000000\n"
    return started


def ctl(*arguments, env=None, **options):
    environment = {name: value for name, value in os.environ.items() if name != "RATELIMIT_SOCKET"}
    return subprocess.run([program("ratelimitctl"), *map(str, arguments)], stdin=subprocess.DEVNULL, encoding="utf-8",
                          timeout=PATIENCE_S, env={**environment, **(env or {})},
                          **{"capture_output": True, **options})


class Fake:
    """A fake daemon that sends the bytes of the test, for cases that no real daemon produces. None: never accepts. `refused`: the
    error for hello."""

    def __init__(self, answer, backlog=8, refused=None):
        self.refused = refused
        self.directory = short_directory()
        self.path = str(self.directory / "rl.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(backlog)
        self.thread = threading.Thread(target=self.serve, args=(answer,), daemon=True)
        if answer is not None:
            self.thread.start()

    def serve(self, answer):
        try:
            peer, _ = self.listener.accept()
        except OSError:
            return
        with peer:
            unpacker = msgpack.Unpacker()
            while data := peer.recv(65536):
                unpacker.feed(data)
                for _, msgid, method, _ in unpacker:
                    if method == "hello":
                        peer.sendall(msgpack.packb([1, msgid, self.refused, None if self.refused else {}]))
                    elif not (data := answer(msgid)):
                        return
                    else:
                        peer.sendall(data)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        if self.thread.is_alive():
            self.thread.join(PATIENCE_S)
        shutil.rmtree(self.directory)


# ---- output -------------------------------------------------------------------------------------------------------


def test_a_check_prints_the_remaining_units_and_then_the_retry_time(daemon):
    lines = [daemon.ctl("check", "login", "alice") for _ in range(6)]
    assert [line.returncode for line in lines] == [DONE] * 5 + [DENIED]
    assert lines[0].stdout == "allowed  remaining 4/5, resets in 8s  [memory]\n"
    assert lines[4].stdout == "allowed  remaining 0/5, resets in 8s  [memory]\n"
    assert lines[5].stdout == "denied  remaining 0/5, retry in 8s  [memory]\n"
    assert all(line.stderr == "" for line in lines)


@pytest.mark.parametrize("us, words", [
    (86_400_000_000 - 1_000, "1ms"), (86_400_000_000 - 999_000, "999ms"), (86_400_000_000 - 1_000_000, "1s"),
    (86_400_000_000 - 1_001_000, "1.1s"), (86_400_000_000 - 59_950_000, "1m"), (86_400_000_000 - 90_000_000, "1m 30s"),
    (86_400_000_000 - 3_599_001_000, "1h"), (86_400_000_000 - 7_201_000_000, "2h 1m"), (0, "1d"),
])
def test_durations_are_short_and_rounded_up(daemon, us, words):
    daemon.ctl("test-clock", us)
    assert daemon.ctl("check", "day", "alice").stdout == f"allowed  remaining 4/5, resets in {words}  [memory]\n"


def test_a_cost_above_the_limit_differs_from_a_full_window(daemon):
    done = daemon.ctl("check", "login", "alice", 6)
    assert (done.returncode, done.stdout) == (DENIED, "denied  cost 6 exceeds the limit of 5: never allowed  [memory]\n")
    done = daemon.ctl("check", "never", "alice")
    assert (done.returncode, done.stdout) == (DENIED, "denied  the limit is 0: never allowed  [memory]\n")


def test_a_failure_answer_is_marked(ratelimitd):
    config = """store: {type: redis, redis: {addresses: ["unix:/nonexistent/redis.sock"]}}
policies:
  open: {algorithm: fixed_window, limit: 5, window: 1d, on_failure: allow}
  shut: {algorithm: fixed_window, limit: 5, window: 1d, on_failure: deny}
  here: {algorithm: fixed_window, limit: 5, window: 1d, on_failure: local, start: first_hit}
  none: {algorithm: fixed_window, limit: 5, window: 1d, on_failure: error}
"""
    daemon = ratelimitd(config)
    assert daemon.ctl("check", "open", "a").stdout == "allowed  without the store  [allow: down]\n"
    assert daemon.ctl("check", "shut", "a").stdout == "denied  without the store, retry in 1s  [deny: down]\n"
    assert daemon.ctl("check", "here", "a").stdout == "allowed  remaining 4/5, resets in 1d  [local: down]\n"
    done = daemon.ctl("check", "none", "a")
    assert done.returncode == REFUSED and done.stderr.startswith("ratelimitctl: STORE_UNAVAILABLE: ")


def test_peek_and_reset_charge_nothing_and_forget(daemon):
    daemon.ctl("check", "login", "alice", 3)
    assert daemon.ctl("peek", "login", "alice").stdout.startswith("allowed  remaining 2/5")
    assert daemon.ctl("peek", "login", "alice", 3).returncode == DENIED
    assert daemon.ctl("peek", "login", "alice", 2).stdout.startswith("allowed  remaining 0/5")
    assert daemon.ctl("reset", "login", "alice").stdout == "removed\n"
    again = daemon.ctl("reset", "login", "alice")
    assert (again.returncode, again.stdout) == (DONE, "nothing to remove\n")
    assert daemon.ctl("peek", "login", "alice").stdout == "allowed  remaining 5/5  [memory]\n"


def test_tables_are_for_people(daemon):
    assert daemon.ctl("ping").stdout == "pong\n"
    policies = daemon.ctl("policies").stdout.splitlines()
    assert [line.split()[0] for line in policies] == ["POLICY", "day", "login", "never"]
    assert "fixed_window, 5 per 10s" in policies[2]
    stats = dict(line.split() for line in daemon.ctl("stats", "--all").stdout.splitlines())
    assert stats["checks"] == "0" and stats["connections"] == "1"
    version = dict(line.split(None, 1) for line in daemon.ctl("version").stdout.splitlines())
    assert version["store"] == "memory" and version["protocol"] == "1"
    assert re.fullmatch(r"ratelimitctl \d+\.\d+\.\d+(-git\.[0-9a-f]{12})?\n", ctl("--version").stdout)


def test_json_has_the_fields_of_the_daemon_with_its_names(daemon, connect):
    client = connect(daemon)
    client.call("hello", {"describe": True})
    for arguments in (["check", "login", "alice"], ["check", "login", "alice", 9], ["peek", "login", "alice"],
                      ["reset", "login", "bob"]):
        shown = json.loads(daemon.ctl("--json", *arguments).stdout)
        sent = client.call(arguments[0], *arguments[1:])
        assert list(shown) == list(sent)
    assert json.loads(daemon.ctl("--json", "peek", "login", "alice").stdout) == client.call("peek", "login", "alice")
    assert list(json.loads(daemon.ctl("--json", "version").stdout)) == list(client.call("version"))
    assert json.loads(daemon.ctl("--json", "policies").stdout) == {"policies": client.call("policies", {})}
    assert json.loads(daemon.ctl("--json", "ping").stdout) == {"ping": "pong"}
    assert json.loads(daemon.ctl("--json", "stats").stdout).keys() == client.call("stats").keys()
    refused = daemon.ctl("--json", "check", "nosuch", "alice")
    assert refused.returncode == REFUSED and json.loads(refused.stdout)["error"] == "UNKNOWN_POLICY"


def test_thirty_thousand_policies_are_listed(ratelimitd):
    """Earlier: an answer is too long. Bytewise order: p1, p10, p100."""
    names = [f"p{i}" for i in range(30_000)]
    daemon = ratelimitd("policies:\n" + "".join(f"  {name}: {{algorithm: fixed_window, limit: 5, window: 1h}}\n" for name in names))
    done = daemon.ctl("--timeout", "20s", "policies", patience_s=40)  # with the sanitizers it takes seconds
    assert done.returncode == DONE and [line.split()[0] for line in done.stdout.splitlines()] == ["POLICY", *sorted(names)]
    (policy,) = json.loads(daemon.ctl("--timeout", "20s", "--json", "policies", "p29999", patience_s=40).stdout)["policies"]
    assert policy["name"] == "p29999"


def test_policies_shows_the_one_that_is_named(daemon):
    table = daemon.ctl("policies", "login").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["POLICY", "login"]
    (policy,) = json.loads(daemon.ctl("--json", "policies", "day").stdout)["policies"]
    assert policy["name"] == "day"
    unknown = daemon.ctl("policies", "logi")
    assert (unknown.returncode, unknown.stdout) == (REFUSED, "")
    assert unknown.stderr == "ratelimitctl: UNKNOWN_POLICY: no policy 'logi'; ratelimitctl policies lists them\n"
    unknown = json.loads(daemon.ctl("--json", "policies", "logi").stdout)
    assert unknown == {"error": "UNKNOWN_POLICY", "message": "no policy 'logi'; ratelimitctl policies lists them"}
    assert daemon.ctl("policies", "login", "day").returncode == USAGE


def test_policies_finds_an_inline_policy_by_name_and_by_label(ratelimitd):
    daemon = ratelimitd("inline: {allow: true}\npolicies: {p: {algorithm: fixed_window, limit: 5, window: 1d}}\n")
    daemon.ctl("check", "{algorithm: fixed_window, limit: 7, window: 1d, name: mine}", "k")
    (policy,) = json.loads(daemon.ctl("--json", "policies", "mine").stdout)["policies"]
    assert policy["inline"] and policy["label"] == "mine"
    assert json.loads(daemon.ctl("--json", "policies", policy["name"]).stdout)["policies"] == [policy]


def test_a_daemon_that_knows_no_pages_is_asked_for_all_policies():
    refusal = ["BAD_REQUEST: wrong number of parameters: 1 given; policies takes: none", None]
    answers = iter([refusal, [None, [{"name": f"q{i}", "limits": []} for i in range(300)]]])
    with Fake(lambda msgid: msgpack.packb([1, msgid, *next(answers)])) as fake:
        assert len(ctl("-s", fake.path, "policies").stdout.splitlines()) == 301
    assert next(answers, None) is None


def test_bytes_that_are_no_utf8_still_make_json():
    answer = [b"ok", b"\xff\xfe", "\u00e4\u20ac\U0001f600", b"\xed\xa0\x80", b"\xc0\xaf", "\"\\\n\x7f\x00", b"\xe2\x82", 2**64 - 1, -5,
              None, True, 1.5, {1: 2, "a": [{}]}, msgpack.ExtType(1, b"x")]
    with Fake(lambda msgid: msgpack.packb([1, msgid, None, answer])) as fake:
        shown = json.loads(ctl("-s", fake.path, "--json", "ping").stdout)["ping"]
    assert shown == ["ok", "\\xff\\xfe", "\u00e4\u20ac\U0001f600", "\\xed\\xa0\\x80", "\\xc0\\xaf", "\"\\\n\x7f\x00", "\\xe2\\x82",
                     2**64 - 1, -5, None, True, None, {"a": [{}]}, None]


def test_the_daemons_words_cannot_write_to_the_terminal():
    with Fake(lambda msgid: msgpack.packb([1, msgid, "BAD_KEY: \x1b]0;owned\x07", None])) as fake:
        done = ctl("-s", fake.path, "ping")
    assert done.returncode == REFUSED
    assert done.stderr == "ratelimitctl: BAD_KEY: \\x1b]0;owned\\x07\n"


# ---- exit statuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [
    [], ["nosuch"], ["check"], ["check", "login"], ["check", "login", "alice", "1", "2"], ["check", "login", "alice", "many"],
    ["check", "login", "alice", "1.5"], ["check", "login", "alice", ""], ["check", "login", "alice", "99999999999999999999"],
    ["check", "login", "alice", "--json"], ["check", "login", "--"], ["check", "login", "--", "alice"], ["reset", "login"], ["ping", "x"], ["test-clock"], ["-x", "ping"], ["--nonsense", "ping"],
    ["-s"], ["--timeout", "5", "ping"], ["--timeout", "0s", "ping"], ["--timeout", "2d", "ping"],
    ["--timeout", "500us", "ping"], ["--timeout", "1500us", "ping"], ["ping", "--at-most", "3"], ["ping", "--", "x"], ["-s", "", "ping"],
    ["-s", "x" * 108, "ping"],
])
def test_wrong_usage_is_2(daemon, arguments):
    done = ctl(*arguments, env={"RATELIMIT_SOCKET": daemon.socket})
    assert done.returncode == USAGE and done.stdout == "" and done.stderr


@pytest.mark.parametrize("command", ["doctor", "replay"])
def test_a_command_of_a_later_version_is_named_as_such(command):
    done = ctl(command, "login", "alice")
    assert (done.returncode, done.stderr) == (USAGE, f"ratelimitctl: {command} is not available in this version\n")


def test_help_needs_no_daemon_and_names_every_command():
    done = ctl("--help")
    assert done.returncode == DONE and done.stderr == ""
    page = (ROOT / "src" / "ctl" / "ratelimitctl.1").read_text()
    for command in re.findall(r"^  ([a-z-]+) ", done.stdout, re.M):
        assert command in page.replace("\\-", "-")
        for shell in ("bash", "zsh", "fish"):
            assert command in (ROOT / "src" / "ctl" / f"ratelimitctl.{shell}").read_text(), shell
    for option in set(re.findall(r"--([a-z-]+)", done.stdout)) - {"test-clock"}:
        assert f"--{option}" in page.replace("\\-", "-")
        for shell in ("bash", "zsh", "fish"):
            text = (ROOT / "src" / "ctl" / f"ratelimitctl.{shell}").read_text()
            assert f"--{option}" in text or f"-l {option} " in text, (shell, option)


def test_an_error_of_the_daemon_is_4(daemon):
    for arguments, code in ((["check", "nosuch", "alice"], "UNKNOWN_POLICY"), (["check", "login", ""], "BAD_KEY"),
                            (["check", "login", "alice", -1], "BAD_COST"), (["test-clock", -1], "BAD_REQUEST")):
        done = daemon.ctl(*arguments)
        assert done.returncode == REFUSED and done.stderr.startswith(f"ratelimitctl: {code}: "), done


def test_no_daemon_is_3():
    done = ctl("-s", "/nonexistent/rl.sock", "ping")
    assert done.returncode == UNREACHABLE and "/nonexistent/rl.sock: No such file" in done.stderr
    assert "is ratelimitd running, and is this its socket?" in done.stderr


def test_the_socket_is_the_options_or_the_environments(daemon):
    assert ctl("ping", env={"RATELIMIT_SOCKET": daemon.socket}).returncode == DONE
    assert ctl("-s", daemon.socket, "ping", env={"RATELIMIT_SOCKET": "/nonexistent/rl.sock"}).returncode == DONE
    assert ctl("--socket", daemon.socket, "ping").returncode == DONE
    assert "/run/ratelimitd/ratelimitd.sock" in ctl("ping").stderr or ctl("ping").returncode == DONE


def test_a_key_may_be_anything_an_argument_can_hold(daemon):
    for key in ("-", "--json", "-s", "a b", "{}{", "\u00e4", b"\xff\xfe".decode(errors="surrogateescape"), "x" * 1024):
        assert daemon.ctl("check", "login", key).stdout.startswith("allowed  remaining 4/5"), key
    assert daemon.ctl("check", "login", "x" * 1025).returncode == REFUSED


def test_an_answer_that_cannot_be_written_is_5(daemon):
    with open("/dev/full", "w") as full:
        done = ctl("-s", daemon.socket, "stats", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == OUTPUT and "No space left" in done.stderr
    closed = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', program("ratelimitctl"), "-s", daemon.socket, "check", "login", "a"],
                            capture_output=True, text=True)
    assert closed.returncode == OUTPUT and "cannot write" in closed.stderr


# ---- a daemon that does not answer --------------------------------------------------------------------------------


def test_a_stopped_daemon_costs_the_timeout_and_no_more(daemon):
    daemon.pause()
    done = daemon.ctl("--timeout", "300ms", "check", "login", "alice")
    assert (done.returncode, done.stderr) == (
        UNREACHABLE, "ratelimitctl: no answer by the deadline; the request was sent and may have taken effect\n")
    daemon.resume()
    # The check was sent: the daemon charged it when it went on.
    eventually(lambda: daemon.ctl("peek", "login", "alice").stdout.startswith("allowed  remaining 4/5"), "the late check's charge")


def test_a_full_backlog_costs_the_timeout_and_no_more():
    with Fake(None, backlog=0) as fake:
        waiting = []
        try:
            while True:  # as many as are needed
                peer = socket.socket(socket.AF_UNIX)
                waiting.append(peer)
                peer.setblocking(False)
                peer.connect(fake.path)
        except BlockingIOError:
            pass
        done = ctl("-s", fake.path, "--timeout", "300ms", "ping")
        for peer in waiting:
            peer.close()
    assert done.returncode == UNREACHABLE and "backlog" in done.stderr


@pytest.mark.parametrize("answer, words", [
    (lambda msgid: b"", "closed the connection"),
    (lambda msgid: b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak"),
    (lambda msgid: msgpack.packb([1, None, "no code and no call", None]), "no code and no call"),
    (lambda msgid: msgpack.packb([1, msgid + 999, None, "pong"]), "never made"),
    (lambda msgid: b"\x94\x01\x01\xc0\xdd\xff\xff\xff\xff", "too long"),
])
def test_what_is_no_answer_is_3(answer, words):
    with Fake(answer) as fake:
        done = ctl("-s", fake.path, "ping")
    assert done.returncode == UNREACHABLE and words in done.stderr


def test_a_request_longer_than_a_frame_is_4(daemon):
    """Earlier the status was 3 (not reachable), with the daemon's answer and a warning that it may be done."""
    done = daemon.ctl("--json", "check", "login", "a" * 100_000)
    assert done.returncode == REFUSED and json.loads(done.stdout)["error"] == "TOO_LARGE"
    assert done.stderr.startswith("ratelimitctl: TOO_LARGE: ") and "may have been done" not in done.stderr


def test_an_answer_of_the_wrong_kind_is_3():
    with Fake(lambda msgid: msgpack.packb([1, msgid, None, "pong"])) as fake:
        done = ctl("-s", fake.path, "check", "login", "alice")
    assert done.returncode == UNREACHABLE and "not valid for this command" in done.stderr


@pytest.mark.parametrize("result", [None, 5, {}, {"allowed": "no"}, []])
@pytest.mark.parametrize("command", [
    "check login alice", "--json check login alice", "--json peek login alice", "--json explain login alice",
    "check-many login alice", "--json check-many login alice , login bob", "--json check-all login alice", "--json reset login alice",
    "--json settle r 1"])
def test_json_of_what_is_no_decision_is_not_allowed(command, result):
    """Earlier --json printed whatever came and ended with 0, the status of "allowed"; so did a check-many of too few decisions."""
    with Fake(lambda msgid: msgpack.packb([1, msgid, None, result])) as fake:
        done = ctl("-s", fake.path, *command.split())
    assert done.returncode == UNREACHABLE and "not valid for this command" in done.stderr
    assert "--json" not in command or json.loads(done.stdout)["error"] == "PROTOCOL"


@pytest.mark.parametrize("command", ["--json denials", "slowlog", "clients", "top -n 1", "reset --match * login"])
def test_a_view_that_is_no_map_is_3(command):
    """Earlier it was an empty list, and 0."""
    with Fake(lambda msgid: msgpack.packb([1, msgid, None, 5])) as fake:
        done = ctl("-s", fake.path, *command.split())
    assert done.returncode == UNREACHABLE and "not valid for this command" in done.stderr


def test_a_daemon_that_was_killed_and_started_again_answers(daemon):
    assert daemon.ctl("ping").returncode == DONE
    daemon.kill()
    assert daemon.ctl("ping").returncode == UNREACHABLE
    daemon.expected_exit = 0
    daemon.start()
    assert daemon.ctl("ping").returncode == DONE


# ---- its environment ----------------------------------------------------------------------------------------------


def test_a_shell_script_branches_on_it(daemon):
    script = ROOT / "tests" / "integration" / "examples" / "check.sh"
    env = {**os.environ, "RATELIMIT_SOCKET": daemon.socket, "PATH": f"{os.path.dirname(program('ratelimitctl'))}:{os.environ['PATH']}"}

    def run():
        return subprocess.run(["sh", str(script), "alice"], env=env, capture_output=True, text=True, timeout=PATIENCE_S)

    assert [run().stdout for _ in range(6)] == ["come in\n"] * 5 + ["not now\n"]
    daemon.stop()
    assert run().stdout == "no answer\n"


def test_bash_completes_commands_and_policies(daemon):
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("no bash here")
    env = {**os.environ, "PATH": f"{os.path.dirname(program('ratelimitctl'))}:{os.environ['PATH']}"}

    def complete(*words):
        script = f"""source {ROOT}/src/ctl/ratelimitctl.bash
COMP_WORDS=({' '.join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}; _ratelimitctl; echo "${{COMPREPLY[*]}}" """
        return subprocess.run([bash, "-c", script], env=env, capture_output=True, text=True, timeout=PATIENCE_S).stdout.split()

    assert complete("ratelimitctl", "po") == ["policies"]
    assert complete("ratelimitctl", "--js") == ["--json"]
    assert complete("ratelimitctl", "-s", daemon.socket, "check", "") == ["day", "login", "never"]
    assert complete("ratelimitctl", "-s", daemon.socket, "policies", "d") == ["day"]
    assert complete("ratelimitctl", "check", "login", "al") == []


def test_many_at_once_charge_their_costs(daemon):
    runs = [subprocess.Popen([program("ratelimitctl"), "-s", daemon.socket, "check", "day", "crowd"], stdout=subprocess.DEVNULL)
            for _ in range(12)]
    assert sorted(run.wait(PATIENCE_S) for run in runs) == [DONE] * 5 + [DENIED] * 7


def test_help_shows_one_command():
    for arguments in (["help", "check"], ["check", "--help"], ["check", "-h"]):
        done = ctl(*arguments)
        assert done.returncode == DONE and done.stderr == ""
        assert done.stdout.startswith("usage: ratelimitctl [OPTION ...] check [OPTION ...] POLICY KEY [COST]\n")
        assert "--at-most N" in done.stdout and "--ttl" not in done.stdout and "settle" not in done.stdout
    assert ctl("help").stdout == ctl("--help").stdout
    assert ctl("help", "nosuch").returncode == USAGE


@pytest.mark.parametrize("written, meant", [("chek", "check"), ("check_all", "check-all"), ("policy", None), ("stat", "stats"),
                                            ("release", None)])
def test_a_misspelt_command_gets_a_suggestion(written, meant):
    done = ctl(written, "login", "alice")
    hint = f"did you mean {meant}?" if meant else "try ratelimitctl --help"
    assert done.returncode == USAGE
    assert done.stderr == f"ratelimitctl: no such command: {written}; {hint}\n"


@pytest.mark.parametrize("arguments, status, code", [
    (["-s", "/nonexistent/rl.sock", "ping"], UNREACHABLE, "UNREACHABLE"), (["chek"], USAGE, "USAGE"), (["check", "a"], USAGE, "USAGE"),
    (["check", "a", "b", "c"], USAGE, "USAGE"), (["--nonsense", "ping"], USAGE, "USAGE"), (["--timeout", "x", "ping"], USAGE, "USAGE"),
    (["check", "--all", "a", "b"], USAGE, "USAGE"), ([], USAGE, "USAGE")])
def test_an_error_is_an_object_too(arguments, status, code):
    done = ctl("--json", *arguments)
    error = json.loads(done.stdout)
    assert done.returncode == status and error["error"] == code and error["message"] and done.stderr


def test_an_answer_that_does_not_come_is_an_object_too(daemon):
    daemon.signal(signal.SIGSTOP)
    done = daemon.ctl("--json", "--timeout", "200ms", "check", "login", "alice")
    daemon.signal(signal.SIGCONT)
    assert done.returncode == UNREACHABLE and json.loads(done.stdout)["error"] == "TIMEOUT"
