"""test_keys.py: limits that count by parts of the key, overrides, and unlimited keys, through the socket on both stores."""

import signal

import pytest
from harness import RpcError, eventually, shard, some, stored_keys

CONFIG = """
defaults: {deadline: 5s}
policies:
  plain: {algorithm: fixed_window, limit: 5, window: 1d}
  free: {unlimited: true}
  tenant-api:
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: token_bucket, limit: 3, window: 30d}
      - {name: tenant, by: [tenant], algorithm: sliding_counter, limit: 5, window: 1d}
  everybody:
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: fixed_window, limit: 3, window: 1d}
      - {name: all, by: [], algorithm: fixed_window, limit: 100, window: 1d}
  regional:
    key_format: "{region}/{tenant}/{user}"
    limits:
      - {name: member, by: [region, user], algorithm: sliding_log, limit: 2, window: 1d}
      - {name: place, by: [user, region, tenant], algorithm: fixed_window, limit: 9, window: 1d}
  tenant: {key_format: "t-{tenant}:{user}", by: [tenant], algorithm: fixed_window, limit: 4, window: 1d}
  shared:
    key_format: "{tenant}:{user}"
    by: [tenant]
    algorithm: sliding_counter
    limit: 5
    window: 1d
    overrides: [{match: "*:admin", limit: 8}, {match: "*:banned", limit: 0}, {match: "*:free", unlimited: true}]
  search:
    limits:
      - {name: second, algorithm: token_bucket, limit: 2, window: 20d}
      - {name: day, algorithm: fixed_window, limit: 50, window: 1d}
    overrides:
      - {key: "user:42", limit: {second: 9}}
      - {match: "partner:*", unlimited: true}
      - {match: "partner:slow:*", limit: {second: 1, day: 1}}
      - {match: "bad:*", limit: {second: 0}}
  old: {compat: first-hit, limit: 2, window: 100s, overrides: [{key: vip, limit: 4}]}
  tried:
    key_format: "{region}/{tenant}/{user}"
    limits:
      - {name: member, by: [region, user], algorithm: sliding_log, limit: 3, window: 1d}
      - {name: slots, by: [tenant], algorithm: fixed_window, limit: 9, window: 1d}
    candidate:
      - {name: member, by: [region, user], algorithm: fixed_window, limit: 2, window: 1d}
      - {name: far, by: [region, user], algorithm: token_bucket, limit: 2, window: 10d}
  working:
    key_format: "{tenant}:{user}"
    limits:
      - {name: slots, by: [tenant], algorithm: concurrency, limit: 2, slot_ttl: 1h}
      - {name: day, by: [tenant], algorithm: fixed_window, limit: 9, window: 1d}
"""
MOST = 2**53 - 1


@pytest.fixture
def client(any_store, ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, redis=any_store))
    wanted = "memory" if any_store is None else "redis"
    eventually(lambda: client.check("plain", "probe", 0)["source"] == wanted, "the store is there")
    return client


def refused(client, *call):
    with pytest.raises(RpcError) as error:
        client.call(*call)
    return error.value


# Parts of the key


def test_keys_that_share_a_part_share_the_limit(client):
    assert client.check("tenant-api", "acme:1", 3)["allowed"]
    denied = client.check("tenant-api", "acme:1")
    assert some(denied, "allowed", "bound_by") == (False, "tenant-api/user")
    assert client.check("tenant-api", "acme:2", 2)["allowed"]
    denied = client.check("tenant-api", "acme:3")
    assert some(denied, "allowed", "bound_by", "limit", "remaining") == (False, "tenant-api/tenant", 5, 0)
    assert client.check("tenant-api", "other:1")["remaining"] == 2
    assert client.remaining("tenant-api", "acme:3") == 0


def test_a_policy_of_one_limit_counts_by_a_part(client):
    assert client.check("tenant", "t-acme:1", 3)["remaining"] == 1
    assert client.check("tenant", "t-acme:2")["remaining"] == 0
    assert some(client.check("tenant", "t-acme:3"), "allowed", "bound_by") == (False, None)
    assert client.check("tenant", "t-acm:e:1")["allowed"]


def test_all_keys_may_share_one_counter(client):
    for i in range(33):
        assert client.check("everybody", f"t{i}:u", 3)["allowed"]
    assert some(client.check("everybody", "a:b", 2), "allowed", "bound_by") == (False, "everybody/all")
    assert client.check("everybody", "a:b", 1)["allowed"]


