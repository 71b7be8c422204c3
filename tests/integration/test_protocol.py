"""test_protocol.py: each method of proto/PROTOCOL.md through the socket, on the defaults or a small configuration."""

import re
import socket
import struct

import msgpack
import pytest
from harness import ROOT, Client, RpcError, eventually

CONFIG = """
policies:
  login: {algorithm: fixed_window, limit: 5, window: 10s}
  api: {algorithm: token_bucket, limit: 100, window: 1m, burst: 20}
  none: {algorithm: token_bucket, limit: 0, window: 1s}
  log: {algorithm: sliding_log, limit: 3, window: 10s}
  queue: {algorithm: leaky_bucket, limit: 10, window: 1s, burst: 1, max_wait: 250ms}
"""
FIELDS = ["allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "delay_ms", "granted", "bound_by",
          "source", "reason", "policy_version"]


@pytest.fixture
def client(ratelimitd, connect):
    """A connection to a daemon under the test clock, which stands at 1 000 000 s."""
    client = connect(ratelimitd(CONFIG, arguments=["--test-clock"]))
    client.call("test_clock", 10**12)
    return client


def test_check_answers_a_map_without_defaults(client):
    answer = client.call("check", "login", "alice")
    version = answer.pop("policy_version")
    assert isinstance(version, int) and version >= 0
    assert answer == {"allowed": True, "limit": 5, "remaining": 4, "retry_after_ms": 0, "reset_after_ms": 10000,
                      "source": "memory"}


def test_a_denial_has_a_retry_time(client):
    assert client.call("check", "login", "alice", 4)["remaining"] == 1
    answer = client.call("check", "login", "alice", 2)
    assert (answer["allowed"], answer["remaining"], answer["retry_after_ms"]) == (False, 1, 10000)
    client.call("test_clock", 10**12 + 9_999_000)
    assert client.call("check", "login", "alice", 2)["retry_after_ms"] == 1
    client.call("test_clock", 10**12 + 10_000_000)
    assert client.call("check", "login", "alice", 2)["allowed"]


def test_cost_above_capacity_is_never(client):
    answer = client.call("check", "api", "k", 21)
    assert (answer["allowed"], answer["limit"], answer["remaining"], answer["retry_after_ms"]) == (False, 20, 20, -1)


def test_limit_zero_denies_for_ever(client):
    answer = client.call("check", "none", "k")
    assert (answer["allowed"], answer["limit"], answer["remaining"], answer["retry_after_ms"]) == (False, 0, 0, -1)
    assert client.call("check", "none", "k", 0)["allowed"]


def test_cost_zero_is_a_peek(client):
    for _ in range(3):
        client.call("check", "log", "k")
    answer = client.call("check", "log", "k", 0)
    assert (answer["allowed"], answer["remaining"], answer["retry_after_ms"], answer.get("granted", 0)) == (True, 0, 0, 0)


def test_peek_is_what_a_check_would_get(client):
    for cost in (0, 1, 3, 6):
        peeked = client.call("peek", "login", "k", cost)
        assert peeked == client.call("peek", "login", "k", cost)
        assert peeked == client.call("check", "login", "k", cost)
    assert client.remaining("login", "k") == 1


def test_a_leaky_bucket_makes_wait_before_it_denies(client):
    assert "delay_ms" not in client.call("check", "queue", "k")
    assert client.call("peek", "queue", "k", 1)["delay_ms"] == 100
    denied = client.call("check", "queue", "k", {"max_wait_ms": 0})
    assert (denied["allowed"], denied["retry_after_ms"], "delay_ms" in denied) == (False, 100, False)
    assert client.call("check", "queue", "k", {"max_wait_ms": 100})["delay_ms"] == 100
    assert client.call("check", "queue", "k", {"max_wait_ms": 2**53 - 1})["delay_ms"] == 200
    denied = client.call("check", "queue", "k", {"cost": 1, "max_wait_ms": 9000})
    assert (denied["allowed"], denied["remaining"], denied["retry_after_ms"], denied["reset_after_ms"]) == (False, 0, 50, 300)
    assert client.call("check", "queue", "k", 2)["retry_after_ms"] == -1
    assert [d.get("delay_ms", 0) for d in client.call("check_many", [["queue", "a"]] * 4)] == [0, 100, 200, 0]
    assert client.call("check", "api", "k", {"max_wait_ms": 5})["allowed"]


