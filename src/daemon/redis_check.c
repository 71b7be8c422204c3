/* redis_check.c: what Redis said of itself, looked at each second by ratelimitd.c until it is known. */
#include "daemon/redis_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/units.h"

enum { AHEAD_MAX_US = 1000000, OLDEST_MAJOR = 6, OLDEST_MINOR = 2 };

static bool is_too_old(const char *version)
{
    char *end = NULL;
    long major = strtol(version, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return major < OLDEST_MAJOR || (major == OLDEST_MAJOR && minor < OLDEST_MINOR);
}

static void on_done(void *arg, const struct redis_facts *facts)
{
    struct redis_check *check = arg;
    CHECK(check->is_running);
    check->is_running = false;
    if (facts == NULL) { /* the connection was lost */
        check->is_due = true;
        check->is_loud |= !check->is_quiet;
        return;
    }

    char advice[REDIS_ADVICE_MAX] = "";
    bool lacks_keys = facts->keys[0] != '\0', lacks_commands = facts->missing[0] != '\0';
    if (lacks_keys || lacks_commands)
        snprintf(advice, sizeof advice, "ACL SETUSER %s %s%s%s", facts->user, facts->keys,
                 lacks_keys && lacks_commands ? " " : "", facts->missing);

    bool is_news = !check->is_quiet || strcmp(advice, check->advice) != 0;
    memcpy(check->advice, advice, sizeof advice);
    if (is_news && lacks_keys)
        log_warning(
            "Redis: user %s may not use the keys of this daemon, which begin with store.redis.key_prefix; run: %s",
            facts->user, advice);
    else if (is_news && lacks_commands)
        log_warning("Redis: user %s lacks rights that checks will need; run: %s", facts->user, advice);
    bool lacks_rights = lacks_keys || lacks_commands;

    if (check->is_quiet) return;
    check->round_trip_us = facts->round_trip_us;
    if (facts->version[0] != '\0' && is_too_old(facts->version))
        log_warning("Redis: version %s is too old; use Redis 6.2 or Valkey 7.2, or a newer one", facts->version);
    if (facts->eviction[0] == '\0')
        log_info(
            "Redis: user %s may not ask for INFO, so the warnings about its version and about eviction are off; run: "
            "ACL SETUSER %s +info",
            facts->user, facts->user);
    if (facts->eviction[0] != '\0' && strcmp(facts->eviction, "noeviction") != 0)
        log_warning("Redis: maxmemory-policy is %s, so it forgets counters when its memory is full; set noeviction",
                    facts->eviction);
    if (llabs(facts->ahead_us) > AHEAD_MAX_US)
        log_warning("Redis: its clock is %" PRId64 " s %s; limits follow it; synchronize both hosts (NTP)",
                    (int64_t)llabs(facts->ahead_us) / SECOND_US, facts->ahead_us > 0 ? "ahead" : "behind");
    log_debug("Redis: self-test: version %s, maxmemory-policy %s, clock %+" PRId64 " ms, rights %s",
              facts->version[0] != '\0' ? facts->version : "unknown",
              facts->eviction[0] != '\0' ? facts->eviction : "unknown", facts->ahead_us / MS_US,
              lacks_rights ? "missing" : "complete");
}

void redis_check_again(struct redis_check *check)
{
    check->is_due = true;
    check->is_loud = true;
}

void redis_check_rights(struct redis_check *check)
{
    check->is_due = true;
}

static bool has_compat(const struct policy_set *policies)
{
    for (size_t i = 0; i < policies->n; i++) {
        const struct policy *policy = policies->in_order[i];
        if (policy->n_limits > 0 && limit_ops(&policy->limits[0])->is_compat) return true; /* else it is unlimited */
    }
    return false;
}

static void compare_deadlines(int64_t round_trip_us, const struct policy_set *policies)
{
    const struct policy *shortest = NULL;
    size_t n = 0;
    for (size_t i = 0; i < policies->n; i++) {
        const struct policy *policy = policies->in_order[i];
        if (policy->n_limits == 0 || policy->deadline_ms * (int64_t)MS_US > round_trip_us) continue;
        if (shortest == NULL || policy->deadline_ms < shortest->deadline_ms) shortest = policy;
        n++;
    }
    if (n == 0) return;

    char others[48] = "";
    if (n > 1) snprintf(others, sizeof others, " and %zu more %s", n - 1, n == 2 ? "policy" : "policies");
    log_warning("Redis: the fastest of %d round trips took %" PRId64 " ms, and policy %s has a deadline of %u ms: "
                "checks of it%s get their failure answer; raise defaults.deadline, or bring Redis nearer",
                SELF_TEST_ROUNDS, round_trip_us / MS_US, shortest->name, shortest->deadline_ms, others);
}

void redis_check_look(struct redis_check *check, struct redis_store *redis, const struct policy_set *policies)
{
    CHECK(redis != NULL && policies != NULL);
    if (check->round_trip_us > 0) compare_deadlines(check->round_trip_us, policies);
    check->round_trip_us = 0;
    if (!check->is_due || check->is_running) return;
    bool is_loud = check->is_loud;
    check->is_quiet = !is_loud;
    check->is_due = check->is_loud = false;
    check->is_running = true; /* on_done runs at once if the connection breaks by what is written */
    if (redis_store_self_test(redis, has_compat(policies), on_done, check) == 0) return;
    check->is_running = false;
    check->is_due = true;
    check->is_loud = is_loud;
}
