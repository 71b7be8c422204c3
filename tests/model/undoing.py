"""undoing.py: random schedules in which charges are taken back as if they had not been (a check over several places that is
denied), or from a bucket only where its level says that nobody was charged since (units of a lease), mixed with the steps of
steps.py. Only a store can be asked for this."""

import copy
import dataclasses
import random

from model import Bucket, Several, SlidingLog
from schedule import asked_line
import steps
from traces import random_cost


def undo(model, now, members, made, level):
    """Each limit's answer, with the units that it gave back. `members` as in Several."""
    answers = []
    for state, (*_, units) in zip(model.states_of(members), members):
        at, then = now - now % state.tick, made - made % state.tick
        state.see_pause(now)
        seen, newer, back = copy.copy(state), [], 0
        clamped = seen.see(at)
        if isinstance(seen, SlidingLog):
            newer = [t for t in seen.times if t > then]
            seen.times = [t for t in seen.times if t <= then]
            units = units if state.later(at).gives_back(at) else 0
        if not seen.is_over(then):
            back = seen.undo(at, units, then, level)
        if newer:
            seen.times = seen.times + newer
        answers.append(copy.copy(seen).decide(at, 0) | {"refunded": back, "granted": 0})
        if clamped or back:
            state.__dict__ = seen.__dict__ if seen.exists() else state.fresh().__dict__
    return answers


class UndoTrace(steps.StepsTrace):
    """A step of kind "undo" has the time of the charge and the bucket's level then, or 0, in the place of a request id."""

    def step_lines(self, kind, asked, request):
        if kind != "undo":
            yield from super().step_lines(kind, asked, request)
            return
        yield asked_line(kind, asked, " {} {}".format(*request))

    def step(self, model, now, kind, asked, request):
        if kind != "undo":
            return super().step(model, now, kind, asked, request)
        return undo(model, now, [(f"{name}/{limit}", policy, key, n)
                                 for name, key, n in asked for limit, policy in self.policy[name]], *request)

    def line(self, kind, asked, answers):
        text = super().line(kind, asked, answers)
        return f"{text} refunded {max(a['refunded'] for a in answers)}" if kind == "undo" else text


def level_of(model, trace, now, name, key):
    """Of one of the policy's buckets, in the stores' unit; 0 if it has none."""
    states = [model.states[f"{name}/{limit}", key] for limit, _ in trace.policy[name]]
    return max((state.later(now).level // state.divisor for state in states if isinstance(state, Bucket)), default=0)


def make(seed):
    base, rng = steps.make(seed, name="undoing"), random.Random(f"undo {seed}")
    trace = UndoTrace(**{**{f.name: getattr(base, f.name) for f in dataclasses.fields(base)}, "ticks": []})
    model, charged = Several(), []
    for now, some in base.ticks:
        made = []
        for step in some:
            kind, asked, _ = step
            made.append(step)
            trace.step(model, now, *step)
            if kind in ("check", "all"):
                charged += [(now, one, level_of(model, trace, now, *one[:2])) for one in asked]
            if charged and rng.random() < 0.4:
                at, (name, key, cost), level = rng.choice(charged[-rng.choice((1, 2, 8)):])
                cost = rng.choice((cost, random_cost(rng, rng.choice(base.policy[name])[1])))
                when = rng.choice(((at, 0), (at, 0), (at - 1, 0), (at + 1, 0), (now, 0), *[(at, level)] * 4, (at, level + 1)))
                made.append(("undo", [(name, key, max(1, cost))], when))
                trace.step(model, now, *made[-1])
        trace.ticks.append((now, made))
    return trace
