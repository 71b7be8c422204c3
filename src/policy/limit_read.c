/*
 * limit_read.c: one limit as it is written: a policy's only one, or one of its list.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "limit/calendar.h"
#include "policy/hints.h"
#include "policy/reading.h"
#include "policy/value.h"

/* Names that other systems have for what is a preset here, accepted as `algorithm:`. */
static const struct {
    const char *name;
    const char *compat;
} aliases[] = {{"fixed-window-algo", "rlaas-fixed"}, {"sliding-window-algo", "rlaas-sliding"}};

/* ---- Which algorithm ---- */

/* The names that `field` may have, separated by commas; a name of two algorithms once. */
static const char *known_names(enum policy_field field, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < N_ALGOS && at < size; i++) {
        const char *name = algo_table[i]->name;
        if (algo_table[i]->is_compat != (field == FIELD_COMPAT) || strstr(out, name) != NULL) continue;
        at += (size_t)snprintf(out + at, size - at, "%s%s", at > 0 ? ", " : "", name);
    }
    return out;
}

static void refuse_name(struct reading *reading, enum policy_field field, const char *text)
{
    char shown[FAULTS_SHOWN_MAX], known[256];
    bool is_either = field == FIELD_ALGORITHM && strcmp(text, "sliding_window") == 0;
    struct nearest nearest = nearest_to(text);
    for (int i = 0; i < N_ALGOS; i++)
        if (algo_table[i]->is_compat == (field == FIELD_COMPAT)) nearest_offer(&nearest, algo_table[i]->name);
    const char *meant = is_either ? "sliding_counter or sliding_log" : nearest.name;

    faults_shown(shown, text);
    if (meant != NULL)
        reading_refuse(reading, field, "%s is not known; did you mean %s?", shown, meant);
    else
        reading_refuse(reading, field, "%s is not known; write one of %s", shown,
                       known_names(field, known, sizeof known));
}

/* The algorithm, or -1 with the fault recorded. */
static int read_algo(struct reading *reading)
{
    const struct tree_node *algorithm = reading->given[FIELD_ALGORITHM], *compat = reading->given[FIELD_COMPAT];
    const enum policy_field field = compat != NULL ? FIELD_COMPAT : FIELD_ALGORITHM;
    char known[256];
    if (algorithm != NULL && compat != NULL) {
        reading_refuse(reading, field, "does not go with algorithm; keep one of the two");
        return -1;
    }
    if (algorithm == NULL && compat == NULL) {
        reading_refuse(reading, field, "is missing; write algorithm: and one of %s",
                       known_names(field, known, sizeof known));
        return -1;
    }

    const char *text = reading_text(reading, field);
    if (text == NULL) return -1;
    int algo = compat != NULL ? compat_of_name(text) : algo_of_name(text);
    for (size_t i = 0; compat == NULL && i < N_OF(aliases); i++)
        if (strcmp(aliases[i].name, text) == 0) algo = compat_of_name(aliases[i].compat);

    if (algo < 0) {
        refuse_name(reading, field, text);
    } else if (reading->kind == MAP_LIMIT && algo_table[algo]->is_compat) {
        reading_refuse(reading, field,
                       "shares another system's keys, which are decided apart; write it as a policy of its own");
        return -1;
    }
    return algo;
}

/* Settings that already have a fault: faults that follow from these are not reported. */
typedef uint64_t field_bits;

static field_bits bit(enum policy_field field)
{
    return (field_bits)1 << field;
}

static field_bits refuse_foreign_fields(struct reading *reading, enum algo algo)
{
    field_bits foreign = 0;
    const struct tree_node *compat = reading->given[FIELD_COMPAT];
    const struct tree_node *named = compat != NULL ? compat : reading->given[FIELD_ALGORITHM];
    CHECK(named != NULL); /* it has named `algo` */

    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const struct tree_node *node = reading->given[i];
        if (node == NULL || policy_settings[i].algos >> algo & 1U) continue;
        reading_refuse(reading, (enum policy_field)i, "is not a setting of %s; leave it out (it belongs to %s)",
                       named->text, policy_settings[i].takers);
        foreign |= bit((enum policy_field)i);
    }
    return foreign;
}

/* ---- Settings with a reader of their own ---- */

