#!/usr/bin/env python3
"""image.py: writes the container image as an OCI layout, from our Debian packages and Debian's. `./dev image` calls it.

    image.py --arch ARCH --packages FOLDER --debian FOLDER [--fetch] RESULT

--packages has our .deb files, --debian those that they depend on; with --fetch, apt downloads these first. The image has the two programs, the shared libraries that they
need by their ELF headers, the time zones, and the records and licences of all of this: no shell, no package manager, no CAs.
The same commit and packages give the same bytes.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import sbom
import version

ROOT = Path(__file__).resolve().parent.parent
UID = 7429  # its own: an application with the same uid could open the control socket
LARGEST = 6 * 1024 * 1024  # of the packed layer
PROGRAMS = ("usr/bin/ratelimitd", "usr/bin/ratelimitctl")
LOADED_LATER = ("libgcc_s.so.1", "libssl.so.3")  # by glibc, when a thread ends; by the daemon, with TLS
DOCUMENTS = "usr/share/doc/ratelimitd"


class Files:
    """The entries of several packages by their path, as on a system whose /lib is /usr/lib."""

    def __init__(self):
        self.entries = {}  # path -> (TarInfo, bytes, package)

    def add_package(self, deb):
        fields = subprocess.run(["dpkg-deb", "-f", deb], capture_output=True, text=True, check=True).stdout
        name = re.search(r"^Package: (.*)$", fields, re.M)[1]
        packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for entry in archive:
                data = archive.extractfile(entry).read() if entry.isfile() or entry.islnk() else b""
                self.entries[usr_merged(entry.name)] = (entry, data, name)
        return name, fields

    def resolve(self, path):
        """`path`, and every link on the way to the file that it means."""
        yield path
        entry = self.entries[path][0]
        if entry.issym():
            yield from self.resolve(usr_merged(posixpath.normpath(posixpath.join(posixpath.dirname("/" + path), entry.linkname))))

    def find(self, name):
        found = [path for path in self.entries if posixpath.basename(path) == name and path.startswith("usr/lib")]
        if not found:
            raise SystemExit(f"image.py: no package has {name}")
        return min(found, key=len)


def usr_merged(name):
    name = name.lstrip("./")
    return re.sub(r"^(bin|sbin|lib|lib64)/", r"usr/\1/", name)


def needed(data):
    """(names of shared libraries, interpreter or None) of an ELF file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        text = subprocess.run(["readelf", "-W", "-d", "-l", file.name], capture_output=True, text=True, check=True).stdout
    interpreter = re.search(r"program interpreter: (.*)\]", text)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text), interpreter and usr_merged(interpreter[1])


def chosen(files):
    """Paths of the image: the programs, what they need, time zones."""
    paths, waiting = set(), [*PROGRAMS, *(files.find(name) for name in LOADED_LATER)]
    while waiting:
        for path in files.resolve(waiting.pop()):
            if path in paths:
                continue
            paths.add(path)
            if files.entries[path][0].isfile():
                names, interpreter = needed(files.entries[path][1])
                waiting += [files.find(name) for name in names] + ([interpreter] if interpreter else [])
    zones = "usr/share/zoneinfo/"
    paths |= {path for path in files.entries if path.startswith(zones) and not path.startswith((zones + "posix/", zones + "right/"))
              and not files.entries[path][0].isdir()}
    return paths


