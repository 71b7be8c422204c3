/*
 * hash_slot.h: which of a cluster's 16384 hash slots a key is in; pure. What braces enclose is all that counts, if the
 * first of them have anything in between.
 */
#ifndef RL_REDIS_HASH_SLOT_H
#define RL_REDIS_HASH_SLOT_H

#include <stddef.h>
#include <stdint.h>

enum { HASH_SLOTS = 16384 };

uint16_t hash_slot_of(const uint8_t *key, size_t len);

#endif
