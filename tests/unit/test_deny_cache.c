/*
 * test_deny_cache.c: what the cache of denials keeps, for how long, and what removes it.
 *
 * The store behind it is the memory store, which decides as Redis does. Here the test submits, sends, lets the server
 * run and replies, each when it likes. At the end, random traces: one where every answer must be the one that the
 * store gives without the cache, and one where everything takes its time.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/random.h"
#include "fakes/memory_fixture.h"
#include "fakes/natives.h"
#include "fakes/policies.h"
#include "store/deny_cache.h"
#include "store/redis_counters.h"

#define MS   INT64_C(1000)
#define S    (1000 * MS)
#define WALL (INT64_C(1700000000) * S) /* a multiple of every window here */

enum { MAX_AGE_S = 1, LONG_WAIT_S = 60 };

static struct memory_fixture fixture;
static struct clock clock_now;
static struct deny_cache cache;

struct question {
    struct op op;
    struct op_member member;
    struct op_reservation reservation;
    char key[256];
    int64_t sent_us;
    bool is_cached;
};

static void open_fixture(uint64_t max_keys)
{
    memory_fixture_open(&fixture, WALL, &(struct memory_options){.max_keys = 1000});
    clock_now = (struct clock){.mono_us = 5 * S, .wall_us = WALL, .manual = true, .frozen = true};
    deny_cache_init(&cache);
    deny_cache_set_options(&cache, max_keys, MAX_AGE_S * S);
}

static int setup(void **state)
{
    (void)state;
    open_fixture(64);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    deny_cache_fini(&cache);
    return memory_fixture_close(&fixture);
}

/* The server's clock and ours go alike. */
static void pass(int64_t us)
{
    clock_now.mono_us += us;
    clock_now.wall_us += us;
    fixture.now.wall_us += us;
}

static const struct limit *limit_of(const char *name, enum algo algo, int64_t limit, int64_t window_us)
{
    const struct policy_spec spec = {.name = name, .limits = {{.algo = algo, .limit = limit, .window_us = window_us}}};
    return &policies_add(fixture.set, &spec)->limits[0];
}

/* The limit of an override of the policy, for keys that share its counter. */
static const struct limit *overridden(const struct limit *limit, int64_t instead)
{
    struct policy *policy = (struct policy *)limit->policy, *variant = policy_variant(policy, false);
    struct diag diag = {0};
    assert_non_null(variant);
    variant->limits[0].limit = instead;
    assert_int_equal(limit_prepare(&variant->limits[0], NULL, &diag), 0);
    if (policy->overrides == NULL) policy->overrides = overrides_new(2);
    char text[8];
    snprintf(text, sizeof text, "o%zu", policy->overrides->n);
    assert_int_equal(overrides_add(policy->overrides, text, false, variant), 0);
    policy_seal(policy);
    return &variant->limits[0];
}

static struct question question(const struct limit *limit, const char *key, enum op_kind kind, int64_t cost)
{
    struct question q = {.op = {.kind = kind, .n_members = 1},
                         .member = {.limit = limit, .cost = cost, .max_wait_us = limit->max_wait_us}};
    snprintf(q.key, sizeof q.key, "%s", key);
    return q;
}

/* It may lie anywhere only from here on. */
static void wire(struct question *q)
{
    q->op.members = &q->member;
    q->member.key = slice_of(q->key);
    bool has_list = q->op.kind == OP_RESERVE || q->op.kind == OP_SETTLE || q->op.kind == OP_SWEEP;
    if (has_list) q->member.reservations_key = q->member.key;
    if (has_list) q->op.reservation = &q->reservation;
    list_init(&q->op.link);
}

static void submit(struct question *q)
{
    wire(q);
    q->is_cached = deny_cache_decide(&cache, &q->op, &clock_now);
    if (!q->is_cached) deny_cache_submitted(&cache, &q->op);
}

static void send(struct question *q)
{
    q->sent_us = clock_now.mono_us;
}

static void execute(struct question *q)
{
    assert_int_equal(store_submit(&fixture.store, &q->op), SUBMIT_DECIDED);
    q->op.source = SOURCE_REDIS;
}

static void reply(struct question *q)
{
    deny_cache_learn(&cache, &q->op, q->sent_us, clock_now.wall_us);
    deny_cache_ended(&cache, &q->op);
}

