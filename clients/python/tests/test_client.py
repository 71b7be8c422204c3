from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from conftest import reply

from ratelimitd import Client, Decision, Denied, Refused, Unavailable
from ratelimitd.testing import Daemon, daemon


def test_a_denial_is_a_value_with_the_time_to_wait(client: Client, key: str) -> None:
    assert client.check("few", key).remaining == 1
    assert client.check("few", key).allowed
    denied = client.check("few", key)
    assert not denied
    assert denied.retry_after == 60
    assert (denied.of, denied.quota, denied.window_ms, denied.of_reset_ms) == ("few", 2, 60000, 60000)


def test_a_cost_that_never_fits_has_no_retry(client: Client, key: str) -> None:
    assert client.check("few", key, 3).retry_after is None


def test_all_or_nothing(client: Client, key: str) -> None:
    client.check("few", key, 2)
    denied = client.check_all([("web", key), ("few", key)])
    assert not denied.allowed
    assert [one.allowed for one in denied.members] == [True, False]
    assert client.peek("web", key).remaining == 100


def test_many_are_decided_by_themselves(client: Client, key: str) -> None:
    decisions = client.check_many([("few", key), ("few", key, 2), ("few", key, {"cost": 1})])
    assert [one.allowed for one in decisions] == [True, False, True]


def test_the_other_methods(client: Client, key: str) -> None:
    assert client.check("budget", key, at_most=50).granted == 20
    assert client.refund("budget", key, 5).refunded == 5
    assert client.explain("budget", key)["policy"] == "budget"
    assert client.reset("budget", key) is True
    assert client.reset("budget", key) is False
    assert client.check({"algorithm": "fixed_window", "limit": 1, "window": "1h"}, key).allowed
    assert client.check("queue", key).delay == 0
    assert client.check("queue", key).delay > 0
    assert not client.check("queue", key, max_wait=0).allowed
    assert (
        client.check("few", key, request_id="same").remaining == client.check("few", key, request_id="same").remaining
    )
    assert client.stats()["connections"] >= 1
    client.ping()


def test_mistakes_are_refused_and_verify_names_what_is_missing(client: Client) -> None:
    with pytest.raises(Refused) as unknown:
        client.check("wbe", "k")
    assert unknown.value.code == "UNKNOWN_POLICY"
    client.verify(["web", "few"], inline=True)
    with pytest.raises(Refused, match="nosuch, other") as missing:
        client.verify(["web", "other", "nosuch"])
    assert missing.value.missing == ("nosuch", "other")
    with pytest.raises(ValueError, match="cannot be sent"):
        client.check("web", "k", 2**70)
    with pytest.raises(TypeError):
        client.check("web", None)  # type: ignore[arg-type]


def test_a_slot_is_held_for_the_block_and_denied_raises(client: Client, key: str) -> None:
    with client.slot("slots", key) as first, client.slot("slots", key):
        assert first.held
        with pytest.raises(Denied) as denied, client.slot("slots", key):
            pass
        assert denied.value.decision.limit == 2
        assert not client.acquire("slots", key).allowed
    assert client.peek("slots", key).remaining == 2
    assert first.release() is False


def test_a_slot_that_is_forgotten_ends_with_its_connection(client: Client, key: str) -> None:
    slot = client.acquire("slots", key)
    assert client.peek("slots", key).remaining == 1
    del slot
    until = time.monotonic() + 20
    while client.peek("slots", key).remaining < 2:
        assert time.monotonic() < until


def test_reservations_settle_cancel_or_stand(client: Client, key: str) -> None:
    with client.reserve("web", key, 50) as settled:
        settled.settle(10)
    assert client.peek("web", key).remaining == 90
    with pytest.raises(ZeroDivisionError), client.reserve("web", key, 50):
        raise ZeroDivisionError
    assert client.peek("web", key).remaining == 90
    with client.reserve("web", key, 50):
        pass
    assert client.peek("web", key).remaining == 40
    with pytest.raises(Denied), client.reserve("web", key, 50):
        pass
    assert not client.reserve("web", key, 101).allowed
    token = client.reserve("web", key, 20).token
    assert client.cancel(token).remaining == 40
    assert client.settle(token, 20).ended


def test_the_slot_of_a_reservation_lasts_however_many_connections_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratelimitd.client.IDLE_CONNECTIONS_MAX", 0)
    tokens = {"name": "minute", "algorithm": "token_bucket", "limit": 100, "window": "1m"}
    at_once = {"name": "at-once", "algorithm": "concurrency", "limit": 1}
    with daemon({"llm": {"limits": [tokens, at_once]}}) as one, Client(one.socket, timeout=10) as client:
        reservation = client.reserve("llm", "acme", 50)
        for _ in range(20):
            assert client.reserve("llm", "acme", 50).decision.bound_by == "llm/at-once"
        assert (reservation.settle(10).remaining, client.stats()["slots"]) == (90, 0)
        client.ping()
        assert not client._idle


