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

from flask import Flask, Response, current_app, g, request

from .client import Client
from .http import Mode, Reset
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


class _Request:
    """The current request, as the core sees it."""

    can_wait = False

    def __init__(self) -> None:
        self.method = request.method
        self.endpoint = endpoint_name(current_app.view_functions.get(request.endpoint or ""))

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
    on_error    when nobody decided: "allow", "deny" (503), or a function of the error that gives one of them
    respond     a function of the decision that makes the answer to a denied request
    headers     "ietf", "legacy", "both" or "none"; `reset`: "delta" or "epoch", of the older fields
    client      the Client to ask with; default: one for $RATELIMIT_SOCKET
    enabled     False, or RATELIMIT_ENABLED=0 in the environment: nothing is limited
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
    ) -> None:
        self.client = client or Client()
        self.settings = Settings(key, on_error, respond, headers, reset, enabled)
        self.default = as_limits(default)
        self._apps: list[Flask] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        self._apps.append(app)
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)

    def limit(self, policy: Any = None, **options: Any) -> Callable[[F], F]:
        """Limit a view. Several of these are decided together. The arguments are those of Limit."""
        declared = policy if isinstance(policy, Limit) else Limit(policy, **options)
        return lambda view: mark(view, declared)

    def exempt(self, view: F) -> F:
        """The default does not count for this view."""
        return mark(view, None)

    def verify(self) -> None:
        """At the start, when the views are known: Refused, naming the policies that the daemon does not have."""
        limits = list(self.default)
        for app in self._apps:
            for view in app.view_functions.values():
                limits += marks(view) or []
        names, has_inline = policies_of(limits)
        self.client.verify(names, inline=has_inline)

    def _limits(self) -> Sequence[Limit]:
        own = marks(current_app.view_functions.get(request.endpoint or ""))
        if own is not None:
            return own
        return () if request.endpoint is not None and request.endpoint.endswith("static") else self.default

    def _before(self) -> Any:
        limits = self._limits()
        if not limits:
            return None
        admission = run(admit(limits, _Request(), self.settings), self.client)
        g.setdefault("_ratelimitd", []).append((self, admission))
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
            response.headers[name] = ", ".join([*response.headers.getlist(name), value])
        if admission.holds:
            response.call_on_close(lambda: run(end(admission), self.client))
            admission.is_handed_over = True
        return response

    def _teardown(self, error: BaseException | None) -> None:
        """A request that ended without a response has nobody else to give back what it held."""
        admission = self._admission()
        if admission is not None and not admission.is_handed_over:
            run(end(admission), self.client)

    def _admission(self) -> Admission | None:
        return next((admission for owner, admission in g.get("_ratelimitd", ()) if owner is self), None)
