"""run.py: runs every test of the repository, and adds up the results. `./dev test`, `./dev lint` and `./dev fuzz` call it.

A step is one tool on one build. Each step writes JUnit XML under build/test/, and the sums come from there: a test without a
report has not passed. A test of a full run that fails is run again alone at the end: again.py. The last line is "N passed, N
failed, N skipped"; the exit status is 0 only if none failed and some passed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "clients"))
import again  # noqa: E402
from steps import Count, of_junit  # noqa: E402

RESULTS = Path(os.environ.get("TEST_RESULTS", ROOT / "build" / "test"))
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "FAILED_TESTS"}  # tests call ./dev test, too
BROKEN = set()  # presets that did not build
BUILDS_COUNT = False  # is a build a test? As a prerequisite of others it counts only if it fails
RUN_AGAIN = None  # in a full run: the folder for tests that failed
CORES = os.cpu_count() or 1
SHORT_FUZZ_SECONDS = 10
LANES = 3  # parallel integration tests, which mostly wait for processes
# The first files of the lanes, then the largest.
TAKE_LONG = ("test_local_share", "test_sentinel", "test_cluster", "test_cluster_random", "test_model")
# Folders of pytest, against real servers: the daemon; the script, and the algorithms by their model (at the socket too).
DAEMON_TESTS, SCRIPT_TESTS = ("integration",), ("lua", "model")
OPERATION_TESTS = ("integration/operation",)  # a part of its own, which needs Prometheus
FAULT_TESTS = ("integration/faults",)  # a part of its own, of which everything() runs a slice


def slug(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def tool(name, argv, env=None):
    """Run a tool without a terminal; its output goes to NAME.log among the results and comes back as text."""
    log = RESULTS / f"{slug(name)}.log"
    with open(log, "wb") as out:
        code = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                              env={**ENVIRONMENT, **(env or {})}).returncode
    return code, log.read_text(errors="replace")


def leave(found):
    for one in found if RUN_AGAIN else ():
        one.leave(RUN_AGAIN)


def show(output, lines=200):
    kept = output.rstrip().splitlines()
    if len(kept) > lines:
        print(f"   ... ({len(kept) - lines} lines before this in build/test/)")
    for line in kept[-lines:]:
        print(f"   {line}")


def junit(path):
    """A pytest or lint report as a Count."""
    return of_junit([path] if path.exists() else [])


def of_ctest(path):
    """(its name, its Count, why it failed or None) of each program in a CTest report, each test of cmocka counted by itself."""
    for case in ElementTree.parse(path).getroot().iter("testcase") if path.exists() else ():
        output = case.findtext("system-out") or ""
        failed = re.findall(r"\[  FAILED  \] (\w+)$", output, re.M)  # each twice: the end of the output lists them
        one = Count(output.count("[       OK ]"), len(failed) // 2, len(re.findall(r"\[  SKIPPED \] \w+$", output, re.M)))
        if case.get("status") == "run":
            yield case.get("name"), one if one.passed + one.skipped else Count(1), None
        else:  # it failed, or did not run; a crash names no test, so it counts here
            reason = ", ".join(dict.fromkeys(failed)) or f"{case.get('status')} without a failed test"
            yield case.get("name"), Count(one.passed, max(one.failed, 1), one.skipped), reason


def failed_in_ctest(preset, found):
    for name, count, reason in found:
        if reason:
            argv = ["ctest", "--test-dir", f"build/{preset}", "-R", f"^{name}$", "--no-tests=error", "--output-on-failure"]
            yield again.Failed(name, count.failed, f"{reason} (ctest-{preset}.log)", argv, "^100% tests passed, 0 tests failed out of 1")


def build(preset, targets=()):
    def step():
        code, output = tool(f"configure {preset}", ["cmake", "--preset", preset])
        if code == 0:
            argv = ["cmake", "--build", "--preset", preset, *(["--target", *targets] if targets else [])]
            code, output = tool(f"build {preset}", argv)
        if code:
            BROKEN.add(preset)
            show("\n".join(line for line in output.splitlines() if not line.startswith("[")), 80)
        return Count(passed=int(code == 0 and BUILDS_COUNT), failed=int(code != 0))

    return f"build {preset}", step


def unless_broken(preset, name, step):
    def step_of_preset():
        if preset in BROKEN:
            print(f"   {name}: not run, its build failed")
            return Count()
        return step()

    return name, step_of_preset


def ctest(preset, names=()):
    def step():
        report = RESULTS / f"ctest-{preset}.xml"
        report.unlink(missing_ok=True)
        argv = ["ctest", "--test-dir", f"build/{preset}", "-j", str(CORES), "--output-on-failure", "--output-junit",
                str(report), "--test-output-size-passed", "1000000", "--test-output-size-failed", "1000000"]
        if names:
            argv += ["-R", "|".join(re.escape(name) for name in names)]
        code, output = tool(f"ctest {preset}", argv)
        found = list(of_ctest(report))
        count = sum((one for _, one, _ in found), Count())
        if code:
            show(output)
            leave(failed_in_ctest(preset, found))
            count.failed = max(count.failed, 1)
        return count

    return unless_broken(preset, f"unit and scenario tests ({preset})", step)


def pytest(title, preset, paths, *selection, env=None):
    """`paths` are folders or files below tests/."""
    name = f"{title} ({preset})"

    def step():
        report = RESULTS / f"{slug(name)}.xml"
        report.unlink(missing_ok=True)
        present = [f"tests/{path}" for path in paths if (ROOT / "tests" / path).exists()]
        python, of_preset = [sys.executable, "-m", "pytest"], {"RATELIMITD_BUILD": str(ROOT / "build" / preset)}
        argv = [*python, *present, "-q", "-ra", "--tb=short", f"--junitxml={report}", "-o", "junit_family=xunit1", *selection]
        code, output = tool(name, argv, {**of_preset, **(env or {})})
        count = junit(report)
        if code not in (0, 5):  # 5: nothing was selected
            show(output)
            leave(again.of_pytest(report, "tests/", python, env=of_preset))
            count.failed = max(count.failed, 1)
        return count

    return unless_broken(preset, name, step)


def lanes(n, title, preset, folders, *selection):
    """The tests of folders in n steps. Each takes the next file that none has taken yet (tests/conftest.py): first those that take
    longest, so that the lanes end at about the same time."""
    tests = ROOT / "tests"
    found = [path for folder in folders for path in (tests / folder).glob("test_*.py")]
    found.sort(key=lambda path: (path.stem not in TAKE_LONG, -path.stat().st_size, path))
    files = [str(path.relative_to(tests)) for path in found]
    taken = RESULTS / f"{slug(title)}-taken"
    shutil.rmtree(taken, ignore_errors=True)
    taken.mkdir(parents=True)
    return [pytest(f"{title}, lane {i + 1}", preset, files, *selection, env={"TAKEN_FILES": str(taken)}) for i in range(n)]


def in_the_background(step):
    """At a lower priority, for heavy computation during tests that wait for deadlines."""
    name, run_it = step

    def background():
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # of this thread; its children inherit it
        return run_it()

    return name, background


def measured(step, shown_as=None):
    """Runs it, and prints its sum."""
    name, run_it = step
    started = time.monotonic()
    count = run_it()
    print(f"   {name + ': ' if shown_as is None else shown_as}{count} ({time.monotonic() - started:.1f} s)", flush=True)
    return count


def in_turn(*steps):
    """As one step, for the background."""
    return "; ".join(name for name, _ in steps), lambda: sum(map(measured, steps), Count())


def together(*steps):
    """Steps that do not fill the machine by themselves, at the same time."""
    def step():
        with ThreadPoolExecutor(len(steps)) as pool:
            return sum(pool.map(measured, steps), Count())

    return " and ".join(name for name, _ in steps), step


def lint(names=(), whole=False):
    def step():
        report = RESULTS / "lint.xml"
        report.unlink(missing_ok=True)
        code, output = tool("lint", [sys.executable, "tests/lint/lint.py", "--junit", str(report), *(["--all"] if whole else []), *names])
        count = junit(report)
        if code:
            show(output)
            count.failed = max(count.failed, 1)
        return count

    return "lint", step


def fuzz_targets():
    return sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("fuzz_*.c"))


def fuzz(target, seconds):
    def step():
        place = RESULTS / target
        shutil.rmtree(place, ignore_errors=True)
        (place / "corpus").mkdir(parents=True)
        folders = (ROOT / "tests" / "fuzz" / "seeds" / target, ROOT / "build" / "fuzz" / "fuzz" / "seeds" / target)
        seeds = [str(path) for path in folders if path.is_dir()]
        code, output = tool(target, [f"build/fuzz/fuzz/{target}", f"-max_total_time={seconds}", "-timeout=10",
                                     "-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={place}/",
                                     str(place / "corpus"), *seeds])
        if code:
            show(output, 60)
        else:
            runs = re.search(r"number_of_executed_units:\s*(\d+)", output)
            print(f"   {int(runs.group(1)):,} inputs" if runs else "   (no statistics)")
        return Count(passed=int(code == 0), failed=int(code != 0))

    return unless_broken("fuzz", f"{target}, {seconds} s", step)


def fuzzing(seconds, names=()):
    """The steps that build and run the fuzz targets: all, or those whose name contains one of NAMES."""
    targets = [target for target in fuzz_targets() if not names or any(name in target for name in names)]
    if not targets:
        return []
    steps = [fuzz(target, seconds) for target in targets]
    return [build("fuzz", targets), *(together(*steps[i:i + CORES]) for i in range(0, len(steps), CORES))]


BENCH_PROGRAMS = ("rl_load", "rl_flood", "rl_outage", "rl_script")  # built here so that they do not break unnoticed; ./dev bench runs them


def everything():
    """The tests of the daemon mostly wait. What computes runs behind them: the other builds and lint, the script and the models."""
    build_fuzz, *fuzz_all = fuzzing(SHORT_FUZZ_SECONDS)
    models, more_models = lanes(2, "script and model tests", "asan", SCRIPT_TESTS)
    builds_and_lint = in_turn(build("release", ("all", "rl_load")), build("clang", ("all", *BENCH_PROGRAMS)),
                              build("debug", ("ratelimitd", "ratelimitctl")), build_fuzz, lint(),  # ./dev run starts the debug build
                              more_models)
    return [
        build("asan"), ctest("asan"),
        together(*lanes(LANES, "integration tests", "asan", DAEMON_TESTS, "-m", "not release"), in_the_background(builds_and_lint),
                 in_the_background(models)),
        ctest("release"),
        together(pytest("a slice of the faults", "asan", FAULT_TESTS, "-m", "slice"),
                 pytest("integration tests", "release", DAEMON_TESTS, "-m", "smoke or release")),
        *fuzz_all,
    ]


def faults(names):
    """Every fault of docs/faults.md, or those that NAMES select. The files in LANES steps, which mostly wait."""
    selection = ["-k", " or ".join(names)] if names else []
    return [build("asan"), together(*lanes(LANES, "faults", "asan", FAULT_TESTS, *selection))]


def operation(names):
    selection = ["-k", " or ".join(names)] if names else []
    return [build("asan"), build("no-http", ("ratelimitd", "ratelimitctl", "test_admin_metrics", "test_admin_host")),
            pytest("operation", "asan", OPERATION_TESTS, *selection)]


def newest(names):
    """What speaks to Redis: server, Sentinel, Cluster and script tests, with the servers that come first in PATH."""
    selection = ["-k", " or ".join(names) if names else "redis or valkey or sentinel or cluster"]
    return [build("asan"), together(*lanes(LANES, "newest servers", "asan", DAEMON_TESTS, "-m", "not release", *selection)),
            pytest("newest servers, the script", "asan", ("lua",), *selection)]


def selected(names):
    """The steps for NAMES: lint, fuzz, a part of a C test's file name, or else a pytest expression."""
    programs = [path.stem for kind in ("unit", "scenario") for path in (ROOT / "tests" / kind).glob("test_*.c")]
    c_tests = [name for name in names if any(name in program for program in programs)]
    steps = []
    if c_tests:
        steps += [build("asan"), ctest("asan", c_tests)]
    expressions = [name for name in names if name not in ("lint", "fuzz")]
    if expressions:
        steps += [] if c_tests else [build("asan")]
        for title, folders in (("selected integration tests", DAEMON_TESTS), ("selected script tests", SCRIPT_TESTS)):
            steps.append(pytest(title, "asan", folders, "-k", " or ".join(expressions)))  # separate runs: files share names
    if "lint" in names:
        steps.append(lint())
    if "fuzz" in names:
        steps += fuzzing(SHORT_FUZZ_SECONDS)
    return steps