def test_reset_forgets(client):
    client.call("check", "login", "k", 5)
    assert client.call("reset", "login", "k") == {"removed": True}
    assert client.call("reset", "login", "k") == {"removed": False}
    assert client.call("check", "login", "k", 5)["allowed"]


def test_check_many_in_order_and_independent(client):
    answers = client.call("check_many", [["login", "a", 5], ["login", "a"], ["api", "a", 2]])
    assert [a["allowed"] for a in answers] == [True, False, True]
    assert client.call("check_many", []) == []


def test_check_many_with_a_bad_member_charges_nothing(client):
    with pytest.raises(RpcError) as error:
        client.call("check_many", [["login", "a"], ["login", ""]])
    assert error.value.code == "BAD_KEY" and "1" in error.value.message
    assert client.remaining("login", "a") == 5


def test_options_map(client):
    assert client.call("check", "login", "k", {"cost": 2, "deadline_ms": 50})["remaining"] == 3
    for none in ({}, [], None):
        assert client.call("check", "login", "k2", none)["remaining"] in (4, 3, 2)


@pytest.mark.parametrize("params, code, word", [
    (["login"], "BAD_REQUEST", "key"),
    ([], "BAD_REQUEST", "policy"),
    (["login", "k", 1, 2], "BAD_REQUEST", ""),
    (["login", "k", "1"], "BAD_REQUEST", "cost"),
    (["login", "k", -1], "BAD_COST", "cost"),
    (["login", "k", 1.5], "BAD_COST", "cost"),
    (["login", "k", float("nan")], "BAD_COST", "cost"),
    (["login", "k", float("inf")], "BAD_COST", "cost"),
    (["login", "k", 2**53], "BAD_COST", "cost"),
    (["login", "k", 2**64 - 1], "BAD_COST", "cost"),
    (["login", ""], "BAD_KEY", "key"),
    (["login", "x" * 1025], "BAD_KEY", "1024"),
    (["login", 7], "BAD_REQUEST", "key"),
    (["nope", "k"], "UNKNOWN_POLICY", "nope"),
    ([7, "k"], "BAD_REQUEST", "policy"),
    (["login", "k", {"cots": 1}], "BAD_REQUEST", "cots"),
    (["login", "k", {"at_most": 1, "cost": 1}], "BAD_REQUEST", "at_most"),
    (["login", "k", {"deadline_ms": 0}], "BAD_REQUEST", "deadline_ms"),
    (["login", "k", {"cost": -1}], "BAD_COST", "cost"),
])
def test_bad_check_is_named(client, params, code, word):
    with pytest.raises(RpcError) as error:
        client.call("check", *params)
    assert error.value.code == code, error.value
    assert word in error.value.message
    assert client.call("ping") == "pong"


def test_duplicate_option_is_refused(client):
    options = b"\x82" + (msgpack.packb("cost") + b"\x01") * 2
    client.send_bytes(b"\x94\x00\x63" + msgpack.packb("check") + b"\x93" + msgpack.packb("login") + msgpack.packb("k") + options)
    kind, msgid, error, result = client.recv()
    assert (kind, msgid, result) == (1, 0x63, None) and error.startswith("BAD_REQUEST: ") and "cost" in error


def test_unknown_method_is_named(client):
    for method in ("chekc", "checks"):
        with pytest.raises(RpcError) as error:
            client.call(method, "login", "k")
        assert error.value.code == "UNKNOWN_METHOD" and method in error.value.message


def test_inline_policy_is_not_permitted_or_refused(client):
    with pytest.raises(RpcError) as error:
        client.call("check", {"algorithm": "token_bucket", "limit": 1, "window": "1s"}, "k")
    assert error.value.code in ("NOT_PERMITTED", "BAD_REQUEST")


def test_hello_and_the_array_form(client):
    hello = client.call("hello", {"decision": "array"})
    assert hello["fields"][:len(FIELDS)] == FIELDS
    assert hello["protocol"] == 1 and hello["max_key"] == 1024 and hello["max_frame"] == 65536
    assert hello["max_inflight_per_connection"] == 4096 and isinstance(hello["version"], str)
    answer = client.call("check", "login", "k", 2)
    assert answer[:7] == [True, 5, 3, 0, 10000, 0, 2] and answer[7] is None and answer[8:10] == ["memory", None]
    assert len(answer) == len(FIELDS)
    assert client.call("check_many", [["login", "k"]])[0][2] == 2
    client.call("hello", {"decision": "map"})
    assert client.call("check", "login", "k")["remaining"] == 1
    client.call("hello")
    for options in ({"decision": "xml"}, {"form": "map"}):
        with pytest.raises(RpcError, match="BAD_REQUEST"):
            client.call("hello", options)


