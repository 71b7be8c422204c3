/*
 * reading.h: one map of policy settings while it is read: what is written in it, and where its faults go.
 *
 *   policy_read.c    the policies, their lists of limits and what concerns them all
 *   limit_read.c     one limit
 *   override_read.c  overrides
 *   reading.c        the map itself: which settings are in it, and the value of those that are a number, a flag or a
 *                    choice
 */
#ifndef RL_POLICY_READING_H
#define RL_POLICY_READING_H

#include "policy/policy_read.h"
#include "policy/policy_setting.h"

enum { PATH_BASE_MAX = 120 };

/* A policy, a limit of its list or an override of it, while it is read. */
struct reading {
    enum map_kind kind; /* MAP_POLICY, MAP_LIMIT or MAP_OVERRIDE */
    const struct tree_node *node;
    const struct tree_node *given[N_POLICY_FIELDS]; /* NULL = not written */
    const struct tree_node *key, *match;            /* of an override: which keys; NULL = not written */
    bool is_inline;                                 /* from a request */
    const char *id;                                 /* of an inline policy; NULL = none */
    uint16_t own_bursts;                            /* of a policy: bit i: its i-th limit's burst is written */
    const struct policy_defaults *defaults;
    struct faults *faults;
    char base[PATH_BASE_MAX];  /* "policies.login", "policies.search.limits[0]", "policies.search.overrides[0]" */
    char path[FAULTS_KEY_MAX]; /* of the field last asked for */
};

/* Writes the path of a field of the map (NULL = of the map itself) into reading->path, for a fault, and returns it. */
const char *reading_path_to(struct reading *reading, const char *field);
const char *reading_path(struct reading *reading, enum policy_field field);
/* Records a fault of the setting, on its line, or on the map's line if the setting is not written. */
void reading_refuse(struct reading *reading, enum policy_field field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Finds the settings of reading->node, and records a fault for each that does not belong there. False: it is not a map
 * (recorded). */
bool reading_gather(struct reading *reading);
/* Is this required setting written? If not, the fault is recorded. */
bool reading_has(struct reading *reading, enum policy_field field);

/* Is this setting a list of as many entries as it may have? If not, the fault is recorded if it is written. */
bool reading_is_list(struct reading *reading, enum policy_field field);

/* A COUNT, SPAN, DURATION, BOOL or CHOICE. False: it is not written, or the fault is recorded. */
bool reading_value(struct reading *reading, enum policy_field field, int64_t *ret);
/* Is it unlimited: true? Then every other setting is refused. */
bool reading_unlimited(struct reading *reading);
/* The index among the setting's choices; 0 if it is not written, or the fault is recorded. */
int reading_choice(struct reading *reading, enum policy_field field);
const char *reading_text(struct reading *reading, enum policy_field field); /* NULL: none, or the fault is recorded */

bool reading_is_name(const char *text); /* of a policy or a limit */
void reading_no_memory(struct faults *faults, uint32_t line);

/* Fill and prepare `limit`, whose policy and name are set; faults are recorded. */
void limit_read(struct reading *reading, struct limit *limit);
/* Reads the name of a limit in a list; it must differ from the names of the limits before it. */
void limit_read_name(struct reading *reading, struct limit *limit);

/* Reads the overrides of a policy whose limits have been read. `is_sound`: the limits have no fault; if they have,
 * nothing that depends on them is checked. */
void override_read_all(struct reading *reading, struct policy *policy, bool is_sound);

#endif
