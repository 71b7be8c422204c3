/*
 * redis/trial.c: a link that sends no checks. redis/trial.h has the drawing.
 */
#include "redis/trial.h"

#include "base/alloc.h"

struct redis_trial {
    struct clock *clock; /* not owned */
    struct redis_options options;
    struct redis_link *link; /* owned */
    struct redis_self_test self_test;
    bool with_compat;
    bool is_closing;
    struct redis_trial_events events;
};

static void on_facts(void *arg, const struct redis_facts *facts)
{
    struct redis_trial *trial = arg;
    if (facts != NULL && !trial->is_closing) trial->events.on_facts(trial->events.arg, facts); /* else: a new attempt */
}

static void on_ready(void *arg)
{
    struct redis_trial *trial = arg;
    if (redis_self_test_start(&trial->self_test, trial->link, trial->clock, &trial->options, 0, trial->with_compat,
                              on_facts, trial) < 0)
        redis_link_drop(trial->link, REMEDY_RECONNECT, "out of memory");
}

/* The link tries again by itself, and knows why it has to. */
static void on_change(void *arg)
{
    (void)arg;
}

struct redis_trial *redis_trial_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *wanted,
                                    const struct redis_script *script, bool with_compat,
                                    const struct redis_trial_events *events)
{
    struct redis_trial *trial = mem_zalloc(sizeof *trial);
    if (trial == NULL) return NULL;
    trial->clock = clock;
    trial->with_compat = with_compat;
    trial->events = *events;
    if (redis_options_copy(&trial->options, wanted) < 0) goto err_free_trial;

    const struct redis_link_events of_link = {
        .arg = trial, .on_ready = on_ready, .on_down = on_change, .on_attempt = on_change};
    trial->link = redis_link_new(loop, clock, &trial->options, NULL, script, &of_link);
    if (trial->link == NULL) goto err_fini_options;
    return trial;

err_fini_options:
    redis_options_fini(&trial->options);
err_free_trial:
    mem_free(trial);
    return NULL;
}

struct redis_options *redis_trial_options(struct redis_trial *trial)
{
    return &trial->options;
}

const char *redis_trial_status(const struct redis_trial *trial)
{
    return redis_link_is_ready(trial->link) ? "its self-test runs" : redis_link_status(trial->link);
}

void redis_trial_refuse(struct redis_trial *trial, const char *why)
{
    redis_link_drop(trial->link, REMEDY_RECONNECT_LATE, why);
}

static void on_link_closed(void *arg)
{
    struct redis_trial *trial = arg;
    struct redis_trial_events events = trial->events;
    redis_options_fini(&trial->options);
    mem_free(trial);
    events.on_closed(events.arg);
}

void redis_trial_close(struct redis_trial *trial)
{
    trial->is_closing = true;
    redis_link_close(trial->link, on_link_closed, trial);
}
