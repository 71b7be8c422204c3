"""The header fields of decisions; the conformance suite compares the bytes with those of other languages."""

from __future__ import annotations

import json

import pytest
from conftest import fields_of

from ratelimitd import Client, Decision, http


def reported(decision: Decision) -> dict[str, object]:
    return fields_of(dict(http.fields([decision])))


def test_the_fields_are_structured_fields(client: Client, key: str) -> None:
    assert reported(client.check("web", key)) == {
        "RateLimit-Policy": [("web", {"q": 100, "w": 60})],
        "RateLimit": [("web", {"r": 99, "t": 60})],
    }
    assert reported(client.check("budget", key)) == {
        "RateLimit-Policy": [("budget", {"q": 10, "w": 60, "ratelimitd-burst": 20})],
        "RateLimit": [("budget", {"r": 19, "t": 6})],
    }
    slot = client.acquire("slots", key)
    assert reported(slot.decision) == {
        "RateLimit-Policy": [("slots", {"q": 2, "qu": "concurrent-requests"})],
        "RateLimit": [("slots", {"r": 1})],
    }
    slot.release()
    both = reported(client.check_all([("web", key), ("few", key)]))
    assert both["RateLimit"] == [("web", {"r": 98, "t": 60}), ("few", {"r": 1, "t": 60})]


def test_nothing_is_reported_without_a_count(client: Client, key: str) -> None:
    assert reported(client.check("free", key)) == {}
    client.check("trial", key)
    shadow = client.check("trial", key)
    assert shadow.shadow_denied
    assert reported(shadow) == {}


def test_the_older_fields(client: Client, key: str) -> None:
    decision = client.check("web", key)
    legacy = dict(http.fields([decision], "legacy", "epoch", now=1000.5))
    assert legacy == {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "99", "X-RateLimit-Reset": "1061"}
    assert len(http.fields([decision], "both")) == 5
    assert http.fields([decision], "none") == []


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [(None, True), ("*/*", True), ("text/html", False), ("text/html, application/json;q=0", False), ("a/b+json", True)],
)
def test_the_body_is_json_for_those_who_take_it(accept: str | None, is_json: bool) -> None:
    answer = http.refusal(Decision(False, retry_after_ms=2001, source="memory", bound_by="web/second"), accept)
    assert answer.status == 429
    if is_json:
        assert json.loads(answer.body)["violated-policies"] == ["web/second"]
    else:
        assert answer.body == b"Too many requests: try again in 3 s.\n"
    assert http.refusal(Decision(False, source="deny", retry_after_ms=1000), accept).status == 503
