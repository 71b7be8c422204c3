"""test_admin.py: the listener for HTTP: what it shows, whom it refuses, and that checks do not depend on it."""

import os
import signal
import socket

import pytest

from harness import eventually, run_ratelimitd
from http_client import ADMIN, Answer, ask, port_of, read_all
from http_client import connect as connect_http

POLICIES = "policies:\n  login: {algorithm: fixed_window, limit: 5, window: 1h}\n"


def test_without_admin_listen_there_is_no_listener(ratelimitd):
    daemon = ratelimitd(POLICIES)
    sockets = [os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{daemon.pid}/fd")]
    inodes = {line.split()[9] for line in open(f"/proc/{daemon.pid}/net/tcp").readlines()[1:]}
    assert not {name for name in sockets if name.removeprefix("socket:[").rstrip("]") in inodes}
    assert "HTTP" not in daemon.text()


@pytest.mark.parametrize("path, type_, text", [
    ("/livez", "text/plain", "ok\n"),
    ("/healthz", "text/plain", "ok\n"),
    ("/readyz", "text/plain", "ready\n"),
    ("/readyz?store=1", "text/plain", "ready\n"),
    ("/", "text/html", "ratelimitd 0.1.0"),
    ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "# TYPE ratelimitd_checks_total counter\nratelimitd_checks_total 0\n"),
])
def test_each_page_answers(ratelimitd, path, type_, text):
    answer = ask(ratelimitd(ADMIN + POLICIES), path)
    assert answer.status == 200 and text in answer.text
    assert answer.fields["content-type"].startswith(type_)
    assert answer.fields["x-content-type-options"] == "nosniff"
    assert answer.fields["content-security-policy"].startswith("default-src 'none'")
    assert not [name for name in answer.fields if name.startswith("access-control")]


def test_status_json_has_the_state_and_every_counter_of_stats(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES)
    client = connect(daemon)
    for _ in range(6):
        client.check("login", "k")
    status = ask(daemon, "/status.json").json()
    assert status["state"] == "ready" and status["policies"] == 1
    assert status["store"] == {"type": "memory", "up": True, "status": "ready"}
    assert status["configuration"]["last_reload_successful"] is True
    assert {"allowed": 5, "denied": 1}.items() <= status["stats"].items()
    assert set(status["stats"]) == {name for name in client.call("stats") if not name.endswith("_us")}


def test_head_has_the_head_of_the_answer_alone(ratelimitd):
    daemon = ratelimitd(ADMIN + POLICIES)
    for path in ("/livez", "/metrics", "/"):
        answer = ask(daemon, path, method="HEAD")
        assert answer.status == 200 and answer.body == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO"])
def test_other_methods_are_refused_and_their_body_is_dropped(ratelimitd, method):
    body = b"x" * 100_000
    answer = ask(ratelimitd(ADMIN + POLICIES), "/metrics", method, fields=[f"Content-Length: {len(body)}"], body=body)
    assert (answer.status, answer.fields["allow"]) == (405, "GET, HEAD")


def test_a_name_that_is_not_known_is_refused(ratelimitd):
    """A web page can lead a browser here under a name of its own."""
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", allow_hosts: ["m.example", "n.example"]}\n' + POLICIES)
    answer = ask(daemon, "/metrics", host="evil.example")
    assert answer.status == 403 and "evil.example" in answer.text and "admin.allow_hosts" in answer.text
    assert ask(daemon, "/metrics", host='"><script>').status == 403
    for host in ("n.example", "m.example:80", "127.0.0.1", "[::1]:7429", "localhost"):
        assert ask(daemon, "/livez", host=host).status == 200
    daemon.configure('admin: {listen: "127.0.0.1:0", allow_hosts: [evil.example]}\n' + POLICIES)
    daemon.reload()
    daemon.wait_for_log("reload: .* read again")
    assert ask(daemon, "/livez", host="evil.example").status == 200
    assert ask(daemon, "/livez", host="m.example").status == 403


LIVEZ_OF = [
    ("HTTP/1.1", [], 400),
    ("HTTP/1.1", ["Host:"], 400),
    ("HTTP/1.1", ["Host: "], 400),
    ("HTTP/1.1", ["Host : localhost"], 400),
    ("HTTP/1.1", ["Host: localhost", "Host: localhost"], 400),
    ("HTTP/1.1", ["Host: localhost", "hOST: evil.example"], 400),
    ("HTTP/1.1", ["Host: localhost"], 200),
    ("HTTP/1.1", ["Host: evil.example"], 403),
    ("HTTP/1.0", [], 200),
    ("HTTP/1.0", ["Host:"], 400),
    ("HTTP/1.0", ["Host: localhost"], 200),
    ("HTTP/1.0", ["Host: localhost", "Host: localhost"], 400),
    ("HTTP/1.0", ["Host: evil.example"], 403),
]


