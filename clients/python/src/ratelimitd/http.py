"""A decision as HTTP: the header fields, the 429 and the 503. docs/http.md of the project has the rules."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .decision import Decision

Headers = list[tuple[str, str]]
Mode = Literal["ietf", "legacy", "both", "none"]
Reset = Literal["delta", "epoch"]

PROBLEMS = "https://iana.org/assignments/http-problem-types#"


@dataclass(frozen=True)
class Answer:
    """An answer in place of the application's. The header fields about limits are not in it."""

    status: int
    content_type: str
    body: bytes


def seconds(ms: int) -> int:
    """Whole seconds, never too early."""
    return -(-ms // 1000)


def fields(
    decisions: Sequence[Decision], mode: Mode = "ietf", reset: Reset = "delta", now: float | None = None
) -> Headers:
    """RateLimit-Policy and RateLimit, or the older fields, or both.

    decisions  one for each limit that was asked, in order. Those that no limit counted are left out.
    now        the time of day, for reset "epoch"
    """
    reported = [one for asked in decisions for one in (asked.members or (asked,)) if _is_reported(one)]
    found: Headers = []
    if reported and mode in ("ietf", "both"):
        found.append(("RateLimit-Policy", ", ".join(map(_policy_item, reported))))
        found.append(("RateLimit", ", ".join(map(_state_item, reported))))
    whole = [one for one in decisions if _is_reported(one)]
    if whole and mode in ("legacy", "both"):
        tightest = min(whole, key=lambda one: (one.allowed, one.remaining))
        found.append(("X-RateLimit-Limit", str(tightest.limit)))
        found.append(("X-RateLimit-Remaining", str(tightest.remaining)))
        wait_ms = _wait_ms(tightest)
        if wait_ms is not None:
            now_ms = int((time.time() if now is None else now) * 1000) if reset == "epoch" else 0
            found.append(("X-RateLimit-Reset", str(seconds(now_ms + wait_ms))))
    return found


def retry_after(decision: Decision | None) -> Headers:
    """Retry-After of a denial, and, without a decision, of the 503. None if it is not known, or waiting is no use."""
    wait_s = _retry_after_s(decision)
    return [] if wait_s is None else [("Retry-After", str(wait_s))]


def refusal(decision: Decision | None, accept: str | None) -> Answer:
    """The 429; the 503 where no decision was made (no decision, or the daemon's failure answer)."""
    wait_s = _retry_after_s(decision)
    if decision is None or decision.source == "deny":
        status, kind, title, text = (
            503,
            "temporary-reduced-capacity",
            "Temporary reduced capacity",
            "Temporary reduced capacity",
        )
    else:
        status, kind, title, text = 429, "quota-exceeded", "Quota exceeded", "Too many requests"

    if not accepts_json(accept):
        line = text + (".\n" if wait_s is None else f": try again in {wait_s} s.\n")
        return Answer(status, "text/plain; charset=utf-8", line.encode())
    problem: dict[str, object] = {"type": PROBLEMS + kind, "title": title, "status": status}
    if decision is not None and status == 429 and (decision.bound_by or decision.of):
        problem["violated-policies"] = [decision.bound_by or decision.of]
    return Answer(status, "application/problem+json", json.dumps(problem, separators=(",", ":")).encode())


def _retry_after_s(decision: Decision | None) -> int | None:
    if decision is None or decision.source == "deny":
        return 1
    if decision.retry_after_ms < 0 or decision.window_ms == 0:
        return None
    return max(1, seconds(decision.retry_after_ms))


def accepts_json(accept: str | None) -> bool:
    """No Accept at all, or one that names a JSON type (or a wildcard for one) without q=0."""
    if accept is None or not accept.strip():
        return True
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        is_json = kind in ("*/*", "application/*", "application/json") or kind.endswith("+json")
        if is_json and not any(_is_zero_weight(parameter) for parameter in parameters):
            return True
    return False


def _is_zero_weight(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    try:
        return name.strip() == "q" and float(value) == 0
    except ValueError:
        return False


def _is_reported(decision: Decision) -> bool:
    return is_plain(decision.of) and not decision.shadow_denied


def is_plain(name: str | None) -> bool:
    """Can it stand in a header field?"""
    return name is not None and name.isascii() and name.isprintable()


def merged(name: str, present: Sequence[str], value: str) -> str:
    """The value of a field that may be there: lists of limits are joined, others of the application are replaced."""
    return ", ".join([*present, value]) if name in ("RateLimit-Policy", "RateLimit") else value


def _wait_ms(decision: Decision) -> int | None:
    if decision.window_ms == 0:
        return None
    wait_ms = decision.of_reset_ms if decision.allowed else decision.retry_after_ms
    return wait_ms if wait_ms is not None and wait_ms >= 0 else None


def _name(decision: Decision) -> str:
    """A String of Structured Fields."""
    text = decision.of or ""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _policy_item(decision: Decision) -> str:
    item = f"{_name(decision)};q={decision.quota}"
    item += f";w={seconds(decision.window_ms)}" if decision.window_ms else ';qu="concurrent-requests"'
    return item + (f";ratelimitd-burst={decision.limit}" if decision.limit > (decision.quota or 0) else "")


def _state_item(decision: Decision) -> str:
    wait_ms = _wait_ms(decision)
    item = f"{_name(decision)};r={decision.remaining}"
    return item if wait_ms is None else f"{item};t={seconds(wait_ms)}"
