"""What becomes of a request that has limits: the same for every framework.

    visit = Visit()                                     a request, from its first limit to the end of its answer
    admit(limits, request, settings, visit)             asks, at one place of the request ─▶ Admission
    admission.refused                                   the 429 or 503, if any
    settle(visit, response)                             after the handler, before the head goes out
    visit.headers()                                     the fields about all limits of the request
    end(visit)                                          when the body has ended: slots go back

A request may have limits at several places, one after another: the application, a router, the endpoint. All plain
limits of one place are one check_all, so nothing is charged when one denies. Limits that hold something until later (a
slot, or a charge that depends on the response) come first, because they can be given back. If a later place refuses,
what earlier ones charged is given back. The functions are steps (steps.py), for sync and async adapters alike.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import http
from .calls import Key as SentKey
from .calls import Policy
from .decision import Decision
from .errors import Refused, Unavailable
from .http import Answer, Headers, Mode
from .keys import NOT_LIMITED, NotLimited, Request, key_steps
from .limits import Limit, Settings, call, has_endpoint, key_for, whole_number, with_id
from .steps import Steps
from .watch import is_for_limits, log


@dataclass
class Asked:
    """A limit, and what it comes to for one request."""

    limit: Limit
    policy: Policy
    key: SentKey
    cost: int
    settings: Settings
    client: Any
    decision: Decision | None = None
    held: Any = None  # a slot or a reservation
    is_certain: bool = False  # a reservation that is charged whatever the response is
    is_returned: bool = False  # a later place refused, so its units went back
    others: list[Limit] = field(default_factory=list)  # of the same place, for the same counter

    def is_same(self, other: Asked) -> bool:
        """The same counter: it is charged once a request."""
        return (self.policy, self.key) == (other.policy, other.key) and self.client.socket == other.client.socket

    @property
    def n_charged(self) -> int:
        return self.cost if self.decision is not None and self.decision.allowed and not self.is_returned else 0


class Bearer(Protocol):
    """A Visit, or an Admission: what has limits that were asked."""

    @property
    def asked(self) -> list[Asked]: ...


@dataclass
class Visit:
    """A request on its way. `admissions` are its places, in the order in which they were asked."""

    admissions: list[Admission] = field(default_factory=list)
    n_moving: int = 0  # limits so far whose numbers are functions
    n_open: int = 0  # places that have asked, and have not yet answered
    is_written: bool = False  # the header fields are in the response
    is_handed_over: bool = False  # the end of the response calls end()

    @property
    def asked(self) -> list[Asked]:
        return [one for admission in self.admissions for one in admission.asked]

    @property
    def refusal(self) -> Admission | None:
        """The place that has refused the request."""
        return next((one for one in reversed(self.admissions) if one.refused), None)

    @property
    def decision(self) -> Decision | None:
        """For the handler: the decision that denied, or of the limit with least left; None if no decision was made."""
        refusal = self.refusal
        if refusal is not None and refusal.denied is not None:
            return refusal.denied.decision
        decisions = [one.decision for one in self.asked if one.decision is not None]
        return min(decisions, key=lambda one: one.remaining, default=None)

    @property
    def holds(self) -> bool:
        """Is something to be given back at the end?"""
        return any(one.held for one in self.asked)

    def headers(self) -> Headers:
        """The header fields about the limits: a part for each policy."""
        found: Headers = []
        newest: dict[tuple[int, str, SentKey], Asked] = {}
        for one in self.asked:
            if one.decision is not None:
                newest[id(one.client), repr(one.policy), one.key] = one
        modes: tuple[Mode, ...] = ("ietf", "legacy")
        for mode in modes:
            reported: dict[str | None, Asked] = {}
            for one in newest.values():
                of = one.decision.of  # type: ignore[union-attr]
                known = reported.get(of)
                if (one.limit.headers or one.settings.headers) in (mode, "both") and (
                    known is None or _tightness(one) < _tightness(known)
                ):
                    reported[of] = one
            decisions = [one.decision for one in reported.values() if one.decision is not None]
            if decisions:
                found += http.fields(decisions, mode, self.admissions[0].settings.reset)
        refusal = self.refusal
        return found if refusal is None else [*found, *http.retry_after(refusal.denial)]


def _tightness(asked: Asked) -> tuple[bool, int]:
    return (True, 0) if asked.decision is None else (asked.decision.allowed, asked.decision.remaining)


@dataclass
class Admission:
    """What became of a request at one place. `asked` are its limits in the order of their declaration."""

    request: Request
    settings: Settings
    asked: list[Asked] = field(default_factory=list)
    denied: Asked | None = None
    error: Unavailable | None = None  # no decision was made, and a limit denies then
    lacks_key: bool = False

    @property
    def refused(self) -> bool:
        return self.denied is not None or self.error is not None or self.lacks_key

    @property
    def denial(self) -> Decision | None:
        return None if self.denied is None else self.denied.decision

    @property
    def respond(self) -> Callable[[], Any] | None:
        """The application's own answer to this denial, if it has one."""
        if self.denied is None:
            return None
        own = self.denied.limit.respond or self.settings.respond
        if own is None:
            return None
        return functools.partial(self.request.call, own, self.denied.decision)

    def answer(self) -> Answer:
        """The 429 or 503; the headers() of the visit belong to it."""
        accept = self.request.header_lines("Accept")
        return http.refusal(self.denial, ", ".join(accept) if accept else None)


