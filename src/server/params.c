/* params.c: parameters one by one, straight into a check, for the methods; and the faults that name them. */
#include "server/params.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/nearest.h"
#include "base/users.h"
#include "engine/engine.h"
#include "policy/inline_policies.h"
#include "server/access.h"
#include "server/session.h"

enum {
    DEADLINE_MS_MAX = 3600000,
    SHOWN_MAX = 72, /* of a peer's bytes in a message */

    /* Guessing what a wrong name meant: edits, and of a long configuration the policies that are looked at. */
    GUESS_EDITS = 2,
    GUESS_POLICIES = 1000,

    /* Units of work (sessions.h). */
    GUESSES_A_UNIT = 32,
    INLINE_UNITS = 20, /* to read one that is not known yet */
};

struct params params_of(struct session *session, uint64_t msgid, struct request_fault *fault)
{
    fault->code = ERROR_INTERNAL; /* whatever is refused says better */
    return (struct params){.session = session, .msgid = msgid, .index = -1, .fault = fault};
}

struct policy_set *params_policies(const struct params *params)
{
    return engine_policies(params->session->sessions->engine);
}

int params_fail(const struct params *params, enum error_code code, const char *format, ...)
{
    struct request_fault *fault = params->fault;
    int at = 0;
    va_list args;
    if (params->index >= 0) at = snprintf(fault->text, sizeof fault->text, "checks[%d]: ", (int)params->index);
    va_start(args, format);
    vsnprintf(fault->text + at, sizeof fault->text - (size_t)at, format, args);
    va_end(args);
    fault->code = code;
    return -1;
}

int params_fail_overloaded(const struct params *params)
{
    if (engine_is_full(params->session->sessions->engine))
        return params_fail(params, ERROR_OVERLOADED,
                           "too many checks are in flight (caps.max_inflight); try again later");
    return params_fail(params, ERROR_OVERLOADED, "memory is short; try again later");
}

/* ---- what is not for this user: the same, with the place in a list ---- */

static int fail_access(const struct params *params, const struct request_fault *fault)
{
    return params_fail(params, fault->code, "%s", fault->text);
}

int params_is_for(const struct params *params, const struct policy *policy)
{
    struct request_fault fault;
    return access_policy(params->session, policy, &fault) == 0 ? 0 : fail_access(params, &fault);
}

int params_inline_is_for(const struct params *params)
{
    struct request_fault fault;
    return access_inline(params->session, &fault) == 0 ? 0 : fail_access(params, &fault);
}

__attribute__((noinline)) static int fail_key_access(const struct params *params)
{
    struct request_fault fault;
    access_fail_key(params->session, &fault);
    return fail_access(params, &fault);
}

int params_key_is_for(const struct params *params, struct slice key)
{
    return access_takes_key(params->session, key) ? 0 : fail_key_access(params);
}

static const char *shown(char space[SHOWN_MAX], struct slice text)
{
    return log_escape(space, SHOWN_MAX, text.data, text.len);
}

static bool is_own_user(const struct session *session)
{
    return session->peer.uid == geteuid() && !users_is_ambiguous(session->peer.uid);
}

struct policy_set *params_inline(const struct params *params, struct slice name, char text[FAULT_TEXT_MAX])
{
    const struct server_options *options = &params->session->sessions->options;
    bool may = options->inline_access == INLINE_EVERYBODY ||
               (options->inline_access == INLINE_OWN_USER && is_own_user(params->session));
    struct policy_set *set = NULL;
    text[0] = '\0';
    if (may && params->session->rule->grants_inline)
        (void)inline_policies_named(options->inline_policies, name, &set, text, FAULT_TEXT_MAX);
    return set;
}

/* The one policy of an inline set, which `check` holds from now on; NULL: it is borrowed until the next request. */
static const struct policy *use_inline(struct check *check, struct policy_set *set)
{
    if (check != NULL) check_use_set(check, set);
    return set->in_order[0];
}

