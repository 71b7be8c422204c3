/*
 * redis/self_test.h: does this server let us do what checks will need? Asked once, over the node's connection.
 *
 * Each command of the script runs on scratch keys under the prefix, so that a missing right is known before a check
 * needs it. The keys have an expiry and are deleted at the end. Besides: the server's version, its clock, and whether
 * it evicts keys, as far as the user may ask; and how long it takes to answer one command after another.
 */
#ifndef RL_REDIS_SELF_TEST_H
#define RL_REDIS_SELF_TEST_H

#include "redis/link.h"

enum { SELF_TEST_ROUNDS = 5 };
enum {
    SELF_TEST_CALLS_MAX = 40,
    SELF_TEST_MISSING_MAX = 512,
    SELF_TEST_WORD_MAX = 40,
    SELF_TEST_KEYS_MAX = 80,
    SELF_TEST_USER_MAX = 256
};

struct redis_facts {
    char user[SELF_TEST_USER_MAX];       /* who was asked as: "default" without a username */
    char missing[SELF_TEST_MISSING_MAX]; /* "+zadd +zcount": commands that the user may not use; "" = none */
    char keys[SELF_TEST_KEYS_MAX];       /* "~rl:*": keys that the user may not use, or not write; "" = none */
    char version[SELF_TEST_WORD_MAX];    /* "7.0.15"; "" = unknown: the user may not ask (+info) */
    char eviction[SELF_TEST_WORD_MAX];   /* "noeviction"; "" = unknown, as above */
    int64_t ahead_us;                    /* the server's clock less this host's */
    int64_t round_trip_us;               /* the shortest of SELF_TEST_ROUNDS, one after another */
};

struct redis_self_test {
    struct self_test_step {
        struct redis_call call;
        struct redis_self_test *test;
        size_t command;
    } steps[SELF_TEST_CALLS_MAX];
    struct redis_call round; /* sent when the steps are answered */
    unsigned n_rounds;
    size_t n_sent, n_answered; /* calls; equal: none runs */
    bool is_lost;              /* the connection ended before all answers came */
    struct redis_link *link;   /* not owned, as the next two */
    const char *key_prefix;
    struct clock *clock;
    struct redis_facts facts;
    /* NULL: the connection was lost. Called once for each test that has begun, never from within
     * redis_self_test_start(). */
    void (*on_done)(void *arg, const struct redis_facts *facts);
    void *arg;
};

/* 0, or -1: one runs already, the link is not ready, or memory is short; on_done does not run then. shard: of
 * the scratch keys. with_compat: the commands of compat presets, too. */
int redis_self_test_start(struct redis_self_test *test, struct redis_link *link, struct clock *clock,
                          const struct redis_options *options, uint32_t shard, bool with_compat,
                          void (*on_done)(void *arg, const struct redis_facts *facts), void *arg);

#endif
