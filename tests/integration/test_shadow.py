"""test_shadow.py: policies that deny nobody, and limits on trial next to enforced ones, through the socket."""

import signal

import pytest
from harness import RpcError, eventually, run_ratelimitd, some, stored_keys

CONFIG = """
defaults: {deadline: 5s}
policies:
  login: {algorithm: fixed_window, limit: 5, window: 1d}
  tried: {algorithm: fixed_window, limit: 2, window: 1d, shadow: true}
  never: {algorithm: fixed_window, limit: 0, window: 1d, shadow: true}
  strict: {algorithm: fixed_window, limit: 2, window: 1d, shadow: true, on_failure: error}
  closed: {algorithm: fixed_window, limit: 2, window: 1d, shadow: true, on_failure: deny}
  both:
    shadow: true
    limits:
      - {name: log, algorithm: sliding_log, limit: 3, window: 1d}
      - {name: day, algorithm: token_bucket, limit: 9, window: 1d}
"""


@pytest.fixture
def config():
    return CONFIG


@pytest.fixture
def client(any_store, config, ratelimitd, connect):
    client = connect(ratelimitd(config, redis=any_store))
    if any_store is not None:
        eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    return client


# Shadow policies

VERDICT = ("allowed", "shadow_denied", "remaining", "retry_after_ms", "granted", "bound_by")


def test_a_shadow_policy_never_denies_and_reports_shadow_denied(client):
    assert some(client.check("tried", "k"), *VERDICT) == (True, None, 1, 0, None, None)
    assert some(client.check("tried", "k", 2), *VERDICT) == (True, True, 1, 0, 0, None)
    assert some(client.check("tried", "k"), *VERDICT) == (True, None, 0, 0, None, None)
    assert some(client.check("tried", "k"), *VERDICT) == (True, True, 0, 0, 0, None)
    assert some(client.call("peek", "tried", "k", 1), *VERDICT) == (True, True, 0, 0, 0, None)
    assert some(client.call("peek", "tried", "k"), *VERDICT) == (True, None, 0, 0, None, None)
    assert some(client.check("never", "k"), "allowed", "shadow_denied", "limit") == (True, True, 0)
    stats = client.call("stats")
    assert some(stats, "allowed", "denied", "shadow_denied") == (stats["checks"], 0, 3)


def test_several_limits_in_shadow_are_all_or_none_too(client):
    client.check("both", "k", 2)
    assert some(client.check("both", "k", 2), *VERDICT) == (True, True, 1, 0, 0, None)
    assert some(client.check("both", "k"), *VERDICT) == (True, None, 0, 0, None, None)


def test_the_array_form_has_it_in_the_last_map(client):
    client.call("hello", {"decision": "array"})
    assert len(client.check("tried", "k", 2)) == 11
    denied = client.check("tried", "k")
    assert denied[0] is True and denied[6] == 0 and denied[11] == {"shadow_denied": True}


def test_each_of_check_many_speaks_for_itself(client):
    answers = client.call("check_many", [["tried", "k", 2], ["tried", "k"], ["login", "k"]])
    assert [some(a, "allowed", "shadow_denied") for a in answers] == [(True, None), (True, True), (True, None)]


def test_a_shadow_member_of_check_all_denies_nobody(client):
    client.check("tried", "k", 2)
    answer = client.call("check_all", [["tried", "k"], ["login", "k", 2], ["both", "k", 3]])
    assert some(answer, "allowed", "shadow_denied", "remaining", "granted", "limit") == (True, True, 3, None, 5)
    assert [some(m, "allowed", "shadow_denied", "remaining", "granted") for m in answer["members"]] == [
        (True, True, 0, 0), (True, None, 3, None), (True, None, 0, None)]
    assert answer["policy_version"] == answer["members"][1]["policy_version"]


def test_shadow_members_are_charged_whatever_the_others_say(client):
    client.check("login", "k", 5)
    answer = client.call("check_all", [["tried", "k"], ["login", "k"], ["login", "l"]])
    assert some(answer, "allowed", "shadow_denied", "bound_by") == (False, None, "login")
    assert [some(m, "allowed", "remaining", "granted") for m in answer["members"]] == [
        (True, 1, None), (False, 0, None), (True, 5, 0)]
    assert client.remaining("tried", "k") == 1
    assert client.remaining("login", "l") == 5


