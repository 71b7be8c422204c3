"""test_walked_around.py: what a visitor, or an ordinary configuration, must not get past; as far as only a gateway has it. The
rest is in clients/conformance/attacks.yaml."""

import re

import pytest
from gateways import daemon_with, eventually

NEW = 'init_by_lua_block { limiter = require("ratelimitd").new{ socket = "SOCKET", timeout = 10000 %s } }\n'


def site(text, options="", more=""):
    return NEW % options + more + "server { listen 127.0.0.1:PORT; root ROOT; " + text + " }\n"


@pytest.fixture
def files(tmp_path):
    """A folder of pages."""
    folder = tmp_path / "pages"
    folder.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    (folder / "index.html").write_text("index\n")
    (folder / "passwords").write_text("alice:{PLAIN}right\n")
    return str(folder)


def left(daemon, policy, key="127.0.0.1"):
    with daemon.client() as client:
        return client.call("peek", policy, key)["remaining"]


# ---- access blocks

PASSWORD = 'auth_basic "x"; auth_basic_user_file ROOT/passwords;'
RIGHT, WRONG = "Basic YWxpY2U6cmlnaHQ=", "Basic YWxpY2U6d3Jvbmc="


@pytest.mark.parametrize("options", ["", ", enabled = false"])
@pytest.mark.parametrize("phase", ["access", "rewrite"])
@pytest.mark.parametrize("limit", ['{ policy = "web" }', '{ policy = "web", skip = function() return true end }',
                                   '{ policy = "web", on_error = "allow", key = "header:X-Tenant" }'])
def test_a_limit_does_not_take_a_password_off(nginx, files, phase, limit, options):
    text = f"location / {{ satisfy any; {PASSWORD} {phase}_by_lua_block {{ limiter:limit{limit} }} proxy_pass http://app; }}"
    gateway = nginx(site(text, options).replace("ROOT", files))
    assert gateway.get("/")[0] == 401
    assert gateway.get("/", Authorization=WRONG)[0] == 401
    assert gateway.get("/", Authorization=RIGHT)[0] == 200


def test_a_denial_in_an_access_block_is_final_under_satisfy_any(nginx, files):
    text = f'location / {{ satisfy any; {PASSWORD} access_by_lua_block {{ limiter:limit{{ policy = "login" }} }} proxy_pass http://app; }}'
    gateway = nginx(site(text).replace("ROOT", files))
    assert [gateway.get("/", Authorization=RIGHT)[0] for _ in range(3)] == [200] * 3, "nginx grants before it asks Lua"
    text = text.replace("satisfy any; ", "")
    gateway = nginx(site(text).replace("ROOT", files))
    assert [gateway.get("/", Authorization=RIGHT)[0] for _ in range(3)] == [200, 200, 429]


def test_limits_of_an_access_block_are_a_list(nginx):
    text = 'location / { access_by_lua_block { limiter:limit{ { policy = "web" }, { policy = "login" } } } proxy_pass http://app; }'
    gateway = nginx(site(text))
    assert gateway.get("/")[1]["ratelimit"] == '"web";r=2;t=60, "login";r=1;t=60'
    assert [gateway.get("/")[0] for _ in range(2)] == [200, 429]


# ---- one charge a request

def test_an_internal_redirect_is_charged_once(nginx, files, daemon):
    text = """rewrite_by_lua_block { limiter:limit{ policy = "web" } }
        location / { try_files $uri $uri/ /index.php?$query_string; }
        location ~ \\.php$ { proxy_pass http://app; }
        location /app/ { try_files $uri @app; }
        location @app { proxy_pass http://app; }
        location /exec { content_by_lua_block { ngx.exec("/index.php") } }
        location /missing { error_page 404 = /index.php; return 404; }"""
    gateway = nginx(site(text).replace("ROOT", files))
    units = 3
    for path in ("/blog/1", "/app/x", "/exec"):
        status, headers, _ = gateway.get(path)
        units -= 1
        assert (status, headers["ratelimit"]) == (200, f'"web";r={units};t=60')
        assert left(daemon, "web") == units, path
    assert gateway.get("/blog/1")[0] == 429


