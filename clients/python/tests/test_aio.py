from __future__ import annotations

import asyncio
import os
import socket
import threading
import time

import anyio
import pytest
from conftest import reply

from ratelimitd import AsyncClient, AsyncReservation, AsyncSlot, Client, Denied, Unavailable
from ratelimitd.testing import Daemon


async def test_the_methods_are_awaited(ratelimitd: Daemon, key: str) -> None:
    async with AsyncClient(ratelimitd.socket, timeout=5) as client:
        assert (await client.check("few", key)).remaining == 1
        assert (await client.check_all([("few", key), ("web", key)])).allowed
        assert [one.allowed for one in await client.check_many([("few", key), ("web", key)])] == [False, True]
        assert (await client.refund("few", key, 1)).refunded == 1
        assert (await client.peek("few", key)).remaining == 1
        assert (await client.explain("few", key))["policy"] == "few"
        assert await client.reset("few", key)
        async with client.slot("slots", key) as slot, client.slot("slots", key):
            assert slot.held
            with pytest.raises(Denied):
                async with client.slot("slots", key):
                    pass
        assert (await client.peek("slots", key)).remaining == 2
        async with client.reserve("web", key, 10) as reservation:
            await reservation.settle(1)
        token = (await client.reserve("web", key, 10)).token
        assert (await client.cancel(token)).remaining == 97
        async with client.reserve("web", key + "-llm", 1000, clamp=True) as clamped:
            assert clamped.estimate == 100
        await client.verify(["web"], inline=True)
        await client.ping()
        assert len([one for one in await client.policies() if "inline" not in one]) == 8
        assert (await client.stats())["connections"] >= 1


async def test_a_thousand_calls_share_one_connection(ratelimitd: Daemon, key: str) -> None:
    async with AsyncClient(ratelimitd.socket, timeout=20) as client:
        before = (await client.stats())["connections_accepted"]
        decisions = await asyncio.gather(*(client.check("web", key) for _ in range(1000)))
        assert sum(one.allowed for one in decisions) == 100
        assert (await client.stats())["connections_accepted"] == before


async def test_an_answer_that_came_while_the_loop_was_blocked_counts(peer: object) -> None:
    came = threading.Event()

    def answer(connection: socket.socket, request: list[object]) -> None:
        reply(connection, request[1])
        came.set()

    async with AsyncClient(peer(answer), timeout=0.1) as client:  # type: ignore[operator]
        call = asyncio.create_task(client.check("web", "k"))
        await asyncio.sleep(0)
        came.wait(20)
        time.sleep(0.15)  # noqa: ASYNC251
        assert (await call).allowed


async def test_a_late_yes_is_taken_back(peer: object) -> None:
    seen: list[list[object]] = []
    released = threading.Event()

    def answer(connection: socket.socket, request: list[object]) -> None:
        seen.append(request)
        if request[2] == "release":
            released.set()
        if request[2] == "peek":
            reply(connection, request[1])
        if request[2] == "check":
            reply(connection, seen[1][1], slot="late")
            reply(connection, request[1])

    async with AsyncClient(peer(answer), timeout=10) as client:  # type: ignore[operator]
        await client.peek("web", "k")  # it is connected: the next request leaves at once
        with pytest.raises(Unavailable):
            await client.acquire("slots", "k", timeout=0.2)
        await client.check("web", "k")
        assert await asyncio.to_thread(released.wait, 20)
    assert [request[2:] for request in seen] == [
        ["peek", ["web", "k", 0]],
        ["acquire", ["slots", "k"]],
        ["check", ["web", "k", 1]],
        ["release", ["late"]],
    ]


async def test_a_cancelled_acquire_keeps_nothing(ratelimitd: Daemon, key: str) -> None:
    async with AsyncClient(ratelimitd.socket, timeout=10) as client:
        for _ in range(20):
            call = asyncio.create_task(client.acquire("slots", key))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        until = time.monotonic() + 20
        while (await client.peek("slots", key)).remaining < 2:
            assert time.monotonic() < until


async def test_a_task_that_is_cancelled_settles_what_it_used(ratelimitd: Daemon, key: str) -> None:
    async def work(reservation: AsyncReservation) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await reservation.settle(10)

    async with AsyncClient(ratelimitd.socket, timeout=10) as client:
        task = asyncio.create_task(work(await client.reserve("web", key, 40)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with anyio.CancelScope() as scope:  # as in Starlette: it cancels each await again
            scope.cancel()
            await work(await client.reserve("web", key, 40))
        until = time.monotonic() + 20
        while (await client.peek("web", key)).remaining < 80:
            assert time.monotonic() < until


async def test_an_answer_that_came_before_the_end_is_not_lost(peer: object) -> None:
    went = threading.Event()

    def answer(connection: socket.socket, request: list[object]) -> None:
        reply(connection, request[1], remaining=7)
        connection.shutdown(socket.SHUT_RDWR)
        went.set()

    async with AsyncClient(peer(answer), timeout=10) as client:  # type: ignore[operator]
        first = asyncio.create_task(client.check("web", "a"))
        await asyncio.sleep(0)
        went.wait(20)  # the answer and the end lie in the socket when the second call is written
        second = asyncio.create_task(client.check("web", "b"))
        assert (await first).remaining == 7
        assert (await second).remaining == 7


async def test_a_slot_learns_that_its_connection_ended(peer: object) -> None:
    lost: list[AsyncSlot] = []

    def answer(connection: socket.socket, request: list[object]) -> None:
        if request[2] == "acquire":
            reply(connection, request[1], slot="s")
        else:
            connection.shutdown(socket.SHUT_RDWR)

    async with AsyncClient(peer(answer), timeout=10) as client:  # type: ignore[operator]
        slot = await client.acquire("slots", "k", on_lost=lost.append)
        with pytest.raises(Unavailable):
            await client.check("web", "k")
        assert lost == [slot]
        assert slot.lost
        assert await slot.release() is False


def test_one_object_serves_many_loops_and_a_child(ratelimitd: Daemon, key: str) -> None:
    client = AsyncClient(ratelimitd.socket, timeout=10)

    async def once() -> int:
        try:
            return (await client.check("web", key)).remaining
        finally:
            await client.aclose()

    assert [asyncio.run(once()) for _ in range(3)] == [99, 98, 97]
    threads = [threading.Thread(target=asyncio.run, args=[once()]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if asyncio.run(once()) == 92 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with Client(ratelimitd.socket) as sync:
        assert sync.peek("web", key, timeout=10).remaining == 92
