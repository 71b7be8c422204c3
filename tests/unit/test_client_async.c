/* test_client_async.c: every call of the asynchronous client ends exactly once, whatever the other end does. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "client/exchange.h"
#include "fakes/scripted_daemon.h"

enum { N_CALLS = 64 };

/* What became of each call. */
struct end {
    int n; /* times it ended */
    enum ratelimit_status status;
    int64_t remaining;
    char code[48];
    char message[128];
    char result[16];
    struct fixture *fixture;
};

struct fixture {
    struct scripted_daemon daemon;
    struct ratelimit_async *client;
    struct end ends[N_CALLS];
    int n_ends;
    int free_at; /* free the client in the callback of this end */
    int again;   /* make so many calls from callbacks */
    int told_fd; /* what the watch callback heard */
    short told_events;
    int n_told;
};

static void on_end(const struct ratelimit_answer *answer, void *arg);

static void on_watch(void *arg, int fd, short events)
{
    struct fixture *fixture = arg;
    if (events != 0 && fixture->told_events != 0) assert_int_equal(fd, fixture->told_fd);
    if (events == 0) assert_int_equal(fd, fixture->told_fd);
    fixture->told_fd = fd;
    fixture->told_events = events;
    fixture->n_told++;
}

static void begin(struct fixture *fixture)
{
    *fixture = (struct fixture){.told_fd = -1};
    daemon_start(&fixture->daemon, 16);
    assert_int_equal(ratelimit_async_new(fixture->daemon.path, &fixture->client), RATELIMIT_OK);
    fixture->client->clock.frozen = true;
    ratelimit_async_watch(fixture->client, on_watch, fixture);
    for (int i = 0; i < N_CALLS; i++) fixture->ends[i].fixture = fixture;
}

static void finish(struct fixture *fixture)
{
    ratelimit_async_free(fixture->client);
    assert_int_equal(fixture->told_events, 0);
    daemon_stop(&fixture->daemon);
}

static enum ratelimit_status check(struct fixture *fixture, int i)
{
    return ratelimit_async_check(fixture->client, "login", "alice", 5, 1, 1000, on_end, &fixture->ends[i]);
}

static void on_end(const struct ratelimit_answer *answer, void *arg)
{
    struct end *end = arg;
    struct fixture *fixture = end->fixture;
    end->n++;
    end->status = answer->status;
    if (answer->decision != NULL) end->remaining = answer->decision->remaining;
    snprintf(end->code, sizeof end->code, "%s", answer->code);
    snprintf(end->message, sizeof end->message, "%s", answer->message);
    if (answer->result != NULL && answer->result_len <= sizeof end->result)
        memcpy(end->result, answer->result, answer->result_len);
    if (++fixture->n_ends == fixture->free_at) ratelimit_async_free(fixture->client);
    if (fixture->again > 0) {
        fixture->again--;
        assert_int_equal(check(fixture, N_CALLS - 1 - fixture->again), RATELIMIT_OK);
    }
}

static void tick(struct fixture *fixture)
{
    ratelimit_async_process(fixture->client, POLLIN | POLLOUT);
}

static void pass(struct fixture *fixture, int64_t ms)
{
    fixture->client->clock.mono_us += ms * 1000;
}

/* Make the calls 0 to n - 1 and let the daemon read them; their msgids. */
static void make(struct fixture *fixture, int n, uint64_t *ret_msgids)
{
    for (int i = 0; i < n; i++) assert_int_equal(check(fixture, i), RATELIMIT_OK);
    tick(fixture);
    if (fixture->daemon.fd < 0) daemon_greet(&fixture->daemon);
    for (int i = 0; i < n; i++) ret_msgids[i] = daemon_expect(&fixture->daemon, "check");
    tick(fixture); /* reads hello's answer */
}

static void assert_ended(const struct fixture *fixture, int i, enum ratelimit_status status)
{
    assert_int_equal(fixture->ends[i].n, 1);
    assert_int_equal(fixture->ends[i].status, status);
}

static void nothing_happens_before_the_first_process(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture);
    assert_int_equal(ratelimit_async_fd(fixture.client), -1);
    assert_int_equal(ratelimit_async_events(fixture.client), 0);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture.client), -1);
    assert_int_equal(check(&fixture, 0), RATELIMIT_OK);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture.client), 0);
    assert_int_equal(fixture.ends[0].n, 0);
    finish(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_CANCELLED);
}

