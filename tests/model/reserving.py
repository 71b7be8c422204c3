"""reserving.py: a plain model of reserve, settle and cancel, and random schedules of them, some with slots.

A policy and key has a list of reservations, each with its units, the time of the charge and its end. Every op on the policy
and key first gives back the units of ended reservations. On Redis a plain check does not do this, so the text for a server
has a sweep before each check.
"""

import copy
import dataclasses
import random
from dataclasses import dataclass

import calendars
import slot_traces
import steps
import traces
from model import Concurrency, Policy, Several, SlidingLog, least, of_key, takes_one
from schedule import asked_line, policy_lines

GRACE_MS = 60_000
DAY_MS = 86_400_000  # the longest reservation


@dataclass
class Reservation:
    id: int
    units: int
    made: int  # us
    end: int  # ms; of a settled one, the time until its tombstone is forgotten
    settled: bool = False


def give_back(state, now, units, made):
    """Those of the units charged at `made` that still count in the state."""
    at, made = now - now % state.tick, made - made % state.tick
    seen, newer, back = copy.copy(state), [], 0
    clamped = seen.see(at)
    if isinstance(seen, SlidingLog) and not seen.gives_back(at):
        units = 0
    if isinstance(seen, SlidingLog):
        newer = [t for t in seen.times if t > made]
        seen.times = [t for t in seen.times if t <= made]
    if not seen.is_over(made):
        back = seen.refund(at, units)
    if newer:
        seen.times = seen.times + newer
    if back or clamped:
        state.__dict__ = seen.__dict__ if seen.exists() else state.fresh().__dict__
    return back


def slot_of(id_):
    return f"of {id_}"


