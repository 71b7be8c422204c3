/* access_read.c: reads the section `access`, rule by rule, for config.c; config_print.c and cut.c use its table. */
#include "config/access_read.h"

#include <string.h>

#include "base/account.h"
#include "base/nearest.h"
#include "base/users.h"
#include "policy/pattern.h"
#include "policy/reading.h"

/* How often entries of all rules are compared with policies: about a second's work. What is beyond gets no advice, and
 * a pattern that fits nothing no warning; a name that does not exist is found without comparing. */
enum { COMPARISONS_MAX = 10 * 1000 * 1000, NEAREST_COMPARISONS = 10 /* such as this, which takes longer, costs */ };

const struct setting access_settings[N_ACCESS_SETTINGS] = {
#define ACCESS_SETTING(kind_, field, min_, max_, words, help)                                                          \
    {.name = #field,                                                                                                   \
     .type = {.kind = VALUE_##kind_, .min = min_, .max = max_, words},                                                 \
     .offset = offsetof(struct access_rule, field),                                                                    \
     .size = sizeof((struct access_rule *)0)->field,                                                                   \
     .fallback = ""},
#include "config/access_settings.def"
#undef ACCESS_SETTING
};

/* A rule, or the default, while it is read. */
struct access_reading {
    const struct tree_node *node;
    const struct tree_node *given[N_ACCESS_SETTINGS]; /* NULL = not written */
    bool is_default;
    const struct policy_set *policies; /* NULL: not known */
    bool inline_allow;
    size_t *n_left; /* comparisons */
    struct faults *faults;
    char base[ACCESS_PATH_MAX]; /* "access.rules[0]", "access.default" */
    char path[FAULTS_KEY_MAX];
};

/* The path of a setting, or of an entry of a list of it. */
static const char *path_of(struct access_reading *reading, const char *setting, int entry)
{
    if (entry < 0)
        snprintf(reading->path, sizeof reading->path, "%s.%.128s", reading->base, setting);
    else
        snprintf(reading->path, sizeof reading->path, "%s.%.128s[%d]", reading->base, setting, entry);
    return reading->path;
}

/* ---- which settings are there ---- */

static bool may_stand(const struct access_reading *reading, size_t at)
{
    return !reading->is_default || (at != ACCESS_AT_user && at != ACCESS_AT_group);
}

static void take_key(struct access_reading *reading, const struct tree_node *child)
{
    struct nearest nearest = nearest_to(child->key);
    for (size_t i = 0; i < N_ACCESS_SETTINGS; i++) {
        if (strcmp(access_settings[i].name, child->key) != 0) {
            if (may_stand(reading, i)) nearest_offer(&nearest, access_settings[i].name);
            continue;
        }
        if (may_stand(reading, i))
            reading->given[i] = child;
        else
            map_refuse_place(MAP_ACCESS_RULE, child, path_of(reading, child->key, -1), reading->faults);
        return;
    }
    map_refuse_key(MAP_ACCESS_RULE, child, path_of(reading, child->key, -1), NULL, nearest.name, reading->faults);
}

/* ---- whose rule it is ---- */

static void read_subject(struct access_reading *reading, struct access_rule *rule)
{
    const struct tree_node *user = reading->given[ACCESS_AT_user], *group = reading->given[ACCESS_AT_group];
    const struct tree_node *node = user != NULL ? user : group;
    char shown[FAULTS_SHOWN_MAX];
    if (user != NULL && group != NULL) {
        faults_add(reading->faults, group->line, path_of(reading, "group", -1),
                   "does not go with user; keep one of the two, and write another rule for the other");
        return;
    }
    if (node == NULL) {
        faults_add(reading->faults, reading->node->line, reading->base,
                   "has neither user nor group; write one of them, or put it under access.default");
        return;
    }

    const char *written = user != NULL ? rule->user : rule->group, *what = user != NULL ? "user" : "group";
    if (written == NULL) return; /* its fault is recorded */
    bool is_found = user != NULL ? account_user(written, &rule->id) : account_group(written, &rule->id);
    rule->subject = user != NULL ? ACCESS_USER : ACCESS_GROUP;
    path_of(reading, what, -1);
    if (!is_found)
        faults_add(reading->faults, node->line, reading->path,
                   "there is no %s %s on this machine; create it, or write one that exists", what,
                   faults_shown(shown, written));
    else if (users_is_ambiguous(rule->id))
        faults_warn(reading->faults, node->line, reading->path,
                    "%s is number %d, which inside a user namespace may be anybody, so this rule is for nobody; give "
                    "the %s a number that the namespace has, or run the daemon outside of one",
                    faults_shown(shown, written), USERS_OVERFLOW_ID, what);
}

/* ---- what it allows ---- */

static void check_policy(struct access_reading *reading, const struct tree_node *entry, int at)
{
    const struct policy_set *policies = reading->policies;
    const struct slice name = slice_of(entry->text);
    bool is_pattern = strchr(entry->text, '*') != NULL, is_inline = strcmp(entry->text, ACCESS_INLINE) == 0;
    char shown[FAULTS_SHOWN_MAX];
    faults_shown(shown, entry->text);
    path_of(reading, "policies", at);

    if (is_inline) {
        if (!reading->inline_allow)
            faults_warn(reading->faults, entry->line, reading->path,
                        "allows nothing as long as inline.allow is false, which is for everybody; write inline: "
                        "{allow: true}, or leave it out");
        return;
    }
    if (!is_pattern && !reading_is_name(entry->text)) {
        faults_add(reading->faults, entry->line, reading->path,
                   "%s is no policy's name; write one, a pattern such as \"api*\", or " ACCESS_INLINE, shown);
        return;
    }
    if (policies == NULL) return;

    struct nearest nearest = nearest_to(entry->text);
    if (!is_pattern && policy_find(policies, name) != NULL) return;
    const size_t cost = is_pattern ? 1 : NEAREST_COMPARISONS;
    size_t i = 0;
    for (; i < policies->n && *reading->n_left >= cost; i++) {
        const char *known = policies->in_order[i]->name;
        *reading->n_left -= cost;
        if (is_pattern && pattern_matches(name, slice_of(known))) return;
        if (!is_pattern) nearest_offer(&nearest, known);
    }
    if (is_pattern) {
        if (i == policies->n && !pattern_matches(name, slice_of(ACCESS_INLINE)))
            faults_warn(reading->faults, entry->line, reading->path, "%s fits no policy of this configuration", shown);
    } else if (nearest.name != NULL) {
        faults_add(reading->faults, entry->line, reading->path, "there is no policy %s; did you mean %s?", shown,
                   nearest.name);
    } else {
        faults_add(reading->faults, entry->line, reading->path,
                   "there is no policy %s; write the name of one that is below policies:", shown);
    }
}

static void check_method(struct access_reading *reading, const struct tree_node *entry, int at)
{
    char shown[FAULTS_SHOWN_MAX];
    if (method_find(slice_of(entry->text)) < N_METHODS) return;
    struct nearest nearest = nearest_to(entry->text);
    for (size_t i = 0; i < N_METHODS; i++) nearest_offer(&nearest, method_name((enum method)i));
    faults_add(reading->faults, entry->line, path_of(reading, "deny", at), "there is no method %s; %s%s%s",
               faults_shown(shown, entry->text), nearest.name != NULL ? "did you mean " : "PROTOCOL.md lists them all",
               nearest.name != NULL ? nearest.name : "", nearest.name != NULL ? "?" : "");
}

/* Each entry of a list that could be read. */
static void check_entries(struct access_reading *reading, size_t setting, const char *text,
                          void (*check)(struct access_reading *reading, const struct tree_node *entry, int at))
{
    const struct tree_node *list = reading->given[setting];
    int at = 0;
    if (list == NULL || text == NULL) return;
    for (const struct tree_node *entry = list->first; entry != NULL; entry = entry->next) check(reading, entry, at++);
}

/* Could what stands behind the user's name or number be more of it? Keys of user 11 begin as those of user 1. */
static bool goes_on(char behind, bool is_name)
{
    bool is_digit = behind >= '0' && behind <= '9';
    bool is_letter = (behind >= 'a' && behind <= 'z') || (behind >= 'A' && behind <= 'Z');
    return behind == '\0' || is_digit || (is_name && (is_letter || strchr("_-.$", behind) != NULL));
}

/* One place for the user at most, and no other brace: what looks like a third one would be part of the keys. */
static void check_prefix(struct access_reading *reading, const struct access_rule *rule)
{
    const struct tree_node *node = reading->given[ACCESS_AT_key_prefix];
    const char *text = rule->key_prefix;
    if (text == NULL) return;

    const char *brace = strpbrk(text, "{}");
    if (brace == NULL) return;
    bool is_user = strncmp(brace, "{user}", 6) == 0, is_uid = strncmp(brace, "{uid}", 5) == 0;
    const char *behind = brace + (is_user ? 6 : 5);
    bool is_one = (is_user || is_uid) && strpbrk(behind, "{}") == NULL;
    path_of(reading, "key_prefix", -1);
    if (!is_one)
        faults_add(reading->faults, node->line, reading->path,
                   "has braces other than one {user} or {uid}; write one of these, or no braces");
    else if (is_user && rule->user == NULL)
        faults_add(reading->faults, node->line, reading->path,
                   "has {user}, which is the name in a rule for one user; write {uid}, the number of the user who "
                   "connects");
    else if (goes_on(*behind, is_user) && rule->user == NULL)
        faults_add(reading->faults, node->line, reading->path,
                   "has no separator behind {uid}, so user 1 could use the keys of user 11; write one, such as {uid}:");
    else if (goes_on(*behind, is_user))
        faults_warn(reading->faults, node->line, reading->path,
                    "has no separator behind %s, so this user can use the keys of those whose %s begins with the same "
                    "%s; write one, such as %s:",
                    is_user ? "{user}" : "{uid}", is_user ? "name" : "number", is_user ? "letters" : "digits",
                    is_user ? "{user}" : "{uid}");
}

static const struct limit *unconfined_of(struct slice start, const struct policy *policy)
{
    for (uint16_t i = 0; policy != NULL && i < policy->n_limits; i++)
        if (!access_confines(start, &policy->limits[i])) return &policy->limits[i];
    return NULL;
}

/* A sealed rule whose key_prefix does not confine all counters of its policies: those it may not give back to. */
static void warn_of_shared_counters(struct access_reading *reading, const struct access_rule *rule)
{
    const method_set methods = (method_set)1 << METHOD_reset | (method_set)1 << METHOD_refund;
    if (rule->prefix[0] == NULL || (rule->may & methods) == 0) return;

    char uid_text[ACCESS_USER_TEXT_MAX], text[ACCESS_START_MAX], path[LIMIT_PATH_MAX];
    snprintf(uid_text, sizeof uid_text, "%u", rule->subject == ACCESS_USER ? (unsigned)rule->id : 1);
    const struct slice start = access_rule_start(rule, uid_text, text);
    const struct limit *first = NULL;
    size_t n = 0;
    for (size_t i = 0; *reading->n_left > 0 && i < reading->policies->n; i++) {
        const struct policy *policy = reading->policies->in_order[i];
        *reading->n_left -= 1;
        if (!access_rule_grants(rule, policy)) continue;
        const struct limit *limit = unconfined_of(start, policy);
        if (limit == NULL) limit = unconfined_of(start, policy->candidate);
        n += limit != NULL;
        if (first == NULL) first = limit;
    }
    if (first != NULL)
        faults_warn(reading->faults, reading->given[ACCESS_AT_key_prefix]->line, path_of(reading, "key_prefix", -1),
                    "leaves this user no reset and no refund of policy %s%s, because %s counts keys of others, too; "
                    "deny: [reset, refund] says the same, and limits of its own can be named one by one",
                    first->policy->name, n > 1 ? " and others" : "", limit_path(first, path));
}

static void read_rule(struct access_reading *reading, struct access_rule *rule)
{
    struct faults *faults = reading->faults;
    if (!map_is_one(MAP_ACCESS_RULE, reading->node, reading->base, faults)) return;
    for (const struct tree_node *child = reading->node->first; child != NULL; child = child->next)
        take_key(reading, child);

    for (size_t i = 0; i < N_ACCESS_SETTINGS; i++) {
        const struct setting *setting = &access_settings[i];
        if (reading->given[i] != NULL)
            setting_read(setting, path_of(reading, setting->name, -1), reading->given[i], faults, rule);
    }
    if (!reading->is_default) read_subject(reading, rule);
    check_entries(reading, ACCESS_AT_policies, rule->policies, check_policy);
    check_entries(reading, ACCESS_AT_deny, rule->deny, check_method);
    check_prefix(reading, rule);
}

/* ---- the section ---- */

struct sections {
    const struct tree_node *rules, *others; /* NULL: not written */
    size_t n;                               /* of the rules */
};

static bool find_sections(const struct tree_node *section, struct faults *faults, struct sections *ret)
{
    static const struct value_type list = {
        .kind = VALUE_LIST, .max = ACCESS_RULES_MAX, .instead = "rules such as - {user: www-data, role: client}"};
    if (section == NULL || section->is_null) return true;
    if (!map_is_one(MAP_SECTION, section, "access", faults)) return false;
    for (const struct tree_node *child = section->first; child != NULL; child = child->next) {
        char path[FAULTS_KEY_MAX];
        if (strcmp(child->key, "rules") == 0) {
            if (!value_parse_list(&list, "access.rules", child, faults)) return false;
            ret->rules = child;
            ret->n = tree_count(child);
        } else if (strcmp(child->key, "default") == 0) {
            ret->others = child;
        } else {
            struct nearest nearest = nearest_to(child->key);
            nearest_offer(&nearest, "rules");
            nearest_offer(&nearest, "default");
            snprintf(path, sizeof path, "access.%.128s", child->key);
            map_refuse_key(MAP_SECTION, child, path, NULL, nearest.name, faults);
        }
    }
    return true;
}

struct access *access_read(const struct tree_node *section, const struct policy_set *policies, bool inline_allow,
                           struct faults *faults)
{
    struct sections sections = {0};
    size_t n_errors = faults->n_errors, n_left = COMPARISONS_MAX;
    if (!find_sections(section, faults, &sections)) return NULL;
    struct access *access = access_new(sections.n);
    if (access == NULL) goto no_memory;
    access->has_rules = sections.rules != NULL;
    access->has_default = sections.others != NULL;

    const struct tree_node *node = sections.rules != NULL ? sections.rules->first : NULL;
    for (size_t i = 0; i <= sections.n; i++) {
        struct access_rule *rule = &access->rules[i];
        struct access_reading reading = {.node = i < sections.n ? node : sections.others,
                                         .is_default = i == sections.n,
                                         .policies = policies,
                                         .inline_allow = inline_allow,
                                         .n_left = &n_left,
                                         .faults = faults};
        if (node != NULL) node = node->next;
        if (reading.node == NULL) break;
        access_rule_path(rule, reading.base);
        read_rule(&reading, rule);
        access->has_groups |= rule->subject == ACCESS_GROUP;
        if (policies == NULL || faults->n_errors > n_errors) continue;
        if (!access_rule_seal(rule, policies)) goto no_memory;
        warn_of_shared_counters(&reading, rule);
    }
    if (faults->n_errors == n_errors) return access;
    access_unref(access);
    return NULL;

no_memory:
    faults_no_memory(faults, section != NULL ? section->line : 0, "access",
                     "out of memory; give the daemon more, or write fewer rules");
    access_unref(access);
    return NULL;
}
