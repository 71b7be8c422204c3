"""test_visitors.py: the hostile visits to the samples of the clients (clients/conformance/visitors.py) find what is unsafe. The
login here is unsafe in one way at a time."""

import http.server
import sys
import threading
import urllib.parse

import pytest

from harness import ROOT

sys.path.insert(0, str(ROOT / "clients" / "conformance"))
import visitors  # noqa: E402

LIMIT = 5


class Login(http.server.BaseHTTPRequestHandler):
    """Counts wrong passwords by account and address. `fault` is what is wrong with it."""

    fault, counts = None, {}

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        user = urllib.parse.parse_qs(body.decode("latin-1")).get("user", [""])[0].strip()
        path = urllib.parse.unquote(self.path).replace("//", "/").rstrip("/").lower()
        if not path.startswith("/login"):
            return self.answer(404)
        if self.fault == "no user, no answer" and not user:
            return self.answer(500)
        if self.fault == "no user, no limit" and not user:
            return self.answer(401)
        key = [user or "-", self.client_address[0]]
        if self.fault == "the address alone":
            key[0] = "-"
        if self.fault == "the path in the key":
            key.append(self.path)
        if self.fault == "any proxy is trusted":
            key[1] = self.headers.get("X-Forwarded-For", key[1])
        if self.fault == "no limit":
            return self.answer(401)
        count = self.counts[tuple(key)] = self.counts.get(tuple(key), 0) + 1
        return self.answer(401 if count <= LIMIT else 429)

    def do_GET(self):
        self.do_POST()

    def answer(self, status):
        status = 200 if status == 401 and self.command == "GET" else status
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Orders(Login):
    """Counts the calls of users by name, and of others by address: LIMIT each, but 8 of alice."""

    def do_GET(self):
        token = self.headers.get("Authorization")
        user = {"Bearer token-of-alice": "alice"}.get(token)
        if self.fault == "a name that the client claims":
            user = user or self.headers.get("X-User")
        if self.fault == "any token is a user":
            user = token
        key = ("u", user) if user else ("i", self.client_address[0])
        if self.fault == "the address in a user's key":
            key = (*key, self.client_address[0])
        limit = 8 if user == "alice" or self.fault == "a plan that the client claims" and self.headers.get("X-Plan") else LIMIT
        is_allowed = self.counts.get(key, 0) < limit or self.fault == "no limit"
        self.counts[key] = self.counts.get(key, 0) + is_allowed
        self.answer(200 if is_allowed else 429)


@pytest.fixture
def served(request):
    """The port of a login, or of other pages, with this fault."""
    served, fault = request.param if isinstance(request.param, tuple) else (Login, request.param)
    handler = type("OneServer", (served,), {"fault": fault, "counts": {}})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("served", [None], indirect=True)
def test_nothing_is_wrong_with_a_safe_login(served):
    assert visitors.complaints_of_a_login(served, "/login") == []


@pytest.mark.parametrize("served", [None], indirect=True)
def test_nothing_is_wrong_with_a_safe_limit(served):
    assert visitors.complaints_of_a_limit(served, "/login") == []


@pytest.mark.parametrize("served, found", [
    ("no user, no answer", "user=': 500"),
    ("no user, no limit", "password=bad' are not denied"),
    ("the address alone", "another account is denied"),
    ("the path in the key", "/login;a=1 : 401"),
    ("any proxy is trusted", "{'X-Forwarded-For': '203.0.113.9'}: 401"),
    ("no limit", "for one account are not denied"),
], indirect=["served"])
def test_an_unsafe_login_is_found(served, found):
    complaints = visitors.complaints_of_a_login(served, "/login")
    assert any(found in one for one in complaints), complaints


@pytest.mark.parametrize("served", ["the path in the key", "any proxy is trusted", "no limit"], indirect=True)
def test_an_unsafe_limit_is_found(served):
    assert visitors.complaints_of_a_limit(served, "/login") != []


USERS = {"no one": LIMIT, "Bearer token-of-alice": 8}


@pytest.mark.parametrize("served", [(Orders, None)], indirect=True)
def test_nothing_is_wrong_with_a_safe_limit_of_users(served):
    assert list(visitors.complaints_of_users(served, "/orders", USERS)) == []


@pytest.mark.parametrize("served", [
    (Orders, fault) for fault in ("a name that the client claims", "any token is a user", "the address in a user's key",
                                  "a plan that the client claims", "no limit")], indirect=True)
def test_an_unsafe_limit_of_users_is_found(served):
    assert list(visitors.complaints_of_users(served, "/orders", USERS)) != []