static void hello_goes_first_and_answers_may_overtake_each_other(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[3];
    begin(&fixture);
    make(&fixture, 3, msgids);
    assert_int_equal(ratelimit_async_pending(fixture.client), 3);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture.client), 1000);
    for (int i = 2; i >= 0; i--) daemon_answer_allowed(&fixture.daemon, msgids[i], i);
    tick(&fixture);
    for (int i = 0; i < 3; i++) {
        assert_ended(&fixture, i, RATELIMIT_OK);
        assert_int_equal(fixture.ends[i].remaining, i);
    }
    assert_int_equal(ratelimit_async_pending(fixture.client), 0);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture.client), -1);
    finish(&fixture);
}

static void answers_may_come_byte_by_byte(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    begin(&fixture);
    make(&fixture, 1, &msgid);
    rpc_pack_result(&packer, msgid);
    daemon_pack_decision(&packer, true, 4);
    for (size_t i = 0; i < buffer_len(&out); i++) {
        assert_int_equal(fixture.ends[0].n, 0);
        daemon_send(&fixture.daemon, buffer_data(&out) + i, 1);
        tick(&fixture);
    }
    assert_ended(&fixture, 0, RATELIMIT_OK);
    buffer_fini(&out);
    finish(&fixture);
}

static void a_refusal_carries_the_daemons_code_and_words(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[2];
    begin(&fixture);
    make(&fixture, 2, msgids);
    daemon_answer_error(&fixture.daemon, msgids[0], ERROR_UNKNOWN_POLICY, "there is no policy login");
    daemon_answer_text(&fixture.daemon, msgids[1], "pong");
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_REFUSED);
    assert_string_equal(fixture.ends[0].code, "UNKNOWN_POLICY");
    assert_string_equal(fixture.ends[0].message, "UNKNOWN_POLICY: there is no policy login");
    assert_ended(&fixture, 1, RATELIMIT_PROTOCOL);
    finish(&fixture);
}

static void a_call_ends_at_its_deadline_and_its_late_answer_meets_nobody(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[2];
    begin(&fixture);
    make(&fixture, 1, msgids);
    pass(&fixture, 999);
    tick(&fixture);
    assert_int_equal(fixture.ends[0].n, 0);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture.client), 1);
    pass(&fixture, 1);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_TIMEOUT);
    assert_int_equal(check(&fixture, 1), RATELIMIT_OK);
    tick(&fixture);
    msgids[1] = daemon_expect(&fixture.daemon, "check");
    daemon_answer_allowed(&fixture.daemon, msgids[0], 100);
    daemon_answer_allowed(&fixture.daemon, msgids[1], 3);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_TIMEOUT);
    assert_ended(&fixture, 1, RATELIMIT_OK);
    assert_int_equal(fixture.ends[1].remaining, 3);
    finish(&fixture);
}

/* The caller's loop was away; the answer was there in time. */
static void an_answer_that_has_come_beats_a_deadline_that_has_passed(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    make(&fixture, 1, &msgid);
    daemon_answer_allowed(&fixture.daemon, msgid, 3);
    pass(&fixture, 5000);
    ratelimit_async_process(fixture.client, 0);
    assert_ended(&fixture, 0, RATELIMIT_OK);
    finish(&fixture);
}

static void an_answer_sent_twice_counts_once(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[2];
    begin(&fixture);
    make(&fixture, 2, msgids);
    daemon_answer_allowed(&fixture.daemon, msgids[0], 3);
    daemon_answer_allowed(&fixture.daemon, msgids[0], 4);
    daemon_answer_allowed(&fixture.daemon, msgids[1], 5);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_OK);
    assert_int_equal(fixture.ends[0].remaining, 3);
    assert_int_equal(fixture.ends[1].remaining, 5);
    finish(&fixture);
}

static void an_answer_to_no_call_at_all_ends_the_connection(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    make(&fixture, 1, &msgid);
    daemon_answer_allowed(&fixture.daemon, msgid + 1000, 3);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_PROTOCOL);
    assert_int_equal(ratelimit_async_fd(fixture.client), -1);
    finish(&fixture);
}

