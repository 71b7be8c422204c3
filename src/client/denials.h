/*
 * denials.h: remembered denials: a client repeats a denial by itself for a short time, so that a flood of checks that
 * are denied does not reach the daemon. Off unless the program asks for it; docs/clients.md has the rules.
 *
 * A check is known by its policies, keys and costs (and max_wait_ms), packed in their order. What is remembered has a
 * fixed maximum, and is reused: a client that has remembered so many allocates nothing any more.
 */
#ifndef RL_CLIENT_DENIALS_H
#define RL_CLIENT_DENIALS_H

#include "client/request.h"

enum {
    DENIALS_MAX = 1024,
    DENIALS_CHECK_MAX = 16 * 1024, /* bytes of a packed check; a longer one is not remembered */
};

struct denials {
    int64_t lasts_us;
    struct denial *all; /* owned; NULL: nothing is remembered */
    struct list by_age; /* those in use, the oldest first */
    struct list unused;
    struct map by_check; /* those in use */
    uint64_t hash_key[2];
    uint64_t n_forgets; /* what was asked before one of them is not remembered after it */
    uint64_t n_repeated;
};

void denials_init(struct denials *denials);
void denials_fini(struct denials *denials);

/* Begin anew, with this duration; 0: remember nothing. 0, or -1 without memory and nothing has changed. */
int denials_set(struct denials *denials, int64_t lasts_us);

/* True: a denial of the same check is remembered. It is in the request's `members`, shortened by the time that has
 * passed, and behind them the decision on all. False: ask; the request knows what it asks, for denials_put(). */
bool denials_find(struct denials *denials, const struct question *question, struct request *request, int64_t now_us);

/* The answer to a request that denials_find() has seen. */
void denials_put(struct denials *denials, const struct request *request, const struct ratelimit_decision *decision,
                 int64_t now_us);

/* A reset or refund with these parameters is made: forget what it may change. */
void denials_forget(struct denials *denials, struct pull params);

#endif
