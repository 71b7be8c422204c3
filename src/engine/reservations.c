/* reservations.c: entries by id and by their end, for engine.c, which learns of them, and give_back.c, which gives them
 * back. */
#include "engine/reservations.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "engine/engine_counters.h"
#include "engine/engine_private.h"
#include "policy/inline_policies.h"

/* The store rounds its time down to milliseconds. */
enum { ROUNDING_US = 1000 };

void reservations_init(struct reservations *reservations, struct calls *calls)
{
    *reservations = (struct reservations){.calls = calls};
    list_init(&reservations->all);
    heap_init(&reservations->ends);
}

static struct reservation *first_of(const struct reservations *reservations)
{
    struct heap_node *node = heap_min(&reservations->ends);
    return node != NULL ? CONTAINER_OF(node, struct reservation, node) : NULL;
}

static struct reservation *find_by_id(const struct reservations *reservations, uint64_t id)
{
    struct map_node *node = reservations->by_id.n > 0 ? map_first(&reservations->by_id, id) : NULL;
    return node != NULL ? CONTAINER_OF(node, struct reservation, in_map) : NULL; /* an id is its own hash */
}

/* The gauge has those that the store may have and that a timer will end. */
static void set_counted(struct reservation *reservation, bool is_counted)
{
    engine_counters.reservations += (uint64_t)is_counted - (uint64_t)reservation->is_counted;
    reservation->is_counted = is_counted;
}

static void take_out(struct reservations *reservations, struct reservation *reservation)
{
    set_counted(reservation, false);
    calls_remove(reservations->calls, &reservation->call);
    heap_remove(&reservations->ends, &reservation->node);
    if (reservation->is_made) map_remove(&reservations->by_id, &reservation->in_map);
    list_remove(&reservation->link);
    fair_cap_remove(&reservations->inside, reservation->client, 1);
}

void reservations_fini(struct reservations *reservations)
{
    while (!list_empty(&reservations->all)) {
        struct reservation *first = LIST_ITEM(reservations->all.next, struct reservation, link);
        take_out(reservations, first);
        reservation_free(first);
    }
    heap_fini(&reservations->ends);
    if (reservations->by_id.slots != NULL) map_fini(&reservations->by_id);
}

void reservation_free(struct reservation *reservation)
{
    mem_free(reservation);
}

/* Nothing is left to give back: the entry is gone. */
static void maybe_end(struct reservations *reservations, struct reservation *reservation)
{
    if (reservation->is_asked || reservation->is_made || reservation->local_reason != REASON_NONE) return;
    take_out(reservations, reservation);
    reservation_free(reservation);
}

/* ---- an OP_RESERVE and its entry ---- */

void reservations_ask(struct check *check)
{
    struct reservations *reservations = &check->engine->reservations;
    struct reservation *asked = NULL;
    if (fair_cap_allows(&reservations->inside, RESERVATIONS_MAX, check->op.client))
        asked = mem_zalloc(sizeof *asked + check->key.len);
    if (asked == NULL) return;

    asked->is_asked = true;
    memcpy(asked->policy, check->plan->policy->name, sizeof asked->policy);
    asked->key_len = check->key.len;
    memcpy(asked->key, check->key.data, check->key.len);
    list_push_back(&reservations->all, &asked->link);
    asked->client = check->op.client;
    fair_cap_add(&reservations->inside, asked->client, 1);

    asked->call.kind = CALL_RESERVE;
    asked->call.check = check;
    calls_add(reservations->calls, &asked->call, check->op.client, check->msgid);
    check->making = asked;
}

/* A timer at its end, if that is later than the timer that it has. 0, or -1 without memory. */
static int start_timer(struct reservations *reservations, struct reservation *reservation, int64_t from_us,
                       int64_t ttl_ms)
{
    if (from_us == INT64_MAX) return 0;
    int64_t end_us = from_us + ttl_ms * 1000 + ROUNDING_US;
    if (reservation->node.index != 0 && reservation->end_us >= end_us) return 0;

    heap_remove(&reservations->ends, &reservation->node);
    if (heap_push(&reservations->ends, &reservation->node, end_us) < 0) return -1;
    reservation->end_us = end_us;
    reservation->until_us = end_us + RESERVATION_GRACE_MS * INT64_C(1000);
    return 0;
}

bool reservations_keep(const struct check *check, int64_t from_us)
{
    struct reservations *reservations = &check->engine->reservations;
    struct reservation *reservation = check->making;
    const struct op_reservation *made = &check->reservation;
    if (reservation == NULL) return false;

    struct reservation *same = find_by_id(reservations, made->id);
    if (same != NULL) {
        const struct call *call = &reservation->call;
        if (call->is_inside) calls_add(reservations->calls, &same->call, call->client, call->msgid);
        return true;
    }

    reservation->made = *made;
    if (start_timer(reservations, reservation, from_us, made->ttl_ms) < 0) return false;
    struct map *by_id = &reservations->by_id;
    if (by_id->slots == NULL && map_init(by_id, RESERVATIONS_MAX) < 0) {
        if (reservation->local_reason == REASON_NONE) heap_remove(&reservations->ends, &reservation->node);
        return false;
    }
    map_insert(by_id, &reservation->in_map, made->id);
    reservation->is_made = true;
    set_counted(reservation, reservation->node.index != 0);
    return true;
}

