/*
 * redis_store.c: the store as the engine sees it: ops in, their ends out, and what the link tells.
 *
 *   submit ──▶ waiting (op_queue.h) ── flush: while the window has room, one batch (a slot: one batch of batch.h) after
 * the other, filled round robin over the parties ──▶ redis_turns.c ──▶ done
 *
 * The window bounds what Redis has before it. What is sent cannot be called back, so a Redis that falls behind would
 * work off ops that were answered long ago, first come first served, and one party that asks for much would have all of
 * it. What waits here can be dropped when its deadline passes, and is shared out fairly.
 *
 * New settings of the server itself (a reload) are moved to without losing anything: ops wait until what is in flight
 * has been answered and the new connection is ready; only if that fails do they end.
 *
 * done runs from a reply's callback or from the `soon` timer, never from within submit or flush, and never while
 * hiredis takes a connection down: what ends then waits in `ended` for the timer.
 */
#include "store/redis_private.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"

enum {
    BATCH_OPS_MAX = 1024, /* its reply is handled in one tick */
    DONE_PER_TICK = 1024,
    /* Of the deadline. An op may have to wait for two replies: that of what is on the wire, and its own. */
    FULL_PART = 4,  /* while the oldest reply takes longer, nothing more is sent */
    SLOW_PART = 10, /* a reply that took longer says that less should be on the wire */
};

/* ---- ends ---- */

static void run_done(struct redis_store *store, size_t most)
{
    struct list *it;
    for (size_t n = 0; n < most && (it = list_pop_front(&store->ended)) != NULL; n++) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->done(op, op->outcome);
    }
}

static void on_soon(uv_timer_t *timer)
{
    struct redis_store *store = timer->data;
    clock_update(store->clock);

    run_done(store, DONE_PER_TICK);
    if (!list_empty(&store->ended)) redis_store_call_soon(store);

    if (store->had_attempt && store->on_first_attempt != NULL) {
        void (*callback)(void *arg) = store->on_first_attempt;
        store->on_first_attempt = NULL;
        callback(store->on_first_attempt_arg);
    }
}

void redis_store_call_soon(struct redis_store *store)
{
    if (!uv_is_closing((uv_handle_t *)&store->soon)) uv_timer_start(&store->soon, on_soon, 0, 0);
}

void redis_store_end(struct redis_store *store, struct op *op, enum op_outcome outcome)
{
    op->outcome = outcome;
    list_push_back(&store->ended, &op->link);
    redis_store_call_soon(store);
}

/* ---- what waits ---- */

static void stop_waiting(struct redis_store *store, struct op *op)
{
    op_queue_take(&store->waiting, op);
    op->waits = false;
}

void redis_store_wait_again(struct redis_store *store, struct op *op)
{
    op->sent = false;
    op->runs_until_us = 0;
    op->waits = op_queue_put_back(&store->waiting, op) == 0;
    if (!op->waits) redis_store_end(store, op, OP_OVERLOAD);
}

static void refuse_waiting(struct redis_store *store, enum op_outcome outcome)
{
    for (struct op *op; (op = op_queue_first(&store->waiting)) != NULL;) {
        stop_waiting(store, op);
        redis_store_end(store, op, outcome);
    }
}

/* Whatever is not on the wire: it is certainly not done. */
static void end_waiting(struct redis_store *store)
{
    store->phase = SENDING;
    redis_turns_end_refused(store);
    refuse_waiting(store, OP_DOWN);
}

/* ---- the link's events ---- */

static void on_ready(void *arg)
{
    struct redis_store *store = arg;
    counters.redis_up = 1;
    store->window = store->options.window;
    store->phase = SENDING;
    redis_turns_send_refused(store);
}

static void on_down(void *arg)
{
    struct redis_store *store = arg;
    counters.redis_up = 0;
    if (store->phase == MOVING)
        redis_link_move(store->link);
    else
        end_waiting(store);
}

static void on_attempt(void *arg)
{
    struct redis_store *store = arg;
    store->had_attempt = true;
    if (!redis_link_is_ready(store->link)) end_waiting(store);
    if (store->on_first_attempt != NULL) redis_store_call_soon(store);
}

static size_t canary_args(void *arg, const struct slice **ret_args)
{
    struct redis_store *store = arg;
    store->canary_nonce = ++store->last_nonce;
    return batch_args(store->canary, store->canary_nonce, store->clock->wall_us, 0, ret_args);
}

