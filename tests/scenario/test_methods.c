/* test_methods.c: every method with what it takes and what it refuses, over the wire. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/counters.h"
#include "base/latency.h"
#include "fakes/server_fixture.h"
#include "server/server_counters.h"

static struct server_fixture fixture;
static struct client client;
static struct heard heard;

static int set_up(void **state)
{
    (void)state;
    server_fixture_open_memory(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    return 0;
}

static int set_up_scripted(void **state)
{
    (void)state;
    server_fixture_open(&fixture, &server_fixture_options);
    client_open(&client, &fixture);
    return 0;
}

static int set_up_test_clock(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.test_clock = true;
    server_fixture_open_memory(&fixture, &options);
    client_open(&client, &fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    client_close(&client);
    server_fixture_close(&fixture);
    return 0;
}

/* Ask, and hear the answer into `heard`. The macros take what client_ask() takes after the msgid. */
#define ASK(...)                                                                                                       \
    do {                                                                                                               \
        client_ask(&client, 1, __VA_ARGS__);                                                                           \
        client_answer(&client, &heard);                                                                                \
    } while (0)

static struct heard_decision decision_heard(void)
{
    assert_string_equal(heard.error, "");
    return heard_decision(&heard.result);
}

/* The error begins with `code` and names `what`; the connection lives. */
#define ASSERT_REFUSED(code, what, ...)                                                                                \
    do {                                                                                                               \
        ASK(__VA_ARGS__);                                                                                              \
        if (strncmp(heard.error, code ": ", strlen(code ": ")) != 0 || strstr(heard.error, what) == NULL)              \
            fail_msg("%s", heard.error);                                                                               \
        assert_int_equal(pull_nil(&heard.result), 0);                                                                  \
    } while (0)

static struct pull next; /* the value that find() has found */

/* Look for a field of the map in heard.result, which stays where it is. */
static void find(const char *name)
{
    next = heard.result;
    assert_true(heard_find(&next, name));
}

static int64_t next_int(struct pull *from)
{
    int64_t value;
    assert_int_equal(pull_int(from, &value), 0);
    return value;
}

static void assert_int_field(const char *name, int64_t value)
{
    find(name);
    assert_int_equal(next_int(&next), value);
}

static void assert_next_text(struct pull *from, const char *text)
{
    char found[64];
    heard_text(from, found, sizeof found);
    assert_string_equal(found, text);
}

static void assert_text_field(const char *name, const char *text)
{
    find(name);
    assert_next_text(&next, text);
}

static uint32_t enter_list(struct pull *from)
{
    uint32_t n;
    assert_int_equal(pull_array(from, &n), 0);
    return n;
}

static void check_takes_a_cost_or_options(void **state)
{
    (void)state;
    ASK("check", 2, "ss", "api", "k");
    assert_int_equal(decision_heard().remaining, 999999);
    ASK("check", 3, "ssi", "api", "k", 9);
    assert_int_equal(decision_heard().remaining, 999990);
    ASK("check", 3, "ss{si", "api", "k", 1, "cost", 90);
    assert_int_equal(decision_heard().remaining, 999900);
    ASK("check", 3, "ss{", "api", "k", 0);
    assert_int_equal(decision_heard().remaining, 999899);
    ASK("check", 3, "ssn", "api", "k");
    assert_int_equal(decision_heard().remaining, 999898);
    ASK("check", 3, "ss[", "api", "k", 0);
    assert_int_equal(decision_heard().remaining, 999897);
    ASK("check", 3, "bbf", "api", "k", 7.0);
    assert_int_equal(decision_heard().remaining, 999890);
    ASK("check", 3, "ss{bisi", "api", "k", 2, "deadline_ms", 5, "cost", 90);
    assert_int_equal(decision_heard().remaining, 999800);
}

static void a_key_is_the_same_as_str_and_bin(void **state)
{
    (void)state;
    ASK("check", 2, "ss", "login", "k");
    ASK("check", 2, "sb", "login", "k");
    assert_int_equal(decision_heard().remaining, 3);
}

static void a_cost_of_0_is_a_peek(void **state)
{
    (void)state;
    ASK("check", 3, "ssi", "login", "k", 0);
    struct heard_decision decision = decision_heard();
    assert_true(decision.allowed && decision.remaining == 5 && decision.granted == -1);
}

