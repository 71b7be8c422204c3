/* test_memory_store.c: every algorithm through the memory store, and the table's bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/random.h"
#include "fakes/memory_fixture.h"
#include "fakes/policies.h"
#include "store/memory_counters.h"

#define SECOND_US INT64_C(1000000)
#define DAY_US    (86400 * SECOND_US)

static struct memory_fixture fixture;

static void open_store(uint64_t max_keys, uint64_t max_bytes, bool sweep)
{
    struct memory_options options = {.max_keys = max_keys, .max_bytes = max_bytes, .sweep = sweep, .counted = true};
    memory_fixture_open(&fixture, 1700000000 * SECOND_US, &options);
}

static int set_up(void **state)
{
    (void)state;
    open_store(1000, 0, true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return memory_fixture_close(&fixture);
}

static const struct limit *limit_of(const char *name, enum algo algo, int64_t limit, int64_t window_us)
{
    struct policy_spec spec = {.name = name, .limits = {{.algo = algo, .limit = limit, .window_us = window_us}}};
    return &policies_add(fixture.set, &spec)->limits[0];
}

static void take_new_slot(struct op *op)
{
    static unsigned n;
    static char id[SLOT_ID_LEN + 1];
    snprintf(id, sizeof id, "%032u", n++);
    op->kind = OP_ACQUIRE;
    op->slot = id;
}

static struct op_member ask(enum op_kind kind, const struct limit *limit, const char *key, int64_t cost)
{
    struct op_member member = {.limit = limit, .key = slice_of(key), .cost = cost};
    struct op op = {.kind = kind, .n_members = 1, .members = &member};
    if (kind == OP_CHECK && limit->algo == ALGO_CONCURRENCY) take_new_slot(&op);
    assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
    return member;
}

static struct decision check(const struct limit *limit, const char *key, int64_t cost)
{
    return ask(OP_CHECK, limit, key, cost).decision;
}

static void check_numbered(const struct limit *limit, size_t i)
{
    char key[32];
    snprintf(key, sizeof key, "key-%zu", i);
    check(limit, key, 1);
}

static void advance_us(int64_t us)
{
    memory_fixture_advance(&fixture, us);
}

static void each_algorithm_admits_its_limit_and_again_after_its_retry(void **state)
{
    (void)state;
    for (int algo = 0; algo < N_ALGOS; algo++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", algo);
        const struct limit *limit = limit_of(name, (enum algo)algo, 3, 10 * SECOND_US);
        for (int i = 0; i < 3; i++) {
            struct decision allowed = check(limit, "alice", 1);
            assert_true(allowed.allowed);
            assert_int_equal(allowed.remaining, 2 - i);
            assert_int_equal(allowed.granted, 1);
            advance_us(1000);
        }
        struct decision denied = check(limit, "alice", 1);
        assert_false(denied.allowed);
        assert_int_equal(denied.granted, 0);
        assert_in_range(denied.retry_after_ms, 1, limit->window_us / 500); /* a sliding counter looks a window ahead */
        assert_true(check(limit, "bob", 1).allowed);
        advance_us(denied.retry_after_ms * 1000);
        assert_true(check(limit, "alice", 1).allowed);
        advance_us(10 * limit->window_us);
        assert_int_equal(check(limit, "alice", 1).remaining, 2);
    }
}

static void each_algorithm_peeks_what_a_check_would_get(void **state)
{
    (void)state;
    for (int algo = 0; algo < N_ALGOS; algo++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", algo);
        const struct limit *limit = limit_of(name, (enum algo)algo, 4, 10 * SECOND_US);
        uint64_t seed = 12345;
        for (int i = 0; i < 500; i++) {
            bool by_one = limit_ops(limit)->is_compat || algo == ALGO_CONCURRENCY;
            int64_t cost = (int64_t)random_below(&seed, by_one ? 2 : 6);
            struct decision peeked = ask(OP_PEEK, limit, "alice", cost).decision;
            struct decision checked = check(limit, "alice", cost);
            assert_memory_equal(&peeked, &checked, sizeof peeked);
            advance_us((int64_t)random_below(&seed, 3 * SECOND_US));
        }
    }
}

