"""Attacks that need more than the bytes of one message: peers that stall, flood, leave, send descriptors, or are too many. Each
test is an item live/... of proto/vectors/SECTIONS. test_vectors.py has the hostile bytes.

After each test the daemon still serves a well-behaved client. Tests of peers that could make it grow check its memory."""

import array
import os
import pwd
import socket
import struct
import subprocess
import sys
import threading

import msgpack
import pytest

from harness import PATIENCE_S, ROOT, eventually, program

sys.path.insert(0, str(ROOT / "tests"))
import vectors as golden  # noqa: E402

CONFIG = (golden.FOLDER / "ratelimitd.yaml").read_text()
PING = b"\x94\x00\x01\xa4ping\x90"
PONG = b"\x94\x01\x01\xc0\xa4pong"
GROWTH_KIB = 64 * 1024  # how much more memory one peer may cost a daemon
SMALL_QUARANTINE = {"ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:halt_on_error=1:quarantine_size_mb=4"}


def raw(daemon, timeout_s=PATIENCE_S):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    connection.connect(daemon.socket)
    return connection


def read_to_end(connection):
    """Everything until the daemon closes."""
    data = bytearray()
    try:
        while piece := connection.recv(1 << 20):
            data += piece
    except ConnectionResetError:
        pass
    return bytes(data)


def messages(data):
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(data)
    return list(unpacker)