static void what_is_at_its_default_is_left_out(void **state)
{
    (void)state;
    fixture.engine.scripted.decision =
        (struct decision){.allowed = true, .limit = 10, .remaining = 3, .granted = 4, .delay_ms = 12};
    fixture.engine.scripted.mode = SCRIPTED_DECIDE;
    ASK("check", 3, "ssi", "api", "k", 4);
    assert_int_equal(decision_heard().n_fields, 8); /* the seven, and delay_ms */
    ASK("check", 3, "ssi", "api", "k", 5);
    struct heard_decision decision = decision_heard();
    assert_int_equal(decision.n_fields, 9);
    assert_int_equal(decision.granted, 4);
    fixture.engine.scripted.decision = (struct decision){.limit = 10, .granted = 1, .retry_after_ms = RETRY_NEVER};
    ASK("check", 2, "ss", "api", "k");
    decision = decision_heard();
    assert_int_equal(decision.granted, 1);
    assert_int_equal(decision.retry_after_ms, -1);
}

static void a_failure_answer_says_its_reason(void **state)
{
    (void)state;
    fixture.engine.scripted.mode = SCRIPTED_REFUSE_DOWN;
    ASK("check", 2, "ss", "login", "k");
    struct heard_decision decision = decision_heard();
    assert_string_equal(decision.source, "allow");
    assert_string_equal(decision.reason, "down");
    ASSERT_REFUSED("STORE_UNAVAILABLE", "", "check", 2, "ss", "strict", "k");
    ASSERT_REFUSED("STORE_UNAVAILABLE", "", "peek", 2, "ss", "login", "k");
}

static void wrong_parameters_are_named(void **state)
{
    (void)state;
    ASSERT_REFUSED("BAD_REQUEST", "policy, key [, cost or options]", "check", 1, "s", "api");
    ASSERT_REFUSED("BAD_REQUEST", "4 given", "check", 4, "ssii", "api", "k", 1, 1);
    ASSERT_REFUSED("BAD_REQUEST", "0 given", "check", 0, "");
    ASSERT_REFUSED("BAD_REQUEST", "policy:", "check", 2, "is", 1, "k");
    ASSERT_REFUSED("BAD_REQUEST", "policy:", "check", 2, "ns", "k");
    ASSERT_REFUSED("BAD_REQUEST", "key:", "check", 2, "si", "api", 1);
    ASSERT_REFUSED("BAD_REQUEST", "cost or options:", "check", 3, "sss", "api", "k", "1");
    ASSERT_REFUSED("BAD_REQUEST", "cost or options:", "check", 3, "ss[i", "api", "k", 1, 1);
    ASSERT_REFUSED("BAD_REQUEST", "cost or options:", "check", 3, "sst", "api", "k");
    ASSERT_REFUSED("BAD_REQUEST", "there is no option 'cots'; did you mean 'cost'?", "check", 3, "ss{si", "api", "k", 1,
                   "cots", 1);
    ASSERT_REFUSED("BAD_REQUEST", "there is no option 'price'", "check", 3, "ss{si", "api", "k", 1, "price", 1);
    ASSERT_REFUSED("BAD_REQUEST", "cost:", "peek", 3, "ss{", "api", "k", 0);
    ASSERT_REFUSED("BAD_REQUEST", "cost:", "check", 3, "ss{ss", "api", "k", 1, "cost", "1");
    ASSERT_REFUSED("BAD_REQUEST", "reset takes: policy, key", "reset", 3, "ssi", "api", "k", 1);
}

static void unknown_policies_are_named(void **state)
{
    (void)state;
    ASSERT_REFUSED("UNKNOWN_POLICY", "no policy 'lgoin'; did you mean 'login'? 'policies' lists them", "check", 2, "ss",
                   "lgoin", "k");
    ASSERT_REFUSED("UNKNOWN_POLICY", "no policy 'sign-in'; 'policies' lists them", "check", 2, "ss", "sign-in", "k");
    ASSERT_REFUSED("UNKNOWN_POLICY", "no policy 'xyz'; 'policies' lists them", "check", 2, "ss", "xyz", "k");
    ASSERT_REFUSED("UNKNOWN_POLICY", "'a\\x0ab'", "check", 2, "ss", "a\nb", "k");
    ASSERT_REFUSED("NOT_PERMITTED", "inline policies", "check", 2, "{sis", 1, "limit", 5, "k");
    char longer[300];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    ASSERT_REFUSED("UNKNOWN_POLICY", "xxx...", "reset", 2, "ss", longer, "k");
    assert_true(strlen(heard.error) < 200);
}

