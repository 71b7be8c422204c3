/* decode.c: reads decisions and hello's answer, for exchange.c and ctl/. */
#include "client/decode.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define NUMBER_MAX ((INT64_C(1) << 53) - 1)

enum kind { KIND_BOOL, KIND_INT, KIND_SOURCE, KIND_REASON, KIND_NAME };

struct field {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct ratelimit_decision */
};

/* FIELD(name, kind): the order of the protocol's array form; a map after it has what methods add. Those of a described
 * decision have the places that hello lists. */
#define FIELDS(FIELD)                                                                                                  \
    FIELD(allowed, KIND_BOOL)                                                                                          \
    FIELD(limit, KIND_INT)                                                                                             \
    FIELD(remaining, KIND_INT)                                                                                         \
    FIELD(retry_after_ms, KIND_INT)                                                                                    \
    FIELD(reset_after_ms, KIND_INT)                                                                                    \
    FIELD(delay_ms, KIND_INT)                                                                                          \
    FIELD(granted, KIND_INT)                                                                                           \
    FIELD(bound_by, KIND_NAME)                                                                                         \
    FIELD(source, KIND_SOURCE)                                                                                         \
    FIELD(reason, KIND_REASON)                                                                                         \
    FIELD(policy_version, KIND_INT)                                                                                    \
    FIELD(shadow_denied, KIND_BOOL)                                                                                    \
    FIELD(near, KIND_BOOL)                                                                                             \
    FIELD(refunded, KIND_INT)                                                                                          \
    FIELD(charged, KIND_INT)                                                                                           \
    FIELD(ended, KIND_BOOL)                                                                                            \
    FIELD(of, KIND_NAME)                                                                                               \
    FIELD(quota, KIND_INT)                                                                                             \
    FIELD(window_ms, KIND_INT)                                                                                         \
    FIELD(of_reset_ms, KIND_INT)

enum field_index {
#define FIELD(name, kind) FIELD_##name,
    FIELDS(FIELD)
#undef FIELD
        N_FIELDS,
    N_PLACES = FIELD_shadow_denied,
};

static const struct field fields[] = {
#define FIELD(name, kind) {#name, kind, offsetof(struct ratelimit_decision, name)},
    FIELDS(FIELD)
#undef FIELD
};

/* What a decision has besides its values. */
struct found {
    uint32_t fields;     /* a bit for each that had a value */
    struct pull members; /* where the list of a check_all's members begins; empty: there is none */
    struct pull id;      /* where the reservation or slot is; empty: there is none */
};

static const char *const source_names[] = {
    [RATELIMIT_SOURCE_OTHER] = "other",   [RATELIMIT_SOURCE_REDIS] = "redis",
    [RATELIMIT_SOURCE_MEMORY] = "memory", [RATELIMIT_SOURCE_DENY_CACHE] = "deny_cache",
    [RATELIMIT_SOURCE_LEASE] = "lease",   [RATELIMIT_SOURCE_UNLIMITED] = "unlimited",
    [RATELIMIT_SOURCE_ALLOW] = "allow",   [RATELIMIT_SOURCE_DENY] = "deny",
    [RATELIMIT_SOURCE_LOCAL] = "local",
};

static const char *const reason_names[] = {
    [RATELIMIT_REASON_NONE] = "",
    [RATELIMIT_REASON_DOWN] = "down",
    [RATELIMIT_REASON_BREAKER] = "breaker",
    [RATELIMIT_REASON_DEADLINE] = "deadline",
    [RATELIMIT_REASON_OVERLOAD] = "overload",
    [RATELIMIT_REASON_STORE_ERROR] = "store_error",
    [RATELIMIT_REASON_OTHER] = "other",
    [RATELIMIT_REASON_PENALTY] = "penalty",
};

enum { N_SOURCES = N_OF(source_names), N_REASONS = N_OF(reason_names) };

const char *ratelimit_source_name(enum ratelimit_source source)
{
    return (unsigned)source < N_SOURCES ? source_names[source] : source_names[RATELIMIT_SOURCE_OTHER];
}

const char *ratelimit_reason_name(enum ratelimit_reason reason)
{
    return (unsigned)reason < N_REASONS ? reason_names[reason] : reason_names[RATELIMIT_REASON_OTHER];
}

/* The index of `name` in `names`, or `other`. */
static unsigned index_of(struct slice name, const char *const *names, unsigned n, unsigned other)
{
    for (unsigned i = 0; i < n; i++) {
        if (slice_is(name, names[i])) return i;
    }
    return other;
}

/* N_FIELDS if the name is not known. */
static uint8_t field_of(struct slice name)
{
    uint8_t i = 0;
    while (i < N_FIELDS && !slice_is(name, fields[i].name)) i++;
    return i;
}

void decode_order_init(struct decode_order *order)
{
    order->n = N_PLACES;
    for (int i = 0; i < N_PLACES; i++) order->fields[i] = (uint8_t)i;
}

