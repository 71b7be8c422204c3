"""test_slots.py: slots of concurrency limits through the socket. Clients take and release them; they end with their connection.
The daemon renews their leases; when it dies, they end with their leases. On memory, and shared on a real Redis."""

import re
import signal
import subprocess
import sys

import pytest
from harness import ROOT, RpcError, eventually, some

CONFIG = """
defaults: {deadline: 5s}
policies:
  login: {algorithm: fixed_window, limit: 5, window: 10s}
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s}
  brief: {algorithm: concurrency, limit: 1, slot_ttl: 1s}
  none: {algorithm: concurrency, limit: 0}
  many: {algorithm: concurrency, limit: 10000}
  both:
    limits:
      - {name: rate, algorithm: fixed_window, limit: 3, window: 1d}
      - {name: at-once, algorithm: concurrency, limit: 2}
"""
TTL_MS = 30000


@pytest.fixture
def shared(ratelimitd, redis):
    daemon = ratelimitd(CONFIG, redis=redis)
    daemon.more = lambda: ratelimitd(CONFIG, redis=redis)
    return daemon


@pytest.fixture
def clock(ratelimitd):
    return ratelimitd(CONFIG, arguments=["--test-clock"])


def stats(client):
    return some(client.call("stats"), "slots", "slots_acquired", "slots_released", "slots_ended_by_close", "slots_lost")


# Acquire and release


def test_slots_are_taken_and_given_back(daemon, connect):
    client = connect(daemon)
    first, second, denied = (client.call("acquire", "jobs", "k") for _ in range(3))
    assert some(first, "allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms") == (True, 2, 1, 0, TTL_MS)
    assert some(second, "allowed", "remaining") == (True, 0)
    assert some(denied, "allowed", "limit", "remaining", "slot") == (False, 2, 0, None)
    assert 1 <= denied["retry_after_ms"] <= denied["reset_after_ms"] <= TTL_MS
    assert re.fullmatch("[0-9a-f]{32}", first["slot"]) and first["slot"] != second["slot"]
    assert client.call("release", first["slot"]) == {"released": True}
    assert client.call("release", first["slot"]) == {"released": False}
    assert client.call("acquire", "jobs", "k")["allowed"]
    assert client.call("acquire", "jobs", "other")["allowed"]
    assert stats(client) == (3, 4, 1, 0, 0)


def test_only_the_owner_can_release_a_slot(daemon, connect):
    owner, other = connect(daemon), connect(daemon)
    slot = owner.call("acquire", "jobs", "k")["slot"]
    for id in (slot, "0" * 32, "", "x", slot.upper() + "1", b"\xff" * 32):
        assert other.call("release", id) == {"released": False}
    assert other.remaining("jobs") == 1
    assert owner.call("release", slot.encode()) == {"released": True}
    assert other.remaining("jobs") == 2


def test_a_client_that_is_killed_loses_its_slots(daemon, connect):
    code = (f"import sys; sys.path.insert(0, {str(ROOT / 'tests/integration')!r})\n"
            f"from harness import Client\nc = Client({daemon.socket!r})\n"
            "for key in 'kkl': assert c.call('acquire', 'jobs', key)['allowed']\n"
            "print('taken', flush=True); sys.stdin.read()")
    client = connect(daemon)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"taken\n"
        assert (client.remaining("jobs"), client.remaining("jobs", "l")) == (0, 1)
        process.kill()
    eventually(lambda: client.remaining("jobs") == 2 and client.remaining("jobs", "l") == 2, "they are free again")
    assert stats(client) == (0, 3, 0, 3, 0)


def test_a_half_close_is_answered_first_and_then_ends_them(daemon, connect):
    client, other = connect(daemon), connect(daemon)
    answers = [client.send("acquire", "jobs", "k") for _ in range(3)]
    client.half_close()
    assert [client.answer(one)["allowed"] for one in answers] == [True, True, False]
    assert client.at_end()
    eventually(lambda: other.remaining("jobs") == 2, "they are free again")


def test_one_limit_among_several_is_all_or_nothing(daemon, connect):
    client = connect(daemon)
    slots = [client.call("acquire", "both", "k") for _ in range(2)]
    assert [some(slot, "allowed", "limit", "remaining") for slot in slots] == [(True, 2, 1), (True, 2, 0)]
    denied = client.call("acquire", "both", "k")
    assert some(denied, "allowed", "bound_by", "remaining") == (False, "both/at-once", 0)
    client.call("release", slots[0]["slot"])
    assert client.call("acquire", "both", "k")["remaining"] == 0  # the third of the day: the denial charged none
    client.call("release", slots[1]["slot"])
    denied = client.call("acquire", "both", "k")
    assert some(denied, "allowed", "bound_by", "slot") == (False, "both/rate", None)
    assert client.call("peek", "both", "k", 1)["bound_by"] == "both/rate"
    assert stats(client)[0] == 1


