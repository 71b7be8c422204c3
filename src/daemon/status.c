/* status.c: the line for systemctl status, made each second. */
#include "daemon/status.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"

enum { STATUS_MAX = 1024, REDIS_MAX = 512 };

bool status_redis(const struct daemon *daemon, char why[STATUS_WHY_MAX], int64_t *ret_since_us)
{
    const struct failure_watch *watch = &daemon->failure_watch;
    const char *breaker = redis_store_breaker(daemon->redis), *policy = watch->reason.policy;
    const char *advice = daemon->redis_check.advice;
    int64_t now_us = daemon->clock.mono_us;
    bool lacks_rights = advice[0] != '\0';
    *ret_since_us = daemon->trouble_us != 0 ? daemon->trouble_us : now_us;
    why[0] = '\0';
    if (!redis_store_ready(daemon->redis)) {
        snprintf(why, STATUS_WHY_MAX, "%s", redis_store_status(daemon->redis));
        return false;
    }
    if (breaker != NULL) {
        char text[STATUS_WHY_MAX];
        log_escape(text, sizeof text, breaker, strlen(breaker));
        snprintf(why, STATUS_WHY_MAX, "the breaker is open: %.*s", STATUS_WHY_MAX - 32, text);
        return false;
    }
    if (!watch->is_episode) return true;

    bool is_up = !failure_watch_is_down(watch, now_us, lacks_rights, engine_policies(daemon->engine));
    bool names_policy = is_up && policy[0] != '\0', advises = lacks_rights && failure_watch_lacks_right(watch);
    *ret_since_us = watch->began_us;
    snprintf(why, STATUS_WHY_MAX, "%s%s%s%s%s%s", names_policy ? "policy " : "", names_policy ? policy : "",
             names_policy ? ": " : "", watch->reason.text, advises ? "; run: " : "", advises ? advice : "");
    return is_up;
}

bool status_trouble(void *arg, char out[STORE_TROUBLE_MAX])
{
    const struct daemon *daemon = arg;
    char why[STATUS_WHY_MAX], time[UNITS_TEXT_MAX];
    int64_t since_us;
    if (daemon->redis == NULL) return false;
    bool is_up = status_redis(daemon, why, &since_us);
    if (why[0] == '\0') return false;
    snprintf(out, STORE_TROUBLE_MAX, "%s for %s: %s",
             !redis_store_ready(daemon->redis) ? "down"
             : is_up                           ? "not deciding some checks"
                                               : "not deciding",
             units_print_wait(time, ((daemon->clock.mono_us - since_us) / SECOND_US + 1) * 1000), why);
    return true;
}

void status_report(const struct daemon *daemon, void (*report)(const char *status))
{
    char text[STATUS_MAX], redis[REDIS_MAX], sentinels[REDIS_SENTINELS_TEXT_MAX] = "";
    size_t n = engine_policies(daemon->engine)->n;
    const char *policies = n == 1 ? "policy" : "policies";
    if (daemon->redis == NULL) {
        snprintf(text, sizeof text, "%zu %s, memory store", n, policies);
    } else {
        /* "ready", "ready; it does not decide policy login: NOPERM ...": Redis' own status, and the reason of an
         * episode that is not in it. */
        const struct failure_watch *watch = &daemon->failure_watch;
        const char *status = redis_store_status(daemon->redis), *policy = watch->reason.policy;
        if (!watch->is_episode || watch->reason.cause == CAUSE_DOWN)
            snprintf(redis, REDIS_MAX, "%s", status);
        else if (policy[0] == '\0')
            snprintf(redis, REDIS_MAX, "%s; it does not decide: %s", status, watch->reason.text);
        else
            snprintf(redis, REDIS_MAX, "%s; it does not decide policy %s: %s", status, policy, watch->reason.text);

        redis_store_sentinels(daemon->redis, sentinels, sizeof sentinels);
        const char *trial = redis_store_trial(daemon->redis);
        snprintf(text, sizeof text, "%zu %s, Redis: %s%s%s%s%s", n, policies, redis, sentinels[0] != '\0' ? "; " : "",
                 sentinels, trial[0] != '\0' ? "; " : "", trial);
    }
    report(text);
}
