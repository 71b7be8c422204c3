#!/usr/bin/env python3
"""run.py: tests a client against the contract of docs/clients.md.

    run.py LANG [CASE...]      the cases with the name CASE, or whose names contain it; without one, all
    run.py --http LANG [CASE...]   the example services of the language's frameworks, against http.yaml
    run.py --list              the names of all cases

LANG is a folder of clients/ with a conformance/driver.yaml. README.md describes both. RATELIMITD_BUILD names the build of
the daemon (default build/release), TEST_RESULTS the folder for the JUnit report and the logs.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

try:
    import msgpack  # noqa: F401
    import yaml
except ImportError:  # the tests' virtual environment has them
    python = Path(os.environ.get("DEPS") or ROOT / ".deps") / "venv" / "bin" / "python"
    if not python.exists() or os.environ.get("CONFORMANCE_PYTHON"):
        sys.exit("run.py: msgpack and pyyaml are missing: ./dev setup")
    os.execve(python, [str(python), *sys.argv], {**os.environ, "CONFORMANCE_PYTHON": "1"})

sys.path.insert(0, str(HERE))
from matching import Cases, Found  # noqa: E402

RESULTS = Path(os.environ.get("TEST_RESULTS") or ROOT / "build" / "test")
TIMED = ("timeout_ms", "ms", "not_before_ms", "within_ms")


class Result:
    def __init__(self, name, verdict, seconds=0.0, message="", transcript=()):
        self.name, self.verdict, self.seconds, self.message, self.transcript = name, verdict, seconds, message, list(transcript)


def substituted(value, names):
    """Replaces ${name} in a case with the fields of a row. A text that is only ${name} becomes the value itself."""
    if isinstance(value, str):
        for name, one in names.items():
            if value == f"${{{name}}}":
                return one
            value = value.replace(f"${{{name}}}", str(one))
        return value
    if type(value) is dict:
        made = {substituted(key, names): substituted(one, names) for key, one in value.items()}
        return {**{key: one for key, one in made.items() if key != "<<"}, **made.get("<<", {})}  # "<<": fields of a row
    if type(value) is list:
        return [substituted(one, names) for one in value]
    if isinstance(value, Found):
        made = substituted(value.pattern, names)
        return Found(made) if isinstance(made, str) else made
    return value


def all_cases():
    """All cases of cases/*.yaml as GROUP/NAME; a case with `for` once for each of its rows."""
    found = {}
    for path in sorted((HERE / "cases").glob("*.yaml")):
        for case in yaml.load(path.read_text(), Cases):
            rows = case.pop("for", [{}])
            for row in rows:
                one = substituted(case, row)
                name = f"{path.stem}/{one['name']}"
                if name in found:
                    sys.exit(f"run.py: two cases have the name {name}")
                found[name] = one
    from tables import cases_of_tables
    found.update(cases_of_tables(HERE))
    return found


def has_a_time(value):
    if isinstance(value, dict):
        return any(name in TIMED or has_a_time(one) for name, one in value.items())
    return isinstance(value, list) and any(map(has_a_time, value))


class Runner:
    """Runs cases with one driver. Restarts the driver after a failed case."""

    def __init__(self, variant):
        self.variant = variant
        self.log = open(RESULTS / f"conformance-{variant.name}-driver.log", "wb")
        self.subject = None

    def once(self, case):
        """(complaint or None, transcript)"""
        from play import Play
        from subject import Subject

        play = None
        with tempfile.TemporaryDirectory(prefix="rl.", dir="/tmp") as folder:
            try:
                if self.subject is None:
                    self.subject = Subject(self.variant, self.log)
                play = Play(case, self.subject, self.variant, folder, self.log)
                play.run()
                complaint = None
            except AssertionError as error:
                complaint = str(error)
            except Exception:  # a mistake in the case
                complaint = traceback.format_exc()
            try:
                if play:
                    self.subject = play.subject
                    play.clean_up()
            except AssertionError as error:
                complaint = complaint or str(error)
        if complaint is None:
            self.subject.forget()
        elif self.subject:
            self.subject.kill()
            self.subject = None
        return complaint, play.transcript if play else []

    def run(self, name, case):
        reason = self.variant.reason_against(name)
        if reason:
            return Result(name, "skipped", message=reason)
        started = time.monotonic()
        complaint, transcript = self.once(case)
        if complaint and has_a_time(case):  # the machine may have been busy: try again
            first = complaint
            complaint, transcript = self.once(case)
            if complaint is None:
                print(f"   {name}: passed only at the second attempt; the first: {first.splitlines()[0]}", flush=True)
        return Result(name, "failed" if complaint else "passed", time.monotonic() - started, complaint or "", transcript)

    def end(self):
        try:
            if self.subject is None:
                return Result("driver/ends-with-its-input", "passed")
            status = self.subject.end()
            message = "" if status == 0 else f"the driver ended with {status}"
        except AssertionError as error:
            message = str(error)
        finally:
            self.log.close()
        return Result("driver/ends-with-its-input", "failed" if message else "passed", message=message)


def report(result, log):
    if result.verdict == "failed":
        print(f"   FAILED {result.name}: {result.message.strip().splitlines()[-1][:300]}", flush=True)
    log.write(f"{result.verdict} {result.name} ({result.seconds:.2f} s) {result.message}\n")
    if result.verdict == "failed":
        for line in result.transcript:
            log.write(f"    {line}\n")


def write_junit(path, name, results):
    counts = {verdict: sum(one.verdict == verdict for one in results) for verdict in ("failed", "skipped")}
    lines = [f'<testsuite name={quoteattr(name)} tests="{len(results)}" failures="{counts["failed"]}" errors="0" '
             f'skipped="{counts["skipped"]}">']
    for one in results:
        lines.append(f'<testcase classname={quoteattr(name)} name={quoteattr(one.name)} time="{one.seconds:.3f}">')
        if one.verdict == "failed":
            lines.append(f"<failure>{escape(one.message)}</failure>")
        if one.verdict == "skipped":
            lines.append(f"<skipped message={quoteattr(one.message)}/>")
        lines.append("</testcase>")
    path.write_text("\n".join([*lines, "</testsuite>"]) + "\n")


def built(variant, log_path):
    import subprocess
    if not variant.build:
        return True
    with open(log_path, "wb") as log:
        done = subprocess.run(variant.words(variant.build), cwd=variant.folder, env=variant.env, stdin=subprocess.DEVNULL,
                              stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        print(log_path.read_text(errors="replace")[-4000:])
    return done.returncode == 0


def conformance(language, wanted):
    from subject import variants

    cases = all_cases()
    chosen = [name for name in cases if not wanted or any(name == one if one in cases else one in name for one in wanted)]
    if not chosen:
        sys.exit(f"run.py: no case has one of these names: {' '.join(wanted)}")
    results = []
    for i, variant in enumerate(variants(language)):
        print(f"-- conformance of {variant.name}", flush=True)
        if i == 0 and not built(variant, RESULTS / f"conformance-{language}-build.log"):
            results.append(Result(f"{variant.name}: driver/builds", "failed", message="the driver did not build"))
            break
        runner = Runner(variant)
        own = []
        with open(RESULTS / f"conformance-{variant.name}.log", "w") as log:
            for name in chosen:
                own.append(runner.run(name, cases[name]))
                report(own[-1], log)
            own.append(runner.end())
            groups = {name.split("/")[0] + "/" for name in cases}
            for name in sorted(set(variant.cannot) - set(cases) - groups):
                own.append(Result(f"cannot/{name}", "failed", message=f"cannot names {name}, which is not a case"))
            for one in own[len(chosen):]:
                report(one, log)
        write_junit(RESULTS / f"conformance-{variant.name}.xml", f"conformance-{variant.name}", own)
        results += own
    return results


def main():
    parser = argparse.ArgumentParser(description="Test a client against the contract of docs/clients.md.")
    parser.add_argument("--http", action="store_true", help="the example services of its frameworks")
    parser.add_argument("--list", action="store_true", help="the names of all cases")
    parser.add_argument("language", nargs="?")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    if options.list:
        print("\n".join(all_cases()))
        return
    if not options.language:
        parser.error("LANG is missing: a folder of clients/")
    RESULTS.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "release"))
    os.environ["RATELIMITD_BUILD"] = str(Path(os.environ["RATELIMITD_BUILD"]).resolve())
    if options.http:
        from web import run_services
        from subject import variants
        if not built(variants(options.language)[0], RESULTS / f"http-{options.language}-build.log"):
            print("0 passed, 1 failed, 0 skipped")
            sys.exit(1)
        results = run_services(options.language, options.cases, RESULTS, Result, report, write_junit)
    else:
        results = conformance(options.language, options.cases)
    count = {verdict: sum(one.verdict == verdict for one in results) for verdict in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped", flush=True)
    sys.exit(0 if count["passed"] and not count["failed"] else 1)


if __name__ == "__main__":
    main()
