"""test_outage.py: the answers while a real Redis is away, stalled, or in error, and the time until it counts again. No client
waits longer than the deadline, and no request goes to Redis twice."""

import re
import time

import pytest

from harness import RpcError, eventually

DEADLINE_MS = 200  # which Redis keeps on a busy machine, too
LATE_S = 0.5  # far beyond any deadline here, for a machine that is busy with other things
POLICIES = f"""
defaults: {{deadline: {DEADLINE_MS}ms}}
policies:
  allow: {{algorithm: fixed_window, limit: 1000, window: 1d, on_failure: allow}}
  deny: {{algorithm: fixed_window, limit: 1000, window: 1d, on_failure: deny}}
  error: {{algorithm: fixed_window, limit: 1000, window: 1d, on_failure: error}}
  local: {{algorithm: fixed_window, limit: 3, window: 1d, on_failure: local}}
"""
PATIENT = POLICIES.replace(f"{DEADLINE_MS}ms", "5s")  # where Redis is to answer every check, if only with an error


@pytest.fixture
def daemon(ratelimitd, redis):
    return ratelimitd(POLICIES, redis=redis)


def source(client, policy="allow", key="probe"):
    return client.check(policy, key)["source"]


def expect_failure_answers(client, reason, least_ms=0):
    """Each policy's own answer, at once, or (`least_ms`) at the deadline."""
    begun = time.monotonic()
    answers = {policy: client.send("check", policy, "alice", 2) for policy in ("allow", "deny", "error", "local")}
    allow, deny = client.answer(answers["allow"]), client.answer(answers["deny"])
    assert allow == {**allow, "allowed": True, "source": "allow", "reason": reason, "limit": 1000, "remaining": 0,
                     "retry_after_ms": 0, "reset_after_ms": 0}
    assert deny == {**deny, "allowed": False, "source": "deny", "reason": reason, "retry_after_ms": 1000}
    with pytest.raises(RpcError) as fault:
        client.answer(answers["error"])
    assert fault.value.code == "STORE_UNAVAILABLE"
    local = client.answer(answers["local"])
    assert local == {**local, "allowed": True, "source": "local", "reason": reason, "limit": 3, "remaining": 1}
    assert least_ms / 1000 <= time.monotonic() - begun < least_ms / 1000 + LATE_S


def test_without_redis_each_policy_answers_as_it_says(daemon, redis, connect):
    client = connect(daemon)
    assert source(client) == "redis"
    redis.kill()
    eventually(lambda: source(client) == "allow", "the loss is noticed")
    expect_failure_answers(client, "down")
    for method in ("peek", "reset"):
        with pytest.raises(RpcError) as fault:
            client.call(method, "allow", "alice")
        assert fault.value.code == "STORE_UNAVAILABLE"


def test_a_daemon_started_without_redis_serves_and_finds_it_later(ratelimitd, redis, connect):
    redis.stop()
    daemon = ratelimitd(POLICIES, redis=redis)
    client = connect(daemon)
    expect_failure_answers(client, "down")
    redis.start()
    eventually(lambda: source(client) == "redis", "Redis is found")


def test_a_connection_lost_again_and_again_does_not_renew_the_local_limit(daemon, redis, connect):
    client = connect(daemon)
    assert source(client) == "redis"
    for allowed in ([True] * 3 + [False] * 2, [False] * 5, [False] * 5):
        redis.kill()
        eventually(lambda: source(client) == "allow", "the loss is noticed")
        answers = [client.check("local", "bob") for _ in range(5)]
        assert [answer["allowed"] for answer in answers] == allowed
        assert {answer["source"] for answer in answers} == {"local"}
        assert answers[4]["retry_after_ms"] > 1000
        redis.start()
        eventually(lambda: source(client) == "redis", "Redis is found again")
        assert client.check("local", "bob")["source"] == "redis"


def test_a_stalled_redis_is_answered_for_at_the_deadline(daemon, redis, connect):
    client = connect(daemon)
    assert source(client) == "redis"
    redis.pause()
    expect_failure_answers(client, "deadline", least_ms=DEADLINE_MS)
    assert client.call("stats")["failure_deadline"] == 4
    redis.resume()
    eventually(lambda: source(client) == "redis", "Redis counts again")


