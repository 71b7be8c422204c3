"""test_sentinel.py: the master found by real Sentinels, and by some that are silent, foreign or lie."""

import re
import socket
import threading
import time

import pytest

from certificates import Authority
from harness import Redis, eventually, on_free_port
from sentinels import NAME, Sentinel

CONFIG = """
defaults: {deadline: 5s, on_failure: deny}
policies:
  api: {algorithm: token_bucket, limit: 1000000, window: 1d}
"""
one_kind = pytest.mark.parametrize("redis_kind", ["redis"], indirect=True)  # the Sentinel is played, and the log's looks take seconds
QUICK = "{min: 1ms, max: 50ms, refused_max: 50ms}"


@pytest.fixture
def start_daemon(ratelimitd):
    def start(addresses, env=None, log_level="info", **options):
        lines = "".join(f"    {name}: {value}\n" for name, value in {"master_name": NAME, "reconnect": QUICK, **options}.items())
        text = f"{CONFIG}\nstore:\n  type: redis\n  redis:\n    topology: sentinel\n    addresses: [{addresses}]\n{lines}log: {{level: {log_level}}}\n"
        daemon = ratelimitd(text, start=False, env=env)
        daemon.start()
        return daemon

    return start


def decides(daemon, patience_s=10):
    with daemon.client() as client:
        eventually(lambda: client.check("api", "k")["source"] == "redis", "Redis answers", patience_s=patience_s)


def n_keys(server):
    with server.client() as client:
        return client.dbsize()


# ---- real Sentinels -------------------------------------------------------------------------------------------------


def test_one_sentinel_of_three_is_enough(watched, start_daemon):
    for sentinel in watched.sentinels[:2]:
        sentinel.kill()
    daemon = start_daemon(watched.addresses)
    decides(daemon)
    daemon.wait_for_log(rf"warning: Redis: passed over: Sentinel {watched.sentinels[1].address}: ")


def test_without_any_sentinel_the_log_says_so_and_the_connection_goes_on(watched, start_daemon):
    daemon = start_daemon(watched.addresses)
    decides(daemon)
    for sentinel in watched.sentinels:
        sentinel.kill()
    with daemon.client() as client, watched.master.client() as direct:
        assert client.check("api", "k")["source"] == "redis"
        direct.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        daemon.wait_for_log(r"warning: Redis: Sentinel \S+: Connection refused \(the master limits\)")
        assert client.check("api", "k")["reason"] == "down"


def test_another_name_is_reported(watched, start_daemon):
    daemon = start_daemon(watched.addresses, master_name="other")
    daemon.wait_for_log(r"warning: Redis: Sentinel \S+: it knows no master other; correct store.redis.master_name")


