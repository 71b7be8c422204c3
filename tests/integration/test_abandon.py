"""test_abandon.py: the notification `abandon` through the socket: what an acquire or reserve was or will be granted is given
back, on memory and on real servers that are there, slow, or away."""

import signal

import msgpack
import pytest
from harness import RpcError, eventually, some

CONFIG = """
defaults: {deadline: 5s}
policies:
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s}
  tokens: {algorithm: fixed_window, limit: 10, window: 1d}
  both:
    limits:
      - {name: rate, algorithm: fixed_window, limit: 3, window: 1d}
      - {name: at-once, algorithm: concurrency, limit: 2}
"""
DAY = {"ttl_ms": 86400000}


def request(msgid, method, *params):
    return msgpack.packb([0, msgid, method, list(params)])


def abandon(*params):
    return msgpack.packb([2, "abandon", list(params)])


def given_back(client):
    return some(client.call("stats"), "abandoned", "slots", "reservations")


def test_what_was_answered_is_given_back(client):
    slot, tokens = client.send("acquire", "jobs", "k"), client.send("reserve", "tokens", "k", 4, DAY)
    held = client.answer(slot)["slot"]
    token = client.answer(tokens)["reservation"]
    client.notify("abandon", slot)
    client.notify("abandon", tokens)
    assert (client.remaining("jobs"), client.remaining("tokens")) == (2, 10)
    assert client.call("release", held) == {"released": False}
    assert some(client.call("settle", token, 3), "ended", "remaining") == (True, 10)
    assert given_back(client) == (2, 0, 0)


def test_what_follows_in_the_same_write_finds_it_free(client):
    """Abandon takes effect in the order of its connection's calls."""
    bytes = b"".join([
        request(1, "acquire", "jobs", "k"), request(2, "acquire", "jobs", "k"), request(3, "reserve", "tokens", "k", 10),
        abandon(1), abandon(3), request(4, "acquire", "jobs", "k"), request(5, "reserve", "tokens", "k", 10)])
    client.send_bytes(bytes)
    answers = {message[1]: message for message in (client.recv() for _ in range(5))}
    assert all(answers[msgid][3]["allowed"] for msgid in (2, 4, 5)), answers
    for msgid in (1, 3):  # on Redis they are not answered yet when they are abandoned
        error, result = answers[msgid][2:]
        assert error.startswith("ABANDONED: ") if error else result["allowed"], answers
    assert given_back(client) == (2, 2, 1)


def test_a_slot_gives_back_no_rate(client):
    slot = client.send("acquire", "both", "k")
    assert client.answer(slot)["allowed"]
    client.notify("abandon", slot)
    assert client.remaining("both") == 2
    assert [client.call("acquire", "both", "k")["allowed"] for _ in range(3)] == [True, True, False]


def test_only_what_this_connection_was_granted(daemon, connect):
    owner, other = connect(daemon), connect(daemon)
    slot = owner.send("acquire", "jobs", "k")
    assert owner.answer(slot)["allowed"]
    check = owner.send("check", "tokens", "k")
    assert owner.answer(check)["allowed"]
    other.notify("abandon", slot)
    for params in ([check], [slot + 100], [], [slot, slot], [str(slot)], [None], [-1], [slot + 0.5], [[slot]], [{}]):
        owner.notify("abandon", *params)
    owner.send_bytes(msgpack.packb([2, "abandon", None]) + msgpack.packb([2, "abandon", {}]) + msgpack.packb([2, b"abandon", slot]))
    assert (other.remaining("jobs"), other.remaining("tokens")) == (1, 9)
    with pytest.raises(RpcError, match="UNKNOWN_METHOD"):
        owner.call("abandon", slot)
    assert given_back(owner) == (0, 1, 0)
    owner.notify("abandon", slot)
    owner.notify("abandon", slot)
    assert given_back(owner) == (1, 0, 0)
    assert other.remaining("jobs") == 2


def test_the_same_request_again_takes_over_what_was_granted(client):
    options = {"request_id": "r1"}
    first = client.send("acquire", "jobs", "k", options)
    slot = client.answer(first)["slot"]
    again = client.send("acquire", "jobs", "k", options)
    assert client.answer(again)["slot"] == slot
    reserved = client.send("reserve", "tokens", "k", 4, options)
    token = client.answer(reserved)["reservation"]
    reserved_again = client.send("reserve", "tokens", "k", 4, options)
    assert client.answer(reserved_again)["reservation"] == token
    client.notify("abandon", first)
    client.notify("abandon", reserved)
    assert (client.remaining("jobs"), client.remaining("tokens")) == (1, 6)
    client.notify("abandon", again)
    client.notify("abandon", reserved_again)
    assert (client.remaining("jobs"), client.remaining("tokens")) == (2, 10)
    assert client.call("reserve", "tokens", "k", 4, options)["reservation"] == token  # the same answer; nothing is charged
    assert client.remaining("tokens") == 10
    assert client.call("acquire", "jobs", "k", options)["slot"] != slot


