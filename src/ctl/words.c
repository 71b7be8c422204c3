/* words.c: prints values, limits, states and durations in words, for the reports and views. */
#include "ctl/words.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"
#include "ctl/json.h"
#include "ctl/text.h"

enum { SLOT_TTL_DEFAULT_MS = 30000 };

/* ---- Values ---- */

struct pull words_member(struct pull map, const char *name)
{
    uint32_t n = 0;
    struct slice text;
    pull_map(&map, &n);
    for (; n > 0 && pull_text(&map, &text) == 0; n--) {
        if (slice_is(text, name)) return map;
        if (pull_skip(&map) != 0) break;
    }
    return pull_of(map.end, 0);
}

int64_t words_number(struct pull map, const char *name, int64_t otherwise)
{
    struct pull value = words_member(map, name);
    int64_t number = otherwise;
    pull_int(&value, &number);
    return number;
}

bool words_is(struct pull map, const char *name, const char *text)
{
    struct pull value = words_member(map, name);
    struct slice found;
    return pull_text(&value, &found) == 0 && slice_is(found, text);
}

bool words_true(struct pull map, const char *name)
{
    struct pull value = words_member(map, name);
    bool yes = false;
    return pull_bool(&value, &yes) == 0 && yes;
}

void words_value(FILE *out, struct pull *pull)
{
    struct slice text;
    if (pull_text(pull, &text) == 0)
        text_print(out, text);
    else
        json_value(out, pull);
}

void words_text(FILE *out, struct pull map, const char *name, const char *before, const char *after)
{
    struct pull value = words_member(map, name);
    struct slice text;
    if (pull_text(&value, &text) != 0) return;
    fputs(before, out);
    text_print(out, text);
    fputs(after, out);
}

static void print_duration(FILE *out, int64_t ms)
{
    char text[UNITS_TEXT_MAX];
    fputs(ms <= INT64_MAX / MS_US ? units_print_duration(text, ms * MS_US) : "long", out);
}

/* "window" of "window_ms" */
static bool is_duration(struct slice name)
{
    return name.len > 3 && memcmp(name.data + name.len - 3, "_ms", 3) == 0;
}

/* "slot ttl" of "slot_ttl" */
static void print_name(FILE *out, struct slice name)
{
    while (name.len > 0) {
        const uint8_t *end = memchr(name.data, '_', name.len);
        size_t len = end != NULL ? (size_t)(end - name.data) : name.len;
        text_print(out, (struct slice){name.data, len});
        if (end == NULL) return;
        fputc(' ', out);
        name = (struct slice){end + 1, name.len - len - 1};
    }
}

/* "slot ttl 30s", "burst 20"; moves past the value. */
static void print_limit_setting(FILE *out, struct slice name, struct pull *value)
{
    int64_t ms;
    bool in_ms = is_duration(name);
    if (in_ms) name.len -= 3;
    print_name(out, name);
    fputc(' ', out);
    if (in_ms && pull_int(value, &ms) == 0)
        print_duration(out, ms);
    else
        words_value(out, value);
}

/* ---- Limits ---- */

/* Has words_limit() shown this setting before the others, or is it the default? */
static bool is_redundant(struct pull limit, struct slice name)
{
    static const char *const shown[] = {"name",   "algorithm", "compat",         "limit",          "window_ms",
                                        "window", "timezone",  "start",          "allowed",        "remaining",
                                        "by",     "phase",     "retry_after_ms", "reset_after_ms", "count_denied"};
    for (size_t i = 0; i < N_OF(shown); i++)
        if (slice_is(name, shown[i])) return true;
    if (slice_is(name, "burst")) return words_number(limit, "burst", 0) == words_number(limit, "limit", 0);
    if (slice_is(name, "max_wait_ms")) return words_number(limit, "max_wait_ms", 0) == 0;
    if (slice_is(name, "slot_ttl_ms")) return words_number(limit, "slot_ttl_ms", 0) == SLOT_TTL_DEFAULT_MS;
    return slice_is(name, "week_start") && words_is(limit, "week_start", "monday");
}

