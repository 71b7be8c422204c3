"""test_penalty.py: pauses after breaches, through the socket: what every method says of them, on every store, in several daemons,
over a reload, and what is in Redis. The model has random traces (tests/model)."""

import struct
import time

import pytest
from harness import eventually

POLICIES = """
defaults: {{deadline: 10s}}
policies:
  login: {{algorithm: fixed_window, limit: 2, window: 1d, penalty: {{time: {time}, factor: 5, max: 10d, forget: 1d}}{more}}}
  plain: {{algorithm: fixed_window, limit: 2, window: 1d}}
  shadow: {{algorithm: fixed_window, limit: 1, window: 1d, shadow: true, penalty: {{time: 2d}}}}
  two:
    limits:
      - {{name: few, algorithm: sliding_log, limit: 1, window: 1h, penalty: {{time: 2h}}}}
      - {{name: many, algorithm: token_bucket, limit: 9, window: 1h}}
  slots:
    limits:
      - {{name: starts, algorithm: token_bucket, limit: 1, window: 1d, penalty: {{time: 2d}}}}
      - {{name: held, algorithm: concurrency, limit: 9}}
"""
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
LONG = {"deny_cache": "{max_age: 1m}"}  # longer than a test


def configuration(time="2d", more=""):
    return POLICIES.format(time=time, more=more)


@pytest.fixture
def client(any_store, ratelimitd, connect):
    return connect(ratelimitd(configuration(), redis=any_store, redis_options=LONG))


def breach(client, policy="login", key="alice", cost=2):
    assert client.check(policy, key, cost)["allowed"]
    denied = client.check(policy, key)
    assert (denied["allowed"], denied["remaining"], denied["reason"]) == (False, 0, "penalty")
    return denied


def test_a_breach_begins_a_pause_that_every_method_reports(client):
    denied = breach(client)
    assert DAY_MS < denied["retry_after_ms"] <= 2 * DAY_MS
    assert denied["reset_after_ms"] == denied["retry_after_ms"]
    assert denied["source"] in ("memory", "redis") and "bound_by" not in denied

    for again in (client.check("login", "alice"), client.check("login", "alice", 2), client.check("login", "alice", {"at_most": 2}),
                  client.call("check_many", [["login", "alice"]])[0], client.call("check_all", [["login", "alice"], ["plain", "bob"]]),
                  client.call("reserve", "login", "alice", 1), client.call("peek", "login", "alice", 1)):
        assert (again["allowed"], again["remaining"], again["reason"]) == (False, 0, "penalty"), again
        assert again["source"] in ("memory", "redis", "deny_cache")
    assert client.remaining("plain", "bob") == 2

    never = client.check("login", "alice", 3)
    assert (never["retry_after_ms"], never["reason"]) == (-1, "penalty")
    free = client.check("login", "alice", 0)
    assert (free["allowed"], free["remaining"]) == (True, 0) and "reason" not in free
    assert client.call("refund", "login", "alice", 1)["remaining"] == 0
    assert client.check("login", "alice")["reason"] == "penalty"
    assert client.check("login", "bob")["allowed"]

    newest = client.call("denials")["denials"][0]
    assert (newest["policy"], newest["reason"]) == ("login", "penalty")


def test_explain_shows_the_pause_and_begins_none(client):
    def state(key="alice"):
        explained = client.call("explain", "login", key, 1)
        return explained["state"][0], explained["why"], explained.get("reason")

    client.check("login", "alice", 2)
    terms, why, reason = state()
    assert (terms["penalty_level"], terms["penalty_ends_in_ms"], reason) == (0, 0, "penalty")
    assert "So a check would begin a pause of its penalty, level 1, of 2d" in why
    assert state()[0]["penalty_level"] == 0

    client.check("login", "alice")
    terms, why, reason = state()
    assert terms["penalty_level"] == 1 and DAY_MS < terms["penalty_ends_in_ms"] <= 2 * DAY_MS
    assert "A pause of its penalty, level 1, ends in" in why and reason == "penalty"

    [limit] = next(policy for policy in client.call("policies") if policy["name"] == "login")["limits"]
    assert limit["penalty"] == {"time_ms": 2 * DAY_MS, "factor": 5, "max_ms": 10 * DAY_MS, "forget_ms": DAY_MS}


def test_a_reset_ends_a_pause_and_a_reset_of_the_limit_too(client):
    for policy, reset in (("login", "login"), ("two", "two"), ("two", "two/few")):
        key = reset.replace("/", "-")
        breach(client, policy, key, 1 if policy == "two" else 2)
        assert client.call("reset", reset, key)["removed"] is True
        assert client.check(policy, key)["allowed"]
        assert client.call("explain", policy, key, 0)["state"][0]["penalty_level"] == 0


def test_of_several_limits_the_one_in_the_pause_is_named(client):
    denied = breach(client, "two", "alice", 1)
    assert denied["bound_by"] == "two/few"
    assert HOUR_MS < denied["retry_after_ms"] <= 2 * HOUR_MS
    few, many = client.call("explain", "two", "alice", 1)["limits"]
    assert (few["allowed"], many["allowed"], many["remaining"]) == (False, True, 8)

    assert client.call("acquire", "slots", "alice")["allowed"]
    denied = client.call("acquire", "slots", "alice")
    assert (denied["bound_by"], denied["reason"]) == ("slots/starts", "penalty")


