/*
 * log_key.h: how a client's key is written in a log line. Every key that is logged passes through log_key().
 *
 * A key may be a user's name or address, and many people may read and keep logs. So by default a line has a hash of the
 * key: it shows that two lines are about the same key, but not which. The hash uses a secret drawn at start, or one
 * from a file, which gives the same hash in every daemon and after a restart.
 */
#ifndef RL_BASE_LOG_KEY_H
#define RL_BASE_LOG_KEY_H

#include <stdint.h>

#include "base/slice.h"

enum log_keys { LOG_KEYS_NONE, LOG_KEYS_HASH, LOG_KEYS_CLEAR };

enum { LOG_KEY_MAX = 256 };

void log_keys_seed(uint64_t k0, uint64_t k1);                   /* once, at start: the secret that was drawn */
void log_keys_set(enum log_keys keys, const char *secret_text); /* default HASH; without a text, the one drawn */

/* ` key #3f2a90b1c4d5`, ` key alice` or nothing, into `out`, which is returned. One word: spaces, controls and what is
 * not ASCII are \xNN. A long key ends in "...". */
const char *log_key(char out[LOG_KEY_MAX], struct slice key);

#endif
