/* test_op_queue.c: the queue in front of Redis: each client's ops in order, the clients in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/random.h"
#include "fakes/one_limit.h"
#include "redis/batch.h"
#include "redis/op_queue.h"

enum { N_OPS = 8000 };

struct suite {
    struct op_queue queue;
    struct op ops[N_OPS];
    size_t n;
};

static struct suite suite;

static int setup(void **state)
{
    *state = &suite;
    suite.n = 0;
    return op_queue_init(&suite.queue);
}

static int teardown(void **state)
{
    (void)state;
    for (struct op *op; (op = op_queue_next(&suite.queue)) != NULL;) op_queue_take(&suite.queue, op);
    op_queue_fini(&suite.queue);
    return 0;
}

static struct op *add(uint64_t client)
{
    struct op *op = &suite.ops[suite.n++];
    *op = (struct op){.client = client, .weight = 1};
    list_init(&op->link);
    assert_int_equal(op_queue_add(&suite.queue, op), 0);
    return op;
}

static struct op *take(void)
{
    struct op *op = op_queue_next(&suite.queue);
    if (op != NULL) op_queue_take(&suite.queue, op);
    return op;
}

static void one_partys_ops_keep_their_order(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) (void)add(7);
    for (int i = 0; i < 100; i++) assert_ptr_equal(take(), &suite.ops[i]);
    assert_null(take());
}

static void a_party_with_thousands_of_ops_delays_another_by_its_share(void **state)
{
    (void)state;
    for (int i = 0; i < 4000; i++) (void)add(1);
    struct op *polite = add(2);
    for (int i = 0; i < OP_QUEUE_SHARE; i++) assert_int_equal(take()->client, 1);
    assert_ptr_equal(take(), polite);
    assert_int_equal(take()->client, 1);
}

/* The single checks of a key that wait, oldest first, whoever asks. */
static void assert_checks_of(struct op *op, struct op *const *expected, size_t n)
{
    size_t i = 0;
    uint64_t hash = batch_key_hash(&op->members[0]);
    const struct list *checks = op_queue_checks_of(&suite.queue, hash);
    LIST_FOREACH (it, checks) {
        struct op *found = LIST_ITEM(it, struct op, same_key);
        if (batch_key_hash(&found->members[0]) != hash) continue;
        assert_true(i < n);
        assert_ptr_equal(found, expected[i++]);
    }
    assert_int_equal(i, n);
}

static struct op *add_check(uint64_t client, struct op_member *member)
{
    struct op *op = &suite.ops[suite.n++];
    *op = (struct op){.client = client, .weight = 1, .kind = OP_CHECK, .n_members = 1, .members = member};
    list_init(&op->link);
    assert_int_equal(op_queue_add(&suite.queue, op), 0);
    return op;
}

static void checks_of_one_key_are_found_in_their_order_whoever_asks(void **state)
{
    (void)state;
    struct one_limit one = one_limit(ALGO_FIXED_WINDOW, 10, 1000000, 0, false);
    struct op_member a = {.limit = one.limit, .key = slice_of("a")}, b = a;
    b.key = slice_of("b");
    struct op *first = add_check(1, &a), *other_key = add_check(1, &b), *second = add_check(2, &a);
    assert_checks_of(first, (struct op *[]){first, second}, 2);
    assert_checks_of(other_key, &other_key, 1);

    op_queue_take(&suite.queue, first);
    assert_checks_of(first, &second, 1);
    assert_int_equal(op_queue_put_back(&suite.queue, first), 0);
    assert_checks_of(first, (struct op *[]){first, second}, 2);

    assert_false(op_queue_has_others(&suite.queue, first));
    struct op *peek = add(1);
    assert_true(op_queue_has_others(&suite.queue, first));
    assert_false(op_queue_has_others(&suite.queue, second));
    op_queue_take(&suite.queue, peek);
    assert_false(op_queue_has_others(&suite.queue, first));

    while (take() != NULL) continue;
    assert_checks_of(first, NULL, 0);
    one_limit_fini(&one);
}

static void parties_are_served_round_robin_whatever_they_have(void **state)
{
    (void)state;
    enum { EACH = 4 * OP_QUEUE_SHARE };
    for (int i = 0; i < 7 * EACH; i++) (void)add(i < 4 * EACH ? 1 : i < 6 * EACH ? 2 : 3);
    int n_of[4] = {0};
    for (int i = 0; i < 3 * EACH; i++) n_of[take()->client]++;
    assert_int_equal(n_of[1], EACH);
    assert_int_equal(n_of[2], EACH);
    assert_int_equal(n_of[3], EACH);
}

/* 64 connections of check_alls with 16 members left a polite one a tenth of what Redis did. */
static void a_share_is_counted_in_weight(void **state)
{
    (void)state;
    enum { HEAVY = 63 };
    for (int i = 0; i < 4 * HEAVY; i++) add((uint64_t)(1 + i % HEAVY))->weight = OP_QUEUE_SHARE;
    for (int i = 0; i < 2 * OP_QUEUE_SHARE; i++) (void)add(100);
    int n_polite = 0;
    for (int i = 0; i < HEAVY + OP_QUEUE_SHARE; i++) n_polite += take()->client == 100;
    assert_int_equal(n_polite, OP_QUEUE_SHARE);
}

