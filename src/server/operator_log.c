/* operator_log.c: the line for what an operator does, written by methods.c. */
#include "server/operator_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/log_key.h"
#include "engine/engine.h"
#include "server/session.h"

enum { OPERATOR_LINES = 10, TARGET_MAX = LOG_KEY_MAX + 2 * NAME_MAX_LEN + 64 };

void operator_log_note(const struct session *session, const char *what, const struct check *check)
{
    static struct log_site site = {.most = OPERATOR_LINES};
    char program[PEER_PROGRAM_MAX], shown[4 * PEER_PROGRAM_MAX], key[LOG_KEY_MAX], target[TARGET_MAX] = "";
    if (session->role < ROLE_OPERATOR) return;
    peer_program(session->peer.pid, program);

    if (check != NULL) {
        const char *limit = check->only != NULL ? check->only->name : "";
        int len = snprintf(target, sizeof target, " policy %s%s%s%s", check->plan->policy->label,
                           limit[0] != '\0' ? "/" : "", limit, log_key(key, check->key));
        if (check->cost > 0 && len < (int)sizeof target)
            snprintf(target + len, sizeof target - (size_t)len, " units %" PRId64, check->cost);
    }
    log_limited(&site, LOG_LEVEL_INFO, "asked for by an operator: %s%s: uid %u pid %d (%s)", what, target,
                (unsigned)session->peer.uid, (int)session->peer.pid,
                log_escape(shown, sizeof shown, program, strlen(program)));
}
