"""test_ctl_methods.py: every method through ratelimitctl, on memory and on Redis."""

import json
import re
import subprocess
import sys

import pytest

from harness import DENIED, DONE, PATIENCE_S, REFUSED, program

CONFIG = """inline: {allow: true}
defaults: {deadline: 5s}
policies:
  ten: {algorithm: fixed_window, limit: 10, window: 1d, start: first_hit}
  other: {algorithm: fixed_window, limit: 2, window: 1d, start: first_hit}
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s}
  tenants:
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: fixed_window, limit: 3, window: 1d, start: first_hit}
      - {name: tenant, by: [tenant], algorithm: fixed_window, limit: 4, window: 1d, start: first_hit}
  slow: {algorithm: leaky_bucket, limit: 1, window: 1d, burst: 1, max_wait: 10d}
"""
INLINE = "{algorithm: fixed_window, limit: 9, window: 1d, start: first_hit}"


@pytest.fixture
def store(any_store):
    return "memory" if any_store is None else "redis"


def left(done):
    """The units in a line."""
    return int(re.search(r"remaining (\d+)/", done.stdout).group(1))


def test_check_peek_and_reset(daemon, store):
    done = daemon.ctl("check", "ten", "a", 3)
    assert (done.returncode, done.stdout) == (DONE, f"allowed  remaining 7/10, resets in 1d  [{store}]\n")
    assert left(daemon.ctl("peek", "ten", "a")) == 7
    assert daemon.ctl("check", "ten", "a", 8).returncode == DENIED
    assert daemon.ctl("reset", "ten", "a").stdout == "removed\n"


def test_a_shared_counter_is_reset_and_refunded_by_the_name_that_denies(daemon):
    daemon.ctl("check", "tenants", "acme:1", 2)
    daemon.ctl("check", "tenants", "acme:2", 2)
    assert "tenants/tenant" in daemon.ctl("check", "tenants", "acme:3").stdout
    assert daemon.ctl("reset", "tenants", "acme:3").stdout == "nothing to remove\n"
    assert daemon.ctl("refund", "tenants/tenant", "acme:3", 1).stdout.startswith("refunded 1  remaining 1/4")
    assert daemon.ctl("reset", "tenants/tenant", "acme:3").stdout == "removed\n"
    assert left(daemon.ctl("check", "tenants", "acme:3", 3)) == 0
    assert daemon.ctl("reset", "tenants/tenat", "acme:3").returncode == REFUSED


def test_check_all(daemon, store):
    done = daemon.ctl("check-all", "ten", "a", 4, ",", "other", "a", 2, ",", INLINE, "a")
    assert done.returncode == DONE and re.findall(r"remaining (\d+)/", done.stdout) == ["0", "6", "0", "8"]
    done = daemon.ctl("--deadline", "5s", "check-all", "ten", "a", ",", "other", "a")
    assert done.returncode == DENIED and done.stdout.startswith("denied  remaining 0/2 (other), retry in ")


def test_at_most_grants_the_available_units(daemon):
    done = daemon.ctl("--json", "--at-most", 8, "check", "ten", "a")
    assert done.returncode == DONE and json.loads(done.stdout)["granted"] == 8
    assert json.loads(daemon.ctl("--json", "--at-most", 8, "check", "ten", "a").stdout)["granted"] == 2
    assert daemon.ctl("--at-most", 8, "check", "ten", "a").returncode == DENIED


def test_a_request_id_is_charged_once(daemon):
    for _ in range(3):
        assert left(daemon.ctl("--request-id", "r-1", "check", "ten", "a", 4)) == 6
    assert left(daemon.ctl("--request-id", "r-2", "check", "ten", "a", 4)) == 2
    for _ in range(2):
        assert left(daemon.ctl("--request-id", "r-3", "check-all", "ten", "b", 3, ",", "other", "b")) == 1


def test_a_refund_gives_back(daemon, store):
    daemon.ctl("check", "ten", "a", 6)
    done = daemon.ctl("refund", "ten", "a", 2)
    assert done.returncode == DONE and done.stdout.startswith("refunded 2  remaining 6/10") and f"[{store}]" in done.stdout
    assert daemon.ctl("refund", "ten", "a", 100).stdout.startswith("refunded 4  remaining 10/10")
    assert daemon.ctl("refund", "jobs", "a", 1).returncode == REFUSED
    daemon.ctl("check", INLINE, "a", 6)
    assert daemon.ctl("refund", INLINE, "a", 2).stdout.startswith("refunded 2  remaining 5/9")


