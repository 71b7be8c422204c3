"""test_merge_back.py: what a daemon has admitted while Redis was away is charged in Redis once it is back (merge_back)."""

import contextlib
import time

import pytest

from harness import Redis, eventually
from proxy import Proxy

POLICIES = """
defaults: {deadline: 200ms, local_share: 1}
policies:
  quota: {algorithm: fixed_window, limit: 100, window: 1d, merge_back: true}
  off: {algorithm: fixed_window, limit: 100, window: 1d}
  bucket: {algorithm: token_bucket, limit: 100, window: 1d, merge_back: true}
  first: {algorithm: fixed_window, start: first_hit, limit: 100, window: 1d, merge_back: true}
  month: {algorithm: calendar_window, limit: 100, window: year, merge_back: true}
  counter: {algorithm: sliding_counter, limit: 100, window: 1d, merge_back: true}
  log: {algorithm: sliding_log, limit: 100, window: 1d, merge_back: true}
  several:
    merge_back: true
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: fixed_window, limit: 100, window: 1d}
      - {name: tenant, algorithm: token_bucket, limit: 100, window: 1d, by: [tenant]}
      - {name: second, algorithm: fixed_window, limit: 100, window: 1s}
  extra:
    algorithm: fixed_window
    limit: 100
    window: 1d
    merge_back: true
    overrides: [{key: vip, limit: 200}]
  live: {algorithm: fixed_window, limit: 100, window: 1d, local_share: live, merge_back: true}
  probe: {algorithm: fixed_window, limit: 1000000, window: 1d, on_failure: deny}
"""
ALGORITHMS = ("quota", "bucket", "first", "month", "counter", "log")
one_kind = pytest.mark.parametrize("redis_kind", ["redis"], indirect=True)  # each waits some seconds


@pytest.fixture
def daemon(ratelimitd, redis):
    return ratelimitd(POLICIES, redis=redis)


@pytest.fixture
def client(daemon, connect):
    return connect(daemon)


def lose(redis, *clients):
    """Kills Redis, with all it had counted, until checks are answered without asking it."""
    redis.kill()
    for client in clients:
        eventually(lambda client=client: client.check("probe", "k").get("reason") == "down", "the loss is noticed")


def wait_for_merges(*clients):
    for client in clients:
        eventually(lambda client=client: client.check("probe", "k")["source"] == "redis", "Redis is back")
        eventually(lambda client=client: client.call("stats")["merge_back_waiting"] == 0, "all is merged")


def bring_back(redis, *clients):
    """Until every daemon has charged what it had to."""
    redis.start()
    wait_for_merges(*clients)


def pause(redis, *clients):
    """Stops Redis, which keeps its counts, until checks are answered without asking it."""
    redis.pause()
    for client in clients:
        eventually(lambda client=client: client.check("probe", "k").get("reason") in ("down", "breaker"), "the loss is noticed")


def resume(redis, *clients):
    redis.resume()
    wait_for_merges(*clients)


def used(client, policy, key="alice"):
    answer = client.call("peek", policy, key)
    assert answer["source"] == "redis"
    return answer["limit"] - answer["remaining"]


def counts(client):
    stats = client.call("stats")
    return stats["merged_back"], stats["merge_back_dropped"]


def admit_locally(client, policy, n, key="alice"):
    answer = client.check(policy, key, n)
    assert (answer["allowed"], answer["source"]) == (True, "local")


def test_what_was_admitted_locally_is_charged_once_redis_is_back(client, redis):
    lose(redis, client)
    for policy in (*ALGORITHMS, "off"):
        admit_locally(client, policy, 30)
        admit_locally(client, policy, 12)
    bring_back(redis, client)
    assert [used(client, policy) for policy in ALGORITHMS] == [42] * len(ALGORITHMS)
    assert used(client, "off") == 0
    assert counts(client) == (42 * len(ALGORITHMS), 0)
    with redis.client() as direct:
        lists = [key for key in direct.keys("*merge1:*")]
        assert len(lists) == len(ALGORITHMS)
        assert all(direct.pttl(key) > 0 and direct.zcard(key) == 1 for key in lists)


