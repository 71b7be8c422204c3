"""test_haproxy.py: limits in a real HAProxy."""

import json
import time

import pytest
from gateways import eventually

NEW = 'local limiter = require("ratelimitd").new{ socket = "SOCKET" %s }\n'
FRONTEND = """
frontend web
    bind 127.0.0.1:PORT
    http-request lua.limit
    http-response add-header RateLimit %[var(txn.ratelimit)] if { var(txn.ratelimit) -m found }
    http-response add-header RateLimit-Policy %[var(txn.ratelimit_policy)] if { var(txn.ratelimit_policy) -m found }
    default_backend app
"""


def limited(limit, options=""):
    return NEW % (options if "timeout" in options else f"{options}, timeout = 10000") + f'core.register_action("limit", {{ "http-req" }}, function(txn) limiter:limit(txn, {limit}) end)\n'


def test_a_request_is_let_through_with_headers_and_then_answered_429(haproxy):
    gateway = haproxy(limited('{ policy = "web" }'), FRONTEND)
    status, headers, body = gateway.get("/x")
    assert (status, body) == (200, "app /x\n")
    assert (headers["ratelimit-policy"], headers["ratelimit"]) == ('"web";q=3;w=60', '"web";r=2;t=60')

    for _ in range(2):
        assert gateway.get("/x")[0] == 200
    status, headers, body = gateway.get("/x")
    assert (status, headers["ratelimit"], headers["retry-after"]) == (429, '"web";r=0;t=60', "60")
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["violated-policies"] == ["web"]
    assert gateway.get("/x", Accept="text/html")[2] == "Too many requests: try again in 60 s.\n"


def test_several_limits_and_parts_of_keys(haproxy):
    gateway = haproxy(limited('{ { policy = "web", key = "ip|uri" }, { policy = "tenant", key = "header:X-Tenant" } }'), FRONTEND)
    assert gateway.get("/", X_Tenant="acme")[1]["ratelimit"] == '"web";r=2;t=60, "tenant";r=1;t=60'
    assert gateway.get("/", X_Tenant="acme")[0] == 200
    assert gateway.get("/", X_Tenant="acme")[0] == 429
    status, headers, body = gateway.get("/")
    assert (status, json.loads(body)["status"], "ratelimit" in headers) == (503, 503, False), "no tenant: no key"
    assert gateway.get("/other", X_Tenant="other")[1]["ratelimit"] == '"web";r=2;t=60, "tenant";r=1;t=60'


