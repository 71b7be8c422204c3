"""test_rotation.py: a password, a certificate or a key's secret is renewed in its file: what a reload says of it, and does."""

import os
import re
import shutil
import subprocess
import time

import pytest

import documents_of_redis as page
from harness import build_dir, eventually, on_free_port

POLICIES = "defaults: {deadline: 5s}\npolicies:\n  api: {algorithm: fixed_window, limit: 100, window: 1d, on_failure: deny}\n"
RIGHTS = ("on", "resetkeys", "~rl:*", "+@all")


def write(path, text):
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def user(redis):
    """Adds a password of the user `ratelimit`; every=True: takes the others away."""
    def password(text, every=False):
        with redis.client() as client:
            client.execute_command("ACL", "SETUSER", "ratelimit", *(["resetpass"] if every else []), *RIGHTS, f">{text}")

    password("old")
    return password


def store(redis, password_file, **options):
    options = {"addresses": f'["{redis.address}"]', "username": "ratelimit", "password_file": password_file, **options}
    return f"{POLICIES}store:\n  type: redis\n  redis:\n" + "".join(f"    {name}: {value}\n" for name, value in options.items())


def ready(client):
    eventually(lambda: client.check("api", "k", 0)["source"] == "redis", "Redis decides")


def test_a_reload_names_the_file_whose_content_has_changed(redis, user, ratelimitd, connect, tmp_path):
    """Earlier, it said that nothing had changed."""
    secret, keys = write(tmp_path / "password", "old"), write(tmp_path / "keys", "x" * 40)
    daemon = ratelimitd(f"keys: {{secret_file: {keys}}}\n{store(redis, secret)}")
    client = connect(daemon)
    ready(client)
    assert daemon.ctl("reload", "--dry-run").stdout.splitlines()[0] == "nothing has changed"
    user("new")
    write(secret, "new")
    write(keys, "y" * 40)
    for dry_run in (True, True, False):
        answer = client.call("reload", {"dry_run": dry_run})
        assert answer["state"] == "in_effect" and answer["notes"] == []
        assert [change["text"].partition("; ")[0] for change in answer["changes"]] == [
            "store.redis.password_file: its content has changed", "keys.secret_file: its content has changed"]
        assert all(change["content"] for change in answer["changes"])
    assert client.call("reload")["changes"] == []
    assert "yyyy" not in daemon.text() and not any("new" in line for line in daemon.log if "password_file" in line)


def test_a_content_is_held_back_with_all_of_store_redis(redis, user, ratelimitd, connect, tmp_path):
    secret = write(tmp_path / "password", "old")
    daemon = ratelimitd(store(redis, secret))
    client = connect(daemon)
    ready(client)
    connects = client.call("stats")["redis_connects"]
    write(secret, "new")
    daemon.configure(store(redis, secret, key_prefix="shop"))
    for _ in range(2):
        answer = client.call("reload")
        texts = [change["text"] for change in answer["changes"]]
        assert "store.redis.password_file: its content has changed; held back until the restart: store.redis.key_prefix needs one" in texts
    ready(client)
    assert client.call("stats")["redis_connects"] == connects


