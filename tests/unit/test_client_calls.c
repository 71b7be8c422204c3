/*
 * test_client_calls.c: what each function of the client sends, and what it makes of the answer.
 *
 * The answer lies in the socket before the call is made (blocking_fixture.h says why that works); what was sent is
 * compared as text, in the notation of JSON with single quotes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "client/flow.h"
#include "fakes/blocking_fixture.h"
#include "fakes/sent_text.h"

/* "method param, param": the next request; until the one after it is read. */
static const char *sent(struct blocking_fixture *fixture)
{
    return sent_text(&fixture->daemon);
}

/* ---- Answers ---- */

/* A decision in array form, with one more field behind it where `field` is not NULL: `text`, or `number`. */
static void answer(struct blocking_fixture *fixture, const char *field, const char *text, int64_t number)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, fixture->next_msgid++);
    daemon_pack_decision(&packer, true, 4);
    if (field != NULL) {
        size_t array = 4; /* the response's header, type, msgid and nil: the decision's own header follows */
        buffer_data(&out)[array]++;
        pack_map(&packer, 1);
        pack_text(&packer, field);
        if (text != NULL)
            pack_text(&packer, text);
        else
            pack_int(&packer, number);
    }
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

static void answer_flag(struct blocking_fixture *fixture, const char *name, bool value)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, fixture->next_msgid++);
    pack_map(&packer, 1);
    pack_text(&packer, name);
    pack_bool(&packer, value);
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

/* A decision that denies, whose `n` members are allowed, denied, allowed, ... */
static void answer_members(struct blocking_fixture *fixture, uint32_t n)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, fixture->next_msgid++);
    daemon_pack_decision(&packer, false, 0);
    buffer_data(&out)[4]++;
    pack_map(&packer, 1);
    pack_text(&packer, "members");
    pack_array(&packer, n);
    for (uint32_t i = 0; i < n; i++) daemon_pack_decision(&packer, i % 2 == 0, 10 + i);
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

/* The same with the fields' names, as few as there may be. */
static void answer_members_as_maps(struct blocking_fixture *fixture)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, fixture->next_msgid++);
    pack_map(&packer, 2);
    pack_text(&packer, "members");
    pack_array(&packer, 2);
    for (int i = 0; i < 2; i++) {
        pack_map(&packer, 1);
        pack_text(&packer, "allowed");
        pack_bool(&packer, true);
    }
    pack_text(&packer, "allowed");
    pack_bool(&packer, true);
    daemon_send(&fixture->daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

/* ---- Checks with options ---- */

static enum ratelimit_status check_with(struct blocking_fixture *fixture, const struct ratelimit_options *options)
{
    struct ratelimit_decision decision;
    return ratelimit_check_with(fixture->client, "login", "a", 1, options, LONG_MS, &decision);
}

static void only_options_that_are_set_are_sent(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    blocking_fixture_open(&fixture);
    answer(&fixture, NULL, NULL, 0);
    assert_int_equal(check_with(&fixture, NULL), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "check 'login', 'a', {'cost': 1}");
    options.cost = 3;
    options.deadline_ms = 20;
    options.max_wait_ms = 0;
    options.request_id = "r-1";
    options.request_id_len = 3;
    answer(&fixture, NULL, NULL, 0);
    assert_int_equal(check_with(&fixture, &options), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "check 'login', 'a', "
                                        "{'cost': 3, 'max_wait_ms': 0, 'deadline_ms': 20, 'request_id': 'r-1'}");
    options = (struct ratelimit_options)RATELIMIT_OPTIONS;
    options.at_most = 50;
    answer(&fixture, NULL, NULL, 0);
    assert_int_equal(check_with(&fixture, &options), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "check 'login', 'a', {'at_most': 50}");
    blocking_fixture_close(&fixture);
}

static void options_that_make_no_sense_are_refused_at_once(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    const struct ratelimit_options wrong[] = {
        {0},
        {sizeof wrong[0], 2, 5, -1, 0, 0, 0, NULL},
        {sizeof wrong[0], 1, -1, -1, 0, 0, 0, NULL},
        {sizeof wrong[0], 1, 0, -2, 0, 0, 0, NULL},
        {sizeof wrong[0], 1, 0, -1, 0, 0, 0, "id"},
        {sizeof wrong[0], 1, 0, -1, 0, 0, 65, "id"},
        {sizeof wrong[0], 1, 0, -1, 0, 0, 2, NULL},
        {SIZE_MAX, 1, 0, -1, 0, 0, 0, NULL}, /* which nothing may read to its end */
    };
    blocking_fixture_open(&fixture);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(check_with(&fixture, &wrong[i]), RATELIMIT_BAD_ARGUMENT);
        assert_memory_equal(ratelimit_error(fixture.client), "options: ", strlen("options: "));
    }
    blocking_fixture_close(&fixture);
}

