/* inline_policies.c: a table of inline policies by spelling and by settings, for server/ and the engine. */
#include "policy/inline_policies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "policy/reading.h"
#include "policy/tree.h"

COUNTERS_DEFINE(inline, INLINE_COUNTERS);

enum {
    SPELLINGS_MAX = 4,      /* of one policy, by clients: those in several languages write it each in its own way */
    SPELLINGS_EXPECTED = 2, /* of one policy, for the width of the table: more make its chains longer */
    EVICTION_TRIES = 1000,  /* policies looked at for one that no check holds */
    FREED_FOR_EACH_NEW = 2, /* replaced ones, so that they become fewer faster than new ones come */
    ID_MAX = 256,           /* bytes of an id */
};

/* Settings as bytes: a packed map, or what tree_write() makes of one, which begins as no packed map does. */
struct spelling {
    struct map_node node;
    struct inline_policy *policy;
    uint8_t *bytes; /* owned; NULL: not used */
    size_t len;
};

struct inline_policy {
    struct list link;
    struct map_node in_names, in_labels;      /* the second one only with a label */
    struct policy_set *set;                   /* one reference; holds one policy */
    struct spelling written;                  /* the label, and the rest by tree_write() */
    struct spelling spellings[SPELLINGS_MAX]; /* by clients */
    unsigned next_spelling;                   /* to be given up for another */
    uint16_t listed_at;                       /* in policies->listed, if it is there */
};

/* Where an answer about a refused policy goes. */
struct answer {
    char *text;
    size_t size;
};

void inline_policies_init(struct inline_policies *policies)
{
    *policies = (struct inline_policies){0};
    list_init(&policies->by_use);
    list_init(&policies->replaced);
}

/* ---- Spellings ---- */

static struct inline_policy *find_spelling(const struct inline_policies *policies, struct slice bytes)
{
    struct map_node *node = map_first(&policies->by_spelling, hash_keyed(bytes.data, bytes.len));
    for (; node != NULL; node = map_next_same(node)) {
        const struct spelling *spelling = CONTAINER_OF(node, struct spelling, node);
        if (slice_eq((struct slice){spelling->bytes, spelling->len}, bytes)) return spelling->policy;
    }
    return NULL;
}

static void forget_spelling(struct inline_policies *policies, struct spelling *spelling)
{
    if (spelling->bytes == NULL) return;
    map_remove(&policies->by_spelling, &spelling->node);
    mem_free(spelling->bytes);
    spelling->bytes = NULL;
}

/* Makes `spelling`, in place of what it was, these bytes, so that its policy is found by these bytes. 0, or -1 without
 * memory. */
static int learn_spelling(struct inline_policies *policies, struct spelling *spelling, struct inline_policy *policy,
                          struct slice bytes)
{
    uint8_t *copy = mem_alloc(bytes.len);
    if (copy == NULL) return -1;
    memcpy(copy, bytes.data, bytes.len);

    forget_spelling(policies, spelling);
    spelling->policy = policy;
    spelling->bytes = copy;
    spelling->len = bytes.len;
    map_insert(&policies->by_spelling, &spelling->node, hash_keyed(bytes.data, bytes.len));
    return 0;
}

/* ---- What is kept ---- */

static bool has_label(const struct policy *policy)
{
    return strcmp(policy->label, policy->name) != 0;
}

static uint64_t hash_of_name(const char *name)
{
    return hash_keyed(name, strlen(name));
}

static void forget_policy(struct inline_policies *policies, struct inline_policy *policy)
{
    if (policies->listed[policy->listed_at] == policy) policies->listed[policy->listed_at] = NULL;
    for (int i = 0; i < SPELLINGS_MAX; i++) forget_spelling(policies, &policy->spellings[i]);
    forget_spelling(policies, &policy->written);
    map_remove(&policies->by_name, &policy->in_names);
    if (has_label(policy->set->in_order[0])) map_remove(&policies->by_label, &policy->in_labels);
    list_remove(&policy->link);
    policies->n--;
    policies->n_live_shares -= policy->set->n_live_shares;
    policy_set_unref(policy->set);
    mem_free(policy);
}

