/*
 * access.h: who may ask for what: the rules of a configuration, and which of them counts for a user.
 *
 * Rules are read (config/access_read.h) and bound to the policies of their configuration once; from then on they only
 * answer. The first rule that names the user, or one of its groups, counts. For root and for the daemon's own user
 * without a rule there is one that allows everything, for all others the default.
 */
#ifndef RL_POLICY_ACCESS_H
#define RL_POLICY_ACCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/role.h"
#include "policy/policy.h"
#include "proto/method.h"

#define ACCESS_INLINE "(inline)" /* in a list of policies: those that clients write out */

enum {
    ACCESS_RULES_MAX = 256,
    ACCESS_NAMES_MAX = 256,   /* of policies, in one rule */
    ACCESS_PREFIX_MAX = 256,  /* bytes of a key_prefix */
    ACCESS_USER_TEXT_MAX = 12 /* a user's number, as text */
};

/* Whose process is at the other end, as the kernel recorded it when the connection was opened. */
struct access_peer {
    uid_t uid; /* (uid_t)-1 if the kernel does not report it */
    gid_t gid;
    const gid_t *groups; /* the other ones; not owned */
    size_t n_groups;
};

enum access_subject { ACCESS_USER, ACCESS_GROUP, ACCESS_OTHERS };

struct access_rule {
    struct access *access; /* not owned; whose rule it is */
    enum access_subject subject;
    uint32_t id;             /* of the user or the group */
    char *user, *group;      /* owned; as written; NULL: not that one */
    char *policies;          /* owned; names and patterns as written, one a line; NULL: all */
    char *deny;              /* owned; methods as written, one a line; NULL: none */
    char *key_prefix;        /* owned; as written; NULL: any key */
    int64_t role;            /* enum role */
    int64_t max_connections; /* of one user; 0: no cap */
    int64_t max_inflight;    /* checks of one user; 0: no cap */
    int64_t max_slots;       /* of concurrency limits, of one user; 0: no cap */
    char *prefix[2];         /* owned; key_prefix before and behind the user's number, or whole and NULL */
    uint8_t *granted;        /* owned; a bit for each policy, by its index; NULL: all */
    bool grants_inline;      /* inline policies are among them */
    method_set may;          /* methods that it allows; once the rules were replaced none */
};

struct access {
    uint32_t n_refs;
    bool has_rules;   /* the configuration has a list of them, which may be empty */
    bool has_default; /* it has a default; else that is as without any configuration */
    bool has_groups;  /* a rule is for a group */
    bool is_replaced; /* by the rules of a reload */
    size_t n;         /* rules; behind them come the default, and that of root and the daemon's own user */
    struct access_rule rules[];
};

/* With n rules, to be filled; the two others are as without any configuration. NULL without memory. */
struct access *access_new(size_t n);
/* Once a rule's texts and numbers are set. False without memory. */
bool access_rule_seal(struct access_rule *rule, const struct policy_set *policies);

struct access *access_ref(struct access *access);
void access_unref(struct access *access); /* the last one frees it; NULL is fine */
/* Other rules are in force: these allow nothing from now on, so that sessions that go by them look again. */
void access_replace(struct access *access);

struct access_rule *access_default(struct access *access);

/* The rule that counts. `own`: the user that the daemon runs as. */
const struct access_rule *access_match(const struct access *access, const struct access_peer *peer, uid_t own);

bool access_rule_takes_key(const struct access_rule *rule, const char *uid_text, struct slice key);

/* Does the rule's key_prefix confine the counters of `limit`, as it does keys? `start` is what all keys of the rule's
 * user begin with: a limit of the whole key is confined, and one that counts by a part that the prefix fixes. */
bool access_confines(struct slice start, const struct limit *limit);
/* That start, of a rule that has one, into `out`. */
enum { ACCESS_START_MAX = ACCESS_PREFIX_MAX + 256 + ACCESS_USER_TEXT_MAX };
struct slice access_rule_start(const struct access_rule *rule, const char *uid_text, char out[ACCESS_START_MAX]);

static inline bool access_rule_grants(const struct access_rule *rule, const struct policy *policy)
{
    return rule->granted == NULL || (rule->granted[policy->index / 8] >> policy->index % 8 & 1) != 0;
}

/* For messages: where it is written, such as access.rules[2] or access.default; in `out`, which is returned. */
enum { ACCESS_PATH_MAX = 40 };
const char *access_rule_path(const struct access_rule *rule, char out[ACCESS_PATH_MAX]);

#endif
