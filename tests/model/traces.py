"""traces.py: random schedules of checks, from a seed, in the input format of tests/replay/replay.c, and the answers of the
model."""

import dataclasses
import fnmatch
import functools
import ipaddress
import random
import re

import calendars
from model import ALGORITHMS, Model, Policy, Several, combine, cost_at, of_key, answer_text
from schedule import Schedule, asked_line, override_lines, policy_lines, settings

START_US = 4_000_000_000_000_000  # in the future, so that no key has expired

LAST_US = 8_900_000_000_000_000  # below 2^53

BUCKETS = ("token_bucket", "leaky_bucket")
COMPAT = ("window-start-millis", "rlaas-fixed", "rlaas-sliding", "first-hit", "endpoint-window", "endpoint-log")
NATIVE = tuple(name for name in ALGORITHMS if name not in (*COMPAT, "concurrency"))
COUNTS_DENIED = ("fixed_window", "first_hit", "sliding_log")
WINDOWS_US = (1, 7, 1000, 7000, 997_000, 999_983, 1_000_000, 10_000_000, 3_600_000_000, 86_400_000_000)
LIMITS = (1, 2, 3, 5, 7, 10, 30)


class BadTrace(Exception):
    """A schedule that is impossible with a daemon."""


@dataclasses.dataclass
class Trace(Schedule):
    seed: int
    name: str  # the policy's
    policy: Policy
    ticks: list  # (now_us, [(key, kind, cost, max_wait_us or None), ...])

    def header(self):
        policy = self.policy
        yield f"policy {self.name} 1"
        name = f"compat:{policy.algorithm}" if policy.algorithm in COMPAT else policy.algorithm
        yield f"limit - {name} {settings(policy)}"

    def step_lines(self, key, kind, cost, max_wait_us):
        yield f"{self.name} {key} {kind} {cost}" + (f" {max_wait_us}" if max_wait_us is not None else "")

    def answers(self):
        """The model's answer to each step, in a list: the form for several limits, with one limit."""
        model = Model(self.policy)
        return [[model.step(now, key, kind, cost, max_wait_us)] for now, key, kind, cost, max_wait_us in self.steps()]

    def lines(self, answers):
        """The answers in the format of the replay program."""
        return [line(answer, kind, cost) for (_, _, kind, cost, _), (answer,) in zip(self.steps(), answers)]


def line(answer, kind, cost):
    if kind == "reset":
        return f"removed {int(answer['removed'])}"
    return f"{answer_text(answer, cost if answer['allowed'] else 0)} -"


