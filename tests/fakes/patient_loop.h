/*
 * patient_loop.h: run a libuv loop until something has become true.
 *
 * No result depends on time: the upper bound only stops a broken test that would never end.
 */
#ifndef RL_TESTS_PATIENT_LOOP_H
#define RL_TESTS_PATIENT_LOOP_H

#include <stdbool.h>

#include <uv.h>

struct patient_loop {
    uv_loop_t loop;
    uv_timer_t tick; /* wakes the loop to test the condition again */
    uv_check_t check;
    uv_prepare_t prepare;
    void (*on_tick_end)(void *arg); /* at the end of every tick, where the daemon flushes; NULL = nothing */
    void *arg;
};

void patient_loop_init(struct patient_loop *patient);
/* Fails the test if `is_true` stays false. */
void patient_loop_until(struct patient_loop *patient, bool (*is_true)(void *arg), void *arg);
void patient_loop_ticks(struct patient_loop *patient, int n);
/* Close all other handles first. Runs the loop until it is empty; uv_loop_close() must return 0. */
void patient_loop_fini(struct patient_loop *patient);

#endif
