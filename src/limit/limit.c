/*
 * limit.c: what is common to all algorithms: their table, the completion of a configured limit, and
 * the one way a check is decided on a state that has been viewed.
 */
#include "limit/limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "limit/lease_list.h"
#include "limit/policy.h"
#include "limit/time_ring.h"

/* Redis keys and the script's arithmetic stay exact below these (see algorithm files for their own bounds). */
#define WINDOW_MAX_US INT64_C(1000000000000000) /* 31 years */

#define ALGO(id, name, ops) extern const struct algo_ops ops;
#include "limit/algo.def"
#undef ALGO

const struct algo_ops *const algo_table[N_ALGOS] = {
#define ALGO(id, name, ops) [ALGO_##id] = &ops,
#include "limit/algo.def"
#undef ALGO
};

/* Further names of one algorithm. */
static const struct {
    const char *name;
    enum algo algo;
} aliases[] = {
    {"gcra", ALGO_BUCKET},
};

int algo_of_name(const char *name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (strcmp(aliases[i].name, name) == 0) return (int)aliases[i].algo;
    }
    for (int i = 0; i < N_ALGOS; i++) { /* of two with one name (windows) the first is the default */
        if (!algo_table[i]->is_compat && strcmp(algo_table[i]->name, name) == 0) return i;
    }
    return -1;
}

int compat_of_name(const char *name)
{
    for (int i = 0; i < N_ALGOS; i++) {
        if (algo_table[i]->is_compat && strcmp(algo_table[i]->name, name) == 0) return i;
    }
    return -1;
}

static int set_key_head(struct limit *limit, const char *compat_prefix, struct diag *diag)
{
    const struct algo_ops *ops = limit_ops(limit);
    int len;
    if (ops->is_compat) {
        const char *prefix = compat_prefix != NULL ? compat_prefix : ops->compat_prefix;
        len = snprintf(limit->key_head, sizeof limit->key_head, "%s:", prefix);
    } else {
        CHECK(compat_prefix == NULL);
        /* no name has a plus sign: whatever a candidate is called, its counters are its own */
        len = snprintf(limit->key_head, sizeof limit->key_head, "%s:%s%s%s%s:", ops->key_tag, limit->policy->name,
                       limit->policy->is_candidate ? "+candidate" : "", limit->name[0] != '\0' ? "/" : "", limit->name);
    }
    if (len < 0 || (size_t)len >= sizeof limit->key_head)
        return diag_invalid(diag, FIELD_KEY_PREFIX, "is too long; write at most %d bytes", KEY_HEAD_MAX - 2);

    limit->key_head_len = (uint16_t)len;
    return 0;
}

int limit_prepare(struct limit *limit, const char *compat_prefix, struct diag *diag)
{
    if (limit->calendar != NULL) limit->window_us = 1; /* its own business, see calendar_window.c */
    bool has_window = limit->algo != ALGO_CONCURRENCY; /* that one knows its slot_ttl */
    if (has_window && (limit->window_us < 1 || limit->window_us > WINDOW_MAX_US))
        return diag_invalid(diag, FIELD_WINDOW, "must be 1us to %" PRId64 "d", WINDOW_MAX_US / 86400 / 1000000);

    if (limit->max_wait_us != 0 && limit->algo != ALGO_LEAKY_BUCKET)
        return diag_invalid(diag, FIELD_MAX_WAIT, "is for leaky_bucket; leave it out");
    if (limit_ops(limit)->configure(limit, diag) != 0) return -1;
    if (limit->limit < 0 || limit->limit > LIMIT_MAX) /* an algorithm that takes less has said so */
        return diag_invalid(diag, FIELD_LIMIT, "must be 0 to %" PRId64, LIMIT_MAX);

    return set_key_head(limit, compat_prefix, diag);
}

int64_t limit_phase(const struct limit *limit, struct slice key)
{
    if (!limit->phase) return 0;
    uint64_t hash = hash_stable(HASH_STABLE_START, limit->key_head, limit->key_head_len);
    return (int64_t)(hash_stable(hash, key.data, key.len) % (uint64_t)limit->b);
}

