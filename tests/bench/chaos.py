"""chaos.py: all faults of clients, operators and Redis at once, under the sanitizers.

    chaos.py [SECONDS [SEED]]      `./dev soak chaos` calls this; tests/integration/test_chaos.py runs it for a short time

Two daemons and one Redis. Clients send every method, valid and hostile, pipelined, and end in every way: they read all,
half-close, leave in the middle of a message, reset, send garbage, or never read. Meanwhile Redis is killed, stopped, cut
off, emptied, filled, made a replica, deprived of rights and filled with invalid values, and the daemons reload good, changed,
broken and empty files, by SIGHUP and as administrators ask for it on the control socket. At the end of a round the second daemon gets SIGTERM with everything in flight; the first one continues.

Every third round is a counted one: a third daemon is killed and started again under load, Redis is stopped, cut off, filled and
deprived of rights, but not emptied, and clients of all three ask for policies with `lease` and limits that do not come back. The
other rounds lease as well.

What must hold in every round:

- of a counted key all daemons together admit no more than its limit
- each complete request on a connection that stayed open got exactly one answer, and there were no other answers
- a daemon closes a connection only in the cases of PROTOCOL.md
- every error has a code of the protocol, and the code is never INTERNAL
- no report of a sanitizer, and exit status 0
- the first daemon's memory and descriptors do not grow, nothing is in flight, no slot and no reservation is left, and Redis
  decides again

The seed decides the actions; threads and processes decide the times. So a seed repeats a trial only approximately.
"""

import itertools
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import redis as redis_py

ROOT = Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "asan"))
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "bench")]

import counted  # noqa: E402
import methods  # noqa: E402
import soak  # noqa: E402
from harness import Ratelimitd, Redis, RpcError, eventually  # noqa: E402

ROUND_S = 4.0
VANDALS, ADMINISTRATORS = 5, 2
PATIENCE_S = 20.0  # longest wait for an answer or a close, on a busy machine
# The daemon keeps buffers for the largest load so far, and the sanitizers' allocator keeps freed memory.
SETTLING_ROUNDS, SETTLING_KIB, GROWTH_KIB = 10, 64 * 1024, 16 * 1024
CODES = {line for line in re.findall(r"^ERROR_CODE\((\w+)", (ROOT / "proto" / "error.def").read_text(), re.M)} - {"INTERNAL"}
LIFE = """
listen:
  socket: {socket}
  mode: "0600"
  write_stall: 2s
drain: {{timeout: 3s}}
inline: {{allow: true, max_policies: 20}}
"""
CONFIG = soak.CONFIG.replace("window: 1s}", "window: 1s, lease: 1s}", 1) + counted.POLICIES  # `open` leases, too
# Freed blocks are reused soon, so that a leak is visible.
ENVIRONMENT = {"ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:halt_on_error=1:quarantine_size_mb=4"}


# ---- what is sent -------------------------------------------------------------------------------------------------


def junk(pick, depth=0):
    """A MessagePack value of any type."""
    makers = [
        lambda: None, lambda: pick.random() < 0.5, lambda: pick.choice([0, 1, -1, 2**53, 2**53 - 1, -2**63, 2**64 - 1]),
        lambda: pick.choice([0.5, 1.0, -0.0, float("nan"), float("inf")]), lambda: "", lambda: "x" * pick.randrange(2000),
        lambda: pick.randbytes(pick.randrange(40)), lambda: msgpack.ExtType(pick.randrange(128), b"ext"),
    ]
    if depth < 3:
        makers += [lambda: [junk(pick, depth + 1) for _ in range(pick.randrange(4))],
                   lambda: {junk_key(pick): junk(pick, depth + 1) for _ in range(pick.randrange(4))}]
    return pick.choice(makers)()


def junk_key(pick):
    return pick.choice(["cost", "deadline_ms", "request_id", "at_most", "ttl_ms", "decision", "algorithm", "limit", 7, "no-such"])


def inline_policy(pick):
    label = {"name": pick.choice(["a", "b", "open", "inline-x", ""])} if pick.random() < 0.5 else {}
    return {**label, "algorithm": pick.choice(["token_bucket", "fixed_window", "sliding_log", "sliding_counter", "concurrency"]),
            "limit": pick.choice([0, 1, 10, "100", -1, 2**60]), pick.choice(["window", "slot_ttl"]): pick.choice(["1s", "1m", 5])}


