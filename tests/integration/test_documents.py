"""test_documents.py: every snippet of README.md and docs/*.md works unchanged. Snippets that need a cluster or a booted systemd
are compared with the programs and the unit files."""

import grp
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest
import redis as redis_py

from harness import ROOT, algorithms, build_dir, eventually, on_free_port, program
from sentinels import NAME, Watched

sys.path.insert(0, str(ROOT / "tests"))
import documents  # noqa: E402

pytestmark = pytest.mark.smoke
BLOCKS = documents.all_blocks()
DOCS = {path.name: path.read_text() for path in documents.PAGES}
# Every language has its tests below. No test would run a snippet in another language.
LANGUAGES = {"yaml", "console", "sh", "systemd", "ini", "python", "c", "lua", "http", ""}
# Snippets without a language: the two of Try it and Install (test_readme.py), the rights, one line of
# redis.conf, and calls of ./dev.
PLAIN = {"README.md": 3, "redis.md": 20, "operate-under-load.md": 1, "increx.md": 1}


def named(block):
    return f"{block.page}-{block.number}"


def is_web(block):
    """clients/newcomer.py runs these, each with its language."""
    return block.mark.startswith("web: ") and (ROOT / "clients" / block.mark.removeprefix("web: ") / "test").exists()


def of(language, page=None):
    found = [block for block in BLOCKS if block.language == language and page in (None, block.page) and not is_web(block)]
    assert found, f"{page or 'the documents'}: no {language}"
    return found


def code_of(page, language):
    return of(language, page)[0].text


def configurations():
    return [block for block in BLOCKS if block.is_configuration]


def manifests():
    """Those of the page itself; the shipped files are marked."""
    return [block for block in of("yaml", "kubernetes.md") if block.text.startswith("apiVersion: v1\n") and not block.mark]


def run(argv, socket=None, **options):
    env = {**os.environ, "RATELIMIT_SOCKET": socket or "", "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(argv, env={**env, **options.pop("env", {})}, text=True, capture_output=True, timeout=30,
                          stdin=subprocess.DEVNULL, **options)


def check_config(text, folder):
    """Runs --check-config on it, with the group and the password file that it names."""
    for name in ("redis-password", "sentinel-password"):
        (folder / name).write_text("secret\n")
        (folder / name).chmod(0o600)
    text = text.replace("/run/secrets/redis/password", str(folder / "redis-password"))
    if "tls:" in text:
        make_certificates(folder)
        text = text.replace("/etc/ratelimitd/redis-ca.crt", str(folder / "redis-ca.crt"))
    text = re.sub(r"(?<=group: )ratelimit\b", grp.getgrgid(os.getgid()).gr_name, text)
    path = folder / "ratelimitd.yaml"
    path.write_text(text)
    return run([program("ratelimitd"), "--check-config", "-c", str(path)], env={"CREDENTIALS_DIRECTORY": str(folder)})