@pytest.mark.parametrize("version, hosts, status", LIVEZ_OF, ids=lambda value: repr(value))
def test_a_request_has_one_host(ratelimitd, version, hosts, status):
    """One without a Host, and one with two of them, were answered 200. Old probes ask by HTTP/1.0 and without."""
    daemon = ratelimitd(ADMIN + POLICIES)
    with connect_http(daemon) as connection:
        connection.sendall("\r\n".join([f"GET /livez {version}", *hosts, "", ""]).encode())
        answer = Answer(read_all(connection))
    assert answer.status == status, answer.text
    assert status != 400 or "Host" in answer.text
    assert answer.fields["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path, status", [
    ("/metrics%00", 404), ("/metrics%00x", 404), ("/%00", 404), ("/livez%2500", 404),
    ("/%6Cive%7a", 200), ("/livez?%00", 200)])
def test_an_unknown_path_is_not_found(ratelimitd, path, status):
    """/metrics%00 was answered as /metrics is."""
    assert ask(ratelimitd(ADMIN + POLICIES), path).status == status


def test_another_form_of_a_path_is_not_found(ratelimitd):
    daemon = ratelimitd(ADMIN + POLICIES)
    for path in ("/nothing", "/metrics/", "//metrics", "/../metrics", "http://evil.example/metrics", "*"):
        assert ask(daemon, path).status in (400, 404)


@pytest.mark.parametrize("request_, statuses", [
    (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {414, 431}),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", {431, None}),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", {431, 413, None}),
    (b"\0" * 5000, {400, None}),
    (b"\x94\0\1\xa4ping\x90", {400, None}),
    (b"GET\r\n\r\n", {400, 404, None}),
    (b"GET / HTTP/9.9\r\n\r\n", {400, 505, None}),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", {400, 405, None}),
], ids=["long path", "many fields", "long field", "zeros", "our protocol", "no path", "version", "broken chunks"])
def test_nonsense_is_refused_and_the_next_request_is_answered(ratelimitd, request_, statuses):
    daemon = ratelimitd(ADMIN + POLICIES)
    with connect_http(daemon) as connection:
        try:
            connection.sendall(request_)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        data = read_all(connection)
    assert (Answer(data).status if data else None) in statuses
    assert ask(daemon, "/livez").status == 200


@pytest.mark.parametrize("request_", [b"", b"G", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nA: b",
                                      b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nabc",
                                      b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab"])
@pytest.mark.parametrize("comes_later", [False, True])
def test_half_a_request_with_an_end_is_ended_at_once(ratelimitd, connect, request_, comes_later):
    """An end that came together with the bytes before it was not seen: the connection stayed until admin.timeout."""
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 60s}\n' + POLICIES)
    client = connect(daemon)
    for _ in range(20):
        with connect_http(daemon) as connection:
            connection.sendall(request_)
            if comes_later:
                eventually(lambda: client.call("stats")["admin_connections"] == 1, "it is accepted")
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection)[:12] in (b"", b"HTTP/1.1 400")
    eventually(lambda: client.call("stats")["admin_connections"] == 0, "all have ended")
    assert client.call("stats")["admin_connections_cut"] == 0


def test_a_whole_request_with_an_end_is_answered(ratelimitd):
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 60s}\n' + POLICIES)
    for path in ("/livez", "/metrics"):
        with connect_http(daemon) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            assert Answer(read_all(connection)).status == 200


def test_idle_connections_keep_no_probe_waiting(ratelimitd):
    """A new connection takes the place of the oldest."""
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 60s}\n' + POLICIES)
    idle = [connect_http(daemon) for _ in range(64)]
    for _ in range(20):
        assert ask(daemon, "/livez").text == "ok\n"
    status = ask(daemon, "/status.json").json()["stats"]
    assert status["admin_connections"] <= 16 and status["admin_connections_cut"] >= 48
    for connection in idle:
        connection.close()


def test_with_one_connection_allowed_each_request_is_answered(ratelimitd):
    """The only connection was cut before it was known whether another one waited: no request was ever answered."""
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", max_connections: 1}\n' + POLICIES)
    for _ in range(20):
        assert ask(daemon, "/livez").text == "ok\n"
        assert ask(daemon, "/metrics").text.endswith("\n")


def test_as_many_connections_as_are_allowed_stay(ratelimitd, connect):
    """At the cap one was cut for a newer one that did not come: of 16 that are allowed 15 stayed."""
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 60s}\n' + POLICIES)
    client = connect(daemon)
    connections = []
    for n in range(1, 17):
        connections.append(connect_http(daemon))
        eventually(lambda n=n: client.call("stats")["admin_connections"] == n, f"connection {n} is accepted, and all stay")
    for connection in connections:
        assert ask(daemon, "/livez", connection=connection).text == "ok\n"
    assert client.call("stats")["admin_connections_cut"] == 0


