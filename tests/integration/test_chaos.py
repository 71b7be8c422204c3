"""test_chaos.py: twenty seconds of the chaos trial (tests/bench/chaos.py lists what must hold), with a new seed each
time. `./dev soak chaos SECONDS SEED` repeats a failing run, for any time."""

import re
import signal
import sys
import time

import pytest

from harness import ROOT, Redis

sys.path.insert(0, str(ROOT / "tests" / "bench"))

SECONDS = 20
MOST_SECONDS = 240  # with the waiting between rounds, on a machine that is busy with other tests


@pytest.mark.skipif(not Redis.installed("redis"), reason="no redis-server here")
def test_nothing_is_lost_answered_twice_or_left_behind_in_chaos():
    import chaos  # it brings the benches' modules with it, which other tests have no use for

    signal.alarm(MOST_SECONDS)
    wrong, n_rounds, n_answers, _ = chaos.trial(SECONDS, seed=int(time.time()))
    assert not wrong, "\n".join(wrong)
    assert n_rounds and n_answers


def test_every_method_is_sent_in_chaos():
    """reload and config were not: only SIGHUP made the daemons read their files again."""
    import chaos

    senders = [kind([], 0, "seed") for kind in vars(chaos).values() if isinstance(kind, type) and issubclass(kind, chaos.Vandal)]
    sent = {sender.any_request()[0] for sender in senders for _ in range(3000)}
    assert set(re.findall(r"^METHOD\((\w+),", (ROOT / "proto/methods.def").read_text(), re.M)) <= sent
