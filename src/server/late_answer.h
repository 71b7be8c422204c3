/*
 * late_answer.h: answers that the wiring makes in a thread: of the methods `reload` and `config`.
 *
 *   late_answer_begin ─ source.ask ─▶ a ticket        several requests may have one: they get one answer
 *   server_answer_late ─▶ late_answers_end            it is there
 *   runner ─▶ late_answers_run                        each session that is still there gets it, one in a tick
 *
 * An answer may be a mebibyte, and the loop stands still while it is copied and written: so one in a tick.
 * A session that closes takes its requests with it; the work goes on all the same.
 */
#ifndef RL_SERVER_LATE_ANSWER_H
#define RL_SERVER_LATE_ANSWER_H

#include <stdint.h>

#include "server/server_options.h"

struct buffer;
struct params;
struct session;
struct sessions;

enum { LATE_ANSWERS_MAX = 16 }; /* of one connection */

/* 0, or -1 with the fault filled. */
int late_answer_begin(struct params *params, enum late_kind kind);

/* All with this ticket will be answered by the bytes of the result, which are taken over; if there are none, memory was
 * short. If all together were too many bytes, the last ones get OVERLOADED, to ask again. */
void late_answers_end(struct sessions *sessions, uint64_t ticket, struct buffer *result);
/* Answers the next one whose result is there. */
void late_answers_run(struct sessions *sessions);
/* Answers all of them: the daemon is stopping. */
void late_answers_refuse(struct sessions *sessions);
void late_answers_drop(struct session *session); /* it closes */

#endif
