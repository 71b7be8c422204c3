#include "config/policy_print.h"

#include <inttypes.h>

#include "base/units.h"
#include "limit/calendar.h"

/* Where a line of a limit begins: of one that stands straight in its policy, and of one in a list. */
#define STRAIGHT "    "
#define IN_LIST  "        "

/* Between quotes; what is not printable escaped. */
static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            fprintf(out, "\\x%02x", (unsigned)*text);
        else
            fprintf(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    }
    fputc('"', out);
}

static void print_algorithm(FILE *out, const struct limit *limit, const char *indent)
{
    if (limit_ops(limit)->is_compat) {
        char prefix[KEY_HEAD_MAX];
        fprintf(out, "%scompat: %s\n", indent, limit_ops(limit)->name);
        snprintf(prefix, sizeof prefix, "%.*s", (int)limit->key_head_len - 1, limit->key_head);
        fprintf(out, "%skey_prefix: ", indent);
        print_quoted(out, prefix);
        fprintf(out, "\n");
        return;
    }
    fprintf(out, "%salgorithm: %s\n", indent, limit_ops(limit)->name);
    if (limit_is_fixed_window(limit))
        fprintf(out, "%sstart: %s\n", indent, limit->algo == ALGO_FIRST_HIT ? "first_hit" : "aligned");
    if (limit_is_fixed_window(limit) || limit->algo == ALGO_SLIDING_LOG)
        fprintf(out, "%scount_denied: %s\n", indent, limit->count_denied ? "true" : "false");
}

static void print_by(FILE *out, const struct limit *limit, const char *indent)
{
    const struct key_format *format = limit->policy->format;
    const char *between = "";
    fprintf(out, "%sby: [", indent);
    for (int i = 0; i < format->n_parts; i++) {
        if (!(limit->parts & 1U << i)) continue;
        fprintf(out, "%s\"%.*s\"", between, (int)format->names[i].len, (const char *)format->names[i].data);
        between = ", ";
    }
    fprintf(out, "]\n");
}

static void print_calendar(FILE *out, const struct calendar *calendar, const char *indent)
{
    fprintf(out, "%swindow: %s\n", indent, calendar_unit_name(calendar));
    fprintf(out, "%stimezone: %s\n", indent, calendar_zone_name(calendar));
    if (calendar_unit(calendar) == CALENDAR_WEEK)
        fprintf(out, "%sweek_start: %s\n", indent, calendar_week_start_name(calendar));
}

static void print_limit(FILE *out, const struct limit *limit, const char *indent)
{
    char text[UNITS_TEXT_MAX];
    print_algorithm(out, limit, indent);
    if (limit->shared) print_by(out, limit, indent);
    fprintf(out, "%slimit: %" PRId64 "\n", indent, limit->limit);
    if (limit->calendar != NULL)
        print_calendar(out, limit->calendar, indent);
    else
        fprintf(out, "%s%s: %s\n", indent, limit->algo == ALGO_CONCURRENCY ? "slot_ttl" : "window",
                units_print_duration(text, limit->window_us));
    if (limit_is_bucket(limit) && limit->limit > 0) fprintf(out, "%sburst: %" PRId64 "\n", indent, limit->burst);
    if (limit->algo == ALGO_LEAKY_BUCKET)
        fprintf(out, "%smax_wait: %s\n", indent, units_print_duration(text, limit->max_wait_us));
}

static void print_limits(FILE *out, const char *list, const struct policy *policy)
{
    if (policy->limits[0].name[0] == '\0') {
        print_limit(out, &policy->limits[0], STRAIGHT);
        return;
    }
    fprintf(out, "    %s:\n", list);
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        fprintf(out, "      - name: \"%s\"\n", policy->limits[i].name);
        print_limit(out, &policy->limits[i], IN_LIST);
    }
}

static bool has_phase(const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].phase) return true;
    return policy->candidate != NULL && has_phase(policy->candidate);
}

