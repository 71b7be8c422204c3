"""model.py: the reference model: each algorithm in plain Python, for a comparison with the C engine and the script.

Its author used only the definitions (lua/ALGORITHMS.md), not the C or the Lua code. Each algorithm keeps the most
obvious state (a list of charges, exact parts of a token) and one predicate, `admits`: may `cost` units be charged at `now`?
A search with that predicate finds every other field:

    remaining   the largest cost that would be admitted now
    retry       the smallest wait after which the same cost is admitted
    reset       the smallest wait after which a cost of the whole capacity is admitted

If the algorithm may delay, `admits` includes delayed charges, and a second predicate, `at_once`, finds the other fields:

    remaining   the largest cost that would be admitted now, at once
    delay       the smallest wait after which the same cost would have been admitted at once
    reset       the smallest wait after which a cost of the whole capacity is admitted at once

Time is integer microseconds since the epoch; durations in answers are milliseconds, rounded up.
"""

from __future__ import annotations

import copy
import dataclasses
from math import gcd

import calendars


@dataclasses.dataclass(frozen=True)
class Policy:
    algorithm: str  # a name of ALGORITHMS, native or a compat preset's name
    limit: int
    window_us: int
    burst: int = 0  # buckets only; 0 = limit
    count_denied: bool = False
    max_wait_us: int = 0  # leaky_bucket only
    calendar: tuple = ()  # calendar_window only: unit, zone, first day: of weeks (0 = monday), or (month, day)
    debt: bool = False  # settled reservations may charge up to twice the capacity
    merge_back: bool = False  # merges may
    phase_head: str = ""  # fixed_window with a phase only: the beginning of its keys in Redis, after the shard tag
    phase_us: int = 0  # and the phase of one key, computed from it
    counts_checks: bool = False  # a check takes one unit, whatever it costs
    by: tuple | None = None  # names of the parts of the key that it counts by; None: the whole key
    penalty: tuple = ()  # time, factor, max, forget, in ms; (): none


def takes_one(policy: Policy) -> bool:
    """Does a check take one of it at most, and nothing of that come back with the units of a reservation?"""
    return policy.counts_checks or policy.algorithm == "concurrency"


def cost_at(policy: Policy, cost: int) -> int:
    return min(cost, 1) if takes_one(policy) else cost


