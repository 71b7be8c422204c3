"""Limits for Starlette.

    limiter = Limiter(app, key=ip(trusted_proxies=1))

    @limiter.limit("login", key=user_of_form, on_error="deny")
    async def login(request): ...

The Limiter is an ASGI middleware: it writes the header fields, and gives slots back when the response has ended. A
limit at an endpoint is asked when the endpoint is called; that of `default` in the middleware. Functions (`key`,
`cost`, `skip`) get the request and may be async; `charge_when` gets an object with `status_code` and `headers`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from .calls import Policy
from .errors import Unavailable
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
    of_route,
    policies_of,
    qualified,
    qualified_name,
    within,
)
from .steps import arun
from .visit import Visit, admit, end, settle
from .watch import log

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["NOT_LIMITED", "Limit", "Limiter", "composite", "hashed", "ip", "is_preflight", "join_key", "user"]

F = TypeVar("F", bound=Callable[..., Any])

STATE = "ratelimitd"  # in the scope
ASKS = "__ratelimited__"  # at a function that asks: itself, because functools.wraps copies it to others
ABOVE = "__ratelimit_above__"  # at a function: itself, what asks around it, and the Limiter
TRY_AGAIN_LATER = 1013  # of WebSockets


def is_preflight(request: HTTPConnection) -> bool:
    """For skip=, where the CORS layer is behind the limiter: everybody can send these, so no endpoint may answer
    OPTIONS.
    """
    fields = request.headers
    is_options = request.scope.get("method") == "OPTIONS"
    return is_options and "origin" in fields and "access-control-request-method" in fields


def own(function: Any, name: str) -> Any:
    """An attribute of a function, unless functools.wraps copied it from another one."""
    found = getattr(function, name, None)
    return found if found is not None and found[0] is function else None


@dataclass
class Started:
    """What is known of a response when its head goes out."""

    status_code: int
    headers: Headers


# ---- routes ----


class Found(NamedTuple):
    """Where a request goes. `endpoint` is None for an unknown path."""

    pattern: str
    methods: Iterable[str]
    endpoint: Any
    route: Any


NOWHERE = Found(UNKNOWN, (), None, None)


def flat(routes: Iterable[Any]) -> Iterator[Any]:
    """The routes. A router that FastAPI includes has those of its own, with their whole pattern."""
    for route in routes:
        contexts = getattr(route, "effective_route_contexts", None)
        if contexts is None:
            yield route
        else:
            yield from (getattr(one, "starlette_route", None) or one for one in contexts())


def find(routes: Iterable[Any], scope: Scope, prefix: str = "") -> Found:
    """Where the routes send this request."""
    partial = NOWHERE
    for route in flat(routes):
        match, child = route.matches(scope)
        if match is Match.NONE:
            continue
        inner = getattr(route, "routes", None)
        if inner and match is Match.FULL:
            return find(inner, {**scope, **child}, getattr(route, "host", "") + prefix + getattr(route, "path", ""))
        pattern = prefix + (getattr(route, "path", "") if inner is not None else getattr(route, "path_format", ""))
        found = Found(pattern, getattr(route, "methods", None) or (), child.get("endpoint") or route.endpoint, route)
        if match is Match.FULL:
            return found
        if partial is NOWHERE:
            partial = found
    return partial


def endpoints_of(routes: Iterable[Any]) -> Iterator[Any]:
    for route in flat(routes):
        if hasattr(route, "endpoint"):
            yield route.endpoint
        yield from endpoints_of(getattr(route, "routes", None) or ())


def _carriers(endpoints: Iterable[Any]) -> Iterator[Any]:
    """The functions, and the methods of classes, with those that they wrap."""
    for endpoint in endpoints:
        names = ("get", "head", "post", "put", "patch", "delete", "options") if inspect.isclass(endpoint) else ()
        for one in (endpoint, *(getattr(endpoint, name, None) for name in names)):
            if one is not None:
                yield from within(one)


# ---- a request ----


@dataclass
class State:
    """A request on its way, as the middleware keeps it."""

    limiter: Limiter
    scope: Scope  # as it came
    visit: Visit
    asked: list[Limit] = field(default_factory=list)  # dependencies of FastAPI
    refusal: Response | None = None  # to be sent in place of what the application answers

    @functools.cached_property
    def found(self) -> Found:
        return find(getattr(self.scope.get("app"), "routes", ()), self.scope, self._mount)

    @property
    def _mount(self) -> str:
        """What the application itself is mounted at. A path with parameters is what the client wrote."""
        return "" if self.scope.get("path_params") else str(self.scope.get("root_path", ""))

    def endpoint(self, function: Any = None, instance: Any = None) -> Endpoint:
        """The name of the request's route. A function that is not its endpoint has its own; None: the application."""
        found = self.found
        methods = ["WEBSOCKET"] if self.scope["type"] == "websocket" else found.methods
        if function is None or any(one is function for one in within(found.endpoint)):
            return of_route(methods, found.pattern, found.endpoint)
        if inspect.isclass(found.endpoint) and isinstance(instance, found.endpoint):
            return of_route([function.__name__.upper()], found.pattern, function)
        return qualified(function)