/* The numbers of an override: a limit's, as `name` of each limit, or NULL where it is not to be said. */
typedef const char *number_text(const struct limit *limit, const struct limit *base, char *out);

static const char *limit_text(const struct limit *limit, const struct limit *base, char *out)
{
    (void)base;
    snprintf(out, UNITS_TEXT_MAX, "%" PRId64, limit->limit);
    return out;
}

/* Also where it is the base's: without it, it would be the limit. */
static const char *burst_text(const struct limit *limit, const struct limit *base, char *out)
{
    (void)base;
    snprintf(out, UNITS_TEXT_MAX, "%" PRId64, limit->burst);
    return limit_is_bucket(limit) && limit->limit > 0 ? out : NULL;
}

static const char *window_text(const struct limit *limit, const struct limit *base, char *out)
{
    return limit->window_us != base->window_us ? units_print_duration(out, limit->window_us) : NULL;
}

static const char *max_wait_text(const struct limit *limit, const struct limit *base, char *out)
{
    bool differs = limit->max_wait_us != base->max_wait_us && limit->limit > 0;
    return differs ? units_print_duration(out, limit->max_wait_us) : NULL;
}

static void print_number(FILE *out, const char *name, const struct policy *variant, number_text *text_of)
{
    char text[UNITS_TEXT_MAX];
    bool is_list = variant->base->limits[0].name[0] != '\0';
    const char *before = "";
    for (uint16_t i = 0; i < variant->n_limits; i++) {
        const struct limit *limit = &variant->limits[i];
        if (text_of(limit, &variant->base->limits[i], text) == NULL) continue;
        if (before[0] == '\0') fprintf(out, "        %s: %s", name, is_list ? "{" : "");
        if (is_list) fprintf(out, "%s\"%s\": ", before, limit->name);
        fprintf(out, "%s", text);
        before = ", ";
    }
    if (before[0] != '\0') fprintf(out, "%s\n", is_list ? "}" : "");
}

static void print_overrides(FILE *out, const struct overrides *overrides)
{
    fprintf(out, "    overrides:\n");
    for (size_t i = 0; i < overrides->n; i++) {
        const struct override *item = &overrides->items[i];
        fprintf(out, "      - %s: ", item->is_pattern ? "match" : "key");
        print_quoted(out, item->text);
        fprintf(out, "\n");
        if (item->variant->unlimited) fprintf(out, "        unlimited: true\n");
        print_number(out, "limit", item->variant, limit_text);
        print_number(out, "window", item->variant, window_text);
        print_number(out, "burst", item->variant, burst_text);
        print_number(out, "max_wait", item->variant, max_wait_text);
    }
}

void policy_print(FILE *out, const struct policy *policy)
{
    char text[UNITS_TEXT_MAX];
    fprintf(out, "  \"%s\":\n", policy->name);
    if (policy->unlimited) {
        fprintf(out, "    unlimited: true\n");
        return;
    }
    if (policy->format != NULL) {
        fprintf(out, "    key_format: ");
        print_quoted(out, policy->format->text);
        fprintf(out, "\n");
    }
    print_limits(out, "limits", policy);
    if (policy->candidate != NULL) print_limits(out, "candidate", policy->candidate);
    if (has_phase(policy)) fprintf(out, "    phase: true\n");
    if (policy->overrides != NULL) print_overrides(out, policy->overrides);
    if (policy_has_debt(policy)) fprintf(out, "    debt: true\n");
    fprintf(out, "    on_failure: %s\n", on_failure_name(policy->on_failure));
    fprintf(out, "    deadline: %s\n", units_print_duration(text, (int64_t)policy->deadline_ms * 1000));
    fprintf(out, "    idempotency_window: %s\n", units_print_duration(text, (int64_t)policy->idempotency_ms * 1000));
    fprintf(out, "    shadow: %s\n", policy->shadow ? "true" : "false");
}
