/*
 * memory_store.c: the memory store. An op on limits is decided on the spot, by the same steps as the script's
 * (lua/batch.lua):
 *
 *   open     each limit's state as of now, or a fresh one
 *   decide   do all limits fit? then each one's answer and what it is charged
 *   save     states that were charged or clamped go back into the table
 *
 * Everything that can fail for want of memory happens before the first state is charged. The pause of a penalty is an
 * entry of its own, which a check that begins it makes.
 *
 * An op with a request id that is remembered gets its answer from the record alone (memory_records.h).
 *
 * The reservations of a policy and key are an entry of the table (memory_table.h). Any op on them first gives back the
 * units of those that have ended by the limits' now, at most TAKE_MAX at a time. A state whose flag `reserves` is not
 * set has none: that is all that a check of a key without reservations looks at. Settled, a reservation leaves a
 * tombstone there.
 */
#include "store/memory_store.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/units.h"
#include "limit/lease_list.h"
#include "store/memory_counters.h"
#include "store/memory_records.h"
#include "store/memory_table.h"

COUNTERS_DEFINE(memory, MEMORY_COUNTERS);

enum {
    TAKE_MAX = 64,       /* reservations that have ended, given back at a time */
    SWEEP_PER_ADDED = 2, /* more than one, so that a table never fills with expired keys */
    SWEEP_ADDED_MAX = 4096,
    SWEEP_PER_MS = 32,    /* besides, by the time that has passed */
    SWEEP_STEP_MAX = 256, /* but in one tick no more */
    SWEEP_STALE = 256,    /* looked at in one tick while forgotten keys are left */
    EVICT_STEP = 64,      /* in one tick, after the bounds were lowered */
    SWEEP_RECORDS = 64,   /* looked at in one tick */
    FORGET_AT_ONCE = 64,
    RECORDS_SHARE = 4, /* records may use 1 / RECORDS_SHARE of the bytes; states get the rest */
};

/* One limit of the op being decided. */
struct open_limit {
    struct memory_key key;
    struct memory_entry *entry; /* NULL while not in the table */
    struct state fresh;         /* used as long as there is no entry */
    struct memory_entry *pause; /* of its penalty; NULL while not in the table */
    struct view view;           /* with the charge, once it is decided */
    int64_t units;              /* to be charged */
};

struct memory_store {
    const struct clock *clock; /* not owned */
    struct memory_table table;
    struct memory_records records;
    bool sweep;
    bool exact;
    bool is_down; /* as a test wants it */
    bool counted;
    int64_t swept_us;                            /* CLOCK_MONOTONIC of the last sweep */
    bool many_expired;                           /* it found many: go on in the next tick, whenever that is */
    struct open_limit opened[POLICY_LIMITS_MAX]; /* used within one submit only */
};

struct memory_store *memory_store_new(const struct clock *clock, const struct memory_options *options)
{
    enum { BYTES_PER_KEY = 1024 };
    uint64_t max_keys = options->max_keys < UINT32_MAX ? options->max_keys : UINT32_MAX;
    uint64_t max_bytes = options->max_bytes > 0 ? options->max_bytes : max_keys * BYTES_PER_KEY;

    struct memory_store *memory = mem_zalloc(sizeof *memory);
    if (memory == NULL) return NULL;
    memory->clock = clock;
    memory->sweep = options->sweep;
    memory->exact = options->exact;
    memory->counted = options->counted;

    if (memory_table_init(&memory->table, max_keys, max_bytes) < 0) goto err_free;
    if (memory_records_init(&memory->records, max_keys, max_bytes / RECORDS_SHARE) < 0) goto err_fini_table;
    memory->table.exact = memory->records.exact = options->exact;
    return memory;

err_fini_table:
    memory_table_fini(&memory->table);
err_free:
    mem_free(memory);
    return NULL;
}

void memory_store_free(struct memory_store *memory)
{
    memory_records_fini(&memory->records);
    memory_table_fini(&memory->table);
    mem_free(memory);
}

static uint64_t n_bytes(const struct memory_store *memory)
{
    return memory->table.n_bytes + memory->records.n_bytes;
}

static void update_counters(const struct memory_store *memory)
{
    if (!memory->counted) return;
    memory_counters.memory_evicted = memory->table.n_evicted + memory->records.n_evicted;
    memory_counters.memory_refused = memory->table.n_refused;
    memory_counters.memory_keys = memory_store_n_keys(memory);
    memory_counters.memory_bytes = n_bytes(memory);
}

