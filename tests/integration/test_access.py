"""test_access.py: who may ask for what: rules by user and group, roles, quotas of users over all their connections.

The kernel records whose process connects, so the tests connect as other users, which only root can.
"""

import contextlib
import grp
import os
import pwd
import re
import subprocess

import pytest
from harness import ROOT, Client, RpcError, eventually, program, some

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can connect as other users")

POLICIES = """
policies:
  login: {algorithm: fixed_window, limit: 1000, window: 1d}
  api-read: {algorithm: token_bucket, limit: 1000, window: 1h}
  api-write: {algorithm: token_bucket, limit: 1000, window: 1h}
  jobs: {algorithm: concurrency, limit: 100}
"""
METHODS = dict(re.findall(r"^METHOD\((\w+), (\w+),", (ROOT / "proto/methods.def").read_text(), re.M))
ROLES = ["NONE", "CLIENT", "OPERATOR", "ADMIN"]
FIVE = {"algorithm": "fixed_window", "limit": 5, "window": "1d"}


def number(user):
    return pwd.getpwnam(user).pw_uid


@contextlib.contextmanager
def being(user, group=None, groups=()):
    """What connects in here, connects as this user, with these groups."""
    before = os.getgroups()
    os.setgroups([grp.getgrnam(name).gr_gid for name in groups])
    os.setegid(grp.getgrnam(group).gr_gid if group else pwd.getpwnam(user).pw_gid)
    os.seteuid(number(user))
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@pytest.fixture
def open_to_all(ratelimitd):
    """A daemon that every user of the machine can connect to; open_to_all(access, ...)."""
    def start(access="", more="", **options):
        daemon = ratelimitd(access + "\n" + more + POLICIES, start=False, **options)
        os.chmod(daemon.directory, 0o755)
        daemon.start()
        os.chmod(daemon.socket, 0o666)
        return daemon

    return start


@pytest.fixture
def connect_as(connect):
    def connect_it(daemon, user, **groups):
        with being(user, **groups):
            return connect(daemon)

    return connect_it


def refusal(client, method, *params):
    """The text of the error; None: it was answered."""
    try:
        client.call(method, *params)
    except RpcError as error:
        return str(error)
    return None


def reload(daemon, access, more=""):
    with Client(daemon.socket) as root:
        before = root.call("stats")["reloads"]
        daemon.configure(access + "\n" + more + POLICIES)
        daemon.reload()
        eventually(lambda: root.call("stats")["reloads"] > before, "the reload is done")


# Which rule counts


def test_without_rules_everybody_is_a_client_and_root_an_admin(open_to_all, connect, connect_as):
    daemon = open_to_all(arguments=["--test-clock"])
    client = connect_as(daemon, "www-data")
    assert client.check("login", "k")["allowed"]
    assert client.call("stats")["connections"] == 1
    assert len(client.call("policies")) == 4
    assert refusal(client, "test_clock", 5) == f"NOT_PERMITTED: method test_clock is not for user {number('www-data')} (access.default.role)"
    assert connect(daemon).call("test_clock", 5) == 5


def test_policies_are_for_those_whose_rule_names_them(open_to_all, connect_as):
    daemon = open_to_all('access: {rules: [{user: www-data, policies: [login, "api*"]}, {user: backup, policies: [jobs]}]}')
    web, backup, games = (connect_as(daemon, user) for user in ("www-data", "backup", "games"))
    assert web.check("login", "k")["allowed"] and web.check("api-read", "k")["allowed"] and web.check("api-write", "k")["allowed"]
    assert refusal(web, "acquire", "jobs", "k") == "NOT_PERMITTED: policy jobs is not for user www-data (access.rules[0])"
    assert refusal(backup, "check", "login", "k") == "NOT_PERMITTED: policy login is not for user backup (access.rules[1])"
    assert backup.call("acquire", "jobs", "k")["allowed"]
    for policy in ("login", "api-read", "login", "api-write"):
        assert games.check(policy, "k")["allowed"]
    assert refusal(web, "check", "logn", "k").startswith("UNKNOWN_POLICY: no policy 'logn'")


def test_a_guess_is_one_of_the_users_own_policies(open_to_all, connect_as):
    """The name of a policy that the user may not ask for was offered."""
    daemon = open_to_all("access: {rules: [{user: www-data, policies: [api-read], deny: [policies]}]}")
    web, other = connect_as(daemon, "www-data"), connect_as(daemon, "backup")
    assert "did you mean 'login'" in refusal(other, "check", "logni", "k")
    assert refusal(web, "check", "logni", "k") == "UNKNOWN_POLICY: no policy 'logni'; 'policies' lists them"
    assert "did you mean 'api-read'" in refusal(web, "check", "api-raed", "k")
    assert refusal(web, "check", "login", "k").startswith("NOT_PERMITTED: policy login is not for user www-data")



