"""two_builds.py: this build and another one, on one Redis under load: together they admit as much as one would.

    ./dev soak upgrade OTHER_BUILD [SECONDS]     OTHER_BUILD: a folder with bin/ratelimitd, such as an older build/release

Connections to both daemons check, reserve, settle, cancel, refund and take slots on the same keys at random, with every
algorithm, some with a request id that both daemons get. No units come back with time (the windows are long), so the
script accounts for every unit at the end of each round of keys: the admitted units minus the refunded ones equal the used units
of both daemons, and never exceed the limit. The number of held slots never exceeds the limit either.

Every second round asks policies of each algorithm that can lease, with `lease` in this build alone: the other one, which may know
no leases, charges the same keys one by one. A bucket's leased units are lost where the other one was charged since, all others
must be accounted for.
"""

import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))

from harness import Client, Ratelimitd, Redis, eventually  # noqa: E402

LIMIT, SLOTS, CONNECTIONS, ROUND_S, KEYS = 60, 4, 3, 5.0, 3
LEASED_LIMIT, LEASE = 3000, "1s"
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
LEASED = {
    "leased_fixed": f"algorithm: fixed_window, limit: {LEASED_LIMIT}, window: 30d, start: first_hit",
    "leased_aligned": f"algorithm: fixed_window, limit: {LEASED_LIMIT}, window: 30d",
    "leased_counter": f"algorithm: sliding_counter, limit: {LEASED_LIMIT}, window: 30d",
    "leased_year": f"algorithm: calendar_window, limit: {LEASED_LIMIT}, window: year",
    "leased_bucket": f"algorithm: token_bucket, limit: 1, window: 1d, burst: {LEASED_LIMIT}",
    "leased_gcra": f"algorithm: gcra, limit: 1, window: 1d, burst: {LEASED_LIMIT}",
}
LEASED_BUCKETS = ("leased_bucket", "leased_gcra")


def config(lease):
    return CONFIG + "".join(f"  {name}: {{{settings}{lease}}}\n" for name, settings in LEASED.items())


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


def ask_leased(rng, here, there, account, policy, key, mine):
    """One random request of a key that may be leased. `mine` is what this connection has used of each key: nobody gives back more
    than was used, and of a bucket nothing, for both may free units that are leased."""
    what, used = rng.random(), 0
    if what < 0.8:
        answers = here.call("check_many", [[policy, key]] * rng.randint(1, 40))
        used = sum(answer["allowed"] for answer in answers)
    elif what < 0.9:
        units = rng.randint(2, 9)
        if what < 0.85:
            used = here.check(policy, key, {"at_most": units}).get("granted", 0)
        else:
            used = units if here.check(policy, key, units)["allowed"] else 0
    elif policy in LEASED_BUCKETS:
        here.call("peek", policy, key)
    elif what < 0.95:
        units = rng.randint(1, 20)
        reserved = here.call("reserve", policy, key, units)
        if reserved["allowed"]:
            used = units - there.call("settle", reserved["reservation"], rng.randint(0, units))["refunded"]
    else:
        used = -here.call("refund", policy, key, rng.randint(1, mine[policy, key]))["refunded"] if mine.get((policy, key)) else 0
    mine[policy, key] = mine.get((policy, key), 0) + used
    account.charge(policy, key, used)


def work(seed, daemons, account, keys, until, is_leased):
    rng, mine = random.Random(seed), {}
    clients = [Client(daemon.socket, timeout_s=30) for daemon in daemons]
    if seed % 2:
        clients.reverse()
    try:
        while time.monotonic() < until and not account.faults:
            if is_leased:
                ask_leased(rng, *clients, account, rng.choice(tuple(LEASED)), rng.choice(keys), mine)
            else:
                ask(rng, *clients, account, rng.choice(POLICIES), rng.choice(keys))
    except Exception as error:  # noqa: BLE001: whatever it is, the round has failed
        account.faults.append(repr(error))
    for client in clients:
        client.close()


def check_account(account, daemons):
    clients = [Client(daemon.socket) for daemon in daemons]
    lost = 0  # of buckets
    for (policy, key), used in account.used.items():
        limit = LEASED_LIMIT if policy in LEASED else LIMIT
        left = [client.call("peek", policy, key)["remaining"] for client in clients]  # the first one gives leased units back
        if policy in LEASED_BUCKETS:
            lost += limit - used - left[1]
            is_wrong = left[1] > limit - used
        else:
            is_wrong = left != [limit - used] * 2
        if is_wrong or used > limit:
            account.faults.append(f"{policy} {key}: {used} of {limit} units were admitted, but the daemons report {left} remaining")
    if account.most_held > SLOTS:
        account.faults.append(f"{account.most_held} slots were held at once")
    for client in clients:
        client.close()
    return lost


def check_leases(account, daemon, lost):
    """What is missing of the buckets is what the leasing daemon has lost, once it holds nothing."""
    with daemon.client() as client:
        def stats():
            return client.call("stats")

        if stats()["decided_by_lease"] == 0:
            account.faults.append("no check was decided by a lease")
        try:
            eventually(lambda: stats()["leases_lost"] == lost, f"{lost} units are lost")
        except AssertionError:
            account.faults.append(f"{lost} units are missing of the buckets, but leases have lost {stats()['leases_lost']}")


def run_round(number, daemons, is_leased, until):
    """The account of new keys, and how many units leases have lost of them."""
    account, keys = Account(), [f"{number}-{i}" for i in range(KEYS)]
    threads = [threading.Thread(target=work, args=(number * 100 + i, daemons, account, keys, until, is_leased))
               for i in range(2 * CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return account, check_account(account, daemons)


def main(other, seconds):
    redis = Redis()
    here = Ratelimitd(config(f", lease: {LEASE}"), redis=redis)
    there = Ratelimitd(config(""), redis=redis, build=Path(other))
    daemons, end, n_rounds, n_asked, n_lost, faults = (here, there), time.monotonic() + seconds, 0, 0, 0, []
    while (time.monotonic() < end or n_rounds < 2) and not faults:
        is_leased = n_rounds % 2 == 1
        account, lost = run_round(n_rounds, daemons, is_leased, time.monotonic() + min(ROUND_S, seconds / 2))
        n_lost += lost
        if is_leased and not account.faults:
            check_leases(account, here, n_lost)
        n_rounds, n_asked, faults = n_rounds + 1, n_asked + account.n_asked, account.faults
    with here.client() as client:
        stats = client.call("stats")
    for process in (there, here, redis):
        process.close()
    for fault in faults:
        print(f"two_builds: {fault}")
    print(f"two_builds: {n_asked} charges in {n_rounds} rounds, {stats['leases_taken']} leases of {stats['leases_units']} units, "
          f"{'a difference' if faults else 'all accounted for'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 600))