static struct memory_entry *find_state(struct memory_store *memory, struct op_member *member)
{
    const struct memory_key key = memory_key_of_state(member);
    return memory_table_find(&memory->table, &key);
}

static int64_t now_ms_of(const struct memory_store *memory)
{
    return memory->clock->wall_us / 1000;
}

/* The member's limit as of now, without a state. */
static void view_now(struct memory_store *memory, const struct op_member *member, struct view *view)
{
    limit_here(view, member->limit, member->key, member->max_wait_us, memory->clock->wall_us);
}

/* ---- giving back ---- */

/* `undone`: that charge is taken back; NULL: units of charged_us are. A string state without units becomes a fresh one
 * (the script deletes it): otherwise a clock that steps back would find it. */
static int64_t give_back(struct memory_store *memory, struct op_member *member, int64_t units, int64_t charged_us,
                         const struct op_reservation *undone, struct view *view)
{
    struct memory_entry *entry = find_state(memory, member);
    view_now(memory, member, view);
    if (entry == NULL) {
        limit_report(view, 0, 0, 0);
        return 0;
    }

    limit_view(view, &entry->state);
    int64_t back = undone != NULL ? limit_undo(view, &entry->state, units, undone->made_us, undone->level)
                                  : limit_refund(view, &entry->state, units, charged_us);
    if (back == 0 && !view->stale) return 0;

    const struct algo_ops *ops = limit_ops(member->limit);
    if (view->used == 0 && view->extra == 0 && ops->kind == STATE_STRING) {
        entry->state = (struct state){0};
        entry->expires_us = 0;
    } else {
        entry->expires_us = ops->save(view, &entry->state);
    }
    memory_entry_weigh(entry, view);
    return back;
}

static void end_slot(struct memory_store *memory, struct op_member *member, uint64_t id)
{
    char slot[SLOT_ID_LEN];
    struct view view;
    struct memory_entry *entry = find_state(memory, member);
    if (entry == NULL || member->limit->algo != ALGO_CONCURRENCY) return;

    reservation_slot(id, slot);
    view_now(memory, member, &view);
    if (lease_list_remove(entry->state.leases, slot))
        entry->expires_us = limit_ops(member->limit)->save(&view, &entry->state);
}

/* Notes in the states of an open op that their key now has a list of reservations (or of tombstones). */
static void set_reserved(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++)
        if (memory->opened[i].entry != NULL) memory->opened[i].entry->reserves = true;
}

/* Call it after a change of the list: removes an empty one, unless it is pinned, and updates its expiry. */
static void update_reservations(struct memory_store *memory, struct memory_entry *entry)
{
    size_t n = reservation_list_len(entry->reserved);
    if (n == 0 && !entry->pinned) {
        memory_table_remove(&memory->table, entry);
        return;
    }

    int64_t last_ms = n > 0 ? reservation_list_at(entry->reserved, n - 1)->end_ms : now_ms_of(memory);
    entry->expires_us = (last_ms + RESERVATION_GRACE_MS) * 1000;
}

/* Give back what has ended of the reservations of one policy and key, whose members are those from `from` to before
 * `end`. True if anything had. */
static bool take_ended(struct memory_store *memory, const struct op *op, size_t from, size_t end)
{
    const struct op_member *first = &op->members[from];
    bool may_be_reserved = false;
    for (size_t i = from; i < end; i++)
        may_be_reserved |= memory->opened[i].entry == NULL || memory->opened[i].entry->reserves;
    if (first->reservations_key.len == 0 || !may_be_reserved) return false;

    const struct memory_key key = memory_key_of_reservations(first->limit, first->reservations_key);
    struct memory_entry *entry = memory_table_find(&memory->table, &key);
    if (entry == NULL) {
        /* Only a state that has the client's whole key is this key's alone. */
        for (size_t i = from; i < end; i++)
            if (memory->opened[i].entry != NULL && slice_eq(op->members[i].key, first->reservations_key))
                memory->opened[i].entry->reserves = false;
        return false;
    }

    size_t n_taken = 0;
    for (; n_taken < TAKE_MAX && reservation_list_len(entry->reserved) > 0; n_taken++) {
        const struct reserved reservation = *reservation_list_at(entry->reserved, 0);
        if (reservation.end_ms > now_ms_of(memory)) break;

        reservation_list_remove(entry->reserved, 0);
        struct view view;
        for (size_t i = from; i < end && !reservation.settled; i++) {
            end_slot(memory, &op->members[i], reservation.id);
            if (!limit_takes_one(op->members[i].limit))
                give_back(memory, &op->members[i], reservation.units, reservation.made_us, NULL, &view);
        }
    }
    if (n_taken > 0) update_reservations(memory, entry);
    return n_taken > 0;
}

