"""test_daemon.py: the daemon as a process: arguments, exit statuses, readiness, signals, drain, activation."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from harness import ROOT, Notices, Ratelimitd, RpcError, eventually, on_free_port, program, run_ratelimitd

POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  api: {algorithm: token_bucket, limit: 100, window: 1m, burst: 20}
"""


def written(place, text, name="ratelimitd.yaml"):
    path = place / name
    path.write_text(text)
    return path


# ---- arguments ----------------------------------------------------------------------------------------------------


def test_it_needs_few_libraries(ratelimitd):
    """A library for HTTP brought ten more into every process, and with OpenSSL they doubled its memory."""
    daemon = ratelimitd(POLICIES)
    loaded = {line.split("/")[-1].split(".so")[0] for line in open(f"/proc/{daemon.pid}/maps").read().splitlines() if ".so" in line}
    assert len(loaded - {"libasan", "libubsan", "libgcc_s", "libstdc++"}) <= 10, loaded


def test_version_and_help_end_well():
    status, out, _ = run_ratelimitd("--version")
    assert status == 0 and re.match(r"ratelimitd \d+\.\d+\.\d+(-git\.[0-9a-f]{12})? \(libuv [\d.]+, hiredis [\d.]+\)\n", out)
    status, out, _ = run_ratelimitd("--help")
    assert status == 0 and out.startswith("usage: ratelimitd [-c FILE]") and "Exit status:" in out


@pytest.mark.parametrize("arguments", [["-x"], ["--nonsense"], ["-s"], ["-c"], ["operand"], ["--check-config=1"]])
def test_wrong_usage_is_2(arguments):
    status, out, err = run_ratelimitd(*arguments)
    assert status == 2 and out == "" and "usage: ratelimitd" in err


def test_a_test_clock_with_redis_is_2(place):
    path = written(place, "store:\n  type: redis\n  redis: {addresses: [\"unix:/nowhere/redis.sock\"]}\n")
    status, _, err = run_ratelimitd("--test-clock", "-c", path, "-s", place / "s")
    assert status == 2 and "--test-clock is for the memory store" in err


# ---- configuration ------------------------------------------------------------------------------------------------


def test_every_fault_of_a_configuration_is_reported_with_status_3(place):
    path = written(place, "policies:\n  a: {algorithm: fixed_window, limit: 1, window: 10}\nlisten: {mode: x}\nzzz: 1\n")
    for arguments in (["--check-config"], ["--print-config"], ["-s", place / "s"]):
        status, out, err = run_ratelimitd("-c", path, *arguments)
        lines = err.splitlines()
        assert status == 3 and out == ""
        assert [line.split(": ")[:2] for line in lines] == [
            [f"{path}:2", "policies.a.window"], [f"{path}:3", "listen.mode"], [f"{path}:4", "zzz"]]
        assert all("; " in line for line in lines)  # the mistake; the correct form


def test_a_file_that_is_not_there_is_3():
    status, _, err = run_ratelimitd("-c", "/nowhere/x.yaml")
    assert status == 3 and err.startswith("/nowhere/x.yaml: cannot be read: No such file or directory; ")


def test_a_group_that_nobody_made_is_found_by_the_check_of_the_file_and_is_3(place):
    path = written(place, "listen:\n  group: no-such-group\n")
    for arguments in (["--check-config"], ["-s", place / "s"]):
        status, _, err = run_ratelimitd("-c", path, *arguments)
        assert status == 3
        assert err.startswith(f"{path}:2: listen.group: there is no group 'no-such-group' on this machine; create it")


def test_a_redis_that_is_configured_but_not_chosen_is_3_with_the_line_to_add(place):
    path = written(place, "store:\n  redis:\n    addresses: [\"127.0.0.1:6379\"]\n")
    for arguments in (["--check-config"], ["-s", place / "s"]):
        status, _, err = run_ratelimitd("-c", path, *arguments)
        assert status == 3
        assert err.startswith(f"{path}:3: store.redis.addresses: has no effect without store.type")
        assert "add the line `type: redis` below store:" in err
    path.write_text(path.read_text().replace("store:\n", "store:\n  type: memory\n"))
    assert run_ratelimitd("--check-config", "-c", path)[0] == 0


def test_compat_on_the_memory_store_is_a_warning(place):
    path = written(place, "policies:\n  old: {compat: first-hit, limit: 5, window: 10s}\n")
    status, _, err = run_ratelimitd("--check-config", "-c", path)
    assert status == 0
    assert err.startswith(f"{path}:2: warning: store.type: is memory, so policy old and other compat policies share no")


