#!/usr/bin/env python3
"""newcomer.py LANG: installs a client as its README says, and runs the README's first sample.

It copies the repository's files, as a fresh checkout has them, into a temporary folder, next to an empty project. There it
runs the lines below each `<!-- install -->` of clients/LANG/README.md, word for word. Then it starts the README's first
sample with a real daemon, which has the README's configuration, and visits it with conformance/visitors.py; and so with the
language's web application of docs/recipes.md.

What is downloaded stays below $DEPS/clients, so a second run needs no network. RATELIMITD_BUILD is the daemon's build. The
last line is `N passed, N failed, N skipped`.
"""

import contextlib
import http.server
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DEPS = Path(os.environ.get("DEPS") or ROOT / ".deps").resolve()
BUILD = Path(os.environ.get("RATELIMITD_BUILD") or ROOT / "build" / "release").resolve()
RESULTS = Path(os.environ.get("TEST_RESULTS") or ROOT / "build" / "test")
os.environ["RATELIMITD_BUILD"] = str(BUILD)

if sys.prefix == sys.base_prefix and (DEPS / "venv" / "bin" / "python").exists():  # the tests' Python has msgpack and pytest
    os.execv(DEPS / "venv" / "bin" / "python", [str(DEPS / "venv" / "bin" / "python"), *sys.argv])
sys.path[:0] = [str(HERE), str(HERE / "conformance"), str(ROOT / "tests" / "integration")]
import gateways  # noqa: E402
import visitors  # noqa: E402
from harness import Ratelimitd, eventually, free_port  # noqa: E402

