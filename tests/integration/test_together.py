"""test_together.py: several daemons on one Redis admit, together, exactly as many units as one daemon would, under
load from several connections each, on one saturated key and on two hundred."""

import collections
import random
import threading

import pytest
from harness import algorithms

WINDOW = "5000d"  # no units come back during the test
ALGORITHMS = algorithms()
CONFIG = "defaults: {deadline: 9s, on_failure: error}\npolicies:\n" + "".join(
    f"  {name}: {{{settings}, limit: LIMIT, window: {'year' if name == 'calendar_window' else WINDOW}}}\n"
    for name, settings in ALGORITHMS.items())
N_CONNECTIONS = 2  # of each daemon


def ask(client, checks, admitted):
    """Sends all of them at once, and adds up the admitted units by key."""
    ids = {client.send("check", *check): check for check in checks}
    for msgid, (policy, key, cost) in ids.items():
        if client.answer(msgid)["allowed"]:
            admitted[policy, key] += cost


def load(daemons, connect, checks_of):
    """Every connection of every daemon sends checks_of(n); the units admitted, by policy and key."""
    counts, threads = [], []
    for n in range(len(daemons) * N_CONNECTIONS):
        counts.append(collections.Counter())
        threads.append(threading.Thread(target=ask, args=(connect(daemons[n % len(daemons)]), checks_of(n), counts[n])))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts, collections.Counter())


@pytest.mark.parametrize("n_daemons", [1, 2, 3])
def test_daemons_on_one_redis_admit_exactly_the_limit_of_one_saturated_key(n_daemons, ratelimitd, connect, redis):
    limit, cost = 100, 3
    daemons = [ratelimitd(CONFIG.replace("LIMIT", str(limit)), redis=redis) for _ in range(n_daemons)]
    each = 2 * limit // (n_daemons * N_CONNECTIONS)
    checks = [(algorithm, key, units) for algorithm in ALGORITHMS for key, units in (("hot", 1), ("threes", cost))] * each
    admitted = load(daemons, connect, lambda n: random.Random(n).sample(checks, len(checks)))
    assert admitted == {(algorithm, key): most for algorithm in ALGORITHMS
                        for key, most in (("hot", limit), ("threes", limit // cost * cost))}


def test_daemons_on_one_redis_admit_exactly_the_limit_of_each_of_200_keys(ratelimitd, connect, redis):
    limit, n_keys = 3, 200
    daemons = [ratelimitd(CONFIG.replace("LIMIT", str(limit)), redis=redis) for _ in range(3)]
    checks = [(algorithm, f"key-{i}", 1) for algorithm in ALGORITHMS for i in range(n_keys)]
    admitted = load(daemons, connect, lambda n: random.Random(n).sample(checks, len(checks)))
    assert admitted == {(algorithm, f"key-{i}"): limit for algorithm in ALGORITHMS for i in range(n_keys)}


def test_daemons_on_one_redis_charge_several_limits_together_or_not_at_all(ratelimitd, connect, redis):
    """The key that all policies share admits exactly its limit. A denied check charges no other limit."""
    config = CONFIG + f"""  both:
    limits:
      - {{name: wide, algorithm: fixed_window, limit: 1000, window: {WINDOW}}}
      - {{name: narrow, algorithm: sliding_log, limit: 37, window: {WINDOW}}}
"""
    daemons = [ratelimitd(config.replace("LIMIT", "1"), redis=redis) for _ in range(2)]
    admitted = load(daemons, connect, lambda n: [("both", "k", 1)] * 30)
    assert admitted["both", "k"] == 37
    with redis.client() as client:
        count = next(int(client.get(key)) % 2**36 for key in client.keys("*both/wide:k"))
    assert count == 37
