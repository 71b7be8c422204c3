"""test_request_id_of_others.py: repeated requests of reserve, refund, acquire and members of check_many, and members of a
check_all whose keys share a counter."""

import pytest
from harness import RpcError

CONFIG = """
defaults: {idempotency_window: 10m, deadline: 5s}
policies:
  window: {algorithm: fixed_window, limit: 10, window: 1d}
  bucket: {algorithm: token_bucket, limit: 1, window: 1d, burst: 10}
  log: {algorithm: sliding_log, limit: 10, window: 1d}
  several:
    limits:
      - {name: few, algorithm: fixed_window, limit: 10, window: 1d}
      - {name: many, algorithm: sliding_counter, limit: 50, window: 1d}
  tenant:
    key_format: "{tenant}:{user}"
    limits:
      - {name: tenant, by: [tenant], algorithm: fixed_window, limit: 10, window: 1d}
      - {name: user, algorithm: token_bucket, limit: 6, window: 1d}
    overrides:
      - {key: "acme:vip", limit: {tenant: 100}}
      - {key: "acme:fast", limit: {user: 9}}
  heavy:
    key_format: "{tenant}:{user}"
    limits:
      - {name: all, by: [tenant], algorithm: sliding_log, limit: 5000, window: 1d}
  jobs: {algorithm: concurrency, limit: 3}
"""
SIMPLE = ("window", "bucket", "log", "several")


def pipelined(client, n, *request):
    """The answers to the same request, sent n times at once."""
    return [client.answer(sent) for sent in [client.send(*request) for _ in range(n)]]


@pytest.mark.parametrize("policy", SIMPLE)
def test_a_reserve_sent_again_is_charged_once_and_has_the_same_reservation(client, connect, daemon, policy):
    first = client.call("reserve", policy, "k", 4, {"request_id": "r", "ttl_ms": 50000})
    assert first["allowed"] and client.remaining(policy, "k") == 6
    again = connect(daemon).call("reserve", policy, "k", 4, {"request_id": "r", "ttl_ms": 50000})
    assert again == first and client.remaining(policy, "k") == 6
    other_numbers = client.call("reserve", policy, "k", 2, {"request_id": "r", "ttl_ms": 90000})
    assert other_numbers["reservation"] == first["reservation"] and client.remaining(policy, "k") == 6
    assert client.call("settle", first["reservation"], 1)["refunded"] == 3
    assert client.call("reserve", policy, "k", 4, {"request_id": "r", "ttl_ms": 50000}) == first  # although it is settled
    assert client.remaining(policy, "k") == 9
    assert client.call("settle", first["reservation"], 0)["ended"] and client.remaining(policy, "k") == 9


def test_reserves_of_one_batch_are_one(client):
    answers = pipelined(client, 5, "reserve", "bucket", "k", 3, {"request_id": "r"})
    assert len({answer["reservation"] for answer in answers}) == 1 and client.remaining("bucket", "k") == 7


def test_an_id_belongs_to_policy_key_and_method(client):
    id = {"request_id": "one"}
    assert client.call("reserve", "window", "k", 2, id)["allowed"]
    assert client.check("window", "k", {"cost": 2} | id)["remaining"] == 6
    assert client.call("refund", "window", "k", 1, id)["refunded"] == 1
    assert client.call("reserve", "window", "other", 2, id)["remaining"] == 8
    assert client.call("reserve", "bucket", "k", 2, id)["remaining"] == 8
    assert client.remaining("window", "k") == 7


def test_a_denied_reserve_is_not_remembered(client):
    client.check("window", "k", 8)
    assert not client.call("reserve", "window", "k", 5, {"request_id": "r"})["allowed"]
    client.call("refund", "window", "k", 8)
    assert client.call("reserve", "window", "k", 5, {"request_id": "r"})["allowed"]


@pytest.mark.parametrize("policy", SIMPLE)
def test_a_refund_sent_again_gives_nothing_back_twice(client, connect, daemon, policy):
    client.check(policy, "k", 8)
    first = client.call("refund", policy, "k", 3, {"request_id": "r"})
    assert first["refunded"] == 3 and client.remaining(policy, "k") == 5
    assert connect(daemon).call("refund", policy, "k", 3, {"request_id": "r"}) == first
    assert client.remaining(policy, "k") == 5
    assert client.call("refund", policy, "k", 3, {"request_id": "s"})["refunded"] == 3
    assert client.remaining(policy, "k") == 8
    answers = pipelined(client, 4, "refund", policy, "k", 1, {"request_id": "t"})
    assert all(answer == answers[0] for answer in answers) and client.remaining(policy, "k") == 9


def test_a_refund_that_found_nothing_is_remembered_too(client):
    assert client.call("refund", "window", "k", 3, {"request_id": "r"})["refunded"] == 0
    client.check("window", "k", 3)
    assert client.call("refund", "window", "k", 3, {"request_id": "r"})["refunded"] == 0
    assert client.remaining("window", "k") == 7


def test_the_refund_of_one_limit_has_ids_of_its_own(client):
    client.check("tenant", "acme:1", 5)
    id = {"request_id": "r"}
    assert client.call("refund", "tenant/tenant", "acme:1", 2, id)["refunded"] == 2
    assert client.call("refund", "tenant/user", "acme:1", 2, id)["refunded"] == 2
    assert client.call("refund", "tenant/user", "acme:1", 2, id)["refunded"] == 2
    assert client.remaining("tenant", "acme:1") == 3
    assert client.call("refund", "tenant", "acme:1", 1, {"deadline_ms": 1000} | id)["refunded"] == 1