def test_parts_that_do_not_stand_side_by_side_are_joined(client):
    assert client.check("regional", "eu/acme/1")["remaining"] == 1
    assert client.check("regional", "eu/other/1")["remaining"] == 0
    assert client.check("regional", "eu/third/1")["bound_by"] == "regional/member"
    assert client.check("regional", "us/acme/1")["remaining"] == 1
    long = client.check("regional", "eu/" + "t" * 500 + "/" + "u" * 500)
    assert long["remaining"] == 1
    assert client.check("regional", "eu/x/" + "u" * 500)["remaining"] == 0


@pytest.mark.parametrize("policy, key", [
    ("tenant-api", "acme"), ("tenant-api", "acme:"), ("tenant-api", ":1"), ("tenant-api", b"\xff\x00"),
    ("tenant", "acme:1"), ("tenant", "t-:1"), ("tenant", "t-a"), ("regional", "a/b"), ("regional", "a//b"),
])
def test_a_key_that_does_not_fit_is_refused(client, policy, key):
    for method in ("check", "peek", "reset"):
        error = refused(client, method, policy, key)
        assert error.code == "BAD_KEY" and "key_format" in error.message
    error = refused(client, "check_many", [[policy, "t-a:b/c/d"], [policy, key]])
    assert error.code == "BAD_KEY" and "checks[" in error.message
    assert client.call("stats")["inflight"] == 0


def test_a_key_splits_at_the_first_literal_and_the_last_part_takes_the_rest(client):
    assert client.check("tenant-api", b"a\xff:b:c:")["allowed"]
    assert client.check("tenant-api", b"a\xff:b:c", 3)["allowed"]
    assert client.check("tenant-api", b"a\xff:x", 2)["bound_by"] == "tenant-api/tenant"


def test_reset_removes_only_what_belongs_to_the_whole_key(client):
    client.check("tenant-api", "acme:1", 3)
    assert client.call("reset", "tenant-api", "acme:1") == {"removed": True}
    assert client.call("reset", "tenant-api", "acme:1") == {"removed": False}
    assert some(client.check("tenant-api", "acme:1", 3), "allowed", "bound_by") == (False, "tenant-api/tenant")
    assert client.check("tenant-api", "acme:1", 2)["allowed"]
    client.check("tenant", "t-a:b", 3)
    assert client.call("reset", "tenant", "t-a:b") == {"removed": False}
    assert client.remaining("tenant", "t-a:b") == 1
    client.check("regional", "eu/acme/1")
    assert client.call("reset", "regional", "eu/acme/1") == {"removed": True}
    assert client.remaining("regional", "eu/acme/1") == 1


def test_check_many_shares_the_counter_exactly(client):
    answers = client.call("check_many", [["tenant-api", f"acme:{i}", 2] for i in range(4)])
    assert [a["allowed"] for a in answers] == [True, True, False, False]
    assert [a["remaining"] for a in answers] == [1, 1, 1, 1]
    asked = [client.send("check", "tenant-api", f"more:{i % 7}") for i in range(50)]
    assert sum(client.answer(one)["allowed"] for one in asked) == 5


def test_check_all_takes_keys_that_share_a_counter_and_keys_that_do_not(client):
    """Earlier, two keys that share a counter were refused; test_request_id_of_others.py tests them."""
    together = client.call("check_all", [["plain", "x"], ["tenant-api", "sum:1", 2], ["tenant-api", "sum:2", 1]])
    assert together["allowed"] and client.remaining("tenant-api", "sum:3") == 2
    answer = client.call("check_all", [["tenant-api", "acme:1", 2], ["tenant-api", "other:1", 2], ["everybody", "acme:1"]])
    assert answer["allowed"] and len(answer["members"]) == 3
    answer = client.call("check_all", [["tenant-api", "acme:2", 3], ["tenant-api", "other:2", 4]])
    assert some(answer, "allowed", "bound_by") == (False, "tenant-api/user")
    assert client.remaining("tenant-api", "acme:2") == 3


# One limit's counter, as `policy/limit`


