"""test_find.py: explain --match and reset --match: a customer whose exact key is not known."""

import json
import os
import subprocess

import pytest

from harness import DONE, REFUSED, USAGE, RpcError, program
from test_access import being

POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1d}
  other: {algorithm: fixed_window, limit: 1, window: 1d}
  never: {algorithm: fixed_window, limit: 0, window: 1d}
  api:
    limits:
      - {name: minute, algorithm: fixed_window, limit: 3, window: 1d}
      - {name: day, algorithm: sliding_log, limit: 100, window: 1d}
  shared: {key_format: "{tenant}:{user}", limits: [{name: tenant, by: [tenant], algorithm: fixed_window, limit: 1, window: 1d}]}
  tenants:
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: token_bucket, limit: 100, window: 1d}
      - {name: tenant, by: [tenant], algorithm: fixed_window, limit: 1000, window: 1d}
    overrides: [{match: "acme:*", limit: {user: 2}}]
    candidate: [{name: user, algorithm: token_bucket, limit: 1, window: 1d}]
"""
HOUR = "top: {window: 1h}\n"
INLINE = '{algorithm: fixed_window, limit: 1, window: 1d}'


def found(daemon, policy, match, stdin=""):
    done = daemon.ctl("--json", "explain", "--match", match, policy, input=stdin)
    assert (done.returncode, done.stderr) == (DONE, ""), done
    return json.loads(done.stdout)


def names(daemon, policy, match):
    keys = [row["key"] for row in found(daemon, policy, match)["keys"]]
    assert len(keys) == len(set(keys))
    return set(keys)


def removed(daemon, policy, match):
    done = daemon.ctl("--json", "reset", "--match", match, policy)
    assert (done.returncode, done.stderr) == (DONE, ""), done
    return json.loads(done.stdout)["removed"]


def wire_keys(client, policy, match, between=lambda: None):
    """The rows of all answers, drained; `between` runs between two of them."""
    rows, options, n = [], {}, 0
    while True:
        answer = client.call("find", policy, match, options)
        if answer.get("first"):
            rows = []
        rows += answer["keys"]
        n += 1
        if "next" not in answer:
            return rows, n
        options = {"next": answer["next"]}
        between()


@pytest.fixture
def served(ratelimitd, connect):
    daemon = ratelimitd(HOUR + "inline: {allow: true}\n" + POLICIES)
    return daemon, connect(daemon)


def test_what_is_counted_and_what_was_denied_is_one_row_a_key(served):
    daemon, client = served
    for key, n in (("acme:import", 7), ("acme:web", 1), ("beta:web", 6), ("acm", 1)):
        for _ in range(n):
            client.check("login", key)
    client.check("other", "acme:other")
    for _ in range(4):
        client.check("never", "acme:x")  # denied without a counter

    assert names(daemon, "login", "acme*") == {"acme:import", "acme:web"}
    assert names(daemon, "login", "*web") == {"acme:web", "beta:web"}
    assert names(daemon, "login", "a*:*p*t") == {"acme:import"}
    assert names(daemon, "login", "*") == {"acme:import", "acme:web", "beta:web", "acm"}
    assert names(daemon, "login", "acme") == set() and names(daemon, "login", "acme:web") == {"acme:web"}
    first, second = found(daemon, "login", "acme*")["keys"]
    assert (first["key"], first["denied"], first["counted"]) == ("acme:import", 2, True) and first["last_denied_ms"] > 0
    assert second == {"key": "acme:web", "denied": 0, "last_denied_ms": None, "counted": True}
    (row,) = found(daemon, "never", "*")["keys"]
    assert (row["key"], row["denied"], row["counted"]) == ("acme:x", 4, False)

    done = daemon.ctl("explain", "--match", "acme*", "login")
    assert done.returncode == DONE and "acme:import" in done.stdout and done.stdout.endswith("2 keys\n"), done
    assert daemon.ctl("explain", "--match", "nobody*", "login").stdout == "0 keys\n"


def test_a_pattern_from_standard_input(served):
    daemon, client = served
    client.check("login", "acme:web")
    assert [row["key"] for row in found(daemon, "login", "-", stdin="acme*\n")["keys"]] == ["acme:web"]
    done = daemon.ctl("reset", "--match", "-", "login", input="*web\n")
    assert (done.returncode, done.stdout) == (DONE, "removed 1\n")
    done = daemon.ctl("reset", "--match", "-", "login", input="")
    assert done.returncode == USAGE and "standard input has no line" in done.stderr


def test_several_limits_parts_overrides_and_inline_policies(served):
    daemon, client = served
    for key in ("a1", "a2"):
        client.check("api", key)
    for key in ("acme:u1", "acme:u2", "beta:u1"):
        client.check("tenants", key)
    client.check({"algorithm": "fixed_window", "limit": 1, "window": "1d"}, "in1")

    assert names(daemon, "api", "a*") == {"a1", "a2"}
    assert {row["limit"] for row in wire_keys(client, "api", "a1")[0]} == {"api/minute", "api/day"}
    assert names(daemon, "tenants", "acme*") == {"acme:u1", "acme:u2"}
    assert names(daemon, "tenants/tenant", "*") == {"acme", "beta"}
    assert names(daemon, INLINE, "*") == {"in1"}

    assert removed(daemon, "api/day", "a1") == 1
    assert removed(daemon, "api", "a*") == 3
    assert removed(daemon, "tenants", "acme*") == 2  # the limit of whole keys, not the tenant's
    assert names(daemon, "tenants/tenant", "*") == {"acme", "beta"} and names(daemon, "tenants", "*") == {"beta:u1"}
    assert removed(daemon, "tenants", "beta*") == 2  # and the candidate's, which an override does not have
    assert removed(daemon, "tenants/tenant", "ac*") == 1
    assert removed(daemon, INLINE, "in*") == 1


def test_reset_frees_them_and_nothing_else(served):
    daemon, client = served
    keys = [f"acme:{i}" for i in range(300)]
    for key in [*keys, "beta:1", "acme"]:
        assert client.check("other", key)["allowed"] and not client.check("other", key)["allowed"]
    client.check("login", "acme:1")
    assert removed(daemon, "other", "acme:*") == 300
    assert all(client.check("other", key)["allowed"] for key in keys)
    assert not client.check("other", "beta:1")["allowed"] and not client.check("other", "acme")["allowed"]
    assert client.call("peek", "login", "acme:1")["remaining"] == 4
    daemon.wait_for_log(r"asked for by an operator: reset of \d+ counters by a pattern: uid 0 ")
    assert "acme" not in daemon.text()


def test_each_key_that_is_there_all_the_time_comes_once_while_others_come_and_go(ratelimitd, connect):
    daemon = ratelimitd(HOUR + "store: {memory: {max_keys: 60000}}\n" + POLICIES)
    client, other = connect(daemon), connect(daemon)
    staying = [f"stay:{i}" for i in range(3000)]
    client.call("check_many", [["login", key] for key in staying])
    coming = iter(range(10**6))

    def come_and_go():
        i = next(coming)
        other.call("check_many", [["login", f"stay:late:{i}:{j}"] for j in range(50)])
        for j in range(0, 50, 2):
            other.call("reset", "login", f"stay:late:{i}:{j}")

    rows, n = wire_keys(client, "login", "stay:*", come_and_go)
    keys = [row["key"] for row in rows]
    assert n > 20 and len(keys) == len(set(keys)) and set(staying) <= set(keys)


def test_a_page_has_so_much_work_and_no_more(ratelimitd, connect):
    daemon = ratelimitd(HOUR + POLICIES)
    client = connect(daemon)
    for i in range(500):
        client.check("login", "k" * 900 + str(i))
    answer, counted = client.call("find", "login", "k*"), 0
    while "next" in answer:
        assert len(answer["keys"]) <= 64
        counted += len(answer["keys"])
        answer = client.call("find", "login", "k*", {"next": answer["next"]})
    assert counted + len(answer["keys"]) == 500


def test_a_client_that_leaves_ends_it(served, connect):
    daemon, client = served
    asking = connect(daemon)
    for _ in range(64):
        asking.send("find", "login", "*")
    asking.close()
    assert client.check("login", "k")["allowed"]


def test_a_key_that_was_never_counted_names_those_that_were_denied(served):
    daemon, client = served
    for key, n in (("acme:import", 9), ("acme:web", 6), ("beta", 9)):
        for _ in range(n):
            client.check("login", key)
    text = daemon.ctl("explain", "login", "acme").stdout
    assert "never counted here; denied in the last 1h: acme:import, acme:web" in text and "5 of 5" not in text, text
    assert "of 5 units are free" in daemon.ctl("explain", "login", "acme:web").stdout
    assert "5 of 5 units are free" in daemon.ctl("explain", "login", "gamma").stdout
    assert "5 of 5 units are free" in daemon.ctl("explain", "other", "acme").stdout.replace("1 of 1", "5 of 5")


def test_the_minute_of_the_window_by_default(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    for _ in range(6):
        client.check("login", "acme:web")
    assert "denied in the last minute: acme:web" in daemon.ctl("explain", "login", "acme").stdout


def test_who_may_not_find_is_told_no_other_key(ratelimitd, connect):
    daemon = ratelimitd(HOUR + "access: {rules: [{user: root, role: operator, deny: [find]}]}\n" + POLICIES)
    client = connect(daemon)
    for _ in range(6):
        client.check("login", "acme:web")
    assert "acme:web" not in daemon.ctl("explain", "login", "acme").stdout
    done = daemon.ctl("explain", "--match", "a*", "login")
    assert done.returncode == REFUSED and "method find is not for user root" in done.stderr


def test_keys_are_shown_as_keys_in_views_says(ratelimitd, connect):
    daemon = ratelimitd(HOUR + "keys: {in_views: hash}\n" + POLICIES)
    client = connect(daemon)
    for _ in range(6):
        client.check("login", "acme:web")
    hashed = daemon.ctl("hash", "acme:web").stdout.strip()
    done = daemon.ctl("--json", "explain", "--match", "acme*", "login")
    (row,) = json.loads(done.stdout)["keys"]
    assert (row["key"], row["denied"], row["counted"]) == (hashed, 1, True) and "acme" not in done.stdout
    text = daemon.ctl("explain", "login", "acme").stdout
    assert f"denied in the last 1h: {hashed}" in text
    client.check("login", "acme:" + "x" * 100)
    assert len(found(daemon, "login", "acme*")["keys"]) == 2


def test_views_that_show_no_keys(ratelimitd, connect):
    daemon = ratelimitd(HOUR + "keys: {in_views: none}\n" + POLICIES)
    client = connect(daemon)
    for _ in range(6):
        client.check("login", "acme:web")
    done = daemon.ctl("explain", "--match", "acme*", "login")
    assert done.returncode == DONE and "acme" not in done.stdout
    assert "acme:web" not in daemon.ctl("explain", "login", "acme").stdout


def test_a_long_key_and_control_bytes(served):
    daemon, client = served
    long, evil = "acme:" + "y" * 500, "acme\x1b[2J\n\\e"
    for _ in range(6):
        client.check("login", long)
        client.check("login", evil)
    rows = {row["key"]: row for row in found(daemon, "login", "acme*")["keys"]}
    assert set(rows) == {long, evil} and all(row["denied"] == 1 and row["counted"] for row in rows.values())
    done = daemon.ctl("explain", "--match", "acme*", "login")
    assert "\x1b" not in done.stdout and "acme\\x1b[2J\\x0a\\x5ce" in done.stdout
    assert names(daemon, "login", "*" + "y" * 30) == {long}  # by its counter: the tables have its beginning alone


def test_a_policy_that_a_reload_removes(served):
    daemon, client = served
    for _ in range(6):
        client.check("login", "acme:web")
    answer = client.call("find", "login", "*")
    daemon.configure(HOUR + POLICIES.replace("  login:", "  later:"))
    daemon.reload()
    daemon.wait_for_log("reload: .* read again")
    with pytest.raises(RpcError, match="UNKNOWN_POLICY"):
        client.call("find", "login", "*", {"next": answer["next"]} if "next" in answer else {})
    assert names(daemon, "later", "*") == set()


# ---- who may ----

CONFINED = """access:
  default: {role: none}
  rules:
    - {user: root, role: admin}
    - {user: daemon, role: operator, key_prefix: "acme:", policies: [login, tenants, "(inline)"]}
    - {user: bin, role: client}
