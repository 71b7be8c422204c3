"""The routes of the table of attacks (../../conformance/attacks.yaml) in Django."""

import functools
import json
import os
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_http_methods

from ratelimitd.django import NOT_LIMITED, composite, ip, is_preflight, ratelimit, user

Page = Callable[..., HttpResponse]


def text(body: str, status: int = 200) -> HttpResponse:
    return HttpResponse(body, status=status, content_type="text/plain; charset=utf-8")


def page(name: str) -> Page:
    def view(request: HttpRequest, **_: Any) -> HttpResponse:
        return text(f"{name}\n")

    return view


def api_key(request: HttpRequest) -> str | None:
    found: str | None = request.headers.get("X-Api-Key")
    return found


def user_of_json(request: HttpRequest) -> Any:
    try:
        body = json.loads(request.body)
    except ValueError:
        return None
    return body.get("user") if isinstance(body, dict) else None


def exempt_or_address(request: HttpRequest) -> Any:
    return NOT_LIMITED if request.headers.get("X-Exempt") == "yes" else request.META["REMOTE_ADDR"]


def passes(view: Page) -> Page:
    """An ordinary decorator: what stands above and below it is asked at two places."""
    return functools.wraps(view)(lambda request: view(request))


def requires_user(view: Page) -> Page:
    @functools.wraps(view)
    def inner(request: HttpRequest) -> HttpResponse:
        request.member = request.headers.get("X-User")
        return view(request) if request.member else text("who are you?\n", 401)

    return inner


def find_user(get_response: Callable[..., Any]) -> Any:
    """A middleware of the application."""
    from asgiref.sync import iscoroutinefunction, markcoroutinefunction

    class Middleware:
        def __init__(self) -> None:
            if iscoroutinefunction(get_response):
                markcoroutinefunction(self)

        def __call__(self, request: HttpRequest) -> Any:
            request.visitor = request.headers.get("X-User")
            return get_response(request)

    return Middleware()


find_user.sync_capable = find_user.async_capable = True  # type: ignore[attr-defined]

forwarded = ratelimit("pair")(page("forwarded"))
redirected = ratelimit("web")(page("redirected"))
methods = require_http_methods(["GET", "HEAD", "POST"])


class Method(View):  # type: ignore[misc]
    @method_decorator(ratelimit("2/1m"))  # type: ignore[untyped-decorator]
    def get(self, request: HttpRequest) -> HttpResponse:
        return text("method\n")

    @method_decorator(ratelimit("2/1m"))  # type: ignore[untyped-decorator]
    def post(self, request: HttpRequest) -> HttpResponse:
        return text("method\n")


def inside(outer: str, inner: Any) -> Page:
    return ratelimit(outer)(passes(inner))


def limit_of_query(request: HttpRequest) -> int:
    return int(request.GET["limit"])


module = [path("x", ratelimit("2/1m")(page("x")))]
urlpatterns: list[Any] = [
    path("any", ratelimit("never", on_error="deny")(page("any"))),
    path("preflight", ratelimit("never", skip=is_preflight)(page("preflight"))),
    path("key", ratelimit("never", key=api_key)(page("key"))),
    path("key-allowed", ratelimit("never", key=api_key, on_error="allow")(page("key-allowed"))),
    path("key-said", ratelimit("never", key=api_key)(page("key-said"))),
    path("json", ratelimit("never", key=user_of_json)(page("json"))),
    path("parts", ratelimit("never", key=composite(ip, api_key))(page("parts"))),
    path("param", ratelimit("never", key=lambda request: request.GET.get("user"))(page("param"))),
    path("exempt", ratelimit("never", key=exempt_or_address)(page("exempt"))),
    path("user", ratelimit("pair", key=user(lambda request: request.headers.get("X-User")))(page("user"))),
    path("user-broken", ratelimit("never", key=user(lambda request: request.nobody))(page("user-broken"))),
    path("late-hook", ratelimit("pair", key=user(lambda request: request.visitor))(page("late-hook"))),
    path("late-guard", requires_user(ratelimit("pair", key=user(lambda request: request.member))(page("late-guard")))),
    path("forwarded", forwarded),
    path("forward", lambda request: forwarded(request)),
    path("redirect", ratelimit("web")(lambda request: redirected(request))),
    path("outer/twice", inside("web", ratelimit("web")(page("twice")))),
    path("outer/cost", inside("web", ratelimit("web", cost=5)(page("cost")))),
    path("outer/inner", inside("web", ratelimit("pair")(page("inner")))),
    path("outer/key", inside("web", ratelimit("never", key=api_key)(page("key")))),
    path("strict/inner", inside("strict", ratelimit("never")(page("inner")))),
    path("number", ratelimit("web", charge_when=lambda response: 5)(page("number"))),
    path("names/factory/a", ratelimit("2/1m")(page("a"))),
    path("names/factory/b", ratelimit("2/1m")(page("b"))),
    path("names/lambda/a", ratelimit("2/1m")(lambda request: text("a\n"))),
    path("names/lambda/b", ratelimit("2/1m")(lambda request: text("b\n"))),
    path("names/method", Method.as_view()),
    path("names/both", methods(ratelimit("2/1m")(page("both")))),
    path("names/mounted-a/", include(module)),
    path("names/mounted-b/", include(module)),
    path("names/item/<int:number>", ratelimit("2/1m")(page("item"))),
    path("names/shared-a", ratelimit("2/1m", endpoint="shared")(page("shared-a"))),
    path("names/shared-b", ratelimit("2/1m", endpoint="shared")(page("shared-b"))),
    path("moves", ratelimit(limit=limit_of_query, window="1m", key="moves")(page("moves"))),
]

mistake = os.environ.get("MISTAKE")
if mistake == "equal-names":
    urlpatterns += [
        path("mistake/1", ratelimit("2/1m", endpoint="attack/mistake/2")(page("1"))),
        path("mistake/2", ratelimit("2/1m")(page("2"))),
    ]
if mistake == "misplaced":
    from ninja import NinjaAPI

    api = NinjaAPI()
    ratelimit("never")(api.get("/1")(page("1")))
    urlpatterns.append(path("mistake/", api.urls))
if mistake == "no-user-layer":
    urlpatterns.append(path("mistake/1", ratelimit("web", key=user)(page("1"))))
