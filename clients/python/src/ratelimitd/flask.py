"""Limits for Flask.

    limiter = Limiter(app, default="web", key=ip(trusted_proxies=1))

    @limiter.limit("login", key=lambda: request.form["user"], on_error="deny")
    @app.post("/login")
    def login(): ...

A limit at a view is asked where the view is called: after all hooks of the application, and inside of the decorators
that stand above it. Above the route, it is the outermost one. `default` is asked in a hook, before the view. Functions
(`key`, `cost`, `skip`, `charge_when`, `respond`) use `request` and `g` as a view does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from flask import Flask, Response, abort, current_app, g, request, request_started
from flask.sansio.scaffold import Scaffold

from .calls import Policy
from .client import Client
from .http import Mode, Reset, merged
from .keys import NOT_LIMITED, Endpoint, KeyLike, composite, hashed, ip, join_key, user
from .limits import (
    MARK,
    UNKNOWN,
    Limit,
    LimitOptions,
    OnError,
    Settings,
    as_limits,
    mark,
    marks,
    policies_of,
    qualified,
    qualified_name,
    route_name,
    within,
)
from .steps import run
from .visit import Admission, Visit, admit, end, settle
from .watch import log

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["NOT_LIMITED", "Limit", "Limiter", "composite", "hashed", "ip", "is_preflight", "join_key", "user"]

F = TypeVar("F", bound=Callable[..., Any])

VISIT = "ratelimitd.visit"  # in the environ, which a request has for itself
OWNER = "__ratelimiter__"  # of a view: the Limiter that marked it
ASKS = "__ratelimited__"  # at a function that asks: itself, because functools.wraps copies it to others
ABOVE = "__ratelimit_above__"  # at a function: itself, and what asks around it


def is_preflight() -> bool:
    """For skip=, where the CORS layer is behind the limiter. Everybody can send these: no view may answer OPTIONS."""
    fields = request.headers
    return request.method == "OPTIONS" and "Origin" in fields and "Access-Control-Request-Method" in fields


def _own(function: Any, name: str) -> Any:
    """An attribute of a function, unless functools.wraps copied it from another one."""
    found = getattr(function, name, None)
    return found if found is not None and found[0] is function else None


class _Request:
    """The current request, as the core sees it. `function` is where the limit is written; None: the application."""

    can_wait = False

    def __init__(self, function: Any = None, instance: Any = None) -> None:
        self.function = function
        self.instance = instance
        self.service: str | None = current_app.name

    @property
    def endpoint(self) -> Endpoint:
        """The route: methods as declared, and all patterns of the endpoint."""
        view = current_app.view_functions.get(request.endpoint or "")
        if view is None:
            return Endpoint(UNKNOWN, None)
        rules = list(current_app.url_map.iter_rules(request.endpoint))
        patterns = ",".join(sorted({f"{rule.host or rule.subdomain or ''}{rule.rule}" for rule in rules}))
        handler = (current_app.name, request.endpoint)
        kind = getattr(view, "view_class", None)
        if self.function is None or any(one is self.function for one in within(view)):
            methods = [
                one
                for rule in rules
                for one in rule.methods or ()
                if one != "OPTIONS" or not getattr(rule, "provide_automatic_options", True)
            ]
            return Endpoint(route_name(methods, patterns), handler)
        if kind is not None and isinstance(self.instance, kind):
            method = self.function.__name__
            return Endpoint(route_name([method.upper()], patterns), (*handler, method))
        return qualified(self.function)

    @property
    def peer(self) -> str | None:
        return request.remote_addr

    def header_lines(self, name: str) -> list[str]:
        return request.headers.getlist(name)

    def user(self) -> str | None:
        raise ValueError("Flask does not know users: give a function, user(lambda: g.user_id)")

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class Limiter:
    """default     the limit, or limits, of endpoints that declare none, and of unknown paths; static files have none
    key         of limits without one: ip by default
    on_error    when no decision was made: "allow", "deny" (503), or a function of the error that gives one of them
    respond     a function of the decision that makes the answer to a denied request
    headers     "ietf", "legacy", "both" or "none"; `reset`: "delta" or "epoch", of the older fields
    client      the Client to ask with; default: one for $RATELIMIT_SOCKET
    enabled     False, or RATELIMIT_ENABLED=0 in the environment: nothing is limited
    service     the name in front of the endpoints' in keys; default: RATELIMIT_SERVICE, OTEL_SERVICE_NAME, the
                application's name; "": none

    g.ratelimit is the decision, for views; None if no decision was made.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        default: str | Limit | Sequence[str | Limit] = (),
        key: KeyLike = ip,
        on_error: OnError = "allow",
        respond: Callable[..., Any] | None = None,
        headers: Mode = "ietf",
        reset: Reset = "delta",
        client: Client | None = None,
        enabled: bool = True,
        service: str | None = None,
    ) -> None:
        self.client = client or Client()
        self.settings = Settings(key, on_error, respond, headers, reset, enabled, service)
        self.default = as_limits(default)
        self._apps: list[Flask] = []
        self._declared: list[tuple[Limit, Any]] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        self._apps.append(app)
        self.settings.service_for(app.name)
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)

    def limit(
        self, policy: Policy | Callable[..., Any] | Limit | None = None, **options: Unpack[LimitOptions]
    ) -> Callable[[F], F]:
        """Limit a view: a function, a class-based view, or a method of one. Several of these that stand together are
        decided together. The arguments are those of Limit.
        """
        declared = policy if isinstance(policy, Limit) else Limit(policy, **options)

        def decorate(view: F) -> F:
            if isinstance(view, Scaffold):
                raise TypeError(f"{view!r} is no view: put the limit on its views, or use default=")
            self._declared.append((declared, view))
            if inspect.isclass(view):
                mark(view, declared)
                setattr(view, OWNER, self)
                return view
            is_mine = _own(view, ASKS) and getattr(view, OWNER) is self
            return mark(view if is_mine else self._asking(view), declared)

        return decorate

    def exempt(self, view: F) -> F:
        """The default does not count for this view."""
        return mark(view, None)

    def verify(self) -> None:
        """At the start, when the views are known: Refused, naming the policies that the daemon does not have."""
        views = [view for app in self._apps for view in app.view_functions.values()]
        for app in self._apps:
            for endpoint in list(app.view_functions):
                _settle_order(app, endpoint)
        reached = {id(limit) for view in views for limit in _limits_of(view)}
        lost = sorted({qualified_name(view) for limit, view in self._declared if id(limit) not in reached})
        if lost:
            log.warning("limits at functions that are no views of the application: %s", ", ".join(lost))
        names, has_inline = policies_of([*self.default, *(limit for limit, _ in self._declared)])
        self.client.verify(names, inline=has_inline)

    def _asking(self, view: Any) -> Any:
        """The view, with its limits around it: those that are marked at what this returns."""

        def refuse_or_go_on(args: tuple[Any, ...]) -> None:
            app = current_app._get_current_object()  # type: ignore[attr-defined]
            if app not in self._apps:
                raise RuntimeError(f"{qualified_name(view)} has limits, but limiter.init_app(app) was not called")
            refusal = self._ask(marks(asks) or (), _Request(asks, args[0] if args else None))
            if refusal is not None:
                abort(refusal)  # past all decorators, which may expect something else than a Response

        if inspect.iscoroutinefunction(view):

            @functools.wraps(view)
            async def asks(*args: Any, **named: Any) -> Any:
                refuse_or_go_on(args)
                return await view(*args, **named)

        else:

            @functools.wraps(view)
            def asks(*args: Any, **named: Any) -> Any:
                refuse_or_go_on(args)
                return view(*args, **named)

        vars(asks).pop(MARK, None)  # what functools.wraps took along is asked by the view within
        setattr(asks, ASKS, (asks,))
        setattr(asks, OWNER, self)
        for inner in within(view):
            try:
                setattr(inner, ABOVE, (inner, asks))
            except AttributeError:  # a method that is bound to its object
                if inner is view:
                    raise TypeError(f"{view!r} cannot carry a limit: put it on the function itself") from None
        return asks

    def _ask(self, limits: Iterable[Limit], asking: _Request) -> Response | None:
        """Ask for the limits of one place. The Response, if the request is refused."""
        visit: Visit = request.environ.setdefault(VISIT, Visit())
        admission = run(admit(limits, asking, self.settings, visit), self.client)
        g.ratelimit = visit.decision
        return _answer_of(admission) if admission.refused else None

    def _before(self) -> Response | None:
        visit: Visit = request.environ.setdefault(VISIT, Visit())
        visit.is_written = False
        g.ratelimit = visit.decision
        view = current_app.view_functions.get(request.endpoint or "")
        is_limited = self.default and not _has_own_limits(view) and not _is_static_file()
        return self._ask(self.default, _Request()) if is_limited else None

    def _after(self, response: Response) -> Response:
        visit: Visit | None = request.environ.get(VISIT)
        if visit is None or visit.is_written:
            return response
        visit.is_written = True
        run(settle(visit, response), self.client)
        for name, value in visit.headers():
            response.headers[name] = merged(name, response.headers.getlist(name), value)
        if visit.holds:
            response.call_on_close(lambda: run(end(visit), self.client))
            visit.is_handed_over = True
        return response

    def _teardown(self, error: BaseException | None) -> None:
        """A request that ended without a response has no one else to give back what it held."""
        visit: Visit | None = request.environ.get(VISIT)
        if visit is not None and not visit.is_handed_over:
            run(end(visit), self.client)


