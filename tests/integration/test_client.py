"""test_client.py: libratelimit as a user gets it: installed into a prefix, found through pkg-config, linked into C and C++
programs, shared and static, and run against a real daemon that is stopped, killed and started again."""

import os
import re
import shutil
import subprocess

import pytest

from harness import PATIENCE_S, ROOT, build_dir, sanitized, short_directory

PROGRAMS = ROOT / "tests" / "integration" / "client_programs"
CONFIG = """policies:
  api: {algorithm: fixed_window, limit: 1000000000, window: 1d}
  few: {algorithm: fixed_window, limit: 100, window: 1d, start: first_hit}
"""


class Installed:
    """The library in its own prefix: all files of `cmake --install`, or only the static library."""

    def __init__(self, form):
        self.prefix, self.built = short_directory(), {}
        subprocess.run(["cmake", "--install", str(build_dir()), "--component", "libratelimit", "--prefix", str(self.prefix)],
                       check=True, capture_output=True)
        self.libraries = next(self.prefix.rglob("libratelimit.a")).parent
        if form == "static":
            for path in self.libraries.glob("libratelimit.so*"):
                path.unlink()

    def flags(self, *asked):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.libraries / "pkgconfig")}
        return subprocess.run(["pkg-config", *asked, "ratelimit"], env=env, check=True, capture_output=True,
                              text=True).stdout.split()

    def build(self, source):
        """Compiles a program of client_programs/, or of an absolute path, once, only with the flags from pkg-config."""
        path = PROGRAMS / source
        if path in self.built:
            return self.built[path]
        program = self.prefix / path.name.replace(".", "_")
        compiler = ["g++", "-std=c++17"] if path.suffix == ".cc" else ["gcc", "-std=gnu11"]
        sanitizers = ["-fsanitize=address,undefined"] if sanitized() else []
        subprocess.run([*compiler, "-g", "-Wall", "-Wextra", "-Werror", *sanitizers, str(path), "-o", str(program),
                        *self.flags("--cflags", "--libs")], check=True)
        self.built[path] = [str(program)]
        return self.built[path]

    def env(self):
        return {**os.environ, "LD_LIBRARY_PATH": str(self.libraries)}

    def run(self, argv, **env):
        return subprocess.run(argv, env={**self.env(), **env}, capture_output=True, text=True, timeout=PATIENCE_S * 3,
                              stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module", params=["shared", "static"])
def installed(request):
    library = Installed(request.param)
    yield library
    shutil.rmtree(library.prefix)


@pytest.fixture
def daemon(ratelimitd):
    return ratelimitd(CONFIG)


def names_of(path, *options):
    output = subprocess.run(["nm", *options, "--defined-only", str(path)], check=True, capture_output=True, text=True).stdout
    return {line.split()[2] for line in output.splitlines() if len(line.split()) == 3}


def test_it_shows_its_own_names_and_no_others(installed):
    header = (installed.prefix / "include" / "ratelimit.h").read_text()
    public = set(re.findall(r"^RATELIMIT_API [^(]*?\*?(ratelimit_\w+)\(", header, re.M))
    assert {"ratelimit_check", "ratelimit_error", "ratelimit_async_process"} <= public
    assert names_of(installed.libraries / "libratelimit.a", "-g") == public
    for path in installed.libraries.glob("libratelimit.so"):
        assert {name.split("@")[0] for name in names_of(path, "-D")} - {"RATELIMIT_0"} == public


def test_it_needs_the_c_library_and_nothing_else(installed):
    for path in installed.libraries.glob("libratelimit.so"):
        needed = re.findall(r"NEEDED.*\[(.*?)\]", subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout)
        ours = {name for name in needed if not re.match(r"lib(a|ub)san|ld-linux", name)}
        assert ours == {"libc.so.6"}
    assert [flag for flag in installed.flags("--static", "--libs") if flag.startswith("-l")] == ["-lratelimit"]


@pytest.mark.parametrize("source, output", [("own_names.c", "memory 4\n"), ("header.cc", "memory\n")])
def test_a_program_links_and_asks(installed, daemon, source, output):
    done = installed.run([*installed.build(source), daemon.socket, "few"])
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_the_example_of_the_manual_page_asks(installed, ratelimitd):
    daemon = ratelimitd("policies: {login: {algorithm: fixed_window, limit: 5, window: 1d, start: first_hit}}")
    page = (ROOT / "src/client/libratelimit.3").read_text()
    text = re.search(r"^\.Bd -literal\n(.*?)^\.Ed", page, re.M | re.S).group(1).replace("\\e", "\\")
    source = installed.prefix / "example.c"
    source.write_text(text)
    done = installed.run([*installed.build(source), daemon.socket], RATELIMIT_SOCKET=daemon.socket)
    assert (done.returncode, done.stdout) == (0, "allowed, 4 left\n"), done.stderr


METHODS = """inline: {allow: true}
defaults: {deadline: 5s}
policies:
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s}
  ten: {algorithm: fixed_window, limit: 10, window: 1d, start: first_hit}
"""


@pytest.mark.parametrize("method, policy", [
    ("check", "ten"), ("check_all", "ten"), ("reset", "ten"), ("inline", "ten"), ("at_most", "ten"), ("request_id", "ten"),
    ("refund", "ten"), ("reserve", "ten"), ("acquire", "jobs"), ("describe", "ten"), ("check_wait", "ten"), ("acquire_wait", "jobs"),
])
def test_every_method_has_its_functions(installed, any_store, ratelimitd, method, policy):
    daemon = ratelimitd(METHODS, redis=any_store)
    done = installed.run([*installed.build("methods.c"), daemon.socket, policy, method])
    assert (done.returncode, done.stderr) == (0, "")


def test_forked_children_ask_over_connections_of_their_own(installed, daemon):
    done = installed.run([*installed.build("prefork.c"), daemon.socket, "few", "8", "50"])
    assert done.returncode == 0, done.stderr
    assert 97 < int(done.stdout) <= 100  # costs are up to 3


def test_every_call_ends_once_over_a_daemon_that_is_killed_and_restarted(installed, daemon):
    program = subprocess.Popen([*installed.build("epoll_checks.c"), daemon.socket, "api", "10000"], env=installed.env(),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "half\n"
        daemon.pause()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "on\n"  # these went into the stopped daemon's socket
        daemon.kill()
        daemon.expected_exit = 0
        daemon.start()
        out, err = program.communicate(timeout=PATIENCE_S * 3)
    finally:
        program.kill()
        program.wait()
    ends = {words: int(n) for n, words in (line.split(" ", 1) for line in out.splitlines())}
    assert program.returncode == 0, err
    # One more if the listener of the dying daemon lived a moment longer than its connections.
    assert ends.pop("connections") in (2, 3)
    assert ends["the connection ended before the answer"] >= 64
    assert ends["no answer by the deadline"] == 0
    assert sum(ends.values()) == 10000
    assert ends["answered"] > 5000


def test_a_pause_shorter_than_the_deadline_costs_no_call_and_no_connection(installed, daemon):
    program = subprocess.Popen([*installed.build("epoll_checks.c"), daemon.socket, "api", "200"], env=installed.env(),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "half\n"
        daemon.pause()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "on\n"
        daemon.resume()
        out, _ = program.communicate(timeout=PATIENCE_S)
    finally:
        program.kill()
        program.wait()
    assert "200 answered\n" in out and "1 connections\n" in out