def test_every_method_that_names_a_policy_asks_whether_it_may(open_to_all, connect_as, connect):
    daemon = open_to_all('access: {rules: [{user: www-data, policies: [api-read]}]}')
    web = connect_as(daemon, "www-data")
    own = "policy login is not for user www-data (access.rules[0])"
    calls = [("check", "login", "k"), ("peek", "login", "k"), ("explain", "login", "k"), ("reset", "login", "k"),
             ("refund", "login", "k", 1), ("reserve", "login", "k", 1), ("acquire", "login", "k")]
    for call in calls:
        assert refusal(web, *call) == f"NOT_PERMITTED: {own}", call
    members = [["api-read", "k"], ["login", "k"]]
    assert refusal(web, "check_all", members) == f"NOT_PERMITTED: checks[1]: {own}"
    assert refusal(web, "check_many", members) == f"NOT_PERMITTED: checks[1]: {own}"
    long = [["api-read", f"k{i}"] for i in range(150)]
    assert refusal(web, "check_many", [*long, ["login", "k"]]) == f"NOT_PERMITTED: checks[150]: {own}"
    assert web.call("peek", "api-read", "k0")["remaining"] == 1000, "a list that is refused charges nothing"
    assert refusal(web, "reset", "login/login", "k") == f"NOT_PERMITTED: {own}"

    reserved = connect(daemon).call("reserve", "login", "k", 3)["reservation"]
    assert refusal(web, "settle", reserved, 1) == f"NOT_PERMITTED: {own}"
    assert refusal(web, "cancel", reserved) == f"NOT_PERMITTED: {own}"
    root = connect(daemon)
    root.call("settle", reserved, 1)
    assert root.remaining("login") == 999, "the refusals have settled nothing"


def test_the_first_rule_that_matches_counts_and_every_group_of_the_process(open_to_all, connect_as):
    daemon = open_to_all("""access:
  rules:
    - {user: games, policies: [login]}
    - {group: tape, policies: [api-read]}
    - {group: games, policies: [api-write]}
    - {user: backup, role: none}
""")
    def may(client):
        return [policy for policy in ("login", "api-read", "api-write") if refusal(client, "check", policy, "k") is None]

    assert may(connect_as(daemon, "games", groups=["tape"])) == ["login"]
    assert may(connect_as(daemon, "www-data", group="tape")) == ["api-read"]
    assert may(connect_as(daemon, "www-data", groups=["adm", "tape", "games"])) == ["api-read"]
    assert may(connect_as(daemon, "www-data", groups=["games"])) == ["api-write"]
    assert may(connect_as(daemon, "www-data", groups=["adm"])) == ["login", "api-read", "api-write"]
    assert may(connect_as(daemon, "backup", groups=["tape"])) == ["api-read"]
    assert refusal(connect_as(daemon, "backup"), "ping") == "NOT_PERMITTED: this daemon is not for user backup (access.rules[3])"
    text = refusal(connect_as(daemon, "www-data", groups=["games"]), "check", "login", "k")
    assert text == f"NOT_PERMITTED: policy login is not for user {number('www-data')} (access.rules[2])"


def test_a_process_with_many_groups_is_found_by_its_last_one(open_to_all, connect):
    daemon = open_to_all("access: {rules: [{group: tape, policies: [login]}]}")
    before = os.getgroups()
    os.setgroups([*range(70000, 70300), grp.getgrnam("tape").gr_gid])
    try:
        client = connect(daemon)
    finally:
        os.setgroups(before)
    assert refusal(client, "check", "api-read", "k") == "NOT_PERMITTED: policy api-read is not for user 0 (access.rules[0])"


def test_numbers_stand_for_users_and_groups(open_to_all, connect_as):
    daemon = open_to_all(f"access: {{rules: [{{user: {number('games')}, policies: [login]}}]}}")
    text = refusal(connect_as(daemon, "games"), "check", "api-read", "k")
    assert text == f"NOT_PERMITTED: policy api-read is not for user {number('games')} (access.rules[0])"


def test_a_default_of_none_closes_the_door_to_all_others(open_to_all, connect, connect_as):
    daemon = open_to_all("access: {rules: [{user: www-data}], default: {role: none}}")
    assert connect_as(daemon, "www-data").check("login", "k")["allowed"]
    for call in (("check", "login", "k"), ("hello",), ("ping",), ("stats",)):
        other = connect_as(daemon, "games")
        assert refusal(other, *call) == f"NOT_PERMITTED: this daemon is not for user {number('games')} (access.default)"
        assert other.at_end(), "at once, or after a hello in a second"
    flood = [connect_as(daemon, "games") for _ in range(30)]
    assert sum(client.at_end() for client in flood) == 30, "they hold no connections either"
    assert connect(daemon).check("login", "k")["allowed"], "root stays admin"


