"""Ways around a limit that were seen, in this client or in others: whether, when, how often and under which name
middleware asks. The table of attacks (../conformance/attacks.yaml) has the kinds; here is what is peculiar to a
framework of Python.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import flask
import flask.views
import httpx
import pytest
from conftest import fields_of
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, WebSocket
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route

from ratelimitd import NOT_LIMITED, AsyncClient, Client, Unavailable
from ratelimitd import flask as of_flask
from ratelimitd import starlette as of_starlette
from ratelimitd.fastapi import Limit, Limiter
from ratelimitd.keys import user
from ratelimitd.limits import id_text
from ratelimitd.testing import AsyncFakeLimiter, Daemon, FakeLimiter


@pytest.fixture
def app() -> flask.Flask:
    return flask.Flask("shop")


def keys_of(fake: FakeLimiter | AsyncFakeLimiter) -> list[Any]:
    return [key for _, _, key, *_ in fake.calls]


async def get(app: Any, *paths: str, method: str = "GET", **fields: str) -> list[httpx.Response]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as asks:
        return [await asks.request(method, path, headers=headers) for path in paths]


def returns(text: str) -> Callable[..., str]:
    return lambda *_, **__: text


# ---- Flask: when


def test_a_later_hook_that_refuses_is_not_charged(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake)
    app.before_request(lambda: flask.abort(401))
    app.get("/")(limiter.limit("web")(returns("ok")))
    assert app.test_client().get("/").status_code == 401
    assert fake.calls == []


def test_a_limiter_of_an_unregistered_blueprint_leaves_the_others_alone(
    app: flask.Flask, fake: FakeLimiter, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = of_flask.Limiter(app, client=fake)
    one, two = flask.Blueprint("one", "shop"), flask.Blueprint("two", "shop")
    one.get("/one", endpoint="x")(limiter.limit("web")(returns("one")))
    two.get("/two", endpoint="x")(limiter.limit("web")(returns("two")))
    app.register_blueprint(one)
    assert app.test_client().get("/one").text == "one"
    limiter.verify()
    assert "no views of the application" in caplog.text


def test_a_refusal_passes_decorators_that_expect_data(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake)

    def as_json(view: Callable[[], Any]) -> Callable[[], Any]:
        return functools.wraps(view)(lambda: flask.jsonify(view()))

    app.get("/")(as_json(limiter.limit("web")(lambda: {"ok": 1})))
    app.register_error_handler(Exception, lambda error: ("theirs", 200))
    assert app.test_client().get("/").json == {"ok": 1}
    fake.deny("web")
    denied = app.test_client().get("/")
    assert (denied.status_code, denied.json["title"]) == (429, "Quota exceeded")


async def test_async_views_of_flask_are_asked(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake)

    async def search() -> str:
        await asyncio.sleep(0)
        return "found"

    app.get("/")(limiter.limit("web")(search))
    assert (await asyncio.to_thread(app.test_client().get, "/")).text == "found"
    fake.deny("web")
    assert (await asyncio.to_thread(app.test_client().get, "/")).status_code == 429


def test_one_application_context_around_several_requests_hides_none_of_them(
    app: flask.Flask, client: Client, key: str
) -> None:
    limiter = of_flask.Limiter(app, client=client)
    app.get("/")(limiter.limit("few", key=key)(returns("ok")))
    with app.app_context():
        assert [app.test_client().get("/").status_code for _ in range(3)] == [200, 200, 429]


# ---- Flask: how often


def test_two_limiters_of_one_application_charge_once(app: flask.Flask, client: Client, key: str) -> None:
    of_flask.Limiter(app, client=client, default=of_flask.Limit("web", key=key))
    other = of_flask.Limiter(app, client=Client(client.socket, timeout=5))
    app.get("/")(other.limit("web", key=key)(returns("ok")))
    answer = app.test_client().get("/")
    assert fields_of(answer.headers)["RateLimit"] == [("web", {"r": 99, "t": 60})]
    assert client.peek("web", key).remaining == 99


def test_a_denial_after_an_error_of_the_daemon_gives_nothing_back(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake)
    inner = limiter.limit("few", key="k", skip=lambda: fake.allow_all() or fake.deny("few"))(returns("ok"))
    app.get("/")(limiter.limit("web", key="k")(lambda: inner()))
    fake.unavailable()
    assert app.test_client().get("/").status_code == 429
    assert "refund" not in [method for method, *_ in fake.calls]


def test_a_slot_and_a_reservation_of_an_outer_place_go_back_when_an_inner_one_denies(
    app: flask.Flask, client: Client, key: str
) -> None:
    limiter = of_flask.Limiter(app, client=client)
    inner = limiter.limit("few", key=key)(returns("ok"))

    @app.get("/")
    @limiter.limit("slots", key=key, slot=True)
    @limiter.limit("tenant", key=key, charge_when=lambda response: True)
    def view() -> str:
        return inner()

    asks = app.test_client()
    assert [asks.get("/").status_code for _ in range(4)] == [200, 200, 429, 429]
    assert client.peek("tenant", key).remaining == 1
    assert client.stats()["slots"] == 0


def test_a_default_that_is_replaced_stays_replaced(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake, default="web")
    app.get("/")(limiter.limit("few")(returns("ok")))
    app.test_client().get("/")
    assert [policy for _, policy, *_ in fake.calls] == ["few"]


@pytest.mark.parametrize(
    ("verdict", "left"), [(True, 99), (False, 100), (0, 100), (5, 95), (200, 0), (5.0, 95), (None, 100), ("yes", 99)]
)
def test_charge_when_may_give_a_number(app: flask.Flask, client: Client, key: str, verdict: Any, left: int) -> None:
    limiter = of_flask.Limiter(app, client=client, key=key)
    app.get("/")(limiter.limit("web", charge_when=lambda response: verdict)(returns("ok")))
    assert app.test_client().get("/").status_code == 200
    assert client.peek("web", key).remaining == left


@pytest.mark.parametrize("verdict", [-1, 1.5, float("nan"), float("inf")])
def test_charge_when_that_gives_nonsense_is_an_error(app: flask.Flask, client: Client, key: str, verdict: Any) -> None:
    limiter = of_flask.Limiter(app, client=client, key=key)
    app.get("/")(limiter.limit("web", charge_when=lambda response: verdict)(returns("ok")))
    assert app.test_client().get("/").status_code == 500
    assert client.peek("web", key).remaining == 100


def test_units_beyond_what_is_left_are_said_once(
    app: flask.Flask, client: Client, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = of_flask.Limiter(app, client=client, key=key)
    app.get("/")(limiter.limit("web", charge_when=lambda response: 99)(returns("ok")))
    assert [app.test_client().get("/").status_code for _ in range(3)] == [200, 200, 429]
    assert len([one for one in caplog.records if "not all were left" in one.getMessage()]) == 1


def test_of_two_limits_for_one_counter_the_stricter_rule_counts_without_a_daemon(
    app: flask.Flask, fake: FakeLimiter
) -> None:
    limiter = of_flask.Limiter(app, client=fake, on_error="allow")
    app.get("/")(limiter.limit("web")(limiter.limit("web", on_error="deny")(returns("ok"))))
    app.get("/b", endpoint="b")(limiter.limit("web", on_error="deny")(limiter.limit("web")(returns("ok"))))
    fake.unavailable()
    assert [app.test_client().get(one).status_code for one in ("/", "/b")] == [503, 503]


# ---- Flask: under which name


class Callable3:
    """Objects of one class."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self) -> str:
        return self.text


