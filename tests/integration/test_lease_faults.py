"""test_lease_faults.py: units that are taken ahead, and a Redis that forgets its script or its data, steps its clock, answers late,
never or nonsense; daemons that end in every way. Whatever happens, the limit holds, and what is lost has a bound."""

import signal

import pytest
from harness import Redis, eventually
from played_server import PlayedServer, integers
from stepped_clock import Clock

LIMIT = 3000
WINDOWS = {
    "aligned": f"algorithm: fixed_window, limit: {LIMIT}, window: 30d",
    "first": f"algorithm: fixed_window, start: first_hit, limit: {LIMIT}, window: 30d",
    "year": f"algorithm: calendar_window, limit: {LIMIT}, window: year",
    "counter": f"algorithm: sliding_counter, limit: {LIMIT}, window: 30d",
}
ALL = {**WINDOWS,
       "bucket": f"algorithm: token_bucket, limit: 1, window: 1d, burst: {LIMIT}",
       "gcra": f"algorithm: gcra, limit: 1, window: 1d, burst: {LIMIT}"}
BURST = 40  # checks in one message, which make a key busy at once


CONFIG = "defaults: {deadline: 10s, on_failure: deny}\npolicies:\n" + "".join(
    f"  {name}: {{{settings}, lease: 10s}}\n" for name, settings in ALL.items())


def n_admitted(client, policy, n):
    return sum(answer["allowed"] for answer in client.call("check_many", [[policy, "k"]] * n))


def n_held(client):
    """Of a daemon that has given nothing back yet."""
    stats = client.call("stats")
    return stats["leases_units"] - stats["decided_by_lease"]


def heat(client, policy):
    """Until units are held. Returns how many checks were admitted."""
    n = 0
    while n_held(client) == 0:
        n += n_admitted(client, policy, BURST)
        assert 0 < n < LIMIT
    return n


def admit_all(clients, policy):
    """Checks in all daemons at once, until none of them admits one more: how many they admitted."""
    total, now = 0, -1
    while now != 0:
        msgids = [client.send("check_many", [[policy, "k"]] * BURST) for client in clients]
        now = sum(answer["allowed"] for client, msgid in zip(clients, msgids) for answer in client.answer(msgid))
        total += now
    return total


def charged(client, policy):
    return LIMIT - client.remaining(policy)


@pytest.fixture(params=sorted(ALL))
def policy(request):
    return request.param


@pytest.fixture(params=sorted(WINDOWS))
def window(request):
    return request.param


@pytest.fixture
def server():
    """One server: what is tested here does not depend on its kind."""
    if not Redis.installed("redis"):
        pytest.skip("no redis-server here")
    server = Redis("redis")
    yield server
    server.close()


def test_ten_daemons_on_one_key_admit_its_limit_and_no_more(server, ratelimitd, connect):
    clients = [connect(ratelimitd(CONFIG, redis=server)) for _ in range(10)]
    for policy in ALL:
        admitted = admit_all(clients, policy)
        assert LIMIT // 2 < admitted <= LIMIT, policy
    assert sum(client.call("stats")["decided_by_lease"] for client in clients) > LIMIT


def test_a_script_that_redis_has_forgotten_costs_no_unit(server, ratelimitd, connect, window):
    client = connect(ratelimitd(CONFIG, redis=server))
    n = heat(client, window)
    for _ in range(5):
        with server.client() as admin:
            admin.script_flush()
        n += n_admitted(client, window, 100)
    assert charged(client, window) == n
    assert client.call("stats")["leases_lost"] == 0


def test_an_empty_redis_after_a_failover_admits_the_leased_units_more_and_no_others(server, ratelimitd, connect, policy):
    daemons = [ratelimitd(CONFIG, redis=server) for _ in range(2)]
    clients = [connect(daemon) for daemon in daemons]
    heat(clients[0], policy)
    held = n_held(clients[0])
    server.restart()
    for client in clients:
        eventually(lambda: client.check("aligned", "probe")["source"] == "redis", "Redis decides again")
    assert admit_all(clients, policy) <= LIMIT + held
    assert 0 <= clients[1].remaining(policy) <= LIMIT


def test_a_daemon_that_drains_under_load_gives_back_all_but_what_it_admitted(server, ratelimitd, connect, window):
    daemon, other = (ratelimitd(CONFIG, redis=server) for _ in range(2))
    client = connect(daemon)
    n = heat(client, window)
    for _ in range(10):
        client.send("check_many", [[window, "k"]] * BURST)
    daemon.signal(signal.SIGTERM)
    try:
        for _ in range(10):
            n += sum(answer["allowed"] for answer in client.recv()[3] or ())
    except (EOFError, ConnectionResetError):
        pass
    daemon.wait()
    assert charged(connect(other), window) == n