def test_a_rule_may_take_roots_role(open_to_all, connect):
    daemon = open_to_all("access: {rules: [{user: root, role: client, deny: [reset]}]}", arguments=["--test-clock"])
    client = connect(daemon)
    assert refusal(client, "test_clock", 5) == "NOT_PERMITTED: method test_clock is not for user root (access.rules[0].role)"
    assert refusal(client, "reset", "login", "k") == "NOT_PERMITTED: method reset is not for user root (access.rules[0].deny)"


# Roles and methods

PARAMETERS = {
    "check": ["login", "k"], "check_many": [[["login", "k"]]], "check_all": [[["login", "k"]]], "peek": ["login", "k"],
    "explain": ["login", "k"], "reset": ["login", "k"], "refund": ["login", "k", 1], "reserve": ["login", "k", 1],
    "settle": ["none", 1], "cancel": ["none"], "acquire": ["jobs", "k"], "release": ["none"], "hello": [], "ping": [], "stats": [],
    "metrics": [], "top": [], "denials": [], "slowlog": [], "clients": [], "find": ["login", "k"], "hash": ["k"], "policies": [], "version": [], "reload": [], "config": [], "test_clock": [1], "test_store": ["up"],
}


def test_every_method_is_in_the_table_below():
    unknown = set(METHODS) - set(PARAMETERS)
    assert not unknown, "a new method needs parameters in this test, so that every role is tried with it"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_call_its_methods_and_no_others(open_to_all, connect_as, role):
    """Of a method that only some daemons have, the refusal comes from a daemon that has it."""
    daemon = open_to_all(f"access: {{rules: [{{user: www-data, role: {role.lower()}}}]}}", arguments=["--test-clock"])
    client = connect_as(daemon, "www-data")
    for method, needed in METHODS.items():
        if role == "NONE":
            client = connect_as(daemon, "www-data")  # each is closed
        text = refusal(client, method, *PARAMETERS[method]) or ""
        may = ROLES.index(needed) <= ROLES.index(role)
        assert text.startswith("NOT_PERMITTED: ") != may, (method, text)


def test_each_method_can_be_denied(open_to_all, connect_as):
    names = ", ".join(METHODS)
    daemon = open_to_all(f"access: {{rules: [{{user: www-data, role: admin, deny: [{names}]}}]}}", arguments=["--test-clock"])
    client = connect_as(daemon, "www-data")
    for method in METHODS:
        text = refusal(client, method, *PARAMETERS[method])
        assert text == f"NOT_PERMITTED: method {method} is not for user www-data (access.rules[0].deny)"
    assert refusal(client, "nonsense").startswith("UNKNOWN_METHOD: ")


# Keys and inline policies


def test_keys_are_confined_to_a_users_prefix(open_to_all, connect_as, connect):
    uid = number("games")
    daemon = open_to_all("""access:
  rules:
    - {user: www-data, key_prefix: "app:{user}:"}
    - {group: games, key_prefix: "u{uid}/"}
  default: {key_prefix: "others:"}
""")
    web, games, other = connect_as(daemon, "www-data"), connect_as(daemon, "games"), connect_as(daemon, "backup")
    assert web.check("login", "app:www-data:7")["allowed"] and web.check("login", b"app:www-data:\xff")["allowed"]
    assert web.check("login", "app:www-data:")["allowed"]
    Client.sent_keys.discard("app:www-data:")  # the prefix, which the log names
    wrong = "NOT_PERMITTED: key: of user www-data must begin with app:www-data: (access.rules[0].key_prefix)"
    for key in ("app:www-data", "k", b"\xff", "app:www-dat\u00e4:1"):
        assert refusal(web, "check", "login", key) == wrong
    assert refusal(web, "reset", "login", "k") == wrong and refusal(web, "acquire", "jobs", "k") == wrong
    assert refusal(web, "check_many", [["login", "app:www-data:1"], ["login", "k"]]) == wrong.replace("key:", "checks[1]: key:")
    assert games.check("login", f"u{uid}/x")["allowed"]
    assert refusal(games, "check", "login", f"u{uid}x").endswith(f"must begin with u{uid}/ (access.rules[1].key_prefix)")
    assert refusal(games, "check", "login", "u/x").startswith("NOT_PERMITTED: ")
    assert other.check("login", "others:1")["allowed"]
    assert refusal(other, "check", "login", "x").endswith("must begin with others: (access.default.key_prefix)")
    token = connect(daemon).call("reserve", "login", "anything", 1)["reservation"]
    assert refusal(web, "settle", token, 1) == wrong


