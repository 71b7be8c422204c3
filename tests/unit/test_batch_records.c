/*
 * test_batch_records.c: as test_batch.c, ops with keys of their own: idempotency records and slots.
 */
#include "fakes/batch_fixture.h"

static void a_check_with_a_request_id_has_a_record_of_its_own(void **state)
{
    struct fixture *fixture = *state;
    add_op(fixture, once(op_of(fixture, 0, fixture->window, OP_CHECK, 2), "note1:w:1:k:id"));
    pack(fixture);
    assert_int_equal(fixture->n_args, 4);
    assert_true(slice_is(fixture->args[0], "2"));
    struct slice key = fixture->args[1], record = fixture->args[2];
    assert_int_equal(record.len, strlen("rl:{b000}:note1:w:1:k:id"));
    assert_memory_equal(record.data, key.data, strlen("rl:{b000}:")); /* of the same shard */
    assert_memory_equal(record.data + strlen("rl:{b000}:"), "note1:w:1:k:id", 14);
    ASSERT_PACKET(fixture,
                  HEADER_LOADED("\x02", "\x01", "\x03") LIMIT_WINDOW SPAN(LOAD, "\x01", "\x01", "\x01", "\x01", "\0")
                      CHECK_ALL("\x01", "\x01",
                                "\x01"
                                "\x02\0"
                                "\0\0" ON("\x01", "\0", STEP_1, "\x02")) "\x60\xea\0\0\0\0"
                                                                         "\x09\0\0\0" /* for 60 s, version 9 */
                  SPAN(SAVE, "\x01", "\x01", "\x01", "\0", "\0"));
}

static void plain_checks_and_request_ids_share_a_call_and_a_record_stands_in_it_once(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->bucket, "plain", 1);
    add_op(fixture, once(op_of(fixture, 1, fixture->window, OP_CHECK, 1), "same"));
    add_op(fixture, once(op_of(fixture, 2, fixture->window, OP_CHECK, 1), "same"));
    add_op(fixture, op_of(fixture, 3, fixture->bucket, OP_REFUND, 1));
    add_op(fixture, op_of(fixture, 4, fixture->window, OP_PEEK, 1));
    assert_int_equal(batch_add(fixture->batch, op_of(fixture, 5, fixture->window, OP_RESET, 0)), BATCH_CLASHES);
    assert_int_equal(batch_n_keys(fixture->batch), 3);
    pack(fixture);
    assert_true(slice_is(fixture->args[0], "4"));
}

static void each_op_is_answered_from_what_it_saw(void **state)
{
    struct fixture *fixture = *state;
    struct op *most = op_of(fixture, 2, fixture->window, OP_CHECK, 1);
    most->at_most = 5;
    add_op(fixture, op_of(fixture, 0, fixture->window, OP_REFUND, 2));
    add_op(fixture, op_of(fixture, 1, fixture->log, OP_CHECK, 2));
    add_op(fixture, most);
    /* the log, directly: 4, available in 300 ms; 2 are charged after the refund of 1; 2 seen by the last */
    const int64_t reply[] = {4, now_us, 300000, 2, 1, 2, now_us, 0, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(fixture->members[0].refunded, 1);
    assert_int_equal(fixture->members[0].decision.remaining, 3);
    assert_false(fixture->members[1].decision.allowed);
    assert_int_equal(fixture->members[1].decision.retry_after_ms, 300);
    assert_true(fixture->members[2].decision.allowed);
    assert_int_equal(fixture->members[2].decision.granted, 3);
    assert_int_equal(fixture->members[2].decision.remaining, 0);
}

/* The script gives back what is in the log, so what this batch has charged must be in it by then. */
static void a_log_is_saved_and_loaded_before_units_come_back(void **state)
{
    struct fixture *fixture = *state;
    add_op(fixture, op_of(fixture, 0, fixture->log, OP_CHECK, 2));
    add_op(fixture, op_of(fixture, 1, fixture->log, OP_CHECK, 1));
    add_op(fixture, op_of(fixture, 2, fixture->log, OP_REFUND, 1));
    pack(fixture);
    assert_int_equal(fixture->args[2].data[15], 7); /* load, check, check, save, load, refund, save */
    const int64_t reply[] = {0, 0, 0, 2, now_us, 0, 2, now_us, 1, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 12, NONCE), 0);
    assert_int_equal(fixture->members[2].refunded, 1);
}