class _Request:
    """A request, as the core sees it."""

    can_wait = True

    def __init__(self, connection: HTTPConnection, state: State, function: Any = None, instance: Any = None) -> None:
        self.connection = connection
        self.state = state
        self.function = function
        self.instance = instance
        title = getattr(connection.scope.get("app"), "title", None)
        self.service = None if title == "FastAPI" else title  # FastAPI's title if it got none

    @property
    def endpoint(self) -> Endpoint:
        return self.state.endpoint(self.function, self.instance)

    @property
    def peer(self) -> str | None:
        host = self.connection.client.host if self.connection.client else None
        return "127.0.0.1" if host == "testclient" else host  # so Starlette's TestClient calls itself

    def header_lines(self, name: str) -> list[str]:
        return self.connection.headers.getlist(name)

    def user(self) -> str | None:
        if "user" not in self.connection.scope:
            raise RuntimeError(
                "user: no AuthenticationMiddleware has run. Add it, for a default after the Limiter, or give a "
                "function: user(lambda request: ...)"
            )
        who = self.connection.scope["user"]
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
        self._declared: list[tuple[Limit, Any]] = []
        self._apps: list[Starlette] = []
        self._is_in_order = False
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Starlette) -> None:
        title = getattr(app, "title", None)
        self.settings.service_for(None if title == "FastAPI" else title)
        self._apps.append(app)
        app.add_middleware(_Middleware, limiter=self)

    def limit(
        self, policy: Policy | Callable[..., Any] | Limit | None = None, **options: Unpack[LimitOptions]
    ) -> Callable[[F], F]:
        """Limit an endpoint (a function, or a method of an HTTPEndpoint). Several of these that stand together are
        decided together.
        """
        declared = policy if isinstance(policy, Limit) else Limit(policy, **options)

        def decorate(endpoint: F) -> F:
            if not inspect.isroutine(endpoint):
                raise TypeError(
                    f"{endpoint!r} is no endpoint: put the limit on a function, or on the methods of a class"
                )
            self.require_connection(endpoint)
            asks = endpoint if own(endpoint, ASKS) else self._asking(endpoint)
            self._declared.append((declared, asks))
            return mark(asks, declared)

        return decorate

    def require_connection(self, endpoint: Any) -> None:
        """TypeError, unless the endpoint is called with the request."""
        if not inspect.signature(endpoint).parameters:
            raise TypeError(
                f"{qualified_name(endpoint)} takes no request: write `async def {endpoint.__name__}(request)`"
            )

    def exempt(self, endpoint: F) -> F:
        """The default does not count for this endpoint."""
        return mark(endpoint, None)

    def default_for(self, state: State) -> Sequence[Limit]:
        """The default, if it counts for this request."""
        if not self.default:
            return ()
        endpoint = state.found.endpoint
        method = state.scope.get("method", "").lower().replace("head", "get")
        is_own = marks(endpoint) is not None or marks(getattr(endpoint, method, None)) is not None
        return () if is_own or isinstance(endpoint, StaticFiles) else self.default

    async def verify(self) -> None:
        """Refused, naming the policies that the daemon does not have. RuntimeError: a limit would never be asked."""
        for app in self._apps:
            self.require_order(app)
        routed = {id(one) for app in self._apps for one in _carriers(endpoints_of(app.routes))}
        lost = sorted({qualified_name(asks) for _, asks in self._declared if id(asks) not in routed})
        if lost and self._apps:
            log.warning("limits at functions that are no endpoints of the application: %s", ", ".join(lost))
        names, has_inline = policies_of(self.declared())
        await self.client.verify(names, inline=has_inline)

    def declared(self) -> Sequence[Limit]:
        return [*self.default, *(limit for limit, _ in self._declared)]

    def require_order(self, app: Starlette) -> None:
        """RuntimeError where the bare function is routed, and the limited one is not."""
        routed = list(_carriers(endpoints_of(app.routes)))
        known = {id(one) for one in routed}
        for endpoint in endpoints_of(app.routes):
            above = own(endpoint, ABOVE)
            if above is not None and above[2] is self and id(above[1]) not in known:
                raise RuntimeError(
                    f"the limit at {qualified_name(endpoint)} would never be asked: the route has the function without "
                    "it. Write the limit under the route"
                )

    def check_once(self, app: Any) -> None:
        """At the first request, where the server has no lifespan."""
        if not self._is_in_order:
            self.require_order(app)
            self._is_in_order = True

    def _asking(self, endpoint: F) -> F:
        """The endpoint, with its limits around it: those that are marked at what this returns."""

        @functools.wraps(endpoint)
        async def asks(*args: Any, **named: Any) -> Any:
            connection = next(one for one in (*args, *named.values()) if isinstance(one, HTTPConnection))
            refused = await admit_request(connection, marks(asks) or [], asks, args[0] if args else None)
            if refused is not None and isinstance(connection, WebSocket):
                return await connection.close(TRY_AGAIN_LATER)
            if refused is not None:
                return refused
            if inspect.iscoroutinefunction(endpoint):
                return await endpoint(*args, **named)
            return await run_in_threadpool(endpoint, *args, **named)

        vars(asks).pop(MARK, None)  # what functools.wraps took along is asked by the endpoint within
        setattr(asks, ASKS, (asks,))
        for inner in within(endpoint):
            if hasattr(inner, "__dict__") and not inspect.ismethod(inner):
                setattr(inner, ABOVE, (inner, asks, self))
        return asks  # type: ignore[return-value]


