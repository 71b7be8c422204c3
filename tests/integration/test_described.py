"""test_described.py: decisions with the description of their limit (hello {describe: true}), through the socket."""

import signal

import pytest
from harness import RpcError, eventually

POLICIES = """
inline: {allow: true}
defaults: {deadline: 10s}
policies:
  login: {algorithm: fixed_window, start: first_hit, limit: 5, window: 1d}
  api: {algorithm: token_bucket, limit: 100, window: 1m, burst: 20}
  fine: {algorithm: token_bucket, limit: 100, window: 1500us}
  none: {algorithm: token_bucket, limit: 0, window: 1h}
  log: {algorithm: sliding_log, limit: 3, window: 10m}
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 1m}
  free: {unlimited: true}
  trial: {algorithm: fixed_window, limit: 1, window: 1h, shadow: true}
  dark:
    shadow: true
    limits:
      - {name: never, algorithm: calendar_window, limit: 0, window: month, timezone: Europe/Berlin}
      - {name: hour, algorithm: fixed_window, limit: 5, window: 1h}
  tried:
    algorithm: fixed_window
    limit: 50
    window: 1d
    candidate: [{name: day, algorithm: sliding_log, limit: 5, window: 12h}]
  search:
    limits:
      - {name: second, algorithm: token_bucket, limit: 2, window: 1s}
      - {name: day, algorithm: fixed_window, start: first_hit, limit: 5, window: 1d}
    overrides:
      - {key: vip, limit: {day: 50}}
      - {match: "free*", unlimited: true}
  month: {algorithm: calendar_window, limit: 5, window: month, timezone: Europe/Berlin}
  old: {compat: first-hit, limit: 5, window: 10s}
"""
NAMES = ["of", "quota", "window_ms", "of_reset_ms"]
FIELDS = ["allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "delay_ms", "granted", "bound_by",
          "source", "reason", "policy_version"]
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
START_US = 1_711_846_800 * 10**6  # 2024-03-31T01:00Z, as the clocks of Berlin are set forward


def described(answer):
    """The four fields; None if the answer has none of them."""
    found = [answer[name] for name in NAMES if name in answer]
    assert len(found) in (0, 4), answer
    return tuple(found) or None


@pytest.fixture
def client(ratelimitd, connect):
    """On the memory store, under the test clock."""
    client = connect(ratelimitd(POLICIES.replace("  old:", "  # "), arguments=["--test-clock"]))
    client.call("test_clock", START_US)
    client.call("hello", {"describe": True})
    return client


# The answer to hello


def test_hello_turns_it_on_and_off_for_this_connection_alone(ratelimitd, connect):
    daemon = ratelimitd("policies:\n  login: {algorithm: fixed_window, limit: 5, window: 1d}\n")
    client, other = connect(daemon), connect(daemon)
    assert client.call("hello")["fields"] == FIELDS
    assert client.call("hello", {"describe": True})["fields"] == FIELDS + NAMES
    assert client.call("hello", {"decision": "array"})["fields"] == FIELDS + NAMES  # without the option it stays
    assert client.check("login", "a")[11:13] == ["login", 5]
    assert client.call("hello", {"describe": False})["fields"] == FIELDS
    assert len(client.check("login", "a")) == 11
    assert client.call("hello", {"describe": True, "decision": "map"})["fields"] == FIELDS + NAMES
    assert client.check("login", "a")["of"] == "login"
    assert described(other.check("login", "a")) is None and other.call("hello")["fields"] == FIELDS


@pytest.mark.parametrize("options, words", [
    ({"describe": 1}, "describe: must be true or false"), ({"describe": "yes"}, "describe: must be true or false"),
    ({"describe": None}, "describe: must be true or false"), ({"descrbe": True}, "did you mean 'describe'"),
    ({"decision": "array", "describe": 0}, "describe: must be true or false"),
    ({"describe": True, "decision": "list"}, 'decision: must be "map" or "array"')])
def test_what_is_refused_changes_nothing(client, options, words):
    with pytest.raises(RpcError, match=words):
        client.call("hello", options)
    assert client.call("hello")["fields"] == FIELDS + NAMES
    assert isinstance(client.check("login", "a"), dict)


def test_it_is_an_option_of_hello_only(client):
    with pytest.raises(RpcError, match="there is no option 'describe'"):
        client.check("login", "a", {"describe": True})


