/*
 * redis_turns.c: turns on their way: each one EVALSHA, and its reply back to the ops.
 *
 *   gathering ── complete ──▶ in_flight ──▶ reply
 *                └─ while not sending ─▶ held ─┘
 *   reply good      the turn gives every op its answer; done runs
 *   NOSCRIPT        not executed. What was sent before the script is back comes here too, so new turns are
 *                   held until all of it has been answered; then SCRIPT LOAD, the refused and the held go
 *                   out in their order. Each at most twice.
 *   other error     OP_STORE_ERROR; never sent again, because it may have been executed in part
 *   wrong shape     OP_STORE_ERROR, and the connection is closed: nothing on it can be trusted any more
 *   lost            OP_DOWN; never sent again, because it may have been executed
 *
 * Every turn carries a nonce that comes back as the last integer, so that an answer can never reach
 * another's check.
 */
#include "store/redis_private.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"

enum {
    CALL_ARGS_MAX = 2 + TURN_ARGS_MAX, /* EVALSHA, digest, and the turn's */
    IDLE_MAX = 64,                     /* slots kept for later turns; about 16 KiB each */
};

/* ---- slots ---- */

static struct redis_slot *slot_new(struct redis_store *store)
{
    struct redis_slot *slot = mem_zalloc(sizeof(*slot));
    if (slot == NULL) return NULL;
    slot->turn = turn_new(store->options.key_prefix, store->options.batch_max_keys, store->options.merge);
    if (slot->turn == NULL) {
        mem_free(slot);
        return NULL;
    }
    slot->store = store;
    list_init(&slot->link);
    return slot;
}

struct redis_slot *redis_turns_begin(struct redis_store *store)
{
    struct list *it = list_pop_front(&store->idle);
    struct redis_slot *slot = it != NULL ? LIST_ITEM(it, struct redis_slot, link) : slot_new(store);
    if (slot == NULL) return NULL;
    store->n_idle -= it != NULL;
    turn_set_merge(slot->turn, store->options.batch_max_keys, store->options.merge);
    slot->nonce = ++store->last_nonce;
    slot->was_refused = false;
    store->n_calls++;
    return slot;
}

static void slot_free(struct redis_slot *slot)
{
    turn_free(slot->turn);
    mem_free(slot);
}

/* Its ops to `to`; the slot is free for the next turn, or gone, where a burst has left too many. */
static void slot_release(struct redis_slot *slot, struct list *to)
{
    struct redis_store *store = slot->store;
    turn_take_ops(slot->turn, to);
    turn_clear(slot->turn);
    store->n_calls--;
    if (store->n_idle >= IDLE_MAX) {
        slot_free(slot);
        return;
    }
    list_push_back(&store->idle, &slot->link);
    store->n_idle++;
}

static void slot_end(struct redis_slot *slot, enum op_outcome outcome)
{
    struct redis_store *store = slot->store;
    struct list ops;
    list_init(&ops);
    slot_release(slot, &ops);
    LIST_FOREACH (it, &ops) {
        LIST_ITEM(it, struct op, link)->outcome = outcome;
    }
    list_append(&store->ended, &ops);
    redis_store_call_soon(store);
}

static void slots_end(struct list *slots, enum op_outcome outcome)
{
    for (struct list *it; (it = list_pop_front(slots)) != NULL;)
        slot_end(LIST_ITEM(it, struct redis_slot, link), outcome);
}

void redis_turns_free_slots(struct list *slots)
{
    for (struct list *it; (it = list_pop_front(slots)) != NULL;) slot_free(LIST_ITEM(it, struct redis_slot, link));
}

/* ---- sending ---- */

static void on_turn_reply(struct redis_call *call, const struct redis_reader *reply);

/* The ops of a slot that could not be sent end here; they were certainly not executed. */
static void send_slot(struct redis_slot *slot)
{
    struct redis_store *store = slot->store;
    const struct slice *turn_arguments;
    size_t n = turn_args(slot->turn, slot->nonce, store->clock->wall_us, &turn_arguments);
    if (n == 0) {
        slot_end(slot, OP_STORE_ERROR);
        return;
    }
    CHECK(n + 2 <= CALL_ARGS_MAX);
    struct slice args[CALL_ARGS_MAX];
    args[0] = slice_of("EVALSHA");
    args[1] = store->script.sha1;
    memcpy(args + 2, turn_arguments, n * sizeof(args[0]));
    slot->call.on_reply = on_turn_reply;
    if (redis_link_send(store->link, &slot->call, args, n + 2) < 0) {
        slot_end(slot, OP_DOWN);
        return;
    }
    list_push_back(&store->in_flight, &slot->link);
    counters.redis_inflight++;
    counters.redis_batches++;
    counters.redis_batch_keys += turn_n_keys(slot->turn);
}