/* The names of the fields, in the order of their places. */
static int read_order(struct pull *pull, struct decode_order *order)
{
    uint32_t n;
    struct slice name;
    *order = (struct decode_order){0};
    if (pull_array(pull, &n) != 0) return -1;
    for (; n > 0; n--) {
        if (pull_text(pull, &name) != 0) return -1;
        if (order->n < DECODE_FIELDS_MAX) order->fields[order->n++] = field_of(name);
    }
    return 0;
}

static int read_features(struct pull *pull, unsigned *features)
{
    uint32_t n;
    struct slice name;
    if (pull_array(pull, &n) != 0) return -1;
    for (; n > 0; n--) {
        name = slice_of(""); /* what is no text is none of ours */
        if (pull_text(pull, &name) != 0 && pull_skip(pull) != 0) return -1;
        if (slice_is(name, "name")) *features |= FEATURE_NAME;
        if (slice_is(name, "abandon")) *features |= FEATURE_ABANDON;
    }
    return 0;
}

int decode_hello(struct pull pull, struct decode_order *order, uint32_t *max_frame, unsigned *features)
{
    struct decode_order new_order = *order;
    int64_t new_max = *max_frame;
    unsigned new_features = 0;
    uint32_t n;
    struct slice name;
    if (pull_map(&pull, &n) != 0) return -1;

    for (; n > 0; n--) {
        if (pull_text(&pull, &name) != 0) return -1;
        int rc = slice_is(name, "max_frame")  ? pull_int(&pull, &new_max)
                 : slice_is(name, "fields")   ? read_order(&pull, &new_order)
                 : slice_is(name, "features") ? read_features(&pull, &new_features)
                                              : pull_skip(&pull);
        if (rc != 0) return -1;
    }

    if (new_max <= 0 || new_max > UINT32_MAX) return -1;
    *order = new_order;
    *max_frame = (uint32_t)new_max;
    *features = new_features;
    return 0;
}

static int read_field(struct pull *pull, uint8_t index, struct ratelimit_decision *decision, struct found *found)
{
    struct slice text = slice_of("");
    if (index >= N_FIELDS) return pull_skip(pull);

    const struct field *field = &fields[index];
    void *to = (char *)decision + field->offset;
    int rc = field->kind == KIND_INT    ? pull_int(pull, to)
             : field->kind == KIND_BOOL ? pull_bool(pull, to)
                                        : pull_text(pull, &text);
    if (rc != 0) return pull_nil(pull); /* how the array form writes a default */
    if (field->kind == KIND_INT) {      /* one that a daemon can mean? */
        int64_t number = *(const int64_t *)to;
        if (number < (index == FIELD_retry_after_ms ? -1 : 0) || number > NUMBER_MAX) return -1;
    }
    found->fields |= UINT32_C(1) << index;

    if (field->kind == KIND_SOURCE) {
        decision->source = (enum ratelimit_source)index_of(text, source_names, N_SOURCES, RATELIMIT_SOURCE_OTHER);
    } else if (field->kind == KIND_REASON) {
        decision->reason = (enum ratelimit_reason)index_of(text, reason_names, N_REASONS, RATELIMIT_REASON_OTHER);
    } else if (field->kind == KIND_NAME) { /* cut to what fits, and at a NUL: it is for people */
        size_t len = text.len < RATELIMIT_BOUND_BY_SIZE ? text.len : RATELIMIT_BOUND_BY_SIZE - 1;
        memcpy(to, text.data, len);
        ((char *)to)[len] = '\0';
    }
    return 0;
}

static int read_map(struct pull *pull, struct ratelimit_decision *decision, struct found *found)
{
    uint32_t n;
    struct slice name;
    if (pull_map(pull, &n) != 0) return -1;

    for (; n > 0; n--) {
        if (pull_text(pull, &name) != 0) {       /* not a name: none of ours */
            if (pull_skip(pull) != 0) return -1; /* the name */
            if (pull_skip(pull) != 0) return -1; /* the value */
            continue;
        }
        if (slice_is(name, "members")) found->members = *pull;
        if (slice_is(name, "reservation") || slice_is(name, "slot")) found->id = *pull;
        if (read_field(pull, field_of(name), decision, found) != 0) return -1;
    }
    return 0;
}

static int read_decision(struct pull *pull, const struct decode_order *order, int64_t cost,
                         struct ratelimit_decision *ret_decision, struct found *ret_found)
{
    struct ratelimit_decision decision = {0};
    struct found found = {0};
    struct pull at = *pull;
    uint32_t n = 0;

    if (pull_type(&at) == PULL_MAP) {
        if (read_map(&at, &decision, &found) != 0) return -1;
    } else if (pull_array(&at, &n) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        int rc;
        if (i < order->n)
            rc = read_field(&at, order->fields[i], &decision, &found);
        else /* after the fields there may be a map with what a method adds */
            rc = pull_type(&at) == PULL_MAP ? read_map(&at, &decision, &found) : pull_skip(&at);
        if (rc != 0) return -1;
    }

