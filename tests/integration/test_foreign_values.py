"""test_foreign_values.py: one key of a foreign type, or of no valid value, harms only the op that asks for it. Every algorithm, every
op and every key that the op has in Redis (states, idempotency records, lists of reservations) are tried with every type, amid other
ops of the same batch. Those are decided and charged exactly, and the connection stays."""

import itertools
import re
import struct
import time

import msgpack
import pytest

from harness import Redis, RpcError

OF_UNITS = {
    "token": "algorithm: token_bucket",
    "leaky": "algorithm: leaky_bucket, max_wait: 10s",
    "window": "algorithm: fixed_window",
    "window_denied": "algorithm: fixed_window, count_denied: true",
    "first": "algorithm: fixed_window, start: first_hit",
    "first_denied": "algorithm: fixed_window, start: first_hit, count_denied: true",
    "counter": "algorithm: sliding_counter",
    "log": "algorithm: sliding_log",
    "log_denied": "algorithm: sliding_log, count_denied: true",
    "month": "algorithm: calendar_window",
}
COMPAT = ("window-start-millis", "rlaas-fixed", "rlaas-sliding", "first-hit", "endpoint-window", "endpoint-log")
LIMIT = 20


def settings(name):
    if name in COMPAT:
        return f"{{compat: {name}, limit: {LIMIT}, window: 1h, key_prefix: \"compat:{name}\"}}"
    if name == "slots":
        return f"{{algorithm: concurrency, limit: {LIMIT}, slot_ttl: 1h}}"
    if name == "two":
        return (f"{{limits: [{{name: a, algorithm: sliding_log, limit: {LIMIT}, window: 1h, count_denied: true}}, "
                f"{{name: b, algorithm: sliding_counter, limit: {LIMIT}, window: 1h}}, {{name: c, algorithm: token_bucket, limit: {LIMIT}, window: 365d}}]}}")
    if name == "admission":
        return (f"{{limits: [{{name: a, algorithm: fixed_window, limit: {LIMIT}, window: 1h, counts: checks}}, "
                f"{{name: b, algorithm: sliding_log, limit: {LIMIT}, window: 1h}}, {{name: c, algorithm: concurrency, limit: {LIMIT}, slot_ttl: 1h}}]}}")
    window = "month" if name == "month" else "365d" if name in ("token", "leaky") else "1h"
    return f"{{{OF_UNITS[name]}, limit: {LIMIT}, window: {window}}}"


class Asked:
    """What an op has of the ops before it: a reservation, or a slot."""

    def __init__(self, client, policy, key):
        self.client, self.policy, self.key = client, policy, key

    def reserve(self):
        self.reservation = self.client.call("reserve", self.policy, self.key, 2)["reservation"]

    def acquire(self):
        self.slot = self.client.call("acquire", self.policy, self.key)["slot"]


def check(**options):
    return lambda asked: ("check", asked.policy, asked.key, options)


def none(asked):
    pass


# An op: what makes its keys, and what it asks.
CHECKS = {
    "check": (none, check()), "of nothing": (none, check(cost=0)),
    "peek": (Asked.reserve, lambda asked: ("peek", asked.policy, asked.key)),
    "twice": (none, lambda asked: ("check_many", [[asked.policy, asked.key]] * 2)),
    "check_all": (none, lambda asked: ("check_all", [[asked.policy, asked.key], ["others_window", f"all-{asked.key}"]])),
}
NATIVE = CHECKS | {
    "above the limit": (none, check(cost=3 * LIMIT)), "with a request id": (none, check(cost=1, request_id="r")),
    "above, with a request id": (none, check(cost=3 * LIMIT, request_id="r")), "at most": (none, check(at_most=3 * LIMIT)),
    "check_all with a request id": (none, lambda asked: ("check_all", [[asked.policy, asked.key], ["others_window", f"all-{asked.key}"]], {"request_id": "r"})),
    "reserve": (none, lambda asked: ("reserve", asked.policy, asked.key, 2)),
    "reserve with a request id": (none, lambda asked: ("reserve", asked.policy, asked.key, 2, {"request_id": "r"})),
    "settle": (Asked.reserve, lambda asked: ("settle", asked.reservation, 1)),
    "settle above": (Asked.reserve, lambda asked: ("settle", asked.reservation, 3)),
    "cancel": (Asked.reserve, lambda asked: ("cancel", asked.reservation)),
    "refund": (Asked.reserve, lambda asked: ("refund", asked.policy, asked.key, 1)),
    "refund with a request id": (Asked.reserve, lambda asked: ("refund", asked.policy, asked.key, 1, {"request_id": "r"})),
    "reset": (none, lambda asked: ("reset", asked.policy, asked.key)),
}
SLOTS = {
    "acquire": (none, lambda asked: ("acquire", asked.policy, asked.key)),
    "release": (Asked.acquire, lambda asked: ("release", asked.slot)),
    "peek": (Asked.acquire, lambda asked: ("peek", asked.policy, asked.key)),
    "reset": (Asked.acquire, lambda asked: ("reset", asked.policy, asked.key)),
}
WITH_SLOTS = {"slots": SLOTS, "admission": SLOTS | {name: NATIVE[name] for name in ("reserve", "settle", "settle above", "cancel", "refund", "refund with a request id")}}
POLICIES = (*OF_UNITS, "two", *WITH_SLOTS, *COMPAT)
# Asked in the same batch, before and behind the op: (policy, options).
OTHERS = (("others_window", {}), ("others_log", {}), ("others_token", {"request_id": "o"}))
CONFIG = "defaults: {deadline: 10s, on_failure: deny}\npolicies:\n" + "".join(f"  {name}: {settings(name)}\n" for name in POLICIES) + """
  others_window: {algorithm: fixed_window, limit: 1000, window: 1h}
  others_log: {algorithm: sliding_log, limit: 1000, window: 1h}
  others_token: {algorithm: token_bucket, limit: 1000, window: 365d}
"""
RECORD = re.compile(rb":(notes?|reserve|refund)1:")
NO_RESERVE = ("leaky",)


