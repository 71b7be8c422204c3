/* failure_watch.c: episodes of failure answers, looked at each second; their lines in the log, and text for `stats`. */
#include "daemon/failure_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"

enum { QUIET_US = 10 * 1000000, WARNING_EVERY_US = 10 * 1000000 };

void failure_watch_start(struct failure_watch *watch, int64_t now_us)
{
    *watch = (struct failure_watch){.began_us = now_us, .seen_us = now_us};
}

/* Why most checks since the last look were not decided. */
static void find_reason(const struct failure_watch *watch, const struct failure_view *view, struct failure_reason *ret)
{
    const struct redis_refusal *refusal = &view->refusal;
    char breaker[FAILURE_TEXT_MAX];
    uint64_t most = 0;
    *ret = (struct failure_reason){.cause = N_CAUSES, .error = REDIS_ERROR_OTHER};
    for (int i = 0; i < N_CAUSES; i++) {
        if (view->n[i] - watch->seen[i] <= most) continue;
        most = view->n[i] - watch->seen[i];
        ret->cause = (enum failure_cause)i;
    }

    const char *text = "";
    switch (ret->cause) {
    case CAUSE_STORE_ERROR:
        ret->only_some_keys = refusal->text[0] == '\0' || refusal->at_us < watch->seen_us; /* Redis ran the batch */
        text = "some keys hold a value of another type, or one that cannot be read";
        if (ret->only_some_keys) break;
        text = refusal->text;
        ret->error = redis_error_of(slice_of(text));
        snprintf(ret->policy, sizeof ret->policy, "%s", refusal->policy);
        break;
    case CAUSE_BREAKER:
        snprintf(breaker, sizeof breaker, "the breaker is open: %s",
                 view->breaker != NULL ? view->breaker : "Redis was in trouble");
        text = breaker;
        break;
    case CAUSE_DEADLINE: text = "no answer by the deadline"; break;
    case CAUSE_OVERLOAD: text = "too many checks wait for it"; break;
    case CAUSE_DOWN: text = view->is_ready ? "the connection was lost" : view->status; break;
    default: break;
    }
    if (text == view->status) /* escaped already */
        snprintf(ret->text, sizeof ret->text, "%s", text);
    else
        log_escape(ret->text, sizeof ret->text, text, strlen(text));
}

const char *failure_answers_text(const struct policy_set *policies, char out[FAILURE_ANSWERS_MAX])
{
    static const char *const verbs[N_ON_FAILURE][2] = {
#define ON_FAILURE(ID, word, strictness, verb, verbs, answers) [ON_FAILURE_##ID] = {verb, verbs},
#include "policy/on_failure.def"
#undef ON_FAILURE
    };
    size_t at = 0;
    out[0] = '\0';

    for (int i = 0; i < N_ON_FAILURE; i++) {
        size_t n = policies->n_on_failure[i];
        if (n == 0) continue;
        const char *noun = at > 0 ? "" : n == 1 ? " policy" : " policies";
        at += (size_t)snprintf(out + at, FAILURE_ANSWERS_MAX - at, "%s%zu%s %s", at > 0 ? ", " : "", n, noun,
                               verbs[i][n > 1]);
    }
    return out;
}

static void warn(struct failure_watch *watch, const struct failure_view *view, const struct failure_reason *reason)
{
    char answers[FAILURE_ANSWERS_MAX];
    bool is_same = watch->is_episode && watch->reason.cause == reason->cause && watch->reason.error == reason->error;
    bool is_another_policy = is_same && watch->reason.policy[0] != '\0';
    watch->reason = *reason;
    watch->warned_us = view->now_us;
    if (is_another_policy) watch->reason.policy[0] = '\0'; /* one more line would follow for each policy */

    const char *name = watch->reason.policy;
    const struct policy *policy = name[0] != '\0' ? policy_find(view->policies, slice_of(name)) : NULL;
    if (policy != NULL) {
        struct slice answer = on_failure_name(policy->on_failure);
        log_warning("Redis does not decide policy %s: %s; its checks get their failure answer: %.*s", name,
                    reason->text, (int)answer.len, (const char *)answer.data);
        return;
    }
    log_warning("Redis does not decide: %s; %s get their failure answer: %s", reason->text,
                reason->only_some_keys ? "checks of these keys"
                : is_another_policy    ? "checks of several policies"
                                       : "checks",
                failure_answers_text(view->policies, answers));
}

