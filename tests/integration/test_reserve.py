"""test_reserve.py: reserve, settle and cancel through the socket: on the memory store by its own clock, on Redis between
two daemons."""

import base64

import pytest
from harness import Redis, RpcError, eventually, some

CONFIG = """
defaults: {deadline: 10s}   # a busy machine is slow
policies:
  window: {algorithm: fixed_window, limit: 10, window: 1h}
  bucket: {algorithm: token_bucket, limit: 10, window: 10s}
  owing: {algorithm: token_bucket, limit: 10, window: 10s, debt: true}
  first: {algorithm: fixed_window, start: first_hit, limit: 10, window: 1h}
  log: {algorithm: sliding_log, limit: 10, window: 1h}
  counter: {algorithm: sliding_counter, limit: 10, window: 1h}
  month: {algorithm: calendar_window, limit: 10, window: month, timezone: Europe/Berlin}
  two:
    limits:
      - {name: few, algorithm: fixed_window, limit: 10, window: 1h}
      - {name: many, algorithm: token_bucket, limit: 100, window: 100s}
    debt: true
  guarded: {algorithm: sliding_log, limit: 10, window: 1h, count_denied: true}
  none: {algorithm: fixed_window, limit: 0, window: 1s}
  old: {compat: first-hit, limit: 5, window: 10s}
  shaped: {algorithm: leaky_bucket, limit: 5, window: 10s, max_wait: 1s}
"""
START_US = 3600 * 10**6 * 1000
NATIVE = ("window", "bucket", "owing", "first", "log", "counter", "month", "two")


@pytest.fixture
def client(ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, arguments=["--test-clock"]))
    client.call("test_clock", START_US)
    return client


@pytest.fixture
def pair(ratelimitd, redis, connect):
    """Two daemons on one Redis, and a client of each."""
    daemons = [ratelimitd(CONFIG, redis=redis) for _ in range(2)]
    return daemons, [connect(daemon) for daemon in daemons]


def at(client, seconds):
    client.call("test_clock", START_US + int(seconds * 10**6))


# By the memory store's own clock


@pytest.mark.parametrize("policy", NATIVE)
def test_a_reservation_is_charged_at_once_and_what_was_not_used_comes_back(client, policy):
    made = client.call("reserve", policy, "k", 6)
    assert some(made, "allowed", "remaining") == (True, 4) and isinstance(made["reservation"], str)
    settled = client.call("settle", made["reservation"], 2)
    assert some(settled, "allowed", "remaining", "refunded", "charged", "ended") == (True, 8, 4, None, None)
    assert client.remaining(policy) == 8


@pytest.mark.parametrize("policy", NATIVE)
def test_cancel_gives_all_back(client, policy):
    client.check(policy, "k", 1)
    made = client.call("reserve", policy, "k", 6)
    cancelled = client.call("cancel", made["reservation"])
    assert some(cancelled, "remaining", "refunded", "ended") == (9, 6, None)


@pytest.mark.parametrize("policy", NATIVE)
def test_a_reservation_ends_at_its_time_limit_and_not_before(client, policy):
    client.call("reserve", policy, "k", 10, {"ttl_ms": 500})
    at(client, 0.499999)
    assert client.remaining(policy) == 0
    at(client, 0.5)
    assert client.remaining(policy) == 10


def test_the_default_time_limit_is_a_minute(client):
    client.call("reserve", "window", "k", 10)
    at(client, 59.999999)
    assert not client.check("window", "k")["allowed"]
    at(client, 60)
    assert client.check("window", "k")["allowed"]


def test_a_denied_reserve_holds_nothing(client):
    client.check("window", "k", 5)
    denied = client.call("reserve", "window", "k", 6)
    assert some(denied, "allowed", "remaining", "reservation") == (False, 5, None)


def test_nothing_can_be_reserved_for_nothing(client):
    made = client.call("reserve", "window", "k", 0)
    settled = client.call("settle", made["reservation"], 3)
    assert some(settled, "remaining", "charged") == (7, 3)


