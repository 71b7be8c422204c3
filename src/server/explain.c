#include "server/explain.h"

#include <stdio.h>

#include "base/log.h"
#include "server/policies.h"
#include "server/reply.h"
#include "server/why.h"
#include "store/store_key.h"

static const struct op_member *member_of(const struct check *check, const struct limit *limit)
{
    for (uint16_t i = 0; i < check->op.n_members; i++)
        if (check->op.members[i].limit == limit) return &check->op.members[i];
    return NULL;
}

static void view_of(struct view *view, const struct check *check, const struct op_member *member)
{
    limit_here(view, member->limit, member->key, member->max_wait_us, check->op.now_us);
    limit_report(view, member->seen1, member->seen2, 0);
}

static void pack_own_decision(struct packer *packer, const struct decision *decision)
{
    pack_text(packer, "allowed");
    pack_bool(packer, decision->allowed);
    pack_text(packer, "remaining");
    pack_int(packer, decision->remaining);
    pack_text(packer, "retry_after_ms");
    pack_int(packer, decision->allowed ? 0 : decision->retry_after_ms);
    pack_text(packer, "reset_after_ms");
    pack_int(packer, decision->reset_after_ms);
}

/* Each limit's settings, and its own decision where it made one: where a limit is 0 the others were not asked. */
static void pack_limits(struct packer *packer, const struct check *check)
{
    enum { N_OWN = 4 };
    pack_text(packer, "limits");
    pack_array(packer, check->parts->policy->n_limits);
    for (uint16_t i = 0; i < check->parts->policy->n_limits; i++) {
        const struct limit *limit = &check->parts->policy->limits[i];
        const struct op_member *member = member_of(check, limit);
        bool is_zero = limit->limit == 0;
        policies_pack_limit(packer, limit, member != NULL || is_zero ? N_OWN : 0);
        if (member != NULL) {
            pack_own_decision(packer, &member->decision);
        } else if (is_zero) {
            bool allowed = check->parts->cost == 0;
            pack_own_decision(packer,
                              &(struct decision){.allowed = allowed, .retry_after_ms = allowed ? 0 : RETRY_NEVER});
        }
    }
}

static void pack_keys(struct packer *packer, const struct check *check, const char *key_prefix, bool as_bin)
{
    pack_text(packer, "store_keys");
    pack_array(packer, check->op.n_members);
    for (uint16_t i = 0; i < check->op.n_members; i++) {
        struct view view;
        struct store_key_space space;
        struct slice pieces[STORE_KEY_PIECES];
        view_of(&view, check, &check->op.members[i]);
        size_t n = store_key_pieces(&check->op.members[i], &view, key_prefix, &space, pieces);
        (as_bin ? pack_bin_of : pack_str_of)(packer, pieces, n);
    }
}

static void pack_states(struct packer *packer, const struct check *check)
{
    pack_text(packer, "state");
    pack_array(packer, check->op.n_members);
    for (uint16_t i = 0; i < check->op.n_members; i++) {
        const struct op_member *member = &check->op.members[i];
        struct state_terms terms = {0};
        struct view view;
        view_of(&view, check, member);
        limit_ops(member->limit)->describe(&view, &terms);
        pack_map(packer, (uint32_t)terms.n);
        for (size_t j = 0; j < terms.n; j++) {
            pack_text(packer, terms.at[j].name);
            pack_int(packer, terms.at[j].value);
        }
    }
}

enum { N_REASONS = 4 };

static void pack_reasons(struct packer *packer, const struct check *check, const struct explain_form *form)
{
    char text[WHY_TEXT_MAX];
    pack_text(packer, "why");
    pack_text(packer, why_text(check, text));
    pack_limits(packer, check);
    pack_keys(packer, check, form->key_prefix, form->keys_are_bin);
    pack_states(packer, check);
}

/* nil where it does not judge such a check, or had no answer of the store. */
static void pack_candidate(struct packer *packer, const struct check *trial, const struct explain_form *form)
{
    pack_text(packer, "candidate");
    if (trial == NULL || trial->error != ERROR_NONE) {
        pack_nil(packer);
        return;
    }
    reply_decision(packer, &trial->parts->decision, trial->parts->cost, form->decision, N_REASONS);
    pack_reasons(packer, trial, form);
}

void explain_reply(struct packer *packer, const struct check *check, const struct check *trial,
                   const struct explain_form *form)
{
    enum { N_MORE = N_REASONS + 2 };
    const struct policy *whole = check->parts->policy->base != NULL ? check->parts->policy->base : check->parts->policy;
    bool is_tried = whole->candidate != NULL;
    reply_decision(packer, &check->parts->decision, check->parts->cost, form->decision, N_MORE + is_tried);
    pack_text(packer, "policy");
    pack_text(packer, check->parts->policy->name);
    pack_text(packer, "override");
    if (check->parts->policy->override != NULL)
        pack_text(packer, check->parts->policy->override);
    else
        pack_nil(packer);
    pack_reasons(packer, check, form);
    if (is_tried) pack_candidate(packer, trial, form);
}

/* The key's name in Redis, escaped; cut where there is no space for it. */
static void write_key(const struct check *check, const struct op_member *member, const char *key_prefix, char *out,
                      size_t size)
{
    enum { LEAST = 8 }; /* for what log_escape() writes at once */
    struct view view;
    struct store_key_space space;
    struct slice pieces[STORE_KEY_PIECES];
    view_of(&view, check, member);
    size_t n = store_key_pieces(member, &view, key_prefix, &space, pieces), at = 0;
    for (size_t i = 0; i < n && size - at >= LEAST; i++) {
        log_escape(out + at, size - at, pieces[i].data, pieces[i].len);
        at += strlen(out + at);
    }
}

bool explain_foreign(const struct check *check, const char *key_prefix, char *out, size_t size)
{
    enum { KEY_TEXT_MAX = 4200 }; /* a whole key of 1 KiB, escaped */
    const struct op_member *member = NULL;
    for (uint16_t i = 0; i < check->op.n_members && member == NULL; i++)
        if (check->op.members[i].is_foreign) member = &check->op.members[i];
    if (member == NULL) return false;

    char key[KEY_TEXT_MAX];
    bool is_compat = limit_ops(member->limit)->is_compat;
    write_key(check, member, key_prefix, key, sizeof key);
    snprintf(out, size, "WRONGTYPE: the key '%s' in Redis holds a value of another type; %s", key,
             is_compat ? "the key is not the policy's own, so delete it in Redis" : "reset deletes it");
    return true;
}
