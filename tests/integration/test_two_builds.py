"""test_two_builds.py: a short `./dev soak upgrade`, with this build in both roles: one round without leases and one with, in which
the other daemon knows none."""

import subprocess
import sys

from harness import ROOT, build_dir


def test_two_daemons_on_one_redis_admit_as_much_as_one_also_if_one_of_them_leases():
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "bench" / "two_builds.py"), str(build_dir()), "6"], text=True,
                          stdout=subprocess.PIPE)
    assert done.returncode == 0 and "all accounted for" in done.stdout, done.stdout
