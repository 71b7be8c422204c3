/*
 * fuzz_differential.c: msgpack-c as the oracle. What the scanner calls a message msgpack-c reads too, to
 * the same end and the same values; what the scanner calls broken within a message msgpack-c refuses.
 *
 * msgpack-c believes sizes, so it only gets what the scanner did not find too large or too deep.
 */
#include <string.h>

#include <msgpack.h>

#include "base/assert.h"
#include "proto/pull.h"
#include "proto/scan.h"

enum { MAX_FRAME = 65536, MAX_DEPTH = 8 };

static void compare(struct pull *pull, const msgpack_object *object);

static void compare_msgid(struct pull pull, const msgpack_object *object)
{
    uint64_t msgid;
    double real = object->via.f64;
    bool readable = pull_msgid(&pull, &msgid) == 0;
    if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        CHECK(readable && msgid == object->via.u64);
    else if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        CHECK(!readable);
    else if (readable)
        CHECK(msgid <= (uint64_t)EXACT_MAX + 1 && (double)msgid == real);
    else
        CHECK(real != real || real < 0 || real > (double)EXACT_MAX + 1 || real != (double)(int64_t)real);
}

static void compare_number(struct pull *pull, const msgpack_object *object)
{
    compare_msgid(*pull, object);
    struct pull at = *pull;
    uint64_t wide;
    int64_t number;
    if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
        CHECK(pull_uint64(&at, &wide) == 0 && wide == object->via.u64);
    } else {
        CHECK(pull_uint64(&at, &wide) != 0);
    }
    bool readable = pull_int(pull, &number) == 0;
    if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
        CHECK(readable == (object->via.u64 <= (uint64_t)EXACT_MAX));
        CHECK(!readable || (uint64_t)number == object->via.u64);
    } else if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        CHECK(readable == (object->via.i64 >= -EXACT_MAX));
        CHECK(!readable || number == object->via.i64);
    } else {
        double real = object->via.f64;
        CHECK(!readable || (double)number == real);
        CHECK(readable || real != real || real < -(double)EXACT_MAX || real > (double)EXACT_MAX ||
              real != (double)(int64_t)real);
    }
    if (!readable) CHECK(pull_skip(pull) == 0);
}

static void compare_text(struct pull *pull, const char *bytes, uint32_t len, bool is_bin)
{
    struct slice text;
    CHECK(pull_is_bin(pull) == is_bin);
    CHECK(pull_text(pull, &text) == 0);
    CHECK(text.len == len && (len == 0 || memcmp(text.data, bytes, len) == 0));
}

static void compare_array(struct pull *pull, const msgpack_object_array *array)
{
    uint32_t n;
    CHECK(pull_array(pull, &n) == 0 && n == array->size);
    for (uint32_t i = 0; i < n; i++) compare(pull, &array->ptr[i]);
}

static void compare_map(struct pull *pull, const msgpack_object_map *map)
{
    uint32_t n;
    CHECK(pull_map(pull, &n) == 0 && n == map->size);
    for (uint32_t i = 0; i < n; i++) {
        compare(pull, &map->ptr[i].key);
        compare(pull, &map->ptr[i].val);
    }
}

static void compare(struct pull *pull, const msgpack_object *object)
{
    bool truth;
    switch (object->type) {
    case MSGPACK_OBJECT_NIL: CHECK(pull_nil(pull) == 0); break;
    case MSGPACK_OBJECT_BOOLEAN: CHECK(pull_bool(pull, &truth) == 0 && truth == object->via.boolean); break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        CHECK(pull_type(pull) == PULL_INT);
        compare_number(pull, object);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        CHECK(pull_type(pull) == PULL_FLOAT);
        compare_number(pull, object);
        break;
    case MSGPACK_OBJECT_STR: compare_text(pull, object->via.str.ptr, object->via.str.size, false); break;
    case MSGPACK_OBJECT_BIN: compare_text(pull, object->via.bin.ptr, object->via.bin.size, true); break;
    case MSGPACK_OBJECT_ARRAY: compare_array(pull, &object->via.array); break;
    case MSGPACK_OBJECT_MAP: compare_map(pull, &object->via.map); break;
    case MSGPACK_OBJECT_EXT:
        CHECK(pull_type(pull) == PULL_EXT);
        CHECK(pull_skip(pull) == 0);
        break;
    }
}

static void compare_message(const uint8_t *message, size_t len, msgpack_unpacked *unpacked)
{
    size_t end = 0;
    CHECK(msgpack_unpack_next(unpacked, (const char *)message, len, &end) == MSGPACK_UNPACK_SUCCESS);
    CHECK(end == len);
    struct pull pull = pull_of(message, len);
    compare(&pull, &unpacked->data);
    CHECK(pull.at == pull.end);
}

static bool is_array(uint8_t first)
{
    return (first & 0xf0) == 0x90 || first == 0xdc || first == 0xdd;
}

/* msgpack-c waits for as many bytes as an ext has, and its type: 2^32 - 1 and 1, which wraps to 0. Where the input ends
 * in front of the type, with which the scanner will refuse the length, msgpack-c refuses it already. */
static bool ends_in_the_longest_ext(const uint8_t *data, size_t size)
{
    static const uint8_t header[] = {0xc9, 0xff, 0xff, 0xff, 0xff};
    return size >= sizeof header && memcmp(data + size - sizeof header, header, sizeof header) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct scanner scanner;
    scanner_init(&scanner, MAX_FRAME, MAX_DEPTH);
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    int64_t n = 1;
    for (size_t start = 0, end = 0; start < size && n > 0; start += (size_t)n) {
        n = scanner_next(&scanner, data + start, size - start);
        if (n > 0) {
            compare_message(data + start, (size_t)n, &unpacked);
        } else if (n == 0 || (n == -SCAN_BROKEN && is_array(data[start]))) {
            msgpack_unpack_return expected = n == 0 ? MSGPACK_UNPACK_CONTINUE : MSGPACK_UNPACK_PARSE_ERROR;
            end = 0;
            msgpack_unpack_return got = msgpack_unpack_next(&unpacked, (const char *)data + start, size - start, &end);
            bool wraps = n == 0 && got == MSGPACK_UNPACK_PARSE_ERROR && ends_in_the_longest_ext(data, size);
            CHECK(got == expected || wraps);
        }
        if (n < 0) break;
    }
    msgpack_unpacked_destroy(&unpacked);
    return 0;
}