static void keys_have_1_to_max_key_bytes(void **state)
{
    (void)state;
    char key[1026];
    memset(key, 'k', sizeof key - 1);
    key[1025] = '\0';
    ASSERT_REFUSED("BAD_KEY", "key: is empty", "check", 2, "ss", "api", "");
    ASSERT_REFUSED("BAD_KEY", "1025 bytes; at most 1024", "check", 2, "ss", "api", key);
    ASSERT_REFUSED("BAD_KEY", "key:", "peek", 2, "sb", "api", key);
    ASSERT_REFUSED("BAD_KEY", "key:", "reset", 2, "sb", "api", "");
    key[1024] = '\0';
    ASK("check", 2, "ss", "api", key);
    assert_true(decision_heard().allowed);
}

static void costs_that_cannot_be_charged_are_refused(void **state)
{
    (void)state;
    ASSERT_REFUSED("BAD_COST", "cost:", "check", 3, "ssi", "api", "k", -1);
    ASSERT_REFUSED("BAD_COST", "cost:", "check", 3, "ssf", "api", "k", 0.5);
    ASSERT_REFUSED("BAD_COST", "cost:", "check", 3, "ssf", "api", "k", 9007199254740992.0);
    ASSERT_REFUSED("BAD_COST", "cost:", "check", 3, "ssf", "api", "k", (double)NAN);
    ASSERT_REFUSED("BAD_COST", "cost:", "check", 3, "ssf", "api", "k", (double)INFINITY);
    ASSERT_REFUSED("BAD_COST", "cost:", "check", 3, "ss{si", "api", "k", 1, "cost", -1);
    ASSERT_REFUSED("BAD_COST", "cost:", "peek", 3, "ssi", "api", "k", -1);
    ASK("check", 3, "ssi", "login", "k", 6); /* more than the limit: a decision */
    assert_false(decision_heard().allowed);
}

static void unknown_options_are_named(void **state)
{
    (void)state;
    ASSERT_REFUSED("BAD_REQUEST", "no option 'costs'", "check", 3, "ss{si", "api", "k", 1, "costs", 1);
    ASSERT_REFUSED("BAD_REQUEST", "'cost' is given twice", "check", 3, "ss{sisi", "api", "k", 2, "cost", 1, "cost", 1);
    ASSERT_REFUSED("BAD_REQUEST", "request_id:", "check", 3, "ss{ss", "api", "k", 1, "request_id", "");
    ASSERT_REFUSED("BAD_REQUEST", "request_id:", "check", 3, "ss{si", "api", "k", 1, "request_id", 7);
    ASSERT_REFUSED("BAD_REQUEST", "request_id:", "check", 3, "ss{ss", "api", "k", 1, "request_id",
                   "a request id of more than 64 bytes, which is one or two bytes too many");
    ASSERT_REFUSED("BAD_REQUEST", "at_most:", "check", 3, "ss{ss", "api", "k", 1, "at_most", "2");
    ASSERT_REFUSED("BAD_COST", "at_most:", "check", 3, "ss{si", "api", "k", 1, "at_most", 0);
    ASSERT_REFUSED("BAD_COST", "at_most:", "check", 3, "ss{sf", "api", "k", 1, "at_most", 1.5);
    ASSERT_REFUSED("BAD_REQUEST", "in place of cost", "check", 3, "ss{sisi", "api", "k", 2, "at_most", 2, "cost", 2);
    ASSERT_REFUSED("BAD_REQUEST", "in place of cost", "check", 3, "ss{sisi", "api", "k", 2, "cost", 1, "at_most", 2);
    ASSERT_REFUSED("BAD_REQUEST", "max_wait_ms:", "check", 3, "ss{si", "api", "k", 1, "max_wait_ms", -1);
    ASSERT_REFUSED("BAD_REQUEST", "max_wait_ms:", "check", 3, "ss{ss", "api", "k", 1, "max_wait_ms", "5ms");
    ASSERT_REFUSED("BAD_REQUEST", "name must be a str", "check", 3, "ss{ii", "api", "k", 1, 1, 1);
    ASSERT_REFUSED("BAD_REQUEST", "deadline_ms:", "check", 3, "ss{si", "api", "k", 1, "deadline_ms", 0);
    ASSERT_REFUSED("BAD_REQUEST", "deadline_ms:", "check", 3, "ss{si", "api", "k", 1, "deadline_ms", 3600001);
    ASSERT_REFUSED("BAD_REQUEST", "deadline_ms:", "check", 3, "ss{ss", "api", "k", 1, "deadline_ms", "5ms");
    ASSERT_REFUSED("BAD_REQUEST", "no option 'decision'", "check", 3, "ss{ss", "api", "k", 1, "decision", "map");
}

