"""Limits for Starlette.

    limiter = Limiter(app, key=ip(trusted_proxies=1))

    @limiter.limit("login", key=user_of_form, on_error="deny")
    async def login(request): ...

The Limiter is an ASGI middleware: it writes the header fields, and gives slots back when the response has ended. The
check is made where the endpoint is called; that of `default` in the middleware. Functions (`key`, `cost`, `skip`) get
the request and may be async; `charge_when` gets an object with `status_code` and `headers`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from .aio import AsyncClient
from .errors import Unavailable
from .http import Mode, Reset, merged
from .keys import KeyLike, composite, hashed, ip, join_key, user
from .limits import (
    MARK,
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
from .steps import arun
from .watch import log

__all__ = ["Limit", "Limiter", "composite", "hashed", "ip", "join_key", "user"]

F = TypeVar("F", bound=Callable[..., Any])

STATE = "ratelimitd"  # in the scope
LIMITED = "__ratelimited__"  # at a function: itself, if it asks; functools.wraps copies it to others
TRY_AGAIN_LATER = 1013  # of WebSockets


@dataclass
class Started:
    """What is known of a response when its head goes out."""

    status_code: int
    headers: Headers


@dataclass
class State:
    """A request on its way, as the middleware keeps it."""

    limiter: Limiter
    admissions: list[Admission] = field(default_factory=list)
    asked: list[Limit] = field(default_factory=list)
    refusal: Response | None = None  # to be sent in place of what the application answers


class _Request:
    """A request, as the core sees it."""

    can_wait = True

    def __init__(self, connection: HTTPConnection, endpoint: str) -> None:
        self.connection = connection
        self.endpoint = endpoint
        self.method = connection.scope.get("method", "")
        title = getattr(connection.scope.get("app"), "title", None)
        self.service = None if title == "FastAPI" else title  # FastAPI's title if it got none

    @property
    def peer(self) -> str | None:
        host = self.connection.client.host if self.connection.client else None
        return "127.0.0.1" if host == "testclient" else host  # so Starlette's TestClient calls itself

    def header_lines(self, name: str) -> list[str]:
        return self.connection.headers.getlist(name)

    def user(self) -> str | None:
        who = self.connection.scope.get("user")
        if who is None or not who.is_authenticated:
            return None
        try:
            return str(who.identity)
        except NotImplementedError:
            return str(who.display_name)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.connection, *args)


class Limiter:
    """default     the limit, or limits, of endpoints that declare none, and of unknown paths; static files have none.
                Its functions get an HTTPConnection, because the body belongs to the endpoint
    key         of limits without one: ip by default
    on_error    when no decision was made: "allow", "deny" (503), or a function of the error that gives one of them
    respond     a function of the request and the decision that makes the Response to a denied request
    headers     "ietf", "legacy", "both" or "none"; `reset`: "delta" or "epoch", of the older fields
    client      the AsyncClient to ask with; default: one for $RATELIMIT_SOCKET
    verify      the application does not start if the daemon lacks a policy; an absent daemon does not stop it
    enabled     False, or RATELIMIT_ENABLED=0 in the environment: nothing is limited
    service     the name in front of the endpoints' in keys; default: RATELIMIT_SERVICE, OTEL_SERVICE_NAME, the title of
                a FastAPI application; "": none

    request.state.ratelimit is the decision, for endpoints; None if no decision was made.
    """

    def __init__(
        self,
        app: Starlette | None = None,
        *,
        default: str | Limit | Sequence[str | Limit] = (),
        key: KeyLike = ip,
        on_error: OnError = "allow",
        respond: Callable[..., Any] | None = None,
        headers: Mode = "ietf",
        reset: Reset = "delta",
        client: AsyncClient | None = None,
        verify: bool = True,
        enabled: bool = True,
        service: str | None = None,
    ) -> None:
        self.client = client or AsyncClient()
        self.default = as_limits(default)
        self.settings = Settings(key, on_error, respond, headers, reset, enabled, service)
        self.verify_at_start = verify
        self._declared: list[Limit] = list(self.default)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Starlette) -> None:
        title = getattr(app, "title", None)
        self.settings.service_for(None if title == "FastAPI" else title)
        app.add_middleware(_Middleware, limiter=self)

    def limit(self, policy: Any = None, **options: Any) -> Callable[[F], F]:
        """Limit an endpoint (a function, or a method of an HTTPEndpoint). Several of these are decided together."""
        declared = policy if isinstance(policy, Limit) else Limit(policy, **options)
        self._declared.append(declared)

        def decorate(endpoint: F) -> F:
            if not inspect.isroutine(endpoint):
                raise TypeError(
                    f"{endpoint!r} is no endpoint: put the limit on a function, or on the methods of a class"
                )
            self.require_connection(endpoint)
            is_limited = getattr(endpoint, LIMITED, None) is endpoint
            return mark(endpoint if is_limited else self._limited(endpoint), declared)

        return decorate

    def require_connection(self, endpoint: Any) -> None:
        """TypeError, unless the endpoint is called with the request."""
        if not inspect.signature(endpoint).parameters:
            raise TypeError(
                f"{endpoint_name(endpoint)} takes no request: write `async def {endpoint.__name__}(request)`"
            )

    def exempt(self, endpoint: F) -> F:
        """The default does not count for this endpoint."""
        return mark(endpoint, None)

    def default_for(self, scope: Scope) -> tuple[Sequence[Limit], str]:
        """The default, if it counts for this request, and the name of the endpoint."""
        if not self.default:
            return (), ""
        endpoint = _endpoint_of(getattr(scope.get("app"), "routes", ()), scope)
        method = scope.get("method", "").lower().replace("head", "get")
        is_own = marks(endpoint) is not None or marks(getattr(endpoint, method, None)) is not None
        return () if is_own or isinstance(endpoint, StaticFiles) else self.default, endpoint_name(endpoint)

    async def verify(self) -> None:
        """Refused, naming the policies that the daemon does not have."""
        names, has_inline = policies_of(self.declared())
        await self.client.verify(names, inline=has_inline)

    def declared(self) -> Sequence[Limit]:
        return self._declared

    def _limited(self, endpoint: F) -> F:
        @functools.wraps(endpoint)
        async def limited(*args: Any, **named: Any) -> Any:
            connection = next(one for one in (*args, *named.values()) if isinstance(one, HTTPConnection))
            refused = await admit_request(connection, marks(limited) or [], endpoint_name(endpoint))
            if refused is not None and isinstance(connection, WebSocket):
                return await connection.close(TRY_AGAIN_LATER)
            if refused is not None:
                return refused
            if inspect.iscoroutinefunction(endpoint):
                return await endpoint(*args, **named)
            return await run_in_threadpool(endpoint, *args, **named)

        vars(limited).pop(MARK, None)  # what functools.wraps took along is asked by the endpoint within
        setattr(limited, LIMITED, limited)
        return limited  # type: ignore[return-value]


async def admit_request(connection: HTTPConnection, limits: Sequence[Limit], endpoint: str) -> Response | None:
    """Ask for these limits. The Response, if the request is refused."""
    state: State | None = connection.scope.get(STATE)
    if state is None:
        raise RuntimeError("there is no Limiter: write limiter = Limiter(app) next to the application")
    admission = await arun(admit(limits, _Request(connection, endpoint), state.limiter.settings), state.limiter.client)
    state.admissions.append(admission)
    connection.state.ratelimit = admission.decision
    if not admission.refused:
        return None
    if admission.respond is not None:
        made: Any = admission.respond()
        response: Response = await made if inspect.isawaitable(made) else made
        return response
    answer = admission.answer()
    return Response(answer.body, answer.status, {"Content-Type": answer.content_type})


def _endpoint_of(routes: Iterable[Any], scope: Scope) -> Any:
    """The endpoint that the routes will find; None for an unknown path."""
    partial = None
    for route in routes:
        match, found = route.matches(scope)
        inner = getattr(route, "routes", None)
        if match is Match.FULL:
            return _endpoint_of(inner, {**scope, **found}) if inner else found.get("endpoint")
        if match is Match.PARTIAL and partial is None:
            partial = found.get("endpoint")
    return partial


class _Middleware:
    def __init__(self, app: ASGIApp, limiter: Limiter) -> None:
        self.app = app
        self.limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        state = scope[STATE] = State(self.limiter)
        client = self.limiter.client

        connection = HTTPConnection(scope)
        connection.state.ratelimit = None

        async def give_back() -> None:
            for admission in state.admissions:
                await arun(end(admission), client)

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start" and state.admissions:
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                message["headers"] = headers.raw
                for admission in state.admissions:
                    await arun(settle(admission, Started(message["status"], headers)), client)
                    for name, value in admission.headers():
                        headers[name] = merged(name, headers.getlist(name), value)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await give_back()  # background tasks come later

        async def send_refusal(message: Message) -> None:
            """An application that is mounted answers a refusal in its own way: ours goes out in place of that."""
            if state.refusal is None:
                await send_with_fields(message)
            elif message["type"] == "http.response.start":
                await state.refusal(scope, receive, send_with_fields)

        try:
            limits, endpoint = self.limiter.default_for(scope)
            refused = await admit_request(connection, limits, endpoint) if limits else None
            if refused is not None and scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": "Too many requests"})
                return
            await (refused or self.app)(scope, receive, send_refusal)
        finally:
            await give_back()

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_after_check(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete" and self.limiter.verify_at_start:
                try:
                    await self.limiter.verify()
                except Unavailable as error:
                    log.warning("the policies could not be verified at the start: %s", error)
            if message["type"].startswith("lifespan.shutdown"):
                await self.limiter.client.aclose()
            await send(message)

        await self.app(scope, receive, send_after_check)
