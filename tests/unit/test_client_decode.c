/* test_client_decode.c: decisions in both forms, from this daemon, a later one, and no daemon at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/decode.h"
#include "fakes/scripted_daemon.h"
#include "limit/decision.h"

struct packed {
    struct buffer bytes;
    struct packer packer;
};

static struct packer *start(struct packed *packed)
{
    buffer_init(&packed->bytes, 0);
    packed->packer = packer_of(&packed->bytes);
    return &packed->packer;
}

/* Decode what was packed, from an exact copy so that a read past its end is seen. */
static int decode(struct packed *packed, const struct decode_order *order, int64_t cost, struct ratelimit_decision *ret)
{
    size_t len = buffer_len(&packed->bytes);
    uint8_t *copy = malloc(len);
    memcpy(copy, buffer_data(&packed->bytes), len);
    struct pull pull = pull_of(copy, len);
    int rc = decode_decision(&pull, order, cost, ret);
    if (rc == 0) assert_ptr_equal(pull.at, pull.end);
    free(copy);
    buffer_fini(&packed->bytes);
    return rc;
}

static void an_array_is_read_in_the_protocols_order(void **state)
{
    (void)state;
    struct packed packed;
    struct decode_order order;
    struct ratelimit_decision decision;
    decode_order_init(&order);
    daemon_pack_decision(start(&packed), false, 3);
    assert_int_equal(decode(&packed, &order, 4, &decision), 0);
    assert_false(decision.allowed);
    assert_int_equal(decision.limit, 5);
    assert_int_equal(decision.remaining, 3);
    assert_int_equal(decision.retry_after_ms, 8200);
    assert_int_equal(decision.reset_after_ms, 10000);
    assert_int_equal(decision.granted, 0);
    assert_int_equal(decision.source, RATELIMIT_SOURCE_MEMORY);
    assert_int_equal(decision.reason, RATELIMIT_REASON_NONE);
    assert_int_equal(decision.policy_version, 77);
    assert_string_equal(decision.bound_by, "");
}

static void a_map_fills_in_what_it_leaves_out(void **state)
{
    (void)state;
    struct packed packed;
    struct decode_order order;
    struct ratelimit_decision decision;
    decode_order_init(&order);
    struct packer *packer = start(&packed);
    pack_map(packer, 4);
    pack_text(packer, "allowed");
    pack_bool(packer, true);
    pack_text(packer, "source");
    pack_text(packer, "local");
    pack_text(packer, "reason");
    pack_text(packer, "store_error");
    pack_text(packer, "bound_by");
    pack_text(packer, "search/day");
    assert_int_equal(decode(&packed, &order, 4, &decision), 0);
    assert_true(decision.allowed);
    assert_int_equal(decision.granted, 4);
    assert_int_equal(decision.delay_ms, 0);
    assert_int_equal(decision.source, RATELIMIT_SOURCE_LOCAL);
    assert_int_equal(decision.reason, RATELIMIT_REASON_STORE_ERROR);
    assert_string_equal(decision.bound_by, "search/day");
}

static void pack_hello(struct packer *packer, const char *const *fields, uint32_t n, int64_t max_frame)
{
    pack_map(packer, 3);
    pack_text(packer, "fields");
    pack_array(packer, n);
    for (uint32_t i = 0; i < n; i++) pack_text(packer, fields[i]);
    pack_text(packer, "novelty");
    pack_array(packer, 0);
    pack_text(packer, "max_frame");
    pack_int(packer, max_frame);
}

static int learn(struct packed *packed, struct decode_order *order, uint32_t *max_frame)
{
    unsigned features;
    int rc =
        decode_hello(pull_of(buffer_data(&packed->bytes), buffer_len(&packed->bytes)), order, max_frame, &features);
    buffer_fini(&packed->bytes);
    return rc;
}

static void a_later_daemon_may_reorder_and_append(void **state)
{
    (void)state;
    static const char *const fields[] = {"source", "novelty", "remaining", "allowed"};
    struct packed packed;
    struct decode_order order;
    struct ratelimit_decision decision;
    uint32_t max_frame = 1;
    decode_order_init(&order);
    pack_hello(start(&packed), fields, 4, 1000);
    assert_int_equal(learn(&packed, &order, &max_frame), 0);
    assert_int_equal(max_frame, 1000);

    struct packer *packer = start(&packed);
    pack_array(packer, 6);
    pack_text(packer, "clairvoyance");
    pack_map(packer, 1);
    pack_text(packer, "deep");
    pack_array(packer, 0);
    pack_int(packer, 9);
    pack_bool(packer, true);
    pack_int(packer, 12345); /* a place that hello did not tell of */
    pack_map(packer, 2);     /* what a method adds */
    pack_text(packer, "shadow_denied");
    pack_bool(packer, true);
    pack_text(packer, "members");
    pack_nil(packer);
    assert_int_equal(decode(&packed, &order, 2, &decision), 0);
    assert_true(decision.allowed);
    assert_true(decision.shadow_denied);
    assert_int_equal(decision.remaining, 9);
    assert_int_equal(decision.source, RATELIMIT_SOURCE_OTHER);
    assert_int_equal(decision.granted, 2);
}

