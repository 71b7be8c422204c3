"""test_calendar.py: a calendar's edges follow the zone and the script's clock, whatever the host's clock shows."""

import random

import calendars
import comparison
import pytest
import traces

N_TRACES = 60
# No window is shorter than half an hour.
SKEWS_S = (-1799, -5, 5, 1799)


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_a_wrong_host_clock_moves_no_edge(skew_s, replay_redis, redis):
    redis.flushall()
    made = [traces.of_seed("calendar_window", seed) for seed in range(N_TRACES)]
    expected = [line for trace in made for line in trace.expected()]
    answers = replay_redis(f"skew {skew_s * 1_000_000}\n" + comparison.text_of(made), 64, 1)
    assert comparison.first_difference(expected, answers) is None


def test_hosts_that_disagree_about_the_clock_count_together(replay_redis, redis):
    """One is a few seconds behind, one is ahead: they take ticks alternately."""
    redis.flushall()
    midnight = 4_000_060_800_000_000
    lines = ["policy p 1", "limit - calendar_window 6 day,UTC,monday 0 0"]
    for n, ms in enumerate((-3000, -2000, -1, 0, 1000, 2000, 3000)):
        lines += [f"skew {(-10, 10, 0)[n % 3] * 1_000_000}", f"tick {midnight + ms * 1000}", "p k check 1", "end"]
    remaining = [int(line.split()[2]) for line in replay_redis("\n".join(lines) + "\n", 64, 1)]
    assert remaining == [5, 4, 3, 5, 4, 3, 2]


def test_the_model_remembers_a_window_s_end_for_the_time_in_which_it_is_the_next_one():
    rng = random.Random(1)
    for _ in range(100):
        calendar = traces.random_policy(rng, "calendar_window").calendar
        around = calendars.hard_moment_us(rng, calendar[1], past=rng.random() < 0.5) // 1_000_000
        for _ in range(20):
            at_s = around + rng.randint(-3, 3) * rng.choice((3600, 86400, 30 * 86400)) + rng.randint(-10, 10)
            assert calendars.end_us(*calendar, at_s * 1_000_000) == calendars.looked_up_end_s(*calendar, at_s) * 1_000_000
