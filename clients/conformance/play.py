"""play.py: runs the steps of a case (cases/*.yaml) one after another. The first word of a step is its name; the others are its
parameters.

The driver
    send: LABEL, do: ...                    a command; its client is c1 unless the step names another
    answer: LABEL, status: ok, ...          waits for its answer: the fields given here must fit
    answer_any: LABEL, of: [{}, {}]         one of these must fit
    ask: check, ..., gives: {...}           both in one
    nudge: check, ...                       accepts any answer. A blocking client then reads late answers
    send_many: LABEL, n: 1000, do: ...      n commands; {i} in texts counts from 0; `n: many`: as many as the client allows
    answer_many: LABEL, ...                 all their answers
    until: check, ..., gives: {...}         asked again until it fits; `never: STATUS`
    keep_asking: check, for_ms: n, gives: {...}   each answer must fit
    event: lost, slot: s1                   a line without id; at_loss: skipped for a client that notices a loss
                                            at the next use; if_use: only for such a client
    log: requests pass                      a line that the client has logged, with a match of this
    silent: lost                            there was no such line so far
    descriptors: remember | same            of the driver's process
    kill_driver: true
    sequence: 5, error: ..., gives: {...}   n calls, one after another, each answered as in `reply`
    repeat: 1024, do: check, gives: {...}   n commands, one after another; {i} in texts counts from 0
    time_out: 3                             n calls, one after another, without an answer
    until_received: check, as: q, other: breaker, ...   repeated, with status `other`, until the daemon receives one
    probe_answer: q, ...                    the answer to that one
    race: 30, timeout_ms: 50                n calls whose answers come at about their timeout
    mark: true                              for `not_before_ms` and `within_ms` of until and until_received

The hostile daemon
    expect: check, as: q, key: k            the next request on any connection; its parameters must fit;
                                            same_as: r, differs_from: r: its request_id
    expect: abandon, of: q                  the notification with the msgid of q, on its connection
    expect_many: check, as: q, n: 1000
    received: [q, r]                        both came on one connection; `apart: [q, r]`: on different ones
    reply: q, allowed: true, ...            a decision with these fields; `result:` or `error:` instead of them; then: close;
                                            cut: n, from: n: only these bytes
    reply_many: q, order: reverse | any, write: whole | coalesced | bytes, ...
    raw: q, hex: "c1" | message: [...]      bytes at the connection of q; repeat: n; parts: [...]; then: close
    raw_at_all: q, hex: "c1"                on each connection of expect_many
    close: q                                its connection
    closed: q                               the client has closed it; `left: all`: all of them
    released: q, ids: [S]                   the client has given back S on the connection of q, or closed it
    connections: 2                          total number of accepted connections
    quiet: true                             no unexpected request came
    hostile: {reading: false, accepting: false, listening: true, backlog: full, close_at_accept: 3, close_all: true,
              unread: true, serve: {...}, serve_release: false}

The real daemon
    daemon: stop | cont | kill | start | term
    direct: stats, params: [], gives: {}    a call of the suite itself, repeated until it fits
    clock: 60000                            advances the clock by these ms; otherwise it stands still

Answers must have status ok unless the step has another status. `ms: 250` is a time from 250 to 350, `ms: [0, 50]` one from 0
to 50.
"""

import random
import signal
import sys
import time
from pathlib import Path

import msgpack

from hostile import DECISION, Hostile
from matching import Found, Raw, complaint, packed
from subject import ROOT, Subject

sys.path.insert(0, str(ROOT / "tests" / "integration"))
from harness import Ratelimitd, eventually  # noqa: E402

CLIENT_COMMANDS = {
    "open", "close", "fake", "stats", "check", "check_all", "check_many", "peek", "reset", "refund", "acquire", "reserve", "verify",
    "fake_allow_all", "fake_deny", "fake_unavailable", "fake_calls",
}
LATE_MS = 100
START_OF_CLOCK_US = 1_700_000_000_000_000


class Failed(AssertionError):
    pass


