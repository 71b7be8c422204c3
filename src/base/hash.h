/*
 * hash.h: two hashes of bytes, for two purposes.
 *
 * hash_keyed() is SipHash-1-3 (Aumasson and Bernstein, 2012) under a key drawn once per process:
 * for tables whose keys a peer chooses, so that no peer can aim at one index of a table. hash_with() is the same under
 * a key of the caller's.
 *
 * hash_stable() is 64-bit FNV-1a: equal in every daemon, for what several daemons must agree on
 * (shard tags, policy fingerprints). Never use it for a table.
 */
#ifndef RL_BASE_HASH_H
#define RL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

void hash_seed(uint64_t k0, uint64_t k1); /* once, at start; tests leave it at 0, 0 */
uint64_t hash_keyed(const void *bytes, size_t len);
uint64_t hash_with(const uint64_t key[2], const void *bytes, size_t len);

#define HASH_STABLE_START UINT64_C(0xcbf29ce484222325)
uint64_t hash_stable(uint64_t hash, const void *bytes, size_t len); /* chain: start with HASH_STABLE_START */

#endif
