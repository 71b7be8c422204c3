"""The options of a limit at an endpoint, and what becomes of a request: the same for every framework.

    Limit("login", key=..., on_error="deny")     what an endpoint declares
    Settings                                     what a Limiter declares for all of them
    admit(limits, request, settings)             asks, before the handler runs ─▶ Admission
    admission.refused                            the 429 or 503, if any
    settle(admission, response)                  after the handler, before the head goes out
    end(admission)                               when the body has ended: slots go back

The three functions are steps (steps.py), for sync and async adapters alike. All plain limits of a request are one
check_all, so nothing is charged when one denies. Limits that hold something until later (a slot, or a charge that
depends on the response) come first, because they can be given back.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from . import http
from .calls import Policy
from .decision import Decision
from .errors import Unavailable
from .http import Answer, Headers, Mode, Reset
from .keys import KeyLike, Request, ip, join_key, key_steps
from .steps import Steps

F = TypeVar("F", bound=Callable[..., Any])
OnError = Literal["allow", "deny"] | Callable[[Unavailable], Any]

UNITS = {"ms": "ms", "s": "s", "m": "m", "h": "h", "d": "d", "second": "s", "minute": "m", "hour": "h", "day": "d"}
SHORTHAND = re.compile(r"([1-9][0-9]*) */ *([1-9][0-9]*)? *(ms|s|m|h|d|(?:second|minute|hour|day)s?)")


def parse_limit(text: str) -> dict[str, Any]:
    """The inline policy of a shorthand: "10/5s", "100/minute", "5000/day"."""
    found = SHORTHAND.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a limit such as '10/5s', '100/minute' or '5000/day'")
    limit, count, unit = found.groups()
    short = UNITS[unit] if unit in UNITS else UNITS[unit.removesuffix("s")]
    return _fixed_window(int(limit), f"{count or 1}{short}")


def _fixed_window(limit: int, window: str) -> dict[str, Any]:
    return {"algorithm": "fixed_window", "limit": limit, "window": window, "start": "first_hit"}


class Limit:
    """One limit of an endpoint: the name of a policy, a shorthand ("10/5s"), or the settings of an inline policy, as a
    mapping or by name (limit=10, window="5s"). Without `algorithm`, it is a fixed window that begins with the first
    request. Limits that are written at an endpoint count for that endpoint alone; named policies wherever they are
    used.

    key           a Key, or a function that gives a text; None: do not limit; default: the Limiter's
    cost          a number, or a function that gives one
    skip          a function: true: do not limit this request
    on_error      "allow", "deny" (503), or a function of the error that gives one of them; default: the Limiter's
    charge_when   a function of the response: only if true, it is charged. For named policies
    slot          a slot of a concurrency policy, held until the response has ended
    respond       a function of the decision that makes the answer to a denied request
    headers       "ietf", "legacy", "both" or "none", for this limit
    enabled       False: as if it were not there
    per_endpoint  count each endpoint by itself
    wait          a handler that is not async may sleep for the delay of a leaky bucket; else it is denied instead.
                  Together with other limits it sleeps in any case: check_all has no such option
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        limit: int | None = None,
        window: str | None = None,
        key: KeyLike | None = None,
        cost: int | Callable[..., Any] = 1,
        skip: Callable[..., Any] | None = None,
        on_error: OnError | None = None,
        charge_when: Callable[..., Any] | None = None,
        slot: bool = False,
        respond: Callable[..., Any] | None = None,
        headers: Mode | None = None,
        enabled: bool = True,
        per_endpoint: bool | None = None,
        wait: bool = False,
        **settings: Any,
    ) -> None:
        self.policy: Policy = _policy(policy, limit, window, settings)
        self.key = key
        self.cost = cost
        self.skip = skip
        self.on_error = on_error
        self.charge_when = charge_when
        self.slot = slot
        self.respond = respond
        self.headers = headers
        self.enabled = enabled
        self.wait = wait
        self.is_inline = not isinstance(self.policy, str)
        self.per_endpoint = self.is_inline if per_endpoint is None else per_endpoint
        if on_error not in (None, "allow", "deny") and not callable(on_error):
            raise ValueError('on_error is "allow", "deny" or a function')
        if charge_when is not None and (self.is_inline or slot):
            raise ValueError("charge_when needs a named policy, and not a slot: a reservation finds its policy by name")

    @property
    def is_held(self) -> bool:
        return self.slot or self.charge_when is not None


