"""Answers that must not be believed. The conformance suite has more of them, through sockets."""

from __future__ import annotations

import hashlib

import msgpack
import pytest

from ratelimitd import calls
from ratelimitd.scan import Scan
from ratelimitd.wire import ANSWER_BYTES_MAX, Wire

ALLOWED = {"allowed": True, "limit": 10, "remaining": 9, "source": "memory"}


def asked() -> tuple[Wire, int]:
    wire = Wire()
    msgid, _ = wire.request(calls.check("web", "k"))
    return wire, msgid


def test_an_answer_may_come_byte_by_byte() -> None:
    wire, msgid = asked()
    data = msgpack.packb([1, msgid, None, {**ALLOWED, "later": {"a": ["x" * 70000, -1, 2**40, None, b"yy"]}}])
    for at in range(0, len(data) - 1):
        assert wire.feed(data[at : at + 1]) == []
        assert wire.broken is None
    [(answered, decision)] = wire.feed(data[-1:])
    assert (answered, decision.remaining) == (msgid, 9)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\x93\x01\x01\xc0",
        b"\x94\x01\x01\xc0\xdb\xff\xff\xff\xff",
        b"\x94\x01\x01\xc0\xc6\xff\xff\xff\xff",
        b"\x94\x01\x01\xc0\xdd\x00\x0f\x42\x40",
        b"\x94\x01\x01\xc0\xdf\x00\x0f\x42\x40",
        b"\x91" * 20,
        b"\x94\x01\x01\xc0" + b"\x91" * 20 + b"\xc0",
        b"\x94\x01\x01\xc0\xd4\x01x",
        b"\x94\x01\x01\x80\xc0",
        b"\x94\x01\x01\xa1x\x80",
        b"\x94\x01\x09\xc0\xc0",
        b"\x94\x01\xa1x\xc0\xc0",
        b"\x94\x01\xc0\xc0\xc0",
        b"\x94\x02\x01\xc0\xc0",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_what_is_not_the_protocol_ends_the_connection_at_once(data: bytes) -> None:
    wire, _ = asked()
    assert wire.feed(data) == []
    assert wire.broken is not None
    assert (wire.broken.kind, wire.broken.maybe_charged) == ("protocol", True)


def test_an_answer_has_at_most_4_mib() -> None:
    wire, msgid = asked()
    data = msgpack.packb([1, msgid, None, {**ALLOWED, "later": ["x" * 1000] * 5000}])
    assert len(data) > ANSWER_BYTES_MAX
    for at in range(0, len(data), 65536):
        assert wire.feed(data[at : at + 65536]) == []
    assert wire.broken is not None


@pytest.mark.parametrize(
    "result", [{}, {"allowed": "yes"}, {"allowed": 1}, [True], None, {**ALLOWED, "remaining": "9"}]
)
def test_a_bad_answer_fails_its_own_call(result: object) -> None:
    wire, msgid = asked()
    [(_, error)] = wire.feed(msgpack.packb([1, msgid, None, result]))
    assert error.kind == "protocol"
    assert wire.broken is None


def test_the_scan_knows_every_kind_of_value() -> None:
    kinds = [None, True, -1, -33, 2**7, 2**15, 2**31, 2**63, -(2**15), -(2**31), -(2**63), 0.5, "x" * 40, "x" * 300]
    kinds += ["x" * 70000, b"y", b"y" * 300, b"y" * 70000, [0] * 20, {i: [] for i in range(20)}, {}, [[[]]]]
    data = msgpack.packb([kinds, list(range(70000))])
    for step in (1, 7, 4096):
        scan = Scan(1 << 20, 1 << 17, 16)
        for at in range(0, len(data) if step > 1 else 100000, step):
            scan.feed(data[at : at + step])
        if step > 1:
            assert (scan._left, scan._skip, scan._header) == ([], 0, b"")


def test_keys_that_are_too_long_keep_their_beginning_and_a_hash() -> None:
    assert calls.bounded("x" * 512) == "x" * 512
    assert calls.bounded("x" * 513) == b"x" * 64 + b"#" + hashlib.sha256(b"x" * 513).hexdigest().encode()
    assert calls.bounded("\ud800") == "\ud800"
    wire = Wire()
    wire.request(calls.check("web", "\ud800"))
