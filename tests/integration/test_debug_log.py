"""test_debug_log.py: the additional lines of log.level debug: connections, the connection to Redis, reloads; never a check."""

import os
import re
import time

import pytest

CONFIG = """
log: {level: debug}
defaults: {deadline: 5s}
policies:
  login: {algorithm: fixed_window, limit: 1, window: 1d}
"""


@pytest.fixture
def served(ratelimitd, connect):
    """A daemon with this log level, and a client of it."""
    def start(**options):
        daemon = ratelimitd(CONFIG, **options)
        return daemon, connect(daemon)

    return start


WHO = f"uid {os.getuid()} pid {os.getpid()}"


def test_debug_shows_each_connection_with_its_process(served):
    daemon, client = served()
    daemon.wait_for_log(f"debug: connection 1 opened: {WHO}$")
    client.close()
    daemon.wait_for_log(f"debug: connection 1 closed: {WHO}: the client closed it$")


def test_debug_logs_why_a_connection_was_closed(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    broken = connect(daemon)
    broken.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert broken.recv()[2]
    assert broken.at_end()
    broken.close()
    daemon.wait_for_log("connection 1 closed: .*: .*MessagePack-RPC|connection 1 closed: .*: a message must be")
    half = connect(daemon)
    half.half_close()
    assert half.at_end()
    daemon.wait_for_log("connection 2 closed: .*: the client closed it$")
    last = connect(daemon)
    last.call("ping")
    daemon.stop()
    daemon.wait_for_log("connection 3 closed: .*: the daemon is stopping$")


def test_debug_names_the_setting_by_which_an_idle_connection_ended(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    text = daemon.path.read_text().replace('mode: "0600"', 'mode: "0600"\n  idle_timeout: 50ms')
    daemon.path.write_text(text)
    daemon.reload()
    client = connect(daemon)
    assert client.at_end()
    daemon.wait_for_log("connection 1 closed: .*: it asked nothing for listen.idle_timeout$")


def test_debug_shows_the_steps_of_a_reload(served):
    daemon, _client = served()
    daemon.reload()
    for step in (f"reading {re.escape(str(daemon.path))}", "the file was read, with 0 mistakes",
                 "1 policies in force, 1 will be", "of the replaced sets of policies 1 go now"):
        daemon.wait_for_log(f"debug: reload: {step}")


def test_debug_shows_attempts_to_reach_redis_and_its_error_replies(served, redis):
    daemon, client = served(redis=redis)
    daemon.wait_for_log("debug: Redis, since the last look: attempts to connect 1; now: ")
    with redis.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-evalsha")
    client.check("login", "k")
    daemon.wait_for_log("debug: Redis, since the last look: .*error replies")
    daemon.wait_for_log("debug: Redis, the last error reply: NOPERM")
    redis.stop()
    daemon.wait_for_log("debug: Redis, since the last look: .*connections lost")
    daemon.wait_for_log("debug: Redis, since the last look: .*failed attempts")


def test_debug_shows_each_step_to_redis(served, redis):
    daemon, client = served(redis=redis)
    for step in (rf"connecting to {re.escape(redis.address)}", "connected", "HELLO done", "script loaded", "connection ready"):
        daemon.wait_for_log(f"debug: Redis: {step}$")
    with redis.client() as admin:
        admin.script_flush()
        client.check("login", "k")
        daemon.wait_for_log("debug: Redis error: NOSCRIPT")
        daemon.wait_for_log("debug: Redis: script loaded again$")
        admin.execute_command("ACL", "SETUSER", "default", "-evalsha")
        client.check("login", "k")
        daemon.wait_for_log("debug: Redis error: NOPERM .*evalsha")
    redis.stop()
    daemon.wait_for_log(r"debug: Redis: connection lost: .*; next attempt in \d+ ms$")
    daemon.wait_for_log(r"debug: Redis: no connection: .*; next attempt in \d+ ms$")


def test_steps_to_redis_are_so_many_a_second(ratelimitd, redis):
    """500 attempts a second; the lines have the number of suppressed ones."""
    daemon = ratelimitd(CONFIG, redis=redis, redis_options={"reconnect": "{min: 1ms, max: 1ms}"})
    redis.stop()
    daemon.wait_for_log(r"debug: Redis: .*\(\d+ like it held back\)")
    n, began = len(daemon.log), time.monotonic()
    time.sleep(2)
    lines = [line for line in daemon.log[n:] if "debug: Redis: " in line]
    assert len(lines) <= 20 * (time.monotonic() - began + 2)


def test_debug_shows_that_the_password_was_taken_and_never_the_password(ratelimitd, redis, tmp_path):
    password = tmp_path / "password"
    password.write_text("sesame")
    with redis.client() as admin:
        admin.execute_command("ACL", "SETUSER", "rl", "on", ">sesame", "~*", "+@all")
    daemon = ratelimitd(CONFIG, redis=redis, redis_options={"username": "rl", "password_file": password, "database": 3})
    for step in ("HELLO and AUTH done", "database selected", "script loaded", "connection ready"):
        daemon.wait_for_log(f"debug: Redis: {step}$")
    assert "sesame" not in daemon.text()


def test_debug_never_logs_a_line_for_a_check(served):
    daemon, client = served()
    client.call("ping")
    n = len(daemon.log)
    for number in range(200):
        client.check("login", f"key-{number % 2}")
    client.call("check_many", [["login", "k"]] * 200)
    client.call("stats")
    daemon.stop()
    assert len(daemon.log) - n < 20, daemon.text()