def ops_of(policy):
    if policy in WITH_SLOTS:
        return WITH_SLOTS[policy]
    if policy in COMPAT:
        return {name: (none, ask) for name, (_, ask) in CHECKS.items() if name != "check_all"} | {"reset": NATIVE["reset"]}
    return NATIVE if policy not in NO_RESERVE else {
        name: (none, ask) for name, (prepare, ask) in NATIVE.items() if not name.startswith(("reserve", "settle", "cancel"))}


TYPES = {
    b"string": lambda redis, key: redis.set(key, "x"),
    b"list": lambda redis, key: redis.rpush(key, "x"),
    b"hash": lambda redis, key: redis.hset(key, "f", "v"),
    b"set": lambda redis, key: redis.sadd(key, "m"),
    b"zset": lambda redis, key: redis.zadd(key, {"m": 1}),
}
NOW_S = 1_800_000_000  # later than now, so what has it is ahead of the clock
TEXTS = [b"", b"x", b"0", b"-0", b"007", b"-1", b"-007", b"1e3", b"nan", b" 1", b"000000000000001", b"9" * 15, b"9" * 16, b"9" * 400,
         *(bytes([byte]) * n for byte in (0, 255) for n in (10, 11, 14, 18, 20, 32, 47, 53)),
         b"\0" * 32 + bytes(8) + struct.pack("<Q", 2**40)[:7]]
ITEMS = [b"x", b"", b"-5", b"nan", b"inf", b"9" * 16, b"9" * 400, b"0", b"007", b"%d" % (NOW_S * 10**6)]
SCORES = ["-inf", -1, 0, 0.5, "inf", 1e300, NOW_S * 1000 + 0.5]


# Of a reservation's record: its id, and in how many ms it ends, which no daemon takes; of a check's: nothing.
ENDS = [b"", *(bytes(8) + struct.pack("<Q", ms)[:7] for ms in (0, 86_400_001, 2**53, 2**56 - 1))]


