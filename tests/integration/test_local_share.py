"""test_local_share.py: while Redis is away, the daemons that shared it have a limit together, each its share of it."""

import math
import time

import pytest

from harness import DAEMONS_KEY, eventually

POLICIES = """
defaults: {deadline: 200ms}
policies:
  quota: {algorithm: fixed_window, limit: 100, window: 1d}
  bucket: {algorithm: token_bucket, limit: 100, burst: 10, window: 1d}
  several: {limits: [{name: day, algorithm: sliding_log, limit: 30, window: 1d}, {name: hour, algorithm: fixed_window, limit: 9, window: 1h}]}
  slots: {algorithm: concurrency, limit: 6}
  thirds: {algorithm: fixed_window, limit: 100, window: 1d, local_share: 3}
  whole: {algorithm: fixed_window, limit: 100, window: 1d, local_share: 1}
  denied: {algorithm: fixed_window, limit: 100, window: 1d, on_failure: deny}
"""
WITHOUT = "policies:\n  p: {algorithm: fixed_window, limit: 100, window: 1d, on_failure: deny}\n"
FIXED = "policies:\n  p: {algorithm: fixed_window, limit: 100, window: 1d, local_share: 4}\n"
LIVE = "policies:\n  p: {algorithm: fixed_window, limit: 100, window: 1d}\n"


one_kind = pytest.mark.parametrize("redis_kind", ["redis"], indirect=True)  # each waits some seconds


def sees(client, n):
    eventually(lambda: client.call("stats")["live_daemons"] == n, f"{n} daemons are seen", patience_s=20)  # they look every three, later every ten seconds


def members(direct):
    return direct.zrange(DAEMONS_KEY, 0, -1, withscores=True)


def now_ms(direct):
    seconds, us = direct.time()
    return seconds * 1000 + us // 1000


def start_together(ratelimitd, redis, connect, n, policies=POLICIES):
    clients = [connect(ratelimitd(policies, redis=redis)) for _ in range(n)]
    for client in clients:
        sees(client, n)
    return clients


def take_away(redis, how, *clients):
    """Kills or stops Redis, until checks are answered without it."""
    {"killed": redis.kill, "stopped": redis.pause}[how]()
    for client in clients:
        eventually(lambda client=client: client.check("denied", "probe")["source"] == "deny", "the loss is noticed")


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_four_daemons_admit_the_limit_together_while_redis_is_away(ratelimitd, redis, connect, how):
    clients = start_together(ratelimitd, redis, connect, 4)
    for client in clients:
        assert client.check("quota", "alice", 1)["limit"] == 100
    take_away(redis, how, *clients)
    answers = [answer for client in clients for answer in client.call("check_many", [["quota", "bob"]] * 40)]
    assert {answer["source"] for answer in answers} == {"local"}
    assert {answer["limit"] for answer in answers} == {25}
    assert sum(answer["allowed"] for answer in answers) == 100
    if how == "killed":
        redis.start()
    else:
        redis.resume()
    for client in clients:
        eventually(lambda client=client: client.check("denied", "probe")["source"] == "redis", "Redis is back")
        assert client.check("quota", "carol")["limit"] == 100
        sees(client, 4)


@one_kind
def test_each_algorithm_has_its_share_rounded_up(ratelimitd, redis, connect):
    client, other = start_together(ratelimitd, redis, connect, 2)
    take_away(redis, "killed", client)
    answer = client.check("bucket", "k", 5)
    assert answer == {**answer, "allowed": True, "limit": 5, "remaining": 0}
    answer = client.check("several", "k")
    assert answer == {**answer, "limit": 5, "remaining": 4}
    assert [client.check("several", "k")["allowed"] for _ in range(5)] == [True] * 4 + [False]
    assert client.check("several", "k")["bound_by"] == "several/hour"
    assert [client.call("acquire", "slots", "k")["allowed"] for _ in range(4)] == [True] * 3 + [False]
    assert client.check("thirds", "k")["limit"] == math.ceil(100 / 3)
    assert client.check("whole", "k")["limit"] == 100
    whole = client.call("check_all", [["quota", "k", 50], ["several", "j", 5]])
    assert whole["allowed"] and whole["source"] == "local"
    assert not client.call("check_all", [["quota", "k", 1], ["several", "i", 1]])["allowed"]
    assert other.check("quota", "k", 50)["allowed"]


