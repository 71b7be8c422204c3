from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from conftest import fields_of
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient as AsyncBrowser
from django.test import Client as Browser
from django.test import override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from ratelimitd import Client, Refused
from ratelimitd import django as limits
from ratelimitd.testing import AsyncFakeLimiter, Daemon, FakeLimiter


def query_key(request: HttpRequest) -> str:
    return request.GET["key"]


@limits.ratelimit("few", key=query_key)
@limits.ratelimit("web", key=query_key)
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("plain")


async def async_key(request: HttpRequest) -> str:
    return request.GET["key"]


@limits.ratelimit("few", key=async_key)
async def in_loop(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse("loop")


@method_decorator(limits.ratelimit("few", key=query_key), name="dispatch")
class Class(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("class")


@limits.ratelimit("few", key=query_key, charge_when=lambda response: response.status_code == 401)
def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=int(request.GET["status"]))


@limits.ratelimit("slots", key=query_key, slot=True)
def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter(["one", "two"]))


@limits.ratelimit("slots", key=query_key, slot=True)
async def stream_in_loop(request: HttpRequest) -> StreamingHttpResponse:
    async def lines() -> AsyncIterator[str]:
        yield "one"
        yield "two"

    return StreamingHttpResponse(lines())


@limits.exempt
def exempt(request: HttpRequest) -> HttpResponse:
    return HttpResponse("exempt")


def default(request: HttpRequest) -> HttpResponse:
    return HttpResponse("default")


urlpatterns = [
    path("plain", plain),
    path("loop", in_loop),
    path("class", Class.as_view()),
    path("login", login),
    path("stream", stream),
    path("stream-in-loop", stream_in_loop),
    path("exempt", exempt),
    path("default", default),
]


@pytest.fixture
def configured(ratelimitd: Daemon) -> Iterator[None]:
    with override_settings(RATELIMIT={"socket": ratelimitd.socket, "timeout": 5}):
        yield
        limits._config().client.close()


@pytest.mark.parametrize("view", ["plain", "loop", "class"])
def test_views_of_all_kinds_without_a_loop(configured: None, key: str, view: str) -> None:
    answers = [Browser().get(f"/{view}?key={key}") for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert answers[2]["Retry-After"] == "60"
    assert answers[2]["Content-Type"] == "application/problem+json"
    assert [fields_of(one.headers)["RateLimit"][0][1]["r"] for one in answers] == [1, 0, 0]


@pytest.mark.parametrize("view", ["plain", "loop", "class"])
async def test_views_of_all_kinds_in_a_loop(configured: None, key: str, view: str) -> None:
    answers = [await AsyncBrowser().get(f"/{view}?key={key}") for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert fields_of(answers[2].headers)["RateLimit"][0] == ("few", {"r": 0, "t": 60})
    await limits._config().async_client.aclose()


def test_several_decorators_are_one_decision(configured: None, client: Client, key: str) -> None:
    [first, *_] = [Browser().get(f"/plain?key={key}") for _ in range(3)]
    assert [name for name, _ in fields_of(first.headers)["RateLimit"]] == ["few", "web"]
    assert client.peek("web", key).remaining == 98


def test_only_failures_are_charged(configured: None, key: str) -> None:
    statuses = [Browser().get(f"/login?key={key}&status={status}").status_code for status in (200, 401, 200, 401, 200)]
    assert statuses == [200, 401, 200, 401, 429]


@pytest.mark.parametrize("view", ["stream", "stream-in-loop"])
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_a_slot_is_held_until_the_body_has_ended(configured: None, client: Client, key: str, view: str) -> None:
    response = Browser().get(f"/{view}?key={key}")
    assert client.peek("slots", key).remaining == 1
    assert b"".join(response) == b"onetwo"
    assert client.peek("slots", key).remaining == 2


async def test_a_slot_of_an_async_view_is_held_until_the_response_is_closed(
    configured: None, client: Client, key: str
) -> None:
    response = await AsyncBrowser().get(f"/stream-in-loop?key={key}")
    assert client.peek("slots", key).remaining == 1
    await asyncio.to_thread(response.close)
    for _ in range(1000):
        if client.peek("slots", key).remaining == 2:
            break
        await asyncio.sleep(0.01)
    assert client.peek("slots", key).remaining == 2
    await limits._config().async_client.aclose()


def settings_with(**more: Any) -> dict[str, Any]:
    fake = FakeLimiter()
    fake_in_loop = AsyncFakeLimiter()
    fake_in_loop.calls = fake.calls
    return {"client": fake, "async_client": fake_in_loop, **more}


async def test_the_middleware_limits_views_that_declare_nothing() -> None:
    given = settings_with(default=["web", "10/s"])
    with override_settings(RATELIMIT=given):
        assert Browser().get("/default").status_code == 200
        answer = await AsyncBrowser().get("/default")
        assert [name for name, _ in fields_of(answer.headers)["RateLimit"]] == ["web", "inline"]
        assert Browser().get("/exempt").status_code == 200
        assert Browser().get("/nowhere").status_code == 404
        assert len(given["client"].calls) == 6  # an unknown path is no way around the limit
        given["client"].deny("web", 3)
        given["async_client"].deny("web", 3)
        assert Browser().get("/default")["Retry-After"] == "3"
        assert (await AsyncBrowser().get("/default")).status_code == 429
        assert Browser().get("/nowhere").status_code == 429
        assert (await AsyncBrowser().get("/nowhere")).status_code == 429


def test_without_a_decision_and_with_a_mistake() -> None:
    given = settings_with(default="web", on_error="deny")
    given["client"].unavailable()
    with override_settings(RATELIMIT=given):
        assert Browser().get("/default").status_code == 503
    with override_settings(RATELIMIT={"defualt": "web"}), pytest.raises(Exception, match="has no defualt"):
        Browser().get("/default")


def test_verify_names_what_is_missing(ratelimitd: Daemon) -> None:
    given = {"socket": ratelimitd.socket, "default": ["web", "wbe"], "timeout": 5}
    with override_settings(RATELIMIT=given), pytest.raises(Refused, match="wbe"):
        limits.verify()
