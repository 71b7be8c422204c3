/*
 * test_turn_steps.c: a turn in steps, packed and read, against bytes and replies written by hand. That the script
 * agrees is tests/lua's business.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/counters.h"
#include "limit/policy.h"
#include "store/turn.h"

enum { N_OPS = 8, NONCE = 0x01020304 };
#define HEAD "\x04\x03\x02\x01\0\0\0\0\0\0\0" /* the nonce, and no time to be too late for */

static const int64_t now_us = INT64_C(1700000000000000);

/* A turn, a window of 5 a second, a log of 5, a bucket whose every unit takes 31 years, a window
 * that begins with the first hit, and ops of one member. */
struct world {
    struct turn *turn;
    struct policy *window, *log, *slow, *hit;
    struct op ops[N_OPS];
    struct op_member members[N_OPS];
    const struct slice *args;
    size_t n_args;
};

static struct policy *policy_of(const char *name, enum algo algo, int64_t limit, int64_t window_us)
{
    char text[256];
    struct policy *policy = policy_new(name, 1);
    assert_non_null(policy);
    policy->limits[0].algo = algo;
    policy->limits[0].limit = limit;
    policy->limits[0].window_us = window_us;
    assert_null(limit_prepare(&policy->limits[0], NULL, text, sizeof text));
    policy->version = 9;
    return policy;
}

static int setup(void **state)
{
    static struct world world;
    world = (struct world){
        .turn = turn_new("rl", TURN_KEYS_MAX, true),
        .window = policy_of("w", ALGO_FIXED_WINDOW, 5, 1000000),
        .log = policy_of("l", ALGO_SLIDING_LOG, 5, 1000000),
        .slow = policy_of("s", ALGO_BUCKET, 1, INT64_C(1000000000000000)),
        .hit = policy_of("h", ALGO_FIRST_HIT, 5, 1000000),
    };
    assert_non_null(world.turn);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    struct list ops;
    list_init(&ops);
    turn_take_ops(world->turn, &ops);
    while (list_pop_front(&ops) != NULL) continue;
    turn_free(world->turn);
    policy_free(world->window);
    policy_free(world->log);
    policy_free(world->slow);
    policy_free(world->hit);
    return 0;
}

static struct op *op_of(struct world *world, size_t i, const struct policy *policy, enum op_kind kind, int64_t cost)
{
    world->members[i] = (struct op_member){.limit = &policy->limits[0], .key = slice_of("k"), .cost = cost};
    world->ops[i] = (struct op){.kind = kind, .n_members = 1, .members = &world->members[i]};
    list_init(&world->ops[i].link);
    return &world->ops[i];
}

static struct op *once(struct op *op, const char *note)
{
    op->note = slice_of(note);
    op->note_ms = 60000;
    return op;
}

static int replay(struct world *world, const int64_t *reply, size_t n)
{
    world->n_args = turn_args(world->turn, NONCE, now_us, 0, &world->args);
    assert_true(world->n_args > 0);
    return turn_replay(world->turn, reply, n, NONCE);
}

static void a_check_with_a_note_goes_in_steps_with_a_key_of_its_own(void **state)
{
    struct world *world = *state;
    assert_int_equal(turn_add(world->turn, once(op_of(world, 0, world->window, OP_CHECK, 2), "note1:w:1:k:id")), 0);
    world->n_args = turn_args(world->turn, NONCE, now_us, 0, &world->args);
    assert_int_equal(world->n_args, 4);
    assert_true(slice_is(world->args[0], "2"));
    struct slice key = world->args[1], note = world->args[2], packet = world->args[3];
    assert_int_equal(note.len, strlen("rl:{b000}:note1:w:1:k:id"));
    assert_memory_equal(note.data, key.data, strlen("rl:{b000}:")); /* of the same bucket */
    assert_memory_equal(note.data + strlen("rl:{b000}:"), "note1:w:1:k:id", 14);
    static const char expected[] =
        HEAD "\xff\xff\x01\x01\0"                                                 /* nonce, steps, a run, a step */
             "\x01\x05\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" /* the run: a window */
             "\x01\x01\x01\x01\0\x02\0\0\0\0\0\0"                                 /* a check of 2 on run 1, key 1 */
             "\x01\x02\0\x60\xea\0\0\0\0\x09\0\0\0";                              /* a note, key 2; 60 s; version 9 */
    assert_int_equal(packet.len, sizeof expected - 1);
    assert_memory_equal(packet.data, expected, sizeof expected - 1);
}

