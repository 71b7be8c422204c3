/* test_memory_reservations.c: reservations in the memory store: the bounds of their list, and the look-ups that the
 * flag of a state saves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "fakes/memory_fixture.h"
#include "fakes/policies.h"
#include "store/memory_counters.h"
#include "store/reservation_list.h"

#define SECOND_US INT64_C(1000000)

enum { MANY_KEYS = 10000, AT_ONCE = 8 /* in one millisecond */ };

static struct memory_fixture fixture;
static const struct policy *policy;

static void open_store(uint64_t max_keys)
{
    const struct memory_options options = {.max_keys = max_keys, .sweep = true, .counted = true};
    const struct policy_spec spec = {
        .name = "p", .limits = {{.algo = ALGO_FIXED_WINDOW, .limit = 1000, .window_us = 86400 * SECOND_US}}};
    memory_fixture_open(&fixture, 86400 * 10000 * SECOND_US, &options);
    policy = policies_add(fixture.set, &spec);
}

static int set_up(void **state)
{
    (void)state;
    open_store(1000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return memory_fixture_close(&fixture);
}

static void advance_ms(int64_t ms)
{
    memory_fixture_advance(&fixture, ms * 1000);
}

static struct decision ask(enum op_kind kind, const char *key, int64_t cost, struct op_reservation *reservation)
{
    struct op_member member = {
        .limit = &policy->limits[0], .key = slice_of(key), .reservations_key = slice_of(key), .cost = cost};
    struct op op = {.kind = kind, .n_members = 1, .members = &member, .reservation = reservation};
    assert_int_equal(store_submit(&fixture.store, &op), SUBMIT_DECIDED);
    return member.decision;
}

static struct op_reservation reserve(const char *key, uint64_t id, int64_t units, int64_t ttl_ms)
{
    struct op_reservation reservation = {.id = id, .units = units, .ttl_ms = ttl_ms};
    ask(OP_RESERVE, key, units, &reservation);
    assert_true(reservation.held);
    return reservation;
}

static int64_t remaining(const char *key)
{
    return ask(OP_PEEK, key, 0, NULL).remaining;
}

static void a_denied_reserve_leaves_no_list(void **state)
{
    (void)state;
    struct op_reservation reservation = {.id = 1, .units = 1001, .ttl_ms = 1000};
    ask(OP_RESERVE, "a", 1001, &reservation);
    assert_false(reservation.held);
    assert_int_equal(memory_counters.memory_keys, 0);
}

static void what_ended_first_comes_back_first_and_64_at_a_time(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) reserve("a", i + 1, 1, 1000 - (int64_t)i);
    advance_ms(950);
    assert_int_equal(remaining("a"), 950);
    advance_ms(50);
    assert_int_equal(remaining("a"), 1000);
    for (uint64_t i = 0; i < 100; i++) reserve("b", i + 1, 1, 1000);
    advance_ms(1000);
    assert_int_equal(remaining("b"), 964);
    assert_int_equal(remaining("b"), 1000);
}

static void a_settlement_too_gives_back_64_at_a_time(void **state)
{
    (void)state;
    struct op_reservation reservation = {0};
    for (uint64_t i = 0; i < 100; i++) reservation = reserve("a", i + 1, 1, 1000);
    advance_ms(1000);
    reservation.actual = 1;
    assert_int_equal(ask(OP_SETTLE, "a", 0, &reservation).remaining, 964);
    assert_false(reservation.ended);
    assert_int_equal(remaining("a"), 999);
}

/* As of the members of a ZSET, whose ids are little-endian. */
static void of_one_end_the_bytes_of_the_id_say_which_comes_back_first(void **state)
{
    (void)state;
    struct op_reservation last = reserve("a", 65, 1, 1000);
    for (uint64_t id = 64; id > 1; id--) reserve("a", id, 1, 1000);
    struct op_reservation first = reserve("a", 256, 1, 1000);
    advance_ms(1000);
    ask(OP_SETTLE, "a", 0, &last);
    assert_false(last.ended);
    ask(OP_SETTLE, "a", 0, &first);
    assert_true(first.ended);
}

static void other_keys_are_not_touched(void **state)
{
    (void)state;
    ask(OP_CHECK, "before", 1, NULL);
    reserve("a", 1, 10, 1000);
    ask(OP_CHECK, "after", 1, NULL);
    advance_ms(1000);
    assert_int_equal(remaining("before"), 999);
    assert_int_equal(remaining("after"), 999);
    assert_int_equal(remaining("a"), 1000);
}

