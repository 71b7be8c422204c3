"""subject.py: the client under test: its driver.yaml, and its driver, a process that reads and writes JSON lines."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml

from matching import complaint

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 120.0  # longest wait for a line of the driver; no result depends on it
CHARGED = {  # may a call with this status have been charged? None: it depends
    "ok": None, "timeout": None, "cancelled": None, "lost": True, "protocol": True, "store_unavailable": True,
    "unreachable": False, "overloaded": False, "shutting_down": False, "breaker": False, "refused": False, "argument": False,
}
DECISION = {
    "allowed": bool, "limit": int, "remaining": int, "retry_after_ms": int, "reset_after_ms": int, "delay_ms": int,
    "granted": int, "bound_by": (str, type(None)), "source": str, "reason": (str, type(None)), "policy_version": int,
    "shadow_denied": bool, "near": bool, "of": (str, type(None)), "quota": (int, type(None)), "window_ms": (int, type(None)),
    "of_reset_ms": (int, type(None)),
}


class Variant:
    """One client of a language: how to build and run its driver, and the cases that it cannot run."""

    def __init__(self, name, settings, folder, places):
        self.name, self.folder, self.places = name, folder, places
        self.build = settings.get("build")
        self.run = settings["run"]
        self.cannot = settings.get("cannot") or {}
        self.loss_is_reported_at_use = settings.get("lost") == "use"
        self.many = settings.get("many", 1000)
        self.used = set()  # entries of `cannot` that match a case

    def words(self, argv):
        return [str(word).format(**self.places) for word in argv]

    @property
    def env(self):
        return {**os.environ, "RATELIMITD_BUILD": self.places["build"], "DEPS": self.places["deps"], "OUT": self.places["out"]}

    def reason_against(self, case):
        """Why this client cannot run the case; None if it can."""
        for name in (case, f"{case.split('/')[0]}/"):
            if name in self.cannot:
                self.used.add(name)
                return self.cannot[name]
        return None


def description(language):
    """(folder, driver.yaml) of a language."""
    folder = ROOT / "clients" / language
    path = folder / "conformance" / "driver.yaml"
    if not path.exists():
        sys.exit(f"run.py: {path.relative_to(ROOT)} does not exist")
    return folder, yaml.safe_load(path.read_text())


def places(language):
    build = Path(os.environ.get("RATELIMITD_BUILD") or ROOT / "build" / "release").resolve()
    out = Path(os.environ.get("OUT") or ROOT / "build" / "clients" / language).resolve()
    out.mkdir(parents=True, exist_ok=True)
    deps = Path(os.environ.get("DEPS") or ROOT / ".deps").resolve()
    return {"python": sys.executable, "build": str(build), "deps": str(deps), "out": str(out)}


def variants(language):
    folder, settings = description(language)
    common = {name: value for name, value in settings.items() if name != "variants"}
    found = []
    for name, own in (settings.get("variants") or {"": {}}).items():
        merged = {**common, **own, "cannot": {**(common.get("cannot") or {}), **(own.get("cannot") or {})}}
        found.append(Variant(f"{language}-{name}" if name else language, merged, folder, places(language)))
    return found


class Subject:
    """A running driver."""

    def __init__(self, variant, log):
        self._lines = []           # its output so far, parsed
        self._changed = threading.Condition()
        self._over = False
        self._next_id = 1
        self._sending = threading.Lock()
        self._resent = set()       # ids of calls that may go out twice
        self.process = subprocess.Popen(variant.words(variant.run), cwd=variant.folder, env=variant.env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        threading.Thread(target=self._read, daemon=True).start()
        self.pid = self.wait(lambda line: line if line.get("ready") else None, "the line with ready")["pid"]

    def _read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError
            except ValueError:
                message = {"garbage": line.decode(errors="replace")}
            with self._changed:
                self._lines.append(message)
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def send(self, command):
        """Returns its id."""
        with self._sending:
            command = {"id": self._next_id, **command}
            self._next_id += 1
            if command.get("resend"):
                self._resent.add(command["id"])
            try:
                self.process.stdin.write(json.dumps(command, ensure_ascii=False).encode() + b"\n")
                self.process.stdin.flush()
            except OSError:
                raise AssertionError("the driver ended") from None
        return command["id"]

    def wait(self, wanted, what, patience_s=PATIENCE_S):
        """The first line for which wanted(line) is true. Removes the line."""
        until = time.monotonic() + patience_s
        with self._changed:
            while True:
                for line in self._lines:
                    if "garbage" in line:
                        raise AssertionError(f"the driver wrote a line that is not a JSON object: {line['garbage']!r}")
                    if wanted(line):
                        self._lines.remove(line)
                        return line
                if self._over:
                    raise AssertionError(f"the driver ended with {self.process.wait()} before it gave {what}")
                rest = until - time.monotonic()
                if rest <= 0:
                    raise AssertionError(f"the driver did not give {what}")
                self._changed.wait(rest)

    def answer(self, command_id, what, patience_s=PATIENCE_S):
        answer = self.wait(lambda line: line.get("id") == command_id, what, patience_s)
        return checked(answer, command_id in self._resent)

    def has_answered(self, command_id):
        with self._changed:
            return any(line.get("id") == command_id for line in self._lines)

    def event(self, name, **fields):
        fields["event"] = name
        return self.wait(lambda line: complaint(fields, line) is None, f"the event {fields}")

    def heard(self, name, **fields):
        """Is there such an event that no step has taken?"""
        with self._changed:
            return any(line.get("event") == name and all(line.get(key) == value for key, value in fields.items())
                       for line in self._lines)

    def forget(self):
        """Drop the lines that a case has not read."""
        with self._changed:
            self._lines.clear()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def end(self):
        """Close its input, and return its exit status."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the driver did not end with its input") from None

    def kill(self):
        """Also kills its children and its parent shell."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended already
        self.process.wait()


def checked(answer, is_resent=False):
    """Checks that the answer follows the driver protocol. Of a call that went out twice, the first may have been charged."""
    status = answer.get("status")
    if status in ("bug", "unknown"):
        raise AssertionError(f"the driver answered: {answer}")
    if status not in CHARGED:
        raise AssertionError(f"there is no status {status!r}: {answer}")
    if status != "ok":
        if not isinstance(answer.get("maybe_charged"), bool) or not answer.get("message"):
            raise AssertionError(f"maybe_charged or message is missing: {answer}")
        if CHARGED[status] is not None and answer["maybe_charged"] != CHARGED[status] and not is_resent:
            raise AssertionError(f"maybe_charged is always {CHARGED[status]} with {status}: {answer}")
        if status == "refused" and not answer.get("code"):
            raise AssertionError(f"a refusal without its code: {answer}")
    decision = answer.get("decision") or {}
    for one in [decision, *decision.get("members", []), *answer.get("decisions", [])]:
        for name, kind in DECISION.items() if one else ():
            if name not in one or not isinstance(one[name], kind) or kind is int and isinstance(one[name], bool):
                raise AssertionError(f"a decision's {name} is missing or of a wrong type: {one}")
    return answer
