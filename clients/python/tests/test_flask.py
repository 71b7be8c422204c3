from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flask
import pytest
from conftest import fields_of

from ratelimitd import Client, Refused, Unavailable
from ratelimitd.flask import NOT_LIMITED, Limiter, composite, ip
from ratelimitd.testing import FakeLimiter


@pytest.fixture
def app() -> flask.Flask:
    return flask.Flask("tests")


def test_a_mark_works_above_and_below_the_route(app: flask.Flask, client: Client, key: str) -> None:
    limiter = Limiter(app, client=client, key=key)

    @limiter.limit("few")
    @app.get("/above")
    def above() -> str:
        return "above"

    @app.get("/below")
    @limiter.limit("few")
    def below() -> str:
        return "below"

    asks = app.test_client()
    first = asks.get("/above")
    assert fields_of(first.headers)["RateLimit"] == [("few", {"r": 1, "t": 60})]
    assert asks.get("/below").status_code == 200
    denied = asks.get("/below")
    assert denied.status_code == 429
    assert denied.headers["Retry-After"] == "60"
    assert denied.json["violated-policies"] == ["few"]
    assert fields_of(denied.headers)["RateLimit"] == [("few", {"r": 0, "t": 60})]


def test_defaults_exemptions_and_limits_of_an_endpoint(app: flask.Flask) -> None:
    fake = FakeLimiter()
    limiter = Limiter(app, default=["web", "10/s"], client=fake)
    app.get("/a", endpoint="a")(lambda: "a")
    app.get("/b", endpoint="b")(limiter.exempt(lambda: "b"))

    @app.get("/c")
    @limiter.limit("5/s")
    @limiter.limit("one", key=composite(ip, "x"), cost=lambda: 3)
    def c() -> str:
        return "c"

    asks = app.test_client()
    assert [asks.get(path).status_code for path in ("/a", "/b", "/c", "/nowhere", "/static/x")] == [
        200,
        200,
        200,
        404,
        404,
    ]
    inline = {"algorithm": "fixed_window", "limit": 10, "window": "1s", "start": "first_hit"}
    assert fake.calls == [
        ["check_all", "web", "127.0.0.1", 1],
        ["check_all", inline, "tests|GET /a|127.0.0.1", 1],
        ["check_all", {**inline, "limit": 5}, "tests|GET /c|127.0.0.1", 1],
        ["check_all", "one", "127.0.0.1|x", 3],
        ["check_all", "web", "127.0.0.1", 1],
        ["check_all", inline, "tests|*|127.0.0.1", 1],
    ]


def test_without_a_decision_on_error_allows_or_denies(app: flask.Flask) -> None:
    fake = FakeLimiter()
    limiter = Limiter(app, client=fake)
    seen: list[Unavailable] = []
    rules: dict[str, Any] = {"allow": "allow", "deny": "deny", "asks": lambda error: seen.append(error) or "deny"}
    for name, rule in rules.items():
        app.get(f"/{name}", endpoint=name)(limiter.limit("web", on_error=rule)(_view()))
    fake.unavailable("timeout")
    asks = app.test_client()
    assert [asks.get(f"/{name}").status_code for name in rules] == [200, 503, 503]
    assert asks.get("/deny").headers["Retry-After"] == "1"
    assert asks.get("/deny", headers={"Accept": "text/html"}).text == "Temporary reduced capacity: try again in 1 s.\n"
    assert seen[0].kind == "timeout"


def _view() -> Callable[[], str]:
    return lambda: "ok"


def test_a_wrong_name_is_an_error_also_under_allow(app: flask.Flask, client: Client) -> None:
    limiter = Limiter(app, client=client)
    app.get("/")(limiter.limit("wbe")(_view()))
    assert app.test_client().get("/").status_code == 500
    with pytest.raises(Refused, match="wbe"):
        limiter.verify()


def test_only_failures_are_charged(app: flask.Flask, client: Client, key: str) -> None:
    limiter = Limiter(app, client=client)

    @limiter.limit("few", key=key, charge_when=lambda response: response.status_code == 401)
    @app.get("/<int:status>")
    def login(status: int) -> tuple[str, int]:
        if status == 500:
            raise RuntimeError
        return "", status

    asks = app.test_client()
    statuses = [asks.get(f"/{status}").status_code for status in (200, 500, 200, 401, 200, 401, 200, 401)]
    assert statuses == [200, 500, 200, 401, 200, 401, 429, 429]


