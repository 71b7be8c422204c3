/*
 * memory_check.c: an op on limits decided on the spot, by the same steps as the script's (lua/batch.lua):
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
 * set has none: that is all that a check of a key without reservations looks at.
 */
#include "store/memory_check.h"

#include "base/assert.h"
#include "base/units.h"
#include "limit/concurrency.h"

enum { TAKE_MAX = 64 };

struct memory_entry *memory_find_state(struct memory_store *memory, struct op_member *member)
{
    const struct memory_key key = memory_key_of_state(member);
    return memory_table_find(&memory->table, &key);
}

int64_t memory_now_ms(const struct memory_store *memory)
{
    return memory->clock->wall_us / 1000;
}

void memory_view_now(struct memory_store *memory, const struct op_member *member, struct view *view)
{
    limit_here(view, member->limit, member->key, member->max_wait_us, memory->clock->wall_us);
}

/* ---- giving back ---- */

/* `undone`: that charge is taken back; NULL: units of charged_us are. A string state without units becomes a fresh one
 * (the script deletes it): otherwise a clock that steps back would find it. */
static int64_t give_back(struct memory_store *memory, struct op_member *member, int64_t units, int64_t charged_us,
                         const struct op_reservation *undone, struct view *view)
{
    struct memory_entry *entry = memory_find_state(memory, member);
    memory_view_now(memory, member, view);
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

int64_t memory_give_back(struct memory_store *memory, struct op_member *member, int64_t units, int64_t charged_us,
                         struct view *ret_view)
{
    return give_back(memory, member, units, charged_us, NULL, ret_view);
}

static void end_slot(struct memory_store *memory, struct op_member *member, uint64_t id)
{
    char slot[SLOT_ID_LEN];
    struct view view;
    struct memory_entry *entry = memory_find_state(memory, member);
    if (entry == NULL || member->limit->algo != ALGO_CONCURRENCY) return;

    reservation_slot(id, slot);
    memory_view_now(memory, member, &view);
    if (concurrency_release(&entry->state, slot))
        entry->expires_us = limit_ops(member->limit)->save(&view, &entry->state);
}

void memory_end_slots(struct memory_store *memory, const struct op *op, uint64_t id)
{
    for (size_t i = 0; i < op->n_members; i++) end_slot(memory, &op->members[i], id);
}

void memory_set_reserved(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++)
        if (memory->opened[i].entry != NULL) memory->opened[i].entry->reserves = true;
}

void memory_update_reservations(struct memory_store *memory, struct memory_entry *entry)
{
    size_t n = reservation_list_len(entry->reserved);
    if (n == 0 && !entry->pinned) {
        memory_table_remove(&memory->table, entry);
        return;
    }

    int64_t last_ms = n > 0 ? reservation_list_at(entry->reserved, n - 1)->end_ms : memory_now_ms(memory);
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
        if (reservation.end_ms > memory_now_ms(memory)) break;

        reservation_list_remove(entry->reserved, 0);
        struct view view;
        for (size_t i = from; i < end && !reservation.settled; i++) {
            end_slot(memory, &op->members[i], reservation.id);
            if (!limit_takes_one(op->members[i].limit))
                memory_give_back(memory, &op->members[i], reservation.units, reservation.made_us, &view);
        }
    }
    if (n_taken > 0) memory_update_reservations(memory, entry);
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
        memory_view_now(memory, member, &opened->view);
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

void memory_open(struct memory_store *memory, const struct op *op)
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

void memory_unpin(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        if (memory->opened[i].entry != NULL) memory->opened[i].entry->pinned = false;
        if (memory->opened[i].pause != NULL) memory->opened[i].pause->pinned = false;
    }
}

/* ---- decide ---- */

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

/* Makes an entry for the pause that a check begins. 0, or -1 without memory. */
static int make_pause_space(struct memory_store *memory, struct op_member *member, struct open_limit *opened)
{
    if (opened->pause != NULL || !opened->view.begins_pause) return 0;
    const struct memory_key key = memory_key_of_pause(member);
    opened->pause = memory_table_add(&memory->table, &key, 0, memory->clock->wall_us);
    return opened->pause != NULL ? 0 : -1;
}

/* 0, or -1 without memory, nothing changed. */
static int make_all_space(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        struct open_limit *opened = &memory->opened[i];
        if (make_state_space(memory, &opened->key, &opened->view, opened->units, &opened->entry) < 0) return -1;
        if (make_pause_space(memory, &op->members[i], opened) < 0) return -1;
    }
    return 0;
}

int64_t memory_charge_used(struct memory_store *memory, const struct op *op, int64_t units)
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
    if (!is_same) memory_open(memory, op);

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
    if (!is_same) memory_unpin(memory, op);

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

enum submit memory_check_one(struct memory_store *memory, struct op *op)
{
    struct op_member *member = &op->members[0];
    const struct memory_key key = memory_key_of_state(member);
    struct memory_entry *entry = memory_table_find(&memory->table, &key);
    struct state fresh;
    struct view view;
    memory_view_now(memory, member, &view);
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
    memory_unpin(memory, op);
    return result;
}

/* Give back to all limits, which are open, as much as there is; close them. */
static enum submit refund_all(struct memory_store *memory, struct op *op)
{
    struct memory_record *record = NULL;
    if (op->record.len > 0) record = memory_records_add(&memory->records, op, memory->clock->wall_us);
    memory_unpin(memory, op);
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

enum submit memory_check(struct memory_store *memory, struct op *op)
{
    const struct memory_record *record = NULL;
    if (op->record.len > 0) record = memory_records_find(&memory->records, op, memory->clock->wall_us);
    if (record != NULL) {
        answer_known(memory, op, record);
        return SUBMIT_DECIDED;
    }

    memory_open(memory, op);
    return op->kind == OP_REFUND ? refund_all(memory, op) : check_parts(memory, op);
}

enum submit memory_check_again(struct memory_store *memory, struct op *op)
{
    open_limits(memory, op);
    return check_parts(memory, op);
}