def least(holds, low: int, high: int) -> int:
    """The smallest x in [low, high] with holds(x); holds must be monotone and true at high."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


MS = 1000  # us


def ms(us: int) -> int:
    return -(-us // 1000)


class Algorithm:
    tick = 1  # us: the resolution of the algorithm's time

    pause = (0, 0)  # of its penalty: the level, and the end in ms
    begins = False  # the last decision has begun it

    def __init__(self, policy: Policy):
        self.policy = policy
        self.full = policy.limit
        self.charged = False  # by the last decision
        self.max_wait_us = policy.max_wait_us  # of the present check

    # An algorithm must define: see(now) brings the state to `now`, and returns whether to keep it although nothing is
    # charged (a clamp of a state from the future); admits(now, cost) is the predicate; charge(now, cost) books an admitted
    # (or counted) cost; horizon() bounds every wait. edges(now, cost) guesses the times at which an answer changes: a right
    # guess makes the search short, a wrong one only makes it longer.
    def see(self, now: int) -> bool: ...
    def admits(self, now: int, cost: int) -> bool: ...
    def charge(self, now: int, cost: int) -> None: ...
    def horizon(self) -> int: ...

    def edges(self, now: int, cost: int) -> tuple | list:
        return ()

    def obey(self, policy: Policy) -> None:
        """From now on, another limit: keys that share a counter may have different ones."""
        self.policy, self.full = policy, policy.limit

    # A penalty is a second predicate next to `admits`: no unit is admitted while its pause runs.

    def paused(self, now: int) -> bool:
        return now // MS < self.pause[1]

    def length_of_pause(self, level: int) -> int:
        time, factor, most, _ = self.policy.penalty
        return min(time * factor ** (level - 1), most)

    def remembers_pause(self, now: int) -> bool:
        return self.pause[0] > 0 and now // MS < self.pause[1] + self.policy.penalty[3]

    def see_pause(self, now: int) -> None:
        """A pause is never longer than one that begins now."""
        level, end = self.pause
        if level:
            self.pause = level, min(end, now // MS + self.length_of_pause(level))

    def begin_pause(self, now: int) -> None:
        level = self.pause[0] + 1 if self.remembers_pause(now) else 1
        self.pause = level, now // MS + self.length_of_pause(level)

    def fresh(self) -> "Algorithm":
        """No unit is charged; a pause goes on."""
        other = type(self)(self.policy)
        other.pause = self.pause
        return other

    # refund(now, units) gives back charged units, as many as the definition allows, and returns their number.
    def refund(self, now: int, units: int) -> int: ...

    def undo(self, now: int, units: int, made: int, level: int) -> int:
        """Takes back a charge of that moment as if it had not been; of a bucket with a level, see there."""
        return self.refund(now, units)

    def is_over(self, made: int) -> bool:
        """Does nothing that was charged at `made` count any more, because what it was charged to has ended?"""
        return False

    def __copy__(self) -> "Algorithm":
        """Like copy.copy, but in half the time: a search makes many copies."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def at_once(self, now: int, cost: int) -> bool:
        return self.admits(now, cost)

    def delay(self, now: int, cost: int) -> int:
        return 0

    def later(self, now: int) -> "Algorithm":
        """A copy in the state at `now`, without further charges."""
        other = self.__copy__()  # states are replaced, never changed in place
        other.see(now)
        return other

    def wait(self, now: int, cost: int, holds: str) -> int:
        """The smallest wait until the named predicate holds for `cost`; in us, but a multiple of 1 ms like answers."""
        def after(dt):
            at = now + dt * MS
            return not self.paused(at) and getattr(self.later(at), holds)(at, cost)

        end = self.pause[1] * MS
        longest = max(self.horizon(), end - now) // MS + 2
        guesses = [0, *sorted({min(max(0, ms(edge - now)), longest) for edge in (end, *self.edges(now, cost))}), longest]
        first = least(lambda i: after(guesses[i]), 0, len(guesses) - 1)
        low, high = guesses[first - 1] + 1 if first else 0, guesses[first]
        if low < high and not after(high - 1):
            return MS * high
        return MS * least(after, low, high)

    def step(self, now: int, kind: str, cost: int, max_wait_us: int | None = None) -> dict:
        now -= now % self.tick
        if kind == "reset":
            existed = self.exists() or self.remembers_pause(now)
            self.__dict__ = type(self)(self.policy).__dict__
            return {"removed": existed}
        self.see_pause(now)
        seen = copy.copy(self)
        if seen.see(now):
            self.__dict__ = dict(seen.__dict__)
        most = self.policy.max_wait_us
        seen.max_wait_us = most if max_wait_us is None else min(most, max_wait_us)
        answer = seen.decide(now, cost)
        if seen.charged and kind == "check":
            self.__dict__ = seen.__dict__
        elif seen.begins and kind == "check":
            self.pause = seen.pause
        return answer

    def length(self, now: int) -> int:
        """The length of the present window, in us; 0 without a window."""
        return self.policy.window_us

    def allows(self, now: int, cost: int) -> bool:
        return cost == 0 or (cost <= self.full and not self.paused(now) and self.admits(now, cost))

    def decide(self, now: int, cost: int, admitted: bool | None = None) -> dict:
        """`admitted`: the decision of all limits together, if there are several."""
        own = dict(quota=self.policy.limit, window=ms(self.length(now)), takes_one=takes_one(self.policy))
        if self.policy.limit == 0:
            denied = cost > 0
            return dict(allowed=not denied, limit=0, remaining=0, retry=-1 if denied else 0, reset=0, delay=0, **own,
                        own_reset=0, reason=None)
        self.begins = bool(self.policy.penalty) and cost > 0 and not self.paused(now) and not self.admits(now, 1)
        if self.begins:
            self.begin_pause(now)
        allowed = self.allows(now, cost)
        if admitted is None:
            admitted = allowed
        delay = ms(self.delay(now, cost)) if admitted else 0
        self.charged = cost > 0 and (admitted or self.policy.count_denied)
        if self.charged:
            self.charge(now, cost)
        # A limit that has counted the denial of another limit may now deny too.
        retry = 0
        if not admitted and not self.allows(now, cost):
            retry = -1 if cost > self.full else ms(self.wait(now, cost, "admits"))
        paused = self.paused(now)
        remaining = least(lambda n: paused or n > self.full or not self.at_once(now, n), 1, self.full + 1) - 1
        reset = ms(self.wait(now, self.full, "at_once"))
        return dict(allowed=allowed, limit=self.full, remaining=remaining, retry=retry, reset=reset, delay=delay, **own,
                    own_reset=reset, reason="penalty" if paused and not allowed else None)


