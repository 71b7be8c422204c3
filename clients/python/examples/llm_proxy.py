"""A proxy of a language model: a request, its tokens and a slot are one admission, settled when the answer has ended.

UPSTREAM is where the model is, UPSTREAM_KEY the key for it. API_KEYS are the customers: {"SHA-256 of a key": "name"}.
The policy is that of docs/recipes.md, "A gateway of language models".
"""

import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator

import anyio
import httpx
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from serve import serve
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ratelimitd import AsyncClient, AsyncReservation, Decision, Unavailable
from ratelimitd.http import fields, refusal, retry_after

PATH = "/v1/chat/completions"
QUESTION_BYTES_MAX = 1 << 20
ANSWER_TOKENS_MAX = 4096
ANSWER_S_MAX = 600  # what takes longer is broken off, because its reservation ends
BYTES_PER_TOKEN = 4  # of a question, about

app = FastAPI()
customers: dict[str, str] = json.loads(os.environ["API_KEYS"])
limiter = AsyncClient(timeout=float(os.environ.get("TIMEOUT_MS", "250")) / 1000)
upstream = httpx.AsyncClient(
    base_url=os.environ["UPSTREAM"],
    headers={"Authorization": f"Bearer {os.environ['UPSTREAM_KEY']}", "Content-Type": "application/json"},
    timeout=60,
    limits=httpx.Limits(max_connections=None),  # the policy limits them
)


@app.post(PATH)
async def complete(request: Request) -> Response:
    key = request.headers.get("Authorization", "").removeprefix("Bearer ")
    customer = customers.get(hashlib.sha256(key.encode()).hexdigest())
    if customer is None:
        raise HTTPException(401, "this key is not known", {"WWW-Authenticate": "Bearer"})
    question, question_tokens, answer_tokens = checked(await body_of(request))

    try:
        reservation = await limiter.reserve("llm", customer, question_tokens + answer_tokens, ttl=ANSWER_S_MAX)
    except Unavailable:
        return refused(request, None)  # an answer costs money: without a decision, none
    if not reservation.allowed:
        return refused(request, reservation.decision)
    return Answer(reservation, question, question_tokens)


async def body_of(request: Request) -> bytes:
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > QUESTION_BYTES_MAX:
                raise HTTPException(413, f"a question has at most {QUESTION_BYTES_MAX} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the question has no end") from None
    return bytes(body)


def checked(body: bytes) -> tuple[bytes, int, int]:
    """The question for the upstream, of known fields alone (another one may ask for more), and the tokens of question
    and answer, estimated.
    """
    try:
        asked = json.loads(body)
        messages, max_tokens = asked["messages"], asked.get("max_tokens", ANSWER_TOKENS_MAX)
        known = {"model": "small", "messages": messages, "max_tokens": max_tokens}
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        question = json.dumps({**known, **usage}, allow_nan=False).encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        raise HTTPException(400, "a question is a JSON object with messages") from None
    if type(messages) is not list or type(max_tokens) is not int or not 1 <= max_tokens <= ANSWER_TOKENS_MAX:
        raise HTTPException(400, f"messages is a list, and max_tokens a number from 1 to {ANSWER_TOKENS_MAX}")
    return question, len(question) // BYTES_PER_TOKEN, max_tokens


def refused(request: Request, decision: Decision | None) -> Response:
    answer = refusal(decision, request.headers.get("Accept"))
    headers = dict([*fields([] if decision is None else [decision]), *retry_after(decision)])
    return Response(answer.body, answer.status, headers, answer.content_type)


class Answer(Response):
    """Passes the upstream's answer on, part by part. However it ends, the reservation is settled, which frees its slot;
    a `finally` in parts() would not do, because a client that leaves at once never begins them.
    """

    def __init__(self, reservation: AsyncReservation, question: bytes, question_tokens: int) -> None:
        super().__init__()
        self.reservation = reservation
        self.question, self.question_tokens = question, question_tokens
        self.used = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with anyio.move_on_after(ANSWER_S_MAX):
                async with upstream.stream("POST", PATH, content=self.question) as answer:
                    answer.raise_for_status()
                    self.used = self.question_tokens
                    headers = dict(fields([self.reservation.decision]))
                    passed = StreamingResponse(self.parts(answer), headers=headers, media_type="text/event-stream")
                    await passed(scope, receive, send)
        except httpx.HTTPError:
            if self.used:  # too late for another status: the connection is broken off
                raise
            await Response("the model does not answer\n", 502)(scope, receive, send)
        finally:
            with contextlib.suppress(Unavailable):  # counted and logged; the tokens come back when the time is over
                await self.reservation.settle(self.used)

    async def parts(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        rest = b""
        async for part in answer.aiter_bytes():
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self.count(line)
            yield part

    def count(self, line: bytes) -> None:
        """About one token in each event, until the upstream reports their number."""
        if line.startswith(b"data: {"):
            usage = json.loads(line.removeprefix(b"data: ")).get("usage")
            self.used = usage["total_tokens"] if usage else self.used + 1


if __name__ == "__main__":
    serve(app)