SHARED = """  shared:
    key_format: "{tenant}:{user}"
    limits:
      - {name: own, algorithm: fixed_window, limit: 1000, window: 1d}
      - {name: tenant, by: [tenant], algorithm: fixed_window, limit: 1000, window: 1d}
      - {name: user, by: [user], algorithm: fixed_window, limit: 1000, window: 1d}
      - {name: all, by: [], algorithm: fixed_window, limit: 1000, window: 1d}
    overrides: [{key: "games:vip", limit: {own: 2000}}]
  covered:
    key_format: "{tenant}:{user}"
    limits:
      - {name: own, algorithm: token_bucket, limit: 1000, window: 1d}
      - {name: tenant, by: [tenant], algorithm: token_bucket, limit: 1000, window: 1d}
  tried:
    key_format: "{tenant}:{user}"
    limits: [{name: own, algorithm: fixed_window, limit: 1000, window: 1d}]
    candidate: [{name: all, by: [], algorithm: fixed_window, limit: 500, window: 1d}]
  foreign: {compat: first-hit, limit: 100, window: 1h}
"""


@pytest.fixture
def confined(open_to_all, connect, connect_as):
    """Clients of root and of the user games, whose keys begin with games:, and their daemon."""
    daemon = open_to_all('inline: {allow: true}\naccess: {rules: [{user: games, key_prefix: "{user}:"}]}')
    root = connect(daemon)
    daemon.configure(daemon.path.read_text() + SHARED)
    daemon.reload()
    eventually(lambda: root.call("stats")["reloads"] == 1, "the reload is done")
    return root, connect_as(daemon, "games"), daemon


def test_a_prefix_confines_what_is_given_back_to_shared_counters(confined):
    """A user gave back 900 units of root's, because both counted in one counter."""
    root, games, _ = confined
    assert root.check("shared", "root:bob", 900)["allowed"]
    assert games.check("shared", "games:bob", 50)["remaining"] == 50, "its check is charged as ever"

    for counter, limit in (("shared", "user"), ("shared/user", "user"), ("shared/all", "all")):
        refused = (f"NOT_PERMITTED: policy: shared/{limit} counts keys of others, too, so it is not for user games to give back or "
                   "reset (access.rules[0].key_prefix); name one limit of the policy")
        for key in ("games:bob", "games:vip"):
            assert refusal(games, "refund", counter, key, 900) == refused
            assert refusal(games, "reset", counter, key) == refused
    assert root.call("peek", "shared", "root:bob")["remaining"] == 50, "nothing was given back"

    assert games.call("refund", "shared/own", "games:bob", 5)["refunded"] == 5
    assert games.call("refund", "shared/tenant", "games:bob", 5)["refunded"] == 5
    for counter in ("shared/own", "shared/tenant"):
        assert refusal(games, "reset", counter, "games:bob") is None
    assert refusal(games, "refund", "shared/own", "root:bob", 5).startswith("NOT_PERMITTED: key: of user games must begin")

    reserved = games.call("reserve", "shared", "games:bob", 20)["reservation"]
    assert root.call("peek", "shared", "root:bob")["remaining"] == 30
    games.call("settle", reserved, 5)
    assert root.call("peek", "shared", "root:bob")["remaining"] == 45, "what it has reserved itself it may settle"
    games.call("cancel", games.call("reserve", "shared", "games:bob", 20)["reservation"])
    assert root.call("peek", "shared", "root:bob")["remaining"] == 45
    assert root.call("refund", "shared", "root:bob", 5)["refunded"] == 5, "root is not confined"


def test_a_prefix_leaves_a_user_its_own_counters(confined):
    root, games, daemon = confined
    for policy in ("covered", "login", "foreign"):
        games.check(policy, "games:bob")
        assert refusal(games, "reset", policy, "games:bob") is None
    games.check("covered", "games:bob", 7)
    assert games.call("refund", "covered", "games:bob", 7)["refunded"] == 7

    games.check("tried", "games:bob", 7)
    assert games.call("refund", "tried", "games:bob", 7)["refunded"] == 7, "a refund leaves the candidate alone"
    assert "policy: tried/all (candidate) counts keys of others, too" in refusal(games, "reset", "tried", "games:bob")
    assert refusal(games, "reset", "tried/own", "games:bob") is None

    inline = {"key_format": "{a}:{b}", "limits": [{**FIVE, "name": "own"}, {**FIVE, "name": "all", "by": []}]}
    games.check(inline, "games:k")
    name = next(policy["name"] for policy in root.call("policies") if policy["name"].startswith("inline-"))
    for policy in (inline, name, f"{name}/all"):
        assert "counts keys of others, too" in refusal(games, "reset", policy, "games:k")
        assert "counts keys of others, too" in refusal(games, "refund", policy, "games:k", 1)
    assert refusal(games, "reset", f"{name}/own", "games:k") is None
    assert "access.rules[0].key_prefix" in daemon.wait_for_log("leaves this user no reset and no refund of policy shared and others")


