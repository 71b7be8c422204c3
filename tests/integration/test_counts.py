"""test_counts.py: `counts: checks`: limits of which a check takes one, next to limits that count units, through the socket."""

import itertools

import pytest
from harness import RpcError, some

CONFIG = """
defaults: {deadline: 10s}   # a busy machine is slow
policies:
  llm:
    limits:
      - {name: requests, algorithm: fixed_window, limit: 4, window: 1d, counts: checks}
      - {name: tokens, algorithm: sliding_log, limit: 100, window: 1d}
      - {name: day, algorithm: fixed_window, limit: 1000, window: 1d}
  only: {algorithm: fixed_window, limit: 3, window: 1d, counts: checks}
  both:
    limits:
      - {name: few, algorithm: fixed_window, limit: 2, window: 1d, counts: checks}
      - {name: many, algorithm: fixed_window, limit: 9, window: 1d, counts: checks}
  owing:
    limits:
      - {name: requests, algorithm: fixed_window, limit: 5, window: 1d, counts: checks}
      - {name: tokens, algorithm: fixed_window, limit: 10, window: 1d}
    debt: true
  trial:
    algorithm: fixed_window
    limit: 100
    window: 1d
    candidate: [{name: c, algorithm: fixed_window, limit: 2, window: 1d, counts: checks}]
"""


def left(client, policy, key="k"):
    """The same without the check that explain asks for."""
    return [limit["remaining"] for limit in client.call("explain", policy, key, 0)["limits"]]


def test_a_check_takes_one_and_its_units(client):
    answer = client.call("check", "llm", "k", 30)
    assert some(answer, "allowed", "remaining", "limit") == (True, 70, 100)
    assert left(client, "llm") == [3, 70, 970]
    assert client.call("check", "llm", "k", 0)["allowed"] and left(client, "llm") == [3, 70, 970]
    denied = client.call("check", "llm", "k", 80)
    assert some(denied, "allowed", "remaining", "bound_by") == (False, 70, "llm/tokens")
    assert left(client, "llm") == [3, 70, 970]


def test_remaining_is_the_largest_cost_that_is_admitted(client):
    client.call("hello", {"describe": True})
    for n in range(4):
        before = client.call("peek", "llm", "k")
        assert some(before, "remaining", "of") == (100 - 10 * n, "llm/tokens")
        assert client.call("peek", "llm", "k", before["remaining"])["allowed"]
        assert not client.call("peek", "llm", "k", before["remaining"] + 1)["allowed"]
        client.call("check", "llm", "k", 10)
    used_up = client.call("peek", "llm", "k")
    assert some(used_up, "remaining", "limit", "of") == (0, 4, "llm/requests")
    assert client.call("check", "llm", "k")["bound_by"] == "llm/requests"


def test_without_a_limit_of_units_it_is_the_smallest_of_all(client):
    assert some(client.call("check", "both", "k", 1000), "allowed", "remaining", "limit") == (True, 1, 2)
    assert some(client.call("check", "only", "k", 1000), "allowed", "remaining", "granted") == (True, 2, None)
    assert left(client, "both") == [1, 8]


@pytest.mark.parametrize("policy, cost", [("llm", 30), ("only", 30), ("both", 30)])
def test_what_is_granted_is_the_cost_also_of_a_request_that_is_asked_again(client, policy, cost):
    client.call("hello", {"decision": "array"})
    fields = client.call("hello", {"decision": "array"})["fields"]
    first = client.call("check", policy, "k", {"cost": cost, "request_id": "r"})
    assert first[fields.index("granted")] == cost
    assert client.call("check", policy, "k", {"cost": cost, "request_id": "r"}) == first


def test_members_of_a_check_all_take_one_each(client):
    client.call("check_all", [["llm", "k", 10], ["llm", "l", 20], ["only", "k", 5]])
    assert left(client, "llm") == [3, 90, 990] and left(client, "llm", "l") == [3, 80, 980] and left(client, "only") == [2]


def test_a_settlement_concerns_units_alone(client):
    made = client.call("reserve", "llm", "k", 60)
    assert left(client, "llm") == [3, 40, 940]
    assert some(client.call("settle", made["reservation"], 10), "refunded", "remaining") == (50, 90)
    assert left(client, "llm") == [3, 90, 990]
    made = client.call("reserve", "llm", "k", 5)
    assert some(client.call("settle", made["reservation"], 25), "charged", "remaining") == (20, 65)
    assert left(client, "llm") == [2, 65, 965]


