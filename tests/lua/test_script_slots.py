"""test_script_slots.py: what the script does with slots of concurrency limits, in ops written by hand: keys of a foreign
type stay unchanged, and no score breaks a batch."""

import random

import pytest

from test_script import FUTURE_US, WRONG_TYPE, Batch

LIMIT, TTL_MS = 3, 10_000
NOW_MS = FUTURE_US // 1000


def slot(n):
    return f"{n:032d}"


CONSTANTS = (LIMIT, TTL_MS, 0, 0)


def ops(redis, sha, *some):
    """Runs ops of (kind, key, slot's number). Returns for each the used slots, or whether the slot was there."""
    batch = Batch()
    for key in sorted({key for _, key, _ in some}):
        batch.add_keys([key], False)
    limit = batch.limit("concurrency", *CONSTANTS)
    for at, (kind, key, number) in enumerate(some):
        place = batch.keys.index(key) + 1
        is_last = all(other != key for _, other, _ in some[at + 1:])
        if kind == "acquire":
            batch.loaded.append(("concurrency", limit, 1, place, [key]))
            batch.op("LOAD", limit, place, 1, 1, 0)
            batch.on_loaded("ACQUIRE", [(key, 1)], more=slot(number).encode())
            batch.op("SAVE", limit, place, 1, 0, 0)
        else:
            batch.op(kind.upper(), limit, place, 1, not is_last, 0, slot(number).encode())
            batch.expect("used", key)
    reply, n_bad = batch.integers(redis, sha)
    assert n_bad == 0 and len(reply) == len(batch.expected)
    return [value for (what, _), value in zip(batch.expected, reply) if what == "used"]


def peek(redis, sha, key):
    return Batch().check("concurrency", [key], CONSTANTS, [(0, 1)]).call(redis, sha)[:2]


def test_slots_are_taken_renewed_and_given_back(redis, sha):
    assert ops(redis, sha, *(("acquire", "k", n) for n in range(4))) == [0, 1, 2, 3]
    assert redis.zrange("k", 0, -1) == [slot(n).encode() for n in range(3)]
    assert ops(redis, sha, ("release", "k", 0), ("release", "k", 0), ("renew", "k", 0), ("renew", "k", 1)) == [1, 0, 0, 1]
    assert peek(redis, sha, "k") == [2, TTL_MS]
    assert redis.zscore("k", slot(0)) is None and redis.pexpiretime("k") == NOW_MS + 2 * TTL_MS


@pytest.mark.parametrize("kind", ["acquire", "release", "renew"])
@pytest.mark.parametrize("foreign", [name for name in WRONG_TYPE if name != "zset"])
def test_a_foreign_type_is_marked_and_left_alone(redis, sha, foreign, kind):
    WRONG_TYPE[foreign](redis, "bad")
    dump = redis.dump("bad")
    assert ops(redis, sha, ("acquire", "a", 1), (kind, "bad", 1), (kind, "a", 1))[1] == -1
    assert peek(redis, sha, "bad") == [-1, 0]
    assert redis.dump("bad") == dump and redis.exists("a") == (kind != "release")


def test_no_score_breaks_a_batch(redis, sha):
    rng = random.Random("slots")
    for _ in range(300):
        redis.flushall()
        for i in range(rng.randrange(1, 6)):
            score = rng.choice(["inf", "-inf", 1e300, -1, 0.5, NOW_MS + rng.uniform(-2 * TTL_MS, 2 * TTL_MS)])
            redis.zadd("k", {rng.choice([slot(i), "x", ""]): score})
        assert all(-1 <= value <= 2**53 for value in peek(redis, sha, "k"))
        for kind in ("acquire", "renew", "release"):
            assert all(-1 <= value <= 2**53 for value in ops(redis, sha, (kind, "k", rng.randrange(6))))
        s1, s2 = peek(redis, sha, "k")
        assert s2 // 2**26 <= TTL_MS and s2 % 2**26 <= TTL_MS and (s1 > 0) == (s2 > 0)