def test_a_shared_counter_that_denies_a_whole_tenant_can_be_reset(client):
    """Earlier, `reset POLICY KEY` returned `removed: false`, and the tenant stayed denied."""
    client.check("tenant-api", "acme:1", 3)
    client.check("tenant-api", "acme:2", 2)
    client.check("tenant-api", "other:1", 2)
    bound_by = client.check("tenant-api", "acme:3")["bound_by"]
    assert bound_by == "tenant-api/tenant"
    assert client.call("reset", "tenant-api", "acme:anyone") == {"removed": False}
    assert client.call("reset", bound_by, "acme:anyone") == {"removed": True}
    assert client.call("reset", bound_by, "acme:anyone") == {"removed": False}
    assert client.check("tenant-api", "acme:3", 3)["remaining"] == 0  # all units are available again, for the other keys too
    assert client.check("tenant-api", "acme:2", 1)["remaining"] == 0
    assert client.check("tenant-api", "acme:1")["bound_by"] == "tenant-api/user"  # which did not change
    assert client.remaining("tenant-api", "other:2") == 3


def test_a_limit_of_the_whole_key_can_be_reset_alone(client):
    client.check("search", "k", 2)
    assert client.call("reset", "search/second", "k") == {"removed": True}
    answer = client.call("explain", "search", "k")
    assert [limit["remaining"] for limit in answer["limits"]] == [1, 47]
    assert client.call("reset", "search/day", "k") == {"removed": True}
    assert client.call("explain", "search", "k")["limits"][1]["remaining"] == 49


def test_the_one_limit_of_a_policy_that_has_no_name_is_reset_by_an_empty_one(client):
    client.check("tenant", "t-acme:1", 4)
    assert client.call("reset", "tenant/", "t-acme:anyone") == {"removed": True}
    assert client.check("tenant", "t-acme:2", 4)["allowed"]
    assert client.call("refund", "tenant/", "t-acme:anyone", 9)["refunded"] == 4


def test_a_shared_counter_is_reset_and_refunded_by_any_key_that_has_the_parts(client):
    """Even by a key whose override charges it nothing."""
    for key in ("acme:1", "acme:admin", "acme:banned", "acme:free"):
        client.check("shared", "acme:1", 5)
        assert client.call("refund", "shared/", key, 2)["refunded"] == 2
        assert client.remaining("shared", "acme:1") == 2
        assert client.call("reset", "shared/", key) == {"removed": True}
        assert client.remaining("shared", "acme:1") == 5
    assert client.call("reset", "search/second", "partner:x") == {"removed": False}
    assert client.call("reset", "search/second", "bad:1") == {"removed": False}
    assert client.call("refund", "search/second", "partner:x", 1)["refunded"] == 0


def test_a_refund_gives_back_to_one_limit_alone(client):
    client.check("tenant-api", "acme:1", 3)
    client.check("tenant-api", "acme:2", 2)
    answer = client.call("refund", "tenant-api/tenant", "acme:anyone", 4)
    assert some(answer, "allowed", "refunded", "limit", "remaining", "bound_by") == (True, 4, 5, 4, None)
    assert client.call("refund", "tenant-api/tenant", "acme:anyone", 4)["refunded"] == 1
    assert client.check("tenant-api", "acme:1")["bound_by"] == "tenant-api/user"
    assert client.check("tenant-api", "acme:2")["remaining"] == 0
    assert client.call("refund", "tenant-api/user", "acme:1", 1)["refunded"] == 1
    assert client.check("tenant-api", "acme:1")["allowed"]


def test_a_refund_of_one_limit_leaves_reservations_to_all_of_them(client):
    """Those that have ended go back to every limit: it must not take them from the others."""
    held = client.call("reserve", "tenant-api", "acme:1", 2)["reservation"]
    client.call("reserve", "tenant-api", "acme:1", 1, {"ttl_ms": 1})
    eventually(lambda: client.remaining("tenant-api", "acme:1") == 1, "the second one has ended")
    assert client.call("refund", "tenant-api/tenant", "acme:1", 1)["refunded"] == 1
    answer = client.call("explain", "tenant-api", "acme:1")
    assert [limit["remaining"] for limit in answer["limits"]] == [0, 3]
    assert client.call("settle", held, 0)["refunded"] == 2
    answer = client.call("explain", "tenant-api", "acme:1", 0)
    assert [limit["remaining"] for limit in answer["limits"]] == [3, 5]


