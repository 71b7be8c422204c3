"""matching.py: compares the expectations of a case with an answer. A map expects the names that it has, and ignores others; a
list expects all its members. The tags of the cases:

    !any [a, b]          one of these
    !between [a, b]      a number, bounds included
    !re text             a text that contains a match
    !set                 anything but null
    !not a               anything but this
    !repeat [text, n]    in commands too: text n times
    !base64 text         in commands too: bytes
    !hash_repeat [text, n]   in expectations: the key that a client sends for this text n times
    !float n, !ext n, !nest n, !raw hex     only in messages of the hostile daemon
"""

import base64
import hashlib
import re

import msgpack
import yaml


class Any:
    def __init__(self, *values):
        self.values = values

    def fits(self, value):
        return any(complaint(one, value) is None for one in self.values)

    def __repr__(self):
        return f"one of {list(self.values)}"


class Between:
    def __init__(self, low, high):
        self.low, self.high = low, high

    def fits(self, value):
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def __repr__(self):
        return f"a number from {self.low} to {self.high}"


class Found:
    def __init__(self, pattern):
        self.pattern = pattern

    def fits(self, value):
        return isinstance(value, str) and re.search(self.pattern, value) is not None

    def __repr__(self):
        return f"a text with {self.pattern!r}"


class Set:
    def fits(self, value):
        return value is not None

    def __repr__(self):
        return "something"


class Not:
    def __init__(self, value):
        self.value = value

    def fits(self, value):
        return complaint(self.value, value) is not None

    def __repr__(self):
        return f"anything but {self.value!r}"


class Raw(bytes):
    """Bytes for the hostile daemon to write as they are, in place of a value."""


def shortened(key):
    """The form in which a client sends a key of more than 512 bytes."""
    data = key.encode() if isinstance(key, str) else key
    return data[:64] + b"#" + hashlib.sha256(data).hexdigest().encode() if len(data) > 512 else data


def as_text(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def complaint(expected, value, where=""):
    """None if it fits, else a sentence about the difference."""
    if hasattr(expected, "fits"):
        return None if expected.fits(value) else f"{where or 'it'} is {value!r}, expected {expected!r}"
    if isinstance(expected, dict) and isinstance(value, dict):
        for name, one in expected.items():
            found = complaint(one, value.get(name), f"{where}.{name}".lstrip("."))
            if found:
                return found
        return None
    if isinstance(expected, list) and isinstance(value, list):
        if len(expected) != len(value):
            return f"{where or 'it'} has {len(value)} members, expected {len(expected)}: {value!r}"
        for i, one in enumerate(expected):
            found = complaint(one, value[i], f"{where}[{i}]")
            if found:
                return found
        return None
    if type(expected) is bool or type(value) is bool:
        same = expected is value
    else:
        same = expected == value
    return None if same else f"{where or 'it'} is {value!r}, expected {expected!r}"


class Cases(yaml.SafeLoader):
    """YAML with the tags above."""


def _tag(name, make):
    def construct(loader, node):
        if isinstance(node, yaml.SequenceNode):
            return make(*loader.construct_sequence(node, deep=True))
        if isinstance(node, yaml.MappingNode):
            return make(loader.construct_mapping(node, deep=True))
        return make(yaml.SafeLoader.construct_object(loader, yaml.ScalarNode(
            loader.resolve(yaml.ScalarNode, node.value, (True, False)), node.value, node.start_mark, node.end_mark)))

    Cases.add_constructor(name, construct)


_tag("!any", Any)
_tag("!between", Between)
_tag("!re", lambda pattern: Found(str(pattern)))
_tag("!set", lambda _=None: Set())
_tag("!not", Not)
_tag("!repeat", lambda text, n: text * n)
_tag("!base64", lambda text: {"base64": text})
_tag("!hash_repeat", lambda text, n: as_text(shortened(text * n)))
_tag("!float", lambda number: Raw(msgpack.packb(float(number))))
_tag("!ext", lambda number: Raw(msgpack.packb(msgpack.ExtType(number, b"x"))))
_tag("!nest", lambda depth: Raw(b"\x91" * depth + b"\xc0"))
_tag("!raw", lambda text: Raw(bytes.fromhex(str(text).replace(" ", ""))))


def packed(value):
    """MessagePack of a value that may have Raw parts, bytes in base64 form, and maps given as lists of pairs."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, dict):
        if set(value) == {"base64"}:
            return msgpack.packb(base64.b64decode(value["base64"]))
        return _header(0x80, 0xDE, len(value)) + b"".join(packed(k) + packed(v) for k, v in value.items())
    if isinstance(value, list):
        return _header(0x90, 0xDC, len(value)) + b"".join(map(packed, value))
    return msgpack.packb(value)


def _header(small, large, n):
    return bytes([small | n]) if n < 16 else bytes([large]) + n.to_bytes(2, "big")
