"""test_dev.py: ./dev behaves as its help describes, seen from a shell. It runs once in a whole test run, with the release."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import ROOT, build_dir, eventually

pytestmark = pytest.mark.release


@pytest.fixture(autouse=True)
def only_release():
    if "release" not in build_dir().name:
        pytest.skip("these run with the release")


def dev(*arguments, **options):
    return subprocess.run([str(ROOT / "dev"), *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=50, **options)


def children_named(name):
    """Processes of that name that belong to the build of ./dev run."""
    binary = str(ROOT / "build" / "debug" / "bin" / name)
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == binary:
                found.append(int(pid))
        except OSError:
            pass
    return found


def test_help_names_every_command():
    done = dev("--help")
    assert done.returncode == 0
    for command in ("run", "test", "build", "bench", "lint", "fuzz", "plots", "model", "soak", "package", "image", "release"):
        assert f"\n  {command} " in done.stdout


def test_help_of_a_command_prints_its_lines_and_builds_nothing():
    for command in ("soak", "run", "bench", "model"):
        done = dev(command, "--help")
        assert done.returncode == 0 and done.stdout
        assert all(line.startswith(f"  {command} ") for line in done.stdout.splitlines())
    assert dev("dance", "--help").returncode != 0


def test_an_unknown_command_is_an_error():
    assert dev("dance").returncode != 0


def test_bench_against_a_folder_without_a_build_says_what_is_missing(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "bench" / "against.py"), str(tmp_path)], text=True,
                          capture_output=True)
    assert done.returncode == 2
    assert f"{tmp_path} has no bin/ratelimitd" in done.stderr


def test_rows_that_bench_fairness_does_not_have_are_an_error_that_lists_them():
    bench = [sys.executable, str(ROOT / "tests" / "bench" / "bench.py"), "--rows", "redis: chekc", "fairness"]
    done = subprocess.run(bench, text=True, capture_output=True)
    assert done.returncode == 2
    assert "no row contains 'redis: chekc'" in done.stderr
    assert "\n  check, 16 clients 10000\n" in done.stderr


def test_a_command_with_nothing_to_install_does_not_even_look():
    dev("setup")
    done = dev("setup")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "dev: everything is there\n"


def test_names_select_tests_of_every_folder_though_files_share_names(tmp_path):
    names = "test_a_server_comes_back_empty_after_a_restart", "test_every_picture_is_in_the_documentation"
    done = dev("test", *names, env={**os.environ, "TEST_RESULTS": str(tmp_path)})
    assert done.returncode == 0, done.stdout
    passed = [line for line in done.stdout.splitlines() if line.lstrip().startswith(("1 passed", "2 passed"))]
    assert len(passed) == 2, done.stdout  # one of each folder


def test_a_name_that_selects_nothing_is_no_success(tmp_path):
    done = dev("test", "no_test_has_this_name", env={**os.environ, "TEST_RESULTS": str(tmp_path)})
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("0 passed, ")


def test_run_once_shows_an_allowed_and_a_denied_check_and_leaves_nothing_behind():
    done = dev("run", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "allowed" in done.stdout and "denied" in done.stdout
    assert not children_named("ratelimitd")


def heed_interrupts():
    """A shell cannot trap a signal that it inherits as ignored, as a job in the background does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_continues_until_it_is_stopped(number, tmp_path):
    output = tmp_path / "output"
    with open(output, "wb") as out:
        run = subprocess.Popen([str(ROOT / "dev"), "run"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                               stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=heed_interrupts)
    try:
        eventually(lambda: "Ctrl-C" in output.read_text(), "it prints the next steps", 50)
        assert run.poll() is None and children_named("ratelimitd")
        run.send_signal(number)
        assert run.wait(20) == 0, output.read_text()
    finally:
        if run.poll() is None:
            run.kill()
    assert not children_named("ratelimitd")


NOTHING_INSTALLED = {  # an apt that has every package and installs none; python3 writes down what it is asked for
    "dpkg-query": "exit 1",
    "apt-cache": "echo '  Candidate: 1'",
    "apt-get": ":",
    "dpkg": "echo amd64",
    "dpkg-checkbuilddeps": ":",
    "id": "echo 0",
    "python3": 'echo "$*" >>"$ASKED"',
}


def test_packages_get_the_name_of_their_suite_though_their_tools_have_to_be_installed_first(tmp_path):
    """In a bare system they were written into build/package/python3: the last tool that was installed."""
    tree, commands = tmp_path / "tree", tmp_path / "commands"
    shutil.copytree(ROOT / "packaging", tree / "packaging")
    shutil.copy(ROOT / "dev", tree)
    for tarball in re.findall(r"\S+\.orig\.tar\.\w+", (ROOT / "packaging/versions").read_text()):
        (tree / ".deps/tarballs").mkdir(parents=True, exist_ok=True)
        (tree / ".deps/tarballs" / tarball).touch()
    commands.mkdir()
    for name, script in NOTHING_INSTALLED.items():
        (commands / name).write_text(f"#!/bin/sh\n{script}\n")
        (commands / name).chmod(0o755)
    done = subprocess.run([tree / "dev", "package"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "ASKED": str(tmp_path / "asked")})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing: dpkg-dev lintian build-essential git python3\n" in done.stdout
    suite = re.search(r"^VERSION_CODENAME=(.*)$", Path("/etc/os-release").read_text(), re.M)[1]
    assert (tmp_path / "asked").read_text().split()[-1] == f"build/package/{suite}"


def test_a_library_that_was_built_into_deps_is_found_after_the_checkout_has_moved(tmp_path):
    """Its file for pkg-config named the folder in which it was built, and CMake refused one that was gone."""
    source = tmp_path / "llhttp"
    (source / "include").mkdir(parents=True)
    (source / "src").mkdir()
    (source / "include/llhttp.h").write_text("".join(f"#define LLHTTP_VERSION_{part} 9\n" for part in ("MAJOR", "MINOR", "PATCH")))
    (source / "src/llhttp.c").write_text("int llhttp;\n")
    subprocess.run([ROOT / "packaging/llhttp.sh", source, tmp_path / "first"], check=True)
    (tmp_path / "first").rename(tmp_path / "second")

    asked = subprocess.run(["pkg-config", "--variable=prefix", "libllhttp"], check=True, capture_output=True, text=True,
                           env={**os.environ, "PKG_CONFIG_PATH": str(tmp_path / "second/lib/pkgconfig")})
    assert os.path.realpath(asked.stdout.strip()) == os.path.realpath(tmp_path / "second")
