"""test_inline.py: policies whose settings come in a request, through the socket, on memory and on Redis: permission,
equality, refusals, the effect of a reload, and how many are kept."""

import os
import subprocess
import sys

import msgpack
import pytest

from harness import RpcError, eventually, stored_keys

POLICIES = "inline: {allow: true}\npolicies:\n  login: {algorithm: fixed_window, limit: 5, window: 1d, start: first_hit}\n"
ALLOW = POLICIES + "defaults: {deadline: 5s}\n"  # Redis is slow on a busy machine
FIVE = {"algorithm": "fixed_window", "limit": 5, "window": "1d", "start": "first_hit"}


@pytest.fixture
def start(any_store, ratelimitd):
    """Starts a daemon; the test runs once for each store."""
    return lambda config=ALLOW: ratelimitd(config, redis=any_store)


def test_every_question_may_have_its_policy_in_it(start, connect):
    client = connect(start())
    assert client.check(FIVE, "a", 2)["remaining"] == 3
    assert client.remaining(FIVE, "a") == 3
    many = client.call("check_many", [[FIVE, "a"], ["login", "a"], [{**FIVE, "limit": 6}, "a"]])
    assert [one["remaining"] for one in many] == [2, 4, 5]
    whole = client.call("check_all", [[FIVE, "a", 2], ["login", "a", 1]])
    assert [one["remaining"] for one in whole["members"]] == [0, 3]
    whole = client.call("check_all", [[FIVE, "a"], ["login", "a"]])
    assert not whole["allowed"] and whole["bound_by"].startswith("inline-")
    assert client.call("reset", FIVE, "a") == {"removed": True}
    assert client.remaining(FIVE, "a") == 5
    assert client.remaining("login", "a") == 3


def test_equal_settings_share_their_counters_however_they_are_written(start, connect):
    client = connect(start())
    assert client.check(FIVE, "a")["remaining"] == 4
    assert client.check(dict(reversed(FIVE.items())), "a")["remaining"] == 3
    assert client.check({**FIVE, "limit": "5"}, "a")["remaining"] == 2
    assert client.check({**FIVE, "limit": 5.0}, "a")["remaining"] == 1
    assert client.check({name.encode(): value for name, value in FIVE.items()}, b"a")["remaining"] == 0
    assert client.call("stats")["inline_policies"] == 1
    assert client.check({**FIVE, "window": "2d"}, "a")["remaining"] == 4
    assert client.call("stats")["inline_policies"] == 2
    assert [policy["name"] for policy in client.call("policies") if not policy.get("inline")] == ["login"]


def test_several_limits_keys_with_parts_and_overrides(start, connect):
    client = connect(start())
    policy = {"key_format": "{tenant}:{user}",
              "limits": [{"name": "user", **FIVE}, {"name": "tenant", "by": ["tenant"], **FIVE, "limit": 7}],
              "overrides": [{"key": "t:vip", "limit": {"user": 100}}]}
    assert client.check(policy, "t:a", 5)["remaining"] == 0
    denied = client.check(policy, "t:b", 3)
    assert not denied["allowed"] and denied["bound_by"].endswith("/tenant")
    assert client.check(policy, "t:vip", 2)["allowed"]
    with pytest.raises(RpcError, match="BAD_KEY"):
        client.check(policy, "t")


@pytest.mark.parametrize("policy, code, words", [
    ({}, "BAD_REQUEST", "policy.algorithm: is missing"),
    ({**FIVE, "limt": 5}, "BAD_REQUEST", "policy.limt: no such setting; did you mean limit?"),
    ({**FIVE, "window": "soon"}, "BAD_REQUEST", "policy.window: 'soon' is"),
    ({**FIVE, "window": 10}, "BAD_REQUEST", "policy.window: '10' is"),
    ({**FIVE, "limit": 1.5}, "BAD_REQUEST", "policy.limit: is not a value of a setting"),
    ({**FIVE, "limit": None}, "BAD_REQUEST", "policy.limit: has no value"),
    ({"compat": "first-hit", "limit": 5, "window": "1s"}, "NOT_PERMITTED", "policy.compat: "),
    ({**FIVE, "x" * 4096: 1}, "BAD_REQUEST", "policy: has 4"),
])
def test_settings_that_are_wrong_are_named(ratelimitd, connect, policy, code, words):
    client = connect(ratelimitd(ALLOW))
    for method, params in (("check", [policy, "a"]), ("peek", [policy, "a"]), ("reset", [policy, "a"])):
        with pytest.raises(RpcError) as error:
            client.call(method, *params)
        assert error.value.code == code and error.value.message.startswith(words), error.value
    with pytest.raises(RpcError, match=r"checks\[1\]: policy"):
        client.call("check_many", [["login", "a"], [policy, "a"]])
    assert client.remaining("login", "a") == 5


