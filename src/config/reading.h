/*
 * reading.h: one map of policy settings while it is read: what it was given, and where its faults go.
 *
 *   policy_yaml.c   the policies, their lists of limits and what concerns them all
 *   policy_limit.c  one limit: its algorithm and numbers
 *   policy_keys.c, policy_overrides.c  key_format and by; overrides
 *   reading.c       the map itself: which settings stand in it, what they are called in a message
 */
#ifndef RL_CONFIG_READING_H
#define RL_CONFIG_READING_H

#include "config/policy_yaml.h"
#include "limit/policy_setting.h"

enum { PATH_BASE_MAX = 96 };

/* One policy of the file while it is read, or one limit of its list. */
struct reading {
    const struct tree_node *node;
    const struct tree_node *given[N_POLICY_FIELDS]; /* NULL = not written */
    bool in_list;                                   /* a limit of a list */
    bool is_inline;                                 /* from a request */
    uint16_t own_bursts;                            /* of a policy: bit i: its i-th limit's burst is written */
    const struct policy_defaults *defaults;
    struct faults *faults;
    char base[PATH_BASE_MAX];  /* "policies.login", "policies.search.limits[0]" */
    char path[FAULTS_KEY_MAX]; /* of the field last asked for */
};

/* The path of something in the map (NULL = of the map itself), for a fault: reading->path. */
const char *reading_path_to(struct reading *reading, const char *field);
const char *reading_path(struct reading *reading, enum policy_field field);

/* Find the settings of reading->node. False: it is no map (recorded); settings that may not stand in it are recorded
 * too. */
bool reading_gather(struct reading *reading);
/* Is there this required one? It is recorded where not. */
bool reading_has(struct reading *reading, enum policy_field field);
bool reading_is_name(const char *text); /* of a policy or a limit */
void reading_no_memory(struct faults *faults, uint32_t line);

#endif
