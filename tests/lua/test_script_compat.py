"""test_script_compat.py: the presets' keys, values, types and expiries on a real server, by the server's own clock."""

import pytest
from harness import eventually
from test_script import COMPAT, WRONG_TYPE, Batch

KEY = "base:alice"
LIMIT, WINDOW_MS = 3, 5000 * 86_400_000  # no test meets an edge: they are years apart
COUNTED = {"window_start", "rlaas_fixed", "endpoint_window", "endpoint_log"}
ZSETS = {"rlaas_sliding", "endpoint_log"}


def constants(preset, limit=LIMIT, window_ms=WINDOW_MS):
    return (limit, window_ms, 0, int(preset in COUNTED))


def run(preset, count=1, **settings):
    return Batch().check(f"compat_{preset}", [KEY], constants(preset, **settings), [(count, 1)])


def loaded(preset):
    return Batch().load(f"compat_{preset}", [KEY], constants(preset))


def reset(preset):
    return Batch().reset(f"compat_{preset}", [KEY], constants(preset))


def check(redis, sha, preset, **settings):
    """The count before the check."""
    return run(preset, **settings).call(redis, sha, now=None)[0]


def peek(redis, sha, preset, **settings):
    return check(redis, sha, preset, count=0, **settings)


def name(redis, preset, window_ms=WINDOW_MS):
    seconds, micros = redis.time()
    now_ms = seconds * 1000 + micros // 1000
    if preset == "window_start":
        return f"{KEY}:{now_ms - now_ms % window_ms}"
    if preset == "rlaas_fixed":
        return f"{KEY}:{seconds // (window_ms // 1000)}"
    return KEY


def value(redis, preset):
    key = name(redis, preset)
    return redis.zcard(key) if preset in ZSETS else int(redis.get(key) or 0)


def near(ttl_ms, expected_ms):
    return expected_ms - 5000 < ttl_ms <= expected_ms


TTL_MS = {"window_start": WINDOW_MS + 1000, "rlaas_sliding": 2 * WINDOW_MS}
AFTER_SIX = {"window_start": 6, "rlaas_fixed": 6, "rlaas_sliding": 3, "first_hit": 3, "endpoint_window": 4,
             "endpoint_log": 6}


@pytest.mark.parametrize("preset", COMPAT)
def test_a_preset_keeps_the_originals_key_value_and_expiry(redis, sha, preset):
    for i in range(6):
        assert peek(redis, sha, preset) == min(i, AFTER_SIX[preset])
        assert check(redis, sha, preset) == min(i, AFTER_SIX[preset])
    assert redis.keys("*") == [name(redis, preset).encode()]
    assert value(redis, preset) == AFTER_SIX[preset]
    assert near(redis.pttl(name(redis, preset)), TTL_MS.get(preset, WINDOW_MS))


@pytest.mark.parametrize("preset", COMPAT)
def test_a_batch_charges_a_presets_key_several_times(redis, sha, preset):
    batch = loaded(preset)
    for _ in range(6):
        batch.group(1, (KEY, 1))
    batch.call(redis, sha, now=None)
    assert value(redis, preset) == AFTER_SIX[preset]
    assert near(redis.pttl(name(redis, preset)), TTL_MS.get(preset, WINDOW_MS))


@pytest.mark.parametrize("preset", ["window_start", "rlaas_fixed"])
def test_the_expiry_of_a_counter_is_set_once(redis, sha, preset):
    """The increment that creates the key sets the expiry. A key of the original keeps its expiry."""
    key = name(redis, preset)
    redis.set(key, 1, px=5000)
    check(redis, sha, preset)
    loaded(preset).group(1, (KEY, 1)).group(1, (KEY, 1)).call(redis, sha, now=None)
    assert value(redis, preset) == 4
    assert near(redis.pttl(key), 5000)
    redis.persist(key)
    check(redis, sha, preset)
    assert redis.pttl(key) == -1


@pytest.mark.parametrize("preset", COMPAT)
def test_a_peek_writes_nothing(redis, sha, preset):
    assert peek(redis, sha, preset) == 0
    assert redis.dbsize() == 0
    check(redis, sha, preset)
    before = redis.dump(name(redis, preset))
    redis.persist(name(redis, preset))
    assert peek(redis, sha, preset) == 1
    assert redis.dump(name(redis, preset)) == before
    assert redis.pttl(name(redis, preset)) == -1


@pytest.mark.parametrize("preset", COMPAT)
def test_a_reset_removes_the_present_window(redis, sha, preset):
    check(redis, sha, preset)
    assert reset(preset).call(redis, sha, now=None)[0] == 1
    assert reset(preset).call(redis, sha, now=None)[0] == 0
    assert redis.dbsize() == 0


