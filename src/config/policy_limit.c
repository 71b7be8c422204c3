#include "config/policy_limit.h"

#include <stdio.h>
#include <string.h>

#include "base/exact.h"
#include "base/nearest.h"
#include "base/units.h"
#include "config/meant.h"
#include "config/not_built.h"
#include "config/policy_keys.h"
#include "config/setting.h"
#include "config/zone_names.h"
#include "limit/calendar.h"
#include "limit/concurrency.h"

enum { PREFIX_MAX = 128 }; /* bytes of a foreign prefix; limit_prepare puts it into limit->key_head */

/* Names that other systems have for what is a preset here, accepted as `algorithm:`. */
static const struct {
    const char *name;
    const char *compat;
} aliases[] = {{"fixed-window-algo", "rlaas-fixed"}, {"sliding-window-algo", "rlaas-sliding"}};

/* Which algorithm */

static int find_algo(enum policy_field field, const char *name)
{
    if (field == FIELD_COMPAT) return compat_of_name(name);
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(aliases[i].name, name) == 0) return compat_of_name(aliases[i].compat);
    return algo_of_name(name);
}

/* The names that `field` may have, separated by commas; one that stands for two algorithms once. */
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
    char shown[FAULTS_SHOWN_MAX], any[64], known[256], near[MEANT_MAX];
    const struct tree_node *node = reading->given[field];
    snprintf(any, sizeof any, "policies.*.%s", policy_settings[field].name);
    const char *advice = not_built(any, text);
    const char *meant = meant_value(reading->path, text, NULL, near);
    struct nearest nearest = nearest_to(text);
    for (int i = 0; i < N_ALGOS; i++)
        if (algo_table[i]->is_compat == (field == FIELD_COMPAT)) nearest_offer(&nearest, algo_table[i]->name);
    if (meant == NULL) meant = nearest.name;
    faults_shown(shown, text);
    if (advice != NULL)
        faults_add(reading->faults, node->line, reading->path, "%s is not built yet; %s", shown, advice);
    else if (meant != NULL)
        faults_add(reading->faults, node->line, reading->path, "%s is not known; did you mean %s?", shown, meant);
    else
        faults_add(reading->faults, node->line, reading->path, "%s is not known; write one of %s", shown,
                   known_names(field, known, sizeof known));
}

/* The algorithm that `field` names, or -1 with the fault recorded. */
static int read_named(struct reading *reading, enum policy_field field)
{
    const char *text = setting_parse_text(reading_path(reading, field), reading->given[field], reading->faults);
    if (text == NULL) return -1;
    int algo = find_algo(field, text);
    if (algo < 0) refuse_name(reading, field, text);
    if (algo < 0 || !reading->in_list || !algo_table[algo]->is_compat) return algo;
    faults_add(reading->faults, reading->given[field]->line, reading->path,
               "shares another system's keys, which are decided apart; write it as a policy of its own");
    return -1;
}

static int read_algo(struct reading *reading)
{
    const struct tree_node *algorithm = reading->given[FIELD_ALGORITHM], *compat = reading->given[FIELD_COMPAT];
    char known[256];
    if (algorithm != NULL && compat != NULL) {
        faults_add(reading->faults, compat->line, reading_path(reading, FIELD_COMPAT),
                   "stands beside algorithm; keep one of the two");
        return -1;
    }
    if (algorithm != NULL) return read_named(reading, FIELD_ALGORITHM);
    if (compat != NULL) return read_named(reading, FIELD_COMPAT);
    faults_add(reading->faults, reading->node->line, reading_path(reading, FIELD_ALGORITHM),
               "is missing; write algorithm: and one of %s", known_names(FIELD_ALGORITHM, known, sizeof known));
    return -1;
}

/* Returns which they are, as bits. */
static uint32_t refuse_foreign_fields(struct reading *reading, enum algo algo)
{
    uint32_t foreign = 0;
    const enum policy_field named = reading->given[FIELD_COMPAT] != NULL ? FIELD_COMPAT : FIELD_ALGORITHM;
    for (size_t i = 0; i < N_POLICY_FIELDS; i++) {
        const struct tree_node *node = reading->given[i];
        if (node == NULL || (policy_settings[i].algos & (1u << algo))) continue;
        faults_add(reading->faults, node->line, reading_path(reading, i),
                   "is no setting of %s; leave it out (it belongs to %s)", reading->given[named]->text,
                   policy_settings[i].takers);
        foreign |= UINT32_C(1) << i;
    }
    return foreign;
}