static void the_daemons_last_words_are_the_reason_of_the_loss(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    struct buffer out = {0};
    struct packer packer = packer_of(&out);
    begin(&fixture);
    make(&fixture, 1, &msgid);
    rpc_pack_broken(&packer, ERROR_TOO_LARGE, "the message is too long");
    daemon_send(&fixture.daemon, buffer_data(&out), buffer_len(&out));
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_LOST);
    assert_string_equal(fixture.ends[0].message, "TOO_LARGE: the message is too long");
    assert_string_equal(fixture.ends[0].code, "TOO_LARGE");
    buffer_fini(&out);
    finish(&fixture);
}

#define BYTES(text)                                                                                                    \
    {                                                                                                                  \
        (const uint8_t *)(text), sizeof(text) - 1                                                                      \
    }

static void nonsense_ends_the_connection_and_takes_no_memory(void **state)
{
    (void)state;
    static const struct slice nonsense[] = {
        BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"),
        BYTES("\xc1"),
        BYTES("\xdd\xff\xff\xff\xff"),
        BYTES("\xdd\x10\x00\x00\x00"),
        BYTES("\x94\x01\x01\xc0\xdb\xff\xff\xff\xff"),
        BYTES("\x94\x01\x01\xc0\xdd\x00\xff\xff\xff"),
        BYTES("\x94\x00\x01\xa4ping\x90"),
        BYTES("\x93\x02\xa1x\x90"),
        BYTES("\x94\x01\xc0\xc0\xc0"),
        BYTES("\x94\x01\x01\x05\xc0"),
        BYTES("\x94\x01\xd0\xff\xc0\xc0"),
        BYTES("\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"
              "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"),
    };
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        struct fixture fixture;
        uint64_t msgid;
        begin(&fixture);
        make(&fixture, 1, &msgid);
        uint64_t n_allocs = mem_n_allocs();
        daemon_send(&fixture.daemon, nonsense[i].data, nonsense[i].len);
        tick(&fixture);
        assert_int_equal(fixture.ends[0].n, 1);
        assert_true(fixture.ends[0].status == RATELIMIT_PROTOCOL || fixture.ends[0].status == RATELIMIT_LOST);
        assert_int_equal(ratelimit_async_fd(fixture.client), -1);
        assert_true(mem_n_allocs() - n_allocs <= 1);
        finish(&fixture);
    }
}

static void an_answer_without_end_is_cut_at_the_ceiling(void **state)
{
    (void)state;
    enum { PART = 16 * 1024 };
    struct fixture fixture;
    uint64_t msgid;
    static const uint8_t nils[PART] = {[0] = 0}; /* the integers 0 */
    begin(&fixture);
    make(&fixture, 1, &msgid);
    daemon_send(&fixture.daemon, "\x94\x01\x01\xc0\xdd\x00\x30\x00\x00", 9);
    size_t sent = 0;
    while (ratelimit_async_fd(fixture.client) >= 0 && sent < 2 * RATELIMIT_ANSWER_MAX) {
        daemon_send(&fixture.daemon, nils, sizeof nils);
        sent += sizeof nils;
        tick(&fixture);
    }
    assert_true(sent >= 0x300000 - PART); /* this long one was within the ceiling */
    assert_int_equal(fixture.ends[0].n, 1);
    finish(&fixture);
}

static void without_a_daemon_calls_fail_at_once(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture);
    daemon_stop(&fixture.daemon);
    assert_int_equal(check(&fixture, 0), RATELIMIT_OK);
    assert_int_equal(check(&fixture, 1), RATELIMIT_OK);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_UNREACHABLE);
    assert_ended(&fixture, 1, RATELIMIT_UNREACHABLE);
    assert_non_null(strstr(fixture.ends[0].message, fixture.daemon.path));
    assert_int_equal(fixture.client->connection.connect_errno, ENOENT);
    ratelimit_async_free(fixture.client);
}