def run(steps):
    """Run them in order."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    total = Count()
    for step in steps:
        print(f"-- {step[0]}", flush=True)
        total += measured(step, shown_as="")
    if RUN_AGAIN and "FAILED_TESTS" not in os.environ:  # else .ci/run does it, after all parts
        passed_alone = again.settle(RUN_AGAIN)
        total += Count(passed_alone, -passed_alone)
    print(total, flush=True)
    return 0 if total.passed and not total.failed else 1


def main():
    parser = argparse.ArgumentParser(description="Run the tests and sum them up.")
    parser.add_argument("--lint", action="store_true", help="only lint; NAMEs are checks")
    parser.add_argument("--all", action="store_true", help="with --lint: clang-tidy reads every file")
    parser.add_argument("--faults", action="store_true", help="only the faults of docs/faults.md: [NAME...]")
    parser.add_argument("--newest", action="store_true", help="only what speaks to Redis: [NAME...]")
    parser.add_argument("--operation", action="store_true", help="only what operators use: [NAME...]")
    parser.add_argument("--fuzz", action="store_true", help="only fuzzing: [SECONDS [TARGET...]]")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    names = options.names
    if options.lint:
        steps = [lint(names, options.all)]
    elif options.faults:
        steps = faults(names)
    elif options.operation:
        steps = operation(names)
    elif options.newest:
        steps = newest(names)
    elif options.fuzz:
        seconds = int(names[0]) if names else 60
        steps = fuzzing(seconds, names[1:])
    else:
        steps = selected(names) if names else everything()
    global BUILDS_COUNT, RUN_AGAIN
    if not (names or options.lint or options.fuzz):
        BUILDS_COUNT = not (options.faults or options.operation or options.newest)
        RUN_AGAIN = Path(os.environ.get("FAILED_TESTS", RESULTS / "failed"))
        if "FAILED_TESTS" not in os.environ:
            shutil.rmtree(RUN_AGAIN, ignore_errors=True)
    sys.exit(run(steps))


if __name__ == "__main__":
    main()
