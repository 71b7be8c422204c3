"""The npm packages for test and bench: below $DEPS/clients/node, one folder for each lock file, linked as node_modules."""

import hashlib
import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MANIFEST = ("package.json", "package-lock.json", ".npmrc")


def environment():
    """Without DEPS and RATELIMITD_BUILD, the repository's own folders."""
    os.environ.setdefault("DEPS", str(ROOT / ".deps"))
    os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "release"))
    os.environ["npm_config_cache"] = str(Path(os.environ["DEPS"]).resolve() / "clients" / "node" / "cache")
    os.environ["PATH"] = f"{Path(os.environ['DEPS']) / 'bin'}:{os.environ['PATH']}"


def install(run):
    """`run(argv, cwd)` runs npm, and ends the program where it fails."""
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder = Path(os.environ["DEPS"]) / "clients" / "node" / lock
    complete = folder / "complete"
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in MANIFEST:
            shutil.copy(HERE / name, folder / name)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
        complete.touch()

    modules = HERE / "node_modules"
    if modules.is_symlink() or not modules.exists():  # a developer's own folder stays
        modules.unlink(missing_ok=True)
        modules.symlink_to(folder / "node_modules")
