/*
 * memory_holds.c: reserving and settling in memory, by the same steps as lua/batch.lua.
 *
 * The holds of a policy and key are an entry of the table (memory_table.h). Any op on them first gives back the units
 * of those that have ended by the limits' now, at most TAKE_MAX at a time. A state whose flag `held` is not set has
 * none: that is all that a check of a key without holds looks at.
 */
#include "base/check.h"
#include "base/counters.h"
#include "store/memory_private.h"

enum { TAKE_MAX = 64 };

static int64_t now_ms(const struct memory_store *memory)
{
    return memory->clock->wall_us / 1000;
}

/* What the member's state has of `units` that were charged at made_us. */
static int64_t give_back(struct memory_store *memory, const struct op_member *member, int64_t units, int64_t made_us)
{
    const struct algo_ops *ops = limit_ops(member->limit);
    struct memory_entry *entry = memory_table_find(&memory->table, member->limit, member->key);
    struct run run;
    int64_t s1, s2, keep;
    if (entry == NULL) return 0;
    limit_run_here(&run, member->limit, member->key, member->max_wait_us, memory->clock->wall_us);
    ops->view(&run, &entry->state, &s1, &s2, &keep);
    int64_t back = ops->refund(&run, &entry->state, &s1, &s2, units, made_us);
    if (back == 0 && keep >= 0) return 0;
    if (s1 == 0 && s2 == 0 && ops->kind == STATE_STRING)
        entry->state = (struct state){0}; /* as the script, which deletes it */
    else
        CHECK(ops->store(&run, &entry->state, s1, s2, keep, 0) == 0); /* no units: nothing to find memory for */
    memory_table_update(&memory->table, entry, ops->expires(&run, &entry->state));
    return back;
}

/* The members of one policy and key stand together: the place behind those that begin at i. */
static size_t end_of_group(const struct op *op, size_t i)
{
    const struct op_member *first = &op->members[i];
    for (i++; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        if (member->limit->policy != first->limit->policy || !slice_eq(member->hold_key, first->hold_key)) break;
    }
    return i;
}

static bool may_be_held(const struct memory_store *memory, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        const struct memory_entry *entry = memory->seats[i].entry;
        if (entry == NULL || entry->held) return true;
    }
    return false;
}

/* Only a state that has the client's whole key is this key's alone. */
static void forget_flags(struct memory_store *memory, const struct op *op, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++)
        if (memory->seats[i].entry != NULL && slice_eq(op->members[i].key, op->members[i].hold_key))
            memory->seats[i].entry->held = false;
}

/* Of the op's policy and key there is a list now, if only of marks. */
static void set_flags(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++)
        if (memory->seats[i].entry != NULL) memory->seats[i].entry->held = true;
}

static struct memory_entry *find_holds(struct memory_store *memory, const struct op_member *member)
{
    return memory_table_find_holds(&memory->table, member->limit->policy, member->hold_key);
}

/* After the list has changed: an empty one goes, unless something is about to come into it. */
static void update_holds(struct memory_store *memory, struct memory_entry *entry)
{
    size_t n = hold_list_len(entry->holds);
    if (n == 0 && !entry->pinned) {
        memory_table_remove(&memory->table, entry);
        return;
    }
    int64_t last_ms = n > 0 ? hold_list_at(entry->holds, n - 1)->end_ms : now_ms(memory);
    memory_table_update(&memory->table, entry, (last_ms + HOLD_GRACE_MS) * 1000);
}

static bool take_ended_of(struct memory_store *memory, const struct op *op, size_t from, size_t end)
{
    size_t n_taken = 0;
    struct memory_entry *entry = find_holds(memory, &op->members[from]);
    if (entry == NULL) {
        forget_flags(memory, op, from, end);
        return false;
    }
    for (; n_taken < TAKE_MAX && hold_list_len(entry->holds) > 0; n_taken++) {
        struct hold hold = *hold_list_at(entry->holds, 0);
        if (hold.end_ms > now_ms(memory)) break;
        hold_list_remove(entry->holds, 0);
        for (size_t i = from; i < end && !hold.settled; i++)
            give_back(memory, &op->members[i], hold.units, hold.made_us);
    }
    if (n_taken > 0) update_holds(memory, entry);
    return n_taken > 0;
}

bool memory_holds_take_ended(struct memory_store *memory, const struct op *op)
{
    bool any = false;
    for (size_t from = 0, end; from < op->n_members; from = end) {
        end = end_of_group(op, from);
        if (op->members[from].hold_key.len > 0 && may_be_held(memory, from, end))
            any |= take_ended_of(memory, op, from, end);
    }
    return any;
}

static struct memory_entry *add_holds(struct memory_store *memory, const struct op_member *member)
{
    size_t n_before = memory->table.n;
    struct memory_entry *entry =
        memory_table_add_holds(&memory->table, member->limit->policy, member->hold_key, memory->clock->wall_us);
    if (entry == NULL) return NULL;
    memory->n_added++;
    if (memory->counted) counters.memory_evicted += memory->table.n == n_before;
    return entry;
}

