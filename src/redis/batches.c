/*
 * redis/batches.c: which ops wait, which are on their way to one server, and what becomes of them; for redis/node.c.
 */
#include "redis/batches.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/latency.h"
#include "base/log.h"
#include "policy/policy.h"
#include "redis/counters.h"

enum {
    CALL_OPS_MAX = 1024,                /* of a call: its reply is handled in one tick */
    MERGE_LOOKS = 1024,                 /* at waiting checks, for one batch */
    BEHIND_MAX = 16,                    /* clients that wait for a later batch, of one key */
    PASSED_MAX = 64,                    /* clients whose next op goes with nothing in a batch */
    CALL_ARGS_MAX = 2 + BATCH_ARGS_MAX, /* EVALSHA, digest, and the batch's */
    IDLE_MAX = 64,                      /* batches kept for later; about 16 KiB each */
    LATE_US = 1000000,                  /* how long after the latest deadline of its ops a batch may still begin */
    ERRORS_PER_SECOND = 20,             /* that are logged */
};

/* ---- one call ---- */

static int64_t usual_deadline_us(const struct redis_batches *batches)
{
    return (int64_t)batches->options->deadline_ms * 1000;
}

/* With an empty batch; NULL without memory. */
static struct batch_call *begin_call(struct redis_batches *batches)
{
    struct list *idle = list_pop_front(&batches->idle);
    batches->n_idle -= idle != NULL;
    struct batch_call *call = idle != NULL
                                  ? LIST_ITEM(idle, struct batch_call, link)
                                  : batch_call_new(batches, batches->options, &batches->doubtful, batches->clock);
    if (call == NULL) return NULL;

    batches->n_calls++;
    batch_call_begin(call, batches->options, ++batches->last_nonce);
    return call;
}

/* Its ops to `to`; the call is kept for another batch, or freed if a burst has left too many. */
static void release_call(struct batch_call *call, struct list *to)
{
    struct redis_batches *batches = call->batches;
    batch_take_ops(call->batch, to);
    batch_clear(call->batch);
    batches->n_calls--;
    batches->n_keys -= call->n_keys;
    if (batches->n_idle >= IDLE_MAX) {
        batch_call_free(call);
        return;
    }
    list_push_back(&batches->idle, &call->link);
    batches->n_idle++;
}

static void end_op(struct redis_batches *batches, struct op *op, enum op_outcome outcome)
{
    batches->events.on_end(batches->events.arg, op, outcome);
}

/* For people: some ops end with it. policy: the one that it is about; NULL = all. */
static void note_error(struct redis_batches *batches, const struct policy *policy, const char *text)
{
    snprintf(batches->last_error, sizeof batches->last_error, "%.*s", (int)sizeof batches->last_error - 1, text);
    snprintf(batches->last_error_policy, sizeof batches->last_error_policy, "%s", policy != NULL ? policy->name : "");
    batches->last_error_us = batches->clock->mono_us;
}

