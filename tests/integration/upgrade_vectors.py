"""upgrade_vectors.py: records the keys that a release wrote into Redis and the answers to its clients as text, and replays them.

An upgrade in place keeps every counter, and during it two releases run on one Redis at the same time. So each must read what
the other wrote. `vectors/e30bcaf/` has what the daemon of commit e30bcaf wrote and answered:

ratelimitd.yaml   the policies for daemon.txt
daemon.txt        calls through the socket: every answer, and after each the keys in Redis that it changed
script.txt        ops on the store, several in one batch, by tests/replay: every answer, and the keys after each batch

test_upgrade.py compares a build with them, in both directions. To take them again, build e30bcaf in a worktree and run

    RATELIMITD_BUILD=<its build/asan> python tests/integration/upgrade_vectors.py take [daemon|script]

with the present version of this file. It needs only bin/ratelimitd and tests/replay of that build (up to e30bcaf: tests/judge).
Vectors come from a release and never from the tested tree, so this changes only added cases.

**Time.** Redis' clock cannot be set. The script accepts the time as an additional last argument, which only tests send.
`ClockedRedis` is a proxy between daemon and server that adds this argument to each EVALSHA, so that every run gives the same
bytes; tests/replay sends it itself. Hours pass between two calls: when the script refuses a late batch, the daemon must learn the
time from the reply and send the batch again. A new script may change the order of KEYS, ARGV and its reply. It must keep the
time as last argument (or `ClockedRedis._with_time` has to follow), and every name, type, value and expiry of a key. The
presets of `compat` use relative expiries, and only their length is recorded.

**The text.** One line each. Names and values of keys are bytes: printable ASCII as it is, everything else as \\xNN.

    case NAME                    Redis is empty, the connection is new
    at MICROSECONDS              the time from here on
    ask METHOD [PARAMETERS]      JSON; "$1" is a placeholder for the first slot or reservation of the case
    got ANSWER | error CODE      JSON, with the recorded slot or reservation
    key "NAME" TYPE EXPIRY VALUE...   its present state; EXPIRY in ms since the epoch, or +SECONDS for its longest lifetime;
                                 a list's elements, a zset's SCORE="MEMBER" in order
    gone "NAME"                  the key no longer exists
    stats {NAME: RISE}           the counters of the case

script.txt has the input lines of tests/replay/replay.c, and its answers after `says`.
"""

import base64
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model"))

import reserving  # noqa: E402
import steps  # noqa: E402
import traces  # noqa: E402
from harness import Client, Ratelimitd, Redis, RpcError, build_dir, eventually, short_directory, stored_keys  # noqa: E402
from slot_traces import make_slots  # noqa: E402

FOLDER = Path(__file__).resolve().parent / "vectors" / "e30bcaf"
START_US = 4_000_000_000_123_457  # in the future, so that no key has expired; not a round number in any unit
AWAY = "without Redis"  # the suffix of cases without a Redis
# Settings of store.redis that e30bcaf did not have. The vectors compare the calls to Redis and its keys, on a clock that jumps
# from case to case, so every check must ask Redis.
DAEMON_OPTIONS = {"deny_cache": "{max_keys: 0}"}


# ---- Redis with a clock ----


class ClockedRedis:
    """A proxy on a Unix socket that adds the time `now_us` to every call of the script."""

    def __init__(self, server):
        self.server, self.now_us = server, START_US
        self.directory = short_directory()
        self.path = str(self.directory / "clocked.sock")
        self.address = f"unix:{self.path}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        for one in [self._listener, *self._sockets]:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        Path(self.path).unlink(missing_ok=True)
        self.directory.rmdir()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(self.server.socket)
            self._sockets += [client, server]
            threading.Thread(target=self._commands, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client), daemon=True).start()

    @staticmethod
    def _pass_on(source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _commands(self, source, to):
        """Commands as RESP arrays of strings, one by one."""
        try:
            with source.makefile("rb") as lines:
                while head := lines.readline():
                    words = []
                    for _ in range(int(head[1:])):
                        size = int(lines.readline()[1:])
                        words.append(lines.read(size + 2)[:-2])
                    words = self._with_time(words)
                    to.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
            to.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):
            pass

    def _with_time(self, words):
        return [*words, str(self.now_us).encode()] if words[0].upper() == b"EVALSHA" else words


