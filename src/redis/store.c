/*
 * redis/store.c: the store as the engine sees it: ops in, their ends out.
 *
 *   submit ──▶ may its server be asked? ──▶ deny_cache.h may know the answer ──▶ the op waits at its node ──▶ done
 *
 * done runs from a reply's callback or from the `soon` handle, never from within submit or flush, and never while
 * hiredis takes a connection down: what ends then waits in `ended`. The handle is an idle one, so that there is one
 * callback in a tick: libuv runs a timer of 0 ms again and again in the same tick.
 */
#include "redis/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log_key.h"
#include "policy/policy.h"
#include "redis/counters.h"
#include "redis/deny_cache.h"
#include "redis/node.h"
#include "redis/sentinel.h"
#include "redis/servers.h"

COUNTERS_DEFINE(redis, REDIS_COUNTERS);

enum { TRIAL_LABEL_MAX = REDIS_HOST_MAX + 96 };
enum { DONE_UNITS = 256 }; /* of a tick: op_units() of an op whose answer somebody waits for, else 1 */

struct redis_store {
    struct clock *clock; /* not owned */
    struct redis_options options;
    struct redis_servers *servers; /* owned */
    struct list *nodes;            /* of struct redis_node: its nodes */
    struct redis_trial *trial;     /* owned; of other settings of the server; NULL = none are wanted */
    uint32_t n_closing_trials;     /* still to be closed */
    bool lacks_trial;              /* there was no memory for one */
    uint64_t n_taken;              /* trials that went well */
    bool with_compat;              /* the last self-test had the commands of compat policies, too */
    char trial_text[REDIS_TRIAL_TEXT_MAX], taken_text[REDIS_TRIAL_TEXT_MAX]; /* of redis_store_trial() */
    uint32_t n_daemons;                                                      /* as counted last; 0 = not yet */
    struct deny_cache denied;
    struct list ended;               /* ops with their outcome; done is still to run */
    uv_idle_t soon;                  /* active while something is in `ended`, or the first attempt is to be reported */
    char foreign[REDIS_FOREIGN_MAX]; /* the text of redis_store_foreign() */
    uint64_t n_foreign;
    bool had_attempt;
    void (*on_first_attempt)(void *arg); /* NULL = not asked for, or it was called */
    void *on_first_attempt_arg;

    bool is_closing;
    bool has_no_servers; /* they are closed */
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- ops that have ended ---- */

static void call_done(struct redis_store *store, struct op *op)
{
    deny_cache_ended(&store->denied, op);
    op->done(op, op->outcome);
}

static void run_done(struct redis_store *store, size_t most)
{
    struct list *it;
    for (size_t n = 0; n < most && (it = list_pop_front(&store->ended)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        n += op->is_awaited ? op_units(op) : 1;
        call_done(store, op);
    }
}

static void on_soon(uv_idle_t *soon)
{
    struct redis_store *store = soon->data;
    clock_update(store->clock);

    run_done(store, DONE_UNITS);
    if (list_empty(&store->ended)) uv_idle_stop(soon);

    if (store->had_attempt && store->on_first_attempt != NULL) {
        void (*callback)(void *arg) = store->on_first_attempt;
        store->on_first_attempt = NULL;
        callback(store->on_first_attempt_arg);
    }
}

static void call_soon(struct redis_store *store)
{
    if (!uv_is_closing((uv_handle_t *)&store->soon)) uv_idle_start(&store->soon, on_soon);
}

/* done runs soon. */
static void on_end(void *arg, struct op *op, enum op_outcome outcome)
{
    struct redis_store *store = arg;
    op->outcome = outcome;
    op->is_refused = outcome == OP_STORE_ERROR;
    list_push_back(&store->ended, &op->link);
    call_soon(store);
}

/* For people: the first of the op's keys that has another type, if any. */
static void note_foreign(struct redis_store *store, const struct op *op)
{
    uint16_t i = 0;
    while (i < op->n_members && !op->members[i].is_foreign) i++;
    if (i == op->n_members) return;

    const struct op_member *member = &op->members[i];
    char key[LOG_KEY_MAX], path[LIMIT_PATH_MAX];
    store->n_foreign++;
    snprintf(store->foreign, sizeof store->foreign, "policy %s limit %s%s", member->limit->policy->name,
             limit_path(member->limit, path), log_key(key, member->key));
}

static void on_answers(void *arg, struct list *ops, int64_t sent_us)
{
    struct redis_store *store = arg;
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->source = SOURCE_REDIS;
        if (op->outcome == OP_DECIDED)
            deny_cache_learn(&store->denied, op, sent_us, store->clock->wall_us);
        else
            note_foreign(store, op);
        call_done(store, op);
    }
}

/* ---- the node's events ---- */

static void on_down(void *arg)
{
    struct redis_store *store = arg;
    deny_cache_clear(&store->denied);
}

/* The counters are elsewhere from now on. */
static void on_moved(void *arg)
{
    struct redis_store *store = arg;
    store->options.server++;
    deny_cache_clear(&store->denied);
}

static void on_attempt(void *arg)
{
    struct redis_store *store = arg;
    store->had_attempt = true;
    if (store->on_first_attempt != NULL) call_soon(store);
}

/* ---- store.h ---- */

static uint32_t redis_place_of(void *impl, const struct op_member *member)
{
    const struct redis_store *store = impl;
    return redis_servers_slot_of(store->servers, member);
}

static enum submit redis_submit(void *impl, struct op *op)
{
    struct redis_store *store = impl;
    if (store->is_closing) return SUBMIT_DOWN;
    enum submit can = redis_servers_can_submit(store->servers, op);
    if (can != SUBMIT_PENDING) return can;
    if (deny_cache_decide(&store->denied, op, store->clock)) return SUBMIT_DECIDED;
    if (redis_servers_add(store->servers, op) < 0) return SUBMIT_OVERLOAD;

