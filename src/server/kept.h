/*
 * kept.h: what the views of operators keep of a check: the names of its policy and limit, which a reload may remove
 * while they are kept, and its key. Copies of a fixed size: no client makes them larger.
 */
#ifndef RL_SERVER_KEPT_H
#define RL_SERVER_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log_key.h"
#include "base/slice.h"
#include "limit/limit.h"
#include "policy/policy.h"

enum { KEPT_KEY_BYTES = 64, KEPT_KEY_SHOWN_MAX = KEPT_KEY_BYTES + 3 + LOG_KEY_HASH_MAX };

/* A key, or the beginning of a longer one and its hash. */
struct kept_key {
    uint32_t len; /* of the whole key */
    uint8_t bytes[KEPT_KEY_BYTES];
    char hash[LOG_KEY_HASH_MAX]; /* log_key_hash() */
};

struct kept_names {
    char policy[NAME_MAX_LEN + 1]; /* its label */
    char limit[NAME_MAX_LEN + 1];  /* empty: it has no name */
    bool has_limit;
    bool is_inline; /* the policy was written out by a client, so its label may be that of another one, too */
};

void kept_key_take(struct kept_key *kept, struct slice key);
bool kept_key_is(const struct kept_key *kept, struct slice key);
struct slice kept_key_start(const struct kept_key *kept); /* the bytes that are kept: all of it, or its beginning */
/* As views show it (log_key_in_view()), of a longer one `beginning...#3f2a90b1c4d5`; in `space`, or kept->bytes. */
struct slice kept_key_shown(const struct kept_key *kept, char space[KEPT_KEY_SHOWN_MAX]);

void kept_names_take(struct kept_names *kept, const struct policy *policy, const struct limit *limit); /* may be NULL */
/* The limit as on the wire, as limit_path(); NULL: there is none. */
const char *kept_limit_path(const struct kept_names *kept, char out[LIMIT_PATH_MAX]);

#endif
