"""test_script_ops.py: what the script does with idempotency records, reservations and refunds, in ops written by hand:
foreign values do no harm, everything expires, and no log makes a call take long."""

import struct

import pytest

from test_script import FUTURE_US, WRONG_TYPE, Batch, no_key_lacks_an_expiry, wide

VERSION, KEEP_MS = 9, 60_000
FUTURE_MS, DAY_MS = FUTURE_US // 1000, 86_400_000
RESERVATION = b"\1\2\3\4\5\6\7\0"
LONGEST_US = 10**15
BUCKET = ("bucket", 9, LONGEST_US, 9 * LONGEST_US, 9 * LONGEST_US)  # level and rounding above 2^53 together


def window(limit):
    return ("fixed_window", limit, DAY_MS, 0, 0)


def log(limit):
    return ("sliding_log", limit, DAY_MS * 1000, 0, 0)


def ops(redis, sha, limit, keys, *some, now=FUTURE_US):
    """Runs ops of (kind, cost, its count, with a record or not, further fields), each on keys[0]; the second key is for records or
    reservations. Returns all integers of the reply, and the number of malformed values."""
    algorithm, *constants = limit
    batch = Batch()
    has_record = any(recorded for *_, recorded, _ in some)
    place = batch.load(algorithm, keys[:1], (*constants,)).loaded[0][1]
    if has_record or len(keys) > 1:
        batch.add_keys(keys[1:], has_record and algorithm != "sliding_log")
        batch.list = None if has_record else keys[1]
    for kind, cost, count, recorded, more in some:
        if algorithm == "sliding_log" and kind in ("REFUND", "SETTLE"):
            batch.op("SAVE", place, 1, 1, 0, 0)  # what it gives back must be in the log
            batch.op("LOAD", place, 1, 1, 1, 0)
        units = 0 if kind == "SETTLE" else cost
        batch.on_loaded(kind, [(keys[0], units)], count, cost if kind in ("REFUND", "SETTLE") else 0,
                        keys[1] if recorded else None, more, KEEP_MS, VERSION)
    return batch.save().integers(redis, sha, now)


def check(cost, recorded=False):
    return ("CHECK_ALL", cost, 1, recorded, b"")


def refund(units, made=0):
    return ("REFUND", units, 0, False, bytes(8) + wide(0) + wide(made) + wide(0))


def reserve(units, ttl_ms):
    return ("RESERVE", units, 1, False, RESERVATION + wide(units) + wide(0) + wide(ttl_ms))


def settle(held, made, ends, used):
    return ("SETTLE", used, 0, False, RESERVATION + b"".join(wide(value) for value in (held, made, ends)))


def record_of(at, s1, s2, units):
    return wide(at) + struct.pack("<I", VERSION) + wide(s1) + wide(s2) + wide(units)


# ---- idempotency records ------------------------------------------------------------------------------------------


def test_a_record_has_the_format_of_this_file(redis, sha):
    assert ops(redis, sha, window(5), ["k", "n"], check(2), check(2, recorded=True)) == ([0, 2, 0, 0, 0], 0)
    assert redis.get("n") == record_of(FUTURE_US, 2, 0, 2)
    assert ops(redis, sha, window(5), ["k", "n"], check(2, recorded=True)) == ([2, 1, FUTURE_US, 2], 0)


@pytest.mark.parametrize("value", [2**53, 2**56 - 1])
@pytest.mark.parametrize("place", range(4))
def test_a_record_with_numbers_that_no_daemon_takes_is_ignored(redis, sha, place, value):
    numbers = [FUTURE_US, 0, 0, 1]
    numbers[place] = value
    redis.set("n", record_of(*numbers), px=60_000)
    assert ops(redis, sha, window(5), ["k", "n"], check(2, recorded=True), check(1)) == ([0, 0, 0, 0, 2], 1)
    assert redis.get("n") == record_of(FUTURE_US, 0, 0, 2)


# ---- reservations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["inf", 1e300, 2.0**62])
def test_a_reservation_that_never_ends_breaks_no_batch(redis, sha, score):
    redis.zadd("h", {b"x" * 22: score})
    reply, _ = ops(redis, sha, window(5), ["k", "h"], reserve(2, 1000), settle(2, FUTURE_US, FUTURE_MS + 1000, 1))
    assert reply == [0, 1, 0, 1]  # before; after, reserved, one given back
    assert redis.pexpiretime("h") <= FUTURE_MS + DAY_MS + 120_000
    no_key_lacks_an_expiry(redis)