void inline_policies_free_replaced(struct inline_policies *policies, size_t max)
{
    for (; max > 0 && !list_empty(&policies->replaced); max--) {
        struct inline_policy *policy = LIST_ITEM(list_pop_front(&policies->replaced), struct inline_policy, link);
        for (int i = 0; i < SPELLINGS_MAX; i++) mem_free(policy->spellings[i].bytes);
        mem_free(policy->written.bytes);
        policy_set_unref(policy->set);
        mem_free(policy);
    }
}

void inline_policies_fini(struct inline_policies *policies)
{
    list_append(&policies->replaced, &policies->by_use);
    inline_policies_free_replaced(policies, SIZE_MAX);
    map_fini(&policies->by_spelling);
    map_fini(&policies->by_label);
    map_fini(&policies->by_name);
    inline_counters.inline_policies = 0;
}

/* New tables, as wide as `max` policies want them, in place of the present ones. 0, or -1 without memory. */
static int widen_tables(struct inline_policies *policies, size_t max)
{
    struct map by_name, by_label, by_spelling;
    if (map_init(&by_name, max) < 0) return -1;
    if (map_init(&by_label, max) < 0) goto err_fini_names;
    if (map_init(&by_spelling, max * SPELLINGS_EXPECTED) < 0) goto err_fini_labels;

    map_fini(&policies->by_name);
    map_fini(&policies->by_label);
    map_fini(&policies->by_spelling);
    policies->by_name = by_name;
    policies->by_label = by_label;
    policies->by_spelling = by_spelling;
    return 0;

err_fini_labels:
    map_fini(&by_label);
err_fini_names:
    map_fini(&by_name);
    return -1;
}

int inline_policies_configure(struct inline_policies *policies, size_t max, struct policy_defaults defaults)
{
    if (widen_tables(policies, max) == 0) {
        list_append(&policies->replaced, &policies->by_use); /* which are in no table any more */
        policies->n = policies->n_live_shares = 0;
    } else { /* the tables there are go on, empty */
        while (!list_empty(&policies->by_use))
            forget_policy(policies, LIST_ITEM(policies->by_use.next, struct inline_policy, link));
    }

    inline_counters.inline_policies = 0;
    policies->n_listed = 0;
    policies->max = max;
    policies->defaults = defaults;
    return policies->by_spelling.slots != NULL ? 0 : -1;
}

/* ---- Found, or made ---- */