def test_hello_lists_only_features_that_the_protocol_defines(client):
    text = (ROOT / "proto" / "PROTOCOL.md").read_text()
    table = text.partition("#### Features")[2].partition("### check")[0]
    defined = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    features = client.call("hello")["features"]
    assert len(set(features)) == len(features) and set(features) == {"name", "reserve_inline", "abandon", "id"} <= set(defined)


def test_ping_version_policies_stats(client):
    for arguments in ([], [None]):
        assert client.call("ping", *arguments) == "pong"
    version = client.call("version")
    assert set(version) >= {"version", "protocol", "libuv", "hiredis", "store"} and version["store"] == "memory"
    policies = {p["name"]: p for p in client.call("policies")}
    assert set(policies) == {"login", "api", "none", "log", "queue"}
    assert policies["login"]["version"] == client.call("check", "login", "k")["policy_version"]
    assert policies["api"]["limits"][0]["burst"] == 20
    assert policies["queue"]["limits"] == [{"algorithm": "leaky_bucket", "limit": 10, "window_ms": 1000, "burst": 1,
                                            "max_wait_ms": 250}]
    stats = client.call("stats")
    assert stats["checks"] >= 1 and all(isinstance(v, int) for v in stats.values())


def test_policies_come_in_pages_by_name(client):
    whole = sorted(client.call("policies"), key=lambda policy: policy["name"])
    assert client.call("policies", None) == client.call("policies") != whole
    for none in ({}, [], {"after": ""}, {"max": 1000}, {b"after": b"LOGIN"}):
        assert client.call("policies", none) == whole
    for size in range(1, 7):
        joined, page = [], client.call("policies", {"max": size})
        while len(page) == size:
            joined += page
            page = client.call("policies", {"after": page[-1]["name"], "max": size})
        assert len(page) < size and joined + page == whole
    names = [policy["name"] for policy in whole]
    assert names == ["api", "log", "login", "none", "queue"]
    for after, n in (("aph", 0), ("api", 1), ("api\0", 1), ("lo", 1), ("log", 2), ("logi", 2), ("loginn", 3), ("queue", 5),
                     ("\u00e4", 5), ("n" * 300, 3)):
        assert [policy["name"] for policy in client.call("policies", {"after": after})] == names[n:]


@pytest.mark.parametrize("page, text", [
    ("login", "page: must be a map of after and max; policies without it lists all"), ([1], "page: must be a map"), (5, "page: must be a map"),
    ({"max": 0}, "max: must be a whole number from 1 to 1000"), ({"max": 1001}, "max: must be"), ({"max": "5"}, "max: must be"),
    ({"max": 2.5}, "max: must be"), ({"max": None}, "max: must be"), ({"after": 5}, "after: must be a str"),
    ({"after": None}, "after: must be a str"), ({"aftr": "a"}, "there is no option 'aftr'; did you mean 'after'"),
    ({"cost": 1}, "there is no option 'cost'"), ({1: 1}, "options: an option's name must be a str")])
def test_a_wrong_page_is_refused_by_the_name_of_its_option(client, page, text):
    with pytest.raises(RpcError, match=f"BAD_REQUEST: {text}"):
        client.call("policies", page)
    assert len(client.call("policies", {"max": 2})) == 2


def test_policies_takes_one_page_at_most(client):
    with pytest.raises(RpcError, match=r"BAD_REQUEST: wrong number of parameters: 2 given; policies takes: \[page\]"):
        client.call("policies", {}, {})


def test_test_clock_without_the_flag_is_unknown(ratelimitd, connect):
    with pytest.raises(RpcError, match="UNKNOWN_METHOD"):
        connect(ratelimitd(CONFIG)).call("test_clock", 0)


def test_test_clock_starts_at_zero_and_steps_back(ratelimitd, connect):
    client = connect(ratelimitd(CONFIG, arguments=["--test-clock"]))
    assert client.call("check", "log", "k", 3)["reset_after_ms"] == 10000
    assert client.call("test_clock", 9_999_999) == 9_999_999
    assert client.call("check", "log", "k")["retry_after_ms"] == 1
    assert client.call("test_clock", 0) == 0
    assert client.call("check", "log", "k")["retry_after_ms"] == 10000
    for bad in (-1, 1.5, "1", 2**53):
        with pytest.raises(RpcError, match="BAD_REQUEST"):
            client.call("test_clock", bad)


