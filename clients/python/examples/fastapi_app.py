"""The example service in FastAPI."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import FastAPI, Form, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from serve import serve

from ratelimitd.fastapi import Limit, Limiter

app = FastAPI(default_response_class=PlainTextResponse)
limiter = Limiter(app)


async def user_of_form(request: Request) -> str:
    return str((await request.form())["user"])


@app.api_route("/ok", methods=["GET", "HEAD"], dependencies=[Limit("web")])
async def ok() -> str:
    return "ok\n"


@app.post(
    "/login",
    dependencies=[
        Limit("login", key=user_of_form, on_error="deny", charge_when=lambda response: response.status_code == 401)
    ],
)
async def login(user: Annotated[str, Form()], password: Annotated[str, Form()], response: Response) -> str:
    response.status_code = 200 if password == "right" else 401
    return "welcome\n" if password == "right" else "wrong\n"


@app.get("/inline", dependencies=[Limit(limit=2, window="5s")])
async def inline() -> str:
    return "inline\n"


@app.get("/two", dependencies=[Limit("web"), Limit("tenant", key=lambda request: request.headers.get("X-Tenant"))])
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


if __name__ == "__main__":
    serve(app)