@pytest.mark.parametrize(("policies", "may"), [("", True), ('policies: ["(inline)"]', True), ('policies: ["*"]', True),
                                               ("policies: [login]", False)])
def test_inline_policies_go_by_the_same_rules(open_to_all, connect_as, connect, policies, may):
    daemon = open_to_all(f"access: {{rules: [{{user: www-data, {policies}}}]}}", more="inline: {allow: true}")
    client = connect_as(daemon, "www-data")
    refused = "NOT_PERMITTED: policy (inline) is not for user www-data (access.rules[0])"
    assert refusal(client, "check", FIVE, "k") == (None if may else refused)
    root = connect(daemon)
    token = root.call("reserve", FIVE, "k", 1)["reservation"]
    label = next(policy["name"] for policy in root.call("policies") if policy["name"].startswith("inline-"))
    assert refusal(client, "settle", token, 1) == (None if may else refused)
    assert (refusal(client, "reset", label, "k") is None) == may


def test_a_rule_allows_no_inline_policies_where_the_configuration_does_not(open_to_all, connect_as):
    daemon = open_to_all('access: {rules: [{user: www-data, policies: ["(inline)", login]}]}')
    assert "inline policies are not allowed here (inline.allow)" in refusal(connect_as(daemon, "www-data"), "check", FIVE, "k")


# Quotas


def test_the_quota_of_connections_is_a_users_over_all_and_comes_back(open_to_all, connect_as):
    daemon = open_to_all("access: {rules: [{user: www-data, max_connections: 2}]}")
    clients = [connect_as(daemon, "www-data") for _ in range(2)]
    assert [client.call("ping") for client in clients] == ["pong", "pong"]
    refused = connect_as(daemon, "www-data")
    text = refusal(refused, "ping")
    assert text == ("OVERLOADED: user www-data has as many connections as it may (access.rules[0].max_connections: 2); close some, "
                    "and connect again")
    assert refused.at_end()
    assert connect_as(daemon, "games").call("ping") == "pong", "others have quotas of their own"
    clients.pop().close()

    def is_served():
        with being("www-data"), Client(daemon.socket) as again:
            return refusal(again, "ping") is None

    eventually(is_served, "the connection that ended is given back")


def test_a_refused_connection_that_asks_nothing_is_closed(open_to_all, connect_as):
    daemon = open_to_all("access: {rules: [{user: www-data, max_connections: 1}]}")
    first = connect_as(daemon, "www-data")
    assert first.call("ping") == "pong"
    assert connect_as(daemon, "www-data").at_end()
    assert first.call("ping") == "pong"


def test_a_flood_of_refused_connections_keeps_nobody_out(open_to_all, connect_as, connect):
    daemon = open_to_all("access: {rules: [{user: www-data, max_connections: 1}]}\ncaps: {max_connections: 64}")
    flood = [connect_as(daemon, "www-data") for _ in range(200)]
    root = connect(daemon)
    assert flood[0].call("ping") == "pong"
    eventually(lambda: root.call("stats")["connections"] == 2, "those that were refused are gone")


def test_the_quota_of_checks_is_a_users_over_all_its_connections(redis, open_to_all, connect_as, connect):
    daemon = open_to_all("access: {rules: [{user: www-data, max_inflight: 10}]}", more="defaults: {deadline: 20s}", redis=redis)
    one, two, other = connect_as(daemon, "www-data"), connect_as(daemon, "www-data"), connect_as(daemon, "games")
    eventually(lambda: one.check("login", "k")["source"] == "redis", "Redis is connected")
    full = "OVERLOADED: user www-data may have 10 checks in flight over all its connections (access.rules[0].max_inflight), and "
    root = connect(daemon)
    redis.pause()
    asked = [client.send("check", "login", "k") for client in (one, two) for _ in range(5)]
    assert one.call("ping") == two.call("ping") == "pong"
    assert refusal(two, "check", "login", "k") == full + "has them; try again later"
    assert refusal(one, "check_many", [["login", "k"]]) == full + "has them; try again later"
    assert refusal(one, "check_many", [["login", f"{i}"] for i in range(11)]) == full + "this list has more; split it"
    assert refusal(one, "check_many", [["login", f"{i}"] for i in range(100)]) == full + "this list has more; split it"
    waiting = other.send("check", "login", "k")
    two.close()
    eventually(lambda: root.call("stats")["connections"] == 3, "the second connection is gone")
    asked[5:] = [one.send("check", "login", "k") for _ in range(5)]
    assert refusal(one, "check", "login", "k") == full + "has them; try again later"
    redis.resume()
    assert all(one.answer(msgid)["allowed"] for msgid in asked)
    assert other.answer(waiting)["allowed"]
    assert len(one.call("check_many", [["login", f"{i}"] for i in range(10)])) == 10


