"""test_explain.py: the explanation of a decision: the method, on memory and Redis, and the command."""

import json
import re
import time

import pytest
from harness import RpcError, eventually, some, stored_keys

CONFIG = """
defaults: {deadline: 5s}
policies:
  login: {algorithm: fixed_window, limit: 2, window: 1d}
  hit: {algorithm: fixed_window, start: first_hit, limit: 2, window: 1d}
  never: {algorithm: fixed_window, limit: 0, window: 1d}
  half:
    limits:
      - {name: some, algorithm: fixed_window, limit: 3, window: 1d}
      - {name: none, algorithm: fixed_window, limit: 0, window: 1d}
  queue: {algorithm: leaky_bucket, limit: 1, window: 1d, burst: 1, max_wait: 30d}
  search:
    limits:
      - {name: minute, algorithm: token_bucket, limit: 2, window: 1d}
      - {name: day, algorithm: sliding_log, limit: 3, window: 2d}
      - {name: week, algorithm: sliding_counter, limit: 4, window: 7d}
    overrides:
      - {match: "partner:*", unlimited: true}
      - {key: "user:42", limit: {day: 9}}
  tenant:
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: token_bucket, limit: 5, window: 1d}
      - {name: tenant, by: [tenant], algorithm: fixed_window, limit: 9, window: 1d}
    candidate:
      - {name: all, by: [], algorithm: fixed_window, limit: 1, window: 1d}
  trial:
    algorithm: fixed_window
    limit: 5
    window: 1d
    start: first_hit
    candidate:
      - {name: day, algorithm: fixed_window, limit: 2, window: 1d, start: first_hit}
      - {name: week, algorithm: sliding_log, limit: 1500, window: 7d}
    overrides: [{key: vip, limit: 50}]
  closed: {algorithm: fixed_window, limit: 0, window: 1d, candidate: [{name: day, algorithm: fixed_window, limit: 1, window: 1d}]}
  dear:
    {algorithm: token_bucket, limit: 5000, window: 1d, candidate: [{name: log, algorithm: sliding_log, limit: 5000, window: 1d}]}
  tried: {algorithm: fixed_window, limit: 1, window: 1d, shadow: true}
  free: {unlimited: true}
  yearly: {algorithm: calendar_window, limit: 2, window: year}
  old: {compat: rlaas-fixed, limit: 2, window: 86400s}
  older: {compat: window-start-millis, limit: 2, window: 1d}
  logged: {compat: rlaas-sliding, key_prefix: logged, limit: 2, window: 1d}
"""
DAY_MS = 86400000


@pytest.fixture
def served(any_store, ratelimitd, connect):
    """A client, and the server behind the daemon (or None)."""
    client = connect(ratelimitd(CONFIG, redis=any_store))
    if any_store is not None:
        eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    return client, any_store


@pytest.fixture
def client(served):
    return served[0]


def test_it_is_the_decision_of_a_peek_and_more(client):
    client.check("search", "k", 2)
    for cost in (0, 1, 2, 3, 9):
        peeked, explained = client.call("peek", "search", "k", cost), client.call("explain", "search", "k", cost)
        for name in ("retry_after_ms", "reset_after_ms"):  # time passes between the two
            assert abs(peeked.pop(name) - explained[name]) < 60000
        assert {name: explained[name] for name in peeked} == peeked
    assert client.call("explain", "search", "k")["allowed"] is False
    assert client.remaining("search", "k") == 0


def test_it_shows_each_limit_its_state_and_its_key(client):
    client.check("search", "k", 2)
    answer = client.call("explain", "search", "k")
    assert some(answer, "policy", "override", "bound_by") == ("search", None, "search/minute")
    assert [some(limit, "name", "algorithm", "limit", "allowed", "remaining") for limit in answer["limits"]] == [
        ("minute", "token_bucket", 2, False, 0), ("day", "sliding_log", 3, True, 1),
        ("week", "sliding_counter", 4, True, 2)]
    assert answer["limits"][0]["retry_after_ms"] > 0 and answer["limits"][1]["retry_after_ms"] == 0
    minute, day, week = answer["state"]
    assert minute["tokens"] == 0 and DAY_MS - 60000 < minute["full_in_ms"] <= DAY_MS
    assert day["count"] == 2 and 2 * DAY_MS - 60000 < day["newest_expires_in_ms"] <= 2 * DAY_MS
    assert some(week, "count", "previous_count", "previous_still_counts") == (2, 0, 0)
    assert 0 < week["window_ends_in_ms"] <= 7 * DAY_MS
    assert [key.split("}:")[1] for key in answer["store_keys"]] == [
        "tb1:search/minute:k", "sl1:search/day:k", "sc1:search/week:k"]
    assert 'limit "minute" (token_bucket, 2 per 1d): 0 of 2 units are free and this check needs 1' in answer["why"]