def test_what_redis_answers_late_is_dropped_and_counted_once(daemon, redis, connect):
    client = connect(daemon)
    assert source(client, key="carol") == "redis"
    redis.pause()
    asked = client.call("check_many", [["allow", "carol"]] * 10)  # one message, one batch: all of it goes out
    assert {one["reason"] for one in asked} == {"deadline"}
    redis.resume()
    eventually(lambda: client.call("stats")["late_replies"] == 10, "the late replies come")
    assert client.remaining("allow", "carol") == 1000 - 11
    assert client.call("stats")["inflight"] == 0


def test_a_request_may_shorten_its_deadline(daemon, redis, connect):
    client = connect(daemon)
    assert source(client) == "redis"
    redis.pause()
    begun = time.monotonic()
    assert client.check("allow", "alice", {"deadline_ms": 5})["reason"] == "deadline"
    assert 0.005 <= time.monotonic() - begun < 0.005 + LATE_S
    redis.resume()


def test_an_error_of_redis_is_its_own_reason(ratelimitd, redis, connect):
    client = connect(ratelimitd(PATIENT, redis=redis))
    assert source(client) == "redis"
    with redis.client() as admin:
        admin.config_set("maxmemory", "1")
        expect_failure_answers(client, "store_error")
        admin.config_set("maxmemory", "0")
    eventually(lambda: source(client) == "redis", "Redis counts again")


def test_a_client_that_leaves_while_redis_stalls_harms_nobody(daemon, redis, connect):
    client, other = connect(daemon), connect(daemon)
    assert source(client) == "redis"
    redis.pause()
    for _ in range(100):
        client.send("check", "allow", "dave")
    client.close()
    assert other.check("deny", "alice")["reason"] == "deadline"
    redis.resume()
    eventually(lambda: source(other) == "redis", "Redis counts again")
    assert other.call("stats")["inflight"] == 0


def test_stopping_while_redis_stalls_answers_everything(daemon, redis, connect):
    client = connect(daemon)
    assert source(client) == "redis"
    redis.pause()
    asked = [client.send("check", "allow", "alice", {"deadline_ms": 60000}) for _ in range(100)]
    assert client.call("ping") == "pong"
    daemon.signal(15)
    redis.resume()
    assert {client.answer(one)["allowed"] for one in asked} == {True}
    assert daemon.wait() == 0  # no second signal: during the work of the leak checker it may prevent its end


def test_stopping_does_not_wait_for_a_redis_that_stays_stalled(daemon, redis, connect):
    client = connect(daemon)
    assert source(client) == "redis"
    redis.pause()
    asked = [client.send("check", "local", "alice") for _ in range(5)]
    assert client.call("ping") == "pong"
    assert daemon.stop() == 0
    assert [client.answer(one)["allowed"] for one in asked] == [True] * 3 + [False] * 2
    redis.resume()


def test_a_reload_during_an_outage_takes_effect_at_once(daemon, redis, connect):
    client = connect(daemon)
    redis.kill()
    eventually(lambda: source(client) == "allow", "the loss is noticed")
    daemon.configure(POLICIES.replace("on_failure: allow", "on_failure: deny"))
    daemon.reload()
    eventually(lambda: source(client) == "deny", "the new answer is given")


def test_a_failure_answer_grants_no_more_than_a_check_may_cost(ratelimitd, redis, connect):
    """Earlier it granted any at_most."""
    redis.stop()
    client = connect(ratelimitd("""
defaults: {on_failure: allow}
policies:
  window: {algorithm: fixed_window, limit: 5, window: 1d}
  bucket: {algorithm: token_bucket, limit: 100, window: 1d, burst: 3}
  log: {algorithm: sliding_log, limit: 5000, window: 1d}
  old: {compat: first-hit, limit: 5, window: 1d}
  several: {limits: [{name: a, algorithm: gcra, limit: 9, window: 1d}, {name: b, algorithm: gcra, limit: 2, window: 1s}]}
  free: {unlimited: true}
""", redis=redis))
    most = {"window": 5, "bucket": 3, "log": 1000, "old": 1, "several": 2, "free": 2**53 - 1}
    for policy, granted in most.items():
        assert client.check(policy, "k", {"at_most": 2**53 - 1})["granted"] == granted
        assert client.check(policy, "k", {"at_most": 1})["granted"] == 1


RESERVING = """
defaults: {deadline: 200ms, on_failure: error}
policies:
  calls: {algorithm: fixed_window, limit: 1000, window: 1d}
"""