static void a_peek_of_an_unknown_key_keeps_nothing(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 3, 10 * SECOND_US);
    assert_int_equal(ask(OP_PEEK, limit, "alice", 1).decision.remaining, 2);
    assert_int_equal(ask(OP_PEEK, limit, "alice", 0).decision.remaining, 3);
    assert_int_equal(check(limit, "alice", 0).remaining, 3);
    assert_false(check(limit, "alice", 4).allowed);
    assert_int_equal(memory_store_n_keys(fixture.memory), 0);
}

static void a_reset_says_whether_a_state_was_there(void **state)
{
    (void)state;
    for (int algo = 0; algo < N_ALGOS; algo++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", algo);
        const struct limit *limit = limit_of(name, (enum algo)algo, 1, 10 * SECOND_US);
        assert_false(ask(OP_RESET, limit, "alice", 0).removed);
        check(limit, "alice", 1);
        assert_false(check(limit, "alice", 1).allowed);
        assert_true(ask(OP_RESET, limit, "alice", 0).removed);
        assert_true(check(limit, "alice", 1).allowed);
        advance_us(10 * limit->window_us);
        assert_false(ask(OP_RESET, limit, "alice", 0).removed);
        assert_int_equal(memory_store_n_keys(fixture.memory), 0);
    }
}

static void counted_denials_are_charged(void **state)
{
    (void)state;
    struct policy_spec spec = {
        .name = "p",
        .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 3, .window_us = 10 * SECOND_US, .count_denied = true}}};
    const struct limit *limit = &policies_add(fixture.set, &spec)->limits[0];
    check(limit, "alice", 2);
    assert_false(check(limit, "alice", 2).allowed);
    assert_int_equal(check(limit, "alice", 0).remaining, 0);
}

static void one_key_of_two_policies_is_two_states(void **state)
{
    (void)state;
    const struct limit *a = limit_of("a", ALGO_FIXED_WINDOW, 1, 10 * SECOND_US);
    const struct limit *b = limit_of("b", ALGO_FIXED_WINDOW, 1, 10 * SECOND_US);
    assert_true(check(a, "alice", 1).allowed);
    assert_true(check(b, "alice", 1).allowed);
    assert_false(check(a, "alice", 1).allowed);
    assert_int_equal(memory_store_n_keys(fixture.memory), 2);
}

static void several_members_are_charged_all_or_none(void **state)
{
    (void)state;
    const struct limit *wide = limit_of("wide", ALGO_BUCKET, 10, 10 * SECOND_US);
    const struct limit *narrow = limit_of("narrow", ALGO_FIXED_WINDOW, 2, 10 * SECOND_US);
    for (int i = 0; i < 4; i++) {
        struct op_member members[] = {{.limit = wide, .key = slice_of("alice"), .cost = 1},
                                      {.limit = narrow, .key = slice_of("alice"), .cost = 1}};
        struct op op = {.kind = OP_CHECK, .n_members = 2, .members = members};
        assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
        assert_true(members[0].decision.allowed);
        assert_int_equal(members[1].decision.allowed, i < 2);
        assert_int_equal(members[0].decision.granted, i < 2);
    }
    assert_int_equal(check(wide, "alice", 0).remaining, 8);
    assert_int_equal(check(narrow, "alice", 0).remaining, 0);
}

static void sixteen_members_fit_an_almost_full_table(void **state)
{
    (void)state;
    struct op_member members[POLICY_LIMITS_MAX];
    char keys[POLICY_LIMITS_MAX][8];
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, 10 * SECOND_US);
    memory_store_set_max_keys(fixture.memory, 1);
    for (size_t i = 0; i < POLICY_LIMITS_MAX; i++) {
        snprintf(keys[i], sizeof keys[i], "%zu", i);
        members[i] = (struct op_member){.limit = limit, .key = slice_of(keys[i]), .cost = 1};
    }
    struct op op = {.kind = OP_CHECK, .n_members = POLICY_LIMITS_MAX, .members = members};
    assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
    for (size_t i = 0; i < POLICY_LIMITS_MAX; i++) assert_true(members[i].decision.allowed);
    store_flush(&fixture.store);
    assert_int_equal(memory_store_n_keys(fixture.memory), 1);
}

