"""hostile.py: a daemon that follows the case: it answers late, wrongly, twice or not at all, and closes at any moment.

A thread accepts, reads and decodes. It answers `hello` by itself and keeps every other request for the case, in the order of
arrival. The case takes the requests one by one and writes any bytes. Nothing here waits for a time, only for events. The
limit of a wait is generous, so no result depends on it.

It also checks what it receives: each message must be a request of the protocol, or the notification `abandon`, and no msgid may
come twice on a connection. Anything else is a `fault`, and the case fails.
"""

import base64
import fcntl
import os
import selectors
import socket
import termios
import threading
import time

import msgpack

PATIENCE_S = 15.0
FIELDS = ["allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "delay_ms", "granted", "bound_by", "source",
          "reason", "policy_version"]
HELLO = {"version": "0.1.0", "protocol": 1, "max_key": 1024, "max_frame": 65536, "max_inflight_per_connection": 4096,
         "fields": FIELDS}
DECISION = {"allowed": True, "limit": 10, "remaining": 9, "retry_after_ms": 0, "reset_after_ms": 60000, "source": "memory",
            "policy_version": 1}
ORDER = {  # the names of the parameters; `...` is a map of options, or an integer in its place
    "check": ["policy", "key", "..."], "peek": ["policy", "key", "cost"], "reset": ["policy", "key"],
    "refund": ["policy", "key", "units", "..."], "acquire": ["policy", "key", "..."], "release": ["slot"],
    "reserve": ["policy", "key", "estimate", "..."], "settle": ["reservation", "actual"], "cancel": ["reservation"],
    "check_all": ["items", "..."], "check_many": ["items"], "hello": ["..."], "abandon": ["msgid"],
}


def text(value):
    """Bytes of the wire in the form of the cases: text, or base64 if they are not UTF-8."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [text(one) for one in value]
    if isinstance(value, dict):
        return {text(name): text(one) for name, one in value.items()}
    return value


def by_name(method, params):
    """A request's parameters by name, with the defaults, in whatever form the client sent them."""
    found = {}
    for name, value in zip(ORDER.get(method, []), params):
        if name != "...":
            found[name] = value
        elif isinstance(value, dict):
            found.update(value)
        elif isinstance(value, int):
            found["cost"] = value
    if "items" in found:
        found["items"] = [item if len(item) > 2 else [*item, 1] for item in found["items"]]
    if method in ("check", "peek") and "at_most" not in found:
        found.setdefault("cost", 1 if method == "check" else 0)
    return found


class Request:
    def __init__(self, connection, msgid, method, params):
        self.connection, self.msgid, self.method, self.params = connection, msgid, text(method), text(params)
        self.named = by_name(self.method, self.params)

    def __str__(self):
        return f"{self.method} {self.named}"


class Connection:
    def __init__(self, number, peer):
        self.number, self.socket = number, peer
        self.unpacker = msgpack.Unpacker(raw=True, strict_map_key=False)
        self.seen = set()          # msgids
        self.left = False          # the client closed it
        self.closed = False        # we did
        self.reading = True


