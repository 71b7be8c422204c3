"""test_admission.py: reserve of a policy with slots: a request, its units and a slot are one admission, through the socket."""

import pytest
from harness import RpcError, eventually, some

CONFIG = """
defaults: {deadline: 10s}   # a busy machine is slow
policies:
  llm:
    limits:
      - {name: requests, algorithm: fixed_window, limit: 60, window: 1d, counts: checks}
      - {name: minute, algorithm: fixed_window, limit: 1000, window: 1d}
      - {name: day, algorithm: token_bucket, limit: 2000, window: 30d, burst: 2000}
      - {name: at-once, algorithm: concurrency, limit: 2, slot_ttl: 1s}
    debt: true
  slots: {algorithm: concurrency, limit: 1, slot_ttl: 30s}
  shaped:
    limits:
      - {name: rate, algorithm: leaky_bucket, limit: 5, window: 10s, max_wait: 1s}
      - {name: at-once, algorithm: concurrency, limit: 2}
  shadow:
    limits:
      - {name: minute, algorithm: fixed_window, limit: 10, window: 1d}
      - {name: at-once, algorithm: concurrency, limit: 1}
    shadow: true
"""
START_US = 3600 * 10**6 * 1000


def left(client, policy="llm", key="k"):
    """What each limit has left, by itself."""
    return [limit["remaining"] for limit in client.call("explain", policy, key, 0)["limits"]]


def slots(client):
    """Held now, lost, and ended with their reservations."""
    return some(client.call("stats"), "slots", "slots_lost", "slots_settled")


def test_one_call_takes_a_request_its_units_and_a_slot(client):
    client.call("hello", {"describe": True})
    made = client.call("reserve", "llm", "k", 300)
    assert some(made, "allowed", "remaining", "of", "slot") == (True, 700, "llm/minute", None)
    assert left(client) == [59, 700, 1700, 1] and slots(client) == (1, 0, 0)
    settled = client.call("settle", made["reservation"], 100)
    assert some(settled, "refunded", "remaining") == (200, 900)
    assert left(client) == [59, 900, 1900, 2] and slots(client) == (0, 0, 1)


def test_an_answer_that_costs_more_than_the_estimate_is_charged(client):
    made = client.call("reserve", "llm", "k", 300)
    assert client.call("settle", made["reservation"], 1500)["charged"] == 1200
    assert left(client) == [59, 0, 500, 2]
    denied = client.call("reserve", "llm", "k", 1)
    assert some(denied, "allowed", "bound_by") == (False, "llm/minute")
    assert left(client) == [59, 0, 500, 2] and slots(client)[0] == 0


def test_without_a_slot_nothing_is_charged_and_without_units_no_slot_is_taken(client):
    held = [client.call("reserve", "llm", "k", 10)["reservation"] for _ in range(2)]
    denied = client.call("reserve", "llm", "k", 10)
    assert some(denied, "allowed", "bound_by", "remaining", "reservation") == (False, "llm/at-once", 0, None)
    assert left(client) == [58, 980, 1980, 0] and slots(client)[0] == 2
    client.call("cancel", held[0])
    denied = client.call("reserve", "llm", "k", 991)
    assert some(denied, "allowed", "bound_by", "remaining", "reservation") == (False, "llm/minute", 990, None)
    assert left(client) == [58, 990, 1990, 1] and slots(client)[0] == 1


def test_an_estimate_of_0_takes_no_slot(client):
    made = client.call("reserve", "llm", "k", 0)
    assert left(client) == [60, 1000, 2000, 2] and slots(client)[0] == 0
    assert client.call("settle", made["reservation"], 7)["charged"] == 7
    assert left(client) == [60, 993, 1993, 2]


def test_a_cancelled_admission_stays_one_and_frees_its_slot(client):
    made = client.call("reserve", "llm", "k", 300)
    assert client.call("cancel", made["reservation"])["refunded"] == 300
    assert left(client) == [59, 1000, 2000, 2]


def test_a_second_settlement_frees_no_other_slot(client):
    first, second = (client.call("reserve", "llm", "k", 10)["reservation"] for _ in range(2))
    client.call("settle", first, 10)
    assert some(client.call("settle", first, 500), "charged", "ended") == (0, True)
    assert left(client) == [58, 980, 1980, 1]
    client.call("settle", second, 10)
    assert left(client) == [58, 980, 1980, 2] and slots(client) == (0, 0, 2)


