"""test_cluster_by_node.py: calls that hold keys of all hash slots of a master: while slots move, masters change, and rights lack.
BY_NODE_S in the environment makes the random run longer."""

import os
import random
import threading
import time
from collections import Counter, defaultdict

import pytest
from clusters import PATIENCE_S, Cluster
from harness import Redis, RpcError, eventually
from redis.crc import key_slot

LIMIT, LOG_LIMIT = 10_000_000, 10_000
SECONDS = float(os.environ.get("BY_NODE_S", "6"))
N_LOADS, N_KEYS = 3, 30
FAILOVER_S = 6  # a little more than the server gives it
CONFIG = f"""
defaults: {{deadline: 8s, on_failure: deny}}
policies:
  window: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  bucket: {{algorithm: token_bucket, limit: {LIMIT}, window: 3650d}}
  log: {{algorithm: sliding_log, limit: {LOG_LIMIT}, window: 30d}}
  two:
    limits:
      - {{name: month, algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
      - {{name: year, algorithm: fixed_window, limit: {LIMIT + 7}, window: 365d}}
  first: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  second: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  held: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  few: {{algorithm: token_bucket, limit: 5, window: 1d}}
  slots: {{algorithm: concurrency, limit: 1000, slot_ttl: 1h}}
"""
USER, RIGHTS = "ratelimit", ("on", ">PASSWORD", "resetkeys", "+@all")


@pytest.fixture(scope="module", params=Redis.KINDS)
def cluster(request):
    if not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    one = Cluster(request.param)
    yield one
    one.close()


@pytest.fixture
def start_daemon(cluster, ratelimitd):
    def start(**options):
        for node in cluster.masters:
            with node.client() as client:
                client.flushall()
        options = {"reconnect": "{min: 1ms, max: 50ms, refused_max: 50ms}", **options}
        lines = "".join(f"    {name}: {value}\n" for name, value in options.items())
        daemon = ratelimitd(f"{CONFIG}\nstore:\n  type: redis\n  redis:\n    topology: cluster\n    addresses: [{cluster.addresses}]\n{lines}",
                            start=False)
        daemon.start()
        with daemon.client() as client:
            eventually(lambda: client.call("stats")["redis_up"] == 3, "three masters are ready", PATIENCE_S)
        return daemon

    return start


def check_many(client, policy, n, prefix="k"):
    sent = [client.send("check", policy, f"{prefix}{i}") for i in range(n)]
    return [client.answer(one) for one in sent]


def keys_a_call(client):
    before = client.call("stats")
    assert all(answer["source"] == "redis" for answer in check_many(client, "window", 600))
    after = client.call("stats")
    return (after["redis_batch_keys"] - before["redis_batch_keys"]) / (after["redis_batches"] - before["redis_batches"])


def is_by_node(client, n_by_slot=0):
    """What is known of each master comes with its first answer."""
    eventually(lambda: client.call("stats")["redis_by_slot"] == n_by_slot and (keys_a_call(client) > 10) == (n_by_slot == 0),
               f"{n_by_slot} masters get calls of one hash slot", PATIENCE_S)


# ---- on a cluster that stands still -----------------------------------------------------------------------------------


def test_a_call_holds_keys_of_many_hash_slots_and_each_check_is_exact(start_daemon):
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
        for i in range(50):
            sent = [client.send("check", "few", f"k{i}-{j % 20}") for j in range(140)]
            assert sum(client.answer(one)["allowed"] for one in sent) == 100
        stats = client.call("stats")
        assert (stats["redis_away"], stats["redis_redirects"], stats["redis_errors"]) == (0, 0, 0)
    page = daemon.ctl("metrics").stdout
    assert "ratelimitd_redis_by_slot 0\n" in page and "ratelimitd_redis_away_total 0\n" in page
    assert "hash slot" not in daemon.text()


def test_reservations_slots_and_resets_of_many_hash_slots_are_exact(start_daemon):
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
        sent = [client.send("reserve", "held", f"h{i}", 10) for i in range(100)]
        ids = [client.answer(one)["reservation"] for one in sent]
        sent = [client.send("settle", one, 3) for one in ids]
        assert {client.answer(one)["refunded"] for one in sent} == {7}
        assert {answer["remaining"] for answer in check_many(client, "held", 100, "h")} == {LIMIT - 4}

        sent = [client.send("acquire", "slots", f"s{i}") for i in range(100)]
        slots = [client.answer(one)["slot"] for one in sent]
        sent = [client.send("release", one) for one in slots]
        assert all(client.answer(one)["released"] for one in sent)

        sent = [client.send("reset", "held", f"h{i}") for i in range(100)]
        assert all(client.answer(one)["removed"] for one in sent)
        assert {answer["remaining"] for answer in check_many(client, "held", 100, "h")} == {LIMIT - 1}