def _policy(policy: Policy | None, limit: int | None, window: str | None, settings: dict[str, Any]) -> Policy:
    if policy is None:
        if limit is None:
            raise ValueError("a limit needs the name of a policy, a shorthand such as '10/5s', or limit= and window=")
        if settings:
            return {"limit": limit, **({"window": window} if window else {}), **settings}
        if window is None:
            raise ValueError("limit= needs window=")
        return _fixed_window(limit, window)
    if limit is not None or window is not None or settings:
        more = sorted({"limit": limit, "window": window, **settings})
        raise ValueError(f"a policy and settings of its own ({', '.join(more)}) cannot go together")
    if isinstance(policy, Mapping):
        return dict(policy)
    return parse_limit(policy) if "/" in policy else policy


@dataclass
class Settings:
    """What counts for every limit of a Limiter."""

    key: KeyLike = ip
    on_error: OnError = "allow"
    respond: Callable[..., Any] | None = None
    headers: Mode = "ietf"
    reset: Reset = "delta"  # of the older header fields
    enabled: bool = True

    def __post_init__(self) -> None:
        if os.environ.get("RATELIMIT_ENABLED") == "0":
            self.enabled = False


@dataclass
class Asked:
    """A limit, and what it comes to for one request."""

    limit: Limit
    key: str
    cost: int
    decision: Decision | None = None
    held: Any = None  # a slot or a reservation


@dataclass
class Admission:
    """What became of a request. `asked` are its limits in the order of their declaration."""

    request: Request
    settings: Settings
    asked: list[Asked] = field(default_factory=list)
    denied: Asked | None = None
    error: Unavailable | None = None  # nobody decided, and a limit denies then
    is_handed_over: bool = False  # the end of the response calls end()

    @property
    def refused(self) -> bool:
        return self.denied is not None or self.error is not None

    @property
    def holds(self) -> bool:
        """Is something to be given back at the end?"""
        return any(one.held for one in self.asked)

    @property
    def respond(self) -> Callable[[], Any] | None:
        """The application's own answer to this denial, if it has one."""
        if self.denied is None:
            return None
        own = self.denied.limit.respond or self.settings.respond
        if own is None:
            return None
        return functools.partial(self.request.call, own, self.denied.decision)

    def headers(self) -> Headers:
        """The header fields about the limits: a part for each of them."""
        found: Headers = []
        for mode in ("ietf", "legacy"):
            reported = [
                one.decision
                for one in self.asked
                if one.decision is not None and (one.limit.headers or self.settings.headers) in (mode, "both")
            ]
            found += http.fields(reported, mode, self.settings.reset)
        return [*found, *http.retry_after(self._denial)] if self.refused else found

    def answer(self) -> Answer:
        """The 429 or 503; headers() belong to it."""
        accept = self.request.header_lines("Accept")
        return http.refusal(self._denial, ", ".join(accept) if accept else None)

    @property
    def _denial(self) -> Decision | None:
        return None if self.denied is None else self.denied.decision


# ---- the steps ----


def admit(limits: Sequence[Limit], request: Request, settings: Settings) -> Steps[Admission]:
    """Ask for all limits of a request. Raises Refused and what the application's functions raise."""
    admission = Admission(request, settings)
    preflight = request.method == "OPTIONS" and request.header_lines("Access-Control-Request-Method")
    if not settings.enabled or preflight:
        return admission

    for limit in limits:
        if not limit.enabled or (limit.skip and (yield functools.partial(_call, request, limit.skip))):
            continue
        key = yield from key_steps(settings.key if limit.key is None else limit.key, request)
        if key is None:
            continue
        if not key:
            raise ValueError("the key of a limit is empty: give None where the request is not to be limited")
        if limit.per_endpoint:
            key = join_key(request.endpoint) + "|" + key
        cost = (yield functools.partial(_call, request, limit.cost)) if callable(limit.cost) else limit.cost
        if all((limit.policy, key) != (one.limit.policy, one.key) for one in admission.asked):
            admission.asked.append(Asked(limit, key, cost))

    try:
        for asked in (one for one in admission.asked if one.limit.is_held):
            if not admission.refused:
                yield from _hold(asked, admission)
        if not admission.refused:
            yield from _check([one for one in admission.asked if not one.limit.is_held], admission)
    except BaseException:
        yield from end(admission)
        raise
    if admission.refused:
        yield from end(admission)
    return admission


