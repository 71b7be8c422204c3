"""Scan: what an answer that has only begun to arrive announces.

msgpack looks at the length of a text when all of it is there. A peer that announces 4 GiB, and then is silent, would be
waited for until the timeout; and so would nesting without end. The scan reads the headers alone, and refuses at once.
"""

from __future__ import annotations

_SIZED = {  # first byte: bytes of the length that follows, and whether the value's content are bytes, values or pairs
    **dict.fromkeys((0xC4, 0xD9), (1, 0)),
    **dict.fromkeys((0xC5, 0xDA), (2, 0)),
    **dict.fromkeys((0xC6, 0xDB), (4, 0)),
    0xDC: (2, 1),
    0xDD: (4, 1),
    0xDE: (2, 2),
    0xDF: (4, 2),
}
_PLAIN = {0xCA: 4, 0xCB: 8, **{0xCC + i: 1 << i for i in range(4)}, **{0xD0 + i: 1 << i for i in range(4)}}


class Scan:
    def __init__(self, bytes_max: int, items_max: int, nesting_max: int) -> None:
        self._bytes_max = bytes_max
        self._items_max = items_max
        self._nesting_max = nesting_max
        self.restart()

    def restart(self) -> None:
        """The next bytes begin a message."""
        self._skip = 0  # bytes of content that are still to come
        self._header = b""  # of a value whose length has not arrived whole
        self._left = [1]  # values that are still to come in each open array or map

    def feed(self, data: bytes) -> None:
        """Raises ValueError for what can no longer become an acceptable message."""
        at = min(self._skip, len(data))
        self._skip -= at
        if self._header:
            data, at, self._header = self._header + data[at:], 0, b""
        while at < len(data) and self._left:
            kind = data[at]
            n_length, content = _SIZED.get(kind, (0, 0))
            if at + 1 + n_length > len(data):
                self._header = data[at:]
                return
            length = int.from_bytes(data[at + 1 : at + 1 + n_length], "big")
            at += 1 + n_length
            at = self._value(kind, length, content, n_length > 0, at)
            if at > len(data):
                self._skip = at - len(data)

    def _value(self, kind: int, length: int, content: int, is_sized: bool, at: int) -> int:
        """One header; gives the place behind the value, or, of an array or map, of its first value."""
        if not is_sized:
            if 0x80 <= kind <= 0x9F:
                length, content = kind & 0x0F, 2 if kind < 0x90 else 1
            elif 0xA0 <= kind <= 0xBF:
                length = kind & 0x1F
            else:
                length = _PLAIN.get(kind, 0)
        if length > (self._items_max if content else self._bytes_max):
            raise ValueError(f"it announces a length of {length}")

        self._left[-1] -= 1
        if content:
            self._left.append(length * content)
            if len(self._left) - 1 > self._nesting_max:
                raise ValueError(f"it is nested deeper than {self._nesting_max}")
        while self._left and self._left[-1] == 0:
            self._left.pop()
        return at if content else at + length
