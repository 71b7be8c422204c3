/*
 * fair_cap.h: a cap on what clients have somewhere, all together, which one of them cannot use up for the others.
 *
 * It is for what no owner bounds any more: checks that the store still has although no owner waits for them, cancels,
 * parts of a check_all, slots on their way back. Below the cap each client may have as much as it likes. From there on
 * a client goes on only while it has little itself, so what one has left behind counts against that one alone.
 *
 * A client's lane is its number modulo FAIR_LANES, as in overdue.h: nothing to allocate, nothing to find. So at most
 * FAIR_LANES * FAIR_SHARE go beyond the cap.
 */
#ifndef RL_ENGINE_FAIR_CAP_H
#define RL_ENGINE_FAIR_CAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAIR_LANES = 1024, FAIR_SHARE = 64 };

struct fair_cap {
    size_t n; /* of all clients */
    uint32_t of[FAIR_LANES];
};

static inline void fair_cap_add(struct fair_cap *cap, uint64_t client, uint32_t n)
{
    cap->n += n;
    cap->of[client % FAIR_LANES] += n;
}

static inline void fair_cap_remove(struct fair_cap *cap, uint64_t client, uint32_t n)
{
    cap->n -= n;
    cap->of[client % FAIR_LANES] -= n;
}

/* May the client have more? Of a small cap half is the share. */
static inline bool fair_cap_allows(const struct fair_cap *cap, size_t max, uint64_t client)
{
    size_t share = max / 2 < FAIR_SHARE ? max / 2 : FAIR_SHARE;
    return cap->n < max || cap->of[client % FAIR_LANES] < share;
}

#endif
