/*
 * redis_store.c: ops in, one EVALSHA per turn out, replies back to the ops.
 *
 *   submit ──▶ gathering (a slot: one turn of turn.h) ── full, or flush ──▶ in_flight ──▶ reply
 *                                                   └─ while not sending ─▶ held ─┘
 *   reply good      the turn gives every op its answer; done runs
 *   NOSCRIPT        not executed. What was sent before the script is back comes here too, so new turns are
 *                   held until all of it has been answered; then SCRIPT LOAD, the refused and the held go
 *                   out in their order. Each at most twice.
 *   other error     OP_STORE_ERROR; never sent again, because it may have been executed in part
 *   wrong shape     OP_STORE_ERROR, and the connection is closed: nothing on it can be trusted any more
 *   lost            OP_DOWN; never sent again, because it may have been executed
 *
 * New settings of the server itself (a reload) are moved to without losing anything: new turns are held until
 * what is in flight has been answered and the new connection is ready; only if that fails do they end.
 *
 * done runs from a reply's callback or from the `soon` timer, never from within submit, and never while
 * hiredis takes a connection down: what ends then waits in `ended` for the timer.
 *
 * Every turn carries a nonce that comes back as the last integer, so that an answer can never reach
 * another's check.
 */
#include "store/redis_store.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"
#include "store/redis_link.h"
#include "store/turn.h"

enum {
    CALL_ARGS_MAX = 2 + TURN_ARGS_MAX, /* EVALSHA, digest, and the turn's */
    IDLE_MAX = 64,                     /* slots kept for later turns; about 16 KiB each */
};

/* One turn on its way. */
struct slot {
    struct list link; /* in idle, in_flight or held */
    struct redis_call call;
    struct redis_store *store;
    struct turn *turn; /* owned */
    uint32_t nonce;
    bool was_refused; /* met NOSCRIPT once */
};

enum phase {
    SENDING,
    RELOADING, /* the script is away: wait for in_flight, then load it */
    MOVING,    /* the server's settings have changed: wait for in_flight, then for the new connection */
};

struct redis_store {
    struct clock *clock; /* not owned */
    struct redis_options options;
    struct redis_script script;
    struct redis_link *link; /* owned; NULL once it is closed */

    struct slot *gathering; /* this loop turn's; NULL = none */
    uint32_t n_idle;
    struct list idle; /* slots without a turn */
    struct list in_flight;
    struct list refused; /* met NOSCRIPT: to be sent again, before held */
    struct list held;    /* gathered while not SENDING */
    uint32_t n_calls;    /* gathering, in_flight, refused and held */
    enum phase phase;
    struct redis_call reload;
    struct turn *canary; /* owned; stays empty */
    uint32_t canary_nonce;
    uint32_t last_nonce;

    struct list ended; /* ops with their outcome; done is still to run */
    uv_timer_t soon;
    bool had_attempt;
    void (*on_first_attempt)(void *arg); /* NULL = nobody asks, or told */
    void *on_first_attempt_arg;

    bool is_closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- ends ---- */

static void run_done(struct list *ops)
{
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->done(op, op->outcome);
    }
}

static void on_soon(uv_timer_t *timer)
{
    struct redis_store *store = timer->data;
    clock_update(store->clock);
    run_done(&store->ended);
    if (store->had_attempt && store->on_first_attempt != NULL) {
        void (*callback)(void *arg) = store->on_first_attempt;
        store->on_first_attempt = NULL;
        callback(store->on_first_attempt_arg);
    }
}

static void call_soon(struct redis_store *store)
{
    if (!uv_is_closing((uv_handle_t *)&store->soon)) uv_timer_start(&store->soon, on_soon, 0, 0);
}

/* ---- slots ---- */