def test_a_calendar_window_is_said_by_its_name(client):
    assert "(calendar_window, 2 per year of UTC)" in client.call("explain", "yearly", "k")["why"]


@pytest.mark.parametrize("policy", ["login", "hit", "search", "tenant", "queue", "old", "older", "logged"])
def test_the_keys_are_those_in_redis(served, policy):
    client, server = served
    client.check(policy, "a:k")
    answer = client.call("explain", policy, "a:k")
    assert len(answer["store_keys"]) == len(answer["limits"]) == len(answer["state"])
    if server is None:
        return
    stored = {key.decode() for key in stored_keys(server.client()) if b"+candidate" not in key}
    assert set(answer["store_keys"]) == stored


def test_a_key_that_came_as_bin_is_returned_as_bin(client):
    key = b"\x00\xff{}"
    (store_key,) = client.call("explain", "login", key)["store_keys"]
    assert isinstance(store_key, bytes) and store_key.endswith(b"}:fw1:login:" + key)
    assert isinstance(client.call("explain", "login", "k")["store_keys"][0], str)


def test_windows_and_queues_show_their_end(client):
    assert some(client.call("explain", "hit", "k")["state"][0], "count", "window_ends_in_ms") == (0, 0)
    client.check("hit", "k")
    state = client.call("explain", "hit", "k")["state"][0]
    assert state["count"] == 1 and DAY_MS - 60000 < state["window_ends_in_ms"] <= DAY_MS
    client.check("queue", "k", 1)
    client.check("queue", "k", 1)
    answer = client.call("explain", "queue", "k")
    assert answer["allowed"] and answer["delay_ms"] > DAY_MS and "would have to wait" in answer["why"]
    assert some(answer["state"][0], "tokens") == (0,) and 0 < answer["state"][0]["queue_drains_in_ms"] <= DAY_MS


def test_it_names_denials_that_no_wait_can_end(client):
    answer = client.call("explain", "login", "k", 3)
    assert some(answer, "allowed", "retry_after_ms") == (False, -1) and "never has more than 2 units" in answer["why"]
    answer = client.call("explain", "never", "k")
    assert some(answer, "allowed", "retry_after_ms", "store_keys", "state") == (False, -1, [], [])
    assert some(answer["limits"][0], "allowed", "retry_after_ms", "limit") == (False, -1, 0) and "is 0" in answer["why"]
    answer = client.call("explain", "half", "k")
    assert some(answer, "bound_by", "state") == ("half/none", []) and 'limit "none" is 0' in answer["why"]
    assert [limit.get("allowed") for limit in answer["limits"]] == [None, False]
    assert client.call("explain", "never", "k", 0)["limits"][0]["allowed"] is True


def test_it_names_the_override(client):
    answer = client.call("explain", "search", "partner:7")
    assert some(answer, "allowed", "source", "override", "limits", "store_keys") == (
        True, "unlimited", "partner:*", [], [])
    assert "partner:*" in answer["why"] and "unlimited" in answer["why"]
    answer = client.call("explain", "search", "user:42")
    assert answer["override"] == "user:42" and answer["limits"][1]["limit"] == 9
    answer = client.call("explain", "free", "k")
    assert some(answer, "source", "override", "limits") == ("unlimited", None, [])


def test_a_shadow_policy_is_explained_as_if_enforced(client):
    client.check("tried", "k")
    answer = client.call("explain", "tried", "k")
    assert some(answer, "allowed", "shadow_denied", "retry_after_ms") == (True, True, 0)
    assert answer["limits"][0]["allowed"] is False and answer["limits"][0]["retry_after_ms"] > 0
    assert answer["why"].startswith("Would be denied") and "shadow" in answer["why"]


def test_the_array_form_has_it_all_in_the_map_behind(client):
    client.call("hello", {"decision": "array"})
    answer = client.call("explain", "tried", "k")
    assert len(answer) == 12 and set(answer[11]) == {"policy", "override", "why", "limits", "store_keys", "state"}
    client.check("tried", "k")
    assert client.call("explain", "tried", "k")[11]["shadow_denied"] is True


