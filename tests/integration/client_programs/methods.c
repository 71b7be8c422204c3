/*
 * methods.c: calls one method of the protocol from C, blocking and asynchronous, and checks the answers.
 *
 *     methods SOCKET POLICY METHOD
 *
 * It prints each wrong answer with its line, and then exits with 1. POLICY must fit METHOD: a limit of 10 in a long
 * window, or 2 slots. Nobody else may use its keys.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ratelimit.h>

enum { TIMEOUT_MS = 10000 };

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (condition) break;                                                                                          \
        fprintf(stderr, "%d: not %s (%s)\n", __LINE__, #condition, ratelimit_error(client));                           \
        exit(1);                                                                                                       \
    } while (0)

#define EXPECT_OK(call) EXPECT((call) == RATELIMIT_OK)

static struct ratelimit *client;
static struct ratelimit_async *async;
static struct ratelimit_decision decision;

/* The result of the last asynchronous call. */
static struct ratelimit_decision answered, answered_members[2];
static char answered_id[4096];
static bool answered_done;

static void on_answer(const struct ratelimit_answer *answer, void *arg)
{
    EXPECT(answer->status == RATELIMIT_OK);
    if (answer->decision != NULL) answered = *answer->decision;
    if (answer->n_members == 2) memcpy(answered_members, answer->members, sizeof answered_members);
    snprintf(answered_id, sizeof answered_id, "%s", answer->id != NULL ? answer->id : "");
    answered_done = answer->done;
    *(bool *)arg = true;
}

static bool ended;

/* Waits until the call has ended, if it was accepted. */
static void wait_for(enum ratelimit_status accepted)
{
    EXPECT_OK(accepted);
    for (ended = false; !ended;) {
        struct pollfd waits = {ratelimit_async_fd(async), ratelimit_async_events(async), 0};
        int n = poll(&waits, 1, ratelimit_async_next_timeout_ms(async));
        ratelimit_async_process(async, n > 0 ? waits.revents : 0);
    }
}

#define END TIMEOUT_MS, on_answer, &ended