def test_what_is_used_beyond_is_charged_as_far_as_it_fits(client):
    made = client.call("reserve", "bucket", "k", 6)
    settled = client.call("settle", made["reservation"], 30)
    assert some(settled, "remaining", "charged", "refunded") == (0, 4, None)
    at(client, 1)
    assert client.remaining("bucket") == 1


def test_debt_is_charged_as_far_as_twice_the_capacity(client):
    made = client.call("reserve", "owing", "k", 6)
    settled = client.call("settle", made["reservation"], 11)
    assert some(settled, "remaining", "charged", "reset_after_ms") == (0, 5, 11000)
    denied = client.check("owing", "k")
    assert some(denied, "allowed", "retry_after_ms") == (False, 2000)
    at(client, 1.999999)
    assert not client.check("owing", "k")["allowed"]
    at(client, 2)
    assert client.check("owing", "k")["allowed"]
    at(client, 100)
    made = client.call("reserve", "owing", "k", 1)
    assert client.call("settle", made["reservation"], 1000)["charged"] == 19


def test_several_limits_are_settled_alike(client):
    made = client.call("reserve", "two", "k", 3)
    at(client, 2)
    settled = client.call("settle", made["reservation"], 1)
    assert some(settled, "remaining", "refunded") == (9, 2)
    made = client.call("reserve", "two", "k", 9)
    settled = client.call("settle", made["reservation"], 200)
    assert some(settled, "remaining", "charged") == (0, 10)  # the debt of `few`, which is unused, bounds both


@pytest.mark.parametrize("how", [("settle", 3), ("settle", 9), ("cancel",)])
def test_a_second_settlement_does_nothing(client, how):
    made = client.call("reserve", "window", "k", 6)
    method, *actual = how
    client.call(method, made["reservation"], *actual)
    before = client.remaining("window")
    for seconds in (0, 30, 60, 90, 119, 120, 200):
        at(client, seconds)
        again = client.call("settle", made["reservation"], 2)
        assert some(again, "charged", "ended", "remaining") == (0, True, before)
        assert some(client.call("cancel", made["reservation"]), "refunded", "ended") == (0, True)


def test_settling_after_the_end_charges_what_was_used_once(client):
    made = client.call("reserve", "window", "k", 6, {"ttl_ms": 1000})
    at(client, 2)
    settled = client.call("settle", made["reservation"], 5)
    assert some(settled, "charged", "refunded", "ended", "remaining") == (5, None, True, 5)
    assert some(client.call("settle", made["reservation"], 5), "charged", "ended", "remaining") == (0, True, 5)


def test_more_than_a_minute_after_the_end_nothing_is_charged_any_more(client):
    made = client.call("reserve", "window", "k", 6, {"ttl_ms": 1000})
    at(client, 61)
    assert some(client.call("settle", made["reservation"], 5), "charged", "ended", "remaining") == (0, True, 10)


def test_cancelling_after_the_end_gives_nothing_back(client):
    made = client.call("reserve", "window", "k", 6, {"ttl_ms": 1000})
    client.check("window", "k", 2)
    at(client, 1)
    assert some(client.call("cancel", made["reservation"]), "refunded", "ended", "remaining") == (0, True, 8)


def test_a_window_takes_back_only_what_was_charged_in_it(client):
    at(client, 3599)
    made = client.call("reserve", "window", "k", 6)
    at(client, 3601)
    client.check("window", "k", 4)
    assert some(client.call("cancel", made["reservation"]), "refunded", "remaining") == (0, 6)


def test_array_form_has_the_further_fields_in_a_map(client):
    client.call("hello", {"decision": "array"})
    made = client.call("reserve", "window", "k", 6)
    assert list(made[-1]) == ["reservation"]
    assert client.call("settle", made[-1]["reservation"], 1)[-1] == {"refunded": 5}
    assert client.call("cancel", made[-1]["reservation"])[-1] == {"refunded": 0, "ended": True}


def test_a_policy_of_limit_0_reserves_nothing(client):
    assert not client.call("reserve", "none", "k", 1)["allowed"]
    made = client.call("reserve", "none", "k", 0)
    assert some(client.call("settle", made["reservation"], 5), "allowed", "charged", "ended") == (True, 0, True)