def test_a_candidate_keeps_its_counters_where_one_limit_is_reset(client):
    long = "eu/" + "t" * 300 + "/" + "u" * 300
    for _ in range(2):
        client.check("tried", long)
    eventually(lambda: not client.call("explain", "tried", long)["candidate"]["allowed"], "the candidate is charged")
    assert client.call("reset", "tried/member", long) == {"removed": True}
    answer = client.call("explain", "tried", long, 0)
    assert [limit["remaining"] for limit in answer["limits"]] == [3, 7]
    assert [limit["remaining"] for limit in answer["candidate"]["limits"]] == [0, 0]
    assert client.call("refund", "tried/slots", long, 1)["remaining"] == 8
    assert refused(client, "reset", "tried/far", long).code == "UNKNOWN_POLICY"


def test_slots_can_be_reset_by_their_limit_and_not_refunded(client):
    for i in range(2):
        assert client.call("acquire", "working", f"acme:{i}")["allowed"]
    assert client.call("acquire", "working", "acme:3")["bound_by"] == "working/slots"
    assert refused(client, "refund", "working/slots", "acme:1", 1).code == "UNSUPPORTED"
    assert client.call("refund", "working/day", "acme:1", 1)["remaining"] == 8
    assert client.call("reset", "working/slots", "acme:anyone") == {"removed": True}
    assert client.call("acquire", "working", "acme:3")["allowed"]


def test_a_limit_that_does_not_exist_is_an_unknown_policy(client):
    for method, units in (("reset", ()), ("refund", (1,))):
        error = refused(client, method, "tenant-api/tenan", "acme:1", *units)
        assert error.code == "UNKNOWN_POLICY" and "did you mean 'tenant-api/tenant'" in error.message
        error = refused(client, method, "search/minutely", "k", *units)
        assert error.code == "UNKNOWN_POLICY" and "no limit 'minutely'" in error.message
        for name in ("search/", "plain/plain", "free/", "nowhere/tenant", "/", "/tenant", "search/second/", "free/x"):
            assert refused(client, method, name, "k", *units).code == "UNKNOWN_POLICY"
        assert refused(client, method, "tenant-api/tenant", "acme", *units).code == "BAD_KEY"
    for method in ("check", "peek", "explain"):
        assert refused(client, method, "tenant-api/tenant", "acme:1").code == "UNKNOWN_POLICY"


# Overrides


def test_the_most_specific_override_counts(client):
    assert client.check("search", "user:42")["limit"] == 9
    assert client.check("search", "user:43")["limit"] == 2
    assert client.check("search", "partner:x", 10**9)["source"] == "unlimited"
    assert some(client.check("search", "partner:slow:x"), "allowed", "limit") == (True, 1)
    assert some(client.check("search", "partner:slow:x"), "allowed", "bound_by") == (False, "search/second")
    assert some(client.check("search", "bad:1"), "allowed", "retry_after_ms", "bound_by") == (
        False, -1, "search/second")
    versions = {client.check("search", key)["policy_version"] for key in ("user:42", "k", "partner:x", "bad:1")}
    assert len(versions) == 1


def test_an_override_holds_in_every_kind_of_question(client):
    assert client.call("peek", "search", "user:42", 9)["remaining"] == 0
    assert [a["limit"] for a in client.call("check_many", [["search", "user:42"], ["search", "a"]])] == [9, 2]
    answer = client.call("check_all", [["search", "user:42", 8], ["search", "b", 2]])
    assert [m["remaining"] for m in answer["members"]] == [0, 0]
    assert client.call("reset", "search", "user:42") == {"removed": True}
    assert client.check("search", "user:42", 9)["allowed"]
    assert some(client.check("search", "user:42", 10), "allowed", "retry_after_ms") == (False, -1)


