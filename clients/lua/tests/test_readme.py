"""test_readme.py: what README.md shows works as it stands there."""

import re

import pytest
from gateways import ENV, LUA, daemon_with, eventually
from harness import build_dir

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
    assert set(re.findall(r"^```(\w+)$", README, re.M)) == {"yaml", "nginx", "lua", "haproxy", "sh"}


def test_nginx(nginx):
    text = re.sub(r"lua_package_path.*|lua_socket_log_errors.*", "", blocks("nginx")[0])
    gateway = nginx(text.replace("listen 80", "listen 127.0.0.1:PORT").replace("new()", 'new{ socket = "SOCKET" }'))
    assert gateway.get("/api/x")[1]["ratelimit"] == '"web";r=99;t=1'
    paths = ["/login", "/login;a=1", "/login/", "/login?next=x", "/login%20", "/login"]
    assert [gateway.get(path)[0] for path in paths] == [200] * 5 + [429], "the client's spelling makes no counter of its own"
    assert [gateway.get("/export")[0] for _ in range(11)] == [200] * 10 + [429]
    assert '"tenant";r=999' in gateway.get("/tenant/", X_Tenant="acme")[1]["ratelimit"]
    attack(gateway, "/login", 5)
    attack(gateway, "/export", 10)
    assert gateway.get("/tenant/")[0] == 503, "a field that is left away is not another counter"


def attack(gateway, path, admitted):
    """From here on nothing gets through: no other method, no forged preflight, no spelling that arrives at the same place."""
    preflight = {"Origin": "https://a", "Access_Control_Request_Method": "POST"}
    for method, more in (("OPTIONS", preflight), ("OPTIONS", {}), ("HEAD", {}), ("POST", {}), ("PUT", {})):
        assert gateway.get(path, method=method, **more)[0] == 429, f"{method} {path} after {admitted}"
    for spelling in (f"/{path}", f"/x/..{path}", f"/.{path}", f"/%{ord(path[1]):x}{path[2:]}"):
        assert gateway.get(spelling)[0] == 429, spelling
    assert gateway.get(path, X_Forwarded_For="203.0.113.9")[0] == 429


def server(text):
    new = 'init_by_lua_block { limiter = require("ratelimitd").new{ socket = "SOCKET" } }'
    return f"{new} server {{ listen 127.0.0.1:PORT; {text} }}"


def test_a_limit_by_the_request_and_the_decision_in_the_handler_of_nginx(nginx, daemon):
    gateway = nginx(server(f'location / {{ {blocks("nginx")[1]} }}'))
    assert gateway.get("/")[2] == "9 left\n"
    with daemon.client() as client:
        moves = "id" in client.call("hello", {"describe": True}).get("features", ())
    assert gateway.get("/?plan=big")[2] == ("98 left\n" if moves else "99 left\n"), "one counter"
    assert [gateway.get("/", method="OPTIONS", Access_Control_Request_Method="x")[0] for _ in range(10)][-1] == 429


def test_the_decision_in_a_variable_of_nginx(nginx):
    limited = """location / {
        rewrite_by_lua_block { limiter:limit{ policy = "web" } }
        content_by_lua_block { ngx.say(ngx.var.ratelimit_remaining) } }"""
    assert nginx(server(blocks("nginx")[2] + limited)).get("/")[2] == "99\n"


def test_fields_of_an_application_behind_nginx(nginx):
    limited = """location / {
        rewrite_by_lua_block { limiter:limit{ policy = "login", headers = "legacy" } } proxy_pass http://app; }"""
    assert nginx(blocks("nginx")[3] + server(limited)).get("/own")[1]["x-ratelimit-limit"] == "5"


def frontend():
    text = blocks("haproxy")[0]
    return text[text.index("frontend web"):].replace("bind :80", "bind 127.0.0.1:PORT")


def test_haproxy(haproxy):
    gateway = haproxy(blocks("lua")[0].replace("new()", 'new{ socket = "SOCKET" }'), frontend())
    assert gateway.get("/x")[1]["ratelimit"] == '"web";r=99;t=1'
    for _ in range(99):
        gateway.get("/", method="OPTIONS", Origin="https://a", Access_Control_Request_Method="x")
    attack(gateway, "/x", 100)


def test_a_limit_by_the_request_in_haproxy(haproxy, daemon):
    gateway = haproxy(blocks("lua")[1].replace("new()", 'new{ socket = "SOCKET" }'), frontend())
    assert gateway.get("/")[1]["ratelimit"] == '"web";r=9;t=60'
    with daemon.client() as client:
        moves = "id" in client.call("hello", {"describe": True}).get("features", ())
    assert gateway.get("/", X_Plan="gold")[1]["ratelimit"] == ('"web";r=98;t=60' if moves else '"web";r=99;t=60')


def test_nginx_with_a_fake(nginx):
    site = blocks("nginx")[0]
    gateway = nginx(blocks("nginx")[4] + site[site.index("server {"):].replace("listen 80", "listen 127.0.0.1:PORT"))
    status, headers, _ = gateway.get("/login")
    assert (status, headers["retry-after"], headers["ratelimit"]) == (429, "3", '"login";r=0;t=3')
    assert [gateway.get(path, X_Tenant="acme")[0] for path in ("/api/x", "/export", "/tenant/")] == [200] * 3


def test_haproxy_with_a_daemon_and_its_clock(haproxy, monkeypatch):
    monkeypatch.setitem(ENV, "PATH", f"{build_dir()}/bin:{ENV['PATH']}")
    rules = """    http-request lua.next_minute if { path /next-minute }
    http-request lua.stop_daemon if { path /stop }
    http-request lua.limit_login if { path /login }
"""
    gateway = haproxy(blocks("lua")[2], frontend().replace("    http-request lua.limit_web\n", rules))
    assert [gateway.get("/login")[0] for _ in range(2)] == [200, 429]
    gateway.get("/next-minute")
    assert [gateway.get("/login")[0] for _ in range(2)] == [200, 429]
    gateway.get("/stop")
    assert gateway.get("/login")[0] == 200  # no answer: allowed
    eventually(lambda: "requests pass: unreachable: cannot connect" in gateway.errors(), "the reason in the log")
