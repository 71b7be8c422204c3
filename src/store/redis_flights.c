#include "store/redis_flights.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/log.h"
#include "store/redis_counters.h"

enum {
    CALL_ARGS_MAX = 2 + BATCH_ARGS_MAX, /* EVALSHA, digest, and the batch's */
    IDLE_MAX = 64,                      /* batches kept for later; about 16 KiB each */
    LATE_US = 1000000,                  /* how long after the latest deadline of its ops a batch may still begin */
    /* Of the deadline. An op may have to wait for two replies: that of what is on the wire, and its own. */
    FULL_PART = 4,          /* while the oldest reply takes longer, nothing more is sent */
    SLOW_PART = 10,         /* a reply that took longer says that less should be on the wire */
    ERRORS_PER_SECOND = 20, /* that are logged */
};

struct redis_flight {
    struct list link; /* in idle, in_flight or refused; in none while it is filled */
    struct redis_call call;
    struct redis_flights *flights; /* not owned */
    struct batch *batch;           /* owned */
    uint32_t nonce;
    int64_t last_deadline_us; /* of its ops; CLOCK_MONOTONIC, as the next two */
    int64_t sent_us;
    int64_t until_us; /* it certainly does not begin any later */
    bool is_sent;     /* it may have run */
    bool was_refused; /* met NOSCRIPT once */
    bool is_apart;    /* of one policy alone, because Redis refused it among others */
};

/* ---- one batch ---- */

static void flight_free(struct redis_flight *flight)
{
    batch_free(flight->batch);
    mem_free(flight);
}

struct redis_flight *redis_flights_begin(struct redis_flights *flights)
{
    const struct redis_options *options = flights->options;
    struct list *idle = list_pop_front(&flights->idle);
    struct redis_flight *flight;
    if (idle != NULL) {
        flights->n_idle--;
        flight = LIST_ITEM(idle, struct redis_flight, link);
        batch_set_merge(flight->batch, options->batch_max_keys, options->merge); /* they may have changed */
    } else {
        flight = mem_zalloc(sizeof *flight);
        if (flight == NULL) return NULL;
        flight->batch = batch_new(options->key_prefix, options->batch_max_keys, options->merge);
        if (flight->batch == NULL) {
            mem_free(flight);
            return NULL;
        }
        flight->flights = flights;
        list_init(&flight->link);
    }

    flights->n_calls++;
    flight->nonce = ++flights->last_nonce;
    flight->was_refused = flight->is_apart = flight->is_sent = false;
    flight->last_deadline_us = flight->until_us = 0;
    return flight;
}

int redis_flight_add(struct redis_flight *flight, struct op *op)
{
    int status = batch_add(flight->batch, op);
    if (status != 0) return status;

    op->sent = true;
    if (op->deadline_us > flight->last_deadline_us) flight->last_deadline_us = op->deadline_us;
    return 0;
}

enum batch_merge redis_flight_would_merge(const struct redis_flight *flight, const struct op *op)
{
    return batch_would_merge(flight->batch, op);
}

/* Its ops to `to`; it is kept for another batch, or freed, where a burst has left too many. */
static void flight_release(struct redis_flight *flight, struct list *to)
{
    struct redis_flights *flights = flight->flights;
    batch_take_ops(flight->batch, to);
    batch_clear(flight->batch);
    flights->n_calls--;
    if (flights->n_idle >= IDLE_MAX) {
        flight_free(flight);
        return;
    }
    list_push_back(&flights->idle, &flight->link);
    flights->n_idle++;
}

