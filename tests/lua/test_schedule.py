"""test_schedule.py: the schedules of test_model.py once more, through the socket of a daemon under --test-clock: the wire,
the sessions, the engine and the memory store add nothing to an answer and take nothing away.

All of them, whole answers, as maps and as arrays (at_socket.py). Two things that tests/judge can be told have no words in
the protocol and are left out of the schedules here, on the model's side too: a slot is renewed by the daemon alone, which
under --test-clock does so for every slot whenever the time is set (so the leases of living connections never end); and
what was not admitted has no name by which it could be settled. And one thing only a daemon has: candidates, whose counts
are held against a model of theirs (candidates.py).
"""

import at_socket
import judge
import msgpack
import pytest
import traces


def schedules(name, judged, replay):
    """(Judged, what the model says, what the daemon does)"""
    found = replay.results([one.trace for one in judged(name)])
    return [(one, msgpack.unpackb(one.at_socket), got) for one, got in zip(judged(name), found)]


@pytest.mark.parametrize("name", (*traces.EVERY, *traces.COMPAT, traces.PAST, *traces.AT_SOCKET))
def test_a_schedule_is_answered_through_the_socket_as_the_model_says(name, judged, enough):
    with at_socket.Replay([one.trace for one in judged(name)]) as replay:
        all_of_them = schedules(name, judged, replay)
    for (trace, *_), expect, got in all_of_them:
        wrong = judge.first_difference(expect, got)
        if wrong is not None:
            alone = judge.complaint(name, trace, at_socket.decide, "socket", at_socket.results)
            pytest.fail(alone or f"{name}, seed {trace.seed}, only beside the others:\n{judge.told(trace, expect, got, wrong)}")
    assert enough(name, sum(judge.is_decision(answer) for _, _, got in all_of_them for answer in got))


def test_the_schedules_of_candidates_have_every_verdict(judged):
    counts = [counted for one in judged("candidate") for counted in msgpack.unpackb(one.at_socket)[-1].values()]
    for name in counts[0]:
        assert sum(count[name] for count in counts) > 1000, name