def test_a_connection_lives_no_longer_than_its_time_whatever_it_does(ratelimitd):
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 100ms}\n' + POLICIES)
    with connect_http(daemon) as slow_writer, connect_http(daemon) as idle:
        ended = []

        def is_cut():
            try:
                slow_writer.sendall(b"G")
            except OSError:
                ended.append(True)
            return bool(ended)

        eventually(is_cut, "the slow writer is cut")
        assert read_all(idle) == b""


def test_a_slow_reader_costs_nobody_anything(ratelimitd, connect):
    policies = POLICIES + "".join(f"  p{i}: {{algorithm: gcra, limit: 5, window: 1s}}\n" for i in range(300))
    daemon = ratelimitd(ADMIN + policies)
    with connect_http(daemon) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connect(daemon).check("login", "k")["allowed"]
        assert ask(daemon, "/livez").status == 200


def test_without_redis_the_daemon_is_ready_and_says_what_is_missing(ratelimitd, redis):
    daemon = ratelimitd(ADMIN + POLICIES, redis=redis)
    assert ask(daemon, "/readyz?store=1").text == "ready\n"
    redis.stop()
    eventually(lambda: "down" in ask(daemon, "/readyz").text, "the daemon notices")
    ready = ask(daemon, "/readyz")
    assert ready.status == 200 and ready.text.startswith("ready; redis: down, answering by on_failure (")
    strict = ask(daemon, "/readyz?store=1")
    assert strict.status == 503 and strict.text.startswith("not ready; redis: down")
    assert ask(daemon, "/livez").status == 200
    assert ask(daemon, "/status.json").json()["store"]["up"] is False


def test_while_draining_it_is_not_ready(ratelimitd, redis, connect):
    daemon = ratelimitd(ADMIN + "defaults: {deadline: 20s}\n" + POLICIES, redis=redis)
    client = connect(daemon)
    redis.pause()
    client.send("check", "login", "k")
    eventually(lambda: ask(daemon, "/status.json").json()["stats"]["inflight"] == 1, "the check is under way")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for_log("SIGTERM: draining")
    ready = ask(daemon, "/readyz")
    assert (ready.status, ready.text) == (503, "not ready; draining\n")
    assert ask(daemon, "/livez").status == 200
    redis.resume()
    assert daemon.stop() == 0