def test_two_lines_of_a_header_are_one_key(haproxy):
    gateway = haproxy(limited('{ policy = "tenant", key = "header:X-Tenant" }'), FRONTEND)
    lines = [("X-Tenant", "a"), ("X-Tenant", "b")]
    assert [gateway.get("/", lines=lines)[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get("/", X_Tenant="a, b")[0] == 429, "the lines are joined by a comma"
    assert gateway.get("/", X_Tenant="b")[0] == 200
    assert gateway.get("/", lines=[("X-Tenant", "")])[0] == 503, "an empty header is as a missing one"


def test_a_key_from_a_variable_and_from_a_function(haproxy):
    frontend = FRONTEND.replace("    http-request lua.limit", "    http-request set-var(txn.user) url_param(user)\n"
                                                                "    http-request lua.limit")
    gateway = haproxy(limited('{ policy = "login", key = "var:txn.user" }'), frontend)
    assert [gateway.get("/?user=a")[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get("/?user=b")[0] == 200
    assert gateway.get("/")[0] == 503, "no key"


def test_services_have_counters_of_their_own(haproxy):
    limits = ('{ limit = 1, window = "5s", name = "one" }', '{ policy = "1/5s", endpoint = "one" }')
    actions = "".join(NEW.replace("limiter", f"limiter{i}") % f', service = "{service}"'
                      + f'core.register_action("limit_{service}", {{ "http-req" }}, function(txn) limiter{i}:limit(txn, {limits[i]}) end)\n'
                      for i, service in enumerate(("shop", "till")))
    rules = "".join(f"    http-request lua.limit_{service} if {{ path /{service} }}\n" for service in ("shop", "till"))
    gateway = haproxy(actions, FRONTEND.replace("    http-request lua.limit\n", rules))
    assert [gateway.get("/shop")[0] for _ in range(2)] == [200, 429]
    assert [gateway.get("/till")[0] for _ in range(2)] == [200, 429]


def test_a_denial_is_remembered_while_the_daemon_is_gone(haproxy, daemon):
    gateway = haproxy(limited('{ policy = "login" }', ", remember_denials = 60000"), FRONTEND)
    assert [gateway.get("/")[0] for _ in range(3)] == [200, 200, 429]
    daemon.kill()
    assert gateway.get("/")[0] == 429


def test_an_answer_of_ones_own_has_the_fields(haproxy):
    own = """{ policy = "login", headers = "both", respond = function(txn, decision)
        local reply = txn:reply{ status = 418, body = "tea " .. decision.of }
        reply:add_header("Retry-After", "99")
        return reply
    end }"""
    gateway = haproxy(limited(own), FRONTEND)
    assert [gateway.get("/")[0] for _ in range(2)] == [200, 200]
    status, headers, body = gateway.get("/")
    assert (status, body, headers["retry-after"], headers["ratelimit"]) == (418, "tea login", "60", '"login";r=0;t=60')
    assert headers["x-ratelimit-remaining"] == "0"


def test_a_limit_written_at_the_endpoint_and_a_long_key(haproxy):
    gateway = haproxy(limited('{ policy = "2/5s", name = "one", key = "header:X-User" }'), FRONTEND)
    long = "x" * 600
    assert [gateway.get("/", X_User=long + "a")[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get("/", X_User=long + "b")[0] == 200


def test_a_forged_preflight_is_counted(haproxy):
    gateway = haproxy(limited('{ policy = "login" }'), FRONTEND)
    asked = [gateway.get("/", method="OPTIONS", Origin="https://a", Access_Control_Request_Method="GET")[0] for _ in range(3)]
    assert asked == [200, 200, 429]


def test_is_preflight_leaves_preflights_alone(haproxy):
    gateway = haproxy(limited('{ policy = "login", skip = require("ratelimitd").is_preflight }'), FRONTEND)
    for _ in range(3):
        assert "ratelimit" not in gateway.get("/", method="OPTIONS", Origin="https://a", Access_Control_Request_Method="GET")[1]
    assert gateway.get("/", method="OPTIONS", Access_Control_Request_Method="GET")[1]["ratelimit"] == '"login";r=1;t=60'


@pytest.mark.parametrize("limit, message", [('{ policy = "wbe" }', "UNKNOWN_POLICY"),
                                            ('{ policy = "web", key = "nonsense" }', '"nonsense" is no part of a key'),
                                            ('{ policy = "web", key = "ip | uri" }', '"ip " is no part of a key'),
                                            ('{ policy = "web", key = "var:txm.user" }', '"var:txm.user" is no part of a key'),
                                            ('{ policy = "web", cost = 4, respond = function() end }', "respond gave no reply"),
                                            ('{ policy = "web", costs = 2 }', 'does not know the option "costs"')])
def test_a_mistake_is_500_and_explained(haproxy, limit, message):
    gateway = haproxy(limited(limit), FRONTEND)
    assert gateway.get("/")[0] == 500
    eventually(lambda: message in gateway.errors(), message)


def test_the_daemon_gone_lets_through_or_denies_as_the_limit_says(haproxy, daemon):
    gateway = haproxy(limited('{ policy = "web", on_error = function() return "deny" end }'), FRONTEND)
    assert gateway.get("/")[0] == 200
    daemon.kill()
    status, headers, body = gateway.get("/")
    assert (status, headers["retry-after"], json.loads(body)["status"]) == (503, "1", 503)


def test_the_daemon_gone_lets_through_by_default(haproxy, daemon):
    gateway = haproxy(limited('{ policy = "web" }'), FRONTEND)
    daemon.kill()
    status, headers, _ = gateway.get("/")
    assert status == 200 and "ratelimit" not in headers


def test_a_stopped_daemon_costs_the_timeout_three_times_and_then_nothing(haproxy, daemon):
    actions = limited('{ policy = "web" }', ", timeout = 50") + """
    core.register_service("stats", "http", function(applet)
        local n = limiter:stats().unavailable
        applet:set_status(200) applet:start_response() applet:send((n.timeout or 0) .. " " .. (n.breaker or 0)) end)"""
    frontend = FRONTEND.replace("    http-request lua.limit",
                                "    http-request use-service lua.stats if { path /stats }\n    http-request lua.limit")
    gateway = haproxy(actions, frontend)
    daemon.pause()
    try:
        started = time.monotonic()
        for _ in range(10):
            assert gateway.get("/")[0] == 200
        probes = int(time.monotonic() - started) + 1  # the breaker lets one through each second
        timeouts, breaker = map(int, gateway.get("/stats")[2].split())
        assert timeouts + breaker == 10 and 3 <= timeouts <= 3 + probes, (timeouts, breaker, probes)
    finally:
        daemon.resume()
    eventually(lambda: "ratelimit" in gateway.get("/")[1], "the breaker closes")


def test_verify_names_missing_policies_at_start(haproxy):
    gateway = haproxy(limited('{ policy = "web" }') + 'limiter:verify{ "web", "wbe" }\n', FRONTEND)
    eventually(lambda: 'the daemon has no policy "wbe"' in gateway.errors(), "the missing policy in the log")
