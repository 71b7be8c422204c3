"""test_packages.py: the Debian packages, installed, upgraded, downgraded and removed where nothing else is.

An older and a newer version are the built packages under other version numbers; a variant has another socket unit.
"""

import os
import re
import subprocess
import threading

import pytest
from bare import BASE, BUILT, ROOT, SUITE, Bare, repacked, why_not
from harness import Client, RpcError

SOCKET = "/run/ratelimitd/ratelimitd.sock"
CONFIG = "/etc/ratelimitd/ratelimitd.yaml"
PROGRAMS = {"ratelimitd": "usr/bin/ratelimitd", "ratelimitctl": "usr/bin/ratelimitctl",
            "libratelimit0": f"usr/lib/{subprocess.run(['dpkg-architecture', '-qDEB_HOST_MULTIARCH'], capture_output=True, text=True).stdout.strip()}"
                             "/libratelimit.so.0"}


def built(name):
    found = [path for path in BUILT.glob(f"{name}_*.deb")]
    assert len(found) == 1, f"{BUILT} has {found}"
    return found[0]


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """A folder with the versions, whose dependencies are in the base system's cache."""
    folder = tmp_path_factory.mktemp("packages")
    folder.chmod(0o755)
    for name in ("ratelimitd", "ratelimitctl", "libratelimit0", "libratelimit-dev", "lua-ratelimitd"):
        (folder / f"{name}.deb").write_bytes(built(name).read_bytes())

    def other_socket(unpacked):
        unit = next(unpacked.rglob("ratelimitd.socket"))
        unit.write_text(unit.read_text().replace("Backlog=4096", "Backlog=2048"))

    def without_relation(unpacked):  # so that the versions of ratelimitd alone change
        control = unpacked / "DEBIAN/control"
        control.write_text(re.sub(r"^Recommends: .*\n", "", control.read_text(), flags=re.M))

    repacked(built("ratelimitd"), folder / "older.deb", "0.0.1", without_relation)
    repacked(built("ratelimitd"), folder / "newer.deb", "9.0.0", without_relation)
    repacked(built("ratelimitd"), folder / "socket.deb", "9.0.1", other_socket)

    into = BASE / "tmp/packages"
    subprocess.run(["rm", "-rf", into], check=True)
    subprocess.run(["cp", "-r", folder, into], check=True)
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", f"--mount-proc={BASE}/proc", "chroot", BASE, "sh", "-c",
                           "apt-get -qq update && apt-get install -y -qq --download-only --no-install-recommends "
                           "/tmp/packages/ratelimitd.deb /tmp/packages/ratelimitctl.deb /tmp/packages/lib*.deb"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def system(packages):
    if reason := why_not():
        pytest.skip(f"systemd cannot run here: {reason}")
    booted = Bare(packages)
    booted.boot()
    yield booted
    booted.close()


@pytest.fixture
def installed(system):
    system.install("older.deb", "ratelimitctl.deb")
    return system


class Calls:
    """A client that asks all the time: on new connections, none of which may fail; and on one that it keeps. When the daemon ends, it
    closes that one, and the client connects again and repeats the call, as the clients of web frameworks do."""

    def __init__(self, system):
        self.path = str(system.path(SOCKET))
        self.done, self.failed, self.ended = 0, [], threading.Event()
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self):
        kept = Client(self.path, 20)
        while not self.ended.wait(0.002):
            try:
                with Client(self.path, 20) as fresh:
                    fresh.check("default", "k")
                try:
                    kept.check("default", "k")
                except (EOFError, BrokenPipeError, ConnectionResetError):
                    kept = Client(self.path, 20)
                    kept.check("default", "k")
                self.done += 2
            except (OSError, EOFError, RpcError) as error:
                self.failed.append(repr(error))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.ended.set()
        self.thread.join()
        assert self.failed == [] and self.done > 0, (self.done, self.failed[:5])


def sockets_since(system):
    return [system.property("ActiveEnterTimestampMonotonic", unit) for unit in ("ratelimitd.socket", "ratelimitd-control.socket")]


