/* cluster_slots.c: which hash slots are held, and the ops that wait for them, in order; for redis/servers.c. */
#include "redis/cluster_slots.h"

#include "base/alloc.h"
#include "base/assert.h"

struct cluster_slots *cluster_slots_new(void)
{
    struct cluster_slots *slots = mem_zalloc(sizeof *slots);
    if (slots != NULL) list_init(&slots->held);
    return slots;
}

void cluster_slots_free(struct cluster_slots *slots)
{
    if (slots == NULL) return;
    CHECK(slots->n_held == 0);
    mem_free(slots);
}

void cluster_slots_hold(struct cluster_slots *slots, struct cluster_slot *slot, int64_t until_us)
{
    if (!slot->is_held) {
        slot->is_held = true;
        slot->new_owner = NULL;
        slot->held_until_us = 0;
        slot->n_sent = 0;
        list_init(&slot->ops);
        list_push_back(&slots->held, &slot->link);
        slots->n_held++;
        slots->must_sweep = true;
    }
    if (until_us > slot->held_until_us) slot->held_until_us = until_us;
}

void cluster_slots_add(struct cluster_slot *slot, struct op *op)
{
    CHECK(slot->is_held);
    op->is_held = true;
    slot->n_sent += cluster_slots_was_sent(op);
    list_push_back(&slot->ops, &op->link);
}

void cluster_slots_withdraw(struct cluster_slot *slot, struct op *op)
{
    CHECK(op->is_held);
    slot->n_sent -= cluster_slots_was_sent(op);
    list_remove(&op->link);
    op->is_held = false;
}

/* Both are sorted; so is `ret`, with all of them. */
static void merge(struct list *ret, struct list *a, struct list *b)
{
    while (!list_empty(a) && !list_empty(b)) {
        bool is_a = LIST_ITEM(a->next, struct op, link)->number < LIST_ITEM(b->next, struct op, link)->number;
        list_push_back(ret, list_pop_front(is_a ? a : b));
    }
    list_append(ret, a);
    list_append(ret, b);
}

/* Merge sort from the bottom: runs[i] has 2^i ops, or none. */
static void sort_ops(struct list *ops)
{
    enum { RUNS = 32 };
    struct list runs[RUNS];
    size_t n_runs = 0;
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) {
        struct list run, merged;
        list_init(&run);
        list_push_back(&run, it);
        size_t i = 0;
        for (; i < n_runs && !list_empty(&runs[i]); i++) {
            list_init(&merged);
            merge(&merged, &runs[i], &run);
            list_append(&run, &merged);
        }
        CHECK(i < RUNS);
        if (i == n_runs) list_init(&runs[n_runs++]);
        list_append(&runs[i], &run);
    }
    for (size_t i = 0; i < n_runs; i++) {
        struct list merged;
        list_init(&merged);
        merge(&merged, &runs[i], ops);
        list_append(ops, &merged);
    }
}

void cluster_slots_release(struct cluster_slots *slots, struct cluster_slot *slot, struct list *to)
{
    CHECK(slot->is_held);
    slot->is_held = false;
    list_remove(&slot->link);
    slots->n_held--;
    list_append(to, &slot->ops);
    sort_ops(to);
    LIST_FOREACH (it, to) LIST_ITEM(it, struct op, link)->is_held = false;
}
