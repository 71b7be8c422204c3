"""test_readme_figures.py: the commands that README.md names as the sources of its figures run, and print figures of that order."""

import os
import re
import subprocess
import sys

import pytest

from harness import ROOT, build_dir

pytestmark = pytest.mark.release
README = (ROOT / "README.md").read_text()
ORDER = 10  # times or parts: what another machine, or a busy one, may differ by


@pytest.fixture(autouse=True)
def only_with_the_release():
    if "asan" in build_dir().name:
        pytest.skip("figures are the release's")


def bench(script, *arguments):
    """What `./dev bench` would print, with as short rounds as it takes."""
    named = f"`./dev bench {arguments[-1] if script == 'bench' else script}"
    assert named in README, f"README.md does not name {named} any more"
    done = subprocess.run([sys.executable, f"tests/bench/{script}.py", "--rounds", "1", "--seconds", "0.2", *arguments], cwd=ROOT,
                          capture_output=True, text=True, timeout=300, env={**os.environ, "RATELIMITD_BUILD": str(build_dir())})
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def figure(pattern):
    return float(re.search(pattern, README)[1])


def assert_same_order(measured, written, what):
    assert written / ORDER <= measured <= written * ORDER, f"{what}: {measured}, and README.md says {written}"


def test_size_prints_what_the_daemon_and_a_connection_take():
    printed = bench("bench", "size")
    idle_kib = float(re.search(r"^\| idle \| (\d+) \|", printed, re.M)[1])
    connection_bytes = float(re.search(r"\((\d+) bytes each\)", printed)[1])
    # memory depends on no clock: within a third
    assert idle_kib / 1024 == pytest.approx(figure(r"one more program to run .* yes: ([\d.]+) MiB"), rel=0.33)
    assert connection_bytes / 1024 == pytest.approx(figure(r"and ([\d.]+) KiB per idle connection"), rel=0.33)


def test_keys_prints_redis_time_for_a_token_bucket_alone_and_in_a_call_of_64():
    row = re.search(r"^\| token_bucket \|.*\| ([\d.]+) \| ([\d.]+) \|$", bench("bench", "keys"), re.M)
    assert_same_order(float(row[1]), figure(r"\| ([\d.]+) us, each is a call"), "us of Redis, alone")
    assert_same_order(float(row[2]), figure(r"\| ([\d.]+) us where 64 share a call"), "us of Redis, 64 in a call")


def test_leases_prints_what_a_check_of_a_busy_key_takes_with_redis_1_ms_away():
    if not (build_dir() / "bin" / "rl_load").exists():
        pytest.skip("rl_load is not built here")
    printed = bench("leases", "hot 1x1")
    away = printed[printed.index("a proxy, 1 ms away"):]
    written_ms = figure(r"1 ms away \| [\d.]+ ms \| [\d.]+ ms \| ([\d.]+) ms with `lease: 1s`")
    p50_us = float(re.search(r"^\| hot 1x1 \| lease: 1s \| \S+ \| (\S+) \|", away, re.M)[1])
    assert_same_order(p50_us / 1000, written_ms, "ms of a check with a lease")