def test_an_index_with_one_unit_an_hour(nginx, files):
    text = 'index index.html; location / { rewrite_by_lua_block { limiter:limit{ policy = "1/hour", name = "page" } } }'
    gateway = nginx(site(text).replace("ROOT", files))
    status, _, body = gateway.get("/")
    assert (status, body) == (200, "index\n")
    assert gateway.get("/")[0] == 429


def test_requests_of_one_connection_are_charged_each(nginx, daemon):
    import http.client
    gateway = nginx(site('location / { rewrite_by_lua_block { limiter:limit{ policy = "web" } } proxy_pass http://app; }'))
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    statuses = []
    for _ in range(4):
        connection.request("GET", "/")
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    connection.close()
    assert statuses == [200, 200, 200, 429]


def test_another_limit_behind_a_redirect_counts_too(nginx, daemon, files):
    text = """location / { rewrite_by_lua_block { limiter:limit{ policy = "web" } } try_files $uri /index.php; }
        location ~ \\.php$ { rewrite_by_lua_block { limiter:limit{ policy = "login" } } proxy_pass http://app; }"""
    gateway = nginx(site(text).replace("ROOT", files))
    assert gateway.get("/x")[1]["ratelimit"] == '"web";r=2;t=60, "login";r=1;t=60'
    assert gateway.get("/x")[0] == 200
    status, headers, _ = gateway.get("/x")
    assert (status, headers["ratelimit"]) == (429, '"web";r=1;t=60, "login";r=0;t=60')
    assert left(daemon, "web") == 1, "what the first place had charged went back"


def test_what_a_limit_found_out_is_not_lost_behind_a_redirect(nginx, files):
    text = """set $ratelimit_remaining ""; access_log ROOT/left.log left;
        location / { rewrite_by_lua_block { limiter:limit{ policy = "web", headers = "both" } } try_files $uri /next; }
        location /next { content_by_lua_block {
            collectgarbage() collectgarbage()
            ngx.header["X-RateLimit-Limit"] = 99
            ngx.say(limiter:decision().remaining, " ", ngx.ctx.ratelimit == nil) } }"""
    more = """header_filter_by_lua_block { limiter:header_filter() }
        log_format left "left $ratelimit_remaining";"""
    gateway = nginx(site(text, more=more).replace("ROOT", files))
    status, headers, body = gateway.get("/x")
    assert (status, body, headers["x-ratelimit-limit"]) == (200, "2 true\n", "3")
    eventually(lambda: open(f"{files}/left.log").read() == "left 2\n", "the log")


def test_a_visit_ends_with_its_request(nginx):
    text = """location / { rewrite_by_lua_block { limiter:limit{ policy = "open" } } content_by_lua_block { ngx.say "x" } }
        location /memory { content_by_lua_block { collectgarbage() collectgarbage() ngx.say(collectgarbage("count")) } }"""
    gateway = nginx(site(text))
    for _ in range(50):
        gateway.get("/")
    before = float(gateway.get("/memory")[2])
    for _ in range(500):
        gateway.get("/")
    assert float(gateway.get("/memory")[2]) < before + 200, "kB; 500 visits are more than twice as much"


def test_a_subrequest_is_limited_by_itself(nginx, daemon):
    text = """location /both { content_by_lua_block {
            for _ = 1, 2 do ngx.say(ngx.location.capture("/part").status) end } }
        location /part { rewrite_by_lua_block { limiter:limit{ policy = "login" } } proxy_pass http://app; }"""
    gateway = nginx(site(text))
    assert [gateway.get("/both")[2] for _ in range(2)] == ["200\n200\n", "429\n429\n"]


# ---- several places

