/* test_memory_full.c: what gives way in a full memory store, and what a flood of fresh keys frees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/memory_fixture.h"
#include "fakes/policies.h"
#include "store/memory_counters.h"

#define SECOND_US INT64_C(1000000)
#define DAY_US    (86400 * SECOND_US)

enum { MAX_KEYS = 1000, FLOOD = 5 * MAX_KEYS };

static struct memory_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    const struct memory_options options = {.max_keys = MAX_KEYS, .sweep = true, .counted = true};
    memory_fixture_open(&fixture, 1700000000 * SECOND_US, &options);
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

static enum submit ask(enum op_kind kind, const struct limit *limit, const char *key, int64_t cost,
                       struct op_member *ret)
{
    static char ids[2 * MAX_KEYS][SLOT_ID_LEN + 1];
    *ret = (struct op_member){.limit = limit, .key = slice_of(key), .cost = cost};
    struct op op = {.kind = kind, .n_members = 1, .members = ret};
    if (limit->algo == ALGO_CONCURRENCY) {
        if (kind == OP_CHECK) op.kind = OP_ACQUIRE;
        int number = 0;
        (void)sscanf(key, "%*[^0-9]%d", &number);
        op.slot = ids[number];
        snprintf(ids[number], sizeof ids[number], "%032d", number);
    }
    return store_submit(&fixture.store, &op);
}

static bool charge(const struct limit *limit, const char *key, int64_t cost)
{
    struct op_member member;
    assert_int_equal(ask(OP_CHECK, limit, key, cost, &member), SUBMIT_DECIDED);
    return member.decision.allowed;
}

static int64_t remaining(const struct limit *limit, const char *key)
{
    struct op_member member;
    assert_int_equal(ask(OP_PEEK, limit, key, 0, &member), SUBMIT_DECIDED);
    return member.decision.remaining;
}

static const char *numbered(const char *word, int i)
{
    static char key[32];
    snprintf(key, sizeof key, "%s-%d", word, i);
    return key;
}

static void charge_many(const struct limit *limit, const char *word, int n, int64_t cost)
{
    for (int i = 0; i < n; i++) charge(limit, numbered(word, i), cost);
}

/* How many of the keys are at their limit? */
static int n_denied(const struct limit *limit, const char *word, int n)
{
    int n_denied = 0;
    for (int i = 0; i < n; i++) n_denied += remaining(limit, numbered(word, i)) == 0;
    return n_denied;
}

/* One user's fresh keys freed its own key, which was denied, and another user's. */
static void a_flood_of_fresh_keys_frees_no_key_at_its_limit(void **state)
{
    (void)state;
    for (int algo = 0; algo < N_ALGOS; algo++) {
        if (algo == ALGO_CONCURRENCY || algo == ALGO_CALENDAR_WINDOW || algo_table[algo]->is_compat) continue;
        const struct limit *limit = limit_of(algo_table[algo]->key_tag, (enum algo)algo, 5, DAY_US);
        charge_many(limit, "victim", 20, 5);
        assert_int_equal(n_denied(limit, "victim", 20), 20);
        charge_many(limit, "flood", FLOOD, 1);
        if (n_denied(limit, "victim", 20) != 20) fail_msg("%s", algo_table[algo]->name);
        for (int i = 0; i < 20; i++) assert_false(charge(limit, numbered("victim", i), 1));
    }
    assert_true(memory_counters.memory_evicted > FLOOD);
}

