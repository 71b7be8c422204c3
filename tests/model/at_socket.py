"""at_socket.py: a trace in the form of the protocol: its policies as configuration, its steps as calls, the model's answers as
results, and a daemon under --test-clock that replays it.

A result is a list, the array form of a described decision: FIELDS in order, without the policy's version (it is compared with
`policies`), and then a map if the method has more fields. Traces of even seeds ask for arrays, the others for maps. Every third
seed turns the plain checks of one moment into a check_many, and some settlements of 0 into cancellations. Two steps are
impossible through the socket, and their result is None on both sides: the renewal of a slot, which only the daemon does, and
the settlement of a denied reservation. For a trace with candidates, the counts of `policies` follow the results.
"""

import random
import sys
from pathlib import Path

import msgpack

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))

import calendars  # noqa: E402
import traces  # noqa: E402
from candidates import COUNTS, CandidateTrace  # noqa: E402
from harness import Ratelimitd  # noqa: E402
from model import combine  # noqa: E402
from reserving import ReservingTrace  # noqa: E402
from slot_traces import SlotTrace  # noqa: E402
from steps import StepsTrace  # noqa: E402

FIELDS = ["allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "delay_ms", "granted", "bound_by", "source",
          "reason", "policy_version", "of", "quota", "window_ms", "of_reset_ms"]
VERSION = FIELDS.index("policy_version")
GIVES = {"acquire": "slot", "reserve": "reservation"}  # the fields with ids that the daemon chooses, in answers that allow
CONFIG_WRONG = 3  # the daemon's exit status
NAMED = tuple(GIVES.values())


# ---- the configuration ----

def window(policy):
    if not policy.calendar:
        return f"{policy.window_us}us"
    unit, zone, week_start = policy.calendar
    if isinstance(week_start, tuple):  # in a leap year, so that each day is a date
        return "{}, timezone: {}, anchor: 2024-{:02d}-{:02d}".format(unit, zone, *week_start)
    return f"{unit}, timezone: {zone}" + (f", week_start: {calendars.WEEKDAYS[week_start]}" if unit == "week" else "")


def limit_settings(policy):
    if policy.algorithm == "concurrency":
        return f"algorithm: concurrency, limit: {policy.limit}, slot_ttl: {policy.window_us}us"
    shape = {"first_hit": "algorithm: fixed_window, start: first_hit"}.get(policy.algorithm)
    if shape is None:
        shape = f"{'compat' if policy.algorithm in traces.COMPAT else 'algorithm'}: {policy.algorithm}"
    text = f"{shape}, limit: {policy.limit}, window: {window(policy)}"
    text += f", burst: {policy.burst}" if policy.burst else ""
    text += ", count_denied: true" if policy.count_denied else ""
    text += f", max_wait: {policy.max_wait_us}us" if policy.max_wait_us else ""
    text += ", counts: checks" if policy.counts_checks else ""
    if policy.penalty:
        text += ", penalty: {{time: {}ms, factor: {}, max: {}ms, forget: {}ms}}".format(*policy.penalty)
    return text + (f", by: [{', '.join(policy.by)}]" if policy.by is not None else "")


def listed(limits):
    return f"[{', '.join(f'{{name: {name}, {limit_settings(policy)}}}' for name, policy in limits)}]"


def override(limits, keys, numbers):
    named = [(name, n) for (name, _), n in zip(limits, numbers) if n]
    number = f"{named[0][1]}" if named and len(limits) == 1 else f"{{{', '.join(f'{name}: {n}' for name, n in named)}}}"
    if keys.startswith("cidr/"):
        _, part, networks = keys.split("/", 2)
        match = ", ".join(f'"{network}"' for network in networks.split(","))
        return f"{{match: {{cidr: [{match}]{'' if part == '-' else f', part: {part}'}}}, limit: {number}}}"
    return f"{{{'match' if '*' in keys else 'key'}: \"{keys}\", limit: {number}}}"


def policies_of(trace):
    return trace.policy if isinstance(trace.policy, dict) else {trace.name: [("-", trace.policy)]}