@pytest.mark.parametrize("propagates", [False, True])
def test_a_slot_is_held_until_the_body_has_ended(app: flask.Flask, client: Client, key: str, propagates: bool) -> None:
    app.config["PROPAGATE_EXCEPTIONS"] = propagates
    limiter = Limiter(app, client=client, key=key)

    @limiter.limit("slots", slot=True)
    @app.get("/<path>")
    def body(path: str) -> Iterator[str]:
        if path == "fails":
            raise RuntimeError

        def lines() -> Iterator[str]:
            yield "one"
            assert client.peek("slots", key).remaining == 1
            yield "two"

        return lines()

    assert app.test_client().get("/stream").text == "onetwo"
    assert client.peek("slots", key).remaining == 2
    if propagates:
        with pytest.raises(RuntimeError):
            app.test_client().get("/fails")
    else:
        with app.test_client().get("/fails") as response:
            assert response.status_code == 500
    assert client.peek("slots", key).remaining == 2


def test_the_rest_of_a_limit(app: flask.Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLimiter()
    limiter = Limiter(app, client=fake, headers="both")
    app.get("/skip", endpoint="skip")(limiter.limit("x", skip=lambda: True)(_view()))
    app.get("/none", endpoint="none")(limiter.limit("x", key=lambda: NOT_LIMITED)(_view()))
    app.get("/off", endpoint="off")(limiter.limit("x", enabled=False)(_view()))
    own = limiter.limit("denied", respond=lambda decision: (f"wait {decision.retry_after:g}", 418))
    app.get("/own", endpoint="own")(own(_view()))
    app.get("/quiet", endpoint="quiet")(limiter.limit("x", headers="none")(_view()))
    fake.deny("denied", retry_after=7)
    asks = app.test_client()
    preflight = {"Access-Control-Request-Method": "GET"}
    assert [asks.get(path).status_code for path in ("/skip", "/none", "/off")] == [200] * 3
    assert asks.options("/own", headers=preflight).status_code == 200
    assert fake.calls == []
    answer = asks.get("/own")
    assert (answer.status_code, answer.text, answer.headers["Retry-After"]) == (418, "wait 7", "7")
    assert answer.headers["X-RateLimit-Remaining"] == "0"
    assert not fields_of(asks.get("/quiet").headers)

    monkeypatch.setenv("RATELIMIT_ENABLED", "0")
    other = flask.Flask("other")
    Limiter(other, default="denied", client=fake)
    other.get("/")(_view())
    assert other.test_client().get("/").status_code == 200


def test_fields_of_another_limiter_stay(app: flask.Flask) -> None:
    limiter = Limiter(app, client=FakeLimiter())

    @limiter.limit("web")
    @app.get("/")
    def view() -> flask.Response:
        return flask.Response("", headers={"RateLimit": '"other";r=1'})

    found = fields_of(app.test_client().get("/").headers)["RateLimit"]
    assert [name for name, _ in found] == ["other", "web"]


@pytest.mark.parametrize("key", [None, "", b""])
@pytest.mark.parametrize("policy", ["web", "10/s"])
def test_no_key_is_not_no_limit(app: flask.Flask, policy: str, key: Any, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeLimiter()
    limiter = Limiter(app, client=fake, on_error="allow", service="shop")
    app.get("/")(limiter.limit(policy, key=lambda: key)(limiter.limit("other")(_view())))
    app.get("/allowed", endpoint="allowed")(limiter.limit(policy, key=lambda: key, on_error="allow")(_view()))
    asks = app.test_client()
    assert [asks.get(path).status_code for path in ("/", "/", "/allowed", "/allowed")] == [503, 503, 200, 200]
    assert fake.calls == []
    assert [one.getMessage().partition(";")[0] for one in caplog.records] == [
        "no key: a limit of GET / got none",
        "no key: a limit of GET /allowed got none",
    ]


def test_a_sync_view_denies_what_it_would_have_to_wait_for(app: flask.Flask, client: Client, key: str) -> None:
    limiter = Limiter(app, client=client, key=key)
    app.get("/", endpoint="denies")(limiter.limit("queue")(_view()))
    app.get("/waits", endpoint="waits")(limiter.limit("queue", wait=True)(_view()))
    asks = app.test_client()
    assert [asks.get(path).status_code for path in ("/", "/", "/waits")] == [200, 429, 200]
