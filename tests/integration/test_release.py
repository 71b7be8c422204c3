"""test_release.py: a bad tree is refused by name, before anything is built."""

import shutil
import subprocess
import sys

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "packaging"))
import debs  # noqa: E402
import release  # noqa: E402
import version  # noqa: E402

DAY = "(2026-12-24, upgrade urgency: low)"


def git(folder, *arguments):
    argv = ["git", "-c", "user.name=Tester", "-c", "user.email=tester@localhost", *arguments]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path):
    """A repository with what the conditions look at, ready for its release."""
    table = version.Table()
    named = {path for place in table.places for path in table.files(place[0])} | set(ROOT.glob("packaging/*.py"))
    licences = {path for path in (ROOT / "clients").rglob("LICENSE") if not {"node_modules", "vendor"} & set(path.parts)}
    others = [ROOT / name for name in ("LICENSE", "CHANGELOG.md", "packaging/versions", "packaging/commit", "packaging/commands.sh",
                                     "tests/lint/tracked.py", "dev")]
    for path in [*named, *licences, *others]:
        copy = tmp_path / "tree" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    tree = tmp_path / "tree"
    base = table.values["version"]
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## {base} (unreleased)", f"## {base} {DAY}"))
    (tree / "packaging/commit").write_text("$Format:%H %ct %D$\n")
    (tree / ".gitignore").write_text("__pycache__\n/.deps\ndist\n")
    git(tree, "init", "-q")
    commit(tree)
    git(tree, "tag", f"v{base}")
    return tree


def commit(tree):
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "tests: a change")


def refused(tree, *arguments):
    done = subprocess.run([sys.executable, "packaging/release.py", "--conditions", *arguments], cwd=tree, capture_output=True, text=True)
    assert (done.returncode != 0) == bool(done.stderr)
    return done.stderr


BASE = version.Table().values["version"]


def test_a_good_tree_is_not_refused(tree):
    assert refused(tree, BASE) == refused(tree) == ""


def test_a_check_without_a_version_asks_for_no_dated_entry(tree):
    path = tree / "CHANGELOG.md"
    path.write_text(path.read_text().replace(DAY, "(unreleased)"))
    commit(tree)
    assert refused(tree) == ""
    assert "upgrade urgency" in refused(tree, BASE)


def test_an_entry_without_its_urgency_is_refused(tree):
    path = tree / "CHANGELOG.md"
    path.write_text(path.read_text().replace(DAY, "(2026-12-24)"))
    commit(tree)
    assert f"write `## {BASE} (YYYY-MM-DD, upgrade urgency: low or moderate or high or critical)`" in refused(tree, BASE)


def test_a_missing_entry_is_refused(tree):
    path = tree / "CHANGELOG.md"
    path.write_text(path.read_text().replace(f"## {BASE} ", "## Something "))
    commit(tree)
    assert f"CHANGELOG.md has no entry for {BASE}" in refused(tree)


@pytest.mark.parametrize("name", ["clients/go/rlgin/go.mod", "clients/python/pyproject.toml", "CMakeLists.txt"])
def test_a_version_that_differs_is_refused(tree, name):
    path = tree / name
    path.write_text(path.read_text().replace(BASE, "9.9.9"))
    commit(tree)
    assert f"{name}: has the version 9.9.9" in refused(tree)


def test_another_version_than_the_tables_is_refused(tree):
    assert f"packaging/versions has the version {BASE}, not 7.0.0" in refused(tree, "7.0.0")


@pytest.mark.parametrize("name", ["LICENSE", "clients/node/LICENSE", "clients/go/rlgrpc/LICENSE", "clients/java/LICENSE"])
def test_a_missing_licence_is_refused(tree, name):
    (tree / name).unlink()
    git(tree, "add", "-A")
    commit(tree)
    assert f"{name} is missing" in refused(tree)


