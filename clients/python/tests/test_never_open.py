"""A limit that is declared takes effect, or the program fails. Each test is one way in which it was silently open."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import flask
import flask.views
import httpx
import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client as Browser
from django.test import override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from fastapi import FastAPI, Request, WebSocket
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.endpoints import HTTPEndpoint
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute

from ratelimitd import Unavailable, starlette
from ratelimitd import django as limits
from ratelimitd.fastapi import Limit as Dependency
from ratelimitd.fastapi import Limiter as FastLimiter
from ratelimitd.flask import Limiter
from ratelimitd.keys import ip
from ratelimitd.limits import Limit
from ratelimitd.testing import AsyncFakeLimiter, FakeLimiter

# ---- Flask


@pytest.fixture
def app() -> flask.Flask:
    return flask.Flask("shop")


def asked(fake: FakeLimiter | AsyncFakeLimiter) -> list[tuple[Any, Any]]:
    return [(policy, key) for _, policy, key, *_ in fake.calls]


def test_a_limit_on_a_blueprint_is_refused(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake)
    with pytest.raises(TypeError, match="no view"):
        limiter.limit("web")(flask.Blueprint("api", "shop"))  # type: ignore[type-var]
    with pytest.raises(TypeError, match="no view"):
        limiter.limit("web")(app)


def test_a_method_of_a_class_based_view_is_limited(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake, default="web")

    class Items(flask.views.MethodView):
        @limiter.limit("read")
        def get(self) -> str:
            return "get"

        def post(self) -> str:
            return "post"

    app.add_url_rule("/items", view_func=Items.as_view("items"))
    asks = app.test_client()
    fake.deny("read")
    assert [asks.get("/items").status_code, asks.head("/items").status_code, asks.post("/items").status_code] == [
        429,
        429,
        200,
    ]
    limiter.verify()


def test_a_class_based_view_is_limited_by_a_mark_at_the_class(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake)

    @limiter.limit("web")
    class Items(flask.views.MethodView):
        def get(self) -> str:
            return "get"

    class More(Items):
        pass

    limiter.limit("more")(More)
    app.add_url_rule("/items", view_func=Items.as_view("items"))
    app.add_url_rule("/more", view_func=More.as_view("more"))
    asks = app.test_client()
    assert [asks.get(one).status_code for one in ("/items", "/more")] == [200, 200]
    assert asked(fake) == [("web", "127.0.0.1"), ("more", "127.0.0.1"), ("web", "127.0.0.1")]


def test_class_based_views_are_endpoints_of_their_own(app: flask.Flask, fake: FakeLimiter) -> None:
    Limiter(app, client=fake, default="10/5s")
    for name in ("One", "Two"):
        kind = type(name, (flask.views.MethodView,), {"get": lambda self: "ok", "__module__": "shop.views"})
        app.add_url_rule(f"/{name}", view_func=kind.as_view(name.lower()))
    for name in ("One", "Two"):
        app.test_client().get(f"/{name}")
    assert [key for _, key in asked(fake)] == ["shop|GET /One|127.0.0.1", "shop|GET /Two|127.0.0.1"]


def test_a_limit_on_a_function_that_is_no_view_is_asked_where_it_is_called(
    app: flask.Flask, fake: FakeLimiter, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = Limiter(app, client=fake, service="shop")

    @limiter.limit("10/s", key="k")
    def helper() -> str:
        return "help"

    app.get("/")(lambda: helper())
    app.get("/free", endpoint="free")(lambda: "free")
    limiter.verify()
    assert [one.getMessage() for one in caplog.records if "no views" in one.getMessage()] == [
        f"limits at functions that are no views of the application: {helper.__module__}.{helper.__qualname__}"
    ]
    assert [app.test_client().get(one).status_code for one in ("/", "/free")] == [200, 200]
    assert [key for _, key in asked(fake)] == [f"shop|{helper.__module__}.{helper.__qualname__}|k"]


def test_a_limit_under_a_decorator_without_wraps_is_asked(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake)

    def forgets(view: Callable[[], str]) -> Callable[[], str]:
        def inner() -> str:
            return view()

        return inner

    @app.get("/")
    @forgets
    @limiter.limit("web")
    def search() -> str:
        return "found"

    fake.deny("web")
    assert app.test_client().get("/").status_code == 429


def test_a_limit_above_a_decorator_of_the_routed_function_is_an_error(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake)

    def passes(view: Callable[[], str]) -> Callable[[], str]:
        return functools.wraps(view)(lambda: view())

    @limiter.limit("web")
    @passes
    @app.get("/")
    def search() -> str:
        return "found"

    assert app.test_client().get("/").status_code == 500
    with pytest.raises(RuntimeError, match="search would never be asked"):
        limiter.verify()


def test_a_limiter_without_init_app_is_an_error(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(client=fake)

    @limiter.limit("web")
    @app.get("/above")
    def above() -> str:
        return "open"

    @app.get("/below")
    @limiter.limit("web")
    def below() -> str:
        return "open"

    app.get("/free")(lambda: "free")
    asks = app.test_client()
    assert [asks.get(one).status_code for one in ("/above", "/below", "/free")] == [500, 500, 200]


def test_only_static_files_are_free_of_the_default(tmp_path: Any, fake: FakeLimiter) -> None:
    (tmp_path / "x").write_text("file")
    app = flask.Flask("shop", static_folder=str(tmp_path), static_url_path="/static")
    Limiter(app, client=fake, default="web")
    pages = flask.Blueprint(
        "pages", "shop", static_folder=str(tmp_path), static_url_path="/static", url_prefix="/pages"
    )
    pages.get("/ecstatic", endpoint="ecstatic")(lambda: "ok")
    app.register_blueprint(pages)
    app.get("/nonstatic", endpoint="nonstatic")(lambda: "ok")
    other = flask.Blueprint("other", "shop", url_prefix="/other")
    other.get("/static", endpoint="static")(lambda: "ok")
    app.register_blueprint(other)
    asks = app.test_client()
    for one in ("/static/x", "/pages/static/x"):
        with asks.get(one) as response:
            assert response.text == "file"
    assert fake.calls == []
    for one in ("/nonstatic", "/pages/ecstatic", "/other/static"):
        assert asks.get(one).status_code == 200
    assert len(fake.calls) == 3


# ---- Django


def answers(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


@method_decorator(limits.ratelimit("outer", key="k"), name="dispatch")
@method_decorator(limits.ratelimit("inner", key="k"), name="dispatch")
class Stacked(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("stacked")


@method_decorator(limits.ratelimit("10/5s"), name="dispatch")
class First(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("first")


@method_decorator(limits.ratelimit("10/5s"), name="dispatch")
class Second(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("second")


class Method(View):
    @method_decorator(limits.ratelimit("10/5s"))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("method")


urlpatterns = [
    path("stacked", Stacked.as_view()),
    path("first", First.as_view()),
    path("second", Second.as_view()),
    path("method", Method.as_view()),
]


@pytest.fixture
def in_django(fake: FakeLimiter) -> Any:
    with override_settings(ROOT_URLCONF=__name__, RATELIMIT={"client": fake, "service": "shop"}):
        yield Browser()


def test_stacked_method_decorators_are_both_enforced(in_django: Browser, fake: FakeLimiter) -> None:
    for denied in ("outer", "inner"):
        fake.allow_all()
        fake.deny(denied)
        assert in_django.get("/stacked").status_code == 429
    fake.allow_all()
    fake.calls.clear()
    for _ in range(3):
        assert in_django.get("/stacked").status_code == 200
    assert asked(fake) == [("outer", "k"), ("inner", "k")] * 3  # and the list does not grow


def test_class_based_views_of_django_are_endpoints_of_their_own(in_django: Browser, fake: FakeLimiter) -> None:
    for one in ("/first", "/second", "/method"):
        assert in_django.get(one).status_code == 200
    assert [key for _, key in asked(fake)] == [f"shop|{one}|127.0.0.1" for one in ("first", "second", "GET method")]


def test_a_limit_on_a_class_of_django_is_refused() -> None:
    with pytest.raises(TypeError, match="method_decorator"):
        limits.ratelimit("web")(Method)


# ---- Starlette and FastAPI


async def get(app: Any, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as asks:
        return await asks.get(path)


async def visit(app: Any, path: str) -> list[Any]:
    """The messages that a WebSocket gets."""
    sent: list[Any] = []
    scope = {
        "type": "websocket", "path": path, "headers": [], "query_string": b"", "client": ("192.0.2.7", 1),
        "subprotocols": [], "root_path": "", "scheme": "ws", "server": ("test", 80), "state": {},
    }  # fmt: skip
    events = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}])

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def accepts(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


@pytest.mark.parametrize("how", ["the default", "a limit at the endpoint", "a dependency"])
async def test_a_denied_websocket_is_closed_with_1013(how: str) -> None:
    fake = AsyncFakeLimiter()
    fake.deny("web")
    if how == "a dependency":
        app: Any = FastAPI()
        FastLimiter(app, client=fake)
        app.add_api_websocket_route("/", accepts, dependencies=[Dependency("web")])
    else:
        limiter = starlette.Limiter(client=fake, default="web" if how == "the default" else ())
        endpoint = accepts if how == "the default" else limiter.limit("web")(accepts)
        app = Starlette(routes=[WebSocketRoute("/", endpoint)])
        limiter.init_app(app)
    [message] = await visit(app, "/")
    assert (message["type"], message["code"]) == ("websocket.close", 1013)
    fake.allow_all()
    assert [one["type"] for one in await visit(app, "/")] == ["websocket.accept", "websocket.close"]


async def test_a_mounted_fastapi_answers_429() -> None:
    fake = AsyncFakeLimiter()
    fake.deny("web", retry_after=7)
    inner = FastAPI()
    inner.get("/", dependencies=[Dependency("web")])(lambda: "ok")
    outer = FastAPI(routes=[Mount("/api", inner)])
    FastLimiter(outer, client=fake)
    answer = await get(outer, "/api/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.json()["violated-policies"] == ["web"]


async def test_the_answer_stays_ours_where_the_application_has_a_handler_for_http_errors() -> None:
    fake = AsyncFakeLimiter()
    fake.deny("web")
    app = FastAPI(exception_handlers={429: lambda request, error: PlainTextResponse("theirs", 418)})
    FastLimiter(app, client=fake)
    app.get("/", dependencies=[Dependency("web")])(lambda: "ok")
    assert (await get(app, "/")).json()["title"] == "Quota exceeded"


async def test_a_slot_goes_back_before_background_tasks() -> None:
    fake = AsyncFakeLimiter()
    limiter = starlette.Limiter(client=fake)
    held: list[Any] = []

    @limiter.limit("report", slot=True)
    async def report(request: Request) -> PlainTextResponse:
        held.append(request.scope["ratelimitd"].visit.asked[0].held)
        return PlainTextResponse("done", background=BackgroundTask(lambda: held.append(held[0].held)))

    app = Starlette(routes=[Route("/", report)])
    limiter.init_app(app)
    assert (await get(app, "/")).text == "done"
    assert held[1] is False


async def test_limits_on_what_takes_no_request_are_refused_when_they_are_written() -> None:
    async def search() -> str:
        return "found"

    async def with_query(q: str) -> str:
        return q

    async def with_request(request: Request, q: str = "") -> str:
        return q

    limiter = starlette.Limiter(client=AsyncFakeLimiter())
    with pytest.raises(TypeError, match=r"search takes no request"):
        limiter.limit("web")(search)
    with pytest.raises(TypeError, match="methods of a class"):
        limiter.limit("web")(type("Page", (HTTPEndpoint,), {}))
    fast = FastLimiter(FastAPI(), client=AsyncFakeLimiter())
    with pytest.raises(TypeError, match=r"with_query takes no Request"):
        fast.limit("web")(with_query)
    fast.limit("web")(with_request)


# ---- all of them


def test_a_switched_off_limiter_says_so_once(
    app: flask.Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RATELIMIT_ENABLED", "0")
    Limiter(app, client=FakeLimiter(), default="web")
    app.get("/")(lambda: "ok")
    app.test_client().get("/")
    app.test_client().get("/")
    assert [one.getMessage() for one in caplog.records] == ["RATELIMIT_ENABLED=0: no request is limited"]


@pytest.mark.parametrize(("on_error", "follows"), [("allow", "requests pass"), ("deny", "requests are answered 503")])
def test_the_line_about_an_unavailable_daemon_says_what_follows(
    app: flask.Flask, fake: FakeLimiter, caplog: pytest.LogCaptureFixture, on_error: Any, follows: str
) -> None:
    Limiter(app, client=fake, default="web", on_error=on_error)
    app.get("/")(lambda: "ok")
    fake.unavailable()
    for _ in range(3):
        app.test_client().get("/")
    [line] = [one.getMessage() for one in caplog.records]
    assert line.startswith("no decision from the rate limiter: unreachable: ")
    assert line.endswith(follows)


def test_the_service_is_said_once_at_the_start(
    app: flask.Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "till")
    Limiter(app, client=FakeLimiter(), default="5/s")
    assert [one.getMessage() for one in caplog.records] == [
        "limits at endpoints count for the service 'till' (OTEL_SERVICE_NAME)"
    ]


def test_the_package_of_a_django_project_is_its_service_and_said_once(
    fake: FakeLimiter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ratelimitd")
    urls = ModuleType("storefront.config.urls")
    urls.urlpatterns = urlpatterns  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, urls.__name__, urls)
    with override_settings(ROOT_URLCONF=urls.__name__, RATELIMIT={"client": fake}):
        for _ in range(2):
            assert Browser().get("/first").status_code == 200
    assert [key for _, key in asked(fake)] == ["storefront|first|127.0.0.1"] * 2
    assert [one.getMessage() for one in caplog.records if one.name == "ratelimitd"] == [
        "limits at endpoints count for the service 'storefront' (the application's name)"
    ]


@pytest.mark.parametrize("option", [{"on_eror": "deny"}, {"defualt": "web"}])
def test_an_option_of_a_wrong_name_is_refused(app: flask.Flask, option: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(option))):
        Limiter(app, **option)


@pytest.mark.parametrize(
    "option",
    [{"default": 7}, {"on_error": "denny"}, {"headers": "draft"}, {"reset": "later"}, {"service": 7}, {"key": 7}],
)
def test_an_option_of_a_wrong_value_is_refused(app: flask.Flask, option: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(option))):
        Limiter(app, client=FakeLimiter(), **option)


def test_a_dynamic_limit_that_gives_nonsense_is_an_error_of_that_request(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake)
    app.get("/")(limiter.limit(limit=lambda: flask.request.args["n"], window="5s")(lambda: "ok"))
    app.get("/cost", endpoint="cost")(limiter.limit("web", cost=lambda: -1)(lambda: "ok"))
    assert [app.test_client().get(one).status_code for one in ("/?n=3", "/cost")] == [500, 500]
    assert fake.calls == []


def test_an_error_in_on_error_gives_back_what_is_held(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake)
    held: list[Any] = []
    acquire = fake.acquire
    fake.acquire = lambda *a, **n: held.append(acquire(*a, **n)) or held[-1]  # type: ignore[method-assign]

    def breaks(error: Unavailable) -> str:
        raise RuntimeError

    def down(*_: Any, **__: Any) -> Any:
        raise Unavailable("unreachable", "away")

    fake.check = down  # type: ignore[method-assign]
    app.get("/")(limiter.limit("report", slot=True)(limiter.limit("web", on_error=breaks)(lambda: "ok")))
    assert app.test_client().get("/").status_code == 500
    assert [slot.held for slot in held] == [False]


def test_bytes_keys_are_those_bytes(app: flask.Flask, fake: FakeLimiter) -> None:
    limiter = Limiter(app, client=fake)
    app.get("/")(limiter.limit("web", key=lambda: b"\xff\x00")(lambda: "ok"))
    app.test_client().get("/")
    assert asked(fake) == [("web", b"\xff\x00")]


def test_a_peer_without_an_address_is_the_header_s_client_behind_a_number_of_proxies() -> None:
    # waitress on a Unix socket gives "localhost"
    assert ip(trusted_proxies=1).of("localhost", ["203.0.113.9"]) == "203.0.113.9"
    with pytest.raises(ValueError, match="no client address"):
        ip.of("localhost", ["203.0.113.9"])


def test_an_inline_limit_with_charge_when_is_refunded_by_a_daemon_that_cannot_reserve(
    app: flask.Flask, client: Any, key: str
) -> None:
    limiter = Limiter(app, client=client, key=key)
    client.features = frozenset()
    app.get("/<int:status>")(
        limiter.limit("2/minute", charge_when=lambda response: response.status_code == 401)(lambda status: ("", status))
    )
    asks = app.test_client()
    assert [asks.get(f"/{status}").status_code for status in (200, 200, 200, 401, 200, 401, 200)] == [
        200, 200, 200, 401, 200, 401, 429,
    ]  # fmt: skip


def test_limits_are_equal_only_if_they_are_the_same() -> None:
    assert Limit("web") != Limit("web")
