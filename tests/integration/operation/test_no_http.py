"""test_no_http.py: a build without llhttp (RL_HTTP=OFF): what needs HTTP is refused with its name, all else is there."""

import subprocess
from pathlib import Path

import pytest

from harness import ROOT, program
from http_metrics import Page

BUILD = ROOT / "build" / "no-http"
pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "ratelimitd").exists(), reason="./dev test operation builds it")
POLICIES = "policies: {login: {algorithm: fixed_window, limit: 5, window: 1h}}\n"


def test_the_metrics_are_there_through_ratelimitctl(ratelimitd):
    daemon = ratelimitd(POLICIES, build=BUILD)
    ctl = [program("ratelimitctl", BUILD), "-s", daemon.socket]
    subprocess.run([*ctl, "check", "login", "k"], check=True, capture_output=True, timeout=30)
    page = Page(subprocess.run([*ctl, "metrics"], check=True, capture_output=True, text=True, timeout=30).stdout)
    assert page.value("ratelimitd_granted_units_total", policy="login") == 1
    assert page.value("ratelimitd_admin_connections") == 0


def test_the_listener_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "ratelimitd.yaml"
    path.write_text('admin: {listen: "127.0.0.1:0"}\n' + POLICIES)
    done = subprocess.run([program("ratelimitd", BUILD), "--check-config", "-c", path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 3 and "this build has no HTTP (it was configured with RL_HTTP=OFF); leave it out" in done.stderr


def test_it_does_not_have_the_library():
    assert b"llhttp_execute" not in Path(program("ratelimitd", BUILD)).read_bytes()
    needed = subprocess.run(["ldd", program("ratelimitd", BUILD)], capture_output=True, text=True, check=True).stdout
    assert "libuv" in needed and "libllhttp" not in needed


@pytest.mark.parametrize("name", ["test_admin_metrics", "test_admin_host"])
def test_its_c_tests_pass(name):
    done = subprocess.run([BUILD / "tests" / name], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
