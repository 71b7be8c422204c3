"""steps.py: for a language's `test` script. It runs tools one after another, counts their tests and sums them up.

    #!/usr/bin/env python3
    import sys
    from pathlib import Path
    HERE = Path(__file__).resolve().parent
    sys.path.insert(0, str(HERE.parent))
    from steps import Steps

    steps = Steps(HERE)
    steps.prepare("install packages", ["npm", "ci"])              # counts only where it fails; then the script ends
    steps.tool("types", ["npx", "tsc", "--noEmit"])               # one test: its exit status
    steps.pytest("unit tests", PYTHON, "tests")                   # the tests of its report
    steps.junit("more tests", ["mvn", "package"], reports="target/surefire-reports/*.xml")
    steps.node("tests", ["node", "--test", "test/"])
    steps.go("tests", ["go", "test", "-json", "./..."])
    steps.summed("conformance", [sys.executable, "../conformance/run.py", "node"])
    steps.end()

Each step writes its output to a log in $TEST_RESULTS, and prints one line. Of a failed tool it first prints the failed tests
by name, with their messages, and then the end of its output. In a full run the failed tests are run again alone after
everything else (tests/again.py): those of pytest, the suite's cases and Go's by name, Node's by file, Java's by class, an
installation as a whole. A tool of one test (format, types) is not: nothing next to it makes it fail.
The last line is "N passed, N failed, N skipped"; the exit status is 1 where any failed or none passed.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
import again  # noqa: E402

STARTED_WITH = dict(os.environ)
SUM = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
SHOWN_LINES = 60
MESSAGE_LINES = 20  # of a failed test


class Count:
    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def __add__(self, other):
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def of_junit(paths):
    """The sum of JUnit reports, of pytest's and of Surefire's kind."""
    count = Count()
    for path in paths:
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            count += Count(int(suite.get("tests", 0)) - bad - skipped, bad, skipped)
    return count


def failed_in_junit(paths):
    """(name, message) of each failed test, as in all functions named so."""
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            for bad in [*case.iter("failure"), *case.iter("error")]:
                yield f"{case.get('classname')}.{case.get('name')}", bad.get("message") or bad.text or bad.get("type") or ""


def of_node(output):
    """The summary of `node --test`, in either of its reporters."""
    found = dict(re.findall(r"^(?:#|ℹ) (pass|fail|cancelled|skipped|todo) (\d+)$", output, re.M))
    number = {name: int(n) for name, n in found.items()}
    return Count(number.get("pass", 0), number.get("fail", 0) + number.get("cancelled", 0),
                 number.get("skipped", 0) + number.get("todo", 0))


def files_failed_in_node(output):
    """{file: how many failures are its own}"""
    found = re.findall(r"(?:^ *location: '|^ *test at )(.+?):\d+:\d+'?$", output, re.M)
    counts = {file: found.count(file) for file in found}
    for file in list(counts)[:1]:  # the sum counts suites, too
        counts[file] += of_node(output).failed - sum(counts.values())
    return counts


def failed_in_node(output):
    """Of the TAP reporter the failed tests, not the suites around them; the other reporter ends with such a list."""
    for found in re.finditer(r"^( *)not ok \d+ - (.*)\n\1  ---\n((?:\1  .*\n|\n)*?)\1  \.\.\.$", output, re.M):
        indent, name, report = found.groups()
        if "failureType: 'subtestsFailed'" not in report:
            yield name, textwrap.dedent(re.sub(r"^ *(?:duration_ms|type|failureType|code): .*\n", "", report, flags=re.M))
    yield "", output.partition("✖ failing tests:\n")[2]


def of_go(output):
    """The events of `go test -json`. A package that fails without a failed test (it does not build, or crashed) is one."""
    count, failed_tests, failed_packages = Count(), set(), set()
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        package = event.get("Package", event.get("ImportPath", ""))
        action = event.get("Action")
        if "Test" in event:
            count += Count(action == "pass", action == "fail", action == "skip")
            if action == "fail":
                failed_tests.add(package)
        elif action in ("fail", "build-fail"):
            failed_packages.add(package.split(" ")[0])
    return count + Count(failed=len(failed_packages - failed_tests))


def tests_failed_in_go(output):
    """{(package, test): how many failures are its own and its parts'}"""
    found = {}
    for line in output.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Action") == "fail" and "Test" in event:
            name = event["Package"], event["Test"].partition("/")[0]
            found[name] = found.get(name, 0) + 1
    return found


def failed_in_go(output):
    said, failed = {}, []
    for line in output.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            yield "", line  # of `go` itself
            continue
        name = " ".join(filter(None, (event.get("Package", event.get("ImportPath")), event.get("Test"))))
        said.setdefault(name, []).append(event.get("Output", ""))
        if event.get("Action") in ("fail", "build-fail"):
            failed.append(name)
    for name in failed:
        if not any(other.startswith((f"{name} ", f"{name}/")) for other in failed):  # a package, or a test with parts
            yield name, re.sub(r"^ *(?:===|---|FAIL|exit status).*\n", "", "".join(said[name]), flags=re.M)


def of_sum(output):
    """The last line of a program that sums up by itself."""
    lines = output.strip().splitlines()
    found = SUM.match(lines[-1]) if lines else None
    return Count(*map(int, found.groups())) if found else Count(failed=1)


def failed_in_sum(output):
    """What the suite and newcomer.py write: `FAILED name: message`, and lines further in that go on."""
    for found in re.finditer(r"^( *)FAILED (.*)\n((?:\1 +.*\n)*)", output, re.M):
        yield found[2], textwrap.dedent(found[3])


class Steps:
    def __init__(self, folder):
        """`folder` is the language's; tools run there unless `cwd` says otherwise."""
        self.folder = Path(folder)
        self.name = self.folder.name
        self.results = Path(os.environ.get("TEST_RESULTS") or self.folder.parent.parent / "build" / "test" / f"clients-{self.name}")
        self.results.mkdir(parents=True, exist_ok=True)
        self.total = Count()

    def prepare(self, title, argv, **options):
        """What the tests need. It is no test; where it fails, the script ends."""
        code, output, seconds = self._run(title, argv, **options)
        print(f"-- {self.name}: {title} ({seconds:.1f} s)", flush=True)
        if code:
            _show_end(output)
            self.total += Count(failed=1)
            self.end()

    def tool(self, title, argv, **options):
        return self._step(title, argv, **options)

    def pytest(self, title, python, *paths, **options):
        """The tests of the folder below `paths`."""
        own = self._report(title)
        start = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={self.folder}"]
        return self._step(title, [*start, *paths, "-q", "-o", "junit_family=xunit1", f"--junitxml={own}"],
                          lambda output: of_junit(filter(Path.exists, [own])),
                          lambda output: failed_in_junit(filter(Path.exists, [own])),
                          lambda output: again.of_pytest(own, "", start, shown_as=f"clients/{self.name}/"), **options)

    def junit(self, title, argv, reports=None, of_class=None, **options):
        """`{report}` in argv is a file of this step's own; `reports` is a pattern below the folder instead, which is
        emptied first: "target/surefire-reports/*.xml", or with ** for several modules. `of_class` makes the argv for the tests of
        one class."""
        own = self._report(title)
        found = lambda: [own] if reports is None else sorted(self.folder.glob(reports))  # noqa: E731
        for path in found():
            path.unlink(missing_ok=True)
        written = lambda: [path for path in found() if path.exists()]  # noqa: E731

        def alone(_output):
            failed = {}
            for case in (case for path in written() for case in ElementTree.parse(path).getroot().iter("testcase")):
                for bad in [*case.iter("failure"), *case.iter("error")]:
                    failed.setdefault(case.get("classname"), []).append(f"{case.get('name')}: {bad.get('message') or bad.text}")
            for name, reasons in failed.items() if of_class else ():
                yield again.Failed(f"clients/{self.name}/{name}", len(reasons), reasons[0], of_class(name), r"Tests run: [1-9]")

        return self._step(title, [str(word).replace("{report}", str(own)) for word in argv],
                          lambda output: of_junit(written()), lambda output: failed_in_junit(written()), alone, **options)

    def node(self, title, argv, **options):
        def alone(output):
            for file, n in files_failed_in_node(output).items():
                yield again.Failed(f"clients/{self.name}/{Path(file).name}", n, f"see {self.name}-{_slug(title)}.log",
                                   ["node", "--test", file], r"pass [1-9]")

        return self._step(title, argv, of_node, failed_in_node, alone, **options)

    def go(self, title, argv, **options):
        def alone(output):
            for (package, test), n in tests_failed_in_go(output).items():
                yield again.Failed(f"clients/{self.name}/{package}.{test}", n, f"see {self.name}-{_slug(title)}.log",
                                   ["go", "test", "-race", "-count=1", "-timeout=120s", "-v", "-run", f"^{test}$", package],
                                   rf"^--- PASS: {test}\b")

        return self._step(title, argv, of_go, failed_in_go, alone, **options)

    def summed(self, title, argv, whole=False, **options):
        """A program that sums up by itself, and takes names of its cases as further arguments, unless it runs only as a `whole`."""
        def alone(output):
            failed = [(name.partition(": ")[0], name) for name, _ in failed_in_sum(output)]
            for case in [None] if whole else dict.fromkeys(case for case, _ in failed):
                own = [text for one, text in failed if whole or one == case] or [f"see {self.name}-{_slug(title)}.log"]
                yield again.Failed("/".join(filter(None, ("clients", self.name, _slug(title), case))), len(own), own[0],
                                   [*argv, *filter(None, [case])], r"^[1-9]\d* passed, 0 failed, ")

        return self._step(title, argv, of_sum, failed_in_sum, alone, **options)

    def end(self):
        print(self.total, flush=True)
        sys.exit(0 if self.total.passed and not self.total.failed else 1)

    def _report(self, title):
        path = self.results / f"{self.name}-{_slug(title)}.xml"
        path.unlink(missing_ok=True)
        return path

    def _run(self, title, argv, cwd=None, env=None):
        log = self.results / f"{self.name}-{_slug(title)}.log"
        started = time.monotonic()
        with open(log, "wb") as out:
            try:
                code = subprocess.run([str(word) for word in argv], cwd=cwd or self.folder, stdin=subprocess.DEVNULL,
                                      stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}).returncode
            except OSError as error:
                out.write(f"{argv[0]}: {error.strerror}\n".encode())
                code = 127
        return code, log.read_text(errors="replace"), time.monotonic() - started

    def _leave(self, found, cwd=None, env=None):
        """For the end of the run, which has not this environment."""
        mine = {**os.environ, **(env or {})}
        kept = {name: value for name, value in mine.items()
                if STARTED_WITH.get(name) != value or name in ("DEPS", "RATELIMITD_BUILD", "TEST_RESULTS")}
        for one in found:
            dataclasses.replace(one, cwd=cwd or self.folder, env=kept).leave(os.environ["FAILED_TESTS"])

    def _step(self, title, argv, count_in=None, failed_in=lambda output: (), alone=lambda output: (), **options):
        """`count_in`, `failed_in` and `alone` read the output; without them the step is one test, which is not run again."""
        code, output, seconds = self._run(title, argv, **options)
        count = count_in(output) if count_in else Count(passed=int(code == 0))
        if code:
            count.failed = max(count.failed, 1)
        if count.failed:
            _show_failed(failed_in(output))
            _show_end(output)
            if "FAILED_TESTS" in os.environ:
                self._leave(alone(output), **options)
        self.total += count
        print(f"-- {self.name}: {title}: {count} ({seconds:.1f} s)", flush=True)
        return count


def _show_failed(failed):
    for name, message in failed:
        lines = [line for line in message.splitlines() if line.strip()]
        if name:
            print(f"   failed: {name}")
        for line in lines[:MESSAGE_LINES if name else SHOWN_LINES]:
            print(f"      {line}")


def _show_end(output):
    for line in output.rstrip().splitlines()[-SHOWN_LINES:]:
        print(f"   {line}")


def _slug(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
