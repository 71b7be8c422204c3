/*
 * redis/daemons.h: how many daemons share this Redis, for local_share: live.
 *
 *   look ──▶ TIME, ZRANGE of both ends ──▶ ZREMRANGEBYSCORE, ZADD, PEXPIREAT, ZCOUNT ──▶ n
 *
 * Each daemon is a member of one sorted set, PREFIX:{b000}:daemons, whose score is the time of its last refresh by
 * Redis' clock, in ms. A member that is older than 30 s does not count, and the set expires with its last one. A daemon
 * refreshes its own every 10 s; every 3 s in the first 30 s of a connection, because others may come (or come back) at
 * the same time. The number rises at once, and falls once in 30 s to the highest that was counted in them: after a
 * return, a lost set or a step of Redis' clock, those that are not back yet are not gone.
 *
 * A set with members that no daemon wrote is left alone, and so is a value of another type: then nothing is counted,
 * and `fault` says why. What Redis refuses for another reason, or does not answer, changes nothing.
 *
 * Its owner asks it to look once a second. It sends a few commands on the node's connection and waits for nothing.
 */
#ifndef RL_REDIS_DAEMONS_H
#define RL_REDIS_DAEMONS_H

#include "redis/link.h"

enum { DAEMONS_STEPS_MAX = 4, DAEMONS_NAME_MAX = 160, DAEMONS_FAULT_MAX = 512 };

struct redis_daemons;

/* One command on its way. */
struct daemons_step {
    struct redis_call call;
    struct redis_daemons *daemons;
    void (*take)(struct redis_daemons *daemons, const struct redis_reader *reply); /* NULL: any will do */
    const char *command;                                                           /* static */
};

enum daemons_phase { DAEMONS_IDLE, DAEMONS_LOOKING, DAEMONS_REFRESHING };

struct redis_daemons {
    struct redis_link *link; /* the node's; not owned, as the next two */
    const struct clock *clock;
    const struct redis_options *options;
    char name[DAEMONS_NAME_MAX]; /* this daemon's member */

    bool is_wanted;
    bool is_member;            /* it may be in the set */
    int64_t since_us, next_us; /* CLOCK_MONOTONIC: of this connection, or of being wanted; of the next refresh */
    int64_t fall_us;           /* the same: `n` falls to `highest`, which begins anew */
    uint32_t highest;          /* counted since then */

    enum daemons_phase phase;
    size_t n_waiting;              /* steps on their way */
    bool has_failed;               /* one of them has */
    char found[DAEMONS_FAULT_MAX]; /* what becomes `fault`, once they are answered */
    int64_t now_us;                /* Redis' time */
    struct daemons_step steps[DAEMONS_STEPS_MAX], leave;
    bool is_leaving; /* `leave` is on its way */

    uint32_t n;                    /* as counted last; 0 = not yet */
    char fault[DAEMONS_FAULT_MAX]; /* why they cannot be counted, and the way out, any bytes; "" = they can */
};

/* `link`, `clock` and `options` outlive it. */
void redis_daemons_init(struct redis_daemons *daemons, struct redis_link *link, const struct clock *clock,
                        const struct redis_options *options);
void redis_daemons_on_ready(struct redis_daemons *daemons); /* the link is */
/* Refreshes the member when it is due, or takes it out if the number is not needed any more. */
void redis_daemons_look(struct redis_daemons *daemons, bool is_wanted);
/* Takes this daemon's member out; without waiting for the reply. */
void redis_daemons_leave(struct redis_daemons *daemons);

#endif
