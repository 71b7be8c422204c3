"""at_cluster.py: many traces at once on a whole daemon over a Redis Cluster whose servers answer TIME with the traces' time
(server_clock.py). A call has keys of many traces and hash slots, and each answer is the model's in every field.

The traces get common times. What all of them ask at one time is sent together, each on a connection of its own. A step that
Redis did not decide ends its trace, because it may have been charged or not. What a deny cache or a lease decides has the
daemon's own time: its times may be less than the model's, by as much as the run has taken.
"""

import dataclasses
import itertools
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))

import at_socket  # noqa: E402
import calendars  # noqa: E402
import comparison  # noqa: E402
import traces  # noqa: E402
from model import Policy, of_key  # noqa: E402
from reserving import ReservingTrace  # noqa: E402
from slot_traces import SlotTrace  # noqa: E402
from steps import StepsTrace  # noqa: E402

STEP_MAX_US = 20_000_000  # less than the deadline: a call carries the latest time at which it may begin, by the server's clock
SECOND_US = 1_000_000
LONG_US, LONG_MS = 43_200_000_000, 86_400_000  # slots and reservations end by the daemon's clock: not while a test runs
DAY_US = 86_400_000_000
UNDECIDED = "undecided"
BY_REDIS, BY_DAEMON = ("redis", "local"), ("lease", "deny_cache")  # local: a limit of 0
SOURCE = at_socket.FIELDS.index("source")
TIMES = [at_socket.FIELDS.index(name) for name in ("retry_after_ms", "reset_after_ms", "of_reset_ms")]


# ---- traces ----

class SlotsTrace(SlotTrace):
    """Without renewals."""

    def answers_of_a_connection(self):
        return [[all(some)] if kind == "release" else some for (_, kind, *_), some in zip(self.steps(), self.answers())]


class ReservationsTrace(ReservingTrace):
    is_renewed = False


def with_steps(trace, change):
    """change(step): another step, or None."""
    return dataclasses.replace(trace, ticks=[(now, [new for new in map(change, steps) if new]) for now, steps in trace.ticks])


def with_long_slots(limits):
    return [(limit, dataclasses.replace(p, window_us=LONG_US) if p.algorithm == "concurrency" else p) for limit, p in limits]


def of_seed(name, seed):
    trace = traces.of_seed(name, seed)
    if isinstance(trace, (SlotTrace, ReservingTrace)):
        kept = {field.name: getattr(trace, field.name) for field in dataclasses.fields(trace)}
        kept["policy"] = {each: with_long_slots(limits) for each, limits in trace.policy.items()}
        trace = (SlotsTrace if isinstance(trace, SlotTrace) else ReservationsTrace)(**kept)
    if isinstance(trace, SlotTrace):
        return with_steps(trace, lambda step: None if step[0] == "renew" else step)
    if isinstance(trace, ReservingTrace):
        return with_steps(trace, lambda step: (*step[:2], (step[2][0], LONG_MS)) if step[0] == "reserve" else step)
    if isinstance(trace, StepsTrace):
        return with_steps(trace, lambda step: (*step[:2], 0) if is_of_several(*step[:2]) else step)
    return trace


def is_of_several(kind, asked):
    return kind == "all" and len(asked) > 1


def without_denied(trace):
    """A check_all of several hash slots is charged in each, and given back if the whole is denied. A penalty, a limit that counts
    denials, and a clock that steps back show that: test_split_traces.c compares those."""
    while True:
        denied = [is_of_several(kind, asked) and not result[0]
                  for (_, kind, asked, _), result in zip(at_socket.steps_of(trace), at_socket.results(trace))]
        if not any(denied):
            return trace
        left = iter(denied)
        trace = with_steps(trace, lambda step: None if next(left) else step)


def together(some, rng):
    """(times, the traces with these times)"""
    every = [p for trace in some for limits in at_socket.policies_of(trace).values() for _, p in limits]
    times = [rng.choice(some).ticks[0][0]]
    while len(times) < max(len(trace.ticks) for trace in some):
        step = traces.random_step_us(rng, of_key(rng.choice(every), "a"), True, times[-1])
        now = times[-1] + max(-STEP_MAX_US, min(step, STEP_MAX_US))
        times.append(max(traces.earliest(every, [(before, ()) for before in times]), now))
    timed = [dataclasses.replace(trace, ticks=[(now, steps) for now, (_, steps) in zip(times, trace.ticks)]) for trace in some]
    return times, [without_denied(trace) for trace in timed]


LEASED = ("fixed_window", "first_hit", "calendar_window", "sliding_counter", "token_bucket")
DENYING = (*LEASED, "sliding_log", "leaky_bucket")


@dataclasses.dataclass
class BusyTrace(traces.Trace):
    is_leased: bool  # its checks of one time are one message, and each message waits for the answer to the one before