static void expired_keys_are_swept_a_few_per_tick(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, SECOND_US);
    const struct limit *lasting = limit_of("q", ALGO_FIXED_WINDOW, 1, DAY_US);
    for (size_t i = 0; i < 900; i++) check_numbered(limit, i);
    check(lasting, "alice", 1);
    store_flush(&fixture.store);
    assert_int_equal(memory_counters.memory_keys, 901);
    advance_us(2 * SECOND_US);
    size_t n_ticks = 0;
    for (; memory_store_n_keys(fixture.memory) > 1 && n_ticks < 100; n_ticks++) {
        size_t n_before = memory_store_n_keys(fixture.memory);
        store_flush(&fixture.store);
        assert_true(n_before - memory_store_n_keys(fixture.memory) <= 256);
    }
    assert_in_range(n_ticks, 900 / 256, 60);
    assert_int_equal(memory_counters.memory_expired, 900);
    assert_false(check(lasting, "alice", 1).allowed);
}

static void a_busy_daemon_sweeps_by_time_not_by_ticks(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, DAY_US);
    const struct limit *brief = limit_of("q", ALGO_FIXED_WINDOW, 1, SECOND_US);
    for (size_t i = 0; i < 100; i++) check_numbered(brief, i);
    for (size_t i = 0; i < 800; i++) check_numbered(limit, i);
    store_flush(&fixture.store);
    advance_us(2 * SECOND_US);
    for (int i = 0; i < 1000; i++) store_flush(&fixture.store);
    assert_in_range(memory_store_n_keys(fixture.memory), 801, 900);
    for (int i = 0; i < 100; i++) {
        advance_us(1000);
        store_flush(&fixture.store);
    }
    assert_int_equal(memory_store_n_keys(fixture.memory), 800);
}

/* As an override's limit, or a reloaded one, may be: of the same key, with more to wait for. */
static void a_state_lives_as_long_as_the_last_limit_that_wrote_it(void **state)
{
    (void)state;
    const struct limit *brief = limit_of("p", ALGO_BUCKET, 1, SECOND_US);
    struct policy_set *other = policy_set_new(16);
    struct policy_spec spec = {.name = "p",
                               .limits = {{.algo = ALGO_BUCKET, .limit = 100, .window_us = 1000 * SECOND_US}}};
    const struct limit *lasting = &policies_add(other, &spec)->limits[0];
    check(brief, "k", 1);
    check(lasting, "k", 90);
    for (int i = 0; i < 4; i++) {
        advance_us(10 * SECOND_US);
        store_flush(&fixture.store);
    }
    assert_int_equal(memory_store_n_keys(fixture.memory), 1);
    assert_false(check(lasting, "k", 50).allowed);
    policy_set_unref(other);
}

static void without_sweeping_an_expired_state_stays_and_counts_for_nothing(void **state)
{
    (void)state;
    assert_int_equal(memory_fixture_close(&fixture), 0);
    open_store(1000, 0, false);
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, SECOND_US);
    check(limit, "alice", 1);
    advance_us(10 * SECOND_US);
    for (int i = 0; i < 10; i++) store_flush(&fixture.store);
    assert_int_equal(memory_store_n_keys(fixture.memory), 1);
    assert_int_equal(ask(OP_PEEK, limit, "alice", 0).decision.remaining, 1);
    advance_us(-10 * SECOND_US);
    assert_int_equal(ask(OP_PEEK, limit, "alice", 0).decision.remaining, 0);
}

static void a_full_table_lets_the_earliest_of_a_sample_go(void **state)
{
    (void)state;
    const struct limit *brief = limit_of("brief", ALGO_FIXED_WINDOW, 1, SECOND_US);
    const struct limit *lasting = limit_of("lasting", ALGO_FIXED_WINDOW, 1, DAY_US);
    for (size_t i = 0; i < 500; i++) check_numbered(lasting, i);
    for (size_t i = 0; i < 2000; i++) check_numbered(brief, i);
    assert_int_equal(memory_store_n_keys(fixture.memory), 1000);
    assert_int_equal(memory_counters.memory_evicted, 1500);
    size_t n_kept = 0;
    for (size_t i = 0; i < 500; i++) {
        char key[32];
        snprintf(key, sizeof key, "key-%zu", i);
        n_kept += ask(OP_PEEK, lasting, key, 0).decision.remaining == 0;
    }
    assert_in_range(n_kept, 490, 500);
}

static void a_key_in_a_full_table_is_found_without_evicting(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_BUCKET, 1000, DAY_US);
    for (size_t i = 0; i < 1000; i++) check_numbered(limit, i);
    for (size_t i = 0; i < 1000; i++) check_numbered(limit, i);
    assert_int_equal(memory_counters.memory_evicted, 0);
    assert_int_equal(memory_store_n_keys(fixture.memory), 1000);
}