def test_checks_in_memory_are_never_too_many_one_by_one(open_to_all, connect_as):
    daemon = open_to_all("access: {rules: [{user: www-data, max_inflight: 1}]}")
    client = connect_as(daemon, "www-data")
    asked = [client.send("check", "login", f"{i % 7}") for i in range(300)]
    assert all(client.answer(msgid)["allowed"] for msgid in asked)
    assert client.call("check_all", [["login", "k"]])["allowed"]


# Reload


def test_the_quota_of_slots_is_a_users_over_all_its_connections(open_to_all, connect_as, connect):
    """One user with 4 connections held all slots that the daemon has."""
    daemon = open_to_all("access: {rules: [{user: www-data, max_slots: 5}, {group: www-data, max_slots: 1}]}", more="caps: {max_slots: 8}")
    one, two = connect_as(daemon, "www-data"), connect_as(daemon, "www-data")
    slots = [one.call("acquire", "jobs", f"k{i}")["slot"] for i in range(3)] + [two.call("acquire", "jobs", "k")["slot"] for _ in range(2)]
    full = ("OVERLOADED: user www-data holds as many slots over all its connections as it may (access.rules[0].max_slots: 5); "
            "release some")
    for client in (one, two):
        assert refusal(client, "acquire", "jobs", "other") == full
    root = connect(daemon)
    assert root.call("peek", "jobs", "other")["remaining"] == 100, "a refusal takes nothing"
    assert [root.call("acquire", "jobs", "root")["allowed"] for _ in range(3)] == [True] * 3

    assert two.call("release", slots[4])["released"]
    assert one.call("acquire", "jobs", "k")["allowed"] and refusal(two, "acquire", "jobs", "k") == full
    one.close()
    eventually(lambda: root.call("stats")["slots"] == 4, "the slots of the closed connection ended")
    assert [two.call("acquire", "jobs", "k")["allowed"] for _ in range(4)] == [True] * 4
    assert refusal(two, "acquire", "jobs", "k") == full
    assert refusal(two, "release", slots[3]) is None

    games = connect_as(daemon, "games", groups=["www-data"])
    assert games.call("acquire", "jobs", "k")["allowed"] and "max_slots: 1" in refusal(games, "acquire", "jobs", "k")


def test_a_lower_quota_of_slots_takes_none_away(open_to_all, connect_as):
    daemon = open_to_all("access: {rules: [{user: www-data, max_slots: 3}]}")
    client = connect_as(daemon, "www-data")
    slots = [client.call("acquire", "jobs", "k")["slot"] for _ in range(3)]
    reload(daemon, "access: {rules: [{user: www-data, max_slots: 1}]}")
    assert "max_slots: 1" in refusal(client, "acquire", "jobs", "k")
    assert all(client.call("release", slot)["released"] for slot in slots)
    assert client.call("acquire", "jobs", "k")["allowed"]
    assert "max_slots: 1" in refusal(client, "acquire", "jobs", "k")
    reload(daemon, "access: {rules: [{user: www-data, max_slots: 2}]}")
    assert client.call("acquire", "jobs", "k")["allowed"]


@pytest.mark.parametrize("type", ["memory", "redis, redis: {addresses: [\"unix:/nobody/listens\"]}"], ids=["memory", "local"])
def test_a_users_flood_of_fresh_keys_frees_no_denied_key(type, open_to_all, connect_as, connect):
    """3000 checks of fresh keys filled the store, and the user's own denied key, or root's, was allowed again."""
    daemon = open_to_all('access: {rules: [{user: games, key_prefix: "{user}:"}]}',
                         more=f"store: {{memory: {{max_keys: 1000}}, type: {type}}}\ndefaults: {{local_share: 1}}")
    root, games = connect(daemon), connect_as(daemon, "games")
    victims = [(root, "root:victim"), (games, "games:own")]
    for client, key in victims:
        assert client.check("login", key, 1000)["allowed"]
        assert not client.check("login", key)["allowed"]
    for start in range(0, 3000, 100):
        games.call("check_many", [["login", f"games:{i}", 200] for i in range(start, start + 100)])
    for client, key in victims:
        answer = client.check("login", key)
        assert not answer["allowed"] and answer["source"] == ("memory" if type == "memory" else "local")


def test_a_reload_gives_living_connections_the_new_rules(open_to_all, connect_as):
    daemon = open_to_all()
    client = connect_as(daemon, "www-data")
    assert client.check("login", "k")["allowed"]
    reload(daemon, "access: {rules: [{user: www-data, policies: [api-read]}]}")
    assert refusal(client, "check", "login", "k") == "NOT_PERMITTED: policy login is not for user www-data (access.rules[0])"
    assert client.check("api-read", "k")["allowed"]
    reload(daemon, "access: {rules: [{user: games}, {user: www-data, role: none}]}")
    assert refusal(client, "ping") == "NOT_PERMITTED: this daemon is not for user www-data (access.rules[1])"
    assert client.at_end()
    reload(daemon, "access: {rules: []}")
    assert connect_as(daemon, "www-data").check("login", "k")["allowed"]