def test_another_connection_settles_it(client, daemon, connect):
    made = client.call("reserve", "llm", "k", 300)
    assert connect(daemon).call("settle", made["reservation"], 100)["refunded"] == 200
    assert left(client) == [59, 900, 1900, 2] and slots(client) == (0, 0, 1)


def test_the_slot_ends_with_its_connection_and_the_units_with_the_settlement(client, daemon, connect):
    other = connect(daemon)
    made = other.call("reserve", "llm", "k", 300)
    other.close()
    eventually(lambda: left(client) == [59, 700, 1700, 2], "the slot ends with its connection")
    assert client.call("settle", made["reservation"], 100)["refunded"] == 200
    assert left(client) == [59, 900, 1900, 2]


def test_units_and_slot_end_with_the_reservation(client):
    client.call("reserve", "llm", "k", 300, {"ttl_ms": 1})
    eventually(lambda: left(client) == [59, 1000, 2000, 2] and slots(client) == (0, 0, 1), "both end with the reservation")


def test_what_is_settled_late_is_charged_and_takes_no_slot(client):
    made = client.call("reserve", "llm", "k", 300, {"ttl_ms": 1})
    eventually(lambda: left(client) == [59, 1000, 2000, 2], "both end with the reservation")
    assert some(client.call("settle", made["reservation"], 100), "charged", "ended") == (100, True)
    assert left(client) == [59, 900, 1900, 2]


def test_an_abandoned_reserve_gives_both_back(client):
    msgid = client.send("reserve", "llm", "k", 300)
    assert client.answer(msgid)["allowed"]
    client.notify("abandon", msgid)
    eventually(lambda: left(client) == [59, 1000, 2000, 2] and slots(client)[0] == 0, "both are given back")


def test_a_reset_frees_the_slot_and_none_is_lost(client):
    client.call("reserve", "llm", "k", 300)
    assert client.call("reset", "llm", "k") == {"removed": True}
    assert left(client) == [60, 1000, 2000, 2]
    eventually(lambda: slots(client) == (0, 0, 1), "a renewal finds the slot gone")


def test_a_policy_of_slots_alone_can_reserve(client):
    made = client.call("reserve", "slots", "k", 50)
    assert some(made, "allowed", "remaining") == (True, 0) and not client.call("reserve", "slots", "k", 1)["allowed"]
    assert client.call("settle", made["reservation"], 70)["charged"] == 0 and left(client, "slots") == [1]
    with pytest.raises(RpcError, match="UNSUPPORTED"):
        client.call("refund", "slots", "k", 1)


def test_acquire_and_reserve_share_the_slots(client):
    taken = client.call("acquire", "llm", "k")
    assert some(taken, "allowed", "remaining", "limit") == (True, 1, 2)
    assert client.call("reserve", "llm", "k", 10)["allowed"]
    assert client.call("acquire", "llm", "k")["bound_by"] == "llm/at-once"
    assert client.call("release", taken["slot"]) == {"released": True}
    assert left(client) == [58, 989, 1989, 1]


