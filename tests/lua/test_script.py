"""test_script.py: the stitched script on a real server: it decides like the C algorithms, and a broken value of one key affects
only that key."""

import random
import re
import struct
from pathlib import Path

import pytest
import traces

FUTURE_US = 4_000_000_000_000_000  # the year 2096: the expiries of the test's keys do not pass
SOURCE = Path(__file__).resolve().parent.parent.parent / "src"
LUA = SOURCE.parent / "lua"
TABLE, CODEC = SOURCE / "limit" / "algo.def", SOURCE / "redis" / "batch_private.h"
NUMBERS = {name: i for i, name in enumerate(re.findall(r"^ALGO\(\w+, (\w+)", TABLE.read_text(), re.M))}
COMPAT = [name.removeprefix("compat_") for name in NUMBERS if name.startswith("compat_")]
# Slots have their own ops: test_script_slots.py.
NATIVE = [name for name in NUMBERS if not name.startswith("compat_") and name != "concurrency"]


def rows_with(setting):
    """The native algorithms whose table in C has the setting."""
    files = {name: SOURCE / "limit" / f"{'bucket' if name == 'leaky_bucket' else name}.c" for name in [*NATIVE, "concurrency"]}
    return {name for name, file in files.items() if f".{setting}," in file.read_text()}


# Read by MGET, with a second integer, logs.
MGET = rows_with("kind = STATE_STRING")
SECOND = rows_with("has_extra = true") | {"compat_rlaas_sliding", "compat_first_hit", "compat_endpoint_window", "compat_endpoint_log"}
LOGS = rows_with("has_wait = true") | {"compat_rlaas_sliding", "compat_endpoint_log"}
KINDS = {name: i for i, name in enumerate(re.findall(r"^ *KIND_(\w+),", CODEC.read_text(), re.M))}


