/* value.c: reads and prints the values of settings, for setting.c, reading.c and others. */
#include "policy/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "limit/calendar.h"
#include "limit/penalty.h"
#include "policy/hints.h"

const char *value_parse_text(const char *path, const struct tree_node *node, struct faults *faults)
{
    if (node->kind == TREE_REFUSED) return NULL;
    if (node->kind != TREE_TEXT)
        faults_add(faults, node->line, path, "a %s where one value is expected; write it behind the colon",
                   node->kind == TREE_MAP ? "map" : "list");
    else if (node->is_null)
        faults_add(faults, node->line, path, "has no value; write one, or leave the key out for the default");
    else
        return node->text;
    return NULL;
}

bool value_fits_length(const struct value_type *type, const char *path, const struct tree_node *node,
                       struct faults *faults)
{
    int64_t len = (int64_t)strlen(node->text);
    if (len >= type->min && len <= type->max) return true;
    faults_add(faults, node->line, path, "is %" PRId64 " bytes long; write %" PRId64 " to %" PRId64 " bytes", len,
               type->min, type->max);
    return false;
}

bool value_parse_list(const struct value_type *type, const char *path, const struct tree_node *node,
                      struct faults *faults)
{
    int64_t n = (int64_t)tree_count(node);
    if (node->kind == TREE_REFUSED) return false;
    if (node->kind != TREE_LIST)
        faults_add(faults, node->line, path, "is not a list; write %s", type->instead);
    else if (n >= type->min && n <= type->max)
        return true;
    else if (type->min == type->max)
        faults_add(faults, node->line, path, "has %" PRId64 " entries; write exactly %" PRId64, n, type->min);
    else
        faults_add(faults, node->line, path, "has %" PRId64 " entries; write %" PRId64 " to %" PRId64, n, type->min,
                   type->max);
    return false;
}

struct slice value_choice(const char *choices, int64_t index)
{
    for (; index > 0; index--) {
        choices = strchr(choices, ' ');
        CHECK(choices != NULL);
        choices++;
    }
    return (struct slice){(const uint8_t *)choices, strcspn(choices, " ")};
}

const char *value_print(const struct value_type *type, int64_t number, char *out)
{
    struct slice word;
    switch (type->kind) {
    case VALUE_MODE: snprintf(out, UNITS_TEXT_MAX, "\"%04" PRIo64 "\"", (uint64_t)number); return out;
    case VALUE_SIZE: return units_print_size(out, number);
    case VALUE_DURATION: return units_print_duration(out, number * 1000);
    case VALUE_SPAN: return units_print_duration(out, number);
    case VALUE_PERCENT: snprintf(out, UNITS_TEXT_MAX, "%" PRId64 "%%", number); return out;
    case VALUE_BOOL: return number != 0 ? "true" : "false";
    case VALUE_DATE:
        snprintf(out, UNITS_TEXT_MAX, "%04d-%02d-%02d", (int)(number / 10000), (int)(number / 100 % 100),
                 (int)(number % 100));
        return out;
    case VALUE_COUNT:
        if (number == 0 && type->zero_word != NULL) return type->zero_word;
        snprintf(out, UNITS_TEXT_MAX, "%" PRId64, number);
        return out;
    case VALUE_CHOICE:
        word = value_choice(type->choices, number);
        snprintf(out, UNITS_TEXT_MAX, "%.*s", (int)word.len, (const char *)word.data);
        return out;
    default: snprintf(out, UNITS_TEXT_MAX, "%" PRId64, number); return out;
    }
}

const char *value_print_penalty(const struct penalty *penalty, char *out)
{
    char time[UNITS_TEXT_MAX], max[UNITS_TEXT_MAX], forget[UNITS_TEXT_MAX];
    snprintf(out, PENALTY_TEXT_MAX, "{time: %s, factor: %" PRId64 ", max: %s, forget: %s}",
             units_print_duration(time, penalty->time_ms * 1000), penalty->factor,
             units_print_duration(max, penalty->max_ms * 1000),
             units_print_duration(forget, penalty->forget_ms * 1000));
    return out;
}