static void try_check(const char *policy)
{
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    options.cost = 3;
    options.deadline_ms = 5000;
    options.max_wait_ms = 0;
    EXPECT_OK(ratelimit_check_with(client, policy, "c", 1, &options, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed && decision.remaining == 7 && decision.granted == 3);
    wait_for(ratelimit_async_check_with(async, policy, "c", 1, NULL, END));
    EXPECT(answered.allowed && answered.remaining == 6 && answered.granted == 1);
}

static void try_at_most(const char *policy)
{
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    options.at_most = 8;
    EXPECT_OK(ratelimit_check_with(client, policy, "m", 1, &options, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed && decision.granted == 8 && decision.remaining == 2);
    wait_for(ratelimit_async_check_with(async, policy, "m", 1, &options, END));
    EXPECT(answered.allowed && answered.granted == 2 && answered.remaining == 0);
    EXPECT_OK(ratelimit_check_with(client, policy, "m", 1, &options, TIMEOUT_MS, &decision));
    EXPECT(!decision.allowed && decision.granted == 0);
}

static void try_request_id(const char *policy)
{
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    options.request_id = "one\0two";
    options.request_id_len = 7;
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(ratelimit_check_with(client, policy, "i", 1, &options, TIMEOUT_MS, &decision));
        EXPECT(decision.allowed && decision.granted == 1);
    }
    wait_for(ratelimit_async_peek(async, policy, "i", 1, 0, END));
    EXPECT(answered.remaining == 9);
}

static void try_check_all(const char *policy)
{
    struct ratelimit_decision members[2];
    const struct ratelimit_item items[] = {{policy, "a1", 2, 4}, {policy, "a2", 2, 10}};
    EXPECT_OK(ratelimit_check_all(client, items, 2, NULL, TIMEOUT_MS, &decision, members));
    EXPECT(decision.allowed && decision.granted == 14 && members[0].remaining == 6 && members[1].remaining == 0);
    wait_for(ratelimit_async_check_all(async, items, 2, NULL, END));
    EXPECT(!answered.allowed && strcmp(answered.bound_by, policy) == 0);
    EXPECT(answered_members[0].allowed && !answered_members[1].allowed && answered_members[0].granted == 0);
    wait_for(ratelimit_async_check_many(async, items, 2, END));
    EXPECT(answered_members[0].allowed && answered_members[0].granted == 4 && !answered_members[1].allowed);
}

static void try_reset(const char *policy)
{
    bool removed = false;
    EXPECT_OK(ratelimit_check(client, policy, "r", 1, 3, TIMEOUT_MS, &decision));
    EXPECT_OK(ratelimit_reset(client, policy, "r", 1, TIMEOUT_MS, &removed));
    EXPECT(removed);
    wait_for(ratelimit_async_reset(async, policy, "r", 1, END));
    EXPECT(!answered_done);
}

static void try_inline(const char *policy)
{
    static const char settings[] = "{algorithm: fixed_window, start: first_hit, limit: 9, window: 1d}";
    EXPECT_OK(ratelimit_check(client, settings, "n", 1, 2, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed && decision.limit == 9 && decision.remaining == 7);
    const struct ratelimit_item items[] = {
        {"{\"limit\": 9, \"window\": \"1d\", \"start\": \"first_hit\", \"algorithm\": \"fixed_window\"}", "n", 1, 1},
        {policy, "n", 1, 1}};
    wait_for(ratelimit_async_check_many(async, items, 2, END));
    EXPECT(answered_members[0].remaining == 6 && answered_members[1].remaining == 9);
}

static void try_refund(const char *policy)
{
    EXPECT_OK(ratelimit_check(client, policy, "f", 1, 6, TIMEOUT_MS, &decision));
    EXPECT_OK(ratelimit_refund(client, policy, "f", 1, 2, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed && decision.refunded == 2 && decision.remaining == 6);
    wait_for(ratelimit_async_refund(async, policy, "f", 1, 9, END));
    EXPECT(answered.refunded == 4 && answered.remaining == 10);
}

static void try_reserve(const char *policy)
{
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    options.ttl_ms = 60000;
    EXPECT_OK(ratelimit_reserve(client, policy, "v", 1, 8, &options, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed && decision.remaining == 2 && ratelimit_id(client)[0] != '\0');
    EXPECT_OK(ratelimit_settle(client, ratelimit_id(client), 5, TIMEOUT_MS, &decision));
    EXPECT(decision.refunded == 3 && decision.remaining == 5 && !decision.ended);
    wait_for(ratelimit_async_reserve(async, policy, "v", 1, 2, NULL, END));
    EXPECT(answered.allowed && answered.remaining == 3 && answered_id[0] != '\0');
    char reservation[sizeof answered_id];
    memcpy(reservation, answered_id, sizeof reservation);
    wait_for(ratelimit_async_settle(async, reservation, 3, END));
    EXPECT(answered.charged == 1 && answered.remaining == 2);
    wait_for(ratelimit_async_cancel(async, reservation, END));
    EXPECT(answered.ended && answered.remaining == 2);
    EXPECT_OK(ratelimit_reserve(client, policy, "v", 1, 2, NULL, TIMEOUT_MS, &decision));
    EXPECT_OK(ratelimit_cancel(client, ratelimit_id(client), TIMEOUT_MS, &decision));
    EXPECT(decision.refunded == 2 && decision.remaining == 2);
    EXPECT_OK(ratelimit_reserve(client, policy, "v", 1, 3, NULL, TIMEOUT_MS, &decision));
    EXPECT(!decision.allowed && ratelimit_id(client)[0] == '\0');
}

static void try_acquire(const char *policy)
{
    bool released = false;
    char slot[256];
    EXPECT_OK(ratelimit_acquire(client, policy, "s", 1, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed && decision.limit == 2 && decision.remaining == 1);
    snprintf(slot, sizeof slot, "%s", ratelimit_id(client));
    wait_for(ratelimit_async_acquire(async, policy, "s", 1, END));
    EXPECT(answered.allowed && answered.remaining == 0 && answered_id[0] != '\0');
    char other[sizeof answered_id];
    memcpy(other, answered_id, sizeof other);
    EXPECT_OK(ratelimit_acquire(client, policy, "s", 1, TIMEOUT_MS, &decision));
    EXPECT(!decision.allowed && ratelimit_id(client)[0] == '\0');
    EXPECT_OK(ratelimit_release(client, other, TIMEOUT_MS, &released)); /* another connection's */
    EXPECT(!released);
    EXPECT_OK(ratelimit_release(client, slot, TIMEOUT_MS, &released));
    EXPECT(released);
    wait_for(ratelimit_async_release(async, other, END));
    EXPECT(answered_done);
    EXPECT_OK(ratelimit_acquire(client, policy, "s", 1, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed && decision.remaining == 1);
}

/* Before the first call of both clients. */
static void try_describe(const char *policy)
{
    const char two[] = "{limits: [{name: few, algorithm: fixed_window, start: first_hit, limit: 3, window: 1h}, "
                       "{name: many, algorithm: token_bucket, limit: 100, window: 1d, burst: 200}]}";
    ratelimit_describe(client);
    ratelimit_async_describe(async);
    EXPECT_OK(ratelimit_check(client, policy, "d", 1, 1, TIMEOUT_MS, &decision));
    EXPECT(strcmp(decision.of, policy) == 0 && decision.quota == 10 && decision.window_ms == 86400000);
    EXPECT(decision.of_reset_ms == decision.reset_after_ms && decision.bound_by[0] == '\0');
    EXPECT_OK(ratelimit_reserve(client, policy, "d", 1, 1, NULL, TIMEOUT_MS, &decision));
    EXPECT(strcmp(decision.of, policy) == 0 && ratelimit_id(client)[0] != '\0');

    const struct ratelimit_item items[] = {{policy, "e", 1, 1}, {two, "e", 1, 1}};
    wait_for(ratelimit_async_check_all(async, items, 2, NULL, END));
    EXPECT(strstr(answered.of, "/few") != NULL && answered.quota == 3 && answered.window_ms == 3600000);
    EXPECT(strcmp(answered_members[0].of, policy) == 0 && strcmp(answered_members[1].of, answered.of) == 0);
    EXPECT_OK(ratelimit_check(client, two, "e", 1, 3, TIMEOUT_MS, &decision));
    EXPECT(!decision.allowed && strcmp(decision.of, decision.bound_by) == 0);
    EXPECT_OK(ratelimit_check(client, "{unlimited: true}", "e", 1, 3, TIMEOUT_MS, &decision));
    EXPECT(decision.of[0] == '\0' && decision.quota == 0 && decision.window_ms == 0 && decision.of_reset_ms == 0);
}

static void try_check_wait(const char *policy)
{
    static const char drip[] = "{algorithm: token_bucket, limit: 50, window: 1s, burst: 1}";
    static const char slow[] = "{algorithm: leaky_bucket, limit: 50, window: 1s, burst: 1, max_wait: 1s}";
    struct ratelimit_options options = RATELIMIT_OPTIONS;
    for (int i = 0; i < 4; i++) {
        EXPECT_OK(ratelimit_check_wait(client, drip, "w", 1, NULL, TIMEOUT_MS, -1, &decision));
        EXPECT(decision.allowed);
    }
    EXPECT_OK(ratelimit_check_wait(client, drip, "v", 1, NULL, TIMEOUT_MS, 0, &decision));
    EXPECT(decision.allowed);
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(ratelimit_check_wait(client, slow, "w", 1, &options, TIMEOUT_MS, TIMEOUT_MS, &decision));
        EXPECT(decision.allowed && decision.delay_ms < 25); /* the test has waited for the previous one */
    }

    options.cost = 10;
    EXPECT_OK(ratelimit_check_wait(client, policy, "w", 1, &options, TIMEOUT_MS, -1, &decision));
    EXPECT_OK(ratelimit_check_wait(client, policy, "w", 1, &options, TIMEOUT_MS, TIMEOUT_MS, &decision));
    EXPECT(!decision.allowed && decision.retry_after_ms > TIMEOUT_MS);
    options.cost = 11;
    EXPECT_OK(ratelimit_check_wait(client, policy, "w", 1, &options, TIMEOUT_MS, -1, &decision));
    EXPECT(!decision.allowed && decision.retry_after_ms == -1);
    EXPECT(ratelimit_check_wait(client, "nosuch", "w", 1, NULL, TIMEOUT_MS, -1, &decision) == RATELIMIT_REFUSED);
    EXPECT(ratelimit_check_wait(client, policy, "w", 1, NULL, TIMEOUT_MS, -1, NULL) == RATELIMIT_BAD_ARGUMENT);
}

static void try_acquire_wait(const char *policy)
{
    EXPECT_OK(ratelimit_acquire_wait(client, policy, "w", 1, TIMEOUT_MS, -1, &decision));
    EXPECT(decision.allowed && ratelimit_id(client)[0] != '\0');
    wait_for(ratelimit_async_acquire(async, policy, "w", 1, END));
    EXPECT_OK(ratelimit_acquire_wait(client, policy, "w", 1, TIMEOUT_MS, 60, &decision));
    EXPECT(!decision.allowed && ratelimit_id(client)[0] == '\0');
    wait_for(ratelimit_async_release(async, answered_id, END));
    EXPECT_OK(ratelimit_acquire_wait(client, policy, "w", 1, TIMEOUT_MS, TIMEOUT_MS, &decision));
    EXPECT(decision.allowed);
}

static const struct {
    const char *name;
    void (*run)(const char *policy);
} methods[] = {
    {"check", try_check},         {"at_most", try_at_most},       {"request_id", try_request_id},
    {"check_all", try_check_all}, {"reset", try_reset},           {"inline", try_inline},
    {"refund", try_refund},       {"reserve", try_reserve},       {"acquire", try_acquire},
    {"describe", try_describe},   {"check_wait", try_check_wait}, {"acquire_wait", try_acquire_wait},
};

int main(int argc, char **argv)
{
    if (argc != 4 || ratelimit_open(argv[1], &client) != RATELIMIT_OK) return 2;
    if (ratelimit_async_new(argv[1], &async) != RATELIMIT_OK) return 2;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(methods[i].name, argv[3]) == 0) methods[i].run(argv[2]);
    }
    ratelimit_async_free(async);
    ratelimit_close(client);
    return 0;
}
