/*
 * setting.h: one setting, of a policy or of the daemon, and how both are read.
 *
 * policy_settings.def and config/settings.def are tables of such rows. A row says how a value is written and in which
 * field it is kept. A map of settings is of some kind (enum map_kind), on which the advice in a refusal depends: those
 * texts are one table, too.
 */
#ifndef RL_POLICY_SETTING_H
#define RL_POLICY_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/value.h"

enum setting_level { IN_POLICY, IN_LIMIT, IN_LIST };
enum setting_holder { HELD_BY_LIMIT, HELD_BY_POLICY, HELD_DERIVED };

enum setting_use {
    USE_PRINT = 1, /* each followed by the bit for: only if it is not 0 */
    USE_PRINT_SET = 2,
    USE_ANSWER = 4,
    USE_ANSWER_SET = 8,
    USE_HASH = 16,
    USE_HASH_SET = 32,
    USE_OVERRIDE = 64,
    USE_RELOAD = 128, /* a reload may change it */
};

struct setting {
    const char *name; /* "window"; the daemon's with the sections that it is in: "store.redis.merge" */
    struct value_type type;
    size_t offset, size;  /* of the field that keeps it: a text, owned, or a number; size 0: it is read by hand */
    const char *fallback; /* the default, as written; "" = none */
    unsigned uses;

    /* A policy's: */
    enum setting_level level;
    enum setting_holder holder;
    uint32_t algos;       /* bits: who takes it */
    const char *takers;   /* the same, for people */
    const char *required; /* what to write if it is missing; "" = it may be missing */
};

/* Reads the value of `node` into its field of `holder`. False: the fault is recorded, as that of `path`. */
bool setting_read(const struct setting *setting, const char *path, const struct tree_node *node, struct faults *faults,
                  void *holder);
/* The default, read like a value of a file, so that none can be what a file could not set. False: no memory. */
bool setting_set_default(const struct setting *setting, void *holder);

/* The number of a field; of a flag 0 or 1. */
int64_t setting_number(const struct setting *setting, const void *holder);
void setting_store(const struct setting *setting, void *holder, int64_t number);
/* The field of a text, which is NULL if it is not set. NULL: the setting is a number. */
char **setting_text(const struct setting *setting, const void *holder);
bool setting_equal(const struct setting *setting, const void *a, const void *b);

enum map_kind {
    MAP_FILE,
    MAP_SECTION,
    MAP_POLICIES,
    MAP_POLICY,
    MAP_LIMIT /* of a list */,
    MAP_OVERRIDE,
    MAP_ACCESS_RULE
};

/* Is it a map? If not, the fault is recorded. */
bool map_is_one(enum map_kind kind, const struct tree_node *node, const char *path, struct faults *faults);
/* Refuse one of its keys: a setting that belongs elsewhere; and an unknown one, with hint_refusal()'s text (NULL: none)
 * or else the name that is similar to it (NULL: none). */
void map_refuse_place(enum map_kind kind, const struct tree_node *key, const char *path, struct faults *faults);
void map_refuse_key(enum map_kind kind, const struct tree_node *key, const char *path, const char *text,
                    const char *similar, struct faults *faults);

#endif
