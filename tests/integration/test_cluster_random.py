"""test_cluster_random.py: random checks over a Redis Cluster while hash slots move and masters change or die: each is charged
once, in order, and has the answer of the model (tests/model) in every field. Short here; `./dev soak cluster` goes on."""

import itertools
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from clusters import HASH_SLOTS, PATIENCE_S, Cluster
from harness import Redis, RpcError, eventually
from redis.crc import key_slot
from server_clock import ServerClock
from stepped_clock import Clock
from test_cluster_by_node import CONFIG, LIMIT, LIMITS, is_by_node

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model"))

import at_cluster  # noqa: E402
import traces  # noqa: E402

SECONDS = float(os.environ.get("CLUSTER_S", "3"))  # of each test
SEED = int(os.environ.get("CLUSTER_SEED", random.randrange(1 << 30)))
N_LOADS, N_KEYS = 3, 30
N_SHARDS = 16  # of the model's cluster
FAILOVER_S = 6  # a little more than the server gives it
DOUBT_PAUSE_S = 0.2  # of a load, after an answer that Redis did not make
BY_REDIS = "redis None"  # an answer's source and reason
STORE = """
store:
  type: redis
  redis:
    topology: cluster
    addresses: [ADDRESSES]
    stall: 60s
    reconnect: {min: 1ms, max: 50ms, refused_max: 50ms}
"""


@pytest.fixture(scope="module", params=Redis.KINDS)
def kind(request):
    if not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    return request.param


@pytest.fixture(scope="module")
def cluster(kind):
    one = Cluster(kind)
    yield one
    one.close()


def start_on(cluster, ratelimitd, config, settings="", **options):
    """settings: lines of store.redis."""
    for node in cluster.masters:
        with node.client() as client:
            client.flushall()
    daemon = ratelimitd(config + STORE.replace("ADDRESSES", cluster.addresses) + settings, start=False, **options)
    daemon.start()
    return is_ready(daemon)


def is_ready(daemon):
    with daemon.client() as client:
        def is_it():
            stats = client.call("stats")
            return stats["redis_up"] == stats["redis_nodes"] == 3

        eventually(is_it, "three masters are ready", PATIENCE_S)
    return daemon


# ---- sums, and the order of answers -----------------------------------------------------------------------------------


class Load(threading.Thread):
    """Pipelines of checks of every kind; for each key what was admitted, and each answer that does not follow from it: loses: a
    server may lose some of it, and an answer that Redis did not make leaves in doubt what was charged."""

    def __init__(self, daemon, n, seed, loses=False):
        super().__init__()
        self.daemon, self.n, self.random, self.over, self.loses = daemon, n, random.Random(seed), threading.Event(), loses
        self.admitted, self.in_doubt, self.sources = Counter(), Counter(), Counter()  # the first two by policy and key
        self.ids, self.decided = {}, set()  # by request id: key and cost; those that Redis has answered
        self.wrong, self.fault = [], None
        self.start()

    def run(self):
        try:
            with self.daemon.client(timeout_s=30) as client:
                while not self.over.is_set():
                    sent = [self.ask(client) for _ in range(self.random.choice((1, 5, 40, 120)))]
                    undecided = self.in_doubt.total()
                    for what in sent:
                        self.take(client, *what)
                    time.sleep(self.random.random() * 0.005 if self.in_doubt.total() == undecided else DOUBT_PAUSE_S)
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
        policies = ("first", "second") if kind == "all" else ("window",) if kind == "peek" or kind in self.ids else (kind,)
        try:
            answer = client.answer(msgid)
            source = f"{answer['source']} {answer.get('reason')}"
        except RpcError as error:
            source = str(error)
        self.sources[source] += 1
        counted = self.admitted if source == BY_REDIS else self.in_doubt
        if kind in self.ids:
            self.decided |= {kind} if counted is self.admitted else set()
            return
        for policy in policies:
            counted[policy, key] += cost
        if counted is self.in_doubt or kind == "all" or self.loses:
            return
        limit, admitted = LIMITS.get(policies[0], LIMIT), self.admitted[policies[0], key]
        if answer["remaining"] != limit - admitted:
            self.wrong.append((kind, key, cost, answer, admitted))

    def end(self):
        self.over.set()
        self.join()
        assert self.fault is None, self.fault
        assert not self.wrong, (SEED, self.wrong[:3])

    def undecided(self):
        return Counter({what: n for what, n in self.sources.items() if what != BY_REDIS})