static struct slot *slot_new(struct redis_store *store)
{
    struct slot *slot = mem_zalloc(sizeof(*slot));
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

static struct slot *slot_take(struct redis_store *store)
{
    struct list *it = list_pop_front(&store->idle);
    struct slot *slot = it != NULL ? LIST_ITEM(it, struct slot, link) : slot_new(store);
    if (slot == NULL) return NULL;
    store->n_idle -= it != NULL;
    turn_set_merge(slot->turn, store->options.batch_max_keys, store->options.merge);
    slot->nonce = ++store->last_nonce;
    slot->was_refused = false;
    store->n_calls++;
    return slot;
}

static void slot_free(struct slot *slot)
{
    turn_free(slot->turn);
    mem_free(slot);
}

/* Its ops to `to`; the slot is free for the next turn, or gone, where a burst has left too many. */
static void slot_release(struct slot *slot, struct list *to)
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

static void slot_end(struct slot *slot, enum op_outcome outcome)
{
    struct redis_store *store = slot->store;
    struct list ops;
    list_init(&ops);
    slot_release(slot, &ops);
    LIST_FOREACH (it, &ops) {
        LIST_ITEM(it, struct op, link)->outcome = outcome;
    }
    list_append(&store->ended, &ops);
    call_soon(store);
}

static void slots_end(struct list *slots, enum op_outcome outcome)
{
    for (struct list *it; (it = list_pop_front(slots)) != NULL;) slot_end(LIST_ITEM(it, struct slot, link), outcome);
}

static void slots_free(struct list *slots)
{
    for (struct list *it; (it = list_pop_front(slots)) != NULL;) slot_free(LIST_ITEM(it, struct slot, link));
}

/* ---- sending ---- */

static void on_turn_reply(struct redis_call *call, const struct redis_reader *reply);

/* The ops of a slot that could not be sent end here; they were certainly not executed. */
static void send_slot(struct slot *slot)
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

/* The turn being gathered is complete. */
static void send_gathering(struct redis_store *store)
{
    struct slot *slot = store->gathering;
    if (slot == NULL) return;
    store->gathering = NULL;
    if (store->phase == SENDING)
        send_slot(slot);
    else
        list_push_back(&store->held, &slot->link);
}

/* What had to wait goes out in the order it came. */
static void send_waiting(struct redis_store *store)
{
    store->phase = SENDING;
    struct list waiting;
    list_init(&waiting);
    list_append(&waiting, &store->refused);
    list_append(&waiting, &store->held);
    for (struct list *it; (it = list_pop_front(&waiting)) != NULL;) send_slot(LIST_ITEM(it, struct slot, link));
}

static void end_waiting(struct redis_store *store)
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
        send_waiting(store);
    else
        redis_link_drop(store->link, REMEDY_RECONNECT, "out of memory");
}

/* All that was in flight when sending stopped has been answered: nothing can be overtaken any more. */
static void go_on_when_drained(struct redis_store *store)
{
    if (!list_empty(&store->in_flight) || !redis_link_is_ready(store->link)) return;
    if (store->phase == RELOADING) load_again(store);
    if (store->phase == MOVING) redis_link_move(store->link);
}

/* ---- replies ---- */

static void on_error_reply(struct slot *slot, const struct redis_reader *reply)
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

static bool replay(struct slot *slot, const struct redis_reader *reply)
{
    size_t least, most;
    turn_reply_bounds(slot->turn, &least, &most);
    if (!redis_reader_is_integers(reply) || reply->n_integers < least || reply->n_integers > most) return false;
    return turn_replay(slot->turn, reply->integers, reply->n_integers, slot->nonce) == 0;
}

static void on_value_reply(struct slot *slot, const struct redis_reader *reply)
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
    run_done(&decided);
}

static void on_turn_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct slot *slot = CONTAINER_OF(call, struct slot, call);
    struct redis_store *store = slot->store;
    list_remove(&slot->link);
    counters.redis_inflight--;
    if (reply == NULL)
        slot_end(slot, OP_DOWN);
    else if (redis_reader_is_error(reply))
        on_error_reply(slot, reply);
    else
        on_value_reply(slot, reply);
    if (reply != NULL) go_on_when_drained(store);
}

/* ---- the link's events ---- */

