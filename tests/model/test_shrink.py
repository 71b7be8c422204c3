"""test_shrink.py: a fault is found, its trace is shrunk to the few steps that show it, and both are named so that anyone
can replay them. The faults are planted: in the model, which is then held against the true one or the C engine."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import at_socket  # noqa: E402
import judge  # noqa: E402
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
    """Does not write down what a clock that steps back has clamped."""

    def see(self, now):
        super().see(now)
        return False


class Late(model.LeakyBucket):
    """Tells a delay that is a whole window too long."""

    def delay(self, now, cost):
        return super().delay(now, cost) and super().delay(now, cost) + self.policy.window_us


def with_fault(monkeypatch, algorithm, fault, said=lambda trace: trace.expected()):
    """trace -> what the model says with that algorithm replaced."""
    def answers(trace):
        with monkeypatch.context() as patched:
            patched.setitem(model.ALGORITHMS, algorithm, fault)
            return said(trace)
    return answers


def first_failing(algorithm, faulty):
    """Of some seeds the trace that fails earliest: what is known by its first steps is shrunk quickly."""
    found = {}
    for trace in (traces.of_seed(algorithm, seed) for seed in range(30)):
        at = judge.first_difference(trace.expected(), faulty(trace))
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
    text = judge.complaint(algorithm, trace, faulty, "memory")
    print(text)
    assert len([line for line in text.splitlines() if "  ->  " in line]) <= most < len(trace.steps())
    assert f"{algorithm}, seed {trace.seed}: 100 steps, shrunk to " in text
    assert f"replay: ./dev model {algorithm} {trace.seed} memory" in text


@pytest.mark.parametrize("name", ["several", "reserving"])
def test_a_fault_among_several_limits_is_shrunk_too(monkeypatch, name):
    faulty = with_fault(monkeypatch, "fixed_window", OneTooMany)
    trace = first_failing(name, faulty)
    text = judge.complaint(name, trace, faulty, "memory")
    assert len([line for line in text.splitlines() if "  ->  " in line]) <= 2, text


def never_ending(self, now, name, key):
    """Holds that have ended keep what they hold."""
    self.holds.setdefault((name, key), [])


def test_what_a_reservation_has_to_do_with_it_is_kept(monkeypatch):
    def faulty(trace):
        with monkeypatch.context() as patched:
            patched.setattr(reserving.Reserving, "take_ended", never_ending)
            return trace.expected()

    trace = first_failing("reserving", faulty)
    text = judge.complaint("reserving", trace, faulty, "memory")
    kept = [line for line in text.splitlines() if "  ->  " in line]
    assert len(kept) == 2 and "reserve" in kept[0], text
    assert f"replay: ./dev model reserving {trace.seed} memory" in text


def test_what_differs_at_the_socket_is_shrunk_with_a_daemon(monkeypatch):
    faulty = with_fault(monkeypatch, "fixed_window", OneTooMany, at_socket.results)
    trace = judge.first_steps(traces.of_seed("fixed_window", 5), 30)
    text = judge.complaint("fixed_window", trace, at_socket.decide, "socket", model=faulty)
    assert len([line for line in text.splitlines() if "  ->  " in line]) == 1, text
    assert "replay: ./dev model fixed_window 5 socket" in text
    assert judge.complaint("fixed_window", trace, at_socket.decide, "socket", model=at_socket.results) is None


def test_what_differs_from_the_engine_is_shrunk_with_the_engine(monkeypatch):
    faulty = with_fault(monkeypatch, "fixed_window", OneTooMany)

    def engine(trace):
        return judge.run_judge(judge.text_of([trace]), "memory")

    trace = first_failing("fixed_window", faulty)
    text = judge.complaint("fixed_window", trace, engine, "memory", model=faulty)
    replayable = text[text.index("policy fixed_window-"):]
    assert len([line for line in text.splitlines() if "  ->  " in line]) == 1, text
    assert len(judge.run_judge(replayable, "memory")) == 1
    assert judge.complaint("fixed_window", trace, engine, "memory") is None


@pytest.mark.parametrize("name", traces.EVERY + traces.COMPAT + traces.AT_SOCKET)
def test_a_seed_is_one_trace_for_ever(name):
    assert list(traces.of_seed(name, 7).text()) == list(traces.of_seed(name, 7).text())


def test_a_named_seed_is_replayed_by_one_command():
    done = subprocess.run([sys.executable, str(Path(judge.__file__)), "sliding_counter", "12"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "sliding_counter, seed 12: 100 steps, all as the model says\n"), done.stderr
