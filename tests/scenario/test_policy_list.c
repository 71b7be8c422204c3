/* test_policy_list.c: the answer to `policies`, written over several ticks: it is one answer, it costs others nothing,
 * and whatever happens meanwhile is safe. */
#include "fakes/flood_fixture.h"

#include "fakes/config_text.h"
#include "policy/inline_policies.h"
#include "server/sessions.h"

enum {
    N = 200, /* policies; their list fits into struct heard, and is several turns' work */
    UNITS_EACH = 4,
    BYTES_EACH = 140, /* at least */
    N_INLINE = 100,
    N_FLOODS = 8,
};

static struct inline_policies inlines;

/* A set of n policies p0, p1, ... and of the given text. */
static struct policy_set *set_of(unsigned n, const char *more)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fputs("policies:\n  api: {algorithm: token_bucket, limit: 100, window: 1m}\n", out);
    for (unsigned i = 0; i < n; i++) fprintf(out, "  p%u: {algorithm: token_bucket, limit: 100, window: 1m}\n", i);
    fputs(more, out);
    fclose(out);

    struct config *config = config_of(text);
    struct policy_set *set = policy_set_ref(config->policies);
    config_free(config);
    free(text);
    return set;
}

static void open_with(const struct server_options *base, bool memory)
{
    static const struct policy_defaults defaults = {.deadline_ms = 100};
    struct server_options options = *base;
    inline_policies_init(&inlines);
    assert_int_equal(inline_policies_configure(&inlines, N_INLINE, defaults), 0);
    options.inline_access = INLINE_EVERYBODY;
    options.inline_policies = &inlines;
    flood_fixture_open(&options, memory, N_FLOODS);
    engine_set_policies(fixture.engine.engine, set_of(N, ""));
}

static int set_up(void **state)
{
    (void)state;
    open_with(&server_fixture_options, true);
    return 0;
}

static int set_up_scripted(void **state)
{
    (void)state;
    open_with(&server_fixture_options, false);
    return 0;
}

static int set_up_small_output(void **state)
{
    (void)state;
    struct server_options options = server_fixture_options;
    options.max_output = 16 * 1024;
    open_with(&options, true);
    return 0;
}

static int tear_down(void **state)
{
    flood_fixture_close(state);
    inline_policies_fini(&inlines);
    return 0;
}

static void put_request(struct client *client, uint64_t msgid, const char *method)
{
    struct buffer out;
    buffer_init(&out, 0);
    client_build(&out, msgid, method, 0, "");
    put_built(client, &out);
}

static void assert_list(struct client *client, uint64_t msgid, uint32_t n)
{
    uint32_t length;
    client_answer(client, &heard);
    assert_string_equal(heard.error, "");
    assert_int_equal(heard.msgid, msgid);
    assert_int_equal(pull_array(&heard.result, &length), 0);
    assert_int_equal(length, n);
    for (uint32_t i = 0; i < n; i++) {
        char name[80], expected[16];
        struct pull entry = heard.result;
        assert_true(heard_find(&entry, "name"));
        heard_text(&entry, name, sizeof name);
        snprintf(expected, sizeof expected, "p%u", i - 1);
        if (i <= N) assert_string_equal(name, i == 0 ? "api" : expected);
        assert_int_equal(pull_skip(&heard.result), 0);
    }
    assert_ptr_equal(heard.result.at, heard.result.end);
}

static size_t read_all(const struct client *client)
{
    static uint8_t bytes[1 << 20];
    size_t n = 0;
    for (ssize_t rc; (rc = recv(client->fd, bytes, sizeof bytes, 0)) > 0;) n += (size_t)rc;
    return n;
}