@one_kind
def test_it_is_charged_beyond_the_limit_and_denied_until_that_has_ended(client, redis):
    for policy in ALGORITHMS:
        assert client.check(policy, "alice", 80)["source"] == "redis"
    pause(redis, client)
    for policy in ALGORITHMS:
        admit_locally(client, policy, 60)
    resume(redis, client)
    for policy in ALGORITHMS:
        answer = client.check(policy, "alice")
        assert answer == {**answer, "allowed": False, "source": "redis", "remaining": 0}
    assert counts(client) == (60 * len(ALGORITHMS), 0)
    hour_ms = 3_600_000  # 140 of 100 are used: 41 have to come back for one more
    assert 9 * hour_ms < client.check("bucket", "alice")["retry_after_ms"] <= 0.41 * 24 * hour_ms


@one_kind
def test_no_counter_is_charged_more_than_twice_its_limit(ratelimitd, redis, connect):
    clients = [connect(ratelimitd(POLICIES, redis=redis)) for _ in range(2)]
    for policy in ALGORITHMS:
        assert clients[0].check(policy, "alice", 80)["source"] == "redis"
    pause(redis, *clients)
    for client in clients:
        for policy in ALGORITHMS:
            admit_locally(client, policy, 100)
    resume(redis, *clients)
    merged, dropped = map(sum, zip(*map(counts, clients)))
    log = 200  # it keeps the newest 100 of them
    assert (merged, dropped) == (120 * (len(ALGORITHMS) - 1) + log, 80 * (len(ALGORITHMS) - 1))
    assert not any(client.check(policy, "alice")["allowed"] for client in clients for policy in ALGORITHMS)


@one_kind
def test_a_second_outage_charges_only_its_own(client, redis):
    lose(redis, client)
    for policy in ALGORITHMS:
        admit_locally(client, policy, 10)
    bring_back(redis, client)
    lose(redis, client)
    for policy in ALGORITHMS:
        admit_locally(client, policy, 3)
    bring_back(redis, client)  # without what it had counted
    assert [used(client, policy) for policy in ALGORITHMS] == [3] * len(ALGORITHMS)
    assert counts(client) == (13 * len(ALGORITHMS), 0)


@one_kind
def test_each_limit_is_charged_what_it_still_counts_and_windows_that_have_ended_are_dropped(client, redis):
    lose(redis, client)
    admit_locally(client, "several", 5, "acme:ann")
    admit_locally(client, "several", 7, "acme:bob")
    begun = time.monotonic()
    eventually(lambda: time.monotonic() - begun > 1.1, "the second has ended")
    bring_back(redis, client)
    assert used(client, "several", "acme:ann") == 12  # the tenant's, of both
    assert used(client, "several", "other:ann") == 0
    assert counts(client) == (24, 12)


@one_kind
def test_an_override_is_charged_by_its_own_numbers(client, redis):
    lose(redis, client)
    admit_locally(client, "extra", 150, "vip")
    bring_back(redis, client)
    answer = client.call("peek", "extra", "vip")
    assert (answer["limit"], answer["remaining"]) == (200, 50)


@one_kind
def test_four_daemons_charge_together_what_they_admitted_together(ratelimitd, redis, connect):
    clients = [connect(ratelimitd(POLICIES, redis=redis)) for _ in range(4)]
    for client in clients:
        eventually(lambda client=client: client.call("stats")["live_daemons"] == 4, "all are seen", patience_s=20)  # they look every three, later every ten seconds
    lose(redis, *clients)
    answers = [answer for client in clients for answer in client.call("check_many", [["live", "alice"]] * 40)]
    assert sum(answer["allowed"] for answer in answers) == 100
    bring_back(redis, *clients)
    assert [used(client, "live") for client in clients] == [100] * 4
    assert not any(client.check("live", "alice")["allowed"] for client in clients)