def of_busy(algorithm, seed, is_large, n_ticks=25):
    """Many checks of few keys at one time: of a large limit, which may be leased, or of a small one, whose denials are kept."""
    rng, limit = random.Random(f"busy {algorithm} {seed}"), 10_000 if is_large else 9
    name, window, calendar = f"busy-{algorithm}-{seed}", DAY_US, ()
    if algorithm == "calendar_window":
        calendar = ("year", "Europe/Berlin", 0)
        window = calendars.NOMINAL_US["year"]
    is_bucket = algorithm in traces.BUCKETS
    policy = Policy(algorithm, 1 if is_bucket else limit, window, limit if is_bucket else 0, calendar=calendar)
    ticks = []
    for _ in range(n_ticks):
        kinds = rng.choices(("check", "peek", "reset"), (970, 25, 5), k=rng.choice((1, 10, 40)))
        ticks.append((traces.START_US, [(f"{name}-{rng.choice('aaab')}", kind, 0 if kind == "reset" else rng.choice((1, 1, 1, 2, 3)), None)
                                        for kind in kinds]))
    return BusyTrace(seed, name, policy, ticks, is_large)


def config(some, more=""):
    """more: settings of each policy."""
    return "".join(f"{line}\n".replace(": {", f": {{{more}", 1) for trace in some for line in at_socket.config(trace))


# ---- a run ----

class Conversation(at_socket.Conversation):
    def __init__(self, client, maps, many, versions, is_leased):
        super().__init__(client, maps, many, versions)
        self.is_leased = is_leased

    def step(self, kind, asked, more):
        """Some wait for what was asked before, and what comes after waits for them: until a check_all has its answer other checks
        see what it has charged, and until a lease is known here they see its units as used."""
        is_alone = is_of_several(kind, asked) or (self.is_leased and kind != "check")
        if is_alone:
            self.take()
        super().step(kind, asked, more)
        if is_alone:
            self.take()

    def plain(self, answer, *about):
        if self.is_undecided(answer):
            return UNDECIDED
        answer = super().plain(answer, *about)
        if isinstance(answer, list):
            more = answer[-1] if isinstance(answer[-1], dict) else {}
            for one in (answer, *more.get("members", ())):
                one[SOURCE] = "memory" if one[SOURCE] in BY_REDIS else one[SOURCE]
        return answer

    @staticmethod
    def is_undecided(answer):
        if isinstance(answer, list):
            return answer[SOURCE] not in BY_REDIS + BY_DAEMON
        return isinstance(answer, str) or answer.get("source", "redis") not in BY_REDIS + BY_DAEMON


class Run:
    """.n: decisions that are the model's, .n_here: of these, by source, those that the daemon made itself; .n_ended: traces that ended
    early; .wrong: complaints."""

    def __init__(self, daemon, times, some, clock, daemon_clock):
        self.n = self.n_ended = 0
        self.n_here, self.wrong, began = Counter(), [], time.monotonic()
        with daemon.client() as client:
            versions = {policy["name"]: policy["version"] for policy in client.call("policies")}
        talks = [self._talk(daemon, trace, versions) for trace in some]
        steps = [iter(list(at_socket.steps_of(trace))) for trace in some]
        for tick, now in enumerate(times):
            set_clocks(now, clock, daemon_clock)
            self._ask(tick, [one for one in zip(talks, some, steps) if tick < len(one[1].ticks)])
        for one in talks:
            one.client.close()
        took_ms = (time.monotonic() - began) * 1000 + 1
        for one, trace in zip(talks, some):
            self._judge(trace, one.found, took_ms)

    @staticmethod
    def _talk(daemon, trace, versions):
        client, maps = daemon.client(timeout_s=60), trace.seed % 2 == 1
        client.call("hello", {"decision": "map" if maps else "array", "describe": True})
        is_leased = getattr(trace, "is_leased", False)
        return Conversation(client, maps, is_leased or trace.seed % 3 == 2, versions, is_leased)

    @staticmethod
    def _ask(tick, those):
        for one, trace, left in those:
            for _, *step in itertools.islice(left, len(trace.ticks[tick][1])):
                one.step(*step)
        for one, _, _ in those:
            one.send()
        for one, _, _ in those:
            one.receive()

    def _judge(self, trace, have, took_ms):
        want = at_socket.results(trace)
        if UNDECIDED in have:
            self.n_ended += 1
            end = have.index(UNDECIDED)
            want, have = want[:end], have[:end]
        for one, other in zip(want, have):
            if isinstance(other, list) and other[SOURCE] in BY_DAEMON:
                self.n_here[other[SOURCE]] += 1
                other[SOURCE] = one[SOURCE]
                for i in TIMES:
                    other[i] = one[i] if 0 <= one[i] - other[i] <= took_ms else other[i]
        at = comparison.first_difference(want, have)
        self.n += len(want) if at is None else at
        if at is not None:
            self.wrong.append(comparison.shown(trace, want, have, at))


def set_clocks(now, clock, daemon_clock):
    """The daemon's, whose calendars begin and end by it, is behind by one to two seconds, as it may be."""
    clock.us = now
    daemon_clock.step(now // SECOND_US - int(time.time()) - 2)
