"""counting.py: how many instructions of a check count it: counters and histograms, by callgrind's sums of lines, for bench.py.

Whole programs with and without counting differ by more than it costs, in either direction: the compiler lays all else out
anew. Sums of lines are the same in each run, but for ticks that bring more checks or fewer.
"""

import collections
import functools
import re
import sys

from harness import Ratelimitd, build_dir, short_directory

MOST = 40  # instructions a check at 16x16, more than before there were metrics
BEFORE = {"memory": 43, "redis": 37}  # by the same rule, of the commit before `admin: metrics of decisions, limits and durations`
FEW, MANY = 4000, 20000

# A line counts if it is in one of these files or functions, or if it names a counter or a time that is counted.
FILES = re.compile(r"src/base/(?:latency|histogram|counters)\.[ch]$")
FUNCTIONS = re.compile(r"^(?:static )?(?:inline )?\w+ (?:is_near|count_\w+|check_count_decided|methods_count_\w+)\(.*\)$")
LINES = re.compile(r"_counters\.|latency_|latencies|histogram_|\bn_asked\[|[.>]read_us = ")


class CountedDaemon(Ratelimitd):
    """Runs under callgrind, which writes the instructions of each line at the end."""

    def argv(self):
        self.lines_file = short_directory() / "lines"
        return ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no",
                f"--callgrind-out-file={self.lines_file}", *super().argv()]


@functools.cache
def counting_lines(file):
    """The numbers of a source file's lines that count."""
    numbers, inside = set(), False
    for number, line in enumerate((build_dir().parent.parent / file).read_text().splitlines(), 1):
        inside = bool(FUNCTIONS.match(line)) or (inside and line != "}")
        if inside or FILES.search(file) or LINES.search(line):
            numbers.add(number)
    return numbers


def lines_of(path):
    """{(file, line): instructions} of our own lines, without what they call."""
    lines, file, is_callee = collections.Counter(), None, False
    for row in path.read_text().splitlines():
        name, is_name, value = row.partition("=")
        if name in ("fl", "fi", "fe"):
            found = re.search(r"(?:^|/)((?:src|proto)/.*)", value)
            file = found[1] if found and (build_dir().parent.parent / found[1]).exists() else None
        elif name == "calls":
            is_callee = True  # the next row has its sum
        elif not is_name and re.fullmatch(r"\d+ \d+", row):
            if file and not is_callee:
                number, instructions = map(int, row.split())
                lines[file, number] += instructions
            is_callee = False
    return lines


def run(load, options, config, n_requests):
    daemon = CountedDaemon(config, **options)
    try:
        load(["-s", daemon.socket, "-p", "open", "-a", "-c", 16, "-d", 16, "-n", n_requests])
        daemon.stop(60)
        return lines_of(daemon.lines_file)
    finally:
        daemon.lines_file.unlink(missing_ok=True)
        daemon.lines_file.parent.rmdir()
        daemon.close()


def each_check(load, options, config):
    """The instructions that count a check."""
    few, many = (run(load, options, config, n) for n in (FEW, MANY))
    return sum(n - few[file, line] for (file, line), n in many.items() if line in counting_lines(file)) / (MANY - FEW)


def table(load, config, redis):
    print("\n### Instructions that count a check: counters and histograms, 16x16 (callgrind)\n\n"
          f"| store | now | before there were metrics | more, at most {MOST} |\n|---|---|---|---|")
    found = {store: each_check(load, options, config) for store, options in (("memory", {}), ("redis", {"redis": redis}))}
    for store, now in found.items():
        print(f"| {store} | {now:.0f} | {BEFORE[store]} | {now - BEFORE[store]:.0f} |", flush=True)
    if any(now - BEFORE[store] > MOST for store, now in found.items()):
        sys.exit(f"bench: counting costs a check more than {MOST} instructions")
    return found