def random_policy(rng, algorithm):
    if algorithm in COMPAT:
        return Policy(algorithm, rng.choice(LIMITS), rng.choice([w for w in WINDOWS_US if w % 1_000_000 == 0]))
    if algorithm == "calendar_window":
        calendar = (rng.choice(calendars.UNITS), rng.choice(calendars.ZONES), rng.randrange(7))
        if calendar[0] in ("month", "year") and rng.random() < 0.6:
            calendar = (*calendar[:2], rng.choice(((1, 31), (2, 29), (3, 1), (4, 30), (6, 15), (9, 29), (12, 31))))
        return Policy(algorithm, rng.choice(LIMITS), calendars.NOMINAL_US[calendar[0]], calendar=calendar)
    windows = [w for w in WINDOWS_US if w % ALGORITHMS[algorithm].tick == 0]
    limit = rng.choice(LIMITS)
    burst = rng.choice((0, 0, 1, limit, 2 * limit, rng.randint(1, 40))) if algorithm in BUCKETS else 0
    window = rng.choice(windows)
    max_wait = 0
    if algorithm == "leaky_bucket":
        max_wait = rng.choice((0, 1, 1000, window // limit, window, 3 * window, rng.randint(0, 2 * window)))
    return Policy(algorithm, limit, window, burst, algorithm in COUNTS_DENIED and rng.random() < 0.3, max_wait)


def some_count_checks(rng, limits):
    """The same limits, some of which count checks; rarely the only one does."""
    often = 0.4 if len(limits) > 1 else 0.1
    return [(name, dataclasses.replace(p, counts_checks=True) if rng.random() < often else p) for name, p in limits]


def random_step_us(rng, policy, backwards, now):
    window = policy.window_us
    to_edge = (policy.phase_us - now) % window
    if policy.calendar:
        to_edge = calendars.end_us(*policy.calendar, now) - now
    if backwards and rng.random() < 0.06:
        return -rng.choice((1, 1000, rng.randint(0, window), rng.randint(0, 3 * window)))
    return rng.choice((0, 0, 1, 1000, window // policy.limit, rng.randint(0, window // policy.limit),
                       rng.randint(0, window), window - 1, window, window + 1, 2 * window,
                       to_edge, max(0, to_edge - 1000)))


def earliest(policies, ticks):
    """The first moment at which a trace may go on. Redis has 16 bits of a fixed window's number: to a clock that has stepped
    back over half of them, a later window is an old one, which a peek does not delete (lua/ALGORITHMS.md)."""
    reach = min((32_766 * p.window_us for p in policies if p.algorithm == "fixed_window"), default=LAST_US)
    return max(START_US, max(now for now, _ in ticks) - reach)


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


def make(algorithm, seed, n_steps=100, backwards=True, past=False):
    """`past`: calendar windows in past years. Only a store without its own clock can replay them."""
    rng = random.Random(f"{algorithm} {seed}")
    policy = random_policy(rng, algorithm)
    if algorithm == "fixed_window" and seed % 3 == 2:
        policy = dataclasses.replace(policy, phase_head=f"fw1:{algorithm}-{seed}:")
    # At any distance from the windows' edges.
    now, ticks, left = START_US + rng.randint(0, 2 * policy.window_us), [], n_steps
    earliest = START_US
    if policy.calendar:
        earliest = 0 if past else START_US
        now = calendars.hard_moment_us(rng, policy.calendar[1], past) - rng.randint(0, 3 * policy.window_us)
        now = max(earliest, now)
    while left > 0:
        n = min(left, rng.choice((1, 1, 2, 3, 8)))
        kinds = rng.choices(("check", "peek", "reset"), (90, 8, 2), k=n)
        keys = [f"{algorithm}-{seed}-{rng.choice('aab')}" for _ in kinds]  # compat keys do not name their policy
        steps = [(key, kind, random_cost(rng, policy) if kind != "reset" else 0, random_max_wait(rng, policy, kind))
                 for key, kind in zip(keys, kinds)]
        ticks.append((now, steps))
        step = random_step_us(rng, of_key(policy, f"{algorithm}-{seed}-a"), backwards, now)
        now = min(max(earliest, now + step), LAST_US)
        left -= n
    return Trace(seed, f"{algorithm}-{seed}", policy, ticks)


@dataclasses.dataclass
class SeveralTrace(Schedule):
    """Policies of several limits, and steps that ask for several policies at once. A policy's keys may have parts."""

    seed: int
    policy: dict  # name -> [(the limit's name or -, Policy), ...]
    ticks: list  # (now_us, [(kind, [(policy's name, key, cost), ...]), ...]); kind all: several of them, else one
    formats: dict = dataclasses.field(default_factory=dict)  # name -> key_format, where the policy has one
    overrides: dict = dataclasses.field(default_factory=dict)  # name -> those of override_lines()

    def header(self):
        for name, limits in self.policy.items():
            yield from policy_lines(name, limits, f" {self.formats.get(name, '')}".rstrip())
            yield from override_lines(name, limits, self.overrides.get(name, ()))

    def step_lines(self, kind, asked):
        yield asked_line(kind, asked)

    def members(self, kind, asked):
        return [(f"{name}/{limit}", policy, id_of(policy, self.formats.get(name), key), cost)
                for name, key, cost in asked for limit, policy in self.limits_of(name, key)
                if kind != "reset" or is_own(policy, self.formats.get(name))]

    def limits_of(self, name, key):
        """Those of the policy, with the numbers of its most specific override: the key itself, or else the longest network, or
        else the pattern with the most other characters than *."""
        def specific(override):
            literal = 0 if longest(override) >= 0 else len(override[0].replace("*", ""))
            return override[0] == key, longest(override), literal

        def longest(override):
            return longest_network(override[0], self.formats.get(name), key)

        own = [o for o in self.overrides.get(name, ()) if longest(o) >= 0 or fnmatch.fnmatchcase(key, o[0])]
        if not own:
            return self.policy[name]
        _, numbers = max(own, key=specific)  # of several alike the first
        return [(limit, dataclasses.replace(policy, limit=n) if n else policy)
                for (limit, policy), n in zip(self.policy[name], numbers)]

    def answers(self):
        """The model's answers to each step: one for each limit."""
        model = Several()
        return [model.step(now, "check" if kind == "all" else kind, self.members(kind, asked))
                for now, kind, asked in self.steps()]

    def lines(self, answers):
        return [self.line(kind, self.members(kind, asked), some) for (_, kind, asked), some in zip(self.steps(), answers)]

    def line(self, kind, members, answers):
        if kind == "reset":
            return f"removed {int(any(a['removed'] for a in answers))}"
        whole, bound = combine(answers, by_units=kind not in ("all", "acquire")), "-"
        if whole["bound_by"] is not None:
            name, limit = members[whole["bound_by"]][0].split("/")
            bound = limit if kind != "all" else name if limit == "-" else f"{name}/{limit}"
        if len(members) == 1 and kind != "all":
            bound = "-"
        costs = [cost_at(policy, cost) for _, policy, _, cost in members]
        granted = costs[0] if kind == "all" else max(costs)
        text = f"{answer_text(whole, granted if whole['allowed'] else 0)} {bound}"
        if kind == "all":
            for answer, cost in zip(answers, costs):
                text += f" | {answer_text(answer, cost if whole['allowed'] else 0)}"
        return text


def part_names(key_format):
    return re.findall(r"{(.*?)}", key_format)


def parts_of(key_format, key):
    """name -> part, by the definition: up to the first occurrence of the next literal; the last part takes the rest."""
    literals = re.split(r"{.*?}", key_format)
    assert key.startswith(literals[0]) and literals[-1] == ""
    parts, rest = {}, key[len(literals[0]):]
    for name, literal in zip(part_names(key_format), literals[1:]):
        parts[name], _, rest = rest.partition(literal) if literal else (rest, "", "")
    assert all(parts.values())
    return parts


def is_own(policy, key_format):
    """Does the limit count each key separately?"""
    return policy.by is None or set(policy.by) == set(part_names(key_format))


def id_of(policy, key_format, key):
    """The value that is equal for all keys that share the limit's counter."""
    if policy.by is None:
        return key
    parts = parts_of(key_format, key)
    return frozenset((name, parts[name]) for name in policy.by)


def longest_network(keys, key_format, key):
    """The length of the longest network of `cidr/PART/NETWORK,...` that the key's address is in; -1: none."""
    if not keys.startswith("cidr/"):
        return -1
    _, part, networks = keys.split("/", 2)
    try:
        address = address_of(ipaddress.ip_address, key if part == "-" else parts_of(key_format, key)[part])
    except ValueError:
        return -1
    every = [address_of(ipaddress.ip_network, network) for network in networks.split(",")]
    return max((n.prefixlen for n in every if n.version == address.version and address in n), default=-1)


def address_of(kind, text):
    """An IPv6 form of IPv4 is IPv4. No zones."""
    if "%" in text:
        raise ValueError(text)
    made = kind(text)
    if kind is ipaddress.ip_network:
        mapped = made.network_address.ipv4_mapped if made.version == 6 and made.prefixlen >= 96 else None
        return ipaddress.ip_network((mapped, made.prefixlen - 96)) if mapped is not None else made
    return (made.ipv4_mapped or made) if made.version == 6 else made


def random_key(rng, key_format):
    """One of few keys. Some look like others split at another place."""
    if key_format is None:
        return rng.choice("aab")
    values = iter([rng.choice(("a", "a", "ab", "b")) for _ in part_names(key_format)])
    key = re.sub(r"{.*?}", lambda _: next(values), key_format)
    return key + rng.choice(("", "", ":b"))


def random_asked(rng, policies, kind, formats):
    """One policy and key with a cost, or several that have no counter in common."""
    names, asked, left, met = sorted(policies), [], 16, set()
    if kind == "reset":
        names = [name for name in names if any(is_own(p, formats.get(name)) for _, p in policies[name])]
    for _ in range((rng.randint(1, 4) if kind == "all" else 1) if names else 0):
        name = rng.choice(names)
        key = random_key(rng, formats.get(name))
        counters = {(name, limit, id_of(p, formats.get(name), key)) for limit, p in policies[name]}
        if counters & met or len(policies[name]) > left:
            continue
        left -= len(policies[name])
        met |= counters
        asked.append((name, key, 0 if kind == "reset" else random_cost(rng, rng.choice(policies[name])[1])))
    return asked


def make_several(seed, n_steps=60, backwards=True):
    rng = random.Random(f"several {seed}")
    policies = {}
    for i in range(rng.randint(1, 3)):
        n = rng.choice((1, 2, 2, 3, 4))
        limits = [random_policy(rng, rng.choice(NATIVE)) for _ in range(n)]
        # Windows of similar length: otherwise one limit decides everything.
        window = rng.choice((1000, 1_000_000, 10_000_000))
        limits = [dataclasses.replace(p, window_us=window * rng.choice((1, 1, 2, 3, 7))) for p in limits]
        named = policies[f"several-{seed}-{i}"] = [("-" if n == 1 else f"l{j}", p) for j, p in enumerate(limits)]
        for j, (limit, p) in enumerate(named):
            if p.algorithm == "fixed_window" and seed % 3 == 2:
                head = f"fw1:several-{seed}-{i}{'' if n == 1 else '/' + limit}:"
                named[j] = limit, dataclasses.replace(p, phase_head=head)
    counting = random.Random(f"counts {seed}")
    policies = {name: some_count_checks(counting, limits) for name, limits in policies.items()}
    every = [p for limits in policies.values() for _, p in limits]
    now, ticks, left = START_US + rng.randint(0, 20_000_000), [], n_steps
    while left > 0:
        n = min(left, rng.choice((1, 2, 3, 8, 12)))
        kinds = rng.choices(("check", "all", "peek", "reset"), (50, 40, 8, 2), k=n)
        ticks.append((now, [(kind, random_asked(rng, policies, kind, {})) for kind in kinds]))
        now = max(earliest(every, ticks), now + random_step_us(rng, of_key(rng.choice(every), "a"), backwards, now))
        left -= n
    return SeveralTrace(seed, policies, ticks)


def make_shared(seed, n_steps=60, backwards=True, name="shared"):
    """Like several, with limits that many keys share, and ticks with many checks that charge them."""
    kind, rng = name, random.Random(f"{name} {seed}")
    policies, formats = {}, {}
    for i in range(rng.randint(1, 2)):
        name, n = f"{kind}-{seed}-{i}", rng.choice((1, 2, 2, 3) if kind == "shared" else (1, 1, 1, 2))
        formats[name] = rng.choice(("{t}:{u}", "{t}:{u}", "p-{t}/{u}", "{r}:{t}:{u}"))
        names = part_names(formats[name])
        window = rng.choice((1000, 1_000_000, 10_000_000))
        limits = []
        for _ in range(n):
            by = rng.choice((None, tuple(rng.sample(names, rng.randint(0, len(names) - 1))), (names[0],)))
            limits.append(dataclasses.replace(random_policy(rng, rng.choice(NATIVE)), phase_head="", by=by,
                                              window_us=window * rng.choice((1, 1, 2, 3, 7))))
        policies[name] = [("-" if n == 1 else f"l{j}", p) for j, p in enumerate(limits)]
    every = [p for limits in policies.values() for _, p in limits]
    now, ticks, left = START_US + rng.randint(0, 20_000_000), [], n_steps
    while left > 0:
        n = min(left, rng.choice((1, 2, 8, 20, 40)))
        kinds = rng.choices(("check", "all", "peek", "reset"), (75, 15, 8, 2), k=n)
        asked = [(kind, random_asked(rng, policies, kind, formats)) for kind in kinds]
        ticks.append((now, [(kind, some) for kind, some in asked if some]))
        now = max(earliest(every, ticks), now + random_step_us(rng, rng.choice(every), backwards, now))
        left -= n
    return SeveralTrace(seed, policies, ticks, formats)


def random_override(rng, name, limits, key_format):
    """Other limits for one key, or for all with a part: buckets, and logs that count denials, must have one for all keys."""
    def number(policy):
        fixed = policy.algorithm in BUCKETS or policy.algorithm == "sliding_log" and policy.count_denied
        return 0 if fixed or rng.random() < 0.2 else policy.limit + rng.choice((1, 1, 2, 5, 20))

    key = random_key(rng, key_format)
    first = part_names(key_format)[0]
    keys = rng.choice((key, re.sub(r"{.*?}", lambda found: rng.choice("ab") if found[0] == f"{{{first}}}" else "*", key_format),
                       key_format[:key_format.index("{")] + "*b"))
    return keys, [number(policy) for _, policy in limits]


def make_overridden(seed):
    """Like shared, mostly with one limit, and with overrides: keys that share a counter have different limits."""
    trace, rng = make_shared(seed, name="overridden"), random.Random(f"override {seed}")
    for name, limits in trace.policy.items():
        made = [random_override(rng, name, limits, trace.formats[name]) for _ in range(rng.randint(1, 3))]
        trace.overrides[name] = [(keys, numbers) for keys, numbers in dict(made).items() if any(numbers)]
    return trace


ADDRESSES = ("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1", "10.1.0.1", "11.0.0.1", "255.255.255.255", "::1", "2001:db8::1",
             "2001:DB8::2", "2001:db8:1::", "::10.0.0.1", "10.0.0.01", "fe80::1%1", "nobody")
NETWORKS = ("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/31", "10.0.0.1/32", "255.255.255.255/32", "::ffff:10.1.0.0/112", "::/0",
            "2001:db8::/32", "2001:db8:1::/48", "::1/128", "::/96")


def make_networked(seed, n_steps=60):
    """Keys with addresses, alone or in parts, and overrides by network, key and pattern."""
    rng = random.Random(f"networked {seed}")
    name, form = f"networked-{seed}", rng.choice((None, "{a}|{b}", "u-{b}/{a}"))
    window = rng.choice((1000, 1_000_000, 10_000_000))
    algorithm = rng.choice([algorithm for algorithm in NATIVE if algorithm not in BUCKETS])  # whose burst would follow
    policies = {name: [("-", dataclasses.replace(random_policy(rng, algorithm), phase_head="", window_us=window))]}
    keys = [re.sub(r"{.*?}", lambda _: rng.choice(ADDRESSES), form) if form else rng.choice(ADDRESSES) for _ in range(10)]
    left, overrides = {part: rng.sample(NETWORKS, len(NETWORKS)) for part in (part_names(form) if form else "-")}, {}
    for _ in range(rng.randint(1, 6)):
        part = rng.choice(sorted(left))
        networks = [left[part].pop() for _ in range(rng.randint(1, 3)) if left[part]]
        made = f"cidr/{part}/{','.join(networks)}" if networks else "*"
        overrides[rng.choice((made, made, made, rng.choice(keys), "*.1", "2001*"))] = [rng.choice((1, 2, 5, 20))]
    now, ticks = START_US + rng.randint(0, 20_000_000), []
    for _ in range(n_steps // 6):
        kinds = rng.choices(("check", "peek", "reset"), (88, 10, 2), k=6)
        ticks.append((now, [(kind, [(name, rng.choice(keys), 0 if kind == "reset" else random_cost(rng, policies[name][0][1]))])
                            for kind in kinds]))
        now = max(earliest([policies[name][0][1]], ticks), now + random_step_us(rng, policies[name][0][1], True, now))
    return SeveralTrace(seed, policies, ticks, {name: form} if form else {}, {name: list(overrides.items())})


PENALTY_MAX_MS = 365 * 86400 * 1000


def random_penalty(rng, limits, policy, window_us):
    """One where the settings allow it, of about the length of a window."""
    takes = policy.algorithm in NATIVE and policy.algorithm != "leaky_bucket" and not any(p.count_denied for p in limits)
    if not takes or rng.random() < 0.4:
        return ()
    window = max(1, window_us // 1000)
    time = rng.choice((1, 2, max(1, window // 2), window, window + 1, 3 * window))
    factor = rng.choice((1, 2, 5, 1000))
    most = time * rng.choice((1, 4, 30))
    forget = rng.choice((0, 1, time, most, 10 * most))
    return min(time, PENALTY_MAX_MS), factor, min(most, PENALTY_MAX_MS), min(forget, PENALTY_MAX_MS)


def penalized(trace, name, seed):
    """Some limits of each second trace get a penalty. Keys that share a counter under other limits have none."""
    rng = random.Random(f"penalty {name} {seed}")
    if seed % 2 == 0:
        return trace
    if isinstance(trace.policy, Policy):
        penalty = random_penalty(rng, [trace.policy], trace.policy, trace.policy.window_us)
        return dataclasses.replace(trace, policy=dataclasses.replace(trace.policy, penalty=penalty))

    def with_penalties(policies):
        return {name: [(limit, dataclasses.replace(p, penalty=random_penalty(rng, [p for _, p in limits], p, p.window_us)))
                       if p.by is None or not getattr(trace, "overrides", None) else (limit, p) for limit, p in limits]
                for name, limits in policies.items()}

    changed = {"policy": with_penalties(trace.policy)}
    if hasattr(trace, "candidate"):
        changed["candidate"] = with_penalties(trace.candidate)
    return dataclasses.replace(trace, **changed)


EVERY = (*NATIVE, "several", "shared", "overridden", "networked", "steps", "slots", "reserving", "admitting")  # the names for a seed, besides COMPAT
MERGING = "merging"  # and this one, for the stores alone: no method asks for a merge
UNDOING = "undoing"  # and this one: or for taking back a charge as if it had not been
AT_SOCKET = ("candidate",)  # and this one, for a whole daemon
PAST = "calendar_window_past"  # and this one, for the memory store: Redis deletes expired keys


def of_seed(name, seed):
    """The trace of a name and a seed, for tests and `./dev model`."""
    import candidates  # these import this module
    import reserving
    import slot_traces
    import steps
    import undoing
    if name == PAST:
        return make("calendar_window", seed, past=True)
    made = {"several": make_several, "shared": make_shared, "overridden": make_overridden, "networked": make_networked, "steps": steps.make, "reserving": reserving.make,
            "admitting": reserving.make_admitting,
            MERGING: functools.partial(reserving.make, merging=True), UNDOING: undoing.make, "slots": slot_traces.make_slots, "candidate": candidates.make_candidates}
    # The windows of the presets' originals end by Redis' clock, which does not step back.
    make_it = made.get(name, functools.partial(make, name, backwards=name not in COMPAT))
    return penalized(make_it(seed), name, seed)
