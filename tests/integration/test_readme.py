"""test_readme.py: what README.md shows works as it stands there."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from harness import ROOT, build_dir, program

sys.path.insert(0, str(ROOT / "tests"))
import transcript  # noqa: E402

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


@pytest.fixture
def shaping(ratelimitd):
    """A daemon whose policy makes wait where another would deny."""
    return ratelimitd("policies: {login: {algorithm: leaky_bucket, limit: 1, window: 1d, burst: 1, max_wait: 10d}}")


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
    outputs = [run(["sh", "-c", script], daemon).stdout.splitlines()[-1] for _ in range(11)]
    assert outputs[0] == "come in"
    assert "not now" in outputs  # at most two windows meet these eleven checks


def test_the_shell_example_tells_a_denial_from_no_answer(daemon):
    daemon.stop()
    done = run(["sh", "-c", blocks("sh")[0]], daemon)
    assert done.stdout.startswith("no answer"), done.stdout


def test_the_lines_of_install_work_with_what_is_installed(ratelimitd, tmp_path):
    """As they stand in the README, but that systemd is not here: its commands are held against the units installed."""
    section = re.search(r"^## Install\n(.*?)^## ", README, re.M | re.S).group(1)
    install = re.search(r"`(cmake --install \S+ --prefix /usr)`", section).group(1)
    done = subprocess.run(install.replace("build/release", shlex.quote(str(build_dir()))), shell=True, capture_output=True,
                          text=True, env={**os.environ, "DESTDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "usr/lib/sysusers.d/ratelimitd.conf").exists()

    daemon = ratelimitd((tmp_path / "etc/ratelimitd/ratelimitd.yaml").read_text())
    asked = 0
    for line in re.search(r"^Then:\n\n```\n(.*?)^```", section, re.M | re.S).group(1).splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "systemctl":
            units = [word for word in words if "." in word]
            assert all((tmp_path / "usr/lib/systemd/system" / unit).exists() for unit in units), line
        elif words[0] != "systemd-sysusers":
            env = {"RATELIMIT_SOCKET": daemon.socket, "PATH": f"{tmp_path / 'usr/bin'}:{os.environ['PATH']}"}
            done = subprocess.run(["sh", "-ec", line], env=env, capture_output=True, text=True)  # not even a USER
            assert done.returncode == 0 and done.stdout.startswith("allowed"), (line, done.stdout, done.stderr)
            asked += 1
    assert asked == 1


@pytest.mark.release
def test_the_c_example_compiles_against_what_is_installed_and_asks(daemon, shaping, tmp_path):
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
    asked = [run(["env", f"LD_LIBRARY_PATH={library}", str(tmp_path / "program")], shaping).stdout for _ in range(2)]
    assert asked[0] == "allowed, 0 left\n" and re.fullmatch(r"allowed, go ahead in \d+ ms\n", asked[1])


def test_the_python_example_asks(daemon, shaping):
    done = run([sys.executable, "-c", blocks("python")[0]], daemon)
    assert done.stdout == "allowed\n", done.stderr
    asked = [run([sys.executable, "-c", blocks("python")[0]], shaping).stdout for _ in range(2)]
    assert asked[0] == "allowed\n" and re.fullmatch(r"allowed, go ahead in \d+ ms\n", asked[1])


def test_the_neovim_example_asks(daemon, tmp_path):
    if not shutil.which("nvim"):
        pytest.skip("no nvim here")
    script = tmp_path / "check.lua"
    script.write_text(blocks("lua")[0])
    done = run(["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", f"luafile {script}", "-c", "qa!"], daemon)
    assert "allowed" in done.stdout + done.stderr


def commands_of(mark):
    return re.search(rf"^<!-- {mark} -->\n```\n(.*?)^```", README, re.M | re.S).group(1)


@pytest.fixture
def redis_cli(redis, tmp_path):
    """A folder with a redis-cli that reaches the test's server. Where none is installed, a few lines stand in for it."""
    path = tmp_path / "bin" / "redis-cli"
    path.parent.mkdir()
    real = shutil.which("redis-cli") or shutil.which("valkey-cli")
    stand_in = ("import sys, redis\n"
                f"print(redis.Redis(unix_socket_path={redis.socket!r}).execute_command(*sys.argv[1:]))\n")
    path.write_text(f"#!/bin/sh\nexec {real} -e -s {redis.socket} \"$@\"\n" if real else f"#!{sys.executable}\n{stand_in}")
    path.chmod(0o755)
    return path.parent


def test_the_rights_that_are_told_can_be_pasted_into_a_shell_and_are_enough(redis, redis_cli, ratelimitd, connect, tmp_path):
    for mark in ("acl", "acl for compat"):
        done = subprocess.run(["sh", "-ec", commands_of(mark)], capture_output=True, text=True, cwd=tmp_path,
                              env={**os.environ, "PATH": f"{redis_cli}:{os.environ['PATH']}"})
        assert done.returncode == 0 and done.stdout.strip() in ("OK", "b'OK'", "True"), done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]  # the > of the password is no redirection
    with redis.client() as client:
        client.execute_command("ACL", "SETUSER", "ratelimit", "~other:*")
    (tmp_path / "password").write_text("PASSWORD\n")
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
    if "asan" in build_dir().name:
        pytest.skip("./dev run builds the release")
    assert not transcript.differences(), "; ".join([*transcript.differences(), "write it anew: tests/transcript.py --write"])


def test_the_transcript_tells_apart_whatever_does_not_differ_from_run_to_run():
    """The comparison itself: a fingerprint of other settings, or another wording, is a difference."""
    shown = transcript.PLACE.search(README).group()
    fingerprint = re.search(r'"policy_version": \d+', shown).group()
    assert transcript.comparable(shown) != transcript.comparable(shown.replace(fingerprint, '"policy_version": 1'))
    assert transcript.comparable(shown) != transcript.comparable(shown.replace("memory store", "Redis"))
    again = re.sub(r'"retry_after_ms": \d+', '"retry_after_ms": 5', re.sub(r"/tmp/ratelimitd\.\w+", "/tmp/ratelimitd.x", shown))
    assert again != shown and transcript.comparable(shown) == transcript.comparable(again)
