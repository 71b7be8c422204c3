"""The routes of the table of attacks (../../conformance/attacks.yaml) in Starlette."""

import functools
import os
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ratelimitd import AsyncClient
from ratelimitd.starlette import NOT_LIMITED, Limiter, composite, ip, is_preflight, user

EVERY = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Endpoint = Callable[[Request], Awaitable[Response]]


def page(name: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return PlainTextResponse(f"{name}\n")

    return endpoint


def api_key(request: Request) -> str | None:
    return request.headers.get("X-Api-Key")


async def user_of_json(request: Request) -> Any:
    try:
        body = await request.json()
    except ValueError:
        return None
    return body.get("user") if isinstance(body, dict) else None


def exempt_or_address(request: Request) -> Any:
    return NOT_LIMITED if request.headers.get("X-Exempt") == "yes" else request.client and request.client.host


def passes(endpoint: Endpoint) -> Endpoint:
    """An ordinary decorator: what stands above and below it is asked at two places."""

    @functools.wraps(endpoint)
    async def inner(request: Request) -> Response:
        return await endpoint(request)

    return inner


def requires_user(endpoint: Endpoint) -> Endpoint:
    @functools.wraps(endpoint)
    async def inner(request: Request) -> Response:
        request.state.member = request.headers.get("X-User")
        return await endpoint(request) if request.state.member else PlainTextResponse("who are you?\n", 401)

    return inner


class FindUser:
    """A middleware of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            connection = HTTPConnection(scope)
            connection.state.visitor = connection.headers.get("X-User")
        await self.app(scope, receive, send)


def routes(limiter: Limiter, client: AsyncClient) -> list[BaseRoute]:
    limit = limiter.limit
    forwarded = limit("pair")(page("forwarded"))
    redirected = limit("web")(page("redirected"))

    async def forward(request: Request) -> Response:
        return await forwarded(request)

    @limit("web")
    async def redirect(request: Request) -> Response:
        return await redirected(request)

    module = [Route("/x", limit("2/1m")(page("x")))]
    raw = Starlette(routes=[Route("/x", page("raw"))])
    Limiter(raw, default="never", client=client, verify=False, enabled=limiter.settings.enabled)
    found: list[BaseRoute] = [
        Route("/any", limit("never", on_error="deny")(page("any")), methods=EVERY),
        Route("/preflight", limit("never", skip=is_preflight)(page("preflight")), methods=EVERY),
        Route("/key", limit("never", key=api_key)(page("key"))),
        Route("/key-allowed", limit("never", key=api_key, on_error="allow")(page("key-allowed"))),
        Route("/key-said", limit("never", key=api_key)(page("key-said"))),
        Route("/json", limit("never", key=user_of_json)(page("json")), methods=["POST"]),
        Route("/parts", limit("never", key=composite(ip, api_key))(page("parts"))),
        Route("/param", limit("never", key=lambda request: request.query_params.get("user"))(page("param"))),
        Route("/exempt", limit("never", key=exempt_or_address)(page("exempt"))),
        Route("/user", limit("pair", key=user(lambda request: request.headers.get("X-User")))(page("user"))),
        Route("/user-broken", limit("never", key=user(lambda request: request.state.nobody))(page("user-broken"))),
        Route("/late-hook", limit("pair", key=user(lambda request: request.state.visitor))(page("late-hook"))),
        Route(
            "/late-guard",
            requires_user(limit("pair", key=user(lambda request: request.state.member))(page("late-guard"))),
        ),
        Route("/forwarded", forwarded),
        Route("/forward", forward),
        Route("/redirect", redirect),
        Route("/outer/twice", limit("web")(passes(limit("web")(page("twice"))))),
        Route("/outer/cost", limit("web")(passes(limit("web", cost=5)(page("cost"))))),
        Route("/outer/inner", limit("web")(passes(limit("pair")(page("inner"))))),
        Route("/outer/key", limit("web")(passes(limit("never", key=api_key)(page("key"))))),
        Route("/strict/inner", limit("strict")(passes(limit("never")(page("inner"))))),
        Route("/number", limit("web", charge_when=lambda response: 5)(page("number"))),
        Route("/names/factory/a", limit("2/1m")(page("a"))),
        Route("/names/factory/b", limit("2/1m")(page("b"))),
        Route("/names/lambda/a", limit("2/1m")(lambda request: PlainTextResponse("a\n"))),
        Route("/names/lambda/b", limit("2/1m")(lambda request: PlainTextResponse("b\n"))),
        Route("/names/method", limit("2/1m")(page("method")), methods=["GET"]),
        Route("/names/method", limit("2/1m")(page("method")), methods=["POST"]),
        Route("/names/both", limit("2/1m")(page("both")), methods=["GET", "POST"]),
        Mount("/names/mounted-a", routes=module),
        Mount("/names/mounted-b", routes=module),
        Route("/names/item/{number:int}", limit("2/1m")(page("item"))),
        Route("/names/shared-a", limit("2/1m", endpoint="shared")(page("shared-a"))),
        Route("/names/shared-b", limit("2/1m", endpoint="shared")(page("shared-b"))),
        Route(
            "/moves",
            limit(limit=lambda request: int(request.query_params["limit"]), window="1m", key="moves")(page("moves")),
        ),
        Mount("/raw", raw),
    ]
    mistake = os.environ.get("MISTAKE")
    if mistake == "equal-names":
        written = limit("2/1m", endpoint="GET /attack/mistake/2")(page("1"))
        found += [Route("/mistake/1", written), Route("/mistake/2", limit("2/1m")(page("2")))]
    if mistake == "misplaced":
        bare = page("1")
        found.append(Route("/mistake/1", bare))
        limit("never")(bare)
    if mistake == "no-user-layer":
        found.append(Route("/mistake/1", limit("web", key=user)(page("1"))))
    return [Mount("/attack", routes=found)]