/* The trace of ALGORITHMS.md. */
static void what_a_flood_can_free_at_most(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 5, DAY_US);
    charge_many(limit, "full", 100, 5);
    charge_many(limit, "light", 900, 1);
    assert_int_equal(memory_counters.memory_evicted, 0);

    charge_many(limit, "a", 3000, 1);
    assert_int_equal(memory_counters.memory_evicted, 3000); /* one for each new key */
    assert_int_equal(n_denied(limit, "full", 100), 100);
    charge_many(limit, "b", 3000, 4);
    assert_int_equal(n_denied(limit, "full", 100), 100);

    /* Each of these has a whole limit in use. While they are less than half of the table, none of the others goes. */
    charge_many(limit, "c", 400, 5);
    assert_in_range(n_denied(limit, "full", 100), 99, 100);
    charge_many(limit, "d", 5000, 5);
    assert_in_range(n_denied(limit, "full", 100), 0, 50);
    assert_int_equal(memory_counters.memory_evicted, 3000 + 3000 + 400 + 5000);
}

static void of_a_bucket_counts_what_has_not_drained(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_BUCKET, 100, DAY_US);
    charge_many(limit, "old", 100, 100);
    memory_fixture_advance(&fixture, DAY_US * 9 / 10);
    charge_many(limit, "new", 100, 50);
    charge_many(limit, "flood", 3000, 30);
    int n_old = 0;
    for (int i = 0; i < 100; i++) n_old += remaining(limit, numbered("old", i)) < 100;
    assert_in_range(n_old, 0, 5); /* a tenth of each was in use */
    for (int i = 0; i < 100; i++) assert_int_equal(remaining(limit, numbered("new", i)), 50);
}

static void of_a_log_counts_what_has_not_expired(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_SLIDING_LOG, 100, DAY_US);
    charge_many(limit, "old", 100, 99);
    memory_fixture_advance(&fixture, DAY_US * 9 / 10);
    charge_many(limit, "old", 100, 1);
    charge_many(limit, "new", 100, 50);
    memory_fixture_advance(&fixture, DAY_US / 5);
    charge_many(limit, "flood", 3000, 30);
    int n_old = 0;
    for (int i = 0; i < 100; i++) n_old += remaining(limit, numbered("old", i)) < 100;
    assert_in_range(n_old, 0, 5); /* one unit of each was in use */
    for (int i = 0; i < 100; i++) assert_int_equal(remaining(limit, numbered("new", i)), 50);
}

static void what_is_over_goes_first_however_much_was_in_use(void **state)
{
    (void)state;
    const struct limit *brief = limit_of("brief", ALGO_FIXED_WINDOW, 5, SECOND_US);
    const struct limit *lasting = limit_of("lasting", ALGO_FIXED_WINDOW, 100, DAY_US);
    charge_many(lasting, "light", 500, 1);
    charge_many(brief, "over", 500, 5);
    memory_fixture_advance(&fixture, 2 * SECOND_US);
    charge_many(lasting, "new", 200, 1);
    int n_light = 0;
    for (int i = 0; i < 500; i++) n_light += remaining(lasting, numbered("light", i)) == 99;
    assert_in_range(n_light, 490, 500);
}

static void slots_never_give_way_to_a_counter(void **state)
{
    (void)state;
    const struct limit *jobs = limit_of("jobs", ALGO_CONCURRENCY, 1, DAY_US / 4);
    const struct limit *counter = limit_of("p", ALGO_FIXED_WINDOW, 1, DAY_US);
    for (int i = 0; i < 400; i++) assert_true(charge(jobs, numbered("job", i), 1));
    charge_many(counter, "flood", FLOOD, 1);
    assert_int_equal(n_denied(jobs, "job", 400), 400);
    struct op_member member;
    for (int i = 0; i < 400; i++) {
        assert_int_equal(ask(OP_RENEW, jobs, numbered("job", i), 0, &member), SUBMIT_DECIDED);
        assert_true(member.found);
    }
}

