/*
 * form.h: what the first byte of a MessagePack value says, as one table. Private to scan.c and pull.c.
 *
 * A value is its first byte, then a length field (big-endian; for many forms none), then for ext a type
 * byte, then a body: `count` bytes, or for arrays `count` values and for maps `count` pairs.
 */
#ifndef RL_PROTO_FORM_H
#define RL_PROTO_FORM_H

#include <stdint.h>

enum form_kind {
    FORM_NEVER, /* 0xc1 */
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
};

struct form {
    uint8_t kind;  /* enum form_kind */
    uint8_t head;  /* bytes before the body */
    uint8_t field; /* of these the length field; 0 = the count is `fixed` */
    uint8_t fixed; /* count where there is no length field */
};

extern const struct form form_table[32]; /* 0xc0 to 0xdf */

static inline struct form form_of(uint8_t first)
{
    if (first < 0x80) return (struct form){FORM_UINT, 1, 0, 0};
    if (first < 0x90) return (struct form){FORM_MAP, 1, 0, first & 0x0f};
    if (first < 0xa0) return (struct form){FORM_ARRAY, 1, 0, first & 0x0f};
    if (first < 0xc0) return (struct form){FORM_STR, 1, 0, first & 0x1f};
    if (first < 0xe0) return form_table[first - 0xc0];
    return (struct form){FORM_INT, 1, 0, 0};
}

/* `n` <= 8 bytes, big-endian. */
static inline uint64_t form_load(const uint8_t *bytes, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) value = value << 8 | bytes[i];
    return value;
}

/* Bytes of the body, or values (pairs) of the container; all bytes of the head must be there. */
static inline uint32_t form_count(struct form form, const uint8_t *head)
{
    return form.field > 0 ? (uint32_t)form_load(head + 1, form.field) : form.fixed;
}

#endif
