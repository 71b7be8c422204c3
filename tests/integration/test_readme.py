"""test_readme.py: the sections Try it, Ask and Install of README.md work unchanged; for its other snippets see
test_documents.py."""

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


@pytest.fixture
def daemon(ratelimitd):
    return ratelimitd(blocks("yaml")[0])


def run(argv, daemon, **options):
    env = {**os.environ, "RATELIMIT_SOCKET": daemon.socket, "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(argv, env=env, text=True, capture_output=True, timeout=30, stdin=subprocess.DEVNULL, **options)


def test_the_shell_example_lets_five_in_and_then_none(ratelimitd):
    daemon = ratelimitd(blocks("yaml")[0], arguments=["--test-clock"])
    script = blocks("sh")[0]
    outputs = [run(["sh", "-c", script], daemon).stdout.splitlines()[-1] for _ in range(6)]
    assert outputs == ["come in"] * 5 + ["not now"]


def test_the_sixth_request_within_a_second_gets_the_answer_shown_whenever_the_second_begins(ratelimitd, connect):
    """The Flask sample itself runs in clients/python/tests/test_main_readme.py."""
    client = connect(ratelimitd(blocks("yaml")[0], arguments=["--test-clock"]))
    wait_s = int(re.search(r"^Retry-After: (\d+)$", README, re.M).group(1))
    assert f'RateLimit: "login";r=0;t={wait_s}\n' in README
    for i in range(100):  # a tenth of a second apart: over the edges of any window of ten seconds
        begin_us = 4_000_000_000_000_000 + i * 100_000
        answers = []
        for n in range(6):
            client.call("test_clock", begin_us + n * 199_999)
            answers.append(client.check("login", f"client-{i}"))
        assert [answer["allowed"] for answer in answers] == [True] * 5 + [False]
        assert -(-answers[-1]["retry_after_ms"] // 1000) == wait_s


def test_the_shell_example_distinguishes_a_denial_from_no_answer(daemon):
    daemon.stop()
    done = run(["sh", "-c", blocks("sh")[0]], daemon)
    assert done.stdout.startswith("no answer"), done.stdout


def test_the_lines_of_install_work_with_the_installed_files(ratelimitd, tmp_path):
    """As in the README, but without systemd: its commands are compared with the installed units."""
    section = re.search(r"^## Install\n(.*?)(?:^## |\Z)", README, re.M | re.S).group(1)
    install = re.search(r"`(cmake --install \S+ --prefix /usr)`", section).group(1)
    done = subprocess.run(install.replace("build/release", shlex.quote(str(build_dir()))), shell=True, capture_output=True,
                          text=True, env={**os.environ, "DESTDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "usr/lib/sysusers.d/ratelimitd.conf").exists()

    daemon = ratelimitd((tmp_path / "etc/ratelimitd/ratelimitd.yaml").read_text())
    asked = 0
    for line in re.search(r"\bThen:\n\n```\n(.*?)^```", section, re.M | re.S).group(1).splitlines():
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


def test_ones_own_file_runs_by_the_commands_below_it(tmp_path):
    text = README[README.index("\n## Configure"):]
    (tmp_path / "ratelimitd.yaml").write_text(blocks("yaml")[0])
    start, ask = re.findall(r"`((?:build/release/bin/ratelimitd|ratelimitctl) -[cs] [^`]*)`", text)[:2]
    socket = re.search(r"-s (\S+)", start)[1]
    assert f"-s {socket} " in ask
    start, ask = [line.replace(socket, str(tmp_path / "rl.sock")) for line in (start, ask)]
    start = start.replace("build/release", str(build_dir()))
    env = {**os.environ, "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}"}
    with subprocess.Popen(shlex.split(start), cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as daemon:
        assert any("ready on " in line for line in daemon.stderr)
        done = subprocess.run(shlex.split(ask), env=env, capture_output=True, text=True, timeout=30)
        daemon.terminate()
        assert (done.returncode, done.stdout.split()[0]) == (0, "allowed"), done.stderr


@pytest.mark.release
def test_the_transcript_is_what_dev_run_shows():
    if "asan" in build_dir().name:
        pytest.skip("it runs once, with the release")
    assert not transcript.differences(), "; ".join([*transcript.differences(), "write it anew: tests/transcript.py --write"])


def test_the_comparison_of_transcripts_ignores_only_what_differs_between_runs():
    """The comparison itself: another number or another text is a difference, another time is not."""
    shown = transcript.PLACE.search(README).group()
    assert transcript.comparable(shown) != transcript.comparable(shown.replace("remaining 2/3", "remaining 1/3"))
    assert transcript.comparable(shown) != transcript.comparable(shown.replace("[memory]", "[redis]"))
    again = shown.replace("retry in 20s", "retry in 19.8s")
    assert again != shown and transcript.comparable(shown) == transcript.comparable(again)


def test_the_transcript_is_the_part_with_the_first_checks():
    printed = "ready\n\n$ ratelimitctl ping\npong\n\n$ ratelimitctl check a b\nallowed\n\n$ ratelimitctl check login bob\nallowed\n"
    assert transcript.excerpt(printed) == "$ ratelimitctl check a b\nallowed\n"


def test_the_readme_is_short_and_shows_the_two_commands():
    assert len(README.splitlines()) < 200
    section = re.search(r"^## Try it\n.*?(?=^## )", transcript.PLACE.sub("", README), re.M | re.S).group()
    assert re.findall(r"^(\./dev .*)\n```", section, re.M) == ["./dev run", "./dev test"]  # a block each: the first stays
    assert all(f"\n## {name}\n" in README for name in ("Try it", "Ask", "Install"))
