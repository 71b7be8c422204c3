#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t factor;
};

/* Smallest first; the printers take the largest that divides. */
static const struct unit durations[] = {{"us", 1},
                                        {"ms", 1000},
                                        {"s", 1000000},
                                        {"m", INT64_C(60000000)},
                                        {"h", INT64_C(3600000000)},
                                        {"d", INT64_C(86400000000)}};
static const struct unit sizes[] = {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Reads the digits at the start of `text`. Returns what follows them; NULL if there are none, or too many. */
static const char *digits(const char *text, int64_t *ret)
{
    int64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *at - '0', &value)) return NULL;
    }
    if (at == text) return NULL;
    *ret = value;
    return at;
}

/* 0; 1 without a unit; 2 with a unit that is not in the table; -1 without a whole number before the unit. */
static int scaled(const char *text, const struct unit *units, size_t n, int64_t *ret)
{
    int64_t value;
    const char *rest = digits(text, &value);
    if (rest == NULL || *rest == '.' || *rest == ',') return -1;

    if (*rest == '\0') {
        if (value != 0) return 1;
        *ret = 0;
        return 0;
    }

    for (size_t i = 0; i < n; i++) {
        if (strcmp(rest, units[i].name) != 0) continue;
        if (__builtin_mul_overflow(value, units[i].factor, &value)) return -1;
        *ret = value;
        return 0;
    }
    return 2;
}

const char *units_duration(const char *text, int64_t *ret_us)
{
    switch (scaled(text, durations, N_OF(durations), ret_us)) {
    case 0: return NULL;
    case 1: return "a duration without its unit; write one of us, ms, s, m, h, d behind the number, e.g. 20ms";
    case 2: return "not a duration; write one whole number and one unit of us, ms, s, m, h, d, e.g. 90s";
    default: return "not a duration; write a whole number and its unit, e.g. 1500ms";
    }
}

const char *units_size(const char *text, int64_t *ret_bytes)
{
    switch (scaled(text, sizes, N_OF(sizes), ret_bytes)) {
    case 0: return NULL;
    case 1: return "a size without its unit; write one of B, KiB, MiB, GiB behind the number, e.g. 64KiB";
    case 2: return "not a size; write one whole number and one unit of B, KiB, MiB, GiB, e.g. 64KiB";
    default: return "not a size; write a whole number and its unit, e.g. 64KiB";
    }
}

const char *units_count(const char *text, int64_t *ret)
{
    int64_t value;
    const char *rest = digits(text, &value);
    if (rest == NULL || *rest != '\0') return "not a whole number; write digits only, e.g. 100";
    *ret = value;
    return NULL;
}

const char *units_bool(const char *text, bool *ret)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0) return "neither true nor false; write one of the two";
    *ret = yes;
    return NULL;
}

const char *units_mode(const char *text, int64_t *ret)
{
    int64_t mode = 0;
    size_t len = strspn(text, "01234567");
    if (len < 3 || len > 4 || text[len] != '\0' || (len == 4 && text[0] != '0'))
        return "not a file mode; write three octal digits after a 0, in quotes, e.g. \"0660\"";

    for (size_t i = 0; i < len; i++) mode = mode * 8 + (text[i] - '0');
    *ret = mode;
    return NULL;
}

static const char *print(char *out, int64_t value, const struct unit *units, size_t n)
{
    size_t best = 0;
    if (value == 0) return strcpy(out, "0");

    for (size_t i = 1; i < n && value > 0; i++)
        if (value % units[i].factor == 0) best = i;
    snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "%s", value / units[best].factor, units[best].name);
    return out;
}

const char *units_print_duration(char *out, int64_t us)
{
    return print(out, us, durations, N_OF(durations));
}

const char *units_print_size(char *out, int64_t bytes)
{
    return print(out, bytes, sizes, N_OF(sizes));
}

enum { SECOND_MS = 1000, MINUTE_S = 60, HOUR_S = 3600, DAY_S = 86400 };

static const char *two_units(char *out, int64_t s, int64_t large_s, char large, int64_t small_s, char small)
{
    int64_t n_small = (s + small_s - 1) / small_s, per_large = large_s / small_s;
    int len = snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "%c", n_small / per_large, large);
    if (n_small % per_large > 0) {
        snprintf(out + len, (size_t)(UNITS_TEXT_MAX - len), " %" PRId64 "%c", n_small % per_large, small);
    }
    return out;
}

const char *units_print_wait(char *out, int64_t duration_ms)
{
    int64_t tenths = (duration_ms + 99) / 100, s = (duration_ms + SECOND_MS - 1) / SECOND_MS;

    if (duration_ms < SECOND_MS) {
        snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "ms", duration_ms);
    } else if (duration_ms < MINUTE_S * SECOND_MS && tenths % 10 != 0) {
        snprintf(out, UNITS_TEXT_MAX, "%" PRId64 ".%" PRId64 "s", tenths / 10, tenths % 10);
    } else if (s < MINUTE_S) {
        snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "s", s);
    } else if (s < HOUR_S) {
        two_units(out, s, MINUTE_S, 'm', 1, 's');
    } else if (s < DAY_S) {
        two_units(out, s, HOUR_S, 'h', MINUTE_S, 'm');
    } else {
        two_units(out, s, DAY_S, 'd', HOUR_S, 'h');
    }
    return out;
}