def _answer_of(admission: Admission) -> Response:
    if admission.respond is not None:
        return current_app.make_response(admission.respond())
    answer = admission.answer()
    return Response(answer.body, answer.status, content_type=answer.content_type)


def _is_static_file() -> bool:
    if request.endpoint == "static":
        return current_app.has_static_folder
    blueprint = current_app.blueprints.get(request.blueprint or "")
    return blueprint is not None and blueprint.has_static_folder and request.endpoint == f"{request.blueprint}.static"


# ---- views ----


def _carriers(view: Any) -> list[Any]:
    """What may carry the limits of a view: the function, or the class and its methods."""
    kind = getattr(view, "view_class", None)
    names = [name.lower() for name in (kind and kind.methods) or ()]
    methods = [getattr(kind, name) for name in names if hasattr(kind, name)]
    return [one for one in (view, kind, *methods) if one is not None]


def _limits_of(view: Any) -> list[Limit]:
    return [limit for carrier in _carriers(view) for one in within(carrier) for limit in marks(one) or ()]


def _has_own_limits(view: Any) -> bool:
    """Does the view declare limits, or an exemption? Of a class, its method for this request may."""
    kind = getattr(view, "view_class", None)
    name = "get" if request.method == "HEAD" and not hasattr(kind, "head") else request.method.lower()
    method = getattr(kind, name, None)
    return any(marks(one) is not None for one in (view, kind, method) if one is not None)