def test_a_correct_configuration_is_said_to_be(place):
    assert run_ratelimitd("--check-config", "-c", written(place, POLICIES)) == (0, "the configuration is correct\n", "")
    assert run_ratelimitd("--check-config")[0] == 0


def test_what_is_printed_is_a_configuration_that_prints_the_same(place):
    _, once, _ = run_ratelimitd("--print-config", "-c", written(place, POLICIES))
    status, twice, _ = run_ratelimitd("--print-config", "-c", written(place, once, "again.yaml"))
    assert status == 0 and once == twice and '  "login":\n' in once and "    burst: 20\n" in once


def test_quotes_and_backslashes_are_printed_as_they_are_read(place):
    odd = r'"a\"b\\c"'
    text = ("store: {type: redis, redis: {addresses: ['h:1']}}\n"
            f"policies:\n  old: {{compat: first-hit, limit: 5, window: 10s, key_prefix: {odd}}}\n"
            f"  new: {{algorithm: fixed_window, limit: 5, window: 10s, overrides: [{{key: {odd}, limit: 6}}]}}\n")
    _, once, err = run_ratelimitd("--print-config", "-c", written(place, text))
    assert err == "" and f"key_prefix: {odd}\n" in once and f"- key: {odd}\n" in once
    assert run_ratelimitd("--print-config", "-c", written(place, once, "again.yaml")) == (0, once, "")


def test_a_password_is_never_printed(place):
    secret = written(place, "hunter2\n", "password")
    secret.chmod(0o600)
    path = written(place, f"store:\n  type: redis\n  redis: {{addresses: ['h:1'], password_file: {secret}}}\n")
    status, out, err = run_ratelimitd("--print-config", "-c", path)
    assert status == 0 and "hunter2" not in out + err and str(secret) in out


# ---- the socket ---------------------------------------------------------------------------------------------------


def test_a_path_that_is_too_long_is_3_from_a_file_and_4_from_the_command_line(place):
    long = "/tmp/" + "x" * 103
    status, _, err = run_ratelimitd("-c", written(place, f"listen:\n  socket: {long}\n"))
    assert status == 3 and ":2: listen.socket: is 108 bytes long; write 1 to 107 bytes" in err
    status, _, err = run_ratelimitd("-s", long)
    assert status == 4 and "107" in err


def test_a_socket_that_cannot_be_had_is_4(place, ratelimitd):
    assert run_ratelimitd("-s", place / "nowhere" / "s")[0] == 4
    daemon = ratelimitd(POLICIES)
    status, _, err = run_ratelimitd("-s", daemon.socket)
    assert status == 4 and "in use" in err
    assert daemon.client().call("ping") == "pong"


def test_a_path_of_107_bytes_works(place):
    path = str(place / "s").ljust(107, "x")
    process = subprocess.Popen([program("ratelimitd"), "-s", path], stderr=subprocess.PIPE, text=True)
    try:
        assert "control.socket: " in process.stderr.readline()  # there can be none at 115 bytes
        assert "ready" in process.stderr.readline()
        assert stat.S_ISSOCK(os.stat(path).st_mode)
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stderr.close()
    assert not os.path.exists(path)


def test_the_command_line_beats_the_file(place, ratelimitd, connect):
    ratelimitd(POLICIES, arguments=["-s", str(place / "other")])
    assert connect(str(place / "other")).call("ping") == "pong"


def test_a_socket_left_by_a_killed_daemon_is_replaced(ratelimitd):
    daemon = ratelimitd(POLICIES)
    daemon.kill()
    assert os.path.exists(daemon.socket)
    daemon.expected_exit = 0
    daemon.start()
    assert daemon.client().call("ping") == "pong"


