"""played_node.py: a node of a Redis Cluster as a test wants it to be: a real server without a cluster does its work, but the map
is the test's, and so are the answers to calls of the script as long as `says` gives one."""

import contextlib
import itertools
import socket
import threading

from redis.crc import key_slot

HASH_SLOTS = 16384
ONE_LINE = b"+-:_#,("  # replies of one line
LISTS = b"*~>"


def reply_of(reader):
    """The bytes of one whole reply, or of one command; b"" at the end."""
    line = reader.readline()
    if not line:
        return b""
    kind = line[:1]
    if kind in ONE_LINE or line[1:3] == b"-1":
        return line
    length = int(line[1:])
    if kind in b"$=!":
        return line + reader.read(length + 2)
    n_items = length if kind in LISTS else 2 * length
    return line + b"".join(reply_of(reader) for _ in range(n_items))


def words_of(command):
    """Of a command's bytes."""
    words, rest = [], command[command.index(b"\r\n") + 2:]
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        n = int(head[1:])
        words.append(rest[:n])
        rest = rest[n + 2:]
    return words


KEYLESS = b"-ERR Lua scripts without any input keys are not supported\r\n"  # as a service says that does not run them


def is_canary(words):
    """Of an EVALSHA: is it the empty batch that proves a connection?"""
    return words[3].endswith(b":scratch")


def map_of(ports):
    """The answer to CLUSTER SLOTS: these share the hash slots."""
    ranges = [HASH_SLOTS * n // len(ports) for n in range(len(ports) + 1)]
    items = [b"*3\r\n:%d\r\n:%d\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n%040d\r\n" % (first, after - 1, port, port)
             for (first, after), port in zip(itertools.pairwise(ranges), ports)]
    return b"*%d\r\n" % len(ports) + b"".join(items)


class PlayedNode:
    """In front of `server`. says: None, or a function that gets the hash slot of a call of the script and gives the reply.
    canary_says: None, or the reply to the empty batch. needs_keys: refuse a script without keys."""

    def __init__(self, server):
        self.server, self.says, self.peers = server, None, [self]
        self.canary_says, self.needs_keys = None, False
        self.calls = []  # the keys of each call of the script
        self.canaries = []  # the hash slot of each empty batch
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                peer, _ = self._listener.accept()
                self._sockets.append(peer)
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as behind, peer:
            behind.connect(self.server.socket)
            commands, replies = peer.makefile("rb"), behind.makefile("rb")
            while command := reply_of(commands):
                reply = self._answer(words_of(command))
                if reply is None:
                    behind.sendall(command)
                    reply = reply_of(replies).replace(b"$10\r\nstandalone\r\n", b"$7\r\ncluster\r\n")
                peer.sendall(reply)

    def _answer(self, words):
        """None: the server's."""
        name = words[0].upper()
        if name == b"CLUSTER":
            return map_of([peer.port for peer in self.peers]) if words[1].upper() == b"SLOTS" else b"-ERR unknown subcommand\r\n"
        if name == b"ASKING":
            return b"+OK\r\n"
        if name == b"EVALSHA" and words[2] == b"0" and self.needs_keys:
            return KEYLESS
        if name == b"EVALSHA" and is_canary(words):
            self.canaries.append(key_slot(words[3]))
            return self.canary_says
        if name == b"EVALSHA":
            n = int(words[2])
            keys = words[3:3 + n] if n > 0 else words[3:-1]  # those of several hash slots are not declared
            if n > 0 or self.says is None:  # the others are refused by it as a whole, and come again for each hash slot
                self.calls.append(keys)
            if self.says is not None:
                return self.says(key_slot(keys[0]))
        return None

    def close(self):
        self._listener.close()
        for peer in self._sockets:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
