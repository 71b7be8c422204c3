"""sentinels.py: a master with a replica, watched by three Sentinels, as real processes."""

import shutil

import redis as redis_py

from harness import Redis, RedisProcess, eventually, on_free_port, short_directory

NAME = "limits"


class Sentinel(RedisProcess):
    def __init__(self, kind, master_port, lines=(), is_tls=False):
        super().__init__()
        self.kind, self.master_port, self.lines, self.is_tls = kind, master_port, lines, is_tls
        self.directory = short_directory()
        on_free_port(self._start_on)

    def _start_on(self, port):
        self.port = port
        (self.directory / "sentinel.conf").write_text("\n".join([
            *([f"tls-port {port}", "port 0"] if self.is_tls else [f"port {port}"]), "bind 127.0.0.1", f"dir {self.directory}", f"logfile {self.directory}/log",
            f"sentinel monitor {NAME} 127.0.0.1 {self.master_port} 2", f"sentinel down-after-milliseconds {NAME} 500",
            f"sentinel failover-timeout {NAME} 3000", *self.lines, ""]))
        self.start()

    def start(self):
        self.spawn([shutil.which(f"{self.kind}-server"), str(self.directory / "sentinel.conf"), "--sentinel"])
        eventually(self._answers, "a Sentinel answers")

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def client(self, **options):
        tls = {"ssl": True, "ssl_cert_reqs": "none"} if self.is_tls else {}
        return redis_py.Redis(port=self.port, decode_responses=True, **tls, **options)

    def close(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Watched:
    """.master and .replica change places with each failover; .sentinels; ready once everybody knows everybody."""

    def __init__(self, kind, lines=()):
        self.processes = []
        self.servers = [self._add(Redis(kind, tcp=True, arguments=["--repl-diskless-sync-delay", "0"]))]
        self.servers.append(self._add(Redis(kind, tcp=True, arguments=["--replicaof", f"127.0.0.1 {self.servers[0].port}"])))
        self.sentinels = [self._add(Sentinel(kind, self.servers[0].port, lines)) for _ in range(3)]

    def _add(self, process):
        self.processes.append(process)
        return process

    def wait(self, **credentials):
        for sentinel in self.sentinels:
            with sentinel.client(**credentials) as client:
                eventually(lambda: self._is_known_to(client), "the Sentinels know each other and the replica", patience_s=30)  # noqa: B023
        return self

    @staticmethod
    def _is_known_to(client):
        replicas = client.sentinel_slaves(NAME)
        return client.sentinel_master(NAME)["num-other-sentinels"] == 2 and len(replicas) == 1 and replicas[0]["master-link-status"] == "ok"

    @property
    def master(self):
        """The server that says so itself."""
        return next(server for server in self.servers if server.running and self._role(server) == "master")

    @staticmethod
    def _role(server):
        with server.client() as client:
            return client.role()[0].decode()

    @property
    def addresses(self):
        return ", ".join(f'"{sentinel.address}"' for sentinel in self.sentinels)

    def close(self):
        for process in reversed(self.processes):
            process.close()
