#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/counters.h"

static enum log_level threshold = LOG_LEVEL_INFO;

static const struct {
    const char *name;
    int syslog_priority;
} levels[] = {{"error", 3}, {"warning", 4}, {"info", 6}, {"debug", 7}};

void log_set_level(enum log_level level)
{
    threshold = level;
}

static bool to_journal(void)
{
    static int known = -1;
    if (known < 0) known = getenv("JOURNAL_STREAM") != NULL;
    return known == 1;
}

static void __attribute__((format(printf, 2, 0)))
emit(enum log_level level, const char *format, va_list args, uint64_t n_held)
{
    char line[1024];
    size_t at = 0;
    if (to_journal()) at += (size_t)snprintf(line, sizeof line, "<%d>", levels[level].syslog_priority);
    at += (size_t)snprintf(line + at, sizeof line - at, "ratelimitd: %s: ", levels[level].name);
    int n = vsnprintf(line + at, sizeof line - at - 1, format, args);
    if (n > 0) at += (size_t)n;
    if (at > sizeof line - 40) at = sizeof line - 40;
    if (n_held > 0)
        at += (size_t)snprintf(line + at, sizeof line - at, " (%llu like it held back)", (unsigned long long)n_held);
    line[at++] = '\n';
    if (write(STDERR_FILENO, line, at) != (ssize_t)at) counters.log_lines_dropped++;
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
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    int64_t now_us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
    if (now_us < site->quiet_until_us) {
        site->n_held++;
        return;
    }
    va_list args;
    va_start(args, format);
    emit(level, format, args, site->n_held);
    va_end(args);
    site->quiet_until_us = now_us + 1000000;
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