/* The values */

static void read_count(struct reading *reading, enum policy_field field, int64_t min, int64_t *ret)
{
    char rate[MEANT_MAX], shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = reading->given[field];
    if (node == NULL) return;
    reading_path(reading, field);

    const char *meant = field == FIELD_LIMIT && node->kind == TREE_TEXT ? meant_rate(node->text, rate) : NULL;
    if (meant != NULL)
        faults_add(reading->faults, node->line, reading->path, "%s is a rate; write %s",
                   faults_shown(shown, node->text), meant);
    else
        setting_parse_number(SETTING_COUNT, reading->path, min, EXACT_MAX, node, reading->faults, ret);
}

static bool is_choice(const char *text, const char *choices)
{
    size_t len = strlen(text);
    const char *at = len > 0 && strchr(text, ' ') == NULL ? strstr(choices, text) : NULL;
    return at != NULL && (at == choices || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0');
}

bool policy_limit_duration(const char *path, bool may_be_none, const struct tree_node *node, struct faults *faults,
                           int64_t *ret_us)
{
    char shown[FAULTS_SHOWN_MAX];
    const char *text = setting_parse_text(path, node, faults);
    if (text == NULL) return false;
    const char *wrong = units_duration(text, ret_us);
    if (wrong != NULL && is_choice(text, CALENDAR_UNITS))
        wrong = "a window of calendar_window; write that algorithm, or a duration, e.g. 1h or 1d";
    if (wrong == NULL && *ret_us == 0 && !may_be_none) wrong = "no time at all; write a duration, e.g. 10s";
    if (wrong != NULL) faults_add(faults, node->line, path, "%s is %s", faults_shown(shown, text), wrong);
    return wrong == NULL;
}

static void read_duration(struct reading *reading, enum policy_field field, bool may_be_none, int64_t *ret_us)
{
    const struct tree_node *node = reading->given[field];
    if (node != NULL) policy_limit_duration(reading_path(reading, field), may_be_none, node, reading->faults, ret_us);
}

static const char *read_prefix(struct reading *reading)
{
    const struct tree_node *node = reading->given[FIELD_KEY_PREFIX];
    if (node == NULL) return NULL;
    const char *text = setting_parse_text(reading_path(reading, FIELD_KEY_PREFIX), node, reading->faults);
    if (text == NULL) return NULL;
    size_t len = strlen(text);
    if (len == 0 || len > PREFIX_MAX)
        faults_add(reading->faults, node->line, reading->path, "is %zu bytes long; write 1 to %d", len, PREFIX_MAX);
    else if (text[len - 1] == ':')
        faults_add(reading->faults, node->line, reading->path,
                   "ends in a colon, which is put behind it anyway; leave the last colon out");
    return text;
}

static int64_t read_choice(struct reading *reading, enum policy_field field, const char *choices)
{
    int64_t place = 0;
    if (reading->given[field] != NULL)
        setting_parse_choice(reading_path(reading, field), choices, reading->given[field], reading->faults, &place);
    return place;
}

static void refuse_zone(struct reading *reading, const char *name)
{
    char shown[FAULTS_SHOWN_MAX], near[CALENDAR_ZONE_MAX + 1];
    const struct tree_node *node = reading->given[FIELD_TIMEZONE];
    faults_shown(shown, name);
    reading_path(reading, FIELD_TIMEZONE);
    if (reading->is_inline) {
        faults_add(reading->faults, node->line, reading->path,
                   "%s is not open; write UTC, or a zone that a policy of the configuration has: only that opens zones",
                   shown);
        return;
    }
    if (zone_names_nearest(name, near))
        faults_add(reading->faults, node->line, reading->path, "%s is not known; did you mean %s?", shown, near);
    else
        faults_add(reading->faults, node->line, reading->path,
                   "%s is not among the time zones of this system (%s); write a name such as Europe/Berlin, or install "
                   "tzdata (old names: tzdata-legacy)",
                   shown, calendar_zone_dir());
}

/* The window of a calendar_window. Nothing is set where there was a fault. */
static void read_calendar(struct reading *reading, struct limit *limit)
{
    size_t n_errors = reading->faults->n_errors;
    const struct tree_node *zone = reading->given[FIELD_TIMEZONE], *start = reading->given[FIELD_WEEK_START];
    const char *name = "UTC";
    if (!reading_has(reading, FIELD_WINDOW)) return;
    enum calendar_unit unit = (enum calendar_unit)read_choice(reading, FIELD_WINDOW, CALENDAR_UNITS);
    int week_start = (int)read_choice(reading, FIELD_WEEK_START, CALENDAR_WEEKDAYS);
    if (zone != NULL) name = setting_parse_text(reading_path(reading, FIELD_TIMEZONE), zone, reading->faults);
    if (reading->faults->n_errors == n_errors && start != NULL && unit != CALENDAR_WEEK)
        faults_add(reading->faults, start->line, reading_path(reading, FIELD_WEEK_START),
                   "is of no use with this window; leave it out, or write window: week");
    if (name == NULL) return;
    int status = calendar_get(name, unit, week_start, !reading->is_inline, &limit->calendar);
    if (status == CALENDAR_NO_ZONE) refuse_zone(reading, name);
    if (status == CALENDAR_NO_MEMORY)
        faults_no_memory(reading->faults, reading->node->line, reading_path_to(reading, NULL),
                         "out of memory; give the daemon more, or write fewer policies");
}

static void read_window(struct reading *reading, struct limit *limit)
{
    if (limit->algo == ALGO_CONCURRENCY) {
        limit->window_us = SLOT_TTL_DEFAULT_US;
        read_duration(reading, FIELD_SLOT_TTL, false, &limit->window_us);
    } else if (limit->algo == ALGO_CALENDAR_WINDOW) {
        read_calendar(reading, limit);
    } else if (reading_has(reading, FIELD_WINDOW)) {
        read_duration(reading, FIELD_WINDOW, false, &limit->window_us);
    }
}

/* Which settings are at fault already, as bits of enum policy_field: what follows from them is not reported as well. */
typedef uint32_t field_bits;

static field_bits bit(enum policy_field field)
{
    return (field_bits)1 << field;
}

/* Has reading a value added errors to the `n_errors` there were? Then `fields` are at fault. */
static field_bits faulty(const struct reading *reading, size_t n_errors, field_bits fields)
{
    return reading->faults->n_errors > n_errors ? fields : 0;
}

/* `ret_prefix`: the foreign prefix, NULL = the preset's own. */
static field_bits read_values(struct reading *reading, struct limit *limit, const char **ret_prefix)
{
    field_bits bad = 0;
    size_t before = reading->faults->n_errors;
    if (reading_has(reading, FIELD_LIMIT)) read_count(reading, FIELD_LIMIT, 0, &limit->limit);
    bad |= faulty(reading, before, bit(FIELD_LIMIT));

    before = reading->faults->n_errors;
    read_window(reading, limit);
    bad |= faulty(reading, before, bit(FIELD_WINDOW) | bit(FIELD_SLOT_TTL));

    before = reading->faults->n_errors;
    read_duration(reading, FIELD_MAX_WAIT, true, &limit->max_wait_us);
    bad |= faulty(reading, before, bit(FIELD_MAX_WAIT));

    before = reading->faults->n_errors;
    limit->burst = policy_settings[FIELD_BURST].algos & (1u << limit->algo) ? limit->limit : 0;
    read_count(reading, FIELD_BURST, 1, &limit->burst);
    bad |= faulty(reading, before, bit(FIELD_BURST));

    if (reading->given[FIELD_COUNT_DENIED] != NULL)
        setting_parse_bool(reading_path(reading, FIELD_COUNT_DENIED), reading->given[FIELD_COUNT_DENIED],
                           reading->faults, &limit->count_denied);
    bool first_hit = read_choice(reading, FIELD_START, "aligned first_hit") == 1;
    if (first_hit && limit->algo == ALGO_FIXED_WINDOW) limit->algo = ALGO_FIRST_HIT;
    policy_keys_read_by(reading, limit);

    before = reading->faults->n_errors;
    *ret_prefix = read_prefix(reading);
    return bad | faulty(reading, before, bit(FIELD_KEY_PREFIX));
}

/* Values that every algorithm takes, in place of those at fault, so that the others can still be looked at. */
static void stand_in(struct limit *limit, field_bits bad)
{
    bool has_slots = limit->algo == ALGO_CONCURRENCY;
    bool has_burst = policy_settings[FIELD_BURST].algos & (1u << limit->algo);
    bool bounds_unknown = bad & (bit(FIELD_LIMIT) | bit(FIELD_WINDOW));
    if (bad & bit(FIELD_LIMIT)) limit->limit = 1;
    if (bad & bit(has_slots ? FIELD_SLOT_TTL : FIELD_WINDOW))
        limit->window_us = has_slots ? SLOT_TTL_DEFAULT_US : 1000000;
    if (bad & bit(FIELD_BURST) || bounds_unknown) limit->burst = has_burst;
    if (bad & bit(FIELD_MAX_WAIT) || bounds_unknown) limit->max_wait_us = 0;
    if (bad & bit(FIELD_COUNT_DENIED)) limit->count_denied = false;
    if (bad & bit(FIELD_DEBT)) limit->debt = false;
}

/* What only the algorithm knows: its faults, one after the other. */
static void prepare(struct reading *reading, struct limit *limit, const char *prefix, field_bits bad)
{
    struct diag diag;
    const struct tree_node *burst = reading->given[FIELD_BURST];
    if (limit->limit == 0 && burst != NULL && !(bad & (bit(FIELD_LIMIT) | bit(FIELD_BURST)))) {
        faults_add(reading->faults, burst->line, reading_path(reading, FIELD_BURST),
                   "stands beside limit: 0, which denies always; leave it out");
        bad |= bit(FIELD_BURST);
    }

    for (;;) {
        stand_in(limit, bad);
        if (limit_prepare(limit, bad & bit(FIELD_KEY_PREFIX) ? NULL : prefix, &diag) == 0) return;
        if (bad & bit(diag.field)) return; /* reported before: nothing stands in for it */

        const struct tree_node *node = reading->given[diag.field];
        if (node == NULL) {
            faults_add(reading->faults, reading->node->line, reading_path_to(reading, NULL), "%s %s",
                       policy_settings[diag.field].name, diag.text);
            return;
        }
        faults_add(reading->faults, node->line, reading_path(reading, diag.field), "%s", diag.text);
        bad |= bit(diag.field);
    }
}

/* One limit: of a policy that has just this one, or of a list. */
void policy_limit_read(struct reading *reading, struct limit *limit)
{
    const char *prefix;
    field_bits bad = 0;
    int algo = read_algo(reading);
    if (algo >= 0) bad |= refuse_foreign_fields(reading, (enum algo)algo);
    limit->algo = algo >= 0 ? (enum algo)algo : ALGO_FIXED_WINDOW;

    bad |= read_values(reading, limit, &prefix);
    if (algo == ALGO_CONCURRENCY && limit->policy->is_candidate)
        faults_add(
            reading->faults, reading->node->line, reading_path(reading, FIELD_ALGORITHM),
            "concurrency cannot be on trial, for a slot is held or not; set shadow: true on a policy of its own");
    if (algo >= 0) prepare(reading, limit, prefix, bad);
}

/* The limit's name, which none of the policy's limits before it has. */
void policy_limit_read_name(struct reading *reading, struct limit *limit)
{
    char shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = reading->given[FIELD_NAME];
    if (!reading_has(reading, FIELD_NAME)) return;
    const char *text = setting_parse_text(reading_path(reading, FIELD_NAME), node, reading->faults);
    if (text == NULL) return;
    faults_shown(shown, text);
    if (!reading_is_name(text)) {
        faults_add(reading->faults, node->line, reading->path,
                   "%s is no name; write 1 to %d letters, digits, dots, dashes or underscores", shown, NAME_MAX_LEN);
        return;
    }
    const char *list = limit->policy->is_candidate ? "candidate" : "limits";
    for (const struct limit *other = limit->policy->limits; other < limit; other++) {
        if (strcmp(other->name, text) != 0) continue;
        faults_add(reading->faults, node->line, reading->path, "%s is the name of %s[%d] already; write another", shown,
                   list, (int)(other - limit->policy->limits));
        return;
    }
    snprintf(limit->name, sizeof limit->name, "%s", text);
}
