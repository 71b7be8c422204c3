/*
 * test_redis_answers.c: what the store makes of answers that a healthy Redis does not give: errors at the wrong time,
 * other shapes, other checks' answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/fake_redis.h"
#include "fakes/store_fixture.h"
#include "redis/batch.h"
#include "redis/counters.h"

static struct fake_redis fake;
static const char *reply; /* to each EVALSHA with keys; "%u" in it is the nonce; NULL = nothing */
static size_t n_with_keys;
static unsigned wrong_by; /* what the nonces of empty batches are wrong by */

static bool has_keys(const struct slice *args)
{
    return !fake_is_canary(args);
}

static void answer(struct fake_redis *server, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)server;
    unsigned nonce = fake_batch_nonce(args, n);
    if (!has_keys(args)) {
        fake_reply(client, "*3\r\n:1700000000000000\r\n:0\r\n:%u\r\n", nonce + wrong_by);
        return;
    }
    n_with_keys++;
    if (reply == NULL) return;
    const char *hole = strstr(reply, "%u");
    if (hole == NULL)
        fake_reply(client, "%s", reply);
    else
        fake_reply(client, "%.*s%u%s", (int)(hole - reply), reply, nonce, hole + 2);
}

static int setup(void **state)
{
    reply = NULL;
    n_with_keys = wrong_by = 0;
    (void)store_fixture_setup(state);
    fake_redis_init(&fake, &store_fixture->patient.loop, batch_script_sha1, answer);
    store_fixture->limit = store_fixture_limit("window", ALGO_FIXED_WINDOW, 10);
    return 0;
}

static int teardown(void **state)
{
    if (!store_fixture->is_closing) store_fixture_close();
    fake_redis_close(&fake);
    return store_fixture_teardown(state);
}

/* A fixed window that was asked once answers: used, now, bad values, nonce. */
#define GOOD_ANSWER "*4\r\n:1\r\n:1700000000000000\r\n:0\r\n:%u\r\n"

static void the_fake_can_answer_well(void **state)
{
    (void)state;
    reply = GOOD_ANSWER;
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_allowed, 1);
}

static void answer_byte_by_byte(struct fake_redis *server, struct fake_client *client, const struct slice *args,
                                size_t n)
{
    (void)server;
    char text[128];
    const char *keys = has_keys(args) ? ":1\r\n" : "";
    int len = snprintf(text, sizeof(text), "*%d\r\n%s:1700000000000000\r\n:0\r\n:%u\r\n", has_keys(args) ? 4 : 3, keys,
                       fake_batch_nonce(args, n));
    for (int i = 0; i < len; i++) fake_reply_bytes(client, text + i, 1);
}

static void an_answer_in_single_bytes_is_understood(void **state)
{
    (void)state;
    fake.on_evalsha = answer_byte_by_byte;
    store_fixture_open_ready(fake.address);
    for (int i = 0; i < 20; i++) {
        (void)store_fixture_check("k");
        store_fixture_settle();
    }
    assert_int_equal(store_fixture->n_allowed, 20);
}

/* The op ends with a store error, the connection is closed as untrustworthy, and a new one works. */
static void closes_on(const char *text)
{
    reply = text;
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("k");
    store_fixture_until(store_is_not_ready);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_failed, 1);
    assert_int_equal(store_fixture->n_doubtful, 1); /* it may have been charged */
    assert_true(redis_counters.redis_bad_replies > 0);
    reply = GOOD_ANSWER;
    store_fixture_until(store_is_ready);
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 1);
}

/* Where it was believed, clients got a reset_after_ms below 0, and a denial whose retry_after_ms was 0. The connection
 * stays: what it says next may be right. */
static void a_lie_about_a_state_is_a_store_error(void **state)
{
    (void)state;
    store_fixture->limit = store_fixture_limit("hit", ALGO_FIRST_HIT, 10);
    reply = "*5\r\n:10\r\n:1600000000000\r\n:1700000000000000\r\n:0\r\n:%u\r\n";
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_failed, 1);
    assert_int_equal(store_fixture->n_doubtful, 1);
    assert_int_equal(redis_counters.redis_bad_replies, 1);
    reply = "*5\r\n:10\r\n:1700000000007\r\n:1700000000000000\r\n:0\r\n:%u\r\n";
    struct ask *denied = store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 1);
    assert_int_equal(denied->member.decision.retry_after_ms, 7);
    assert_true(store_is_ready(store_fixture));
}