/* A mark takes the place of the hold that is settled. */
static bool has_place(struct memory_entry *entry, const struct op *op)
{
    size_t at;
    if (op->kind == OP_SETTLE && hold_list_find(entry->holds, op->hold->id, hold_end_ms(op->hold), &at) != NULL)
        return true;
    return hold_list_reserve(&entry->holds) == 0;
}

/* The op's list with room for one more, pinned; NULL without memory. */
static struct memory_entry *open_holds(struct memory_store *memory, const struct op *op)
{
    const struct op_member *member = &op->members[0];
    struct memory_entry *entry = find_holds(memory, member);
    if (entry == NULL) entry = add_holds(memory, member);
    if (entry == NULL) return NULL;
    entry->pinned = true;
    if (has_place(entry, op)) return entry;
    entry->pinned = false;
    update_holds(memory, entry);
    return NULL;
}

static void close_holds(struct memory_store *memory, struct memory_entry *entry)
{
    entry->pinned = false;
    update_holds(memory, entry);
}

static bool is_admitted(const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++)
        if (!op->members[i].decision.allowed) return false;
    return true;
}

enum submit memory_reserve(struct memory_store *memory, struct op *op)
{
    CHECK(op->hold != NULL && op->members[0].hold_key.len > 0);
    struct memory_entry *entry = open_holds(memory, op);
    if (entry == NULL) return SUBMIT_OVERLOAD;
    enum submit result = memory_decide(memory, op);
    if (result == SUBMIT_DECIDED && is_admitted(op) && !op->hold->is_known) {
        struct op_hold *hold = op->hold;
        hold->held = true;
        hold->made_us = memory->clock->wall_us;
        hold_list_add(entry->holds,
                      &(struct hold){
                          .id = hold->id, .units = hold->units, .made_us = hold->made_us, .end_ms = hold_end_ms(hold)});
        set_flags(memory, op);
    }
    close_holds(memory, entry);
    return result;
}

/* Charge up to `units` to every limit, as many as fit into all of them, with their debt. 0, or -1 without memory. */
static int charge_used(struct memory_store *memory, struct op *op, int64_t units)
{
    for (size_t i = 0; i < op->n_members; i++) {
        struct seat *seat = &memory->seats[i];
        int64_t fits = limit_fits_used(&seat->run, seat->s1, seat->s2);
        if (fits < units) units = fits;
    }
    for (size_t i = 0; i < op->n_members; i++) memory->seats[i].units = units;
    if (memory_write(memory, op) < 0) return -1;
    op->hold->charged = units;
    return 0;
}

/* What was used beyond the hold is charged, what was not is returned. 0, or -1 without memory, nothing changed. */
static int settle_units(struct memory_store *memory, struct op *op, const struct hold *found)
{
    struct op_hold *hold = op->hold;
    if (found == NULL) return charge_used(memory, op, hold->actual);
    if (hold->actual >= found->units) return charge_used(memory, op, hold->actual - found->units);
    for (size_t i = 0; i < op->n_members; i++) {
        int64_t back = give_back(memory, &op->members[i], found->units - hold->actual, found->made_us);
        if (back > hold->refunded) hold->refunded = back;
    }
    return 0;
}

/* Whatever becomes of the hold, a mark stays of it. */
static int settle_in(struct memory_store *memory, struct op *op, struct memory_entry *entry)
{
    struct op_hold *hold = op->hold;
    size_t at = 0;
    const struct hold *found = hold_list_find(entry->holds, hold->id, hold_end_ms(hold), &at);
    int64_t forgotten_ms = hold_end_ms(hold) + HOLD_GRACE_MS, latest_ms = now_ms(memory) + HOLD_TTL_MAX_MS;
    bool is_known = found != NULL && !found->settled, is_too_far = forgotten_ms > latest_ms + HOLD_GRACE_MS;
    bool is_over = (found != NULL && found->settled) || forgotten_ms <= now_ms(memory) || (is_too_far && !is_known);
    hold->ended = found == NULL || is_over;
    if (is_over) return 0;
    if (settle_units(memory, op, found) < 0) return -1;
    if (found != NULL) hold_list_remove(entry->holds, at);
    if (is_too_far) forgotten_ms = latest_ms + HOLD_GRACE_MS; /* the clock stepped back */
    hold_list_add(entry->holds,
                  &(struct hold){.id = hold->id, .end_ms = forgotten_ms, .settled = true, .moved = is_too_far});
    return 0;
}

enum submit memory_settle(struct memory_store *memory, struct op *op)
{
    CHECK(op->hold != NULL && op->members[0].hold_key.len > 0);
    op->hold->refunded = op->hold->charged = 0;
    struct memory_entry *entry = open_holds(memory, op);
    if (entry == NULL) return SUBMIT_OVERLOAD;
    memory_open(memory, op);
    int status = settle_in(memory, op, entry);
    set_flags(memory, op);
    memory_unpin(memory, op);
    close_holds(memory, entry);
    return status == 0 ? memory_answer(memory, op) : SUBMIT_OVERLOAD;
}
