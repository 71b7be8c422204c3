"""Servers with several processes: one limit for all of them, and nothing to configure."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratelimitd.testing import Daemon

APPLICATION = """
import os
from ratelimitd import AsyncClient, Client
from ratelimitd.flask import Limiter
import flask

wsgi = flask.Flask("wsgi")
limiter = Limiter(wsgi, on_error="deny", client=Client(timeout=30))
limiter.client.check("web", "asked before the fork", timeout=10)

@wsgi.get("/")
@limiter.limit("web", key=os.environ["KEY"])
def view():
    return str(os.getpid())


from fastapi import FastAPI
from ratelimitd.fastapi import Limit, Limiter

asgi = FastAPI()
Limiter(asgi, on_error="deny", client=AsyncClient(timeout=30))

@asgi.get("/", dependencies=[Limit("web", key=os.environ["KEY"])])
async def view():
    return os.getpid()
"""


def ask(port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "argv",
    [
        ["gunicorn", "--preload", "-w", "4", "-b", "fd://{fd}", "application:wsgi"],
        ["gunicorn", "--preload", "-w", "2", "-k", "gevent", "-b", "fd://{fd}", "application:wsgi"],
        ["uvicorn", "--workers", "2", "--fd", "{fd}", "--log-level", "warning", "application:asgi"],
    ],
    ids=["gunicorn", "gunicorn-gevent", "uvicorn"],
)
def test_all_workers_count_together(ratelimitd: Daemon, tmp_path: Path, key: str, argv: list[str]) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        port, fd = listener.getsockname()[1], listener.fileno()
        env = {**os.environ, "RATELIMIT_SOCKET": ratelimitd.socket, "KEY": key, "PYTHONPATH": str(tmp_path)}
        words = [sys.executable, "-m", *(word.format(fd=fd) for word in argv)]
        with (tmp_path / "log").open("wb") as log:
            server = subprocess.Popen(
                words, env=env, pass_fds=[fd], cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
            )
        try:
            answers = [ask(port)]
            with ThreadPoolExecutor(8) as threads:
                answers += threads.map(lambda _: ask(port), range(119))
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)
    assert Counter(status for status, _ in answers) == {200: 100, 429: 20}, (tmp_path / "log").read_text()
