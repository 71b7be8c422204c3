"""Limits for Django: a decorator for views, and a middleware for all the others.

    @ratelimit("login", key=lambda request: request.POST["user"], on_error="deny")
    def login(request): ...

    MIDDLEWARE = [..., "ratelimitd.django.RateLimitMiddleware"]
    RATELIMIT = {"default": "web", "key": ip(trusted_proxies=1)}

Views may be async or not; so may the middleware's surroundings. Functions (`key`, `cost`, `skip`) get the request,
and may be async for an async view; `charge_when` gets the response. The keys of settings.RATELIMIT:

    default        the limit, or limits, of views that declare none, and of unknown paths (needs the middleware)
    key            of limits without one: ip by default
    on_error       when no decision was made: "allow", "deny" (503), or a function of the error that gives one of them
    respond        a function of the request and the decision that makes the answer to a denied request
    headers        "ietf", "legacy", "both" or "none"; reset: "delta" or "epoch", of the older fields
    socket         the daemon's; default: $RATELIMIT_SOCKET
    timeout        seconds
    client, async_client   in place of these two: your own Client and AsyncClient
    enabled        False, or RATELIMIT_ENABLED=0 in the environment: nothing is limited
    service        the name in front of the endpoints' in keys; default: RATELIMIT_SERVICE, OTEL_SERVICE_NAME, the
                   package of ROOT_URLCONF; "": none

request.ratelimit is the decision, for views; None if no decision was made.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from .aio import AsyncClient
from .client import Client
from .http import merged
from .keys import composite, hashed, ip, join_key, user
from .limits import (
    MARK,
    Admission,
    Limit,
    Settings,
    admit,
    as_limits,
    end,
    endpoint_name,
    mark,
    marks,
    policies_of,
    settle,
)
from .steps import arun, run

__all__ = ["Limit", "RateLimitMiddleware", "composite", "hashed", "ip", "join_key", "ratelimit", "user", "verify"]

F = TypeVar("F", bound=Callable[..., Any])

NAMES = {
    "default",
    "key",
    "on_error",
    "respond",
    "headers",
    "reset",
    "socket",
    "timeout",
    "client",
    "async_client",
    "enabled",
    "service",
}
LIMITED = "__ratelimited__"  # at a function: itself, if it asks; method_decorator and functools.wraps copy it to others
ADMISSION = "_ratelimitd"  # of the request: the middleware's admission

_declared: list[Limit] = []


class _Config:
    """settings.RATELIMIT, read once."""

    def __init__(self) -> None:
        given = dict(getattr(django_settings, "RATELIMIT", {}))
        unknown = sorted(set(given) - NAMES)
        if unknown:
            raise ImproperlyConfigured(
                f"settings.RATELIMIT has no {', '.join(unknown)}; it has {', '.join(sorted(NAMES))}"
            )
        self.default = as_limits(given.pop("default", ()))
        place = {name: given.pop(name) for name in ("socket", "timeout") if name in given}
        self.client: Client = given.pop("client", None) or Client(**place)
        self.async_client: AsyncClient = given.pop("async_client", None) or AsyncClient(**place)
        self.settings = Settings(**given)
        self.service = getattr(django_settings, "ROOT_URLCONF", "").rpartition(".")[0].partition(".")[0] or None
        self.settings.service_for(self.service)


@functools.cache
def _config() -> _Config:
    return _Config()


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "RATELIMIT":  # override_settings of a test
        _config.cache_clear()


setting_changed.connect(_forget)


class _Request:
    """A request, as the core sees it."""

    def __init__(self, request: HttpRequest, view: Any, can_wait: bool) -> None:
        self.request = request
        self.method = request.method or ""
        self.endpoint = _name_of(request, view)
        self.service = _config().service
        self.can_wait = can_wait

    @property
    def peer(self) -> str | None:
        found: str | None = self.request.META.get("REMOTE_ADDR")
        return found

    def header_lines(self, name: str) -> list[str]:
        value = self.request.headers.get(name)
        return [] if value is None else [value]

    def user(self) -> str | None:
        who = getattr(self.request, "user", None)
        return str(who.pk) if who is not None and who.is_authenticated else None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.request, *args)


def _name_of(request: HttpRequest, view: Any) -> str:
    """A class is an endpoint of its own, also if its `dispatch` is inherited; a method that has a limit, too."""
    match = request.resolver_match
    kind = getattr(view, "view_class", None) or getattr(match and match.func, "view_class", None)
    if kind is None or view is None:
        return endpoint_name(view)
    method = getattr(view, "__name__", "")
    return endpoint_name(kind) + (f".{method}" if method in kind.http_method_names else "")


def ratelimit(policy: Any = None, **options: Any) -> Callable[[F], F]:
    """Limit a view. Several of these are decided together. The arguments are those of Limit.

    For a class: @method_decorator(ratelimit("web"), name="dispatch").
    """
    declared = _limit(policy, **options)
    _declared.append(declared)

    def decorate(view: F) -> F:
        if isinstance(view, type):
            raise TypeError(
                f'{view.__name__} is a class: write @method_decorator(ratelimit(...), name="dispatch") above it'
            )
        return mark(view if getattr(view, LIMITED, None) is view else _limited(view), declared)

    return decorate


def exempt(view: F) -> F:
    """The middleware's default does not count for this view."""
    return mark(view, None)


