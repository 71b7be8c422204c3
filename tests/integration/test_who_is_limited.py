"""test_who_is_limited.py: top, denials, slowlog and clients: who is limited, since when, by whom."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import msgpack
import pytest

from harness import DENIED, DONE, REFUSED, USAGE, RpcError, build_dir, eventually, program

POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1d}
  api:
    limits:
      - {name: minute, algorithm: fixed_window, limit: 3, window: 1d}
      - {name: day, algorithm: sliding_log, limit: 100, window: 1d}
  quiet: {algorithm: fixed_window, limit: 1, window: 1d, shadow: true}
  never: {algorithm: fixed_window, limit: 0, window: 1d}
  jobs: {algorithm: concurrency, limit: 1, slot_ttl: 30s}
"""
HOUR = "top: {window: 1h}\n"
INTERRUPTED = 130
ROWS = 64  # of an answer
EVIL = "al\x1b[2Jice\n\\é"


def ctl_json(daemon, *arguments):
    done = daemon.ctl("--json", *arguments)
    assert (done.returncode, done.stderr) == (DONE, ""), done
    return json.loads(done.stdout)


def top(daemon, *arguments):
    return ctl_json(daemon, "top", "-n", "1", *arguments)


def counts(rows):
    return {(row["policy"], row["key"]): row["count"] for row in rows}


def all_parts(client, method, **options):
    """The answers of a whole view."""
    answers = [client.call(method, options)]
    while "next" in answers[-1]:
        answers.append(client.call(method, {**options, "next": answers[-1]["next"]}))
    return answers


# ---- top ----

def test_the_keys_that_are_denied_most_come_first(ratelimitd, connect):
    daemon = ratelimitd(HOUR + POLICIES)
    client = connect(daemon)
    for key, n in (("rare", 6), ("often", 25), ("some", 9), ("free", 5)):
        for _ in range(n):
            client.check("login", key)
    for _ in range(4):
        client.check("api", "acme:import")
        client.check("never", "x")
        client.check("quiet", "x")
    client.call("check_all", [["login", "often"], ["api", "fresh"]])  # each as it was decided
    client.call("peek", "login", "often", 1)  # charges nothing: no denial

    view = top(daemon)
    assert set(view) >= {"policies", "denied", "granted", "clients"}
    rows = view["denied"]["running"]
    assert rows[0] == {"policy": "login", "key": "often", "count": 21, "error": 0, "limit": "login"}
    assert counts(rows) == {("login", "often"): 21, ("login", "some"): 4, ("login", "rare"): 1, ("api", "acme:import"): 1,
                            ("never", "x"): 4}
    assert [row["count"] for row in rows] == sorted((row["count"] for row in rows), reverse=True)
    assert next(row for row in rows if row["policy"] == "api")["limit"] == "api/minute"
    assert view["denied"]["complete"] == [] and view["granted"] == {"running": [], "complete": []}

    policies = {row["policy"]: row for row in view["policies"]}
    assert policies["login"] == {"policy": "login", "checks": 46, "denied": 26, "near": policies["login"]["near"]}
    assert (policies["quiet"]["checks"], policies["quiet"]["denied"]) == (4, 0)
    assert [row["checks"] for row in view["policies"]] == sorted((row["checks"] for row in view["policies"]), reverse=True)


def test_a_window_that_is_over_is_the_complete_one(ratelimitd, connect):
    daemon = ratelimitd("top: {window: 1s}\n" + POLICIES)
    client = connect(daemon)
    for _ in range(3):
        client.check("never", "k")
    seen = []

    def complete():
        seen.append(top(daemon)["denied"])
        return counts(seen[-1]["complete"]) == {("never", "k"): 3} and seen[-1]["running"] == []

    eventually(complete, "a complete window")
    eventually(lambda: top(daemon)["denied"] == {"running": [], "complete": []}, "the end of it")


