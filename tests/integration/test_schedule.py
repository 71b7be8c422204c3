"""test_schedule.py: schedules replayed through the socket under --test-clock, held against the exact model: the wire,
the sessions and the memory store add nothing to a decision and take nothing away."""

import sys
from pathlib import Path

import msgpack
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model"))

import calendars  # noqa: E402
import traces  # noqa: E402

N_TRACES = 20


def window(policy):
    if not policy.calendar:
        return f"{policy.window_us}us"
    unit, zone, week_start = policy.calendar
    return f"{unit}, timezone: {zone}" + (f", week_start: {calendars.WEEKDAYS[week_start]}" if unit == "week" else "")


def settings(trace):
    policy = trace.policy
    shape = {"first_hit": "algorithm: fixed_window, start: first_hit"}.get(policy.algorithm)
    if shape is None:
        shape = f"{'compat' if policy.algorithm in traces.COMPAT else 'algorithm'}: {policy.algorithm}"
    burst = f", burst: {policy.burst}" if policy.burst else ""
    counted = ", count_denied: true" if policy.count_denied else ""
    more = f", max_wait: {policy.max_wait_us}us" if policy.max_wait_us else ""
    more += ", phase: true" if policy.phase_head else ""
    return f"  {trace.name}: {{{shape}, limit: {policy.limit}, window: {window(policy)}{burst}{counted}{more}}}\n"


def calls(trace):
    """(method, params) in order, each turn's time before its steps."""
    for now, steps in trace.turns:
        yield "test_clock", [now]
        for key, kind, cost, max_wait_us in steps:
            ask = cost if max_wait_us is None else {"cost": cost, "max_wait_ms": max_wait_us // 1000}
            yield kind, [trace.name, key] + ([] if kind == "reset" else [ask])


def as_line(answer, kind, cost):
    if kind == "reset":
        return traces.line(answer, kind, cost)
    names = {"retry": "retry_after_ms", "reset": "reset_after_ms"}
    renamed = {short: answer[name] for short, name in names.items()}
    return traces.line({**answer, **renamed, "delay": answer.get("delay_ms", 0)}, kind, cost)


def replay(client, trace):
    asked = list(calls(trace))
    client.send_bytes(b"".join(msgpack.packb([0, n, method, params]) for n, (method, params) in enumerate(asked)))
    answers = {}
    for _ in asked:
        _, msgid, error, result = client.recv()
        assert error is None, (asked[msgid], error)
        answers[msgid] = result
    cost_of = {n: ask["cost"] if isinstance(ask := params[-1], dict) else ask for n, (_, params) in enumerate(asked)}
    return [as_line(answers[n], method, cost_of[n]) for n, (method, _) in enumerate(asked) if method != "test_clock"]


@pytest.mark.parametrize("algorithm", (*traces.NATIVE, *traces.COMPAT, traces.PAST))
def test_a_schedule_is_decided_as_the_model_does(algorithm, ratelimitd, connect):
    made = [traces.of_seed(algorithm, seed) for seed in range(N_TRACES)]
    client = connect(ratelimitd("policies:\n" + "".join(map(settings, made)), arguments=["--test-clock"]))
    for trace in made:
        for step, want, have in zip(trace.steps(), trace.expected(), replay(client, trace)):
            if step[2] != "reset":
                assert want == have, f"{trace.policy}, seed {trace.seed}, step {step}"
