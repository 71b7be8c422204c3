#include "policy/inline_policies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "policy/tree.h"

COUNTERS_DEFINE(inline, INLINE_COUNTERS);

enum {
    FORMS_MAX = 4,        /* of one policy that are known: clients in several languages write it each in its own way */
    FORMS_EXPECTED = 1024 /* slots of the tables; more policies make their chains longer */
};

/* Settings in the bytes of some client. */
struct inline_form {
    struct map_node node;
    struct inline_policy *policy;
    uint8_t *bytes; /* owned; NULL: not used */
    size_t len;
};

struct inline_policy {
    struct list link;
    struct map_node node;
    struct policy_set *set; /* one reference; holds one policy */
    uint8_t *settings;      /* owned; as tree_write() says them */
    size_t settings_len;
    struct inline_form forms[FORMS_MAX];
    unsigned next_form; /* to be given up for another */
};

int inline_policies_init(struct inline_policies *policies)
{
    *policies = (struct inline_policies){0};
    list_init(&policies->by_use);
    if (map_init(&policies->by_form, FORMS_EXPECTED) != 0) return -1;
    if (map_init(&policies->by_settings, FORMS_EXPECTED) == 0) return 0;
    map_fini(&policies->by_form);
    return -1;
}

static void forget_form(struct inline_policies *policies, struct inline_form *form)
{
    if (form->bytes == NULL) return;
    map_remove(&policies->by_form, &form->node);
    mem_free(form->bytes);
    form->bytes = NULL;
}

static void forget(struct inline_policies *policies, struct inline_policy *policy)
{
    for (int i = 0; i < FORMS_MAX; i++) forget_form(policies, &policy->forms[i]);
    map_remove(&policies->by_settings, &policy->node);
    list_remove(&policy->link);
    policies->n--;
    policy_set_unref(policy->set);
    mem_free(policy->settings);
    mem_free(policy);
}

static void forget_all(struct inline_policies *policies)
{
    while (!list_empty(&policies->by_use))
        forget(policies, LIST_ITEM(policies->by_use.next, struct inline_policy, link));
    inline_counters.inline_policies = 0;
}

void inline_policies_fini(struct inline_policies *policies)
{
    forget_all(policies);
    map_fini(&policies->by_form);
    map_fini(&policies->by_settings);
}

void inline_policies_configure(struct inline_policies *policies, size_t max, struct policy_defaults defaults)
{
    forget_all(policies);
    policies->max = max;
    policies->defaults = defaults;
}

/* ---- Found again ---- */

static struct inline_policy *find_form(const struct inline_policies *policies, struct slice map)
{
    struct map_node *node = map_first(&policies->by_form, hash_keyed(map.data, map.len));
    for (; node != NULL; node = map_next_same(node)) {
        const struct inline_form *form = CONTAINER_OF(node, struct inline_form, node);
        if (slice_eq((struct slice){form->bytes, form->len}, map)) return form->policy;
    }
    return NULL;
}

static struct inline_policy *find_settings(const struct inline_policies *policies, struct slice settings)
{
    struct map_node *node = map_first(&policies->by_settings, hash_keyed(settings.data, settings.len));
    for (; node != NULL; node = map_next_same(node)) {
        struct inline_policy *policy = CONTAINER_OF(node, struct inline_policy, node);
        if (slice_eq((struct slice){policy->settings, policy->settings_len}, settings)) return policy;
    }
    return NULL;
}

static uint8_t *copy_of(struct slice bytes)
{
    uint8_t *copy = mem_alloc(bytes.len);
    if (copy != NULL) memcpy(copy, bytes.data, bytes.len);
    return copy;
}

/* So that it is found at once the next time. Without memory it is not, and no more. */
static void learn_form(struct inline_policies *policies, struct inline_policy *policy, struct slice map)
{
    uint8_t *bytes = copy_of(map);
    if (bytes == NULL) return;
    struct inline_form *form = &policy->forms[policy->next_form];
    policy->next_form = (policy->next_form + 1) % FORMS_MAX;
    forget_form(policies, form);
    form->policy = policy;
    form->bytes = bytes;
    form->len = map.len;
    map_insert(&policies->by_form, &form->node, hash_keyed(map.data, map.len));
}

static void touch(struct inline_policies *policies, struct inline_policy *policy)
{
    list_remove(&policy->link);
    list_push_back(&policies->by_use, &policy->link);
}

/* ---- Made ---- */

static bool is_idle(const struct inline_policy *policy)
{
    return policy->set->n_refs == 1;
}

/* Room for one more; false where every one is in use. */
static bool make_room(struct inline_policies *policies)
{
    if (policies->n < policies->max) return true;
    LIST_FOREACH (link, &policies->by_use) {
        struct inline_policy *policy = LIST_ITEM(link, struct inline_policy, link);
        if (!is_idle(policy)) continue;
        forget(policies, policy);
        inline_counters.inline_evicted++;
        return true;
    }
    return false;
}