    if (!(found.fields & 1u << FIELD_allowed)) return -1;
    if (!(found.fields & 1u << FIELD_granted)) decision.granted = decision.allowed ? cost : 0;
    *pull = at;
    *ret_decision = decision;
    *ret_found = found;
    return 0;
}

int decode_decision(struct pull *pull, const struct decode_order *order, int64_t cost,
                    struct ratelimit_decision *ret_decision)
{
    struct found found;
    return read_decision(pull, order, cost, ret_decision, &found);
}

int decode_with_id(struct pull *pull, const struct decode_order *order, int64_t cost,
                   struct ratelimit_decision *ret_decision, struct buffer *id)
{
    struct found found;
    struct slice text;
    buffer_truncate(id, 0);
    if (read_decision(pull, order, cost, ret_decision, &found) != 0) return -1;
    if (found.id.at == NULL) return ret_decision->allowed ? -1 : 0;

    if (pull_text(&found.id, &text) != 0) return -1;
    if (text.len == 0) return ret_decision->allowed ? -1 : 0;
    if (memchr(text.data, '\0', text.len) != NULL || buffer_append(id, text.data, text.len) != 0) return -1;
    return buffer_append(id, "", 1);
}

int decode_many(struct pull *pull, const struct decode_order *order, struct ratelimit_decision *decisions, size_t n)
{
    uint32_t n_answered;
    if (pull_array(pull, &n_answered) != 0 || n_answered != n) return -1;
    for (size_t i = 0; i < n; i++) {
        if (decode_decision(pull, order, decisions[i].granted, &decisions[i]) != 0) return -1;
    }
    return 0;
}

int decode_all(struct pull *pull, const struct decode_order *order, int64_t cost,
               struct ratelimit_decision *ret_decision, struct ratelimit_decision *members, size_t n)
{
    struct found found;
    if (read_decision(pull, order, cost, ret_decision, &found) != 0) return -1;
    return decode_many(&found.members, order, members, n);
}

int decode_flag(struct pull pull, const char *name, bool *ret)
{
    uint32_t n;
    struct slice field;
    bool found = false;
    if (pull_map(&pull, &n) != 0) return -1;
    for (uint32_t i = 0; i < n; i++) {
        if (pull_text(&pull, &field) != 0) return -1;
        bool is_it = slice_is(field, name);
        if ((is_it ? pull_bool(&pull, ret) : pull_skip(&pull)) != 0) return -1;
        found = found || is_it;
    }
    return found ? 0 : -1;
}

/* ---- Policies ---- */

/* A policy's limits come next, or something else. True: one of them has count_denied. */
static bool counts_denied(struct pull pull)
{
    uint32_t n, n_fields;
    struct slice name;
    bool counts = false, value;
    if (pull_array(&pull, &n) != 0) return false;
    for (; n > 0 && pull_map(&pull, &n_fields) == 0; n--) {
        for (; n_fields > 0; n_fields--) {
            struct pull field = pull;
            if (pull_skip(&pull) != 0) return counts; /* the name */
            if (pull_skip(&pull) != 0) return counts; /* the value */
            bool is_it = pull_text(&field, &name) == 0 && slice_is(name, "count_denied");
            if (is_it && pull_bool(&field, &value) == 0) counts = counts || value;
        }
    }
    return counts;
}

/* One policy of the list, and move past it. 0 or -1. */
static int read_policy(struct pull *pull, struct slice *ret_name, bool *ret_counts)
{
    uint32_t n;
    struct slice field;
    *ret_name = slice_of("");
    *ret_counts = false;
    if (pull_map(pull, &n) != 0) return -1;
    for (; n > 0; n--) {
        field = slice_of("");
        if (pull_text(pull, &field) != 0 && pull_skip(pull) != 0) return -1;
        struct pull value = *pull;
        if (pull_skip(pull) != 0) return -1;
        if (slice_is(field, "name")) pull_text(&value, ret_name);
        if (slice_is(field, "limits")) *ret_counts = counts_denied(value);
    }
    return 0;
}

static void append_name(char *list, size_t size, const char *name)
{
    size_t len = strlen(list);
    snprintf(list + len, size - len, "%s%s", len > 0 ? ", " : "", name);
}

int decode_policies(struct pull pull, const struct buffer *names, char *ret_missing, char *ret_counting, size_t size)
{
    uint32_t n;
    ret_missing[0] = ret_counting[0] = '\0';
    if (pull_array(&pull, &n) != 0) return -1;

    const char *name = (const char *)buffer_data(names), *end = name + buffer_len(names);
    for (; name < end; name += strlen(name) + 1) {
        struct pull at = pull;
        struct slice known;
        bool is_known = false, counts = false, counts_it = false;
        for (uint32_t i = 0; i < n; i++) {
            if (read_policy(&at, &known, &counts) != 0) return -1;
            if (!slice_is(known, name)) continue;
            is_known = true;
            counts_it = counts_it || counts;
        }
        if (!is_known) append_name(ret_missing, size, name);
        if (counts_it) append_name(ret_counting, size, name);
    }
    return 0;
}
