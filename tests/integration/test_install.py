"""test_install.py: cmake --install puts every file into its place, and keeps an existing configuration."""

import os
import re
import subprocess

import pytest

from harness import build_dir

pytestmark = pytest.mark.smoke


def install(destination, prefix="/usr"):
    done = subprocess.run(["cmake", "--install", str(build_dir()), "--prefix", prefix], capture_output=True, text=True,
                          env={**os.environ, "DESTDIR": str(destination)})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def installed(tmp_path):
    install(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [
    "bin/ratelimitd", "bin/ratelimitctl", "include/ratelimit.h", "share/man/man8/ratelimitd.8",
    "share/man/man5/ratelimitd.yaml.5", "share/man/man1/ratelimitctl.1", "lib/systemd/system/ratelimitd.service",
    "lib/systemd/system/ratelimitd.socket", "lib/systemd/system/ratelimitd-control.socket",
    "lib/sysusers.d/ratelimitd.conf", "share/doc/ratelimitd/README.md",
    "share/man/man3/libratelimit.3", "share/doc/ratelimitd/lua/ALGORITHMS.md", "share/doc/ratelimitd/proto/PROTOCOL.md",
    "share/doc/ratelimitd/docs/plots/fixed_window.svg", "share/bash-completion/completions/ratelimitctl",
    "share/doc/ratelimitd/docs/overview.svg", "share/doc/ratelimitd/docs/operate.md", "share/doc/ratelimitd/systemd/redis.conf",
    "share/doc/ratelimitd/systemd/metrics.conf", "share/doc/ratelimitd/deploy/recipes/logins.test.yaml", "share/doc/ratelimitd/deploy/ci/gitlab.yml", "share/doc/ratelimitd/deploy/prometheus/ratelimitd.rules.yml",
    "share/zsh/site-functions/_ratelimitctl", "share/fish/vendor_completions.d/ratelimitctl.fish",
    "share/ratelimitd/lua/ratelimitd.lua", "share/ratelimitd/lua/ratelimitd/nginx.lua",
])
def test_a_file_is_in_its_place(installed, name):
    assert (installed / "usr" / name).exists()


def test_every_link_of_the_installed_documents_leads_somewhere(installed):
    """Earlier, links of the README led to folders that were not installed."""
    documents = installed / "usr/share/doc/ratelimitd"
    dead = [f"{path.relative_to(documents)}: {target}" for path in documents.rglob("*.md")
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()) if not (path.parent / target).exists()]
    assert dead == []


@pytest.mark.parametrize("name", ["libratelimit.so", "libratelimit.a", "ratelimit.pc"])
def test_the_library_is_in_its_place(installed, name):
    assert list((installed / "usr" / "lib").rglob(name))


def test_a_configuration_that_exists_is_left_alone(installed):
    configuration = installed / "etc" / "ratelimitd" / "ratelimitd.yaml"
    assert "policies:" in configuration.read_text()
    configuration.write_text("mine\n")
    install(installed)
    assert configuration.read_text() == "mine\n"


def test_the_units_name_the_prefix_that_was_installed_to(tmp_path):
    install(tmp_path, "/opt/ratelimitd")
    unit = (tmp_path / "opt/ratelimitd/lib/systemd/system/ratelimitd.service").read_text()
    assert "ExecStart=/opt/ratelimitd/bin/ratelimitd -c /opt/ratelimitd/etc/ratelimitd/ratelimitd.yaml" in unit


def test_the_installed_programs_need_nothing_of_the_source_tree(installed):
    for name in ("ratelimitd", "ratelimitctl"):
        needed = subprocess.run(["ldd", str(installed / "usr/bin" / name)], capture_output=True, text=True).stdout
        assert ".deps" not in needed and "not found" not in needed


def test_the_manifest_of_an_installation_names_every_file_for_who_removes_it(installed):
    """As docs/install.md says: `xargs rm < build/release/install_manifest.txt`."""
    for name in (build_dir() / "install_manifest.txt").read_text().splitlines():
        (installed / name.lstrip("/")).unlink()
    assert [path for path in installed.rglob("*") if not path.is_dir()] == []
