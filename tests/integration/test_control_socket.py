"""test_control_socket.py: the daemon's second socket: where it is, who may open it, and that it answers while the first does not."""

import os
import re
import signal
import socket
import stat
import subprocess

import msgpack
import pytest

from harness import RpcError, eventually, program, run_ratelimitd

POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
"""
SOME = ["ping", "stats", "policies", "version", "hello"]


def control_of(daemon):
    return daemon.socket + ".control"


def mode_of(path):
    status = os.stat(path)
    assert stat.S_ISSOCK(status.st_mode)
    return status.st_mode & 0o777


# ---- where it is, and for whom ------------------------------------------------------------------------------------


def test_by_default_it_is_next_to_the_data_socket_and_for_the_daemons_user_alone(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    assert mode_of(control_of(daemon)) == 0o600
    client = connect(control_of(daemon))
    for method in SOME:
        client.call(method)
    assert client.check("login", "alice")["remaining"] == 4  # as every method of the data socket
    assert connect(daemon).check("login", "alice")["remaining"] == 3
    assert daemon.stop() == 0
    assert not os.path.exists(control_of(daemon))


def test_path_and_mode_are_settings(ratelimitd, connect):
    daemon = ratelimitd(start=False)
    path = str(daemon.directory / "c.sock")
    daemon.configure(f"control: {{socket: {path}, mode: \"0640\"}}\n{POLICIES}")
    daemon.start()
    assert mode_of(path) == 0o640
    assert connect(path).call("ping") == "pong"
    assert not os.path.exists(control_of(daemon))


@pytest.mark.parametrize("setting, complaint", [
    ("{socket: c.sock}", "control.socket: is not absolute"),
    ("{socket: SAME}", "control.socket: is listen.socket, too"),
    ("{mode: \"0999\"}", "control.mode"),
    ("{group: root}", "control.group"),
])
def test_a_wrong_setting_is_refused_with_its_line(place, setting, complaint):
    path = place / "ratelimitd.yaml"
    data = str(place / "s")
    path.write_text(f"listen: {{socket: {data}}}\ncontrol: {setting.replace('SAME', data)}\n{POLICIES}")
    status, _, err = run_ratelimitd("-c", path)
    assert status == 3 and err.startswith(f"{path}:2: ") and complaint in err


def test_with_the_other_path_of_the_command_line_it_moves_too(place):
    process = subprocess.Popen([program("ratelimitd"), "-s", str(place / "other")], stderr=subprocess.PIPE, text=True)
    try:
        assert "ready" in process.stderr.readline()
        assert mode_of(place / "other.control") == 0o600
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stderr.close()


def test_a_stale_one_is_replaced(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    daemon.kill()
    assert os.path.exists(control_of(daemon))
    daemon.expected_exit = 0
    daemon.start()
    assert connect(control_of(daemon)).call("ping") == "pong"


def test_a_deleted_one_is_made_again(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    os.unlink(control_of(daemon))
    daemon.wait_for_log(r"rl\.sock\.control: the socket's file was deleted; making it again")
    eventually(lambda: os.path.exists(control_of(daemon)), "the file")
    assert connect(control_of(daemon)).call("ping") == "pong"


def test_a_default_that_cannot_be_made_is_warned_of_once_and_made_when_it_can(ratelimitd, connect):
    daemon = ratelimitd(POLICIES, start=False)
    in_the_way = control_of(daemon)
    with open(in_the_way, "w"):
        pass
    daemon.start()
    assert connect(daemon).check("login", "alice")["allowed"]
    os.unlink(in_the_way)
    daemon.wait_for_log(r"control\.socket: .*\.control is open")
    assert connect(in_the_way).call("ping") == "pong"
    warnings = [line for line in daemon.text().splitlines() if "warning: control.socket: " in line]
    assert len(warnings) == 1 and "something that is no socket" in warnings[0] and "checks are served" in warnings[0]


def test_one_that_is_set_and_cannot_be_made_ends_the_start_with_4(place):
    (place / "c").write_text("")
    path = place / "ratelimitd.yaml"
    path.write_text(f"listen: {{socket: {place / 's'}}}\ncontrol: {{socket: {place / 'c'}}}\n{POLICIES}")
    status, _, err = run_ratelimitd("-c", path)
    assert status == 4 and "something that is no socket" in err
    assert not (place / "s").exists()


@pytest.mark.parametrize("written", ["/./s", "//s", "/../FOLDER/s", "/link/s"])
def test_the_path_of_the_data_socket_in_another_way_is_refused_with_both_names(place, written):
    """It read: in use by another ratelimitd."""
    (place / "link").symlink_to(place)
    path = place / "ratelimitd.yaml"
    control = f"{place}{written.replace('FOLDER', place.name)}"
    path.write_text(f"listen: {{socket: {place / 's'}}}\ncontrol: {{socket: {control}}}\n{POLICIES}")
    status, _, err = run_ratelimitd("-c", path)
    assert status == 4
    assert f"control.socket ({control}) and listen.socket ({place / 's'}) are the same file; write another path for one of them" in err
    assert not (place / "s").exists()


def test_so_is_the_path_of_the_command_line(place):
    path = place / "ratelimitd.yaml"
    path.write_text(f"control: {{socket: {place / 's'}}}\n{POLICIES}")
    status, _, err = run_ratelimitd("-c", path, "-s", place / "s")
    assert status == 4 and "are the same file" in err


def test_a_reload_names_it_as_what_needs_a_restart(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    daemon.configure(f"control: {{socket: {daemon.directory}/elsewhere, mode: \"0666\"}}\n{POLICIES}")
    daemon.reload()
    daemon.wait_for_log("control.socket has changed and needs a restart")
    daemon.wait_for_log("control.mode has changed and needs a restart")
    assert mode_of(control_of(daemon)) == 0o600
    assert connect(control_of(daemon)).call("ping") == "pong"


# ---- it answers while the data socket does not --------------------------------------------------------------------


def test_it_answers_while_the_data_socket_is_full(ratelimitd, connect):
    daemon = ratelimitd(f"caps: {{max_connections: 1}}\n{POLICIES}")
    first = connect(daemon)
    assert first.call("ping") == "pong"
    second = connect(daemon)
    waiting = second.send("ping")
    control = connect(control_of(daemon))
    eventually(lambda: control.call("stats")["accept_pauses"] == 1, "the data socket is full")
    assert control.call("stats")["connections"] == 1
    assert control.call("stats")["control_connections"] == 1
    done = subprocess.run([program("ratelimitctl"), "-s", control_of(daemon), "stats", "--all"], capture_output=True, text=True)
    assert done.returncode == 0 and "control_connections" in done.stdout
    first.close()
    assert second.answer(waiting) == "pong"


def test_the_17th_administrator_takes_the_place_of_the_one_that_was_idle_longest(ratelimitd, connect):
    daemon = ratelimitd(POLICIES + "  jobs: {algorithm: concurrency, limit: 5, slot_ttl: 1h}\n")
    first = connect(control_of(daemon))
    assert first.call("acquire", "jobs", "k")["allowed"]  # its slot would be lost
    idle = connect(control_of(daemon))
    assert idle.call("ping") == "pong"
    others = [connect(control_of(daemon)) for _ in range(14)]
    for other in others:
        assert other.call("ping") == "pong"

    assert connect(control_of(daemon)).call("ping") == "pong"
    assert idle.at_end()
    assert first.call("ping") == "pong" and all(other.call("ping") == "pong" for other in others)
    line = daemon.wait_for_log("all 16 connections to the control socket are in use: closing that of uid ")
    assert re.search(rf"uid {os.getuid()} pid {os.getpid()}, which asked nothing for [0-9]+ s, for a new one$", line), line


def nested(depth):
    return [nested(depth - 1)] if depth > 0 else []


OVERSIZED = {  # the bytes of a request, and what its error begins with
    "a message beyond caps.max_frame": (msgpack.packb([0, 1, "reload", [{"dry_run": True, "x": "x" * 1_000_000}]]), "TOO_LARGE"),
    "a method's name of 1 MB": (msgpack.packb([0, 1, "x" * 1_000_000, []]), "TOO_LARGE"),
    "a text of 4 GB that does not come": (b"\x94\x00\x01\xa6reload\x91\xdb\xff\xff\xff\xff", "TOO_LARGE"),
    "a list of 4 G that does not come": (b"\x94\x00\x01\xa6config\xdd\xff\xff\xff\xff", "TOO_LARGE"),
    "options that are none": (msgpack.packb([0, 1, "reload", [{f"option{i}": i for i in range(4000)}]]), "BAD_REQUEST"),
    "a text for options": (msgpack.packb([0, 1, "reload", ["x" * 60_000]]), "BAD_REQUEST"),
    "60 000 parameters": (msgpack.packb([0, 1, "config", [0] * 60_000]), "BAD_REQUEST"),
    "a page of 60 kB": (msgpack.packb([0, 1, "metrics", ["9" * 60_000]]), "BAD_REQUEST"),
    "a method's name of 60 kB": (msgpack.packb([0, 1, "x" * 60_000, []]), "UNKNOWN_METHOD"),
    "lists in lists": (msgpack.packb([0, 1, "reload", nested(100)]), "BAD_REQUEST: the message is nested deeper"),
}


@pytest.mark.parametrize("what", OVERSIZED)
def test_an_oversized_request_is_refused_and_the_next_one_and_checks_are_answered(ratelimitd, connect, what):
    data, refusal = OVERSIZED[what]
    daemon = ratelimitd(POLICIES)
    client, control = connect(daemon), connect(control_of(daemon))
    for n in range(1, 5):
        hostile = connect(control_of(daemon))
        hostile.send_bytes(data)
        assert client.check("login", "k")["remaining"] == 5 - n
        _, msgid, error, result = hostile.recv()
        assert result is None and error.startswith(refusal) and len(error) < 1000
        hostile.close()
    control.call("reload")
    assert control.call("stats")["reloads"] == 1
    eventually(lambda: control.call("stats")["control_connections"] == 1, "the hostile ones have ended")


def overfull(client, control):
    """The client asks and does not read, until answers wait in the daemon. Only once it has written all that it can, what is unread
    stays so."""
    asked = control.call("stats")["requests"]

    def stats():
        nonlocal asked
        asked += 1
        return control.call("stats")

    while stats()["unread_bytes"] == 0:
        for _ in range(20):
            client.send("stats")
        asked += 20
        while stats()["requests"] < asked:
            pass


def test_it_answers_while_the_daemon_drains(ratelimitd, connect):
    daemon = ratelimitd(start=False)
    daemon.configure(f"listen: {{socket: {daemon.socket}, write_stall: 1h}}\ndrain: {{timeout: 1h}}\n{POLICIES}")
    daemon.start()
    control = connect(control_of(daemon))
    client = connect(daemon)
    overfull(client, control)
    daemon.signal(signal.SIGTERM)
    daemon.wait_for_log("draining")
    eventually(lambda: not os.path.exists(daemon.socket), "the data socket is gone")
    assert control.call("ping") == "pong"
    late = connect(control_of(daemon))
    for method in SOME:
        late.call(method)
    with pytest.raises(RpcError, match="SHUTTING_DOWN"):
        late.check("login", "alice")
    client.close()
    assert daemon.wait() == 0
    assert late.at_end() and control.at_end()


def test_a_successor_starts_while_its_predecessor_drains_and_gets_the_control_socket_after_it(ratelimitd, connect):
    """Even where control.socket is set, and an obstacle would end the start."""
    first = ratelimitd(start=False)
    second = ratelimitd(start=False)
    path = first.directory / "c"
    for daemon in first, second:
        daemon.configure(f"listen: {{socket: {first.socket}, write_stall: 1h}}\ncontrol: {{socket: {path}}}\n"
                         f"drain: {{timeout: 1h}}\n{POLICIES}")
    second.socket = first.socket
    first.start()
    control = connect(str(path))
    client = connect(first)
    overfull(client, control)

    status, _, err = run_ratelimitd("-c", second.path, "-s", second.directory / "s")
    assert status == 4 and "in use by another ratelimitd" in err  # one that stays
    first.signal(signal.SIGTERM)
    first.wait_for_log("draining")
    eventually(lambda: not os.path.exists(first.socket), "the data socket is free")
    second.start()
    assert "another ratelimitd, which is about to end; checks are served" in second.text()
    assert connect(second).check("login", "alice")["allowed"]
    assert control.call("ping") == "pong"
    client.close()
    assert first.wait() == 0
    second.wait_for_log(r"control\.socket: .* is open")
    assert connect(str(path)).check("login", "alice")["remaining"] == 3


# ---- from the service manager -------------------------------------------------------------------------------------


def activate(sockets, names, *arguments):
    """Start a daemon as systemd would, with these sockets from descriptor 3 on, and their names."""
    script = 'export LISTEN_PID=$$; exec "$@"'
    redirections = " ".join(f"{3 + i}<&{s.fileno()}" for i, s in enumerate(sockets))
    shell = f"exec {redirections}; {script}"
    env = {**os.environ, "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names}
    return subprocess.Popen(["bash", "-c", shell, "bash", program("ratelimitd"), *map(str, arguments)], env=env, text=True,
                            pass_fds=[s.fileno() for s in sockets], stderr=subprocess.PIPE)


@pytest.fixture
def listening(place):
    """Makes listening sockets, with descriptors that no shell uses."""
    opened = []

    def listen(name):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(str(place / name))
        made.listen()
        opened.append(socket.socket(fileno=os.dup2(made.fileno(), 50 + len(opened))))
        made.close()
        return opened[-1]

    yield listen
    for one in opened:
        one.close()


@pytest.mark.parametrize("names", [["data", "control"], ["control", "data"], ["control", ""]])
def test_its_name_makes_a_descriptor_the_control_socket(place, listening, connect, names):
    sockets = [listening("c" if name == "control" else "d") for name in names]
    process = activate(sockets, ":".join(names), "-s", place / "unused")
    try:
        assert f"ready on {place / 'd'}" in process.stderr.readline()
        control = connect(str(place / "c"))
        assert control.call("stats")["control_connections"] == 1
        assert connect(str(place / "d")).call("stats")["connections"] == 1
        assert not os.path.exists(place / "d.control")
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stderr.close()
    assert os.path.exists(place / "c") and os.path.exists(place / "d")  # they belong to the service manager


def test_a_control_socket_alone_leaves_the_data_socket_to_the_daemon(place, listening, connect):
    process = activate([listening("c")], "control", "-s", place / "d")
    try:
        assert f"ready on {place / 'd'}" in process.stderr.readline()
        assert connect(str(place / "d")).call("ping") == "pong"
        assert connect(str(place / "c")).call("stats")["control_connections"] == 1
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stderr.close()


def test_without_one_from_the_service_manager_the_warning_names_its_unit(place, listening):
    data = listening("d")
    (place / "d.control").write_text("")
    process = activate([data], "ratelimitd")
    try:
        warning = process.stderr.readline()
        assert "warning: control.socket: " in warning and "ratelimitd-control.socket makes it" in warning
        assert "ready" in process.stderr.readline()
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stderr.close()


@pytest.mark.parametrize("names, complaint", [("a:b", "several sockets that are not named control; let it pass one"),
                                              ("control:control", "several sockets named control; let it pass one")])
def test_two_of_a_kind_end_the_start_with_4(place, listening, names, complaint):
    process = activate([listening("a"), listening("b")], names, "-s", place / "unused", "-c", configured(place))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 4 and complaint in err


@pytest.mark.parametrize("names, which", [("control", "promises a socket named control that is not open"),
                                          ("ratelimitd", "promises a socket that is not open")])
def test_a_promised_socket_that_is_not_open_ends_the_start_with_4(place, names, which):
    """Its number could go to a descriptor of the daemon's own: the data socket's, say, as the control socket, by which every client
    would have been an administrator."""
    env = {**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": names}
    done = subprocess.run(["bash", "-c", 'export LISTEN_PID=$$; exec 3>&-; exec "$@"', "bash", program("ratelimitd"), "-s", place / "d"],
                          env=env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 4 and f"LISTEN_FDS {which}; let the service manager pass it, or unset" in done.stderr
    assert not (place / "d").exists()


@pytest.mark.parametrize("names", ["control", "ratelimitd"])
def test_a_passed_descriptor_that_is_no_listener_ends_the_start_with_4(place, names):
    env = {**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": names}
    done = subprocess.run(["bash", "-c", 'export LISTEN_PID=$$; exec 3</dev/null; exec "$@"', "bash", program("ratelimitd"), "-s", place / "d"],
                          env=env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 4 and "descriptor 3 is no listening Unix stream socket" in done.stderr
    assert not (place / "d").exists()


def configured(place):
    path = place / "ratelimitd.yaml"
    path.write_text(f"control: {{socket: {place / 'c'}}}\n{POLICIES}")
    return path


# ---- ratelimitctl -------------------------------------------------------------------------------------------------


def test_ratelimitctl_says_why_it_may_not_open_it(ratelimitd):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    daemon = ratelimitd(POLICIES)
    os.chmod(daemon.directory, 0o755)
    done = subprocess.run([program("ratelimitctl"), "-s", control_of(daemon), "stats"], capture_output=True, text=True,
                          user=65534, group=65534, extra_groups=[])
    assert done.returncode == 3
    assert "mode 0600, which gives the group no access: run this as that user, or set control.mode" in done.stderr


def reload(socket_path, **env):
    argv = [program("ratelimitctl"), *(["-s", socket_path] if socket_path else []), "reload"]
    return subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **env})


def test_ratelimitctl_finds_it_by_either_path(ratelimitd):
    daemon = ratelimitd(POLICIES)
    for done in (reload(daemon.socket), reload(control_of(daemon)), reload(None, RATELIMIT_SOCKET=daemon.socket),
                 reload(None, RATELIMIT_SOCKET=control_of(daemon))):
        assert done.returncode == 0, done.stderr


def test_ratelimitctl_takes_the_path_of_control_socket_as_it_is(ratelimitd):
    daemon = ratelimitd(start=False)
    path = str(daemon.directory / "c")
    daemon.configure(f"control: {{socket: {path}}}\n{POLICIES}")
    daemon.start()
    assert reload(path).returncode == 0
    assert reload(daemon.socket).returncode == 0  # there is none next to it; the daemon's own user may here, too