def test_peek_reset_and_policies_know_them(daemon, connect):
    client = connect(daemon)
    assert client.call("peek", "jobs", "k") == {**client.call("peek", "jobs", "k"), "allowed": True, "limit": 2,
                                                "remaining": 2, "reset_after_ms": 0}
    slots = [client.call("acquire", "jobs", "k")["slot"] for _ in range(2)]
    peek = client.call("peek", "jobs", "k", 1)
    assert not peek["allowed"] and 1 <= peek["retry_after_ms"] <= TTL_MS
    assert not client.call("peek", "jobs", "k", 3)["allowed"]
    assert client.call("reset", "jobs", "k") == {"removed": True}
    assert client.call("reset", "jobs", "k") == {"removed": False}
    assert client.remaining("jobs") == 2
    assert [client.call("release", slot)["released"] for slot in slots] == [False, False]
    policies = {policy["name"]: policy for policy in client.call("policies")}
    assert policies["jobs"]["limits"] == [{"algorithm": "concurrency", "limit": 2, "slot_ttl_ms": TTL_MS}]


def test_explain_describes_slots(daemon, connect):
    client = connect(daemon)
    for _ in range(2):
        client.call("acquire", "jobs", "k")
    answer = client.call("explain", "jobs", "k")
    [state], [limit] = answer["state"], answer["limits"]
    assert state["slots"] == 2 and 1 <= state["last_lease_ends_in_ms"] <= TTL_MS
    assert limit["slot_ttl_ms"] == TTL_MS and not answer["allowed"] and client.remaining("jobs") == 0
    assert "0 of 2 slots are free" in answer["why"] and "2 at once" in answer["why"], answer["why"]


def test_policies_written_out_and_overrides_have_slots_too(ratelimitd, connect):
    client = connect(ratelimitd("""
inline: {allow: true}
policies:
  jobs:
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: concurrency, limit: 2}
      - {name: tenant, by: [tenant], algorithm: concurrency, limit: 3}
    overrides:
      - {key: "t:free", unlimited: true}
      - {match: "t:one*", limit: {user: 1}}
"""))
    inline = {"algorithm": "concurrency", "limit": 1, "slot_ttl": "10s"}
    slot = client.call("acquire", inline, "k")["slot"]
    assert not client.call("acquire", inline, "k")["allowed"]
    assert client.call("release", slot) == {"released": True}
    assert client.call("acquire", "jobs", "t:one")["allowed"]
    assert some(client.call("acquire", "jobs", "t:one"), "allowed", "bound_by") == (False, "jobs/user")
    slots = [client.call("acquire", "jobs", "t:a")["slot"] for _ in range(2)]
    assert some(client.call("acquire", "jobs", "t:b"), "allowed", "bound_by") == (False, "jobs/tenant")
    free = client.call("acquire", "jobs", "t:free")
    assert some(free, "allowed", "source") == (True, "unlimited") and len(free["slot"]) == 32
    assert client.call("release", free["slot"]) == {"released": True}
    assert client.call("release", slots[0]) == {"released": True}
    assert client.call("acquire", "jobs", "t:b")["allowed"]
    with pytest.raises(RpcError, match="UNSUPPORTED"):
        client.check("jobs", "t:free")


def test_a_policy_in_shadow_gives_slots_to_all(ratelimitd, connect):
    client = connect(ratelimitd("policies: {jobs: {algorithm: concurrency, limit: 1, shadow: true}, "
                                "none: {algorithm: concurrency, limit: 0, shadow: true}}"))
    answers = [client.call("acquire", "jobs", "k") for _ in range(3)]
    assert [some(answer, "allowed", "shadow_denied") for answer in answers] == [(True, None), (True, True), (True, True)]
    assert some(client.call("acquire", "none", "k"), "allowed", "shadow_denied") == (True, True)
    assert [client.call("release", answer["slot"])["released"] for answer in answers] == [True] * 3
    assert client.call("acquire", "jobs", "k").get("shadow_denied") is None