    deny_cache_submitted(&store->denied, op);
    return SUBMIT_PENDING;
}

static bool redis_withdraw(void *impl, struct op *op)
{
    struct redis_store *store = impl;
    if (!redis_servers_withdraw(store->servers, op)) return false;
    deny_cache_ended(&store->denied, op);
    return true;
}

static void redis_flush(void *impl)
{
    struct redis_store *store = impl;
    redis_servers_flush(store->servers);
}

static void on_soon_closed(uv_handle_t *handle)
{
    struct redis_store *store = handle->data;
    redis_servers_free(store->servers);
    deny_cache_fini(&store->denied);
    redis_options_fini(&store->options);

    void (*on_closed)(void *arg) = store->on_closed;
    void *arg = store->on_closed_arg;
    mem_free(store);
    on_closed(arg);
}

static void maybe_closed(struct redis_store *store)
{
    if (!store->has_no_servers || store->n_closing_trials > 0) return;
    run_done(store, SIZE_MAX);
    uv_close((uv_handle_t *)&store->soon, on_soon_closed);
}

static void on_servers_closed(void *arg)
{
    struct redis_store *store = arg;
    store->has_no_servers = true;
    maybe_closed(store);
}

/* ---- other settings of the server, on trial ----
 *
 *   a reload ──▶ a link with the wanted settings ──▶ ready ──▶ self-test ──▶ the store takes them
 *                ▲                                               │
 *                └───── a right is missing, or a lost connection ┘
 *
 * A password with a typing error, a certificate that the server refuses or a wrong address ends no connection that
 * works. For one server: Sentinels and a cluster name their servers anew by themselves, which is no such case.
 */

struct redis_trial {
    struct redis_store *store;    /* not owned; its `trial` is another one, or none, once this one is closing */
    struct redis_options options; /* the wanted ones */
    struct redis_link *link;      /* owned */
    struct redis_self_test self_test;
};

static void on_trial_closed(void *arg)
{
    struct redis_trial *trial = arg;
    struct redis_store *store = trial->store;
    redis_options_fini(&trial->options);
    mem_free(trial);
    store->n_closing_trials--;
    if (store->is_closing) maybe_closed(store);
}

static void end_trial(struct redis_store *store)
{
    struct redis_trial *trial = store->trial;
    store->lacks_trial = false;
    store->trial = NULL;
    if (trial == NULL) return;
    store->n_closing_trials++;
    redis_link_close(trial->link, on_trial_closed, trial);
}

/* "10.0.0.8:6379", "10.0.0.7:6379 with the new password": what a trial is of. */
static void print_trial_label(const struct redis_store *store, char out[TRIAL_LABEL_MAX])
{
    const struct redis_options *wanted = &store->trial->options;
    const char *part = redis_options_other_part(&store->options, wanted);
    snprintf(out, TRIAL_LABEL_MAX, "%s%s%s", wanted->address, part != NULL ? " with the new " : "",
             part != NULL ? part : "");
}

static void on_trial_facts(void *arg, const struct redis_facts *facts)
{
    struct redis_trial *trial = arg;
    struct redis_store *store = trial->store;
    if (facts == NULL || store->trial != trial) return; /* the link tries again */

    /* What the present user lacks, too, is no reason: it has the warning already. */
    const struct redis_node *only = redis_servers_only(store->servers);
    bool lacks = facts->missing[0] != '\0' && strcmp(facts->missing, only->self_test.facts.missing) != 0;
    if (lacks && redis_node_is_ready(only)) {
        char why[SELF_TEST_MISSING_MAX + 256];
        snprintf(why, sizeof why, "user %.60s lacks rights; run: ACL SETUSER %.60s %s", facts->user, facts->user,
                 facts->missing);
        redis_link_drop(trial->link, REMEDY_RECONNECT_LATE, why);
        return;
    }

    /* They have proved good: what is in flight ends first, then the node connects with them. */
    char label[TRIAL_LABEL_MAX];
    bool is_moved = !redis_options_same_place(&store->options, &trial->options);
    print_trial_label(store, label);
    snprintf(store->taken_text, sizeof store->taken_text, "%s has proved good, and decides from now on", label);
    store->n_taken++;
    redis_options_swap_server(&store->options, &trial->options);
    end_trial(store);
    if (is_moved) on_moved(store);
    redis_servers_options_changed(store->servers, true, true);
}

static void on_trial_ready(void *arg)
{
    struct redis_trial *trial = arg;
    if (redis_self_test_start(&trial->self_test, trial->link, trial->store->clock, &trial->options, 0,
                              trial->store->with_compat, on_trial_facts, trial) < 0)
        redis_link_drop(trial->link, REMEDY_RECONNECT, "out of memory");
}

/* The link tries again by itself, and knows why it has to. */
static void on_trial_change(void *arg)
{
    (void)arg;
}

static void begin_trial(struct redis_store *store, const struct redis_options *wanted)
{
    if (store->trial != NULL && redis_options_same_server(&store->trial->options, wanted)) return;
    end_trial(store);
    struct redis_trial *trial = mem_zalloc(sizeof *trial);
    if (trial == NULL || redis_options_copy(&trial->options, wanted) < 0) goto err_free_trial;

    trial->store = store;
    const struct redis_link_events events = {
        .arg = trial, .on_ready = on_trial_ready, .on_down = on_trial_change, .on_attempt = on_trial_change};
    trial->link = redis_link_new(store->soon.loop, store->clock, &trial->options, NULL,
                                 &redis_servers_only(store->servers)->batches.script, &events);
    if (trial->link == NULL) goto err_fini_options;
    store->trial = trial;
    return;

err_fini_options:
    redis_options_fini(&trial->options);
err_free_trial:
    mem_free(trial);
    store->lacks_trial = true;
}

static void redis_close(void *impl, void (*on_closed)(void *arg), void *arg)
{
    struct redis_store *store = impl;
    CHECK(!store->is_closing);
    store->is_closing = true;
    store->on_closed = on_closed;
    store->on_closed_arg = arg;

    end_trial(store);
    redis_servers_close(store->servers, on_servers_closed, store);
}

/* The server that refused something last; NULL: there is none. */
static const struct redis_batches *last_refused(const struct redis_store *store)
{
    const struct redis_batches *last = NULL;
    LIST_FOREACH (it, store->nodes) {
        const struct redis_batches *batches = &LIST_ITEM(it, struct redis_node, link_of_nodes)->batches;
        if (last == NULL || batches->last_error_us > last->last_error_us) last = batches;
    }
    return last;
}

static const char *redis_error_text(void *impl)
{
    const struct redis_batches *last = last_refused(impl);
    return last != NULL ? last->last_error : "";
}

static const char *redis_trial_text(void *impl)
{
    return redis_store_trial(impl);
}

static const struct store_ops redis_ops = {.submit = redis_submit,
                                           .place_of = redis_place_of,
                                           .withdraw = redis_withdraw,
                                           .flush = redis_flush,
                                           .error_text = redis_error_text,
                                           .trial_text = redis_trial_text,
                                           .close = redis_close};

struct store redis_store_handle(struct redis_store *redis)
{
    return (struct store){.ops = &redis_ops, .impl = redis, .source = SOURCE_REDIS, .server = &redis->options.server};
}

struct redis_store *redis_store_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options)
{
    struct redis_store *store = mem_zalloc(sizeof *store);
    if (store == NULL) return NULL;
    store->clock = clock;
    list_init(&store->ended);

