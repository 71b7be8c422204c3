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
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings as django_settings
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import get_resolver, get_urlconf
from django.utils.translation import get_language

from .aio import AsyncClient
from .calls import Policy
from .client import Client
from .http import merged
from .keys import NOT_LIMITED, Endpoint, composite, hashed, ip, join_key, user
from .limits import (
    MARK,
    UNKNOWN,
    Limit,
    LimitOptions,
    Settings,
    as_limits,
    mark,
    marks,
    of_route,
    policies_of,
    qualified,
    qualified_name,
    within,
)
from .steps import Steps, arun, run
from .visit import Admission, Visit, admit, end, settle

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "NOT_LIMITED",
    "Limit",
    "RateLimitMiddleware",
    "composite",
    "hashed",
    "ip",
    "is_preflight",
    "join_key",
    "ratelimit",
    "user",
    "verify",
]

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
ASKS = "__ratelimited__"  # at a function that asks: itself; method_decorator and functools.wraps copy it to others
ABOVE = "__ratelimit_above__"  # at a function: itself, and what asks around it
VISIT = "_ratelimitd"  # of the request

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


def is_preflight(request: HttpRequest) -> bool:
    """For skip=, where the CORS layer is behind the limiter. Everybody can send these: no view may answer OPTIONS."""
    fields = request.headers
    return request.method == "OPTIONS" and "Origin" in fields and "Access-Control-Request-Method" in fields


class _Request:
    """A request, as the core sees it. `function` is where the limit is written; None: the middleware."""

    def __init__(self, request: HttpRequest, function: Any, can_wait: bool) -> None:
        self.request = request
        self.function = function
        self.service = _config().service
        self.can_wait = can_wait

    @property
    def endpoint(self) -> Endpoint:
        """The URL pattern, with what it is included at. Django's patterns take every method."""
        match = self.request.resolver_match
        if match is None:
            return Endpoint(UNKNOWN, None)
        pattern = _without_language(match.route, getattr(self.request, "urlconf", None))
        if self.function is None or any(one is self.function for one in within(match.func)):
            return of_route((), pattern, match.func)
        operation = getattr(self.function, "_ninja_operation", None)
        if operation is not None:
            return of_route(operation.methods, pattern, self.function)
        kind = getattr(match.func, "view_class", None) or getattr(match.func, "cls", None)
        method = getattr(self.function, "__name__", "")
        if method and kind is not None and (method == "dispatch" or kind.__name__ == method):  # that of @api_view
            return of_route((), pattern, match.func)
        actions = getattr(match.func, "actions", None) or {}  # of a ViewSet of the REST framework
        verbs = [verb for verb, action in actions.items() if action == method]
        if kind is not None and (verbs or (method in kind.http_method_names and hasattr(kind, method))):
            return of_route(map(str.upper, verbs or [method]), pattern, self.function)
        return qualified(self.function)

    @property
    def peer(self) -> str | None:
        found: str | None = self.request.META.get("REMOTE_ADDR")
        return found

    def header_lines(self, name: str) -> list[str]:
        value = self.request.headers.get(name)
        return [] if value is None else [value]

    def user(self) -> str | None:
        if not hasattr(self.request, "user"):
            raise ImproperlyConfigured("user: django.contrib.auth.middleware.AuthenticationMiddleware has not run")
        kind = getattr(self.request.resolver_match and self.request.resolver_match.func, "cls", None)
        is_early = hasattr(kind, "authentication_classes") and isinstance(self.request, HttpRequest)
        if is_early and self.function is not None:
            raise ImproperlyConfigured(
                f"user: the REST framework finds the user of {qualified_name(self.function)} inside of it. Write "
                "@ratelimit below @api_view, or at a method of the class, such as `get`"
            )
        who = self.request.user
        return str(who.pk) if who is not None and who.is_authenticated else None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.request, *args)


def _without_language(route: str, urlconf: Any) -> str:
    """The client chooses the language of i18n_patterns: all of them are one endpoint."""
    is_used, _ = is_language_prefix_patterns_used(urlconf or get_urlconf() or django_settings.ROOT_URLCONF)
    return route.removeprefix(f"{get_language()}/") if is_used else route


