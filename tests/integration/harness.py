"""harness.py: the processes and the client of the integration tests.

Redis       a real redis-server or valkey-server on a temporary Unix socket, and optionally on a TCP port
Ratelimitd  the daemon under test, from the build in RATELIMITD_BUILD
Notices     the service manager's end of the notifications
Client      MessagePack-RPC over a socket, in a few lines and without a library of ours, like any client
"""

import contextlib
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import msgpack
import pytest
import redis as redis_py

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 10.0  # longest wait for any event; generous, because a loaded machine is slow
DONE, DENIED, USAGE, UNREACHABLE, REFUSED = range(5)  # exit statuses of ratelimitctl
SANITIZER = re.compile(r"ERROR: (Address|Leak|UndefinedBehavior)Sanitizer|runtime error:|CHECK failed")


def algorithms():
    """The settings of every algorithm that counts units, without limit and window, by the name that tests have for it."""
    rows = re.findall(r"^ALGO\(\w+, (\w+)", (ROOT / "src" / "limit" / "algo.def").read_text(), re.M)
    names = [row for row in rows if not row.startswith("compat_") and row != "concurrency"]
    written = {"bucket": "token_bucket", "first_hit": "fixed_window, start: first_hit"}
    return {{"bucket": "token_bucket"}.get(name, name): f"algorithm: {written.get(name, name)}" for name in names}


def build_dir():
    """The build whose programs are tested."""
    named = os.environ.get("RATELIMITD_BUILD")
    if named:
        return Path(named)
    for preset in ("asan", "release"):
        if (ROOT / "build" / preset / "bin" / "ratelimitd").exists():
            return ROOT / "build" / preset
    raise FileNotFoundError("no build/asan or build/release with a bin/ratelimitd; run ./dev build")


def sanitized():
    """Does that build use the sanitizers? Programs that link with its libraries must use them too."""
    return "RL_SANITIZE:BOOL=ON" in (build_dir() / "CMakeCache.txt").read_text()


def program(name, build=None):
    return str((build or build_dir()) / "bin" / name)


