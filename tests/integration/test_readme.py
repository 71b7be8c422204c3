"""test_readme.py: what README.md shows works as it stands there."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from harness import ROOT, build_dir, program

pytestmark = pytest.mark.smoke
README = (ROOT / "README.md").read_text()


def blocks(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    assert found, f"README.md shows no {language}"
    return found


def configurations():
    return [block for block in blocks("yaml") if re.match(r"(policies|store):", block)]


@pytest.fixture
def daemon(ratelimitd):
    return ratelimitd(configurations()[0])


def run(argv, daemon, **options):
    env = {**os.environ, "RATELIMIT_SOCKET": daemon.socket, "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(argv, env=env, text=True, capture_output=True, timeout=30, stdin=subprocess.DEVNULL, **options)


@pytest.mark.parametrize("number", range(2))
def test_each_configuration_is_correct(number, tmp_path):
    path = tmp_path / "ratelimitd.yaml"
    path.write_text(configurations()[number])
    done = subprocess.run([program("ratelimitd"), "--check-config", "-c", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_shell_example_lets_five_in_and_then_none(daemon):
    script = blocks("sh")[0]
    outputs = [run(["sh", "-c", f"USER=carol\n{script}"], daemon).stdout.splitlines()[-1] for _ in range(11)]
    assert outputs[0] == "come in"
    assert "not now" in outputs  # at most two windows meet these eleven checks


@pytest.mark.release
def test_the_c_example_compiles_against_what_is_installed_and_asks(daemon, tmp_path):
    if "asan" in build_dir().name:
        pytest.skip("a sanitized library needs a sanitized program")
    compiler = shutil.which("gcc") or shutil.which("cc")
    subprocess.run(["cmake", "--install", str(build_dir()), "--prefix", str(tmp_path / "usr")], check=True, capture_output=True)
    source = tmp_path / "program.c"
    source.write_text(blocks("c")[0])
    pkgconfig = ":".join(str(path.parent) for path in (tmp_path / "usr").rglob("ratelimit.pc"))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ratelimit"], check=True, capture_output=True, text=True,
                           env={**os.environ, "PKG_CONFIG_PATH": pkgconfig}).stdout.split()
    subprocess.run([compiler, "-Wall", "-Werror", str(source), "-o", str(tmp_path / "program"), *flags], check=True)
    library = next((tmp_path / "usr").rglob("libratelimit.so")).parent
    done = run(["env", f"LD_LIBRARY_PATH={library}", str(tmp_path / "program")], daemon)
    assert done.stdout == "allowed, 4 left\n", done.stderr


def test_the_python_example_asks(daemon):
    done = run([sys.executable, "-c", blocks("python")[0]], daemon)
    assert done.stdout == "allowed\n", done.stderr


def test_the_neovim_example_asks(daemon, tmp_path):
    if not shutil.which("nvim"):
        pytest.skip("no nvim here")
    script = tmp_path / "check.lua"
    script.write_text(blocks("lua")[0])
    done = run(["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", f"luafile {script}", "-c", "qa!"], daemon)
    assert "allowed" in done.stdout + done.stderr


def test_the_rights_that_are_told_are_enough(redis, ratelimitd, connect, tmp_path):
    told = re.search(r"^ACL SETUSER ratelimit (.*?)^```", README, re.M | re.S).group(1).split()
    more = re.search(r"and for `compat` policies.*?`(.*?)`", README, re.S).group(1).split()
    with redis.client() as client:
        rights = [">secret" if word == ">PASSWORD" else word for word in told]
        foreign = [f"~{prefix}:*" for prefix in ("ratelimiter", "rlaas", "rate_limit", "other")]
        client.execute_command("ACL", "SETUSER", "ratelimit", *rights, *foreign, *more)
    (tmp_path / "password").write_text("secret\n")
    policies = {"fixed": "algorithm: fixed_window", "first": "algorithm: fixed_window, start: first_hit",
                "log": "algorithm: sliding_log", "counted": "algorithm: sliding_log, count_denied: true",
                "bucket": "algorithm: token_bucket", "counter": "algorithm: sliding_counter", "leaky": "algorithm: leaky_bucket",
                "millis": "compat: window-start-millis", "rlaas": "compat: rlaas-fixed",
                "hit": "compat: first-hit", "endpoint": "compat: endpoint-window, key_prefix: other"}
    config = "policies:\n" + "".join(f"  {name}: {{{kind}, limit: 2, window: 60s}}\n" for name, kind in policies.items())
    config += "  slide: {compat: rlaas-sliding, key_prefix: 'rlaas:slide', limit: 2, window: 60s}\n"
    config += "  endlog: {compat: endpoint-log, key_prefix: 'other:log', limit: 2, window: 60s}\n"
    config += "  calendar: {algorithm: calendar_window, limit: 2, window: year, timezone: Asia/Tokyo}\n"
    daemon = ratelimitd(config, redis=redis,
                        redis_options={"username": "ratelimit", "password_file": tmp_path / "password"})
    client = connect(daemon)
    for policy in [*policies, "slide", "endlog", "calendar"]:
        for _ in range(3):
            decision = client.check(policy, "carol")
            assert decision["source"] == "redis", (policy, decision)
        assert client.call("peek", policy, "carol")["source"] == "redis"
        client.call("reset", policy, "carol")
        if "compat" in policies.get(policy, "compat"):
            continue
        made = client.call("reserve", policy, "carol", 2)
        for actual in (1, 1):
            assert client.call("settle", made["reservation"], actual)["source"] == "redis"


@pytest.mark.release
def test_the_transcript_is_what_dev_run_shows():
    """Word for word but for what differs from run to run: numbers, paths and times."""
    shown = re.search(r"<!-- transcript -->\n```\n(.*?)```", README, re.S).group(1)
    if "asan" in build_dir().name:
        pytest.skip("./dev run builds the release")
    done = subprocess.run([str(ROOT / "dev"), "run", "--once"], capture_output=True, text=True, timeout=50,
                          stdin=subprocess.DEVNULL, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr

    def shape(text):
        lines = [re.sub(r"\d+", "N", re.sub(r"/tmp/\S+", "PATH", line)) for line in text.splitlines()]
        return [line for line in lines if line.startswith("$") or "llowed" in line or "enied" in line]

    assert shape(shown) == shape(done.stdout)