@one_kind
def test_a_cost_above_the_share_may_pass_when_redis_is_back(ratelimitd, redis, connect):
    client, _ = start_together(ratelimitd, redis, connect, 2)
    take_away(redis, "killed", client)
    answer = client.check("quota", "k", 51)
    assert answer == {**answer, "allowed": False, "limit": 50, "retry_after_ms": 1000}
    assert client.check("quota", "k", 101)["retry_after_ms"] == -1
    assert client.check("quota", "k", {"at_most": 100})["granted"] == 50


@one_kind
def test_what_was_never_seen_counts_as_one_daemon(ratelimitd, redis, connect):
    redis.stop()
    client = connect(ratelimitd(POLICIES, redis=redis))
    assert client.check("quota", "k")["limit"] == 100
    assert client.call("stats")["live_daemons"] == 0


def test_the_set_expires_with_its_last_member_and_has_times_of_redis(ratelimitd, redis, connect):
    client = connect(ratelimitd(POLICIES, redis=redis))
    with redis.client() as direct:
        sees(client, 1)
        [(name, score)] = members(direct)
        assert name.startswith(b"ratelimitd:")
        assert now_ms(direct) - 30000 <= score <= now_ms(direct)
        assert 0 < direct.pttl(DAEMONS_KEY) <= 30000
        eventually(lambda: members(direct)[0][1] > score, "it is refreshed")


def test_members_that_were_not_refreshed_do_not_count(ratelimitd, redis, connect):
    with redis.client() as direct:
        now = now_ms(direct)
        direct.zadd(DAEMONS_KEY, {"ratelimitd:alive:1:0": now - 5000, "ratelimitd:gone:1:0": now - 31000,
                              "ratelimitd:ahead:1:0": now + 3600000})
        client = connect(ratelimitd(POLICIES, redis=redis))
        sees(client, 2)
        assert direct.zscore(DAEMONS_KEY, "ratelimitd:gone:1:0") is None


@one_kind
def test_a_daemon_that_stops_takes_its_member_out(ratelimitd, redis, connect):
    first, second = ratelimitd(POLICIES, redis=redis), ratelimitd(POLICIES, redis=redis)
    client = connect(first)
    sees(client, 2)
    with redis.client() as direct:
        assert second.stop() == 0
        eventually(lambda: len(members(direct)) == 1, "one is left", patience_s=15)
        assert first.stop() == 0
        eventually(lambda: not direct.exists(DAEMONS_KEY), "none is left", patience_s=15)


@one_kind
@pytest.mark.parametrize("policies", [WITHOUT, FIXED], ids=["without local", "with a fixed share"])
def test_there_is_no_set_unless_a_share_depends_on_it_and_a_reload_switches_it(ratelimitd, redis, connect, policies):
    daemon = ratelimitd(policies, redis=redis)
    client = connect(daemon)

    def reload(to):
        n = client.call("stats")["reloads"]
        daemon.configure(to)
        daemon.reload()
        eventually(lambda: client.call("stats")["reloads"] == n + 1, "it is reloaded")

    with redis.client() as direct:
        assert client.check("p", "k")["source"] == "redis"
        begun = time.monotonic()
        eventually(lambda: time.monotonic() - begun > 1.5, "it has had the time to count")
        assert not direct.exists(DAEMONS_KEY)
        reload(LIVE)
        sees(client, 1)
        assert len(members(direct)) == 1
        reload(policies)
        sees(client, 0)
        eventually(lambda: not direct.exists(DAEMONS_KEY), "the member is out", patience_s=15)


@one_kind
def test_an_inline_policy_can_need_it_too(ratelimitd, redis, connect):
    client = connect(ratelimitd("inline: {allow: true}\n" + WITHOUT, redis=redis))
    client.check({"algorithm": "fixed_window", "limit": 100, "window": "1d"}, "k")
    sees(client, 1)


