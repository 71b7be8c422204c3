"""conftest.py: one real server for all tests of the script, the script itself, and the judge."""

import hashlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT / "tests" / "model"))
sys.path.insert(0, str(ROOT / "lua"))

from harness import Redis  # noqa: E402
from judge import run_judge  # noqa: E402
from stitch import stitch  # noqa: E402


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