def ratelimit(
    policy: Policy | Callable[..., Any] | Limit | None = None, **options: Unpack[LimitOptions]
) -> Callable[[F], F]:
    """Limit a view. Several of these that stand together are decided together. The arguments are those of Limit.

    For a class: @method_decorator(ratelimit("web"), name="dispatch").
    """
    declared = policy if isinstance(policy, Limit) else Limit(policy, **options)
    _declared.append(declared)

    def decorate(view: F) -> F:
        if isinstance(view, type):
            raise TypeError(
                f'{view.__name__} is a class: write @method_decorator(ratelimit(...), name="dispatch") above it'
            )
        for inner in within(view):
            operation = vars(inner).get("_ninja_operation") if hasattr(inner, "__dict__") else None
            if operation is not None and operation.view_func is inner:
                raise TypeError(
                    f"{qualified_name(view)} is routed already, without this limit: write @ratelimit below the route"
                )
        found = getattr(view, ASKS, None)
        return mark(view if found is not None and found[0] is view else _asking(view), declared)

    return decorate


def exempt(view: F) -> F:
    """The middleware's default does not count for this view."""
    return mark(view, None)


def verify() -> None:
    """For an AppConfig.ready() or a system check: Refused, naming the policies that the daemon does not have."""
    config = _config()
    for view in _views(get_resolver()) if hasattr(django_settings, "ROOT_URLCONF") else ():
        _require_order(view)
    names, has_inline = policies_of([*config.default, *_declared])
    config.client.verify(names, inline=has_inline)


def _views(resolver: Any) -> Iterator[Any]:
    for one in resolver.url_patterns:
        if hasattr(one, "url_patterns"):
            yield from _views(one)
        else:
            yield one.callback


def _require_order(view: Any) -> None:
    """ImproperlyConfigured where the bare function is routed, and the limited one is not."""
    above = getattr(view, ABOVE, None)
    if above is None or above[0] is not view:
        return
    resolver = get_resolver(get_urlconf())
    if not any(one is above[1] for other in _views(resolver) for one in within(other)):
        raise ImproperlyConfigured(
            f"the limit at {qualified_name(view)} would never be asked: the URL pattern has the function without it"
        )


# ---- what asks ----


def _asking(view: F) -> F:
    """The view, with its limits around it: those that are marked at what this returns."""

    @functools.wraps(view)
    async def asks_async(*args: Any, **named: Any) -> Any:
        request = _request_in(args, named)
        # Without ASGI this loop ends with the view, and a connection with it; but then nothing else waits for the loop.
        is_asgi = isinstance(_plain(request), ASGIRequest)
        place = _Place(request, is_async=True, client=_config().async_client if is_asgi else _config().client)

        async def answer() -> Any:
            admission = await place.ado(_admit(marks(asks_async), request, asks_async, True))
            response = _refusal(admission) if admission.refused else await view(*args, **named)
            return await response if inspect.isawaitable(response) else response

        return await place.alead(answer)

    @functools.wraps(view)
    def asks(*args: Any, **named: Any) -> Any:
        request = _request_in(args, named)
        place = _Place(request, is_async=False, client=_config().client)

        def answer() -> Any:
            admission = place.do(_admit(marks(asks), request, asks, False))
            return _refusal(admission) if admission.refused else view(*args, **named)

        return place.lead(answer)

    asking: Any = asks_async if iscoroutinefunction(view) else asks
    vars(asking).pop(MARK, None)  # what functools.wraps took along is asked by the view within
    setattr(asking, ASKS, (asking,))
    if inspect.isfunction(view):
        setattr(view, ABOVE, (view, asking))
    return asking  # type: ignore[no-any-return]