@one_kind
def test_a_reload_in_an_outage_forgets_inline_policies_and_not_their_share(ratelimitd, redis, connect):
    """Until their next check no policy has a share, and the daemon forgot how many they are."""
    inline = {"algorithm": "fixed_window", "limit": 100, "window": "1d"}
    daemons = [ratelimitd("inline: {allow: true}\n" + WITHOUT, redis=redis) for _ in range(2)]
    clients = [connect(daemon) for daemon in daemons]
    for client in clients:
        client.check(inline, "k")
    for client in clients:
        sees(client, 2)
    redis.kill()
    eventually(lambda: clients[0].check("p", "probe")["source"] == "deny", "the loss is noticed")
    assert clients[0].check(inline, "k")["limit"] == 50
    daemons[0].reload()
    eventually(lambda: clients[0].call("stats")["reloads"] == 1, "it is reloaded")
    sees(clients[0], 0)
    assert clients[0].check(inline, "j")["limit"] == 50


def foreign_members(direct):
    direct.zadd(DAEMONS_KEY, {"a leaderboard's": 12})


def another_type(direct):
    direct.set(DAEMONS_KEY, "x")


@one_kind
@pytest.mark.parametrize("spoil, words", [
    (foreign_members, "the sorted set rl:{b000}:daemons has a member that no daemon wrote, a leaderboard's;"),
    (another_type, "the key rl:{b000}:daemons holds a value of another type;"),
], ids=["foreign members", "another type"])
def test_what_is_no_set_of_daemons_makes_the_share_the_whole_limit_and_is_a_warning(ratelimitd, redis, connect, spoil, words):
    with redis.client() as direct:
        spoil(direct)
        before = direct.dump(DAEMONS_KEY)
        daemon = ratelimitd(POLICIES, redis=redis)
        client = connect(daemon)
        line = daemon.wait_for_log("the daemons cannot be counted")
        assert f"warning: Redis: the daemons cannot be counted, so local answers have the whole limit: {words}" in line
        assert line.endswith("delete that key, or write local_share: N")
        assert client.call("stats")["live_daemons"] == 0
        eventually(lambda: int(direct.info("commandstats")["cmdstat_zrange"]["calls"]) >= 4, "it has looked twice")
        assert direct.dump(DAEMONS_KEY) == before  # it is not ours
        assert daemon.text().count("cannot be counted") == 1
        direct.delete(DAEMONS_KEY)
        sees(client, 1)
        daemon.wait_for_log("info: Redis: the daemons can be counted again")

        spoil(direct) if spoil is foreign_members else (direct.delete(DAEMONS_KEY), spoil(direct))
        eventually(lambda: client.call("stats")["live_daemons"] == 0, "it is noticed")
        take_away(redis, "killed", client)
        assert client.check("quota", "k")["limit"] == 100


@one_kind
def test_the_number_falls_only_when_all_had_the_time_to_return(ratelimitd, redis, connect):
    """Redis loses the set with a restart. The first daemon that is back sees itself alone, but is not."""
    first, second = ratelimitd(POLICIES, redis=redis), ratelimitd(POLICIES, redis=redis)
    client = connect(first)
    sees(client, 2)
    second.pause()
    redis.kill()
    eventually(lambda: client.check("denied", "probe")["source"] == "deny", "the loss is noticed")
    redis.start()
    with redis.client() as direct:
        eventually(lambda: len(members(direct)) == 1, "it is back")
        assert client.call("stats")["live_daemons"] == 2
        redis.kill()
    eventually(lambda: client.check("quota", "k")["source"] == "local", "the loss is noticed")
    assert client.check("quota", "k")["limit"] == 50
    second.resume()


@one_kind
def test_explain_and_policies_show_the_share(ratelimitd, redis, connect):
    client, _ = start_together(ratelimitd, redis, connect, 2)
    shares = {policy["name"]: policy.get("local_share") for policy in client.call("policies")}
    assert shares == {"quota": "live", "bucket": "live", "several": "live", "slots": "live", "thirds": 3, "whole": 1,
                      "denied": None}
    ours = "Without Redis this daemon decides by its share, limit and burst divided by {}."
    assert client.call("explain", "quota", "k")["why"].endswith(ours.format(2))
    assert client.call("explain", "thirds", "k")["why"].endswith(ours.format(3))
    assert "share" not in client.call("explain", "whole", "k")["why"]
    assert "share" not in client.call("explain", "denied", "k")["why"]
