/* hash.c: SipHash for tables whose keys a peer chooses, FNV for what several daemons agree on. */
#include "base/hash.h"

#include <string.h>

static uint64_t seed[2];

void hash_seed(uint64_t k0, uint64_t k1)
{
    seed[0] = k0;
    seed[1] = k1;
}

static inline uint64_t rotl(uint64_t x, int b)
{
    return (x << b) | (x >> (64 - b));
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotl(v[1], 13) ^ v[0], v[0] = rotl(v[0], 32);
    v[2] += v[3], v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotl(v[1], 17) ^ v[2], v[2] = rotl(v[2], 32);
}

static inline void sip_block(uint64_t v[4], uint64_t m)
{
    v[3] ^= m;
    sip_round(v);
    v[0] ^= m;
}

static inline uint64_t sip(uint64_t k0, uint64_t k1, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                     k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    uint64_t last = (uint64_t)len << 56;

    for (size_t left = len / 8; left > 0; left--, p += 8) {
        uint64_t m;
        memcpy(&m, p, 8);
        sip_block(v, m);
    }
    for (size_t i = 0; i < len % 8; i++) last |= (uint64_t)p[i] << (8 * i);

    sip_block(v, last);

    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t hash_keyed(const void *bytes, size_t len)
{
    return sip(seed[0], seed[1], bytes, len);
}

uint64_t hash_with(const uint64_t key[2], const void *bytes, size_t len)
{
    return sip(key[0], key[1], bytes, len);
}

uint64_t hash_stable(uint64_t hash, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < len; i++) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}
