/* slots.c: slots by id, by request id and by what is due, and the leases that the store has of them, for engine.c. */
#include "engine/slots.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/random.h"
#include "engine/check.h"
#include "engine/failure.h"
#include "limit/lease_list.h"

COUNTERS_DEFINE(slots, SLOTS_COUNTERS);

enum {
    RETRY_US = 100000, /* between looks whether the store is back */
    ASKED_PER_TICK = 256,
    COMMON_BYTES = 128, /* keys of a slot that is kept for later */
    IDLE_MAX = 1024,
    RENEWALS = 3, /* of a lease within its time: it outlives one that comes late */
    SPREAD = 4,   /* less up to a quarter of that, so that leases that began together do not stay so */
};

int slots_init(struct slots *slots, const struct clock *clock, struct store *store, struct failure *failure,
               struct calls *calls, struct policy_set *set, const struct slots_options *options)
{
    *slots = (struct slots){
        .clock = clock, .store = store, .failure = failure, .calls = calls, .set = set, .options = *options};
    list_init(&slots->held);
    list_init(&slots->left);
    list_init(&slots->idle);
    heap_init(&slots->due);
    deadlines_init(&slots->locals);

    if (map_init(&slots->by_id, options->max) < 0) return -1;
    if (map_init(&slots->by_request, options->max) < 0) goto err_fini_ids;
    return 0;

err_fini_ids:
    map_fini(&slots->by_id);
    return -1;
}

void slots_fini(struct slots *slots)
{
    CHECK(slots->n == 0);
    for (struct list *it; (it = list_pop_front(&slots->idle)) != NULL;) mem_free(LIST_ITEM(it, struct slot, all_link));
    map_fini(&slots->by_id);
    map_fini(&slots->by_request);
    heap_fini(&slots->due);
    deadlines_fini(&slots->locals);
}

void slot_owner_init(struct slot_owner *owner)
{
    list_init(&owner->held);
    owner->n = 0;
    owner->n_shared = NULL;
}

/* ---- one slot's memory ---- */

/* No daemon draws an id twice, or one of another daemon: a part drawn at start, and a number that is mixed but not
 * repeated. */
static void make_id(struct slots *slots, char id[SLOT_ID_LEN])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number = random_mix(hash_keyed("slot number", 11) + slots->n_made++);
    uint64_t halves[2] = {hash_keyed("slot daemon", 11), number};
    for (size_t i = 0; i < SLOT_ID_LEN; i++) id[i] = digits[halves[i / 16] >> 4 * (i % 16) & 0xf];
}

/* Memory for a slot, of the idle ones if it fits; zero but for its number of bytes. NULL without memory. */
static struct slot *take_memory(struct slots *slots, uint16_t n_members, size_t n_bytes)
{
    bool is_common = n_members == 1 && n_bytes <= COMMON_BYTES;
    struct list *idle = is_common ? list_pop_front(&slots->idle) : NULL;
    struct slot *slot;
    if (is_common) n_bytes = COMMON_BYTES;
    if (idle != NULL) {
        slots->n_idle--;
        slot = LIST_ITEM(idle, struct slot, all_link);
    } else {
        slot = mem_alloc(sizeof *slot + n_members * sizeof slot->members[0] + n_bytes);
        if (slot == NULL) return NULL;
    }

    *slot = (struct slot){.slots = slots, .n_bytes = n_bytes};
    list_init(&slot->link);
    list_init(&slot->all_link);
    deadline_init(&slot->local);
    return slot;
}

static uint8_t *copy(uint8_t *to, struct slice from, struct slice *ret)
{
    *ret = (struct slice){to, from.len};
    return slice_put(to, from);
}

/* 0, or -1 without memory. */
static int keep_request(struct slot *slot, struct slice id)
{
    struct slot_request *request = mem_zalloc(sizeof *request + id.len);
    if (request == NULL) return -1;

    request->slot = slot;
    request->len = (uint8_t)id.len; /* at most REQUEST_ID_MAX */
    memcpy(request->id, id.data, id.len);
    map_insert(&slot->slots->by_request, &request->node, hash_keyed(id.data, id.len));
    slot->request = request;
    return 0;
}

