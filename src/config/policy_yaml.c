#include "config/policy_yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/units.h"
#include "config/nearest.h"
#include "config/not_built.h"
#include "config/setting.h"

enum field {
#define POLICY_SETTING(NAME, ...) FIELD_##NAME,
#include "config/policy_settings.def"
#undef POLICY_SETTING
    N_FIELDS
};

#define BIT(algo)     (1u << ALGO_##algo)
#define SHAPERS       BIT(LEAKY_BUCKET)
#define BUCKETS       (BIT(BUCKET) | SHAPERS)
#define FIXED_WINDOWS (BIT(FIXED_WINDOW) | BIT(FIRST_HIT))
#define COUNTERS      (FIXED_WINDOWS | BIT(SLIDING_LOG))
#define COMPATS       (EVERY & ~(COUNTERS | BUCKETS | BIT(SLIDING_COUNTER)))
#define EVERY         ((1u << N_ALGOS) - 1)

static const struct {
    const char *name;
    uint32_t algos;
    const char *takers;
} fields[N_FIELDS] = {
#define POLICY_SETTING(NAME, name, algos, takers, help) {name, algos, takers},
#include "config/policy_settings.def"
#undef POLICY_SETTING
};

/* Names that other systems have for what is a preset here, accepted as `algorithm:`. */
static const struct {
    const char *name;
    const char *compat;
} aliases[] = {{"fixed-window-algo", "rlaas-fixed"}, {"sliding-window-algo", "rlaas-sliding"}};

static const char *const on_failures = "allow deny local error";

enum {
    PREFIX_MAX = 128, /* bytes of a foreign prefix; limit_prepare puts it into limit->key_head */
    DEADLINE_MAX_MS = 3600000,
    PATH_BASE_MAX = 96,
};

/* One policy of the file while it is read, or one limit of its list. */
struct reading {
    const struct tree_node *node;
    const struct tree_node *given[N_FIELDS]; /* NULL = not written */
    bool in_list;                            /* a limit of a list */
    const struct policy_defaults *defaults;
    struct faults *faults;
    char base[PATH_BASE_MAX];  /* "policies.login", "policies.search.limits[0]" */
    char path[FAULTS_KEY_MAX]; /* of the field last asked for */
};

static const char *path_to(struct reading *reading, const char *field)
{
    snprintf(reading->path, sizeof reading->path, "%s%s%s", reading->base, field != NULL ? "." : "",
             field != NULL ? field : "");
    return reading->path;
}

static const char *path_of(struct reading *reading, enum field field)
{
    return path_to(reading, fields[field].name);
}

static bool is_name(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return len > 0 && len <= NAME_MAX_LEN && text[len] == '\0';
}

/* Which settings are there */

/* Whether `field` is the policy's own, whatever limits it has. */
static bool is_of_policy(enum field field)
{
    return field == FIELD_LIMITS || field == FIELD_ON_FAILURE || field == FIELD_DEADLINE;
}

static bool may_stand(const struct reading *reading, enum field field)
{
    return reading->in_list ? !is_of_policy(field) : field != FIELD_NAME;
}

static void refuse_field(struct reading *reading, const struct tree_node *node)
{
    char any[FAULTS_KEY_MAX];
    snprintf(any, sizeof any, "policies.*.%.64s", node->key);
    const char *advice = not_built(any, NULL);
    path_to(reading, node->key);
    if (advice != NULL) {
        faults_add(reading->faults, node->line, reading->path, "not built yet; %s", advice);
        return;
    }
    struct nearest nearest = nearest_to(node->key);
    for (size_t i = 0; i < N_FIELDS; i++)
        if (may_stand(reading, i)) nearest_offer(&nearest, fields[i].name);
    if (nearest.name != NULL)
        faults_add(reading->faults, node->line, reading->path, "no such setting; did you mean %s?", nearest.name);
    else
        faults_add(reading->faults, node->line, reading->path,
                   "no such setting; a %s, limit, window and others of ratelimitd.yaml(5)",
                   reading->in_list ? "limit has name, algorithm" : "policy has algorithm (or compat)");
}

static void refuse_place(struct reading *reading, const struct tree_node *node)
{
    faults_add(reading->faults, node->line, path_to(reading, node->key), "%s",
               reading->in_list ? "is the policy's, not a limit's; write it beside limits"
                                : "names one of several limits; leave it out, or write the limit into a list limits");
}

/* The limits of a list have settings of their own. */
static void refuse_beside_list(struct reading *reading)
{
    for (size_t i = 0; i < N_FIELDS && reading->given[FIELD_LIMITS] != NULL; i++) {
        if (reading->given[i] == NULL || is_of_policy(i)) continue;
        faults_add(reading->faults, reading->given[i]->line, path_of(reading, i),
                   "stands beside limits; write it into the limits of that list");
    }
}

