"""test_nginx.py: limits in a real nginx."""

import json
import re
import threading
import time

import http_sfv
import pytest
from gateways import ENV, eventually, set_clock

PROBLEM = "https://iana.org/assignments/http-problem-types#"


def site(locations, options=""):
    if "timeout" not in options:
        options += ", timeout = 10000"  # a busy machine may stop for a second
    return f"""
    init_by_lua_block {{ limiter = require("ratelimitd").new{{ socket = "SOCKET" {options} }} }}
    server {{
        listen 127.0.0.1:PORT;
        {locations}
    }}
"""


def limited(limit, more="", path="/"):
    return f"location {path} {{ {more} rewrite_by_lua_block {{ limiter:limit{limit} }} proxy_pass http://app; }}\n"


def test_a_request_is_let_through_with_headers_and_then_answered_429(nginx):
    gateway = nginx(site(limited('{ policy = "web" }')))

    status, headers, body = gateway.get("/x")
    assert (status, body) == (200, "app /x\n")
    assert headers["ratelimit-policy"] == '"web";q=3;w=60'
    assert headers["ratelimit"] == '"web";r=2;t=60'

    for _ in range(2):
        assert gateway.get("/x")[0] == 200
    status, headers, body = gateway.get("/x")
    assert (status, headers["ratelimit"], headers["retry-after"]) == (429, '"web";r=0;t=60', "60")
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body) == {"type": PROBLEM + "quota-exceeded", "title": "Quota exceeded", "status": 429,
                                "violated-policies": ["web"]}

    status, headers, body = gateway.get("/x", Accept="text/html")
    assert (status, headers["content-type"]) == (429, "text/plain; charset=utf-8")
    assert body == "Too many requests: try again in 60 s.\n"


def test_the_headers_are_structured_fields(nginx):
    gateway = nginx(site(limited('{ policy = "web" }')))
    headers = gateway.get("/")[1]
    limits, policies = http_sfv.List(), http_sfv.List()
    limits.parse(headers["ratelimit"].encode())
    policies.parse(headers["ratelimit-policy"].encode())
    assert [(item.value, dict(item.params)) for item in limits] == [("web", {"r": 2, "t": 60})]
    assert [(item.value, dict(item.params)) for item in policies] == [("web", {"q": 3, "w": 60})]


def test_an_endpoint_with_several_limits_charges_all_or_none(nginx):
    gateway = nginx(site(limited('{ { policy = "web" }, { policy = "tenant", key = "header:X-Tenant" } }')))
    headers = gateway.get("/", X_Tenant="acme")[1]
    assert headers["ratelimit"] == '"web";r=2;t=60, "tenant";r=1;t=60'
    assert headers["ratelimit-policy"] == '"web";q=3;w=60, "tenant";q=2;w=60'

    assert gateway.get("/", X_Tenant="acme")[0] == 200
    status, headers, body = gateway.get("/", X_Tenant="acme")
    assert (status, json.loads(body)["violated-policies"]) == (429, ["tenant"])
    assert headers["ratelimit"] == '"web";r=1;t=60, "tenant";r=0;t=60'
    assert gateway.get("/")[0] == 503, "no tenant: no key, so nothing is charged"
    assert gateway.get("/", X_Tenant="b")[1]["ratelimit"] == '"web";r=0;t=60, "tenant";r=1;t=60'


def test_a_denial_names_the_limit_of_a_policy_with_several(nginx):
    gateway = nginx(site(limited('{ policy = "both" }')))
    assert gateway.get("/")[1]["ratelimit-policy"] == '"both/second";q=2;w=1'
    gateway.get("/")
    status, headers, body = gateway.get("/")
    assert (status, json.loads(body)["violated-policies"]) == (429, ["both/second"])
    assert headers["retry-after"] == "1"


