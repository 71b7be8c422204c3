"""test_properties.py: tests the promises of lua/ALGORITHMS.md on the engine itself, with the memory store and the script.

These tests use no model. They test the contract R1 to R5 with peeks at the time in an answer, the bounds by sliding the window
over the admitted units, and a batch by sending its checks one by one. A peek charges nothing; the tests also check that the
answers of the schedule do not change.
"""

import collections
import dataclasses

import pytest
from harness import Redis
from comparison import first_difference, run_replay, text_of
from model import ALGORITHMS
from traces import NATIVE, START_US, Policy, Trace, of_seed

Answer = collections.namedtuple("Answer", "allowed limit remaining retry reset delay granted")
Probe = collections.namedtuple("Probe", "rule at key cost wait allowed")
Engine = collections.namedtuple("Engine", "lines n")


@pytest.fixture(scope="module")
def a_redis():
    redis = Redis()
    yield redis
    redis.close()


@pytest.fixture(params=["memory", "redis"])
def engine(request, a_redis):
    """engine.lines(traces) -> the answers of each trace; engine.n: the number of traces of each algorithm."""
    def decide(traces):
        if request.param == "memory":
            lines = iter(run_replay(text_of(traces), "memory"))
        else:
            with a_redis.client() as client:
                client.flushall()
            lines = iter(run_replay(text_of(traces), "redis", a_redis.socket))
        return [[next(lines) for _ in trace.steps()] for trace in traces]

    return Engine(decide, 30 if request.param == "memory" else 8)


def answer(line):
    return Answer(*map(int, line.split()[:7]))


def in_ticks(trace, ticks):
    return dataclasses.replace(trace, ticks=ticks)


def one_by_one(trace):
    return in_ticks(trace, [(now, [step]) for now, steps in trace.ticks for step in steps])


# ---- R1 to R5 ----------------------------------------------------------------------------------------------------


def probes(policy, now, step, given):
    """The promises of an answer about later checks, as peeks."""
    key, kind, cost, wait = step
    if kind != "check":  # the answer to a peek includes a charge that was not made
        return
    at = now + given.reset * 1000
    yield Probe("R3: `remaining` is allowed", now, key, given.remaining, 0, True)
    yield Probe("R3: one more is not", now, key, given.remaining + 1, 0, False)
    yield Probe("R4: all after the reset", at, key, given.limit, 0, True)
    if given.reset > 0:
        yield Probe("R4: not before", at - 1000, key, given.limit, 0, False)
    yield Probe("R5: never more than all", now, key, given.limit + 1, wait, False)
    if not given.allowed and cost <= given.limit:
        yield Probe("R2: allowed after the retry", now + given.retry * 1000, key, cost, wait, True)
        yield Probe("R2: not before", now + (given.retry - 1) * 1000, key, cost, wait, False)


@pytest.mark.parametrize("algorithm", NATIVE)
def test_every_answer_keeps_the_contract(algorithm, engine):
    schedules = [one_by_one(of_seed(algorithm, seed)) for seed in range(engine.n)]
    plain, questions, asking = engine.lines(schedules), [], []
    for trace, lines in zip(schedules, plain):
        ticks, asked = [], []
        for (now, [step]), line in zip(trace.ticks, lines):
            ticks.append((now, [step]))
            asked.append(None)
            if step[1] == "reset":
                continue
            given = answer(line)
            assert given.retry == 0 if given.allowed else given.retry != 0, f"R1: seed {trace.seed}, {step} {line}"
            assert given.retry == -1 or step[2] <= given.limit, f"R5: seed {trace.seed}, {step} {line}"
            for probe in probes(trace.policy, now, step, given):
                ticks.append((probe.at, [(probe.key, "peek", probe.cost, probe.wait)]))
                asked.append(probe)
        asking.append(in_ticks(trace, ticks))
        questions.append(asked)
    counts = collections.Counter()
    for trace, before, asked, lines in zip(schedules, plain, questions, engine.lines(asking)):
        assert first_difference(before, [line for probe, line in zip(asked, lines) if probe is None]) is None
        for probe, line in zip(asked, lines):
            if probe is not None:
                counts[probe.rule] += 1
                assert answer(line).allowed == probe.allowed, f"{trace.policy}, seed {trace.seed}: {probe}: {line}"
                assert not probe.rule.startswith("R5") or answer(line).retry == -1
    assert len(counts) == 7 and min(counts.values()) > engine.n, counts