static bool gather(struct reading *reading)
{
    const struct tree_node *node = reading->node;
    if (node->kind == TREE_REFUSED) return false;
    if (node->kind != TREE_MAP) {
        faults_add(reading->faults, node->line, path_to(reading, NULL),
                   reading->in_list ? "is no map; write {name: ..., algorithm: ..., limit: ..., window: ...}"
                                    : "is no map of settings; write algorithm, limit and window below it, indented");
        return false;
    }
    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        size_t i = 0;
        while (i < N_FIELDS && strcmp(fields[i].name, child->key) != 0) i++;
        if (i == N_FIELDS)
            refuse_field(reading, child);
        else if (!may_stand(reading, i))
            refuse_place(reading, child);
        else if (reading->given[i] == NULL)
            reading->given[i] = child;
    }
    refuse_beside_list(reading);
    return true;
}

/* Which algorithm */

static int find_algo(enum field field, const char *name)
{
    if (field == FIELD_COMPAT) return compat_of_name(name);
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(aliases[i].name, name) == 0) return compat_of_name(aliases[i].compat);
    return algo_of_name(name);
}

/* The names that `field` may have, separated by commas; one that stands for two algorithms once. */
static const char *known_names(enum field field, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < N_ALGOS && at < size; i++) {
        const char *name = algo_table[i]->name;
        if (algo_table[i]->is_compat != (field == FIELD_COMPAT) || strstr(out, name) != NULL) continue;
        at += (size_t)snprintf(out + at, size - at, "%s%s", at > 0 ? ", " : "", name);
    }
    return out;
}

static void refuse_name(struct reading *reading, enum field field, const char *text)
{
    char shown[FAULTS_SHOWN_MAX], any[64], known[256];
    const struct tree_node *node = reading->given[field];
    snprintf(any, sizeof any, "policies.*.%s", fields[field].name);
    const char *advice = not_built(any, text);
    struct nearest nearest = nearest_to(text);
    for (int i = 0; i < N_ALGOS; i++)
        if (algo_table[i]->is_compat == (field == FIELD_COMPAT)) nearest_offer(&nearest, algo_table[i]->name);
    faults_shown(shown, text);
    if (advice != NULL)
        faults_add(reading->faults, node->line, reading->path, "%s is not built yet; %s", shown, advice);
    else if (nearest.name != NULL)
        faults_add(reading->faults, node->line, reading->path, "%s is not known; did you mean %s?", shown,
                   nearest.name);
    else
        faults_add(reading->faults, node->line, reading->path, "%s is not known; write one of %s", shown,
                   known_names(field, known, sizeof known));
}

/* The algorithm that `field` names, or -1 with the fault recorded. */
static int read_named(struct reading *reading, enum field field)
{
    const char *text = setting_parse_text(path_of(reading, field), reading->given[field], reading->faults);
    if (text == NULL) return -1;
    int algo = find_algo(field, text);
    if (algo < 0) refuse_name(reading, field, text);
    if (algo < 0 || !reading->in_list || !algo_table[algo]->is_compat) return algo;
    faults_add(reading->faults, reading->given[field]->line, reading->path,
               "shares another system's keys, which are decided apart; write it as a policy of its own");
    return -1;
}

static int read_algo(struct reading *reading)
{
    const struct tree_node *algorithm = reading->given[FIELD_ALGORITHM], *compat = reading->given[FIELD_COMPAT];
    char known[256];
    if (algorithm != NULL && compat != NULL) {
        faults_add(reading->faults, compat->line, path_of(reading, FIELD_COMPAT),
                   "stands beside algorithm; keep one of the two");
        return -1;
    }
    if (algorithm != NULL) return read_named(reading, FIELD_ALGORITHM);
    if (compat != NULL) return read_named(reading, FIELD_COMPAT);
    faults_add(reading->faults, reading->node->line, path_of(reading, FIELD_ALGORITHM),
               "is missing; write algorithm: and one of %s", known_names(FIELD_ALGORITHM, known, sizeof known));
    return -1;
}

static void refuse_foreign_fields(struct reading *reading, enum algo algo)
{
    const enum field named = reading->given[FIELD_COMPAT] != NULL ? FIELD_COMPAT : FIELD_ALGORITHM;
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct tree_node *node = reading->given[i];
        if (node == NULL || (fields[i].algos & (1u << algo))) continue;
        faults_add(reading->faults, node->line, path_of(reading, i),
                   "is no setting of %s; leave it out (it belongs to %s)", reading->given[named]->text,
                   fields[i].takers);
    }
}