/* A name that no policy of the configuration has: that of an inline policy, if the method takes one. */
static int read_label(struct params *params, struct slice name, struct check *check, const struct policy **ret)
{
    char text[FAULT_TEXT_MAX] = "";
    struct policy_set *set = params->takes_label ? params_inline(params, name, text) : NULL;
    if (set == NULL && text[0] != '\0') return params_fail(params, ERROR_UNKNOWN_POLICY, "%s", text);

    if (set == NULL) {
        char space[SHOWN_MAX];
        const struct policy_set *policies = params_policies(params);
        struct nearest guess = nearest_within(name, GUESS_EDITS);
        size_t n = policies->n < GUESS_POLICIES ? policies->n : GUESS_POLICIES;
        for (size_t i = 0; i < n; i++) {
            const struct policy *policy = policies->in_order[i];
            if (access_rule_grants(params->session->rule, policy)) nearest_offer(&guess, policy->name);
        }
        sessions_spend(params->session->sessions, (uint32_t)n / GUESSES_A_UNIT);

        shown(space, name);
        if (guess.name != NULL)
            return params_fail(params, ERROR_UNKNOWN_POLICY, "no policy '%s'; did you mean '%s'? 'policies' lists them",
                               space, guess.name);
        return params_fail(params, ERROR_UNKNOWN_POLICY, "no policy '%s'; 'policies' lists them", space);
    }

    *ret = use_inline(check, set);
    return 0;
}

/* A policy that is written out in place of its name. */
static __attribute__((noinline)) int read_inline_policy(struct params *params, struct check *check,
                                                        const struct policy **ret)
{
    const struct server_options *options = &params->session->sessions->options;
    const uint8_t *start = params->pull.at;
    if (pull_type(&params->pull) != PULL_MAP)
        return params_fail(params, ERROR_BAD_REQUEST, "policy: must be a str, the name of a policy");
    if (options->inline_access == INLINE_NOBODY)
        return params_fail(params, ERROR_NOT_PERMITTED,
                           "policy: inline policies are not allowed here (inline.allow); write the name of one that "
                           "'policies' lists");
    if (options->inline_access == INLINE_OWN_USER && !is_own_user(params->session))
        return params_fail(params, ERROR_NOT_PERMITTED,
                           "policy: without a configuration inline policies are for the daemon's own user; write the "
                           "name of one that 'policies' lists");

    if (params_inline_is_for(params) != 0) return -1;

    CHECK(pull_skip(&params->pull) == 0); /* the scanner has found the message whole */
    const struct slice map = {start, (size_t)(params->pull.at - start)};
    struct policy_set *set;
    char text[FAULT_TEXT_MAX];
    uint64_t n_read = options->inline_policies->n_read;
    enum error_code code = inline_policies_find(options->inline_policies, map, &set, text, sizeof text);
    if (options->inline_policies->n_read > n_read) sessions_spend(params->session->sessions, INLINE_UNITS);
    if (code != ERROR_NONE) return params_fail(params, code, "%s", text);
    *ret = use_inline(check, set);
    return 0;
}

/* Clients ask for one policy again and again, so the session remembers its last one. */
static inline int read_policy(struct params *params, struct check *check, const struct policy **ret)
{
    struct session *session = params->session;
    uint64_t generation = engine_policies_generation(session->sessions->engine);
    struct slice name;
    if (pull_text(&params->pull, &name) != 0) return read_inline_policy(params, check, ret);

    *ret = session->last_policy;
    if (*ret != NULL && session->last_generation == generation && slice_eq(name, session->last_name)) return 0;

    *ret = policy_find(params_policies(params), name);
    if (*ret == NULL) return read_label(params, name, check, ret);
    if (params_is_for(params, *ret) != 0) return -1;
    session->last_generation = generation;
    session->last_policy = *ret;
    session->last_name = slice_of((*ret)->name);
    return 0;
}