@pytest.mark.parametrize("algorithm", NATIVE)
def test_a_state_that_has_expired_is_worth_a_fresh_one(algorithm, engine):
    schedules = [one_by_one(of_seed(algorithm, seed)) for seed in range(engine.n)]
    schedules = [trace for trace in schedules if not trace.policy.phase_head]  # with a phase, keys differ
    asking, pairs = [], []
    for trace, lines in zip(schedules, engine.lines(schedules)):
        ticks, at = [], []
        for (now, [step]), line in zip(trace.ticks, lines):
            ticks.append((now, [step]))
            if step[1] != "check":
                continue
            later = now + answer(line).reset * 1000
            for cost in (0, 1, answer(line).limit, answer(line).limit + 1):
                at.append(sum(len(steps) for _, steps in ticks))
                ticks.append((later, [(step[0], "peek", cost, None), ("a-fresh-one", "peek", cost, None)]))
        asking.append(in_ticks(trace, ticks))
        pairs.append(at)
    for trace, at, lines in zip(schedules, pairs, engine.lines(asking)):
        for i in at:
            assert lines[i] == lines[i + 1], f"{trace.policy}, seed {trace.seed}"
    assert sum(map(len, pairs)) > 100 * engine.n


# ---- bounds --------------------------------------------------------------------------------------------------------


def most_in_a_window(admitted, length):
    """The most units in any half-open interval of that length. It is enough to test intervals that begin with a charge."""
    most = first = units = 0
    for at, cost in admitted:
        units += cost
        while admitted[first][0] <= at - length:
            units -= admitted[first][1]
            first += 1
        most = max(most, units)
    return most


def refilled(policy, extra_us=0):
    """Units that come back between the first and the last moment of a window, and in extra_us more."""
    return (policy.window_us + extra_us - grain_us(policy)) * policy.limit // policy.window_us


BOUNDS = {  # in any half-open interval of the window's length, on the limit's own clock
    "sliding_log": lambda policy: policy.limit,
    "sliding_counter": lambda policy: 2 * policy.limit - 1,
    "fixed_window": lambda policy: 2 * policy.limit,
    "first_hit": lambda policy: 2 * policy.limit - 1,
    "token_bucket": lambda policy: (policy.burst or policy.limit) + refilled(policy),
    "leaky_bucket": lambda policy: (policy.burst or policy.limit) + refilled(policy, policy.max_wait_us),
}


def grain_us(policy):
    return ALGORITHMS[policy.algorithm].tick