static void reservations_never_give_way_to_a_counter(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 10, DAY_US);
    struct op_reservation reserved[200];
    for (int i = 0; i < 200; i++) {
        reserved[i] = (struct op_reservation){.id = (uint64_t)i + 1, .units = 10, .ttl_ms = 3600000};
        const struct slice key = slice_of(numbered("key", i));
        struct op_member member = {.limit = limit, .key = key, .reservations_key = key, .cost = 10};
        struct op op = {.kind = OP_RESERVE, .n_members = 1, .members = &member, .reservation = &reserved[i]};
        assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
        assert_true(reserved[i].held);
    }
    charge_many(limit, "flood", FLOOD, 1);
    assert_int_equal(n_denied(limit, "key", 200), 200);
    for (int i = 0; i < 200; i++) {
        reserved[i].actual = 4;
        const struct slice key = slice_of(numbered("key", i));
        struct op_member member = {.limit = limit, .key = key, .reservations_key = key};
        struct op op = {.kind = OP_SETTLE, .n_members = 1, .members = &member, .reservation = &reserved[i]};
        assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
        assert_false(reserved[i].ended);
        assert_int_equal(reserved[i].refunded, 6);
    }
}

static void slots_have_half_of_the_table_and_more_are_refused(void **state)
{
    (void)state;
    const struct limit *jobs = limit_of("jobs", ALGO_CONCURRENCY, 1, DAY_US / 4);
    const struct limit *counter = limit_of("p", ALGO_FIXED_WINDOW, 5, DAY_US);
    struct op_member member;
    int n_taken = 0;
    for (int i = 0; i < 700; i++) n_taken += ask(OP_ACQUIRE, jobs, numbered("job", i), 1, &member) == SUBMIT_DECIDED;
    assert_int_equal(n_taken, MAX_KEYS / 2);
    assert_int_equal(memory_counters.memory_refused, 200);
    assert_int_equal(memory_counters.memory_evicted, 0);

    charge_many(counter, "key", FLOOD, 5);
    assert_int_equal(n_denied(jobs, "job", MAX_KEYS / 2), MAX_KEYS / 2);
    assert_int_equal(memory_store_n_keys(fixture.memory), MAX_KEYS);

    assert_int_equal(ask(OP_RELEASE, jobs, numbered("job", 7), 0, &member), SUBMIT_DECIDED);
    assert_true(charge(jobs, numbered("job", 700), 1));
}

static void slots_and_reservations_have_half_of_the_bytes(void **state)
{
    (void)state;
    const struct limit *limit = limit_of("p", ALGO_FIXED_WINDOW, 1000000, DAY_US);
    const struct slice key = slice_of("key");
    int n_held = 0, n = 50000;
    for (int i = 0; i < n; i++) {
        struct op_reservation reservation = {.id = (uint64_t)i + 1, .units = 1, .ttl_ms = 3600000};
        struct op_member member = {.limit = limit, .key = key, .reservations_key = key, .cost = 1};
        struct op op = {.kind = OP_RESERVE, .n_members = 1, .members = &member, .reservation = &reservation};
        n_held += store_submit(&fixture.store, &op) == SUBMIT_DECIDED;
    }
    assert_in_range(n_held, 5000, n - 1000);
    assert_int_equal(memory_counters.memory_refused, n - n_held);
    assert_true(memory_counters.memory_bytes <= (uint64_t)MAX_KEYS * 1024);
    assert_true(charge(limit, "other", 1));
    assert_int_equal(remaining(limit, "key"), 1000000 - n_held);
}

#define FULL_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FULL_TEST(a_flood_of_fresh_keys_frees_no_key_at_its_limit),
        FULL_TEST(what_a_flood_can_free_at_most),
        FULL_TEST(of_a_bucket_counts_what_has_not_drained),
        FULL_TEST(of_a_log_counts_what_has_not_expired),
        FULL_TEST(what_is_over_goes_first_however_much_was_in_use),
        FULL_TEST(slots_never_give_way_to_a_counter),
        FULL_TEST(reservations_never_give_way_to_a_counter),
        FULL_TEST(slots_have_half_of_the_table_and_more_are_refused),
        FULL_TEST(slots_and_reservations_have_half_of_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
