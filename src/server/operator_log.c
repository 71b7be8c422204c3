#include "server/operator_log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/log_key.h"
#include "engine/engine.h"
#include "server/session.h"

enum { OPERATOR_LINES = 10, PROGRAM_MAX = 16, TARGET_MAX = LOG_KEY_MAX + 2 * NAME_MAX_LEN + 64 };

/* The process' name, printable; "?" if it has ended or is not seen. /proc is memory: reading it does not wait. */
static const char *program_of(pid_t pid, char out[4 * PROGRAM_MAX])
{
    char path[32], name[PROGRAM_MAX];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, name, sizeof name) : 0;
    if (fd >= 0) close(fd);
    if (n > 0 && name[n - 1] == '\n') n--;
    return n > 0 ? log_escape(out, 4 * PROGRAM_MAX, name, (size_t)n) : "?";
}

void operator_log_note(const struct session *session, const char *what, const struct check *check)
{
    static struct log_site site = {.most = OPERATOR_LINES};
    char program[4 * PROGRAM_MAX], key[LOG_KEY_MAX], target[TARGET_MAX] = "";
    if (session->role < ROLE_OPERATOR) return;

    if (check != NULL) {
        const char *limit = check->only != NULL ? check->only->name : "";
        int len = snprintf(target, sizeof target, " policy %s%s%s%s", check->plan->policy->label,
                           limit[0] != '\0' ? "/" : "", limit, log_key(key, check->key));
        if (check->cost > 0 && len < (int)sizeof target)
            snprintf(target + len, sizeof target - (size_t)len, " units %" PRId64, check->cost);
    }
    log_limited(&site, LOG_LEVEL_INFO, "asked for by an operator: %s%s: uid %u pid %d (%s)", what, target,
                (unsigned)session->peer.uid, (int)session->peer.pid, program_of(session->peer.pid, program));
}