class Batch:
    """A packed batch, written from the comment at the head of lua/batch.lua."""

    def __init__(self):
        self.keys, self.n_mget, self.limits, self.ops = [], 0, [], []
        self.expected = []  # for each integer of the reply: its meaning, and its key
        self.loaded = []  # (algorithm, its limit, step, first key, keys)

    def limit(self, algorithm, *constants):
        sent = "bucket" if algorithm == "leaky_bucket" else algorithm
        self.limits.append(struct.pack("<B", NUMBERS[sent]) + b"".join(wide(value) for value in constants))
        return len(self.limits)

    def op(self, kind, limit, first, n, count, cost, more=b""):
        self.ops.append(struct.pack("<BBHH", KINDS[kind], limit, first, n) + wide(count)[:5] + wide(cost) + more)

    def add_keys(self, keys, mget):
        assert not mget or self.n_mget == len(self.keys)
        self.n_mget += len(keys) if mget else 0
        self.keys += keys
        return len(self.keys) - len(keys) + 1

    def expect(self, what, key):
        self.expected.append((what, key))

    def check(self, algorithm, keys, constants, counts=None):
        """(count, cost) of each key, when no other op of the batch uses the key."""
        limit = self.limit(algorithm, *constants)
        counts = counts or [(1, 1)] * len(keys)
        own_way = algorithm == "fixed_window" and any(count for count, _ in counts)
        first = self.add_keys(keys, algorithm in MGET and not own_way)
        for i, (count, cost) in enumerate(counts):
            self.op("CHECK", limit, first + i, 1, count, cost)
            self.expect("used", keys[i])
            if algorithm in SECOND:
                self.expect("second", keys[i])
            if algorithm in LOGS:
                self.expect("wait", keys[i])
        return self

    def reset(self, algorithm, keys, constants, own=False):
        first = self.add_keys(keys, algorithm in MGET)
        self.op("RESET", self.limit(algorithm, *constants), first, len(keys), 0, own)
        for key in keys:
            self.expect("used", key)
        return self

    def load(self, algorithm, keys, constants, count=1):
        limit = self.limit(algorithm, *constants)
        first = self.add_keys(keys, algorithm in MGET)
        self.op("LOAD", limit, first, len(keys), count, 0)
        step = constants[1] if algorithm in ("bucket", "leaky_bucket") else 1
        self.loaded.append((algorithm, limit, step, first, keys))
        return self

    def of_key(self, key):
        return next(loaded for loaded in self.loaded if key in loaded[4])

    def on_loaded(self, kind, members, count=1, cost=0, record=None, more=b"", keep_ms=60_000, version=9):
        """An op on loaded states; members (key, cost). `more`: the additional fields of the op."""
        packed = struct.pack("<BHH", len(members), self.keys.index(record) + 1 if record else 0,
                             self.keys.index(self.list) + 1 if more and kind != "ACQUIRE" and self.list else 0)
        for key, units in members:
            packed += struct.pack("<HB", self.keys.index(key) + 1, 0) + wide(self.of_key(key)[2]) + wide(units)
        if record:
            packed += struct.pack("<Q", keep_ms)[:6] + struct.pack("<I", version)
        self.op(kind, 0, 0, 1, count, cost, packed + more)
        for key, _ in members:
            self.expect("used", key)
            if self.of_key(key)[0] in SECOND:
                self.expect("second", key)
        for what in (["record", "record"] + ["record"] * len(members) if record else []):
            self.expect(what, None)
        for _ in range({"SETTLE": 2, "REFUND": len(members)}.get(kind, 0)):
            self.expect("returned", None)
        if kind in ("CHECK_ALL", "ACQUIRE", "RESERVE"):
            for key, _ in members:
                if self.of_key(key)[0] in LOGS:
                    self.expect("wait", key)
        return self

    list = None  # the key of the list of reservations
    flags = 0  # 1: keys are loaded
    is_declared = True  # its keys; else the script has to take the time away from the arguments

    def group(self, count, *members):
        return self.on_loaded("CHECK_ALL", members, count)

    def save(self):
        for _, limit, _, first, keys in self.loaded:
            self.op("SAVE", limit, first, len(keys), 0, 0)
        return self

    def integers(self, redis, sha, now=FUTURE_US, nonce=77, latest=0):
        """The reply without its last three integers, and the number of malformed values."""
        packed = struct.pack("<I", nonce) + wide(latest) + struct.pack("<BHBH", self.flags, self.n_mget, len(self.limits), len(self.ops))
        time = [now] if now else []  # else the server's
        reply = redis.evalsha(sha, len(self.keys) if self.is_declared else 0, *self.keys, packed + b"".join(self.limits + self.ops), *time)
        assert reply[-1] == nonce
        self.now = reply[-3]
        return reply[:-3], reply[-2]

    def call(self, redis, sha, now=FUTURE_US, nonce=77):
        """The first integer reported for each key, in order. The reply has all first integers, then the second ones, now, the
        waits that are set, malformed values, nonce."""
        self.save()
        reply, n_bad = self.integers(redis, sha, now, nonce)
        assert len(reply) == len(self.expected)
        used, second, waits = {}, {}, []
        for (what, key), value in zip(self.expected, reply):
            if what == "used":
                used.setdefault(key, value)
            elif what == "second":
                second.setdefault(key, value)
            elif what == "wait" and value > 0:
                waits.append(value)
        asked = [key for key in self.keys if key in used]
        return ([used[key] for key in asked] + [second[key] for key in asked if key in second]
                + [self.now, *waits, n_bad, nonce])


def wide(value):
    return struct.pack("<Q", value)[:7]