int params_key(struct params *params, struct slice *ret)
{
    uint32_t max_key = params->session->sessions->options.max_key;
    if (pull_text(&params->pull, ret) != 0) return params_fail(params, ERROR_BAD_REQUEST, "key: must be a str or bin");
    if (ret->len == 0) return params_fail(params, ERROR_BAD_KEY, "key: is empty; it must have 1 to %u bytes", max_key);
    if (ret->len > max_key)
        return params_fail(params, ERROR_BAD_KEY, "key: has %zu bytes; at most %u (caps.max_key) are allowed", ret->len,
                           max_key);
    return 0;
}

/* Apart, as all with texts, so that the usual request has no space for these on its stack. */
static __attribute__((noinline)) int fail_format(const struct params *params, const struct policy *policy,
                                                 struct slice key)
{
    char space[SHOWN_MAX], of_format[SHOWN_MAX];
    return params_fail(params, ERROR_BAD_KEY, "key: '%s' does not fit %s, the key_format of %s", shown(space, key),
                       shown(of_format, slice_of(policy->format->text)), policy->label);
}

/* The key, which must fit the policy's format. */
static inline int read_key_of(struct params *params, const struct policy *policy, struct slice *ret)
{
    CHECK(policy != NULL);
    if (params_key(params, ret) != 0) return -1;
    if (!access_takes_key(params->session, *ret)) return fail_key_access(params);
    if (!policy_takes_key(policy, *ret)) return fail_format(params, policy, *ret);
    params->n -= 2;
    return 0;
}

int params_target(struct params *params, struct check *ret)
{
    const struct policy *policy = NULL;
    if (read_policy(params, ret, &policy) != 0) return -1;
    if (read_key_of(params, policy, &ret->key) != 0) return -1;
    ret->plan = plan_for_key(policy, ret->key);
    return 0;
}

int params_charged(struct params *params, struct check *ret)
{
    if (params_target(params, ret) != 0) return -1;
    if (!ret->plan->has_slots) return 0;
    return params_fail(params, ERROR_UNSUPPORTED, "policy: has a concurrency limit; use acquire or reserve");
}

static int fail_unknown_limit(const struct params *params, const struct policy *policy, struct slice name)
{
    char space[SHOWN_MAX];
    struct nearest guess = nearest_within(name, GUESS_EDITS);
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].name[0] != '\0') nearest_offer(&guess, policy->limits[i].name);

    shown(space, name);
    if (guess.name != NULL)
        return params_fail(params, ERROR_UNKNOWN_POLICY, "policy '%s' has no limit '%s'; did you mean '%s/%s'?",
                           policy->label, space, policy->label, guess.name);
    return params_fail(params, ERROR_UNKNOWN_POLICY, "policy '%s' has no limit '%s'; 'policies' lists its limits",
                       policy->label, space);
}

/* Where a user's keys are confined, so are the counters that it gives back to. */
static int counters_are_for(const struct params *params, const struct plan *plan, const struct limit *only)
{
    struct request_fault fault;
    for (uint16_t i = 0; i < plan->n_limits; i++) {
        const struct limit *limit = &plan->limits[i];
        if (only != NULL && limit != only) continue;
        if (access_counter(params->session, limit, &fault) != 0) return fail_access(params, &fault);
    }
    return 0;
}

/* policy or policy/limit; *ret_only is the limit that is named, else NULL. */
static int read_counter(struct params *params, struct check *check, const struct policy **ret,
                        const struct limit **ret_only)
{
    struct slice name = {NULL, 0};
    struct pull pull = params->pull;
    const uint8_t *slash = NULL;
    params->takes_label = true;
    *ret_only = NULL;
    if (pull_text(&pull, &name) == 0 && name.len > 0) slash = memchr(name.data, '/', name.len);
    if (slash == NULL) return read_policy(params, check, ret);

    params->pull = pull;
    const struct slice limit = {slash + 1, (size_t)(name.data + name.len - slash) - 1};
    name.len = (size_t)(slash - name.data);
    *ret = policy_find(params_policies(params), name);
    if (*ret != NULL ? params_is_for(params, *ret) != 0 : read_label(params, name, check, ret) != 0) return -1;
    CHECK(*ret != NULL);
    *ret_only = policy_find_limit(*ret, limit);
    return *ret_only != NULL ? 0 : fail_unknown_limit(params, *ret, limit);
}

