"""test_test_store.py: the daemon that ratelimitctl test asks: outages by the method test_store, and a memory store that is exact
under --test-limits."""

import socket

import pytest

from harness import eventually, some

S = 1_000_000
FAILING = """policies:
  local: {algorithm: sliding_log, limit: 2, window: 10s}
  allow: {algorithm: sliding_log, limit: 2, window: 10s, on_failure: allow}
  deny: {algorithm: sliding_log, limit: 2, window: 10s, on_failure: deny}
  error: {algorithm: sliding_log, limit: 2, window: 10s, on_failure: error}
  merged: {algorithm: fixed_window, limit: 5, window: 1h, merge_back: true}
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s}
  tokens: {algorithm: token_bucket, limit: 10, window: 1h}
  limitless: {unlimited: true}
"""


def accepts(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@pytest.fixture
def start(ratelimitd, connect):
    """A daemon under --test-limits, which does not say when it is ready, and a client of it."""
    def started(config, argument="--test-limits"):
        daemon = ratelimitd(config, start=False)
        daemon.arguments = ["-s", daemon.socket, argument]
        daemon.path.chmod(0o666 if argument == "--test-limits" else 0o600)  # as the checkout of some CIs is
        daemon.start(wait=False)
        eventually(lambda: accepts(daemon.socket), "the daemon accepts connections")
        return daemon, connect(daemon)

    return started


@pytest.fixture(params=["--test-clock", "--test-limits"])
def client(request, start):
    return start(FAILING, request.param)[1]


def at(client, second):
    client.call("test_clock", int(second * S))


def decided(client, policy, key="k"):
    return some(client.check(policy, key), "allowed", "source", "reason")


def refused(client, *request):
    with pytest.raises(Exception) as caught:
        client.call(*request)
    return str(caught.value)


# ---- down and up ----------------------------------------------------------------------------------------------------


def test_while_the_store_is_down_each_policy_gives_its_failure_answer(client):
    assert client.call("test_store", "down") == "down"
    assert decided(client, "allow") == (True, "allow", "down")
    assert decided(client, "deny") == (False, "deny", "down")
    assert decided(client, "local") == (True, "local", "down")
    assert "STORE_UNAVAILABLE" in refused(client, "check", "error", "k")


def test_counts_are_kept_over_an_outage(client):
    for _ in range(2):
        assert decided(client, "deny") == (True, "memory", None)
    client.call("test_store", "down")
    decided(client, "deny")
    assert client.call("test_store", "up") == "up"
    assert decided(client, "deny") == (False, "memory", None)
    at(client, 10)
    assert decided(client, "deny") == (True, "memory", None)


def test_a_reset_after_an_outage_does_not_answer_as_the_check_before_it(client):
    """It answered `stays_in_redis`, with the reason of the failure answer that its memory had held before."""
    client.call("test_store", "down")
    decided(client, "deny")
    client.call("test_store", "up")
    assert client.call("reset", "deny", "k") == {"removed": False}
    assert client.call("reset", "limitless", "k") == {"removed": False}


def test_many_checks_that_wait_together_all_get_the_failure_answer(client):
    client.call("test_store", "down")
    answers = client.call("check_many", [["deny", f"k{i}"] for i in range(100)])
    assert {some(answer, "allowed", "source", "reason") for answer in answers} == {(False, "deny", "down")}


def test_local_counts_the_whole_limit_by_the_time_of_the_test(client):
    client.call("test_store", "down")
    assert [decided(client, "local")[0] for _ in range(3)] == [True, True, False]
    at(client, 9.999)
    assert not decided(client, "local")[0]
    at(client, 10)
    assert decided(client, "local") == (True, "local", "down")


def test_local_begins_anew_when_the_store_has_decided_and_the_test_has_waited_for_ten_seconds(client):
    def outage():
        client.call("test_store", "down")
        allowed = [client.call("check", "local", key)["allowed"] for key in ("k", "k", "k")]
        client.call("test_store", "up")
        client.check("local", "another")
        return allowed

    at(client, 100)
    assert outage() == [True, True, False]
    at(client, 105)
    assert outage() == [False, False, False]
    at(client, 120)
    assert outage() == [True, True, False]


def test_what_local_admitted_is_merged_back_before_the_next_call(client):
    client.check("merged", "k")
    client.call("test_store", "down")
    assert [decided(client, "merged")[1] for _ in range(3)] == ["local"] * 3
    client.call("test_store", "up")
    assert client.remaining("merged", "k") == 1


def test_a_slot_stays_held_over_an_outage_whatever_time_passes(client):
    slot = client.call("acquire", "jobs", "k")["slot"]
    client.call("test_store", "down")
    local = client.call("acquire", "jobs", "k")
    assert some(local, "allowed", "source") == (True, "local")
    for second in (100, 3600, 86400):
        at(client, second)
    assert not client.call("acquire", "jobs", "k")["allowed"] or client.call("acquire", "jobs", "k")["source"] == "local"
    client.call("test_store", "up")
    assert client.remaining("jobs", "k") == 1
    assert client.call("release", slot) == {"released": True}
    assert client.remaining("jobs", "k") == 2


def test_a_slot_that_was_released_during_an_outage_is_free_when_the_store_is_back(client):
    slots = [client.call("acquire", "jobs", "k")["slot"] for _ in range(2)]
    client.call("test_store", "down")
    for slot in slots:
        assert client.call("release", slot) == {"released": True}
    at(client, 7200)
    client.call("test_store", "up")
    assert client.remaining("jobs", "k") == 2


def test_a_local_slot_stays_held_whatever_time_passes(client):
    client.call("test_store", "down")
    slots = [client.call("acquire", "jobs", "k") for _ in range(2)]
    assert [slot["source"] for slot in slots] == ["local"] * 2
    at(client, 86400)
    assert not client.call("acquire", "jobs", "k")["allowed"]
    client.call("release", slots[0]["slot"])
    assert client.call("acquire", "jobs", "k")["allowed"]


def test_a_reservation_is_settled_after_an_outage(client):
    reservation = client.call("reserve", "tokens", "k", 4)["reservation"]
    client.call("test_store", "down")
    assert "STORE_UNAVAILABLE" in refused(client, "settle", reservation, 1)
    client.call("test_store", "up")
    assert client.call("settle", reservation, 1)["refunded"] == 3


def test_another_word_is_refused(client):
    for word in ("sideways", "", 1, None):
        assert "BAD_REQUEST: state: must be down, up or clear" in refused(client, "test_store", word)


def test_without_the_flag_there_is_no_such_method(ratelimitd, connect):
    client = connect(ratelimitd("policies: {p: {algorithm: fixed_window, limit: 1, window: 1s}}"))
    assert "UNKNOWN_METHOD: there is no method 'test_store' in a daemon that was started without --test-clock" in \
        refused(client, "test_store", "down")


# ---- clear ----------------------------------------------------------------------------------------------------------


def test_clear_forgets_counts_slots_reservations_request_ids_and_the_outage(client):
    at(client, 500)
    for policy in ("local", "tokens"):
        client.check(policy, "k")
    client.call("check", "tokens", "k", {"cost": 2, "request_id": "r"})
    client.call("reserve", "tokens", "k", 4)
    client.call("acquire", "jobs", "k")
    client.call("test_store", "down")
    for policy in ("local", "merged"):
        client.check(policy, "k")
    client.call("acquire", "jobs", "k")
    assert client.call("test_store", "clear") == "clear"

    at(client, 1)
    assert decided(client, "local") == (True, "memory", None)
    assert client.remaining("local", "k") == 1
    assert client.remaining("merged", "k") == 5
    assert client.remaining("jobs", "k") == 2
    assert client.remaining("tokens", "k") == 10
    assert client.call("check", "tokens", "k", {"cost": 3, "request_id": "r"})["remaining"] == 7
    stats = client.call("stats")
    assert (stats["slots"], stats["reservations"], stats["merge_back_waiting"]) == (0, 0, 0)
    client.call("test_store", "down")
    assert [decided(client, "local")[0] for _ in range(3)] == [True, True, False]


def test_a_slot_from_before_a_clear_is_not_held_any_more(client):
    slot = client.call("acquire", "jobs", "k")["slot"]
    client.call("test_store", "clear")
    assert client.call("release", slot) == {"released": False}
    assert len([client.call("acquire", "jobs", "k")["slot"] for _ in range(2)]) == 2


# ---- exact ----------------------------------------------------------------------------------------------------------

PLACES = """store: {memory: {max_keys: 1000}}
defaults: {on_failure: allow}
policies:
  one: {algorithm: %s, limit: 1, window: 10s}
  shadow: {algorithm: fixed_window, limit: 1, window: 10s, shadow: true}
"""


@pytest.fixture
def exact(start):
    return lambda config: start(config)[1]


def times_denied(client, keys):
    return sum(not answer["allowed"] for _ in range(2) for answer in client.call("check_many", [["one", key] for key in keys]))


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_log", "sliding_counter", "token_bucket"])
def test_states_that_are_over_take_no_place_of_live_ones(exact, algorithm):
    """Under --test-clock they fill the table, and 854 of 900 were denied."""
    client = exact(PLACES % algorithm)
    for begin in range(5):
        at(client, begin * 100)
        assert times_denied(client, [f"{begin}-{i}" for i in range(900)]) == 900
    assert client.call("stats")["memory_evicted"] == 0


def test_a_key_that_has_no_place_is_an_error_with_the_way_out_and_no_wrong_figure(exact):
    client = exact(PLACES % "fixed_window")
    for i in range(1000):
        assert client.check("one", f"k{i}")["allowed"]
    for policy in ("one", "shadow"):
        message = refused(client, "check", policy, "one more")
        assert message.startswith("OVERLOADED: the memory store is full") and "store.memory.max_keys" in message
    assert times_denied(client, [f"k{i}" for i in range(1000)]) == 2000
    at(client, 10)
    assert client.check("one", "one more")["allowed"]


def test_a_request_id_that_has_no_place_is_an_error_too(exact):
    client = exact("store: {memory: {max_keys: 10}}\npolicies: {api: {algorithm: fixed_window, limit: 100, window: 1h}}\n")
    for i in range(10):
        client.call("check", "api", "k", {"request_id": f"r{i}"})
    assert "OVERLOADED: the memory store is full" in refused(client, "check", "api", "k", {"request_id": "one more"})
    assert client.call("check", "api", "k", {"request_id": "r0"})["remaining"] == 99
    at(client, 60)
    assert client.call("check", "api", "k", {"request_id": "one more"})["remaining"] == 89


def test_a_log_of_more_bytes_than_there_are_is_an_error(exact):
    client = exact("store: {memory: {max_keys: 1000, max_bytes: 64KiB}}\npolicies:\n"
                   "  log: {algorithm: sliding_log, limit: 10000, window: 1h}\n")
    with pytest.raises(Exception, match="OVERLOADED: the memory store is full"):
        for i in range(100):
            at(client, i)
            assert client.call("check", "log", "k", 100)["allowed"]


def test_what_local_has_no_place_for_is_an_error_too(exact):
    client = exact("store: {memory: {max_keys: 10}}\npolicies: {one: {algorithm: fixed_window, limit: 1, window: 10s}}\n")
    client.call("test_store", "down")
    for i in range(10):
        assert client.check("one", f"k{i}")["source"] == "local"
    assert "OVERLOADED: the memory store is full" in refused(client, "check", "one", "one more")


def test_its_clock_goes_forward_only_until_it_is_cleared(exact):
    client = exact(FAILING)
    at(client, 100)
    at(client, 100)
    assert "BAD_REQUEST: microseconds: is earlier than now (100000000)" in refused(client, "test_clock", 99 * S)
    client.call("test_store", "clear")
    at(client, 5)


# ---- the configuration of production --------------------------------------------------------------------------------

PRODUCTION = """listen: {socket: /run/ratelimitd/ratelimitd.sock, group: no-such-group, write_stall: 10ms, idle_timeout: 1s}
reload: {watch: 1s}
control: {socket: /run/ratelimitd/control.sock}
admin: {listen: "127.0.0.1:1"}
keys: {secret_file: /nowhere/secret}
access:
  default: {role: none}
  rules: [{user: no-such-user, role: admin}]
store:
  type: redis
  memory: {max_keys: 3}
  redis: {addresses: ["10.0.0.7:6379"], username: u, password_file: /nowhere/password, tls: {ca_file: /nowhere/ca}}
policies:
  api: {algorithm: fixed_window, limit: 5, window: 1h}
  old: {compat: first-hit, limit: 5, window: 10s}
"""


def test_the_configuration_of_a_service_runs_where_its_users_files_and_redis_are_not(start):
    daemon, client = start(PRODUCTION)
    assert client.call("version")["store"] == "memory"
    assert [client.check("api", f"k{i}")["source"] for i in range(100)] == ["memory"] * 100
    assert client.check("old", "k")["remaining"] == 4
    daemon.stop()
    assert daemon.text() == ""


def test_its_mistakes_are_reported_as_ever(ratelimitd):
    daemon = ratelimitd("policies: {api: {algorithm: fixed_window, limit: five, window: 1h}}\n", start=False, expected_exit=3)
    daemon.arguments = ["--test-limits"]
    daemon.start(wait=False)
    assert daemon.wait() == 3
    assert f"{daemon.path}:" in daemon.text() and "policies.api.limit: 'five' is not a whole number" in daemon.text()


def test_policies_may_stand_in_the_file_of_the_tests(start):
    client = start("policies: {api: {algorithm: fixed_window, limit: 5, window: 1h}}\ntests:\n  - name: any\n    steps: []\n")[1]
    assert client.check("api", "k")["remaining"] == 4
