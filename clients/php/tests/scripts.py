"""scripts.py: runs PHP code that uses the client."""

import subprocess

from gateways import ENV, PHP, php
from harness import build_dir

# Just enough of an application, and of PSR-7 by its real library, for the middleware's snippets.
AROUND = """
require 'Nyholm/Psr7/autoload.php';
require 'tests/psr15.php';
require_once 'src/autoload.php';
final class App implements Psr\\Http\\Server\\RequestHandlerInterface {
    public array $added = [];
    public int $status = 200;
    public ?Closure $work = null;
    public function add(Psr\\Http\\Server\\MiddlewareInterface $one): void { $this->added[] = $one; }
    public function handle($request): Psr\\Http\\Message\\ResponseInterface {
        return $this->work === null ? new Nyholm\\Psr7\\Response($this->status) : ($this->work)($request);
    }
}
$app = new App();
$request = new Nyholm\\Psr7\\ServerRequest('POST', '/', ['X-Forwarded-For' => '192.0.2.7'], null, '1.1', ['REMOTE_ADDR' => '10.1.2.3']);
$request = $request->withParsedBody(['user' => 'alice']);
"""


def named_once(uses):
    """`use A\\{B, C};` and `use A\\B;` of several snippets, each class once."""
    for use in uses:
        front, _, names = use.removeprefix("use ").rstrip(";").partition("{")
        for name in names.rstrip("}").split(",") if names else [""]:
            yield f"use {front}{name.strip()};"


def run(code, socket, extensions=()):
    """What the code prints; SOCKET is the daemon's."""
    lines = code.splitlines()
    uses = sorted(set(named_once(line for line in lines if line.startswith("use "))))  # must stand first, and once
    rest = "\n".join(line for line in lines if not line.startswith("use "))
    program = "\n".join(["<?php", *uses, rest])
    done = subprocess.run(php(extensions=extensions), input=program, text=True, capture_output=True, timeout=30, cwd=PHP,
                          env={**ENV, "RATELIMIT_SOCKET": socket, "PATH": f"{build_dir() / 'bin'}:{ENV['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