int params_pattern(struct params *params, const struct policy **ret, const struct limit **ret_only,
                   struct slice *ret_match)
{
    uint32_t max_key = params->session->sessions->options.max_key;
    if (read_counter(params, NULL, ret, ret_only) != 0) return -1;
    params->n -= 2;
    if (pull_text(&params->pull, ret_match) == 0 && ret_match->len > 0 && ret_match->len <= max_key) return 0;
    return params_fail(params, ERROR_BAD_REQUEST,
                       "match: must be a str or bin of 1 to %u bytes, in which * stands for any", max_key);
}

int params_counter(struct params *params, struct check *ret, bool has_candidate)
{
    const struct policy *policy = NULL;
    if (read_counter(params, ret, &policy, &ret->only) != 0) return -1;
    if (read_key_of(params, policy, &ret->key) != 0) return -1;

    /* Where an override charges this key nothing, the counter that others charge is still there. */
    const struct policy *variant = policy_for_key(policy, ret->key);
    const struct limit *of_variant = ret->only != NULL ? policy_find_limit(variant, slice_of(ret->only->name)) : NULL;
    bool is_base = ret->only != NULL && (of_variant == NULL || of_variant->limit <= 0);
    ret->plan = is_base ? &policy->plan : &variant->plan;
    if (!is_base) ret->only = of_variant;

    if (counters_are_for(params, ret->plan, ret->only) != 0) return -1;
    const struct plan *candidate = has_candidate && ret->only == NULL ? ret->plan->candidate : NULL;
    return candidate != NULL ? counters_are_for(params, candidate, NULL) : 0;
}

static bool is_number(const struct params *params)
{
    enum pull_type type = pull_type(&params->pull);
    return type == PULL_INT || type == PULL_FLOAT;
}

/* Units: what is not a number is BAD_REQUEST, a number that cannot be charged BAD_COST. */
static int read_units(struct params *params, const char *name, int64_t least, int64_t *ret)
{
    if (!is_number(params)) return params_fail(params, ERROR_BAD_REQUEST, "%s: must be an integer", name);
    if (pull_int(&params->pull, ret) != 0 || *ret < least)
        return params_fail(params, ERROR_BAD_COST, "%s: must be a whole number from %d to 2^53 - 1", name, (int)least);
    return 0;
}

int params_units(struct params *params, const char *name, int64_t least, int64_t *ret)
{
    params->n--;
    return read_units(params, name, least, ret);
}

/* The units of a check, which its policy must be able to charge at once. */
static int read_cost(struct params *params, struct check *ret)
{
    if (!is_number(params)) return params_fail(params, ERROR_BAD_REQUEST, "cost: must be an integer");
    if (pull_int(&params->pull, &ret->cost) != 0)
        return params_fail(params, ERROR_BAD_COST, "cost: must be a whole number from 0 to 2^53 - 1");
    const char *wrong = policy_cost_fault(ret->plan->policy, ret->cost);
    return wrong == NULL ? 0 : params_fail(params, ERROR_BAD_COST, "%s", wrong);
}

int params_cost(struct params *params, struct check *ret)
{
    if (params->n == 0 || pull_nil(&params->pull) == 0) return 0;
    return read_cost(params, ret);
}

/* The options of all methods. */
enum option {
    OPTION_COST,
    OPTION_DEADLINE_MS,
    OPTION_MAX_WAIT_MS,
    OPTION_DECISION,
    OPTION_REQUEST_ID,
    OPTION_AT_MOST,
    OPTION_TTL_MS,
    OPTION_DESCRIBE,
    OPTION_AFTER,
    OPTION_MAX,
    OPTION_DRY_RUN,
    OPTION_NEXT,
    OPTION_BY,
    OPTION_POLICY,
    OPTION_KEY,
    OPTION_UID,
    OPTION_RESET,
    N_OPTIONS
};