# Which limit


def test_the_only_limit_goes_by_the_name_of_its_policy(client):
    answer = client.check("login", "a")
    assert list(answer)[-4:] == NAMES
    assert described(answer) == ("login", 5, DAY_MS, DAY_MS)
    client.check("login", "a", 4)
    denied = client.check("login", "a")
    assert not denied["allowed"] and "bound_by" not in denied and described(denied) == ("login", 5, DAY_MS, DAY_MS)


def test_the_quota_is_no_burst(client):
    answer = client.check("api", "a", 10)
    assert answer["limit"] == 20 and described(answer) == ("api", 100, MINUTE_MS, 6000)
    assert described(client.check("api", "a", 21)) == ("api", 100, MINUTE_MS, 6000)
    assert described(client.check("fine", "a")) == ("fine", 100, 2, 1)


def test_of_several_limits_the_one_with_the_least_left_or_the_one_that_denied(client):
    answer = client.check("search", "a")
    assert answer["remaining"] == 1 and answer["reset_after_ms"] == DAY_MS
    assert described(answer) == ("search/second", 2, SECOND_MS, 500)
    assert described(client.check("search", "a", 2)) == ("search/second", 2, SECOND_MS, 500)
    client.call("test_clock", START_US + 10**6)
    client.check("search", "a", 2)
    client.call("test_clock", START_US + 2 * 10**6)
    client.check("search", "a", 2)
    denied = client.check("search", "a", 2)
    assert denied["bound_by"] == "search/day" and described(denied) == ("search/day", 5, DAY_MS, DAY_MS - 2000)


def test_an_override_has_its_own_quota(client):
    client.check("search", "vip", 2)
    client.call("test_clock", START_US + 10**6)
    denied = client.check("search", "vip", 3)
    assert described(denied) == ("search/second", 2, SECOND_MS, 0)
    client.call("hello", {"decision": "array"})
    for at in range(2, 26):
        client.call("test_clock", START_US + at * 10**6)
        client.check("search", "vip", 2)
    assert client.call("peek", "search", "vip", 2)[11:] == ["search/day", 50, DAY_MS, DAY_MS - 25000]


def test_a_calendar_window_is_as_long_as_it_is(client):
    reset_ms = 24 * 3_600_000 - 3 * 3_600_000  # of the 31st, which is an hour shorter
    assert described(client.check("month", "a")) == ("month", 5, 31 * DAY_MS - HOUR_MS, reset_ms)
    client.call("test_clock", START_US + reset_ms * 1000)
    assert described(client.check("month", "a")) == ("month", 5, 30 * DAY_MS, 30 * DAY_MS)
    client.call("test_clock", START_US - 40 * DAY_MS * 1000)  # February of a leap year
    assert described(client.call("peek", "month", "b")) == ("month", 5, 29 * DAY_MS, 0)


def test_a_limit_of_0_is_described_without_asking_the_store(client):
    assert described(client.check("none", "a")) == ("none", 0, HOUR_MS, 0)
    assert described(client.check("none", "a", 0)) == ("none", 0, HOUR_MS, 0)
    answer = client.check("dark", "a")
    assert answer["shadow_denied"] and described(answer) == ("dark/never", 0, 31 * DAY_MS - HOUR_MS, 0)


def test_a_shadow_policy_describes_the_limit_that_would_have_denied(client):
    client.check("trial", "a")
    answer = client.check("trial", "a")
    assert answer["allowed"] and answer["shadow_denied"] and described(answer)[:3] == ("trial", 1, HOUR_MS)


def test_what_is_unlimited_is_not_described(client):
    assert described(client.check("free", "a")) is None and described(client.check("search", "free1")) is None
    client.call("hello", {"decision": "array"})
    assert client.check("free", "a")[-4:] == [None] * 4


def test_slots_have_no_window(client):
    first = client.call("acquire", "jobs", "a")
    assert described(first) == ("jobs", 2, 0, MINUTE_MS)
    client.call("hello", {"decision": "array"})
    second = client.call("acquire", "jobs", "a")
    assert len(second) == 16 and second[11:15] == ["jobs", 2, 0, MINUTE_MS] and set(second[15]) == {"slot"}
    assert client.call("acquire", "jobs", "a")[11:] == ["jobs", 2, 0, MINUTE_MS]


