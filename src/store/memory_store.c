/*
 * memory_store.c: an op decided on the spot, by the same steps as the script's (lua/batch.lua):
 *
 *   open     each member's state as of now, or a fresh one; members of one key share it
 *   decide   do all members fit? then each one's answer and what it is charged
 *   write    states that were charged or clamped go back into the table
 *
 * Everything that can fail for want of memory happens before the first state is changed.
 *
 * A check with a note that is there already gets its answer from the note alone (memory_notes.h).
 */
#include "store/memory_private.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"
#include "limit/concurrency.h"

enum {
    SWEEP_PER_ADDED = 2, /* more than one, so that a table never fills with expired keys */
    SWEEP_ADDED_MAX = 4096,
    SWEEP_PER_MS = 32,    /* beside, by the time that has passed */
    SWEEP_STEP_MAX = 256, /* but in one turn no more */
    SWEEP_STALE = 256,    /* looked at in one turn while forgotten keys are left */
    EVICT_STEP = 64,      /* in one turn, after the bounds were lowered */
    SWEEP_NOTES = 64,     /* looked at in one turn */
    NOTES_SHARE = 4,      /* notes have this part of the bytes, and what they take is not there for states */
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
    memory->counted = options->counted;
    if (memory_table_init(&memory->table, max_keys, max_bytes) < 0) goto err_free;
    if (memory_notes_init(&memory->notes, max_keys, max_bytes / NOTES_SHARE) < 0) goto err_fini_table;
    return memory;

err_fini_table:
    memory_table_fini(&memory->table);
err_free:
    mem_free(memory);
    return NULL;
}

void memory_store_free(struct memory_store *memory)
{
    memory_notes_fini(&memory->notes);
    memory_table_fini(&memory->table);
    mem_free(memory);
}

static uint64_t n_bytes(const struct memory_store *memory)
{
    return memory->table.n_bytes + memory->notes.n_bytes;
}

static void update_gauges(const struct memory_store *memory)
{
    if (!memory->counted) return;
    counters.memory_keys = memory_store_n_keys(memory);
    counters.memory_bytes = n_bytes(memory);
}

static bool same_key(const struct op_member *a, const struct op_member *b)
{
    const struct limit *x = a->limit, *y = b->limit;
    return x->algo == y->algo && x->key_head_len == y->key_head_len &&
           memcmp(x->key_head, y->key_head, x->key_head_len) == 0 && slice_eq(a->key, b->key);
}

static struct state *state_of(struct seat *seat)
{
    return seat->entry != NULL ? &seat->entry->state : &seat->fresh;
}

static void open_seat(struct memory_store *memory, const struct op *op, size_t i)
{
    const struct op_member *member = &op->members[i];
    struct seat *seat = &memory->seats[i];
    seat->first = seat;
    limit_run_here(&seat->run, member->limit, member->key, member->max_wait_us, memory->clock->wall_us);
    seat->run.slot = op->slot;
    for (size_t j = 0; j < i && seat->first == seat; j++)
        if (same_key(&op->members[j], member)) seat->first = memory->seats[j].first;
    if (seat->first != seat) return;
    seat->entry = memory_table_find(&memory->table, member->limit, member->key);
    seat->fresh = (struct state){0};
    seat->units = 0;
    if (seat->entry != NULL) seat->entry->pinned = true;
    limit_ops(member->limit)->view(&seat->run, state_of(seat), &seat->seen1, &seat->seen2, &seat->keep);
    seat->s1 = seat->seen1;
    seat->s2 = seat->seen2;
}

static void open_seats(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) open_seat(memory, op, i);
}

void memory_open(struct memory_store *memory, const struct op *op)
{
    open_seats(memory, op);
    if (memory->table.n_holds > 0 && memory_holds_take_ended(memory, op)) open_seats(memory, op);
}

static bool fits(const struct seat *seat, int64_t cost)
{
    return limit_fits(&seat->run, seat->first->s1, seat->first->s2, cost, 1) > 0;
}

/* How many times do all members fit, each beside the ones before it? 0 = denied. */
static int64_t fit_of(struct memory_store *memory, const struct op *op)
{
    int64_t fit = op->at_most > 0 ? op->at_most : 1;
    for (size_t i = 0; i < op->n_members; i++) {
        struct seat *seat = &memory->seats[i], *first = seat->first;
        int64_t cost = op->members[i].cost;
        int64_t of_this = limit_fits(&seat->run, first->s1, first->s2, cost, fit > 0 ? fit : 1);
        if (of_this < fit) fit = of_this;
        if (of_this > 0 && cost > 0 && op->n_members > 1)
            limit_ops(op->members[i].limit)->charge(&seat->run, &first->s1, &first->s2, cost);
    }
    for (size_t i = 0; i < op->n_members; i++) {
        memory->seats[i].s1 = memory->seats[i].seen1;
        memory->seats[i].s2 = memory->seats[i].seen2;
    }
    return fit;
}

