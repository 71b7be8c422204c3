/* redis/node.c: one server: its connection, breaker and probe, for redis/store.c and redis/servers.c. */
#include "redis/node.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/latency.h"
#include "base/units.h"
#include "redis/counters.h"
#include "store/store_key.h"

enum { SCRATCH_LIFE_MS = 1000 };

/* ---- the breaker's probe ---- */

static void on_probe_time(uv_timer_t *timer);

static void probe_later(struct redis_node *node)
{
    if (redis_breaker_is_open(&node->breaker))
        uv_timer_start(&node->probe_timer, on_probe_time, node->options->breaker_probe_every_ms, 0);
}

static void close_breaker(struct redis_node *node)
{
    redis_breaker_close(&node->breaker);
    redis_counters.breaker_open--;
    uv_timer_stop(&node->probe_timer);
    redis_window_begin(&node->batches.window, 1); /* one batch at a time, then more as it answers */
}

/* Is it the answer to what was asked? Any error may be. */
static bool is_of_probe(const struct redis_node *node, const struct redis_reader *reply)
{
    if (redis_reader_is_error(reply)) return true;
    const struct redis_script *script = &node->batches.script;
    return node->is_probe_empty ? script->is_canary_good(script->arg, reply)
                                : reply->type == REDIS_STATUS && slice_is(redis_reader_text(reply), "OK");
}

static void on_probe_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_node *node = CONTAINER_OF(call, struct redis_node, probe);
    node->is_probing = false;
    if (reply == NULL) return; /* the next connection begins with a probe */
    if (!is_of_probe(node, reply)) {
        redis_counters.redis_bad_replies++;
        redis_link_drop(node->link, REMEDY_RECONNECT, "an answer to something else than was asked");
        return;
    }
    int64_t took_us = node->clock->mono_us - call->sent_us;
    histogram_add(&latencies[LATENCY_STORE], took_us, 1);
    if (!redis_breaker_is_open(&node->breaker)) return;

    enum redis_error error =
        redis_reader_is_error(reply) ? redis_error_of(redis_reader_text(reply)) : REDIS_ERROR_OTHER;
    enum redis_remedy remedy = redis_error_remedy(error);
    if (remedy == REMEDY_RECONNECT || remedy == REMEDY_RECONNECT_LATE) {
        redis_link_drop(node->link, remedy, reply->text);
        return;
    }

    bool is_refused = error == REDIS_ERROR_REFUSED;
    bool is_late = node->breaker.cause == BREAKER_LATE && took_us > node->breaker.missed_us;
    if (is_late) redis_breaker_took(&node->breaker, took_us);
    if (!is_refused && !is_late) {
        node->proven_us = node->clock->mono_us;
        close_breaker(node);
    } else {
        probe_later(node);
    }
}

/* The handshake's empty batch, or a write. */
static void begin_probe(struct redis_node *node)
{
    if (node->is_probing || !redis_node_is_ready(node)) return; /* a new connection begins with a probe */
    struct slice args[CANARY_ARGS_MAX] = {slice_of("SET"), {0}, slice_of("1"), slice_of("PX"), {0}};
    size_t n = 5;
    char key[STORE_OWN_KEY_MAX], life[16];
    snprintf(life, sizeof life, "%d", SCRATCH_LIFE_MS);
    args[1] = slice_of(redis_batches_scratch_key(&node->batches, key));
    args[4] = slice_of(life);
    node->is_probe_empty = node->breaker.cause == BREAKER_LATE;
    if (node->is_probe_empty) n = redis_script_canary(&node->batches.script, args);

    node->probe.on_reply = on_probe_reply;
    node->is_probing = n > 0 && redis_link_send(node->link, &node->probe, args, n) == 0;
    if (node->is_probing)
        redis_link_flush(node->link);
    else
        probe_later(node);
}

static void on_probe_time(uv_timer_t *timer)
{
    struct redis_node *node = timer->data;
    clock_update(node->clock);
    if (redis_breaker_is_open(&node->breaker)) begin_probe(node);
}

/* ---- events ---- */

static void on_breaker_opened(struct redis_breaker *breaker)
{
    struct redis_node *node = CONTAINER_OF(breaker, struct redis_node, breaker);
    redis_counters.breaker_opens++;
    redis_counters.breaker_open++;
    redis_batches_end_waiting(&node->batches, OP_BREAKER);
    probe_later(node);
}

static void set_up(struct redis_node *node, bool is_up)
{
    redis_counters.redis_up += (uint64_t)is_up - node->is_up;
    node->is_up = is_up;
}

static void on_ready(void *arg)
{
    struct redis_node *node = arg;
    node->proven_us = node->clock->mono_us;
    redis_batches_on_ready(&node->batches);
    redis_reach_ask(&node->batches);
    if (node->was_up) redis_window_begin(&node->batches.window, 1);
    node->was_up = true;
    set_up(node, true);
    redis_daemons_on_ready(&node->daemons);
    if (redis_breaker_is_open(&node->breaker)) begin_probe(node);
}

static void on_down(void *arg)
{
    struct redis_node *node = arg;
    set_up(node, false);
    uv_timer_stop(&node->probe_timer);
    redis_reach_forget(&node->batches);
    node->events.on_down(node->events.arg);
    redis_batches_on_down(&node->batches);
}

static void on_attempt(void *arg)
{
    struct redis_node *node = arg;
    node->had_attempt = true;
    if (!redis_link_is_ready(node->link)) redis_batches_end_unsent(&node->batches);
    node->events.on_attempt(node->events.arg);
}

