"""test_self_test.py: at start and at each reload the daemon looks whether Redis lets it do what checks will need, and warns
with the way out."""

import re
import signal

import pytest

from harness import Redis, eventually, stored_keys
from http_client import ask
from played_server import PlayedServer

RIGHTS = ("+hello +auth +client|setname +select +script|load +evalsha +time +mget +get +set +setrange +incrby +decrby +exists "
          "+del +pexpireat +lindex +llen +lrange +lrem +ltrim +rpush +zadd +zcount +zrange +zrangebyscore +zrem "
          "+zremrangebyscore +zrevrange +zscore +info").split()
POLICIES = "log: {level: debug}\npolicies:\n  p: {algorithm: fixed_window, limit: 9, window: 1d}\n"
DONE = "debug: Redis: self-test: "


def allow(admin, rights):
    admin.execute_command("ACL", "SETUSER", "limiter", "on", ">secret", "resetkeys", "~rl:*", "-@all", *rights)


@pytest.fixture
def start(ratelimitd, redis, place):
    """A daemon that logs in as the user `limiter`."""
    (place / "password").write_text("secret")
    (place / "password").chmod(0o600)
    return lambda policies=POLICIES: ratelimitd(
        policies, redis=redis, redis_options={"username": "limiter", "password_file": place / "password"})


def test_the_documented_rights_are_enough_and_nothing_is_left_behind(start, redis):
    with redis.client() as admin:
        allow(admin, RIGHTS)
        daemon = start()
        line = daemon.wait_for_log(DONE)
        assert "unknown" not in line and line.endswith("rights complete")
        assert "warning" not in daemon.text() and "are off" not in daemon.text()
        assert stored_keys(admin) == []


def test_without_the_right_to_ask_for_info_the_log_says_that_the_warning_about_eviction_is_off(start, redis):
    with redis.client() as admin:
        allow(admin, [*RIGHTS, "-info"])
        daemon = start()
        line = daemon.wait_for_log(DONE)
        assert "version unknown, maxmemory-policy unknown" in line and line.endswith("rights complete")
        daemon.wait_for_log("may not ask for INFO, so the warnings about its version and about eviction are off; run: "
                            "ACL SETUSER limiter \\+info$")


def test_a_missing_right_is_named_before_a_check_needs_it_and_once_more_after_a_reload(start, redis):
    with redis.client() as admin:
        allow(admin, [right for right in RIGHTS if right not in ("+zadd", "+zcount")])
        daemon = start()
        line = "warning: Redis: user limiter lacks rights that checks will need; run: ACL SETUSER limiter \\+zadd \\+zcount$"
        daemon.wait_for_log(line)
        allow(admin, ["+zadd", "+zcount", *RIGHTS])
        daemon.reload()
        eventually(lambda: daemon.text().count(DONE) == 2, "it looks again")
        assert sum("lacks rights" in one for one in daemon.log) == 1


def test_commands_of_presets_are_asked_for_only_if_a_policy_uses_one(start, redis):
    with redis.client() as admin:
        allow(admin, ["~rate_limit:*", *RIGHTS])
        compat = POLICIES + "  old: {compat: window-start-millis, limit: 9, window: 1d}\n"
        daemon = start(compat)
        daemon.wait_for_log("ACL SETUSER limiter \\+expire \\+pexpire \\+pttl$")


@pytest.mark.parametrize("policy, warns", [("allkeys-lru", True), ("noeviction", False)])
def test_a_redis_that_evicts_counters_is_a_warning(ratelimitd, redis_kind, policy, warns):
    redis = Redis(redis_kind, arguments=["--maxmemory-policy", policy])
    try:
        daemon = ratelimitd(POLICIES, redis=redis)
        line = daemon.wait_for_log(DONE)
        assert f"maxmemory-policy {policy}" in line and "version unknown" not in line
        assert ("maxmemory-policy is allkeys-lru, so it forgets counters when its memory is full; set noeviction"
                in daemon.text()) == warns
    finally:
        redis.close()


def test_a_redis_that_comes_later_is_looked_at_later(ratelimitd, redis):
    redis.stop()
    daemon = ratelimitd(POLICIES, redis=redis)
    assert DONE not in daemon.text()
    redis.start()
    daemon.wait_for_log(DONE)


def test_a_policy_without_limits_does_not_end_the_daemon(ratelimitd, redis):
    daemon = ratelimitd(POLICIES + "  free: {unlimited: true}\n", redis=redis)
    daemon.wait_for_log(DONE)


def test_a_reload_that_names_another_store_leaves_the_user_of_the_look_that_is_due(start, redis):
    with redis.client() as admin:
        allow(admin, RIGHTS)
    redis.stop()
    daemon = start()
    daemon.reload()
    daemon.wait_for_log("reload: .* in force")
    daemon.configure(POLICIES + "store: {type: memory}\n")
    daemon.reload()
    daemon.wait_for_log("reload: store.type has changed and needs a restart")
    redis.start()
    with redis.client() as admin:
        allow(admin, [right for right in RIGHTS if right != "+zadd"])
    daemon.wait_for_log("run: ACL SETUSER limiter \\+zadd$")


