"""test_image.py: the image that `./dev image` has written: what is in it, and what tools of others say of it."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from bare import ROOT, SUITE

sys.path.insert(0, str(ROOT / "packaging"))
import version  # noqa: E402

LAYOUT = ROOT / "build" / "image"


def blob(descriptor):
    return (LAYOUT / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()


@pytest.fixture(scope="module", autouse=True)
def written():
    if not LAYOUT.exists():
        pytest.skip("build/image is made by ./dev image, of packages for this system's suite")


@pytest.fixture(scope="module")
def manifest():
    return json.loads(blob(json.loads((LAYOUT / "index.json").read_text())["manifests"][0]))


@pytest.fixture(scope="module")
def files(manifest):
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(manifest["layers"][0])))) as archive:
        return {entry.name: (entry, archive.extractfile(entry).read() if entry.isfile() else b"") for entry in archive}


def test_every_blob_is_what_its_name_says(manifest):
    for path in (LAYOUT / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    config = json.loads(blob(manifest["config"]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(gzip.decompress(blob(manifest['layers'][0]))).hexdigest()}"]


def test_skopeo_and_umoci_accept_it(tmp_path):
    if not shutil.which("skopeo") or not shutil.which("umoci"):
        pytest.skip("no skopeo or no umoci")
    seen = json.loads(subprocess.run(["skopeo", "inspect", f"oci:{LAYOUT}"], check=True, capture_output=True, text=True).stdout)
    assert seen["Labels"]["org.opencontainers.image.version"] == version.version_of("daemon")
    subprocess.run(["skopeo", "--insecure-policy", "copy", f"oci:{LAYOUT}", f"docker-archive:{tmp_path}/image.tar:ratelimitd:test"],
                   check=True, capture_output=True)
    if os.geteuid() == 0:
        subprocess.run(["umoci", "unpack", "--image", f"{LAYOUT}:{version.version_of('daemon')}", tmp_path / "bundle"], check=True,
                       capture_output=True)


def test_it_is_small(manifest):
    assert sum(layer["size"] for layer in manifest["layers"]) <= 6 * 1024 * 1024


def test_it_says_what_it_is_and_runs_as_a_user_of_its_own(manifest):
    config = json.loads(blob(manifest["config"]))
    commit, _, _ = version.commit_of()
    labels = config["config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "ratelimitd" and labels["org.opencontainers.image.licenses"] == "MIT"
    assert labels["org.opencontainers.image.revision"] == commit
    assert config["config"]["User"] == "7429:7429" and config["config"]["StopSignal"] == "SIGTERM"
    assert config["config"]["Entrypoint"] == ["/usr/bin/ratelimitd"] and "Volumes" not in config["config"]
    created = subprocess.run(["date", "-u", "-d", config["created"], "+%s"], capture_output=True, text=True).stdout.strip()
    assert int(created) == version.commit_of()[1]


def test_it_has_two_programs_and_no_others(files):
    programs = sorted(name for name, (entry, _) in files.items() if entry.isfile() and entry.mode & 0o111 and ".so" not in name)
    assert programs == ["usr/bin/ratelimitctl", "usr/bin/ratelimitd"]
    assert not [name for name in files if re.search(r"(^|/)(sh|bash|dash|apt|dpkg|chown|busybox)$", name) and files[name][0].isfile()]
    assert not [name for name, (entry, _) in files.items() if entry.mode & 0o6000]
    assert not [name for name, (entry, _) in files.items() if entry.mode & 0o2 and not entry.issym() and name != "tmp"]


def test_every_part_is_in_the_list_of_parts_and_has_its_licence(files):
    document = json.loads(files["usr/share/doc/ratelimitd/sbom.spdx.json"][1])
    listed = {package["name"] for package in document["packages"]}
    recorded = {name.rpartition("/")[2] for name in files if name.startswith("var/lib/dpkg/status.d/") and files[name][0].isfile()}
    assert recorded <= listed and {"libc6", "ratelimitd", "msgpack-c"} <= listed
    assert ("hiredis" in listed) == ("llhttp" in listed) == (SUITE == "bookworm")
    assert all(f"usr/share/doc/{name}/copyright" in files for name in recorded)
    assert b"FURUHASHI" in files["usr/share/doc/ratelimitd/THIRD-PARTY"][1]
    known = {"SPDXRef-DOCUMENT", *(package["SPDXID"] for package in document["packages"])}
    assert all({relation["spdxElementId"], relation["relatedSpdxElement"]} <= known for relation in document["relationships"])
    assert len(known) == len(document["packages"]) + 1


def test_the_same_packages_give_the_same_bytes(tmp_path):
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
    deps = os.environ.get("DEPS", ROOT / ".deps")
    subprocess.run([sys.executable, ROOT / "packaging/image.py", "--arch", arch, "--packages", ROOT / "build/package" / SUITE, "--debian",
                    f"{deps}/image-{arch}", tmp_path / "image"], check=True, env={**os.environ, "TZ": "Pacific/Apia"}, capture_output=True)
    assert (tmp_path / "image/index.json").read_bytes() == (LAYOUT / "index.json").read_bytes()
