"""Client: ask and wait. For threads, processes and greenlets; it has no thread of its own.

A call takes a connection out of the pool, or opens one, and gives it back with the answer, so a connection has one
call at a time and a slot can keep its own. A connection that was lost before anything left is replaced without a
word; what may have been charged is sent again only if it has a request_id.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from . import calls
from .calls import Call, Check, Held, Key, Policy
from .connection import Connection, NeverSent
from .decision import Decision
from .errors import Denied, RateLimitError, Refused, Unavailable
from .forks import tell_after_fork
from .health import Health
from .remember import Denials
from .watch import OnDecision, Watch, quietly, warn_of_count_denied

T = TypeVar("T")

DEFAULT_SOCKET = "/run/ratelimitd/ratelimitd.sock"
DEFAULT_TIMEOUT_S = 0.25
PATH_BYTES_MAX = 107  # of a Unix socket
IDLE_CONNECTIONS_MAX = 64


def socket_path(path: str | os.PathLike[str] | None) -> str:
    """`path`, or $RATELIMIT_SOCKET (empty is the same as not set), or the default."""
    found = os.environ.get("RATELIMIT_SOCKET") or DEFAULT_SOCKET if path is None else os.fspath(path)
    if not 1 <= len(os.fsencode(found)) <= PATH_BYTES_MAX:
        raise ValueError(f"the path of a socket has from 1 to {PATH_BYTES_MAX} bytes: {found!r}")
    return found


def checked_timeout(seconds: float) -> float:
    """ValueError for one that never ends, or is none: every call ends in time."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise ValueError(f"timeout is a number of seconds, not {seconds!r}: every call ends in time")
    return seconds


