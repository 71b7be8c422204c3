"""test_ci.py: .ci/run starts everything in an environment of its own, and its last line is the sum of all parts."""

import os
import shutil
import subprocess

import pytest

from harness import ROOT

DEV = """#!/bin/sh
env | cut -d= -f1 | sort >>environment
echo "$*" >>parts
echo "3 passed, 0 failed, 1 skipped"
"""
OWN = {"HOME", "PATH", "LANG", "CI", "FAILED_TESTS", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.fixture
def tree(tmp_path):
    for name in (".ci/run", "tests/again.py", "tests/failed_beside_others"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "dev").write_text(DEV)
    (tmp_path / "dev").chmod(0o755)
    return tmp_path


def ci(tree, **env):
    return subprocess.run([str(tree / ".ci" / "run")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], **env})


def test_every_part_runs_and_the_last_line_is_the_sum(tree):
    done = ci(tree)
    assert (tree / "parts").read_text().splitlines() == ["test", "test faults", "test operation", "test package", "test clients"]
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "15 passed, 0 failed, 5 skipped")


def test_a_part_without_a_sum_fails_the_run(tree):
    (tree / "dev").write_text(DEV.replace("echo \"3", "[ \"$2\" = faults ] || echo \"3"))
    done = ci(tree)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "12 passed, 1 failed, 4 skipped")


def test_no_variable_of_the_machine_reaches_a_test(tree):
    ci(tree, PYTHONDONTWRITEBYTECODE="1", RATELIMIT_SOCKET="/x", LC_ALL="C", TZ="UTC", CFLAGS="-O0", MAKEFLAGS="-j9", LANG="tr_TR.UTF-8",
       FAILED_TESTS="/x")
    assert set((tree / "environment").read_text().split()) <= OWN


def test_what_the_clients_of_packages_need_does(tree):
    needed = {"https_proxy": "http://127.0.0.1:1", "NO_PROXY": "localhost", "SSL_CERT_FILE": "/x y", "PIP_INDEX_URL": "a", "GOPROXY": "b",
              "npm_config_registry": "c", "MAVEN_OPTS": "-Xmx1g -Da=b", "TMPDIR": "/tmp"}
    (tree / "dev").write_text(DEV.replace("| cut -d= -f1 | sort ", ""))
    ci(tree, **needed)
    assert set((tree / "environment").read_text().splitlines()) >= {f"{name}={value}" for name, value in needed.items()}


def test_builds_and_compiled_python_of_before_are_gone_and_dependencies_stay(tree):
    for name in ("build/asan/x", "tests/__pycache__/x", ".deps/venv/__pycache__/x", "clients/java/examples/target/x",
                 ".deps/clients/m2/io/ratelimitd/x", ".deps/clients/m2/org/x"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text("")
    ci(tree)
    left = {str(path.relative_to(tree)) for path in tree.rglob("x")}
    assert left == {".deps/venv/__pycache__/x", ".deps/clients/m2/org/x"}


def test_uncommitted_changes_are_named(tree):
    if not shutil.which("git"):
        pytest.skip("no git here")
    assert "warning" not in ci(tree).stdout  # no git, no changes
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    (tree / "new.c").write_text("")
    first, *_ = ci(tree).stdout.splitlines()
    assert first == "warning: this run tests uncommitted changes:"
    assert "?? new.c" in ci(tree).stdout
