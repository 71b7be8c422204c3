"""test_calendar.py: a calendar's edges are the zone's, whatever the host's clock says: the script's decides."""

import judge
import pytest
import traces

N_TRACES = 60
# No window is shorter than half an hour.
SKEWS_S = (-1799, -5, 5, 1799)


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_a_host_whose_clock_is_off_moves_no_edge(skew_s, judge_redis, redis):
    redis.flushall()
    made = [traces.of_seed("calendar_window", seed) for seed in range(N_TRACES)]
    expected = [line for trace in made for line in trace.expected()]
    answers = judge_redis(f"skew {skew_s * 1_000_000}\n" + judge.text_of(made), 64, 1)
    assert judge.first_difference(expected, answers) is None


def test_hosts_that_disagree_about_the_clock_count_together(judge_redis, redis):
    """One is a few seconds behind midnight, one is ahead: every turn is another's."""
    redis.flushall()
    midnight = 4_000_060_800_000_000
    lines = ["policy p 1", "limit - calendar_window 6 day,UTC,monday 0 0"]
    for n, ms in enumerate((-3000, -2000, -1, 0, 1000, 2000, 3000)):
        lines += [f"skew {(-10, 10, 0)[n % 3] * 1_000_000}", f"turn {midnight + ms * 1000}", "p k check 1", "end"]
    remaining = [int(line.split()[2]) for line in judge_redis("\n".join(lines) + "\n", 64, 1)]
    assert remaining == [5, 4, 3, 5, 4, 3, 2]
