/* access.c: finds the rule of a user, and what it grants, for config/, which makes rules, and server/, which asks. */
#include "policy/access.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/users.h"
#include "policy/pattern.h"

#define UID_PLACE  "{uid}"
#define USER_PLACE "{user}"

struct access *access_new(size_t n)
{
    struct access *access = mem_zalloc(sizeof *access + (n + 2) * sizeof access->rules[0]);
    if (access == NULL) return NULL;
    access->n_refs = 1;
    access->n = n;
    for (size_t i = 0; i < n + 2; i++) {
        struct access_rule *rule = &access->rules[i];
        *rule = (struct access_rule){.access = access,
                                     .subject = ACCESS_OTHERS,
                                     .role = i == n + 1 ? ROLE_ADMIN : ROLE_CLIENT,
                                     .grants_inline = true};
        rule->may = methods_of_role((enum role)rule->role);
    }
    return access;
}

struct access *access_ref(struct access *access)
{
    CHECK(access->n_refs > 0);
    access->n_refs++;
    return access;
}

void access_unref(struct access *access)
{
    if (access == NULL) return;
    CHECK(access->n_refs > 0);
    if (--access->n_refs > 0) return;

    for (size_t i = 0; i < access->n + 2; i++) {
        struct access_rule *rule = &access->rules[i];
        char *const texts[] = {rule->user,       rule->group,     rule->policies, rule->deny,
                               rule->key_prefix, rule->prefix[0], rule->prefix[1]};
        for (size_t t = 0; t < N_OF(texts); t++) mem_free(texts[t]);
        mem_free(rule->granted);
    }
    mem_free(access);
}

void access_replace(struct access *access)
{
    access->is_replaced = true;
    for (size_t i = 0; i < access->n + 2; i++) access->rules[i].may = 0;
}

struct access_rule *access_default(struct access *access)
{
    return &access->rules[access->n];
}

/* ---- sealing ---- */

/* The next of the lines at *at, if there is one. */
static bool next_line(const char **at, struct slice *ret)
{
    if (*at == NULL || **at == '\0') return false;
    const char *end = strchrnul(*at, '\n');
    *ret = (struct slice){(const uint8_t *)*at, (size_t)(end - *at)};
    *at = *end == '\n' ? end + 1 : end;
    return true;
}

/* One bit for each policy, so that nothing is compared with a pattern for a check. */
static bool seal_policies(struct access_rule *rule, const struct policy_set *policies)
{
    if (rule->policies == NULL) return true;
    struct pattern_set wanted;
    struct pattern *patterns = mem_alloc(ACCESS_NAMES_MAX * sizeof *patterns);
    rule->granted = mem_zalloc(policies->n / 8 + 1);
    bool has_memory = patterns != NULL && rule->granted != NULL && pattern_set_init(&wanted, ACCESS_NAMES_MAX) == 0;
    if (has_memory) {
        struct slice name;
        for (const char *at = rule->policies; next_line(&at, &name);)
            pattern_set_add(&wanted, &patterns[wanted.n], name);
        pattern_set_seal(&wanted);
        rule->grants_inline = pattern_set_find(&wanted, slice_of(ACCESS_INLINE)) != NULL;
        for (size_t i = 0; i < policies->n; i++)
            if (pattern_set_find(&wanted, slice_of(policies->in_order[i]->name)) != NULL)
                rule->granted[i / 8] |= (uint8_t)(1U << i % 8);
        pattern_set_fini(&wanted);
    }
    mem_free(patterns);
    return has_memory;
}

static bool seal_prefix(struct access_rule *rule)
{
    const char *text = rule->key_prefix;
    if (text == NULL) return true;

    const char *user = strstr(text, USER_PLACE), *uid = strstr(text, UID_PLACE), *at = user != NULL ? user : uid;
    if (at == NULL) return (rule->prefix[0] = mem_strdup(text)) != NULL;

    const char *behind = at + strlen(user != NULL ? USER_PLACE : UID_PLACE);
    const char *name = user != NULL && rule->user != NULL ? rule->user : "";
    size_t size = strlen(text) + strlen(name) + 1;
    char *before = mem_alloc(size);
    if (before == NULL) return false;
    snprintf(before, size, "%.*s%s%s", (int)(at - text), text, name, user != NULL ? behind : "");
    rule->prefix[0] = before;
    if (user == NULL) rule->prefix[1] = mem_strdup(behind);
    return user != NULL || rule->prefix[1] != NULL;
}

bool access_rule_seal(struct access_rule *rule, const struct policy_set *policies)
{
    struct slice name;
    rule->may = methods_of_role((enum role)rule->role);
    for (const char *at = rule->deny; next_line(&at, &name);) {
        enum method method = method_find(name);
        CHECK(method < N_METHODS); /* access_read.c has refused others */
        rule->may &= ~((method_set)1 << method);
    }
    return seal_policies(rule, policies) && seal_prefix(rule);
}

/* ---- answering ---- */

static bool is_member(const struct access_peer *peer, gid_t group)
{
    if (users_is_ambiguous(group)) return false;
    if (peer->gid == group) return true;
    for (size_t i = 0; i < peer->n_groups; i++)
        if (peer->groups[i] == group) return true;
    return false;
}

const struct access_rule *access_match(const struct access *access, const struct access_peer *peer, uid_t own)
{
    bool is_known = peer->uid != (uid_t)-1;
    bool is_unique = is_known && !users_is_ambiguous(peer->uid);
    for (size_t i = 0; i < access->n && is_known; i++) {
        const struct access_rule *rule = &access->rules[i];
        bool matches = rule->subject == ACCESS_USER ? is_unique && rule->id == peer->uid : is_member(peer, rule->id);
        if (matches) return rule;
    }
    return &access->rules[access->n + (is_unique && (peer->uid == 0 || peer->uid == own))];
}

static bool take_start(struct slice *key, const char *start)
{
    size_t len = strlen(start);
    if (key->len < len || memcmp(key->data, start, len) != 0) return false;
    *key = (struct slice){key->data + len, key->len - len};
    return true;
}

bool access_rule_takes_key(const struct access_rule *rule, const char *uid_text, struct slice key)
{
    if (rule->prefix[0] == NULL) return true;
    if (!take_start(&key, rule->prefix[0])) return false;
    return rule->prefix[1] == NULL || (take_start(&key, uid_text) && take_start(&key, rule->prefix[1]));
}

struct slice access_rule_start(const struct access_rule *rule, const char *uid_text, char out[ACCESS_START_MAX])
{
    bool has_uid = rule->prefix[1] != NULL;
    int len = snprintf(out, ACCESS_START_MAX, "%s%s%s", rule->prefix[0], has_uid ? uid_text : "",
                       has_uid ? rule->prefix[1] : "");
    CHECK(len >= 0 && len < ACCESS_START_MAX);
    return (struct slice){(const uint8_t *)out, (size_t)len};
}

bool access_confines(struct slice start, const struct limit *limit)
{
    if (!limit->shared) return true;
    return (key_format_fixed(limit->policy->format, start) & limit->parts) != 0;
}

const char *access_rule_path(const struct access_rule *rule, char out[ACCESS_PATH_MAX])
{
    size_t at = (size_t)(rule - rule->access->rules);
    if (at < rule->access->n)
        snprintf(out, ACCESS_PATH_MAX, "access.rules[%zu]", at);
    else
        snprintf(out, ACCESS_PATH_MAX, "access.default");
    return out;
}