def test_under_a_test_clock_it_is_given_back_too(ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, arguments=["--test-clock"]))
    client.call("test_clock", 0)
    reserved = client.send("reserve", "tokens", "k", 4)
    assert client.answer(reserved)["allowed"]
    client.notify("abandon", reserved)
    assert client.remaining("tokens") == 10


@pytest.fixture
def stopped(ratelimitd, redis, connect):
    """A daemon whose Redis answers only after resume()."""
    daemon = ratelimitd(CONFIG, redis=redis, redis_options={"stall": "1h"})
    client = connect(daemon)
    assert client.remaining("jobs") == 2 and client.remaining("tokens") == 10
    redis.pause()
    yield daemon, client
    redis.resume()


def test_what_waits_is_answered_at_once_and_a_late_yes_is_given_back(stopped, redis):
    daemon, client = stopped
    calls = [client.send("acquire", "jobs", "k"), client.send("reserve", "tokens", "k", 4, {**DAY, "request_id": "r"})]
    eventually(lambda: client.call("stats")["redis_inflight"] >= 1, "they are on their way")
    late = [client.send("acquire", "jobs", "k"), client.send("reserve", "tokens", "k", 4, DAY)]
    for msgid in calls + late:
        client.notify("abandon", msgid)
        with pytest.raises(RpcError, match="^ABANDONED: "):
            client.answer(msgid)
    assert given_back(client) == (4, 0, 0)
    assert client.call("stats")["inflight"] == 0
    redis.resume()
    eventually(lambda: (client.remaining("jobs"), client.remaining("tokens")) == (2, 10), "all is back")
    assert client.call("stats")["reservations"] == 0


def test_a_late_yes_after_a_failure_answer_is_given_back(ratelimitd, redis, connect):
    text = CONFIG.replace("window: 1d}\n  both", "window: 1d, on_failure: local}\n  both").replace("5s", "200ms")
    client = connect(ratelimitd(text, redis=redis, redis_options={"stall": "1h"}))
    assert client.remaining("tokens") == 10
    redis.pause()
    try:
        reserved = client.send("reserve", "tokens", "k", 4, {"request_id": "r", **DAY})
        assert some(client.answer(reserved), "allowed", "source") == (True, "local")
        client.notify("abandon", reserved)
        again = client.call("reserve", "tokens", "k", 10)
        assert some(again, "allowed", "source", "remaining") == (True, "local", 0)  # it is back in the local table
    finally:
        redis.resume()
    eventually(lambda: client.call("peek", "tokens", "k")["remaining"] == 10, "it is back in Redis")


def test_while_redis_is_away_it_is_given_back_later(ratelimitd, redis, connect):
    client = connect(ratelimitd(CONFIG, redis=redis))
    slot, reserved = client.send("acquire", "jobs", "k"), client.send("reserve", "tokens", "k", 4, DAY)
    assert client.answer(slot)["allowed"] and client.answer(reserved)["allowed"]
    with redis.client() as store:
        store.save()
    redis.stop()
    eventually(lambda: client.call("stats")["redis_up"] == 0, "the daemon sees that")
    client.notify("abandon", slot)
    client.notify("abandon", reserved)
    assert some(client.call("stats"), "abandoned", "slots") == (2, 0)
    redis.start()
    with redis.client() as store:
        assert store.info("persistence")["rdb_last_load_keys_loaded"] >= 3, "it has loaded what it had"
    eventually(lambda: client.call("stats")["redis_up"] == 1, "the daemon is connected again")
    eventually(lambda: (client.remaining("jobs"), client.remaining("tokens")) == (2, 10), "all is back")


def test_the_end_of_the_daemon_gives_back_what_was_abandoned_before(ratelimitd, redis, connect):
    """Also what waits in its buffer when the signal comes."""
    daemon = ratelimitd(CONFIG, redis=redis)
    other = connect(ratelimitd(CONFIG, redis=redis))
    client = connect(daemon)
    slot, reserved = client.send("acquire", "jobs", "k"), client.send("reserve", "tokens", "k", 4, DAY)
    assert client.answer(slot)["allowed"] and client.answer(reserved)["allowed"]
    client.send_bytes(abandon(slot) + abandon(reserved) + request(99, "ping"))
    assert client.answer(99) == "pong"
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    eventually(lambda: (other.remaining("jobs"), other.remaining("tokens")) == (2, 10), "all is back")


def test_a_flood_of_abandons_delays_nobody(daemon, connect):
    """Reserve and abandon by thousands, with answers unread: a polite client is served, and nothing is left."""
    flood, polite = connect(daemon), connect(daemon)
    bytes = b"".join(request(n, "reserve", "tokens", "f", 1) + abandon(n) + abandon(n + 10 ** 6) for n in range(1, 3001))
    flood.send_bytes(bytes)
    assert polite.call("check", "tokens", "k")["allowed"]
    for _ in range(3000):
        flood.recv()
    eventually(lambda: polite.remaining("tokens", "f") == 10, "all is back")
    assert given_back(polite)[1:] == (0, 0)