@pytest.fixture
def start_tls(redis_kind, tmp_path, request):
    """A master and its Sentinel, each with TLS or without, and the CA of the first kind: start_tls(is_master, is_sentinel)."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "IP:127.0.0.1,DNS:localhost")
    tls = {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": authority.certificate, "tls-auth-clients": "no"}
    words = [word for name, value in tls.items() for word in (f"--{name}", str(value))]

    def start(is_master, is_sentinel):
        ports = []

        def start_master(port):
            ports.append(port)
            return Redis(redis_kind, arguments=["--tls-port", str(port), *words])

        master = on_free_port(start_master) if is_master else Redis(redis_kind, tcp=True)
        request.addfinalizer(master.close)
        lines = [f"tls-replication {'yes' if is_master else 'no'}", *(f"{name} {value}" for name, value in tls.items())]
        sentinel = Sentinel(redis_kind, ports[-1] if is_master else master.port, lines, is_tls=is_sentinel)
        request.addfinalizer(sentinel.close)
        return master, sentinel, authority.certificate

    return start


def test_sentinels_are_reached_by_name_and_through_tls(start_tls, start_daemon):
    master, sentinel, ca = start_tls(True, True)
    daemon = start_daemon(f'"localhost:{sentinel.port}"', tls=f"{{ca_file: {ca}}}")
    decides(daemon)
    assert n_keys(master) == 1


def test_sentinels_with_tls_find_a_master_without(start_tls, start_daemon):
    master, sentinel, ca = start_tls(False, True)
    daemon = start_daemon(f'"{sentinel.address}"', sentinel=f"{{tls: {{ca_file: {ca}}}}}")
    decides(daemon)
    assert n_keys(master) == 1


def test_sentinels_without_tls_find_a_master_with_it(start_tls, start_daemon):
    master, sentinel, ca = start_tls(True, False)
    daemon = start_daemon(f'"{sentinel.address}"', tls=f"{{ca_file: {ca}}}", sentinel="{plain_text: true}")
    decides(daemon)
    assert n_keys(master) == 1


def test_with_a_server_name_every_sentinel_must_carry_it_unless_it_has_its_own(start_tls, start_daemon):
    master, sentinel, ca = start_tls(False, True)
    fault = rf"warning: Redis: Sentinel {sentinel.address}: .*another name"
    daemon = start_daemon(f'"{sentinel.address}"', tls=f"{{ca_file: {ca}, server_name: other.example}}")
    daemon.wait_for_log(fault)
    daemon = start_daemon(f'"{sentinel.address}"', sentinel=f"{{tls: {{ca_file: {ca}, server_name: other.example}}}}")
    daemon.wait_for_log(fault)
    text = daemon.path.read_text()
    daemon.path.write_text(text.replace("other.example", "localhost"))
    daemon.reload()
    decides(daemon)
    assert n_keys(master) == 1


def test_a_lookup_that_ends_while_the_next_sentinel_is_asked_is_dropped(stuck_resolver, start_daemon, fake):
    """It ended the daemon: a second connection was opened over the first."""
    env, mark = stuck_resolver
    silent = fake(b"")
    daemon = start_daemon(f'"sentinel.example:26379", "{silent.address}"', env=env)
    for _ in range(3):
        eventually(mark.exists, "the lookup")
        n = silent.n
        eventually(lambda: silent.n > n, "the next one is asked")  # noqa: B023
        mark.unlink()
    with daemon.client() as client:
        assert client.call("ping") == "pong"


@one_kind
def test_each_address_of_a_sentinels_name_has_its_turn(stuck_resolver, start_redis, start_daemon, fake):
    """Only the first was ever tried."""
    env, mark = stuck_resolver
    server = start_redis(tcp=True)
    port = fake(names("127.0.0.1", server.port)).address.split(":")[1]
    daemon = start_daemon(f'"sentinel.example:{port}"', env=env)

    def decided():
        mark.unlink(missing_ok=True)
        return client.check("api", "k")["source"] == "redis"

    with daemon.client() as client:
        eventually(decided, "Redis answers")


@one_kind
def test_a_sentinel_whose_name_always_takes_long_to_look_up_is_asked_all_the_same(stuck_resolver, start_redis, start_daemon, fake):
    """Each lookup of more than 250 ms was for nothing."""
    env, mark = stuck_resolver
    server = start_redis(tcp=True)
    port = fake(names("127.0.0.1", server.port)).address.split(":")[1]
    daemon = start_daemon(f'"sentinel.example:{port}"', env=env)
    with daemon.client() as client:
        def n_failures():
            return client.call("stats")["redis_connect_failures"]

        def decided():
            if mark.exists():
                n = n_failures()
                eventually(lambda: n_failures() > n, "the Sentinel is passed over")
                mark.unlink()
            return client.check("api", "k")["source"] == "redis"

        daemon.wait_for_log(rf"Sentinel sentinel.example:{port}: the lookup of its name ", patience_s=60)
        eventually(decided, "Redis answers", patience_s=60)


# ---- reloads -----------------------------------------------------------------------------------------------------------


def test_other_sentinels_and_another_name_are_taken_by_a_reload(start_redis, start_daemon, fake):
    first, second = start_redis(tcp=True), start_redis(tcp=True)
    old, new = fake(names("127.0.0.1", first.port)), fake(names("127.0.0.1", second.port))
    daemon = start_daemon(f'"{old.address}"')
    decides(daemon)
    daemon.path.write_text(daemon.path.read_text().replace(old.address, new.address))
    daemon.reload()
    with daemon.client() as client:
        eventually(lambda: client.check("api", "k") and n_keys(second) > 0, "the second server counts")


def test_another_topology_needs_a_restart_and_changes_nothing_before(start_redis, start_daemon, fake):
    server = start_redis(tcp=True)
    sentinel = fake(names("127.0.0.1", server.port))
    daemon = start_daemon(f'"{sentinel.address}"')
    decides(daemon)
    text = daemon.path.read_text()
    text = text.replace("topology: sentinel", "topology: single").replace(f"    master_name: {NAME}\n", "").replace(sentinel.address, server.address)
    daemon.path.write_text(text)
    daemon.reload()
    daemon.wait_for_log("store.redis.topology")
    with daemon.client() as client, server.client() as direct:
        eventually(lambda: client.call("stats")["reloads"] == 1, "the reload")
        n = sentinel.n
        direct.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        eventually(lambda: sentinel.n > n, "the Sentinel is still asked")
        eventually(lambda: client.check("api", "k")["source"] == "redis", "Redis answers")


def test_a_reload_to_another_topology_keeps_the_password_of_the_present_server(start_redis, start_daemon, fake, tmp_path):
    """The new one was tried on the old server, which refused it until the restart."""
    for word in ("old", "new"):
        (tmp_path / word).write_text(f"{word}\n")
        (tmp_path / word).chmod(0o600)
    server = start_redis(tcp=True)
    with server.client() as direct:
        direct.config_set("requirepass", "old")
    sentinel = fake(names("127.0.0.1", server.port))
    daemon = start_daemon(f'"{sentinel.address}"', password_file=tmp_path / "old")
    decides(daemon)
    text = daemon.path.read_text().replace("topology: sentinel", "topology: single").replace(f"    master_name: {NAME}\n", "")
    daemon.path.write_text(text.replace(str(tmp_path / "old"), str(tmp_path / "new")))
    with daemon.client() as client:
        connects = client.call("stats")["redis_connects"]
        daemon.reload()
        eventually(lambda: client.call("stats")["reloads"] == 1, "the reload")
        assert client.check("api", "k")["source"] == "redis"
        assert client.call("stats")["redis_connects"] == connects


def test_lookups_that_hang_hold_up_no_reload(stuck_resolver, start_daemon, fake):
    """Those of a Sentinel and of the master had both helper threads."""
    env, mark = stuck_resolver
    by_number = fake(names("redis.example", 6379))
    daemon = start_daemon(f'"sentinel.example:26379", "{by_number.address}"', env=env)
    eventually(lambda: mark.exists() and {"sentinel.example", "redis.example"} <= set(mark.read_text().split()), "both lookups")
    daemon.reload()
    with daemon.client() as client:
        eventually(lambda: client.call("stats")["reloads"] == 1, "the reload")
    assert mark.exists()


# ---- Sentinels that are none, or lie -------------------------------------------------------------------------------


class Fake:
    """Answers the whole handshake of its n-th connection with `reply`, or reply(n); b"" is silence."""

    def __init__(self, reply):
        self.reply, self.listener = reply, socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.connections, self.n = [], 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(one)
            self.n += 1
            try:
                one.sendall(self.reply(self.n) if callable(self.reply) else self.reply)
            except OSError:
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for one in self.connections:
            one.close()


def names(host, port):
    texts = (host.encode(), str(port).encode())
    return b"+OK\r\n*2\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts) + b"*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"


@pytest.fixture
def fake():
    fakes = []

    def start(reply):
        fakes.append(Fake(reply))
        return fakes[-1]

    yield start
    for one in fakes:
        one.close()


BAD = [
    (b"", "no answer within 250 ms"),
    (b"-ERR unknown command\r\n-ERR unknown command 'SENTINEL'\r\n-ERR\r\n", ".*unknown command"),
    (b"+OK\r\n-ERR unknown command 'SENTINEL'\r\n", "it is no Sentinel; write those of the Sentinels into store.redis.addresses"),
    (b"-WRONGPASS invalid username-password pair\r\n", "WRONGPASS .*; correct store.redis.sentinel.username or its password_file"),
    (b"-NOAUTH Authentication required.\r\n", "NOAUTH .*password_file"),
    (b"+OK\r\n$-1\r\n", f"it knows no master {NAME}; correct store.redis.master_name"),
    (b"+OK\r\n+OK\r\n", "its answer names no host and port"),
    (names("127.0.0.1", 0), "its answer names no host and port"),
    (names("127.0.0.1", 65536), "its answer names no host and port"),
    (names("", 6379), "its answer names no host and port"),
    (names("unix:/x", 1), "its answer names no host and port"),
    (names("unix", "/x"), "its answer names no host and port"),
    (names("a\nratelimitd: error: forged", 6379), "its answer names no host and port"),
    (names("127.0.0.1", "637900"), "its answer names no host and port"),
    (names("h" * 300, 6379), "its answer names no host and port"),
    (b"+OK\r\n*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n1\r\n", "its answer names no host and port"),
    (b"+OK\r\n*2\r\n$3\r\na\0b\r\n$4\r\n6379\r\n", "its answer names no host and port"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error"),
    (b"+OK\r\n*2\r\n*-7\r\n", "Protocol error"),
]


@one_kind
@pytest.mark.parametrize(("reply", "why"), BAD)
def test_a_sentinel_that_is_of_no_use_is_passed_over_and_named(start_redis, start_daemon, fake, reply, why):
    server = start_redis(tcp=True)
    bad, good = fake(reply), fake(names("127.0.0.1", server.port))
    daemon = start_daemon(f'"{bad.address}", "{good.address}"')
    decides(daemon)
    is_named = f"warning: Redis: passed over: Sentinel {bad.address}: "
    if not re.search(why, daemon.wait_for_log(is_named)):  # too late, on a busy machine: it is asked again, as the other one ends
        good.reply = b""
        for connection in good.connections:
            connection.close()
    daemon.wait_for_log(is_named + why)
    with daemon.client() as client:
        assert client.call("stats")["redis_up"] == 1


def test_the_password_is_in_no_log_when_hello_is_unknown(start_daemon, fake, tmp_path):
    """Redis 5 writes a command that it does not know, with its arguments, into its error."""
    (tmp_path / "password").write_text("in-no-log\n")
    (tmp_path / "password").chmod(0o600)
    old = fake(b"-ERR unknown command `HELLO`, with args beginning with: `2`, `AUTH`, `default`, `in-no-log`, \r\n")
    daemon = start_daemon(f'"{old.address}"', sentinel=f"{{password_file: {tmp_path}/password}}")
    daemon.wait_for_log(f"Sentinel {old.address}: HELLO: unknown command")
    assert not any("in-no-log" in line for line in daemon.log)


@one_kind
def test_the_status_and_stats_show_which_sentinel_answers_and_how_many_are_silent(start_redis, start_daemon, fake, place_of_notices):
    notify, status = place_of_notices
    server = start_redis(tcp=True)
    bad, good = fake(b"-ERR no\r\n"), fake(names("127.0.0.1", server.port))
    daemon = start_daemon(f'"{bad.address}", "{good.address}"', env={"NOTIFY_SOCKET": notify}, log_level="debug")
    decides(daemon)
    text = f"Sentinel {good.address} answered last, 1 of 2 silent"
    daemon.wait_for_log(f"debug: Redis: {text}")
    eventually(lambda: status() == f"1 policy, Redis: ready; {text}", "STATUS shows it")
    with daemon.client() as client:
        stats = client.call("stats")
        assert (stats["redis_sentinels"], stats["redis_sentinels_silent"]) == (2, 1)


@one_kind
def test_each_of_several_sentinels_that_are_passed_over_is_named(start_redis, start_daemon, fake):
    """Only the last one before the log's look was."""
    server = start_redis(tcp=True)
    bad = [fake(b"-ERR first\r\n"), fake(b"-ERR second\r\n"), fake(b"+OK\r\n$-1\r\n")]
    daemon = start_daemon(", ".join(f'"{one.address}"' for one in [*bad, fake(names("127.0.0.1", server.port))]))
    for one in bad:
        daemon.wait_for_log(f"warning: Redis: passed over: Sentinel {one.address}: ")
    decides(daemon)


