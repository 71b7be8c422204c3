"""test_reload.py: the configuration read again while the daemon runs: what changes, what stays, and that nothing waits for it."""

import os
import re
import socket
import threading
from pathlib import Path

import pytest

from harness import Notices, RpcError, eventually, sanitized

POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  api: {algorithm: token_bucket, limit: 100, window: 1m, burst: 20}
"""


def test_a_reload_brings_new_policies_and_keeps_counts(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    assert client.check("login", "k", 4)["remaining"] == 1
    daemon.configure(POLICIES.replace("limit: 5", "limit: 7") + "  new: {algorithm: gcra, limit: 1, window: 1s}\n")
    daemon.reload()
    daemon.wait_for_log("reload: .* read again, 3 policies")
    assert client.check("login", "k")["remaining"] == 2
    assert client.check("new", "k")["allowed"]
    assert client.call("stats")["reloads"] == 1


def test_a_broken_configuration_changes_nothing(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)

    def settings():
        return [{name: value for name, value in policy.items() if name not in ("allowed", "denied")}
                for policy in client.call("policies")]

    before = settings()
    daemon.configure(POLICIES + "  bad: {algorithm: fixed_window, limit: 5}\n  worse: {}\n")
    daemon.reload()
    daemon.wait_for_log("reload: .* is not correct; the configuration stays as it was")
    assert sum("error: " + str(daemon.path) in line for line in daemon.log) == 4  # one for bad, three for worse
    assert settings() == before
    assert client.check("login", "k")["allowed"]
    assert client.call("stats")["reload_failures"] == 1
    daemon.path.unlink()
    daemon.reload()
    daemon.wait_for_log("cannot be read: No such file")
    assert settings() == before


def test_version_shows_when_the_configuration_in_force_was_read(ratelimitd, connect):
    """Is my change live? Only a reload that takes effect makes the configuration new."""
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    version = client.call("version")
    assert 0 <= version["uptime_ms"] <= version["configuration_age_ms"]
    eventually(lambda: client.call("version")["configuration_age_ms"] >= 300, "time passes")
    daemon.configure("policies: {bad: {}}\n")
    daemon.reload()
    daemon.wait_for_log("reload: .* is not correct")
    assert client.call("version")["configuration_age_ms"] >= 300
    daemon.configure(POLICIES)
    daemon.reload()
    daemon.wait_for_log("reload: .* read again")
    version = client.call("version")
    assert version["configuration_age_ms"] < version["uptime_ms"]
    shown = daemon.ctl("version").stdout
    assert re.search(r"^uptime         [\d.]+m?s$", shown, re.M) and re.search(r"^configuration  read [\d.]+m?s ago$", shown, re.M)


def test_what_needs_a_restart_is_named(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    daemon.configure("listen: {socket: /tmp/elsewhere.sock, idle_timeout: 1h}\n" + POLICIES)
    for _ in range(2):  # it stays true until the restart
        n = len(daemon.log)
        daemon.reload()
        eventually(lambda: any("read again" in line for line in daemon.log[n:]), "reload")
        assert any("listen.socket has changed and needs a restart" in line for line in daemon.log[n:])
        assert not any("idle_timeout has changed" in line for line in daemon.log[n:])
    assert client.call("ping") == "pong" and os.path.exists(daemon.socket)


def test_many_reloads_leak_nothing(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    client.call("ping")
    n_descriptors = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    for n in range(1, 101):
        daemon.reload()
        eventually(lambda: client.call("stats")["reloads"] == n, "reload")
        assert client.check("api", f"k{n}")["allowed"]
    assert len(os.listdir(f"/proc/{daemon.pid}/fd")) == n_descriptors


def test_a_storm_of_reloads_under_load_loses_no_answer(ratelimitd, connect):
    """Good and broken files alternate, as fast as the test can write them, while clients ask."""
    daemon = ratelimitd(POLICIES)
    stopping = threading.Event()
    failures = []

    def load(client):
        while not stopping.is_set():
            ids = [client.send("check", "api", "k") for _ in range(20)]
            for msgid in ids:
                try:
                    client.answer(msgid)
                except (RpcError, EOFError, OSError) as error:
                    failures.append(repr(error))
                    return

    threads = [threading.Thread(target=load, args=(connect(daemon),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    watcher = connect(daemon)
    for n in range(60):
        daemon.configure(POLICIES if n % 2 else POLICIES + "  broken: {}\n")
        reloads = sum(watcher.call("stats")[name] for name in ("reloads", "reload_failures"))
        daemon.reload()
        eventually(lambda: sum(watcher.call("stats")[name] for name in ("reloads", "reload_failures")) > reloads, "reload")
    stopping.set()
    for thread in threads:
        thread.join(10)
    stats = watcher.call("stats")
    assert failures == [] and stats["reloads"] == 30 and stats["reload_failures"] == 30


def many(n, limit=5):
    """A configuration with so many policies that reading it takes a while."""
    return "policies:\n" + "".join(f"  p{i}: {{algorithm: fixed_window, limit: {limit}, window: 1h}}\n" for i in range(n))


def test_checks_are_answered_while_a_large_file_is_read(ratelimitd, connect):
    """Earlier, reading blocked the event loop: one second for 100 000 policies."""
    daemon = ratelimitd(many(1))
    client, watcher = connect(daemon), connect(daemon)
    daemon.configure(many(20000, limit=7))
    daemon.reload()
    n_answered = 0
    while watcher.call("stats")["reloads"] == 0:
        client.check("p0", "k", 0)
        n_answered += 1
    assert n_answered >= 10
    assert client.check("p0", "k")["limit"] == 7 and client.check("p19999", "k")["allowed"]


def test_counts_go_on_where_the_thread_has_read_the_policies(ratelimitd, connect):
    daemon = ratelimitd(many(3))
    client = connect(daemon)
    for n in range(1, 6):
        client.check("p2", f"k{n}")
        daemon.reload()
        eventually(lambda: client.call("stats")["reloads"] == n, "reload")
    assert [policy["allowed"] for policy in client.call("policies")] == [0, 0, 5]


def test_pages_go_on_where_a_reload_has_removed_the_last_policy_of_a_page(ratelimitd, connect):
    daemon = ratelimitd(many(30))
    client = connect(daemon)
    first = client.call("policies", {"max": 10})
    assert [policy["name"] for policy in first] == sorted(f"p{i}" for i in range(30))[:10]
    last = first[-1]["name"]
    daemon.configure(many(30).replace(f"  {last}: ", f"  {last}-new: "))
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == 1, "reload")
    rest = client.call("policies", {"after": last})
    assert [policy["name"] for policy in rest] == sorted([f"p{i}" for i in range(30) if f"p{i}" != last] + [f"{last}-new"])[9:]


def test_a_pipe_as_configuration_is_read_at_start_and_refused_by_a_reload(place, ratelimitd, connect):
    """Earlier, a reload waited without end for the other end of the pipe."""
    pipe = place / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(POLICIES,), daemon=True)
    writer.start()
    daemon = ratelimitd(arguments=["-c", str(pipe)])
    writer.join(10)
    client = connect(daemon)
    assert client.check("login", "k", 4)["remaining"] == 1
    daemon.reload()
    daemon.wait_for_log("is not a regular file, and a reload reads nothing else; write the configuration into a file")
    assert client.check("login", "k")["remaining"] == 0


def test_a_second_reload_during_the_first_is_not_forgotten(place, ratelimitd, connect):
    notices = Notices(place)
    daemon = ratelimitd(POLICIES, env={"NOTIFY_SOCKET": notices.path})
    notices.next("READY")
    daemon.configure(many(20000))
    daemon.reload()
    notices.next("RELOADING")
    text = daemon.path.read_text().replace("limit: 5", "limit: 7").replace("  p0:", "  login:")
    whole = daemon.path.with_suffix(".new")  # the first reload may find either file, but never a half-written one
    whole.write_text(text)
    os.replace(whole, daemon.path)
    daemon.reload()
    notices.next("RELOADING")  # an earlier READY belongs to the first reload
    notices.next("READY")
    client = connect(daemon)
    assert client.check("login", "k")["limit"] == 7
    assert client.call("stats")["reloads"] == 2
    notices.socket.close()


def test_a_stop_does_not_wait_for_a_reload(place, ratelimitd):
    notices = Notices(place)
    daemon = ratelimitd(POLICIES, env={"NOTIFY_SOCKET": notices.path})
    daemon.configure(many(60000))
    daemon.reload()
    notices.next("RELOADING")
    assert daemon.stop() == 0
    assert not os.path.exists(daemon.socket)
    assert any("ending without waiting for a reload" in line for line in daemon.log)
    assert not any("read again" in line for line in daemon.log)
    notices.socket.close()


def test_a_service_manager_that_does_not_read_delays_nothing_and_misses_nothing(place, ratelimitd, connect):
    """Earlier, each message waited a quarter of a second for it, and was then lost."""
    notices = Notices(place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                other.sendto(b"WATCHDOG=1", notices.path)
    daemon = ratelimitd(POLICIES, env={"NOTIFY_SOCKET": notices.path})
    client = connect(daemon)
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == 1, "reload")
    assert notices.next("RELOADING")["RELOADING"] == "1"
    assert notices.next("READY")["STATUS"] == "2 policies, memory store"
    notices.socket.close()


@pytest.mark.parametrize("text", ["", "policies: {}\n", "policies:\n", "log: {level: info}\n"])
def test_a_reload_of_a_file_without_policies_keeps_those_in_force(ratelimitd, connect, text):
    """Earlier, a reload between the truncation and the writing of the file dropped every policy."""
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    assert client.check("login", "k", 4)["remaining"] == 1
    daemon.path.write_text(text)
    daemon.reload()
    daemon.wait_for_log("error: .*policies: there are none in this file, and 2 are in force; .* To remove the last policy, "
                        "restart")
    daemon.wait_for_log("the configuration stays as it was")
    assert client.check("login", "k")["remaining"] == 0
    assert client.call("stats")["reload_failures"] == 1


def test_a_daemon_without_policies_of_its_own_can_be_reloaded(ratelimitd, connect):
    daemon = ratelimitd("log: {level: info}\n")
    client = connect(daemon)
    for n, text in enumerate(["log: {level: debug}\n", "policies: {}\n", POLICIES], 1):
        daemon.configure(text)
        daemon.reload()
        eventually(lambda: client.call("stats")["reloads"] == n, "reload")
    assert client.check("login", "k")["allowed"]


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_of_a_burst_is_given_back(ratelimitd, connect):
    """Earlier, the daemon kept it until the next reload."""
    daemon = ratelimitd("caps: {max_frame: 1MiB}\nlog: {level: debug}\n"
                        "policies:\n  short: {algorithm: token_bucket, limit: 1, window: 6s}\n")
    client = connect(daemon)
    for n in range(30):
        client.call("check_many", [["short", f"{n * 1000 + i}".ljust(1000, "x")] for i in range(1000)])
    most = resident_bytes(daemon.pid)
    freed = re.compile(r"debug: memory: \d+ MiB were in use and \d+ are; what is free goes back to the system")
    eventually(lambda: client.check("short", "k") and freed.search(daemon.text()), "the keys are swept, some each tick", 30)
    if not sanitized():  # which keeps freed memory for a while
        eventually(lambda: resident_bytes(daemon.pid) < most - 2**24, "less memory")
