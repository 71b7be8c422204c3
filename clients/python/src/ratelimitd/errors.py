"""What a call raises when there is no decision.

Two kinds, to be handled separately: Unavailable (no decision; the program may go on by its own rule) and Refused (a
mistake in the program or in the configuration). A denial is neither: it is a Decision with `allowed` false. Only the
`with` blocks of slots and reservations raise Denied, because there is nothing that the block could use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .decision import Decision

Kind = Literal[
    "unreachable", "timeout", "lost", "protocol", "overloaded", "shutting_down", "store_unavailable", "breaker"
]

# The daemon's codes that mean "no decision was made". Every other code is a mistake that a retry does not mend.
KIND_OF_CODE: dict[str, Kind] = {
    "OVERLOADED": "overloaded",
    "SHUTTING_DOWN": "shutting_down",
    "STORE_UNAVAILABLE": "store_unavailable",
}


class RateLimitError(Exception):
    """Every error of this package."""


class Unavailable(RateLimitError):
    """No decision was made.

    kind           why: "unreachable" (no daemon there, or it takes nothing), "timeout", "lost" (the connection ended
    before
                   the answer), "protocol" (an answer that makes no sense), "breaker" (not asked, because the last calls
                   timed out), or the daemon's own "overloaded", "shutting_down", "store_unavailable"
    maybe_charged  False: certainly nothing was charged
    code           the daemon's code, if it sent one; else ""
    """

    def __init__(self, kind: Kind, message: str, *, maybe_charged: bool = False, code: str = "") -> None:
        super().__init__(f"{kind}: {message}")
        self.kind: Kind = kind
        self.maybe_charged = maybe_charged
        self.code = code


class Refused(RateLimitError):
    """The daemon will not answer this: a mistake in the program or in the configuration.

    code     the daemon's: UNKNOWN_POLICY, BAD_KEY, NOT_PERMITTED ...; treat one that you do not know like INTERNAL
    missing  of verify(): the policies that the daemon does not have
    """

    def __init__(self, code: str, message: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.missing = missing


class Denied(RateLimitError):
    """A `with` block of a slot or a reservation was denied; `decision` has the time to wait."""

    def __init__(self, decision: Decision) -> None:
        wait = decision.retry_after
        super().__init__("denied" if wait is None else f"denied, try again in {wait:g} s")
        self.decision = decision


def of_daemon(text: str) -> RateLimitError:
    """The daemon's error, `CODE: message`, as an exception."""
    code, _, message = text.partition(": ")
    kind = KIND_OF_CODE.get(code)
    if kind is None:
        return Refused(code, message)
    return Unavailable(kind, message, maybe_charged=kind == "store_unavailable", code=code)