static void answer_member(struct seat *seat, struct op_member *member, int64_t cost, bool admitted)
{
    const struct algo_ops *ops = limit_ops(member->limit);
    struct seat *first = seat->first;
    bool fitting = fits(seat, cost);
    int64_t s1 = first->s1, s2 = first->s2, wait = 0;
    member->seen1 = first->seen1;
    member->seen2 = first->seen2;
    bool filled = !admitted && member->limit->count_denied && ops->room(&seat->run, s1, s2) < 2 * cost;
    if ((!fitting || filled) && ops->has_wait && cost <= member->limit->full)
        wait = ops->wait(&seat->run, state_of(first), s1, cost);
    int64_t units = limit_decide(&seat->run, &s1, &s2, cost, admitted, wait, &member->decision);
    first->units += units;
    /* In a denied op the next member of this key still stands beside this one. */
    if (units == 0 && fitting && cost > 0) ops->charge(&seat->run, &s1, &s2, cost);
    first->s1 = s1;
    first->s2 = s2;
}

static struct memory_entry *add_entry(struct memory_store *memory, const struct op_member *member)
{
    size_t n_before = memory->table.n;
    struct memory_entry *entry = memory_table_add(&memory->table, member->limit, member->key, memory->clock->wall_us);
    if (entry == NULL) return NULL;
    entry->held = memory->table.n_holds > 0;
    memory->n_added++;
    if (memory->counted) counters.memory_evicted += memory->table.n == n_before;
    return entry;
}

/* Whatever the writing needs of memory, for all members. 0, or -1 without it. */
static int make_room(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        struct seat *seat = &memory->seats[i];
        const struct op_member *member = &op->members[i];
        const struct algo_ops *ops = limit_ops(member->limit);
        if (seat->first != seat || seat->units == 0) continue;
        if (seat->entry == NULL) seat->entry = add_entry(memory, member);
        if (seat->entry == NULL) return -1;
        if (ops->reserve != NULL && ops->reserve(&seat->run, &seat->entry->state, seat->units) < 0) return -1;
    }
    return 0;
}

static int write_states(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++) {
        struct seat *seat = &memory->seats[i];
        if (seat->first != seat || (seat->units == 0 && seat->keep >= 0)) continue;
        const struct algo_ops *ops = limit_ops(op->members[i].limit);
        struct state *state = &seat->entry->state;
        if (ops->store(&seat->run, state, seat->seen1, seat->seen2, seat->keep, seat->units) < 0) return -1;
        int64_t expires_us = ops->expires(&seat->run, state);
        if (expires_us > memory->clock->wall_us + seat->entry->life_us)
            memory_table_relimit(seat->entry, op->members[i].limit);
        memory_table_update(&memory->table, seat->entry, expires_us);
    }
    return 0;
}

static void evict(struct memory_store *memory)
{
    if (!memory_table_evict(&memory->table, memory->clock->wall_us)) return;
    if (memory->counted) counters.memory_evicted++;
}

/* The op's record, its members for the caller to fill; NULL without memory. */
static struct memory_note *add_note(struct memory_store *memory, const struct op *op)
{
    size_t n_evicted;
    struct memory_note *note = memory_notes_add(&memory->notes, op, memory->clock->wall_us, &n_evicted);
    if (note != NULL && memory->counted) counters.memory_evicted += n_evicted;
    return note;
}

/* An admission that was charged something is remembered. 0, or -1 without memory. */
static int remember(struct memory_store *memory, const struct op *op)
{
    bool any = false;
    for (size_t i = 0; i < op->n_members; i++) any |= memory->seats[i].units > 0;
    if (!any) return 0;
    struct memory_note *note = add_note(memory, op);
    if (note == NULL) return -1;
    for (size_t i = 0; i < op->n_members; i++) {
        const struct seat *seat = &memory->seats[i];
        note->members[i] = (struct memory_noted){seat->seen1, seat->seen2, seat->units};
    }
    return 0;
}

/* The answer that the note's check got. */
static void answer_as_then(struct op *op, const struct memory_note *note)
{
    for (size_t i = 0; i < op->n_members; i++) {
        struct op_member *member = &op->members[i];
        const struct memory_noted *noted = &note->members[i];
        struct run run;
        limit_run_here(&run, member->limit, member->key, member->max_wait_us, note->at_us);
        int64_t charged = op->kind == OP_REFUND ? 0 : noted->units;
        limit_answer_again(&run, noted->s1, noted->s2, charged, charged, &member->decision);
    }
}