def make_certificates(folder, address="10.0.0.7"):
    """By the commands of the page."""
    done = run(["sh", "-ec", commands_of("certificates").replace("10.0.0.7", address)], cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_snippet_is_of_a_kind_that_is_tested():
    assert [named(block) for block in BLOCKS if block.language not in LANGUAGES and not is_web(block)] == []
    plain = [block.page for block in BLOCKS if block.language == "" and block.mark != "transcript"]
    assert {page: plain.count(page) for page in plain} == PLAIN


# ---- configurations and calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", configurations(), ids=named)
def test_a_configuration_is_correct(block, tmp_path):
    done = check_config(block.text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", sorted({block.page for block in of("console")}))
def test_the_calls_print_the_output_of_the_page(page, ratelimitd):
    """On a stopped clock. tests/documents.py --write writes the present output into the page."""
    daemon, configuration = None, None
    for block in of("console", page):
        if block.configuration is not configuration:
            configuration = block.configuration
            daemon = ratelimitd(configuration, arguments=["--test-clock"])
        assert documents.printed(block, daemon.socket, build_dir() / "bin") == block.text


@pytest.mark.parametrize("block", [block for block in BLOCKS if re.fullmatch(r"file: [\w-]+\.test\.yaml", block.mark)], ids=named)
def test_the_tests_of_limits_pass(block, tmp_path):
    (tmp_path / "ratelimitd.yaml").write_text(block.configuration)
    (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text)
    done = run([program("ratelimitctl"), "test", block.mark.removeprefix("file: ")], cwd=tmp_path)
    assert done.returncode == 0 and re.fullmatch(r"\d tests, 0 failed\n", done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("block", [block for block in of("sh") if block.mark not in ("install", "certificates")], ids=named)
def test_a_script_runs(block, ratelimitd, tmp_path):
    if block.text.startswith("kubectl "):
        pytest.skip("needs a cluster; see test_the_command_for_a_pod_uses_the_names_of_the_manifest")
    configuration = block.configuration or configurations()[0].text
    (tmp_path / "ratelimitd.yaml").write_text(configuration)
    daemon = ratelimitd(configuration)
    done = run(["sh", "-ec", block.text], daemon.socket, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_second_cron_job_does_not_run_while_the_first_does(ratelimitd):
    script = next(block for block in of("sh", "recipes.md") if "acquire cron" in block.text)
    daemon = ratelimitd(script.configuration)
    with daemon.client() as client:
        assert client.call("acquire", "cron", "nightly-backup")["allowed"]
        done = run(["sh", "-c", script.text], daemon.socket)
    assert done.returncode == 1 and "the backup runs" not in done.stdout


def test_what_the_model_did_not_use_comes_back(ratelimitd):
    script = next(block for block in of("sh", "recipes.md") if "reserve" in block.text)
    daemon = ratelimitd(script.configuration, arguments=["--test-clock"])  # the bucket does not refill in between
    done = run(["sh", "-ec", script.text], daemon.socket)
    assert done.stdout.startswith("refunded 625 "), done.stdout + done.stderr


def test_a_daemon_goes_on_with_what_increx_has_left(redis, ratelimitd, connect):
    """By INCREX itself where this Redis has it; what it leaves is a plain integer with an expiry."""
    client = connect(ratelimitd("defaults: {deadline: 5s}\n" + code_of("increx.md", "yaml").partition("\n")[2], redis=redis))
    eventually(lambda: client.check("rate", "probe", 0)["source"] == "redis", "Redis is there")
    line = of("", "increx.md")[0].text.split("(1)")[0].split()
    with redis.client() as direct:
        for _ in range(3):
            try:
                direct.execute_command(*line)
            except redis_py.ResponseError:  # an older server
                if direct.incrby(line[1], 1) == 1:
                    direct.expire(line[1], int(line[5]))
        assert client.check("rate", "alice")["remaining"] == 1  # the fourth of five
        until = direct.pttl(line[1])
        assert 0 < until <= 60000
        assert client.check("rate", "alice")["remaining"] == 0
        denied = client.check("rate", "alice")
        assert not denied["allowed"] and 0 < denied["retry_after_ms"] <= 60000
        assert direct.get(line[1]) == b"5"  # denied checks are not counted, and the bound of INCREX holds


# ---- programs in other languages ----------------------------------------------------------------------------------


@pytest.fixture
def logins(ratelimitd):
    return ratelimitd(of("c", "clients.md")[0].configuration, arguments=["--test-clock"])


@pytest.fixture
def shaping(ratelimitd):
    """A daemon whose policy delays requests that another policy would deny."""
    return ratelimitd("policies: {login: {algorithm: leaky_bucket, limit: 1, window: 1d, burst: 1, max_wait: 10d}}")


@pytest.mark.release
def test_the_c_example_compiles_against_the_installed_library_and_works(logins, shaping, tmp_path):
    if "asan" in build_dir().name:
        pytest.skip("a sanitized library needs a sanitized program")
    project, checkout = tmp_path / "project", tmp_path / "ratelimitd"
    (checkout / "build").mkdir(parents=True)
    (checkout / "build" / "release").symlink_to(build_dir().resolve())
    project.mkdir()
    (project / "program.c").write_text(code_of("clients.md", "c"))
    [install] = [block.text for block in of("sh", "clients.md") if block.mark == "install"]
    done = run(["sh", "-ec", install.replace("cc ", "cc -Wall -Werror ")], cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    argv = ["env", f"LD_LIBRARY_PATH={project}/ratelimit/lib", str(project / "program")]
    done = run(argv, logins.socket)
    assert done.stdout == "allowed, 4 left\n", done.stderr
    asked = [run(argv, shaping.socket).stdout for _ in range(2)]
    assert asked[0] == "allowed, 0 left\n" and re.fullmatch(r"allowed, go ahead in \d+ ms\n", asked[1])


def test_the_python_client_asks(logins, shaping):
    argv = [sys.executable, "-c", code_of("clients.md", "python")]
    outputs = [run(argv, logins.socket).stdout for _ in range(6)]
    assert outputs == ["allowed\n"] * 5 + ["denied, try again in 10000 ms\n"]
    asked = [run(argv, shaping.socket).stdout for _ in range(2)]
    assert asked[0] == "allowed\n" and re.fullmatch(r"allowed, go ahead in \d+ ms\n", asked[1])


def test_the_neovim_example_asks(logins, tmp_path):
    if not shutil.which("nvim"):
        pytest.skip("no nvim here")
    script = tmp_path / "check.lua"
    script.write_text(code_of("clients.md", "lua"))
    done = run(["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", f"luafile {script}", "-c", "qa!"], logins.socket)
    assert "allowed" in done.stdout + done.stderr


# ---- HTTP -----------------------------------------------------------------------------------------------------------


def http_answer(decision):
    namespace = {}
    exec(code_of("http.md", "python"), namespace)  # the page's own code
    return namespace["http_answer"](decision)


def decision(**fields):
    return {"allowed": True, "limit": 5, "remaining": 4, "retry_after_ms": 0, "reset_after_ms": 20000, "source": "redis", **fields}


DESCRIBED = {"of": "api", "quota": 5, "window_ms": 10000, "of_reset_ms": 9001}
DENIED = {**DESCRIBED, "allowed": False, "remaining": 0, "retry_after_ms": 2400}
POLICY, STATE, DENIAL = '"api";q=5;w=10', '"api";r=4;t=10', '"api";r=0;t=3'
JSON = {"Content-Type": "application/problem+json"}
TENANT = decision(of="tenant/day", quota=2, limit=6, window_ms=1500, of_reset_ms=0)


@pytest.mark.parametrize("given, status, headers", [
    (decision(**DESCRIBED), None, {"RateLimit-Policy": POLICY, "RateLimit": STATE}),
    (decision(), None, {}),
    (decision(source="allow"), None, {}),
    (decision(source="unlimited", remaining=2**53 - 1), None, {}),
    (decision(**DESCRIBED, shadow_denied=True), None, {}),
    (decision(**DENIED), 429, {"RateLimit-Policy": POLICY, "RateLimit": DENIAL, "Retry-After": "3", **JSON}),
    (decision(**DENIED, source="deny_cache"), 429, {"RateLimit-Policy": POLICY, "RateLimit": DENIAL, "Retry-After": "3", **JSON}),
    (decision(**{**DENIED, "retry_after_ms": 0}), 429,
     {"RateLimit-Policy": POLICY, "RateLimit": '"api";r=0;t=0', "Retry-After": "1", **JSON}),
    (decision(**{**DENIED, "retry_after_ms": -1}), 429, {"RateLimit-Policy": POLICY, "RateLimit": '"api";r=0', **JSON}),
    (decision(**{**DENIED, "window_ms": 0}), 429,
     {"RateLimit-Policy": '"api";q=5;qu="concurrent-requests"', "RateLimit": '"api";r=0', **JSON}),
    (decision(allowed=False, retry_after_ms=1000, source="local"), 429, {"Retry-After": "1", **JSON}),
    (decision(allowed=False, retry_after_ms=1000, source="deny"), 503, {"Retry-After": "1", **JSON}),
    (decision(**DESCRIBED, members=[decision(**DESCRIBED), decision(source="unlimited"), TENANT]), None,
     {"RateLimit-Policy": f'{POLICY}, "tenant/day";q=2;w=2;ratelimitd-burst=6', "RateLimit": f'{STATE}, "tenant/day";r=4;t=0'}),
], ids=["allowed", "not described", "failure allow", "unlimited", "shadow", "denied", "denied from the cache", "denied now", "never",
        "concurrency", "failure local", "failure deny", "several policies"])
def test_the_code_maps_a_decision_as_the_table_says(given, status, headers):
    got = http_answer(given)
    assert got[:2] == (status, headers)


def test_the_denied_answer_of_the_page_equals_that_of_the_code():
    head, _, body = code_of("http.md", "http").partition("\n\n")
    status_line, *lines = head.splitlines()
    shown = dict(line.split(": ", 1) for line in lines)
    denied = {**DENIED, "of": "search/second", "quota": 10, "window_ms": 1000, "bound_by": "search/second"}
    status, headers, made = http_answer(decision(**denied))
    assert status_line.split()[1] == str(status) and body.strip() == made
    assert shown == headers


def test_the_line_that_the_readme_shows_for_a_language_is_in_that_language_s_readme():
    """The tests of that language run it there."""
    rows = re.findall(r"^\| \[[^]]+\]\(([\w/.#]+)\) \| `([^`]+)` \|", (ROOT / "README.md").read_text(), re.M)
    assert len(rows) == 7
    for page, line in rows:
        assert line in (ROOT / page.partition("#")[0]).read_text(), page


# ---- Redis ----------------------------------------------------------------------------------------------------------


def commands_of(mark):
    return next(block.text for block in BLOCKS if block.mark == mark)


@pytest.fixture
def redis_cli(redis, tmp_path):
    """A folder with a redis-cli that reaches the test's server. If none is installed, a short script replaces it."""
    path = tmp_path / "bin" / "redis-cli"
    path.parent.mkdir()
    real = shutil.which("redis-cli") or shutil.which("valkey-cli")
    stand_in = ("import sys, redis\n"
                f"print(redis.Redis(unix_socket_path={redis.socket!r}).execute_command(*sys.argv[1:]))\n")
    path.write_text(f"#!/bin/sh\nexec {real} -e -s {redis.socket} \"$@\"\n" if real else f"#!{sys.executable}\n{stand_in}")
    path.chmod(0o755)
    return path.parent


def test_the_rights_can_be_pasted_into_a_shell_and_are_enough(redis, redis_cli, ratelimitd, connect, tmp_path):
    for mark in ("acl", "acl for compat"):
        done = subprocess.run(["sh", "-ec", commands_of(mark)], capture_output=True, text=True, cwd=tmp_path,
                              env={**os.environ, "PATH": f"{redis_cli}:{os.environ['PATH']}"})
        assert done.returncode == 0 and done.stdout.strip() in ("OK", "b'OK'", "True"), done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]  # the > of the password must not redirect
    with redis.client() as client:
        client.execute_command("ACL", "SETUSER", "ratelimit", "~other:*")
    (tmp_path / "password").write_text("PASSWORD\n")
    policies = {**algorithms(), "counted": "algorithm: sliding_log, count_denied: true",
                "millis": "compat: window-start-millis", "rlaas": "compat: rlaas-fixed",
                "hit": "compat: first-hit", "endpoint": "compat: endpoint-window, key_prefix: other"}
    config = "defaults: {deadline: 5s}\npolicies:\n" + "".join(
        f"  {name}: {{{kind}, limit: 2, window: {'year' if name == 'calendar_window' else '60s'}}}\n" for name, kind in policies.items())
    config += "  slide: {compat: rlaas-sliding, key_prefix: 'rlaas:slide', limit: 2, window: 60s}\n"
    config += "  endlog: {compat: endpoint-log, key_prefix: 'other:log', limit: 2, window: 60s}\n"
    daemon = ratelimitd(config, redis=redis,
                        redis_options={"username": "ratelimit", "password_file": tmp_path / "password"})
    client = connect(daemon)
    for policy in [*policies, "slide", "endlog"]:
        for _ in range(3):
            decided = client.check(policy, "carol")
            assert decided["source"] == "redis", (policy, decided)
        assert client.call("peek", policy, "carol")["source"] == "redis"
        client.call("reset", policy, "carol")
        if "compat" in policies.get(policy, "compat"):
            continue
        made = client.call("reserve", policy, "carol", 2)
        for actual in (1, 1):
            assert client.call("settle", made["reservation"], actual)["source"] == "redis"


def test_the_rights_on_sentinels_can_be_pasted_into_a_shell_and_are_enough(redis_kind, ratelimitd, connect, tmp_path):
    cli = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if cli is None:
        pytest.skip("no redis-cli here")
    watched = Watched(redis_kind)
    try:
        for sentinel in watched.wait().sentinels:
            command = commands_of("acl of sentinels").replace("redis-cli -p 26379", f"{cli} -e -p {sentinel.port}")
            done = subprocess.run(["sh", "-ec", command], capture_output=True, text=True, cwd=tmp_path)
            assert (done.returncode, done.stdout.strip()) == (0, "OK"), done.stdout + done.stderr
        admins = [sentinel.client(single_connection_client=True) for sentinel in watched.sentinels]
        for admin in admins:
            admin.execute_command("ACL", "SETUSER", "default", "off")
        (tmp_path / "password").write_text("PASSWORD\n")
        sentinels = f"{{username: ratelimit, password_file: {tmp_path}/password}}"
        daemon = ratelimitd("defaults: {deadline: 5s}\npolicies: {api: {algorithm: token_bucket, limit: 100, window: 1m}}\n", redis=watched.servers[0],
                            redis_options={"topology": "sentinel", "addresses": f"[{watched.addresses}]", "master_name": NAME, "sentinel": sentinels})
        client = connect(daemon)
        eventually(lambda: client.check("api", "k")["source"] == "redis", "Redis answers")
        with watched.sentinels[0].client(username="ratelimit", password="PASSWORD") as direct:
            with pytest.raises(redis_py.RedisError, match="(?i)permission"):
                direct.execute_command("SENTINEL", "FAILOVER", NAME)
        eventually(lambda: any(one["sub"] == "1" and one["user"] == "ratelimit" for admin in admins for one in admin.client_list()), "a subscription")
    finally:
        watched.close()


def test_redis_takes_the_line_about_eviction(start_redis):
    line = next(block.text for block in of("", "redis.md") if block.text.startswith("maxmemory"))
    name, value = line.split()
    server = start_redis(arguments=[f"--{name}", value])
    with server.client() as client:
        assert client.config_get(name) == {name: value}


def test_the_certificates_of_the_page_suffice_for_redis_and_the_daemon(start_redis, ratelimitd, connect, tmp_path):
    make_certificates(tmp_path, address="127.0.0.1")

    def start(port):
        lines = commands_of("tls of redis").replace("6380", str(port)).splitlines()
        settings = [(name, value if value.isdigit() else str(tmp_path / value)) for name, value in map(str.split, lines)]
        start_redis(arguments=[word for name, value in settings for word in (f"--{name}", value)])
        return port

    port = on_free_port(start)
    section = next(block.text for block in configurations() if "tls:" in block.text and block.page == "redis.md")
    tls = "tls:" + section.partition("tls:")[2].partition("policies:")[0].replace("/etc/ratelimitd", str(tmp_path))
    config = (f'store:\n  type: redis\n  redis:\n    addresses: ["127.0.0.1:{port}"]\n    {tls}defaults: {{deadline: 5s}}\n'
              "policies: {api: {algorithm: token_bucket, limit: 100, window: 1m}}\n")
    client = connect(ratelimitd(config, env={"CREDENTIALS_DIRECTORY": str(tmp_path)}))
    eventually(lambda: client.check("api", "k")["source"] == "redis", "Redis answers through TLS")


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="no redis-cli here")
def test_the_check_of_the_way_in_the_page_works(start_redis, tmp_path):
    make_certificates(tmp_path, address="127.0.0.1")

    def start(port):
        start_redis(arguments=["--tls-port", str(port), "--tls-cert-file", str(tmp_path / "redis.crt"), "--tls-key-file",
                               str(tmp_path / "redis.key"), "--tls-ca-cert-file", str(tmp_path / "redis-ca.crt")])
        return port

    port = on_free_port(start)
    command = re.search(r"`(redis-cli -h .* ping)`", DOCS["redis.md"])[1]
    argv = command.replace("redis.example", "127.0.0.1").replace("6380", str(port)).split()
    done = run(argv, cwd=tmp_path)
    assert done.stdout == "PONG\n", done.stderr


# ---- outages ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def outage(redis, redis_cli, ratelimitd, connect):
    """The configuration of the page on the test's server, a shell with the page's commands, and what a client sees."""
    of_breaker = next(block.text for block in of("yaml", "redis.md") if "breaker:" in block.text)
    policies = code_of("redis.md", "yaml").partition("policies:")[2]
    assert "breaker: {errors: 5, late: 5, probe_every: 250ms}" in of_breaker
    daemon = ratelimitd(f"policies:{policies}", redis=redis, redis_options={"breaker": "{errors: 5, late: 5, probe_every: 250ms}"})
    client = connect(daemon)
    env = {**os.environ, "PATH": f"{redis_cli}:{build_dir() / 'bin'}:{os.environ['PATH']}", "RATELIMIT_SOCKET": daemon.socket}

    def begin(*marks):
        commands = [commands_of(mark) if mark else "cat\n" for mark in marks]  # cat: until the test closes its input
        return subprocess.Popen(["sh", "-ec", "".join(commands)], env=env, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def sees(*reasons):
        seen = set()
        for reason in reasons:
            eventually(lambda: seen.add((answer := client.check("api", "alice")).get("reason", answer["source"])) or reason in seen,
                       f"an answer by {reason}")

    sees("redis")
    return begin, sees


def ended(process):
    if process.stdin and not process.stdin.closed:
        process.stdin.close()
    output = process.stdout.read()
    assert process.wait(20) == 0, output


def interrupted(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_the_loop_of_the_page_prints_where_answers_come_from(outage):
    begin, _ = outage
    loop = begin("ask")
    try:
        assert re.search(r"  \[(redis|local: \w+)\]$", loop.stdout.readline().rstrip())
    finally:
        interrupted(loop)


def test_a_redis_that_is_slowed_as_the_page_says(outage):
    begin, sees = outage
    slow = begin("slow")
    try:
        sees("deadline", "breaker")
    finally:
        interrupted(slow)
    sees("redis")


def test_a_redis_that_is_filled_as_the_page_says(outage):
    begin, sees = outage
    ended(begin("fill"))
    sees("store_error", "breaker")
    ended(begin("empty"))
    sees("redis")


def test_a_redis_that_is_stopped_as_the_page_says(outage):
    begin, sees = outage
    shell = begin("pid", "stop", None, "continue")
    sees("deadline", "down")
    ended(shell)
    sees("redis")


def test_a_redis_that_is_killed_as_the_page_says(outage, redis):
    begin, sees = outage
    ended(begin("pid", "kill"))
    sees("down")
    redis.wait()
    redis.start()
    sees("redis")


def test_two_daemons_share_a_local_limit_as_the_page_says(redis, redis_cli, ratelimitd, connect):
    policies = f"policies:{code_of('redis.md', 'yaml').partition('policies:')[2]}"
    one, other = (ratelimitd(policies, redis=redis) for _ in range(2))
    for daemon in (one, other):
        client = connect(daemon)
        eventually(lambda client=client: client.call("stats")["live_daemons"] == 2, "two daemons are seen", patience_s=20)
    answers = (client.check("api", "alice") for _ in range(1000))
    limit = eventually(lambda: next((one["limit"] for one in answers if one["source"] == "redis"), None), "an answer of Redis")

    stats, stop, check = commands_of("share").replace("/run/one.sock", one.socket).splitlines()
    path = {"PATH": f"{redis_cli}:{build_dir() / 'bin'}:{os.environ['PATH']}"}
    assert "shared by 2 daemons" in run(["sh", "-c", stats], env=path).stdout
    run(["sh", "-c", stop], env=path)
    eventually(lambda: f"/{math.ceil(limit / 2)}," in run(["sh", "-c", check], env=path).stdout, "its limit is half")


# ---- systemd --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", of("systemd", "operate.md")[0].text.splitlines())
def test_a_line_about_the_service_names_installed_files(line):
    words = shlex.split(line, comments=True)
    units = {path.name for path in (ROOT / "systemd").iterdir()}
    if words[0] in ("systemctl", "journalctl"):
        verbs = {"daemon-reload", "enable", "reload", "status"}
        assert words[0] == "journalctl" or words[1] in verbs
        for word in words[1:]:
            assert word in verbs or word.startswith("-") or word in units or f"{word}.service" in units, word
    elif words[0] == "usermod":
        assert f"g {words[2]} -" in (ROOT / "systemd" / "ratelimitd.sysusers").read_text()
    else:
        assert words == ["systemd-sysusers"]


def test_systemd_accepts_the_drop_in(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    shutil.copytree(ROOT / "systemd", tmp_path, dirs_exist_ok=True)
    drop_ins = tmp_path / "ratelimitd.service.d"
    drop_ins.mkdir()
    service = (ROOT / "systemd" / "ratelimitd.service").read_text()
    (tmp_path / "ratelimitd.service").write_text(service.replace("/usr/bin/ratelimitd", program("ratelimitd")))
    (drop_ins / "redis.conf").write_text(code_of("redis.md", "ini"))
    done = run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "ratelimitd.service")])
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_drop_in_of_the_page_equals_the_installed_one():
    installed = (ROOT / "systemd" / "redis.conf").read_text()
    for line in "".join(block.text for block in of("ini", "redis.md")).splitlines():
        assert re.search(rf"^#?{re.escape(line)}$", installed, re.M), line


# ---- Kubernetes -----------------------------------------------------------------------------------------------------


def test_the_page_contains_the_shipped_files():
    shipped = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "deploy/kubernetes").rglob("*.yaml")}
    shown = {block.mark.removeprefix("file: "): block.text for block in of("yaml", "kubernetes.md") if block.mark.startswith("file: ")}
    assert shown == shipped


def test_the_configuration_in_the_manifest_is_correct(tmp_path):
    text = textwrap.dedent(manifests()[0].text.split("ratelimitd.yaml: |\n")[1])
    done = check_config(text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_sidecar_starts_the_daemon_as_it_can_be_started(ratelimitd):
    options = run([program("ratelimitd"), "--help"]).stdout
    arguments = json.loads(re.search(r"args: (\[.*\])", sidecar())[1])
    assert all(re.search(rf"\s{re.escape(word)}\b", options) for word in arguments if word.startswith("-"))
    mounts = dict(re.findall(r"name: ([\w-]+), mountPath: ([\w/]+)", sidecar()))
    assert set(mounts) == set(re.findall(r"^        - \{name: ([\w-]+), (?:emptyDir|configMap):", sidecar(), re.M))
    assert mounts["ratelimitd-config"] == os.path.dirname(arguments[arguments.index("-c") + 1])
    password = re.search(r"password_file: ([^,}\s]+)", manifests()[0].text)[1]
    assert f"mountPath: {os.path.dirname(password)}, readOnly: true" in DOCS["kubernetes.md"]

    daemon = ratelimitd("policies: {}")
    probes = re.findall(r"exec: \{command: (\[.*?\])\}", sidecar())
    assert len(probes) == 3 and all(run(json.loads(probe), daemon.socket).returncode == 0 for probe in probes)


def sidecar():
    return (ROOT / "deploy/kubernetes/sidecar/ratelimitd.yaml").read_text()


def test_a_plain_empty_dir_is_refused_and_one_in_memory_as_in_the_manifest_is_accepted(ratelimitd):
    """Kubernetes makes the first with mode 0777, the second as a tmpfs, which is 1777."""
    volume = "emptyDir: {medium: Memory}"
    assert volume.removesuffix("}") in sidecar()
    plain = ratelimitd("policies: {}", start=False, expected_exit=4)
    plain.directory.chmod(0o777)
    plain.start(wait=False)
    assert plain.wait() == 4 and f"`{volume}`" in plain.text()
    in_memory = ratelimitd("policies: {}", start=False)
    in_memory.directory.chmod(0o1777)
    in_memory.start()


def test_services_with_the_same_policies_count_apart_under_the_prefix_of_the_manifest(redis, ratelimitd, connect):
    prefix = re.search(r"key_prefix: (\w+)", manifests()[0].text)[1]
    policies = "defaults: {deadline: 5s}\npolicies: {api: {algorithm: token_bucket, limit: 100, window: 1d}}"
    services = [ratelimitd(policies, redis=redis, redis_options={"key_prefix": name}) for name in (prefix, prefix, "other")]
    assert [connect(service).check("api", "alice")["remaining"] for service in services] == [99, 98, 99]


def test_the_command_for_a_pod_uses_the_names_of_the_manifest():
    words = shlex.split(code_of("kubernetes.md", "sh"))
    application = (ROOT / "deploy/kubernetes/example/application.yaml").read_text()
    assert words[:2] == ["kubectl", "exec"] and f"\n  name: {words[2].removeprefix('deploy/')}\n" in application
    assert f"- name: {words[words.index('-c') + 1]}\n" in sidecar() and words[words.index("--") + 1:] == ["ratelimitctl", "reload"]


# ---- the manual page --------------------------------------------------------------------------------------------------


def test_the_examples_of_the_manual_page_are_correct(tmp_path):
    section = re.search(r"^\.Sh EXAMPLES$.*?(?=^\.Sh )", (ROOT / "src/man/ratelimitd.yaml.5").read_text(), re.M | re.S).group()
    examples = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", section, re.M | re.S)
    assert len(examples) == 2
    for example in examples:
        done = check_config(example, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


# ---- names in the text ------------------------------------------------------------------------------------------------


def every_option():
    helps = [run([program(name), "--help"]).stdout for name in ("ratelimitd", "ratelimitctl")]
    helps += [(ROOT / "tests" / "bench" / "bench.py").read_text(), run([str(ROOT / "dev"), "--help"]).stdout]
    others = {"--install", "--component", "--prefix", "--preset", "--build", "--now", "--cflags", "--libs", "--scan", "--tls", "--cacert", "--cert", "--key", "--cluster", "--cluster-from", "--cluster-copy", "--latency", "--read-only", "--tmpfs", "--allow-downgrades", "--image"}  # of cmake, systemctl, pkg-config, redis-cli, docker, apt, umoci
    return others | set(re.findall(r"--[a-z][a-z-]+", " ".join(helps)))


@pytest.mark.parametrize("page", DOCS)
def test_every_option_exists(page):
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"<!--|-->", "", DOCS[page]))) - every_option() == set()


