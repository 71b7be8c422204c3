/*
 * redis_turns.c: turns on their way: each one EVALSHA, and its reply back to the ops.
 *
 *   reply good      the turn gives every op its answer; done runs
 *   begun too late  nothing of it was done; the ops wait again, and are dropped there if their deadline has passed
 *   NOSCRIPT        not executed. What was sent before the script is back comes here too, so nothing new is sent until
 * all of it has been answered; then SCRIPT LOAD and the refused go out in their order. Each at most twice. NOPERM not
 * executed, for the sake of some key: each policy's ops go out once more, apart from the others' other error
 * OP_STORE_ERROR; never sent again, because it may have been executed in part wrong shape     OP_STORE_ERROR, and the
 * connection is closed: nothing on it can be trusted any more lost            OP_DOWN; never sent again, because it may
 * have been executed
 *
 * Every turn carries a nonce that comes back as the last integer, so that an answer can never reach another's check.
 *
 * It also carries the latest time, by the server's clock, at which it may begin. A server that was stopped, or that
 * reads a dead connection's last bytes long after we gave up on it, does nothing then, and who was told "not decided"
 * is not charged much later. The server's clock is known from its last reply, the first of which is the handshake's.
 */
#include "store/redis_private.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"

enum {
    CALL_ARGS_MAX = 2 + BATCH_ARGS_MAX, /* EVALSHA, digest, and the turn's */
    IDLE_MAX = 64,                      /* slots kept for later turns; about 16 KiB each */
    LATE_US = 1000000,                  /* a turn may begin so long after the latest deadline of its ops */
};

/* ---- slots ---- */

