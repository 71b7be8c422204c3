"""test_reserving.py: reserve, settle and the taking back of what has ended, held against the model of reserving.py."""

from concurrent.futures import ProcessPoolExecutor

import judge
import pytest
import reserving

N_TRACES = 400


def expected(trace):
    return trace.expected()


@pytest.fixture(scope="session")  # a module's fixtures end with each server
def judged():
    """[(trace, the model's answers)], worked out once."""
    made = [reserving.make(seed) for seed in range(N_TRACES)]
    with ProcessPoolExecutor() as pool:
        return list(zip(made, pool.map(expected, made, chunksize=20)))


def compare(judged, answers):
    at = 0
    for trace, expect in judged:
        got = answers[at:at + len(expect)]
        at += len(expect)
        wrong = judge.first_difference(expect, got)
        if wrong is not None:
            pytest.fail(f"seed {trace.seed}\n{judge.told(trace, expect, got, wrong)}  (... | refunded charged ended)")
    assert at == len(answers)


def text_of(judged, sweeping):
    return "".join(f"{line}\n" for trace, _ in judged for line in trace.text(sweeping))


def test_memory_takes_what_has_ended_by_itself(judged, judge_memory):
    compare(judged, judge_memory(text_of(judged, sweeping=False)))


@pytest.mark.parametrize("max_keys, merge", [(64, 1), (2, 0)], ids=["merged", "plain"])
def test_the_script_with_a_sweep_before_each_check_agrees(judged, judge_redis, redis, max_keys, merge):
    compare(judged, judge_redis(text_of(judged, sweeping=True), max_keys, merge))


def test_the_traces_have_every_ending(judged):
    endings = {tuple(int(n) > 0 for n in line.rsplit(" | ", 1)[1].split())
               for trace, expect in judged for (_, kind, *_), line in zip(trace.steps(), expect) if kind == "settle"}
    refunded, charged, ended = (True, False, False), (False, True, False), (False, True, True)
    assert {refunded, charged, ended, (False, False, True), (False, False, False)} == endings
