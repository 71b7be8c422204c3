"""conftest.py: a real daemon, a small application, and nginx or HAProxy in front of it, each on its own port."""

import http.server
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from gateways import LUA, Gateway, daemon_with, needs, on_free_port, start_nginx  # noqa: E402

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


class Application(http.server.BaseHTTPRequestHandler):
    """Answers every request with 200, and the fields of its own limiter where the path asks for them."""

    def do_GET(self):
        body = f"app {self.path}\n".encode()
        self.send_response(200)
        if "own" in self.path:
            self.send_header("RateLimit", '"app";r=1')
            self.send_header("X-RateLimit-Limit", "99")
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
    started = daemon_with(POLICIES)
    yield started
    started.close()


@pytest.fixture
def nginx(tmp_path, application, daemon):
    """nginx(HTTP BLOCK[, workers]): PORT in the text is the port to listen on, SOCKET the daemon's socket."""
    started = []

    def start(text, workers=1):
        upstream = f"upstream app {{ server 127.0.0.1:{application}; }}\n"
        started.append(start_nginx(tmp_path, upstream + text.replace("SOCKET", daemon.socket), workers, lua=[LUA]))
        return started[-1]

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
        return on_free_port(lambda port: start_on(port, actions, frontend, socket))

    def start_on(port, actions, frontend, socket):
        limits, path = tmp_path / "limits.lua", tmp_path / "haproxy.cfg"
        limits.write_text(actions.replace("SOCKET", socket))
        path.write_text(HAPROXY.format(lua=LUA, limits=limits, app=application, frontend=frontend.replace("PORT", str(port))))
        gateway = Gateway([binary, "-db", "-f", str(path)], port, tmp_path)
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        gateway.close()