static void ask(struct question *q)
{
    submit(q);
    if (q->is_cached) return;
    send(q);
    execute(q);
    reply(q);
}

static struct decision check(const struct limit *limit, const char *key, int64_t cost, enum source source)
{
    struct question q = question(limit, key, OP_CHECK, cost);
    ask(&q);
    if (q.op.source != source)
        fail_msg("%s %s cost %" PRId64 " came from %s", limit->policy->name, key, cost, source_name(q.op.source));
    if (q.is_cached) assert_false(q.member.decision.allowed);
    return q.member.decision;
}

static void give(const struct limit *limit, const char *key, enum op_kind kind, int64_t cost)
{
    struct question q = question(limit, key, kind, cost);
    ask(&q);
}

/* ---- what is kept ---- */

static void an_equal_or_larger_check_is_denied_without_asking(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 10, LONG_WAIT_S * S);
    assert_true(check(limit, "k", 8, SOURCE_REDIS).allowed);
    struct decision first = check(limit, "k", 5, SOURCE_REDIS);
    pass(100 * MS);
    struct decision again = check(limit, "k", 5, SOURCE_DENY_CACHE);
    assert_int_equal(first.remaining, 2);
    assert_int_equal(again.remaining, 2);
    assert_int_equal(again.limit, 10);
    assert_int_equal(again.granted, 0);
    assert_int_equal(again.retry_after_ms, first.retry_after_ms - 100);
    assert_int_equal(again.reset_after_ms, first.reset_after_ms - 100);
    assert_int_equal(check(limit, "k", 11, SOURCE_DENY_CACHE).retry_after_ms, RETRY_NEVER);
    assert_int_equal(redis_counters.denied_from_cache, 2);
    (void)check(limit, "other", 5, SOURCE_REDIS);
}

/* The prototype denied the 2 as well. */
static void a_smaller_check_asks_redis(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 10, LONG_WAIT_S * S);
    (void)check(limit, "k", 8, SOURCE_REDIS);
    (void)check(limit, "k", 5, SOURCE_REDIS);
    (void)check(limit, "k", 5, SOURCE_DENY_CACHE);
    assert_true(check(limit, "k", 2, SOURCE_REDIS).allowed);
    assert_int_equal(check(limit, "k", 5, SOURCE_REDIS).remaining, 0);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
    (void)check(limit, "k", 5, SOURCE_DENY_CACHE);
}

static void as_many_as_fit_count_as_one(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 10, LONG_WAIT_S * S);
    (void)check(limit, "k", 8, SOURCE_REDIS);
    (void)check(limit, "k", 5, SOURCE_REDIS);
    struct question some = question(limit, "k", OP_CHECK, 1);
    some.op.at_most = 5;
    ask(&some);
    assert_false(some.is_cached);
    assert_int_equal(some.member.decision.granted, 2);

    some = question(limit, "k", OP_CHECK, 1);
    some.op.at_most = 5;
    ask(&some);
    assert_false(some.is_cached || some.member.decision.allowed);
    some = question(limit, "k", OP_CHECK, 1);
    some.op.at_most = 3;
    ask(&some);
    assert_true(some.is_cached);
    (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
}

static void a_longer_wait_asks_redis(void **state)
{
    (void)state;
    struct limit *limit = (struct limit *)limit_of("p", ALGO_LEAKY_BUCKET, 10, 10 * S);
    struct diag diag = {0};
    limit->max_wait_us = 3 * S; /* three units */
    assert_int_equal(limit_prepare(limit, NULL, &diag), 0);
    for (int i = 0; i < 11; i++) (void)check(limit, "k", 1, SOURCE_REDIS);

    struct question q = question(limit, "k", OP_CHECK, 1);
    q.member.max_wait_us = 0;
    ask(&q);
    assert_false(q.member.decision.allowed);
    q = question(limit, "k", OP_CHECK, 1);
    q.member.max_wait_us = 0;
    ask(&q);
    assert_true(q.is_cached);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
}