def short_directory():
    """A temporary directory with a short name: a Unix socket's path ends at 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="rl.", dir="/tmp"))


def eventually(condition, what, patience_s=PATIENCE_S):
    """Wait until condition() is true, and return its value. `what` is it in words, or a function that finds them at the end."""
    until = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {patience_s} s: {what() if callable(what) else what}")
        time.sleep(0.005)


DAEMONS_KEY = b"rl:{b000}:daemons"  # where daemons count each other, every few seconds


def stored_keys(server):
    """What checks have stored in Redis."""
    return [key for key in server.keys() if key != DAEMONS_KEY]


def shard(*pieces):
    """What a key in Redis begins with, as ARCHITECTURE.md defines it: FNV-1a of the policy's name and of the id of the parts that
    all its limits count by."""
    value = 0xcbf29ce484222325
    for byte in b"".join(piece.encode() for piece in pieces):
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"rl:{{b{value % 256:03}}}"


def some(answer, *names):
    """Some fields of an answer; None for one that is absent."""
    return tuple(answer.get(name) for name in names)


class Lines:
    """What a process writes into a pipe, line by line. A thread reads it at all times, so that the pipe is never full; one who asks
    for the lines reads it too, and so finds all that was written until then, however late the thread is."""

    def __init__(self, pipe):
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._lock = threading.Lock()
        self._lines, self._rest, self._is_over = [], b"", False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self):
        readable = select.poll()
        readable.register(self._pipe, select.POLLIN)
        while not self._is_over:
            readable.poll()
            self.now()
        self._pipe.close()

    def now(self):
        """All lines so far."""
        with self._lock, contextlib.suppress(BlockingIOError):
            while not self._is_over:
                data = os.read(self._pipe.fileno(), 65536)
                self._is_over = not data
                *ended, self._rest = (self._rest + (data or b"\n" * bool(self._rest))).split(b"\n")
                self._lines += [line.decode(errors="replace") for line in ended]
        return self._lines

    def wait_for_end(self, patience_s):
        self._thread.join(patience_s)


class Process:
    """A child process. Keeps its standard error line by line, and stops only this pid."""

    def __init__(self):
        self.process = None
        self._lines = None

    @property
    def pid(self):
        return self.process.pid

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def log(self):
        """The lines that it has written until now. So what a daemon writes before it answers is among them after the answer."""
        return self._lines.now() if self._lines is not None else []

    def spawn(self, argv, **options):
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, **options)
        self._lines = Lines(self.process.stderr)

    def signal(self, number):
        self.process.send_signal(number)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        """End it without warning, like a crash or the out-of-memory killer."""
        if self.running:
            self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, patience_s=PATIENCE_S):
        """Its exit status, after the complete log. The log ends with the process; wait() alone would poll every 50 ms."""
        self._lines.wait_for_end(patience_s)
        return self.process.wait(patience_s)

    def text(self):
        """What it has written until now."""
        return "\n".join(self.log)

    def wait_for_log(self, pattern, patience_s=PATIENCE_S):
        """The first line that matches; fails when the process ends without one."""
        expression = re.compile(pattern)

        def found():
            ended = not self.running
            for line in list(self.log):
                if expression.search(line):
                    return line
            if ended:
                raise AssertionError(f"ended with {self.process.returncode} and no line {pattern!r}:\n{self.text()}")
            return None

        return eventually(found, lambda: f"a line {pattern!r} in\n{self.text()}", patience_s)


class RedisProcess(Process):
    """A server or a Sentinel of .kind, which logs into .directory and answers .client()."""

    def _answers(self):
        if not self.running:
            raise AssertionError(f"{self.kind}-server ended:\n{self.text()}\n{self._log_file()}")
        try:
            with self.client() as client:
                return client.ping()
        except redis_py.AuthenticationError:
            return True
        except redis_py.RedisError:
            return False

    def _log_file(self):
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""


class Redis(RedisProcess):
    """A real server in a directory of its own, without persistence."""

    KINDS = ("redis", "valkey")

    def __init__(self, kind="redis", tcp=False, arguments=(), launcher=(), env=None, port=None):
        super().__init__()
        self.kind = kind
        self.launcher, self.env = list(launcher), dict(env or {})  # what runs the server (of a namespace, say)
        self.directory = short_directory()
        self.socket = str(self.directory / "redis.sock")
        self.port = port if tcp and port else 0
        self.arguments = list(arguments)
        on_free_port(self._start_on) if tcp and not port else self.start()

    def _start_on(self, port):
        self.port = port
        self.start()

    @staticmethod
    def installed(kind):
        return shutil.which(f"{kind}-server") is not None

    @property
    def address(self):
        """In the form of store.redis.addresses."""
        return f"127.0.0.1:{self.port}" if self.port else f"unix:{self.socket}"

    def client(self, **options):
        return redis_py.Redis(unix_socket_path=self.socket, **options)

    def start(self, wait=True):
        self.spawn([*self.launcher, shutil.which(f"{self.kind}-server"), "--port", str(self.port), "--bind", "127.0.0.1",
                    "--unixsocket", self.socket, "--save", "", "--appendonly", "no", "--dir", str(self.directory),
                    "--logfile", str(self.directory / "log"), "--daemonize", "no", *self.arguments],
                   env={**os.environ, "LC_ALL": "C", **self.env})  # valkey ends where the machine's locale is not installed
        if wait:
            eventually(self._answers, f"{self.kind}-server answers")

    def stop(self):
        if self.running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.wait(3)
            except subprocess.TimeoutExpired:
                self.kill()

    def restart(self):
        self.stop()
        self.start()

    def close(self):
        """Kill it: it stores nothing, and a server checks for SIGTERM only ten times a second."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


LONG_ENOUGH = 6  # bytes of a key or password that is no other word of a log
WITH_KEY = {"check", "peek", "explain", "reset", "refund", "reserve", "acquire"}


