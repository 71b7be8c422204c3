/*
 * test_redis_window.c: what waits in front of Redis: a bounded number of batches on the wire, round robin over the
 * clients, nothing sent whose deadline is over, and nothing run that was begun too late.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "fakes/fake_redis.h"
#include "fakes/served_store.h"
#include "redis/batch.h"
#include "redis/counters.h"

enum { FLOOD = 4000 };

static size_t n_before_polite; /* answered before the polite client's check */
static struct ask *polite;

static void count_until_polite(struct ask *ask)
{
    if (polite != NULL && polite->n_done == 0 && ask != polite) n_before_polite++;
}

static void one_party_cannot_take_every_place_on_the_wire(void **state)
{
    (void)state;
    enum { KEYS = 16 };
    store_fixture->options.window = 2;
    store_fixture->options.batch_max_keys = KEYS;
    served_store_open();
    store_fixture->on_done = count_until_polite;
    n_before_polite = 0;
    polite = NULL;

    store_fixture->client = 1;
    store_fixture_check_many("flood", FLOOD, FLOOD);
    store_flush(&store_fixture->store);
    store_fixture->client = 2;
    polite = store_fixture_check("polite");
    store_fixture_settle();

    assert_int_equal(polite->outcome, OP_DECIDED);
    assert_in_range(n_before_polite, 0, 3 * KEYS);
    assert_int_equal(store_fixture->n_decided, FLOOD + 1);
    polite = NULL;
}

static void the_window_bounds_what_is_on_the_wire(void **state)
{
    (void)state;
    store_fixture->options.window = 3;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("k", 100, 100);
    for (int i = 0; i < 5; i++) store_flush(&store_fixture->store);
    assert_int_equal(redis_counters.redis_inflight, 3);
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 100);
}

/* With Redis stopped behind one batch, and batches of two keys. */
static void open_with_a_full_window(void)
{
    store_fixture->options.window = 1;
    store_fixture->options.batch_max_keys = 2;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    (void)store_fixture_check("first");
    store_flush(&store_fixture->store);
}

static void a_check_goes_with_an_equal_one_past_those_that_wait(void **state)
{
    (void)state;
    open_with_a_full_window();
    store_fixture->client = 1;
    store_fixture_check_many("k", 6, 6);
    store_fixture->client = 2;
    struct ask *other = store_fixture_check("else"), *equal = store_fixture_check("k0");
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();

    assert_int_equal(store_fixture->n_allowed, 9);
    assert_int_equal(redis_counters.redis_merged, 1);
    assert_int_equal(redis_counters.redis_batches, 1 + 4); /* first; k0 k1 k0, k2 k3, k4 k5, else */
    assert_true(equal->op.now_us < other->op.now_us);
    assert_int_equal(equal->member.decision.remaining, equal->member.decision.limit - 2);
}

static void nothing_of_a_party_goes_before_its_earlier_op_on_the_same_key(void **state)
{
    (void)state;
    open_with_a_full_window();
    store_fixture->limit = store_fixture_limit("three", ALGO_FIXED_WINDOW, 3);
    store_fixture->client = 1;
    store_fixture_check_many("k", 3, 3); /* k0 and k1 fill the batch */
    store_fixture->client = 2;
    struct ask *both = store_fixture_ask("k0", OP_CHECK, 2), *behind = store_fixture_check("k0");
    store_fixture->client = 3;
    struct ask *reset = store_fixture_ask("k1", OP_RESET, 0), *fresh = store_fixture_check("k1");
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();

    assert_int_equal(both->member.decision.remaining, 0);
    assert_false(behind->member.decision.allowed);
    assert_true(reset->member.removed);
    assert_int_equal(fresh->member.decision.remaining, 2);
}