static void a_denial_ends_when_enough_has_come_back(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_BUCKET, 10, S);
    (void)check(limit, "k", 10, SOURCE_REDIS);
    struct decision denied = check(limit, "k", 3, SOURCE_REDIS);
    assert_int_equal(denied.retry_after_ms, 300);
    pass(250 * MS);
    denied = check(limit, "k", 3, SOURCE_DENY_CACHE);
    assert_int_equal(denied.retry_after_ms, 50);
    assert_int_equal(denied.remaining, 2);
    assert_int_equal(denied.reset_after_ms, 750);
    assert_int_equal(check(limit, "k", 5, SOURCE_DENY_CACHE).retry_after_ms, 250);
    pass(50 * MS - 1);
    assert_int_equal(check(limit, "k", 3, SOURCE_DENY_CACHE).retry_after_ms, 1);
    pass(1);
    assert_true(check(limit, "k", 3, SOURCE_REDIS).allowed);
}

static void a_denial_counts_from_before_its_call_was_written(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_BUCKET, 10, S);
    (void)check(limit, "k", 10, SOURCE_REDIS);
    struct question q = question(limit, "k", OP_CHECK, 1);
    submit(&q);
    pass(40 * MS); /* it waits to be sent */
    send(&q);
    pass(5 * MS);
    execute(&q);
    pass(7 * MS);
    reply(&q);
    assert_int_equal(q.member.decision.retry_after_ms, 55);
    assert_int_equal(check(limit, "k", 1, SOURCE_DENY_CACHE).retry_after_ms, 43);
    pass(43 * MS);
    (void)check(limit, "k", 1, SOURCE_REDIS); /* 5 ms too early, and Redis says so */
}

static void redis_is_asked_again_after_max_age(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    for (int i = 0; i < 3; i++) {
        pass(MAX_AGE_S * S - 1);
        (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
        pass(1);
        (void)check(limit, "k", 1, SOURCE_REDIS);
    }
    clock_now.mono_us -= 1; /* which it does not do */
    (void)check(limit, "k", 1, SOURCE_REDIS);
}

/* Each of the units that are missing comes back at a time of its own, which only Redis knows. */
static void a_logs_denial_is_kept_for_the_cost_that_fits_next(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_SLIDING_LOG, 4, S);
    for (int i = 0; i < 4; i++) {
        (void)check(limit, "k", 1, SOURCE_REDIS);
        pass(100 * MS);
    }
    assert_int_equal(check(limit, "k", 1, SOURCE_REDIS).retry_after_ms, 600);
    pass(1);
    struct decision again = check(limit, "k", 1, SOURCE_DENY_CACHE);
    assert_int_equal(again.retry_after_ms, 600);
    assert_int_equal(again.reset_after_ms, 900);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
    pass(600 * MS - 2);
    (void)check(limit, "k", 1, SOURCE_DENY_CACHE);
    pass(1);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
}

static void only_plain_checks_are_asked_and_kept(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 1, SOURCE_REDIS);

    struct question named = question(limit, "k", OP_CHECK, 1);
    named.op.record = slice_of("note1:x");
    named.op.record_ms = 1000;
    struct question of_all = question(limit, "k", OP_CHECK, 1);
    of_all.op.is_all = true;
    struct question peek = question(limit, "k", OP_PEEK, 1);
    struct question free_of_cost = question(limit, "k", OP_CHECK, 0);
    struct question *others[] = {&named, &of_all, &peek, &free_of_cost};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            ask(others[i]);
            assert_false(others[i]->is_cached);
        }
        assert_int_equal(cache.table != NULL, round); /* none of them makes an entry */
        (void)check(limit, "k", 1, round == 0 ? SOURCE_REDIS : SOURCE_DENY_CACHE);
    }
}

static void some_policies_are_not_kept(void **state)
{
    (void)state;
    const struct limit_spec day = {.name = "day", .algo = ALGO_FIXED_WINDOW, .limit = 1, .window_us = LONG_WAIT_S * S};
    struct limit_spec counted = day, hour = day, slots = day, foreign = day;
    counted.name = slots.name = foreign.name = NULL;
    counted.count_denied = true;
    hour.name = "hour";
    slots.algo = ALGO_CONCURRENCY;
    foreign.algo = (enum algo)compat_of_name("rlaas-fixed");
    const struct policy_spec specs[] = {{.name = "shadow", .shadow = true, .limits = {day}},
                                        {.name = "counted", .limits = {counted}},
                                        {.name = "two", .limits = {day, hour}},
                                        {.name = "slots", .limits = {slots}},
                                        {.name = "foreign", .limits = {foreign}},
                                        {.name = "tried", .limits = {day}, .candidate = {day}}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        const struct policy *policy = policies_add(fixture.set, &specs[i]);
        const struct limit *limit = policy->candidate != NULL ? &policy->candidate->limits[0] : &policy->limits[0];
        for (int n = 0; n < 3; n++) { /* a denial, by whatever limit */
            struct question q = question(limit, "k", OP_CHECK, 1);
            submit(&q);
            assert_false(q.is_cached);
            q.member.decision = (struct decision){.retry_after_ms = 1000};
            q.member.seen1 = 1;
            q.op.now_us = clock_now.wall_us;
            reply(&q);
        }
        assert_null(cache.table);
    }
}