static void a_full_backlog_is_tried_again_until_the_deadline(void **state)
{
    (void)state;
    struct fixture fixture;
    struct ratelimit_async *others[8];
    begin(&fixture);
    daemon_stop(&fixture.daemon);
    ratelimit_async_free(fixture.client);
    daemon_start(&fixture.daemon, 0);
    assert_int_equal(ratelimit_async_new(fixture.daemon.path, &fixture.client), RATELIMIT_OK);
    fixture.client->clock.frozen = true;
    int n_others = 0; /* as many as it takes until one is not let in */
    for (bool in = true; in; n_others++) {
        assert_in_range(n_others, 0, 7);
        assert_int_equal(ratelimit_async_new(fixture.daemon.path, &others[n_others]), RATELIMIT_OK);
        ratelimit_async_call(others[n_others], "ping", NULL, 0, 1000, on_end, &fixture.ends[N_CALLS - 1]);
        ratelimit_async_process(others[n_others], 0);
        in = ratelimit_async_fd(others[n_others]) >= 0;
    }

    assert_int_equal(check(&fixture, 0), RATELIMIT_OK);
    tick(&fixture);
    assert_int_equal(ratelimit_async_fd(fixture.client), -1);
    int wait_ms = ratelimit_async_next_timeout_ms(fixture.client);
    assert_in_range(wait_ms, 1, 20);
    pass(&fixture, 1000);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_UNREACHABLE);
    assert_non_null(strstr(fixture.ends[0].message, "backlog"));
    assert_int_equal(fixture.client->connection.connect_errno, 0);

    assert_int_equal(check(&fixture, 1), RATELIMIT_OK);
    daemon_accept(&fixture.daemon); /* makes space */
    pass(&fixture, 20);
    tick(&fixture);
    assert_true(ratelimit_async_fd(fixture.client) >= 0);
    for (int i = 0; i < n_others; i++) ratelimit_async_free(others[i]);
    ratelimit_async_free(fixture.client);
    daemon_stop(&fixture.daemon);
    assert_ended(&fixture, 1, RATELIMIT_CANCELLED);
}

static void what_was_sent_is_lost_and_what_waits_goes_out_on_the_next_connection(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[2];
    begin(&fixture);
    make(&fixture, 2, msgids);
    assert_int_equal(check(&fixture, 2), RATELIMIT_OK);
    daemon_hang_up(&fixture.daemon);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_LOST);
    assert_ended(&fixture, 1, RATELIMIT_LOST);
    assert_int_equal(fixture.ends[2].n, 0);
    tick(&fixture);
    daemon_greet(&fixture.daemon);
    daemon_answer_allowed(&fixture.daemon, daemon_expect(&fixture.daemon, "check"), 3);
    tick(&fixture);
    assert_ended(&fixture, 2, RATELIMIT_OK);
    finish(&fixture);
}

static void a_connection_that_ended_while_idle_costs_no_call(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    make(&fixture, 1, &msgid);
    daemon_answer_allowed(&fixture.daemon, msgid, 3);
    tick(&fixture);
    daemon_hang_up(&fixture.daemon);
    assert_int_equal(check(&fixture, 1), RATELIMIT_OK);
    ratelimit_async_process(fixture.client, 0); /* it does not know yet */
    assert_int_equal(fixture.ends[1].n, 0);
    assert_int_equal(ratelimit_async_next_timeout_ms(fixture.client), 0);
    ratelimit_async_process(fixture.client, 0);
    daemon_greet(&fixture.daemon);
    daemon_answer_allowed(&fixture.daemon, daemon_expect(&fixture.daemon, "check"), 2);
    tick(&fixture);
    assert_ended(&fixture, 1, RATELIMIT_OK);
    finish(&fixture);
}

static void answers_left_behind_by_a_daemon_that_closed_are_read(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    make(&fixture, 1, &msgid);
    daemon_answer_allowed(&fixture.daemon, msgid, 3);
    daemon_hang_up(&fixture.daemon);
    assert_int_equal(check(&fixture, 1), RATELIMIT_OK);
    ratelimit_async_process(fixture.client, 0); /* the write fails first */
    assert_ended(&fixture, 0, RATELIMIT_OK);
    assert_int_equal(fixture.ends[1].n, 0);
    finish(&fixture);
    assert_ended(&fixture, 1, RATELIMIT_CANCELLED);
}

/* Calls so long that the socket is full after a few. */
static int fill(struct fixture *fixture)
{
    static char policy[60000];
    int n = 0;
    memset(policy, 'p', sizeof policy - 1);
    while (!(ratelimit_async_events(fixture->client) & POLLOUT)) {
        assert_in_range(n, 0, N_CALLS - 2);
        assert_int_equal(ratelimit_async_check(fixture->client, policy, "alice", 5, 1, 1000, on_end, &fixture->ends[n]),
                         RATELIMIT_OK);
        n++;
        tick(fixture);
        if (fixture->daemon.fd < 0) daemon_greet(&fixture->daemon);
    }
    return n;
}

