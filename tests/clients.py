"""clients.py: runs the `test` of each client in clients/, and adds up the results. `./dev test clients [LANG...]` calls it, and
`./dev bench clients [LANG...]` with --bench.

./dev passes the languages whose tools are missing (--missing LANG): these are skipped, and fail if CI is set. LANES languages
run at the same time, because much of a run is waiting. A test that fails is run again alone at the end: again.py.
The last line is "N passed, N failed, N skipped".
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "clients"))
import again  # noqa: E402
from steps import Count, of_sum  # noqa: E402

RESULTS = Path(os.environ.get("TEST_RESULTS", ROOT / "build" / "test"))
FAILED = Path(os.environ.get("FAILED_TESTS", RESULTS / "failed-of-clients"))
LANES = 2


def languages(program):
    return sorted(path.parent.name for path in (ROOT / "clients").glob(f"*/{program}"))


def environment():
    return {**os.environ, "RATELIMITD_BUILD": str(ROOT / "build" / "release"), "DEPS": str(ROOT / ".deps"),
            "TEST_RESULTS": str(RESULTS), "FAILED_TESTS": str(FAILED)}


def run(language, program):
    """The sum of a language's own run, and its exit status; what it prints is passed on."""
    child = subprocess.Popen([str(ROOT / "clients" / language / program)], cwd=ROOT / "clients" / language, env=environment(),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    output, step = [], []
    for line in child.stdout:
        output.append(line)
        step.append(f"   {line}")
        if line.startswith("-- "):  # a step's own line is its last; others may print, too
            print("".join(step), end="", flush=True)
            step = []
    print("".join(step), end="", flush=True)
    return of_sum("".join(output)), child.wait()


def test_one(language):
    started = time.monotonic()
    count, code = run(language, "test")
    if code:
        count.failed = max(count.failed, 1)
    print(f"-- {language}: {count} ({time.monotonic() - started:.0f} s)", flush=True)
    return count


def test(chosen, missing):
    if "FAILED_TESTS" not in os.environ:
        shutil.rmtree(FAILED, ignore_errors=True)
    total = Count()
    for language in filter(missing.__contains__, chosen):
        print(f"-- {language}: its tools are missing: ./dev test clients {language} as root installs them", flush=True)
        total += Count(failed=1) if os.environ.get("CI") else Count(skipped=1)
    with ThreadPoolExecutor(LANES) as pool:
        total = sum(pool.map(test_one, [language for language in chosen if language not in missing]), total)
    if "FAILED_TESTS" not in os.environ:  # else .ci/run does it, after all parts
        passed_alone = again.settle(FAILED)
        total += Count(passed_alone, -passed_alone)
    print(total, flush=True)
    return 1 if total.failed else 0


def bench(chosen, missing):
    worst = 0
    for language in chosen:
        print(f"-- {language}", flush=True)
        if language in missing:
            print("   its tools are missing")
            continue
        worst = max(worst, subprocess.run([str(ROOT / "clients" / language / "bench")], cwd=ROOT / "clients" / language,
                                          env=environment(), stdin=subprocess.DEVNULL).returncode)
    return worst


def main():
    parser = argparse.ArgumentParser(description="Test or measure the clients.")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--list", action="store_true", help="the languages there are")
    parser.add_argument("--missing", action="append", default=[], metavar="LANG", help="a language without its tools")
    parser.add_argument("languages", nargs="*")
    options = parser.parse_args()
    program = "bench" if options.bench else "test"
    present = languages(program)
    if options.list:
        print(" ".join(present))
        return
    for language in options.languages:
        if language not in present:
            sys.exit(f"clients.py: there is no clients/{language}/{program}; there are: {' '.join(present) or 'none'}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    sys.exit((bench if options.bench else test)(options.languages or present, options.missing))


if __name__ == "__main__":
    main()