void limit_constants(struct constants *ret, const struct limit *limit, int64_t phase_ms, int64_t max_wait_us,
                     int64_t wall_us)
{
    *ret = (struct constants){.a = limit->a, .b = limit->b, .c = limit->c, .d = limit->d};
    ret->c -= (limit->max_wait_us - max_wait_us) * limit->a; /* only buckets have a wait: see bucket.c */
    if (phase_ms > 0) ret->c = limit->b - phase_ms;          /* only fixed windows have a phase: see fixed_window.c */
    if (limit_ops(limit)->constants != NULL) limit_ops(limit)->constants(limit, wall_us, ret);
}

void limit_run(struct run *run, const struct limit *limit, const struct constants *constants, int64_t now_us)
{
    *run = (struct run){
        .limit = limit,
        .now_us = now_us,
        .now = now_us,
        .a = constants->a,
        .b = constants->b,
        .c = constants->c,
        .d = constants->d,
    };
    limit_ops(limit)->prepare(run);
}

void limit_run_here(struct run *run, const struct limit *limit, struct slice key, int64_t max_wait_us, int64_t now_us)
{
    struct constants constants;
    limit_constants(&constants, limit, limit_phase(limit, key), max_wait_us, now_us);
    limit_run(run, limit, &constants, now_us);
}

int64_t limit_fit(int64_t room, int64_t cost, int64_t k)
{
    if (cost == 0) return k;
    if (room < cost) return 0;
    int64_t fit = room / cost;
    return fit < k ? fit : k;
}

int64_t limit_fits(const struct run *run, int64_t s1, int64_t s2, int64_t cost, int64_t k)
{
    if (cost > run->limit->full) return 0;
    return limit_fit(limit_ops(run->limit)->room(run, s1, s2), cost, k);
}

int64_t limit_fits_used(const struct run *run, int64_t s1, int64_t s2)
{
    int64_t fits = limit_ops(run->limit)->room(run, s1, s2) + limit_debt(run->limit);
    return fits > 0 ? fits : 0;
}

int64_t limit_decide(const struct run *run, int64_t *s1, int64_t *s2, int64_t cost, bool admitted, int64_t wait,
                     struct decision *ret)
{
    const struct limit *limit = run->limit;
    const struct algo_ops *ops = limit_ops(limit);
    bool allowed = limit_fits(run, *s1, *s2, cost, 1) > 0;
    CHECK(allowed || !admitted);
    int64_t units = admitted || limit->count_denied ? cost : 0;
    if (units > 0) ops->charge(run, s1, s2, units);
    bool open = allowed; /* what another limit denied may have filled this one: then it stands in the way next time */
    if (allowed && !admitted && units > 0) open = limit_fits(run, *s1, *s2, cost, 1) > 0;
    *ret = (struct decision){.allowed = allowed, .limit = limit->full, .granted = admitted ? cost : 0};
    ops->answer(run, *s1, *s2, open, cost, wait, ret);
    if (!admitted) ret->delay_ms = 0;
    if (ret->remaining < 0) ret->remaining = 0; /* a state that says more than the limit holds */
    if (!allowed && cost > limit->full) ret->retry_after_ms = RETRY_NEVER;
    return units;
}

void limit_answer_again(const struct run *run, int64_t s1, int64_t s2, int64_t charged, int64_t granted,
                        struct decision *ret)
{
    const struct algo_ops *ops = limit_ops(run->limit);
    if (charged > 0) ops->charge(run, &s1, &s2, charged);
    *ret = (struct decision){.allowed = true, .limit = run->limit->full, .granted = granted};
    ops->answer(run, s1, s2, true, granted, 0, ret);
    if (ret->remaining < 0) ret->remaining = 0;
}

void state_fini(struct state *state)
{
    time_ring_free(state->log);
    lease_list_free(state->leases);
    *state = (struct state){0};
}