@one_kind
def test_a_sentinel_that_has_answered_again_is_named_again_when_it_is_passed_over(start_redis, start_daemon, fake):
    """Its old fault stood until a reload, so that the same fault on another day was no news."""
    answer = names("127.0.0.1", start_redis(tcp=True).port)
    first, second = fake(b"-ERR no\r\n"), fake(answer)
    daemon = start_daemon(f'"{first.address}", "{second.address}"', log_level="debug")
    decides(daemon)

    def is_named(one, times):
        return sum(f"passed over: Sentinel {one.address}" in line for line in daemon.log) == times

    def fails(one, other):
        one.reply, other.reply = b"-ERR no\r\n", answer
        for connection in one.connections:
            connection.close()

    eventually(lambda: is_named(first, 1), "the first one is named")
    fails(second, first)
    eventually(lambda: is_named(second, 1), "the second one is named")
    daemon.wait_for_log(f"debug: Redis: Sentinel {first.address} answered last")  # the same look sees that it was not passed over
    fails(first, second)
    eventually(lambda: is_named(first, 2), "the first one is named again")


def test_a_sentinel_with_ever_other_errors_does_not_fill_the_log(start_daemon, fake):
    """Each look of the log's wrote a line, as long as the outage went on."""
    fickle = fake(lambda n: b"+OK\r\n-ERR number %d\r\n" % n)
    daemon = start_daemon(f'"{fickle.address}"', log_level="debug")
    eventually(lambda: sum("Redis, since the last look" in line for line in daemon.log) >= 8, "several looks", patience_s=60)
    assert 2 <= sum("passed over" in line for line in daemon.log) <= 5