/* ---- init and close ---- */

int redis_node_init(struct redis_node *node, uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                    const char *address, struct cluster_slots *slots, const struct redis_node_events *events)
{
    *node = (struct redis_node){.clock = clock, .options = options, .events = *events};
    if (address != NULL) snprintf(node->address, sizeof node->address, "%s", address);
    node->breaker.on_opened = on_breaker_opened;
    redis_breaker_set(&node->breaker, options->breaker_errors, options->breaker_late);
    if (redis_batches_init(&node->batches, clock, options, slots, &node->breaker, &events->batches) < 0) return -1;

    const struct redis_link_events of_link = {
        .arg = node, .on_ready = on_ready, .on_down = on_down, .on_attempt = on_attempt};
    node->link =
        redis_link_new(loop, clock, options, address != NULL ? node->address : NULL, &node->batches.script, &of_link);
    if (node->link == NULL) {
        redis_batches_fini(&node->batches);
        return -1;
    }

    node->batches.link = node->link;
    redis_daemons_init(&node->daemons, node->link, clock, options);
    uv_timer_init(loop, &node->probe_timer);
    node->probe_timer.data = node;
    redis_counters.redis_nodes++;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct redis_node *node = handle->data;
    redis_batches_fini(&node->batches);
    node->on_closed(node->on_closed_arg);
}

static void on_link_closed(void *arg)
{
    struct redis_node *node = arg;
    node->link = NULL;
    uv_close((uv_handle_t *)&node->probe_timer, on_timer_closed);
}

void redis_node_close(struct redis_node *node, void (*on_closed)(void *arg), void *arg)
{
    CHECK(node->on_closed == NULL);
    node->on_closed = on_closed;
    node->on_closed_arg = arg;
    redis_counters.redis_nodes--;

    set_up(node, false);
    if (redis_breaker_is_open(&node->breaker)) close_breaker(node);
    redis_breaker_set(&node->breaker, 0, 0); /* the calls that are lost now must not open it */
    redis_batches_end_unsent(&node->batches);
    redis_daemons_leave(&node->daemons);
    redis_link_close(node->link, on_link_closed, node);
}

/* ---- ops ---- */

enum submit redis_node_can_submit(const struct redis_node *node)
{
    bool is_new = node->batches.slots != NULL && !node->had_attempt, is_moving = node->batches.phase == BATCHES_MOVING;
    if (!is_new && !is_moving && !redis_node_is_ready(node)) return SUBMIT_DOWN;
    return redis_breaker_is_open(&node->breaker) ? SUBMIT_BREAKER : SUBMIT_PENDING;
}

bool redis_node_is_idle(const struct redis_node *node)
{
    const struct redis_batches *batches = &node->batches;
    bool is_tested = node->self_test.n_answered < node->self_test.n_sent;
    return batches->n_calls == 0 && batches->waiting.n == 0 && list_empty(&batches->refused) && !is_tested;
}

void redis_node_flush(struct redis_node *node)
{
    if (node->link == NULL) return;
    redis_batches_send(&node->batches);
    redis_link_flush(node->link);
}

/* ---- for people, and new options ---- */

bool redis_node_is_ready(const struct redis_node *node)
{
    return node->link != NULL && redis_link_is_ready(node->link);
}

const char *redis_node_status(const struct redis_node *node)
{
    return node->link != NULL ? redis_link_status(node->link) : "closed";
}

/* "31 to 54 ms, the longest deadline is 20 ms: raise defaults.deadline, or bring Redis nearer" */
static void print_late(struct redis_node *node)
{
    const struct redis_breaker *breaker = &node->breaker;
    int64_t fastest_ms = breaker->fastest_us / MS_US, slowest_ms = (breaker->slowest_us + MS_US - 1) / MS_US;
    int64_t longest_ms = (breaker->longest_us + MS_US / 2) / MS_US;
    char took[64];
    if (breaker->fastest_us == 0)
        snprintf(took, sizeof took, "no answer came");
    else if (fastest_ms < slowest_ms)
        snprintf(took, sizeof took, "%" PRId64 " to %" PRId64 " ms", fastest_ms, slowest_ms);
    else
        snprintf(took, sizeof took, "%" PRId64 " ms", slowest_ms);
    snprintf(node->breaker_text, sizeof node->breaker_text,
             "it answered %u batches in a row after all their deadlines: %s, the longest deadline is %" PRId64 " ms%s",
             breaker->n_late, took, longest_ms,
             breaker->fastest_us > 0 ? ": raise defaults.deadline, or bring Redis nearer" : "");
}

const char *redis_node_breaker_text(struct redis_node *node)
{
    const struct redis_breaker *breaker = &node->breaker;
    switch (breaker->cause) {
    case BREAKER_CLOSED: return NULL;
    case BREAKER_REFUSED:
        snprintf(node->breaker_text, sizeof node->breaker_text, "it refused %u batches in a row: %s", breaker->n_errors,
                 node->batches.last_error);
        break;
    case BREAKER_LATE: print_late(node); break;
    }
    return node->breaker_text;
}

void redis_node_options_changed(struct redis_node *node, bool is_other_server)
{
    redis_reach_options_changed(&node->batches);
    bool was_open = redis_breaker_is_open(&node->breaker);
    redis_breaker_set(&node->breaker, node->options->breaker_errors, node->options->breaker_late);
    if (was_open && (is_other_server || !redis_breaker_is_open(&node->breaker))) close_breaker(node);

    redis_link_options_changed(node->link);
    if (is_other_server) redis_batches_move(&node->batches);
}
