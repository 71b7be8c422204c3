"""test_systemd.py: the units in systemd/, as systemd's own tools rate them, and the daemon, started like the socket
unit starts it. Tests that need a booted systemd are not here."""

import os
import re
import shutil
import socket
import subprocess

import pytest

from certificates import Authority
from harness import ROOT, Process, Ratelimitd, build_dir, eventually, on_free_port, program

UNITS = ROOT / "systemd"
SOCKETS = ["ratelimitd.socket", "ratelimitd-control.socket"]
POLICIES = "policies:\n  login: {algorithm: fixed_window, limit: 5, window: 10s}\n"

MOST_EXPOSED = 1.2  # of systemd-analyze security: the value reached so far, which must not become worse

# Settings that the service must have, and their values ("" = any).
SETTINGS = """
Type=notify NotifyAccess=main Restart=always RestartSec=200ms StartLimitIntervalSec=0 WatchdogSec=10s LimitNOFILE=
LimitCORE=0 MemoryMax= TasksMax= OOMScoreAdjust=-500 DynamicUser=yes ProtectSystem=strict ProtectHome=yes PrivateTmp=yes
PrivateDevices=yes PrivateMounts=yes ProtectKernelTunables=yes ProtectKernelModules=yes ProtectKernelLogs=yes
ProtectClock=yes ProtectHostname=yes ProtectControlGroups=yes ProtectProc=invisible ProcSubset=pid RestrictNamespaces=yes
LockPersonality=yes MemoryDenyWriteExecute=yes CapabilityBoundingSet= SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM IPAddressDeny=any
""".split()


def run(*argv, **options):
    return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, **options)


def lines_of(name):
    text = (UNITS / name).read_text()
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


@pytest.fixture
def units(tmp_path):
    """Copies with programs that exist here: verify looks for them."""
    service = (UNITS / "ratelimitd.service").read_text().replace("/usr/bin/ratelimitd", program("ratelimitd"))
    (tmp_path / "ratelimitd.service").write_text(service)
    for unit in SOCKETS:
        shutil.copy(UNITS / unit, tmp_path)
    return tmp_path


def test_the_units_are_correct(units):
    done = run("systemd-analyze", "verify", "--man=no", str(units / "ratelimitd.service"), *(str(units / unit) for unit in SOCKETS))
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("name", ["redis.conf", "metrics.conf"])
def test_with_a_drop_in_they_are_correct_too(units, name):
    drop_ins = units / "ratelimitd.service.d"
    drop_ins.mkdir()
    text = (UNITS / name).read_text()
    (drop_ins / name).write_text(re.sub(r"^#(\w+=)", r"\1", text, flags=re.M))  # including the settings in comments
    done = run("systemd-analyze", "verify", "--man=no", str(units / "ratelimitd.service"))
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_service_is_hardly_exposed(units):
    done = run("systemd-analyze", "security", "--offline=yes", "--no-pager", str(units / "ratelimitd.service"))
    level = re.search(r"Overall exposure level for ratelimitd\.service: ([\d.]+)", done.stdout)
    assert level, done.stdout + done.stderr
    assert float(level[1]) <= MOST_EXPOSED, done.stdout


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_service_has(setting):
    name, _, value = setting.partition("=")
    found = [line for line in lines_of("ratelimitd.service") if line.startswith(name + "=")]
    assert found, f"{name} is not set"
    assert not value or setting in found, found


def test_the_service_has_time_to_drain():
    stop = next(line for line in lines_of("ratelimitd.service") if line.startswith("TimeoutStopSec="))
    done = run(program("ratelimitd"), "--print-config")
    drain = re.search(r"^drain:\s*\n\s+timeout:\s*(\d+)s", done.stdout, re.M)
    assert drain, done.stdout
    assert int(re.search(r"\d+", stop)[0]) > int(drain[1])


def test_peers_user_ids_stay_readable():
    assert not any(line.startswith("PrivateUsers=") for line in lines_of("ratelimitd.service"))


def test_the_socket_unit_sets_group_and_mode():
    lines = lines_of("ratelimitd.socket")
    for line in ("ListenStream=/run/ratelimitd/ratelimitd.sock", "SocketGroup=ratelimit", "SocketMode=0660",
                 "Backlog=4096", "RemoveOnStop=yes"):
        assert line in lines
    assert "RuntimeDirectory" not in (UNITS / "ratelimitd.service").read_text()  # with DynamicUser clients could not enter it


def test_the_control_sockets_unit_is_for_root_alone_and_named():
    lines = lines_of("ratelimitd-control.socket")
    for line in ("ListenStream=/run/ratelimitd/ratelimitd.sock.control", "SocketMode=0600", "FileDescriptorName=control",
                 "RemoveOnStop=yes", "Service=ratelimitd.service"):
        assert line in lines
    assert not any(line.startswith(("SocketGroup=", "SocketUser=")) for line in lines)
    assert "Sockets=" + " ".join(SOCKETS) in lines_of("ratelimitd.service")  # the daemon gets both, whichever started it
    assert "Also=" + " ".join(SOCKETS) in lines_of("ratelimitd.service")