static void a_heavy_op_is_paid_for_by_the_next_turns_of_its_party(void **state)
{
    (void)state;
    enum { SHARES = 10 };
    for (int i = 0; i < 3; i++) add(1)->weight = SHARES * OP_QUEUE_SHARE;
    for (int i = 0; i < 3 * SHARES * OP_QUEUE_SHARE; i++) (void)add(2);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(take()->client, 1);
        for (int i = 0; i < SHARES * OP_QUEUE_SHARE; i++) assert_int_equal(take()->client, 2);
    }
    assert_null(take());
}

/* With 64 connections of check_alls, a check that came alone waited for a share of each: the store decided it too late.
 */
static void a_party_that_asks_little_does_not_wait_for_the_turns_of_the_others(void **state)
{
    (void)state;
    enum { FLOODS = 64, LITTLE = OP_QUEUE_SHARE };
    for (int i = 0; i < 60 * FLOODS; i++) (void)add((uint64_t)(1 + i % FLOODS));
    for (int i = 0; i <= FLOODS * OP_QUEUE_SHARE; i++) (void)take(); /* a new round has begun */

    for (int i = 0; i < LITTLE; i++) { /* each comes after the one before it was taken */
        struct op *polite = add(100);
        assert_ptr_equal(take(), polite);
        for (int k = 0; k < 7; k++) assert_int_not_equal(take()->client, 100);
    }
    struct op *beyond = add(100); /* it had its share of this round */
    assert_ptr_not_equal(take(), beyond);
    for (int i = 0; i < FLOODS * OP_QUEUE_SHARE && take() != beyond; i++) continue;
    assert_false(beyond->is_queued);
}

static void parties_that_come_and_go_do_not_keep_the_others_waiting(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) (void)add(1);
    for (int i = 0; i < OP_QUEUE_SHARE; i++) (void)take();
    int n_of_first = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        (void)add(2 + i);
        n_of_first += take()->client == 1;
    }
    assert_in_range(n_of_first, 1, 100);
}

/* It had one op each time, where the others had 2048. */
static void a_party_has_a_whole_turn_where_others_come_and_go(void **state)
{
    (void)state;
    enum { PER_TURN = 129 * OP_QUEUE_SHARE };
    int n_of_first = 0;
    for (int i = 0; i < 5 * OP_QUEUE_SHARE; i++) (void)add(1);
    for (int i = 0; i < OP_QUEUE_SHARE; i++) (void)take();
    for (uint64_t i = 0; i < 3 * PER_TURN; i++) {
        (void)add(2 + i);
        n_of_first += take()->client == 1;
    }
    assert_in_range(n_of_first, 2 * OP_QUEUE_SHARE - 1, 2 * OP_QUEUE_SHARE + 1);
}

static void what_a_party_owes_is_owed_when_it_comes_again(void **state)
{
    (void)state;
    enum { SHARES = 10 };
    for (int i = 0; i < 2 * SHARES * OP_QUEUE_SHARE; i++) (void)add(1);
    struct op *heavy = add(2);
    heavy->weight = SHARES * OP_QUEUE_SHARE;
    while (take() != heavy) continue;
    heavy = add(2);
    for (int i = 0; i < (SHARES - 1) * OP_QUEUE_SHARE; i++) assert_int_equal(take()->client, 1);
    while (heavy->is_queued) assert_non_null(take());
}

static void a_party_that_is_passed_over_is_next_when_that_ends(void **state)
{
    (void)state;
    struct op *ops[] = {add(1), add(2), add(3), add(1)};
    op_queue_pass(&suite.queue, ops[0]);
    assert_ptr_equal(op_queue_next(&suite.queue), ops[1]);
    op_queue_pass(&suite.queue, ops[1]);
    assert_ptr_equal(take(), ops[2]);
    assert_null(take());
    assert_int_equal(suite.queue.n, 3);
    struct op *later = add(3);
    op_queue_take(&suite.queue, ops[3]); /* what waits can be taken out all the same */
    op_queue_resume(&suite.queue);
    assert_ptr_equal(take(), ops[0]);
    assert_ptr_equal(take(), ops[1]);
    assert_ptr_equal(take(), later);
}

static void what_is_put_back_is_next_and_before_its_partys_others(void **state)
{
    (void)state;
    struct op *first = add(1), *second = add(1), *other = add(2);
    assert_ptr_equal(take(), first);
    assert_int_equal(op_queue_put_back(&suite.queue, first), 0);
    assert_ptr_equal(take(), first);
    assert_ptr_equal(take(), second);
    assert_ptr_equal(take(), other);
    assert_int_equal(op_queue_put_back(&suite.queue, other), 0); /* its client had left the ring */
    assert_int_equal(op_queue_put_back(&suite.queue, second), 0);
    assert_ptr_equal(take(), second);
    assert_ptr_equal(take(), other);
    assert_null(take());
}