def test_a_changed_licence_is_refused(tree):
    (tree / "clients/php/LICENSE").write_text("Do what you like.\n")
    commit(tree)
    assert "clients/php/LICENSE is missing, or is not a copy of LICENSE" in refused(tree)


def test_what_a_build_leaves_needs_no_licence(tree):
    """Earlier, `./dev test` failed in a tree whose Node package had been built: dist has a package.json."""
    left = tree / "clients/node/dist/cjs"
    left.mkdir(parents=True)
    (left / "package.json").write_text("{}\n")
    assert refused(tree) == ""


def test_a_tree_with_changes_is_refused_with_their_names(tree):
    (tree / "clients/php/new.php").write_text("<?php\n")
    assert "clients/php/new.php" in refused(tree)


def test_a_commit_without_the_tag_is_no_release(tree):
    git(tree, "tag", "-d", f"v{BASE}")
    assert refused(tree) == ""
    assert f"this commit is not tagged: git tag v{BASE}" in refused(tree, BASE)


def test_a_tree_without_a_repository_is_refused(tree):
    shutil.rmtree(tree / ".git")
    assert "this is not a git repository" in refused(tree)


def test_a_file_that_differs_when_it_is_built_elsewhere_is_named(tmp_path):
    for place in ("one", "other"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "same.deb").write_text("same")
        (tmp_path / place / "folder.deb").write_text(place)
    (tmp_path / "one/only.deb").write_text("")
    found = release.differences(release.digests(tmp_path / "one"), release.digests(tmp_path / "other"))
    assert [line.partition(":")[0] for line in found] == ["folder.deb", "only.deb"] and "is missing" in found[1]


def test_a_tarball_that_is_not_the_one_of_the_table_is_refused(tmp_path):
    part = next(part for part in version.Table().static if part["name"] == "hiredis")
    tarball = tmp_path / part["where"]
    tarball.write_text("something else")
    with pytest.raises(SystemExit, match=f"{tarball} has the SHA-256 [0-9a-f]*; packaging/versions has {part['sha256']}"):
        debs.write_component(tmp_path / "component.tar.gz", part, tmp_path)
    assert not (tmp_path / "component.tar.gz").exists()


BUILD_TWICE = """import pathlib, sys, release
places = [release.Place(pathlib.Path(sys.argv[1]), name, "bookworm", None) for name in release.PLACES]
for place in places:
    place.build_tarballs()
    place.build_lua()
release.refuse_differences(*(place.files for place in places))
"""


def built_twice(tree, tmp_path):
    """The archives that need no compiler, as a release builds them: in two clean clones."""
    return subprocess.run([sys.executable, "-c", BUILD_TWICE, tmp_path / "places"], cwd=tree / "packaging", capture_output=True, text=True)


def test_archives_are_the_same_in_another_folder_time_zone_and_umask(tree, tmp_path):
    done = built_twice(tree, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "places").rglob("files/*"))) == 2 * 3


@pytest.mark.parametrize("right, wrong", [
    ("0o755 if os.access(ROOT / name, os.X_OK) else 0o644", "(ROOT / name).stat().st_mode & 0o777"),
    ('f"{top}/{name}"', 'f"{ROOT}/{name}"'),
    ("entry.mtime = len(data), epoch", "entry.mtime = len(data), time.mktime((2026, 1, 1, 0, 0, 0, 0, 1, 0))"),
], ids=["modes by the umask", "the folder's name", "local time"])
def test_an_artefact_that_differs_when_it_is_built_elsewhere_fails_the_release(tree, tmp_path, right, wrong):
    path = tree / "packaging/debs.py"
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong).replace("import tempfile\n", "import tempfile\nimport time\n"))
    commit(tree)
    done = built_twice(tree, tmp_path)
    assert done.returncode == 1 and "the same commit gives other bytes elsewhere" in done.stderr
    assert f"ratelimitd-{BASE}-git." in done.stderr and "-source.tar.gz: " in done.stderr and ".rockspec" not in done.stderr
