"""test_limits_of_values.py: the smallest and largest settings, costs and times; clocks that jump; limits that change while a
state exists; keys with foreign values. Through the socket, on the memory store and on Redis."""

import re
import subprocess

import pytest
from harness import RpcError, algorithms, program, stored_keys

NOW = 1_700_000_000_000_000  # us
DAY_MS = 86_400_000
SHAPES = {name: settings for name, settings in algorithms().items() if name != "calendar_window"}
BUCKETS = ("token_bucket", "leaky_bucket")
every = pytest.mark.parametrize("algorithm", SHAPES)


def policy(algorithm, limit, window, more="", name=None):
    return f"  {name or algorithm}: {{{SHAPES[algorithm]}, limit: {limit}, window: {window}{more}}}\n"


def policies(limit, window, more=""):
    """One of each algorithm, by its name."""
    return "policies:\n" + "".join(policy(algorithm, limit, window, more) for algorithm in SHAPES)


@pytest.fixture
def serve(any_store, ratelimitd, connect):
    """serve(config) -> a client of a daemon on any store, in real time."""
    def start(config):
        config = "defaults: {deadline: 9s, on_failure: error}\n" + config
        start.daemon = ratelimitd(config, redis=any_store)
        return connect(start.daemon)

    start.redis = any_store
    return start


@pytest.fixture
def timed(ratelimitd, connect):
    """timed(config) -> a client whose clock() moves the limits' time."""
    def start(config):
        start.daemon = ratelimitd(config, arguments=["--test-clock"])
        client = connect(start.daemon)
        client.clock = lambda now_us: client.call("test_clock", now_us)
        client.clock(NOW)
        return client

    return start


def fields(answer, *names):
    return tuple(answer[name] for name in names)


# ---- zero, and too much -------------------------------------------------------------------------------------------


@every
def test_a_limit_of_0_always_denies_and_never_has_a_retry_time(algorithm, serve):
    client = serve(policies(0, "1d"))
    for method in ("check", "peek", "check"):
        answer = client.call(method, algorithm, "k", 1)
        assert fields(answer, "allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms") == (False, 0, 0, -1, 0)
    assert client.check(algorithm, "k", 0)["allowed"]
    if serve.redis:
        with serve.redis.client() as admin:
            assert not stored_keys(admin)


@every
def test_a_cost_above_the_capacity_is_never_and_charges_nothing(algorithm, serve):
    client = serve(policies(5, "5000d"))
    for cost in (6, 7, 10**6, 2**53 - 1):
        for method in ("check", "peek"):
            assert fields(client.call(method, algorithm, "k", cost), "allowed", "retry_after_ms", "remaining") == (False, -1, 5)
    assert fields(client.check(algorithm, "k", 5), "allowed", "remaining") == (True, 0)
    assert fields(client.check(algorithm, "k", 6), "allowed", "retry_after_ms") == (False, -1)


@pytest.mark.parametrize("algorithm", BUCKETS)
def test_a_cost_above_the_burst_is_never_even_where_the_limit_is_larger(algorithm, serve):
    client = serve("policies:\n" + policy(algorithm, 100, "5000d", ", burst: 5"))
    assert fields(client.check(algorithm, "k", 6), "allowed", "limit", "retry_after_ms") == (False, 5, -1)
    assert client.check(algorithm, "k", 5)["allowed"]


def test_a_leaky_buckets_wait_makes_no_room_for_a_cost_above_the_burst(serve):
    client = serve("policies:\n" + policy("leaky_bucket", 100, "1s", ", burst: 5, max_wait: 1h"))
    assert fields(client.check("leaky_bucket", "k", 6), "allowed", "retry_after_ms") == (False, -1)


# ---- what a double cannot count -----------------------------------------------------------------------------------