static void refuse_zone(struct reading *reading, const struct tree_node *node)
{
    char shown[FAULTS_SHOWN_MAX], near[CALENDAR_ZONE_MAX + 1];
    faults_shown(shown, node->text);
    if (reading->is_inline)
        reading_refuse(
            reading, FIELD_TIMEZONE,
            "%s is not open; write UTC, or a zone that a policy of the configuration has: only that opens zones",
            shown);
    else if (hint_zone(node->text, near))
        reading_refuse(reading, FIELD_TIMEZONE, "%s is not known; did you mean %s?", shown, near);
    else
        reading_refuse(
            reading, FIELD_TIMEZONE,
            "%s is not among the time zones of this system (%s); write a name such as Europe/Berlin, or install "
            "tzdata (old names: tzdata-legacy)",
            shown, calendar_zone_dir());
}

/* The window of a calendar_window. Nothing is set if there was a fault. */
static void read_calendar(struct reading *reading, struct limit *limit)
{
    size_t n_errors = reading->faults->n_errors;
    const struct tree_node *zone = reading->given[FIELD_TIMEZONE], *start = reading->given[FIELD_WEEK_START];
    if (!reading_has(reading, FIELD_WINDOW)) return;

    enum calendar_unit unit = (enum calendar_unit)reading_choice(reading, FIELD_WINDOW);
    int week_start = reading_choice(reading, FIELD_WEEK_START);
    const char *name = zone != NULL ? reading_text(reading, FIELD_TIMEZONE) : "UTC";
    if (reading->faults->n_errors == n_errors && start != NULL && unit != CALENDAR_WEEK)
        reading_refuse(reading, FIELD_WEEK_START, "is of no use with this window; leave it out, or write window: week");
    if (name == NULL) return;

    int status = calendar_get(name, unit, week_start, !reading->is_inline, &limit->calendar);
    if (status == CALENDAR_NO_ZONE && zone != NULL) refuse_zone(reading, zone); /* UTC is always there */
    if (status == CALENDAR_NO_MEMORY)
        faults_no_memory(reading->faults, reading->node->line, reading_path_to(reading, NULL),
                         "out of memory; give the daemon more, or write fewer policies");
}

static void read_by(struct reading *reading, struct limit *limit)
{
    const struct key_format *format = limit->policy->format;
    struct faults *faults = reading->faults;
    if (!reading_is_list(reading, FIELD_BY)) return;

    const struct tree_node *node = reading->given[FIELD_BY];
    const char *path = reading_path(reading, FIELD_BY);
    if (format == NULL)
        reading_refuse(reading, FIELD_BY, "needs key_format; write for instance key_format: \"{tenant}:{user}\"");
    if (format == NULL || format->n_parts == 0) return;

    for (const struct tree_node *item = node->first; item != NULL; item = item->next) {
        char shown[FAULTS_SHOWN_MAX], parts[FAULTS_SHOWN_MAX];
        const char *name = value_parse_text(path, item, faults);
        if (name == NULL) continue;

        int part = key_format_find(format, slice_of(name));
        faults_shown(shown, name);
        if (part < 0)
            faults_add(faults, item->line, path, "%s is not a part of key_format %s; write one of those", shown,
                       faults_shown(parts, format->text));
        else if (limit->parts & 1U << part)
            faults_add(faults, item->line, path, "%s is in it twice; write it once", shown);
        else
            limit->parts |= (key_parts)(1U << part);
    }
    limit->shared = limit->parts != key_format_all(format);
}

