"""outage.py: what a program gets while Redis is stopped, killed, slow or full, over the daemon and with hiredis alone. `./dev bench
outage` runs it.

    outage.py [RATE...]     checks a second, default 200 and 20000

Each row is a run of its own: a second of a healthy Redis, two of the fault, two after it. A check is late if its answer comes
after its deadline of 20 ms and 5 ms more, from the moment it was due. Over the daemon the number in brackets, if there is one,
are those that are late from the moment they were sent: the others are late because the program that asks had no turn. Wrongly
charged are units that Redis has charged for checks that it did not decide. Exact again: from the end of the fault until the last
check that Redis did not decide.
"""

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench import LUA, machine

from harness import Ratelimitd, Redis, program

BEFORE_S, FAULT_S, AFTER_S = 1, 2, 2
LIMIT, N_KEYS = 100_000_000, 64
CONFIG = f"policies: {{p: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d, on_failure: allow}}}}\n"

class Slowed:
    """It answers nobody for 50 ms, again and again: a pause waits for the end of the one before."""

    def __init__(self, redis):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(redis,))
        self.thread.start()

    def run(self, redis):
        with redis.client() as client:
            while not self.over.is_set():
                client.execute_command("CLIENT", "PAUSE", "50", "ALL")

    def end(self):
        self.over.set()
        self.thread.join()


def stopped(redis):
    redis.pause()
    return redis.resume


def killed(redis):
    redis.kill()
    return redis.start


def slow(redis):
    return Slowed(redis).end


def full(redis):
    with redis.client() as client:
        client.config_set("maxmemory", "1")

    def end():
        with redis.client() as client:
            client.config_set("maxmemory", "0")
    return end


FAULTS = {"stopped": stopped, "killed": killed, "50 ms slow": slow, "full": full}
SIDES = ("daemon", "hiredis, async", "hiredis, 64 processes")


def peak_kib(pid):
    return int(re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def charged(daemon, redis):
    """What Redis has counted, over all keys."""
    if daemon:
        with daemon.client() as client:
            return sum(LIMIT - client.remaining("p", f"k{i:07}") for i in range(N_KEYS))
    with redis.client() as client:
        return sum(int(value) for value in client.mget([f"u{i:07}" for i in range(N_KEYS)]) if value)


def late_text(one):
    return f"{one['late']}" + (f" ({one['late_sent']})" if one["late_sent"] != one["late"] else "")


def measure(side, fault, rate):
    redis = Redis("redis", arguments=["--appendonly", "yes", "--appendfsync", "no"])  # a kill of Redis forgets nothing
    daemon = Ratelimitd(CONFIG, redis=redis) if side == "daemon" else None
    try:
        mode = "sync" if "processes" in side else "async"
        target = ["-s", daemon.socket] if daemon else ["-r", redis.socket, "-l", LUA["window"], "-m", mode]
        load = subprocess.Popen([program("rl_outage"), *map(str, target), "-n", str(rate), "-k", str(N_KEYS),
                                 "-t", str(BEFORE_S + FAULT_S + AFTER_S)], stdout=subprocess.PIPE, text=True)
        time.sleep(BEFORE_S)
        end = fault(redis)
        time.sleep(FAULT_S)
        end()
        ended_ns = time.monotonic_ns()
        result = json.loads(load.communicate()[0])
        result["again_s"] = max(0.0, (result["last_failure_ns"] - ended_ns) / 1e9)
        result["wrongly"] = charged(daemon, redis) - result["allowed"]
        result["kib"] = peak_kib(daemon.pid) if daemon else result["kib"]
        return result
    finally:
        if daemon:
            daemon.close()
        redis.close()


def main():
    rates = [int(word) for word in sys.argv[1:]] or [200, 20000]
    print(f"{machine()}\n{BEFORE_S} s healthy, {FAULT_S} s of the fault, {AFTER_S} s after it; deadline 20 ms")
    for rate in rates:
        print(f"\n#### {rate} checks a second\n\n| Redis is | side | later than 25 ms | p99.9 ms | max ms | unanswered | "
              "answered twice | wrongly charged | exact again after | peak MiB |\n|---|---|---|---|---|---|---|---|---|---|")
        for name, fault in FAULTS.items():
            for side in SIDES:
                one = measure(side, fault, rate)
                print(f"| {name} | {side} | {late_text(one)} | {one['p999_ms']:.1f} | {one['max_ms']:.1f} | {one['unanswered']} | "
                      f"{one['twice']} | {one['wrongly']} | {one['again_s']:.2f} s | {one['kib'] / 1024:.1f} |", flush=True)


if __name__ == "__main__":
    main()