class Hostile:
    def __init__(self, path, hello="answer", accepting=True, reading=True, features=None):
        """`features`: those that its hello lists; None: an older daemon, without that field."""
        self.path, self.hello, self.accepting, self.reading = path, hello, accepting, reading
        self.features = {} if features is None else {"features": features}
        self.close_at_accept = 0   # how many of the next connections to close right after accept
        self.serve = None          # fields of a decision: then the thread answers every check itself
        self.serve_release = None  # bool: then the thread answers every release itself, with this
        self.requests, self.faults, self.connections, self.hellos = [], [], [], []
        self.changed = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._wake, waker = socket.socketpair()
        self._selector.register(waker, selectors.EVENT_READ)
        self._waker, self._listener, self._crowd, self._over = waker, None, [], False
        self.listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # ---- what a case does -----------------------------------------------------------------------------------------

    def listen(self, backlog=4096):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(self.path)
        self._listener.listen(backlog)
        if self.accepting:
            self._watch(self._listener)

    def stop_listening(self):
        self._forget(self._listener)
        self._listener.close()
        os.unlink(self.path)

    def accept(self, yes):
        """Start or stop accepting connections. Start also accepts those in the backlog."""
        self.accepting = yes
        (self._watch if yes else self._forget)(self._listener)

    def fill_backlog(self):
        """Connect until EAGAIN. The listener takes one connection more than its backlog."""
        self.stop_listening()
        self.accepting = False
        self.listen(backlog=0)
        while True:
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            self._crowd.append(one)
            try:
                one.connect(self.path)
            except BlockingIOError:
                return

    def read(self, yes):
        """Start or stop reading, on every present and later connection."""
        self.reading = yes
        for connection in list(self.connections):
            if not connection.closed and not connection.left:
                (self._watch if yes else self._forget)(connection.socket, connection)

    def take(self, what="a request"):
        """The next request in the order of arrival."""
        return self.wait(lambda: self.requests.pop(0) if self.requests else None, what)

    def write(self, connection, data):
        """Ignore it if the client has left."""
        try:
            connection.socket.sendall(data)
        except OSError:
            pass

    def close(self, connection):
        """With bytes unread in its socket this resets the connection."""
        if not connection.closed:
            self._forget(connection.socket)
            connection.closed = True
            connection.socket.close()

    def wait(self, condition, what, patience_s=PATIENCE_S):
        """Wait until condition() is true, and return its value. It runs with the lock held, after every change."""
        until = time.monotonic() + patience_s
        with self.changed:
            while True:
                value = condition()
                if value:
                    return value
                rest = until - time.monotonic()
                if rest <= 0:
                    raise AssertionError(f"the hostile daemon did not get {what}")
                self.changed.wait(rest)

    def close_all(self):
        for connection in list(self.connections):
            if not connection.left:
                self.close(connection)

    def has_unread(self):
        """Are there unread bytes in some connection?"""
        waiting = bytearray(4)
        for connection in list(self.connections):
            if not connection.closed and fcntl.ioctl(connection.socket, termios.FIONREAD, waiting) == 0 and any(waiting):
                return True
        return False

    def stop(self):
        self._over = True
        self._wake.send(b"x")
        self._thread.join(PATIENCE_S)
        for connection in self.connections:
            if not connection.closed:
                connection.socket.close()
        for one in (*self._crowd, self._listener, self._wake, self._waker):
            one.close()
        self._selector.close()
        if os.path.exists(self.path):
            os.unlink(self.path)

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _watch(self, what, data=None):
        with self.changed:
            if what not in self._selector.get_map():
                self._selector.register(what, selectors.EVENT_READ, data)
        self._wake.send(b"x")

    def _forget(self, what, _data=None):
        with self.changed:
            if what in self._selector.get_map():
                self._selector.unregister(what)
        self._wake.send(b"x")

    def _run(self):
        while not self._over:
            ready = self._selector.select()
            with self.changed:
                for key, _ in ready:
                    if key.fileobj is self._waker:
                        self._waker.recv(4096)
                    elif key.fileobj not in self._selector.get_map():
                        continue  # forgotten meanwhile
                    elif key.data is None:
                        self._accept()
                    else:
                        self._receive(key.data)
                self.changed.notify_all()

    def _accept(self):
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        peer.settimeout(PATIENCE_S)
        connection = Connection(len(self.connections) + 1, peer)
        self.connections.append(connection)
        if self.close_at_accept > 0:
            self.close_at_accept -= 1
            connection.closed = True
            peer.close()
        elif self.reading:
            self._selector.register(peer, selectors.EVENT_READ, connection)

    def _receive(self, connection):
        try:
            data = connection.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            connection.left = True
            self._selector.unregister(connection.socket)
            return
        connection.unpacker.feed(data)
        try:
            for message in connection.unpacker:
                self._take_in(connection, message)
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            self.faults.append(f"received bytes that are not a message: {error}")
            self._selector.unregister(connection.socket)

    def _take_in(self, connection, message):
        if isinstance(message, list) and len(message) == 3 and message[:2] == [2, b"abandon"] and isinstance(message[2], list):
            self.requests.append(Request(connection, None, message[1], message[2]))
            return
        if not isinstance(message, list) or len(message) != 4 or message[0] != 0 or not isinstance(message[3], list):
            self.faults.append(f"received a message that is not a request: {message!r}")
            return
        _, msgid, method, params = message
        if msgid in connection.seen:
            self.faults.append(f"msgid {msgid} came twice on connection {connection.number}")
        connection.seen.add(msgid)
        request = Request(connection, msgid, method, params)
        if request.method == "check" and self.serve is not None:
            self.write(connection, msgpack.packb([1, msgid, None, {**DECISION, **self.serve}]))
            return
        if request.method == "release" and self.serve_release is not None:
            self.write(connection, msgpack.packb([1, msgid, None, {"released": self.serve_release}]))
            return
        if request.method != "hello":
            self.requests.append(request)
            return
        self.hellos.append(request)
        if self.hello == "answer":
            self.write(connection, msgpack.packb([1, msgid, None, {**HELLO, **self.features}]))
        elif self.hello == "refuse":
            self.write(connection, msgpack.packb([1, msgid, "BAD_REQUEST: there is no option 'describe'", None]))
        elif self.hello == "nonsense":
            self.write(connection, msgpack.packb([1, msgid, None, ["hello", 7]]))
