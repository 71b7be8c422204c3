"""The driver of the conformance suite: `driver.py sync` for Client, `driver.py async` for AsyncClient.

A command becomes a coroutine. For AsyncClient it is a task of the one loop; for Client a thread runs it, because the
call in it blocks. `do_*` are the commands.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import inspect
import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from ratelimitd import AsyncClient, Client, Refused, Unavailable, http, keys, limits, steps
from ratelimitd.decision import Decision, read_decision
from ratelimitd.testing import AsyncFakeLimiter, FakeLimiter

Fields = dict[str, Any]
CALL_OPTIONS = {"cost", "at_most", "request_id", "resend"}
IN_MS = {
    "timeout_ms": "timeout",
    "deadline_ms": "deadline",
    "max_wait_ms": "max_wait",
    "ttl_ms": "ttl",
    "remember_denials_ms": "remember_denials",
}
SHOWN = [field.name for field in dataclasses.fields(Decision)]
SHOWN = SHOWN[: SHOWN.index("refunded")]

_output = threading.Lock()


def say(answer: Fields) -> None:
    with _output:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


class Lines(logging.Handler):
    """What the client logs."""

    def emit(self, record: logging.LogRecord) -> None:
        say({"event": "log", "message": record.getMessage()})


def plain(value: Any) -> Any:
    """A value of the suite as a program has it: {"base64": ...} is bytes."""
    if isinstance(value, dict) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"])
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def shown_key(key: str | bytes) -> Any:
    if isinstance(key, str):
        return key
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode()}


def options(command: Fields, *names: str) -> Fields:
    """The named options of a command, as keyword arguments; what is left out keeps the client's default."""
    found = {name: plain(command[name]) for name in names if command.get(name) is not None}
    for in_ms, name in IN_MS.items():
        if command.get(in_ms) is not None:
            found[name] = command[in_ms] / 1000
    return found


def shown(decision: Decision, *more: str) -> Fields:
    answer = {name: getattr(decision, name) for name in (*SHOWN, *more)}
    if decision.members:
        answer["members"] = [shown(member) for member in decision.members]
    return answer


def failure(error: BaseException) -> Fields:
    answer: Fields = {"maybe_charged": False, "message": str(error) or type(error).__name__}
    if isinstance(error, Unavailable):
        return {**answer, "status": error.kind, "code": error.code, "maybe_charged": error.maybe_charged}
    if isinstance(error, Refused):
        return {**answer, "status": "refused", "code": error.code, "missing": list(error.missing)}
    if isinstance(error, asyncio.CancelledError):
        return {**answer, "status": "cancelled", "maybe_charged": True}
    if isinstance(error, (ValueError, TypeError)):
        return {**answer, "status": "argument"}
    return {**answer, "status": "bug", "message": f"{type(error).__name__}: {error}"}


