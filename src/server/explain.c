/*
 * explain.c: the decision in words, for who is called at night: which limit decided, how much of it is left, what was
 * asked, and when it will do; and with them the limits, keys and states. Whatever a client sent is escaped.
 */
#include "server/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/line.h"
#include "base/log.h"
#include "base/units.h"
#include "limit/calendar.h"
#include "server/policies.h"
#include "server/server_options.h"
#include "store/store_key.h"

enum {
    WHY_TEXT_MAX = 3072,
    NAME_SHOWN_MAX = NAME_MAX_LEN + 48,
    KEY_SHOWN_MAX = 120,
    STORE_ERROR_MAX = 512,
    REFUSAL_MAX = EXPLAIN_FAILURE_MAX - 128 - STORE_TROUBLE_MAX,
};

/* The numbers of the limit, or of the share of it that `local` decides by. */
struct shown {
    struct view view;
    struct limit share;
};

static struct view *view_of(struct shown *shown, const struct check *check, const struct op_member *member,
                            int64_t share)
{
    const struct limit *limit = member->limit;
    if (check->decision.source == SOURCE_LOCAL && share > 1) {
        limit_share(&shown->share, limit, share);
        limit = &shown->share;
    }
    limit_here(&shown->view, limit, member->key, member->max_wait_us, check->op.now_us);
    limit_report(&shown->view, member->used, member->extra, 0);
    if (limit_has_penalty(limit)) limit_pause(&shown->view, member->pause);
    return &shown->view;
}

/* ---- in words ---- */

/* The text so far; what is too long is cut off. */
struct why {
    struct line line;
    int64_t share;           /* of struct explain_options */
    const char *denied_like; /* the same */
};

/* `limit "day"`, or `the policy's limit` if the policy's one has no name. */
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
static void add_limit(struct why *why, const struct limit *limit)
{
    char name[NAME_SHOWN_MAX], window[UNITS_TEXT_MAX];
    line_add(&why->line, "%s (%s, %" PRId64 " %s ", name_of(limit, name), limit_ops(limit)->name, limit->limit,
             has_slots(limit) ? "at once, slot_ttl" : "per");
    if (limit->calendar != NULL)
        line_add(&why->line, "%s of %s)", calendar_unit_name(limit->calendar), calendar_zone_name(limit->calendar));
    else
        line_add(&why->line, "%s)", units_print_duration(window, limit->window_us));
}

static void add_free(struct why *why, const struct check *check, const struct op_member *member)
{
    struct shown shown; /* before the check */
    const struct view *view = view_of(&shown, check, member, why->share);
    int64_t is_free = limit_remaining(view);
    const char *things = has_slots(member->limit) ? "slots" : member->limit->counts_checks ? "checks" : "units";
    line_add(&why->line, "%" PRId64 " of %" PRId64 " %s are free and this check needs %" PRId64, is_free,
             view->limit->full, things, limit_cost(member->limit, check->cost));
}

/* The denying member that waits longest, and how many deny; NULL if none does. */
static const struct op_member *find_denying(const struct op *op, unsigned *ret_n)
{
    const struct op_member *longest = NULL;
    *ret_n = 0;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        if (member->decision.allowed) continue;

        ++*ret_n;
        int64_t wait_ms = member->decision.retry_after_ms;
        int64_t longest_ms = longest != NULL ? longest->decision.retry_after_ms : 0;
        if (longest == NULL || (longest_ms != RETRY_NEVER && (wait_ms == RETRY_NEVER || wait_ms > longest_ms)))
            longest = member;
    }
    return longest;
}

/* What a candidate denies is allowed all the same, and so is what a policy in shadow denies. */
static const char *denied_word(const struct policy *policy)
{
    return policy->shadow || policy->is_candidate ? "Would be denied" : "Denied";
}

