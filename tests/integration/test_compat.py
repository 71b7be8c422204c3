"""test_compat.py: a `compat:` policy next to the limiter that it replaces, both counting on the same Redis keys."""

import itertools
import random
import time

import pytest
from originals import ORIGINALS, server_ms

LIMIT, WINDOW_S = 7, 2
MARGIN_MS = 200  # two hits of one step must not lie on different sides of an edge


def policy(preset, limit=LIMIT, window=f"{WINDOW_S}s"):
    return f"policies:\n  p:\n    compat: {preset}\n    limit: {limit}\n    window: {window}\n    on_failure: error\n    deadline: 5s\n"


def near_an_edge(redis, keys):
    """Does a window, a key or an entry end within the margin, so that the next two hits could fall on both sides of it?"""
    now = server_ms(redis)
    if now % (WINDOW_S * 1000) > WINDOW_S * 1000 - MARGIN_MS:
        return True
    for key in keys:
        if 0 <= redis.pttl(key) < MARGIN_MS:
            return True
        if redis.type(key) == b"zset":
            for _, score in redis.zrange(key, 0, -1, withscores=True):
                if -MARGIN_MS < score + WINDOW_S * 1000 - now < MARGIN_MS:
                    return True
    return False


def difference(redis, mixed, alone):
    """The shared key should have the value, type and TTL that the original alone would have left."""
    key, reference = mixed.key_now(), alone.key_now()
    if mixed.value() != alone.value():
        return f"{mixed.value()} is stored, {alone.value()} by the original alone"
    if redis.exists(key) or redis.exists(reference):
        left_ms, reference_ms = redis.pttl(key), redis.pttl(reference)
        if left_ms <= 0 or abs(left_ms - reference_ms) >= MARGIN_MS:
            return f"it expires in {left_ms} ms, after the original alone in {reference_ms} ms"
    return None


@pytest.mark.parametrize("seed", [1, 2])
def test_original_and_daemon_alternate_on_one_key(seed, redis, ratelimitd, connect):
    """All presets, each with a daemon and keys of its own: their windows pass at the same time. Where the machine was so busy
    that the hits of a step may lie on two sides of an edge, that preset goes on with new keys."""
    clients = {preset: connect(ratelimitd(policy(preset), redis=redis)) for preset in ORIGINALS}
    server, rng, numbers = redis.client(), random.Random(seed), itertools.count()

    def pair(preset):
        names = [f"{kind}-{preset}-{next(numbers)}" for kind in ("mixed", "alone")]
        return names[0], *(ORIGINALS[preset](server, name, LIMIT, WINDOW_S) for name in names)

    limiters = {preset: pair(preset) for preset in ORIGINALS}
    n = {preset: {"daemon": 0, "original": 0, "denied": 0} for preset in ORIGINALS}
    began = time.monotonic()
    while time.monotonic() - began < 3.3 * WINDOW_S:
        preset, side = rng.choice(list(ORIGINALS)), rng.choice(["daemon", "original"])
        name, mixed, alone = limiters[preset]
        step_began = server_ms(server)
        if near_an_edge(server, [mixed.key_now(), alone.key_now()]):
            time.sleep(0.002)
            continue
        verdict = clients[preset].check("p", name)["allowed"] if side == "daemon" else mixed.hit()
        expected = alone.hit()
        found = difference(server, mixed, alone)
        if server_ms(server) - step_began >= MARGIN_MS:
            limiters[preset] = pair(preset)
            continue
        assert verdict == expected, f"{preset}, seed {seed}: the {side} answered {verdict}, the original alone {expected}"
        assert found is None, f"{preset}, seed {seed}: {found}"
        n[preset][side] += 1
        n[preset]["denied"] += not verdict
        time.sleep(rng.choice([0, 0, 0.002, 0.01, 0.02]))
    for preset, counts in n.items():
        assert counts["daemon"] > 5 and counts["original"] > 5 and counts["denied"] > 0, (preset, counts)


@pytest.fixture
def limiter(any_store, ratelimitd, connect):
    """limiter(preset, limit, window) -> (check(key), store or None): the same case on every store, in real time."""
    def start(preset, limit, window):
        client = connect(ratelimitd(policy(preset, limit, window), redis=any_store))
        return lambda key="alice": client.call("check", "p", key), any_store

    return start


def test_first_hit_published_cases(limiter):
    """Within the limit, beyond it, clients independent, denied until the reset, denied not counted, reset after."""
    check, store = limiter("first-hit", 3, "1s")
    answers = [check() for _ in range(3)]
    assert [a["allowed"] for a in answers] == [True] * 3
    assert [a["remaining"] for a in answers] == [2, 1, 0]
    denied = [check() for _ in range(4)]
    assert not any(a["allowed"] for a in denied)
    assert all(0 < a["retry_after_ms"] <= 1000 for a in denied)
    assert check("bob")["allowed"]
    if store is not None:
        assert store.client().get("rate_limit:alice") == b"3"
    time.sleep(denied[-1]["retry_after_ms"] / 1000)
    assert check()["allowed"]