def test_a_shadow_policy_has_no_reason(client):
    assert client.check("shadow", "alice")["allowed"]
    for _ in range(2):
        answer = client.check("shadow", "alice")
        assert answer["allowed"] and answer["shadow_denied"] and "reason" not in answer


def test_a_remembered_request_is_allowed_in_a_pause(client):
    first = client.check("login", "alice", {"cost": 2, "request_id": "r"})
    client.check("login", "alice")
    again = client.check("login", "alice", {"cost": 2, "request_id": "r"})
    assert again["allowed"] and first["remaining"] == again["remaining"] == 0
    assert client.check("login", "alice", {"cost": 2, "request_id": "s"})["reason"] == "penalty"


def test_a_reload_that_makes_pauses_shorter_shortens_the_one_that_runs(ratelimitd, connect, redis):
    daemon = ratelimitd(configuration("5d"), redis=redis)
    client = connect(daemon)
    assert breach(client)["retry_after_ms"] > 4 * DAY_MS
    daemon.configure(configuration("25h"))
    daemon.reload()
    daemon.wait_for_log("read again")
    denied = client.check("login", "alice")
    assert DAY_MS < denied["retry_after_ms"] <= 25 * HOUR_MS
    [key] = redis.client().keys("*:pn1:login:alice")
    level, low, high = struct.unpack("<IIH", redis.client().get(key))
    assert level == 1 and (high << 32 | low) <= time.time() * 1000 + 25 * HOUR_MS


# ---- Redis ----

@pytest.fixture
def two(redis, ratelimitd, connect):
    return [connect(ratelimitd(configuration(), redis=redis)) for _ in range(2)]


def test_a_pause_is_of_all_daemons_and_a_reset_elsewhere_ends_it_within_max_age(two):
    one, other = two
    breach(one)
    for client in (one, other, one, other):
        assert client.check("login", "alice")["reason"] == "penalty"
    assert other.call("reset", "login", "alice")["removed"] is True
    assert other.check("login", "alice")["allowed"]
    eventually(lambda: one.check("login", "alice")["allowed"], "the kept denial is too old")


def test_only_pauses_are_kept_by_the_cache_of_denials(redis, ratelimitd, connect):
    client = connect(ratelimitd(configuration(), redis=redis, redis_options=LONG))
    assert client.check("login", "alice")["allowed"]
    assert [client.check("login", "alice", 2)["source"] for _ in range(3)] == ["redis"] * 3  # one unit is left: no breach
    assert client.check("login", "alice")["allowed"]
    assert [client.check("login", "alice", cost)["source"] for cost in (1, 1, 2, 1)] == ["redis", *["deny_cache"] * 3]


def test_what_is_in_redis_is_written_once_a_pause(redis, ratelimitd, connect):
    client, server = connect(ratelimitd(configuration(), redis=redis, redis_options={"deny_cache": "{max_keys: 0}"})), redis.client()
    client.check("login", "alice", 2)
    assert server.keys("*:pn1:*") == []
    client.check("login", "alice")
    [key] = server.keys("*:pn1:*")
    [counter] = server.keys("*:fw1:login:alice")
    assert key == counter.replace(b":fw1:", b":pn1:")
    level, low, high = struct.unpack("<IIH", server.get(key))
    end_ms = high << 32 | low
    assert level == 1 and abs(end_ms - time.time() * 1000 - 2 * DAY_MS) < 60_000
    assert abs(server.pttl(key) - 3 * DAY_MS) < 60_000

    before = server.get(key), server.info("commandstats")["cmdstat_set"]["calls"]
    for _ in range(5):
        client.check("login", "alice")
    assert (server.get(key), server.info("commandstats")["cmdstat_set"]["calls"]) == before


@pytest.mark.parametrize("write", [lambda server, key: server.set(key, b"nonsense"), lambda server, key: server.set(key, bytes(10)),
                                   lambda server, key: server.rpush(key, b"a"), lambda server, key: server.sadd(key, b"a")],
                         ids=["text", "level 0", "list", "set"])
def test_a_value_of_somebody_else_counts_as_no_pause_and_the_next_one_replaces_it(write, redis, ratelimitd, connect):
    client, server = connect(ratelimitd(configuration(), redis=redis)), redis.client()
    client.check("login", "alice")
    [counter] = server.keys("*:fw1:login:alice")
    key = counter.replace(b":fw1:", b":pn1:")
    write(server, key)
    assert client.check("login", "alice")["allowed"]
    assert client.check("login", "alice")["reason"] == "penalty"
    assert struct.unpack("<I", server.get(key)[:4]) == (1,)
    assert client.call("stats")["redis_bad_values"] > 0
    assert client.call("reset", "login", "alice")["removed"] is True
    assert not server.exists(key)


def test_the_local_answer_of_an_outage_has_its_own_pauses_and_its_own_reason(redis, ratelimitd, connect):
    daemon = ratelimitd(configuration(more=", on_failure: local, local_share: 1"), redis=redis)
    client = connect(daemon)
    breach(client)
    redis.stop()
    eventually(lambda: client.check("login", "bob", 0)["source"] == "local", "Redis is away")
    assert client.check("login", "alice", 2)["allowed"]
    for _ in range(2):
        denied = client.check("login", "alice")
        assert (denied["source"], denied["allowed"]) == ("local", False) and denied["reason"] in ("down", "breaker")
        assert denied["retry_after_ms"] > DAY_MS