@pytest.mark.parametrize("preset", COMPAT)
@pytest.mark.parametrize("foreign", WRONG_TYPE)
def test_what_is_not_the_originals_is_marked_and_left_alone(redis, sha, preset, foreign):
    if preset in ZSETS and foreign == "zset":
        pytest.skip("its own type")
    key = name(redis, preset)
    WRONG_TYPE[foreign](redis, key)  # a string that is not a number, too
    before = redis.dump(key)
    assert check(redis, sha, preset) == peek(redis, sha, preset) == -1
    assert loaded(preset).group(1, (KEY, 1)).call(redis, sha, now=None)[0] == -1
    assert reset(preset).call(redis, sha, now=None)[0] == -1
    assert redis.dump(key) == before


def test_a_key_that_means_another_presets_window_never_breaks_a_batch(redis, sha):
    """A window of rlaas_fixed and a log of rlaas_sliding have the same name, and neither exists when the script reads them. The
    first one to be saved gets the name; for checks of the other one, the key has a foreign type from then on."""
    for first, second in (("rlaas_fixed", "rlaas_sliding"), ("rlaas_sliding", "rlaas_fixed")):
        redis.flushall()
        window = name(redis, "rlaas_fixed")
        base = {"rlaas_fixed": KEY, "rlaas_sliding": window}

        def both():
            batch = Batch()
            for preset in (first, second):
                batch.load(f"compat_{preset}", [base[preset]], constants(preset))
            batch.load("compat_endpoint_log", ["bystander"], constants("endpoint_log"))
            for key in (base[first], base[second], "bystander"):
                batch.group(1, (key, 1)).group(1, (key, 1))
            return batch.call(redis, sha, now=None)[:3]

        assert both() == [0, 0, 0]
        assert redis.type(window) == (b"string" if first == "rlaas_fixed" else b"zset")
        assert near(redis.pttl(window), TTL_MS.get(first, WINDOW_MS))
        assert both() == [2, -1, 2]
        assert redis.zcard("bystander") == 4


@pytest.mark.parametrize("preset", COMPAT)
def test_numbers_of_any_kind_never_break_a_batch(redis, sha, preset):
    for number in ["-1", "-5", "0", "9007199254740993", "9223372036854775807", "1e300", "-inf", "inf", "0.5"]:
        redis.flushall()
        key = name(redis, preset)
        if preset in ZSETS:
            redis.zadd(key, {"m": float(number)})
        else:
            redis.set(key, number)
        for batch in (run(preset), loaded(preset).group(1, (KEY, 1)).group(0, (KEY, 1))):
            reply = batch.call(redis, sha, now=None)
            assert all(-1 <= part <= 2**53 for part in reply), (number, reply)


def test_the_window_of_a_first_hit_is_the_keys_life(redis, sha):
    for preset in ("first_hit", "endpoint_window"):
        redis.flushall()
        redis.set(KEY, 2, px=1500)
        reply = run(preset, window_ms=2000).call(redis, sha, now=None)
        assert reply[0] == 2
        assert 1000 < reply[1] - reply[2] // 1000 <= 1501
        redis.set(KEY, 2)  # an existing key without expiry gets one
        reply = run(preset, window_ms=2000).call(redis, sha, now=None)
        assert reply[1] - reply[2] // 1000 == 2000
        assert near(redis.pttl(KEY), 2000)


def test_a_log_returns_when_its_oldest_entry_expires(redis, sha):
    seconds, micros = redis.time()
    now_ms = seconds * 1000 + micros // 1000
    for preset, denied_wait in (("rlaas_sliding", 1000), ("endpoint_log", 2000)):
        redis.flushall()
        redis.zadd(KEY, {"gone": now_ms - 11_000, "a": now_ms - 9000, "b": now_ms - 8000, "c": now_ms - 1000})
        reply = run(preset, window_ms=10_000).call(redis, sha, now=None)
        assert reply[0] == 3
        assert reply[1] == (now_ms - 1000) * 1000
        seconds, micros = redis.time()
        passed_ms = seconds * 1000 + micros // 1000 + 1 - now_ms
        assert denied_wait - passed_ms <= reply[3] / 1000 <= denied_wait
        assert redis.zscore(KEY, "gone") is None


def test_members_are_unique_within_a_millisecond(redis, sha):
    for nonce in (1, 2):
        batch = loaded("endpoint_log")
        for _ in range(5):
            batch.group(1, (KEY, 1))
        batch.call(redis, sha, now=4_000_000_000_000_000, nonce=nonce)
    assert redis.zcard(KEY) == 10


def test_windows_in_the_keys_name_end_by_the_servers_clock(redis, sha):
    def second():
        return redis.time()[0]

    def in_one_second(preset, n):
        """None: a second ended in between."""
        redis.flushall()
        begun = second()
        counts = [check(redis, sha, preset, window_ms=1000) for _ in range(n)]
        return counts if second() == begun else None

    for preset in ("window_start", "rlaas_fixed"):
        assert eventually(lambda: in_one_second(preset, 2), "two checks in one second") == [0, 1]  # noqa: B023
        begun = second()
        eventually(lambda: second() > begun, "the second ends")  # noqa: B023
        assert check(redis, sha, preset, window_ms=1000) == 0