static void a_list_of_many_policies_is_written_over_several_ticks(void **state)
{
    (void)state;
    put_request(&polite, 1, "policies");
    size_t total = 0, sizes[64], n_ticks = 0;
    for (int idle = 0; idle < 3; idle++) {
        server_fixture_tick(&fixture);
        sizes[n_ticks] = read_all(&polite);
        if (sizes[n_ticks] > 0) idle = 0, n_ticks++;
        assert_true(n_ticks < 64);
    }
    assert_in_range(n_ticks, N * UNITS_EACH / SHARE_MAX / 2, 20);
    for (size_t i = 0; i < n_ticks; i++) {
        assert_true(sizes[i] < 2 * 256 * SHARE_MAX / UNITS_EACH);
        total += sizes[i];
    }
    assert_true(total > N * BYTES_EACH);

    put_request(&polite, 2, "policies");
    assert_list(&polite, 2, N + 1);
}

static void lists_of_many_clients_share_the_work_of_a_tick(void **state)
{
    (void)state;
    enum { EACH = 20 };
    size_t n_read = 0, n_ticks = 0;
    for (int i = 0; i < N_FLOODS; i++)
        for (int j = 0; j < EACH; j++) put_request(&floods[i], 1, "policies");
    server_fixture_tick(&fixture);
    while (server_counters.requests < N_FLOODS * EACH + n_ticks) {
        put_check(&polite, 1, "k");
        server_fixture_tick(&fixture);
        assert_true(has_answer(&polite)); /* none of which delays another's check by a tick */
        read_all(&polite);
        size_t n = 0;
        for (int i = 0; i < N_FLOODS; i++) n += read_all(&floods[i]);
        assert_true(n < 2 * 2 * TICK_UNITS / UNITS_EACH * 256);
        n_read += n;
        assert_true(++n_ticks < 10000);
    }
    assert_true(n_read > (N_FLOODS * EACH - N_FLOODS) * N * BYTES_EACH);
}

static void a_reload_amid_a_list_changes_nothing_of_it(void **state)
{
    (void)state;
    put_request(&polite, 1, "policies");
    server_fixture_tick(&fixture);
    engine_set_policies(fixture.engine.engine, set_of(3, ""));
    assert_list(&polite, 1, N + 1);
    put_request(&polite, 2, "policies");
    assert_list(&polite, 2, 4);
}

static void a_client_that_leaves_amid_a_list_leaves_nothing(void **state)
{
    (void)state;
    for (int ticks = 0; ticks < 8; ticks++) {
        client_close(&polite);
        client_open(&polite, &fixture);
        server_fixture_ticks(&fixture, 2);
        put_request(&polite, 1, "policies");
        server_fixture_ticks(&fixture, ticks);
        client_close(&polite);
        engine_set_policies(fixture.engine.engine, set_of(N, ""));
        server_fixture_ticks(&fixture, 10);
        assert_int_equal(server_counters.connections, N_FLOODS);
        assert_int_equal(server_counters.unread_bytes, 0);
    }
}

static void a_client_that_ends_its_half_gets_the_whole_list(void **state)
{
    (void)state;
    put_request(&polite, 1, "policies");
    client_half_close(&polite);
    assert_list(&polite, 1, N + 1);
    assert_true(client_is_closed(&polite));
}

static void a_peer_that_does_not_read_a_list_is_written_no_more_of_it(void **state)
{
    (void)state;
    enum { HALF = 8 * 1024, PIECE = 1024 };
    engine_set_policies(fixture.engine.engine, set_of(20000, ""));
    put_request(&polite, 1, "policies");
    for (int i = 0; i < 1000; i++) {
        server_fixture_tick(&fixture);
        assert_true(server_counters.unread_bytes <= 2 * HALF + PIECE);
    }
    assert_true(server_counters.unread_bytes > HALF);

    size_t n = 0;
    for (int idle = 0; idle < 3; idle++) {
        size_t before = n;
        server_fixture_tick(&fixture);
        n += read_all(&polite);
        if (n > before) idle = 0;
    }
    assert_true(n > 20000 * BYTES_EACH);
    put_check(&polite, 2, "k"); /* and goes on */
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 2);
}