def test_a_request_that_was_not_sent_by_its_deadline_is_marked(ratelimitd, redis, connect):
    daemon = ratelimitd(RESERVING, redis=redis, redis_options={"window": 1, "stall": "10s"})
    client = connect(daemon)
    reserved = client.call("reserve", "calls", "alice", 10)
    redis.pause()
    sent = client.send("check", "calls", "alice")
    eventually(lambda: client.call("stats")["redis_inflight"] == 1, "the only batch is on its way")
    waits = [client.send("settle", reserved["reservation"], 3), client.send("refund", "calls", "alice", 1),
             client.send("reset", "calls", "alice"), client.send("check", "calls", "alice")]
    with pytest.raises(RpcError) as fault:
        client.answer(sent)
    assert fault.value.code == "STORE_UNAVAILABLE" and "may be done" in str(fault.value)
    for msgid in waits:
        with pytest.raises(RpcError) as fault:
            client.answer(msgid)
        assert fault.value.code == "STORE_UNAVAILABLE" and "it was not sent" in str(fault.value)
    redis.resume()
    eventually(lambda: client.call("stats")["redis_inflight"] == 0, "Redis answers again")
    assert client.call("peek", "calls", "alice", 0)["remaining"] == 1000 - 10 - 1


def test_a_reserve_that_was_given_up_on_is_not_charged_when_redis_goes_on(ratelimitd, redis, connect):
    """Redis reads the bytes of a dead connection, however late. It must not run them any more."""
    daemon = ratelimitd(RESERVING, redis=redis, redis_options={"stall": "250ms"})
    client = connect(daemon)
    assert client.check("calls", "bob")["remaining"] == 999
    redis.pause()
    with pytest.raises(RpcError):
        client.call("reserve", "calls", "alice", 100, {"ttl_ms": 2000})
    stopped = time.monotonic()
    eventually(lambda: client.call("stats")["redis_stalls"] == 1, "the connection is given up")
    eventually(lambda: time.monotonic() - stopped > 1.5, "the time is over in which the batch may run")
    redis.resume()
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is found again")
    assert client.call("peek", "calls", "alice", 0)["remaining"] == 1000
    with redis.client() as direct:
        assert not direct.keys("*alice*")


def test_a_redis_that_refuses_every_command_is_in_the_log_and_in_the_status(ratelimitd, redis, connect, place_of_notices):
    """Redis is connected, but decides no check. Earlier the log was empty, and the status was "Redis: ready"."""
    path, statuses = place_of_notices
    daemon = ratelimitd(PATIENT, redis=redis, env={"NOTIFY_SOCKET": path})
    client = connect(daemon)
    assert source(client) == "redis"
    with redis.client() as direct:
        direct.config_set("maxmemory", 1)
        begun = len(daemon.log)
        for _ in range(2):
            assert client.check("allow", "a-key-of-mine")["reason"] == "store_error"
        line = daemon.wait_for_log("Redis does not decide")
        assert "warning: Redis does not decide: OOM " in line
        assert line.endswith("; checks get their failure answer: 1 policy allows, 1 denies, 1 decides locally, "
                             "1 answers with an error")
        eventually(lambda: "Redis: ready; it does not decide: OOM " in statuses(), "the status")
        direct.config_set("maxmemory", 0)
    assert source(client) == "redis"
    assert sum("Redis" in line for line in daemon.log[begun:]) == 1
    assert "a-key-of-mine" not in daemon.text()


def test_a_redis_that_stalls_is_in_the_log(ratelimitd, redis, connect):
    daemon = ratelimitd(POLICIES, redis=redis, redis_options={"stall": "1h"})
    client = connect(daemon)
    assert source(client) == "redis"
    redis.pause()
    for _ in range(2):
        assert client.check("allow", "alice")["reason"] == "deadline"
    daemon.wait_for_log("warning: Redis does not decide: no answer by the deadline; checks get their failure answer: ")
    redis.resume()


def refused_user(direct, tmp_path):
    """A user that may not touch the keys of the policy `deny`; the options with which a daemon uses it."""
    direct.execute_command("ACL", "SETUSER", "rl", "on", ">secret", "resetkeys", "~rl:*:allow*", "~rl:*:local*", "+@all")
    password = tmp_path / "password"
    password.write_text("secret\n")
    return {"username": "rl", "password_file": password}


