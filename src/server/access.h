/*
 * access.h: what a session may do: the rule of policy/access.h that counts for its user, and that user's quotas.
 *
 * The rule is found when the connection is accepted, and again with the first message after a reload: replaced rules
 * allow no method, so nothing looks for them on the way of a check. What a user has is counted over all its
 * connections, whether a rule has a cap or not, so that a reload may bring one.
 *
 * Connections that say nothing are looked at after a reload, too, some in a tick (access_review). One that is not
 * allowed any more is refused like a new one, and its slots go back at once. One that has lost the right to some slots
 * may release them itself for REVOKE_US; then they are taken back (access_revoke). What it had asked before is
 * answered.
 *
 * A peer on the control socket is admin, by no rule and without quotas.
 */
#ifndef RL_SERVER_ACCESS_H
#define RL_SERVER_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/access.h"
#include "server/kept.h"
#include "server/request_fault.h"
#include "server/session.h"

#define ACCESS_REFUSED "access allows its user no connection, or no more of them"

/* 0, or -1 without memory. `rules` NULL: as without any. */
int access_users_init(struct sessions *sessions, struct access *rules);
void access_users_fini(struct sessions *sessions);
/* Reload: the rules of the configuration, for all sessions. */
void access_set_rules(struct sessions *sessions, struct access *rules);

/* A connection was accepted. 0; -1 without memory, or if its user has too many that are refused already: close it. One
 * beyond its user's quota, or of a user with the role none, is refused: its first request is answered so, and ends it.
 */
int access_begin(struct session *session);
void access_end(struct session *session); /* it closes: its part of the quotas is given back */

/* Is this method not for the session? Then the fault is filled. Also finds its rule anew after a reload. */
bool access_refuses_method(struct session *session, enum method method, struct request_fault *fault);
/* After access_set_rules(): some sessions find their rule anew, those in sessions->users.unreviewed. */
void access_review(struct sessions *sessions);
/* Takes back the slots of those in sessions->users.revoked whose time is over. */
void access_revoke(struct sessions *sessions);
/* For operators: where the rule is written that it goes by, "control" on the control socket. In `out`, or static. */
const char *access_session_rule(const struct session *session, char out[ACCESS_PATH_MAX]);
/* For a part of a request that was taken before a reload. */
void access_refresh(struct session *session);

/* 0, or -1 with the fault filled. */
int access_policy(const struct session *session, const struct policy *policy, struct request_fault *fault);
int access_inline(const struct session *session, struct request_fault *fault);
/* May the session's user have n more checks in flight? Its rule has a quota of them. */
int access_quota(const struct session *session, uint32_t n, struct request_fault *fault);
/* May it have one more slot? */
int access_slot(const struct session *session, struct request_fault *fault);

/* May the session's user give back, or reset, the counter of `limit`? It must be of its own keys alone. */
int access_counter(const struct session *session, const struct limit *limit, struct request_fault *fault);

/* May the session's user see this key, or the beginning of a longer one, in a view of operators? Its rule confines it.
 */
bool access_shows(const struct session *session, const struct kept_names *names, struct slice key);
/* Does its rule confine what it sees: to some policies, or keys? */
bool access_is_confined(const struct session *session);

int access_fail_key(const struct session *session, struct request_fault *fault); /* for a key that it does not take */
static inline int access_inflight(const struct session *session, uint32_t n, struct request_fault *fault)
{
    return session->rule->max_inflight == 0 ? 0 : access_quota(session, n, fault);
}

static inline bool access_takes_key(const struct session *session, struct slice key)
{
    const struct access_rule *rule = session->rule;
    return rule->prefix[0] == NULL || access_rule_takes_key(rule, session->user->text, key);
}

#endif