enum {
    OPTIONS_OF_CHECK = 1U << OPTION_COST | 1U << OPTION_DEADLINE_MS | 1U << OPTION_MAX_WAIT_MS |
                       1U << OPTION_REQUEST_ID | 1U << OPTION_AT_MOST,
    OPTIONS_OF_ALL = 1U << OPTION_DEADLINE_MS | 1U << OPTION_REQUEST_ID,
    OPTIONS_OF_MEMBER = 1U << OPTION_COST | 1U << OPTION_REQUEST_ID,
    OPTIONS_OF_OTHERS = OPTIONS_OF_ALL,
    OPTIONS_OF_RESERVE = OPTIONS_OF_OTHERS | 1U << OPTION_TTL_MS,
    OPTIONS_OF_HELLO = 1U << OPTION_DECISION | 1U << OPTION_DESCRIBE,
    OPTIONS_OF_PAGE = 1U << OPTION_AFTER | 1U << OPTION_MAX,
    OPTIONS_OF_RELOAD = 1U << OPTION_DRY_RUN,
};

static const char *const option_names[N_OPTIONS] = {
    "cost", "deadline_ms", "max_wait_ms", "decision", "request_id", "at_most", "ttl_ms", "describe", "after",
    "max",  "dry_run",     "next",        "by",       "policy",     "key",     "uid",    "reset"};

/* The next option's name: one of the bits in `known`, and not yet one of those in `seen`. */
static int read_option_name(struct params *params, unsigned known, unsigned *seen, enum option *ret)
{
    struct slice name;
    if (pull_text(&params->pull, &name) != 0)
        return params_fail(params, ERROR_BAD_REQUEST, "options: an option's name must be a str");

    for (unsigned i = 0; i < N_OPTIONS; i++) {
        if (!(known & 1U << i) || !slice_is(name, option_names[i])) continue;
        if (*seen & 1U << i)
            return params_fail(params, ERROR_BAD_REQUEST, "option '%s' is given twice", option_names[i]);

        *seen |= 1U << i;
        *ret = (enum option)i;
        return 0;
    }

    char space[SHOWN_MAX];
    struct nearest guess = nearest_within(name, GUESS_EDITS);
    for (unsigned i = 0; i < N_OPTIONS; i++)
        if (known & 1U << i) nearest_offer(&guess, option_names[i]);

    shown(space, name);
    if (guess.name != NULL)
        return params_fail(params, ERROR_BAD_REQUEST, "there is no option '%s'; did you mean '%s'?", space, guess.name);
    return params_fail(params, ERROR_BAD_REQUEST, "there is no option '%s'", space);
}

/* Enter the options: a map, or nil or [] for none (Lua and PHP cannot tell an empty map from an empty list). */
static int enter_options(struct params *params, const char *wanted, uint32_t *ret_n)
{
    *ret_n = 0;
    if (params->n == 0 || pull_nil(&params->pull) == 0 || pull_map(&params->pull, ret_n) == 0) return 0;
    uint32_t n;
    if (pull_array(&params->pull, &n) == 0 && n == 0) return 0;
    return params_fail(params, ERROR_BAD_REQUEST, "%s", wanted);
}

static int read_number(struct params *params, const char *name, int most, int64_t *ret)
{
    if (pull_int(&params->pull, ret) == 0 && *ret >= 1 && *ret <= most) return 0;
    return params_fail(params, ERROR_BAD_REQUEST, "%s: must be a whole number from 1 to %d", name, most);
}

