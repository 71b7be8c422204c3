"""test_fault_cluster.py: a Redis Cluster of three masters with a replica each, under load (fault_matrix.py)."""

import time

import pytest
from redis.crc import key_slot

from clusters import HASH_SLOTS, PATIENCE_S, Cluster
from fault_matrix import proves
from harness import Redis, eventually, shard

N_KEYS = 90
N_SLOTS = 1000  # that move: of 256 buckets some 15


@pytest.fixture(scope="module")
def cluster(request):
    if not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    one = Cluster(request.param)
    yield one
    one.close()


def on(*kinds):
    return pytest.mark.parametrize("cluster", kinds, indirect=True)


@pytest.fixture
def over_cluster(under_load, cluster):
    """under_load() on its masters, which are empty at first."""
    def run(**options):
        for node in cluster.masters:
            with node.client() as client:
                client.flushall()
        return under_load(cluster.nodes[0], options={"topology": "cluster", "addresses": f"[{cluster.addresses}]"}, n_keys=N_KEYS, **options)

    return run


@proves(17)
@on("redis")
def test_slots_move_to_another_master(over_cluster, cluster):
    first, second, _ = cluster.masters
    with over_cluster(deadline_s=10) as trial:
        trial.sees("redis")
        cluster.reshard(first, second, N_SLOTS)
        eventually(lambda: trial.stat("redis_redirects") > 0, "a check meets a slot that has moved")
        trial.sees("redis")
    assert trial.load.outcomes() == {"redis"}
    cluster.counted_once()


@proves(17)
@on("redis", "valkey")
@pytest.mark.parametrize("way", ["kill", "kill, its replica is behind"])
def test_a_master_is_killed_and_its_replica_promoted(over_cluster, cluster, capsys, way):
    """What the replica had not got is let through again, and nothing else is."""
    lost = cluster.masters[0]
    slots = {slot for first, last in lost.ranges for slot in range(first, last + 1)}
    with over_cluster(keeps=False) as trial:
        trial.sees("redis")
        if way != "kill":
            replica = replica_of(cluster, lost)
            replica.pause()
            with lost.client() as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            since_s = time.monotonic()  # a check that was sent before may have reached the replica, too
            eventually(lambda: sum(answer.outcome == "redis" and answer.sent_s > since_s and place_of(answer.policy, answer.key) in slots
                                   for answer in list(trial.load.answers)) >= 20, "it has decided what the replica does not know")
        lost.kill()
        if way != "kill":
            replica.resume()
        trial.sees("down")
        eventually(lambda: sum(node.n_slots for node in cluster.masters) == HASH_SLOTS, "its replica is promoted", PATIENCE_S)
        lost.start()
        cluster.wait()
    again = let_through_again(trial, slots)
    with capsys.disabled():
        decided = sum(answer.outcome == "redis" for answer in trial.load.answers)
        print(f"\n{cluster.kind}, {way}: {again} of {decided} decisions were let through again")
    assert again > 0 or way == "kill"
    cluster.counted_once()


def replica_of(cluster, master):
    return next(node for node in cluster.running if not node.is_master and node.ask("ROLE")[2] == master.port)


def place_of(policy, key):
    return key_slot(shard(policy, key).encode())


def let_through_again(trial, slots):
    """How many units that Redis allowed are not charged. Only those may be lost whose keys the lost master had."""
    n_again = 0
    for policy, key, least, most, used in trial.load.charges(trial.client):
        assert used <= most, f"{policy} {key}: at most {most} were charged, and {used} are"
        if used < least:
            assert place_of(policy, key) in slots, f"{policy} {key}: another master's, {least - used} are not charged"
            n_again += least - used
    return n_again