static void bytes_are_bounded_too(void **state)
{
    (void)state;
    enum { MAX_BYTES = 64 * 1024 };
    char key[1025];
    assert_int_equal(memory_fixture_close(&fixture), 0);
    open_store(100000, MAX_BYTES, true);
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, DAY_US);
    memset(key, 'k', sizeof key);
    key[1024] = '\0';
    for (int i = 0; i < 1000; i++) {
        snprintf(key, 8, "%07d", i);
        key[7] = 'k';
        check(limit, key, 1);
        assert_true(memory_counters.memory_bytes <= MAX_BYTES);
    }
    assert_in_range(memory_store_n_keys(fixture.memory), 40, 64);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, 8, "%07d", i);
        key[7] = 'k';
        ask(OP_RESET, limit, key, 0);
    }
    assert_int_equal(memory_counters.memory_bytes, 0);
}

static void a_new_key_takes_the_memory_of_a_removed_one(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, DAY_US);
    check(limit, "a key", 1);
    uint64_t n_bytes = memory_counters.memory_bytes, n_allocs = mem_n_allocs();
    for (int i = 0; i < 100; i++) {
        ask(OP_RESET, limit, "a key", 0);
        assert_int_equal(memory_counters.memory_bytes, 0);
        assert_true(check(limit, "its successor", 1).allowed);
        assert_int_equal(memory_counters.memory_bytes, n_bytes);
        ask(OP_RESET, limit, "its successor", 0);
        assert_true(check(limit, "a key", 1).allowed);
    }
    assert_int_equal(mem_n_allocs(), n_allocs);
}

static void lowering_max_keys_evicts_in_later_ticks(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, DAY_US);
    for (size_t i = 0; i < 1000; i++) check_numbered(limit, i);
    memory_store_set_max_keys(fixture.memory, 100);
    assert_int_equal(memory_store_n_keys(fixture.memory), 1000);
    store_flush(&fixture.store);
    assert_in_range(memory_store_n_keys(fixture.memory), 900, 999);
    for (int i = 0; i < 20; i++) store_flush(&fixture.store);
    assert_int_equal(memory_store_n_keys(fixture.memory), 100);
    memory_store_set_max_keys(fixture.memory, 5000);
    for (size_t i = 0; i < 3000; i++) check_numbered(limit, i);
    assert_int_equal(memory_store_n_keys(fixture.memory), 1000);
}

static void clearing_forgets_at_once_and_frees_a_slice_per_tick(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1, DAY_US);
    for (size_t i = 0; i < 1000; i++) check_numbered(limit, i);
    store_flush(&fixture.store);
    memory_store_clear(fixture.memory);
    assert_int_equal(memory_store_n_keys(fixture.memory), 0);
    assert_false(ask(OP_RESET, limit, "key-1", 0).removed);
    assert_int_equal(check(limit, "key-7", 1).remaining, 0);
    assert_int_equal(memory_store_n_keys(fixture.memory), 1);
    for (int i = 0; i < 2; i++) store_flush(&fixture.store);
    assert_true(memory_counters.memory_bytes > 300 * sizeof(struct state));
    for (int i = 0; i < 5; i++) store_flush(&fixture.store);
    assert_true(memory_counters.memory_bytes < 300);
    assert_false(check(limit, "key-7", 1).allowed);
    memory_store_clear(fixture.memory);
    memory_store_clear(fixture.memory);
    for (int i = 0; i < 3; i++) store_flush(&fixture.store);
    assert_int_equal(memory_counters.memory_bytes, 0);
}

static void a_clock_stepped_back_is_clamped_and_never_locks_a_key(void **state)
{
    (void)state;
    for (int algo = 0; algo < N_ALGOS; algo++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", algo);
        const struct limit *limit = limit_of(name, (enum algo)algo, 3, 10 * SECOND_US);
        for (int i = 0; i < 4; i++) check(limit, "alice", 1);
        fixture.now.wall_us -= 300 * DAY_US;
        check(limit, "alice", 1);
        fixture.now.wall_us += 21 * SECOND_US;
        assert_true(check(limit, "alice", 1).allowed);
    }
}

