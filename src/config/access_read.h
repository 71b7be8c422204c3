/*
 * access_read.h: the section `access` of a configuration: who may ask for what.
 *
 * Names of users and groups are looked up here, so while a configuration is read and never on the event loop.
 */
#ifndef RL_CONFIG_ACCESS_READ_H
#define RL_CONFIG_ACCESS_READ_H

#include <stdio.h>

#include "policy/access.h"
#include "policy/faults.h"
#include "policy/setting.h"
#include "policy/tree.h"

enum {
#define ACCESS_SETTING(kind, field, ...) ACCESS_AT_##field,
#include "config/access_settings.def"
#undef ACCESS_SETTING
    N_ACCESS_SETTINGS
};

extern const struct setting access_settings[N_ACCESS_SETTINGS]; /* their fields are in struct access_rule */

/* The rules of `section` (NULL: there is none, so the default holds), for these policies; NULL if they are not known
 * because of faults. NULL with a fault recorded. */
struct access *access_read(const struct tree_node *section, const struct policy_set *policies, bool inline_allow,
                           struct faults *faults);

#endif
