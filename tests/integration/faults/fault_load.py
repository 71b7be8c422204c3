"""fault_load.py: checks at a steady rate while a fault is on, and what must hold for each of them, whatever the fault.

The promise: every check is answered once, by its deadline, by the policy's choice, with its source. When Redis is back,
decisions are exact again. Only the deadline is a matter of time; MARGIN_S is generous, because on a busy machine a test, too,
may not run for that long.
"""

import os
import re
import selectors
import socket
import threading
import time
from dataclasses import dataclass

import msgpack

from harness import PATIENCE_S, RpcError, eventually

DEADLINE_S = 0.1
MARGIN_S = 1.0
TICK_S = 0.02
LIMIT = 1_000_000
EXACT_LIMIT = 50
ATTEMPTS = 2  # to connect, until Redis is found again: one may be under way when it returns, none waits longer than half a second
CHOICES = ("allow", "deny", "error", "local")
POLICIES = f"""
defaults: {{deadline: DEADLINE}}
policies:
  allow: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d, on_failure: allow}}
  deny: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d, on_failure: deny}}
  error: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d, on_failure: error}}
  local: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d, on_failure: local}}
  exact: {{algorithm: fixed_window, limit: {EXACT_LIMIT}, window: 1d, on_failure: error}}
"""
BY_REDIS = ("redis", "deny_cache")
REASONS = ("down", "deadline", "breaker", "overload", "store_error")
UNCHARGED = ("breaker", "overload")  # these were never sent
# A machine that is busy with other things is a fault of its own: these may come in any row.
ALWAYS = ("redis", "deadline", "breaker", "down")
REASON_OF_ERROR = (("lost|away", "down"), ("in trouble", "breaker"), ("in time|too busy", "deadline"))


def policies(deadline=f"{DEADLINE_S * 1000:.0f}ms"):
    return POLICIES.replace("DEADLINE", deadline)


@dataclass(frozen=True)
class Answer:
    policy: str
    key: str
    sent_s: float
    took_s: float
    outcome: str  # "redis", or the reason of the failure answer
    allowed: bool


def judged(policy, error, result):
    """The outcome, and whether it was allowed; it fails if the answer is not what the policy chooses."""
    if error is not None:
        assert policy == "error" and error.startswith("STORE_UNAVAILABLE: "), (policy, error)
        return next((reason for text, reason in REASON_OF_ERROR if re.search(text, error)), "store_error"), False
    if result["source"] in BY_REDIS:
        return "redis", result["allowed"]
    assert result["source"] == policy and result["reason"] in REASONS, (policy, result)
    assert result["allowed"] == (policy != "deny"), (policy, result)
    return result["reason"], result["allowed"]


def remaining(client, policy, key):
    """Asked again where the machine was too busy: a peek has no deadline of its own."""
    answers = (answer_or_none(client, client.send("peek", policy, key)) for _ in range(1000))
    return eventually(lambda: next(answers), "a peek is answered")["remaining"]