def test_partials_objects_and_methods_are_endpoints_of_their_own(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake)
    views = {
        "partial-a": functools.partial(returns("x"), 1),
        "partial-b": functools.partial(returns("x"), 2),
        "object-a": Callable3("a"),
        "object-b": Callable3("b"),
    }
    for name, view in views.items():
        app.add_url_rule(f"/{name}", name, limiter.limit("3/h")(view))

    class Items(flask.views.MethodView):
        @limiter.limit("3/h")
        def get(self) -> str:
            return "get"

        @limiter.limit("3/h")
        def post(self) -> str:
            return "post"

    app.add_url_rule("/items", view_func=Items.as_view("items"))
    asks = app.test_client()
    assert [asks.get(f"/{name}").status_code for name in views] == [200] * 4
    assert [asks.get("/items").text, asks.post("/items").text, asks.head("/items").status_code] == ["get", "post", 200]
    assert keys_of(fake) == [f"shop|GET /{name}|127.0.0.1" for name in [*views, "items"]] + [
        "shop|POST /items|127.0.0.1",
        "shop|GET /items|127.0.0.1",
    ]


def test_hosts_are_part_of_the_name(fake: FakeLimiter) -> None:
    app = flask.Flask("shop", host_matching=True, static_folder=None)
    limiter = of_flask.Limiter(app, client=fake)
    for host in ("a.example", "b.example"):
        app.add_url_rule("/", host, limiter.limit("3/h")(returns("ok")), host=host)
    for host in ("a.example", "b.example"):
        assert app.test_client().get("/", base_url=f"http://{host}").status_code == 200
    assert keys_of(fake) == [f"shop|GET {host}/|127.0.0.1" for host in ("a.example", "b.example")]