static void add_denied(struct why *why, const struct check *check, const struct op_member *member, unsigned n_deny)
{
    char time[UNITS_TEXT_MAX];
    const struct limit *limit = member->limit;
    line_add(&why->line, "%s by ", denied_word(check->plan->policy));
    add_limit(why, limit);

    if (limit_cost(limit, check->cost) > limit->full) {
        line_add(&why->line,
                 ": it never has more than %" PRId64 " units, and this check needs %" PRId64
                 ". No waiting helps; ask for less.",
                 limit->full, check->cost);
        return;
    }
    line_add(&why->line, ": ");
    add_free(why, check, member);

    if (member->decision.reason == REASON_PENALTY) {
        /* The one that runs, or that a check would begin now. */
        struct shown shown;
        const struct view *view = view_of(&shown, check, member, why->share);
        const struct penalty *penalty = &view->limit->penalty;
        const struct pause next = penalty_next(penalty, &view->pause, view->now_us / 1000);
        if (view->pause_ms > 0)
            line_add(&why->line, ". A pause of its penalty, level %" PRId64 ", ends in %s", view->pause.level,
                     units_print_wait(time, view->pause_ms));
        else
            line_add(&why->line, ". So a check would begin a pause of its penalty, level %" PRId64 ", of %s",
                     next.level, units_print_wait(time, penalty_length_ms(penalty, next.level)));
    }

    if (has_slots(limit))
        line_add(&why->line, ". One comes free as soon as a holder gives it back; in %s, if no lease is renewed.",
                 units_print_wait(time, member->decision.retry_after_ms));
    else
        line_add(&why->line, ". It fits in %s, unless others come first.",
                 units_print_wait(time, member->decision.retry_after_ms));
    if (limit->count_denied) line_add(&why->line, " Denied checks are counted, too.");
    if (n_deny > 1)
        line_add(&why->line, " %u of %u limits deny; this one takes longest to open.", n_deny, check->op.n_members);
}

/* By the limit that leaves least: of those that count units, if there is one and no other is used up. */
static void add_allowed(struct why *why, const struct check *check)
{
    const struct op *op = &check->op;
    const struct op_member *tightest = &op->members[0];
    for (uint16_t i = 1; i < op->n_members; i++)
        if (op->members[i].limit == check->decision.of) tightest = &op->members[i];

    char time[UNITS_TEXT_MAX];
    int64_t delay_ms = check->decision.delay_ms;
    line_add(&why->line, "%s by ", check->plan->policy->is_candidate ? "Would be allowed" : "Allowed");
    add_limit(why, tightest->limit);
    line_add(&why->line, ": ");
    if (why->denied_like[0] != '\0') {
        line_add(&why->line, "never counted here; denied in the last %s. Is one of these meant?", why->denied_like);
        return;
    }
    add_free(why, check, tightest);
    line_add(&why->line, op->n_members > 1 ? "; of %u limits the one that leaves least." : ".", op->n_members);
    if (delay_ms > 0)
        line_add(&why->line, " It would have to wait %s before it goes ahead.", units_print_wait(time, delay_ms));
}

/* Decided by the policy alone. */
static void add_policy(struct why *why, const struct check *check)
{
    char name[NAME_SHOWN_MAX];
    const struct policy *policy = check->plan->policy;
    const struct limit *zero_limit = check->plan->zero_limit;

    if (check->plan->decider == ALLOWED_ALWAYS)
        line_add(&why->line, "Allowed: %s unlimited, and nothing is counted.",
                 policy->base != NULL ? "an override makes this key" : "the policy is");
    else if (zero_limit != NULL && check->cost > 0)
        line_add(&why->line, "%s: %s is 0, which admits nothing. No waiting helps.", denied_word(policy),
                 name_of(zero_limit, name));
    else
        line_add(&why->line, "%s: a cost of 0 charges nothing.", policy->is_candidate ? "Would be allowed" : "Allowed");
}