/* Each check and reset made a batch of one op, and sixteen of them went before another's check. */
static void a_party_that_checks_and_resets_in_turns_delays_another_by_one_op(void **state)
{
    (void)state;
    open_with_a_full_window();
    store_fixture->on_done = count_until_polite;
    n_before_polite = 0;
    polite = NULL;
    store_fixture->limit = store_fixture_limit("turns", ALGO_FIXED_WINDOW, 3);
    store_fixture->client = 1;
    struct ask *checks[20], *resets[20];
    for (int i = 0; i < 20; i++) {
        checks[i] = store_fixture_ask("k", OP_CHECK, 2);
        resets[i] = store_fixture_ask("k", OP_RESET, 0);
    }
    store_fixture->client = 2;
    polite = store_fixture_check("polite");
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();

    assert_in_range(n_before_polite, 1, 2); /* the one on the wire, and one in its own batch */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(checks[i]->member.decision.remaining, 1); /* in their order: of 3 */
        assert_true(resets[i]->member.removed);
    }
    polite = NULL;
}

static void while_redis_is_slow_only_one_batch_is_before_it(void **state)
{
    (void)state;
    store_fixture->options.window = 8;
    store_fixture->options.deadline_ms = 4;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    (void)store_fixture_check("first");
    store_flush(&store_fixture->store);
    store_fixture->clock.mono_us += 2000; /* more than a quarter of the deadline */
    store_fixture_check_many("k", 10, 10);
    int64_t before = store_fixture->clock.mono_us;
    store_flush(&store_fixture->store);
    assert_int_equal(store_fixture->clock.mono_us, before);
    assert_int_equal(redis_counters.redis_inflight, 1);
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 11);
}

/* How many of n batches are sent to a Redis that does not answer. */
static size_t n_sent_of(size_t n)
{
    real_redis_signal(&redis, SIGSTOP);
    store_fixture_check_many("k", n, n);
    store_flush(&store_fixture->store);
    return redis_counters.redis_inflight;
}

/* On a clock that moves by this alone. */
static void answer_after(int64_t wait_us)
{
    store_fixture->clock.mono_us += wait_us;
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
}

static void a_redis_that_falls_behind_has_less_before_it_until_it_is_fast_again(void **state)
{
    (void)state;
    enum { SLOW_US = 250000 }; /* more than a tenth of the deadline, less than a quarter */
    store_fixture->options.window = 8;
    store_fixture->options.deadline_ms = 2000;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    store_fixture->clock.frozen = true;

    /* The slow replies of one window halve it, and only once. */
    assert_int_equal(n_sent_of(8), 8);
    answer_after(SLOW_US);
    assert_int_equal(n_sent_of(5), 4);
    answer_after(SLOW_US);
    assert_int_equal(n_sent_of(2), 2);
    answer_after(SLOW_US);
    assert_int_equal(n_sent_of(2), 1);
    answer_after(SLOW_US);

    /* It was one, and the second reply was fast. As many fast replies as it has batches let it grow by one. */
    assert_int_equal(n_sent_of(2 + 3 + 4), 2);
    answer_after(0);
    assert_int_equal(n_sent_of(6), 5);
    answer_after(0);
    store_fixture_check_many("fast", 40, 40);
    store_fixture_settle();
    assert_int_equal(n_sent_of(10), 8);
    answer_after(0);
}

static void what_waited_beyond_its_deadline_is_never_sent(void **state)
{
    (void)state;
    store_fixture->options.window = 1;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    (void)store_fixture_check("first");
    store_flush(&store_fixture->store);
    store_fixture->deadline_us = store_fixture->clock.mono_us + 1;
    struct ask *late = store_fixture_check("k");
    store_fixture->deadline_us = 0;
    struct ask *release = store_fixture_check("k");
    real_redis_signal(&redis, SIGCONT);
    store_fixture_settle();
    assert_int_equal(late->outcome, OP_EXPIRED);
    assert_false(late->op.sent);
    assert_int_equal(release->outcome, OP_DECIDED);
    struct ask *peek = store_fixture_ask("k", OP_PEEK, 0);
    store_fixture_settle();
    assert_int_equal(peek->member.decision.remaining, peek->member.decision.limit - 1);
}

