/*
 * session.h: one connection: bytes in, whole messages to the methods, answers out.
 *
 * A session lives from session_accept() to libuv's close callback. session_close() may be called
 * at any time, twice too, also from within a method: what is in flight is released, nothing more is written, and the
 * memory stays until the callback. `closed` says so to whoever still holds the pointer.
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
#include "proto/pack.h"
#include "proto/scan.h"
#include "server/peer.h"
#include "server/sessions.h"

#define SESSION_STOPPING "the daemon is stopping"

struct check_list;

struct session {
    struct sessions *home; /* not owned */
    struct list link;      /* in home->all */
    struct list dirty_link;
    struct list run_link;
    struct list long_link;
    struct list stall_link;
    struct list calls;       /* struct request: asked and not answered */
    struct check_list *list; /* owned; under way: no message is taken until it is handed over; else NULL */
    struct slot_owner slots;
    struct buffer in;      /* bytes not understood yet: part of a message, or what a pause left over; else no memory */
    struct buffer out;     /* answers of this turn; else no memory */
    struct buffer writing; /* with libuv since the socket was full; else no memory */
    uint64_t party;        /* the number of this connection, from 1 */
    int64_t asked_us;      /* when the last message came; CLOCK_MONOTONIC */
    int64_t taken_us;      /* when the peer last took some of `writing` */
    size_t n_untaken;      /* bytes of `writing` at that time */
    size_t n_counted;      /* of its unread bytes, in home->n_unread */
    uint32_t n_inflight;   /* checks */
    uint32_t turn;         /* the turn that `n_taken` counts for */
    uint32_t n_taken;      /* messages in that turn, those of several checks counted by them */
    uint32_t long_len;     /* not 0: that long is the message at the front of `in`, and waits for its turn */
    bool wants_arrays;     /* hello: decisions as arrays */
    bool paused;           /* too much in flight or unread: no message is taken until it is half of that */
    bool leftover;         /* `in` may hold whole messages */
    bool takes_long;       /* it is the one that may take a long message now */
    bool ended;            /* no more input is taken (half-close, drain, lost framing): close once all is answered */
    bool lingers;          /* framing was lost and the last words are said: input is read and dropped */
    bool closed;           /* uv_close was called */
    enum error_code last_code;
    const char *why_ended;  /* static; of one that has `ended`, for the log */
    const char *last_words; /* static; lost framing: to be said, with last_code, once `calls` is empty; else NULL */
    struct peer peer;       /* for session_peer() */
    /* The policy that it asked for last, and its name; they stand while the generation does. */
    const struct policy *last_policy;
    struct slice last_name;
    uint64_t last_generation;
    struct scanner scanner;
    uv_pipe_t pipe;
    uv_write_t write;
};

/* Accept the connection that waits on `listener`. 0, or a libuv error: with UV_ENOMEM it still waits. */
int session_accept(struct sessions *home, uv_stream_t *listener);
void session_close(struct session *session, const char *why); /* `why` is for the log */
void session_drain(struct session *session); /* take no more bytes; refuse what has come; close once all is answered */
void session_run(struct session *session);   /* take messages left over, as far as the turn's budget goes */
void session_run_long(struct session *session); /* the same, with a long message first */
void session_flush(struct session *session);    /* write what is in `out` */

bool session_is_owed(const struct session *session); /* an answer is being made, or waits to be read */
int64_t session_stalled_us(struct session *session); /* how long the peer has taken nothing of what waits for it */
bool session_has_stalled(struct session *session);   /* the peer took nothing for write_stall_ms, or lingers too long */

/* Who has connected; asks the kernel, the first time. */
const struct peer *session_peer(struct session *session);

void session_list_ended(struct session *session); /* `list` is NULL again */

/* A call of n checks began, or ended. */
void session_began(struct session *session, uint32_t n_checks);
void session_finished(struct session *session, uint32_t n_checks);

/*
 * One answer, exactly one per request: pack the result between the two. Where it cannot be stored
 * the connection closes, which is an answer too.
 */
struct packer session_answer(struct session *session, uint64_t msgid, size_t *ret_start);
void session_answered(struct session *session, const struct packer *packer, size_t start);
void session_error(struct session *session, uint64_t msgid, enum error_code code, const char *message);

#endif
