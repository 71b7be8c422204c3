"""test_move_redis.py: a reload that would move to another Redis: all of it or nothing, as the report says, and as the page does it."""

import shutil

import pytest

import documents_of_redis as page
from clusters import Cluster
from harness import eventually

POLICIES = "defaults: {deadline: 5s}\npolicies:\n  api: {algorithm: fixed_window, limit: 100, window: 1d, on_failure: deny}\n"


def store(redis, **options):
    lines = "".join(f"    {name}: {value}\n" for name, value in {"addresses": f'["{redis.address}"]', **options}.items())
    return f"{POLICIES}store:\n  type: redis\n  redis:\n{lines}"


def changes(answer):
    return {change["settings"][0]["name"]: change for change in answer["changes"] if "settings" in change}


def reload(daemon, dry_run=False):
    with daemon.client() as client:
        return client.call("reload", {"dry_run": dry_run})


@pytest.mark.parametrize("setting", [{"key_prefix": "shop"}, {"buckets": "16"}, {"topology": "cluster"}])
def test_an_address_waits_for_the_restart_that_another_setting_needs(start_redis, ratelimitd, connect, setting):
    """Earlier, the address took effect and the prefix did not: each check was a store_error where the user has one prefix."""
    one, other = start_redis(tcp=True), start_redis(tcp=True)
    name = f"store.redis.{next(iter(setting))}"
    daemon = ratelimitd(store(one), start=False)
    daemon.redis = one
    daemon.start()
    client = connect(daemon)
    assert client.check("api", "k")["remaining"] == 99
    before = client.call("config")["yaml"]
    daemon.configure(store(other, window="7", **setting))

    for dry_run in (True, False, False):  # it stays true until the restart
        answer = reload(daemon, dry_run)
        assert answer["state"] == "restart_needed"
        assert set(answer["restart"]) == {"store.redis.addresses", "store.redis.window", name}
        for held in ("store.redis.addresses", "store.redis.window"):
            text = changes(answer)[held]["text"]
            assert f"held back until the restart: {name} needs one" in text
            assert changes(answer)[held]["held_by"] == name and changes(answer)[held]["needs_restart"]
        assert "held_by" not in changes(answer)[name] and "needs a restart" in changes(answer)[name]["text"]
        assert not any("takes effect now" in change["text"] for change in answer["changes"])
    assert client.check("api", "k")["remaining"] == 98
    assert client.call("config")["yaml"] == before
    assert other.client().dbsize() == 0 and daemon.ctl("reload").returncode == 1
    daemon.wait_for_log(r"warning: reload: store.redis.addresses: .* held back until the restart")

    daemon.configure(store(other))  # without the other setting it can take effect
    assert reload(daemon)["state"] == "in_effect"
    eventually(lambda: client.check("api", "k")["source"] == "redis" and other.client().dbsize() > 0, "the other server")


def test_the_report_of_a_move_is_that_of_the_page(start_redis, ratelimitd):
    one, other = start_redis(tcp=True), start_redis(tcp=True)
    daemon = ratelimitd(store(one))
    daemon.configure(store(other, key_prefix="shop"))
    lines = page.commands("held back").replace("10.0.0.7:6379", one.address).replace("10.0.0.8:6379", other.address)
    assert daemon.ctl("reload", "--dry-run").stdout.splitlines()[:2] == lines.splitlines()


def test_from_memory_to_redis_and_back_nothing_takes_effect_now(redis, ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    daemon.configure(store(redis))
    answer = reload(daemon)
    assert answer["state"] == "restart_needed"
    assert changes(answer)["store.redis.addresses"]["held_by"] == "store.type"
    daemon.configure(POLICIES)
    assert reload(daemon)["changes"] == []
    assert client.check("api", "k")["source"] == "memory"

    daemon = ratelimitd(POLICIES, redis=redis)
    client = connect(daemon)
    daemon.redis = None
    daemon.configure(POLICIES.replace("limit: 100", "limit: 50"))
    answer = reload(daemon)
    assert changes(answer)["store.redis.addresses"]["held_by"] == "store.type"
    assert client.check("api", "k")["limit"] == 50 and client.check("api", "k")["source"] == "redis"


def test_a_memory_setting_that_can_change_is_not_held_back(redis, ratelimitd):
    daemon = ratelimitd(store(redis) + "  memory: {max_keys: 1000}\n")
    daemon.configure(store(redis, key_prefix="shop") + "  memory: {max_keys: 900}\n")
    answer = reload(daemon)
    assert answer["restart"] == ["store.redis.key_prefix"]
    assert changes(answer)["store.memory.max_keys"]["text"].endswith("takes effect now")


def test_the_move_of_the_page_loses_no_count(start_redis, ratelimitd, connect):
    if shutil.which("redis-cli") is None:
        pytest.skip("no redis-cli here")
    one, other = start_redis(tcp=True), start_redis(tcp=True)
    daemon = ratelimitd(store(one))
    client = connect(daemon)
    eventually(lambda: client.check("api", "k", 0)["source"] == "redis", "the first server")
    for _ in range(7):
        client.check("api", "k")
    done = page.run("move to another server", {"10.0.0.7": one, "10.0.0.8": other}, daemon)
    assert done.returncode == 0, done.stdout + done.stderr
    daemon.wait_for_log(f"info: Redis: {other.address} has proved good, and decides from now on")
    eventually(lambda: client.check("api", "k", 0)["source"] == "redis", "the second server")
    assert client.check("api", "k")["remaining"] == 92
    assert f"{one.address} decides, {other.address}: this server is a replica" in done.stdout + daemon.text()
    assert one.client().info("replication")["role"] == "slave" and other.client().info("replication")["role"] == "master"


def test_the_copy_to_a_cluster_of_the_page_loses_no_count(start_redis, redis_kind, ratelimitd, connect):
    if shutil.which("redis-cli") is None:
        pytest.skip("no redis-cli here")
    one, cluster = start_redis(tcp=True), Cluster(redis_kind, n_replicas=0)
    try:
        daemon = ratelimitd(store(one))
        client = connect(daemon)
        eventually(lambda: client.check("api", "k", 0)["source"] == "redis", "the server")
        for i in range(50):
            client.check("api", f"k{i}", i)
        client.close()
        daemon.stop()
        done = page.run("copy to a cluster", {"10.0.0.7": one, "10.0.0.21": cluster.nodes[0]})
        assert done.returncode == 0, done.stdout + done.stderr
        daemon.configure(store(cluster.nodes[0], topology="cluster"))
        daemon.start()
        client = connect(daemon)
        eventually(lambda: client.check("api", "k", 0)["source"] == "redis", "the cluster")
        assert [client.check("api", f"k{i}", 0)["remaining"] for i in range(50)] == [100 - i for i in range(50)]
    finally:
        cluster.close()