def test_an_estimate_that_never_fits_is_clamped_to_the_capacity(client: Client, key: str) -> None:
    with client.reserve("web", key, 1000, clamp=True) as clamped:
        assert clamped.estimate == 100
        clamped.settle(30)
    again = client.reserve("web", key, 1000, clamp=True)
    assert (again.allowed, again.decision.remaining) == (False, 70)
    assert client.reserve("web", key, 60, clamp=True).estimate == 60


def test_counters_and_the_hook_report_what_happened(ratelimitd: Daemon, key: str) -> None:
    reported: list[tuple[object, object, bool]] = []

    def hook(policy: object, asked: object, decision: Decision) -> None:
        reported.append((policy, asked, decision.allowed))
        raise RuntimeError("a hook that fails does no harm")

    client = Client(ratelimitd.socket, timeout=5, on_decision=hook)
    client.check("few", key, 2)
    client.check_all([("few", key), ("web", key)])
    with pytest.raises(Refused):
        client.check("nosuch", key)
    assert reported == [("few", key, True), ("few", key, False), ("web", key, True)]
    assert client.counters() == {
        "checks": 4,
        "allowed": 2,
        "denied": 1,
        "remembered": 0,
        "refused": 1,
        "unavailable": 0,
    }
    client.close()


def test_an_absent_daemon_is_logged_once_in_a_while(tmp_path: object, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(f"{tmp_path}/none")
    with caplog.at_level(logging.WARNING, "ratelimitd"):
        for _ in range(50):
            with pytest.raises(Unavailable) as gone:
                client.check("web", "k")
            assert (gone.value.kind, gone.value.maybe_charged) == ("unreachable", False)
    assert len(caplog.records) == 1
    assert client.counters()["unavailable_unreachable"] == 50


def test_a_silent_daemon_opens_the_breaker(peer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratelimitd.health.OPEN_S", 1000.0)
    client = Client(peer(lambda connection, request: None), timeout=0.02)  # type: ignore[operator]
    kinds = []
    for _ in range(5):
        with pytest.raises(Unavailable) as silent:
            client.check("web", "k")
        kinds.append(silent.value.kind)
    assert kinds == ["timeout"] * 3 + ["breaker"] * 2
    client.close()


def test_late_and_foreign_answers_never_reach_the_next_call(peer: object) -> None:
    seen = []

    def answer(connection: socket.socket, request: list[object]) -> None:
        seen.append(request)
        if len(seen) == 1:
            reply(connection, request[1])
        if len(seen) == 3:
            reply(connection, seen[1][1], remaining=1)
            reply(connection, seen[2][1], remaining=2)

    client = Client(peer(answer), timeout=5)  # type: ignore[operator]
    client.check("web", "a")  # it is connected: the next request leaves at once
    with pytest.raises(Unavailable):
        client.check("web", "a", timeout=0.2)
    assert client.check("web", "b").remaining == 2
    client.close()


def test_what_was_lost_is_sent_again_only_when_asked(peer: object) -> None:
    seen: list[list[object]] = []

    def answer(connection: socket.socket, request: list[object]) -> None:
        seen.append(request)
        if len(seen) in (1, 2):
            connection.shutdown(socket.SHUT_RDWR)
        else:
            reply(connection, request[1])

    client = Client(peer(answer), timeout=5)  # type: ignore[operator]
    with pytest.raises(Unavailable) as lost:
        client.check("web", "k", request_id="x")
    assert (lost.value.kind, lost.value.maybe_charged, len(seen)) == ("lost", True, 1)
    time.sleep(0.02)  # the pause after a connection that was of no use
    while len(seen) < 3:
        with contextlib.suppress(Unavailable):
            assert client.check("web", "k", resend=True).allowed
        time.sleep(0.05)
    client.close()


def test_threads_share_a_client(ratelimitd: Daemon, key: str) -> None:
    client = Client(ratelimitd.socket, timeout=10)
    allowed: Counter[bool] = Counter()

    def work() -> None:
        for _ in range(10):
            allowed[client.check("web", key).allowed] += 1

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allowed[True] == 100
    client.close()


def test_a_child_of_fork_has_connections_of_its_own(client: Client, key: str) -> None:
    lost: list[object] = []
    slot = client.acquire("slots", key, on_lost=lost.append)
    client.check("web", key)
    pid = os.fork()
    if pid == 0:
        released = slot.release()
        allowed = client.check("web", key).allowed
        os._exit(0 if allowed and not released and not lost else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert slot.held
    assert client.check("web", key).remaining == 97
    assert slot.release() is True


def test_greenlets_wait_for_each_other_not_for_the_daemon(ratelimitd: Daemon) -> None:
    program = """
import gevent.monkey; gevent.monkey.patch_all()
import gevent, sys
from ratelimitd import Client
client = Client(sys.argv[1], timeout=20)
jobs = [gevent.spawn(client.check, "web", "gevent") for _ in range(120)]
gevent.joinall(jobs)
print(sum(job.get().allowed for job in jobs))
with client.slot("slots", "gevent"):
    killed = gevent.spawn(client.check, "web", "gevent")
    gevent.sleep(0)
    killed.kill()
    print(client.check("web", "gevent").allowed)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, ratelimitd.socket], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["100", "False"], done.stderr