@pytest.mark.parametrize("redis_kind", ["redis"], indirect=True)  # it waits for ten quiet seconds
def test_a_policy_that_redis_refuses_is_in_the_log_however_slow_its_checks_come(ratelimitd, redis, connect, tmp_path,
                                                                               place_of_notices):
    """A right to the keys of one policy is missing. Earlier only two failure answers within a second were logged, so this
    policy was denied for ever in silence."""
    path, statuses = place_of_notices
    with redis.client() as direct:
        daemon = ratelimitd(PATIENT, redis=redis, redis_options=refused_user(direct, tmp_path), env={"NOTIFY_SOCKET": path})
        client = connect(daemon)
        for _ in range(3):
            assert client.check("deny", "a-key-of-mine")["reason"] == "store_error"
            assert source(client) == "redis"
            time.sleep(1.1)
        line = daemon.wait_for_log("Redis does not decide")
        assert re.search(r"warning: Redis does not decide policy deny: NOPERM .+; its checks get their failure answer: deny$", line)
        eventually(lambda: "Redis: ready; it does not decide policy deny: NOPERM " in statuses(), "the status")
        direct.execute_command("ACL", "SETUSER", "rl", "~rl:*:deny*")
        assert client.check("deny", "a-key-of-mine")["source"] == "redis"
        again = r"info: Redis decides policy deny again after \d+ s, \d answers? (was|were) denied$"
        daemon.wait_for_log(again, patience_s=30)  # it comes after ten quiet seconds
    assert len(re.findall("Redis does not decide|Redis decides", daemon.text())) == 2, daemon.text()
    assert "a-key-of-mine" not in daemon.text()


def test_explain_has_redis_own_words(ratelimitd, redis, connect, tmp_path):
    """Earlier it had only "the store answered with an error"."""
    with redis.client() as direct:
        client = connect(ratelimitd(PATIENT, redis=redis, redis_options=refused_user(direct, tmp_path)))
        with pytest.raises(RpcError) as error:
            client.call("explain", "deny", "alice")
        assert error.value.code == "STORE_UNAVAILABLE"
        assert re.fullmatch(r"(?i)Redis refused it: NOPERM .*permissions.*; a check would be answered by on_failure: deny",
                            error.value.message)


def asked_until_the_breaker_opens(client, policy="allow"):
    """Checks one after the other, and how many were asked before the first answer of the breaker."""
    for n in range(50):
        if client.check(policy, f"k{n}").get("reason") == "breaker":
            return n
    raise AssertionError("the breaker did not open")


def test_a_full_redis_is_asked_five_times_and_then_not_until_it_has_memory(ratelimitd, redis, connect, place_of_notices):
    notices, status = place_of_notices
    daemon = ratelimitd(PATIENT, redis=redis, env={"NOTIFY_SOCKET": notices})
    client = connect(daemon)
    assert source(client) == "redis"
    with redis.client() as admin:
        admin.config_set("maxmemory", "1")
        assert asked_until_the_breaker_opens(client) == 5
        n_asked = client.call("stats")["redis_batches"]
        expect_failure_answers(client, "breaker")
        answers = client.call("check_many", [["allow", "k7"]] * 20)
        assert {answer["reason"] for answer in answers} == {"breaker"}
        stats = client.call("stats")
        assert (stats["redis_batches"], stats["breaker_open"], stats["breaker_opens"]) == (n_asked, 1, 1)
        assert stats["failure_breaker"] == 1 + 4 + 20
        daemon.wait_for_log("warning: Redis does not decide: the breaker is open: it refused 5 batches in a row: OOM ")
        eventually(lambda: "the breaker is open" in status(), "STATUS says it")
        admin.config_set("maxmemory", "0")
    eventually(lambda: source(client) == "redis", "Redis is asked again")
    assert client.call("stats")["breaker_open"] == 0
    assert client.remaining("allow", "k7") == 1000  # what the breaker answered was not charged


def test_the_breaker_closes_without_traffic(ratelimitd, redis, connect):
    client = connect(ratelimitd(PATIENT, redis=redis))
    with redis.client() as admin:
        admin.config_set("maxmemory", "1")
        asked_until_the_breaker_opens(client)
        admin.config_set("maxmemory", "0")
    eventually(lambda: client.call("stats")["breaker_open"] == 0, "a probe closes it")


