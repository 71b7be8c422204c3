/*
 * params.h: reads the parameters of a request one by one; a fault names the parameter.
 *
 * Every function moves past what it has read, or returns -1 with the fault filled: which code, and
 * a text that names the parameter and the way out. Slices point into the message.
 */
#ifndef RL_SERVER_PARAMS_H
#define RL_SERVER_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "engine/check.h"
#include "proto/pull.h"
#include "server/policies.h"
#include "server/reply.h"
#include "server/request_fault.h"

/* Which part of a view is asked for (views.h). */
struct view_question {
    struct slice next;        /* where it goes on; empty: at its beginning */
    struct slice by;          /* top: one of policy, key, client; empty: all of them */
    int64_t after;            /* denials, slowlog: behind this id */
    struct slice policy, key; /* of these alone; empty: of any */
    int64_t uid;              /* of this user alone; -1: of any */
    bool reset;               /* slowlog: and forget them */
};

/* The options that a view takes. */
enum view_options { VIEW_PARTS = 1, VIEW_BY = 2, VIEW_AFTER = 4, VIEW_FILTERS = 8, VIEW_RESET = 16 };

struct session;

struct params {
    struct pull pull;
    uint32_t n;              /* parameters not read yet */
    struct session *session; /* not owned; whose request it is */
    uint64_t msgid;          /* the request's */
    int32_t index;           /* of a list's member, for the fault's text; -1 = none */
    bool takes_label;        /* a policy may also be named as answers name an inline one */
    struct request_fault *fault;
};

/* The parameters of a request of `session`; the caller sets pull and n. */
struct params params_of(struct session *session, uint64_t msgid, struct request_fault *fault);

struct policy_set *params_policies(const struct params *params); /* the present ones; borrowed */
/* The set of the inline policy that is kept under this name or label, if the client may use those; borrowed until the
 * next request. NULL: there is none, and `text` is empty or says why. */
struct policy_set *params_inline(const struct params *params, struct slice name, char text[FAULT_TEXT_MAX]);

/* Set the fault; returns -1. */
int params_fail(const struct params *params, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int params_fail_overloaded(const struct params *params);

/* May the session's user ask for this policy, write one out, and name this key (access.h)? 0, or -1 with the fault
 * filled. The functions below ask the same. */
int params_is_for(const struct params *params, const struct policy *policy);
int params_inline_is_for(const struct params *params);
int params_key_is_for(const struct params *params, struct slice key);

/* A key by itself, of any policy. */
int params_key(struct params *params, struct slice *ret);
/* Reads policy and key, with which every check begins. Sets the check's plan to what counts for the key, its key, which
 * fits the policy's format, and for an inline policy its set. */
int params_target(struct params *params, struct check *ret);
/* The same for a check that charges; refuses a policy with slots, because the check would take one for good. */
int params_charged(struct params *params, struct check *ret);
/* policy or policy/limit, then key, of what gives back or resets. ret->only is the limit that is named, one of its
 * plan; else NULL. All counters must be the user's own, those of the candidate, too, with `has_candidate`. */
int params_counter(struct params *params, struct check *ret, bool has_candidate);
/* policy or policy/limit, then a pattern of keys. *ret is borrowed until the next request; *ret_only is the limit that
 * is named, else NULL. */
int params_pattern(struct params *params, const struct policy **ret, const struct limit **ret_only,
                   struct slice *ret_match);
/* [, cost]: an integer, or nil or nothing for what ret->cost holds already. */
int params_cost(struct params *params, struct check *ret);
/* [, cost or options] of a check, whose plan is known. */
int params_cost_or_options(struct params *params, struct check *check);
/* [, options] of a check_all: deadline_ms and request_id, for each check of the chain. */
int params_all_options(struct params *params, struct check *first);
/* [, cost or options] of a member of a check_many: cost and request_id. */
int params_member_options(struct params *params, struct check *check);
/* [, options] of refund, acquire and reserve: deadline_ms and request_id; of reserve ttl_ms, too. */
int params_options(struct params *params, struct check *check);
/* [, options] of hello. */
int params_hello(struct params *params, struct decision_form *ret);
/* [, options] of reload. */
int params_reload(struct params *params, bool *ret_dry_run);
/* [options] of a view, of those that it takes. ret->next, by, policy and key point into the message. */
int params_view(struct params *params, unsigned takes, struct view_question *ret);
/* [, page] of policies; without one *ret stays as it is. ret->after points into the message. */
int params_page(struct params *params, struct policies_page *ret);
/* A number of units, `least` or more, that the fault calls `name`. */
int params_units(struct params *params, const char *name, int64_t least, int64_t *ret);

#endif
