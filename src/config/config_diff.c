#include "config/config_diff.h"

#include <stdio.h>
#include <string.h>

#include "policy/policy_diff.h"

enum { LIST_MAX = 512 };

/* A value as in a configuration file, but without quotes; the entries of a list with commas in between. */
static struct slice shown(const struct setting *setting, const struct config *config, char out[LIST_MAX])
{
    char **text = setting_text(setting, config);
    if (text == NULL) return slice_of(value_print(&setting->type, setting_number(setting, config), out));
    if (*text == NULL) return slice_of("not set");

    snprintf(out, LIST_MAX, "%s", *text);
    for (char *end = out; (end = strchr(end, '\n')) != NULL;) *end = ',';
    return slice_of(out);
}

static void compare_setting(struct changes *changes, const struct setting *setting, const struct config *before,
                            const struct config *next, bool needs_restart)
{
    char from[LIST_MAX], to[LIST_MAX];
    struct change change = {.subject = CHANGE_OF_DAEMON, .kind = CHANGE_CHANGED, .needs_restart = needs_restart};
    change_add_value(&change, setting->name, shown(setting, before, from), shown(setting, next, to));
    changes_add(changes, &change);
}

/* Not rule by rule: one that is moved counts for others. */
static void compare_access(struct changes *changes, const struct config *before, const struct config *next)
{
    struct change change = {.subject = CHANGE_OF_DAEMON, .kind = CHANGE_CHANGED};
    if (config_hash_access(before->access) == config_hash_access(next->access)) return;

    char from[32], to[32];
    snprintf(from, sizeof from, "%zu rules", before->access->n);
    snprintf(to, sizeof to, "%zu other rules", next->access->n);
    change_add_value(&change, "access", slice_of(from), slice_of(to));
    changes_add(changes, &change);
}

void config_diff(struct changes *changes, const struct config *in_force, const struct config *started,
                 const struct config *next)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &daemon_settings[i];
        bool needs_restart = !(setting->uses & USE_RELOAD);
        const struct config *before = needs_restart ? started : in_force;

        /* Its table cannot grow beyond what it was made for. */
        if (i == SETTING_AT_store_memory_max_keys && next->store_memory_max_keys > started->store_memory_max_keys)
            needs_restart = true;
        if (!setting_equal(setting, before, next)) compare_setting(changes, setting, before, next, needs_restart);
    }
    compare_access(changes, in_force, next);
    policy_diff(changes, in_force->policies, next->policies);
}