    deny_cache_init(&store->denied);
    deny_cache_set_options(&store->denied, options->deny_max_keys, (int64_t)options->deny_max_age_ms * 1000);
    if (redis_options_copy(&store->options, options) < 0) goto err_free_store;
    const struct redis_node_events events = {
        .arg = store,
        .batches = {.arg = store, .on_answers = on_answers, .on_end = on_end},
        .on_down = on_down,
        .on_attempt = on_attempt,
        .on_moved = on_moved,
    };
    store->servers = redis_servers_new(loop, clock, &store->options, &events);
    if (store->servers == NULL) goto err_fini_options;
    store->nodes = redis_servers_nodes(store->servers);

    uv_idle_init(loop, &store->soon);
    store->soon.data = store;
    return store;

err_fini_options:
    redis_options_fini(&store->options);
err_free_store:
    mem_free(store);
    return NULL;
}

bool redis_store_ready(const struct redis_store *redis)
{
    return redis_servers_is_ready(redis->servers);
}

void redis_store_on_first_attempt(struct redis_store *redis, void (*callback)(void *arg), void *arg)
{
    redis->on_first_attempt = callback;
    redis->on_first_attempt_arg = arg;
    if (redis->had_attempt) call_soon(redis);
}

const char *redis_store_status(const struct redis_store *redis)
{
    return redis_servers_status(redis->servers);
}

