"""test_booted.py: the installed units under a booted systemd: start by socket, reload, restart, crash.

systemd runs as the first process of namespaces of its own, with the programs and units installed into layers over /usr and
/etc that end with it. The units are unchanged; a drop-in sends the daemon's log to a file, because there is no journal. Where
systemd cannot run like this (no root, no cgroup2, a container that forbids namespaces), the tests are skipped with the reason.
"""

import os
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from harness import ROOT, Process, build_dir, eventually, short_directory

UNITS = ["ratelimitd.service", "ratelimitd.socket", "ratelimitd-control.socket"]
SOCKET = "/run/ratelimitd/ratelimitd.sock"
CONTROL = SOCKET + ".control"
CONFIG = "/etc/ratelimitd/ratelimitd.yaml"
POLICIES = "policies:\n  login: {algorithm: fixed_window, limit: 5, window: 1h}\n"

# With $1, an empty folder, and $2, the build. The targets are empty: none of this system's services starts.
BOOT = """set -eu
mount --make-rprivate /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs "$1"
for at in usr etc; do
    mkdir "$1/$at" "$1/$at.work"
    mount -t overlay -o "lowerdir=/$at,upperdir=$1/$at,workdir=$1/$at.work" overlay "/$at"
done
cmake --install "$2" --prefix /usr >"$1/installed" || { cat "$1/installed" >&2; exit 1; }
systemd-sysusers /usr/lib/sysusers.d/ratelimitd.conf
mkdir -p /run/units/ratelimitd.service.d /run/units/ratelimitd@.service.d
for unit in UNITS ratelimitd@.service ratelimitd@.socket ratelimitd-control@.socket; do ln -s "/usr/lib/systemd/system/$unit" /run/units/; done
for target in basic sysinit shutdown sockets; do
    printf '[Unit]\\nDefaultDependencies=no\\n' >"/run/units/$target.target"
done
printf '[Service]\\nStandardError=append:/run/log\\nEnvironment=ASAN_OPTIONS=detect_leaks=0\\n' \\
    | tee /run/units/ratelimitd@.service.d/log.conf >/run/units/ratelimitd.service.d/log.conf
printf '[Unit]\\nDefaultDependencies=no\\nWants=ratelimitd.socket ratelimitd-control.socket\\n' >/run/units/default.target
exec env -i PATH=/usr/sbin:/usr/bin container=test SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH=/nonexistent \\
    /lib/systemd/systemd --system --unit=default.target --log-target=console --show-status=no
""".replace("UNITS", " ".join(UNITS))


