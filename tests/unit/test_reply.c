/* test_reply.c: decisions on the wire, byte for byte as msgpack-c packs the same fields. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/random.h"
#include "policy/policy.h"
#include "server/reply.h"

static uint64_t dice = 7;

/* Of every length that an integer has on the wire. */
static int64_t some_integer(void)
{
    int64_t value = (int64_t)(random_next(&dice) >> random_below(&dice, 64));
    return random_below(&dice, 4) == 0 ? -(value & INT64_MAX) : value & INT64_MAX;
}

static void name_to(char *name, size_t most)
{
    size_t len = 1 + random_below(&dice, most);
    memset(name, 'p', len);
    name[len] = '\0';
}

static void expect_limit(struct packer *packer, const struct limit *limit)
{
    const struct slice pieces[] = {slice_of(limit->policy->label), slice_of("/"), slice_of(limit->name)};
    pack_str_of(packer, pieces, limit->name[0] != '\0' ? 3 : 1);
}

static void expect_reason(struct packer *packer, enum reason reason)
{
    if (reason_name(reason) != NULL)
        pack_text(packer, reason_name(reason));
    else
        pack_nil(packer);
}

/* A local answer has figures, and no limit whose they are. */
static bool is_described(const struct decision *decision)
{
    return decision->of != NULL && decision->source != SOURCE_LOCAL;
}

static void expect_array(struct packer *packer, const struct decision *decision, bool describes, uint32_t n_more)
{
    uint32_t n = n_more + decision->shadow_denied;
    pack_array(packer, (describes ? 15 : 11) + (n > 0));
    pack_bool(packer, decision->allowed);
    pack_int(packer, decision->limit);
    pack_int(packer, decision->remaining);
    pack_int(packer, decision->allowed ? 0 : decision->retry_after_ms);
    pack_int(packer, decision->reset_after_ms);
    pack_int(packer, decision->delay_ms);
    pack_int(packer, decision->granted);
    if (decision->bound_by != NULL)
        expect_limit(packer, decision->bound_by);
    else
        pack_nil(packer);
    pack_text(packer, source_name(decision->source));
    expect_reason(packer, decision->reason);
    pack_uint(packer, decision->policy_version);
    if (describes && is_described(decision)) {
        expect_limit(packer, decision->of);
        pack_int(packer, decision->of->limit);
        pack_int(packer, decision->window_ms);
        pack_int(packer, decision->of_reset_ms);
    } else if (describes) {
        for (int i = 0; i < 4; i++) pack_nil(packer);
    }
    if (n > 0) pack_map(packer, n);
}

static void expect_integer(struct packer *packer, const char *name, int64_t value)
{
    pack_text(packer, name);
    pack_int(packer, value);
}

static void expect_map(struct packer *packer, const struct decision *decision, int64_t cost, bool describes,
                       uint32_t n_more)
{
    bool has_description = describes && is_described(decision);
    bool has_granted = decision->granted != (decision->allowed ? cost : 0);
    bool has_reason = decision->reason != REASON_NONE;
    pack_map(packer, 7 + (decision->delay_ms != 0) + has_granted + (decision->bound_by != NULL) + has_reason + n_more +
                         4 * has_description + decision->shadow_denied);
    pack_text(packer, "allowed");
    pack_bool(packer, decision->allowed);
    expect_integer(packer, "limit", decision->limit);
    expect_integer(packer, "remaining", decision->remaining);
    expect_integer(packer, "retry_after_ms", decision->allowed ? 0 : decision->retry_after_ms);
    expect_integer(packer, "reset_after_ms", decision->reset_after_ms);
    if (decision->delay_ms != 0) expect_integer(packer, "delay_ms", decision->delay_ms);
    if (has_granted) expect_integer(packer, "granted", decision->granted);
    if (decision->bound_by != NULL) {
        pack_text(packer, "bound_by");
        expect_limit(packer, decision->bound_by);
    }
    pack_text(packer, "source");
    pack_text(packer, source_name(decision->source));
    if (has_reason) {
        pack_text(packer, "reason");
        expect_reason(packer, decision->reason);
    }
    expect_integer(packer, "policy_version", decision->policy_version);
    if (!has_description) return;
    pack_text(packer, "of");
    expect_limit(packer, decision->of);
    expect_integer(packer, "quota", decision->of->limit);
    expect_integer(packer, "window_ms", decision->window_ms);
    expect_integer(packer, "of_reset_ms", decision->of_reset_ms);
}