def test_a_repeated_setting_is_refused(ratelimitd, connect):
    client = connect(ratelimitd(ALLOW))
    settings = b"\x84" + b"".join(msgpack.packb(name) + msgpack.packb(value) for name, value in (
        ("algorithm", "gcra"), ("limit", 5), ("window", "1s"), ("limit", 6)))
    client.send_bytes(b"\x94\x00\x07" + msgpack.packb("check") + b"\x92" + settings + msgpack.packb("a"))
    assert client.recv() == [1, 7, "BAD_REQUEST: policy.limit: is written twice; keep one of them", None]


@pytest.mark.parametrize("config", ["policies: {p: {algorithm: gcra, limit: 5, window: 1s}}\n",
                                    "inline: {allow: false}\n"])
def test_a_configuration_must_allow_them(ratelimitd, connect, config):
    client = connect(ratelimitd(config))
    with pytest.raises(RpcError, match="NOT_PERMITTED: policy: inline policies are not allowed here"):
        client.check(FIVE, "a")
    assert client.call("ping") == "pong"


def test_without_a_configuration_they_are_the_own_users(ratelimitd, connect):
    daemon = ratelimitd()
    assert connect(daemon).check(FIVE, "a")["remaining"] == 4


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_without_a_configuration_they_are_nobody_elses(ratelimitd):
    daemon = ratelimitd()
    os.chmod(daemon.socket, 0o666)
    os.chmod(daemon.directory, 0o755)
    code = ("import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
            "s.sendall(bytes.fromhex(sys.argv[2])); sys.stdout.write(s.recv(4096).hex())")
    request = msgpack.packb([0, 1, "check", [FIVE, "a"]]).hex()
    done = subprocess.run([sys.executable, "-S", "-c", code, daemon.socket, request], capture_output=True, text=True)
    _, _, error, _ = msgpack.unpackb(bytes.fromhex(done.stdout))
    assert error.startswith("NOT_PERMITTED: policy: without a configuration inline policies are for the daemon's own user")


def test_daemons_of_one_redis_count_together(redis, ratelimitd, connect):
    one, other = (connect(ratelimitd(config, redis=redis)) for config in
                  (ALLOW, POLICIES + "defaults: {deadline: 6s, on_failure: deny}\n"))
    assert one.check(FIVE, "a", 2)["remaining"] == 3
    assert other.check(dict(reversed(FIVE.items())), "a", 2)["remaining"] == 1
    with redis.client() as direct:
        keys = stored_keys(direct)
    assert len(keys) == 1 and b":inline-" in keys[0]


def test_a_reload_takes_the_permission_and_changes_the_defaults(start, connect):
    daemon = start(POLICIES + "defaults: {deadline: 7s}\n")
    client = connect(daemon)
    before = client.check(FIVE, "a")
    daemon.configure(POLICIES + "defaults: {deadline: 8s}\n")
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == 1, "the reload is done")
    after = client.check(FIVE, "a")
    assert (before["remaining"], after["remaining"]) == (4, 3)
    assert before["policy_version"] != after["policy_version"]
    daemon.configure(ALLOW.replace("true", "false"))
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == 2, "the reload is done")
    with pytest.raises(RpcError, match="NOT_PERMITTED"):
        client.check(FIVE, "a")


def test_so_many_are_kept_and_no_more(start, connect):
    client = connect(start(ALLOW.replace("true", "true, max_policies: 3")))
    for limit in range(10, 20):
        assert client.check({**FIVE, "limit": limit}, "a")["remaining"] == limit - 1
    stats = client.call("stats")
    assert (stats["inline_policies"], stats["inline_evicted"]) == (3, 7)
    assert client.check({**FIVE, "limit": 10}, "a")["remaining"] == 8


