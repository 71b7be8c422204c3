/* redis_watch.c: counts of the store compared with those of a second ago, for the timer of ratelimitd.c. */
#include "daemon/redis_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/failure_watch.h"
#include "redis/counters.h"

enum { LOG_REPLY_MAX = 256 };

static void remember_state(struct redis_watch *watch, const struct redis_store *redis)
{
    watch->was_ready = redis_store_ready(redis);
    watch->n_reasons = watch->was_ready ? 0 : watch->n_reasons + 1;
    snprintf(watch->reported, sizeof watch->reported, "%s", redis_store_status(redis));
}

/* What happened to the connection since the last look, for debug lines: "attempts to connect 2, failed attempts 2". */
static void log_events(struct redis_watch *watch, const struct redis_store *redis)
{
    static const struct {
        const uint64_t *counter;
        const char *name;
    } events[REDIS_EVENTS] = {
        {&redis_counters.redis_connects, "attempts to connect"},
        {&redis_counters.redis_connect_failures, "failed attempts"},
        {&redis_counters.redis_disconnects, "connections lost"},
        {&redis_counters.redis_stalls, "connections without a reply"},
        {&redis_counters.redis_script_loads, "loads of a script"},
        {&redis_counters.redis_errors, "error replies"},
    };
    char text[256] = "", reply[LOG_REPLY_MAX];
    size_t at = 0;

    for (size_t i = 0; i < REDIS_EVENTS; i++) {
        uint64_t n = *events[i].counter - watch->n_seen[i];
        watch->n_seen[i] += n;
        if (n == 0) continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %" PRIu64, at > 0 ? ", " : "", events[i].name, n);
    }
    if (at > 0) log_debug("Redis, since the last look: %s; now: %s", text, redis_store_status(redis));

    struct redis_refusal last = redis_store_refusal(redis);
    if (last.at_us != watch->error_us && last.text[0] != '\0')
        log_debug("Redis, the last error reply: %s", log_escape(reply, sizeof reply, last.text, strlen(last.text)));
    watch->error_us = last.at_us;
}

void redis_watch_start(struct redis_watch *watch, const struct redis_store *redis, const struct policy_set *policies)
{
    char answers[FAILURE_ANSWERS_MAX];
    *watch = (struct redis_watch){0};
    remember_state(watch, redis);
    log_events(watch, redis);
    if (watch->was_ready) return;
    log_warning("Redis: %s; until it is ready, checks get their failure answer: %s", watch->reported,
                failure_answers_text(policies, answers));
}

static void report_daemons(struct redis_watch *watch, const struct redis_store *redis)
{
    const char *fault;
    char text[LOG_REPLY_MAX];
    (void)redis_store_n_daemons(redis, &fault);
    bool has_fault = fault[0] != '\0';
    if (has_fault && !watch->has_fault)
        log_warning("Redis: the daemons cannot be counted, so local answers have the whole limit: %s, or write "
                    "local_share: N",
                    log_escape(text, sizeof text, fault, strlen(fault)));
    if (!has_fault && watch->has_fault) log_info("Redis: the daemons can be counted again");
    watch->has_fault = has_fault;
}

/* Who answers, in debug lines and in the status: true if that has changed. */
static bool look_at_sentinels(struct redis_watch *watch, const struct redis_store *redis)
{
    char text[REDIS_SENTINELS_TEXT_MAX];
    redis_store_sentinels(redis, text, sizeof text);
    if (strcmp(watch->sentinels, text) == 0) return false;
    memcpy(watch->sentinels, text, sizeof text);
    log_debug("Redis: %s", text);
    return true;
}

/* Each Sentinel that stays away is named once, and one that gives ever other reasons a few times. */
static void report_passed(struct redis_watch *watch, const struct redis_store *redis)
{
    const char *why;
    for (uint32_t i = 0; (why = redis_store_passed(redis, i)) != NULL; i++) {
        struct redis_watch_passed *passed = &watch->passed[i];
        char text[LOG_REPLY_MAX];
        if (strcmp(passed->why, why) == 0) {
            if (redis_store_ready(redis)) passed->n_lines = 0;
            continue;
        }
        snprintf(passed->why, sizeof passed->why, "%s", why);
        if (why[0] == '\0' || ++passed->n_lines > REDIS_WATCH_REASONS_MAX) continue;
        log_warning("Redis: passed over: %s", log_escape(text, sizeof text, why, strlen(why)));
    }
}

/* Other settings that are proved on a second connection: why they are not used, and when they are. */
static bool look_at_trial(struct redis_watch *watch, struct redis_store *redis)
{
    uint64_t n_taken;
    const char *taken = redis_store_taken(redis, &n_taken), *text = redis_store_trial(redis);
    bool is_news = n_taken != watch->n_taken || strcmp(watch->trial, text) != 0;
    if (n_taken != watch->n_taken) log_info("Redis: %s", taken);
    if (strcmp(watch->trial, text) != 0 && text[0] != '\0' && ++watch->n_trials <= REDIS_WATCH_REASONS_MAX)
        log_warning("Redis: %s", text);
    if (text[0] == '\0') watch->n_trials = 0;
    watch->n_taken = n_taken;
    snprintf(watch->trial, sizeof watch->trial, "%s", text);
    return is_news;
}

void redis_watch_trial_again(struct redis_watch *watch)
{
    watch->trial[0] = '\0';
    watch->n_trials = 0;
}

bool redis_watch_look(struct redis_watch *watch, struct redis_store *redis)
{
    CHECK(redis != NULL);
    log_events(watch, redis);
    uint64_t n_foreign;
    const char *key = redis_store_foreign(redis, &n_foreign);
    if (n_foreign != watch->n_foreign)
        log_warning("Redis: WRONGTYPE: %s: a key of it holds a value of another type, met %" PRIu64
                    " times; ratelimitctl explain names it",
                    key, n_foreign - watch->n_foreign);
    watch->n_foreign = n_foreign;
    report_daemons(watch, redis);
    report_passed(watch, redis);

    /* Each server once, and again if its words change. */
    const char *why, *address;
    while ((why = redis_store_by_slot(redis, &address)) != NULL) {
        char text[LOG_REPLY_MAX];
        log_info("Redis: %s takes only calls with the keys of one hash slot, so it gets more of them: %s", address,
                 log_escape(text, sizeof text, why, strlen(why)));
    }

    bool is_news = look_at_sentinels(watch, redis);
    is_news |= look_at_trial(watch, redis);

    bool is_ready = redis_store_ready(redis);
    bool is_same = strncmp(watch->reported, redis_store_status(redis), sizeof watch->reported - 1) == 0;
    if (is_ready == watch->was_ready && (is_ready || is_same || watch->n_reasons >= REDIS_WATCH_REASONS_MAX))
        return is_news;
    remember_state(watch, redis);
    log_line(is_ready ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "Redis: %s", watch->reported);
    return true;
}
