"""undoing.py: random schedules in which charges are taken back as if they had not been (a check over several places that is
denied), mixed with the steps of steps.py. Only a store can be asked for this."""

import copy
import dataclasses
import random

from model import SlidingLog
from schedule import asked_line
import steps
from traces import random_cost


def undo(model, now, members, made):
    """Each limit's answer, with the units that it gave back. `members` as in Several."""
    answers = []
    for state, (*_, units) in zip(model.states_of(members), members):
        at, then = now - now % state.tick, made - made % state.tick
        seen, newer, back = copy.copy(state), [], 0
        clamped = seen.see(at)
        if isinstance(seen, SlidingLog):
            newer = [t for t in seen.times if t > then]
            seen.times = [t for t in seen.times if t <= then]
            units = units if state.later(at).gives_back(at) else 0
        if not seen.is_over(then):
            back = seen.undo(at, units, then)
        if newer:
            seen.times = seen.times + newer
        answers.append(copy.copy(seen).decide(at, 0) | {"refunded": back, "granted": 0})
        if clamped or back:
            state.__dict__ = seen.__dict__ if seen.exists() else type(state)(state.policy).__dict__
    return answers


class UndoTrace(steps.StepsTrace):
    """A step of kind "undo" has the time of the charge in the place of a request id."""

    def step_lines(self, kind, asked, request):
        if kind != "undo":
            yield from super().step_lines(kind, asked, request)
            return
        yield asked_line(kind, asked, f" {request}")

    def step(self, model, now, kind, asked, request):
        if kind != "undo":
            return super().step(model, now, kind, asked, request)
        return undo(model, now, [(f"{name}/{limit}", policy, key, n)
                                 for name, key, n in asked for limit, policy in self.policy[name]], request)

    def line(self, kind, asked, answers):
        text = super().line(kind, asked, answers)
        return f"{text} refunded {max(a['refunded'] for a in answers)}" if kind == "undo" else text


def make(seed):
    base, rng = steps.make(seed, name="undoing"), random.Random(f"undo {seed}")
    charged, ticks = [], []
    for now, some in base.ticks:
        made = []
        for step in some:
            kind, asked, _ = step
            made.append(step)
            if kind in ("check", "all"):
                charged += [(now, one) for one in asked]
            if charged and rng.random() < 0.4:
                at, (name, key, cost) = rng.choice(charged[-8:])
                cost = rng.choice((cost, random_cost(rng, rng.choice(base.policy[name])[1])))
                made.append(("undo", [(name, key, max(1, cost))], rng.choice((at, at, at, at - 1, at + 1, now))))
        ticks.append((now, made))
    return UndoTrace(**{**{f.name: getattr(base, f.name) for f in dataclasses.fields(base)}, "ticks": ticks})