def test_a_limit_written_at_the_endpoint_has_counters_of_its_own(nginx):
    gateway = nginx(site(limited('{ policy = "2/5s", name = "one" }', path="/one")
                         + limited('{ limit = 2, window = "5s", name = "two" }', path="/two")
                         + limited('{ limit = 2, window = "5s", name = "three", endpoint = "one" }', path="/three")))
    assert [gateway.get("/one")[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get("/two")[0] == 200, "equal settings, another endpoint"
    status, headers, _ = gateway.get("/three")
    assert (status, headers["ratelimit"]) == (429, '"three";r=0;t=5'), "the name does not change what counts together"


def test_services_have_counters_of_their_own(nginx):
    def server(name):
        where = limited('{ policy = "1/5s", name = "one" }')
        return f"server {{ listen 127.0.0.1:PORT; server_name {name}; {where} }}\n"

    gateway = nginx('init_by_lua_block { limiter = require("ratelimitd").new{ socket = "SOCKET" } }' + server("shop") + server("till"))
    assert [gateway.get("/", Host="shop")[0] for _ in range(2)] == [200, 429]
    assert [gateway.get("/", Host="till")[0] for _ in range(2)] == [200, 429]
    assert "count for the server_name of the server where they stand" in gateway.errors()


def test_the_service_of_the_environment_counts_for_all_servers(nginx, monkeypatch):
    monkeypatch.setitem(ENV, "RATELIMIT_SERVICE", "shop")
    limit = limited('{ policy = "1/5s", name = "one" }')
    gateway = nginx(site("server_name a; " + limit) + f"server {{ listen 127.0.0.1:PORT; server_name b; {limit} }}")
    assert [gateway.get("/", Host=name)[0] for name in "ab"] == [200, 429]
    assert gateway.errors().count("count for the service shop (from $RATELIMIT_SERVICE)") == 1


def test_limits_that_are_switched_off_say_so_at_the_start(nginx, monkeypatch):
    monkeypatch.setitem(ENV, "RATELIMIT_ENABLED", "0")
    gateway = nginx(site(limited('{ policy = "login" }')))
    assert [gateway.get("/")[0] for _ in range(4)] == [200] * 4
    assert (gateway.folder / "error.log").read_text().count("RATELIMIT_ENABLED=0: limits are switched off") == 1


def test_a_denial_is_remembered_while_the_daemon_is_gone(nginx, daemon):
    gateway = nginx(site(limited('{ policy = "login" }'), ", remember_denials = 60000"))
    assert [gateway.get("/")[0] for _ in range(3)] == [200, 200, 429]
    daemon.kill()
    assert gateway.get("/")[0] == 429


def test_workers_share_remembered_denials_in_a_dict(nginx, daemon):
    gateway = nginx("lua_shared_dict denials 1m;"
                    + site(limited('{ { policy = "login" }, { policy = "web" } }'),
                           ', remember_denials = 60000, remember_in = "denials"'), workers=4)
    assert [gateway.get("/")[0] for _ in range(3)] == [200, 200, 429]
    daemon.kill()
    for _ in range(40):
        status, headers, _ = gateway.get("/")
        assert status == 429 and headers["ratelimit"].startswith('"login";r=0;t='), "whichever worker it is"


@pytest.mark.parametrize("options, message", [
    (', remember_denials = -1', "remember_denials is not a whole number of milliseconds"),
    (', remember_denials = 100, remember_in = "nowhere"', "there is no lua_shared_dict nowhere"),
    (', servce = "shop"', 'does not know the option "servce"')])
def test_a_mistake_in_the_options_of_new_keeps_nginx_from_starting(nginx, options, message):
    with pytest.raises(AssertionError, match=message):
        nginx(site(limited('{ policy = "login" }'), options))


def test_a_key_is_put_together_from_parts(nginx):
    gateway = nginx(site(limited('{ policy = "login", key = "ip|uri" }')))
    assert [gateway.get("/a")[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get("/b")[0] == 200


def test_a_header_behind_a_hundred_others_counts(nginx):
    gateway = nginx(site("""location / {
        rewrite_by_lua_block { limiter:limit{ policy = "tenant", key = "header:X-Tenant" } }
        content_by_lua_block { ngx.say "welcome" } }"""))
    lines = [(f"X-{i}", "1") for i in range(120)]
    assert [gateway.get("/", lines=[*lines, ("X-Tenant", "acme")])[0] for _ in range(3)] == [200, 200, 429]


def test_two_lines_of_a_header_are_one_key(nginx):
    gateway = nginx(site(limited('{ policy = "tenant", key = "header:X-Tenant" }')))
    lines = [("X-Tenant", "a"), ("X-Tenant", "b")]
    assert [gateway.get("/", lines=lines)[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get("/", X_Tenant="a, b")[0] == 429, "the lines are joined by a comma"
    assert gateway.get("/", X_Tenant="a")[0] == 200
    assert gateway.get("/", lines=[("X-Tenant", "")])[0] == 503, "an empty header is as a missing one"


def test_a_limit_may_depend_on_the_request(nginx):
    gateway = nginx(site(
        limited("""{ endpoint = "dynamic", window = "1m",
            limit = function() return ngx.var.arg_plan == "big" and 3 or 1 end }""", path="/limit")
        + limited('{ policy = function() return ngx.var.arg_policy end }', path="/policy")))
    assert [gateway.get("/limit")[0] for _ in range(2)] == [200, 429]
    assert [gateway.get("/limit?plan=big")[0] for _ in range(3)] == [200, 200, 429], "one counter, whatever the limit is"
    assert gateway.get("/policy?policy=web")[1]["ratelimit"] == '"web";r=2;t=60'
    assert gateway.get("/policy?policy=login")[1]["ratelimit"] == '"login";r=1;t=60'
    assert gateway.get("/policy")[0] == 503, "no policy is not NOT_LIMITED"
    assert "no policy for the limit of rewrite_by_lua" in gateway.errors()
    assert gateway.get("/policy?policy=1/parsec")[0] == 500
    assert "is neither the name of a policy nor a limit" in gateway.errors()


def test_the_decision_is_there_for_the_handler_and_the_log(nginx):
    gateway = nginx(site("""location / {
        set $ratelimit_remaining "";
        rewrite_by_lua_block { limiter:limit{ policy = "web" } }
        content_by_lua_block { ngx.say(ngx.var.ratelimit_remaining, " ", ngx.ctx.ratelimit.source) } }"""))
    assert gateway.get("/")[2] == "2 memory\n"


def test_the_decision_is_that_of_the_limit_with_least_left(nginx):
    gateway = nginx(site("""location / {
        set $ratelimit_of ""; set $ratelimit_allowed "";
        rewrite_by_lua_block {
            limiter:limit{ { policy = "web" }, { policy = "tenant" }, { policy = "open" } }
            limiter:limit{ policy = "web" } }
        content_by_lua_block { ngx.say(ngx.var.ratelimit_of, " ", ngx.var.ratelimit_allowed, " ", ngx.ctx.ratelimit.remaining) } }"""))
    assert [gateway.get("/")[2] for _ in range(1)] == ["tenant true 1\n"]


def test_fields_of_the_application_are_replaced_in_the_header_filter(nginx):
    gateway = nginx("header_filter_by_lua_block { limiter:header_filter() }\n"
                    + site(limited('{ policy = "web", headers = "both" }')))
    headers = gateway.get("/own")[1]
    assert headers["x-ratelimit-limit"] == "3"
    assert sorted(headers["ratelimit"].split(", ")) == ['"app";r=1', '"web";r=2;t=60']


def test_a_mistake_is_logged_once_in_ten_seconds(nginx):
    gateway = nginx(site(limited('{ policy = "wbe" }')))
    assert [gateway.get("/")[0] for _ in range(5)] == [500] * 5
    assert gateway.errors().count("UNKNOWN_POLICY") == 1


def test_a_key_of_parts_from_a_function(nginx):
    key = 'function(request) return { ngx.var.arg_user or "-", request:part("ip") } end'
    gateway = nginx(site(limited(f'{{ policy = "login", key = {key} }}')))
    assert [gateway.get("/?user=a")[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get("/?user=a|127.0.0.1")[0] == 200, "a part cannot look like two"
    assert [gateway.get("/")[0] for _ in range(3)] == [200, 200, 429]


def test_a_key_that_a_function_does_not_give_is_503_and_said_once(nginx):
    gateway = nginx(site(limited('{ policy = "login", key = function() return ngx.var.arg_user end }')))
    assert [gateway.get("/?user=a")[0] for _ in range(3)] == [200, 200, 429]
    assert [gateway.get(path)[0] for path in ("/", "/", "/?user=")] == [503] * 3
    assert len(re.findall(r"no key for the limit of rewrite_by_lua\([^)]*\):1:", gateway.errors())) == 1


def test_a_long_key_is_shortened_and_stays_apart(nginx):
    gateway = nginx(site(limited('{ policy = "login", key = "var:arg_user" }')))
    long = "x" * 600
    assert [gateway.get(f"/?user={long}a")[0] for _ in range(3)] == [200, 200, 429]
    assert gateway.get(f"/?user={long}b")[0] == 200


def test_cost_skip_and_enabled(nginx):
    gateway = nginx(site(
        limited('{ policy = "web", cost = function() return tonumber(ngx.var.arg_n) end }', path="/cost")
        + limited('{ policy = "login", skip = function() return ngx.var.http_x_probe == "yes" end }', path="/skip")
        + limited('{ policy = "login", enabled = false }', path="/off")))
    assert gateway.get("/cost?n=3")[1]["ratelimit"] == '"web";r=0;t=60'
    assert gateway.get("/cost?n=1")[0] == 429
    for _ in range(4):
        assert "ratelimit" not in gateway.get("/skip", X_Probe="yes")[1]
        assert "ratelimit" not in gateway.get("/off")[1]
    assert gateway.get("/skip")[1]["ratelimit"] == '"login";r=1;t=60'


def test_a_forged_preflight_is_counted(nginx):
    gateway = nginx(site(limited('{ policy = "login" }')))
    asked = [gateway.get("/", method="OPTIONS", Origin="https://a", Access_Control_Request_Method="GET")[0] for _ in range(3)]
    assert asked == [200, 200, 429]


def test_is_preflight_leaves_preflights_alone(nginx):
    gateway = nginx(site(limited('{ policy = "login", skip = limiter.is_preflight }')))
    for _ in range(3):
        _, headers, _ = gateway.get("/", method="OPTIONS", Origin="https://a", Access_Control_Request_Method="GET")
        assert "ratelimit" not in headers
    fields = {"Access_Control_Request_Method": "GET"}
    assert gateway.get("/", method="OPTIONS", **fields)[1]["ratelimit"] == '"login";r=1;t=60', "without Origin"


def test_headers_of_the_application_stay(nginx):
    gateway = nginx(site(limited('{ policy = "web" }')))
    assert sorted(gateway.get("/own")[1]["ratelimit"].split(", ")) == ['"app";r=1', '"web";r=2;t=60']


def test_two_limiters_of_one_request_both_show(nginx):
    calls = 'rewrite_by_lua_block { limiter:limit{ policy = "web" } limiter:limit{ policy = "login" } }'
    gateway = nginx(site(f"location / {{ {calls} proxy_pass http://app; }}"))
    assert gateway.get("/")[1]["ratelimit"] == '"web";r=2;t=60, "login";r=1;t=60'


@pytest.mark.parametrize("form, there, absent", [
    ("legacy", {"x-ratelimit-limit": "3", "x-ratelimit-remaining": "2", "x-ratelimit-reset": "60"}, ["ratelimit"]),
    ("both", {"x-ratelimit-limit": "3", "ratelimit": '"web";r=2;t=60'}, []),
    ("none", {}, ["ratelimit", "ratelimit-policy", "x-ratelimit-limit"])])
def test_forms_of_the_headers(nginx, form, there, absent):
    gateway = nginx(site(limited('{ policy = "web" }'), f', headers = "{form}"'))
    headers = gateway.get("/")[1]
    assert {name: headers.get(name) for name in there} == there
    assert not [name for name in absent if name in headers]


def test_each_limit_chooses_its_headers_and_its_answer(nginx):
    respond = 'respond = function() ngx.status = 418 ngx.say("tea") ngx.exit(418) end'
    gateway = nginx(site(limited(f"""{{
        {{ policy = "tenant", key = "header:X-Tenant", headers = "legacy" }},
        {{ policy = "login", headers = "none", {respond} }}, {{ policy = "web" }} }}""")))

    headers = gateway.get("/", X_Tenant="a")[1]
    assert (headers["ratelimit"], headers["x-ratelimit-limit"]) == ('"web";r=2;t=60', "2")
    assert gateway.get("/", X_Tenant="b")[0] == 200
    assert gateway.get("/", X_Tenant="c")[0] == 418, "the answer of the limit that denied, not of the first"


def test_unlimited_has_no_headers(nginx):
    gateway = nginx(site(limited('{ policy = "open" }')))
    status, headers, _ = gateway.get("/")
    assert status == 200 and "ratelimit" not in headers


def test_an_answer_with_a_delay_holds_the_request(nginx, daemon):
    gateway = nginx(site(limited('{ policy = "shaped" }')))
    answers = [gateway.get("/") for _ in range(7)]
    assert {status for status, _, _ in answers} == {200}
    with daemon.client() as client:
        assert client.check("shaped", "127.0.0.1")["delay_ms"] > 1000


def test_a_missing_policy_is_500_and_named_in_the_log(nginx):
    gateway = nginx(site(limited('{ policy = "wbe" }')))
    assert gateway.get("/")[0] == 500
    assert "UNKNOWN_POLICY" in gateway.errors()


@pytest.mark.parametrize("limit, message", [
    ('{ policy = "web", costs = 2 }', 'does not know the option "costs"; it has algorithm, anchor, burst, compat'),
    ('{ policy = "web", cost = "2" }', "cost of limit is a string; write a function or a number"),
    ('{ policy = "web", skip = true }', "skip of limit is a boolean; write a function"),
    ('{ policy = "web", key = { "ip" } }', "key of limit is a table; write a function or a string"),
    ('{ policy = "1 fortnight", name = "x" }', "is neither the name of a policy nor a limit such as"),
    ('{ limit = 1, window = "1 fortnight", name = "x" }', "window is not a time such as"),
    ('{ limit = 1, window = 5, name = "x" }', "window of limit is a number; write a function or a string"),
    ('{ policy = "2/5s" }', "needs a name for its counters"),
    ('{ policy = "2 per hour", name = "x" }', "is neither the name of a policy nor a limit such as"),
    ('{ policy = "web", cost = function() return tonumber(ngx.var.arg_n) end }', "cost is not a whole number from 0: nil"),
    ('{ policy = "web", on_error = "open" }', 'on_error is "allow", "deny" or a function'),
    ("{ }", "a limit needs policy")])
def test_a_mistake_in_a_limit_is_500_and_explained(nginx, limit, message):
    gateway = nginx(site(limited(limit)))
    assert gateway.get("/")[0] == 500
    assert message in gateway.errors()


def test_the_daemon_gone_lets_through_or_denies_as_the_limit_says(nginx, daemon):
    gateway = nginx(site(limited('{ policy = "web" }') + limited('{ policy = "login", on_error = "deny" }', path="/login")))
    assert gateway.get("/")[0] == 200
    daemon.kill()

    for _ in range(3):
        status, headers, _ = gateway.get("/")
        assert status == 200 and "ratelimit" not in headers and "retry-after" not in headers
    status, headers, body = gateway.get("/login")
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(body)["type"] == PROBLEM + "temporary-reduced-capacity"

    lines = [line for line in gateway.errors().splitlines() if "requests pass" in line or "requests are" in line]
    assert len(lines) == 1, "one line in ten seconds"


def test_the_strictest_of_the_limits_that_apply_decides_without_an_answer(nginx, daemon):
    def rule(name, verdict):
        return f'{{ policy = "web" }}, {{ policy = "login", {name} = {verdict} }}'

    by_kind = 'function(failure) return failure.kind == "unreachable" and "deny" or "allow" end'
    gateway = nginx(site(
        limited(f"{{ {rule('on_error', by_kind)} }}", path="/function")
        + limited(f"{{ {rule('on_error', 'function() return true end')} }}", path="/wrong")
        + limited('{ { policy = "web" }, { policy = "login", on_error = "deny", enabled = false } }', path="/off")))
    daemon.kill()

    assert gateway.get("/function")[0] == 503
    assert gateway.get("/wrong")[0] == 500
    assert "on_error gave" in gateway.errors()
    assert gateway.get("/off")[0] == 200, "a limit that does not apply does not decide"


def test_a_daemon_that_comes_back_is_asked_again(nginx, daemon):
    gateway = nginx(site(limited('{ policy = "web" }')))
    gateway.get("/")
    daemon.stop()
    gateway.get("/")
    daemon.start()
    eventually(lambda: "ratelimit" in gateway.get("/")[1], "a decision again")


def test_a_stopped_daemon_costs_the_timeout_three_times_and_then_nothing(nginx, daemon):
    gateway = nginx(site(limited('{ policy = "web" }') + """
        location /stats { content_by_lua_block {
            local n = limiter:stats().unavailable ngx.say((n.timeout or 0) .. " " .. (n.breaker or 0)) } }""",
                         ", timeout = 50"))
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


def test_connections_are_kept(nginx, daemon):
    gateway = nginx(site(limited('{ policy = "open" }')))
    for _ in range(50):
        assert gateway.get("/")[0] == 200
    with daemon.client() as client:
        assert client.call("stats")["connections_accepted"] < 10


def test_many_requests_at_once_in_several_workers_get_exactly_the_limit(nginx, daemon):
    gateway = nginx(site(limited('{ limit = 50, window = "1m", name = "many" }')), workers=3)
    statuses = []

    def ask():
        for _ in range(20):
            statuses.append(gateway.get("/")[0])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (statuses.count(200), statuses.count(429)) == (50, 110)


def test_verify_names_missing_policies_at_start(nginx):
    text = site(limited('{ policy = "web" }')) + 'init_worker_by_lua_block { limiter:verify{ "web", "wbe" } }'
    gateway = nginx(text)
    eventually(lambda: 'the daemon has no policy "wbe"' in gateway.errors(), "the missing policy in the log")
    assert 'no policy "web"' not in gateway.errors()


def test_the_window_moves_on(nginx, daemon):
    gateway = nginx(site(limited('{ policy = "login" }')))
    assert [gateway.get("/")[0] for _ in range(3)] == [200, 200, 429]
    set_clock(daemon, 61)
    assert gateway.get("/")[0] == 200


def test_an_answer_of_ones_own(nginx):
    own = '{ policy = "login", respond = function(decision) ngx.status = 418 ngx.say("tea ", decision.bound_by or decision.of) ngx.exit(418) end }'
    gateway = nginx(site(limited(own)))
    assert [gateway.get("/")[0] for _ in range(2)] == [200, 200]
    status, headers, body = gateway.get("/")
    assert (status, body) == (418, "tea login\n") and headers["ratelimit"] == '"login";r=0;t=60'
