"""test_completion.py: what bash, zsh and fish offer on the command line of ratelimitctl, asked as their users ask: the commands and
options of `ratelimitctl --help`, and the policies of a real daemon."""

import os
import pty
import re
import select
import shutil
import subprocess

import pytest

from harness import PATIENCE_S, ROOT, program

CTL = ROOT / "src" / "ctl"
SHELLS = [pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} here"))
          for shell in ("bash", "zsh", "fish")]
POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  api: {algorithm: fixed_window, limit: 5, window: 1h}
"""
BASH = """source "$1"
read -ra COMP_WORDS <<<"$2"
[[ $2 != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_ratelimitctl
printf '%s\\n' "${COMPREPLY[@]}"
"""

# Completion runs only within the line editor: a key writes into a file what it offers.
ZSH = """PS1=; unsetopt beep
fpath=("$FUNCTIONS" $fpath)
autoload -U compinit && compinit -u -D
compadd() {
    local -a offered
    builtin compadd -O offered "$@"
    (( ${#offered} )) && print -rl -- $offered >>$OFFERED
    builtin compadd "$@"
}
offer() { zle complete-word; BUFFER=; print end-of-offer >>$OFFERED }
zle -N offer
bindkey '^X' offer
print ready >>$OFFERED
"""


def of_bash(lines, env, _place):
    return [subprocess.run(["bash", "--norc", "-c", BASH, "bash", CTL / "ratelimitctl.bash", line], capture_output=True, text=True,
                           env=env, timeout=PATIENCE_S, check=True).stdout.split() for line in lines]


def of_fish(lines, env, place):
    script = f"source {CTL / 'ratelimitctl.fish'}\n" + "".join(f"complete -C '{line}'\necho end-of-offer\n" for line in lines)
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=True,
                          env={**env, "HOME": str(place), "XDG_DATA_HOME": str(place), "XDG_CONFIG_HOME": str(place)})
    return [[offer.split("\t")[0] for offer in part.splitlines()] for part in done.stdout.split("end-of-offer\n")[:-1]]


def of_zsh(lines, env, place):
    functions, offered = place / "functions", place / "offered"
    functions.mkdir(exist_ok=True)
    shutil.copy(CTL / "ratelimitctl.zsh", functions / "_ratelimitctl")
    (place / ".zshrc").write_text(ZSH)
    master, slave = pty.openpty()
    offered.write_text("")
    process = subprocess.Popen(["zsh", "-i"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                               env={**env, "ZDOTDIR": str(place), "FUNCTIONS": str(functions), "OFFERED": str(offered), "TERM": "dumb"})
    os.close(slave)
    offers = []
    try:
        read_until(master, lambda: "ready\n" in offered.read_text())
        for line in lines:
            offered.write_text("")
            os.write(master, line.encode() + b"\x18")
            read_until(master, lambda: "end-of-offer\n" in offered.read_text())
            offers.append(offered.read_text().splitlines()[:-1])
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return offers


def read_until(terminal, condition):
    """What the shell prints must be read, or it waits."""
    screen = b""
    for _ in range(int(PATIENCE_S / 0.02)):
        if select.select([terminal], [], [], 0.02)[0]:
            screen += os.read(terminal, 65536)
        if condition():
            return screen
    raise AssertionError(f"the shell does not go on:\n{screen.decode(errors='replace')}")


ASK = {"bash": of_bash, "zsh": of_zsh, "fish": of_fish}


class Help:
    """The words that `ratelimitctl --help` lists."""

    def __init__(self):
        text = subprocess.run([program("ratelimitctl"), "--help"], capture_output=True, text=True, check=True).stdout
        self.commands = set(re.findall(r"^  ([a-z-]+) ", text, re.M)) | {"help"}
        self.options = set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", text, re.M))
        self.with_policy = {command for command in self.commands if re.search(rf"^  {command} +(?:POLICY|\[NAME\])", text, re.M)}


@pytest.fixture(scope="module")
def listed():
    return Help()


@pytest.fixture
def offers(tmp_path):
    """What a shell offers behind each line, in order. A completion waits 200 ms for the daemon; here it has more time."""
    (tmp_path / "bin").mkdir()
    patient = tmp_path / "bin" / "ratelimitctl"
    patient.write_text(f'#!/bin/bash\nexec {program("ratelimitctl")} "${{@/#200ms/20s}}"\n')
    patient.chmod(0o755)

    def ask(shell, *lines, socket=None):
        env = {**os.environ, "PATH": f"{patient.parent}:{os.environ['PATH']}"}
        env.pop("RATELIMIT_SOCKET", None)
        if socket:
            env["RATELIMIT_SOCKET"] = socket
        return [sorted(set(words)) for words in ASK[shell](lines, env, tmp_path)]

    return ask


def test_the_help_was_read(listed):
    assert {"check", "reload", "config", "metrics", "explain", "test-clock"} < listed.commands
    assert {"--dry-run", "--output", "--all", "--json", "--socket", "--version"} < listed.options
    assert listed.with_policy == {"check", "check-all", "check-many", "refund", "reset", "reserve", "acquire", "peek", "explain", "policies"}


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_are_completed(shell, offers, listed):
    every, re_, metrics, config, explain, of_help = offers(
        shell, "ratelimitctl ", "ratelimitctl re", "ratelimitctl met", "ratelimitctl con", "ratelimitctl --json exp", "ratelimitctl help rel")
    assert listed.commands <= set(every)
    assert re_ == ["refund", "reload", "reserve", "reset"]
    assert (metrics, config, explain, of_help) == (["metrics"], ["config"], ["explain"], ["reload"])


@pytest.mark.parametrize("shell", SHELLS)
def test_each_option_is_offered(shell, offers, listed):
    for words in offers(shell, "ratelimitctl --", "ratelimitctl reload --", "ratelimitctl explain --"):
        assert listed.options <= {word.removesuffix("=") for word in words}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_command_that_takes_a_policy_is_offered_those_of_the_daemon(shell, offers, ratelimitd, listed):
    daemon = ratelimitd(POLICIES)
    expected = {f"ratelimitctl {command} ": ["api", "login"] for command in listed.with_policy}
    expected |= {f"ratelimitctl -s {daemon.socket} --json reset lo": ["login"], f"ratelimitctl check --socket {daemon.socket} a": ["api"]}
    expected |= {line: [] for line in ("ratelimitctl reload ", "ratelimitctl check login ", "ratelimitctl config ")}
    assert dict(zip(expected, offers(shell, *expected, socket=daemon.socket))) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_daemon_nothing_is_offered(shell, offers, tmp_path):
    assert offers(shell, "ratelimitctl reset ", socket=str(tmp_path / "none")) == [[]]


@pytest.mark.parametrize("shell", SHELLS)
def test_what_tests_take_is_offered(shell, offers, monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = ["ratelimitctl test-store ", "ratelimitctl test-store cl", "ratelimitctl test ARCHI", "ratelimitctl test --run x ARCHI",
             "ratelimitctl test README.md ARCHI", "ratelimitctl test-st"]
    files = ["ARCHITECTURE.md"]
    assert offers(shell, *lines) == [["clear", "down", "up"], ["clear"], files, files, files, ["test-store"]]