def test_a_socket_that_is_deleted_is_made_again(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    before = connect(daemon)
    for _ in range(2):
        n = len(daemon.log)
        os.unlink(daemon.socket)
        eventually(lambda: os.path.exists(daemon.socket), "the socket is back")
        assert connect(daemon).call("ping") == "pong"
        assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o600
        eventually(lambda: any("as it should be again" in line for line in daemon.log[n:]), "peace")
        assert sum("was deleted; making it again" in line for line in daemon.log[n:]) == 1
    assert before.call("ping") == "pong"


def test_a_socket_that_is_replaced_is_left_alone(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    os.unlink(daemon.socket)
    with open(daemon.socket, "w"):
        pass
    daemon.wait_for_log("was replaced by somebody else's")
    assert client.call("ping") == "pong"
    assert daemon.stop() == 0
    assert os.path.exists(daemon.socket)


def test_a_socket_whose_directory_is_gone_comes_back_with_it(ratelimitd, connect, place):
    where = place / "run"
    where.mkdir()
    daemon = ratelimitd(POLICIES, arguments=["-s", str(where / "s")])
    client = connect(str(where / "s"))
    for path in where.iterdir():
        path.unlink()
    where.rmdir()
    daemon.wait_for_log("error: .*does not exist")
    assert client.call("ping") == "pong"
    where.mkdir()
    eventually((where / "s").exists, "the socket is back")
    assert connect(str(where / "s")).call("ping") == "pong"


# ---- ready --------------------------------------------------------------------------------------------------------


def test_without_a_configuration_the_first_check_works(ratelimitd, connect):
    daemon = ratelimitd()
    decision = connect(daemon).check("default", "somebody")
    assert decision["allowed"] and decision["limit"] == 100 and decision["source"] == "memory"
    ready = [line for line in daemon.log if "ready" in line]
    assert len(ready) == 1 and daemon.socket in ready[0] and "memory" in ready[0] and "1 policy" in ready[0]


def test_the_service_manager_hears_of_every_step(place, ratelimitd):
    notices = Notices(place)
    daemon = ratelimitd(POLICIES, env={"NOTIFY_SOCKET": notices.path, "WATCHDOG_USEC": "200000"})
    assert notices.next("READY")["STATUS"] == "2 policies, memory store"
    assert notices.next("WATCHDOG")["WATCHDOG"] == "1"
    daemon.reload()
    assert int(notices.next("RELOADING")["MONOTONIC_USEC"]) > 0
    assert notices.next("READY")["READY"] == "1"
    daemon.stop()
    assert notices.next("STOPPING")["STOPPING"] == "1"
    notices.socket.close()


def activated(listening, *arguments):
    """Start a daemon as systemd would, with `listening` as descriptor 3."""
    def pass_it():
        os.dup2(listening.fileno(), 3)
        os.environ["LISTEN_PID"] = str(os.getpid())

    script = 'export LISTEN_PID=$$; exec "$@"'
    return subprocess.Popen(["sh", "-c", script, "sh", program("ratelimitd"), *arguments], preexec_fn=pass_it,
                            pass_fds=(3,), env={**os.environ, "LISTEN_FDS": "1"}, stderr=subprocess.PIPE, text=True)


def test_an_activation_socket_beats_every_other_path(place, connect):
    path = str(place / "activated")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()
    process = activated(listening, "-s", str(place / "unused"))
    try:
        assert path in process.stderr.readline()
        assert connect(path).call("ping") == "pong"
        assert not (place / "unused").exists()
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stderr.close()
    assert os.path.exists(path)  # it belongs to the service manager
    listening.close()


# ---- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean_and_takes_the_socket_away(ratelimitd, number):
    daemon = ratelimitd(POLICIES)
    daemon.signal(number)
    assert daemon.wait() == 0
    assert not os.path.exists(daemon.socket)


def test_signals_that_mean_nothing_yet_do_nothing(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    daemon.signal(signal.SIGUSR2)
    daemon.wait_for_log("SIGUSR2: .* not built yet")
    daemon.signal(signal.SIGPIPE)
    assert client.call("ping") == "pong"


def test_what_was_sent_before_the_stop_is_answered(ratelimitd, connect):
    """A client that pipelines during the stop gets one answer, in order, for each request that the daemon read; then the
    connection ends."""
    daemon = ratelimitd(POLICIES)
    clients = [connect(daemon) for _ in range(8)]
    stopping = threading.Event()
    failures = []

    def load(client):
        try:
            while True:
                ids = [client.send("check", "api", "k") for _ in range(50)]
                for msgid in ids:
                    client.answer(msgid)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            if not stopping.is_set():
                failures.append("closed before the stop")
        except RpcError as error:
            if error.code != "SHUTTING_DOWN":
                failures.append(str(error))

    threads = [threading.Thread(target=load, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    eventually(lambda: daemon.client().call("stats")["checks"] > 500, "load")
    stopping.set()
    assert daemon.stop() == 0
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert failures == []


@pytest.mark.parametrize("n_signals", [1, 2])
def test_a_stop_does_not_wait_for_a_name_lookup(stuck_resolver, ratelimitd, connect, n_signals):
    """Earlier, even two SIGTERMs waited for the resolver's timeout, and the log reported 0 slots that could not be given back."""
    env, mark = stuck_resolver
    config = (f"{POLICIES}drain: {{timeout: 50ms}}\n"
              "store: {type: redis, redis: {addresses: [\"redis.example:6379\"]}}\n")
    daemon = ratelimitd(config, env=env)
    eventually(mark.exists, "a name lookup")
    assert connect(daemon).check("login", "k")["source"] == "local"
    for _ in range(n_signals):
        daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert any("ending without waiting for a name lookup" in line for line in daemon.log)
    assert not any("slots" in line for line in daemon.log)
    assert not os.path.exists(daemon.socket)
    daemon.start()  # the lock is free again
    assert connect(daemon).call("ping") == "pong"


def test_a_reload_drops_a_name_lookup_that_hangs(stuck_resolver, ratelimitd, start_redis, connect):
    """The new address, without any name in it, was used only after the resolver had given up the old one."""
    env, mark = stuck_resolver
    server = start_redis(tcp=True)
    config = f"{POLICIES}store: {{type: redis, redis: {{addresses: [\"redis.example:6379\"]}}}}\n"
    daemon = ratelimitd(config, env=env)
    eventually(mark.exists, "a name lookup")
    daemon.path.write_text(daemon.path.read_text().replace("redis.example:6379", server.address))
    daemon.reload()
    client = connect(daemon)
    eventually(lambda: client.call("stats")["redis_up"] == 1, "a connection to the new address")
    assert mark.exists()


def test_a_reload_that_keeps_the_name_waits_for_its_lookup(stuck_resolver, ratelimitd, start_redis, connect):
    """Each attempt failed, because "the lookup of another name is still running", and the next one was put off longer."""
    env, mark = stuck_resolver
    port = start_redis(tcp=True).address.split(":")[1]
    daemon = ratelimitd(f"{POLICIES}store: {{type: redis, redis: {{addresses: [\"redis.example:{port}\"]}}}}\n", env=env)
    eventually(mark.exists, "a name lookup")
    daemon.path.write_text(daemon.path.read_text().replace("redis: {addresses", "redis: {database: 1, addresses"))
    daemon.reload()
    client = connect(daemon)
    eventually(lambda: client.call("stats")["redis_connects"] == 2, "the next attempt")
    assert client.call("stats")["redis_connect_failures"] == 0

    def up():
        mark.unlink(missing_ok=True)
        return client.call("stats")["redis_up"] == 1

    eventually(up, "a connection")


# ---- standard error -------------------------------------------------------------------------------------------------


def pipe_of_a_page():
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    return reading, writing


def small_socket():
    ends = socket.socketpair()
    ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    return tuple(end.detach() for end in ends)


@pytest.mark.parametrize("make", [pipe_of_a_page, small_socket, pty.openpty])
def test_standard_error_that_nobody_reads_does_not_stop_the_daemon(place, connect, make):
    """Earlier, a dozen reloads of a broken file filled the pipe, and the daemon waited for its reader without end."""
    reading, writing = make()
    flags = fcntl.fcntl(writing, fcntl.F_GETFL)
    path = written(place, f"listen: {{socket: {place / 's'}}}\n{POLICIES}")
    process = subprocess.Popen([program("ratelimitd"), "-c", path], stdin=subprocess.DEVNULL, stderr=writing)
    try:
        eventually((place / "s").exists, "the socket")
        client = connect(str(place / "s"))
        written(place, "nonsense: 1\n" + POLICIES)

        def lines_are_dropped():
            before = client.call("stats")
            process.send_signal(signal.SIGHUP)
            eventually(lambda: client.call("stats")["reload_failures"] > before["reload_failures"], "reload")
            return before["log_lines_dropped"] > 0

        eventually(lines_are_dropped, "a full standard error", 40)
        assert client.check("api", "k")["allowed"]
        assert fcntl.fcntl(writing, fcntl.F_GETFL) == flags  # other processes share it
        got = b""
        while not re.search(rb"warning: \d+ log lines? w(as|ere) dropped here, because nobody read standard error", got):
            got += os.read(reading, 65536)
        assert got.count(b"is not correct") > 1
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            if select.select([reading], [], [], 0.05)[0]:
                os.read(reading, 65536)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_descriptor_that_was_closed_at_start_does_not_become_the_socket(place, connect, closed):
    process = subprocess.Popen(["sh", "-c", f'exec "$0" -s "$1" {closed}', program("ratelimitd"), place / "s"])
    try:
        eventually((place / "s").exists, "the socket")
        assert connect(str(place / "s")).call("ping") == "pong"
        for number in re.findall(r"\d(?=[<>])", closed):
            assert os.readlink(f"/proc/{process.pid}/fd/{number}") == "/dev/null"
    finally:
        process.terminate()
        assert process.wait(20) == 0


# ---- clock --------------------------------------------------------------------------------------------------------


def test_a_test_clock_sets_the_time(ratelimitd, connect):
    daemon = ratelimitd(POLICIES, arguments=["--test-clock"])
    client = connect(daemon)
    assert any("--test-clock" in line and "warning" in line for line in daemon.log)
    assert client.check("login", "k", 5)["reset_after_ms"] == 3600000
    assert not client.check("login", "k")["allowed"]
    assert client.call("test_clock", 3600 * 1000000) == 3600 * 1000000
    assert client.check("login", "k")["allowed"]


def test_without_the_flag_there_is_no_test_clock(ratelimitd, connect):
    with pytest.raises(RpcError, match="UNKNOWN_METHOD"):
        connect(ratelimitd(POLICIES)).call("test_clock", 1)


# ---- Redis --------------------------------------------------------------------------------------------------------


def test_the_first_check_after_ready_finds_redis(ratelimitd, connect, redis):
    daemon = ratelimitd("defaults: {deadline: 5s}\n" + POLICIES, redis=redis)
    assert connect(daemon).check("login", "k")["source"] == "redis"


def test_a_daemon_without_its_redis_is_ready_and_answers(ratelimitd, connect, place):
    store = f"store:\n  type: redis\n  redis: {{addresses: [\"unix:{place}/none.sock\"]}}\n"
    daemon = ratelimitd(store + POLICIES)
    decision = connect(daemon).check("login", "k")
    assert decision["allowed"] and decision["source"] == "local" and decision["reason"] == "down"


def test_a_redis_that_is_away_at_the_start_causes_a_warning_with_the_answers_of_checks(ratelimitd, place):
    store = f"store:\n  type: redis\n  redis: {{addresses: [\"unix:{place}/none.sock\"]}}\n"
    strict = "  strict: {algorithm: fixed_window, limit: 5, window: 1h, on_failure: deny}\n"
    daemon = ratelimitd(store + POLICIES + strict)
    daemon.wait_for_log(r"info: ready on .*: 3 policies, Redis: not connected yet$")
    daemon.wait_for_log(r"warning: Redis: .*none\.sock.*; until it is ready, checks get their failure answer: "
                        r"1 policy denies, 2 decide locally$")


def test_the_address_of_a_cluster_node_is_named_at_connect(ratelimitd, connect, start_redis):
    node = on_free_port(
        lambda port: start_redis(tcp=True, arguments=["--cluster-enabled", "yes", "--cluster-port", str(port)]))
    daemon = ratelimitd(POLICIES, redis=node)
    line = daemon.wait_for_log("warning: Redis: this server is a node of a cluster")
    assert "store.redis.topology: cluster" in line and f"127.0.0.1:{node.port}" in line
    assert connect(daemon).check("login", "k")["source"] == "local"


@pytest.mark.parametrize("options, arguments, reason", [
    ({}, ["--requirepass", "right"], "NOAUTH: Redis asks for a password; set store.redis.password_file"),
    ({"password_file": "wrong"}, ["--requirepass", "right"],
     "WRONGPASS: Redis refuses the user or the password; correct store.redis.username or the password in store.redis.password"),
    ({"database": 99}, [], "Redis has no such database; lower store.redis.database"),
])
def test_what_redis_refuses_names_the_setting_to_change(ratelimitd, start_redis, tmp_path, options, arguments, reason):
    if "password_file" in options:
        path = tmp_path / "password"
        path.write_text("wrong\n")
        path.chmod(0o600)
        options = {"password_file": path}
    redis = start_redis(arguments=arguments)
    daemon = ratelimitd(POLICIES, redis=redis, redis_options=options)
    assert reason in daemon.wait_for_log("warning: Redis: ")


def test_an_outage_of_redis_is_a_few_lines(ratelimitd, connect, redis):
    daemon = ratelimitd(POLICIES, redis=redis)
    client = connect(daemon)
    redis.stop()
    daemon.wait_for_log("warning: Redis: ")
    assert client.check("login", "k")["reason"] == "down"
    redis.start()
    daemon.wait_for_log("info: Redis: ready")
    eventually(lambda: client.check("api", "k", 0)["source"] == "redis", "Redis decides again")
    assert 2 <= sum(" Redis: " in line for line in daemon.log if "ready on" not in line) <= 6


def test_a_redis_that_hangs_does_not_hold_up_the_start(ratelimitd, connect, redis):
    redis.pause()
    try:
        daemon = ratelimitd(POLICIES, redis=redis)
        assert connect(daemon).check("login", "k")["source"] == "local"
    finally:
        redis.resume()
    client = connect(daemon)
    eventually(lambda: client.check("api", "k", 0)["source"] == "redis", "Redis decides")


def test_a_stop_before_ready_is_clean(ratelimitd, redis):
    redis.pause()
    daemon = ratelimitd(POLICIES, redis=redis, start=False)
    daemon.start(wait=False)
    eventually(lambda: os.path.exists(daemon.socket), "the socket")
    assert daemon.stop() == 0
    redis.resume()


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_a_stop_as_soon_as_the_socket_is_there_is_clean(tmp_path):
    """Earlier, SIGTERM killed the daemon until its handlers were in place; strace makes that time half a second."""
    trace = tmp_path / "trace"
    daemon = Ratelimitd(start=False)
    slow = ["strace", "-qq", "-o", str(trace), "-e", "inject=epoll_create1:delay_enter=500000"]
    try:
        daemon.spawn([*slow, "-e", "trace=epoll_create1,execve,listen", *daemon.argv()],
                     env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # it cannot run under ptrace
        eventually(lambda: os.path.exists(daemon.socket) and "listen(" in trace.read_text(), "the socket")
        pid = next(int(pid) for pid in Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split())
        os.kill(pid, signal.SIGTERM)
        assert daemon.wait() == 0
    finally:
        daemon.close()
    assert "epoll_create1(" in trace.read_text()


PATIENT = """policies:
  patient: {algorithm: fixed_window, limit: 5, window: 1h, deadline: 1m}
"""


@pytest.fixture
def waiting(ratelimitd, connect, redis):
    """Starts a daemon and a check that waits for a Redis that hangs: the daemon, the client, the check's id."""
    def start(config):
        daemon = ratelimitd(config + PATIENT, redis=redis, redis_options={"stall": "1m"})
        client = connect(daemon)
        assert client.check("patient", "k")["source"] == "redis"
        redis.pause()
        msgid = client.send("check", "patient", "k")
        eventually(lambda: connect(daemon).call("stats")["redis_inflight"] == 1, "the check is on its way")
        return daemon, client, msgid

    yield start
    redis.resume()


def test_a_drain_waits_for_checks_in_flight(waiting, redis):
    daemon, client, msgid = waiting("")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for_log("draining, with 1 checks in flight")
    redis.resume()
    assert client.answer(msgid)["source"] == "redis"
    assert client.at_end() and daemon.wait() == 0


def test_a_second_signal_ends_a_drain_at_once(waiting):
    daemon, client, _ = waiting("")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for_log("draining")
    assert daemon.running
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0 and client.at_end()


def test_signals_up_to_the_last_moment_leave_the_stop_clean(ratelimitd):
    """Some of these signals come while the daemon removes its handlers. This test runs without the leak checker: a signal during
    its work may prevent its end. Every other test has it."""
    for _ in range(20):
        daemon = ratelimitd(env={"ASAN_OPTIONS": "detect_leaks=0"})
        while daemon.running:
            daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0


def test_a_drain_ends_after_its_timeout(waiting):
    daemon, client, _ = waiting("drain: {timeout: 200ms}\n")
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0 and client.at_end()


# ---- shipped files ------------------------------------------------------------------------------------------------


def test_the_sample_configuration_is_correct_and_reads_as_it_says(ratelimitd, connect):
    sample = (ROOT / "systemd" / "ratelimitd.yaml").read_text()
    client = connect(ratelimitd(sample))
    assert [policy["name"] for policy in client.call("policies")] == ["default", "login", "api", "search", "sms"]
    assert client.check("default", "alice")["limit"] == 100
    assert client.check("api", "carol")["limit"] == 20


def test_the_sample_configuration_is_correct_including_its_comments(place):
    sample = (ROOT / "systemd" / "ratelimitd.yaml").read_text()
    text = sample.replace("  type: memory\n", "")
    text = re.sub(r"^#(listen:|control:|access:|  )", r"\1", text, flags=re.M).replace("group: ratelimit ", "group: root ")
    status, _, err = run_ratelimitd("--check-config", "-c", written(place, text))
    assert status == 0, err
    assert "CREDENTIALS_DIRECTORY is not set here" in err
