"""test_several.py: policies of several limits, and check_all: one decision, all or nothing, through the socket."""

import signal

import pytest
from harness import RpcError, eventually, some

CONFIG = """
policies:
  login: {algorithm: fixed_window, limit: 5, window: 10s}
  api: {algorithm: token_bucket, limit: 100, window: 1m, burst: 20}
  none: {algorithm: token_bucket, limit: 0, window: 1s}
  old: {compat: first-hit, limit: 5, window: 10s}
  search:
    limits:
      - {name: second, algorithm: token_bucket, limit: 2, window: 1s}
      - {name: day, algorithm: fixed_window, limit: 5, window: 1d}
      - {name: hour, algorithm: sliding_log, limit: 4, window: 1h}
  half:
    limits:
      - {name: some, algorithm: fixed_window, limit: 3, window: 1s}
      - {name: never, algorithm: fixed_window, limit: 0, window: 1s}
  counted:
    limits:
      - {name: short, algorithm: fixed_window, limit: 1, window: 1s}
      - {name: long, algorithm: fixed_window, limit: 2, window: 100s, count_denied: true}
"""
START_US = 86400 * 10**6  # the beginning of a day, an hour and a second
DAY_MS, HOUR_MS = 86400000, 3600000


@pytest.fixture
def client(ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, arguments=["--test-clock"]))
    client.call("test_clock", START_US)
    return client


# Several limits per policy


def test_an_allowed_answer_has_the_smallest_remaining_and_the_longest_reset(client):
    answer = client.check("search", "k")
    answer.pop("policy_version")
    assert answer == {"allowed": True, "limit": 2, "remaining": 1, "retry_after_ms": 0, "reset_after_ms": DAY_MS,
                      "source": "memory"}


def test_denied_names_the_limit_with_the_longest_retry(client):
    client.check("search", "k", 2)
    denied = client.check("search", "k")
    assert some(denied, "allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "bound_by") == (
        False, 2, 0, 500, 1000, "search/second")
    client.call("test_clock", START_US + 10**6)
    client.check("search", "k", 2)  # now the hour is full, and the second too
    denied = client.check("search", "k")
    assert some(denied, "limit", "remaining", "retry_after_ms", "reset_after_ms", "bound_by") == (
        4, 0, HOUR_MS - 1000, HOUR_MS, "search/hour")
    client.call("test_clock", START_US + HOUR_MS * 1000)
    denied = client.check("search", "k", 2)
    assert some(denied, "limit", "remaining", "retry_after_ms", "bound_by") == (5, 1, DAY_MS - HOUR_MS, "search/day")
    assert client.check("search", "k")["allowed"]


def test_a_denial_charges_none_of_the_limits(client):
    client.check("search", "k", 2)
    for _ in range(10):
        assert not client.check("search", "k")["allowed"]
    client.call("test_clock", START_US + 10**6)
    assert client.check("search", "k", 2)["allowed"]


def test_what_one_limit_can_never_admit_is_never(client):
    denied = client.check("search", "k", 3)
    assert some(denied, "retry_after_ms", "bound_by", "limit", "remaining") == (-1, "search/second", 2, 2)


def test_a_limit_of_0_among_several_denies_always(client):
    denied = client.check("half", "k")
    assert some(denied, "allowed", "limit", "remaining", "retry_after_ms", "bound_by") == (False, 0, 0, -1, "half/never")
    assert client.check("half", "k", 0)["allowed"]


def test_the_retry_time_holds_when_a_limit_counts_the_denial_of_another(client):
    client.check("counted", "k")
    denied = client.check("counted", "k")
    assert some(denied, "bound_by", "limit", "retry_after_ms", "reset_after_ms") == ("counted/short", 1, 100000, 100000)
    client.call("test_clock", START_US + 100 * 10**6 - 1)
    assert not client.check("counted", "k")["allowed"]
    client.call("test_clock", START_US + 200 * 10**6)
    assert client.check("counted", "k")["allowed"]


def test_peek_and_reset_see_all_limits(client):
    client.check("search", "k", 2)
    assert client.call("peek", "search", "k", 1)["bound_by"] == "search/second"
    assert client.call("reset", "search", "k") == {"removed": True}
    assert client.call("reset", "search", "k") == {"removed": False}
    assert client.call("peek", "search", "k") == {**client.call("peek", "search", "k"), "remaining": 2,
                                                  "reset_after_ms": 0}


def test_the_array_form_carries_bound_by(client):
    client.call("hello", {"decision": "array"})
    assert client.check("search", "k", 2)[:9] == [True, 2, 0, 0, DAY_MS, 0, 2, None, "memory"]
    assert client.check("search", "k")[:9] == [False, 2, 0, 500, 1000, 0, 0, "search/second", "memory"]


def test_policies_lists_the_limits_with_their_names(client):
    policies = {policy["name"]: policy for policy in client.call("policies")}
    assert [limit["name"] for limit in policies["search"]["limits"]] == ["second", "day", "hour"]
    assert policies["search"]["limits"][0]["burst"] == 2 and "name" not in policies["login"]["limits"][0]
    assert policies["search"]["version"] == client.check("search", "k")["policy_version"]


