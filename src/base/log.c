/* log.c: writes lines to standard error without ever waiting for it, for the layers that report events. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"

COUNTERS_DEFINE(log, LOG_COUNTERS);

enum { LINE_MAX_BYTES = 1024 };

static enum log_level threshold = LOG_LEVEL_INFO;
static int own_fd = -1;    /* a non-blocking description of standard error that no other process shares; -1 = none */
static uint64_t n_dropped; /* lines that no notice has counted yet */

static const struct {
    const char *name;
    int syslog_priority;
} levels[] = {{"error", 3}, {"warning", 4}, {"info", 6}, {"debug", 7}};

void log_set_level(enum log_level level)
{
    threshold = level;
}

bool log_is_written(enum log_level level)
{
    return level <= threshold;
}

void log_open(void)
{
    struct stat status;
    if (own_fd >= 0 || fstat(STDERR_FILENO, &status) < 0) return;
    if (!S_ISFIFO(status.st_mode) && !isatty(STDERR_FILENO)) return;
    own_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* One system call, which never waits. A pipe that poll() reports writable takes up to PIPE_BUF bytes whole. */
static bool write_now(const char *line, size_t len)
{
    ssize_t n = -1;
    if (own_fd >= 0) {
        n = write(own_fd, line, len);
    } else {
        n = send(STDERR_FILENO, line, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (n < 0 && errno == ENOTSOCK && poll(&writable, 1, 0) == 1) n = write(STDERR_FILENO, line, len);
    }
    return n == (ssize_t)len;
}

static size_t begin_line(char line[LINE_MAX_BYTES], enum log_level level)
{
    static int to_journal = -1; /* not known yet */
    size_t at = 0;
    if (to_journal < 0) to_journal = getenv("JOURNAL_STREAM") != NULL;
    if (to_journal) at += (size_t)snprintf(line, LINE_MAX_BYTES, "<%d>", levels[level].syslog_priority);
    return at + (size_t)snprintf(line + at, LINE_MAX_BYTES - at, "ratelimitd: %s: ", levels[level].name);
}

bool log_report_dropped(void)
{
    char line[LINE_MAX_BYTES];
    if (n_dropped == 0) return true;

    size_t at = begin_line(line, LOG_LEVEL_WARNING);
    at +=
        (size_t)snprintf(line + at, sizeof line - at, "%llu log %s dropped here, because nobody read standard error\n",
                         (unsigned long long)n_dropped, n_dropped == 1 ? "line was" : "lines were");
    if (!write_now(line, at)) return false;
    n_dropped = 0;
    return true;
}

static void __attribute__((format(printf, 2, 0)))
emit(enum log_level level, const char *format, va_list args, uint64_t n_held)
{
    char line[LINE_MAX_BYTES];
    size_t at = begin_line(line, level);

    int n = vsnprintf(line + at, sizeof line - at - 1, format, args);
    if (n > 0) at += (size_t)n;
    if (at > sizeof line - 40) at = sizeof line - 40;
    if (n_held > 0)
        at += (size_t)snprintf(line + at, sizeof line - at, " (%llu like it held back)", (unsigned long long)n_held);
    line[at++] = '\n';

    if (log_report_dropped() && write_now(line, at)) return;
    n_dropped++;
    log_counters.log_lines_dropped++;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level > threshold) return;
    va_list args;
    va_start(args, format);
    emit(level, format, args, 0);
    va_end(args);
}

void log_limited(struct log_site *site, enum log_level level, const char *format, ...)
{
    if (level > threshold) return;

    int64_t now_us = clock_mono_us();
    if (site->n == 0 || now_us - site->began_us >= SECOND_US) {
        site->began_us = now_us;
        site->n = 0;
    }
    if (site->n >= (site->most > 0 ? site->most : 1)) {
        site->n_held++;
        return;
    }

    va_list args;
    va_start(args, format);
    emit(level, format, args, site->n_held);
    va_end(args);
    site->n++;
    site->n_held = 0;
}

const char *log_escape(char *out, size_t cap, const void *bytes, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = bytes;
    size_t at = 0;

    for (size_t i = 0; i < len; i++) {
        if (at + 8 > cap) {
            memcpy(out + at, "...", 3);
            at += 3;
            break;
        }

        if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '\\') {
            out[at++] = (char)p[i];
        } else {
            out[at++] = '\\', out[at++] = 'x', out[at++] = hex[p[i] >> 4], out[at++] = hex[p[i] & 15];
        }
    }

    out[at] = '\0';
    return out;
}