# ---- the steps ----


def admit(limits: Iterable[Limit], request: Request, settings: Settings, visit: Visit) -> Steps[Admission]:
    """Ask for the limits of one place. Raises Refused and what the application's functions raise."""
    admission = Admission(request, settings)
    visit.admissions.append(admission)
    if not settings.enabled:
        return admission

    client = yield lambda io: io.client
    for limit in limits:
        visit.n_moving += limit.is_moving
        if not admission.lacks_key:
            yield from _prepare(limit, admission, visit, client)
    if admission.lacks_key:
        admission.asked.clear()

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
        for one in admission.asked:
            one.is_returned = True
        yield from _give_back_earlier(visit, admission, client)
    _tell_tracer(visit)
    return admission


def _prepare(limit: Limit, admission: Admission, visit: Visit, client: Any) -> Steps[None]:
    """What this limit comes to for this request: a member of admission.asked, or nothing."""
    request, settings = admission.request, admission.settings
    if not limit.enabled or (limit.skip and (yield functools.partial(call, request, limit.skip))):
        return
    policy = limit.policy if limit.policy is not None else (yield from limit.parts.steps(request))
    if isinstance(policy, NotLimited):
        return
    made = yield from key_steps(settings.key if limit.key is None else limit.key, request)
    if made is NOT_LIMITED:
        return
    if not policy or not made:
        limit.say_nothing_given("no key" if policy else "no policy", limit.endpoint or request.endpoint.name)
        admission.lacks_key = limit.on_error != "allow"
        return

    key, name = made, ""
    if has_endpoint(limit, policy):
        endpoint, service = request.endpoint, settings.service_for(request.service)
        name = limit.endpoint or endpoint.name
        settings.claim(service, name, endpoint.handler, limit.endpoint is not None)
        key = key_for(limit, policy, service, name, made)
    if limit.is_moving and isinstance(policy, Mapping):
        policy = with_id(policy, name or limit.moving_name, visit.n_moving)
    cost = (yield functools.partial(call, request, limit.cost)) if callable(limit.cost) else limit.cost
    _add(Asked(limit, policy, key, whole_number("cost", cost), settings, client), admission, visit)


def _add(asked: Asked, admission: Admission, visit: Visit) -> None:
    """Ask for it, unless this request is charged for it already. The highest cost counts."""
    for one in admission.asked:
        if one.is_same(asked):
            one.cost = max(one.cost, asked.cost)
            one.others.append(asked.limit)
            if _rank(asked.limit) > _rank(one.limit):
                one.limit, one.others[-1] = asked.limit, one.limit
            return
    earlier = [one for one in visit.asked if one.is_same(asked)]
    if any(one.limit.slot and one.held for one in earlier):
        return
    n_charged = sum(one.n_charged for one in earlier)
    if asked.limit.charge_when is None:
        for one in earlier:
            one.is_certain = True
    if n_charged and not asked.limit.slot:
        asked.cost -= n_charged
    if asked.cost > 0 or not n_charged:
        admission.asked.append(asked)


def _rank(limit: Limit) -> int:
    """Of two limits for one counter: a slot is taken, else a unit is charged, else it depends on the response."""
    return 2 if limit.slot else 0 if limit.charge_when else 1


def settle(bearer: Bearer, response: Any) -> Steps[None]:
    """The handler has answered: charge what depends on its answer, or give it back."""
    for asked in bearer.asked:
        if asked.limit.charge_when is None or not asked.held:
            continue
        held, asked.held = asked.held, None
        try:
            verdict = yield functools.partial(_do, asked.limit.charge_when, response)
            units = asked.cost if asked.is_certain else _units(verdict, asked.cost)
        except BaseException:
            yield from _give_back(held)
            raise
        with contextlib.suppress(Unavailable):  # counted and logged by the client
            if not units:
                yield functools.partial(_do, held.cancel)
                continue
            decision = yield functools.partial(_do, held.settle, units)
            if units > asked.cost and decision is not None and decision.charged < units - asked.cost:
                _say_uncharged(asked, units)


def _units(verdict: Any, cost: int) -> int:
    """What charge_when gave: a number of units, or whether the cost is charged."""
    if isinstance(verdict, bool) or not isinstance(verdict, (int, float)):
        return cost if verdict else 0
    if not 0 <= verdict < math.inf or verdict != int(verdict):
        raise ValueError(f"charge_when gives true, false or a whole number of units from 0, not {verdict!r}")
    return int(verdict)


def _say_uncharged(asked: Asked, units: int) -> None:
    if asked.limit.has_said_uncharged:
        return
    asked.limit.has_said_uncharged = True
    log.warning(
        "charge_when of a limit gave %d units, of which not all were left; only a policy with debt charges more", units
    )


