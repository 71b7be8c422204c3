/*
 * reply.c: one list of the decision's fields makes the map's keys, the array's order and `fields`.
 *
 * The keys are stored as they go over the wire (a byte of type and length, then the name): a map
 * of eight fields is then eight copies and eight integers.
 */
#include "server/reply.h"

#include "limit/policy.h"

/* FIELD(name): the order is part of the protocol; add at the end. */
#define FIELDS(FIELD)                                                                                                  \
    FIELD(allowed)                                                                                                     \
    FIELD(limit)                                                                                                       \
    FIELD(remaining)                                                                                                   \
    FIELD(retry_after_ms)                                                                                              \
    FIELD(reset_after_ms)                                                                                              \
    FIELD(delay_ms)                                                                                                    \
    FIELD(granted)                                                                                                     \
    FIELD(bound_by)                                                                                                    \
    FIELD(source)                                                                                                      \
    FIELD(reason)                                                                                                      \
    FIELD(policy_version)

enum { FIXSTR = 0xa0 }; /* the wire's mark of a str shorter than 32 bytes */

enum {
#define FIELD(name) AT_##name,
    FIELDS(FIELD)
#undef FIELD
        N_FIELDS
};

#define FIELD(name)                                                                                                    \
    static const struct {                                                                                              \
        uint8_t mark;                                                                                                  \
        char text[sizeof #name - 1];                                                                                   \
    } key_##name = {FIXSTR | (sizeof #name - 1), #name};
FIELDS(FIELD)
#undef FIELD

static void put_raw(struct packer *packer, const void *bytes, size_t len)
{
    if (!packer->failed && buffer_append(packer->out, bytes, len) != 0) packer->failed = true;
}

#define PUT_KEY(packer, name) put_raw(packer, &key_##name, sizeof key_##name)

/* `policy/limit`, or `policy` where the limit has no name; nil where no limit is named. */
static void put_bound_by(struct packer *packer, const struct limit *limit)
{
    if (limit == NULL) {
        pack_nil(packer);
        return;
    }
    const struct slice pieces[] = {slice_of(limit->policy->name), slice_of("/"), slice_of(limit->name)};
    pack_str_of(packer, pieces, limit->name[0] != '\0' ? 3 : 1);
}

static void put_reason(struct packer *packer, enum reason reason)
{
    const char *name = reason_name(reason);
    if (name != NULL)
        pack_text(packer, name);
    else
        pack_nil(packer);
}

/* What a member of a check_all has counted of another's denial may make the whole wait, and not itself. */
static int64_t retry_of(const struct decision *decision)
{
    return decision->allowed ? 0 : decision->retry_after_ms;
}

static void put_array(struct packer *packer, const struct decision *decision, uint32_t n_more)
{
    pack_array(packer, N_FIELDS + (n_more > 0));
    pack_bool(packer, decision->allowed);
    pack_int(packer, decision->limit);
    pack_int(packer, decision->remaining);
    pack_int(packer, retry_of(decision));
    pack_int(packer, decision->reset_after_ms);
    pack_int(packer, decision->delay_ms);
    pack_int(packer, decision->granted);
    put_bound_by(packer, decision->bound_by);
    pack_text(packer, source_name(decision->source));
    put_reason(packer, decision->reason);
    pack_uint(packer, decision->policy_version);
    if (n_more > 0) pack_map(packer, n_more);
}

static void put_map(struct packer *packer, const struct decision *decision, int64_t cost, uint32_t n_more)
{
    enum { N_ALWAYS = 7 };
    bool has_granted = decision->granted != (decision->allowed ? cost : 0);
    bool has_reason = decision->reason != REASON_NONE;
    pack_map(packer,
             N_ALWAYS + (decision->delay_ms != 0) + has_granted + (decision->bound_by != NULL) + has_reason + n_more);
    PUT_KEY(packer, allowed);
    pack_bool(packer, decision->allowed);
    PUT_KEY(packer, limit);
    pack_int(packer, decision->limit);
    PUT_KEY(packer, remaining);
    pack_int(packer, decision->remaining);
    PUT_KEY(packer, retry_after_ms);
    pack_int(packer, retry_of(decision));
    PUT_KEY(packer, reset_after_ms);
    pack_int(packer, decision->reset_after_ms);
    if (decision->delay_ms != 0) {
        PUT_KEY(packer, delay_ms);
        pack_int(packer, decision->delay_ms);
    }
    if (has_granted) {
        PUT_KEY(packer, granted);
        pack_int(packer, decision->granted);
    }
    if (decision->bound_by != NULL) {
        PUT_KEY(packer, bound_by);
        put_bound_by(packer, decision->bound_by);
    }
    PUT_KEY(packer, source);
    pack_text(packer, source_name(decision->source));
    if (has_reason) {
        PUT_KEY(packer, reason);
        put_reason(packer, decision->reason);
    }
    PUT_KEY(packer, policy_version);
    pack_uint(packer, decision->policy_version);
}

void reply_decision(struct packer *packer, const struct decision *decision, int64_t cost, bool as_array,
                    uint32_t n_more)
{
    uint32_t n = n_more + decision->shadow_denied;
    if (as_array)
        put_array(packer, decision, n);
    else
        put_map(packer, decision, cost, n);
    if (!decision->shadow_denied) return;
    pack_text(packer, "shadow_denied");
    pack_bool(packer, true);
}

void reply_removed(struct packer *packer, bool removed)
{
    pack_map(packer, 1);
    pack_text(packer, "removed");
    pack_bool(packer, removed);
}

void reply_released(struct packer *packer, bool released)
{
    pack_map(packer, 1);
    pack_text(packer, "released");
    pack_bool(packer, released);
}

void reply_fields(struct packer *packer)
{
    pack_array(packer, N_FIELDS);
#define FIELD(name) PUT_KEY(packer, name);
    FIELDS(FIELD)
#undef FIELD
}
