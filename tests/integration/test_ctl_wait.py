"""test_ctl_wait.py: ratelimitctl --wait: it repeats the request until it is allowed, for the given time at most, and ends on
SIGINT. The test plays the daemon, so that it can deny any number of times."""

import json
import signal
import subprocess

import pytest

from harness import DENIED, DONE, PATIENCE_S, REFUSED, USAGE, eventually, program
from played_daemon import PlayedDaemon

INTERRUPTED = 130
FIELDS = {"limit": 3, "remaining": 0, "reset_after_ms": 20, "source": "memory", "policy_version": 1}
YES = {"allowed": True, **FIELDS, "retry_after_ms": 0}
SLOT = {**YES, "slot": "s-1"}


def no(retry_after_ms):
    return {"allowed": False, **FIELDS, "retry_after_ms": retry_after_ms}


class Player(PlayedDaemon):
    """Answers each check or acquire with the next of `answers`, and repeats the last one; records these requests."""

    def __init__(self, *answers):
        self.answers, self.msgids = list(answers), []
        super().__init__()

    def answer(self, msgid, method, params):
        if method in ("hello", "release"):
            return {"released": True} if method == "release" else {}
        self.asked.append([method, *params])
        self.msgids.append(msgid)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def ctl(self, *arguments):
        return subprocess.run([program("ratelimitctl"), "-s", self.path, *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE_S)

    def start(self, *arguments):
        return subprocess.Popen([program("ratelimitctl"), "-s", self.path, *arguments], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def play():
    players = []

    def start(*answers):
        players.append(Player(*answers))
        return players[-1]

    yield start
    for player in players:
        player.close()


def test_a_check_is_asked_again_until_it_is_allowed(play):
    player = play(no(20), no(1), YES)
    done = player.ctl("check", "--wait", "login", "alice")
    assert (done.returncode, done.stdout, done.stderr) == (DONE, "allowed  remaining 0/3, resets in 20ms  [memory]\n", "")
    assert player.asked == [["check", "login", "alice"]] * 3 and len(set(player.msgids)) == 3


def test_only_the_last_answer_is_printed(play):
    done = play(no(1), no(1), YES).ctl("--json", "--wait", "check", "login", "alice")
    assert done.returncode == DONE and json.loads(done.stdout) == YES


def test_a_wait_that_is_too_long_ends_with_the_last_denial(play):
    player = play(no(20), no(60_000))
    done = player.ctl("check", "--wait=5s", "login", "alice")
    assert (done.returncode, done.stdout) == (DENIED, "denied  remaining 0/3, retry in 1m  [memory]\n")
    assert len(player.asked) == 2


def test_what_no_waiting_helps_against_is_not_waited_for(play):
    for option in ("--wait", "--wait=1h"):
        player = play(no(-1))
        done = player.ctl("check", option, "login", "alice", "5")
        assert (done.returncode, done.stdout) == (DENIED, "denied  cost 5 exceeds the limit of 3: never allowed  [memory]\n")
        assert len(player.asked) == 1


def test_a_delay_is_waited_and_no_longer_than_the_wait(play):
    done = play({**YES, "delay_ms": 30}).ctl("check", "--wait", "slow", "alice")
    assert (done.returncode, done.stdout) == (DONE, "allowed  remaining 0/3, resets in 20ms  [memory]\n")
    player = play(YES)
    assert player.ctl("check", "--wait=5s", "slow", "alice").returncode == DONE
    assert 0 < player.asked[0][3]["max_wait_ms"] <= 5000  # the daemon denies a longer delay
    player = play(YES)
    assert player.ctl("check", "--wait=5s", "--max-wait", "1s", "slow", "alice").returncode == DONE
    assert player.asked[0][3] == {"max_wait_ms": 1000}


def test_a_delay_is_printed_where_nobody_waits(play):
    done = play({**YES, "delay_ms": 250}).ctl("check", "slow", "alice")
    assert done.stdout == "allowed, go ahead in 250ms  remaining 0/3, resets in 20ms  [memory]\n"


def test_an_error_ends_the_wait(play):
    done = play(no(1), "UNKNOWN_POLICY: gone").ctl("check", "--wait", "login", "alice")
    assert (done.returncode, done.stdout, done.stderr) == (REFUSED, "", "ratelimitctl: UNKNOWN_POLICY: gone\n")


@pytest.mark.parametrize("command", [["check", "--wait"], ["acquire", "--wait"]])
def test_sigint_ends_the_wait_with_130(play, command):
    player = play(no(3_600_000))
    process = player.start(*command, "login", "alice")
    eventually(lambda: player.asked, "it was asked")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (INTERRUPTED, "", "")


def test_an_acquire_asks_again_whatever_the_denial_says(play):
    player = play(no(3_600_000), no(3_600_000), SLOT)
    done = player.ctl("acquire", "--wait", "jobs", "alice", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (DONE, "ran\n", "")
    assert player.asked == [["acquire", "jobs", "alice"]] * 3 and len(set(player.msgids)) == 3


def test_an_acquire_gives_up_when_its_time_is_over(play):
    player = play(no(3_600_000))
    done = player.ctl("acquire", "--wait=80ms", "jobs", "alice", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (DENIED, "", "denied  0 of 3 slots free  [memory]\n")
    assert len(player.asked) >= 2  # 50 ms, then the rest
    player = play({**no(-1), "limit": 0})
    done = player.ctl("acquire", "--wait", "jobs", "alice")
    assert (done.returncode, done.stdout) == (DENIED, "denied  the limit is 0: never allowed  [memory]\n")
    assert len(player.asked) == 1


def test_a_slot_is_acquired_as_soon_as_its_holder_is_done(ratelimitd):
    daemon = ratelimitd("policies: {jobs: {algorithm: concurrency, limit: 1}}\n")
    argv = [program("ratelimitctl"), "-s", daemon.socket, "acquire", "--wait", "jobs", "a", "--", "cat"]
    first, second = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    eventually(lambda: json.loads(daemon.ctl("--json", "stats").stdout)["denied"] > 0, "one of them waits")
    for process in (first, second):
        process.stdin.write("line\n")
        process.stdin.close()
    for process in (first, second):
        assert process.wait(PATIENCE_S) == DONE and process.stdout.read() == "line\n"
        process.stdout.close()


def test_a_limit_is_waited_for_at_a_real_daemon(ratelimitd):
    daemon = ratelimitd("policies: {drip: {algorithm: token_bucket, limit: 20, window: 1s, burst: 1}}\n")
    for _ in range(4):
        assert daemon.ctl("check", "--wait=5s", "drip", "a").returncode == DONE


def test_what_does_not_wait_takes_no_wait(ratelimitd):
    daemon = ratelimitd()
    done = daemon.ctl("--wait", "peek", "default", "a")
    assert (done.returncode, done.stderr) == (USAGE, "ratelimitctl: peek takes no --wait; try ratelimitctl --help\n")
