/*
 * reservations.h: which reservations this daemon has made, and when each of them ends.
 *
 * A plain check in Redis does not look for reservations that have ended, so the daemon that made one gives its units
 * back itself, by a sweep of its policy and key (OP_SWEEP) at its end; also where it may have made one, and the
 * connection was lost. Bounded: beyond RESERVATIONS_MAX, or without memory, a reservation has no timer, and its units
 * come back with the next reserve, settle or cancel of that policy and key.
 */
#ifndef RL_ENGINE_RESERVATIONS_H
#define RL_ENGINE_RESERVATIONS_H

#include "base/heap.h"
#include "base/map.h"
#include "base/slice.h"
#include "limit/limit.h"

enum { RESERVATIONS_MAX = 65536 };

struct reservation {
    struct heap_node node; /* at its end, or when to try again */
    struct map_node in_map;
    uint64_t id;
    int64_t until_us; /* CLOCK_MONOTONIC: from here on no store knows it any more */
    char policy[NAME_MAX_LEN + 1];
    size_t key_len;
    uint8_t key[];
};

struct reservations {
    struct heap ends;
    struct map by_id;
    size_t n;
};

void reservations_init(struct reservations *reservations);
void reservations_fini(struct reservations *reservations); /* frees those that are inside */

/* It ends ttl_ms after now_us at the latest. False where it could not be taken. */
bool reservations_add(struct reservations *reservations, uint64_t id, const char *policy, struct slice key,
                      int64_t now_us, int64_t ttl_ms);
void reservations_forget(struct reservations *reservations, uint64_t id); /* one that is not inside is fine */
int64_t reservations_next_us(const struct reservations *reservations);    /* INT64_MAX = none */

/* The next that has ended by now_us, the caller's from here on; NULL where there is none. Either reservation_free(),
 * or reservations_retry() at another time. */
struct reservation *reservations_take(struct reservations *reservations, int64_t now_us);
void reservations_retry(struct reservations *reservations, struct reservation *reservation, int64_t at_us);
void reservation_free(struct reservation *reservation);

#endif
