/*
 * reply.c: one list of the decision's fields makes the map's keys, the array's order and `fields`.
 *
 * Every check is answered with one, so it is written in one pass into space that is reserved once: the keys are stored
 * as they go over the wire (a byte of type and length, then the name), and only the integers are encoded.
 */
#include "server/reply.h"

#include <string.h>

#include "base/assert.h"
#include "engine/check.h"
#include "limit/lease_list.h"
#include "policy/policy.h"
#include "proto/put.h"
#include "server/reservation_token.h"

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

/* What `describe` adds behind them. */
#define DESCRIBED_FIELDS(FIELD)                                                                                        \
    FIELD(of)                                                                                                          \
    FIELD(quota)                                                                                                       \
    FIELD(window_ms)                                                                                                   \
    FIELD(of_reset_ms)

enum {
#define FIELD(name) AT_##name,
    FIELDS(FIELD) N_FIELDS,
    AT_LAST = N_FIELDS - 1,
    DESCRIBED_FIELDS(FIELD) N_ALL_FIELDS,
#undef FIELD
    N_DESCRIBED_FIELDS = N_ALL_FIELDS - N_FIELDS
};

#define FIELD(name)                                                                                                    \
    static const struct {                                                                                              \
        uint8_t mark;                                                                                                  \
        char text[sizeof #name - 1];                                                                                   \
    } key_##name = {PUT_SHORT_STR | (sizeof #name - 1), #name};
FIELDS(FIELD)
DESCRIBED_FIELDS(FIELD)
#undef FIELD

/* The words of a source or reason, as they go over the wire; copied whole, and counted by their mark. */
struct word {
    uint8_t mark;
    char text[15];
};

#define SOURCE(id, word) [id] = {PUT_SHORT_STR + sizeof word - 1, word},
#define REASON(id, word) [id] = {PUT_SHORT_STR + sizeof word - 1, word},
static const struct word source_words[] = {DECISION_SOURCES(SOURCE)};
static const struct word reason_words[] = {[REASON_NONE] = {.mark = PUT_NIL}, DECISION_REASONS(REASON)};
#undef SOURCE
#undef REASON

enum {
    NAMES_MAX_LEN = 3 + 2 * NAME_MAX_LEN, /* of bound_by and of; source and reason are shorter */
    DECISION_MAX_LEN = 6 + N_ALL_FIELDS * (PUT_INT_MAX + 16) + 4 * NAMES_MAX_LEN,
};

/* ---- values, written to `at`; each returns its end ---- */

#define PUT_KEY(at, name) put_raw(at, &key_##name, sizeof key_##name)

/* `policy/limit`, or `policy` if the limit has no name. Apart: an answer without it has no list on its stack. */
static __attribute__((noinline)) uint8_t *put_limit_name(uint8_t *at, const struct limit *limit)
{
    const char *const pieces[] = {limit->policy->label, "/", limit->name};
    size_t len = 0, n = limit->name[0] != '\0' ? N_OF(pieces) : 1;
    for (size_t i = 0; i < n; i++) len += strlen(pieces[i]);
    CHECK(len <= UINT8_MAX);

    at = put_str_head(at, len);
    for (size_t i = 0; i < n; i++) at = put_raw(at, pieces[i], strlen(pieces[i]));
    return at;
}

static inline uint8_t *put_limit(uint8_t *at, const struct limit *limit)
{
    return limit != NULL ? put_limit_name(at, limit) : put_nil(at);
}

static inline uint8_t *put_word(uint8_t *at, const struct word *word)
{
    memcpy(at, word, sizeof *word);
    return at + 1 + (word->mark & 0x1f);
}

/* A member of a check_all that allows may still have a wait, if it counts what another one denies: that is a part of
 * the combined decision's wait, and not of its own. */
static int64_t retry_of(const struct decision *decision)
{
    return decision->allowed ? 0 : decision->retry_after_ms;
}

/* ---- the two forms ---- */

/* The limit that a decision is described by; NULL: no store has decided. */
static const struct limit *described_limit(const struct decision *decision)
{
    return decision->source != SOURCE_LOCAL ? decision->of : NULL;
}

static uint8_t *put_decision_array(uint8_t *at, const struct decision *decision, bool describes, uint32_t n_more)
{
    at = put_array(at, (describes ? N_ALL_FIELDS : N_FIELDS) + (n_more > 0));
    at = put_bool(at, decision->allowed);
    at = put_int(at, decision->limit);
    at = put_int(at, decision->remaining);
    at = put_int(at, retry_of(decision));
    at = put_int(at, decision->reset_after_ms);
    at = put_int(at, decision->delay_ms);
    at = put_int(at, decision->granted);

    at = put_limit(at, decision->bound_by);
    at = put_word(at, &source_words[decision->source]);
    at = put_word(at, &reason_words[decision->reason]);
    at = put_uint(at, decision->policy_version);

    if (describes) {
        const struct limit *of = described_limit(decision);
        at = put_limit(at, of);
        at = of != NULL ? put_int(at, of->limit) : put_nil(at);
        at = of != NULL ? put_int(at, decision->window_ms) : put_nil(at);
        at = of != NULL ? put_int(at, decision->of_reset_ms) : put_nil(at);
    }
    return n_more > 0 ? put_map(at, n_more) : at;
}

static uint8_t *put_decision_map(uint8_t *at, const struct decision *decision, int64_t cost, bool describes,
                                 uint32_t n_more)
{
    enum { N_ALWAYS = 7 };
    const struct limit *of = describes ? described_limit(decision) : NULL;
    bool has_granted = decision->granted != (decision->allowed ? cost : 0);
    bool has_reason = decision->reason != REASON_NONE;
    uint32_t n =
        N_ALWAYS + (decision->delay_ms != 0) + has_granted + (decision->bound_by != NULL) + has_reason + n_more;
    if (of != NULL) n += N_DESCRIBED_FIELDS;

    at = put_map(at, n);
    at = put_bool(PUT_KEY(at, allowed), decision->allowed);
    at = put_int(PUT_KEY(at, limit), decision->limit);
    at = put_int(PUT_KEY(at, remaining), decision->remaining);
    at = put_int(PUT_KEY(at, retry_after_ms), retry_of(decision));
    at = put_int(PUT_KEY(at, reset_after_ms), decision->reset_after_ms);
    if (decision->delay_ms != 0) at = put_int(PUT_KEY(at, delay_ms), decision->delay_ms);
    if (has_granted) at = put_int(PUT_KEY(at, granted), decision->granted);
    if (decision->bound_by != NULL) at = put_limit(PUT_KEY(at, bound_by), decision->bound_by);
    at = put_word(PUT_KEY(at, source), &source_words[decision->source]);
    if (has_reason) at = put_word(PUT_KEY(at, reason), &reason_words[decision->reason]);
    at = put_uint(PUT_KEY(at, policy_version), decision->policy_version);
    if (of != NULL) {
        at = put_limit(PUT_KEY(at, of), of);
        at = put_int(PUT_KEY(at, quota), of->limit);
        at = put_int(PUT_KEY(at, window_ms), decision->window_ms);
        at = put_int(PUT_KEY(at, of_reset_ms), decision->of_reset_ms);
    }
    return at;
}

void reply_decision(struct packer *packer, const struct decision *decision, int64_t cost, struct decision_form form,
                    uint32_t n_more)
{
    uint32_t n = n_more + decision->shadow_denied + decision->near;
    uint8_t *start = packer->failed ? NULL : buffer_reserve(packer->out, DECISION_MAX_LEN);
    if (start == NULL) {
        packer->failed = true;
        return;
    }

    uint8_t *end = form.as_array ? put_decision_array(start, decision, form.describes, n)
                                 : put_decision_map(start, decision, cost, form.describes, n);
    CHECK(end - start <= DECISION_MAX_LEN);
    buffer_grew(packer->out, (size_t)(end - start));

    if (decision->shadow_denied) pack_bool_field(packer, "shadow_denied", true);
    if (decision->near) pack_bool_field(packer, "near", true);
}

void reply_slot(struct packer *packer, const struct decision *decision, const char *slot, struct decision_form form)
{
    enum { COST = 1 };
    reply_decision(packer, decision, COST, form, 1);
    pack_text(packer, "slot");
    pack_str(packer, (struct slice){(const uint8_t *)slot, SLOT_ID_LEN});
}

void reply_reservation(struct packer *packer, const struct check *check, struct decision_form form)
{
    const struct decision *decision = &check->decision;
    const struct op_reservation *reservation = &check->reservation;
    reply_decision(packer, decision, check->cost, form, decision->allowed);
    if (!decision->allowed) return;

    struct reservation_token token = {
        .source = decision->source,
        .reason = decision->reason,
        .reservation = *reservation,
        .policy = slice_of(check->plan->policy->name),
        .key = check->key,
    };
    if (!reservation->held)
        token.reservation = (struct op_reservation){.units = reservation->units, .ttl_ms = reservation->ttl_ms};

    pack_text(packer, "reservation");
    reservation_token_pack(packer, &token);
}

void reply_settled(struct packer *packer, const struct decision *decision, const struct op_reservation *reservation,
                   struct decision_form form)
{
    bool charged = reservation->actual > (reservation->ended ? 0 : reservation->units);
    reply_decision(packer, decision, 0, form, 1U + reservation->ended);
    if (charged)
        pack_int_field(packer, "charged", reservation->charged);
    else
        pack_int_field(packer, "refunded", reservation->refunded);
    if (reservation->ended) pack_bool_field(packer, "ended", true);
}

void reply_flag(struct packer *packer, const char *name, bool value)
{
    pack_map(packer, 1);
    pack_bool_field(packer, name, value);
}

void reply_reset(struct packer *packer, bool removed, const struct decision *decision)
{
    const char *reason = reason_name(decision->reason);
    if (reason == NULL) {
        reply_flag(packer, "removed", removed);
        return;
    }
    pack_map(packer, 4);
    pack_bool_field(packer, "removed", removed);
    pack_text_field(packer, "source", source_name(decision->source));
    pack_text_field(packer, "reason", reason);
    pack_bool_field(packer, "stays_in_redis", true);
}

void reply_fields(struct packer *packer, bool describes)
{
    pack_array(packer, describes ? N_ALL_FIELDS : N_FIELDS);
#define FIELD(name) pack_text(packer, #name);
    FIELDS(FIELD)
    if (!describes) return;
    DESCRIBED_FIELDS(FIELD)
#undef FIELD
}
