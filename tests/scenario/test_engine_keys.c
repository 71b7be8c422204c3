/* test_engine_keys.c: what the engine asks the store about keys of parts, and what it never asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "config/config.h"
#include "engine/engine_counters.h"
#include "fakes/engine_fixture.h"

static const char config_text[] =
    "policies:\n"
    "  free: {unlimited: true}\n"
    "  plain: {algorithm: fixed_window, limit: 100, window: 1d, on_failure: error}\n"
    "  own: {key_format: '{a}:{b}', by: [a], algorithm: gcra, limit: 100, window: 1d}\n"
    "  mixed:\n"
    "    key_format: '{a}:{b}:{c}'\n"
    "    limits:\n"
    "      - {name: ends, by: [c, a], algorithm: fixed_window, limit: 100, window: 1d}\n"
    "      - {name: first, by: [a], algorithm: fixed_window, limit: 100, window: 1d}\n"
    "      - {name: whole, algorithm: sliding_log, limit: 4, window: 1d}\n"
    "    overrides: [{key: 'x:y:z', limit: {whole: 9}}, {match: '*:free', unlimited: true}]\n"
    "  joined:\n"
    "    key_format: '{a}:{b}:{c}'\n"
    "    limits:\n"
    "      - {name: ends, by: [a, c], algorithm: fixed_window, limit: 100, window: 1d}\n"
    "      - {name: whole, algorithm: fixed_window, limit: 100, window: 1d}\n";

static struct engine_fixture fixture;
static struct asked asked;

static void use_policies(void)
{
    struct faults faults;
    faults_init(&faults);
    struct config *config = config_parse(config_text, sizeof config_text - 1, CONFIG_START, &faults);
    if (config == NULL) fail_msg("%s", faults.items[0].text);
    engine_set_policies(fixture.engine, policy_set_ref(config->policies));
    config_free(config);
    faults_fini(&faults);
}

static void open_scripted(enum scripted_mode mode)
{
    fixture_open(&fixture, NULL, 0, &fixture_options);
    fixture.scripted.mode = mode;
    use_policies();
}

static void open_memory(void)
{
    fixture_open_memory(&fixture, NULL, 0, &fixture_options);
    use_policies();
}

static void on_done(struct check *check)
{
    asked.n_done++;
    asked.error = check->error;
    asked.decision = check->decision;
    asked.removed = check->removed;
    check_release(check);
}

static bool ask(enum op_kind kind, const char *policy, const char *key, int64_t cost)
{
    struct check *check = fixture_check_new(&fixture, key);
    asked = (struct asked){0};
    if (check == NULL) return false;
    check->op.kind = kind;
    check->plan = plan_for_key(policies_get(engine_policies(fixture.engine), policy), check->key);
    check->cost = cost;
    check->done = on_done;
    if (check_seal(check) < 0) {
        check_release(check);
        return false;
    }
    engine_submit(fixture.engine, check);
    return true;
}

static const struct op *held(void)
{
    assert_int_equal(fixture.scripted.n_held, 1);
    return scripted_held(&fixture.scripted, 0);
}

static void each_limit_is_asked_about_by_its_parts(void **state)
{
    (void)state;
    open_scripted(SCRIPTED_HOLD);
    ask(OP_CHECK, "mixed", "one:two:three:3", 1);
    const struct op *op = held();
    assert_int_equal(op->n_members, 3);
    assert_true(slice_is(op->members[0].key, "one:three:3"));
    assert_true(slice_is(op->members[1].key, "one"));
    assert_true(slice_is(op->members[2].key, "one:two:three:3"));
    for (int i = 0; i < 3; i++) assert_true(slice_is(op->members[i].shard_id, "one"));
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    ask(OP_CHECK, "joined", "one:two:three", 1);
    for (int i = 0; i < 2; i++) assert_true(slice_is(held()->members[i].shard_id, "one:three"));
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    ask(OP_CHECK, "plain", "k", 1);
    assert_null(held()->members[0].shard_id.data);
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    fixture_close(&fixture);
}

static void a_reset_asks_only_about_what_belongs_to_the_key(void **state)
{
    (void)state;
    open_scripted(SCRIPTED_HOLD);
    fixture.scripted.removed = true;
    ask(OP_RESET, "mixed", "one:two:three", 0);
    assert_int_equal(held()->n_members, 1);
    assert_string_equal(held()->members[0].limit->name, "whole");
    assert_true(slice_is(held()->members[0].shard_id, "one"));
    scripted_end_all(&fixture.scripted, OP_DECIDED);
    assert_true(asked.removed);
    ask(OP_RESET, "own", "one:two", 0);
    assert_int_equal(asked.n_done, 1);
    assert_int_equal(asked.error, ERROR_NONE);
    assert_false(asked.removed);
    ask(OP_RESET, "free", "k", 0);
    assert_int_equal(asked.n_done, 1);
    assert_false(asked.removed);
    assert_int_equal(fixture.scripted.n_submitted, 1);
    fixture_close(&fixture);
}

static void what_is_unlimited_needs_no_store(void **state)
{
    (void)state;
    open_scripted(SCRIPTED_REFUSE_DOWN);
    uint64_t before = engine_counters.decided_unlimited;
    static const enum op_kind kinds[] = {OP_CHECK, OP_PEEK};
    static const char *const policies[] = {"free", "mixed"};
    for (int i = 0; i < 4; i++) {
        ask(kinds[i % 2], policies[i / 2], "a:b:free", 7);
        assert_int_equal(asked.n_done, 1);
        assert_int_equal(asked.error, ERROR_NONE);
        assert_true(asked.decision.allowed);
        assert_int_equal(asked.decision.source, SOURCE_UNLIMITED);
        assert_int_equal(asked.decision.limit, UNLIMITED);
        assert_int_equal(asked.decision.remaining, UNLIMITED);
        assert_int_equal(asked.decision.granted, 7);
    }
    assert_int_equal(engine_counters.decided_unlimited - before, 4);
    assert_int_equal(fixture.scripted.n_submitted, 0);
    fixture_close(&fixture);
}

static void an_override_decides_by_its_numbers_also_without_the_store(void **state)
{
    (void)state;
    open_scripted(SCRIPTED_REFUSE_DOWN);
    ask(OP_CHECK, "mixed", "x:y:z", 9);
    assert_true(asked.decision.allowed);
    assert_int_equal(asked.decision.source, SOURCE_LOCAL);
    ask(OP_CHECK, "mixed", "x:y:w", 9);
    assert_false(asked.decision.allowed);
    ask(OP_CHECK, "mixed", "x:other:z", 4);
    assert_true(asked.decision.allowed);
    assert_int_equal(asked.decision.remaining, 0);
    fixture_close(&fixture);
}

/* Joined ids are in the check's own space, however long the keys were before. */
static void ask_round(void)
{
    char key[300];
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "a:%0*d:c", i % 2 == 0 ? 5 : 200, i % 8);
        ask(OP_CHECK, i % 3 == 0 ? "joined" : "mixed", key, 0);
        scripted_end_all(&fixture.scripted, OP_DECIDED);
        assert_int_equal(asked.n_done, 1);
    }
}