static void long_keys_are_not_kept(void **state)
{
    (void)state;
    char key[DENY_CACHE_KEY_MAX + 2];
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    memset(key, 'k', sizeof key);
    key[DENY_CACHE_KEY_MAX + 1] = '\0';
    (void)check(limit, key, 2, SOURCE_REDIS);
    (void)check(limit, key, 2, SOURCE_REDIS);
    key[DENY_CACHE_KEY_MAX] = '\0';
    (void)check(limit, key, 2, SOURCE_REDIS);
    (void)check(limit, key, 2, SOURCE_DENY_CACHE);
}

/* "a" of policy "pa" is not "aa" of policy "p". */
static void an_entry_belongs_to_a_policy_and_a_version_of_it(void **state)
{
    (void)state;
    const struct limit *one = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    const struct limit *other = limit_of("pa", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(one, "k", 2, SOURCE_REDIS);
    (void)check(other, "k", 2, SOURCE_REDIS);
    (void)check(one, "k", 2, SOURCE_DENY_CACHE);

    struct policy_set *set = policy_set_new(16);
    const struct policy_spec raised = {
        .name = "p", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 2, .window_us = LONG_WAIT_S * S}}};
    const struct limit *now = &policies_add(set, &raised)->limits[0];
    assert_true(check(now, "k", 2, SOURCE_REDIS).allowed);
    (void)check(now, "k", 2, SOURCE_REDIS);
    (void)check(now, "k", 2, SOURCE_DENY_CACHE);
    (void)check(one, "k", 2, SOURCE_REDIS); /* of a request from before the reload */
    policy_set_unref(set);
}

/* The small limit's denial once answered the large one's checks: with `allowed`, and nothing was charged. */
static void a_denial_by_the_smaller_limit_of_a_shared_counter_does_not_answer_the_larger_one(void **state)
{
    (void)state;
    enum algo algos[N_ALGOS];
    for (size_t n = natives(algos); n-- > 0;) {
        const struct limit *small = limit_of(algo_table[algos[n]]->key_tag, algos[n], 5, 86400 * S);
        if (limit_is_bucket(small)) continue;
        const struct limit *large = overridden(small, 20);
        for (int i = 0; i < 5; i++) assert_true(check(large, "k", 1, SOURCE_REDIS).allowed);
        for (int64_t used = 5; used < 20; used++) {
            assert_int_equal(check(small, "k", 1, SOURCE_REDIS).limit, 5);
            assert_int_equal(check(small, "k", 1, SOURCE_DENY_CACHE).limit, 5);
            assert_int_equal(check(large, "k", 1, SOURCE_REDIS).remaining, 20 - used - 1);
        }
        assert_false(check(large, "k", 1, SOURCE_REDIS).allowed);
        assert_int_equal(check(large, "k", 1, SOURCE_DENY_CACHE).limit, 20);
    }
}

/* It once answered them until it was too old, although the large limit had some available again. */
static void a_logs_denial_by_one_limit_denies_nothing_by_another_one(void **state)
{
    (void)state;
    const struct limit *small = limit_of("p", ALGO_SLIDING_LOG, 2, S), *large = overridden(small, 8);
    for (int i = 0; i < 8; i++) {
        (void)check(large, "k", 1, SOURCE_REDIS);
        pass(10 * MS);
    }
    assert_int_equal(check(small, "k", 1, SOURCE_REDIS).retry_after_ms, 980);
    assert_int_equal(check(small, "k", 1, SOURCE_DENY_CACHE).retry_after_ms, 980);
    pass(930 * MS);
    (void)check(small, "k", 1, SOURCE_DENY_CACHE);
    assert_true(check(large, "k", 1, SOURCE_REDIS).allowed);

    /* Both pass when one is left, but until then more and more remain for the large one. */
    assert_int_equal(check(small, "k", 1, SOURCE_REDIS).remaining, 0);
    assert_int_equal(check(large, "k", 7, SOURCE_REDIS).remaining, 1);
    (void)check(small, "k", 1, SOURCE_DENY_CACHE);
}

