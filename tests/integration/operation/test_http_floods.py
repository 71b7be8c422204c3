"""test_http_floods.py: hostile HTTP next to checks: broken requests, idle peers, slow readers and writers."""

import os
import random
import re
import signal
import socket

from harness import eventually
from http_client import Answer, ask, connect as connect_http, read_all

# A page may take longer than the default time on a busy machine.
ADMIN = 'admin: {listen: "127.0.0.1:0", timeout: 60s}\n'
POLICIES = "policies:\n  open: {algorithm: token_bucket, limit: 1000000, window: 1s}\n"
CORPUS = [
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"HEAD /readyz?store=1 HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nabcde",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET /status.json HTTP/1.1\r\nHost: [::1]:80\r\nExpect: 100-continue\r\nCookie: a=b; c\r\n\r\n",
    b"GET /%00%ff/../metrics?a&b=%zz&store=1 HTTP/1.1\r\nHost: \x01\r\nX: y\r\n z\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nContent-Length: -1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


def mutated(seed):
    draw = random.Random(seed)
    data = bytearray(draw.choice(CORPUS))
    for _ in range(draw.randrange(6)):
        at = draw.randrange(len(data))
        how = draw.randrange(4)
        if how == 0:
            data[at] = draw.randrange(256)
        elif how == 1:
            del data[at:at + draw.randrange(1, 9)]
        elif how == 2:
            data[at:at] = bytes(draw.choice(b"\r\n \0:%?/;=A\xff") for _ in range(draw.randrange(1, 40)))
        else:
            data[at:at] = data[:at] * draw.randrange(3)
        data = data or bytearray(b"\r\n")
    return bytes(data)


def test_no_bytes_harm_the_daemon(ratelimitd, connect):
    daemon = ratelimitd('admin: {listen: "127.0.0.1:0", timeout: 200ms}\n' + POLICIES)
    client = connect(daemon)
    for seed in range(1500):
        with connect_http(daemon) as connection:
            try:
                connection.sendall(mutated(seed))
                if seed % 3:
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(100)
            except OSError:
                pass
        if seed % 50 == 0:
            assert client.check("open", "k")["allowed"], seed
            eventually(lambda: ask(daemon, "/livez").status == 200, f"a probe is answered after seed {seed}")
    eventually(lambda: client.call("stats")["admin_connections"] == 0, "all connections have ended")


def test_checks_go_on_next_to_idle_and_slow_peers(ratelimitd, connect):
    policies = POLICIES + "".join(f"  p{i}: {{algorithm: gcra, limit: 5, window: 1s}}\n" for i in range(300))
    daemon = ratelimitd(ADMIN + policies)
    client = connect(daemon)
    peers = []
    for i in range(64):
        peers.append(connect_http(daemon))
        peers[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        if i % 3 == 1:
            peers[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and is not read
        if i % 3 == 2:
            peers[-1].sendall(b"GET /metr")
        assert client.check("open", f"k{i}")["allowed"]
        if i % 8 == 0:
            assert ask(daemon, "/livez").text == "ok\n"
    assert ask(daemon, "/metrics").text.endswith("\n")
    for peer in peers:
        peer.close()


# ---- no check and no probe later, as numbers of ticks: each is about 0.1 ms long, and 0.2 ms at most (./dev bench admin) ------------


class Ticks:
    """How many ticks the loop has ended, asked for on a connection for checks: it is one of the last numbers of the page."""

    SERIES = re.compile(r"^ratelimitd_loop_tick_seconds_count (\d+)$", re.M)

    def __init__(self, client):
        self.client, self.place = client, []  # of the part of the page that has it
        while not self.SERIES.search((part := client.call("metrics", *self.place))["text"]):
            self.place = [part["next"]]

    def ask(self):
        return self.client.send("metrics", *self.place)

    def answer(self, msgid):
        return int(self.SERIES.search(self.client.answer(msgid)["text"])[1])

    def now(self):
        return self.answer(self.ask())


POLICIES_300 = POLICIES + "".join(f"  p{i}: {{algorithm: gcra, limit: 5, window: 1s}}\n" for i in range(300))
WAITING = [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc",
           b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 100_000, b"GET /" + b"a" * 100_000, b"\0" * 5000]


def pause(daemon):
    daemon.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)  # until then it runs


def waiting_peers(daemon):
    """64: idle, slow to write, slow to read, broken, too long."""
    peers = [connect_http(daemon) for _ in range(64)]
    for number, peer in enumerate(peers):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        peer.setblocking(False)
        try:
            peer.send(WAITING[number % len(WAITING)])
        except BlockingIOError:
            pass
    return peers


def test_a_check_that_waits_behind_all_kinds_of_http_is_answered_in_the_next_ticks(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES_300)
    client = connect(daemon)
    ticks = Ticks(client)
    for _ in range(3):
        before = ticks.now()
        pause(daemon)
        peers = waiting_peers(daemon)
        checked, counted = client.send("check", "open", "k"), ticks.ask()
        daemon.signal(signal.SIGCONT)
        assert client.answer(checked)["allowed"]
        assert ticks.answer(counted) - before <= 10
        for peer in peers:
            peer.close()
        assert ask(daemon, "/livez").status == 200  # all before it are accepted
        eventually(lambda: client.call("stats")["admin_connections"] == 0, "and have ended")


def test_a_probe_that_waits_behind_64_peers_is_answered_in_some_hundred_ticks(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES_300)
    ticks = Ticks(connect(daemon))
    for _ in range(3):
        before = ticks.now()
        pause(daemon)
        peers = waiting_peers(daemon)
        probe = connect_http(daemon)
        probe.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        daemon.signal(signal.SIGCONT)
        assert Answer(read_all(probe)).text == "ok\n"
        assert ticks.now() - before <= 1000
        for peer in [*peers, probe]:
            peer.close()


def test_200_idle_peers_and_a_probe_that_come_at_once_are_all_let_in(ratelimitd, connect):
    """Only 65 were kept until they were accepted; the system tries again after a second, and then the probe has given up."""
    daemon = ratelimitd(ADMIN + POLICIES)
    ticks = Ticks(connect(daemon))
    before = ticks.now()
    pause(daemon)
    peers = [connect_http(daemon) for _ in range(200)]
    probe = connect_http(daemon)
    probe.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    daemon.signal(signal.SIGCONT)
    assert Answer(read_all(probe)).text == "ok\n"
    assert ticks.now() - before <= 1000
    for _ in range(20):
        assert ask(daemon, "/livez").text == "ok\n"
    for peer in [*peers, probe]:
        peer.close()


def test_many_pages_at_once_are_complete(ratelimitd):
    """Sixteen pages are made piece by piece next to each other."""
    policies = POLICIES + "".join(f"  p{i}: {{algorithm: gcra, limit: 5, window: 1s}}\n" for i in range(200))
    daemon = ratelimitd(ADMIN + policies)
    connections = [connect_http(daemon) for _ in range(16)]
    for connection in connections:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    pages = [read_all(connection) for connection in connections]
    assert all(page.endswith(b"\r\n0\r\n\r\n") for page in pages)
    assert [Answer(page).text.count("\nratelimitd_limit_units{") for page in pages] == [200] * 16
    for connection in connections:
        connection.close()


def ticks_of(page):
    return int(re.search(r"^ratelimitd_loop_tick_seconds_count (\d+)$", page, re.M)[1])


def test_a_page_is_made_in_many_ticks(ratelimitd):
    """The timer that was to go on with it in the next tick ran in the same one, until the page was whole."""
    policies = POLICIES + "".join(f"  p{i}: {{algorithm: gcra, limit: 5, window: 1s}}\n" for i in range(1000))
    daemon = ratelimitd(ADMIN.replace("}", ", metrics_policies: 1000}") + policies)
    before = ticks_of(ask(daemon, "/metrics").text)
    assert ticks_of(ask(daemon, "/metrics").text) - before > 20


def test_policies_without_lines_in_a_family_do_not_end_the_page(ratelimitd):
    """They are passed over some hundred at a time, and then there is nothing to send yet."""
    policies = POLICIES + "".join(f"  p{i}: {{unlimited: true}}\n" for i in range(2000))
    daemon = ratelimitd(ADMIN.replace("}", ", metrics_policies: 2000}") + policies)
    page = ask(daemon, "/metrics").text
    assert page.count("\nratelimitd_limit_units{") == 1 and page.count("\nratelimitd_near_limit_total{") == 2002
    assert "\nprocess_max_fds " in page
