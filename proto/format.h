/*
 * format.h: what the first byte of a MessagePack value says, as one table. Private to scan.c and pull.c.
 *
 * A value is its first byte, then a length field (big-endian; for many formats none), then for ext a type
 * byte, then a body: `count` bytes, or for arrays `count` values and for maps `count` pairs.
 */
#ifndef RL_PROTO_FORMAT_H
#define RL_PROTO_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum format_kind {
    FORMAT_NIL,
    FORMAT_BOOL,
    FORMAT_UINT,
    FORMAT_INT, /* signed; the fixints are FORMAT_UINT and FORMAT_INT without a body */
    FORMAT_FLOAT,
    FORMAT_STR,
    FORMAT_BIN,
    FORMAT_EXT,
    FORMAT_ARRAY,
    FORMAT_MAP,
    FORMAT_NEVER, /* 0xc1 */
};

struct format {
    uint8_t kind;  /* enum format_kind */
    uint8_t head;  /* bytes before the body */
    uint8_t field; /* of these the length field; 0 = the count is `fixed` */
    uint8_t fixed; /* the count, without a length field */
};

extern const struct format format_table[256]; /* by the first byte */

/* 1, 2, 4 or 8 bytes, big-endian. */
static inline uint64_t format_load(const uint8_t *bytes, unsigned n)
{
    if (n == 1) return bytes[0];
    if (n == 2) return (uint64_t)bytes[0] << 8 | bytes[1];
    uint64_t value = 0;
    memcpy(&value, bytes, n == 4 ? 4 : 8);
    return __builtin_bswap64(value) >> (n == 4 ? 32 : 0);
}

/* Bytes of the body, or values (pairs) of the container; all bytes of the head must be there. */
static inline uint32_t format_count(struct format format, const uint8_t *head)
{
    return format.field > 0 ? (uint32_t)format_load(head + 1, format.field) : format.fixed;
}

#endif
