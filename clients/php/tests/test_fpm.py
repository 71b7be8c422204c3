"""test_fpm.py: what the workers of PHP-FPM know together, because each request begins with nothing: in APCu, and without it
in files."""

import os
import stat

import pytest
from gateways import PHP, eventually, set_clock, start_php

SCRIPT = PHP / "tests" / "ask.php"
KINDS = [pytest.param(("apcu",), id="apcu"), pytest.param((), id="files")]


@pytest.fixture
def start(tmp_path, daemon):
    """start(EXTENSIONS): the script under php-fpm, with a folder `own` for its files."""
    started = []

    def of(extensions, **env):
        (tmp_path / "own").mkdir(exist_ok=True)
        env = {"RATELIMIT_SOCKET": daemon.socket, "TMPDIR": str(tmp_path / "own"), "XDG_RUNTIME_DIR": "", **env}
        started.extend(start_php(tmp_path, SCRIPT, env, extensions=extensions))
        return started[-2]

    yield of
    for one in started:
        one.close()


def ask(gateway, path="/?policy=web"):
    status, _, body = gateway.get(path)
    assert status == 200, body
    return body


def until(gateway, wanted, path="/?policy=web"):
    """What the requests came to, up to the first one that came to this."""
    found = []

    def is_there():
        found.append(ask(gateway, path))
        return found[-1].startswith(wanted)

    eventually(is_there, f"a request that comes to {wanted}")
    return found


@pytest.mark.parametrize("extensions", KINDS)
def test_a_hung_daemon_costs_the_workers_three_timeouts_together_and_not_each_request_one(start, daemon, tmp_path, extensions):
    gateway = start(extensions)
    daemon.pause()
    try:
        found = until(gateway, "breaker")
        assert found.count("timeout") >= 3 and set(found) == {"timeout", "breaker"}
        until(gateway, "timeout")  # after a second one request tries again
        until(gateway, "breaker")
    finally:
        daemon.resume()
    until(gateway, "allowed")
    assert ask(gateway).startswith("allowed"), "an answer ends it for all"
    files = list((tmp_path / "own").rglob("breaker.*"))
    assert len(files) == (0 if extensions else 1)


@pytest.mark.parametrize("extensions", KINDS)
def test_failures_are_logged_once_in_ten_seconds_by_all_workers_together(start, daemon, extensions):
    gateway = start(extensions, TIMEOUT_MS="10000")
    daemon.kill()
    for _ in range(8):
        assert ask(gateway) == "unreachable"
    eventually(lambda: "no decision from the rate limiter" in gateway.errors(), "a line in the log")
    assert gateway.errors().count("no decision from the rate limiter") == 1


def test_denials_are_remembered_by_all_workers_together_in_apcu(start, daemon):
    gateway = start(("apcu",), TIMEOUT_MS="10000")
    found = until(gateway, "denied deny_cache", "/")
    assert found == ["allowed memory"] * 3 + ["denied memory", "denied deny_cache"]
    assert {ask(gateway, "/") for _ in range(8)} == {"denied deny_cache"}
    assert ask(gateway, "/?reset") == "reset"
    assert ask(gateway, "/") == "allowed memory", "reset forgets it"


def test_without_apcu_each_request_remembers_for_itself(start, daemon):
    gateway = start((), TIMEOUT_MS="10000")
    until(gateway, "denied memory", "/")
    assert ask(gateway, "/") == "denied memory"
    set_clock(daemon, 60)
    assert ask(gateway, "/") == "allowed memory"


def test_the_folder_is_the_users_own(start, daemon, tmp_path):
    gateway = start((), TIMEOUT_MS="10000")
    daemon.kill()
    ask(gateway)
    folder = tmp_path / "own" / f"ratelimitd-php-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("make", ["a link", "open to others"])
def test_a_folder_that_others_can_write_is_not_believed(start, daemon, tmp_path, make):
    """Another user who can write there could otherwise stop all asking for ever."""
    folder = tmp_path / "own" / f"ratelimitd-php-{os.geteuid()}"
    real = tmp_path / "real" if make == "a link" else folder
    real.mkdir(parents=True, mode=0o700)
    real.chmod(0o700 if make == "a link" else 0o777)
    if make == "a link":
        folder.parent.mkdir(exist_ok=True)
        folder.symlink_to(real)
    gateway = start(())
    daemon.pause()
    try:
        assert [ask(gateway) for _ in range(5)] == ["timeout"] * 5
    finally:
        daemon.resume()
    assert list(real.iterdir()) == []
