"""test_cluster_by_node.py: calls that hold keys of all hash slots of a master, on a cluster that stands still, and rights that lack.
test_cluster_random.py moves slots and masters."""

import pytest
from clusters import PATIENCE_S, Cluster
from harness import Redis, eventually

LIMIT = 10_000_000
LIMITS = {"log": 10_000, "bucket": 100_000}  # other ones; no unit of the bucket comes back during a test
CONFIG = f"""
defaults: {{deadline: 8s, on_failure: deny}}
policies:
  window: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  bucket: {{algorithm: token_bucket, limit: {LIMITS['bucket']}, window: 3650d}}
  log: {{algorithm: sliding_log, limit: {LIMITS['log']}, window: 30d}}
  two:
    limits:
      - {{name: month, algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
      - {{name: year, algorithm: fixed_window, limit: {LIMIT + 7}, window: 365d}}
  first: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  second: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  held: {{algorithm: fixed_window, limit: {LIMIT}, window: 30d}}
  few: {{algorithm: token_bucket, limit: 5, window: 1d}}
  slots: {{algorithm: concurrency, limit: 1000, slot_ttl: 1h}}
"""
USER, RIGHTS = "ratelimit", ("on", ">PASSWORD", "resetkeys", "+@all")


@pytest.fixture(scope="module", params=Redis.KINDS)
def cluster(request):
    if not Redis.installed(request.param):
        pytest.skip(f"no {request.param}-server here")
    one = Cluster(request.param)
    yield one
    one.close()


@pytest.fixture
def start_daemon(cluster, ratelimitd):
    def start(**options):
        for node in cluster.masters:
            with node.client() as client:
                client.flushall()
        options = {"reconnect": "{min: 1ms, max: 50ms, refused_max: 50ms}", **options}
        lines = "".join(f"    {name}: {value}\n" for name, value in options.items())
        daemon = ratelimitd(f"{CONFIG}\nstore:\n  type: redis\n  redis:\n    topology: cluster\n    addresses: [{cluster.addresses}]\n{lines}",
                            start=False)
        daemon.start()
        with daemon.client() as client:
            eventually(lambda: client.call("stats")["redis_up"] == 3, "three masters are ready", PATIENCE_S)
        return daemon

    return start


def check_many(client, policy, n, prefix="k"):
    sent = [client.send("check", policy, f"{prefix}{i}") for i in range(n)]
    return [client.answer(one) for one in sent]


def keys_a_call(client):
    before = client.call("stats")
    assert all(answer["source"] == "redis" for answer in check_many(client, "window", 600))
    after = client.call("stats")
    return (after["redis_batch_keys"] - before["redis_batch_keys"]) / (after["redis_batches"] - before["redis_batches"])


def is_by_node(client, n_by_slot=0):
    """What is known of each master comes with its first answer."""
    eventually(lambda: client.call("stats")["redis_by_slot"] == n_by_slot and (keys_a_call(client) > 10) == (n_by_slot == 0),
               f"{n_by_slot} masters get calls of one hash slot", PATIENCE_S)


# ---- on a cluster that stands still -----------------------------------------------------------------------------------


def test_a_call_holds_keys_of_many_hash_slots_and_each_check_is_exact(start_daemon):
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
        for i in range(50):
            sent = [client.send("check", "few", f"k{i}-{j % 20}") for j in range(140)]
            assert sum(client.answer(one)["allowed"] for one in sent) == 100
        stats = client.call("stats")
        assert (stats["redis_away"], stats["redis_redirects"], stats["redis_errors"]) == (0, 0, 0)
    page = daemon.ctl("metrics").stdout
    assert "ratelimitd_redis_by_slot 0\n" in page and "ratelimitd_redis_away_total 0\n" in page
    assert "hash slot" not in daemon.text()


