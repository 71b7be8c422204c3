"""The options of a limit at an endpoint, and those of a Limiter: the same for every framework.

    Limit("login", key=..., on_error="deny")     what an endpoint declares
    Settings                                     what a Limiter declares for all of them
    key_for, route_name                          under which name a limit counts
    mark, marks                                  limits at functions

visit.py has what becomes of a request.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from .calls import Key as SentKey
from .calls import Policy, name_of
from .errors import Unavailable
from .http import Mode, Reset
from .keys import NOT_LIMITED, Endpoint, Key, KeyLike, NotLimited, Request, ip, join_key
from .steps import Steps
from .watch import Pace, log

if TYPE_CHECKING:
    from typing_extensions import Unpack

F = TypeVar("F", bound=Callable[..., Any])
OnError = Literal["allow", "deny"] | Callable[[Unavailable], Any]


class InlineSettings(TypedDict, total=False):
    """Settings of an inline policy, by name; others can be given as a mapping."""

    algorithm: str
    limits: Sequence[Mapping[str, Any]]
    burst: int
    start: str
    phase: bool
    count_denied: bool
    lease: str
    counts: str
    penalty: Mapping[str, Any]
    timezone: str
    week_start: str
    anchor: str
    max_wait: str
    slot_ttl: str
    by: Sequence[str] | str
    key_format: Sequence[str] | str
    deadline: str
    on_failure: str
    idempotency_window: str
    debt: bool
    shadow: bool
    warn_at: str
    local_share: int | str
    merge_back: bool
    on_change: str
    unlimited: bool
    candidate: Mapping[str, Any]
    overrides: Mapping[str, Any]
    id: str


class LimitOptions(InlineSettings, total=False):
    """The options of a Limit, for checkers of types: a misspelt one is an error there, too."""

    limit: int | Callable[..., Any] | None
    window: str | Callable[..., Any] | None
    key: KeyLike | None
    cost: int | Callable[..., Any]
    name: str | None
    endpoint: str | None
    skip: Callable[..., Any] | None
    on_error: OnError | None
    charge_when: Callable[..., Any] | None
    slot: bool
    respond: Callable[..., Any] | None
    headers: Mode | None
    enabled: bool
    per_endpoint: bool | None
    wait: bool


SETTINGS = frozenset(InlineSettings.__annotations__)
# With these the daemon refuses an `id`: what they keep cannot follow a limit that moves.
NO_ID_WITH = frozenset(("burst", "max_wait", "lease", "on_change", "merge_back", "debt", "candidate"))
ID_BYTES_MAX = 256
SHARED_SERVICES = frozenset(("", "app", "main", "__main__", "FastAPI"))  # names that many programs have
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

    The first argument, limit and window may be functions of the request. Where a function of the policy or of the key
    gives NOT_LIMITED, this limit does not count for the request. Where it gives None or "", the answer is 503, unless
    on_error="allow" is written at this limit.

    key           a Key, or a function that gives a text; default: the Limiter's
    cost          a number, or a function that gives one
    name          of an inline policy: what header fields, bodies and logs call it
    endpoint      the name under which an inline policy counts, in place of the route; endpoints with the same written
                  name share their counters
    skip          a function: true: do not limit this request
    on_error      "allow", "deny" (503), or a function of the error that gives one of them; default: the Limiter's
    charge_when   a function of the response: only if true, it is charged; if it gives a number, so many units
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
        endpoint: str | None = None,
        skip: Callable[..., Any] | None = None,
        on_error: OnError | None = None,
        charge_when: Callable[..., Any] | None = None,
        slot: bool = False,
        respond: Callable[..., Any] | None = None,
        headers: Mode | None = None,
        enabled: bool = True,
        per_endpoint: bool | None = None,
        wait: bool = False,
        **settings: Unpack[InlineSettings],
    ) -> None:
        self.parts = _Parts(policy, limit, window, name, dict(settings))
        self.policy: Any = None if self.parts.is_dynamic else self.parts.made(policy, limit, window)
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
        self.endpoint = endpoint
        self._unsaid = {"no key", "no policy"}  # what the log does not say yet
        self.has_said_uncharged = False
        self._check()

    def _check(self) -> None:
        """Refuse values of a wrong type now, not at the first request."""
        if not callable(self.cost):
            whole_number("cost", self.cost)
        if self.key is not None:
            _check_key(self.key)
        for name in ("skip", "charge_when", "respond"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name} is a function, not {value!r}")
        if self.endpoint is not None and (not isinstance(self.endpoint, str) or not self.endpoint):
            raise TypeError(f"endpoint is the name of an endpoint, not {self.endpoint!r}")
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

    @property
    def is_moving(self) -> bool:
        """May its numbers be others in the next request?"""
        return callable(self.parts.limit) or callable(self.parts.policy)

    @property
    def moving_name(self) -> str:
        """What a limit that moves is called where it does not count for an endpoint."""
        function = self.parts.limit if callable(self.parts.limit) else self.parts.policy
        return self.parts.name or qualified_name(function)

    def say_nothing_given(self, what: str, endpoint: str) -> None:
        """ "no key" or "no policy", once."""
        if what in self._unsaid:
            self._unsaid.discard(what)
            follows = "this limit is left out" if self.on_error == "allow" else "such requests are answered 503"
            log.warning("%s: a limit of %s got none; %s (NOT_LIMITED switches a limit off)", what, endpoint, follows)


def check_rules(on_error: Any, headers: Any) -> None:
    if on_error not in (None, "allow", "deny") and not callable(on_error):
        raise ValueError(f'on_error is "allow", "deny" or a function, not {on_error!r}')
    if headers not in (None, "ietf", "legacy", "both", "none"):
        raise ValueError(f'headers is "ietf", "legacy", "both" or "none", not {headers!r}')


def _check_key(key: Any) -> None:
    if key == "":
        raise ValueError("the key is empty")
    if not isinstance(key, (Key, str)) and not callable(key):
        raise TypeError(f"key is a Key such as ip, a text or a function, not {key!r}")


def whole_number(name: str, value: Any) -> int:
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
            whole_number("limit", value)
        elif not isinstance(value, str) or ("algorithm" not in self.settings and not WINDOW.fullmatch(value)):
            raise ValueError(
                f"window is a text such as '5s' or '1 minute', with one of {', '.join(UNITS)}, not {value!r}"
            )

    def made(self, policy: Any, limit: Any, window: Any) -> Policy | NotLimited | None:
        """The policy for these values, which functions may have given. None: the function gave none."""
        if NOT_LIMITED in (policy, limit, window):
            return NOT_LIMITED
        if callable(self.policy) and (policy is None or policy == ""):
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

    def steps(self, request: Request) -> Steps[Policy | NotLimited | None]:
        values = []
        for part in (self.policy, self.limit, self.window):
            values.append((yield functools.partial(call, request, part)) if callable(part) else part)
        return self.made(*values)


def call(request: Request, function: Callable[..., Any], *args: Any) -> Any:
    """A step that calls a function of the application; its Io is the last argument."""
    return request.call(function, *args[:-1])


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
        self._names: dict[tuple[str, str], tuple[Any, bool]] = {}
        if not self.enabled:
            log.warning("enabled=False: no request is limited, as with 0 in RATELIMIT_ENABLED")
        elif os.environ.get("RATELIMIT_ENABLED") == "0":
            self.enabled = False
            log.warning("RATELIMIT_ENABLED=0: no request is limited")

    def service_for(self, own: str | None) -> str:
        """The name in front of endpoints; `own` is the framework's name for the application."""
        if own not in self._services:
            self._services[own], source = service_name(self.service, own)
            is_shared = self._services[own] in SHARED_SERVICES
            log.log(
                logging.WARNING if is_shared else logging.INFO,
                "limits at endpoints count for the service %r (%s)%s",
                self._services[own],
                source,
                ": programs with the same name share their counters; set service= or RATELIMIT_SERVICE" * is_shared,
            )
        return self._services[own]

    def claim(self, service: str, name: str, handler: Any, is_written: bool) -> None:
        """RuntimeError where another endpoint has this name: limits with settings of their own would share counters."""
        owner, is_written_there = self._names.setdefault((service, name), (handler, is_written))
        if owner != handler and not (is_written and is_written_there):
            raise RuntimeError(
                f"two endpoints have the name {name!r}, so their limits would count together: write endpoint= at one "
                "of them, or the same endpoint= at both"
            )


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


