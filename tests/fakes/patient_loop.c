#include "fakes/patient_loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TICK_MS = 2, CEILING_S = 60 };

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void end_tick(struct patient_loop *patient)
{
    if (patient->on_tick_end != NULL) patient->on_tick_end(patient->arg);
}

static void on_check(uv_check_t *check)
{
    end_tick(check->data);
}

static void on_prepare(uv_prepare_t *prepare)
{
    end_tick(prepare->data);
}

void patient_loop_init(struct patient_loop *patient)
{
    *patient = (struct patient_loop){.arg = NULL};
    assert_int_equal(uv_loop_init(&patient->loop), 0);
    uv_timer_init(&patient->loop, &patient->tick);
    uv_check_init(&patient->loop, &patient->check);
    uv_prepare_init(&patient->loop, &patient->prepare);
    patient->check.data = patient->prepare.data = patient;
    uv_timer_start(&patient->tick, on_tick, TICK_MS, TICK_MS);
    uv_check_start(&patient->check, on_check);
    uv_prepare_start(&patient->prepare, on_prepare);
}

void patient_loop_until(struct patient_loop *patient, bool (*is_true)(void *arg), void *arg)
{
    uint64_t until_ns = uv_hrtime() + (uint64_t)CEILING_S * 1000000000;
    while (!is_true(arg)) {
        if (uv_hrtime() > until_ns) fail_msg("waited %d s for something that did not happen", CEILING_S);
        uv_run(&patient->loop, UV_RUN_ONCE);
    }
}

void patient_loop_ticks(struct patient_loop *patient, int n)
{
    for (int i = 0; i < n; i++) uv_run(&patient->loop, UV_RUN_ONCE);
}

void patient_loop_fini(struct patient_loop *patient)
{
    uv_close((uv_handle_t *)&patient->tick, NULL);
    uv_close((uv_handle_t *)&patient->check, NULL);
    uv_close((uv_handle_t *)&patient->prepare, NULL);
    uv_run(&patient->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&patient->loop), 0);
}