"""


@pytest.fixture
def confined(ratelimitd, connect):
    daemon = ratelimitd(CONFINED + HOUR + "slowlog: {threshold: 1ms}\ninline: {allow: true}\n" + POLICIES, start=False)
    os.chmod(daemon.directory, 0o755)
    daemon.start()
    os.chmod(daemon.socket, 0o666)
    return daemon, connect(daemon)


def test_an_operators_rule_confines_what_it_finds_and_resets(confined, connect):
    daemon, client = confined
    for key in ("acme:web", "acme", "beta:web"):
        for _ in range(6):
            client.check("login", key)
    client.check("other", "acme:web")
    client.check("tenants", "acme:u1")
    client.check("tenants", "beta:u1")
    with being("daemon"):
        operator = connect(daemon)
    rows, _ = wire_keys(operator, "login", "*")
    assert {row["key"] for row in rows} == {"acme:web"} and {row["from"] for row in rows} == {"denied", "denials", "store"}
    assert {row["key"] for row in wire_keys(operator, "tenants", "*")[0]} == {"acme:u1"}
    for policy in ("other", "tenants/tenant"):
        for options in ({}, {"reset": True}):
            with pytest.raises(RpcError, match="NOT_PERMITTED"):
                operator.call("find", policy, "*", options)
    n, options = 0, {"reset": True}
    while options:
        answer = operator.call("find", "login", "*", options)
        n += answer["removed"]
        options = {"reset": True, "next": answer["next"]} if "next" in answer else None
    assert n == 1
    assert client.check("login", "acme:web")["allowed"] and not client.check("login", "beta:web")["allowed"]
    assert client.call("explain", "login", "ac")["why"].count("acme:web") == 1
    with being("daemon"):
        asked = connect(daemon)
    assert "beta" not in str(asked.call("explain", "login", "acme:"))


def test_an_operators_rule_confines_what_it_sees(confined, connect):
    daemon, client = confined
    for key in ("acme:web", "beta:web"):
        for policy in ("login", "other"):
            for _ in range(6):
                client.check(policy, key)
    client.call("reset", "login", "acme:web")
    with being("daemon"):
        operator = connect(daemon)
    top = operator.call("top")
    while "next" in top:
        more = operator.call("top", {"next": top["next"]})
        top = {**more, "policies": top["policies"] + more["policies"], "denied": {
            window: top["denied"][window] + more["denied"][window] for window in more["denied"]}}
    assert {row["policy"] for row in top["policies"]} <= {"login", "tenants", "(inline)"}
    assert [(row["policy"], row["key"]) for row in top["denied"]["running"]] == [("login", "acme:web")]
    for method in ("denials", "slowlog"):
        rows = operator.call(method)[method]
        assert {(row["policy"], row["key"]) for row in rows} <= {("login", "acme:web")}, method
        assert rows or method == "slowlog"
    assert {row["key"] for row in client.call("denials")["denials"]} == {"acme:web", "beta:web"}
    with pytest.raises(RpcError, match="NOT_PERMITTED: reset: forgets the entries of others"):
        operator.call("slowlog", {"reset": True})


def test_match_is_for_operators_on_both_sockets(confined, connect):
    daemon, client = confined
    client.check("login", "acme:web")
    with being("bin"):
        with pytest.raises(RpcError, match="NOT_PERMITTED: method find"):
            connect(daemon).call("find", "login", "*")
    done = subprocess.run([program("ratelimitctl"), "-s", daemon.socket + ".control", "explain", "--match", "*", "login"],
                          check=True, capture_output=True, text=True)
    assert "acme:web" in done.stdout


def test_who_may_not_reset_may_not_reset_many(ratelimitd, connect):
    daemon = ratelimitd(HOUR + "access: {rules: [{user: root, role: operator, deny: [reset]}]}\n" + POLICIES)
    client = connect(daemon)
    client.check("login", "k")
    with pytest.raises(RpcError, match="NOT_PERMITTED: method reset is not for user root"):
        client.call("find", "login", "*", {"reset": True})
    assert names(daemon, "login", "*") == {"k"}


# ---- wrong questions ----

@pytest.mark.parametrize("call, error", [
    (("nothing", "*"), "UNKNOWN_POLICY"),
    (("api/hour", "*"), "UNKNOWN_POLICY: policy 'api' has no limit 'hour'"),
    (("login", ""), "BAD_REQUEST: match: must be a str or bin of 1 to 1024 bytes"),
    (("login", "a" * 1025), "BAD_REQUEST: match:"),
    (("login", 5), "BAD_REQUEST: match:"),
    (("login", "*", {"next": "1"}), "BAD_REQUEST: next:"),
    (("login", "*", {"next": "0.9.1.x"}), "BAD_REQUEST: next:"),
    (("login", "*", {"next": "0.4.0"}), "BAD_REQUEST: next:"),
    (("shared", "*", {"reset": True}), "UNSUPPORTED: policy: has no limit that counts whole keys"),
    (("login", "*", {"nxt": "1"}), "BAD_REQUEST: there is no option 'nxt'; did you mean 'next'?"),
    (("login", "*", {"reset": 1}), "BAD_REQUEST: reset: must be true or false"),
])
def test_wrong_parameters_are_named(served, call, error):
    with pytest.raises(RpcError) as raised:
        served[1].call("find", *call)
    assert str(raised.value).startswith(error), raised.value


def test_a_next_that_was_made_up_does_no_harm(served):
    _, client = served
    client.check("login", "k")
    for next in ("0.0.0", "7.0.18446744073709551615", "0.3.18446744073709551614", "0.2.999", "9.1.9"):
        answer = client.call("find", "login", "*", {"next": next})
        assert isinstance(answer["keys"], list)
        assert client.call("find", "login", "*", {"next": next, "reset": True})["removed"] <= 1


@pytest.mark.parametrize("arguments, error", [
    (["explain", "--match", "a*"], "POLICY is missing"),
    (["explain", "--match", "a*", "login", "k"], "'k' is one argument too many"),
    (["explain", "--match", "", "login"], "write a pattern"),
    (["check", "--match", "a*", "login", "k"], "check takes no --match"),
    (["reset", "--match"], "--match needs a value"),
])
def test_wrong_usage(served, arguments, error):
    done = served[0].ctl(*arguments)
    assert done.returncode == USAGE and error in done.stderr, done


# ---- Redis ----

def test_on_redis_a_reset_is_refused_with_the_line_that_does_it(ratelimitd, connect, redis):
    daemon = ratelimitd(HOUR + POLICIES, redis=redis)
    client = connect(daemon)
    for key in ("acme:it's[1]", "acme:it's[2]", "acme:its[1]"):
        for _ in range(6):
            client.check("login", key)
    rows = found(daemon, "login", "acme:*")
    assert {row["key"]: (row["denied"], row["counted"]) for row in rows["keys"]}["acme:its[1]"] == (1, False)
    (line,) = rows["redis"]
    assert line == "redis-cli --scan --pattern 'rl:{b???}:fw1:login:acme:*'"
    assert "redis-cli --scan --pattern" in daemon.ctl("explain", "--match", "acme*", "login").stdout

    done = daemon.ctl("reset", "--match", "acme:it's[*]", "login")
    assert done.returncode == REFUSED and "UNSUPPORTED" in done.stderr, done
    assert """'rl:{b???}:fw1:login:acme:it'"'"'s[[]*]'""" in done.stderr, done
    line = done.stderr[done.stderr.index("redis-cli --scan"):].strip()
    line = line.replace("redis-cli", f"redis-cli -s {redis.socket}")
    subprocess.run(["sh", "-c", line], check=True, capture_output=True)
    keys = subprocess.run(["redis-cli", "-s", redis.socket, "--scan"], check=True, capture_output=True, text=True).stdout
    assert "acme:its[1]" in keys and "it's" not in keys


def test_on_redis_each_limit_has_a_line(ratelimitd, connect, redis):
    daemon = ratelimitd(HOUR + POLICIES, redis=redis)
    connect(daemon).check("api", "acme")
    done = daemon.ctl("reset", "--match", "acme*", "api")
    assert done.returncode == REFUSED and done.stderr.count("redis-cli --scan") == 2
    assert daemon.ctl("reset", "--match", "acme*", "api/day").stderr.count("redis-cli --scan") == 1
