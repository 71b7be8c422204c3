"""played_daemon.py: a test plays the daemon for one connection of ratelimitctl."""

import contextlib
import shutil
import socket
import threading

import msgpack

from harness import PATIENCE_S, short_directory


class PlayedDaemon:
    """A subclass defines answer(msgid, method, params): the result, or the text of an error."""

    def __init__(self):
        self.directory = short_directory()
        self.path = str(self.directory / "rl.sock")
        self.asked = []  # the requests that the subclass records
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.has_left = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        self.peer, _ = self.listener.accept()
        with contextlib.suppress(ConnectionError):  # an interrupted client leaves its answer unread
            unpacker = msgpack.Unpacker()
            while data := self.peer.recv(65536):
                unpacker.feed(data)
                for _, msgid, method, params in unpacker:
                    result = self.answer(msgid, method, params)
                    error = result if isinstance(result, str) else None
                    self.peer.sendall(msgpack.packb([1, msgid, error, None if error else result]))
        self.peer.close()
        self.has_left.set()

    def close(self):
        self.listener.close()
        self.thread.join(PATIENCE_S)
        shutil.rmtree(self.directory)
