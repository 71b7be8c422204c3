"""test_request_id.py: request_id, at_most and refund through the socket, on every store."""

import signal

import pytest
from harness import RpcError, eventually

CONFIG = """
defaults: {idempotency_window: 10m, deadline: 5s}
policies:
  window: {algorithm: fixed_window, limit: 5, window: 1d}
  bucket: {algorithm: token_bucket, limit: 1, window: 1d, burst: 10}
  log: {algorithm: sliding_log, limit: 5, window: 1d}
  counter: {algorithm: sliding_counter, limit: 5, window: 1d}
  first: {algorithm: fixed_window, start: first_hit, limit: 5, window: 1d}
  leaky: {algorithm: leaky_bucket, limit: 1, window: 1h, burst: 2, max_wait: 3h}
  counting: {algorithm: fixed_window, limit: 5, window: 1d, count_denied: true}
  old: {compat: first-hit, limit: 5, window: 1d}
  never: {algorithm: fixed_window, limit: 0, window: 1d}
  several:
    limits:
      - {name: few, algorithm: fixed_window, limit: 5, window: 1d}
      - {name: many, algorithm: sliding_log, limit: 50, window: 1d}
  short: {algorithm: fixed_window, limit: 5, window: 1d, idempotency_window: 1ms}
"""
SIMPLE = ("window", "bucket", "log", "counter", "first", "several")


def check(client, policy, key, **options):
    return client.check(policy, key, options)


@pytest.mark.parametrize("policy", SIMPLE)
def test_the_same_request_is_charged_once_and_answered_as_then(client, policy):
    first = check(client, policy, "k", request_id="one", cost=2)
    client.check(policy, "k")
    again = check(client, policy, "k", request_id="one", cost=2)
    assert again == first and first["allowed"]
    full = client.remaining(policy, "fresh")
    assert client.remaining(policy, "k") == full - 3
    assert check(client, policy, "k", request_id=b"one", cost=4) == first | {"granted": 2}
    assert check(client, policy, "k", request_id="two")["remaining"] == full - 4
    assert check(client, policy, "other", request_id="one")["remaining"] == full - 1


def test_requests_of_one_tick_are_charged_once(client):
    for _ in range(20):
        client.send("check", "window", "k", {"request_id": "one"})
        client.send("check", "window", "k", {"request_id": b"\x00two"})
    answers = [client.recv() for _ in range(40)]
    assert all(error is None and result["allowed"] for _, _, error, result in answers)
    assert client.remaining("window", "k") == 3


def test_a_denial_is_not_remembered(client):
    client.check("window", "k", 5)
    assert not check(client, "window", "k", request_id="one")["allowed"]
    client.call("reset", "window", "k")
    assert check(client, "window", "k", request_id="one")["allowed"]
    assert check(client, "window", "k", request_id="one")["remaining"] == 4
    assert client.remaining("window", "k") == 4


def test_a_cost_of_0_is_not_remembered(client):
    check(client, "window", "k", request_id="one", cost=0)
    assert check(client, "window", "k", request_id="one")["remaining"] == 4


def test_an_id_is_forgotten_when_its_time_is_over(client):
    def charged_again():
        check(client, "short", "k", request_id="one")
        return client.remaining("short", "k") < 4
    eventually(charged_again, "the request to be charged again")


def test_names_are_not_confused(client):
    check(client, "window", "a", request_id="b:1:c")
    check(client, "window", "a:b", request_id="1:c")
    check(client, "window", "a", request_id="b")
    assert (client.remaining("window", "a"), client.remaining("window", "a:b")) == (3, 4)