class Mover(threading.Thread):
    """Moves the hash slot of one shard after another, key by key. Each master keeps a shard."""

    def __init__(self, cluster, seed, n_shards=256, key_s=0.02):
        super().__init__()
        self.slots, self.key_s = [key_slot(b"b%03d" % i) for i in range(n_shards)], key_s
        self.nodes, self.random, self.over, self.n, self.fault = cluster.masters, random.Random(seed), threading.Event(), 0, None
        self.start()

    def run(self):
        try:
            while not self.over.is_set():
                self.move()
        except BaseException as fault:  # noqa: BLE001
            self.fault = fault

    def owners(self, node):
        """The id of the master that has each shard's slot, as a node sees it."""
        ranges = [(first, last, master[2]) for first, last, master, *_ in node.ask("CLUSTER", "SLOTS")]
        names = {slot: next(name for first, last, name in ranges if first <= slot <= last) for slot in self.slots}
        return {slot: name.decode() if isinstance(name, bytes) else name for slot, name in names.items()}

    def move(self):
        owners = self.owners(self.nodes[0])
        n_of = Counter(owners.values())
        slot = self.random.choice([slot for slot in self.slots if n_of[owners[slot]] > 1])
        source = next(node for node in self.nodes if node.id == owners[slot])
        target = self.random.choice([node for node in self.nodes if node is not source])
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, self.random.choice((1, 1, 3))):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            time.sleep(self.random.random() * self.key_s)
        for node in (target, source, *(node for node in self.nodes if node not in (source, target))):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        eventually(lambda: all(self.owners(node)[slot] == target.id for node in self.nodes), "the masters agree", PATIENCE_S)
        self.n += 1

    def end(self):
        self.over.set()
        self.join()
        assert self.fault is None, self.fault
        assert self.n > 0