def filled(value, **names):
    """The value with {name} replaced in its texts; a text that is only {name} becomes the value itself."""
    if isinstance(value, str):
        for name, one in names.items():
            if value == f"{{{name}}}":
                return one
            value = value.replace(f"{{{name}}}", str(one))
        return value
    if type(value) is dict:
        return {key: filled(one, **names) for key, one in value.items()}
    if type(value) is list:
        return [filled(one, **names) for one in value]
    return value


class Play:
    """One run of one case."""

    def __init__(self, case, subject, variant, folder, driver_log):
        self.case, self.subject, self.variant, self.driver_log = case, subject, variant, driver_log
        self.labels, self.requests, self.clients, self.transcript = {}, {}, [], []
        self.hostile, self.real, self.clock_us, self.marked, self.remembered = None, None, START_OF_CLOCK_US, 0.0, 0
        self.socket = str(Path(folder) / "d.sock")
        kind = case.get("daemon", "hostile")
        if kind == "hostile":
            self.hostile = Hostile(self.socket, hello=case.get("hello", "answer"), features=case.get("features"))
        elif kind == "real":
            self.real = Ratelimitd(case["config"], arguments=["--test-clock"])
            self.socket = self.real.socket
            self._set_clock()
        elif kind == "nothing":
            self.socket = str(Path(folder) / case.get("path", "none.sock"))
            if case.get("file"):
                Path(self.socket).write_text("")

    def run(self):
        opening = self.case.get("open", {})
        if opening is not None:
            self.step_ask({"ask": "open", "timeout_ms": 5000, **opening})
        for step in self.case["steps"]:
            self.note("step", step)
            self._step(step)
        self._end()

    def note(self, kind, what):
        self.transcript.append(f"{kind:8} {what}")

    def clean_up(self):
        if self.hostile:
            self.hostile.stop()
        if self.real:
            self.real.expected_exit = [0, -signal.SIGKILL]
            self.real.close()

    # ---- plumbing ---------------------------------------------------------------------------------------------------

    def _step(self, step):
        verb = next((name for name in step if hasattr(self, f"step_{name}")), None)
        if verb is None:
            raise Failed(f"the case has a step that does not exist: {step}")
        getattr(self, f"step_{verb}")(step)

    def _end(self):
        """End of the case: close its clients, and check that nothing is left of them."""
        for name in list(self.clients):
            self._gives({"do": "close", "client": name}, {}, {})
        if not self.hostile:
            return
        if self.hostile.faults:
            raise Failed(f"the hostile daemon {self.hostile.faults[0]}")
        if not self.hostile.reading:
            self.hostile.read(True)
        if not self.hostile.accepting and not self.case.get("leave_backlog"):
            self.hostile.accept(True)
        self.hostile.wait(lambda: all(one.left or one.closed for one in self.hostile.connections),
                          "the closed client to leave its connections")

    def _command(self, step, verb):
        of_step = {verb, "gives", "not_before_ms", "within_ms", "for_ms", "never", "other"} | ({"n"} if verb == "send_many" else set())
        command = {key: value for key, value in step.items() if key not in of_step}
        command.setdefault("do", step[verb])
        if command["do"] in CLIENT_COMMANDS:
            command.setdefault("client", "c1")
        if command["do"] == "open":
            command.setdefault("socket", self.socket)
            if command["timeout_ms"] is None:
                del command["timeout_ms"]
        if command["do"] in ("open", "fake") and command["client"] not in self.clients:
            self.clients.append(command["client"])
        if command["do"] == "close" and command["client"] in self.clients:
            self.clients.remove(command["client"])
        if command["do"] == "cancel":
            command["call"] = self.labels[command["call"]]
        return self._with_sockets(command)

    def _with_sockets(self, value):
        return filled(value, socket=self.socket, large=[["api", f"{i:03}-" + "x" * 490] for i in range(120)])

    def _fit(self, expected, answer, names):
        expected = dict(expected)
        expected.setdefault("status", "ok")
        least_ms, total, only = (expected.pop(name, None) for name in ("ms", "total", "only"))
        found = complaint(filled(expected, **names), answer)
        if found:
            raise Failed(f"{found}; the whole answer: {answer}")
        if total is not None and sum(answer["counts"].values()) != total:
            raise Failed(f"not {total} calls ended: {answer}")
        if only is not None and set(answer["counts"]) - set(only):
            raise Failed(f"calls ended with a status other than {only}: {answer}")
        if least_ms is not None:
            low, high = least_ms if isinstance(least_ms, list) else (least_ms, least_ms + LATE_MS)
            if not isinstance(answer.get("ms"), (int, float)) or not low - 1 <= answer["ms"] <= high:
                raise Failed(f"it took {answer.get('ms')} ms, expected {low} to {high}: {answer}")

    def _gives(self, command, expected, names):
        label = self.subject.send(command)
        answer = self.subject.answer(label, f"the answer to {command}")
        self.note("answer", answer)
        self._fit(expected, answer, names)
        return answer

    # ---- the driver -------------------------------------------------------------------------------------------------

    def step_send(self, step):
        self.labels[step["send"]] = self.subject.send(self._command(step, "send"))

    def step_answer(self, step):
        answer = self.subject.answer(self.labels[step["answer"]], f"the answer {step['answer']}")
        self.note("answer", answer)
        self._fit({key: value for key, value in step.items() if key != "answer"}, answer, {})

    def step_ask(self, step):
        self._gives(self._command(step, "ask"), step.get("gives", {}), {})

    def step_send_many(self, step):
        n = self.variant.many if step["n"] == "many" else step["n"]
        command = self._command(step, "send_many")
        self.labels[step["send_many"]] = [self.subject.send(filled(command, i=i)) for i in range(n)]

    def step_answer_many(self, step):
        expected = {key: value for key, value in step.items() if key != "answer_many"}
        for i, label in enumerate(self.labels[step["answer_many"]]):
            answer = self.subject.answer(label, f"answer {i} of {step['answer_many']}")
            self._fit(expected, answer, {"i": i})

    def step_answer_any(self, step):
        answer = self.subject.answer(self.labels[step["answer_any"]], f"the answer {step['answer_any']}")
        self.note("answer", answer)
        if all(complaint(one, answer) for one in step["of"]):
            raise Failed(f"it does not fit any of {step['of']}: {answer}")

    def step_nudge(self, step):
        command = self._command(step, "nudge")
        self.note("answer", self.subject.answer(self.subject.send(command), f"the answer to {command}"))

    def step_until(self, step):
        command = self._command(step, "until")
        until = time.monotonic() + 20
        while True:
            answer = self.subject.answer(self.subject.send(command), f"the answer to {command}")
            found = complaint({"status": "ok", **step.get("gives", {})}, answer)
            if found is None:
                break
            if answer["status"] == step.get("never") or time.monotonic() > until:
                raise Failed(f"it never fitted: {found}")
            time.sleep(0.01)
        self.note("answer", answer)
        self._at_the_right_time(step)

    def step_keep_asking(self, step):
        command, until = self._command(step, "keep_asking"), time.monotonic() + step["for_ms"] / 1000
        while time.monotonic() < until:
            answer = self.subject.answer(self.subject.send(command), f"the answer to {command}")
            self._fit(step["gives"], answer, {})
            time.sleep(0.01)

    def _at_the_right_time(self, step):
        passed_ms = (time.monotonic() - self.marked) * 1000
        if passed_ms < step.get("not_before_ms", 0):
            raise Failed(f"after only {passed_ms:.0f} ms, expected at least {step['not_before_ms']}")
        if passed_ms > step.get("within_ms", passed_ms):
            raise Failed(f"after {passed_ms:.0f} ms, expected at most {step['within_ms']}")

    def step_time_out(self, step):
        options = {"timeout_ms": step["timeout_ms"]} if "timeout_ms" in step else {}
        for i in range(step["time_out"]):
            label = self.subject.send({"do": "check", "client": "c1", "policy": "api", "key": f"silent-{i}", **options})
            self._taken("check", {"key": f"silent-{i}"})
            answer = self.subject.answer(label, f"the end of call {i}, which gets no answer")
            self.note("answer", answer)
            self._fit({"status": "timeout"}, answer, {})

    def step_sequence(self, step):
        for i in range(step["sequence"]):
            label = self.subject.send({"do": "check", "client": "c1", "policy": "api", "key": f"call-{i}"})
            request = self._taken("check", {"key": f"call-{i}"})
            self.hostile.write(request.connection, self._response(request, {"error": step["error"]}))
            answer = self.subject.answer(label, f"the answer to call-{i}")
            self.note("answer", answer)
            self._fit(step["gives"], answer, {})

    def step_repeat(self, step):
        command = self._command({key: value for key, value in step.items() if key != "repeat"}, "do")
        for i in range(step["repeat"]):
            answer = self.subject.answer(self.subject.send(filled(command, i=i)), f"answer {i}")
            self._fit(step.get("gives", {}), answer, {"i": i})

    def step_until_received(self, step):
        command = self._command({key: value for key, value in step.items() if key != "as"}, "until_received")
        until = time.monotonic() + 20
        while True:
            label = self.subject.send(command)
            while not self.subject.has_answered(label) and not self.hostile.requests:
                time.sleep(0.002)
                if time.monotonic() > until:
                    raise Failed("the client has sent nothing so far")
            if self.hostile.requests:
                break
            self._fit({"status": step["other"]}, self.subject.answer(label, "an answer"), {})
            time.sleep(0.01)
        self.requests[step["as"]] = self._taken(step["until_received"], {"key": step["key"]})
        self.labels[step["as"]] = label
        self._at_the_right_time(step)

    def step_probe_answer(self, step):
        if step.get("status", "ok") == "ok":
            self.step_reply({**step, "reply": step["probe_answer"]})
        expected = {"status": "ok"} if "status" not in step else {"status": step["status"]}
        self._fit(expected, self.subject.answer(self.labels[step["probe_answer"]], "the answer to the probe"), {})

    def step_race(self, step):
        """An answer at the timeout may be in time or late. It must belong to the call."""
        for i in range(step["race"]):
            key, ends = f"race-{i}", time.monotonic() + step["timeout_ms"] / 1000
            label = self.subject.send({"do": "check", "client": "c1", "policy": "api", "key": key, "timeout_ms": step["timeout_ms"]})
            request = self._taken("check", {"key": key})
            time.sleep(max(0, ends - time.monotonic() + (i - step["race"] / 2) * 0.0003))
            self.hostile.write(request.connection, self._response(request, {"remaining": 1000 + i}))
            answer = self.subject.answer(label, f"the answer to {key}")
            self.note("answer", answer)
            if answer["status"] not in ("ok", "timeout") or answer["status"] == "ok" and answer["decision"]["remaining"] != 1000 + i:
                raise Failed(f"expected remaining {1000 + i}, or a timeout: {answer}")
            if answer["status"] == "timeout":  # three timeouts in a row would open the breaker
                label = self.subject.send({"do": "check", "client": "c1", "policy": "api", "key": f"after-{i}"})
                request = self._taken("check", {"key": f"after-{i}"})
                self.hostile.write(request.connection, self._response(request, {"remaining": i}))
                self._fit({"decision": {"remaining": i}}, self.subject.answer(label, "the answer in between"), {})

    def step_mark(self, _step):
        self.marked = time.monotonic()

    def step_event(self, step):
        at_use = self.variant.loss_is_reported_at_use
        if step.get("at_loss") and at_use or step.get("if_use") and not at_use:
            return
        self.subject.event(step["event"], **{key: value for key, value in step.items() if key not in ("event", "at_loss", "if_use")})

    def step_log(self, step):
        self.subject.event("log", message=Found(step["log"]))

    def step_silent(self, step):
        if self.subject.heard(step["silent"]):
            raise Failed(f"there was an event {step['silent']}")

    def step_descriptors(self, step):
        if step["descriptors"] == "remember":
            self.remembered = self.subject.descriptors()
            return
        eventually(lambda: self.subject.descriptors() <= self.remembered + 8,
                   f"{self.remembered} descriptors as before, and a few; now {self.subject.descriptors()}")

    def step_kill_driver(self, _step):
        self.subject.kill()
        self.clients.clear()
        self.subject = Subject(self.variant, self.driver_log)

    # ---- the hostile daemon -----------------------------------------------------------------------------------------

    def _taken(self, method, expected):
        request = self.hostile.take(f"a request {method}")
        self.note("received", f"{request} on connection {request.connection.number}")
        found = complaint({"method": method}, {"method": request.method}) or complaint(expected, request.named)
        if found:
            raise Failed(f"{found}; received: {request}")
        return request

    def step_expect(self, step):
        expected = {key: value for key, value in step.items() if key not in ("expect", "as", "of", "same_as", "differs_from")}
        if "of" in step:
            expected["msgid"] = self.requests[step["of"]].msgid
        request = self._taken(step["expect"], expected)
        if "of" in step and request.connection is not self.requests[step["of"]].connection:
            raise Failed(f"it came on another connection than {step['of']}: {request}")
        ids = {name: self.requests[step[name]].named.get("request_id") for name in ("same_as", "differs_from") if name in step}
        if ids.get("same_as", request.named.get("request_id")) != request.named.get("request_id"):
            raise Failed(f"its request_id is not {ids['same_as']!r}: {request}")
        if "differs_from" in ids and ids["differs_from"] == request.named.get("request_id"):
            raise Failed(f"its request_id is that of an earlier call: {request}")
        self.requests[step.get("as", step["expect"])] = request

    def step_expect_many(self, step):
        n = self.variant.many if step["n"] == "many" else step["n"]
        self.requests[step["as"]] = [self._taken(step["expect_many"], {}) for _ in range(n)]

    def step_received(self, step):
        if len({self.requests[name].connection for name in step["received"]}) != 1:
            raise Failed(f"{step['received']} came on several connections")

    def step_apart(self, step):
        names = step["apart"]
        if len({self.requests[name].connection for name in names}) != len(names):
            raise Failed(f"some of {names} came on one connection")

    def _response(self, request, step, **names):
        """The bytes of an answer to it."""
        fields = filled({key: value for key, value in step.items()
                         if key not in ("reply", "reply_many", "probe_answer", "then", "result", "error", "order", "write", "cut", "from")},
                        **names)
        if "error" in step:
            return packed([1, request.msgid, filled(step["error"], **names), None])
        if "result" in step:
            return packed([1, request.msgid, None, filled(step["result"], **names)])
        result = decision = {**DECISION, **fields}
        if request.method == "check_many":
            result = [decision] * len(request.named["items"])
        elif request.method == "check_all":
            result = {**decision, "members": decision.get("members", [decision] * len(request.named["items"]))}
        return packed([1, request.msgid, None, result])

    def step_reply(self, step):
        request = self.requests[step["reply"]]
        data = self._response(request, step)
        self.hostile.write(request.connection, data[step.get("from", 0):step.get("cut", len(data))])
        if step.get("then") == "close":
            self.hostile.close(request.connection)

    def step_reply_many(self, step):
        requests = list(self.requests[step["reply_many"]])
        answers = [(one.connection, self._response(one, step, i=int(one.named["key"].rpartition("-")[2]))) for one in requests]
        if step.get("order") == "reverse":
            answers.reverse()
        elif step.get("order") == "any":
            random.Random(1).shuffle(answers)
        if step.get("write", "whole") == "coalesced":
            together = {}
            for connection, data in answers:
                together[connection] = together.get(connection, b"") + data
            answers = list(together.items())
        for connection, data in answers:
            size = 1 if step.get("write") == "bytes" else len(data)
            for at in range(0, len(data), size):
                self.hostile.write(connection, data[at:at + size])

    def step_raw(self, step):
        request = self.requests[step["raw"]]
        wide = Raw(b"\xcf" + request.msgid.to_bytes(8, "big"))
        for part in step.get("parts", [step]):
            if "hex" in part:
                data = bytes.fromhex(part["hex"].replace(" ", "")) * part.get("repeat", 1)
            elif "head" in part:
                data = b"\x94\x01" + packed(request.msgid) + b"\xc0"
            else:
                data = packed(filled(part["message"], msgid=request.msgid, wide_msgid=wide))
            self.hostile.write(request.connection, data)
        if step.get("then") == "close":
            self.hostile.close(request.connection)

    def step_raw_at_all(self, step):
        for connection in {request.connection for request in self.requests[step["raw_at_all"]]}:
            self.hostile.write(connection, bytes.fromhex(step["hex"]))

    def step_close(self, step):
        self.hostile.close(self.requests[step["close"]].connection)

    def step_closed(self, step):
        connection = self.requests[step["closed"]].connection
        self.hostile.wait(lambda: connection.left or connection.closed, f"the client to close the connection of {step['closed']}")

    def step_released(self, step):
        """Other requests that the client sends meanwhile stay in the queue."""
        origin, ids = self.requests[step["released"]], set(step["ids"])

        def undone():
            for request in self.hostile.requests:
                given = request.named.get("slot", request.named.get("reservation"))
                if request.method in ("release", "cancel") and given in ids and request.connection is origin.connection:
                    self.hostile.requests.remove(request)
                    answer = {"released": True} if request.method == "release" else {**DECISION, "refunded": 1}
                    self.hostile.write(origin.connection, msgpack.packb([1, request.msgid, None, answer]))
                    ids.discard(given)
            return not ids or origin.connection.left

        self.hostile.wait(undone, f"the client to give back {sorted(ids)}, or to close the connection")

    def step_connections(self, step):
        found = complaint(step["connections"], len(self.hostile.connections), "the number of connections")
        if found:
            raise Failed(found)

    def step_left(self, _step):
        self.hostile.wait(lambda: all(one.left or one.closed for one in self.hostile.connections), "the client to leave")

    def step_quiet(self, _step):
        if self.hostile.requests:
            raise Failed(f"received, and not expected: {self.hostile.requests[0]}")

    def step_hostile(self, step):
        for name, value in step["hostile"].items():
            if name == "reading":
                self.hostile.read(value)
            elif name == "accepting":
                self.hostile.accept(value)
            elif name == "listening":
                self.hostile.listen() if value else self.hostile.stop_listening()
            elif name == "backlog":
                self.hostile.fill_backlog()
            elif name in ("close_at_accept", "serve", "serve_release"):
                setattr(self.hostile, name, value)
            elif name == "close_all":
                self.hostile.close_all()
            elif name == "unread":
                eventually(self.hostile.has_unread, "bytes of the client wait to be read")
            else:
                raise Failed(f"the hostile daemon cannot {name}")

    # ---- the real daemon --------------------------------------------------------------------------------------------

    def _set_clock(self):
        with self.real.client() as client:
            client.call("test_clock", self.clock_us)

    def step_clock(self, step):
        self.clock_us += step["clock"] * 1000
        self._set_clock()

    def step_daemon(self, step):
        what = step["daemon"]
        if what == "stop":
            self.real.pause()
        elif what == "cont":
            self.real.resume()
        elif what == "kill":
            self.real.kill()
        elif what == "term":
            self.real.stop()
        else:
            self.real.start()
            self._set_clock()

    def step_direct(self, step):
        until = time.monotonic() + 15
        with self.real.client() as client:
            while (found := complaint(step["gives"], client.call(step["direct"], *step.get("params", [])))) is not None:
                if time.monotonic() > until:
                    raise Failed(f"{step['direct']}: {found}")
                time.sleep(0.005)

