/*
 * sessions.h: what all connections of a server share: who has something to write, who has input
 * left over, who has been silent too long.
 *
 *   schedule  fresh, rested, waiting, runnable: to be looked at in the next tick: input that the tick or a pause left
 *             over, or what it waited for came; which of them is listed below
 *   reads     waiting: ready to be read, but the tick had done READS_MAX reads: the next one begins with these
 *   output    dirty: answers wait in the output buffer: written once, at the end of the tick
 *             stalled: the socket was full: the rest is with libuv, and the peer is watched; the first took nothing for
 *             the longest time
 *   lists     reading, handing: a check_many that is done in pieces (check_list.h)
 *   late      asked, due: answers that a thread makes (late_answer.h)
 *   users     whose they are, and by which rules; unreviewed, revoked: after a reload (access.h)
 *   all       in the order of their last request: the first is the longest silent
 *
 * Sessions and lists put themselves into these; the end of the tick starts the handles that come back to them.
 *
 * The work of a tick is counted in units, each about what one check costs in the memory store: a message, a member of a
 * list, a part of a long message or answer, a method's own weight. A check that goes to Redis costs twice as much. A
 * session may do its share of them, and then it is the next one's turn; all sessions together may do TICK_UNITS. The
 * rest goes on in the next tick. So neither a flood on one connection nor many connections keep the loop from the
 * others. A tick has some more work than that: the last message, the pieces of long lists (check_list.h), and a few new
 * connections.
 *
 * Answers that the engine gives in the store's place (failure answers) are work, too: of the message, if it is answered
 * at once. The others, whose deadline has passed, take their part of the next tick's units. So with the store away, no
 * more checks come in than can be answered in time. A part of the tick is always the messages'.
 *
 * What is left over goes on in rounds. `waiting` are those whose turn in this round is to come, `runnable` those who
 * had it and have more. A session that did less than FRESH_MAX in this round, and had all that it asked for, is in
 * neither of them when a message comes: it is `fresh`, and served before them. So a single check does not wait for a
 * round of all those that have more than a tick can do. A session is not fresh in the round in which it came, so the
 * rounds go on whatever clients do; nor is one that is only to be closed.
 *
 * A round of many takes long, and one message may be more than FRESH_MAX. So a session that had its share, but took no
 * message for RESTED_US before one came, is `rested`: RESTED_UNITS of a tick are first of all theirs, and what the
 * others leave. Else a client that sends a long message now and then would have one in a round taken, and if it sends
 * them faster than that, they would wait for each other.
 */
#ifndef RL_SERVER_SESSIONS_H
#define RL_SERVER_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "base/list.h"
#include "base/map.h"
#include "base/role.h"
#include "engine/engine.h"
#include "policy/access.h"
#include "server/buffer_pool.h"
#include "server/denial_log.h"
#include "server/error_log.h"
#include "server/places.h"
#include "server/server_options.h"
#include "server/watch.h"

struct long_work;

enum {
    READ_BUFFER_SIZE = 64 * 1024,

    TICK_UNITS = 1024, /* of all sessions: about half a millisecond of the memory store's checks */
    SHARE_MAX = 256,   /* of one session in a tick; */
    SHARE_MIN = 16,    /* if many have work left over, at least so many */
    FRESH_MAX = 32,    /* in a round */

    RESTED_UNITS = TICK_UNITS / 4,
    RESTED_US = 2500,

    READS_MAX = 256, /* a tick, of all sessions: 2000 that are readable at once would stop the loop for 40 ms; */
    RESUMED_MAX = READS_MAX / 4, /* these of them are of those that waited, so that others do not keep them out */
};

/* What is counted of the connections of one endpoint; of some, several count as one. */
struct connection_counts {
    uint64_t *open, *accepted, *accept_pauses;
    uint64_t *closed_broken, *closed_slow, *closed_unread, *closed_idle;
};

/* The connections that came by one endpoint. */
struct session_group {
    enum role role; /* of who connects there */
    bool
        outlives_drain; /* connections are served until the daemon ends; only what is decided in the store is refused */
    size_t n;           /* whose memory is not yet freed */
    struct list open;   /* struct session: those of them that are not closed */
    const struct connection_counts *counts; /* not owned */
};

/* A user with connections to the data socket (access.h). */
struct access_user {
    struct map_node node;
    uid_t uid;
    uint32_t n_connections;
    uint32_t n_refused;              /* connections that it may not have, and that wait for their refusal */
    uint32_t n_slots;                /* held, or asked for */
    uint64_t n_inflight;             /* checks */
    char text[ACCESS_USER_TEXT_MAX]; /* uid */
};