static void what_a_full_socket_did_not_take_is_never_sent_after_its_deadline(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture);
    int n = fill(&fixture);
    assert_true(fixture.told_events & POLLOUT);
    assert_int_equal(check(&fixture, n), RATELIMIT_OK); /* behind the full socket */
    tick(&fixture);
    pass(&fixture, 1000);
    tick(&fixture);
    int n_sent = 0;
    for (int i = 0; i <= n; i++) {
        assert_int_equal(fixture.ends[i].n, 1);
        assert_true(fixture.ends[i].status == RATELIMIT_TIMEOUT || fixture.ends[i].status == RATELIMIT_UNREACHABLE);
        n_sent += fixture.ends[i].status == RATELIMIT_TIMEOUT;
    }
    assert_int_equal(fixture.ends[n].status, RATELIMIT_UNREACHABLE);

    /* The daemon reads again: all that was called sent, whole, and nothing else; then the line is as good as new. */
    struct rpc_request request;
    int n_read = 0;
    for (int i = 0; i < 4; i++) {
        while (daemon_read(&fixture.daemon, &request)) n_read++;
        tick(&fixture);
    }
    assert_int_equal(n_read, n_sent);
    assert_false(ratelimit_async_events(fixture.client) & POLLOUT);
    pass(&fixture, 1000); /* for which calls are not tried after so many timeouts */
    assert_int_equal(check(&fixture, n + 1), RATELIMIT_OK);
    tick(&fixture);
    daemon_answer_allowed(&fixture.daemon, daemon_expect(&fixture.daemon, "check"), 1);
    tick(&fixture);
    assert_ended(&fixture, n + 1, RATELIMIT_OK);
    finish(&fixture);
}

static void a_half_written_call_begins_anew_on_the_next_connection(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture);
    int n = fill(&fixture);
    daemon_hang_up(&fixture.daemon);
    tick(&fixture);
    int n_lost = 0;
    for (int i = 0; i < n; i++) n_lost += fixture.ends[i].n;
    assert_true(n_lost < n);
    tick(&fixture);
    daemon_greet(&fixture.daemon);
    for (int i = n_lost; i < n; i++) {
        daemon_answer_allowed(&fixture.daemon, daemon_expect(&fixture.daemon, "check"), i);
        tick(&fixture);
        assert_ended(&fixture, i, RATELIMIT_OK);
    }
    finish(&fixture);
}

static void calls_made_in_a_callback_leave_with_the_same_process(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    make(&fixture, 1, &msgid);
    daemon_answer_allowed(&fixture.daemon, msgid, 3);
    fixture.again = 1;
    tick(&fixture);
    daemon_answer_allowed(&fixture.daemon, daemon_expect(&fixture.daemon, "check"), 2);
    tick(&fixture);
    assert_ended(&fixture, N_CALLS - 1, RATELIMIT_OK);
    finish(&fixture);
}

static void a_callback_that_calls_again_does_not_keep_a_failing_tick_for_ever(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture);
    daemon_stop(&fixture.daemon);
    fixture.again = 10;
    assert_int_equal(check(&fixture, 0), RATELIMIT_OK);
    tick(&fixture);
    assert_int_equal(fixture.n_ends, 1);
    while (fixture.n_ends < 11) tick(&fixture);
    ratelimit_async_free(fixture.client);
    assert_int_equal(fixture.n_ends, 11);
}

static void a_client_freed_in_a_callback_ends_the_other_calls(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[3];
    begin(&fixture);
    make(&fixture, 3, msgids);
    daemon_answer_allowed(&fixture.daemon, msgids[1], 3);
    fixture.free_at = 1;
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_CANCELLED);
    assert_ended(&fixture, 1, RATELIMIT_OK);
    assert_ended(&fixture, 2, RATELIMIT_CANCELLED);
    assert_int_equal(fixture.told_events, 0);
    daemon_stop(&fixture.daemon);
}

static void a_client_freed_while_a_loss_is_reported_ends_each_call_once(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[3];
    begin(&fixture);
    make(&fixture, 3, msgids);
    daemon_hang_up(&fixture.daemon);
    fixture.free_at = 2;
    tick(&fixture);
    for (int i = 0; i < 3; i++) assert_ended(&fixture, i, RATELIMIT_LOST);
    daemon_stop(&fixture.daemon);
}