def test_a_sentinel_that_names_a_replica_or_nobody_is_asked_last_then(start_redis, start_daemon, fake):
    master = start_redis(tcp=True)
    replica = start_redis(tcp=True, arguments=["--replicaof", f"127.0.0.1 {master.port}"])
    for lie in (replica.port, 1):
        liar, honest = fake(names("127.0.0.1", lie)), fake(names("127.0.0.1", master.port))
        daemon = start_daemon(f'"{liar.address}", "{honest.address}"')
        decides(daemon)
        assert n_keys(master) > 0
        if lie == replica.port:
            daemon.wait_for_log(f"warning: Redis: passed over: Sentinel {liar.address}: it names no master: this server is a replica")


def test_a_hint_moves_the_connection_at_once(start_redis, start_daemon, fake):
    first, second = start_redis(tcp=True), start_redis(tcp=True)
    sentinel = fake(names("127.0.0.1", first.port))
    daemon = start_daemon(f'"{sentinel.address}"')
    decides(daemon)
    sentinel.reply = names("127.0.0.1", second.port)
    eventually(lambda: sentinel.connections, "the subscription")
    sentinel.connections[-1].sendall(b"*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nx\r\n")
    with daemon.client() as client:
        eventually(lambda: client.check("api", "k") and n_keys(second) > 0, "the second server counts")


def test_a_flood_of_hints_makes_no_flood_of_questions(start_redis, start_daemon, fake):
    server = start_redis(tcp=True)
    hint = b"*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nx\r\n"
    sentinel = fake(names("127.0.0.1", server.port) + 1000 * hint)
    daemon = start_daemon(f'"{sentinel.address}"')
    decides(daemon)
    with daemon.client() as client:
        connects, n, began_s = client.call("stats")["redis_connects"], sentinel.n, time.monotonic()
        eventually(lambda: sentinel.n >= n + 6, "it is asked again")
        assert time.monotonic() - began_s > 0.75  # a quarter of a second apart; two more may have waited in the fake's backlog
        assert client.call("stats")["redis_connects"] == connects
