"""The example service in Starlette."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import starlette_attacks
from serve import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from ratelimitd import AsyncClient, Decision
from ratelimitd.starlette import NOT_LIMITED, Limiter, composite, ip

client = AsyncClient(timeout=float(os.environ.get("TIMEOUT_MS", "250")) / 1000)
limiter = Limiter(client=client)


@limiter.limit("web")
async def ok(request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok\n")


async def user_of_form(request: Request) -> str:
    return str((await request.form()).get("user") or "-")


@limiter.limit(
    "login",
    key=composite(user_of_form, ip),
    on_error="deny",
    charge_when=lambda response: response.status_code == 401,
)
async def login(request: Request) -> PlainTextResponse:
    form = await request.form()
    right = form.get("password") == "right"
    return PlainTextResponse("welcome\n") if right else PlainTextResponse("wrong\n", 401)


@limiter.limit(limit=2, window="5s")
async def inline(request: Request) -> PlainTextResponse:
    return PlainTextResponse("inline\n")


@limiter.limit("web")
@limiter.limit("tenant", key=lambda request: request.headers.get("X-Tenant") or NOT_LIMITED)
async def two(request: Request) -> PlainTextResponse:
    return PlainTextResponse("two\n")


@limiter.limit("slow", slot=True)
async def slow(request: Request) -> PlainTextResponse:
    await asyncio.sleep(int(request.query_params["ms"]) / 1000)
    return PlainTextResponse("slow\n")


@limiter.limit("stream", slot=True)
async def stream(request: Request) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        yield "one\n"
        await asyncio.sleep(0.1)
        yield "two\n"
        await asyncio.sleep(0.1)
        yield "three\n"

    return StreamingResponse(lines(), media_type="text/plain")


@limiter.limit("budget", cost=lambda request: int(request.query_params["n"]))
async def cost(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"cost {request.query_params['n']}\n")


@limiter.limit("login", skip=lambda request: request.headers.get("X-Probe") == "yes")
def skip(request: Request) -> PlainTextResponse:
    return PlainTextResponse("skip\n")


@limiter.limit("web", on_error="deny")
async def down(request: Request) -> PlainTextResponse:
    return PlainTextResponse("down\n")


def is_gold(request: Request) -> bool:
    return request.headers.get("X-Plan") == "gold"


@limiter.limit(
    limit=lambda request: 3 if is_gold(request) else 1,
    window=lambda request: "30s" if is_gold(request) else "60s",
    name="plan",
)
async def plan(request: Request) -> PlainTextResponse:
    return PlainTextResponse("plan\n")


def chosen(request: Request) -> Any:
    return NOT_LIMITED if request.query_params.get("policy") == "free" else request.query_params.get("policy")


@limiter.limit(chosen)
async def choose(request: Request) -> PlainTextResponse:
    return PlainTextResponse("choose\n")


@limiter.limit("web")
async def left(request: Request) -> PlainTextResponse:
    decision: Decision | None = request.state.ratelimit
    return PlainTextResponse("left unknown\n" if decision is None else f"left {decision.remaining} of {decision.of}\n")


@limiter.limit(limit=2, window="1m", name="guess", charge_when=lambda response: response.status_code == 403)
async def guess(request: Request) -> PlainTextResponse:
    is_right = request.query_params["right"] == "yes"
    return PlainTextResponse("right\n") if is_right else PlainTextResponse("wrong\n", 403)


async def slow_down(request: Request, decision: Decision) -> PlainTextResponse:
    return PlainTextResponse("slow down\n", 418, {"Retry-After": "99", "X-RateLimit-Limit": "99"})


@limiter.limit("budget", cost=lambda request: int(request.query_params["n"]), headers="both", respond=slow_down)
async def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse("own\n", headers={"X-RateLimit-Limit": "99"})


app = Starlette(
    routes=[
        Route("/ok", ok),
        Route("/login", login, methods=["POST"]),
        Route("/inline", inline),
        Route("/two", two),
        Route("/slow", slow),
        Route("/stream", stream),
        Route("/cost", cost),
        Route("/skip", skip),
        Route("/down", down),
        Route("/plan", plan),
        Route("/choose", choose),
        Route("/left", left),
        Route("/guess", guess),
        Route("/own", own),
        *starlette_attacks.routes(limiter, client),
    ]
)
limiter.init_app(app)
app.add_middleware(starlette_attacks.FindUser)

if __name__ == "__main__":
    serve(app)
