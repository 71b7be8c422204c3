"""test_differential.py: a short part of ./dev soak model: the script and the C algorithms decide random traces, and C code
compares every field. The traces have every kind of op (tests/replay/random_traces.c), candidates, overrides, inline policies
and reloads, some with the cache of denials on."""

import os
import re
import subprocess
import sys

from harness import ROOT, build_dir

FIRST, TRACES = 6, 3  # of every four seeds the cache of denials is on in the trace of one: 8
KINDS = {"check", "peek", "reset", "at_most", "request_id", "refund", "undo", "return", "reserve", "settle", "cancel", "sweep", "acquire",
         "release", "renew"}


def test_the_script_and_the_c_algorithms_agree_on_random_traces(server):
    done = subprocess.run([str(build_dir() / "tests" / "differential"), server.socket, str(FIRST), "0", str(TRACES)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    decisions, n_traces = map(int, re.match(r"(\d+) decisions of (\d+) traces", done.stdout).groups())
    assert n_traces == TRACES and decisions > 10_000 * TRACES
    assert int(re.search(r" (\d+) kept denials$", done.stdout, re.M).group(1)) > 1000
    kinds = re.findall(r"(\w+) (\d+) \((\d+) [a-z ]+\)", done.stdout.splitlines()[1])
    assert {name for name, n, counted in kinds if int(n) >= int(counted) > 0} == KINDS, done.stdout
    assert sum(int(n) for _, n, _ in kinds) == decisions


def test_the_soak_counts_the_decisions_of_each_part():
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "bench" / "soak_model.py"), "--seed", "5000", "--traces", "1",
                           "--on", "redis"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"^([\d,]+) decisions compared with the model; ([\d,]+) of the script with the C algorithms, .*; 0 failed$", done.stdout, re.M)
    assert counts, done.stdout
    assert re.search(r"^differential: check [\d,]+ \([\d,]+ allowed\), .*, renew ", done.stdout, re.M), done.stdout


def test_a_difference_is_printed_with_its_seed_and_step(server):
    """The test empties Redis all the time, so that the script forgets what the C algorithms still have."""
    process = subprocess.Popen([str(build_dir() / "tests" / "differential"), server.socket, "7", "60", "1000"],
                             stdout=subprocess.PIPE, text=True)
    with server.client() as client:
        while process.poll() is None:
            client.flushall()
    output, _ = process.communicate()
    assert process.returncode == 1
    assert re.match(r"differential: seed \d+, tick \d+, step \d+, .*\n  script: .*\n  memory: ", output), output


def test_a_part_of_the_soak_that_breaks_is_a_failure(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "bench" / "soak_model.py"), "--traces", "1"], text=True,
                          capture_output=True, timeout=300, env={**os.environ, "RATELIMITD_BUILD": str(tmp_path)})
    assert done.returncode == 1
    assert "model broke" in done.stdout and "differential broke" in done.stdout
