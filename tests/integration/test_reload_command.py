"""test_reload_command.py: `ratelimitctl reload` and the method behind it: what they report is what happens, on both stores."""

import json
import os
import re
import time

import msgpack
import pytest

from harness import ROOT, Client, Notices, RpcError, eventually, stored_keys

PATIENT = "defaults: {deadline: 5s}\n"  # Redis is slow on a busy machine
POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  api: {algorithm: token_bucket, limit: 100, window: 1m, burst: 20}
"""


def control(daemon):
    return Client(f"{daemon.socket}.control")


def ctl(daemon, *arguments):
    done = daemon.ctl(*arguments)
    return done.returncode, done.stdout, done.stderr


def texts(answer):
    return [change["text"] for change in answer["changes"]]


def test_it_says_what_it_does_and_the_exit_status_whether_it_is_in_effect(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    assert client.check("login", "k", 4)["remaining"] == 1
    daemon.configure(POLICIES.replace("limit: 5", "limit: 7").replace("  api: {", "  app: {"))
    status, out, _ = ctl(daemon, "reload", "--dry-run")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "login: limit 5 -> 7, keeps its counts; takes effect now"
    assert lines[1] == "app: added" and lines[2].startswith("api: removed; its keys end by ")
    assert lines[3] == f"{daemon.path}: would be in effect, 2 policies"
    assert client.check("login", "k", 0)["limit"] == 5

    status, out, _ = ctl(daemon, "reload")
    assert status == 0 and out.splitlines()[:2] == lines[:2]
    assert out.splitlines()[3] == f"{daemon.path}: in effect, 2 policies"
    assert client.check("login", "k")["remaining"] == 2  # at once: the answer comes when it is in effect
    status, out, _ = ctl(daemon, "reload")
    assert status == 0 and out.splitlines()[0] == "nothing has changed"


def test_what_needs_a_restart_is_status_1_and_named(ratelimitd):
    daemon = ratelimitd(POLICIES)
    daemon.configure("store: {memory: {max_bytes: 64MiB}}\n" + POLICIES)
    for _ in range(2):  # it stays true until the restart
        status, out, _ = ctl(daemon, "reload")
        assert status == 1
        assert "store.memory.max_bytes: 0 -> 64MiB needs a restart; until then 0 stays in force" in out
        assert "a restart is needed for store.memory.max_bytes" in out
    status, out, _ = ctl(daemon, "--json", "reload")
    assert status == 1 and json.loads(out)["restart"] == ["store.memory.max_bytes"]


def test_a_refusal_is_status_4_with_every_fault(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    daemon.configure(POLICIES + "  bad: {algorithm: fixed_window, limit: 5}\n  worse: {}\n")
    status, out, _ = ctl(daemon, "reload")
    assert status == 4
    assert len(re.findall(rf"^{re.escape(str(daemon.path))}:\d+: policies\.(?:bad|worse)", out, re.M)) == 4
    assert f"{daemon.path}: refused; the configuration stays as it was" in out
    status, out, _ = ctl(daemon, "--json", "reload", "--dry-run")
    assert status == 4 and len(json.loads(out)["faults"]) == 4 and json.loads(out)["dry_run"]
    assert client.check("login", "k")["allowed"]
    assert client.call("stats")["reload_failures"] == 1  # trying it is none


@pytest.mark.parametrize("kind", ["fifo", "directory", "vanished", "huge", "deep", "binary", "loop"])
def test_a_file_that_is_none_is_refused_and_harms_nothing(ratelimitd, connect, kind):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    assert client.check("login", "k", 4)["remaining"] == 1
    daemon.path.unlink()
    if kind == "fifo":
        os.mkfifo(daemon.path)
    elif kind == "directory":
        daemon.path.mkdir()
    elif kind == "huge":
        daemon.path.write_bytes(b"# " + b"x" * (17 << 20))
    elif kind == "deep":
        daemon.path.write_text("[" * 100000)
    elif kind == "binary":
        daemon.path.write_bytes(bytes(range(256)))
    elif kind == "loop":
        daemon.path.symlink_to(daemon.path)
    status, out, _ = ctl(daemon, "reload")
    assert status == 4 and str(daemon.path) in out and "refused" in out
    assert client.check("login", "k")["remaining"] == 0
    assert ctl(daemon, "reload", "--dry-run")[0] == 4
    if kind == "directory":
        daemon.path.rmdir()
    elif kind != "vanished":
        daemon.path.unlink()
    daemon.configure(POLICIES)
    assert ctl(daemon, "reload")[0] == 0


def test_clients_do_not_reload(ratelimitd, connect):
    client = connect(ratelimitd("access: {rules: [{user: root, role: client}], default: {role: client}}\n" + POLICIES))
    for call in (["reload"], ["reload", {"dry_run": True}], ["config"]):
        with pytest.raises(RpcError, match="NOT_PERMITTED"):
            client.call(*call)
    assert "configuration" not in client.call("version")
    assert client.call("stats")["reloads"] == 0


def test_wrong_options_are_named(ratelimitd):
    daemon = ratelimitd(POLICIES)
    with control(daemon) as admin:
        for options, text in (({"dry_run": 1}, "dry_run: must be true or false"), ({"dry": True}, "there is no option 'dry'"),
                              ("yes", "options: must be a map")):
            with pytest.raises(RpcError, match=f"BAD_REQUEST.*{text}"):
                admin.call("reload", options)
        assert admin.call("reload", None)["state"] == "in_effect"


def test_who_asks_while_one_is_under_way_gets_the_next_one(ratelimitd):
    """Ten questions in one write: the first begins a reload, the others share the next one; each is answered. SIGHUP joins in."""
    daemon = ratelimitd(POLICIES)
    with control(daemon) as admin:
        daemon.reload()
        ids = [admin.send("reload", {"dry_run": i % 3 == 0}) for i in range(10)]
        daemon.reload()
        answers = [admin.answer(msgid) for msgid in ids]
        assert [answer["dry_run"] for answer in answers] == [i % 3 == 0 for i in range(10)]
        assert {answer["state"] for answer in answers} == {"in_effect"}
        ids = [admin.send("reload") for _ in range(40)]  # more than may wait
        outcomes = []
        for msgid in ids:
            try:
                outcomes.append(admin.answer(msgid)["state"])
            except RpcError as error:
                outcomes.append(str(error).split(":")[0])
        assert set(outcomes) <= {"in_effect", "OVERLOADED"} and outcomes[:16] == ["in_effect"] * 16


def test_the_protocol_says_how_many_answers_a_connection_may_wait_for(ratelimitd):
    daemon = ratelimitd(POLICIES)
    messages = []
    with control(daemon) as admin:
        while not messages:  # all at once, so that more wait than may
            ids = range(1000, 1200)
            admin.send_bytes(b"".join(msgpack.packb([0, msgid, "reload" if msgid % 2 else "config", []]) for msgid in ids))
            for msgid in ids:
                try:
                    admin.answer(msgid)
                except RpcError as error:
                    assert error.code == "OVERLOADED"
                    messages.append(error.message)
    most = re.search(r"waits for (\d+) such answers", messages[0])[1]
    protocol = (ROOT / "proto" / "PROTOCOL.md").read_text()
    section = re.search(r"^### reload$.*?(?=^### )", protocol, re.M | re.S).group()
    assert f"wait for {most} answers of `reload` and `config`" in re.sub(r"\s+", " ", section)


def test_a_client_that_leaves_harms_nothing_and_the_reload_goes_on(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    daemon.configure(POLICIES.replace("limit: 5", "limit: 9"))
    for _ in range(20):
        admin = control(daemon)
        admin.send("reload")
        admin.send("config")
        admin.close()
    eventually(lambda: client.check("login", "k", 0)["limit"] == 9, "the reload")
    with control(daemon) as admin:
        msgid = admin.send("reload")
        admin.half_close()  # it still reads
        assert admin.answer(msgid)["state"] == "in_effect"
        assert admin.at_end()


def test_a_reload_and_the_end_of_the_daemon(ratelimitd):
    """SIGTERM right behind the question: it is answered, or refused, and the daemon ends cleanly."""
    daemon = ratelimitd(POLICIES)
    admin = control(daemon)
    msgid = admin.send("reload")
    assert daemon.stop() == 0
    try:
        assert admin.answer(msgid)["state"] == "in_effect"
    except (RpcError, EOFError, ConnectionError, AssertionError) as error:
        assert not isinstance(error, RpcError) or "SHUTTING_DOWN" in str(error)
    admin.close()


def test_without_a_file_there_is_nothing_to_read(ratelimitd):
    daemon = ratelimitd(None)
    with control(daemon) as admin:
        with pytest.raises(RpcError, match="UNSUPPORTED: .*started without -c"):
            admin.call("reload")
        assert "default" in admin.call("config")["yaml"]


def test_rules_of_access_are_a_change(ratelimitd):
    daemon = ratelimitd(POLICIES)
    daemon.configure("access: {rules: [{user: root, role: operator}]}\n" + POLICIES)
    assert ctl(daemon, "reload")[1].splitlines()[0] == "access: 0 rules -> 1 other rules; takes effect now"
    assert ctl(daemon, "reload")[1].splitlines()[0] == "nothing has changed"


def test_config_shows_what_is_in_force_without_secrets(ratelimitd, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-32-characters-or-more\n")
    secret.chmod(0o600)
    daemon = ratelimitd(f"keys: {{secret_file: {secret}}}\n" + POLICIES)
    with control(daemon) as admin:
        before = admin.call("config")
        assert "limit: 5\n" in before["yaml"] and str(secret) in before["yaml"]
        assert "a-secret-of" not in before["yaml"]
        assert admin.call("version")["configuration_hash"] == before["hash"]
        assert admin.call("version")["configuration"] == str(daemon.path)
        daemon.configure("store: {memory: {max_bytes: 64MiB}}\n" + POLICIES.replace("limit: 5", "limit: 6"))
        assert admin.call("reload")["hash"] == admin.call("config")["hash"] != before["hash"]
        assert "limit: 6\n" in admin.call("config")["yaml"]
        assert "max_bytes: 0\n" in admin.call("config")["yaml"]  # until the restart
    status, out, _ = ctl(daemon, "config")
    assert status == 0 and out.startswith(f"# {daemon.path}\n# hash ") and "    limit: 6\n" in out


def test_the_hash_is_of_the_settings_not_of_the_file(ratelimitd):
    daemon = ratelimitd(POLICIES)
    with control(daemon) as admin:
        before = admin.call("version")["configuration_hash"]
        daemon.configure("# a comment\n" + POLICIES.replace("1h", "60m"))
        answer = admin.call("reload")
    assert answer["changes"] == [] and answer["hash"] == before


# Each claim, against what a running daemon does

WINDOW = "p: {algorithm: fixed_window, limit: 5, window: 1h}"
CLAIMS = {
    "limit": (WINDOW, "p: {algorithm: fixed_window, limit: 9, window: 1h}", "kept"),
    "lower": (WINDOW, "p: {algorithm: fixed_window, limit: 3, window: 1h}", "kept"),
    "edges": (WINDOW, "p: {algorithm: fixed_window, limit: 5, window: 61m}", "afresh"),
    "algorithm": (WINDOW, "p: {algorithm: sliding_log, limit: 5, window: 1h}", "afresh"),
    "start": (WINDOW, "p: {algorithm: fixed_window, start: first_hit, limit: 5, window: 1h}", "afresh"),
    "denied": (WINDOW, "p: {algorithm: fixed_window, limit: 5, window: 1h, count_denied: true}", "kept"),
    "reset": (WINDOW, "p: {algorithm: fixed_window, limit: 5, window: 1h, on_change: reset}", "afresh"),
    "failure": (WINDOW, "p: {algorithm: fixed_window, limit: 5, window: 1h, on_failure: deny, shadow: true}", None),
    "named": (WINDOW, "p: {limits: [{name: a, algorithm: fixed_window, limit: 5, window: 1h}]}", "afresh"),
    "first hit": ("p: {algorithm: fixed_window, start: first_hit, limit: 5, window: 1h}",
                  "p: {algorithm: fixed_window, start: first_hit, limit: 6, window: 3h}", "kept"),
    "log": ("p: {algorithm: sliding_log, limit: 5, window: 1h}", "p: {algorithm: sliding_log, limit: 7, window: 2h}", "kept"),
    "counter longer": ("p: {algorithm: sliding_counter, limit: 5, window: 1h}",
                       "p: {algorithm: sliding_counter, limit: 5, window: 2h}", "kept"),
    "counter shorter": ("p: {algorithm: sliding_counter, limit: 5, window: 2h}",
                        "p: {algorithm: sliding_counter, limit: 5, window: 1h}", "afresh"),
    "bucket": ("p: {algorithm: token_bucket, limit: 5, window: 10d}",
               "p: {algorithm: token_bucket, limit: 5, window: 10d, burst: 9}", "kept"),
    "leaky": ("p: {algorithm: leaky_bucket, limit: 5, window: 10d}",
              "p: {algorithm: leaky_bucket, limit: 5, window: 10d, max_wait: 1m}", "kept"),
    "calendar": ("p: {algorithm: calendar_window, limit: 5, window: year}",
                 "p: {algorithm: calendar_window, limit: 6, window: year}", "kept"),
    "calendar shorter": ("p: {algorithm: calendar_window, limit: 5, window: year}",
                         "p: {algorithm: calendar_window, limit: 5, window: hour}", "afresh"),
    "by": ("p: {key_format: '{t}:{u}', algorithm: fixed_window, limit: 5, window: 1h}",
           "p: {key_format: '{t}:{u}', by: [t], algorithm: fixed_window, limit: 5, window: 1h}", "afresh"),
    "part names": ("p: {key_format: '{t}:{u}', by: [t], algorithm: fixed_window, limit: 5, window: 1h}",
                   "p: {key_format: '{x}:{y}', by: [x], algorithm: fixed_window, limit: 5, window: 1h}", "kept"),
    "override": (WINDOW, "p: {algorithm: fixed_window, limit: 5, window: 1h, overrides: [{key: 'a:b', limit: 9}]}", "kept"),
    "override window": (WINDOW, "p: {algorithm: fixed_window, limit: 5, window: 1h, overrides: [{key: 'a:b', window: 61m}]}",
                        "some"),
}


def used(client):
    limit = client.call("explain", "p", "a:b", 0)["limits"][0]
    return limit.get("burst", limit["limit"]) - limit["remaining"]


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_it_says_of_the_counts_is_what_becomes_of_them(any_store, ratelimitd, connect, claim):
    before, after, counts = CLAIMS[claim]
    daemon = ratelimitd(f"{PATIENT}policies:\n  {before}\n", redis=any_store)
    client = connect(daemon)
    wanted = "memory" if any_store is None else "redis"
    eventually(lambda: client.check("p", "q:r", 0)["source"] == wanted, "the store is there")
    for _ in range(2):
        assert client.check("p", "a:b")["allowed"]
    assert used(client) == 2
    old = {} if any_store is None else {key: any_store.client().pttl(key) for key in stored_keys(any_store.client())
                                        if b":{b" in key and b"notes" not in key}

    daemon.configure(f"{PATIENT}policies:\n  {after}\n")
    with control(daemon) as admin:
        answer = admin.call("reload")
    said = {change["counts"] for change in answer["changes"] if "counts" in change}
    assert said == ({counts} if counts else set()), texts(answer)
    shadow = "shadow: true" in after
    afresh = counts == "afresh" or claim == "override window"
    if not shadow:
        assert used(client) == (0 if afresh else 2), texts(answer)
    for change in answer["changes"]:
        if any_store is not None and "old_keys_end_ms" in change:
            assert old and max(old.values()) <= change["old_keys_end_ms"], change["text"]


def test_a_sibling_that_counts_by_fewer_parts_moves_the_keys_in_redis_only(any_store, ratelimitd, connect):
    user = "{name: user, algorithm: fixed_window, limit: 5, window: 1d}"
    tenant = "{name: tenant, by: [t], algorithm: fixed_window, limit: 50, window: 1d}"
    text = PATIENT + "policies:\n  p: {key_format: '{t}:{u}', limits: [%s]}\n"
    daemon = ratelimitd(text % user, redis=any_store)
    client = connect(daemon)
    wanted = "memory" if any_store is None else "redis"
    eventually(lambda: client.check("p", "q:r", 0)["source"] == wanted, "the store is there")
    assert client.check("p", "a:b")["remaining"] == 4
    daemon.configure(text % f"{user}, {tenant}")
    with control(daemon) as admin:
        said = texts(admin.call("reload"))
    moved = [text for text in said if text.startswith("p/user: its keys get other names")]
    assert bool(moved) == (any_store is not None) and "p/tenant: added" in said
    assert used(client) == (1 if any_store is None else 0)


# reload.watch

def write_map(folder, name, text):
    """As Kubernetes updates a ConfigMap: a new folder, and a link that is swapped."""
    data = folder / f"..{name}"
    data.mkdir()
    (data / "ratelimitd.yaml").write_text(text)
    (folder / "..next").symlink_to(data.name)
    (folder / "..next").rename(folder / "..data")


def test_a_mounted_configmap_is_followed_through_its_links(ratelimitd, connect, tmp_path):
    daemon = ratelimitd("reload: {watch: 10ms}\n" + POLICIES, start=False)
    text = daemon.path.read_text()
    write_map(tmp_path, "1", text)
    (tmp_path / "ratelimitd.yaml").symlink_to("..data/ratelimitd.yaml")
    daemon.path.unlink()
    daemon.path.symlink_to(tmp_path / "ratelimitd.yaml")
    daemon.start()
    client = connect(daemon)
    write_map(tmp_path, "2", text.replace("limit: 5", "limit: 8"))
    eventually(lambda: client.check("login", "k", 0)["limit"] == 8, "the swapped link")

    write_map(tmp_path, "3", text + "  bad: {}\n")
    daemon.wait_for_log("is not correct; the configuration stays as it was")
    write_map(tmp_path, "4", text.replace("limit: 5", "limit: 9"))
    eventually(lambda: client.check("login", "k", 0)["limit"] == 9, "the next one")
    assert sum("is not correct" in line for line in daemon.log) == 1  # once for each change
    assert client.call("stats")["reloads"] == 2


def test_a_file_that_the_configuration_names_is_followed_too(ratelimitd, connect, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    daemon = ratelimitd(f"reload: {{watch: 10ms}}\nkeys: {{secret_file: {secret}}}\n{POLICIES}")
    client = connect(daemon)
    other = tmp_path / "other"
    other.write_text("y" * 40)
    other.chmod(0o600)
    other.rename(secret)
    eventually(lambda: client.call("stats")["reloads"] == 1, "the reload")
    secret.unlink()
    eventually(lambda: client.call("stats")["reload_failures"] == 1, "the refusal")
    daemon.wait_for_log("No such file")


def test_without_watch_nothing_is_read(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    daemon.configure(POLICIES.replace("limit: 5", "limit: 8"))
    daemon.configure("reload: {watch: 10ms}\n" + POLICIES.replace("limit: 5", "limit: 6"))
    assert client.call("stats")["reloads"] == 0
    assert ctl(daemon, "reload")[0] == 0
    daemon.configure("reload: {watch: 10ms}\n" + POLICIES.replace("limit: 5", "limit: 7"))
    eventually(lambda: client.check("login", "k", 0)["limit"] == 7, "a reload turns it on")


def test_ready_after_a_change_that_was_seen_comes_when_it_is_in_effect(place, ratelimitd, connect):
    """Earlier, the look that found the change was taken for the reload that it began: READY came at once, and an answer that was
    waited for was empty."""
    notices = Notices(place)
    daemon = ratelimitd("reload: {watch: 10ms}\n" + POLICIES, env={"NOTIFY_SOCKET": notices.path})
    notices.next("READY")
    client = connect(daemon)
    daemon.configure("reload: {watch: 0}\n" + POLICIES.replace("limit: 5", "limit: 8"))
    eventually(lambda: client.check("login", "k", 0)["limit"] == 8, "the change")
    assert ctl(daemon, "reload")[0] == 0
    seen = [notices.next("RELOADING", "READY") for _ in range(4)]
    assert ["READY" in message for message in seen] == [False, True] * 2
    notices.socket.close()


def test_replaced_policies_go_also_while_the_file_is_looked_at_each_second(ratelimitd, connect):
    """Earlier, each look came first, and left no time to free what a reload had replaced and a slot had still used."""
    text = "reload: {watch: 10ms}\nlog: {level: debug}\npolicies:\n  p: {algorithm: concurrency, limit: %d, slot_ttl: 1h}\n"
    daemon = ratelimitd(text % 5)
    client = connect(daemon)
    slot = client.call("acquire", "p", "k")["slot"]
    daemon.configure(text % 7)
    daemon.wait_for_log("of the replaced sets of policies 0 go now, and checks still use 1")
    client.call("release", slot)
    daemon.wait_for_log("of the replaced sets of policies 1 go now, and checks still use 0")


def test_a_long_answer_goes_to_a_few_at_once_and_all_are_answered(ratelimitd):
    """Earlier, all got theirs in one tick: sixteen connections that asked sixteen times held the loop for half a second."""
    lines = [f"  p{i}: {{algorithm: fixed_window, limit: 5, window: 1h}}\n" for i in range(10000)]
    daemon = ratelimitd("policies:\n" + "".join(lines))
    outcomes = []
    with control(daemon) as admin:
        ids = range(1000, 1016)
        admin.send_bytes(b"".join(msgpack.packb([0, msgid, "config", []]) for msgid in ids))  # the last 15 wait for one
        for msgid in ids:
            try:
                outcomes.append(len(admin.answer(msgid)["yaml"]) > (16 << 20) // 15)
            except RpcError as error:
                assert error.code == "OVERLOADED" and "ask again" in error.message
                outcomes.append(False)
        assert len(outcomes) == 16 and outcomes[0] and not outcomes[-1]
        assert admin.call("config")["yaml"]


# Files that were cut off, or that are still being written

RULES = """access:
  rules: [{user: root, policies: [login]}]
  default: {role: none}
