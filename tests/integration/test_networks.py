"""test_networks.py: overrides for the addresses of a network, through the socket on both stores."""

import json

import pytest
from harness import RpcError, eventually

CONFIG = """
defaults: {deadline: 5s}
policies:
  login:
    key_format: "{user}|{ip}"
    algorithm: fixed_window
    limit: 2
    window: 1d
    overrides:
      - {match: {cidr: [10.0.0.0/8, "2001:db8::/32"], part: ip}, unlimited: true}
      - {match: {cidr: ["::ffff:10.66.0.0/112"], part: ip}, limit: 1}
      - {key: "root|10.66.0.1", limit: 5}
      - {match: "*|10.*", limit: 4}
      - {match: "*|172.16.*", limit: 3}
  address:
    algorithm: fixed_window
    limit: 2
    window: 1d
    overrides: [{match: {cidr: [0.0.0.0/0]}, limit: 3}, {match: {cidr: ["::/0"]}, limit: 4}]
  plain: {algorithm: fixed_window, limit: 2, window: 1d}
"""


@pytest.fixture
def daemon(any_store, ratelimitd, connect):
    daemon = ratelimitd(CONFIG, redis=any_store)
    wanted = "memory" if any_store is None else "redis"
    eventually(lambda: connect(daemon).check("plain", "probe", 0)["source"] == wanted, "the store is there")
    return daemon


@pytest.mark.parametrize(("key", "limit", "override"), [
    ("bob|11.0.0.1", 2, None), ("bob|10.1.2.3", None, "10.0.0.0/8"), ("bob|10.66.3.4", 1, "10.66.0.0/16"),
    ("root|10.66.0.1", 5, "root|10.66.0.1"), ("bob|::ffff:10.66.3.4", 1, "10.66.0.0/16"),
    ("bob|2001:DB8:0::1", None, "2001:db8::/32"), ("bob|2001:db9::1", 2, None), ("bob|10.0.0", 4, "*|10.*"),
    ("bob|10.0.0.01", 4, "*|10.*"), ("bob|10.0.0.1%eth0", 4, "*|10.*"), ("bob|172.16.0.1", 3, "*|172.16.*"), ("bob|[::1]", 2, None)])
def test_a_written_key_comes_first_then_the_longest_network_then_a_pattern(daemon, connect, key, limit, override):
    client = connect(daemon)
    explained = client.call("explain", "login", key)
    assert explained["override"] == override
    assert override is None or f"The override {override} counts for this key." in explained["why"]
    answers = [client.check("login", key) for _ in range(6)]
    assert [answer["allowed"] for answer in answers] == [limit is None or i < limit for i in range(6)]


def test_without_a_part_the_whole_key_is_the_address(daemon, connect):
    client = connect(daemon)
    assert [client.check("address", key)["limit"] for key in ("1.2.3.4", "::1", "::ffff:1.2.3.4", "::1%lo", "bob")] == [
        3, 4, 3, 2, 2]


def test_spellings_of_one_address_have_counters_of_their_own(daemon, connect):
    client = connect(daemon)
    assert [client.check("address", key)["remaining"] for key in ("1.2.3.4", "::ffff:1.2.3.4", "1.2.3.4")] == [2, 2, 1]


def test_policies_lists_networks_in_their_canonical_form(daemon, connect):
    address, login, plain = sorted(connect(daemon).call("policies"), key=lambda policy: policy["name"])
    assert login["override_list"][:3] == [
        {"cidr": ["10.0.0.0/8", "2001:db8::/32"], "part": "ip", "unlimited": True},
        {"cidr": ["10.66.0.0/16"], "part": "ip", "limits": [{"limit": 1}]}, {"key": "root|10.66.0.1", "limits": [{"limit": 5}]}]
    assert address["override_list"][1] == {"cidr": ["::/0"], "limits": [{"limit": 4}]}
    assert "override_list" not in plain
    shown = daemon.ctl("policies", "login").stdout
    assert "  match  ip in 10.0.0.0/8, 2001:db8::/32  unlimited\n  match  ip in 10.66.0.0/16  limit 1\n" in shown
    assert json.loads(daemon.ctl("--json", "policies", "login").stdout)["policies"][0]["override_list"] == login["override_list"]


def test_a_long_list_of_networks_is_cut_short_for_people_alone(ratelimitd, connect):
    networks = [f"10.{i}.0.0/16" for i in range(200)]
    daemon = ratelimitd("policies:\n  p: {algorithm: fixed_window, limit: 2, window: 1d, overrides: "
                        f"[{{match: {{cidr: [{', '.join(networks)}]}}, limit: 3}}]}}\n")
    assert connect(daemon).call("policies")[0]["override_list"][0]["cidr"] == networks
    assert "  match  10.0.0.0/16, 10.1.0.0/16, 10.2.0.0/16, 10.3.0.0/16 and 196 more  limit 3\n" in daemon.ctl("policies", "p").stdout


def test_a_reload_counts_changed_networks_and_keeps_the_counters(ratelimitd, connect):
    text = "policies:\n  p: {algorithm: fixed_window, limit: 9, window: 1d, overrides: [{match: {cidr: [%s]}, limit: 3}]}\n"
    daemon = ratelimitd(text % "10.0.0.0/8")
    client = connect(daemon)
    client.check("p", "10.0.0.1")
    daemon.configure(text % "10.0.0.0/16, 11.0.0.0/8")
    reloaded = daemon.ctl("reload")
    assert "overrides: 1 added, 1 removed" in reloaded.stdout, reloaded.stdout
    assert client.check("p", "10.0.0.1")["remaining"] == 1


def test_an_inline_policy_has_networks_too(ratelimitd, connect, any_store):
    policy = {"algorithm": "fixed_window", "limit": 2, "window": "1d",
              "overrides": [{"match": {"cidr": ["10.0.0.0/8"]}, "limit": 5}]}
    client = connect(ratelimitd("inline: {allow: true}" + CONFIG, redis=any_store))
    assert [client.check(policy, key)["limit"] for key in ("10.0.0.1", "11.0.0.1")] == [5, 2]
    policy["overrides"][0]["match"]["cidr"] = ["10.0.0.1/8"]
    with pytest.raises(RpcError, match=r"BAD_REQUEST: .*overrides\[0\].match.cidr: '10.0.0.1/8' has bits set behind the first 8; write 10.0.0.0/8"):
        client.check(policy, "10.0.0.1")