class Bucket(Algorithm):
    """Token bucket, in the leaky form: missing tokens come back at limit / window. A token has as many parts as the
    window has microseconds, so that each microsecond brings back `limit` parts and nothing is ever rounded."""

    def __init__(self, policy):
        super().__init__(policy)
        self.full = policy.burst or policy.limit
        self.token = policy.window_us  # parts
        self.divisor = gcd(policy.limit, policy.window_us)  # parts in a unit of the stores' level
        self.brim = self.full * self.token
        self.deepest = self.brim * (2 if policy.debt or policy.merge_back else 1)
        self.level, self.at = 0, 0  # the missing parts, and the time of this state

    def obey(self, policy):
        """The time until it is full again stays; below a microsecond so do units, as far as the new rate has them."""
        ahead, units = divmod(self.level // self.divisor, self.policy.limit // self.divisor)
        at, level, pause = self.at, self.level, self.pause
        self.__dict__ = type(self)(policy).__dict__
        self.pause = pause
        rate = policy.limit // self.divisor
        self.at = at
        if level:
            self.level = (ahead * rate + min(units, rate - 1)) * self.divisor

    def see(self, now):
        level = max(0, self.level - (now - self.at) * self.policy.limit)
        # A clock that steps back makes the level seem higher, but a whole bucket is the most that can be missing.
        self.level, self.at = min(level, self.deepest), now
        return level > self.deepest

    def admits(self, now, cost):
        return self.level + cost * self.token <= self.brim

    def charge(self, now, cost):
        self.level += cost * self.token

    def refund(self, now, units):
        missing = -(-self.level // self.token)  # a unit that is partly refilled counts as one
        self.level = max(0, self.level - units * self.token)
        return min(units, missing)

    def undo(self, now, units, made, level):
        if level:  # nobody may have been charged since it was that, and only whole units come back
            as_then = self.level == level * self.divisor - (now - made) * self.policy.limit
            back = min(units, self.level // self.token) if as_then else 0
            self.level -= back * self.token
            return back
        # What has drained since then would have drained without the charge, too: it is not given back.
        parts = units * self.token - max(0, now - made) * self.policy.limit
        parts = min(max(0, parts), self.level)
        self.level -= parts
        return -(-parts // self.token)

    def horizon(self):
        return self.deepest // self.policy.limit + 2

    def edges(self, now, cost):
        above = self.level + cost * self.token - self.brim
        drained = -(-above // self.policy.limit)
        return self.at + drained, self.at + drained - self.max_wait_us

    def exists(self):
        return self.level > 0


class LeakyBucket(Bucket):
    """The bucket may overflow by the amount that drains within the wait. Charges above the brim are admitted with a delay."""

    def __init__(self, policy):
        super().__init__(policy)
        self.deepest += policy.max_wait_us * policy.limit  # for any wait of the present check

    def admits(self, now, cost):
        return self.level + cost * self.token <= self.brim + self.max_wait_us * self.policy.limit

    def at_once(self, now, cost):
        return self.level + cost * self.token <= self.brim

    def delay(self, now, cost):
        return self.wait(now, cost, "at_once") if self.policy.max_wait_us else 0  # without a wait, a level above the brim is a debt


class FixedWindow(Algorithm):
    """Counts in windows aligned to the epoch, or, with a phase, later by that phase."""

    tick = 1000

    def __init__(self, policy):
        super().__init__(policy)
        self.window, self.count = 0, 0

    def see(self, now):
        window = (now - self.policy.phase_us) // self.policy.window_us
        clamped = window < self.window
        if window != self.window:
            self.window, self.count = window, 0
        return clamped

    def admits(self, now, cost):
        return self.count + cost <= self.policy.limit

    def charge(self, now, cost):
        self.count += cost

    def refund(self, now, units):
        back = min(units, self.count)
        self.count -= back
        return back

    def is_over(self, made):
        return (made - self.policy.phase_us) // self.policy.window_us < self.window

    def horizon(self):
        return self.policy.window_us

    def edges(self, now, cost):
        return ((self.window + 1) * self.policy.window_us + self.policy.phase_us,)

    def exists(self):
        return self.count > 0


class FirstHit(Algorithm):
    """A window that starts with the first unit charged."""

    tick = 1000

    def __init__(self, policy):
        super().__init__(policy)
        self.end, self.count = None, 0

    def end_at(self, now):
        """The end of the window that a charge at `now` begins."""
        return now + self.policy.window_us

    def see(self, now):
        if self.end is None:
            return False
        clamped = self.end > self.end_at(now)
        self.end = min(self.end, self.end_at(now))
        if now >= self.end:
            self.end, self.count = None, 0
        return clamped

    def admits(self, now, cost):
        return self.count + cost <= self.policy.limit

    def charge(self, now, cost):
        if self.end is None:
            self.end = self.end_at(now)
        self.count += cost

    def refund(self, now, units):
        back = min(units, self.count)
        self.count -= back
        if self.count == 0:
            self.end = None
        return back

    def is_over(self, made):
        return self.end is None or made < self.end - self.policy.window_us

    def horizon(self):
        return self.policy.window_us

    def edges(self, now, cost):
        return () if self.end is None else (self.end,)

    def exists(self):
        return self.count > 0


class CalendarWindow(FirstHit):
    """A count that ends with the present hour, day, week, month or year of a time zone."""

    def end_at(self, now):
        return calendars.end_us(*self.policy.calendar, now)

    def see(self, now):
        if self.end is None:
            return False
        clamped = self.end > self.end_at(now)
        if clamped or now >= self.end:
            self.end, self.count = None, 0
        return clamped

    def is_over(self, made):
        return self.end is None or self.end_at(made) < self.end

    def length(self, now):
        return calendars.length_us(*self.policy.calendar, now)

    def horizon(self):
        return calendars.LONGEST_US[self.policy.calendar[0]]


class SlidingLog(Algorithm):
    """The time of every unit charged; those of the last window count."""

    def __init__(self, policy):
        super().__init__(policy)
        self.times = []

    def see(self, now):
        clamped = bool(self.times) and max(self.times) > now
        if clamped:
            self.times = [min(t, now) for t in self.times]
        return clamped

    def live(self, now):
        gone = now - self.policy.window_us
        return len([t for t in self.times if t > gone])

    def admits(self, now, cost):
        return self.live(now) + cost <= self.policy.limit

    def charge(self, now, cost):
        # Only the newest `limit` units can ever decide; where denials count, one more shows that some of them do.
        most = self.policy.limit + self.policy.count_denied
        self.times = (self.times + [now] * min(cost, most))[-most:]

    def gives_back(self, now):
        return not self.policy.count_denied or self.live(now) <= self.policy.limit

    def refund(self, now, units):
        back = min(units, self.live(now)) if self.gives_back(now) else 0
        self.times = self.times[:len(self.times) - back]
        return back

    def horizon(self):
        return self.policy.window_us

    def edges(self, now, cost):
        return [t + self.policy.window_us for t in self.times]

    def exists(self):
        return bool(self.times)


class SlidingCounter(Algorithm):
    """Counts of the present window and the previous one; it assumes that the units of the previous one came evenly."""

    tick = 1000

    def __init__(self, policy):
        super().__init__(policy)
        self.window, self.previous, self.count = 0, 0, 0

    def see(self, now):
        window = now // self.policy.window_us
        clamped = window < self.window
        if window == self.window + 1:
            self.previous, self.count = self.count, 0
        elif window > self.window:
            self.previous, self.count = 0, 0
        self.window = window
        return clamped

    def admits(self, now, cost):
        window = self.policy.window_us
        left = (self.window + 1) * window - now  # the part of the window that the previous one still overlaps
        return self.previous * left + (self.count + cost) * window <= self.policy.limit * window

    def charge(self, now, cost):
        self.count += cost

    def refund(self, now, units):
        back = min(units, self.count)
        self.count -= back
        return back

    def is_over(self, made):
        return made // self.policy.window_us < self.window

    def horizon(self):
        return 2 * self.policy.window_us

    def edges(self, now, cost):
        """The time at which the share of the previous window is small enough: in this window, or of this window in the next."""
        window, available = self.policy.window_us, self.policy.limit - cost
        end = (self.window + 1) * window
        in_this = end - (available - self.count) * window // self.previous if self.previous else end
        in_next = end + window - available * window // self.count if self.count else end
        return in_this, end, in_next

    def exists(self):
        return self.previous > 0 or self.count > 0


class Concurrency(Algorithm):
    """A number of slots at once: each counts until its lease ends, and can be renewed until another slot takes its place."""

    tick = 1000
    slot = None  # the slot that charge() takes

    def __init__(self, policy):
        super().__init__(policy)
        self.ends = {}  # slot -> end of its lease

    def see(self, now):
        last = now + self.policy.window_us
        clamped = bool(self.ends) and max(self.ends.values()) > last
        if clamped:
            self.ends = {slot: min(end, last) for slot, end in self.ends.items()}
        return clamped

    def admits(self, now, cost):
        return len([end for end in self.ends.values() if end > now]) + cost <= self.policy.limit

    def charge(self, now, cost):
        kept = {slot: end for slot, end in self.ends.items() if end > now}
        self.ends = {**kept, self.slot: now + self.policy.window_us}

    def horizon(self):
        return self.policy.window_us

    def edges(self, now, cost):
        return self.ends.values()

    def exists(self):
        return bool(self.ends)

    def length(self, now):
        return 0

    def release(self):
        found = self.slot in self.ends
        self.ends = {slot: end for slot, end in self.ends.items() if slot != self.slot}
        return found

    def renew(self, now):
        found = self.slot in self.ends
        if found:
            self.ends = {**self.ends, self.slot: now - now % self.tick + self.policy.window_us}
        return found


# The presets for existing limiters, on a forward clock only: their windows end by Redis' clock.


class CompatWindowStart(FixedWindow):
    """INCR of a key that contains the window's number; denied requests count."""

    def __init__(self, policy):
        super().__init__(dataclasses.replace(policy, count_denied=True))


class CompatRlaasFixed(CompatWindowStart):
    pass


class CompatRlaasSliding(SlidingLog):
    """A ZSET of milliseconds; denied requests are not recorded."""

    tick = 1000


class CompatFirstHit(FirstHit):
    """INCR with an expiry set once; denied requests do not count."""


class CompatEndpointWindow(FirstHit):
    """INCR that stops at limit + 1: only the first denied request counts."""

    def __init__(self, policy):
        super().__init__(dataclasses.replace(policy, count_denied=True))

    def charge(self, now, cost):
        if self.count <= self.policy.limit:
            super().charge(now, cost)


class CompatEndpointLog(SlidingLog):
    """A ZSET of milliseconds in which denied requests are recorded too."""

    tick = 1000

    def __init__(self, policy):
        super().__init__(dataclasses.replace(policy, count_denied=True))


ALGORITHMS = {
    "token_bucket": Bucket,
    "fixed_window": FixedWindow,
    "first_hit": FirstHit,
    "sliding_log": SlidingLog,
    "sliding_counter": SlidingCounter,
    "leaky_bucket": LeakyBucket,
    "calendar_window": CalendarWindow,
    "concurrency": Concurrency,
    "window-start-millis": CompatWindowStart,
    "rlaas-fixed": CompatRlaasFixed,
    "rlaas-sliding": CompatRlaasSliding,
    "first-hit": CompatFirstHit,
    "endpoint-window": CompatEndpointWindow,
    "endpoint-log": CompatEndpointLog,
}


def of_key(policy: Policy, key) -> Policy:
    """The policy for one key: with the phase of that key, in whole milliseconds."""
    if not policy.phase_head:
        return policy
    fnv1a = 14695981039346656037
    for byte in (policy.phase_head + key).encode():
        fnv1a = (fnv1a ^ byte) * 1099511628211 % 2**64
    return dataclasses.replace(policy, phase_us=fnv1a % (policy.window_us // 1000) * 1000)


class Model:
    """All keys of one policy."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.keys = {}

    def step(self, now: int, key, kind: str, cost: int, max_wait_us: int | None = None) -> dict:
        cost = cost_at(self.policy, cost)
        if key not in self.keys:
            self.keys[key] = ALGORITHMS[self.policy.algorithm](of_key(self.policy, key))
        algorithm = self.keys[key]
        return algorithm.step(now, kind, cost, max_wait_us)


def longest_first(answer):
    return -answer["retry"] if answer["retry"] >= 0 else float("-inf")


SPOKEN_OF = ("limit", "quota", "window", "own_reset")  # come from one limit, `of`


def combine(answers: list, by_units: bool = True) -> dict:
    """Combines the answers of several limits, with the index of the limit that bound it, and of the one that it describes.
    `by_units`: `remaining` is the largest cost that is admitted, so that a limit of which a check takes one counts only if nothing
    of it is left, or if all are such limits."""
    of_units = [i for i, a in enumerate(answers) if not by_units or not a.get("takes_one") or a["remaining"] == 0]
    least = min(of_units or range(len(answers)), key=lambda i: answers[i]["remaining"])
    whole = {
        "allowed": all(a["allowed"] for a in answers),
        "remaining": answers[least]["remaining"],
        "retry": min(answers, key=longest_first)["retry"],
        "delay": 0,
        "bound_by": None,
        "reason": None,
    }
    denying = [i for i, a in enumerate(answers) if not a["allowed"]]
    if not denying:
        return whole | {"of": least, "reset": max(a["reset"] for a in answers), "delay": max(a["delay"] for a in answers),
                        **{name: answers[least][name] for name in SPOKEN_OF}}
    bound = min(denying, key=lambda i: longest_first(answers[i]))
    return whole | {"of": bound, "reset": max(answers[bound]["reset"], whole["retry"]), "bound_by": bound,
                    "reason": answers[bound]["reason"], **{name: answers[bound][name] for name in SPOKEN_OF}}


def answer_text(answer: dict, granted: int) -> str:
    """In the format of tests/replay."""
    retry = 0 if answer["allowed"] else answer["retry"]
    return (f"{int(answer['allowed'])} {answer['limit']} {answer['remaining']} {retry} {answer['reset']} {answer['delay']} "
            f"{granted} of {answer['quota']} {answer['window']} {answer['own_reset']}" + f" {answer['reason']}" * bool(answer["reason"]))


class Several:
    """All keys of several limits: a step charges all its members, or none."""

    def __init__(self):
        self.states = {}
        self.remembered = {}  # name -> (until, answers)

    def states_of(self, members: list) -> list:
        states = []
        for name, policy, key, _ in members:
            policy = of_key(policy, key)
            state = self.states.setdefault((name, key), ALGORITHMS[policy.algorithm](policy))
            if state.policy.limit != policy.limit:
                state.obey(policy)
            states.append(state)
        return states

    def refund(self, now: int, members: list) -> list:
        """Each limit's own answer, with the units that it gave back."""
        answers = []
        for state, (*_, units) in zip(self.states_of(members), members):
            at = now - now % state.tick
            state.see_pause(now)
            seen = copy.copy(state)
            clamped = seen.see(at)
            back = seen.refund(at, units)
            answers.append(copy.copy(seen).decide(at, 0) | {"refunded": back})
            if clamped or back:  # a state that equals a fresh one must not come back when the clock steps back
                state.__dict__ = seen.__dict__ if seen.exists() else state.fresh().__dict__
        return answers

    def largest(self, now: int, members: list, most: int) -> int:
        """The largest cost up to `most` that is admitted, or 1."""
        copies = [(s.later(now - now % s.tick), now - now % s.tick) for s in self.states_of(members)]
        for state, _ in copies:
            state.max_wait_us = state.policy.max_wait_us
        return least(lambda n: n > most or not all(s.allows(at, n) for s, at in copies), 2, most + 1) - 1

    def once(self, now: int, name, keep_us: int, decide) -> list:
        """decide() -> answers. If they charged anything, the same answers are returned for keep_us."""
        until, answers = self.remembered.get(name, (0, []))
        if now < until:
            return answers
        answers = decide()
        if all(a["allowed"] for a in answers) and any(a["granted"] > 0 for a in answers):
            self.remembered[name] = now + keep_us, answers
        return answers

    def step(self, now: int, kind: str, members: list) -> list:
        """members: (name of the limit, its Policy, key, cost), no limit and key twice. Returns the answer of each one."""
        states = self.states_of(members)
        if kind == "reset":
            return [state.step(now, kind, 0) for state in states]
        members = [(name, policy, key, cost_at(policy, cost)) for name, policy, key, cost in members]
        times, copies = [now - now % state.tick for state in states], []
        for state, at in zip(states, times):
            state.see_pause(now)
            seen = copy.copy(state)
            if seen.see(at):
                state.__dict__ = dict(seen.__dict__)
            seen.max_wait_us = state.policy.max_wait_us
            copies.append(seen)
        admitted = all(c.allows(at, cost) for c, at, (*_, cost) in zip(copies, times, members))
        answers = [c.decide(at, cost, admitted) for c, at, (*_, cost) in zip(copies, times, members)]
        for state, seen in zip(states, copies):
            if seen.charged and kind == "check":
                state.__dict__ = seen.__dict__
            elif seen.begins and kind == "check":
                state.pause = seen.pause
        return answers


class Slots(Several):
    """The same with slots of concurrency limits."""

    def act(self, now: int, kind: str, limits: list, what) -> list:
        """limits: (name of the limit, its Policy, key). what: the slot, or a peek's cost. Returns the answer of each one."""
        cost = {"acquire": 1, "peek": what}.get(kind, 0)
        slotted = []
        for name, policy, key in limits:
            state = self.states.setdefault((name, key), ALGORITHMS[policy.algorithm](policy))
            if isinstance(state, Concurrency):
                state.slot = what
                slotted.append(state)
        if kind == "release":
            return [state.release() for state in slotted]
        if kind == "renew":
            return [state.renew(now) for state in slotted]
        answers = self.step(now, "check" if kind == "acquire" else kind, [(*limit, cost) for limit in limits])
        return [{**answer, "cost": cost_at(policy, cost)} for answer, (_, policy, _) in zip(answers, limits)]
