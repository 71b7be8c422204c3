"""counting.py: how many instructions of a check count it: counters and histograms; how many look whether it is denied or near
a limit; and how many look after leases, of a policy that has none: by callgrind's sums of lines, for bench.py.

Whole programs with and without counting differ by more than it costs, in either direction: the compiler lays all else out
anew. Sums of lines are the same in each run, but for ticks that bring more checks or fewer.
"""

import collections
import functools
import re
import sys
import typing

from harness import Ratelimitd, build_dir, short_directory

MOST = 40  # instructions a check at 16x16, more than before there were metrics
BEFORE = {"memory": 43, "redis": 37}  # by the same rule, of the commit before `admin: metrics of decisions, limits and durations`
MOST_WATCH = 40  # of a check that is allowed: denied keys, and who is near a limit
MOST_LEASES = 0.01  # of a check's instructions
FEW, MANY = 4000, 20000


class Part(typing.NamedTuple):
    """A line is of it if it is in one of these files or functions, or has one of these names."""
    files: re.Pattern
    functions: re.Pattern
    lines: re.Pattern


COUNTING = Part(re.compile(r"src/base/(?:latency|histogram|counters)\.[ch]$"),
                re.compile(r"^(?:static )?(?:inline )?\w+ (?:is_near|count_\w+|check_count_decided|methods_count_\w+)\(.*\)$"),
                re.compile(r"_counters\.|latency_|latencies|histogram_|\bn_asked\[|[.>]read_us = "))
WATCH = Part(re.compile(r"src/server/watch\.[ch]$"),
             re.compile(r"^(?:static )?(?:inline )?\w+ (?:is_near|note_check)\(.*\)$"), re.compile(r"watch_takes|note_check\(|is_near\("))
LEASES = Part(re.compile(r"src/engine/unit_leases\.[ch]$"), re.compile(r"(?!)"),
              re.compile(r"unit_lease|is_leased|asks_lease|n_leased|may_lease"))


class CountedDaemon(Ratelimitd):
    """Runs under callgrind, which writes the instructions of each line at the end."""

    def argv(self):
        self.lines_file = short_directory() / "lines"
        return ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no",
                f"--callgrind-out-file={self.lines_file}", *super().argv()]


@functools.cache
def lines_of_part(part, file):
    """The numbers of a source file's lines that are of it."""
    numbers, inside = set(), False
    for number, line in enumerate((build_dir().parent.parent / file).read_text().splitlines(), 1):
        inside = bool(part.functions.match(line)) or (inside and line != "}")
        if inside or part.files.search(file) or part.lines.search(line):
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
    """The instructions of a check in our own lines: those that count it, those of leases, all."""
    few, many = (run(load, options, config, n) for n in (FEW, MANY))
    each = {(file, line): (n - few[file, line]) / (MANY - FEW) for (file, line), n in many.items()}
    parts = [sum(n for (file, line), n in each.items() if line in lines_of_part(part, file)) for part in (COUNTING, WATCH, LEASES)]
    return *parts, sum(each.values())


def table(load, config, redis):
    found = {store: each_check(load, options, config) for store, options in (("memory", {}), ("redis", {"redis": redis}))}
    print("\n### Instructions that count a check: counters and histograms, 16x16 (callgrind)\n\n"
          f"| store | now | before there were metrics | more, at most {MOST} |\n|---|---|---|---|")
    for store, (now, *_) in found.items():
        print(f"| {store} | {now:.0f} | {BEFORE[store]} | {now - BEFORE[store]:.0f} |")
    print("\n### Instructions of a check for denied keys and who is near a limit\n\n"
          f"| store | now, at most {MOST_WATCH} |\n|---|---|")
    for store, (_, watch, _, _) in found.items():
        print(f"| {store} | {watch:.0f} |")
    print("\n### Instructions of leases in a check whose policy has none\n\n"
          f"| store | leases | all of our own | part, at most {MOST_LEASES:.0%} |\n|---|---|---|---|")
    for store, (_, _, leases, every) in found.items():
        print(f"| {store} | {leases:.1f} | {every:.0f} | {leases / every:.2%} |", flush=True)

    if any(now - BEFORE[store] > MOST for store, (now, *_) in found.items()):
        sys.exit(f"bench: counting costs a check more than {MOST} instructions")
    if any(watch > MOST_WATCH for _, watch, _, _ in found.values()):
        sys.exit(f"bench: a check that is allowed pays more than {MOST_WATCH} instructions for denied keys and who is near a limit")
    if any(leases > MOST_LEASES * every for _, _, leases, every in found.values()):
        sys.exit(f"bench: leases cost a check without them more than {MOST_LEASES:.0%} of its instructions")
    return found
