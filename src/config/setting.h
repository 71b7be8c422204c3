/*
 * setting.h: settings.def as a table: read a setting into its field, compare two, free them.
 *
 * Nothing here knows what a setting is for. A value is a field of struct config, at an offset: a text, which is owned
 * and NULL where it is not set (TEXT, and LIST, whose one entry it is), or an int64_t.
 */
#ifndef RL_CONFIG_SETTING_H
#define RL_CONFIG_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/faults.h"
#include "policy/policy_setting.h"
#include "policy/tree.h"

struct setting {
    struct value_form form;
    const char *path;     /* "store.redis.merge" */
    size_t offset;        /* of its field in struct config */
    const char *fallback; /* the default, as written; "" = not set */
    bool reloads;
};

enum {
#define SETTING(kind, field, ...) SETTING_AT_##field,
#include "config/settings.def"
#undef SETTING
    N_SETTINGS
};

extern const struct setting setting_table[N_SETTINGS]; /* by SETTING_AT_ */

struct config;

/* Set every field to its default. 0, or -1 without memory. */
int setting_set_defaults(struct config *config);
void setting_free_all(struct config *config);

/* Parse one value of the file into its field; a fault is recorded where it cannot be. */
void setting_parse(const struct setting *setting, struct config *config, const struct tree_node *node,
                   struct faults *faults);
/* The field of a text; NULL if the setting is a number. And the field of a number. */
char **setting_text(const struct setting *setting, const struct config *config);
int64_t *setting_number(const struct setting *setting, const struct config *config);
bool setting_equal(const struct setting *setting, const struct config *a, const struct config *b);

#endif