def resident_kib(daemon):
    with open(f"/proc/{daemon.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def n_descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def serves(daemon):
    with daemon.client() as client:
        return client.call("ping") == "pong" and client.check("api", "bystander")["allowed"]


@pytest.fixture
def start(ratelimitd):
    """Starts the daemon of proto/vectors/ratelimitd.yaml, with one more setting under `listen`."""
    def begin(listen=""):
        daemon = ratelimitd(CONFIG, env=SMALL_QUARANTINE, start=False)
        daemon.path.write_text(daemon.path.read_text().replace("listen:\n", f"listen:\n  {listen}\n"))
        daemon.start()
        return daemon

    return begin


@pytest.fixture
def daemon(start):
    daemon = start()
    yield daemon
    assert serves(daemon)


# ---- the rules of what is accepted and sent -------------------------------------------------------------------


def test_half_close(daemon):
    with raw(daemon) as connection:
        connection.sendall(PING * 1000)
        connection.shutdown(socket.SHUT_WR)
        assert read_to_end(connection) == PONG * 1000


def test_one_response(daemon):
    """Good, bad and unknown calls and notifications in one stream: one answer for each request, none for the rest."""
    requests = []
    for msgid in range(0, 400, 4):
        requests += [[0, msgid, "check", ["api", "k"]], [0, msgid + 1, "check", ["api", ""]], [0, msgid + 2, "nope", []],
                     [0, msgid + 3, "check_many", [[["api", "a"], ["api", "b"]]]], [2, "check", ["api", "k"]]]
    with raw(daemon) as connection:
        connection.sendall(b"".join(map(msgpack.packb, requests)))
        connection.shutdown(socket.SHUT_WR)
        answers = messages(read_to_end(connection))
    assert sorted(answer[1] for answer in answers) == list(range(400))
    assert all((answer[2] is None) != (answer[3] is None) for answer in answers)


def test_overtaking(daemon, connect):
    """The calls take effect in the order sent, whatever the order of the answers."""
    client = connect(daemon)
    sent = [client.send("check", "login", "k") for _ in range(7)]
    answers = [client.answer(msgid) for msgid in sent]
    assert [answer["remaining"] for answer in answers] == [4, 3, 2, 1, 0, 0, 0]
    assert [answer["allowed"] for answer in answers] == [True] * 5 + [False] * 2


# ---- framing and size -----------------------------------------------------------------------------------------


def test_one_byte_then_idle(start):
    daemon = start(listen="idle_timeout: 100ms")
    with raw(daemon) as connection:
        connection.sendall(b"\x94")
        assert read_to_end(connection) == b""
    assert serves(daemon)


def test_huge_header_then_idle(daemon):
    """The daemon waits for a text that just fits the frame, but reserves no memory for it."""
    before = resident_kib(daemon)
    waiting = [raw(daemon) for _ in range(500)]
    for connection in waiting:
        connection.sendall(b"\x94\x00\x01\xa4ping\x91\xc6\x00\x00\xff\x00")
    assert serves(daemon)
    assert resident_kib(daemon) - before < GROWTH_KIB / 4
    for connection in waiting:
        connection.close()


def test_million_tiny_frames(daemon):
    n = 1_000_000
    before = resident_kib(daemon)
    with raw(daemon, timeout_s=5 * PATIENCE_S) as connection:  # of the whole sendall()
        writer = threading.Thread(target=connection.sendall, args=(PING * n,))
        writer.start()
        seen = 0
        while seen < n * len(PONG):
            data = connection.recv(1 << 20)
            assert data
            seen += len(data)
        writer.join()
    assert seen == n * len(PONG)
    assert resident_kib(daemon) - before < GROWTH_KIB


# ---- values of the configuration ------------------------------------------------------------------------------


def exit_of_policy(tmp_path, settings):
    path = tmp_path / "ratelimitd.yaml"
    path.write_text(f"policies:\n  p: {{algorithm: fixed_window, {settings}}}\n")
    done = subprocess.run([program("ratelimitd"), "-c", str(path), "--check-config"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0 or f"{path}:2:" in done.stderr
    return done.returncode


@pytest.mark.parametrize("limit, exit_code", [
    ("0", 0), ("1", 0), (2**31, 0), (2**34, 0), (2**34 + 1, 3), (2**53 - 1, 3), (2**53, 3), (2**53 + 1, 3), (2**63, 3),
    (2**64 - 1, 3), (2**64, 3), ("-1", 3), ("1.5", 3), (".nan", 3), (".inf", 3), ('""', 3), ("[]", 3)])
def test_limit_values(tmp_path, limit, exit_code):
    assert exit_of_policy(tmp_path, f"limit: {limit}, window: 1s") == exit_code


@pytest.mark.parametrize("window, exit_code", [
    ("1ms", 0), ("1s", 0), ("1d", 0), ("0s", 3), ("0", 3), ("-1s", 3), ("10", 3), (f"{2**53}ms", 3), (f"{2**63}us", 3),
    (f"{2**64}s", 3), ("1.5s", 3), ('""', 3)])
def test_window_values(tmp_path, window, exit_code):
    assert exit_of_policy(tmp_path, f"limit: 5, window: {window}") == exit_code


# ---- behaviour ------------------------------------------------------------------------------------------------


def send_until_blocked(connection, data):
    """The number of bytes that the socket accepts while the daemon does not read."""
    connection.settimeout(0.3)
    sent = 0
    try:
        while True:
            sent += connection.send(data)
    except (TimeoutError, BrokenPipeError):  # on a busy machine the daemon may have closed it already
        return sent


def test_sends_and_never_reads(start):
    """The daemon stops reading from it, so no memory fills. Then it closes the connection, because the client reads nothing."""
    daemon = start(listen="write_stall: 1s")
    before = resident_kib(daemon)
    with raw(daemon) as connection:
        send_until_blocked(connection, PING * 10000)
        assert serves(daemon)
        assert resident_kib(daemon) - before < GROWTH_KIB / 4
        with daemon.client() as client:
            eventually(lambda: client.call("stats")["connections_closed_slow"] == 1, "the deaf peer is closed")
    assert serves(daemon)


def test_reads_slowly(daemon):
    """A byte now and then is progress: every answer comes complete and in order."""
    with raw(daemon) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        writer = threading.Thread(target=connection.sendall, args=(PING * 20000,))
        writer.start()
        slowly = bytearray()
        while len(slowly) < 2000:
            slowly += connection.recv(1)
        assert serves(daemon)
        while len(slowly) < 20000 * len(PONG):
            slowly += connection.recv(4096)
        writer.join()
    assert slowly == PONG * 20000


def test_closes_with_unread_data(daemon):
    with daemon.client() as client:
        before = client.call("stats")["connections"]
        for _ in range(200):
            connection = raw(daemon)
            connection.sendall(PING * 100)
            connection.close()
        eventually(lambda: client.call("stats")["connections"] == before, "every one of them is forgotten")


def test_half_close_then_replies(daemon):
    """printf ... | socat"""
    with raw(daemon) as connection:
        connection.sendall(PING + PING[:4])
        connection.shutdown(socket.SHUT_WR)
        assert read_to_end(connection) == PONG


def test_descriptors_attached(daemon):
    """The kernel drops attached descriptors; the daemon never gets them."""
    with open("/dev/null") as null, raw(daemon) as connection:
        connection.sendall(PING)
        assert connection.recv(100) == PONG
        before = n_descriptors(daemon)
        attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null.fileno()] * 253))]
        for _ in range(50):
            connection.sendmsg([PING], attached)
            assert connection.recv(100) == PONG
        assert n_descriptors(daemon) <= before


def test_credentials_attached(daemon):
    ours = struct.pack("iII", os.getpid(), os.getuid(), os.getgid())
    with raw(daemon) as connection:
        connection.sendmsg([PING], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, ours)])
        assert connection.recv(100) == PONG


def test_out_of_band(daemon):
    """A kernel with MSG_OOB on Unix sockets keeps that byte out of the stream. The daemon works in both cases."""
    with raw(daemon) as connection:
        try:
            connection.send(b"!", socket.MSG_OOB)
        except OSError:
            pytest.skip("this kernel has no MSG_OOB on Unix sockets")
        connection.sendall(PING)
        connection.shutdown(socket.SHUT_WR)
        assert read_to_end(connection)[:2] in (PONG[:2], b"")


