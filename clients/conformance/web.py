"""web.py: run.py --http. Compares the answers of the example service of each framework with http.yaml: status, body,
Content-Type and the rate-limit fields, byte for byte. So they are the same in every language. Then it runs the table
attacks.yaml, whose answers differ between frameworks: there, a field is compared only where a step names it.

A case is a list of steps:

    get: /ok, head: /ok, post: /login                   a request; form: {...}, json: ..., fields: {...} (of its header)
    ask: OPTIONS /ok                                    the same with any method
        status: 200, body: "ok\n", type: ...            the expected answer; LONG in `fields` is a long text
        status: [429, 403]; not: [500]                  one of these; none of these
        policy: ..., state: ..., retry: ...             RateLimit-Policy, RateLimit, Retry-After; left out: they are absent
        legacy: [limit, remaining, reset]               X-RateLimit-Limit, -Remaining, -Reset; left out: they are absent
    begin: LABEL, get: /slow?ms=300                     a request that runs during the next steps
    end: LABEL, status: 200, ...                        its answer
    hang_up: LABEL                                      closes its connection; `after: text` first waits for this text in the body
    slots: 1                                            waits until the daemon holds this number of slots
    memory: mark | stays                                keeps in mind the daemon's memory_bytes; it has no more of them now
    daemon: kill | start
    service: shop                                   starts the service anew with this RATELIMIT_SERVICE; null: without
    until: /ok, status: 200, ...                        repeats the request until the answer fits
    visitors: /inline                               visitors.py finds nothing wrong with this path; login: true, with this login;
                                                    broken: true, with it for bodies that no parser can read
    times: n                                            repeats a request n times
    left: web, units: 99                            what the daemon's policy has left for `key` (default: the address of the requests)
    odd: /raw/x, page: "raw\n"                      no spelling of this path gets the page, and none is an error
    mistake: NAME, asks: [PATH, ...], says: PATTERN the service is started with MISTAKE=NAME. It does not start, or one of these requests is
                                                    answered 429 or 500; unless it is 429, its output has this text
    logged: once, line: PATTERN                         waits until the service has written it, since it began, once; or `logged: some`

`problem: NAME` means the type and body of the 429 for policy NAME, `reduced: true` means those of the 503. {inline} is the
name that the daemon gives to the inline policy of /inline.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml

from play import START_OF_CLOCK_US
import visitors
from subject import ROOT, description, places

sys.path.insert(0, str(ROOT / "tests" / "integration"))
from harness import Ratelimitd, on_free_port  # noqa: E402

HERE = Path(__file__).resolve().parent
PATIENCE_S = 20.0
TIMEOUT_MS = "10000"  # of the services' clients: no case has a daemon that hangs, and a busy machine may stop for a second
FIELDS = {"policy": "ratelimit-policy", "state": "ratelimit", "retry": "retry-after"}
LEGACY = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
INLINE = {"algorithm": "fixed_window", "limit": 2, "window": "5s", "start": "first_hit"}
PROBLEM = '{"type":"https://iana.org/assignments/http-problem-types#%s","title":"%s","status":%d%s}'
ATTEMPTS = 5  # for a case with tight times: a busy machine may be too slow several times
BETWEEN_CASES_US = 600_000_000  # every window has ended, every bucket is full
LONGEST_BACK_OFF_S = 0.3  # of a client, as docs/clients.md has it, and a little


class Failed(AssertionError):
    pass


class Missing(Exception):
    """The service printed `skip: REASON`: its framework is not installed, and this system has no package of it."""


class Service:
    """The example service, and the daemon that it asks."""

    def __init__(self, argv, folder, env, log):
        self.daemon = Ratelimitd((HERE / "service.yaml").read_text().replace("listen:\n  mode: \"0600\"\n", ""),
                                 arguments=["--test-clock"])
        self.clock_us = START_OF_CLOCK_US
        self.set_clock()
        with self.daemon.client() as client:
            self.features = client.call("hello", {"describe": True}).get("features", ())
        self.argv, self.folder, self.log = argv, folder, log
        self.env = {**env, "RATELIMIT_SOCKET": self.daemon.socket, "TIMEOUT_MS": TIMEOUT_MS}
        self.name = None  # RATELIMIT_SERVICE
        self.mistake = None  # MISTAKE: a mistake of attacks.yaml
        self.is_stopped = False  # after a mistake: the next case starts it anew
        self.was_away = False  # the daemon, in the case before
        self.process = None
        self.missing = None  # why the service cannot run here
        try:
            self.start()
        except (OSError, Failed, Missing):
            self.stop()
            raise

    def start(self):
        on_free_port(self.start_on)

    def start_on(self, port):
        self.port, self.printed, self.begin, self.is_ready = port, [], self.log.tell(), False
        named = {name: value for name, value in (("RATELIMIT_SERVICE", self.name), ("MISTAKE", self.mistake)) if value is not None}
        self.process = subprocess.Popen(self.argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log,
                                        env={**self.env, **named, "PORT": str(self.port)})
        ready = threading.Event()
        threading.Thread(target=self._read, args=[self.process, ready], daemon=True).start()
        ready.wait(60)
        if self.missing:
            raise Missing(self.missing)
        if not self.is_ready or self.process.poll() is not None:
            raise Failed(f"the service did not print `ready`: {self.said()[-2000:]}")

    def said(self):
        """What it wrote since it began, on both channels."""
        return Path(self.log.name).read_bytes()[self.begin:].decode(errors="replace") + b"".join(self.printed).decode(errors="replace")

    def _read(self, process, ready):
        for line in process.stdout:
            self.printed.append(line)
            if line.startswith(b"skip: "):
                self.missing = line.decode().strip().removeprefix("skip: ")
            if line.strip() == b"ready":
                self.is_ready = True
                ready.set()
        ready.set()

    def rename(self, name):
        """Start it anew under this name, unless it has it. The daemon goes on."""
        if name == self.name:
            return
        found = self.stop_process()
        if found:
            raise Failed(found)
        self.name = name
        self.start()

    def set_clock(self):
        with self.daemon.client() as client:
            client.call("test_clock", self.clock_us)

    def next_case(self):
        if self.was_away:  # a service may have several clients, and each of them may still wait before it connects again
            time.sleep(LONGEST_BACK_OFF_S)
            self.was_away = False
        if not self.daemon.running:
            self.daemon.start()
        if self.is_stopped:
            self.start()
            self.is_stopped = False
        self.rename(None)
        self.clock_us += BETWEEN_CASES_US
        self.set_clock()

    def inline_name(self):
        with self.daemon.client() as client:
            client.call("hello", {"describe": True})
            return client.call("peek", INLINE, "name")["of"]

    def left(self, policy, key):
        with self.daemon.client() as client:
            return client.call("peek", policy, key)["remaining"]

    def lacks(self, feature):
        """Why a case that needs this feature of the daemon cannot run; None if it can."""
        return None if feature is None or feature in self.features else f"this daemon has no feature {feature}"

    def stat(self, name):
        with self.daemon.client() as client:
            return client.call("stats")[name]

    def stop_process(self):
        """None, or a complaint about its end."""
        if self.process is None or self.process.poll() is not None:
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_S)
            return None
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "the service did not end on SIGTERM"

    def stop(self):
        """The service and its daemon. None, or a complaint about the service's end."""
        complaint = self.stop_process()
        self.daemon.expected_exit = [0, -signal.SIGKILL]
        self.daemon.close()
        return complaint


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.fields = {}
        for name, value in response.getheaders():
            name = name.lower()
            self.fields[name] = f"{self.fields[name]}, {value}" if name in self.fields else value
        self.body = response.read()

    def __str__(self):
        shown = {name: value for name, value in self.fields.items() if "ratelimit" in name or name in ("retry-after", "content-type")}
        return f"{self.status} {shown} {self.body!r}"