/* Takes over `set`. NULL without memory. */
static struct inline_policy *keep(struct inline_policies *policies, struct policy_set *set, struct slice settings)
{
    struct inline_policy *policy = mem_zalloc(sizeof *policy);
    uint8_t *copy = copy_of(settings);
    if (policy == NULL || copy == NULL) {
        policy_set_unref(set);
        mem_free(policy);
        mem_free(copy);
        return NULL;
    }
    policy->set = set;
    policy->settings = copy;
    policy->settings_len = settings.len;
    map_insert(&policies->by_settings, &policy->node, hash_keyed(settings.data, settings.len));
    list_push_back(&policies->by_use, &policy->link);
    inline_counters.inline_policies = ++policies->n;
    return policy;
}

/* Where an answer about a refused policy goes. */
struct answer {
    char *text;
    size_t size;
};

static enum error_code no_memory(struct answer answer)
{
    snprintf(answer.text, answer.size, "policy: memory is short; try again later");
    return ERROR_OVERLOADED;
}

/* A client shall know whether the fault is its own. */
static enum error_code say_fault(const struct faults *faults, struct answer answer)
{
    const char *text;
    if (faults_first_error(faults, &text) == DIAG_NO_MEMORY) return no_memory(answer);
    snprintf(answer.text, answer.size, "%s", text);
    return ERROR_BAD_REQUEST;
}

static bool shares_foreign_keys(const struct policy_set *set)
{
    const struct policy *policy = set->in_order[0];
    return policy->n_limits > 0 && limit_ops(&policy->limits[0])->is_compat;
}

static enum error_code make(struct inline_policies *policies, struct tree_node *tree, struct slice settings,
                            struct inline_policy **ret, struct answer answer)
{
    char name[NAME_MAX_LEN + 1];
    struct faults faults;
    uint64_t fingerprint = hash_stable(HASH_STABLE_START, settings.data, settings.len);
    snprintf(name, sizeof name, "inline-%016" PRIx64, fingerprint);
    faults_init(&faults);
    struct policy_set *set = policy_read_inline(tree, name, &policies->defaults, &faults);
    enum error_code code = ERROR_NONE;
    if (set == NULL) code = say_fault(&faults, answer);
    faults_fini(&faults);
    if (set == NULL) return code;
    if (shares_foreign_keys(set)) {
        snprintf(answer.text, answer.size,
                 "policy.compat: shares another system's keys, which only the configuration may name; write the policy "
                 "into it");
        code = ERROR_NOT_PERMITTED;
    } else if (!make_room(policies)) {
        snprintf(answer.text, answer.size,
                 "policy: %zu inline policies (inline.max_policies) are in use; try again later, or raise it",
                 policies->max);
        code = ERROR_OVERLOADED;
    }
    if (code != ERROR_NONE) {
        policy_set_unref(set);
        return code;
    }
    *ret = keep(policies, set, settings);
    return *ret != NULL ? ERROR_NONE : no_memory(answer);
}

/* Settings in a form that is new here. */
static enum error_code read_form(struct inline_policies *policies, struct slice map, struct inline_policy **ret,
                                 struct answer answer)
{
    struct buffer bytes;
    struct faults faults;
    enum error_code code = ERROR_NONE;
    faults_init(&faults);
    buffer_init(&bytes, 0);
    struct tree_node *tree = tree_unpack(map, "policy", &faults);
    if (tree == NULL) {
        code = say_fault(&faults, answer);
    } else if (tree_write(tree, &bytes) != 0) {
        code = no_memory(answer);
    } else {
        const struct slice settings = {buffer_data(&bytes), buffer_len(&bytes)};
        *ret = find_settings(policies, settings);
        if (*ret != NULL)
            touch(policies, *ret);
        else
            code = make(policies, tree, settings, ret, answer);
    }
    tree_free(tree);
    buffer_fini(&bytes);
    faults_fini(&faults);
    return code;
}

enum error_code inline_policies_find(struct inline_policies *policies, struct slice map, struct policy_set **ret_set,
                                     char *text, size_t size)
{
    struct inline_policy *policy = find_form(policies, map);
    if (policy != NULL) {
        touch(policies, policy);
    } else {
        if (map.len > INLINE_BYTES_MAX) {
            snprintf(text, size, "policy: has %zu bytes; at most %d are allowed", map.len, INLINE_BYTES_MAX);
            return ERROR_BAD_REQUEST;
        }
        enum error_code code = read_form(policies, map, &policy, (struct answer){text, size});
        if (policy == NULL) return code;
        learn_form(policies, policy, map);
    }
    *ret_set = policy->set;
    return ERROR_NONE;
}
