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


def test_a_misspelt_option_is_an_error_of_mypy(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from flask import Flask\n"
        "from ratelimitd import fastapi, flask, limits, starlette\n"
        "limiter = flask.Limiter(Flask('shop'))\n"
        "limiter.limit('web', cost=1, key=flask.ip, algorithm='gcra')\n"
        "limiter.limit('web', cosst=1)\n"
        "starlette.Limiter().limit('web', kee='x')\n"
        "fastapi.Limit('web', cosst=1)\n"
        "limits.Limit(limit=1, window='1s', algoritm='gcra')\n"
        "limiter.limit('web', cost='much')\n"
    )
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n[mypy-msgpack.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [
        line.split(":")[1] for line in done.stdout.splitlines() if line.startswith("program.py") and "error" in line
    ]
    assert found == ["5", "6", "7", "8", "9"], done.stdout
