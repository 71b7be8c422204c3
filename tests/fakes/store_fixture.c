#include "fakes/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/all_counters.h"
#include "fakes/policies.h"
#include "redis/counters.h"
#include "store/store_key.h"

static const int64_t WINDOW_US = INT64_C(1000) * 3600 * 1000000; /* an edge almost never falls into a test */

struct store_fixture *store_fixture;

static void on_closed(void *arg)
{
    struct store_fixture *w = arg;
    w->is_closed = true;
}

static void flush(void *arg)
{
    struct store_fixture *w = arg;
    clock_update(&w->clock);
    if (w->redis != NULL && !w->is_closed) store_flush(&w->store);
}

int store_fixture_setup(void **state)
{
    struct store_fixture *w = store_fixture = calloc(1, sizeof(*store_fixture));
    all_counters_reset();
    patient_loop_init(&w->patient);
    w->patient.on_tick_end = flush;
    w->patient.arg = w;
    clock_update(&w->clock);
    w->options = (struct redis_options){
        .key_prefix = "rl",
        .n_shards = STORE_SHARDS,
        .batch_max_keys = 64,
        .merge = true,
        .window = 1024,
        .max_inflight = 1024,
        .deadline_ms = 30000,
        .max_output = 1 << 20,
        .stall_ms = 30000,
        .backoff_min_ms = 1,
        .backoff_max_ms = 10,
        .refused_max_ms = 20,
        .random_seed = 11,
    };
    w->policies = policy_set_new(16);
    w->limit = store_fixture_limit("p", ALGO_FIXED_WINDOW, 1000000);
    *state = w;
    return 0;
}

int store_fixture_teardown(void **state)
{
    (void)state;
    struct store_fixture *w = store_fixture;
    if (w->redis != NULL) {
        if (!w->is_closing) store_fixture_close();
        store_fixture_until(store_is_closed);
    }
    assert_int_equal(w->n_pending, w->n_answered);
    assert_int_equal(redis_counters.redis_inflight, 0);
    assert_int_equal(redis_counters.redis_up, 0);
    assert_int_equal(redis_counters.redis_nodes, 0);
    assert_int_equal(redis_counters.breaker_open, 0);
    patient_loop_fini(&w->patient);
    policy_set_unref(w->policies);
    free(w);
    return 0;
}

static void on_first_attempt(void *arg)
{
    ((struct store_fixture *)arg)->n_first_attempts++;
}

void store_fixture_open(const char *address)
{
    struct store_fixture *w = store_fixture;
    w->options.address = address;
    w->redis = redis_store_new(&w->patient.loop, &w->clock, &w->options);
    assert_non_null(w->redis);
    w->store = redis_store_handle(w->redis);
    assert_int_equal(w->store.source, SOURCE_REDIS);
    redis_store_on_first_attempt(w->redis, on_first_attempt, w);
}

void store_fixture_open_ready(const char *address)
{
    store_fixture_open(address);
    store_fixture_until(store_is_ready);
}

void store_fixture_close(void)
{
    store_fixture->is_closing = true;
    store_close(&store_fixture->store, on_closed, store_fixture);
}

const struct limit *store_fixture_limit(const char *policy, enum algo algo, int64_t limit)
{
    const struct policy_spec spec = {.name = policy,
                                     .limits = {{.algo = algo, .limit = limit, .window_us = WINDOW_US}}};
    return &policies_add(store_fixture->policies, &spec)->limits[0];
}

static void on_done(struct op *op, enum op_outcome outcome)
{
    struct store_fixture *w = store_fixture;
    struct ask *ask = CONTAINER_OF(op, struct ask, op);
    assert_false(w->is_submitting);
    assert_int_equal(++ask->n_done, 1);
    ask->outcome = outcome;
    w->n_answered++;
    w->n_decided += outcome == OP_DECIDED;
    w->n_allowed += outcome == OP_DECIDED && ask->member.decision.allowed;
    w->n_down += outcome == OP_DOWN;
    w->n_failed += outcome == OP_STORE_ERROR;
    w->n_doubtful += outcome == OP_STORE_ERROR && op->is_doubtful;
    if (w->on_done != NULL) w->on_done(ask);
}

struct ask *store_fixture_ask(const char *key, enum op_kind kind, int64_t cost)
{
    struct store_fixture *w = store_fixture;
    assert_true(w->n_asked < MAX_ASKS);
    struct ask *ask = &w->asks[w->n_asked++];
    *ask = (struct ask){.op = {.kind = kind,
                               .n_members = 1,
                               .members = &ask->member,
                               .client = w->client,
                               .deadline_us = w->deadline_us,
                               .done = on_done}};
    snprintf(ask->key, sizeof(ask->key), "%s", key);
    ask->member = (struct op_member){.limit = w->limit, .key = slice_of(ask->key), .cost = cost};
    list_init(&ask->op.link);
    bool was_submitting = w->is_submitting;
    w->is_submitting = true;
    ask->submitted = store_submit(&w->store, &ask->op);
    w->is_submitting = was_submitting;
    w->n_pending += ask->submitted == SUBMIT_PENDING;
    w->n_refused += ask->submitted != SUBMIT_PENDING;
    return ask;
}

struct ask *store_fixture_check(const char *key)
{
    return store_fixture_ask(key, OP_CHECK, 1);
}

void store_fixture_check_many(const char *key_prefix, int n_keys, int n)
{
    for (int i = 0; i < n; i++) {
        char key[24];
        snprintf(key, sizeof(key), "%s%d", key_prefix, i % n_keys);
        (void)store_fixture_check(key);
    }
}

void store_fixture_until(bool (*is_true)(void *arg))
{
    patient_loop_until(&store_fixture->patient, is_true, store_fixture);
}

void store_fixture_settle(void)
{
    store_fixture_until(store_has_answered);
}

void store_fixture_status_has(const char *part)
{
    const char *status = redis_store_status(store_fixture->redis);
    if (strstr(status, part) == NULL) fail_msg("status \"%s\" does not contain \"%s\"", status, part);
}

bool had_first_attempt(void *arg)
{
    return ((struct store_fixture *)arg)->n_first_attempts > 0;
}

bool store_is_ready(void *arg)
{
    return redis_store_ready(((struct store_fixture *)arg)->redis);
}

bool store_is_not_ready(void *arg)
{
    return !store_is_ready(arg);
}

bool store_is_closed(void *arg)
{
    return ((struct store_fixture *)arg)->is_closed;
}

bool store_has_answered(void *arg)
{
    const struct store_fixture *w = arg;
    return w->n_answered == w->n_pending;
}

bool store_has_no_trial(void *arg)
{
    return redis_store_trial(((struct store_fixture *)arg)->redis)[0] == '\0';
}