static void flight_end(struct redis_flight *flight, enum op_outcome outcome)
{
    struct redis_flights *flights = flight->flights;
    bool is_sent = flight->is_sent;
    int64_t until_us = flight->until_us;
    struct list ops;
    list_init(&ops);
    flight_release(flight, &ops);

    for (struct list *it; (it = list_pop_front(&ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->sent = is_sent;
        op->runs_until_us = until_us;
        flights->events.on_end(flights->events.arg, op, outcome);
    }
}

static void on_batch_reply(struct redis_call *call, const struct redis_reader *reply);

void redis_flight_send(struct redis_flight *flight)
{
    struct redis_flights *flights = flight->flights;
    /* The latest time at which the batch may begin. An op without a deadline counts as one that came now. */
    int64_t usual_us = flights->clock->mono_us + (int64_t)flights->options->deadline_ms * 1000;
    int64_t until_us = (flight->last_deadline_us > usual_us ? flight->last_deadline_us : usual_us) + LATE_US;

    const struct slice *of_batch;
    size_t n = 0;
    if (batch_n_ops(flight->batch) > 0) /* else nothing was put in */
        n = batch_args(flight->batch, flight->nonce, flights->clock->wall_us, until_us + flights->server_ahead_us,
                       &of_batch);
    if (n == 0) {
        flight_end(flight, OP_OVERLOAD);
        return;
    }

    CHECK(n + 2 <= CALL_ARGS_MAX);
    struct slice args[CALL_ARGS_MAX];
    args[0] = slice_of("EVALSHA");
    args[1] = flights->script.sha1;
    memcpy(args + 2, of_batch, n * sizeof args[0]);
    flight->call.on_reply = on_batch_reply;
    if (redis_link_send(flights->link, &flight->call, args, n + 2) < 0) {
        flight_end(flight, OP_DOWN);
        return;
    }

    flight->is_sent = true;
    flight->until_us = until_us;
    flight->sent_us = flights->clock->mono_us;
    list_push_back(&flights->in_flight, &flight->link);
    redis_counters.redis_inflight++;
    redis_counters.redis_batches++;
    redis_counters.redis_batch_keys += batch_n_keys(flight->batch);
}

/* Those that met NOSCRIPT, in their order. */
static void send_refused(struct redis_flights *flights)
{
    struct list refused;
    list_init(&refused);
    list_append(&refused, &flights->refused);
    for (struct list *it; (it = list_pop_front(&refused)) != NULL;)
        redis_flight_send(LIST_ITEM(it, struct redis_flight, link));
}

/* ---- the window ---- */

bool redis_flights_is_at_cap(const struct redis_flights *flights)
{
    return flights->n_calls >= flights->options->max_inflight ||
           redis_link_output(flights->link) >= flights->options->max_output;
}

/* One batch may always be on its way; more only as long as Redis answers well within the deadline. */
uint32_t redis_flights_n_free(const struct redis_flights *flights)
{
    if (redis_flights_is_at_cap(flights)) return 0;
    uint32_t n_free = flights->n_calls < flights->window ? flights->window - (uint32_t)flights->n_calls : 0;
    if (list_empty(&flights->in_flight)) return n_free > 0 ? n_free : 1;

    const struct redis_flight *oldest = LIST_ITEM(flights->in_flight.next, struct redis_flight, link);
    bool is_slow =
        flights->clock->mono_us - oldest->sent_us >= (int64_t)flights->options->deadline_ms * 1000 / FULL_PART;
    return is_slow ? 0 : n_free;
}

/* ---- the script's return, and the move to another server ---- */

static void on_reload_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_flights *flights = CONTAINER_OF(call, struct redis_flights, reload);
    if (reply == NULL) return;
    if (slice_eq(redis_reader_text(reply), flights->script.sha1))
        log_debug("Redis: script loaded again");
    else
        redis_link_drop(flights->link, REMEDY_RECONNECT, "the script could not be loaded again");
}

/* Goes on (loads the script or moves) once all batches in flight are answered, so that no op overtakes another. */
static void go_on_when_drained(struct redis_flights *flights)
{
    if (flights->phase == REDIS_SENDING) return;
    if (!list_empty(&flights->in_flight) || !redis_link_is_ready(flights->link)) return;
    if (flights->phase == REDIS_MOVING) {
        redis_link_move(flights->link);
        return;
    }

    const struct slice load[] = {slice_of("SCRIPT"), slice_of("LOAD"), flights->script.text};
    flights->reload.on_reply = on_reload_reply;
    redis_counters.redis_script_loads++;
    if (redis_link_send(flights->link, &flights->reload, load, 3) < 0) {
        redis_link_drop(flights->link, REMEDY_RECONNECT, "out of memory");
        return;
    }

    flights->phase = REDIS_SENDING;
    send_refused(flights);
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

/* The ops at the front of `ops` that are of one policy, as a batch of their own; what does not fit is left. */
static void send_first_policy(struct redis_flights *flights, struct list *ops)
{
    struct redis_flight *flight = redis_flights_begin(flights);
    const struct policy *policy = policy_of(LIST_ITEM(ops->next, struct op, link));
    LIST_FOREACH (it, ops) {
        struct op *op = LIST_ITEM(it, struct op, link);
        if (policy_of(op) != policy) continue;

        list_remove(it);
        int status = flight != NULL ? redis_flight_add(flight, op) : -1;
        if (status < 0) flights->events.on_end(flights->events.arg, op, OP_OVERLOAD);
        if (status > 0) { /* nothing may overtake it */
            list_push_back(it_next, it);
            break;
        }
        if (policy == NULL) break;
    }

    if (flight == NULL) return;
    flight->is_apart = true;
    redis_flight_send(flight);
}

static void on_error_reply(struct redis_flight *flight, const struct redis_reader *reply)
{
    struct redis_flights *flights = flight->flights;
    struct slice text = redis_reader_text(reply);
    if (log_is_written(LOG_LEVEL_DEBUG)) {
        static struct log_site errors = {.most = ERRORS_PER_SECOND};
        char printable[REDIS_TEXT_MAX];
        log_limited(&errors, LOG_LEVEL_DEBUG, "Redis error: %s",
                    log_escape(printable, sizeof printable, text.data, text.len));
    }

    enum redis_remedy remedy = redis_error_remedy(redis_error_of((const char *)text.data, text.len));
    if (remedy == REMEDY_RELOAD && !flight->was_refused) {
        flight->was_refused = true;
        flight->is_sent = false;
        if (flights->phase == REDIS_SENDING) flights->phase = REDIS_RELOADING;
        list_push_back(&flights->refused, &flight->link);
        return;
    }

    redis_counters.redis_errors++;
    memcpy(flights->last_error, reply->text, sizeof flights->last_error);
    flights->last_error_us = flights->clock->mono_us;

    /* Redis refused the whole call, so nothing of it ran. It names no key, and one policy without a right must not be
     * the others' outage. */
    if (remedy == REMEDY_APART && !flight->is_apart) {
        struct list ops;
        list_init(&ops);
        flight_release(flight, &ops);
        while (!list_empty(&ops)) send_first_policy(flights, &ops);
        return;
    }

    flight_end(flight, OP_STORE_ERROR);
    if (remedy == REMEDY_RECONNECT || remedy == REMEDY_RECONNECT_LATE)
        redis_link_drop(flights->link, remedy, flights->last_error);
}

static void on_value_reply(struct redis_flight *flight, const struct redis_reader *reply)
{
    struct redis_flights *flights = flight->flights;
    int status = -1;
    if (redis_reader_is_integers(reply))
        status = batch_replay(flight->batch, reply->integers, reply->n_integers, flight->nonce);
    if (status < 0) {
        redis_counters.redis_bad_replies++;
        flight_end(flight, OP_STORE_ERROR);
        redis_link_drop(flights->link, REMEDY_RECONNECT, "an answer to something else than was asked");
        return;
    }

    /* New ops wait for the batches on the wire: if this one took too long, the window is halved, else it grows by one.
     */
    int64_t sent_us = flight->sent_us, took_us = flights->clock->mono_us - sent_us;
    bool was_slow = took_us >= (int64_t)flights->options->deadline_ms * 1000 / SLOW_PART;
    uint32_t window = was_slow ? flights->window / 2 : flights->window + 1;
    if (window == 0) window = 1;
    flights->window = window < flights->options->window ? window : flights->options->window;

    flights->server_ahead_us = batch_now_us(flight->batch) - flights->clock->mono_us;
    struct list ops;
    list_init(&ops);
    flight_release(flight, &ops);
    if (status == 0) {
        flights->events.on_answers(flights->events.arg, &ops, sent_us);
        return;
    }

    /* The last one first, so that they wait in their old order. */
    redis_counters.redis_batches_too_late++;
    while (!list_empty(&ops)) {
        struct list *last = ops.prev;
        list_remove(last);
        flights->events.on_unsent(flights->events.arg, LIST_ITEM(last, struct op, link));
    }
}

static void on_batch_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_flight *flight = CONTAINER_OF(call, struct redis_flight, call);
    struct redis_flights *flights = flight->flights;
    list_remove(&flight->link);
    redis_counters.redis_inflight--;
    if (reply == NULL) {
        flight_end(flight, OP_DOWN);
        return;
    }

    if (redis_reader_is_error(reply))
        on_error_reply(flight, reply);
    else
        on_value_reply(flight, reply);
    go_on_when_drained(flights);
}

/* ---- the canary, and the whole ---- */

static size_t canary_args(void *arg, const struct slice **ret_args)
{
    struct redis_flights *flights = arg;
    flights->canary_nonce = ++flights->last_nonce;
    return batch_args(flights->canary, flights->canary_nonce, flights->clock->wall_us, 0, ret_args);
}

static bool is_canary_good(void *arg, const struct redis_reader *reply)
{
    struct redis_flights *flights = arg;
    if (!redis_reader_is_integers(reply)) return false;
    if (batch_replay(flights->canary, reply->integers, reply->n_integers, flights->canary_nonce) != 0) return false;
    flights->server_ahead_us = batch_now_us(flights->canary) - flights->clock->mono_us;
    return true;
}

int redis_flights_init(struct redis_flights *flights, struct clock *clock, const struct redis_options *options,
                       const struct redis_flights_events *events)
{
    *flights = (struct redis_flights){
        .clock = clock, .options = options, .events = *events, .last_nonce = (uint32_t)options->random_seed};
    list_init(&flights->idle);
    list_init(&flights->in_flight);
    list_init(&flights->refused);
    flights->script = (struct redis_script){
        .text = {(const uint8_t *)batch_script, batch_script_len},
        .sha1 = {(const uint8_t *)batch_script_sha1, sizeof batch_script_sha1 - 1},
        .arg = flights,
        .canary = canary_args,
        .is_canary_good = is_canary_good,
    };
    flights->canary = batch_new(options->key_prefix, options->batch_max_keys, options->merge);
    return flights->canary != NULL ? 0 : -1;
}

void redis_flights_fini(struct redis_flights *flights)
{
    CHECK(list_empty(&flights->in_flight) && list_empty(&flights->refused));
    for (struct list *it; (it = list_pop_front(&flights->idle)) != NULL;)
        flight_free(LIST_ITEM(it, struct redis_flight, link));
    batch_free(flights->canary);
}

void redis_flights_on_ready(struct redis_flights *flights)
{
    flights->window = flights->options->window;
    flights->phase = REDIS_SENDING;
    send_refused(flights);
}

void redis_flights_end_refused(struct redis_flights *flights)
{
    flights->phase = REDIS_SENDING;
    for (struct list *it; (it = list_pop_front(&flights->refused)) != NULL;)
        flight_end(LIST_ITEM(it, struct redis_flight, link), OP_DOWN);
}

void redis_flights_move(struct redis_flights *flights)
{
    if (!redis_link_is_ready(flights->link)) {
        redis_link_move(flights->link);
        return;
    }
    flights->phase = REDIS_MOVING;
    go_on_when_drained(flights);
}