def test_a_busy_redis_opens_the_breaker_until_its_script_is_killed(ratelimitd, redis, connect):
    daemon = ratelimitd(PATIENT, redis=redis)
    client = connect(daemon)
    assert source(client) == "redis"
    with redis.client() as admin, redis.client() as other:
        admin.config_set("lua-time-limit", "10")
        endless = other.connection_pool.make_connection()
        endless.send_command("EVAL", "while true do end", "0")
        eventually(lambda: client.check("allow", "k").get("reason") == "breaker", "the breaker opens")
        assert client.call("stats")["redis_disconnects"] == 0
        admin.script_kill()
        endless.disconnect()
    eventually(lambda: source(client) == "redis", "Redis is asked again")


def test_a_slow_redis_costs_no_check_its_deadline_once_the_breaker_is_open(ratelimitd, redis, connect, proxied):
    proxy = proxied(redis)
    daemon = ratelimitd(POLICIES, redis=redis, redis_options={"addresses": f'["{proxy.address}"]', "stall": "5s"})
    client = connect(daemon)
    assert source(client) == "redis"
    proxy.down.delay_s = 3 * DEADLINE_MS / 1000
    for _ in range(200):
        if client.check("allow", "slow").get("reason") == "breaker":
            break
    stats = client.call("stats")
    assert stats["breaker_open"] == 1
    n_asked = stats["redis_batches"]
    expect_failure_answers(client, "breaker")
    assert client.call("stats")["redis_batches"] == n_asked  # probes aside, it is not asked
    proxy.down.delay_s = 0
    eventually(lambda: source(client) == "redis", "Redis is asked again")
    assert client.call("stats")["redis_disconnects"] == 0


def test_a_redis_that_is_always_slower_than_the_deadline_is_seen_in_log_status_and_metrics(ratelimitd, redis, connect, proxied):
    """Earlier the breaker stayed open for ever, no instrument had a number, and store_p99_us was 0."""
    proxy = proxied(redis)
    proxy.down.delay_s = 0.06
    policies = POLICIES.replace(f"{DEADLINE_MS}ms", "20ms") + "  patient: {algorithm: fixed_window, limit: 9, window: 1d, deadline: 10s}\n"
    daemon = ratelimitd(policies, redis=redis, redis_options={"addresses": f'["{proxy.address}"]', "stall": "5s"})
    client = connect(daemon)
    started = daemon.wait_for_log("warning: Redis: the fastest of 5 round trips took ")
    assert int(re.search(r"took (\d+) ms", started)[1]) >= 60
    assert started.endswith(" ms, and policy allow has a deadline of 20 ms: checks of it and 3 more policies get their failure "
                            "answer; raise defaults.deadline, or bring Redis nearer")

    eventually(lambda: client.check("allow", "slow").get("reason") == "breaker", "the breaker opens")
    eventually(lambda: client.check("allow", "slow") and any("the breaker is open" in line for line in daemon.log), "it is logged")
    line = next(line for line in daemon.log if "the breaker is open" in line)
    seen = re.search(r": (?:(\d+) to )?(\d+) ms, the longest deadline is 20 ms: raise defaults.deadline, or bring Redis nearer", line)
    assert seen and 60 <= int(seen[1] or seen[2]) <= int(seen[2]) < 5000

    n_late = client.call("stats")["redis_batches"]
    count = re.compile(r"^ratelimitd_store_duration_seconds_count (\d+)", re.M)
    eventually(lambda: int(count.search(daemon.ctl("metrics").stdout)[1]) > n_late + 3, "probes are measured")
    assert client.call("stats")["redis_batches"] == n_late
    assert client.call("stats")["store_p50_us"] >= 50_000


def test_a_reload_compares_the_deadlines_with_the_round_trips_again(ratelimitd, redis, proxied):
    proxy = proxied(redis)
    daemon = ratelimitd(POLICIES.replace(f"{DEADLINE_MS}ms", "5s"), redis=redis,
                        redis_options={"addresses": f'["{proxy.address}"]', "stall": "5s"})
    eventually(lambda: "round trips" not in daemon.text(), "a Redis that is near is no warning")
    proxy.down.delay_s = 0.06
    one = "  one: {algorithm: fixed_window, limit: 9, window: 1d, deadline: 10ms}\n"
    daemon.configure(POLICIES.replace(f"{DEADLINE_MS}ms", "5s") + one)
    daemon.reload()
    line = daemon.wait_for_log("warning: Redis: the fastest of 5 round trips took ")
    assert "policy one has a deadline of 10 ms: checks of it get their failure answer" in line