def test_helpers_of_one_factory_are_refused(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake)

    def helper() -> Callable[[], str]:
        @limiter.limit("3/h")
        def inner() -> str:
            return "ok"

        return inner

    one, two = helper(), helper()
    app.get("/one", endpoint="one")(lambda: one())
    app.get("/two", endpoint="two")(lambda: two())
    assert [app.test_client().get(path).status_code for path in ("/one", "/one", "/two")] == [200, 200, 500]


def test_two_applications_with_one_service_and_equal_routes_are_refused(fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(client=fake, service="shop", default="3/h")
    apps = [flask.Flask(name) for name in ("one", "two")]
    for app in apps:
        limiter.init_app(app)
        app.get("/")(returns("ok"))
    assert [app.test_client().get("/").status_code for app in apps] == [200, 500]


@pytest.mark.parametrize(
    ("service", "level"), [("shop", "INFO"), ("app", "WARNING"), ("main", "WARNING"), ("", "WARNING")]
)
def test_a_service_that_many_programs_have_is_a_warning(
    caplog: pytest.LogCaptureFixture, fake: FakeLimiter, service: str, level: str
) -> None:
    caplog.set_level(logging.INFO)
    of_flask.Limiter(flask.Flask(service or "x"), client=fake, service=service)
    assert [one.levelname for one in caplog.records] == [level]


@pytest.mark.parametrize("parts", [(), ("",), (7,), ("x", None)])
def test_parts_of_a_key_that_are_none_are_refused(parts: Any) -> None:
    with pytest.raises(ValueError, match="part"):
        of_flask.composite(*parts)


# ---- Starlette and FastAPI


async def test_a_dependency_before_a_limit_is_resolved_before_it() -> None:
    fake = AsyncFakeLimiter()
    app = FastAPI(dependencies=[Limit("web", key="k")])
    Limiter(app, client=fake)

    async def login(request: Request) -> None:
        if "authorization" not in request.headers:
            raise HTTPException(401)
        request.state.user = request.headers["authorization"]

    mine = Limit("3/h", key=user(lambda request: request.state.user))
    app.get("/", dependencies=[Depends(login), mine, Limit("few", key="k")])(lambda: "ok")
    assert [one.status_code for one in await get(app, "/")] == [401]
    assert [one.status_code for one in await get(app, "/", authorization="alice")] == [200]
    assert [(method, key) for method, _, key, *_ in fake.calls] == [
        ("check", "k"),
        ("check", "k"),
        ("check_all", "GET /|u|alice"),
        ("check_all", "k"),
    ]


async def test_a_limit_above_the_route_stops_the_start() -> None:
    app = FastAPI()
    limiter = Limiter(app, client=AsyncFakeLimiter())

    @limiter.limit("never")
    @app.get("/x")
    async def x(request: Request) -> str:
        return "x"

    with pytest.raises(RuntimeError, match="x would never be asked"):
        await limiter.verify()
    assert [one.status_code for one in await get(app, "/x")] == [500]


async def test_a_limit_on_a_function_that_is_routed_without_it_stops_the_start() -> None:
    async def search(request: Request) -> PlainTextResponse:
        return PlainTextResponse("found")

    class Page(HTTPEndpoint):
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("page")

    limiter = of_starlette.Limiter(client=AsyncFakeLimiter())
    app = Starlette(routes=[Mount("/api", routes=[Route("/search", search)]), Route("/page", Page)])
    limiter.init_app(app)
    limiter.limit("web")(search)
    assert [one.status_code for one in await get(app, "/page")] == [500]


async def test_names_have_mounts_hosts_and_methods() -> None:
    fake = AsyncFakeLimiter()
    limiter = of_starlette.Limiter(client=fake)
    ok = limiter.limit("3/h")(lambda request: PlainTextResponse("ok"))

    class Page(HTTPEndpoint):
        @limiter.limit("3/h")
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("page")

        @limiter.limit("3/h")
        async def post(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("page")

    inner = [Route("/x/{id}", ok), Route("/page", Page)]
    app = Starlette(routes=[Mount("/a/{tenant}", routes=inner), Host("api.example", Starlette(routes=inner))])
    limiter.init_app(app)
    assert [one.status_code for one in await get(app, "/a/1/x/2", "/a/3/x/4", "/a/1/page")] == [200] * 3
    assert [one.status_code for one in await get(app, "/a/1/page", method="POST")] == [200]
    assert [one.status_code for one in await get(app, "/x/1", host="api.example")] == [200]
    assert [key.rpartition("|")[0] for key in keys_of(fake)] == [
        "GET /a/{tenant}/x/{id}",
        "GET /a/{tenant}/x/{id}",
        "GET /a/{tenant}/page",
        "POST /a/{tenant}/page",
        "GET api.example/x/{id}",
    ]


async def test_a_mounted_application_with_a_limiter_of_its_own_is_one_request() -> None:
    fake = AsyncFakeLimiter()
    inner = FastAPI()
    Limiter(inner, client=fake)
    inner.get("/x", dependencies=[Limit("web", key="k"), Limit("few", key="k")])(lambda: "ok")
    outer = FastAPI()
    Limiter(outer, client=fake, default=of_starlette.Limit("web", key="k"))

    async def hidden(
        scope: Any, receive: Any, send: Any
    ) -> None:  # its routes are not to be seen, so the default counts
        await inner(scope, receive, send)

    outer.mount("/sub", hidden)
    [answer] = await get(outer, "/sub/x")
    assert [policy for _, policy, *_ in fake.calls] == ["web", "few"]
    assert [name for name, _ in fields_of(answer.headers)["RateLimit"]] == ["web", "few"]
    fake.deny("few")
    assert [one.status_code for one in await get(outer, "/sub/x")] == [429]
    assert fake.calls[-1][:3] == ["refund", "web", "k"]


async def test_equal_routes_of_two_mounted_applications_are_two_endpoints() -> None:
    fake = AsyncFakeLimiter()
    outer = FastAPI()
    for name in ("one", "two"):
        inner = FastAPI()
        Limiter(inner, client=fake)
        inner.get("/x", dependencies=[Limit("3/h")])(lambda: "ok")
        outer.mount(f"/{name}", inner)
    await get(outer, "/one/x", "/two/x")
    assert keys_of(fake) == ["GET /one/x|127.0.0.1", "GET /two/x|127.0.0.1"]


async def test_a_websocket_and_a_page_of_one_path_are_two_endpoints() -> None:
    fake = AsyncFakeLimiter()
    app = FastAPI()
    Limiter(app, client=fake)

    async def talks(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    app.get("/x", dependencies=[Limit("3/h")])(lambda: "ok")
    app.add_api_websocket_route("/x", talks, dependencies=[Limit("3/h")])
    await get(app, "/x")
    events = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}])
    scope = {
        "type": "websocket", "path": "/x", "headers": [], "query_string": b"", "client": ("192.0.2.7", 1),
        "subprotocols": [], "root_path": "", "scheme": "ws", "server": ("test", 80), "state": {},
    }  # fmt: skip

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None: ...

    await app(scope, receive, send)
    assert keys_of(fake) == ["GET /x|127.0.0.1", "WEBSOCKET /x|192.0.2.7"]


