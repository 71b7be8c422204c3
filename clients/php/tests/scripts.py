"""scripts.py: runs PHP code that uses the client."""

import subprocess

from gateways import ENV, PHP, php
from harness import build_dir

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


def run(code, socket):
    """What the code prints; SOCKET is the daemon's."""
    lines = code.splitlines()
    uses = [line for line in lines if line.startswith("use ")]  # must stand first, and once
    rest = "\n".join(line for line in lines if not line.startswith("use "))
    program = "\n".join(["<?php", *uses, rest])
    done = subprocess.run(php(), input=program, text=True, capture_output=True, timeout=30, cwd=PHP,
                          env={**ENV, "RATELIMIT_SOCKET": socket, "PATH": f"{build_dir() / 'bin'}:{ENV['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
