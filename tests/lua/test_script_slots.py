"""test_script_slots.py: what the script does with slots of concurrency limits, in steps written by hand: keys of a foreign
type are left alone, and no score breaks a turn."""

import random
import re
import struct
from pathlib import Path

import pytest

from test_script import FUTURE_US, NUMBERS, WRONG_TYPE, Turn, wide

STEPS = Path(__file__).resolve().parent.parent.parent / "src" / "store" / "step.def"
KINDS = {name: i for i, name in enumerate(re.findall(r"^STEP\(\w+, (\w+)", STEPS.read_text(), re.M))}
IN_STEPS, NONCE = 65535, 77
LIMIT, TTL_MS = 3, 10_000
NOW_MS = FUTURE_US // 1000


def slot(n):
    return f"{n:032d}"


def steps(redis, sha, *some):
    """(kind, key, slot's number) each; their replies, two integers each."""
    keys = sorted({key for _, key, _ in some})
    packed = struct.pack("<I7xHBH", NONCE, IN_STEPS, 1, len(some))
    packed += struct.pack("<B", NUMBERS["concurrency"]) + b"".join(wide(value) for value in (LIMIT, TTL_MS, 0, 0))
    for kind, key, number in some:
        packed += struct.pack("<BBBH", KINDS[kind], 1, 1, keys.index(key) + 1) + wide(1) + slot(number).encode()
    reply = redis.evalsha(sha, len(keys), *keys, packed, FUTURE_US)
    assert reply[-3:] == [FUTURE_US, 0, NONCE] and len(reply) == 2 * len(some) + 3
    return list(zip(reply[:-3:2], reply[1:-3:2]))


def peek(redis, sha, key):
    return Turn().run("concurrency", 1, [key], LIMIT, TTL_MS, counts=[(0, 1)]).call(redis, sha)[:2]


def test_slots_are_taken_renewed_and_given_back(redis, sha):
    assert [s1 for s1, _ in steps(redis, sha, *(("acquire", "k", n) for n in range(4)))] == [0, 1, 2, 3]
    assert redis.zrange("k", 0, -1) == [slot(n).encode() for n in range(3)]
    assert steps(redis, sha, ("release", "k", 0), ("release", "k", 0), ("renew", "k", 0), ("renew", "k", 1)) == [
        (1, 0), (0, 0), (0, 0), (1, 0)]
    assert peek(redis, sha, "k") == [2, TTL_MS]
    assert redis.zscore("k", slot(0)) is None and redis.pexpiretime("k") == NOW_MS + 2 * TTL_MS


@pytest.mark.parametrize("kind", ["acquire", "release", "renew"])
@pytest.mark.parametrize("foreign", [name for name in WRONG_TYPE if name != "zset"])
def test_a_foreign_type_is_marked_and_left_alone(redis, sha, foreign, kind):
    WRONG_TYPE[foreign](redis, "bad")
    dump = redis.dump("bad")
    assert steps(redis, sha, ("acquire", "a", 1), (kind, "bad", 1), (kind, "a", 1))[1] == (-1, 0)
    assert peek(redis, sha, "bad") == [-1, 0]
    assert redis.dump("bad") == dump and redis.exists("a") == (kind != "release")


def test_no_score_breaks_a_turn(redis, sha):
    rng = random.Random("slots")
    for _ in range(300):
        redis.flushall()
        for i in range(rng.randrange(1, 6)):
            score = rng.choice(["inf", "-inf", 1e300, -1, 0.5, NOW_MS + rng.uniform(-2 * TTL_MS, 2 * TTL_MS)])
            redis.zadd("k", {rng.choice([slot(i), "x", ""]): score})
        assert all(-1 <= value <= 2**53 for value in peek(redis, sha, "k"))
        for kind in ("acquire", "renew", "release"):
            for value in steps(redis, sha, (kind, "k", rng.randrange(6)))[0]:
                assert -1 <= value <= 2**53
        s1, s2 = peek(redis, sha, "k")
        assert s2 // 2**26 <= TTL_MS and s2 % 2**26 <= TTL_MS and (s1 > 0) == (s2 > 0)
