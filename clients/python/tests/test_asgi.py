"""Starlette and FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from conftest import fields_of
from fastapi import APIRouter, Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.applications import Starlette
from starlette.authentication import UnauthenticatedUser
from starlette.endpoints import HTTPEndpoint
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ratelimitd import AsyncClient, Refused
from ratelimitd.fastapi import NOT_LIMITED, Limit, Limiter
from ratelimitd.starlette import Limiter as StarletteLimiter
from ratelimitd.starlette import user
from ratelimitd.testing import AsyncFakeLimiter, Daemon


@pytest.fixture
async def client(ratelimitd: Daemon) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(ratelimitd.socket, timeout=5) as one:
        yield one


async def get(app: Any, *paths: str, **fields: str) -> list[httpx.Response]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as asks:
        return [await asks.get(path, headers=headers) for path in paths]


async def live(app: Any) -> list[str]:
    """The types of the messages of one life of the application."""
    sent: list[str] = []
    events = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> dict[str, str]:
        return {"type": next(events)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan", "state": {}}, receive, send)
    return sent


async def test_dependencies_of_all_levels_are_one_decision(key: str) -> None:
    fake = AsyncFakeLimiter()
    app = FastAPI(dependencies=[Limit("app", key=key)])
    Limiter(app, client=fake)
    api = APIRouter(dependencies=[Limit("router", key=key)])

    async def inner(_: None = Limit("deep", key=key)) -> None: ...

    @api.get("/search", dependencies=[Limit("10/5s"), Limit("tenant", key=lambda request: NOT_LIMITED)])
    async def search(_: None = Depends(inner)) -> dict[str, bool]:
        return {"found": True}

    app.include_router(api)
    [answer] = await get(app, "/search")
    assert answer.json() == {"found": True}
    assert {call[0] for call in fake.calls} == {"check_all"}
    names = {call[1] if isinstance(call[1], str) else "inline" for call in fake.calls}
    assert names == {"app", "router", "inline", "deep"}
    assert any(call[2] == "GET /search|127.0.0.1" for call in fake.calls)
    assert len(fields_of(answer.headers)["RateLimit"]) == 4


async def test_fields_are_on_every_kind_of_response(client: AsyncClient, key: str) -> None:
    app = FastAPI()
    Limiter(app, client=client)
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    app.get("/dict", dependencies=[Limit("tenant", key=key)])(lambda: {})
    app.get("/response", dependencies=[Limit("tenant", key=key)])(lambda: Response("x"))
    app.get("/stream", dependencies=[Limit("tenant", key=key)])(lambda: StreamingResponse(iter(["x"])))
    answers = await get(app, "/dict", "/response", "/stream", "/dict", Origin="http://other")
    assert [one.status_code for one in answers] == [200, 200, 200, 429]
    assert [fields_of(one.headers)["RateLimit"][0][1]["r"] for one in answers] == [2, 1, 0, 0]
    assert answers[3].json()["violated-policies"] == ["tenant"]
    assert answers[3].headers["Retry-After"] == "60"
    assert answers[3].headers["Access-Control-Allow-Origin"] == "*"


async def test_an_absent_daemon_allows_or_denies_and_lets_the_application_start(tmp_path: object) -> None:
    app = FastAPI()
    Limiter(app, client=AsyncClient(f"{tmp_path}/none"))
    app.get("/allow", dependencies=[Limit("web")])(lambda: "x")
    app.get("/deny", dependencies=[Limit("web", on_error="deny")])(lambda: "x")
    answers = await get(app, "/allow", "/deny")
    assert [one.status_code for one in answers] == [200, 503]
    assert (await live(app))[0] == "lifespan.startup.complete"


async def test_the_application_does_not_start_with_a_wrong_name(client: AsyncClient) -> None:
    app = Starlette()
    limiter = StarletteLimiter(app, client=client)
    limiter.limit("wbe")(lambda request: None)
    with pytest.raises(Refused, match="wbe"):
        await live(app)


async def test_endpoints_of_starlette(client: AsyncClient, key: str) -> None:
    limiter = StarletteLimiter(client=client, key=key)

    @limiter.limit("few")
    @limiter.limit("web")
    def in_thread(request: Request) -> Response:
        return PlainTextResponse("thread")

    class Endpoint(HTTPEndpoint):
        @limiter.limit("few", respond=lambda request, decision: PlainTextResponse(request.url.path, 418))
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("class")

    app = Starlette(routes=[Route("/thread", in_thread), Mount("/sub", routes=[Route("/class", Endpoint)])])
    limiter.init_app(app)
    answers = await get(app, "/thread", "/sub/class", "/thread", "/sub/class")
    assert [one.text for one in answers[:2]] == ["thread", "class"]
    assert [one.status_code for one in answers[2:]] == [429, 418]
    assert [name for name, _ in fields_of(answers[0].headers)["RateLimit"]] == ["few", "web"]
    assert (await client.peek("web", key)).remaining == 99


async def test_only_failures_are_charged_and_keys_may_be_async(client: AsyncClient, key: str) -> None:
    app = FastAPI()
    Limiter(app, client=client)

    async def of_query(request: Request) -> str:
        await asyncio.sleep(0)
        return key + request.query_params["user"]

    limit = Limit("few", key=of_query, charge_when=lambda response: response.status_code == 401)

    @app.get("/{status}", dependencies=[limit])
    async def login(status: int, user: str) -> Response:
        if status == 500:
            raise RuntimeError
        return Response(status_code=status)

    paths = [f"/{status}?user=a" for status in (200, 500, 200, 401, 200, 401, 200)]
    statuses = [one.status_code for one in await get(app, *paths, "/200?user=b")]
    assert statuses == [200, 500, 200, 401, 200, 401, 429, 200]


async def test_a_slot_is_held_until_the_body_has_ended_or_failed(client: AsyncClient, key: str) -> None:
    app = FastAPI()
    Limiter(app, client=client)
    free = []

    @app.get("/{path}", dependencies=[Limit("slots", key=key, slot=True)])
    async def stream(path: str) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            yield "one"
            free.append((await client.peek("slots", key)).remaining)
            if path == "fails":
                raise RuntimeError
            yield "two"

        return StreamingResponse(lines())

    await get(app, "/works", "/fails")
    assert free == [1, 1]
    assert (await client.peek("slots", key)).remaining == 2


async def test_a_client_that_leaves_gives_its_slot_back(client: AsyncClient, key: str) -> None:
    app = FastAPI()
    Limiter(app, client=client)

    @app.get("/", dependencies=[Limit("slots", key=key, slot=True)])
    async def slow() -> None:
        assert (await client.peek("slots", key)).remaining == 1
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    request = asyncio.create_task(get(app, "/"))
    await started.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (await client.peek("slots", key)).remaining == 2


async def test_the_default_is_for_what_declares_no_limit(key: str) -> None:
    fake = AsyncFakeLimiter()
    limiter = StarletteLimiter(client=fake, default=["web", "10/s"])

    def plain(request: HTTPConnection) -> Response:
        return PlainTextResponse("plain")

    class Endpoint(HTTPEndpoint):
        @limiter.limit("few")
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("class")

    inner = [Route("/plain", plain), Route("/class", Endpoint)]
    app = Starlette(
        routes=[
            Route("/own", limiter.limit("few")(lambda request: PlainTextResponse("own"))),
            Route("/exempt", limiter.exempt(lambda request: PlainTextResponse("exempt"))),
            Mount("/static", StaticFiles(directory=".")),
            Mount("/sub", routes=inner),
        ]
    )
    limiter.init_app(app)
    answers = await get(app, "/own", "/exempt", "/static/README.md", "/sub/class", "/sub/plain", "/sub/nowhere")
    assert [one.status_code for one in answers] == [200, 200, 200, 200, 200, 404]
    assert [name for name, _ in fields_of(answers[4].headers)["RateLimit"]] == ["web", "inline"]
    assert [call[0] for call in fake.calls] == ["check", "check", *["check_all"] * 4]
    assert [call[2] for call in fake.calls if not isinstance(call[1], str)] == [
        "GET /sub/plain|127.0.0.1",
        "*|127.0.0.1",
    ]

    fake.deny("web", 3)
    [denied, own] = await get(app, "/nowhere", "/own")
    assert (denied.status_code, denied.headers["Retry-After"], own.status_code) == (429, "3", 200)


async def test_a_default_of_fastapi_is_for_the_whole_application() -> None:
    fake = AsyncFakeLimiter()
    app = FastAPI()
    Limiter(app, client=fake, default="web")
    api = APIRouter(prefix="/api")
    api.get("/plain")(lambda: "plain")
    api.get("/own", dependencies=[Limit("few")])(lambda: "own")
    app.include_router(api)
    app.mount("/mounted", Starlette(routes=[Route("/x", lambda request: PlainTextResponse("x"))]))
    paths = ("/api/plain", "/mounted/x", "/mounted/nowhere", "/docs", "/openapi.json", "/nowhere", "/api/own")
    await get(app, *paths)
    assert [call[1] for call in fake.calls] == ["web"] * 6 + ["few"]
    fake.deny("web")
    assert [one.status_code for one in await get(app, *paths)] == [429] * 6 + [200]


async def test_users_of_the_authentication_middleware(key: str) -> None:
    class Who:
        is_authenticated = True
        identity = "alice"

    fake = AsyncFakeLimiter()
    limiter = StarletteLimiter(client=fake)
    view = limiter.limit("web", key=user)(lambda request: PlainTextResponse("x"))
    app = Starlette(routes=[Route("/", view)])
    limiter.init_app(app)

    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "user": Who()}, receive, send)

    async def with_nobody(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "user": UnauthenticatedUser()}, receive, send)

    await get(with_nobody, "/")
    await get(with_user, "/")
    assert [call[2] for call in fake.calls] == ["i|127.0.0.1", "u|alice"]
    assert [one.status_code for one in await get(app, "/")] == [500]  # without the middleware


async def test_a_limit_without_a_limiter_is_an_error() -> None:
    app = FastAPI()
    app.get("/", dependencies=[Limit("web")])(lambda: "x")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as asks:
        with pytest.raises(RuntimeError, match=r"limiter = Limiter\(app\)"):
            await asks.get("/")