static void an_op_can_be_taken_from_the_middle(void **state)
{
    (void)state;
    struct op *ops[6];
    for (int i = 0; i < 6; i++) ops[i] = add(i % 2 + 1);
    op_queue_take(&suite.queue, ops[3]);
    op_queue_take(&suite.queue, ops[0]);
    op_queue_take(&suite.queue, ops[1]);
    assert_int_equal(suite.queue.n, 3);
    uint64_t seen[3];
    for (int i = 0; i < 3; i++) seen[i] = take()->client;
    assert_int_equal(seen[0] + seen[1] + seen[2], 1 + 1 + 2);
    assert_null(take());
}

static void thousands_of_parties_come_and_go_without_allocating_for_each(void **state)
{
    (void)state;
    for (uint64_t client = 1; client <= 100; client++) (void)add(client);
    while (take() != NULL) continue;
    uint64_t before = mem_n_allocs();
    suite.n = 0;
    for (uint64_t client = 1000; client < 1100; client++) (void)add(client);
    assert_int_equal(mem_n_allocs(), before);
}

/* While Redis hung, the queue kept the number of every connection that had come and gone. */
static void parties_whose_ops_were_never_sent_are_forgotten(void **state)
{
    (void)state;
    struct op *waits = add(1);
    for (uint64_t client = 2; client < 5000; client++) op_queue_take(&suite.queue, add(client));
    assert_int_equal(suite.queue.by_number.n, 1);
    assert_ptr_equal(take(), waits);
}

static void without_memory_nothing_is_added(void **state)
{
    (void)state;
    struct op op = {.client = 5};
    list_init(&op.link);
    mem_fail_nth(1);
    assert_int_equal(op_queue_add(&suite.queue, &op), -1);
    mem_fail_nth(0);
    assert_null(op_queue_next(&suite.queue));
    assert_true(list_empty(&op.link));
}

/* Random clients, each with ops of three hash slots, some of which have had a turn. */
static void the_ops_of_some_hash_slots_are_taken_in_one_pass_and_the_others_stay(void **state)
{
    (void)state;
    enum { N = 3000, CLIENTS = 40 };
    static bool is_wanted[16384];
    uint64_t random = 1, last_of[CLIENTS] = {0};
    memset(is_wanted, 0, sizeof is_wanted);
    for (size_t i = 0; i < N; i++) {
        struct op *op = add(random_below(&random, CLIENTS));
        op->hash_slot = (uint16_t)(op->client == 0 ? 7 : 7 + random_below(&random, 3)); /* client 0 has no others */
        op->number = i + 1;
        if (i % 5 == 0) (void)take();
    }
    size_t n_before = suite.queue.n, n_taken = 0;

    struct list taken;
    list_init(&taken);
    is_wanted[7] = is_wanted[9] = true;
    op_queue_take_slots(&suite.queue, is_wanted, &taken);
    for (struct list *it; (it = list_pop_front(&taken)) != NULL; n_taken++) {
        const struct op *op = LIST_ITEM(it, struct op, link);
        assert_true(!op->is_queued && is_wanted[op->hash_slot]);
        assert_true(op->number > last_of[op->client]);
        last_of[op->client] = op->number;
    }
    assert_int_equal(suite.queue.n, n_before - n_taken);
    for (struct op *op; (op = take()) != NULL; n_taken++) assert_int_equal(op->hash_slot, 8);
    assert_int_equal(n_taken, n_before);

    for (size_t i = 0; i < 10; i++) add(i)->hash_slot = 7;
    op_queue_take_slots(&suite.queue, is_wanted, &taken); /* all */
    assert_int_equal(suite.queue.n, 0);
    assert_null(op_queue_next(&suite.queue));
    op_queue_take_slots(&suite.queue, is_wanted, &taken); /* none */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_partys_ops_keep_their_order),
        TEST(a_party_with_thousands_of_ops_delays_another_by_its_share),
        TEST(checks_of_one_key_are_found_in_their_order_whoever_asks),
        TEST(parties_are_served_round_robin_whatever_they_have),
        TEST(a_share_is_counted_in_weight),
        TEST(a_heavy_op_is_paid_for_by_the_next_turns_of_its_party),
        TEST(a_party_that_asks_little_does_not_wait_for_the_turns_of_the_others),
        TEST(parties_that_come_and_go_do_not_keep_the_others_waiting),
        TEST(a_party_has_a_whole_turn_where_others_come_and_go),
        TEST(what_a_party_owes_is_owed_when_it_comes_again),
        TEST(a_party_that_is_passed_over_is_next_when_that_ends),
        TEST(what_is_put_back_is_next_and_before_its_partys_others),
        TEST(an_op_can_be_taken_from_the_middle),
        TEST(thousands_of_parties_come_and_go_without_allocating_for_each),
        TEST(parties_whose_ops_were_never_sent_are_forgotten),
        TEST(the_ops_of_some_hash_slots_are_taken_in_one_pass_and_the_others_stay),
        TEST(without_memory_nothing_is_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