def layer(files, paths, debs, arch, epoch):
    """The layer's tar, and the records of the packages in it."""
    content = {}  # path -> (mode, data or link)
    for path in paths:
        entry, data, _ = files.entries[path]
        content[path] = (0o777, entry.linkname) if entry.issym() else (0o755 if path in PROGRAMS or ".so" in path else 0o644, data)
    present = {files.entries[path][2] for path in paths}
    contained = []
    for name, fields in debs:
        if name not in present:
            continue
        contained.append((name, re.search(r"^Version: (.*)$", fields, re.M)[1], arch))
        content[f"var/lib/dpkg/status.d/{name}"] = (0o644, fields.encode())  # what scanners read
        content[f"usr/share/doc/{name}/copyright"] = (0o644, copyright_of(files, name))
    bundled = not any("libhiredis" in path for path in paths)
    content[f"{DOCUMENTS}/THIRD-PARTY"] = (0o644, (ROOT / "packaging/THIRD-PARTY").read_bytes())
    document = sbom.document("ratelimitd-image", contained, bundled)
    content[f"{DOCUMENTS}/sbom.spdx.json"] = (0o644, (json.dumps(document, indent=1) + "\n").encode())
    content["etc/passwd"] = (0o644, f"root:x:0:0:root:/:/nologin\nratelimitd:x:{UID}:{UID}:ratelimitd:/:/nologin\n".encode())
    content["etc/group"] = (0o644, f"root:x:0:\nratelimit:x:{UID}:\n".encode())
    content["etc/os-release"] = (0o644, b'ID=debian\nNAME="ratelimitd on Debian"\n')
    for name in ("bin", "lib", "lib64"):
        content[name] = (0o777, f"usr/{name}")

    folders = {"tmp": (0o1777, 0), "run/ratelimitd": (0o755, UID), "etc/ratelimitd": (0o755, 0), "proc": (0o555, 0),
               "sys": (0o555, 0), "dev": (0o755, 0)}
    for path in [*content, *folders]:
        while path := posixpath.dirname(path):
            folders.setdefault(path, (0o755, 0))

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted([*content, *folders]):
            entry = tarfile.TarInfo(path)
            entry.mtime = epoch
            if path in folders:
                entry.type = tarfile.DIRTYPE
                entry.mode, entry.uid = folders[path]
                entry.gid = entry.uid
                archive.addfile(entry)
            elif isinstance(content[path][1], str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content[path][1]
                entry.mode = 0o777
                archive.addfile(entry)
            else:
                entry.mode, data = content[path]
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue(), document


def copyright_of(files, name):
    """Some packages have another one's folder by a link."""
    folder = f"usr/share/doc/{name}"
    if folder in files.entries and files.entries[folder][0].issym():
        folder = posixpath.normpath(posixpath.join("usr/share/doc", files.entries[folder][0].linkname))
    return files.entries[f"{folder}/copyright"][1]


class Layout:
    def __init__(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')

    def blob(self, kind, data, **more):
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data), **more}

    def index(self, manifest):
        (self.folder / "index.json").write_text(json.dumps(
            {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}, indent=1) + "\n")


def fetch(ours, folder):
    """As if nothing were installed: apt then downloads all that they depend on."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "partial").mkdir(parents=True)
    (folder / "status").touch()
    done = subprocess.run(["apt-get", "-qq", "-y", "--download-only", "--no-install-recommends", "-o", "APT::Sandbox::User=root",
                           "-o", "Debug::NoLocking=1", "-o", f"Dir::State::status={folder}/status",
                           "-o", f"Dir::Cache::archives={folder}", "install", *(path.resolve() for path in ours)],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}image.py: apt-get failed")


def write(result, tar, arch):
    commit, epoch, _ = version.commit_of()
    ours = version.version_of("daemon")
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"org.opencontainers.image.title": "ratelimitd", "org.opencontainers.image.version": ours,
              "org.opencontainers.image.revision": commit, "org.opencontainers.image.licenses": "MIT",
              "org.opencontainers.image.description": "Rate-limit sidecar on a Unix socket"}
    layout = Layout(result)
    packed = layout.blob("layer.v1.tar+gzip", gzip.compress(tar, 9, mtime=0))
    if packed["size"] > LARGEST:
        raise SystemExit(f"image.py: the layer has {packed['size']} bytes; {LARGEST:.0f} are the most")
    config = layout.blob("config.v1+json", json.dumps({
        "created": created, "architecture": arch, "os": "linux",
        "config": {"User": f"{UID}:{UID}", "Entrypoint": ["/usr/bin/ratelimitd"], "WorkingDir": "/", "StopSignal": "SIGTERM",
                   "Env": ["PATH=/usr/bin", "RATELIMIT_SOCKET=/run/ratelimitd/ratelimitd.sock"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
        "history": [{"created": created, "created_by": "packaging/image.py"}],
    }).encode())
    manifest = layout.blob("manifest.v1+json", json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [packed],
        "annotations": {**labels, "org.opencontainers.image.created": created},
    }).encode(), platform={"architecture": arch, "os": "linux"}, annotations={"org.opencontainers.image.ref.name": ours})
    layout.index(manifest)
    return packed["size"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", required=True, choices=("amd64", "arm64"))
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("result", type=Path)
    options = parser.parse_args()

    files, debs = Files(), []
    ours = [path for name in ("ratelimitd", "ratelimitctl") for path in options.packages.glob(f"{name}_*_{options.arch}.deb")]
    if len(ours) != 2:
        raise SystemExit(f"image.py: {options.packages} has not one ratelimitd and one ratelimitctl for {options.arch}")
    if options.fetch:
        fetch(ours, options.debian.resolve())
    for deb in [*sorted(options.debian.glob("*.deb")), *ours]:
        debs.append(files.add_package(deb))
    tar, document = layer(files, chosen(files), debs, options.arch, version.commit_of()[1])
    size = write(options.result, tar, options.arch)
    (options.result.parent / f"{options.result.name}.spdx.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(tar) / 2**20:.1f} MiB, {size / 2**20:.1f} MiB packed")


if __name__ == "__main__":
    sys.exit(main())
