"""Every snippet of the README runs, with the configuration that it shows. The snippets of a section belong together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import ratelimitd as package
from ratelimitd.testing import daemon

TEXT = (Path(__file__).resolve().parent.parent / "README.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")}


def snippets(section: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.M | re.S)


def executed(section: str, **given: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": section, "user": "alice", "tenant": "acme", **given}
    for snippet in snippets(section):
        exec(compile(snippet, f"README.md, {section}", "exec"), names)
    return names


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = tmp_path_factory.mktemp("readme") / "ratelimitd.yaml"
    [text] = snippets("# ratelimitd for Python", "yaml")
    config.write_text(text)
    with daemon(config=config) as running:
        yield running.socket


@pytest.fixture(autouse=True)
def environment(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATELIMIT_SOCKET", socket_path)
    for one in (package.Client, package.AsyncClient):  # a busy machine is not what is tested here
        monkeypatch.setitem(one.__init__.__kwdefaults__, "timeout", 10)


def test_every_section_with_snippets_has_a_test() -> None:
    sections = {title for title in SECTIONS if snippets(title)}
    assert sections == {"Ask", "When there is no answer", "Flask", "FastAPI", "Starlette", "Django", "In tests"}


def test_ask() -> None:
    async def build_later() -> None: ...

    names = executed(
        "Ask",
        build=lambda: None,
        build_later=build_later,
        prompt="",
        model=lambda prompt, max_tokens: SimpleNamespace(total_tokens=500),
    )
    assert names["both"].allowed
    assert package.Client().peek("llm", "acme").remaining == 99500


def test_when_there_is_no_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RATELIMIT_SOCKET", "/nonexistent/ratelimitd.sock")
    assert executed("When there is no answer")["allowed"] is False
    assert capsys.readouterr().out == "unreachable False\n"


def test_flask() -> None:
    app = executed("Flask")["app"]
    asks = app.test_client()
    assert [asks.get("/search").status_code for _ in range(11)] == [200] * 10 + [429]
    assert asks.post("/login", data={"user": "alice"}).text == "welcome"


async def asked(app: Any, path: str, times: int) -> list[int]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as asks:
        return [(await asks.get(path, headers={"X-Tenant": "acme"})).status_code for _ in range(times)]


async def test_fastapi() -> None:
    names = executed("FastAPI")
    assert await asked(names["app"], "/search?q=x", 11) == [200] * 10 + [429]
    await names["limiter"].client.aclose()


async def test_starlette() -> None:
    names = executed("Starlette")
    assert await asked(names["app"], "/report", 3) == [200] * 3
    await names["limiter"].client.aclose()


def test_django(tmp_path: Path) -> None:
    settings, views = snippets("Django")
    (tmp_path / "settings.py").write_text(settings + "\nROOT_URLCONF = 'urls'\nALLOWED_HOSTS = ['*']\nUSE_TZ = True\n")
    (tmp_path / "views.py").write_text(views)
    (tmp_path / "urls.py").write_text(
        "import views\nfrom django.urls import path\n"
        "urlpatterns = [path('login', views.login), path('search', views.search)]\n"
    )
    program = """
import django; django.setup()
from django.test import Client
asks = Client()
print(asks.post("/login", {"user": "alice"}).content.decode())
print([asks.get("/search").status_code for _ in range(11)].count(200))
"""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["welcome", "10"], done.stderr


def test_in_tests() -> None:
    names = executed("In tests", Client=package.Client)
    for name in [name for name in names if name.startswith("test_")]:
        names[name]()
