"""methods.py: every method at once on one daemon, for soak.py: load that takes slots and reservations and gives some back.

    methods.py SOCKET SECONDS SEED

Connections come and go; each sends batches of requests at random and reads their answers, or leaves in the middle. Slots
are released, left to the end of their connection, or released twice; reservations are settled, cancelled, both, or
forgotten; both are abandoned before and after their answer. Every request must get one answer, and only the errors of a failing store are allowed. The output is one
line of JSON: the number of answers of each source and error.
"""

import json
import random
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))

from harness import Client  # noqa: E402

CONNECTIONS = 4
EXCUSED = {"STORE_UNAVAILABLE", "OVERLOADED"}
N_SLOTS, N_KEYS = 20, 5  # of the policy that release and the end of connections must leave free
POLICIES = f"""
  slots:  {{algorithm: concurrency, limit: {N_SLOTS}, slot_ttl: 2s}}
  job:
    limits:
      - {{name: rate, algorithm: token_bucket, limit: 1000, window: 1s}}
      - {{name: at-once, algorithm: concurrency, limit: 20, slot_ttl: 2s}}
  tokens: {{algorithm: token_bucket, limit: 100000, window: 1m, debt: true}}
  several:
    limits:
      - {{name: log, algorithm: sliding_log, limit: 500, window: 10s}}
      - {{name: counter, algorithm: sliding_counter, limit: 10000, window: 10s}}
      - {{name: hour, algorithm: calendar_window, limit: 1000000, window: hour, timezone: UTC}}
  tried:
    algorithm: token_bucket
    limit: 1000
    window: 1s
    candidate: [{{name: less, algorithm: fixed_window, limit: 500, window: 1s}}]
    overrides: [{{match: "k1*", limit: 10}}]
"""
UNITS = ["open", "tight", "tokens", "several", "tried"]


class Worker(threading.Thread):
    """One connection after another, each with its slots and reservations."""

    def __init__(self, path, until, seed):
        super().__init__()
        self.path, self.until, self.random = path, until, random.Random(seed)
        self.counts, self.wrong = {}, None

    def request(self):
        pick, key = self.random.choice, f"k{int(1000 * self.random.random() ** 4)}"  # one check in six is of k0
        cost, ident = self.random.randrange(6), f"r{self.random.randrange(5000)}"
        made = {
            "check": lambda: [pick(UNITS), key, cost],
            "request_id": lambda: ["check", pick(UNITS), key, {"cost": cost, "request_id": ident}],
            "at_most": lambda: ["check", pick(UNITS), key, {"at_most": cost + 1}],
            "check_all": lambda: [[[policy, key, cost] for policy in self.random.sample(UNITS, cost % 5 + 1)],
                                  {"request_id": ident} if cost > 2 else {}],
            "refund": lambda: [pick(UNITS), key, cost + 1],
            "acquire": lambda: [pick(["slots", "slots", "job"]), f"s{self.random.randrange(N_KEYS)}"],
            "reserve": lambda: [*pick([("tokens", key), ("several", key), ("job", key), ("slots", f"s{self.random.randrange(N_KEYS)}")]),
                                cost, {"ttl_ms": pick([1, 100, 1000])}],
            "release": lambda: [self.take(self.slots)],
            "settle": lambda: [self.take(self.reservations), cost],
            "cancel": lambda: [self.take(self.reservations)],
            "explain": lambda: [pick(UNITS), key, cost],
            "reset": lambda: [pick(UNITS), key],
        }
        name = pick([name for name in made if self.has_what(name)])
        params = made[name]()
        return params if name in ("request_id", "at_most") else [name, *params]

    def has_what(self, name):
        needed = {"release": self.slots, "settle": self.reservations, "cancel": self.reservations}
        return name not in needed or needed[name]

    def take(self, held):
        """One of them; one time in four it stays in the list, to be given back twice."""
        at = self.random.randrange(len(held))
        return held[at] if self.random.random() < 0.25 else held.pop(at)

    def read(self, client):
        _, msgid, error, result = client.recv()
        asked = self.asked.pop(msgid)  # a KeyError is an answer without a request
        code = error.partition(": ")[0] if error is not None else None
        if code is not None and code not in EXCUSED and not (code == "ABANDONED" and msgid in self.abandoned):
            raise AssertionError(f"{asked}: {error}")
        name = code or result.get("source", asked[0])
        self.counts[name] = self.counts.get(name, 0) + 1
        for field, held in (("slot", self.slots), ("reservation", self.reservations)):
            if code is None and field in result:
                held.append(result[field])
                del held[:-100]

    def maybe_abandon(self, client, msgids):
        for msgid in msgids:
            if self.random.random() < 0.1:
                self.abandoned.add(msgid)
                client.notify("abandon", msgid)

    def leave(self, client):
        how = self.random.randrange(3)
        if how == 0:
            client.half_close()
            while self.asked:
                self.read(client)
        elif how == 1:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        client.close()

    def visit(self):
        self.slots, self.reservations, self.asked, self.abandoned = [], [], {}, set()
        client = Client(self.path, timeout_s=30)
        for _ in range(self.random.randrange(1, 60)):
            for _ in range(self.random.choice([1, 8, 32])):
                request = self.request()
                self.asked[client.send(*request)] = request
            msgids = [msgid for msgid, request in self.asked.items() if request[0] in ("acquire", "reserve")]
            self.maybe_abandon(client, msgids)
            if self.random.random() < 0.05:
                break
            while self.asked:
                self.read(client)
            self.maybe_abandon(client, msgids)
        self.leave(client)

    def run(self):
        try:
            while time.monotonic() < self.until:
                self.visit()
        except Exception as wrong:  # any error is reported after the threads have ended
            self.wrong = wrong


def main():
    path, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    workers = [Worker(path, time.monotonic() + seconds, CONNECTIONS * seed + i) for i in range(CONNECTIONS)]
    counts = {}
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        for name, n in worker.counts.items():
            counts[name] = counts.get(name, 0) + n
    print(json.dumps(counts))
    wrong = [worker.wrong for worker in workers if worker.wrong is not None]
    for one in wrong:
        print(f"methods: {one!r}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
