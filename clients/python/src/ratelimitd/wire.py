"""The protocol of one connection, without its socket: calls become frames, bytes become answers.

A Wire numbers the calls, knows which of them a caller waits for, and looks at each answer before the caller does. Its
owner moves the bytes and the time. The peer is not trusted: an answer has at most 4 MiB, arrays and maps nest at most
16 deep, and what does not look like the protocol ends the connection (`broken`).

Calls that no caller waits for any more are abandoned, not forgotten: when a slot or a reservation is granted too late,
the frame that takes it back goes to `undo`, for the owner to send before anything else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack

from .calls import Call
from .decision import Malformed
from .errors import Kind, Unavailable, of_daemon
from .scan import Scan

ANSWER_BYTES_MAX = 4 << 20
ITEMS_MAX = 65536 * 2  # values of one array or map: twice the checks that the daemon takes at a time
NESTING_MAX = 16
ABANDONED_MAX = 4096  # as many calls as the daemon takes of one connection; one that answers none is left

_PLAIN = frozenset((type(None), bool, int, str, bytes))


class Broken(Exception):
    """The peer broke the protocol, or sent its final error."""

    def __init__(self, kind: Kind, message: str, code: str = "") -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.code = code


class Wire:
    def __init__(self) -> None:
        self.undo: list[bytes] = []  # frames to be sent first
        self.broken: Unavailable | None = None  # how every call of this connection ends; it is of no further use
        self.has_answered = False
        self._packer = msgpack.Packer(unicode_errors="surrogatepass")
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=ANSWER_BYTES_MAX,
            max_array_len=ITEMS_MAX,
            max_map_len=ITEMS_MAX,
            max_ext_len=0,
            strict_map_key=False,
            ext_hook=_no_extension,
            unicode_errors="surrogateescape",
        )
        self._scan = Scan(ANSWER_BYTES_MAX, ITEMS_MAX, NESTING_MAX)
        self._n_fed = 0  # bytes so far, and of these, the ones of whole messages
        self._n_whole = 0
        self._last_id = 0
        self._waiting: dict[int, Call[Any]] = {}
        self._abandoned: dict[int, Call[Any]] = {}
        self._hello_id = 0
        self.features: frozenset[str] = frozenset()  # of the daemon, once its answer to hello has come
        self.is_described = False  # it has come

    @property
    def is_silent(self) -> bool:
        """Is nothing to be expected from the peer?"""
        return not self._waiting and not self._abandoned

    @property
    def has_many_abandoned(self) -> bool:
        return len(self._abandoned) > ABANDONED_MAX

    def hello(self) -> bytes:
        """The frame that goes before the first call. A daemon without `describe` refuses it, and that does no harm."""
        frame = self._frame("hello", [{"describe": True}])
        self._hello_id = self._last_id
        return frame

    def request(self, call: Call[Any]) -> tuple[int, bytes]:
        frame = self._frame(call.method, call.params_for(self.features))
        self._waiting[self._last_id] = call
        return self._last_id, frame

    def forget(self, msgid: int) -> None:
        """The call has not left, and will not."""
        self._waiting.pop(msgid, None)

    def abandon(self, msgid: int) -> bytes:
        """No caller waits for the call any more, but its answer may still come. Gives the frame that leaves it to the
        daemon to take back a late yes; b"" if there is nothing to take back, or the daemon cannot.
        """
        call = self._waiting.pop(msgid, None)
        if call is None:
            return b""
        is_left_to_daemon = bool(call.undo) and "abandon" in self.features
        self._abandoned[msgid] = replace(call, undo="") if is_left_to_daemon else call
        frame: bytes = self._packer.pack([2, "abandon", [msgid]]) if is_left_to_daemon else b""
        return frame

    def must_go(self, msgid: int) -> bool:
        """Does the call give something back, so that it is sent even if no caller waits for its answer?"""
        return self._waiting[msgid].is_return

    def feed(self, data: bytes) -> list[tuple[int, Any]]:
        """(msgid, result or exception) for each answer in `data` that a caller waits for. Look at `broken`, too."""
        answers: list[tuple[int, Any]] = []
        began = self._n_fed
        self._n_fed += len(data)
        try:
            self._unpacker.feed(data)
            for message in self._unpacker:
                self._n_whole = _bounded(self._n_whole, self._unpacker.tell())
                self._take(message, answers)
            _bounded(self._n_whole, self._n_fed)
            if self._n_whole < self._n_fed:  # an answer that has only begun: does it announce too much?
                if self._n_whole >= began:
                    self._scan.restart()
                self._scan.feed(data[max(self._n_whole - began, 0) :])
        except Broken as fault:
            self.broken = Unavailable(fault.kind, str(fault), maybe_charged=True, code=fault.code)
        except (msgpack.UnpackException, msgpack.BufferFull, ValueError, TypeError) as fault:
            self.broken = Unavailable("protocol", f"the answer is not valid: {fault}", maybe_charged=True)
        return answers

    def _take(self, message: Any, answers: list[tuple[int, Any]]) -> None:
        msgid, error, result = _response(message)
        if msgid is None:
            failure = of_daemon(error or "")
            raise Broken("lost", str(failure), getattr(failure, "code", ""))
        if not 0 < msgid <= self._last_id:
            raise Broken("protocol", "an answer to a call that was never made")
        self.has_answered = True
        if msgid == self._hello_id:
            self.features, self.is_described = _features(result), True
        call = self._waiting.pop(msgid, None)
        if call is not None:
            answers.append((msgid, _outcome(call, error, result)))
        else:
            self._on_late(msgid, error, result)

    def _frame(self, method: str, params: list[Any]) -> bytes:
        try:
            frame: bytes = self._packer.pack([0, self._last_id + 1, method, params])
        except (OverflowError, ValueError, TypeError) as fault:
            raise ValueError(f"{method}: a parameter cannot be sent: {fault}") from fault
        self._last_id += 1
        return frame

    def _on_late(self, msgid: int, error: str | None, result: Any) -> None:
        call = self._abandoned.pop(msgid, None)
        if call is None or not call.undo or error is not None:
            return
        held = _outcome(call, error, result)
        if not isinstance(held, Unavailable) and held.id:
            self.undo.append(self._frame(call.undo, [held.id]))


def _features(answer: Any) -> frozenset[str]:
    listed = answer.get("features") if type(answer) is dict else None
    return frozenset(one for one in listed if type(one) is str) if type(listed) is list else frozenset()


def _bounded(began: int, ended: int) -> int:
    """Where an answer ends that is not too long."""
    if ended - began > ANSWER_BYTES_MAX:
        raise Broken("protocol", f"an answer of more than {ANSWER_BYTES_MAX} bytes")
    return ended


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError("an extension type")


def _response(message: Any) -> tuple[int | None, str | None, Any]:
    """(msgid, error, result) of one message, which may be anything."""
    if type(message) is not list or len(message) != 4 or message[0] != 1 or type(message[0]) is not int:
        raise Broken("protocol", "a message that is not a response")
    _, msgid, error, result = message
    if type(error) is bytes:
        error = error.decode("utf-8", "replace")
    if msgid is not None and type(msgid) is not int:
        raise Broken("protocol", "a response whose msgid is not a number")
    if error is not None and (type(error) is not str or result is not None):
        raise Broken("protocol", "a response whose error is not valid")
    if msgid is None and error is None:
        raise Broken("protocol", "a response without a msgid")
    _check_values(result, NESTING_MAX - 1)
    return msgid, error, result


def _check_values(value: Any, depth: int) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if kind is not dict and kind is not list:
        raise Broken("protocol", "a value of a type that the protocol does not have")
    if depth == 0:
        raise Broken("protocol", f"an answer nested deeper than {NESTING_MAX}")
    for one in value.values() if kind is dict else value:
        if type(one) not in _PLAIN:
            _check_values(one, depth - 1)


def _outcome(call: Call[Any], error: str | None, result: Any) -> Any:
    if error is not None:
        return of_daemon(error)
    try:
        return call.read(result)
    except Malformed as fault:
        return Unavailable("protocol", f"{call.method}: {fault}", maybe_charged=True)
