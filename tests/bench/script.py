"""script.py: the processor time of Redis per op, for every kind of batch; optionally of another build of rl_script too, in
shuffled rounds.

`./dev bench script [--rounds N] [--server redis|valkey] [--only WORD] [OTHER_RL_SCRIPT]`
The bench starts its own server on a Unix socket, without persistence, on the first core. Medians; in brackets the median of the
rounds' ratios to the other build."""

import argparse
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from harness import Redis  # noqa: E402

WORKLOADS = (
    "a 64 buckets", "b 64 fixed windows", "c 64 sliding counters", "d 64 mixed, 4 policies", "d8 8 mixed", "e1 1 key x 64",
    "e8 8 keys x 8", "e9 16 keys, counts and costs differ", "f 32 x 2 limits", "f2 32 x (own, shared)", "g 1 bucket",
    "g1 1 fixed window", "g8 8 buckets", "h 16 request ids", "i 60 buckets, 4 request ids", "i2 60 fixed windows, 4 request ids",
    "j 64 logs of 100", "k 64 fixed windows, denied", "l 64 buckets, denied", "r1 1 reserve", "r16 16 reserves", "s1 1 settle",
    "s16 16 settles")


def program(path, socket):
    return subprocess.Popen([path, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(side, workload):
    side.stdin.write(workload + "\n")
    side.stdin.flush()
    return float(side.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--server", default="redis", choices=Redis.KINDS)
    parser.add_argument("--only", default="", help="workloads with this word")
    parser.add_argument("other", nargs="*", help="another build of rl_script")
    asked = parser.parse_args()
    server = Redis(asked.server)
    os.sched_setaffinity(server.process.pid, {0})
    build = Path(os.environ.get("RATELIMITD_BUILD", ROOT / "build" / "release"))
    sides = [program(path, server.socket) for path in [str(build / "bin" / "rl_script"), *asked.other]]
    print(f"us of {asked.server}'s main thread per op, {asked.rounds} rounds")
    for workload in WORKLOADS:
        if asked.only not in workload:
            continue
        rounds = []
        for _ in range(asked.rounds):
            order = random.sample(range(len(sides)), len(sides))
            costs = {i: ask(sides[i], workload) for i in order}
            rounds.append([costs[i] for i in range(len(sides))])
        row = [f"{statistics.median(costs):8.2f}" for costs in zip(*rounds)]
        for other in range(1, len(sides)):
            row.append(f"({statistics.median(costs[0] / costs[other] for costs in rounds):.2f})")
        print(f"{workload:40}", *row, flush=True)
    for side in sides:
        side.stdin.close()
        side.wait()
    server.close()


if __name__ == "__main__":
    main()
