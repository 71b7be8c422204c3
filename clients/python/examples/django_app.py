"""The example service in Django: `django_app.py wsgi` in threads, `django_app.py asgi` in an event loop."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIRequest
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import include, path
from django.views.decorators.http import require_POST
from serve import serve

from ratelimitd import Decision
from ratelimitd.django import NOT_LIMITED, composite, ip, ratelimit

TEXT = "text/plain; charset=utf-8"

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["ratelimitd.django.RateLimitMiddleware", "django_attacks.find_user"],
    LOGGING={
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"all": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["all"]},
    },
    RATELIMIT={"default": "web", "timeout": float(os.environ.get("TIMEOUT_MS", "250")) / 1000},
)


def ok(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type=TEXT)  # limited by the default


@ratelimit(
    "login",
    key=composite(lambda request: request.POST.get("user") or "-", ip),
    on_error="deny",
    charge_when=lambda response: response.status_code == 401,
)
@require_POST  # type: ignore[untyped-decorator]
def login(request: HttpRequest) -> HttpResponse:
    right = request.POST.get("password") == "right"
    return HttpResponse("welcome\n" if right else "wrong\n", status=200 if right else 401, content_type=TEXT)


@ratelimit(limit=2, window="5s")
async def inline(request: HttpRequest) -> HttpResponse:
    return HttpResponse("inline\n", content_type=TEXT)


@ratelimit("web")
@ratelimit("tenant", key=lambda request: request.headers.get("X-Tenant") or NOT_LIMITED)
def two(request: HttpRequest) -> HttpResponse:
    return HttpResponse("two\n", content_type=TEXT)


@ratelimit("slow", slot=True)
async def slow(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(int(request.GET["ms"]) / 1000)
    return HttpResponse("slow\n", content_type=TEXT)


@ratelimit("stream", slot=True)
async def stream(request: HttpRequest) -> StreamingHttpResponse:
    def lines() -> Iterator[str]:
        for line in ("one\n", "two\n", "three\n"):
            yield line
            time.sleep(0.1)

    async def lines_in_loop() -> AsyncIterator[str]:
        for line in ("one\n", "two\n", "three\n"):
            yield line
            await asyncio.sleep(0.1)

    body = lines_in_loop() if isinstance(request, ASGIRequest) else lines()
    return StreamingHttpResponse(body, content_type=TEXT)


@ratelimit("budget", cost=lambda request: int(request.GET["n"]))
def cost(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"cost {request.GET['n']}\n", content_type=TEXT)


@ratelimit("login", skip=lambda request: request.headers.get("X-Probe") == "yes")
def skip(request: HttpRequest) -> HttpResponse:
    return HttpResponse("skip\n", content_type=TEXT)


@ratelimit("web", on_error="deny")
async def down(request: HttpRequest) -> HttpResponse:
    return HttpResponse("down\n", content_type=TEXT)


def is_gold(request: HttpRequest) -> bool:
    return bool(request.headers.get("X-Plan") == "gold")


@ratelimit(
    limit=lambda request: 3 if is_gold(request) else 1,
    window=lambda request: "30s" if is_gold(request) else "60s",
    name="plan",
)
def plan(request: HttpRequest) -> HttpResponse:
    return HttpResponse("plan\n", content_type=TEXT)


def chosen(request: HttpRequest) -> Any:
    return NOT_LIMITED if request.GET.get("policy") == "free" else request.GET.get("policy")


@ratelimit(chosen)
async def choose(request: HttpRequest) -> HttpResponse:
    return HttpResponse("choose\n", content_type=TEXT)


def left(request: HttpRequest) -> HttpResponse:  # limited by the default
    decision: Decision | None = request.ratelimit
    text = "left unknown\n" if decision is None else f"left {decision.remaining} of {decision.of}\n"
    return HttpResponse(text, content_type=TEXT)


@ratelimit(limit=2, window="1m", name="guess", charge_when=lambda response: response.status_code == 403)
def guess(request: HttpRequest) -> HttpResponse:
    is_right = request.GET["right"] == "yes"
    return HttpResponse("right\n" if is_right else "wrong\n", status=200 if is_right else 403, content_type=TEXT)


def slow_down(request: HttpRequest, decision: Decision) -> HttpResponse:
    fields = {"Retry-After": "99", "X-RateLimit-Limit": "99"}
    return HttpResponse("slow down\n", status=418, content_type=TEXT, headers=fields)


@ratelimit("budget", cost=lambda request: int(request.GET["n"]), headers="both", respond=slow_down)
def own(request: HttpRequest) -> HttpResponse:
    return HttpResponse("own\n", content_type=TEXT, headers={"X-RateLimit-Limit": "99"})


urlpatterns = [
    path("plan", plan),
    path("choose", choose),
    path("left", left),
    path("guess", guess),
    path("own", own),
    path("ok", ok),
    path("login", login),
    path("inline", inline),
    path("two", two),
    path("slow", slow),
    path("stream", stream),
    path("cost", cost),
    path("skip", skip),
    path("down", down),
    path("attack/", include("django_attacks")),
]


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    django.setup()
    if sys.argv[1:] == ["asgi"]:
        serve(get_asgi_application())
    else:
        server = make_server("127.0.0.1", int(os.environ["PORT"]), get_wsgi_application(), Server, Quiet)
        print("ready", flush=True)
        server.serve_forever()
