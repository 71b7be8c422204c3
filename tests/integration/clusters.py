"""clusters.py: a Redis Cluster of real processes: masters, each with replicas."""

import re
import shutil
import subprocess
from pathlib import Path

from redis.exceptions import RedisError

from harness import Redis, eventually, free_port

HASH_SLOTS = 16384
NODE_TIMEOUT_MS = 1500
PATIENCE_S = 40  # of the nodes, who agree at their own pace


class Node(Redis):
    """A server that is, or may become, one of a cluster."""

    def __init__(self, kind, arguments=(), tls=()):
        self.tls = list(tls)  # arguments; with them .port speaks TLS alone
        super().__init__(kind, tcp=True, arguments=[
            "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--cluster-replica-validity-factor", "0",
            "--cluster-require-full-coverage", "no",
            "--repl-diskless-sync-delay", "0", *arguments])

    def start(self, wait=True):
        self.bus_port = free_port()
        kept = self.arguments
        tls = ["--port", "0", "--tls-port", str(self.port), "--tls-cluster", "yes", *self.tls] if self.tls else []
        self.arguments = ["--cluster-port", str(self.bus_port), *tls, *kept]
        try:
            super().start(wait)
        finally:
            self.arguments = kept

    def ask(self, *words):
        with self.client(decode_responses=True) as client:
            return client.execute_command(*words)

    @property
    def id(self):
        return self.ask("CLUSTER MYID")

    @property
    def is_master(self):
        with self.client() as client:
            return client.role()[0] == b"master"

    @property
    def info(self):
        """Of CLUSTER INFO."""
        with self.client() as client:
            text = client.execute_command("CLUSTER INFO")
        return text if isinstance(text, dict) else dict(line.split(":") for line in text.decode().split())

    @property
    def ranges(self):
        """Of hash slots, [(first, last), ...], by its own words."""
        done = subprocess.run([shutil.which("redis-cli"), "-s", self.socket, "CLUSTER", "NODES"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=20)
        line = next((line for line in done.stdout.splitlines() if "myself" in line), "")
        return [tuple(int(n) for n in (word.split("-") * 2)[:2]) for word in line.split()[8:] if re.fullmatch(r"\d+(-\d+)?", word)]

    @property
    def n_slots(self):
        return sum(last - first + 1 for first, last in self.ranges)

    def is_saved(self):
        """Valkey 8.0 does not start with a file in which a replica has another shard than its master, as it may be at first."""
        self.ask("CLUSTER", "SAVECONFIG")
        lines = [line.split() for line in Path(self.socket).with_name("nodes.conf").read_text().splitlines()]
        shards = {words[0]: re.search(r"shard-id=(\w+)|$", words[1]).group() for words in lines if words[0] != "vars"}
        return all(shards[words[0]] == shards.get(words[3]) for words in lines if words[0] != "vars" and words[3] != "-")

    def keys(self):
        with self.client() as client:
            return set(client.keys())


class Cluster:
    """.nodes: the masters first, as they were made."""

    def __init__(self, kind, n_masters=3, n_replicas=1, tls=(), tls_cli=(), arguments=()):
        """arguments, tls: of each server; tls_cli: of redis-cli."""
        self.kind, self.nodes, self.tls, self.tls_cli, self.arguments = kind, [], tls, tls_cli, arguments
        try:
            for _ in range(n_masters * (1 + n_replicas)):
                self.nodes.append(Node(kind, arguments, tls))
            self._make(n_masters)
        except BaseException:
            self.close()
            raise

    def _make(self, n_masters):
        masters, replicas = self.nodes[:n_masters], self.nodes[n_masters:]
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(masters):
            first, last = (HASH_SLOTS * n // n_masters for n in (number, number + 1))
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        for node in self.nodes[1:]:
            self.meet(node)
        eventually(lambda: all(node.info["cluster_known_nodes"] == str(len(self.nodes)) for node in self.nodes), "all know all", PATIENCE_S)
        for number, node in enumerate(replicas):
            node.ask("CLUSTER", "REPLICATE", masters[number % n_masters].id)
        self.wait()

    def meet(self, node):
        node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus_port)

    def add(self):
        """One more node, without hash slots."""
        node = Node(self.kind, self.arguments, self.tls)
        self.nodes.append(node)
        self.meet(node)
        n_known = {str(len(self.running))}
        eventually(lambda: {one.info["cluster_known_nodes"] for one in self.running} == n_known, "all know the new node", PATIENCE_S)
        self.wait()
        return node

    @property
    def running(self):
        return [node for node in self.nodes if node.running]

    @property
    def masters(self):
        """Those with hash slots."""
        return [node for node in self.running if node.is_master and node.ranges]

    @property
    def addresses(self):
        return ", ".join(f'"{node.address}"' for node in self.nodes)

    def wait(self):
        """Until the nodes that run agree that all is well."""
        eventually(self._is_well, lambda: f"the cluster is well: {self._state()}", PATIENCE_S)
        eventually(self._agrees, lambda: f"its nodes agree: {self.disagreement}\n{self._state()}", PATIENCE_S)
        eventually(lambda: all(node.is_saved() for node in self.running), "each node has saved what it may start with", PATIENCE_S)
        return self

    def _is_well(self):
        try:
            return all(node.info["cluster_state"] == "ok" for node in self.running) and \
                sum(node.n_slots for node in self.masters) == HASH_SLOTS and all(self._is_linked(node) for node in self.running)
        except (RedisError, OSError):
            return False

    def _state(self):
        """As each node that runs sees itself and the others."""
        def seen_by(node):
            try:
                with node.client() as client:
                    role = client.role()
                return f"{node.address}: {node.info['cluster_state']}, {node.n_slots} slots, {role[:1] + role[3:4]}\n{node.ask('CLUSTER', 'NODES')}"
            except (RedisError, OSError) as error:
                return f"{node.address}: {error}"

        return "\n".join(map(seen_by, self.running))

    @staticmethod
    def _is_linked(node):
        with node.client() as client:
            role = client.role()
        return role[0] == b"master" or role[3] == b"connected"

    def cli(self, *words, patience_s=90):
        """redis-cli --cluster WORDS, which must succeed."""
        argv = [shutil.which("redis-cli"), *self.tls_cli, "--cluster", *words]
        done = subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience_s)
        assert done.returncode == 0 and "[ERR]" not in done.stdout, done.stdout[-2000:] + done.stderr
        return done.stdout

    def _agrees(self):
        try:
            self.cli("check", self.running[0].address)
        except AssertionError as error:
            self.disagreement = error
            return False
        return True

    def reshard(self, source, target, n_slots):
        """Moves so many hash slots with their keys, one key at a time."""
        self.wait()
        self.cli("reshard", self.running[0].address, "--cluster-from", source.id, "--cluster-to", target.id, "--cluster-slots", n_slots,
                 "--cluster-yes", "--cluster-pipeline", 1)

    def counted_once(self):
        """No key is on two masters."""
        seen = {}
        for node in self.masters:
            for key in node.keys():
                assert key not in seen, f"{key} is on {seen[key]} and on {node.address}"
                seen[key] = node.address
        return seen

    def close(self):
        for node in self.nodes:
            node.close()