# What a session met: key_prefix was changed to `shop`, and the user's pattern was not.
ADMIN = 'admin: {listen: "127.0.0.1:0"}\n'
TWO = POLICIES + "  q: {algorithm: fixed_window, limit: 9, window: 1d}\n"


@pytest.fixture
def start_shop(ratelimitd, redis, place):
    (place / "password").write_text("secret")
    (place / "password").chmod(0o600)
    return lambda policies: ratelimitd(ADMIN + policies, redis=redis, redis_options={
        "username": "limiter", "password_file": place / "password", "key_prefix": "shop"})


def fails(client, policy="p"):
    return client.check(policy, "k").get("reason") == "store_error"


def test_an_acl_without_the_key_prefix_is_named_with_the_command_that_mends_it(start_shop, redis, connect):
    """Earlier the advice was rights that the user had, and /readyz?store=1 was ready while all checks failed."""
    with redis.client() as admin:
        allow(admin, RIGHTS)
        daemon = start_shop(TWO)
        line = daemon.wait_for_log("warning: Redis: user limiter may not use the keys of this daemon")
        assert line.endswith("which begin with store.redis.key_prefix; run: ACL SETUSER limiter ~shop:*")
        daemons = daemon.wait_for_log("the daemons cannot be counted")
        assert ("user limiter may not use the key shop:{b000}:daemons; run: ACL SETUSER limiter ~shop:*, or write local_share: N"
                in daemons)
        assert "delete that key" not in daemon.text()

        client = connect(daemon)
        eventually(lambda: fails(client) and ask(daemon, "/readyz?store=1").status == 503, "it is not ready")
        text = ask(daemon, "/readyz?store=1").text
        assert text.startswith("not ready; redis: down, answering by on_failure (for ") and "NOPERM" in text
        assert text.endswith("; run: ACL SETUSER limiter ~shop:*)\n")
        assert ask(daemon, "/readyz").status == 200
        assert daemon.text().count("may not use the keys") == 1

        for command in re.findall(r"run: ACL SETUSER (\S+) (~\S+)", line):
            admin.execute_command("ACL", "SETUSER", *command)
        eventually(lambda: not fails(client), "checks are decided")
        assert ask(daemon, "/readyz?store=1").status == 503, "10 s without a failure answer are not over"
        eventually(lambda: ask(daemon, "/readyz?store=1").text == "ready\n", "it is ready again", patience_s=30)
        daemon.wait_for_log("Redis decides ")


def test_missing_keys_and_commands_are_one_command(start_shop, redis):
    with redis.client() as admin:
        allow(admin, [right for right in RIGHTS if right != "+zadd"])
        daemon = start_shop(POLICIES)
        daemon.wait_for_log(r"run: ACL SETUSER limiter ~shop:\* \+zadd$")


def test_one_policy_of_several_without_rights_takes_no_pod_out(start_shop, redis, connect):
    with redis.client() as admin:
        allow(admin, ["~shop:*", *RIGHTS, "+expire", "+pexpire", "+pttl"])
        daemon = start_shop(TWO + "  old: {compat: window-start-millis, limit: 9, window: 1d}\n")
        client = connect(daemon)
        eventually(lambda: fails(client, "old") and not fails(client, "q") and
                   "policy old: NOPERM" in ask(daemon, "/readyz?store=1").text, "it says so")
        answer = ask(daemon, "/readyz?store=1")
        assert answer.status == 200 and answer.text.startswith("ready; redis: does not decide some checks, answering by on_failure (for ")


def test_a_right_that_counting_daemons_lacks_is_named_and_no_key_is_blamed(start, redis):
    """Earlier: `delete that key`."""
    with redis.client() as admin:
        allow(admin, [right for right in RIGHTS if right != "+zadd"])
        daemon = start()
        line = daemon.wait_for_log("the daemons cannot be counted")
        assert ("user limiter may not run ZADD on the key rl:{b000}:daemons; run: ACL SETUSER limiter +zadd, or write local_share: N"
                in line)
        assert "delete that key" not in daemon.text()


def test_a_right_that_is_lost_later_is_named_when_checks_fail(start, redis, connect):
    with redis.client() as admin:
        allow(admin, RIGHTS)
        daemon = start()
        client = connect(daemon)
        assert not fails(client)
        admin.execute_command("ACL", "SETUSER", "limiter", "resetkeys", "~other:*")
        eventually(lambda: fails(client) and "may not use the keys" in daemon.text(), "it is named")
        assert "run: ACL SETUSER limiter ~rl:*" in daemon.text()


def test_a_server_that_goes_right_after_the_handshake_ends_no_daemon(ratelimitd, redis):
    """The connection broke by the self-test's own commands, which ended before it counted as running."""
    left, played = [3], PlayedServer(redis)
    daemon = ratelimitd(POLICIES, redis=played, start=False)

    def is_last_of_handshake(words):
        if words[0] != b"EVALSHA" or left[0] == 0:
            return False
        left[0] -= 1
        daemon.signal(signal.SIGSTOP)  # so that it finds the reply and the reset together
        return True

    played.last, played.on_reset = is_last_of_handshake, lambda: daemon.signal(signal.SIGCONT)
    try:
        daemon.start()
        daemon.wait_for_log(DONE)
        assert left == [0]
    finally:
        daemon.stop()
        played.close()