static void what_is_in_flight_is_answered_before_a_list_begins(void **state)
{
    (void)state;
    put_check(&polite, 1, "k");
    put_request(&polite, 2, "policies");
    put_request(&polite, 3, "ping");
    server_fixture_ticks(&fixture, 10);
    assert_int_equal(fixture.engine.scripted.n_held, 1);
    assert_false(has_answer(&polite));

    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 1);
    assert_list(&polite, 2, N + 1);
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 3);
}

static void a_drain_refuses_a_list_that_has_not_begun(void **state)
{
    (void)state;
    put_check(&polite, 1, "k");
    put_request(&polite, 2, "policies");
    server_fixture_ticks(&fixture, 3);
    server_fixture_drain(&fixture, 60000);
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 2);
    assert_int_equal(strncmp(heard.error, "SHUTTING_DOWN: ", 15), 0);
    scripted_end_all(&fixture.engine.scripted, OP_DECIDED);
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 1);
    assert_true(client_is_closed(&polite));
    assert_int_equal(fixture.n_drained, 1);
}

static void a_drain_finishes_a_list_and_refuses_what_comes_behind_it(void **state)
{
    (void)state;
    put_request(&polite, 1, "policies");
    put_request(&polite, 2, "ping");
    server_fixture_tick(&fixture);
    server_fixture_drain(&fixture, 60000);
    assert_int_equal(fixture.n_drained, 0);
    assert_list(&polite, 1, N + 1);
    client_answer(&polite, &heard);
    assert_int_equal(heard.msgid, 2);
    assert_int_equal(strncmp(heard.error, "SHUTTING_DOWN: ", 15), 0);
    assert_true(client_is_closed(&polite));
    assert_int_equal(fixture.n_drained, 1);
}

static void make_inline(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        client_ask(&floods[0], i, "check", 2, "{sssssis", 3, "algorithm", "fixed_window", "window", "1s", "limit",
                   (int)i + 1, "k");
        client_answer(&floods[0], &heard);
        assert_string_equal(heard.error, "");
    }
}

static void inline_policies_come_after_the_others_the_last_used_first(void **state)
{
    (void)state;
    engine_set_policies(fixture.engine.engine, set_of(3, ""));
    make_inline(0, N_INLINE);
    put_request(&polite, 1, "policies");
    client_answer(&polite, &heard);
    uint32_t n;
    assert_int_equal(pull_array(&heard.result, &n), 0);
    assert_int_equal(n, 4 + N_INLINE);
    for (unsigned i = 0; i < 4; i++) pull_skip(&heard.result);
    for (int i = N_INLINE; i > 0; i--) {
        struct pull entry = heard.result;
        uint32_t n_limits;
        int64_t limit;
        assert_true(heard_find(&entry, "limits"));
        assert_int_equal(pull_array(&entry, &n_limits), 0);
        assert_true(heard_find(&entry, "limit"));
        assert_int_equal(pull_int(&entry, &limit), 0);
        assert_int_equal(limit, i);
        pull_skip(&heard.result);
    }
}

/* Each of them after another number of ticks. */
static void inline_policies_given_up_while_they_are_listed_are_left_out(void **state)
{
    (void)state;
    engine_set_policies(fixture.engine.engine, set_of(3, ""));
    for (unsigned ticks = 0; ticks < 4; ticks++) {
        make_inline(1000 * ticks, N_INLINE);
        put_request(&polite, 1, "policies");
        put_request(&floods[1], 1, "policies"); /* waits for the other one */
        server_fixture_ticks(&fixture, (int)ticks);
        if (ticks == 3)
            assert_int_equal(inline_policies_configure(&inlines, N_INLINE, inlines.defaults), 0); /* a reload */
        else
            make_inline(1000 * ticks + 500, N_INLINE / 2);
        for (int i = 0; i < 2; i++) {
            uint32_t n;
            client_answer(i == 0 ? &polite : &floods[1], &heard);
            assert_string_equal(heard.error, "");
            assert_int_equal(pull_array(&heard.result, &n), 0);
            assert_in_range(n, 4, 4 + N_INLINE);
            for (uint32_t j = 0; j < n; j++) assert_int_equal(pull_skip(&heard.result), 0);
            assert_ptr_equal(heard.result.at, heard.result.end);
        }
    }
}

