"""test_deny_cache.py: denials without asking Redis, through the socket: which ones, until when, and that the cache does not
change what one daemon or two admit."""

import random
import time

import pytest
from harness import eventually, run_ratelimitd, some

POLICIES = """
defaults: {deadline: 10s}
policies:
  window: {algorithm: fixed_window, limit: 5, window: 1d}
  spread: {algorithm: fixed_window, phase: true, limit: 5, window: 1d}
  first: {algorithm: fixed_window, start: first_hit, limit: 5, window: 1d}
  month: {algorithm: calendar_window, limit: 5, window: year, timezone: Europe/Berlin}
  bucket: {algorithm: token_bucket, limit: 1, window: 1d, burst: 5}
  leaky: {algorithm: leaky_bucket, limit: 1, window: 1h, burst: 2, max_wait: 3h}
  log: {algorithm: sliding_log, limit: 5, window: 1d}
  counter: {algorithm: sliding_counter, limit: 5, window: 1d}
  quick: {algorithm: token_bucket, limit: 50, window: 1s, burst: 500}
  owing: {algorithm: token_bucket, limit: 1, window: 1d, burst: 5, debt: true}
  partly:
    key_format: "{tenant}:{user}"
    limits: [{name: tenant, by: [tenant], algorithm: fixed_window, limit: 5, window: 1d}]
  lenient:
    {algorithm: fixed_window, limit: 2, window: 1d,
     candidate: [{name: day, algorithm: fixed_window, limit: 5, window: 1d}]}
"""
NATIVE = ("window", "spread", "first", "month", "bucket", "leaky", "log", "counter", "owing")
LONG = {"deny_cache": "{max_age: 1m}"}  # longer than a test
OFF = {"deny_cache": "{max_keys: 0}"}


@pytest.fixture
def daemon(redis, ratelimitd):
    return ratelimitd(POLICIES, redis=redis, redis_options=LONG)


def use_up(client, policy, key, cost=1):
    """Until Redis denies it."""
    for _ in range(20):
        answer = client.check(policy, key, cost)
        assert answer["source"] == "redis"
        if not answer["allowed"]:
            return answer
    raise AssertionError("it is never denied")


def is_denied_here(client, policy, key, *rest):
    answer = client.check(policy, key, *rest)
    assert (answer["allowed"], answer["source"]) == (False, "deny_cache")
    return answer


def is_asked(client, policy, key, *rest):
    answer = client.check(policy, key, *rest)
    assert answer["source"] == "redis", answer
    return answer


# ---- denials without Redis ----


def test_a_used_up_key_is_denied_without_redis(client):
    for policy in NATIVE:
        denied = use_up(client, policy, "k")
        before = client.call("stats")
        for _ in range(20):
            again = is_denied_here(client, policy, "k")
            for name in ("retry_after_ms", "reset_after_ms"):
                assert denied[name] - 20000 < again[name] <= denied[name]
            assert {**denied, **again} == {**again, "source": "deny_cache"}  # the same fields and values, except those
        many = client.call("check_many", [[policy, "k"]] * 20)
        assert {answer["source"] for answer in many} == {"deny_cache"}
        stats = client.call("stats")
        assert stats["redis_batches"] == before["redis_batches"], policy
        assert [stats[name] - before[name] for name in ("denied_from_cache", "denied")] == [40, 40], policy
        peeked = client.call("peek", policy, "k", 1)
        assert some(peeked, "source", "allowed", "remaining") == ("redis", False, again["remaining"])
        assert abs(peeked["retry_after_ms"] - again["retry_after_ms"]) < 20000
        assert is_asked(client, policy, "other")["allowed"]


def test_what_is_not_a_plain_check_asks_redis(client):
    use_up(client, "window", "k")
    is_denied_here(client, "window", "k")
    assert is_asked(client, "window", "k", {"request_id": "one"})["allowed"] is False
    assert is_asked(client, "window", "k", 0)["allowed"]
    whole = client.call("check_all", [["window", "k"]])
    assert (whole["source"], whole["members"][0]["source"]) == ("redis", "redis")
    whole = client.call("check_all", [["window", "k"], ["bucket", "k"]])
    assert [member["source"] for member in whole["members"]] == ["redis", "redis"] and not whole["allowed"]
    assert client.call("peek", "window", "k", 1)["source"] == "redis"
    assert client.call("explain", "window", "k", 1)["source"] == "redis"
    assert client.call("reserve", "window", "k", 1)["source"] == "redis"


def test_an_entry_belongs_to_a_counter_whichever_key_asks(client):
    use_up(client, "partly", "acme:alice")
    is_denied_here(client, "partly", "acme:bob")
    assert is_asked(client, "partly", "bcme:alice")["allowed"]
    client.call("reset", "partly/tenant", "acme:carol")
    assert is_asked(client, "partly", "acme:alice")["allowed"]


def test_a_candidate_is_asked_all_the_same(client):
    use_up(client, "lenient", "k")
    for _ in range(7):
        is_denied_here(client, "lenient", "k")
    eventually(lambda: client.call("stats")["candidate_denied"] == 5, "the candidate has decided")
    stats = client.call("stats")
    assert (stats["candidate_allowed"], stats["candidate_only_allowed"], stats["candidate_skipped"]) == (5, 3, 0)


# ---- until when ----


def test_what_gives_units_back_is_seen_at_once(client):
    for method, *rest in (("refund", 4), ("reset",), ("settle", 1), ("cancel",)):
        key = f"key-{method}"
        made = client.call("reserve", "owing", key, 4)
        use_up(client, "owing", key, 2)
        is_denied_here(client, "owing", key, 2)
        client.call(method, *(["owing", key] if method in ("refund", "reset") else [made["reservation"]]), *rest)
        assert is_asked(client, "owing", key, 2)["allowed"]