static void call_end(struct batch_call *call, enum op_outcome outcome)
{
    struct redis_batches *batches = call->batches;
    bool is_sent = call->is_sent;
    int64_t until_us = call->until_us;
    struct list ops;
    list_init(&ops);
    release_call(call, &ops);

    for (struct list *it; (it = list_pop_front(&ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->sent = is_sent;
        op->runs_until_us = until_us;
        end_op(batches, op, outcome);
    }
}

static void on_batch_reply(struct redis_call *redis_call, const struct redis_reader *reply);

static void on_asking_reply(struct redis_call *redis_call, const struct redis_reader *reply)
{
    struct batch_call *call = CONTAINER_OF(redis_call, struct batch_call, asking);
    if (call->is_cut_off) {
        call_end(call, OP_DOWN); /* is_sent is false */
        return;
    }
    if (reply == NULL || !redis_reader_is_error(reply)) return;
    call->is_asking_refused = true;
    char text[REDIS_TEXT_MAX];
    snprintf(text, sizeof text, "ASKING: %.*s", REDIS_TEXT_MAX - 16, reply->text);
    note_error(call->batches, call->policy, text);
}

/* Its batch is complete. If it is empty or cannot be sent it ends here; it was certainly not executed. */
static void send_call(struct batch_call *call)
{
    struct redis_batches *batches = call->batches;
    /* The latest time at which the batch may begin. An op without a deadline counts as one that came now. */
    int64_t usual_us = batches->clock->mono_us + usual_deadline_us(batches);
    int64_t until_us = (call->last_deadline_us > usual_us ? call->last_deadline_us : usual_us) + LATE_US;

    for (uint16_t i = 0; i < call->n_slots; i++) batches->slots->of[call->slots[i]].open = NULL;
    if (call->n_slots > 1) batch_set_undeclared(call->batch);
    call->n_keys = batch_n_keys(call->batch);
    batches->n_keys += call->n_keys;
    const struct slice *of_batch;
    size_t n = 0;
    if (batch_n_ops(call->batch) > 0) /* else nothing was put in */
        n = batch_args(call->batch, call->nonce, batches->clock->wall_us, until_us + batches->server_ahead_us,
                       &of_batch);
    if (n == 0) {
        call_end(call, OP_OVERLOAD);
        return;
    }

    CHECK(n + 2 <= CALL_ARGS_MAX);
    const struct slice asking = slice_of("ASKING");
    struct slice args[CALL_ARGS_MAX];
    args[0] = slice_of("EVALSHA");
    args[1] = batches->script.sha1;
    memcpy(args + 2, of_batch, n * sizeof args[0]);
    call->redis_call.on_reply = on_batch_reply;
    call->asking.on_reply = on_asking_reply;
    if (call->is_asking && redis_link_send(batches->link, &call->asking, &asking, 1) < 0) {
        call_end(call, OP_DOWN);
        return;
    }
    if (redis_link_send(batches->link, &call->redis_call, args, n + 2) < 0) {
        if (call->is_asking)
            call->is_cut_off = true; /* it ends with the reply to ASKING */
        else
            call_end(call, OP_DOWN);
        return;
    }

    call->is_sent = true;
    call->until_us = until_us;
    call->sent_us = batches->clock->mono_us;
    list_push_back(&batches->in_flight, &call->link);
    for (uint16_t i = 0; i < call->n_slots; i++) batches->slots->of[call->slots[i]].n_calls++;
    redis_counters.redis_inflight++;
    redis_counters.redis_batches++;
    redis_counters.redis_batch_keys += batch_n_keys(call->batch);
}

/* ---- ops that wait, and the window that lets them go ---- */

/* What the window counts: calls; in a cluster keys, because a call may have few of them. */
static size_t n_on_wire(const struct redis_batches *batches)
{
    return batches->slots != NULL ? batches->n_keys : batches->n_calls;
}

static uint32_t n_per_batch(const struct redis_batches *batches)
{
    return batches->slots != NULL ? batches->options->batch_max_keys : 1;
}

/* Nothing more may wait. */
static bool is_at_cap(const struct redis_batches *batches)
{
    return n_on_wire(batches) >= batches->options->max_inflight * n_per_batch(batches) ||
           redis_link_output(batches->link) >= batches->options->max_output;
}

/* The window has, for one more. */
static bool has_space(const struct redis_batches *batches)
{
    if (is_at_cap(batches)) return false;
    const struct list *oldest = batches->in_flight.next;
    int64_t now_us = batches->clock->mono_us;
    bool is_idle = list_empty(&batches->in_flight);
    int64_t oldest_us = is_idle ? now_us : LIST_ITEM(oldest, struct batch_call, link)->sent_us;
    return redis_window_has_space(&batches->window, (uint32_t)n_on_wire(batches), n_per_batch(batches), oldest_us,
                                  now_us, usual_deadline_us(batches));
}

/* The op was not sent after all: it waits again, first in the queue. Without memory for that it ends. */
static void wait_again(struct redis_batches *batches, struct op *op)
{
    op->sent = false;
    op->runs_until_us = 0;
    if (op_queue_put_back(&batches->waiting, op) < 0) end_op(batches, op, OP_OVERLOAD);
}

/* What was refused waits again, the last one first, so that it has its old order; at the end of the tick it is sent. */
static void send_refused(struct redis_batches *batches)
{
    batches->phase = BATCHES_SENDING;
    while (!list_empty(&batches->refused)) {
        struct list *last = batches->refused.prev;
        list_remove(last);
        wait_again(batches, LIST_ITEM(last, struct op, link));
    }
}

void redis_batches_end_waiting(struct redis_batches *batches, enum op_outcome outcome)
{
    for (struct list *it; (it = list_pop_front(&batches->refused)) != NULL;)
        end_op(batches, LIST_ITEM(it, struct op, link), outcome);
    for (struct op *op; (op = op_queue_next(&batches->waiting)) != NULL;) {
        op_queue_take(&batches->waiting, op);
        end_op(batches, op, outcome);
    }
}

/* Its time has passed, or it is about what another server was charged: it is not to be sent. */
static bool is_over(const struct redis_batches *batches, const struct op *op)
{
    if (op->is_bound && op->server != batches->options->server) return true;
    return op->deadline_us > 0 && op->deadline_us <= batches->clock->mono_us;
}

/* In a cluster: its hash slot is moving, so it goes in a call of its own. */
static bool is_alone(const struct redis_batches *batches, const struct op *op)
{
    return op->is_asking || batches->slots->of[op->hash_slot].alone_until_us > batches->clock->mono_us;
}

/* In a cluster: may the op's hash slot be in the call with those of the ops inside? */
static bool may_share_slots(const struct batch_call *call, const struct op *op)
{
    const struct redis_batches *batches = call->batches;
    if (call->n_slots == 0) return true;
    if (call->is_alone || is_alone(batches, op)) return false;
    if (op->hash_slot == call->slots[0]) return true;
    return batches->reach.of == REACH_NODE &&
           op->kind != OP_RESET; /* of several keys, it could find one and not another */
}

/* batch_call_add(), and from then on it is known where the op is done. */
static enum batch_status put(struct batch_call *call, struct op *op)
{
    struct redis_batches *batches = call->batches;
    op->server = batches->options->server;
    enum batch_status status = batch_call_add(call, op);
    if (status != BATCH_ADDED || batches->slots == NULL) return status;

    struct cluster_slot *slot = &batches->slots->of[op->hash_slot];
    if (call->n_slots == 0) {
        call->is_alone = is_alone(batches, op);
        call->is_asking = op->is_asking;
    }
    if (slot->open != call) {
        CHECK(call->n_slots < BATCH_KEYS_MAX);
        slot->open = call;
        call->slots[call->n_slots++] = op->hash_slot;
    }
    return status;
}

/* Adds waiting ops, as many as fit, each client's in their order: if the next one goes with nothing inside, the client
 * waits for the next batch. */
static void fill_call(struct redis_batches *batches, struct batch_call *call)
{
    struct cluster_slot *const slots = batches->slots != NULL ? batches->slots->of : NULL;
    size_t n_ops = 0, n_passed = 0;
    bool is_full = false;
    for (struct op *op; !is_full && (op = op_queue_next(&batches->waiting)) != NULL;) {
        struct cluster_slot *slot = slots != NULL ? &slots[op->hash_slot] : NULL;
        if (slot != NULL && !slot->is_held && !may_share_slots(call, op)) {
            op_queue_pass(&batches->waiting, op);
            is_full = ++n_passed == PASSED_MAX;
            continue;
        }

        op_queue_take(&batches->waiting, op);
        if (is_over(batches, op)) {
            end_op(batches, op, OP_EXPIRED); /* its client waits no longer, and it was not sent */
            continue;
        }
        if (slot != NULL && slot->is_held) {
            cluster_slots_add(slot, op);
            continue;
        }

        enum batch_status status = put(call, op);
        if (status == BATCH_ADDED) {
            is_full = ++n_ops == CALL_OPS_MAX || call->is_alone;
        } else if (status == BATCH_NO_MEMORY || n_ops == 0) {
            end_op(batches, op, OP_OVERLOAD); /* no memory for it, or it fits no batch at all */
        } else {
            wait_again(batches, op);
            is_full = status == BATCH_FULL || ++n_passed == PASSED_MAX;
            if (!is_full) op_queue_pass(&batches->waiting, op);
        }
    }
    op_queue_resume(&batches->waiting);
}

/* Of the checks that wait, those of one key go with the batch that has one, if they merge with it; but none before an
 * earlier op of its client that may ask for the same key. Looks at `most` checks at most; returns at how many. */
static size_t merge_checks(struct redis_batches *batches, struct batch_call *call, uint64_t hash, size_t most)
{
    uint64_t behind[BEHIND_MAX]; /* clients: nothing more of theirs may go */
    size_t n_behind = 0, n_looks = 0;
    struct list *checks = op_queue_checks_of(&batches->waiting, hash);
    LIST_FOREACH (it, checks) {
        struct op *op = LIST_ITEM(it, struct op, same_key);
        if (n_looks++ == most || n_behind == BEHIND_MAX || batch_n_ops(call->batch) == CALL_OPS_MAX) break;
        if (batch_key_hash(&op->members[0]) != hash) continue;
        if (is_over(batches, op)) continue; /* it will not be sent */

        size_t i = 0;
        while (i < n_behind && behind[i] != op->client) i++;
        if (i < n_behind) continue;
        if (!batch_call_would_merge(call, op) || op_queue_has_others(&batches->waiting, op)) {
            behind[n_behind++] = op->client;
            continue;
        }

        op_queue_take(&batches->waiting, op);
        if (put(call, op) != BATCH_ADDED) end_op(batches, op, OP_OVERLOAD); /* no memory */
    }
    return n_looks;
}

void redis_batches_prepare(struct op *op, int64_t now_us)
{
    op->sent = false;
    op->runs_until_us = 0;
    op->met_noscript = op->met_noperm = op->is_doubtful = false;
    op->submitted_us = now_us;
    op->weight = 0;
    (void)batch_weight(op);
}

int redis_batches_add(struct redis_batches *batches, struct op *op)
{
    if (is_at_cap(batches)) return -1;
    redis_batches_prepare(op, batches->clock->mono_us);
    return op_queue_add(&batches->waiting, op);
}

int redis_batches_add_again(struct redis_batches *batches, struct op *op)
{
    op->sent = op->met_noscript = op->met_noperm = false;
    op->runs_until_us = 0;
    return op_queue_add(&batches->waiting, op);
}

void redis_batches_send(struct redis_batches *batches)
{
    if (batches->phase != BATCHES_SENDING || !redis_link_is_ready(batches->link)) return;

    while (batches->waiting.n > 0 && has_space(batches)) {
        struct batch_call *call = begin_call(batches);
        if (call == NULL) return; /* without memory: at the next tick, or until their deadlines */

        fill_call(batches, call);

        if (batches->options->merge && batches->waiting.n > 0 && !call->is_alone) {
            /* Add waiting checks that merge with one in the full batch: they cost Redis nothing, and many checks of one
             * key wait no longer than one does. */
            size_t n_looks = 0;
            for (size_t i = 0; i < batch_n_keys(call->batch) && n_looks < MERGE_LOOKS && batches->waiting.n > 0; i++)
                n_looks += merge_checks(batches, call, batch_hash_of(call->batch, i), MERGE_LOOKS - n_looks);
        }

        send_call(call);
    }
}

/* ---- the script's return, and the move to another server ---- */

static void on_reload_reply(struct redis_call *redis_call, const struct redis_reader *reply)
{
    struct redis_batches *batches = CONTAINER_OF(redis_call, struct redis_batches, reload);
    if (reply == NULL) return;
    if (slice_eq(redis_reader_text(reply), batches->script.sha1))
        log_debug("Redis: script loaded again");
    else
        redis_link_drop(batches->link, REMEDY_RECONNECT, "the script could not be loaded again");
}

/* Goes on (loads the script or moves) once nothing is in flight, so that no op overtakes another. */
static void go_on_when_drained(struct redis_batches *batches)
{
    if (batches->phase == BATCHES_SENDING) return;
    if (!list_empty(&batches->in_flight) || !redis_link_is_ready(batches->link)) return;
    if (batches->phase == BATCHES_MOVING) {
        redis_link_move(batches->link);
        return;
    }

    if (batches->phase == BATCHES_HOLDING) {
        send_refused(batches);
        return;
    }

    const struct slice load[] = {slice_of("SCRIPT"), slice_of("LOAD"), batches->script.text};
    batches->reload.on_reply = on_reload_reply;
    redis_counters.redis_script_loads++;
    if (redis_link_send(batches->link, &batches->reload, load, 3) < 0) {
        redis_link_drop(batches->link, REMEDY_RECONNECT, "out of memory");
        return;
    }

    send_refused(batches);
}

/* ---- replies ---- */

/* Nothing of the call was executed: its ops wait again, once all that is in flight has been answered. Where Redis
 * refused it, each op once for each reason. */
static void call_refused(struct batch_call *call, enum redis_remedy remedy)
{
    struct redis_batches *batches = call->batches;
    struct list ops;
    list_init(&ops);
    release_call(call, &ops);
    size_t n_ended = 0;
    for (struct list *it; (it = list_pop_front(&ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        bool has_met = (remedy == REMEDY_RELOAD && op->met_noscript) || (remedy == REMEDY_SEPARATE && op->met_noperm);
        op->sent = false;
        op->met_noscript |= remedy == REMEDY_RELOAD;
        op->met_noperm |= remedy == REMEDY_SEPARATE;
        n_ended += has_met;
        if (has_met)
            end_op(batches, op, OP_STORE_ERROR);
        else
            list_push_back(&batches->refused, it);
    }
    if (batches->slots != NULL) batches->slots->must_sweep = true; /* some may be of a held one */

    redis_counters.redis_errors += remedy == REMEDY_RELOAD && n_ended > 0;
    if (batches->phase == BATCHES_SENDING) batches->phase = BATCHES_HOLDING;
    bool needs_script = remedy == REMEDY_RELOAD && !list_empty(&batches->refused);
    if (batches->phase == BATCHES_HOLDING && needs_script) batches->phase = BATCHES_RELOADING;
}

/* What is held, was to go before the call, and has a client and key of its ops, may not run any more. */
static void end_overtaken_held(const struct batch_call *call, uint16_t hash_slot)
{
    struct redis_batches *batches = call->batches;
    struct cluster_slot *slot = &batches->slots->of[hash_slot];
    if (!slot->is_held || slot->n_sent == 0) return;

    uint64_t newest = 0;
    const struct list *ops = batch_ops(call->batch);
    LIST_FOREACH (it, ops) {
        const struct op *op = LIST_ITEM(it, struct op, link);
        if (op->number > newest) newest = op->number;
    }

    struct batch_call_asked asked;
    batch_call_asked(call, &asked);
    LIST_FOREACH (it, &slot->ops) {
        struct op *op = LIST_ITEM(it, struct op, link);
        if (!cluster_slots_was_sent(op) || op->number > newest || !batch_call_asked_has(&asked, op)) continue;
        cluster_slots_withdraw(slot, op);
        end_op(batches, op, OP_STORE_ERROR);
    }
}

/* The call may have run, and all that was refused was sent before it. What has a client and key of its ops may not run
 * any more. (Two of one number are one here, so that an op may end that could have been sent: hardly ever.) */
static void end_overtaken(struct batch_call *call)
{
    struct redis_batches *batches = call->batches;
    for (uint16_t i = 0; i < call->n_slots; i++) end_overtaken_held(call, call->slots[i]);
    if (list_empty(&batches->refused)) return;

    struct batch_call_asked asked;
    batch_call_asked(call, &asked);
    LIST_FOREACH (it, &batches->refused) {
        struct op *op = LIST_ITEM(it, struct op, link);
        if (!batch_call_asked_has(&asked, op)) continue;
        list_remove(it);
        op->sent = false;
        end_op(batches, op, OP_STORE_ERROR);
    }
}

/* They were certainly not executed. */
static void end_all(struct redis_batches *batches, struct list *ops)
{
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) {
        LIST_ITEM(it, struct op, link)->sent = false;
        end_op(batches, LIST_ITEM(it, struct op, link), OP_STORE_ERROR);
    }
}

static bool is_word(struct slice text, const char *word)
{
    const uint8_t *space = memchr(text.data, ' ', text.len);
    size_t len = space != NULL ? (size_t)(space - text.data) : text.len;
    return len == strlen(word) && memcmp(text.data, word, len) == 0;
}

/* Is it an error that says that the hash slot is elsewhere? Then its ops are the cluster's, and the call is over. */
static bool is_redirected(struct batch_call *call, struct slice error)
{
    struct redis_batches *batches = call->batches;
    bool is_try_again = is_word(error, "TRYAGAIN");
    if (!is_try_again && !is_word(error, "MOVED") && !is_word(error, "ASK")) return false;

    struct list ops;
    list_init(&ops);
    uint16_t hash_slot = call->slots[0];
    bool is_asking_refused = call->is_asking_refused;
    redis_counters.redis_try_again += is_try_again;
    redis_counters.redis_redirects += !is_try_again;
    release_call(call, &ops);
    LIST_FOREACH (it, &ops) LIST_ITEM(it, struct op, link)->sent = false;
    if (!is_asking_refused) {
        batches->events.on_redirect(batches, hash_slot, error, is_try_again, &ops);
        return true;
    }

    /* The text of that refusal is noted: the right is missing, and it would be sent back and forth. */
    redis_counters.redis_errors++;
    end_all(batches, &ops);
    return true;
}

static void on_error_reply(struct batch_call *call, const struct redis_reader *reply)
{
    struct redis_batches *batches = call->batches;
    struct slice text = redis_reader_text(reply);
    bool is_undeclared = call->n_slots > 1;
    if (call->n_slots == 1 && is_redirected(call, text)) return;
    if (log_is_written(LOG_LEVEL_DEBUG)) {
        static struct log_site errors = {.most = ERRORS_PER_SECOND};
        char printable[REDIS_TEXT_MAX];
        log_limited(&errors, LOG_LEVEL_DEBUG, "Redis error: %s",
                    log_escape(printable, sizeof printable, text.data, text.len));
    }

    enum redis_error error = redis_error_of(text);
    enum redis_remedy remedy = redis_error_remedy(error);
    if (remedy == REMEDY_RELOAD) {
        note_error(batches, call->policy, reply->text); /* some may end with it */
        call_refused(call, remedy);
        return;
    }

    /* Redis writes where the script was when it ran into an error; what came before it began, or from its first look at
     * the keys, has no such words: nothing was done. */
    bool is_inside = memmem(text.data, text.len, "user_script", 11) != NULL;
    if (is_undeclared && error == REDIS_ERROR_OTHER && !is_inside) {
        redis_reach_refused(batches, reply->text);
        call_refused(call, REMEDY_KEEP);
        return;
    }
    if (is_undeclared && error == REDIS_ERROR_NOPERM_INSIDE) redis_reach_refused(batches, reply->text);

    redis_counters.redis_errors++;
    bool is_moved = batches->slots == NULL && strncmp(reply->text, "MOVED ", 6) == 0;
    char why[REDIS_TEXT_MAX];
    snprintf(why, sizeof why, "%.256s; this is a node of a cluster: write store.redis.topology: cluster and restart",
             reply->text);
    note_error(batches, call->policy, is_moved ? why : reply->text);

    /* Redis refused the whole call, so nothing of it ran. It names no key, and one policy without a right must not be
     * the others' outage. */
    if (remedy == REMEDY_SEPARATE && !call->is_doubtful) {
        const struct list *ops = batch_ops(call->batch);
        LIST_FOREACH (it, ops) doubtful_policies_add(&batches->doubtful, LIST_ITEM(it, struct op, link));
        call_refused(call, remedy);
        return;
    }

    if (remedy != REMEDY_SEPARATE) end_overtaken(call);
    call_end(call, OP_STORE_ERROR);
    if (error == REDIS_ERROR_REFUSED) redis_breaker_refused(batches->breaker);
    bool is_elsewhere = error == REDIS_ERROR_REFUSED || error == REDIS_ERROR_ROLE;
    if (batches->slots != NULL && is_elsewhere) batches->events.on_doubt(batches);
    if (remedy == REMEDY_RECONNECT || remedy == REMEDY_RECONNECT_LATE)
        redis_link_drop(batches->link, remedy, batches->last_error);
}

/* For the breaker. */
static int64_t missed_us(const struct batch_call *call)
{
    return batch_call_missed_us(call, (int64_t)call->batches->options->breaker_late_ms * 1000);
}

static void on_value_reply(struct batch_call *call, const struct redis_reader *reply)
{
    struct redis_batches *batches = call->batches;
    int status = -1;
    if (redis_reader_is_integers(reply))
        status = batch_replay(call->batch, reply->integers, reply->n_integers, call->nonce);
    if (status < 0) {
        redis_counters.redis_bad_replies++;
        note_error(batches, call->policy, "an answer to something else than was asked");
        const struct list *ops = batch_ops(call->batch);
        LIST_FOREACH (it, ops) LIST_ITEM(it, struct op, link)->is_doubtful = true;
        call_end(call, OP_STORE_ERROR);
        redis_link_drop(batches->link, REMEDY_RECONNECT, batches->last_error);
        return;
    }

    int64_t sent_us = call->sent_us, now_us = batches->clock->mono_us, late_us = missed_us(call);
    redis_window_answered(&batches->window, batches->slots != NULL ? (uint32_t)call->n_keys : 1, n_per_batch(batches),
                          sent_us, now_us, usual_deadline_us(batches), batches->options->window);
    batches->server_ahead_us = batch_now_us(call->batch) - now_us;
    int64_t middle_us = batches->clock->wall_us - (now_us - sent_us) / 2;
    batches->wall_ahead_us = batch_now_us(call->batch) - middle_us;
    batches->has_wall = true;
    if (status == 1) {
        redis_counters.redis_batches_too_late++;
        redis_breaker_lost(batches->breaker, late_us, sent_us, now_us);
        if (late_us > 0) redis_breaker_took(batches->breaker, now_us - sent_us);
        call_refused(call, REMEDY_KEEP);
        return;
    }

    struct list away, barred;
    list_init(&away);
    list_init(&barred);
    if (call->n_slots > 1) {
        batch_take_ended(call->batch, OP_AWAY, &away);
        batch_take_ended(call->batch, OP_BARRED, &barred);
    }
    if (batch_n_ops(call->batch) > 0) end_overtaken(call);
    bool has_written = batches->breaker->n_errors > 0 && batch_has_written(call->batch);
    redis_breaker_answered(batches->breaker, late_us, sent_us, now_us, has_written);
    if (late_us > 0) redis_breaker_took(batches->breaker, now_us - sent_us);
    struct list ops;
    list_init(&ops);
    bool is_doubtful = call->is_doubtful;
    release_call(call, &ops);

    if (!list_empty(&barred)) {
        /* The user may not read a key of each. For people: of the last one's policy. */
        const struct op *last = LIST_ITEM(barred.prev, struct op, link);
        note_error(batches, last->members[0].limit->policy, "NOPERM: the user may not read one of the keys");
        redis_counters.redis_errors++;
        end_all(batches, &barred);
    }

    if (!list_empty(&away)) batches->events.on_away(batches, &away);
    if (list_empty(&ops)) return;
    if (is_doubtful) doubtful_policies_remove(&batches->doubtful, LIST_ITEM(ops.next, struct op, link));
    batches->events.on_answers(batches->events.arg, &ops, sent_us);
}

static void on_batch_reply(struct redis_call *redis_call, const struct redis_reader *reply)
{
    struct batch_call *call = CONTAINER_OF(redis_call, struct batch_call, redis_call);
    struct redis_batches *batches = call->batches;
    uint16_t n_slots = call->n_slots, slots[BATCH_KEYS_MAX]; /* the call may be another's soon */
    memcpy(slots, call->slots, n_slots * sizeof slots[0]);
    list_remove(&call->link);
    redis_counters.redis_inflight--;
    for (uint16_t i = 0; i < n_slots; i++) batches->slots->of[slots[i]].n_calls--;
    if (reply == NULL) {
        int64_t late_us = missed_us(call), sent_us = call->sent_us;
        call_end(call, OP_DOWN);
        redis_breaker_lost(batches->breaker, late_us, sent_us, batches->clock->mono_us);
    } else {
        histogram_add(&latencies[LATENCY_STORE], batches->clock->mono_us - call->sent_us, 1);
        if (redis_reader_is_error(reply))
            on_error_reply(call, reply);
        else
            on_value_reply(call, reply);
        go_on_when_drained(batches);
    }
    for (uint16_t i = 0; i < n_slots; i++)
        if (batches->slots->of[slots[i]].is_held) batches->events.on_call_over(batches, slots[i]);
}

/* ---- what waits here for a hash slot ---- */

void redis_batches_end_refused(struct redis_batches *batches, struct list *ops, const char *text)
{
    redis_counters.redis_errors++;
    note_error(batches, NULL, text);
    end_all(batches, ops);
}

void redis_batches_take_slots(struct redis_batches *batches, const bool *is_wanted, struct list *to)
{
    LIST_FOREACH (it, &batches->refused) {
        struct op *op = LIST_ITEM(it, struct op, link);
        if (!is_wanted[op->hash_slot]) continue;
        op->n_tries += op->n_tries < UINT8_MAX; /* it was sent once, which end_overtaken_held() has to know */
        list_remove(it);
        list_push_back(to, it);
    }
    op_queue_take_slots(&batches->waiting, is_wanted, to);
}

void redis_batches_mark_slots(const struct redis_batches *batches, bool *has_waiting)
{
    LIST_FOREACH (it, &batches->refused) has_waiting[LIST_ITEM(it, struct op, link)->hash_slot] = true;
    op_queue_mark_slots(&batches->waiting, has_waiting);
}

/* ---- the canary; init, fini and the link ---- */

const char *redis_batches_scratch_key(const struct redis_batches *batches, char out[STORE_OWN_KEY_MAX])
{
    uint32_t shard = batches->shard > 0 ? (uint32_t)batches->shard : 0;
    return store_key_own(batches->options->key_prefix, shard, "scratch", out);
}

/* The script does nothing with the key, but there are servers that refuse a script without one. */
static size_t canary_args(void *arg, const struct slice **ret_args)
{
    struct redis_batches *batches = arg;
    const struct slice *of_batch;
    if (batch_args(batches->canary, batches->canary_nonce, batches->clock->wall_us, 0, &of_batch) == 0) return 0;

    batches->canary_args[0] = slice_of("1");
    batches->canary_args[1] = slice_of(redis_batches_scratch_key(batches, batches->canary_key));
    batches->canary_args[2] = of_batch[1]; /* behind its number of keys: the packet */
    *ret_args = batches->canary_args;
    return N_OF(batches->canary_args);
}

static bool is_canary_good(void *arg, const struct redis_reader *reply)
{
    struct redis_batches *batches = arg;
    if (!redis_reader_is_integers(reply)) return false;
    if (batch_replay(batches->canary, reply->integers, reply->n_integers, batches->canary_nonce) != 0) return false;
    batches->server_ahead_us = batch_now_us(batches->canary) - batches->clock->mono_us;
    return true;
}

int redis_batches_init(struct redis_batches *batches, struct clock *clock, const struct redis_options *options,
                       struct cluster_slots *slots, struct redis_breaker *breaker,
                       const struct redis_batches_events *events)
{
    *batches = (struct redis_batches){.clock = clock,
                                      .options = options,
                                      .slots = slots,
                                      .breaker = breaker,
                                      .events = *events,
                                      .server_ahead_us = clock->wall_us - clock->mono_us,
                                      .canary_nonce = (uint32_t)options->random_seed,
                                      .last_nonce = (uint32_t)options->random_seed};
    list_init(&batches->idle);
    list_init(&batches->in_flight);
    list_init(&batches->refused);
    if (op_queue_init(&batches->waiting) < 0) return -1;

    batches->script = (struct redis_script){
        .text = {(const uint8_t *)batch_script, batch_script_len},
        .sha1 = {(const uint8_t *)batch_script_sha1, sizeof batch_script_sha1 - 1},
        .arg = batches,
        .canary = canary_args,
        .is_canary_good = is_canary_good,
    };
    batches->canary = batch_new(&(struct store_key_scheme){options->key_prefix, options->n_shards},
                                options->batch_max_keys, options->merge);
    redis_reach_forget(batches);
    if (batches->canary != NULL) return 0;
    op_queue_fini(&batches->waiting);
    return -1;
}

void redis_batches_fini(struct redis_batches *batches)
{
    CHECK(list_empty(&batches->in_flight) && list_empty(&batches->refused));
    redis_counters.redis_by_slot -= batches->reach.of == REACH_SLOT;
    for (struct list *it; (it = list_pop_front(&batches->idle)) != NULL;)
        batch_call_free(LIST_ITEM(it, struct batch_call, link));
    batch_free(batches->canary);
    op_queue_fini(&batches->waiting);
}

void redis_batches_on_ready(struct redis_batches *batches)
{
    redis_window_begin(&batches->window, batches->options->window);
    batches->doubtful.n = 0; /* it may be another user's connection */
    send_refused(batches);
}

void redis_batches_end_unsent(struct redis_batches *batches)
{
    batches->phase = BATCHES_SENDING;
    redis_batches_end_waiting(batches, OP_DOWN);
}

void redis_batches_on_down(struct redis_batches *batches)
{
    if (batches->phase == BATCHES_MOVING)
        redis_link_move(batches->link);
    else
        redis_batches_end_unsent(batches);
}

void redis_batches_move(struct redis_batches *batches)
{
    if (!redis_link_is_ready(batches->link)) {
        redis_link_move(batches->link);
        return;
    }
    batches->phase = BATCHES_MOVING;
    go_on_when_drained(batches);
}
