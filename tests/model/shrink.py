"""shrink.py: a shorter and plainer trace that still fails. The shrinking is Hypothesis'.

A trace is read as a row of decisions: is this turn there, is this step, how large is this number? Taken as they are,
they give the trace itself; that row is what Hypothesis begins with (as an example it remembers), and then it drops turns
and steps and lowers numbers for as long as the trace still fails. It looks at nothing but the shape (lists, tuples,
numbers), so a new kind of step or a new setting of a policy is shrunk without a word here.
"""

import contextlib
import copy
import dataclasses
import time

from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes

from traces import START_US

SECONDS = 20  # then the best so far will do
KEY = b"the failing trace"


class Recorder:
    """Draws what is there already, and remembers it."""

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
    """Lets Hypothesis choose. What `part` builds is dropped or simplified as one."""

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
        return dataclasses.replace(value, **{field.name: varied(source, getattr(value, field.name))
                                             for field in dataclasses.fields(value)})
    return value


def varied_element(source, element):
    return [varied(source, element)] if source.flag() else []


def varied_turn(source, passed, steps):
    """How long after the turn before, and the steps that are left of it."""
    passed = varied(source, passed)
    return passed, varied(source, steps) if source.flag() else []


def varied_trace(source, trace):
    turns, now, before = [], START_US, START_US
    for at, steps in trace.turns:
        passed, kept = source.part(lambda s, p=at - before, k=steps: varied_turn(s, p, k))
        now, before = now + passed, at
        if kept:
            turns.append((now, kept))
    policy = varied(source, trace.policy)
    other = copy.copy(trace)
    other.policy, other.turns = policy, turns
    return other


class Enough(BaseException):
    """The time is over; not an Exception, which Hypothesis would take for one more failure."""


class Search:
    """Remembers what was tried, and the plainest trace that fails."""

    def __init__(self, fails, seconds):
        self.fails, self.until = fails, time.monotonic() + seconds
        self.known, self.least, self.size = {}, None, None

    def __call__(self, candidate):
        try:
            text = "\n".join(candidate.text())
            if text not in self.known:
                if self.least and time.monotonic() > self.until:
                    raise Enough
                self.known[text] = bool(candidate.turns) and bool(self.fails(candidate))
        except (ArithmeticError, LookupError, ValueError):
            return False  # no schedule any more: a window of 0, a check of no policy
        size = (len(candidate.steps()), len(text))
        if self.known[text] and (self.least is None or size < self.size):
            self.least, self.size = candidate, size
        return self.known[text]


def first_steps(trace, n):
    """The trace as far as its nth step."""
    turns = []
    for now, steps in trace.turns:
        if n > 0:
            turns.append((now, steps[:n]))
        n -= len(steps)
    other = copy.copy(trace)
    other.turns = turns
    return other


def shrunk(trace, fails, seconds=SECONDS):
    """The simplest trace found for which fails(trace) is true; `trace` itself is one."""
    recorder = Recorder()
    varied_trace(recorder, trace)
    database = InMemoryExampleDatabase()
    # One choice more than are read: of an example that fits exactly Hypothesis believes that it was shrunk before.
    database.save(KEY, choices_to_bytes([*recorder.choices, False]))
    search = Search(fails, seconds)
    with contextlib.suppress(Enough):
        find(built(lambda source: varied_trace(source, trace)), search, database_key=KEY,
             settings=settings(database=database, phases=[Phase.reuse, Phase.shrink], max_examples=10_000, deadline=None))
    return search.least