/* Explains the answer of a peek, by its policy or its store, in `out`, which is returned. */
static const char *why_text(const struct check *check, const struct explain_options *options, char out[WHY_TEXT_MAX])
{
    const struct policy *policy = check->plan->policy;
    int64_t share = options->share;
    struct why why = {.line = line_of(out, WHY_TEXT_MAX), .share = share, .denied_like = options->denied_like};
    char shown[KEY_SHOWN_MAX], network[NETWORK_TEXT_MAX];
    unsigned n_deny;
    out[0] = '\0';

    const struct op_member *denying = find_denying(&check->op, &n_deny);
    if (check->op.n_members == 0)
        add_policy(&why, check);
    else if (denying != NULL)
        add_denied(&why, check, denying, n_deny);
    else
        add_allowed(&why, check);

    if (policy->shadow) line_add(&why.line, " The policy is in shadow: it is counted, and denies nobody.");
    if (policy->override != NULL) {
        const char *text = override_counting(policy->override, check->key, network);
        line_add(&why.line, " The override %s counts for this key.",
                 log_escape(shown, sizeof shown, text, strlen(text)));
    }
    if (check->n_leased > 0)
        line_add(&why.line, " This daemon held %" PRId64 " units of it that no check had used yet (lease)%s.",
                 check->n_leased,
                 limit_is_bucket(check->op.members[0].limit)
                     ? "; where others were charged since, they count as used here"
                     : "");
    bool has_share = check->plan->on_failure == ON_FAILURE_LOCAL && check->decision.source == SOURCE_REDIS;
    if (has_share && share > 1)
        line_add(&why.line, " Without Redis this daemon decides by its share, limit and burst divided by %" PRId64 ".",
                 share);
    if (has_share && check->plan->merges_back)
        line_add(&why.line, " What it admits without Redis is charged in Redis afterwards (merge_back).");
    if (check->decision.source == SOURCE_LOCAL) {
        line_add(&why.line, " This is what the daemon has counted itself");
        if (share > 1) line_add(&why.line, ", by its share, limit and burst divided by %" PRId64, share);
        line_add(&why.line, ": Redis did not decide.");
        if (options->trouble[0] != '\0') line_add(&why.line, " Redis is %s", options->trouble);
    }
    return out;
}

/* ---- the answer ---- */

enum { N_REASONS = 4 };

static void pack_reasons(struct packer *packer, const struct check *check, const struct explain_options *options)
{
    char text[WHY_TEXT_MAX];
    struct shown shown;
    pack_text_field(packer, "why", why_text(check, options, text));

    /* Each limit's settings, and its own decision if it made one: with a limit of 0 the others were not asked. */
    enum { N_OWN = 4 };
    const struct policy *policy = check->plan->policy;
    bool is_free = check->cost == 0;
    const struct decision of_zero = {.allowed = is_free, .retry_after_ms = is_free ? 0 : RETRY_NEVER};
    pack_text(packer, "limits");
    pack_array(packer, policy->n_limits);
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        const struct decision *decision = limit->limit == 0 ? &of_zero : NULL;
        for (uint16_t j = 0; j < check->op.n_members; j++)
            if (check->op.members[j].limit == limit) decision = &check->op.members[j].decision;

        policies_pack_limit(packer, limit, decision != NULL ? N_OWN : 0);
        if (decision == NULL) continue;
        pack_bool_field(packer, "allowed", decision->allowed);
        pack_int_field(packer, "remaining", decision->remaining);
        pack_int_field(packer, "retry_after_ms", decision->allowed ? 0 : decision->retry_after_ms);
        pack_int_field(packer, "reset_after_ms", decision->reset_after_ms);
    }

    pack_text(packer, "store_keys");
    pack_array(packer, check->op.n_members);
    for (uint16_t i = 0; i < check->op.n_members; i++) {
        struct store_key_space space;
        struct slice pieces[STORE_KEY_PIECES];
        const struct view *view = view_of(&shown, check, &check->op.members[i], options->share);
        size_t n = store_key_pieces(&check->op.members[i], view, &options->keys, &space, pieces);
        (options->keys_are_bin ? pack_bin_of : pack_str_of)(packer, pieces, n);
    }

    pack_text(packer, "state");
    pack_array(packer, check->op.n_members);
    for (uint16_t i = 0; i < check->op.n_members; i++) {
        struct state_terms terms = {0};
        const struct view *view = view_of(&shown, check, &check->op.members[i], options->share);
        limit_ops(view->limit)->describe(view, &terms);
        if (limit_has_penalty(view->limit)) {
            state_add(&terms, "penalty_level", view->pause.level);
            state_add(&terms, "penalty_ends_in_ms", view->pause_ms);
        }
        pack_map(packer, (uint32_t)terms.n);
        for (size_t j = 0; j < terms.n; j++) {
            pack_text(packer, terms.at[j].name);
            pack_int(packer, terms.at[j].value);
        }
    }
}

