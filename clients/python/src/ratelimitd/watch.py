"""What a client reports about itself: counters, the hook on_decision, at most one line in the log each 10 seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from .calls import Call, Held, Key, Policy
from .decision import Decision
from .errors import Refused, Unavailable

OnDecision = Callable[[Policy, Key, Decision], object]
Asked = Sequence[tuple[Policy, Key]]

LOG_EVERY_S = 10.0
log = logging.getLogger("ratelimitd")


def quietly(hook: Callable[..., object], *args: Any) -> None:
    """A hook that fails must not fail the call that it is about."""
    try:
        hook(*args)
    except Exception:
        log.exception("a hook of the rate limiter failed")


class Pace:
    """At most one line in ten seconds."""

    def __init__(self) -> None:
        self._next_line_at = 0.0

    def is_time(self) -> bool:
        now = time.monotonic()
        if now < self._next_line_at:
            return False
        self._next_line_at = now + LOG_EVERY_S
        return True


# True while a limit at an endpoint asks: it writes its own line, which says what becomes of the request
is_for_limits: ContextVar[bool] = ContextVar("is_for_limits", default=False)


def warn_of_count_denied(wanted: Iterable[str], known: list[dict[str, Any]]) -> None:
    """Remembered denials do not reach the counters of these policies, so they count less than they are to."""
    wanted = set(wanted)
    found = [
        policy["name"]
        for policy in known
        if policy.get("name") in wanted and any(limit.get("count_denied") for limit in policy.get("limits", ()))
    ]
    if found:
        log.warning("remember_denials is not for policies with count_denied: %s", ", ".join(found))


class Watch:
    def __init__(self, on_decision: OnDecision | None) -> None:
        self.renew_lock()
        self._on_decision = on_decision
        self._counts: dict[str, int] = {
            "checks": 0,
            "allowed": 0,
            "denied": 0,
            "remembered": 0,
            "refused": 0,
            "unavailable": 0,
        }
        self._n_repeated = 0  # denials of single checks that the client remembered; not in _counts
        self._unlogged: dict[str, int] = {}
        self._pace = Pace()

    def renew_lock(self) -> None:
        """In the child of a fork: the lock may be held by a thread that is gone."""
        self._lock = threading.Lock()

    def counters(self) -> dict[str, int]:
        """Since the client began: checks, allowed, denied, remembered (of these, those that the client repeated by
        itself), refused, unavailable, and unavailable_KIND by kind.
        """
        with self._lock:
            counts = dict(self._counts)
            for name in ("checks", "denied", "remembered"):
                counts[name] += self._n_repeated
            return counts

    def answered(self, call: Call[Any], result: Any) -> None:
        if not call.asked:
            return
        if isinstance(result, list):
            self._decided(call.asked, result)
        else:
            decision = result.decision if isinstance(result, Held) else result
            self._decided(call.asked, decision.members or (decision,))

    def repeated(self, asked: Asked, decision: Decision) -> None:
        """A denial that the client remembers. That of a single check is cheap, because floods are made of them."""
        if decision.members or self._on_decision is not None:
            with self._lock:
                self._counts["remembered"] += 1
            self._decided(asked, decision.members or (decision,))
        else:
            with self._lock:
                self._n_repeated += 1

    def _decided(self, asked: Asked, decisions: Sequence[Decision]) -> None:
        n_allowed = sum(decision.allowed for decision in decisions)
        with self._lock:
            self._counts["checks"] += len(decisions)
            self._counts["allowed"] += n_allowed
            self._counts["denied"] += len(decisions) - n_allowed
        if self._on_decision is not None:
            for (policy, key), decision in zip(asked, decisions, strict=True):
                quietly(self._on_decision, policy, key, decision)

    def failed(self, call: Call[Any], error: Unavailable | Refused) -> None:
        if isinstance(error, Refused):
            with self._lock:
                self._counts["checks"] += len(call.asked)
                self._counts["refused"] += 1
            return

        line = ""
        with self._lock:
            kind = f"unavailable_{error.kind}"
            self._counts["checks"] += len(call.asked)
            self._counts["unavailable"] += 1
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._unlogged[error.kind] = self._unlogged.get(error.kind, 0) + 1
            if not is_for_limits.get() and self._pace.is_time():
                line = ", ".join(f"{kind} {count}" for kind, count in sorted(self._unlogged.items()))
                self._unlogged = {}
        if line:
            log.warning(
                "no decision from the rate limiter since the last such line: %s; %s: %s", line, call.method, error
            )