static void the_deadline_option_is_kept(void **state)
{
    (void)state;
    client_ask(&client, 1, "check", 3, "ss{si", "login", "k", 1, "deadline_ms", 3);
    fixture.engine.clock.mono_us += 2999;
    engine_expire(fixture.engine.engine);
    assert_int_equal(client_hear(&client, &heard), 0);
    fixture.engine.clock.mono_us += 1;
    engine_expire(fixture.engine.engine);
    client_answer(&client, &heard);
    assert_string_equal(decision_heard().reason, "deadline");
}

static void check_many_decides_each_by_itself(void **state)
{
    (void)state;
    ASK("check_many", 1, "[[ss[ssi[ssn[ss", 4, 2, "login", "a", 3, "login", "a", 4, 3, "login", "a", 2, "closed", "b");
    assert_int_equal(enter_list(&heard.result), 4);
    struct heard_decision decision = heard_decision(&heard.result);
    assert_true(decision.allowed && decision.remaining == 4);
    decision = heard_decision(&heard.result);
    assert_true(decision.allowed && decision.remaining == 0);
    decision = heard_decision(&heard.result);
    assert_false(decision.allowed);
    decision = heard_decision(&heard.result);
    assert_true(!decision.allowed && decision.retry_after_ms == -1);
}

static void check_many_of_nothing_answers_an_empty_list(void **state)
{
    (void)state;
    ASK("check_many", 1, "[", 0);
    assert_string_equal(heard.error, "");
    assert_int_equal(enter_list(&heard.result), 0);
}

static void a_bad_member_refuses_the_list_before_anything_is_charged(void **state)
{
    (void)state;
    ASSERT_REFUSED("BAD_KEY", "checks[1]: key:", "check_many", 1, "[[ss[ss", 2, 2, "login", "a", 2, "login", "");
    ASSERT_REFUSED("UNKNOWN_POLICY", "checks[1]: ", "check_many", 1, "[[ss[ss", 2, 2, "login", "a", 2, "x", "a");
    ASSERT_REFUSED("BAD_COST", "checks[1]: cost:", "check_many", 1, "[[ss[ssi", 2, 2, "login", "a", 3, "login", "a",
                   -1);
    ASSERT_REFUSED("BAD_REQUEST", "checks[1]: cost:", "check_many", 1, "[[ss[sss", 2, 2, "login", "a", 3, "login", "a",
                   "1");
    ASSERT_REFUSED("BAD_REQUEST", "checks[1]: must be a list", "check_many", 1, "[[sss", 2, 2, "login", "a", "b");
    ASSERT_REFUSED("BAD_REQUEST", "checks[0]: must be a list", "check_many", 1, "[[s", 1, 1, "login");
    ASSERT_REFUSED("NOT_PERMITTED", "checks[0]: policy:", "check_many", 1, "[[{s", 1, 2, 0, "a");
    ASSERT_REFUSED("BAD_REQUEST", "checks: must be a list", "check_many", 1, "s", "login");
    ASSERT_REFUSED("BAD_REQUEST", "wrong number", "check_many", 0, "");
    ASK("peek", 2, "ss", "login", "a");
    assert_int_equal(decision_heard().remaining, 5);
    assert_int_equal(engine_n_live(fixture.engine.engine), 0);
}

