"""One flow for threads and for event loops.

What the middleware does is written once, as a generator that yields what is to be done (functions of an Io) and
receives what came of it. run() does it and waits; arun() does it and awaits.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Step = Callable[["Io"], Any]
Steps = Generator[Step, Any, T]


LONGEST_SLEEP_S = 86_400.0  # some timers take no more than 2^31 ms


def sleep(seconds: float) -> None:
    while seconds > 0:
        time.sleep(min(seconds, LONGEST_SLEEP_S))
        seconds -= LONGEST_SLEEP_S


async def asleep(seconds: float) -> None:
    while seconds > 0:
        await asyncio.sleep(min(seconds, LONGEST_SLEEP_S))
        seconds -= LONGEST_SLEEP_S


class Io(NamedTuple):
    """What a step may use: the client, and a way to sleep."""

    client: Any
    sleep: Callable[[float], Any] = sleep


def run(steps: Steps[T], client: Any) -> T:
    io = Io(client)
    try:
        step = next(steps)
        while True:
            try:
                value = step(io)
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError("an async function, where the handler is not async")
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


async def arun(steps: Steps[T], client: Any) -> T:
    io = Io(client, asleep)
    try:
        step = next(steps)
        while True:
            try:
                value = step(io)
                if inspect.isawaitable(value):
                    value = await value
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result
