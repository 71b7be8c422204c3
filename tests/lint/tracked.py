"""tracked.py: the project's own files. What a tool leaves in the tree (compiled Python, packages, builds) is not one of them."""

import os
import shutil
import subprocess
from pathlib import Path

LEFT_BY_TOOLS = {"__pycache__", "node_modules", "dist", "build", "target", ".venv", ".deps", ".git", ".hypothesis"}


def tracked(root, *patterns, below="."):
    """Paths of the files that git tracks in the tree `root`, below that folder of it, and that match one of the patterns. In an
    exported tree, without git: those of all folders but the ones that tools make."""
    root = Path(root)
    if (root / ".git").exists() and shutil.which("git"):
        # As root in somebody else's checkout, too: this only reads the list.
        listed = subprocess.run(["git", "-c", f"safe.directory={root.resolve()}", "ls-files", "-z", "--", below], cwd=root, check=True,
                                stdin=subprocess.DEVNULL, capture_output=True).stdout.decode()
        found = [root / name for name in listed.split("\0") if name]
    else:
        found = []
        for folder, folders, names in os.walk(root / below):
            folders[:] = [name for name in folders if name not in LEFT_BY_TOOLS]
            found += [Path(folder) / name for name in names]
    return sorted(path for path in found if any(path.match(pattern) for pattern in patterns) and path.is_file())
