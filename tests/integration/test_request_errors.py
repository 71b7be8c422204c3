"""test_request_errors.py: what clients are refused for their requests is seen in the log, in stats and before a reload."""

import os

import pytest
from harness import RpcError, eventually

CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 1000000, window: 1d}
  api: {algorithm: fixed_window, limit: 1000000, window: 1d, key_format: "{tenant}:{user}"}
"""
WITHOUT_LOGIN = "policies:\n" + CONFIG.splitlines()[2] + "\n"


def refused(client, method, *params):
    with pytest.raises(RpcError) as error:
        client.call(method, *params)
    return error.value.code


def lines(daemon, text):
    return [line for line in daemon.log if text in line]


def test_a_policy_that_is_asked_for_after_it_was_removed_is_seen_at_once(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(daemon)
    for n in range(205):
        client.check("login", f"k{n}")
    daemon.configure(WITHOUT_LOGIN)
    asked = "login: removed; asked 205 times in the last 10 minutes"
    eventually(lambda: asked in daemon.ctl("reload", "--dry-run").stdout, "the dry run says how often it was asked")
    done = daemon.ctl("reload")
    assert asked in done.stdout and any(asked in line for line in daemon.log)
    for _ in range(50):
        assert refused(client, "check", "login", "k") == "UNKNOWN_POLICY"
    first = eventually(lambda: lines(daemon, "request answered with UNKNOWN_POLICY: "), "the first has a line")
    assert len(first) == 1 and "login" in first[0] and f"uid {os.getuid()} pid {os.getpid()}" in first[0]
    assert "request errors   50, " in daemon.ctl("stats").stdout
    assert 'ratelimitd_request_errors_total{code="UNKNOWN_POLICY"} 50' in daemon.ctl("metrics").stdout


def test_each_code_has_a_line_at_once_and_then_one_in_ten_seconds_with_the_sum(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(daemon)
    causes = {"UNKNOWN_POLICY": ("check", "nobody", "k"), "BAD_KEY": ("check", "api", "acme"), "BAD_COST": ("check", "login", "k", -1),
              "BAD_REQUEST": ("check", "login"), "UNKNOWN_METHOD": ("chekc", "login", "k"),
              "NOT_PERMITTED": ("check", {"algorithm": "gcra", "limit": 1, "window": "1s"}, "k")}
    for _ in range(20):
        for code, call in causes.items():
            assert refused(client, *call) == code
    for code in causes:
        assert len(eventually(lambda code=code: lines(daemon, f"request answered with {code}: "), code)) == 1, code
    for code in causes:
        eventually(lambda code=code: len(lines(daemon, f"requests answered with {code}: 19 more in 1")) == 1, code, 40)


def test_no_line_has_the_key_of_a_user(ratelimitd, connect):
    daemon = ratelimitd(CONFIG + "keys: {in_log: none}\n")
    client = connect(daemon)
    assert refused(client, "check", "api", "secret-user") == "BAD_KEY"
    assert refused(client, "check", "api", "secret-user", -1) in ("BAD_KEY", "BAD_COST")
    eventually(lambda: lines(daemon, "request answered with BAD_KEY: "), "it has a line")
    assert not lines(daemon, "secret-user")


def test_many_members_of_a_list_are_one_request(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(daemon)
    assert refused(client, "check_many", [["nobody", f"k{n}"] for n in range(100)]) == "UNKNOWN_POLICY"
    assert client.call("stats")["request_errors"] == 1
