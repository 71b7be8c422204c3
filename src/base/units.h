/*
 * units.h: durations and sizes as people write them: `20ms`, `64KiB`.
 *
 * A number without its unit is refused, because its unit cannot be guessed; a bare 0
 * is the same in every unit. Every parser returns NULL, or what is wrong and what to write instead
 * (static text), and leaves *ret alone then.
 */
#ifndef RL_BASE_UNITS_H
#define RL_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

enum { UNITS_TEXT_MAX = 32 };
enum { MS_US = 1000, SECOND_US = 1000000 }; /* microseconds */

const char *units_duration(const char *text, int64_t *ret_us);
const char *units_size(const char *text, int64_t *ret_bytes);
const char *units_count(const char *text, int64_t *ret);
const char *units_bool(const char *text, int64_t *ret);    /* 0 or 1 */
const char *units_percent(const char *text, int64_t *ret); /* "80%" */
const char *units_date(const char *text, int64_t *ret);    /* "2026-01-31" as 20260131; years 1 to 9999 */
const char *units_mode(const char *text, int64_t *ret);    /* permission bits in octal: "0660" */

/* The shortest exact form, into `out` (UNITS_TEXT_MAX bytes), which is returned. */
const char *units_print_duration(char *out, int64_t us);
const char *units_print_size(char *out, int64_t bytes);
/* For people, likewise: "850ms", "8.2s", "10s", "1m 30s", "2h", "3d 4h"; rounded up, so that waiting that long is
 * enough. */
const char *units_print_wait(char *out, int64_t ms);

#endif
