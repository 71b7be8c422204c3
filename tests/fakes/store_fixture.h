/*
 * store_fixture.h: a fixture with a Redis store in its own event loop, and the ops of a test.
 *
 * It checks that `done` runs exactly once for every accepted op, and never within submit. The default stall_ms
 * tolerates a busy machine; a test of stalls sets a short one.
 */
#ifndef RL_TESTS_STORE_FIXTURE_H
#define RL_TESTS_STORE_FIXTURE_H

#include "fakes/patient_loop.h"
#include "policy/policy.h"
#include "redis/store.h"

enum { MAX_ASKS = 20000 };

/* One op and its result. */
struct ask {
    struct op op;
    struct op_member member;
    char key[24];
    enum submit submitted;
    enum op_outcome outcome;
    int n_done;
};

struct store_fixture {
    struct patient_loop patient;
    struct clock clock;
    struct redis_options options;
    struct redis_store *redis;
    struct store store;
    struct policy_set *policies;
    const struct limit *limit; /* of the next ops */
    uint64_t client;           /* and their client */
    int64_t deadline_us;       /* and their deadline */
    struct ask asks[MAX_ASKS];
    size_t n_asked, n_pending, n_answered;
    size_t n_decided, n_allowed, n_down, n_failed, n_refused;
    size_t n_doubtful; /* of the failed ones */
    bool is_submitting, is_closing, is_closed;
    int n_first_attempts;
    void (*on_done)(struct ask *ask); /* NULL = nothing more */
};

extern struct store_fixture *store_fixture; /* one at a time */

int store_fixture_setup(void **state);
int store_fixture_teardown(void **state);

void store_fixture_open(const char *address); /* with fixture->options */
void store_fixture_open_ready(const char *address);
void store_fixture_close(void);

/* A limit of its own policy: windows of 1000 hours. */
const struct limit *store_fixture_limit(const char *policy, enum algo algo, int64_t limit);

struct ask *store_fixture_ask(const char *key, enum op_kind kind, int64_t cost);
struct ask *store_fixture_check(const char *key); /* cost 1 */
void store_fixture_check_many(const char *key_prefix, int n_keys, int n);

void store_fixture_until(bool (*is_true)(void *arg));
void store_fixture_settle(void); /* until every pending ask is answered */
void store_fixture_status_has(const char *part);

/* For store_fixture_until(). */
bool store_is_ready(void *arg);
bool had_first_attempt(void *arg);
bool store_is_not_ready(void *arg);
bool store_is_closed(void *arg);
bool store_has_no_trial(void *arg); /* of other settings of the server */
bool store_has_answered(void *arg);

#endif