def test_check_all_has_one_record_for_the_whole(client):
    whole = [["window", "k", 2], ["several", "k"]]
    first = client.call("check_all", whole, {"request_id": "one"})
    assert first["allowed"] and client.call("check_all", whole, {"request_id": "one"}) == first
    assert client.remaining("window", "k") == 3
    assert client.call("check_all", whole[::-1], {"request_id": "one"})["allowed"]
    assert client.remaining("window", "k") == 1
    assert not client.call("check_all", whole, {"request_id": "two"})["allowed"]
    client.call("refund", "window", "k", 1)
    assert client.call("check_all", whole, {"request_id": "two"})["allowed"]


def test_array_replies_repeat_all_fields(client):
    client.call("hello", {"decision": "array"})
    first = check(client, "window", "k", request_id="one", at_most=3)
    client.check("window", "k")
    assert check(client, "window", "k", request_id="one", at_most=3) == first and first[6] == 3


@pytest.mark.parametrize("policy, full", [(name, 10 if name == "bucket" else 5) for name in SIMPLE])
def test_at_most_grants_the_available_units(client, policy, full):
    first = check(client, policy, "k", at_most=full - 1)
    assert first["allowed"] and first["granted"] == full - 1 and first["remaining"] == 1
    second = check(client, policy, "k", at_most=2**53 - 1)
    assert second["allowed"] and second["granted"] == 1 and second["remaining"] == 0
    third = check(client, policy, "k", at_most=3)
    one = client.check(policy, "k")
    assert not third["allowed"] and "granted" not in third and third == one | {
        name: third[name] for name in ("retry_after_ms", "reset_after_ms", "source")}  # the second one from the cache
    assert 0 <= third["retry_after_ms"] - one["retry_after_ms"] < 60_000


def test_at_most_remembers_what_was_granted(client):
    first = check(client, "window", "k", at_most=3, request_id="one")
    assert first["granted"] == 3
    assert check(client, "window", "k", at_most=5, request_id="one") == first
    assert client.remaining("window", "k") == 2


def test_at_most_waits_where_the_policy_makes_wait(client):
    answer = check(client, "leaky", "k", at_most=2)
    assert answer["granted"] == 2 and "delay_ms" not in answer
    answer = check(client, "leaky", "k", at_most=9)
    assert answer["granted"] == 2  # no check may cost more than the burst
    assert check(client, "leaky", "k", at_most=9)["granted"] == 1
    assert not check(client, "leaky", "k", at_most=9)["allowed"]


def test_a_denied_at_most_counts_as_one_where_denials_count(client):
    assert check(client, "counting", "k", at_most=4)["granted"] == 4
    assert check(client, "counting", "k", at_most=4)["granted"] == 1
    assert not check(client, "counting", "k", at_most=4)["allowed"]
    assert client.call("refund", "counting", "k", 100)["refunded"] == 6


def test_a_limit_of_0_grants_nothing(client):
    assert not check(client, "never", "k", at_most=4, request_id="one")["allowed"]
    answer = client.call("refund", "never", "k", 3)
    assert answer["allowed"] and answer["refunded"] == 0


def test_compat_policies_take_the_options_too(client):
    first = check(client, "old", "k", request_id="one", at_most=7)
    assert first["granted"] == 1
    assert check(client, "old", "k", request_id="one", at_most=7)["remaining"] == first["remaining"] == 4
    assert client.remaining("old", "k") == 4


@pytest.mark.parametrize("policy", SIMPLE)
def test_a_refund_gives_back_what_is_charged_and_no_more(client, policy):
    full = client.remaining(policy, "k")
    assert client.call("refund", policy, "k", 1)["refunded"] == 0
    client.check(policy, "k", 3)
    answer = client.call("refund", policy, "k", 1)
    assert answer["allowed"] and answer["refunded"] == 1 and answer["remaining"] == full - 2
    answer = client.call("refund", policy, "k", 2.0**53 - 1)
    assert answer["refunded"] == 2 and answer["remaining"] == full and answer["reset_after_ms"] == 0
    assert client.check(policy, "k", 5)["allowed"]