def place(*limits):
    return " ".join(f"limiter:limit{limit}" for limit in limits)


def served(*limits):
    return site(f"location / {{ rewrite_by_lua_block {{ {place(*limits)} }} proxy_pass http://app; }}")


def test_the_same_limit_in_two_places_is_charged_once(nginx, daemon):
    gateway = nginx(served('{ policy = "web" }', '{ policy = "web" }', '{ policy = "web", cost = 2 }'))
    headers = gateway.get("/")[1]
    assert (headers["ratelimit"], headers["ratelimit-policy"]) == ('"web";r=1;t=60', '"web";q=3;w=60')
    assert left(daemon, "web") == 1


def test_a_later_refusal_gives_back(nginx, daemon):
    gateway = nginx(served('{ policy = "web" }', '{ policy = "login" }'))
    assert [gateway.get("/")[0] for _ in range(4)] == [200, 200, 429, 429]
    assert left(daemon, "web") == 1

    gateway = nginx(served('{ policy = "tenant" }', '{ policy = "login", key = "header:X-Tenant" }'))
    assert [gateway.get("/")[0] for _ in range(3)] == [503] * 3
    assert left(daemon, "tenant") == 2


def test_an_inline_limit_is_given_back_too(nginx, daemon):
    gateway = nginx(served('{ policy = "3/m", name = "outer" }', '{ policy = "login" }'))
    assert [gateway.get("/")[0] for _ in range(4)] == [200, 200, 429, 429]
    assert gateway.get("/")[1]["ratelimit"] == '"outer";r=1;t=60, "login";r=0;t=60'


def test_a_remembered_denial_gives_back_too(nginx, daemon):
    gateway = nginx(served('{ policy = "web" }', '{ policy = "login" }').replace("timeout = 10000", "timeout = 10000, remember_denials = 60000"))
    assert [gateway.get("/")[0] for _ in range(6)] == [200, 200, 429, 429, 429, 429]
    assert left(daemon, "web") == 1


def test_a_refund_forgets_denials_of_its_counter(nginx, daemon):
    """A denial that was made between a charge and its refund is not true after it."""
    text = """location /in { rewrite_by_lua_block { limiter:limit{ policy = "1/m", name = "outer" }
            ngx.location.capture("/other") limiter:limit{ policy = "never" } } proxy_pass http://app; }
        location /other { rewrite_by_lua_block { limiter:limit{ policy = "1/m", name = "outer" } } proxy_pass http://app; }"""
    started = daemon_with("policies: {never: {algorithm: fixed_window, limit: 0, window: 1m}}\ninline: {allow: true}")
    try:
        gateway = nginx(site(text, ", remember_denials = 60000").replace("SOCKET", started.socket))
        assert gateway.get("/in")[0] == 429
        assert gateway.get("/other")[0] == 200
    finally:
        started.close()


def test_what_counts_denials_stays_charged(nginx):
    started = daemon_with("""
policies:
  strict: {algorithm: sliding_log, limit: 10, window: 1m, count_denied: true}
  never: {algorithm: fixed_window, limit: 0, window: 1m}
""")
    try:
        gateway = nginx(served('{ policy = "strict" }', '{ policy = "never" }').replace("SOCKET", started.socket))
        assert gateway.get("/")[0] == 429
        assert left(started, "strict") == 9
    finally:
        started.close()


# ---- keys

@pytest.mark.parametrize("key", ["IP", "ip | uri", "ip|", "|ip", "header:", "header:X Tenant", "var:", "$remote_addr", "remote_adr",
                                 "remote_addr", "arg_user", "ip,uri", "uris", "header", "var:a-b", "Header:X-Tenant", ""])
def test_a_key_that_is_misspelt_is_refused(nginx, key):
    gateway = nginx(site(f'location / {{ rewrite_by_lua_block {{ limiter:limit{{ policy = "web", key = "{key}" }} }} proxy_pass http://app; }}'))
    assert gateway.get("/")[0] == 500
    bad = next(word for word in key.split("|") if word not in ("ip", "uri"))
    assert f'"{bad}" is no part of a key; write ip, uri, host, method, header:NAME or var:NAME' in gateway.errors()