static void a_client_that_leaves_while_inline_policies_are_listed_keeps_no_other_waiting(void **state)
{
    (void)state;
    make_inline(0, N_INLINE);
    for (int ticks = 1; ticks < 4; ticks++) {
        put_request(&floods[1], 1, "policies");
        put_request(&polite, 1, "policies");
        server_fixture_ticks(&fixture, ticks);
        client_close(&floods[1]);
        assert_list(&polite, 1, N + 1 + N_INLINE);
        client_open(&floods[1], &fixture);
        server_fixture_ticks(&fixture, 2);
    }
}

static void the_overrides_of_one_policy_are_written_over_several_ticks(void **state)
{
    (void)state;
    enum { N_OVERRIDES = 600 };
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fputs("  many:\n    algorithm: token_bucket\n    limit: 100\n    window: 1m\n    overrides:\n", out);
    for (unsigned i = 0; i < N_OVERRIDES; i++) fprintf(out, "      - {key: k%u, limit: %u}\n", i, i + 1);
    fclose(out);
    engine_set_policies(fixture.engine.engine, set_of(0, text));
    free(text);

    put_request(&polite, 1, "policies");
    server_fixture_tick(&fixture);
    engine_set_policies(fixture.engine.engine, set_of(1, ""));
    uint32_t n;
    client_answer(&polite, &heard);
    assert_int_equal(pull_array(&heard.result, &n), 0);
    assert_int_equal(n, 2);
    pull_skip(&heard.result);
    struct pull entry = heard.result;
    assert_true(heard_find(&entry, "override_list"));
    assert_int_equal(pull_array(&entry, &n), 0);
    assert_int_equal(n, N_OVERRIDES);
    for (unsigned i = 0; i < N_OVERRIDES; i++) {
        struct pull item = entry;
        char key[16], expected[16];
        assert_true(heard_find(&item, "key"));
        heard_text(&item, key, sizeof key);
        snprintf(expected, sizeof expected, "k%u", i);
        assert_string_equal(key, expected);
        pull_skip(&entry);
    }
    assert_true(heard_find(&heard.result, "shadow_denied")); /* behind them */
}

#define TEST(name)          cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_SCRIPTED(name) cmocka_unit_test_setup_teardown(name, set_up_scripted, tear_down)
#define TEST_SMALL(name)    cmocka_unit_test_setup_teardown(name, set_up_small_output, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_list_of_many_policies_is_written_over_several_ticks),
        TEST(lists_of_many_clients_share_the_work_of_a_tick),
        TEST(a_reload_amid_a_list_changes_nothing_of_it),
        TEST(a_client_that_leaves_amid_a_list_leaves_nothing),
        TEST(a_client_that_ends_its_half_gets_the_whole_list),
        TEST_SMALL(a_peer_that_does_not_read_a_list_is_written_no_more_of_it),
        TEST_SCRIPTED(what_is_in_flight_is_answered_before_a_list_begins),
        TEST_SCRIPTED(a_drain_refuses_a_list_that_has_not_begun),
        TEST(a_drain_finishes_a_list_and_refuses_what_comes_behind_it),
        TEST(inline_policies_come_after_the_others_the_last_used_first),
        TEST(inline_policies_given_up_while_they_are_listed_are_left_out),
        TEST(a_client_that_leaves_while_inline_policies_are_listed_keeps_no_other_waiting),
        TEST(the_overrides_of_one_policy_are_written_over_several_ticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
