/* denial_log.c: the sample of denials, and of checks near their limit, that is logged for request.c. */
#include "server/denial_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/log_key.h"
#include "base/random.h"
#include "base/units.h"
#include "limit/limit.h"
#include "server/peer.h"

enum { HELD_TEXT_MAX = 48, LIMIT_TEXT_MAX = 2 * NAME_MAX_LEN + 16 };

void denial_log_set(struct denial_log *log, enum denials mode, uint32_t per_second)
{
    log->mode = mode;
    log->per_second = per_second;
}

/* ---- the memory of the last ones ---- */

static struct denial_entry *denial_at(struct denial_log *log, uint16_t index)
{
    return &log->entries[index - 1];
}

/* Was it logged lately? What is too old goes, with all behind it, which is older: lists stay short. */
static bool is_remembered(struct denial_log *log, uint64_t hash, int64_t now_us)
{
    uint16_t *link = &log->heads[hash % DENIALS_REMEMBERED];
    while (*link != 0) {
        struct denial_entry *entry = denial_at(log, *link);
        if (now_us - entry->logged_us >= DENIAL_QUIET_US) {
            *link = 0;
            return false;
        }
        if (entry->hash == hash) return true;
        link = &entry->next;
    }
    return false;
}

static void remember_denial(struct denial_log *log, uint64_t hash, int64_t now_us)
{
    uint16_t index = (uint16_t)(log->n_entries % DENIALS_REMEMBERED) + 1;
    struct denial_entry *entry = denial_at(log, index);
    if (log->n_entries >= DENIALS_REMEMBERED) { /* the oldest of all is the last of its list, if that still has it */
        uint16_t *link = &log->heads[entry->hash % DENIALS_REMEMBERED];
        while (*link != 0 && *link != index) link = &denial_at(log, *link)->next;
        *link = 0;
    }

    uint16_t *head = &log->heads[hash % DENIALS_REMEMBERED];
    *entry = (struct denial_entry){.hash = hash, .logged_us = now_us, .next = *head};
    *head = index;
    log->n_entries++;
}

/* ---- which are logged ---- */

bool denial_log_takes(struct denial_log *log, const struct policy *policy, const struct limit *limit, struct slice key,
                      int64_t now_us, uint64_t *ret_held)
{
    uint64_t hash = 0;
    CHECK(log->mode != DENIALS_OFF);
    if (log->mode == DENIALS_FIRST) {
        /* The hash is keyed: no client can put many keys into one list, or make one key stand for another. */
        hash = random_mix(hash_keyed(key.data, key.len) + policy->name_hash);
        if (limit != NULL) hash = random_mix(hash + limit->head_hash);
        if (is_remembered(log, hash, now_us)) return false;
    }

    if (now_us - log->second_us >= SECOND_US) {
        log->second_us = now_us;
        log->n_logged = 0;
    }
    if (log->n_logged >= log->per_second) {
        log->n_held++;
        return false;
    }

    if (log->mode == DENIALS_FIRST) remember_denial(log, hash, now_us);
    log->n_logged++;
    *ret_held = log->n_held;
    log->n_held = 0;
    return true;
}

void denial_log_look(struct denial_log *log, int64_t now_us)
{
    if (log->n_held == 0 || now_us - log->second_us < SECOND_US) return;
    log_info("%s: %" PRIu64 " held back", log->what != NULL ? log->what : "denied", log->n_held);
    log->n_held = 0;
}

/* ---- the line ---- */

/* One word: "7h12m". */
static const char *retry_text(int64_t retry_ms, char out[UNITS_TEXT_MAX])
{
    if (retry_ms == RETRY_NEVER) return "never";
    units_print_wait(out, retry_ms);
    char *to = out;
    for (const char *from = out; *from != '\0'; from++)
        if (*from != ' ') *to++ = *from;
    *to = '\0';
    return out;
}

void denial_log_write(const struct check *check, const struct peer *peer, uint64_t n_held)
{
    const struct decision *decision = &check->decision;
    const char *reason = reason_name(decision->reason);
    char limit[LIMIT_TEXT_MAX] = "", held[HELD_TEXT_MAX] = "";
    char path[LIMIT_PATH_MAX], key[LOG_KEY_MAX], retry[UNITS_TEXT_MAX];
    if (n_held > 0) snprintf(held, sizeof held, " (%" PRIu64 " held back)", n_held);
    if (decision->of != NULL) /* as bound_by says it, or what the only limit would be called */
        snprintf(limit, sizeof limit, " limit %s", limit_path(decision->of, path));

    log_info("denied: policy %s%s%s cost %" PRId64 " retry %s source %s%s%s uid %u pid %d%s",
             check->plan->policy->label, limit, log_key(key, check->key), check->cost,
             retry_text(decision->retry_after_ms, retry), source_name(decision->source),
             reason != NULL ? " reason " : "", reason != NULL ? reason : "", (unsigned)peer->uid, (int)peer->pid, held);
}

const struct decision *denial_log_near(const struct check *check)
{
    for (uint8_t i = 0; i < check->n_limits && check->n_limits > 1; i++)
        if (check_decision_of(check, i)->near) return check_decision_of(check, i);
    return &check->decision;
}

void denial_log_write_near(const struct check *check, const struct peer *peer, uint64_t n_held)
{
    const struct decision *decision = denial_log_near(check);
    char held[HELD_TEXT_MAX] = "", path[LIMIT_PATH_MAX], key[LOG_KEY_MAX];
    if (n_held > 0) snprintf(held, sizeof held, " (%" PRIu64 " held back)", n_held);
    log_info("near: policy %s limit %s%s used %" PRId64 " of %" PRId64 " source %s uid %u pid %d%s",
             check->plan->policy->label, limit_path(decision->of, path), log_key(key, check->key),
             decision->limit - decision->remaining, decision->limit, source_name(check->decision.source),
             (unsigned)peer->uid, (int)peer->pid, held);
}
