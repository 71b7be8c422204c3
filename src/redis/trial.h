/*
 * redis/trial.h: other settings of the server, proved on a connection of their own while the present one decides.
 *
 *   a reload ──▶ link.h with the wanted settings ──▶ ready ──▶ self-test ──▶ on_facts: the store takes them
 *                  ▲                                                             │ or not
 *                  └──────── redis_trial_refuse(), or a lost connection ─────────┘
 *
 * A password with a typing error, a certificate that the server refuses or a wrong address ends no connection that
 * works. For one server: Sentinels and a cluster name their servers anew by themselves, which is no such case.
 */
#ifndef RL_REDIS_TRIAL_H
#define RL_REDIS_TRIAL_H

#include "redis/link.h"
#include "redis/self_test.h"

struct redis_trial;

struct redis_trial_events {
    void *arg;
    void (*on_facts)(void *arg, const struct redis_facts *facts); /* the server answers; may be called again */
    void (*on_closed)(void *arg);
};

/* NULL without memory. `clock` and `script` outlive it; `wanted` is copied. Begins in the next tick. */
struct redis_trial *redis_trial_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *wanted,
                                    const struct redis_script *script, bool with_compat,
                                    const struct redis_trial_events *events);
struct redis_options *redis_trial_options(struct redis_trial *trial);
const char *redis_trial_status(const struct redis_trial *trial); /* "connecting", or what went wrong last */
/* From on_facts: begin anew, later. */
void redis_trial_refuse(struct redis_trial *trial, const char *why);
/* on_closed runs once, later; the trial is gone then. */
void redis_trial_close(struct redis_trial *trial);

#endif
