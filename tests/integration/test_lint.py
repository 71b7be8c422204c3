"""test_lint.py: lint reads the project's own files, whatever else lies in the tree."""

import shutil
import subprocess
import sys

import pytest

from harness import ROOT

sys.path.append(str(ROOT / "tests" / "lint"))
from tracked import tracked  # noqa: E402

MATRIX = ROOT / "tests" / "integration" / "faults" / "fault_matrix.py"


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
        for words in (["init", "-q"], ["add", "src/a.c", "src/redis/b.c"]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        (tmp_path / "src" / "untracked.c").write_text("int b;\n")
    return tmp_path


def test_only_files_of_the_project_are_read(tree):
    assert tracked(tree, "*.c", below="src") == [tree / "src" / "a.c", tree / "src" / "redis" / "b.c"]
    assert tracked(tree, "*.c", below="src/redis") == [tree / "src" / "redis" / "b.c"]
    assert tracked(tree, "*.h") == []