def test_a_reservation_is_settled_or_cancelled(daemon, store):
    done = daemon.ctl("--ttl", "10m", "reserve", "ten", "a", 8)
    assert done.returncode == DONE
    decision, reservation = done.stdout.splitlines()
    assert decision.startswith("allowed  remaining 2/10") and reservation.startswith("reservation ")
    reservation = reservation.removeprefix("reservation ")
    done = daemon.ctl("settle", reservation, 5)
    assert done.returncode == DONE and done.stdout.startswith("refunded 3  remaining 5/10") and f"[{store}]" in done.stdout
    assert daemon.ctl("settle", reservation, 5).stdout.startswith("refunded 0, had ended  remaining 5/10")
    second = json.loads(daemon.ctl("--json", "reserve", "ten", "a", 2).stdout)["reservation"]
    assert daemon.ctl("settle", second, 4).stdout.startswith("charged 2  remaining 1/10")
    third = json.loads(daemon.ctl("--json", "reserve", "ten", "a", 1).stdout)["reservation"]
    assert daemon.ctl("cancel", third).stdout.startswith("refunded 1  remaining 1/10")
    done = daemon.ctl("reserve", "ten", "a", 2)
    assert done.returncode == DENIED and len(done.stdout.splitlines()) == 1
    assert daemon.ctl("settle", "nonsense", 1).returncode == REFUSED
    assert "UNSUPPORTED: policy: " in daemon.ctl("refund", "jobs", "a", 1).stderr
    inline = json.loads(daemon.ctl("--json", "reserve", INLINE, "a", 5).stdout)["reservation"]
    assert daemon.ctl("settle", inline, 2).stdout.startswith("refunded 3  remaining 7/9")


def test_a_slot_is_held_while_a_command_runs(daemon, store):
    argv = [program("ratelimitctl"), "-s", daemon.socket, "acquire", "jobs", "a", "--", sys.executable, "-S", "-c",
            "print('held', flush=True); input()"]
    first = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "held\n"
    done = daemon.ctl("acquire", "jobs", "a", "--", "sh", "-c", "echo one more; exit 3")
    assert (done.returncode, done.stdout) == (3, "one more\n")
    second = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert second.stdout.readline() == "held\n"
    done = daemon.ctl("acquire", "jobs", "a", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (DENIED, "") and done.stderr.startswith("denied  0 of 2 slots free")
    for process in (first, second):
        process.communicate("\n", timeout=PATIENCE_S)
        assert process.returncode == 0
    done = daemon.ctl("acquire", "jobs", "a")
    assert done.returncode == DONE and done.stdout.startswith("allowed  remaining 1/2") and "\nslot " in done.stdout
    assert daemon.ctl("check", "jobs", "a").returncode == REFUSED
    assert daemon.ctl("acquire", "ten", "a", "--", "echo", "ran").returncode == REFUSED
    inline = "{algorithm: concurrency, limit: 1, slot_ttl: 10s}"
    inner = [program("ratelimitctl"), "-s", daemon.socket, "acquire", inline, "a", "--", "echo", "ran"]
    done = daemon.ctl("acquire", inline, "a", "--", *inner)
    assert (done.returncode, done.stdout) == (DENIED, "")
    assert daemon.ctl(*inner[3:]).stdout == "ran\n"


def test_a_wait(daemon):
    daemon.ctl("check", "slow", "a")
    assert "go ahead in" in daemon.ctl("--max-wait", "2d", "check", "slow", "a").stdout
    assert daemon.ctl("--max-wait", "1h", "check", "slow", "a").returncode == DENIED


def test_explain(daemon):
    daemon.ctl("check", "ten", "a", 3)
    done = daemon.ctl("explain", "ten", "a")
    assert done.returncode == DONE and left(daemon.ctl("peek", "ten", "a")) == 7
    daemon.ctl("check", INLINE, "a", 3)
    assert daemon.ctl("explain", INLINE, "a").stdout.startswith("would be allowed, leaving 5 of 9")


def test_reserve_and_refund_asked_again_with_one_id_are_done_once(daemon):
    reserved = [daemon.ctl("reserve", "--request-id", "a", "ten", "a", 3).stdout for _ in range(2)]
    assert reserved[0] == reserved[1] and left(daemon.ctl("peek", "ten", "a")) == 7
    refunded = [daemon.ctl("refund", "--request-id", "a", "ten", "a", 1).stdout for _ in range(2)]
    assert refunded[0] == refunded[1] and left(daemon.ctl("peek", "ten", "a")) == 8
