"""test_model.py: the C algorithms and the script, held against the exact model in tests/model, field by field."""

from concurrent.futures import ProcessPoolExecutor

import judge
import pytest
import traces

N_TRACES = 1000
N_TRACES_IN_STEPS = 250
FEWER = {"shared": 300}  # traces of many checks


def expected(trace):
    return trace.expected()


@pytest.fixture(scope="session")  # a module's fixtures end with each server
def judged():
    """judged(algorithm) -> [(trace, the model's answers)], worked out once."""
    known = {}

    def look_up(algorithm):
        if algorithm not in known:
            made = [traces.of_seed(algorithm, seed) for seed in range(FEWER.get(algorithm, N_TRACES))]
            with ProcessPoolExecutor() as pool:
                known[algorithm] = list(zip(made, pool.map(expected, made, chunksize=50)))
        return known[algorithm]

    return look_up


def compare(judged, name, where, decide):
    """decide(text) -> lines. The first trace that is not answered as the model says is shrunk and told."""
    answers, at = decide(judge.text_of(trace for trace, _ in judged)), 0
    for trace, expect in judged:
        got = answers[at:at + len(expect)]
        at += len(expect)
        wrong = judge.first_difference(expect, got)
        if wrong is not None:
            alone = judge.complaint(name, trace, lambda t: decide(judge.text_of([t])), where)
            pytest.fail(alone or f"{name}, seed {trace.seed}, only beside the others:\n{judge.told(trace, expect, got, wrong)}")
    assert at == len(answers)


@pytest.mark.parametrize("algorithm", (*traces.EVERY, *traces.COMPAT, traces.PAST))
def test_memory_store_agrees_with_the_model(algorithm, judged, judge_memory):
    compare(judged(algorithm), algorithm, "memory", judge_memory)


@pytest.mark.parametrize("algorithm", traces.EVERY)
@pytest.mark.parametrize("max_keys, merge", [(64, 1), (2, 0)], ids=["merged", "plain"])
def test_script_agrees_with_the_model(algorithm, max_keys, merge, judged, judge_redis, redis, server):
    def decide(text):
        redis.flushall()
        return judge_redis(text, max_keys, merge)

    compare(judged(algorithm), algorithm, server.kind, decide)


@pytest.mark.parametrize("algorithm", traces.EVERY)
def test_script_agrees_with_the_model_in_steps_too(algorithm, judged, judge_redis, redis, server):
    def decide(text):
        redis.flushall()
        return judge_redis(text, 64, 1, 1)

    compare(judged(algorithm)[:N_TRACES_IN_STEPS], algorithm, server.kind, decide)
