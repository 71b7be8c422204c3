/*
 * log_key.h: how a client's key is written for people: in a log line by log_key(), and in the views that operators ask
 * for (`top`, `denials`, `slowlog`) by log_key_in_view().
 *
 * A key may be a user's name or address, and many people may read and keep logs. So by default a line has a hash of the
 * key: it shows that two lines are about the same key, but not which. The hash uses a secret drawn at start, or one
 * from a file, which gives the same hash in every daemon and after a restart. Views are for few and are not kept, so
 * they show keys as they are, unless keys.in_views is set otherwise.
 */
#ifndef RL_BASE_LOG_KEY_H
#define RL_BASE_LOG_KEY_H

#include <stdint.h>

#include "base/slice.h"

enum log_keys { LOG_KEYS_NONE, LOG_KEYS_HASH, LOG_KEYS_CLEAR };

enum { LOG_KEY_MAX = 256, LOG_KEY_HASH_MAX = 14 /* "#3f2a90b1c4d5" */ };

void log_keys_seed(uint64_t k0, uint64_t k1); /* once, at start: the secret that was drawn */
/* Default HASH and CLEAR; without a text, the secret is the one drawn. */
void log_keys_set(enum log_keys in_log, enum log_keys in_views, const char *secret_text);

/* ` key #3f2a90b1c4d5`, ` key alice` or nothing, into `out`, which is returned. One word: spaces, controls and what is
 * not ASCII are \xNN. A long key ends in "...". */
const char *log_key(char out[LOG_KEY_MAX], struct slice key);

/* The hash alone, of a key or of bytes that stand for one: `#3f2a90b1c4d5`, into `out`, which is returned. */
const char *log_key_hash(char out[LOG_KEY_HASH_MAX], struct slice key);

/* What a view shows of a key: its bytes as they are, `hash`, which log_key_hash() made, or nothing. */
struct slice log_key_in_view(struct slice key, const char *hash);

#endif
