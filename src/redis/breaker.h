/*
 * redis/breaker.h: when to stop asking a server that refuses everything or answers too late; pure.
 *
 *   closed ──▶ open      `errors` batches in a row were refused whole, or `late` in a row were answered, or lost, after
 *                        the deadlines of all their ops, and took longer than these allow, and breaker_late_ms
 *   open ──▶ closed      a probe of the node's has shown that the cause is over (redis/node.h)
 *
 * Late ones that were on the wire together may be one pause of a healthy server, such as a fork. So the one that opens
 * it was sent after the first of the row had been answered.
 *
 * A refusal is of the whole server: no memory, no replicas, no disk, busy with a script, loading, without a master. One
 * policy's missing right, a key of another type and our own queue are no reason.
 */
#ifndef RL_REDIS_BREAKER_H
#define RL_REDIS_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum breaker_cause { BREAKER_CLOSED, BREAKER_REFUSED, BREAKER_LATE };

struct redis_breaker {
    void (*on_opened)(struct redis_breaker *breaker);
    uint32_t errors, late;     /* settings; 0: this cause never opens it */
    uint32_t n_errors, n_late; /* in a row, up to now */
    int64_t missed_us;         /* the least of those n_late: what a server has to answer within */
    int64_t row_us;            /* when the first of them was answered */
    int64_t longest_us;        /* the most of those n_late missed */
    int64_t fastest_us;        /* late answers since then, and those to probes, took from here; 0: none came */
    int64_t slowest_us;        /* to here */
    enum breaker_cause cause;  /* why it is open, or that it is not */
};

static inline bool redis_breaker_is_open(const struct redis_breaker *breaker)
{
    return breaker->cause != BREAKER_CLOSED;
}

/* New settings. It closes if the cause it is open for is switched off. */
void redis_breaker_set(struct redis_breaker *breaker, uint32_t errors, uint32_t late);
void redis_breaker_close(struct redis_breaker *breaker);

/* What became of a batch; on_opened runs from within. */
void redis_breaker_refused(struct redis_breaker *breaker);
/* missed_us: of a late one the time that it took longer than, as above; else 0: what waited here until its deadline was
 * near, or was given less than any policy gives, shows nothing. has_written: on a server that refuses writes, a batch
 * that only reads is answered well and shows nothing. */
void redis_breaker_answered(struct redis_breaker *breaker, int64_t missed_us, int64_t sent_us, int64_t now_us,
                            bool has_written);
/* No reply came, or that it was not begun in time: this shows nothing but that it was late, if it was. */
void redis_breaker_lost(struct redis_breaker *breaker, int64_t missed_us, int64_t sent_us, int64_t now_us);
/* For people: the server was late, and its answer took this time. After one of the two above. */
void redis_breaker_took(struct redis_breaker *breaker, int64_t took_us);

#endif
