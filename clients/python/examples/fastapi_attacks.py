"""The routes of the table of attacks (../../conformance/attacks.yaml) in FastAPI."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from starlette_attacks import EVERY, FindUser, api_key, exempt_or_address, user_of_json

from ratelimitd.fastapi import Limit, Limiter, composite, ip, is_preflight, user

Endpoint = Callable[[], Awaitable[str]]


def page(name: str) -> Endpoint:
    async def endpoint() -> str:
        return f"{name}\n"

    return endpoint


def requires_user(request: Request) -> None:
    request.state.member = request.headers.get("X-User")
    if not request.state.member:
        raise HTTPException(401, "who are you?")


def add(app: FastAPI, limiter: Limiter) -> None:
    app.add_middleware(FindUser)
    api = APIRouter(default_response_class=PlainTextResponse)

    def route(path: str, name: str, *limits: Any, methods: tuple[str, ...] = ("GET", "HEAD")) -> None:
        api.add_api_route(f"/attack/{path}", page(name), methods=list(methods), dependencies=limits)

    route("any", "any", Limit("never", on_error="deny"), methods=tuple(EVERY))
    route("preflight", "preflight", Limit("never", skip=is_preflight), methods=tuple(EVERY))
    route("key", "key", Limit("never", key=api_key))
    route("key-allowed", "key-allowed", Limit("never", key=api_key, on_error="allow"))
    route("key-said", "key-said", Limit("never", key=api_key))
    route("json", "json", Limit("never", key=user_of_json), methods=("POST",))
    route("parts", "parts", Limit("never", key=composite(ip, api_key)))
    route("param", "param", Limit("never", key=lambda request: request.query_params.get("user")))
    route("exempt", "exempt", Limit("never", key=exempt_or_address))
    route("user", "user", Limit("pair", key=user(lambda request: request.headers.get("X-User"))))
    route("user-broken", "user-broken", Limit("never", key=user(lambda request: request.state.nobody)))
    route("late-hook", "late-hook", Limit("pair", key=user(lambda request: request.state.visitor)))
    member = Limit("pair", key=user(lambda request: request.state.member))
    route("late-guard", "late-guard", Limit("web"), Depends(requires_user), member)

    @api.get("/attack/forwarded")
    @limiter.limit("pair")
    async def forwarded(request: Request) -> PlainTextResponse:
        return PlainTextResponse("forwarded\n")

    @api.get("/attack/forward")
    async def forward(request: Request) -> PlainTextResponse:
        return await forwarded(request)

    @limiter.limit("web")
    async def redirected(request: Request) -> PlainTextResponse:
        return PlainTextResponse("redirected\n")

    @api.get("/attack/redirect", dependencies=[Limit("web")])
    async def redirect(request: Request) -> PlainTextResponse:
        return await redirected(request)

    def inner(router: APIRouter, path: str, limit: Any) -> None:
        async def endpoint(request: Request) -> str:
            return f"{path}\n"

        router.get(f"/{path}")(limit(endpoint))

    outer = APIRouter(prefix="/attack/outer", dependencies=[Limit("web")])
    inner(outer, "twice", limiter.limit("web"))
    inner(outer, "cost", limiter.limit("web", cost=5))
    inner(outer, "inner", limiter.limit("pair"))
    inner(outer, "key", limiter.limit("never", key=api_key))
    strict = APIRouter(prefix="/attack/strict", dependencies=[Limit("strict")])
    inner(strict, "inner", limiter.limit("never"))
    route("number", "number", Limit("web", charge_when=lambda response: 5))

    route("names/factory/a", "a", Limit("2/1m"))
    route("names/factory/b", "b", Limit("2/1m"))
    for name in ("a", "b"):

        @api.get(f"/attack/names/lambda/{name}")
        @limiter.limit("2/1m")
        async def closure(request: Request, name: str = name) -> PlainTextResponse:
            return PlainTextResponse(f"{name}\n")

    route("names/method", "method", Limit("2/1m"))
    route("names/method", "method", Limit("2/1m"), methods=("POST",))
    route("names/both", "both", Limit("2/1m"), methods=("GET", "POST"))
    module = APIRouter()
    module.add_api_route("/x", page("x"), dependencies=[Limit("2/1m")])

    @api.get("/attack/names/item/{number}", dependencies=[Limit("2/1m")])
    async def item(number: int) -> str:
        return "item\n"

    route("names/shared-a", "shared-a", Limit("2/1m", endpoint="shared"))
    route("names/shared-b", "shared-b", Limit("2/1m", endpoint="shared"))
    moves = Limit(limit=lambda request: int(request.query_params["limit"]), window="1m", key="moves")
    route("moves", "moves", moves)
    raw = APIRouter(prefix="/attack/raw", dependencies=[Limit("never")])
    raw.add_api_route("/x", page("raw"))

    mistake = os.environ.get("MISTAKE")
    if mistake == "equal-names":
        route("mistake/1", "1", Limit("2/1m", endpoint="GET /attack/mistake/2"))
        route("mistake/2", "2", Limit("2/1m"))
    if mistake == "misplaced":

        @limiter.limit("never")
        @api.get("/attack/mistake/1")
        async def misplaced(request: Request) -> str:
            return "1\n"

    if mistake == "no-user-layer":
        route("mistake/1", "1", Limit("web", key=user))

    for router in (api, outer, strict, raw):
        app.include_router(router)
    app.include_router(module, prefix="/attack/names/mounted-a")
    app.include_router(module, prefix="/attack/names/mounted-b")
