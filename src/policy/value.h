/*
 * value.h: one value of a setting, from a text to a number and back; of a policy's setting as of any other.
 */
#ifndef RL_POLICY_VALUE_H
#define RL_POLICY_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "policy/faults.h"
#include "policy/policy_setting.h"
#include "policy/tree.h"

/* A COUNT, SIZE, MODE, DURATION, SPAN, BOOL or CHOICE. False: the fault is recorded, as that of `path`. */
bool value_parse(const struct value_form *form, const char *path, const struct tree_node *node, struct faults *faults,
                 int64_t *ret);
/* The one text of a node, or NULL with the fault recorded (a list, a map, nothing). Valid as long as the node. */
const char *value_parse_text(const char *path, const struct tree_node *node, struct faults *faults);

/* As it would be written, into `out` (UNITS_TEXT_MAX bytes), which is returned. */
const char *value_print(const struct value_form *form, int64_t number, char *out);

#endif