static void warm_ones_allocate_nothing(void **state)
{
    (void)state;
    open_memory();
    ask_round();
    uint64_t before = mem_n_allocs();
    ask_round();
    assert_int_equal(mem_n_allocs(), before);
    fixture_close(&fixture);
    open_scripted(SCRIPTED_HOLD);
    ask_round();
    before = mem_n_allocs();
    ask_round();
    assert_int_equal(mem_n_allocs(), before);
    fixture_close(&fixture);
}

static void any_failed_allocation_is_answered(void **state)
{
    (void)state;
    static const enum scripted_mode modes[] = {SCRIPTED_DECIDE, SCRIPTED_REFUSE_DOWN};
    for (int i = 0; i < 2; i++) {
        int n_failed = 0;
        for (uint64_t nth = 1; nth < 20; nth++) {
            open_scripted(modes[i]);
            mem_fail_nth(nth);
            bool made = ask(OP_CHECK, "joined", "a:b:c", 1);
            mem_fail_nth(0);
            assert_true(!made || asked.n_done == 1);
            if (!made || asked.error != ERROR_NONE || asked.decision.reason == REASON_OVERLOAD) n_failed++;
            assert_int_equal(engine_n_live(fixture.engine), 0);
            fixture_close(&fixture);
        }
        assert_true(n_failed >= 2 && n_failed < 19);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_limit_is_asked_about_by_its_parts),
        cmocka_unit_test(a_reset_asks_only_about_what_belongs_to_the_key),
        cmocka_unit_test(what_is_unlimited_needs_no_store),
        cmocka_unit_test(an_override_decides_by_its_numbers_also_without_the_store),
        cmocka_unit_test(warm_ones_allocate_nothing),
        cmocka_unit_test(any_failed_allocation_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