def test_the_group_of_the_socket_is_declared(tmp_path):
    (tmp_path / "etc").mkdir()
    done = run("systemd-sysusers", "--root", str(tmp_path), str(UNITS / "ratelimitd.sysusers"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ratelimit:", (tmp_path / "etc/group").read_text(), re.M)
    passwd = tmp_path / "etc/passwd"
    assert not passwd.exists() or "ratelimit" not in passwd.read_text()  # a group alone


def members(name):
    """The system calls of a filter group."""
    calls = set()
    for line in run("systemd-analyze", "syscall-filter", "--no-pager", name).stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            calls |= members(word)
        elif word and not word.startswith("#"):
            calls.add(word)
    return calls


# The daemon tries this, and works without it: it keeps the limit of open files of the unit.
REFUSED_AND_FINE = {"prlimit64", "getrlimit", "setrlimit"}


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
@pytest.mark.parametrize("with_tls", [False, True])
def test_the_daemon_calls_nothing_that_the_filter_refuses(tmp_path, start_redis, with_tls):
    trace = tmp_path / "trace"
    ca = Authority(tmp_path)
    certificate, key = ca.issue("server", "DNS:localhost")
    tls_port, redis = on_free_port(lambda port: (port, start_redis(
        tcp=True, arguments=["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
                             "--tls-ca-cert-file", str(ca.certificate)])))
    by_name = {"addresses": f'["localhost:{tls_port if with_tls else redis.port}"]'}  # so that it looks up a name too
    if with_tls:
        by_name["tls"] = f"{{ca_file: {ca.certificate}, cert_file: {certificate}, key_file: {key}}}"
    daemon = Ratelimitd(POLICIES, redis=redis, redis_options=by_name, start=False)
    argv = daemon.argv()
    daemon.argv = lambda: ["strace", "-f", "-qq", "-o", str(trace), *argv]
    try:
        daemon.spawn(daemon.argv(), env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # it cannot run under ptrace
        daemon.wait_for_log("ready")
        with daemon.client() as client:
            eventually(lambda: client.check("login", "alice", 0)["source"] == "redis", "Redis decides")
            client.call("stats")
        pid = int(re.match(r"\d+", trace.read_text())[0])
        os.kill(pid, 1)
        daemon.wait_for_log("reload")
        os.kill(pid, 15)
        assert daemon.wait() == 0
    finally:
        daemon.close()
    called = set(re.findall(r"^\d+\s+(\w+)\(", trace.read_text(), re.M))
    allowed = members("@system-service") - members("@privileged") - members("@resources")
    assert len(allowed) > 100
    assert called - allowed - REFUSED_AND_FINE - {"execve"} == set()


@pytest.fixture
def activated(tmp_path):
    """The daemon behind systemd-socket-activate, which starts it at the first connection as the socket unit does."""
    path = str(tmp_path / "s")
    config = tmp_path / "ratelimitd.yaml"
    config.write_text(POLICIES)
    process = Process()
    process.spawn(["systemd-socket-activate", "-l", path, "-E", "ASAN_OPTIONS=detect_leaks=1", program("ratelimitd"),
                   "-c", str(config)])
    process.wait_for_log("Listening on")
    yield process, path
    if process.running:
        process.signal(15)
        process.wait()


def test_the_first_connection_starts_the_daemon_and_is_served(activated, connect):
    process, path = activated
    client = connect(path)
    assert client.check("login", "alice")["allowed"]
    process.wait_for_log(f"ready on {path}")
    assert not os.path.exists(path + ".lock")  # it has not created a socket itself
    process.signal(15)
    assert process.wait() == 0, process.text()
    assert client.at_end()
    assert os.path.exists(path)  # it belongs to the service manager, for the next start


@pytest.mark.parametrize("unit", ["ratelimitd.service", *SOCKETS])
def test_the_unit_of_one_of_several_daemons_is_the_same_but_for_its_name(unit):
    def body(name):
        text = (ROOT / "systemd" / name).read_text()
        return text[text.index("[Unit]"):]

    text = body(unit)
    for word, instead in (("ratelimitd-control.socket", "ratelimitd-control@%i.socket"), ("ratelimitd.socket", "ratelimitd@%i.socket"),
                          ("Service=ratelimitd.service", "Service=ratelimitd@%i.service"), ("/etc/ratelimitd/ratelimitd.yaml", "/etc/ratelimitd/%i.yaml"),
                          ("/run/ratelimitd/ratelimitd.sock", "/run/ratelimitd/%i.sock"),
                          ("/usr/bin/ratelimitctl reload", "/usr/bin/ratelimitctl -s /run/ratelimitd/%i.sock reload")):
        text = text.replace(word, instead)
    name, kind = unit.split(".")
    assert body(f"{name}@.{kind}") == text


def test_the_names_of_the_installed_files_agree():
    """The unit, the socket and the configuration refer to each other by their installed paths."""
    service = (UNITS / "ratelimitd.service").read_text()
    assert "ExecStart=/usr/bin/ratelimitd -c /etc/ratelimitd/ratelimitd.yaml" in service
    assert "Requires=ratelimitd.socket" in service
    assert (UNITS / "ratelimitd.yaml").exists()
    assert (build_dir() / "bin" / "ratelimitd").exists()


def test_a_socket_that_is_no_listener_ends_the_daemon_with_4(tmp_path):
    pair = socket.socketpair()
    script = 'exec 3<&"$0"; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
    done = run("bash", "-c", script, str(pair[0].fileno()), program("ratelimitd"), pass_fds=(pair[0].fileno(),))
    assert done.returncode == 4
    assert "ListenStream=" in done.stderr
    for end in pair:
        end.close()