def test_what_follows_checks_in_one_write_sees_what_they_have_done(client):
    """Earlier, the last two checks before it were still waiting for their keys' memory."""
    before = client.call("stats")["allowed"]
    requests = [("check", "log", "k")] * 3 + [("stats",), ("test_clock", 10**12 + 10_000_000), ("check", "log", "k"), ("policies",)]
    client.send_bytes(b"".join(msgpack.packb([0, i, method, list(arguments)]) for i, (method, *arguments) in enumerate(requests)))
    answers = [client.recv() for _ in requests]

    assert [answer[1] for answer in answers] == list(range(len(requests)))
    results = [answer[3] for answer in answers]
    assert [result["remaining"] for result in results[:3]] == [2, 1, 0]
    assert results[3]["allowed"] == before + 3
    assert results[5]["remaining"] == 2  # the window of the first three has ended
    assert next(policy for policy in results[6] if policy["name"] == "log")["allowed"] == 4


def test_the_last_checks_of_a_client_that_closes_are_counted(connect, ratelimitd):
    """Earlier, they were charged, but counted neither as allowed nor as denied."""
    daemon = ratelimitd(CONFIG)
    for _ in range(20):
        with Client(daemon.socket) as leaving:
            leaving.send_bytes(b"".join(msgpack.packb([0, i, "check", ["login", "k"]]) for i in range(3)))
    watching = connect(daemon)
    stats = eventually(lambda: (found := watching.call("stats"))["checks"] == 60 and found, "every check is counted")
    assert stats["allowed"] + stats["denied"] == 60


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_small_cap_of_a_connection_does_not_slow_the_memory_store(most, connect, ratelimitd):
    """Earlier, checks that waited for their keys' memory filled it: one or two a tick were decided."""
    client = connect(ratelimitd(f"caps: {{max_inflight_per_connection: {most}}}{CONFIG}"))
    client.send_bytes(b"".join(msgpack.packb([0, i, "check", ["api", "k"]]) for i in range(100)))
    assert sorted(client.recv()[1] for _ in range(100)) == list(range(100))
    assert client.call("stats")["read_pauses"] == 0


ENCODINGS_OF_2 = [b"\x02", b"\xcc\x02", b"\xcd\x00\x02", b"\xce" + struct.pack(">I", 2), b"\xcf" + struct.pack(">Q", 2),
                  b"\xd0\x02", b"\xd1\x00\x02", b"\xd2" + struct.pack(">i", 2), b"\xd3" + struct.pack(">q", 2),
                  b"\xca" + struct.pack(">f", 2), b"\xcb" + struct.pack(">d", 2)]


@pytest.mark.parametrize("two", ENCODINGS_OF_2, ids=lambda b: b.hex())
def test_every_encoding_of_a_cost(client, two):
    client.send_bytes(b"\x94\x00\x01\xa5check\x93\xa5login\xa1k" + two)
    assert client.recv()[3]["remaining"] == 3


@pytest.mark.parametrize("msgid", [0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1])
def test_msgid_comes_back_in_its_shortest_form(client, msgid):
    for encoded in (msgpack.packb(msgid), b"\xcf" + struct.pack(">Q", msgid)):
        client.send_bytes(b"\x94\x00" + encoded + b"\xa4ping\x90")
        expected = b"\x94\x01" + msgpack.packb(msgid) + b"\xc0\xa4pong"
        assert client.socket.recv(len(expected), socket.MSG_WAITALL) == expected


def test_text_as_bin_or_str_in_any_length(client):
    forms = [lambda t: bytes([0xa0 | len(t)]) + t, lambda t: b"\xd9" + bytes([len(t)]) + t,
             lambda t: b"\xda" + struct.pack(">H", len(t)) + t, lambda t: b"\xdb" + struct.pack(">I", len(t)) + t,
             lambda t: b"\xc4" + bytes([len(t)]) + t, lambda t: b"\xc5" + struct.pack(">H", len(t)) + t,
             lambda t: b"\xc6" + struct.pack(">I", len(t)) + t]
    for n, form in enumerate(forms[:5]):
        client.send_bytes(b"\x94\x00\x05" + form(b"check") + b"\x92" + form(b"login") + form(b"\xff\x00{a}\r\n"))
        assert client.recv()[3]["remaining"] == 4 - n
    for form in forms[5:]:
        client.send_bytes(b"\x94\x00\x05" + form(b"ping") + b"\x90")
        assert client.recv()[3] == "pong"