def test_it_shows_the_answer_of_the_candidate(client):
    client.check("trial", "k", 2)
    answer = client.call("explain", "trial", "k")
    assert some(answer, "allowed", "remaining") == (True, 2)
    candidate = answer["candidate"]
    assert some(candidate, "allowed", "limit", "remaining", "bound_by", "source") == (
        False, 2, 0, "trial/day", answer["source"])
    assert candidate["policy_version"] == answer["policy_version"] and 0 < candidate["retry_after_ms"] <= DAY_MS
    assert candidate["why"].startswith('Would be denied by limit "day" (fixed_window, 2 per 1d): 0 of 2 units are free')
    assert [some(limit, "name", "allowed", "remaining") for limit in candidate["limits"]] == [
        ("day", False, 0), ("week", True, 1498)]
    assert [state["count"] for state in candidate["state"]] == [2, 2]
    assert [key.split("}:")[1] for key in candidate["store_keys"]] == [
        "fh1:trial+candidate/day:k", "sl1:trial+candidate/week:k"]
    fresh = client.call("explain", "trial", "fresh")["candidate"]
    assert fresh["allowed"] and fresh["why"].startswith('Would be allowed by limit "day"')
    assert client.call("explain", "closed", "k")["candidate"]["allowed"]


def test_explaining_a_candidate_charges_and_counts_nothing(served):
    client, server = served
    for _ in range(3):
        assert client.call("explain", "trial", "k", 2)["candidate"]["allowed"]
    stats = client.call("stats")
    assert some(stats, "checks", "candidate_allowed", "candidate_denied", "candidate_skipped", "inflight") == (0,) * 5
    if server is not None:
        assert stored_keys(server.client()) == []


def test_a_candidate_that_does_not_decide_has_no_answer(client):
    assert client.call("explain", "trial", "vip")["candidate"] is None
    assert client.call("explain", "dear", "k", 1500)["candidate"] is None
    assert client.call("explain", "dear", "k", 15)["candidate"]["allowed"]
    assert "candidate" not in client.call("explain", "login", "k")


def test_the_array_form_has_the_candidate_as_an_array_too(client):
    client.call("hello", {"decision": "array"})
    client.check("trial", "k", 2)
    candidate = client.call("explain", "trial", "k")[11]["candidate"]
    assert candidate[0] is False and set(candidate[11]) == {"why", "limits", "store_keys", "state"}


def test_nothing_is_charged(client):
    for _ in range(3):
        assert client.call("explain", "login", "k", 2)["allowed"]
        client.call("explain", "tenant", "a:b")
    assert client.remaining("login", "k") == 2
    stats = client.call("stats")
    assert some(stats, "checks", "allowed", "candidate_allowed", "candidate_denied", "inflight") == (0, 0, 0, 0, 0)


def test_a_candidate_may_count_by_parts_that_no_limit_shares(served):
    client, server = served
    client.check("tenant", "a:b")
    client.check("tenant", "c:d")
    eventually(lambda: some(client.call("stats"), "candidate_allowed", "candidate_only_denied") == (1, 1), "both")
    assert client.call("reset", "tenant", "a:b") == {"removed": True}
    if server is not None:
        left = {key.decode().split("}:")[1]: key.decode().split("{")[1] for key in stored_keys(server.client())}
        assert sorted(left) == ["fw1:tenant+candidate/all:", "fw1:tenant/tenant:a", "fw1:tenant/tenant:c", "tb1:tenant/user:c:d"]
        assert left["fw1:tenant/tenant:c"].split(":")[0] == left["tb1:tenant/user:c:d"].split(":")[0]


@pytest.mark.parametrize("params, code", [
    (["login"], "BAD_REQUEST"), (["login", "k", "x"], "BAD_REQUEST"), (["login", "k", -1], "BAD_COST"),
    (["login", "k", {}], "BAD_REQUEST"), (["nope", "k"], "UNKNOWN_POLICY"), (["login", ""], "BAD_KEY"),
    (["tenant", "k"], "BAD_KEY"), ([5, "k"], "BAD_REQUEST"), (["login", 5], "BAD_REQUEST"),
])
def test_what_it_refuses(client, params, code):
    with pytest.raises(RpcError) as error:
        client.call("explain", *params)
    assert error.value.code == code