def test_quotas_go_on_counting_over_a_reload(open_to_all, connect_as):
    daemon = open_to_all()
    clients = [connect_as(daemon, "www-data") for _ in range(3)]
    assert all(client.call("ping") == "pong" for client in clients)
    reload(daemon, "access: {rules: [{user: www-data, max_connections: 3}]}")
    assert refusal(connect_as(daemon, "www-data"), "ping").startswith("OVERLOADED: user www-data has as many connections")
    assert all(client.call("ping") == "pong" for client in clients)
    reload(daemon, "access: {rules: [{user: www-data, max_connections: 1}]}")
    assert all(client.call("ping") == "pong" for client in clients), "those that there are stay"
    reload(daemon, "access: {rules: [{user: www-data, max_connections: 4}]}")
    assert connect_as(daemon, "www-data").call("ping") == "pong"


def test_the_checks_in_flight_go_on_counting_over_reloads(redis, open_to_all, connect_as):
    """By whatever rule they were taken; each new rule counts them all."""
    slow = "defaults: {deadline: 20s}"
    daemon = open_to_all("access: {rules: [{user: www-data, max_inflight: 10}]}", more=slow, redis=redis)
    one, two = connect_as(daemon, "www-data"), connect_as(daemon, "www-data")
    eventually(lambda: one.check("login", "k")["source"] == "redis", "Redis is connected")
    redis.pause()
    asked = [one.send("check", "login", f"k{i}") for i in range(8)]
    assert one.call("ping") == "pong"
    for access, rule in (("{rules: [{user: games}, {user: www-data, max_inflight: 5}]}", r"rules[1]"),
                         ("{rules: [{group: www-data, max_inflight: 8}]}", "rules[0]"), ("{default: {max_inflight: 8}}", "default")):
        reload(daemon, f"access: {access}", slow)
        assert f"(access.{rule}.max_inflight), and has them" in refusal(two, "check", "login", "k")
    reload(daemon, "access: {default: {max_inflight: 9}}", slow)
    ninth = two.send("check", "login", "k8")
    assert two.call("ping") == "pong" and "and has them" in refusal(one, "check", "login", "k")
    redis.resume()
    assert all(one.answer(msgid)["allowed"] for msgid in asked) and two.answer(ninth)["allowed"]
    reload(daemon, "access: {default: {max_inflight: 1}}", slow)
    assert two.check("login", "k")["allowed"], "all were given back"


def test_a_refused_connection_that_a_reload_would_allow_is_told_to_come_again(open_to_all, connect_as):
    """Earlier, it was told that its user had as many connections as it may: 0."""
    daemon = open_to_all("access: {rules: [{user: www-data, role: none}]}")
    client = connect_as(daemon, "www-data")
    reload(daemon, "access: {rules: []}")
    with contextlib.suppress(OSError, EOFError):  # it is closed after a second
        text = refusal(client, "ping")
        assert text == f"OVERLOADED: user {number('www-data')} may have more connections only since this one came; connect again"
    assert connect_as(daemon, "www-data").call("ping") == "pong"


def test_what_was_taken_can_be_released_after_the_policy_is_gone(open_to_all, connect_as, connect):
    daemon = open_to_all()
    client = connect_as(daemon, "www-data")
    slot = client.call("acquire", "jobs", "k")["slot"]
    reload(daemon, "access: {rules: [{user: www-data, policies: [login]}]}")
    assert refusal(client, "acquire", "jobs", "k").startswith("NOT_PERMITTED: policy jobs")
    assert client.call("release", slot) == {"released": True}
    assert connect(daemon).call("stats")["slots"] == 0


def test_a_silent_connection_that_may_not_connect_any_more_gives_its_slots_back(open_to_all, connect_as, connect):
    """Earlier, it kept them as long as it said nothing."""
    daemon = open_to_all()
    silent, asks = connect_as(daemon, "www-data"), connect_as(daemon, "www-data")
    assert silent.call("acquire", "jobs", "k")["allowed"] and asks.call("ping") == "pong"
    reload(daemon, "access: {rules: [{user: www-data, role: none}]}")
    root = connect(daemon)
    eventually(lambda: root.call("stats")["slots"] == 0, "the slot is given back")
    eventually(lambda: root.call("stats")["connections"] == 1, "and both are closed")
    assert silent.at_end()
    assert root.call("stats")["slots_ended_by_close"] == 1


