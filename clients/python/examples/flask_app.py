"""The example service in Flask."""

import os
import time
from collections.abc import Iterator
from typing import Any

import flask_attacks
from flask import Flask, Response, g, request
from werkzeug.serving import make_server

from ratelimitd import Client, Decision
from ratelimitd.flask import NOT_LIMITED, Limiter, composite, ip

app = Flask(__name__)
limiter = Limiter(app, client=Client(timeout=float(os.environ.get("TIMEOUT_MS", "250")) / 1000))


def text(body: str | Iterator[str], status: int = 200) -> Response:
    return Response(body, status, content_type="text/plain; charset=utf-8")


@limiter.limit("web")
@app.get("/ok")
def ok() -> Response:
    return text("ok\n")


@limiter.limit(
    "login",
    key=composite(lambda: request.form.get("user") or "-", ip),
    on_error="deny",
    charge_when=lambda response: response.status_code == 401,
)
@app.post("/login")
def login() -> Response:
    return text("welcome\n") if request.form.get("password") == "right" else text("wrong\n", 401)


@app.get("/inline")
@limiter.limit(limit=2, window="5s")
def inline() -> Response:
    return text("inline\n")


@limiter.limit("web")
@limiter.limit("tenant", key=lambda: request.headers.get("X-Tenant") or NOT_LIMITED)
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


def is_gold() -> bool:
    return request.headers.get("X-Plan") == "gold"


@limiter.limit(limit=lambda: 3 if is_gold() else 1, window=lambda: "30s" if is_gold() else "60s", name="plan")
@app.get("/plan")
def plan() -> Response:
    return text("plan\n")


def chosen() -> Any:
    return NOT_LIMITED if request.args.get("policy") == "free" else request.args.get("policy")


@limiter.limit(chosen)
@app.get("/choose")
def choose() -> Response:
    return text("choose\n")


@limiter.limit("web")
@app.get("/left")
def left() -> Response:
    decision: Decision | None = g.ratelimit
    return text("left unknown\n" if decision is None else f"left {decision.remaining} of {decision.of}\n")


@limiter.limit(limit=2, window="1m", name="guess", charge_when=lambda response: response.status_code == 403)
@app.get("/guess")
def guess() -> Response:
    return text("right\n") if request.args["right"] == "yes" else text("wrong\n", 403)


def slow_down(decision: Decision) -> Response:
    response = text("slow down\n", 418)
    response.headers.update({"Retry-After": "99", "X-RateLimit-Limit": "99"})
    return response


@limiter.limit("budget", cost=lambda: int(request.args["n"]), headers="both", respond=slow_down)
@app.get("/own")
def own() -> Response:
    response = text("own\n")
    response.headers["X-RateLimit-Limit"] = "99"
    return response


flask_attacks.add(app, limiter)

if __name__ == "__main__":
    server = make_server("127.0.0.1", int(os.environ["PORT"]), app, threaded=True)
    print("ready", flush=True)
    server.serve_forever()