static const char *const described_fields[] = {
    "allowed",        "limit",   "remaining", "retry_after_ms", "reset_after_ms",
    "delay_ms",       "granted", "bound_by",  "source",         "reason",
    "policy_version", "of",      "quota",     "window_ms",      "of_reset_ms",
};
enum { N_DESCRIBED_FIELDS = sizeof described_fields / sizeof described_fields[0] };

/* The fields of every decision. */
static struct packer *start_decision(struct packed *packed, uint32_t n)
{
    struct packer *packer = start(packed);
    pack_array(packer, n);
    pack_bool(packer, true);
    for (int64_t i = 1; i <= 6; i++) pack_int(packer, i);
    pack_nil(packer);
    pack_text(packer, "redis");
    pack_nil(packer);
    pack_int(packer, 77);
    return packer;
}

static void a_decision_may_say_which_limit_it_speaks_of(void **state)
{
    (void)state;
    struct packed packed;
    struct decode_order order;
    struct ratelimit_decision decision;
    uint32_t max_frame = 1;
    decode_order_init(&order);
    pack_hello(start(&packed), described_fields, N_DESCRIBED_FIELDS, 1000);
    assert_int_equal(learn(&packed, &order, &max_frame), 0);

    struct packer *packer = start_decision(&packed, N_DESCRIBED_FIELDS + 1); /* its header has three bytes */
    pack_text(packer, "search/day");
    pack_int(packer, 5000);
    pack_int(packer, 86400000);
    pack_int(packer, 1234);
    pack_map(packer, 1);
    pack_text(packer, "refunded");
    pack_int(packer, 3);
    assert_int_equal(decode(&packed, &order, 1, &decision), 0);
    assert_string_equal(decision.of, "search/day");
    assert_int_equal(decision.quota, 5000);
    assert_int_equal(decision.window_ms, 86400000);
    assert_int_equal(decision.of_reset_ms, 1234);
    assert_int_equal(decision.refunded, 3);

    packer = start_decision(&packed, N_DESCRIBED_FIELDS);
    for (int i = 0; i < 4; i++) pack_nil(packer);
    assert_int_equal(decode(&packed, &order, 1, &decision), 0);
    assert_string_equal(decision.of, "");
    assert_int_equal(decision.quota, 0);
    assert_int_equal(decision.limit, 1);
}

static void an_invalid_hello_changes_nothing(void **state)
{
    (void)state;
    static const char *const fields[] = {"remaining", "allowed"};
    struct packed packed;
    struct decode_order order, before;
    uint32_t max_frame = 7;
    decode_order_init(&order);
    before = order;
    pack_hello(start(&packed), fields, 2, -5);
    assert_int_equal(learn(&packed, &order, &max_frame), -1);
    pack_text(start(&packed), "hello");
    assert_int_equal(learn(&packed, &order, &max_frame), -1);
    assert_int_equal(max_frame, 7);
    assert_memory_equal(&order, &before, sizeof order);
}

static void more_fields_than_anybody_has_are_skipped(void **state)
{
    (void)state;
    enum { N = 3 * DECODE_FIELDS_MAX };
    const char *fields[N];
    struct packed packed;
    struct decode_order order;
    struct ratelimit_decision decision;
    uint32_t max_frame = 7;
    for (int i = 0; i < N; i++) fields[i] = "novelty";
    fields[1] = "allowed";
    decode_order_init(&order);
    pack_hello(start(&packed), fields, N, 1000);
    assert_int_equal(learn(&packed, &order, &max_frame), 0);
    struct packer *packer = start(&packed);
    pack_array(packer, N);
    for (int i = 0; i < N; i++) pack_bool(packer, true);
    assert_int_equal(decode(&packed, &order, 1, &decision), 0);
}

static void what_is_no_decision_is_refused_and_leaves_the_callers_alone(void **state)
{
    (void)state;
    struct packed packed;
    struct decode_order order;
    struct ratelimit_decision decision = {.limit = 4711};
    decode_order_init(&order);
    pack_text(start(&packed), "pong");
    assert_int_equal(decode(&packed, &order, 1, &decision), -1);
    pack_array(start(&packed), 0);
    assert_int_equal(decode(&packed, &order, 1, &decision), -1);
    struct packer *packer = start(&packed);
    pack_map(packer, 1); /* without `allowed` */
    pack_text(packer, "limit");
    pack_int(packer, 5);
    assert_int_equal(decode(&packed, &order, 1, &decision), -1);
    packer = start(&packed);
    pack_map(packer, 2);
    pack_text(packer, "allowed");
    pack_bool(packer, true);
    pack_text(packer, "limit");
    pack_text(packer, "five");
    assert_int_equal(decode(&packed, &order, 1, &decision), -1);
    packer = start(&packed);
    pack_map(packer, 1); /* its value is missing */
    pack_text(packer, "allowed");
    assert_int_equal(decode(&packed, &order, 1, &decision), -1);
    assert_int_equal(decision.limit, 4711);
}