def cgroup2():
    """Where this process may make a cgroup of the second version, or None."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    points = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    own = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.M)
    return points[0] / own[1] if points and own and os.access(points[0] / own[1], os.W_OK) else None


class System:
    """A booted systemd and what runs under it."""

    PATIENCE_S = 30

    def __init__(self):
        self.folder = short_directory()
        self.cgroup = cgroup2() / f"rl-{uuid.uuid4().hex[:12]}"
        self.cgroup.mkdir()
        self.process = Process()
        self.first = None  # its process, as seen from here

    def script(self):
        """What ends as systemd, and its arguments."""
        return [BOOT, str(self.folder), str(build_dir())]

    def is_booted(self):
        states = self.systemctl("is-active", "default.target", *UNITS[1:]).stdout.split()
        return states == ["active"] * 3  # its status is 0 if one of them is, and a socket has its group only when it is active

    def boot(self):
        """Fails, or skips the test if it is this machine that does not allow it."""
        inside = f'echo $$ >"{self.cgroup}/cgroup.procs" && exec unshare --mount --pid --fork --net --uts --ipc --cgroup ' \
                 f'--kill-child sh -c "$0" sh "$@"'
        self.process.spawn(["sh", "-c", inside, *self.script()])
        eventually(lambda: self._is_up() or not self.process.running or "Freezing execution" in self.process.text(),
                   f"systemd is up:\n{self.process.text()}", self.PATIENCE_S)
        if not self.first:
            self.close()
            pytest.skip("systemd cannot run here: " + " ".join(self.process.log[-2:]))

    def _is_up(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        first = children.read_text().split() if self.process.running else []
        if not first:
            return False
        self.first = first[0]
        if self.is_booted():
            return True
        self.first = None
        return False

    def run(self, *argv, **options):
        enter = ["nsenter", "--target", self.first, "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup"]
        return subprocess.run([*enter, *argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=50, **options)

    def systemctl(self, *arguments):
        return self.run("systemctl", "--no-pager", *arguments)

    def ctl(self, *arguments):
        return self.run("ratelimitctl", *arguments)

    def path(self, name):
        return Path(f"/proc/{self.first}/root{name}")

    def configure(self, text):
        self.path(CONFIG).write_text(text)

    def log(self):
        path = self.path("/run/log")
        return path.read_text() if path.exists() else ""

    def property(self, name, unit="ratelimitd.service"):
        return self.systemctl("show", "--value", "--property", name, unit).stdout.strip()

    def close(self):
        self.process.kill()  # and with it all that runs in there
        shutil.rmtree(self.folder)
        eventually(self._removed, "the cgroup is empty")

    def _removed(self):
        try:
            for folder, _, _ in os.walk(self.cgroup, topdown=False):
                os.rmdir(folder)
        except OSError:
            return False
        return True


@pytest.fixture
def system():
    missing = [name for name in ("unshare", "nsenter", "systemctl", "systemd-sysusers") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or cgroup2() is None:
        pytest.skip("systemd cannot run here: " + ("only root can start it" if os.geteuid() != 0 else
                                                   f"no {missing[0]}" if missing else "no cgroup2 that can be written to"))
    booted = System()
    booted.boot()
    booted.configure(POLICIES)
    yield booted
    booted.close()


def test_the_first_client_starts_the_service_and_each_socket_is_for_whom_it_should_be(system):
    assert system.property("ActiveState") == "inactive"
    assert system.ctl("check", "login", "alice").returncode == 0
    assert system.property("ActiveState") == "active" and system.property("StatusText") == "1 policy, memory store"
    owners = system.run("stat", "--format=%U:%G %a", SOCKET, CONTROL).stdout.split("\n")
    assert owners[:2] == ["root:ratelimit 660", "root:root 600"]
    assert sorted(os.listdir(system.path("/run/ratelimitd"))) == ["ratelimitd.sock", "ratelimitd.sock.control"]
    assert '"control_connections":1' in system.ctl("-s", CONTROL, "stats", "--all", "--json").stdout.replace(" ", "")
    stranger = system.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ratelimitctl", "ping")
    member = system.run("setpriv", "--reuid=65534", "--regid=65534", "--groups", group(system), "ratelimitctl", "ping")
    assert stranger.returncode != 0 and member.stdout == "pong\n", stranger.stdout + member.stderr
    assert "warning" not in system.log() and "error" not in system.log(), system.log()


def group(system):
    return re.search(r"^ratelimit:[^:]*:(\d+):", system.path("/etc/group").read_text(), re.M)[1]


def test_an_administrator_may_be_the_first_to_connect(system):
    """The control socket starts the service, too, and the daemon gets both sockets by their names."""
    done = system.ctl("-s", CONTROL, "config")
    assert done.returncode == 0 and "login" in done.stdout, done.stderr
    assert system.ctl("check", "login", "alice").returncode == 0
    assert "ready on " + SOCKET in system.log() and "warning" not in system.log()


def test_reload_is_in_effect_when_systemctl_returns(system):
    assert system.ctl("check", "login", "alice").returncode == 0
    pid = system.property("MainPID")
    system.configure(POLICIES.replace("limit: 5", "limit: 7"))
    done = system.systemctl("reload", "ratelimitd")
    assert done.returncode == 0, done.stderr
    assert "remaining 5/7" in system.ctl("check", "login", "alice").stdout  # it has kept its count
    assert "login: limit 5 -> 7" in system.log() and system.property("MainPID") == pid


def test_a_reload_that_needs_a_restart_for_something_is_a_success(system):
    assert system.ctl("ping").returncode == 0
    system.configure("listen: {mode: \"0666\"}\n" + POLICIES.replace("limit: 5", "limit: 7"))
    done = system.systemctl("reload", "ratelimitd")
    assert done.returncode == 0, done.stderr
    assert "remaining 6/7" in system.ctl("check", "login", "alice").stdout
    assert "listen.mode has changed and needs a restart" in system.log()


def test_a_refused_reload_fails_and_leaves_the_service_as_it_was(system):
    assert system.ctl("check", "login", "alice").returncode == 0
    pid = system.property("MainPID")
    system.configure(POLICIES.replace("limit: 5", "limit: many"))
    assert system.systemctl("reload", "ratelimitd").returncode != 0
    assert system.property("ActiveState") == "active" and system.property("MainPID") == pid
    assert f"{CONFIG}:2: policies.login.limit" in system.log()
    assert "remaining 3/5" in system.ctl("check", "login", "alice").stdout


def test_without_the_control_socket_a_reload_is_by_signal(system):
    assert system.ctl("check", "login", "alice").returncode == 0
    assert system.systemctl("stop", "ratelimitd-control.socket").returncode == 0
    assert not system.path(CONTROL).exists() and system.property("ActiveState") == "active"
    system.configure(POLICIES.replace("limit: 5", "limit: 7"))
    done = system.systemctl("reload", "ratelimitd")
    assert done.returncode == 0, done.stderr
    eventually(lambda: "login: limit 5 -> 7" in system.log(), "the log has the reload")
    assert "remaining 5/7" in system.ctl("check", "login", "alice").stdout


def test_a_restart_and_a_crash_refuse_nobody(system):
    assert system.ctl("check", "login", "alice").returncode == 0
    pid = system.property("MainPID")
    assert system.systemctl("restart", "ratelimitd").returncode == 0
    assert system.ctl("check", "login", "alice").returncode == 0
    restarted = system.property("MainPID")
    assert system.systemctl("kill", "--signal=KILL", "ratelimitd").returncode == 0
    assert system.ctl("--timeout", "30s", "check", "login", "alice").returncode == 0  # it waits in the socket's queue
    assert len({pid, restarted, system.property("MainPID")}) == 3
    assert system.ctl("-s", CONTROL, "config").returncode == 0  # both sockets were passed again


def test_stop_leaves_no_socket_that_nobody_serves(system):
    assert system.ctl("ping").returncode == 0
    assert system.systemctl("stop", "ratelimitd.service", *UNITS[1:]).returncode == 0
    assert system.property("Result") == "success" and system.property("ActiveState") == "inactive"
    assert not system.path(SOCKET).exists() and not system.path(CONTROL).exists()


def test_rules_by_user_hold_in_the_services_sandbox(system):
    system.configure("access: {rules: [{user: nobody, policies: [other]}]}\n" + POLICIES + "  other: {unlimited: true}\n")
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--groups", group(system), "ratelimitctl"]
    assert system.run(*as_nobody, "check", "other", "k").returncode == 0
    done = system.run(*as_nobody, "check", "login", "k")
    assert "policy login is not for user nobody (access.rules[0])" in done.stderr


def commands_of(page, heading):
    """The lines of the first systemd snippet below a heading, each as words."""
    text = (ROOT / "docs" / page).read_text()
    section = text[text.index(f"\n{heading}\n"):]
    return [line.split("#")[0].split() for line in re.search(r"^```systemd\n(.*?)^```", section, re.M | re.S)[1].splitlines()]


def test_a_broken_file_at_start_ends_in_failed_with_its_mistake_and_the_page_says_how_to_go_on(system):
    """Restarts went on for ever, five a second, and the service was never "failed". Clients that wait in the socket start the
    service again, until systemd gives up on the socket, too."""
    system.configure(POLICIES.replace("limit: 5", "limit: many"))
    assert system.ctl("--timeout", "300ms", "ping").returncode != 0
    eventually(lambda: system.property("Result", "ratelimitd.socket") == "trigger-limit-hit", "the socket is closed", 60)
    eventually(lambda: system.property("ActiveState") == "failed", "the service is failed")
    assert system.property("ExecMainStatus") == "3" and f"{CONFIG}:2: policies.login.limit" in system.log()
    n_starts = system.log().count(f"{CONFIG}:2: policies.login.limit")
    assert n_starts <= 11 and system.property("NRestarts") == "0"
    system.configure(POLICIES)
    for command in commands_of("emergencies.md", "## It does not start"):
        done = system.run(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert system.ctl("check", "login", "alice").returncode == 0 and system.property("ActiveState") == "active"


def test_two_services_on_one_host_have_a_file_and_a_socket_each(system):
    for name, limit in (("shop", 3), ("blog", 9)):
        system.path(f"/etc/ratelimitd/{name}.yaml").write_text(POLICIES.replace("limit: 5", f"limit: {limit}"))
    for command in commands_of("operate.md", "### Two services on one host"):
        done = system.run(*command)
        assert done.returncode == 0, (command, done.stderr)
    for name, limit in (("shop", 3), ("blog", 9)):
        socket = f"/run/ratelimitd/{name}.sock"
        assert f"remaining {limit - 1}/{limit}" in system.ctl("-s", socket, "check", "login", "alice").stdout
        system.path(f"/etc/ratelimitd/{name}.yaml").write_text(POLICIES.replace("limit: 5", f"limit: {limit + 1}"))
        assert system.systemctl("reload", f"ratelimitd@{name}").returncode == 0
        assert f"remaining {limit - 1}/{limit + 1}" in system.ctl("-s", socket, "check", "login", "alice").stdout
    assert system.systemctl("stop", "ratelimitd@shop.service", "ratelimitd@shop.socket", "ratelimitd-control@shop.socket").returncode == 0
    assert system.ctl("-s", "/run/ratelimitd/blog.sock", "ping").stdout == "pong\n"
    assert system.ctl("check", "login", "alice").returncode == 0  # and the one without a name


def test_a_build_that_was_installed_by_hand_is_upgraded_and_removed_by_the_commands_of_the_page(system):
    text = (ROOT / "docs" / "upgrade.md").read_text()
    section = re.search(r"^## A build that was installed by hand\n(.*?)^## ", text, re.M | re.S)[1]
    upgrade, remove = re.findall(r"^```systemd\n(.*?)^```", section, re.M | re.S)
    assert system.ctl("check", "login", "alice").returncode == 0
    pid = system.property("MainPID")
    for script in (upgrade, remove):
        script = script.replace("build/release", str(build_dir()))
        done = system.run("sh", "-ec", script)
        assert done.returncode == 0, done.stdout + done.stderr
        if script.startswith("cmake"):
            assert system.ctl("--timeout", "30s", "check", "login", "alice").returncode == 0
            assert system.property("MainPID") != pid
    assert not system.path("/usr/bin/ratelimitd").exists() and not system.path("/usr/lib/systemd/system/ratelimitd.service").exists()
    assert system.path(CONFIG).exists()
