"""conftest.py: one real server for all tests of the script, the script itself, the judge, and what the model says to its
traces."""

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
from harness import Redis  # noqa: E402
from judge import run_judge  # noqa: E402
from stitch import stitch  # noqa: E402

DECISIONS = 100_000  # of each algorithm, at the least, by each way to ask it
COUNTED = (*traces.NATIVE, *traces.COMPAT, "slots")
N_TRACES = {**dict.fromkeys(COUNTED, 1030), "slots": 1550, "several": 1000, "steps": 1000, "shared": 300, "reserving": 400,
            traces.PAST: 1000, "candidate": 400}


class Judged(NamedTuple):
    trace: object
    lines: list  # the model's answers, as the judge prints them
    at_socket: bytes  # and as the socket gives them; packed, for there are many


def judge_one(trace):
    answers = trace.answers()
    return Judged(trace, trace.lines(answers), msgpack.packb(at_socket.results(trace, answers)))


@pytest.fixture(scope="session")
def judged():
    """judged(name) -> [Judged], worked out once."""
    known = {}

    def look_up(name):
        if name not in known:
            made = [traces.of_seed(name, seed) for seed in range(N_TRACES[name])]
            with ProcessPoolExecutor() as pool:
                known[name] = list(pool.map(judge_one, made, chunksize=50))
        return known[name]

    return look_up


@pytest.fixture(scope="session")
def enough():
    """enough(name, n): are so many decisions what is promised for an algorithm? Of other names none are counted."""
    return lambda name, n: n >= (DECISIONS if name in COUNTED else 1)


@pytest.fixture(scope="session", params=Redis.KINDS)
def server(request):
    if not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    redis = Redis(request.param)
    yield redis
    redis.close()


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
def judge_memory():
    """judge_memory(trace) -> the answers of the C algorithms on the memory store."""
    return lambda trace: run_judge(trace, "memory")


@pytest.fixture
def judge_redis(server):
    """judge_redis(trace, max_keys, merge) -> the answers of the script on a real server."""
    return lambda trace, *options: run_judge(trace, "redis", server.socket, *options)