enum slots_cap slots_cap_reached(const struct slots *slots, const struct slot_owner *owner)
{
    if (owner->n >= slots->options.max_per_owner) return SLOTS_CAP_OF_OWNER;
    return slots->n - slots->left_by.n >= slots->options.max ? SLOTS_CAP_OF_ALL : SLOTS_CAP_NONE;
}

struct slot *slots_new(struct slots *slots, struct check *check, struct slot_owner *owner)
{
    struct op_member members[POLICY_LIMITS_MAX];
    uint16_t n = 0;
    size_t n_bytes = check->key.len;
    if (slots_cap_reached(slots, owner) != SLOTS_CAP_NONE) return NULL;
    if (!fair_cap_allows(&slots->left_by, slots->options.max, check->op.client)) return NULL;

    for (uint16_t i = 0; i < check->op.n_members; i++) {
        const struct op_member *member = &check->op.members[i];
        if (member->limit->algo != ALGO_CONCURRENCY) continue;
        members[n++] = *member;
        n_bytes += member->key.len + member->shard_id.len;
    }
    struct slot *slot = take_memory(slots, n, n_bytes);
    if (slot == NULL) return NULL;
    if (heap_reserve(&slots->due) < 0) goto err_free;
    if (check->request_id.len > 0 && keep_request(slot, check->request_id) < 0) goto err_free;

    heap_push(&slots->due, &slot->due, INT64_MAX);
    slot->owner = owner;
    slot->leased_us = slots->clock->mono_us;
    slot->policy = check->plan->policy;
    slot->set = policy_set_ref(check->set);
    make_id(slots, slot->id);
    slot->ends_us = INT64_MAX;
    slot->call = (struct call){.kind = CALL_ACQUIRE, .check = check, .client = check->op.client};
    if (check->op.kind == OP_ACQUIRE) calls_add(slots->calls, &slot->call, check->op.client, check->msgid);
    owner->n++;
    if (owner->n_shared != NULL) ++*owner->n_shared;
    slots->n++;

    slot->n_members = n;
    uint8_t *at = copy((uint8_t *)&slot->members[n], check->key, &slot->key);
    for (uint16_t i = 0; i < n; i++) {
        slot->members[i] = members[i];
        at = copy(at, members[i].key, &slot->members[i].key);
        if (members[i].shard_id.data != NULL) at = copy(at, members[i].shard_id, &slot->members[i].shard_id);
    }
    return slot;

err_free:
    mem_free(slot);
    return NULL;
}

static void slot_free(struct slot *slot)
{
    struct slots *slots = slot->slots;
    CHECK(slot->owner == NULL && slot->n_out == 0 && !deadline_is_set(&slot->local));
    heap_remove(&slots->due, &slot->due);
    list_remove(&slot->all_link);
    policy_set_unref(slot->set);
    fair_cap_remove(&slots->left_by, slot->call.client, 1);
    slots->n--;

    if (slot->n_members != 1 || slot->n_bytes != COMMON_BYTES || slots->n_idle >= IDLE_MAX) {
        mem_free(slot);
        return;
    }
    list_push_back(&slots->idle, &slot->all_link);
    slots->n_idle++;
}

/* ---- when the store is asked ---- */

/* Never lacks memory: what is taken out leaves its place. */
static void set_due(struct slot *slot, int64_t at_us)
{
    struct heap *due = &slot->slots->due;
    heap_remove(due, &slot->due);
    int status = heap_push(due, &slot->due, at_us);
    CHECK(status == 0);
}

/* The shortest of its limits. If no store is ever asked (limit 0, in shadow), there is none. */
static int64_t ttl_us(const struct slot *slot)
{
    int64_t least = slot->n_members > 0 ? slot->members[0].limit->window_us : SLOT_TTL_DEFAULT_US;
    for (uint16_t i = 1; i < slot->n_members; i++)
        if (slot->members[i].limit->window_us < least) least = slot->members[i].limit->window_us;
    return least;
}

static void renew_later(struct slot *slot)
{
    int64_t third = ttl_us(slot) / RENEWALS;
    uint64_t spread = hash_keyed(slot->id, SLOT_ID_LEN) % (uint64_t)(third / SPREAD);
    int64_t at_us = slot->leased_us + third - (int64_t)spread;
    set_due(slot, at_us < slot->ends_us ? at_us : slot->ends_us);
}

