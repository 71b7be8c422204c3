"""conftest.py: fixtures over harness.py. At the end of a test everything that it started is stopped. A daemon with an
unexpected exit status or a sanitizer's report fails the test that started it."""

import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from harness import PATIENCE_S, ROOT, Client, Ratelimitd, Redis, eventually, one_server, short_directory
from proxy import Proxy
from sentinels import Watched

TEST_SECONDS = 60
APART_S = 20  # most tests take less


@pytest.fixture(autouse=True)
def in_one_hour():
    """Windows of hours and days are aligned: an hour that ended in the middle of a test would begin its counts anew. So a test
    that could meet the end waits for it."""
    eventually(lambda: time.time() % 3600 < 3600 - APART_S, "the hour ends", APART_S + PATIENCE_S)


@pytest.fixture(autouse=True)
def time_limit(in_one_hour):
    """A hanging test must not stop the run."""
    def expired(_number, _frame):
        raise TimeoutError(f"the test took longer than {TEST_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, expired)
    signal.alarm(TEST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def closing(things):
    """Close all, even if one fails; then raise the error."""
    complaints = []
    for thing in reversed(things):
        try:
            thing.close()
        except AssertionError as error:
            complaints.append(str(error))
    assert not complaints, "\n".join(complaints)


def opening(make):
    """A function that makes things as `make` does; at the end of the test they are closed."""
    opened = []

    def open_one(*args, **options):
        opened.append(make(*args, **options))
        return opened[-1]

    yield open_one
    closing(opened)


@pytest.fixture
def ratelimitd():
    """Starts daemons: ratelimitd(config, redis=..., ...), see harness.Ratelimitd."""
    started = []

    def start(*args, **kwargs):
        daemon = Ratelimitd(*args, start=False, **{k: v for k, v in kwargs.items() if k != "start"})
        started.append(daemon)
        if kwargs.get("start", True):
            daemon.start()
        return daemon

    Client.sent_keys.clear()
    yield start
    closing(started)


@pytest.fixture
def stuck_resolver(place):
    """The environment of a daemon whose name lookups end only when a file is gone, which appears when one begins, and the file."""
    library, mark = place / "stuck_resolver.so", place / "mark"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, ROOT / "tests/integration/stuck_resolver.c"], check=True)
    return {"LD_PRELOAD": str(library), "STUCK_RESOLVER_MARK": str(mark),
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=1:halt_on_error=1"}, mark


@pytest.fixture
def place_of_notices():
    """A service manager's socket, and a function that returns the last STATUS that it received."""
    directory, last = short_directory(), [""]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(directory / "notify"))
        manager.setblocking(False)

        def status():
            try:
                while True:
                    found = re.search(r"^STATUS=(.*)$", manager.recv(4096).decode(), re.M)
                    last[0] = found[1] if found else last[0]
            except BlockingIOError:
                return last[0]

        yield str(directory / "notify"), status
    shutil.rmtree(directory)


@pytest.fixture
def place():
    """A directory with a short name."""
    directory = short_directory()
    yield directory
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    directory.rmdir()


@pytest.fixture
def connect():
    """Opens clients: connect(daemon) or connect(path)."""
    yield from opening(lambda where, **options: Client(where if isinstance(where, str) else where.socket, **options))


@pytest.fixture(params=Redis.KINDS)
def redis_kind(request):
    if not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    return request.param


@pytest.fixture
def start_redis(redis_kind):
    """Starts servers: start_redis(tcp=True, arguments=[...]), once per kind of server installed."""
    yield from opening(lambda **options: Redis(redis_kind, **options))


@pytest.fixture
def redis(start_redis):
    """One server on a Unix socket, once per kind of server installed."""
    return start_redis()


@pytest.fixture
def watched(redis_kind):
    """A master, its replica and three Sentinels."""
    one = Watched(redis_kind)
    try:
        yield one.wait()
    finally:
        one.close()


@pytest.fixture(params=["memory", *Redis.KINDS])
def any_store(request):
    """A daemon's `redis`: None, which is the memory store, then one server of each kind installed."""
    if request.param == "memory":
        yield None
        return
    yield from one_server(request.param)


@pytest.fixture
def daemon(request, any_store, ratelimitd):
    """On any store, with the CONFIG of the test file."""
    return ratelimitd(request.module.CONFIG, redis=any_store)


@pytest.fixture
def client(daemon, connect):
    return connect(daemon)


@pytest.fixture
def proxied():
    """Proxies in front of servers: proxied(server) or proxied("HOST:PORT"), see proxy.py."""
    yield from opening(lambda server, **options: Proxy(server if isinstance(server, str) else server.address, **options))
