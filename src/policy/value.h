/*
 * value.h: one value of a setting, from text to number and back, for the settings of policies and all others.
 */
#ifndef RL_POLICY_VALUE_H
#define RL_POLICY_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/units.h"
#include "policy/faults.h"
#include "policy/tree.h"

enum value_kind {
    VALUE_COUNT,
    VALUE_UNITS,    /* of a window: a COUNT, which other systems write as a rate */
    VALUE_SIZE,     /* bytes */
    VALUE_MODE,     /* permission bits */
    VALUE_DURATION, /* milliseconds */
    VALUE_SPAN,     /* microseconds */
    VALUE_BOOL,
    VALUE_PERCENT, /* whole ones, as 80% */
    VALUE_DATE,    /* YYYYMMDD, written with dashes */
    VALUE_CHOICE,  /* the index in choices, from 0 */
    VALUE_WORD,    /* one that needs no quotes; its reader may read it as a CHOICE */
    VALUE_TEXT,
    VALUE_PARTS,   /* of the policy's key_format: a key_parts */
    VALUE_PENALTY, /* a map: see penalty.h; as a number its time */
    VALUE_LIST,
};

struct value_type {
    enum value_kind kind;
    int64_t min, max;      /* of a number; of a text its length, of a list its entries */
    const char *choices;   /* words, separated by one space each */
    const char *zero_word; /* of a COUNT: what stands for 0, which is then not among the numbers; NULL: none */
    const char *instead;   /* of a list: what to write instead of anything else */
};
/* In the table of settings, in place of choices. */
#define ZERO_IS(word) .zero_word = (word)
#define INSTEAD(text) .instead = (text)

/* The name number `index` of choices. */
struct slice value_choice(const char *choices, int64_t index);

/* A COUNT, UNITS, SIZE, MODE, DURATION, SPAN, BOOL, PERCENT, DATE or CHOICE. False: the fault is recorded, of `path`. */
bool value_parse(const struct value_type *type, const char *path, const struct tree_node *node, struct faults *faults,
                 int64_t *ret);
/* The text of a node, or NULL with the fault recorded (it is a list, a map or empty). Valid as long as the node. */
const char *value_parse_text(const char *path, const struct tree_node *node, struct faults *faults);

/* Is the text of a node as long as it may be? Is it a list, of as many entries as it may have? If not, the fault is
 * recorded. */
bool value_fits_length(const struct value_type *type, const char *path, const struct tree_node *node,
                       struct faults *faults);
bool value_parse_list(const struct value_type *type, const char *path, const struct tree_node *node,
                      struct faults *faults);

/* Writes it into `out` (UNITS_TEXT_MAX bytes) as in a configuration file; returns `out`. */
const char *value_print(const struct value_type *type, int64_t number, char *out);

struct penalty;
enum { PENALTY_TEXT_MAX = 160 };

/* The same, in PENALTY_TEXT_MAX bytes. */
const char *value_print_penalty(const struct penalty *penalty, char *out);

#endif
