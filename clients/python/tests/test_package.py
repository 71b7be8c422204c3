"""The package as users install it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def test_the_wheel_has_the_types_and_needs_msgpack_alone(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=HERE,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    modules = {f"ratelimitd/{path.name}" for path in (HERE / "src" / "ratelimitd").glob("*.py")}
    assert modules | {"ratelimitd/py.typed"} <= names
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert needs == ["Requires-Dist: msgpack>=1.0.3"]


def test_the_core_imports_no_framework() -> None:
    program = "import sys, ratelimitd, ratelimitd.testing, ratelimitd.limits; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"flask", "django", "starlette", "fastapi"} & set(modules)