static struct redis_slot *slot_new(struct redis_store *store)
{
    struct redis_slot *slot = mem_zalloc(sizeof(*slot));
    if (slot == NULL) return NULL;
    slot->batch = batch_new(store->options.key_prefix, store->options.batch_max_keys, store->options.merge);
    if (slot->batch == NULL) {
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
    batch_set_merge(slot->batch, store->options.batch_max_keys, store->options.merge);
    slot->nonce = ++store->last_nonce;
    slot->was_refused = slot->is_apart = slot->is_sent = false;
    slot->last_deadline_us = slot->until_us = 0;
    store->n_calls++;
    return slot;
}

int redis_turns_add(struct redis_slot *slot, struct op *op)
{
    int status = batch_add(slot->batch, op);
    if (status != 0) return status;

    op->sent = true;
    if (op->deadline_us > slot->last_deadline_us) slot->last_deadline_us = op->deadline_us;
    return 0;
}

static void slot_free(struct redis_slot *slot)
{
    batch_free(slot->batch);
    mem_free(slot);
}

/* Its ops to `to`; the slot is free for the next turn, or gone, where a burst has left too many. */
static void slot_release(struct redis_slot *slot, struct list *to)
{
    struct redis_store *store = slot->store;
    batch_take_ops(slot->batch, to);
    batch_clear(slot->batch);
    store->n_calls--;
    if (store->n_idle >= IDLE_MAX) {
        slot_free(slot);
        return;
    }
    list_push_back(&store->idle, &slot->link);
    store->n_idle++;
}

void redis_turns_abandon(struct redis_slot *slot)
{
    struct list none;
    list_init(&none);
    slot_release(slot, &none);
    CHECK(list_empty(&none));
}

static void slot_end(struct redis_slot *slot, enum op_outcome outcome)
{
    struct redis_store *store = slot->store;
    struct list ops;
    list_init(&ops);
    bool is_sent = slot->is_sent;
    int64_t until_us = slot->until_us;
    slot_release(slot, &ops);
    for (struct list *it; (it = list_pop_front(&ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->sent = is_sent;
        op->runs_until_us = until_us;
        redis_store_end(store, op, outcome);
    }
}

void redis_turns_end_refused(struct redis_store *store)
{
    for (struct list *it; (it = list_pop_front(&store->refused)) != NULL;)
        slot_end(LIST_ITEM(it, struct redis_slot, link), OP_DOWN);
}

void redis_turns_free_slots(struct list *slots)
{
    for (struct list *it; (it = list_pop_front(slots)) != NULL;) slot_free(LIST_ITEM(it, struct redis_slot, link));
}

/* ---- sending ---- */

static void on_turn_reply(struct redis_call *call, const struct redis_reader *reply);

/* When the turn must not begin any more. An op without a deadline counts as one that came now. */
static int64_t runs_until(const struct redis_store *store, const struct redis_slot *slot)
{
    int64_t usual_us = store->clock->mono_us + (int64_t)store->options.deadline_ms * 1000;
    return (slot->last_deadline_us > usual_us ? slot->last_deadline_us : usual_us) + LATE_US;
}

/* The ops of a slot that could not be sent end here; they were certainly not executed. */
void redis_turns_send(struct redis_slot *slot)
{
    struct redis_store *store = slot->store;
    const struct slice *arguments;
    int64_t until_us = runs_until(store, slot);
    size_t n =
        batch_args(slot->batch, slot->nonce, store->clock->wall_us, until_us + store->server_ahead_us, &arguments);
    if (n == 0) {
        slot_end(slot, OP_OVERLOAD);
        return;
    }

    CHECK(n + 2 <= CALL_ARGS_MAX);
    struct slice args[CALL_ARGS_MAX];
    args[0] = slice_of("EVALSHA");
    args[1] = store->script.sha1;
    memcpy(args + 2, arguments, n * sizeof(args[0]));
    slot->call.on_reply = on_turn_reply;
    if (redis_link_send(store->link, &slot->call, args, n + 2) < 0) {
        slot_end(slot, OP_DOWN);
        return;
    }

    slot->is_sent = true;
    slot->until_us = until_us;
    slot->sent_us = store->clock->mono_us;
    list_push_back(&store->in_flight, &slot->link);
    counters.redis_inflight++;
    counters.redis_batches++;
    counters.redis_batch_keys += batch_n_keys(slot->batch);
}

void redis_turns_send_refused(struct redis_store *store)
{
    struct list refused;
    list_init(&refused);
    list_append(&refused, &store->refused);
    for (struct list *it; (it = list_pop_front(&refused)) != NULL;)
        redis_turns_send(LIST_ITEM(it, struct redis_slot, link));
}

void redis_turns_learn_time(struct redis_store *store, const struct batch *batch)
{
    store->server_ahead_us = batch_now_us(batch) - store->clock->mono_us;
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
    if (redis_link_send(store->link, &store->reload, load, 3) < 0) {
        redis_link_drop(store->link, REMEDY_RECONNECT, "out of memory");
        return;
    }
    store->phase = SENDING;
    redis_turns_send_refused(store);
}

/* All that was in flight when sending stopped has been answered: nothing can be overtaken any more. */
void redis_turns_go_on_when_drained(struct redis_store *store)
{
    if (!list_empty(&store->in_flight) || !redis_link_is_ready(store->link)) return;
    if (store->phase == RELOADING) load_again(store);
    if (store->phase == MOVING) redis_link_move(store->link);
}

/* ---- replies ---- */

/* The policy of all the op's limits; NULL where they have several. */
static const struct policy *policy_of(const struct op *op)
{
    const struct policy *policy = op->members[0].limit->policy;
    for (uint16_t i = 1; i < op->n_members; i++)
        if (op->members[i].limit->policy != policy) return NULL;
    return policy;
}

/* The ops at the front of `ops` that are of one policy, as a turn of their own; what does not fit is left. */
static void send_first_policy(struct redis_store *store, struct list *ops)
{
    struct redis_slot *slot = redis_turns_begin(store);
    const struct policy *policy = policy_of(LIST_ITEM(ops->next, struct op, link));
    LIST_FOREACH (it, ops) {
        struct op *op = LIST_ITEM(it, struct op, link);
        if (policy_of(op) != policy) continue;

        list_remove(it);
        int status = slot != NULL ? redis_turns_add(slot, op) : -1;
        if (status < 0) redis_store_end(store, op, OP_OVERLOAD);
        if (status > 0) { /* nothing may overtake it */
            list_push_back(it_next, it);
            break;
        }
        if (policy == NULL) break;
    }
    if (slot == NULL) return;

    slot->is_apart = true;
    if (batch_n_ops(slot->batch) > 0)
        redis_turns_send(slot);
    else
        redis_turns_abandon(slot);
}

/* Redis refused the whole call, so nothing of it ran. It names no key, and one policy without a right must not be the
 * others' outage. */
static void send_apart(struct redis_slot *refused)
{
    struct redis_store *store = refused->store;
    struct list ops;
    list_init(&ops);
    slot_release(refused, &ops);
    while (!list_empty(&ops)) send_first_policy(store, &ops);
}

static void on_error_reply(struct redis_slot *slot, const struct redis_reader *reply)
{
    struct redis_store *store = slot->store;
    struct slice text = redis_reader_text(reply);
    enum redis_error error = redis_error_of((const char *)text.data, text.len);
    enum redis_remedy remedy = redis_error_remedy(error);

    if (remedy == REMEDY_RELOAD && !slot->was_refused) {
        slot->was_refused = true;
        slot->is_sent = false;
        if (store->phase == SENDING) store->phase = RELOADING;
        list_push_back(&store->refused, &slot->link);
        return;
    }

    counters.redis_errors++;
    memcpy(store->last_error, reply->text, sizeof(store->last_error));
    store->last_error_us = store->clock->mono_us;
    if (remedy == REMEDY_APART && !slot->is_apart) {
        send_apart(slot);
        return;
    }

    slot_end(slot, OP_STORE_ERROR);
    if (remedy == REMEDY_RECONNECT || remedy == REMEDY_RECONNECT_LATE) {
        char why[REDIS_TEXT_MAX];
        memcpy(why, reply->text, sizeof(why));
        redis_link_drop(store->link, remedy, why);
    }
}

/* In the order in which they were taken. */
static void wait_again(struct redis_slot *slot)
{
    struct redis_store *store = slot->store;
    struct list ops;
    list_init(&ops);
    slot_release(slot, &ops);
    while (!list_empty(&ops)) {
        struct list *last = ops.prev;
        list_remove(last);
        redis_store_wait_again(store, LIST_ITEM(last, struct op, link));
    }
}

static void on_value_reply(struct redis_slot *slot, const struct redis_reader *reply)
{
    struct redis_store *store = slot->store;
    int status = -1;
    if (redis_reader_is_integers(reply))
        status = batch_replay(slot->batch, reply->integers, reply->n_integers, slot->nonce);
    if (status < 0) {
        counters.redis_bad_replies++;
        slot_end(slot, OP_STORE_ERROR);
        redis_link_drop(store->link, REMEDY_RECONNECT, "an answer to something else than was asked");
        return;
    }

    redis_turns_learn_time(store, slot->batch);
    redis_store_adapt_window(store, slot->sent_us);
    if (status > 0) {
        counters.redis_batches_too_late++;
        wait_again(slot);
        return;
    }

    struct list decided;
    list_init(&decided);
    slot_release(slot, &decided);
    for (struct list *it; (it = list_pop_front(&decided)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->done(op, op->outcome);
    }
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
