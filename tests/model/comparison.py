"""comparison.py: compares the model with the decisions of the C engine: runs tests/replay, finds, shrinks and prints a difference.

    comparison.py ALGORITHM SEED [memory | redis | valkey | socket]      `./dev model` calls this

replays the trace that `traces.of_seed` makes from ALGORITHM and SEED; a failing test prints both. `socket` asks a whole daemon
(at_socket.py). If the engine and the model differ, the program shrinks the trace (shrink.py), prints it, and exits with
status 1; otherwise with 0.
"""

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))

from harness import Redis, build_dir  # noqa: E402
import at_socket  # noqa: E402
from model import least  # noqa: E402
from shrink import first_steps, shrunk  # noqa: E402
import traces  # noqa: E402

FIELDS = "allowed limit remaining retry_after_ms reset_after_ms delay_ms granted of quota window_ms of_reset_ms bound_by | each limit"
BAD_TRACE = 2  # replay.c's exit status for an invalid trace


def run_replay(text, *arguments):
    """The lines that tests/replay/replay.c prints for a trace."""
    program = build_dir() / "tests" / "replay"
    done = subprocess.run([str(program), *map(str, arguments)], input=text, text=True, capture_output=True, timeout=300)
    if done.returncode == BAD_TRACE:
        raise traces.BadTrace(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def text_of(some, for_server=False):
    """The text of several traces. Some have additional steps for a server."""
    def text(trace):
        return getattr(trace, "text_for_server", trace.text)() if for_server else trace.text()

    return "".join(f"{line}\n" for trace in some for line in text(trace))


def is_of_reset(answer):
    return answer.startswith("removed") if isinstance(answer, str) else isinstance(answer, dict) and "removed" in answer


def same(want, have):
    """Equal, except that on Redis a reset may also remove expired keys."""
    return want == have or is_of_reset(want) and is_of_reset(have)


def is_decision(answer):
    """Not the answer to a reset, or to a release or renewal of a slot."""
    return answer[0] in "01" if isinstance(answer, str) else isinstance(answer, list)


def first_difference(want, have):
    """The index of the first wrong answer; None if there is none."""
    if len(want) != len(have):
        return min(len(want), len(have))
    return next((i for i, (a, b) in enumerate(zip(want, have)) if not same(a, b)), None)


def shown(trace, want, have, at):
    """The trace up to the step that differs."""
    lines = [f"{trace.policy}"]
    lines += [f"  {step}  ->  {answer}" for step, answer in zip(trace.steps()[:at + 1], want)]
    lines += [f"  model {want[at]}", f"  found {have[at] if at < len(have) else 'nothing'}", f"  ({FIELDS})"]
    return "\n".join(lines)


def complaint(name, trace, decide, where, model=lambda trace: trace.expected()):
    """The text to print if `decide` (trace -> lines) and the model differ on the trace of `name`: the shortest such trace that was
    found, and the command to replay it. None if there is no difference."""
    def difference(candidate):
        try:
            return first_difference(model(candidate), decide(candidate))
        except traces.BadTrace:
            return None

    at, n = difference(trace), len(trace.steps())
    if at is None:
        return None
    if at >= n:  # the counts after all steps are wrong, from some step on
        at = least(lambda m: difference(first_steps(trace, m)) is not None, 1, n) - 1
    shortest = shrunk(first_steps(trace, at + 1), lambda candidate: difference(candidate) is not None)
    want, have = model(shortest), decide(shortest)
    at = first_difference(want, have)
    return (f"{name}, seed {trace.seed}: {n} steps, shrunk to {len(shortest.steps())}:\n"
            f"{shown(shortest, want, have, at)}\n"
            f"replay: ./dev model {name} {trace.seed} {where}\n"
            f"for tests/replay/replay.c:\n{text_of([shortest])}")


def main():
    parser = argparse.ArgumentParser(prog="./dev model", description="Replay one trace; shrink it where it fails.")
    parser.add_argument("algorithm", choices=[*traces.EVERY, *traces.COMPAT, traces.PAST, traces.MERGING, traces.UNDOING, *traces.AT_SOCKET])
    parser.add_argument("seed", type=int)
    parser.add_argument("store", nargs="?", default="memory", choices=["memory", *Redis.KINDS, "socket"])
    options = parser.parse_args()
    if options.algorithm in traces.AT_SOCKET and options.store != "socket":
        parser.error(f"{options.algorithm} needs a whole daemon: write socket after the seed")
    trace = traces.of_seed(options.algorithm, options.seed)
    if options.store == "memory":
        wrong = complaint(options.algorithm, trace, lambda t: run_replay(text_of([t]), "memory"), options.store)
    elif options.store == "socket":
        wrong = complaint(options.algorithm, trace, at_socket.decide, options.store, at_socket.results)
    else:
        server = Redis(options.store)
        try:
            with server.client() as client:
                def decide(candidate):
                    client.flushall()
                    return run_replay(text_of([candidate], for_server=True), "redis", server.socket)
                wrong = complaint(options.algorithm, trace, decide, options.store)
        finally:
            server.close()
    print(wrong or f"{options.algorithm}, seed {options.seed}: {len(trace.steps())} steps, all equal to the model")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