static void a_list_is_swept_a_minute_after_its_last_end(void **state)
{
    (void)state;
    reserve("a", 1, 10, 1000);
    uint64_t n_bytes = memory_counters.memory_bytes;
    assert_int_equal(memory_counters.memory_keys, 2);
    advance_ms(1000 + RESERVATION_GRACE_MS - 1);
    store_flush(&fixture.store);
    assert_int_equal(memory_counters.memory_keys, 2);
    advance_ms(1);
    for (int i = 0; i < 10; i++) store_flush(&fixture.store);
    assert_int_equal(memory_counters.memory_keys, 1); /* its units stay charged: nobody asked in time */
    assert_true(memory_counters.memory_bytes < n_bytes);
    assert_int_equal(remaining("a"), 990);
}

static void a_tombstone_is_remembered_until_its_time_is_over(void **state)
{
    (void)state;
    struct op_reservation reservation = reserve("a", 1, 10, 1000), again;
    reservation.actual = 4;
    ask(OP_SETTLE, "a", 0, &reservation);
    assert_int_equal(reservation.refunded, 6);
    advance_ms(1000 + RESERVATION_GRACE_MS - 1);
    again = reservation;
    ask(OP_SETTLE, "a", 0, &again);
    assert_true(again.ended && again.charged == 0 && again.refunded == 0);
    assert_int_equal(memory_counters.memory_keys, 2);
    advance_ms(1);
    ask(OP_SETTLE, "a", 0, &again);
    assert_true(again.ended && again.charged == 0);
    assert_int_equal(memory_counters.memory_keys, 1); /* no list */
    assert_int_equal(remaining("a"), 996);
}

/* A client may forge a reservation's text with any time. */
static void an_unknown_reservation_that_ends_in_more_than_a_day_is_ignored(void **state)
{
    (void)state;
    struct op_reservation reservation = {
        .id = 1, .units = 1, .made_us = (INT64_C(1) << 53) - 1, .ttl_ms = 1000, .actual = 2};
    ask(OP_SETTLE, "a", 0, &reservation);
    assert_true(reservation.ended && reservation.charged == 0);
    assert_int_equal(memory_counters.memory_keys, 0);
}

static void a_reservation_from_before_the_clock_stepped_back_is_settled_once(void **state)
{
    (void)state;
    struct op_reservation reservation = reserve("a", 1, 10, 1000), again;
    fixture.now.wall_us -= 3 * RESERVATION_TTL_MAX_MS * INT64_C(1000);
    reservation.actual = 12;
    again = reservation;
    ask(OP_SETTLE, "a", 0, &reservation);
    assert_true(!reservation.ended && reservation.charged == 2);
    advance_ms(RESERVATION_TTL_MAX_MS + RESERVATION_GRACE_MS - 1);
    reserve("a", 2, 1, RESERVATION_TTL_MAX_MS); /* the list stays */
    ask(OP_SETTLE, "a", 0, &again);
    assert_true(again.ended && again.charged == 0);
    advance_ms(1);
    ask(OP_SETTLE, "a", 0, &again);
    assert_true(again.ended && again.charged == 0);
}

static void a_tombstone_without_a_reservation_goes_when_it_ends(void **state)
{
    (void)state;
    struct op_reservation reservation = {.id = 1, .units = 1001, .ttl_ms = 1000};
    ask(OP_CHECK, "a", 1, NULL);
    ask(OP_RESERVE, "a", 1001, &reservation);
    assert_false(reservation.held);
    reservation.made_us = fixture.now.wall_us;
    ask(OP_SETTLE, "a", 0, &reservation);
    remaining("a");
    assert_int_equal(memory_counters.memory_keys, 2);
    advance_ms(61000);
    remaining("a");
    assert_int_equal(memory_counters.memory_keys, 1);
}

static void a_full_table_forgets_lists_as_other_keys(void **state)
{
    (void)state;
    tear_down(NULL);
    open_store(4);
    for (uint64_t i = 0; i < 50; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", (int)i);
        reserve(key, i + 1, 1, 1000);
        store_flush(&fixture.store);
        assert_in_range(memory_counters.memory_keys, 1, 6);
    }
    assert_true(memory_counters.memory_evicted > 80);
}