def test_those_in_use_stay(redis, ratelimitd, connect):
    daemon = ratelimitd(ALLOW.replace("true", "true, max_policies: 2"), redis=redis)
    client = connect(daemon)
    with pytest.raises(RpcError, match=r"OVERLOADED: checks\[2\]: policy: 2 inline policies \(inline.max_policies\)"):
        client.call("check_many", [[{**FIVE, "limit": limit}, "a"] for limit in (1, 2, 3)])
    assert client.call("peek", {**FIVE, "limit": 1}, "a")["remaining"] == 1


def test_the_command_line_takes_them_in_braces(start):
    daemon = start()
    text = "{algorithm: fixed_window, limit: 5, window: 1d, start: first_hit}"
    assert daemon.ctl("check", text, "a", 2).stdout.startswith("allowed  remaining 3/5")
    json_text = '{"start": "first_hit", "window": "1d", "limit": 5, "algorithm": "fixed_window"}'
    assert daemon.ctl("peek", json_text, "a").stdout.startswith("allowed  remaining 3/5")
    assert daemon.ctl("check-all", text, "a", 3, ",", "login", "a").stdout.startswith("allowed  remaining 0/5")
    assert daemon.ctl("reset", text, "a").stdout == "removed\n"
    done = daemon.ctl("check", "{algorithm: fixed_window, limit: 5}", "a")
    assert done.returncode == 4 and "BAD_REQUEST: policy.window: is missing" in done.stderr


# A label: what answers call an inline policy

NAMED = {**FIVE, "name": "search"}


def names_of(client):
    return [(policy["name"][:7], policy.get("label"), policy["inline"])
            for policy in client.call("policies") if policy.get("inline")]


def test_a_name_is_what_answers_say_and_nothing_else(start, connect):
    client = connect(start())
    client.call("hello", {"describe": True})
    plain, named = client.check(FIVE, "a"), client.check(NAMED, "a")
    assert (plain["remaining"], named["remaining"]) == (4, 3)  # one counter
    assert plain["policy_version"] == named["policy_version"]
    assert plain["of"].startswith("inline-") and named["of"] == "search"
    two = {"limits": [{"name": "few", **FIVE, "limit": 1}, {"name": "many", **FIVE}], "name": "two"}
    assert client.check(two, "a")["allowed"]
    assert client.check(two, "a")["bound_by"] == "two/few"
    assert client.call("explain", NAMED, "a")["policy"] == "search"
    assert client.call("reset", NAMED, "a") == {"removed": True}
    assert client.remaining(FIVE, "a") == 5


def test_the_store_does_not_know_the_name(redis, ratelimitd, connect):
    client = connect(ratelimitd(ALLOW, redis=redis))
    client.check(NAMED, "a")
    with redis.client() as direct:
        keys = stored_keys(direct)
    assert len(keys) == 1 and b":inline-" in keys[0] and b"search" not in keys[0]


def test_policies_lists_inline_ones_while_they_are_kept(start, connect):
    client = connect(start(ALLOW.replace("true", "true, max_policies: 2")))
    assert names_of(client) == []
    client.check(FIVE, "a")
    client.check(NAMED, "a")
    assert names_of(client) == [("inline-", "search", True), ("inline-", None, True)]
    assert len({policy["name"] for policy in client.call("policies")}) == 2  # login, and the settings of both
    client.check({**FIVE, "limit": 6}, "a")
    assert names_of(client) == [("inline-", None, True), ("inline-", "search", True)]


def test_explain_reset_and_refund_take_the_names_that_answers_show(start, connect):
    client = connect(start())
    client.call("hello", {"describe": True})
    fingerprint = client.check(FIVE, "a", 2)["of"]
    client.check(NAMED, "b", 2)
    for name, key in ((fingerprint, "a"), ("search", "b")):
        assert client.call("explain", name, key)["remaining"] == 2
        assert client.call("refund", name, key, 1)["refunded"] == 1
        assert client.call("reset", f"{name}/", key) == {"removed": True}
        assert client.call("reset", name, key) == {"removed": False}
    for method in ("check", "peek", "acquire"):
        with pytest.raises(RpcError, match="UNKNOWN_POLICY"):
            client.call(method, "search", "b")
    with pytest.raises(RpcError, match="UNKNOWN_POLICY: policy 'search' has no limit 'x'"):
        client.call("reset", "search/x", "b")


