/*
 * pull.h: read the values of a message that the scanner has found whole, in order, without copies.
 *
 * Every function returns 0 and moves on, or returns -1 and stays where it was (wrong type, out of
 * range, no more bytes). Slices point into the message and live as long as it does. What is
 * accepted is the liberal list of PROTOCOL.md: any integer encoding, whole floats, str or bin.
 */
#ifndef RL_PROTO_PULL_H
#define RL_PROTO_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/exact.h"
#include "base/slice.h"

struct pull {
    const uint8_t *at;
    const uint8_t *end;
};

enum pull_type { PULL_NIL, PULL_BOOL, PULL_INT, PULL_FLOAT, PULL_TEXT, PULL_ARRAY, PULL_MAP, PULL_EXT, PULL_END };

static inline struct pull pull_of(const uint8_t *bytes, size_t len)
{
    return (struct pull){bytes, bytes + len};
}

enum pull_type pull_type(const struct pull *pull); /* of the next value; PULL_END if no whole one is left */

int pull_nil(struct pull *pull);
int pull_bool(struct pull *pull, bool *ret);
/* Any integer, or a float that is whole; |value| <= EXACT_MAX, else -1. */
int pull_int(struct pull *pull, int64_t *ret);
int pull_long_uint64(struct pull *pull, uint64_t *ret); /* pull_uint64(), in any encoding */
/* The same, or a float that is whole, 0 to 2^53: some clients send their numbers above 2^31 that way. */
int pull_msgid(struct pull *pull, uint64_t *ret);
int pull_long_text(struct pull *pull, struct slice *ret); /* pull_text(), in any encoding */
int pull_long_array(struct pull *pull, uint32_t *ret_n);  /* pull_array(), in any encoding */
int pull_map(struct pull *pull, uint32_t *ret_n);         /* enters: n keys and values come next */
int pull_skip(struct pull *pull);                         /* over one value, whatever it holds */

/* str or bin. Most are a str whose length is in its first byte, or in its second. */
static inline int pull_text(struct pull *pull, struct slice *ret)
{
    size_t here = (size_t)(pull->end - pull->at), head = 1, len;
    if (here == 0) return -1;
    uint8_t first = pull->at[0];
    if ((first & 0xe0) == 0xa0) {
        len = first & 0x1f;
    } else if (first == 0xd9 && here > 1) {
        head = 2;
        len = pull->at[1];
    } else {
        return pull_long_text(pull, ret);
    }

    if (len > here - head) return -1;
    *ret = (struct slice){pull->at + head, len};
    pull->at += head + len;
    return 0;
}

/* Enters: its n values come next. Most have less than 16. */
static inline int pull_array(struct pull *pull, uint32_t *ret_n)
{
    size_t here = (size_t)(pull->end - pull->at);
    if (here == 0 || (*pull->at & 0xf0) != 0x90) return pull_long_array(pull, ret_n);
    uint32_t n = *pull->at & 0x0f;
    if (n >= here) return -1;
    *ret_n = n;
    pull->at++;
    return 0;
}

/* Integers only (no floats), 0 to 2^64 - 1. */
static inline int pull_uint64(struct pull *pull, uint64_t *ret)
{
    if (pull->at == pull->end || *pull->at > 0x7f) return pull_long_uint64(pull, ret);
    *ret = *pull->at++;
    return 0;
}

/* Was the text that pull_text() would return now written as bin? (a key that came as bin is echoed as bin) */
bool pull_is_bin(const struct pull *pull);

#endif