@pytest.mark.parametrize("policy", ["old", "shaped"])
def test_what_cannot_be_given_back_cannot_be_reserved(client, policy):
    with pytest.raises(RpcError, match="UNSUPPORTED: policy: .*giv.* back"):
        client.call("reserve", policy, "k", 1)


@pytest.mark.parametrize("params, error", [
    (("window", "k"), "BAD_REQUEST: wrong number"),
    (("window", "k", "1"), "BAD_REQUEST: estimate: "),
    (("window", "k", None), "BAD_REQUEST: estimate: "),
    (("window", "k", -1), "BAD_COST: estimate: "),
    (("window", "k", 1.5), "BAD_COST: estimate: "),
    (("window", "k", 1, {"ttl_ms": 0}), "BAD_REQUEST: ttl_ms: "),
    (("window", "k", 1, {"ttl_ms": 86400001}), "BAD_REQUEST: ttl_ms: "),
    (("window", "k", 1, {"cost": 1}), "BAD_REQUEST: there is no option 'cost'"),
    (("window", "k", 1, {"ttl_ms": 1, "ttl_ms ": 1}), "BAD_REQUEST: there is no option"),
    (("none-such", "k", 1), "UNKNOWN_POLICY: "),
    (("window", "", 1), "BAD_KEY: "),
])
def test_what_reserve_refuses(client, params, error):
    with pytest.raises(RpcError) as refused:
        client.call("reserve", *params)
    assert str(refused.value).startswith(error)