def test_the_setting_divides_the_calls_and_a_reload_changes_it(start_daemon):
    daemon = start_daemon(calls="slot")
    with daemon.client() as client:
        is_by_node(client, 3)
        daemon.configure(daemon.path.read_text().replace("calls: slot", "calls: auto"))
        daemon.reload()
        is_by_node(client)
        daemon.configure(daemon.path.read_text().replace("calls: auto", "calls: slot"))
        daemon.reload()
        is_by_node(client, 3)


def test_keys_of_a_foreign_type_among_64_harm_no_other(start_daemon, cluster):
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
        check_many(client, "window", 300, "f")
        for node in cluster.masters:
            with node.client() as redis:
                for key in redis.scan_iter("*:f7*"):
                    redis.delete(key)
                    redis.rpush(key, "x")
        answers = check_many(client, "window", 300, "f")
        for i, answer in enumerate(answers):
            assert (answer["source"] == "redis") == (not str(i).startswith("7")), (i, answer)
            assert answer["source"] != "redis" or answer["remaining"] == LIMIT - 2
        assert client.call("stats")["redis_by_slot"] == 0


# ---- rights ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def allow(cluster):
    def set_rights(*rights):
        for node in cluster.running:
            node.ask("ACL", "SETUSER", USER, *RIGHTS, *rights)

    yield set_rights
    for node in cluster.running:
        node.ask("ACL", "DELUSER", USER)


@pytest.fixture
def password_file(tmp_path):
    (tmp_path / "password").write_text("PASSWORD")
    return tmp_path / "password"


def test_a_key_without_a_right_is_refused_alone_and_the_log_names_its_policy(start_daemon, allow, password_file):
    allow("~rl:*:window:*", "~rl:*scratch*")
    daemon = start_daemon(username=USER, password_file=password_file)
    with daemon.client() as client:
        is_by_node(client)
        sent = [client.send("check", ("window", "bucket")[i % 2], f"b{i}") for i in range(100)]
        answers = [client.answer(one) for one in sent]
        assert {(i % 2, answer["source"]) for i, answer in enumerate(answers)} == {(0, "redis"), (1, "deny")}
        assert {answer["reason"] for answer in answers[1::2]} == {"store_error"}
        assert client.call("stats")["redis_by_slot"] == 0
    daemon.wait_for_log("NOPERM.*bucket|bucket.*NOPERM")


def test_a_user_who_may_read_and_not_write_is_found_out_and_charged_nothing(start_daemon, allow, cluster, password_file):
    allow("%R~*", "~rl:*scratch*")
    daemon = start_daemon(username=USER, password_file=password_file)
    with daemon.client() as client:
        assert {answer["source"] for answer in check_many(client, "bucket", 300)} == {"deny"}
        eventually(lambda: client.call("stats")["redis_by_slot"] == 3, "calls go by slot", PATIENCE_S)
        assert {answer["source"] for answer in check_many(client, "bucket", 300)} == {"deny"}
        for node in cluster.masters:
            with node.client() as redis:
                assert not list(redis.scan_iter("*bucket*"))


# ---- while slots move -------------------------------------------------------------------------------------------------


class Load(threading.Thread):
    """Pipelines of checks of every kind; for each key what was admitted, and each answer that does not follow from it."""

    def __init__(self, daemon, n, seed):
        super().__init__()
        self.daemon, self.n, self.random, self.over = daemon, n, random.Random(seed), threading.Event()
        self.admitted, self.sources = defaultdict(Counter), Counter()
        self.ids, self.decided = {}, set()  # by request id: key and cost; those that Redis has answered
        self.wrong, self.fault = [], None
        self.start()

    def run(self):
        try:
            with self.daemon.client(timeout_s=30) as client:
                while not self.over.is_set():
                    sent = [self.ask(client) for _ in range(self.random.choice((1, 5, 40, 120)))]
                    for what in sent:
                        self.take(client, *what)
                    time.sleep(self.random.random() * 0.005)
        except BaseException as fault:  # noqa: BLE001
            self.fault = fault

    def ask(self, client):
        pick = self.random
        kind = pick.choice(("window", "window", "bucket", "two", "log", "id", "all", "peek"))
        key, cost = f"c{self.n}-{pick.randrange(N_KEYS)}", 1 if kind == "log" else pick.choice((1, 1, 2, 5))
        if kind == "id":
            request_id = f"{self.n}-{pick.randrange(500)}"
            key, cost = self.ids.setdefault(request_id, (f"i{key}", cost))
            return request_id, key, cost, client.send("check", "window", key, {"cost": cost, "request_id": request_id})
        if kind == "all":
            return kind, key, cost, client.send("check_all", [["first", key, cost], ["second", key, cost]])
        if kind == "peek":
            return kind, key, 0, client.send("peek", "window", key)
        return kind, key, cost, client.send("check", kind, key, cost)

    def take(self, client, kind, key, cost, msgid):
        try:
            answer = client.answer(msgid)
        except RpcError as error:
            self.sources[str(error)] += 1
            return
        self.sources[f"{answer['source']} {answer.get('reason')}"] += 1
        if answer["source"] != "redis":
            return
        if kind in self.ids:
            self.decided.add(kind)
            return
        if kind == "all":
            self.admitted["first"][key] += cost
            self.admitted["second"][key] += cost
            return
        policy, limit = "window" if kind == "peek" else kind, LOG_LIMIT if kind == "log" else LIMIT
        self.admitted[policy][key] += cost
        if answer["remaining"] != limit - self.admitted[policy][key]:
            self.wrong.append((kind, key, cost, answer, self.admitted[policy][key]))

    def end(self):
        self.over.set()
        self.join()
        assert self.fault is None, self.fault
        assert not self.wrong, self.wrong[:3]

    def undecided(self):
        return Counter({what: n for what, n in self.sources.items() if what != "redis None"})


