"""keys.py: the cost of one key of each algorithm in Redis: its bytes, the commands of a check, and the server's time.

bench.py runs it as the section `keys`. The requests go through a daemon, so the keys and scripts are those of service. Keys are
24 bytes long, like `rl:{b017}:tb1:p:12345678`. The bytes of a key come from MEMORY USAGE, and from the growth of the server's
memory for each of many keys (with the tables of keys and expiries). Commands and time come from INFO commandstats: for one
check at a time, and for check_many over 64 keys, which the daemon sends as one call. For slots, they are the cost of acquire,
one at a time and 64 in one write, which the daemon sends as two calls; the count does not include the release of these slots.
"""

import re

import msgpack
from harness import algorithms

KEY_LEN = 24
N_KEYS = 20_000
WINDOW = "5000d"
ALGORITHMS = [  # (name shown, its settings, units charged to each key, keys)
    *((name, f"{settings}, limit: 100" + (", window: year" if name == "calendar_window" else ""), 1, N_KEYS)
      for name, settings in algorithms().items() if name != "sliding_log"),
    ("sliding_log, 10 units", "algorithm: sliding_log, limit: 100", 10, N_KEYS),
    ("sliding_log, 100 units", "algorithm: sliding_log, limit: 100", 100, N_KEYS),
    ("sliding_log, 1000 units", "algorithm: sliding_log, limit: 10000", 1000, 500),
    ("sliding_log, 10000 units", "algorithm: sliding_log, limit: 10000", 10000, 50),
    ("concurrency, 10 slots", "algorithm: concurrency, limit: 10000", 10, 2000),
    ("concurrency, 100 slots", "algorithm: concurrency, limit: 10000", 100, 500),
    ("concurrency, 1000 slots", "algorithm: concurrency, limit: 10000", 1000, 100),
]
SLOTS = "caps: {max_slots: 1000000, max_slots_per_connection: 1000000}\n"
REDIS_OPTIONS = {"deny_cache": "{max_keys: 0}"}  # a full log is asked in Redis every time, too
LARGEST_COST = 1000
BATCH = 64
SLOT_CALLS = 2  # for BATCH slots, which weigh more than checks
N_CALLS = 2000
PIECE = 1000


def config():
    def settled(settings):
        if "concurrency" in settings:
            return settings + ", slot_ttl: 12h"  # no lease is renewed during the bench
        return settings if "window:" in settings else f"{settings}, window: {WINDOW}"

    lines = [f"  {chr(ord('a') + i)}: {{{settled(settings)}}}" for i, (_, settings, *_) in enumerate(ALGORITHMS)]
    return SLOTS + "defaults: {deadline: 9s, on_failure: error}\npolicies:\n" + "\n".join(lines) + "\n"


def commands(admin):
    """{command: (calls, usec)} since the server began to count."""
    return {name.removeprefix("cmdstat_"): (row["calls"], row["usec"]) for name, row in admin.info("commandstats").items()}


def asked(client, method, calls):
    """The answers to calls that go out in one write."""
    first = client._next_id
    client._next_id += len(calls)
    client.send_bytes(b"".join(msgpack.packb([0, first + i, method, list(call)]) for i, call in enumerate(calls)))
    return [client.answer(first + i) for i in range(len(calls))]


class Spent:
    """Commands and microseconds of the server, counted over several stretches."""

    def __init__(self, admin):
        self.admin, self.calls, self.ops, self.usec, self.inside = admin, 0, 0, 0, {}

    def during(self, work, n_ops, n_calls):
        """The result of work(), which must make n_calls EVALSHA for n_ops; fewer and larger calls are not what is measured."""
        self.admin.config_resetstat()
        result = work()
        counted = commands(self.admin)
        calls, usec = counted.pop("evalsha")
        assert calls == n_calls, f"{calls} EVALSHA, not {n_calls}"
        self.calls, self.ops, self.usec = self.calls + calls, self.ops + n_ops, self.usec + usec
        for name, (n, _) in counted.items():
            if not name.startswith(("config", "info")):
                self.inside[name] = self.inside.get(name, 0) + n
        return result

    def commands(self):
        return {name: n / self.calls for name, n in self.inside.items()}

    def us(self):
        return self.usec / self.ops


