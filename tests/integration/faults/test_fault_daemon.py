"""test_fault_daemon.py: what happens to the daemon's own process and clocks."""

import time

import pytest

from fault_matrix import proves
from harness import Notices, eventually
from stepped_clock import Clock

PATIENT_S = 10  # a deadline that even a busy machine keeps
HOUR_S = 3600


@proves(29)
@pytest.mark.parametrize("whose", ["daemon", "redis"])
def test_a_clock_steps_by_an_hour(under_load, start_redis, tmp_path, whose):
    clock = Clock(tmp_path)
    redis = start_redis(**({"env": clock.env} if whose == "redis" else {}))
    daemon = {"env": clock.env} if whose == "daemon" else {}
    # The policies' windows are a day: an hour back or forth may begin another, so what is charged is not compared.
    with under_load(redis, deadline_s=PATIENT_S, keeps=False, daemon=daemon) as trial:
        for by_s in (HOUR_S, 0, -HOUR_S, 0):
            trial.sees("redis")
            clock.step(by_s)
            if whose == "redis":
                with redis.client() as admin:
                    eventually(lambda: abs(admin.time()[0] - time.time() - by_s) < HOUR_S / 2, "its clock has stepped")
            trial.sees("redis")
    assert trial.load.outcomes() == {"redis"}


WINDOW = "policies: {few: {algorithm: fixed_window, start: first_hit, limit: 5, window: 10h}}\n"


@proves(29)
def test_no_step_of_the_daemons_clock_admits_more_on_the_memory_store(ratelimitd, connect, tmp_path):
    clock = Clock(tmp_path)
    client = connect(ratelimitd(WINDOW, env=clock.env))
    assert sum(client.check("few", "k")["allowed"] for _ in range(10)) == 5
    for by_s in (HOUR_S, 0, -HOUR_S, 0):
        clock.step(by_s)
        answer = client.check("few", "k")
        assert not answer["allowed"] and 0 < answer["retry_after_ms"] <= 11 * HOUR_S * 1000


@proves(30)
@pytest.mark.slice
def test_the_daemon_itself_stands_still(under_load, redis, place):
    notices = Notices(place)
    stands_s = 0.5
    with under_load(redis, late_s=stands_s, daemon={"env": {"NOTIFY_SOCKET": notices.path, "WATCHDOG_USEC": "200000"}}) as trial:
        notices.next("WATCHDOG")
        trial.sees("redis")
        trial.daemon.pause()
        trial.lasts(stands_s)
        trial.daemon.resume()
        notices.next("WATCHDOG")
        trial.sees("redis")
    notices.socket.close()
