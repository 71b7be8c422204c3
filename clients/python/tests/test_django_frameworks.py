"""Django's own ways around a limit, and those of the REST framework and of Ninja."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import fields_of
from django.conf.urls.i18n import i18n_patterns
from django.http import HttpRequest, HttpResponse
from django.test import Client as Browser
from django.test import override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from ninja import NinjaAPI
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from ratelimitd import django as limits
from ratelimitd.keys import user
from ratelimitd.testing import FakeLimiter


class Token(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("Authorization")
        who = type("Who", (), {"pk": name, "is_authenticated": True})()
        return (who, None) if name else None


def crud(name: str) -> Any:
    @api_view(["GET", "POST"])
    @limits.ratelimit("3/h")
    def view(request: Any) -> Response:
        return Response(name)

    return view


@api_view(["GET"])
@authentication_classes([Token])
@limits.ratelimit("3/h", key=user)
def mine(request: Any) -> Response:
    return Response("mine")


@limits.ratelimit("3/h", key=user)
@api_view(["GET"])
@authentication_classes([Token])
def above(request: Any) -> Response:
    return Response("above")


class Thing(APIView):
    @limits.ratelimit("3/h")
    def get(self, request: Any) -> Response:
        return Response("get")

    @method_decorator(limits.ratelimit("3/h"))
    def post(self, request: Any) -> Response:
        return Response("post")


@method_decorator(limits.ratelimit("3/h"), name="list")
@method_decorator(limits.ratelimit("3/h"), name="retrieve")
class Things(ViewSet):
    def list(self, request: Any) -> Response:
        return Response("list")

    def retrieve(self, request: Any, pk: str) -> Response:
        return Response(pk)


api = NinjaAPI()


@api.get("/cats")
@limits.ratelimit("3/h")
def cats(request: HttpRequest) -> dict[str, int]:
    return {"cats": 1}


def ninja_view(name: str) -> Any:
    @limits.ratelimit("3/h")
    def view(request: HttpRequest) -> str:
        return name

    return view


api.get("/dogs")(ninja_view("dogs"))
api.post("/dogs")(ninja_view("dogs"))


@limits.ratelimit("3/h")
def translated(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


def bare(request: HttpRequest) -> HttpResponse:
    return HttpResponse("bare")


limits.ratelimit("never")(bare)
inner = limits.ratelimit("few", key="k")(lambda request: HttpResponse("ok"))

urlpatterns = [
    path("cats", crud("cats")),
    path("dogs", crud("dogs")),
    path("mine", mine),
    path("above", above),
    path("thing", Thing.as_view()),
    path("things", Things.as_view({"get": "list"})),
    path("things/<pk>", Things.as_view({"get": "retrieve"})),
    path("ninja/", api.urls),
    path("v1/", include([path("x", crud("x"))])),
    path("bare", bare),
    path("twice", limits.ratelimit("web", key="k")(lambda request: inner(request))),
    path("denies", limits.ratelimit("web", key="k", charge_when=lambda response: True)(lambda request: inner(request))),
    *i18n_patterns(path("hello", translated)),
]


@pytest.fixture
def browser(fake: FakeLimiter) -> Any:
    with override_settings(
        ROOT_URLCONF=__name__,
        RATELIMIT={"client": fake, "service": "shop"},
        USE_I18N=True,
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None},
        LANGUAGES=[("en", "English"), ("de", "German")],
        MIDDLEWARE=["django.middleware.locale.LocaleMiddleware", "ratelimitd.django.RateLimitMiddleware"],
    ):
        yield Browser(raise_request_exception=False)


def names(fake: FakeLimiter) -> list[str]:
    return [key.removeprefix("shop|").rpartition("|")[0] for _, _, key, *_ in fake.calls]


def test_views_of_the_rest_framework_are_endpoints_of_their_own(browser: Browser, fake: FakeLimiter) -> None:
    for one in ("/cats", "/dogs", "/v1/x", "/thing", "/things", "/things/7", "/things/8"):
        assert browser.get(one).status_code == 200
    assert browser.post("/thing").status_code == 200
    assert names(fake) == [
        "cats", "dogs", "v1/x", "GET thing", "GET things", "GET things/<pk>", "GET things/<pk>", "POST thing",
    ]  # fmt: skip


def test_the_user_of_the_rest_framework_is_seen_below_it_and_refused_above(browser: Browser, fake: FakeLimiter) -> None:
    assert browser.get("/mine", headers={"Authorization": "alice"}).status_code == 200
    assert [key for _, _, key, *_ in fake.calls] == ["shop|mine|u|alice"]
    assert browser.get("/above", headers={"Authorization": "alice"}).status_code == 500


def test_operations_of_ninja_are_endpoints_of_their_own(browser: Browser, fake: FakeLimiter) -> None:
    answer = browser.get("/ninja/cats")
    assert answer.json() == {"cats": 1}
    assert [name for name, _ in fields_of(answer.headers)["RateLimit"]] == ["inline"]
    assert [browser.get("/ninja/dogs").status_code, browser.post("/ninja/dogs").status_code] == [200, 200]
    assert names(fake) == ["GET ninja/cats", "GET ninja/dogs", "POST ninja/dogs"]
    fake.deny("inline")
    assert browser.get("/ninja/cats").status_code == 429


def test_a_limit_above_an_operation_of_ninja_is_refused() -> None:
    other = NinjaAPI(urls_namespace="other")
    with pytest.raises(TypeError, match="routed already"):

        @limits.ratelimit("never")
        @other.get("/x")
        def x(request: HttpRequest) -> str:
            return "x"


def test_a_pattern_with_the_function_without_its_limit_is_an_error(browser: Browser) -> None:
    assert browser.get("/bare").status_code == 500
    with pytest.raises(Exception, match="bare would never be asked"):
        limits.verify()


def test_the_languages_of_a_page_are_one_endpoint(browser: Browser, fake: FakeLimiter) -> None:
    assert [browser.get(f"/{one}/hello").status_code for one in ("en", "de")] == [200, 200]
    assert names(fake) == ["hello", "hello"]


def test_a_view_that_calls_a_limited_view_is_one_request(browser: Browser, fake: FakeLimiter) -> None:
    answer = browser.get("/twice")
    assert [name for name, _ in fields_of(answer.headers)["RateLimit"]] == ["web", "few"]
    fake.deny("few")
    for one in ("/twice", "/denies"):
        assert browser.get(one).status_code == 429
    assert ["refund", "web", "k", 1] in fake.calls


def test_a_user_without_the_middleware_is_an_error(fake: FakeLimiter, browser: Browser) -> None:
    request = limits._Request(HttpRequest(), None, False)
    with pytest.raises(Exception, match="AuthenticationMiddleware"):
        request.user()
