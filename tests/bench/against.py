"""against.py: this build of the daemon and another one, in paired rounds.

    ./dev bench against OTHER_BUILD [--rounds N] [--seconds S] [WORD...]
    ./dev bench against OTHER_BUILD --instructions [--most PERCENT]     see instructions.py

OTHER_BUILD is a folder with bin/ratelimitd, such as the build/release of a clone at an older commit. Every round runs both
builds in shuffled order, over Redis each with a Redis of its own. The table has the medians of both, and the median and the
quartiles of the rounds' ratios, this build's figure over the other's. A machine changes within minutes by more than most
changes of the code, so two separate runs of a bench cannot be compared. WORDs select loads by a part of their names.
"""

import argparse
import statistics
from pathlib import Path

import bench
import instructions

FIGURES = [("decisions/s", "per_second"), ("p99 us", "p99_us"), ("daemon CPU us", "daemon_us"), ("Redis CPU us", "redis_us")]


def start(runner, name, build, over_redis):
    """A side with the daemon of this build. The names have one length, for they are in the keys."""
    redis = runner.start_redis() if over_redis else None
    return bench.Side(name, daemon=runner.start_daemon(redis=redis, build=build), redis=redis)


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def row(shape, this, other):
    cells = []
    for _, key in FIGURES:
        if not all(one.get(key) for one in other):
            cells.append("-")
            continue
        ratios = [mine[key] / theirs[key] for mine, theirs in zip(this, other)]
        medians = [bench.render([one[key] for one in rounds]) for rounds in (other, this)]
        cells.append(f"{' → '.join(medians)}: {quartiles(ratios)}")
    print(f"| {shape.name} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./dev bench against", description=__doc__.splitlines()[0])
    parser.add_argument("other", metavar="OTHER_BUILD", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1, help="per build and round")
    parser.add_argument("--instructions", action="store_true", help="count instructions of a check, and nothing else")
    parser.add_argument("--most", metavar="PERCENT", type=float, default=1, help="more than so many more instructions are an error")
    parser.add_argument("words", metavar="WORD", nargs="*")
    options = parser.parse_intermixed_args()
    if options.rounds < 2:
        parser.error("--rounds: 2 or more")
    if not (options.other / "bin" / "ratelimitd").is_file():
        parser.error(f"{options.other} has no bin/ratelimitd; name a build, such as build/release of another clone")

    if options.instructions:
        instructions.compare(options.other, options.most)
        return

    builds = {"new": None, "old": options.other.resolve()}
    print(f"{bench.machine()}\n{options.other} → this build: this one's figure over the other's, median (quartiles) of "
          f"{options.rounds} paired rounds of {options.seconds} s")
    for title, shapes in (("Over Redis", bench.REDIS_SHAPES), ("Memory store", bench.MEMORY_SHAPES)):
        wanted = [shape for shape in shapes if all(word in f"{title} {shape.name}" for word in options.words)]
        if not wanted:
            continue
        print(f"\n### {title}\n\n| load | " + " | ".join(name for name, _ in FIGURES) + " |\n|---|" + "---|" * len(FIGURES))
        runner = bench.Bench(options.rounds, options.seconds)
        try:
            sides = [start(runner, name, build, title == "Over Redis") for name, build in builds.items()]
            for shape in wanted:
                rounds = runner.compare(shape, sides)
                row(shape, rounds["new"], rounds["old"])
        finally:
            runner.close()


if __name__ == "__main__":
    main()
