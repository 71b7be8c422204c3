/*
 * pack.h: write MessagePack values to the end of a buffer, in their shortest form (msgpack-c).
 *
 * Each returns 0, or -1 when the buffer refused (its ceiling, or no memory). A caller packs a
 * whole message, looks at the sum of failures once (`pack_ok`), and truncates the buffer to where
 * it began when something failed.
 */
#ifndef RL_PROTO_PACK_H
#define RL_PROTO_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"

struct packer {
    struct buffer *out; /* not owned */
    bool failed;        /* sticky: some write was refused */
};

static inline struct packer packer_of(struct buffer *out)
{
    return (struct packer){.out = out};
}

void pack_nil(struct packer *packer);
void pack_bool(struct packer *packer, bool value);
void pack_int(struct packer *packer, int64_t value);
void pack_uint(struct packer *packer, uint64_t value);
void pack_str(struct packer *packer, struct slice text);
void pack_text(struct packer *packer, const char *text); /* a NUL-terminated str */
void pack_bin(struct packer *packer, struct slice bytes);
void pack_array(struct packer *packer, uint32_t n); /* n values follow */
void pack_map(struct packer *packer, uint32_t n);   /* n keys and values follow */

#endif