/* The policies have changed since: what was charged stands, all else is as it is now. */
static void answer_otherwise(const struct memory_store *memory, struct op *op, const struct memory_note *note)
{
    for (size_t i = 0; i < op->n_members; i++) {
        const struct seat *seat = &memory->seats[i];
        const struct memory_noted *noted = &note->members[i < note->n_members ? i : note->n_members - 1U];
        int64_t granted = op->kind == OP_REFUND ? 0 : noted->units;
        limit_answer_again(&seat->run, seat->seen1, seat->seen2, 0, granted, &op->members[i].decision);
    }
}

/* What the first one gave back, or reserved. */
static void take_known(struct op *op, const struct memory_note *note)
{
    for (size_t i = 0; i < op->n_members && op->kind == OP_REFUND; i++)
        op->members[i].refunded = note->members[i < note->n_members ? i : note->n_members - 1U].units;
    if (op->kind != OP_RESERVE) return;

    struct op_hold *hold = op->hold;
    hold->held = hold->is_known = true;
    hold->id = note->hold_id;
    hold->units = note->members[0].units;
    hold->made_us = note->at_us;
    hold->ttl_ms = note->hold_ttl_ms;
}

static int decide(struct memory_store *memory, struct op *op)
{
    op->now_us = memory->clock->wall_us;
    int64_t fit = fit_of(memory, op);
    for (size_t i = 0; i < op->n_members; i++) {
        int64_t cost = op->members[i].cost * (fit > 0 ? fit : 1);
        answer_member(&memory->seats[i], &op->members[i], cost, fit > 0);
    }
    if (!op_is_check(op->kind))
        for (size_t i = 0; i < op->n_members; i++) memory->seats[i].units = 0;
    if (make_room(memory, op) < 0) return -1;
    if (fit > 0 && op->note.len > 0 && remember(memory, op) < 0) return -1;
    return write_states(memory, op);
}

/* Of all members as much as there is. What is as good as fresh then is made so, lest a clock that steps back find it.
 */
static int refund(struct memory_store *memory, struct op *op)
{
    struct memory_note *note = op->note.len > 0 ? add_note(memory, op) : NULL;
    if (op->note.len > 0 && note == NULL) return -1;
    for (size_t i = 0; i < op->n_members; i++) {
        struct seat *seat = &memory->seats[i];
        struct op_member *member = &op->members[i];
        const struct algo_ops *ops = limit_ops(member->limit);
        struct state *state = state_of(seat);
        int64_t s1 = seat->seen1, s2 = seat->seen2;
        member->refunded = ops->refund(&seat->run, state, &s1, &s2, member->cost, seat->run.now_us);
        if (note != NULL) note->members[i] = (struct memory_noted){s1, s2, member->refunded};
        bool changed = member->refunded > 0 || seat->keep < 0, fresh = s1 == 0 && s2 == 0 && state->log == NULL;
        limit_decide(&seat->run, &s1, &s2, 0, true, 0, &member->decision);
        if (!changed) continue;
        if (fresh)
            *state = (struct state){0};
        else if (ops->store(&seat->run, state, s1, s2, seat->keep, 0) < 0)
            return -1;
        memory_table_update(&memory->table, seat->entry, ops->expires(&seat->run, state));
    }
    return 0;
}

int memory_write(struct memory_store *memory, const struct op *op)
{
    return make_room(memory, op) == 0 ? write_states(memory, op) : -1;
}

void memory_unpin(struct memory_store *memory, const struct op *op)
{
    for (size_t i = 0; i < op->n_members; i++)
        if (memory->seats[i].first == &memory->seats[i] && memory->seats[i].entry != NULL)
            memory->seats[i].entry->pinned = false;
}

enum submit memory_decide(struct memory_store *memory, struct op *op)
{
    int result = 0;
    const struct memory_note *note = NULL;
    if (op->note.len > 0) note = memory_notes_find(&memory->notes, op, memory->clock->wall_us);
    if (note != NULL) take_known(op, note);
    if (note != NULL && note->version == op_version(op) && note->n_members == op->n_members) {
        answer_as_then(op, note);
        return SUBMIT_DECIDED;
    }
    memory_open(memory, op);
    if (note != NULL)
        answer_otherwise(memory, op, note);
    else
        result = op->kind == OP_REFUND ? refund(memory, op) : decide(memory, op);
    memory_unpin(memory, op);
    return result == 0 ? SUBMIT_DECIDED : SUBMIT_OVERLOAD;
}

