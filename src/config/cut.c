/* cut.c: compares how much two configurations have, for daemon/reload.c. */
#include "config/cut.h"

#include <string.h>

#include "base/assert.h"
#include "base/units.h"
#include "config/access_read.h"

/* How much is written of a rule, but for the role that it has by default: what was cut off is less. */
static size_t weight_of(const struct access_rule *rule)
{
    size_t weight = 0;
    for (size_t i = 0; i < N_ACCESS_SETTINGS; i++) {
        const struct setting *setting = &access_settings[i];
        char **text = setting_text(setting, rule), number[UNITS_TEXT_MAX];
        if (text != NULL)
            weight += *text != NULL ? 1 + strlen(*text) : 0;
        else if (setting_number(setting, rule) != (i == ACCESS_AT_role ? ROLE_CLIENT : 0))
            weight += 1 + strlen(value_print(&setting->type, setting_number(setting, rule), number));
    }
    return weight;
}

static size_t weight_of_all(struct access *access)
{
    size_t weight = weight_of(access_default(access));
    for (size_t i = 0; i < access->n; i++) weight += weight_of(&access->rules[i]);
    return weight;
}

static void check_access(const struct config *in_force, const struct config *next, struct faults *faults)
{
    struct access *before = in_force->access, *after = next->access;
    bool is_whole = after->has_default && next->end == END_ANYWHERE; /* and has no rules on purpose */
    bool lacks_rules = before->n > 0 && !after->has_rules && !is_whole;
    bool lacks_default = before->has_default && !after->has_default;
    if (weight_of_all(before) == 0) return; /* there is no door to open */

    if (lacks_rules)
        faults_add(faults, 0, after->has_default ? "access.rules" : "access",
                   "is missing in this file, and rules are in force (%zu); write the whole file and reload again. To "
                   "remove them, write access: {rules: []%s}",
                   before->n, before->has_default ? ", default: {role: client}" : "");
    else if (lacks_default)
        faults_add(faults, 0, "access.default",
                   "is missing in this file, and one is in force; write the whole file and reload again. To remove it, "
                   "write default: {role: client}");
    else if (next->end == END_IN_RULES && weight_of_all(after) < weight_of_all(before))
        faults_add(faults, 0, "access",
                   "ends this file and has less than what is in force, as if the file was cut off; write the whole "
                   "file and reload again. If it is meant, write access above policies");
}

bool config_is_cut(const struct config *in_force, const struct config *next, struct faults *faults)
{
    size_t n_before = in_force->policies->n, n = next->policies->n, n_errors = faults->n_errors;
    CHECK(in_force->access != NULL && next->access != NULL);
    if (in_force->has_policies && !next->has_policies)
        faults_add(
            faults, 0, "policies",
            "there are none in this file, and %zu are in force; write the whole file and reload again. To remove "
            "the last policy, restart",
            n_before);
    else if (2 * n < n_before)
        faults_warn(faults, 0, "policies",
                    "there are %zu in this file, and %zu are in force; if this file was cut off, write the whole one "
                    "and reload again",
                    n, n_before);
    check_access(in_force, next, faults);
    return faults->n_errors > n_errors;
}