def bucket(keys, counts=None, limit=5):
    """5 per second: 1 token per 200 000 us, and 5 at once."""
    return Batch().check("bucket", keys, (1, 1_000_000 // limit, 1_000_000, 1_000_000), counts)


def no_key_lacks_an_expiry(redis):
    for key in redis.keys("*"):
        assert redis.pttl(key) > 0, key


def test_a_batch_charges_every_key_once(redis, sha):
    keys = ["a", "b", "c"]
    assert bucket(keys).call(redis, sha) == [0, 0, 0, FUTURE_US, 0, 77]
    assert bucket(keys).call(redis, sha) == [200_000] * 3 + [FUTURE_US, 0, 77]
    assert bucket(["a"], [(9, 1)]).call(redis, sha)[0] == 400_000
    assert bucket(["a"], [(0, 1)]).call(redis, sha)[0] == 1_000_000
    no_key_lacks_an_expiry(redis)


def test_a_fixed_window_rolls_back_what_does_not_fit(redis, sha):
    def check(count, cost, now=FUTURE_US):
        return Batch().check("fixed_window", ["w"], (5, 1000, 0, 0), [(count, cost)]).call(redis, sha, now)[0]
    assert check(2, 2) == 0
    assert check(3, 2) == 4
    assert check(1, 1) == 4
    assert check(7, 1) == 5
    assert check(0, 1) == 5
    assert check(0, 1, FUTURE_US + 1_000_000) == 0
    assert check(100, 2, FUTURE_US + 1_000_000) == 0
    assert check(0, 1, FUTURE_US + 1_000_000) == 4
    no_key_lacks_an_expiry(redis)


def test_a_fixed_window_counts_again_if_the_clock_returns_over_more_windows_than_the_value_tells_apart(redis, sha):
    def check(count, now):
        return Batch().check("fixed_window", ["w"], (5, 1, 0, 0), [(count, 1)]).call(redis, sha, now)[0]

    for n_windows, found_again in ((2**15 - 1, 0), (2**15 + 1, 3)):
        redis.flushall()
        assert check(3, FUTURE_US) == 0
        assert check(0, FUTURE_US - n_windows * 1000) == 0
        assert check(0, FUTURE_US) == found_again


def test_a_sliding_counter_is_14_bytes_that_live_to_the_end_of_the_next_window(redis, sha):
    def check(count, now):
        batch = Batch().check("sliding_counter", ["c"], (4, 1000, 2**32 - 1, 0), [(count, 1)])
        return batch.call(redis, sha, now)[:2]

    def state():
        return struct.pack("<Q", FUTURE_US // 1_000_000 + window)[:6] + struct.pack("<II", previous, count)
    assert check(9, FUTURE_US) == [0, 0]
    window, previous, count = 0, 0, 4
    assert redis.get("c") == state() and redis.pexpiretime("c") == FUTURE_US // 1000 + 2000
    assert check(1, FUTURE_US + 1_250_000) == [0, 4]
    window, previous, count = 1, 4, 1
    assert redis.get("c") == state() and redis.pexpiretime("c") == FUTURE_US // 1000 + 3000
    assert check(9, FUTURE_US + 1_750_000) == [1, 4]
    count = 3
    assert redis.get("c") == state() and redis.pexpiretime("c") == FUTURE_US // 1000 + 3000
    assert check(0, FUTURE_US + 250_000) == [3, 4]  # the clock stepped back: written although nothing is charged
    window = 0
    assert redis.get("c") == state() and redis.pexpiretime("c") == FUTURE_US // 1000 + 2000
    assert check(0, FUTURE_US + 2_000_000) == [0, 0]


def test_a_calendar_window_is_11_bytes_that_live_to_its_end(redis, sha):
    begin, end, after = (FUTURE_US // 1000 + ms for ms in (-500, 500, 1500))

    def check(count, now_ms):
        batch = Batch().check("calendar_window", ["c"], (4, begin, end, after), [(count, 1)])
        return batch.call(redis, sha, now_ms * 1000 + 999)[:2]

    def state(count, ends):
        return struct.pack("<Q", count)[:5] + struct.pack("<Q", ends)[:6]
    assert check(2, begin) == [0, 0]
    assert redis.get("c") == state(2, end) and redis.pexpiretime("c") == end
    assert check(9, end - 1) == [2, end]
    assert redis.get("c") == state(4, end) and redis.pexpiretime("c") == end
    assert check(0, end) == [0, 0]
    assert check(1, end) == [0, 0]
    assert redis.get("c") == state(1, after) and redis.pexpiretime("c") == after
    assert check(0, end - 1) == [0, 0]  # the clock stepped back: forgotten, although nothing is charged
    assert redis.get("c") == state(0, end) and redis.pexpiretime("c") == end
    assert check(1, end - 1) == [0, end]


def test_the_scripts_clock_chooses_the_calendars_window(redis, sha):
    """The host's window is [0, 500). It may be one window off in each direction; for larger differences there is a rule."""
    begin, end, after = (FUTURE_US // 1000 + ms for ms in (0, 500, 1500))
    for now, ends in ((begin - 100_000, begin), (begin - 1, begin), (begin, end), (end - 1, end), (end, after),
                      (after - 1, after), (after, after + 1000), (after + 999, after + 1000), (after + 1000, after + 2000),
                      (after + 123_456_789, after + 123_457_000)):
        redis.flushall()
        Batch().check("calendar_window", ["c"], (4, begin, end, after)).call(redis, sha, now * 1000)
        assert redis.pexpiretime("c") == ends


def test_ops_charge_all_limits_or_none(redis, sha):
    def batch():
        return (Batch().load("bucket", ["b"], (1, 200_000, 1_000_000, 1_000_000)).load("fixed_window", ["w"], (2, 1000, 0, 0))
                .load("sliding_log", ["l"], (3, 1_000_000, 0, 0)))
    ops = batch().group(1, ("b", 1), ("w", 1)).group(1, ("b", 4), ("w", 2)).group(1, ("b", 4), ("l", 3)).save()
    assert ops.integers(redis, sha) == ([0, 0, 200_000, 1, 200_000, 0, 0, 0], 0)
    ops = batch().group(1, ("l", 1)).group(0, ("b", 1)).group(0, ("w", 1)).save()
    assert ops.integers(redis, sha) == ([3, FUTURE_US, 1_000_000, 1_000_000, 1], 0)
    no_key_lacks_an_expiry(redis)


def test_a_script_that_begins_too_late_does_nothing(redis, sha):
    batch = bucket(["a"])
    packed = struct.pack("<I", 77) + wide(FUTURE_US - 1) + struct.pack("<BHBH", 0, 1, 1, 1) + batch.limits[0] + batch.ops[0]
    assert redis.evalsha(sha, 1, "a", packed, FUTURE_US) == [-2, FUTURE_US, 77]
    assert redis.dbsize() == 0
    assert bucket(["a"]).integers(redis, sha, latest=FUTURE_US) == ([0], 0)
    assert redis.dbsize() == 1


def test_a_reset_returns_whether_there_was_a_state(redis, sha):
    bucket(["a"]).call(redis, sha)
    redis.rpush("log", FUTURE_US - 2000)
    redis.rpush("live log", FUTURE_US - 500)
    redis.sadd("foreign", "m")
    batch = (Batch().reset("bucket", ["a", "b", "foreign"], (1, 200_000, 1_000_000, 1_000_000))
             .reset("sliding_log", ["log", "live log"], (3, 1000, 0, 0)))
    assert batch.integers(redis, sha) == ([1, 0, -1, 0, 1], 0)
    assert redis.keys("*") == [b"foreign"]


def test_a_reset_deletes_an_own_key_whatever_its_type(redis, sha):
    redis.sadd("a", "m")
    redis.set("log", "x")
    batch = (Batch().reset("bucket", ["a", "b"], (1, 200_000, 1_000_000, 1_000_000), own=True)
             .reset("sliding_log", ["log"], (3, 1000, 0, 0), own=True))
    assert batch.integers(redis, sha) == ([1, 0, 1], 2)
    assert redis.dbsize() == 0


def test_production_reads_the_servers_clock(redis, sha):
    seconds, micros = redis.time()
    reply = bucket(["a"]).call(redis, sha, now=None)
    assert abs(reply[1] - (seconds * 1_000_000 + micros)) < 5_000_000


def test_the_clock_is_read_once_and_nothing_waits_for_it():
    """On some servers TIME stands still within a script, so that a loop that waits for it never ends."""
    script = "".join(path.read_text() for path in LUA.glob("*.lua"))
    assert len(re.findall(r"\bTIME\b", re.sub(r"--.*", "", script))) == 1


MALFORMED = ["", "x", "a" * 19, "b" * 21, "12", "-5", "9223372036854775807", "00012", "1e5", "nan", "\xff" * 10, "1" * 400]
WRONG_TYPE = {
    "string": lambda redis, key: redis.set(key, "x"),
    "list": lambda redis, key: redis.rpush(key, "nan"),
    "hash": lambda redis, key: redis.hset(key, "f", "v"),
    "zset": lambda redis, key: redis.zadd(key, {"m": 1}),
    "set": lambda redis, key: redis.sadd(key, "m"),
}
LIMITS = dict.fromkeys(NATIVE, (5, 1000, 0, 0)) | {  # algorithm -> a, b, c, d
    "bucket": (1, 200_000, 1_000_000, 1_000_000),
    "sliding_log": (5, 1_000_000, 0, 0),
    "sliding_counter": (5, 1000, 2**32 - 1, 0),
    "leaky_bucket": (1, 200_000, 1_400_000, 1_600_000),
    "calendar_window": (5, FUTURE_US // 1000 - 500, FUTURE_US // 1000 + 500, FUTURE_US // 1000 + 1500),
}


def peeks(algorithm, keys):
    return Batch().check(algorithm, keys, LIMITS[algorithm], [(0, 1)] * len(keys))


def mixed_batch(algorithm, shape):
    """Keys `before`, `bad` and `after` in one batch, `bad` in the given shape."""
    keys = ["before", "bad", "after"]
    if shape == "loaded":
        batch = Batch().load(algorithm, keys, LIMITS[algorithm])
        for key in keys:
            batch.group(1, (key, 1)).group(1, (key, 2))
        return batch
    if shape == "peek" and algorithm == "fixed_window":
        keys = ["bad", "before", "after"]  # keys read by MGET come first
        return (Batch().check(algorithm, keys[:1], LIMITS[algorithm], [(0, 1)])
                .check(algorithm, keys[1:], LIMITS[algorithm], [(2, 1)] * 2))
    return Batch().check(algorithm, keys, LIMITS[algorithm], [(2, 1), (0, 1) if shape == "peek" else (3, 1), (2, 1)])


def seen(batch, redis, sha):
    """The first integer reported for each key, and the whole reply."""
    reply = batch.call(redis, sha)
    return dict(zip(batch.keys, reply)), reply


@pytest.mark.parametrize("shape", ["direct", "peek", "loaded"])
@pytest.mark.parametrize("algorithm", NATIVE)
def test_a_malformed_value_counts_as_fresh_and_harms_nobody(redis, sha, algorithm, shape):
    for value in MALFORMED:
        redis.flushall()
        if algorithm == "sliding_log":
            redis.rpush("bad", value, value)
        else:
            redis.set("bad", value.encode("latin-1"))
        first, _ = seen(mixed_batch(algorithm, shape), redis, sha)
        assert first["before"] == 0 and first["after"] == 0
        if not (value.isdigit() and algorithm in ("fixed_window", "sliding_log")) and value != "\xff" * 10:
            assert first["bad"] == 0, value
        again = peeks(algorithm, ["before", "after"]).call(redis, sha)
        assert again[0] == again[1] != 0
        if shape != "peek":
            assert redis.pttl("bad") > 0


@pytest.mark.parametrize("shape", ["direct", "peek", "loaded"])
@pytest.mark.parametrize("foreign", WRONG_TYPE)
@pytest.mark.parametrize("algorithm", NATIVE)
def test_a_foreign_type_is_marked_and_left_alone(redis, sha, algorithm, foreign, shape):
    if foreign == ("list" if algorithm == "sliding_log" else "string"):
        pytest.skip("its own type")
    WRONG_TYPE[foreign](redis, "bad")
    dump = redis.dump("bad")
    first, _ = seen(mixed_batch(algorithm, shape), redis, sha)
    assert first == {"before": 0, "bad": -1, "after": 0}
    assert redis.dump("bad") == dump
    again = peeks(algorithm, ["before", "after"]).call(redis, sha)
    assert again[0] == again[1] != 0


@pytest.mark.parametrize("algorithm", NATIVE)
def test_random_bytes_never_break_a_batch(redis, sha, algorithm):
    rng = random.Random(algorithm)
    module = (LUA / f"{'bucket' if algorithm == 'leaky_bucket' else algorithm}.lua").read_text()
    for _ in range(300):
        redis.flushall()
        if algorithm == "sliding_log":
            for _ in range(rng.randrange(1, 6)):
                value = rng.choice([str(FUTURE_US + rng.randrange(-2_000_000, 2_000_000)), "nan", "-1", "x", ""])
                redis.rpush("bad", value)
        elif algorithm == "fixed_window":
            redis.set("bad", str(rng.randrange(-2**63, 2**63) >> rng.randrange(64)))
        else:
            redis.set("bad", rng.randbytes(int(re.search(r"#raw == (\d+)", module)[1])))
        for shape in ("peek", "direct", "loaded"):
            reply = mixed_batch(algorithm, shape).call(redis, sha)
            assert all(-1 <= value <= 2**53 for value in reply)
        no_key_lacks_an_expiry(redis)


class Trace:
    """A random trace for the replay program: several policies and keys, ticks with several steps, clocks that step back.

    A fixed window's number is stored mod 2^16. Only the key's expiry, which a test's clock does not drive, separates windows
    that are 2^15 or more apart. So every trace is shorter than that.
    """

    POLICIES = [
        ("b10", "token_bucket", 10, 1_000_000, 0, 0), ("b7", "gcra", 7, 1_000_000, 3, 0),
        ("bslow", "token_bucket", 1, 31_536_000_000_000, 2, 0), ("bfast", "gcra", 1_000_000, 1_000, 20, 0),
        ("fw", "fixed_window", 5, 500_000, 0, 0), ("fwd", "fixed_window", 5, 500_000, 0, 1),
        ("fw1", "fixed_window", 1, 10_000, 0, 0), ("fh", "first_hit", 5, 500_000, 0, 0),
        ("fhd", "first_hit", 4, 300_000, 0, 1), ("sl", "sliding_log", 6, 400_000, 0, 0),
        ("sld", "sliding_log", 6, 400_123, 0, 1), ("slbig", "sliding_log", 1500, 900_000, 0, 0),
        ("sc", "sliding_counter", 5, 500_000, 0, 0), ("sc7", "sliding_counter", 7, 13_000, 0, 0),
        ("lb", "leaky_bucket", 5, 500_000, 3, 0, 250_000), ("lb1", "leaky_bucket", 10, 1_000_000, 1, 0, 1_000_123),
        ("cw", "calendar_window", 5, "hour,Australia/Lord_Howe,monday", 0, 0), ("never", "fixed_window", 0, 1_000, 0, 0),
    ]
    POLICIES += [(name, name, 5, 500_000, 0, 0) for name in sorted(set(traces.NATIVE) - {row[1] for row in POLICIES})]
    LIMITS = {name: limit for name, _, limit, *_ in POLICIES}
    LIMITS["b7"], LIMITS["bslow"], LIMITS["bfast"], LIMITS["lb"], LIMITS["lb1"] = 3, 2, 20, 3, 1

    def __init__(self, seed, back, ticks=120):
        self.rng = random.Random(seed)
        self.lines = []
        for name, *settings in self.POLICIES:
            self.lines += [f"policy {name} 1", "limit - " + " ".join(map(str, settings))]
        self.lines += ["policy both 2", "limit min first_hit 4 60000 0 0", "limit log sliding_log 3 250000 0 0"]
        self.lines += ["policy queue 2", "limit q leaky_bucket 20 1000000 2 0 400000", "limit w fixed_window 9 500000 0 1"]
        now = FUTURE_US + self.rng.randrange(10**9)
        for _ in range(ticks):
            now += self.rng.choice([0, 0, 1, self.rng.randrange(1000), self.rng.randrange(200_000), 600_000])
            if back and self.rng.random() < 0.1:
                now -= self.rng.randrange(900_000)
            self.tick(now)

    def tick(self, now):
        self.lines.append(f"tick {now}")
        for _ in range(self.rng.choice([1, 1, 3, 20, 120])):
            name = self.rng.choice([*self.LIMITS, "both", "queue"])
            full = self.LIMITS.get(name, 3)
            kind = self.rng.choices(["check", "peek", "reset"], [90, 9, 1])[0]
            cost = self.rng.choice([1, 1, 1, 1, 0, 2, full, full + 1, self.rng.randrange(full + 2)])
            if name == "slbig" and 1000 < cost <= full:
                cost = 1000
            wait = self.rng.choice(["", "", " 0", " 100000", " 9000000"]) if name in ("lb", "lb1", "queue") else ""
            self.lines.append(f"{name} key{self.rng.randrange(3)} {kind} {0 if kind == 'reset' else cost}{wait}")
        self.lines.append("end")

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"


@pytest.mark.parametrize("back", [False, True], ids=["forward", "stepping back"])
@pytest.mark.parametrize("max_keys, merge", [(64, 1), (64, 0), (1, 1), (5, 1)])
def test_script_and_memory_answer_alike(redis, replay_memory, replay_redis, max_keys, merge, back):
    for seed in range(2):
        redis.flushall()
        trace = Trace(f"{seed} {max_keys} {merge}", back)
        asked = [line for line in trace.lines if " check " in line or " peek " in line or " reset " in line]
        expected = replay_memory(trace.text)
        given = replay_redis(trace.text, max_keys, merge)
        for i, (step, want, got) in enumerate(zip(asked, expected, given, strict=True)):
            assert got == want, f"seed {seed}, step {i}: {step}"
        no_key_lacks_an_expiry(redis)


@pytest.mark.parametrize("merge", [1, 0], ids=["merged", "one by one"])
def test_a_foreign_type_fails_its_own_check_only(redis, replay_redis, merge):
    settings = "policy p 1\nlimit - token_bucket 5 1000000 0 0\npolicy w 1\nlimit - fixed_window 5 1000000 0 0\n"
    steps = "tick {}\np good check 1\np bad check 1\nw good check 1\np bad peek 1\np good check 2\nend\n".format(FUTURE_US)
    replay_redis(settings + steps, 64, merge)
    key = next(key for key in redis.keys("*tb1:p:bad"))
    redis.delete(key)
    redis.sadd(key, "somebody else's")
    assert [line.split()[0] for line in replay_redis(settings + steps, 64, merge)] == ["1", "error", "1", "error", "0"]
    assert redis.smembers(key) == {b"somebody else's"}
