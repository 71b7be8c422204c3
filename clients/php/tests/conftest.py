"""conftest.py: a real daemon, and the example service under a real php-fpm behind nginx."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from gateways import PHP, daemon_with, start_php  # noqa: E402

POLICIES = """
policies:
  web: {algorithm: fixed_window, limit: 100, window: 1m, start: first_hit}
  login: {algorithm: fixed_window, limit: 3, window: 1m, start: first_hit}
  tenant: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
  slow: {algorithm: concurrency, limit: 1}
  stream: {algorithm: concurrency, limit: 1}
  budget: {algorithm: token_bucket, limit: 10, window: 1m}
inline: {allow: true}
"""


@pytest.fixture
def daemon():
    started = daemon_with(POLICIES)
    yield started
    started.close()


@pytest.fixture
def service(tmp_path, daemon):
    """service([SCRIPT], NAME=VALUE...): the example service, or another script, with this environment."""
    started = []

    def start(script=PHP / "examples" / "service.php", **env):
        own = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""}  # a line comes once in a while for all programs of a user
        started.extend(start_php(tmp_path, script, {"RATELIMIT_SOCKET": daemon.socket, "TIMEOUT_MS": "10000", **own, **env}))
        return started[-2]

    yield start
    for process in started:
        process.close()