@pytest.mark.parametrize("page", DOCS)
def test_every_command_of_dev_exists(page):
    usage = run([str(ROOT / "dev"), "--help"]).stdout
    sections = re.search(r"^SECTIONS = \((.*?)\)", (ROOT / "tests" / "bench" / "bench.py").read_text(), re.M).group(1)
    for command in re.findall(r"\./dev ([a-z -]+)", re.sub(r"--\w+ ([\d.]+|\".*?\")(?=[ `])", "", DOCS[page])):
        words = command.split()
        assert re.search(rf"^  {words[0]}\b", usage, re.M), command
        if words[0] == "bench":
            assert all(f'"{word}"' in sections or re.search(rf"^  bench {word}\b", usage, re.M) for word in words[1:]), command
        if words[0] == "soak":
            assert all(re.search(rf"^  soak {word}\b", usage, re.M) for word in words[1:]), command


@pytest.mark.parametrize("page", DOCS)
def test_every_setting_exists(page):
    manual = (ROOT / "src" / "man" / "ratelimitd.yaml.5").read_text()
    known = set(re.findall(r"^\.It Cm ([a-z_.]+)", manual, re.M))
    mentioned = set(re.findall(r"`((?:listen|drain|caps|inline|store|defaults|log|keys)\.[a-z_.]+)`", DOCS[page]))
    assert {name for name in mentioned if not any(setting == name or setting.startswith(name + ".") for setting in known)} == set()