/* Who may have the tick's next units, and how many are left. */
struct schedule {
    struct list fresh, rested, waiting, runnable;
    uint32_t spent;   /* units of work in this tick */
    uint32_t answers; /* the same of failure answers, to be taken from the next tick's */
    uint32_t end;     /* `spent` at which the next session has its turn */
    uint32_t share;   /* of one session, in units */
    uint32_t round;   /* its number */
};

/* What is read from sockets in a tick (session_input.c). */
struct reads {
    struct list waiting; /* ready to be read, but the tick had done READS_MAX */
    uint32_t n;          /* in this tick */
    uint32_t n_resumed;  /* sessions out of `waiting` that are read in this tick: they have a place among READS_MAX */
};

/* What sockets have not taken (session_output.c). */
struct output {
    struct list dirty, stalled;
    size_t n_unread;  /* bytes that all peers have not taken from us, as of each one's last count */
    size_t n_leaving; /* sessions with such bytes */
};

/* Long lists (check_list.c). */
struct check_lists {
    struct list reading, handing; /* of struct check_list */
    size_t n_handed;              /* members that the engine has and has not answered */
    size_t n_promised; /* members of `reading` that caps.max_inflight has a place for, and that are no checks yet */
};

/* Answers that are made in a thread (late_answer.c): struct late_answer, of all sessions. */
struct late_answers {
    struct list asked; /* without a result yet */
    struct list due;   /* with one: one of them is answered in a tick */
};

/* Whose connections these are, and what the users may do (access.c). */
struct users {
    struct access *rules; /* one reference; those in force */
    struct map by_uid;    /* owned; struct access_user */
    struct access_user control;
    struct list unreviewed, revoked; /* sessions: a reload has brought other rules (access.h) */
};

struct sessions {
    uv_loop_t *loop;
    struct clock *clock;
    struct engine *engine;
    struct server_options options;
    store_trouble_fn *store_trouble; /* NULL: nothing is known of it */
    void *store_trouble_arg;         /* of it; not owned */
    metrics_part_fn *metrics_part;   /* NULL: the page is never made */
    void *metrics_arg;               /* of it; not owned */
    int64_t started_us;              /* CLOCK_MONOTONIC */
    bool draining;                   /* nothing more is decided in the store */

    struct list all;
    struct places places;                       /* struct session: one for each that is not closed */
    uint64_t n_made;                            /* sessions, ever */
    size_t n;                                   /* sessions whose memory is not yet freed, of all groups */
    size_t n_draining;                          /* those of them that end with the drain */
    void (*on_gone)(struct sessions *sessions); /* a session's memory was freed */

    struct schedule schedule;
    struct reads reads;
    struct output output;
    struct check_lists lists;
    struct late_answers late;
    struct users users;
    struct long_work *gathering; /* not owned; reads the list of inline policies; NULL: none does */
    struct list idle_requests;   /* the pool of struct request */
    struct buffer_pool buffer_pool;
    uint8_t *read_buffer; /* owned; READ_BUFFER_SIZE bytes that every read uses, each for its callback only */

    uv_idle_t runner;   /* active while there is something to do for it in those lists */
    uv_timer_t sweeper; /* active while a session is stalled or may fall idle */

    struct watch watch;
    struct denial_log denials;
    struct denial_log near; /* of checks that were allowed near their limit */
    struct error_log errors;
};

static inline void sessions_spend(struct sessions *sessions, uint32_t units)
{
    sessions->schedule.spent += units;
}

/* The engine's work since the last call was no session's or list's. */
static inline void sessions_note_answers(struct sessions *sessions)
{
    sessions->schedule.answers += engine_take_work(sessions->engine);
}

/* It was the work of the one that has its turn. */
static inline void sessions_spend_answers(struct sessions *sessions)
{
    sessions_spend(sessions, engine_take_work(sessions->engine));
}

/* store_trouble_fn's text in `space`; "" if the store decides, or nothing is known of it. */
static inline const char *sessions_store_trouble(const struct sessions *sessions, char space[STORE_TROUBLE_MAX])
{
    bool has_trouble = sessions->store_trouble != NULL && sessions->store_trouble(sessions->store_trouble_arg, space);
    return has_trouble ? space : "";
}

/* Does a session wait for its turn? */
static inline bool sessions_have_waiting(const struct sessions *sessions)
{
    return !list_empty(&sessions->schedule.waiting) || !list_empty(&sessions->schedule.runnable) ||
           !list_empty(&sessions->schedule.fresh) || !list_empty(&sessions->schedule.rested);
}

/* Is all work that a tick may have done? */
static inline bool sessions_is_tick_spent(const struct sessions *sessions)
{
    return sessions->schedule.spent >= TICK_UNITS;
}

/* One session's turn begins, with so many units. */
static inline void sessions_begin_turn(struct sessions *sessions, uint32_t share)
{
    uint32_t end = sessions->schedule.spent + share;
    sessions->schedule.end = end < TICK_UNITS ? end : TICK_UNITS;
}

#endif
