"""Limits for FastAPI.

    limiter = Limiter(app)
    api = APIRouter(dependencies=[Limit("web")])

    @api.get("/search", dependencies=[Limit("10/5s"), Limit("tenant", key=tenant)])
    async def search(q: str): ...

A Limit is a dependency. It is asked where it stands among the others, so it sees what those before it have found out;
Limits with nothing between them are decided together. `Limiter(app, default=...)` limits the whole application: what
is mounted in it, its documents, and unknown paths, too. Functions (`key`, `cost`, `skip`) get the request and may be
async.
"""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import HTTPException, WebSocketException
from fastapi.params import Depends
from starlette.requests import HTTPConnection
from starlette.responses import Response

from . import limits, starlette
from .calls import Policy
from .keys import NOT_LIMITED, composite, hashed, ip, join_key, user
from .starlette import STATE, TRY_AGAIN_LATER, State, admit_request, is_preflight

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["NOT_LIMITED", "Limit", "Limiter", "composite", "hashed", "ip", "is_preflight", "join_key", "user"]

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
        together = list(_from(self, connection))
        if state is not None:
            state.asked += together
        refused = await admit_request(connection, together)
        if refused is not None and connection.scope["type"] == "websocket":
            raise WebSocketException(TRY_AGAIN_LATER, "Too many requests")
        if refused is not None and state is not None:
            state.refusal = refused
            raise Limited(refused)


def Limit(
    policy: Policy | Callable[..., Any] | limits.Limit | None = None, **options: Unpack[limits.LimitOptions]
) -> Depends:
    """A dependency that limits an endpoint, a router or the application. The arguments are those of limits.Limit."""
    return Depends(_Check(policy if isinstance(policy, limits.Limit) else limits.Limit(policy, **options)))


def _from(check: _Check, connection: HTTPConnection) -> list[limits.Limit]:
    """This limit, and those that FastAPI resolves next, without another dependency between them."""
    context = connection.scope.get("fastapi", {}).get("effective_route_context")
    route = context if hasattr(context, "dependant") else connection.scope.get("route")
    later = itertools.dropwhile(lambda one: one is not check, _in_order(getattr(route, "dependant", None)))
    together = [one.limit for one in itertools.takewhile(lambda one: isinstance(one, _Check), later)]
    return list(dict.fromkeys(together)) or [check.limit]


def _in_order(dependant: Any) -> Iterator[Any]:
    """What FastAPI calls, one after another: a dependency comes after its own."""
    for one in getattr(dependant, "dependencies", ()):
        yield from _in_order(one)
        yield one.call


class Limiter(starlette.Limiter):
    """The arguments are those of ratelimitd.starlette.Limiter. A route with a Limit of its own has no default. verify()
    looks at every Limit of the program."""

    def default_for(self, state: State) -> Sequence[limits.Limit]:
        dependant = getattr(state.found.route, "dependant", None) if self.default else None
        return () if any(isinstance(one, _Check) for one in _in_order(dependant)) else super().default_for(state)

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
            f"{limits.qualified_name(endpoint)} takes no Request: add `request: Request`, or write "
            "dependencies=[Limit(...)] at the route"
        )

    def declared(self) -> Sequence[limits.Limit]:
        return [*super().declared(), *(one.limit for one in list(_declared))]