/* The slot's limits as the present policies have them, so that a reload reaches leases that exist. */
static void rebind(struct slot *slot)
{
    const struct limit *limits[POLICY_LIMITS_MAX];
    struct policy_set *set = slot->slots->set;
    const struct policy *policy = slot->set != set ? policy_find(set, slice_of(slot->policy->name)) : NULL;
    if (policy == NULL) return;

    policy = policy_for_key(policy, slot->key);
    for (uint16_t i = 0; i < slot->n_members; i++) {
        const struct limit *now = slot->members[i].limit;
        limits[i] = NULL;
        for (uint16_t j = 0; j < policy->n_limits; j++)
            if (policy->limits[j].algo == now->algo && strcmp(policy->limits[j].key_head, now->key_head) == 0)
                limits[i] = &policy->limits[j];
        if (limits[i] == NULL) return;
    }

    for (uint16_t i = 0; i < slot->n_members; i++) slot->members[i].limit = limits[i];
    if (slot->request != NULL && slot->request->decision.of != NULL) {
        struct decision *answer = &slot->request->decision;
        answer->of = policy_find_limit(policy, slice_of(answer->of->name)); /* NULL: it is not there any more */
    }
    policy_set_ref(set);
    policy_set_unref(slot->set);
    slot->set = set;
    slot->policy = policy;
}

/* ---- the failure table's share ---- */

static bool ask_local(struct slot *slot, enum op_kind kind)
{
    struct op_member members[POLICY_LIMITS_MAX];
    struct op op = {.kind = kind, .members = members, .n_members = slot->n_members, .slot = slot->id};
    memcpy(members, slot->members, slot->n_members * sizeof members[0]);
    return failure_touch_slot(slot->slots->failure, &op);
}

/* From the table's own lease on. Without memory for it the lease ends, like all else in that table. */
static void renew_local_later(struct slot *slot)
{
    struct slots *slots = slot->slots;
    (void)deadlines_set(&slots->locals, &slot->local, slots->clock->mono_us, ttl_us(slot) / RENEWALS);
}

/* ---- asked, held, left ---- */

/* Its owner knows nothing of it any more, and the failure table neither. */
static void enter_left(struct slot *slot)
{
    struct slots *slots = slot->slots;
    slot->owner->n--;
    if (slot->owner->n_shared != NULL) --*slot->owner->n_shared;
    slot->owner = NULL;
    calls_remove(slots->calls, &slot->call);
    if (slot->request != NULL) {
        map_remove(&slots->by_request, &slot->request->node);
        mem_free(slot->request);
        slot->request = NULL;
    }
    if (deadline_is_set(&slot->local)) {
        deadlines_unset(&slots->locals, &slot->local);
        ask_local(slot, OP_RELEASE);
    }

    list_push_back(&slots->left, &slot->all_link);
    fair_cap_add(&slots->left_by, slot->call.client, 1);
    set_due(slot, INT64_MAX);
}

static void become(struct slot *slot, enum slot_state state)
{
    struct slots *slots = slot->slots;
    CHECK(state > slot->state);
    if (slot->state == SLOT_HELD) {
        list_remove(&slot->link);
        list_remove(&slot->all_link);
        map_remove(&slots->by_id, &slot->node);
        slots_counters.slots--;
    }

    slot->state = state;
    if (state == SLOT_LEFT) {
        enter_left(slot);
        return;
    }
    list_push_back(&slot->owner->held, &slot->link);
    list_push_back(&slots->held, &slot->all_link);
    map_insert(&slots->by_id, &slot->node, hash_keyed(slot->id, SLOT_ID_LEN));
    slots_counters.slots++;
}

/* ---- what the store is asked ---- */

static void settle(struct slot *slot); /* after n_out or lease has changed: a slot that is LEFT may end */

/* Its reservation is over. */
static void end_with_reservation(struct slot *slot)
{
    slots_counters.slots_settled++;
    become(slot, SLOT_LEFT);
}

/* The daemon stops: its lease ends by itself. */
static void give_up(struct slot *slot)
{
    slot->lease = LEASE_NONE;
    slot->slots->n_given_up++;
}

