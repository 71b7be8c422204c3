"""played_server.py: a plain server whose replies to calls of the script are changed on their way, as a test wants them."""

import contextlib
import re
import socket
import struct
import threading

from played_node import KEYLESS, is_canary, reply_of, words_of


class PlayedServer:
    """In front of `server`. forge: None, or a function that gets the integers of such a reply and gives the reply's
    bytes. needs_keys: refuse a script without keys. last: None, or a function of a command's words: true, and its reply is the last
    one before the connection is reset; then on_reset() is called."""

    def __init__(self, server):
        self.server, self.forge, self.n_forged, self.needs_keys = server, None, 0, False
        self.last, self.on_reset = None, None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

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
                words = words_of(command)
                if self.needs_keys and words[0].upper() in (b"EVAL", b"EVALSHA") and words[2] == b"0":
                    peer.sendall(KEYLESS)
                    continue
                behind.sendall(command)
                reply = reply_of(replies)
                if self.forge is not None and words[0].upper() == b"EVALSHA" and not is_canary(words):
                    reply = self.forge([int(number) for number in re.findall(rb"^:(-?\d+)\r$", reply, re.M)])
                    self.n_forged += 1
                is_last = self.last is not None and self.last(words)
                peer.sendall(reply)
                if is_last:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    commands.close()
                    peer.close()
                    self.on_reset()
                    return

    def close(self):
        self._listener.close()
        for peer in self._sockets:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)


def integers(numbers):
    """A reply of these."""
    return b"*%d\r\n" % len(numbers) + b"".join(b":%d\r\n" % number for number in numbers)