/* ---- what removes it ---- */

static void whatever_gives_units_back_removes_the_entry(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    static const enum op_kind givers[] = {OP_RESET, OP_REFUND, OP_RESERVE, OP_SETTLE, OP_SWEEP};
    for (size_t i = 0; i < sizeof givers / sizeof givers[0]; i++) {
        (void)check(limit, "k", 2, SOURCE_REDIS);
        (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
        give(limit, "k", givers[i], givers[i] == OP_REFUND);
        (void)check(limit, "k", 2, SOURCE_REDIS);
        give(limit, "other", givers[i], 0);
        (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
        deny_cache_clear(&cache);
    }
}

static void an_admission_removes_an_older_denial(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 10, LONG_WAIT_S * S);
    (void)check(limit, "k", 8, SOURCE_REDIS);
    struct question five = question(limit, "k", OP_CHECK, 5), one = question(limit, "k", OP_CHECK, 1);
    submit(&five);
    submit(&one);
    send(&five);
    send(&one);
    execute(&five);
    execute(&one);
    reply(&five);
    reply(&one);
    assert_true(one.member.decision.allowed);
    assert_int_equal(check(limit, "k", 5, SOURCE_REDIS).remaining, 1);
}

/* The denial is older than the refund, and its reply comes after it. */
static void a_denial_from_before_a_refund_is_not_kept(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    struct question denied = question(limit, "k", OP_CHECK, 1), refund = question(limit, "k", OP_REFUND, 1);
    submit(&denied);
    send(&denied);
    execute(&denied);
    submit(&refund);
    send(&refund);
    execute(&refund);
    reply(&denied);
    reply(&refund);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
}

/* A check of another connection, submitted behind the refund, is sent before it. */
static void a_denial_that_overtook_a_refund_is_not_kept(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    struct question refund = question(limit, "k", OP_REFUND, 1), denied = question(limit, "k", OP_CHECK, 1);
    submit(&refund);
    submit(&denied);
    send(&denied);
    send(&refund);
    execute(&denied);
    reply(&denied);
    execute(&refund);
    reply(&refund);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
}

static void a_refund_that_came_to_nothing_ends_too(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    struct question refund = question(limit, "k", OP_REFUND, 1);
    submit(&refund);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    deny_cache_ended(&cache, &refund.op); /* withdrawn, or lost */
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
}

static void everything_goes_with_the_connection_and_at_a_reload(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    struct question under_way = question(limit, "other", OP_CHECK, 2);
    submit(&under_way);
    send(&under_way);
    deny_cache_clear(&cache);
    execute(&under_way);
    reply(&under_way);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "other", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);

    deny_cache_set_options(&cache, 64, 2 * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    pass(2 * S - 1);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
    deny_cache_set_options(&cache, 0, 2 * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    deny_cache_set_options(&cache, 1, 2 * S);
    (void)check(limit, "k", 2, SOURCE_REDIS);
    (void)check(limit, "k", 2, SOURCE_DENY_CACHE);
}

/* ---- memory ---- */

static void memory_is_taken_at_the_first_denial_and_once(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    assert_true(check(limit, "k", 1, SOURCE_REDIS).allowed);
    assert_null(cache.table);

    struct question q = question(limit, "k", OP_CHECK, 1);
    submit(&q);
    execute(&q);
    mem_fail_nth(1);
    reply(&q);
    mem_fail_nth(0);
    assert_null(cache.table);
    (void)check(limit, "k", 1, SOURCE_REDIS);
    assert_non_null(cache.table);

    char key[24];
    uint64_t before = mem_n_allocs();
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "k%d", i);
        (void)check(limit, key, 2, SOURCE_REDIS); /* leaves no state in the memory store */
    }
    assert_int_equal(mem_n_allocs(), before);
}

static size_t n_kept(const struct limit *limit, int n)
{
    char key[24];
    size_t kept = 0;
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "k%d", i);
        struct question q = question(limit, key, OP_CHECK, 2);
        submit(&q);
        kept += q.is_cached;
    }
    return kept;
}

