"""A low limit of open files: the daemon serves fewer clients, or reports at start that it cannot serve any."""

import os
import resource

POLICIES = "policies:\n  login: {algorithm: fixed_window, limit: 5, window: 1m}\n"


def limited(daemon, n_files):
    """Start it under a limit of open files, soft and hard."""
    daemon.spawn(["sh", "-c", f'ulimit -n {n_files}; exec "$@"', "sh", *daemon.argv()],
                 env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})


def test_a_low_limit_of_open_files_serves_fewer_clients(ratelimitd):
    """Earlier, all were accepted, and most of them were reset."""
    daemon = ratelimitd(POLICIES, start=False)
    limited(daemon, 40)
    line = daemon.wait_for_log("caps.max_connections is 10000 and the limit of open files 40: ")
    assert "at most 16 connections" in line and "LimitNOFILE=" in line
    daemon.wait_for_log(daemon.READY)
    clients = [daemon.client() for _ in range(20)]
    for client in clients:
        client.send("ping")
    for client in clients[:16]:
        assert client.recv()[3] == "pong"
    for _ in range(4):  # waiting clients enter when others leave
        clients.pop(0).close()
    for client in clients[12:]:
        assert client.recv()[3] == "pong"
    daemon.reload()
    daemon.wait_for_log("read again")
    for client in clients:
        assert client.call("ping") == "pong"
        client.close()


def test_too_few_open_files_to_serve_anybody_is_said_at_start(ratelimitd):
    daemon = ratelimitd(POLICIES, start=False, expected_exit=1)
    limited(daemon, 31)
    assert daemon.wait() == 1
    assert "the limit of open files is 31; the daemon needs 32 at least: raise LimitNOFILE=" in daemon.text()
    daemon = ratelimitd(POLICIES, start=False)
    limited(daemon, 32)
    daemon.wait_for_log(daemon.READY)
    with daemon.client() as client:
        assert client.call("ping") == "pong"


CLUSTER = "store:\n  type: redis\n  redis: {topology: cluster, addresses: [\"127.0.0.1:1\"]}\n"


def test_the_nodes_of_a_cluster_have_descriptors_of_their_own(ratelimitd):
    """A cluster of 200 masters took those of the clients, who were reset."""
    few = "caps: {max_connections: 50}\nadmin: {max_connections: 1}\n"
    raised = []
    for store in "", CLUSTER:
        daemon = ratelimitd(f"{few}{store}{POLICIES}", start=False)
        daemon.spawn(["sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh", *daemon.argv()], env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        daemon.wait_for_log(daemon.READY)
        raised.append(resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)[0])
    assert raised[1] - raised[0] == 256 + 16 + 1

    served = []
    for store in "", CLUSTER:
        daemon = ratelimitd(f"{store}{POLICIES}", start=False)
        limited(daemon, 1000)
        served.append(daemon.wait_for_log("the limit of open files 1000: at most [0-9]+ connections").split("at most ")[1].split()[0])
        daemon.wait_for_log(daemon.READY)
        daemon.reload()
        daemon.wait_for_log("read again")
    assert served == ["920", "647"]