def admitted_units(trace, lines):
    """The admitted (time on the limit's own clock, units), by key."""
    by_key, grain = collections.defaultdict(list), grain_us(trace.policy)
    for (now, key, kind, *_), line in zip(trace.steps(), lines):
        if kind == "check" and answer(line).granted:
            by_key[key].append((now // grain * grain, answer(line).granted))
    return by_key


def test_every_algorithm_has_a_bound_and_a_trace_that_reaches_it():
    """But a calendar's windows, which are not equally long."""
    assert set(BOUNDS) == set(TIGHT) == set(NATIVE) - {"calendar_window"}, "add it to BOUNDS and to TIGHT"


@pytest.mark.parametrize("algorithm", BOUNDS)
def test_no_window_holds_more_than_the_bound(algorithm, engine):
    schedules = []
    for trace in (of_seed(algorithm, seed) for seed in range(4 * engine.n)):
        times = sorted(now for now, _ in trace.ticks)  # forward only, without resets
        schedules.append(in_ticks(trace, [(now, [step for step in steps if step[1] != "reset"])
                                          for now, (_, steps) in zip(times, trace.ticks)]))
    above, may_be = 0, 0  # the limit
    for trace, lines in zip(schedules, engine.lines(schedules)):
        for admitted in admitted_units(trace, lines).values():
            most = most_in_a_window(admitted, trace.policy.window_us)
            bound = BOUNDS[algorithm](trace.policy)
            assert most <= bound, f"{trace.policy}, seed {trace.seed}: {most}"
            above, may_be = above + (most > trace.policy.limit), may_be + (bound > trace.policy.limit)
    assert above or not may_be


def charges(policy, *moments):
    """A trace that asks, at each (time after a window's edge in us, times), for single units."""
    edge = -(-START_US // policy.window_us) * policy.window_us
    return Trace(0, "tight", policy, [(edge + at, [("k", "check", 1, None)] * times) for at, times in moments])


W = 60_000_000
MS = 1000
TIGHT = {
    # all of a window at its end, all of the next one at its beginning
    "fixed_window": (Policy("fixed_window", 10, W), [(W - MS, 11), (W, 11)], 20),
    # the first unit begins the window; the others come at its end, and all of the next one right after it
    "first_hit": (Policy("first_hit", 10, W), [(0, 1), (W - MS, 10), (W, 11)], 19),
    # all at once, and nothing before the first of them has left
    "sliding_log": (Policy("sliding_log", 10, W), [(0, 11), (W - 1, 1), (W, 11)], 10),
    # all at the window's end, then one whenever the share of it has shrunk by one
    "sliding_counter": (Policy("sliding_counter", 10, W), [(W - MS, 11), *[(W + W * i // 10, 2) for i in range(1, 10)]], 19),
    # the burst, then one whenever one has come back
    "token_bucket": (Policy("token_bucket", 10, W, 10), [(0, 11), *[(W * i // 10, 2) for i in range(1, 10)]], 19),
    # the same, and the units that wait
    "leaky_bucket": (Policy("leaky_bucket", 10, W, 10, False, W // 2), [(0, 16), *[(W * i // 10, 2) for i in range(1, 10)]], 24),
}


@pytest.mark.parametrize("algorithm", TIGHT)
def test_the_bound_is_reached(algorithm, engine):
    policy, moments, most = TIGHT[algorithm]
    trace = charges(policy, *moments)
    admitted = admitted_units(trace, engine.lines([trace])[0])["k"]
    assert most_in_a_window(admitted, policy.window_us) == most == BOUNDS[algorithm](policy)


def test_what_leaves_a_leaky_bucket_after_its_delay_keeps_the_token_buckets_bound(engine):
    policy, moments, _ = TIGHT["leaky_bucket"]
    trace = charges(policy, *moments)
    leaving = sorted((now + answer(line).delay * 1000, answer(line).granted)
                     for (now, *_), line in zip(trace.steps(), engine.lines([trace])[0]))
    assert most_in_a_window(leaving, policy.window_us) == 19


def test_a_sliding_counter_admits_limit_times_1_plus_y_within_y_windows_of_an_edge(engine):
    policy = Policy("sliding_counter", 10, W)
    for tenths in range(1, 10):
        after = W * tenths // 10
        trace = charges(policy, (W - MS, 11), *[(W + after * i // 50, 2) for i in range(51)])
        admitted = admitted_units(trace, engine.lines([trace])[0])["k"]
        assert sum(units for _, units in admitted) == 10 + tenths


# ---- batches, merging, expiry (only in the script) ----------------------------------------------------------------


def repeated(trace):
    """Each check several times in a row, as from a busy client: the script merges them."""
    return in_ticks(trace, [(now, [step for step in steps for _ in range(1 if step[1] == "reset" else 1 + step[2] % 7)])
                            for now, steps in trace.ticks])


def batched(trace):
    """All steps of one moment in one tick."""
    ticks = []
    for now, steps in trace.ticks:
        if ticks and ticks[-1][0] == now:
            ticks[-1] = (now, ticks[-1][1] + steps)
        else:
            ticks.append((now, steps))
    return in_ticks(trace, ticks)


@pytest.mark.parametrize("algorithm", NATIVE)
def test_a_batch_is_the_sequence_of_its_checks_merged_or_not(algorithm, replay_redis, redis):
    traces = [repeated(of_seed(algorithm, seed)) for seed in range(20)]
    singles = replay_redis(text_of(map(one_by_one, traces)), 64, 0)
    for options in ((64, 1), (64, 0), (2, 1)):
        redis.flushall()
        together = replay_redis(text_of(map(batched, traces)), *options)
        at = first_difference(singles, together)
        assert at is None, f"{options}: step {at}: alone {singles[at]}, in a batch {together[at]}"


@pytest.mark.parametrize("algorithm", NATIVE)
def test_every_key_lives_until_its_state_equals_a_fresh_one_and_then_expires(algorithm, replay_redis, redis):
    traces = [of_seed(algorithm, seed) for seed in range(40)]
    keys = ("a", "b")
    for trace in traces:
        trace.ticks.sort(key=lambda tick: tick[0])  # forward only: a state from a later time is kept until the clock returns
        now = trace.ticks[-1][0]
        trace.ticks.append((now, [(f"{trace.name}-{key}", "peek", 0, None) for key in keys]))
    lines, at, n = replay_redis(text_of(traces)), 0, 0
    expiries = {}  # of a limit with a penalty the key of its pause, if that lives longer
    for key in redis.keys("*"):
        assert redis.pexpiretime(key) > 0
        name = key.decode().rsplit(":", 1)[1]
        expiries[name] = max(expiries.get(name, 0), redis.pexpiretime(key))
    assert expiries
    for trace in traces:
        at += len(trace.steps())
        for key, line in zip(keys, lines[at - len(keys):at]):
            reset, now = answer(line).reset, trace.ticks[-1][0]
            if reset > 0:
                assert expiries[f"{trace.name}-{key}"] * 1000 > now + (reset - 1) * 1000, f"{trace.policy}: {key} {line}"
                n += 1
    assert n > 10