def test_notifications_are_ignored(client):
    client.send_bytes(msgpack.packb([2, "nvim_set_client_info", ["x", {}, "remote", {}, {}]]))
    client.send_bytes(msgpack.packb([2, "check", ["login", "k"]]))
    assert client.call("ping") == "pong"


def test_nil_params_mean_none(client):
    client.send_bytes(msgpack.packb([0, 9, "ping", None]))
    assert client.recv() == [1, 9, None, "pong"]


@pytest.mark.parametrize("message", [
    [1, 1, None, None], [3, 1, "ping", []], [-1, 1, "ping", []], [0, -1, "ping", []], [0, "1", "ping", []],
    [0, 1, "ping"], [0, 1, "ping", [], 1], [], ["0", 1, "ping", []], [0, None, "ping", []], [2, "x"],
], ids=str)
def test_broken_envelope_gets_last_words_then_close(client, message):
    client.send_bytes(msgpack.packb([0, 7, "ping", []]) + msgpack.packb(message))
    assert client.recv() == [1, 7, None, "pong"]
    kind, msgid, error, result = client.recv()
    assert (kind, msgid, result) == (1, None, None) and error.startswith("BAD_REQUEST: ")
    assert client.socket.recv(1) == b""


@pytest.mark.parametrize("method, params", [(7, []), (None, []), ("ping", {}), ("ping", 3), ("ping", "x"), ([], [])], ids=str)
def test_wrong_types_of_method_and_params_leave_the_connection(client, method, params):
    client.send_bytes(msgpack.packb([0, 7, method, params]))
    kind, msgid, error, result = client.recv()
    assert (kind, msgid, result) == (1, 7, None) and error.startswith("BAD_REQUEST: ")
    assert client.call("ping") == "pong"


@pytest.mark.parametrize("value", [b"\xd4\x01\x00", b"\xc7\x03\x05abc", b"\xd6\xff\x00\x00\x00\x00"], ids=lambda b: b.hex())
def test_ext_types_are_ordinary_errors(client, value):
    client.send_bytes(b"\x94\x00\x07\xa5check\x92\xa5login" + value)
    assert client.recv()[2].startswith("BAD_REQUEST: ")
    assert client.call("ping") == "pong"


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", b"*1\r\n$4\r\nPING\r\n", b"{\"a\":1}", b"\x00\x00", b"\xc1"])
def test_what_is_not_messagepack_rpc_is_closed(client, opening):
    client.send_bytes(opening)
    kind, msgid, error, result = client.recv()
    assert (kind, msgid, result) == (1, None, None) and error.startswith("BAD_REQUEST: ")
    assert client.socket.recv(1) == b""


@pytest.mark.parametrize("opening", [b"\xdd\xff\xff\xff\xff", b"\x94\x00\x01\xdb\xff\xff\xff\xff", b"\x94\x00\x01\xa5check\xdd\x10\x00\x00\x00"], ids=lambda b: b.hex())
def test_bombs_are_refused_at_their_header(client, opening):
    client.send_bytes(opening)
    kind, msgid, error, _ = client.recv()
    assert (kind, msgid) == (1, None) and error.split(": ")[0] in ("TOO_LARGE", "BAD_REQUEST")
    assert client.socket.recv(1) == b""


def test_frame_of_exactly_max_and_one_more(client):
    def padded(total):
        head = b"\x94\x00\x01\xa4ping\x91"
        return head + b"\xc5" + struct.pack(">H", total - len(head) - 3) + bytes(total - len(head) - 3)
    client.send_bytes(padded(65536))
    assert client.recv()[2].startswith("BAD_REQUEST: ")
    client.send_bytes(padded(65537))
    assert client.recv()[1:3][1].startswith("TOO_LARGE: ")
    assert client.socket.recv(1) == b""


def test_last_words_reach_a_peer_that_still_sends(ratelimitd, connect):
    """Closing a socket with unread bytes resets it, and the peer may never see the reason."""
    daemon = ratelimitd(CONFIG)
    client, watcher = connect(daemon), connect(daemon)
    client.send_bytes(b"\xc1" + bytes(100_000))
    client.send_bytes(bytes(100_000))
    assert client.recv()[2].startswith("BAD_REQUEST: ")
    assert client.socket.recv(1) == b""
    eventually(lambda: watcher.call("stats")["connections"] == 1, "the daemon closes although the peer does not")


