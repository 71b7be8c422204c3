"""Serves an ASGI application on $PORT, and prints `ready` when it listens."""

import os
import socket
from typing import Any

import uvicorn


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


def serve(app: Any) -> None:
    # proxy_headers: by default uvicorn believes X-Forwarded-For of every local client.
    config = uvicorn.Config(
        app, host="127.0.0.1", port=int(os.environ["PORT"]), proxy_headers=False, log_level="warning"
    )
    Server(config).run()
