"""tidy.py: which files clang-tidy has to read again: those that may differ from the commit that tests/lint/clean names.

At that commit `./dev lint --all` found nothing. A file differs if it changed, or a file that it includes, directly or through
others. All files are read again if that cannot be said: without git or that commit (an exported or shallow tree), after
MOST_COMMITS, and after a change of what decides how clang-tidy reads a file.
"""

import functools
import re
import subprocess
from pathlib import Path

from tracked import tracked

CLEAN = "tests/lint/clean"
MOST_COMMITS = 50
DECIDES = {".clang-tidy", "CMakeLists.txt", "CMakePresets.json", "src/client/client.cmake", "tests/lint/tidy.py"}
COMMAND = ("clang-tidy", "--quiet", "-p", "build/clang", "--warnings-as-errors=*")
SOURCES = ("src", "proto")
INCLUDED_FROM = ("", "src")  # of the include_directories of CMakeLists.txt, besides the folder of the file itself


class Unknown(Exception):
    """Why all files are read again."""


def git(root, *words):
    try:
        done = subprocess.run(["git", "-c", f"safe.directory={root.resolve()}", *words], cwd=root, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
    except FileNotFoundError:
        raise Unknown("there is no git") from None
    if done.returncode:
        raise Unknown((done.stderr.strip().splitlines() or [f"git {words[0]}: exit status {done.returncode}"])[-1])
    return done.stdout


def changed(root):
    """The paths that differ from the clean commit, uncommitted changes among them."""
    if not (root / CLEAN).exists():
        raise Unknown(f"{CLEAN} is missing")
    if not (root / ".git").exists():
        raise Unknown("the tree has no history")
    commit = (root / CLEAN).read_text().strip()
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise Unknown(f"{CLEAN} does not name a commit")
    git(root, "merge-base", "--is-ancestor", commit, "HEAD")
    n = int(git(root, "rev-list", "--count", f"{commit}..HEAD"))
    if n > MOST_COMMITS:
        raise Unknown(f"{CLEAN} is {n} commits old")
    paths = set(filter(None, git(root, "diff", "--name-only", "--no-renames", "-z", commit).split("\0")))
    if decided := sorted(paths & DECIDES):
        raise Unknown(f"{decided[0]} changed")
    return paths


def includes(root, path):
    """The project's files that a file includes itself."""
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', (root / path).read_text(errors="replace"), re.M):
        for folder in (Path(path).parent, *map(Path, INCLUDED_FROM)):
            if (root / folder / name).is_file():
                yield str((root / folder / name).resolve().relative_to(root.resolve()))
                break


def to_read(root):
    """(the .c files for clang-tidy, why these)"""
    root = Path(root)
    sources = [str(path.relative_to(root)) for folder in SOURCES for path in tracked(root, "*.c", below=folder)]
    try:
        paths = changed(root)
    except Unknown as reason:
        return sources, f"all {len(sources)} files: {reason}"

    included = functools.cache(lambda path: list(includes(root, path)))

    def differs(source):
        met, waiting = set(), [source]
        while waiting:
            path = waiting.pop()
            if path in paths:
                return True
            if path not in met:
                met.add(path)
                waiting += included(path)
        return False

    chosen = [path for path in sources if differs(path)]
    return chosen, f"{len(chosen)} of {len(sources)} files differ from the commit in {CLEAN}"


def write_clean(root):
    """Names HEAD as clean. Returns why it may not, or None."""
    try:
        others = [line for line in git(root, "status", "--porcelain", "--untracked-files=no").splitlines() if line[3:] != CLEAN]
        if others:
            return f"uncommitted changes: {', '.join(line[3:] for line in others)}"
        (root / CLEAN).write_text(git(root, "rev-parse", "HEAD"))
        return None
    except Unknown as reason:
        return str(reason)