def warn_at(trace, name):
    """Percent, or 0. Each policy has one of its own, which is no part of the trace: it changes one field alone, `near`."""
    return random.Random(f"{trace.seed} {name}").choice((0, 0, 1, 33, 50, 80, 99, 100))


def config(trace):
    """Lines of `policies:`."""
    for name, limits in policies_of(trace).items():
        more = f"key_format: \"{trace.formats[name]}\", " if getattr(trace, "formats", {}).get(name) else ""
        more += f"idempotency_window: {trace.keep_ms}ms, " if isinstance(trace, StepsTrace) else ""
        more += "debt: true, " if limits[0][1].debt else ""
        more += f"warn_at: {warn_at(trace, name)}%, " if warn_at(trace, name) else ""
        more += "phase: true, " if any(p.phase_head for _, p in limits) else ""
        if getattr(trace, "overrides", {}).get(name):
            more += f"overrides: [{', '.join(override(limits, *one) for one in trace.overrides[name])}], "
        if isinstance(trace, CandidateTrace):
            more += f"candidate: {listed(trace.candidate[name])}, "
        yield f"  {name}: {{{more}{limit_settings(limits[0][1]) if len(limits) == 1 else f'limits: {listed(limits)}'}}}"


# ---- steps, of every kind of trace: (now, kind, [(policy's name, key, units), ...], further fields) ----

