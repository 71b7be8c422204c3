"""Reads proto/vectors: the messages of the protocol as bytes, with their meaning (proto/vectors/README.md).

    for vector in load():           every vector, in the order of the files
        vector.name, vector.bytes, vector.codec, vector.daemon, vector.meaning
    items()                         names of SECTIONS: each must have a vector, or its own test (live/...)
    outcome_of(message)             the message as read by msgpack-python (unpacker()), in the words of the column codec

Run as a program it writes one file per vector into a folder: seeds for the fuzzers.
"""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "proto" / "vectors"
TOPICS = ("example", "accepted", "sent", "framing", "rpc", "values")


@dataclass(frozen=True)
class Vector:
    name: str
    bytes: bytes
    codec: tuple  # one word per message
    daemon: tuple  # one word per answer; () for vectors without a daemon
    meaning: str


def parse_bytes(text):
    out = bytearray()
    group = None
    for token in re.findall(r'"[^"]*"|[0-9a-f]{2}|\)\*\d+|\S', text):
        if token[0] == '"':
            out += token[1:-1].encode("ascii")
        elif token == "(":
            group = len(out)
        elif token[0] == ")":
            out[group:] = out[group:] * int(token[2:])
        else:
            out += bytes.fromhex(token)
    return bytes(out)


def parse_outcomes(text):
    """`a; b *2` as (a, b, b)."""
    outcomes = []
    for part in text.split("; "):
        word, times = re.fullmatch(r"(.*?)(?: \*(\d+))?", part.strip()).groups()
        outcomes += [word] * int(times or 1)
    return tuple(outcomes)


def parse_line(line):
    name, data, codec, daemon, meaning = (column.strip() for column in line.split("|"))
    answers = () if daemon == "-" else parse_outcomes(daemon)
    return Vector(name, parse_bytes(data), parse_outcomes(codec), answers, meaning)


def lines_of(path):
    for line in path.read_text("ascii").splitlines():
        if line and not line.startswith("#"):
            yield line


def load():
    return [parse_line(line) for topic in TOPICS for line in lines_of(FOLDER / f"{topic}.txt")]


def items():
    return [line.split("|")[0].strip() for line in lines_of(FOLDER / "SECTIONS")]


def vectors_of_item(item, vectors):
    return [vector for vector in vectors if vector.name == item or vector.name.startswith(item + "/")]


# The words of the column codec, from msgpack-python's point of view.

INT_MAX = 2**53 - 1


def number_word(value):
    if isinstance(value, float):
        if not value.is_integer() or abs(value) > INT_MAX:
            return "float"
        value = int(value)
    return str(value) if abs(value) <= INT_MAX else "big"


def text_word(value):
    is_bin = isinstance(value, bytes)
    raw = value if is_bin else value.encode("utf-8", "surrogateescape")
    if len(raw) > 64:
        return f"{'bin' if is_bin else 'text'}({len(raw)})"
    shown = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\|' else f"\\x{b:02x}" for b in raw)
    return f"{'b' if is_bin else ''}\"{shown}\""


def unpacker():
    """A msgpack-python Unpacker with the same distinctions as the column codec."""
    import msgpack

    return msgpack.Unpacker(
        unicode_errors="surrogateescape", strict_map_key=False, object_pairs_hook=Pairs, timestamp=0
    )


class Pairs(list):
    """A map with its keys in order, repeated ones too."""


def word(value):
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return number_word(value)
    if isinstance(value, (str, bytes)):
        return text_word(value)
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{word(k)}:{word(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return f"array({len(value)})" if len(value) > 16 else "[" + ",".join(map(word, value)) + "]"
    return "ext"


def outcome_of(message):
    """A message as unpacker() gives it, in the words of the column codec."""
    if message[0] == 1:
        msgid = "nil" if message[1] is None else message[1]  # a daemon sends no floats
        return f"response {msgid} {word(message[2])} {word(message[3])}"
    *head, method, params = message
    params = [] if params is None else params
    kind = f"request {int(head[1])}" if head[0] == 0 else "notification"
    return f"{kind} {word(method)} {word(params)}"


def write_seeds(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for vector in load():
        (folder / vector.name.replace("/", "-")).write_bytes(vector.bytes)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("vectors.py FOLDER: writes one file per vector into the folder")
    write_seeds(Path(sys.argv[1]))
