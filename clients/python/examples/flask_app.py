"""The example service in Flask."""

import os
import time
from collections.abc import Iterator

from flask import Flask, Response, request
from werkzeug.serving import make_server

from ratelimitd.flask import Limiter

app = Flask(__name__)
limiter = Limiter(app)


def text(body: str | Iterator[str], status: int = 200) -> Response:
    return Response(body, status, content_type="text/plain; charset=utf-8")


@limiter.limit("web")
@app.get("/ok")
def ok() -> Response:
    return text("ok\n")


@limiter.limit(
    "login",
    key=lambda: request.form["user"],
    on_error="deny",
    charge_when=lambda response: response.status_code == 401,
)
@app.post("/login")
def login() -> Response:
    return text("welcome\n") if request.form["password"] == "right" else text("wrong\n", 401)


@app.get("/inline")
@limiter.limit(limit=2, window="5s")
def inline() -> Response:
    return text("inline\n")


@limiter.limit("web")
@limiter.limit("tenant", key=lambda: request.headers.get("X-Tenant"))
@app.get("/two")
def two() -> Response:
    return text("two\n")


@limiter.limit("slow", slot=True)
@app.get("/slow")
def slow() -> Response:
    time.sleep(int(request.args["ms"]) / 1000)
    return text("slow\n")


@limiter.limit("stream", slot=True)
@app.get("/stream")
def stream() -> Response:
    def lines() -> Iterator[str]:
        yield "one\n"
        time.sleep(0.1)
        yield "two\n"
        time.sleep(0.1)
        yield "three\n"

    return text(lines())


@limiter.limit("budget", cost=lambda: int(request.args["n"]))
@app.get("/cost")
def cost() -> Response:
    return text(f"cost {request.args['n']}\n")


@limiter.limit("login", skip=lambda: request.headers.get("X-Probe") == "yes")
@app.get("/skip")
def skip() -> Response:
    return text("skip\n")


@limiter.limit("web", on_error="deny")
@app.get("/down")
def down() -> Response:
    return text("down\n")


if __name__ == "__main__":
    server = make_server("127.0.0.1", int(os.environ["PORT"]), app, threaded=True)
    print("ready", flush=True)
    server.serve_forever()
