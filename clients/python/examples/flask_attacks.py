"""The routes of the table of attacks (../../conformance/attacks.yaml) in Flask."""

import functools
import os
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Flask, Response, g, request

from ratelimitd.flask import NOT_LIMITED, Limiter, composite, ip, is_preflight, user

EVERY = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
View = Callable[[], Response]


def text(body: str, status: int = 200) -> Response:
    return Response(body, status, content_type="text/plain; charset=utf-8")


def page(name: str) -> View:
    return lambda: text(f"{name}\n")


def api_key() -> str | None:
    return request.headers.get("X-Api-Key")


def user_of_json() -> Any:
    body = request.get_json(silent=True)
    return body.get("user") if isinstance(body, dict) else None


def passes(view: View) -> View:
    """An ordinary decorator: what stands above and below it is asked at two places."""

    @functools.wraps(view)
    def inner() -> Response:
        return view()

    return inner


def requires_user(view: View) -> View:
    @functools.wraps(view)
    def inner() -> Response:
        g.member = request.headers.get("X-User")
        return view() if g.member else text("who are you?\n", 401)

    return inner


def add(app: Flask, limiter: Limiter) -> None:
    def get(path: str, view: View, **options: Any) -> None:
        app.add_url_rule(f"/attack/{path}", path.replace("/", "-"), view, **options)

    every = {"methods": EVERY, "provide_automatic_options": False}
    get("any", limiter.limit("never", on_error="deny")(page("any")), **every)
    get("preflight", limiter.limit("never", skip=is_preflight)(page("preflight")), **every)
    get("key", limiter.limit("never", key=api_key)(page("key")))
    get("key-allowed", limiter.limit("never", key=api_key, on_error="allow")(page("key-allowed")))
    get("key-said", limiter.limit("never", key=api_key)(page("key-said")))
    get("json", limiter.limit("never", key=user_of_json)(page("json")), methods=["POST"])
    get("parts", limiter.limit("never", key=composite(ip, api_key))(page("parts")))
    get("param", limiter.limit("never", key=lambda: request.args.get("user"))(page("param")))

    def exempt_or_address() -> Any:
        return NOT_LIMITED if request.headers.get("X-Exempt") == "yes" else request.remote_addr

    get("exempt", limiter.limit("never", key=exempt_or_address)(page("exempt")))
    get("user", limiter.limit("pair", key=user(lambda: request.headers.get("X-User")))(page("user")))
    get("user-broken", limiter.limit("never", key=user(lambda: g.nobody_sets_this))(page("user-broken")))

    @app.before_request
    def find_user() -> None:
        g.visitor = request.headers.get("X-User")

    get("late-hook", limiter.limit("pair", key=user(lambda: g.visitor))(page("late-hook")))
    get("late-guard", requires_user(limiter.limit("pair", key=user(lambda: g.member))(page("late-guard"))))

    forwarded = limiter.limit("pair")(page("forwarded"))
    get("forwarded", forwarded)
    get("forward", lambda: forwarded())
    redirected = limiter.limit("web")(page("redirected"))
    get("redirect", limiter.limit("web")(lambda: redirected()))

    outer = limiter.limit("web")
    get("outer/twice", outer(passes(limiter.limit("web")(page("twice")))))
    get("outer/cost", limiter.limit("web")(passes(limiter.limit("web", cost=5)(page("cost")))))
    get("outer/inner", limiter.limit("web")(passes(limiter.limit("pair")(page("inner")))))
    get("outer/key", limiter.limit("web")(passes(limiter.limit("never", key=api_key)(page("key")))))
    get("strict/inner", limiter.limit("strict")(passes(limiter.limit("never")(page("inner")))))
    get("number", limiter.limit("web", charge_when=lambda response: 5)(page("number")))

    for name in ("a", "b"):
        get(f"names/factory/{name}", limiter.limit("2/1m")(page(name)))
    get("names/lambda/a", limiter.limit("2/1m")(lambda: text("a\n")))
    get("names/lambda/b", limiter.limit("2/1m")(lambda: text("b\n")))
    app.add_url_rule("/attack/names/method", "method-get", limiter.limit("2/1m")(page("method")))
    app.add_url_rule("/attack/names/method", "method-post", limiter.limit("2/1m")(page("method")), methods=["POST"])
    get("names/both", limiter.limit("2/1m")(page("both")), methods=["GET", "POST"])
    module = Blueprint("module", __name__)
    module.get("/x")(limiter.limit("2/1m")(page("x")))
    for name in ("a", "b"):
        app.register_blueprint(module, name=name, url_prefix=f"/attack/names/mounted-{name}")

    @app.get("/attack/names/item/<int:number>")
    @limiter.limit("2/1m")
    def item(number: int) -> Response:
        return text("item\n")

    for name in ("a", "b"):
        get(f"names/shared-{name}", limiter.limit("2/1m", endpoint="shared")(page(f"shared-{name}")))

    def limit_of_query() -> int:
        return int(request.args["limit"])

    get("moves", limiter.limit(limit=limit_of_query, window="1m", key="moves")(page("moves")))

    raw = Blueprint("raw", __name__, url_prefix="/attack/raw")
    raw.before_request(limiter.limit("never")(lambda: None))  # a limit of all views of a blueprint
    raw.get("/x")(page("raw"))
    app.register_blueprint(raw)

    mistake = os.environ.get("MISTAKE")
    if mistake == "equal-names":
        get("mistake/1", limiter.limit("2/1m", endpoint="GET /attack/mistake/2")(page("1")))
        get("mistake/2", limiter.limit("2/1m")(page("2")))
    if mistake == "misplaced":
        limiter.limit("never")(passes(app.get("/attack/mistake/1")(page("1"))))
    if mistake == "no-user-layer":
        get("mistake/1", limiter.limit("web", key=user)(page("1")))
