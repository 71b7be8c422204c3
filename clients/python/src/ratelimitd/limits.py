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
import difflib
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from . import http
from .calls import Key as SentKey
from .calls import Policy, name_of
from .decision import Decision
from .errors import Unavailable
from .http import Answer, Headers, Mode, Reset
from .keys import Key, KeyLike, Request, ip, join_key, key_steps
from .steps import Steps
from .watch import Pace, is_for_limits, log

F = TypeVar("F", bound=Callable[..., Any])
OnError = Literal["allow", "deny"] | Callable[[Unavailable], Any]

SETTINGS = {  # of an inline policy, by name; others can be given as a mapping
    "algorithm",
    "limits",
    "burst",
    "start",
    "phase",
    "count_denied",
    "lease",
    "timezone",
    "week_start",
    "max_wait",
    "slot_ttl",
    "by",
    "key_format",
    "deadline",
    "on_failure",
    "idempotency_window",
    "debt",
    "shadow",
    "local_share",
    "merge_back",
    "on_change",
    "unlimited",
    "candidate",
    "overrides",
}
POLICY_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
WINDOW = re.compile(r"[1-9][0-9]* *(us|ms|s|m|h|d|(?:second|minute|hour|day)s?)")
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


def policy_of(text: str) -> Policy:
    """The policy of a text: a name, or the settings of a shorthand."""
    if POLICY_NAME.fullmatch(text):
        return text
    if "/" in text:
        return parse_limit(text)
    raise ValueError(
        f"{text!r} is neither the name of a policy (letters, digits, '.', '_', '-') nor a limit such as '10/5s'"
    )


class Limit:
    """One limit of an endpoint: the name of a policy, a shorthand ("10/5s"), or the settings of an inline policy, as a
    mapping or by name (limit=10, window="5s"). Without `algorithm`, it is a fixed window that begins with the first
    request. Limits that are written at an endpoint count for that endpoint alone; named policies wherever they are
    used.

    The first argument, limit and window may be functions of the request. A policy that is None: do not limit.

    key           a Key, or a function that gives a text; None: do not limit; default: the Limiter's
    cost          a number, or a function that gives one
    name          of an inline policy: what header fields, bodies and logs call it
    skip          a function: true: do not limit this request
    on_error      "allow", "deny" (503), or a function of the error that gives one of them; default: the Limiter's
    charge_when   a function of the response: only if true, it is charged
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
        policy: Policy | Callable[..., Any] | None = None,
        *,
        limit: int | Callable[..., Any] | None = None,
        window: str | Callable[..., Any] | None = None,
        key: KeyLike | None = None,
        cost: int | Callable[..., Any] = 1,
        name: str | None = None,
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
        self.parts = _Parts(policy, limit, window, name, settings)
        self.policy: Policy | None = None if self.parts.is_dynamic else self.parts.made(policy, limit, window)
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
        self.per_endpoint = per_endpoint
        self._check()

    def _check(self) -> None:
        """Refuse values of a wrong type now, not at the first request."""
        if not callable(self.cost):
            _whole("cost", self.cost)
        if self.key is not None:
            _check_key(self.key)
        for name in ("skip", "charge_when", "respond"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name} is a function, not {value!r}")
        for name in ("slot", "enabled", "wait"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} is True or False, not {getattr(self, name)!r}")
        check_rules(self.on_error, self.headers)
        if self.slot and self.charge_when is not None:
            raise ValueError("a slot is not charged: charge_when does not go with slot")

    @property
    def is_inline(self) -> bool:
        """Are there settings in place of a policy's name, as far as it is known before a request?"""
        return isinstance(self.policy, Mapping) or (self.policy is None and not callable(self.parts.policy))

    @property
    def is_held(self) -> bool:
        return self.slot or self.charge_when is not None


def check_rules(on_error: Any, headers: Any) -> None:
    if on_error not in (None, "allow", "deny") and not callable(on_error):
        raise ValueError(f'on_error is "allow", "deny" or a function, not {on_error!r}')
    if headers not in (None, "ietf", "legacy", "both", "none"):
        raise ValueError(f'headers is "ietf", "legacy", "both" or "none", not {headers!r}')