/* In an episode: does the reason differ from the reported one? */
static bool is_news(const struct failure_watch *watch, const struct failure_view *view,
                    const struct failure_reason *reason)
{
    const struct failure_reason *reported = &watch->reason;
    if (reason->cause == N_CAUSES) return false;
    bool has_opened = reported->cause == CAUSE_STORE_ERROR || reported->cause == CAUSE_DEADLINE;
    if (reason->cause == CAUSE_BREAKER && has_opened) return true;
    if (view->now_us - watch->warned_us < WARNING_EVERY_US) return false;
    if (reason->cause != reported->cause || reason->error != reported->error) return true;
    return reported->policy[0] != '\0' && strcmp(reason->policy, reported->policy) != 0;
}

static bool is_episode_over(const struct failure_watch *watch, const struct failure_view *view)
{
    if (view->now_us - view->last_us < QUIET_US) return false;
    if (watch->reason.policy[0] == '\0') {
        /* Without traffic Redis decides nothing. A refused or malformed batch is not disproved by a connection. */
        bool is_proven = view->is_ready && view->breaker == NULL && view->proven_us > view->last_us &&
                         watch->reason.cause != CAUSE_STORE_ERROR;
        return is_proven || view->decided_us > view->last_us;
    }

    const struct policy *policy = policy_find(view->policies, slice_of(watch->reason.policy));
    return policy == NULL || policy_counts_recovered(policy->counts);
}

/* "Redis decides again after 12 s, 340 answers were local, 2 errors" */
static void report_end(const struct failure_watch *watch, const struct failure_view *view)
{
    static const char *const words[N_ON_FAILURE] = {
#define ON_FAILURE(ID, word, strictness, verb, verbs, answers) [ON_FAILURE_##ID] = (answers),
#include "policy/on_failure.def"
#undef ON_FAILURE
    };
    char counts[160] = "";
    size_t at = 0;
    for (int i = 0; i < N_ON_FAILURE; i++) {
        uint64_t n = view->n_answers[i] - watch->before[i];
        if (n == 0) continue;
        const char *verb = at > 0 ? "" : n == 1 ? " answer was" : " answers were";
        at += (size_t)snprintf(counts + at, sizeof counts - at, ", %" PRIu64 "%s %s", n, verb, words[i]);
    }

    const char *policy = watch->reason.policy;
    log_info("Redis decides %s%s%sagain after %" PRId64 " s%s", policy[0] != '\0' ? "policy " : "", policy,
             policy[0] != '\0' ? " " : "", (view->last_us - watch->began_us + 999999) / 1000000, counts);
}

bool failure_watch_is_down(const struct failure_watch *watch, int64_t now_us, bool lacks_rights,
                           const struct policy_set *policies)
{
    bool is_failing = watch->is_episode && watch->failing_us > 0 && now_us - watch->failing_us < QUIET_US;
    bool is_one_policy = watch->reason.policy[0] != '\0' && policies->n > 1;
    return is_failing && (lacks_rights || !is_one_policy) && !watch->reason.only_some_keys;
}

bool failure_watch_look(struct failure_watch *watch, const struct failure_view *view)
{
    struct failure_reason reason;
    CHECK(view->policies != NULL && view->n_repeated >= watch->seen_repeated);
    find_reason(watch, view, &reason);
    bool begins = !watch->is_episode && view->n_repeated > watch->seen_repeated;
    bool warns = begins || (watch->is_episode && is_news(watch, view, &reason));
    bool ends = watch->is_episode && is_episode_over(watch, view);

    if (warns) warn(watch, view, &reason);
    if (begins) watch->is_episode = true;
    bool is_undecided = view->decided_us <= watch->began_us || view->now_us - view->decided_us >= QUIET_US;
    if (watch->is_episode && view->last_us > watch->seen_us && is_undecided) /* since it began, or for long */
        watch->failing_us = view->now_us;
    if (ends) {
        report_end(watch, view);
        watch->is_episode = false;
        watch->failing_us = 0;
        watch->reason = (struct failure_reason){.text = ""};
    }

    /* The next episode begins with the first failure answer that no decision follows. */
    if (!watch->is_episode && view->decided_us >= view->last_us) {
        watch->began_us = view->now_us;
        memcpy(watch->before, view->n_answers, sizeof watch->before);
    }
    watch->seen_us = view->now_us;
    watch->seen_repeated = view->n_repeated;
    memcpy(watch->seen, view->n, sizeof watch->seen);
    return warns || ends;
}
