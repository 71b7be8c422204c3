"""test_needs_keys.py: servers that run no script without keys (ElastiCache Serverless): what proves a connection, and what asks
behind an open breaker, names a key, which need not be there, nor on that node."""

import pytest

from harness import eventually, stored_keys
from played_node import HASH_SLOTS, PlayedNode
from played_server import PlayedServer

CONFIG = """
defaults: {deadline: 200ms, on_failure: deny}
policies:
  p: {algorithm: fixed_window, limit: 1000, window: 1h}
  foreign: {compat: first-hit, limit: 10, window: 1h}
"""
TOPOLOGY = {"topology": "cluster", "reconnect": "{min: 1ms, max: 50ms, refused_max: 50ms}"}
ELSEWHERE = {
    "MOVED": b"-MOVED 4711 127.0.0.1:1\r\n", "ASK": b"-ASK 4711 127.0.0.1:1\r\n",
    "TRYAGAIN": b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "CLUSTERDOWN": b"-CLUSTERDOWN Hash slot not served\r\n",
}


@pytest.fixture
def played(redis):
    played = PlayedServer(redis)
    played.needs_keys = True
    yield played
    played.close()


def source(client, key="k"):
    return client.check("p", key)["source"]


def test_a_server_that_refuses_scripts_without_keys_becomes_ready_and_nothing_is_left_there(played, redis, ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, redis=redis, redis_options={"addresses": f'["{played.address}"]'}))
    assert source(client) == "redis" and client.call("stats")["redis_errors"] == 0
    with redis.client() as admin:
        assert len(stored_keys(admin)) == 1


def test_the_breaker_of_a_late_server_that_refuses_scripts_without_keys_closes_again(played, redis, ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, redis=redis, redis_options={
        "addresses": f'["{played.address}"]', "breaker": "{errors: 0, late: 2, probe_every: 20ms}"}))
    for at in range(3):
        redis.pause()
        assert source(client) == "deny"
        redis.resume()
        eventually(lambda at=at: client.call("stats")["late_replies"] + client.call("stats")["breaker_opens"] > at, "the late reply comes")
        if client.call("stats")["breaker_opens"]:
            break
    assert client.call("stats")["breaker_opens"] == 1
    eventually(lambda: client.call("stats")["breaker_open"] == 0, "a probe closes it")
    eventually(lambda: source(client) == "redis", "Redis decides again")
    assert client.call("stats")["redis_connects"] == 1


def test_a_user_who_may_use_only_the_keys_of_compat_policies_is_connected(redis, ratelimitd, connect, tmp_path):
    with redis.client() as admin:
        admin.execute_command("ACL", "SETUSER", "compat", "on", ">secret", "~rate_limit:*", "+@all")
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    client = connect(ratelimitd(CONFIG, redis=redis, redis_options={"username": "compat", "password_file": password}))
    assert client.check("foreign", "k")["source"] == "redis"
    assert source(client) == "deny" and client.check("foreign", "k")["source"] == "redis"


@pytest.fixture
def node(redis):
    node = PlayedNode(redis)
    node.needs_keys = True
    yield node
    node.close()


@pytest.mark.parametrize("word", [None, *ELSEWHERE])
def test_a_node_that_does_not_have_the_canarys_key_becomes_ready(node, redis, ratelimitd, connect, word):
    node.canary_says = ELSEWHERE.get(word)
    daemon = ratelimitd(CONFIG, redis=redis, redis_options={**TOPOLOGY, "addresses": f'["{node.address}"]'})
    client = connect(daemon)
    eventually(lambda: client.call("stats")["redis_up"] == 1, "the node is ready")
    answers = [source(client, f"k{n}") for n in range(20)]
    assert answers == ["redis"] * 20
    stats = client.call("stats")
    assert stats["redis_connects"] == 1 and stats["redis_batches_too_late"] == 0


def test_the_canarys_key_is_of_a_bucket_that_the_node_has(redis, ratelimitd, connect):
    nodes = [PlayedNode(redis) for _ in range(3)]
    for node in nodes:
        node.peers, node.needs_keys = nodes, True
    try:
        client = connect(ratelimitd(CONFIG, redis=redis, redis_options={**TOPOLOGY, "addresses": f'["{nodes[0].address}"]'}))
        eventually(lambda: client.call("stats")["redis_up"] == 3, "the nodes are ready")
        for n, node in enumerate(nodes):
            assert node.canaries and all(slot * len(nodes) // HASH_SLOTS == n for slot in node.canaries), node.canaries
    finally:
        for node in nodes:
            node.close()