/* The values */

static bool is_given(struct reading *reading, enum field field)
{
    if (reading->given[field] != NULL) return true;
    const char *advice = field == FIELD_LIMIT    ? "how many units a window has, e.g. limit: 100"
                         : field == FIELD_WINDOW ? "how long a window is, e.g. window: 10s"
                                                 : "what this limit is called in answers, e.g. name: day";
    faults_add(reading->faults, reading->node->line, path_of(reading, field), "is missing; write %s", advice);
    return false;
}

static void read_count(struct reading *reading, enum field field, int64_t min, int64_t *ret)
{
    if (reading->given[field] == NULL) return;
    setting_parse_number(SETTING_COUNT, path_of(reading, field), min, (INT64_C(1) << 53) - 1, reading->given[field],
                         reading->faults, ret);
}

/* Finer than the settings elsewhere: to the microsecond. */
static void read_duration(struct reading *reading, enum field field, bool may_be_none, int64_t *ret_us)
{
    char shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = reading->given[field];
    if (node == NULL) return;
    const char *text = setting_parse_text(path_of(reading, field), node, reading->faults);
    if (text == NULL) return;
    const char *wrong = units_duration(text, ret_us);
    if (wrong == NULL && *ret_us == 0 && !may_be_none) wrong = "no time at all; write a duration, e.g. 10s";
    if (wrong != NULL)
        faults_add(reading->faults, node->line, reading->path, "%s is %s", faults_shown(shown, text), wrong);
}

static void read_start(struct reading *reading, struct limit *limit)
{
    int64_t start = 0;
    if (reading->given[FIELD_START] == NULL) return;
    setting_parse_choice(path_of(reading, FIELD_START), "aligned first_hit", reading->given[FIELD_START],
                         reading->faults, &start);
    if (start == 1) limit->algo = ALGO_FIRST_HIT;
}

static const char *read_prefix(struct reading *reading)
{
    const struct tree_node *node = reading->given[FIELD_KEY_PREFIX];
    if (node == NULL) return NULL;
    const char *text = setting_parse_text(path_of(reading, FIELD_KEY_PREFIX), node, reading->faults);
    if (text == NULL) return NULL;
    size_t len = strlen(text);
    if (len == 0 || len > PREFIX_MAX)
        faults_add(reading->faults, node->line, reading->path, "is %zu bytes long; write 1 to %d", len, PREFIX_MAX);
    else if (text[len - 1] == ':')
        faults_add(reading->faults, node->line, reading->path,
                   "ends in a colon, which is put behind it anyway; leave the last colon out");
    return text;
}

static void read_failure(struct reading *reading, struct policy *policy)
{
    int64_t on_failure = (int64_t)reading->defaults->on_failure, deadline_ms = reading->defaults->deadline_ms;
    if (reading->given[FIELD_ON_FAILURE] != NULL)
        setting_parse_choice(path_of(reading, FIELD_ON_FAILURE), on_failures, reading->given[FIELD_ON_FAILURE],
                             reading->faults, &on_failure);
    if (reading->given[FIELD_DEADLINE] != NULL)
        setting_parse_number(SETTING_DURATION, path_of(reading, FIELD_DEADLINE), 1, DEADLINE_MAX_MS,
                             reading->given[FIELD_DEADLINE], reading->faults, &deadline_ms);
    policy->on_failure = (enum on_failure)on_failure;
    policy->deadline_ms = (uint32_t)deadline_ms;
}

/* Returns the foreign prefix, NULL = the preset's own. */
static const char *read_values(struct reading *reading, struct limit *limit)
{
    if (is_given(reading, FIELD_LIMIT)) read_count(reading, FIELD_LIMIT, 0, &limit->limit);
    if (is_given(reading, FIELD_WINDOW)) read_duration(reading, FIELD_WINDOW, false, &limit->window_us);
    read_duration(reading, FIELD_MAX_WAIT, true, &limit->max_wait_us);
    limit->burst = BUCKETS & (1u << limit->algo) ? limit->limit : 0;
    read_count(reading, FIELD_BURST, 1, &limit->burst);
    if (reading->given[FIELD_COUNT_DENIED] != NULL)
        setting_parse_bool(path_of(reading, FIELD_COUNT_DENIED), reading->given[FIELD_COUNT_DENIED], reading->faults,
                           &limit->count_denied);
    read_start(reading, limit);
    return read_prefix(reading);
}