# ---- The keys in Redis ----


@dataclass(frozen=True)
class Key:
    """What Redis has under one name. `expires`: ms since the epoch, or '+SECONDS'."""

    type: str
    expires: object
    value: object  # bytes; a tuple of bytes; of a zset a tuple of (score, member)


RELATIVE_BEFORE_MS = 3_000_000_000_000  # an expiry by Redis' own clock, of today


def look_up(server, name, relative=True):
    kind = server.type(name).decode()
    if kind == "string":
        value = server.get(name)
    elif kind == "list":
        value = tuple(server.lrange(name, 0, -1))
    else:
        assert kind == "zset", f"{name} is a {kind}"
        value = tuple((int(score), member) for member, score in server.zrange(name, 0, -1, withscores=True))
    expires = server.execute_command("PEXPIRETIME", name)
    assert expires > 0, f"{name} never expires"
    if relative and expires < RELATIVE_BEFORE_MS:
        expires = f"+{-(-server.pttl(name) // 1000)}"
    return Key(kind, expires, value)


def dump(server):
    """name -> Key, of everything."""
    return {name: look_up(server, name) for name in sorted(stored_keys(server))}


def restore(server, keys):
    """Makes these the only keys."""
    server.flushall()
    for name, key in keys.items():
        if key.type == "string":
            server.set(name, key.value)
        elif key.type == "list":
            server.rpush(name, *key.value)
        else:
            server.zadd(name, {member: score for score, member in key.value})
        if isinstance(key.expires, str):
            server.expire(name, int(key.expires))
        else:
            server.pexpireat(name, key.expires)


# ---- Random parts of each run ----


@dataclass(frozen=True)
class Reservation:
    """A reservation's bytes: src/server/reservation_token.c."""

    version: int
    source: int
    reason: int
    id: bytes  # of eight zeros: it reserves nothing
    units: int
    made_us: int
    ttl_ms: int
    policy: bytes
    key: bytes

    HEAD = "<BBB8sqqIB"

    @classmethod
    def read(cls, text):
        assert re.fullmatch("[A-Za-z0-9_-]+", text)
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        *numbers, n = struct.unpack_from(cls.HEAD, data)
        rest = data[struct.calcsize(cls.HEAD):-4]
        assert struct.unpack("<I", data[-4:])[0] == cls.checksum(data[:-4])
        return cls(*numbers, rest[:n], rest[n:])

    @staticmethod
    def checksum(data):
        value = 0xcbf29ce484222325
        for byte in data:
            value = (value ^ byte) * 0x100000001b3 % 2**64
        return (value ^ value >> 32) % 2**32


GIVEN = ("slot", "reservation")


