"""AsyncClient: ask and await. One connection for each event loop, shared by all of its tasks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, TypeVar

from . import calls
from .calls import Call, Check, Held, Key, Policy
from .client import DEFAULT_TIMEOUT_S, checked_timeout, socket_path
from .connection import NeverSent
from .decision import Decision
from .errors import Denied, RateLimitError, Refused, Unavailable
from .forks import tell_after_fork
from .health import Health
from .link import Link
from .remember import Denials
from .watch import OnDecision, Watch, quietly, warn_of_count_denied

T = TypeVar("T")


class AsyncClient:
    """The methods of Client, awaited. One object may serve several event loops, and children of fork().

    The arguments are those of Client; on_decision is called in the loop, and must not block it.
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

    async def check(
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
        """As Client.check."""
        is_own = at_most is not None or request_id is not None
        same = self._denials.same_check(policy, key, cost, max_wait, is_own=is_own)
        known = self._denials.find(same)
        if known is not None:
            await asyncio.sleep(0)
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
        decision = await self._run(call, timeout)
        self._denials.put(same, call.asked, decision)
        return decision

    async def check_many(self, checks: Iterable[Check], *, timeout: float | None = None) -> list[Decision]:
        """As Client.check_many."""
        return await self._run(calls.check_many(checks), timeout)

    async def check_all(
        self,
        checks: Iterable[Check],
        *,
        deadline: float | None = None,
        request_id: Key | None = None,
        resend: bool = False,
        timeout: float | None = None,
    ) -> Decision:
        """As Client.check_all."""
        checks = list(checks)
        same = self._denials.same_check_all(checks, is_own=request_id is not None)
        known = self._denials.find(same)
        if known is not None:
            await asyncio.sleep(0)
            return known
        call = calls.check_all(checks, deadline=deadline, request_id=request_id, resend=resend)
        decision = await self._run(call, timeout)
        self._denials.put(same, call.asked, decision)
        return decision

    async def peek(self, policy: Policy, key: Key, cost: int = 0, *, timeout: float | None = None) -> Decision:
        """As Client.peek."""
        return await self._run(calls.peek(policy, key, cost), timeout)

    async def explain(self, policy: Policy, key: Key, cost: int = 1, *, timeout: float | None = None) -> dict[str, Any]:
        """As Client.explain."""
        return await self._run(calls.explain(policy, key, cost), timeout)

    async def reset(self, policy: Policy, key: Key, *, timeout: float | None = None) -> bool:
        """As Client.reset."""
        try:
            return await self._run(calls.reset(policy, key), timeout)
        finally:
            self._denials.forget(policy, key)

    async def refund(
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
        """As Client.refund."""
        call = calls.refund(policy, key, units, deadline=deadline, request_id=request_id, resend=resend)
        try:
            return await self._run(call, timeout)
        finally:
            self._denials.forget(policy, key)

    async def acquire(
        self,
        policy: Policy,
        key: Key,
        *,
        deadline: float | None = None,
        request_id: Key | None = None,
        on_lost: Callable[[AsyncSlot], object] | None = None,
        timeout: float | None = None,
    ) -> AsyncSlot:
        """As Client.acquire; on_lost is called when the connection ends."""
        call = calls.acquire(policy, key, deadline=deadline, request_id=request_id)
        held, link = await self._ask(call, timeout)
        return AsyncSlot(self, held, link, on_lost)

    @contextlib.asynccontextmanager
    async def slot(
        self,
        policy: Policy,
        key: Key,
        *,
        deadline: float | None = None,
        on_lost: Callable[[AsyncSlot], object] | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[AsyncSlot]:
        """A slot for an `async with` block. Raises Denied."""
        slot = await self.acquire(policy, key, deadline=deadline, on_lost=on_lost, timeout=timeout)
        if not slot.allowed:
            raise Denied(slot.decision)
        try:
            yield slot
        finally:
            await slot.release()

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
    ) -> _Reserving:
        """As Client.reserve: await it, or use it in an `async with` block."""

        async def ask(units: int) -> Held:
            call = calls.reserve(policy, key, units, ttl=ttl, deadline=deadline, request_id=request_id, resend=resend)
            return await self._run(call, timeout)

        async def make() -> AsyncReservation:
            held = await ask(estimate)
            units = calls.clamped(held, estimate) if clamp else estimate
            return AsyncReservation(self, held if units == estimate else await ask(units), units)

        return _Reserving(make)

    async def settle(self, token: str, actual: int, *, timeout: float | None = None) -> Decision:
        """As Client.settle."""
        return await self._run(calls.settle(token, actual), timeout)

    async def cancel(self, token: str, *, timeout: float | None = None) -> Decision:
        """As Client.cancel."""
        return await self._run(calls.cancel(token), timeout)

    async def policies(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """As Client.policies."""
        return await self._run(calls.policies(), timeout)

    async def stats(self, *, timeout: float | None = None) -> dict[str, int]:
        """As Client.stats."""
        return await self._run(calls.stats(), timeout)

    async def ping(self, *, timeout: float | None = None) -> None:
        """As Client.ping."""
        await self._run(calls.ping(), timeout)

    async def verify(self, names: Iterable[str], *, inline: bool = False, timeout: float | None = None) -> None:
        """As Client.verify."""
        names = list(names)
        known = await self.policies(timeout=timeout)
        calls.require(names, known)
        if self._denials.is_on:
            warn_of_count_denied(names, known)
        if inline:
            await self._run(calls.inline_allowed(), timeout)

    def counters(self) -> dict[str, int]:
        """As Client.counters."""
        return self._watch.counters()

    async def aclose(self) -> None:
        """Close the running loop's connection; a later call opens a new one."""
        link = self._links.pop(asyncio.get_running_loop(), None)
        if link is not None:
            link.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # ---- how a call goes out and comes back ----

    async def _run(self, call: Call[T], timeout: float | None) -> T:
        result, _ = await self._ask(call, timeout)
        return result

    async def _ask(self, call: Call[T], timeout: float | None) -> tuple[T, Link]:
        """The answer, and the link that it came on. A call that fails at once lets others run first: a task that only
        asks must not stop the loop.
        """
        try:
            return await self._ask_now(call, timeout)
        except Unavailable:
            await asyncio.sleep(0)
            raise

    async def _ask_now(self, call: Call[T], timeout: float | None) -> tuple[T, Link]:
        """The same, and it counts what happened."""
        is_probe = False
        error: BaseException | None = None
        try:
            is_probe = not call.is_return and self._health.begin()
            seconds = self.timeout if timeout is None else checked_timeout(timeout)
            result, link = await self._exchange(call, seconds)
            self._watch.answered(call, result)
            return result, link
        except BaseException as fault:
            error = fault
            if isinstance(fault, (Unavailable, Refused)):
                self._watch.failed(call, fault)
            raise
        finally:
            self._health.end(error, is_probe)

    async def _exchange(self, call: Call[T], timeout: float) -> tuple[T, Link]:
        clock = asyncio.get_running_loop().time
        until = clock() + timeout
        try:
            return await self._attempt(call, until)
        except Unavailable as fault:
            if fault.kind != "lost" or not call.may_repeat or clock() >= until:
                raise
        try:
            return await self._attempt(call, until)
        except Unavailable as fault:
            fault.maybe_charged = True  # by the first attempt
            raise

    async def _attempt(self, call: Call[T], until: float) -> tuple[T, Link]:
        """One that leaves this process; what does not is tried on the next connection."""
        clock = asyncio.get_running_loop().time
        while True:
            link, is_new = self._link()
            try:
                if call.has_id and not link.is_described:
                    await self._wait_for_features(link, until - clock())
                result = await link.call(call, until - clock())
                self.features = link.features
                return result, link
            except NeverSent as fault:
                if is_new or clock() >= until:
                    self._on_useless(link)
                    raise Unavailable("unreachable", str(fault)) from fault
            except Unavailable as fault:
                if fault.kind == "lost":
                    self._on_useless(link)
                raise

    async def _wait_for_features(self, link: Link, timeout: float) -> None:
        try:
            await link.call(calls.ping(), timeout)  # the answer to hello comes before
        except Unavailable as fault:
            fault.maybe_charged = False
            raise

    def _link(self) -> tuple[Link, bool]:
        """The running loop's link, and whether it is new."""
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is not None:
            link.probe()
            if link.is_usable:
                return link, False

        self._health.before_connect()
        try:
            link = self._links[loop] = Link(self.socket, self._health.connection_answered)
        except Unavailable:
            self._health.connect_failed()
            raise
        return link, True

    def _on_useless(self, link: Link) -> None:
        if not link.has_answered:
            self._health.connect_failed()

    def _leave_parent(self) -> None:
        """Begin anew: for a new client, and in the child of a fork, where locks may be held by threads that are
        gone.
        """
        for link in list(getattr(self, "_links", {}).values()):
            link.close()
        self._links: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = weakref.WeakKeyDictionary()
        self._health = Health()
        self._watch.renew_lock()
        self._denials.renew_lock()


class AsyncSlot:
    """What acquire() answered: a slot, or, where `allowed` is false, none. It ends with release(), or with the
    connection.
    """

    def __init__(
        self, client: AsyncClient, held: Held, link: Link, on_lost: Callable[[AsyncSlot], object] | None
    ) -> None:
        self.decision = held.decision
        self.id = held.id
        self.lost = False  # the connection has ended, and the slot with it
        self._timeout = client.timeout
        self._on_lost = on_lost
        self._link: Link | None = None
        if held.id and link.is_usable:
            self._link = link
            link.dependants.add(self)
        elif held.id:
            self._on_link_closed()

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    @property
    def held(self) -> bool:
        return self._link is not None

    async def release(self) -> bool:
        """Give the slot back. True: it was held until now. Raises nothing: the release is on its way before it is
        awaited.
        """
        link, self._link = self._link, None
        if link is None or not link.is_usable:
            return False
        link.dependants.discard(self)
        try:
            return await link.call(calls.release(self.id), self._timeout)
        except (NeverSent, RateLimitError):
            return False

    def _on_link_closed(self) -> None:
        self._link = None
        self.lost = True
        if self._on_lost is not None:
            quietly(self._on_lost, self)


class AsyncReservation:
    """What reserve() answered. In an `async with` block: denied raises Denied; an exception cancels; neither settle()
    nor cancel(): the estimate stands."""

    def __init__(self, client: AsyncClient, held: Held, estimate: int) -> None:
        self.decision = held.decision
        self.token = held.id  # settle(token) works from any process
        self.estimate = estimate
        self._client = client
        self._is_open = bool(held.id)

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    async def settle(self, actual: int, *, timeout: float | None = None) -> Decision:
        """`actual` units were used. After Unavailable it may be called again."""
        decision = await self._client.settle(self.token, actual, timeout=timeout)
        self._is_open = False
        return decision

    async def cancel(self, *, timeout: float | None = None) -> Decision:
        """Nothing was used. After Unavailable it may be called again."""
        decision = await self._client.cancel(self.token, timeout=timeout)
        self._is_open = False
        return decision

    async def __aenter__(self) -> AsyncReservation:
        if not self.allowed:
            raise Denied(self.decision)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        with contextlib.suppress(Unavailable):  # counted and logged; the units go back when the ttl is over
            await (self.settle(self.estimate) if kind is None else self.cancel())


class _Reserving:
    """reserve() on its way: `r = await client.reserve(...)`, or `async with client.reserve(...) as r`."""

    def __init__(self, make: Callable[[], Awaitable[AsyncReservation]]) -> None:
        self._make = make
        self._made: AsyncReservation | None = None

    def __await__(self) -> Generator[Any, None, AsyncReservation]:
        return self._make().__await__()

    async def __aenter__(self) -> AsyncReservation:
        self._made = await self._make()
        return await self._made.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)
