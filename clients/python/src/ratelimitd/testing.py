"""For the tests of a program that uses ratelimitd.

FakeLimiter, AsyncFakeLimiter   in place of Client and AsyncClient: they allow, deny or fail as the test sets it,
remember the
                                calls, and need no daemon
daemon()                        a real daemon, with a clock that the test moves

RATELIMIT_ENABLED=0 in the environment switches all limits at endpoints off.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from .aio import AsyncClient
from .calls import Call, Held
from .client import Client
from .connection import Connection
from .decision import Decision
from .errors import Kind, Unavailable
from .link import Link

T = TypeVar("T")

FAKE_LIMIT = 1_000_000
FEATURES = frozenset(("name", "id", "reserve_inline", "abandon"))
START_S = 1_700_000_000  # where the clock of a test begins, in seconds since 1970
READY_TIMEOUT_S = 30


class Script:
    """What a fake limiter is to do, and what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []  # ["check", policy, key, cost]; each member of check_all by itself
        self._denied: dict[str, int] = {}
        self._kind: Kind | None = None
        self._n_held = 0

    def allow_all(self) -> None:
        """As in the beginning."""
        self._denied.clear()
        self._kind = None

    def deny(self, policy: str, retry_after: float = 1.0) -> None:
        """Deny this policy from now on; `retry_after` is in seconds, below 0: never."""
        self._denied[policy] = -1 if retry_after < 0 else math.ceil(retry_after * 1000)

    def unavailable(self, kind: Kind = "unreachable") -> None:
        """Every call raises Unavailable from now on."""
        self._kind = kind

    def _answer(self, call: Call[T]) -> T:
        items = call.params[0] if call.method in ("check_all", "check_many") else [call.params]
        if call.asked or call.method in ("peek", "refund", "reset"):
            for policy, key, *rest in items:
                cost = [] if call.method in ("acquire", "reset") else [_cost_of(rest)]
                self.calls.append([call.method, policy, key, *cost])
        if self._kind is not None:
            charged = self._kind in ("timeout", "lost", "protocol", "store_unavailable")
            raise Unavailable(self._kind, "as set by the test", maybe_charged=charged)
        return cast(T, self._result(call, items))

    def _result(self, call: Call[Any], items: list[list[Any]]) -> Any:
        if call.method in ("policies", "stats", "explain", "ping"):
            return {"policies": [], "stats": {}, "explain": {}}.get(call.method)
        if call.method in ("reset", "release"):
            return True
        if call.method in ("settle", "cancel"):
            return self._decision("", 0)

        free = call.method in ("peek", "refund")
        decisions = [self._decision(policy, _cost_of(rest), free) for policy, _, *rest in items]
        if call.method == "check_many":
            return decisions
        if call.method == "check_all":
            return _combined(decisions)
        if call.method in ("acquire", "reserve"):
            self._n_held += 1
            return Held(decisions[0], f"fake{self._n_held}" if decisions[0].allowed else "")
        return decisions[0]

    def _decision(self, policy: Any, cost: int, free: bool = False) -> Decision:
        name = policy if isinstance(policy, str) else policy.get("name", "inline")
        retry_after_ms = 0 if free else self._denied.get(name, 0)
        allowed = retry_after_ms == 0
        return Decision(
            allowed=allowed,
            limit=FAKE_LIMIT,
            remaining=max(FAKE_LIMIT - cost, 0) if allowed else 0,
            retry_after_ms=retry_after_ms,
            reset_after_ms=max(retry_after_ms, 0),
            granted=cost if allowed else 0,
            source="memory",
            of=name,
            quota=FAKE_LIMIT,
            window_ms=60_000,
            of_reset_ms=max(retry_after_ms, 0),
        )


def _cost_of(rest: list[Any]) -> int:
    last = rest[0] if rest else 1
    if isinstance(last, Mapping):
        return int(last.get("at_most", last.get("cost", 1)))
    return int(last)


def _combined(members: list[Decision]) -> Decision:
    denied = [one for one in members if not one.allowed]
    of = denied[0] if denied else members[0]
    return Decision(
        allowed=not denied,
        limit=of.limit,
        remaining=min(one.remaining for one in members),
        retry_after_ms=of.retry_after_ms,
        reset_after_ms=of.reset_after_ms,
        granted=0 if denied else sum(one.granted for one in members),
        bound_by=of.of if denied else None,
        source="memory",
        of=of.of,
        quota=of.quota,
        window_ms=of.window_ms,
        of_reset_ms=of.of_reset_ms,
        members=tuple(members),
    )


