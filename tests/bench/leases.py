"""leases.py: checks with units taken from Redis ahead (`lease: 1s`) and without, in paired rounds.

    ./dev bench leases [--rounds N] [--seconds S] [WORD...]     WORDs select rows by a part of their names, such as hot, 1x1 or open

Every row runs with a lease and without in every round, in shuffled order, each with daemons and keys of its own. Redis is on
this host, over its Unix socket, and then behind a proxy that delays what goes to it by a millisecond. Two daemons share
the load and its keys. In an open loop checks are due at a steady rate, and their latency counts from then. "Calls a check" are
the EVALSHA calls of the daemons. It ends with an error if a hot key needs more than
one call in a thousand checks of a closed loop with a lease. In an open loop all that come while units are asked for ask Redis, too: the
more of them, the farther Redis is away.
"""

import argparse
import statistics
import sys
import time

from bench import machine
from loads import Loads, Side, compare, head, print_rows

from harness import Ratelimitd, Redis
from proxy import Proxy

MOST_CALLS_A_CHECK = 0.001  # of a hot key
DELAY_S = 0.001  # on the way to Redis

CONFIG = """
caps: {{max_connections: 20000}}
defaults: {{deadline: 5s, on_failure: error}}
policies:
  open: {{algorithm: token_bucket, limit: 10000000, window: 10d{lease}}}
  hot: {{algorithm: token_bucket, limit: 8640000000, window: 10d{lease}}}
"""
SIDES = {"off": "", "lease: 1s": ", lease: 1s"}
OPEN = 20000  # checks a second of the open loop, on 64 connections
SHAPES = ((1, 1, 0, "1x1"), (64, 16, 0, "64x16"), (64, 64, OPEN, f"open, {OPEN}/s"))
LOADS = [loads for c, d, per_second, how in SHAPES for loads in (
    Loads(f"hot {how}", c, d, ["hot"], keys=1, per_second=per_second),
    Loads(f"Zipf 1.1 {how}", c, d, zipf=1.1, per_second=per_second),
    Loads(f"uniform {how}", c, d, per_second=per_second))]


def round_trip_us(redis, address):
    """Of one PING by the way that the daemon takes."""
    import redis as library

    path = address.removeprefix("unix:")
    with library.Redis(unix_socket_path=path) as client:
        took = []
        for _ in range(200):
            began = time.perf_counter()
            client.ping()
            took.append((time.perf_counter() - began) * 1e6)
    return statistics.median(took)


def start_sides(processes, redis, address, n_daemons):
    sides = []
    for name, lease in SIDES.items():
        daemons = [Ratelimitd(CONFIG.format(lease=lease), redis=redis, redis_options={"addresses": f'["{address}"]'})
                   for _ in range(n_daemons)]
        processes.extend(daemons)
        sides.append(Side(name, daemons, [redis]))
    return sides


def measure(place, n_daemons, wanted, options):
    """The rows of one place and number of daemons. Returns the names of hot ones that asked Redis too often."""
    processes, too_often = [], []
    try:
        redis = Redis("redis")
        processes.append(redis)
        address = redis.address
        if place != "this host":
            proxy = Proxy(redis.address)
            proxy.up.delay_s = DELAY_S
            processes.append(proxy)
            address = proxy.address
        sides = start_sides(processes, redis, address, n_daemons)
        print(f"\n### Redis {'on' if place == 'this host' else 'behind'} {place}, {n_daemons} daemon{'s' * (n_daemons > 1)}; a PING takes "
              f"{round_trip_us(redis, address):.0f} us")
        head(("load", "policy"))
        for loads in wanted:
            found = compare(sides, loads, options.rounds, options.seconds)
            print_rows([loads.name], sides, found)
            leased = statistics.median(one["calls"] for one in found["lease: 1s"])
            if loads.name.startswith("hot") and not loads.per_second and leased > MOST_CALLS_A_CHECK:
                too_often.append(f"{loads.name}, {place}, {n_daemons} daemons: {leased:.5f} calls a check")
    finally:
        for process in reversed(processes):
            process.close()
    return too_often


def main():
    parser = argparse.ArgumentParser(prog="./dev bench leases", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.8, help="per side and round")
    parser.add_argument("words", metavar="WORD", nargs="*", help="of the rows to run: hot, Zipf, uniform, 1x1, 64x16, open")
    options = parser.parse_intermixed_args()
    wanted = [loads for loads in LOADS if not options.words or any(word in loads.name for word in options.words)]
    if not wanted:
        parser.error(f"no such row: {' '.join(options.words)}; there are {', '.join(loads.name for loads in LOADS)}")
    print(f"{machine()}\nmedians of {options.rounds} paired rounds of {options.seconds} s; CxD = C connections, D checks under way on each")
    too_often = [row for place in ("this host", "a proxy, 1 ms away") for n in (1, 2) for row in measure(place, n, wanted, options)]
    if too_often:
        sys.exit(f"bench: more than {MOST_CALLS_A_CHECK} calls a check of a hot key:\n" + "\n".join(too_often))


if __name__ == "__main__":
    main()