/* ---- open ---- */

/* Until when and with which level the pause counts; after that it is forgotten. */
static void save_pause(struct memory_entry *entry, const struct view *view)
{
    const struct penalty *penalty = &view->limit->penalty;
    entry->state.pause = view->pause;
    entry->expires_us = (view->pause.end_ms + penalty->forget_ms) * 1000;
    entry->life_s = (uint32_t)((penalty->max_ms + penalty->forget_ms) / 1000 + 1);
    entry->in_use = 1;
}

static void open_limits(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        struct open_limit *opened = &memory->opened[i];
        view_now(memory, member, &opened->view);
        opened->view.slot = op->slot;
        opened->units = 0;
        opened->key = memory_key_of_state(member);
        opened->entry = memory_table_find(&memory->table, &opened->key);
        opened->fresh = (struct state){0};
        if (opened->entry != NULL) opened->entry->pinned = true;
        limit_view(&opened->view, opened->entry != NULL ? &opened->entry->state : &opened->fresh);
        opened->pause = NULL;

        if (limit_has_penalty(member->limit)) {
            const struct memory_key key = memory_key_of_pause(member);
            opened->pause = memory_table_find(&memory->table, &key);
            if (opened->pause != NULL) {
                opened->pause->pinned = true;
                if (limit_pause(&opened->view, opened->pause->state.pause)) save_pause(opened->pause, &opened->view);
            }
            member->pause = opened->view.pause;
        }
    }
}

/* Give back what has ended, and open each limit's state. */
static void open_op(struct memory_store *memory, const struct op *op)
{
    open_limits(memory, op);
    bool is_merge = op->kind == OP_SETTLE && op->reservation->is_merge;
    if (memory->table.n_reserved_lists == 0 || is_merge) return;

    bool any = false;
    for (size_t from = 0, end; from < op->n_members; from = end) {
        /* The members of one policy and key follow one another. */
        const struct op_member *first = &op->members[from];
        for (end = from + 1; end < op->n_members; end++) {
            const struct op_member *member = &op->members[end];
            if (member->limit->policy != first->limit->policy) break;
            if (!slice_eq(member->reservations_key, first->reservations_key)) break;
        }
        any |= take_ended(memory, op, from, end);
    }
    if (any) open_limits(memory, op);
}

static void unpin(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        if (memory->opened[i].entry != NULL) memory->opened[i].entry->pinned = false;
        if (memory->opened[i].pause != NULL) memory->opened[i].pause->pinned = false;
    }
}

/* ---- save ---- */

/* Makes an entry for the state, and all the space that a charge of `units` needs. 0, or -1 without memory. */
static inline int make_state_space(struct memory_store *memory, const struct memory_key *key, const struct view *view,
                                   int64_t units, struct memory_entry **entry)
{
    if (units == 0) return 0;

    const struct algo_ops *ops = limit_ops(view->limit);
    if (*entry == NULL) {
        *entry = memory_table_add(&memory->table, key, view->limit->life_s, memory->clock->wall_us);
        if (*entry == NULL) return -1;
        (*entry)->reserves = memory->table.n_reserved_lists > 0;
    }
    if (ops->reserve == NULL) return 0;
    if (view->limit->algo == ALGO_CONCURRENCY && !memory_table_keeps_more(&memory->table)) {
        memory->table.n_refused++;
        return -1;
    }

    if (ops->reserve(view, &(*entry)->state, units) < 0) return -1;
    memory_table_recount(&memory->table, *entry);
    return 0;
}

static void save_state(struct memory_store *memory, const struct view *view, struct memory_entry *entry)
{
    CHECK(entry != NULL); /* a stale state has an entry, and make_state_space() makes one for a charge */
    entry->expires_us = limit_ops(view->limit)->save(view, &entry->state);
    /* the entry was made for another limit (an override's, or before a reload), whose states live less long */
    if (entry->expires_us > memory->clock->wall_us + (int64_t)entry->life_s * SECOND_US)
        entry->life_s = view->limit->life_s;
    memory_entry_weigh(entry, view);
}

/* Clamped states are written whatever becomes of the op. */
static void save_clamped(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        const struct open_limit *opened = &memory->opened[i];
        if (opened->view.stale) save_state(memory, &opened->view, opened->entry);
    }
}