async def admit_request(
    connection: HTTPConnection, limits: Iterable[Limit], function: Any = None, instance: Any = None
) -> Response | None:
    """Ask for the limits of one place. The Response, if the request is refused."""
    state: State | None = connection.scope.get(STATE)
    if state is None:
        raise RuntimeError("there is no Limiter: write limiter = Limiter(app) next to the application")
    asking = _Request(connection, state, function, instance)
    admission = await arun(admit(limits, asking, state.limiter.settings, state.visit), state.limiter.client)
    connection.state.ratelimit = state.visit.decision
    if not admission.refused:
        return None
    if admission.respond is not None:
        made: Any = admission.respond()
        response: Response = await made if inspect.isawaitable(made) else made
        return response
    answer = admission.answer()
    return Response(answer.body, answer.status, {"Content-Type": answer.content_type})


class _Middleware:
    def __init__(self, app: ASGIApp, limiter: Limiter) -> None:
        self.app = app
        self.limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        self.limiter.check_once(scope.get("app"))
        outer: State | None = scope.get(STATE)  # of an application that this one is mounted in
        visit = outer.visit if outer is not None else Visit()
        state = scope[STATE] = State(self.limiter, dict(scope), visit)
        client = self.limiter.client

        connection = HTTPConnection(scope)
        connection.state.ratelimit = visit.decision

        async def give_back() -> None:
            await arun(end(visit), client)

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start" and visit.admissions and not visit.is_written:
                visit.is_written = True
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                message["headers"] = headers.raw
                await arun(settle(visit, Started(message["status"], headers)), client)
                for name, value in visit.headers():
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
            limits = self.limiter.default_for(state)
            refused = await admit_request(connection, limits) if limits else None
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