def test_every_counter_to_watch_exists():
    counters = "".join(path.read_text() for path in (ROOT / "src").rglob("*.h"))
    rows = re.search(r"^\| watch \|.*?\n\n", DOCS["operate.md"], re.M | re.S)[0].splitlines()[2:]
    counted = [name for row in rows if row for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert counted and [name for name in counted if not re.search(rf"(?:COUNTER|GAUGE)\({name}\b", counters)] == []


def test_every_log_line_is_one_that_the_daemon_writes():
    """The text between the words in capitals and the numbers occurs in the source."""
    source = "".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.c")))
    source = re.sub(r'"\s*(?:PRI[a-z]\d+\s*)?"', "", source)  # literals in several parts
    rows = re.search(r"^\| line \|.*?\n\n", DOCS["operate.md"], re.M | re.S)[0].splitlines()[2:]
    lines = [re.match(r"\| `(.*?)`", row)[1] for row in rows if row]
    missing = []
    for line in lines:
        pieces = re.split(r"\b(?:[A-Z]{2,}|N|\d+|s)\b|[(),;]| allows", line.replace("UNKNOWN_POLICY", "\0"))
        pieces = [piece.replace("\0", "UNKNOWN_POLICY").strip(" :;,") for piece in pieces]
        missing += [(line, piece) for piece in pieces if piece and piece not in source]
    assert lines and missing == []


def test_every_exit_status_is_that_of_the_manual_page():
    manual = (ROOT / "src" / "man" / "ratelimitd.8").read_text()
    section = manual.split(".Sh EXIT STATUS")[1]
    rows = re.search(r"^\| exit status.*?\n\n", DOCS["operate.md"], re.M | re.S)[0].splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows if row] == re.findall(r"^\.It (\d)", section, re.M)