static void a_full_table_keeps_as_many_as_it_may_the_newest_of_each_set(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 5, 8, 64, 100};
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, LONG_WAIT_S * S);
    char key[24];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        deny_cache_set_options(&cache, sizes[i], LONG_WAIT_S * S);
        for (int n = 0; n < 2000; n++) {
            snprintf(key, sizeof key, "k%d", n);
            (void)check(limit, key, 2, SOURCE_REDIS);
            (void)check(limit, key, 2, SOURCE_DENY_CACHE);
            pass(1);
        }
        assert_int_equal(n_kept(limit, 2000), sizes[i] / 8 * 8 + (sizes[i] < 8 ? sizes[i] : 0));
    }
}

/* ---- random traces ---- */

enum { N_KEYS = 3, N_UNDER_WAY = 8, N_HELD = 16 };

static uint64_t dice;
static const struct limit *limits[3]; /* of the counter of a trace: its policy's, and those of overrides */
static size_t n_limits;

static int64_t below(int64_t n)
{
    return (int64_t)random_below(&dice, (uint64_t)n);
}

/* A seed's algorithm: one after the other. */
static enum algo algo_of(uint64_t seed)
{
    enum algo algos[N_ALGOS];
    return algos[seed % natives(algos)];
}

/* Small, so that much is denied, and a window that ends now and then. */
static const struct limit *random_limit(enum algo algo)
{
    static int n;
    char name[24];
    struct diag diag = {0};
    snprintf(name, sizeof name, "t%d", n++);
    int64_t window_us = algo == ALGO_CALENDAR_WINDOW ? 3600 * S : (1 + below(40)) * 50 * MS;
    struct limit *limit = (struct limit *)limit_of(name, algo, 1 + below(8), window_us);
    limit->phase = algo == ALGO_FIXED_WINDOW && below(2) == 0;
    if (algo == ALGO_LEAKY_BUCKET) limit->max_wait_us = window_us / 3;
    assert_int_equal(limit_prepare(limit, NULL, &diag), 0);
    policy_seal((struct policy *)limit->policy);

    limits[0] = limit;
    n_limits = limit_is_bucket(limit) || below(2) == 0 ? 1 : 3;
    for (size_t i = 1; i < n_limits; i++) limits[i] = overridden(limit, limit->limit + below(9));
    return limit;
}

struct held {
    struct op_reservation reservation;
    char key[256];
} held[N_HELD];
static size_t n_held;

static struct question random_question(void)
{
    const struct limit *limit = limits[below((int64_t)n_limits)];
    char key[8];
    snprintf(key, sizeof key, "k%d", (int)below(N_KEYS));
    int64_t kind = below(100);
    struct question q = question(limit, key, OP_CHECK, 1 + below(3) * below(3) * below(4));
    if (limit->max_wait_us > 0 && below(2) == 0) q.member.max_wait_us = below(3) * limit->max_wait_us / 2;
    if (q.member.cost > limit->max_cost && q.member.cost <= limit->full) q.member.cost = 1;
    if (kind < 4) {
        q.op.kind = OP_RESET;
    } else if (kind < 10) {
        q.op.kind = OP_REFUND;
        q.member.cost = 1 + below(3);
    } else if (kind < 16) {
        q.op.kind = OP_RESERVE;
        q.reservation =
            (struct op_reservation){.id = random_next(&dice), .units = q.member.cost, .ttl_ms = 1 + below(2000)};
    } else if (kind < 20 && n_held > 0) {
        struct held *one = &held[--n_held];
        q = question(limit, one->key, OP_SETTLE, 0);
        q.reservation = one->reservation;
        q.reservation.actual = below(4);
    } else if (kind < 24) {
        q.op.kind = OP_SWEEP;
        q.member.cost = 0;
    } else if (kind < 28) {
        q.op.kind = OP_PEEK;
    } else if (kind < 31) {
        q.op.is_all = true;
    } else if (kind < 36) {
        q.member.cost = 1;
        q.op.at_most = 1 + below(limit->max_cost < 4 ? limit->max_cost : 4);
    }
    return q;
}

static void remember_held(const struct question *q)
{
    if (q->op.kind != OP_RESERVE || !q->reservation.held || n_held == N_HELD) return;
    held[n_held].reservation = q->reservation;
    snprintf(held[n_held++].key, sizeof held[0].key, "%s", q->key);
}

