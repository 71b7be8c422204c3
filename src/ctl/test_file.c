/* test_file.c: reads a file of tests, packs the parameters of its steps, and refuses its mistakes, for test_run.c. */
#include "ctl/test_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/nearest.h"
#include "base/units.h"
#include "config/yaml_tree.h"
#include "ctl/options.h"
#include "ctl/test_time.h"
#include "policy/value.h"
#include "proto/error.h"
#include "proto/pack.h"

enum { FILE_MAX = 16 << 20, READ_SIZE = 65536, OPTIONS_MAX = 16 };

const struct test_field_row test_fields[N_TEST_FIELDS] = {
#define TEST_FIELD(ID, name, kind, scope, wire) [TEST_##ID] = {#name, TEST_KIND_##kind, TEST_SCOPE_##scope, wire},
#include "ctl/test_fields.def"
#undef TEST_FIELD
};

static const struct test_method methods[] = {
#define TEST_METHOD(name, shape, third, answer, names, usage)                                                          \
    {#name, TEST_SHAPE_##shape, TEST_THIRD_##third, TEST_ANSWER_##answer, TEST_NAMES_##names, usage},
#include "ctl/test_methods.def"
#undef TEST_METHOD
};

/* What a step may have besides a method, in the order of `enum word`. */
static const char *const words[] = {"at", "every", "until", "times", "cost", "as", "expect", "redis"};
enum word { WORD_AT, WORD_EVERY, WORD_UNTIL, WORD_TIMES, WORD_COST, WORD_AS, WORD_EXPECT, WORD_REDIS, N_WORDS };

struct reader {
    struct faults *faults;
    struct test_file *file;
    struct test *test;
    int64_t now_us; /* of the step before, or the start */
};

/* One step while it is read. */
struct raw_step {
    const struct tree_node *of[N_WORDS]; /* NULL: not written */
    const struct tree_node *params;
};

static void refuse(struct reader *reader, uint32_t line, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void refuse(struct reader *reader, uint32_t line, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    faults_record_va(reader->faults, FAULT_INVALID, line, key, format, args);
    va_end(args);
}

static void refuse_no_memory(struct reader *reader, uint32_t line)
{
    faults_no_memory(reader->faults, line, NULL, "out of memory; write fewer tests into one file");
}

/* `otherwise`: what to write if no known name is near. */
static void refuse_word(struct reader *reader, const struct tree_node *node, struct nearest nearest,
                        const char *otherwise)
{
    char shown[FAULTS_SHOWN_MAX];
    faults_shown(shown, node->key);
    if (nearest.name != NULL)
        refuse(reader, node->line, NULL, "%s is not known here; did you mean %s?", shown, nearest.name);
    else
        refuse(reader, node->line, NULL, "%s is not known here; %s", shown, otherwise);
}

/* Is it a list or map that has members? If not, the fault is recorded. */
static bool is_filled(struct reader *reader, const struct tree_node *node, const char *key, enum tree_kind kind,
                      const char *instead)
{
    if (node->kind == TREE_REFUSED) return false;
    if (node->kind == kind && node->first != NULL) return true;
    refuse(reader, node->line, key, "%s; write %s",
           node->kind == kind || node->is_null ? "is empty" : "is something else", instead);
    return false;
}

/* ---- Parameters ---- */

/* Settings of a policy, whose numbers may be texts; the daemon reads them. False: a part of it was refused. */
static bool pack_tree(struct packer *packer, const struct tree_node *node)
{
    bool is_sound = node->kind != TREE_REFUSED;
    if (node->kind == TREE_TEXT && node->is_null)
        pack_nil(packer);
    else if (node->kind == TREE_TEXT)
        pack_text(packer, node->text);
    else if (node->kind == TREE_MAP)
        pack_map(packer, (uint32_t)tree_count(node));
    else if (node->kind == TREE_LIST)
        pack_array(packer, (uint32_t)tree_count(node));

    for (const struct tree_node *child = node->first; child != NULL && is_sound; child = child->next) {
        if (child->key != NULL) pack_text(packer, child->key);
        is_sound = pack_tree(packer, child);
    }
    return is_sound;
}

static bool pack_options(struct reader *reader, struct packer *packer, const struct tree_node *node, const char *method,
                         int64_t *cost)
{
    pack_map(packer, (uint32_t)tree_count(node));
    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        if (child->kind == TREE_REFUSED) return false;
        if (child->kind != TREE_TEXT) {
            refuse(reader, child->line, method, "%s: an option is a number or a text; write one of them", child->key);
            return false;
        }
        pack_text(packer, child->key);
        bool is_id = strcmp(child->key, "request_id") == 0;
        int64_t number;
        if (!is_id && child->is_null)
            pack_nil(packer);
        else if (!is_id && options_parse_number(child->text, &number) == 0)
            pack_int(packer, number);
        else
            pack_text(packer, child->text);
        if (strcmp(child->key, "cost") == 0) (void)options_parse_number(child->text, cost);
    }
    return true;
}

static bool pack_cost(struct reader *reader, struct packer *packer, const struct tree_node *node, const char *method,
                      int64_t *ret)
{
    char shown[FAULTS_SHOWN_MAX];
    if (node->kind == TREE_REFUSED) return false;
    if (node->kind == TREE_TEXT && options_parse_number(node->text, ret) == 0) {
        pack_int(packer, *ret);
        return true;
    }
    refuse(reader, node->line, method, "%s is no number of units; write a whole number",
           node->kind == TREE_TEXT ? faults_shown(shown, node->text) : "a list or map");
    return false;
}

/* May so many parameters be there? `n_more`: behind the policy and the key. */
static bool takes(const struct test_method *method, size_t n_more)
{
    switch (method->third) {
    case TEST_THIRD_NO_MORE: return n_more == 0;
    case TEST_THIRD_UNITS: return n_more == 1 || (n_more == 2 && method->shape == TEST_SHAPE_TARGET);
    default: return n_more <= 1;
    }
}

static void refuse_params(struct reader *reader, uint32_t line, const struct test_method *method)
{
    refuse(reader, line, method->name, "does not have the parameters of the protocol; write %s", method->usage);
}

/* What follows the policy and the key: `cost` of the step, or the rest of the list. */
static bool pack_rest(struct reader *reader, struct packer *packer, const struct test_method *method,
                      const struct tree_node *rest, const struct tree_node *cost, struct test_target *target)
{
    bool is_sound = true;
    if (cost != NULL) return pack_cost(reader, packer, cost, "cost", &target->cost);
    for (const struct tree_node *node = rest; node != NULL && is_sound; node = node->next) {
        bool may_be_cost = node == rest && method->third != TEST_THIRD_OPTIONS;
        bool may_be_options = method->third == TEST_THIRD_OPTIONS || method->third == TEST_THIRD_COST_OR_OPTIONS ||
                              (method->third == TEST_THIRD_UNITS && node != rest);
        if (node->is_null)
            pack_nil(packer);
        else if (node->kind == TREE_MAP && may_be_options)
            is_sound = pack_options(reader, packer, node, method->name, &target->cost);
        else if (may_be_cost)
            is_sound = pack_cost(reader, packer, node, method->name, &target->cost);
        else if (node->kind != TREE_REFUSED)
            refuse_params(reader, node->line, method), is_sound = false;
    }
    return is_sound;
}

/* A policy, a key, and what follows them. */
static bool pack_target(struct reader *reader, struct packer *packer, const struct test_method *method,
                        const struct tree_node *list, const struct tree_node *cost, struct test_target *ret)
{
    size_t n = list->kind == TREE_LIST ? tree_count(list) : 0;
    if (list->kind == TREE_REFUSED) return false;
    bool has_both = n > 2 && cost != NULL;
    if (n < 2 || has_both || !takes(method, n - 2 + (cost != NULL))) {
        if (has_both)
            refuse(reader, cost->line, "cost", "is the third parameter of %s, which has one already; keep one of them",
                   method->name);
        else
            refuse_params(reader, list->line, method);
        return false;
    }

    const struct tree_node *policy = list->first, *key = policy->next;
    bool is_free = strcmp(method->name, "peek") == 0;
    *ret = (struct test_target){.line = list->line, .policy = policy, .cost = is_free ? 0 : 1};
    pack_array(packer, (uint32_t)(n + (cost != NULL)));

    if (policy->kind == TREE_MAP) {
        if (!pack_tree(packer, policy)) return false;
    } else {
        const char *name = value_parse_text(method->name, policy, reader->faults);
        if (name == NULL) return false;
        pack_text(packer, name);
    }
    if (key->kind == TREE_REFUSED) return false;
    if (key->kind != TREE_TEXT || key->is_null) {
        refuse(reader, key->line, method->name, "the key is no text; write one, in quotes if need be");
        return false;
    }
    ret->key = key->text;
    pack_text(packer, key->text);
    return pack_rest(reader, packer, method, key->next, cost, ret);
}

static bool pack_list(struct reader *reader, struct packer *packer, struct test_step *step,
                      const struct tree_node *list)
{
    bool is_sound = true;
    pack_array(packer, 1);
    pack_array(packer, (uint32_t)tree_count(list));
    for (const struct tree_node *node = list->first; node != NULL && is_sound; node = node->next)
        is_sound = pack_target(reader, packer, step->method, node, NULL, &step->targets[step->n_targets++]);
    return is_sound;
}

/* ---- Names ---- */

static size_t find_name(const struct test *test, const char *text)
{
    size_t i = 0;
    while (i < test->n_names && strcmp(test->names[i].text, text) != 0) i++;
    return i < test->n_names ? i : NO_NAME;
}

/* The name that the step takes, and what follows it. */
static bool read_use(struct reader *reader, struct packer *packer, struct test_step *step, const struct tree_node *list)
{
    static const char *const kinds[] = {[TEST_NAMES_RESERVATION] = "reservation", [TEST_NAMES_SLOT] = "slot"};
    const struct test_method *method = step->method;
    const char *kind = kinds[method->names];
    char shown[FAULTS_SHOWN_MAX];
    int64_t units;
    if (!takes(method, tree_count(list) - 1)) {
        refuse_params(reader, list->line, method);
        return false;
    }

    const char *text = value_parse_text(method->name, list->first, reader->faults);
    if (text == NULL) return false;
    step->uses = find_name(reader->test, text);
    if (step->uses != NO_NAME && reader->test->names[step->uses].what == method->names)
        return list->first->next == NULL || pack_cost(reader, packer, list->first->next, method->name, &units);

    struct nearest nearest = nearest_to(text);
    for (size_t i = 0; i < reader->test->n_names; i++)
        if (reader->test->names[i].what == method->names) nearest_offer(&nearest, reader->test->names[i].text);
    faults_shown(shown, text);
    if (nearest.name != NULL && nearest.distance > 0)
        refuse(reader, list->line, method->name, "no step before names a %s %s; did you mean %s?", kind, shown,
               nearest.name);
    else
        refuse(reader, list->line, method->name,
               "no step before names a %s %s; write `as: NAME` into the one that %s it", kind, shown,
               method->names == TEST_NAMES_SLOT ? "acquires" : "reserves");
    return false;
}

static void read_as(struct reader *reader, struct test_step *step, const struct tree_node *node)
{
    struct test *test = reader->test;
    const char *text = value_parse_text("as", node, reader->faults);
    bool is_named =
        step->method != NULL && step->method->shape == TEST_SHAPE_TARGET && step->method->names != TEST_NAMES_NOTHING;
    if (text == NULL) return;
    if (!is_named) {
        refuse(reader, node->line, "as", "names what reserve or acquire has given; leave it out here");
        return;
    }

    step->as = find_name(test, text);
    if (step->as == NO_NAME) step->as = test->n_names++;
    test->names[step->as] = (struct test_name){text, step, step->method->names};
}

/* ---- What is expected ---- */

/* A number or a duration. NULL, or what is wrong. */
static const char *read_end(const char *text, enum test_kind kind, int64_t *ret)
{
    int64_t us;
    if (kind == TEST_KIND_COUNT) return units_count(text, ret);
    if (strcmp(text, "never") == 0) {
        *ret = -1;
        return NULL;
    }
    const char *wrong = units_duration(text, &us);
    if (wrong != NULL) return wrong;
    if (us % MS_US != 0) return "finer than a millisecond; write whole milliseconds, e.g. 1ms";
    *ret = us / MS_US;
    return NULL;
}

static void read_range(struct reader *reader, const char *key, const struct tree_node *node,
                       const struct test_field_row *row, struct test_expectation *ret)
{
    char low[UNITS_TEXT_MAX * 2], shown[FAULTS_SHOWN_MAX];
    const char *between = strstr(node->text, ".."), *high = between != NULL ? between + 2 : node->text;
    snprintf(low, sizeof low, "%.*s", between != NULL ? (int)(between - node->text) : (int)sizeof low, node->text);

    const char *wrong = read_end(low, row->kind, &ret->low);
    if (wrong == NULL) wrong = read_end(high, row->kind, &ret->high);
    faults_shown(shown, node->text);
    if (wrong != NULL && between != NULL)
        refuse(reader, node->line, key, "%s is no range A..B: one of its ends is %s", shown, wrong);
    else if (wrong != NULL)
        refuse(reader, node->line, key, "%s is %s", shown, wrong);
    else if (between != NULL && (ret->low < 0 || ret->high < 0))
        refuse(reader, node->line, key, "%s: never is no end of a range; write it alone", shown);
    else if (ret->low > ret->high)
        refuse(reader, node->line, key, "%s is the wrong way round; write %s..%s", shown, high, low);
}

static void read_code(struct reader *reader, const char *key, const struct tree_node *node)
{
    char shown[FAULTS_SHOWN_MAX];
    struct nearest nearest = nearest_to(node->text);
    for (enum error_code code = ERROR_NONE + 1; code < N_ERROR_CODES; code++) nearest_offer(&nearest, error_name(code));
    if (nearest.name != NULL && strcmp(nearest.name, node->text) == 0) return;
    faults_shown(shown, node->text);
    if (nearest.name != NULL)
        refuse(reader, node->line, key, "%s is no error code; did you mean %s?", shown, nearest.name);
    else
        refuse(reader, node->line, key, "%s is no error code; write one of the protocol, such as STORE_UNAVAILABLE",
               shown);
}

static void read_expectation(struct reader *reader, const struct tree_node *node, enum test_field field,
                             struct test_expectation *ret)
{
    char key[64], shown[FAULTS_SHOWN_MAX];
    const struct test_field_row *row = &test_fields[field];
    snprintf(key, sizeof key, "expect.%s", row->name);
    bool may_be_null = row->kind == TEST_KIND_WORD && row->scope == TEST_SCOPE_DECISION && node->kind == TREE_TEXT;
    const char *text = may_be_null && node->is_null ? "" : value_parse_text(key, node, reader->faults);
    if (text == NULL) return;

    *ret = (struct test_expectation){.is_given = true, .text = text, .before = text[0] != '\0' ? text : "null"};
    if (row->kind == TEST_KIND_COUNT || row->kind == TEST_KIND_DURATION)
        read_range(reader, key, node, row, ret);
    else if (row->kind == TEST_KIND_TRUTH && units_bool(text, &ret->low) != NULL)
        refuse(reader, node->line, key, "%s is neither true nor false; write one of the two",
               faults_shown(shown, text));
    else if (row->scope == TEST_SCOPE_ERROR)
        read_code(reader, key, node);
}

static void read_expected(struct reader *reader, const struct tree_node *map, struct test_step *step)
{
    static const char instead[] = "what is expected, such as {allowed: 1}";
    if (step->method == NULL) {
        refuse(reader, map->line, "expect", "does not go with redis, which is no call; leave it out");
        return;
    }
    if (!is_filled(reader, map, "expect", TREE_MAP, instead)) return;

    for (const struct tree_node *node = map->first; node != NULL; node = node->next) {
        enum test_field field = 0;
        struct nearest nearest = nearest_to(node->key);
        while (field < N_TEST_FIELDS && strcmp(test_fields[field].name, node->key) != 0) field++;
        for (size_t i = 0; i < N_TEST_FIELDS; i++) nearest_offer(&nearest, test_fields[i].name);
        if (field == N_TEST_FIELDS)
            refuse_word(reader, node, nearest, "expect has allowed, denied, error, and the fields of the last answer");
        else if (step->method->answer != TEST_ANSWER_DECISION && test_fields[field].scope != TEST_SCOPE_ERROR)
            refuse(reader, node->line, "expect", "%s is not answered with %s; %s has error alone", step->method->name,
                   node->key, step->method->name);
        else
            read_expectation(reader, node, field, &step->expects[field]);
    }

    for (enum test_field i = 0; i < N_TEST_FIELDS && step->expects[TEST_ERROR].is_given; i++) {
        if (!step->expects[i].is_given || test_fields[i].scope != TEST_SCOPE_DECISION) continue;
        refuse(reader, map->line, "expect", "an answer that is an error has no %s; leave one of the two out",
               test_fields[i].name);
        return;
    }
}

/* ---- When ---- */

static bool read_count(struct reader *reader, const struct tree_node *node, int64_t *ret)
{
    char shown[FAULTS_SHOWN_MAX];
    const char *text = value_parse_text("times", node, reader->faults);
    if (text == NULL) return false;
    const char *wrong = units_count(text, ret);
    if (wrong == NULL && *ret > 0) return true;
    refuse(reader, node->line, "times", "%s is %s", faults_shown(shown, text),
           wrong != NULL ? wrong : "no call at all; write 1 or more");
    *ret = 1;
    return false;
}

static void read_ticks(struct reader *reader, const struct raw_step *raw, struct test_step *step)
{
    const struct tree_node *every = raw->of[WORD_EVERY], *until = raw->of[WORD_UNTIL];
    char shown[FAULTS_SHOWN_MAX];
    int64_t every_us = 0, until_us;
    if (every == NULL || until == NULL) {
        refuse(reader, every != NULL ? every->line : until->line, every != NULL ? "every" : "until",
               "comes without %s; write both, or `times` for calls at one time", every != NULL ? "until" : "every");
        return;
    }

    const char *text = value_parse_text("every", every, reader->faults);
    const char *wrong = text != NULL ? units_duration(text, &every_us) : NULL;
    if (text != NULL && wrong == NULL && every_us == 0) wrong = "no time at all; write a duration, e.g. 100ms";
    if (wrong != NULL) refuse(reader, every->line, "every", "%s is %s", faults_shown(shown, text), wrong);

    bool has_until = test_time_read("until", until, reader->test->start_us, reader->faults, &until_us);
    if (has_until && until_us <= step->at_us)
        refuse(reader, until->line, "until", "%s is not after `at`; the calls begin at `at` and end before `until`",
               faults_shown(shown, until->text));
    if (!has_until || until_us <= step->at_us || every_us == 0) return;
    step->every_us = every_us;
    step->n_ticks = (until_us - step->at_us - 1) / every_us + 1;
}

/* ---- Steps ---- */

static void read_redis(struct reader *reader, const struct raw_step *raw, struct test_step *step)
{
    static const enum word of_calls[] = {WORD_EVERY, WORD_UNTIL, WORD_TIMES, WORD_COST};
    char shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = raw->of[WORD_REDIS];
    CHECK(node != NULL);
    const char *text = value_parse_text("redis", node, reader->faults);
    if (text == NULL) return;
    if (strcmp(text, "down") == 0)
        step->store = TEST_STORE_DOWN;
    else if (strcmp(text, "up") == 0)
        step->store = TEST_STORE_UP;
    else
        refuse(reader, node->line, "redis", "%s is neither down nor up; write one of the two",
               faults_shown(shown, text));
    for (size_t i = 0; i < N_OF(of_calls); i++)
        if (raw->of[of_calls[i]] != NULL)
            refuse(reader, raw->of[of_calls[i]]->line, words[of_calls[i]],
                   "does not go with redis, which is no call; leave it out");
}

static void read_call(struct reader *reader, const struct raw_step *raw, struct test_step *step)
{
    const struct test_method *method = step->method;
    const struct tree_node *cost = raw->of[WORD_COST];
    struct packer packer = packer_of(&step->params);
    bool may_have_cost = method->shape == TEST_SHAPE_TARGET && method->third != TEST_THIRD_NO_MORE &&
                         method->third != TEST_THIRD_OPTIONS;
    if (!is_filled(reader, raw->params, method->name, TREE_LIST, method->usage)) return;
    if (cost != NULL && !may_have_cost) {
        refuse(reader, cost->line, "cost", "is not for %s; %s", method->name,
               method->shape == TEST_SHAPE_TARGET ? "leave it out" : "write it into the list");
        return;
    }
    if (method->shape == TEST_SHAPE_NAME) {
        (void)read_use(reader, &packer, step, raw->params);
    } else {
        size_t n = method->shape == TEST_SHAPE_LIST ? tree_count(raw->params) : 1;
        step->targets = mem_zalloc(n * sizeof *step->targets);
        if (step->targets == NULL) {
            refuse_no_memory(reader, step->line);
        } else if (method->shape == TEST_SHAPE_LIST) {
            (void)pack_list(reader, &packer, step, raw->params);
        } else {
            step->n_targets = 1;
            (void)pack_target(reader, &packer, method, raw->params, cost, step->targets);
        }
    }
    if (packer.failed) refuse_no_memory(reader, step->line);
}

/* Sorts the members of a step. False: it is no step, and that is recorded. */
static bool sort_step(struct reader *reader, const struct tree_node *map, struct test_step *step, struct raw_step *raw)
{
    bool is_known = true;
    if (!is_filled(reader, map, "steps", TREE_MAP, "a call, such as {at: 0s, check: [login, alice]}")) return false;
    for (const struct tree_node *node = map->first; node != NULL; node = node->next) {
        size_t word = 0, at = 0;
        while (word < N_WORDS && strcmp(words[word], node->key) != 0) word++;
        while (at < N_OF(methods) && strcmp(methods[at].name, node->key) != 0) at++;
        const struct test_method *method = at < N_OF(methods) ? &methods[at] : NULL;
        if (method != NULL && step->method != NULL) {
            refuse(reader, node->line, node->key, "a step is one call, and this one has %s, too; write two steps",
                   step->method->name);
        } else if (method != NULL) {
            step->method = method;
            raw->params = node;
        } else if (word < N_WORDS) {
            raw->of[word] = node;
        } else {
            struct nearest nearest = nearest_to(node->key);
            for (size_t i = 0; i < N_OF(methods); i++) nearest_offer(&nearest, methods[i].name);
            for (size_t i = 0; i < N_WORDS; i++) nearest_offer(&nearest, words[i]);
            is_known = false;
            refuse_word(reader, node, nearest,
                        "a step has a call, such as check, and at, every, until, times, cost, as, "
                        "expect");
        }
    }

    if (step->method != NULL && raw->of[WORD_REDIS] != NULL)
        refuse(reader, raw->of[WORD_REDIS]->line, "redis",
               "is a step of its own; write it before the one that calls %s", step->method->name);
    if (step->method == NULL && raw->of[WORD_REDIS] == NULL && is_known)
        refuse(reader, map->line, "steps", "has no call; write one, such as check: [login, alice]");
    return step->method != NULL || raw->of[WORD_REDIS] != NULL;
}

static void read_step(struct reader *reader, const struct tree_node *map, struct test_step *step)
{
    struct raw_step raw = {0};
    *step = (struct test_step){.line = map->line, .n_ticks = 1, .times = 1, .as = NO_NAME, .uses = NO_NAME};
    buffer_init(&step->params, 0);
    if (!sort_step(reader, map, step, &raw)) return;

    const struct tree_node *at = raw.of[WORD_AT];
    char shown[FAULTS_SHOWN_MAX], later[UNITS_TEXT_MAX];
    step->at_us = reader->now_us;
    if (at != NULL && test_time_read("at", at, reader->test->start_us, reader->faults, &step->at_us) &&
        step->at_us < reader->now_us) {
        refuse(reader, at->line, "at",
               "%s is in the past: the step before, or the start, is later by %s; write the steps in the order of "
               "their times",
               faults_shown(shown, at->text), units_print_duration(later, reader->now_us - step->at_us));
        step->at_us = reader->now_us;
    }

    if (raw.of[WORD_TIMES] != NULL) (void)read_count(reader, raw.of[WORD_TIMES], &step->times);
    if (raw.of[WORD_EVERY] != NULL || raw.of[WORD_UNTIL] != NULL) read_ticks(reader, &raw, step);
    reader->now_us = step->at_us + step->every_us * (step->n_ticks - 1);

    if (step->n_ticks > TEST_CALLS_MAX / step->times)
        refuse(reader, step->line, NULL,
               "makes more than %d calls; write a longer `every`, an earlier `until` or fewer times", TEST_CALLS_MAX);

    if (step->method == NULL)
        read_redis(reader, &raw, step);
    else
        read_call(reader, &raw, step);
    if (raw.of[WORD_AS] != NULL) read_as(reader, step, raw.of[WORD_AS]);
    if (raw.of[WORD_EXPECT] != NULL) read_expected(reader, raw.of[WORD_EXPECT], step);
}

/* ---- Tests ---- */

static const struct tree_node *member(const struct tree_node *map, const char *key)
{
    const struct tree_node *node = map->first;
    while (node != NULL && strcmp(node->key, key) != 0) node = node->next;
    return node;
}

/* Refuses every other member. */
static void refuse_others(struct reader *reader, const struct tree_node *map, const char *const *known, size_t n,
                          const char *otherwise)
{
    for (const struct tree_node *node = map->first; node != NULL; node = node->next) {
        struct nearest nearest = nearest_to(node->key);
        for (size_t i = 0; i < n; i++) nearest_offer(&nearest, known[i]);
        bool is_known = nearest.name != NULL && strcmp(nearest.name, node->key) == 0;
        if (!is_known) refuse_word(reader, node, nearest, otherwise);
    }
}

static void read_name(struct reader *reader, const struct tree_node *map, struct test *test)
{
    const struct tree_node *node = member(map, "name");
    char shown[FAULTS_SHOWN_MAX];
    if (node == NULL) refuse(reader, map->line, "tests", "has no name; write `name:` with a sentence into it");
    test->name = node != NULL ? value_parse_text("name", node, reader->faults) : NULL;
    if (test->name == NULL) {
        test->name = "";
        return;
    }
    for (const struct test *before = reader->file->tests; before < test; before++) {
        if (strcmp(before->name, test->name) != 0) continue;
        refuse(reader, node->line, "name", "%s is the name of the test on line %u, too; write another one",
               faults_shown(shown, test->name), before->line);
        return;
    }
}

static void read_test(struct reader *reader, const struct tree_node *map, struct test *test)
{
    static const char *const known[] = {"name", "start", "steps"};
    *test = (struct test){.line = map->line, .name = "", .start_us = TEST_START_US};
    reader->test = test;
    if (!is_filled(reader, map, "tests", TREE_MAP, "a name and steps")) return;
    refuse_others(reader, map, known, N_OF(known), "a test has name, start and steps");
    read_name(reader, map, test);

    const struct tree_node *start = member(map, "start"), *steps = member(map, "steps");
    if (start != NULL) (void)test_time_read_start("start", start, reader->faults, &test->start_us);
    reader->now_us = test->start_us;
    if (steps == NULL) refuse(reader, map->line, "steps", "are missing; a test without a step tests nothing");
    if (steps == NULL ||
        !is_filled(reader, steps, "steps", TREE_LIST, "at least one, such as - {check: [login, alice]}"))
        return;

    size_t n = tree_count(steps);
    test->steps = mem_zalloc(n * sizeof *test->steps);
    test->names = mem_zalloc(n * sizeof *test->names);
    if (test->steps == NULL || test->names == NULL) {
        refuse_no_memory(reader, map->line);
        return;
    }
    for (const struct tree_node *node = steps->first; node != NULL; node = node->next)
        read_step(reader, node, &test->steps[test->n_steps++]);
}

/* The path of the configuration, relative to the file. NULL without memory. */
static char *path_next_to(const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    size_t folder = path[0] != '/' && slash != NULL ? (size_t)(slash - file) + 1 : 0;
    char *whole = mem_alloc(folder + strlen(path) + 1);
    if (whole == NULL) return NULL;
    memcpy(whole, file, folder);
    strcpy(whole + folder, path);
    return whole;
}

static void read_tree(struct reader *reader, const struct tree_node *root)
{
    static const char *const known[] = {"config", "policies", "defaults", "tests"};
    struct test_file *file = reader->file;
    if (!is_filled(reader, root, NULL, TREE_MAP, "`config:` and `tests:`")) return;
    refuse_others(reader, root, known, N_OF(known), "a file of tests has config (or policies and defaults) and tests");

    const struct tree_node *config = member(root, "config"), *policies = member(root, "policies");
    const struct tree_node *defaults = member(root, "defaults");
    const char *path = config != NULL ? value_parse_text("config", config, reader->faults) : file->path;
    if (config == NULL && policies == NULL)
        refuse(reader, root->line, "config",
               "is missing; write the path of the configuration, or `policies:` with some");
    if (config != NULL && (policies != NULL || defaults != NULL))
        refuse(reader, (policies != NULL ? policies : defaults)->line, policies != NULL ? "policies" : "defaults",
               "does not go with config, which has its own; keep one of the two");
    if (path != NULL) {
        file->config_line = (config != NULL ? config : root)->line;
        file->config = config != NULL ? path_next_to(file->path, path) : mem_strdup(path);
        if (file->config == NULL) refuse_no_memory(reader, 0);
    }

    const struct tree_node *tests = member(root, "tests");
    if (tests == NULL) refuse(reader, root->line, "tests", "are missing; write `tests:` with a list of them");
    if (tests == NULL || !is_filled(reader, tests, "tests", TREE_LIST, "a list of tests, each with a name and steps"))
        return;
    file->tests = mem_zalloc(tree_count(tests) * sizeof *file->tests);
    if (file->tests == NULL) {
        refuse_no_memory(reader, tests->line);
        return;
    }
    for (const struct tree_node *node = tests->first; node != NULL; node = node->next)
        read_test(reader, node, &file->tests[file->n_tests++]);
}

/* ---- The file ---- */

/* 0, or -1 with the fault recorded. */
static int read_bytes(const char *path, struct buffer *content, struct faults *faults)
{
    FILE *in = fopen(path, "re");
    if (in == NULL) {
        faults_add(faults, 0, NULL, "cannot be read: %s; write the path of a readable file", strerror(errno));
        return -1;
    }

    uint8_t *space = NULL;
    size_t n = READ_SIZE;
    while (n == READ_SIZE && (space = buffer_reserve(content, READ_SIZE)) != NULL) {
        n = fread(space, 1, READ_SIZE, in);
        buffer_grew(content, n);
    }
    bool is_read = space != NULL && !ferror(in);
    if (space == NULL) faults_add(faults, 0, NULL, "is larger than %d bytes; write several files", FILE_MAX);
    if (space != NULL && ferror(in)) faults_add(faults, 0, NULL, "cannot be read: %s", strerror(errno));
    fclose(in);
    return is_read ? 0 : -1;
}

int test_file_read(struct test_file *file, const char *path, struct faults *faults)
{
    struct reader reader = {.faults = faults, .file = file};
    struct buffer content;
    *file = (struct test_file){.path = path};
    buffer_init(&content, FILE_MAX + READ_SIZE);
    if (read_bytes(path, &content, faults) == 0) {
        const char *bytes = buffer_len(&content) > 0 ? (const char *)buffer_data(&content) : "";
        file->root = yaml_tree_parse(bytes, buffer_len(&content), faults);
    }
    buffer_fini(&content);
    if (file->root != NULL) read_tree(&reader, file->root);
    faults_sort(faults);
    return faults->n_errors == 0 ? 0 : -1;
}

void test_file_fini(struct test_file *file)
{
    for (size_t i = 0; i < file->n_tests; i++) {
        struct test *test = &file->tests[i];
        for (size_t j = 0; j < test->n_steps; j++) {
            mem_free(test->steps[j].targets);
            buffer_fini(&test->steps[j].params);
        }
        mem_free(test->steps);
        mem_free(test->names);
    }
    mem_free(file->tests);
    mem_free(file->config);
    tree_free(file->root);
    *file = (struct test_file){0};
}