def test_a_candidate_is_tried_by_acquire_and_has_no_slots(ratelimitd, connect):
    text = """
policies:
  jobs:
    algorithm: concurrency
    limit: 5
    candidate: [{name: rate, algorithm: ALGORITHM, limit: 1}]
"""
    client = connect(ratelimitd(text.replace("ALGORITHM, limit: 1", "fixed_window, limit: 1, window: 1d")))
    assert all(client.call("acquire", "jobs", "k")["allowed"] for _ in range(3))
    stats = client.call("stats")
    assert some(stats, "candidate_allowed", "candidate_denied") == (1, 2)
    refused = ratelimitd(text.replace("ALGORITHM", "concurrency"), start=False)
    refused.expected_exit = 3
    refused.start(wait=False)
    assert refused.wait() == 3 and "cannot be on trial" in refused.text()


def test_a_limit_of_0_denies_always(daemon, connect):
    client = connect(daemon)
    assert some(client.call("acquire", "none", "k"), "allowed", "limit", "retry_after_ms", "slot") == (False, 0, -1, None)


def test_the_array_form_carries_the_slot(daemon, connect):
    client = connect(daemon)
    client.call("hello", {"decision": "array"})
    answer = client.call("acquire", "jobs", "k", {"deadline_ms": 5000})
    assert answer[:8] == [True, 2, 1, 0, TTL_MS, 0, 1, None] and list(answer[11]) == ["slot"]
    assert client.call("release", answer[11]["slot"]) == {"released": True}
    client.call("acquire", "jobs", "k"), client.call("acquire", "jobs", "k")
    assert len(client.call("acquire", "jobs", "k")) == 11


@pytest.mark.parametrize("params, code, words", [
    (["check", "jobs", "k"], "UNSUPPORTED", ["use acquire"]),
    (["check", "both", "k", 0], "UNSUPPORTED", ["use acquire"]),
    (["check_many", [["login", "k"], ["jobs", "k"]]], "UNSUPPORTED", ["checks[1]", "use acquire"]),
    (["check_all", [["login", "k"], ["both", "k"]]], "UNSUPPORTED", ["checks[1]", "use acquire"]),
    (["acquire", "login", "k"], "UNSUPPORTED", ["use check"]),
    (["acquire", "nope", "k"], "UNKNOWN_POLICY", ["nope"]),
    (["acquire", "jobs", ""], "BAD_KEY", ["key"]),
    (["acquire", "jobs"], "BAD_REQUEST", ["acquire"]),
    (["acquire", "jobs", "k", 1], "BAD_REQUEST", ["options"]),
    (["acquire", "jobs", "k", {"cost": 1}], "BAD_REQUEST", ["cost"]),
    (["release"], "BAD_REQUEST", ["release"]),
    (["release", 5], "BAD_REQUEST", ["slot"]),
    (["release", None], "BAD_REQUEST", ["slot"]),
])
def test_what_is_wrong_is_named_and_takes_nothing(daemon, connect, params, code, words):
    client = connect(daemon)
    with pytest.raises(RpcError) as error:
        client.call(*params)
    assert error.value.code == code, error.value
    assert all(word in error.value.message for word in words), error.value.message
    assert stats(client)[:2] == (0, 0) and client.remaining("jobs") == 2 and client.remaining("login") == 5


def test_slots_are_bounded(ratelimitd, connect):
    daemon = ratelimitd("caps: {max_slots: 5, max_slots_per_connection: 3}" + CONFIG)
    client, other = connect(daemon), connect(daemon)
    slots = [client.call("acquire", "many", "k")["slot"] for _ in range(3)]
    with pytest.raises(RpcError, match="OVERLOADED.*max_slots_per_connection"):
        client.call("acquire", "many", "k")
    assert [other.call("acquire", "many", "k")["allowed"] for _ in range(2)] == [True, True]
    client.call("release", slots.pop())
    assert other.call("acquire", "many", "k")["allowed"]
    with pytest.raises(RpcError, match="OVERLOADED"):
        client.call("acquire", "many", "k")
    assert other.remaining("many", "k") == 10000 - 5


def test_who_holds_a_slot_is_not_idle(ratelimitd, connect):
    daemon = ratelimitd(CONFIG.replace("defaults:", "listen: {socket: SOCKET, idle_timeout: 100ms}\ndefaults:"), start=False)
    daemon.configure(daemon.path.read_text().replace("SOCKET", daemon.socket))
    daemon.start()
    holder, idle = connect(daemon), connect(daemon)
    assert holder.call("acquire", "jobs", "k")["allowed"] and idle.call("ping") == "pong"
    assert idle.at_end()
    other = connect(daemon)
    assert other.remaining("jobs") == 1
    assert holder.call("ping") == "pong"


# Under the test clock


