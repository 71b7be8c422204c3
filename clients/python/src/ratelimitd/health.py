"""Whether the daemon is worth asking: the breaker after timeouts, and the pause between attempts to connect.

Three timeouts in a row open the breaker: for one second every call fails at once, then one probe goes through, and its
answer closes the breaker. Only timeouts count: a daemon that is away, or that answers OVERLOADED, costs no time.

After a failed connection the next attempt waits 10 ms, doubling up to 250 ms, with jitter; calls meanwhile fail at
once. Any answer sets it back.
"""

from __future__ import annotations

import random
import threading
import time

from .errors import RateLimitError, Unavailable

TIMEOUTS_TO_OPEN = 3
OPEN_S = 1.0
BACKOFF_MIN_S = 0.010
BACKOFF_MAX_S = 0.250


class Health:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_timeouts = 0
        self._open_until = 0.0
        self._is_probing = False
        self._backoff_s = BACKOFF_MIN_S
        self._connect_at = 0.0

    def begin(self) -> bool:
        """Before a call. True: the call is the probe, and its caller must pass that to `end`."""
        if self._n_timeouts < TIMEOUTS_TO_OPEN:
            return False
        with self._lock:
            if self._n_timeouts < TIMEOUTS_TO_OPEN:
                return False
            if self._is_probing or time.monotonic() < self._open_until:
                raise Unavailable("breaker", "not asked, because the last calls timed out")
            self._is_probing = True
            return True

    def end(self, error: BaseException | None, is_probe: bool) -> None:
        """After a call, whatever came of it."""
        timed_out = isinstance(error, Unavailable) and error.kind == "timeout"
        answered = error is None or (isinstance(error, RateLimitError) and bool(getattr(error, "code", "")))
        if answered and not is_probe and self._n_timeouts == 0:
            return
        with self._lock:
            if is_probe:
                self._is_probing = False
            if timed_out:
                self._n_timeouts += 1
                self._open_until = time.monotonic() + OPEN_S
            elif answered:
                self._n_timeouts = 0

    def before_connect(self) -> None:
        if time.monotonic() < self._connect_at:
            raise Unavailable("unreachable", "the daemon could not be reached a moment ago")

    def connect_failed(self) -> None:
        """Also after a connection that ended without having answered anything."""
        with self._lock:
            now = time.monotonic()
            if now < self._connect_at:
                return
            self._connect_at = now + self._backoff_s * random.uniform(0.5, 1)
            self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)

    def connection_answered(self) -> None:
        if self._backoff_s != BACKOFF_MIN_S:
            with self._lock:
                self._backoff_s, self._connect_at = BACKOFF_MIN_S, 0.0
