"""test_version.py: packaging/versions is the one table, and a build from a commit says which."""

import re
import shutil
import subprocess
import sys

import pytest

from harness import ROOT

sys.path.insert(0, str(ROOT / "packaging"))
import version  # noqa: E402


def run(*argv, cwd):
    done = subprocess.run([*map(str, argv)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def git(folder, *arguments):
    return run("git", "-c", "user.name=Tester", "-c", "user.email=tester@localhost", *arguments, cwd=folder)


@pytest.fixture
def tree(tmp_path):
    """A repository with one commit: the table, and every file that it names."""
    table = version.Table()
    named = {path for place in table.places for path in table.files(place[0])}
    for path in [*named, *(ROOT / "packaging").glob("version*"), ROOT / "packaging/commit", ROOT / ".gitattributes"]:
        copy = tmp_path / "tree" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    tree = tmp_path / "tree"
    (tree / "packaging/commit").write_text("$Format:%H %ct %D$\n")
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "tests: begin")
    return tree


def ask(tree, *arguments):
    return run(sys.executable, "packaging/version.py", *arguments, cwd=tree)


def test_a_build_from_a_commit_sorts_before_the_release_and_names_the_commit(tree):
    base = ask(tree, "base")
    commit = re.match(r"\d{12,}[a-f]|.{12}", git(tree, "rev-parse", "HEAD"))[0]  # as long as it takes to have a letter
    assert ask(tree, "deb") == f"{base}~git.{commit}"
    assert ask(tree, "python") == f"{base}.dev0+git.{commit}"
    assert ask(tree, "npm") == ask(tree, "daemon") == f"{base}-git.{commit}"


def test_the_tagged_commit_is_the_release(tree):
    base = ask(tree, "base")
    git(tree, "tag", f"v{base}")
    assert {ask(tree, form) for form in ("daemon", "deb", "python", "npm", "java", "rock")} == {base}


def test_a_tarball_without_a_repository_knows_its_version(tree, tmp_path):
    (tmp_path / "unpacked").mkdir()
    run("sh", "-c", f"git archive HEAD | tar -x -C {tmp_path}/unpacked", cwd=tree)
    for what in ("daemon", "deb", "commit", "epoch"):
        assert ask(tmp_path / "unpacked", what) == ask(tree, what)


def test_a_folder_within_another_repository_does_not_take_its_commit(tree):
    shutil.copytree(tree / "packaging", tree / "inner/packaging")
    assert ask(tree / "inner", "commit") == "unknown"


@pytest.mark.parametrize("name", ["clients/go/rlgin/go.mod", "clients/python/pyproject.toml", "clients/java/conformance/pom.xml",
                                  "clients/node/package-lock.json", "CMakeLists.txt"])
def test_a_file_with_another_version_is_named(tree, name):
    path, base = tree / name, ask(tree, "base")
    path.write_text(path.read_text().replace(base, "9.9.9"))
    done = subprocess.run([sys.executable, "packaging/version.py", "check"], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{name}: has the version 9.9.9; packaging/versions has {base}" in done.stdout


def test_another_version_is_written_everywhere(tree):
    before = ask(tree, "base")
    ask(tree, "set", "7.8.9")
    assert ask(tree, "check") == "" and ask(tree, "base") == "7.8.9"
    assert f'version = "{before}"' not in (tree / "clients/python/pyproject.toml").read_text()
    ask(tree, "set", before)
    assert git(tree, "status", "--porcelain") == ""


def test_a_copy_for_packages_has_the_commits_versions(tree):
    ask(tree, "stamp")
    assert f'version = "{ask(tree, "python")}"' in (tree / "clients/python/pyproject.toml").read_text()
    assert f'"version": "{ask(tree, "npm")}"' in (tree / "clients/node/package.json").read_text()
    poms = [path.read_text() for path in (tree / "clients/java").rglob("pom.xml")]
    assert all(re.search(rf"<version>{re.escape(ask(tree, 'java'))}</version>", pom) for pom in poms)
