"""steps.py: random schedules with request ids, at_most and refunds, mixed with plain checks, peeks and resets of the same
keys."""

import dataclasses
import random

from model import Several, combine, answer_text, cost_at, takes_one
from schedule import Schedule, asked_line, policy_lines
from traces import NATIVE, START_US, earliest, random_cost, random_policy, random_step_us, some_count_checks

KINDS = ("check", "most", "refund", "all", "peek", "reset")
WEIGHTS = (40, 20, 15, 15, 8, 2)


def refund(model, now, members):
    """The answers to a refund of a policy, whose name is of units, and of the only limit."""
    members = [(*limit, 0 if takes_one(limit[1]) and not limit[0].endswith("/-") else n) for *limit, n in members]
    return [answer | {"granted": 0} for answer in model.refund(now, members)]


def with_most(model, now, members, most):
    """The members with the largest cost that is admitted, up to `most`."""
    n = model.largest(now, members, most)
    return [(*member[:3], n) for member in members]


@dataclasses.dataclass
class StepsTrace(Schedule):
    seed: int
    policy: dict  # name -> [(the limit's name or -, Policy), ...]
    keep_ms: int  # how long a request id is remembered
    ticks: list  # (now_us, [(kind, [(policy's name, key, amount), ...], request id, 0 = none), ...])

    def header(self):
        for name, limits in self.policy.items():
            yield from policy_lines(name, limits)

    def step_lines(self, kind, asked, request):
        yield asked_line(kind, asked, f" id={request} keep={self.keep_ms}" if request else "")

    def answers(self):
        model = Several()
        return [self.step(model, *step) for step in self.steps()]

    def lines(self, answers):
        return [self.line(kind, asked, some) for (_, kind, asked, _), some in zip(self.steps(), answers)]

    def step(self, model, now, kind, asked, request):
        members = [(f"{name}/{limit}", policy, key, n)
                   for name, key, n in asked for limit, policy in self.policy[name]]
        if kind == "reset":
            return model.step(now, kind, members)
        if kind == "refund":
            return refund(model, now, members)

        def decide():
            some = with_most(model, now, members, asked[0][2]) if kind == "most" else members
            answers = model.step(now, "peek" if kind == "peek" else "check", some)
            admitted = all(a["allowed"] for a in answers)
            return [a | {"granted": cost_at(policy, cost) if admitted else 0} for a, (_, policy, _, cost) in zip(answers, some)]

        if not request or kind == "peek":
            return decide()
        name = tuple((name, key) for name, key, _ in asked), request
        return model.once(now, name, self.keep_ms * 1000, decide)

    def line(self, kind, asked, answers):
        if kind == "reset":
            return f"removed {int(any(a['removed'] for a in answers))}"
        limits = [(name, limit) for name, _, _ in asked for limit, _ in self.policy[name]]
        whole, bound = combine(answers, by_units=kind != "all"), "-"
        if whole["bound_by"] is not None and (len(limits) > 1 or kind == "all"):
            name, limit = limits[whole["bound_by"]]
            bound = limit if kind != "all" else name if limit == "-" else f"{name}/{limit}"
        granted = answers[0]["granted"] if kind == "all" else max(a["granted"] for a in answers)
        text = f"{answer_text(whole, granted if whole['allowed'] else 0)} {bound}"
        if kind == "refund":
            text += f" refunded {max(a['refunded'] for a in answers)}"
        if kind == "all":
            for answer in answers:
                text += f" | {answer_text(answer, answer['granted'])}"
        return text


def random_asked(rng, policies, kind):
    names, asked, left = sorted(policies), {}, 16
    for _ in range(rng.randint(1, 3) if kind == "all" else 1):
        name, key = rng.choice(names), rng.choice("aab")
        if len(policies[name]) > left:
            continue
        left -= 0 if (name, key) in asked else len(policies[name])
        amount = 0 if kind == "reset" else random_cost(rng, rng.choice(policies[name])[1])
        asked[name, key] = max(1, amount) if kind in ("most", "refund") else amount
    return [(name, key, amount) for (name, key), amount in asked.items()]


def random_limits(rng, window):
    """Limits with windows of similar length: otherwise one limit decides everything."""
    limits = [random_policy(rng, rng.choice(NATIVE)) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    limits = [dataclasses.replace(p, window_us=window * rng.choice((1, 1, 2, 7))) for p in limits]
    return [("-" if len(limits) == 1 else f"l{j}", p) for j, p in enumerate(limits)]


def make(seed, n_steps=60, backwards=True, name="steps"):
    rng = random.Random(f"{name} {seed}")
    policies = {f"{name}-{seed}-{i}": random_limits(rng, rng.choice((1000, 1_000_000, 10_000_000)))
                for i in range(rng.randint(1, 3))}
    counting = random.Random(f"counts {seed}")
    policies = {each: some_count_checks(counting, limits) for each, limits in policies.items()}
    every = [p for limits in policies.values() for _, p in limits]
    now, ticks, left = START_US + rng.randint(0, 20_000_000), [], n_steps
    while left > 0:
        n = min(left, rng.choice((1, 2, 3, 8, 12)))
        kinds = rng.choices(KINDS, WEIGHTS, k=n)
        kinds = [(kind, random_asked(rng, policies, kind)) for kind in kinds]
        # No number of units fits a limit that counts checks.
        kinds = [("check" if kind == "most" and any(takes_one(p) for _, p in policies[asked[0][0]]) else kind, asked)
                 for kind, asked in kinds]
        ticks.append((now, [(kind, asked, rng.choice((0, 0, 1, 2, 3)) if kind in ("check", "most", "all") else 0)
                            for kind, asked in kinds]))
        now = max(earliest(every, ticks), now + random_step_us(rng, rng.choice(every), backwards, now))
        left -= n
    return StepsTrace(seed, policies, rng.choice((1, 1000, 5000, 60_000)), ticks)