def test_slots_of_living_connections_are_kept_however_time_jumps(clock, connect):
    client, other = connect(clock), connect(clock)
    slot = client.call("acquire", "jobs", "k")["slot"]
    for us in (29_000_000, 30_000_000, 10**12, 5, 10**15, 0):
        client.call("test_clock", us)
        assert other.remaining("jobs") == 1
    other.call("acquire", "jobs", "k")
    denied = other.call("acquire", "jobs", "k")
    assert some(denied, "allowed", "retry_after_ms", "reset_after_ms") == (False, TTL_MS, TTL_MS)
    client.call("test_clock", 10_000_000)
    assert client.call("release", slot) == {"released": True}
    assert other.remaining("jobs") == 1
    assert stats(other) == (1, 2, 1, 0, 0)


def test_after_a_reset_time_brings_no_slot_back(clock, connect):
    client = connect(clock)
    slot = client.call("acquire", "jobs", "k")["slot"]
    client.call("reset", "jobs", "k")
    client.call("test_clock", 10**9)
    assert client.remaining("jobs") == 2
    assert client.call("release", slot) == {"released": False}
    assert stats(client) == (0, 1, 0, 0, 1)


# Several daemons on one Redis


def scores(redis):
    with redis.client() as client:
        return [client.zrange(key, 0, -1, withscores=True) for key in client.scan_iter("*co1*")]


def test_two_daemons_share_a_limit(shared, connect):
    one, two = connect(shared), connect(shared.more())
    slot = one.call("acquire", "jobs", "k")["slot"]
    assert two.call("acquire", "jobs", "k")["allowed"]
    assert [client.call("acquire", "jobs", "k")["allowed"] for client in (one, two)] == [False, False]
    assert two.call("release", slot) == {"released": False}
    assert one.call("release", slot) == {"released": True}
    assert two.call("acquire", "jobs", "k")["allowed"]


def test_the_leases_of_a_killed_daemon_end_by_themselves(shared, redis, connect):
    killed = shared.more()
    holder, other = connect(killed), connect(shared)
    holder.call("acquire", "brief", "k")
    assert not other.call("acquire", "brief", "k")["allowed"]
    killed.kill()
    eventually(lambda: other.call("acquire", "brief", "k")["allowed"], "the lease ends")
    assert [len(leases) for leases in scores(redis)] == [1]


def test_leases_are_renewed_while_their_owner_is_there(shared, redis, connect):
    holder, other = connect(shared), connect(shared.more())
    holder.call("acquire", "brief", "k")
    [[(id, first)]] = scores(redis)
    eventually(lambda: scores(redis)[0][0][1] >= first + 1000, "renewed beyond the first lease")
    assert scores(redis)[0][0][0] == id
    assert not other.call("acquire", "brief", "k")["allowed"]


def test_a_drain_gives_the_slots_back(shared, redis, connect):
    drained = shared.more()
    holder, other = connect(drained), connect(shared)
    for _ in range(2):
        assert holder.call("acquire", "jobs", "k")["allowed"]
    assert drained.stop() == 0
    assert scores(redis) == [] and other.remaining("jobs") == 2


def test_a_drain_without_redis_ends_too(shared, redis, connect):
    holder = connect(shared)
    assert holder.call("acquire", "jobs", "k")["allowed"]
    redis.kill()
    assert shared.stop() == 0


def test_what_redis_lost_is_not_taken_again(shared, redis, connect):
    holder = connect(shared)
    slot = holder.call("acquire", "brief", "k")["slot"]
    with redis.client() as client:
        client.flushall()
    eventually(lambda: stats(holder)[4] == 1, "the loss is noticed")
    assert holder.call("release", slot) == {"released": False}
    assert scores(redis) == []


def test_a_restart_of_redis_loses_them_and_they_can_be_taken_anew(shared, redis, connect):
    holder = connect(shared)
    holder.call("acquire", "brief", "k")
    redis.restart()
    eventually(lambda: stats(holder)[4] == 1, "the loss is noticed")
    eventually(lambda: holder.call("acquire", "brief", "k")["source"] == "redis", "Redis answers again")


FAILING = """
defaults: {deadline: 5s}
policies:
  allow: {algorithm: concurrency, limit: 2, on_failure: allow}
  deny: {algorithm: concurrency, limit: 2, on_failure: deny}
  error: {algorithm: concurrency, limit: 2, on_failure: error}
  local: {algorithm: concurrency, limit: 2, on_failure: local}
"""