def hostile(pick, request):
    """A request with one fault, or without a fault."""
    name, *params = request
    how = pick.randrange(6) if name != "reserve" else 0  # without ttl_ms it would last a minute
    if how == 0:
        return [pick.choice(["", "chek", "x" * 300, name.upper()]), *params]
    if how == 1:
        return [name, *params, *(junk(pick) for _ in range(pick.randrange(1, 4)))]
    if how == 2:
        return [name, *params[:pick.randrange(len(params) + 1)]]
    if how == 3 and params:
        params[pick.randrange(len(params))] = junk(pick)
        return [name, *params]
    if how == 4 and params:
        return [name, inline_policy(pick), *params[1:]]
    return [name, *params[:1], "k" * pick.choice([1, 1023, 1024, 1025, 5000]), *params[2:]]


def unusual(pick):
    """Requests that methods.py does not send."""
    key, many = f"k{pick.randrange(1000)}", [1, 10, 100, 1000]
    return pick.choice([
        lambda: ["hello", {"decision": pick.choice(["map", "array"])}], lambda: ["ping"], lambda: ["version"],
        lambda: ["stats"], lambda: ["policies"], lambda: ["metrics"], lambda: ["metrics", "1.2"],
        lambda: [pick.choice(["top", "denials", "slowlog", "clients"])], lambda: ["hash", key],
        lambda: ["find", pick.choice(methods.UNITS), pick.choice(["*", "k1*", "", "*" * 300])],
        lambda: ["test_clock", 5], lambda: ["test_store", "down"], lambda: ["peek", pick.choice(methods.UNITS), key],
        lambda: ["check_many", [[pick.choice(methods.UNITS), f"k{i}"] for i in range(pick.choice(many))]],
        lambda: ["check_many", []], lambda: ["check", inline_policy(pick), key],
        lambda: [pick.choice(["explain", "reset"]), pick.choice(["a", "b", "b/"]), key],
        lambda: ["check", pick.choice(methods.UNITS), key, {"deadline_ms": pick.choice([1, 5, 1000])}],
        lambda: ["settle", "no-reservation", 1], lambda: ["release", "0" * 32],
    ])()


# Bytes after which no message can begin: the daemon answers what came before, then nil, and closes.
GARBAGE = [b"\xc1", b"GET / HTTP/1.1\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"\x80", b"\x94\x01\x01\xc0\xc0", b"\x94\x00\xff\xa4ping\x90",
           b"\x93\x00\x01\xa4ping", b"\xdd\xff\xff\xff\xff", b"\x94\x00\x01\xc6\xff\xff\xff\xff", b"\x91" * 50, b"\x95\x00\x00\x00\x00\x00"]


# ---- a connection that expects its answers ----------------------------------------------------------------------


class Ended(Exception):
    """The daemon has closed."""


