/*
 * policies.h: the answer of `policies`: each policy and its limits as configured, and what was counted of it.
 *
 * A setting is there if the algorithm has it; what is off is left out (PROTOCOL.md, "policies"). `explain` shows its
 * limits in the same form. The answer is packed in pieces, none of them more work than some checks (policy_list.h).
 */
#ifndef RL_SERVER_POLICIES_H
#define RL_SERVER_POLICIES_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/inline_policies.h"
#include "policy/policy.h"
#include "proto/pack.h"

enum { POLICIES_PAGE_MAX = 1000 };

/* A part of the list in the order of names. */
struct policies_page {
    struct slice after; /* begins behind this name; empty: with the first one */
    uint32_t max;       /* policies of the set; 0: no page but the whole set, in the order of the file */
};

/* The policies of an answer, and which piece of them is next. */
struct policies_pieces {
    struct policy *const *policies; /* of the set, `n` of them */
    size_t n, next;
    size_t next_override;          /* of policies[next], whose list of overrides is begun */
    size_t n_overrides;            /* of that one; 0: its list is not begun */
    size_t overrides_space;        /* bytes that overrides may still take in this answer, */
    size_t inline_overrides_space; /* and those of inline policies */
};

/* Those of the page. Is it the last one, which the inline policies come after? One with less than page->max is. */
bool policies_begin(struct policies_pieces *pieces, const struct policy_set *set, const struct policies_page *page);
/* Packs the next piece: a policy, or a part of one with overrides. Returns its units of work (sessions.h); 0: there was
 * no more. */
uint32_t policies_next(struct policies_pieces *pieces, struct packer *packer);
/* An inline policy, which comes behind them; the same. */
uint32_t policies_pack_inline(struct policies_pieces *pieces, struct packer *packer, const struct policy *policy);
/* One limit, a map that the caller ends with n_more fields, a name and a value each. */
void policies_pack_limit(struct packer *packer, const struct limit *limit, uint32_t n_more);

#endif