def test_a_cancelled_admission_stays_one(client):
    made = client.call("reserve", "llm", "k", 60)
    assert client.call("cancel", made["reservation"])["refunded"] == 60
    assert left(client, "llm") == [3, 100, 1000]
    again = client.call("cancel", made["reservation"])
    assert some(again, "refunded", "ended") == (0, True) and left(client, "llm") == [3, 100, 1000]


def test_a_reservation_that_ends_gives_units_back_alone(client):
    for key in map(str, itertools.count()):  # another one each time: a settlement within the millisecond uses up a check
        made = client.call("reserve", "llm", key, 60, {"ttl_ms": 1})
        if some(client.call("settle", made["reservation"], 0), "ended")[0]:
            break
    assert left(client, "llm", key) == [3, 100, 1000]


def test_debt_is_of_units_alone(client):
    made = client.call("reserve", "owing", "k", 4)
    assert client.call("settle", made["reservation"], 18)["charged"] == 14
    assert left(client, "owing") == [4, 0]


@pytest.mark.parametrize("actual, field", [(5, "refunded"), (0, "refunded")])
def test_without_a_limit_of_units_a_settlement_charges_nothing(client, actual, field):
    made = client.call("reserve", "both", "k", 7)
    settled = client.call("settle", made["reservation"], min(actual, 1))
    assert settled[field] == 0 and left(client, "both") == [1, 8]
    again = client.call("reserve", "both", "k", 7, {"request_id": "r"})
    assert client.call("reserve", "both", "k", 7, {"request_id": "r"})["reservation"] == again["reservation"]
    assert client.call("settle", again["reservation"], 100)["charged"] == 0


def test_a_reservation_asked_again_is_the_same_one(client):
    made = client.call("reserve", "llm", "k", 60, {"request_id": "r"})
    assert client.call("reserve", "llm", "k", 60, {"request_id": "r"}) == made
    assert client.call("settle", made["reservation"], 10)["refunded"] == 50


def test_a_refund_of_the_policy_is_of_units_and_one_of_the_limit_of_its_own(client):
    for _ in range(2):
        client.call("check", "llm", "k", 20)
    assert client.call("refund", "llm", "k", 15)["refunded"] == 15 and left(client, "llm") == [2, 75, 975]
    assert client.call("refund", "llm/requests", "k", 2)["refunded"] == 2 and left(client, "llm") == [4, 75, 975]
    client.call("check", "only", "k", 20)
    assert client.call("refund", "only", "k", 9)["refunded"] == 1 and left(client, "only") == [3]
    client.call("check", "both", "k", 20)
    assert client.call("refund", "both", "k", 9)["refunded"] == 0 and left(client, "both") == [1, 8]


def test_at_most_is_not_for_a_limit_that_counts_checks(client):
    for policy in ("llm", "only"):
        with pytest.raises(RpcError) as error:
            client.call("check", policy, "k", {"at_most": 5})
        assert error.value.code == "UNSUPPORTED" and "counts: checks" in error.value.message
    assert left(client, "llm") == [4, 100, 1000] and left(client, "only") == [3]


def test_a_candidate_that_counts_checks_takes_one_and_skips_at_most(client):
    for _ in range(3):
        client.call("check", "trial", "k", 10)
    client.call("check", "trial", "k", {"at_most": 5})
    shown, = [policy for policy in client.call("policies") if policy["name"] == "trial"]
    assert some(shown, "candidate_allowed", "candidate_denied") == (2, 1)
    assert client.call("stats")["candidate_skipped"] == 1


def test_policies_and_explain_show_it(client):
    shown = {policy["name"]: policy["limits"] for policy in client.call("policies")}
    assert [limit.get("counts") for limit in shown["llm"]] == ["checks", None, None]
    why = client.call("explain", "llm", "k", 30)
    assert [limit.get("counts") for limit in why["limits"]] == ["checks", None, None]
    assert "100 of 100 units are free and this check needs 30" in why["why"]
    for _ in range(4):
        client.call("check", "llm", "k", 1)
    assert "0 of 4 checks are free and this check needs 1" in client.call("explain", "llm", "k", 30)["why"]


def test_without_redis_the_local_table_counts_checks(ratelimitd, start_redis, connect):
    server = start_redis()
    client = connect(ratelimitd(CONFIG.replace("deadline: 10s", "deadline: 10s, on_failure: local"), redis=server))
    server.stop()
    while client.call("check", "llm", "k", 0)["source"] != "local":
        pass
    made = client.call("reserve", "llm", "k", 60)
    assert some(made, "source", "remaining") == ("local", 40)
    assert some(client.call("settle", made["reservation"], 10), "refunded", "remaining") == (50, 90)
    assert left(client, "llm") == [3, 90, 990]