class Owed:
    """A connection: each complete request must get one answer."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.socket.setblocking(False)
        self.unpacker = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape", strict_map_key=False)
        self.out, self.n_queued, self.n_written = bytearray(), 0, 0
        self.asked = {}  # msgid: (its request, the byte at which it ends)
        self.n_nil = 0  # responses with msgid nil
        self.on_answer = lambda request, error, result: None

    def queue(self, data):
        self.out += data
        self.n_queued += len(data)

    def ask(self, msgid, request):
        self.queue(msgpack.packb([0, msgid, request[0], request[1:]], unicode_errors="surrogateescape"))
        self.asked[msgid] = request, self.n_queued

    def owed(self):
        return [request for request, end in self.asked.values() if end <= self.n_written]

    def take(self, message):
        kind, msgid, error, result = message
        assert kind == 1 and (error is None or result is None), f"no response: {message}"
        if msgid is None:
            self.n_nil += 1
            return
        assert msgid in self.asked, f"an answer that nobody asked for, or a second one: {message}"
        request, _ = self.asked.pop(msgid)
        code = error.partition(": ")[0] if error is not None else None
        assert code is None or code in CODES, f"{request}: {error}"
        self.on_answer(request, error, result)

    def exchange(self, wait_s, reads=True):
        """Write and read as much as possible now; Ended if the daemon has closed."""
        readable, writable, _ = select.select([self.socket] if reads else [], [self.socket] if self.out else [], [], wait_s)
        if writable:
            try:
                n = self.socket.send(self.out)
            except BlockingIOError:
                n = 0
            except (BrokenPipeError, ConnectionResetError):
                n, self.out = 0, bytearray()  # there may be unread bytes from before the close
            self.n_written += n
            del self.out[:n]
        if readable:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Ended
            self.unpacker.feed(data)
            for message in self.unpacker:
                self.take(message)

    def until(self, condition, what):
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until, f"not within {PATIENCE_S} s: {what}; owed {self.owed()[:3]}"
            self.exchange(0.1)

    def to_end(self):
        try:
            self.until(lambda: False, "the daemon closes")
        except Ended:
            pass

    def close(self):
        self.socket.close()


class Place:
    """A daemon, and whether it may close connections because it is stopping."""

    def __init__(self, daemon):
        self.daemon, self.is_stopping = daemon, False


class Vandal(methods.Worker):
    """One connection after another, like methods.Worker, but with any request and any end."""

    ENDS = ("read_all", "half_close", "mid_message", "close", "reset", "garbage", "noise", "deaf")
    BEHIND_PATH = ""

    def __init__(self, places, until, seed):
        super().__init__(None, until, seed)
        self.places, self.counts, self.n_answers = places, {}, 0
        self.slots, self.reservations = ["0" * 32], ["no-reservation"]

    def note(self, _request, error, result):
        self.n_answers += 1
        if error is None and isinstance(result, dict):
            for field, held in (("slot", self.slots), ("reservation", self.reservations)):
                if field in result:
                    held.append(result[field])
                    del held[:-100]

    def any_request(self):
        self.slots, self.reservations = self.slots or ["0" * 32], self.reservations or ["no-reservation"]
        at = self.random.random()
        if at < 0.15:
            return unusual(self.random)
        return hostile(self.random, self.request()) if at < 0.4 else self.request()

    def burst(self, line, msgids):
        for _ in range(self.random.choice([1, 8, 32, 200])):
            if self.random.random() < 0.03:
                line.queue(msgpack.packb([2, "check", ["open", "k1"]]))
            msgid = next(msgids)
            line.ask(msgid, self.any_request())
            if self.random.random() < 0.1:  # of this call, one before it, or one that never was
                line.queue(msgpack.packb([2, "abandon", [max(msgid - self.random.choice([0, 0, 1, 9, 99]), 0)]]))

    def visit(self):
        place = self.random.choice(self.places)
        try:
            line = Owed(place.daemon.socket + self.BEHIND_PATH)
        except OSError:
            time.sleep(0.02)
            assert place.is_stopping or not place.daemon.running or time.monotonic() > self.until, "the daemon lets nobody in"
            return
        line.on_answer = self.note
        msgids = (n % 2**32 for n in itertools.count(self.random.choice([0, 1, 120, 65530, 2**32 - 20])))
        end = self.random.choice(self.ENDS)
        try:
            for _ in range(self.random.randrange(1, 6)):
                self.burst(line, msgids)
                if self.random.random() < 0.7:
                    line.until(lambda: not line.asked, "every answer")
            getattr(self, end)(line, msgids)
        except Ended:
            assert place.is_stopping, f"{end}: the daemon closed a connection; owed {line.owed()[:3]}"
        finally:
            line.close()

    # ---- ends ----

    def read_all(self, line, _msgids):
        line.until(lambda: not line.asked, "every answer")

    def half_close(self, line, _msgids):
        line.until(lambda: not line.out, "everything is written")
        self.shut_and_read(line, "half_close")

    def shut_and_read(self, line, what):
        line.socket.shutdown(socket.SHUT_WR)
        line.to_end()
        self.is_owed_nothing(line, what)

    def is_owed_nothing(self, line, what):
        """Ended means that the daemon has closed. Only a stopping daemon may leave requests unanswered."""
        if line.owed():
            raise Ended(what)

    def mid_message(self, line, msgids):
        line.until(lambda: not line.out, "everything is written")
        whole = msgpack.packb([0, next(msgids), "check", ["open", "k1"]])
        line.queue(whole[:self.random.randrange(1, len(whole))])
        line.until(lambda: not line.out, "a part is written")
        if self.random.random() < 0.5:
            self.shut_and_read(line, "mid_message")

    def close(self, line, _msgids):
        line.exchange(0)

    def reset(self, line, _msgids):
        line.exchange(0)
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def garbage(self, line, _msgids):
        line.until(lambda: not line.out, "everything is written")
        line.queue(self.random.choice(GARBAGE) + self.random.randbytes(self.random.choice([0, 10, 100000])))
        line.to_end()
        self.is_owed_nothing(line, "garbage")
        if line.n_nil != 1:
            raise Ended("garbage")

    def noise(self, line, _msgids):
        """Random bytes, which may be a message."""
        line.until(lambda: not line.asked, "every answer")
        line.take = lambda message: None
        line.queue(self.random.randbytes(self.random.randrange(1, 50)))
        try:
            line.exchange(0.05)
            line.exchange(0.05)
        except Ended:
            pass

    def deaf(self, line, msgids):
        """Writes as long as the daemon reads."""
        try:
            for _ in range(200):
                if time.monotonic() > self.until:
                    return
                if len(line.out) < 100000:
                    self.burst(line, msgids)
                line.exchange(0.01, reads=False)
        except Ended:
            pass


class Administrator(Vandal):
    """Asks on the control socket for reloads, dry runs of them and the configuration in force, and leaves like a Vandal."""

    ENDS = ("read_all", "half_close", "mid_message", "close", "reset")
    BEHIND_PATH = ".control"

    def any_request(self):
        return self.random.choice([["reload"], ["reload", {"dry_run": True}], ["config"], ["version"], ["stats"], ["ping"]])

    def note(self, request, error, result):
        super().note(request, error, result)
        if error is None and request[0] == "reload":
            assert result["state"] in ("in_effect", "restart_needed", "refused") and result["dry_run"] == (len(request) > 1), result
        if error is None and request[0] == "config":
            assert "policies:" in result["yaml"], result
        self.counts[request[0]] = self.counts.get(request[0], 0) + (error is None)

    def visit(self):
        super().visit()
        time.sleep(self.random.random() * 0.1)


# ---- faults during the load ---------------------------------------------------------------------------------------


def with_setting(name, value, usual):
    def fault(_daemons, redis, pick):
        with redis.client() as client:
            client.config_set(name, value)
            time.sleep(pick.random() * 0.5)
            client.config_set(name, usual)

    fault.__name__ = name.replace("-", "_")
    return fault


def take_rights(_daemons, redis, pick):
    with redis.client() as client:
        client.execute_command("ACL", "SETUSER", "default", pick.choice(["-evalsha", "-set", "-time", "-script", "-@write", "-hello"]))
        time.sleep(pick.random() * 0.5)
        client.execute_command("ACL", "SETUSER", "default", "+@all")


def make_replica(_daemons, redis, pick):
    with redis.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        time.sleep(pick.random() * 0.5)
        client.execute_command("REPLICAOF", "NO", "ONE")


def plant_nonsense(_daemons, redis, pick):
    """Deletes the key at the end: units under a key of another type cannot be given back before."""
    with redis.client() as client:
        keys = list(itertools.islice(client.scan_iter(count=1000), 200))
        for key in keys:
            client.delete(key)
            pick.choice([lambda k: client.set(k, pick.randbytes(pick.randrange(64))), lambda k: client.set(k, "-9" * 20),
                         lambda k: client.lpush(k, "x"), lambda k: client.hset(k, "f", "v"), lambda k: client.sadd(k, "m")])(key)
        time.sleep(pick.random() * 0.5)
        for key in keys:
            client.delete(key)


def empty_redis(_daemons, redis, _pick):
    with redis.client() as client:
        client.flushall()


def cut_often(_daemons, redis, _pick):
    with redis.client() as client:
        for _ in range(50):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            time.sleep(0.005)


def strange_file(daemons, _redis, pick):
    """Reloads of a changed, broken, half-written, empty or missing file; the good one comes back."""
    for daemon in daemons:
        good = daemon.path.read_text()
        for _ in range(pick.randrange(1, 6)):
            text = pick.choice([
                good, good.replace("max_inflight: 2000", "max_inflight: 50, max_inflight_per_connection: 8"),
                good.replace("limit: ", "limit: 1"), good.replace("sliding_log", "fixed_window"),
                good[:pick.randrange(len(good))], "", "policies: {}\n", "]", good.replace("policies:", "polices:"),
                good.replace("    addresses", "    merge: false\n    batch_max_keys: 1\n    deny_cache: {max_keys: 3, max_age: 5ms}\n"
                             "    addresses"), "\0" * 100, None])
            daemon.path.unlink(missing_ok=True)
            if text is not None:
                daemon.path.write_text(text)
            daemon.reload()
            time.sleep(pick.random() * 0.1)
        daemon.path.write_text(good)
        daemon.reload()


def change_lease(daemons, _redis, pick):
    """Reloads of a file with another age of the leases, or without."""
    for daemon in daemons:
        good = daemon.path.read_text()
        for lease in pick.sample(["0", "100ms", "10s"], 2):
            daemon.path.write_text(good.replace("lease: 1s", f"lease: {lease}"))
            daemon.reload()
            time.sleep(pick.random() * 0.2)
        daemon.path.write_text(good)
        daemon.reload()


def kill_daemon(daemons, _redis, pick):
    """The last one."""
    daemons[-1].kill()
    time.sleep(pick.random() * 0.1)
    daemons[-1].start()


def as_fault(of_soak):
    def fault(daemons, redis, _pick):
        of_soak(daemons, redis)

    fault.__name__ = of_soak.__name__
    return fault


FAULTS = [*map(as_fault, (soak.restart_redis, soak.stop_redis, soak.flush_scripts, soak.cut_connections, soak.fill_redis, soak.reload)),
          take_rights, make_replica, plant_nonsense, empty_redis, cut_often, strange_file, strange_file,
          with_setting("min-replicas-to-write", 1, 0), with_setting("maxclients", 1, 10000),
          with_setting("lua-time-limit", 1, 5000)]
KEEPING_FAULTS = [*map(as_fault, (soak.stop_redis, soak.flush_scripts, soak.cut_connections, soak.fill_redis, soak.reload)),
                  take_rights, make_replica, cut_often, change_lease, kill_daemon, kill_daemon,
                  with_setting("min-replicas-to-write", 1, 0), with_setting("maxclients", 1, 10000)]


# ---- rounds -------------------------------------------------------------------------------------------------------


def start(redis, store=""):
    daemon = Ratelimitd(start=False, redis=redis, redis_options={"reconnect": "{refused_max: 300ms}"}, env=ENVIRONMENT)
    daemon.configure(LIFE.format(socket=daemon.socket) + CONFIG + store)
    daemon.start()
    return daemon


def policies_are_back(client):
    try:
        return client.check("open", "probe")
    except RpcError:
        return False


class Trial:
    def __init__(self, seed):
        self.pick, self.seed = random.Random(seed), seed
        self.redis = Redis("redis")
        self.first = start(self.redis)
        self.files, self.sizes, self.wrong, self.n_answers = [], [], [], 0

    def round(self, number):
        is_counted = number % 3 == 1
        store, text = (self.redis, "") if number % 3 < 2 else (None, soak.FULL)
        second, third = start(store, text), start(self.redis) if is_counted else None
        try:
            self.wreck(number, second, third)
            self.look(number)
        finally:
            second.close()
            if third is not None:
                third.expected_exit = [0, -signal.SIGKILL]
                third.close()

    def wreck(self, number, second, third):
        places = [Place(self.first), Place(second)]
        daemons = [self.first, second] + ([third] if third else [])
        until = time.monotonic() + ROUND_S
        vandals = [(Vandal if i < VANDALS else Administrator)(places, until + 1, f"{self.seed}/{number}/{i}")
                   for i in range(VANDALS + ADMINISTRATORS)]
        counters = [counted.Counter(place, PATIENCE_S, f"{self.seed}-{number}", until + 1, f"{self.seed}/{number}/{i}")
                    for i in range(counted.CONNECTIONS) for place in ([*places, Place(third)] if third else [])]
        for one in (*vandals, *counters):
            one.start()
        done, self.is_emptied = [], False
        try:
            while time.monotonic() < until and not any(one.wrong for one in (*vandals, *counters)):
                time.sleep(self.pick.random() * 0.3)
                fault = self.pick.choice(KEEPING_FAULTS if third else FAULTS)
                done.append(fault.__name__)
                self.try_fault(fault, daemons)
            self.stop(places[1])
        finally:
            for one in (*vandals, *counters):
                one.until = 0
            for one in (*vandals, *counters):
                one.join()
            self.n_answers += sum(vandal.n_answers for vandal in vandals)
        self.wrong += [f"round {number}: {one.wrong!r}" for one in (*vandals, *counters) if one.wrong]
        n_reloads = sum(vandal.counts.get("reload", 0) for vandal in vandals)
        print(f"round {number}: {', '.join(done)}; {n_reloads} reloads by request; {self.n_answers} answers so far"
              f"{self.count(number, counters)}", flush=True)

    def count(self, number, counters):
        """What was admitted of each counted key; complains if it is above the limit."""
        if not counters or self.is_emptied:
            return "; Redis was emptied" if counters else ""
        admitted = counted.admitted(counters)
        self.wrong += [f"round {number}: {policy} has admitted {n} of {counted.LIMIT}" for policy, n in admitted.items()
                       if n > counted.LIMIT]
        by_lease = sum(counter.n_by_lease for counter in counters)
        return f"; admitted {', '.join(map(str, admitted.values()))} of {counted.LIMIT}; {by_lease} by lease"

    def try_fault(self, fault, daemons):
        """Redis may be busy or unreachable for this client too. Restore the settings in any case, if need be by an empty one."""
        try:
            fault(daemons, self.redis, self.pick)
        except redis_py.RedisError:
            self.redis.restart()
            self.is_emptied = True

    def stop(self, place):
        """SIGTERM with everything in flight, sometimes while Redis is stopped."""
        place.is_stopping = True
        is_stopped = self.pick.random() < 0.3
        if is_stopped:
            self.redis.pause()
        try:
            place.daemon.stop(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"the second daemon did not stop within {PATIENCE_S} s:\n{place.daemon.text()}")
            return
        finally:
            if is_stopped:
                self.redis.resume()
        complaint = place.daemon.complaint()
        if complaint:
            self.wrong.append(complaint)

    def look(self, number):
        """Complaints about the state after the round."""
        if not self.first.running:
            self.wrong.append(f"round {number}: the first daemon is gone:\n{self.first.text()}")
        if self.wrong:
            return
        self.first.reload()
        with self.first.client() as client:
            eventually(lambda: policies_are_back(client), "the good policies are back")
            try:
                soak.settled(self.first, self.redis)
            except AssertionError as wrong:
                self.wrong.append(f"round {number}: {wrong}; {client.call('stats')}\n{self.first.text()[-2000:]}")
                return
        self.sizes += soak.measure([self.first], self.files)
        if len(self.sizes) <= SETTLING_ROUNDS:
            most = self.sizes[0] + SETTLING_KIB
        else:
            most = max(self.sizes[:SETTLING_ROUNDS]) + GROWTH_KIB
        if self.sizes[-1] > most:
            self.wrong.append(f"round {number}: memory rose: {self.sizes} KiB")

    def close(self):
        for process in (self.redis, self.first):
            if process.running:
                process.signal(signal.SIGCONT)
        try:
            self.first.close()
        finally:
            self.redis.close()


def trial(seconds, seed):
    """The complaints, the number of rounds, and the number of answers."""
    print(f"chaos: seed {seed}", flush=True)
    started, n = time.monotonic(), 0
    chaos = Trial(seed)
    try:
        while time.monotonic() - started < seconds and not chaos.wrong:
            chaos.round(n)
            n += 1
    except AssertionError as wrong:
        chaos.wrong.append(str(wrong))
    try:
        chaos.close()
    except AssertionError as wrong:
        chaos.wrong.append(str(wrong))
    return chaos.wrong, n, chaos.n_answers, chaos.sizes


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    wrong, n, n_answers, sizes = trial(seconds, seed)
    for one in wrong:
        print(f"chaos: {one}")
    print(f"resident KiB after each round: {sizes}")
    print(f"{n} rounds, {n_answers} answers, {len(wrong)} failed; seed {seed}")
    sys.exit(1 if wrong or not n else 0)


if __name__ == "__main__":
    main()