static void on_ready(void *arg)
{
    struct redis_store *store = arg;
    counters.redis_up = 1;
    send_waiting(store);
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
    if (store->on_first_attempt != NULL) call_soon(store);
}

static size_t canary_args(void *arg, const struct slice **ret_args)
{
    struct redis_store *store = arg;
    store->canary_nonce = ++store->last_nonce;
    return turn_args(store->canary, store->canary_nonce, store->clock->wall_us, ret_args);
}

static bool is_canary_good(void *arg, const struct redis_reader *reply)
{
    struct redis_store *store = arg;
    return redis_reader_is_integers(reply) &&
           turn_replay(store->canary, reply->integers, reply->n_integers, store->canary_nonce) == 0;
}

/* ---- store.h ---- */

static enum submit redis_submit(void *impl, struct op *op)
{
    struct redis_store *store = impl;
    bool can_wait = store->phase == MOVING;
    if (store->is_closing || (!can_wait && !redis_link_is_ready(store->link))) return SUBMIT_DOWN;
    if (redis_link_output(store->link) >= store->options.max_output) return SUBMIT_OVERLOAD;
    for (int i = 0; i < 2; i++) { /* where the turn is full, once more with a new one */
        bool is_new = store->gathering == NULL;
        if (is_new && store->n_calls >= store->options.max_inflight) return SUBMIT_OVERLOAD;
        if (is_new) store->gathering = slot_take(store);
        if (store->gathering == NULL) return SUBMIT_OVERLOAD;
        int status = turn_add(store->gathering->turn, op);
        if (status == 0) return SUBMIT_PENDING;
        if (status < 0 || turn_n_ops(store->gathering->turn) == 0) return SUBMIT_OVERLOAD;
        send_gathering(store);
    }
    return SUBMIT_OVERLOAD;
}

static void redis_flush(void *impl)
{
    struct redis_store *store = impl;
    if (store->link == NULL) return;
    if (store->gathering != NULL && turn_n_ops(store->gathering->turn) > 0) send_gathering(store);
    redis_link_flush(store->link);
}

static void on_soon_closed(uv_handle_t *handle)
{
    struct redis_store *store = handle->data;
    slots_free(&store->idle);
    turn_free(store->canary);
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
    CHECK(list_empty(&store->in_flight) && list_empty(&store->refused) && list_empty(&store->held));
    run_done(&store->ended);
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

static const struct store_ops redis_ops = {.submit = redis_submit, .flush = redis_flush, .close = redis_close};

struct store redis_store_handle(struct redis_store *redis)
{
    return (struct store){.ops = &redis_ops, .impl = redis, .source = SOURCE_REDIS};
}

static void init_script(struct redis_store *store)
{
    store->script = (struct redis_script){
        .text = {(const uint8_t *)turn_script, turn_script_len},
        .sha1 = {(const uint8_t *)turn_script_sha1, sizeof(turn_script_sha1) - 1},
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
    list_init(&store->held);
    list_init(&store->ended);
    store->last_nonce = (uint32_t)options->random_seed;
    init_script(store);
    if (redis_options_copy(&store->options, options) < 0) goto err_free_store;
    store->canary = turn_new(store->options.key_prefix, store->options.batch_max_keys, store->options.merge);
    if (store->canary == NULL) goto err_free_options;
    const struct redis_link_events events = {
        .arg = store, .on_ready = on_ready, .on_down = on_down, .on_attempt = on_attempt};
    store->link = redis_link_new(loop, clock, &store->options, &store->script, &events);
    if (store->link == NULL) goto err_free_canary;
    uv_timer_init(loop, &store->soon);
    store->soon.data = store;
    return store;

err_free_canary:
    turn_free(store->canary);
err_free_options:
    redis_options_fini(&store->options);
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
    if (redis->had_attempt) call_soon(redis);
}

const char *redis_store_status(const struct redis_store *redis)
{
    return redis->link != NULL ? redis_link_status(redis->link) : "closed";
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
    go_on_when_drained(redis);
}