def test_a_taken_address_is_reported_and_checks_are_served(ratelimitd, connect):
    """A successor starts while its predecessor still has the address, and takes it when that ends."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = ratelimitd(f'admin: {{listen: "127.0.0.1:{port}"}}\n' + POLICIES)
        daemon.wait_for_log(rf"warning: admin\.listen: 127\.0\.0\.1:{port}: Address already in use; checks are served")
        assert connect(daemon).check("login", "k")["allowed"]
    assert port_of(daemon) == port
    assert ask(daemon, "/livez").status == 200


def livez(path, head="Host: anything\r\n"):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(f"GET /livez HTTP/1.1\r\n{head}\r\n".encode())
        return Answer(read_all(connection)).text


def test_it_listens_on_a_unix_socket_and_makes_its_file_again(ratelimitd):
    """A deleted one stayed away until a restart."""
    daemon = ratelimitd(POLICIES, start=False)
    path = daemon.directory / "http.sock"
    daemon.configure(f'admin: {{listen: "unix:{path}"}}\n' + POLICIES)
    daemon.start()
    assert livez(path) == livez(path, "Host:\r\n") == "ok\n"
    assert "Host" in livez(path, "") and "Host" in livez(path, "Host: a\r\nHost: a\r\n")
    for _ in range(2):
        path.unlink()
        eventually(path.exists, "the file")
        assert livez(path) == "ok\n"
    daemon.wait_for_log(r"http\.sock: the socket's file was deleted; making it again")
    daemon.stop()
    assert not path.exists()


@pytest.mark.parametrize("listen", ["7429", "metrics.example:80", "127.0.0.1", "127.0.0.1:99999", "unix:x"])
def test_a_wrong_address_is_refused_with_its_line(tmp_path, listen):
    path = tmp_path / "ratelimitd.yaml"
    path.write_text(f'policies: {{}}\nadmin:\n  listen: "{listen}"\n')
    status, _, errors = run_ratelimitd("-c", path, "--check-config")
    assert status == 3 and f"{path}:3: admin.listen: {listen!r} is no address to listen on; write one such as" in errors


def test_the_list_of_names_is_printed_as_it_is_read(tmp_path):
    path = tmp_path / "ratelimitd.yaml"
    path.write_text('admin: {allow_hosts: [a.example, "b.example"]}\npolicies: {}\n')
    status, printed, _ = run_ratelimitd("-c", path, "--print-config")
    assert status == 0 and '  allow_hosts: ["a.example", "b.example"]\n' in printed
    path.write_text(printed)
    assert run_ratelimitd("-c", path, "--print-config")[1] == printed
    path.write_text("admin: {allow_hosts: []}\npolicies: {}\n")
    assert "# allow_hosts: not set" in run_ratelimitd("-c", path, "--print-config")[1]


@pytest.mark.parametrize("request_, status, word", [
    (b"FOO / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "GET and HEAD"),
    (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "HTTP/1.1"),
    (b"GET / HTTP/1.2\r\nHost: localhost\r\n\r\n", 505, "HTTP/1.1"),
    (b"GET / HTTP/1.1\nHost: localhost\n\n", 400, "Host: localhost"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400, "Host: localhost"),
    (b"GET / HTTP/1.1\r\nHost: local\x01host\r\n\r\n", 400, "Host: localhost"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, "Host: localhost"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\na", 400, "Host: localhost"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\na", 400, "Host: localhost"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "Host: localhost"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", 400, "Host: localhost"),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "Host: localhost"),
    (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "path"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", 431, "fields"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", 431, "fields"),
    (b"GET / HTTP/1.1\r\nHost: " + b"b" * 20_000 + b"\r\n\r\n", 403, "admin.allow_hosts"),
    (b"\x94\0\1\xa4ping\x90", 400, "Host: localhost"),
])
def test_a_bad_request_is_answered_with_what_is_wrong(ratelimitd, connect, request_, status, word):
    """However much of it comes after the answer: a connection that is closed with bytes unread takes the answer away."""
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 60s}\n' + POLICIES)
    with connect_http(daemon) as connection:
        connection.sendall(request_)
        answer = Answer(read_all(connection))
    assert answer.status == status and word in answer.text, (answer.status, answer.text)
    assert answer.fields["x-content-type-options"] == "nosniff" and answer.fields["connection"] == "close"
    assert ("allow" in answer.fields) == (status == 405)
    client = connect(daemon)
    eventually(lambda: client.call("stats")["admin_connections"] == 0, "the connection has ended")
    assert client.call("stats")["admin_connections_cut"] == 0


@pytest.mark.parametrize("fields, body", [
    ("Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\nHost: evil.example\r\n\r\n"),
    ("Content-Length: 3\r\n", b"abc"),
    ("Connection: Upgrade\r\nUpgrade: h2c\r\n", b""),
])
def test_a_body_is_dropped_and_one_request_is_answered(ratelimitd, fields, body):
    """What follows it on the connection is no second request."""
    daemon = ratelimitd(ADMIN + POLICIES)
    with connect_http(daemon) as connection:
        connection.sendall(f"GET /livez HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode() + body + b"GET /metrics HTTP/1.1\r\n\r\n")
        data = read_all(connection)
    assert Answer(data).text == "ok\n" and data.count(b"HTTP/1.1 ") == 1


def test_a_client_that_asks_whether_to_send_its_body_is_answered_at_once(ratelimitd):
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 60s}\n' + POLICIES)
    answer = ask(daemon, "/", "POST", fields=["Content-Length: 100000", "Expect: 100-continue"])
    assert answer.status == 405


def test_an_old_client_gets_the_metrics_without_chunks(ratelimitd):
    daemon = ratelimitd(ADMIN + POLICIES)
    with connect_http(daemon) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        data = read_all(connection)
    answer = Answer(data)
    assert answer.status == 200 and "transfer-encoding" not in answer.fields and "content-length" not in answer.fields
    assert answer.text.startswith("# HELP") and answer.text.endswith("\n") and "\nprocess_max_fds " in answer.text


def test_a_request_may_come_byte_by_byte(ratelimitd):
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 60s}\n' + POLICIES)
    with connect_http(daemon) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\r\nGET /readyz?a=b&store=%31 HTTP/1.1\r\nX-A:\r\nhost:   localhost  \r\n\r\n":
            connection.send(bytes([byte]))
        assert Answer(read_all(connection)).text == "ready\n"


@pytest.mark.parametrize("query, status", [("?store=1", 503), ("?x&store=1", 503), ("?s%74ore=%31", 503), ("?store=1%00", 200), ("?store", 200),
                                           ("?store=0&store=1", 200), ("?stores=1", 200), ("?store=11", 200), ("?", 200), ("?store=1&", 503)])
def test_a_query_asks_for_the_store(ratelimitd, redis, query, status):
    daemon = ratelimitd(ADMIN + POLICIES, redis=redis)
    redis.stop()
    eventually(lambda: "down" in ask(daemon, "/readyz").text, "the daemon notices")
    assert ask(daemon, "/readyz" + query).status == status
