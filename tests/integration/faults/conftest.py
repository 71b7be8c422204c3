"""conftest.py: a daemon under load for one fault, and what must hold at its end (fault_load.py)."""

import contextlib

import pytest

from fault_load import DEADLINE_S, MARGIN_S, Load, decides_again, exact_again, policies
from fault_matrix import ROWS


class Trial:
    """One fault: the daemon, a client besides the load, and the load."""

    def __init__(self, daemon, client, load):
        self.daemon, self.client, self.load = daemon, client, load
        self.attempts_before = None
        self.sees, self.lasts = load.sees, load.lasts

    def stat(self, name):
        return self.client.call("stats")[name]

    def is_over(self):
        """The fault is: from now on the attempts to connect are counted."""
        self.attempts_before = self.stat("redis_connects")


@pytest.fixture
def under_load(request, ratelimitd, connect):
    """with under_load(redis, ...) as trial: a fault, and its end. On the way out everything is required that the page promises.

    address     in place of the server's: a proxy's
    deadline_s  long, where a row has no failure answer even on a busy machine
    keeps       Redis has kept its counters
    late_s      how much later answers may come than the deadline and its margin
    options, daemon    of store.redis, and of the daemon's process
    """
    row = ROWS[request.node.get_closest_marker("proves").args[0]]

    @contextlib.contextmanager
    def run(redis, address=None, deadline_s=DEADLINE_S, keeps=True, options=None, late_s=0, daemon=None, **of_load):
        options = {**({"addresses": f'["{address}"]'} if address else {}), **(options or {})}
        daemon = ratelimitd(policies(f"{deadline_s * 1000:.0f}ms"), redis=redis, redis_options=options, **(daemon or {}))
        client = connect(daemon, timeout_s=20)
        load = Load(daemon, late_s=deadline_s + MARGIN_S + late_s, **of_load)
        trial = Trial(daemon, client, load)
        try:
            yield trial
            decides_again(client, trial.attempts_before)
            load.sees("redis")
        except BaseException:
            load.abandon()
            raise
        load.end()
        load.seen(row.must, row.may)
        if keeps:
            load.charged_as_told(client)
        exact_again(client)
        load.leaves_nothing(client)

    return run