/* The store's word about a renewal, or about what was left. */
static void note_outcome(struct slot *slot, enum op_outcome outcome)
{
    int64_t now_us = slot->slots->clock->mono_us;
    if (outcome == OP_DOWN || outcome == OP_BREAKER || outcome == OP_OVERLOAD) {
        slot->slots->resume_us = now_us + RETRY_US;
        set_due(slot, slot->slots->resume_us);
    } else if (outcome == OP_STORE_ERROR) {
        set_due(slot, now_us + ttl_us(slot) / RENEWALS / SPREAD);
    } else if (slot->op.kind == OP_RELEASE) {
        slot->lease = LEASE_NONE;
    } else {
        /* The store has renewed what it still had of the slot's leases. */
        uint16_t n_found = 0;
        for (uint16_t i = 0; i < slot->n_members; i++) n_found += slot->members[i].found;
        slot->lease = n_found > 0 ? LEASE_TAKEN : LEASE_NONE;
        if (slot->state != SLOT_LEFT) {
            slot->leased_us = slot->asked_us;
            if (n_found == slot->n_members) {
                renew_later(slot);
            } else if (slot->is_reserved && n_found == 0) { /* most likely settled elsewhere */
                end_with_reservation(slot);
            } else { /* reset, evicted, or lost with the store's memory: it is not taken again behind others' backs */
                slots_counters.slots_lost++;
                become(slot, SLOT_LEFT);
            }
        }
    }

    if (outcome != OP_DECIDED && slot->state == SLOT_LEFT && slot->slots->leaving) give_up(slot);
    settle(slot);
}

static void on_op_done(struct op *op, enum op_outcome outcome)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    CHECK(slot->is_asking && slot->n_out > 0);
    slot->is_asking = false;
    slot->n_out--;
    note_outcome(slot, outcome);
}

/* Renew the slot's lease, or give back what was left of it. */
static void ask_store(struct slot *slot)
{
    struct slots *slots = slot->slots;
    int64_t now_us = slots->clock->mono_us;
    bool is_left = slot->state == SLOT_LEFT;
    CHECK(!slot->is_asking && (slot->lease == LEASE_TAKEN || (slot->lease == LEASE_DOUBTFUL && is_left)));
    set_due(slot, INT64_MAX);

    enum submit status = SUBMIT_DOWN;
    if (now_us >= slots->resume_us) {
        if (!is_left) rebind(slot);
        slot->op = (struct op){
            .kind = is_left ? OP_RELEASE : OP_RENEW,
            .members = slot->members,
            .n_members = slot->n_members,
            .slot = slot->id,
            .client = slot->call.client,
            .done = on_op_done,
        };
        list_init(&slot->op.link);
        slot->asked_us = now_us;
        status = store_submit(slots->store, &slot->op);
        if (status != SUBMIT_PENDING && status != SUBMIT_DECIDED) slots->resume_us = now_us + RETRY_US;
    }

    if (status == SUBMIT_DECIDED) {
        note_outcome(slot, OP_DECIDED);
    } else if (status == SUBMIT_PENDING) {
        slot->is_asking = true;
        slot->n_out++;
    } else if (is_left && slots->leaving) {
        give_up(slot);
        settle(slot);
    } else {
        set_due(slot, slots->resume_us);
    }
}

static void settle(struct slot *slot)
{
    if (slot->state != SLOT_LEFT || slot->n_out > 0) return;
    bool has_ended = slot->leased_us + ttl_us(slot) <= slot->slots->clock->mono_us;
    if (has_ended || slot->slots->closed) slot->lease = LEASE_NONE;
    if (slot->lease == LEASE_NONE)
        slot_free(slot);
    else if (slot->due.at_us == INT64_MAX)
        ask_store(slot);
}

/* ---- what becomes of a slot ---- */

void slot_op_done(struct slot *slot, const struct op *op, enum op_outcome outcome)
{
    bool is_asked = op_is_check(op->kind), is_lost = outcome == OP_DOWN && op->sent;
    slot->n_out--;
    if (outcome == OP_DECIDED && op->kind == OP_RELEASE) slot->lease = LEASE_NONE;
    if (outcome == OP_DECIDED && is_asked && op->members[0].decision.granted > 0) { /* however late */
        slot->lease = LEASE_TAKEN;
        if (slot->state == SLOT_HELD && slot->is_reserved)
            slot->lease = LEASE_NONE; /* the failure table has made the reservation: this one is cancelled */
        else if (slot->state == SLOT_HELD)
            renew_later(slot);
    }
    if (is_lost && is_asked && slot->lease == LEASE_NONE) slot->lease = LEASE_DOUBTFUL;
    settle(slot);
}

