/*
 * long_key.h: keys as they are sent. One of more than RATELIMIT_KEY_MAX bytes becomes its first 64 bytes, `#`, and the
 * SHA-256 of all of it in hex: a key that comes from outside cannot cause BAD_KEY, whatever its length, and stays a key
 * of its own. Clients in other languages do the same, so they share the counter.
 */
#ifndef RL_CLIENT_LONG_KEY_H
#define RL_CLIENT_LONG_KEY_H

#include "base/slice.h"

enum { LONG_KEY_KEPT = 64, LONG_KEY_SIZE = LONG_KEY_KEPT + 1 + 64 };

/* The key itself, or its short form in `buffer`. */
struct slice long_key_shortened(struct slice key, uint8_t buffer[static LONG_KEY_SIZE]);

#endif