static void the_watcher_hears_of_every_descriptor_and_of_its_end(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    make(&fixture, 1, &msgid);
    assert_int_equal(fixture.told_fd, ratelimit_async_fd(fixture.client));
    assert_int_equal(fixture.told_events, POLLIN);
    assert_int_equal(fixture.n_told, 1);
    daemon_hang_up(&fixture.daemon);
    tick(&fixture);
    assert_int_equal(fixture.told_events, 0);
    make(&fixture, 1, &msgid);
    assert_int_equal(fixture.told_events, POLLIN);
    assert_int_equal(fixture.n_told, 3);
    finish(&fixture);
}

static void arguments_are_checked_before_anything_is_sent(void **state)
{
    (void)state;
    struct fixture fixture;
    char long_path[200];
    struct ratelimit_async *none = NULL;
    begin(&fixture);
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(ratelimit_async_new(long_path, &none), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_new("", &none), RATELIMIT_BAD_ARGUMENT);
    assert_null(none);
    struct ratelimit_async *client = fixture.client;
    assert_int_equal(ratelimit_async_check(client, NULL, "k", 1, 1, 0, on_end, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_check(client, "p", NULL, 1, 1, 0, on_end, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_check(client, "p", "k", 1, 1, 0, NULL, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_call(client, "x", "\x91", 1, 0, on_end, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_call(client, "x", "\x90\x90", 2, 0, on_end, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_call(client, "x", "\xa1x", 2, 0, on_end, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_call(client, "x", NULL, 2, 0, on_end, NULL), RATELIMIT_BAD_ARGUMENT);
    assert_int_equal(ratelimit_async_pending(client), 0);
    finish(&fixture);
}

static void a_request_the_daemon_would_hang_up_on_is_refused_here(void **state)
{
    (void)state;
    static char policy[70000];
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    memset(policy, 'p', sizeof policy - 1);
    make(&fixture, 1, &msgid);
    daemon_answer_allowed(&fixture.daemon, msgid, 3);
    tick(&fixture);
    assert_int_equal(ratelimit_async_check(fixture.client, policy, "alice", 5, 1, 0, on_end, &fixture.ends[1]),
                     RATELIMIT_BAD_ARGUMENT);
    finish(&fixture);
    assert_int_equal(fixture.ends[1].n, 0);
}

static void any_method_can_be_called_and_its_result_comes_packed(void **state)
{
    (void)state;
    struct fixture fixture;
    struct rpc_request request;
    int64_t number;
    begin(&fixture);
    assert_int_equal(ratelimit_async_call(fixture.client, "frob", "\x92\x07\x08", 3, 0, on_end, &fixture.ends[0]), 0);
    assert_int_equal(ratelimit_async_call(fixture.client, "nop", NULL, 0, 0, on_end, &fixture.ends[1]), 0);
    tick(&fixture);
    daemon_greet(&fixture.daemon);
    assert_true(daemon_read(&fixture.daemon, &request));
    assert_true(slice_is(request.method, "frob"));
    assert_int_equal(request.n_params, 2);
    assert_int_equal(pull_int(&request.params, &number), 0);
    assert_int_equal(number, 7);
    daemon_answer_text(&fixture.daemon, request.msgid, "hm");
    assert_true(daemon_read(&fixture.daemon, &request));
    assert_int_equal(request.n_params, 0);
    tick(&fixture);
    assert_ended(&fixture, 0, RATELIMIT_OK);
    assert_memory_equal(fixture.ends[0].result, "\xa2hm", 3);
    finish(&fixture);
}

/* Make call `i`, which nobody answers in time. */
static uint64_t time_out(struct fixture *fixture, int i)
{
    uint64_t msgid;
    assert_int_equal(check(fixture, i), RATELIMIT_OK);
    tick(fixture);
    if (fixture->daemon.fd < 0) daemon_greet(&fixture->daemon);
    msgid = daemon_expect(&fixture->daemon, "check");
    pass(fixture, 1000);
    tick(fixture);
    assert_ended(fixture, i, RATELIMIT_TIMEOUT);
    return msgid;
}

static void three_timeouts_in_a_row_turn_calls_away_for_a_second_and_then_all_but_one(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture);
    for (int i = 0; i < 3; i++) time_out(&fixture, i);
    assert_int_equal(check(&fixture, 3), RATELIMIT_BREAKER);
    pass(&fixture, 999);
    assert_int_equal(check(&fixture, 3), RATELIMIT_BREAKER);
    pass(&fixture, 1);
    time_out(&fixture, 3); /* the probe */
    assert_int_equal(check(&fixture, 4), RATELIMIT_BREAKER);
    pass(&fixture, 1000);
    assert_int_equal(check(&fixture, 4), RATELIMIT_OK);
    assert_int_equal(check(&fixture, 5), RATELIMIT_BREAKER);
    assert_int_equal(ratelimit_async_release(fixture.client, "s1", 1000, on_end, &fixture.ends[6]), RATELIMIT_OK);
    tick(&fixture);
    daemon_answer_allowed(&fixture.daemon, daemon_expect(&fixture.daemon, "check"), 3);
    daemon_expect(&fixture.daemon, "release");
    tick(&fixture);
    assert_ended(&fixture, 4, RATELIMIT_OK);
    assert_int_equal(fixture.ends[5].n, 0);
    assert_int_equal(check(&fixture, 5), RATELIMIT_OK);
    finish(&fixture);
}

static void an_answer_or_a_probe_that_finds_nobody_ends_the_row_of_timeouts(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgid;
    begin(&fixture);
    for (int i = 0; i < 2; i++) time_out(&fixture, i);
    make(&fixture, 1, &msgid);
    daemon_answer_error(&fixture.daemon, msgid, ERROR_UNKNOWN_POLICY, "there is none");
    tick(&fixture);
    for (int i = 2; i < 5; i++) time_out(&fixture, i);
    assert_int_equal(check(&fixture, 5), RATELIMIT_BREAKER);
    pass(&fixture, 1000);
    daemon_stop(&fixture.daemon);
    tick(&fixture);
    assert_int_equal(check(&fixture, 5), RATELIMIT_OK);
    tick(&fixture);
    assert_ended(&fixture, 5, RATELIMIT_UNREACHABLE);
    assert_int_equal(check(&fixture, 6), RATELIMIT_OK);
    ratelimit_async_free(fixture.client);
}

static void there_is_an_end_to_the_calls_under_way(void **state)
{
    (void)state;
    struct fixture fixture;
    begin(&fixture);
    for (uint32_t i = 0; i < RATELIMIT_CALLS_MAX; i++) assert_int_equal(check(&fixture, 0), RATELIMIT_OK);
    assert_int_equal(check(&fixture, 1), RATELIMIT_BUSY);
    finish(&fixture);
    assert_int_equal(fixture.ends[0].n, RATELIMIT_CALLS_MAX);
    assert_int_equal(fixture.ends[1].n, 0);
}

static void a_warm_client_allocates_nothing(void **state)
{
    (void)state;
    struct fixture fixture;
    uint64_t msgids[N_CALLS];
    uint64_t n_allocs = 0;
    begin(&fixture);
    for (int round = 0; round < 20; round++) {
        make(&fixture, N_CALLS, msgids);
        for (int i = 0; i < N_CALLS; i++) daemon_answer_allowed(&fixture.daemon, msgids[i], i);
        uint64_t before = mem_n_allocs();
        tick(&fixture);
        for (int i = 0; i < N_CALLS; i++) assert_int_equal(check(&fixture, i), RATELIMIT_OK);
        tick(&fixture);
        n_allocs = mem_n_allocs() - before;
        for (int i = 0; i < N_CALLS; i++) {
            daemon_answer_allowed(&fixture.daemon, daemon_expect(&fixture.daemon, "check"), i);
        }
        tick(&fixture);
    }
    assert_int_equal(n_allocs, 0);
    finish(&fixture);
}

/* Four calls, answered, with the n-th allocation of one half failing: what was accepted ends, once. 0 = none fails. */
static void run_short_of_memory(uint64_t fail_out, uint64_t fail_in, uint64_t *ret_n_out, uint64_t *ret_n_in)
{
    struct fixture fixture = {.told_fd = -1};
    struct rpc_request request;
    int n_accepted = 0;
    daemon_start(&fixture.daemon, 16);
    for (int i = 0; i < N_CALLS; i++) fixture.ends[i].fixture = &fixture;

    uint64_t before = mem_n_allocs();
    mem_fail_nth(fail_out);
    if (ratelimit_async_new(fixture.daemon.path, &fixture.client) == RATELIMIT_OK) {
        for (int i = 0; i < 4; i++) n_accepted += check(&fixture, n_accepted) == RATELIMIT_OK;
        tick(&fixture);
    }
    mem_fail_nth(0);
    *ret_n_out = mem_n_allocs() - before;

    if (n_accepted > 0) daemon_accept(&fixture.daemon);
    while (n_accepted > 0 && daemon_read(&fixture.daemon, &request)) {
        if (slice_is(request.method, "hello")) {
            daemon_answer_hello(&fixture.daemon, request.msgid);
        } else {
            daemon_answer_allowed(&fixture.daemon, request.msgid, 1);
        }
    }
    before = mem_n_allocs();
    mem_fail_nth(fail_in);
    if (fixture.client != NULL) tick(&fixture);
    mem_fail_nth(0);
    *ret_n_in = mem_n_allocs() - before;

    ratelimit_async_free(fixture.client);
    for (int i = 0; i < n_accepted; i++) assert_int_equal(fixture.ends[i].n, 1);
    assert_int_equal(fixture.n_ends, n_accepted);
    daemon_stop(&fixture.daemon);
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    uint64_t n_out, n_in, any;
    run_short_of_memory(0, 0, &n_out, &n_in);
    assert_true(n_out > 4 && n_in > 0);
    for (uint64_t n = 1; n <= n_out; n++) run_short_of_memory(n, 0, &any, &any);
    for (uint64_t n = 1; n <= n_in; n++) run_short_of_memory(0, n, &any, &any);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_happens_before_the_first_process),
        cmocka_unit_test(hello_goes_first_and_answers_may_overtake_each_other),
        cmocka_unit_test(answers_may_come_byte_by_byte),
        cmocka_unit_test(a_refusal_carries_the_daemons_code_and_words),
        cmocka_unit_test(a_call_ends_at_its_deadline_and_its_late_answer_meets_nobody),
        cmocka_unit_test(an_answer_that_has_come_beats_a_deadline_that_has_passed),
        cmocka_unit_test(an_answer_sent_twice_counts_once),
        cmocka_unit_test(an_answer_to_no_call_at_all_ends_the_connection),
        cmocka_unit_test(the_daemons_last_words_are_the_reason_of_the_loss),
        cmocka_unit_test(nonsense_ends_the_connection_and_takes_no_memory),
        cmocka_unit_test(an_answer_without_end_is_cut_at_the_ceiling),
        cmocka_unit_test(without_a_daemon_calls_fail_at_once),
        cmocka_unit_test(a_full_backlog_is_tried_again_until_the_deadline),
        cmocka_unit_test(what_was_sent_is_lost_and_what_waits_goes_out_on_the_next_connection),
        cmocka_unit_test(a_connection_that_ended_while_idle_costs_no_call),
        cmocka_unit_test(answers_left_behind_by_a_daemon_that_closed_are_read),
        cmocka_unit_test(what_a_full_socket_did_not_take_is_never_sent_after_its_deadline),
        cmocka_unit_test(a_half_written_call_begins_anew_on_the_next_connection),
        cmocka_unit_test(calls_made_in_a_callback_leave_with_the_same_process),
        cmocka_unit_test(a_callback_that_calls_again_does_not_keep_a_failing_tick_for_ever),
        cmocka_unit_test(a_client_freed_in_a_callback_ends_the_other_calls),
        cmocka_unit_test(a_client_freed_while_a_loss_is_reported_ends_each_call_once),
        cmocka_unit_test(the_watcher_hears_of_every_descriptor_and_of_its_end),
        cmocka_unit_test(arguments_are_checked_before_anything_is_sent),
        cmocka_unit_test(a_request_the_daemon_would_hang_up_on_is_refused_here),
        cmocka_unit_test(any_method_can_be_called_and_its_result_comes_packed),
        cmocka_unit_test(three_timeouts_in_a_row_turn_calls_away_for_a_second_and_then_all_but_one),
        cmocka_unit_test(an_answer_or_a_probe_that_finds_nobody_ends_the_row_of_timeouts),
        cmocka_unit_test(there_is_an_end_to_the_calls_under_way),
        cmocka_unit_test(a_warm_client_allocates_nothing),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
