"""Many clients with lists of thousands of checks, next to one that sends one check at a time."""

import signal
import socket

import msgpack
import pytest

from harness import PATIENCE_S, Redis, eventually

N_FLOODS = 8
N_CHECKS = 8000
CONFIG = """
defaults: {deadline: 10s}   # a busy machine is slow
policies:
  f: {algorithm: token_bucket, limit: 1000000, window: 1s}
  polite: {algorithm: fixed_window, limit: 100, window: 1d}
"""


def frame(n, key="f", policy="f", msgid=1):
    """A check_many of n checks; 8000 of them are just within caps.max_frame where the names are short."""
    return msgpack.packb([0, msgid, "check_many", [[[policy, key]] * n]])


def flooder(daemon, request):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE_S * 3)
    connection.connect(daemon.socket)
    connection.sendall(request)
    return connection


def responses(connection, n=None):
    """The next n, or all until the daemon closes."""
    unpacker, found = msgpack.Unpacker(raw=False, max_buffer_size=1 << 26), []
    while n is None or len(found) < n:
        piece = connection.recv(1 << 20)
        if not piece:
            break
        unpacker.feed(piece)
        found.extend(unpacker)
    return found


@pytest.fixture(params=["memory", "redis"])
def daemon(request, ratelimitd):
    if request.param == "memory":
        yield ratelimitd(CONFIG)
        return
    redis = Redis()
    try:
        yield ratelimitd(CONFIG, redis=redis)
    finally:
        redis.close()


def test_eight_check_many_floods_next_to_a_polite_client(daemon):
    """Every client gets all its answers, and the polite client gets them during the floods."""
    with daemon.client() as polite:
        floods = [flooder(daemon, frame(N_CHECKS, f"{i}") * 2) for i in range(N_FLOODS)]
        for i in range(20):
            assert polite.check("polite", "p")["remaining"] == 99 - i
        for flood in floods:
            for _, msgid, error, result in responses(flood, 2):
                assert (msgid, error, len(result)) == (1, None, N_CHECKS)
                assert all(decision["allowed"] for decision in result)
            flood.close()
        stats = polite.call("stats")
        assert stats["checks"] == N_FLOODS * 2 * N_CHECKS + 20
        assert stats["overloaded"] == 0 and stats["inflight"] == 0


def test_floods_that_leave(daemon):
    with daemon.client() as client:
        for _ in range(3):
            for flood in [flooder(daemon, frame(N_CHECKS)) for _ in range(N_FLOODS)]:
                flood.close()
        eventually(lambda: client.call("stats")["connections"] == 1, "they are forgotten")
        eventually(lambda: client.call("stats")["inflight"] == 0, "and so are their checks")
        assert client.check("polite", "p")["remaining"] == 99


def test_a_drain_amid_floods(daemon):
    """Each list is answered in full or refused, and the daemon ends after the last one."""
    floods = [flooder(daemon, frame(N_CHECKS)) for _ in range(N_FLOODS)]
    with daemon.client() as client:
        eventually(lambda: client.call("stats")["requests"] > N_FLOODS / 2, "some of the lists are under way")
    daemon.signal(signal.SIGTERM)
    for flood in floods:
        for _, msgid, error, result in responses(flood):
            assert msgid == 1
            assert error.startswith("SHUTTING_DOWN: ") if error else len(result) == N_CHECKS
    assert daemon.wait(PATIENCE_S * 2) == 0


def test_more_checks_than_may_ever_be_in_flight(ratelimitd):
    daemon = ratelimitd(CONFIG + "caps: {max_inflight: 1000}\n")
    with daemon.client() as client:
        flood = flooder(daemon, frame(1001) + frame(1000, msgid=2))
        refused, answered = responses(flood, 2)
        assert refused[2] == "BAD_REQUEST: 1001 checks in one request; caps.max_inflight is 1000, split the list"
        assert answered[1:3] == [2, None] and len(answered[3]) == 1000
        assert client.call("stats")["overloaded"] == 0
        flood.close()


def test_checks_that_one_client_has_left_in_redis_are_no_other_clients_overload(ratelimitd, redis):
    """Earlier, all together were counted: 100 late checks of one client made every other client's `overload`."""
    config = CONFIG.replace("deadline: 10s", "deadline: 100ms, on_failure: local")
    daemon = ratelimitd(config + "caps: {max_inflight: 100}\n", redis=redis)
    with daemon.client() as heavy, daemon.client() as polite:
        eventually(lambda: polite.check("polite", "p")["source"] == "redis", "Redis is connected")
        assert heavy.check("f", "k")["source"] == "redis"
        redis.pause()
        late = heavy.call("check_many", [["f", f"k{i}"] for i in range(100)])
        assert {answer["reason"] for answer in late} == {"deadline"}
        assert heavy.check("f", "k")["reason"] == "overload"
        assert polite.check("polite", "p")["reason"] == "deadline"
        redis.resume()
        eventually(lambda: heavy.check("f", "k")["source"] == "redis", "Redis has answered what was left in it")
        assert polite.call("stats")["overloaded"] == 0


def start_listening(ratelimitd, settings, **options):
    """A daemon with more settings under `listen`."""
    daemon = ratelimitd(f"{CONFIG}\nlisten: {{socket: SOCKET, {settings}}}\n", start=False, **options)
    daemon.path.write_text(daemon.path.read_text().replace("SOCKET", daemon.socket))
    daemon.start()
    return daemon


def test_a_client_that_reads_a_large_answer_loses_no_later_answer(ratelimitd):
    """Earlier, the daemon closed it as slow while it wrote the large answer, and charged answers were lost."""
    redis = Redis()
    daemon = start_listening(ratelimitd, "max_output: 4KiB", redis=redis)
    try:
        checks = b"".join(msgpack.packb([0, msgid, "check", ["f", f"k{msgid}"]]) for msgid in range(2, 1002))
        for _ in range(5):
            client = flooder(daemon, frame(4000) + checks)
            found = responses(client, 1001)
            assert sorted(msgid for _, msgid, _, _ in found) == list(range(1, 1002))
            assert all(error is None for _, _, error, _ in found)
            client.close()
        with daemon.client() as client:
            assert client.call("stats")["connections_closed_slow"] == 0
    finally:
        daemon.stop()
        redis.close()


def test_clients_that_read_nothing_do_not_fill_the_memory_together(ratelimitd):
    """Each client may leave a megabyte unread, but all together no more than listen.max_output_total."""
    daemon = start_listening(ratelimitd, "max_output_total: 2MiB, write_stall: 1h")
    deaf = [flooder(daemon, frame(N_CHECKS) * 2) for _ in range(N_FLOODS)]  # 2 x 800 KiB of answers each
    with daemon.client() as client:
        eventually(lambda: client.call("stats")["connections_closed_unread"] > 0, "the longest stalled is closed")
        eventually(lambda: client.call("stats")["unread_bytes"] <= 2 << 20, "until the rest is little enough")
        assert client.call("stats")["connections_closed_slow"] == 0
        assert client.check("polite", "p")["allowed"]
    for connection in deaf:
        connection.close()
