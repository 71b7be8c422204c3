"""test_lint.py: lint reads the project's own files, whatever else lies in the tree."""

import os
import shutil
import subprocess
import sys

import pytest

from harness import ROOT

sys.path.append(str(ROOT / "tests" / "lint"))
import lint  # noqa: E402
import tidy  # noqa: E402
from tracked import tracked  # noqa: E402

MATRIX = ROOT / "tests" / "integration" / "faults" / "fault_matrix.py"


def git(tree, *words):
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *words], cwd=tree, check=True,
                   env={**os.environ, **alone}, stdin=subprocess.DEVNULL, capture_output=True)


def test_what_python_compiled_is_not_read_as_a_test():
    """It failed wherever PYTHONDONTWRITEBYTECODE was not set."""
    left = MATRIX.parent / "__pycache__" / "test_left_over.cpython-311.pyc"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"\xa7\r\r\n\xff\xfe")
    try:
        done = subprocess.run([sys.executable, str(MATRIX), "--check"], capture_output=True, text=True)
    finally:
        left.unlink()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(params=["with git", "exported"])
def tree(request, tmp_path):
    (tmp_path / "src" / "redis" / "__pycache__").mkdir(parents=True)
    for name in ("src/a.c", "src/redis/b.c", "src/redis/__pycache__/c.c"):
        (tmp_path / name).write_text("int a;\n")
    if request.param == "with git":
        if not shutil.which("git"):
            pytest.skip("no git here")
        git(tmp_path, "init", "-q")
        git(tmp_path, "add", "src/a.c", "src/redis/b.c")
        (tmp_path / "src" / "untracked.c").write_text("int b;\n")
    return tmp_path


def test_only_files_of_the_project_are_read(tree):
    assert tracked(tree, "*.c", below="src") == [tree / "src" / "a.c", tree / "src" / "redis" / "b.c"]
    assert tracked(tree, "*.c", below="src/redis") == [tree / "src" / "redis" / "b.c"]
    assert tracked(tree, "*.h") == []


@pytest.mark.parametrize("statement", ['log_info("denied: %.*s", (int)key.len, key.data);', 'pack_str(packer, check->key);',
                                       'log_warning("%s",\n            log_escape(space, key.data, key.len));', "pack_bin(packer, kept->bytes);"])
def test_a_key_that_is_logged_or_packed_on_another_way_is_found(statement):
    assert [number for number, _ in lint.keys_on_another_way(f"/* a\n key */\nint a;\n{statement}\n")] == [4]


@pytest.mark.parametrize("statement", ['log_info("key%s", log_key(space, check->key));', 'pack_text(packer, "key");',
                                       "pack_str(packer, kept_key_shown(key, space));", 'log_info("a key of it");'])
def test_a_key_on_its_way_is_not(statement):
    assert list(lint.keys_on_another_way(statement)) == []


def write(tree, files):
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    git(tree, "add", "-A")


@pytest.fixture
def clean(tmp_path):
    """A tree of four files, of which two include src/limit/low.h, one of them through another header."""
    if not shutil.which("git"):
        pytest.skip("no git here")
    git(tmp_path, "init", "-q")
    write(tmp_path, {"src/limit/low.h": "", "src/limit/low.c": '#include "limit/low.h"\n', "src/base/rows.def": "",
                     "src/store/middle.h": '#include "limit/low.h"\n#include "store/circle.h"\n',
                     "src/store/circle.h": '#include "store/middle.h"\n', "src/store/high.c": '#include "middle.h"\n',
                     "src/base/table.c": '#include <stdio.h>\n  # include "base/rows.def"\n', "proto/pack.c": "", "tests/lint/tidy.py": ""})
    git(tmp_path, "commit", "-qm", "clean")
    assert tidy.write_clean(tmp_path) is None
    write(tmp_path, {})
    git(tmp_path, "commit", "-qm", "say so")
    return tmp_path


ALL = ["proto/pack.c", "src/base/table.c", "src/limit/low.c", "src/store/high.c"]


