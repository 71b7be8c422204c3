"""Connection: one blocking socket to the daemon, used by one call at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import weakref
from typing import Any, TypeVar

from .calls import Call
from .errors import Unavailable
from .wire import Wire

T = TypeVar("T")

RECEIVE_BYTES = 65536


class NeverSent(Exception):
    """The call did not leave this process as a whole, so nothing was charged; the connection is of no further use."""


def connect(path: str) -> socket.socket:
    """A connected non-blocking socket, or Unavailable("unreachable"). Connecting a Unix socket does not wait."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(path)
    except OSError as error:  # EAGAIN too: the daemon's backlog is full
        sock.close()
        raise Unavailable("unreachable", f"{path}: {error.strerror or error}") from error
    return sock


class Connection:
    def __init__(self, path: str) -> None:
        self._sock = connect(path)
        self._pid = os.getpid()
        self.wire = Wire()
        self.was_used = False
        self.reservations: weakref.WeakSet[Any] = weakref.WeakSet()  # that were made on it, and are not settled

    def is_alive(self) -> bool:
        """Has the daemon not closed it? Bytes that were not asked for count as closed: an error precedes the end."""
        if not self.is_usable:
            return False
        try:
            self._sock.settimeout(0)
            data = self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return bool(data) and not self.wire.is_silent

    def call(self, call: Call[T], until: float) -> T:
        """The answer, or Unavailable, Refused, NeverSent. After anything but an answer or a timeout it is closed.

        After a timeout the connection stays, except that a slot or a reservation might be granted into it too late,
        while the client does not read: then it is closed, and the daemon takes back what it grants. A daemon with the
        feature `abandon` does that without.
        """
        msgid, frame = self.wire.request(call)
        if not self.was_used:
            frame = self.wire.hello() + frame
            self.was_used = True
        try:
            self._send(frame, until)
            result = self._receive(msgid, until)
        except TimeoutError:
            notice = self.wire.abandon(msgid)
            if self.wire.has_many_abandoned or (call.undo and not self._post(notice)):
                self.close()
            raise Unavailable("timeout", "no answer in time", maybe_charged=True) from None
        except BaseException:  # also a KeyboardInterrupt, or a greenlet that is killed
            self.close()
            raise
        if isinstance(result, Exception):
            raise result
        answer: T = result
        return answer

    @property
    def is_usable(self) -> bool:
        return self._sock.fileno() >= 0 and self._pid == os.getpid()

    def end(self) -> None:
        """From any thread: who waits for an answer gets none. The descriptor stays, for its user to close."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Safe in a child of fork(), too: the parent's connection stays as it is."""
        self._sock.close()

    def __del__(self) -> None:
        if hasattr(self, "_sock"):  # a slot that was forgotten ends here, without a warning
            self._sock.close()

    def _send(self, frame: bytes, until: float) -> None:
        """All of it, or NeverSent: the daemon charges nothing for a part of a frame."""
        sent = 0
        left = 0.0
        while sent < len(frame):
            try:
                self._sock.settimeout(left)
                sent += self._sock.send(frame[sent:] if sent else frame, socket.MSG_NOSIGNAL)
            except (BlockingIOError, TimeoutError):
                left = until - time.monotonic()
                if left <= 0:
                    raise NeverSent("the daemon takes no bytes") from None
            except OSError as error:
                raise NeverSent(error.strerror or str(error)) from error

    def _post(self, frame: bytes) -> bool:
        """Send it if that takes no time. A part of it would make the rest of the connection useless."""
        try:
            self._sock.settimeout(0)
            return bool(frame) and self._sock.send(frame, socket.MSG_NOSIGNAL) == len(frame)
        except OSError:
            return False

    def _receive(self, msgid: int, until: float) -> Any:
        """The result for `msgid`. When the time is over, what has already arrived still counts."""
        left = 1.0
        while left > 0:
            left = until - time.monotonic()
            try:
                self._sock.settimeout(max(left, 0))
                data = self._sock.recv(RECEIVE_BYTES)
                if not data:
                    raise Unavailable("lost", "the daemon closed the connection", maybe_charged=True)
                answers = self.wire.feed(data)
                if self.wire.broken is not None:
                    self.close()
                for answered_id, result in answers:
                    if answered_id == msgid:
                        return result
                if self.wire.broken is not None:
                    raise self.wire.broken
            except (BlockingIOError, TimeoutError):
                break
            except OSError as error:
                raise Unavailable("lost", error.strerror or str(error), maybe_charged=True) from error
        raise TimeoutError