class _FakeConnection:
    """Where a fake's slots live."""

    is_usable = True

    def __init__(self) -> None:
        self.dependants: set[Any] = set()
        self.reservations: set[Any] = set()

    def is_alive(self) -> bool:
        return True

    def close(self) -> None:
        pass


class FakeLimiter(Client, Script):
    """A Client that asks no daemon. `calls` has what it was asked; allow_all(), deny() and unavailable() say what it
    does.
    """

    def __init__(self, **options: Any) -> None:
        Script.__init__(self)
        Client.__init__(self, f"fake-{id(self)}", **options)
        self.features = FEATURES

    def _exchange(self, call: Call[T], until: float) -> tuple[T, Connection]:
        connection = _FakeConnection()
        connection.call = lambda call, until: self._answer(call)  # type: ignore[attr-defined]
        return self._answer(call), cast(Connection, connection)

    def _give_back(self, connection: Connection) -> None:
        pass

    def verify(self, names: Iterable[str], *, inline: bool = False, timeout: float | None = None) -> None:
        """Every policy exists."""


class AsyncFakeLimiter(AsyncClient, Script):
    """An AsyncClient that asks no daemon."""

    def __init__(self, **options: Any) -> None:
        Script.__init__(self)
        AsyncClient.__init__(self, f"fake-{id(self)}", **options)
        self.features = FEATURES

    async def _exchange(self, call: Call[T], timeout: float) -> tuple[T, Link]:
        link = _FakeConnection()

        async def later(call: Call[Any], timeout: float) -> Any:
            return self._answer(call)

        link.call = later  # type: ignore[attr-defined]
        return self._answer(call), cast(Link, link)

    async def verify(self, names: Iterable[str], *, inline: bool = False, timeout: float | None = None) -> None:
        """Every policy exists."""


# ---- a real daemon ----


class Daemon:
    """A running ratelimitd. `socket` is its path; its time stands still until the test moves it."""

    def __init__(self, socket: str, process: subprocess.Popen[bytes]) -> None:
        self.socket = socket
        self.process = process
        self._now_us = START_S * 1_000_000

    def advance(self, seconds: float) -> None:
        """Move the clock of the limits; timeouts and deadlines stay real."""
        self._now_us += round(seconds * 1_000_000)
        with Client(self.socket, timeout=READY_TIMEOUT_S) as client:
            client._run(Call("test_clock", [self._now_us], lambda answer: None), None)


def find_daemon() -> str:
    """$RATELIMITD, or in $RATELIMITD_BUILD, or in the search path."""
    build = os.environ.get("RATELIMITD_BUILD")
    found = os.environ.get("RATELIMITD") or (f"{build}/bin/ratelimitd" if build else shutil.which("ratelimitd"))
    if not found:
        raise FileNotFoundError("ratelimitd is not installed; set RATELIMITD to its path")
    return found


@contextlib.contextmanager
def daemon(
    policies: Mapping[str, Any] | None = None, *, inline: bool = True, config: str | os.PathLike[str] | None = None
) -> Iterator[Daemon]:
    """A real daemon on the memory store, for a `with` block. `policies` are written as in its configuration:

        with daemon({"login": {"algorithm": "fixed_window", "limit": 5, "window": "1m"}}) as ratelimitd:
            client = Client(ratelimitd.socket)

    inline  inline policies are allowed
    config  a configuration file, in place of both
    """
    with tempfile.TemporaryDirectory(prefix="ratelimitd-") as folder:
        path = f"{folder}/ratelimitd.sock"
        if config is None:
            config = Path(folder) / "ratelimitd.yaml"
            config.write_text(json.dumps({"policies": dict(policies or {}), "inline": {"allow": inline}}))
        log = Path(folder) / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [find_daemon(), "-c", os.fspath(config), "-s", path, "--test-clock"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        try:
            running = Daemon(path, process)
            _wait_until_ready(process, path, log)
            running.advance(0)
            yield running
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], path: str, log: Path) -> None:
    for _ in range(READY_TIMEOUT_S * 100):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
            raise RuntimeError("ratelimitd does not start: " + log.read_text(errors="replace"))
        if os.path.exists(path):
            break
    with Client(path, timeout=READY_TIMEOUT_S) as client:
        client.ping()