class Client:
    """The daemon at `socket` (default: $RATELIMIT_SOCKET, then /run/ratelimitd/ratelimitd.sock).

    timeout      seconds for each call, connecting included; a call's own `timeout` counts instead
    on_decision  called with (policy, key, decision) after each decision, from the thread that asked
    remember_denials  seconds for which a denied check is denied again without asking; 0: never. Not for policies with
                 count_denied

    Nothing is opened before the first call. Every method raises Unavailable (no decision) or Refused (a mistake in the
    program or configuration). Durations are seconds. A policy is a name, or a mapping with the settings of an
    inline one.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        on_decision: OnDecision | None = None,
        remember_denials: float = 0,
    ) -> None:
        self.socket = socket_path(socket)
        self.timeout = checked_timeout(timeout)
        self._watch = Watch(on_decision)
        self._denials = Denials(remember_denials, self._watch)
        self.features: frozenset[str] = frozenset()  # of the daemon, as its last answer to hello lists them
        self._leave_parent()
        tell_after_fork(self)

    def check(
        self,
        policy: Policy,
        key: Key,
        cost: int = 1,
        *,
        at_most: int | None = None,
        max_wait: float | None = None,
        deadline: float | None = None,
        request_id: Key | None = None,
        resend: bool = False,
        timeout: float | None = None,
    ) -> Decision:
        """May `key` do this now? If so, `cost` units are charged.

        at_most     instead of a cost: grant what is available, up to this many; see `granted`
        max_wait    the longest acceptable `delay`; 0: deny instead
        deadline    the daemon answers within this time, with the policy's failure answer if its store does not
        request_id  any name for this request: the same id again is charged once
        resend      send again if the connection is lost; without a request_id, make one
        """
        is_own = at_most is not None or request_id is not None
        same = self._denials.same_check(policy, key, cost, max_wait, is_own=is_own)
        known = self._denials.find(same)
        if known is not None:
            return known
        call = calls.check(
            policy,
            key,
            cost,
            at_most=at_most,
            max_wait=max_wait,
            deadline=deadline,
            request_id=request_id,
            resend=resend,
        )
        decision = self._run(call, timeout)
        self._denials.put(same, call.asked, decision)
        return decision

    def check_many(self, checks: Iterable[Check], *, timeout: float | None = None) -> list[Decision]:
        """Several checks in one request, each decided by itself: (policy, key), or (policy, key, cost)."""
        return self._run(calls.check_many(checks), timeout)

    def check_all(
        self,
        checks: Iterable[Check],
        *,
        deadline: float | None = None,
        request_id: Key | None = None,
        resend: bool = False,
        timeout: float | None = None,
    ) -> Decision:
        """Several checks as one: all are charged, or none is. `members` of the answer has each one's own decision."""
        checks = list(checks)
        same = self._denials.same_check_all(checks, is_own=request_id is not None)
        known = self._denials.find(same)
        if known is not None:
            return known
        call = calls.check_all(checks, deadline=deadline, request_id=request_id, resend=resend)
        decision = self._run(call, timeout)
        self._denials.put(same, call.asked, decision)
        return decision

    def peek(self, policy: Policy, key: Key, cost: int = 0, *, timeout: float | None = None) -> Decision:
        """What a check of that cost would get now. Nothing is charged."""
        return self._run(calls.peek(policy, key, cost), timeout)

    def explain(self, policy: Policy, key: Key, cost: int = 1, *, timeout: float | None = None) -> dict[str, Any]:
        """The answer that a check would get now, and why, as the daemon's map. Nothing is charged."""
        return self._run(calls.explain(policy, key, cost), timeout)

    def reset(self, policy: Policy, key: Key, *, timeout: float | None = None) -> bool:
        """Forget what the key has used under `policy` or `policy/limit`. Was there anything to forget?"""
        try:
            return self._run(calls.reset(policy, key), timeout)
        finally:
            self._denials.forget(policy, key)

    def refund(
        self,
        policy: Policy,
        key: Key,
        units: int,
        *,
        deadline: float | None = None,
        request_id: Key | None = None,
        resend: bool = False,
        timeout: float | None = None,
    ) -> Decision:
        """Give back units that the key was charged; `refunded` of the answer is how many."""
        call = calls.refund(policy, key, units, deadline=deadline, request_id=request_id, resend=resend)
        try:
            return self._run(call, timeout)
        finally:
            self._denials.forget(policy, key)

    def acquire(
        self,
        policy: Policy,
        key: Key,
        *,
        deadline: float | None = None,
        request_id: Key | None = None,
        on_lost: Callable[[Slot], object] | None = None,
        timeout: float | None = None,
    ) -> Slot:
        """Take a slot of a policy that has a concurrency limit. Look at `allowed` of the answer; release() it at the
        end.

        on_lost  called with the slot, once, when the client notices that its connection has ended, and the slot with it
        """
        call = calls.acquire(policy, key, deadline=deadline, request_id=request_id)
        held, connection = self._ask(call, timeout)
        return Slot(self, held, connection, on_lost)

    @contextlib.contextmanager
    def slot(
        self,
        policy: Policy,
        key: Key,
        *,
        deadline: float | None = None,
        on_lost: Callable[[Slot], object] | None = None,
        timeout: float | None = None,
    ) -> Iterator[Slot]:
        """A slot for a `with` block. Raises Denied."""
        slot = self.acquire(policy, key, deadline=deadline, on_lost=on_lost, timeout=timeout)
        if not slot.allowed:
            raise Denied(slot.decision)
        try:
            yield slot
        finally:
            slot.release()

    def reserve(
        self,
        policy: Policy,
        key: Key,
        estimate: int,
        *,
        ttl: float | None = None,
        clamp: bool = False,
        deadline: float | None = None,
        request_id: Key | None = None,
        resend: bool = False,
        timeout: float | None = None,
    ) -> Reservation:
        """Charge an estimate now, and correct it later by settle(). Look at `allowed`, or use it in a `with` block.

        ttl    not settled within this time, the units go back; default 60 s
        clamp  an estimate that the policy can never admit becomes the policy's capacity: see `estimate` of the answer
        """

        def ask(units: int) -> tuple[Held, Connection]:
            call = calls.reserve(policy, key, units, ttl=ttl, deadline=deadline, request_id=request_id, resend=resend)
            return self._ask(call, timeout)

        held, connection = ask(estimate)
        units = calls.clamped(held, estimate) if clamp else estimate
        if units != estimate:
            self._give_back(connection)
            held, connection = ask(units)
        return Reservation(self, held, units, connection)

    def settle(self, token: str, actual: int, *, timeout: float | None = None) -> Decision:
        """End the reservation with this token, wherever it was made: `actual` units were used."""
        return self._run(calls.settle(token, actual), timeout)

    def cancel(self, token: str, *, timeout: float | None = None) -> Decision:
        """End the reservation with this token: nothing was used."""
        return self._run(calls.cancel(token), timeout)

    def policies(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """The policies of the daemon, as its maps."""
        return self._run(calls.policies(), timeout)

    def stats(self, *, timeout: float | None = None) -> dict[str, int]:
        """The daemon's counters and gauges."""
        return self._run(calls.stats(), timeout)

    def ping(self, *, timeout: float | None = None) -> None:
        """Returns when the daemon's event loop runs; does not look at its store."""
        self._run(calls.ping(), timeout)

    def verify(self, names: Iterable[str], *, inline: bool = False, timeout: float | None = None) -> None:
        """For the start of a program: Refused, naming what is missing, unless the daemon has all these policies.

        inline  it must allow inline policies, too
        """
        names = list(names)
        known = self.policies(timeout=timeout)
        calls.require(names, known)
        if self._denials.is_on:
            warn_of_count_denied(names, known)
        if inline:
            self._run(calls.inline_allowed(), timeout)

    def counters(self) -> dict[str, int]:
        """This client's own counts: checks, allowed, denied, refused, unavailable, and unavailable_KIND by kind."""
        return self._watch.counters()

    def close(self) -> None:
        """End all connections: other threads' calls are lost, slots are given back. A later call opens a new one."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.end()
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- how a call goes out and comes back ----

    def _run(self, call: Call[T], timeout: float | None) -> T:
        result, connection = self._ask(call, timeout)
        self._give_back(connection)
        return result

    def _ask(self, call: Call[T], timeout: float | None) -> tuple[T, Connection]:
        """The answer, and the connection that it came on, which is the caller's now. Counts what happened."""
        is_probe = False
        error: BaseException | None = None
        try:
            is_probe = not call.is_return and self._health.begin()
            until = time.monotonic() + (self.timeout if timeout is None else checked_timeout(timeout))
            result, connection = self._exchange(call, until)
            self._watch.answered(call, result)
            return result, connection
        except BaseException as fault:
            error = fault
            if isinstance(fault, (Unavailable, Refused)):
                self._watch.failed(call, fault)
            raise
        finally:
            self._health.end(error, is_probe)

    def _exchange(self, call: Call[T], until: float) -> tuple[T, Connection]:
        try:
            return self._attempt(call, until)
        except Unavailable as fault:
            if fault.kind != "lost" or not call.may_repeat or time.monotonic() >= until:
                raise
        try:
            return self._attempt(call, until)
        except Unavailable as fault:
            fault.maybe_charged = True  # by the first attempt
            raise

    def _attempt(self, call: Call[T], until: float) -> tuple[T, Connection]:
        """One that leaves this process; what does not is tried on the next connection."""
        while True:
            connection = self._take()
            was_used = connection.was_used
            try:
                if call.has_id and not connection.wire.is_described:
                    self._wait_for_features(connection, until)
                result = connection.call(call, until)
                self._health.connection_answered()
                self.features = connection.wire.features
                return result, connection
            except NeverSent as fault:
                # A fresh connection that takes nothing shows how the daemon is; a pooled one only that it restarted.
                if not was_used or time.monotonic() >= until:
                    self._health.connect_failed()
                    raise Unavailable("unreachable", str(fault)) from fault
            except RateLimitError as fault:
                self._give_back(connection)
                if connection.wire.has_answered:
                    self._health.connection_answered()
                elif isinstance(fault, Unavailable) and fault.kind == "lost":
                    self._health.connect_failed()
                raise

    def _wait_for_features(self, connection: Connection, until: float) -> None:
        try:
            connection.call(calls.ping(), until)  # the answer to hello comes before
        except Unavailable as fault:
            fault.maybe_charged = False
            raise

    def _take(self) -> Connection:
        """An idle connection that the daemon has not closed, or a new one."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if connection.is_alive():
                return connection
            connection.close()

        self._health.before_connect()
        try:
            connection = Connection(self.socket)
        except Unavailable:
            self._health.connect_failed()
            raise
        with self._lock:
            self._open.add(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        """One that made reservations stays: if their policy has slots, these end with it."""
        if connection.is_usable and (connection.reservations or len(self._idle) < IDLE_CONNECTIONS_MAX):
            self._idle.append(connection)
        else:
            connection.close()

    def _leave_parent(self) -> None:
        """Begin anew: for a new client, and in the child of a fork, where locks may be held by threads that are
        gone.
        """
        for connection in list(getattr(self, "_open", ())):
            connection.close()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._lock = threading.Lock()  # of _open
        self._idle: collections.deque[Connection] = collections.deque()
        self._health = Health()
        self._watch.renew_lock()
        self._denials.renew_lock()


class Slot:
    """What acquire() answered: a slot, or, where `allowed` is false, none. It ends with release(), or with the
    process.
    """

    def __init__(
        self, client: Client, held: Held, connection: Connection, on_lost: Callable[[Slot], object] | None
    ) -> None:
        self.decision = held.decision
        self.id = held.id
        self._client = client
        self._on_lost = on_lost
        self._lost = False
        self._lock = threading.Lock()
        self._connection: Connection | None = connection if held.id else None
        if not held.id:
            client._give_back(connection)

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    @property
    def held(self) -> bool:
        return not self.lost and self._connection is not None

    @property
    def lost(self) -> bool:
        """Has the connection ended, and the slot with it? Looks when asked: nothing watches in between."""
        with self._lock:
            connection = self._connection
            if connection is None or connection.is_alive():
                return self._lost
            self._connection = None
        self._lose(connection)
        return True

    def release(self) -> bool:
        """Give the slot back, from any thread. True: it was held until now. Raises nothing: a slot whose release gets
        no answer ends with its connection."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is None:
            return False
        if not connection.is_alive():
            self._lose(connection)
            return False

        try:
            released = connection.call(calls.release(self.id), time.monotonic() + self._client.timeout)
        except (NeverSent, RateLimitError):
            connection.close()
            return False
        self._client._give_back(connection)
        return released

    def _lose(self, connection: Connection) -> None:
        self._lost = True
        is_ours = connection.is_usable  # in the child of a fork, the slot is the parent's
        connection.close()
        if is_ours and self._on_lost is not None:
            quietly(self._on_lost, self)


class Reservation:
    """What reserve() answered. In a `with` block: denied raises Denied; an exception cancels; neither settle() nor
    cancel(): the estimate stands."""

    def __init__(self, client: Client, held: Held, estimate: int, connection: Connection) -> None:
        self.decision = held.decision
        self.token = held.id  # settle(token) works from any process
        self.estimate = estimate
        self._client = client
        self._connection = connection
        self._is_open = bool(held.id)
        if self._is_open:
            connection.reservations.add(self)
        client._give_back(connection)

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    def settle(self, actual: int, *, timeout: float | None = None) -> Decision:
        """`actual` units were used. After Unavailable it may be called again."""
        decision = self._client.settle(self.token, actual, timeout=timeout)
        self._end()
        return decision

    def cancel(self, *, timeout: float | None = None) -> Decision:
        """Nothing was used. After Unavailable it may be called again."""
        decision = self._client.cancel(self.token, timeout=timeout)
        self._end()
        return decision

    def _end(self) -> None:
        self._is_open = False
        self._connection.reservations.discard(self)

    def __enter__(self) -> Reservation:
        if not self.allowed:
            raise Denied(self.decision)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        with contextlib.suppress(Unavailable):  # counted and logged; the units go back when the ttl is over
            self.settle(self.estimate) if kind is None else self.cancel()
