"""test_tls.py: TLS to real servers: who is accepted, certificates that are renewed under load, and a line with faults."""

import re
import shutil
import socket
import ssl
import struct
import threading
from collections import Counter

import pytest

from certificates import Authority
from harness import ROOT, eventually, on_free_port, run_ratelimitd

CONFIG = """
defaults: {deadline: 5s, on_failure: deny}
policies:
  api: {algorithm: token_bucket, limit: 1000000, window: 1d}
  counted: {algorithm: fixed_window, start: first_hit, limit: 1000000, window: 1d}
"""
NAMES = "DNS:localhost,DNS:redis.example,IP:127.0.0.1"
QUICK = {"reconnect": "{min: 1ms, max: 20ms, refused_max: 20ms}"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder of two CAs and what they have issued."""
    folder = tmp_path_factory.mktemp("certificates")
    ours, other = Authority(folder), Authority(folder, "other-ca")
    ours.issue("server", NAMES)
    ours.issue("elsewhere", "DNS:elsewhere.example")
    ours.issue("expired", NAMES, expired=True)
    ours.issue("client")
    ours.issue("renewed")
    other.issue("foreign")
    other.issue("other-server", NAMES)
    return folder


@pytest.fixture
def start_server(start_redis, files):
    """start_server("server", ...): a Redis with a port for TLS that shows this certificate; .tls_address."""
    def start(name="server", clients="no", tcp=False):
        def on(port):
            server = start_redis(tcp=tcp, arguments=[
                "--tls-port", str(port), "--tls-cert-file", str(files / f"{name}.crt"), "--tls-key-file", str(files / f"{name}.key"),
                "--tls-ca-cert-file", str(files / "ca.crt"), "--tls-auth-clients", clients])
            server.tls_address = f"127.0.0.1:{port}"
            return server

        return on_free_port(on)

    return start


@pytest.fixture
def start_daemon(ratelimitd, files):
    """start_daemon(address, "{ca_file: FILES/ca.crt}")"""
    def start(address, tls, wait=True, **options):
        options = {"addresses": f'["{address}"]', **({"tls": tls.replace("FILES", str(files))} if tls else {}), **QUICK, **options}
        lines = "".join(f"    {name}: {value}\n" for name, value in options.items())
        daemon = ratelimitd(f"{CONFIG}\nstore:\n  type: redis\n  redis:\n{lines}", start=False)
        daemon.start()
        if wait:
            with daemon.client() as client:
                eventually(lambda: source(client) == "redis", "Redis answers")
        return daemon

    return start


def source(client, key="k"):
    return client.check("api", key)["source"]


def stats(daemon):
    with daemon.client() as client:
        return client.call("stats")


# ---- who is accepted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("server", "host", "tls"), [
    ("server", "127.0.0.1", "{ca_file: FILES/ca.crt}"),
    ("server", "localhost", "{ca_file: FILES/ca.crt, verify: full}"),
    ("server", "127.0.0.1", "{ca_file: FILES/ca.crt, server_name: redis.example}"),
    ("elsewhere", "127.0.0.1", "{ca_file: FILES/ca.crt, server_name: elsewhere.example}"),
    ("elsewhere", "127.0.0.1", "{ca_file: FILES/ca.crt, verify: ca}"),
    ("other-server", "127.0.0.1", "{verify: none}"),
    ("expired", "127.0.0.1", "{verify: none}"),
])
def test_a_server_is_accepted(start_server, start_daemon, server, host, tls):
    server = start_server(server)
    daemon = start_daemon(server.tls_address.replace("127.0.0.1", host), tls)
    assert stats(daemon)["redis_up"] == 1
    with server.client() as direct:
        assert direct.dbsize() == 1


@pytest.mark.parametrize(("server", "host", "tls", "line"), [
    ("elsewhere", "127.0.0.1", "{ca_file: FILES/ca.crt}", r"has another name \(IP address mismatch\); write a name"),
    ("elsewhere", "localhost", "{ca_file: FILES/ca.crt}", r"has another name \(hostname mismatch\); write a name"),
    ("server", "127.0.0.1", "{ca_file: FILES/ca.crt, server_name: elsewhere.example}", "has another name"),
    ("other-server", "127.0.0.1", "{ca_file: FILES/ca.crt}", "is not trusted .*; write its CA into the file of store.redis.tls.ca_file"),
    ("other-server", "127.0.0.1", "{ca_file: FILES/ca.crt, verify: ca}", "is not trusted"),
    ("server", "127.0.0.1", "{ca_file: system}", "is not trusted"),
    ("expired", "127.0.0.1", "{ca_file: FILES/ca.crt}", r"the certificate of the server \(CN=expired\) has expired; renew it there"),
])
def test_a_server_is_refused_and_learns_no_password(start_server, start_daemon, files, monkeypatch, server, host, tls, line):
    if "system" in tls:
        monkeypatch.setenv("SSL_CERT_FILE", str(files / "other-ca.crt"))
    server = start_server(server)
    with server.client() as direct:
        direct.execute_command("CONFIG", "RESETSTAT")
        daemon = start_daemon(server.tls_address.replace("127.0.0.1", host), tls, wait=False)
        daemon.wait_for_log(f"warning: Redis: TLS: .*{line}")
        with daemon.client() as client:
            assert client.check("api", "k")["reason"] == "down"
        assert not {"cmdstat_hello", "cmdstat_auth", "cmdstat_script|load"} & direct.info("commandstats").keys()


def test_the_cas_of_this_host_are_used_where_no_file_is_named(start_server, start_daemon, files, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.crt"))
    for tls in ("{ca_file: system}", "{server_name: redis.example}"):
        start_daemon(start_server().tls_address, tls)


def test_a_redis_that_asks_for_a_certificate_gets_it(start_server, start_daemon):
    server = start_server(clients="yes")
    start_daemon(server.tls_address, "{ca_file: FILES/ca.crt, cert_file: FILES/client.crt, key_file: FILES/client.key}")


@pytest.mark.parametrize("tls", ["{ca_file: FILES/ca.crt}",
                                 "{ca_file: FILES/ca.crt, cert_file: FILES/foreign.crt, key_file: FILES/foreign.key}"])
def test_a_redis_that_refuses_our_certificate_is_reported(start_server, start_daemon, tls):
    daemon = start_daemon(start_server(clients="yes").tls_address, tls, wait=False)
    # the server closes at once, so that its last word may be lost
    daemon.wait_for_log("warning: Redis: (TLS: the server refuses .*store.redis.tls.cert_file|Connection reset|Broken pipe|Server closed)")
    assert stats(daemon)["redis_up"] == 0


def test_the_key_may_be_a_credential_of_the_service(start_server, ratelimitd, files, tmp_path, connect):
    for name in ("client.crt", "client.key"):
        shutil.copy(files / name, tmp_path / name)
    tls = "{ca_file: FILES/ca.crt, cert_file: '${CREDENTIALS_DIRECTORY}/client.crt', key_file: '${CREDENTIALS_DIRECTORY}/client.key'}"
    address = start_server(clients="yes").tls_address
    store = f'store: {{type: redis, redis: {{addresses: ["{address}"], tls: {tls.replace("FILES", str(files))}}}}}'
    daemon = ratelimitd(f"{CONFIG}\n{store}\n", env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    client = connect(daemon)
    eventually(lambda: source(client) == "redis", "Redis answers")
    status, _, err = run_ratelimitd("--check-config", "-c", daemon.path)
    assert status == 0 and err.count("CREDENTIALS_DIRECTORY is not set here, so the file was not checked") == 2


# ---- ports that are taken for each other ----------------------------------------------------------------------------


def test_tls_on_the_port_for_plain_text_is_reported(start_server, start_daemon):
    server = start_server(tcp=True)
    daemon = start_daemon(server.address, "{ca_file: FILES/ca.crt}", wait=False)
    daemon.wait_for_log(r"warning: Redis: (TLS: the server does not speak it here|connected, but no handshake of TLS in time; "
                        r"is this the port for TLS\?|Server closed the connection|Connection reset)")
    assert stats(daemon)["redis_up"] == 0


def test_plain_text_on_the_port_for_tls_is_reported(start_server, start_daemon):
    daemon = start_daemon(start_server().tls_address, None, wait=False)
    daemon.wait_for_log("warning: Redis: (Server closed the connection|Connection reset)")
    assert stats(daemon)["redis_up"] == 0


# ---- what the document says of the log -----------------------------------------------------------------------------


class Peer:
    """A server that fails every connection in the same way: `fail(socket)` does, in a thread for each."""

    def __init__(self, fail):
        self.fail, self.listener, self.threads = fail, socket.create_server(("127.0.0.1", 0)), []
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.acceptor = threading.Thread(target=self._accept)
        self.acceptor.start()

    def _accept(self):
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(one,))
            thread.start()
            self.threads.append(thread)

    def _serve(self, one):
        with one:
            try:
                self.fail(one)
            except OSError:  # the daemon has left
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in (self.acceptor, *self.threads):
            thread.join()


def read_to_the_end(one):
    while one.recv(4096):
        pass


def shows(name, clients=None):
    """Shakes hands with the certificate `name`; asks for one that the CA `clients` has signed."""
    def fail(one, files):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files / f"{name}.crt", files / f"{name}.key")
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(files / f"{clients}.crt")
        with context.wrap_socket(one.dup(), server_side=True, do_handshake_on_connect=False) as secure:
            try:
                secure.do_handshake()
            except ssl.SSLError:
                read_to_the_end(one)  # a close with bytes unread would take back the alert

    return fail


def sends(data):
    def fail(one, files):
        one.recv(4096)
        one.sendall(data)
        read_to_the_end(one)

    return fail


def says_nothing(one, files):
    read_to_the_end(one)


def closes(one, files):
    one.recv(4096)
    one.shutdown(socket.SHUT_WR)
    read_to_the_end(one)


def resets(one, files):
    one.recv(1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


CAUSES = {  # text of the log: what the server does
    "the certificate of the server is not trusted": shows("other-server"),
    "the certificate of the server has another name": shows("elsewhere"),
    "the certificate of the server has no subjectAltName": shows("client"),
    "has expired": shows("expired"),
    "the server refuses": shows("server", clients="ca"),
    "the server does not speak it here": sends(b"-ERR unknown command\r\n"),
    "no handshake of TLS in time": says_nothing,
    "Connection reset by peer": resets,
    "Server closed the connection": closes,
}


def documented_texts():
    rows = (ROOT / "docs/redis.md").read_text().partition("| log | what to do |")[2].partition("\n\n")[0].splitlines()[2:]
    return [text for row in rows for text in re.findall("`([^`]+)`", row.split("|")[1])]


def test_each_text_of_the_document_has_a_cause_here():
    assert sorted(documented_texts()) == sorted(CAUSES)


@pytest.mark.parametrize("text", CAUSES)
def test_the_log_has_the_text_of_the_document(start_daemon, files, text):
    peer = Peer(lambda one: CAUSES[text](one, files))
    try:
        tls = None if text in ("Connection reset by peer", "Server closed the connection") else "{ca_file: FILES/ca.crt}"
        start_daemon(peer.address, tls, wait=False).wait_for_log(f"warning: Redis: .*{re.escape(text)}")
    finally:
        peer.close()


# ---- files that change ----------------------------------------------------------------------------------------------


class Load:
    """Checks without a pause from some threads, until stop(): how many were sent, and every answer by its source."""

    def __init__(self, daemon, n=4):
        self.daemon, self.ended, self.faults = daemon, threading.Event(), []
        self.n_sent, self.sources = [0] * n, [Counter() for _ in range(n)]
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        try:
            with self.daemon.client() as client:
                while not self.ended.is_set():
                    waiting = [client.send("check", "counted", f"key {number}") for _ in range(20)]
                    self.n_sent[number] += len(waiting)
                    self.sources[number].update(client.answer(one)["source"] for one in waiting)
        except Exception as error:  # noqa: BLE001 a thread's error would be lost
            self.faults.append(error)

    def n_answers(self):
        return sum(sources.total() for sources in self.sources)

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert self.faults == []


def test_a_new_pair_moves_the_connection_without_a_lost_check(start_server, start_daemon, files, tmp_path):
    def write_pair(name):
        for end in ("crt", "key"):
            shutil.copy(files / f"{name}.{end}", tmp_path / f"own.{end}")

    def move(daemon, name, ca, admin):
        """From now on the server accepts this pair alone, on new connections."""
        before = stats(daemon)
        admin.config_set("tls-ca-cert-file", str(files / f"{ca}.crt"))
        write_pair(name)
        daemon.reload()
        eventually(lambda: stats(daemon)["reloads"] > before["reloads"], "the reload")
        eventually(lambda: stats(daemon)["redis_connects"] > before["redis_connects"] and stats(daemon)["redis_up"] == 1, "a new connection")

    server = start_server(clients="yes")
    write_pair("client")
    daemon = start_daemon(server.tls_address, f"{{ca_file: FILES/ca.crt, cert_file: {tmp_path}/own.crt, key_file: {tmp_path}/own.key}}")
    n_proofs = 0
    with server.client() as admin:
        for name, ca in 10 * (("foreign", "other-ca"), ("renewed", "ca")):
            admin.flushdb()
            failures = stats(daemon)["redis_connect_failures"]
            load = Load(daemon)
            try:
                eventually(lambda: load.n_answers() > 0, "checks before")  # noqa: B023
                move(daemon, name, ca, admin)
                n_answers = load.n_answers()
                eventually(lambda: load.n_answers() > n_answers + 100, "checks after")  # noqa: B023
            finally:
                load.stop()
            if stats(daemon)["redis_connect_failures"] > failures:
                continue  # a busy machine: the attempt took longer than it may. That round says nothing about a good one

            for number, (n_sent, sources) in enumerate(zip(load.n_sent, load.sources, strict=True)):
                assert sources == {"redis": n_sent}
                with daemon.client() as client:
                    assert client.check("counted", f"key {number}")["remaining"] == 1000000 - n_sent - 1
            n_proofs += 1
            if n_proofs == 4:
                return
    pytest.fail("an attempt to connect failed in nearly every round")


def test_a_reload_with_the_same_files_keeps_the_connection(start_server, start_daemon):
    daemon = start_daemon(start_server().tls_address, "{ca_file: FILES/ca.crt}")
    before = stats(daemon)["redis_connects"]
    daemon.reload()
    eventually(lambda: stats(daemon)["reloads"] == 1, "the reload")
    assert stats(daemon)["redis_connects"] == before


def test_tls_is_turned_on_and_off_by_a_reload(start_server, start_daemon, files):
    server = start_server(tcp=True)
    daemon = start_daemon(server.address, None)
    plain = daemon.path.read_text()
    secure = plain.replace(server.address, server.tls_address).replace("    reconnect:", f"    tls: {{ca_file: {files}/ca.crt}}\n    reconnect:")
    with daemon.client() as client:
        for number, text in enumerate((secure, plain), 1):
            daemon.path.write_text(text)
            daemon.reload()
            eventually(lambda: daemon.text().count("has proved good, and decides from now on") == number, "the move")  # noqa: B023
            eventually(lambda: source(client) == "redis", "Redis answers")


WRONG = [
    ("cert_file", "no such", "No such file or directory; write the path of a file the daemon may read"),
    ("cert_file", "expired", "its certificate expired on "),
    ("key_file", "foreign", "is the key of another certificate than that of cert_file"),
    ("key_file", "broken", "holds no private key"),
    ("ca_file", "broken", "holds no certificate"),
    ("ca_file", "expired", "holds only certificates that have expired"),
]


@pytest.mark.parametrize(("setting", "name", "fault"), WRONG)
def test_a_wrong_file_is_refused_with_its_line_and_changes_nothing(start_server, start_daemon, files, tmp_path, setting, name, fault):
    broken = tmp_path / "broken"
    broken.write_text("no PEM\n")
    broken.chmod(0o600)
    daemon = start_daemon(start_server().tls_address, "{ca_file: FILES/ca.crt}")
    right = {"ca_file": files / "ca.crt", "cert_file": files / "client.crt", "key_file": files / "client.key"}
    wrong = broken if name == "broken" else files / f"{name}.{'key' if setting == 'key_file' else 'crt'}"
    lines = "".join(f"      {key}: {path}\n" for key, path in {**right, setting: wrong}.items())
    text = re.sub(r"    tls: .*\n", f"    tls:\n{lines}", daemon.path.read_text())
    daemon.path.write_text(text)
    number = next(i for i, line in enumerate(text.split("\n"), 1) if f" {setting}: " in line)
    before = stats(daemon)["redis_connects"]
    daemon.reload()
    eventually(lambda: stats(daemon)["reload_failures"] == 1, "the refusal")
    daemon.wait_for_log(rf"error: \S+:{number}: store\.redis\.tls\.{setting}: {re.escape(str(wrong))}:? {fault}")
    after = stats(daemon)
    assert (after["redis_connects"], after["redis_up"]) == (before, 1)
    status, _, err = run_ratelimitd("--check-config", "-c", daemon.path)
    assert status == 3 and fault in err


# ---- a line with faults ---------------------------------------------------------------------------------------------


@pytest.fixture
def faulty(start_server, start_daemon, proxied):
    """A daemon behind a proxy, and both."""
    proxy = proxied(start_server().tls_address, tcp=True)
    return start_daemon(proxy.address, "{ca_file: FILES/ca.crt}"), proxy


def test_single_bytes_pass(faulty, connect):
    daemon, proxy = faulty
    client = connect(daemon)
    proxy.down.piece = 1
    proxy.up.piece = 16  # by single ones, the script would not be there within the second that a connection may take
    proxy.drop()
    eventually(lambda: source(client) == "redis", "Redis answers through single bytes")
    answers = client.call("check_many", [["api", f"k{i}"] for i in range(100)])
    assert {answer["source"] for answer in answers} == {"redis"}


def test_many_records_pass_at_once(faulty, connect):
    daemon, _ = faulty
    client = connect(daemon)
    waiting = [client.send("check_many", [["api", f"{i}-{j}".ljust(500, "x")] for j in range(100)]) for i in range(30)]
    for one in waiting:
        assert {answer["source"] for answer in client.answer(one)} == {"redis"}


def test_a_handshake_that_stalls_ends_in_time_and_delays_no_other_client(faulty, connect):
    daemon, proxy = faulty
    client = connect(daemon)
    proxy.down.stalled = True
    proxy.drop()
    daemon.wait_for_log("warning: Redis: connected, but no handshake of TLS in time; is this the port for TLS?")
    assert client.check("api", "k")["reason"] == "down"
    assert client.call("ping") is not None
    proxy.down.stalled = False
    eventually(lambda: source(client) == "redis", "Redis answers again")


def test_a_connection_may_be_cut_anywhere(faulty, connect):
    daemon, proxy = faulty
    client = connect(daemon)
    for reset in (False, True):
        proxy.down.reset = reset
        for after in (0, 1, 4, 5, 6, 90, 127, 128, 500, 900, 1000, 1100, 1500, 2000):
            proxy.down.cut_after = after
            n = proxy.n_connections
            proxy.drop()
            eventually(lambda: source(client) and proxy.n_connections > n + 1, f"more attempts after {after} bytes")  # noqa: B023
            proxy.down.cut_after = -1
            eventually(lambda: source(client) == "redis", f"Redis answers again after {after} bytes")


def test_a_changed_byte_ends_the_connection_and_no_answer_is_made_of_it(faulty, connect):
    daemon, proxy = faulty
    client = connect(daemon)
    for at in (3, 60, 700, 1200):
        proxy.down.corrupt_at = at
        proxy.drop()
        n = proxy.n_connections
        eventually(lambda: proxy.n_connections > n + 1, "more attempts")  # noqa: B023
        proxy.down.corrupt_at = -1
        eventually(lambda: source(client) == "redis", "Redis answers again")
    assert stats(daemon)["redis_bad_replies"] == 0


def test_a_redis_that_restarts_is_found_again(start_server, start_daemon, connect):
    server = start_server()
    client = connect(start_daemon(server.tls_address, "{ca_file: FILES/ca.crt}"))
    server.kill()
    eventually(lambda: client.check("api", "k").get("reason") == "down", "the loss")
    server.start()
    eventually(lambda: source(client) == "redis", "Redis answers again")


def test_a_stopped_redis_costs_only_the_deadline(start_server, ratelimitd, files, connect):
    server = start_server()
    config = CONFIG.replace("deadline: 5s", "deadline: 200ms")
    tls = f'store: {{type: redis, redis: {{addresses: ["{server.tls_address}"], tls: {{ca_file: {files}/ca.crt}}}}}}'
    client = connect(ratelimitd(f"{config}\n{tls}\n"))
    eventually(lambda: source(client) == "redis", "Redis answers")
    server.pause()
    eventually(lambda: client.check("api", "k").get("reason") in ("deadline", "down"), "a failure answer")
    server.resume()
    eventually(lambda: source(client) == "redis", "Redis answers again")


def loaded(daemon):
    """The shared libraries of a running daemon, by their file names without version."""
    return {line.split("/")[-1].split(".so")[0] for line in open(f"/proc/{daemon.pid}/maps").read().splitlines() if ".so" in line}


def test_only_a_daemon_with_tls_loads_openssl(ratelimitd, start_server, start_daemon):
    """Every daemon did, which made its memory 1.7 MiB larger."""
    assert not {"libssl", "libcrypto"} & loaded(ratelimitd(CONFIG))
    server = start_server()
    assert {"libssl", "libcrypto"} <= loaded(start_daemon(server.tls_address, "{ca_file: FILES/ca.crt}"))


def test_tls_without_openssl_is_refused_with_the_way_out(tmp_path, files):
    (tmp_path / "libssl.so.3").write_text("")
    path = tmp_path / "ratelimitd.yaml"
    path.write_text(f"store:\n  type: redis\n  redis:\n    addresses: ['127.0.0.1:1']\n    tls: {{ca_file: {files}/ca.crt}}\n" + CONFIG)
    status, _, errors = run_ratelimitd("-c", path, "--check-config", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert status == 3, errors
    assert f"{path}:5: store.redis.tls: needs OpenSSL, which cannot be loaded (" in errors and errors.endswith("); install it\n")
    assert run_ratelimitd("-c", path, "--check-config")[0] == 0