static void pass_random(const struct limit *limit)
{
    int64_t much = limit->algo == ALGO_CALENDAR_WINDOW && below(20) == 0 ? limit->window_us : limit->window_us / 10;
    if (below(3) > 0) pass(below(4) == 0 ? below(much) : below(5 * MS));
}

static void same_answers(const struct decision *a, const struct decision *b, const char *what)
{
    if (a->allowed == b->allowed && a->limit == b->limit && a->remaining == b->remaining &&
        a->retry_after_ms == b->retry_after_ms && a->reset_after_ms == b->reset_after_ms &&
        a->delay_ms == b->delay_ms && a->granted == b->granted)
        return;
    fail_msg("%s: cached allowed %d remaining %" PRId64 " retry %" PRId64 " reset %" PRId64 " granted %" PRId64
             ", plain %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
             what, a->allowed, a->remaining, a->retry_after_ms, a->reset_after_ms, a->granted, b->allowed, b->remaining,
             b->retry_after_ms, b->reset_after_ms, b->granted);
}

/* Replies come at once: every field is what the store would have answered. */
static void at_once_every_answer_is_the_plain_one(void **state)
{
    (void)state;
    uint64_t n_cached = 0, n_denied = 0;
    for (uint64_t seed = 1; seed <= 700; seed++) {
        struct memory_fixture plain;
        enum algo algo = algo_of(seed);
        char what[64];
        snprintf(what, sizeof what, "%s, seed %" PRIu64, algo_table[algo]->name, seed);
        dice = seed;
        n_held = 0;
        open_fixture(below(3) == 0 ? 2 : 64);
        deny_cache_set_options(&cache, cache.max_keys, below(2) == 0 ? S / 10 : LONG_WAIT_S * S);
        memory_fixture_open(&plain, WALL, &(struct memory_options){.max_keys = 1000});
        const struct limit *limit = random_limit(algo);
        for (int step = 0; step < 400; step++) {
            pass_random(limit);
            plain.now.wall_us = fixture.now.wall_us;
            struct question q = random_question(), same = q;
            ask(&q);
            wire(&same);
            assert_int_equal(store_submit(&plain.store, &same.op), SUBMIT_DECIDED);
            if (q.op.kind != OP_RESET) same_answers(&q.member.decision, &same.member.decision, what);
            remember_held(&q);
            n_cached += q.is_cached;
            n_denied += op_is_check(q.op.kind) && !q.member.decision.allowed;
        }
        deny_cache_fini(&cache);
        assert_int_equal(memory_fixture_close(&fixture), 0);
        assert_int_equal(memory_fixture_close(&plain), 0);
    }
    open_fixture(64);
    if (n_cached < n_denied / 4) fail_msg("only %" PRIu64 " of %" PRIu64 " denials were kept", n_cached, n_denied);
}

/* ---- with ops under way ---- */

enum stage { FREE, WAITING, SENT, EXECUTED };

static struct {
    struct question q;
    enum stage stage;
    uint64_t order; /* of sending */
} under_way[N_UNDER_WAY];

static size_t find_stage(enum stage stage)
{
    size_t found = N_UNDER_WAY;
    for (size_t i = 0; i < N_UNDER_WAY; i++)
        if (under_way[i].stage == stage && (found == N_UNDER_WAY || under_way[i].order < under_way[found].order))
            found = i;
    return found;
}

static bool has_giver(const char *key)
{
    for (size_t i = 0; i < N_UNDER_WAY; i++) {
        const struct op *op = &under_way[i].q.op;
        bool gives = op->kind != OP_CHECK && op->kind != OP_PEEK;
        if (under_way[i].stage != FREE && gives && strcmp(under_way[i].q.key, key) == 0) return true;
    }
    return false;
}

/* What the server would answer now; changes nothing. */
static struct decision truth(const struct question *q)
{
    struct question peek = *q;
    peek.op.kind = OP_PEEK;
    peek.op.at_most = 0;
    wire(&peek);
    assert_int_equal(store_submit(&fixture.store, &peek.op), SUBMIT_DECIDED);
    return peek.member.decision;
}

static bool start_one(const char *what)
{
    size_t at = find_stage(FREE);
    if (at == N_UNDER_WAY) return false;
    struct question *q = &under_way[at].q;
    *q = random_question();
    submit(q);
    if (!q->is_cached) {
        under_way[at].stage = WAITING;
        under_way[at].order = random_next(&dice); /* they overtake each other */
        return false;
    }

    struct decision now = truth(q), *said = &q->member.decision;
    if (now.allowed || has_giver(q->key)) fail_msg("%s: %s was wrongly denied", what, q->key);
    if (now.retry_after_ms != RETRY_NEVER && said->retry_after_ms > now.retry_after_ms)
        fail_msg("%s: retry %" PRId64 " is later than %" PRId64, what, said->retry_after_ms, now.retry_after_ms);
    return true;
}