def test_without_redis_it_returns_the_answer_of_a_check(ratelimitd, redis, connect):
    redis.stop()
    client = connect(ratelimitd(CONFIG, redis=redis))
    assert some(client.call("explain", "login", "k"), "allowed", "source", "reason") == (True, "local", "down")
    assert client.call("explain", "never", "k")["allowed"] is False
    assert client.call("explain", "search", "partner:7")["source"] == "unlimited"
    assert some(client.call("explain", "closed", "k"), "allowed", "candidate") == (False, None)


def test_a_configured_prefix_is_shown(ratelimitd, redis, connect):
    client = connect(ratelimitd(CONFIG, redis=redis, redis_options={"key_prefix": "mine"}))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    assert client.call("explain", "login", "k")["store_keys"][0].startswith("mine:{b")


# ratelimitctl explain


def test_the_command_prints_lines_for_people(ratelimitd):
    daemon = ratelimitd(CONFIG)
    done = daemon.ctl("explain", "search", "k")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "would be allowed, leaving 1 of 2 (search/minute)  [memory]" and lines[1].startswith("why       Allowed by limit")
    assert lines[2] == "policy    search" and len(lines) == 3 + 3 * 3
    assert lines[3] == "limit     minute  allows  token_bucket, 2 per 1d"
    assert lines[4] == "  state   tokens 2" and lines[5].endswith(":tb1:search/minute:k")
    done = daemon.ctl("explain", "search", "k", "3")
    assert done.returncode == 1 and done.stdout.startswith("would be denied  cost 3 exceeds the limit of 2 (search/minute): never allowed")
    done = daemon.ctl("explain", "search", "user:42")
    assert "override  user:42" in done.stdout.splitlines()
    assert daemon.ctl("explain", "half", "k").stdout.count("not asked") == 1
    daemon.ctl("check", "trial", "k", 2)
    lines = daemon.ctl("explain", "trial", "k").stdout.splitlines()
    assert lines[6].startswith("candidate would be denied  remaining 0/2 (trial/day), retry in ") and len(lines) == 6 + 2 + 2 * 3
    assert lines[7].startswith('why       Would be denied by limit "day"') and lines[-3].startswith("limit     week  allows")
    assert daemon.ctl("explain", "trial", "vip").stdout.splitlines()[-1] == "candidate does not decide this check"
    assert daemon.ctl("explain", "nope", "k").returncode == 4
    assert daemon.ctl("explain", "search").returncode == 2


def test_the_command_prints_one_object(ratelimitd):
    daemon = ratelimitd(CONFIG)
    done = daemon.ctl("--json", "explain", "never", "k")
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and answer["policy"] == "never" and answer["why"].startswith("Denied")


# A value of another type in Redis


FOREIGN = {
    "hash": lambda server, key: server.hset(key, "f", "v"), "set": lambda server, key: server.sadd(key, "m"),
    "zset": lambda server, key: server.zadd(key, {"m": 1}), "list": lambda server, key: server.rpush(key, "x"),
    "string": lambda server, key: server.set(key, "5"),
}
OWN_TYPE = {"search": "list", "slots": "zset", "logged": "zset"}
NATIVE = ["login", "hit", "queue", "yearly", "search", "slots"]


def unexplained(client, policy, key):
    with pytest.raises(RpcError) as error:
        client.call("explain", policy, key, 0)
    assert error.value.code == "STORE_UNAVAILABLE"
    return error.value.message


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("policy", NATIVE)
def test_explain_names_a_key_of_another_type_and_reset_deletes_it(policy, foreign, ratelimitd, connect, redis):
    """Earlier, neither an answer nor the log named it, and `reset` failed like the check."""
    client = connect(ratelimitd(CONFIG + "  slots: {algorithm: concurrency, limit: 2, slot_ttl: 1h}\n", redis=redis))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    if foreign == OWN_TYPE.get(policy, "string"):
        pytest.skip("its own type")
    name = client.call("explain", policy, "a k", 0)["store_keys"][-2 if policy == "search" else -1]
    with redis.client() as server:
        FOREIGN[foreign](server, name)
        message = unexplained(client, policy, "a k")
        assert f"WRONGTYPE: the key '{name}' in Redis holds a value of another type; reset deletes it" in message
        assert message.endswith("; a check would be answered by on_failure: local")
        assert client.call("reset", policy, "a k") == {"removed": True}
        assert stored_keys(server) == []
        assert client.call("reset", policy, "a k") == {"removed": False}
        assert client.call("explain", policy, "a k", 0)["allowed"]


