"""test_harness.py: the servers of the other tests work, and the log of their processes."""

import os
import sys
import threading

from harness import Lines, Process


def test_a_server_comes_back_empty_after_a_restart(redis):
    with redis.client() as client:
        client.set("key", "value")
    redis.restart()
    with redis.client() as client:
        assert client.get("key") is None


def test_a_server_answers_on_tcp_where_asked_for(start_redis):
    server = start_redis(tcp=True)
    assert server.address == f"127.0.0.1:{server.port}"
    with server.client() as client:
        assert client.config_get("port")["port"] == str(server.port)


def test_a_killed_server_can_be_started_again(redis):
    redis.kill()
    assert not redis.running
    redis.start()
    with redis.client() as client:
        assert client.ping()


def test_a_line_that_was_written_before_an_answer_is_in_the_log_after_it(monkeypatch):
    """Tests looked for it in vain if the thread that reads the log was late."""
    may_read = threading.Event()
    follow = Lines._follow  # noqa: SLF001
    monkeypatch.setattr(Lines, "_follow", lambda lines: may_read.wait() and follow(lines))
    process, (answers, its_end) = Process(), os.pipe()
    program = f"import os, sys; os.write(2, b'a line\\nhalf of'); os.write({its_end}, b'!'); sys.stdin.read(); os.write(2, b' one')"
    process.spawn([sys.executable, "-c", program], pass_fds=[its_end])
    assert os.read(answers, 1) == b"!"
    assert process.log[0] == "a line"
    may_read.set()
    process.wait()
    assert process.log == ["a line", "half of one"]
    os.close(answers)
    os.close(its_end)