async def test_one_router_included_twice_is_two_endpoints() -> None:
    fake = AsyncFakeLimiter()
    app, api = FastAPI(), APIRouter(dependencies=[Limit("3/h")])
    Limiter(app, client=fake)
    api.get("/x")(lambda: "ok")
    for name in ("a", "b"):
        app.include_router(api, prefix=f"/{name}")
    await get(app, "/a/x", "/b/x")
    assert keys_of(fake) == ["GET /a/x|127.0.0.1", "GET /b/x|127.0.0.1"]


async def test_not_limited_leaves_out_one_limit_alone() -> None:
    fake = AsyncFakeLimiter()
    app = FastAPI()
    Limiter(app, client=fake)
    app.get("/", dependencies=[Limit("web", key="k"), Limit("few", key=lambda request: NOT_LIMITED)])(lambda: "ok")
    app.get("/policy", dependencies=[Limit(lambda request: NOT_LIMITED), Limit("web", key="k")])(lambda: "ok")
    app.get("/none", dependencies=[Limit(lambda request: None), Limit("web", key="k")])(lambda: "ok")
    assert [one.status_code for one in await get(app, "/", "/policy", "/none")] == [200, 200, 503]
    assert [policy for _, policy, *_ in fake.calls] == ["web", "web"]


# ---- a limit that moves