FENCE = re.compile(r"^(?:<!-- (?P<mark>.*?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
PATIENCE_S = 60.0


RECIPES = (ROOT / "docs" / "recipes.md").read_text().partition("## Web applications")[2]


class Failed(Exception):
    pass


class Newcomer:
    """A checkout, an empty project next to it, and a daemon with the README's configuration."""

    config = None  # of the first sample, where the README has none
    search = None  # a path of the sample whose limit is by address alone
    login = None  # its path, if the sample has a login
    by_account = True  # the login counts each account by itself

    def __init__(self, folder, log):
        self.folder, self.log = folder, log
        self.checkout, self.project = folder / "ratelimitd", folder / "shop"
        self.readme = (ROOT / "clients" / self.language / "README.md").read_text()
        self.port = free_port()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("RATELIMIT")}

    # ---- what a language says of itself

    def prepare(self):
        """What a newcomer has before: the language's tools, and an empty project of its kind."""

    def first(self):
        """The README's first sample, as a whole program."""
        raise NotImplementedError

    def sample(self, text):
        """Writes the sample's files, builds them, and returns the argv that serves it on self.port."""
        raise NotImplementedError

    # ---- steps

    def begin(self):
        copy_of_the_repository(self.checkout)
        (self.checkout / "build").mkdir(exist_ok=True)
        (self.checkout / "build" / "release").symlink_to(BUILD)  # what ./dev build leaves
        self.project.mkdir()
        self.prepare()

    def install(self):
        scripts = [found["text"] for found in FENCE.finditer(self.readme) if found["mark"] == "install"]
        if not scripts:
            raise Failed("the README has no lines marked with <!-- install -->")
        for script in scripts:
            self.run(["sh", "-ec", script])

    def serve(self):
        """The first sample answers, and nothing that visitors send disturbs it."""
        with self.running(self.first(), self.config or self.snippet("yaml")):
            self.visit(self.search, self.login)

    def recipe(self):
        """So does the language's web application of docs/recipes.md; and users have a counter of their own, as far as they may."""
        self.readme = RECIPES
        self.port = free_port()
        with self.running(self.snippet_marked(f"web: {self.language}"), self.snippet("yaml")):
            self.visit("/orders", "/login")
            users = {"no one": 10, "Bearer token-of-bob": 10}
            self.complain(visitors.complaints_of_users(self.port, "/orders", {**users, "Bearer token-of-alice": 10}))
            self.complain(visitors.complaints_of_users(self.port, "/search", {**users, "Bearer token-of-alice": 100}, b"found, %d left"))

    @contextlib.contextmanager
    def running(self, text, config):
        """While the sample serves on self.port."""
        daemon = Ratelimitd(config, arguments=["--test-clock"])
        service = None
        try:
            self.env["RATELIMIT_SOCKET"] = daemon.socket
            argv = self.sample(text)
            service = subprocess.Popen([*map(str, argv)], cwd=self.project, env=self.env, stdin=subprocess.DEVNULL,
                                       stdout=self.log, stderr=subprocess.STDOUT, preexec_fn=unblock_signals)
            eventually(lambda: self.answers(service), f"the sample answers on port {self.port}", PATIENCE_S)
            yield
        finally:
            if service:
                service.terminate()
                service.wait(PATIENCE_S)
            daemon.close()

    def visit(self, search, login):
        self.complain(visitors.complaints_of_a_limit(self.port, search) if search else [])
        if login:
            self.complain(visitors.complaints_of_bodies(self.port, login, visitors.BROKEN))
            self.complain(visitors.complaints_of_a_login(self.port, login, self.by_account))

    # ---- helpers

    @staticmethod
    def complain(found):
        if found := list(found):
            raise Failed("\n".join(found))

    def snippet_marked(self, mark):
        return next(found["text"] for found in FENCE.finditer(self.readme) if found["mark"] == mark)

    def snippet(self, language, after=""):
        """The first snippet of a language behind the line `after`."""
        start = self.readme.index(after)
        return next(found["text"] for found in FENCE.finditer(self.readme, start) if found["language"] == language)

    @staticmethod
    def patient(text, client, patient):
        """The sample with a client whose timeout is long: a busy machine may stop for a second, and a request would pass."""
        if client not in text:
            raise Failed(f"the sample has no {client}")
        return text.replace(client, patient)

    def write(self, name, text):
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, argv, **env):
        argv = [*map(str, argv)]
        self.log.write(f"$ {' '.join(argv)}\n".encode())
        self.log.flush()
        done = subprocess.run(argv, cwd=self.project, env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        self.log.write(done.stdout.encode())
        self.log.flush()
        if done.returncode:
            raise Failed(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout[-3000:]}")
        return done.stdout

    def answers(self, service):
        if service.poll() is not None:
            raise Failed(f"the sample ended with {service.returncode}: {Path(self.log.name).read_text(errors='replace')[-3000:]}")
        return visitors.answers(self.port)


def copy_of_the_repository(target):
    """The files that git knows, and new ones that it does not ignore: nothing that a build or an installation has left."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        source, copy = ROOT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def unblock_signals():
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


# ---- the languages


class Python(Newcomer):
    language, search, login = "python", "/search", "/login"

    def prepare(self):
        wheels = DEPS / "clients" / "python" / "wheels"
        complete = wheels / "complete"
        wanted = (self.checkout / "clients" / "python" / "pyproject.toml").read_text()
        if not complete.exists() or complete.read_text() != wanted:
            client = f"{self.checkout}/clients/python[flask]"
            self.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", wheels, client, "hatchling"])
            complete.write_text(wanted)
        self.env.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels), PIP_DISABLE_PIP_VERSION_CHECK="1")

    def first(self):
        return self.snippet("python", "## Flask")

    def sample(self, text):
        text = self.patient(text, "Limiter(app,", "Limiter(app, client=Client(timeout=60),")
        self.write("shop.py", f"from ratelimitd import Client\n{text}")
        return ["venv/bin/flask", "--app", "shop", "run", "--port", self.port]


class Node(Newcomer):
    language, search, login = "node", "/search", "/login"

    def prepare(self):
        self.env.update(PATH=f"{DEPS}/bin:{self.env['PATH']}", npm_config_cache=str(DEPS / "clients" / "node" / "cache"),
                        npm_config_prefer_offline="true", npm_config_audit="false", npm_config_fund="false")
        self.write("package.json", '{"name": "shop", "type": "module"}\n')

    def first(self):
        return self.snippet("js", "## Express")

    def sample(self, text):
        text = self.patient(text, "new RateLimiter()", "new RateLimiter({ timeoutMs: 60000 })")
        text = re.sub(r"listen\(3000", f"listen({self.port}", text)
        if ": Request" not in text:  # without types: as it stands
            self.write("app.mjs", text)
            return ["node", "app.mjs"]
        self.write("shop.ts", text)
        tsc = self.checkout / "clients" / "node" / "node_modules" / ".bin" / "tsc"
        self.run([tsc, "--noCheck", "--module", "nodenext", "--target", "es2022", "shop.ts"])
        return ["node", "shop.js"]


class Go(Newcomer):
    language, search = "go", "/search"
    config = "policies: {search: {algorithm: fixed_window, limit: 10, window: 1s}}"

    def prepare(self):
        modules = DEPS / "clients" / "go" / "mod"
        proxies = self.run(["go", "env", "GOPROXY"]).strip()
        self.env.update(GOMODCACHE=str(modules), GOCACHE=str(DEPS / "clients" / "go" / "cache"), GOTOOLCHAIN="local", GOWORK="off",
                        GOFLAGS="", GOPROXY=f"file://{modules}/cache/download,{proxies}")
        self.run(["go", "mod", "init", "example.com/shop"])

    def first(self):
        section = self.readme[self.readme.index("## Limit an endpoint"):]
        ours = re.findall(r'`((?:\w+ )?"github\.com/ratelimitd/[^`"]*")`', section.partition("```")[0])
        imports = "\n".join(['"log"', '"net/http"', *ours])
        return f"""package main
import (
{imports}
)
func search(w http.ResponseWriter, r *http.Request) {{ w.Write([]byte("found")) }}
func main() {{
{self.snippet("go", "## Limit an endpoint")}
log.Fatal(http.ListenAndServe("127.0.0.1:3000", mux))
}}
"""

    def sample(self, text):
        text = self.patient(text, "ratelimit.New()", "ratelimit.New(ratelimit.WithTimeout(60_000_000_000))")
        self.write("main.go", text.replace("127.0.0.1:3000", f"127.0.0.1:{self.port}"))
        self.run(["go", "mod", "tidy"])
        self.run(["go", "build", "-o", "shop", "."])
        return ["./shop"]


class Java(Newcomer):
    language, search, login = "java", "/export", "/login"

    def prepare(self):
        repository = DEPS / "clients" / "m2"
        shutil.rmtree(repository / "io" / "ratelimitd", ignore_errors=True)  # nothing of ours before the README's lines
        self.env["MAVEN_OPTS"] = f"-Dmaven.repo.local={repository} {self.env.get('MAVEN_OPTS', '')}"

        pom = (self.checkout / "clients" / "java" / "pom.xml").read_text()
        boot = re.search(r"<boot35\.version>(.*?)<", pom)[1]
        plugins = {f"{name}_plugin": re.search(rf"<artifactId>maven-{name}-plugin</artifactId>\s*<version>(.*?)<", pom)[1]
                   for name in ("compiler", "resources", "dependency")}
        self.write("pom.xml", POM.format(boot=boot, starter=self.snippet("xml"), **plugins))

    def first(self):
        return self.snippet("java", "## Spring Boot")

    def sample(self, text):
        shutil.rmtree(self.project / "src", ignore_errors=True)
        shutil.rmtree(self.project / "target", ignore_errors=True)
        self.write("src/main/java/shop/Shop.java", SHOP)
        self.write(f"src/main/java/shop/{re.search(r'public class (.*?) ', text)[1]}.java", "package shop;\n" + text)
        self.run(["mvn", "-B", "-q", "compile", "dependency:copy-dependencies@libraries"])
        self.env.update(SERVER_PORT=str(self.port), RATELIMITD_TIMEOUT="60s")
        # Spring itself answers 500 to a multipart form without a boundary, on every path and in front of all handlers
        self.env["SPRING_SERVLET_MULTIPART_ENABLED"] = "false"
        return ["java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", "target/classes:target/lib/*", "shop.Shop"]


SHOP = """package shop;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

@SpringBootApplication
public class Shop {
    public static void main(String[] arguments) {
        SpringApplication.run(Shop.class, arguments);
    }
}
"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.example</groupId>
  <artifactId>shop</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.release>17</maven.compiler.release>
    <maven.compiler.parameters>true</maven.compiler.parameters>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencyManagement>
    <dependencies>
      <dependency>
        <groupId>org.springframework.boot</groupId>
        <artifactId>spring-boot-dependencies</artifactId>
        <version>{boot}</version>
        <type>pom</type>
        <scope>import</scope>
      </dependency>
    </dependencies>
  </dependencyManagement>
  <dependencies>
    <dependency>
      <groupId>org.springframework.boot</groupId>
      <artifactId>spring-boot-starter-web</artifactId>
    </dependency>
{starter}
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <artifactId>maven-resources-plugin</artifactId>
        <version>{resources_plugin}</version>
      </plugin>
      <plugin>
        <artifactId>maven-compiler-plugin</artifactId>
        <version>{compiler_plugin}</version>
      </plugin>
      <plugin>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>{dependency_plugin}</version>
        <executions>
          <execution>
            <id>libraries</id>
            <goals><goal>copy-dependencies</goal></goals>
            <configuration>
              <outputDirectory>${{project.build.directory}}/lib</outputDirectory>
              <includeScope>runtime</includeScope>
            </configuration>
          </execution>
        </executions>
      </plugin>
    </plugins>
  </build>
</project>
"""


class Php(Newcomer):
    language = "php"

    def prepare(self):
        composer = gateways.program("composer")
        if not composer:
            raise Failed("there is no composer: ./dev test clients php installs it")
        libraries, argv = gateways.ENV["LD_LIBRARY_PATH"], gateways.php(composer, extensions=gateways.EXTENSIONS)
        own = self.folder / "bin" / "composer"
        own.parent.mkdir()
        own.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {shlex.join(argv)} "$@"\n')
        own.chmod(0o755)
        self.env.update(PATH=f"{own.parent}:{self.env['PATH']}", COMPOSER_HOME=str(self.folder / "composer"),
                        COMPOSER_ALLOW_SUPERUSER="1", COMPOSER_DISABLE_NETWORK="1")  # nothing but the checkout is needed
        self.write("composer.json", '{"name": "example/shop"}\n')

    def serve(self):
        """The first sample is no service: it asks, and prints what it learns. With Composer, and without."""
        for autoload in ("vendor/autoload.php", "src/autoload.php"):
            text = self.patient(self.snippet("php"), "vendor/autoload.php", autoload)
            self.write("shop.php", "<?php\n" + self.patient(text, "new Client()", "new Client(timeout: 60)"))
            daemon = Ratelimitd(self.snippet("yaml"), arguments=["--test-clock"])
            try:
                printed = [self.run(gateways.php("shop.php"), LD_LIBRARY_PATH=gateways.ENV["LD_LIBRARY_PATH"],
                                    RATELIMIT_SOCKET=daemon.socket) for _ in range(6)]
            finally:
                daemon.close()
            if printed[:5] != [""] * 5 or not printed[5].startswith("again in "):
                raise Failed(f"the sample prints {printed}")

    @contextlib.contextmanager
    def running(self, text, config):
        text = self.patient(text, "new Client()", "new Client(timeout: 60)")
        self.write("front.php", FRONT.format(psr15=self.checkout / "clients" / "php" / "tests" / "psr15.php", sample=text))
        daemon, servers = Ratelimitd(config, arguments=["--test-clock"]), []
        try:
            env = {"RATELIMIT_SOCKET": daemon.socket, "TMPDIR": str(self.folder)}
            servers += gateways.start_php(self.project, self.project / "front.php", env, port=self.port)
            yield
        finally:
            for server in servers:
                server.close()
            daemon.close()


# What the sample needs of Slim, on the PSR-7 library of the tests.
FRONT = """<?php
use Psr\\Http\\Message\\{{ResponseInterface, ServerRequestInterface}};
require 'Nyholm/Psr7/autoload.php';
require '{psr15}';
require __DIR__ . '/vendor/autoload.php';
final class Route implements Psr\\Http\\Server\\RequestHandlerInterface
{{
    private Psr\\Http\\Server\\MiddlewareInterface $added;
    public function __construct(private Closure $work) {{}}
    public function add(Psr\\Http\\Server\\MiddlewareInterface $one): void {{ $this->added = $one; }}
    public function answer(ServerRequestInterface $request): ResponseInterface {{ return $this->added->process($request, $this); }}
    public function handle(ServerRequestInterface $request): ResponseInterface
    {{
        return ($this->work)($request, new Nyholm\\Psr7\\Response());
    }}
}}
final class App
{{
    public array $routes = [];
    public function post(string $path, Closure $work): Route {{ return $this->routes["POST $path"] = new Route($work); }}
    public function get(string $path, Closure $work): Route {{ return $this->routes["GET $path"] = new Route($work); }}
}}
$app = new App();
{sample}
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
$request = new Nyholm\\Psr7\\ServerRequest($_SERVER['REQUEST_METHOD'], '/', getallheaders(), null, '1.1', $_SERVER);
$route = $app->routes["$_SERVER[REQUEST_METHOD] $path"] ?? null;
$answer = $route ? $route->answer($request->withParsedBody($_POST)) : new Nyholm\\Psr7\\Response(404);
http_response_code($answer->getStatusCode());
foreach ($answer->getHeaders() as $name => $values) {{
    header("$name: " . implode(', ', $values));
}}
echo $answer->getBody();
"""


class Lua(Newcomer):
    language, search, login, by_account = "lua", "/export", "/login", False

    def prepare(self):
        self.env["DESTDIR"] = str(self.folder / "system")

    def first(self):
        return self.snippet("nginx")

    @contextlib.contextmanager
    def running(self, text, config):
        installed = re.search(r'lua_package_path "(/.*?)/\?', text)[1]
        text = re.sub(r"lua_package_path.*|lua_socket_log_errors.*", "", text)  # start_nginx writes them, for this folder:
        modules = [Path(f"{self.env['DESTDIR']}{installed}")]
        daemon = Ratelimitd(config, arguments=["--test-clock"])
        application = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
        threading.Thread(target=application.serve_forever, daemon=True).start()
        text = text.replace("listen 80", "listen 127.0.0.1:PORT")
        text = self.patient(text, "new()", f'new{{ socket = "{daemon.socket}", timeout = 60000 }}')
        text = f"upstream app {{ server 127.0.0.1:{application.server_port}; }}\n{text}"
        nginx = None
        try:
            nginx = gateways.start_nginx(self.project, text, lua=modules, port=self.port)
            yield
        finally:
            if nginx:
                nginx.close()
            application.shutdown()
            application.server_close()
            daemon.close()


class Application(http.server.BaseHTTPRequestHandler):
    """What stands behind nginx: it knows no account."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        left = self.headers.get("X-Left")
        body = f"found, {left} left".encode() if left else b"orders"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


LANGUAGES = {one.language: one for one in Newcomer.__subclasses__()}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in LANGUAGES:
        sys.exit(f"{__doc__}\nLANG is one of {' '.join(LANGUAGES)}.")
    language = sys.argv[1]
    RESULTS.mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="ratelimitd.") as folder, open(RESULTS / f"newcomer-{language}.log", "wb") as log:
        newcomer = LANGUAGES[language](Path(folder), log)
        for step in (newcomer.begin, newcomer.install, newcomer.serve, newcomer.recipe):
            started, complaint = time.monotonic(), None
            try:
                step()
            except (Failed, AssertionError) as error:
                complaint = str(error)
            except Exception:
                complaint = traceback.format_exc()
            print(f"   {'FAILED' if complaint else 'passed'} {step.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
            if complaint:
                print("\n".join(f"      {line}" for line in complaint.splitlines()), flush=True)
                failed += 1
                break
            passed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
