"""test_twins.py: a slice of what ./dev soak model runs for long: random turns decided by the script and by the C
algorithms, every field compared in C. Their traces have every kind of op (tests/judge/twin_traces.c)."""

import os
import re
import subprocess
import sys

from harness import ROOT, build_dir

FIRST, TRACES = 2, 3
KINDS = {"check", "peek", "reset", "at_most", "request_id", "refund", "reserve", "settle", "cancel", "sweep", "acquire",
         "release", "renew"}


def test_the_script_and_the_c_algorithms_agree_on_random_turns(server):
    done = subprocess.run([str(build_dir() / "tests" / "twins"), server.socket, str(FIRST), "0", str(TRACES)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    decisions, n_traces = map(int, re.match(r"(\d+) decisions of (\d+) traces", done.stdout).groups())
    assert n_traces == TRACES and decisions > 10_000 * TRACES
    kinds = re.findall(r"(\w+) (\d+) \((\d+) [a-z ]+\)", done.stdout.splitlines()[1])
    assert {name for name, n, told in kinds if int(n) >= int(told) > 0} == KINDS, done.stdout
    assert sum(int(n) for _, n, _ in kinds) == decisions


def test_the_soak_counts_what_each_part_judged():
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "bench" / "soak_model.py"), "--seed", "5000", "--traces", "1"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"^([\d,]+) decisions judged by the model; ([\d,]+) by the C twins .*; 0 failed$", done.stdout, re.M)
    assert counts, done.stdout
    assert re.search(r"^the twins: check [\d,]+ \([\d,]+ allowed\), .*, renew ", done.stdout, re.M), done.stdout


def test_a_difference_is_told_with_its_seed_and_step(server):
    """Somebody else empties the store all the while, so that the script forgets what the C algorithms know."""
    twins = subprocess.Popen([str(build_dir() / "tests" / "twins"), server.socket, "7", "60", "1000"],
                             stdout=subprocess.PIPE, text=True)
    with server.client() as client:
        while twins.poll() is None:
            client.flushall()
    output, _ = twins.communicate()
    assert twins.returncode == 1
    assert re.match(r"twins: seed \d+, turn \d+, step \d+, .*\n  script: .*\n  memory: ", output), output


def test_a_part_of_the_soak_that_breaks_is_a_failure(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "bench" / "soak_model.py"), "--traces", "1"], text=True,
                          capture_output=True, timeout=300, env={**os.environ, "RATELIMITD_BUILD": str(tmp_path)})
    assert done.returncode == 1
    assert "model broke" in done.stdout and "twins broke" in done.stdout