class Ratelimitd(Process):
    """The daemon. `config` is the text of its configuration without `listen:` (added here, as is `store:` for a Redis);
    without one it runs on its defaults."""

    READY = r"ready on "

    def __init__(self, config=None, redis=None, redis_options=None, arguments=(), env=None, start=True, pass_fds=(),
                 expected_exit=0, build=None, launcher=()):
        super().__init__()
        self.directory = short_directory()
        self.socket = str(self.directory / "rl.sock")
        self.path = self.directory / "ratelimitd.yaml"
        self.redis, self.redis_options = redis, dict(redis_options or {})
        self.arguments, self.env, self.pass_fds = list(arguments), dict(env or {}), pass_fds
        self.build = build  # the folder with its bin/ratelimitd; None: that of the other programs
        self.launcher = list(launcher)  # what runs it (in a namespace, say)
        self.configurations = []  # texts
        self.expected_exit = expected_exit  # the exit status that close() requires; a list means any of them
        self.configured = config is not None
        if self.configured:
            self.configure(config)
        if start:
            self.start()

    def configure(self, config):
        """Write the configuration file; a running daemon reads it at the next reload()."""
        text = config
        if not re.search(r"^listen:", config, re.M):
            text = f"listen:\n  socket: {self.socket}\n  mode: \"0600\"\n{text}"
        if self.redis is not None and not re.search(r"^store:", config, re.M):
            options = {"addresses": f'["{self.redis.address}"]', **self.redis_options}
            lines = "".join(f"    {name}: {value}\n" for name, value in options.items())
            text = f"{text}\nstore:\n  type: redis\n  redis:\n{lines}"
        self.path.write_text(text)
        self.configurations.append(text)
        self.configured = True

    def argv(self):
        where = ["-c", str(self.path)] if self.configured else ["-s", self.socket]
        return [*self.launcher, program("ratelimitd", self.build), *where, *self.arguments]

    def start(self, wait=True):
        options = "abort_on_error=0:detect_leaks=1:halt_on_error=1"
        env = {**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1", **self.env}
        self.spawn(self.argv(), env=env, pass_fds=self.pass_fds)
        ready = self.wait_for_log(self.READY) if wait else ""
        if self.redis and "Redis: not connected yet" in ready:
            # on a busy machine this may take longer than READY; until then, local answers
            if "Redis: connecting;" in self.wait_for_log("warning: Redis: "):
                self.wait_for_log("info: Redis: ready|warning: Redis: (?!connecting;)")

    def leaked(self):
        """Keys that clients sent, and passwords, which are in what it wrote: but for keys, if its configuration wants that."""
        texts = "\n".join(self.configurations)
        written = set(re.findall(r"[^\s'\"(),;]+", self.text()))
        keys = set() if re.search(r"in_log: *\"?clear", texts) else {key for key in Client.sent_keys if key not in texts}
        secrets = set()
        for name in re.findall(r"(?:password|secret)_file: *\"?([^\s\",}]+)", texts):
            try:
                secrets.add(open(name, encoding="utf-8", errors="replace").read().strip())
            except OSError:
                pass
        return sorted(written & keys) + sorted(one for one in secrets if len(one) >= LONG_ENOUGH and one in self.text())

    def client(self, **options):
        return Client(self.socket, **options)

    def ctl(self, *arguments, input="", check=False, patience_s=PATIENCE_S):
        """Run ratelimitctl against this daemon: the finished process, with .returncode, .stdout, .stderr."""
        return subprocess.run([program("ratelimitctl"), "-s", self.socket, *map(str, arguments)], text=True,
                              input=input, capture_output=True, timeout=patience_s, check=check)

    def reload(self):
        self.signal(signal.SIGHUP)

    def stop(self, patience_s=PATIENCE_S):
        """SIGTERM, and the exit status."""
        if self.running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        return self.wait(patience_s)

    def complaint(self):
        """Complaints about its run and its end; empty if there are none."""
        expected = self.expected_exit if isinstance(self.expected_exit, (list, tuple)) else [self.expected_exit]
        if SANITIZER.search(self.text()):
            return f"the daemon reported a fault of its own:\n{self.text()}"
        if leaked := self.leaked():
            return f"the daemon wrote keys or passwords of the test, {leaked}:\n{self.text()}"
        if self.process is not None and self.process.returncode not in expected:
            return f"the daemon ended with {self.process.returncode}, expected {self.expected_exit}:\n{self.text()}"
        return ""

    def kill(self):
        self.expected_exit = -signal.SIGKILL
        super().kill()

    def close(self):
        """Stop it, and compare its end with the expected one."""
        try:
            if self.process is not None:
                try:
                    self.stop()
                except subprocess.TimeoutExpired:
                    super().kill()
                    raise AssertionError(f"the daemon did not stop:\n{self.text()}") from None
                complaint = self.complaint()
                assert not complaint, complaint
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def run_ratelimitd(*arguments, env=None):
    """Run ratelimitd to its end: exit status, standard output, standard error."""
    done = subprocess.run([program("ratelimitd"), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=20, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


class RpcError(Exception):
    """An error answer; .code is everything before the first ": "."""

    def __init__(self, text):
        super().__init__(text)
        self.code, _, self.message = text.partition(": ")


class Client:
    """One connection. call() waits for its answer; send() and recv() pipeline."""

    sent_keys = set()  # of all clients of a test that are long enough to be no other word, for Ratelimitd.leaked()

    def __init__(self, path, timeout_s=PATIENCE_S):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout_s)
        self.socket.connect(path)
        self._unpacker = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape", strict_map_key=False)
        self._next_id = 1
        self._early = {}  # answers that came before the awaited one

    def send_bytes(self, data):
        self.socket.sendall(data)

    def send(self, method, *params):
        """Write a request without waiting; its id."""
        msgid = self._next_id
        self._next_id += 1
        if method in WITH_KEY and len(params) > 1:
            self.note_keys([params])
        elif method in ("check_many", "check_all") and params and isinstance(params[0], list):
            self.note_keys(params[0])
        self.send_bytes(msgpack.packb([0, msgid, method, list(params)]))
        return msgid

    @classmethod
    def note_keys(cls, members):
        keys = (member[1] for member in members if isinstance(member, (list, tuple)) and len(member) > 1)
        cls.sent_keys.update(key for key in keys if isinstance(key, str) and len(key) >= LONG_ENOUGH)

    def notify(self, method, *params):
        self.send_bytes(msgpack.packb([2, method, list(params)]))

    def recv(self):
        """The next message unchanged: [1, msgid, error, result]; EOFError if the daemon closed."""
        while True:
            for message in self._unpacker:
                return message
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the daemon closed the connection")
            self._unpacker.feed(data)

    def answer(self, msgid):
        """The result of an earlier send(); RpcError for an error."""
        while msgid not in self._early:
            message = self.recv()
            self._early[message[1]] = message
        _, _, error, result = self._early.pop(msgid)
        if error is not None:
            raise RpcError(error)
        return result

    def call(self, method, *params):
        return self.answer(self.send(method, *params))

    def check(self, policy, key, *rest):
        return self.call("check", policy, key, *rest)

    def remaining(self, policy, key="k"):
        return self.call("peek", policy, key)["remaining"]

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def at_end(self):
        """True once the daemon has closed and the client has read everything."""
        try:
            self.recv()
        except (EOFError, ConnectionResetError):
            return True
        return False

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Notices:
    """The service manager's end of NOTIFY_SOCKET."""

    def __init__(self, place):
        self.path = str(place / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(10)

    def next(self, *names):
        """The next message with an assignment to one of the names, as a dict."""
        while True:
            message = dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())
            if any(name in message for name in names):
                return message


def one_server(kind):
    """For a fixture: a server of that kind. Without it, its tests are skipped."""
    if not Redis.installed(kind):
        pytest.skip(f"no {kind}-server here")
    server = Redis(kind)
    yield server
    server.close()


PORTS = range(15000, 30000)  # below those that the kernel gives to outgoing connections, and to whoever asks for any port


def free_port():
    """A TCP port of the loopback that is free now."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port of {PORTS} is free")


def on_free_port(start):
    """start(port), again with another port if somebody took it before the child listened."""
    for attempt in range(5):
        try:
            return start(free_port())
        except AssertionError as error:
            if attempt == 4 or not re.search("address (already )?in use|EADDRINUSE", str(error), re.I):
                raise