class Loads:
    """Several of them, while something happens to the cluster."""

    def __init__(self, daemon, loses=False):
        with daemon.client() as client:
            is_by_node(client)
        self.daemon = daemon
        self.all = [Load(daemon, n, SEED + n, loses) for n in range(N_LOADS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for load in self.all:
            load.over.set()
        for load in self.all:
            load.end()

    def go_on(self, others=()):
        """For the time of a test."""
        over = time.monotonic() + SECONDS
        eventually(lambda: time.monotonic() > over or any(one.fault for one in (*self.all, *others)), "the time is over", SECONDS + PATIENCE_S)

    def admitted(self):
        return sum((load.admitted for load in self.all), Counter())

    def in_doubt(self):
        return sum((load.in_doubt for load in self.all), Counter())

    def assert_few_undecided(self):
        undecided = sum((load.undecided() for load in self.all), Counter())
        assert undecided.total() <= max(1, sum(load.sources.total() for load in self.all) / 2000), (SEED, undecided)


NAMES = [(policy, f"c{n}-{i}") for policy in ("window", "bucket", "log", "two", "first", "second") for n in range(N_LOADS) for i in range(N_KEYS)]


def counted(daemon):
    """By policy and key, what Redis has."""
    with daemon.client(timeout_s=30) as client:
        return {name: LIMITS.get(name[0], LIMIT) - client.call("peek", *name)["remaining"] for name in NAMES}


def slots_of_counters(daemon):
    with daemon.client(timeout_s=30) as client:
        return {name: key_slot(client.call("explain", *name)["store_keys"][0].encode()) for name in NAMES}


def assert_counted(daemon, loads):
    admitted = loads.admitted()
    assert {name: n for name, n in counted(daemon).items() if n != admitted[name]} == {}, SEED
    with daemon.client(timeout_s=30) as client:
        for load in loads.all:
            once = Counter()
            for request_id in load.decided:
                key, cost = load.ids[request_id]
                once[key] += cost
            assert {key: LIMIT - client.call("peek", "window", key)["remaining"] for key in once} == once


def test_slots_move_under_every_kind_of_check_and_each_is_charged_once_and_in_order(cluster, ratelimitd):
    daemon = start_on(cluster, ratelimitd, CONFIG)
    with Loads(daemon) as loads:
        mover = Mover(cluster, SEED)
        loads.go_on([mover])
        mover.end()
    assert_counted(daemon, loads)
    cluster.counted_once()
    loads.assert_few_undecided()


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


def test_masters_change_by_command_and_each_check_is_charged_once_and_in_order(cluster, ratelimitd):
    daemon, rng, over = start_on(cluster, ratelimitd, CONFIG), random.Random(SEED), time.monotonic() + SECONDS
    with Loads(daemon) as loads:
        for n in itertools.count():
            if n >= 3 and time.monotonic() > over:
                break
            promote(rng.choice([node for node in cluster.running if not node.is_master]))
            cluster.wait()
            is_ready(daemon)
    loads.assert_few_undecided()
    assert_counted(daemon, loads)


def is_replicated(node):
    """All that the master has written until now is written by its replica as well."""
    first, last = node.ranges[0]
    tag = next(tag for tag in itertools.count() if first <= key_slot(b"%d" % tag) <= last)
    with node.client() as client:
        client.set(f"{{{tag}}}", 1)
        return client.execute_command("WAIT", 1, 5000) >= 1


def test_masters_are_killed_and_what_they_count_is_within_what_no_replica_had(cluster, ratelimitd):
    """For each key: at most what was admitted, and what may have been; at least what was admitted, less what the master that
    was killed may have admitted since its replica had all."""
    daemon, rng, over, lost = start_on(cluster, ratelimitd, CONFIG), random.Random(SEED), time.monotonic() + SECONDS, Counter()
    slot_of = slots_of_counters(daemon)
    with Loads(daemon, loses=True) as loads:
        for n in itertools.count():
            if n >= 1 and time.monotonic() > over:
                break
            time.sleep(rng.random())
            victim = rng.choice(cluster.masters)
            its_slots = {slot for first, last in victim.ranges for slot in range(first, last + 1)}
            surely = loads.admitted()
            eventually(lambda node=victim: is_replicated(node), "its replica has all", PATIENCE_S)
            time.sleep(rng.random() * 0.05)
            victim.kill()
            others = [node for node in cluster.running if node is not victim]
            eventually(lambda: sum(node.n_slots for node in others if node.is_master) == HASH_SLOTS, "its replica is promoted", PATIENCE_S)
            lost.update({name: n for name, n in (loads.admitted() - surely).items() if slot_of[name] in its_slots})
            victim.start()
            cluster.wait()
            is_ready(daemon)
    admitted, in_doubt, found = loads.admitted(), loads.in_doubt(), counted(daemon)
    wrong = {name: (n, admitted[name], in_doubt[name], lost[name]) for name, n in found.items()
             if not admitted[name] - lost[name] <= n <= admitted[name] + in_doubt[name]}
    assert not wrong, SEED
    cluster.counted_once()


# ---- the model --------------------------------------------------------------------------------------------------------


class Model:
    """A cluster whose servers have the time of the traces, and hash slots that move."""

    def __init__(self, kind, folder):
        self.clock, self.daemon_clock = ServerClock(folder), Clock(folder)
        self.clock.us = traces.START_US
        self.cluster = Cluster(kind, n_replicas=0, arguments=self.clock.arguments)

    def runs(self, ratelimitd, make):
        """Runs of what make(rng) makes: (traces, times, configuration, settings of the store), each on a daemon of its own."""
        rng, over, done = random.Random(SEED), time.monotonic() + SECONDS, []
        mover = Mover(self.cluster, SEED, N_SHARDS, 0.002)
        try:
            while not done or time.monotonic() < over:
                some, times, policies, settings = make(rng)
                at_cluster.set_clocks(times[0], self.clock, self.daemon_clock)
                config = "defaults: {deadline: 30s, on_failure: deny}\npolicies:\n" + policies
                daemon = start_on(self.cluster, ratelimitd, config, f"    buckets: {N_SHARDS}\n    {settings}\n", env=self.daemon_clock.env)
                done.append(at_cluster.Run(daemon, times, some, self.clock, self.daemon_clock))
                daemon.stop()
                assert not done[-1].wrong, f"CLUSTER_SEED={SEED}, {len(done)} runs:\n" + "\n".join(one[-2000:] for one in done[-1].wrong[:5])
        finally:
            mover.end()
        n, n_ended = sum(one.n for one in done), sum(one.n_ended for one in done)
        assert n_ended <= max(1, n / 2000), (SEED, n, n_ended)
        return done


@pytest.fixture(scope="module")
def model(kind, tmp_path_factory):
    one = Model(kind, tmp_path_factory.mktemp("clocks"))
    yield one
    one.cluster.close()


def test_while_slots_move_each_answer_is_the_models_in_every_field(model, ratelimitd):
    def make(rng):
        some = [at_cluster.of_seed(name, rng.randrange(10**6)) for name in traces.EVERY for _ in range(3)]
        times, some = at_cluster.together(some, rng)
        return some, times, at_cluster.config(some), "deny_cache: {max_keys: 0}"

    model.runs(ratelimitd, make)


def test_while_slots_move_leases_and_the_deny_cache_answer_as_the_model(model, ratelimitd):
    def make(rng):
        large, small = ([at_cluster.of_busy(algorithm, rng.randrange(10**6), is_large) for algorithm in algorithms for _ in range(3)]
                        for is_large, algorithms in ((True, at_cluster.LEASED), (False, at_cluster.DENYING)))
        times = [traces.START_US] * max(len(trace.ticks) for trace in large + small)
        return large + small, times, at_cluster.config(large, "lease: 10s, ") + at_cluster.config(small), "deny_cache: {max_age: 1m}"

    done = model.runs(ratelimitd, make)
    assert all(one.n_here["lease"] > 0 and one.n_here["deny_cache"] > 0 for one in done)