/* A map of its own. Nothing is set if there was a fault. */
static void read_penalty(struct reading *reading, struct limit *limit)
{
    enum { TIME, FACTOR, MAX, FORGET, N_PARTS };
    static const struct value_type types[N_PARTS] = {
        [TIME] = {.kind = VALUE_DURATION, .min = 1, .max = PENALTY_LONGEST_MS},
        [FACTOR] = {.kind = VALUE_COUNT, .min = 1, .max = PENALTY_FACTOR_MAX},
        [MAX] = {.kind = VALUE_DURATION, .min = 1, .max = PENALTY_LONGEST_MS},
        [FORGET] = {.kind = VALUE_DURATION, .min = 0, .max = PENALTY_LONGEST_MS},
    };
    static const char *const names[N_PARTS] = {"time", "factor", "max", "forget"};
    const struct tree_node *node = reading->given[FIELD_PENALTY];
    struct faults *faults = reading->faults;
    int64_t values[N_PARTS] = {[TIME] = 0, [FACTOR] = 1, [MAX] = 0, [FORGET] = -1};
    const size_t n_errors = faults->n_errors;
    if (node == NULL || node->kind == TREE_REFUSED) return;
    if (node->kind != TREE_MAP) {
        reading_refuse(reading, FIELD_PENALTY, "is not a map; write e.g. {time: 1m, factor: 5, max: 1d}");
        return;
    }

    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        char path[FAULTS_KEY_MAX];
        size_t i = 0;
        while (i < N_PARTS && strcmp(child->key, names[i]) != 0) i++;
        snprintf(path, sizeof path, "%s.penalty.%.32s", reading->base, child->key);
        if (i == N_PARTS)
            faults_add(faults, child->line, path, "no such setting; a penalty has time, factor, max and forget");
        else
            value_parse(&types[i], path, child, faults, &values[i]);
    }
    if (faults->n_errors > n_errors) return;

    if (values[TIME] == 0)
        reading_refuse(reading, FIELD_PENALTY, "has no time; write how long the first pause lasts, e.g. time: 1m");
    else if (values[MAX] == 0 && values[FACTOR] > 1)
        reading_refuse(reading, FIELD_PENALTY, "has a factor and no max; write up to which pauses grow, e.g. max: 1d");
    else if (values[MAX] != 0 && values[MAX] < values[TIME])
        reading_refuse(reading, FIELD_PENALTY,
                       "has a max shorter than its time; write a longer max, or a shorter time");
    if (faults->n_errors > n_errors) return;

    if (values[MAX] == 0) values[MAX] = values[TIME];
    limit->penalty = (struct penalty){.time_ms = values[TIME],
                                      .factor = values[FACTOR],
                                      .max_ms = values[MAX],
                                      .forget_ms = values[FORGET] >= 0 ? values[FORGET] : values[MAX]};
}

/* NULL: the preset's own, or the fault is recorded. */
static const char *read_prefix(struct reading *reading)
{
    const struct value_type *type = &policy_settings[FIELD_KEY_PREFIX].type;
    const char *text = reading_text(reading, FIELD_KEY_PREFIX);
    if (text == NULL || !value_fits_length(type, reading->path, reading->given[FIELD_KEY_PREFIX], reading->faults))
        return NULL;
    if (text[strlen(text) - 1] != ':') return text;
    reading_refuse(reading, FIELD_KEY_PREFIX,
                   "ends in a colon, which is put behind it anyway; leave the last colon out");
    return NULL;
}

/* ---- Numbers, flags and choices ---- */

/* Reads the settings that are stored in a field of the limit, except the `foreign` ones, which have been refused. A
 * setting that the algorithm does not take is only checked: then the algorithm is unknown, and may be one that takes
 * it. Returns the settings with a fault. */
static field_bits read_limit_fields(struct reading *reading, struct limit *limit, field_bits foreign)
{
    field_bits bad = 0;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const enum policy_field field = (enum policy_field)i;
        const struct setting *setting = &policy_settings[i];
        if (setting->level != IN_LIMIT || setting->holder != HELD_BY_LIMIT || foreign & bit(field)) continue;

        size_t n_errors = reading->faults->n_errors;
        bool takes = policy_setting_takes(field, limit), is_given = reading->given[field] != NULL;
        if (field == FIELD_WINDOW && limit->algo == ALGO_CALENDAR_WINDOW) {
            read_calendar(reading, limit);
        } else if (field == FIELD_PENALTY) {
            if (takes) read_penalty(reading, limit);
        } else {
            int64_t value;
            if (takes && setting->required[0] != '\0') reading_has(reading, field);
            if (takes && !is_given) setting_set_default(setting, limit);
            if (takes && !is_given && field == FIELD_BURST) limit->burst = limit->limit;
            if (reading_value(reading, field, &value) && takes) setting_store(setting, limit, value);
        }
        if (reading->faults->n_errors > n_errors) bad |= bit(field);
    }
    return bad;
}