class View:
    """A request, for the helpers that make keys."""

    endpoint, can_wait = keys.Endpoint("GET /", None), False
    service: str | None = None

    def __init__(self, command: Fields) -> None:
        self.peer = command.get("peer")
        self.headers = command.get("headers") or []
        self.who = command.get("user")

    def header_lines(self, name: str) -> list[str]:
        return [value for one, value in self.headers if one.lower() == name.lower()]

    def user(self) -> str | None:
        return self.who

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class Driver:
    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self.clients: Fields = {}
        self.held: Fields = {}  # slots and reservations by their names
        self.running: dict[int, asyncio.Task[None]] = {}
        self.pending: Counter[str] = Counter()

    async def carry_out(self, command: Fields) -> Fields:
        """The answer to any command."""
        method = getattr(self, "do_" + command["do"], None)
        if method is None:
            return {"status": "unknown"}
        name = command.get("client", "")
        started = time.monotonic()
        self.pending[name] += 1
        try:
            if command.get("cancelled"):
                return {"status": "cancelled", "maybe_charged": False, "message": "given up before the call", "ms": 0}
            answer = method(command)
            if inspect.isawaitable(answer):
                answer = await answer
            return {"status": "ok", "ms": (time.monotonic() - started) * 1000, **(answer or {})}
        except (Exception, asyncio.CancelledError) as error:
            return {"ms": (time.monotonic() - started) * 1000, **failure(error)}
        finally:
            self.pending[name] -= 1

    async def call(self, command: Fields, method: str, *args: Any, **named: Any) -> Any:
        answer = getattr(self.clients[command["client"]], method)(*map(plain, args), **named)
        return await answer if inspect.isawaitable(answer) else answer

    # ---- clients ----

    def do_open(self, command: Fields) -> None:
        make = AsyncClient if self.is_async else Client
        self.clients[command["client"]] = make(command.get("socket"), **options(command))

    async def do_close(self, command: Fields) -> None:
        client = self.clients.pop(command["client"], None)
        if client is not None:
            await client.aclose() if self.is_async else client.close()

    def do_fake(self, command: Fields) -> None:
        self.clients[command["client"]] = AsyncFakeLimiter() if self.is_async else FakeLimiter()

    def do_stats(self, command: Fields) -> Fields:
        counters = self.clients[command["client"]].counters()
        kinds = {name.partition("_")[2]: n for name, n in counters.items() if name.startswith("unavailable_")}
        return {"counters": {**counters, "unavailable": kinds}, "pending": self.pending[command["client"]] - 1}

    # ---- calls ----

    async def do_check(self, c: Fields) -> Fields:
        named = options(c, *CALL_OPTIONS)
        return {"decision": shown(await self.call(c, "check", c["policy"], c["key"], **named))}

    async def do_check_all(self, c: Fields) -> Fields:
        return {"decision": shown(await self.call(c, "check_all", c["items"], **options(c, "request_id", "resend")))}

    async def do_check_many(self, c: Fields) -> Fields:
        return {"decisions": [shown(one) for one in await self.call(c, "check_many", c["items"], **options(c))]}

    async def do_peek(self, c: Fields) -> Fields:
        return {"decision": shown(await self.call(c, "peek", c["policy"], c["key"], **options(c, "cost")))}

    async def do_reset(self, c: Fields) -> Fields:
        return {"removed": await self.call(c, "reset", c["policy"], c["key"], **options(c))}

    async def do_refund(self, c: Fields) -> Fields:
        named = options(c, "request_id", "resend")
        return {"decision": shown(await self.call(c, "refund", c["policy"], c["key"], c["units"], **named), "refunded")}

    async def do_acquire(self, c: Fields) -> Fields:
        def on_lost(_: object) -> None:
            say({"event": "lost", "slot": c.get("as")})

        named = options(c, "request_id")
        slot = await self.call(c, "acquire", c["policy"], c["key"], on_lost=on_lost, **named)
        if slot.allowed:
            self.held[c.get("as", "")] = slot
        return {"decision": shown(slot.decision), "slot": slot.allowed}

    async def do_release(self, c: Fields) -> Fields:
        slot = self.held[c["slot"]]
        released = await slot.release() if inspect.iscoroutinefunction(slot.release) else slot.release()
        return {"released": released, "lost": slot.lost}

    def do_slot_state(self, c: Fields) -> Fields:
        slot = self.held[c["slot"]]
        return {"lost": slot.lost, "held": slot.held}

    async def do_reserve(self, c: Fields) -> Fields:
        named = options(c, "request_id")
        reservation = await self.call(c, "reserve", c["policy"], c["key"], c["estimate"], **named)
        if reservation.allowed:
            self.held[c.get("as", "")] = reservation
        return {"decision": shown(reservation.decision), "reservation": reservation.allowed}

    async def do_settle(self, c: Fields) -> Fields:
        return await self._end(self.held[c["reservation"]].settle(c["actual"], **options(c)))

    async def do_cancel_reservation(self, c: Fields) -> Fields:
        return await self._end(self.held[c["reservation"]].cancel(**options(c)))

    async def _end(self, answer: Any) -> Fields:
        decision = await answer if inspect.isawaitable(answer) else answer
        return {"decision": shown(decision, "refunded", "charged", "ended")}

    async def do_verify(self, c: Fields) -> None:
        await self.call(c, "verify", c["policies"], inline=c.get("inline", False), **options(c))

    # ---- this process ----

    def do_cancel(self, command: Fields) -> None:
        task = self.running.get(command["call"])
        if task is not None:
            task.cancel()

    def do_block_ms(self, command: Fields) -> None:
        say({"event": "blocking"})
        time.sleep(command["ms"] / 1000)

    def do_fork(self, command: Fields) -> Fields:
        """The child has a new loop, in a new thread: the parent's loop runs in the one that forked."""
        reader, writer = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            answers: list[Fields] = []

            async def work() -> None:
                for each in command["each"]:
                    answers.append(await self.carry_out(each))
                if self.is_async:
                    for client in self.clients.values():
                        await client.aclose()

            thread = threading.Thread(target=asyncio.run if self.is_async else drive, args=[work()])
            thread.start()
            thread.join()
            os.write(writer, json.dumps(answers).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = json.load(pipe)
        _, status = os.waitpid(pid, 0)
        return {"answers": said, "exit": os.waitstatus_to_exitcode(status)}

    async def do_threads(self, command: Fields) -> Fields:
        answers: list[Fields] = []

        async def one(number: int) -> None:
            for round_number in range(command.get("times", 1)):
                for each in command["each"]:
                    text = json.dumps(each).replace("{thread}", str(number)).replace("{time}", str(round_number))
                    answers.append(await self.carry_out(json.loads(text)))

        if self.is_async:
            await asyncio.gather(*(one(number) for number in range(command["n"])))
        else:
            threads = [threading.Thread(target=drive, args=[one(number)]) for number in range(command["n"])]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        allowed = sum(answer.get("decision", {}).get("allowed", False) for answer in answers)
        return {"counts": Counter(answer["status"] for answer in answers), "allowed": allowed}

    # ---- helpers ----

    def _ip(self, c: Fields) -> keys.Ip:
        return keys.Ip(c.get("trusted_proxies") or (), c.get("prefix") or 64, c.get("header") or keys.FORWARDED)

    def _key(self, key: keys.Key, c: Fields) -> Fields:
        made = steps.run(key.steps(View(c)), None)
        if not made:
            raise ValueError("there is no key")
        return {"key": made}

    def do_ip_key(self, c: Fields) -> Fields:
        return self._key(self._ip(c), c)

    def do_user_key(self, c: Fields) -> Fields:
        return self._key(keys.User(ip=self._ip(c)), c)

    def do_join_key(self, c: Fields) -> Fields:
        return {"key": keys.join_key(*c["parts"])}

    def do_hashed_key(self, c: Fields) -> Fields:
        return {"key": keys.hashed(plain(c["value"]))}

    def do_parse_limit(self, c: Fields) -> Fields:
        return {"settings": limits.parse_limit(c["text"])}

    def _limit(self, given: Fields) -> limits.Limit:
        def function(*_: Any) -> Any: ...

        made: Fields = {name: function if one == {"function": True} else one for name, one in given.items()}
        return limits.Limit(**made)

    def do_limit(self, c: Fields) -> None:
        self._limit(c["options"])

    def do_endpoint_key(self, c: Fields) -> Fields:
        limit = self._limit(c["limit"])
        key = limits.key_for(limit, limit.policy or "", c.get("service") or "", c["endpoint"], plain(c["key"]))
        return {"key": shown_key(key)}

    def do_service_name(self, c: Fields) -> Fields:
        for name in ("RATELIMIT_SERVICE", "OTEL_SERVICE_NAME"):
            os.environ.pop(name, None)
        os.environ.update(c["env"])
        return {"service": limits.service_name(c.get("option"), c.get("own"))[0]}

    def do_headers(self, c: Fields) -> Fields:
        mode: Any = c.get("mode") or "ietf"
        reset: Any = c.get("reset") or "delta"
        now_ms = c.get("now_ms")
        decision, headers = None, []
        if not c.get("unavailable"):
            members = [1] * len(c["decision"]["members"]) if "members" in c["decision"] else None
            decision = read_decision(c["decision"], members=members)
            headers = http.fields([decision], mode, reset, None if now_ms is None else now_ms / 1000)
            if decision.allowed:
                return {"http_status": None, "headers": headers, "body": None}
        answer = http.refusal(decision, c.get("accept"))
        headers = [*headers, *http.retry_after(decision), ("Content-Type", answer.content_type)]
        return {"http_status": answer.status, "headers": headers, "body": answer.body.decode()}

    # ---- the fake limiter ----

    def do_fake_allow_all(self, c: Fields) -> None:
        self.clients[c["client"]].allow_all()

    def do_fake_deny(self, c: Fields) -> None:
        self.clients[c["client"]].deny(c["policy"], retry_after=c.get("retry_after_ms", 1000) / 1000)

    def do_fake_unavailable(self, c: Fields) -> None:
        self.clients[c["client"]].unavailable(c.get("kind") or "unreachable")

    def do_fake_calls(self, c: Fields) -> Fields:
        return {"calls": self.clients[c["client"]].calls}


def drive(work: Coroutine[Any, Any, None]) -> None:
    """For Client: the coroutine never waits for a loop."""
    try:
        work.send(None)
    except StopIteration:
        return


async def answer_to(driver: Driver, command: Fields) -> None:
    answer = await driver.carry_out(command)
    driver.running.pop(command["id"], None)
    say({"id": command["id"], **answer})


def run_sync(driver: Driver) -> None:
    """Each command has a thread; the driver's own commands run here."""
    for line in sys.stdin:
        command = json.loads(line)
        work = answer_to(driver, command)
        if command["do"] in ("fork", "open", "close"):
            drive(work)
        else:
            threading.Thread(target=drive, args=[work], daemon=True).start()
    for client in driver.clients.values():
        client.close()
    os._exit(0)


async def run_async(driver: Driver) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        command = json.loads(line)
        driver.running[command["id"]] = asyncio.create_task(answer_to(driver, command))
        await asyncio.sleep(0)  # it begins now
    for client in driver.clients.values():
        await client.aclose()
    os._exit(0)


def main() -> None:
    driver = Driver(sys.argv[1:] == ["async"])
    logging.getLogger("ratelimitd").addHandler(Lines())
    say({"ready": True, "pid": os.getpid()})
    if driver.is_async:
        asyncio.run(run_async(driver))
    else:
        run_sync(driver)


main()