def test_an_unknown_reservation_that_ends_in_more_than_a_day_is_ignored_and_leaves_no_tombstone(redis, sha):
    """A reservation token is not a secret, and a forged one may contain any time."""
    reply, _ = ops(redis, sha, window(5), ["k", "h"], settle(2, 2**53 - 1, 2**53 // 1000 + 1000, 1))
    assert reply == [0, 3, 0] and redis.keys() == []


def test_what_was_settled_is_remembered_for_a_day_where_the_clock_stepped_back_before_it(redis, sha):
    then = FUTURE_US + 3 * DAY_MS * 1000
    ops(redis, sha, window(5), ["k", "h"], reserve(2, 1000), now=then)
    settled = settle(2, then, then // 1000 + 1000, 1)
    assert ops(redis, sha, window(5), ["k", "h"], settled, settled)[0] == [0, 0, 0, 0, 1, 0]
    assert redis.zrange("h", 0, -1, withscores=True) == [(RESERVATION, FUTURE_MS + DAY_MS + 60_000)]
    assert redis.pexpiretime("h") == FUTURE_MS + DAY_MS + 120_000


@pytest.mark.parametrize("foreign", [name for name in WRONG_TYPE if name != "zset"])
@pytest.mark.parametrize("limit", [window(5), log(5)], ids=["window", "log"])
def test_a_list_of_a_foreign_type_harms_only_what_is_settled_by_it(redis, sha, limit, foreign):
    """A list of reservations, or of merges: a merge is a settlement of what was never held."""
    WRONG_TYPE[foreign](redis, "h")
    dump = redis.dump("h")
    reply, _ = ops(redis, sha, limit, ["k", "h"], check(2), settle(0, FUTURE_US, FUTURE_MS + 1000, 1), check(1))
    reply = [value for value in reply if value not in (FUTURE_US, 0)]
    assert reply == [-1, 2, 2] and redis.dump("h") == dump  # refused, as one that has ended; then 2 of 5 are used
    assert ops(redis, sha, limit, ["k"], check(0))[0][0] == 3


# ---- refunds ------------------------------------------------------------------------------------------------------


def test_a_bucket_gives_back_no_more_than_it_was_charged_where_a_double_rounds(redis, sha):
    reply, _ = ops(redis, sha, BUCKET, ["k"], check(9), refund(100))
    assert reply == [0, 0, 9]


def test_a_log_with_a_lowered_limit_keeps_what_still_counts_when_units_come_back(redis, sha):
    ops(redis, sha, log(10), ["k"], check(10))
    for left in range(9, 2, -1):
        assert ops(redis, sha, log(3), ["k"], refund(1)) == ([left, FUTURE_US, 1], 0)
    assert ops(redis, sha, log(3), ["k"], check(1))[0][0] == 3


def entries(redis, key):
    return [int(time) - FUTURE_US for time in redis.lrange(key, 0, -1)]


@pytest.mark.parametrize("made, units, left", [
    (0, 2, [0, 1, 1, 2, 2, 2, 3]), (2, 2, [0, 1, 1, 2, 3, 3, 3]), (2, 4, [0, 1, 3, 3, 3]), (1, 9, [2, 2, 2, 3, 3, 3]),
    (3, 9, []), (-1, 2, [0, 1, 1, 2, 2, 2, 3, 3, 3])])
def test_a_log_gives_back_the_newest_that_are_not_later_than_the_charge(redis, sha, made, units, left):
    for at, cost in enumerate((1, 2, 3, 3)):
        ops(redis, sha, log(10), ["k"], check(cost), now=FUTURE_US + at)
    made_us = FUTURE_US + made if made else 0
    reply, _ = ops(redis, sha, log(10), ["k"], refund(units, made_us), now=FUTURE_US + 3)
    assert entries(redis, "k") == left
    assert reply == [len(left), FUTURE_US + left[-1] if left else 0, 9 - len(left)]
    no_key_lacks_an_expiry(redis)


@pytest.mark.parametrize("junk", [b"-5", b"nan", b"inf", b"1e300", b"x"])
def test_what_is_no_time_amid_a_log_harms_nobody_when_units_come_back(redis, sha, junk):
    redis.rpush("k", FUTURE_US - 1, junk, FUTURE_US)
    left, newest, back = ops(redis, sha, log(10), ["k"], refund(1))[0]
    assert (left, back) == (2, 1) and 0 <= newest <= FUTURE_US


def commands(redis):
    return sum(stats["calls"] for stats in redis.info("commandstats").values())


@pytest.mark.parametrize("what", ["its own", "others' too", "the clock stepped back"])
def test_no_command_of_its_own_for_each_unit_of_a_large_log(redis, sha, what):
    """Earlier, cancelling a reservation of an hour ago read and wrote all of thousands of later units."""
    for at in range(3):
        ops(redis, sha, log(10_000), ["k"], check(1), now=FUTURE_US + at)
    for _ in range(9):
        ops(redis, sha, log(10_000), ["k"], check(1000), now=FUTURE_US + 10)
    redis.config_resetstat()
    if what == "the clock stepped back":
        assert ops(redis, sha, log(10_000), ["k"], refund(1, 1), now=FUTURE_US + 2) == ([9003, FUTURE_US + 2, 0], 0)
        assert entries(redis, "k") == [0, 1] + [2] * 9001
    else:
        units = 1 if what == "its own" else 2
        reply, _ = ops(redis, sha, log(10_000), ["k"], refund(units, FUTURE_US + 1), now=FUTURE_US + 11)
        assert reply == [9003 - units, FUTURE_US + 10, units]
        assert entries(redis, "k") == [0, 2][units - 1:] + [10] * 9000
    assert commands(redis) < 60
    no_key_lacks_an_expiry(redis)