static void a_bad_argument_is_named(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    const struct ratelimit_options at_most = {sizeof at_most, 1, 5, -1, 0, 0, 0, NULL};
    blocking_fixture_open(&fixture);
    struct ratelimit *client = fixture.client;
    assert_int_equal(ratelimit_check(client, "{limit 5}", "a", 1, 1, LONG_MS, &decision), RATELIMIT_BAD_ARGUMENT);
    assert_string_equal(ratelimit_error(client),
                        "the policy's settings: a colon is missing after the name of a setting");
    assert_int_equal(ratelimit_check(client, NULL, "a", 1, 1, LONG_MS, &decision), RATELIMIT_BAD_ARGUMENT);
    assert_string_equal(ratelimit_error(client), "a policy or key is NULL, or too long for a request");
    assert_int_equal(ratelimit_check(client, "login", "a", 1, 1, LONG_MS, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_string_equal(ratelimit_error(client), "the pointer for the result is NULL");
    assert_int_equal(ratelimit_reserve(client, "login", "a", 1, 1, &at_most, LONG_MS, &decision),
                     RATELIMIT_BAD_ARGUMENT);
    assert_string_equal(ratelimit_error(client), "options: cost and at_most must have their defaults here");
    assert_int_equal(ratelimit_settle(client, NULL, 1, LONG_MS, &decision), RATELIMIT_BAD_ARGUMENT);
    assert_string_equal(ratelimit_error(client), "the reservation or slot is NULL");
    blocking_fixture_close(&fixture);
}

static void options_of_a_later_version_pass_while_they_ask_for_nothing_new(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct {
        struct ratelimit_options known;
        int64_t later;
    } options = {RATELIMIT_OPTIONS, 0};
    options.known.size = sizeof options;
    blocking_fixture_open(&fixture);
    answer(&fixture, NULL, NULL, 0);
    assert_int_equal(check_with(&fixture, &options.known), RATELIMIT_OK);
    options.later = 1;
    assert_int_equal(check_with(&fixture, &options.known), RATELIMIT_BAD_ARGUMENT);
    blocking_fixture_close(&fixture);
}

/* ---- Several checks ---- */

static void a_check_of_all_gives_the_whole_and_its_members(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_item items[] = {{"login", "a", 1, 1}, {"api", "b", 1, 2}};
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    struct ratelimit_decision whole, members[2];
    options.deadline_ms = 7;
    blocking_fixture_open(&fixture);
    answer_members(&fixture, 2);
    assert_int_equal(ratelimit_check_all(fixture.client, items, 2, &options, LONG_MS, &whole, members), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "check_all [['login', 'a', 1], ['api', 'b', 2]], {'deadline_ms': 7}");
    assert_false(whole.allowed);
    assert_true(members[0].allowed);
    assert_false(members[1].allowed);
    assert_int_equal(members[1].remaining, 11);
    answer_members(&fixture, 2);
    assert_int_equal(ratelimit_check_all(fixture.client, items, 2, NULL, LONG_MS, &whole, NULL), RATELIMIT_OK);
    answer_members_as_maps(&fixture);
    assert_int_equal(ratelimit_check_all(fixture.client, items, 2, NULL, LONG_MS, &whole, members), RATELIMIT_OK);
    assert_int_equal(whole.granted, 3);
    assert_int_equal(members[1].granted, 2);
    blocking_fixture_close(&fixture);
}

static void a_check_of_all_without_its_members_is_no_answer(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_item items[] = {{"login", "a", 1, 1}, {"api", "b", 1, 2}};
    struct ratelimit_decision whole = {.limit = 4711}, members[2];
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    blocking_fixture_open(&fixture);
    answer_members(&fixture, 3);
    assert_int_equal(ratelimit_check_all(fixture.client, items, 2, NULL, LONG_MS, &whole, members), RATELIMIT_PROTOCOL);
    answer(&fixture, NULL, NULL, 0);
    assert_int_equal(ratelimit_check_all(fixture.client, items, 2, NULL, LONG_MS, &whole, members), RATELIMIT_PROTOCOL);
    assert_int_equal(whole.limit, 4711);
    assert_string_equal(ratelimit_error(fixture.client), "the answer is not valid for this method");
    options.cost = 2;
    assert_int_equal(ratelimit_check_all(fixture.client, items, 2, &options, LONG_MS, &whole, members),
                     RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_check_all(fixture.client, NULL, 2, NULL, LONG_MS, &whole, members),
                     RATELIMIT_BAD_ARGUMENT);
    blocking_fixture_close(&fixture);
}

/* ---- Refunds, reservations, slots ---- */

static void a_refund_says_what_was_given_back(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open(&fixture);
    answer(&fixture, "refunded", NULL, 2);
    assert_int_equal(ratelimit_refund(fixture.client, "login", "a", 1, 3, LONG_MS, &decision), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "refund 'login', 'a', 3");
    assert_int_equal(decision.refunded, 2);
    assert_int_equal(decision.charged, 0);
    blocking_fixture_close(&fixture);
}

static void a_reservation_is_settled_or_cancelled_by_its_id(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    blocking_fixture_open(&fixture);
    options.ttl_ms = 9000;
    answer(&fixture, "reservation", "r7-abc", 0);
    assert_int_equal(ratelimit_reserve(fixture.client, "llm", "a", 1, 500, &options, LONG_MS, &decision), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "reserve 'llm', 'a', 500, {'ttl_ms': 9000}");
    assert_string_equal(ratelimit_id(fixture.client), "r7-abc");
    answer(&fixture, "charged", NULL, 12);
    assert_int_equal(ratelimit_settle(fixture.client, ratelimit_id(fixture.client), 512, LONG_MS, &decision),
                     RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "settle 'r7-abc', 512");
    assert_int_equal(decision.charged, 12);
    assert_string_equal(ratelimit_id(fixture.client), "");
    answer(&fixture, "refunded", NULL, 500);
    assert_int_equal(ratelimit_cancel(fixture.client, "r7-abc", LONG_MS, &decision), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "cancel 'r7-abc'");
    assert_int_equal(decision.refunded, 500);
    options.at_most = 5;
    assert_int_equal(ratelimit_reserve(fixture.client, "llm", "a", 1, 500, &options, LONG_MS, &decision),
                     RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_cancel(fixture.client, NULL, LONG_MS, &decision), RATELIMIT_BAD_ARGUMENT);
    blocking_fixture_close(&fixture);
}

static void a_slot_is_taken_and_given_back_by_its_id(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    bool released = false;
    blocking_fixture_open(&fixture);
    answer(&fixture, "slot", "s1", 0);
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, LONG_MS, &decision), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "acquire 'jobs', 'a'");
    assert_string_equal(ratelimit_id(fixture.client), "s1");
    answer_flag(&fixture, "released", true);
    assert_int_equal(ratelimit_release(fixture.client, "s1", LONG_MS, &released), RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "release 's1'");
    assert_true(released);
    answer_flag(&fixture, "released", false);
    assert_int_equal(ratelimit_release(fixture.client, "s1", LONG_MS, NULL), RATELIMIT_OK);
    answer_flag(&fixture, "removed", false);
    assert_int_equal(ratelimit_release(fixture.client, "s1", LONG_MS, NULL), RATELIMIT_PROTOCOL);
    blocking_fixture_close(&fixture);
}