@dataclass
class Given:
    """The slots and reservations of a run: their ids are random."""

    tokens: list = field(default_factory=list)

    def note(self, answer):
        if isinstance(answer, dict):
            self.tokens += [answer[name] for name in GIVEN if name in answer]

    def instead(self, recorded, got):
        """The same, with the present slot or reservation of a step in place of the recorded one."""
        names = [name for name in GIVEN if isinstance(got, dict) and name in got]
        new = {recorded[name]: got[name] for name in names}
        return Given([new.get(token, token) for token in self.tokens])

    def insert(self, value):
        """Parameters of a call, with the tokens themselves."""
        if isinstance(value, str) and re.fullmatch(r"\$\d+", value):
            return self.tokens[int(value[1:]) - 1]
        if isinstance(value, list):
            return [self.insert(item) for item in value]
        return value

    def names(self):
        """The random part of a zset's member -> its name. A reservation begins with its id; a slot is its own id."""
        names = {}
        for i, token in enumerate(self.tokens, 1):
            is_slot = re.fullmatch("[0-9a-f]{32}", token)
            names[token.encode() if is_slot else Reservation.read(token).id] = b"<%d>" % i
        return names

    def answer(self, value):
        """The answer, without its random parts."""
        if not isinstance(value, dict):
            return value
        shown = dict(value)
        if "slot" in value:
            assert re.fullmatch("[0-9a-f]{32}", value["slot"])
            shown["slot"] = "a slot"
        if "reservation" in value:
            token = Reservation.read(value["reservation"])
            shown["reservation"] = {**token.__dict__, "id": token.id != bytes(8)}
        return shown

    def keys(self, keys):
        """The same with names in place of ids. A log of a compat preset has members `<us>-<random>-<n>`."""
        names = self.names()

        def shown(member):
            for id, name in names.items():
                if member.startswith(id):
                    return name + member[len(id):]
            return re.sub(rb"^(\d+)-\d+-(\d+)$", rb"\1-*-\2", member)

        return {name: Key(key.type, key.expires, tuple(sorted((score, shown(member)) for score, member in key.value)))
                if key.type == "zset" else key for name, key in keys.items()}


# ---- The text ----


def quoted(data):
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in data) + '"'


def unquoted(text):
    return re.sub(r"\\x(..)", lambda found: chr(int(found[1], 16)), text[1:-1]).encode("latin-1")


def line_of_key(name, key):
    values = {"string": lambda: [quoted(key.value)], "list": lambda: map(quoted, key.value),
              "zset": lambda: [f"{score}={quoted(member)}" for score, member in key.value]}[key.type]()
    return f"key {quoted(name)} {key.type} {key.expires} {' '.join(values)}"


def key_of_line(rest):
    name, kind, expires, values = re.fullmatch(r'("[^"]*") (\w+) (\+?\d+) (.*)', rest).groups()
    found = re.findall(r'(?:(-?\d+)=)?("[^"]*")', values)
    value = tuple(unquoted(text) for _, text in found)
    if kind == "string":
        value = value[0]
    elif kind == "zset":
        value = tuple((int(score), unquoted(text)) for score, text in found)
    return unquoted(name), Key(kind, expires if expires[0] == "+" else int(expires), value)


def changes(before, after):
    yield from (f"gone {quoted(name)}" for name in before if name not in after)
    yield from (line_of_key(name, key) for name, key in after.items() if before.get(name) != key)


@dataclass
class Step:
    """One call, or one batch of script.txt: the time, the request, the answer, and the keys after it."""

    at_us: int
    asked: object  # (method, parameters); of a batch its lines
    got: object = None  # an answer, or an RpcError's code as ('error', CODE); for a batch, its output lines
    keys: dict = field(default_factory=dict)


@dataclass
class Case:
    name: str
    steps: list = field(default_factory=list)
    stats: dict = field(default_factory=dict)
    policies: list = field(default_factory=list)  # of script.txt: the lines that come before the batches


def load(path):
    """The cases of a file."""
    cases, keys, now = [], {}, 0
    for line in path.read_text("ascii").splitlines():
        word, _, rest = line.partition(" ")
        if word in ("", "#"):
            continue
        if word == "case":
            cases.append(Case(rest))
            keys = {}
        elif word == "at":
            now = int(rest)
        elif word in ("policy", "limit"):
            cases[-1].policies.append(line)
        elif word == "ask":
            method, _, parameters = rest.partition(" ")
            cases[-1].steps.append(Step(now, (method, json.loads(parameters or "[]")), None, keys))
        elif word == "batch":
            cases[-1].steps.append(Step(now, rest.split("; "), [], keys))
        elif word == "got":
            cases[-1].steps[-1].got = json.loads(rest)
        elif word == "error":
            cases[-1].steps[-1].got = ("error", rest)
        elif word == "says":
            cases[-1].steps[-1].got.append(rest)
        elif word == "stats":
            cases[-1].stats = json.loads(rest)
        else:
            assert word in ("key", "gone"), line
            keys = dict(keys)
            if word == "key":
                name, key = key_of_line(rest)
                keys[name] = key
            else:
                del keys[unquoted(rest)]
            cases[-1].steps[-1].keys = keys = dict(sorted(keys.items()))
    return cases