def test_check_all_of_shadow_members_alone_is_put_together_from_them(client):
    answer = client.call("check_all", [["tried", "k", 2], ["both", "k"]])
    assert some(answer, "allowed", "shadow_denied", "remaining", "granted") == (True, None, 0, None)
    answer = client.call("check_all", [["tried", "k"], ["both", "k"], ["never", "k"]], {"deadline_ms": 1000})
    assert some(answer, "allowed", "shadow_denied", "remaining", "granted", "bound_by") == (True, True, 0, 1, None)
    assert [m.get("shadow_denied") for m in answer["members"]] == [True, None, True]
    assert client.call("check_all", [["never", "k"]])["shadow_denied"]
    client.call("hello", {"decision": "array"})
    assert client.call("check_all", [["tried", "k"]])[11]["shadow_denied"] is True


def test_a_bad_member_refuses_shadow_members_too(client):
    for bad in (["nope", "k"], ["tried", "k"], ["login", ""]):
        with pytest.raises(RpcError):
            client.call("check_all", [["tried", "k"], ["login", "k"], bad])
    assert client.remaining("tried", "k") == 2
    assert client.call("stats")["inflight"] == 0


def test_policies_shows_shadow_policies(client):
    shadow = {policy["name"]: policy.get("shadow") for policy in client.call("policies")}
    assert shadow == {"login": None, "tried": True, "never": True, "strict": True, "closed": True, "both": True}


def test_without_redis_a_shadow_policy_denies_nobody(ratelimitd, redis, connect):
    redis.stop()
    client = connect(ratelimitd(CONFIG, redis=redis))
    assert some(client.check("strict", "k"), "allowed", "source", "reason", "shadow_denied") == (
        True, "allow", "down", None)
    assert some(client.check("closed", "k"), "allowed", "source", "reason", "shadow_denied") == (
        True, "deny", "down", True)
    for denied in (None, True):
        assert some(client.check("tried", "k", 2), "allowed", "source", "shadow_denied") == (True, "local", denied)
    answer = client.call("check_all", [["login", "k"], ["strict", "k"], ["closed", "k"]])
    assert some(answer, "allowed", "source", "shadow_denied") == (True, "local", True)
    with pytest.raises(RpcError) as error:
        client.call("peek", "strict", "k")
    assert error.value.code == "STORE_UNAVAILABLE"


# Candidates

ON_TRIAL = """
defaults: {deadline: 5s}
policies:
  tighter:
    algorithm: fixed_window
    limit: 5
    window: 1d
    candidate:
      - {name: day, algorithm: fixed_window, limit: 2, window: 1d}
  looser:
    limits:
      - {name: day, algorithm: fixed_window, limit: 2, window: 1d}
    candidate:
      - {name: day, algorithm: sliding_log, limit: 4, window: 1d}
      - {name: week, algorithm: token_bucket, limit: 3, window: 7d}
  plain: {algorithm: fixed_window, limit: 1, window: 1d}
"""
COUNTS = ("allowed", "denied", "candidate_allowed", "candidate_denied", "candidate_only_allowed",
          "candidate_only_denied")


def counts(client, name):
    return next(some(policy, *COUNTS) for policy in client.call("policies") if policy["name"] == name)


@pytest.mark.parametrize("config", [ON_TRIAL])
def test_a_candidate_decides_next_to_the_enforced_limits(client, config):
    for remaining in (4, 3, 2, 1):
        assert some(client.check("tighter", "k"), "allowed", "remaining", "bound_by") == (True, remaining, None)
    eventually(lambda: counts(client, "tighter") == (4, 0, 2, 2, 0, 2), "the candidate is counted")
    client.call("check_many", [["looser", "k"], ["looser", "k"], ["looser", "k"], ["looser", "k"], ["plain", "k"]])
    eventually(lambda: counts(client, "looser") == (2, 2, 3, 1, 1, 0), "another one too")
    assert counts(client, "plain") == (1, 0, None, None, None, None)
    stats = client.call("stats")
    assert some(stats, *COUNTS[2:], "candidate_skipped", "inflight") == (5, 3, 1, 2, 0, 0)


