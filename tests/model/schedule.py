"""schedule.py: the parts that all kinds of traces have in common, and their text for tests/replay/replay.c."""

import calendars


class Schedule:
    """A subclass has `ticks`, [(now_us, [step, ...]), ...], and defines header(), step_lines(*step), answers() and
    lines(answers), which are the answers in the format of the replay program."""

    def text(self, **options):
        """For the replay program. `options` are those of step_lines()."""
        yield from self.header()
        for now, steps in self.ticks:
            yield f"tick {now}"
            for step in steps:
                yield from self.step_lines(*step, **options)
            yield "end"

    def steps(self):
        return [(now, *step) for now, steps in self.ticks for step in steps]

    def expected(self):
        """The model's answers, in the format of the replay program."""
        return self.lines(self.answers())


def settings(policy):
    """A limit's line, after its algorithm."""
    window = policy.window_us
    if policy.calendar:
        unit, zone, week_start = policy.calendar
        first = "{:02d}-{:02d}".format(*week_start) if isinstance(week_start, tuple) else calendars.WEEKDAYS[week_start]
        window = f"{unit},{zone},{first}"
    return (f"{policy.limit} {window} {policy.burst} {int(policy.count_denied)} {policy.max_wait_us} "
            f"{int(policy.phase_head != '')}" + (f" penalty={','.join(map(str, policy.penalty))}" if policy.penalty else ""))


def policy_lines(name, limits, more=""):
    yield f"policy {name} {len(limits)}{more}"
    yield from (f"limit {limit} {p.algorithm} {settings(p)}" + (f" by={','.join(p.by)}" if p.by is not None else "")
                + (" counts=checks" if p.counts_checks else "")
                for limit, p in limits)


def override_lines(name, limits, overrides):
    """overrides: [(key, pattern or cidr/PART/NETWORK,..., [limit or 0 = the policy's own, for each of its limits]), ...]"""
    for keys, numbers in overrides:
        yield f"override {name} {keys} " + " ".join(str(n or "-") for _, n in zip(limits, numbers))


def asked_line(kind, asked, more=""):
    """A step: several policies, keys and amounts for `all`, else one."""
    if kind == "all":
        return f"all {len(asked)} " + " ".join(f"{name} {key} {amount}" for name, key, amount in asked) + more
    name, key, amount = asked[0]
    return f"{name} {key} {kind} {amount}{more}"