def verify() -> None:
    """For an AppConfig.ready() or a system check: Refused, naming the policies that the daemon does not have."""
    config = _config()
    names, has_inline = policies_of([*config.default, *_declared])
    config.client.verify(names, inline=has_inline)


def _limit(policy: Any = None, **options: Any) -> Limit:
    return policy if isinstance(policy, Limit) else Limit(policy, **options)


def _limited(view: F) -> F:
    """The view, with its limits around it."""

    @functools.wraps(view)
    async def limited_async(request: Any, *args: Any, **named: Any) -> Any:
        # Without ASGI this loop ends with the view, and a connection with it; but then nothing else waits for the loop.
        is_asgi = isinstance(request, ASGIRequest)
        client = _config().async_client if is_asgi else _config().client
        admission = await arun(_admit(marks(limited_async), request, view, True), client)
        _note(request, admission)
        try:
            response = _refusal(admission) if admission.refused else await view(request, *args, **named)
            response = await response if inspect.isawaitable(response) else response
            await arun(settle(admission, response), client)
        except BaseException:
            await arun(end(admission), client)
            raise
        in_loop = functools.partial(_end_in_loop, admission, asyncio.get_running_loop())
        return _with_fields(admission, response, in_loop if is_asgi else lambda: run(end(admission), _config().client))

    @functools.wraps(view)
    def limited(request: Any, *args: Any, **named: Any) -> Any:
        client = _config().client
        admission = run(_admit(marks(limited), request, view, False), client)
        _note(request, admission)
        try:
            response = _refusal(admission) if admission.refused else view(request, *args, **named)
            run(settle(admission, response), client)
        except BaseException:
            run(end(admission), client)
            raise
        return _with_fields(admission, response, lambda: run(end(admission), client))

    asking: Any = limited_async if iscoroutinefunction(view) else limited
    vars(asking).pop(MARK, None)  # what functools.wraps took along is asked by the view within
    setattr(asking, LIMITED, asking)
    return asking  # type: ignore[no-any-return]


def _admit(limits: Sequence[Limit] | None, request: HttpRequest, view: Any, can_wait: bool) -> Any:
    return admit(limits or (), _Request(request, view, can_wait), _config().settings)


def _note(request: HttpRequest, admission: Admission) -> None:
    """For the view: the decision; of two, the one with less left."""
    found = [one for one in (getattr(request, "ratelimit", None), admission.decision) if one is not None]
    request.ratelimit = min(found, key=lambda one: (one.allowed, one.remaining), default=None)


def _refusal(admission: Admission) -> Any:
    if admission.respond is not None:
        return admission.respond()
    answer = admission.answer()
    return HttpResponse(answer.body, status=answer.status, content_type=answer.content_type)


def _with_fields(admission: Admission, response: HttpResponseBase, give_back: Callable[[], object]) -> HttpResponseBase:
    """The response with its header fields; what is held goes back when it is closed."""
    for name, value in admission.headers():
        response[name] = merged(name, [response[name]] if name in response else [], value)
    if admission.holds:
        response._resource_closers.append(give_back)
    return response


def _end_in_loop(admission: Admission, loop: asyncio.AbstractEventLoop) -> None:
    """Django closes responses in a thread."""
    if not loop.is_closed():
        asyncio.run_coroutine_threadsafe(arun(end(admission), _config().async_client), loop)


class RateLimitMiddleware:
    """settings.RATELIMIT["default"] for every view that declares no limit of its own, and for unknown paths."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[..., Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        self.process_view: Callable[..., Any] = self._process_view_async if self.is_async else self._process_view
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if self.is_async:
            return self._respond_async(request)
        try:
            response = self.get_response(request)
            if _is_unknown(request, response):
                response = self._process_view(request, None) or response
            admission = _of(request)
            run(settle(admission, response), _config().client)
        except BaseException:
            run(end(_of(request)), _config().client)
            raise
        return _with_fields(admission, response, lambda: run(end(admission), _config().client))

    async def _respond_async(self, request: HttpRequest) -> Any:
        client = _config().async_client
        try:
            response = await self.get_response(request)
            if _is_unknown(request, response):
                response = await self._process_view_async(request, None) or response
            admission = _of(request)
            await arun(settle(admission, response), client)
        except BaseException:
            await arun(end(_of(request)), client)
            raise
        return _with_fields(admission, response, functools.partial(_end_in_loop, admission, asyncio.get_running_loop()))

    def _process_view(self, request: HttpRequest, view: Any, *_: Any) -> Any:
        if marks(view) is not None or not _config().default:
            return None
        admission = run(_admit(_config().default, request, view, False), _config().client)
        setattr(request, ADMISSION, admission)
        _note(request, admission)
        return _refusal(admission) if admission.refused else None

    async def _process_view_async(self, request: HttpRequest, view: Any, *_: Any) -> Any:
        if marks(view) is not None or not _config().default:
            return None
        admission = await arun(_admit(_config().default, request, view, True), _config().async_client)
        setattr(request, ADMISSION, admission)
        _note(request, admission)
        return _refusal(admission) if admission.refused else None


def _is_unknown(request: HttpRequest, response: HttpResponseBase) -> bool:
    """No URL pattern has this path. Django does not call process_view then."""
    return response.status_code == 404 and request.resolver_match is None


def _of(request: HttpRequest) -> Admission:
    """The middleware's admission; an empty one where the view has limits of its own, or there is no view."""
    found: Admission | None = getattr(request, ADMISSION, None)
    return found or Admission(_Request(request, None, False), _config().settings)