def test_a_credential_is_a_copy_and_a_reload_says_of_when(redis, user, ratelimitd, connect, tmp_path):
    """systemd copies credentials when it starts the service, so a reload finds the old password in it."""
    secret = write(tmp_path / "redis-password", "old")
    at = time.time() - 3600
    os.utime(secret, (at, at))
    daemon = ratelimitd(store(redis, "${CREDENTIALS_DIRECTORY}/redis-password"), env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    note = f"store.redis.password_file: the credential is a copy of {time.strftime('%H:%M', time.localtime(at))}: restart the service"
    for arguments in (["reload", "--dry-run"], ["reload"]):
        done = daemon.ctl(*arguments)
        assert done.returncode == 0 and done.stdout.startswith(note) and "nothing has changed" not in done.stdout
    daemon.wait_for_log(re.escape(f"info: reload: {note}"))
    os.utime(secret, (at - 86400 * 3, at - 86400 * 3))
    assert re.search(r"a copy of \d{4}-\d\d-\d\d \d\d:\d\d: restart", daemon.ctl("reload").stdout)


# ---- proved on a second connection ---------------------------------------------------------------------------------


def pending(client):
    return client.call("stats").get("redis_trial", "")


def test_a_password_with_a_typing_error_keeps_the_healthy_connection(redis, user, ratelimitd, connect, tmp_path):
    """Earlier, the connection that worked was ended for a login that failed."""
    secret = write(tmp_path / "password", "old")
    daemon = ratelimitd(store(redis, secret))
    client = connect(daemon)
    ready(client)
    write(secret, "typo")
    assert daemon.ctl("reload").returncode == 0
    eventually(lambda: "WRONGPASS" in pending(client), "the refusal")
    where = re.escape(redis.address)
    assert re.match(rf"{where} decides, {where} with the new password: WRONGPASS.*; the old connection goes on$", pending(client))
    daemon.wait_for_log(rf"warning: Redis: {where} decides, {where} with the new password: WRONGPASS")
    assert "redis settings   " in daemon.ctl("stats").stdout
    for _ in range(20):
        assert client.check("api", "k")["source"] == "redis"
    assert client.call("stats")["redis_disconnects"] == 0

    write(secret, "old")  # taken back
    assert client.call("reload")["state"] == "in_effect"
    assert pending(client) == "" and client.call("stats")["redis_disconnects"] == 0


def test_a_password_that_redis_learns_of_later_is_taken_then(redis, user, ratelimitd, connect, tmp_path):
    secret = write(tmp_path / "password", "old")
    daemon = ratelimitd(store(redis, secret))
    client = connect(daemon)
    ready(client)
    write(secret, "new")
    client.call("reload")
    eventually(lambda: "WRONGPASS" in pending(client), "the refusal")
    user("new", every=True)
    eventually(lambda: pending(client) == "", "it is taken")
    daemon.wait_for_log("info: Redis: .* with the new password has proved good, and decides from now on")
    with redis.client() as direct:
        direct.execute_command("CLIENT", "KILL", "USER", "ratelimit")
    ready(client)
    assert client.check("api", "k")["source"] == "redis"


def test_a_user_that_lacks_a_right_is_not_moved_to(redis, user, ratelimitd, connect, tmp_path):
    secret = write(tmp_path / "password", "old")
    daemon = ratelimitd(store(redis, secret))
    client = connect(daemon)
    ready(client)
    with redis.client() as direct:
        direct.execute_command("ACL", "SETUSER", "other", *RIGHTS, "-zadd", ">old")
    daemon.configure(store(redis, secret, username="other"))
    client.call("reload")
    eventually(lambda: "with the new user: user other lacks rights; run: ACL SETUSER other +zadd" in pending(client), "the lack")
    assert client.check("api", "k")["source"] == "redis"
    with redis.client() as direct:
        direct.execute_command("ACL", "SETUSER", "other", "+zadd")
        eventually(lambda: pending(client) == "", "it is taken")
    ready(client)


def test_an_address_where_nothing_listens_is_tried_while_the_old_one_decides(start_redis, ratelimitd, connect, tmp_path):
    one, other = start_redis(), start_redis()
    daemon = ratelimitd(f"{POLICIES}store: {{type: redis, redis: {{addresses: ['{one.address}']}}}}\n")
    client = connect(daemon)
    ready(client)
    other.stop()
    daemon.configure(f"{POLICIES}store: {{type: redis, redis: {{addresses: ['{other.address}']}}}}\n")
    client.call("reload")
    eventually(lambda: f"{one.address} decides, {other.address}: " in pending(client) and "connecting" not in pending(client), "a reason")
    assert [client.check("api", "k")["remaining"] for _ in range(3)] == [99, 98, 97]
    other.start()
    eventually(lambda: pending(client) == "", "it is taken")
    eventually(lambda: client.check("api", "k")["remaining"] > 97, "the other server counts")
    assert client.call("stats")["redis_up"] == 1


def test_a_replica_is_not_moved_to_before_it_is_the_master(start_redis, ratelimitd, connect):
    one, other = start_redis(tcp=True), start_redis(tcp=True)
    host, port = one.address.rsplit(":", 1)
    daemon = ratelimitd(f"{POLICIES}store: {{type: redis, redis: {{addresses: ['{one.address}']}}}}\n")
    client = connect(daemon)
    ready(client)
    with other.client() as direct:
        direct.execute_command("REPLICAOF", host, port)
        daemon.configure(f"{POLICIES}store: {{type: redis, redis: {{addresses: ['{other.address}']}}}}\n")
        client.call("reload")
        eventually(lambda: "replica" in pending(client), "the reason")
        assert client.check("api", "k")["remaining"] == 99
        direct.execute_command("REPLICAOF", "NO", "ONE")
    eventually(lambda: pending(client) == "", "it is taken")


def test_a_daemon_ends_while_other_settings_are_tried(redis, user, ratelimitd, connect, tmp_path):
    secret = write(tmp_path / "password", "old")
    daemon = ratelimitd(store(redis, secret))
    client = connect(daemon)
    ready(client)
    for word in ("typo", "another", "typo"):
        write(secret, word)
        client.call("reload")
    eventually(lambda: "WRONGPASS" in pending(client), "the refusal")
    client.close()
    assert daemon.stop() == 0


# ---- the commands of the page --------------------------------------------------------------------------------------


@pytest.fixture
def redis_cli(tmp_path):
    """Makes a folder with a redis-cli that reaches this server."""
    def make(server):
        real = shutil.which("redis-cli") or shutil.which("valkey-cli")
        if real is None:
            pytest.skip("no redis-cli here")
        path = tmp_path / "bin" / "redis-cli"
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\nexec {real} -e -s {server.socket} "$@"\n')
        path.chmod(0o755)
        return path.parent

    return make


def run(text, daemon, folder, path):
    env = {**os.environ, "PATH": f"{path}:{build_dir() / 'bin'}:{os.environ['PATH']}", "RATELIMIT_SOCKET": daemon.socket}
    return subprocess.run(["sh", "-ec", text], env=env, cwd=folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_the_password_is_rotated_by_the_commands_of_the_page(start_redis, redis_cli, ratelimitd, connect, tmp_path):
    (tmp_path / "users.acl").write_text("user default on nopass ~* &* +@all\nuser ratelimit on >OLD resetkeys ~rl:* +@all\n")
    server = start_redis(arguments=["--aclfile", str(tmp_path / "users.acl")])
    secret = write(tmp_path / "redis-password", "OLD")
    daemon = ratelimitd(store(server, secret))
    client = connect(daemon)
    ready(client)
    done = run(page.commands("rotate the password").replace("/etc/ratelimitd", str(tmp_path)), daemon, tmp_path, redis_cli(server))
    assert done.returncode == 0 and "store.redis.password_file: its content has changed" in done.stdout, done.stdout + done.stderr
    assert "ratelimit" in (tmp_path / "users.acl").read_text()
    with server.client() as direct:
        direct.execute_command("CLIENT", "KILL", "USER", "ratelimit")
    ready(client)
    assert not any("WRONGPASS" in line for line in daemon.log)

    text = re.sub(r"\s+", " ", (page.ROOT / "docs" / "redis.md").read_text())
    show = re.search(r"`(redis-cli ACL GETUSER ratelimit)` shows whether it exists", text)[1]
    path = tmp_path / "bin"
    assert "rl:" in run(show, daemon, tmp_path, path).stdout
    with server.client() as direct:
        direct.execute_command("ACL", "DELUSER", "ratelimit")  # which ends its connections
    daemon.wait_for_log("WRONGPASS: Redis refuses the user or the password; correct .*, or make the user that is missing")
    assert "rl:" not in run(show, daemon, tmp_path, path).stdout
    assert run("redis-cli ACL LOAD", daemon, tmp_path, path).returncode == 0  # ACL SAVE has stored it
    ready(client)


def test_the_certificate_is_rotated_by_the_commands_of_the_page(start_redis, ratelimitd, connect, tmp_path):
    make = page.commands("certificates").replace("10.0.0.7", "127.0.0.1")
    assert subprocess.run(["sh", "-ec", make], cwd=tmp_path, capture_output=True, timeout=60).returncode == 0
    server, address = on_free_port(lambda port: (start_redis(arguments=[
        "--tls-port", str(port), "--tls-cert-file", str(tmp_path / "redis.crt"), "--tls-key-file", str(tmp_path / "redis.key"),
        "--tls-ca-cert-file", str(tmp_path / "redis-ca.crt")]), f"127.0.0.1:{port}"))
    tls = f"{{ca_file: {tmp_path}/redis-ca.crt, cert_file: {tmp_path}/redis-client.crt, key_file: {tmp_path}/redis-client.key}}"
    text = f"{POLICIES}store:\n  type: redis\n  redis:\n    addresses: [\"{address}\"]\n    tls: {tls}\n"
    daemon = ratelimitd(text)
    client = connect(daemon)
    ready(client)
    n = client.call("stats")["redis_connects"]
    done = run(page.commands("rotate the certificate"), daemon, tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("cert_file", "key_file"):
        assert f"store.redis.tls.{name}: its content has changed" in done.stdout
    eventually(lambda: client.call("stats")["redis_connects"] > n, "a new connection")
    ready(client)
    assert server.running


def test_a_certificate_that_redis_refuses_keeps_the_healthy_connection(start_redis, ratelimitd, connect, tmp_path):
    make = page.commands("certificates").replace("10.0.0.7", "127.0.0.1")
    for folder in (tmp_path, tmp_path / "other"):
        folder.mkdir(exist_ok=True)
        assert subprocess.run(["sh", "-ec", make], cwd=folder, capture_output=True, timeout=60).returncode == 0
    _, address = on_free_port(lambda port: (start_redis(arguments=[
        "--tls-port", str(port), "--tls-cert-file", str(tmp_path / "redis.crt"), "--tls-key-file", str(tmp_path / "redis.key"),
        "--tls-ca-cert-file", str(tmp_path / "redis-ca.crt")]), f"127.0.0.1:{port}"))
    tls = f"{{ca_file: {tmp_path}/redis-ca.crt, cert_file: {tmp_path}/redis-client.crt, key_file: {tmp_path}/redis-client.key}}"
    daemon = ratelimitd(f"{POLICIES}store:\n  type: redis\n  redis:\n    addresses: [\"{address}\"]\n    tls: {tls}\n")
    client = connect(daemon)
    ready(client)
    for name in ("redis-client.crt", "redis-client.key"):
        shutil.copy(tmp_path / "other" / name, tmp_path / name)
    client.call("reload")
    eventually(lambda: re.search(r"with the new TLS settings: .*the server refuses", pending(client)), "the refusal")
    assert client.check("api", "k")["remaining"] == 99 and client.call("stats")["redis_disconnects"] == 0
