"""instructions.py: instructions of the daemon for one check, outside the kernel, by function; of one build or of two.

    ./dev bench instructions
    ./dev bench against OTHER_BUILD --instructions [--most PERCENT]

callgrind counts a daemon that gets few checks and one that gets many; the difference is what the checks cost. Each gets a Redis of
its own. The clock of the memory store stands still, because how far it looks for expired keys grows with the time. So two counts of
one build differ by less than 0.3 %, and one count is enough.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import bench
from harness import program

FEW, MANY = 4000, 20000  # checks
STORES, SHAPES = ("redis", "memory"), ((1, 1), (16, 16))
N_FUNCTIONS = 12  # that are printed
CLONE = re.compile(r"(\.(part|constprop|isra|lto_priv|cold)\.\d+)+|'\d+$")


class CountedDaemon(bench.Ratelimitd):
    """Runs under callgrind, which writes what each function cost."""

    def __init__(self, counts, **options):
        self.counts = counts
        knows = subprocess.run([program("ratelimitd", options.get("build")), "--print-config"], capture_output=True, text=True, check=True)
        quiet = "slowlog: {threshold: 0}\n" if "\nslowlog:" in knows.stdout else ""  # under callgrind each check is slow
        super().__init__(bench.CONFIG + quiet, **options)

    def argv(self):
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.counts}", *super().argv()]


def by_function(counts):
    """Instructions of each function of a run, without those of functions that it calls."""
    text = subprocess.run(["callgrind_annotate", "--auto=no", "--threshold=100", str(counts)], capture_output=True, text=True,
                          check=True).stdout
    rows = re.findall(r"^ *([\d,]+) \([ \d.]+%\)  \S+?:([^\n]+?)(?: \[[^\n]*\])?$", text, re.M)
    found = Counter()
    for n, name in rows:
        found[CLONE.sub("", name)] += int(n.replace(",", ""))
    return found


def of_a_check(build, store, shape):
    """Instructions of one check by function."""
    connections, depth = shape
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for n in (FEW, MANY):
            redis = bench.Redis("redis") if store == "redis" else None
            daemon = CountedDaemon(Path(folder) / str(n), redis=redis, build=build,
                                   arguments=[] if redis else ["--test-clock"])
            bench.run_load(["-s", daemon.socket, "-p", "open", "-a", "-c", connections, "-d", depth, "-n", n])
            daemon.stop(60)
            found.append(by_function(daemon.counts))
            daemon.close()
            if redis:
                redis.close()
    few, many = found
    return {name: (n - few[name]) / (MANY - FEW) for name, n in many.items()}


def compare(other, most_percent):
    """Prints both builds; ends with an error if this one needs more than so many percent more on Redis or memory."""
    too_many, differences = [], {}
    print(f"\n### Instructions of the daemon for one check\n\n| store | load | {other} | this build | change |\n|---|---|---|---|---|")
    for store in STORES:
        for shape in SHAPES:
            before, now = of_a_check(other, store, shape), of_a_check(None, store, shape)
            percent = 100 * (sum(now.values()) / sum(before.values()) - 1)
            name = f"{store} {shape[0]}x{shape[1]}"
            print(f"| {store} | {shape[0]}x{shape[1]} | {sum(before.values()):.0f} | {sum(now.values()):.0f} | {percent:+.2f} % |", flush=True)
            differences[name] = {of: (before.get(of, 0), now.get(of, 0)) for of in {*before, *now}}
            if percent > most_percent:
                too_many.append(f"{name}: {percent:+.2f} %")
    for name, functions in differences.items():
        largest = sorted(functions.items(), key=lambda item: -abs(item[1][1] - item[1][0]))[:N_FUNCTIONS]
        print(f"\n{name}: " + ", ".join(f"{of} {before:.0f} → {now:.0f}" for of, (before, now) in largest if abs(now - before) >= 1))
    if too_many:
        sys.exit(f"bench: more than {most_percent:g} % more instructions than {other}: " + "; ".join(too_many))