def test_every_method_that_answers_a_decision_describes_it(client):
    login = ("login", 5, DAY_MS, DAY_MS)
    assert described(client.call("peek", "login", "a", 1)) == login
    assert described(client.call("reserve", "login", "a", 3)) == login
    held = client.call("reserve", "login", "b", 3)
    assert described(client.call("settle", held["reservation"], 2)) == login
    held = client.call("reserve", "login", "c", 3)
    assert described(client.call("cancel", held["reservation"])) == ("login", 5, DAY_MS, 0)
    client.check("login", "d", 3)
    refunded = client.call("refund", "login", "d", 1)
    assert refunded["refunded"] == 1 and described(refunded) == login
    assert described(client.call("refund", "search/day", "e", 1)) == ("search/day", 5, DAY_MS, 0)
    assert [described(one) for one in client.call("check_many", [["login", "f"], ["free", "f"], ["none", "f"]])] == [
        login, None, ("none", 0, HOUR_MS, 0)]
    many = client.call("check_many", [["login", f"g{i}"] for i in range(200)])
    assert {described(one) for one in many} == {login}
    assert described(client.call("settle", client.call("reserve", "free", "a", 1)["reservation"], 1)) is None


def test_explain_describes_the_decision_and_the_candidates(client):
    answer = client.call("explain", "tried", "a", 6)
    assert described(answer)[:3] == ("tried", 50, DAY_MS)
    assert described(answer["candidate"]) == ("tried/day", 5, 12 * HOUR_MS, 0)
    assert all("of" not in limit for limit in answer["limits"])


def test_inline_policies_are_described_by_the_name_that_they_have(client):
    settings = {"algorithm": "sliding_log", "limit": 3, "window": "1m"}
    answer = client.check(settings, "a")
    name = client.call("explain", settings, "a")["policy"]
    assert name.startswith("inline-") and described(answer) == (name, 3, MINUTE_MS, MINUTE_MS)
    settings = {"limits": [{"name": "one", **settings}, {"name": "two", **settings, "limit": 1}]}
    assert described(client.check(settings, "a"))[0].endswith("/two")


# Several at once


def test_check_all_speaks_of_one_limit_of_one_member(client):
    answer = client.call("check_all", [["login", "a"], ["search", "b"], ["free", "c"]])
    assert described(answer) == ("search/second", 2, SECOND_MS, 500)
    assert [described(member) for member in answer["members"]] == [
        ("login", 5, DAY_MS, DAY_MS), ("search/second", 2, SECOND_MS, 500), None]
    answer = client.call("check_all", [["search", "c"], ["login", "a", 6]])
    assert answer["bound_by"] == "login" and described(answer) == ("login", 5, DAY_MS, DAY_MS)
    assert described(answer["members"][0]) == ("search/second", 2, SECOND_MS, 0)
    assert described(client.call("check_all", [["free", "a"]])) is None


def test_a_limit_of_0_in_check_all(client):
    answer = client.call("check_all", [["search", "c"], ["none", "a"], ["free", "b"]])
    assert answer["bound_by"] == "none" and described(answer) == ("none", 0, HOUR_MS, 0)
    assert [described(member) for member in answer["members"]] == [
        ("search/second", 2, SECOND_MS, 0), ("none", 0, HOUR_MS, 0), None]


def test_the_array_form_of_check_all(client):
    client.call("hello", {"decision": "array"})
    answer = client.call("check_all", [["login", "a"], ["none", "a", 0]])
    assert len(answer) == 16 and answer[11:15] == ["none", 0, HOUR_MS, 0]
    assert [member[11:] for member in answer[15]["members"]] == [["login", 5, DAY_MS, DAY_MS], ["none", 0, HOUR_MS, 0]]


# On every store


def test_a_compat_policy_on_redis(redis, ratelimitd, connect):
    client = connect(ratelimitd(POLICIES, redis=redis))
    client.call("hello", {"describe": True})
    answer = client.check("old", "a")
    assert described(answer) == ("old", 5, 10_000, answer["reset_after_ms"])