def asked_in_turn(client, method, calls):
    """In pieces: the daemon closes who sends on and on without reading."""
    for at in range(0, len(calls), PIECE):
        asked(client, method, calls[at:at + PIECE])


class Checks:
    @staticmethod
    def fill(client, policy, keys, units):
        for step in [units] if units <= LARGEST_COST else [LARGEST_COST] * (units // LARGEST_COST):
            asked_in_turn(client, "check", [(policy, key, step) for key in keys])

    @staticmethod
    def measure(admin, client, policy, keys):
        alone, together = Spent(admin), Spent(admin)
        calls = [(policy, keys[k % len(keys)], 1) for k in range(N_CALLS)]
        client.call("check", *calls[0])
        alone.during(lambda: [client.call("check", *call) for call in calls], N_CALLS, N_CALLS)
        many = [[policy, key] for key in keys]
        n_calls = N_CALLS // BATCH
        together.during(lambda: [client.call("check_many", many) for _ in range(n_calls)], n_calls * len(keys), n_calls)
        return alone, together


class Slots:
    @staticmethod
    def fill(client, policy, keys, units):
        asked_in_turn(client, "acquire", [(policy, key) for key in keys for _ in range(units)])

    @staticmethod
    def measure(admin, client, policy, keys):
        alone, together = Spent(admin), Spent(admin)
        calls = [(policy, key) for key in keys]
        for _ in range(N_CALLS // BATCH):
            for spent, work, n_calls in ((alone, lambda: [client.call("acquire", *call) for call in calls], len(calls)),
                                         (together, lambda: asked(client, "acquire", calls), SLOT_CALLS)):
                taken = spent.during(work, len(calls), n_calls)
                asked(client, "release", [(answer["slot"],) for answer in taken])
        return alone, together


def measure(redis, daemon):
    """One row per algorithm: (name, MEMORY USAGE, bytes of the server's memory per key, commands, us alone, us in a batch)."""
    with redis.client() as admin, daemon.client() as client:
        for i, (name, settings, units, n_keys) in enumerate(ALGORITHMS):
            policy, way = chr(ord("a") + i), Slots if "concurrency" in settings else Checks
            admin.flushall()
            admin.memory_purge()
            before = admin.info("memory")["used_memory"]
            way.fill(client, policy, ["00000000"], 1)
            head = admin.keys("*")[0].decode().removesuffix("00000000")
            width = KEY_LEN - len(head)
            keys = [f"{k:0{width}}" for k in range(n_keys)]
            way.fill(client, policy, keys, units)
            grown = (admin.info("memory")["used_memory"] - before) / n_keys
            key = next(key for key in admin.keys("*") if len(key) == KEY_LEN)
            usage = admin.memory_usage(key, samples=0)
            some = keys[:BATCH]
            alone, together = way.measure(admin, client, policy, some)
            yield name, usage, grown, alone.commands(), alone.us(), together.us()


def table(redis, daemon):
    print("\n### What a key costs in Redis (24-byte keys with expiry)\n\n"
          "| state | MEMORY USAGE | bytes of the server per key | commands of a check | us of Redis, alone | us, 64 keys in a call |\n"
          "|---|---|---|---|---|---|")
    rows = {}
    for name, usage, grown, inside, alone_us, batch_us in measure(redis, daemon):
        calls = " ".join(f"{command.upper()}{'' if round(n, 1) == 1 else f' x{n:.1f}'}" for command, n in sorted(inside.items()) if n > 0.05)
        rows[name] = {"usage": usage, "grown": grown, "commands": inside, "alone_us": alone_us, "batch_us": batch_us}
        print(f"| {name} | {usage} | {grown:.0f} | {re.sub(r'TIME ?', '', calls).strip()} | {alone_us:.1f} | {batch_us:.2f} |", flush=True)
    return rows
