/*
 * redis/round.h: a question to several servers in turn, until one of them answers; over a connection of its own.
 *
 *   waiting ──▶ trying ──▶ answered ──▶ waiting      the one that answered goes first next time
 *                 │  ▲
 *                 ▼  │
 *               passing                              to the next; behind the last one, the round has failed
 *
 * Each server has 250 ms for the lookup of its name, and as long for its answer. A lookup that takes longer goes on:
 * what it finds is kept for the next time that the server is tried. Who asks what, and when the next round begins, is
 * the owner's: redis/sentinel.h, cluster_watch.h.
 */
#ifndef RL_REDIS_ROUND_H
#define RL_REDIS_ROUND_H

#include <uv.h>

#include "redis/conn.h"
#include "redis/dial.h"
#include "redis/options.h"

enum {
    REDIS_ROUND_SOON_MS = 1000, /* after a failed round */
    REDIS_ROUND_TRY_MS = 250,
    REDIS_ROUND_ADDRESS_SIZE = REDIS_HOST_MAX + sizeof "[]:65535",
    REDIS_ROUND_FAULT_SIZE = 384,
};

enum redis_round_state { ROUND_WAITING, ROUND_TRYING, ROUND_PASSING, ROUND_ANSWERED, ROUND_CLOSED };

struct redis_round_login {
    const char *username, *password; /* NULL as in redis_options */
    const char *settings;            /* that have the two, for people */
};

struct redis_round;

/* What differs between those that ask. */
struct redis_round_kind {
    const char *server; /* what a server is called */
    /* The n-th server, round and round, as the settings would have it. How many there are. */
    uint32_t (*server_of)(struct redis_round *round, uint32_t nth, char ret_address[REDIS_ROUND_ADDRESS_SIZE]);
    struct redis_round_login (*login_of)(const struct redis_round *round);
    /* Send the question on round->conn. -1 without memory. */
    int (*ask)(struct redis_round *round);
    void (*on_begin)(struct redis_round *round);
    /* From a timer: the state is WAITING already, and the next round begins as `next_ms` says. */
    void (*on_answered)(struct redis_round *round);
    void (*on_failed)(struct redis_round *round);
    void (*on_gone)(struct redis_round *round); /* the connection has ended after the answer; may be NULL */
};

struct redis_round {
    uv_loop_t *loop;                     /* not owned */
    struct clock *clock;                 /* not owned */
    const struct redis_options *options; /* the store's */
    const struct redis_round_kind *kind;

    enum redis_round_state state;
    uint32_t at;      /* the server that is tried, or that answered last */
    uint32_t n_tried; /* of this round */
    uint32_t n_all;
    int64_t began_us;                    /* CLOCK_MONOTONIC */
    uint32_t next_ms;                    /* from an answer to the next round */
    char name[REDIS_ROUND_ADDRESS_SIZE]; /* of the server */
    uint32_t silent;                     /* one bit each: it was passed over the last time */
    uint32_t distrusted; /* the same: its answers were of no use, so that one more does not clear its fault */
    char fault[REDIS_ROUND_FAULT_SIZE];                       /* why one was passed over last */
    char faults[REDIS_ADDRESSES_MAX][REDIS_ROUND_FAULT_SIZE]; /* the same of each of the first; "" = it was not */

    struct redis_conn conn;
    struct redis_dial dial; /* its nth: rounds that have failed */
    struct redis_call hello;
    uv_timer_t timer;

    void (*on_closed)(struct redis_round *round); /* NULL = not closing */
    bool is_timer_closed;
};

/* tls: the options' for these servers. */
void redis_round_init(struct redis_round *round, uv_loop_t *loop, struct clock *clock,
                      const struct redis_options *options, struct redis_tls *const *tls,
                      const struct redis_round_kind *kind);
void redis_round_begin_in(struct redis_round *round, uint64_t ms); /* only while it waits */
/* Other servers, or another password: everything begins anew, at once. */
void redis_round_restart(struct redis_round *round);

/* ---- while one is tried ---- */

/* Is it a reply to the question? After a fault, the other replies mean nothing. */
bool redis_round_is_trying(const struct redis_round *round, const struct redis_reader *reply);
void redis_round_answered(struct redis_round *round);
__attribute__((format(printf, 2, 3))) void redis_round_pass(struct redis_round *round, const char *format, ...);
/* Of the one that answered last, and only while it waits: its answer was of no use, for this reason; it was of use. */
void redis_round_distrust(struct redis_round *round, const char *why);
void redis_round_trust(struct redis_round *round);

/* on_closed runs once, later; nothing else does any more. */
void redis_round_close(struct redis_round *round, void (*on_closed)(struct redis_round *round));

#endif