void explain_reply(struct packer *packer, const struct check *check, const struct check *candidate,
                   const struct explain_options *options)
{
    enum { N_MORE = N_REASONS + 2 };
    const struct policy *policy = check->plan->policy, *base = policy->base != NULL ? policy->base : policy;
    bool has_candidate = base->candidate != NULL, has_id = policy->id != NULL;
    char network[NETWORK_TEXT_MAX]; /* at most that of the key that was asked about */
    const char *override = NULL;
    if (policy->override != NULL) override = override_counting(policy->override, check->key, network);
    reply_decision(packer, &check->decision, check->cost, options->decision, N_MORE + has_candidate + has_id);
    pack_text_field(packer, "policy", policy->label);
    if (has_id) pack_text_field(packer, "id", policy->id);
    pack_text(packer, "override");
    if (override != NULL)
        pack_text(packer, override);
    else
        pack_nil(packer);
    pack_reasons(packer, check, options);
    if (!has_candidate) return;

    pack_text(packer, "candidate");
    if (candidate == NULL || candidate->error != ERROR_NONE) { /* none for such a check, or the store did not answer */
        pack_nil(packer);
        return;
    }
    reply_decision(packer, &candidate->decision, candidate->cost, options->decision, N_REASONS);
    pack_reasons(packer, candidate, options);
}

/* The key that holds a value of another type, and the way out. */
static void say_foreign(const struct check *check, const struct op_member *member, const struct store_key_scheme *keys,
                        char *out)
{
    enum { KEY_TEXT_MAX = 4200, LEAST = 8 }; /* a whole key of 1 KiB, escaped; what log_escape() writes at once */
    struct shown shown;
    struct store_key_space space;
    struct slice pieces[STORE_KEY_PIECES];
    char key[KEY_TEXT_MAX];
    key[0] = '\0';
    size_t n = store_key_pieces(member, view_of(&shown, check, member, 1), keys, &space, pieces), at = 0;
    for (size_t i = 0; i < n && sizeof key - at >= LEAST; i++) {
        log_escape(key + at, sizeof key - at, pieces[i].data, pieces[i].len);
        at += strlen(key + at);
    }

    snprintf(out, REFUSAL_MAX, "WRONGTYPE: the key '%s' in Redis holds a value of another type; %s", key,
             limit_ops(member->limit)->is_compat ? "the key is not the policy's own, so delete it in Redis"
                                                 : "reset deletes it");
}

/* Why the store did not answer, in `out` or static. */
static const char *refusal(const struct check *check, const struct store_key_scheme *keys, const char *store_error,
                           char out[REFUSAL_MAX])
{
    char text[STORE_ERROR_MAX];
    for (uint16_t i = 0; i < check->op.n_members; i++) {
        if (!check->op.members[i].is_foreign) continue;
        say_foreign(check, &check->op.members[i], keys, out);
        return out;
    }
    if (!check->op.is_refused) return check->error_message;
    snprintf(out, REFUSAL_MAX, "Redis refused it: %s", log_escape(text, sizeof text, store_error, strlen(store_error)));
    return out;
}

const char *explain_failure(const struct check *check, const struct explain_options *options, const char *store_error,
                            char out[EXPLAIN_FAILURE_MAX])
{
    char why[REFUSAL_MAX];
    enum on_failure on_failure = check->plan->policy->on_failure;
    struct slice name = on_failure_name(on_failure);
    int len = snprintf(out, EXPLAIN_FAILURE_MAX, "%s; a check would be answered by on_failure: %.*s",
                       refusal(check, &options->keys, store_error, why), (int)name.len, (const char *)name.data);
    if (options->share > 1 && on_failure == ON_FAILURE_LOCAL)
        snprintf(out + len, EXPLAIN_FAILURE_MAX - (size_t)len, ", limit and burst divided by %" PRId64, options->share);
    len = (int)strlen(out);
    if (options->trouble[0] != '\0')
        snprintf(out + len, EXPLAIN_FAILURE_MAX - (size_t)len, "; Redis is %s", options->trouble);
    return out;
}
