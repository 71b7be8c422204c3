"""Decision: the daemon's answer, and how it is read from a map that is not checked yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

NO_LIMIT = 2**53 - 1  # `limit` and `remaining` of a policy that is unlimited


class Malformed(Exception):
    """An answer that breaks the protocol. The clients raise Unavailable("protocol") for it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """May the key do this now? Durations end in _ms (whole milliseconds, from now); the properties give seconds.

    A decision is true when it is allowed: `if client.check("login", user): ...`.
    """

    allowed: bool
    limit: int = 0  # the capacity: the policy's limit, or the burst of a bucket
    remaining: int = 0  # units that could be charged now
    retry_after_ms: int = 0  # 0 when allowed; -1: waiting does not help
    reset_after_ms: int = 0  # until everything is available again, without further charges
    delay_ms: int = 0  # allowed: wait this long before going ahead (leaky_bucket with max_wait)
    granted: int = 0  # units charged
    bound_by: str | None = None  # of several limits, the one that denied
    source: str = ""  # "redis", "memory", "deny_cache", "unlimited"; the failure answers "allow", "deny", "local"
    reason: str | None = None  # of a failure answer: "down", "deadline", ...; of a denial by a pause: "penalty"
    policy_version: int = 0  # fingerprint of the policy's settings
    shadow_denied: bool = False  # allowed because the policy is in shadow; it would have denied
    near: bool = False  # more than the policy's warn_at is used
    of: str | None = None  # the limit that `limit` and `remaining` speak of; None: an older daemon, or no limit at all
    quota: int | None = None  # its `limit` setting, for this key
    window_ms: int | None = None  # its window; 0 for concurrency
    of_reset_ms: int | None = None  # until this limit alone is unused again
    refunded: int = 0  # of refund, settle and cancel: units given back
    charged: int = 0  # of settle: units charged beyond the estimate
    ended: bool = False  # of settle and cancel: the reservation had ended before
    members: tuple[Decision, ...] = ()  # of check_all: each member's own decision, in order

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same cost is allowed; 0.0 when allowed; None: waiting does not help."""
        return None if self.retry_after_ms < 0 else self.retry_after_ms / 1000

    @property
    def reset_after(self) -> float:
        return self.reset_after_ms / 1000

    @property
    def delay(self) -> float:
        return self.delay_ms / 1000

    @property
    def is_counted(self) -> bool:
        """Do the figures come from a counter? Not those of failure answers, of shadow denials and of no limit at
        all.
        """
        return self.source not in ("allow", "deny", "unlimited") and not self.shadow_denied


_TYPES: dict[str, type] = {"int": int, "bool": bool, "str": str, "int | None": int, "str | None": str}
FIELDS: dict[str, type] = {field.name: _TYPES[str(field.type)] for field in fields(Decision) if field.name != "members"}


def read_decision(answer: Any, cost: int = 0, members: list[int] | None = None) -> Decision:
    """The decision in `answer`; of a check_all, whose `members` asked for these costs, with theirs.

    `cost` is what was asked for: a decision without `granted` granted that, or nothing when denied. Fields
    that are not known are ignored.
    """
    if type(answer) is not dict:
        raise Malformed("a decision is not a map")
    known: dict[str, Any] = {}
    for name, value in answer.items():
        expected = FIELDS.get(name)
        if expected is None or value is None:
            continue
        if expected is str and type(value) is bytes:  # what echoes a key that came as bytes
            value = value.decode("utf-8", "surrogateescape")
        if type(value) is not expected:
            raise Malformed(f"{name} of a decision has the wrong type")
        if type(value) is int and not (-1 if name == "retry_after_ms" else 0) <= value <= NO_LIMIT:
            raise Malformed(f"{name} of a decision is {value}")
        known[name] = value

    if "allowed" not in known:
        raise Malformed("a decision without `allowed`")
    if "granted" not in known:
        known["granted"] = cost if known["allowed"] else 0
    if members is not None:
        known["members"] = tuple(read_decisions(answer.get("members"), members))
    return Decision(**known)


def read_decisions(answer: Any, costs: list[int]) -> list[Decision]:
    if type(answer) is not list or len(answer) != len(costs):
        raise Malformed(f"not {len(costs)} decisions")
    return [read_decision(one, cost) for one, cost in zip(answer, costs, strict=True)]


# ---- names of inline policies ----

GENERATED = re.compile(r"(inline-|id\+)[0-9a-f]{16}(?=/|$)")


def named(decision: Decision, name: str | None) -> Decision:
    """The decision about an inline policy, with its `name` in place of the one that the daemon generates."""
    return decision if name is None else _renamed(decision, lambda _: name)


def named_members(decision: Decision, names: Sequence[str | None]) -> Decision:
    """The same for a check_all whose members have these names."""
    if not any(names):
        return decision
    known: dict[str, str] = {}
    for member, name in zip(decision.members, names, strict=True):
        found = GENERATED.match(member.of or member.bound_by or "")
        if found and name:
            known[found[0]] = name
    members = tuple(named(member, name) for member, name in zip(decision.members, names, strict=True))
    return replace(_renamed(decision, lambda generated: known.get(generated, generated)), members=members)


def _renamed(decision: Decision, name_of: Callable[[str], str]) -> Decision:
    def rename(text: str | None) -> str | None:
        return text and GENERATED.sub(lambda found: name_of(found[0]), text, count=1)

    return replace(decision, of=rename(decision.of), bound_by=rename(decision.bound_by))