static void move_one(uint64_t *n_sent)
{
    size_t at;
    switch (below(4)) {
    case 0:
        if ((at = find_stage(WAITING)) == N_UNDER_WAY) return;
        if (below(30) == 0) { /* withdrawn */
            deny_cache_ended(&cache, &under_way[at].q.op);
            under_way[at].stage = FREE;
            return;
        }
        under_way[at].stage = SENT;
        under_way[at].order = ++*n_sent;
        send(&under_way[at].q);
        return;
    case 1:
    case 2:
        if ((at = find_stage(SENT)) == N_UNDER_WAY) return;
        execute(&under_way[at].q);
        under_way[at].stage = EXECUTED;
        return;
    default:
        if ((at = find_stage(EXECUTED)) == N_UNDER_WAY) return;
        reply(&under_way[at].q);
        remember_held(&under_way[at].q);
        under_way[at].stage = FREE;
    }
}

static void nothing_is_denied_that_the_server_would_admit(void **state)
{
    (void)state;
    uint64_t n_cached = 0;
    for (uint64_t seed = 1; seed <= 700; seed++) {
        enum algo algo = algo_of(seed);
        char what[64];
        snprintf(what, sizeof what, "%s, seed %" PRIu64, algo_table[algo]->name, seed);
        dice = ~seed;
        n_held = 0;
        uint64_t n_sent = 0;
        open_fixture(below(3) == 0 ? 2 : 64);
        deny_cache_set_options(&cache, cache.max_keys, LONG_WAIT_S * S);
        const struct limit *limit = random_limit(algo);
        for (size_t i = 0; i < N_UNDER_WAY; i++) under_way[i].stage = FREE;
        for (int step = 0; step < 1200; step++) {
            pass_random(limit);
            if (below(400) == 0) deny_cache_clear(&cache);
            if (below(3) == 0) n_cached += start_one(what);
            move_one(&n_sent);
        }
        deny_cache_fini(&cache);
        assert_int_equal(memory_fixture_close(&fixture), 0);
    }
    open_fixture(64);
    if (n_cached < 2000) fail_msg("only %" PRIu64 " denials came from the cache", n_cached);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_equal_or_larger_check_is_denied_without_asking, setup, teardown),
        cmocka_unit_test_setup_teardown(a_smaller_check_asks_redis, setup, teardown),
        cmocka_unit_test_setup_teardown(as_many_as_fit_count_as_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_longer_wait_asks_redis, setup, teardown),
        cmocka_unit_test_setup_teardown(a_denial_ends_when_enough_has_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_denial_counts_from_before_its_call_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(redis_is_asked_again_after_max_age, setup, teardown),
        cmocka_unit_test_setup_teardown(a_logs_denial_is_kept_for_the_cost_that_fits_next, setup, teardown),
        cmocka_unit_test_setup_teardown(only_plain_checks_are_asked_and_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(some_policies_are_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(long_keys_are_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(an_entry_belongs_to_a_policy_and_a_version_of_it, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_denial_by_the_smaller_limit_of_a_shared_counter_does_not_answer_the_larger_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_logs_denial_by_one_limit_denies_nothing_by_another_one, setup, teardown),
        cmocka_unit_test_setup_teardown(whatever_gives_units_back_removes_the_entry, setup, teardown),
        cmocka_unit_test_setup_teardown(an_admission_removes_an_older_denial, setup, teardown),
        cmocka_unit_test_setup_teardown(a_denial_from_before_a_refund_is_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_denial_that_overtook_a_refund_is_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refund_that_came_to_nothing_ends_too, setup, teardown),
        cmocka_unit_test_setup_teardown(everything_goes_with_the_connection_and_at_a_reload, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_taken_at_the_first_denial_and_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_table_keeps_as_many_as_it_may_the_newest_of_each_set, setup, teardown),
        cmocka_unit_test_setup_teardown(at_once_every_answer_is_the_plain_one, NULL, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_denied_that_the_server_would_admit, NULL, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
