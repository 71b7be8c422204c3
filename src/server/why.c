/*
 * why.c: sentences from a check, its policy and what its limits answered. Whatever a client sent is escaped.
 */
#include "server/why.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "limit/calendar.h"

enum { NAME_SHOWN_MAX = NAME_MAX_LEN + 48, KEY_SHOWN_MAX = 120 };

/* The text so far; what is too long is cut off. */
struct why {
    char *out;
    size_t len;
};

static void say(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct why *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(why->out + why->len, WHY_TEXT_MAX - why->len, format, args);
    va_end(args);
    why->len += (size_t)len;
    if (why->len >= WHY_TEXT_MAX) why->len = WHY_TEXT_MAX - 1;
}

/* `limit "day"`, or `the policy's limit` where the policy's one has no name. */
static const char *name_of(const struct limit *limit, char out[NAME_SHOWN_MAX])
{
    if (limit->name[0] == '\0')
        snprintf(out, NAME_SHOWN_MAX, "the policy's limit");
    else
        snprintf(out, NAME_SHOWN_MAX, "limit \"%s\"", limit->name);
    return out;
}

static bool has_slots(const struct limit *limit)
{
    return limit->algo == ALGO_CONCURRENCY;
}

/* "limit "day" (sliding_log, 5 per 1d)", "limit "day" (calendar_window, 5 per day of Europe/Berlin)" */
static void say_limit(struct why *why, const struct limit *limit)
{
    char name[NAME_SHOWN_MAX], window[UNITS_TEXT_MAX];
    say(why, "%s (%s, %" PRId64 " %s ", name_of(limit, name), limit_ops(limit)->name, limit->limit,
        has_slots(limit) ? "at once, slot_ttl" : "per");
    if (limit->calendar != NULL)
        say(why, "%s of %s)", calendar_unit_name(limit->calendar), calendar_zone_name(limit->calendar));
    else
        say(why, "%s)", units_print_duration(window, limit->window_us));
}

static void say_free(struct why *why, const struct check *check, const struct op_member *member)
{
    struct view view; /* before the check */
    limit_here(&view, member->limit, member->key, member->max_wait_us, check->op.now_us);
    limit_report(&view, member->seen1, member->seen2, 0);
    int64_t is_free = limit_remaining(&view);
    say(why, "%" PRId64 " of %" PRId64 " %s are free and this check needs %" PRId64, is_free, member->limit->full,
        has_slots(member->limit) ? "slots" : "units", check->parts->cost);
}

static bool waits_longer(const struct decision *a, const struct decision *b)
{
    if (b->retry_after_ms == RETRY_NEVER) return false;
    return a->retry_after_ms == RETRY_NEVER || a->retry_after_ms > b->retry_after_ms;
}

/* The denying member that waits longest, and how many deny; NULL where none does. */
static const struct op_member *find_denying(const struct op *op, unsigned *ret_n)
{
    const struct op_member *longest = NULL;
    *ret_n = 0;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        if (member->decision.allowed) continue;
        if (longest == NULL || waits_longer(&member->decision, &longest->decision)) longest = member;
        ++*ret_n;
    }
    return longest;
}

static const struct op_member *find_tightest(const struct op *op)
{
    const struct op_member *least = &op->members[0];
    for (uint16_t i = 1; i < op->n_members; i++)
        if (op->members[i].decision.remaining < least->decision.remaining) least = &op->members[i];
    return least;
}

/* A candidate is not asked in earnest; a policy in shadow denies nobody. */
static const char *denied_word(const struct policy *policy)
{
    return policy->shadow || policy->is_candidate ? "Would be denied" : "Denied";
}

static const char *allowed_word(const struct policy *policy)
{
    return policy->is_candidate ? "Would be allowed" : "Allowed";
}

static void say_denied(struct why *why, const struct check *check, const struct op_member *member, unsigned n_deny)
{
    char time[UNITS_TEXT_MAX];
    const struct limit *limit = member->limit;
    say(why, "%s by ", denied_word(check->parts->policy));
    say_limit(why, limit);
    if (check->parts->cost > limit->full) {
        say(why,
            ": it never has more than %" PRId64 " units, and this check needs %" PRId64
            ". No waiting helps; ask for less.",
            limit->full, check->parts->cost);
        return;
    }
    say(why, ": ");
    say_free(why, check, member);
    if (has_slots(limit))
        say(why, ". One comes free as soon as a holder gives it back; in %s, if no lease is renewed.",
            units_print_wait(time, member->decision.retry_after_ms));
    else
        say(why, ". It fits in %s, unless others come first.", units_print_wait(time, member->decision.retry_after_ms));
    if (limit->count_denied) say(why, " Denied checks are counted, too.");
    if (n_deny > 1) say(why, " %u of %u limits deny; this one takes longest to open.", n_deny, check->op.n_members);
}

static void say_allowed(struct why *why, const struct check *check)
{
    char time[UNITS_TEXT_MAX];
    const struct op_member *member = find_tightest(&check->op);
    say(why, "%s by ", allowed_word(check->parts->policy));
    say_limit(why, member->limit);
    say(why, ": ");
    say_free(why, check, member);
    say(why, check->op.n_members > 1 ? "; of %u limits the one that leaves least." : ".", check->op.n_members);
    if (check->parts->decision.delay_ms > 0)
        say(why, " It would have to wait %s before it goes ahead.",
            units_print_wait(time, check->parts->decision.delay_ms));
}

/* Without the store. */
static void say_policy(struct why *why, const struct check *check)
{
    char name[NAME_SHOWN_MAX];
    const struct limit *zero = check->parts->policy->zero;
    if (check->parts->policy->unlimited)
        say(why, "Allowed: %s unlimited, and nothing is counted.",
            check->parts->policy->base != NULL ? "an override makes this key" : "the policy is");
    else if (zero != NULL && check->parts->cost > 0)
        say(why, "%s: %s is 0, which admits nothing. No waiting helps.", denied_word(check->parts->policy),
            name_of(zero, name));
    else
        say(why, "%s: a cost of 0 charges nothing.", allowed_word(check->parts->policy));
}

const char *why_text(const struct check *check, char *out)
{
    unsigned n_deny;
    struct why why = {.out = out};
    char shown[KEY_SHOWN_MAX];
    out[0] = '\0';
    const struct op_member *denying = find_denying(&check->op, &n_deny);
    if (check->op.n_members == 0)
        say_policy(&why, check);
    else if (denying != NULL)
        say_denied(&why, check, denying, n_deny);
    else
        say_allowed(&why, check);
    if (check->parts->policy->shadow) say(&why, " The policy is in shadow: it is counted, and denies nobody.");
    if (check->parts->policy->override != NULL)
        say(&why, " The override %s counts for this key.",
            log_escape(shown, sizeof shown, check->parts->policy->override, strlen(check->parts->policy->override)));
    return out;
}
