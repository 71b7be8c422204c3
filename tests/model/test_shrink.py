"""test_shrink.py: the comparison finds a fault, shrinks its trace to the few steps that show it, and prints the command to replay
it. The tests put faults into a copy of the model, and compare it with the correct one or with the C engine."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import at_socket  # noqa: E402
import comparison  # noqa: E402
import model  # noqa: E402
import reserving  # noqa: E402
import traces  # noqa: E402


class OneTooMany(model.FixedWindow):
    """Admits one unit above the limit."""

    def admits(self, now, cost):
        return self.count + cost <= self.policy.limit + 1


class FlooredShare(model.SlidingCounter):
    """Rounds the previous window's share down, as several implementations do."""

    def admits(self, now, cost):
        left = (self.window + 1) * self.policy.window_us - now
        return self.previous * left // self.policy.window_us + self.count + cost <= self.policy.limit


class Forgetful(model.SlidingLog):
    """Does not keep the clamped state after the clock stepped back."""

    def see(self, now):
        super().see(now)
        return False


class Late(model.LeakyBucket):
    """Returns a delay that is a whole window too long."""

    def delay(self, now, cost):
        return super().delay(now, cost) and super().delay(now, cost) + self.policy.window_us


def with_fault(monkeypatch, algorithm, fault, of_model=lambda trace: trace.expected()):
    """trace -> the answers of the model with that algorithm replaced."""
    def answers(trace):
        with monkeypatch.context() as patched:
            patched.setitem(model.ALGORITHMS, algorithm, fault)
            return of_model(trace)
    return answers


def first_failing(algorithm, faulty):
    """Among some seeds, the trace that fails earliest: a short trace shrinks quickly."""
    found = {}
    for trace in (traces.of_seed(algorithm, seed) for seed in range(30)):
        at = comparison.first_difference(trace.expected(), faulty(trace))
        if at is not None:
            found.setdefault(at, trace)
    return found[min(found)]


@pytest.mark.parametrize("algorithm, fault, most", [
    ("fixed_window", OneTooMany, 1),
    ("sliding_counter", FlooredShare, 3),
    ("sliding_log", Forgetful, 3),
    ("leaky_bucket", Late, 2),
])
def test_a_planted_fault_is_shrunk_to_the_few_steps_that_show_it(monkeypatch, algorithm, fault, most):
    faulty = with_fault(monkeypatch, algorithm, fault)
    trace = first_failing(algorithm, faulty)
    text = comparison.complaint(algorithm, trace, faulty, "memory")
    print(text)
    assert len([line for line in text.splitlines() if "  ->  " in line]) <= most < len(trace.steps())
    assert f"{algorithm}, seed {trace.seed}: 100 steps, shrunk to " in text
    assert f"replay: ./dev model {algorithm} {trace.seed} memory" in text


@pytest.mark.parametrize("name", ["several", "reserving"])
def test_a_fault_among_several_limits_is_shrunk_too(monkeypatch, name):
    faulty = with_fault(monkeypatch, "fixed_window", OneTooMany)
    trace = first_failing(name, faulty)
    text = comparison.complaint(name, trace, faulty, "memory")
    assert len([line for line in text.splitlines() if "  ->  " in line]) <= 2, text


def never_ending(self, now, name, key):
    """Ended reservations keep their units."""
    self.reservations.setdefault((name, key), [])


def test_what_a_reservation_has_to_do_with_it_is_kept(monkeypatch):
    def faulty(trace):
        with monkeypatch.context() as patched:
            patched.setattr(reserving.Reserving, "take_ended", never_ending)
            return trace.expected()

    trace = first_failing("reserving", faulty)
    text = comparison.complaint("reserving", trace, faulty, "memory")
    kept = [line for line in text.splitlines() if "  ->  " in line]
    assert len(kept) == 2 and "reserve" in kept[0], text
    assert f"replay: ./dev model reserving {trace.seed} memory" in text


def test_what_differs_at_the_socket_is_shrunk_with_a_daemon(monkeypatch):
    faulty = with_fault(monkeypatch, "fixed_window", OneTooMany, at_socket.results)
    trace = comparison.first_steps(traces.of_seed("fixed_window", 5), 30)
    text = comparison.complaint("fixed_window", trace, at_socket.decide, "socket", model=faulty)
    assert len([line for line in text.splitlines() if "  ->  " in line]) == 1, text
    assert "replay: ./dev model fixed_window 5 socket" in text
    assert comparison.complaint("fixed_window", trace, at_socket.decide, "socket", model=at_socket.results) is None


def test_what_differs_from_the_engine_is_shrunk_with_the_engine(monkeypatch):
    faulty = with_fault(monkeypatch, "fixed_window", OneTooMany)

    def engine(trace):
        return comparison.run_replay(comparison.text_of([trace]), "memory")

    trace = first_failing("fixed_window", faulty)
    text = comparison.complaint("fixed_window", trace, engine, "memory", model=faulty)
    replayable = text[text.index("policy fixed_window-"):]
    assert len([line for line in text.splitlines() if "  ->  " in line]) == 1, text
    assert len(comparison.run_replay(replayable, "memory")) == 1
    assert comparison.complaint("fixed_window", trace, engine, "memory") is None


@pytest.mark.parametrize("name", traces.EVERY + traces.COMPAT + traces.AT_SOCKET)
def test_a_seed_is_one_trace_for_ever(name):
    assert list(traces.of_seed(name, 7).text()) == list(traces.of_seed(name, 7).text())


def test_a_named_seed_is_replayed_by_one_command():
    done = subprocess.run([sys.executable, str(Path(comparison.__file__)), "sliding_counter", "12"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "sliding_counter, seed 12: 100 steps, all equal to the model\n"), done.stderr