static bool is_canary_good(void *arg, const struct redis_reader *reply)
{
    struct redis_store *store = arg;
    if (!redis_reader_is_integers(reply)) return false;
    if (batch_replay(store->canary, reply->integers, reply->n_integers, store->canary_nonce) != 0) return false;
    redis_turns_learn_time(store, store->canary);
    return true;
}

/* ---- store.h ---- */

/* Beyond these nothing waits any more. */
static bool is_at_cap(const struct redis_store *store)
{
    return store->n_calls >= store->options.max_inflight || redis_link_output(store->link) >= store->options.max_output;
}

static enum submit redis_submit(void *impl, struct op *op)
{
    struct redis_store *store = impl;
    bool can_wait = store->phase == MOVING;
    if (store->is_closing || (!can_wait && !redis_link_is_ready(store->link))) return SUBMIT_DOWN;
    if (is_at_cap(store)) return SUBMIT_OVERLOAD;

    op->sent = false;
    op->runs_until_us = 0;
    if (op_queue_add(&store->waiting, op) < 0) return SUBMIT_OVERLOAD;
    op->waits = true;
    return SUBMIT_PENDING;
}

static bool redis_withdraw(void *impl, struct op *op)
{
    if (!op->waits) return false;
    stop_waiting(impl, op);
    return true;
}

static int64_t part_of_deadline_us(const struct redis_store *store, int part)
{
    return (int64_t)store->options.deadline_ms * 1000 / part;
}

/* One batch may always be on its way; more only as long as Redis answers well within the deadline. */
static bool window_is_full(const struct redis_store *store)
{
    if (list_empty(&store->in_flight)) return false;
    if (store->n_calls >= store->window) return true;

    const struct redis_slot *oldest = LIST_ITEM(store->in_flight.next, struct redis_slot, link);
    return store->clock->mono_us - oldest->sent_us >= part_of_deadline_us(store, FULL_PART);
}

/* What is on the wire is what a new op waits for. Half as much of it where that takes too long, one more where not. */
void redis_store_adapt_window(struct redis_store *store, int64_t sent_us)
{
    bool is_slow = store->clock->mono_us - sent_us >= part_of_deadline_us(store, SLOW_PART);
    if (is_slow)
        store->window = store->window > 1 ? store->window / 2 : 1;
    else if (store->window < store->options.window)
        store->window++;
    if (store->window > store->options.window) store->window = store->options.window;
}

/* Nobody waits for it any more, and it was not sent. */
static bool is_expired(const struct redis_store *store, const struct op *op)
{
    return op->deadline_us > 0 && op->deadline_us <= store->clock->mono_us;
}

/* As many ops of those that wait as fit, in their order. */
static void fill(struct redis_store *store, struct redis_slot *slot)
{
    struct op *op;
    while (batch_n_ops(slot->batch) < BATCH_OPS_MAX && (op = op_queue_first(&store->waiting)) != NULL) {
        stop_waiting(store, op);
        if (is_expired(store, op)) {
            redis_store_end(store, op, OP_EXPIRED);
            continue;
        }

        int status = redis_turns_add(slot, op);
        if (status == 0) continue;
        if (status > 0 && batch_n_ops(slot->batch) > 0) {
            redis_store_wait_again(store, op);
            return;
        }
        redis_store_end(store, op, OP_OVERLOAD); /* no memory for it, or it fits no batch at all */
    }
}

static void send_waiting(struct redis_store *store)
{
    while (store->waiting.n > 0 && !is_at_cap(store) && !window_is_full(store)) {
        struct redis_slot *slot = redis_turns_begin(store);
        if (slot == NULL) return; /* without memory: at the next tick, or until their deadlines */

        fill(store, slot);
        if (batch_n_ops(slot->batch) > 0)
            redis_turns_send(slot);
        else
            redis_turns_abandon(slot);
    }
    if (is_at_cap(store)) refuse_waiting(store, OP_OVERLOAD);
}

static void redis_flush(void *impl)
{
    struct redis_store *store = impl;
    if (store->link == NULL) return;
    if (store->phase == SENDING && redis_link_is_ready(store->link)) send_waiting(store);
    redis_link_flush(store->link);
}

static void on_soon_closed(uv_handle_t *handle)
{
    struct redis_store *store = handle->data;
    redis_turns_free_slots(&store->idle);
    batch_free(store->canary);
    op_queue_fini(&store->waiting);
    redis_options_fini(&store->options);
    void (*on_closed)(void *arg) = store->on_closed;
    void *arg = store->on_closed_arg;
    mem_free(store);
    on_closed(arg);
}

