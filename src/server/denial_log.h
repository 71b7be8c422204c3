/*
 * denial_log.h: which denials become a line in the log, for operators who want to know who is limited.
 *
 *   request.c, an answer is written ─▶ denial_log_takes ─▶ denial_log_write
 *
 * off      none; the path of a check has one branch more
 * first    the first denial of a policy and key, and the next one after DENIAL_QUIET_US. The last DENIALS_REMEMBERED
 *          of them are remembered, so a flood of keys costs no more memory than none
 * sampled  any
 *
 * Both log at most `per_second` lines in a second, and say how many denials they held back. One that was held back is
 * not remembered as logged: a key that goes on being denied has its line later.
 *
 * Checks that were allowed near their limit (warn_at) have a log of the same kind, which is always `first`.
 *
 * A denial is an answer that was not allowed to something that would have been charged: check, check_many, check_all,
 * reserve, acquire. Shadow policies and candidates deny nothing.
 */
#ifndef RL_SERVER_DENIAL_LOG_H
#define RL_SERVER_DENIAL_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "engine/check.h"

struct peer;

enum denials { DENIALS_OFF, DENIALS_FIRST, DENIALS_SAMPLED };

enum { DENIALS_REMEMBERED = 4096, DENIAL_QUIET_US = 60 * 1000000 };

/* A policy and key that were logged. A list of them hangs from each cell of `heads`, the newest first. */
struct denial_entry {
    uint64_t hash;
    int64_t logged_us;
    uint16_t next; /* the index of the one behind it in its list, from 1; 0 = none */
};

/* Zeroed, it is off and remembers nothing. */
struct denial_log {
    const char *what; /* static; how its lines begin; NULL: "denied" */
    enum denials mode;
    uint32_t per_second;
    uint32_t n_logged;  /* in the present second */
    int64_t second_us;  /* when that began; CLOCK_MONOTONIC, as all times here */
    uint64_t n_held;    /* since the last line */
    uint64_t n_entries; /* ever made; the next takes the place of the oldest */
    uint16_t heads[DENIALS_REMEMBERED];
    struct denial_entry entries[DENIALS_REMEMBERED];
};

void denial_log_set(struct denial_log *log, enum denials mode, uint32_t per_second);

static inline bool denial_log_is_on(const struct denial_log *log)
{
    return __builtin_expect(log->mode != DENIALS_OFF, 0);
}

/* Is this denial to be logged? Then *ret_held is how many were held back before it. The log is on. With a limit, each
 * limit of the policy counts for itself. */
bool denial_log_takes(struct denial_log *log, const struct policy *policy, const struct limit *limit, struct slice key,
                      int64_t now_us, uint64_t *ret_held);
void denial_log_write(const struct check *check, const struct peer *peer, uint64_t n_held);
/* Likewise of a check that was allowed near its limit. The decision by that limit, or by the first that is near. */
const struct decision *denial_log_near(const struct check *check);
void denial_log_write_near(const struct check *check, const struct peer *peer, uint64_t n_held);

/* Each second: logs how many denials were held back, if no further denial has done it. */
void denial_log_look(struct denial_log *log, int64_t now_us);

#endif