const char *redis_store_breaker(struct redis_store *redis)
{
    const char *text = NULL;
    LIST_FOREACH (it, redis->nodes) {
        struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        if (text == NULL) text = redis_node_breaker_text(node);
    }
    return text;
}

bool redis_store_clock(const struct redis_store *redis, int64_t *ret_ahead_us)
{
    bool has_clock = false;
    LIST_FOREACH (it, redis->nodes) {
        const struct redis_batches *batches = &LIST_ITEM(it, struct redis_node, link_of_nodes)->batches;
        if (!batches->has_wall) continue;
        if (!has_clock || llabs(batches->wall_ahead_us) > llabs(*ret_ahead_us)) *ret_ahead_us = batches->wall_ahead_us;
        has_clock = true;
    }
    return has_clock;
}

int64_t redis_store_proven_us(const struct redis_store *redis)
{
    int64_t proven_us = INT64_MAX; /* of all: the one that did so longest ago */
    LIST_FOREACH (it, redis->nodes) {
        const struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        if (node->proven_us < proven_us) proven_us = node->proven_us;
    }
    return proven_us < INT64_MAX ? proven_us : 0;
}

void redis_store_look(struct redis_store *redis, bool is_counting)
{
    if (redis->is_closing) return;
    const struct redis_node *first = redis_servers_first(redis->servers);
    LIST_FOREACH (it, redis->nodes) {
        struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        redis_daemons_look(&node->daemons, is_counting && node == first);
    }
    if (first != NULL && first->daemons.n > 0) redis->n_daemons = first->daemons.n;
}

bool redis_store_is_counting(const struct redis_store *redis)
{
    const struct redis_node *first = redis_servers_first(redis->servers);
    return first != NULL && (first->daemons.n_waiting > 0 || first->daemons.is_leaving);
}

uint32_t redis_store_n_daemons(const struct redis_store *redis, const char **ret_fault)
{
    const struct redis_node *first = redis_servers_first(redis->servers);
    *ret_fault = first != NULL ? first->daemons.fault : "";
    if ((*ret_fault)[0] != '\0') return 0;
    return first != NULL && first->daemons.n > 0 ? first->daemons.n : redis->n_daemons; /* it may be a new one */
}

struct redis_refusal redis_store_refusal(const struct redis_store *redis)
{
    const struct redis_batches *batches = last_refused(redis);
    if (batches == NULL) return (struct redis_refusal){"", "", 0};
    return (struct redis_refusal){batches->last_error, batches->last_error_policy, batches->last_error_us};
}