@pytest.mark.parametrize("path, read", [("src/limit/low.h", ["src/limit/low.c", "src/store/high.c"]),
                                        ("src/store/circle.h", ["src/store/high.c"]), ("src/base/rows.def", ["src/base/table.c"]),
                                        ("proto/pack.c", ["proto/pack.c"]), ("lua/a.lua", []), (".clang-tidy", ALL)])
@pytest.mark.parametrize("committed", [False, True])
def test_clang_tidy_reads_what_differs_from_the_clean_commit(clean, path, read, committed):
    write(clean, {path: "/* changed */\n"})
    if committed:
        git(clean, "commit", "-qm", "change")
    assert sorted(tidy.to_read(clean)[0]) == read


def test_clang_tidy_reads_a_new_file_and_what_includes_a_moved_header(clean):
    git(clean, "mv", "src/limit/low.h", "src/base/low.h")
    write(clean, {"src/limit/low.c": '#include "base/low.h"\n', "src/base/new.c": ""})
    assert sorted(tidy.to_read(clean)[0]) == ["src/base/new.c", "src/limit/low.c"]


@pytest.mark.parametrize("files, circles", [
    ({"src/engine/a.c": "ab", "src/engine/b.c": "b", "src/store/c.c": "c"}, []),
    ({"src/engine/a.c": "abc", "src/engine/b.c": "b", "src/store/c.c": "cb"}, ["engine <-> store"]),
    ({"src/engine/a.c": "ab", "src/engine/b.c": "bc", "src/engine/c.c": "ca"}, ["src/engine/a.c <-> src/engine/b.c <-> src/engine/c.c"]),
    ({"src/engine/a.c": "ab-", "src/engine/b.c": "ba-"}, []),
    ({"src/engine/a.c": "ab-", "src/engine/b.c": "bc-", "src/engine/c.c": "ca"},
     ["src/engine/a.c <-> src/engine/b.c <-> src/engine/c.c"]),
])
def test_calls_go_one_way_but_inside_a_module_of_several_files(tmp_path, monkeypatch, files, circles):
    """Of each file: the function that it defines, those that it calls, and `-` if it includes a private header."""
    for name, words in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        include = '#include "engine/a_private.h"\n' if "-" in words else ""
        calls = "".join(f"    {word}();\n" for word in words[1:].strip("-"))
        (tmp_path / name).write_text(f"{include}void {words[0]}(void)\n{{\n{calls}}}\n")
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    assert [line.split(": ")[0] for line in lint.calls_go_one_way()] == circles


def no_history(tree):
    shutil.rmtree(tree / ".git")


def shallow(tree):
    git(tree, "clone", "-q", "--depth", "1", f"file://{tree}", "copy")
    shutil.rmtree(tree / ".git")
    (tree / "copy" / ".git").rename(tree / ".git")
    shutil.rmtree(tree / "copy")


def old(tree):
    for _ in range(tidy.MOST_COMMITS):
        git(tree, "commit", "-q", "--allow-empty", "-m", "next")


def names_nothing(tree):
    write(tree, {tidy.CLEAN: "yesterday\n"})


def never_written(tree):
    (tree / tidy.CLEAN).unlink()


@pytest.mark.parametrize("spoil", [no_history, shallow, old, names_nothing, never_written])
def test_clang_tidy_reads_all_where_nothing_is_known(clean, spoil):
    assert tidy.to_read(clean)[0] == []
    spoil(clean)
    found, why = tidy.to_read(clean)
    assert sorted(found) == ALL
    assert why.startswith("all 4 files: ")


def test_a_tree_with_uncommitted_changes_is_not_written_down_as_clean(clean):
    before = (clean / tidy.CLEAN).read_text()
    write(clean, {"src/limit/low.c": "/* not committed */\n"})
    assert "src/limit/low.c" in tidy.write_clean(clean)
    assert (clean / tidy.CLEAN).read_text() == before
