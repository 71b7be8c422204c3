"""test_fault_sentinel.py: a master, its replica and three Sentinels under load (fault_matrix.py)."""

import pytest

from fault_matrix import proves
from harness import eventually
from sentinels import NAME

PATIENCE_S = 30  # of the Sentinels, who agree at their own pace


@pytest.fixture
def under_sentinels(under_load, watched):
    """under_load(), which finds the master by the Sentinels."""
    def run():
        options = {"topology": "sentinel", "addresses": f"[{watched.addresses}]", "master_name": NAME}
        return under_load(watched.servers[0], options=options, keeps=False)

    return run


def promoted(server):
    with server.client() as client:
        eventually(lambda: client.role()[0] == b"master", "the replica is promoted", PATIENCE_S)


@proves(15)
@pytest.mark.parametrize("way", ["command", "kill", "stop"])
def test_the_replica_becomes_the_master(under_sentinels, watched, way):
    old, new = watched.servers
    with under_sentinels() as trial:
        trial.sees("redis")
        if way == "command":
            with watched.sentinels[0].client() as client:
                client.execute_command("SENTINEL", "FAILOVER", NAME)
        elif way == "kill":
            old.kill()
        else:
            old.pause()
        promoted(new)
        with new.client() as client:
            client.flushall()
            eventually(lambda: client.dbsize() > 0, "the new master counts", PATIENCE_S)
            old.resume() if way == "stop" else None
            trial.sees("redis")
            assert client.role()[0] == b"master"


@proves(16)
def test_two_of_three_sentinels_are_gone(under_sentinels, watched):
    with under_sentinels() as trial, watched.servers[0].client() as admin:
        trial.sees("redis")
        for sentinel in watched.sentinels[:2]:
            sentinel.kill()
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        trial.sees("redis")
        trial.daemon.wait_for_log(r"warning: Redis: passed over: Sentinel \S+: ")
