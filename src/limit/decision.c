/*
 * decision.c: the names of an answer's parts, and one answer out of several limits' answers.
 */
#include "limit/decision.h"

#include "base/assert.h"
#include "limit/limit.h"

const char *source_name(enum source source)
{
#define SOURCE(id, word) [id] = word,
    static const char *const words[] = {DECISION_SOURCES(SOURCE)};
#undef SOURCE
    CHECK((size_t)source < N_OF(words));
    return words[source];
}

const char *reason_name(enum reason reason)
{
#define REASON(id, word) [id] = word,
    static const char *const words[] = {[REASON_NONE] = NULL, DECISION_REASONS(REASON)};
#undef REASON
    CHECK((size_t)reason < N_OF(words));
    return words[reason];
}

void decision_shadow(struct decision *decision)
{
    if (decision->allowed) return;
    decision->allowed = true;
    decision->shadow_denied = true;
    decision->retry_after_ms = 0;
    decision->bound_by = NULL;
    if (decision->reason == REASON_PENALTY) decision->reason = REASON_NONE;
}

/* RETRY_NEVER is longer than every wait. */
static bool waits_longer(int64_t a, int64_t b)
{
    if (b == RETRY_NEVER) return false;
    return a == RETRY_NEVER || a > b;
}

/* What an answer has of one limit. */
static void speak_of(struct decision *all, const struct decision *one)
{
    all->limit = one->limit;
    all->of = one->of;
    all->window_ms = one->window_ms;
    all->of_reset_ms = one->of_reset_ms;
}

void decision_combine(struct decision *ret, const struct decision *members, size_t n)
{
    CHECK(n >= 1);
    struct decision all = members[0];
    const struct decision *least = &members[0];
    const struct decision *binding = NULL; /* the first of those that deny and wait longest */
    for (size_t i = 0; i < n; i++) {
        const struct decision *one = &members[i];
        bool binds = binding == NULL || waits_longer(one->retry_after_ms, binding->retry_after_ms);
        if (!one->allowed && binds) binding = one;
        if (one->remaining < least->remaining) least = one;
        if (waits_longer(one->retry_after_ms, all.retry_after_ms)) all.retry_after_ms = one->retry_after_ms;
        if (one->reset_after_ms > all.reset_after_ms) all.reset_after_ms = one->reset_after_ms;
        if (one->delay_ms > all.delay_ms) all.delay_ms = one->delay_ms;
        all.near |= one->near;
    }

    all.allowed = binding == NULL;
    all.remaining = least->remaining;
    all.bound_by = NULL;
    all.reason = binding != NULL ? binding->reason : REASON_NONE;
    speak_of(&all, binding != NULL ? binding : least);

    if (binding != NULL) {
        all.reset_after_ms = binding->reset_after_ms;
        if (all.reset_after_ms < all.retry_after_ms) all.reset_after_ms = all.retry_after_ms;
        all.bound_by = binding->of;
        all.granted = 0;
        all.delay_ms = 0;
    }
    *ret = all;
}

void decision_combine_units(struct decision *ret, const struct decision *members, size_t n)
{
    const struct decision *least = NULL;
    decision_combine(ret, members, n);
    for (size_t i = 0; i < n; i++) {
        bool is_silent = members[i].remaining > 0 && limit_takes_one(members[i].of);
        if (!is_silent && (least == NULL || members[i].remaining < least->remaining)) least = &members[i];
    }
    if (least == NULL) return; /* none counts units */

    ret->remaining = least->remaining;
    if (ret->allowed) speak_of(ret, least);
}