static void another_nonce_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*4\r\n:1\r\n:1700000000000000\r\n:0\r\n:7777777\r\n");
}

static void one_integer_less_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*3\r\n:1700000000000000\r\n:0\r\n:%u\r\n");
}

static void one_integer_more_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*6\r\n:1\r\n:1\r\n:1\r\n:1700000000000000\r\n:0\r\n:%u\r\n");
}

static void an_empty_array_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*0\r\n");
}

static void a_nil_among_the_integers_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*4\r\n$-1\r\n:1700000000000000\r\n:0\r\n:%u\r\n");
}

static void a_string_among_the_integers_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*4\r\n$1\r\n1\r\n:1700000000000000\r\n:0\r\n:%u\r\n");
}

static void an_array_among_the_integers_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*4\r\n*1\r\n:1\r\n:1700000000000000\r\n:0\r\n:%u\r\n");
}

static void a_status_closes_the_connection(void **state)
{
    (void)state;
    closes_on("+OK\r\n");
}

static void a_lone_integer_closes_the_connection(void **state)
{
    (void)state;
    closes_on(":1\r\n");
}

static void a_nil_closes_the_connection(void **state)
{
    (void)state;
    closes_on("*-1\r\n");
}

static void numbers_no_script_can_count_close_the_connection(void **state)
{
    (void)state;
    closes_on("*4\r\n:-9223372036854775808\r\n:1700000000000000\r\n:0\r\n:%u\r\n");
}

/* The op ends with a store error, once, and the connection stays. */
static void stays_after(const char *text)
{
    reply = text;
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_failed, 1);
    assert_int_equal(store_fixture->n_doubtful, 0);
    assert_int_equal(n_with_keys, 1);
    assert_int_equal(redis_counters.redis_errors, 1);
    reply = GOOD_ANSWER;
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 1);
    assert_int_equal(fake.n_connections, 1);
}

static void loading_is_a_store_error(void **state)
{
    (void)state;
    stays_after("-LOADING Redis is loading the dataset in memory\r\n");
}

static void a_script_error_is_a_store_error_and_never_sent_again(void **state)
{
    (void)state;
    stays_after("-ERR user_script:1: attempt to index a nil value script: 7f92, on @user_script:1.\r\n");
}

static void an_unknown_error_is_a_store_error(void **state)
{
    (void)state;
    stays_after("-WHATEVER is this\r\n");
}

static void a_reported_error_is_made_printable(void **state)
{
    (void)state;
    reply = "-READONLY \033[31mred\007\r\n";
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("k");
    store_fixture_until(store_is_not_ready);
    store_fixture_status_has("READONLY \\x1b[31mred\\x07");
    reply = GOOD_ANSWER;
    store_fixture_settle();
}

static void a_moved_key_is_a_store_error(void **state)
{
    (void)state;
    stays_after("-MOVED 3999 127.0.0.1:6381\r\n");
    assert_non_null(strstr(store_error_text(&store_fixture->store), "write store.redis.topology: cluster"));
}

static void a_script_that_never_comes_back_is_asked_for_once(void **state)
{
    (void)state;
    reply = "-NOSCRIPT No matching script.\r\n";
    store_fixture_open_ready(fake.address);
    size_t n_loads = fake.n_loads;
    (void)store_fixture_check("k");
    store_fixture_settle();
    assert_int_equal(store_fixture->n_failed, 1);
    assert_int_equal(n_with_keys, 2);
    assert_int_equal(fake.n_loads, n_loads + 1);
}

static void say_other_digest(struct fake_redis *server, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)server, (void)args, (void)n;
    fake_reply(client, "-ERR no more scripts today\r\n");
}

static void a_script_that_cannot_be_loaded_again_closes_the_connection(void **state)
{
    (void)state;
    reply = "-NOSCRIPT No matching script.\r\n";
    store_fixture_open_ready(fake.address);
    fake.on_load = say_other_digest;
    (void)store_fixture_check("k");
    store_fixture_until(store_is_not_ready);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_down, 1); /* the second sending was lost with the connection */
    fake.on_load = NULL;
    reply = GOOD_ANSWER;
    store_fixture_until(store_is_ready);
}

