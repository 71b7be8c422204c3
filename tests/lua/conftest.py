"""conftest.py: one real server for all tests of the script, the script itself, the replay program, and the answers of the
model."""

import hashlib
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgpack
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT / "tests" / "model"))
sys.path.insert(0, str(ROOT / "lua"))

import at_socket  # noqa: E402
import traces  # noqa: E402
from harness import Redis, one_server  # noqa: E402
from comparison import run_replay  # noqa: E402
from stitch import stitch  # noqa: E402

DECISIONS = 30_000  # at least, for each algorithm and each way to run it; ./dev soak model makes any number of others
COUNTED = (*traces.NATIVE, *traces.COMPAT, "slots")
N_TRACES = {**dict.fromkeys(COUNTED, 310), "slots": 470, "several": 350, "steps": 350, "shared": 120, "overridden": 120, "networked": 120, "reserving": 150, "admitting": 150,
            traces.PAST: 310, "candidate": 250, traces.MERGING: 150, traces.UNDOING: 150}


class Expected(NamedTuple):
    trace: object
    lines: list  # the model's answers, in the format of the replay program
    at_socket: bytes  # and in the form of the socket; packed, because there are many


def is_asked(trace):
    """Can a client ask for all of its steps?"""
    return not any(kind in ("merge", "undo") for _, kind, *_ in trace.steps())


def expect_of(trace):
    answers = trace.answers()
    return Expected(trace, trace.lines(answers), msgpack.packb(at_socket.results(trace, answers) if is_asked(trace) else None))


@pytest.fixture(scope="session")
def expected_of():
    """expected_of(name) -> [Expected], computed once."""
    known = {}

    def look_up(name):
        if name not in known:
            made = [traces.of_seed(name, seed) for seed in range(N_TRACES[name])]
            with ProcessPoolExecutor() as pool:
                known[name] = list(pool.map(expect_of, made, chunksize=50))
        return known[name]

    return look_up


@pytest.fixture(scope="session")
def enough():
    """enough(name, n): are n decisions as many as promised for an algorithm? Other names need only one."""
    return lambda name, n: n >= (DECISIONS if name in COUNTED else 1)


@pytest.fixture(scope="session", params=Redis.KINDS)
def server(request):
    yield from one_server(request.param)


@pytest.fixture
def redis(server):
    """A client of an empty server."""
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def script():
    return stitch(ROOT)


@pytest.fixture
def sha(redis, script):
    digest = redis.script_load(script)
    assert digest == hashlib.sha1(script.encode()).hexdigest()
    return digest


@pytest.fixture(scope="session")
def replay_memory():
    """replay_memory(trace) -> the answers of the C algorithms on the memory store."""
    return lambda trace: run_replay(trace, "memory")


@pytest.fixture
def replay_redis(server):
    """replay_redis(trace, max_keys, merge) -> the answers of the script on a real server."""
    return lambda trace, *options: run_replay(trace, "redis", server.socket, *options)
