/* error_log.c: a line for some of the errors that session_output.c answers with. */
#include "server/error_log.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/peer.h"

static bool is_quiet(const struct error_log_entry *entry, int64_t now_us)
{
    return entry->logged_us > 0 && now_us - entry->logged_us < ERROR_LOG_QUIET_US;
}

void error_log_note(struct error_log *log, enum error_code code, const char *message, const struct peer *peer,
                    int64_t now_us)
{
    struct error_log_entry *entry = &log->of[code];
    bool is_known_otherwise = code == ERROR_STORE_UNAVAILABLE || code == ERROR_SHUTTING_DOWN || code == ERROR_ABANDONED;
    if (is_known_otherwise) return;

    /* Behind the key that the message quotes: it may be a user's name, and keys.in_log decides what a log may have of
     * those. */
    const char *text = message;
    for (const char *next; code == ERROR_BAD_KEY && (next = strstr(text, "' does not fit ")) != NULL;) text = next + 2;

    if (is_quiet(entry, now_us)) {
        entry->n++;
        snprintf(entry->last, sizeof entry->last, "%.200s: uid %u pid %d", text, (unsigned)peer->uid, (int)peer->pid);
        return;
    }
    entry->logged_us = now_us;
    log_warning("request answered with %s: %.200s: uid %u pid %d", error_name(code), text, (unsigned)peer->uid,
                (int)peer->pid);
}

void error_log_look(struct error_log *log, int64_t now_us)
{
    for (int code = 0; code < N_ERROR_CODES; code++) {
        struct error_log_entry *entry = &log->of[code];
        if (entry->n == 0 || is_quiet(entry, now_us)) continue;
        log_warning("requests answered with %s: %" PRIu64 " more in %d s, the last: %s",
                    error_name((enum error_code)code), entry->n, (int)((now_us - entry->logged_us) / 1000000),
                    entry->last);
        entry->logged_us = now_us;
        entry->n = 0;
    }
}
