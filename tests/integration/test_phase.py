"""test_phase.py: fixed windows that begin at a different moment for each key, through the socket."""

KEYS = [f"user-{n}" for n in range(40)]
POLICIES = """
defaults: {deadline: 5s}  # Redis is slow on a busy machine
policies:
  spread: {algorithm: fixed_window, limit: 5, window: 10h, phase: true}
  both:
    phase: true
    limits:
      - {name: hit, algorithm: fixed_window, start: first_hit, limit: 3, window: 1h}
      - {name: day, algorithm: fixed_window, limit: 2, window: 1d}
"""


def begins(policy, window_ms, key, fnv1a=14695981039346656037):
    """As defined in lua/ALGORITHMS.md."""
    for byte in f"fw1:{policy}:{key}".encode():
        fnv1a = (fnv1a ^ byte) * 1099511628211 % 2**64
    return fnv1a % window_ms


def test_resets_are_spread_and_reproducible(ratelimitd, connect):
    client = connect(ratelimitd(POLICIES, arguments=["--test-clock"]))
    client.call("test_clock", 4_000_000_000_000_000)
    resets = {key: client.check("spread", key)["reset_after_ms"] for key in KEYS}
    assert resets == {key: (begins("spread", 36_000_000, key) - 4_000_000_000_000) % 36_000_000 for key in KEYS}
    assert len(set(resets.values())) == len(KEYS)


def test_redis_and_a_daemon_started_later_agree(redis, ratelimitd, connect):
    counts = []
    for _ in range(2):
        daemon = ratelimitd(POLICIES, redis=redis)
        client = connect(daemon)
        with redis.client() as server:
            before = server.time()
            answers = [client.check("spread", key) for key in KEYS]
            after = server.time()
        before, after = (seconds * 1000 + micros // 1000 for seconds, micros in (before, after))
        for key, answer in zip(KEYS, answers):
            assert answer["source"] == "redis"
            edge = begins("spread", 36_000_000, key)
            assert any((now + answer["reset_after_ms"] - edge) % 36_000_000 == 0 for now in range(before, after + 1))
        counts.append([answer["remaining"] for answer in answers])
        daemon.stop()
    assert counts == [[4] * len(KEYS), [3] * len(KEYS)]


def test_phase_is_of_the_aligned_windows_of_a_policy(ratelimitd, connect):
    client = connect(ratelimitd(POLICIES, arguments=["--test-clock"]))
    limits = {p["name"]: p["limits"] for p in client.call("policies")}
    assert [limit.get("phase") for limit in limits["spread"] + limits["both"]] == [True, None, True]
    now = 4_000_000_000_000
    client.call("test_clock", now * 1000)
    edge = (begins("both/day", 86_400_000, "carol") - now) % 86_400_000
    answers = [client.check("both", "carol") for _ in range(3)]
    assert [answer["allowed"] for answer in answers] == [True, True, False]
    assert answers[2]["bound_by"] == "both/day" and answers[2]["retry_after_ms"] == edge
    client.call("test_clock", (now + edge) * 1000)
    assert client.check("both", "carol")["allowed"]
