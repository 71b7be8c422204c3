"""again.py: a test that fails in a full run is run again alone, three times, after everything else.

A test may fail because of what runs at the same time. A step that can name its failed tests leaves a Failed of each in the
folder FAILED_TESTS. At the end settle() runs them again, one after another, and judges:

- One that fails alone has failed.
- One that passes each time counts as passed, and the run prints it under "failed beside others". The one that sees it adds it
  to tests/failed_beside_others, with the date and the reason.
- One that stands there already has failed: it did not happen only once.
- More than MOST of them: they all have failed. Then the machine is too busy for the run, or something is broken.

    again.py FOLDER LOG...      .ci/run: adds up the last lines of LOGs, settles FOLDER, and prints the sum of all
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "failed_beside_others"
TIMES, MOST = 3, 3
PATIENCE_S = 600  # for one attempt
SUM = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")
ROW = re.compile(r"\d{4}-\d\d-\d\d (\S+): \S.*")
SHOWN_LINES = 60


@dataclasses.dataclass
class Failed:
    """A test that failed, and how to run it alone."""

    name: str  # without blanks
    n: int  # how many failures of the step's sum are its own
    reason: str
    argv: list
    passes: str  # a regular expression: what the output has when the test ran, and passed; and the exit status is 0
    env: dict = dataclasses.field(default_factory=dict)  # besides this one's
    cwd: str = str(ROOT)

    def __post_init__(self):
        self.name = re.sub(r"\s+", "_", self.name)
        self.reason = next(filter(None, map(str.strip, self.reason.splitlines())), "no reason given")[:300]
        self.argv, self.cwd = [str(word) for word in self.argv], str(self.cwd)

    def leave(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns():020}-{os.getpid()}-{re.sub(r'[^A-Za-z0-9]+', '-', self.name)[:100]}.json"
        (folder / name).write_text(json.dumps(dataclasses.asdict(self)))

    def run(self):
        """The output of a failed attempt; None if it passed."""
        try:
            done = subprocess.run(self.argv, cwd=self.cwd, env={**os.environ, **self.env}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=PATIENCE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return None if done.returncode == 0 and re.search(self.passes, done.stdout, re.M) else done.stdout

    def passes_alone(self):
        for attempt in range(TIMES):
            output = self.run()
            if output is not None:
                print(f"   failed alone, too (attempt {attempt + 1}): {self.name}")
                for line in output.rstrip().splitlines()[-SHOWN_LINES:]:
                    print(f"      {line}")
                return False
        print(f"   passed alone, {TIMES} times: {self.name}", flush=True)
        return True


def of_pytest(report, prefix, argv, shown_as="", **options):
    """The Failed of a pytest report, which must be of the kind xunit1: only that names the files. `prefix` leads from the working
    directory to the folder of pytest's ini file, argv is how pytest is called, and names begin with `shown_as`."""
    if not Path(report).exists():
        return
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        reasons = [bad.get("message") or bad.text or "" for kind in ("failure", "error") for bad in case.iter(kind)]
        if reasons and case.get("file"):  # without one, the file could not be read at all
            in_file = case.get("classname").removeprefix(case.get("file").removesuffix(".py").replace("/", ".")).split(".")
            name = "::".join([case.get("file"), *filter(None, in_file), case.get("name")])
            found.setdefault(name, []).extend(reasons)
    for name, reasons in found.items():
        yield Failed(f"{shown_as}{prefix}{name}", len(reasons), reasons[0], [*argv, f"{prefix}{name}", "-q"], r"^1 passed", **options)


def known(path=LIST):
    """The names in tests/failed_beside_others, without parameters: with others it is the same test."""
    names = set()
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            row = ROW.fullmatch(line)
            if not row:
                raise ValueError(f"{path}:{number}: not `DATE NAME: REASON`: {line}")
            names.add(without_parameters(row[1]))
    return names


def without_parameters(name):
    return name.partition("[")[0]


def settle(folder, names=None):
    """Runs again what stands in folder. The number of failures that count as passes."""
    all_failed = [Failed(**json.loads(path.read_text())) for path in sorted(Path(folder).glob("*.json"))]
    if not all_failed:
        return 0
    try:
        names = known() if names is None else names
    except (OSError, ValueError) as error:
        print(f"-- {len(all_failed)} failed tests are not run again: {error}")
        return 0
    print(f"-- {len(all_failed)} failed tests again, each alone", flush=True)
    beside = []
    for i, one in enumerate(all_failed):
        if one.passes_alone():
            beside.append(one)
        if len(beside) > MOST:
            print(f"   {len(beside)} passed alone: too many; {len(all_failed) - i - 1} were not run again")
            break
    if beside:
        print("-- failed beside others")
    for one in beside:
        print(f"   {one.name}: {one.reason}")
        if without_parameters(one.name) in names:
            print("      stands in tests/failed_beside_others already, so it has failed: find out why")
        else:
            print(f"      add to tests/failed_beside_others: {time.strftime('%Y-%m-%d')} {without_parameters(one.name)}: and what made it fail")
    sys.stdout.flush()
    if len(beside) > MOST:
        return 0
    return sum(one.n for one in beside if without_parameters(one.name) not in names)


def main():
    folder, *logs = sys.argv[1:]
    total = [0, 0, 0]
    for log in logs:
        lines = Path(log).read_text(errors="replace").splitlines() if Path(log).exists() else []
        found = SUM.fullmatch(lines[-1]) if lines else None
        counts = map(int, found.groups()) if found else (0, 1, 0)  # a part that ended without its sum has failed
        total = [a + b for a, b in zip(total, counts)]
    n = settle(folder)
    passed, failed, skipped = total[0] + n, total[1] - n, total[2]
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(0 if passed and not failed else 1)


if __name__ == "__main__":
    main()