/* 0, or -1 without memory, nothing changed. */
static int make_all_space(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        struct open_limit *opened = &memory->opened[i];
        if (make_state_space(memory, &opened->key, &opened->view, opened->units, &opened->entry) < 0) return -1;
        if (opened->pause != NULL || !opened->view.begins_pause) continue;

        const struct memory_key key = memory_key_of_pause(&op->members[i]);
        opened->pause = memory_table_add(&memory->table, &key, 0, memory->clock->wall_us);
        if (opened->pause == NULL) return -1;
    }
    return 0;
}

/* Charge up to `units` to every limit of an open op, as many as fit into all of them, with their debt. Returns how
 * many, or -1 without memory, nothing changed. */
static int64_t charge_used(struct memory_store *memory, const struct op *op, int64_t units)
{
    struct open_limit *all = memory->opened;
    bool is_held = false;
    save_clamped(memory, op);
    for (size_t i = 0; i < op->n_members; i++) {
        if (!reservation_holds(op->reservation, all[i].view.limit)) continue;
        int64_t fits = limit_fits_used(&all[i].view, reservation_debt(op->reservation, all[i].view.limit));
        if (fits < units) units = fits;
        is_held = true;
    }
    if (!is_held) units = 0;

    for (size_t i = 0; i < op->n_members; i++)
        all[i].units = reservation_holds(op->reservation, all[i].view.limit) ? units : 0;
    if (make_all_space(memory, op) < 0) return -1;
    for (size_t i = 0; i < op->n_members; i++) {
        if (all[i].units == 0) continue;
        limit_charge(&all[i].view, units);
        save_state(memory, &all[i].view, all[i].entry);
    }
    return units;
}

/* ---- records ---- */

/* Remembers an admission with a charge. 0, or -1 without memory. */
static int remember_admission(struct memory_store *memory, const struct op *op)
{
    bool any = false;
    for (size_t i = 0; i < op->n_members; i++) any |= memory->opened[i].units > 0;
    if (!any) return 0;

    struct memory_record *record = memory_records_add(&memory->records, op, memory->clock->wall_us);
    if (record == NULL) return -1;
    for (size_t i = 0; i < op->n_members; i++) {
        const struct open_limit *opened = &memory->opened[i];
        record->members[i] = (struct memory_recorded){op->members[i].used, op->members[i].extra, opened->units};
    }
    return 0;
}

/* An op of this name was done before: what that gave back, or reserved, and the answer that it got. Where the policies
 * have changed since, what was charged stands, and all else is as it is now. */
static void answer_known(struct memory_store *memory, struct op *op, const struct memory_record *record)
{
    bool is_same = record->version == op_version(op) && record->n_members == op->n_members;
    op->is_known = true;
    if (!is_same) open_op(memory, op);

    for (size_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        const struct memory_recorded *recorded = &record->members[i < record->n_members ? i : record->n_members - 1U];
        int64_t granted = op->kind == OP_REFUND ? 0 : recorded->units;
        if (op->kind == OP_REFUND) member->refunded = recorded->units;
        if (!is_same) {
            limit_answer(&memory->opened[i].view, granted, &member->decision);
            continue;
        }

        struct view view;
        limit_here(&view, member->limit, member->key, member->max_wait_us, record->at_us);
        limit_report(&view, recorded->used, recorded->extra, 0);
        if (granted > 0) limit_charge(&view, granted);
        limit_answer(&view, granted, &member->decision);
    }
    if (!is_same) unpin(memory, op);

    if (op->kind == OP_RESERVE) {
        struct op_reservation *reservation = op->reservation;
        reservation->held = reservation->is_known = true;
        reservation->id = record->reservation_id;
        reservation->units = 0;
        for (size_t i = 0; i < record->n_members; i++)
            if (record->members[i].units > reservation->units) reservation->units = record->members[i].units;
        reservation->made_us = record->at_us;
        reservation->ttl_ms = record->reservation_ttl_ms;
    }
}

/* ---- ops ---- */

static enum submit check_one(struct memory_store *memory, struct op *op)
{
    struct op_member *member = &op->members[0];
    const struct memory_key key = memory_key_of_state(member);
    struct memory_entry *entry = memory_table_find(&memory->table, &key);
    struct state fresh;
    struct view view;
    view_now(memory, member, &view);
    view.slot = op->slot;
    if (entry == NULL) fresh = (struct state){0};
    limit_view(&view, entry != NULL ? &entry->state : &fresh);
    if (view.stale) save_state(memory, &view, entry); /* even if nothing is charged */