enum submit memory_answer(struct memory_store *memory, struct op *op)
{
    open_seats(memory, op);
    int result = decide(memory, op);
    memory_unpin(memory, op);
    return result == 0 ? SUBMIT_DECIDED : SUBMIT_OVERLOAD;
}

static bool reset_member(struct memory_store *memory, const struct op_member *member)
{
    struct memory_entry *entry = memory_table_find(&memory->table, member->limit, member->key);
    if (entry == NULL) return false;
    struct run run;
    int64_t s1, s2, keep;
    limit_run_here(&run, member->limit, member->key, member->max_wait_us, memory->clock->wall_us);
    limit_ops(member->limit)->view(&run, &entry->state, &s1, &s2, &keep);
    memory_table_remove(&memory->table, entry);
    return keep != 0;
}

/* Of one slot: give it back, or let its lease begin anew. */
static bool touch_slot(struct memory_store *memory, const struct op *op, const struct op_member *member)
{
    struct memory_entry *entry = memory_table_find(&memory->table, member->limit, member->key);
    CHECK(member->limit->algo == ALGO_CONCURRENCY);
    if (entry == NULL) return false;
    struct run run;
    limit_run_here(&run, member->limit, member->key, member->max_wait_us, memory->clock->wall_us);
    bool found = op->kind == OP_RELEASE ? concurrency_release(&entry->state, op->slot)
                                        : concurrency_renew(&run, &entry->state, op->slot);
    if (concurrency_is_empty(&entry->state))
        memory_table_remove(&memory->table, entry);
    else
        memory_table_update(&memory->table, entry, limit_ops(member->limit)->expires(&run, &entry->state));
    return found;
}

static enum submit on_submit(void *store, struct op *op)
{
    struct memory_store *memory = store;
    enum submit result = SUBMIT_DECIDED;
    CHECK(op->n_members >= 1 && op->n_members <= POLICY_LIMITS_MAX);
    switch (op->kind) {
    case OP_RESET:
        for (size_t i = 0; i < op->n_members; i++) op->members[i].removed = reset_member(memory, &op->members[i]);
        break;
    case OP_RELEASE:
    case OP_RENEW:
        for (size_t i = 0; i < op->n_members; i++) op->members[i].found = touch_slot(memory, op, &op->members[i]);
        break;
    case OP_RESERVE: result = memory_reserve(memory, op); break;
    case OP_SETTLE: result = memory_settle(memory, op); break;
    default: result = memory_decide(memory, op); break;
    }
    while (n_bytes(memory) > memory->table.max_bytes && memory->table.n > 0) evict(memory);
    update_gauges(memory);
    return result;
}

/* So much per turn that expired keys go faster than new ones come; and as the time passes, not as the turns do, so
 * that a busy daemon does not walk the table all the time and an idle one is not woken for it. */
static size_t sweep_budget(struct memory_store *memory)
{
    int64_t now_us = memory->clock->mono_us;
    size_t n = memory->n_added * SWEEP_PER_ADDED;
    memory->n_added = 0;
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
    size_t n = sweep_budget(memory);
    if (n > 0) {
        int64_t now_us = memory->sweep ? memory->clock->wall_us : INT64_MIN;
        size_t n_expired = memory_table_sweep(&memory->table, n, now_us);
        if (memory->counted) counters.memory_expired += n_expired;
        memory->many_expired = n_expired * 4 >= n;
    }
    memory_notes_sweep(&memory->notes, SWEEP_NOTES, memory->sweep ? memory->clock->wall_us : INT64_MIN);
    for (size_t i = 0; i < EVICT_STEP && memory_table_is_over(&memory->table); i++) evict(memory);
    size_t n_notes = memory_notes_trim(&memory->notes);
    if (memory->counted) counters.memory_evicted += n_notes;
    update_gauges(memory);
}

static void on_close(void *store, void (*on_closed)(void *arg), void *arg)
{
    memory_store_free(store);
    on_closed(arg);
}

struct store memory_store_handle(struct memory_store *memory)
{
    static const struct store_ops ops = {.submit = on_submit, .flush = on_flush, .close = on_close};
    return (struct store){.ops = &ops, .impl = memory, .source = SOURCE_MEMORY};
}

void memory_store_clear(struct memory_store *memory)
{
    memory_table_forget_all(&memory->table);
    memory_notes_forget_all(&memory->notes);
    update_gauges(memory);
}

void memory_store_set_max_keys(struct memory_store *memory, uint64_t max)
{
    uint64_t width = memory->table.width - MEMORY_TABLE_SPARE;
    memory->table.max_keys = max < 1 ? 1 : max < width ? max : width;
    memory->notes.max = memory->table.max_keys;
}

size_t memory_store_n_keys(const struct memory_store *memory)
{
    return memory->table.n - memory->table.n_stale;
}