/* Decode an allowed decision whose field `name` is `number`. */
static int decode_number(const char *name, int64_t number, struct ratelimit_decision *ret)
{
    struct packed packed;
    struct decode_order order;
    decode_order_init(&order);
    struct packer *packer = start(&packed);
    pack_map(packer, 3);
    pack_int(packer, 7); /* a name that is not text */
    pack_bool(packer, true);
    pack_text(packer, "allowed");
    pack_bool(packer, true);
    pack_text(packer, name);
    pack_int(packer, number);
    return decode(&packed, &order, 1, ret);
}

static void numbers_that_no_daemon_sends_are_refused(void **state)
{
    (void)state;
    struct ratelimit_decision decision;
    const int64_t largest = (INT64_C(1) << 53) - 1;
    assert_int_equal(decode_number("remaining", largest, &decision), 0);
    assert_int_equal(decision.remaining, largest);
    assert_int_equal(decode_number("remaining", largest + 1, &decision), -1);
    assert_int_equal(decode_number("remaining", -1, &decision), -1);
    assert_int_equal(decode_number("retry_after_ms", -1, &decision), 0); /* never */
    assert_int_equal(decode_number("retry_after_ms", -2, &decision), -1);
}

static void a_long_name_is_cut(void **state)
{
    (void)state;
    char text[400];
    struct packed packed;
    struct decode_order order;
    struct ratelimit_decision decision;
    memset(text, 'x', sizeof text);
    decode_order_init(&order);
    struct packer *packer = start(&packed);
    pack_map(packer, 3);
    pack_text(packer, "allowed");
    pack_bool(packer, false);
    pack_text(packer, "bound_by");
    pack_str(packer, (struct slice){(const uint8_t *)text, sizeof text});
    pack_text(packer, "of");
    pack_str(packer, (struct slice){(const uint8_t *)text, sizeof text});
    assert_int_equal(decode(&packed, &order, 1, &decision), 0);
    assert_int_equal(strlen(decision.bound_by), RATELIMIT_BOUND_BY_SIZE - 1);
    assert_int_equal(strlen(decision.of), RATELIMIT_BOUND_BY_SIZE - 1);
}

/* The library has its own lists, because it shares nothing with the daemon but the protocol; they must not part. */
static void the_names_are_those_of_the_daemon(void **state)
{
    (void)state;
    static const enum ratelimit_source sources[] = {
        [SOURCE_REDIS] = RATELIMIT_SOURCE_REDIS,
        [SOURCE_MEMORY] = RATELIMIT_SOURCE_MEMORY,
        [SOURCE_DENY_CACHE] = RATELIMIT_SOURCE_DENY_CACHE,
        [SOURCE_LEASE] = RATELIMIT_SOURCE_LEASE,
        [SOURCE_UNLIMITED] = RATELIMIT_SOURCE_UNLIMITED,
        [SOURCE_ALLOW] = RATELIMIT_SOURCE_ALLOW,
        [SOURCE_DENY] = RATELIMIT_SOURCE_DENY,
        [SOURCE_LOCAL] = RATELIMIT_SOURCE_LOCAL,
    };
    static const enum ratelimit_reason reasons[] = {
        [REASON_DOWN] = RATELIMIT_REASON_DOWN,
        [REASON_BREAKER] = RATELIMIT_REASON_BREAKER,
        [REASON_DEADLINE] = RATELIMIT_REASON_DEADLINE,
        [REASON_OVERLOAD] = RATELIMIT_REASON_OVERLOAD,
        [REASON_STORE_ERROR] = RATELIMIT_REASON_STORE_ERROR,
    };
    for (int i = SOURCE_REDIS; i <= SOURCE_LOCAL; i++) {
        assert_string_equal(ratelimit_source_name(sources[i]), source_name((enum source)i));
    }
    for (int i = REASON_DOWN; i <= REASON_STORE_ERROR; i++) {
        assert_string_equal(ratelimit_reason_name(reasons[i]), reason_name((enum reason)i));
    }
    assert_string_equal(ratelimit_source_name((enum ratelimit_source)99), "other");
    assert_string_equal(ratelimit_reason_name((enum ratelimit_reason)99), "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_is_read_in_the_protocols_order),
        cmocka_unit_test(a_map_fills_in_what_it_leaves_out),
        cmocka_unit_test(a_later_daemon_may_reorder_and_append),
        cmocka_unit_test(an_invalid_hello_changes_nothing),
        cmocka_unit_test(more_fields_than_anybody_has_are_skipped),
        cmocka_unit_test(what_is_no_decision_is_refused_and_leaves_the_callers_alone),
        cmocka_unit_test(numbers_that_no_daemon_sends_are_refused),
        cmocka_unit_test(a_decision_may_say_which_limit_it_speaks_of),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(the_names_are_those_of_the_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
