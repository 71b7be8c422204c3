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


# what a visitor may send to a login
HOSTILE: list[dict[str, Any]] = [
    {},
    {"data": {}},
    {"data": {"user": ""}},
    {"data": {"user": "  "}},
    {"data": {"user": "x" * 70_000}},
    {"data": b"user=%FF%00%0d%0a|%7C", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    {"data": b"user[]=a&user[]=b", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    {"data": b"user=a", "headers": {"Content-Type": "multipart/form-data"}},
    *(
        {"data": body, "headers": {"Content-Type": "application/json"}}
        for body in (b"{", b'{"user": 5}', b'{"user": ["a"]}')
    ),
]


FORGED = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}  # a preflight that is none
METHODS = ("OPTIONS", "HEAD", "POST", "PUT", "DELETE")


def gold_left() -> int:
    """What a gold client has left of 100, after ten with the ordinary limit: one counter, if the daemon has ids."""
    with package.Client() as client:
        client.ping()
        return 89 if "id" in client.features else 99


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
    assert asks.get("/search", headers={"X-Plan": "gold"}).text == f"found, {gold_left()} left"
    assert asks.get("/search").json["violated-policies"] == ["search"]
    answers = [asks.open("/search", method=method, headers=FORGED) for method in METHODS]
    assert [one.status_code for one in answers] == [200, 429, 405, 405, 405]  # Flask itself answers OPTIONS
    assert answers[0].text == ""
    assert asks.get("/search/").status_code == asks.get("//search;a").status_code == 404
    assert asks.get("/health").text == "ok"
    statuses = [asks.post("/login", **one).status_code for one in HOSTILE]
    assert set(statuses) <= {401, 429}
    assert [asks.post("/login", data={"user": name}).status_code for name in ("eve", "Eve", "EVE ", "eve", "eve")] == [
        401
    ] * 5
    assert asks.post("/login", data={"user": "eve"}, headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 429
    for i in range(30):
        last = asks.post("/login", data={"user": f"account-{i}"})
    assert last.status_code == 429
    assert asks.post("/login;a=1", data={"user": "eve"}).status_code == 404
    assert asks.post("/login", data={"user": "eve"}, headers=FORGED).status_code == 429


async def asked(app: Any, path: str, times: int) -> list[int]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as asks:
        return [(await asks.get(path, headers={"X-Tenant": "acme"})).status_code for _ in range(times)]


async def test_fastapi() -> None:
    names = executed("FastAPI")
    assert await asked(names["app"], "/search?q=x", 11) == [200] * 10 + [429]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://test") as asks:
        answer = await asks.get("/search?q=x", headers={"X-Plan": "gold"})
        assert answer.json() == {"found": "x", "left": 83}  # of `web`, which has less left
        denied = {"X-Forwarded-For": "203.0.113.9", "X-Plan": "silver"}
        assert [(await asks.get(f"/search{end}?q=x", headers=denied)).status_code for end in ("", ";a=1")] == [429, 404]
        forged = [await asks.request(method, "/search?q=x", headers=FORGED) for method in METHODS]
        assert {one.status_code for one in forged} == {405}
        gold = {"X-Plan": "gold"}
        odd = [[("X-Tenant", "")], [("X-Tenant", "a|%7C" * 999)], [("X-Tenant", "a"), ("X-Tenant", "b")]]
        assert [(await asks.get("/search?q=x", headers=[*one, *gold.items()])).status_code for one in odd] == [200] * 3
    await names["limiter"].client.aclose()


async def test_starlette() -> None:
    names = executed("Starlette")
    assert await asked(names["app"], "/report", 3) == [200] * 3
    assert await asked(names["app"], "/report;a=1", 1) == [404]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://test") as asks:
        forged = [(await asks.request(method, "/report", headers=FORGED)).status_code for method in METHODS]
        assert forged == [405, 200, 405, 405, 405]
        assert (await asks.head("/report")).headers["RateLimit"].endswith('"report";r=1')
    await names["limiter"].client.aclose()


def test_django(tmp_path: Path) -> None:
    settings, views = snippets("Django")
    (tmp_path / "settings.py").write_text(settings + "\nROOT_URLCONF = 'urls'\nALLOWED_HOSTS = ['*']\nUSE_TZ = True\n")
    (tmp_path / "views.py").write_text(views)
    (tmp_path / "urls.py").write_text(
        "import views\nfrom django.urls import path\n"
        "urlpatterns = [path('login', views.login), path('search', views.search)]\n"
        "urlpatterns += [path('report', views.Report.as_view())]\n"
    )
    program = """
import django; django.setup()
from django.test import Client
asks = Client()
form = "application/x-www-form-urlencoded"
hostile = [b"", b"user=", b"user=+", b"user=" + b"x" * 70_000, b"user=%FF%00%0d%0a|%7C"]
print({asks.post("/login", one, content_type=form).status_code for one in hostile} <= {401, 429})
kinds = ["application/json", "multipart/form-data; boundary=x"]
print({asks.post("/login", b"{", content_type=kind).status_code for kind in kinds} <= {401, 429})
print([asks.post("/login", {"user": name}).status_code for name in ("zoe", "Zoe", "ZOE ", "zoe", "zoe", "zoe")])
print([asks.post("/login", {"user": str(i)}, headers={"X-Forwarded-For": str(i)}).status_code for i in range(30)][-1])
print([asks.get("/search").status_code for _ in range(11)].count(200))
print(asks.get("/search", headers={"X-Plan": "gold"}).content.decode(), asks.get("/report").content.decode())
forged = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
print([asks.generic(method, "/search", headers=forged).status_code for method in ("OPTIONS", "HEAD", "POST", "PUT")])
print(asks.options("/login", headers=forged).status_code)
"""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "True",
        "True",
        "[401, 401, 401, 401, 401, 429]",
        "429",
        "10",
        f"found, {gold_left()} left report",
        "[429, 429, 429, 429]",
        "429",
    ], done.stderr


def test_in_tests() -> None:
    names = executed("In tests", Client=package.Client)
    for name in [name for name in names if name.startswith("test_")]:
        names[name]()