class Visit:
    """A request that runs in a thread."""

    def __init__(self, service, step):
        self.connection, self.step, self.answer, self.error = connect(service), step, None, None
        send(self.connection, step)
        self.thread = threading.Thread(target=self._receive, daemon=True)
        if not step.get("by_hand"):
            self.thread.start()

    def _receive(self):
        try:
            self.answer = Answer(self.connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.error = error

    def end(self):
        self.thread.join(PATIENCE_S)
        self.connection.close()
        if self.answer is None:
            raise Failed(f"no answer to {self.step}: {self.error}")
        return self.answer

    def hang_up(self, after):
        """Read until `after` has come, then close the connection."""
        heard, peer = b"", self.connection.sock
        while after and after.encode() not in heard:
            data = peer.recv(4096)
            if not data:
                raise Failed(f"the service closed before {after!r}: {heard!r}")
            heard += data
        self.connection.close()


def connect(service):
    return http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)


def request_line(step):
    """Method and path."""
    if "ask" in step:
        return step["ask"].split(" ", 1)
    method = next(name for name in ("get", "head", "post", "until") if name in step)
    return "GET" if method == "until" else method.upper(), step[method]


def send(connection, step):
    fields, body = {name: "k" * 5000 if value == "LONG" else value for name, value in step.get("fields", {}).items()}, None
    if "form" in step:
        body = "&".join(f"{name}={value}" for name, value in step["form"].items())
        fields["Content-Type"] = "application/x-www-form-urlencoded"
    if "json" in step:
        body = json.dumps(step["json"])
        fields["Content-Type"] = "application/json"
    connection.request(*request_line(step), body, fields)