# (algorithm, settings with {} for the value that is too large, its unit, a value far too large)
TOO_LARGE = [
    ("fixed_window", "limit: {}, window: 1s", "", 2**34 + 1),
    ("fixed_window", "limit: {}, window: 1s", "", 2**52),
    ("first_hit", "limit: {}, window: 1s", "", 2**33),
    ("sliding_log", "limit: {}, window: 1s", "", 10**6),
    ("sliding_log", "limit: {}, window: 1s", "", 2**40),
    ("sliding_counter", "limit: {}, window: 1000d", "", 2**40),
    ("sliding_counter", "limit: {}, window: 1ms, debt: true", "", 2**40),
    ("first_hit", "limit: {}, window: 1s", "", 2**40),
    ("first_hit", "limit: {}, window: 1s, debt: true", "", 2**40),
    ("token_bucket", "limit: 999983, window: 1000d, burst: {}, debt: true", "", 10**6),
    ("sliding_counter", "limit: {}, window: 1000d", "", 10**9),
    ("sliding_counter", "limit: {}, window: 1ms", "", 2**33),
    ("token_bucket", "limit: {}, window: 1s, burst: 5", "", 2**40),
    ("token_bucket", "limit: 999983, window: 1000d, burst: {}", "", 10**6),
    ("token_bucket", "limit: 1, window: 365d, burst: {}", "", 10**6),
    ("leaky_bucket", "limit: 999983, window: 1000d, burst: {}", "", 10**6),
    ("leaky_bucket", "limit: 7, window: 1s, max_wait: {}", "us", 10**16),
    ("leaky_bucket", "limit: 999983, window: 1000d, burst: 10, max_wait: {}", "us", 10**15),
    ("fixed_window", "limit: 5, window: {}", "d", 20_000),
    ("sliding_counter", "limit: 5, window: {}", "d", 20_000),
    ("token_bucket", "limit: 5, window: {}", "d", 20_000),
]


