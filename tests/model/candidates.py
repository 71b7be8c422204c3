"""candidates.py: random schedules for policies with a candidate, and its decisions. The enforced limits answer as if there were
no candidate. The candidate's limits are a separate model, which gets the same checks, each member of a check_all separately.
Only a whole daemon has candidates: at_socket.py replays these.
"""

import dataclasses
import random

from model import Several, combine
from schedule import settings
from steps import StepsTrace, make, random_limits

COUNTS = ("allowed", "denied", "candidate_allowed", "candidate_denied", "candidate_only_allowed", "candidate_only_denied")


@dataclasses.dataclass
class CandidateTrace(StepsTrace):
    candidate: dict = dataclasses.field(default_factory=dict)  # policy's name -> [(the limit's name, Policy), ...]

    def header(self):
        yield from (f"# candidate of {name}: {limit} {p.algorithm} {settings(p)}"
                    for name, limits in self.candidate.items() for limit, p in limits)
        yield from super().header()

    def counts(self, answers):
        """The expected result of `policies` at the end: a map of COUNTS for each policy. `answers`: of the enforced limits."""
        counts = {name: dict.fromkeys(COUNTS, 0) for name in self.policy}
        trial = StepsTrace(self.seed, self.candidate, self.keep_ms, [])
        model = Several()
        for (now, kind, asked, request), some in zip(self.steps(), answers):
            if kind == "reset":
                trial.step(model, now, kind, asked, 0)
            if kind not in ("check", "most", "all"):
                continue
            whole = all(answer["allowed"] for answer in some)
            for name, key, units in asked:
                own, some = some[:len(self.policy[name])], some[len(self.policy[name]):]
                count = counts[name]
                count["allowed" if whole else "denied"] += 1
                if units == 0:
                    continue
                decided = trial.step(model, now, "most" if kind == "most" else "check", [(name, key, units)], request)
                would, does = combine(decided)["allowed"], combine(own)["allowed"]
                count["candidate_allowed" if would else "candidate_denied"] += 1
                if would != does:
                    count["candidate_only_allowed" if would else "candidate_only_denied"] += 1
        return counts


def make_candidates(seed):
    """Like steps.make, but a check_all never has the id of another request."""
    rng = random.Random(f"candidate {seed}")
    plain = make(seed, name="candidate")
    known = {}

    def id_of(kind, asked, request):
        members = tuple((name, key) for name, key, _ in asked)
        return known.setdefault((members, request), 10 + len(known)) if request and kind == "all" else request

    ticks = [(now, [(kind, asked, id_of(kind, asked, request)) for kind, asked, request in steps]) for now, steps in plain.ticks]
    candidate = {name: [(f"c{i}", p) for i, (_, p) in enumerate(random_limits(rng, limits[0][1].window_us))]
                 for name, limits in plain.policy.items()}
    return CandidateTrace(seed, plain.policy, plain.keep_ms, ticks, candidate)
