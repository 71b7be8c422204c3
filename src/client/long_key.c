/* long_key.c: with SHA-256 as FIPS 180-4 defines it; the library depends on nothing but libc. */
#include "client/long_key.h"

#include <string.h>

#include "client/ratelimit.h"

enum { BLOCK = 64, ROUNDS = 64, WORDS = 8, LENGTH_SIZE = 8 };

static const uint32_t round_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t word, unsigned bits)
{
    return word >> bits | word << (32 - bits);
}

static void add_block(uint32_t state[static WORDS], const uint8_t block[static BLOCK])
{
    uint32_t w[ROUNDS], s[WORDS];
    for (int i = 0; i < BLOCK / 4; i++) {
        const uint8_t *at = block + i * 4;
        w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (int i = BLOCK / 4; i < ROUNDS; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[i - 7] +
               (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }

    memcpy(s, state, sizeof s);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t mixed = (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6]));
        uint32_t first = s[7] + mixed + round_constants[i] + w[i];
        uint32_t second = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, (WORDS - 1) * sizeof s[0]);
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < WORDS; i++) state[i] += s[i];
}

static void sha256(struct slice data, uint32_t ret_words[static WORDS])
{
    static const uint32_t start[WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[2 * BLOCK] = {0};
    size_t whole = data.len / BLOCK * BLOCK, rest = data.len - whole;
    size_t last_len = rest + 1 + LENGTH_SIZE <= BLOCK ? BLOCK : sizeof last;
    uint64_t n_bits = (uint64_t)data.len * 8;

    memcpy(ret_words, start, sizeof start);
    for (size_t at = 0; at < whole; at += BLOCK) add_block(ret_words, data.data + at);
    memcpy(last, data.data + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < LENGTH_SIZE; i++) last[last_len - 1 - (size_t)i] = (uint8_t)(n_bits >> 8 * i);
    for (size_t at = 0; at < last_len; at += BLOCK) add_block(ret_words, last + at);
}

struct slice long_key_shortened(struct slice key, uint8_t buffer[static LONG_KEY_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    uint32_t words[WORDS];
    if (key.len <= RATELIMIT_KEY_MAX) return key;

    sha256(key, words);
    memcpy(buffer, key.data, LONG_KEY_KEPT);
    uint8_t *at = buffer + LONG_KEY_KEPT;
    *at++ = '#';
    for (int i = 0; i < WORDS; i++) {
        for (int shift = 28; shift >= 0; shift -= 4) *at++ = (uint8_t)digits[words[i] >> shift & 15];
    }
    return (struct slice){buffer, LONG_KEY_SIZE};
}