@pytest.mark.parametrize("config", [ON_TRIAL])
def test_a_reset_forgets_the_candidate_and_a_peek_leaves_it_alone(client, config):
    client.check("tighter", "k", 2)
    client.call("peek", "tighter", "k", 1)
    assert client.call("reset", "tighter", "k") == {"removed": True}
    assert client.call("reset", "tighter", "k") == {"removed": False}
    client.check("tighter", "k", 2)
    eventually(lambda: counts(client, "tighter") == (2, 0, 2, 0, 0, 0), "none is denied")


@pytest.mark.parametrize("config", [ON_TRIAL])
def test_the_candidate_of_each_member_of_check_all_decides_for_it_alone(client, config):
    answer = client.call("check_all", [["tighter", "k", 3], ["looser", "k", 3]])
    assert some(answer, "allowed", "bound_by") == (False, "looser/day")
    eventually(lambda: counts(client, "tighter") == (0, 1, 0, 1, 0, 1), "the first member")
    eventually(lambda: counts(client, "looser") == (0, 1, 1, 0, 1, 0), "the second one")


@pytest.mark.parametrize("config", [ON_TRIAL])
def test_a_candidate_grants_and_remembers_as_the_limits_do(client, config):
    for _ in range(3):
        assert client.call("check", "tighter", "k", {"cost": 2, "request_id": "r"})["remaining"] == 3
    eventually(lambda: counts(client, "tighter") == (3, 0, 3, 0, 0, 0), "charged once, allowed three times")
    assert client.call("check", "tighter", "l", {"at_most": 9})["granted"] == 5
    eventually(lambda: counts(client, "tighter") == (4, 0, 4, 0, 0, 0), "the candidate grants what it has")


def test_a_candidate_skips_keys_with_an_override(ratelimitd, connect):
    client = connect(ratelimitd("""
policies:
  p:
    algorithm: fixed_window
    limit: 5
    window: 1d
    overrides: [{key: vip, limit: 50}]
    candidate: [{name: day, algorithm: fixed_window, limit: 2, window: 1d}]
"""))
    assert client.check("p", "vip", 9)["allowed"]
    assert client.check("p", "k", 3)["allowed"]
    assert counts(client, "p") == (2, 0, 0, 1, 0, 1)


def test_candidates_have_keys_of_their_own(ratelimitd, redis, connect):
    client = connect(ratelimitd(ON_TRIAL, redis=redis))
    eventually(lambda: client.check("plain", "probe", 0)["source"] == "redis", "Redis is there")
    client.check("tighter", "k")
    keys = sorted(key.decode().split("}:")[1] for key in stored_keys(redis.client()))
    assert keys == ["fw1:tighter+candidate/day:k", "fw1:tighter:k"]
    tags = {key.decode().split("{")[1].split("}")[0] for key in stored_keys(redis.client())}
    assert len(tags) == 1
    assert client.call("stats")["redis_batches"] <= 3


def test_counts_go_on_through_a_reload(ratelimitd, connect):
    daemon = ratelimitd(ON_TRIAL)
    client = connect(daemon)
    client.check("tighter", "k", 3)
    version = next(p["version"] for p in client.call("policies") if p["name"] == "tighter")
    daemon.configure(ON_TRIAL.replace("limit: 2", "limit: 4"))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: version not in [p["version"] for p in client.call("policies")], "the new ones hold")
    assert counts(client, "tighter") == (1, 0, 0, 1, 0, 1)
    client.check("tighter", "k")
    assert counts(client, "tighter") == (2, 0, 1, 1, 0, 1)


def test_without_redis_a_candidate_is_skipped(ratelimitd, redis, connect):
    redis.stop()
    client = connect(ratelimitd(ON_TRIAL, redis=redis))
    assert client.check("tighter", "k")["source"] == "local"
    assert counts(client, "tighter") == (1, 0, 0, 0, 0, 0)
    assert client.call("stats")["candidate_skipped"] == 1


