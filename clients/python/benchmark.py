"""The measurements of ./bench."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flask
import flask_limiter
import limits
import msgpack

from ratelimitd import AsyncClient, Client
from ratelimitd.flask import Limiter
from ratelimitd.testing import find_daemon

ROOT = Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "release"))
PROCESSES = (1, 4)
ROUNDS = 3
IN_FLIGHT = 64
POLICY = {"algorithm": "fixed_window", "limit": 1_000_000_000, "window": "1h"}
WARM_UP = 50
BLOCK = 100

Latencies = list[float]  # seconds, one for each check
Work = Callable[[float], Latencies]  # for so many seconds


class Places:
    """Redis, asked over TCP as usual, and a daemon on each store."""

    def __init__(self, folder: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.redis_port = free.getsockname()[1]
        self.redis_ready = f"{folder}/redis.sock"
        self.redis = f"redis://127.0.0.1:{self.redis_port}"
        self.memory_daemon = f"{folder}/memory.sock"
        self.redis_daemon = f"{folder}/shared.sock"


def timed(check: Callable[[], object], seconds: float) -> Latencies:
    for _ in range(WARM_UP):
        check()
    found = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        check()
        found.append(time.perf_counter() - began)
    return found


def bare_socket(path: str) -> Work:
    def work(seconds: float) -> Latencies:
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect(path)
            request = msgpack.packb([0, 1, "check", ["bench", "k"]])

            def check() -> None:
                daemon.send(request)
                assert msgpack.unpackb(daemon.recv(65536))[3]["allowed"]

            return timed(check, seconds)

    return work


def ours(path: str) -> Work:
    def work(seconds: float) -> Latencies:
        with Client(path, timeout=10) as client:
            return timed(lambda: client.check("bench", "k"), seconds)

    return work


def a_remembered_denial(path: str) -> Work:
    """Timed in blocks: reading the clock would take as long as the check."""

    def work(seconds: float) -> Latencies:
        with Client(path, timeout=10, remember_denials=3600) as client:
            client.check("full", "k", 2)

            def block() -> None:
                for _ in range(BLOCK):
                    client.check("full", "k", 2)

            return [one / BLOCK for one in timed(block, seconds) for _ in range(BLOCK)]

    return work


def ours_awaited(path: str, in_flight: int) -> Work:
    async def measured(seconds: float) -> Latencies:
        found: Latencies = []
        async with AsyncClient(path, timeout=10) as client:
            until = time.perf_counter() + seconds

            async def one() -> None:
                while (began := time.perf_counter()) < until:
                    await client.check("bench", "k")
                    found.append(time.perf_counter() - began)

            await asyncio.gather(*(one() for _ in range(in_flight)))
        return found

    return lambda seconds: asyncio.run(measured(seconds))


def the_limits_library(uri: str) -> Work:
    def work(seconds: float) -> Latencies:
        strategy = limits.strategies.FixedWindowRateLimiter(limits.storage.storage_from_string(uri))
        limit = limits.parse("1000000000/hour")
        return timed(lambda: strategy.hit(limit, "k"), seconds)

    return work


def a_view(limited_by: Callable[[flask.Flask], Any]) -> Work:
    """A whole request of Flask, without a network."""

    def work(seconds: float) -> Latencies:
        app = flask.Flask("bench")
        limit = limited_by(app)
        app.get("/")(limit(lambda: "x"))
        asks = app.test_client()
        assert asks.get("/").status_code == 200
        return timed(lambda: asks.get("/"), seconds)

    return work


def flask_limiter_on(uri: str) -> Callable[[flask.Flask], Any]:
    def limited_by(app: flask.Flask) -> Any:
        own = flask_limiter.Limiter(
            flask_limiter.util.get_remote_address, app=app, storage_uri=uri, headers_enabled=True
        )
        return own.limit("1000000000/hour")

    return limited_by


def rows(places: Places) -> dict[str, Work]:
    def our_limiter(app: flask.Flask) -> Any:
        return Limiter(app, client=Client(places.redis_daemon, timeout=10)).limit("bench")

    return {
        "socket, memory store": bare_socket(places.memory_daemon),
        "Client, memory store": ours(places.memory_daemon),
        "Client, a remembered denial": a_remembered_denial(places.memory_daemon),
        "AsyncClient, memory store": ours_awaited(places.memory_daemon, 1),
        f"AsyncClient, memory store, {IN_FLIGHT} tasks": ours_awaited(places.memory_daemon, IN_FLIGHT),
        "socket, Redis": bare_socket(places.redis_daemon),
        "Client, Redis": ours(places.redis_daemon),
        f"AsyncClient, Redis, {IN_FLIGHT} tasks": ours_awaited(places.redis_daemon, IN_FLIGHT),
        "limits library, Redis": the_limits_library(places.redis),
        "Flask view, no limit": a_view(lambda app: lambda view: view),
        "Flask view, ratelimitd, Redis": a_view(our_limiter),
        "Flask view, flask-limiter, Redis": a_view(flask_limiter_on(places.redis)),
    }


def in_processes(work: Work, n_processes: int, seconds: float) -> tuple[float, float]:
    """(p50 in microseconds, checks a second of all processes together)."""
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(n_processes), context.SimpleQueue()

    def one() -> None:
        start.wait()
        results.put(work(seconds))

    processes = [context.Process(target=one) for _ in range(n_processes)]
    for process in processes:
        process.start()
    found = [latency for _ in processes for latency in results.get()]
    for process in processes:
        process.join()
    return statistics.median(found) * 1e6, len(found) / seconds


@contextlib.contextmanager
def running(argv: list[str], path: str) -> Iterator[None]:
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not os.path.exists(path):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"bench: {argv[0]} does not start")
            time.sleep(0.01)
        yield
    finally:
        process.terminate()
        process.wait()


def config(folder: str, name: str, store: str) -> str:
    path = Path(folder) / f"{name}.yaml"
    full = flow_map({**POLICY, "limit": 1})
    path.write_text(f"policies: {{bench: {flow_map(POLICY)}, full: {full}}}\n{store}\n")
    return str(path)


def flow_map(settings: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in settings.items()) + "}"


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    own_redis = ROOT / ".deps" / "bin" / "redis-server"
    server = str(own_redis) if own_redis.exists() else shutil.which("redis-server")
    if server is None:
        sys.exit("bench: there is no redis-server")
    with tempfile.TemporaryDirectory(prefix="ratelimitd-bench-") as folder, contextlib.ExitStack() as stack:
        places = Places(folder)
        redis_argv = [server, "--unixsocket", places.redis_ready, "--port", str(places.redis_port), "--save", ""]
        stack.enter_context(running([*redis_argv, "--bind", "127.0.0.1", "--dir", folder], places.redis_ready))
        memory = config(folder, "memory", "store: {type: memory}")
        shared = config(
            folder, "shared", f"store: {{type: redis, redis: {{addresses: ['127.0.0.1:{places.redis_port}']}}}}"
        )
        stack.enter_context(running([find_daemon(), "-c", memory, "-s", places.memory_daemon], places.memory_daemon))
        stack.enter_context(running([find_daemon(), "-c", shared, "-s", places.redis_daemon], places.redis_daemon))
        work = rows(places)
        found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for _ in range(ROUNDS):
            for name, one in work.items():
                for n_processes in PROCESSES:
                    measured = in_processes(one, n_processes, seconds)
                    found.setdefault((name, n_processes), []).append(measured)

    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':42}" + "".join(f"{f'{n} process' + ('es' if n > 1 else ''):>22}" for n in PROCESSES))
    print(f"{'':42}" + f"{'p50 us':>11}{'checks/s':>11}" * len(PROCESSES))
    for name in work:
        cells = ""
        for n_processes in PROCESSES:
            p50s, rates = zip(*found[name, n_processes], strict=True)
            cells += f"{statistics.median(p50s):11.3g}{statistics.median(rates):11.0f}"
        print(f"{name:42}{cells}")


if __name__ == "__main__":
    main()
