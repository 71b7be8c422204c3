/*
 * session_output.h: the output side of a session, used by methods and requests: checks in flight, answers in the
 * buffer, bytes that the socket has not taken.
 */
#ifndef RL_SERVER_SESSION_OUTPUT_H
#define RL_SERVER_SESSION_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/pack.h"

struct session;

/* ---- from methods, requests and lists ---- */

/*
 * One answer, exactly one per request: pack the result into what session_begin_answer() returns, then call
 * session_end_answer(). Without memory for it the connection closes in the next tick.
 */
struct packer *session_begin_answer(struct session *session, uint64_t msgid);
void session_end_answer(struct session *session);
/* Where the next bytes of answers go: of a further piece of one that was begun and ended, too; end that as well. No other
 * answer may come between the pieces. */
struct packer *session_packer(struct session *session);
/* The same, with an error as the answer. */
extern const struct counter_family session_errors; /* requests that were answered with an error, by its code */
void session_answer_error(struct session *session, uint64_t msgid, enum error_code code, const char *message);

void session_checks_began(struct session *session, uint32_t n); /* so many more are in flight */
void session_checks_ended(struct session *session, uint32_t n); /* so many fewer are in flight */

/* ---- from session_input.c and sessions_tick.c, too ---- */

void session_wake(struct session *session);      /* the next tick looks at it */
void session_note_less(struct session *session); /* less is unread than before: wakes it if it waits for that */
void session_fail(struct session *session, const char *why); /* it cannot go on: the next tick closes it */

void session_emit_final_error(struct session *session); /* why the framing was lost */
void session_flush(struct session *session);            /* write what is in `out` */

bool session_is_busy(const struct session *session);      /* a message waits or is being answered, or output waits */
bool session_is_full(const struct session *session);      /* too much is in flight or unread for more of it */
bool session_is_half_full(const struct session *session); /* more than half of that */
void session_update_unread(
    struct session *session); /* in sessions->output.n_unread: the peer took some, or it closed */
int64_t session_stalled_us(struct session *session); /* how long the peer has taken nothing of what waits for it */
bool session_has_stalled(struct session *session);   /* the peer took nothing for write_stall_ms, or lingers too long */

#endif
