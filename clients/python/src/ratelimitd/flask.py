"""Limits for Flask.

    limiter = Limiter(app, default="web", key=ip(trusted_proxies=1))

    @limiter.limit("login", key=lambda: request.form["user"], on_error="deny")
    @app.post("/login")
    def login(): ...

A decorator only marks the view, so it may stand above or below the route; the check is made before the request is
handled. Functions (`key`, `cost`, `skip`, `charge_when`, `respond`) use `request` and `g` as a view does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flask import Flask, Response, current_app, g, request, request_started
from flask.sansio.scaffold import Scaffold

from .client import Client
from .http import Mode, Reset, merged
from .keys import KeyLike, composite, hashed, ip, join_key, user
from .limits import (
    Admission,
    Limit,
    OnError,
    Settings,
    admit,
    as_limits,
    end,
    endpoint_name,
    mark,
    marks,
    policies_of,
    settle,
)
from .steps import run

__all__ = ["Limit", "Limiter", "composite", "hashed", "ip", "join_key", "user"]

F = TypeVar("F", bound=Callable[..., Any])


OWNER = "__ratelimiter__"  # of a view: the Limiter that marked it


class _View:
    """The view of a request, with what carries its limits: the function, or the class and its method."""

    def __init__(self, view: Any, method: str) -> None:
        whole = getattr(view, "view_class", None)
        own = getattr(whole, method.lower(), None) or (getattr(whole, "get", None) if method == "HEAD" else None)
        self.carriers = [one for one in (view, whole, own) if one is not None]
        is_marked = bool(marks(own))
        self.name = endpoint_name(whole or view) + (f".{own.__name__}" if is_marked and own is not None else "")

    def limits(self) -> list[Limit] | None:
        """None: neither limits nor an exemption."""
        found = [marks(one) for one in self.carriers]
        if all(one is None for one in found):
            return None
        return list(dict.fromkeys(limit for one in found for limit in one or ()))


def _view() -> _View:
    return _View(current_app.view_functions.get(request.endpoint or ""), request.method)


class _Request:
    """The current request, as the core sees it."""

    can_wait = False

    def __init__(self, endpoint: str) -> None:
        self.method = request.method
        self.endpoint = endpoint
        self.service: str | None = current_app.name

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
        self._checked: set[Flask] = set()  # their limits are all at views
        self._declared: list[tuple[Limit, Any]] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        self._apps.append(app)
        self.settings.service_for(app.name)
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)

    def limit(self, policy: Any = None, **options: Any) -> Callable[[F], F]:
        """Limit a view: a function, a class-based view, or a method of one. Several of these are decided together. The
        arguments are those of Limit.
        """
        declared = policy if isinstance(policy, Limit) else Limit(policy, **options)

        def decorate(view: F) -> F:
            if isinstance(view, Scaffold):
                raise TypeError(f"{view!r} is no view: put the limit on its views, or use default=")
            self._declared.append((declared, view))
            mark(view, declared)
            setattr(view, OWNER, self)
            return view

        return decorate

    def exempt(self, view: F) -> F:
        """The default does not count for this view."""
        return mark(view, None)

    def verify(self) -> None:
        """At the start, when the views are known: Refused, naming the policies that the daemon does not have."""
        self._check_declared()
        names, has_inline = policies_of([*self.default, *(limit for limit, _ in self._declared)])
        self.client.verify(names, inline=has_inline)

    def _check_declared(self) -> None:
        """RuntimeError, unless every limit is at a view: others would never be asked."""
        views = [view for app in self._apps for view in app.view_functions.values()]
        classes = [view.view_class for view in views if hasattr(view, "view_class")]
        methods = [
            getattr(one, name.lower()) for one in classes for name in one.methods or () if hasattr(one, name.lower())
        ]
        reached = {limit for carrier in (*views, *classes, *methods) for limit in marks(carrier) or ()}
        lost = [endpoint_name(view) for limit, view in self._declared if limit not in reached]
        if lost:
            raise RuntimeError(
                f"limits that would never be asked: {', '.join(lost)}. A limit stands on the view itself (not above a "
                "decorator without functools.wraps), and limiter.init_app(app) is called for the view's application"
            )

    def _limits(self, view: _View) -> Sequence[Limit]:
        own = view.limits()
        if own is not None:
            return own
        return () if _is_static_file() else self.default

    def _before(self) -> Any:
        g.setdefault("ratelimit", None)
        app = current_app._get_current_object()  # type: ignore[attr-defined]
        if app not in self._checked:
            self._check_declared()
            self._checked.add(app)
        view = _view()
        limits = self._limits(view)
        if not limits:
            return None
        admission = run(admit(limits, _Request(view.name), self.settings), self.client)
        g.setdefault("_ratelimitd", []).append((self, admission))
        g.ratelimit = admission.decision
        if not admission.refused:
            return None
        if admission.respond is not None:
            return current_app.make_response(admission.respond())
        answer = admission.answer()
        return Response(answer.body, answer.status, content_type=answer.content_type)

    def _after(self, response: Response) -> Response:
        admission = self._admission()
        if admission is None:
            return response
        run(settle(admission, response), self.client)
        for name, value in admission.headers():
            response.headers[name] = merged(name, response.headers.getlist(name), value)
        if admission.holds:
            response.call_on_close(lambda: run(end(admission), self.client))
            admission.is_handed_over = True
        return response

    def _teardown(self, error: BaseException | None) -> None:
        """A request that ended without a response has no one else to give back what it held."""
        admission = self._admission()
        if admission is not None and not admission.is_handed_over:
            run(end(admission), self.client)

    def _admission(self) -> Admission | None:
        return next((admission for owner, admission in g.get("_ratelimitd", ()) if owner is self), None)


def _is_static_file() -> bool:
    if request.endpoint == "static":
        return current_app.has_static_folder
    blueprint = current_app.blueprints.get(request.blueprint or "")
    return blueprint is not None and blueprint.has_static_folder and request.endpoint == f"{request.blueprint}.static"


def _refuse_without_limiter(app: Flask, **_: Any) -> None:
    """A view with limits whose Limiter does not know this application would be open."""
    for carrier in _view().carriers:
        owner: Limiter | None = getattr(carrier, OWNER, None)
        if owner is not None and app not in owner._apps:
            raise RuntimeError(f"{endpoint_name(carrier)} has limits, but limiter.init_app(app) was not called")


request_started.connect(_refuse_without_limiter)
