/*
 * complain.h: what went wrong, in words on standard error and as an exit status.
 */
#ifndef RL_CTL_COMPLAIN_H
#define RL_CTL_COMPLAIN_H

#include <stdbool.h>

#include "base/buffer.h"
#include "client/link.h"
#include "proto/pull.h"

enum exit_code {
    EXIT_DONE = 0, /* allowed, or done */
    EXIT_DENIED = 1,
    EXIT_RESTART = 1, /* a reload is in effect, but something needs a restart */
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 3,
    EXIT_REFUSED = 4,     /* the daemon answered with an error */
    EXIT_OUTPUT = 5,      /* standard output took no more, or --output cannot be written */
    EXIT_SIGNALLED = 128, /* and the signal's number */
};

/* From now on every complaint is also an object on standard output, {"error": CODE, "message": TEXT}: a script that
 * reads
 * --json finds one object there, whatever happens. CODE is the daemon's, or USAGE, or OUTPUT if a file cannot be
 * written, or the end of the library's name for what happened: TIMEOUT, LOST, PROTOCOL, UNREACHABLE, NO_MEMORY. */
void complain_in_json(void);
void complain_object(const char *code, const char *message); /* that object alone */

/* Complaints on standard error; EXIT_USAGE. */
enum exit_code complain_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
enum exit_code usage_error(const char *what, const char *which);
/* What a call on this connection ended with. */
enum exit_code complain(const struct link *link, enum ratelimit_status status, const char *code, const char *error);
/* Calls a method; `params` are packed. EXIT_DONE with the answer, valid until the client's next call; or what went
 * wrong, with the complaint made. */
enum exit_code call_or_complain(struct ratelimit *client, const char *method, const struct buffer *params,
                                int64_t timeout_ms, struct pull *ret);
/* The same for a method whose answer is a map; another answer is complained about. */
enum exit_code map_or_complain(struct ratelimit *client, const char *method, const struct buffer *params,
                               int64_t timeout_ms, struct pull *ret);
/* The answer is none of this command. */
enum exit_code complain_answer(const struct ratelimit *client);
/* There is no client: of what ratelimit_open() said. */
enum exit_code complain_open(enum ratelimit_status status);

#endif
