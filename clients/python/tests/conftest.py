"""A real daemon for each test file that asks for it, and peers that misbehave."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import django
import http_sfv
import msgpack
import pytest
from django.conf import settings

from ratelimitd import Client
from ratelimitd.testing import Daemon, FakeLimiter, daemon

ROOT = Path(__file__).resolve().parents[3]
os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "release"))
for variable in ("RATELIMIT_SERVICE", "OTEL_SERVICE_NAME"):  # they would stand in the keys
    os.environ.pop(variable, None)

# Before a test imports ninja or rest_framework, which read them.
settings.configure(
    ROOT_URLCONF="test_django",
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["ratelimitd.django.RateLimitMiddleware"],
    USE_TZ=True,
)
django.setup()

FIRST_HIT = {"algorithm": "fixed_window", "start": "first_hit"}
POLICIES = {
    "web": {**FIRST_HIT, "limit": 100, "window": "1m"},
    "few": {**FIRST_HIT, "limit": 2, "window": "1m"},
    "tenant": {**FIRST_HIT, "limit": 3, "window": "1m"},
    "budget": {"algorithm": "token_bucket", "limit": 10, "window": "1m", "burst": 20},
    "queue": {"algorithm": "leaky_bucket", "limit": 10, "window": "1s", "burst": 1, "max_wait": "10s"},
    "slots": {"algorithm": "concurrency", "limit": 2},
    "trial": {**FIRST_HIT, "limit": 1, "window": "1m", "shadow": True},
    "free": {"unlimited": True},
}


@pytest.fixture(scope="session")
def ratelimitd() -> Iterator[Daemon]:
    with daemon(POLICIES) as running:
        yield running


@pytest.fixture
def client(ratelimitd: Daemon) -> Iterator[Client]:
    with Client(ratelimitd.socket, timeout=5) as one:
        yield one


@pytest.fixture
def fake() -> FakeLimiter:
    return FakeLimiter()


@pytest.fixture
def key() -> str:
    """One that no other test uses."""
    return uuid.uuid4().hex


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """peer(answer): the path of a daemon that calls answer(connection, request) for every request but hello."""
    listeners = []

    def start(answer: Callable[[socket.socket, list[object]], object]) -> str:
        listener = socket.socket(socket.AF_UNIX)
        path = str(tmp_path / f"{len(listeners)}.sock")
        listener.bind(path)
        listener.listen()
        listeners.append(listener)
        threading.Thread(target=_accept, args=[listener, answer], daemon=True).start()
        return path

    yield start
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, answer: Callable[[socket.socket, list[object]], object]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=[connection, answer], daemon=True).start()


def _serve(connection: socket.socket, answer: Callable[[socket.socket, list[object]], object]) -> None:
    unpacker = msgpack.Unpacker()
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(65536):
            unpacker.feed(data)
            for request in unpacker:
                if request[2] != "hello":
                    answer(connection, request)


def reply(connection: socket.socket, msgid: object, **fields: object) -> None:
    decision = {"allowed": True, "limit": 10, "remaining": 9, "retry_after_ms": 0, "source": "memory", **fields}
    connection.sendall(msgpack.packb([1, msgid, None, decision]))


def fields_of(headers: object) -> dict[str, object]:
    """RateLimit and RateLimit-Policy, as an independent reader of Structured Fields has them."""
    found = {}
    for name in ("RateLimit", "RateLimit-Policy"):
        value = headers.get(name)  # type: ignore[attr-defined]
        if value is not None:
            members = http_sfv.List()
            members.parse(value.encode())
            found[name] = [(item.value, dict(item.params)) for item in members]
    return found