"""


@pytest.mark.parametrize("cut, says", [
    (POLICIES, "access: is missing in this file, and rules are in force"),
    (POLICIES + "access:\n", "access: is missing in this file"),
    (POLICIES + "access:\n  rules:\n", "access.rules: is not a list"),
    (POLICIES + RULES[:RULES.index("  default")], "access.default: is missing in this file"),
])
def test_a_file_without_the_rules_in_force_is_refused_by_reload_signal_and_watch(ratelimitd, connect, cut, says):
    """A file whose `access` was still missing was taken, and every user was a client."""
    daemon = ratelimitd("reload: {watch: 10ms}\n" + POLICIES + RULES)
    client = connect(daemon)
    daemon.configure("reload: {watch: 0}\n" + cut)
    status, out, _ = ctl(daemon, "reload", "--dry-run")
    assert status == 4 and says in out and "would be refused" in out
    status, out, _ = ctl(daemon, "reload")
    assert status == 4 and says in out and "the configuration stays as it was" in out
    daemon.reload()
    eventually(lambda: client.call("stats")["reload_failures"] == 2, "the refusal by signal")
    daemon.configure("reload: {watch: 0} # again\n" + cut)
    eventually(lambda: client.call("stats")["reload_failures"] == 3, "the refusal by watch")
    with pytest.raises(RpcError, match="NOT_PERMITTED: policy api"):
        client.check("api", "k")

    daemon.configure(POLICIES + "access: {rules: [], default: {role: client}}\n")
    assert ctl(daemon, "reload")[0] == 0
    assert client.check("api", "k")["allowed"]
    daemon.configure(POLICIES)
    assert ctl(daemon, "reload")[0] == 0


def test_fewer_than_half_of_the_policies_are_taken_with_a_warning(ratelimitd, connect):
    many = "policies:\n" + "".join(f"  p{i}: {{algorithm: fixed_window, limit: 5, window: 1h}}\n" for i in range(10))
    daemon = ratelimitd(many)
    daemon.configure(many[:many.index("  p4")])
    says = "warning: policies: there are 4 in this file, and 10 are in force"
    for options in (["--dry-run"], []):
        status, out, _ = ctl(daemon, "reload", *options)
        assert status == 0 and says in out
    daemon.wait_for_log(says)
    assert len(connect(daemon).call("policies")) == 4


def test_watch_takes_a_file_only_once_two_looks_find_the_same(ratelimitd, connect):
    """A file that a slow writer had half written took effect."""
    daemon = ratelimitd("reload: {watch: 10ms}\n" + POLICIES)
    client = connect(daemon)
    text = daemon.path.read_text()
    with daemon.path.open("w") as file:
        for n in range(10, 5000):  # each look finds another one
            file.seek(0)
            file.truncate()
            file.write(text.replace("limit: 5", f"limit: {n}"))
            file.flush()
            if any("found another change" in line for line in daemon.log):
                break
            time.sleep(0.01)
        assert client.call("stats")["reloads"] == 0
        daemon.wait_for_log("each of the last 5 looks found another change in .*; it is read once two looks find the same")
    eventually(lambda: client.check("login", "k", 0)["limit"] == n, "the last one")
    assert client.call("stats")["reloads"] == 1


def test_watch_waits_for_a_file_that_the_new_configuration_names(ratelimitd, connect, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    daemon = ratelimitd("reload: {watch: 10ms}\n" + POLICIES)
    client = connect(daemon)
    daemon.configure(f"reload: {{watch: 10ms}}\nkeys: {{secret_file: {secret}}}\n{POLICIES}")
    for n in range(300):  # more than two looks
        secret.write_text("x" * (41 + n))
        time.sleep(0.01)
    assert client.call("stats")["reloads"] == 0
    eventually(lambda: client.call("stats")["reloads"] == 1, "both files are as they were a look ago")
