"""test_fault_tls.py: TLS that fails under load (fault_matrix.py)."""

import pytest

from certificates import Authority
from clusters import Cluster
from fault_matrix import proves
from harness import on_free_port

NAMES = "DNS:localhost,IP:127.0.0.1"


@pytest.fixture
def secure(start_redis, tmp_path):
    """A server with TLS, its address, and the daemon's options for it."""
    ours = Authority(tmp_path)
    ours.issue("server", NAMES)
    ours.issue("elsewhere", "DNS:elsewhere.example")
    ours.issue("expired", NAMES, expired=True)
    Authority(tmp_path, "other-ca").issue("foreign", NAMES)

    def start(port):
        server = start_redis(arguments=[
            "--tls-port", str(port), "--tls-cert-file", str(tmp_path / "server.crt"), "--tls-key-file", str(tmp_path / "server.key"),
            "--tls-ca-cert-file", str(ours.certificate), "--tls-auth-clients", "no"])
        return server, f"127.0.0.1:{port}", {"tls": f"{{ca_file: {ours.certificate}}}"}

    return on_free_port(start)


@proves(24)
@pytest.mark.parametrize(("name", "text"), [("foreign", "is not trusted"), ("elsewhere", "has another name"),
                                            ("expired", "has expired; renew it there")])
def test_the_server_shows_another_certificate(under_load, secure, tmp_path, name, text):
    server, address, options = secure
    with under_load(server, address=address, options=options) as trial, server.client() as admin:
        def show(certificate):
            admin.execute_command("CONFIG", "SET", "tls-cert-file", str(tmp_path / f"{certificate}.crt"), "tls-key-file",
                                  str(tmp_path / f"{certificate}.key"))

        trial.sees("redis")
        show(name)
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        trial.sees("down")
        trial.daemon.wait_for_log(f"warning: Redis: TLS: .*{text}")
        show("server")
        trial.is_over()


@proves(24)
def test_the_handshake_stalls(under_load, secure, proxied):
    server, address, options = secure
    proxy = proxied(address, tcp=True)
    with under_load(server, address=proxy.address, options=options) as trial:
        trial.sees("redis")
        proxy.down.stalled = True
        proxy.drop()
        trial.sees("down")
        trial.daemon.wait_for_log("warning: Redis: connected, but no handshake of TLS in time")
        proxy.down.stalled = False
        trial.is_over()


@pytest.fixture
def secure_cluster(redis_kind, tmp_path):
    """Three masters with TLS to clients and to each other, and the daemon's options for them."""
    ours = Authority(tmp_path)
    ours.issue("server", NAMES)
    ours.issue("elsewhere", "DNS:elsewhere.example")
    cluster = Cluster(redis_kind, n_replicas=0, tls_cli=("--tls", "--cacert", ours.certificate), tls=(
        "--tls-cert-file", str(tmp_path / "server.crt"), "--tls-key-file", str(tmp_path / "server.key"), "--tls-ca-cert-file",
        str(ours.certificate), "--tls-auth-clients", "no"))
    yield cluster, {"topology": "cluster", "addresses": f"[{cluster.addresses}]", "tls": f"{{ca_file: {ours.certificate}}}"}
    cluster.close()


@proves(24)
def test_one_node_among_good_ones_shows_another_certificate(under_load, secure_cluster, tmp_path):
    cluster, options = secure_cluster
    bad = cluster.nodes[0]
    with under_load(bad, options=options, n_keys=90) as trial, bad.client() as admin:
        def show(certificate):
            admin.execute_command("CONFIG", "SET", "tls-cert-file", str(tmp_path / f"{certificate}.crt"), "tls-key-file",
                                  str(tmp_path / f"{certificate}.key"))

        trial.sees("redis")
        show("elsewhere")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        trial.sees("down")
        trial.daemon.wait_for_log(f"warning: Redis.*{bad.address}.* has another name")
        assert trial.stat("redis_up") == 2
        trial.sees("redis")
        show("server")
