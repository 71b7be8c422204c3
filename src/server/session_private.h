/*
 * session_private.h: the inside of a session, shared by session.c (bytes in, and the end) and session_output.c (answers
 * out).
 */
#ifndef RL_SERVER_SESSION_PRIVATE_H
#define RL_SERVER_SESSION_PRIVATE_H

#include "server/session.h"

enum { LINGER_MS = 1000 };

static inline uv_stream_t *session_stream(struct session *session)
{
    return (uv_stream_t *)&session->pipe;
}

/* Bytes that the peer has not taken from us. */
static inline size_t session_unread(const struct session *session)
{
    return buffer_len(&session->out) + uv_stream_get_write_queue_size((const uv_stream_t *)&session->pipe);
}

static inline bool session_is_writing(const struct session *session)
{
    return buffer_len(&session->writing) > 0;
}

/* The empty buffer's memory is for the next who needs one. */
static inline void session_give_back(struct session *session, struct buffer *buf)
{
    buffer_consume(buf, buffer_len(buf));
    spares_return(&session->home->spares, buf);
}

void session_count_unread(struct session *session);   /* less or more is unread than when it was counted last */
void session_maybe_pause(struct session *session);    /* more is unread than before */
void session_maybe_resume(struct session *session);   /* less is in flight or unread than before */
void session_say_last_words(struct session *session); /* into `out`: why the framing was lost */

#endif
