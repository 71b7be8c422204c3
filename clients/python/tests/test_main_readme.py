"""The example of the project's own README answers as shown there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_readme import HOSTILE

from ratelimitd.testing import daemon

TEXT = (Path(__file__).resolve().parents[3] / "README.md").read_text()


def first(language: str) -> str:
    snippets: list[str] = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)
    return snippets[0]


def test_the_sixth_login_within_a_second_is_answered_429(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "ratelimitd.yaml"
    config.write_text(first("yaml"))
    with daemon(config=config) as running:
        monkeypatch.setenv("RATELIMIT_SOCKET", running.socket)
        names: dict[str, Any] = {"__name__": "readme"}
        exec(compile(first("python"), "README.md", "exec"), names)
        web = names["app"].test_client()
        assert [web.post("/login").status_code for _ in range(5)] == [200] * 5
        denied = web.post("/login")
        assert {web.post("/login", **one).status_code for one in HOSTILE} <= {200, 429}
        assert web.post("/login", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 429
        assert web.post("/login;a=1").status_code == 404

    status, *fields = first("http").splitlines()
    assert status == f"HTTP/1.1 {denied.status}"
    assert dict(field.split(": ", 1) for field in fields).items() <= dict(denied.headers).items()