/* What only the algorithm knows. Its message begins with the setting it is about, so the fault goes to that line. */
static void prepare(struct reading *reading, struct limit *limit, const char *prefix)
{
    char text[256];
    const struct tree_node *burst = reading->given[FIELD_BURST];
    if (limit->limit == 0 && burst != NULL) {
        faults_add(reading->faults, burst->line, path_of(reading, FIELD_BURST),
                   "stands beside limit: 0, which denies always; leave it out");
        return;
    }
    const char *wrong = limit_prepare(limit, prefix, text, sizeof text);
    if (wrong == NULL) return;
    for (size_t i = 0; i < N_FIELDS; i++) {
        size_t len = strlen(fields[i].name);
        if (reading->given[i] == NULL || strncmp(wrong, fields[i].name, len) != 0 || wrong[len] != ' ') continue;
        faults_add(reading->faults, reading->given[i]->line, path_of(reading, i), "%s", wrong + len + 1);
        return;
    }
    faults_add(reading->faults, reading->node->line, path_to(reading, NULL), "%s", wrong);
}

static void no_memory(struct faults *faults, uint32_t line)
{
    faults_add(faults, line, "policies", "out of memory; give the daemon more, or write fewer policies");
}

/* One limit: of a policy that has just this one, or of a list. */
static void read_limit(struct reading *reading, struct limit *limit)
{
    size_t n_errors = reading->faults->n_errors;
    int algo = read_algo(reading);
    if (algo >= 0) refuse_foreign_fields(reading, (enum algo)algo);
    limit->algo = algo >= 0 ? (enum algo)algo : ALGO_FIXED_WINDOW;
    const char *prefix = read_values(reading, limit);
    if (reading->faults->n_errors == n_errors) prepare(reading, limit, prefix);
}

/* The limit's name, which none of the policy's limits before it has. */
static void read_limit_name(struct reading *reading, struct limit *limit)
{
    char shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = reading->given[FIELD_NAME];
    if (!is_given(reading, FIELD_NAME)) return;
    const char *text = setting_parse_text(path_of(reading, FIELD_NAME), node, reading->faults);
    if (text == NULL) return;
    faults_shown(shown, text);
    if (!is_name(text)) {
        faults_add(reading->faults, node->line, reading->path,
                   "%s is no name; write 1 to %d letters, digits, dots, dashes or underscores", shown, NAME_MAX_LEN);
        return;
    }
    for (const struct limit *other = limit->policy->limits; other < limit; other++) {
        if (strcmp(other->name, text) != 0) continue;
        faults_add(reading->faults, node->line, reading->path, "%s is the name of limits[%d] already; write another",
                   shown, (int)(other - limit->policy->limits));
        return;
    }
    snprintf(limit->name, sizeof limit->name, "%s", text);
}

static void read_limits(const struct reading *reading, struct policy *policy)
{
    const struct tree_node *node = reading->given[FIELD_LIMITS]->first;
    for (uint16_t i = 0; i < policy->n_limits; i++, node = node->next) {
        struct reading item = {.node = node, .in_list = true, .faults = reading->faults};
        snprintf(item.base, sizeof item.base, "policies.%.64s.limits[%u]", reading->node->key, i);
        if (!gather(&item)) continue;
        read_limit_name(&item, &policy->limits[i]);
        read_limit(&item, &policy->limits[i]);
    }
}

static size_t count(const struct tree_node *node)
{
    size_t n = 0;
    for (const struct tree_node *child = node->first; child != NULL; child = child->next) n++;
    return n;
}

/* How many limits the policy has; 0 with the fault recorded. */
static uint16_t count_limits(struct reading *reading)
{
    const struct tree_node *list = reading->given[FIELD_LIMITS];
    if (list == NULL) return 1;
    if (list->kind == TREE_REFUSED) return 0;
    size_t n = list->kind == TREE_LIST ? count(list) : 0;
    if (n >= 1 && n <= POLICY_LIMITS_MAX) return (uint16_t)n;
    if (list->kind == TREE_LIST)
        faults_add(reading->faults, list->line, path_of(reading, FIELD_LIMITS), "has %zu entries; write 1 to %d", n,
                   POLICY_LIMITS_MAX);
    else
        faults_add(reading->faults, list->line, path_of(reading, FIELD_LIMITS),
                   "is no list; write a line below it for each limit, - {name: ..., algorithm: ..., limit: ..., "
                   "window: ...}");
    return 0;
}