@pytest.mark.parametrize("rule", ["policies: [login]", "deny: [acquire]", "key_prefix: other-", "role: client, policies: [(inline)]"])
def test_a_silent_connection_gives_back_the_slots_that_it_may_not_acquire_any_more(open_to_all, connect_as, connect, rule):
    daemon = open_to_all("access: {rules: [{user: games}]}")
    silent, other = connect_as(daemon, "www-data"), connect_as(daemon, "games")
    assert silent.call("acquire", "jobs", "k")["allowed"] and other.call("acquire", "jobs", "other-k")["allowed"]
    reload(daemon, f"access: {{rules: [{{user: games}}, {{user: www-data, {rule}}}]}}")
    root = connect(daemon)
    eventually(lambda: root.call("stats")["slots_taken_back"] == 1, "the slot is taken back")
    assert root.call("stats")["slots"] == 1, "that of the other user stays"
    daemon.wait_for_log("1 slots of uid .* are given back: its rule does not allow them")
    assert silent.call("ping") == "pong"


def test_a_broken_rule_leaves_the_rules_as_they_were(open_to_all, connect_as):
    daemon = open_to_all("access: {rules: [{user: www-data, policies: [login]}]}")
    client = connect_as(daemon, "www-data")
    daemon.configure("access: {rules: [{user: no-such-user, role: none}]}" + POLICIES)
    daemon.reload()
    daemon.wait_for_log(r":4: access\.rules\[0\]\.user: there is no user 'no-such-user' on this machine; create it")
    assert client.check("login", "k")["allowed"]
    assert refusal(client, "check", "jobs", "k").startswith("NOT_PERMITTED: ")


# Who somebody is


def test_ratelimitctl_shows_the_refusal(open_to_all):
    daemon = open_to_all("access: {rules: [{user: www-data, policies: [login]}]}")
    command = ["setpriv", f"--reuid={number('www-data')}", f"--regid={number('www-data')}", "--clear-groups", program("ratelimitctl"),
               "-s", daemon.socket]
    assert subprocess.run([*command, "check", "login", "k"], capture_output=True).returncode == 0
    done = subprocess.run([*command, "check", "api-read", "k"], capture_output=True, text=True)
    assert done.returncode == 4
    assert "NOT_PERMITTED: policy api-read is not for user www-data (access.rules[0])" in done.stderr


def test_a_client_that_greets_first_sees_why_it_is_refused(open_to_all, connect_as):
    """hello was answered and the connection closed, so the check behind it was lost without a reason."""
    daemon = open_to_all("access: {rules: [{user: www-data, max_connections: 1}], default: {role: none}}")
    connect_as(daemon, "www-data").call("ping")
    for user, text in (("backup", "NOT_PERMITTED: this daemon is not for user"), ("www-data", "OVERLOADED: user www-data has as many")):
        client = connect_as(daemon, user)
        asked = [client.send("hello", {"describe": True}), client.send("check", "login", "k")]
        for msgid in asked:
            with pytest.raises(RpcError, match=text):
                client.answer(msgid)
        assert client.at_end()
        command = ["setpriv", f"--reuid={number(user)}", f"--regid={number(user)}", "--clear-groups", program("ratelimitctl"), "-s",
                   daemon.socket, "check", "login", "k"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 4 and text in done.stderr, done.stderr


def test_inside_a_user_namespace_nobody_is_anybody_and_no_rule_is_for_them(ratelimitd, connect, connect_as):
    """There the daemon sees every user that its namespace does not have as 65534, which is nobody's number outside of it."""
    config = "access: {rules: [{user: nobody, policies: [login]}], default: {role: none}}" + POLICIES
    if subprocess.run(["unshare", "-U", "-r", "true"]).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    daemon = ratelimitd(config, start=False, launcher=["unshare", "-U", "-r"])
    os.chmod(daemon.directory, 0o755)
    daemon.start()
    os.chmod(daemon.socket, 0o666)
    assert "user: 'nobody' is number 65534, which inside a user namespace may be anybody" in daemon.text()
    for user in ("www-data", "nobody"):
        text = refusal(connect_as(daemon, user), "check", "login", "k")
        assert text == "NOT_PERMITTED: this daemon is not for user 65534 (access.default)"
    assert connect(daemon).check("login", "k")["allowed"], "the user that runs the daemon is root there"


def test_outside_of_one_nobody_is_a_user_as_others(open_to_all, connect_as):
    if open("/proc/self/uid_map").read().split() != ["0", "0", "4294967295"]:
        pytest.skip("these tests run in a user namespace")
    client = connect_as(open_to_all("access: {rules: [{user: nobody, policies: [login]}]}"), "nobody")
    assert client.check("login", "k")["allowed"]
    assert refusal(client, "check", "jobs", "k") == "NOT_PERMITTED: policy jobs is not for user nobody (access.rules[0])"
