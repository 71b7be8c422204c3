"""test_fault_cluster_nodes.py: nodes of a cluster that lie, or refuse calls, under load (fault_matrix.py). One of three is played
so; all are in front of the same server, so that what is charged is seen wherever it was sent."""

import pytest

from fault_matrix import proves
from played_node import PlayedNode

N_KEYS = 90
HOPS = 3
LINES = 40  # in the log of a fault, at most: each of some 600 checks a second would be one
AWAY = ("store_error", "down", "breaker", "deadline")


@pytest.fixture
def nodes(start_redis):
    server = start_redis()
    played = [PlayedNode(server) for _ in range(3)]
    for node in played:
        node.peers = played
    yield played
    for node in played:
        node.close()


@pytest.fixture
def among(under_load, nodes):
    """under_load() on the cluster, and what it is to be at the end."""
    def run(**options):
        addresses = ", ".join(f'"{node.address}"' for node in nodes)
        return under_load(nodes[0].server, options={"topology": "cluster", "addresses": f"[{addresses}]"}, n_keys=N_KEYS, **options)

    return run


def moved(to, word="MOVED"):
    """A redirect; `to` is an address, or has {slot}."""
    text = to if "{" in to else f"{word} {{slot}} {to}"
    return lambda slot: f"-{text.format(slot=slot, other=(slot + 1) % 16384)}\r\n".encode()


def sent_on_three_times_at_most(trial, nodes):
    for n in range(20):
        key = f"hops{n}"
        before = [len(node.calls) for node in nodes]
        answer = trial.client.check("deny", key)
        calls = [keys for node, n_before in zip(nodes, before) for keys in node.calls[n_before:] if any(key.encode() in one for one in keys)]
        assert len(calls) <= 1 + HOPS, (answer, calls)


def while_it_says(trial, nodes, says, then=None):
    """For a second at least. The other nodes go on meanwhile."""
    trial.sees("redis")
    lines = len(trial.daemon.log)
    for node, words in zip(nodes, says):
        node.says = words
    if then is not None:
        then(trial, nodes)
    trial.lasts(1)
    trial.sees("redis")
    new = trial.daemon.log[lines:]
    assert len(new) < LINES, new
    for node in nodes:
        node.says = None


WRONG = {
    "in a circle": lambda nodes: [moved(nodes[1].address), moved(nodes[0].address)],
    "in a circle of ASK": lambda nodes: [moved(nodes[1].address, "ASK"), moved(nodes[0].address, "ASK")],
    "to itself": lambda nodes: [moved(nodes[0].address)],
    "to a dead node": lambda nodes: [moved("127.0.0.1:1")],
    "to a host name without an address": lambda nodes: [moved("nowhere.invalid:6379")],
    "of no hash slot": lambda nodes: [moved("MOVED 99999 127.0.0.1:{slot}")],
    "of another hash slot": lambda nodes: [moved(f"MOVED {{other}} {nodes[1].address}")],
    "without words": lambda nodes: [lambda slot: b"-MOVED\r\n"],
}
GOOD = {
    "to a host name": lambda nodes: [moved(f"localhost:{nodes[1].port}")],
    "without a host": lambda nodes: [moved(f":{nodes[1].port}")],
}


@proves(18)
@pytest.mark.parametrize("redirect", WRONG)
def test_a_redirect_leads_nowhere(among, nodes, redirect):
    with among() as trial:
        while_it_says(trial, nodes, WRONG[redirect](nodes), sent_on_three_times_at_most)
    assert trial.load.outcomes() & set(AWAY)


@proves(18)
@pytest.mark.parametrize("redirect", GOOD)
def test_a_redirect_leads_to_a_node_that_serves(among, nodes, redirect):
    with among(deadline_s=10) as trial:
        while_it_says(trial, nodes, GOOD[redirect](nodes), sent_on_three_times_at_most)
        assert trial.stat("redis_redirects") > 0
    assert trial.load.outcomes() == {"redis"}


@proves(19)
@pytest.mark.parametrize("text", ["CLUSTERDOWN The cluster is down", "TRYAGAIN Multiple keys request during rehashing of slot",
                                  "CROSSSLOT Keys in request don't hash to the same slot"])
def test_a_node_refuses_calls(among, nodes, text):
    with among() as trial:
        while_it_says(trial, nodes, [lambda slot: f"-{text}\r\n".encode()])
    assert trial.load.outcomes() & set(AWAY)