void reservations_decided(const struct check *check)
{
    struct engine *engine = check->engine;
    const struct op_reservation *reservation = &check->reservation;

    if (check->op.kind == OP_SETTLE) {
        struct reservation *found = find_by_id(&engine->reservations, reservation->id);
        engine_counters.reservations_settled += !reservation->ended;
        if (found == NULL) return; /* another daemon made it, or it was not kept */
        set_counted(found, false);
        map_remove(&engine->reservations.by_id, &found->in_map);
        found->is_made = false; /* the store has nothing of it any more */
        maybe_end(&engine->reservations, found);
    } else if (check->op.kind == OP_RESERVE && reservation->held) {
        /* no timer knows when the limits' now is moved */
        bool is_kept = reservations_keep(check, engine->clock->manual ? INT64_MAX : engine->clock->mono_us);
        if (reservation->is_known) return;
        engine_counters.reservations_made++;
        engine_counters.reservations_untimed += !is_kept && !engine->clock->manual;
    }
}

void reservations_answered(struct check *check)
{
    const struct decision *decision = &check->decision;
    check->making->call.check = NULL;
    bool is_local = check->error == ERROR_NONE && decision->allowed && decision->source == SOURCE_LOCAL;

    if (is_local && check->reservation.held) {
        /* The failure table has made it. */
        struct reservation *reservation = check->making;
        const struct op_reservation *made = &check->reservation;
        if (!reservation->is_made) reservation->made = *made;
        if (start_timer(&check->engine->reservations, reservation, check->engine->clock->mono_us, made->ttl_ms) >= 0) {
            reservation->local_reason = check->decision.reason;
            reservation->local_made_us = made->made_us;
        }
    }

    if (!check->in_store) reservations_let_go(check);
}

void reservations_let_go(struct check *check)
{
    struct reservation *making = check->making;
    check->making = NULL;
    if (making == NULL) return;
    making->is_asked = false;
    maybe_end(&check->engine->reservations, making);
}

/* ---- what is given back ---- */

const struct policy *reservations_policy(const struct engine *engine, struct slice name, struct policy_set **ret_set)
{
    char text[256];
    const struct policy *policy = policy_find(engine->set, name);
    *ret_set = engine->set;
    if (policy != NULL || engine->inline_policies == NULL) return policy;
    if (inline_policies_named(engine->inline_policies, name, ret_set, text, sizeof text) != ERROR_NONE) return NULL;
    return (*ret_set)->in_order[0];
}

const struct plan *reservations_plan(const struct engine *engine, const struct reservation *reservation,
                                     struct policy_set **ret_set)
{
    struct slice key = {reservation->key, reservation->key_len};
    const struct policy *policy = reservations_policy(engine, slice_of(reservation->policy), ret_set);
    if (policy == NULL || !policy_takes_key(policy, key)) return NULL;

    const struct plan *plan = plan_for_key(policy, key);
    return plan->reserves ? plan : NULL;
}

void reservations_forget_local(struct reservations *reservations, struct reservation *reservation)
{
    reservation->local_reason = REASON_NONE;
    maybe_end(reservations, reservation);
}

void reservations_cancel_later(struct reservations *reservations, uint64_t id, int64_t at_us)
{
    struct reservation *found = find_by_id(reservations, id);
    if (found == NULL || found->node.index == 0) return;

    found->is_abandoned = true;
    heap_remove(&reservations->ends, &found->node);
    int status = heap_push(&reservations->ends, &found->node, at_us < found->end_us ? at_us : found->end_us);
    CHECK(status == 0); /* what is taken out leaves its place */
}

int64_t reservations_next_us(const struct reservations *reservations)
{
    const struct reservation *first = first_of(reservations);
    return first != NULL ? first->node.at_us : INT64_MAX;
}

struct reservation *reservations_take(struct reservations *reservations, int64_t now_us)
{
    for (;;) {
        struct reservation *first = first_of(reservations);
        if (first == NULL || first->node.at_us > now_us) return NULL;
        if (!first->is_asked) {
            take_out(reservations, first);
            return first;
        }

        /* That of the failure table has ended, and the store has not answered yet. */
        heap_remove(&reservations->ends, &first->node);
        first->local_reason = REASON_NONE;
    }
}

void reservations_retry(struct reservations *reservations, struct reservation *reservation, int64_t at_us)
{
    bool fits = fair_cap_allows(&reservations->inside, RESERVATIONS_MAX, reservation->client);
    if (at_us >= reservation->until_us || !fits || heap_push(&reservations->ends, &reservation->node, at_us) < 0) {
        reservation_free(reservation);
        return;
    }

    map_insert(&reservations->by_id, &reservation->in_map, reservation->made.id);
    list_push_back(&reservations->all, &reservation->link);
    fair_cap_add(&reservations->inside, reservation->client, 1);
    set_counted(reservation, true);
}