def _check_key(key: Any) -> None:
    if not isinstance(key, (Key, str)) and not callable(key):
        raise TypeError(f"key is a Key such as ip, a text or a function, not {key!r}")


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is a whole number from 0, not {value!r}")
    return value


def _unknown(name: str, known: Iterable[str]) -> None:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else "there are " + ", ".join(sorted(known))
    raise TypeError(f"there is no option {name}: {hint}")


class _Parts:
    """What a limit says about its policy. Some of it may be functions of the request."""

    def __init__(self, policy: Any, limit: Any, window: Any, name: Any, settings: dict[str, Any]) -> None:
        own = [one for one in inspect.signature(Limit).parameters if one not in ("self", "settings")]
        for setting in settings:
            if setting not in SETTINGS:
                _unknown(setting, [*own, *SETTINGS])
        self.policy, self.limit, self.window, self.name, self.settings = policy, limit, window, name, settings
        self.is_dynamic = any(callable(one) for one in (policy, limit, window))
        if policy is None and limit is None and "limits" not in settings:
            raise ValueError("a limit needs the name of a policy, a shorthand such as '10/5s', or limit= and window=")
        if policy is not None and (limit is not None or window is not None or settings):
            more = sorted({"limit": limit, "window": window, **settings})
            raise ValueError(f"a policy and settings of its own ({', '.join(more)}) cannot go together")
        if name is not None:
            name_of({"name": name})
            if isinstance(policy, str) and isinstance(policy_of(policy), str):
                raise ValueError(f"name: the policy {policy!r} has a name already")
        for part, value in (("limit", limit), ("window", window)):
            if value is not None and not callable(value):
                self._checked(part, value)
        if policy is None and limit is not None and window is None and not settings:
            raise ValueError("limit= needs window=")

    def _checked(self, part: str, value: Any) -> None:
        if part == "limit":
            _whole("limit", value)
        elif not isinstance(value, str) or ("algorithm" not in self.settings and not WINDOW.fullmatch(value)):
            raise ValueError(
                f"window is a text such as '5s' or '1 minute', with one of {', '.join(UNITS)}, not {value!r}"
            )

    def made(self, policy: Any, limit: Any, window: Any) -> Policy | None:
        """The policy for these values, which functions may have given."""
        if callable(self.policy) and policy is None:
            return None
        if self.policy is not None:
            if not isinstance(policy, (str, Mapping)) or not policy:
                raise ValueError(f"a policy is a name, a shorthand or a mapping of settings, not {policy!r}")
            found = policy_of(policy) if isinstance(policy, str) else dict(policy)
        else:
            for part, value in (("limit", limit), ("window", window)):
                if value is not None:
                    self._checked(part, value)
            if self.settings:
                given = {name: value for name, value in (("limit", limit), ("window", window)) if value is not None}
                found = {**given, **self.settings}
            else:
                found = _fixed_window(limit, short_window(window))
        return found if self.name is None or isinstance(found, str) else {**found, "name": self.name}

    def steps(self, request: Request) -> Steps[Policy | None]:
        values = []
        for part in (self.policy, self.limit, self.window):
            values.append((yield functools.partial(_call, request, part)) if callable(part) else part)
        return self.made(*values)


def short_window(text: str) -> str:
    """`5 minutes` as the daemon has it: `5m`."""
    count, unit = re.fullmatch(r"([0-9]+) *([a-z]+)", text).groups()  # type: ignore[union-attr]
    return count + (UNITS.get(unit) or UNITS.get(unit.removesuffix("s")) or unit)


