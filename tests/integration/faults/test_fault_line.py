"""test_fault_line.py: what happens to the bytes between the daemon and Redis (proxy.py)."""

import pytest

from fault_load import DEADLINE_S
from fault_matrix import proves
from harness import eventually

PATIENT_S = 10  # a deadline that even a busy machine keeps


@proves(5)
@pytest.mark.parametrize("way", ["up", "down"])
def test_no_byte_passes_one_way(under_load, redis, proxied, way):
    proxy = proxied(redis)
    with under_load(redis, address=proxy.address) as trial:
        trial.sees("redis")
        getattr(proxy, way).stalled = True
        trial.sees("deadline", "down")
        trial.lasts(1.2)
        getattr(proxy, way).stalled = False


@proves(7)
@pytest.mark.parametrize("end", ["cut", "reset", "half close"])
def test_the_connection_breaks_inside_a_reply(under_load, redis, proxied, end):
    """Somewhere in the handshake's replies, and in those of checks. Each connection meets the fault anew."""
    proxy = proxied(redis, tcp=end == "reset")
    with under_load(redis, address=proxy.address, options={"stall": "10s"}) as trial:
        trial.sees("redis")
        for at in (1, 233, 1009, 2003):
            before = proxy.n_connections
            proxy.down.reset = end == "reset"
            proxy.down.half_close_after, proxy.down.cut_after = (at, -1) if end == "half close" else (-1, at)
            proxy.drop()
            eventually(lambda: proxy.n_connections >= before + 3, "it breaks twice")
        trial.sees("down")
        proxy.down.half_close_after = proxy.down.cut_after = -1
        proxy.drop()  # one that the fault has half closed may still be open
        trial.is_over()


@proves(8)
@pytest.mark.slice
def test_bytes_come_one_by_one(under_load, redis, proxied):
    proxy = proxied(redis)
    with under_load(redis, address=proxy.address, deadline_s=PATIENT_S) as trial:
        trial.sees("redis")
        proxy.up.piece = proxy.down.piece = 1
        for _ in range(10):
            trial.sees("redis")
    assert trial.load.outcomes() == {"redis"}


@proves(9)
def test_redis_is_far_away(under_load, redis, proxied):
    proxy = proxied(redis)
    with under_load(redis, address=proxy.address, options={"stall": "5s"}) as trial:
        for delay_s in (0, 0.001, 0.005, 0.015):
            proxy.down.delay_s = proxy.down.jitter_s = delay_s
            trial.sees("redis")
        proxy.down.delay_s = proxy.down.jitter_s = 0.5
        trial.sees("deadline", "breaker")
        trial.lasts(1.2)
        proxy.down.delay_s = proxy.down.jitter_s = 0


@proves(10)
def test_a_narrow_line(under_load, redis, proxied):
    proxy = proxied(redis, tcp=True)
    # The keys of a batch are more than the line passes within the deadline, so that it falls behind.
    with under_load(redis, address=proxy.address, n_keys=2000, key="k" * 200, options={"stall": "2s"}) as trial:
        trial.sees("redis")
        proxy.up.bytes_per_s = proxy.down.bytes_per_s = 16_000
        eventually(lambda: trial.load.outcomes() - {"redis"}, "not all of it passes")
        trial.lasts(2)
        proxy.up.bytes_per_s = proxy.down.bytes_per_s = 0


@proves(23)
@pytest.mark.parametrize("fault", ["duplicate", "corrupt"])
def test_replies_that_nobody_asked_for(under_load, redis, proxied, fault):
    proxy = proxied(redis)
    with under_load(redis, address=proxy.address, keeps=fault == "duplicate") as trial:
        trial.sees("redis")
        for at in (700, 1009, 2003, 3001):
            before = proxy.n_connections
            if fault == "duplicate":
                proxy.down.duplicate = True
            else:
                proxy.down.corrupt_at = at
            proxy.drop()
            eventually(lambda: proxy.n_connections > before, "a new connection")
            trial.lasts(DEADLINE_S)
        if fault == "duplicate":
            trial.sees("down")
            assert trial.stat("redis_bad_replies") >= 1
        proxy.down.duplicate, proxy.down.corrupt_at = False, -1
        proxy.drop()
