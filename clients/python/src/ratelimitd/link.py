"""Link: one socket to the daemon that all calls of an event loop share.

Every call goes out at once, together with others of the same tick, and answers come in any order. Connecting a Unix
socket does not wait, so it is done when a call needs it. All of it runs in the loop's thread.

A call is in `_pending` until its future is done. What has not left yet is in `_unsent`; a connection that ends fails
these calls with NeverSent (they go to the next connection), and the others as lost.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from . import calls
from .calls import Call, Held
from .connection import RECEIVE_BYTES, NeverSent, connect
from .errors import Unavailable
from .wire import Wire

T = TypeVar("T")

PENDING_MAX = 65536
FRAMES_PER_WRITE = 128
READS_PER_TICK = 16  # so that a flood of answers cannot keep the loop


class Dependant(Protocol):
    """What ends with the connection."""

    def _on_link_closed(self) -> None: ...


class Link:
    def __init__(self, path: str, on_answer: Callable[[], None]) -> None:
        """`on_answer` is called when the connection shows that the daemon lives."""
        self._sock = connect(path)
        self._pid = os.getpid()
        self._wire = Wire()
        self._on_answer = on_answer
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._unsent: collections.deque[tuple[int, bytes]] = collections.deque()  # msgid 0: no caller waits for it
        self._n_head_sent = 0  # bytes of the first of `_unsent`
        self._unheard: dict[int, Any] = {}  # answers to callers that are cancelled, and have not run since
        self._is_writing = False  # the loop calls back when the socket takes more
        self._will_flush = False
        self.dependants: set[Dependant] = set()
        self._unsent.append((0, self._wire.hello()))
        asyncio.get_running_loop().add_reader(self._sock, self._on_readable)

    @property
    def is_usable(self) -> bool:
        return self._sock.fileno() >= 0 and self._pid == os.getpid()

    @property
    def has_answered(self) -> bool:
        return self._wire.has_answered

    @property
    def features(self) -> frozenset[str]:
        return self._wire.features

    @property
    def is_described(self) -> bool:
        return self._wire.is_described

    def probe(self) -> None:
        """Before a call on an idle connection: see whether the daemon has closed it meanwhile."""
        if not self._pending:
            self._on_readable()

    async def call(self, call: Call[T], timeout: float) -> T:
        """The answer, or Unavailable, Refused, NeverSent. Of a caller that is cancelled, a late yes is taken back."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        msgid = self._start(call, future)
        # A timer of our own, not asyncio.timeout: after a pause of the loop it first looks for an answer that has come.
        timer = loop.call_later(max(timeout, 0), self._expire, msgid)
        try:
            return await future
        except asyncio.CancelledError:
            # A yes that came in the tick in which the caller was cancelled: before that, or after it.
            yes = self._unheard.pop(msgid, None)
            if future.done() and not future.cancelled() and future.exception() is None:
                yes = future.result()
            self._take_back(call, yes)
            raise
        finally:
            timer.cancel()
            self._leave(msgid)

    def post(self, call: Call[Any]) -> None:
        """Send a call whose answer is not needed."""
        msgid, frame = self._wire.request(call)
        self._wire.abandon(msgid)
        self._queue(0, frame)

    def close(self, reason: Unavailable | None = None) -> None:
        """All calls end; those that were sent, with `reason`. In a child of fork() nothing but the descriptor is
        closed.
        """
        if not self.is_usable:
            self._sock.close()
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._sock)
        if self._is_writing:
            loop.remove_writer(self._sock)
        self._sock.close()

        unsent = {msgid for msgid, _ in self._unsent}
        self._unsent.clear()
        for msgid, future in list(self._pending.items()):
            if not future.done():
                never = NeverSent("the connection ended")
                lost = reason or Unavailable("lost", "the client was closed", maybe_charged=True)
                future.set_exception(never if msgid in unsent else lost)
        self._pending.clear()
        for dependant in list(self.dependants):
            dependant._on_link_closed()
        self.dependants.clear()

    def __del__(self) -> None:
        if hasattr(self, "_sock"):  # a loop that was closed took its link with it
            self._sock.close()

    # ---- out ----

    def _start(self, call: Call[T], future: asyncio.Future[T]) -> int:
        if len(self._pending) >= PENDING_MAX:
            raise Unavailable("overloaded", f"{PENDING_MAX} calls are waiting for answers")
        msgid, frame = self._wire.request(call)
        self._pending[msgid] = future
        self._queue(msgid, frame)
        return msgid

    def _queue(self, msgid: int, frame: bytes) -> None:
        """The first call goes out at once; calls that come while others are on their way are gathered for a tick."""
        self._unsent.append((msgid, frame))
        if self._is_writing or self._will_flush:
            return
        if len(self._pending) <= 1:
            self._flush()
        else:
            self._will_flush = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._will_flush = False
        while self._unsent and self.is_usable:
            data = b"".join(frame for _, frame in itertools.islice(self._unsent, FRAMES_PER_WRITE))
            try:
                n_sent = self._sock.send(memoryview(data)[self._n_head_sent :], socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                self._want_write(True)
                return
            except OSError as error:
                self._on_readable()  # answers that came before the end
                self.close(Unavailable("lost", error.strerror or str(error), maybe_charged=True))
                return
            self._n_head_sent += n_sent
            while self._unsent and self._n_head_sent >= len(self._unsent[0][1]):
                self._n_head_sent -= len(self._unsent.popleft()[1])
        self._want_write(False)

    def _want_write(self, wanted: bool) -> None:
        if wanted == self._is_writing or not self.is_usable:
            return
        loop = asyncio.get_running_loop()
        if wanted:
            loop.add_writer(self._sock, self._flush)
        else:
            loop.remove_writer(self._sock)
        self._is_writing = wanted

    # ---- in ----

    def _on_readable(self) -> None:
        for _ in range(READS_PER_TICK):
            if not self.is_usable:
                return
            try:
                data = self._sock.recv(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.close(Unavailable("lost", error.strerror or str(error), maybe_charged=True))
                return
            if not data:
                self.close(Unavailable("lost", "the daemon closed the connection", maybe_charged=True))
                return
            self._take_in(data)
            if len(data) < RECEIVE_BYTES:
                return

    def _take_in(self, data: bytes) -> None:
        for msgid, result in self._wire.feed(data):
            future = self._pending.pop(msgid, None)
            if future is None:
                continue
            if future.done():
                self._unheard[msgid] = result
            elif isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        if self._wire.broken is not None:
            self.close(self._wire.broken)
            return
        if self._wire.has_answered:
            self._on_answer()
        if self._wire.undo:
            begun = 1 if self._n_head_sent else 0
            for frame in self._wire.undo:
                self._unsent.insert(begun, (0, frame))
            self._wire.undo.clear()
            self._flush()

    # ---- the end of a call ----

    def _expire(self, msgid: int) -> None:
        self._on_readable()
        future = self._pending.get(msgid)
        if future is not None and not future.done():
            sent = self._leave(msgid)
            future.set_exception(
                Unavailable("timeout", "no answer in time", maybe_charged=True)
                if sent
                else Unavailable("unreachable", "the daemon takes no bytes")
            )

    def _take_back(self, call: Call[Any], result: Any) -> None:
        if isinstance(result, Held) and result.id and self.is_usable:
            self.post(calls.undo(call, result))

    def _leave(self, msgid: int) -> bool:
        """No caller waits for this call any more. Had any of it left?"""
        if self._pending.pop(msgid, None) is None:
            return True
        for place, (unsent_id, frame) in enumerate(self._unsent):
            if unsent_id != msgid or (place == 0 and self._n_head_sent):
                continue
            if self._wire.must_go(msgid):
                self._unsent[place] = (0, frame)
                self._wire.abandon(msgid)
            else:
                del self._unsent[place]
                self._wire.forget(msgid)
            return False
        notice = self._wire.abandon(msgid)
        if notice and self.is_usable:
            self._queue(0, notice)
        if self._wire.has_many_abandoned:
            self.close(Unavailable("lost", "the daemon answers nothing", maybe_charged=True))
        return True