static void slots_are_read_before_each_op_that_asks_for_them(void **state)
{
    struct fixture *fixture = *state;
    static const char slot[SLOT_ID_LEN] = "0123456789abcdef0123456789abcde";
    static const enum op_kind kinds[] = {OP_ACQUIRE, OP_ACQUIRE, OP_RENEW, OP_RELEASE, OP_PEEK};
    for (size_t i = 0; i < 5; i++) {
        struct op *op = op_of(fixture, i, fixture->slots, kinds[i], 1);
        op->slot = slot;
        add_op(fixture, op);
    }
    pack(fixture);
    /* load, acquire, save; load, acquire, save; renew, release; load, peek */
    assert_int_equal(fixture->args[2].data[15], 10);
    const int64_t reply[] = {4, 1000, 5, (INT64_C(700) << 26) + 1000, 1, 0, 4, 1000, now_us, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, reply, 11, NONCE), 0);
    assert_true(fixture->members[0].decision.allowed);
    assert_false(fixture->members[1].decision.allowed);
    assert_int_equal(fixture->members[1].decision.retry_after_ms, 700);
    assert_true(fixture->members[2].found);
    assert_false(fixture->members[3].found);
    assert_int_equal(fixture->members[4].decision.remaining, 0);
}

static void a_known_record_gives_the_first_answer_again(void **state)
{
    struct fixture *fixture = *state;
    add_op(fixture, once(op_of(fixture, 0, fixture->window, OP_CHECK, 1), "n"));
    const int64_t reply[] = {1, 1, now_us - 500000, 2, now_us, 0, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    assert_true(fixture->members[0].decision.allowed);
    assert_int_equal(fixture->members[0].decision.granted, 2);
    assert_int_equal(fixture->members[0].decision.remaining, 2);
    assert_int_equal(fixture->members[0].decision.reset_after_ms, 500); /* of the window before, in its middle */
}

/* A server may say anything, and what it says is charged once more here. */
static void a_record_never_granted_more_than_the_limit(void **state)
{
    struct fixture *fixture = *state;
    const int64_t huge = INT64_C(1) << 53;
    add_op(fixture, once(op_of(fixture, 0, fixture->slow, OP_CHECK, 1), "n"));
    const int64_t reply[] = {huge, 1, now_us, huge, now_us, 0, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(fixture->members[0].decision.granted, 1);
    assert_int_equal(fixture->members[0].decision.remaining, 0);
}

static void a_record_of_other_settings_has_what_was_granted_and_the_present_state(void **state)
{
    struct fixture *fixture = *state;
    add_op(fixture, once(op_of(fixture, 0, fixture->window, OP_CHECK, 1), "n"));
    const int64_t reply[] = {7, 2, now_us - 500000, 4, now_us, 0, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    const struct decision *decision = &fixture->members[0].decision;
    assert_true(decision->allowed);
    assert_int_equal(decision->granted, 4);
    assert_int_equal(decision->remaining, 0);
    assert_int_equal(decision->reset_after_ms, 1000);
}

/* The retry time is 5 ms ago. */
static void a_state_that_no_script_leaves_fails_its_own_op(void **state)
{
    struct fixture *fixture = *state;
    const int64_t ended_ms = now_us / 1000 - 5;
    uint64_t bad = redis_counters.redis_bad_replies;
    add_op(fixture, op_of(fixture, 0, fixture->hit, OP_REFUND, 2));
    add_op(fixture, once(op_of(fixture, 1, fixture->hit, OP_CHECK, 1), "n"));
    add_op(fixture, op_of(fixture, 2, fixture->window, OP_CHECK, 1));
    /* the window, directly; the refund; the check */
    const int64_t reply[] = {0, 4, ended_ms, 1, 5, ended_ms, 0, 0, 0, now_us, 0, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_STORE_ERROR);
    assert_int_equal(fixture->ops[1].outcome, OP_STORE_ERROR);
    assert_int_equal(fixture->ops[2].outcome, OP_DECIDED);
    assert_int_equal(redis_counters.redis_bad_replies, bad + 1);
}

static void a_record_whose_window_had_ended_is_no_answer(void **state)
{
    struct fixture *fixture = *state;
    const int64_t then_ms = now_us / 1000 - 500;
    for (size_t i = 0; i < 2; i++)
        add_op(fixture, once(op_of(fixture, i, fixture->hit, OP_CHECK, 1), i == 0 ? "n" : "m"));
    const int64_t reply[] = {1, then_ms - 1,    1, then_ms * 1000, 2, 1,    then_ms + 1,
                             1, then_ms * 1000, 2, now_us,         0, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_STORE_ERROR);
    assert_int_equal(fixture->ops[1].outcome, OP_DECIDED);
    assert_int_equal(fixture->members[1].decision.reset_after_ms, 1);
}

static void records_are_keys_that_may_be_bad(void **state)
{
    struct fixture *fixture = *state;
    uint64_t bad = redis_counters.redis_bad_values;
    add_op(fixture, once(op_of(fixture, 0, fixture->window, OP_CHECK, 1), "n"));
    const int64_t reply[] = {0, 0, 0, 0, now_us, INT64_C(1) << 53, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(redis_counters.redis_bad_values, bad + 2); /* the state's and the record's */
}

static void a_foreign_type_fails_its_own_op(void **state)
{
    struct fixture *fixture = *state;
    add_op(fixture, op_of(fixture, 0, fixture->log, OP_REFUND, 2));
    add_op(fixture, op_of(fixture, 1, fixture->window, OP_CHECK, 1));
    const int64_t reply[] = {0, -1, 0, 0, now_us, 0, NONCE};
    assert_int_equal(replay(fixture, reply, sizeof reply / sizeof reply[0]), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_STORE_ERROR);
    assert_int_equal(fixture->ops[1].outcome, OP_DECIDED);
}

static void words_of_a_record_that_make_no_sense_are_refused(void **state)
{
    struct fixture *fixture = *state;
    add_op(fixture, once(op_of(fixture, 0, fixture->window, OP_CHECK, 1), "n"));
    const int64_t bad[][8] = {
        {6, 0, 0, 0, now_us, 0, 1},      /* not our nonce */
        {-2, 0, 0, 0, now_us, 0, NONCE}, /* the state */
        {0, 3, 0, 0, now_us, 0, NONCE},  /* neither known nor not */
        {0, -1, 0, 0, now_us, 0, NONCE},
        {0, 1, -1, 0, now_us, 0, NONCE},        /* when */
        {0, 1, now_us, -1, now_us, 0, NONCE},   /* granted */
        {0, 1, now_us, 1, 1, now_us, 0, NONCE}, /* one too many */
    };
    static const size_t lens[] = {7, 7, 7, 7, 7, 7, 8};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_int_equal(replay(fixture, bad[i], lens[i]), -1);
}

static void a_script_that_began_too_late_has_answered_nothing(void **state)
{
    struct fixture *fixture = *state;
    check(fixture, 0, fixture->window, "k", 1);
    fixture->ops[0].outcome = OP_DOWN;
    fixture->n_args = batch_args(fixture->batch, NONCE, now_us, now_us + 5, &fixture->args);
    static const uint8_t latest[] = {0x05, 0x40, 0x1e, 0x18, 0x24, 0x0a, 0x06};
    assert_memory_equal(fixture->args[fixture->n_args - 1].data + 4, latest, sizeof latest);
    const int64_t late[] = {-2, now_us + 6, NONCE}, another[] = {-2, now_us + 6, NONCE + 1}, never[] = {-2, -1, NONCE};
    assert_int_equal(batch_replay(fixture->batch, another, 3, NONCE), -1);
    assert_int_equal(batch_replay(fixture->batch, never, 3, NONCE), -1);
    assert_int_equal(batch_replay(fixture->batch, late, 3, NONCE), 1);
    assert_int_equal(batch_now_us(fixture->batch), now_us + 6);
    assert_int_equal(fixture->ops[0].outcome, OP_DOWN);
    const int64_t good[] = {0, now_us + 5, 0, NONCE};
    assert_int_equal(batch_replay(fixture->batch, good, 4, NONCE), 0);
    assert_int_equal(fixture->ops[0].outcome, OP_DECIDED);
}

static void keys_of_any_bytes_stay_apart(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t odd[] = {'}', '\r', '\n', 0, 0xff, '{'};
    check(fixture, 0, fixture->bucket, "k", 1);
    fixture->members[1] =
        (struct op_member){.limit = &fixture->bucket->limits[0], .key = {.data = odd, .len = sizeof odd}, .cost = 1};
    fixture->ops[1] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &fixture->members[1]};
    list_init(&fixture->ops[1].link);
    assert_int_equal(batch_add(fixture->batch, &fixture->ops[1]), 0);
    check(fixture, 2, fixture->window, "k", 1);
    pack(fixture);
    assert_true(slice_is(fixture->args[0], "3"));
    assert_memory_equal(fixture->args[2].data + fixture->args[2].len - sizeof odd, odd, sizeof odd);
}

static void a_batch_survives_short_memory(void **state)
{
    struct fixture *fixture = *state;
    char key[16];
    size_t n_failed = 0;
    for (uint64_t nth = 1; nth < 8; nth++) {
        struct batch *batch = batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, BATCH_KEYS_MAX, true);
        assert_non_null(batch);
        mem_fail_nth(nth);
        snprintf(key, sizeof key, "k%d", (int)nth);
        fixture->members[0] = (struct op_member){.limit = &fixture->log->limits[0], .key = slice_of(key), .cost = 1};
        fixture->ops[0] = (struct op){.kind = OP_CHECK, .n_members = 1, .members = &fixture->members[0]};
        list_init(&fixture->ops[0].link);
        int status = batch_add(batch, &fixture->ops[0]);
        if (status == 0 && batch_args(batch, NONCE, now_us, 0, &fixture->args) == 0) n_failed++;
        if (status < 0) {
            n_failed++;
            assert_int_equal(batch_n_ops(batch), 0);
            assert_int_equal(batch_n_keys(batch), 0);
        }
        mem_fail_nth(0);
        struct list ops;
        list_init(&ops);
        batch_take_ops(batch, &ops);
        batch_free(batch);
    }
    assert_int_equal(n_failed, 2); /* the ops of the script, and the bytes of the call */
    mem_fail_nth(1);
    assert_null(batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, 1, true));
    mem_fail_nth(2);
    assert_null(batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, 1, true));
    mem_fail_nth(0);
}

