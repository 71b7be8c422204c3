/*
 * form.h: what the first byte of a MessagePack value says, as one table. Private to scan.c and pull.c.
 *
 * A value is its first byte, then a length field (big-endian; for many forms none), then for ext a type
 * byte, then a body: `count` bytes, or for arrays `count` values and for maps `count` pairs.
 */
#ifndef RL_PROTO_FORM_H
#define RL_PROTO_FORM_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum form_kind {
    FORM_NIL,
    FORM_BOOL,
    FORM_UINT,
    FORM_INT, /* signed; the fixints are FORM_UINT and FORM_INT without a body */
    FORM_FLOAT,
    FORM_STR,
    FORM_BIN,
    FORM_EXT,
    FORM_ARRAY,
    FORM_MAP,
    FORM_NEVER, /* 0xc1 */
};

struct form {
    uint8_t kind;  /* enum form_kind */
    uint8_t head;  /* bytes before the body */
    uint8_t field; /* of these the length field; 0 = the count is `fixed` */
    uint8_t fixed; /* count where there is no length field */
};

extern const struct form form_table[256]; /* by the first byte */

/* 1, 2, 4 or 8 bytes, big-endian. */
static inline uint64_t form_load(const uint8_t *bytes, unsigned n)
{
    if (n == 1) return bytes[0];
    if (n == 2) return (uint64_t)bytes[0] << 8 | bytes[1];
    uint64_t value = 0;
    memcpy(&value, bytes, n == 4 ? 4 : 8);
    return __builtin_bswap64(value) >> (n == 4 ? 32 : 0);
}

/* Bytes of the body, or values (pairs) of the container; all bytes of the head must be there. */
static inline uint32_t form_count(struct form form, const uint8_t *head)
{
    return form.field > 0 ? (uint32_t)form_load(head + 1, form.field) : form.fixed;
}

#endif