static void a_clock_stepped_back_does_not_keep_expired_keys(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_BUCKET, 3, 10 * SECOND_US);
    for (size_t i = 0; i < 100; i++) check_numbered(limit, i);
    fixture.now.wall_us -= 300 * DAY_US;
    for (int i = 0; i < 10; i++) {
        advance_us(1000);
        store_flush(&fixture.store);
    }
    assert_int_equal(memory_store_n_keys(fixture.memory), 100);
    advance_us(30 * SECOND_US);
    for (int i = 0; i < 10; i++) {
        advance_us(1000);
        store_flush(&fixture.store);
    }
    assert_int_equal(memory_store_n_keys(fixture.memory), 0);
}

static void known_keys_are_decided_without_an_allocation(void **state)
{
    (void)state;
    for (int algo = 0; algo < N_ALGOS; algo++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", algo);
        const struct limit *limit = limit_of(name, (enum algo)algo, 4, 10 * SECOND_US);
        for (int i = 0; i < 10; i++) check(limit, "alice", 1);
        uint64_t n_before = mem_n_allocs();
        for (int i = 0; i < 1000; i++) {
            check(limit, "alice", 1);
            advance_us(SECOND_US);
        }
        assert_int_equal(mem_n_allocs(), n_before);
    }
}

static void a_failed_allocation_refuses_and_changes_nothing(void **state)
{
    (void)state;
    for (int algo = 0; algo < N_ALGOS; algo++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", algo);
        const struct limit *limit = limit_of(name, (enum algo)algo, 100, 10 * SECOND_US);
        int64_t remaining = 100;
        for (uint64_t i = 0; i < 20; i++) {
            struct op_member member = {.limit = limit, .key = slice_of("alice"), .cost = 1};
            struct op op = {.kind = OP_CHECK, .n_members = 1, .members = &member};
            if (algo == ALGO_CONCURRENCY) take_new_slot(&op);
            mem_fail_nth(1 + i % 2);
            enum submit submit = store_submit(&fixture.store, &op);
            mem_fail_nth(0);
            assert_true(submit == SUBMIT_OVERLOAD || submit == SUBMIT_DECIDED);
            remaining -= submit == SUBMIT_DECIDED;
            assert_int_equal(check(limit, "alice", 0).remaining, remaining);
        }
    }
}

static void a_failed_allocation_charges_none_of_several_members(void **state)
{
    (void)state;
    const struct limit *a = limit_of("a", ALGO_SLIDING_LOG, 100, 10 * SECOND_US);
    const struct limit *b = limit_of("b", ALGO_SLIDING_LOG, 100, 10 * SECOND_US);
    int64_t remaining = 100;
    for (uint64_t i = 0; i < 60; i++) {
        struct op_member members[] = {{.limit = a, .key = slice_of("alice"), .cost = 1},
                                      {.limit = b, .key = slice_of("alice"), .cost = 1}};
        struct op op = {.kind = OP_CHECK, .n_members = 2, .members = members};
        mem_fail_nth(1 + i % 4);
        remaining -= store_submit(&fixture.store, &op) == SUBMIT_DECIDED;
        mem_fail_nth(0);
        assert_int_equal(check(a, "alice", 0).remaining, remaining);
        assert_int_equal(check(b, "alice", 0).remaining, remaining);
    }
    assert_in_range(remaining, 40, 60);
}

static void a_failed_allocation_leaves_no_half_made_store(void **state)
{
    (void)state;
    struct memory_options options = {.max_keys = 10};
    for (uint64_t n = 1; n <= 3; n++) {
        mem_fail_nth(n);
        assert_null(memory_store_new(&fixture.now, &options));
    }
    mem_fail_nth(0);
}

static int64_t undo(const struct limit *limit, int64_t units, int64_t made_us, int64_t level)
{
    struct op_member member = {.limit = limit, .key = slice_of("a"), .cost = units};
    struct op_reservation charge = {.made_us = made_us, .level = level};
    struct op op = {.kind = OP_REFUND, .n_members = 1, .members = &member, .reservation = &charge};
    assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
    return member.refunded;
}

/* A refund would give back all five: then the check in between, which a full bucket admitted, would have been free. */
static void a_bucket_that_gives_a_charge_back_keeps_what_others_took_meanwhile(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("bucket", ALGO_BUCKET, 10, 10 * SECOND_US);
    int64_t made_us = fixture.now.wall_us;
    assert_true(ask(OP_CHECK, limit, "a", 5).decision.allowed);
    memory_fixture_advance(&fixture, SECOND_US);
    assert_true(ask(OP_CHECK, limit, "a", 1).decision.allowed);
    assert_int_equal(undo(limit, 5, made_us, 0), 4);
    assert_int_equal(ask(OP_PEEK, limit, "a", 0).decision.remaining, 9);

    memory_fixture_advance(&fixture, 10 * SECOND_US);
    assert_int_equal(undo(limit, 5, made_us, 0), 0);
}