static void on_link_closed(void *arg)
{
    struct redis_store *store = arg;
    store->link = NULL;
    CHECK(list_empty(&store->in_flight) && list_empty(&store->refused) && store->waiting.n == 0);
    run_done(store, SIZE_MAX);
    uv_close((uv_handle_t *)&store->soon, on_soon_closed);
}

static void redis_close(void *impl, void (*on_closed)(void *arg), void *arg)
{
    struct redis_store *store = impl;
    CHECK(!store->is_closing);
    store->is_closing = true;
    store->on_closed = on_closed;
    store->on_closed_arg = arg;
    counters.redis_up = 0;
    end_waiting(store);
    redis_link_close(store->link, on_link_closed, store);
}

static const struct store_ops redis_ops = {
    .submit = redis_submit, .withdraw = redis_withdraw, .flush = redis_flush, .close = redis_close};

struct store redis_store_handle(struct redis_store *redis)
{
    return (struct store){.ops = &redis_ops, .impl = redis, .source = SOURCE_REDIS};
}

static void init_script(struct redis_store *store)
{
    store->script = (struct redis_script){
        .text = {(const uint8_t *)batch_script, batch_script_len},
        .sha1 = {(const uint8_t *)batch_script_sha1, sizeof(batch_script_sha1) - 1},
        .arg = store,
        .canary = canary_args,
        .is_canary_good = is_canary_good,
    };
}

struct redis_store *redis_store_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options)
{
    struct redis_store *store = mem_zalloc(sizeof(*store));
    if (store == NULL) return NULL;
    store->clock = clock;
    list_init(&store->idle);
    list_init(&store->in_flight);
    list_init(&store->refused);
    list_init(&store->ended);
    store->last_nonce = (uint32_t)options->random_seed;
    init_script(store);
    if (op_queue_init(&store->waiting) < 0) goto err_free_store;
    if (redis_options_copy(&store->options, options) < 0) goto err_fini_queue;
    store->canary = batch_new(store->options.key_prefix, store->options.batch_max_keys, store->options.merge);
    if (store->canary == NULL) goto err_free_options;
    const struct redis_link_events events = {
        .arg = store, .on_ready = on_ready, .on_down = on_down, .on_attempt = on_attempt};
    store->link = redis_link_new(loop, clock, &store->options, &store->script, &events);
    if (store->link == NULL) goto err_free_canary;
    uv_timer_init(loop, &store->soon);
    store->soon.data = store;
    return store;

err_free_canary:
    batch_free(store->canary);
err_free_options:
    redis_options_fini(&store->options);
err_fini_queue:
    op_queue_fini(&store->waiting);
err_free_store:
    mem_free(store);
    return NULL;
}

bool redis_store_ready(const struct redis_store *redis)
{
    return redis->link != NULL && redis_link_is_ready(redis->link);
}

void redis_store_on_first_attempt(struct redis_store *redis, void (*callback)(void *arg), void *arg)
{
    redis->on_first_attempt = callback;
    redis->on_first_attempt_arg = arg;
    if (redis->had_attempt) redis_store_call_soon(redis);
}

const char *redis_store_status(const struct redis_store *redis)
{
    return redis->link != NULL ? redis_link_status(redis->link) : "closed";
}

const char *redis_store_last_error(const struct redis_store *redis, int64_t *ret_us)
{
    *ret_us = redis->last_error_us;
    return redis->last_error;
}

void redis_store_set_options(struct redis_store *redis, const struct redis_options *options)
{
    struct redis_options copy;
    if (redis->is_closing || redis_options_copy(&copy, options) < 0) return; /* the present ones go on */
    /* Keys written under one prefix are not found under another, and the turns hold theirs: it stays. */
    const char *prefix = copy.key_prefix;
    copy.key_prefix = redis->options.key_prefix;
    redis->options.key_prefix = prefix;
    bool is_other_server = !redis_options_same_server(&copy, &redis->options);
    redis_options_fini(&redis->options);
    redis->options = copy;
    redis_link_options_changed(redis->link);
    if (!is_other_server) return;
    if (!redis_link_is_ready(redis->link)) {
        redis_link_move(redis->link);
        return;
    }
    redis->phase = MOVING;
    redis_turns_go_on_when_drained(redis);
}