def test_granted_units_are_counted_if_they_are_asked_for(ratelimitd, connect):
    daemon = ratelimitd("top: {window: 1h, granted: true}\n" + POLICIES)
    client = connect(daemon)
    client.check("api", "a", 2)
    client.check("login", "b", 3)
    client.check("login", "b", 3)  # denied
    client.call("acquire", "jobs", "j")
    assert counts(top(daemon)["granted"]["running"]) == {("api", "a"): 2, ("login", "b"): 3, ("jobs", "j"): 1}


def test_by_shows_one_kind(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    connect(daemon).check("never", "k")
    assert set(top(daemon, "--by", "policy")) == {"policies", "window_ms", "running_ms"}
    assert set(top(daemon, "--by", "key")) == {"denied", "granted", "window_ms", "running_ms"}
    assert set(top(daemon, "--by", "client")) == {"clients", "window_ms", "running_ms"}
    done = daemon.ctl("top", "-n", "1", "--by", "key")
    assert "never" in done.stdout and "PID" not in done.stdout


def test_which_client_floods_is_one_line(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    quiet, flooding = connect(daemon), connect(daemon)
    quiet.check("api", "k")
    for _ in range(50):
        flooding.check("api", "k")
    rows = top(daemon)["clients"]
    assert rows[0]["requests"] == 50 and rows[0]["pid"] == os.getpid() and rows[0]["uid"] == os.getuid()
    assert rows[0]["program"] == open("/proc/self/comm").read().strip() and rows[0]["user"] == "root"
    assert rows[0]["bytes_in"] > 50 * 8 and rows[0]["bytes_out"] > rows[0]["bytes_in"] and rows[0]["inflight"] == 0
    assert [row["requests"] for row in rows if row["pid"] == os.getpid()] == [50, 1]


def test_a_policy_that_a_reload_removes_stays_in_the_tables(ratelimitd, connect):
    daemon = ratelimitd(HOUR + POLICIES)
    client = connect(daemon)
    client.check("never", "k")
    daemon.configure(HOUR + POLICIES.replace("never", "other"))
    daemon.reload()
    daemon.wait_for_log("reload: .* read again")
    assert counts(top(daemon)["denied"]["running"]) == {("never", "k"): 1}
    assert ctl_json(daemon, "denials")["denials"][0]["policy"] == "never"


def test_a_reload_resizes_tables_and_rings(ratelimitd, connect):
    daemon = ratelimitd(HOUR + POLICIES)
    client = connect(daemon)
    for i in range(20):
        client.check("never", f"k{i}")
    last = 20

    def reloaded(n, settings):
        daemon.configure(settings + POLICIES)
        daemon.reload()
        eventually(lambda: len(re.findall("reload: .* read again", daemon.text())) == n, "a reload")

    reloaded(1, "top: {window: 1h, keys: 2}\ndenials: {entries: 5}\n")
    rows = ctl_json(daemon, "denials")["denials"]
    assert [row["id"] for row in rows] == list(range(last - 4, last + 1))
    assert top(daemon)["denied"]["running"] == []  # another number begins anew
    for i in range(9):
        client.check("never", f"k{i % 3}")
    rows = top(daemon)["denied"]["running"]
    assert len(rows) == 2 and sum(row["count"] for row in rows) == 9 and all(row["error"] <= 9 // 2 for row in rows)

    reloaded(2, "top: {window: 1h, keys: 0}\ndenials: {entries: 0}\nslowlog: {entries: 0}\n")
    client.check("never", "k")
    assert top(daemon)["denied"] == {"running": [], "complete": []} and ctl_json(daemon, "denials") == {"denials": []}
    reloaded(3, HOUR)
    client.check("never", "k")
    assert [row["id"] for row in ctl_json(daemon, "denials")["denials"]] == [last + 10]


def test_each_row_comes_once_however_many_there_are(ratelimitd, connect):
    daemon = ratelimitd("top: {window: 1h, keys: 1000}\n" + POLICIES)
    client = connect(daemon)
    for i in range(5):
        client.call("check_many", [["never", f"k{i * 160 + j}"] for j in range(160)])
    others = [connect(daemon) for _ in range(40)]
    answers = all_parts(client, "top")
    assert answers[0]["first"] and not any("first" in answer for answer in answers[1:])
    assert all(sum(map(len, (a["policies"], a["denied"]["running"], a["clients"]))) <= ROWS for a in answers)
    rows = [row["key"] for answer in answers for row in answer["denied"]["running"]]
    assert len(rows) == 800 and len(set(rows)) == 800
    assert len([row for answer in answers for row in answer["clients"]]) == 1 + len(others)
    assert len(top(daemon)["denied"]["running"]) == 800
    rows = [row["connection"] for answer in all_parts(client, "clients") for row in answer["clients"]]
    assert len(set(rows)) == len(rows) == 1 + len(others)


def test_thousands_of_connections_come_in_parts_each_once(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    others = [connect(daemon) for _ in range(1500)]
    for method in ("clients", "top"):
        answers = all_parts(client, method)
        assert all(len(answer.get("clients", ())) <= ROWS for answer in answers)
        assert sum(len(answer.get("clients", ())) for answer in answers) == 1 + len(others), method
    assert len(ctl_json(daemon, "clients")["clients"]) == 2 + len(others)  # and ratelimitctl itself


def test_a_million_different_keys_stay_within_the_error(ratelimitd, connect):
    """Fewer here: what counts is that they are many times the table. test_top_keys.c has the bound on random traces."""
    daemon = ratelimitd("top: {window: 1h, keys: 16}\ncaps: {max_frame: 1MiB}\n" + POLICIES)
    client = connect(daemon)
    for i in range(20):
        client.call("check_many", [["never", "flood"] if j % 4 == 0 else ["never", f"{i}-{j}"] for j in range(1000)])
    rows = top(daemon)["denied"]["running"]
    assert len(rows) == 16 and sum(row["count"] for row in rows) == 20000
    assert all(row["error"] <= 20000 // 16 for row in rows)
    assert rows[0]["key"] == "flood" and rows[0]["count"] - rows[0]["error"] <= 5000 <= rows[0]["count"]


# ---- denials ----

def test_denials_say_who_and_when(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    client.check("never", "a", 2)
    for _ in range(4):
        client.check("api", "b")
    rows = ctl_json(daemon, "denials")["denials"]
    fields = {"id", "time_ms", "policy", "key", "limit", "cost", "uid", "pid", "source"}
    assert [set(row) for row in rows] == [fields, fields]
    assert [(row["id"], row["policy"], row["key"], row["limit"], row["cost"]) for row in rows] == [
        (1, "never", "a", "never", 2), (2, "api", "b", "api/minute", 1)]
    assert all((row["uid"], row["pid"], row["source"]) == (os.getuid(), os.getpid(), "memory") for row in rows)
    assert re.search(r"api/minute  key b  cost 1  uid 0 pid \d+  \[memory\]", daemon.ctl("denials").stdout)


def test_denials_of_a_policy_a_key_or_a_user(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    long_keys = ["x" * 500 + "1", "x" * 500 + "2"]
    for key in ["a", "b", "a", *long_keys]:
        client.check("never", key)
    client.call("check_many", [["api", "a"]] * 5)

    def ids(*options, stdin=None):
        done = subprocess.run([program("ratelimitctl"), "-s", daemon.socket, "--json", "denials", *options], text=True,
                              input=stdin, stdout=subprocess.PIPE, check=True)
        return [row["id"] for row in json.loads(done.stdout)["denials"]]

    assert ids("--policy", "never") == [1, 2, 3, 4, 5]
    assert ids("--key", "a") == [1, 3, 6, 7]
    assert ids("--key", "a", "--policy", "never") == [1, 3]
    assert ids("--key", long_keys[1]) == [5]
    assert ids("--uid", str(os.getuid())) == [1, 2, 3, 4, 5, 6, 7] and ids("--uid", "4711") == []
    assert ids("--key", "-", stdin="b\n") == [2]
    assert client.call("denials", {"after": 5})["denials"][0]["id"] == 6
    assert client.call("denials", {"after": 10000})["denials"][0]["id"] == 1  # an id of a daemon before this one


def test_the_last_ones_are_remembered(ratelimitd, connect):
    daemon = ratelimitd("denials: {entries: 300}\n" + POLICIES)
    client = connect(daemon)
    client.call("check_many", [["never", "k"]] * 400)
    answers = [client.call("denials")]
    while answers[-1].get("more"):
        answers.append(client.call("denials", {"after": answers[-1]["last"]}))
    assert [len(answer["denials"]) for answer in answers] == [ROWS] * (300 // ROWS) + [300 % ROWS]
    assert [row["id"] for row in ctl_json(daemon, "denials")["denials"]] == list(range(101, 401))


def test_denials_are_followed(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    client.check("never", "before")
    with subprocess.Popen([program("ratelimitctl"), "-s", daemon.socket, "--json", "denials", "-f"], text=True,
                          stdout=subprocess.PIPE) as following:
        assert json.loads(following.stdout.readline())["key"] == "before"
        client.check("never", "after")
        assert json.loads(following.stdout.readline())["key"] == "after"
        following.send_signal(signal.SIGINT)
        assert following.wait() == INTERRUPTED


# ---- slowlog ----

def test_slow_checks_are_remembered_with_the_time_in_the_store(ratelimitd, connect, redis):
    daemon = ratelimitd("slowlog: {threshold: 30ms}\ndefaults: {deadline: 5s}\n" + POLICIES, redis=redis)
    client = connect(daemon)
    client.check("login", "fast")
    redis.client().execute_command("client", "pause", 200, "all")
    client.check("login", "slow")
    rows = ctl_json(daemon, "slowlog")["slowlog"]
    assert [row["key"] for row in rows] == ["slow"]
    row = rows[0]
    assert set(row) == {"id", "time_ms", "policy", "key", "source", "total_us", "queue_us", "store_us", "uid", "pid"}
    assert row["total_us"] == row["queue_us"] + row["store_us"] and row["store_us"] >= 30000 and row["source"] == "redis"
    assert "login  key slow" in daemon.ctl("slowlog").stdout

    assert ctl_json(daemon, "slowlog", "--reset") == {"slowlog": []}
    redis.client().execute_command("client", "pause", 200, "all")
    client.check("login", "again")
    assert [(row["id"], row["key"]) for row in ctl_json(daemon, "slowlog")["slowlog"]] == [(row["id"] + 1, "again")]


# ---- clients ----

def test_clients_lists_connections_with_their_rule(ratelimitd, connect):
    daemon = ratelimitd("access: {rules: [{user: root, role: operator}]}\n" + POLICIES)
    client = connect(daemon)
    client.check("login", "k")
    row = next(row for row in ctl_json(daemon, "clients")["clients"] if row["pid"] == os.getpid())
    assert row["requests"] == 1 and row["rule"] == "access.rules[0]" and row["user"] == "root"
    assert row["connected_ms"] >= row["idle_ms"] >= 0
    text = daemon.ctl("clients").stdout
    assert str(os.getpid()) in text and "access.rules[0]" in text


# ---- who may ask, and privacy ----

@pytest.mark.parametrize("command", ["top", "denials", "slowlog", "clients"])
def test_they_are_for_operators_on_both_sockets(ratelimitd, connect, command):
    daemon = ratelimitd("access: {rules: [{user: root, role: client}]}\n" + POLICIES)
    arguments = ["-n", "1"] if command == "top" else []
    done = daemon.ctl(command, *arguments)
    assert done.returncode == REFUSED and "NOT_PERMITTED" in done.stderr
    done = subprocess.run([program("ratelimitctl"), "-s", daemon.socket + ".control", command, *arguments], check=False)
    assert done.returncode == DONE


def test_views_show_keys_as_keys_in_views_says(ratelimitd, connect):
    daemon = ratelimitd("keys: {in_views: hash, in_log: hash}\nlog: {denials: sampled}\n" + POLICIES)
    client = connect(daemon)
    client.check("never", "alice")
    client.check("never", "x" * 300)
    rows = ctl_json(daemon, "denials")["denials"]
    assert all(re.fullmatch(r"#[0-9a-f]{12}", row["key"]) for row in rows)
    assert {row["key"] for row in rows} == {row["key"] for row in top(daemon)["denied"]["running"]}
    eventually(lambda: rows[0]["key"] in daemon.text(), "the same hash in the log")
    assert [row["id"] for row in ctl_json(daemon, "denials", "--key", "alice")["denials"]] == [1]


def test_control_bytes_of_keys_are_escaped(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    client.check("never", EVIL)
    client.check("never", b"\xff\x00" * 512)
    for arguments in (["top", "-n", "1"], ["denials"]):
        text = daemon.ctl(*arguments).stdout
        assert "\x1b" not in text and r"al\x1b[2Jice\x0a\x5cé" in text and "\x00" not in text and r"\xff\x00" in text
    assert EVIL in {row["key"] for row in top(daemon)["denied"]["running"]}


@pytest.mark.parametrize("arguments, error", [
    (["top", {"next": "1.2"}], "next: must be the str"), (["top", {"by": "user"}], "by: must be policy, key or client"),
    (["top", {"next": "0.0.9.0"}], "next: must be the str"), (["top", {"uid": 1}], "no option 'uid'"),
    (["denials", {"after": -1}], "after: must be an id"), (["denials", {"uid": -1}], "uid: must be the number"),
    (["denials", {"polcy": "x"}], "did you mean 'policy'"), (["denials", {"reset": True}], "no option 'reset'"),
    (["slowlog", {"reset": 1}], "reset: must be true or false"), (["clients", {"next": "x"}], "next: must be the str"),
    (["denials", {"key": ""}], "key: must be a str, and not empty"), (["clients", 5], "options: must be a map"),
    (["clients", {"next": "9" * 300}], "next: must be the str")])
def test_wrong_options_are_named(ratelimitd, connect, arguments, error):
    with pytest.raises(RpcError, match=re.escape(error)):
        connect(ratelimitd(POLICIES)).call(*arguments)


def test_nil_is_no_next(ratelimitd, connect):
    """PROTOCOL.md allows it; earlier it was BAD_REQUEST."""
    client = connect(ratelimitd(POLICIES))
    assert "clients" in client.call("top", {"next": None}) and "clients" in client.call("clients", {"next": None})
    assert client.call("find", "never", "*", {"next": None})["keys"] == []


@pytest.mark.parametrize("arguments", [["top", "-n", "0"], ["top", "-n", "x"], ["top", "--by", "user"], ["top", "x"], ["denials", "--uid", "root"],
                                       ["denials", "--key", ""], ["denials", "--reset"], ["clients", "-f"], ["top", "--policy", "p"],
                                       ["denials", "-n", "1"]])
def test_wrong_usage(ratelimitd, arguments):
    assert ratelimitd(POLICIES).ctl(*arguments).returncode == USAGE


# ---- the terminal ----

class Terminal:
    """ratelimitctl on a terminal of this size."""

    def __init__(self, daemon, *arguments, columns=80, lines=24):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.slave, self.before = slave, termios.tcgetattr(slave)
        self.process = subprocess.Popen([program("ratelimitctl"), "-s", daemon.socket, *arguments], stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True)
        self.seen = ""

    def read_until(self, text):
        def came():
            while select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            return text in self.seen
        eventually(came, text)

    def is_as_before(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    made = []

    def start(daemon, *arguments, **size):
        made.append(Terminal(daemon, *arguments, **size))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.mark.parametrize("ending", ["q", signal.SIGINT, signal.SIGTERM, signal.SIGHUP, "daemon"])
def test_the_terminal_is_as_before_on_every_exit(ratelimitd, terminal, ending):
    daemon = ratelimitd(POLICIES)
    screen = terminal(daemon, "top")
    screen.read_until("POLICY")
    eventually(lambda: not screen.is_as_before(), "keys without a newline")
    if ending == "q":
        os.write(screen.master, b"q")
        assert screen.process.wait(60) == DONE
    elif ending == "daemon":
        daemon.stop()
        assert screen.process.wait(60) == 3
    else:
        screen.process.send_signal(ending)
        assert screen.process.wait(60) == 128 + ending
    assert screen.is_as_before()
    screen.read_until("\x1b[?25h")  # the cursor is shown again


def test_a_terminal_of_ten_columns(ratelimitd, connect, terminal):
    daemon = ratelimitd(HOUR + POLICIES)
    connect(daemon).check("never", "日本語" * 30)
    screen = terminal(daemon, "top", columns=10, lines=6)
    screen.read_until("POLICY")
    os.write(screen.master, b"q")
    screen.process.wait(60)
    page = screen.seen.split("\x1b[2J", 1)[1].split("\x1b[?25h", 1)[0]
    lines = page.replace("\r", "").split("\n")
    assert len(lines) <= 6 and all(sum(2 if char >= "\u1000" else 1 for char in line) <= 10 for line in lines)


def test_a_reader_that_stops_reading_keeps_nobody_waiting(ratelimitd, connect):
    daemon = ratelimitd(HOUR + POLICIES)
    client, stuck = connect(daemon), connect(daemon)
    client.call("check_many", [["never", f"k{i}"] for i in range(500)])
    stuck.socket.setblocking(False)
    request = msgpack.packb([0, 1, "top", []])
    sent = 0
    while sent < 100000:  # until the daemon stops to read from it
        try:
            stuck.socket.send(request)
        except BlockingIOError:
            break
        sent += 1
    assert 0 < sent < 100000
    assert client.check("api", "k")["allowed"]
    assert len(top(daemon)["denied"]["running"]) == 500


# ---- the four walks of docs/operate.md ----

def walk(title):
    """The commands below a heading of the section, in order."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "operate.md").read_text()
    section = re.search(rf"^### {re.escape(title)}\n(.*?)^##", page, re.M | re.S)[1]
    commands = [line for block in re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S) for line in block.splitlines()]
    assert 1 <= len(commands) <= 3
    return commands


def run_walk(daemon, title):
    environment = {**os.environ, "RATELIMIT_SOCKET": daemon.socket, "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}"}
    done = [subprocess.run(["sh", "-c", command], text=True, stdout=subprocess.PIPE, env=environment, check=False)
            for command in walk(title)]
    assert all(one.returncode in (DONE, DENIED) for one in done), done
    return [one.stdout for one in done]


WALKED = """top: {window: 1h, keys: 50}
policies:
  login: {algorithm: fixed_window, limit: 2, window: 1d}
  api: {algorithm: fixed_window, limit: 2, window: 1d}
"""


def test_from_the_alert_to_one_key(ratelimitd, connect):
    daemon = ratelimitd(WALKED)
    client = connect(daemon)
    for i in range(60):
        client.check("login", "203.0.113.9")
        client.check("login", f"203.0.113.{i % 5}")
    top_, denials, explained = run_walk(daemon, "One key floods")
    first = re.search(r"DENIED.*\n(.*)", top_)[1].split()
    assert first == ["58", "<=0", "login", "203.0.113.9"]
    assert f"uid {os.getuid()} pid {os.getpid()}" in denials.splitlines()[-1]
    assert "would be denied" in explained


def test_from_the_alert_to_one_client(ratelimitd, connect):
    daemon = ratelimitd(WALKED)
    for _ in range(10):
        connect(daemon).check("api", "k")
    flooding = [sys.executable, "-c", "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                "[(s.sendall(bytes([0x94, 0, 1, 0xa4]) + b'ping' + b'\\x90'), s.recv(64)) for _ in range(500)];"
                "print(flush=True); sys.stdin.read()", daemon.socket]
    with subprocess.Popen(flooding, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flood:
        flood.stdout.readline()
        top_, clients = run_walk(daemon, "One client floods")
        flood.stdin.close()
    for page in (top_, clients):
        assert re.search(r"PID .*\n(\d+)", page)[1] == str(flood.pid)
    assert "access.default" in clients


def test_from_the_alert_to_many_keys(ratelimitd, connect):
    daemon = ratelimitd(WALKED)
    client = connect(daemon)
    for i in range(400):
        client.call("check_many", [["login", f"user-{i}"]] * 3)
    top_, denials, clients = run_walk(daemon, "Many keys at once")
    counts_ = [(int(count), int(error)) for count, error in re.findall(r"^ +(\d+) +<=(\d+)  login", top_, re.M)]
    assert counts_ and all(count - error <= 1 and error >= 400 // 50 - 1 for count, error in counts_)
    rows = denials.splitlines()
    assert len(rows) == 400 and all(f"pid {os.getpid()}" in row for row in rows)
    assert re.search(r"PID .*\n(\d+)", clients)[1] == str(os.getpid())


def test_a_customer_who_is_blocked(ratelimitd, connect):
    daemon = ratelimitd(WALKED)
    client = connect(daemon)
    for _ in range(5):
        client.check("api", "acme:import")
        client.check("api", "acme:other")
    client.check("api", "beta:import")
    found, explained, reset = run_walk(daemon, 'A customer says "I am blocked"')
    rows = [row.split() for row in found.splitlines()]
    assert [(row[0], row[-2], row[-1]) for row in rows[1:3]] == [("3", "yes", "acme:import"), ("3", "yes", "acme:other")]
    assert rows[3:] == [["2", "keys"]]
    assert "would be denied" in explained and reset == "removed\n"
    assert client.check("api", "acme:import")["allowed"]


# ---- hash ----

def test_hash_finds_a_key_in_the_log(ratelimitd, connect):
    daemon = ratelimitd("log: {denials: sampled}\n" + POLICIES)
    connect(daemon).check("never", "203.0.113.9")
    shown = daemon.ctl("hash", "203.0.113.9").stdout
    assert re.fullmatch(r"#[0-9a-f]{12}\n", shown)
    eventually(lambda: f" key {shown.strip()} " in daemon.text(), "the hash in the log")
    assert ctl_json(daemon, "hash", "203.0.113.9") == {"hash": shown.strip()} != ctl_json(daemon, "hash", "203.0.113.8")
    done = subprocess.run([program("ratelimitctl"), "-s", daemon.socket, "hash", "-"], input="203.0.113.9\nmore\n", text=True,
                          stdout=subprocess.PIPE, check=True)
    assert done.stdout == shown
    assert daemon.ctl("hash", "-").returncode == daemon.ctl("hash").returncode == USAGE  # standard input is empty
    assert daemon.ctl("hash", "x" * 5000).returncode == REFUSED


def test_a_daemon_that_writes_a_key_is_found(ratelimitd, connect):
    """The harness looks for keys and passwords in what every daemon of the suite wrote."""
    daemon = ratelimitd("log: {denials: sampled}\nkeys: {in_log: clear}\n" + POLICIES)
    connect(daemon).check("never", "a-customers-key")
    eventually(lambda: "a-customers-key" in daemon.text(), "the key in the log")
    assert daemon.leaked() == []
    daemon.configurations = [text.replace("clear", "hash") for text in daemon.configurations]
    assert daemon.leaked() == ["a-customers-key"]
    daemon.configurations.append("keys: {in_log: clear}")
