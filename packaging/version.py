#!/usr/bin/env python3
"""version.py: the version of this tree, by packaging/versions and the commit.

    version.py [FORM]          what a build of this commit is called: daemon (default), base, deb, python, npm, java, rock
    version.py VALUE           commit, epoch (the commit's time), address
    version.py set VERSION     writes another version into the table and into every file that has it
    version.py stamp           writes this commit's versions into the files of packages: for a copy that a build uses up
    version.py check           the places where a file and the table differ; nothing, if none does

A commit with the tag vVERSION is that release. Any other is a build on the way to it, and every package manager sorts its
version before the release. A tarball of `git archive` has the commit in packaging/commit.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORMS = {  # of a build on the way to a release
    "daemon": "{base}-git.{commit}",
    "deb": "{base}~git.{commit}",
    "python": "{base}.dev0+git.{commit}",
    "npm": "{base}-git.{commit}",
    "java": "{base}-git.{commit}",
    "rock": "{base}.git.{commit}",
}


class Table:
    def __init__(self, root=ROOT):
        self.root = root
        self.values, self.places, self.static = {}, [], []
        for line in (root / "packaging/versions").read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            head, colon, text = line.partition(" : ")
            words = head.split()
            if colon:
                form = words[2] if "@" in words else None
                self.places.append((words[0], form, text.replace("\\n", "\n")))
            elif words[0] == "static":
                self.static.append(dict(zip(("name", "version", "license", "sha256", "where"), words[1:])))
            else:
                self.values[words[0]] = " ".join(words[1:])

    def text_of(self, place, version):
        return place.replace("{version}", version).replace("{address}", self.values["address"])

    def pattern(self, place):
        """Of a place with whatever version it has; its groups are what stands before and behind it."""
        before, _, behind = (part.replace(r"\*", r"\s*") for part in re.escape(place).partition(r"\{version\}"))
        return re.compile(f"(?<![A-Za-z_])({before})([0-9][0-9A-Za-z.+~-]*?)({behind})(?![0-9A-Za-z+~-]|\\.[0-9])")

    def files(self, name):
        found = sorted(path for path in self.root.glob(name) if "target" not in path.parts)
        return found or [self.root / name]

    def complaints(self):
        version = self.values["version"]
        for name, _, place in self.places:
            for path in self.files(name):
                shown = path.relative_to(self.root)
                text = path.read_text() if path.exists() else ""
                if "{version}" not in place:
                    if self.text_of(place, version) not in text:
                        yield f"{shown}: has not `{self.text_of(place, version)}`, as packaging/versions has it"
                    continue
                found = {match[2] for match in self.pattern(place).finditer(text)}
                if not found:
                    yield f"{shown}: has no `{place}` of packaging/versions"
                for other in sorted(found - {version}):
                    yield f"{shown}: has the version {other}; packaging/versions has {version}"

    def write(self, version_of):
        """Writes version_of(form) into every place for which it has one."""
        for name, form, place in self.places:
            version = version_of(form)
            if version is None or "{version}" not in place:
                continue
            for path in self.files(name):
                text = self.pattern(place).sub(lambda match: match[1] + version + match[3], path.read_text())
                path.write_text(text)


def commit_of(root=ROOT):
    """(commit, seconds since the epoch, names of refs) of this tree; a commit of "unknown" if nothing says it."""
    line = (root / "packaging/commit").read_text().strip()
    if line.startswith("$"):  # not from `git archive`
        git = ["git", "-c", "safe.directory=*", "-C", root]  # a container's root builds what another user has cloned
        inside = subprocess.run([*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True)
        if inside.returncode or Path(inside.stdout.strip()).resolve() != root.resolve():
            return "unknown", 0, ""
        line = subprocess.run([*git, "log", "-1", "--format=%H %ct %D"], capture_output=True, text=True, check=True).stdout.strip()
    commit, seconds, *names = line.split(" ", 2)
    return commit, int(seconds), "".join(names)


def version_of(form, root=ROOT):
    base = Table(root).values["version"]
    commit, _, names = commit_of(root)
    if form == "base" or f"tag: v{base}" in names.split(", "):
        return base
    # Twelve digits, and as many more as it takes to have a letter: npm refuses a number with a zero in front.
    short = next((commit[:n] for n in range(12, 41) if not commit[:n].isdigit()), commit)
    return FORMS[form].format(base=base, commit=short)


def main(argv):
    what = argv[0] if argv else "daemon"
    table = Table()
    if what in ("base", *FORMS):
        print(version_of(what))
    elif what in ("commit", "epoch"):
        print(commit_of()[what == "epoch"])
    elif what in table.values:
        print(table.values[what])
    elif what == "check":
        complaints = list(table.complaints())
        print("\n".join(complaints), end="\n" if complaints else "")
        return 1 if complaints else 0
    elif what == "stamp":
        table.write(lambda form: version_of(form) if form else None)
    elif what == "set" and len(argv) == 2 and re.fullmatch(r"\d+\.\d+\.\d+", argv[1]):
        table.write(lambda form: argv[1])
        path = ROOT / "packaging/versions"
        path.write_text(re.sub(r"^version .*$", f"version {argv[1]}", path.read_text(), flags=re.M))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
