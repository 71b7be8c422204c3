"""test_split_checks.py: check_alls whose limits lie on several masters of a real Redis Cluster."""

import random
import threading

import pytest
from clusters import Cluster
from harness import RpcError, eventually, some

CONFIG = """
defaults: {deadline: 5s, on_failure: deny}
policies:
  address: {algorithm: fixed_window, limit: 1000, window: 1d}
  user: {algorithm: fixed_window, limit: 1, window: 1d}
  bucket: {algorithm: token_bucket, limit: 86400, window: 1d, burst: 20}
  log: {algorithm: sliding_log, limit: 15, window: 1h}
  counter: {algorithm: sliding_counter, limit: 25, window: 1d}
  open: {algorithm: fixed_window, limit: 1000, window: 1d, on_failure: allow}
  both:
    warn_at: 50%%
    limits:
      - {name: minute, algorithm: fixed_window, limit: 1000, window: 1m}
      - {name: day, algorithm: fixed_window, limit: 2, window: 1d}
store:
  type: redis
  redis:
    topology: cluster
    addresses: [%s]
    stall: 60s
    reconnect: {min: 1ms, max: 50ms, refused_max: 50ms}
"""


@pytest.fixture
def cluster():
    made = Cluster("redis", 3, n_replicas=0)
    yield made
    made.close()


def master_of(cluster, client, policy, key):
    """The one that has the counter."""
    stored = client.call("explain", policy, key)["store_keys"][0]
    slot = cluster.nodes[0].ask("CLUSTER", "KEYSLOT", stored)
    return next(node for node in cluster.nodes if any(first <= slot <= last for first, last in node.ranges))


def on_two_masters(client, cluster, one, other):
    """Keys of two policies that two masters have."""
    mine = master_of(cluster, client, one, "k")
    return "k", next(key for key in map(str, range(1000)) if master_of(cluster, client, other, key) is not mine)


@pytest.fixture
def daemon(cluster, ratelimitd):
    made = ratelimitd(CONFIG % cluster.addresses, start=False)
    made.start()
    with made.client() as client:
        eventually(lambda: client.call("stats")["redis_up"] == 3, "the daemon is connected to every master")
    return made


def test_the_limits_of_several_masters_are_charged_all_or_none(daemon, cluster):
    with daemon.client() as client:
        for i in range(30):
            first = client.call("check_all", [["address", "a"], ["user", f"u{i}"]])
            again = client.call("check_all", [["address", "a"], ["user", f"u{i}"]])
            assert first["allowed"] and first["source"] == "redis"
            assert not again["allowed"] and again["bound_by"] == "user" and again["source"] == "redis"
            assert again["members"][0]["allowed"] and again["members"][0]["remaining"] == 1000 - i - 1
            # A connection's calls keep their order, so the charge is back before the next one.
            assert client.call("peek", "address", "a")["remaining"] == 1000 - i - 1
        stats = client.call("stats")
        assert 0 < stats["split_checks"] <= 60 and stats["split_refunds"] == stats["split_checks"] / 2
        assert stats["split_refunds_lost"] == 0


def test_a_master_that_is_gone_does_not_switch_off_the_limits_of_the_others(daemon, cluster):
    with daemon.client() as client:
        user, free = on_two_masters(client, cluster, "user", "open")
        with pytest.raises(RpcError, match="UNSUPPORTED: request_id: .*put their limits into one policy"):
            client.call("check_all", [["user", user], ["open", free]], {"request_id": "x"})
        master_of(cluster, client, "open", free).kill()
        eventually(lambda: client.call("check", "open", free).get("reason") == "down", "the daemon knows it")
        first, again = (client.call("check_all", [["user", user], ["open", free]]) for _ in range(2))
        assert some(first, "allowed", "source", "reason") == (True, "allow", "down")
        assert some(again, "allowed", "source", "bound_by") == (False, "redis", "user")


def test_the_log_names_the_limit_that_is_near_of_a_check_on_two_masters(daemon, cluster):
    """Earlier, it read memory that nothing had filled: at best it named none."""
    with daemon.client() as client:
        one, other = on_two_masters(client, cluster, "both", "address")
        assert "near" not in client.call("check_all", [["both", one], ["address", other]])
        answer = client.call("check_all", [["both", one], ["address", other]])
        assert [member.get("near") for member in answer["members"]] == [True, None]
    daemon.wait_for_log("near: policy both limit both/day key #[0-9a-f]+ used 2 of 2 source redis")


def test_many_at_once_admit_what_the_limits_allow_and_nothing_stays_charged(daemon, cluster):
    limits = {"address": 1000, "bucket": 20, "log": 15, "counter": 25}
    admitted, lock = {}, threading.Lock()

    def ask(seed):
        rng = random.Random(seed)
        with daemon.client() as client:
            for _ in range(300):
                policies = rng.sample(sorted(limits), rng.randint(1, 4))
                members = [[policy, rng.choice("ab"), rng.randint(1, 3)] for policy in policies]
                if client.call("check_all", members)["allowed"]:
                    with lock:
                        for policy, key, cost in members:
                            admitted[policy, key] = admitted.get((policy, key), 0) + cost

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with daemon.client() as client:
        eventually(lambda: client.call("stats")["inflight"] == 0, "all are answered")
        stats = client.call("stats")
        assert stats["split_refunds"] > 0 and stats["split_refunds_lost"] == 0
        for policy in ("address", "log", "counter"):
            for key in "ab":
                n = admitted.get((policy, key), 0)
                assert n <= limits[policy]
                eventually(lambda p=policy, k=key, n=n: client.call("peek", p, k)["remaining"] == limits[p] - n,
                           f"what was taken back of {policy} {key} is there again")