static void check_many_answers_in_its_own_order(void **state)
{
    (void)state;
    client_ask(&client, 1, "check_many", 1, "[[ss[ss[ss", 3, 2, "api", "a", 2, "api", "b", 2, "api", "c");
    assert_int_equal(fixture.engine.scripted.n_held, 3);
    for (int i = 2; i >= 0; i--) {
        fixture.engine.scripted.decision.remaining = i;
        scripted_end(&fixture.engine.scripted, (size_t)i, OP_DECIDED);
    }
    client_answer(&client, &heard);
    assert_int_equal(enter_list(&heard.result), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(heard_decision(&heard.result).remaining, i);
}

static void a_member_that_the_store_could_not_decide_is_named(void **state)
{
    (void)state;
    client_ask(&client, 1, "check_many", 1, "[[ss[ss", 2, 2, "login", "a", 2, "strict", "b");
    scripted_end_all(&fixture.engine.scripted, OP_DOWN);
    client_answer(&client, &heard);
    if (strncmp(heard.error, "STORE_UNAVAILABLE: checks[1]: ", 30) != 0) fail_msg("%s", heard.error);
    assert_int_equal(engine_n_live(fixture.engine.engine), 0);
}

static void over_the_cap_a_request_is_overloaded_and_nothing_charged(void **state)
{
    (void)state;
    struct engine_options options = {.max_inflight = 2, .local_max_keys = 10};
    engine_set_options(fixture.engine.engine, &options);
    client_ask(&client, 2, "check", 2, "ss", "login", "a");
    ASSERT_REFUSED("OVERLOADED", "caps.max_inflight", "check_many", 1, "[[ss[ss", 2, 2, "login", "a", 2, "login", "a");
    assert_int_equal(fixture.engine.scripted.n_submitted, 1);
    client_ask(&client, 3, "check", 2, "ss", "login", "a");
    ASSERT_REFUSED("OVERLOADED", "caps.max_inflight", "check", 2, "ss", "login", "a");
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&client, &heard);
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
}

static void a_peek_says_what_a_check_would_and_charges_nothing(void **state)
{
    (void)state;
    ASK("peek", 2, "ss", "login", "k");
    assert_int_equal(decision_heard().remaining, 5);
    ASK("peek", 3, "ssi", "login", "k", 2);
    struct heard_decision peek = decision_heard();
    assert_int_equal(peek.remaining, 3);
    ASK("peek", 3, "ssi", "login", "k", 6);
    assert_false(decision_heard().allowed);
    ASK("check", 3, "ssi", "login", "k", 2);
    struct heard_decision check = decision_heard();
    assert_memory_equal(&peek, &check, sizeof peek);
    ASK("peek", 3, "ssn", "login", "k");
    assert_int_equal(decision_heard().remaining, 3);
}

static void a_reset_forgets_the_key(void **state)
{
    (void)state;
    bool removed;
    ASK("check", 2, "ss", "login", "k");
    for (int i = 0; i < 2; i++) {
        ASK("reset", 2, "ss", "login", "k");
        find("removed");
        assert_int_equal(pull_bool(&next, &removed), 0);
        assert_int_equal(removed, i == 0);
    }
    ASK("peek", 2, "ss", "login", "k");
    assert_int_equal(decision_heard().remaining, 5);
}

static void hello_introduces_the_daemon(void **state)
{
    (void)state;
    static const char *const fields[] = {"allowed",        "limit",    "remaining",     "retry_after_ms",
                                         "reset_after_ms", "delay_ms", "granted",       "bound_by",
                                         "source",         "reason",   "policy_version"};
    static const char *const features[] = {"name", "reserve_inline", "abandon", "id"};
    ASK("hello", 0, "");
    assert_int_field("protocol", 1);
    assert_int_field("max_key", 1024);
    assert_int_field("max_frame", 65536);
    assert_int_field("max_inflight_per_connection", 4096);
    find("version");
    assert_int_equal(pull_type(&next), PULL_TEXT);
    find("fields");
    assert_int_equal(enter_list(&next), sizeof fields / sizeof fields[0]);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) assert_next_text(&next, fields[i]);
    find("features");
    assert_int_equal(enter_list(&next), N_OF(features));
    for (size_t i = 0; i < N_OF(features); i++) assert_next_text(&next, features[i]);
}

static void hello_chooses_the_form_of_decisions(void **state)
{
    (void)state;
    bool allowed;
    ASK("hello", 1, "{ss", 1, "decision", "array");
    ASK("check", 3, "ssi", "login", "k", 2);
    assert_int_equal(enter_list(&heard.result), 11);
    assert_int_equal(pull_bool(&heard.result, &allowed), 0);
    assert_true(allowed);
    static const int64_t numbers[] = {5, 3, 0, 10000, 0, 2}; /* limit to granted; the window ends in 10 s */
    for (size_t i = 0; i < 6; i++) assert_int_equal(next_int(&heard.result), numbers[i]);
    assert_int_equal(pull_nil(&heard.result), 0);
    assert_next_text(&heard.result, "memory");
    assert_int_equal(pull_nil(&heard.result), 0);
    assert_int_equal(next_int(&heard.result), policies_get(engine_policies(fixture.engine.engine), "login")->version);
    ASK("hello", 1, "n"); /* without the option the form stays */
    ASK("check", 2, "ss", "login", "k");
    assert_int_equal(pull_type(&heard.result), PULL_ARRAY);
    ASK("hello", 1, "{sb", 1, "decision", "map");
    ASK("check", 2, "ss", "login", "k");
    assert_int_equal(decision_heard().remaining, 1);
}