/* The value of an option of a check. */
static int read_option_value(struct params *params, enum option option, struct check *ret)
{
    struct pull *pull = &params->pull;
    int64_t ms;
    switch (option) {
    case OPTION_COST: return read_cost(params, ret);
    case OPTION_AT_MOST: return read_units(params, "at_most", 1, &ret->at_most);

    case OPTION_TTL_MS: return read_number(params, "ttl_ms", RESERVATION_TTL_MAX_MS, &ret->reservation.ttl_ms);

    case OPTION_DEADLINE_MS:
        if (read_number(params, "deadline_ms", DEADLINE_MS_MAX, &ms) != 0) return -1;
        ret->deadline_ms = (uint32_t)ms;
        return 0;

    case OPTION_MAX_WAIT_MS:
        if (pull_int(pull, &ms) != 0 || ms < 0)
            return params_fail(params, ERROR_BAD_REQUEST, "max_wait_ms: must be a whole number from 0 to 2^53 - 1");
        ret->has_max_wait = true;
        ret->max_wait_us = ms < INT64_MAX / 1000 ? ms * 1000 : INT64_MAX;
        return 0;

    case OPTION_REQUEST_ID:
        if (pull_text(pull, &ret->request_id) != 0 || ret->request_id.len == 0 || ret->request_id.len > REQUEST_ID_MAX)
            return params_fail(params, ERROR_BAD_REQUEST, "request_id: must be a str or bin of 1 to %d bytes",
                               REQUEST_ID_MAX);
        return 0;

    default: CHECK(!"no check has this option"); return -1;
    }
}

static int read_check_options(struct params *params, unsigned known, const char *wanted, struct check *ret)
{
    unsigned seen = 0;
    uint32_t n;
    if (enter_options(params, wanted, &n) != 0) return -1;

    for (; n > 0; n--) {
        enum option option = OPTION_COST;
        if (read_option_name(params, known, &seen, &option) != 0 || read_option_value(params, option, ret) != 0)
            return -1;
    }
    if (ret->at_most > 0 && seen & 1U << OPTION_COST)
        return params_fail(params, ERROR_BAD_REQUEST, "at_most: stands in place of cost; leave one of the two out");
    if (ret->at_most > 0 && ret->plan->takes_one)
        return params_fail(
            params, ERROR_UNSUPPORTED,
            "at_most: the policy has a limit with counts: checks, which no number of units fits; write cost");
    return 0;
}

int params_cost_or_options(struct params *params, struct check *check)
{
    if (params->n == 0) return 0;
    if (is_number(params)) return read_cost(params, check);
    return read_check_options(params, OPTIONS_OF_CHECK, "cost or options: must be an integer or a map", check);
}

int params_member_options(struct params *params, struct check *check)
{
    enum pull_type type = params->n > 0 ? pull_type(&params->pull) : PULL_NIL;
    if (type != PULL_MAP) return params_cost(params, check);
    return read_check_options(params, OPTIONS_OF_MEMBER, "", check);
}

int params_all_options(struct params *params, struct check *first)
{
    if (read_check_options(params, OPTIONS_OF_ALL, "options: must be a map", first) != 0) return -1;
    for (struct check *check = first->next; check != NULL; check = check->next) {
        check->deadline_ms = first->deadline_ms;
        check->request_id = first->request_id;
    }
    return 0;
}

int params_options(struct params *params, struct check *check)
{
    unsigned known = check->op.kind == OP_RESERVE ? OPTIONS_OF_RESERVE : OPTIONS_OF_OTHERS;
    return read_check_options(params, known, "options: must be a map", check);
}

int params_hello(struct params *params, struct decision_form *ret)
{
    struct decision_form form = *ret;
    unsigned seen = 0;
    uint32_t n;
    if (enter_options(params, "options: must be a map", &n) != 0) return -1;

    for (; n > 0; n--) {
        enum option option = OPTION_DECISION;
        struct slice word;
        if (read_option_name(params, OPTIONS_OF_HELLO, &seen, &option) != 0) return -1;
        if (option == OPTION_DESCRIBE) {
            if (pull_bool(&params->pull, &form.describes) != 0)
                return params_fail(params, ERROR_BAD_REQUEST, "describe: must be true or false");
            continue;
        }
        if (pull_text(&params->pull, &word) != 0 || !(slice_is(word, "array") || slice_is(word, "map")))
            return params_fail(params, ERROR_BAD_REQUEST, "decision: must be \"map\" or \"array\"");
        form.as_array = slice_is(word, "array");
    }
    *ret = form;
    return 0;
}