def test_members_of_check_many_have_ids(client):
    members = [["window", "k", {"request_id": "a", "cost": 2}], ["window", "k", {"request_id": "a", "cost": 2}],
               ["window", "k", {"cost": 3}], ["window", "k", 1], ["window", "k"]]
    answers = client.call("check_many", members)
    assert [answer["remaining"] for answer in answers] == [8, 8, 5, 4, 3]
    assert client.call("check_many", members[:2]) == answers[:2]
    long = [["bucket", f"key{i}", {"request_id": "x"}] for i in range(200)]
    assert client.call("check_many", long) == client.call("check_many", long)
    assert client.remaining("bucket", "key7") == 9


@pytest.mark.parametrize("bad, words", [
    ({"deadline_ms": 5}, "checks[1]: there is no option 'deadline_ms'"),
    ({"request_id": ""}, "checks[1]: request_id: must be"),
    ({"cost": "1"}, "checks[1]: cost: must be an integer"),
])
def test_a_bad_option_of_a_member_names_it(client, bad, words):
    with pytest.raises(RpcError, match="^BAD_REQUEST: ") as error:
        client.call("check_many", [["window", "k"], ["window", "k", bad]])
    assert words in str(error.value)
    assert client.remaining("window", "k") == 10
    with pytest.raises(RpcError, match="BAD_REQUEST: checks.0.: cost: must be an integer"):
        client.call("check_all", [["window", "k", {"request_id": "a"}]])


def test_an_acquire_sent_again_on_its_connection_is_the_same_slot(client, connect, daemon):
    id = {"request_id": "a"}
    first = client.call("acquire", "jobs", "k", id)
    assert client.call("acquire", "jobs", "k", id) == first and client.remaining("jobs", "k") == 2
    assert client.call("acquire", "jobs", "other", id)["slot"] != first["slot"]
    other = connect(daemon)
    assert other.call("acquire", "jobs", "k", id)["slot"] != first["slot"] and client.remaining("jobs", "k") == 1
    assert client.call("release", first["slot"]) == {"released": True}
    second = client.call("acquire", "jobs", "k", id)
    assert second["slot"] != first["slot"] and client.remaining("jobs", "k") == 1
    client.close()


def test_a_denied_acquire_is_not_remembered(client, connect, daemon):
    other = connect(daemon)
    slots = [other.call("acquire", "jobs", "k")["slot"] for _ in range(3)]
    assert not client.call("acquire", "jobs", "k", {"request_id": "a"})["allowed"]
    other.call("release", slots[0])
    assert client.call("acquire", "jobs", "k", {"request_id": "a"})["allowed"]


def test_keys_that_share_a_counter_charge_it_once_with_their_sum(client):
    both = client.call("check_all", [["tenant", "acme:1", 3], ["tenant", "acme:2", 4]])
    assert both["allowed"]
    assert [m["remaining"] for m in both["members"]] == [3, 2]  # of each user; the tenant has 3
    assert client.remaining("tenant", "acme:3") == 3
    denied = client.call("check_all", [["tenant", "acme:3", 2], ["tenant", "acme:4", 2]])
    assert not denied["allowed"] and denied["bound_by"] == "tenant/tenant"
    assert [m["allowed"] for m in denied["members"]] == [False, False]
    fits = client.call("check_all", [["tenant", "acme:3", 1], ["tenant", "acme:4", 2], ["window", "k", 1]])
    assert fits["allowed"] and [m["remaining"] for m in fits["members"]] == [0, 0, 9]
    assert [client.remaining("tenant", f"acme:{i}") for i in (1, 5)] == [0, 0]


def test_a_sum_that_was_charged_is_remembered_as_one(client):
    wanted = [["tenant", "acme:1", 3], ["tenant", "acme:2", 4]], {"request_id": "x"}
    first = client.call("check_all", *wanted)
    assert client.call("check_all", *wanted) == first
    assert client.remaining("tenant", "acme:3") == 3


def test_an_override_of_another_limit_shares_the_counter_too(client):
    both = client.call("check_all", [["tenant", "acme:1", 3], ["tenant", "acme:fast", 7]])
    assert both["allowed"] and client.remaining("tenant", "acme:3") == 0


def test_two_numbers_for_one_counter_are_refused(client):
    with pytest.raises(RpcError, match="BAD_REQUEST: checks.1.: shares the counter of tenant/tenant with checks.0., where an"):
        client.call("check_all", [["tenant", "acme:1"], ["tenant", "acme:vip"]])
    with pytest.raises(RpcError, match="BAD_REQUEST: checks.1.: is the same policy and key as checks.0."):
        client.call("check_all", [["tenant", "acme:1"], ["tenant", "acme:1"]])


def test_a_sum_that_no_check_may_charge_is_refused(client):
    with pytest.raises(RpcError, match="BAD_COST: cost: the checks whose keys share heavy/all ask for 1200 together"):
        client.call("check_all", [["heavy", "acme:1", 600], ["heavy", "acme:2", 600]])
    assert client.call("check_all", [["heavy", "acme:1", 600], ["heavy", "acme:2", 400]])["allowed"]
    assert not client.call("check_all", [["heavy", f"acme:{i}", 1000] for i in range(6)])["allowed"]  # never fits