def test_a_limit_that_moves_carries_the_name_of_its_endpoint(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = of_flask.Limiter(app, client=fake)
    turns = iter(range(1, 100))

    @app.get("/")
    @limiter.limit(limit=lambda: next(turns), window="1h")
    @limiter.limit(lambda: f"{next(turns)}/h")
    @limiter.limit("3/h")
    @limiter.limit(limit=lambda: next(turns), algorithm="token_bucket", window="1h", burst=5)
    @limiter.limit(limit=lambda: next(turns), window="1h", id="mine")
    @limiter.limit(limit=lambda: next(turns), window="1h", name="all", per_endpoint=False)
    def view() -> str:
        return "ok"

    app.test_client().get("/")
    assert [policy.get("id") for _, policy, *_ in fake.calls] == ["GET /", "GET /#2", None, None, "mine", "all#5"]


def test_an_id_fits_the_daemon() -> None:
    assert id_text("GET /search") == "GET /search"
    long = id_text("GET /" + "x" * 300)
    assert (len(long), long[:5]) == (129, "GET /")
    assert "\n" not in id_text("GET /\n")
    assert id_text("GET /\n") != id_text("GET /\r")


# ---- ordinary faults


@pytest.mark.parametrize("timeout", [None, float("inf"), float("nan"), -1, "1", True])
def test_a_timeout_that_never_ends_is_refused_when_the_client_is_made(timeout: Any) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="timeout"):
            kind("/tmp/none", timeout=timeout)


async def test_calls_that_fail_at_once_let_other_tasks_run(tmp_path: Any) -> None:
    client = AsyncClient(f"{tmp_path}/none")
    n_turns = 0

    async def turns() -> None:
        nonlocal n_turns
        while True:
            n_turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(turns())
    for _ in range(100):
        with pytest.raises(Unavailable):
            await client.check("web", "k")
    other.cancel()
    assert n_turns >= 100


async def test_remembered_denials_let_other_tasks_run(ratelimitd: Daemon, key: str) -> None:
    n_turns = 0
    async with AsyncClient(ratelimitd.socket, timeout=5, remember_denials=60) as client:
        for _ in range(3):
            await client.check("few", key)

        async def turns() -> None:
            nonlocal n_turns
            while True:
                n_turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(turns())
        for _ in range(100):
            assert (await client.check("few", key)).source == "deny_cache"
        other.cancel()
    assert n_turns >= 100


# ---- OpenTelemetry


def test_the_span_of_a_request_gets_the_decision(app: flask.Flask, fake: FakeLimiter) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    seen, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    limiter = of_flask.Limiter(app, client=fake)
    app.get("/")(limiter.limit("web")(returns("ok")))
    app.get("/named", endpoint="named")(limiter.limit("3/h", name="search")(returns("ok")))
    app.get("/free", endpoint="free")(returns("ok"))

    def visit(path: str) -> dict[str, Any]:
        with provider.get_tracer("test").start_as_current_span("request"):
            app.test_client().get(path)
        return dict(seen.get_finished_spans()[-1].attributes)

    assert visit("/") == {"ratelimit.policy": "web", "ratelimit.result": "allowed", "ratelimit.source": "memory"}
    assert visit("/named")["ratelimit.policy"] == "search"
    fake.deny("web")
    assert visit("/")["ratelimit.result"] == "denied"
    assert visit("/free") == {}
    fake.unavailable()
    assert visit("/") == {}
