"""slot_traces.py: random schedules of slots (taken, given back, renewed, left to end), from a seed, for
tests/replay/replay.c, and the answers of the model. The policies have one or two concurrency limits, alone or with others."""

import dataclasses
import random

from model import Policy, Slots, combine, answer_text
from schedule import Schedule, policy_lines
from traces import NATIVE, START_US, earliest, random_policy, random_step_us

TTLS_US = (1_000_000, 1_001_000, 10_000_000, 43_200_000_000)
OTHERS = [name for name in NATIVE if name != "calendar_window"]  # limits next to those of slots


@dataclasses.dataclass
class SlotTrace(Schedule):
    seed: int
    policy: dict  # name -> [(the limit's name or -, Policy), ...]
    ticks: list  # (now_us, [(kind, policy's name, key, a slot's name, or a peek's cost), ...])

    def header(self):
        for name, limits in self.policy.items():
            yield from policy_lines(name, limits)

    def step_lines(self, kind, name, key, what):
        yield f"{name} {key} {kind} {what}" if kind in ("peek", "reset") else f"slot {kind} {name} {key} {what}"

    def step(self, model, now, kind, name, key, what):
        return model.act(now, kind, [(f"{name}/{limit}", policy, key) for limit, policy in self.policy[name]], what)

    def answers(self):
        model = Slots()
        return [self.step(model, *step) for step in self.steps()]

    def answers_of_a_connection(self):
        """The answers through the socket: only the daemon renews a slot, as long as its connection lives, and under --test-clock at
        every new time, before anything else happens. None for the renewals of the trace."""
        model, held, last, answers = Slots(), {}, None, []
        for step in self.steps():
            now, kind, name, key, what = step
            for slot in list(held) if now != last else ():
                if not all(self.step(model, now, "renew", *held[slot], slot)):
                    del held[slot]
            last = now
            answers.append(None if kind == "renew" else self.step(model, now, kind, name, key, what))
            if kind == "acquire" and all(answer["allowed"] for answer in answers[-1]):
                held[what] = name, key
            if kind == "release":
                answers[-1] = [held.pop(what, None) is not None and all(answers[-1])]
        return answers

    def lines(self, answers):
        return [self.line(kind, some) for (_, kind, *_), some in zip(self.steps(), answers)]

    @staticmethod
    def line(kind, answers):
        if kind == "reset":
            return f"removed {int(any(a['removed'] for a in answers))}"
        if kind in ("release", "renew"):
            return f"found {int(all(answers))}"
        whole = combine(answers, by_units=kind != "acquire")
        bound = "-" if whole["bound_by"] is None or len(answers) == 1 else f"l{whole['bound_by']}"
        granted = max(answer["cost"] for answer in answers) if whole["allowed"] else 0
        return f"{answer_text(whole, granted)} {bound}"


def random_limits(rng):
    """One or two concurrency limits, with others."""
    def slots():
        return Policy("concurrency", rng.choice((1, 1, 2, 3, 7)), rng.choice(TTLS_US))

    n_others = rng.choice((0, 0, 1, 2))
    limits = [slots() for _ in range(rng.choice((1, 1, 1, 2)))]
    limits += [dataclasses.replace(random_policy(rng, rng.choice(OTHERS)), window_us=limits[0].window_us)
               for _ in range(n_others)]
    rng.shuffle(limits)
    return [("-" if len(limits) == 1 else f"l{i}", p) for i, p in enumerate(limits)]


def make_slots(seed, n_steps=100, backwards=True):
    rng = random.Random(f"slots {seed}")
    policies = {f"slots-{seed}-{i}": random_limits(rng) for i in range(rng.choice((1, 1, 2)))}
    every = [p for limits in policies.values() for _, p in limits]
    of_slots = [p for p in every if p.algorithm == "concurrency"]
    now, ticks, left, given = START_US + rng.randint(0, 20_000_000), [], n_steps, [("none", "a", "s0")]

    def step():
        name, key = rng.choice(sorted(policies)), rng.choice("aab")
        kind = rng.choices(("acquire", "release", "renew", "peek", "reset"), (56, 15, 15, 12, 2))[0]
        if kind == "acquire":
            given.append((name, key, f"s{len(given)}"))
            return kind, *given[-1]
        if kind in ("release", "renew"):
            # Mostly one of the newest, with its own key or with another one, where it is unknown.
            of = rng.choice(given[-6:] if rng.random() < 0.8 else given)
            return kind, of[0] if of[0] in policies else name, of[1], of[2]
        return kind, name, key, rng.choice((0, 1, 1, 100)) if kind == "peek" else 0

    while left > 0:
        n = min(left, rng.choice((1, 1, 2, 3, 8, 20)))
        ticks.append((now, [step() for _ in range(n)]))
        now = max(earliest(every, ticks), now + random_step_us(rng, rng.choice(of_slots), backwards, now))
        left -= n
    return SlotTrace(seed, policies, ticks)
