"""two_builds.py: this build and another one, on one Redis under load: together they admit as much as one would.

    ./dev soak upgrade OTHER_BUILD [SECONDS]     OTHER_BUILD: a folder with bin/ratelimitd, such as an older build/release

Connections to both daemons check, reserve, settle, cancel, refund and take slots on the same keys at random, with every
algorithm, some with a request id that both daemons get. No units come back with time (the windows are long), so the
script accounts for every unit at the end of each round of keys: the admitted units minus the refunded ones equal the used units
of both daemons, and never exceed the limit. The number of held slots never exceeds the limit either.
"""

import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))

from harness import Client, Ratelimitd, Redis  # noqa: E402

LIMIT, SLOTS, CONNECTIONS, ROUND_S, KEYS = 60, 4, 3, 5.0, 3
CONFIG = f"""
defaults: {{deadline: 10s, idempotency_window: 10m, on_failure: error}}
policies:
  fixed: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d, start: first_hit}}
  aligned: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  bucket: {{algorithm: token_bucket, limit: 1, window: 30d, burst: {LIMIT}}}
  leaky: {{algorithm: leaky_bucket, limit: 1, window: 30d, burst: {LIMIT}}}
  log: {{algorithm: sliding_log, limit: {LIMIT}, window: 30d}}
  counter: {{algorithm: sliding_counter, limit: {LIMIT}, window: 30d}}
  year: {{algorithm: calendar_window, limit: {LIMIT}, window: year}}
  several:
    limits:
      - {{name: few, algorithm: fixed_window, limit: {LIMIT}, window: 30d, start: first_hit}}
      - {{name: many, algorithm: sliding_log, limit: {LIMIT * 3}, window: 30d}}
  slots: {{algorithm: concurrency, limit: {SLOTS}, slot_ttl: 1m}}
"""
POLICIES = ("fixed", "aligned", "bucket", "leaky", "log", "counter", "year", "several")


class Account:
    """The units and slots of this round's keys, as all connections together know them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.used = {}  # (policy, key): units
        self.held = 0
        self.most_held = 0
        self.n_asked = 0
        self.faults = []

    def charge(self, policy, key, units):
        with self.lock:
            self.used[policy, key] = self.used.get((policy, key), 0) + units
            self.n_asked += 1

    def hold(self, more):
        with self.lock:
            self.held += more
            self.most_held = max(self.most_held, self.held)


def ask(rng, here, there, account, policy, key):
    """One random request to `here`; some requests need a second daemon, `there`."""
    what, units = rng.random(), rng.randint(1, 4)
    if what < 0.5:
        account.charge(policy, key, units if here.check(policy, key, units)["allowed"] else 0)
    elif what < 0.65:
        id = f"{rng.getrandbits(64):x}"
        answers = [client.check(policy, key, {"cost": units, "request_id": id}) for client in (here, there)]
        if answers[0]["allowed"] and answers[0] != answers[1]:
            account.faults.append(f"{policy} {key}: a request id got {answers}")
        account.charge(policy, key, units if any(answer["allowed"] for answer in answers) else 0)
    elif what < 0.85:
        reserved = here.call("reserve", policy, key, units)
        if not reserved["allowed"]:
            return
        actual = rng.randint(0, units)
        settled = there.call("settle", reserved["reservation"], actual)
        account.charge(policy, key, units - settled["refunded"])
    elif what < 0.95:
        account.charge(policy, key, -here.call("refund", policy, key, units)["refunded"])
    else:
        slot = here.call("acquire", "slots", "k")
        if slot["allowed"]:
            account.hold(1)
            time.sleep(rng.random() / 100)
            account.hold(-1)
            here.call("release", slot["slot"])


def work(seed, daemons, account, keys, until):
    rng = random.Random(seed)
    clients = [Client(daemon.socket, timeout_s=30) for daemon in daemons]
    if seed % 2:
        clients.reverse()
    try:
        while time.monotonic() < until and not account.faults:
            ask(rng, *clients, account, rng.choice(POLICIES), rng.choice(keys))
    except Exception as error:  # noqa: BLE001: whatever it is, the round has failed
        account.faults.append(repr(error))
    for client in clients:
        client.close()


def check_account(account, daemons):
    clients = [Client(daemon.socket) for daemon in daemons]
    for (policy, key), used in account.used.items():
        left = {client.call("peek", policy, key)["remaining"] for client in clients}
        if left != {LIMIT - used} or used > LIMIT:
            account.faults.append(f"{policy} {key}: {used} of {LIMIT} units were admitted, but the daemon reports {left} remaining")
    if account.most_held > SLOTS:
        account.faults.append(f"{account.most_held} slots were held at once")
    for client in clients:
        client.close()


def main(other, seconds):
    redis = Redis()
    here = Ratelimitd(CONFIG, redis=redis)
    there = Ratelimitd(CONFIG, redis=redis, build=Path(other))
    daemons, end, n_rounds, n_asked, faults = (here, there), time.monotonic() + seconds, 0, 0, []
    while time.monotonic() < end and not faults:
        account, keys = Account(), [f"{n_rounds}-{i}" for i in range(KEYS)]
        until = time.monotonic() + ROUND_S
        threads = [threading.Thread(target=work, args=(n_rounds * 100 + i, daemons, account, keys, until))
                   for i in range(2 * CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check_account(account, daemons)
        n_rounds, n_asked, faults = n_rounds + 1, n_asked + account.n_asked, account.faults
    for process in (there, here, redis):
        process.close()
    for fault in faults:
        print(f"two_builds: {fault}")
    print(f"two_builds: {n_asked} charges in {n_rounds} rounds, {'a difference' if faults else 'all accounted for'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 600))