def steps_of(trace):
    for now, *step in trace.steps():
        if isinstance(trace, traces.Trace):
            key, kind, cost, max_wait_us = step
            yield now, kind, [(trace.name, key, cost)], {} if max_wait_us is None else {"max_wait_ms": max_wait_us // 1000}
        elif isinstance(trace, SlotTrace):
            kind, name, key, what = step
            yield now, kind, [(name, key, what if kind == "peek" else 1)], {"slot": what}
        elif isinstance(trace, StepsTrace):
            kind, asked, request = step
            yield now, kind, asked, {"request_id": str(request)} if request else {}
        elif isinstance(trace, ReservingTrace):
            kind, asked, more = step
            named = {"slot": more[0]} if kind == "acquire" else {"reservation": more[0], "ttl_ms": more[1]} if more else {}
            yield now, kind, asked, named
        else:
            kind, asked = step
            yield now, kind, asked, {}


def call(kind, asked, more, given):
    """(method, params). `given`: the daemon's ids of the slots and reservations of the trace."""
    name, key, units = asked[0]
    if kind in ("check", "most"):
        options = {"cost" if kind == "check" else "at_most": units, **more}
        return "check", [name, key, units if options.keys() == {"cost"} else options]
    if kind == "all":
        return "check_all", [[list(one) for one in asked], *([more] if more else [])]
    if kind == "acquire":
        return kind, [name, key]
    if kind == "release":
        return kind, [given.get(more["slot"], more["slot"])]
    if kind == "reserve":
        return kind, [name, key, units, {"ttl_ms": more["ttl_ms"]}]
    if kind == "settle":
        name = given[more["reservation"]]
        return ("cancel", [name]) if units == 0 and more["reservation"] % 2 else (kind, [name, units])
    return kind, [name, key] + ([] if kind == "reset" else [units])


# ---- the model's answers, as results ----

def decision(whole, granted, bound_by):
    return [whole["allowed"], whole["limit"], whole["remaining"], 0 if whole["allowed"] else whole["retry"], whole["reset"],
            whole["delay"], granted, bound_by, "memory", whole["reason"], None, whole["of"], whole["quota"], whole["window"],
            whole["own_reset"]]


def members_of(trace, asked, answers, by_units=True):
    """Each policy's answer, combined from its limits: (combined answer, the limit that bound it, granted units)."""
    policies, at = policies_of(trace), 0
    for name, _, units in asked:
        limits = policies[name]
        own, at = answers[at:at + len(limits)], at + len(limits)
        whole = combine(own, by_units)
        percent = warn_at(trace, name)
        whole["near"] = percent > 0 and any((a["limit"] - a["remaining"]) * 100 > percent * a["limit"] for a in own)
        whole["of"] = name if len(limits) == 1 else f"{name}/{limits[whole['of']][0]}"
        bound = None if whole["bound_by"] is None or len(limits) == 1 else whole["of"]
        granted = max(a.get("granted", units) for a in own)
        if granted == 0 or not all(a["takes_one"] for a in own):
            units = granted
        units = max(units, granted)
        yield whole, bound, units


def result_of_all(trace, asked, answers):
    members = list(members_of(trace, asked, answers))
    whole = combine([member for member, _, _ in members])
    whole["of"] = members[whole["of"]][0]["of"]
    at = whole["bound_by"]
    granted = [n if whole["allowed"] else 0 for _, _, n in members]
    near = {"near": True} if any(member["near"] for member, _, _ in members) else {}
    return [*decision(whole, sum(granted), None if at is None else members[at][1] or asked[at][0]),
            {"members": [[*decision(member, n, bound), *([near] if member["near"] else [])]
                         for (member, bound, _), n in zip(members, granted)]} | near]


def result(trace, kind, asked, answers):
    if answers is None:
        return None
    if kind == "reset":
        return {"removed": any(a["removed"] for a in answers)}
    if kind == "release":
        return {"released": answers[0]}
    if kind == "all":
        return result_of_all(trace, asked, answers)
    name, key, units = asked[0]
    more = {}
    if kind == "settle":
        *answers, (refunded, charged, ended, beyond) = answers
        asked = [(name, key, 0)]
        more = {"charged": charged} if beyond else {"refunded": refunded}
        more |= {"ended": True} if ended else {}
    (whole, bound, granted), = members_of(trace, asked, answers, by_units=kind != "acquire")
    if kind == "refund":
        more = {"refunded": max(a["refunded"] for a in answers)}
    if kind in GIVES and whole["allowed"]:
        more = {GIVES[kind]: True}
    more |= {"near": True} if whole["near"] else {}
    return [*decision(whole, granted if whole["allowed"] else 0, bound), *([more] if more else [])]


def results(trace, answers=None):
    """`answers`: of the model, if they are known."""
    if isinstance(trace, SlotTrace):
        answers = trace.answers_of_a_connection()
    elif isinstance(trace, ReservingTrace):
        answers = trace.answers(of_admitted=True)
    elif answers is None:
        answers = trace.answers()
    counted = [trace.counts(answers)] if isinstance(trace, CandidateTrace) else []
    return [result(trace, kind, asked, some) for (_, kind, asked, _), some in zip(steps_of(trace), answers)] + counted


# ---- the daemon's answers ----

def as_list(answer, kind, asked):
    """Converts a decision in map form to the array form."""
    cost = 0 if kind in ("settle", "refund") else sum(units for _, _, units in asked)
    without = {"delay_ms": 0, "granted": cost if answer["allowed"] else 0, "bound_by": None, "reason": None}
    fields = [answer[name] if name in answer else without[name] for name in FIELDS]
    more = {name: value for name, value in answer.items() if name not in FIELDS}
    if "members" in more:
        more["members"] = [as_list(member, "check", [one]) for member, one in zip(more["members"], asked)]
    return [*fields, *([more] if more else [])]


def folded(versions):
    whole = 0
    for version in versions:
        whole = (whole * 31 + version) % 2**32
    return whole


class Replay:
    """A daemon with the policies of some traces, on the memory store."""

    def __init__(self, some):
        lines = "".join(f"{line}\n" for trace in some for line in config(trace))
        self.daemon = Ratelimitd(f"policies:\n{lines}", arguments=["--test-clock"], start=False)
        try:
            self.daemon.start()
        except AssertionError as error:
            self.daemon.expected_exit = CONFIG_WRONG
            self.daemon.close()
            raise traces.BadTrace(str(error)) from None
        with self.daemon.client() as client:
            self.versions = {policy["name"]: policy["version"] for policy in client.call("policies")}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.daemon.close()

    def results(self, some):
        """A list for each trace, like results()."""
        found = [self.result(trace) for trace in some]
        with self.daemon.client() as client:
            counted = {policy["name"]: {name: policy.get(name) for name in COUNTS} for policy in client.call("policies")}
            assert client.call("stats")["candidate_skipped"] == 0
        return [answers + ([{name: counted[name] for name in trace.policy}] if isinstance(trace, CandidateTrace) else [])
                for trace, answers in zip(some, found)]

    def result(self, trace):
        """On its own connection, in as few writes as possible: a step that needs an id from the daemon waits for it."""
        with self.daemon.client() as client:
            maps = trace.seed % 2 == 1
            client.call("hello", {"decision": "map" if maps else "array", "describe": True})
            return Conversation(client, maps, trace.seed % 3 == 2, self.versions).run(trace)


def decide(trace):
    with Replay([trace]) as replay:
        return replay.results([trace])[0]


class Conversation:
    def __init__(self, client, maps, many, versions):
        self.client, self.maps, self.many, self.versions = client, maps, many, versions
        self.checks = []  # `asked` of plain checks that will be one check_many
        self.pending = bytearray()
        self.waiting = []  # of each request in `pending`: (method, [(kind, asked, the trace's name for what is given), ...])
        self.given = {}  # the trace's names of slots and reservations -> the daemon's
        self.found = []

    def run(self, trace):
        last = None
        for now, *step in steps_of(trace):
            if now != last:
                self.ask("test_clock", [now], [])
            last = now
            self.step(*step)
        self.take()
        return self.found

    def step(self, kind, asked, more):
        name = next((more[name] for name in NAMED if name in more), None)
        if kind in ("release", "settle") and name not in self.given:
            self.take()  # its id may be in a pending answer
        if kind == "renew" or kind == "settle" and name not in self.given:
            self.take()
            self.found.append(None)
        elif self.many and kind == "check" and not more:
            self.checks += asked
        else:
            self.ask(*call(kind, asked, more, self.given), [(kind, asked, name)])

    def ask(self, method, params, about):
        self.put_checks()
        self.put(method, params, about)

    def put(self, method, params, about):
        self.pending += msgpack.packb([0, len(self.waiting), method, params])
        self.waiting.append((method, about))

    def put_checks(self):
        if self.checks:
            self.put("check_many", [self.checks], [("check", [one], None) for one in self.checks])
        self.checks = []

    def take(self):
        """Write what is pending, and read the answers to it."""
        self.send()
        self.receive()

    def send(self):
        self.put_checks()
        self.client.send_bytes(self.pending)
        self.pending = bytearray()

    def receive(self):
        answers = [None] * len(self.waiting)
        for _ in self.waiting:
            _, msgid, error, answer = self.client.recv()
            if error is not None and error.startswith("BAD_"):
                raise traces.BadTrace(f"{error} for {self.waiting[msgid]}")
            answers[msgid] = error or answer
        for answer, (method, about) in zip(answers, self.waiting):
            each = answer if method == "check_many" and not isinstance(answer, str) else [answer] * len(about)
            self.found += [self.plain(one, *of) for one, of in zip(each, about)]
        self.waiting = []

    def plain(self, answer, kind, asked, name):
        """An answer in the form of `results`: without the values that only the daemon knows, after checking them."""
        if kind in ("reset", "release") or isinstance(answer, str):
            return answer
        if self.maps:
            answer = as_list(answer, kind, asked)
        more = answer[-1] if isinstance(answer[-1], dict) else {}
        for what in NAMED:
            if isinstance(more.get(what), str):
                self.given[name], more[what] = more[what], True
        versions = [self.versions[policy] for policy, _, _ in asked]
        self.check_version(answer, folded(versions))
        for member, version in zip(more.get("members", ()), versions):
            self.check_version(member, version)
        return answer

    @staticmethod
    def check_version(answer, version):
        if answer[VERSION] == version:
            answer[VERSION] = None