static void hello_refuses_what_it_does_not_know(void **state)
{
    (void)state;
    ASSERT_REFUSED("BAD_REQUEST", "decision:", "hello", 1, "{ss", 1, "decision", "list");
    ASSERT_REFUSED("BAD_REQUEST", "decision:", "hello", 1, "{si", 1, "decision", 1);
    ASSERT_REFUSED("BAD_REQUEST", "no option 'form'", "hello", 1, "{ss", 1, "form", "map");
    ASSERT_REFUSED("BAD_REQUEST", "options: must be a map", "hello", 1, "s", "array");
    ASSERT_REFUSED("BAD_REQUEST", "given twice", "hello", 1, "{ssss", 2, "decision", "array", "decision", "array");
    ASK("check", 2, "ss", "login", "k"); /* what was refused changed nothing */
    assert_int_equal(pull_type(&heard.result), PULL_MAP);
}

static void methods_without_parameters_also_take_a_nil(void **state)
{
    (void)state;
    static const char *const names[] = {"ping", "stats", "policies", "version"};
    for (size_t i = 0; i < 4; i++) {
        ASK(names[i], 0, "");
        assert_string_equal(heard.error, "");
        assert_true(pull_type(&heard.result) != PULL_NIL);
        ASK(names[i], 1, "n");
        assert_string_equal(heard.error, "");
        ASSERT_REFUSED("BAD_REQUEST", names[i], names[i], 1, "i", 1);
        ASSERT_REFUSED("BAD_REQUEST", names[i], names[i], 2, "nn");
    }
}

static void policies_are_listed_as_configured(void **state)
{
    (void)state;
    ASK("policies", 0, "");
    assert_int_equal(enter_list(&heard.result), 4);
    assert_text_field("name", "login");
    assert_int_field("version", policies_get(engine_policies(fixture.engine.engine), "login")->version);
    find("limits");
    assert_int_equal(enter_list(&next), 1);
    heard.result = next;
    assert_text_field("algorithm", "fixed_window");
    assert_int_field("window_ms", 10000);
    assert_int_field("limit", 5);
    assert_text_field("start", "aligned");
    find("count_denied");
    assert_int_equal(pull_type(&next), PULL_BOOL);
}

static void stats_are_all_counters(void **state)
{
    (void)state;
    ASK("check", 2, "ss", "login", "k");
    ASK("stats", 0, "");
    uint32_t n;
    struct pull map = heard.result;
    assert_int_equal(pull_map(&map, &n), 0);
    assert_int_equal(n, counters_n() + N_LATENCY_STATS);
    assert_int_field("checks", 1);
    assert_int_field("requests", 2);
    assert_int_field("connections", 1);
}

static void version_names_the_libraries_and_the_store(void **state)
{
    (void)state;
    ASK("version", 0, "");
    assert_text_field("libuv", uv_version_string());
    assert_int_field("uptime_ms", 0);
    assert_text_field("hiredis", "1.2.0");
    assert_text_field("store", "memory");
}

static void unknown_methods_are_named_and_the_connection_lives(void **state)
{
    (void)state;
    ASSERT_REFUSED("UNKNOWN_METHOD", "'chekc'", "chekc", 2, "ss", "login", "k");
    ASSERT_REFUSED("UNKNOWN_METHOD", "''", "", 0, "");
    ASSERT_REFUSED("UNKNOWN_METHOD", "'test_clock'", "test_clock", 1, "i", 5);
    assert_int_equal(server_counters.request_errors, 3);
}

static void notifications_are_counted_and_ignored(void **state)
{
    (void)state;
    static const uint8_t check[] = "\x93\x02\xa5"
                                   "check\x92\xa5login\xa1k";
    static const uint8_t other[] = "\x93\x02\xb4nvim_set_client_info\x90\x93\x02\xa1x\xc0\x93\x02\x05\x05";
    client_send(&client, check, sizeof check - 1);
    client_send(&client, other, sizeof other - 1);
    ASK("peek", 2, "ss", "login", "k");
    assert_int_equal(decision_heard().remaining, 5);
    assert_int_equal(server_counters.notifications, 4);
    assert_int_equal(server_counters.requests, 1);
}