static void plain_checks_join_steps_and_steps_join_nothing_else(void **state)
{
    struct world *world = *state;
    assert_int_equal(turn_add(world->turn, op_of(world, 0, world->window, OP_CHECK, 1)), 0);
    assert_int_equal(turn_add(world->turn, op_of(world, 1, world->window, OP_REFUND, 1)), 1);
    assert_int_equal(turn_add(world->turn, once(op_of(world, 2, world->window, OP_CHECK, 1), "n")), 1);
    struct list ops;
    list_init(&ops);
    turn_take_ops(world->turn, &ops);
    while (list_pop_front(&ops) != NULL) continue;
    turn_clear(world->turn);
    assert_int_equal(turn_add(world->turn, op_of(world, 1, world->window, OP_REFUND, 1)), 0);
    assert_int_equal(turn_add(world->turn, op_of(world, 0, world->window, OP_CHECK, 1)), 0);
    assert_int_equal(turn_add(world->turn, op_of(world, 2, world->window, OP_PEEK, 1)), 0);
    assert_int_equal(turn_add(world->turn, op_of(world, 3, world->window, OP_RESET, 0)), 1);
    assert_int_equal(turn_n_keys(world->turn), 1);
}

static void each_step_is_answered_from_what_it_saw(void **state)
{
    struct world *world = *state;
    struct op *most = op_of(world, 2, world->window, OP_CHECK, 1);
    most->at_most = 5;
    assert_int_equal(turn_add(world->turn, op_of(world, 0, world->window, OP_REFUND, 2)), 0);
    assert_int_equal(turn_add(world->turn, op_of(world, 1, world->log, OP_CHECK, 2)), 0);
    assert_int_equal(turn_add(world->turn, most), 0);
    /* after the refund 2 are charged, and 1 was given back; 4 in the log, room in 300 ms; 2 seen by the last */
    const int64_t reply[] = {2, 0, 1, 4, now_us, 300000, 2, 0, now_us, 0, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(world->members[0].refunded, 1);
    assert_int_equal(world->members[0].decision.remaining, 3);
    assert_false(world->members[1].decision.allowed);
    assert_int_equal(world->members[1].decision.retry_after_ms, 300);
    assert_true(world->members[2].decision.allowed);
    assert_int_equal(world->members[2].decision.granted, 3);
    assert_int_equal(world->members[2].decision.remaining, 0);
}

static void a_known_note_gives_the_first_answer_again(void **state)
{
    struct world *world = *state;
    assert_int_equal(turn_add(world->turn, once(op_of(world, 0, world->window, OP_CHECK, 1), "n")), 0);
    const int64_t reply[] = {1, 0, 1, now_us - 500000, 2, now_us, 0, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    const struct decision *decision = &world->members[0].decision;
    assert_true(decision->allowed);
    assert_int_equal(decision->granted, 2);
    assert_int_equal(decision->remaining, 2);
    assert_int_equal(decision->reset_after_ms, 500); /* of the window before, which was in its middle */
}

/* A server may say anything, and what it says is charged once more here. */
static void a_note_never_granted_more_than_the_limit(void **state)
{
    struct world *world = *state;
    const int64_t huge = INT64_C(1) << 53;
    assert_int_equal(turn_add(world->turn, once(op_of(world, 0, world->slow, OP_CHECK, 1), "n")), 0);
    const int64_t reply[] = {huge, 0, 1, now_us, huge, now_us, 0, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(world->members[0].decision.granted, 1);
    assert_int_equal(world->members[0].decision.remaining, 0);
}

static void a_note_of_other_settings_tells_what_was_granted_and_what_is_now(void **state)
{
    struct world *world = *state;
    assert_int_equal(turn_add(world->turn, once(op_of(world, 0, world->window, OP_CHECK, 1), "n")), 0);
    const int64_t reply[] = {7, 0, 2, now_us - 500000, 4, now_us, 0, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    const struct decision *decision = &world->members[0].decision;
    assert_true(decision->allowed);
    assert_int_equal(decision->granted, 4);
    assert_int_equal(decision->remaining, 0);
    assert_int_equal(decision->reset_after_ms, 1000);
}

static void a_foreign_type_fails_its_own_step(void **state)
{
    struct world *world = *state;
    assert_int_equal(turn_add(world->turn, op_of(world, 0, world->log, OP_REFUND, 2)), 0);
    assert_int_equal(turn_add(world->turn, op_of(world, 1, world->window, OP_CHECK, 1)), 0);
    const int64_t reply[] = {-1, 0, 0, 0, now_us, 0, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(world->ops[0].outcome, OP_STORE_ERROR);
    assert_int_equal(world->ops[1].outcome, OP_DECIDED);
}

/* Clients were told to come back 5 ms ago. */
static void a_state_that_no_script_leaves_fails_its_own_step(void **state)
{
    struct world *world = *state;
    const int64_t ended_ms = now_us / 1000 - 5;
    uint64_t bad = counters.redis_bad_replies;
    assert_int_equal(turn_add(world->turn, op_of(world, 0, world->hit, OP_REFUND, 2)), 0);
    assert_int_equal(turn_add(world->turn, once(op_of(world, 1, world->hit, OP_CHECK, 1), "n")), 0);
    assert_int_equal(turn_add(world->turn, op_of(world, 2, world->window, OP_CHECK, 1)), 0);
    const int64_t reply[] = {4, ended_ms, 1, 5, ended_ms, 0, 0, 0, now_us, 0, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(world->ops[0].outcome, OP_STORE_ERROR);
    assert_int_equal(world->ops[1].outcome, OP_STORE_ERROR);
    assert_int_equal(world->ops[2].outcome, OP_DECIDED);
    assert_int_equal(counters.redis_bad_replies, bad + 1);
}

static void a_note_whose_window_had_ended_is_no_answer(void **state)
{
    struct world *world = *state;
    const int64_t then_ms = now_us / 1000 - 500;
    assert_int_equal(turn_add(world->turn, once(op_of(world, 0, world->hit, OP_CHECK, 1), "n")), 0);
    assert_int_equal(turn_add(world->turn, once(op_of(world, 1, world->hit, OP_CHECK, 1), "m")), 0);
    const int64_t reply[] = {1, then_ms - 1,    1, then_ms * 1000, 2, 1,    then_ms + 1,
                             1, then_ms * 1000, 2, now_us,         0, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(world->ops[0].outcome, OP_STORE_ERROR);
    assert_int_equal(world->ops[1].outcome, OP_DECIDED);
    assert_int_equal(world->members[1].decision.reset_after_ms, 1);
}

static void steps_have_no_more_bad_values_than_keys(void **state)
{
    struct world *world = *state;
    uint64_t bad = counters.redis_bad_values;
    assert_int_equal(turn_add(world->turn, once(op_of(world, 0, world->window, OP_CHECK, 1), "n")), 0);
    const int64_t reply[] = {0, 0, 0, now_us, INT64_C(1) << 53, NONCE};
    assert_int_equal(replay(world, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(counters.redis_bad_values, bad + 2); /* the state's and the note's */
}

static void replies_that_make_no_sense_are_refused(void **state)
{
    struct world *world = *state;
    assert_int_equal(turn_add(world->turn, once(op_of(world, 0, world->window, OP_CHECK, 1), "n")), 0);
    const int64_t bad[][9] = {
        {6, 0, 0, now_us, 0, 1},                   /* not our nonce */
        {6, -1, 0, now_us, 0, NONCE},              /* s2 */
        {-2, 0, 0, now_us, 0, NONCE},              /* s1 */
        {0, 0, 3, now_us, 0, NONCE},               /* neither known nor not */
        {0, 0, 0, 5, now_us, 0, NONCE},            /* one too many */
        {0, 0, 0, -1, 0, NONCE},                   /* now */
        {0, 0, 1, now_us, -1, now_us, 0, NONCE},   /* granted */
        {0, 0, 1, now_us, 1, 1, now_us, 0, NONCE}, /* one too many */
    };
    static const size_t lens[] = {6, 6, 6, 6, 7, 6, 8, 9};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_int_equal(replay(world, bad[i], lens[i]), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_check_with_a_note_goes_in_steps_with_a_key_of_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(plain_checks_join_steps_and_steps_join_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(each_step_is_answered_from_what_it_saw, setup, teardown),
        cmocka_unit_test_setup_teardown(a_known_note_gives_the_first_answer_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_note_never_granted_more_than_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_note_of_other_settings_tells_what_was_granted_and_what_is_now, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_foreign_type_fails_its_own_step, setup, teardown),
        cmocka_unit_test_setup_teardown(a_state_that_no_script_leaves_fails_its_own_step, setup, teardown),
        cmocka_unit_test_setup_teardown(a_note_whose_window_had_ended_is_no_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_have_no_more_bad_values_than_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(replies_that_make_no_sense_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