def checked(tmp_path, algorithm, settings):
    """The output of --check-config for one policy with these settings; empty if it is correct."""
    path = tmp_path / "c.yaml"
    path.write_text(f"policies:\n  p: {{{SHAPES[algorithm]}, {settings}}}\n")
    done = subprocess.run([program("ratelimitd"), "--check-config", "-c", str(path)], capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("algorithm, settings, unit, value", TOO_LARGE)
def test_what_cannot_be_counted_exactly_is_refused_with_the_largest_that_can(tmp_path, algorithm, settings, unit, value):
    refused = checked(tmp_path, algorithm, settings.format(f"{value}{unit}"))
    named = re.search(rf"(?:\bto|at most) (\d+){unit}\b", refused)
    assert named, refused
    largest = int(named.group(1))
    assert largest < value
    assert checked(tmp_path, algorithm, settings.format(f"{largest}{unit}")) == "", "the largest value in the message is refused too"
    assert checked(tmp_path, algorithm, settings.format(f"{largest + 1}{unit}")), "a larger one is as good"


def test_a_window_too_long_for_any_burst_with_debt_is_refused_as_such(tmp_path):
    refused = checked(tmp_path, "token_bucket", "limit: 1, window: 11574d, debt: true")
    assert "window: is too long for a bucket with debt" in refused
    assert checked(tmp_path, "token_bucket", "limit: 1, window: 11574d") == ""
    assert checked(tmp_path, "token_bucket", "limit: 1, window: 5787d, debt: true") == ""


@pytest.mark.parametrize("value", [2**53, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("setting", ["limit", "burst"])
def test_a_number_beyond_every_range_is_refused_by_its_name(tmp_path, setting, value):
    other = {"limit": "window: 1s", "burst": "limit: 5, window: 1s"}[setting]
    assert re.search(rf"\b{setting}\b", checked(tmp_path, "token_bucket", f"{setting}: {value}, {other}"))


# The largest values that the messages of TOO_LARGE name, and their exact behaviour.
LARGEST = [
    ("fixed_window", 2**34, "5000d"),
    ("first_hit", 2**32 - 1, "5000d"),
    ("sliding_counter", 2**32 - 1, "1000s"),
    ("sliding_counter", (2**53 - 1) // (5000 * DAY_MS), "5000d"),
    ("sliding_log", 10_000, "5000d"),
    ("token_bucket", 4_320_000, "5000d"),  # one unit comes back every hundred seconds
    ("leaky_bucket", 4_320_000, "5000d"),
]


@pytest.mark.parametrize("algorithm, limit, window", LARGEST)
def test_the_largest_limits_count_to_the_unit(algorithm, limit, window, serve):
    client = serve("policies:\n" + policy(algorithm, limit, window))
    step = min(limit // 2, 1000 if algorithm == "sliding_log" else limit)
    assert fields(client.check(algorithm, "k", 1), "allowed", "remaining") == (True, limit - 1)
    left = limit - 1
    while left > step:
        left -= step
        assert fields(client.check(algorithm, "k", step), "allowed", "remaining") == (True, left)
    assert not client.check(algorithm, "k", left + 1)["allowed"]
    assert fields(client.check(algorithm, "k", left), "allowed", "remaining") == (True, 0)
    assert not client.check(algorithm, "k", 1)["allowed"]


def test_a_cost_that_a_log_cannot_store_at_once_is_refused_with_the_largest(serve):
    client = serve("policies:\n" + policy("sliding_log", 5000, "1d"))
    with pytest.raises(RpcError) as refused:
        client.check("sliding_log", "k", 1001)
    assert refused.value.code == "BAD_COST" and "1000" in refused.value.message
    assert client.check("sliding_log", "k", 1000)["remaining"] == 4000


# ---- slow and fast ------------------------------------------------------------------------------------------------


@every
def test_one_per_year(algorithm, timed):
    client = timed(policies(1, "365d"))
    assert fields(client.check(algorithm, "k"), "allowed", "remaining") == (True, 0)
    denied = client.check(algorithm, "k")
    assert not denied["allowed"] and 0 < denied["retry_after_ms"] <= 2 * 365 * DAY_MS
    if algorithm in ("token_bucket", "leaky_bucket", "first_hit", "sliding_log"):
        assert denied["retry_after_ms"] == 365 * DAY_MS
    client.clock(NOW + (denied["retry_after_ms"] - 1) * 1000)
    assert not client.check(algorithm, "k")["allowed"]
    client.clock(NOW + denied["retry_after_ms"] * 1000)
    assert client.check(algorithm, "k")["allowed"]


@every
def test_one_per_year_in_real_time(algorithm, serve):
    client = serve(policies(1, "365d"))
    assert client.check(algorithm, "k")["allowed"]
    denied = client.check(algorithm, "k")
    assert not denied["allowed"] and 0 < denied["retry_after_ms"] <= 2 * 365 * DAY_MS
    if serve.redis:
        with serve.redis.client() as admin:
            assert all(admin.pttl(key) >= denied["retry_after_ms"] - 10_000 for key in stored_keys(admin))


@every
def test_a_million_per_second(algorithm, timed):
    limit = 10_000 if algorithm == "sliding_log" else 1_000_000
    largest = min(limit, 1000) if algorithm == "sliding_log" else limit
    client = timed("policies:\n" + policy(algorithm, limit, "1s"))
    for _ in range(limit // largest):
        assert client.check(algorithm, "k", largest)["allowed"]
    denied = client.check(algorithm, "k")
    assert not denied["allowed"] and denied["remaining"] == 0
    assert denied["retry_after_ms"] == {"token_bucket": 1, "leaky_bucket": 1, "sliding_counter": 1001}.get(algorithm, 1000)
    client.clock(NOW + 1)
    assert client.check(algorithm, "k")["allowed"] == (algorithm in BUCKETS)  # one unit comes back each microsecond
    client.clock(NOW + denied["retry_after_ms"] * 1000)
    assert client.check(algorithm, "k")["allowed"]


@every
def test_a_million_per_second_in_real_time(algorithm, serve):
    limit = 1000 if algorithm == "sliding_log" else 1_000_000
    client = serve("policies:\n" + policy(algorithm, limit, "1s"))
    assert client.check(algorithm, "k", limit)["allowed"]
    assert client.check(algorithm, "k", limit + 1)["retry_after_ms"] == -1


@every
def test_a_window_of_a_millisecond(algorithm, timed):
    client = timed(policies(3, "1ms"))
    for ms in range(0, 40, 4):
        client.clock(NOW + ms * 1000)
        assert client.check(algorithm, "k", 3)["allowed"]
        denied = client.check(algorithm, "k", 3)
        assert not denied["allowed"]
        assert denied["retry_after_ms"] == (2 if algorithm == "sliding_counter" else 1)  # the share of the previous window
        client.clock(NOW + (ms + denied["retry_after_ms"]) * 1000)
        assert client.call("peek", algorithm, "k", 3)["allowed"]


@every
def test_a_window_of_a_millisecond_in_real_time_leaves_no_key_for_ever(algorithm, serve):
    client = serve(policies(3, "1ms"))
    for n in range(50):
        assert client.check(algorithm, f"k{n}", 3)["allowed"]
    if serve.redis:
        with serve.redis.client() as admin:
            assert all(admin.pttl(key) != -1 for key in stored_keys(admin))


# ---- clocks that jump ---------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("back_s", [1, 59, 60, 61, 3600, 10**8])
def test_a_clock_that_steps_back_never_locks_a_key_out_for_longer_than_its_windows(algorithm, back_s, timed):
    client = timed(policies(5, "1m"))
    client.check(algorithm, "k", 5)
    earlier = NOW - back_s * 1_000_000
    client.clock(earlier)
    answer = client.check(algorithm, "k")
    longest = 120_000 if algorithm == "sliding_counter" else 60_000
    assert answer["allowed"] or 0 < answer["retry_after_ms"] <= longest
    client.clock(earlier + answer["retry_after_ms"] * 1000)
    assert client.check(algorithm, "k")["allowed"]


@every
def test_a_clock_that_jumps_ahead_makes_all_whole(algorithm, timed):
    client = timed(policies(5, "1m"))
    client.check(algorithm, "k", 5)
    client.clock(NOW + 2 * 60_000_000)
    assert client.call("peek", algorithm, "k", 5)["allowed"]
    client.clock(NOW + 3650 * DAY_MS * 1000)
    assert fields(client.check(algorithm, "k", 5), "allowed", "remaining") == (True, 0)


# ---- limits that change -------------------------------------------------------------------------------------------

# 8 of 10 per window are used at one moment just after a window's edge. Then the limit becomes 5, or 20. Windows and the log
# keep the count; a bucket keeps the time at which it is full again: 8 of 10 are 0.8 windows, 4 of 5 and 16 of 20.
REMAINING = {5: dict.fromkeys(SHAPES, 0) | dict.fromkeys(BUCKETS, 1), 20: dict.fromkeys(SHAPES, 12) | dict.fromkeys(BUCKETS, 4)}


def change(start, config):
    start.daemon.configure(config)
    start.daemon.reload()
    start.daemon.wait_for_log("reload: .* read again")


@every
@pytest.mark.parametrize("limit", REMAINING)
def test_a_changed_limit_takes_effect_on_the_state_there_is(algorithm, limit, serve):
    client = serve(policies(10, "5000d"))
    assert client.check(algorithm, "k", 8)["remaining"] == 2
    change(serve, "defaults: {deadline: 9s, on_failure: error}\n" + policies(limit, "5000d"))
    remaining = REMAINING[limit][algorithm]
    assert fields(client.call("peek", algorithm, "k", 0), "limit", "remaining") == (limit, remaining)
    if remaining:
        assert client.check(algorithm, "k", remaining)["allowed"]
    denied = client.check(algorithm, "k")
    assert not denied["allowed"] and denied["retry_after_ms"] > 0


LATER_ZERO = {**{name: f"{shape}, limit: LIMIT, window: 5000d" for name, shape in SHAPES.items()},
              "calendar": "algorithm: calendar_window, limit: LIMIT, window: year",
              "slots": "algorithm: concurrency, limit: LIMIT",
              "foreign": "compat: rlaas-sliding, limit: LIMIT, window: 100d",
              "one": "algorithm: gcra, limit: 9, window: 5000d, overrides: [{key: k, limit: LIMIT}]"}


def test_a_reset_forgets_units_used_before_the_limit_was_0(serve):
    """Earlier it did not ask the store, and the used units came back with the next limit."""
    header = "defaults: {deadline: 9s, on_failure: error}\n"
    text = "policies:\n" + "".join(f"  {name}: {{{it}}}\n" for name, it in LATER_ZERO.items())
    client = serve(text.replace("LIMIT", "9"))
    for name in LATER_ZERO:
        assert client.call("acquire" if name == "slots" else "check", name, "k")["remaining"] == 8
    change(serve, header + text.replace("LIMIT", "0"))
    for name in LATER_ZERO:
        assert fields(client.call("peek", name, "k", 1), "allowed", "retry_after_ms") == (False, -1)
        assert client.call("reset", name, "k") == {"removed": True}
        assert client.call("reset", name, "k") == {"removed": False}
    serve.daemon.log.clear()
    change(serve, header + text.replace("LIMIT", "9"))
    assert [client.remaining(name, "k") for name in LATER_ZERO] == [9] * len(LATER_ZERO)


def most_in_a_window(times, length):
    return max(sum(at <= other < at + length for other in times) for at in times)


@every
@pytest.mark.parametrize("before, after", [(20, 5), (5, 20), (1000, 3), (7, 6)])
def test_after_a_change_no_window_holds_more_than_the_new_limits_own_bound(algorithm, before, after, timed):
    window_us, tick_us = 60_000_000, 500_000
    client = timed(policies(before, "1m"))
    start = -(-NOW // window_us) * window_us - 10 * tick_us  # the change comes just before a window's edge
    for n in range(20):
        client.clock(start + n * tick_us // 2)
        client.check(algorithm, "k", 1 if before < 100 else 25)
    change(timed, policies(after, "1m"))
    admitted = []
    for n in range(20, 520):
        client.clock(start + n * tick_us // 2)
        while client.check(algorithm, "k")["allowed"]:
            admitted.append(start + n * tick_us // 2)
    bound = {"sliding_log": after, "fixed_window": 2 * after}.get(algorithm, 2 * after - 1)
    assert admitted and most_in_a_window(admitted, window_us) <= bound


# ---- existing values ----------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("foreign", ["hash", "set", "zset", "list", "string"])
def test_a_key_of_another_type_gets_the_failure_answer_alone_and_is_counted(algorithm, foreign, ratelimitd, connect, redis):
    if foreign == ("list" if algorithm == "sliding_log" else "string"):
        pytest.skip("its own type")
    config = "defaults: {deadline: 9s}\npolicies:\n" + "".join(policy(algorithm, 5, "5000d", f", on_failure: {answer}", answer)
                                                              for answer in ("allow", "deny", "local", "error"))
    client = connect(ratelimitd(config, redis=redis))
    with redis.client() as admin:
        for name in ("allow", "deny", "local", "error"):
            client.check(name, "bad")
        for key in admin.keys("*:bad"):
            admin.delete(key)
            {"hash": lambda k: admin.hset(k, "f", "v"), "set": lambda k: admin.sadd(k, "m"),
             "zset": lambda k: admin.zadd(k, {"m": 1}), "list": lambda k: admin.rpush(k, "x"),
             "string": lambda k: admin.set(k, "x")}[foreign](key)
        before, dumps = client.call("stats")["redis_bad_values"], {key: admin.dump(key) for key in admin.keys("*:bad")}
        assert len(dumps) == 4
        ids = {(name, key): client.send("check", name, key) for name in ("allow", "deny", "local") for key in ("good", "bad")}
        answers = {asked: client.answer(msgid) for asked, msgid in ids.items()}
        for name, allowed in (("allow", True), ("deny", False), ("local", True)):
            assert fields(answers[name, "bad"], "allowed", "source", "reason") == (allowed, name, "store_error")
            assert fields(answers[name, "good"], "allowed", "source", "remaining") == (True, "redis", 4)
        for method in ("check", "peek"):
            with pytest.raises(RpcError) as error:
                client.call(method, "error", "bad")
            assert error.value.code == "STORE_UNAVAILABLE" and "another type" in error.value.message
        assert client.call("stats")["redis_bad_values"] >= before + 5
        assert {key: admin.dump(key) for key in admin.keys("*:bad")} == dumps