#define NOTIFY_ABANDON(params)                                                                                         \
    do {                                                                                                               \
        static const uint8_t bytes[] = "\x93\x02\xa7"                                                                  \
                                       "abandon" params;                                                               \
        client_send(&client, bytes, sizeof bytes - 1);                                                                 \
    } while (0)

static int64_t login_remaining(void)
{
    ASK("peek", 2, "ss", "login", "k");
    return decision_heard().remaining;
}

static void what_is_abandoned_after_its_answer_is_given_back(void **state)
{
    (void)state;
    ASK("reserve", 3, "ssi", "login", "k", 2); /* msgid 1 */
    NOTIFY_ABANDON("\x91\x01");
    assert_int_equal(login_remaining(), 5);
    client_ask(&client, UINT64_MAX, "reserve", 3, "ssi", "login", "k", 3);
    client_answer(&client, &heard);
    assert_int_equal(login_remaining(), 2);
    NOTIFY_ABANDON("\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
    assert_int_equal(login_remaining(), 5);
    ASK("stats", 0, "");
    assert_int_field("abandoned", 2);
    assert_int_field("reservations", 0);
    assert_int_field("notifications", 2);
}

static void a_msgid_is_abandoned_in_any_encoding(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        ASK("reserve", 3, "ssi", "login", "k", 5);
        assert_true(decision_heard().allowed);
        switch (i) {
        case 0: NOTIFY_ABANDON("\x91\xd0\x01"); break;
        case 1: NOTIFY_ABANDON("\x91\xcf\x00\x00\x00\x00\x00\x00\x00\x01"); break;
        case 2: NOTIFY_ABANDON("\x91\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"); break;
        default: NOTIFY_ABANDON("\xdd\x00\x00\x00\x01\x01");
        }
    }
    assert_int_equal(login_remaining(), 5);
}

static void an_abandon_without_a_msgid_of_a_call_does_nothing(void **state)
{
    (void)state;
    ASK("reserve", 3, "ssi", "login", "k", 2);
    ASK("check", 2, "ss", "login", "k"); /* its msgid is the same, but a check is not abandoned */
    NOTIFY_ABANDON("\x90");
    NOTIFY_ABANDON("\xc0");
    NOTIFY_ABANDON("\x92\x01\x01");
    NOTIFY_ABANDON("\x91\xa1\x31");
    NOTIFY_ABANDON("\x91\xc0");
    NOTIFY_ABANDON("\x91\xff");
    NOTIFY_ABANDON("\x91\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00");
    NOTIFY_ABANDON("\x91\x91\x01");
    NOTIFY_ABANDON("\x91\x02");
    NOTIFY_ABANDON("\x80");
    ASSERT_REFUSED("UNKNOWN_METHOD", "'abandon'", "abandon", 1, "i", 1);
    assert_int_equal(login_remaining(), 2);
    NOTIFY_ABANDON("\x91\x01");
    assert_int_equal(login_remaining(), 4);
}

static void only_its_own_connection_abandons_a_call(void **state)
{
    (void)state;
    struct client other;
    ASK("reserve", 3, "ssi", "login", "k", 2);
    client_open(&other, &fixture);
    static const uint8_t bytes[] = "\x93\x02\xa7"
                                   "abandon\x91\x01";
    client_send(&other, bytes, sizeof bytes - 1);
    assert_int_equal(login_remaining(), 3);
    client_close(&other);
    assert_int_equal(login_remaining(), 3);
}

static void what_is_abandoned_before_its_answer_is_answered_with_an_error(void **state)
{
    (void)state;
    client_ask(&client, 5, "reserve", 3, "ssi", "strict", "k", 2);
    assert_int_equal(client_hear(&client, &heard), 0);
    NOTIFY_ABANDON("\x91\x05");
    client_answer(&client, &heard);
    assert_int_equal(heard.msgid, 5);
    assert_string_equal(heard.error, "ABANDONED: the client has given it up");
    scripted_end(&fixture.engine.scripted, 0, OP_DECIDED); /* the late yes */
    assert_int_equal(fixture.engine.scripted.n_held, 1);
    assert_int_equal(scripted_held(&fixture.engine.scripted, 0)->kind, OP_SETTLE);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_ask(&client, 5, "ping", 0, ""); /* the msgid is free again */
    client_answer(&client, &heard);
    assert_string_equal(heard.error, "");
}

