"""conftest.py: one real server for all tests of the script, the script itself, and the judge."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT / "lua"))

from harness import Redis, build_dir  # noqa: E402
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


@pytest.fixture
def judge(server):
    """judge(trace, "memory") or judge(trace, "redis", max_keys, merge) -> the lines of tests/judge/judge.c."""

    def run(trace, store, *options):
        where = [server.socket] if store == "redis" else []
        program = build_dir() / "tests" / "judge"
        done = subprocess.run([str(program), store, *where, *map(str, options)], input=trace, text=True,
                              capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
