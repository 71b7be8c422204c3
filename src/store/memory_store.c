/*
 * memory_store.c: the memory store: its bounds, its sweeping, and its ops other than checks, which are in
 * memory_check.c.
 *
 * A reservation is an entry in the list of its policy and key. Settled, it leaves a tombstone there.
 */
#include "store/memory_store.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "limit/concurrency.h"
#include "store/memory_check.h"
#include "store/memory_counters.h"

COUNTERS_DEFINE(memory, MEMORY_COUNTERS);

enum {
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

/* ---- resets and slots ---- */

static bool reset_member(struct memory_store *memory, struct op_member *member)
{
    struct view view;
    struct memory_entry *entry = memory_find_state(memory, member), *pause = NULL;
    memory_view_now(memory, member, &view);
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
    struct memory_entry *entry = memory_find_state(memory, member);
    CHECK(member->limit->algo == ALGO_CONCURRENCY);
    if (entry == NULL) return false;

    memory_view_now(memory, member, &view);
    bool found = op->kind == OP_RELEASE ? concurrency_release(&entry->state, op->slot)
                                        : concurrency_renew(&view, &entry->state, op->slot);
    if (concurrency_is_empty(&entry->state))
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
    memory_update_reservations(memory, entry);
    return NULL;
}

static void close_reservations(struct memory_store *memory, struct memory_entry *entry)
{
    entry->pinned = false;
    memory_update_reservations(memory, entry);
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
    enum submit result = memory_check(memory, op);
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
        memory_set_reserved(memory, op);
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
            if (reservation_list_at(entry->reserved, 0)->end_ms > memory_now_ms(memory)) break;
            reservation_list_remove(entry->reserved, 0);
        }
    }

    const struct reserved *found =
        reservation_list_find(entry->reserved, reservation->id, reservation_end_ms(reservation), &at);
    int64_t now_ms = memory_now_ms(memory), forgotten_ms = reservation_end_ms(reservation) + RESERVATION_GRACE_MS,
            latest_ms = now_ms + RESERVATION_TTL_MAX_MS + RESERVATION_GRACE_MS;

    bool is_too_far = forgotten_ms > latest_ms; /* the clock stepped back */
    bool is_over = forgotten_ms <= now_ms || (found != NULL ? found->settled : is_too_far);
    reservation->ended = found == NULL || is_over;
    reservation->is_known = found != NULL && found->settled;
    if (is_over) return 0;

    int64_t held = found != NULL ? found->units : 0;
    if (found == NULL || reservation->actual >= held) {
        int64_t charged = memory_charge_used(memory, op, reservation->actual - held);
        if (charged < 0) return -1;
        reservation->charged = charged;
    } else {
        for (size_t i = 0; i < op->n_members; i++) {
            struct view view;
            int64_t unused = held - reservation->actual;
            if (!reservation_holds(reservation, op->members[i].limit)) continue;
            int64_t back = memory_give_back(memory, &op->members[i], unused, found->made_us, &view);
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

    memory_open(memory, op);
    int status = settle_in(memory, op, entry);
    if (status == 0 && !op->reservation->is_merge) memory_end_slots(memory, op, op->reservation->id);
    memory_set_reserved(memory, op);
    memory_unpin(memory, op);
    close_reservations(memory, entry);
    return status == 0 ? memory_check_again(memory, op) : SUBMIT_OVERLOAD;
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
    case OP_REFUND: result = memory_check(memory, op); break;
    default: result = is_one ? memory_check_one(memory, op) : memory_check(memory, op); break;
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