    int64_t units = op_decide_one(op, &view);
    if (units == 0 || !op_is_check(op->kind)) return SUBMIT_DECIDED;

    int status = make_state_space(memory, &key, &view, units, &entry);
    if (status == 0) save_state(memory, &view, entry);
    if (entry != NULL) entry->pinned = false;
    return status == 0 ? SUBMIT_DECIDED : SUBMIT_OVERLOAD;
}

/* Any number of limits, which are open; closes them. */
static enum submit check_parts(struct memory_store *memory, struct op *op)
{
    enum submit result = SUBMIT_OVERLOAD;
    struct open_limit *all = memory->opened;
    op->now_us = memory->clock->wall_us;
    save_clamped(memory, op);

    /* How many times all limits of the op fit; 0 = denied. */
    int64_t fit = op->at_most > 0 ? op->at_most : 1;
    for (size_t i = 0; i < op->n_members; i++) {
        int64_t of_this = limit_fits(&all[i].view, op->members[i].cost, fit > 0 ? fit : 1);
        if (of_this < fit) fit = of_this;
    }

    for (size_t i = 0; i < op->n_members; i++) {
        struct view *view = &all[i].view;
        int64_t cost = fit > 1 ? op->members[i].cost * fit : op->members[i].cost;
        bool fits = fit > 0 || limit_fits(view, cost, 1) > 0;
        op->members[i].used = view->used;
        op->members[i].extra = view->extra;
        all[i].units = limit_decide(view, cost, fits, fit > 0, &op->members[i].decision);
        op->members[i].wait_us = view->wait_us;
    }

    for (size_t i = 0; i < op->n_members && !op_is_check(op->kind); i++) {
        all[i].units = 0;
        all[i].view.begins_pause = false;
    }

    if (make_all_space(memory, op) < 0) goto unpin;
    if (fit > 0 && op->record.len > 0 && remember_admission(memory, op) < 0) goto unpin;

    for (size_t i = 0; i < op->n_members; i++) {
        if (all[i].units > 0) save_state(memory, &all[i].view, all[i].entry);
        if (all[i].view.begins_pause) save_pause(all[i].pause, &all[i].view);
    }
    result = SUBMIT_DECIDED;

unpin:
    unpin(memory, op);
    return result;
}

/* Give back to all limits, which are open, as much as there is; close them. */
static enum submit refund_all(struct memory_store *memory, struct op *op)
{
    struct memory_record *record = NULL;
    if (op->record.len > 0) record = memory_records_add(&memory->records, op, memory->clock->wall_us);
    unpin(memory, op);
    if (op->record.len > 0 && record == NULL) return SUBMIT_OVERLOAD;

    for (size_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        struct view view;
        member->refunded = give_back(memory, member, member->cost, memory->clock->wall_us, op->reservation, &view);
        if (limit_has_penalty(member->limit)) limit_pause(&view, member->pause);
        if (record != NULL) record->members[i] = (struct memory_recorded){view.used, view.extra, member->refunded};
        limit_answer(&view, 0, &member->decision);
    }
    return SUBMIT_DECIDED;
}

/* Decide checks, peeks and refunds. */
static enum submit check_all(struct memory_store *memory, struct op *op)
{
    const struct memory_record *record = NULL;
    if (op->record.len > 0) record = memory_records_find(&memory->records, op, memory->clock->wall_us);
    if (record != NULL) {
        answer_known(memory, op, record);
        return SUBMIT_DECIDED;
    }

    open_op(memory, op);
    return op->kind == OP_REFUND ? refund_all(memory, op) : check_parts(memory, op);
}

/* ---- resets and slots ---- */

static bool reset_member(struct memory_store *memory, struct op_member *member)
{
    struct view view;
    struct memory_entry *entry = find_state(memory, member), *pause = NULL;
    view_now(memory, member, &view);
    if (limit_has_penalty(member->limit)) {
        const struct memory_key key = memory_key_of_pause(member);
        pause = memory_table_find(&memory->table, &key);
    }

    if (entry != NULL) {
        limit_view(&view, &entry->state);
        memory_table_remove(&memory->table, entry);
    }
    if (pause != NULL) {
        limit_pause(&view, pause->state.pause);
        memory_table_remove(&memory->table, pause);
    }
    return view.found || view.pause.level > 0;
}