@dataclass
class Settings:
    """What counts for every limit of a Limiter."""

    key: KeyLike = ip
    on_error: OnError = "allow"
    respond: Callable[..., Any] | None = None
    headers: Mode = "ietf"
    reset: Reset = "delta"  # of the older header fields
    enabled: bool = True
    service: str | None = None

    def __post_init__(self) -> None:
        check_rules(self.on_error, self.headers)
        _check_key(self.key)
        if self.reset not in ("delta", "epoch"):
            raise ValueError(f'reset is "delta" or "epoch", not {self.reset!r}')
        if self.service is not None and not isinstance(self.service, str):
            raise TypeError(f"service is a text, not {self.service!r}")
        self.pace = Pace()
        self._services: dict[str | None, str] = {}
        if os.environ.get("RATELIMIT_ENABLED") == "0":
            self.enabled = False
            log.warning("RATELIMIT_ENABLED=0: no request is limited")

    def service_for(self, own: str | None) -> str:
        """The name in front of endpoints; `own` is the framework's name for the application."""
        if own not in self._services:
            self._services[own], source = service_name(self.service, own)
            log.info("limits at endpoints count for the service %r (%s)", self._services[own], source)
        return self._services[own]


def service_name(option: str | None, own: str | None) -> tuple[str, str]:
    """The service, and where the name comes from."""
    for found, source in (
        (option, "the option service"),
        (os.environ.get("RATELIMIT_SERVICE"), "RATELIMIT_SERVICE"),
        (os.environ.get("OTEL_SERVICE_NAME"), "OTEL_SERVICE_NAME"),
        (own, "the application's name"),
    ):
        if found is not None:
            return found, source
    return "", "nothing gives it a name"


def key_for(limit: Limit, policy: Policy, service: str, endpoint: str, key: SentKey) -> SentKey:
    """The key as it is sent: SERVICE|ENDPOINT|KEY if the settings of the limit stand at the endpoint."""
    is_inline = not isinstance(policy, str)
    if not (is_inline if limit.per_endpoint is None else limit.per_endpoint):
        return key
    names = [service, endpoint] if service and is_inline else [endpoint]
    front = join_key(*names) + "|"
    return front.encode("utf-8", "surrogatepass") + key if isinstance(key, bytes) else front + key


@dataclass
class Asked:
    """A limit, and what it comes to for one request."""

    limit: Limit
    policy: Policy
    key: SentKey
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
    error: Unavailable | None = None  # no decision was made, and a limit denies then
    is_handed_over: bool = False  # the end of the response calls end()

    @property
    def decision(self) -> Decision | None:
        """For the handler: the decision that denied, or of the limit with least left; None if no decision was made."""
        if self.denied is not None:
            return self.denied.decision
        decisions = [one.decision for one in self.asked if one.decision is not None]
        return min(decisions, key=lambda one: one.remaining, default=None)

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
        policy = limit.policy if limit.policy is not None else (yield from limit.parts.steps(request))
        if policy is None:
            continue
        key = yield from key_steps(settings.key if limit.key is None else limit.key, request)
        if key is None:
            continue
        if not key:
            raise ValueError("the key of a limit is empty: give None where the request is not to be limited")
        key = key_for(limit, policy, settings.service_for(request.service), request.endpoint, key)
        cost = _whole(
            "cost", (yield functools.partial(_call, request, limit.cost)) if callable(limit.cost) else limit.cost
        )
        if all((policy, key) != (one.policy, one.key) for one in admission.asked):
            admission.asked.append(Asked(limit, policy, key, cost))

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


class _Charged:
    """A charge that may be taken back, for a daemon that does not reserve for inline policies."""

    def __init__(self, client: Any, asked: Asked, decision: Decision) -> None:
        self.client, self.asked, self.decision = client, asked, decision
        self.allowed = decision.allowed

    def settle(self, actual: int) -> None:
        """It is charged already."""

    def cancel(self) -> Any:
        return self.client.refund(self.asked.policy, self.asked.key, self.asked.cost)