def test_after_the_installation_the_service_runs_and_answers(system):
    system.install("ratelimitd.deb", "ratelimitctl.deb", "libratelimit0.deb", "libratelimit-dev.deb", "lua-ratelimitd.deb")
    assert all(system.is_active(unit) for unit in ("ratelimitd.service", "ratelimitd.socket", "ratelimitd-control.socket"))
    assert all(system.systemctl("is-enabled", unit).stdout.strip() == "enabled"
               for unit in ("ratelimitd.service", "ratelimitd.socket", "ratelimitd-control.socket"))
    assert "allowed" in system.must("ratelimitctl", "check", "default", "alice")
    assert system.must("stat", "--format=%U:%G %a", SOCKET).split("\n")[0] == "root:ratelimit 660"
    for name in ("systemd/redis.conf", "deploy/prometheus/ratelimitd.rules.yml"):
        system.must("test", "-e", f"/usr/share/doc/ratelimitd/examples/{name}")
    tests = ROOT / "debian/tests"
    for name in ("answers", "library"):  # as autopkgtest runs them
        system.path(f"/run/{name}").write_text((tests / name).read_text())
        system.must("sh", f"/run/{name}")


def test_an_upgrade_and_a_rollback_restart_only_the_service_and_no_call_fails(installed):
    """Once and back; `./dev release` asks for more of them."""
    since, processes = sockets_since(installed), [installed.property("MainPID")]
    with Calls(installed):
        for _ in range(max(int(os.environ.get("UPGRADES", 2)) // 2, 1)):
            for name in ("newer.deb", "older.deb"):
                installed.install(name)
                processes.append(installed.property("MainPID"))
    assert len(set(processes)) == len(processes) and sockets_since(installed) == since


def test_sockets_whose_unit_has_changed_are_made_again(installed):
    since = sockets_since(installed)
    installed.install("socket.deb")
    assert sockets_since(installed) != since and installed.property("Backlog", "ratelimitd.socket") == "2048"
    assert installed.is_active() and "allowed" in installed.must("ratelimitctl", "check", "default", "alice")


def test_a_configuration_that_the_new_version_refuses_leaves_the_old_process_running(installed):
    pid = installed.property("MainPID")
    installed.configure("policies: {default: {algorithm: fixed_window, limit: many, window: 1h}}\n")
    output = installed.install("newer.deb")
    assert "this version refuses the configuration, so the old process goes on" in output
    assert f"{CONFIG}:1: policies.default.limit" in output
    assert installed.property("MainPID") == pid and installed.is_active()
    assert "allowed" in installed.must("ratelimitctl", "check", "default", "alice")
    assert "9.0.0" in installed.must("dpkg-query", "-W", "ratelimitd")


def test_a_changed_configuration_is_kept(installed):
    mine = "policies: {mine: {algorithm: fixed_window, limit: 5, window: 1h}}\n"
    installed.configure(mine)
    installed.install("newer.deb")
    assert installed.path(CONFIG).read_text() == mine
    assert "remaining 4/5" in installed.must("ratelimitctl", "check", "mine", "alice")


def test_removal_stops_all_purge_forgets_the_configuration_and_an_installation_begins_anew(installed):
    installed.must("dpkg", "--remove", "ratelimitd")
    assert not installed.is_active() and not installed.path(SOCKET).exists() and installed.path(CONFIG).exists()
    installed.must("dpkg", "--purge", "ratelimitd")
    assert not installed.path("/etc/ratelimitd").exists()
    left = installed.must("sh", "-c", "find /etc/systemd /var/lib/systemd/deb-systemd-helper* -name '*ratelimit*' 2>/dev/null || true")
    assert left == ""
    assert "ratelimit" in installed.path("/etc/group").read_text()  # files may belong to it
    installed.install("older.deb")
    assert installed.is_active() and "allowed" in installed.must("ratelimitctl", "check", "default", "alice")


def test_a_masked_service_is_left_alone(system):
    system.must("systemctl", "mask", "ratelimitd.service")
    system.install("older.deb", "ratelimitctl.deb")
    assert not system.is_active()
    system.install("newer.deb")
    assert not system.is_active() and "9.0.0" in system.must("dpkg-query", "-W", "ratelimitd")


def test_a_stopped_service_stays_stopped(installed):
    installed.must("systemctl", "stop", "ratelimitd.service", "ratelimitd.socket", "ratelimitd-control.socket")
    installed.install("newer.deb")
    assert not installed.is_active() and not installed.is_active("ratelimitd.socket")


def test_a_group_that_is_there_is_taken(system):
    system.must("groupadd", "--gid", "4711", "ratelimit")
    system.install("older.deb", "ratelimitctl.deb")
    assert system.must("stat", "--format=%g", SOCKET).strip() == "4711"


def test_without_a_running_systemd_the_installation_passes(packages, tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    script = f"""mount -t tmpfs tmpfs {tmp_path} && mkdir {tmp_path}/u {tmp_path}/w {tmp_path}/r &&
        mount -t overlay -o lowerdir={BASE},upperdir={tmp_path}/u,workdir={tmp_path}/w overlay {tmp_path}/r &&
        mkdir {tmp_path}/r/packages && mount --bind {packages} {tmp_path}/r/packages && mount -t proc proc {tmp_path}/r/proc &&
        exec chroot {tmp_path}/r sh -ec '
            apt-get install -y -q --no-install-recommends /packages/ratelimitd.deb /packages/ratelimitctl.deb
            ratelimitd -s /tmp/socket & for _ in $(seq 100); do ratelimitctl -s /tmp/socket ping && break; sleep 0.1; done
            ratelimitctl -s /tmp/socket check default alice; kill $!; wait $!
            dpkg --purge ratelimitd'"""
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "sh", "-c", script], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, timeout=120)
    assert done.returncode == 0 and "allowed" in done.stdout, done.stdout + done.stderr


# ---- what is in the files ---------------------------------------------------------------------------------------


@pytest.fixture(params=PROGRAMS)
def program(request, tmp_path):
    subprocess.run(["dpkg-deb", "-x", built(request.param), tmp_path], check=True)
    return tmp_path / PROGRAMS[request.param]


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


def test_a_built_file_is_hardened(program):
    assert "DYN (" in readelf("-h", program)  # position independent
    segments = readelf("-l", program)
    assert "GNU_RELRO" in segments and not re.search(r"GNU_STACK.*E", segments.replace("RWE", "E!"))
    assert re.search(r"BIND_NOW|NOW", readelf("-d", program))
    symbols = readelf("--dyn-syms", program)
    assert "__stack_chk_fail" in symbols and re.search(r"__\w+_chk", symbols.replace("__stack_chk_fail", ""))
    assert "RUNPATH" not in readelf("-d", program) and "RPATH" not in readelf("-d", program)


def test_hiredis_and_llhttp_are_shared_where_the_suite_has_them(tmp_path):
    subprocess.run(["dpkg-deb", "-x", built("ratelimitd"), tmp_path], check=True)
    needed = re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", tmp_path / "usr/bin/ratelimitd"))
    for library in ("libhiredis", "libllhttp"):
        assert any(name.startswith(library) for name in needed) == (SUITE != "bookworm"), needed


@pytest.mark.parametrize("name", ["ratelimitd", "ratelimitctl", "libratelimit0", "libratelimit-dev", "lua-ratelimitd"])
def test_a_package_has_the_licences(name, tmp_path):
    subprocess.run(["dpkg-deb", "-x", built(name), tmp_path], check=True)
    text = (tmp_path / "usr/share/doc" / name / "copyright").read_text()
    assert "2026 The ratelimitd authors" in text and "License: BSD-3-clause" in text


def test_every_link_of_the_packaged_documents_leads_somewhere(tmp_path):
    subprocess.run(["dpkg-deb", "-x", built("ratelimitd"), tmp_path], check=True)
    documents = tmp_path / "usr/share/doc/ratelimitd"
    dead = [f"{path.relative_to(documents)}: {target}" for path in documents.rglob("*.md")
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()) if not (path.parent / target).exists()]
    assert dead == []


def test_the_daemons_version_is_the_packages(tmp_path):
    version = subprocess.run(["dpkg-deb", "-f", built("ratelimitd"), "Version"], capture_output=True, text=True).stdout
    subprocess.run(["dpkg-deb", "-x", built("ratelimitctl"), tmp_path], check=True)
    said = version.rpartition("-")[0].replace("~git.", "-git.")  # the program itself may need another suite's glibc
    assert b"\0" + said.encode() + b"\0" in (tmp_path / "usr/bin/ratelimitctl").read_bytes()


def test_the_page_names_the_runtime_packages_for_an_installed_build():
    needed = subprocess.run(["dpkg-deb", "-f", built("ratelimitd"), "Depends"], capture_output=True, text=True).stdout
    names = {word.split()[0] for word in needed.split(",")} - {"libc6", "systemd", "default-systemd"}
    names = {name for name in names if not name.startswith(("systemd", "default-"))}
    row = {"bookworm": "Debian 12", "trixie": "Debian 13"}[SUITE]
    listed = re.search(rf"^\| {row} \| `(.*)` \|$", (ROOT / "docs/install.md").read_text(), re.M)[1]
    assert set(listed.split()) == names
