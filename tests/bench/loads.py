"""loads.py: loads on one or more daemons at once, and what they cost them and the servers behind them, for
leases.py."""

import json
import random
import statistics
import subprocess
import sys

from bench import cpu_ns

from harness import program

N_KEYS = 100000
COUNTED = {"calls": "redis_batches", "keys": "redis_batch_keys"}  # of `stats`, for each check


class Loads:
    """What is asked: C connections with D checks under way on each, divided among the daemons and the policies; with `per_second`
    so many checks a second, due at a steady rate, whether others are answered or not."""

    def __init__(self, name, connections, depth, policies=("open",), keys=N_KEYS, zipf=0.0, per_second=0):
        self.name, self.connections, self.depth, self.policies, self.per_second = name, connections, depth, policies, per_second
        self.keys = ["-k", keys, "-z", zipf]

    def arguments(self, daemons, prefix, seed, seconds):
        """Of rl_load, for each of the programs that run at once."""
        n = len(daemons) * len(self.policies)
        each = max(1, self.connections // n)
        pace = ["-o", self.per_second / n] if self.per_second else []
        return [["-s", daemon.socket, "-p", policy, "-a", "-c", each, "-d", self.depth, *self.keys, "-x", prefix, "-i", seed + n,
                 "-t", seconds, *pace]
                for n, (daemon, policy) in enumerate((daemon, policy) for daemon in daemons for policy in self.policies)]


class Side:
    """Daemons, and the servers behind them."""

    def __init__(self, name, daemons, servers):
        self.name, self.daemons, self.servers = name, daemons, servers
        self.prefix = f"{sum(name.encode()):06}-"  # of its keys; all have one length

    def stats(self):
        found = []
        for daemon in self.daemons:
            with daemon.client() as client:
                found.append(client.call("stats"))
        return {name: sum(stats[of] for stats in found) for name, of in COUNTED.items()}

    def spent(self):
        return {"daemon_us": sum(cpu_ns(daemon.pid) for daemon in self.daemons) / 1000,
                "redis_us": sum(cpu_ns(server.pid) for server in self.servers) / 1000, **self.stats()}

    def measure(self, loads, seconds, seed):
        before = self.spent()
        running = [subprocess.Popen([program("rl_load"), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
                   for arguments in loads.arguments(self.daemons, self.prefix, seed, seconds)]
        results = []
        for one in running:
            text, _ = one.communicate()
            if one.returncode:
                sys.exit(f"bench: the load '{loads.name}' on '{self.name}' failed: {text}")
            results.append(json.loads(text))
        n_requests = sum(result["requests"] for result in results)
        after = self.spent()
        return {"per_second": sum(result["per_second"] for result in results),
                "p50_us": statistics.median(result["p50_us"] for result in results),
                "p99_us": max(result["p99_us"] for result in results),
                **{name: (after[name] - before[name]) / n_requests for name in before}}


def compare(sides, loads, rounds, seconds):
    """All sides in every round, in shuffled order: per side the list of its rounds."""
    order = random.Random(loads.name)
    found = {side.name: [] for side in sides}
    for side in sides:
        side.measure(loads, min(seconds, 0.5), 1)
    for number in range(rounds):
        for side in order.sample(sides, len(sides)):
            found[side.name].append(side.measure(loads, seconds, 100 * (number + 1)))
    return found


COLUMNS = {"decisions/s": "per_second", "p50 us": "p50_us", "p99 us": "p99_us", "calls a check": "calls", "keys a check": "keys",
           "keys a call": "keys_a_call",
           "Redis CPU us": "redis_us", "daemon CPU us": "daemon_us"}


def value(figure):
    if figure is None:
        return "-"
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.2f}" if figure >= 0.1 else f"{figure:.5f}" if figure else "0"


def head(first, last=()):
    names = [*first, *COLUMNS, "rate, paired", *last]
    print(f"\n| {' | '.join(names)} |\n|{'---|' * len(names)}")


def print_rows(first, sides, found, last=None):
    """last: by side, a figure for one more column. A row for each side; "rate, paired" is the median of the rounds' ratios to the first side."""
    for side in sides:
        rounds = found[side.name]
        for one in rounds:
            one["keys_a_call"] = one["keys"] / one["calls"] if one["calls"] else None
        cells = []
        for figure in COLUMNS.values():
            known = [one[figure] for one in rounds if one[figure] is not None]
            cells.append(value(statistics.median(known) if known else None))
        ratio = statistics.median(mine["per_second"] / theirs["per_second"] for mine, theirs in zip(rounds, found[sides[0].name]))
        more = [f"{last[side.name]:.2f}"] if last else []
        print(f"| {' | '.join([*first, side.name, *cells, f'{ratio:.2f}', *more])} |", flush=True)