/* Makes space for one more policy. False if all those that one call looks at are in use. */
static bool evict_unused(struct inline_policies *policies)
{
    if (policies->n < policies->max) return true;

    for (size_t i = 0; i < policies->n && i < EVICTION_TRIES; i++) {
        struct inline_policy *policy = LIST_ITEM(policies->by_use.next, struct inline_policy, link);
        if (policy->set->n_refs > 1) { /* checks hold it: the next call looks at others first */
            list_remove(&policy->link);
            list_push_back(&policies->by_use, &policy->link);
            continue;
        }
        forget_policy(policies, policy);
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
    if (faults_first_error(faults, &text) == FAULT_NO_MEMORY) return answer_no_memory(answer);
    snprintf(answer.text, answer.size, "%s", text);
    return ERROR_BAD_REQUEST;
}

/* What a client calls its policy, if it does; false with the fault recorded. A name that begins as those without a
 * label do would be taken for one of them. */
static bool is_label(const struct tree_node *label, struct faults *faults)
{
    bool is_name = label->kind == TREE_TEXT && !label->is_null && reading_is_name(label->text);
    if (is_name && strncmp(label->text, INLINE_NAME_HEAD, strlen(INLINE_NAME_HEAD)) != 0) return true;
    faults_add(faults, 0, "policy.name",
               "is not a name for an inline policy; write 1 to %d letters, digits, dots, dashes or underscores, and "
               "not " INLINE_NAME_HEAD " in front",
               NAME_MAX_LEN);
    return false;
}

/* What a client says is counted together, whatever the limit is; false with the fault recorded. */
static bool is_id(const struct tree_node *id, struct faults *faults)
{
    size_t len = id->kind == TREE_TEXT ? strlen(id->text) : 0, i = 0;
    while (i < len && (uint8_t)id->text[i] >= ' ' && id->text[i] != '\x7f') i++;
    if (len > 0 && len <= ID_MAX && i == len) return true;
    faults_add(faults, 0, "policy.id",
               "is not an id; write a text of 1 to %d bytes without control characters, such as the endpoint's name",
               ID_MAX);
    return false;
}

static struct inline_policy *find_name(const struct inline_policies *policies, struct slice name)
{
    struct map_node *node = map_first(&policies->by_name, hash_keyed(name.data, name.len));
    for (; node != NULL; node = map_next_same(node)) {
        struct inline_policy *policy = CONTAINER_OF(node, struct inline_policy, in_names);
        if (slice_is(name, policy->set->in_order[0]->name)) return policy;
    }
    return NULL;
}

/* A policy of settings that are new here, or new under this label ("": none), which `written` begins with. With an id
 * (NULL: none) it takes the place of the one with other settings, and goes on with its counts. */
static enum error_code make_policy(struct inline_policies *policies, struct tree_node *tree, const char *label,
                                   const char *id, struct slice written, struct faults *faults,
                                   struct inline_policy **ret, struct answer answer)
{
    char name[NAME_MAX_LEN + 1];
    enum error_code code;
    struct inline_policy *policy = NULL;
    inline_policies_free_replaced(policies, FREED_FOR_EACH_NEW);
    size_t label_len = strlen(label);
    const struct slice named_by =
        id != NULL ? slice_of(id) : (struct slice){written.data + label_len, written.len - label_len};
    snprintf(name, sizeof name, "%s%016" PRIx64, id != NULL ? INLINE_ID_HEAD : INLINE_NAME_HEAD,
             hash_stable(HASH_STABLE_START, named_by.data, named_by.len));
    struct policy_set *set = policy_read_inline(tree, name, id, &policies->defaults, faults);
    if (set == NULL) return answer_fault(faults, answer);

    struct inline_policy *before = id != NULL ? find_name(policies, slice_of(name)) : NULL;
    struct policy *only = set->in_order[0];
    only->counts->sum = &policy_counts_inline;
    if (label_len > 0) policy_set_label(only, label);
    if (only->n_limits > 0 && limit_ops(&only->limits[0])->is_compat) {
        snprintf(answer.text, answer.size,
                 "policy.compat: shares another system's keys, which only the configuration may name; write the policy "
                 "into it");
        code = ERROR_NOT_PERMITTED;
    } else if (before == NULL && !evict_unused(policies)) {
        snprintf(answer.text, answer.size,
                 "policy: %zu inline policies (inline.max_policies) are in use; try again later, or raise it",
                 policies->max);
        code = ERROR_OVERLOADED;
    } else if ((policy = mem_zalloc(sizeof *policy)) == NULL ||
               learn_spelling(policies, &policy->written, policy, written) < 0) {
        code = answer_no_memory(answer);
    } else {
        if (before != NULL) {
            policy_set_share_counts(set, before->set);
            forget_policy(policies, before);
        }
        policy->set = set;
        map_insert(&policies->by_name, &policy->in_names, hash_of_name(only->name));
        if (has_label(only)) map_insert(&policies->by_label, &policy->in_labels, hash_of_name(only->label));
        list_push_back(&policies->by_use, &policy->link);
        policies->n_live_shares += set->n_live_shares;
        inline_counters.inline_policies = ++policies->n;
        *ret = policy;
        return ERROR_NONE;
    }

    mem_free(policy);
    policy_set_unref(set);
    return code;
}

/* The policy of a spelling that is new here. */
static enum error_code read_spelling(struct inline_policies *policies, struct slice map, struct inline_policy **ret,
                                     struct answer answer)
{
    struct buffer bytes;
    struct faults faults;
    enum error_code code = ERROR_NONE;
    faults_init(&faults);
    buffer_init(&bytes, 0);

    struct tree_node *tree = tree_unpack(map, "policy", &faults);
    struct tree_node *label = tree != NULL ? tree_take(tree, "name") : NULL, *id = NULL;
    if (tree == NULL || (label != NULL && !is_label(label, &faults))) {
        code = answer_fault(&faults, answer);
    } else if ((label != NULL && buffer_append(&bytes, label->text, strlen(label->text)) != 0) ||
               tree_write(tree, &bytes) != 0) {
        code = answer_no_memory(answer);
    } else {
        const struct slice written = {buffer_data(&bytes), buffer_len(&bytes)};
        *ret = find_spelling(policies, written);
        if (*ret == NULL) id = tree_take(tree, "id");
        if (id != NULL && !is_id(id, &faults))
            code = answer_fault(&faults, answer);
        else if (*ret == NULL)
            code = make_policy(policies, tree, label != NULL ? label->text : "", id != NULL ? id->text : NULL, written,
                               &faults, ret, answer);
    }

    tree_free(id);
    tree_free(label);
    tree_free(tree);
    buffer_fini(&bytes);
    faults_fini(&faults);
    return code;
}

static void note_use(struct inline_policies *policies, struct inline_policy *policy)
{
    list_remove(&policy->link);
    list_push_back(&policies->by_use, &policy->link);
}

enum error_code inline_policies_find(struct inline_policies *policies, struct slice map, struct policy_set **ret_set,
                                     char *text, size_t size)
{
    struct inline_policy *policy = find_spelling(policies, map);
    if (policy == NULL) {
        if (map.len > INLINE_BYTES_MAX) {
            snprintf(text, size, "policy: has %zu bytes; at most %d are allowed", map.len, INLINE_BYTES_MAX);
            return ERROR_BAD_REQUEST;
        }
        policies->n_read++;
        enum error_code code = read_spelling(policies, map, &policy, (struct answer){text, size});
        if (policy == NULL) return code;

        /* So that it is found at once the next time; without memory it is not, and no more. */
        if (learn_spelling(policies, &policy->spellings[policy->next_spelling], policy, map) == 0)
            policy->next_spelling = (policy->next_spelling + 1) % SPELLINGS_MAX;
    }

    note_use(policies, policy);
    *ret_set = policy->set;
    return ERROR_NONE;
}

enum error_code inline_policies_named(struct inline_policies *policies, struct slice name, struct policy_set **ret_set,
                                      char *text, size_t size)
{
    struct inline_policy *first = find_name(policies, name);
    text[0] = '\0';

    struct map_node *node = map_first(&policies->by_label, hash_keyed(name.data, name.len));
    for (; node != NULL; node = map_next_same(node)) {
        struct inline_policy *policy = CONTAINER_OF(node, struct inline_policy, in_labels);
        const struct policy *only = policy->set->in_order[0];
        if (!slice_is(name, only->label)) continue;
        if (first != NULL) {
            snprintf(
                text, size,
                "several inline policies are called '%s': write the one that is meant as 'policies' lists it, such "
                "as %s or %s",
                only->label, first->set->in_order[0]->name, only->name);
            return ERROR_UNKNOWN_POLICY;
        }
        first = policy;
    }
    if (first == NULL) return ERROR_UNKNOWN_POLICY;

    note_use(policies, first);
    *ret_set = first->set;
    return ERROR_NONE;
}

/* ---- Listed ---- */

void inline_policies_begin_list(struct inline_policies *policies)
{
    size_t n = 0;
    for (struct list *it = policies->by_use.prev; it != &policies->by_use && n < INLINE_LISTED; it = it->prev, n++) {
        policies->listed[n] = LIST_ITEM(it, struct inline_policy, link);
        policies->listed[n]->listed_at = (uint16_t)n;
    }
    policies->n_listed = n;
    policies->next_listed = 0;
}

const struct policy *inline_policies_next_listed(struct inline_policies *policies)
{
    while (policies->next_listed < policies->n_listed) {
        const struct inline_policy *policy = policies->listed[policies->next_listed++];
        if (policy != NULL) return policy->set->in_order[0];
    }
    return NULL;
}