class Reserving(Several):
    """Several limits of several policies, with reservations."""

    def __init__(self, policies, formats):
        super().__init__()
        self.policies, self.formats = policies, formats
        self.reservations = {}  # (policy's name, key) -> [Reservation, ...]
        self.ever_reserved = set()  # ids
        self.merges = {}  # a counter -> {id: when it is forgotten, ms}

    def members(self, name, key, cost):
        return [(f"{name}/{limit}", policy, traces.id_of(policy, self.formats.get(name), key), cost)
                for limit, policy in self.policies[name]]

    def give_back(self, now, name, key, units, made):
        states = [state for state in self.states_of(self.members(name, key, 0)) if not takes_one(state.policy)]
        return max((give_back(state, now, units, made) for state in states), default=0)

    def slots(self, name, key, slot):
        """The states of the policy's limits of slots, about to act on that one."""
        states = [state for state in self.states_of(self.members(name, key, 0)) if isinstance(state, Concurrency)]
        for state in states:
            state.slot = slot
        return states

    def end_slot(self, name, key, id_):
        for state in self.slots(name, key, slot_of(id_)):
            state.release()

    def add(self, name, key, reservation):
        self.reservations[name, key].append(reservation)
        self.ever_reserved.add(reservation.id)

    def take_ended(self, now, name, key):
        reservations = self.reservations.setdefault((name, key), [])
        for reservation in [r for r in reservations if r.end <= now // 1000]:
            reservations.remove(reservation)
            if not reservation.settled:
                self.end_slot(name, key, reservation.id)
                self.give_back(now, name, key, reservation.units, reservation.made)

    def charge_used(self, now, name, key, units, is_merge=False):
        """Charge as many of the units as fit into every limit, or its debt. Returns their number."""
        states = self.states_of(self.members(name, key, 0))
        if not is_merge:
            states = [state for state in states if not takes_one(state.policy)]
        units = units if states else 0
        seen = [(state.later(at := now - now % state.tick), at) for state in states]

        def fit(n):  # a debt adds the whole capacity once more
            return all(state.admits(at, n - state.full * (state.policy.debt or is_merge)) for state, at in seen)

        most = least(lambda n: n > units or not fit(n), 1, units + 1) - 1
        for state, (later, at) in zip(states, seen):
            if most > 0:
                later.charge(at, most)
                state.__dict__ = later.__dict__
        return most

    def settle(self, now, name, key, reservation, actual):
        """(refunded, charged, ended) for a Reservation in its original form."""
        self.end_slot(name, key, reservation.id)
        reservations = self.reservations.setdefault((name, key), [])
        found = next((r for r in reservations if r.id == reservation.id), None)
        if found is not None and found.settled or reservation.end + GRACE_MS <= now // 1000:
            return 0, 0, True
        latest = now // 1000 + DAY_MS
        if found is None and reservation.end > latest:  # the clock stepped back, and it is forgotten
            return 0, 0, True
        held = found.units if found else 0
        refunded = charged = 0
        if actual >= held:
            charged = self.charge_used(now, name, key, actual - held)
        else:
            refunded = self.give_back(now, name, key, held - actual, found.made)
        if found:
            reservations.remove(found)
        reservations.append(Reservation(reservation.id, 0, 0, min(reservation.end, latest) + GRACE_MS, True))
        return refunded, charged, found is None

    def merge(self, now, name, key, id_, end, units):
        """(refunded, charged, ended) where units that were admitted elsewhere are charged to the policy's one limit."""
        counter = self.members(name, key, 0)[0]
        known = self.merges.setdefault((counter[0], counter[2]), {})
        for each in [each for each, until in known.items() if until <= now // 1000]:
            del known[each]
        latest = now // 1000 + DAY_MS
        if id_ in known or end + GRACE_MS <= now // 1000 or end > latest:
            return 0, 0, True
        known[id_] = end + GRACE_MS
        return 0, self.charge_used(now, name, key, units, is_merge=True), True


@dataclass
class ReservingTrace(traces.SeveralTrace):
    """Like SeveralTrace, with the kinds reserve: asked[0], then (id, ttl_ms); settle: asked[0] with the used units, then (id, 0);
    merge: asked[0], then (id, ttl_ms), of a policy with one limit; the first of an id says when it was drawn. acquire: asked[0] with
    1, then (the slot's name, 0). most, refund: as in steps.py, for a daemon alone."""

    is_renewed = True  # by a daemon that has the time of the trace

    def text_for_server(self):
        """A plain check in Redis does not look for ended reservations, so a sweep comes before it."""
        return self.text(sweeping=True)

    def header(self):
        for name, limits in self.policy.items():
            if len({p.debt for _, p in limits}) > 1:
                raise ValueError("debt is the whole policy's")
            flags = "".join(f" {flag}" for flag in ("debt", "merge_back") if getattr(limits[0][1], flag))
            yield from policy_lines(name, limits, f" {self.formats.get(name, '-')}{flags}")

    def step_lines(self, kind, asked, more, sweeping=False):
        if sweeping and kind in ("check", "peek", "all", "acquire"):
            yield from (f"{name} {key} sweep 0" for name, key, _ in asked)
        if kind == "acquire":
            yield "slot acquire {} {} {}".format(*asked[0][:2], more[0])
            return
        yield asked_line(kind, asked, f" {more[0]} {more[1]}" if more and kind != "all" else "")

    def answers(self, of_admitted=False):
        """The limits' answers to each step; for a settlement followed by (refunded, charged, ended, more than reserved?).
        `of_admitted`: a denied reservation has no token to settle; None for it."""
        model, made, drawn, answers = Reserving(self.policy, self.formats), {}, {}, []
        held, last = {}, None  # of the daemon: the slots that it renews at every new time
        for now, kind, asked, more in self.steps():
            name, key, cost = asked[0]
            for slot in list(held) if of_admitted and self.is_renewed and now != last else ():
                if not all([state.renew(now) for state in model.slots(*held[slot], slot)]):
                    del held[slot]
            last = now
            if kind == "settle" and of_admitted and more[0] not in model.ever_reserved:
                answers.append(None)
                continue
            if kind == "merge":
                end = drawn.setdefault(more[0], now // 1000 + more[1])
                merged = model.merge(now, name, key, more[0], end, cost)
                answers.append([*model.step(now, "peek", model.members(name, key, 0)), (*merged, False)])
                continue
            if kind != "reset":
                for one in asked:
                    model.take_ended(now, *one[:2])
            if kind == "settle":
                refunded, charged, ended = model.settle(now, name, key, made[more[0]], cost)
                held.pop(slot_of(more[0]), None)
                settled = refunded, charged, ended, cost > (0 if ended else made[more[0]].units)
                answers.append([*model.step(now, "peek", model.members(name, key, 0)), settled])
                continue
            slot = slot_of(more[0]) if kind == "reserve" else more[0] if kind == "acquire" else None
            slots = model.slots(name, key, slot)
            as_kind = "check" if kind in ("all", "reserve", "acquire", "most") else kind
            members = self.members(kind, asked)
            if kind == "refund":
                answers.append(steps.refund(model, now, members))
                continue
            if kind == "most":
                members = steps.with_most(model, now, members, cost)
            answers.append(model.step(now, as_kind, members))
            if kind == "most":
                answers[-1] = [answer | {"granted": members[0][3] if answer["allowed"] else 0} for answer in answers[-1]]
            if slot and slots and cost > 0 and all(answer["allowed"] for answer in answers[-1]):
                held[slot] = name, key
            if kind == "reserve":
                has_units = any(not takes_one(p) for _, p in self.policy[name])
                made[more[0]] = Reservation(more[0], cost if has_units else min(cost, 1), now, now // 1000 + more[1])
                if all(answer["allowed"] for answer in answers[-1]):
                    model.add(name, key, made[more[0]])
        return answers

    def lines(self, answers):
        lines = []
        for (_, kind, asked, _), some in zip(self.steps(), answers):
            if kind in ("settle", "merge"):
                *some, (refunded, charged, ended, _) = some
                asked = [(name, key, 0) for name, key, _ in asked]
            lines.append(self.line(kind, self.members(kind, asked), some))
            if kind in ("settle", "merge"):
                lines[-1] += f" | {refunded} {charged} {int(ended)}"
        return lines


def random_ttl_ms(rng, policy):
    window = max(1, policy.window_us // 1000)
    return min(86_400_000, rng.choice((1, 10, 1000, 60_000, window, max(1, window // 2), 2 * window + 1, 86_400_000)))


def random_policies(rng, seed, merging):
    policies, formats = {}, {}
    for i in range(rng.randint(1, 2)):
        n, debt = 1 if merging else rng.choice((1, 1, 1, 2, 3)), rng.random() < 0.5
        window = rng.choice((1000, 1_000_000, 10_000_000, 3_600_000_000))
        limits = [traces.random_policy(rng, rng.choice(traces.NATIVE)) for _ in range(n)]
        limits = [dataclasses.replace(p, max_wait_us=0, debt=debt, merge_back=merging, phase_head="",
                                      window_us=p.window_us if p.calendar else window * rng.choice((1, 1, 2, 7)))
                  for p in limits]
        if seed % 4 == 3:
            formats[f"reserving-{seed}-{i}"] = "{t}:{u}"
            limits = [dataclasses.replace(p, by=rng.choice((None, (), ("t",)))) for p in limits]
        named = [("-" if n == 1 else f"l{j}", p) for j, p in enumerate(limits)]
        policies[f"reserving-{seed}-{i}"] = traces.some_count_checks(random.Random(f"counts {seed} {i}"), named)
    return policies, formats


def make_admitting(seed, n_steps=60, backwards=True):
    """Policies with slots, which a reserve takes with its units: some by acquire, too. No daemon renews them in a store's trace."""
    rng = random.Random(f"admitting {seed}")
    policies = {}
    for i in range(rng.randint(1, 2)):
        window, debt, n = rng.choice((1_000_000, 10_000_000, 3_600_000_000)), rng.random() < 0.5, rng.choice((0, 1, 2, 3))
        limits = [traces.random_policy(rng, rng.choice(traces.NATIVE)) for _ in range(n)]
        limits = [dataclasses.replace(p, max_wait_us=0, phase_head="",
                                      window_us=p.window_us if p.calendar else window * rng.choice((1, 1, 2, 7))) for p in limits]
        limits.insert(rng.randint(0, n), Policy("concurrency", rng.choice((1, 1, 2, 3, 7)), rng.choice(slot_traces.TTLS_US)))
        named = [("-" if n == 0 else f"l{j}", dataclasses.replace(p, debt=debt)) for j, p in enumerate(limits)]
        policies[f"admitting-{seed}-{i}"] = [(name, p if p.algorithm != "concurrency" else dataclasses.replace(p, counts_checks=False))
                                             for name, p in traces.some_count_checks(rng, named)]
    every = [p for limits in policies.values() for _, p in limits]
    now, ticks, left, made, n_slots = traces.START_US + rng.randint(0, 20_000_000), [], n_steps, [], 0
    while left > 0:
        n, steps = min(left, rng.choice((1, 1, 2, 3, 8))), []
        for kind in rng.choices(("reserve", "settle", "peek", "acquire", "reset"), (45, 35, 12, 6, 2), k=n):
            name, key = rng.choice(sorted(policies)), rng.choice("aab")
            cost, more = traces.random_cost(rng, rng.choice(policies[name])[1]), None
            if kind == "settle" and not made:
                kind = "reserve"
            if kind == "reserve":
                more = (seed * 1000 + len(made), random_ttl_ms(rng, rng.choice(every)))
                made.append(((name, key, cost), more[0], now // 1000 + more[1]))
            elif kind == "settle":
                (name, key, cost), number, _ = rng.choice(made[-4:]) if rng.random() < 0.8 else rng.choice(made)
                cost = rng.choice((0, 0, cost, max(0, cost - 1), cost + 1, rng.randint(0, 3 * cost + 3), 10**6))
                more = (number, 0)
            elif kind == "acquire":
                n_slots += 1
                cost, more = 1, (f"s{n_slots}", 0)
            steps.append((kind, [(name, key, 0 if kind == "reset" else cost)], more))
        ticks.append((now, steps))
        now = max(traces.earliest(every, ticks), now + random_step_us(rng, every, made, backwards, now))
        now = min(now, traces.LAST_US)
        left -= n
    return ReservingTrace(seed, policies, ticks)


MERGES_FROM = 100  # of the ids of a seed, of which the replay program keeps 256


def random_merge(rng, seed, every, merges, asked):
    """A new one of that policy and key, or one that was lost, with as many units or fewer."""
    if merges and rng.random() < 0.4:
        (name, key, units), more = rng.choice(merges[-4:])
        return [(name, key, rng.choice((units, units, rng.randint(1, units))))], more
    name, key, cost = asked[0]
    merged = (name, key, rng.choice((max(1, cost), rng.randint(1, 3 * cost + 3), 10**6)))
    merges.append((merged, (seed * 1000 + MERGES_FROM + len(merges), random_ttl_ms(rng, rng.choice(every)))))
    return [merged], merges[-1][1]


def make(seed, n_steps=60, backwards=True, merging=False):
    rng = random.Random(f"{'merging' if merging else 'reserving'} {seed}")
    policies, formats = random_policies(rng, seed, merging)
    kinds, weights, merges = ("check", "all", "peek", "reset", "reserve", "settle", "merge"), (25, 8, 8, 1, 30, 28, 0), []
    if merging:
        weights = (25, 8, 8, 1, 12, 12, 30)
    every = [p for limits in policies.values() for _, p in limits]
    now, ticks, left, made = traces.START_US + rng.randint(0, 20_000_000), [], n_steps, []
    zones = [p.calendar[1] for p in every if p.calendar]
    if zones:
        now = calendars.hard_moment_us(rng, rng.choice(zones), False) - rng.randint(0, 7_200_000_000)
    while left > 0:
        n, steps = min(left, rng.choice((1, 1, 2, 3, 8))), []
        for kind in rng.choices(kinds, weights, k=n):
            if kind == "settle" and not made:
                kind = "reserve"
            asked, more = traces.random_asked(rng, policies, kind, formats), None
            if not asked:
                continue
            if kind == "merge":
                asked, more = random_merge(rng, seed, every, merges, asked)
            if kind == "reserve":
                more = (seed * 1000 + len(made), random_ttl_ms(rng, rng.choice(every)))
                made.append((asked[0], more[0], now // 1000 + more[1]))
            elif kind == "settle":
                (name, key, cost), number, _ = rng.choice(made[-4:]) if rng.random() < 0.8 else rng.choice(made)
                used = rng.choice((0, 0, cost, max(0, cost - 1), cost + 1, rng.randint(0, 3 * cost + 3), 10**6))
                asked, more = [(name, key, used)], (number, 0)
            steps.append((kind, asked, more))
        ticks.append((now, steps))
        now = max(traces.earliest(every, ticks), now + random_step_us(rng, every, made, backwards, now))
        now = min(now, traces.LAST_US)
        left -= n
    return ReservingTrace(seed, policies, ticks, formats)


def random_step_us(rng, every, made, backwards, now):
    if made and rng.random() < 0.3:
        *_, end = rng.choice(made[-6:])
        wait = (end + rng.choice((0, 0, GRACE_MS))) * 1000 - now + rng.choice((-1, 0, 0, 1))
        if 0 <= wait < 10**9:
            return wait
    return traces.random_step_us(rng, of_key(rng.choice(every), "a"), backwards, now)
