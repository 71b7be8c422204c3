"""shrink.py: finds a shorter and simpler trace that still fails, with Hypothesis.

This module turns a trace into a sequence of choices: is this tick there, is this step there, how large is this number? The
original choices give the trace itself, and Hypothesis starts with them (as a remembered example). Then it drops ticks and
steps and lowers numbers, as long as the trace still fails. It uses only the shape (lists, tuples, numbers), so new kinds of
steps and new settings need no change here.
"""

import contextlib
import copy
import dataclasses
import time

from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes

from traces import START_US

SECONDS = 20  # then the best trace so far is the result
KEY = b"the failing trace"


class Recorder:
    """Chooses the original values, and records the choices."""

    def __init__(self):
        self.choices = []

    def flag(self):
        self.choices.append(True)
        return True

    def number(self, value, low, high):
        self.choices.append(value)
        return value

    def part(self, build):
        return build(self)


class Drawer:
    """Lets Hypothesis choose. It drops or simplifies the result of `part` as a unit."""

    def __init__(self, draw):
        self.draw = draw

    def flag(self):
        return self.draw(st.booleans())

    def number(self, value, low, high):
        return self.draw(st.integers(low, high))

    def part(self, build):
        return self.draw(built(build))


@st.composite
def built(draw, build):
    return build(Drawer(draw))


def varied(source, value):
    """`value` with every number in it drawn between 0 and itself, and every element of a list kept or not."""
    if isinstance(value, bool):
        return value and source.flag()
    if isinstance(value, int):
        grain = 1000 if value % 1000 == 0 else 1  # whole milliseconds stay whole: some windows must be
        return source.number(value // grain, min(0, value // grain), max(0, value // grain)) * grain if value else 0
    if isinstance(value, list):
        return [kept for element in value for kept in source.part(lambda s, e=element: varied_element(s, e))]
    if isinstance(value, tuple):
        return tuple(varied(source, element) for element in value)
    if isinstance(value, dict):
        return {name: varied(source, element) for name, element in value.items()}
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(value, **{field.name: varied_field(source, field.name, getattr(value, field.name))
                                             for field in dataclasses.fields(value)})
    return value


def varied_field(source, name, value):
    """The numbers of a penalty bound each other: it stays, or goes."""
    return (value if source.flag() else ()) if name == "penalty" and value else varied(source, value)


def varied_element(source, element):
    return [varied(source, element)] if source.flag() else []


def varied_tick(source, passed, steps):
    """The time after the previous tick, and the remaining steps."""
    passed = varied(source, passed)
    return passed, varied(source, steps) if source.flag() else []


def varied_trace(source, trace):
    ticks, now, before = [], START_US, START_US
    for at, steps in trace.ticks:
        passed, kept = source.part(lambda s, p=at - before, k=steps: varied_tick(s, p, k))
        now, before = now + passed, at
        if kept:
            ticks.append((now, kept))
    policy = varied(source, trace.policy)
    other = copy.copy(trace)
    other.policy, other.ticks = policy, ticks
    return other


class Enough(BaseException):
    """The time is over. Not an Exception: Hypothesis would treat it as another failure."""


class Search:
    """Remembers the tried traces, and the simplest one that fails."""

    def __init__(self, fails, seconds):
        self.fails, self.until = fails, time.monotonic() + seconds
        self.known, self.least, self.size = {}, None, None

    def __call__(self, candidate):
        try:
            text = "\n".join(candidate.text())
            if text not in self.known:
                if self.least and time.monotonic() > self.until:
                    raise Enough
                self.known[text] = bool(candidate.ticks) and bool(self.fails(candidate))
        except (ArithmeticError, LookupError, ValueError):
            return False  # not a valid schedule: a window of 0, a check without a policy
        size = (len(candidate.steps()), len(text))
        if self.known[text] and (self.least is None or size < self.size):
            self.least, self.size = candidate, size
        return self.known[text]


def first_steps(trace, n):
    """The first n steps of the trace."""
    ticks = []
    for now, steps in trace.ticks:
        if n > 0:
            ticks.append((now, steps[:n]))
        n -= len(steps)
    other = copy.copy(trace)
    other.ticks = ticks
    return other


def shrunk(trace, fails, seconds=SECONDS):
    """The simplest trace that was found with fails(trace); `trace` itself must fail."""
    recorder = Recorder()
    varied_trace(recorder, trace)
    database = InMemoryExampleDatabase()
    # One additional choice: Hypothesis assumes that an example of exactly the right length was shrunk before.
    database.save(KEY, choices_to_bytes([*recorder.choices, False]))
    search = Search(fails, seconds)
    with contextlib.suppress(Enough):
        find(built(lambda source: varied_trace(source, trace)), search, database_key=KEY,
             settings=settings(database=database, phases=[Phase.reuse, Phase.shrink], max_examples=10_000, deadline=None))
    return search.least