static bool fake_has_been_asked(void *arg)
{
    (void)arg;
    return n_with_keys > 0;
}

static struct fake_client *asked_by; /* the answers are held back */

static char order[8]; /* of the keys' last bytes, since the answers flow again */

static void answer_in_order(struct fake_redis *server, struct fake_client *client, const struct slice *args, size_t n)
{
    size_t len = strlen(order);
    if (has_keys(args) && len < sizeof(order) - 1) order[len] = (char)args[3].data[args[3].len - 1];
    answer(server, client, args, n);
}

static void hold(struct fake_redis *server, struct fake_client *client, const struct slice *args, size_t n)
{
    asked_by = client;
    if (has_keys(args))
        n_with_keys++;
    else
        answer(server, client, args, n);
}

/* Two batches in flight; the first meets NOSCRIPT, so what is asked now is held back. */
static void reload_with_one_batch_waiting(void)
{
    fake.on_evalsha = hold;
    store_fixture->options.batch_max_keys = 1;
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("a");
    store_fixture_until(fake_has_been_asked);
    n_with_keys = wrong_by = 0;
    (void)store_fixture_check("b");
    store_fixture_until(fake_has_been_asked);
    fake_reply(asked_by, "-NOSCRIPT No matching script.\r\n");
    patient_loop_ticks(&store_fixture->patient, 5);
    (void)store_fixture_check("c");
    patient_loop_ticks(&store_fixture->patient, 5);
    assert_int_equal(store_fixture->n_answered, 0);
}

static void a_new_batch_never_overtakes_one_that_waits_for_the_script(void **state)
{
    (void)state;
    reload_with_one_batch_waiting();
    assert_int_equal(n_with_keys, 1); /* c is held */
    fake_reply(asked_by, "-NOSCRIPT No matching script.\r\n");
    memset(order, 0, sizeof(order));
    fake.on_evalsha = answer_in_order;
    reply = GOOD_ANSWER;
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 3);
    assert_int_equal(redis_counters.redis_script_loads, 1);
    for (int i = 0; i < 3; i++) assert_int_equal(order[i], 'a' + i);
}

/* Another daemon loads the script between: the first batch is refused, and the second runs. */
static void what_a_later_batch_has_overtaken_is_not_sent_behind_it(void **state)
{
    (void)state;
    fake.on_evalsha = hold;
    store_fixture->options.batch_max_keys = 2;
    store_fixture_open_ready(fake.address);
    struct ask *first = store_fixture_check("a"), *other = store_fixture_check("b");
    store_flush(&store_fixture->store);
    store_fixture_until(fake_has_been_asked);
    n_with_keys = 0;
    struct ask *second = store_fixture_check("a");
    store_flush(&store_fixture->store);
    store_fixture_until(fake_has_been_asked);
    fake_reply(asked_by, "-NOSCRIPT No matching script.\r\n");
    fake_reply(asked_by, "*4\r\n:1\r\n:1700000000000000\r\n:0\r\n:%u\r\n",
               (unsigned)store_fixture->options.random_seed + 2);
    fake.on_evalsha = answer;
    reply = GOOD_ANSWER;
    store_fixture_settle();
    assert_int_equal(first->outcome, OP_STORE_ERROR);
    assert_false(first->op.sent);
    assert_int_equal(second->outcome, OP_DECIDED);
    assert_int_equal(other->outcome, OP_DECIDED); /* nothing of its key has run */
}

static void a_connection_lost_while_the_script_is_away_ends_every_op_once(void **state)
{
    (void)state;
    reload_with_one_batch_waiting();
    fake_hang_up(asked_by);
    store_fixture_until(store_is_not_ready);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_down, 3);
}

static void closing_while_the_script_is_away_ends_every_op_once(void **state)
{
    (void)state;
    reload_with_one_batch_waiting();
    store_fixture_close();
    store_fixture_until(store_is_closed);
    assert_int_equal(store_fixture->n_down, 3);
}