def lines_of(case):
    """A case as text."""
    yield f"case {case.name}"
    yield from case.policies
    now, keys = None, {}
    for step in case.steps:
        if step.at_us != now:
            now = step.at_us
            yield f"at {now}"
        if isinstance(step.asked, list):
            yield "batch " + "; ".join(step.asked)
            yield from (f"says {line}" for line in step.got)
        else:
            method, parameters = step.asked
            yield f"ask {method} {json.dumps(parameters)}" if parameters else f"ask {method}"
            yield f"error {step.got[1]}" if isinstance(step.got, tuple) else f"got {json.dumps(step.got)}"
        yield from changes(keys, step.keys)
        keys = step.keys
    if case.stats:
        yield f"stats {json.dumps(case.stats)}"
    yield ""


# ---- A daemon under a clock ----


class ClockedDaemon:
    """A daemon on a ClockedRedis, and a client of it. `away`: a daemon without a reachable Redis."""

    def __init__(self, server, away=False):
        self.clocked, self.away = ClockedRedis(server), away
        self.server = server.client()
        if away:
            self.clocked.address += ".gone"
        config = (FOLDER / "ratelimitd.yaml").read_text()
        self.daemon = Ratelimitd(config, redis=self.clocked, redis_options=DAEMON_OPTIONS, start=False)
        self.client = None

    @classmethod
    def of(cls, server, case):
        return cls(server, case.name.endswith(AWAY))

    def __enter__(self):
        self.daemon.start()
        self.begin()
        if not self.away:
            eventually(lambda: self.stats()["redis_up"] == 1, "Redis is there")
        return self

    def __exit__(self, *exc):
        self.client.close()
        self.daemon.close()
        self.clocked.close()
        self.server.close()

    def begin(self):
        """Opens a new connection, after the slots of the previous one have ended. Then empties Redis."""
        if self.client is not None:
            self.client.close()
        self.client = Client(self.daemon.socket)
        eventually(lambda: self.stats()["slots"] == 0, "the slots have ended")
        self.settle()
        self.server.flushall()

    def stats(self):
        return self.client.call("stats")

    def settle(self):
        """Waits until nothing is in flight to Redis: no answer waits for a candidate, or for a slot that ends."""
        def is_idle(stats):
            return stats["redis_inflight"] == 0 and stats["inflight"] == 0

        eventually(lambda: is_idle(self.stats()), "Redis has answered everything")

    def keys(self):
        self.settle()
        return dump(self.server)

    def ask(self, at_us, method, parameters):
        self.clocked.now_us = at_us
        try:
            return self.client.call(method, *parameters)
        except RpcError as error:
            return ("error", error.code)


UNCOUNTED = re.compile("redis_|connections|requests$|notifications$|accept|inflight$|slots_ended|inline_|^slots$")


def rises(before, after):
    """The counters that depend only on the calls: not those of connections and batches."""
    return {name: after[name] - before[name] for name in sorted(after)
            if after[name] != before[name] and not UNCOUNTED.search(name)}


def run_case(clocked, case):
    """Runs the case from its beginning. Returns a Case with the present answers and keys, and the slots and reservations."""
    clocked.begin()
    before, given, run = clocked.stats(), Given(), Case(case.name)
    for step in case.steps:
        method, parameters = step.asked
        got = clocked.ask(step.at_us, method, given.insert(parameters))
        given.note(got)
        run.steps.append(Step(step.at_us, step.asked, got, clocked.keys()))
    run.stats = rises(before, clocked.stats())
    return run, given


