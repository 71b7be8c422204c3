"""A client of ratelimitd in twenty lines: nothing but a socket and msgpack."""
import os
import socket
import sys

import msgpack


class RateLimit:
    def __init__(self, path=os.environ.get("RATELIMIT_SOCKET", "/run/ratelimitd/ratelimitd.sock"), timeout_s=1.0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout_s)  # also limits a connect to a stuck daemon
        self.socket.connect(path)
        self.answers = msgpack.Unpacker()

    def call(self, method, *params):
        self.socket.sendall(msgpack.packb([0, 0, method, params]))
        while True:
            for _, _, error, result in self.answers:
                if error:
                    raise RuntimeError(error)
                return result
            self.answers.feed(self.socket.recv(65536) or sys.exit("ratelimitd went away"))


if __name__ == "__main__":
    decision = RateLimit().call("check", sys.argv[1], sys.argv[2])
    if not decision["allowed"]:
        print(f"denied, retry in {decision['retry_after_ms']} ms")
    elif decision.get("delay_ms"):
        print(f"allowed, go ahead in {decision['delay_ms']} ms")
    else:
        print("allowed")
