"""test_fault_tls.py: TLS that fails under load (fault_matrix.py)."""

import pytest

from certificates import Authority
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