def _settle_order(app: Flask, endpoint: str | None) -> None:
    """What the route calls is what asks: a limit above the route goes around the view, and so does one at a class.
    RuntimeError where the bare function is routed under a decorator that the limit stands above.
    """
    view = app.view_functions.get(endpoint or "")
    if view is None or endpoint is None:
        return
    above = _own(view, ABOVE)
    if above is not None:
        routed = [one for other in app.view_functions.values() for one in within(other)]
        if not any(one is above[1] for one in routed):
            if above[1].__wrapped__ is not view:
                raise RuntimeError(
                    f"the limit at {qualified_name(view)} would never be asked: the route has the function under the "
                    "decorator that the limit stands above. Write the route above both"
                )
            app.view_functions[endpoint] = above[1]
    kind = getattr(view, "view_class", None)
    if marks(kind) and not any(getattr(one, "__ratelimited_class__", None) is kind for one in within(view)):
        owner: Limiter = getattr(kind, OWNER)
        asks = owner._asking(view)
        setattr(asks, MARK, marks(kind))
        asks.__ratelimited_class__ = kind
        app.view_functions[endpoint] = asks


def _before_all_hooks(app: Flask, **_: Any) -> None:
    """A view with limits whose Limiter does not know this application would be open."""
    _settle_order(app, request.endpoint)
    view = app.view_functions.get(request.endpoint or "")
    for carrier in (view, getattr(view, "view_class", None)):
        owner: Limiter | None = getattr(carrier, OWNER, None)
        if owner is not None and app not in owner._apps:
            raise RuntimeError(f"{qualified_name(carrier)} has limits, but limiter.init_app(app) was not called")


request_started.connect(_before_all_hooks)