void redis_turns_send_gathering(struct redis_store *store)
{
    struct redis_slot *slot = store->gathering;
    if (slot == NULL) return;
    store->gathering = NULL;
    if (store->phase == SENDING)
        send_slot(slot);
    else
        list_push_back(&store->held, &slot->link);
}

void redis_turns_send_waiting(struct redis_store *store)
{
    store->phase = SENDING;
    struct list waiting;
    list_init(&waiting);
    list_append(&waiting, &store->refused);
    list_append(&waiting, &store->held);
    for (struct list *it; (it = list_pop_front(&waiting)) != NULL;) send_slot(LIST_ITEM(it, struct redis_slot, link));
}

void redis_turns_end_waiting(struct redis_store *store)
{
    store->phase = SENDING;
    slots_end(&store->refused, OP_DOWN);
    slots_end(&store->held, OP_DOWN);
    if (store->gathering != NULL) slot_end(store->gathering, OP_DOWN);
    store->gathering = NULL;
}

/* ---- the script's return, and the move to another server ---- */

static void on_reload_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_store *store = CONTAINER_OF(call, struct redis_store, reload);
    if (reply == NULL) return;
    if (!slice_eq(redis_reader_text(reply), store->script.sha1)) {
        redis_link_drop(store->link, REMEDY_RECONNECT, "the script could not be loaded again");
    }
}

static void load_again(struct redis_store *store)
{
    const struct slice load[] = {slice_of("SCRIPT"), slice_of("LOAD"), store->script.text};
    store->reload.on_reply = on_reload_reply;
    counters.redis_script_loads++;
    if (redis_link_send(store->link, &store->reload, load, 3) == 0)
        redis_turns_send_waiting(store);
    else
        redis_link_drop(store->link, REMEDY_RECONNECT, "out of memory");
}

/* All that was in flight when sending stopped has been answered: nothing can be overtaken any more. */
void redis_turns_go_on_when_drained(struct redis_store *store)
{
    if (!list_empty(&store->in_flight) || !redis_link_is_ready(store->link)) return;
    if (store->phase == RELOADING) load_again(store);
    if (store->phase == MOVING) redis_link_move(store->link);
}

/* ---- replies ---- */

static void on_error_reply(struct redis_slot *slot, const struct redis_reader *reply)
{
    struct redis_store *store = slot->store;
    struct slice text = redis_reader_text(reply);
    enum redis_remedy remedy = redis_error_remedy(redis_error_of((const char *)text.data, text.len));
    if (remedy == REMEDY_RELOAD && !slot->was_refused) {
        slot->was_refused = true;
        if (store->phase == SENDING) store->phase = RELOADING;
        list_push_back(&store->refused, &slot->link);
        return;
    }
    counters.redis_errors++;
    slot_end(slot, OP_STORE_ERROR);
    if (remedy == REMEDY_RECONNECT || remedy == REMEDY_RECONNECT_LATE) {
        char why[REDIS_TEXT_MAX];
        memcpy(why, reply->text, sizeof(why));
        redis_link_drop(store->link, remedy, why);
    }
}

static bool replay(struct redis_slot *slot, const struct redis_reader *reply)
{
    size_t least, most;
    turn_reply_bounds(slot->turn, &least, &most);
    if (!redis_reader_is_integers(reply) || reply->n_integers < least || reply->n_integers > most) return false;
    return turn_replay(slot->turn, reply->integers, reply->n_integers, slot->nonce) == 0;
}

static void on_value_reply(struct redis_slot *slot, const struct redis_reader *reply)
{
    struct redis_store *store = slot->store;
    if (!replay(slot, reply)) {
        counters.redis_bad_replies++;
        slot_end(slot, OP_STORE_ERROR);
        redis_link_drop(store->link, REMEDY_RECONNECT, "an answer to something else than was asked");
        return;
    }
    struct list decided;
    list_init(&decided);
    slot_release(slot, &decided);
    redis_store_run_done(&decided);
}

static void on_turn_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_slot *slot = CONTAINER_OF(call, struct redis_slot, call);
    struct redis_store *store = slot->store;
    list_remove(&slot->link);
    counters.redis_inflight--;
    if (reply == NULL)
        slot_end(slot, OP_DOWN);
    else if (redis_reader_is_error(reply))
        on_error_reply(slot, reply);
    else
        on_value_reply(slot, reply);
    if (reply != NULL) redis_turns_go_on_when_drained(store);
}