def has_endpoint(limit: Limit, policy: Policy) -> bool:
    """Does the limit count each endpoint by itself?"""
    return not isinstance(policy, str) if limit.per_endpoint is None else limit.per_endpoint


def key_for(limit: Limit, policy: Policy, service: str, endpoint: str, key: SentKey) -> SentKey:
    """The key as it is sent: SERVICE|ENDPOINT|KEY if the settings of the limit stand at the endpoint."""
    if not has_endpoint(limit, policy):
        return key
    names = [service, endpoint] if service and not isinstance(policy, str) else [endpoint]
    front = join_key(*names) + "|"
    return front.encode("utf-8", "surrogatepass") + key if isinstance(key, bytes) else front + key


def with_id(policy: Mapping[str, Any], endpoint: str, number: int) -> Mapping[str, Any]:
    """The settings of the `number`th limit of a request that moves: its counter belongs to the endpoint."""
    if "id" in policy or not _may_have_id(policy):
        return policy
    return {**policy, "id": id_text(endpoint if number == 1 else f"{endpoint}#{number}")}


def _may_have_id(settings: Mapping[str, Any]) -> bool:
    algorithm = settings.get("algorithm")
    if algorithm == "leaky_bucket" or (algorithm == "sliding_log" and settings.get("count_denied")):
        return False
    return not NO_ID_WITH & set(settings) and all(_may_have_id(one) for one in settings.get("limits") or ())


def id_text(text: str) -> str:
    """As the daemon takes it: at most 256 bytes, none of them a control byte."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= ID_BYTES_MAX and text.isprintable():
        return text
    start = re.sub(r"[^ -~]", "?", text)[:64]
    return f"{start}#{hashlib.sha256(data).hexdigest()}"


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


def qualified_name(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def of_route(methods: Iterable[str], pattern: str, function: Any) -> Endpoint:
    """The endpoint of a route. A program that makes its application anew, as tests do, has the same ones."""
    name = route_name(methods, pattern)
    return Endpoint(name, (name, qualified_name(function)))


def qualified(function: Any) -> Endpoint:
    """The endpoint of a function that has no route of its own. It belongs to the function within all decorators."""
    *_, innermost = within(function)
    return Endpoint(qualified_name(function), getattr(innermost, "__func__", innermost))


def route_name(methods: Iterable[str], pattern: str) -> str:
    """The name of an endpoint: its methods, without a HEAD that comes with GET, and its pattern. No methods: all."""
    declared = set(methods)
    shown = sorted(declared - {"HEAD"} if "GET" in declared else declared)
    return f"{','.join(shown)} {pattern}" if shown else pattern


def within(function: Any) -> Iterable[Any]:
    """The function, and those that it wraps, as functools.wraps and functools.partial leave them."""
    for _ in range(100):
        yield function
        function = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if function is None:
            return