@one_kind
def test_a_merge_whose_answer_was_lost_is_charged_once(ratelimitd, redis, connect):
    with contextlib.closing(Proxy(redis.address)) as proxy:
        daemon = ratelimitd(POLICIES, redis=redis, redis_options={"addresses": f'["{proxy.address}"]'})
        client = connect(daemon)
        proxy.refuses = True
        proxy.drop()
        eventually(lambda: client.check("probe", "k").get("reason") == "down", "the loss is noticed")
        for policy in ALGORITHMS:
            admit_locally(client, policy, 10)
        with redis.client() as direct:
            proxy.up.mark = b"merge1:"
            proxy.refuses = False
            eventually(lambda: direct.keys("*merge1:*"), "a merge has reached Redis")
            assert client.call("stats")["merged_back"] == 0
            proxy.up.mark = b""
            proxy.drop()
            proxy.down.stalled = False
            eventually(lambda: client.call("stats")["merge_back_waiting"] == 0, "all is merged")
        eventually(lambda: client.check("probe", "k")["source"] == "redis", "Redis is back")
        assert [used(client, policy) for policy in ALGORITHMS] == [10] * len(ALGORITHMS)
        assert counts(client) == (10 * len(ALGORITHMS), 0)


@one_kind
def test_a_stopped_redis_is_charged_what_was_admitted_without_asking_it(client, redis):
    assert client.check("quota", "alice", 20)["source"] == "redis"
    pause(redis, client)
    admit_locally(client, "quota", 30)
    resume(redis, client)
    assert used(client, "quota") == 50


@one_kind
def test_a_reload_that_changes_the_policy_drops_what_waits(daemon, client, redis):
    lose(redis, client)
    admit_locally(client, "quota", 30)
    admit_locally(client, "bucket", 30)
    daemon.configure(POLICIES.replace("quota: {algorithm: fixed_window, limit: 100", "quota: {algorithm: fixed_window, limit: 90"))
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == 1, "it is reloaded")
    bring_back(redis, client)
    assert (used(client, "quota"), used(client, "bucket")) == (0, 30)
    assert counts(client) == (30, 30)


@one_kind
def test_what_was_admitted_in_the_place_of_one_redis_is_not_charged_in_another_one(daemon, client, redis):
    other = Redis()
    try:
        lose(redis, client)
        for policy in ALGORITHMS:
            admit_locally(client, policy, 30)
        daemon.redis = other
        daemon.configure(POLICIES)
        daemon.reload()
        eventually(lambda: client.check("probe", "k")["source"] == "redis", "it has moved")
        eventually(lambda: client.call("stats")["merge_back_waiting"] == 0, "nothing waits any more")
        assert [used(client, policy) for policy in ALGORITHMS] == [0] * len(ALGORITHMS)
        assert counts(client) == (0, 30 * len(ALGORITHMS))
    finally:
        daemon.stop()
        other.close()


@one_kind
def test_many_keys_are_merged_while_new_checks_come(client, redis):
    lose(redis, client)
    for key in range(1000):
        admit_locally(client, "bucket", 3, f"key{key}")
    redis.start()
    eventually(lambda: client.check("probe", "k")["source"] == "redis", "Redis is back")
    while client.call("stats")["merge_back_waiting"] > 0:
        assert client.check("bucket", "other", 0)["allowed"]
    assert counts(client) == (3000, 0)
    assert [used(client, "bucket", f"key{key}") for key in range(1000)] == [3] * 1000


@one_kind
def test_what_waits_when_the_daemon_ends_is_lost(daemon, client, redis, ratelimitd, connect):
    lose(redis, client)
    admit_locally(client, "quota", 30)
    assert daemon.stop() == 0
    redis.start()
    assert used(connect(ratelimitd(POLICIES, redis=redis)), "quota") == 0


def test_policies_and_explain_show_it(client):
    shown = {policy["name"]: policy.get("merge_back") for policy in client.call("policies")}
    assert shown == {**dict.fromkeys((*ALGORITHMS, "several", "extra", "live"), True), "off": None, "probe": None}
    ours = "What it admits without Redis is charged in Redis afterwards (merge_back)."
    assert client.call("explain", "quota", "k")["why"].endswith(ours)
    assert ours not in client.call("explain", "off", "k")["why"]
    assert ours not in client.call("explain", "probe", "k")["why"]


def test_the_command_line_shows_it(daemon, redis):
    shown = daemon.ctl("policies").stdout
    assert shown.count("  local  what it admits is charged in Redis once that is back") == len(ALGORITHMS) + 3