class Load:
    """Every TICK_S each connection sends one check of each policy, whether or not answers come."""

    def __init__(self, daemon, n_connections=3, n_keys=1, late_s=DEADLINE_S + MARGIN_S, key="k"):
        self.daemon, self.n_keys, self.late_s, self.key = daemon, n_keys, late_s, key
        self.answers = []
        self.faults = []  # of the answers, in words
        self._waiting = {}
        self._next_id = 0
        self._stop = threading.Event()
        self._connections = [self._open() for _ in range(n_connections)]
        self._n_files = self._files()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _open(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.daemon.socket)
        return connection, msgpack.Unpacker(raw=False)

    def _files(self):
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    # ---- the thread ----

    def _send(self, connection):
        frames = []
        for policy in CHOICES:
            self._next_id += 1
            key = f"{self.key}{self._next_id % self.n_keys}"
            self._waiting[self._next_id] = policy, key, time.monotonic()
            frames.append(msgpack.packb([0, self._next_id, "check", [policy, key]]))
        connection.sendall(b"".join(frames))

    def _receive(self, selector, until):
        while (left := until - time.monotonic()) > 0:
            for event, _ in selector.select(left):
                connection, unpacker = event.data
                data = connection.recv(1 << 16)
                if not data:
                    raise EOFError("the daemon closed a connection of the load")
                unpacker.feed(data)
                for message in unpacker:
                    self._take(message, time.monotonic())

    def _take(self, message, now):
        _, msgid, error, result = message
        if msgid not in self._waiting:
            self.faults.append(f"answered twice, or never asked: {message}")
            return
        policy, key, sent_s = self._waiting.pop(msgid)
        try:
            outcome, allowed = judged(policy, error, result)
            self.answers.append(Answer(policy, key, sent_s, now - sent_s, outcome, allowed))
        except AssertionError as fault:
            self.faults.append(f"not what the policy says: {fault}")

    def _run(self):
        try:
            with selectors.DefaultSelector() as selector:
                for one in self._connections:
                    selector.register(one[0], selectors.EVENT_READ, one)
                while not self._stop.is_set():
                    for connection, _ in self._connections:
                        self._send(connection)
                    self._receive(selector, time.monotonic() + TICK_S)

                until = time.monotonic() + PATIENCE_S
                while self._waiting and time.monotonic() < until:
                    self._receive(selector, time.monotonic() + TICK_S)
                self._receive(selector, time.monotonic() + TICK_S)  # what nobody asked for
        except (OSError, EOFError) as fault:
            self.faults.append(repr(fault))

    # ---- for the test ----

    def outcomes(self, since_s=0.0):
        return {answer.outcome for answer in list(self.answers) if answer.sent_s >= since_s}

    def sees(self, *wanted):
        """Wait until all of them have come as outcomes of checks that are sent from now on."""
        now = time.monotonic()
        for outcome in wanted:
            eventually(lambda: outcome in self.outcomes(now) or self.faults, f"answers by {outcome}: {self.outcomes(now)}")

    def lasts(self, seconds):
        """Wait until checks that are sent so much later are under way: the fault is to last."""
        until = time.monotonic() + seconds
        eventually(lambda: time.monotonic() > until, "the fault lasts", seconds + PATIENCE_S)

    def abandon(self):
        """Stop it, whatever it has seen."""
        self._stop.set()
        for connection, _ in self._connections:
            connection.close()

    def end(self):
        """Stop sending, and require that every check was answered once, in time, as its policy says."""
        self._stop.set()
        self._thread.join(PATIENCE_S * 2)
        for connection, _ in self._connections:
            connection.close()
        assert not self.faults, self.faults[:5]
        assert not self._waiting, f"{len(self._waiting)} checks without an answer, as {next(iter(self._waiting.values()))}"
        late = max((answer.took_s for answer in self.answers), default=0)
        assert late <= self.late_s, f"an answer came {late:.3f} s after its check"

    def seen(self, must=(), may=()):
        """These outcomes came, and no others."""
        outcomes = self.outcomes()
        assert set(must) <= outcomes <= {*must, *may, *ALWAYS}, outcomes

    def charges(self, client):
        """Of each policy and key: (policy, key, what Redis allowed, what may have reached it at most, what is charged)."""
        for policy in CHOICES:
            for key in {answer.key for answer in self.answers if answer.policy == policy}:
                mine = [answer for answer in self.answers if (answer.policy, answer.key) == (policy, key)]
                least = sum(answer.outcome == "redis" and answer.allowed for answer in mine)
                most = least + sum(answer.outcome != "redis" and answer.outcome not in UNCHARGED for answer in mine)
                yield policy, key, least, most, LIMIT - remaining(client, policy, key)

    def charged_as_told(self, client):
        """What Redis allowed is charged, and not more than what may have reached it."""
        for policy, key, least, most, used in self.charges(client):
            assert least <= used <= most, f"{policy} {key}: {least} allowed by Redis, at most {most}, {used} are charged"

    def leaves_nothing(self, client):
        eventually(lambda: client.call("stats")["inflight"] == 0, "no check is left in the daemon")
        eventually(lambda: self._files() <= self._n_files + 2, "its descriptors are closed")


def decides_again(client, attempts_before=None, patience_s=2 * PATIENCE_S):
    """Wait for the return. attempts_before: of connecting, when Redis was back; it then takes ATTEMPTS more at most."""
    def is_back():
        stats = client.call("stats")
        return stats if stats["redis_up"] == stats["redis_nodes"] > 0 and stats["breaker_open"] == 0 else None

    stats = eventually(is_back, "Redis decides again", patience_s)
    if attempts_before is not None:
        assert stats["redis_connects"] - attempts_before <= ATTEMPTS, stats


def exact_again(client):
    """Twice as many checks as the limit of a fresh key: Redis admits exactly the limit. Where the machine was too busy for an
    answer of Redis, once more with another key."""
    keys = iter(range(1000))

    def asked():
        key = f"again{next(keys)}"
        sent = [client.send("check", "exact", key, {"deadline_ms": 10000}) for _ in range(2 * EXACT_LIMIT)]
        answers = [answer_or_none(client, one) for one in sent]
        return None if None in answers else answers

    answers = eventually(asked, "Redis decides all of a hundred checks")
    assert {answer["source"] for answer in answers} <= {*BY_REDIS}
    assert sum(answer["allowed"] for answer in answers) == EXACT_LIMIT


def answer_or_none(client, msgid):
    """None: the store did not decide."""
    try:
        return client.answer(msgid)
    except RpcError as error:
        assert error.code == "STORE_UNAVAILABLE", error
        return None
