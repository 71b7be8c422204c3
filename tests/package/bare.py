"""bare.py: a bare Debian whose systemd has booted, in namespaces of its own, for tests that install packages.

The system lies in $DEPS/bare-SUITE (`./dev test package` makes it); a layer in memory over it takes every change, and ends with
the test. It has no network: what packages need is downloaded before (Packages). Commands come in by nsenter.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "integration" / "operation")]
from harness import ROOT, eventually  # noqa: E402
from test_booted import UNITS, System, cgroup2  # noqa: E402

SUITE = os.environ.get("SUITE", "bookworm")
BASE = Path(os.environ.get("DEPS", ROOT / ".deps")).resolve() / f"bare-{SUITE}"
BUILT = ROOT / "build" / "package" / SUITE

# $1: an empty folder, $2: the base system, $3: folder of packages.
BOOT = """set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
cd "$1/root"
mkdir -p packages old
mount --bind "$3" packages
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys  # they are this machine's
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/shm dev/pts dev/mqueue dev/hugepages  # PrivateDevices= passes them on
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /run/systemd/journal/dev-log dev/log
pivot_root . old
umount -l old
systemctl mask -q systemd-udevd.service systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=other /lib/systemd/systemd --log-target=console --show-status=no
"""


class Bare(System):
    PATIENCE_S = 60

    def __init__(self, packages):
        super().__init__()
        self.packages = packages

    def script(self):
        return [BOOT, str(self.folder), str(BASE), str(self.packages)]

    def is_booted(self):
        return self.systemctl("is-system-running").stdout.strip() in ("running", "degraded")

    def run(self, *argv, **options):
        options.setdefault("env", {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"})
        return super().run(*argv, **options)

    def must(self, *argv):
        done = self.run(*argv)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def install(self, *names):
        """By apt, as people do it: from the packages of a folder, and without network."""
        return self.must("sh", "-c", "apt-get install -y -q --no-install-recommends --allow-downgrades -o APT::Sandbox::User=root "
                                     "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "
                         + " ".join(f"/packages/{name}" for name in names))

    def is_active(self, unit="ratelimitd.service"):
        return self.systemctl("is-active", unit).stdout.strip() == "active"

    def close(self):
        self.process.kill()
        eventually(self._removed, "the cgroup is empty")
        shutil.rmtree(self.folder, ignore_errors=True)


def why_not():
    missing = [name for name in ("unshare", "nsenter", "systemctl") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or cgroup2() is None:
        return "only root can boot a systemd" if os.geteuid() != 0 else f"no {missing[0]}" if missing else "no cgroup2"
    return None


def repacked(package, target, version, change=None):
    """The package with another version, and with what change(folder) does to its unpacked files."""
    folder = target.parent / (target.name + ".d")
    subprocess.run(["dpkg-deb", "-R", package, folder], check=True)
    control = folder / "DEBIAN" / "control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.M))
    if change:
        change(folder)
        sums = folder / "DEBIAN" / "md5sums"
        sums.unlink(missing_ok=True)
    subprocess.run(["dpkg-deb", "-b", "-Znone", "--root-owner-group", folder, target], check=True, capture_output=True)
    shutil.rmtree(folder)


__all__ = ["BASE", "BUILT", "SUITE", "UNITS", "Bare", "repacked", "why_not"]