def _request_in(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A method of a class has the request behind the object."""
    found = next((one for one in (*args[:2], named.get("request")) if hasattr(one, "META")), None)
    if found is None:
        raise TypeError("a limit stands at a view: its first argument is the request")
    return found


def _plain(request: Any) -> Any:
    """Django's request; that of the REST framework has it inside."""
    return getattr(request, "_request", request)


def _visit(request: Any) -> Visit:
    plain = _plain(request)
    if not hasattr(plain, VISIT):
        setattr(plain, VISIT, Visit())
    found: Visit = getattr(plain, VISIT)
    return found


def _admit(limits: Iterable[Limit] | None, request: Any, function: Any, can_wait: bool) -> Steps[Admission]:
    visit = _visit(request)
    asking = _Request(request, function, can_wait)
    admission = yield from admit(limits or (), asking, _config().settings, visit)
    _plain(request).ratelimit = visit.decision
    return admission


class _Place:
    """A view with limits, or the middleware, around what it calls. The outermost place of a request writes the header
    fields, and gives back what was held when the response is closed.
    """

    def __init__(self, request: Any, *, is_async: bool, client: Any) -> None:
        self.visit = _visit(request)
        self.client = client
        self.is_outermost = self.visit.n_open == 0
        self.n_before = len(self.visit.admissions)
        self.loop = asyncio.get_running_loop() if is_async and isinstance(client, AsyncClient) else None

    @property
    def asked(self) -> list[Any]:
        """Of this place, and of those inside."""
        return [one for admission in self.visit.admissions[self.n_before :] for one in admission.asked]

    def do(self, steps: Steps[Any]) -> Any:
        return run(steps, self.client)

    async def ado(self, steps: Steps[Any]) -> Any:
        return await arun(steps, self.client)

    def lead(self, answer: Callable[[], Any]) -> Any:
        self.visit.n_open += 1
        try:
            response = answer()
            self.do(settle(self, response))
        except BaseException:
            self.do(end(self))
            raise
        finally:
            self.visit.n_open -= 1
        if self.is_outermost and not isinstance(response, HttpResponseBase):
            self.do(end(self))  # what the view gave is no response yet, so nothing calls us when it is closed
        return self.finished(response)

    async def alead(self, answer: Callable[[], Any]) -> Any:
        self.visit.n_open += 1
        try:
            response = await answer()
            await self.ado(settle(self, response))
        except BaseException:
            await self.ado(end(self))
            raise
        finally:
            self.visit.n_open -= 1
        if self.is_outermost and not isinstance(response, HttpResponseBase):
            await self.ado(end(self))
        return self.finished(response)

    def finished(self, response: Any) -> Any:
        """The response with its header fields; what is held goes back when it is closed."""
        if not self.is_outermost or not isinstance(response, HttpResponseBase):
            return response
        for name, value in self.visit.headers():
            response[name] = merged(name, [response[name]] if name in response else [], value)
        if self.visit.holds:
            response._resource_closers.append(self._close)
        return response

    def _close(self) -> None:
        """Django closes responses in a thread."""
        if self.loop is None:
            run(end(self.visit), self.client)
        elif not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(arun(end(self.visit), self.client), self.loop)


def _refusal(admission: Admission) -> Any:
    if admission.respond is not None:
        return admission.respond()
    answer = admission.answer()
    return HttpResponse(answer.body, status=answer.status, content_type=answer.content_type)


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

        def answer() -> Any:
            response = self.get_response(request)
            refusal = self._process_view(request, None) if _is_unknown(request, response) else None
            return refusal or response

        return _Place(request, is_async=False, client=_config().client).lead(answer)

    async def _respond_async(self, request: HttpRequest) -> Any:
        async def answer() -> Any:
            response = await self.get_response(request)
            refusal = await self._process_view_async(request, None) if _is_unknown(request, response) else None
            return refusal or response

        return await _Place(request, is_async=True, client=_config().async_client).alead(answer)

    def _process_view(self, request: HttpRequest, view: Any, *_: Any) -> Any:
        _require_order(view)
        if marks(view) is not None or not _config().default:
            return None
        admission = run(_admit(_config().default, request, None, False), _config().client)
        return _refusal(admission) if admission.refused else None

    async def _process_view_async(self, request: HttpRequest, view: Any, *_: Any) -> Any:
        _require_order(view)
        if marks(view) is not None or not _config().default:
            return None
        admission = await arun(_admit(_config().default, request, None, True), _config().async_client)
        return _refusal(admission) if admission.refused else None


def _is_unknown(request: HttpRequest, response: HttpResponseBase) -> bool:
    """No URL pattern has this path. Django does not call process_view then."""
    return response.status_code == 404 and request.resolver_match is None