def settle(admission: Admission, response: Any) -> Steps[None]:
    """The handler has answered: charge what depends on its answer, or give it back."""
    for asked in admission.asked:
        if asked.limit.charge_when is None or not asked.held:
            continue
        held, asked.held = asked.held, None
        try:
            is_charged = yield functools.partial(_do, asked.limit.charge_when, response)
        except BaseException:
            yield from _give_back(held)
            raise
        with contextlib.suppress(Unavailable):  # counted and logged by the client
            yield functools.partial(_do, held.settle, asked.cost) if is_charged else functools.partial(_do, held.cancel)


def end(admission: Admission) -> Steps[None]:
    """The response has ended, or there is none: give back what is held."""
    for asked in admission.asked:
        held, asked.held = asked.held, None
        if held:
            yield from _give_back(held)


def _give_back(held: Any) -> Steps[None]:
    with contextlib.suppress(Unavailable):
        yield functools.partial(_do, held.release if hasattr(held, "release") else held.cancel)


def _do(function: Callable[..., Any], *args: Any) -> Any:
    """A step that does not use its Io, which is the last argument."""
    return function(*args[:-1])


def _call(request: Request, function: Callable[..., Any], *args: Any) -> Any:
    """The same for a function of the application."""
    return request.call(function, *args[:-1])


def _hold(asked: Asked, admission: Admission) -> Steps[None]:
    def ask(io: Any) -> Any:
        if asked.limit.slot:
            return io.client.acquire(asked.limit.policy, asked.key)
        return io.client.reserve(asked.limit.policy, asked.key, asked.cost)

    try:
        held = yield ask
    except Unavailable as error:
        yield from _on_error([asked], error, admission)
        return
    asked.decision = held.decision
    if held.allowed:
        asked.held = held
    else:
        admission.denied = asked


def _check(asked: list[Asked], admission: Admission) -> Steps[None]:
    """The plain limits: one check, or one check_all."""
    if not asked:
        return

    def ask(io: Any) -> Any:
        if len(asked) > 1:
            return io.client.check_all([(one.limit.policy, one.key, one.cost) for one in asked])
        [one] = asked
        max_wait = None if admission.request.can_wait or one.limit.wait else 0
        return io.client.check(one.limit.policy, one.key, one.cost, max_wait=max_wait)

    try:
        decision = yield ask
    except Unavailable as error:
        yield from _on_error(asked, error, admission)
        return

    for one, own in zip(asked, decision.members or (decision,), strict=True):
        one.decision = own
    if not decision.allowed:
        denying = next((one for one in asked if one.decision and not one.decision.allowed), asked[0])
        admission.denied = Asked(denying.limit, denying.key, denying.cost, decision)
    elif decision.delay_ms:
        yield lambda io: io.sleep(decision.delay)


def _on_error(asked: list[Asked], error: Unavailable, admission: Admission) -> Steps[None]:
    """Nobody decided. The strictest of the limits counts."""
    for one in asked:
        rule = one.limit.on_error or admission.settings.on_error
        verdict = (yield functools.partial(_do, rule, error)) if callable(rule) else rule
        if verdict == "deny":
            admission.error = error
        elif verdict != "allow":
            raise ValueError(f'on_error gave {verdict!r}, not "allow" or "deny"')


# ---- limits at functions ----

MARK = "__ratelimits__"


def mark(function: F, limit: Limit | None) -> F:
    """Write a limit at a function; None: it has none. functools.wraps takes it along: decorators may stand anywhere."""
    limits = getattr(function, MARK, None)
    if limits is None:
        limits = []
        try:
            setattr(function, MARK, limits)
        except AttributeError:
            raise TypeError(f"{function!r} cannot carry a limit: put it on the function itself") from None
    if limit is not None:
        limits.insert(0, limit)
    return function


def marks(function: Any) -> list[Limit] | None:
    """The limits at a function; None: neither limits nor an exemption."""
    found: list[Limit] | None = getattr(function, MARK, None)
    return found


def as_limits(given: str | Limit | Sequence[str | Limit]) -> list[Limit]:
    """A limit, or several, by shorthand or not."""
    many = [given] if isinstance(given, (str, Limit)) else given
    return [one if isinstance(one, Limit) else Limit(one) for one in many]


def policies_of(limits: Sequence[Limit]) -> tuple[list[str], bool]:
    """For verify(): the names of their policies, and whether some are inline."""
    names = [one.policy for one in limits if isinstance(one.policy, str)]
    return names, any(one.is_inline for one in limits)


UNKNOWN = "*"  # the name of all paths that have no endpoint


def endpoint_name(function: Any) -> str:
    if function is None:
        return UNKNOWN
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
