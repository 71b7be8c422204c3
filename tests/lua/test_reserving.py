"""test_reserving.py: the contents of the traces of reserving.py, which test_model.py and test_schedule.py replay; and sweeps that
both stores must do alike."""

import pytest


def test_the_traces_have_every_ending(expected_of):
    endings = {tuple(int(n) > 0 for n in line.rsplit(" | ", 1)[1].split())
               for trace, lines, _ in expected_of("reserving")
               for (_, kind, *_), line in zip(trace.steps(), lines) if kind == "settle"}
    refunded, charged, ended = (True, False, False), (False, True, False), (False, True, True)
    assert {refunded, charged, ended, (False, False, True), (False, False, False)} == endings


MANY_ENDED = """policy p 1
limit - fixed_window 1000 86400000000 0 0
tick 4000000000000000
{reserved}
end
tick 4000000001000000
p a settle 1 100 0
p a settle 1 1 0
p a sweep 0
p a peek 0
end
""".format(reserved="\n".join(f"p a reserve 1 {number} 1000" for number in range(100, 0, -1)))

CLOCK_BACK = """policy p 1
limit - fixed_window 10 1000000 0 0
tick 4000000005000000
p a check 7
end
tick 4000000004999999
p a sweep 0
end
tick 4000000005000000
p a sweep 0
p a peek 1
end
"""

HOST_AHEAD = """policy p 1
limit - calendar_window 10 hour,UTC,monday 0 0
skew 600000000
tick 4000000100000000
p a reserve 1 7 3600000
end
tick 4000006700000000
p a check 5
p a sweep 0
p a peek 0
end
"""


@pytest.mark.parametrize("text, last", [(MANY_ENDED, "1 1000 998 0 60799000 0 0 of 1000 86400000 60799000 -"),
                                        (CLOCK_BACK, "1 10 9 0 1000 0 1 of 10 1000 1000 -"),
                                        (HOST_AHEAD, "1 10 5 0 100000 0 0 of 10 3600000 100000 -")],
                         ids=["64 at a time, those of one end by their ids", "a sweep clamps as a peek does",
                              "a host that is ahead gives nothing of an hour that is over into the present one"])
def test_both_stores_sweep_ended_reservations_alike(text, last, replay_memory, replay_redis, redis):
    in_memory, by_script = replay_memory(text), replay_redis(text)
    assert in_memory == by_script
    assert in_memory[-1] == last
