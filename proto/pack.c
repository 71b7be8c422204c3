/*
 * pack.c: msgpack-c's packer, writing into a struct buffer.
 *
 * The first refused write makes all later ones do nothing, so that a message with a hole in it is
 * never taken for a whole one: the caller sees `failed` and truncates.
 */
#include "proto/pack.h"

#include <msgpack/pack.h>

static int write_to_buffer(void *arg, const char *bytes, size_t len)
{
    struct packer *packer = arg;
    if (!packer->failed && buffer_append(packer->out, bytes, len) != 0) packer->failed = true;
    return packer->failed ? -1 : 0;
}

static msgpack_packer writer_of(struct packer *packer)
{
    return (msgpack_packer){.data = packer, .callback = write_to_buffer};
}

void pack_nil(struct packer *packer)
{
    msgpack_packer writer = writer_of(packer);
    msgpack_pack_nil(&writer);
}

void pack_bool(struct packer *packer, bool value)
{
    msgpack_packer writer = writer_of(packer);
    if (value) {
        msgpack_pack_true(&writer);
    } else {
        msgpack_pack_false(&writer);
    }
}

void pack_int(struct packer *packer, int64_t value)
{
    msgpack_packer writer = writer_of(packer);
    msgpack_pack_int64(&writer, value);
}

void pack_uint(struct packer *packer, uint64_t value)
{
    msgpack_packer writer = writer_of(packer);
    msgpack_pack_uint64(&writer, value);
}

void pack_str(struct packer *packer, struct slice text)
{
    pack_str_of(packer, &text, 1);
}

void pack_text(struct packer *packer, const char *text)
{
    pack_str(packer, slice_of(text));
}

void pack_str_of(struct packer *packer, const struct slice *pieces, size_t n)
{
    msgpack_packer writer = writer_of(packer);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) len += pieces[i].len;
    msgpack_pack_str(&writer, len);
    for (size_t i = 0; i < n; i++) msgpack_pack_str_body(&writer, pieces[i].data, pieces[i].len);
}

void pack_bin(struct packer *packer, struct slice bytes)
{
    pack_bin_of(packer, &bytes, 1);
}

void pack_bin_of(struct packer *packer, const struct slice *pieces, size_t n)
{
    msgpack_packer writer = writer_of(packer);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) len += pieces[i].len;
    msgpack_pack_bin(&writer, len);
    for (size_t i = 0; i < n; i++) msgpack_pack_bin_body(&writer, pieces[i].data, pieces[i].len);
}

void pack_array(struct packer *packer, uint32_t n)
{
    msgpack_packer writer = writer_of(packer);
    msgpack_pack_array(&writer, n);
}

void pack_map(struct packer *packer, uint32_t n)
{
    msgpack_packer writer = writer_of(packer);
    msgpack_pack_map(&writer, n);
}

void pack_bool_field(struct packer *packer, const char *name, bool value)
{
    pack_text(packer, name);
    pack_bool(packer, value);
}

void pack_int_field(struct packer *packer, const char *name, int64_t value)
{
    pack_text(packer, name);
    pack_int(packer, value);
}

void pack_uint_field(struct packer *packer, const char *name, uint64_t value)
{
    pack_text(packer, name);
    pack_uint(packer, value);
}

void pack_text_field(struct packer *packer, const char *name, const char *text)
{
    pack_text(packer, name);
    pack_text(packer, text);
}
