"""test_service.py: the PSR-15 middleware under php-fpm."""

import json
import threading

import http_sfv
from gateways import PHP, eventually, set_clock

SERVICE = PHP / "examples" / "service.php"
FORM = {"Content_Type": "application/x-www-form-urlencoded"}
PROBLEM = "https://iana.org/assignments/http-problem-types#"


def test_a_request_is_let_through_with_headers_and_then_answered_429(service):
    gateway = service()
    status, headers, body = gateway.get("/cost?n=4")
    assert (status, body) == (200, "cost 4\n")
    assert (headers["ratelimit-policy"], headers["ratelimit"]) == ('"budget";q=10;w=60', '"budget";r=6;t=24')
    parsed = http_sfv.List()
    parsed.parse(headers["ratelimit"].encode())
    assert (parsed[0].value, dict(parsed[0].params)) == ("budget", {"r": 6, "t": 24})

    status, headers, body = gateway.get("/cost?n=7")
    assert (status, headers["ratelimit"], headers["retry-after"]) == (429, '"budget";r=6;t=6', "6")
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body) == {"type": PROBLEM + "quota-exceeded", "title": "Quota exceeded", "status": 429,
                                "violated-policies": ["budget"]}
    _, headers, body = gateway.get("/cost?n=7", Accept="text/html")
    assert (headers["content-type"], body) == ("text/plain; charset=utf-8", "Too many requests: try again in 6 s.\n")

    status, headers, _ = gateway.get("/cost?n=11")
    assert status == 429 and "retry-after" not in headers, "it never fits"


def test_only_failed_logins_are_counted(service):
    gateway = service()
    for _ in range(5):
        assert gateway.get("/login", "POST", "user=alice&password=right", **FORM)[0] == 200
    answers = [gateway.get("/login", "POST", "user=alice&password=wrong", **FORM)[0] for _ in range(4)]
    assert answers == [401, 401, 401, 429]
    assert gateway.get("/login", "POST", "user=bob&password=right", **FORM)[0] == 200


def test_several_limits_are_charged_together(service):
    gateway = service()
    headers = gateway.get("/two", X_Tenant="acme")[1]
    assert headers["ratelimit"] == '"web";r=99;t=60, "tenant";r=1;t=60'
    assert headers["ratelimit-policy"] == '"web";q=100;w=60, "tenant";q=2;w=60'
    assert [gateway.get("/two", X_Tenant="acme")[0] for _ in range(2)] == [200, 429]
    assert gateway.get("/two")[1]["ratelimit"] == '"web";r=97;t=60', "the denied one charged nothing"


def test_a_limit_of_its_own_counts_from_the_first_request(service, daemon):
    gateway = service()
    assert [gateway.get("/inline")[0] for _ in range(3)] == [200, 200, 429]
    set_clock(daemon, 5)
    assert gateway.get("/inline")[0] == 200


def test_skip_and_preflight_and_switched_off(service):
    gateway = service()
    for _ in range(4):
        assert "ratelimit" not in gateway.get("/skip", X_Probe="yes")[1]
    assert [gateway.get("/skip")[0] for _ in range(4)] == [200, 200, 200, 429]


def test_switched_off_by_the_environment(service):
    gateway = service(RATELIMIT_ENABLED="0")
    answers = [gateway.get("/skip") for _ in range(5)]
    assert {status for status, _, _ in answers} == {200} and "ratelimit" not in answers[0][1]
    assert gateway.errors().count("RATELIMIT_ENABLED=0: no request is limited") == 1


def test_a_slot_is_held_until_the_request_ends(service, daemon):
    gateway = service()
    with daemon.client() as client:
        def slots():
            return client.call("stats")["slots"]

        answers = []
        thread = threading.Thread(target=lambda: answers.append(gateway.get("/slow?ms=2000")))
        thread.start()
        eventually(lambda: slots() == 1, "the slot is taken")
        status, headers, body = gateway.get("/slow")
        thread.join()
        assert answers[0][0] == 200 and answers[0][1]["ratelimit"] == '"slow";r=0'
        assert answers[0][1]["ratelimit-policy"] == '"slow";q=1;qu="concurrent-requests"'
        assert (status, body.count("slow")) == (429, 1) and "retry-after" not in headers
        eventually(lambda: slots() == 0, "the slot is free again")
        assert gateway.get("/slow")[0] == 200


def test_a_stream_holds_its_slot_to_its_end(service, daemon):
    gateway = service()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(gateway.get("/stream")))
    thread.start()
    with daemon.client() as client:
        eventually(lambda: client.call("stats")["slots"] == 1, "the slot is taken")
        assert gateway.get("/stream")[0] == 429
        thread.join()
        assert answers[0][2] == "one\ntwo\nthree\n"
        eventually(lambda: client.call("stats")["slots"] == 0, "the slot is free again")


def test_a_forwarded_address_counts_only_from_a_trusted_proxy(service):
    gateway = service()
    for n in range(3):
        gateway.get("/skip", X_Forwarded_For=f"192.0.2.{n}")
    assert gateway.get("/skip", X_Forwarded_For="192.0.2.9")[0] == 429


def test_a_trusted_proxys_address_counts(service):
    gateway = service(TRUSTED_PROXIES="127.0.0.0/8")
    for n in range(5):
        assert gateway.get("/skip", X_Forwarded_For=f"203.0.113.5, 192.0.2.{n}")[0] == 200
    for n in range(3):
        gateway.get("/skip", X_Forwarded_For=f"2001:db8:0:1::{n}")
    assert gateway.get("/skip", X_Forwarded_For="2001:db8:0:1:ffff::9")[0] == 429, "one /64 is one client"


def test_the_daemon_gone_lets_through_or_denies_as_the_limit_says(service, daemon):
    gateway = service()
    daemon.kill()
    status, headers, body = gateway.get("/ok")
    assert (status, body) == (200, "ok\n") and "ratelimit" not in headers
    status, headers, body = gateway.get("/down")
    assert (status, headers["retry-after"], json.loads(body)["type"]) == (503, "1", PROBLEM + "temporary-reduced-capacity")
    eventually(lambda: "requests pass" in gateway.errors(), "a line in the log")


def test_a_mistake_in_a_limit_is_an_exception(service, tmp_path):
    script = tmp_path / "mistake.php"
    text = SERVICE.read_text().replace("'GET /ok' => [['web']", "'GET /ok' => [['wbe']")
    script.write_text(text.replace("__DIR__ . '/..", f"'{PHP}"))
    gateway = service(script)
    assert gateway.get("/ok")[0] == 500
    eventually(lambda: "UNKNOWN_POLICY" in gateway.errors(), "the reason in the log")


def test_many_requests_of_four_workers_get_exactly_the_limit(service):
    gateway = service()
    statuses = []

    def ask():
        for _ in range(10):
            statuses.append(gateway.get("/skip")[0])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (statuses.count(200), statuses.count(429)) == (3, 37)