/* ---- From text ---- */

/* The index of `text` among the choices, or -1. */
static int64_t choice_index(const char *text, const char *choices)
{
    size_t len = strlen(text);
    int64_t index = 0;
    for (const char *at = choices; *at != '\0'; index++) {
        size_t word = strcspn(at, " ");
        if (word == len && memcmp(at, text, len) == 0) return index;
        at += word + (at[word] == ' ');
    }
    return -1;
}

/* NULL, or what is wrong with it. */
static const char *read_number(const struct value_type *type, const char *text, int64_t *ret)
{
    const char *wrong;

    switch (type->kind) {
    case VALUE_MODE: return units_mode(text, ret);
    case VALUE_SIZE: return units_size(text, ret);
    case VALUE_COUNT:
    case VALUE_UNITS: return units_count(text, ret);
    case VALUE_BOOL: return units_bool(text, ret);
    case VALUE_PERCENT: return units_percent(text, ret);
    case VALUE_DATE: return units_date(text, ret);
    case VALUE_SPAN:
        wrong = units_duration(text, ret);
        if (wrong != NULL && choice_index(text, CALENDAR_UNITS) >= 0)
            return "a window of calendar_window; write that algorithm, or a duration, e.g. 1h or 1d";
        if (wrong == NULL && *ret == 0 && type->min > 0) return "no time at all; write a duration, e.g. 10s";
        return wrong;
    default: /* VALUE_DURATION */
        wrong = units_duration(text, ret);
        if (wrong == NULL && *ret % 1000 != 0) return "finer than a millisecond; write whole milliseconds, e.g. 1ms";
        *ret /= 1000;
        return wrong;
    }
}

bool value_parse(const struct value_type *type, const char *path, const struct tree_node *node, struct faults *faults,
                 int64_t *ret)
{
    if (value_parse_text(path, node, faults) == NULL) return false;

    if (type->kind == VALUE_CHOICE) {
        char shown[FAULTS_SHOWN_MAX], near[HINT_MAX];
        int64_t index = choice_index(node->text, type->choices);
        if (index >= 0) {
            *ret = index;
            return true;
        }

        const char *guess = hint_choice(node->text, type->choices, near);
        faults_shown(shown, node->text);
        if (guess != NULL)
            faults_add(faults, node->line, path, "%s is not known; did you mean %s?", shown, guess);
        else
            faults_add(faults, node->line, path, "%s is not known; write %s%s", shown,
                       strchr(type->choices, ' ') != NULL ? "one of: " : "", type->choices);
        return false;
    }

    if (type->zero_word != NULL) {
        char shown[FAULTS_SHOWN_MAX];
        int64_t count = 0;
        bool is_word = strcmp(node->text, type->zero_word) == 0;
        if (is_word || (units_count(node->text, &count) == NULL && count >= type->min && count <= type->max)) {
            *ret = count;
            return true;
        }

        faults_add(faults, node->line, path,
                   "%s is neither %s nor a number from %" PRId64 " to %" PRId64 "; write one of the two",
                   faults_shown(shown, node->text), type->zero_word, type->min, type->max);
        return false;
    }

    char low[UNITS_TEXT_MAX], high[UNITS_TEXT_MAX], shown[FAULTS_SHOWN_MAX], near[HINT_MAX];
    int64_t number = 0;
    const char *wrong = read_number(type, node->text, &number);
    if (wrong == NULL && number >= type->min && number <= type->max) {
        *ret = number;
        return true;
    }

    const char *rate = wrong != NULL && type->kind == VALUE_UNITS ? hint_rate(node->text, near) : NULL;
    faults_shown(shown, node->text);
    if (rate != NULL)
        faults_add(faults, node->line, path, "%s is a rate; write %s", shown, rate);
    else if (wrong != NULL)
        faults_add(faults, node->line, path, "%s is %s", shown, wrong);
    else
        faults_add(faults, node->line, path, "%s is too %s; write %s to %s", shown,
                   number < type->min ? "small" : "large", value_print(type, type->min, low),
                   value_print(type, type->max, high));
    return false;
}
