#!/usr/bin/env python3
"""debs.py: builds the Debian packages of this tree. `./dev package [SUITE]` calls it, with all that it needs installed.

    debs.py [--bundled FOLDER] [--root ROOT] [--host ARCH] [--unchecked] FOLDER

FOLDER gets the packages, the source package, and below debug/ the debug symbols. Without --root they are built on this system,
else by chroot in the system below ROOT. --bundled has the upstream tarballs of what Debian 12 lacks. lintian reads the
result unless it is --unchecked; an error or a warning of it is one here. --host is another architecture, by Debian's cross
compiler.
"""

import argparse
import email.utils
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import version

ROOT = Path(__file__).resolve().parent.parent
PROFILE = "pkg.ratelimitd.bundled"  # hiredis and llhttp in tarballs of their own
GENERATED = {"build", ".deps", "__pycache__", "node_modules", ".git", ".hypothesis", "target", "dist", ".venv"}


def source_files():
    """The files of the tree, relative to it: those that git knows, or in a tarball's tree all that nothing has generated."""
    if version.commit_of()[0] != "unknown" and (ROOT / ".git").exists():
        listed = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z"], capture_output=True,
                                check=True).stdout.decode().split("\0")
        return sorted(name for name in listed if name and (ROOT / name).is_file())
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()
                  and not GENERATED & set(path.relative_to(ROOT).parts))


def mode_of(name):
    """Without what the umask of a clone has made of it."""
    return 0o755 if os.access(ROOT / name, os.X_OK) else 0o644


def write_tarball(path, top, names, epoch):
    """The same bytes for the same files, wherever and whenever they are packed."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            data = (ROOT / name).read_bytes()
            if name == "packaging/commit":
                data = ("%s %d %s" % version.commit_of()).strip().encode() + b"\n"
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime = len(data), epoch
            entry.mode = mode_of(name)
            archive.addfile(entry, io.BytesIO(data))
    path.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))


def distribution(root):
    lines = (Path(root or "/") / "etc/os-release").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line).get("VERSION_CODENAME", "unknown").strip('"')


def write_source(work, suite, bundled):
    """The unpacked source package below `work`, with its tarballs next to it."""
    upstream, (_, epoch, _) = version.version_of("deb"), version.commit_of()
    revision = f"1~{suite}"  # each suite's is linked with other libraries, and trixie's is the newer one
    names = source_files()
    write_tarball(work / f"ratelimitd_{upstream}.orig.tar.gz", f"ratelimitd-{upstream}",
                  [name for name in names if not name.startswith("debian/")], epoch)
    folder = work / f"ratelimitd-{upstream}"
    subprocess.run(["tar", "-xf", f"ratelimitd_{upstream}.orig.tar.gz"], cwd=work, check=True)
    for name in names:
        if name.startswith("debian/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
            (folder / name).chmod(mode_of(name))
    for part in version.Table().static if bundled else ():
        if part["sha256"] != "-":
            component = work / f"ratelimitd_{upstream}.orig-{part['name']}.tar.gz"
            write_component(component, part, Path(bundled))
            (folder / part["name"]).mkdir()
            subprocess.run(["tar", "-xf", component, "-C", folder / part["name"], "--strip-components=1"], check=True)
    log = folder / "debian/changelog"
    log.write_text(f"ratelimitd ({upstream}-{revision}) {suite}; urgency=medium\n\n  * Built from commit {version.commit_of()[0]}.\n\n"
                   f" -- The ratelimitd authors <placeholder@placeholder.invalid>  {email.utils.formatdate(epoch)}\n\n" + log.read_text())
    return folder


def write_component(path, part, tarballs):
    """An upstream tarball of our source package: Debian's own, or one folder of it."""
    name, _, inside = part["where"].partition(":")
    data = (tarballs / name).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != part["sha256"]:
        raise SystemExit(f"debs.py: {tarballs / name} has the SHA-256 {digest}; packaging/versions has {part['sha256']}")
    if not inside:
        path.write_bytes(data)
        return
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as whole, tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in whole:
            _, _, below = entry.name.partition(f"/{inside}/")
            if below and entry.isfile():
                entry.name = f"{part['name']}-{part['version']}/{below}"
                archive.addfile(entry, whole.extractfile(entry))
    path.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))


def run_in(root, folder, argv):
    """By chroot in `root`, if there is one: with a /proc of its own, and without network."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
           "TZ": os.environ.get("TZ", "UTC"), "DEB_BUILD_OPTIONS": f"parallel={os.cpu_count()} nocheck"}
    if root:
        inside = "/" + str(folder.relative_to(root))
        argv = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root}/proc", "chroot", root, "sh", "-c",
                'cd "$1" && shift && exec "$@"', "sh", inside, *argv]
    return subprocess.run(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL).returncode


def build(folder, root, bundled, host):
    profiles = [*([PROFILE] if bundled else []), *(["cross"] if host else [])]
    argv = ["dpkg-buildpackage", "-us", "-uc", *(["-P" + ",".join(profiles)] if profiles else []), *(["-a" + host, "-B"] if host else [])]
    if run_in(root, folder, argv):
        raise SystemExit("debs.py: dpkg-buildpackage failed")
    changes = next(folder.parent.glob("*.changes")).name
    return changes


def lint(work, root, changes):
    if run_in(root, work, ["lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags",
                           "bad-distribution-in-changes-file,initial-upload-closes-no-bugs", changes]):
        raise SystemExit("debs.py: lintian found errors or warnings")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bundled", metavar="FOLDER")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--host", metavar="ARCH")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()

    os.umask(0o022)  # dpkg-source packs the modes of folders, too
    root = options.root and options.root.resolve()
    suite = distribution(root)
    work = Path(tempfile.mkdtemp(prefix="package.", dir=root / "tmp" if root else None))
    work.chmod(0o755)
    try:
        source = write_source(work, suite, options.bundled)
        changes = build(source, root, bool(options.bundled), options.host)
        if not options.unchecked and not options.host:
            lint(work, root, changes)
        shutil.rmtree(options.folder, ignore_errors=True)
        (options.folder / "debug").mkdir(parents=True)
        for path in sorted(work.iterdir()):
            if path.is_file():
                shutil.move(path, options.folder / "debug" if "-dbgsym_" in path.name else options.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
