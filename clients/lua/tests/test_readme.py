"""test_readme.py: what README.md shows works as it stands there."""

import re

import pytest
from gateways import LUA, daemon_with

README = (LUA / "README.md").read_text()


def blocks(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    assert found, language
    return found


@pytest.fixture
def daemon():
    started = daemon_with(blocks("yaml")[0])
    yield started
    started.close()


def test_every_language_of_a_snippet_is_tried():
    assert set(re.findall(r"^```(\w+)$", README, re.M)) == {"yaml", "nginx", "lua", "haproxy"}


def test_nginx(nginx):
    text = re.sub(r"lua_package_path.*|lua_socket_log_errors.*", "", blocks("nginx")[0])
    gateway = nginx(text.replace("listen 80", "listen 127.0.0.1:PORT").replace("new()", 'new{ socket = "SOCKET" }'))
    assert gateway.get("/api/x")[1]["ratelimit"] == '"web";r=99;t=1'
    assert [gateway.get("/login")[0] for _ in range(6)] == [200] * 5 + [429]
    assert [gateway.get("/export")[0] for _ in range(11)] == [200] * 10 + [429]
    assert '"tenant";r=999' in gateway.get("/tenant/", X_Tenant="acme")[1]["ratelimit"]


def test_haproxy(haproxy):
    frontend = blocks("haproxy")[0]
    frontend = frontend[frontend.index("frontend web"):].replace("bind :80", "bind 127.0.0.1:PORT")
    gateway = haproxy(blocks("lua")[0].replace("new()", 'new{ socket = "SOCKET" }'), frontend)
    assert gateway.get("/x")[1]["ratelimit"] == '"web";r=99;t=1'
