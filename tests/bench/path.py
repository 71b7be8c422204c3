"""path.py: lists the functions of ours on the path of one admitted check: the code that a reader has to follow.

    path.py [--list] [memory | redis]

The daemon is built without optimization and runs under callgrind. A function counts if it ran at least once for every two
checks. With one check at a time (1x1) the work of each tick counts too; with 16 connections of 16 checks it does not. To see
what the compiler leaves of the path, set RATELIMITD_BUILD=build/release.

The structs are those that these functions name, but for base/ and proto/. ARCHITECTURE.md draws what a check meets: it fails
if that drawing lacks one of the path of 16x16.
"""

import argparse
import collections
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "debug"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from harness import Ratelimitd, Redis, program, short_directory  # noqa: E402

CONFIG = """
defaults: {deadline: 5s, on_failure: error}
policies: {open: {algorithm: token_bucket, limit: 100000, window: 365d}} # a used key always has a state
"""
FEW, MANY = 500, 1500
OURS = re.compile(r"(?:^|/)((?:src|proto)/.*)")


class CountedDaemon(Ratelimitd):
    """Runs under callgrind, which writes the number of calls between functions at the end."""

    def argv(self):
        self.calls_file = short_directory() / "calls"
        return ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no",
                f"--callgrind-out-file={self.calls_file}", *super().argv()]


def calls_of(path):
    """{(file, function): calls} of our own functions."""
    calls, file, callee_file, callee = collections.Counter(), "", "", ""
    for line in path.read_text().splitlines():
        name, _, value = line.partition("=")
        if name in ("fl", "fi", "fe"):
            file = value
        elif name in ("cfi", "cfl"):
            callee_file = value
        elif name == "cfn":
            callee = value.split("'")[0]  # a recursive call is func'2
        elif name == "calls":
            calls[(callee_file or file, callee)] += int(value.split()[0])
            callee_file = ""
    ours = {}
    for (where, function), n in calls.items():
        found = OURS.search(where)  # absolute, or as the compiler's cache gave it
        if found and (ROOT / found.group(1)).exists():
            ours[(found.group(1), function)] = n
    return ours


def source(path):
    return re.sub(r"/\*.*?\*/", " ", (ROOT / path).read_text(), flags=re.S)


def structs_of(path):
    """The structs that the functions of a path name: ours, above base/ and proto/."""
    named = set()
    for file, function in path:
        if file.startswith("src/") and not file.startswith("src/base/"):
            body = re.search(rf"^\w[\w *]*\b{function}\([^;{{}}]*\)\n\{{\n.*?^\}}", source(file), re.M | re.S)
            named.update(re.findall(r"\bstruct (\w+)", body.group()) if body else ())
    low = "".join(source(header) for folder in ("src/base", "proto") for header in (ROOT / folder).glob("*.h"))
    return {name for name in named if not re.search(rf"\bstruct {name} \{{", low)}


def drawn_structs():
    """Those of ARCHITECTURE.md: in lines that begin with `struct a, b`."""
    lines = re.findall(r"^struct (\w+(?:, \w+)*)", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    return {name for line in lines for name in line.split(", ")}


def counted(store, load, n_checks):
    redis = Redis() if store == "redis" else None
    daemon = CountedDaemon(CONFIG, redis=redis)
    try:
        subprocess.run([program("rl_load"), "-s", daemon.socket, "-p", "open", "-a", "-c", str(load), "-d", str(load), "-k", "10",
                        "-n", str(n_checks)], check=True, capture_output=True)
        daemon.stop(60)
        return calls_of(daemon.calls_file)
    finally:
        daemon.calls_file.unlink(missing_ok=True)
        daemon.calls_file.parent.rmdir()
        daemon.close()
        if redis:
            redis.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="also print each function and how often it runs for a check")
    parser.add_argument("stores", nargs="*", choices=[[], "memory", "redis"], metavar="STORE")
    options = parser.parse_args()
    print("| store | load | functions | files | structs |\n|---|---|---|---|---|")
    lists, lacking = [], set()
    for store, load in itertools.product(options.stores or ("memory", "redis"), (16, 1)):
        few, many = counted(store, load, FEW), counted(store, load, MANY)
        each = {where: (n - few.get(where, 0)) / (MANY - FEW) for where, n in many.items()}
        path = {where: n for where, n in each.items() if n >= 0.5}
        structs = structs_of(path)
        lacking |= structs - drawn_structs() if load > 1 else set()
        print(f"| {store} | {load}x{load} | {len(path)} | {len({file for file, _ in path})} | {len(structs)} |", flush=True)
        lists += [f"{store:7} {load:2}x{load:<2} {n:6.2f}  {file}: {function}" for (file, function), n in sorted(path.items())]
    if options.list:
        print("\n".join(lists))
    if lacking:
        sys.exit(f"ARCHITECTURE.md does not draw what a check meets: {', '.join(sorted(lacking))}")


if __name__ == "__main__":
    main()