def test_connects_and_leaves(daemon):
    with daemon.client() as client:
        client.call("ping")
        before = n_descriptors(daemon), resident_kib(daemon)
        for _ in range(100_000):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(daemon.socket)
            connection.close()
        eventually(lambda: client.call("stats")["connections"] == 1, "every one of them is forgotten")
        assert n_descriptors(daemon) <= before[0] + 2
        assert resident_kib(daemon) - before[1] < GROWTH_KIB


def test_disallowed_user(daemon):
    """The mode of the socket controls access."""
    if os.getuid() != 0:
        pytest.skip("needs root, to be somebody else")
    nobody = pwd.getpwnam("nobody").pw_uid
    daemon.directory.chmod(0o755)
    code = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    done = subprocess.run(["/usr/bin/python3", "-c", code, daemon.socket], user=nobody, capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert "PermissionError" in done.stderr


def start_on_redis(ratelimitd, redis, deadline, more=""):
    """On a Redis that a test will pause: checks then stay in flight until their deadline."""
    return ratelimitd(f"{CONFIG}\ndefaults: {{deadline: {deadline}, on_failure: deny}}\n{more}\n", redis=redis,
                      redis_options={"stall": "60s"})


def test_pipelined_past_the_cap(ratelimitd, redis):
    """With four in flight, the daemon stops reading from that connection, and loses nothing."""
    daemon = start_on_redis(ratelimitd, redis, "30s", "caps: {max_inflight_per_connection: 4}")
    with daemon.client() as client, daemon.client() as other:
        client.check("api", "warm")
        redis.pause()
        client.send_bytes(b"".join(msgpack.packb([0, 1000 + i, "check", ["api", "k"]]) for i in range(100)))
        eventually(lambda: other.call("stats")["read_pauses"] > 0, "reading pauses")
        assert other.call("stats")["inflight"] <= 4
        redis.resume()
        assert all(client.answer(1000 + i)["allowed"] for i in range(100))


def test_sends_during_drain(ratelimitd, redis):
    """The daemon answers requests in flight. Later ones get no answer, or SHUTTING_DOWN. Then the connection ends."""
    daemon = start_on_redis(ratelimitd, redis, "1s")
    with daemon.client() as client, daemon.client() as other:
        client.check("api", "warm")
        redis.pause()
        msgid = client.send("check", "api", "k")
        eventually(lambda: other.call("stats")["inflight"] == 1, "the check is in flight")
        daemon.signal(15)
        eventually(other.at_end, "idle connections are closed")
        late = b"".join(msgpack.packb([0, 1000 + i, "ping", []]) for i in range(100))
        client.send_bytes(late)
        assert client.answer(msgid)["source"] == "deny"
        client.half_close()
        answers = messages(read_to_end(client.socket))
        assert all(answer[2].startswith("SHUTTING_DOWN: ") for answer in answers)
        redis.resume()
    assert daemon.wait() == 0


def test_last_words_come_last(ratelimitd, redis):
    """The daemon first answers all requests before the lost framing, however long that takes."""
    daemon = start_on_redis(ratelimitd, redis, "500ms")
    with daemon.client() as client:
        client.check("api", "warm")
        redis.pause()
        client.send_bytes(msgpack.packb([0, 7, "check", ["api", "k"]]) + b"garbage")
        answers = messages(read_to_end(client.socket))
        assert [answer[1] for answer in answers] == [7, None]
        assert answers[1][2].startswith("BAD_REQUEST: ")
        redis.resume()


def test_old_protocol_version(daemon, connect):
    """There is no negotiation: a client that asks for another version gets an error for an unknown option."""
    client = connect(daemon)
    msgid = client.send("hello", {"protocol": 0})
    assert client.recv()[:2] == [1, msgid]
    assert client.check("api", "k")["allowed"]
    assert client.call("hello")["protocol"] == 1


def test_equal_msgids_of_two_clients(daemon):
    requests = [msgpack.packb([0, msgid, "check", [policy, "same"]]) for msgid in range(100) for policy in ("api", "closed")]
    with raw(daemon) as one, raw(daemon) as two:
        for i in range(0, len(requests), 2):
            one.sendall(requests[i])
            two.sendall(requests[i + 1])
        for connection, allowed in ((one, True), (two, False)):
            connection.shutdown(socket.SHUT_WR)
            answers = messages(read_to_end(connection))
            assert [answer[1] for answer in answers] == list(range(100))
            assert all(answer[3]["allowed"] is allowed for answer in answers)


def test_every_item_has_its_test():
    expected = {f"test_{item.removeprefix('live/').replace('-', '_')}" for item in golden.items() if item.startswith("live/")}
    tests = {name for name in globals() if name.startswith("test_")} - {"test_every_item_has_its_test"}
    assert tests == expected