static void what_waits_can_be_taken_back_and_what_is_sent_cannot(void **state)
{
    (void)state;
    store_fixture->options.window = 1;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    struct ask *sent = store_fixture_check("a"), *waits = store_fixture_check("b");
    store_flush(&store_fixture->store);
    assert_false(store_withdraw(&store_fixture->store, &sent->op));
    assert_true(sent->op.sent);
    assert_true(store_withdraw(&store_fixture->store, &waits->op));
    assert_false(waits->op.sent);
    assert_false(store_withdraw(&store_fixture->store, &waits->op));
    store_fixture->n_pending--;
    store_fixture_settle();
    assert_int_equal(waits->n_done, 0);
    assert_int_equal(sent->outcome, OP_DECIDED);
}

static void a_lost_connection_ends_what_waits_as_not_sent(void **state)
{
    (void)state;
    store_fixture->options.window = 1;
    store_fixture->options.batch_max_keys = 1;
    served_store_open();
    real_redis_signal(&redis, SIGSTOP);
    struct ask *sent = store_fixture_check("a"), *waits = store_fixture_check("b");
    store_flush(&store_fixture->store);
    real_redis_kill(&redis);
    store_fixture_settle();
    assert_int_equal(sent->outcome, OP_DOWN);
    assert_true(sent->op.sent && sent->op.runs_until_us > 0);
    assert_int_equal(waits->outcome, OP_DOWN);
    assert_false(waits->op.sent);
}

/* One policy whose keys the user may not touch: the others' checks in the same batch are decided. */
static void one_policy_without_a_right_is_not_everybodys_outage(void **state)
{
    (void)state;
    served_store_start(NULL);
    assert_int_equal(real_redis_command(&redis, "ACL SETUSER rl on >secret resetkeys ~rl:*:good* ~rl:*:fine* +@all"),
                     1);
    store_fixture->options.username = "rl";
    store_fixture->options.password = "secret";
    store_fixture_open_ready(redis.address);
    const struct limit *limits[] = {store_fixture_limit("good", ALGO_FIXED_WINDOW, 1000),
                                    store_fixture_limit("bad", ALGO_FIXED_WINDOW, 1000),
                                    store_fixture_limit("fine", ALGO_BUCKET, 1000)};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 30; i++) {
            store_fixture->limit = limits[i % 3];
            (void)store_fixture_check(i < 15 ? "k" : "j");
        }
        store_fixture_settle();
    }
    for (size_t i = 0; i < store_fixture->n_asked; i++) {
        const struct ask *ask = &store_fixture->asks[i];
        bool is_bad = ask->member.limit == limits[1];
        assert_int_equal(ask->outcome, is_bad ? OP_STORE_ERROR : OP_DECIDED);
    }
    assert_int_equal(redis_counters.redis_disconnects, 0);
    store_fixture->limit = limits[0];
    struct ask *peek = store_fixture_ask("k", OP_PEEK, 0);
    store_fixture_settle();
    assert_int_equal(peek->member.decision.remaining, 1000 - 20 * 5); /* each charged once */
}

/* A check that Redis refused among others' was sent again behind the reset and the peek that came after it. */
static void no_op_goes_behind_a_later_one_of_its_key_after_a_refusal(void **state)
{
    (void)state;
    served_store_start(NULL);
    assert_int_equal(real_redis_command(&redis, "ACL SETUSER rl on >secret resetkeys ~rl:*:good* +@all"), 1);
    store_fixture->options.username = "rl";
    store_fixture->options.password = "secret";
    store_fixture_open_ready(redis.address);
    const struct limit *good = store_fixture_limit("good", ALGO_FIXED_WINDOW, 1000);
    const struct limit *bad = store_fixture_limit("bad", ALGO_FIXED_WINDOW, 1000);
    store_fixture->client = 1;
    for (int round = 0; round < 20; round++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", round);
        store_fixture->limit = bad;
        struct ask *refused = store_fixture_check("x");
        store_fixture->limit = good;
        struct ask *check = store_fixture_ask(key, OP_CHECK, 5), *reset = store_fixture_ask(key, OP_RESET, 0);
        store_fixture_settle();
        struct ask *peek = store_fixture_ask(key, OP_PEEK, 0);
        store_fixture_settle();
        assert_int_equal(refused->outcome, OP_STORE_ERROR);
        assert_int_equal(check->outcome, round == 0 ? OP_STORE_ERROR : OP_DECIDED); /* then they go apart */
        assert_int_equal(reset->outcome, OP_DECIDED);
        assert_int_equal(peek->member.decision.remaining, 1000);
    }
}