def ask(service, step):
    connection = connect(service)
    try:
        send(connection, step)
        return Answer(connection.getresponse())
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"no answer to {step}: {error}") from None
    finally:
        connection.close()


def media_type(value):
    """Servlet containers write the parameter without a blank, or in capitals. The meaning is the same."""
    return value.replace(" ", "").lower() if value else value


def is_expected(status, expected):
    return status in expected if isinstance(expected, list) else status == expected


def complaint(step, answer, names):
    expected = dict(step)
    if "problem" in expected:
        violated = f',"violated-policies":["{expected["problem"]}"]'
        expected.update(type="application/problem+json", body=PROBLEM % ("quota-exceeded", "Quota exceeded", 429, violated))
    if expected.get("reduced"):
        expected.update(type="application/problem+json", retry="1",
                        body=PROBLEM % ("temporary-reduced-capacity", "Temporary reduced capacity", 503, ""))
    if "status" in expected and not is_expected(answer.status, expected["status"]):
        return f"status {answer.status}, expected {expected['status']}"
    if answer.status in expected.get("not", ()):
        return f"status {answer.status}, expected any but {expected['not']}"
    for key, name in FIELDS.items():
        if key not in expected and names["loose"]:
            continue
        wanted = str(expected[key]).replace("{inline}", names["inline"]) if key in expected else None
        if answer.fields.get(name) != wanted:
            return f"{name}: {answer.fields.get(name)}, expected {wanted}"
    legacy = dict(zip(LEGACY, map(str, expected.get("legacy", ()))))
    found = {name: value for name, value in answer.fields.items() if name.startswith("x-ratelimit")}
    if found != legacy and not names["loose"]:
        return f"the older fields are {found}, expected {legacy}"
    if "type" in expected and media_type(answer.fields.get("content-type")) != media_type(expected["type"]):
        return f"content-type: {answer.fields.get('content-type')}, expected {expected['type']}"
    body = expected.get("body")
    if body is not None and answer.body != body.replace("{inline}", names["inline"]).encode():
        return f"body {answer.body!r}, expected {body!r}"
    return None