def test_settling_a_reservation_that_a_shadow_policy_would_have_denied_returns_the_state(any_store, ratelimitd, connect):
    """Earlier the answer was that nothing remained, from the store."""
    client = connect(ratelimitd("""
defaults: {deadline: 5s}
policies:
  tried: {algorithm: sliding_log, limit: 2, window: 1d, shadow: true}
  never: {algorithm: fixed_window, limit: 0, window: 1d, shadow: true}
""", redis=any_store))
    first = client.call("reserve", "tried", "k", 2)["reservation"]
    made = client.call("reserve", "tried", "k", 1)
    assert some(made, "allowed", "shadow_denied", "remaining") == (True, True, 0)
    assert client.call("settle", first, 1)["refunded"] == 1
    for settled in (client.call("settle", made["reservation"], 1), client.call("cancel", made["reservation"])):
        assert some(settled, "allowed", "remaining", "shadow_denied", "ended") == (True, 1, None, True)
        assert settled["source"] == made["source"] and settled["reset_after_ms"] > 0
        assert settled.get("charged", settled.get("refunded")) == 0
    client.call("hello", {"decision": "array"})
    assert client.call("settle", made["reservation"], 0)[11] == {"refunded": 0, "ended": True}
    made = client.call("reserve", "never", "k", 1)
    assert client.call("cancel", made[11]["reservation"])[:3] == [True, 0, 0]


# defaults.shadow: the switch to pull if limits block everybody

SWITCHED = """
inline: {allow: true}
defaults: {deadline: 5s, shadow: SHADOW}
policies:
  login: {algorithm: fixed_window, limit: 1, window: 1d}
  held: {algorithm: fixed_window, limit: 1, window: 1d, shadow: false}
  leased: {algorithm: fixed_window, limit: 1000, window: 1d, lease: 1s}
  both: {limits: [{name: a, algorithm: sliding_log, limit: 1, window: 1d}, {name: b, algorithm: gcra, limit: 9, window: 1d}]}
"""


def switch(daemon, client, on):
    n = client.call("stats")["reloads"]
    daemon.configure(SWITCHED.replace("SHADOW", "true" if on else "false"))
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == n + 1, "the reload is done")


def test_the_switch_stops_every_denial_until_it_is_taken_back(any_store, ratelimitd, connect):
    daemon = ratelimitd(SWITCHED.replace("SHADOW", "false"), redis=any_store)
    client = connect(daemon)
    if any_store is not None:
        eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    inline = {"algorithm": "fixed_window", "limit": 1, "window": "1d"}
    asked = ("login", "both", "held", inline)
    allowed = lambda: [client.check(policy, "k")["allowed"] for policy in asked]  # noqa: E731
    assert allowed() == [True] * 4 and allowed() == [False] * 4
    switch(daemon, client, True)
    assert allowed() == [True, True, False, True]
    answer = client.check("login", "k")
    assert answer["shadow_denied"] and client.call("stats")["shadow_default"] == 1
    assert "defaults.shadow is on: nothing is denied" in daemon.ctl("stats").stdout
    assert any("defaults.shadow: is on: nothing is denied" in line for line in daemon.log)
    switch(daemon, client, False)
    assert allowed() == [False] * 4 and client.call("stats")["shadow_default"] == 0
    assert "shadow" not in daemon.ctl("stats").stdout


def test_leases_rest_while_it_is_on(redis, ratelimitd, connect):
    daemon = ratelimitd(SWITCHED.replace("SHADOW", "true"), redis=redis)
    client = connect(daemon)
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    assert {client.check("leased", "k")["source"] for _ in range(100)} == {"redis"}
    assert client.call("stats")["leases_taken"] == 0
    switch(daemon, client, False)
    eventually(lambda: client.check("leased", "k")["source"] == "lease", "leases are taken again")


def test_the_printed_configuration_with_the_switch_is_one_that_can_be_read(tmp_path, ratelimitd):
    daemon = ratelimitd(SWITCHED.replace("SHADOW", "true"))
    printed = daemon.ctl("config").stdout
    path = tmp_path / "again.yaml"
    path.write_text(printed)
    assert "shadow: true" in printed
    status, _, errors = run_ratelimitd("--check-config", "-c", str(path))
    assert status == 0, errors