def test_a_remembered_denial_is_described_too(redis, ratelimitd, connect):
    client = connect(ratelimitd(POLICIES, redis=redis, redis_options={"deny_cache": "{max_age: 1m}"}))
    client.call("hello", {"describe": True})
    client.check("login", "a", 5)
    for source in ("redis", "deny_cache"):
        denied = client.check("login", "a")
        assert denied["source"] == source and described(denied) == ("login", 5, DAY_MS, denied["reset_after_ms"])


def test_the_same_request_again_is_described_as_then_or_as_now(any_store, ratelimitd, connect):
    daemon = ratelimitd(POLICIES, redis=any_store)
    client = connect(daemon)
    client.call("hello", {"describe": True})
    first = client.check("login", "a", {"request_id": "x"})
    assert described(first) == ("login", 5, DAY_MS, DAY_MS)
    client.check("login", "a")
    assert client.check("login", "a", {"request_id": "x"}) == first
    daemon.configure(POLICIES.replace("limit: 5, window: 1d}", "limit: 7, window: 1d}"))
    daemon.reload()
    eventually(lambda: described(client.call("peek", "login", "b"))[1] == 7, "the reload")
    again = client.check("login", "a", {"request_id": "x"})
    assert again["remaining"] == 5 and described(again) == ("login", 7, DAY_MS, again["reset_after_ms"])


def test_a_slot_that_is_asked_for_again_is_described_after_a_reload(any_store, ratelimitd, connect):
    """By then, the policies of its answer are gone."""
    daemon = ratelimitd(POLICIES, redis=any_store)
    client = connect(daemon)
    client.call("hello", {"describe": True})
    first = client.call("acquire", "jobs", "a", {"request_id": "x"})
    assert described(first)[:3] == ("jobs", 2, 0)
    daemon.configure(POLICIES.replace("limit: 2, slot_ttl: 1m", "limit: 3, slot_ttl: 1m"))
    daemon.reload()
    eventually(lambda: described(client.call("acquire", "jobs", "a", {"request_id": "x"}))[1] == 3, "the slot's renewal")
    assert client.call("acquire", "jobs", "a", {"request_id": "x"})["slot"] == first["slot"]


def test_a_policy_that_goes_while_it_is_asked_is_still_named(redis, ratelimitd, connect):
    daemon = ratelimitd(POLICIES, redis=redis)
    client, other = connect(daemon), connect(daemon)
    client.call("hello", {"describe": True})
    client.check("search", "a")
    redis.signal(signal.SIGSTOP)
    asked = client.send("check", "search", "a", 3)
    daemon.configure("policies:\n  rest: {algorithm: fixed_window, limit: 1, window: 1d}\n")
    daemon.reload()
    eventually(lambda: [policy["name"] for policy in other.call("policies")] == ["rest"], "the reload")
    redis.signal(signal.SIGCONT)
    denied = client.answer(asked)
    assert denied["source"] == "redis" and denied["bound_by"] == "search/second"
    assert described(denied)[:3] == ("search/second", 2, SECOND_MS)


@pytest.mark.parametrize("on_failure", ["allow", "deny", "local"])
def test_failure_answers_are_not_described(redis, ratelimitd, connect, on_failure):
    policies = POLICIES.replace("defaults: {", f"defaults: {{on_failure: {on_failure}, ")
    client = connect(ratelimitd(policies, redis=redis))
    client.call("hello", {"describe": True})
    assert described(client.check("search", "a")) is not None
    held = client.call("reserve", "login", "a", 1)["reservation"]
    redis.stop()
    eventually(lambda: client.check("search", "a")["source"] == on_failure, "the failure answer")
    assert described(client.check("search", "a")) is None and described(client.check("search", "a", 3)) is None
    whole = client.call("check_all", [["search", "b"], ["login", "b"]])
    assert [described(one) for one in (whole, *whole["members"])] == [None] * 3
    reserved = client.call("reserve", "login", "c", 1)
    assert described(reserved) is None
    if reserved["allowed"]:
        assert described(client.call("settle", reserved["reservation"], 1)) is None
    assert described(client.check("none", "a")) == ("none", 0, HOUR_MS, 0)  # the policy decides, without the store
    with pytest.raises(RpcError, match="STORE_UNAVAILABLE"):
        client.call("settle", held, 1)
    client.call("hello", {"decision": "array"})
    assert client.check("search", "d")[11:] == [None] * 4