def check(step, answer, names, transcript):
    transcript.append(f"answer   {answer}")
    found = complaint(step, answer, names)
    if found:
        raise Failed(f"{found}; the whole answer: {answer}")


def wait_until(complaint_now):
    """Wait until complaint_now() returns None."""
    until = time.monotonic() + PATIENCE_S
    while (found := complaint_now()) is not None:
        if time.monotonic() > until:
            raise Failed(f"it never fitted: {found}")
        time.sleep(0.01)


def slots_complaint(service, expected):
    held = service.stat("slots")
    return None if held == expected else f"the daemon holds {held} slots, expected {expected}"


def left_complaint(service, step):
    found = service.left(step["left"], step.get("key", "127.0.0.1"))
    return None if found == step["units"] else f"{step['left']} has {found} units left, expected {step['units']}"


def logged_complaint(service, step):
    found = re.findall(step["line"], service.said())
    if len(found) == 1 or found and step["logged"] == "some":
        return None
    return f"the service wrote {step['line']} {len(found)} times: {service.said()[-500:]}"


def make_a_mistake(service, step, transcript):
    """Start the service with this mistake in it, ask, and stop it."""
    answers = []
    service.stop_process()
    try:
        service.mistake = step["mistake"]
        service.start()
        answers = [ask(service, {"get": path}) for path in step["asks"]]
        transcript += [f"answer   {answer}" for answer in answers]
        found = f"answers {[answer.status for answer in answers]}: one is 429 or 500, or the service does not start"
        if any(answer.status in (429, 500) for answer in answers):
            found = None
    except Failed as error:
        transcript.append(f"ended    {error}")
        found = None
    complaint_of_end = service.stop_process()
    said = service.said()
    service.mistake = None
    service.is_stopped = True
    if not found and 429 not in [answer.status for answer in answers] and not re.search(step["says"], said):
        found = f"it does not say {step['says']}: {said[-500:]}"
    if found or complaint_of_end:
        raise Failed(found or complaint_of_end)


def play(case, service, transcript):
    visits, names, marked = {}, {"inline": service.inline_name(), "loose": case.get("loose", False)}, None
    try:
        for step in case["steps"]:
            transcript.append(f"step     {step}")
            if "begin" in step:
                visits[step["begin"]] = Visit(service, step)
            elif "end" in step:
                check(step, visits[step["end"]].end(), names, transcript)
            elif "hang_up" in step:
                visits[step["hang_up"]].hang_up(step.get("after"))
            elif "memory" in step:
                n_bytes = service.stat("memory_bytes")
                if step["memory"] == "mark":
                    marked = n_bytes
                elif n_bytes > marked:
                    raise Failed(f"the daemon has {n_bytes - marked} bytes more than before the same requests")
            elif "slots" in step:
                wait_until(lambda: slots_complaint(service, step["slots"]))
            elif "visitors" in step:
                if step.get("broken"):
                    found = list(visitors.complaints_of_bodies(service.port, step["visitors"], visitors.BROKEN))
                elif step.get("login"):
                    found = visitors.complaints_of_a_login(service.port, step["visitors"], by_account=False)
                else:
                    found = visitors.complaints_of_a_limit(service.port, step["visitors"])
                if found:
                    raise Failed("; ".join(found))
            elif "left" in step:
                wait_until(lambda: left_complaint(service, step))  # a reservation is settled behind its answer
            elif "odd" in step:
                found = list(visitors.complaints_of_spellings(service.port, step["odd"], step["page"]))
                if found:
                    raise Failed("; ".join(found))
            elif "mistake" in step:
                make_a_mistake(service, step, transcript)
            elif "logged" in step:
                wait_until(lambda: logged_complaint(service, step))
            elif "service" in step:
                service.rename(step["service"])
            elif "daemon" in step:
                service.daemon.kill() if step["daemon"] == "kill" else service.daemon.start()
                if step["daemon"] == "start":
                    service.set_clock()
                    service.was_away = True
            elif "until" in step:
                wait_until(lambda: complaint(step, ask(service, step), names))
            else:
                for _ in range(step.get("times", 1)):
                    check(step, ask(service, step), names, transcript)
    finally:
        for visit in visits.values():
            visit.connection.close()