static void an_admission_without_its_id_is_no_answer(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open(&fixture);
    answer(&fixture, NULL, NULL, 0);
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, LONG_MS, &decision), RATELIMIT_PROTOCOL);
    answer(&fixture, "slot", NULL, 5);
    assert_int_equal(ratelimit_acquire(fixture.client, "jobs", "a", 1, LONG_MS, &decision), RATELIMIT_PROTOCOL);
    assert_string_equal(ratelimit_id(fixture.client), "");
    blocking_fixture_close(&fixture);
}

/* ---- Asynchronous: an answer's members are its own ---- */

struct many {
    struct ratelimit_async *client;
    int n_ends;
    int64_t remaining[3];
};

static void on_many(const struct ratelimit_answer *answer, void *arg)
{
    struct many *many = arg;
    const struct ratelimit_item items[] = {{"login", "c", 1, 1}, {"login", "d", 1, 1}};
    assert_int_equal(answer->status, RATELIMIT_OK);
    assert_null(answer->decision);
    assert_int_equal(answer->n_members, 2);
    if (many->n_ends++ == 0)
        assert_int_equal(ratelimit_async_check_many(many->client, items, 2, LONG_MS, on_many, many), RATELIMIT_OK);
    many->remaining[many->n_ends - 1] = answer->members[1].remaining;
}