# The table of `local` is asked, too, while Redis is away. Earlier `explain` and `peek` were errors, `reset` freed nobody, and
# `stats` said "down" and no more.
LOCALLY = f"""
defaults: {{deadline: {DEADLINE_MS}ms}}
policies:
  login: {{algorithm: fixed_window, limit: 4, window: 1d, on_failure: local, merge_back: true}}
  open: {{algorithm: token_bucket, limit: 4, window: 1d, on_failure: allow}}
"""


@pytest.fixture
def without_redis(ratelimitd, redis, connect):
    """After two checks in Redis, four in the daemon alone."""
    daemon = ratelimitd(LOCALLY, redis=redis)
    client = connect(daemon)
    for _ in range(2):
        assert client.check("login", "alice")["source"] == "redis"
    redis.stop()
    eventually(lambda: source(client, "open") == "allow", "the loss is noticed")
    assert [client.check("login", "alice")["allowed"] for _ in range(5)] == [True] * 4 + [False]
    return daemon, client


def test_in_an_outage_peek_and_explain_answer_from_the_local_table(without_redis):
    daemon, client = without_redis
    peeked = client.call("peek", "login", "alice", 1)
    assert peeked == {**peeked, "allowed": False, "source": "local", "reason": "down", "limit": 4, "remaining": 0}
    assert client.call("peek", "login", "bob")["remaining"] == 4
    explained = client.call("explain", "login", "alice")
    assert explained == {**explained, "allowed": False, "source": "local", "reason": "down"}
    assert "0 of 4 units are free" in explained["why"] and "This is what the daemon has counted itself" in explained["why"]
    assert re.search(r"Redis is down for \S+: \S", explained["why"])
    assert explained["state"][0]["count"] == 4
    with pytest.raises(RpcError) as fault:
        client.call("explain", "open", "alice")
    assert fault.value.code == "STORE_UNAVAILABLE" and "; Redis is down for " in str(fault.value)
    assert "local" in daemon.ctl("explain", "login", "alice").stdout


def test_in_an_outage_reset_frees_the_key_here_and_nothing_of_it_is_charged_afterwards(without_redis, redis):
    daemon, client = without_redis
    assert client.call("stats")["merge_back_waiting"] == 1
    done = daemon.ctl("reset", "login", "alice")
    assert done.stdout == "removed in this daemon; Redis did not answer (down): its own count stays, reset it later\n"
    assert client.call("reset", "login", "alice") == {"removed": False, "source": "local", "reason": "down", "stays_in_redis": True}
    assert client.call("stats")["merge_back_waiting"] == 0
    assert client.call("peek", "login", "alice")["remaining"] == 4
    redis.start()
    eventually(lambda: source(client, "login", "probe") == "redis", "Redis is back")
    assert client.call("stats")["merged_back"] == 0
    assert client.call("reset", "login", "probe") == {"removed": True}


def test_stats_says_why_and_since_when_redis_is_down(without_redis, redis):
    daemon, client = without_redis
    eventually(lambda: re.match(r"down for \S+: \S", client.call("stats").get("redis_trouble", "")), "stats has the reason")
    assert re.search(r"^redis            down for \S+: \S", daemon.ctl("stats").stdout, re.M)
    assert re.search(r"^Redis is down for \S+: \S", daemon.ctl("policies").stdout, re.M)
    redis.start()
    eventually(lambda: "redis_trouble" not in client.call("stats"), "there is no trouble any more", patience_s=30)
    assert re.search(r"^redis            up", daemon.ctl("stats").stdout, re.M)


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_log", "sliding_counter", "token_bucket", "leaky_bucket"])
def test_in_an_outage_a_share_of_the_limit_is_explained_and_reset(ratelimitd, redis, connect, algorithm):
    redis.stop()
    policy = f"policies:\n  p: {{algorithm: {algorithm}, limit: 8, window: 1d, local_share: 2, merge_back: true}}\n"
    client = connect(ratelimitd(policy, redis=redis))
    assert [client.check("p", "k")["allowed"] for _ in range(5)] == [True] * 4 + [False]
    explained = client.call("explain", "p", "k")
    assert (explained["allowed"], explained["source"], explained["limit"]) == (False, "local", 4)
    assert "0 of 4 units are free" in explained["why"] and "divided by 2" in explained["why"]
    assert client.call("reset", "p/", "k")["removed"] is True
    assert client.call("explain", "p", "k")["allowed"] is True and client.call("stats")["merge_back_waiting"] == 0