static void a_list_has_an_end(void **state)
{
    (void)state;
    struct reservation_list *list = NULL;
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i++) {
        assert_int_equal(reservation_list_reserve(&list), 0);
        reservation_list_add(list, &(struct reserved){.id = i, .end_ms = (int64_t)i});
    }
    assert_int_equal(reservation_list_reserve(&list), -1);
    assert_int_equal(reservation_list_len(list), RESERVATIONS_PER_KEY_MAX);
    reservation_list_free(list);
}

static void a_full_list_forgets_the_tombstones_that_end_first(void **state)
{
    (void)state;
    struct reservation_list *list = NULL;
    size_t at;
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i++) {
        assert_int_equal(reservation_list_reserve(&list), 0);
        reservation_list_add(list, &(struct reserved){.id = i, .end_ms = (int64_t)i, .settled = i % 8 != 0});
    }
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i++) {
        assert_int_equal(reservation_list_reserve(&list), 0);
        reservation_list_add(list, &(struct reserved){.id = RESERVATIONS_PER_KEY_MAX + i,
                                                      .end_ms = RESERVATIONS_PER_KEY_MAX + (int64_t)i,
                                                      .settled = true});
        assert_true(reservation_list_len(list) <= RESERVATIONS_PER_KEY_MAX);
    }
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i += 8)
        assert_non_null(reservation_list_find(list, i, (int64_t)i, &at));
    assert_null(reservation_list_find(list, 1, 1, &at));
    assert_non_null(
        reservation_list_find(list, 2 * RESERVATIONS_PER_KEY_MAX - 1, 2 * RESERVATIONS_PER_KEY_MAX - 1, &at));
    reservation_list_free(list);
}

static void a_list_is_in_order_whatever_comes_and_goes(void **state)
{
    (void)state;
    struct reservation_list *list = NULL;
    uint64_t seed = 1;
    int64_t ends[300] = {0}; /* by id; 0 = not there */
    for (int step = 0; step < 20000; step++) {
        uint64_t id = random_below(&seed, 300);
        size_t at = 0;
        if (ends[id] > 0) {
            assert_non_null(reservation_list_find(list, id, ends[id], &at));
            if (random_below(&seed, 2) == 0) at = 0;
            uint64_t gone = reservation_list_at(list, at)->id;
            reservation_list_remove(list, at);
            ends[gone] = 0;
        } else {
            ends[id] = 1 + (int64_t)random_below(&seed, 50) + step / 100;
            assert_int_equal(reservation_list_reserve(&list), 0);
            reservation_list_add(list, &(struct reserved){.id = id, .end_ms = ends[id]});
        }
        for (size_t i = 1; i < reservation_list_len(list); i++)
            assert_true(reservation_list_at(list, i - 1)->end_ms <= reservation_list_at(list, i)->end_ms);
    }
    size_t n = 0, at;
    for (uint64_t id = 0; id < 300; id++) {
        n += ends[id] > 0;
        if (ends[id] > 0) assert_non_null(reservation_list_find(list, id, ends[id], &at));
    }
    assert_int_equal(reservation_list_len(list), n);
    reservation_list_free(list);
}

/* What was settled is remembered for a while: not at the cost of what comes. */
static void a_key_may_be_reserved_and_settled_as_often_as_one_likes(void **state)
{
    (void)state;
    tear_down(NULL);
    open_store(MANY_KEYS); /* for a list is bounded by the table's bytes too */
    for (uint64_t i = 1; i <= RESERVATIONS_PER_KEY_MAX + 1000; i++) {
        struct op_reservation reservation = reserve("a", i, 5, 1000);
        assert_true(reservation.held);
        ask(OP_SETTLE, "a", 0, &reservation);
        assert_false(reservation.ended);
        if (i % AT_ONCE == 0) advance_ms(1);
    }
    assert_int_equal(remaining("a"), 1000);
}

static void whatever_is_held_can_be_settled(void **state)
{
    (void)state;
    static struct op_reservation holds[RESERVATIONS_PER_KEY_MAX];
    tear_down(NULL);
    open_store(MANY_KEYS);
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i++) {
        holds[i] = reserve("a", i + 1, 0, 60000);
        assert_true(holds[i].held);
        if (i % AT_ONCE == 0) advance_ms(1);
    }
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i += 100) {
        ask(OP_SETTLE, "a", 0, &holds[i]);
        assert_false(holds[i].ended);
    }
}

