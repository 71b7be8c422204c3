"""test_split_checks.py: check_alls whose limits lie on several masters of a real Redis Cluster."""

import random
import threading

import pytest
import redis as redis_py

from harness import Redis, eventually, free_port, on_free_port

SLOTS = 16384
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


class Cluster:
    """Three masters, a third of the hash slots each."""

    def __init__(self):
        self.masters = []
        try:
            for _ in range(3):
                on_free_port(self._start_master)
            self._join()
        except BaseException:
            self.close()
            raise

    def _start_master(self, port):
        arguments = ["--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-require-full-coverage", "no",
                     "--cluster-node-timeout", "30000"]
        self.masters.append(Redis(tcp=True, port=port, arguments=arguments))

    def _join(self):
        third = SLOTS // 3 + 1
        for i, master in enumerate(self.masters):
            with master.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", i * third, min((i + 1) * third, SLOTS) - 1)
        with self.masters[0].client() as client:
            for master in self.masters[1:]:
                bus = master.arguments[master.arguments.index("--cluster-port") + 1]
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", master.port, bus)
        eventually(self._is_whole, "the masters know each other", patience_s=30)

    def _is_whole(self):
        for master in self.masters:
            with master.client() as client:
                state = client.execute_command("CLUSTER", "INFO")
                if b"cluster_state:ok" not in state or b"cluster_slots_ok:16384" not in state:
                    return False
        return True

    def master_of(self, key):
        """The index of the one that has a key."""
        for i, master in enumerate(self.masters):
            with master.client() as client:
                try:
                    client.exists(key)
                    return i
                except redis_py.ResponseError:
                    continue
        raise AssertionError(f"no master has {key}")

    @property
    def addresses(self):
        return ", ".join(master.address for master in self.masters)

    def close(self):
        for master in self.masters:
            master.close()


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def daemon(cluster, ratelimitd):
    made = ratelimitd(CONFIG % cluster.addresses, start=False)
    made.start()
    with made.client() as client:
        eventually(lambda: client.call("stats")["redis_up"] == 3, "the daemon is connected to every master")
    return made


def store_key(client, policy, key):
    return client.call("explain", policy, key)["store_keys"][0]


def on_two_masters(client, cluster, one, other):
    """Keys of two policies that two masters have."""
    mine = cluster.master_of(store_key(client, one, "k"))
    for i in range(1000):
        if cluster.master_of(store_key(client, other, f"k{i}")) != mine:
            return "k", f"k{i}"
    raise AssertionError("all keys lie on one master")


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
        cluster.masters[cluster.master_of(store_key(client, "open", free))].kill()
        eventually(lambda: client.call("check", "open", free).get("reason") == "down", "the daemon knows it")
        first = client.call("check_all", [["user", user], ["open", free]])
        assert first["allowed"] and first["source"] == "allow" and first["reason"] == "down"
        again = client.call("check_all", [["user", user], ["open", free]])
        assert not again["allowed"] and again["source"] == "redis" and again["bound_by"] == "user"


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
