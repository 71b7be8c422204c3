"""test_readme.py: what README.md shows works as it stands there."""

import re
import subprocess

from gateways import ENV, PHP, daemon_with, php
from harness import build_dir

README = (PHP / "README.md").read_text()
# Just enough of an application, and of PSR-7 by its real library, for the middleware's snippets.
AROUND = """
require 'Nyholm/Psr7/autoload.php';
require 'tests/psr15.php';
require_once 'src/Ratelimitd.php';
require_once 'src/Middleware.php';
final class App implements Psr\\Http\\Server\\RequestHandlerInterface {
    public array $added = [];
    public int $status = 200;
    public function add(Psr\\Http\\Server\\MiddlewareInterface $one): void { $this->added[] = $one; }
    public function handle($request): Psr\\Http\\Message\\ResponseInterface { return new Nyholm\\Psr7\\Response($this->status); }
}
$app = new App();
$request = new Nyholm\\Psr7\\ServerRequest('POST', '/', ['X-Forwarded-For' => '192.0.2.7'], null, '1.1', ['REMOTE_ADDR' => '10.1.2.3']);
$request = $request->withParsedBody(['user' => 'alice']);
"""


def blocks(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    assert found, language
    return found


def run(code, daemon):
    lines = code.splitlines()
    uses = [line for line in lines if line.startswith("use ")]  # must stand first, and once
    rest = "\n".join(line for line in lines if not line.startswith("use "))
    program = "\n".join(["<?php", *uses, rest])
    done = subprocess.run(php(), input=program, text=True, capture_output=True, timeout=30, cwd=PHP,
                          env={**ENV, "RATELIMIT_SOCKET": daemon.socket, "PATH": f"{build_dir() / 'bin'}:{ENV['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_language_of_a_snippet_is_tried():
    assert set(re.findall(r"^```(\w+)$", README, re.M)) == {"yaml", "php"}


def test_the_snippets():
    ask, scoped, middleware, limits, in_tests = blocks("php")
    daemon = daemon_with(blocks("yaml")[0])
    try:
        assert run(ask, daemon) == ""
        for _ in range(4):
            run(ask, daemon)
        assert run(ask, daemon) == "again in 60000 ms\n"
        assert run(ask + scoped + "echo $pdf, ' ', $text, ' ', $client->peek('llm', 'acme')->remaining;", daemon) == \
            "again in 60000 ms\nthe report hello 98766"

        more = "$response = $app->added[0]->process($request, $app); echo $response->getHeaderLine('RateLimit'), \"\\n\";"
        assert run(AROUND + middleware + more, daemon) == '"web";r=99;t=1\n'
        with daemon.client() as client:
            assert client.call("peek", "web", "192.0.2.7")["remaining"] == 99

        more = "for ($i = 0; $i < 6; $i++) { $app->status = 401; echo $login->process($request, $app)->getStatusCode(), ' '; }"
        with daemon.client() as client:
            client.call("reset", "login", "alice")
        assert run(AROUND + middleware + limits + more, daemon) == "401 401 401 401 401 429 "

        more = "echo json_encode([$first, $second, $third]);"
        assert run("require 'src/Ratelimitd.php';\n" + in_tests + more, daemon) == "[true,false,true]"
    finally:
        daemon.close()
