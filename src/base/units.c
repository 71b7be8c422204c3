/* units.c: reads and prints what people write in settings and options, for config/, policy/ and ctl/. */
#include "base/units.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

struct unit {
    const char *name;
    int64_t factor;
};

struct scale {
    struct unit units[7]; /* smallest first; ends with one without a name */
    const char *no_number, *no_unit, *other_unit, *too_large;
};

static const struct scale duration = {
    {{"us", 1},
     {"ms", 1000},
     {"s", 1000000},
     {"m", INT64_C(60000000)},
     {"h", INT64_C(3600000000)},
     {"d", INT64_C(86400000000)}},
    "not a duration; write a whole number and its unit, e.g. 1500ms",
    "a duration without its unit; write one of us, ms, s, m, h, d behind the number, e.g. 20ms",
    "not a duration; write one whole number and one unit of us, ms, s, m, h, d, e.g. 90s",
    "too large; write at most 106751991d",
};

static const struct scale size = {
    {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}},
    "not a size; write a whole number and its unit, e.g. 64KiB",
    "a size without its unit; write one of B, KiB, MiB, GiB behind the number, e.g. 64KiB",
    "not a size; write one whole number and one unit of B, KiB, MiB, GiB, e.g. 64KiB",
    "too large; write at most 8589934591GiB",
};

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

static const char *scaled(const char *text, const struct scale *scale, int64_t *ret)
{
    int64_t value = 0;
    bool is_too_long = digits(text, &value) == NULL; /* if there are digits */
    const char *rest = text + strspn(text, "0123456789");
    if (rest == text || *rest == '.' || *rest == ',') return scale->no_number;
    if (*rest == '\0' && (value != 0 || is_too_long)) return scale->no_unit;

    const struct unit *unit = scale->units; /* any will do for a bare 0 */
    while (*rest != '\0' && unit->name != NULL && strcmp(rest, unit->name) != 0) unit++;
    if (unit->name == NULL) return scale->other_unit;
    if (is_too_long || __builtin_mul_overflow(value, unit->factor, &value)) return scale->too_large;
    *ret = value;
    return NULL;
}

const char *units_duration(const char *text, int64_t *ret_us)
{
    return scaled(text, &duration, ret_us);
}

const char *units_size(const char *text, int64_t *ret_bytes)
{
    return scaled(text, &size, ret_bytes);
}

const char *units_count(const char *text, int64_t *ret)
{
    int64_t value;
    const char *rest = digits(text, &value);
    if (rest == NULL && text[0] != '\0' && text[strspn(text, "0123456789")] == '\0')
        return "too large; write digits only, for a number up to 9223372036854775807";
    if (rest == NULL || *rest != '\0') return "not a whole number; write digits only, e.g. 100";
    *ret = value;
    return NULL;
}

const char *units_bool(const char *text, int64_t *ret)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0) return "neither true nor false; write one of the two";
    *ret = yes;
    return NULL;
}

const char *units_percent(const char *text, int64_t *ret)
{
    int64_t value;
    const char *rest = digits(text, &value);
    if (rest == NULL || rest == text || strcmp(rest, "%") != 0)
        return "not a whole percentage; write digits and a percent sign, e.g. 80%";
    *ret = value;
    return NULL;
}

const char *units_date(const char *text, int64_t *ret)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const char form[] = "dddd-dd-dd";
    int64_t number = 0;
    size_t n = 0;
    for (; form[n] != '\0' && (form[n] == 'd' ? text[n] >= '0' && text[n] <= '9' : text[n] == form[n]); n++)
        if (form[n] == 'd') number = number * 10 + (text[n] - '0');
    if (form[n] != '\0' || text[n] != '\0') return "no date; write year, month and day, e.g. 2026-01-31";

    int64_t year = number / 10000, month = number / 100 % 100, day = number % 100;
    bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (year == 0 || month == 0 || month > 12 || day == 0 || day > days[month - 1] + (month == 2 && is_leap))
        return "no day of the calendar; write one that is, e.g. 2026-01-31";
    *ret = number;
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

static const char *print(char *out, int64_t value, const struct scale *scale)
{
    const struct unit *best = scale->units;
    if (value == 0) return strcpy(out, "0");

    for (const struct unit *unit = best; unit->name != NULL && value > 0; unit++)
        if (value % unit->factor == 0) best = unit;
    snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "%s", value / best->factor, best->name);
    return out;
}

const char *units_print_duration(char *out, int64_t us)
{
    return print(out, us, &duration);
}

const char *units_print_size(char *out, int64_t bytes)
{
    return print(out, bytes, &size);
}

const char *units_print_wait(char *out, int64_t duration_ms)
{
    static const struct {
        int64_t s;
        char name;
    } steps[] = {{1, 's'}, {60, 'm'}, {3600, 'h'}, {86400, 'd'}};
    int64_t tenths = (duration_ms + 99) / 100, s = (duration_ms + 999) / 1000;

    if (duration_ms < 1000) {
        snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "ms", duration_ms);
    } else if (duration_ms < 60000 && tenths % 10 != 0) {
        snprintf(out, UNITS_TEXT_MAX, "%" PRId64 ".%" PRId64 "s", tenths / 10, tenths % 10);
    } else if (s < 60) {
        snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "s", s);
    } else {
        size_t large = 1;
        while (large + 1 < N_OF(steps) && s >= steps[large + 1].s) large++;

        int64_t n_small = (s + steps[large - 1].s - 1) / steps[large - 1].s;
        int64_t per_large = steps[large].s / steps[large - 1].s;
        int len = snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "%c", n_small / per_large, steps[large].name);
        if (n_small % per_large > 0)
            snprintf(out + len, (size_t)(UNITS_TEXT_MAX - len), " %" PRId64 "%c", n_small % per_large,
                     steps[large - 1].name);
    }
    return out;
}