def test_window_start_millis_published_cases(limiter):
    """Every request counts; reset-after is the window's end; retry-after only when denied, and equal to it."""
    check, _ = limiter("window-start-millis", 2, "1h")
    answers = [check() for _ in range(4)]
    assert [a["allowed"] for a in answers] == [True, True, False, False]
    assert [a["remaining"] for a in answers] == [1, 0, 0, 0]
    assert [a["retry_after_ms"] > 0 for a in answers] == [False, False, True, True]
    assert answers[3]["retry_after_ms"] == answers[3]["reset_after_ms"]


def test_rlaas_switches_algorithm_on_reload(redis, ratelimitd, connect):
    """The published setting fixed-window-algo / sliding-window-algo, switched by a reload; old keys expire by themselves."""
    def config(algorithm):
        return f"policies:\n  p:\n    algorithm: {algorithm}\n    limit: 2\n    window: 1h\n    deadline: 5s\n"
    daemon = ratelimitd(config("fixed-window-algo"), redis=redis)
    client, server = connect(daemon), redis.client()
    assert [client.call("check", "p", "u")["allowed"] for _ in range(3)] == [True, True, False]
    daemon.configure(config("sliding-window-algo"))
    daemon.reload()
    daemon.wait_for_log("reload: ")
    assert [client.call("check", "p", "u")["allowed"] for _ in range(3)] == [True, True, False]
    assert server.type("rlaas:rate_limit:u") == b"zset"
    assert server.zcard("rlaas:rate_limit:u") == 2
    assert 3_600_000 < server.pttl("rlaas:rate_limit:u") <= 7_200_000
    [fixed] = server.keys("rlaas:rate_limit:u:*")
    assert 0 < server.pttl(fixed) <= 3_600_000


BOTH = """policies:
  fixed: {compat: rlaas-fixed, limit: 2, window: 1d, on_failure: allow, deadline: 30s}
  sliding: {compat: rlaas-sliding, limit: 2, window: 1d, on_failure: allow, deadline: 30s}
"""
DAY_S = 86400


def names_of_windows(server, key):
    """Of today, and of tomorrow for a test at midnight."""
    today = server_ms(server) // 1000 // DAY_S
    return [f"{key}:{today}", f"{key}:{today + 1}"]


def test_both_rlaas_presets_count_on_one_prefix_as_the_original_does(redis, ratelimitd, connect):
    client, server = connect(ratelimitd(BOTH, redis=redis)), redis.client()
    for policy, preset, kind in (("fixed", "rlaas-fixed", b"string"), ("sliding", "rlaas-sliding", b"zset")):
        original = ORIGINALS[preset](server, "user:42", 2, DAY_S)  # colon and digits: this cannot be the name of a window
        assert client.check(policy, "user:42")["remaining"] == 1
        assert original.hit()
        assert server.type(original.key_now()) == kind
        assert client.check(policy, "user:42")["allowed"] is original.hit() is False


def test_a_key_that_means_another_keys_window_is_a_store_error(redis, ratelimitd, connect):
    """A client that chooses its keys can make those of both presets collide. This affects only its own checks."""
    client, server = connect(ratelimitd(BOTH, redis=redis)), redis.client()
    foreign = {"allowed": True, "source": "allow", "reason": "store_error"}

    client.check("fixed", "a")
    window = next(name for name in names_of_windows(server, "a") if server.exists(f"rlaas:rate_limit:{name}"))
    assert foreign.items() <= client.check("sliding", window).items()
    for name in names_of_windows(server, "b"):
        assert client.check("sliding", name)["remaining"] == 1
    assert foreign.items() <= client.check("fixed", "b").items()

    asked = [["fixed", "c"], *(["sliding", name] for name in names_of_windows(server, "c")), ["sliding", "other"]]
    for _ in range(2):  # at first, one of the two may run before the other key exists
        answers = client.call("check_many", asked)
        assert answers[-1]["source"] == "redis"
    assert any(foreign.items() <= answer.items() for answer in answers)
    assert server.zcard("rlaas:rate_limit:other") == 2


def test_endpoint_window_stops_counting_at_limit_plus_one(limiter):
    check, store = limiter("endpoint-window", 2, "60s")
    answers = [check("10.0.0.1-Orders-create") for _ in range(6)]
    assert [a["allowed"] for a in answers] == [True, True, False, False, False, False]
    if store is not None:
        assert store.client().get("rate_limit:10.0.0.1-Orders-create") == b"3"


def test_endpoint_log_records_denied_requests(limiter):
    check, store = limiter("endpoint-log", 2, "60s")
    assert [check("10.0.0.1-Orders-list")["allowed"] for _ in range(5)] == [True, True, False, False, False]
    if store is not None:
        assert store.client().zcard("rate_limit:10.0.0.1-Orders-list") == 5


@pytest.mark.parametrize("preset", ORIGINALS)
def test_costs_other_than_0_and_1_are_refused(preset, ratelimitd, connect):
    client = connect(ratelimitd(policy(preset, window="60s")))
    assert client.call("check", "p", "k", 0)["allowed"]
    assert client.call("check", "p", "k", 1)["remaining"] == LIMIT - 1
    with pytest.raises(Exception, match="BAD_COST"):
        client.call("check", "p", "k", 2)