/* A unit a second: the level of a unit is a second's. */
static void a_bucket_whose_level_is_known_gives_back_whole_units_if_nobody_was_charged_since(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("bucket", ALGO_BUCKET, 10, 10 * SECOND_US);
    int64_t made_us = fixture.now.wall_us;
    assert_true(ask(OP_CHECK, limit, "a", 5).decision.allowed);
    memory_fixture_advance(&fixture, SECOND_US / 2);
    assert_int_equal(undo(limit, 3, made_us, 5 * SECOND_US - 1), 0);
    assert_int_equal(undo(limit, 3, made_us, 5 * SECOND_US + 1), 0);
    assert_int_equal(undo(limit, 3, made_us, 5 * SECOND_US), 3);

    int64_t level = 2 * SECOND_US; /* the same at another moment */
    assert_int_equal(undo(limit, 1, made_us + SECOND_US, level - SECOND_US), 1);
    level -= SECOND_US;
    assert_int_equal(undo(limit, 9, made_us, level), 0); /* half a unit is left: none that is whole */
    assert_int_equal(ask(OP_PEEK, limit, "a", 0).decision.remaining, 9);

    assert_true(ask(OP_CHECK, limit, "a", 1).decision.allowed);
    assert_int_equal(undo(limit, 1, made_us, level), 0);
    memory_fixture_advance(&fixture, 10 * SECOND_US);
    assert_int_equal(undo(limit, 1, made_us, level + SECOND_US), 0);
}

static void a_window_gives_a_charge_back_only_while_it_runs(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("window", ALGO_FIXED_WINDOW, 10, SECOND_US);
    int64_t made_us = fixture.now.wall_us;
    ask(OP_CHECK, limit, "a", 5);
    assert_int_equal(undo(limit, 5, made_us, 0), 5);
    memory_fixture_advance(&fixture, SECOND_US);
    ask(OP_CHECK, limit, "a", 5);
    assert_int_equal(undo(limit, 5, made_us, 0), 0);
    assert_int_equal(ask(OP_PEEK, limit, "a", 0).decision.remaining, 5);
}

/* ---- walks ---- */

enum { WALK_STEPS = 512, WALK_KEYS = 400 };

struct walked {
    struct store_walk walk;
    unsigned n_found[2 * WALK_KEYS]; /* of each key, by its number */
    unsigned n;
    bool removes_odd;
};

static bool on_found(struct store_walk *walk, size_t i, struct slice id)
{
    struct walked *walked = (struct walked *)walk;
    char text[16] = "";
    assert_int_equal(i, 1);
    assert_true(id.len > 1 && id.len < sizeof text);
    memcpy(text, id.data, id.len);
    unsigned long number = strtoul(text + 1, NULL, 10);
    assert_true(number < 2 * WALK_KEYS);
    walked->n_found[number]++;
    walked->n++;
    return walked->removes_odd && number % 2 == 1;
}

static void charge_key(const struct limit *limit, unsigned number)
{
    char key[16];
    snprintf(key, sizeof key, "k%u", number);
    ask(OP_CHECK, limit, key, 1);
}

/* Each part of it, until it is over. */
static void walk_all(struct walked *walked, const struct limit *other, void (*between)(const struct limit *limit))
{
    while (walked->walk.at != STORE_WALK_OVER) {
        unsigned n = walked->n;
        walked->walk.steps = WALK_STEPS;
        assert_true(store_walk(&fixture.store, &walked->walk));
        assert_true(walked->n - n <= WALK_STEPS / 32 + 8); /* the last place may have several */
        between(other);
    }
}

static void nothing_between(const struct limit *limit)
{
    (void)limit;
}

/* Of the keys that are there all the time none does; others come and go. */
static void others_come_and_go(const struct limit *limit)
{
    static unsigned n;
    for (unsigned i = 0; i < 8; i++) charge_key(limit, WALK_KEYS + n++ % WALK_KEYS);
    for (unsigned i = 0; i < 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", WALK_KEYS + (n + i * 37) % WALK_KEYS);
        ask(OP_RESET, limit, key, 0);
    }
}

