from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ratelimitd.keys import Ip, Key, User, composite, hashed, ip, join_key, key_steps
from ratelimitd.limits import Limit, parse_limit
from ratelimitd.steps import run


class Request:
    method, endpoint, can_wait = "GET", "app.view", False

    def __init__(self, peer: str | None = "192.0.2.7", user: str | None = None, **headers: str) -> None:
        self.peer, self.who = peer, user
        self.headers = {name.replace("_", "-").lower(): value for name, value in headers.items()}

    def header_lines(self, name: str) -> list[str]:
        return [self.headers[name.lower()]] if name.lower() in self.headers else []

    def user(self) -> str | None:
        return self.who

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self, *args)


def of(key: Key | str | Callable[..., Any], request: Request) -> str | None:
    return run(key_steps(key, request), None)


def test_no_forwarded_header_is_believed_unless_trusted(caplog: pytest.LogCaptureFixture) -> None:
    key = ip()
    request = Request(X_Forwarded_For="203.0.113.1", X_Real_IP="203.0.113.2")
    with caplog.at_level(logging.WARNING, "ratelimitd"):
        assert [of(key, request) for _ in range(3)] == ["192.0.2.7"] * 3
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("trusted", "forwarded", "expected"),
    [
        (1, "6.6.6.6, 203.0.113.1", "203.0.113.1"),
        (2, "6.6.6.6, 203.0.113.1, 10.0.0.1", "203.0.113.1"),
        (["192.0.2.0/24", "10.0.0.0/8"], "6.6.6.6, 203.0.113.1, 10.0.0.1", "203.0.113.1"),
        (["10.0.0.0/8"], "203.0.113.1", "192.0.2.7"),
        (1, "[2001:db8::1]:443", "2001:db8::/64"),
        (1, "::ffff:203.0.113.9", "203.0.113.9"),
        (1, "203.0.113.1:8080", "203.0.113.1"),
        (1, "unknown", "192.0.2.7"),
    ],
)
def test_forwarded_addresses_are_read_from_the_right(trusted: Any, forwarded: str, expected: str) -> None:
    assert of(ip(trusted_proxies=trusted), Request(X_Forwarded_For=forwarded)) == expected


def test_no_address_is_a_clear_error() -> None:
    with pytest.raises(ValueError, match=r"no client address"):
        of(ip, Request(peer=None))
    assert of(ip(trusted_proxies=1), Request(peer=None, X_Forwarded_For="203.0.113.1")) == "203.0.113.1"


def test_trusting_everybody_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    Ip(["0.0.0.0/0"])
    assert "trusts everybody" in caplog.text


def test_users_fall_back_to_their_address() -> None:
    assert of(User(), Request(user="a|b")) == "u|a%7Cb"
    assert of(User(), Request()) == "i|192.0.2.7"
    assert of(User(lambda request: 7), Request()) == "u|7"


def test_keys_are_put_together() -> None:
    assert of(composite(ip, "export", lambda request: 5), Request()) == "192.0.2.7|export|5"
    assert of(composite(ip, lambda request: None), Request()) is None
    assert join_key("a|b", "50%") == "a%7Cb|50%25"
    assert len(hashed("secret")) == 64
    for empty in (lambda: join_key("a", ""), lambda: hashed("")):
        with pytest.raises(ValueError, match=r"empty|nothing"):
            empty()


def test_limits_say_what_is_wrong_with_them() -> None:
    assert parse_limit("10/5s") == {"algorithm": "fixed_window", "limit": 10, "window": "5s", "start": "first_hit"}
    assert Limit(limit=10, window="5s").policy == Limit("10/5s").policy
    assert Limit(limit=10, window="5s", algorithm="token_bucket").policy == {
        "limit": 10,
        "window": "5s",
        "algorithm": "token_bucket",
    }
    for wrong in ("10/", "1.5/s", "0/s", "10/fortnight", "-1/s"):
        with pytest.raises(ValueError, match="is not a limit"):
            Limit(wrong)
    for make in (
        lambda: Limit(),
        lambda: Limit(limit=3),
        lambda: Limit("web", limit=3, window="1s"),
        lambda: Limit("web", on_error="explode"),  # type: ignore[arg-type]
        lambda: Limit("slots", slot=True, charge_when=bool),
    ):
        with pytest.raises(ValueError, match=r".+"):
            make()