static void the_test_clock_moves_the_limits_time_alone(void **state)
{
    (void)state;
    int64_t mono_us = fixture.engine.clock.mono_us;
    ASK("test_clock", 1, "i", 0);
    assert_int_equal(next_int(&heard.result), 0);
    for (int i = 0; i < 6; i++) ASK("check", 2, "ss", "login", "k");
    struct heard_decision denied = decision_heard();
    assert_true(!denied.allowed && denied.retry_after_ms == 10000);
    ASK("test_clock", 1, "i", 9999999);
    ASK("check", 2, "ss", "login", "k");
    assert_int_equal(decision_heard().retry_after_ms, 1);
    ASK("test_clock", 1, "f", 10000000.0);
    assert_int_equal(next_int(&heard.result), 10000000);
    ASK("check", 2, "ss", "login", "k");
    assert_true(decision_heard().allowed);
    ASK("test_clock", 1, "i", 3); /* and back */
    assert_int_equal(fixture.engine.clock.wall_us, 3);
    assert_int_equal(fixture.engine.clock.mono_us, mono_us);
    assert_true(fixture.engine.clock.manual);
    ASSERT_REFUSED("BAD_REQUEST", "microseconds:", "test_clock", 1, "i", -1);
    ASSERT_REFUSED("BAD_REQUEST", "microseconds:", "test_clock", 1, "f", 0.5);
    ASSERT_REFUSED("BAD_REQUEST", "microseconds:", "test_clock", 1, "f", 9007199254740992.0);
    ASSERT_REFUSED("BAD_REQUEST", "microseconds:", "test_clock", 1, "s", "0");
    ASSERT_REFUSED("BAD_REQUEST", "microseconds", "test_clock", 0, "");
    assert_int_equal(fixture.engine.clock.wall_us, 3);
}

#define TEST(name)          cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_SCRIPTED(name) cmocka_unit_test_setup_teardown(name, set_up_scripted, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(check_takes_a_cost_or_options),
        TEST(a_key_is_the_same_as_str_and_bin),
        TEST(a_cost_of_0_is_a_peek),
        TEST_SCRIPTED(what_is_at_its_default_is_left_out),
        TEST_SCRIPTED(a_failure_answer_says_its_reason),
        TEST(wrong_parameters_are_named),
        TEST(unknown_policies_are_named),
        TEST(keys_have_1_to_max_key_bytes),
        TEST(costs_that_cannot_be_charged_are_refused),
        TEST(unknown_options_are_named),
        TEST_SCRIPTED(the_deadline_option_is_kept),
        TEST(check_many_decides_each_by_itself),
        TEST(check_many_of_nothing_answers_an_empty_list),
        TEST(a_bad_member_refuses_the_list_before_anything_is_charged),
        TEST_SCRIPTED(check_many_answers_in_its_own_order),
        TEST_SCRIPTED(a_member_that_the_store_could_not_decide_is_named),
        TEST_SCRIPTED(over_the_cap_a_request_is_overloaded_and_nothing_charged),
        TEST(a_peek_says_what_a_check_would_and_charges_nothing),
        TEST(a_reset_forgets_the_key),
        TEST(hello_introduces_the_daemon),
        TEST(hello_chooses_the_form_of_decisions),
        TEST(hello_refuses_what_it_does_not_know),
        TEST(methods_without_parameters_also_take_a_nil),
        TEST(policies_are_listed_as_configured),
        TEST(stats_are_all_counters),
        TEST(version_names_the_libraries_and_the_store),
        TEST(unknown_methods_are_named_and_the_connection_lives),
        TEST(notifications_are_counted_and_ignored),
        TEST(what_is_abandoned_after_its_answer_is_given_back),
        TEST(a_msgid_is_abandoned_in_any_encoding),
        TEST(an_abandon_without_a_msgid_of_a_call_does_nothing),
        TEST(only_its_own_connection_abandons_a_call),
        TEST_SCRIPTED(what_is_abandoned_before_its_answer_is_answered_with_an_error),
        cmocka_unit_test_setup_teardown(the_test_clock_moves_the_limits_time_alone, set_up_test_clock, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