def test_keys_with_other_numbers_charge_one_shared_counter(client):
    asked = [client.send("check", "shared", f"acme:{user}") for user in ("1", "admin", "2", "banned", "free") * 4]
    answers = [client.answer(one) for one in asked]
    assert [a["limit"] for a in answers[:4]] == [5, 8, 5, 0]
    by_user = [[a["allowed"] for a in answers[i::5]] for i in range(5)]
    assert by_user == [[True, True, False, False], [True] * 4, [True, False, False, False], [False] * 4, [True] * 4]
    assert client.remaining("shared", "acme:admin") == 1
    assert client.remaining("shared", "acme:1") == 0
    answer = refused(client, "check_all", [["shared", "acme:admin"], ["shared", "acme:1"]])
    assert "checks[0]" in answer.message and "shared" in answer.message
    assert not client.call("check_all", [["shared", "acme:admin", 2], ["plain", "k"]])["allowed"]
    assert client.call("check_all", [["shared", "acme:admin", 1], ["plain", "k"]])["allowed"]


def test_each_of_thousands_of_patterns_counts_for_its_keys(ratelimitd, connect):
    forms = {"partner-{}:*": "partner-{}:x", "*:user-{}": "acme:user-{}", "t:*:{}:*:read": "t:1:{}:2:read", "*<{}>*": "a<{}>b"}
    patterns = [form.format(1000 + i) for form in forms for i in range(1000)]
    lines = "".join(f'      - {{match: "{pattern}", limit: {2 + i}}}\n' for i, pattern in enumerate(patterns))
    client = connect(ratelimitd(f"""
defaults: {{deadline: 5s}}
policies:
  p:
    algorithm: fixed_window
    limit: 1
    window: 1d
    overrides:
{lines}      - {{match: "partner-1007:*:vip", limit: 5001}}
      - {{match: "*", limit: 5002}}
"""))
    for form, key in enumerate(forms.values()):
        limits = {i: client.check("p", key.format(1000 + i), 0)["limit"] for i in range(0, 1000, 111)}
        assert limits == {i: 2 + 1000 * form + i for i in limits}
    assert client.check("p", "partner-1007:x:vip", 0)["limit"] == 5001
    assert client.check("p", "partner-99:x", 0)["limit"] == 5002


def test_a_compat_policys_numbers_can_be_overridden(client):
    assert [client.check("old", "vip")["remaining"] for _ in range(4)] == [3, 2, 1, 0]
    assert [client.check("old", "k")["allowed"] for _ in range(3)] == [True, True, False]


# Unlimited


def test_what_is_unlimited_is_allowed_at_once(client):
    answer = client.check("free", "k", 7)
    answer.pop("policy_version")
    assert answer == {"allowed": True, "limit": MOST, "remaining": MOST, "retry_after_ms": 0, "reset_after_ms": 0,
                      "source": "unlimited"}
    assert client.check("free", "k", MOST)["allowed"]
    assert client.call("peek", "free", "k", 3)["source"] == "unlimited"
    assert client.call("reset", "free", "k") == {"removed": False}
    assert client.call("reset", "search", "partner:x") == {"removed": False}
    assert refused(client, "check", "free", "k", 2**53).code == "BAD_COST"
    stats = client.call("stats")
    assert stats["checks"] - stats["allowed"] in (0, 1) and stats["decided_unlimited"] >= 2


def test_an_unlimited_member_of_a_check_all_never_denies(client):
    answer = client.call("check_all", [["free", "k", 2], ["plain", "a", 4]])
    assert some(answer, "allowed", "limit", "remaining", "granted") == (True, 5, 1, None)
    assert [m["source"] == "unlimited" for m in answer["members"]] == [True, False]
    answer = client.call("check_all", [["free", "k", 2], ["plain", "a", 4]])
    assert some(answer, "allowed", "bound_by") == (False, "plain")
    assert some(answer["members"][0], "allowed", "granted", "remaining") == (True, 0, MOST)
    assert answer["source"] == answer["members"][1]["source"] != "unlimited"
    answer = client.call("check_all", [["free", "k"], ["search", "partner:1", 2]])
    assert some(answer, "allowed", "source", "remaining") == (True, "unlimited", MOST)
    answer = client.call("check_all", [["free", "k"], ["search", "bad:1"]])
    assert some(answer, "allowed", "bound_by", "retry_after_ms") == (False, "search/second", -1)
    assert answer["members"][0]["source"] == "unlimited"


