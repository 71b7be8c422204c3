/*
 * link_fixture.h: a fixture with a link to Redis in its own event loop, and the calls that a test sends through it.
 *
 * The script is trivial, because the link does not depend on it. Every test checks at its end that each call got
 * exactly one reply, or NULL. The default stall_ms tolerates a busy machine; a test of stalls sets a short one.
 */
#ifndef RL_TESTS_LINK_FIXTURE_H
#define RL_TESTS_LINK_FIXTURE_H

#include "fakes/fake_redis.h"
#include "fakes/patient_loop.h"
#include "redis/link.h"

#define LINK_FIXTURE_SHA1                                                                                              \
    "19b8fd11daaa8325dd0ec6ce3be1b64a5a7e6496" /* of a script that returns 7 and its last argument */

enum { MAX_PROBES = 2000, CANARY_NONCE = 42, FIRST_NONCE = 1000 };

/* One command sent through the link. */
struct probe {
    struct redis_call call;
    unsigned nonce;
    int n_replies;
    bool is_lost, is_good;
};

struct link_fixture {
    struct patient_loop patient;
    struct clock clock;
    struct redis_options options;
    struct redis_script script;
    struct redis_link *link; /* NULL after link_fixture_close() */
    unsigned n_ready, n_down, n_attempts, n_made, n_answered;
    bool is_closed, closes_in_reply;
    struct fake_redis fake;
    struct probe probes[MAX_PROBES];
};

extern struct link_fixture *fixture; /* one at a time */

int link_fixture_setup(void **state);
int link_fixture_teardown(void **state);

void link_fixture_open(const char *address);
void link_fixture_close(void);

struct probe *link_fixture_probe(void);                                 /* an EVALSHA of the script */
struct probe *link_fixture_command(const struct slice *args, size_t n); /* any command */
void link_fixture_until(bool (*is_true)(void *arg));
void link_fixture_status_has(const char *part);

/* For link_fixture_until(). */
bool is_ready(void *arg);
bool is_down(void *arg); /* a ready connection has ended, ever */
bool is_closed(void *arg);
bool all_answered(void *arg);
bool had_attempt(void *arg);
bool had_three_attempts(void *arg);

#endif
