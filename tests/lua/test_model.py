"""test_model.py: the C algorithms and the script, held against the exact model in tests/model, field by field."""

import judge
import pytest
import traces


def compare(judged, name, where, decide):
    """decide(text) -> lines; how many of them are decisions. The first trace that is not answered as the model says is
    shrunk and told."""
    def text_of(some):
        return judge.text_of(some, for_server=where != "memory")

    answers, at = decide(text_of(one.trace for one in judged)), 0
    for trace, expect, _ in judged:
        got = answers[at:at + len(expect)]
        at += len(expect)
        wrong = judge.first_difference(expect, got)
        if wrong is not None:
            alone = judge.complaint(name, trace, lambda t: decide(text_of([t])), where)
            pytest.fail(alone or f"{name}, seed {trace.seed}, only beside the others:\n{judge.told(trace, expect, got, wrong)}")
    assert at == len(answers)
    return sum(map(judge.is_decision, answers))


@pytest.mark.parametrize("algorithm", (*traces.EVERY, *traces.COMPAT, traces.PAST))
def test_memory_store_agrees_with_the_model(algorithm, judged, enough, judge_memory):
    assert enough(algorithm, compare(judged(algorithm), algorithm, "memory", judge_memory))


@pytest.mark.parametrize("algorithm", traces.EVERY)
@pytest.mark.parametrize("max_keys, merge", [(64, 1), (2, 0)], ids=["merged", "plain"])
def test_script_agrees_with_the_model(algorithm, max_keys, merge, judged, enough, judge_redis, redis, server):
    def decide(text):
        redis.flushall()
        return judge_redis(text, max_keys, merge)

    assert enough(algorithm, compare(judged(algorithm), algorithm, server.kind, decide))


LOWERED_LOG = """policy p 1
limit - sliding_log 10 1000000 0 0
turn 4000000000000000
p a check 10
end
policy p 1
limit - sliding_log 3 1000000 0 0
turn 4000000000000001
p a refund 2
p a refund 2
p a check 1
end
"""


def test_what_counts_in_a_log_whose_limit_was_lowered_is_not_forgotten_by_a_refund(judge_memory, judge_redis, redis):
    """Six are left, where three may be."""
    answers = judge_redis(LOWERED_LOG)
    assert answers == judge_memory(LOWERED_LOG)
    assert answers[-1].startswith("0 3 0 1000 ")


SHORTER_MEMORY = """policy p 1
limit - fixed_window 10 60000000 0 0
turn 4000000020000000
p a check 1 id=x keep=5000
end
turn 4000000021000000
p a check 1 id=x keep=2000
p a check 1 id=x keep=1000
end
"""


def test_a_request_is_remembered_no_longer_than_the_policy_says_by_now(judge_memory, judge_redis, redis):
    answers = judge_redis(SHORTER_MEMORY)
    assert answers == judge_memory(SHORTER_MEMORY)
    assert [answer.split()[2] for answer in answers] == ["9", "9", "8"]