/* Give one slot back, or let its lease begin anew. */
static bool touch_slot(struct memory_store *memory, const struct op *op, struct op_member *member)
{
    struct view view;
    struct memory_entry *entry = find_state(memory, member);
    CHECK(member->limit->algo == ALGO_CONCURRENCY);
    if (entry == NULL) return false;

    view_now(memory, member, &view);
    struct lease_list *leases = entry->state.leases; /* also those that have ended: a late daemon may renew them */
    bool found =
        op->kind == OP_RELEASE ? lease_list_remove(leases, op->slot) : lease_list_move(leases, op->slot, view.edge);
    if (lease_list_len(leases) == 0)
        memory_table_remove(&memory->table, entry);
    else
        entry->expires_us = limit_ops(member->limit)->save(&view, &entry->state);
    return found;
}

/* ---- reservations ---- */

/* The op's list of reservations, pinned and with space for one more; NULL without memory. */
static struct memory_entry *open_reservations(struct memory_store *memory, const struct op *op)
{
    struct op_member *member = &op->members[0];
    const struct memory_key key = op->reservation->is_merge
                                      ? memory_key_of_merges(member)
                                      : memory_key_of_reservations(member->limit, member->reservations_key);
    struct memory_entry *entry = memory_table_find(&memory->table, &key);
    if (entry == NULL)
        entry = memory_table_add(&memory->table, &key, MEMORY_RESERVATIONS_LIFE_S, memory->clock->wall_us);
    if (entry == NULL) return NULL;

    /* A tombstone takes the place of the reservation that is settled. */
    const struct op_reservation *reservation = op->reservation;
    size_t at;
    bool has_space = op->kind == OP_SETTLE && reservation_list_find(entry->reserved, reservation->id,
                                                                    reservation_end_ms(reservation), &at) != NULL;
    bool is_refused = !has_space && op->kind == OP_RESERVE && !memory_table_keeps_more(&memory->table);
    memory->table.n_refused += is_refused;
    if (!has_space && !is_refused) has_space = reservation_list_reserve(&entry->reserved) == 0;
    memory_table_recount(&memory->table, entry);

    entry->pinned = has_space;
    if (has_space) return entry;
    update_reservations(memory, entry);
    return NULL;
}

static void close_reservations(struct memory_store *memory, struct memory_entry *entry)
{
    entry->pinned = false;
    update_reservations(memory, entry);
}

static enum submit reserve_units(struct memory_store *memory, struct op *op)
{
    struct op_reservation *reservation = op->reservation;
    CHECK(reservation != NULL && op->members[0].reservations_key.len > 0);
    struct memory_entry *entry = open_reservations(memory, op);
    if (entry == NULL) return SUBMIT_OVERLOAD;

    char slot[SLOT_ID_LEN];
    reservation_slot(reservation->id, slot);
    op->slot = slot;
    enum submit result = check_all(memory, op);
    op->slot = NULL;
    bool is_new = result == SUBMIT_DECIDED && !reservation->is_known;
    for (size_t i = 0; i < op->n_members; i++) is_new &= op->members[i].decision.allowed;
    if (is_new) {
        reservation->held = true;
        reservation->made_us = memory->clock->wall_us;
        reservation_list_add(entry->reserved, &(struct reserved){.id = reservation->id,
                                                                 .units = reservation->units,
                                                                 .made_us = reservation->made_us,
                                                                 .end_ms = reservation_end_ms(reservation)});
        set_reserved(memory, op);
    }
    close_reservations(memory, entry);
    return result;
}

/* Charges units used beyond the reservation, or returns unused ones, and leaves a tombstone in either case. 0, or -1
 * without memory and nothing changed. */
static int settle_in(struct memory_store *memory, struct op *op, struct memory_entry *entry)
{
    struct op_reservation *reservation = op->reservation;
    size_t at = 0;

    if (reservation->is_merge) {
        /* Drop what a list of merges need not remember any more. */
        for (int n = 0; n < FORGET_AT_ONCE && reservation_list_len(entry->reserved) > 0; n++) {
            if (reservation_list_at(entry->reserved, 0)->end_ms > now_ms_of(memory)) break;
            reservation_list_remove(entry->reserved, 0);
        }
    }

    const struct reserved *found =
        reservation_list_find(entry->reserved, reservation->id, reservation_end_ms(reservation), &at);
    int64_t now_ms = now_ms_of(memory), forgotten_ms = reservation_end_ms(reservation) + RESERVATION_GRACE_MS,
            latest_ms = now_ms + RESERVATION_TTL_MAX_MS + RESERVATION_GRACE_MS;

    bool is_too_far = forgotten_ms > latest_ms; /* the clock stepped back */
    bool is_over = forgotten_ms <= now_ms || (found != NULL ? found->settled : is_too_far);
    reservation->ended = found == NULL || is_over;
    reservation->is_known = found != NULL && found->settled;
    if (is_over) return 0;

    int64_t held = found != NULL ? found->units : 0;
    if (found == NULL || reservation->actual >= held) {
        int64_t charged = charge_used(memory, op, reservation->actual - held);
        if (charged < 0) return -1;
        reservation->charged = charged;
    } else {
        for (size_t i = 0; i < op->n_members; i++) {
            struct view view;
            int64_t unused = held - reservation->actual;
            if (!reservation_holds(reservation, op->members[i].limit)) continue;
            int64_t back = give_back(memory, &op->members[i], unused, found->made_us, NULL, &view);
            if (back > reservation->refunded) reservation->refunded = back;
        }
    }

    if (found != NULL) reservation_list_remove(entry->reserved, at);
    reservation_list_add(entry->reserved, &(struct reserved){.id = reservation->id,
                                                             .end_ms = is_too_far ? latest_ms : forgotten_ms,
                                                             .settled = true,
                                                             .moved = is_too_far});
    return 0;
}

