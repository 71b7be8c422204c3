"""Client for ratelimitd: may this key do this now?

    from ratelimitd import Client

    client = Client()
    if not client.check("login", user): ...

Client asks and waits; AsyncClient is awaited. ratelimitd.flask, .django, .starlette and .fastapi limit endpoints, and
ratelimitd.testing has a limiter for tests.
"""

from .aio import AsyncClient, AsyncReservation, AsyncSlot
from .client import Client, Reservation, Slot
from .decision import NO_LIMIT, Decision
from .errors import Denied, RateLimitError, Refused, Unavailable
from .keys import NOT_LIMITED

__all__ = [
    "NOT_LIMITED",
    "NO_LIMIT",
    "AsyncClient",
    "AsyncReservation",
    "AsyncSlot",
    "Client",
    "Decision",
    "Denied",
    "RateLimitError",
    "Refused",
    "Reservation",
    "Slot",
    "Unavailable",
]