def text(name):
    return name.decode() if isinstance(name, bytes) else name


class Mover(threading.Thread):
    """Moves one bucket's hash slot after another, key by key."""

    def __init__(self, cluster, seed):
        super().__init__()
        self.nodes, self.random, self.over, self.n, self.fault = cluster.masters, random.Random(seed), threading.Event(), 0, None
        self.start()

    def run(self):
        try:
            while not self.over.is_set():
                self.move(key_slot(b"b%03d" % self.random.randrange(256)))
                self.n += 1
        except BaseException as fault:  # noqa: BLE001
            self.fault = fault

    def owner(self, node, slot):
        return next(text(shard[2][2]) for shard in node.ask("CLUSTER", "SLOTS") if shard[0] <= slot <= shard[1])

    def move(self, slot):
        source = next(node for node in self.nodes if node.id == self.owner(self.nodes[0], slot))
        target = self.random.choice([node for node in self.nodes if node is not source])
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, self.random.choice((1, 1, 3))):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            time.sleep(self.random.random() * 0.02)
        for node in (target, source, *(node for node in self.nodes if node not in (source, target))):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        eventually(lambda: all(self.owner(node, slot) == target.id for node in self.nodes), "the masters agree", PATIENCE_S)

    def end(self):
        self.over.set()
        self.join()
        assert self.fault is None, self.fault


def assert_counted(daemon, loads):
    with daemon.client(timeout_s=30) as client:
        for load in loads:
            for policy in ("window", "bucket", "log", "two", "first", "second"):
                limit = LOG_LIMIT if policy == "log" else LIMIT
                found = {f"c{load.n}-{i}": limit - client.call("peek", policy, f"c{load.n}-{i}")["remaining"] for i in range(N_KEYS)}
                assert found == {key: load.admitted[policy][key] for key in found}, policy
            once = Counter()
            for request_id in load.decided:
                key, cost = load.ids[request_id]
                once[key] += cost
            assert {key: LIMIT - client.call("peek", "window", key)["remaining"] for key in once} == once


def assert_few_undecided(loads, seed):
    undecided = sum((load.undecided() for load in loads), Counter())
    assert undecided.total() <= max(1, sum(load.sources.total() for load in loads) / 2000), (seed, undecided)


def test_slots_move_under_every_kind_of_check_and_each_is_charged_once_and_in_order(start_daemon, cluster):
    seed = random.randrange(1 << 30)
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
    loads = [Load(daemon, n, seed + n) for n in range(N_LOADS)]
    mover = Mover(cluster, seed)
    over = time.monotonic() + SECONDS
    eventually(lambda: time.monotonic() > over or mover.fault or any(load.fault for load in loads), "the time is over", SECONDS + PATIENCE_S)
    try:
        mover.end()
    finally:
        for load in loads:
            load.over.set()
    for load in loads:
        load.end()
    assert mover.n > 0, f"seed {seed}"
    assert_counted(daemon, loads)
    cluster.counted_once()
    assert_few_undecided(loads, seed)


def promote(replica):
    """A master on a busy machine lets the time of the command pass; then it is given again."""
    for _ in range(8):
        replica.ask("CLUSTER", "FAILOVER")
        over = time.monotonic() + FAILOVER_S
        while time.monotonic() < over and not replica.is_master:
            time.sleep(0.02)
        if replica.is_master:
            return
    raise AssertionError("no replica is promoted")


def test_masters_change_by_command_and_each_check_is_charged_once_and_in_order(start_daemon, cluster):
    seed = random.randrange(1 << 30)
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
    loads = [Load(daemon, n, seed + n) for n in range(N_LOADS)]
    try:
        for _ in range(3):
            replica = random.Random(seed).choice([node for node in cluster.running if not node.is_master])
            promote(replica)
            cluster.wait()
    finally:
        for load in loads:
            load.over.set()
    for load in loads:
        load.end()
    assert_few_undecided(loads, seed)
    assert_counted(daemon, loads)
