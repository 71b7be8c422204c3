"""keys.py: what one key of each algorithm costs in Redis: its bytes, the commands of a check, and the server's time.

bench.py runs it as the section `keys`. A daemon stands before the server, so these are the keys and scripts of service.
Keys are 24 bytes long, as `rl:{b017}:tb1:p:12345678` is. A key's bytes are what MEMORY USAGE says, and beside it what
the server's memory grew by for each of many keys (the tables of keys and expiries included). Commands and time come from
INFO commandstats: of one check at a time, and of checks_many over 64 keys, which the daemon sends as one call.
"""

import re

KEY_LEN = 24
N_KEYS = 20_000
WINDOW = "5000d"
ALGORITHMS = [  # (name shown, its settings, units charged to each key, keys)
    ("token_bucket", "algorithm: token_bucket, limit: 100", 1, N_KEYS),
    ("leaky_bucket", "algorithm: leaky_bucket, limit: 100", 1, N_KEYS),
    ("fixed_window", "algorithm: fixed_window, limit: 100", 1, N_KEYS),
    ("fixed_window, first_hit", "algorithm: fixed_window, start: first_hit, limit: 100", 1, N_KEYS),
    ("calendar_window", "algorithm: calendar_window, limit: 100, window: year", 1, N_KEYS),
    ("sliding_counter", "algorithm: sliding_counter, limit: 100", 1, N_KEYS),
    ("sliding_log, 10 units", "algorithm: sliding_log, limit: 100", 10, N_KEYS),
    ("sliding_log, 100 units", "algorithm: sliding_log, limit: 100", 100, N_KEYS),
    ("sliding_log, 1000 units", "algorithm: sliding_log, limit: 10000", 1000, 500),
    ("sliding_log, 10000 units", "algorithm: sliding_log, limit: 10000", 10000, 50),
]
LARGEST_COST = 1000
BATCH = 64
N_CALLS = 2000


def config():
    lines = [f"  {chr(ord('a') + i)}: {{{settings}{'' if 'window:' in settings else f', window: {WINDOW}'}}}"
             for i, (_, settings, *_) in enumerate(ALGORITHMS)]
    return "defaults: {deadline: 9s, on_failure: error}\npolicies:\n" + "\n".join(lines) + "\n"


def commands(admin):
    """{command: (calls, usec)} since the server began to count."""
    return {name.removeprefix("cmdstat_"): (row["calls"], row["usec"]) for name, row in admin.info("commandstats").items()}


def asked(client, method, calls):
    for msgid in [client.send(method, *call) for call in calls]:
        client.answer(msgid)


def spent(admin, client, method, calls):
    """(commands that one call made in the script, microseconds of one call); warmed up by the first call."""
    asked(client, method, calls[:1])
    admin.config_resetstat()
    for call in calls:  # one at a time, so that each is a call of its own
        client.call(method, *call)
    counted = commands(admin)
    n, usec = counted.pop("evalsha")
    assert n == len(calls), f"{n} EVALSHA for {len(calls)} calls"
    inside = {name: calls_of / n for name, (calls_of, _) in counted.items() if not name.startswith(("config", "info"))}
    return inside, usec / n


def measure(redis, daemon):
    """One row per algorithm: (name, MEMORY USAGE, bytes of the server's memory per key, commands, us alone, us in a batch)."""
    with redis.client() as admin, daemon.client() as client:
        for i, (name, _, units, n_keys) in enumerate(ALGORITHMS):
            policy = chr(ord("a") + i)
            admin.flushall()
            admin.memory_purge()
            before = admin.info("memory")["used_memory"]
            client.check(policy, "00000000")
            head = admin.keys("*")[0].decode().removesuffix("00000000")
            width = KEY_LEN - len(head)
            keys = [f"{k:0{width}}" for k in range(n_keys)]
            steps = [units] if units <= LARGEST_COST else [LARGEST_COST] * (units // LARGEST_COST)
            for step in steps:
                for at in range(0, n_keys, 1000):
                    asked(client, "check", [(policy, key, step) for key in keys[at:at + 1000]])
            grown = (admin.info("memory")["used_memory"] - before) / n_keys
            key = next(key for key in admin.keys("*") if len(key) == KEY_LEN)
            usage = admin.memory_usage(key, samples=0)
            some = keys[:BATCH] if n_keys >= BATCH else keys
            inside, alone_us = spent(admin, client, "check", [(policy, some[k % len(some)], 1) for k in range(N_CALLS)])
            _, batch_us = spent(admin, client, "check_many", [([[policy, k] for k in some],)] * (N_CALLS // BATCH))
            yield name, usage, grown, inside, alone_us, batch_us / len(some)


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