/* Lets the algorithm check the values, and records its faults one by one. */
static void prepare_limit(struct reading *reading, struct limit *limit, const char *prefix, field_bits bad)
{
    struct diag diag;
    const struct tree_node *burst = reading->given[FIELD_BURST];
    if (limit->limit == 0 && burst != NULL && !(bad & (bit(FIELD_LIMIT) | bit(FIELD_BURST)))) {
        reading_refuse(reading, FIELD_BURST, "means nothing with limit: 0, which denies always; leave it out");
        bad |= bit(FIELD_BURST);
    }
    if (limit->limit == 0 && limit_has_penalty(limit) && !(bad & bit(FIELD_LIMIT)))
        reading_refuse(reading, FIELD_PENALTY, "means nothing with limit: 0, which denies always; leave it out");

    for (;;) {
        /* Values with a fault give way to ones that every algorithm accepts, so that the others can be checked. */
        field_bits replaced = bad;
        if (bad & (bit(FIELD_LIMIT) | bit(FIELD_WINDOW)))
            replaced |= bit(FIELD_BURST) | bit(FIELD_MAX_WAIT); /* bounded by them */
        for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
            const enum policy_field field = (enum policy_field)i;
            if (replaced & bit(field) && policy_settings[i].holder == HELD_BY_LIMIT &&
                policy_setting_takes(field, limit))
                setting_set_default(&policy_settings[i], limit);
        }

        if (policy_prepare_limit(limit, prefix, &diag) == 0) return;
        const enum policy_field field = policy_field_at_fault(&diag);
        if (bad & bit(field)) return; /* reported before: no other value helps */
        if (reading->given[field] == NULL) {
            faults_add(reading->faults, reading->node->line, reading_path_to(reading, NULL), "%s %s", diag.setting,
                       diag.text);
            return;
        }
        reading_refuse(reading, field, "%s", diag.text);
        bad |= bit(field);
    }
}

void limit_read(struct reading *reading, struct limit *limit)
{
    int algo = read_algo(reading);
    limit->algo = algo >= 0 ? (enum algo)algo : ALGO_FIXED_WINDOW;
    field_bits bad = algo >= 0 ? refuse_foreign_fields(reading, limit->algo) : 0;
    bad |= read_limit_fields(reading, limit, bad);

    bool is_first_hit = !(bad & bit(FIELD_START)) && reading_choice(reading, FIELD_START) == 1;
    if (is_first_hit && limit->algo == ALGO_FIXED_WINDOW) limit->algo = ALGO_FIRST_HIT;
    if (!(bad & bit(FIELD_BY))) read_by(reading, limit);
    const char *prefix = bad & bit(FIELD_KEY_PREFIX) ? NULL : read_prefix(reading);
    if (algo == ALGO_CONCURRENCY && limit->policy->is_candidate)
        faults_add(
            reading->faults, reading->node->line, reading_path(reading, FIELD_ALGORITHM),
            "concurrency cannot be on trial, for a slot is held or not; set shadow: true on a policy of its own");

    if (reading->id != NULL && limit->algo == ALGO_LEAKY_BUCKET)
        reading_refuse(
            reading, FIELD_ALGORITHM,
            "leaky_bucket does not go with id, under which the limit may change; write token_bucket, or leave "
            "id out");
    if (reading->id != NULL && limit->algo == ALGO_SLIDING_LOG && limit->count_denied)
        reading_refuse(
            reading, FIELD_COUNT_DENIED,
            "of a sliding_log does not go with id, under which the limit may change; leave one of the two out");

    /* Each denial of a pause would be charged to a limit that counts denials. */
    for (const struct limit *other = limit->policy->limits; other <= limit; other++) {
        bool is_counted = other->count_denied && limit_has_penalty(limit);
        if (is_counted || (limit->count_denied && limit_has_penalty(other)))
            reading_refuse(reading, is_counted ? FIELD_PENALTY : FIELD_COUNT_DENIED,
                           "does not go with %s in one policy, where each denial of a pause would be counted; leave "
                           "one of the two out",
                           is_counted ? "count_denied" : "penalty");
    }

    if (algo >= 0) prepare_limit(reading, limit, prefix, bad);
}

void limit_read_name(struct reading *reading, struct limit *limit)
{
    const struct limit *first = limit->policy->limits, *other = first;
    char shown[FAULTS_SHOWN_MAX];
    if (!reading_has(reading, FIELD_NAME)) return;
    const char *text = reading_text(reading, FIELD_NAME);
    if (text == NULL) return;

    while (other < limit && strcmp(other->name, text) != 0) other++;
    faults_shown(shown, text);
    if (!reading_is_name(text))
        reading_refuse(reading, FIELD_NAME,
                       "%s is not a name; write 1 to %d letters, digits, dots, dashes or underscores", shown,
                       NAME_MAX_LEN);
    else if (other < limit)
        reading_refuse(reading, FIELD_NAME, "%s is the name of %s[%d] already; write another", shown,
                       limit->policy->is_candidate ? "candidate" : "limits", (int)(other - first));
    else
        snprintf(limit->name, sizeof limit->name, "%s", text);
}
