/*
 * test_store.c: what a test does to the store (the method test_store): an outage, its end, and a new beginning.
 *
 * The store fails as any store does, so all that follows is the engine's own. What a daemon does some time after an
 * outage is done at once, because a test's time does not pass by itself.
 */
#include "engine/engine_private.h"
#include "policy/inline_policies.h"

void engine_test_store(struct engine *engine, enum store_test what)
{
    store_test(&engine->store, what);
    if (what == STORE_TEST_CLEAR) {
        struct inline_policies *inline_policies = engine->inline_policies;
        slots_forget(&engine->slots);
        reservations_fini(&engine->reservations);
        reservations_init(&engine->reservations, &engine->calls);
        failure_forget(&engine->failure, engine->set);
        engine->merge_back.next_us = 0;
        engine->merge_back.knows_time = false;
        if (inline_policies != NULL)
            (void)inline_policies_configure(inline_policies, inline_policies->max, inline_policies->defaults);
        engine->clock->wall_us = 0;
    }
    if (what == STORE_TEST_DOWN) return;
    slots_resume(&engine->slots);

    /* Each merge is done, dropped, or put off for a while of real time. */
    engine->merge_back.next_us = 0;
    while (merge_back_next_us(engine) <= engine->clock->mono_us) merge_back_run(engine);
}
