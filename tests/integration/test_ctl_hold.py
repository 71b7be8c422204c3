"""test_ctl_hold.py: ratelimitctl acquire: it holds a slot until its command or its standard input ends,
and then releases it. The test plays the daemon, so that it can deny, and close the connection at any moment."""

import signal
import socket
import subprocess
import sys

import pytest

from harness import DENIED, DONE, PATIENCE_S, REFUSED, UNREACHABLE, USAGE, program
from played_daemon import PlayedDaemon

DECISION = {"limit": 2, "remaining": 1, "retry_after_ms": 0, "reset_after_ms": 0, "source": "memory", "policy_version": 1}
TAKEN = {"allowed": True, **DECISION, "slot": "s-1"}
FULL = {"allowed": False, **DECISION, "remaining": 0, "retry_after_ms": 300}


class Slots(PlayedDaemon):
    """Answers acquire with `acquired` and all other requests like a daemon; records the requests."""

    def __init__(self, acquired=TAKEN):
        self.acquired = acquired
        super().__init__()

    def answer(self, _msgid, method, params):
        self.asked.append([method, *params])
        return {"hello": {}, "acquire": self.acquired, "release": {"released": True}}[method]

    def leave(self):
        self.peer.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def slots(request):
    daemon = Slots(getattr(request, "param", TAKEN))
    yield daemon
    daemon.close()


def argv(slots, *arguments):
    return [program("ratelimitctl"), "-s", slots.path, *arguments]


def hold(slots, *arguments, **options):
    return subprocess.run(argv(slots, *arguments), capture_output=True, text=True, timeout=PATIENCE_S,
                          **{"stdin": subprocess.DEVNULL, **options})


def held(slots, *arguments):
    return subprocess.Popen(argv(slots, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def python(code):
    return ["--", sys.executable, "-S", "-c", code]


def test_a_slot_is_held_while_the_command_runs(slots):
    done = hold(slots, "acquire", "jobs", "a", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert slots.has_left.wait(PATIENCE_S)
    assert slots.asked[-2:] == [["acquire", "jobs", "a"], ["release", "s-1"]]


@pytest.mark.parametrize("slots", [FULL], indirect=True)
def test_a_command_does_not_run_without_a_slot(slots):
    done = hold(slots, "acquire", "jobs", "a", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (DENIED, "")
    assert done.stderr == "denied  0 of 2 slots free; acquire --wait waits for one  [memory]\n"


@pytest.mark.parametrize("slots", [FULL], indirect=True)
def test_a_denial_without_a_command_is_the_answer(slots):
    done = hold(slots, "--json", "acquire", "jobs", "a")
    assert done.returncode == DENIED and '"allowed": false' in done.stdout and done.stderr == ""


@pytest.mark.parametrize("slots", ["UNSUPPORTED: policy: has no concurrency limit"], indirect=True)
def test_an_error_is_an_error(slots):
    done = hold(slots, "acquire", "jobs", "a", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert done.stderr == "ratelimitctl: UNSUPPORTED: policy: has no concurrency limit\n"


@pytest.mark.parametrize("command, status", [("/nonexistent/x", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_run_is_reported(slots, command, status):
    done = hold(slots, "acquire", "jobs", "a", "--", command)
    assert done.returncode == status and command in done.stderr
    assert slots.has_left.wait(PATIENCE_S) and slots.asked[-1] == ["release", "s-1"]


def test_a_command_that_dies_of_a_signal_ends_as_in_a_shell(slots):
    done = hold(slots, "acquire", "jobs", "a", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + 9


def test_without_a_command_it_is_held_until_standard_input_ends(slots):
    process = held(slots, "acquire", "jobs", "a")
    assert process.stdout.readline() == "allowed  remaining 1/2  [memory]\n"
    assert process.stdout.readline() == "slot s-1\n"
    assert slots.asked[-1][0] == "acquire"
    assert process.communicate("\n\n", timeout=PATIENCE_S) == ("", "")
    assert process.returncode == DONE
    assert slots.has_left.wait(PATIENCE_S) and slots.asked[-1] == ["release", "s-1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_or_until_a_signal_comes(slots, number):
    process = held(slots, "acquire", "jobs", "a")
    process.stdout.readline()
    process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == DONE
    assert slots.has_left.wait(PATIENCE_S) and slots.asked[-1] == ["release", "s-1"]


def test_a_signal_is_passed_on_to_the_command(slots):
    code = ("import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(9))\n"
            "print('ready', flush=True)\nwhile True: signal.pause()\n")
    process = held(slots, "acquire", "jobs", "a", *python(code))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 9
    assert slots.has_left.wait(PATIENCE_S) and slots.asked[-1] == ["release", "s-1"]


def test_a_killed_ratelimitctl_takes_its_command_with_it(slots):
    """Earlier kill -9 freed the slot, and the job ran on without it."""
    # print() in a handler fails while another one is under way, and that of "ready" may not be back yet
    code = ("import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'ended\\n'), os._exit(0)))\n"
            "print('ready', flush=True)\nwhile True: signal.pause()\n")
    process = held(slots, "acquire", "jobs", "a", *python(code))
    assert process.stdout.readline() == "ready\n"
    process.kill()
    assert process.communicate(timeout=PATIENCE_S)[0] == "ended\n"
    assert slots.has_left.wait(PATIENCE_S)


def test_a_lost_connection_is_a_lost_slot(slots):
    process = held(slots, "acquire", "jobs", "a")
    process.stdout.readline()
    process.stdout.readline()
    slots.leave()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (UNREACHABLE, "")
    assert err == "ratelimitctl: the connection to the daemon ended, so the slot is lost\n"


def test_a_command_goes_on_without_its_slot(slots):
    process = held(slots, "acquire", "jobs", "a", "--", "sh", "-c", "echo ready; read line; exit 5")
    assert process.stdout.readline() == "ready\n"
    slots.leave()
    assert process.stderr.readline() == ("ratelimitctl: the connection to the daemon ended, so the slot is lost; the "
                                         "command continues without it\n")
    process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 5


@pytest.mark.parametrize("arguments", [["acquire"], ["acquire", "jobs"], ["acquire", "jobs", "a", "--"],
                                       ["acquire", "jobs", "a", "echo"], ["acquire", "{algorithm", "a"]])
def test_wrong_usage_asks_nobody(arguments):
    done = subprocess.run([program("ratelimitctl"), "-s", "/nonexistent", *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
    assert done.returncode == USAGE and done.stdout == "" and done.stderr


def test_no_daemon_is_3():
    done = subprocess.run([program("ratelimitctl"), "-s", "/nonexistent/rl.sock", "acquire", "jobs", "a", "--", "echo", "ran"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (UNREACHABLE, "") and "No such file" in done.stderr