/* Refused a million times, found a million times: each a walk through the list took minutes. */
static void a_full_key_refuses_at_once_and_finds_at_once(void **state)
{
    (void)state;
    enum { TIMES = 1000000 };
    struct reservation_list *list = NULL;
    size_t at;
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i++) {
        assert_int_equal(reservation_list_reserve(&list), 0);
        reservation_list_add(list, &(struct reserved){.id = i, .end_ms = (int64_t)i});
    }
    for (uint64_t i = 0; i < TIMES; i++) {
        if (reservation_list_reserve(&list) == 0) fail_msg("round %d found a place", (int)i);
        if (reservation_list_find(list, RESERVATIONS_PER_KEY_MAX + i, (int64_t)i, &at) != NULL)
            fail_msg("round %d found another's", (int)i);
    }
    assert_int_equal(reservation_list_len(list), RESERVATIONS_PER_KEY_MAX);
    reservation_list_free(list);
}

/* Each round settles one and reserves one: only that tombstone can go. */
static void a_full_list_forgets_its_only_tombstone(void **state)
{
    (void)state;
    enum { ROUNDS = 200 }; /* each looks through the whole list */
    struct reservation_list *list = NULL;
    size_t at;
    for (uint64_t i = 0; i < RESERVATIONS_PER_KEY_MAX; i++) {
        assert_int_equal(reservation_list_reserve(&list), 0);
        reservation_list_add(list, &(struct reserved){.id = i, .end_ms = (int64_t)i});
    }
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t id = i * 7 % RESERVATIONS_PER_KEY_MAX;
        assert_int_equal(reservation_list_reserve(&list), -1);
        assert_non_null(reservation_list_find(list, id, (int64_t)id, &at));
        reservation_list_remove(list, at);
        reservation_list_add(
            list, &(struct reserved){.id = id, .end_ms = (int64_t)id + RESERVATION_GRACE_MS, .settled = true});
        assert_int_equal(reservation_list_reserve(&list), 0);
        assert_null(reservation_list_find(list, id, (int64_t)id, &at));
        reservation_list_add(list, &(struct reserved){.id = RESERVATIONS_PER_KEY_MAX + i, .end_ms = (int64_t)id});
    }
    for (uint64_t i = 0; i < ROUNDS; i++)
        assert_non_null(reservation_list_find(list, RESERVATIONS_PER_KEY_MAX + i,
                                              (int64_t)(i * 7 % RESERVATIONS_PER_KEY_MAX), &at));
    assert_int_equal(reservation_list_len(list), RESERVATIONS_PER_KEY_MAX);
    reservation_list_free(list);
}

/* The reservation never ended at the time in its text. */
static void tombstones_that_a_clock_has_moved_are_found_among_many(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct reservation_list *list = NULL;
    size_t at;
    for (uint64_t i = 0; i < N; i++) {
        bool moved = i % 3 == 0;
        assert_int_equal(reservation_list_reserve(&list), 0);
        reservation_list_add(
            list, &(struct reserved){
                      .id = i, .end_ms = moved ? 5000 + (int64_t)i : (int64_t)i, .settled = moved, .moved = moved});
    }
    for (uint64_t i = 0; i < N; i++) {
        const struct reserved *found = reservation_list_find(list, i, (int64_t)i, &at);
        assert_non_null(found);
        assert_int_equal(found->id, i);
        reservation_list_remove(list, at);
        assert_null(reservation_list_find(list, i, (int64_t)i, &at));
    }
    assert_int_equal(reservation_list_len(list), 0);
    reservation_list_free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_denied_reserve_leaves_no_list, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_ended_first_comes_back_first_and_64_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_settlement_too_gives_back_64_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_one_end_the_bytes_of_the_id_say_which_comes_back_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_keys_are_not_touched, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_is_swept_a_minute_after_its_last_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_tombstone_is_remembered_until_its_time_is_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unknown_reservation_that_ends_in_more_than_a_day_is_ignored, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_reservation_from_before_the_clock_stepped_back_is_settled_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_tombstone_without_a_reservation_goes_when_it_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_table_forgets_lists_as_other_keys, set_up, tear_down),
        cmocka_unit_test(a_list_has_an_end),
        cmocka_unit_test(a_full_list_forgets_the_tombstones_that_end_first),
        cmocka_unit_test(a_list_is_in_order_whatever_comes_and_goes),
        cmocka_unit_test(a_full_key_refuses_at_once_and_finds_at_once),
        cmocka_unit_test(a_full_list_forgets_its_only_tombstone),
        cmocka_unit_test(tombstones_that_a_clock_has_moved_are_found_among_many),
        cmocka_unit_test_setup_teardown(a_key_may_be_reserved_and_settled_as_often_as_one_likes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whatever_is_held_can_be_settled, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