# ---- The script without a daemon ----


class Replay:
    """tests/replay on a server, batch by batch. Up to e30bcaf, the program and a tick had other names."""

    def __init__(self, server):
        name, self.tick = ("replay", "tick") if (build_dir() / "tests" / "replay").exists() else ("judge", "turn")
        self.process = subprocess.Popen([str(build_dir() / "tests" / name), "redis", server.socket, "64", "1", "1"],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def configure(self, lines):
        self.process.stdin.write("".join(f"{line}\n" for line in lines))

    def batch(self, at_us, lines):
        self.process.stdin.write("".join(f"{line}\n" for line in (f"{self.tick} {at_us}", *lines, "end")))
        self.process.stdin.flush()
        silent = sum(re.match(r"\S+ \S+ sweep ", line) is not None for line in lines)
        answers = [self.process.stdout.readline().rstrip("\n") for _ in range(len(lines) - silent)]
        return [re.sub(r" of \d+ \d+ \d+", "", answer) for answer in answers]  # the release did not print this


def run_script_case(server, case):
    """Runs the case from its beginning."""
    with server.client() as client, Replay(server) as replay:
        client.flushall()
        replay.configure(case.policies)
        return Case(case.name, [Step(step.at_us, step.asked, replay.batch(step.at_us, step.asked), dump(client))
                                for step in case.steps], {}, case.policies)


def script_traces():
    """Of every algorithm and kind of op. The clock steps back only where the state after it is fully specified: a log may
    or may not still have its expired times, and a known request id may or may not see a state."""
    for seed in (1, 2, 3):
        for name in traces.NATIVE:
            yield f"{name}-{seed}", traces.make(name, seed, backwards=name != "sliding_log")
        yield f"several-{seed}", traces.make_several(seed, backwards=False)
        yield f"shared-{seed}", traces.make_shared(seed, backwards=False)
        yield f"steps-{seed}", steps.make(seed, backwards=False)
        yield f"reserving-{seed}", reserving.make(seed, backwards=False)
        yield f"slots-{seed}", make_slots(seed, backwards=False)


def script_cases():
    """Each is short enough to read."""
    for name, trace in script_traces():
        case, lines = Case(name), list(getattr(trace, "text_for_server", trace.text)())
        while lines:
            line = lines.pop(0)
            if line.startswith("tick "):
                end = lines.index("end")
                if lines[:end]:
                    case.steps.append(Step(int(line[5:]), lines[:end]))
                lines = lines[end + 1:]
            else:
                case.policies.append(line)
        case.steps = case.steps[:20]
        yield case


# ---- Taking them ----

HEAD = """# What {release} wrote and answered; see upgrade_vectors.py, which took it. Do not edit.

"""


def write(path, cases):
    path.write_text(HEAD.format(release=FOLDER.name) + "".join(f"{line}\n" for case in cases for line in lines_of(case)),
                    "ascii")


def take_daemon(server):
    from upgrade_cases import CASES

    for name, calls in CASES.items():
        case, now = Case(name), START_US
        for after_us, method, *parameters in calls:
            now += after_us
            case.steps.append(Step(now, (method, parameters)))
        with ClockedDaemon.of(server, case) as clocked:  # a new one: counts begin anew
            yield run_case(clocked, case)[0]


def take(what):
    server = Redis()
    try:
        if "daemon" in what:
            write(FOLDER / "daemon.txt", list(take_daemon(server)))
        if "script" in what:
            write(FOLDER / "script.txt", [run_script_case(server, case) for case in script_cases()])
    finally:
        server.close()


if __name__ == "__main__":
    if sys.argv[1:2] != ["take"] or "RATELIMITD_BUILD" not in os.environ:
        sys.exit("usage: RATELIMITD_BUILD=BUILD_OF_THE_RELEASE upgrade_vectors.py take [daemon] [script]")
    take(sys.argv[2:] or ["daemon", "script"])