void slot_reserve(struct slot *slot, const struct op_reservation *reservation)
{
    slot->is_reserved = true;
    reservation_slot(reservation->id, slot->id);
}

void slot_held(struct slot *slot, const struct decision *decision)
{
    enum { ROUNDING_US = 1000 }; /* the store's time is in milliseconds */
    const struct clock *clock = slot->slots->clock;
    become(slot, SLOT_HELD);
    if (slot->is_reserved && !clock->manual) {
        slot->ends_us = clock->mono_us + slot->call.check->reservation.ttl_ms * 1000 + ROUNDING_US;
        set_due(slot, slot->ends_us);
    }
    slot->call.check = NULL;
    slots_counters.slots_acquired++;

    if (slot->lease == LEASE_TAKEN) renew_later(slot);
    if (decision->source == SOURCE_LOCAL) renew_local_later(slot);
    if (slot->request != NULL) slot->request->decision = *decision;
}

void slot_leave(struct slot *slot)
{
    slots_counters.slots_released += slot->state == SLOT_HELD;
    become(slot, SLOT_LEFT);
    settle(slot);
}

void slot_take_back(struct slot *slot)
{
    slots_counters.slots_taken_back++;
    become(slot, SLOT_LEFT);
    settle(slot);
}

static struct slot *find_held(const struct slots *slots, struct slice id)
{
    struct map_node *node = map_first(&slots->by_id, hash_keyed(id.data, id.len));
    for (; node != NULL; node = map_next_same(node)) {
        struct slot *slot = CONTAINER_OF(node, struct slot, node);
        if (memcmp(slot->id, id.data, SLOT_ID_LEN) == 0) return slot;
    }
    return NULL;
}

void slots_settled(struct slots *slots, const struct check *check)
{
    char id[SLOT_ID_LEN];
    reservation_slot(check->reservation.id, id);
    struct slot *slot = find_held(slots, (struct slice){(const uint8_t *)id, SLOT_ID_LEN});
    bool is_local = check->local_reason != REASON_NONE, was_asked = check->op.n_members > 0;
    if (slot == NULL || !slot->is_reserved || deadline_is_set(&slot->local) != is_local) return;

    if (!is_local && was_asked) slot->lease = LEASE_NONE; /* the store has given it back */
    end_with_reservation(slot);
    settle(slot);
}

void slots_end(struct slot_owner *owner)
{
    LIST_FOREACH (it, &owner->held) {
        struct slot *slot = LIST_ITEM(it, struct slot, link);
        slots_counters.slots_ended_by_close++;
        become(slot, SLOT_LEFT);
        settle(slot);
    }
}

void slot_answers(struct slot *slot, uint64_t msgid)
{
    calls_add(slot->slots->calls, &slot->call, slot->call.client, msgid);
}

int slot_seal_release(struct check *check)
{
    struct op *op = &check->op;
    const struct slot *slot = check->slot;
    if (check_make_members(check, slot->n_members) < 0) return -1;

    check->is_sealed = true;
    op->n_members = slot->n_members;
    memcpy(op->members, slot->members, slot->n_members * sizeof slot->members[0]);
    op->slot = slot->id;
    return 0;
}

struct slot *slots_find(const struct slots *slots, const struct slot_owner *owner, struct slice id)
{
    struct slot *slot = id.len == SLOT_ID_LEN ? find_held(slots, id) : NULL;
    return slot != NULL && slot->owner == owner && !slot->is_reserved ? slot : NULL;
}