def record_of_now():
    return struct.pack("<Q", time.time_ns() // 1000)[:7] + bytes(4) + bytes(21)


def values(kind):
    """What may be at a key of that type: [(its own type?, how to put it there)]."""
    yield from ((False, put) for name, put in TYPES.items() if name != kind)
    if kind == b"string":
        yield from ((True, lambda redis, key, text=text: redis.set(key, text)) for text in TEXTS)
        yield True, lambda redis, key: redis.set(key, "3", px=9 * 10**15)
        yield from ((True, lambda redis, key, end=end: redis.set(key, record_of_now() + end)) for end in ENDS)
    elif kind == b"list":
        yield from ((True, lambda redis, key, items=items: redis.rpush(key, *items)) for items in (*([item] for item in ITEMS), ITEMS))
    else:
        yield from ((True, lambda redis, key, score=score, member=member: redis.zadd(key, {member: score}))
                    for score in SCORES for member in (b"", b"m" * 8, b"\xff" * 22))


def burst(client, calls):
    """All in one write, so in one batch. The results; of one that failed, its error."""
    first = client._next_id
    client._next_id += len(calls)
    client.send_bytes(b"".join(msgpack.packb([0, first + at, method, list(params)]) for at, (method, *params) in enumerate(calls)))

    def result(at):
        try:
            return client.answer(first + at)
        except RpcError as error:
            return error

    return [result(at) for at in range(len(calls))]


def is_refused(result):
    if isinstance(result, list):
        return all(map(is_refused, result))
    return isinstance(result, RpcError) or result.get("reason") == "store_error"


def form(key, name):
    """A key without what differs from one name to the next."""
    return re.sub(rb":\d+$", b":", re.sub(rb"\{b\d+\}", b"{}", key).replace(name, b"NAME"))


def dumps(redis, keys):
    return {key: redis.dump(key) for key in keys}


class Trial:
    """One op on a key of its own."""

    numbers = itertools.count(1)

    def __init__(self, client, redis, policy, op):
        self.client, self.redis = client, redis
        self.prepare, self.ask = ops_of(policy)[op]
        self.name = f"key{next(self.numbers):07d}"
        self.asked = Asked(client, policy, self.name)
        self.keys = {}  # by form: the key and its type
        for make in (("acquire" if policy in WITH_SLOTS else "check", policy, self.name), None):
            self.prepare(self.asked)
            client.call(*(make or self.ask(self.asked)))
            self.keys |= {form(key, self.name.encode()): (key, redis.type(key)) for key in redis.keys(f"*{self.name}*") if b"all-" not in key}

    def run(self, target, put):
        """Returns the op's own result, and whether its other keys and this one are as they were."""
        key = self.keys[target][0]
        self.prepare(self.asked)
        present = self.redis.keys(f"*{self.name}*")
        self.redis.delete(key, *(other for other in present if RECORD.search(other)))
        put(self.redis, key)
        before = dumps(self.redis, self.redis.keys(f"*{self.name}*"))

        others = [[("check", policy, f"{side}-{self.name}", {"cost": 2, **options}) for policy, options in OTHERS] for side in ("before", "behind")]
        of_others, [result] = [], [None]
        results = burst(self.client, [*others[0], self.ask(self.asked), *others[1]])
        result = results.pop(len(OTHERS))
        after = dumps(self.redis, [other for other in self.redis.keys(f"*{self.name}*") if not re.search(rb"(before|behind)-", other)])
        of_others = [(answer["source"], answer["allowed"], answer["remaining"]) for answer in results]
        peeks = burst(self.client, [("peek", policy, f"{side}-{self.name}") for side in ("before", "behind") for policy, _ in OTHERS])
        assert of_others == [("redis", True, 998)] * 6 and [peek["remaining"] for peek in peeks] == [998] * 6
        return result, after == before


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_at_one_key_harms_no_other_op_of_its_batch(ratelimitd, redis, connect, policy):
    """All kinds of server run the same script: the first that is installed gets every value, the next a third of them."""
    client = connect(ratelimitd(CONFIG, redis=redis, redis_options={"deny_cache": "{max_keys: 0}"}))
    step, at = 1 if redis.kind == next(filter(Redis.installed, Redis.KINDS)) else 3, 0
    with redis.client() as direct:
        for op in ops_of(policy):
            kinds = {target: kind for target, (_, kind) in Trial(client, direct, policy, op).keys.items()}
            assert kinds, op
            for target, kind in kinds.items():
                direct.flushall()
                at += 1  # others of each key
                for is_own, put in itertools.islice(values(kind), at % step, None, step):
                    trial = Trial(client, direct, policy, op)
                    result, is_unchanged = trial.run(target, put)
                    where = f"{op}: {target}, {direct.type(trial.keys[target][0])} in place of {kind}: {result}"
                    is_named = b":hold1:" not in target or op.startswith(("reserve", "settle", "cancel", "refund"))
                    is_named &= op != "release"  # it is answered before Redis is asked
                    if not is_own and not (op == "reset" and policy not in COMPAT):
                        assert is_refused(result) == is_named, where
                    if is_refused(result) and not is_own:
                        assert is_unchanged, where
    stats = client.call("stats")
    client.close()
    assert (stats["redis_errors"], stats["redis_connects"]) == (0, 1), stats


STRINGS, SETS = ("first-hit", "endpoint-window"), ("endpoint-log", "rlaas-sliding")


@pytest.mark.parametrize("two", [*itertools.product(STRINGS, SETS), *itertools.product(SETS, STRINGS)], ids="-".join)
def test_a_string_and_a_sorted_set_of_one_name_that_begin_in_one_batch_harm_no_other_op(ratelimitd, redis, connect, two):
    """The prefix of one preset may begin that of another, so a client's key decides what their keys are called."""
    prefixes = ("at", "at:x")
    compat = "".join(f"  p{n}: {{compat: {name}, limit: 2, window: 1h, key_prefix: \"{prefix}\"}}\n" for n, (name, prefix) in enumerate(zip(two, prefixes)))
    client = connect(ratelimitd(CONFIG + compat, redis=redis))
    calls = [("check", "p0", "x:k")] * 3 + [("check", "p1", "k")] * 3
    for policy, _ in OTHERS:
        calls = [("check", policy, "before"), *calls, ("check", policy, "behind")]
    results = burst(client, calls)
    others, asked = results[:3] + results[-3:], results[3:-3]
    assert [(answer["source"], answer["remaining"]) for answer in others] == [("redis", 999)] * 6
    assert not all(map(is_refused, asked)), asked
    stats = client.call("stats")
    assert (stats["redis_errors"], stats["redis_connects"]) == (0, 1)