def test_without_redis_each_policy_answers_as_it_says(ratelimitd, redis, connect):
    daemon = ratelimitd(FAILING, redis=redis)
    client, other = connect(daemon), connect(daemon)
    held = client.call("acquire", "allow", "k")
    redis.kill()
    eventually(lambda: client.call("acquire", "deny", "k")["source"] == "deny", "the loss is noticed")
    free = [client.call("acquire", "allow", "k") for _ in range(3)]
    assert [some(answer, "allowed", "source", "reason") for answer in free] == [(True, "allow", "down")] * 3
    assert len({answer["slot"] for answer in free}) == 3
    assert client.call("release", free[0]["slot"]) == {"released": True}
    assert client.call("release", free[0]["slot"]) == {"released": False}
    assert client.call("release", held["slot"]) == {"released": True}
    with pytest.raises(RpcError) as error:
        client.call("acquire", "error", "k")
    assert error.value.code == "STORE_UNAVAILABLE"
    local = [client.call("acquire", "local", "k") for _ in range(3)]
    assert [some(answer, "allowed", "source", "remaining") for answer in local] == [
        (True, "local", 1), (True, "local", 0), (False, "local", 0)]
    assert client.call("release", local[0]["slot"]) == {"released": True}
    assert client.call("acquire", "local", "k")["allowed"]
    assert not other.call("acquire", "local", "k")["allowed"]
    client.close()
    eventually(lambda: other.call("acquire", "local", "k")["allowed"], "its slots have ended")


def test_slots_given_back_while_redis_is_stopped_reach_it_afterwards(ratelimitd, redis, connect):
    daemon = ratelimitd(CONFIG.replace("5s", "200ms"), redis=redis, redis_options={"stall": "1h"})
    holder, other = connect(daemon), connect(daemon)
    for _ in range(2):
        slot = holder.call("acquire", "jobs", "k")["slot"]
    redis.pause()
    try:
        assert holder.call("release", slot) == {"released": True}  # at the deadline
        holder.close()
        eventually(lambda: other.call("stats")["slots_ended_by_close"] == 1, "the end is noticed")
    finally:
        redis.resume()
    eventually(lambda: scores(redis) == [], "both are given back")


def test_a_late_admission_is_released_or_kept_according_to_the_answer(ratelimitd, redis, connect):
    text = FAILING.replace("5s", "800ms")
    client = connect(ratelimitd(text, redis=redis, redis_options={"stall": "1h"}))
    redis.pause()
    try:
        denied, allowed = client.send("acquire", "deny", "k"), client.send("acquire", "allow", "k")
        assert client.answer(denied)["source"] == "deny"
        allowed = client.answer(allowed)
        assert some(allowed, "allowed", "source", "reason") == (True, "allow", "deadline")
    finally:
        redis.resume()
    eventually(lambda: [len(leases) for leases in scores(redis)] == [1], "the denied one is free, the other is held")
    assert scores(redis)[0][0][0].decode() == allowed["slot"]
    assert client.call("release", allowed["slot"]) == {"released": True}
    eventually(lambda: scores(redis) == [], "and then it is free")


def test_a_reload_reaches_slots_that_exist(ratelimitd, redis, connect):
    daemon = ratelimitd(CONFIG, redis=redis)
    client = connect(daemon)
    slot = client.call("acquire", "jobs", "k")["slot"]
    [[(_, end)]] = scores(redis)
    daemon.configure(CONFIG.replace("limit: 2, slot_ttl: 30s", "limit: 1, slot_ttl: 1h"))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: scores(redis)[0][0][1] > end + 60_000, "renewed by the new slot_ttl")
    assert some(client.call("acquire", "jobs", "k"), "allowed", "limit") == (False, 1)
    assert client.call("release", slot) == {"released": True}
    assert client.call("acquire", "jobs", "k")["allowed"]


def test_a_peek_of_any_cost_asks_for_one_slot(daemon, connect):
    """Earlier the text mentioned a sliding_log, and later only 0 and 1 were taken."""
    client = connect(daemon)
    for method in ("peek", "explain"):
        for policy in ("jobs", "many", "both"):
            assert client.call(method, policy, "k", 2)["allowed"]
    assert "2 of 2 slots are free and this check needs 1" in client.call("explain", "jobs", "k", 2)["why"]


def test_a_stop_without_redis_says_how_many_slots_stay_taken(ratelimitd, start_redis, connect):
    server = start_redis()
    daemon = ratelimitd(CONFIG, redis=server)
    client = connect(daemon)
    for _ in range(3):
        assert client.call("acquire", "many", "k")["source"] == "redis"
    server.kill()
    eventually(lambda: client.call("stats")["redis_up"] == 0, "Redis is away")
    daemon.stop()
    assert "3 slots could not be given back: their leases end by themselves" in daemon.text()
