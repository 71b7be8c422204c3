"""test_leases.py: units of busy keys that are taken from Redis ahead, through the socket: what decides by them, what they never
do, and what becomes of those that were not used."""

import pytest
from harness import Redis, eventually

POLICIES = """
defaults: {deadline: 10s, on_failure: deny}
policies:
  window: {algorithm: fixed_window, limit: 10000, window: 1d, lease: 10s}
  first: {algorithm: fixed_window, start: first_hit, limit: 10000, window: 1d, lease: 10s}
  month: {algorithm: calendar_window, limit: 10000, window: year, timezone: Europe/Berlin, lease: 10s}
  counter: {algorithm: sliding_counter, limit: 10000, window: 1d, lease: 10s}
  bucket: {algorithm: token_bucket, limit: 1, window: 1d, burst: 10000, lease: 10s}
  gcra: {algorithm: gcra, limit: 1, window: 1d, burst: 10000, lease: 10s}
  small: {algorithm: fixed_window, limit: 60, window: 1d, lease: 10s}
  off: {algorithm: fixed_window, limit: 10000, window: 1d}
  ends: {algorithm: fixed_window, limit: 200, window: 1d, lease: 10s}
  ends_off: {algorithm: fixed_window, limit: 200, window: 1d}
  large: {algorithm: fixed_window, limit: 1000000000, window: 1d, lease: 10s}
  shared:
    {key_format: "{tenant}:{user}", by: [tenant], algorithm: fixed_window, limit: 2000, window: 1d, lease: 10s,
     overrides: [{match: "*:small", limit: 100}]}
"""
WINDOWS = ("window", "first", "month", "counter")
BUCKETS = ("bucket", "gcra")


@pytest.fixture
def daemon(redis, ratelimitd):
    return ratelimitd(POLICIES, redis=redis)


def heat(client, policy, key="k"):
    """Until a check is decided by a lease. Returns how many were asked."""
    for n in range(1, 200):
        answer = client.check(policy, key)
        assert answer["allowed"]
        if answer["source"] == "lease":
            return n
    pytest.fail("no check was decided by a lease")


@pytest.mark.parametrize("policy", (*WINDOWS, *BUCKETS))
def test_a_busy_key_is_decided_here_and_every_unit_is_counted(daemon, connect, policy):
    client = connect(daemon)
    n = heat(client, policy)
    batches = client.call("stats")["redis_batches"]
    answer = {}
    for _ in range(500):
        answer = client.check(policy, "k")
        assert answer["allowed"]
    assert answer["remaining"] == 10000 - n - 500
    stats = client.call("stats")
    assert stats["redis_batches"] - batches < 100
    assert stats["decided_by_lease"] > 400


def test_a_hot_key_asks_redis_at_most_once_in_a_thousand_checks(daemon, connect):
    client = connect(daemon)

    def check(n):
        for _ in range(n // 1000):
            assert all(answer["allowed"] for answer in client.call("check_many", [["large", "k"]] * 1000))

    check(20000)  # leases grow with what is used of them
    before = client.call("stats")["redis_batches"]
    check(40000)
    assert client.call("stats")["redis_batches"] - before <= 40


@pytest.mark.parametrize("policy", (*WINDOWS, *BUCKETS))
def test_a_peek_finds_unused_units_free(daemon, connect, policy):
    client = connect(daemon)
    n = heat(client, policy)
    assert client.call("peek", policy, "k")["remaining"] == 10000 - n
    eventually(lambda: client.call("stats")["leases_returned"] > 0, "units are given back")
    assert client.call("stats")["leases_lost"] == 0


def test_explain_says_what_is_held(daemon, connect):
    client = connect(daemon)
    heat(client, "window")
    assert "units of it that no check had used yet (lease)" in client.call("explain", "window", "k")["why"]
    assert "(lease)" not in client.call("explain", "window", "k")["why"]


@pytest.mark.parametrize("policy", ("window", *BUCKETS))
def test_a_daemon_that_stops_gives_back_what_it_holds(redis, ratelimitd, connect, policy):
    daemon = ratelimitd(POLICIES, redis=redis)
    n = heat(connect(daemon), policy)
    daemon.stop()
    other = ratelimitd(POLICIES, redis=redis)
    assert connect(other).call("peek", policy, "k")["remaining"] == 10000 - n


def test_small_limits_and_policies_without_lease_ask_redis_each_time(daemon, connect):
    client = connect(daemon)
    for policy, n in (("small", 60), ("off", 100)):
        assert {client.check(policy, "k")["source"] for _ in range(n)} == {"redis"}
    assert client.call("stats")["leases_taken"] == 0


ENDING = [f"key {number}" for number in range(20) for _ in range(5)] * 50  # each key 250 times, in groups of 5


def accounted(client):
    """Every unit that was leased: used, given back or lost."""
    stats = client.call("stats")
    assert stats["decided_by_lease"] > 0
    return stats["leases_units"] == stats["decided_by_lease"] + stats["leases_returned"] + stats["leases_lost"]


@pytest.mark.parametrize("together", (7, 50))  # that go to Redis in one call
def test_checks_of_one_message_are_answered_as_without_a_lease_up_to_the_last_unit(daemon, connect, together):
    client = connect(daemon)
    found = {"ends": [], "ends_off": []}
    for policy, answers in found.items():
        for at in range(0, len(ENDING), together):
            checks = [[policy, key] for key in ENDING[at:at + together]]
            answers += [(answer["allowed"], answer["remaining"]) for answer in client.call("check_many", checks)]
    assert found["ends"] == found["ends_off"]
    assert accounted(client)


def test_a_key_with_a_smaller_limit_uses_no_units_of_a_larger_one(redis, ratelimitd, connect):
    """The daemon that holds them does not know what the other one was charged since."""
    client, other = (connect(ratelimitd(POLICIES, redis=redis)) for _ in range(2))
    assert heat(client, "shared", "acme:alice") < 50
    assert other.check("shared", "acme:alice", 100)["allowed"]
    answer = client.check("shared", "acme:small")
    assert (answer["allowed"], answer["source"], answer["limit"]) == (False, "redis", 100)


@pytest.mark.parametrize("policy", ("window", "bucket"))
def test_units_of_one_redis_are_never_given_back_to_another_one(redis, ratelimitd, connect, policy):
    """Earlier, its counter fell below what other daemons had used there."""
    other = Redis()
    try:
        daemon, daemon_of_other = ratelimitd(POLICIES, redis=redis), ratelimitd(POLICIES, redis=other)
        client, client_of_other = connect(daemon), connect(daemon_of_other)
        heat(client, policy)
        assert client_of_other.check(policy, "k", 1000)["remaining"] == 9000
        stats = client.call("stats")
        held = stats["leases_units"] - stats["decided_by_lease"] - stats["leases_returned"] - stats["leases_lost"]
        assert held > 0

        daemon.redis = other
        daemon.configure(POLICIES)
        daemon.reload()
        daemon.wait_for_log("has proved good, and decides from now on")
        assert client.call("peek", policy, "k")["remaining"] == 9000
        assert client_of_other.call("peek", policy, "k")["remaining"] == 9000
        stats = client.call("stats")
        assert (stats["leases_lost"], stats["leases_returned"]) == (held, 0)
    finally:
        daemon.stop()
        daemon_of_other.stop()
        other.close()
