"""test_readme.py: what README.md shows works as it stands there, also with hostile requests."""

import re

import pytest
from frameworks import LARAVEL, SYMFONY, needs_package
from gateways import EXTENSIONS, PHP, daemon_with
from scripts import AROUND, run

README = (PHP / "README.md").read_text().replace("vendor/autoload.php", "src/autoload.php")  # newcomer.py has it with Composer


def blocks(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    assert found, language
    return found


ASK, SCOPED, MIDDLEWARE, LOGIN, SEARCH, DECISION, IN_LARAVEL, SERVICES, CONTROLLERS, IN_TESTS = blocks("php")
FIRST = "require 'src/autoload.php';\n"


@pytest.fixture
def daemon():
    started = daemon_with(blocks("yaml")[0])
    yield started
    started.close()


def test_every_language_of_a_snippet_is_tried():
    assert set(re.findall(r"^```(\w+)$", README, re.M)) == {"yaml", "php", "sh"}


def test_the_client(daemon):
    assert run(ASK, daemon.socket) == ""
    for _ in range(4):
        run(ASK, daemon.socket)
    assert run(ASK, daemon.socket) == "again in 900000 ms\n"
    assert run(ASK + SCOPED + "echo $pdf, ' ', $text, ' ', $client->peek('llm', 'acme')->remaining;", daemon.socket) == \
        "again in 900000 ms\nthe report hello 98766"
    assert run(FIRST + IN_TESTS + "echo json_encode([$first, $second, $third]);", daemon.socket) == "[true,false,true]"


def test_the_psr15_middleware(daemon):
    more = "$response = $app->added[0]->process($request, $app); echo $response->getHeaderLine('RateLimit'), \"\\n\";"
    assert run(AROUND + MIDDLEWARE + more, daemon.socket) == '"web";r=99;t=1\n'
    with daemon.client() as client:
        assert client.call("peek", "web", "10.1.2.3")["remaining"] == 99, "no header is believed"


@pytest.mark.parametrize("line, key", [
    ("$address = Key::ip();", "10.1.2.3"),
    ("$address = Key::ip(trusted: ['10.0.0.0/8']);", "192.0.2.7")])
def test_the_line_for_proxies_of_yours(daemon, line, key):
    snippet = MIDDLEWARE.replace("// $address = Key::ip(trusted", "$address = Key::ip(trusted")
    assert line in snippet
    snippet = "\n".join(one for one in snippet.splitlines() if not one.startswith("$address") or one.startswith(line))
    run(AROUND + snippet + "$app->added[0]->process($request, $app);", daemon.socket)
    with daemon.client() as client:
        assert client.call("peek", "web", key)["remaining"] == 99


def statuses(bodies):
    return "".join(f"$app->status = 401; echo $login->process($request->withParsedBody({body}), $app)->getStatusCode(), ' ';"
                   for body in bodies)


def test_a_login_counts_by_account_and_address(daemon):
    tries = ["['user' => 'alice']"] * 5 + ["['user' => ' Alice ']", "['user' => 'bob']"]
    assert run(AROUND + MIDDLEWARE + LOGIN + statuses(tries), daemon.socket) == "401 401 401 401 401 429 401 "


@pytest.mark.parametrize("body", [
    "null", "[]", "['user' => '']", "['user' => ['x']]", "['user' => \"\\xff\\0|%\"]", "['user' => str_repeat('x', 9999)]",
    "(object) ['user' => 'alice']"])
def test_a_login_without_a_user_is_limited_and_no_error(daemon, body):
    assert run(AROUND + MIDDLEWARE + LOGIN + statuses([body] * 6), daemon.socket) == "401 401 401 401 401 429 "


def test_an_address_has_twenty_tries_whatever_the_account(daemon):
    tries = [f"['user' => 'user-{n}']" for n in range(21)]
    assert run(AROUND + MIDDLEWARE + LOGIN + statuses(tries), daemon.socket) == "401 " * 20 + "429 "


def test_a_limit_by_the_request_and_the_decision_in_the_handler(daemon):
    handler = "$app->work = function ($request) { " + DECISION + " return new Nyholm\\Psr7\\Response(200, [], $left); };\n"
    asked = "foreach (['gold', 'none'] as $plan) { echo $search->process($request->withHeader('X-Plan', $plan), $app)->getBody(), ', '; }"
    assert run(AROUND + MIDDLEWARE + SEARCH + handler + asked, daemon.socket) == \
        f"99 left of search, {left_of_ten(daemon)} left of search, "


def left_of_ten(daemon):
    """After one request under 100 and one under 10: a daemon with the feature `id` has one counter for both."""
    with daemon.client() as client:
        return 8 if "id" in client.call("hello", {"describe": True}).get("features", ()) else 9


ATTACKS = """
foreach (['OPTIONS', 'HEAD', 'PUT'] as $method) {
    $forged = $request->withMethod($method)->withHeader('Origin', 'https://a')->withHeader('Access-Control-Request-Method', 'POST');
    echo %s->process($forged, $app)->getStatusCode(), ' ';
}
"""


def test_no_method_gets_past_the_samples(daemon):
    tries = statuses(["['user' => 'alice']"] * 5)
    assert run(AROUND + MIDDLEWARE + LOGIN + tries + ATTACKS % "$login", daemon.socket) == "401 401 401 401 401 429 429 429 "
    spent = "for ($i = 0; $i < 10; $i++) { $search->process($request, $app); }"
    assert run(AROUND + MIDDLEWARE + SEARCH + spent + ATTACKS % "$search", daemon.socket) == "429 429 429 "
    spent = "for ($i = 0; $i < 100; $i++) { $app->added[0]->process($request, $app); }"
    assert run(AROUND + MIDDLEWARE + spent + ATTACKS % "$app->added[0]", daemon.socket) == "429 429 429 "


@needs_package("Illuminate/autoload.php")
def test_laravel(daemon):
    code = LARAVEL.replace("// THE SNIPPET", IN_LARAVEL) + """
foreach (['alice', 'alice', 'alice', 'alice', 'alice', 'alice', ['x']] as $user) { ask('POST', '/login', ['user' => $user]); }
ask('POST', '/login', ['user' => 'alice'], ['HTTP_ORIGIN' => 'https://a', 'HTTP_ACCESS_CONTROL_REQUEST_METHOD' => 'POST']);
ask('GET', '/search', [], ['HTTP_X_PLAN' => 'gold']);
ask('GET', '/search');
"""
    assert run(code, daemon.socket, EXTENSIONS) == \
        f"401 401 401 401 401 429 401 429 200 found, 99 left 200 found, {left_of_ten(daemon)} left "


@needs_package("Symfony/Bundle/FrameworkBundle/autoload.php")
def test_symfony(daemon):
    assert "RateLimitListener::class" in SERVICES
    code = SYMFONY + CONTROLLERS + """
route('login', '/login', new LoginController());
route('search', '/search', [new SearchController(), 'search']);
foreach (['alice', 'alice', 'alice', 'alice', 'alice', 'alice', ['x']] as $user) { ask('POST', '/login', ['user' => $user]); }
ask('POST', '/login', ['user' => 'alice'], ['HTTP_ORIGIN' => 'https://a', 'HTTP_ACCESS_CONTROL_REQUEST_METHOD' => 'POST']);
ask('GET', '/search', [], ['HTTP_X_PLAN' => 'gold']);
ask('GET', '/search');
"""
    assert run(code, daemon.socket, EXTENSIONS) == \
        f"401 401 401 401 401 429 401 429 200 found, 99 left 200 found, {left_of_ten(daemon)} left "