@pytest.mark.parametrize("keys, written", [("clear", " key mallory\\\\x20s"), ("none", ""), ("hash", " key #[0-9a-f]{12}")])
def test_the_log_names_a_key_of_another_type_once_a_second(keys, written, ratelimitd, connect, redis):
    daemon = ratelimitd(CONFIG + f"keys: {{in_log: {keys}}}\n", redis=redis)
    client = connect(daemon)
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    names = client.call("explain", "login", "mallory s", 0)["store_keys"] + client.call("explain", "search", "mallory s", 0)["store_keys"]
    with redis.client() as server:
        for name in names:
            FOREIGN["hash"](server, name)
        began = time.monotonic()
        for policy, limit in (("login", "login"), ("search", "search/\\w+")):
            for _ in range(200):
                client.check(policy, "mallory s")
            line = rf"warning: Redis: WRONGTYPE: policy {policy} limit {limit}{written}: a key of it holds a value of another " \
                   r"type, met \d+ times; ratelimitctl explain names it$"
            daemon.wait_for_log(line)

    def met():
        return [int(re.search(r"met (\d+) times", line)[1]) for line in daemon.log if "WRONGTYPE" in line]

    eventually(lambda: sum(met()) == 400, "the last line")
    assert len(met()) <= time.monotonic() - began + 1
    assert keys == "clear" or "mallory" not in daemon.text()


def test_a_reset_deletes_one_limits_key_of_another_type(ratelimitd, connect, redis):
    client = connect(ratelimitd(CONFIG, redis=redis))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    client.check("tenant", "acme:1", 2)
    user, shared = client.call("explain", "tenant", "acme:1")["store_keys"]
    with redis.client() as server:
        server.delete(shared)
        server.sadd(shared, "m")
        assert f"'{shared}'" in unexplained(client, "tenant", "acme:2")
        assert client.call("reset", "tenant", "acme:1") == {"removed": True}
        assert server.type(shared) == b"set"  # other keys share it
        assert client.call("reset", "tenant/tenant", "acme:2") == {"removed": True}
        assert [limit["remaining"] for limit in client.call("explain", "tenant", "acme:1")["limits"]] == [4, 8]
        server.sadd(user, "m")
        assert f"'{user}'" in unexplained(client, "tenant", "acme:1")


def test_a_reset_deletes_a_candidates_key_of_another_type(ratelimitd, connect, redis):
    client = connect(ratelimitd(CONFIG, redis=redis))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    key = client.call("explain", "trial", "k")["candidate"]["store_keys"][0]
    with redis.client() as server:
        server.rpush(key, "x")
        assert client.call("explain", "trial", "k")["candidate"] is None
        assert client.call("reset", "trial", "k") == {"removed": True}
        assert client.call("explain", "trial", "k")["candidate"]["allowed"]


@pytest.mark.parametrize("policy, foreign", [("old", "list"), ("older", "zset"), ("logged", "string")])
def test_a_reset_leaves_a_preset_key_of_another_type_alone(policy, foreign, ratelimitd, connect, redis):
    """Its keys also belong to other programs."""
    client = connect(ratelimitd(CONFIG, redis=redis))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    client.check(policy, "k")
    name = client.call("explain", policy, "k")["store_keys"][0]
    with redis.client() as server:
        server.delete(name)
        FOREIGN[foreign](server, name)
        message = unexplained(client, policy, "k")
        assert f"the key '{name}' in Redis holds a value of another type" in message and "reset" not in message
        with pytest.raises(RpcError, match="STORE_UNAVAILABLE"):
            client.call("reset", policy, "k")
        assert server.exists(name) == 1


def test_the_name_of_a_key_of_another_type_is_escaped_and_whole(ratelimitd, connect, redis):
    client = connect(ratelimitd(CONFIG, redis=redis))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    key = b"\xff\n" * 512
    name = client.call("explain", "login", key)["store_keys"][0]
    with redis.client() as server:
        server.sadd(name, "m")
        message = unexplained(client, "login", key)
        assert ":fw1:login:" + r"\xff\x0a" * 512 + "' in Redis holds" in message and message.endswith("local")
        assert client.call("reset", "login", key) == {"removed": True}
