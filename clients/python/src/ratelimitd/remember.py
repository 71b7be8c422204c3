"""Remembered denials: a client repeats a denial by itself for a short time, so that a flood does not reach the daemon.

Off by default (`remember_denials`). docs/clients.md of the project has the rules.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .calls import Check, Key, Policy
from .decision import Decision
from .watch import Asked, Watch

ENTRIES_MAX = 1024


class _Entry:
    __slots__ = ("asked", "began", "decision", "ends", "shown", "shown_at_ms")

    def __init__(self, asked: Asked, decision: Decision, lasts: float) -> None:
        self.asked = asked
        self.began = time.monotonic()
        self.ends = self.began + lasts
        self.decision = decision
        self.shown = decision
        self.shown_at_ms = -1  # for how many milliseconds the decision was shortened last


class Denials:
    def __init__(self, duration: float, watch: Watch) -> None:
        """`duration` in seconds; 0: nothing is remembered. `watch` is told of each denial that is repeated."""
        if not isinstance(duration, (int, float)) or isinstance(duration, bool) or not duration >= 0:
            raise ValueError(f"remember_denials is a number of seconds, at least 0, not {duration!r}")
        self.is_on = duration > 0
        self._duration = float(duration)
        self._watch = watch
        self._entries: dict[Hashable, _Entry] = {}  # the oldest one first
        self.renew_lock()

    def renew_lock(self) -> None:
        """In the child of a fork: the lock may be held by a thread that is gone."""
        self._lock = threading.Lock()

    def same_check(
        self, policy: Policy, key: Key, cost: int | None, max_wait: float | None, *, is_own: bool
    ) -> Hashable | None:
        """What equal checks are known by; None: they are not remembered. `is_own`: this one is like no other."""
        if not self.is_on or is_own:
            return None
        return (policy if type(policy) is str else frozen(policy), key, cost, max_wait)

    def same_check_all(self, checks: Sequence[Check], *, is_own: bool) -> Hashable | None:
        """As same_check."""
        if not self.is_on or is_own:
            return None
        return tuple((frozen(one[0]), one[1], *(one[2:] or (1,))) for one in checks)

    def find(self, same: Hashable | None) -> Decision | None:
        """The denial of the same check, if it is young enough."""
        entry = self._entries.get(same)
        if entry is None:
            return None
        now = time.monotonic()
        if now >= entry.ends:
            with self._lock:
                self._entries.pop(same, None)
            return None
        passed_ms = int((now - entry.began) * 1000)
        if entry.shown_at_ms != passed_ms:
            entry.shown, entry.shown_at_ms = _repeated(entry.decision, passed_ms), passed_ms
        shown = entry.shown
        self._watch.repeated(entry.asked, shown)
        return shown

    def put(self, same: Hashable | None, asked: Asked, decision: Decision) -> None:
        """Remember the decision if it is a denial, but not that of a store that failed."""
        if same is None or decision.allowed or decision.source == "deny":
            return
        wait_ms = decision.retry_after_ms
        lasts = self._duration if wait_ms < 0 else min(self._duration, wait_ms / 1000)
        with self._lock:
            self._entries.pop(same, None)
            if len(self._entries) >= ENTRIES_MAX:
                del self._entries[next(iter(self._entries))]
            self._entries[same] = _Entry(asked, decision, lasts)

    def forget(self, policy: Policy, key: Key) -> None:
        """Every denial with this policy, or one of its limits, and this key."""
        with self._lock:
            for same, entry in list(self._entries.items()):
                if any(key == own_key and _is_of(policy, own) for own, own_key in entry.asked):
                    del self._entries[same]


def _repeated(decision: Decision, passed_ms: int) -> Decision:
    wait_ms, reset_ms = decision.retry_after_ms, decision.of_reset_ms
    return replace(
        decision,
        source=decision.source if decision.allowed else "deny_cache",
        retry_after_ms=max(1, wait_ms - passed_ms) if wait_ms > 0 else wait_ms,
        reset_after_ms=max(0, decision.reset_after_ms - passed_ms),
        of_reset_ms=None if reset_ms is None else max(0, reset_ms - passed_ms),
        members=tuple(_repeated(member, passed_ms) for member in decision.members),
    )


def frozen(policy: Policy) -> Hashable:
    """Equal settings are equal; `name` is not one of them."""
    if isinstance(policy, str):
        return policy
    settings: Mapping[str, Any] = {name: value for name, value in policy.items() if name != "name"}
    return json.dumps(settings, sort_keys=True, default=repr)


def _is_of(named: Policy, policy: Policy) -> bool:
    """Does `named`, which may be `policy/limit`, or the name of an inline policy, mean this policy?"""
    if isinstance(named, str):
        whole = named.partition("/")[0]
        return whole == (policy if isinstance(policy, str) else policy.get("name"))
    return frozen(named) == frozen(policy)
