"""traces.py: random schedules of checks, from a seed, in the format that tests/judge/judge.c reads; and what the model
says to them."""

import dataclasses
import random

from model import Model, Policy

START_US = 4_000_000_000_000_000  # in the future, so that no key's expiry has passed

NATIVE = ("token_bucket", "fixed_window", "first_hit", "sliding_log", "sliding_counter", "leaky_bucket")
BUCKETS = ("token_bucket", "leaky_bucket")
COMPAT = ("window-start-millis", "rlaas-fixed", "rlaas-sliding", "first-hit", "endpoint-window", "endpoint-log")
COUNTS_DENIED = ("fixed_window", "first_hit", "sliding_log")
WINDOWS_US = (1, 7, 1000, 7000, 997_000, 999_983, 1_000_000, 10_000_000, 3_600_000_000, 86_400_000_000)
LIMITS = (1, 2, 3, 5, 7, 10, 30)


@dataclasses.dataclass
class Trace:
    seed: int
    name: str  # the policy's
    policy: Policy
    turns: list  # (now_us, [(key, kind, cost, max_wait_us or None), ...])

    def text(self):
        """For the judge."""
        policy = self.policy
        yield f"policy {self.name} 1"
        name = f"compat:{policy.algorithm}" if policy.algorithm in COMPAT else policy.algorithm
        yield (f"limit - {name} {policy.limit} {policy.window_us} {policy.burst} "
               f"{int(policy.count_denied)} {policy.max_wait_us}")
        for now, steps in self.turns:
            yield f"turn {now}"
            for key, kind, cost, max_wait_us in steps:
                yield f"{self.name} {key} {kind} {cost}" + (f" {max_wait_us}" if max_wait_us is not None else "")
            yield "end"

    def steps(self):
        return [(now, *step) for now, steps in self.turns for step in steps]

    def expected(self):
        """The model's answer to each step, as the judge prints it."""
        model = Model(self.policy)
        return [line(model.step(now, key, kind, cost, max_wait_us), kind, cost)
                for now, key, kind, cost, max_wait_us in self.steps()]


def line(answer, kind, cost):
    if kind == "reset":
        return f"removed {int(answer['removed'])}"
    granted = cost if answer["allowed"] else 0
    return (f"{int(answer['allowed'])} {answer['limit']} {answer['remaining']} {answer['retry']} {answer['reset']} "
            f"{answer['delay']} {granted} -")


def random_policy(rng, algorithm):
    if algorithm in COMPAT:
        return Policy(algorithm, rng.choice(LIMITS), rng.choice([w for w in WINDOWS_US if w % 1_000_000 == 0]))
    windows = [w for w in WINDOWS_US if algorithm in (*BUCKETS, "sliding_log") or w % 1000 == 0]
    limit = rng.choice(LIMITS)
    burst = rng.choice((0, 0, 1, limit, 2 * limit, rng.randint(1, 40))) if algorithm in BUCKETS else 0
    window = rng.choice(windows)
    max_wait = 0
    if algorithm == "leaky_bucket":
        max_wait = rng.choice((0, 1, 1000, window // limit, window, 3 * window, rng.randint(0, 2 * window)))
    return Policy(algorithm, limit, window, burst, algorithm in COUNTS_DENIED and rng.random() < 0.3, max_wait)


def random_step_us(rng, policy, backwards, now):
    window = policy.window_us
    to_edge = -now % window
    if backwards and rng.random() < 0.06:
        return -rng.choice((1, 1000, rng.randint(0, window), rng.randint(0, 3 * window)))
    return rng.choice((0, 0, 1, 1000, window // policy.limit, rng.randint(0, window // policy.limit),
                       rng.randint(0, window), window - 1, window, window + 1, 2 * window,
                       to_edge, max(0, to_edge - 1000)))


def random_cost(rng, policy):
    if policy.algorithm in COMPAT:
        return rng.choice((1, 1, 1, 1, 0))
    full = policy.burst or policy.limit
    return rng.choice((1, 1, 1, 1, 2, 3, 0, full, full + 1, rng.randint(1, 2 * full)))


def random_max_wait(rng, policy, kind):
    """A check's own wait, in whole milliseconds as on the wire, or None for the policy's."""
    if policy.max_wait_us == 0 or kind != "check" or rng.random() < 0.7:
        return None
    most = policy.max_wait_us
    return rng.choice((0, 1000, most // 2, most - 1, most, 2 * most, rng.randint(0, most))) // 1000 * 1000


def make(algorithm, seed, n_steps=100, backwards=True):
    rng = random.Random(f"{algorithm} {seed}")
    policy = random_policy(rng, algorithm)
    # Anywhere against the windows' edges.
    now, turns, left = START_US + rng.randint(0, 2 * policy.window_us), [], n_steps
    while left > 0:
        n = min(left, rng.choice((1, 1, 2, 3, 8)))
        kinds = rng.choices(("check", "peek", "reset"), (90, 8, 2), k=n)
        keys = [f"{algorithm}-{seed}-{rng.choice('aab')}" for _ in kinds]  # compat keys do not name their policy
        steps = [(key, kind, random_cost(rng, policy) if kind != "reset" else 0, random_max_wait(rng, policy, kind))
                 for key, kind in zip(keys, kinds)]
        turns.append((now, steps))
        now = max(START_US, now + random_step_us(rng, policy, backwards, now))
        left -= n
    return Trace(seed, f"{algorithm}-{seed}", policy, turns)
