/*
 * error_log.h: which requests that were answered with an error become a line in the log: the first of each code at
 * once, then one line in ten seconds with how many there were. So a policy that clients go on asking for after it was
 * removed is seen, and a program that sends nonsense floods nothing.
 *
 *   session_output.c, an error is answered ─▶ error_log_note
 *   each second                            ─▶ error_log_look
 *
 * Not of codes that say what the log has from elsewhere: the store is away, the daemon stops, the client gave up.
 */
#ifndef RL_SERVER_ERROR_LOG_H
#define RL_SERVER_ERROR_LOG_H

#include <stdint.h>

#include "proto/error.h"

struct peer;

enum { ERROR_LOG_QUIET_US = 10 * 1000000, ERROR_LOG_TEXT_MAX = 256 };

struct error_log_entry {
    int64_t logged_us;             /* CLOCK_MONOTONIC of the last line; 0: there was none */
    uint64_t n;                    /* answers since then */
    char last[ERROR_LOG_TEXT_MAX]; /* of these the last one, and who got it */
};

struct error_log {
    struct error_log_entry of[N_ERROR_CODES];
};

/* `message`: what the peer was answered, printable, without its code. */
void error_log_note(struct error_log *log, enum error_code code, const char *message, const struct peer *peer,
                    int64_t now_us);
void error_log_look(struct error_log *log, int64_t now_us);

#endif