static void answer_many(struct scripted_daemon *daemon, uint64_t msgid, int64_t remaining)
{
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, msgid);
    pack_array(&packer, 2);
    for (int i = 0; i < 2; i++) daemon_pack_decision(&packer, true, remaining + i);
    daemon_send(daemon, buffer_data(&out), buffer_len(&out));
    buffer_fini(&out);
}

static void a_call_made_in_a_callback_leaves_its_members_alone(void **state)
{
    (void)state;
    struct scripted_daemon daemon;
    struct many many = {0};
    const struct ratelimit_item items[] = {{"login", "a", 1, 1}, {"login", "b", 1, 1}};
    daemon_start(&daemon, 16);
    assert_int_equal(ratelimit_async_new(daemon.path, &many.client), RATELIMIT_OK);
    assert_int_equal(ratelimit_async_check_many(many.client, items, 2, LONG_MS, on_many, &many), RATELIMIT_OK);
    ratelimit_async_process(many.client, 0);
    daemon_greet(&daemon);
    for (int i = 0; i < 2; i++) {
        answer_many(&daemon, daemon_expect(&daemon, "check_many"), 20 + 10 * i);
        ratelimit_async_process(many.client, 1);
    }
    assert_int_equal(many.n_ends, 2);
    assert_int_equal(many.remaining[0], 21);
    assert_int_equal(many.remaining[1], 31);
    ratelimit_async_free(many.client);
    daemon_stop(&daemon);
}

/* ---- Policies in braces ---- */

static void a_policy_in_braces_is_sent_as_a_map(void **state)
{
    (void)state;
    struct blocking_fixture fixture;
    struct ratelimit_decision decision;
    blocking_fixture_open(&fixture);
    answer(&fixture, NULL, NULL, 0);
    assert_int_equal(ratelimit_check(fixture.client, "{algorithm: token_bucket, limit: 10, window: 1m}", "a", 1, 2,
                                     LONG_MS, &decision),
                     RATELIMIT_OK);
    assert_string_equal(sent(&fixture), "check {'algorithm': 'token_bucket', 'limit': '10', 'window': '1m'}, 'a', 2");
    assert_int_equal(ratelimit_check(fixture.client, "{algorithm", "a", 1, 2, LONG_MS, &decision),
                     RATELIMIT_BAD_ARGUMENT);
    blocking_fixture_close(&fixture);
}

/* What flow_pack() makes of the text, as text. */
static const char *flow(const char *text, char *out)
{
    struct buffer packed = {0};
    struct packer packer = packer_of(&packed);
    const char *at, *wrong = flow_pack(&packer, text, NULL, &at);
    assert_true(at >= text && at <= text + strlen(text));
    out[0] = '\0';
    if (wrong != NULL) {
        snprintf(out, SENT_TEXT_SIZE, "%d: %s", (int)(at - text), wrong);
    } else {
        struct pull pull = pull_of(buffer_data(&packed), buffer_len(&packed));
        sent_text_show(&pull, out);
        assert_ptr_equal(pull.at, pull.end);
    }
    buffer_fini(&packed);
    return out;
}

static void settings_may_be_written_as_yaml_or_json(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"{}", "{}"},
        {"{a: b}", "{'a': 'b'}"},
        {"{ a : b c , d:e, } ", "{'a': 'b c', 'd': 'e'}"},
        {"{\"a\":1,\"b\":[true,null,\"x\\\"\\/y\"]}", "{'a': '1', 'b': ['true', null, 'x\"/y']}"},
        {"{a: 'it''s', b: ~, c: \"null\"}", "{'a': 'it's', 'b': null, 'c': 'null'}"},
        {"{limits: [{name: day, window: 1d}, {name: s}], match: user:*}",
         "{'limits': [{'name': 'day', 'window': '1d'}, {'name': 's'}], 'match': 'user:*'}"},
        {"{a: {b: {c: []}}}", "{'a': {'b': {'c': []}}}"},
    };
    char out[SENT_TEXT_SIZE];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_string_equal(flow(pairs[i][0], out), pairs[i][1]);
}