# check_all


def test_check_all_is_one_decision_with_members(client):
    answer = client.call("check_all", [["login", "a", 2], ["search", "b"], ["login", "b"]])
    members = answer.pop("members")
    versions = [member["policy_version"] for member in members]
    assert answer == {"allowed": True, "limit": 2, "remaining": 1, "retry_after_ms": 0, "reset_after_ms": DAY_MS,
                      "source": "memory",
                      "policy_version": ((versions[0] * 31 + versions[1]) * 31 + versions[2]) % 2**32}
    assert [some(m, "allowed", "limit", "remaining") for m in members] == [(True, 5, 3), (True, 2, 1), (True, 5, 4)]


def test_check_all_charges_nothing_where_one_denies(client):
    client.check("login", "b", 5)
    answer = client.call("check_all", [["login", "a", 2], ["login", "b"], ["search", "k"]])
    assert some(answer, "allowed", "bound_by", "limit", "remaining", "retry_after_ms", "granted") == (
        False, "login", 5, 0, 10000, None)
    first, second, third = answer["members"]
    assert some(first, "allowed", "granted", "remaining", "retry_after_ms") == (True, 0, 5, 0)
    assert some(second, "allowed", "granted", "remaining", "retry_after_ms") == (False, None, 0, 10000)
    assert some(third, "allowed", "granted", "remaining") == (True, 0, 2)
    assert client.remaining("login", "a") == 5
    client.check("search", "k", 2)
    answer = client.call("check_all", [["login", "a"], ["search", "k"]])
    assert answer["bound_by"] == answer["members"][1]["bound_by"] == "search/second"


def test_check_all_in_array_form(client):
    client.call("hello", {"decision": "array"})
    answer = client.call("check_all", [["login", "a", 2], ["api", "a", 3]])
    assert answer[:10] == [True, 5, 3, 0, 10000, 0, 5, None, "memory", None] and len(answer) == 12
    members = answer[11].pop("members")
    assert answer[11] == {}
    assert [member[:7] for member in members] == [[True, 5, 3, 0, 10000, 0, 2], [True, 20, 17, 0, 1800, 0, 3]]
    assert [len(member) for member in members] == [11, 11]


def test_check_all_looks_only_where_the_cost_is_0(client):
    client.check("login", "full", 5)
    answer = client.call("check_all", [["login", "full", 0], ["login", "a"], ["none", "a", 0]])
    assert answer["allowed"] and [m["remaining"] for m in answer["members"]] == [0, 4, 0]
    answer = client.call("check_all", [["login", "a"], ["none", "a"]])
    assert some(answer, "allowed", "retry_after_ms", "bound_by", "limit") == (False, -1, "none", 0)
    assert [m["allowed"] for m in answer["members"]] == [True, False]
    assert client.remaining("login", "a") == 4


def test_check_all_takes_a_deadline(client):
    for options in ({"deadline_ms": 50}, {}, None, []):
        assert client.call("check_all", [["login", options and "a" or "b"]], options)["allowed"]


@pytest.mark.parametrize("params, code, words", [
    ([[]], "BAD_REQUEST", ["empty"]),
    ([[["login", "a"], ["api", "a"], ["login", "a", 2]]], "BAD_REQUEST", ["checks[2]", "checks[0]"]),
    ([[["login", "a"], ["login", b"a"]]], "BAD_REQUEST", ["checks[1]", "checks[0]"]),
    ([[["login", "a"], ["old", "a"]]], "UNSUPPORTED", ["checks[1]", "compat"]),
    ([[["old", "a"]]], "UNSUPPORTED", ["checks[0]"]),
    ([[["search", str(i)] for i in range(6)]], "BAD_REQUEST", ["checks[5]", "16 limits"]),
    ([[["login", str(i)] for i in range(17)]], "BAD_REQUEST", ["checks[16]", "16 limits"]),
    ([[["login", "a"], ["login", ""]]], "BAD_KEY", ["checks[1]", "key"]),
    ([[["login", "a"], ["nope", "a"]]], "UNKNOWN_POLICY", ["checks[1]", "nope"]),
    ([[["login", "a", -1]]], "BAD_COST", ["checks[0]", "cost"]),
    ([[["login", "a", {}]]], "BAD_REQUEST", ["checks[0]", "cost"]),
    ([[["login"]]], "BAD_REQUEST", ["checks[0]"]),
    ([["login", "a"]], "BAD_REQUEST", ["checks[0]"]),
    (["login"], "BAD_REQUEST", ["checks"]),
    ([], "BAD_REQUEST", ["check_all"]),
    ([[["login", "a"]], {"cost": 2}], "BAD_REQUEST", ["cost"]),
    ([[["login", "a"]], {"request_id": ""}], "BAD_REQUEST", ["request_id"]),
    ([[["login", "a"]], {"at_most": 1}], "BAD_REQUEST", ["at_most"]),
    ([[["login", "a"]], {"deadline_ms": 0}], "BAD_REQUEST", ["deadline_ms"]),
    ([[["login", "a"]], 5], "BAD_REQUEST", ["options"]),
])
def test_a_bad_check_all_is_named_and_charges_nothing(client, params, code, words):
    with pytest.raises(RpcError) as error:
        client.call("check_all", *params)
    assert error.value.code == code, error.value
    assert all(word in error.value.message for word in words), error.value.message
    assert client.remaining("login", "a") == 5
    assert client.call("stats")["inflight"] == 0