def end(bearer: Bearer) -> Steps[None]:
    """The response has ended, or there is none: give back what is held."""
    for asked in bearer.asked:
        held, asked.held = asked.held, None
        if held:
            yield from _give_back(held)


def _give_back(held: Any) -> Steps[None]:
    with contextlib.suppress(Unavailable):
        yield functools.partial(_do, held.release if hasattr(held, "release") else held.cancel)


def _do(function: Callable[..., Any], *args: Any) -> Any:
    """A step that does not use its Io, which is the last argument."""
    return function(*args[:-1])


class _Charged:
    """A charge that may be taken back, for a daemon that does not reserve for inline policies."""

    def __init__(self, client: Any, asked: Asked, decision: Decision) -> None:
        self.client, self.asked, self.decision = client, asked, decision
        self.allowed = decision.allowed

    def settle(self, actual: int) -> Any:
        """The estimate is charged already."""
        more = actual - self.asked.cost
        if more < 0:
            return self.client.refund(self.asked.policy, self.asked.key, -more)
        return self.client.check(self.asked.policy, self.asked.key, at_most=more) if more else None

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
        admission.denied = Asked(
            denying.limit, denying.policy, denying.key, denying.cost, denying.settings, denying.client, decision
        )
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
    for limit in (limit for one in asked for limit in (one.limit, *one.others)):
        rule = limit.on_error or admission.settings.on_error
        verdict = (yield functools.partial(_do, rule, error)) if callable(rule) else rule
        if verdict == "deny":
            admission.error = error
        elif verdict != "allow":
            raise ValueError(f'on_error gave {verdict!r}, not "allow" or "deny"')
    if admission.settings.pace.is_time():
        follows = "requests are answered 503" if admission.error else "requests pass"
        log.warning("no decision from the rate limiter: %s; %s", error, follows)


# ---- what earlier places charged ----


def _give_back_earlier(visit: Visit, refusing: Admission, client: Any) -> Steps[None]:
    """This place refuses, so earlier places charge nothing either, where their policies can give back."""
    earlier = [one for admission in visit.admissions if admission is not refusing for one in admission.asked]
    for one in earlier:
        if one.held and type(one.client) is type(client):  # what another kind of client holds ends with the response
            held, one.held, one.is_returned = one.held, None, True
            yield from _give_back(held)
    for one in earlier:
        if not one.is_returned and not one.held:
            yield from _refund([other for other in earlier if other.is_same(one)], client)


def _refund(same: list[Asked], client: Any) -> Steps[None]:
    """What several places charged to one counter."""
    last = same[-1]
    units = sum(one.n_charged for one in same if one.decision is not None and one.decision.is_counted)
    for one in same:
        one.is_returned = True
    client = client if client.socket == last.client.socket else last.client
    if not units or (yield from _counts_denials(last, client)):
        return
    try:
        decision = yield lambda io: client.refund(last.policy, last.key, units)
    except Unavailable:
        return  # counted and logged by the client
    except Refused as error:
        if error.code == "UNSUPPORTED":  # of a policy that has no units to give back
            return
        raise
    for one in same:
        one.decision = decision if decision.of is not None else one.decision


_known: weakref.WeakKeyDictionary[Any, dict[tuple[str, int], bool]] = weakref.WeakKeyDictionary()  # by client


def _counts_denials(asked: Asked, client: Any) -> Steps[bool]:
    """Does the policy count denied requests? The daemon lists it; what it said holds for that version of the policy."""
    if isinstance(asked.policy, Mapping):
        return any(one.get("count_denied") for one in (asked.policy, *(asked.policy.get("limits") or ())))
    known = _known.setdefault(client, {})
    this = (asked.policy, asked.decision.policy_version if asked.decision else 0)
    if this not in known:
        try:
            listed = yield lambda io: client.policies()
        except (Unavailable, Refused):
            return False
        found: dict[str, Any] = next((one for one in listed if one.get("name") == asked.policy), {})
        known[this] = any(limit.get("count_denied") for limit in found.get("limits") or ())
    return known[this]


# ---- OpenTelemetry ----


def _tell_tracer(visit: Visit) -> None:
    """Where a tracer is loaded: the request's span gets the decision that the handler gets."""
    trace = sys.modules.get("opentelemetry.trace")
    decision = None if trace is None else visit.decision
    if trace is None or decision is None:
        return
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attribute("ratelimit.policy", _policy_name(visit, decision))
        span.set_attribute("ratelimit.result", "allowed" if decision.allowed else "denied")
        span.set_attribute("ratelimit.source", decision.source)


def _policy_name(visit: Visit, decision: Decision) -> str:
    denied = visit.refusal and visit.refusal.denied
    of = denied or next((one for one in visit.asked if one.decision is decision), None)
    if of is not None and isinstance(of.policy, str):
        return of.policy
    return (decision.of or "").partition("/")[0]  # it has the `name` of an inline policy
