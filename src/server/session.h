/*
 * session.h: one connection: its buffers, its state, what it has under way.
 *
 * What it does with its input is its state, which one function of session_input.c changes:
 *
 *                         all was taken
 *                    ┌─────────────────────┐
 *   session_accept ─▶ READING ──────▶ RUNNABLE, LISTED or PAUSED     messages wait in `in`, each for
 *                       │                  │                         something else
 *                       └───────┬──────────┘
 *                               │ half-close, drain, lost framing
 *                               ▼
 *                            ENDING ───────▶ LINGERING                     after the final error
 *                               │ all is answered    │ the peer closed too, or LINGER_MS are over
 *                               ▼                    ▼
 *   session_close, from any ─▶ CLOSED ─▶ libuv's close callback frees it
 *
 * session_input.c takes what comes in, session_output.c has the answers; sessions_tick.c calls both.
 */
#ifndef RL_SERVER_SESSION_H
#define RL_SERVER_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/buffer.h"
#include "base/list.h"
#include "engine/slots.h"
#include "proto/error.h"
#include "proto/scan.h"
#include "server/peer.h"
#include "server/reply.h"
#include "server/request_fault.h"
#include "server/sessions.h"

#define SESSION_STOPPING "the daemon is stopping"

enum { SESSION_LINGER_MS = 1000 };

enum session_state {
    SESSION_READING,   /* every whole message was taken; the rest is taken as it comes */
    SESSION_RUNNABLE,  /* it took as much as it may in one tick; a later one goes on */
    SESSION_LISTED,    /* its long work is under way: goes on when that is over */
    SESSION_PAUSED,    /* too much is in flight or unread: no message is taken until half of it is gone */
    SESSION_ENDING,    /* no more input is taken; it closes once every request is answered */
    SESSION_LINGERING, /* framing was lost and the final error is written; input is read and dropped */
    SESSION_CLOSED,    /* uv_close was called */
};

/* A request that takes several ticks (check_list.h, policy_list.h): a connection has one at a time, and takes no message
 * until it is over. */
struct long_work {
    struct session *session;             /* not owned */
    bool goes_on;                        /* in a drain: it is charged, or a part of its answer is written */
    bool writes;                         /* an answer in pieces: nothing else may come between them */
    void (*run)(struct long_work *work); /* its session's turn: it may be over with that */
    void (*refuse)(struct long_work *work, const struct request_fault *fault); /* answers with this, and drops */
    void (*drop)(struct long_work *work);                                      /* frees it */
};

struct session {
    struct sessions *sessions;   /* not owned */
    struct session_group *group; /* not owned */
    enum role role;              /* what it may ask for */
    bool is_refused;             /* beyond its user's quota, or allowed nothing */
    bool is_draining;            /* the drain ends it */
    bool is_resumed;             /* it waited for its read: this one counts already */
    enum session_state state;
    struct list link;       /* in sessions->all */
    struct list group_link; /* in group->open */
    struct list dirty_link;
    struct list run_link;
    struct list stall_link;
    struct list unread_link;
    struct list review_link; /* in sessions->users.unreviewed, then in sessions->users.revoked */
    int64_t revoked_us;      /* CLOCK_MONOTONIC: it was found to have lost rights to slots */
    struct list requests;    /* struct request: asked and not answered */
    struct long_work *work;  /* owned; under way; else NULL */
    struct slot_owner slots;
    struct buffer in;      /* part of a message, or messages that wait; empty: it has no memory */
    struct buffer out;     /* answers of this tick; empty: it has no memory */
    struct packer answer;  /* into `out`, from session_begin_answer() to session_end_answer() */
    struct buffer writing; /* bytes that libuv writes, because the socket was full; empty: it has no memory */
    uint64_t client;       /* the number of this connection, from 1 */
    uint32_t place;        /* in sessions->places */
    int64_t opened_us;     /* CLOCK_MONOTONIC */
    uint64_t n_requests;   /* messages that ask, ever */
    uint64_t bytes_in, bytes_out;
    int64_t read_us;           /* when bytes were read last */
    int64_t asked_us;          /* when the last message came; CLOCK_MONOTONIC */
    int64_t taken_us;          /* when the peer last took some of `writing` */
    size_t n_gathered;         /* bytes of `work` that are not in `out` yet */
    size_t n_untaken;          /* bytes of `writing` at that time */
    size_t n_counted;          /* of its unread bytes, in sessions->output.n_unread */
    uint32_t n_inflight;       /* checks */
    uint32_t n_late;           /* requests whose answers are made in a thread (late_answer.h) */
    uint32_t turn_round;       /* the last one in which it took messages (sessions.h), */
    uint32_t turn_units;       /* and the work that this was */
    struct decision_form form; /* hello: of its decisions */
    enum error_code last_code;
    const char *fault;       /* static; why it cannot go on, and closes in the next tick; else NULL */
    const char *why_ended;   /* static; of one that is ENDING, for the log */
    const char *final_error; /* static; lost framing: sent once `requests` is empty; else NULL */
    struct peer peer;
    char program[PEER_PROGRAM_MAX]; /* empty: not asked for yet (peer_program()) */
    const struct access_rule *rule; /* one reference to its rules; by which it may ask (access.h) */
    struct access_user *user;       /* not owned; whose quotas it counts in */
    /* The policy it asked for last, and its name; valid as long as engine_policies_generation() is the same. */
    const struct policy *last_policy;
    struct slice last_name;
    uint64_t last_generation;
    struct scanner scanner;
    uv_pipe_t pipe;
};

/* Has it had its share of this round? Then it waits for the next one, if others wait (sessions.h). */
static inline bool session_had_turn(const struct session *session)
{
    return session->turn_round == session->sessions->schedule.round && session->turn_units >= FRESH_MAX;
}

static inline uv_stream_t *session_stream(struct session *session)
{
    return (uv_stream_t *)&session->pipe;
}

#endif