def test_sixteen_members_are_enough(client):
    answer = client.call("check_all", [["login", str(i)] for i in range(16)])
    assert answer["allowed"] and len(answer["members"]) == 16
    stats = client.call("stats")
    assert some(stats, "checks", "allowed", "denied", "inflight") == (16, 16, 0, 0)


# With Redis


def steps(client):
    """Plain checks and check_alls that share keys; pipelined, so that they share one script call."""
    asked = []
    for i in range(40):
        asked.append(client.send("check", "login", "shared"))
        asked.append(client.send("check_all", [["login", "shared", i % 3], ["search", f"k{i % 5}"], ["api", "a", 2]]))
        asked.append(client.send("check", "search", f"k{i % 4}", i % 2))
        asked.append(client.send("peek", "search", "k1", 1))
    return [client.answer(one) for one in asked]


def verdicts(answers):
    return [[a["allowed"], a["remaining"], a.get("bound_by"), [m["allowed"] for m in a.get("members", [])]]
            for a in answers]


def test_redis_and_memory_agree(ratelimitd, redis, connect):
    slow = "defaults: {deadline: 5s}\n" + CONFIG.replace("1s}", "1d}").replace("10s}", "1d}").replace("1m,", "20d,")
    memory = connect(ratelimitd(slow))
    shared = connect(ratelimitd(slow, redis=redis))
    eventually(lambda: shared.check("api", "probe", 0)["source"] == "redis", "Redis is there")
    expected, found = verdicts(steps(memory)), verdicts(steps(shared))
    assert expected == found
    assert {verdict[0] for verdict in found} == {True, False}
    stats = shared.call("stats")
    assert stats["redis_batches"] < 60 and stats["redis_bad_values"] == stats["redis_errors"] == 0
    assert shared.call("reset", "search", "k0") == {"removed": True}


def test_a_reload_to_several_limits_and_back(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(daemon)
    client.check("login", "k", 5)
    daemon.configure(CONFIG.replace(
        "login: {algorithm: fixed_window, limit: 5, window: 10s}",
        "login: {limits: [{name: a, algorithm: fixed_window, limit: 7, window: 10s}, "
        "{name: b, algorithm: gcra, limit: 9, window: 10s}]}"))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: client.check("login", "x", 0)["limit"] == 7, "the new limits hold")
    assert client.call("check_all", [["login", "k", 7]])["allowed"]
    daemon.configure(CONFIG)
    daemon.signal(signal.SIGHUP)
    eventually(lambda: client.check("login", "x", 0)["limit"] == 5, "the old limit holds")


FAILING = """
policies:
  allow: {algorithm: fixed_window, limit: 9, window: 1d, on_failure: allow}
  deny: {algorithm: fixed_window, limit: 9, window: 1d, on_failure: deny}
  error: {algorithm: fixed_window, limit: 9, window: 1d, on_failure: error}
  local:
    limits:
      - {name: day, algorithm: fixed_window, limit: 3, window: 1d}
      - {name: log, algorithm: sliding_log, limit: 4, window: 1d}
    on_failure: local
"""


def test_without_redis_the_strictest_answer_wins(ratelimitd, redis, connect):
    redis.stop()
    client = connect(ratelimitd(FAILING, redis=redis))
    answer = client.call("check_all", [["allow", "k"], ["allow", "l", 5]])
    assert some(answer, "allowed", "source", "reason") == (True, "allow", "down")
    for allowed in (True, False):
        answer = client.call("check_all", [["allow", "k"], ["local", "k", 2]])
        assert some(answer, "allowed", "source", "reason") == (allowed, "local", "down")
        assert [m["source"] for m in answer["members"]] == ["local", "local"]
    assert answer["bound_by"] == "local/day"
    answer = client.call("check_all", [["local", "k"], ["deny", "k"], ["allow", "k", 0]])
    assert some(answer, "allowed", "source", "retry_after_ms", "reset_after_ms", "bound_by") == (
        False, "deny", 1000, 0, None)
    assert [m["allowed"] for m in answer["members"]] == [False, False, True]
    with pytest.raises(RpcError) as error:
        client.call("check_all", [["deny", "k"], ["error", "k"]])
    assert error.value.code == "STORE_UNAVAILABLE"
    assert client.call("check", "local", "k", 2)["bound_by"] == "local/day"
