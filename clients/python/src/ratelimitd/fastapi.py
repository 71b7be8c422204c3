"""Limits for FastAPI.

    limiter = Limiter(app)
    api = APIRouter(dependencies=[Limit("web")])

    @api.get("/search", dependencies=[Limit("10/5s"), Limit("tenant", key=tenant)])
    async def search(q: str): ...

A Limit is a dependency. All of an endpoint's, of its routers and of the application are decided together, when the
first of them is resolved. Functions (`key`, `cost`, `skip`) get the request and may be async.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import HTTPException, WebSocketException
from fastapi.params import Depends
from starlette.requests import HTTPConnection
from starlette.responses import Response

from . import limits, starlette
from .keys import composite, hashed, ip, join_key, user
from .starlette import STATE, TRY_AGAIN_LATER, State, admit_request

__all__ = ["Limit", "Limiter", "composite", "hashed", "ip", "join_key", "user"]

_declared: weakref.WeakSet[_Check] = weakref.WeakSet()


class Limited(HTTPException):
    """A request is refused. Every application answers an HTTPException somehow; the Limiter sends its own answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code, "refused by a rate limit")
        self.response = response


class _Check:
    """The dependency itself."""

    def __init__(self, limit: limits.Limit) -> None:
        self.limit = limit
        _declared.add(self)

    async def __call__(self, connection: HTTPConnection) -> None:
        state: State | None = connection.scope.get(STATE)
        if state is not None and self.limit in state.asked:
            return
        asked = list(dict.fromkeys([*_limits_of(connection), self.limit]))
        if state is not None:
            asked = [one for one in asked if one not in state.asked]
            state.asked += asked
        endpoint = limits.endpoint_name(connection.scope.get("endpoint"))
        refused = await admit_request(connection, asked, endpoint)
        if refused is not None and connection.scope["type"] == "websocket":
            raise WebSocketException(TRY_AGAIN_LATER, "Too many requests")
        if refused is not None and state is not None:
            state.refusal = refused
            raise Limited(refused)


def Limit(policy: Any = None, **options: Any) -> Depends:
    """A dependency that limits an endpoint, a router or the application. The arguments are those of limits.Limit."""
    return Depends(_Check(policy if isinstance(policy, limits.Limit) else limits.Limit(policy, **options)))


def _limits_of(connection: HTTPConnection) -> Iterator[limits.Limit]:
    """The limits that FastAPI will resolve for this request. A limit that is not found here is asked by itself."""
    context = connection.scope.get("fastapi", {}).get("effective_route_context")
    route = context if hasattr(context, "dependant") else connection.scope.get("route")
    return _walk(getattr(route, "dependant", None))


def _walk(dependant: Any) -> Iterator[limits.Limit]:
    for one in getattr(dependant, "dependencies", ()):
        if isinstance(one.call, _Check):
            yield one.call.limit
        yield from _walk(one)


class Limiter(starlette.Limiter):
    """The arguments are those of ratelimitd.starlette.Limiter, without `default`: a limit of the application is a
    dependency of it. verify() looks at every Limit of the program."""

    def init_app(self, app: Any) -> None:
        if self.default:
            raise TypeError('FastAPI has dependencies in place of default=: FastAPI(dependencies=[Limit("web")])')
        super().init_app(app)

    def require_connection(self, endpoint: Any) -> None:
        """FastAPI passes what the signature asks for."""
        for name, parameter in inspect.signature(endpoint).parameters.items():
            kind = parameter.annotation
            if isinstance(kind, type) and issubclass(kind, HTTPConnection):
                return
            if isinstance(kind, str) and kind.rpartition(".")[2] in ("Request", "HTTPConnection", "WebSocket"):
                return
            if name == "request" and kind is parameter.empty:
                return
        raise TypeError(
            f"{limits.endpoint_name(endpoint)} takes no Request: add `request: Request`, or write "
            "dependencies=[Limit(...)] at the route"
        )

    def declared(self) -> Sequence[limits.Limit]:
        return [one.limit for one in list(_declared)]
