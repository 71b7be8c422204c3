/*
 * pack.h: write MessagePack values to the end of a buffer, in their shortest form (msgpack-c).
 *
 * Nothing returns an error: a write that the buffer refuses (its ceiling, or no memory) sets
 * `failed`, and whatever follows does nothing. A caller packs a whole message, looks at `failed`
 * once, and truncates the buffer to `start` when it is set.
 */
#ifndef RL_PROTO_PACK_H
#define RL_PROTO_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"

struct packer {
    struct buffer *out; /* not owned */
    size_t start;       /* how long the buffer was before */
    bool failed;        /* some write was refused, and all after it */
};

static inline struct packer packer_of(struct buffer *out)
{
    return (struct packer){.out = out, .start = buffer_len(out)};
}

void pack_nil(struct packer *packer);
void pack_bool(struct packer *packer, bool value);
void pack_int(struct packer *packer, int64_t value);
void pack_uint(struct packer *packer, uint64_t value);
void pack_str(struct packer *packer, struct slice text);
void pack_text(struct packer *packer, const char *text);                       /* a NUL-terminated str */
void pack_str_of(struct packer *packer, const struct slice *pieces, size_t n); /* one str made of pieces */
void pack_bin(struct packer *packer, struct slice bytes);
void pack_bin_of(struct packer *packer, const struct slice *pieces, size_t n);
void pack_array(struct packer *packer, uint32_t n); /* n values follow */
void pack_map(struct packer *packer, uint32_t n);   /* n keys and values follow */

/* A field of a map: its name and its value. */
void pack_bool_field(struct packer *packer, const char *name, bool value);
void pack_int_field(struct packer *packer, const char *name, int64_t value);
void pack_uint_field(struct packer *packer, const char *name, uint64_t value);
void pack_text_field(struct packer *packer, const char *name, const char *text);

#endif
