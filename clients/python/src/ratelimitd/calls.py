"""What each method of the protocol sends, and how its answer is read: the one place for both clients.

A function per method takes the user's arguments (seconds, text) and gives a Call (milliseconds, bytes). A client sends
a Call and hands the result to its `read`.
"""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .decision import Decision, Malformed, named, named_members, read_decision, read_decisions
from .errors import Refused

T = TypeVar("T")

Policy = str | Mapping[str, Any]  # a policy's name, or the settings of an inline policy
Key = str | bytes
Check = Sequence[
    Any
]  # (policy, key), (policy, key, cost) or, in check_many, (policy, key, {"cost": n, "request_id": id})

KEY_BYTES_MAX = 512  # longer keys are shortened; the daemon refuses those above its own max_key
KEY_BYTES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    method: str
    params: list[Any]
    read: Callable[[Any], T]  # raises Malformed
    asked: tuple[tuple[Policy, Key], ...] = ()  # for on_decision
    undo: str = ""  # the method that takes back a yes which comes too late: "release" or "cancel"
    may_repeat: bool = False  # after a lost connection; it has a request_id, so it is charged once
    is_return: bool = False  # it gives something back: tried with the breaker open, and sent even when it is late

    @property
    def has_id(self) -> bool:
        """Is there an id of an inline policy? The call waits for the daemon's features then: without the id it would
        count elsewhere.
        """
        return any(not isinstance(policy, str) and "id" in policy for policy, _ in self.asked)

    def params_for(self, features: frozenset[str]) -> list[Any]:
        """The parameters for a daemon with these features: an older one does not know the name and the id of an inline
        policy.
        """
        unknown = LABELS - features
        return _without(self.params, unknown) if unknown else self.params


@dataclass(frozen=True, slots=True)
class Held:
    """The answer to acquire or reserve. `id` is "" where it was denied."""

    decision: Decision
    id: str


LABELS = frozenset(("name", "id"))  # settings of an inline policy that are features of the daemon
NAME = re.compile(r"(?!inline-)[A-Za-z0-9._-]{1,64}")


def name_of(policy: Policy) -> str | None:
    """The `name` of an inline policy. ValueError for one that cannot stand in answers."""
    if isinstance(policy, str) or "name" not in policy:
        return None
    name: Any = policy["name"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"name {name!r} of an inline policy: write 1 to 64 letters, digits, '.', '_' or '-'")
    return name


def _without(params: list[Any], labels: frozenset[str]) -> list[Any]:
    if not params:
        return params
    first, *rest = params
    if isinstance(first, list):  # the members of check_all and check_many
        return [[_without(member, labels) for member in first], *rest]
    if isinstance(first, Mapping) and labels & first.keys():
        return [{setting: value for setting, value in first.items() if setting not in labels}, *rest]
    return params


def bounded(key: Key) -> Key:
    """The key as it is sent: longer than 512 bytes, it is its first 64 bytes, `#` and the SHA-256 of all of it."""
    if not isinstance(key, (str, bytes)):
        raise TypeError(f"the key is {type(key).__name__}, not str or bytes")
    if len(key) <= KEY_BYTES_MAX // 4:
        return key
    data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
    if len(data) <= KEY_BYTES_MAX:
        return key
    return data[:KEY_BYTES_KEPT] + b"#" + hashlib.sha256(data).hexdigest().encode()


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds * 1000)


def _options(request_id: Key | None, resend: bool, **named: Any) -> dict[str, Any]:
    options = {name: value for name, value in named.items() if value is not None}
    if request_id is None and resend:
        request_id = uuid.uuid4().hex
    if request_id is not None:
        options["request_id"] = request_id
    return options


def check(
    policy: Policy,
    key: Key,
    cost: int = 1,
    *,
    at_most: int | None = None,
    max_wait: float | None = None,
    deadline: float | None = None,
    request_id: Key | None = None,
    resend: bool = False,
) -> Call[Decision]:
    options = _options(
        request_id, resend, at_most=at_most, max_wait_ms=_milliseconds(max_wait), deadline_ms=_milliseconds(deadline)
    )
    last: Any = cost
    name = name_of(policy)
    if options:
        last = options if at_most is not None else {"cost": cost, **options}
    return Call(
        "check",
        [policy, bounded(key), last],
        lambda answer: named(read_decision(answer, cost if at_most is None else at_most), name),
        asked=((policy, key),),
        may_repeat=resend,
    )


def _members(checks: Iterable[Check]) -> tuple[list[list[Any]], list[int], tuple[tuple[Policy, Key], ...]]:
    members, costs, asked = [], [], []
    for policy, key, *rest in checks:
        last = rest[0] if rest else 1
        members.append([policy, bounded(key), *rest])
        costs.append(last.get("cost", 1) if isinstance(last, Mapping) else last)
        asked.append((policy, key))
    return members, costs, tuple(asked)


def check_many(checks: Iterable[Check]) -> Call[list[Decision]]:
    members, costs, asked = _members(checks)
    names = [name_of(policy) for policy, _ in asked]

    def read(answer: Any) -> list[Decision]:
        return [named(one, name) for one, name in zip(read_decisions(answer, costs), names, strict=True)]

    return Call("check_many", [members], read, asked=asked)


