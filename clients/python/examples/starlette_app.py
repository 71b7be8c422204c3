"""The example service in Starlette."""

import asyncio
from collections.abc import AsyncIterator

from serve import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from ratelimitd.starlette import Limiter

limiter = Limiter()


@limiter.limit("web")
async def ok(request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok\n")


async def user_of_form(request: Request) -> str:
    return str((await request.form())["user"])


@limiter.limit("login", key=user_of_form, on_error="deny", charge_when=lambda response: response.status_code == 401)
async def login(request: Request) -> PlainTextResponse:
    form = await request.form()
    right = form["password"] == "right"
    return PlainTextResponse("welcome\n") if right else PlainTextResponse("wrong\n", 401)


@limiter.limit(limit=2, window="5s")
async def inline(request: Request) -> PlainTextResponse:
    return PlainTextResponse("inline\n")


@limiter.limit("web")
@limiter.limit("tenant", key=lambda request: request.headers.get("X-Tenant"))
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
    ]
)
limiter.init_app(app)

if __name__ == "__main__":
    serve(app)