def _hold(asked: Asked, admission: Admission) -> Steps[None]:
    is_checked = False

    def ask(io: Any) -> Any:
        nonlocal is_checked
        if asked.limit.slot:
            return io.client.acquire(asked.policy, asked.key)
        is_checked = not isinstance(asked.policy, str) and "reserve_inline" not in io.client.features
        if is_checked:
            return io.client.check(asked.policy, asked.key, asked.cost)
        return io.client.reserve(asked.policy, asked.key, asked.cost)

    try:
        held = yield from _quietly(ask)
    except Unavailable as error:
        yield from _on_error([asked], error, admission)
        return
    if is_checked:
        held = yield lambda io: _Charged(io.client, asked, held)
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
            return io.client.check_all([(one.policy, one.key, one.cost) for one in asked])
        [one] = asked
        max_wait = None if admission.request.can_wait or one.limit.wait else 0
        return io.client.check(one.policy, one.key, one.cost, max_wait=max_wait)

    try:
        decision = yield from _quietly(ask)
    except Unavailable as error:
        yield from _on_error(asked, error, admission)
        return

    for one, own in zip(asked, decision.members or (decision,), strict=True):
        one.decision = own
    if not decision.allowed:
        denying = next((one for one in asked if one.decision and not one.decision.allowed), asked[0])
        admission.denied = Asked(denying.limit, denying.policy, denying.key, denying.cost, decision)
    elif decision.delay_ms:
        yield lambda io: io.sleep(decision.delay)


def _quietly(ask: Callable[[Any], Any]) -> Steps[Any]:
    """Ask without a line of the client in the log: _on_error writes one that says what follows."""
    token = is_for_limits.set(True)
    try:
        return (yield ask)
    finally:
        is_for_limits.reset(token)


def _on_error(asked: list[Asked], error: Unavailable, admission: Admission) -> Steps[None]:
    """No decision was made. The strictest of the limits counts."""
    for one in asked:
        rule = one.limit.on_error or admission.settings.on_error
        verdict = (yield functools.partial(_do, rule, error)) if callable(rule) else rule
        if verdict == "deny":
            admission.error = error
        elif verdict != "allow":
            raise ValueError(f'on_error gave {verdict!r}, not "allow" or "deny"')
    if admission.settings.pace.is_time():
        follows = "requests are answered 503" if admission.error else "requests pass"
        log.warning("no decision from the rate limiter: %s; %s", error, follows)


# ---- limits at functions ----

MARK = "__ratelimits__"


def mark(function: F, limit: Limit | None) -> F:
    """Write a limit at a function; None: it has none. functools.wraps takes it along: decorators may stand anywhere."""
    if not callable(function):
        raise TypeError(f"{function!r} is no view: put the limit on a function")
    limits = vars(function).get(MARK) if hasattr(function, "__dict__") else None
    if limits is None:
        limits = list(getattr(function, MARK, ()))  # those of a base class stay as they are
        try:
            setattr(function, MARK, limits)
        except AttributeError:
            raise TypeError(f"{function!r} cannot carry a limit: put it on the function itself") from None
    if limit is not None and limit not in limits:
        limits.insert(0, limit)
    return function


def marks(function: Any) -> list[Limit] | None:
    """The limits at a function; None: neither limits nor an exemption."""
    found: list[Limit] | None = getattr(function, MARK, None)
    return found


def as_limits(given: str | Limit | Sequence[str | Limit]) -> list[Limit]:
    """A limit, or several, by shorthand or not."""
    if isinstance(given, (str, Limit)):
        given = [given]
    for one in given if isinstance(given, Sequence) else [given]:
        if not isinstance(one, (str, Limit)):
            raise TypeError(f"default is a limit, or a list of limits: {one!r} is none")
    return [one if isinstance(one, Limit) else Limit(one) for one in given]


def policies_of(limits: Sequence[Limit]) -> tuple[list[str], bool]:
    """For verify(): the names of their policies, and whether some are inline."""
    names = [one.policy for one in limits if isinstance(one.policy, str)]
    return names, any(one.is_inline for one in limits)


UNKNOWN = "*"  # the name of all paths that have no endpoint


def endpoint_name(function: Any) -> str:
    if function is None:
        return UNKNOWN
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
