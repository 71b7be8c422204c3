"""test_schedule.py: the schedules of test_model.py again, through the socket of a daemon under --test-clock: the wire, the
sessions, the engine and the memory store do not change any answer.

The tests compare complete answers, as maps and as arrays (at_socket.py). The protocol lacks two steps of tests/replay, so
these schedules leave them out, in the model too. First, only the daemon renews slots; under --test-clock it renews every slot
whenever the time is set, so the leases of living connections never end. Second, a denied reservation has no token to settle.
Only a daemon has candidates: the tests compare their counts with a model (candidates.py).
"""

import at_socket
import comparison
import msgpack
import pytest
import traces


def schedules(name, expected_of, replay):
    """(Expected, the model's answers, the daemon's answers)"""
    found = replay.results([one.trace for one in expected_of(name)])
    return [(one, msgpack.unpackb(one.at_socket), got) for one, got in zip(expected_of(name), found)]


@pytest.mark.parametrize("name", (*traces.EVERY, *traces.COMPAT, traces.PAST, *traces.AT_SOCKET))
def test_the_answers_to_a_schedule_through_the_socket_equal_the_model(name, expected_of, enough):
    with at_socket.Replay([one.trace for one in expected_of(name)]) as replay:
        all_of_them = schedules(name, expected_of, replay)
    for (trace, *_), expect, got in all_of_them:
        wrong = comparison.first_difference(expect, got)
        if wrong is not None:
            alone = comparison.complaint(name, trace, at_socket.decide, "socket", at_socket.results)
            shown = comparison.shown(trace, expect, got, wrong)
            pytest.fail(alone or f"{name}, seed {trace.seed}, only together with the others:\n{shown}")
    assert enough(name, sum(comparison.is_decision(answer) for _, _, got in all_of_them for answer in got))


def test_the_schedules_of_candidates_have_every_verdict(expected_of):
    counts = [counted for one in expected_of("candidate") for counted in msgpack.unpackb(one.at_socket)[-1].values()]
    for name in counts[0]:
        assert sum(count[name] for count in counts) > 1000, name