static void a_used_batch_allocates_no_more(void **state)
{
    struct fixture *fixture = *state;
    uint64_t allocs = 0;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N_OPS; i++) check(fixture, i, fixture->log, i % 2 ? "odd" : "even", (int64_t)i % 3 + 1);
        pack(fixture);
        empty(fixture);
        if (round == 0) allocs = mem_n_allocs();
    }
    assert_int_equal(mem_n_allocs(), allocs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_check_with_a_request_id_has_a_record_of_its_own),
        TEST(plain_checks_and_request_ids_share_a_call_and_a_record_stands_in_it_once),
        TEST(each_op_is_answered_from_what_it_saw),
        TEST(a_log_is_saved_and_loaded_before_units_come_back),
        TEST(slots_are_read_before_each_op_that_asks_for_them),
        TEST(a_known_record_gives_the_first_answer_again),
        TEST(a_record_never_granted_more_than_the_limit),
        TEST(a_record_of_other_settings_has_what_was_granted_and_the_present_state),
        TEST(a_state_that_no_script_leaves_fails_its_own_op),
        TEST(a_record_whose_window_had_ended_is_no_answer),
        TEST(records_are_keys_that_may_be_bad),
        TEST(a_foreign_type_fails_its_own_op),
        TEST(words_of_a_record_that_make_no_sense_are_refused),
        TEST(a_script_that_began_too_late_has_answered_nothing),
        TEST(keys_of_any_bytes_stay_apart),
        TEST(a_batch_survives_short_memory),
        TEST(a_used_batch_allocates_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
