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
    FORMS_MAX = 4,         /* of one policy, by clients: those in several languages write it each in its own way */
    FORMS_EXPECTED = 2048, /* slots of the table; more policies make its chains longer */
};

/* Settings as bytes: a packed map, or what tree_write() makes of one, which begins as no packed map does. */
struct inline_form {
    struct map_node node;
    struct inline_policy *policy;
    uint8_t *bytes; /* owned; NULL: not used */
    size_t len;
};

struct inline_policy {
    struct list link;
    struct policy_set *set;              /* one reference; holds one policy */
    struct inline_form written;          /* by tree_write() */
    struct inline_form forms[FORMS_MAX]; /* by clients */
    unsigned next_form;                  /* to be given up for another */
};

/* Where an answer about a refused policy goes. */
struct answer {
    char *text;
    size_t size;
};

int inline_policies_init(struct inline_policies *policies)
{
    *policies = (struct inline_policies){0};
    list_init(&policies->by_use);
    return map_init(&policies->by_form, FORMS_EXPECTED);
}

/* ---- Forms ---- */

static struct inline_policy *find(const struct inline_policies *policies, struct slice bytes)
{
    struct map_node *node = map_first(&policies->by_form, hash_keyed(bytes.data, bytes.len));
    for (; node != NULL; node = map_next_same(node)) {
        const struct inline_form *form = CONTAINER_OF(node, struct inline_form, node);
        if (slice_eq((struct slice){form->bytes, form->len}, bytes)) return form->policy;
    }
    return NULL;
}

static void unlearn(struct inline_policies *policies, struct inline_form *form)
{
    if (form->bytes == NULL) return;
    map_remove(&policies->by_form, &form->node);
    mem_free(form->bytes);
    form->bytes = NULL;
}

/* `form`, in place of what it was, so that its policy is found by these bytes. 0, or -1 without memory. */
static int learn(struct inline_policies *policies, struct inline_form *form, struct inline_policy *policy,
                 struct slice bytes)
{
    uint8_t *copy = mem_alloc(bytes.len);
    if (copy == NULL) return -1;
    memcpy(copy, bytes.data, bytes.len);

    unlearn(policies, form);
    form->policy = policy;
    form->bytes = copy;
    form->len = bytes.len;
    map_insert(&policies->by_form, &form->node, hash_keyed(bytes.data, bytes.len));
    return 0;
}

/* ---- What is kept ---- */

static void forget(struct inline_policies *policies, struct inline_policy *policy)
{
    for (int i = 0; i < FORMS_MAX; i++) unlearn(policies, &policy->forms[i]);
    unlearn(policies, &policy->written);
    list_remove(&policy->link);
    policies->n--;
    policy_set_unref(policy->set);
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
}

void inline_policies_configure(struct inline_policies *policies, size_t max, struct policy_defaults defaults)
{
    forget_all(policies);
    policies->max = max;
    policies->defaults = defaults;
}

/* ---- Found, or made ---- */

/* One more may be kept; false where every one is in use. */
static bool make_space(struct inline_policies *policies)
{
    if (policies->n < policies->max) return true;

    LIST_FOREACH (link, &policies->by_use) {
        struct inline_policy *policy = LIST_ITEM(link, struct inline_policy, link);
        if (policy->set->n_refs > 1) continue; /* checks hold it */
        forget(policies, policy);
        inline_counters.inline_evicted++;
        return true;
    }
    return false;
}

static enum error_code answer_no_memory(struct answer answer)
{
    snprintf(answer.text, answer.size, "policy: memory is short; try again later");
    return ERROR_OVERLOADED;
}

/* A client shall know whether the fault is its own. */
static enum error_code answer_fault(const struct faults *faults, struct answer answer)
{
    const char *text;
    if (faults_first_error(faults, &text) == DIAG_NO_MEMORY) return answer_no_memory(answer);
    snprintf(answer.text, answer.size, "%s", text);
    return ERROR_BAD_REQUEST;
}

/* A policy of settings that are new here. */
static enum error_code make(struct inline_policies *policies, struct tree_node *tree, struct slice settings,
                            struct faults *faults, struct inline_policy **ret, struct answer answer)
{
    char name[NAME_MAX_LEN + 1];
    enum error_code code;
    struct inline_policy *policy = NULL;
    snprintf(name, sizeof name, "inline-%016" PRIx64, hash_stable(HASH_STABLE_START, settings.data, settings.len));
    struct policy_set *set = policy_read_inline(tree, name, &policies->defaults, faults);
    if (set == NULL) return answer_fault(faults, answer);

    const struct policy *only = set->in_order[0];
    if (only->n_limits > 0 && limit_ops(&only->limits[0])->is_compat) {
        snprintf(answer.text, answer.size,
                 "policy.compat: shares another system's keys, which only the configuration may name; write the policy "
                 "into it");
        code = ERROR_NOT_PERMITTED;
    } else if (!make_space(policies)) {
        snprintf(answer.text, answer.size,
                 "policy: %zu inline policies (inline.max_policies) are in use; try again later, or raise it",
                 policies->max);
        code = ERROR_OVERLOADED;
    } else if ((policy = mem_zalloc(sizeof *policy)) == NULL ||
               learn(policies, &policy->written, policy, settings) < 0) {
        code = answer_no_memory(answer);
    } else {
        policy->set = set;
        list_push_back(&policies->by_use, &policy->link);
        inline_counters.inline_policies = ++policies->n;
        *ret = policy;
        return ERROR_NONE;
    }

    mem_free(policy);
    policy_set_unref(set);
    return code;
}

/* The policy of a form that is new here. */
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
        code = answer_fault(&faults, answer);
    } else if (tree_write(tree, &bytes) != 0) {
        code = answer_no_memory(answer);
    } else {
        const struct slice settings = {buffer_data(&bytes), buffer_len(&bytes)};
        *ret = find(policies, settings);
        if (*ret == NULL) code = make(policies, tree, settings, &faults, ret, answer);
    }

    tree_free(tree);
    buffer_fini(&bytes);
    faults_fini(&faults);
    return code;
}

enum error_code inline_policies_find(struct inline_policies *policies, struct slice map, struct policy_set **ret_set,
                                     char *text, size_t size)
{
    struct inline_policy *policy = find(policies, map);
    if (policy == NULL) {
        if (map.len > INLINE_BYTES_MAX) {
            snprintf(text, size, "policy: has %zu bytes; at most %d are allowed", map.len, INLINE_BYTES_MAX);
            return ERROR_BAD_REQUEST;
        }
        enum error_code code = read_form(policies, map, &policy, (struct answer){text, size});
        if (policy == NULL) return code;

        /* So that it is found at once the next time; without memory it is not, and no more. */
        if (learn(policies, &policy->forms[policy->next_form], policy, map) == 0)
            policy->next_form = (policy->next_form + 1) % FORMS_MAX;
    }

    list_remove(&policy->link);
    list_push_back(&policies->by_use, &policy->link);
    *ret_set = policy->set;
    return ERROR_NONE;
}