void words_limit(FILE *out, struct pull limit)
{
    struct pull algorithm = words_member(limit, "algorithm"), preset = words_member(limit, "compat");
    struct pull window = words_member(limit, "window"), zone = words_member(limit, "timezone");
    struct pull parts = words_member(limit, "by"), at = limit;
    uint32_t n = 0;
    struct slice name;

    if (pull_type(&preset) == PULL_TEXT) {
        fputs("compat ", out);
        words_value(out, &preset);
    } else {
        words_value(out, &algorithm);
    }
    if (words_is(limit, "start", "first_hit")) fputs(" from the first hit", out);

    /* "5 per 10s", "5000 per day of Europe/Berlin", "3 at once" */
    fprintf(out, ", %" PRId64, words_number(limit, "limit", 0));
    if (pull_type(&window) == PULL_TEXT) {
        fputs(" per ", out);
        words_value(out, &window);
        fputs(" of ", out);
        words_value(out, &zone);
    } else if (words_number(limit, "slot_ttl_ms", -1) >= 0) {
        fputs(" at once", out);
    } else {
        fputs(" per ", out);
        print_duration(out, words_number(limit, "window_ms", 0));
    }

    for (pull_map(&at, &n); n > 0 && pull_text(&at, &name) == 0; n--) {
        if (is_redundant(limit, name)) {
            pull_skip(&at);
            continue;
        }
        fputs(", ", out);
        print_limit_setting(out, name, &at);
    }
    if (words_true(limit, "count_denied")) fputs(", denied checks count", out);
    if (words_true(limit, "phase")) fputs(", each key has its own phase", out);

    if (pull_type(&parts) != PULL_ARRAY) return;
    pull_array(&parts, &n);
    if (n == 0) fputs(", one counter for all keys", out);
    for (const char *between = ", by "; n > 0; n--, between = " and ") {
        fputs(between, out);
        words_value(out, &parts);
    }
}

void words_changes(FILE *out, struct pull limit)
{
    uint32_t n = 0;
    struct slice name;
    const char *between = "";
    for (pull_map(&limit, &n); n > 0 && pull_text(&limit, &name) == 0; n--) {
        if (slice_is(name, "name")) {
            pull_skip(&limit);
            continue;
        }
        fputs(between, out);
        print_limit_setting(out, name, &limit);
        between = ", ";
    }
}

void words_state(FILE *out, struct pull state)
{
    uint32_t n = 0;
    struct slice name;
    const char *between = "";
    char wait[UNITS_TEXT_MAX];

    for (pull_map(&state, &n); n > 0 && pull_text(&state, &name) == 0; n--) {
        int64_t number;
        if (pull_int(&state, &number) != 0) {
            pull_skip(&state);
            continue;
        }
        bool in_ms = is_duration(name);
        if (in_ms && number == 0) continue;
        fputs(between, out);
        between = ", ";
        if (in_ms) name.len -= 3;
        print_name(out, name);
        if (in_ms)
            fprintf(out, " %s", units_print_wait(wait, number));
        else
            fprintf(out, " %" PRId64, number);
    }
}

/* ---- Decisions ---- */

void words_of(FILE *out, const struct ratelimit_decision *decision)
{
    const char *name = decision->bound_by;
    if (name[0] == '\0' && strchr(decision->of, '/') != NULL) name = decision->of;
    if (name[0] == '\0') return;
    fputs(" (", out);
    text_print(out, slice_of(name));
    fputc(')', out);
}

void words_remaining(FILE *out, const struct ratelimit_decision *decision, int64_t cost)
{
    char text[UNITS_TEXT_MAX];
    bool is_never = !decision->allowed && decision->retry_after_ms < 0;
    int64_t reset_ms = decision->of[0] != '\0' ? decision->of_reset_ms : decision->reset_after_ms;
    if (decision->source == RATELIMIT_SOURCE_UNLIMITED) {
        fputs("unlimited", out);
        return;
    }

    if (is_never && decision->limit == 0) {
        fputs("the limit", out);
        words_of(out, decision);
        fputs(" is 0", out);
    } else if (is_never && cost > decision->limit) {
        fprintf(out, "cost %" PRId64 " exceeds the limit of %" PRId64, cost, decision->limit);
        words_of(out, decision);
    } else if (decision->source == RATELIMIT_SOURCE_ALLOW || decision->source == RATELIMIT_SOURCE_DENY) {
        fputs("without the store", out);
    } else {
        fprintf(out, "remaining %" PRId64 "/%" PRId64, decision->remaining, decision->limit);
        words_of(out, decision);
    }

    if (is_never)
        fputs(": never allowed", out);
    else if (!decision->allowed)
        fprintf(out, ", retry in %s", units_print_wait(text, decision->retry_after_ms));
    else if (reset_ms > 0)
        fprintf(out, ", resets in %s", units_print_wait(text, reset_ms));
}

void words_source(FILE *out, const struct ratelimit_decision *decision)
{
    if (decision->shadow_denied) fputs(", would be denied if it were enforced", out);
    fprintf(out, "  [%s", ratelimit_source_name(decision->source));
    if (decision->reason != RATELIMIT_REASON_NONE) fprintf(out, ": %s", ratelimit_reason_name(decision->reason));
    fputs("]\n", out);
}

void words_decision(FILE *out, const struct ratelimit_decision *decision, int64_t cost, bool waited, bool granted)
{
    char text[UNITS_TEXT_MAX];
    fputs(decision->allowed ? "allowed" : "denied", out);
    if (decision->allowed && decision->delay_ms > 0 && !waited)
        fprintf(out, ", go ahead in %s", units_print_wait(text, decision->delay_ms));
    fputs("  ", out);
    if (decision->allowed && granted) fprintf(out, "granted %" PRId64 ", ", decision->granted);
    words_remaining(out, decision, cost);
    words_source(out, decision);
}