def test_seventeen_unlimited_members_of_a_check_all_are_as_many_as_seventeen_others(client):
    """Earlier they were not counted, and overran the buffer for the members of one answer."""
    answer = client.call("check_all", [["free", f"k{i}"] for i in range(16)])
    assert some(answer, "allowed", "source") == (True, "unlimited") and len(answer["members"]) == 16
    error = refused(client, "check_all", [["free", f"k{i}"] for i in range(17)])
    assert error.code == "BAD_REQUEST" and "checks[16]" in error.message
    error = refused(client, "check_all", [["free", f"k{i}"] for i in range(15)] + [["search", "partner:1"], ["plain", "k"]])
    assert error.code == "BAD_REQUEST" and "checks[16]" in error.message
    assert client.remaining("plain", "k") == client.remaining("plain", "fresh")


def test_a_policy_in_a_request_has_them_too(any_store, ratelimitd, connect):
    client = connect(ratelimitd("inline: {allow: true}\ndefaults: {deadline: 5s}\n", redis=any_store))
    policy = {"key_format": "{tenant}:{user}", "by": ["tenant"], "algorithm": "fixed_window", "limit": 3, "window": "1d",
              "overrides": [{"match": "*:free", "unlimited": True}, {"key": "a:x", "limit": 5}]}
    assert [client.check(policy, key)["allowed"] for key in ("a:1", "a:2", "a:3", "a:1", "a:x", "b:1")] == [
        True, True, True, False, True, True]
    assert client.check(policy, "a:free", 9)["source"] == "unlimited"
    assert client.check({"unlimited": True}, "k")["source"] == "unlimited"
    assert refused(client, "check", policy, "a").code == "BAD_KEY"
    assert "key_format" in refused(client, "check", {**policy, "key_format": "a"}, "a:b").message
    listed = [entry["override_list"] for entry in client.call("policies") if entry.get("inline") and "override_list" in entry]
    assert listed == [[
        {"match": "*:free", "unlimited": True}, {"key": "a:x", "limits": [{"limit": 5}]}]]


def test_a_key_format_is_escaped_where_a_key_does_not_fit_it(ratelimitd, connect):
    client = connect(ratelimitd('policies:\n  p: {key_format: "{t}\\e[31m\\n{u}", algorithm: fixed_window, limit: 3, window: 1d}\n'))
    assert refused(client, "check", "p", "x").message == r"key: 'x' does not fit {t}\x1b[31m\x0a{u}, the key_format of p"


# Descriptions


def test_policies_lists_them(client):
    policies = {policy["name"]: policy for policy in client.call("policies")}
    assert some(policies["free"], "unlimited", "limits") == (True, [])
    assert policies["tenant-api"]["key_format"] == "{tenant}:{user}"
    assert [limit.get("by") for limit in policies["tenant-api"]["limits"]] == [None, ["tenant"]]
    assert [limit.get("by") for limit in policies["regional"]["limits"]] == [["region", "user"], None]
    assert policies["everybody"]["limits"][1]["by"] == []
    assert policies["search"]["overrides"] == 4 and "overrides" not in policies["plain"]
    assert policies["search"]["version"] == client.check("search", "user:42")["policy_version"]


# In Redis


def test_the_keys_in_redis_are_named_by_their_parts(ratelimitd, redis, connect):
    client = connect(ratelimitd(CONFIG, redis=redis))
    eventually(lambda: client.check("plain", "k")["source"] == "redis", "Redis is there")
    with redis.client() as server:
        def added(policy, key):
            server.flushall()
            client.check(policy, key)
            return sorted(name.decode() for name in stored_keys(server))

        assert added("plain", "a:b") == [shard("plain", "a:b") + ":fw1:plain:a:b"]
        acme = shard("tenant-api", "acme")
        assert added("tenant-api", "acme:1") == [acme + ":sc1:tenant-api/tenant:acme", acme + ":tb1:tenant-api/user:acme:1"]
        whole = shard("everybody")
        assert added("everybody", "acme:1") == [whole + ":fw1:everybody/all:", whole + ":fw1:everybody/user:acme:1"]
        regional = shard("regional", "eu/1")
        assert added("regional", "eu/acme/1") == [regional + ":fw1:regional/place:eu/acme/1",
                                                  regional + ":sl1:regional/member:eu/1"]
        assert added("tenant", "t-acme:1") == [shard("tenant", "acme") + ":fw1:tenant:acme"]
        names = [added("search", key) for key in ("user:42", "user:43")]
        assert [name.split(":", 4)[:4] for name in names[0]] != [] and len(names[0]) == len(names[1]) == 2
        assert names[0] == [shard("search", "user:42") + ":fw1:search/day:user:42",
                            shard("search", "user:42") + ":tb1:search/second:user:42"]
        assert added("search", "partner:1") == added("free", "k") == []


