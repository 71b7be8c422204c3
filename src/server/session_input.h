/*
 * session_input.h: the input side of a session, and its life: bytes in, whole messages to the methods, until it closes.
 *
 * Calls go down: session_input.c to the methods and the list of a check_many, those to session_output.c. What happens
 * below and concerns the input (less is in flight, a list is over, an answer found no memory) wakes the session, and
 * the next tick looks at it. So nothing is closed while a method runs.
 */
#ifndef RL_SERVER_SESSION_INPUT_H
#define RL_SERVER_SESSION_INPUT_H

#include <stdbool.h>

#include <uv.h>

#include "server/session.h"

/* Accept the connection that waits on `listener`, into a group. 0, or a libuv error: with UV_ENOMEM it still waits. */
int session_accept(struct sessions *sessions, struct session_group *group, uv_stream_t *listener);
void session_close(struct session *session, const char *why); /* `why` is for the log */
/* Close the longest idle of a group that is full, for the connection that waits. True: one closes, or already does. */
bool session_give_way(struct sessions *sessions, struct session_group *group);
void session_drain(struct session *session); /* takes no more bytes, refuses the messages that wait, and closes once
                                                every request is answered */
void session_run(struct session *session);   /* it was woken: take messages that waited, or end */
void session_read_again(struct session *session); /* from sessions->reads.waiting */
void session_end_tick(struct session *session);   /* from sessions->output.dirty: write what is in `out` */

#endif
