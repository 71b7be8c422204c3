"""test_cluster.py: a Redis Cluster of three masters with a replica each: found, resharded, grown, and its masters lost."""

import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import documents  # noqa: E402
from clusters import HASH_SLOTS, PATIENCE_S, Cluster
from harness import Redis, eventually, stored_keys

LIMIT = 1_000_000
N_KEYS = 600
N_SLOTS = 130  # that move: of 256 buckets two, and Valkey needs 16 ms for each
PAUSE_S = 0.002  # of the load, so that it does not take the machine from those who move the slots
CONFIG = f"""
defaults: {{deadline: 5s, on_failure: deny}}
policies:
  api: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d}}
  few: {{algorithm: token_bucket, limit: 5, window: 1d}}
  quick: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d, deadline: 1s}}
"""


@pytest.fixture(scope="module", params=Redis.KINDS)
def cluster(request):
    if not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    one = Cluster(request.param)
    yield one
    one.close()


@pytest.fixture
def start_daemon(cluster, ratelimitd):
    def start(addresses=None, config=CONFIG, **options):
        for node in cluster.masters:
            with node.client() as client:
                client.flushall()
        options = {"reconnect": "{min: 1ms, max: 50ms, refused_max: 50ms}", **options}
        lines = "".join(f"    {name}: {value}\n" for name, value in options.items())
        daemon = ratelimitd(f"{config}\nstore:\n  type: redis\n  redis:\n    topology: cluster\n    addresses: [{addresses or cluster.addresses}]\n{lines}",
                            start=False)
        daemon.start()
        return daemon

    return start


def is_ready(daemon, n_masters=3):
    with daemon.client() as client:
        def is_it():
            stats = client.call("stats")
            return stats["redis_up"] == stats["redis_nodes"] == n_masters

        eventually(is_it, f"{n_masters} masters are ready", PATIENCE_S)
    return daemon


class Load(threading.Thread):
    """One check of `policy` after another for every key in turn; what became of each."""

    def __init__(self, daemon, policy="api"):
        super().__init__()
        self.daemon, self.policy, self.over = daemon, policy, threading.Event()
        self.by_redis, self.others, self.answers = Counter(), Counter(), []
        self.fault = None
        self.start()

    def run(self):
        try:
            with self.daemon.client(timeout_s=20) as client:
                n = 0
                while not self.over.wait(PAUSE_S):
                    keys = [f"k{(n + i) % N_KEYS}" for i in range(30)]
                    sent = [client.send("check", self.policy, key) for key in keys]
                    n += len(keys)
                    for key, msgid in zip(keys, sent):
                        answer = client.answer(msgid)
                        (self.by_redis if answer["source"] == "redis" else self.others)[key] += 1
                        self.answers.append((key, answer["source"], answer.get("reason")))
        except BaseException as fault:  # noqa: BLE001
            self.fault = fault

    def goes_on(self, n=3 * N_KEYS):
        """Until so many more checks have been answered."""
        before = len(self.answers)
        eventually(lambda: self.fault or len(self.answers) >= before + n, "the load goes on", PATIENCE_S)

    def end(self):
        self.over.set()
        self.join()
        assert self.fault is None, self.fault

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def charged(daemon, policy="api"):
    with daemon.client() as client:
        sent = {f"k{i}": client.send("peek", policy, f"k{i}") for i in range(N_KEYS)}
        return Counter({key: LIMIT - client.answer(msgid)["remaining"] for key, msgid in sent.items()})


# ---- day by day -----------------------------------------------------------------------------------------------------


def test_the_masters_share_the_keys_and_nobody_is_asked_in_vain(start_daemon, cluster):
    daemon = is_ready(start_daemon())
    with daemon.client() as client:
        for i in range(N_KEYS):
            sent = [client.send("check", "few", f"k{i}") for _ in range(7)]
            assert [client.answer(one)["allowed"] for one in sent] == [True] * 5 + [False] * 2
        assert client.call("stats")["redis_redirects"] == 0
    assert all(len(node.keys()) > N_KEYS / 10 for node in cluster.masters)
    assert len(stored_keys_of(cluster)) == N_KEYS


def stored_keys_of(cluster):
    keys = []
    for node in cluster.masters:
        with node.client() as client:
            keys += stored_keys(client)
    return keys


def test_one_server_names_the_others(start_daemon, cluster):
    replica = next(node for node in cluster.running if not node.is_master)
    daemon = is_ready(start_daemon(addresses=f'"127.0.0.1:1", "localhost:{replica.port}"'))
    with daemon.client() as client:
        assert {client.check("api", f"k{i}")["source"] for i in range(N_KEYS)} == {"redis"}