def test_release_does_not_know_the_slot_of_a_reservation(client):
    import base64
    token = client.call("reserve", "llm", "k", 10)["reservation"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    name = f"{int.from_bytes(raw[3:11], 'little'):016x}" * 2
    assert client.call("release", name) == {"released": False} and slots(client)[0] == 1


def test_a_refund_is_of_units_alone(client):
    client.call("reserve", "llm", "k", 300)
    assert client.call("refund", "llm", "k", 100)["refunded"] == 100 and left(client) == [59, 800, 1800, 1]
    with pytest.raises(RpcError, match="UNSUPPORTED"):
        client.call("refund", "llm/at-once", "k", 1)


@pytest.mark.parametrize("params, code, words", [
    (["reserve", "llm", "k", 5, {"request_id": "r"}], "UNSUPPORTED", "request_id"),
    (["reserve", "slots", "k", 0, {"request_id": "r"}], "UNSUPPORTED", "request_id"),
    (["reserve", "shaped", "k", 5], "UNSUPPORTED", "max_wait"),
    (["check", "llm", "k", 5], "UNSUPPORTED", "use acquire or reserve"),
    (["check_many", [["llm", "k", 5]]], "UNSUPPORTED", "use acquire or reserve"),
    (["check_all", [["llm", "k", 5]]], "UNSUPPORTED", "use acquire or reserve"),
    (["reserve", "llm", "k", -1], "BAD_COST", "estimate"),
])
def test_what_is_wrong_is_named_and_takes_nothing(client, params, code, words):
    with pytest.raises(RpcError) as error:
        client.call(*params)
    assert error.value.code == code and words in error.value.message
    assert left(client) == [60, 1000, 2000, 2] and left(client, "slots") == [1] and slots(client) == (0, 0, 0)


def test_a_connection_holds_as_many_slots_as_one_may(ratelimitd, connect):
    client = connect(ratelimitd("caps: {max_slots_per_connection: 1}\n" + CONFIG))
    made = client.call("reserve", "llm", "k", 5)
    with pytest.raises(RpcError) as error:
        client.call("reserve", "llm", "l", 5)
    assert error.value.code == "OVERLOADED" and "max_slots_per_connection" in error.value.message
    assert left(client, key="l") == [60, 1000, 2000, 2]
    client.call("settle", made["reservation"], 5)
    assert client.call("reserve", "llm", "l", 5)["allowed"]


def test_a_policy_in_shadow_holds_nothing_that_it_would_have_denied(client):
    first = client.call("reserve", "shadow", "k", 5)
    second = client.call("reserve", "shadow", "k", 5)
    assert some(second, "allowed", "shadow_denied") == (True, True) and slots(client)[0] == 1
    assert client.call("settle", second["reservation"], 5)["ended"]
    client.call("settle", first["reservation"], 5)
    assert left(client, "shadow") == [5, 1]


def test_any_daemon_settles_and_the_first_one_notices_in_silence(ratelimitd, redis, connect):
    one, other = (connect(ratelimitd(CONFIG, redis=redis)) for _ in range(2))
    made = one.call("reserve", "llm", "k", 300)
    assert other.call("settle", made["reservation"], 100)["refunded"] == 200
    assert left(other) == [59, 900, 1900, 2]
    eventually(lambda: slots(one) == (0, 0, 1), "a renewal finds the slot gone")


def test_the_slot_of_a_killed_daemon_ends_with_its_lease_and_its_units_are_settled_all_the_same(ratelimitd, redis, connect):
    killed, other = ratelimitd(CONFIG, redis=redis), connect(ratelimitd(CONFIG, redis=redis))
    made = connect(killed).call("reserve", "llm", "k", 300)
    killed.kill()
    eventually(lambda: left(other) == [59, 700, 1700, 2], "the lease of the killed daemon ends")
    assert other.call("settle", made["reservation"], 100)["refunded"] == 200
    assert left(other) == [59, 900, 1900, 2]


@pytest.mark.parametrize("answer, held", [("local", 1), ("allow", 0)])
def test_without_redis_local_takes_both_and_allow_neither(ratelimitd, start_redis, connect, answer, held):
    server = start_redis()
    client = connect(ratelimitd(CONFIG.replace("deadline: 10s", f"deadline: 10s, on_failure: {answer}"), redis=server))
    server.stop()
    eventually(lambda: client.call("reserve", "llm", "j", 0)["source"] == answer, "the daemon notices that Redis is away")
    made = client.call("reserve", "llm", "k", 300)
    assert made["allowed"] and slots(client)[0] == held
    if answer == "local":
        assert left(client) == [59, 700, 1700, 1]
    settled = client.call("settle", made["reservation"], 100)
    assert settled["source"] == answer and slots(client)[0] == 0
    if answer == "local":
        assert left(client) == [59, 900, 1900, 2]


def test_by_the_clock_of_a_test_a_slot_counts_until_its_reservation_ends(ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, arguments=["--test-clock"]))
    client.call("test_clock", START_US)
    client.call("reserve", "llm", "k", 300, {"ttl_ms": 60_000})
    client.call("test_clock", START_US + 59_999_000)
    assert left(client)[3] == 1
    client.call("test_clock", START_US + 60_000_000)
    assert left(client)[3] == 2
    client.call("test_clock", START_US + 60_001_000)
    assert slots(client) == (0, 0, 1)
