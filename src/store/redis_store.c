/*
 * redis_store.c: the store as the engine sees it: ops in, their ends out, and what the link tells.
 *
 *   submit ──▶ gathering (a slot: one turn of turn.h) ── full, or flush ──▶ redis_turns.c ──▶ done
 *
 * New settings of the server itself (a reload) are moved to without losing anything: new turns are held until
 * what is in flight has been answered and the new connection is ready; only if that fails do they end.
 *
 * done runs from a reply's callback or from the `soon` timer, never from within submit, and never while
 * hiredis takes a connection down: what ends then waits in `ended` for the timer.
 */
#include "store/redis_private.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"

/* ---- ends ---- */

void redis_store_run_done(struct list *ops)
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
    redis_store_run_done(&store->ended);
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

/* ---- the link's events ---- */

static void on_ready(void *arg)
{
    struct redis_store *store = arg;
    counters.redis_up = 1;
    redis_turns_send_waiting(store);
}

static void on_down(void *arg)
{
    struct redis_store *store = arg;
    counters.redis_up = 0;
    if (store->phase == MOVING)
        redis_link_move(store->link);
    else
        redis_turns_end_waiting(store);
}

static void on_attempt(void *arg)
{
    struct redis_store *store = arg;
    store->had_attempt = true;
    if (!redis_link_is_ready(store->link)) redis_turns_end_waiting(store);
    if (store->on_first_attempt != NULL) redis_store_call_soon(store);
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
        if (is_new) store->gathering = redis_turns_begin(store);
        if (store->gathering == NULL) return SUBMIT_OVERLOAD;
        int status = turn_add(store->gathering->turn, op);
        if (status == 0) return SUBMIT_PENDING;
        if (status < 0 || turn_n_ops(store->gathering->turn) == 0) return SUBMIT_OVERLOAD;
        redis_turns_send_gathering(store);
    }
    return SUBMIT_OVERLOAD;
}

static void redis_flush(void *impl)
{
    struct redis_store *store = impl;
    if (store->link == NULL) return;
    if (store->gathering != NULL && turn_n_ops(store->gathering->turn) > 0) redis_turns_send_gathering(store);
    redis_link_flush(store->link);
}

static void on_soon_closed(uv_handle_t *handle)
{
    struct redis_store *store = handle->data;
    redis_turns_free_slots(&store->idle);
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
    redis_store_run_done(&store->ended);
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
    redis_turns_end_waiting(store);
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
    if (redis->had_attempt) redis_store_call_soon(redis);
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
    redis_turns_go_on_when_drained(redis);
}