static void a_walk_finds_each_key_that_stays_once_while_others_come_and_go(void **state)
{
    (void)state;
    const struct limit *none = limit_of("none", ALGO_FIXED_WINDOW, 5, DAY_US),
                       *some = limit_of("some", ALGO_FIXED_WINDOW, 5, DAY_US),
                       *other = limit_of("other", ALGO_FIXED_WINDOW, 5, DAY_US);
    const struct limit *const limits[] = {none, some};
    for (unsigned i = 0; i < WALK_KEYS; i++) charge_key(some, i);
    charge_key(other, 1);

    struct walked walked = {.walk = {.limits = limits, .n_limits = 2, .found = on_found}};
    walk_all(&walked, some, others_come_and_go);
    for (unsigned i = 0; i < WALK_KEYS; i++) assert_int_equal(walked.n_found[i], 1);
}

static void a_walk_removes_what_it_is_told_to_and_skips_what_is_over(void **state)
{
    (void)state;
    const struct limit *none = limit_of("none", ALGO_FIXED_WINDOW, 5, DAY_US),
                       *some = limit_of("some", ALGO_FIXED_WINDOW, 5, DAY_US);
    const struct limit *const limits[] = {none, some};
    for (unsigned i = 0; i < WALK_KEYS; i++) charge_key(some, i);

    struct walked walked = {.walk = {.limits = limits, .n_limits = 2, .found = on_found}, .removes_odd = true};
    walk_all(&walked, some, nothing_between);
    assert_int_equal(walked.n, WALK_KEYS);
    struct walked again = {.walk = {.limits = limits, .n_limits = 2, .found = on_found}};
    walk_all(&again, some, nothing_between);
    assert_int_equal(again.n, WALK_KEYS / 2);
    for (unsigned i = 0; i < WALK_KEYS; i++) assert_int_equal(again.n_found[i], i % 2 == 0);

    advance_us(2 * DAY_US);
    struct walked late = {.walk = {.limits = limits, .n_limits = 2, .found = on_found}};
    walk_all(&late, some, nothing_between);
    assert_int_equal(late.n, 0);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(each_algorithm_admits_its_limit_and_again_after_its_retry),
        STORE_TEST(each_algorithm_peeks_what_a_check_would_get),
        STORE_TEST(a_peek_of_an_unknown_key_keeps_nothing),
        STORE_TEST(a_reset_says_whether_a_state_was_there),
        STORE_TEST(a_walk_finds_each_key_that_stays_once_while_others_come_and_go),
        STORE_TEST(a_walk_removes_what_it_is_told_to_and_skips_what_is_over),
        STORE_TEST(counted_denials_are_charged),
        STORE_TEST(one_key_of_two_policies_is_two_states),
        STORE_TEST(several_members_are_charged_all_or_none),
        STORE_TEST(sixteen_members_fit_an_almost_full_table),
        STORE_TEST(expired_keys_are_swept_a_few_per_tick),
        STORE_TEST(a_busy_daemon_sweeps_by_time_not_by_ticks),
        STORE_TEST(a_state_lives_as_long_as_the_last_limit_that_wrote_it),
        STORE_TEST(without_sweeping_an_expired_state_stays_and_counts_for_nothing),
        STORE_TEST(a_full_table_lets_the_earliest_of_a_sample_go),
        STORE_TEST(a_key_in_a_full_table_is_found_without_evicting),
        STORE_TEST(bytes_are_bounded_too),
        STORE_TEST(a_new_key_takes_the_memory_of_a_removed_one),
        STORE_TEST(lowering_max_keys_evicts_in_later_ticks),
        STORE_TEST(clearing_forgets_at_once_and_frees_a_slice_per_tick),
        STORE_TEST(a_clock_stepped_back_is_clamped_and_never_locks_a_key),
        STORE_TEST(a_clock_stepped_back_does_not_keep_expired_keys),
        STORE_TEST(known_keys_are_decided_without_an_allocation),
        STORE_TEST(a_failed_allocation_refuses_and_changes_nothing),
        STORE_TEST(a_failed_allocation_charges_none_of_several_members),
        STORE_TEST(a_failed_allocation_leaves_no_half_made_store),
        STORE_TEST(a_bucket_that_gives_a_charge_back_keeps_what_others_took_meanwhile),
        STORE_TEST(a_bucket_whose_level_is_known_gives_back_whole_units_if_nobody_was_charged_since),
        STORE_TEST(a_window_gives_a_charge_back_only_while_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
