/* test_redis_daemons.c: the daemons that share a Redis count each other, by one sorted set of a real server. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "fakes/served_store.h"

#define KEY "rl:{b000}:daemons"
enum { S_US = 1000000 };

static uint32_t seen(void)
{
    const char *fault;
    return redis_store_n_daemons(store_fixture->redis, &fault);
}

static const char *fault(void)
{
    const char *text;
    (void)redis_store_n_daemons(store_fixture->redis, &text);
    return text;
}

/* Redis' time in ms. */
static long long now_ms(void)
{
    struct redisContext *direct = real_redis_connect(&redis);
    redisReply *time = redisCommand(direct, "TIME");
    long long ms = strtoll(time->element[0]->str, NULL, 10) * 1000 + strtoll(time->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(time);
    redisFree(direct);
    return ms;
}

static void add(const char *member, long long age_ms)
{
    assert_int_equal(real_redis_command(&redis, "ZADD " KEY " %lld %s", now_ms() - age_ms, member), 1);
}

static void add_again(const char *member, long long age_ms)
{
    real_redis_command(&redis, "ZREM " KEY " %s", member);
    add(member, age_ms);
}

static long long n_members(void)
{
    return real_redis_command(&redis, "ZCARD " KEY);
}

static bool is_idle(void *arg)
{
    (void)arg;
    return redis_store_is_counting(store_fixture->redis) == false;
}

/* Looks, and waits until what that has sent is answered. */
static void look(bool is_counting)
{
    redis_store_look(store_fixture->redis, is_counting);
    store_fixture_until(is_idle);
}

static void look_for_30_s(void)
{
    for (int i = 0; i < 3; i++) {
        store_fixture->clock.mono_us += 10 * S_US;
        look(true);
    }
}

static void open_frozen(void)
{
    served_store_open();
    store_fixture->clock.frozen = true;
}

static void a_daemon_counts_itself_and_others_that_are_not_older_than_30_s(void **state)
{
    (void)state;
    open_frozen();
    assert_int_equal(seen(), 0);
    add("ratelimitd:other:1:0", 25000);
    add("ratelimitd:old:1:0", 31000);
    add("ratelimitd:ahead:1:0", -3600000); /* before Redis' clock was set back */
    look(true);
    assert_int_equal(seen(), 2);
    assert_int_equal(n_members(), 3); /* the old one is gone */
    assert_in_range(real_redis_command(&redis, "PTTL " KEY), 1, 30000);
}

static void it_refreshes_every_3_s_at_first_and_then_every_10_s(void **state)
{
    (void)state;
    open_frozen();
    look(true);
    int n_refreshed = 0;
    for (int s = 1; s <= 70; s++) {
        real_redis_command(&redis, "DEL " KEY);
        store_fixture->clock.mono_us += S_US;
        look(true);
        n_refreshed += real_redis_command(&redis, "EXISTS " KEY) == 1;
    }
    assert_int_equal(n_refreshed, 10 + 4); /* the last of the first ones is at 30 s */
}

static void it_leaves_where_nobody_asks_for_the_number_and_at_its_end(void **state)
{
    (void)state;
    open_frozen();
    look(true);
    add("ratelimitd:other:1:0", 0);
    assert_int_equal(n_members(), 2);
    look(false);
    store_fixture_settle();
    store_fixture_check("k");
    store_fixture_settle(); /* behind what was sent before */
    assert_int_equal(n_members(), 1);

    look(true);
    assert_int_equal(n_members(), 2);
    assert_int_equal(seen(), 2);
    store_fixture_close();
    assert_int_equal(n_members(), 1);
}

static void what_was_seen_counts_when_it_is_asked_for_again_in_an_outage(void **state)
{
    (void)state;
    open_frozen();
    add("ratelimitd:other:1:0", 0);
    look(true);
    real_redis_kill(&redis);
    store_fixture_until(store_is_not_ready);
    look(false);
    look(true);
    assert_int_equal(seen(), 2);
    store_fixture->clock.frozen = false;
    real_redis_start(&redis, NULL);
    store_fixture_until(store_is_ready);
}

static void a_set_with_a_foreign_member_is_left_alone(void **state)
{
    (void)state;
    open_frozen();
    look(true);
    assert_int_equal(seen(), 1);
    real_redis_command(&redis, "ZADD " KEY " 7 alice");
    store_fixture->clock.mono_us += 3 * S_US;
    look(true);
    assert_int_equal(seen(), 0);
    assert_non_null(strstr(fault(), "no daemon wrote, alice"));
    assert_int_equal(n_members(), 2);

    real_redis_command(&redis, "ZREM " KEY " alice");
    store_fixture->clock.mono_us += 3 * S_US;
    look(true);
    assert_string_equal(fault(), "");
    assert_int_equal(seen(), 1);
}

static void a_value_of_another_type_is_left_alone(void **state)
{
    (void)state;
    open_frozen();
    real_redis_command(&redis, "SET " KEY " 7");
    look(true);
    assert_int_equal(seen(), 0);
    assert_non_null(strstr(fault(), "another type"));
    assert_int_equal(real_redis_command(&redis, "GET " KEY), 7);
    real_redis_command(&redis, "DEL " KEY);
    store_fixture->clock.mono_us += 3 * S_US;
    look(true);
    assert_string_equal(fault(), "");
    assert_int_equal(seen(), 1);
}

static void a_missing_right_is_named_with_the_command_that_mends_it(void **state)
{
    (void)state;
    open_frozen();
    assert_int_equal(real_redis_command(&redis, "ACL SETUSER default -zcount"), 1);
    look(true);
    assert_int_equal(seen(), 0);
    assert_non_null(strstr(fault(), "may not run ZCOUNT on the key " KEY "; run: ACL SETUSER default +zcount"));
}

/* A full Redis refuses the refresh, but not the count. */
static void what_redis_refuses_changes_nothing(void **state)
{
    (void)state;
    open_frozen();
    add("ratelimitd:other:1:0", 0);
    look(true);
    assert_int_equal(seen(), 2);
    assert_int_equal(real_redis_command(&redis, "CONFIG SET maxmemory 1"), 1);
    real_redis_command(&redis, "DEL " KEY);
    store_fixture->clock.mono_us += 40 * S_US;
    look(true);
    assert_int_equal(seen(), 2);
    assert_string_equal(fault(), "");
    real_redis_command(&redis, "CONFIG SET maxmemory 0");
    store_fixture->clock.mono_us += 10 * S_US;
    look(true);
    assert_int_equal(n_members(), 1);
    assert_int_equal(seen(), 2);
    look_for_30_s();
    assert_int_equal(seen(), 1);
}

static void it_sees_two(void)
{
    open_frozen();
    add("ratelimitd:other:1:0", 0);
    look(true);
    look_for_30_s();
    add_again("ratelimitd:other:1:0", 0);
    look_for_30_s();
    assert_int_equal(seen(), 2);
}

/* FLUSHALL under four daemons: the first one to look saw itself alone, and had the whole limit in the next outage. */
static void a_lost_set_is_no_sign_that_the_others_are_gone(void **state)
{
    (void)state;
    it_sees_two();
    real_redis_command(&redis, "FLUSHALL");
    store_fixture->clock.mono_us += 10 * S_US;
    look(true);
    assert_int_equal(n_members(), 1);
    assert_int_equal(seen(), 2);
    store_fixture->clock.mono_us += 10 * S_US;
    add_again("ratelimitd:other:1:0", 0);
    look(true);
    look_for_30_s();
    assert_int_equal(seen(), 2);
    add_again("ratelimitd:other:1:0", 31000);
    look_for_30_s();
    look_for_30_s();
    assert_int_equal(seen(), 1);
}

/* The others' times are in the future until they refresh them. */
static void a_redis_whose_clock_is_set_back_has_not_lost_the_others(void **state)
{
    (void)state;
    it_sees_two();
    add_again("ratelimitd:other:1:0", -3600000);
    store_fixture->clock.mono_us += 10 * S_US;
    look(true);
    assert_int_equal(seen(), 2);
    add_again("ratelimitd:other:1:0", 0);
    look_for_30_s();
    assert_int_equal(seen(), 2);
}

/* Those that are not back yet are not gone. */
static void after_a_return_the_number_falls_only_when_30_s_are_over(void **state)
{
    (void)state;
    open_frozen();
    add("ratelimitd:other:1:0", 0);
    look(true);
    assert_int_equal(seen(), 2);
    real_redis_kill(&redis);
    store_fixture_until(store_is_not_ready);
    assert_int_equal(seen(), 2); /* the last number seen */
    store_fixture->clock.frozen = false;
    real_redis_start(&redis, NULL);
    store_fixture_until(store_is_ready);
    store_fixture->clock.frozen = true;
    look(true);
    assert_int_equal(n_members(), 1);
    assert_int_equal(seen(), 2);
    add("ratelimitd:b:1:0", 0);
    add("ratelimitd:c:1:0", 0);
    store_fixture->clock.mono_us += 3 * S_US;
    look(true);
    assert_int_equal(seen(), 3);
    real_redis_command(&redis, "ZREM " KEY " ratelimitd:b:1:0 ratelimitd:c:1:0");
    look_for_30_s();
    assert_int_equal(seen(), 3);
    look_for_30_s();
    assert_int_equal(seen(), 1);
}

static void a_redis_that_hangs_is_asked_once(void **state)
{
    (void)state;
    open_frozen();
    look(true);
    real_redis_signal(&redis, SIGSTOP);
    for (int i = 0; i < 10; i++) {
        store_fixture->clock.mono_us += 3 * S_US;
        redis_store_look(store_fixture->redis, true);
    }
    assert_true(redis_store_is_counting(store_fixture->redis));
    assert_int_equal(seen(), 1);
    real_redis_signal(&redis, SIGCONT);
    store_fixture_until(is_idle);
    assert_int_equal(n_members(), 1);
}

int main(void)
{
    if (real_redis_is_missing()) return 0;
    const struct CMUnitTest tests[] = {
        SERVED_STORE_TEST(a_daemon_counts_itself_and_others_that_are_not_older_than_30_s),
        SERVED_STORE_TEST(it_refreshes_every_3_s_at_first_and_then_every_10_s),
        SERVED_STORE_TEST(it_leaves_where_nobody_asks_for_the_number_and_at_its_end),
        SERVED_STORE_TEST(what_was_seen_counts_when_it_is_asked_for_again_in_an_outage),
        SERVED_STORE_TEST(a_set_with_a_foreign_member_is_left_alone),
        SERVED_STORE_TEST(a_value_of_another_type_is_left_alone),
        SERVED_STORE_TEST(a_missing_right_is_named_with_the_command_that_mends_it),
        SERVED_STORE_TEST(what_redis_refuses_changes_nothing),
        SERVED_STORE_TEST(a_lost_set_is_no_sign_that_the_others_are_gone),
        SERVED_STORE_TEST(a_redis_whose_clock_is_set_back_has_not_lost_the_others),
        SERVED_STORE_TEST(after_a_return_the_number_falls_only_when_30_s_are_over),
        SERVED_STORE_TEST(a_redis_that_hangs_is_asked_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