def test_a_daemon_that_is_killed_under_load_admits_no_more_than_was_charged(server, ratelimitd, connect, policy):
    n = 0
    for _ in range(3):
        daemon = ratelimitd(CONFIG, redis=server)
        client = connect(daemon)
        n += heat(client, policy)
        client.send("check_many", [[policy, "k"]] * BURST)
        daemon.kill()
    last = connect(ratelimitd(CONFIG, redis=server))
    assert n + admit_all([last], policy) <= LIMIT


@pytest.mark.parametrize("by_s", (3600, -3600))
def test_no_step_of_the_daemons_clock_moves_a_unit(server, ratelimitd, connect, tmp_path, by_s):
    clock = Clock(tmp_path)
    client = connect(ratelimitd(CONFIG, redis=server, env=clock.env))
    for window in WINDOWS:
        n = heat(client, window)
        clock.step(by_s)
        n += n_admitted(client, window, 10 * BURST)
        clock.step(0)
        n += n_admitted(client, window, 10 * BURST)
        assert charged(client, window) == n


@pytest.mark.parametrize("redis_kind", ["redis"], indirect=True)
@pytest.mark.parametrize("by_s", (3600, -3600))
def test_no_step_of_redis_clock_within_a_window_admits_more(ratelimitd, connect, start_redis, tmp_path, by_s):
    clock = Clock(tmp_path)
    server = start_redis(env=clock.env)
    clients = [connect(ratelimitd(CONFIG, redis=server)) for _ in range(2)]
    for policy in ("first", "bucket", "gcra"):  # the others may begin a new window
        n = heat(clients[0], policy)
        clock.step(by_s)
        n += admit_all(clients, policy)
        clock.step(0)
        assert n + admit_all(clients, policy) <= LIMIT


def use_up(client, window):
    """All units that are held; the next check asks for more. Returns how many checks were admitted."""
    n = n_held(client)
    assert n_admitted(client, window, n) == n
    assert n_held(client) == 0
    return n


# ---- a Redis that lies ----

NONSENSE = {
    "a negative count": lambda numbers: integers([-5, *numbers[1:]]),
    "a count beyond every limit": lambda numbers: integers([2**62, *numbers[1:]]),
    "too few integers": lambda numbers: integers(numbers[1:]),
    "too many integers": lambda numbers: integers([0, *numbers]),
    "no integer": lambda numbers: b"*%d\r\n$1\r\nx\r\n" % len(numbers) + integers(numbers[1:]).partition(b"\r\n")[2],
    "nothing": lambda numbers: b"*-1\r\n",
    "an error": lambda numbers: b"-ERR nonsense\r\n",
    "another call's nonce": lambda numbers: integers([*numbers[:-1], numbers[-1] + 1]),
}


@pytest.fixture
def played(server):
    played = PlayedServer(server)
    yield played
    played.close()


@pytest.fixture
def deceived(played, server, ratelimitd, connect):
    """A client of a daemon whose Redis lies as soon as `played.forge` is set, and which holds no units now."""
    client = connect(ratelimitd(CONFIG, redis=server, redis_options={
        "addresses": f'["{played.address}"]', "reconnect": "{refused_max: 100ms}"}))
    heat(client, "aligned")
    use_up(client, "aligned")
    return client


@pytest.mark.parametrize("what", NONSENSE)
def test_a_reply_that_makes_no_sense_brings_a_failure_answer_and_no_units(played, deceived, what):
    taken = deceived.call("stats")["leases_taken"]
    played.forge = NONSENSE[what]
    answer = deceived.check("aligned", "k")
    assert (answer["allowed"], answer["source"]) == (False, "deny")
    assert played.n_forged > 0
    played.forge = None
    eventually(lambda: deceived.check("aligned", "probe")["source"] == "redis", "Redis decides again")
    assert deceived.call("stats")["leases_taken"] == taken
    assert n_held(deceived) == 0


def test_a_redis_that_counts_too_little_grants_no_more_than_was_asked(played, deceived):
    before = deceived.call("stats")["leases_units"]
    played.forge = lambda numbers: integers([0, *numbers[1:]])
    answer = deceived.check("aligned", "k")
    assert (answer["allowed"], answer["source"], answer["remaining"]) == (True, "redis", LIMIT - 1)
    assert 0 < deceived.call("stats")["leases_units"] - before <= LIMIT // 8


@pytest.mark.parametrize("left", (0, 1, 5))
def test_a_redis_that_grants_less_than_was_asked_leases_no_more_than_it_grants(played, deceived, left):
    before = deceived.call("stats")["leases_units"]
    played.forge = lambda numbers: integers([LIMIT - left, *numbers[1:]])
    answer = deceived.check("aligned", "k")
    assert (answer["allowed"], answer["source"]) == (left > 0, "redis")
    assert deceived.call("stats")["leases_units"] - before == max(left - 1, 0)