static enum submit settle_reservation(struct memory_store *memory, struct op *op)
{
    CHECK(op->reservation != NULL);
    CHECK(op->reservation->is_merge ? op->n_members == 1 : op->members[0].reservations_key.len > 0);
    op->reservation->refunded = op->reservation->charged = 0;
    struct memory_entry *entry = open_reservations(memory, op);
    if (entry == NULL) return SUBMIT_OVERLOAD;

    open_op(memory, op);
    int status = settle_in(memory, op, entry);

    if (status == 0 && !op->reservation->is_merge) {
        /* Gives back the slots of that reservation. */
        for (size_t i = 0; i < op->n_members; i++) end_slot(memory, &op->members[i], op->reservation->id);
    }

    set_reserved(memory, op);
    unpin(memory, op);
    close_reservations(memory, entry);
    if (status != 0) return SUBMIT_OVERLOAD;

    open_limits(memory, op); /* once more, with what was charged or given back; what had ended is back already */
    return check_parts(memory, op);
}

/* ---- the store ---- */

/* Before an op of an exact store: is there more than its bytes, even without what is over? */
static bool is_over_bytes(struct memory_store *memory)
{
    if (n_bytes(memory) <= memory->table.max_bytes) return false;
    memory_table_sweep(&memory->table, memory->table.n, memory->clock->wall_us);
    return n_bytes(memory) > memory->table.max_bytes;
}

static enum submit on_submit(void *store, struct op *op)
{
    struct memory_store *memory = store;
    enum submit result = SUBMIT_DECIDED;
    CHECK(op->n_members >= 1 && op->n_members <= POLICY_LIMITS_MAX);
    if (memory->is_down && op->kind != OP_RENEW) return SUBMIT_DOWN; /* a slot is held, whatever time passes */
    if (memory->exact && is_over_bytes(memory)) return SUBMIT_OVERLOAD;
    op->source = SOURCE_MEMORY;

    bool is_one = op->n_members == 1 && op->record.len == 0 && memory->table.n_reserved_lists == 0 &&
                  !limit_has_penalty(op->members[0].limit);
    switch (op->kind) {
    case OP_RESET:
        for (size_t i = 0; i < op->n_members; i++) op->members[i].removed = reset_member(memory, &op->members[i]);
        break;
    case OP_RELEASE:
    case OP_RENEW:
        for (size_t i = 0; i < op->n_members; i++) op->members[i].found = touch_slot(memory, op, &op->members[i]);
        break;
    case OP_RESERVE: result = reserve_units(memory, op); break;
    case OP_SETTLE: result = settle_reservation(memory, op); break;
    case OP_REFUND: result = check_all(memory, op); break;
    default: result = is_one ? check_one(memory, op) : check_all(memory, op); break;
    }

    while (n_bytes(memory) > memory->table.max_bytes && !memory->exact)
        if (!memory_table_evict(&memory->table, memory->clock->wall_us)) break;
    update_counters(memory);
    return result;
}

static void on_prefetch(void *store, struct op *op)
{
    struct memory_store *memory = store;
    memory_table_prefetch(&memory->table, op_member_hash(&op->members[0]));
}

/* How many entries to look at in this tick: enough to remove expired keys faster than new ones come. It grows with the
 * time passed, not with the number of ticks, so that a busy daemon does not walk the table all the time, and an idle
 * one is not woken for it. */