# With a candidate that counts by other parts than the enforced limits

PAIR = """
defaults: {deadline: 5s}
inline: {allow: true}
policies:
  api:
    key_format: "{tenant}:{user}"
    limits: [{name: user, algorithm: fixed_window, limit: 9, window: 1d}]
    overrides: [{key: "acme:vip", limit: {user: 20}}]
"""
ON_TRIAL = PAIR + """
    candidate:
      - {name: tenant, by: [tenant], algorithm: fixed_window, limit: 3, window: 1d}
      - {name: user, algorithm: fixed_window, limit: 5, window: 1d}
"""


def on_trial(ratelimitd, redis, connect, config=ON_TRIAL):
    daemon = ratelimitd(config, redis=redis)
    client = connect(daemon)
    eventually(lambda: client.check("api", "probe:1", 0)["source"] == "redis", "Redis is there")
    return daemon, client


def names_of(server):
    return sorted(name.decode() for name in stored_keys(server))


def test_a_candidate_that_counts_by_fewer_parts_resets_nothing(ratelimitd, redis, connect):
    """Earlier the enforced counter got another name with it: 4 of 9 were used, and after the reload none."""
    daemon, client = on_trial(ratelimitd, redis, connect, PAIR)
    held = client.call("reserve", "api", "acme:1", 3)["reservation"]
    assert client.check("api", "acme:1", {"request_id": "r"})["remaining"] == 5
    version = client.check("api", "acme:1", 0)["policy_version"]
    daemon.configure(ON_TRIAL)
    daemon.signal(signal.SIGHUP)
    eventually(lambda: client.check("api", "acme:1", 0)["policy_version"] != version, "the candidate is there")
    assert client.remaining("api", "acme:1") == 5
    assert client.check("api", "acme:1", {"request_id": "r"})["remaining"] == 5  # it was charged before the reload
    assert client.call("settle", held, 1)["refunded"] == 2
    assert client.check("api", "acme:1")["remaining"] == 6
    daemon.configure(PAIR)
    daemon.signal(signal.SIGHUP)
    eventually(lambda: client.check("api", "acme:1", 0)["policy_version"] == version, "the candidate is gone")
    assert client.remaining("api", "acme:1") == 6


def test_policy_and_candidate_have_the_shards_of_their_own_limits_parts(ratelimitd, redis, connect):
    _, client = on_trial(ratelimitd, redis, connect)
    enforced = shard("api", "acme:1") + ":fw1:api/user:acme:1"
    tried = [shard("api", "acme") + ":fw1:api+candidate/" + name for name in ("tenant:acme", "user:acme:1")]
    day = {"key_format": "{tenant}:{user}", "algorithm": "fixed_window", "limit": 9, "window": "1d"}
    inline = {**day, "candidate": [{"name": "tenant", "by": ["tenant"], "algorithm": "fixed_window", "limit": 3, "window": "1d"}]}
    with redis.client() as server:
        server.flushall()
        client.check("api", "acme:1")
        eventually(lambda: len(names_of(server)) == 3, "the candidate is charged, too")
        assert names_of(server) == sorted([enforced, *tried])
        answer = client.call("explain", "api", "acme:1", 0)
        assert (answer["store_keys"], answer["candidate"]["store_keys"]) == ([enforced], tried)
        assert [limit["remaining"] for limit in answer["candidate"]["limits"]] == [2, 4]

        server.flushall()
        assert client.check("api", "acme:vip")["remaining"] == 19  # keys with an override have no candidate
        assert names_of(server) == [shard("api", "acme:vip") + ":fw1:api/user:acme:vip"]

        server.flushall()
        client.check(inline, "acme:1", {"request_id": "r"})
        name = client.call("explain", inline, "acme:1")["policy"]
        of_user, of_tenant = shard(name, "acme:1"), shard(name, "acme")
        eventually(lambda: len(names_of(server)) == 4, "two counters, and two records of the request id")
        assert names_of(server) == sorted([
            f"{of_user}:fw1:{name}:acme:1", f"{of_user}:note1:{name}:6:acme:1:r",
            f"{of_tenant}:fw1:{name}+candidate/tenant:acme", f"{of_tenant}:note1:{name}+candidate:6:acme:1:r"])