def test_a_reservation_that_ends_by_itself_is_seen(client):
    client.call("reserve", "bucket", "k", 5, {"ttl_ms": 2000})
    assert not is_asked(client, "bucket", "k")["allowed"]
    is_denied_here(client, "bucket", "k")
    eventually(lambda: client.check("bucket", "k")["allowed"], "the units are back")


def test_another_daemons_reset_is_seen_after_max_age(daemon, redis, ratelimitd, connect):
    second = ratelimitd(POLICIES, redis=redis, redis_options={"deny_cache": "{max_age: 300ms}"})
    ours, theirs = connect(second), connect(daemon)
    use_up(ours, "window", "k")
    denied_at = time.monotonic()
    theirs.call("reset", "window", "k")
    eventually(lambda: ours.check("window", "k")["allowed"], "the reset is seen")
    assert is_asked(theirs, "window", "k")["allowed"]
    assert time.monotonic() - denied_at < 30


def test_a_hanging_redis_does_not_affect_certain_denials(daemon, redis, client):
    use_up(client, "window", "k")
    redis.pause()
    for _ in range(20):
        is_denied_here(client, "window", "k")
    redis.resume()


def test_the_memory_store_has_none(ratelimitd, connect):
    daemon = ratelimitd("store: {type: memory}\n" + POLICIES.lstrip())
    client = connect(daemon)
    assert [client.check("window", "k")["source"] for _ in range(9)] == ["memory"] * 9
    assert client.call("stats")["denied_from_cache"] == 0


@pytest.mark.parametrize("setting, wrong", [
    ("{max_age: 0}", "max_age"), ("{max_age: 2m}", "max_age"), ("{max_age: 10}", "max_age"), ("{max_keys: -1}", "max_keys"),
    ("{max_keys: 2000000}", "max_keys"), ("{max_key: 5}", "max_key"), ("true", "deny_cache"),
])
def test_wrong_settings_are_refused(tmp_path, setting, wrong):
    path = tmp_path / "wrong.yaml"
    path.write_text(f"store: {{type: redis, redis: {{addresses: [localhost], deny_cache: {setting}}}}}\n{POLICIES}")
    code, _, said = run_ratelimitd("--check-config", "-c", path)
    assert code == 3 and wrong in said


# ---- admitted units ----


def flood(clients, questions, n):
    """Each client pipelines rounds of n random `questions`. Returns the admitted units by key."""
    dice, admitted = random.Random(7), {}
    asked = [[dice.choice(questions) for _ in range(n)] for _ in clients]
    for client, mine in zip(clients, asked):
        for question in mine:
            client.send("check", *question)
    for client, mine in zip(clients, asked):
        answers = {}
        for _ in mine:
            _, msgid, error, result = client.recv()
            assert error is None and result["source"] in ("redis", "deny_cache")
            answers[msgid] = result
        for msgid, (_, key, cost) in zip(sorted(answers), mine):
            if answers[msgid]["allowed"]:
                admitted[key] = admitted.get(key, 0) + cost
    return admitted


@pytest.mark.parametrize("options, n_daemons, n_keys", [(LONG, 2, 200), ({}, 2, 1), (OFF, 1, 200)],
                         ids=["cache", "defaults, one key", "none"])
def test_exactly_the_limit_is_admitted(redis, ratelimitd, connect, options, n_daemons, n_keys):
    """For any mix of costs: if no units come back during the test, the number of admitted units is exact."""
    daemons = [ratelimitd(POLICIES, redis=redis, redis_options=options) for _ in range(n_daemons)]
    clients = [connect(daemon) for daemon in daemons for _ in range(2)]
    for policy in ("window", "first", "bucket", "log", "counter"):
        questions = [(policy, f"k{key}", cost) for key in range(n_keys) for cost in (1, 1, 2, 3)]
        total = {}
        for _ in range(4):
            for key, units in flood(clients, questions, 100 + 4 * n_keys).items():
                total[key] = total.get(key, 0) + units
        for key in range(n_keys):
            client, name = clients[key % len(clients)], f"k{key}"
            total[name] = total.get(name, 0) + client.check(policy, name, {"at_most": 5}).get("granted", 0)
        assert total == {f"k{key}": 5 for key in range(n_keys)}, policy
    cached = sum(connect(daemon).call("stats")["denied_from_cache"] for daemon in daemons)
    assert (cached > 0) == (options is not OFF)


def test_what_refills_is_admitted_as_it_refills(redis, ratelimitd, connect):
    """50 units a second: the admitted and the remaining units add up to the refill by Redis' own clock."""
    clients = [connect(ratelimitd(POLICIES, redis=redis, redis_options=LONG)) for _ in range(2)]
    clock = redis.client()

    def now():
        seconds, micros = clock.time()
        return seconds + micros / 1e6

    before = now()
    assert clients[0].check("quick", "k", 500)["allowed"]
    began, admitted = now(), 0
    while now() < began + 1.5:
        admitted += flood(clients, [("quick", "k", 1), ("quick", "k", 2)], 20).get("k", 0)
    asked = now()
    left = clients[0].remaining("quick", "k")
    ended = now()
    assert 50 * (asked - began) - 1 <= admitted + left <= 50 * (ended - before) + 1
    assert left <= 25 + 50 * (ended - began - 1.5)  # the refill of half a second: no client was denied longer than necessary


def test_ratelimitctl_shows_the_source_of_a_denial(daemon, client):
    use_up(client, "window", "k")
    done = daemon.ctl("check", "window", "k")
    assert done.returncode == 1 and "retry in" in done.stdout and "[deny_cache]" in done.stdout
    assert "denied_from_cache" in daemon.ctl("stats", "--all").stdout