static void an_answer_too_many_closes_the_connection(void **state)
{
    (void)state;
    reply = GOOD_ANSWER "+EXTRA\r\n";
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("k");
    store_fixture_until(store_is_not_ready);
    assert_int_equal(store_fixture->n_decided, 1);
    assert_int_equal(redis_counters.redis_bad_replies, 1);
}

static void answers_in_the_wrong_order_reach_no_check(void **state)
{
    (void)state;
    fake.on_evalsha = hold;
    store_fixture_open_ready(fake.address);
    (void)store_fixture_check("a");
    store_fixture_until(fake_has_been_asked);
    (void)store_fixture_check("b");
    /* the answer that belongs to the second batch comes first */
    fake_reply(asked_by, "*4\r\n:1\r\n:1700000000000000\r\n:0\r\n:%u\r\n",
               (unsigned)store_fixture->options.random_seed + 2);
    store_fixture_until(store_is_not_ready);
    store_fixture_settle();
    assert_int_equal(store_fixture->n_decided, 0);
}

/* The answer comes, and its deadline is over. */
static void answer_late(struct fake_redis *server, struct fake_client *client, const struct slice *args, size_t n)
{
    if (has_keys(args)) store_fixture->clock.mono_us += 2000;
    answer(server, client, args, n);
}

static bool breaker_is_closed(void *arg)
{
    (void)arg;
    return redis_counters.breaker_open == 0;
}

/* Earlier any value closed the breaker, and the connection, whose answers belonged to something else, was used on. */
static void a_probe_answered_with_another_nonce_closes_the_connection_and_not_the_breaker(void **state)
{
    (void)state;
    store_fixture->options.breaker_errors = 0;
    store_fixture->options.breaker_late = 1;
    store_fixture->options.breaker_probe_every_ms = 1;
    fake.on_evalsha = answer_late;
    reply = GOOD_ANSWER;
    store_fixture_open_ready(fake.address);
    store_fixture->clock.frozen = true;

    store_fixture->deadline_us = store_fixture->clock.mono_us + 1000;
    (void)store_fixture_check("k");
    wrong_by = 1;
    store_fixture_until(store_is_not_ready);
    store_fixture_status_has("something else than was asked");
    assert_int_equal(redis_counters.redis_bad_replies, 1);
    assert_int_equal(redis_counters.breaker_open, 1);

    wrong_by = 0;
    store_fixture_until(breaker_is_closed);
    assert_int_equal(redis_counters.redis_bad_replies, 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_fake_can_answer_well),
        TEST(an_answer_in_single_bytes_is_understood),
        TEST(a_lie_about_a_state_is_a_store_error),
        TEST(another_nonce_closes_the_connection),
        TEST(one_integer_less_closes_the_connection),
        TEST(one_integer_more_closes_the_connection),
        TEST(an_empty_array_closes_the_connection),
        TEST(a_nil_among_the_integers_closes_the_connection),
        TEST(a_string_among_the_integers_closes_the_connection),
        TEST(an_array_among_the_integers_closes_the_connection),
        TEST(a_status_closes_the_connection),
        TEST(a_lone_integer_closes_the_connection),
        TEST(a_nil_closes_the_connection),
        TEST(numbers_no_script_can_count_close_the_connection),
        TEST(loading_is_a_store_error),
        TEST(a_script_error_is_a_store_error_and_never_sent_again),
        TEST(an_unknown_error_is_a_store_error),
        TEST(a_reported_error_is_made_printable),
        TEST(a_moved_key_is_a_store_error),
        TEST(a_script_that_never_comes_back_is_asked_for_once),
        TEST(a_script_that_cannot_be_loaded_again_closes_the_connection),
        TEST(a_new_batch_never_overtakes_one_that_waits_for_the_script),
        TEST(what_a_later_batch_has_overtaken_is_not_sent_behind_it),
        TEST(a_connection_lost_while_the_script_is_away_ends_every_op_once),
        TEST(closing_while_the_script_is_away_ends_every_op_once),
        TEST(an_answer_too_many_closes_the_connection),
        TEST(answers_in_the_wrong_order_reach_no_check),
        TEST(a_probe_answered_with_another_nonce_closes_the_connection_and_not_the_breaker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