@pytest.mark.parametrize("gone", ["api", "api+candidate"])
def test_a_reset_forgets_the_candidates_counters_in_their_own_shard(gone, ratelimitd, redis, connect):
    _, client = on_trial(ratelimitd, redis, connect)
    with redis.client() as server:
        server.flushall()
        client.check("api", "acme:1")
        eventually(lambda: len(names_of(server)) == 3, "the candidate is charged, too")
        server.delete(*(name for name in stored_keys(server) if f":{gone}/user:".encode() in name))
        assert client.call("reset", "api", "acme:1") == {"removed": True}  # the other one
        assert names_of(server) == [shard("api", "acme") + ":fw1:api+candidate/tenant:acme"]
        assert client.call("reset", "api", "acme:1") == {"removed": False}
        assert client.call("stats")["inflight"] == 0


# Without the store, and after a reload


def test_local_answers_know_parts_and_overrides(ratelimitd, redis, connect):
    redis.stop()
    client = connect(ratelimitd(CONFIG, redis=redis))
    for tenant in "ab":
        answers = [client.check("tenant-api", f"{tenant}:{i}") for i in range(6)]
        assert [a["allowed"] for a in answers] == [True] * 5 + [False]
        assert {a["source"] for a in answers} == {"local"}
    assert client.check("regional", "eu/a/1")["allowed"] and client.check("regional", "eu/b/1")["allowed"]
    assert not client.check("regional", "eu/c/1")["allowed"]
    assert client.check("search", "user:42", 9)["allowed"] and not client.check("search", "user:43", 9)["allowed"]
    assert some(client.check("search", "partner:1", 99), "allowed", "source") == (True, "unlimited")
    assert client.call("peek", "free", "k")["source"] == "unlimited"
    answer = client.call("check_all", [["free", "k"], ["tenant-api", "c:1", 2]])
    assert some(answer, "allowed", "reason") == (True, "down")
    assert [m["source"] for m in answer["members"]] == ["unlimited", "local"]


def test_a_reload_changes_overrides_and_formats(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(daemon)
    client.check("search", "user:42", 9)
    daemon.configure(CONFIG.replace('{key: "user:42", limit: {second: 9}}', '{key: "user:42", limit: {second: 20}}')
                     .replace('"{tenant}:{user}"', '"{tenant}-{user}"'))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: client.check("search", "user:42", 0)["limit"] == 20, "the new override holds")
    assert client.check("tenant-api", "a-b")["allowed"]
    assert refused(client, "check", "tenant-api", "a:b").code == "BAD_KEY"


# Together with request ids, at_most and refunds


def test_shared_counters_keep_count_in_steps(client):
    asked = []
    for i in range(6):
        asked.append(client.send("check", "shared", "acme:1", {"request_id": f"r{i % 3}"}))
        asked.append(client.send("check", "shared", "acme:admin", {"request_id": f"a{i % 3}"}))
        asked.append(client.send("check", "regional", "eu/acme/1", {"request_id": f"e{i % 2}"}))
    allowed = [client.answer(one)["allowed"] for one in asked]
    assert allowed == [True] * 18  # three of each of the first two are charged, and two of the third
    assert client.remaining("shared", "acme:admin") == 2
    assert client.remaining("regional", "eu/acme/1") == 0
    assert client.check("shared", "acme:admin", {"at_most": 9})["granted"] == 2
    assert not client.check("shared", "acme:admin", {"at_most": 9})["allowed"]
    assert client.check("free", "k", {"at_most": 9})["granted"] == 9


def test_a_refund_gives_back_to_every_limit_also_to_shared_ones(client):
    client.check("tenant-api", "acme:1", 3)
    client.check("tenant-api", "acme:2", 2)
    assert client.call("refund", "tenant-api", "acme:2", 2)["refunded"] == 2
    assert client.check("tenant-api", "acme:3", 2)["allowed"]
    assert not client.check("tenant-api", "acme:4", 1)["allowed"]
    assert client.call("refund", "free", "k", 2)["refunded"] == 0
    assert refused(client, "refund", "tenant-api", "acme", 1).code == "BAD_KEY"
