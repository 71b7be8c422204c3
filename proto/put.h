/*
 * put.h: MessagePack values into space that the caller has reserved. Each function returns the end of what it wrote.
 *
 * Only for what every check's answer holds, its head and its decision. pack.h writes all else; it would cost each check
 * 340 instructions more (5 %), because msgpack-c calls a function pointer for each value. What is put here has the
 * forms that msgpack-c chooses (tests/unit/test_put.c).
 */
#ifndef RL_PROTO_PUT_H
#define RL_PROTO_PUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    PUT_INT_MAX = 9,      /* bytes of one integer, at most */
    PUT_SHORT_STR = 0xa0, /* with the length of a str that is shorter than 32 bytes: the byte before it */
    PUT_SHORT_STR_MAX = 31,
    PUT_NIL = 0xc0,
};

static inline uint8_t *put_raw(uint8_t *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

static inline uint8_t *put_nil(uint8_t *at)
{
    *at = PUT_NIL;
    return at + 1;
}

static inline uint8_t *put_bool(uint8_t *at, bool value)
{
    *at = value ? 0xc3 : 0xc2;
    return at + 1;
}

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

static inline uint8_t *put_long_int(uint8_t *at, int64_t value)
{
    if (value >= 0) return put_uint(at, (uint64_t)value);
    if (value >= -32) {
        *at = (uint8_t)value;
        return at + 1;
    }
    if (value >= INT8_MIN) return put_big_endian(at, 0xd0, (uint64_t)value, 1);
    if (value >= INT16_MIN) return put_big_endian(at, 0xd1, (uint64_t)value, 2);
    if (value >= INT32_MIN) return put_big_endian(at, 0xd2, (uint64_t)value, 4);
    return put_big_endian(at, 0xd3, (uint64_t)value, 8);
}

/* In its shortest form. Most are small. */
static inline uint8_t *put_int(uint8_t *at, int64_t value)
{
    if (value < 0 || value > 0x7f) return put_long_int(at, value);
    *at = (uint8_t)value;
    return at + 1;
}

/* An array of n values, a map of n fields: up to 65535. */
static inline uint8_t *put_array(uint8_t *at, uint32_t n)
{
    if (n > 15) return put_big_endian(at, 0xdc, n, 2);
    *at = (uint8_t)(0x90 | n);
    return at + 1;
}

static inline uint8_t *put_map(uint8_t *at, uint32_t n)
{
    if (n > 15) return put_big_endian(at, 0xde, n, 2);
    *at = (uint8_t)(0x80 | n);
    return at + 1;
}

/* What stands before a str of up to 255 bytes. */
static inline uint8_t *put_str_head(uint8_t *at, size_t len)
{
    if (len > PUT_SHORT_STR_MAX) *at++ = 0xd9;
    *at++ = (uint8_t)(len > PUT_SHORT_STR_MAX ? len : PUT_SHORT_STR | len);
    return at;
}

#endif