def test_what_settle_refuses(client):
    token = client.call("reserve", "window", "k", 5)["reservation"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    forged = base64.urlsafe_b64encode(raw[:-5] + b"x" + raw[-4:]).decode().rstrip("=")
    for bad in ("", "x", token[:-1], token + "AAAA", token.lower(), forged, "hello world", "=" * 80):
        with pytest.raises(RpcError, match="BAD_REQUEST: reservation: "):
            client.call("settle", bad, 1)
        with pytest.raises(RpcError, match="BAD_REQUEST: reservation: "):
            client.call("cancel", bad)
    for actual, error in ((-1, "BAD_COST: actual: "), (0.5, "BAD_COST: actual: "), ("1", "BAD_REQUEST: actual: ")):
        with pytest.raises(RpcError, match=error):
            client.call("settle", token, actual)
    assert client.call("settle", token.encode(), 1)["refunded"] == 4


def test_a_reservation_of_the_longest_key_fits(client):
    made = client.call("reserve", "window", b"\xff\x00" * 512, 5)
    assert len(made["reservation"]) < 1600
    assert client.call("settle", made["reservation"], 1)["refunded"] == 4


def test_a_made_up_reservation_with_a_key_above_the_cap_is_refused_and_charges_nothing(client):
    """Its key would be stored, however long it is."""
    token = client.call("reserve", "window", "k", 5)["reservation"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    stored = client.call("stats")["memory_bytes"]
    for n, fits in ((1024, True), (1025, False), (40_000, False)):
        made_up = raw[:3] + n.to_bytes(8, "little") + raw[11:-5] + b"k" * n
        checksum = 14695981039346656037
        for byte in made_up:
            checksum = (checksum ^ byte) * 1099511628211 % 2**64
        made_up += ((checksum ^ checksum >> 32) % 2**32).to_bytes(4, "little")
        text = base64.urlsafe_b64encode(made_up).decode().rstrip("=")
        for params in (("settle", text, 7), ("cancel", text)):
            if fits:
                assert client.call(*params)["ended"]
                stored = client.call("stats")["memory_bytes"]
                continue
            with pytest.raises(RpcError, match=f"BAD_KEY: reservation: its key has {n} bytes; at most 1024 .caps.max_key."):
                client.call(*params)
    assert client.call("stats")["memory_bytes"] == stored
    assert client.call("settle", token, 1)["refunded"] == 4


def test_a_reservation_of_a_policy_that_is_gone(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(daemon)
    made = client.call("reserve", "window", "k", 5)
    daemon.configure("policies: {other: {algorithm: fixed_window, limit: 1, window: 1s}}")
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == 1, "reloaded")
    with pytest.raises(RpcError, match="UNKNOWN_POLICY: reservation: "):
        client.call("settle", made["reservation"], 1)


def test_the_daemon_gives_back_at_the_end_itself(ratelimitd, connect):
    client = connect(ratelimitd(CONFIG))
    client.call("reserve", "window", "k", 10, {"ttl_ms": 30})
    assert client.call("stats")["reservations"] == 1
    eventually(lambda: client.call("stats")["reservations"] == 0, "the reservation ends")
    eventually(lambda: client.remaining("window") == 10, "its units are back")


def test_stats_count_reservations(client, ratelimitd, connect):
    made = client.call("reserve", "window", "k", 2)
    client.call("settle", made["reservation"], 2)
    client.call("settle", made["reservation"], 2)
    stats = client.call("stats")
    assert some(stats, "reservations_made", "reservations_settled", "reservations_untimed") == (1, 1, 0)


def test_policies_shows_whether_debt_is_allowed(client):
    debts = {policy["name"]: policy.get("debt") for policy in client.call("policies")}
    assert debts["owing"] is True and debts["two"] is True and debts["window"] is None


# Between two daemons on one Redis


def hold_keys(redis):
    with redis.client() as store:
        return [key for key in store.keys() if b":hold1:" in key]


@pytest.mark.parametrize("policy", NATIVE)
def test_one_daemon_reserves_and_another_settles(pair, policy):
    _, (one, other) = pair
    made = one.call("reserve", policy, "k", 6)
    assert some(made, "allowed", "remaining", "source") == (True, 4, "redis")
    assert other.remaining(policy) == 4
    settled = other.call("settle", made["reservation"], 2)
    assert some(settled, "allowed", "remaining", "refunded", "ended", "source") == (True, 8, 4, None, "redis")
    assert some(one.call("settle", made["reservation"], 2), "charged", "ended") == (0, True)
    assert one.remaining(policy) == 8
    assert some(one.call("cancel", one.call("reserve", policy, "k", 3)["reservation"]), "remaining", "refunded") == (8, 3)


def test_debt_is_charged_in_redis_too(pair):
    _, (one, other) = pair
    made = one.call("reserve", "two", "k", 6)
    settled = other.call("settle", made["reservation"], 15)
    assert some(settled, "remaining", "charged") == (0, 9)
    made = one.call("reserve", "window", "k", 6)
    assert some(other.call("settle", made["reservation"], 15), "remaining", "charged") == (0, 4)


def test_the_maker_gives_back_at_the_end_and_a_plain_check_sees_it(pair, redis):
    _, (one, other) = pair
    one.call("reserve", "two", "k", 10, {"ttl_ms": 50})
    eventually(lambda: other.check("two", "k", 10)["allowed"], "the units are back")
    eventually(lambda: one.call("stats")["reservations"] == 0, "its timer is through")
    assert hold_keys(redis) == []


def test_after_a_daemons_death_the_next_reserve_gives_back(pair, redis):
    (first, _), (one, other) = pair
    one.call("reserve", "window", "k", 10, {"ttl_ms": 100})
    first.kill()
    assert not other.check("window", "k")["allowed"]
    [key] = hold_keys(redis)
    with redis.client() as store:
        assert store.zcard(key) == 1 and 50_000 < store.pttl(key) <= 60_100
        ends = store.zrange(key, 0, 0, withscores=True)[0][1]
        eventually(lambda: store.time()[0] * 1000 + store.time()[1] // 1000 > ends, "its end has passed")
    assert not other.check("window", "k")["allowed"]  # a plain check does not do this
    assert other.call("reserve", "window", "k", 10)["allowed"]


def test_a_settlement_after_the_end_charges_what_was_used(pair):
    _, (one, other) = pair
    made = one.call("reserve", "window", "k", 10, {"ttl_ms": 20})
    eventually(lambda: other.check("window", "k", 3)["allowed"], "the units are back")
    assert some(other.call("settle", made["reservation"], 5), "charged", "ended", "remaining") == (5, True, 2)
    assert some(one.call("settle", made["reservation"], 5), "charged", "ended", "remaining") == (0, True, 2)


def test_reservations_and_checks_keep_their_order_in_one_tick(pair):
    _, (one, _) = pair
    sent = [one.send("reserve", "window", "k", 4), one.send("check", "window", "k", 3),
            one.send("reserve", "window", "k", 4), one.send("peek", "window", "k", 3),
            one.send("reset", "window", "k"), one.send("reserve", "window", "k", 8)]
    answers = [one.answer(msgid) for msgid in sent]
    assert [answer.get("allowed", answer.get("removed")) for answer in answers] == [True, True, False, True, True, True]
    sent = [one.send("settle", answers[5]["reservation"], 1), one.send("check", "window", "k", 9),
            one.send("cancel", answers[5]["reservation"])]
    answers = [one.answer(msgid) for msgid in sent]
    assert answers[0]["refunded"] == 7 and answers[1]["allowed"] and answers[2]["ended"]


def test_a_foreign_type_under_the_reservations_key_is_an_error_of_its_own(pair, redis):
    _, (one, _) = pair
    one.call("reserve", "window", "k", 1)
    [key] = hold_keys(redis)
    with redis.client() as store:
        store.set(key, "foreign")
        sent = [one.send("reserve", "window", "k", 1), one.send("reserve", "window", "other", 1)]
        answers = [one.answer(msgid) for msgid in sent]
        assert some(answers[0], "source", "reason") == ("local", "store_error") and answers[1]["source"] == "redis"
        assert store.get(key) == b"foreign"


def test_foreign_entries_among_the_reservations_harm_nobody(pair, redis):
    _, (one, _) = pair
    made = one.call("reserve", "window", "k", 2)
    [key] = hold_keys(redis)
    with redis.client() as store:
        store.zadd(key, {b"x" * 22: 1, b"short": 2, b"no number": "-inf", b"z" * 8: 1e300, b"never": "inf"})
        sent = [one.send("reserve", "window", "k", 1), one.send("check", "window", "other"),
                one.send("settle", made["reservation"], 1)]
        answers = [one.answer(msgid) for msgid in sent]
        assert [answer["source"] for answer in answers] == ["redis"] * 3
        assert answers[2]["refunded"] == 1 and 0 < store.pttl(key) <= 86_520_000


def test_a_reservation_made_too_late_to_be_answered_is_cancelled(ratelimitd, redis, connect):
    text = """
defaults: {deadline: 800ms}
policies:
  deny: {algorithm: fixed_window, limit: 10, window: 1d, on_failure: deny}
  local: {algorithm: token_bucket, limit: 10, window: 1d, on_failure: local}
"""
    daemon = ratelimitd(text, redis=redis, redis_options={"stall": "1h"})
    client, gone = connect(daemon), connect(daemon)
    redis.pause()
    try:
        denied, local = client.send("reserve", "deny", "k", 4), client.send("reserve", "local", "k", 4)
        gone.send("reserve", "deny", "k", 3, {"deadline_ms": 60000})
        assert some(client.answer(denied), "source", "reason") == ("deny", "deadline")
        local = client.answer(local)
        assert some(local, "source", "reason") == ("local", "deadline")
        eventually(lambda: client.call("stats")["inflight"] == 1, "it is on its way")
        gone.close()
        eventually(lambda: client.call("stats")["connections"] == 1, "the client has left")
    finally:
        redis.resume()
    eventually(lambda: client.call("stats")["reservations_settled"] == 3, "all three are cancelled")
    assert (client.remaining("deny"), client.remaining("local")) == (10, 10)
    assert client.call("stats")["reservations"] == 0
    assert client.call("settle", local["reservation"], 1)["source"] == "local"


def test_while_redis_is_away_the_failure_answer_reserves(ratelimitd, redis, connect):
    text = """
defaults: {deadline: 10s}
policies:
  allow: {algorithm: fixed_window, limit: 10, window: 1h, on_failure: allow}
  deny: {algorithm: fixed_window, limit: 10, window: 1h, on_failure: deny}
  local: {algorithm: fixed_window, limit: 10, window: 1h, on_failure: local}
  error: {algorithm: fixed_window, limit: 10, window: 1h, on_failure: error}
"""
    daemon = ratelimitd(text, redis=redis)
    client = connect(daemon)
    real = client.call("reserve", "error", "k", 5)
    redis.stop()
    eventually(lambda: client.call("stats")["redis_up"] == 0, "Redis is away")
    allowed = client.call("reserve", "allow", "k", 50)
    assert some(allowed, "allowed", "source", "reason") == (True, "allow", "down")
    assert some(client.call("settle", allowed["reservation"], 20), "source", "reason", "charged", "ended") == (
        "allow", "down", 0, True)
    assert some(client.call("reserve", "deny", "k", 5), "allowed", "source", "reservation") == (False, "deny", None)
    local = client.call("reserve", "local", "k", 8)
    assert some(local, "allowed", "source", "remaining") == (True, "local", 2)
    assert some(client.call("settle", local["reservation"], 3), "source", "reason", "refunded", "remaining") == (
        "local", "down", 5, 7)
    for method, params in (("reserve", ("error", "k", 5)), ("settle", (real["reservation"], 5)),
                           ("cancel", (real["reservation"],))):
        with pytest.raises(RpcError, match="STORE_UNAVAILABLE: "):
            client.call(method, *params)


def test_settling_an_unlimited_reservation_is_answered_as_unlimited(ratelimitd, any_store, connect):
    """Earlier the answer was that nothing remained."""
    client = connect(ratelimitd("""
defaults: {deadline: 5s}
policies:
  free: {unlimited: true}
  some: {algorithm: fixed_window, limit: 5, window: 1h, overrides: [{match: "partner:*", unlimited: true}]}
""", redis=any_store))
    for policy, key in (("free", "k"), ("some", "partner:1")):
        made = client.call("reserve", policy, key, 5)
        for settled in (client.call("settle", made["reservation"], 3), client.call("cancel", made["reservation"])):
            assert some(settled, "allowed", "limit", "remaining", "source", "ended") == (
                True, 2**53 - 1, 2**53 - 1, "unlimited", True)


# Where denied units count


@pytest.fixture(params=["memory", *Redis.KINDS])
def guarded(request, ratelimitd, connect):
    """A client of a daemon on this store."""
    if request.param == "memory":
        yield connect(ratelimitd(CONFIG))
    elif not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    else:
        server = Redis(request.param)
        client = connect(ratelimitd(CONFIG, redis=server))
        eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
        yield client
        server.close()


def test_a_refund_frees_nothing_that_a_denial_was_charged(guarded):
    assert [guarded.check("guarded", "k")["allowed"] for _ in range(19)] == [True] * 10 + [False] * 9
    answer = guarded.call("refund", "guarded", "k", 9)
    assert (answer.get("refunded", 0), answer["remaining"]) == (0, 0)
    assert not guarded.check("guarded", "k")["allowed"]


def test_a_reservation_of_the_last_unit_is_given_back_where_denials_count(guarded):
    for _ in range(9):
        guarded.check("guarded", "k")
    made = guarded.call("reserve", "guarded", "k", 1)
    assert some(made, "allowed", "remaining") == (True, 0)
    assert some(guarded.call("cancel", made["reservation"]), "refunded", "remaining") == (1, 1)
    assert guarded.call("refund", "guarded", "k", 9)["refunded"] == 9


def test_a_denied_attempt_keeps_what_a_cancelled_reservation_had(guarded):
    made = guarded.call("reserve", "guarded", "k", 10)
    assert not guarded.check("guarded", "k")["allowed"]
    answer = guarded.call("cancel", made["reservation"])
    assert (answer.get("refunded", 0), answer["remaining"]) == (0, 0)
