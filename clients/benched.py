"""benched.py: what the `bench` of a client without a tool of its own needs: a daemon, and one form of the table.

Its program prints a line for each block of checks, `ROW<tab>MICROSECONDS` of one check; show() prints the median of each row.
"""

import contextlib
import os
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))

POLICIES = """
store: {type: memory}
policies:
  bench: {algorithm: fixed_window, limit: 1000000000, window: 1h}
  full: {algorithm: fixed_window, limit: 1, window: 1h}
"""


@contextlib.contextmanager
def daemon():
    """On the memory store. A check of `bench` is allowed; one of `full` with a cost of 2 is denied for good."""
    from harness import Ratelimitd

    started = Ratelimitd(POLICIES)
    try:
        yield started
    finally:
        started.close()


def cpu():
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else "unknown processor"


def show(title, output):
    rows = {}
    for line in output.splitlines():
        name, _, us = line.rpartition("\t")
        rows.setdefault(name, []).append(float(us))
    print(f"{title}; {cpu()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':44}{'p50 us':>10}{'checks/s':>12}")
    for name, found in rows.items():
        median = statistics.median(found)
        print(f"{name:44}{median:10.3g}{1e6 / median:12.0f}")
