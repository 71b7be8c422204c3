"""test_readme.py: what README.md shows works as it stands there."""

import re

from gateways import PHP, daemon_with
from scripts import AROUND, run

README = (PHP / "README.md").read_text()


def blocks(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    assert found, language
    return found


def test_every_language_of_a_snippet_is_tried():
    assert set(re.findall(r"^```(\w+)$", README, re.M)) == {"yaml", "php"}


def test_the_snippets():
    ask, scoped, middleware, limits, in_tests = blocks("php")
    daemon = daemon_with(blocks("yaml")[0])
    try:
        assert run(ask, daemon.socket) == ""
        for _ in range(4):
            run(ask, daemon.socket)
        assert run(ask, daemon.socket) == "again in 60000 ms\n"
        assert run(ask + scoped + "echo $pdf, ' ', $text, ' ', $client->peek('llm', 'acme')->remaining;", daemon.socket) == \
            "again in 60000 ms\nthe report hello 98766"

        more = "$response = $app->added[0]->process($request, $app); echo $response->getHeaderLine('RateLimit'), \"\\n\";"
        assert run(AROUND + middleware + more, daemon.socket) == '"web";r=99;t=1\n'
        with daemon.client() as client:
            assert client.call("peek", "web", "192.0.2.7")["remaining"] == 99

        more = "for ($i = 0; $i < 6; $i++) { $app->status = 401; echo $login->process($request, $app)->getStatusCode(), ' '; }"
        with daemon.client() as client:
            client.call("reset", "login", "alice")
        assert run(AROUND + middleware + limits + more, daemon.socket) == "401 401 401 401 401 429 "

        more = "echo json_encode([$first, $second, $third]);"
        assert run("require 'src/Ratelimitd.php';\n" + in_tests + more, daemon.socket) == "[true,false,true]"
    finally:
        daemon.close()
