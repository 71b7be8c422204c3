#!/usr/bin/env python3
"""release.py: builds all that people install, twice, compares, installs and asks. It publishes nothing. docs/release.md.

    release.py --conditions [VERSION]                      what a bad tree is refused for, by name; builds nothing
    release.py --suite SUITE [--bundled FOLDER] RESULT    all the rest, with every tool installed; DEPS is ./dev's folder
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import debs
import sbom
import version

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lint"))
from tracked import tracked  # noqa: E402

DEPS = Path(os.environ.get("DEPS", ROOT / ".deps")).resolve()
PYTHON = DEPS / "release-venv/bin/python"  # with packaging/requirements.txt
GO_MODULES = ("", "rlgin", "rlecho", "rlgrpc")
JAVA_MODULES = ("ratelimitd-client", "ratelimitd-testing", "ratelimitd-spring-boot-starter")
UPGRADES = 100  # half of them back
URGENCY = "low|moderate|high|critical"
MANIFESTS = ("pyproject.toml", "package.json", "composer.json", "*.rockspec", "go.mod")
PLACES = {  # two ways to build: nothing of them may be in a file
    "one": {"TZ": "UTC", "umask": 0o022},
    "another-folder": {"TZ": "Pacific/Apia", "umask": 0o027},
}


# ---- what is refused before anything is built


def license_complaints(root=ROOT):
    """An archive that a registry takes begins at one of these folders."""
    if not (root / "LICENSE").exists():
        return ["LICENSE is missing"]
    found = {path.parent for path in tracked(root, *MANIFESTS, below="clients")
             if path.name == "go.mod" or "examples" not in path.relative_to(root).parts}
    folders = sorted(found | {root / "clients/java"})
    return [f"{folder.relative_to(root)}/LICENSE is missing, or is not a copy of LICENSE" for folder in folders
            if not (folder / "LICENSE").exists() or (folder / "LICENSE").read_text() != (root / "LICENSE").read_text()]


def changelog_complaints(wanted, dated):
    text = (ROOT / "CHANGELOG.md").read_text()
    entry = re.search(rf"^## {re.escape(wanted)}\b.*$", text, re.M)
    if not entry:
        return [f"CHANGELOG.md has no entry for {wanted}"]
    if dated and not re.search(rf"^## {re.escape(wanted)} \(\d{{4}}-\d\d-\d\d, upgrade urgency: ({URGENCY})\)$", entry[0]):
        return [f"CHANGELOG.md: `{entry[0]}`: write `## {wanted} (YYYY-MM-DD, upgrade urgency: {URGENCY.replace('|', ' or ')})`"]
    return []


def conditions(wanted):
    table = version.Table()
    base = table.values["version"]
    complaints = [*table.complaints(), *license_complaints(), *changelog_complaints(wanted or base, bool(wanted))]
    if wanted and wanted != base:
        complaints.append(f"packaging/versions has the version {base}, not {wanted}: packaging/version.py set {wanted}")
    changed = subprocess.run(["git", "-C", ROOT, "status", "--porcelain"], capture_output=True, text=True)
    if changed.returncode:
        complaints.append("this is not a git repository: a release is built from clones of it")
    elif changed.stdout:
        complaints.append("the tree has changes that no commit has: " + ", ".join(changed.stdout.split("\n")[:5]).strip(", "))
    if wanted and not complaints and version.version_of("daemon") != wanted:
        complaints.append(f"this commit is not tagged: git tag v{wanted}")
    return complaints


# ---- building


def run(argv, cwd=None, env=None, umask=0o022, quiet=True):
    done = subprocess.run([*map(str, argv)], cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, umask=umask, errors="replace")
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\nrelease: {' '.join(map(str, argv))}: exit status {done.returncode}")
    return done.stdout


def step(text, started=[time.monotonic()]):  # noqa: B006 # the time of the last step
    now = time.monotonic()
    print(f"release: {text} ({now - started[0]:.0f} s)", flush=True)
    started[0] = now


class Place:
    """A clean clone, and the files that are built in it."""

    def __init__(self, folder, name, suite, bundled):
        self.clone, self.files = folder / name / "ratelimitd", folder / name / "files"
        self.files.mkdir(parents=True)
        self.suite, self.bundled = suite, bundled
        self.umask = PLACES[name]["umask"]
        run(["git", "clone", "-q", ROOT, self.clone], umask=self.umask)
        self.version, self.epoch = version.version_of("daemon", self.clone), version.commit_of(self.clone)[1]
        self.env = {"TZ": PLACES[name]["TZ"], "SOURCE_DATE_EPOCH": str(self.epoch), "DEPS": str(DEPS),
                    "PATH": f"{DEPS}/bin:{os.environ['PATH']}"}

    def run(self, argv, cwd=None, **env):
        return run(argv, cwd or self.clone, {**self.env, **env}, self.umask)

    def build(self, checked):
        self.build_debian(checked)
        self.build_image(fetch=checked)
        self.build_tarballs()
        self.prepare_registries()
        self.build_python()
        self.build_node()
        self.build_java()
        self.build_lua()

    def prepare_registries(self):
        """npm and Maven take the files' modes as the umask of the clone has made them, so all get the usual ones."""
        self.umask = 0o022
        self.run(["chmod", "-R", "u=rwX,go=rX", "clients"])
        self.run([sys.executable, "packaging/version.py", "stamp"])

    def build_debian(self, checked):
        result = self.clone / "build/package" / self.suite
        self.run([sys.executable, "packaging/debs.py", *(["--bundled", self.bundled] if self.bundled else []),
                  *([] if checked else ["--unchecked"]), result])
        for path in [*result.glob("*.deb"), *result.glob("debug/*.deb"), *result.glob("*.dsc"), *result.glob("*.tar.*")]:
            shutil.copy(path, self.files)

    def build_image(self, fetch):
        arch = run(["dpkg", "--print-architecture"]).strip()
        layout = self.clone / "build/image"
        self.run([sys.executable, "packaging/image.py", "--arch", arch, "--packages", self.clone / "build/package" / self.suite,
                  "--debian", DEPS / f"image-{arch}", *(["--fetch"] if fetch else []), layout])
        with tarfile.open(self.files / f"ratelimitd-image-{self.version}-{arch}.oci.tar", "w", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted(path for path in layout.rglob("*") if path.is_file()):
                entry = tarfile.TarInfo(str(path.relative_to(layout)))
                entry.size, entry.mtime = path.stat().st_size, self.epoch
                with open(path, "rb") as data:
                    archive.addfile(entry, data)
        shutil.copy(self.clone / "build/image.spdx.json", self.files / f"ratelimitd-image-{self.version}-{arch}.spdx.json")

    def build_tarballs(self):
        """The source, and the folder that Composer takes."""
        script = ("import debs, pathlib, version; names = debs.source_files(); v = version.version_of('daemon'); "
                  f"out = pathlib.Path({str(self.files)!r}); epoch = version.commit_of()[1]; "
                  "debs.write_tarball(out / f'ratelimitd-{v}-source.tar.gz', f'ratelimitd-{v}', names, epoch); "
                  "php = [name for name in names if name.startswith('clients/php/') and '/tests/' not in name]; "
                  "debs.write_tarball(out / f'ratelimitd-php-{v}.tar.gz', f'ratelimitd-php-{v}', php, epoch)")
        self.run([sys.executable, "-c", script], cwd=self.clone / "packaging")

    def build_python(self):
        self.run([PYTHON, "-m", "build", "--no-isolation", "--outdir", self.files, "."],
                 cwd=self.clone / "clients/python")

    def build_node(self):
        cache = {"npm_config_cache": str(DEPS / "clients/node/cache"), "npm_config_prefer_offline": "true",
                 "npm_config_audit": "false", "npm_config_fund": "false"}
        self.run(["npm", "ci", "--ignore-scripts"], cwd=self.clone / "clients/node", **cache)
        self.run(["npm", "pack", "--pack-destination", self.files], cwd=self.clone / "clients/node", **cache)

    def build_java(self):
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.epoch))
        self.run(["mvn", "-B", "-ntp", "-q", f"-Dmaven.repo.local={DEPS}/clients/m2", "-Prelease", "-DskipTests",
                  f"-Dproject.build.outputTimestamp={created}", "-pl", ",".join([".", *JAVA_MODULES]), "package"],
                 cwd=self.clone / "clients/java")
        for module in JAVA_MODULES:
            for path in (self.clone / "clients/java" / module / "target").glob("*.jar"):
                shutil.copy(path, self.files)

    def build_lua(self):
        rock = version.version_of("rock", self.clone)
        shutil.copy(self.clone / "clients/lua/ratelimitd.rockspec", self.files / f"ratelimitd-{rock}-1.rockspec")


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def differences(one, other):
    return [f"{name}: {one.get(name, 'is missing')} in one place, {other.get(name, 'is missing')} in the other"
            for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def refuse_differences(one, other):
    """`one`, `other`: the files of two places."""
    found = differences(digests(one), digests(other))
    if found:
        raise SystemExit("release: the same commit gives other bytes elsewhere:\n" + "\n".join(found))


# ---- installing: each file into an empty environment, which makes one check

PYTHON_CHECK = "import ratelimitd; print(ratelimitd.Client(timeout=30).check('default', 'k').allowed)"
NODE_CHECK = """import { RateLimiter } from 'ratelimitd'
const limiter = new RateLimiter({ timeoutMs: 30000 })
console.log((await limiter.check('default', 'k')).allowed)
process.exit(0)
"""
GO_CHECK = """package main

import (
\t"context"
\t"fmt"
\t"time"

\tratelimit "github.com/ratelimitd/ratelimitd/clients/go"
%s)

func main() {
\tclient := ratelimit.New(ratelimit.WithTimeout(30 * time.Second))
\tdecision, err := client.Check(context.Background(), "default", "k")
\tfmt.Println(decision.Allowed && err == nil)
}
"""
JAVA_CHECK = """import io.ratelimitd.RateLimitClient;

public class Ask {
    public static void main(String[] arguments) throws Exception {
        try (RateLimitClient limiter = RateLimitClient.builder().timeout(java.time.Duration.ofSeconds(30)).build()) {
            System.out.println(limiter.check("default", "k").allowed());
        }
    }
}
"""
LUA_CHECK = """
    init_by_lua_block { limiter = require("ratelimitd").new{ socket = "SOCKET", timeout = 30000 } }
    server {
        listen 127.0.0.1:PORT;
        location / {
            rewrite_by_lua_block { limiter:limit{ policy = "default" } }
            content_by_lua_block { ngx.say(tostring(limiter:decision().allowed)) }
        }
    }
"""
PHP_CHECK = """<?php
require 'autoload.php';
var_dump((new Ratelimitd\\Client(timeout: 30))->check('default', 'k')->allowed);
"""


class Installer:
    def __init__(self, files, folder, clone):
        self.files, self.folder, self.clone = files, folder, clone
        unpacked = folder / "daemon"
        run(["dpkg-deb", "-x", self.one("ratelimitd_*.deb"), unpacked])
        self.env = {"RATELIMIT_SOCKET": str(folder / "s"), "PATH": f"{DEPS}/bin:{os.environ['PATH']}"}
        self.daemon = subprocess.Popen([unpacked / "usr/bin/ratelimitd", "-s", folder / "s"], stderr=subprocess.DEVNULL)
        for _ in range(300):
            if (folder / "s").exists():
                return
            time.sleep(0.1)
        raise SystemExit("release: the packaged daemon did not start")

    def one(self, pattern):
        found = sorted(self.files.glob(pattern))
        if len(found) != 1:
            raise SystemExit(f"release: {pattern}: {[path.name for path in found]}")
        return found[0]

    def empty(self, name, **texts):
        folder = self.folder / name
        folder.mkdir()
        for file, text in texts.items():
            (folder / file.replace("__", ".")).write_text(text)
        return folder

    def said(self, output, word="true"):
        if output.strip().splitlines()[-1].lower() not in (word, "bool(true)"):
            raise SystemExit(f"release: the check said {output!r}")

    def python(self):
        venv = self.folder / "venv"
        run([sys.executable, "-m", "venv", venv])
        run([venv / "bin/pip", "--quiet", "--disable-pip-version-check", "install", self.one("ratelimitd-*.whl")])
        self.said(run([venv / "bin/python", "-c", PYTHON_CHECK], cwd=self.folder, env=self.env))

    def node(self):
        project = self.empty("node", package__json='{"name": "empty", "private": true}\n', ask__mjs=NODE_CHECK)
        run(["npm", "install", self.one("ratelimitd-*.tgz")], cwd=project, env={
            **self.env, "npm_config_cache": str(DEPS / "clients/node/cache"), "npm_config_audit": "false", "npm_config_fund": "false"})
        self.said(run(["node", "ask.mjs"], cwd=project, env=self.env))

    def java(self):
        project = self.empty("java", Ask__java=JAVA_CHECK)
        msgpack = sorted((DEPS / "clients/m2/org/msgpack/msgpack-core").rglob("*.jar"))[-1]
        jar = next(path for path in self.files.glob("ratelimitd-client-*.jar") if not re.search("-(sources|javadoc).jar$", path.name))
        classes = f"{jar}:{msgpack}:."
        run(["javac", "-cp", classes, "Ask.java"], cwd=project)
        self.said(run(["java", "-cp", classes, "Ask"], cwd=project, env=self.env))

    def go(self):
        """From a bare clone that has the tags of a release; the address leads there."""
        bare = self.folder / "github.git"
        run(["git", "clone", "-q", "--bare", ROOT, bare])
        base = version.Table().values["version"]
        for module in GO_MODULES:
            run(["git", "-C", bare, "tag", "-f", "/".join(filter(None, ["clients/go", module, f"v{base}"])), "HEAD"])
        config = self.folder / "gitconfig"
        config.write_text(f'[url "file://{bare}"]\n\tinsteadOf = https://github.com/ratelimitd/ratelimitd\n[safe]\n\tdirectory = *\n')
        names = [f"github.com/ratelimitd/ratelimitd/clients/go{'/' + module if module else ''}" for module in GO_MODULES]
        project = self.empty("go", main__go=GO_CHECK % "".join(f'\t_ "{name}"\n' for name in names[1:]))
        env = {**self.env, "GIT_CONFIG_GLOBAL": str(config), "GOPRIVATE": "github.com/ratelimitd", "GOWORK": "off", "GOFLAGS": "-modcacherw",
               "GOTOOLCHAIN": "local", "GOMODCACHE": str(self.folder / "gomod"), "GOCACHE": str(DEPS / "clients/go/cache"),
               "GOPROXY": f"file://{DEPS}/clients/go/mod/cache/download,{run(['go', 'env', 'GOPROXY']).strip()}"}
        run(["go", "mod", "init", "example.com/empty"], cwd=project, env=env)
        run(["go", "get", *(f"{name}@v{base}" for name in names)], cwd=project, env=env)
        run(["go", "mod", "tidy"], cwd=project, env=env)
        self.said(run(["go", "run", "."], cwd=project, env=env))
        for name in names:
            module = run(["go", "list", "-m", "-f", "{{.Dir}}", name], cwd=project, env=env).strip()
            if not (Path(module) / "LICENSE").exists():
                raise SystemExit(f"release: the module {name} has no LICENSE")

    def php(self):
        """The archive as Composer unpacks it, by its autoloader."""
        sys.path.insert(0, str(ROOT / "clients"))
        import gateways
        run(["tar", "-xf", self.one("ratelimitd-php-*.tar.gz"), "-C", self.folder])
        source = next(self.folder.glob("ratelimitd-php-*")) / "clients/php/src"
        (source / "ask.php").write_text(PHP_CHECK)
        self.said(run(gateways.php("ask.php"), cwd=source, env={**self.env, "LD_LIBRARY_PATH": gateways.ENV["LD_LIBRARY_PATH"]}))

    def lua(self):
        """In nginx: the modules of the Debian package, and those that LuaRocks installs."""
        sys.path.insert(0, str(ROOT / "clients"))
        import gateways
        package, tree = self.folder / "lua-package", self.folder / "lua-tree"
        run(["dpkg-deb", "-x", self.one("lua-ratelimitd_*.deb"), package])
        run(["luarocks", "--lua-version", "5.1", "--tree", tree, "make", self.one("*.rockspec")], cwd=self.clone / "clients/lua")
        for folder in (package / "usr", tree):
            nginx = gateways.start_nginx(self.empty(f"nginx-{folder.name}"), LUA_CHECK.replace("SOCKET", self.env["RATELIMIT_SOCKET"]),
                                         lua=[folder / "share/lua/5.1"])
            try:
                self.said(nginx.get("/")[2])
            finally:
                nginx.close()

    def close(self):
        self.daemon.terminate()
        self.daemon.wait(30)


# ---- the whole


def publish_commands(files, address):
    names = digests(files)
    ours = version.version_of("daemon")
    first = [f"# {address} is a placeholder, and the names below are not ours yet: none of these works before that is settled."] \
        if "placeholder" in address else []
    one = lambda end: next((name for name in names if name.endswith(end)), "")  # noqa: E731
    return [*first,
            f"git push ORIGIN v{ours} {' '.join('/'.join(filter(None, ['clients/go', module, f'v{ours}'])) for module in GO_MODULES)}",
            f"twine upload {one('.whl')} ratelimitd-{version.version_of('python')}.tar.gz",
            f"npm publish {one('.tgz')}",
            "mvn -f clients/java -Prelease deploy",
            f"skopeo copy oci-archive:{one('.oci.tar')} docker://REGISTRY/ratelimitd:{ours}",
            f"luarocks upload {one('.rockspec')}",
            "# Packagist reads the tag of a repository that has clients/php alone: git subtree split --prefix clients/php",
            "# Debian packages: to a repository of your own, with reprepro or aptly."]


def release(suite, bundled, result):
    with tempfile.TemporaryDirectory(prefix="release.") as work:
        work = Path(work)
        work.chmod(0o755)
        places = [Place(work, name, suite, bundled) for name in PLACES]
        for place, checked in zip(places, (True, False)):
            place.build(checked)
            step(f"built {len(digests(place.files))} files in {place.clone.parent.name}")
        one = places[0]
        refuse_differences(one.files, places[1].files)
        step("both are the same, byte by byte")

        document = one.files / f"ratelimitd-{one.version}.spdx.json"
        document.write_text(json.dumps(sbom.document("ratelimitd", [], bool(bundled)), indent=1) + "\n")
        for path in one.files.glob("*.spdx.json"):
            run([PYTHON, "-m", "spdx_tools.spdx.clitools.pyspdxtools", "-i", path])
        run([PYTHON, "-m", "twine", "check", "--strict", *one.files.glob("*.whl"),
             one.files / f"ratelimitd-{version.version_of('python', one.clone)}.tar.gz"])
        step("the lists of parts are SPDX 2.3, and twine accepts what is for PyPI")

        (work / "i").mkdir()
        installer = Installer(one.files, work / "i", one.clone)
        try:
            for name in ("python", "node", "java", "go", "php", "lua"):
                getattr(installer, name)()
                step(f"{name}: installed into an empty environment, and its check was answered")
        finally:
            installer.close()

        text = run([sys.executable, "tests/package/run", suite], cwd=one.clone, env={
            "DEPS": str(DEPS), "UPGRADES": str(UPGRADES), "TEST_RESULTS": str(ROOT / "build/test/release")})
        print(text, end="")
        step(f"packages, image and pods; {UPGRADES} upgrades and ways back under calls")

        shutil.copy(ROOT / "packaging/THIRD-PARTY", one.files)
        shutil.rmtree(result, ignore_errors=True)
        shutil.copytree(one.files, result)
        (result / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in digests(one.files).items()))
    print(f"release: {version.version_of('daemon')} lies in {result}, with SHA256SUMS. To publish it, a person runs there:")
    if version.version_of("daemon") != version.version_of("base"):
        print("    # Only the tagged commit is the release; this is a build on the way to it.")
    print("\n".join(f"    {line}" for line in publish_commands(result, version.Table().values["address"])))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--conditions", action="store_true")
    parser.add_argument("--suite")
    parser.add_argument("--bundled", metavar="FOLDER")
    parser.add_argument("argument", nargs="?")
    options = parser.parse_args()
    if options.conditions:
        complaints = conditions(options.argument)
        for complaint in complaints:
            print(f"release: {complaint}", file=sys.stderr)
        return 1 if complaints else 0
    release(options.suite, options.bundled, Path(options.argument).resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