def test_a_misspelt_key_of_a_limit_that_is_skipped_is_refused(nginx):
    limit = '{ policy = "web", key = "IP", skip = function() return true end }'
    gateway = nginx(site(f"location / {{ rewrite_by_lua_block {{ limiter:limit{limit} }} proxy_pass http://app; }}"))
    assert gateway.get("/")[0] == 500


@pytest.mark.parametrize("key", ["function(request) return { ngx.var.arg_user, request:part('ip') } end",
                                 "function(request) return { [2] = request:part('ip') } end",
                                 "function(request) return request:composite(request:part('ip'), ngx.var.arg_user) end",
                                 "function(request) return request:composite('', request:part('ip')) end",
                                 "function() return {} end", "'ip|var:arg_user'"])
def test_a_part_of_a_key_that_is_missing(nginx, key):
    text = f'location / {{ rewrite_by_lua_block {{ limiter:limit{{ policy = "web", key = {key} }} }} proxy_pass http://app; }}'
    gateway = nginx(site(text))
    assert gateway.get("/")[0] == 503
    assert "no key for the limit" in gateway.errors()


def test_only_allow_that_is_written_at_the_limit_leaves_it_out(nginx):
    def location(path, more):
        return f'location /{path} {{ rewrite_by_lua_block {{ limiter:limit{{ policy = "web", key = "header:X-Key" {more} }} }} proxy_pass http://app; }}'

    gateway = nginx(site(location("limit", ', on_error = "allow"') + location("limiter", "")
                         + location("function", ', on_error = function() return "allow" end')
                         + location("said", ', key = function() return limiter.NOT_LIMITED end')
                         + location("part", ', key = function() return { limiter.NOT_LIMITED, "a" } end'), ', on_error = "allow"'))
    assert [gateway.get(f"/{path}")[0] for path in ("limit", "limiter", "function", "said", "part")] == [200, 503, 503, 200, 200]
    assert len(re.findall("no key.*it is left out", gateway.errors())) == 1


# ---- others

def test_an_answer_of_ones_own_that_ends_nothing_lets_nobody_through(nginx):
    text = 'location / { rewrite_by_lua_block { limiter:limit{ policy = "web", cost = 4, respond = function() end } } proxy_pass http://app; }'
    assert nginx(site(text)).get("/")[0] == 429


@pytest.mark.parametrize("timeout", ["0", "-1", "math.huge", "0/0"])
def test_an_endless_timeout_is_refused(nginx, timeout):
    with pytest.raises(AssertionError, match="timeout is above 0 and at most"):
        nginx(site("").replace("timeout = 10000", f"timeout = {timeout}"))


def test_a_service_without_a_name_is_a_warning_once(nginx):
    text = 'location / { rewrite_by_lua_block { limiter:limit{ policy = "5/m", name = "page" } } proxy_pass http://app; }'
    gateway = nginx(site(text))
    for _ in range(3):
        gateway.get("/")
    assert len(re.findall(r"\[warn\].*count without a service: all who do so share their counters", gateway.errors())) == 1


def test_a_limit_that_moves_keeps_one_counter(nginx, daemon):
    limit = '{ limit = function() return 10 - tonumber(ngx.var.arg_n) % 5 end, window = "1m", name = "moves" }'
    gateway = nginx(site(f"location / {{ rewrite_by_lua_block {{ limiter:limit{limit} }} proxy_pass http://app; }}"))
    with daemon.client() as client:
        if "id" not in client.call("hello", {"describe": True}).get("features", ()):
            pytest.skip("this daemon has no feature id")
    statuses = [gateway.get(f"/?n={n}")[0] for n in range(40)]
    assert statuses.count(200) <= 10
