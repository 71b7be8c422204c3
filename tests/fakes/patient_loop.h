/*
 * patient_loop.h: run a libuv loop until something has become true.
 *
 * Nothing is timed: the ceiling only keeps a broken test from waiting for ever.
 */
#ifndef RL_TESTS_PATIENT_LOOP_H
#define RL_TESTS_PATIENT_LOOP_H

#include <stdbool.h>

#include <uv.h>

struct patient_loop {
    uv_loop_t loop;
    uv_timer_t tick; /* wakes the loop to look again */
    uv_check_t check;
    uv_prepare_t prepare;
    void (*on_turn_end)(void *arg); /* at the end of every turn, as the daemon flushes; NULL = nothing */
    void *arg;
};

void patient_loop_init(struct patient_loop *patient);
/* Fails the test where `is_true` stays false. */
void patient_loop_until(struct patient_loop *patient, bool (*is_true)(void *arg), void *arg);
void patient_loop_turns(struct patient_loop *patient, int n);
/* Everything else must have been asked to close: runs the loop empty; uv_loop_close() must be 0. */
void patient_loop_fini(struct patient_loop *patient);

#endif
