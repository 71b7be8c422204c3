"""test_ctl_checks.py: parameters of ratelimitctl besides a policy, a key and a cost: options, several checks as one, policies
in braces."""

import json

import pytest
from harness import DENIED, DONE, REFUSED, USAGE

CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1d, start: first_hit}
  api: {algorithm: fixed_window, limit: 2, window: 1d, start: first_hit}
  slow: {algorithm: leaky_bucket, limit: 10, window: 1s, burst: 1, max_wait: 1s}
"""


@pytest.fixture
def daemon(ratelimitd):
    started = ratelimitd(CONFIG, arguments=["--test-clock"])
    started.ctl("test-clock", 0)
    return started


def test_several_checks_are_charged_as_one(daemon):
    done = daemon.ctl("check-all", "login", "alice", ",", "api", "10.0.0.1", 2)
    assert done.returncode == DONE
    assert done.stdout.splitlines() == [
        "allowed  remaining 0/2 (api), resets in 1d  [memory]",
        "  checks[0]  allowed  remaining 4/5, resets in 1d  [memory]",
        "  checks[1]  allowed  remaining 0/2, resets in 1d  [memory]",
    ]
    done = daemon.ctl("check-all", "login", "alice", ",", "api", "10.0.0.1")
    assert done.returncode == DENIED
    assert done.stdout.splitlines()[0] == "denied  remaining 0/2 (api), retry in 1d  [memory]"
    assert daemon.ctl("peek", "login", "alice").stdout.startswith("allowed  remaining 4/5")


def test_several_checks_are_charged_each_on_its_own(daemon):
    done = daemon.ctl("check-many", "login", "alice", ",", "api", "10.0.0.1", 2, ",", "login", "alice", 2)
    assert done.returncode == DONE
    assert done.stdout.splitlines() == [
        "checks[0]  allowed  remaining 4/5, resets in 1d  [memory]",
        "checks[1]  allowed  remaining 0/2, resets in 1d  [memory]",
        "checks[2]  allowed  remaining 2/5, resets in 1d  [memory]",
    ]
    done = daemon.ctl("check-many", "api", "10.0.0.1", ",", "login", "alice")
    assert done.returncode == DENIED
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["denied", "allowed"]
    assert daemon.ctl("peek", "login", "alice").stdout.startswith("allowed  remaining 1/5")


def test_several_checks_are_one_object_of_json(daemon, connect):
    done = daemon.ctl("--json", "check-many", "login", "a", 5, ",", "login", "a")
    assert done.returncode == DENIED
    shown = json.loads(done.stdout)["check_many"]
    assert [one["allowed"] for one in shown] == [True, False]
    client = connect(daemon)
    client.call("hello", {"describe": True})
    assert shown == client.call("check_many", [["login", "b", 5], ["login", "b"]])


def test_a_bad_check_among_several_charges_none(daemon):
    done = daemon.ctl("check-many", "login", "a", ",", "nosuch", "a")
    assert done.returncode == REFUSED and done.stderr.startswith("ratelimitctl: UNKNOWN_POLICY: checks[1]: ")
    assert daemon.ctl("peek", "login", "a").stdout.startswith("allowed  remaining 5/5")


def test_a_comma_may_be_a_key(daemon):
    done = daemon.ctl("--json", "check-all", "login", ",", ",", "api", ",", 1, ",", "login", "2")
    assert done.returncode == DONE and len(json.loads(done.stdout)["members"]) == 3
    assert daemon.ctl("peek", "login", ",").stdout.startswith("allowed  remaining 4/5")
    assert daemon.ctl("peek", "login", "2").stdout.startswith("allowed  remaining 4/5")


@pytest.mark.parametrize("arguments", [
    ["check-all", "login"], ["check-all", "login", "a", ","], ["check-all", "login", "a", ",", "api"],
    ["check-many", "login"], ["check-many", "login", "a", ","], ["check-many", "login", "a", 1, 2],
    ["--deadline", "1s", "check-many", "login", "a"], ["check-all", "login", "a", "b"], ["check-all", "login", "a", 1, 2], ["check-all", "login", "a", 1, "api", "b"],
    ["--at-most", 5, "peek", "login", "a"], ["--deadline", "1s", "reset", "login", "a"], ["--max-wait", "1s", "ping"],
    ["--at-most", 0, "check", "login", "a"], ["--at-most", "x", "check", "login", "a"],
    ["--request-id", "", "check", "login", "a"], ["--request-id", "x" * 65, "check", "login", "a"],
    ["--deadline", "2h", "check", "login", "a"], ["--deadline", 5, "check", "login", "a"],
    ["--max-wait", "soon", "check", "slow", "a"], ["check", "{algorithm: fixed_window", "a"],
])
def test_what_cannot_be_asked_is_wrong_usage(daemon, arguments):
    done = daemon.ctl(*arguments)
    assert done.returncode == USAGE and done.stdout == "" and done.stderr.startswith(("ratelimitctl: ", "usage: "))


@pytest.mark.parametrize("arguments, message", [
    (["check", "login", "a", "many"], "ratelimitctl: COST: 'many' is not a whole number\n"),
    (["check", "login", "a", ""], "ratelimitctl: COST: '' is not a whole number\n"),
    (["reserve", "login", "a", "1.5"], "ratelimitctl: UNITS: '1.5' is not a whole number\n"),
    (["test-clock", "now"], "ratelimitctl: MICROSECONDS: 'now' is not a whole number\n"),
    (["check", "login", "a", "--json"], "ratelimitctl: --json comes after POLICY, where options have ended; "
     "put it before the command, or between check and POLICY\n"),
    (["check", "login", "a", 10**19], f"ratelimitctl: COST: '{10**19}' is too large; the maximum is {2**53 - 1}\n"),
    (["check-all", "login", "a,", "api", "b"],
     "ratelimitctl: COST: 'api' is not a whole number; a comma between two checks is an argument of its own\n"),
    (["check-all", "login", "a", 1, "api", "b"], "ratelimitctl: a comma is missing before: api; try ratelimitctl --help\n"),
    (["--at-most", 5, "peek", "login", "a"], "ratelimitctl: peek takes no --at-most; try ratelimitctl --help\n"),
    (["--request-id", "x", "check-many", "login", "a"],
     "ratelimitctl: check-many takes no --request-id; try ratelimitctl --help\n"),
    (["check", "login"], "usage: ratelimitctl check [OPTION ...] POLICY KEY [COST]\nratelimitctl: KEY is missing\n"),
    (["nosuch"], "ratelimitctl: no such command: nosuch; try ratelimitctl --help\n"),
])
def test_wrong_usage_names_the_mistake_and_the_remedy(daemon, arguments, message):
    done = daemon.ctl(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (USAGE, "", message)


def test_policies_shows_each_override_and_what_it_changes(ratelimitd, connect):
    daemon = ratelimitd("""policies:
  plain: {algorithm: fixed_window, limit: 5, window: 1d}
  search:
    limits:
      - {name: minute, algorithm: token_bucket, limit: 2, window: 1m}
      - {name: day, algorithm: sliding_log, limit: 3, window: 1d}
    overrides:
      - {match: "partner:*", unlimited: true}
      - {key: "user:42", limit: {day: 9, minute: 7}, burst: {minute: 9}}
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s, overrides: [{key: ci, limit: 8}]}
""")
    lines = daemon.ctl("policies").stdout.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == ["POLICY", "jobs", "plain", "search"]
    assert [line for line in lines if line.startswith(("  key", "  match"))] == [
        "  key    ci  limit 8", "  match  partner:*  unlimited", "  key    user:42  minute limit 7, burst 9; day limit 9"]
    shown = json.loads(daemon.ctl("--json", "policies").stdout)["policies"]
    assert shown == connect(daemon).call("policies", {})
    assert [policy.get("overrides") for policy in shown] == [1, None, 2] and "override_list" not in shown[1]
    assert shown[2]["override_list"] == [
        {"match": "partner:*", "unlimited": True},
        {"key": "user:42", "limits": [{"name": "minute", "limit": 7, "burst": 9}, {"name": "day", "limit": 9}]}]


def test_more_overrides_than_an_answer_has_room_for_are_counted(ratelimitd, connect):
    entries = "\n".join(f"      - {{key: '{i:01000}', limit: 6}}" for i in range(1200))
    daemon = ratelimitd(f"policies:\n  p:\n    algorithm: fixed_window\n    limit: 5\n    window: 1d\n    overrides:\n{entries}\n")
    (policy,) = connect(daemon).call("policies")
    n = len(policy["override_list"])
    assert policy["overrides"] == 1200 and 800 < n < 1200
    assert daemon.ctl("policies").stdout.endswith(f"\n  and {1200 - n} more overrides, which did not fit into the answer\n")


def test_a_wait_that_is_too_long_is_a_denial(daemon):
    assert daemon.ctl("check", "slow", "a").stdout.startswith("allowed")
    assert "allowed, go ahead in 100ms  " in daemon.ctl("check", "slow", "a").stdout
    done = daemon.ctl("--max-wait", "150ms", "check", "slow", "a")
    assert done.returncode == DENIED
    assert "allowed, go ahead in 200ms  " in daemon.ctl("--max-wait", "200ms", "check", "slow", "a", 1).stdout


def test_a_deadline_reaches_the_daemon(daemon):
    assert daemon.ctl("--deadline", "5ms", "check", "login", "a").returncode == DONE
    assert daemon.ctl("--deadline", "5ms", "check-all", "login", "a").returncode == DONE
