"""counted.py: policies with `lease` whose units do not come back in time, and clients that count what they are admitted, for
chaos.py: all clients of all daemons together never get more than the limit."""

import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))

from harness import Client, RpcError  # noqa: E402

LIMIT = 3000
SETTINGS = {
    "counted_aligned": f"algorithm: fixed_window, limit: {LIMIT}, window: 30d",
    "counted_first": f"algorithm: fixed_window, start: first_hit, limit: {LIMIT}, window: 30d",
    "counted_year": f"algorithm: calendar_window, limit: {LIMIT}, window: year",
    "counted_counter": f"algorithm: sliding_counter, limit: {LIMIT}, window: 30d",
    "counted_bucket": f"algorithm: token_bucket, limit: 1, window: 1d, burst: {LIMIT}",
    "counted_gcra": f"algorithm: gcra, limit: 1, window: 1d, burst: {LIMIT}",
}
CONNECTIONS = 3  # to each daemon
POLICIES = "".join(f"  {name}: {{{settings}, lease: 1s, deadline: 2s, on_failure: deny}}\n" for name, settings in SETTINGS.items())
EXCUSED = {"OVERLOADED", "SHUTTING_DOWN"}


class Counter(threading.Thread):
    """Checks of one key, in one daemon after another connection to it."""

    def __init__(self, place, patience_s, key, until, seed):
        super().__init__()
        self.place, self.patience_s, self.key, self.until, self.random = place, patience_s, key, until, random.Random(seed)
        self.admitted, self.n_by_lease, self.wrong = dict.fromkeys(SETTINGS, 0), 0, None

    def ask(self, client):
        policy = self.random.choice(tuple(SETTINGS))
        answers = client.call("check_many", [[policy, self.key]] * self.random.randint(1, 40))
        self.admitted[policy] += sum(answer["allowed"] for answer in answers)
        self.n_by_lease += sum(answer["source"] == "lease" for answer in answers)

    def run(self):
        while time.monotonic() < self.until and self.wrong is None:
            try:
                with Client(self.place.daemon.socket, timeout_s=self.patience_s) as client:
                    while time.monotonic() < self.until:
                        self.ask(client)
            except (OSError, EOFError):  # it is killed, or stops
                time.sleep(0.02)
            except RpcError as error:
                if error.code not in EXCUSED:
                    self.wrong = error


def admitted(counters):
    """Units of each policy."""
    return {policy: sum(counter.admitted[policy] for counter in counters) for policy in SETTINGS}