/* ---- a server whose clock says that a batch came too late ---- */

static struct fake_redis fake;
static int n_too_late; /* batches still to be answered so */

static void answer(struct fake_redis *server, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)server;
    unsigned nonce = fake_batch_nonce(args, n);
    if (fake_is_canary(args))
        fake_reply(client, "*3\r\n:1700000000000000\r\n:0\r\n:%u\r\n", nonce);
    else if (n_too_late-- > 0)
        fake_reply(client, "*3\r\n:-2\r\n:1700000009000000\r\n:%u\r\n", nonce);
    else
        fake_reply(client, "*4\r\n:1\r\n:1700000009000000\r\n:0\r\n:%u\r\n", nonce);
}

static void a_batch_that_was_begun_too_late_is_sent_again_with_the_new_time(void **state)
{
    (void)state;
    fake_redis_init(&fake, &store_fixture->patient.loop, batch_script_sha1, answer);
    store_fixture_open_ready(fake.address);
    n_too_late = 1;
    struct ask *ask = store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(ask->outcome, OP_DECIDED);
    assert_int_equal(redis_counters.redis_batches_too_late, 1);
    assert_int_equal(redis_counters.redis_batches, 2);
    store_fixture_close();
    fake_redis_close(&fake);
}

static void a_batch_begun_too_late_is_dropped_once_its_deadline_is_over(void **state)
{
    (void)state;
    fake_redis_init(&fake, &store_fixture->patient.loop, batch_script_sha1, answer);
    store_fixture_open_ready(fake.address);
    n_too_late = 1000000;
    store_fixture->deadline_us = store_fixture->clock.mono_us + 20000;
    struct ask *ask = store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(ask->outcome, OP_EXPIRED);
    assert_false(ask->op.sent);
    store_fixture_close();
    fake_redis_close(&fake);
}

int main(void)
{
    if (real_redis_is_missing()) return 0;
    const struct CMUnitTest tests[] = {
        SERVED_STORE_TEST(one_party_cannot_take_every_place_on_the_wire),
        SERVED_STORE_TEST(the_window_bounds_what_is_on_the_wire),
        SERVED_STORE_TEST(a_check_goes_with_an_equal_one_past_those_that_wait),
        SERVED_STORE_TEST(nothing_of_a_party_goes_before_its_earlier_op_on_the_same_key),
        SERVED_STORE_TEST(a_party_that_checks_and_resets_in_turns_delays_another_by_one_op),
        SERVED_STORE_TEST(while_redis_is_slow_only_one_batch_is_before_it),
        SERVED_STORE_TEST(a_redis_that_falls_behind_has_less_before_it_until_it_is_fast_again),
        SERVED_STORE_TEST(what_waited_beyond_its_deadline_is_never_sent),
        SERVED_STORE_TEST(what_waits_can_be_taken_back_and_what_is_sent_cannot),
        SERVED_STORE_TEST(a_lost_connection_ends_what_waits_as_not_sent),
        SERVED_STORE_TEST(no_op_goes_behind_a_later_one_of_its_key_after_a_refusal),
        SERVED_STORE_TEST(one_policy_without_a_right_is_not_everybodys_outage),
        cmocka_unit_test_setup_teardown(a_batch_that_was_begun_too_late_is_sent_again_with_the_new_time,
                                        store_fixture_setup, store_fixture_teardown),
        cmocka_unit_test_setup_teardown(a_batch_begun_too_late_is_dropped_once_its_deadline_is_over,
                                        store_fixture_setup, store_fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