int params_reload(struct params *params, bool *ret_dry_run)
{
    unsigned seen = 0;
    uint32_t n;
    if (enter_options(params, "options: must be a map", &n) != 0) return -1;
    for (; n > 0; n--) {
        enum option option = OPTION_DRY_RUN;
        if (read_option_name(params, OPTIONS_OF_RELOAD, &seen, &option) != 0) return -1;
        if (pull_bool(&params->pull, ret_dry_run) != 0)
            return params_fail(params, ERROR_BAD_REQUEST, "dry_run: must be true or false");
    }
    return 0;
}

static int read_text(struct params *params, enum option option, struct slice *ret)
{
    if (pull_text(&params->pull, ret) == 0 && ret->len > 0) return 0;
    return params_fail(params, ERROR_BAD_REQUEST, "%s: must be a str, and not empty", option_names[option]);
}

/* The value of an option of a view. */
static int read_view_value(struct params *params, enum option option, struct view_question *ret)
{
    struct pull *pull = &params->pull;
    switch (option) {
    case OPTION_NEXT: return pull_nil(pull) == 0 ? 0 : read_text(params, option, &ret->next);
    case OPTION_POLICY: return read_text(params, option, &ret->policy);
    case OPTION_KEY: return read_text(params, option, &ret->key);
    case OPTION_BY:
        if (read_text(params, option, &ret->by) != 0) return -1;
        if (slice_is(ret->by, "policy") || slice_is(ret->by, "key") || slice_is(ret->by, "client")) return 0;
        return params_fail(params, ERROR_BAD_REQUEST, "by: must be policy, key or client");
    case OPTION_AFTER:
        if (pull_int(pull, &ret->after) == 0 && ret->after >= 0) return 0;
        return params_fail(params, ERROR_BAD_REQUEST, "after: must be an id of an answer, or 0");
    case OPTION_UID:
        if (pull_int(pull, &ret->uid) == 0 && ret->uid >= 0 && ret->uid <= UINT32_MAX) return 0;
        return params_fail(params, ERROR_BAD_REQUEST, "uid: must be the number of a user");
    default: /* OPTION_RESET */
        if (pull_bool(pull, &ret->reset) == 0) return 0;
        return params_fail(params, ERROR_BAD_REQUEST, "reset: must be true or false");
    }
}

int params_view(struct params *params, unsigned takes, struct view_question *ret)
{
    static const unsigned options[] = {1U << OPTION_NEXT, 1U << OPTION_BY, 1U << OPTION_AFTER,
                                       1U << OPTION_POLICY | 1U << OPTION_KEY | 1U << OPTION_UID, 1U << OPTION_RESET};
    unsigned known = 0, seen = 0;
    uint32_t n;
    *ret = (struct view_question){.uid = -1};
    for (size_t i = 0; i < N_OF(options); i++)
        if (takes >> i & 1) known |= options[i];

    if (enter_options(params, "options: must be a map", &n) != 0) return -1;
    for (; n > 0; n--) {
        enum option option = OPTION_RESET;
        if (read_option_name(params, known, &seen, &option) != 0) return -1;
        if (read_view_value(params, option, ret) != 0) return -1;
    }
    return 0;
}

int params_page(struct params *params, struct policies_page *ret)
{
    int64_t max = POLICIES_PAGE_MAX;
    unsigned seen = 0;
    uint32_t n;
    if (params->n == 0 || pull_nil(&params->pull) == 0) return 0;
    if (enter_options(params, "page: must be a map of after and max; policies without it lists all", &n) != 0)
        return -1;

    for (; n > 0; n--) {
        enum option option = OPTION_AFTER;
        if (read_option_name(params, OPTIONS_OF_PAGE, &seen, &option) != 0) return -1;
        if (option == OPTION_MAX && read_number(params, "max", POLICIES_PAGE_MAX, &max) != 0) return -1;
        if (option == OPTION_AFTER && pull_text(&params->pull, &ret->after) != 0)
            return params_fail(params, ERROR_BAD_REQUEST,
                               "after: must be a str, the name of the last policy of the page before");
    }
    ret->max = (uint32_t)max;
    return 0;
}
