"""test_self_test.py: at start and at each reload the daemon looks whether Redis lets it do what checks will need, and warns
with the way out."""

import pytest

from harness import Redis, eventually, stored_keys

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