static void a_decision_is_packed_as_msgpack_has_it(void **state)
{
    (void)state;
    struct policy *policy = policy_new("x", 1);
    struct buffer got, expected;
    buffer_init(&got, 0);
    buffer_init(&expected, 0);

    for (int i = 0; i < 20000; i++) {
        struct limit *limit = &policy->limits[0];
        name_to(policy->label, NAME_MAX_LEN);
        name_to(limit->name, NAME_MAX_LEN);
        if (random_below(&dice, 2) == 0) limit->name[0] = '\0';
        limit->limit = some_integer();
        struct decision decision = {
            .allowed = random_below(&dice, 2) == 0,
            .shadow_denied = random_below(&dice, 4) == 0,
            .limit = some_integer(),
            .remaining = some_integer(),
            .retry_after_ms = random_below(&dice, 3) == 0 ? -1 : some_integer(),
            .reset_after_ms = some_integer(),
            .delay_ms = random_below(&dice, 2) == 0 ? 0 : some_integer(),
            .granted = some_integer(),
            .bound_by = random_below(&dice, 2) == 0 ? limit : NULL,
            .source = (enum source)random_below(&dice, SOURCE_LOCAL + 1),
            .reason = (enum reason)random_below(&dice, REASON_STORE_ERROR + 1),
            .policy_version = (uint32_t)random_next(&dice),
            .of = random_below(&dice, 4) > 0 ? limit : NULL,
            .window_ms = some_integer(),
            .of_reset_ms = some_integer(),
        };
        int64_t cost = random_below(&dice, 2) == 0 ? decision.granted : 1;
        struct decision_form form = {random_below(&dice, 2) == 0, random_below(&dice, 2) == 0};
        uint32_t n_more = (uint32_t)random_below(&dice, 20);

        buffer_truncate(&got, 0);
        buffer_truncate(&expected, 0);
        struct packer packer = packer_of(&got), reference = packer_of(&expected);
        reply_decision(&packer, &decision, cost, form, n_more);
        if (form.as_array)
            expect_array(&reference, &decision, form.describes, n_more);
        else
            expect_map(&reference, &decision, cost, form.describes, n_more);
        if (decision.shadow_denied) {
            pack_text(&reference, "shadow_denied");
            pack_bool(&reference, true);
        }

        assert_false(packer.failed || reference.failed);
        assert_int_equal(buffer_len(&got), buffer_len(&expected));
        assert_memory_equal(buffer_data(&got), buffer_data(&expected), buffer_len(&expected));
    }

    buffer_fini(&got);
    buffer_fini(&expected);
    policy_free(policy);
}

static void without_memory_nothing_is_packed(void **state)
{
    (void)state;
    struct buffer out;
    struct decision decision = {.allowed = true, .source = SOURCE_MEMORY};
    buffer_init(&out, 0);
    struct packer packer = packer_of(&out);
    mem_fail_nth(1);
    reply_decision(&packer, &decision, 1, (struct decision_form){0}, 0);
    mem_fail_nth(0);
    assert_true(packer.failed);
    assert_int_equal(buffer_len(&out), 0);
    reply_decision(&packer, &decision, 1, (struct decision_form){0}, 0); /* nor anything after it */
    assert_int_equal(buffer_len(&out), 0);
    buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decision_is_packed_as_msgpack_has_it),
        cmocka_unit_test(without_memory_nothing_is_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