def test_reservations_slots_and_resets_of_many_hash_slots_are_exact(start_daemon):
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
        sent = [client.send("reserve", "held", f"h{i}", 10) for i in range(100)]
        ids = [client.answer(one)["reservation"] for one in sent]
        sent = [client.send("settle", one, 3) for one in ids]
        assert {client.answer(one)["refunded"] for one in sent} == {7}
        assert {answer["remaining"] for answer in check_many(client, "held", 100, "h")} == {LIMIT - 4}

        sent = [client.send("acquire", "slots", f"s{i}") for i in range(100)]
        slots = [client.answer(one)["slot"] for one in sent]
        sent = [client.send("release", one) for one in slots]
        assert all(client.answer(one)["released"] for one in sent)

        sent = [client.send("reset", "held", f"h{i}") for i in range(100)]
        assert all(client.answer(one)["removed"] for one in sent)
        assert {answer["remaining"] for answer in check_many(client, "held", 100, "h")} == {LIMIT - 1}


def test_the_setting_divides_the_calls_and_a_reload_changes_it(start_daemon):
    daemon = start_daemon(calls="slot")
    with daemon.client() as client:
        is_by_node(client, 3)
        daemon.configure(daemon.path.read_text().replace("calls: slot", "calls: auto"))
        daemon.reload()
        is_by_node(client)
        daemon.configure(daemon.path.read_text().replace("calls: auto", "calls: slot"))
        daemon.reload()
        is_by_node(client, 3)


@pytest.mark.parametrize("calls", ["auto", "slot"])
def test_with_one_server_the_setting_has_no_effect(ratelimitd, redis, calls):
    daemon = ratelimitd(CONFIG, redis=redis, redis_options={"calls": calls})
    with daemon.client() as client:
        assert {answer["source"] for answer in check_many(client, "window", 300)} == {"redis"}
        assert client.call("stats")["redis_by_slot"] == client.call("stats")["redis_away"] == 0
        eventually(lambda: keys_a_call(client) > 2, "a call has keys of several shards")


def test_keys_of_a_foreign_type_among_64_harm_no_other(start_daemon, cluster):
    daemon = start_daemon()
    with daemon.client() as client:
        is_by_node(client)
        check_many(client, "window", 300, "f")
        for node in cluster.masters:
            with node.client() as redis:
                for key in redis.scan_iter("*:f7*"):
                    redis.delete(key)
                    redis.rpush(key, "x")
        answers = check_many(client, "window", 300, "f")
        for i, answer in enumerate(answers):
            assert (answer["source"] == "redis") == (not str(i).startswith("7")), (i, answer)
            assert answer["source"] != "redis" or answer["remaining"] == LIMIT - 2
        assert client.call("stats")["redis_by_slot"] == 0


# ---- rights ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def allow(cluster):
    def set_rights(*rights):
        for node in cluster.running:
            node.ask("ACL", "SETUSER", USER, *RIGHTS, *rights)

    yield set_rights
    for node in cluster.running:
        node.ask("ACL", "DELUSER", USER)


@pytest.fixture
def password_file(tmp_path):
    (tmp_path / "password").write_text("PASSWORD")
    return tmp_path / "password"


def test_a_key_without_a_right_is_refused_alone_and_the_log_names_its_policy(start_daemon, allow, password_file):
    allow("~rl:*:window:*", "~rl:*scratch*")
    daemon = start_daemon(username=USER, password_file=password_file)
    with daemon.client() as client:
        is_by_node(client)
        sent = [client.send("check", ("window", "bucket")[i % 2], f"b{i}") for i in range(100)]
        answers = [client.answer(one) for one in sent]
        assert {(i % 2, answer["source"]) for i, answer in enumerate(answers)} == {(0, "redis"), (1, "deny")}
        assert {answer["reason"] for answer in answers[1::2]} == {"store_error"}
        assert client.call("stats")["redis_by_slot"] == 0
    daemon.wait_for_log("NOPERM.*bucket|bucket.*NOPERM")


def test_a_user_who_may_read_and_not_write_is_found_out_and_charged_nothing(start_daemon, allow, cluster, password_file):
    allow("%R~*", "~rl:*scratch*")
    daemon = start_daemon(username=USER, password_file=password_file)
    with daemon.client() as client:
        assert {answer["source"] for answer in check_many(client, "bucket", 300)} == {"deny"}
        eventually(lambda: client.call("stats")["redis_by_slot"] == 3, "calls go by slot", PATIENCE_S)
        assert {answer["source"] for answer in check_many(client, "bucket", 300)} == {"deny"}
        for node in cluster.masters:
            with node.client() as redis:
                assert not list(redis.scan_iter("*bucket*"))