def check_all(
    checks: Iterable[Check], *, deadline: float | None = None, request_id: Key | None = None, resend: bool = False
) -> Call[Decision]:
    members, costs, asked = _members(checks)
    options = _options(request_id, resend, deadline_ms=_milliseconds(deadline))
    names = [name_of(policy) for policy, _ in asked]
    return Call(
        "check_all",
        [members, options] if options else [members],
        lambda answer: named_members(read_decision(answer, sum(costs), members=costs), names),
        asked=asked,
        may_repeat=resend,
    )


def peek(policy: Policy, key: Key, cost: int = 0) -> Call[Decision]:
    name = name_of(policy)
    return Call("peek", [policy, bounded(key), cost], lambda answer: named(read_decision(answer, cost), name))


def explain(policy: Policy, key: Key, cost: int = 1) -> Call[dict[str, Any]]:
    return Call("explain", [policy, bounded(key), cost], _map)


def reset(policy: Policy, key: Key) -> Call[bool]:
    return Call("reset", [policy, bounded(key)], lambda answer: _flag(answer, "removed"))


def refund(
    policy: Policy,
    key: Key,
    units: int,
    *,
    deadline: float | None = None,
    request_id: Key | None = None,
    resend: bool = False,
) -> Call[Decision]:
    options = _options(request_id, resend, deadline_ms=_milliseconds(deadline))
    params = [policy, bounded(key), units, *([options] if options else [])]
    name = name_of(policy)
    return Call("refund", params, lambda answer: named(read_decision(answer), name), may_repeat=resend)


def acquire(policy: Policy, key: Key, *, deadline: float | None = None, request_id: Key | None = None) -> Call[Held]:
    options = _options(request_id, False, deadline_ms=_milliseconds(deadline))
    params = [policy, bounded(key), *([options] if options else [])]
    name = name_of(policy)
    return Call(
        "acquire", params, lambda answer: _held(answer, "slot", 1, name), asked=((policy, key),), undo="release"
    )


def release(slot: str) -> Call[bool]:
    return Call("release", [slot], lambda answer: _flag(answer, "released"), is_return=True)


def undo(call: Call[Held], held: Held) -> Call[Any]:
    """What takes back a yes that no caller waits for any more."""
    return Call(call.undo, [held.id], lambda answer: None, is_return=True)


def reserve(
    policy: Policy,
    key: Key,
    estimate: int,
    *,
    ttl: float | None = None,
    deadline: float | None = None,
    request_id: Key | None = None,
    resend: bool = False,
) -> Call[Held]:
    options = _options(request_id, resend, ttl_ms=_milliseconds(ttl), deadline_ms=_milliseconds(deadline))
    name = name_of(policy)
    return Call(
        "reserve",
        [policy, bounded(key), estimate, *([options] if options else [])],
        lambda answer: _held(answer, "reservation", estimate, name),
        asked=((policy, key),),
        undo="cancel",
        may_repeat=resend,
    )


def clamped(held: Held, estimate: int) -> int:
    """What to reserve in place of an estimate that the policy can never admit: its capacity; else the estimate."""
    decision = held.decision
    is_never = not decision.allowed and decision.retry_after_ms < 0
    return decision.limit if is_never and 0 < decision.limit < estimate else estimate


def settle(reservation: str, actual: int) -> Call[Decision]:
    return Call("settle", [reservation, actual], read_decision, is_return=True)


def cancel(reservation: str) -> Call[Decision]:
    return Call("cancel", [reservation], read_decision, is_return=True)


def policies() -> Call[list[dict[str, Any]]]:
    return Call("policies", [], _maps)


def stats() -> Call[dict[str, int]]:
    return Call("stats", [], _map)


def ping() -> Call[None]:
    return Call("ping", [], lambda answer: None)


def inline_allowed() -> Call[Decision]:
    """Refused with NOT_PERMITTED where the configuration does not allow inline policies."""
    return peek({"algorithm": "fixed_window", "limit": 1, "window": "1s"}, "verify")


def require(wanted: Iterable[str], known: list[dict[str, Any]]) -> None:
    """Refused, unless each of these policies is in the answer to `policies`."""
    names = {policy.get("name") for policy in known}
    missing = sorted({name for name in wanted if name not in names})
    if missing:
        raise Refused("UNKNOWN_POLICY", "the daemon does not have: " + ", ".join(missing), tuple(missing))


def _map(answer: Any) -> dict[str, Any]:
    if type(answer) is not dict:
        raise Malformed("the answer is not a map")
    return answer


def _maps(answer: Any) -> list[dict[str, Any]]:
    if type(answer) is not list:
        raise Malformed("the answer is not an array")
    return [_map(one) for one in answer]


def _flag(answer: Any, name: str) -> bool:
    value = _map(answer).get(name)
    if type(value) is not bool:
        raise Malformed(f"an answer without `{name}`")
    return value


def _held(answer: Any, field: str, cost: int, name: str | None) -> Held:
    decision = named(read_decision(answer, cost), name)
    held = answer.get(field)
    if decision.allowed and (type(held) is not str or not held):
        raise Malformed(f"allowed, but without `{field}`")
    return Held(decision, held if decision.allowed else "")