struct slot *slots_find_request(const struct slots *slots, const struct slot_owner *owner, const char *policy,
                                struct slice key, struct slice request_id)
{
    struct map_node *node = map_first(&slots->by_request, hash_keyed(request_id.data, request_id.len));
    for (; node != NULL; node = map_next_same(node)) {
        const struct slot_request *request = CONTAINER_OF(node, struct slot_request, node);
        struct slot *slot = request->slot;

        if (slot->owner == owner && slice_eq(slice_of(slot->policy->name), slice_of(policy)) &&
            slice_eq(slot->key, key) && slice_eq((struct slice){request->id, request->len}, request_id))
            return slot;
    }
    return NULL;
}

/* ---- as time goes by ---- */

/* A daemon that stops does not wait for the store: what it cannot give back at once ends by itself. */
static bool may_ask(const struct slots *slots, int64_t now_us)
{
    return now_us >= slots->resume_us || slots->leaving;
}

int64_t slots_next_due(const struct slots *slots)
{
    const struct heap_node *first = heap_min(&slots->due);
    const struct deadline *local = deadlines_first(&slots->locals);
    int64_t at_us = first != NULL ? first->at_us : INT64_MAX;
    if (!may_ask(slots, at_us)) at_us = slots->resume_us;
    return local != NULL && local->at_us < at_us ? local->at_us : at_us;
}

void slots_run(struct slots *slots)
{
    int64_t now_us = slots->clock->mono_us;
    struct deadline *local;
    for (int n = 0; n < ASKED_PER_TICK && (local = deadlines_first(&slots->locals)) != NULL; n++) {
        struct slot *slot = CONTAINER_OF(local, struct slot, local);
        if (local->at_us > now_us) break;
        deadlines_unset(&slots->locals, local);
        if (ask_local(slot, OP_RENEW)) renew_local_later(slot);
    }

    for (int n = 0; n < ASKED_PER_TICK && may_ask(slots, now_us); n++) {
        const struct heap_node *first = heap_min(&slots->due);
        if (first == NULL || first->at_us > now_us) break;

        struct slot *slot = CONTAINER_OF(first, struct slot, due);
        set_due(slot, INT64_MAX);
        if (slot->state == SLOT_HELD && now_us >= slot->ends_us) end_with_reservation(slot);
        if (slot->state == SLOT_LEFT)
            settle(slot);
        else
            ask_store(slot);
    }
}

void slots_renew_all(struct slots *slots)
{
    slots->resume_us = 0;
    LIST_FOREACH (it, &slots->held) {
        struct slot *slot = LIST_ITEM(it, struct slot, all_link);
        if (deadline_is_set(&slot->local)) ask_local(slot, OP_RENEW);
        if (slot->lease == LEASE_TAKEN && !slot->is_asking) ask_store(slot);
    }
}

void slots_resume(struct slots *slots)
{
    slots->resume_us = 0;
    LIST_FOREACH (it, &slots->left) {
        struct slot *slot = LIST_ITEM(it, struct slot, all_link);
        set_due(slot, INT64_MAX);
        settle(slot);
    }
}

void slots_forget(struct slots *slots)
{
    LIST_FOREACH (it, &slots->held) {
        struct slot *slot = LIST_ITEM(it, struct slot, all_link);
        slot->lease = LEASE_NONE;
        become(slot, SLOT_LEFT);
        settle(slot);
    }
    LIST_FOREACH (it, &slots->left) {
        struct slot *slot = LIST_ITEM(it, struct slot, all_link);
        slot->lease = LEASE_NONE;
        settle(slot);
    }
}

void slots_policies_changed(struct slots *slots, struct policy_set *set)
{
    slots->set = set;
    LIST_FOREACH (it, &slots->held) {
        struct slot *slot = LIST_ITEM(it, struct slot, all_link);
        if (slot->lease == LEASE_TAKEN && !slot->is_asking) set_due(slot, slots->clock->mono_us);
    }
}

void slots_stop(struct slots *slots)
{
    slots->leaving = true;

    /* What waits for another try has it now. */
    LIST_FOREACH (it, &slots->left) {
        struct slot *slot = LIST_ITEM(it, struct slot, all_link);
        if (slot->n_out == 0) set_due(slot, slots->clock->mono_us);
    }
}

void slots_close(struct slots *slots)
{
    slots->leaving = true;
    slots->closed = true;
    CHECK(list_empty(&slots->held));
    LIST_FOREACH (it, &slots->left) settle(LIST_ITEM(it, struct slot, all_link));
}