/* The policy, or NULL with the fault recorded. */
static struct policy *read_policy(struct reading *reading)
{
    size_t n_errors = reading->faults->n_errors;
    snprintf(reading->base, sizeof reading->base, "policies.%.64s", reading->node->key);
    if (!is_name(reading->node->key))
        faults_add(reading->faults, reading->node->line, path_to(reading, NULL),
                   "is no name for a policy; write 1 to %d letters, digits, dots, dashes or underscores", NAME_MAX_LEN);
    if (!gather(reading)) return NULL;
    uint16_t n_limits = count_limits(reading);
    struct policy *policy =
        policy_new(is_name(reading->node->key) ? reading->node->key : "unnamed", n_limits > 0 ? n_limits : 1);
    if (policy == NULL) {
        no_memory(reading->faults, reading->node->line);
        return NULL;
    }
    if (reading->given[FIELD_LIMITS] == NULL)
        read_limit(reading, &policy->limits[0]);
    else if (n_limits > 0)
        read_limits(reading, policy);
    read_failure(reading, policy);
    if (reading->faults->n_errors == n_errors) {
        policy_seal(policy);
        return policy;
    }
    policy_free(policy);
    return NULL;
}

/* Several policies */

struct foreign {
    const struct limit *limit;
    uint32_t line;
};

static int by_prefix(const void *left, const void *right)
{
    const struct foreign *a = left, *b = right;
    int order = strcmp(a->limit->key_head, b->limit->key_head);
    if (order != 0) return order;
    return a->line < b->line ? -1 : a->line > b->line;
}

/* On one prefix a key is either a string or a sorted set: what one policy writes would be WRONGTYPE to the other. */
static void refuse_mixed_prefixes(struct foreign *foreign, size_t n, struct faults *faults)
{
    char key[FAULTS_KEY_MAX];
    if (n > 1) qsort(foreign, n, sizeof *foreign, by_prefix);
    for (size_t i = 1; i < n; i++) {
        const struct limit *first = foreign[i - 1].limit, *second = foreign[i].limit;
        if (strcmp(first->key_head, second->key_head) != 0) continue;
        if (limit_ops(first)->kind == limit_ops(second)->kind) continue;
        snprintf(key, sizeof key, "policies.%s", second->policy->name);
        faults_add(
            faults, foreign[i].line, key,
            "shares the prefix %s with policy %s, but one keeps strings in Redis and the other sorted sets; give "
            "one of them another key_prefix",
            second->key_head, first->policy->name);
    }
}

/* Every policy of the tree into the set; those that share keys with other systems into `foreign` as well. */
static int read_all(struct policy_set *set, const struct tree_node *policies, const struct policy_defaults *defaults,
                    struct faults *faults, struct foreign *foreign, size_t *ret_n_foreign)
{
    for (const struct tree_node *node = policies->first; node != NULL; node = node->next) {
        struct reading reading = {.node = node, .defaults = defaults, .faults = faults};
        struct policy *policy = read_policy(&reading);
        if (policy == NULL) continue;
        int status = policy_set_add(set, policy);
        if (status < 0) policy_free(policy);
        if (status == -1) {
            no_memory(faults, node->line);
            return -1;
        }
        CHECK(status == 0); /* the tree refuses duplicate keys */
        if (limit_ops(&policy->limits[0])->is_compat)
            foreign[(*ret_n_foreign)++] = (struct foreign){&policy->limits[0], node->line};
    }
    return 0;
}

struct policy_set *policy_yaml_load(const struct tree_node *policies, const struct policy_defaults *defaults,
                                    struct faults *faults)
{
    size_t n_foreign = 0;
    if (policies->kind != TREE_MAP && !policies->is_null && policies->kind != TREE_REFUSED)
        faults_add(faults, policies->line, "policies", "is no map; write each policy's name below it, indented");
    struct policy_set *set = policy_set_new();
    struct foreign *foreign = mem_alloc(count(policies) * sizeof *foreign);
    if (set == NULL || foreign == NULL) {
        no_memory(faults, policies->line);
        goto err_free;
    }
    if (policies->kind == TREE_MAP && read_all(set, policies, defaults, faults, foreign, &n_foreign) < 0) goto err_free;
    refuse_mixed_prefixes(foreign, n_foreign, faults);
    mem_free(foreign);
    return set;

err_free:
    mem_free(foreign);
    policy_set_unref(set);
    return NULL;
}

struct policy_set *policy_yaml_default(const struct policy_defaults *defaults, struct faults *faults)
{
    static const char text[] = "default: {algorithm: token_bucket, limit: 100, window: 1s}\n";
    struct tree_node *tree = yaml_tree_parse(text, sizeof text - 1, faults);
    struct policy_set *set = tree != NULL ? policy_yaml_load(tree, defaults, faults) : NULL;
    yaml_tree_free(tree);
    return set;
}
