"""conftest.py: a real daemon, a small application, and nginx or HAProxy in front of it, each on its own port.

The programs come from DEPS/gateways (unpacked packages) or, where that is not there, from the system.
"""

import contextlib
import http.client
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LUA = HERE.parent
ROOT = LUA.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from harness import Process, Ratelimitd, eventually, free_port  # noqa: E402

UNPACKED = Path(os.environ.get("DEPS", ROOT / ".deps")) / "gateways"
LIBRARIES = [str(path) for path in (UNPACKED / "usr/lib").glob("*-linux-gnu")]
ENV = {**os.environ, "LD_LIBRARY_PATH": ":".join([*LIBRARIES, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")}

POLICIES = """
policies:
  web: {algorithm: fixed_window, limit: 3, window: 1m}
  login: {algorithm: fixed_window, limit: 2, window: 1m}
  tenant: {algorithm: fixed_window, limit: 2, window: 1m}
  shaped: {algorithm: leaky_bucket, limit: 1, window: 1s, burst: 5, max_wait: 3s}
  both:
    limits:
      - {name: second, algorithm: fixed_window, limit: 2, window: 1s}
      - {name: day, algorithm: fixed_window, limit: 5, window: 1d}
  open: {unlimited: true}
inline: {allow: true}
"""


def program(name):
    for folder in ("usr/sbin", "usr/bin"):
        if (UNPACKED / folder / name).exists():
            return str(UNPACKED / folder / name)
    return shutil.which(name) or shutil.which(f"/usr/sbin/{name}")


def needs(name):
    if not program(name):
        assert not os.environ.get("CI"), f"{name} is missing: ./dev test clients lua installs it"
        pytest.skip(f"no {name} here")
    return program(name)


class Application(http.server.BaseHTTPRequestHandler):
    """Answers every request with 200, and a header of its own limiter where the path asks for one."""

    def do_GET(self):
        body = f"app {self.path}\n".encode()
        self.send_response(200)
        if "own" in self.path:
            self.send_header("RateLimit", '"app";r=1')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_OPTIONS = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def application():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def daemon():
    """A daemon on its memory store whose clock only the test moves."""
    started = Ratelimitd(POLICIES, arguments=["--test-clock"])
    set_clock(started, 0)
    yield started
    started.close()


class Gateway(Process):
    """nginx or HAProxy with a configuration, until it listens."""

    def __init__(self, argv, port, folder):
        super().__init__()
        self.port, self.folder = port, folder
        self.spawn(argv, env=ENV)
        eventually(self.listens, "the gateway listens")

    def listens(self):
        assert self.running, self.text()
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, 5)) as one:
            one.connect()
            return True
        return False

    def get(self, path, method="GET", **headers):
        """(status, headers, body); header names in small letters, several of a name joined as HTTP does."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            body = answer.read().decode()
        found = {}
        for name, value in answer.getheaders():
            found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
        return answer.status, found, body

    def errors(self):
        log = self.folder / "error.log"
        return (log.read_text() if log.exists() else "") + self.text()

    def close(self):
        if self.running:
            self.process.terminate()
            self.wait()


NGINX = """
daemon off;
{modules}
worker_processes {workers};
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 256; }}
env RATELIMIT_SOCKET;
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    lua_package_path "{lua}/?.lua;{resty}/?.lua;;";
    lua_socket_log_errors off;
    upstream app {{ server 127.0.0.1:{app}; }}
{http}
}}
"""


def module_path(name):
    for folder in (UNPACKED / "usr/lib/nginx/modules", Path("/usr/lib/nginx/modules")):
        if (folder / name).exists():
            return str(folder / name)
    return None


def nginx_configuration(folder, port, app, text, workers=1):
    modules = [module_path(name) for name in ("ndk_http_module.so", "ngx_http_lua_module.so")]
    resty = UNPACKED / "usr/share/lua/5.1"
    return NGINX.format(modules="".join(f"load_module {path};\n" for path in modules if path), workers=workers, folder=folder,
                        user="user root;" if os.geteuid() == 0 else "", lua=LUA, resty=resty, app=app,
                        http=text.replace("PORT", str(port)))


@pytest.fixture
def nginx(tmp_path, application, daemon):
    """nginx(HTTP BLOCK[, workers]): PORT in the text is the port to listen on."""
    binary, started = needs("nginx"), []

    def start(text, workers=1, socket=daemon.socket):
        port = free_port()
        path = tmp_path / "nginx.conf"
        path.write_text(nginx_configuration(tmp_path, port, application, text.replace("SOCKET", socket), workers))
        gateway = Gateway([binary, "-p", str(tmp_path), "-c", str(path), "-e", str(tmp_path / "error.log")], port, tmp_path)
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.close()


HAPROXY = """
global
    lua-prepend-path {lua}/?.lua
    lua-load {limits}
    log stderr local0
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
{frontend}
backend app
    server app 127.0.0.1:{app}
"""


@pytest.fixture
def haproxy(tmp_path, application, daemon):
    """haproxy(LUA, FRONTEND): the actions, and the frontend's lines; PORT in the text is the port to listen on."""
    binary, started = needs("haproxy"), []

    def start(actions, frontend, socket=daemon.socket):
        port = free_port()
        limits, path = tmp_path / "limits.lua", tmp_path / "haproxy.cfg"
        limits.write_text(actions.replace("SOCKET", socket))
        path.write_text(HAPROXY.format(lua=LUA, limits=limits, app=application, frontend=frontend.replace("PORT", str(port))))
        gateway = Gateway([binary, "-db", "-f", str(path)], port, tmp_path)
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.close()


def set_clock(daemon, seconds):
    """The time of the limits, from an arbitrary day on."""
    with daemon.client() as client:
        client.call("test_clock", 1_800_000_000_000_000 + int(seconds * 1e6))