const char *redis_store_foreign(const struct redis_store *redis, uint64_t *ret_n)
{
    *ret_n = redis->n_foreign;
    return redis->foreign;
}

const char *redis_store_by_slot(struct redis_store *redis, const char **ret_address)
{
    LIST_FOREACH (it, redis->nodes) {
        struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        if (!node->batches.reach.is_news) continue;
        node->batches.reach.is_news = false;
        *ret_address = node->address;
        return node->batches.reach.text;
    }
    return NULL;
}

void redis_store_sentinels(const struct redis_store *redis, char *out, size_t size)
{
    out[0] = '\0';
    const struct redis_node *only = redis_servers_only(redis->servers);
    if (only != NULL) redis_sentinel_text(redis_link_sentinel(only->link), out, size);
}

const char *redis_store_passed(const struct redis_store *redis, uint32_t nth)
{
    return redis_servers_passed(redis->servers, nth);
}

int redis_store_self_test(struct redis_store *redis, bool with_compat,
                          void (*on_done)(void *arg, const struct redis_facts *facts), void *arg)
{
    if (redis->is_closing) return -1;
    redis->with_compat = with_compat;
    LIST_FOREACH (it, redis->nodes) {
        struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        if (!redis_node_is_ready(node) || node->batches.shard < 0) continue;
        return redis_self_test_start(&node->self_test, node->link, redis->clock, &redis->options,
                                     (uint32_t)node->batches.shard, with_compat, on_done, arg);
    }
    return -1;
}

void redis_store_set_options(struct redis_store *redis, const struct redis_options *options)
{
    struct redis_options copy;
    deny_cache_set_options(&redis->denied, options->deny_max_keys, (int64_t)options->deny_max_age_ms * 1000);
    if (redis->is_closing || redis_options_copy(&copy, options) < 0) return; /* the present ones go on */

    /* Keys written under one prefix are not found under another, and the batches hold theirs: it stays. */
    const char *prefix = copy.key_prefix;
    copy.key_prefix = redis->options.key_prefix;
    redis->options.key_prefix = prefix;
    copy.n_shards = redis->options.n_shards;
    copy.server = redis->options.server;

    const struct redis_node *only = redis_servers_only(redis->servers);
    bool is_one = only != NULL && copy.topology == TOPOLOGY_SINGLE;
    bool is_other = !options->is_server_held && !redis_options_same_server(&copy, &redis->options);
    bool is_tried = is_other && is_one && redis_node_is_ready(only), moves = is_other && !is_tried;
    if (is_tried)
        begin_trial(redis, &copy);
    else if (!options->is_server_held)
        end_trial(redis);
    if (!moves) redis_options_swap_server(&copy, &redis->options);

    bool is_elsewhere = only != NULL && !redis_options_same_place(&copy, &redis->options);
    struct redis_options before = redis->options;
    before.address = copy.address;
    bool is_other_login = moves && !redis_options_same_server(&copy, &before);
    redis_options_fini(&redis->options);
    redis->options = copy;
    if (is_elsewhere) on_moved(redis);
    redis_servers_options_changed(redis->servers, moves, is_other_login);
}

const char *redis_store_trial(struct redis_store *redis)
{
    char label[TRIAL_LABEL_MAX];
    redis->trial_text[0] = '\0';
    if (redis->lacks_trial)
        snprintf(redis->trial_text, sizeof redis->trial_text,
                 "%s decides, the new settings are not tried: out of memory; reload again", redis->options.address);
    if (redis->trial == NULL) return redis->trial_text;
    print_trial_label(redis, label);
    const struct redis_link *link = redis->trial->link;
    const char *status = redis_link_is_ready(link) ? "its self-test runs" : redis_link_status(link);
    if (redis_node_is_ready(redis_servers_only(redis->servers)))
        snprintf(redis->trial_text, sizeof redis->trial_text, "%s decides, %s: %s; the old connection goes on",
                 redis->options.address, label, status);
    else
        snprintf(redis->trial_text, sizeof redis->trial_text, "%s: %s", label, status);
    return redis->trial_text;
}

const char *redis_store_taken(const struct redis_store *redis, uint64_t *ret_n)
{
    *ret_n = redis->n_taken;
    return redis->taken_text;
}
