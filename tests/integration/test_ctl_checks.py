"""test_ctl_checks.py: what ratelimitctl can ask for beside a policy, a key and a cost: options, several checks as one,
policies in braces."""

import json

import pytest

CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1d, start: first_hit}
  api: {algorithm: fixed_window, limit: 2, window: 1d, start: first_hit}
  slow: {algorithm: leaky_bucket, limit: 10, window: 1s, burst: 1, max_wait: 1s}
"""
DONE, DENIED, USAGE, UNREACHABLE, REFUSED = range(5)


@pytest.fixture
def daemon(ratelimitd):
    started = ratelimitd(CONFIG, arguments=["--test-clock"])
    started.ctl("test-clock", 0)
    return started


def test_several_checks_are_charged_as_one(daemon):
    done = daemon.ctl("check-all", "login", "alice", ",", "api", "10.0.0.1", 2)
    assert done.returncode == DONE
    assert done.stdout.splitlines() == [
        "allowed  0 of 2 left, whole again in 1d  (memory)",
        "  checks[0]  allowed  4 of 5 left, whole again in 1d  (memory)",
        "  checks[1]  allowed  0 of 2 left, whole again in 1d  (memory)",
    ]
    done = daemon.ctl("check-all", "login", "alice", ",", "api", "10.0.0.1")
    assert done.returncode == DENIED
    assert done.stdout.splitlines()[0] == "denied  0 of 2 left, retry in 1d, bound by api  (memory)"
    assert daemon.ctl("peek", "login", "alice").stdout.startswith("allowed  4 of 5 left")


def test_a_comma_may_be_a_key(daemon):
    done = daemon.ctl("--json", "check-all", "login", ",", ",", "api", ",", 1, ",", "login", "2")
    assert done.returncode == DONE and len(json.loads(done.stdout)["members"]) == 3
    assert daemon.ctl("peek", "login", ",").stdout.startswith("allowed  4 of 5 left")
    assert daemon.ctl("peek", "login", "2").stdout.startswith("allowed  4 of 5 left")


@pytest.mark.parametrize("arguments", [
    ["check-all", "login"], ["check-all", "login", "a", ","], ["check-all", "login", "a", ",", "api"],
    ["check-all", "login", "a", "b"], ["check-all", "login", "a", 1, 2], ["check-all", "login", "a", 1, "api", "b"],
    ["--at-most", 5, "peek", "login", "a"], ["--deadline", "1s", "reset", "login", "a"], ["--max-wait", "1s", "ping"],
    ["--at-most", 0, "check", "login", "a"], ["--at-most", "x", "check", "login", "a"],
    ["--request-id", "", "check", "login", "a"], ["--request-id", "x" * 65, "check", "login", "a"],
    ["--deadline", "2h", "check", "login", "a"], ["--deadline", 5, "check", "login", "a"],
    ["--max-wait", "soon", "check", "slow", "a"], ["check", "{algorithm: fixed_window", "a"],
])
def test_what_cannot_be_asked_is_wrong_usage(daemon, arguments):
    done = daemon.ctl(*arguments)
    assert done.returncode == USAGE and done.stdout == "" and done.stderr.startswith(("ratelimitctl: ", "usage: "))


def test_a_wait_that_is_too_long_is_a_denial(daemon):
    assert daemon.ctl("check", "slow", "a").stdout.startswith("allowed")
    assert "go on after 100ms" in daemon.ctl("check", "slow", "a").stdout
    done = daemon.ctl("--max-wait", "150ms", "check", "slow", "a")
    assert done.returncode == DENIED
    assert "go on after 200ms" in daemon.ctl("--max-wait", "200ms", "check", "slow", "a", 1).stdout


def test_a_deadline_reaches_the_daemon(daemon):
    assert daemon.ctl("--deadline", "5ms", "check", "login", "a").returncode == DONE
    assert daemon.ctl("--deadline", "5ms", "check-all", "login", "a").returncode == DONE
