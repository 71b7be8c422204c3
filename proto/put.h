/*
 * put.h: MessagePack integers into space that the caller has reserved, for what every answer holds. Each returns the
 * end of what it wrote.
 */
#ifndef RL_PROTO_PUT_H
#define RL_PROTO_PUT_H

#include <stdint.h>
#include <string.h>

enum { PUT_UINT_MAX = 9 }; /* bytes of one integer, at most */

/* The value's low `size` bytes, highest first, behind the byte that says what they are. */
static inline uint8_t *put_big_endian(uint8_t *at, uint8_t first, uint64_t value, unsigned size)
{
    uint64_t bytes = __builtin_bswap64(value << (64 - 8 * size));
    *at++ = first;
    memcpy(at, &bytes, size);
    return at + size;
}

/* In its shortest form. */
static inline uint8_t *put_uint(uint8_t *at, uint64_t value)
{
    if (value < 0x80) {
        *at = (uint8_t)value;
        return at + 1;
    }
    if (value <= UINT8_MAX) return put_big_endian(at, 0xcc, value, 1);
    if (value <= UINT16_MAX) return put_big_endian(at, 0xcd, value, 2);
    if (value <= UINT32_MAX) return put_big_endian(at, 0xce, value, 4);
    return put_big_endian(at, 0xcf, value, 8);
}

#endif
