"""test_model.py: the C algorithms and the script, held against the exact model in tests/model, field by field."""

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model"))

import traces  # noqa: E402

N_TRACES = 1000
EVERY = (*traces.NATIVE, "several")


def expected(trace):
    return trace.expected()


@pytest.fixture(scope="module")
def judged():
    """judged(algorithm) -> [(trace, the model's answers)], worked out once."""
    known = {}

    def look_up(algorithm):
        if algorithm not in known:
            # The windows of the presets' originals end by Redis' clock, which does not step back.
            make = traces.make_several if algorithm == "several" else \
                partial(traces.make, algorithm, backwards=algorithm not in traces.COMPAT)
            made = [make(seed) for seed in range(N_TRACES)]
            with ProcessPoolExecutor() as pool:
                known[algorithm] = list(zip(made, pool.map(expected, made, chunksize=50)))
        return known[algorithm]

    return look_up


def compare(judged, answers):
    at = 0
    for trace, expect in judged:
        got = answers[at:at + len(expect)]
        at += len(expect)
        for i, (step, want, have) in enumerate(zip(trace.steps(), expect, got)):
            if want == have or (want.startswith("removed") and have.startswith("removed")):
                continue
            before = "\n".join(f"  {s}  ->  {e}" for s, e in list(zip(trace.steps(), expect))[max(0, i - 8):i])
            pytest.fail(f"{trace.policy}, seed {trace.seed}, step {i} {step}:\n{before}\n  model {want}\n  found {have}\n"
                        "  (allowed limit remaining retry_after_ms reset_after_ms delay_ms granted bound_by | each limit)")
    assert at == len(answers)


def text_of(judged):
    return "".join(f"{line}\n" for trace, _ in judged for line in trace.text())


@pytest.mark.parametrize("algorithm", EVERY + traces.COMPAT)
def test_memory_store_agrees_with_the_model(algorithm, judged, judge_memory):
    compare(judged(algorithm), judge_memory(text_of(judged(algorithm))))


@pytest.mark.parametrize("algorithm", EVERY)
@pytest.mark.parametrize("max_keys, merge", [(64, 1), (2, 0)], ids=["merged", "plain"])
def test_script_agrees_with_the_model(algorithm, max_keys, merge, judged, judge_redis, redis):
    assert redis.dbsize() == 0
    compare(judged(algorithm), judge_redis(text_of(judged(algorithm)), max_keys, merge))