static size_t sweep_budget(struct memory_store *memory)
{
    int64_t now_us = memory->clock->mono_us;
    size_t n = memory->table.n_added * SWEEP_PER_ADDED;
    memory->table.n_added = 0;

    if (n > SWEEP_ADDED_MAX) n = SWEEP_ADDED_MAX;
    if (memory->table.n_stale > 0) return n + SWEEP_STALE;
    if (!memory->sweep) return 0;

    int64_t passed_ms = (now_us - memory->swept_us) / 1000;
    if (passed_ms < 1 && memory->many_expired) passed_ms = 1;
    if (passed_ms < 1) return n;
    memory->swept_us = now_us;
    return n + (passed_ms < SWEEP_STEP_MAX / SWEEP_PER_MS ? (size_t)passed_ms * SWEEP_PER_MS : SWEEP_STEP_MAX);
}

static void on_flush(void *store)
{
    struct memory_store *memory = store;
    int64_t now_us = memory->sweep ? memory->clock->wall_us : INT64_MIN;
    size_t n = sweep_budget(memory);
    if (n > 0) {
        size_t n_expired = memory_table_sweep(&memory->table, n, now_us);
        if (memory->counted) memory_counters.memory_expired += n_expired;
        memory->many_expired = n_expired * 4 >= n;
    }
    memory_records_sweep(&memory->records, SWEEP_RECORDS, now_us);

    for (size_t i = 0; i < EVICT_STEP && memory_table_is_over(&memory->table) && !memory->exact; i++)
        if (!memory_table_evict(&memory->table, memory->clock->wall_us)) break;
    update_counters(memory);
}

static void on_test(void *store, enum store_test what)
{
    struct memory_store *memory = store;
    memory->is_down = what == STORE_TEST_DOWN;
    if (what == STORE_TEST_CLEAR) memory_store_clear(memory);
}

/* ---- walks ---- */

enum { STEPS_OF_SLOT = 1, STEPS_OF_ENTRY = 32 };

static size_t limit_of_entry(const struct memory_entry *entry, const struct store_walk *walk)
{
    size_t i = 0;
    for (; i < walk->n_limits; i++) {
        const struct limit *limit = walk->limits[i];
        if (entry->kind == (uint8_t)limit->algo && entry->epoch == limit->epoch &&
            entry->head_len == limit->key_head_len && memcmp(entry->name, limit->key_head, entry->head_len) == 0)
            break;
    }
    return i;
}

/* In the order of the map's slots: an entry stays in its slot as long as it is there, because the map never grows. */
static void on_walk(void *store, struct store_walk *walk)
{
    struct memory_store *memory = store;
    struct memory_table *table = &memory->table;
    for (; walk->at < table->map.n_slots && walk->steps > 0; walk->at++) {
        walk->steps -= STEPS_OF_SLOT;
        for (struct map_node *node = table->map.slots[walk->at], *next; node != NULL; node = next) {
            struct memory_entry *entry = CONTAINER_OF(node, struct memory_entry, node);
            const struct slice id = {entry->name + entry->head_len, entry->key_len};
            size_t i = limit_of_entry(entry, walk);
            next = node->next;
            walk->steps -= STEPS_OF_ENTRY;
            if (i == walk->n_limits || !memory_entry_counts(table, entry, memory->clock->wall_us)) continue;
            if (walk->found(walk, i, id)) memory_table_remove(table, entry);
        }
    }

    if (walk->at >= table->map.n_slots) walk->at = STORE_WALK_OVER;
    update_counters(memory);
}

static void on_close(void *store, void (*on_closed)(void *arg), void *arg)
{
    memory_store_free(store);
    on_closed(arg);
}

struct store memory_store_handle(struct memory_store *memory)
{
    static const struct store_ops ops = {.submit = on_submit,
                                         .prefetch = on_prefetch,
                                         .flush = on_flush,
                                         .test = on_test,
                                         .walk = on_walk,
                                         .close = on_close};
    return (struct store){.ops = &ops, .impl = memory, .source = SOURCE_MEMORY};
}

void memory_store_clear(struct memory_store *memory)
{
    memory_table_forget_all(&memory->table);
    memory_records_forget_all(&memory->records);
    update_counters(memory);
}

void memory_store_set_max_keys(struct memory_store *memory, uint64_t max)
{
    uint64_t width = memory->table.width - MEMORY_TABLE_SPARE;
    memory->table.max_keys = max < 1 ? 1 : max < width ? max : width;
    memory->records.max = memory->table.max_keys;
}

size_t memory_store_n_keys(const struct memory_store *memory)
{
    return memory->table.n - memory->table.n_stale;
}
