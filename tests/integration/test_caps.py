"""test_caps.py: the error for each cap names its setting."""

import msgpack
import pytest

from harness import RpcError

CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  jobs: {algorithm: concurrency, limit: 100}
"""


def refused(client, *call):
    with pytest.raises(RpcError) as fault:
        client.call(*call)
    return fault.value


@pytest.mark.parametrize("caps, call, code, setting", [
    ("{max_key: 16B}", ("check", "login", "k" * 17), "BAD_KEY", "caps.max_key"),
    ("{max_slots_per_connection: 1}", ("acquire", "jobs", "k"), "OVERLOADED", "caps.max_slots_per_connection"),
    ("{max_slots: 1}", ("acquire", "jobs", "k"), "OVERLOADED", "caps.max_slots"),
])
def test_a_cap_that_a_call_meets_is_named_and_no_other(ratelimitd, connect, caps, call, code, setting):
    client = connect(ratelimitd(f"caps: {caps}\n{CONFIG}"))
    assert client.call("acquire", "jobs", "first")["allowed"]
    fault = refused(client, *call)
    assert fault.code == code
    assert [word.strip("(),;") for word in fault.message.split() if "caps." in word] == [setting]


def test_a_connection_and_the_daemon_have_caps_of_their_own_on_slots(ratelimitd, connect):
    daemon = ratelimitd(f"caps: {{max_slots: 2, max_slots_per_connection: 2}}\n{CONFIG}")
    holder, other = connect(daemon), connect(daemon)
    assert all(holder.call("acquire", "jobs", "k")["allowed"] for _ in range(2))
    assert refused(holder, "acquire", "jobs", "k").message.startswith("this connection holds as many slots")
    assert refused(other, "acquire", "jobs", "k").message.startswith("the daemon's connections hold as many slots")


@pytest.mark.parametrize("caps, message, setting", [
    ("{max_frame: 512B, max_key: 16B}", msgpack.packb([0, 1, "check", ["login", "k" * 600]]), "caps.max_frame"),
    ("{max_depth: 4}", msgpack.packb([0, 1, "check", ["login", [[[[1]]]]]]), "caps.max_depth"),
])
def test_a_cap_that_a_message_meets_is_named_before_the_connection_closes(ratelimitd, connect, caps, message, setting):
    client = connect(ratelimitd(f"caps: {caps}\n{CONFIG}"))
    client.send_bytes(message)
    _, msgid, error, _ = client.recv()
    assert msgid is None and setting in error
    assert client.at_end()


def test_connections_beyond_the_cap_are_a_warning_that_names_it(ratelimitd, connect):
    daemon = ratelimitd(f"caps: {{max_connections: 2}}\n{CONFIG}")
    clients = [connect(daemon) for _ in range(2)]
    assert {client.call("ping") for client in clients} == {"pong"}
    waiting = connect(daemon)
    daemon.wait_for_log("warning: 2 connections are open, as many as caps.max_connections allows; new ones wait")
    clients.pop().close()
    assert waiting.call("ping") == "pong"


def test_inline_policies_beyond_the_cap_name_it(ratelimitd, connect):
    client = connect(ratelimitd(f"inline: {{allow: true, max_policies: 1}}\n{CONFIG}"))
    held = {"algorithm": "concurrency", "limit": 3}
    assert client.call("acquire", held, "k")["allowed"]
    fault = refused(client, "check", {"algorithm": "fixed_window", "limit": 1, "window": "1s"}, "k")
    assert fault.code == "OVERLOADED" and "inline.max_policies" in fault.message


def test_checks_in_flight_beyond_the_cap_name_it(ratelimitd, connect, redis):
    daemon = ratelimitd(f"caps: {{max_inflight: 2}}\ndefaults: {{deadline: 10s}}\n{CONFIG}", redis=redis,
                        redis_options={"stall": "1m"})
    client = connect(daemon)
    assert client.check("login", "first")["source"] == "redis"
    redis.pause()
    pending = [client.send("check", "login", f"k{n}") for n in range(2)]
    fault = refused(client, "check", "login", "k")
    redis.resume()
    assert fault.code == "OVERLOADED"
    assert fault.message == "too many checks are in flight (caps.max_inflight); try again later"
    assert all(client.answer(msgid)["allowed"] for msgid in pending)


def test_calls_to_redis_beyond_the_cap_name_it(ratelimitd, connect, redis):
    daemon = ratelimitd(f"defaults: {{deadline: 10s, on_failure: error}}\n{CONFIG}", redis=redis,
                        redis_options={"stall": "1m", "max_inflight": "1", "batch_max_keys": "1"})
    client = connect(daemon)
    assert client.check("login", "first")["source"] == "redis"
    redis.pause()
    pending = client.send("check", "login", "k")
    client.call("ping")
    fault = refused(client, "check", "login", "other")
    redis.resume()
    assert fault.code == "STORE_UNAVAILABLE" and "store.redis.max_inflight" in fault.message
    assert client.answer(pending)["allowed"]
