"""test_model.py: compares the C algorithms and the script with the reference model in tests/model, field by field."""

import comparison
import pytest
import traces
from harness import Redis, algorithms


def compare(expected, name, where, decide):
    """Returns the number of decisions among the lines of decide(text). Shrinks and prints the first trace whose answers differ
    from those of the model."""
    def text_of(some):
        return comparison.text_of(some, for_server=where != "memory")

    answers, at = decide(text_of(one.trace for one in expected)), 0
    for trace, expect, _ in expected:
        got = answers[at:at + len(expect)]
        at += len(expect)
        wrong = comparison.first_difference(expect, got)
        if wrong is not None:
            alone = comparison.complaint(name, trace, lambda t: decide(text_of([t])), where)
            shown = comparison.shown(trace, expect, got, wrong)
            pytest.fail(alone or f"{name}, seed {trace.seed}, only together with the others:\n{shown}")
    assert at == len(answers)
    return sum(map(comparison.is_decision, answers))


def test_every_algorithm_has_a_model():
    assert set(traces.NATIVE) == set(algorithms()), "add it to ALGORITHMS of tests/model/model.py"


@pytest.mark.parametrize(("name", "seed"), [("several", 1238), ("steps", 404), ("slots", 2789), ("reserving", 423345)])
def test_no_trace_steps_back_over_more_windows_than_a_fixed_windows_value_tells_apart(name, seed):
    """These did, and `./dev soak model` found that the script then differs from the model, as ALGORITHMS.md says."""
    trace, newest = traces.of_seed(name, seed), 0
    windows = [p.window_us for limits in trace.policy.values() for _, p in limits if p.algorithm == "fixed_window"]
    for now, _ in trace.ticks:
        newest = max(newest, now)
        assert all(newest // window - now // window < 2**15 for window in windows)


@pytest.mark.parametrize("algorithm", (*traces.EVERY, *traces.COMPAT, traces.PAST, traces.MERGING, traces.UNDOING))
def test_memory_store_agrees_with_the_model(algorithm, expected_of, enough, replay_memory):
    assert enough(algorithm, compare(expected_of(algorithm), algorithm, "memory", replay_memory))


def on_server(expected, server):
    """The traces for a server of that kind. All kinds run the same script: the first that is installed runs all traces, the next
    a third of them."""
    first = next(kind for kind in Redis.KINDS if Redis.installed(kind))
    return expected if server.kind == first else expected[::3]


@pytest.mark.parametrize("algorithm", (*traces.EVERY, traces.MERGING, traces.UNDOING))
@pytest.mark.parametrize("max_keys, merge", [(64, 1), (2, 0)], ids=["merged", "plain"])
def test_script_agrees_with_the_model(algorithm, max_keys, merge, expected_of, enough, replay_redis, redis, server):
    def decide(text):
        redis.flushall()
        return replay_redis(text, max_keys, merge)

    expected = on_server(expected_of(algorithm), server)
    assert enough(algorithm, compare(expected, algorithm, server.kind, decide) * len(expected_of(algorithm)) // len(expected))


N_CACHED = 30  # traces of a name: each step of them is a call


@pytest.mark.parametrize("algorithm", traces.EVERY)
def test_the_cache_of_denials_agrees_with_the_model(algorithm, expected_of, replay_redis, redis, server):
    def decide(text):
        redis.flushall()
        return replay_redis(text, 64, 1, 0)

    assert compare(on_server(expected_of(algorithm)[:N_CACHED], server), algorithm, server.kind, decide) > 300


LOWERED_LOG = """policy p 1
limit - sliding_log 10 1000000 0 0
tick 4000000000000000
p a check 10
end
policy p 1
limit - sliding_log 3 1000000 0 0
tick 4000000000000001
p a refund 2
p a refund 2
p a check 1
end
"""


def test_a_refund_keeps_the_counting_units_of_a_log_with_a_lowered_limit(replay_memory, replay_redis, redis):
    """Six units are left, although only three are allowed."""
    answers = replay_redis(LOWERED_LOG)
    assert answers == replay_memory(LOWERED_LOG)
    assert answers[-1].startswith("0 3 0 1000 ")


SHORTER_MEMORY = """policy p 1
limit - fixed_window 10 60000000 0 0
tick 4000000020000000
p a check 1 id=x keep=5000
end
tick 4000000021000000
p a check 1 id=x keep=2000
p a check 1 id=x keep=1000
end
"""


def test_a_request_is_remembered_no_longer_than_the_present_policy_sets(replay_memory, replay_redis, redis):
    answers = replay_redis(SHORTER_MEMORY)
    assert answers == replay_memory(SHORTER_MEMORY)
    assert [answer.split()[2] for answer in answers] == ["9", "9", "8"]