def of_framework(name, argv, folder, env, cases, cannot, log, Result):
    results, service = [], None
    for disabled in (False, True):
        chosen = [case for case in cases if bool(case.get("disabled")) == disabled]
        if not chosen:
            continue
        try:
            service = Service(argv, folder, {**env, **({"RATELIMIT_ENABLED": "0"} if disabled else {})}, log)
        except Missing as error:
            return [Result(f"{name}/all", "skipped", message=str(error))]
        except (Failed, AssertionError, OSError) as error:
            results.append(Result(f"{name}/starts{'-disabled' if disabled else ''}", "failed", message=str(error)))
            continue
        try:
            for case in chosen:
                title = f"{name}/{case['name']}"
                reason = cannot.get(title) or cannot.get(f"*/{case['name']}") or service.lacks(case.get("needs"))
                if reason:
                    results.append(Result(title, "skipped", message=reason))
                    continue
                started, transcript, found = time.monotonic(), [], None
                for _ in range(ATTEMPTS if case.get("timed") else 1):
                    try:
                        service.next_case()
                        play(case, service, transcript)
                        found = None
                        break
                    except (AssertionError, OSError) as error:
                        found = str(error)
                results.append(Result(title, "failed" if found else "passed", time.monotonic() - started, found or "", transcript))
        finally:
            found = service.stop()
        results.append(Result(f"{name}/ends-on-sigterm{'-disabled' if disabled else ''}", "failed" if found else "passed", message=found or ""))
    return results


def run_services(language, wanted, results_folder, Result, report, write_junit):
    folder, settings = description(language)
    where = places(language)
    env = {name: value for name, value in os.environ.items() if name not in ("RATELIMIT_SERVICE", "OTEL_SERVICE_NAME")}
    env = {**env, "RATELIMITD_BUILD": where["build"], "DEPS": where["deps"], "OUT": where["out"]}
    cannot = settings.get("http_cannot") or {}
    attacks = [{**case, "loose": True} for case in yaml.safe_load((HERE / "attacks.yaml").read_text())]
    if not settings.get("http"):
        sys.exit(f"run.py: driver.yaml of {language} names no services under `http`")
    every, results = [*yaml.safe_load((HERE / "http.yaml").read_text()), *attacks], []
    for name, argv in settings["http"].items():
        cases = [case for case in every if not wanted or any(one in f"{name}/{case['name']}" for one in wanted)]
        if not cases:
            continue
        print(f"-- {language}: the service with {name}", flush=True)
        if name in cannot:
            own = [Result(f"{name}/all", "skipped", message=cannot[name])]
        else:
            words = [str(word).format(**where) for word in argv]
            with open(results_folder / f"http-{language}-{name}-service.log", "wb") as log:
                own = of_framework(name, words, folder, env, cases, cannot, log, Result)
        with open(results_folder / f"http-{language}-{name}.log", "w") as log:
            for one in own:
                report(one, log)
        write_junit(results_folder / f"http-{language}-{name}.xml", f"http-{language}", own)
        results += own
    if wanted and not results:
        sys.exit(f"run.py: no case has one of these names: {' '.join(wanted)}")
    known = {f"{name}/{case['name']}" for name in (*settings["http"], "*") for case in every} | set(settings["http"])
    for name in sorted(set(cannot) - known) if not wanted else []:
        results.append(Result(f"http_cannot/{name}", "failed", message=f"http_cannot names {name}, which is not a case"))
        print(f"   FAILED http_cannot/{name}: it is not a case", flush=True)
    return results
