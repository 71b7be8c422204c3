/*
 * test_redis_storm.c: a real redis-server, random load and random trouble; each run is named by its seed.
 *
 * Held at the end, whatever happened: each op ended exactly once; what Redis counted is at least what was
 * allowed, and at most that plus what was in doubt (lost with a connection, it may or may not have been counted).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "fakes/real_redis.h"
#include "fakes/store_fixture.h"
#include "redis/counters.h"

enum { STEPS = 150, SEEDS = 4, N_KEYS = 40 };

#define SUM_OF_COUNTS                                                                                                  \
    "local n = 0 for _, k in ipairs(redis.call('keys', 'rl:*')) do n = n + redis.call('get', k) % 2 ^ 36 end return n"

static uint64_t random_state;

static unsigned below(unsigned n)
{
    return (unsigned)random_below(&random_state, n);
}

static bool nothing_waits_or_not_ready(void *arg)
{
    return store_has_answered(arg) || store_is_not_ready(arg);
}

static void pause_server(struct real_redis *redis, bool long_enough_for_a_stall)
{
    real_redis_signal(redis, SIGSTOP);
    store_fixture_check_many("k", N_KEYS, 50);
    if (long_enough_for_a_stall)
        store_fixture_until(nothing_waits_or_not_ready);
    else
        patient_loop_ticks(&store_fixture->patient, 5);
    real_redis_signal(redis, SIGCONT);
}

static void change_options(void)
{
    store_fixture->options.batch_max_keys = 1 + below(64);
    store_fixture->options.merge = below(2) == 0;
    store_fixture->options.max_inflight = 1 + below(200);
    redis_store_set_options(store_fixture->redis, &store_fixture->options);
}

static void trouble(struct real_redis *redis)
{
    switch (below(12)) {
    case 0: (void)real_redis_command(redis, "SCRIPT FLUSH"); break;
    case 1: (void)real_redis_command(redis, "CLIENT KILL TYPE normal"); break;
    case 2: pause_server(redis, false); break;
    case 3: pause_server(redis, below(4) == 0); break;
    case 4: change_options(); break;
    case 5: store_fixture_until(store_is_ready); break;
    default: break;
    }
}

static void storm(void **state)
{
    const uint64_t seed = random_state = *(const uint64_t *)*state;
    store_fixture_setup(state);
    store_fixture->options.stall_ms = 60;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    store_fixture_open_ready(redis.address);
    for (int i = 0; i < STEPS; i++) {
        store_fixture_check_many("k", N_KEYS, (int)below(100));
        patient_loop_ticks(&store_fixture->patient, (int)below(4));
        trouble(&redis);
    }
    store_fixture_until(store_is_ready);
    store_fixture_settle();
    long long counted = real_redis_command(&redis, "EVAL %s 0", SUM_OF_COUNTS);
    struct store_fixture *w = store_fixture;
    printf("seed %llu: asked %zu, allowed %zu, in doubt %zu, errors %zu, refused %zu; Redis counted %lld\n",
           (unsigned long long)seed, w->n_asked, w->n_allowed, w->n_down, w->n_failed, w->n_refused, counted);
    assert_int_equal(w->n_answered, w->n_pending);
    assert_int_equal(w->n_decided, w->n_allowed);
    assert_true((unsigned long long)counted >= w->n_allowed);
    assert_true((unsigned long long)counted <= w->n_allowed + w->n_down);
    assert_int_equal(redis_counters.redis_bad_replies, 0);
    store_fixture_teardown(state);
    real_redis_fini(&redis);
}

int main(int argc, char **argv)
{
    if (real_redis_is_missing()) return 0;
    static uint64_t seeds[SEEDS] = {1, 2, 3, 4};
    if (argc > 1) seeds[0] = strtoull(argv[1], NULL, 10); /* one more, to look for trouble by hand */
    const struct CMUnitTest tests[SEEDS] = {
        {.name = "storm of seed 1", .test_func = storm, .initial_state = &seeds[0]},
        {.name = "storm of seed 2", .test_func = storm, .initial_state = &seeds[1]},
        {.name = "storm of seed 3", .test_func = storm, .initial_state = &seeds[2]},
        {.name = "storm of seed 4", .test_func = storm, .initial_state = &seeds[3]},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
