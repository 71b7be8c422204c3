"""test_on_change.py: with on_change: reset, counters start afresh when their limit's own settings change, in all daemons together."""

import pytest

from harness import eventually, run_ratelimitd, shard, stored_keys

PATIENT = "defaults: {deadline: 5s}\n"  # Redis is slow on a busy machine
POLICIES = PATIENT + """policies:
  login: {algorithm: fixed_window, limit: LIMIT, window: 1d, on_change: reset OTHER}
  plain: {algorithm: fixed_window, limit: LIMIT, window: 1d}
  list:
    on_change: reset
    limits:
      - {name: hour, algorithm: sliding_log, limit: LIMIT, window: 1h}
      - {name: day, algorithm: token_bucket, limit: 90, window: 30d}
      - {name: slots, algorithm: concurrency, limit: LIMIT}
"""


def policies(limit, other=""):
    return POLICIES.replace("LIMIT", str(limit)).replace(" OTHER", other)


def fingerprint(*settings):
    """Of limit, window (us), burst, max_wait and count_denied, as ALGORITHMS.md defines it."""
    value = 0xcbf29ce484222325
    for byte in "".join(f"|{setting}" for setting in settings).encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{(value ^ value >> 32) % 2**32:08x}"


def reload(daemon, text):
    n = len(daemon.log)
    daemon.configure(text)
    daemon.reload()
    eventually(lambda: any("read again" in line for line in daemon.log[n:]), "the reload")


def test_the_names_of_the_keys_have_a_fingerprint_only_with_reset(redis, ratelimitd, connect):
    client = connect(ratelimitd(policies(5), redis=redis))
    eventually(lambda: client.check("plain", "probe", 0)["source"] == "redis", "the store is there")
    for policy in ("login", "plain"):
        assert client.check(policy, "k")["source"] == "redis"
    assert client.call("acquire", "list", "k")["slot"]
    day = 24 * 3600 * 1000000
    assert {key.decode() for key in stored_keys(redis.client())} == {
        f"{shard('plain', 'k')}:fw1:plain:k",
        f"{shard('login', 'k')}:fw1:login@{fingerprint(5, day, 0, 0, 0)}:k",
        f"{shard('list', 'k')}:sl1:list/hour@{fingerprint(5, day // 24, 0, 0, 0)}:k",
        f"{shard('list', 'k')}:tb1:list/day@{fingerprint(90, 30 * day, 90, 0, 0)}:k",
        f"{shard('list', 'k')}:co1:list/slots:k",
    }


def test_all_daemons_start_afresh_together(redis, ratelimitd, connect):
    """The first of two daemons that reads the new limit begins the counters that the second goes on with."""
    daemons = [ratelimitd(policies(5), redis=redis) for _ in range(2)]
    first, second = [connect(daemon) for daemon in daemons]
    for client in (first, second):
        eventually(lambda c=client: c.check("login", "probe", 0)["source"] == "redis", "the store is there")
    assert first.check("login", "k", 3)["remaining"] == 2
    assert second.check("login", "k")["remaining"] == 1
    assert first.check("plain", "k", 3)["remaining"] == 2

    reload(daemons[0], policies(7))
    assert first.check("login", "k")["remaining"] == 6
    assert first.check("plain", "k")["remaining"] == 3
    assert second.check("login", "k")["remaining"] == 0  # still the old counter
    reload(daemons[1], policies(7))
    assert second.check("login", "k")["remaining"] == 5
    daemons[0].configure(policies(5))
    line = next(line for line in daemons[0].ctl("reload", "--dry-run").stdout.splitlines() if line.startswith("login"))
    assert line.startswith("login: limit 7 -> 5, starts afresh where no keys of these settings are left; old keys end by ")
    reload(daemons[0], policies(5))
    assert not first.check("login", "k")["allowed"]  # there are: the counter from before has not ended
    assert first.check("login", "other", 5)["allowed"]


@pytest.mark.parametrize("other", [
    ", on_failure: deny, deadline: 9s, shadow: true, overrides: [{key: vip, limit: 99}]",
    ", candidate: [{name: c, algorithm: fixed_window, limit: 1, window: 1h}]",
    ", merge_back: true, debt: true, local_share: 3",
])
def test_what_is_not_the_limits_own_resets_nothing(any_store, ratelimitd, connect, other):
    daemon = ratelimitd(policies(5), redis=any_store)
    client = connect(daemon)
    wanted = "memory" if any_store is None else "redis"
    eventually(lambda: client.check("login", "probe", 0)["source"] == wanted, "the store is there")
    assert client.check("login", "k", 3)["remaining"] == 2
    reload(daemon, policies(5, other))
    assert client.check("login", "k")["remaining"] == 1


def test_slots_that_are_held_stay_held(any_store, ratelimitd, connect):
    daemon = ratelimitd(PATIENT + "policies:\n  p: {limits: [{name: s, algorithm: concurrency, limit: 2}], on_change: reset}\n",
                        redis=any_store)
    client = connect(daemon)
    eventually(lambda: client.call("acquire", "p", "k").get("slot"), "a slot")
    held = client.call("explain", "p", "k")
    reload(daemon, PATIENT + "policies:\n  p: {limits: [{name: s, algorithm: concurrency, limit: 1}], on_change: reset}\n")
    assert held["allowed"] and not client.call("explain", "p", "k")["allowed"]


def test_it_is_refused_where_the_names_of_keys_are_not_ours(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("policies:\n  a: {compat: first-hit, limit: 5, window: 10s, on_change: reset}\n"
                    "  b: {algorithm: concurrency, limit: 5, on_change: reset}\n"
                    "  c: {algorithm: fixed_window, limit: 5, window: 1s, on_change: drop}\n")
    status, _, errors = run_ratelimitd("--check-config", "-c", path)
    assert status == 3
    assert "policies.a.on_change: is not a setting of first-hit; leave it out" in errors
    assert "policies.b.on_change: is not a setting of concurrency; leave it out" in errors
    assert "policies.c.on_change" in errors and "keep" in errors and "reset" in errors
