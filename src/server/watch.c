/* watch.c: gives each answered check that matters to the tables that keep it, for request.c. */
#include "server/watch.h"

#include "base/hash.h"
#include "base/random.h"
#include "server/peer.h"

int watch_set(struct watch *watch, const struct watch_options *options)
{
    bool keeps_slow = options->slow_us > 0 && options->n_slow > 0;
    int status = top_keys_set(&watch->denied, options->top_keys, options->top_window_us);
    status |= top_keys_set(&watch->granted, options->top_granted ? options->top_keys : 0, options->top_window_us);
    status |= check_ring_set(&watch->denials, options->n_denials);
    status |= check_ring_set(&watch->slow, options->n_slow);
    watch->slow_us = keeps_slow && watch->slow.max > 0 ? options->slow_us : INT64_MAX;
    watch->takes_all = top_keys_is_on(&watch->granted);
    return status;
}

void watch_fini(struct watch *watch)
{
    top_keys_fini(&watch->denied);
    top_keys_fini(&watch->granted);
    check_ring_fini(&watch->denials);
    check_ring_fini(&watch->slow);
}

void watch_look(struct watch *watch, int64_t now_us)
{
    top_keys_look(&watch->denied, now_us);
    top_keys_look(&watch->granted, now_us);
}

static void count_key(struct top_keys *top, const struct check *check, const struct limit *limit, uint64_t units,
                      int64_t now_us)
{
    if (!top_keys_is_on(top)) return;

    const struct policy *policy = check->plan->policy;
    uint64_t hash = random_mix(hash_keyed(check->key.data, check->key.len) + policy->name_hash);
    bool is_new = false;
    struct top_row *row = top_keys_add(top, hash, units, now_us, &is_new);
    if (is_new) kept_key_take(&row->key, check->key);
    kept_names_take(&row->names, policy, limit);
}

static void keep(struct check_ring *ring, const struct check *check, const struct peer *peer, int64_t now_us,
                 int64_t wall_us)
{
    struct kept_check *entry = check_ring_add(ring);
    const struct op *op = &check->op;
    kept_names_take(&entry->names, check->plan->policy, check->decision.of);
    kept_key_take(&entry->key, check->key);
    entry->time_ms = wall_us / 1000;
    entry->cost = check->cost;
    entry->uid = peer->uid;
    entry->pid = peer->pid;
    entry->source = check->decision.source;
    entry->reason = check->decision.reason;
    entry->total_us = now_us - op->read_us;
    entry->store_us = op->sent_us > 0 ? now_us - op->sent_us : 0;
    entry->queue_us = entry->total_us - entry->store_us;
}

void watch_note(struct watch *watch, const struct check *check, const struct peer *peer, int64_t now_us,
                int64_t wall_us)
{
    const struct decision *decision = &check->decision;
    bool is_granted = decision->allowed && decision->granted > 0 && op_is_check(check->op.kind);
    if (watch_is_denied(check)) {
        count_key(&watch->denied, check, decision->of, 1, now_us);
        if (watch->denials.max > 0) keep(&watch->denials, check, peer, now_us, wall_us);
    }
    if (is_granted) count_key(&watch->granted, check, NULL, (uint64_t)decision->granted, now_us);
    bool is_slow = now_us - check->op.read_us >= watch->slow_us && check->key.len > 0; /* a release has no key */
    if (is_slow) keep(&watch->slow, check, peer, now_us, wall_us);
}
