/*
 * log.h: one line per event on standard error, never blocking, never flooding.
 *
 * A line is `LEVEL what happened`, with the systemd priority prefix (<3> and so on) if stderr
 * is the journal. A line that standard error does not take at once (a full pipe, a terminal that is
 * stopped) is dropped and counted, and the next line that is taken says how many were dropped. The
 * descriptor itself stays as it is: others share it, so O_NONBLOCK is not ours to set. log_sampled()
 * lets at most one line a second through per call site and says how many were held back; log_limited() does so with a
 * site of the caller's, which has the number of lines. Below layer 3 nothing logs above debug: events come up as
 * results and counters.
 */
#ifndef RL_BASE_LOG_H
#define RL_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"

#define LOG_COUNTERS(COUNTER, GAUGE) COUNTER(log_lines_dropped, "log lines lost because standard error was blocked")

COUNTERS_DECLARE(log, LOG_COUNTERS);

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_site {
    unsigned most;    /* lines a second; 0 = 1 */
    unsigned n;       /* in this second */
    int64_t began_us; /* that; CLOCK_MONOTONIC */
    uint64_t n_held;
};

/* Open a pipe or terminal on standard error once more, for ourselves and non-blocking. If that is not allowed, or
 * before it is called, each line asks poll() first. */
void log_open(void);
/* Report the lines that were dropped, if any. False: standard error is still full. */
bool log_report_dropped(void);

void log_set_level(enum log_level level);  /* default INFO */
bool log_is_written(enum log_level level); /* for what costs something to find out */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_limited(struct log_site *site, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_sampled(level, ...)                                                                                        \
    do {                                                                                                               \
        static struct log_site log_site_here;                                                                          \
        log_limited(&log_site_here, level, __VA_ARGS__);                                                               \
    } while (0)

/* `len` bytes as printable text into `out` (NUL-terminated, at most `cap` bytes with it): what is
 * not printable ASCII becomes \xNN, what does not fit ends in "...". For keys in messages. */
const char *log_escape(char *out, size_t cap, const void *bytes, size_t len);

#endif