static void what_cannot_be_read_says_why_and_where(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"{a: b", "5: a comma or } is missing"},
        {"{a b}", "4: a colon is missing after the name of a setting"},
        {"{a: }", "4: a value is missing"},
        {"{: b}", "1: a setting without a name"},
        {"{a: [b}", "6: a comma or ] is missing"},
        {"{a: 'b}", "7: a quoted text that does not end, or is too long"},
        {"{a: \"\\q\"}", "6: an unknown escape sequence"},
        {"{a: b} c", "7: there is text after the last brace"},
        {"{a:[[[[[[[[x]]]]]]]]}", "10: nested too deeply"},
    };
    char out[SENT_TEXT_SIZE], longest[2000];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_string_equal(flow(pairs[i][0], out), pairs[i][1]);
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "{a: ", 4);
    longest[sizeof longest - 1] = '\0';
    assert_non_null(strstr(flow(longest, out), "a text that is too long"));
}

static void memory_that_is_short_shows_in_the_packer(void **state)
{
    (void)state;
    struct buffer packed = {0};
    const char *at;
    for (uint64_t nth = 1; nth < 3; nth++) {
        struct packer packer = packer_of(&packed);
        mem_fail_nth(nth);
        assert_null(flow_pack(&packer, "{a: [b, {c: d}], e: \"f\"}", NULL, &at));
        assert_int_equal(packer.failed, nth == 1);
        mem_fail_nth(0);
        buffer_fini(&packed);
    }
}

static void on_cancelled(const struct ratelimit_answer *answer, void *arg)
{
    (void)arg;
    assert_int_equal(answer->status, RATELIMIT_CANCELLED);
}

static enum ratelimit_status make_all_calls(struct ratelimit_async *client)
{
    const struct ratelimit_item items[] = {{"login", "a", 1, 1}, {"{limit: 5}", "b", 1, 1}};
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    enum ratelimit_status ends[] = {
        ratelimit_async_check_with(client, "{a: b}", "k", 1, &options, LONG_MS, on_cancelled, NULL),
        ratelimit_async_check_all(client, items, 2, NULL, LONG_MS, on_cancelled, NULL),
        ratelimit_async_check_many(client, items, 2, LONG_MS, on_cancelled, NULL),
        ratelimit_async_reserve(client, "p", "k", 1, 5, NULL, LONG_MS, on_cancelled, NULL),
        ratelimit_async_settle(client, "id", 5, LONG_MS, on_cancelled, NULL),
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (ends[i] != RATELIMIT_OK) return ends[i];
    }
    return RATELIMIT_OK;
}

static void memory_may_fail_in_every_call(void **state)
{
    (void)state;
    enum ratelimit_status status = RATELIMIT_NO_MEMORY;
    for (uint64_t nth = 1; nth < 200 && status == RATELIMIT_NO_MEMORY; nth++) {
        struct ratelimit_async *client;
        assert_int_equal(ratelimit_async_new("/nonexistent", &client), RATELIMIT_OK);
        mem_fail_nth(nth);
        status = make_all_calls(client);
        mem_fail_nth(0);
        ratelimit_async_free(client);
    }
    assert_int_equal(status, RATELIMIT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_options_that_are_set_are_sent),
        cmocka_unit_test(options_that_make_no_sense_are_refused_at_once),
        cmocka_unit_test(a_bad_argument_is_named),
        cmocka_unit_test(options_of_a_later_version_pass_while_they_ask_for_nothing_new),
        cmocka_unit_test(a_check_of_all_gives_the_whole_and_its_members),
        cmocka_unit_test(a_check_of_all_without_its_members_is_no_answer),
        cmocka_unit_test(a_refund_says_what_was_given_back),
        cmocka_unit_test(a_reservation_is_settled_or_cancelled_by_its_id),
        cmocka_unit_test(a_slot_is_taken_and_given_back_by_its_id),
        cmocka_unit_test(an_admission_without_its_id_is_no_answer),
        cmocka_unit_test(a_call_made_in_a_callback_leaves_its_members_alone),
        cmocka_unit_test(a_policy_in_braces_is_sent_as_a_map),
        cmocka_unit_test(settings_may_be_written_as_yaml_or_json),
        cmocka_unit_test(what_cannot_be_read_says_why_and_where),
        cmocka_unit_test(memory_that_is_short_shows_in_the_packer),
        cmocka_unit_test(memory_may_fail_in_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