def test_half_close_answers_everything(client):
    client.send_bytes(b"".join(msgpack.packb([0, n, "check", ["login", f"k{n}"]]) for n in range(500)))
    client.socket.shutdown(socket.SHUT_WR)
    assert sorted(client.recv()[1] for _ in range(500)) == list(range(500))
    assert client.socket.recv(1) == b""


def test_byte_by_byte(client):
    for byte in msgpack.packb([0, 7, "check", ["login", "k", {"cost": 2}]]):
        client.send_bytes(bytes([byte]))
    assert client.recv()[3]["remaining"] == 3


def test_calls_of_one_connection_take_effect_in_order(client):
    for n in range(50):
        client.send_bytes(b"".join(msgpack.packb(m) for m in (
            [0, 1, "check", ["login", "o", 5]], [0, 2, "check", ["login", "o"]], [0, 3, "reset", ["login", "o"]],
            [0, 4, "check", ["login", "o", 5]], [0, 5, "reset", ["login", "o"]])))
        answers = {}
        for _ in range(5):
            _, msgid, error, result = client.recv()
            answers[msgid] = result
        assert [answers[1]["allowed"], answers[2]["allowed"], answers[3]["removed"], answers[4]["allowed"]] == [
            True, False, True, True], n


def test_calls_of_one_connection_take_effect_in_order_on_redis(redis, ratelimitd, connect):
    config = CONFIG.replace("window: 10s", "window: 1h") + "defaults: {deadline: 5s}\n"
    client = connect(ratelimitd(config, redis=redis))
    test_calls_of_one_connection_take_effect_in_order(client)


def test_two_clients_with_equal_msgids(ratelimitd, connect):
    daemon = ratelimitd(CONFIG)
    a, b = connect(daemon), connect(daemon)
    a.send_bytes(msgpack.packb([0, 1, "check", ["login", "a", 5]]))
    b.send_bytes(msgpack.packb([0, 1, "check", ["login", "b", 1]]))
    assert (a.recv()[3]["remaining"], b.recv()[3]["remaining"]) == (0, 4)


def test_same_checks_give_the_same_decisions_on_redis(redis, ratelimitd, connect):
    config = CONFIG.replace("window: 10s", "window: 1d").replace("window: 1m", "window: 30d") + "defaults: {deadline: 5s}\n"
    memory, stored = connect(ratelimitd(config)), connect(ratelimitd(config, redis=redis))
    for method, *params in [("check", "login", "k"), ("check", "login", "k", 3), ("check", "login", "k", 2),
                            ("peek", "login", "k"), ("check", "api", "k", 20), ("check", "api", "k"),
                            ("check", "api", "k", 21), ("check", "none", "k"), ("check", "log", "k", 2),
                            ("check", "log", "k", 2), ("check", "log", "k", 0), ("reset", "log", "k"),
                            ("check", "log", "k", 3)]:
        ours, theirs = memory.call(method, *params), stored.call(method, *params)
        if method == "reset":
            assert ours == theirs
            continue
        assert ours.pop("source") == "memory" and theirs.pop("source") in ("redis", "deny_cache")
        for field in ("retry_after_ms", "reset_after_ms"):
            assert abs(ours.pop(field) - theirs.pop(field)) < 5000
        assert ours == theirs, (method, params)


def test_two_daemons_on_one_redis_enforce_one_limit(redis, ratelimitd, connect):
    config = "policies:\n  p: {algorithm: fixed_window, limit: 100, window: 1d, on_failure: error, deadline: 5s}\n"
    clients = [connect(ratelimitd(config, redis=redis)) for _ in range(2)]
    for client in clients:
        client.send_bytes(b"".join(msgpack.packb([0, n, "check", ["p", "k"]]) for n in range(90)))
    allowed = sum(client.recv()[3]["allowed"] for client in clients for _ in range(90))
    assert allowed == 100


def test_a_client_that_leaves_disturbs_nobody(redis, ratelimitd, connect):
    daemon = ratelimitd(CONFIG, redis=redis)
    steady = connect(daemon)
    for _ in range(20):
        leaver = Client(daemon.socket)
        leaver.send_bytes(b"".join(msgpack.packb([0, n, "check", ["api", f"k{n}"]]) for n in range(50)))
        leaver.close()
        assert steady.call("check", "login", "k", 0)["allowed"]
    eventually(lambda: steady.call("stats")["inflight"] == 0, "nothing in flight")
