/*
 * store_key.h: what a limit's state is called in Redis: `prefix:{bNNN}:head id`, but for compat keys, which
 * are the foreign ones: `head id`, and for some the window's name behind it. And what the keys of no policy are called.
 */
#ifndef RL_STORE_STORE_KEY_H
#define RL_STORE_STORE_KEY_H

#include "store/store.h"

enum { STORE_SHARDS = 256, STORE_SHARDS_MAX = 1000, STORE_TAG_LEN = 8, STORE_KEY_PIECES = 5, STORE_OWN_KEY_MAX = 96 };

/* What all keys of a store have in common. */
struct store_key_scheme {
    const char *prefix;
    uint32_t n_shards;
};

/* What decides the shard of a member's key: it spreads a policy's keys over a cluster's hash slots, and keeps together
 * what one check asks for. */
uint64_t store_key_hash(const struct op_member *member);
/* ":{b017}:", the tag of a hash's shard, of so many (1 to 1000). */
void store_key_tag(uint64_t hash, uint32_t n_shards, char out[STORE_TAG_LEN]);

/* Space for the pieces of a key that must be formatted. */
struct store_key_space {
    char tag[STORE_TAG_LEN];
    char window[WINDOW_NAME_MAX];
};

/* The whole key at the view's time, piece by piece; `space` and what the member points to stay as long. Returns how
 * many pieces. */
size_t store_key_pieces(const struct op_member *member, const struct view *view, const struct store_key_scheme *scheme,
                        struct store_key_space *space, struct slice ret[STORE_KEY_PIECES]);

/* A key that the daemons have for themselves: `prefix:{bNNN}:name`, of a shard below STORE_SHARDS_MAX. Returns
 * `out`. */
const char *store_key_own(const char *prefix, uint32_t shard, const char *name, char out[STORE_OWN_KEY_MAX]);

#endif
