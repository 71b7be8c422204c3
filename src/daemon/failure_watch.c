#include "daemon/failure_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { QUIET_US = 10 * 1000000, WARNING_EVERY_US = 10 * 1000000 };

static const char *const cause_names[N_CAUSES] = {"store_error", "deadline", "overload", "down"};

void failure_watch_start(struct failure_watch *watch, int64_t now_us)
{
    *watch = (struct failure_watch){.seen_us = now_us};
}

/* Why most checks since the last look were not decided, in words into `out`. N_CAUSES: there were none. */
static enum failure_cause find_reason(const struct failure_watch *watch, const struct failure_view *view,
                                      char out[FAILURE_TEXT_MAX], bool *ret_only_some_keys)
{
    uint64_t most = 0;
    enum failure_cause cause = N_CAUSES;
    *ret_only_some_keys = false;
    out[0] = '\0';
    for (int i = 0; i < N_CAUSES; i++) {
        if (view->n[i] - watch->seen[i] <= most) continue;
        most = view->n[i] - watch->seen[i];
        cause = (enum failure_cause)i;
    }

    const char *text = NULL;
    switch (cause) {
    case CAUSE_STORE_ERROR:
        *ret_only_some_keys = view->error[0] == '\0' || view->error_us < watch->seen_us; /* Redis ran the batch */
        text = *ret_only_some_keys ? "some keys hold a value of another type, or one that cannot be read" : view->error;
        break;
    case CAUSE_DEADLINE: text = "no answer by the deadline"; break;
    case CAUSE_OVERLOAD: text = "too many checks wait for it"; break;
    case CAUSE_DOWN: text = view->is_ready ? "the connection was lost" : view->status; break;
    default: return cause;
    }
    log_escape(out, FAILURE_TEXT_MAX, text, strlen(text));
    return cause;
}

const char *failure_answers_text(const struct policy_set *policies, char out[FAILURE_ANSWERS_MAX])
{
    static const char *const verbs[N_ON_FAILURE][2] = {
        [ON_FAILURE_ALLOW] = {"allows", "allow"},
        [ON_FAILURE_DENY] = {"denies", "deny"},
        [ON_FAILURE_LOCAL] = {"decides locally", "decide locally"},
        [ON_FAILURE_ERROR] = {"answers with an error", "answer with an error"},
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

static void warn(struct failure_watch *watch, const struct failure_view *view, enum failure_cause cause,
                 const char *reason, bool only_some_keys)
{
    char answers[FAILURE_ANSWERS_MAX];
    snprintf(watch->reason, sizeof watch->reason, "%s", reason);
    watch->is_connected = cause != CAUSE_DOWN;
    watch->warned_us = view->now_us;
    log_warning("Redis does not decide: %s; %s get their failure answer: %s", reason,
                only_some_keys ? "checks of these keys" : "checks", failure_answers_text(view->policies, answers));
}

bool failure_watch_look(struct failure_watch *watch, const struct failure_view *view)
{
    char reason[FAILURE_TEXT_MAX];
    bool only_some_keys, is_news = false;
    enum failure_cause cause = find_reason(watch, view, reason, &only_some_keys);

    if (!watch->is_episode && view->n_close > watch->seen_close) {
        watch->is_episode = true;
        watch->began_us = watch->seen_us;
        memcpy(watch->before, watch->seen, sizeof watch->seen);
        warn(watch, view, cause, reason, only_some_keys);
        is_news = true;
    } else if (watch->is_episode && cause != N_CAUSES) {
        /* Error texts differ in their details: a reason is another where its first word is. */
        size_t len = strcspn(reason, " ");
        bool is_same = len == strcspn(watch->reason, " ") && strncmp(reason, watch->reason, len) == 0;
        is_news = !is_same && view->now_us - watch->warned_us >= WARNING_EVERY_US;
        if (is_news) warn(watch, view, cause, reason, only_some_keys);
    } else if (watch->is_episode && view->now_us - view->last_us >= QUIET_US && view->decided_us > view->last_us) {
        char counts[160];
        size_t at = 0;
        uint64_t n_all = 0;
        for (int i = 0; i < N_CAUSES; i++) {
            uint64_t n = view->n[i] - watch->before[i];
            n_all += n;
            if (n == 0) continue;
            at += (size_t)snprintf(counts + at, sizeof counts - at, "%s%s %" PRIu64, at > 0 ? ", " : "", cause_names[i],
                                   n);
        }
        log_info("Redis decides again: %" PRIu64 " failure answers in %" PRId64 " s (%s)", n_all,
                 (view->last_us - watch->began_us + 999999) / 1000000, counts);
        watch->is_episode = false;
        watch->reason[0] = '\0';
        is_news = true;
    }

    watch->seen_us = view->now_us;
    watch->seen_close = view->n_close;
    memcpy(watch->seen, view->n, sizeof watch->seen);
    return is_news;
}
