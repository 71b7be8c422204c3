"""test_operator_log.py: what an operator does to the limits is in the log: who, with which program, and what."""

import os

from harness import eventually

CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1d}
  two: {limits: [{name: a, algorithm: fixed_window, limit: 5, window: 1d}, {name: b, algorithm: gcra, limit: 9, window: 1d}]}
"""


def lines(daemon):
    return [line for line in daemon.log if "asked for by an operator: " in line]


def test_resets_refunds_and_reloads_over_the_control_socket_have_a_line_and_those_of_clients_have_none(ratelimitd, connect):
    daemon = ratelimitd(f"access: {{rules: [{{user: {os.getuid()}, role: client}}]}}\n" + CONFIG)
    client = connect(daemon)
    client.check("login", "alice", 3)
    client.call("refund", "login", "alice", 1)
    client.call("reset", "login", "bob")
    assert lines(daemon) == []
    control = f"{daemon.socket}.control"
    assert daemon.ctl("-s", control, "refund", "login", "alice", 1).returncode == 0
    assert daemon.ctl("-s", control, "reset", "two/a", "alice").returncode == 0
    assert daemon.ctl("reload", "--dry-run").returncode == 0
    assert daemon.ctl("reload").returncode == 0
    eventually(lambda: len(lines(daemon)) == 3, lambda: lines(daemon))
    refund, reset, reload = lines(daemon)
    assert ": refund policy login key #" in refund and " units 1: " in refund
    assert ": reset policy two/a key #" in reset and "units" not in reset
    assert ": reload: " in reload
    for line in lines(daemon):
        assert f"uid {os.getuid()} pid " in line and line.endswith("(ratelimitctl)") and "alice" not in line


def test_a_loop_of_resets_does_not_flood_the_log(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    client = connect(f"{daemon.socket}.control")
    for n in range(300):
        client.call("reset", "login", f"k{n}")
    assert 10 <= len(lines(daemon)) <= 100