def test_a_name_that_several_policies_have_finds_none_of_them(start, connect):
    client = connect(start())
    client.check(NAMED, "a")
    client.check({**NAMED, "limit": 6}, "a")
    with pytest.raises(RpcError, match="UNKNOWN_POLICY: several inline policies are called 'search'") as error:
        client.call("reset", "search", "a")
    for name in [policy["name"] for policy in client.call("policies") if policy.get("inline")]:
        assert name in error.value.message
        assert client.call("reset", name, "a") == {"removed": True}


def test_a_configured_policy_keeps_its_name(start, connect):
    client = connect(start())
    client.check("login", "a", 1)
    client.check({**FIVE, "limit": 9, "name": "login"}, "a", 4)
    assert client.call("explain", "login", "a")["limit"] == 5
    assert client.call("reset", "login", "a") == {"removed": True}
    assert client.remaining({**FIVE, "limit": 9}, "a") == 5


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "inline-0123456789abcdef", "a/b", None, ["a"]])
def test_a_name_that_is_none_is_refused(ratelimitd, connect, name):
    client = connect(ratelimitd(ALLOW))
    with pytest.raises(RpcError, match="BAD_REQUEST: policy.name: is not a name for an inline policy"):
        client.check({**FIVE, "name": name}, "a")


def test_equal_settings_under_two_names_are_one_policy_in_a_check_all(start, connect):
    client = connect(start())
    with pytest.raises(RpcError, match=r"BAD_REQUEST: checks\[1\]: is the same policy and key as checks\[0\]"):
        client.call("check_all", [[FIVE, "a"], [NAMED, "a"]])


def test_the_log_of_denials_has_the_name(ratelimitd, connect):
    daemon = ratelimitd(ALLOW + "log: {denials: first}\n")
    client = connect(daemon)
    client.check({**NAMED, "limit": 0}, "a")
    daemon.stop()
    assert any("denied: policy search limit search " in line for line in daemon.log)


def test_whoever_may_not_write_policies_does_not_find_them_either(ratelimitd, connect):
    client = connect(ratelimitd(ALLOW.replace("true", "false")))
    with pytest.raises(RpcError, match="UNKNOWN_POLICY"):
        client.call("reset", "inline-0123456789abcdef", "a")


# Reservations


def test_a_reservation_of_an_inline_policy_is_settled_by_its_token(start, connect):
    client = connect(start())
    made = client.call("reserve", NAMED, "a", 3)
    assert (made["allowed"], made["remaining"]) == (True, 2)
    assert client.call("settle", made["reservation"], 1)["refunded"] == 2
    assert client.remaining(FIVE, "a") == 4
    assert client.call("cancel", client.call("reserve", FIVE, "a", 2)["reservation"])["refunded"] == 2


def test_a_reservation_waits_until_its_inline_policy_is_sent_again(start, connect):
    client = connect(start(ALLOW.replace("true", "true, max_policies: 1")))
    token = client.call("reserve", FIVE, "a", 3)["reservation"]
    client.check({**FIVE, "limit": 6}, "a")
    with pytest.raises(RpcError, match="UNKNOWN_POLICY: reservation: its policy is not configured any more; an inline"):
        client.call("settle", token, 1)
    assert client.call("peek", {**FIVE, "name": "other"}, "a")["remaining"] == 2
    assert client.call("settle", token, 1)["refunded"] == 2


def test_a_reservation_of_an_inline_policy_ends_by_itself(start, connect):
    client = connect(start())
    assert client.call("reserve", FIVE, "a", 3, {"ttl_ms": 200})["remaining"] == 2
    eventually(lambda: client.remaining(FIVE, "a") == 5, "its units are back")


def test_inline_policies_are_on_the_last_page_alone(ratelimitd, connect):
    client = connect(ratelimitd(POLICIES + "  api: {algorithm: fixed_window, limit: 5, window: 1d}\n"))
    client.check({"algorithm": "gcra", "limit": 5, "window": "1s", "name": "aa"}, "k")
    whole = client.call("policies")
    assert [policy.get("inline", False) for policy in whole] == [False, False, True]
    assert client.call("policies", {"max": 1}) == [whole[1]]
    assert client.call("policies", {"max": 1, "after": "api"}) == [whole[0]]
    assert client.call("policies", {"max": 1, "after": "login"}) == [whole[2]]
    assert client.call("policies", {"max": 2, "after": "api"}) == [whole[0], whole[2]]
