/* setting.c: reads, stores and compares the value of a row, for the tables of policies, rules and the daemon. */
#include "policy/setting.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

/* ---- Fields ---- */

static char *setting_field(const struct setting *setting, const void *holder)
{
    return (char *)(uintptr_t)holder + setting->offset;
}

int64_t setting_number(const struct setting *setting, const void *holder)
{
    const void *at = setting_field(setting, holder);
    switch (setting->size) {
    case sizeof(bool): return *(const bool *)at;
    case sizeof(uint32_t): return *(const uint32_t *)at;
    case sizeof(int64_t): return *(const int64_t *)at;
    default: CHECK(false); return 0;
    }
}

void setting_store(const struct setting *setting, void *holder, int64_t number)
{
    void *at = setting_field(setting, holder);
    switch (setting->size) {
    case sizeof(bool): *(bool *)at = number != 0; break;
    case sizeof(uint32_t): *(uint32_t *)at = (uint32_t)number; break;
    case sizeof(int64_t): *(int64_t *)at = number; break;
    default: CHECK(false);
    }
}

char **setting_text(const struct setting *setting, const void *holder)
{
    bool is_text = setting->type.kind == VALUE_TEXT || setting->type.kind == VALUE_LIST;
    return is_text ? (char **)(void *)setting_field(setting, holder) : NULL;
}

bool setting_equal(const struct setting *setting, const void *a, const void *b)
{
    char **left = setting_text(setting, a), **right = setting_text(setting, b);
    if (left == NULL) return setting_number(setting, a) == setting_number(setting, b);
    return *left != NULL && *right != NULL ? strcmp(*left, *right) == 0 : *left == *right;
}

/* ---- Reading ---- */

/* One printable text, or NULL with the fault recorded. */
static const char *read_printable(const struct value_type *type, const char *path, const struct tree_node *node,
                                  struct faults *faults)
{
    const char *text = value_parse_text(path, node, faults);
    if (text == NULL || (type->kind == VALUE_TEXT && !value_fits_length(type, path, node, faults))) return NULL;

    size_t n_printable = 0;
    while ((unsigned char)text[n_printable] >= 0x20 && text[n_printable] != 0x7f) n_printable++;
    if (text[n_printable] == '\0') return text;
    faults_add(faults, node->line, path, "has a control character in it; write it without");
    return NULL;
}

/* A list becomes one text, an entry a line; an empty one NULL. */
static bool read_list(const struct setting *setting, const char *path, const struct tree_node *node,
                      struct faults *faults, char **ret)
{
    char *all = NULL;
    size_t len = 0;
    if (!value_parse_list(&setting->type, path, node, faults)) return false;
    for (const struct tree_node *entry = node->first; entry != NULL; entry = entry->next) {
        const char *text = read_printable(&setting->type, path, entry, faults);
        size_t n = text != NULL ? strlen(text) : 0;
        char *longer = text != NULL ? mem_realloc(all, len + n + 2) : NULL;
        if (longer == NULL) {
            if (text != NULL) faults_no_memory(faults, entry->line, path, "out of memory; give the daemon more");
            mem_free(all);
            return false;
        }
        all = longer;
        if (len > 0) all[len++] = '\n';
        memcpy(all + len, text, n + 1);
        len += n;
    }
    mem_free(*ret);
    *ret = all;
    return true;
}

bool setting_read(const struct setting *setting, const char *path, const struct tree_node *node, struct faults *faults,
                  void *holder)
{
    char **text = setting_text(setting, holder);
    int64_t number;
    if (text == NULL) {
        if (!value_parse(&setting->type, path, node, faults, &number)) return false;
        setting_store(setting, holder, number);
        return true;
    }

    if (setting->type.kind == VALUE_LIST) return read_list(setting, path, node, faults, text);
    const char *read = read_printable(&setting->type, path, node, faults);
    if (read == NULL) return false;

    char *copy = mem_strdup(read);
    if (copy == NULL) {
        faults_no_memory(faults, node->line, path, "out of memory; give the daemon more");
        return false;
    }
    mem_free(*text);
    *text = copy;
    return true;
}

bool setting_set_default(const struct setting *setting, void *holder)
{
    struct tree_node node = {.kind = TREE_TEXT, .text = (char *)(uintptr_t)setting->fallback};
    struct faults faults;
    if (setting->fallback[0] == '\0') return true;

    faults_init(&faults);
    bool is_set = setting_read(setting, setting->name, &node, &faults, holder);
    faults_fini(&faults);
    return is_set;
}

/* ---- Maps ---- */

static const struct {
    const char *not_a_map, *misplaced, *unknown;
} refusals[] = {
    [MAP_FILE] = {"is not a map of settings; write `key: value` lines, e.g. policies:", NULL,
                  "no such setting; ratelimitd.yaml(5) lists them all"},
    [MAP_SECTION] = {"is not a map of settings; write `key: value` lines below it, indented", NULL,
                     "no such setting; ratelimitd.yaml(5) lists them all"},
    [MAP_POLICIES] = {"is not a map; write each policy's name below it, indented", NULL, NULL},
    [MAP_POLICY] = {"is not a map of settings; write algorithm, limit and window below it, indented",
                    "names one of several limits; leave it out, or write the limit into a list limits",
                    "no such setting; a policy has algorithm (or compat), limit, window and others of "
                    "ratelimitd.yaml(5)"},
    [MAP_LIMIT] = {"is not a map; write {name: ..., algorithm: ..., limit: ..., window: ...}",
                   "is the policy's, not a limit's; write it next to limits",
                   "no such setting; a limit has name, algorithm, limit, window and others of ratelimitd.yaml(5)"},
    [MAP_OVERRIDE] =
        {"is not a map; write {key: ..., limit: ...} or {match: ..., unlimited: true}",
         "is the same for every key; an override has limit, window, burst and max_wait, or unlimited: true",
         "no such setting; an override has key or match (a pattern, or {cidr: [...]}), and limit, window, burst, "
         "max_wait "
         "or unlimited"},
    [MAP_ACCESS_RULE] = {"is not a map; write {user: ..., policies: [...]} or {group: ..., role: ...}",
                         "is for a rule of access.rules; access.default is for all others, so leave it out",
                         "no such setting; a rule has user or group, and role, policies, deny, key_prefix, "
                         "max_connections and max_inflight"},
};

bool map_is_one(enum map_kind kind, const struct tree_node *node, const char *path, struct faults *faults)
{
    if (node->kind != TREE_MAP && node->kind != TREE_REFUSED)
        faults_add(faults, node->line, path, "%s", refusals[kind].not_a_map);
    return node->kind == TREE_MAP;
}

void map_refuse_place(enum map_kind kind, const struct tree_node *key, const char *path, struct faults *faults)
{
    faults_add(faults, key->line, path, "%s", refusals[kind].misplaced);
}

void map_refuse_key(enum map_kind kind, const struct tree_node *key, const char *path, const char *text,
                    const char *similar, struct faults *faults)
{
    if (text == NULL && similar != NULL)
        faults_add(faults, key->line, path, "no such setting; did you mean %s?", similar);
    else
        faults_add(faults, key->line, path, "%s", text != NULL ? text : refusals[kind].unknown);
}
