"""The example service in FastAPI."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

import fastapi_attacks
from fastapi import FastAPI, Form, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from serve import serve

from ratelimitd import AsyncClient, Decision
from ratelimitd.fastapi import NOT_LIMITED, Limit, Limiter, composite, ip

app = FastAPI(default_response_class=PlainTextResponse)
limiter = Limiter(app, client=AsyncClient(timeout=float(os.environ.get("TIMEOUT_MS", "250")) / 1000))


async def user_of_form(request: Request) -> str:
    return str((await request.form()).get("user") or "-")


@app.api_route("/ok", methods=["GET", "HEAD"], dependencies=[Limit("web")])
async def ok() -> str:
    return "ok\n"


@app.post(
    "/login",
    dependencies=[
        Limit(
            "login",
            key=composite(user_of_form, ip),
            on_error="deny",
            charge_when=lambda response: response.status_code == 401,
        )
    ],
)
async def login(response: Response, password: Annotated[str, Form()] = "") -> str:
    response.status_code = 200 if password == "right" else 401
    return "welcome\n" if password == "right" else "wrong\n"


@app.get("/inline", dependencies=[Limit(limit=2, window="5s")])
async def inline() -> str:
    return "inline\n"


def tenant(request: Request) -> Any:
    return request.headers.get("X-Tenant") or NOT_LIMITED


@app.get(
    "/two",
    dependencies=[Limit("web"), Limit("tenant", key=tenant)],
)
async def two() -> str:
    return "two\n"


@app.get("/slow", dependencies=[Limit("slow", slot=True)])
async def slow(ms: int) -> str:
    await asyncio.sleep(ms / 1000)
    return "slow\n"


@app.get("/stream", dependencies=[Limit("stream", slot=True)])
async def stream() -> Response:
    async def lines() -> AsyncIterator[str]:
        yield "one\n"
        await asyncio.sleep(0.1)
        yield "two\n"
        await asyncio.sleep(0.1)
        yield "three\n"

    return StreamingResponse(lines(), media_type="text/plain")


@app.get("/cost", dependencies=[Limit("budget", cost=lambda request: int(request.query_params["n"]))])
async def cost(n: int) -> str:
    return f"cost {n}\n"


@app.get("/skip", dependencies=[Limit("login", skip=lambda request: request.headers.get("X-Probe") == "yes")])
def skip() -> str:
    return "skip\n"


@app.get("/down", dependencies=[Limit("web", on_error="deny")])
async def down() -> str:
    return "down\n"


def is_gold(request: Request) -> bool:
    return request.headers.get("X-Plan") == "gold"


PLAN = Limit(
    limit=lambda request: 3 if is_gold(request) else 1,
    window=lambda request: "30s" if is_gold(request) else "60s",
    name="plan",
)


@app.get("/plan", dependencies=[PLAN])
async def plan() -> str:
    return "plan\n"


def chosen(request: Request) -> Any:
    return NOT_LIMITED if request.query_params.get("policy") == "free" else request.query_params.get("policy")


@app.get("/choose", dependencies=[Limit(chosen)])
async def choose() -> str:
    return "choose\n"


@app.get("/left", dependencies=[Limit("web")])
async def left(request: Request) -> str:
    decision: Decision | None = request.state.ratelimit
    return "left unknown\n" if decision is None else f"left {decision.remaining} of {decision.of}\n"


GUESS = Limit(limit=2, window="1m", name="guess", charge_when=lambda response: response.status_code == 403)


@app.get("/guess", dependencies=[GUESS])
async def guess(right: str, response: Response) -> str:
    response.status_code = 200 if right == "yes" else 403
    return "right\n" if right == "yes" else "wrong\n"


async def slow_down(request: Request, decision: Decision) -> PlainTextResponse:
    return PlainTextResponse("slow down\n", 418, {"Retry-After": "99", "X-RateLimit-Limit": "99"})


OWN = Limit("budget", cost=lambda request: int(request.query_params["n"]), headers="both", respond=slow_down)


@app.get("/own", dependencies=[OWN])
async def own(response: Response) -> str:
    response.headers["X-RateLimit-Limit"] = "99"
    return "own\n"


fastapi_attacks.add(app, limiter)

if __name__ == "__main__":
    serve(app)
