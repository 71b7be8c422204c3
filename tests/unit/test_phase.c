/* test_phase.c: fixed windows that begin at a moment of each key's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "policy/policy.h"
#include "redis/batch.h"
#include "store/memory_store.h"

enum { LIMIT = 3, WINDOW_MS = 10000 };

#define START_MS INT64_C(1700000000000) /* a multiple of the window */

static struct policy *spread(bool phase)
{
    struct diag diag;
    struct policy *policy = policy_new("p", 1);
    assert_non_null(policy);
    struct limit *limit = &policy->limits[0];
    limit->algo = ALGO_FIXED_WINDOW;
    limit->limit = LIMIT;
    limit->window_us = WINDOW_MS * 1000;
    limit->phase = phase;
    assert_int_equal(policy_prepare_limit(limit, NULL, &diag), 0);
    policy_seal(policy);
    return policy;
}

static void a_phase_is_the_hash_that_the_documents_tell(void **state)
{
    (void)state;
    struct policy *policy = spread(true), *plain = spread(false);
    assert_int_equal(limit_phase(&policy->limits[0], slice_of("alice")), 7965);
    assert_int_equal(limit_phase(&policy->limits[0], slice_of("bob")), 2858);
    assert_int_equal(limit_phase(&policy->limits[0], slice_of("")), 7131);
    assert_int_equal(limit_phase(&plain->limits[0], slice_of("alice")), 0);
    assert_int_not_equal(policy->version, plain->version);
    policy_free(policy);
    policy_free(plain);
}

static struct decision ask(struct store *store, const struct policy *policy, const char *key)
{
    struct op_member member = {.limit = &policy->limits[0], .key = slice_of(key), .cost = 1};
    struct op op = {.kind = OP_CHECK, .n_members = 1, .members = &member};
    list_init(&op.link);
    assert_int_equal(store_submit(store, &op), SUBMIT_DECIDED);
    return member.decision;
}

/* Also at the epoch, where a window may have begun before it. */
static void each_keys_windows_begin_at_its_phase(void **state)
{
    (void)state;
    static const int64_t starts_ms[] = {START_MS, 0};
    static const struct {
        const char *key;
        int64_t phase_ms;
    } keys[] = {{"alice", 7965}, {"bob", 2858}};
    struct policy *policy = spread(true);
    for (size_t i = 0; i < 4; i++) {
        int64_t start_ms = starts_ms[i / 2], phase_ms = keys[i % 2].phase_ms;
        const char *key = keys[i % 2].key;
        struct clock clock = {.manual = true, .frozen = true, .wall_us = start_ms * 1000};
        struct memory_store *memory = memory_store_new(&clock, &(struct memory_options){.max_keys = 100});
        assert_non_null(memory);
        struct store store = memory_store_handle(memory);
        struct decision first = ask(&store, policy, key);
        assert_true(first.allowed);
        assert_int_equal(first.remaining, LIMIT - 1);
        assert_int_equal(first.reset_after_ms, phase_ms);
        clock.wall_us = (start_ms + phase_ms) * 1000 - 1;
        assert_int_equal(ask(&store, policy, key).remaining, LIMIT - 2);
        clock.wall_us += 1;
        struct decision next = ask(&store, policy, key);
        assert_int_equal(next.remaining, LIMIT - 1);
        assert_int_equal(next.reset_after_ms, WINDOW_MS);
        clock.wall_us += WINDOW_MS * INT64_C(1000) - 1000;
        assert_int_equal(ask(&store, policy, key).reset_after_ms, 1);
        memory_store_free(memory);
    }
    policy_free(policy);
}

/* The constant c of limit number i, behind the header of the packed batch. */
static int64_t c_of_limit(struct slice packet, size_t i)
{
    const uint8_t *at = packet.data + 17 + 29 * i + 1 + 2 * 7;
    int64_t c = 0;
    for (int j = 0; j < 7; j++) c |= (int64_t)at[j] << 8 * j;
    return c;
}

static void keys_of_different_phases_are_different_limits(void **state)
{
    (void)state;
    struct policy *policy = spread(true);
    struct batch *batch = batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, BATCH_KEYS_MAX, true);
    static const char *const names[] = {"alice", "bob"};
    struct op ops[2];
    struct op_member members[2];
    const struct slice *args;
    struct list taken;
    for (size_t i = 0; i < 2; i++) {
        members[i] = (struct op_member){.limit = &policy->limits[0], .key = slice_of(names[i]), .cost = 1};
        ops[i] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &members[i]};
        list_init(&ops[i].link);
        assert_int_equal(batch_add(batch, &ops[i]), 0);
    }
    size_t n = batch_args(batch, 1, START_MS * 1000, 0, &args);
    assert_int_equal(n, 1 + 2 + 1);
    assert_int_equal(args[n - 1].data[14], 2);
    assert_int_equal(c_of_limit(args[n - 1], 0), WINDOW_MS - 7965); /* alice's keys come first: she asked first */
    assert_int_equal(c_of_limit(args[n - 1], 1), WINDOW_MS - 2858);
    const int64_t reply[] = {0, 2, START_MS * 1000, 0, 1};
    assert_int_equal(batch_replay(batch, reply, 5, 1), 0);
    assert_int_equal(members[0].decision.remaining, LIMIT - 1);
    assert_int_equal(members[0].decision.reset_after_ms, 7965);
    assert_int_equal(members[1].decision.remaining, 0);
    assert_int_equal(members[1].decision.reset_after_ms, 2858);
    list_init(&taken);
    batch_take_ops(batch, &taken);
    while (list_pop_front(&taken) != NULL) continue;
    batch_free(batch);
    policy_free(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_phase_is_the_hash_that_the_documents_tell),
        cmocka_unit_test(each_keys_windows_begin_at_its_phase),
        cmocka_unit_test(keys_of_different_phases_are_different_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
