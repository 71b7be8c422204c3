"""test_reserving.py: what the traces of reserving.py, which test_model.py and test_schedule.py replay, have in them."""


def test_the_traces_have_every_ending(judged):
    endings = {tuple(int(n) > 0 for n in line.rsplit(" | ", 1)[1].split())
               for trace, lines, _ in judged("reserving")
               for (_, kind, *_), line in zip(trace.steps(), lines) if kind == "settle"}
    refunded, charged, ended = (True, False, False), (False, True, False), (False, True, True)
    assert {refunded, charged, ended, (False, False, True), (False, False, False)} == endings