def test_refunds_of_one_tick_follow_the_order(client):
    for method, n in (("check", 5), ("refund", 2), ("check", 1), ("check", 2), ("refund", 9), ("check", 5)):
        client.send(method, "window", "k", n)
    results = [client.recv()[3] for _ in range(6)]
    assert [r["allowed"] for r in results] == [True, True, True, False, True, True]
    assert [r["remaining"] for r in results] == [0, 2, 1, 1, 5, 0]
    assert [r.get("refunded") for r in results] == [None, 2, None, None, 4, None]


@pytest.mark.parametrize("units", [0, -1, 0.5, 2**53])
def test_invalid_units_are_refused(client, units):
    with pytest.raises(RpcError) as refused:
        client.call("refund", "window", "k", units)
    assert str(refused.value).startswith("BAD_COST")


def test_unsupported_refunds_and_options_are_errors(client):
    with pytest.raises(RpcError, match="UNSUPPORTED"):
        client.call("refund", "old", "k", 1)
    with pytest.raises(RpcError, match="BAD_REQUEST.*cost"):
        check(client, "window", "k", at_most=1, cost=1)


def test_two_daemons_share_ids_and_refunds(ratelimitd, connect, redis):
    one, other = (connect(ratelimitd(CONFIG, redis=redis)) for _ in range(2))
    for policy in SIMPLE:
        first = check(one, policy, "k", request_id="one", at_most=3)
        one.check(policy, "k")
        assert check(other, policy, "k", request_id="one", at_most=3) == first
        assert other.call("refund", policy, "k", 9)["refunded"] == 4
    with redis.client() as server:
        assert all(server.pttl(key) > 0 for key in server.keys("*"))
        assert len(server.keys("*note1:*")) == len(SIMPLE)


def test_while_the_store_is_away_ids_are_remembered_locally_and_refunds_refused(ratelimitd, connect, redis):
    client = connect(ratelimitd(CONFIG, redis=redis))
    redis.kill()
    eventually(lambda: client.check("window", "other")["source"] == "local", "the daemon to miss its store")
    first = check(client, "window", "k", request_id="one", at_most=3)
    assert first["source"] == "local" and first["granted"] == 3
    assert check(client, "window", "k", request_id="one", at_most=3) == first
    with pytest.raises(RpcError, match="STORE_UNAVAILABLE"):
        client.call("refund", "window", "k", 1)


def test_a_changed_policy_answers_with_what_was_granted(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(daemon)
    first = check(client, "window", "k", request_id="one", cost=3)
    daemon.configure(CONFIG.replace("limit: 5, window: 1d}", "limit: 2, window: 1d}", 1))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: client.call("peek", "window", "k")["limit"] == 2, "the reload")
    again = check(client, "window", "k", request_id="one", cost=3)
    assert again["allowed"] and again["remaining"] == 0 and again["limit"] == 2
    assert again["policy_version"] != first["policy_version"]


def test_a_policy_with_more_or_fewer_limits_answers_with_what_was_granted(daemon, connect):
    def reload(config, n_limits):
        daemon.configure(config)
        daemon.signal(signal.SIGHUP)
        eventually(lambda: len(client.call("explain", "several", "k")["limits"]) == n_limits, "the reload")

    client = connect(daemon)
    further = "      - {name: more, algorithm: token_bucket, limit: 4, window: 1d}\n"
    first = check(client, "several", "k", request_id="one", cost=3)
    reload(CONFIG.replace("  short:", further + "  short:"), 3)
    assert check(client, "several", "k", request_id="two", cost=2)["remaining"] == 0
    again = check(client, "several", "k", request_id="one", cost=1)
    assert again["allowed"] and (again["granted"], again["remaining"]) == (3, 0)
    reload(CONFIG, 2)
    again = check(client, "several", "k", request_id="two", cost=1)
    assert again["allowed"] and (again["granted"], again["remaining"]) == (2, 0)
    assert check(client, "several", "k", request_id="one", cost=3) == first
    assert client.call("stats")["redis_bad_values"] == 0