def test_a_user_with_the_documented_rights_is_enough(start_daemon, cluster, tmp_path):
    (tmp_path / "password").write_text("PASSWORD")
    blocks = {block.mark: block.text for block in documents.all_blocks()}
    for node in cluster.running:
        for mark in ("acl", "acl for a cluster"):
            command = blocks[mark].replace("redis-cli ", f"{shutil.which('redis-cli')} -e -p {node.port} ")
            done = subprocess.run(["sh", "-ec", command], capture_output=True, text=True, cwd=tmp_path)
            assert (done.returncode, done.stdout.strip()) == (0, "OK"), done.stdout + done.stderr
    daemon = is_ready(start_daemon(username="ratelimit", password_file=tmp_path / "password"))
    with daemon.client() as client, Load(daemon) as load:
        cluster.reshard(cluster.masters[0], cluster.masters[1], 100)
        load.goes_on()
        load.end()
        assert not load.others
        assert client.check("api", "k")["source"] == "redis"
    assert "lacks" not in daemon.text()
    cluster.reshard(cluster.masters[1], cluster.masters[0], 100)

    for node in cluster.running:
        node.ask("ACL", "SETUSER", "ratelimit", "-asking")
    daemon.reload()
    daemon.wait_for_log(r"user ratelimit lacks rights that checks will need; run: ACL SETUSER ratelimit \+asking$")


# ---- changes of the cluster, under load ------------------------------------------------------------------------------


def test_slots_move_under_load_and_each_check_is_charged_once(start_daemon, cluster):
    daemon = is_ready(start_daemon())
    first, second, _ = cluster.masters
    with Load(daemon) as load:
        load.goes_on()
        cluster.reshard(first, second, N_SLOTS)
        load.goes_on()
        cluster.reshard(second, first, N_SLOTS)
        load.goes_on()
        load.end()
    assert not load.others
    assert charged(daemon) == load.by_redis
    cluster.counted_once()
    with daemon.client() as client:
        assert client.call("stats")["redis_redirects"] > 0


def test_a_master_comes_and_goes_under_load(start_daemon, cluster):
    daemon = is_ready(start_daemon())
    first = cluster.masters[0]
    with Load(daemon) as load:
        load.goes_on()
        fresh = cluster.add()
        cluster.reshard(first, fresh, N_SLOTS)
        is_ready(daemon, 4)
        load.goes_on()
        assert fresh.keys()
        cluster.reshard(fresh, first, N_SLOTS)
        load.goes_on()  # each key is asked for: the daemon hears of the last slot's move before its old master is gone
        cluster.cli("del-node", first.address, fresh.id)
        cluster.nodes.remove(fresh)
        fresh.close()
        is_ready(daemon, 3)
        load.goes_on()
        load.end()
    assert not load.others
    assert charged(daemon) == load.by_redis
    cluster.counted_once()


# ---- masters that are lost: these leave another cluster behind --------------------------------------------------------


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_a_master_that_is_lost_takes_only_its_keys_with_it(start_daemon, cluster, way):
    daemon = is_ready(start_daemon(stall="1s"))
    lost = cluster.masters[0]
    with Load(daemon, "quick") as load:
        load.goes_on()
        its_keys = {key.rsplit(b":", 1)[1].decode() for key in lost.keys() if b":quick:" in key}
        assert 0 < len(its_keys) < N_KEYS
        lost.kill() if way == "kill" else lost.pause()
        eventually(lambda: load.others or load.fault, "its keys get their failure answer", PATIENCE_S)
        others = [node for node in cluster.running if node is not lost]
        eventually(lambda: sum(node.n_slots for node in others if node.is_master) == HASH_SLOTS, "its replica is promoted", PATIENCE_S)
        since = len(load.answers)
        eventually(lambda: load.fault or {key for key, source, _ in load.answers[since:] if source == "redis"} >= its_keys,
                   "its keys are decided again", PATIENCE_S)
        lost.resume() if way == "stop" else lost.start()
        cluster.wait()
        load.goes_on()
        load.end()
    foreign = [reason for key, source, reason in load.answers if source != "redis" and key not in its_keys]
    assert set(foreign) <= {"deadline"} and len(foreign) < N_KEYS / 10, Counter(foreign)  # a busy machine may be late
    cluster.counted_once()
    at_most = load.by_redis + load.others
    assert all(used <= at_most[key] for key, used in charged(daemon, "quick").items())
