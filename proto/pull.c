/*
 * pull.c: every read looks at a whole value first (`look`), so nothing here can run past the end even
 * if a caller did not scan the message.
 */
#include "proto/pull.h"

#include "proto/format.h"

/* The value that stands next. */
struct value {
    struct format format;
    uint32_t count;      /* bytes of the body, or values (pairs) of a container */
    const uint8_t *body; /* in a container: its first value */
};

/* False if the head or the body is not whole; a container's n values need at least n bytes. */
static inline bool look(const struct pull *pull, struct value *ret)
{
    size_t here = (size_t)(pull->end - pull->at);
    if (here == 0) return false;
    struct format format = format_table[*pull->at];
    if (format.kind == FORMAT_NEVER || here < format.head) return false;
    uint32_t count = format_count(format, pull->at);
    uint64_t least = format.kind == FORMAT_MAP ? (uint64_t)count * 2 : count;
    if (least > here - format.head) return false;
    *ret = (struct value){format, count, pull->at + format.head};
    return true;
}

enum pull_type pull_type(const struct pull *pull)
{
    static const uint8_t types[] = {
        [FORMAT_NEVER] = PULL_END, [FORMAT_NIL] = PULL_NIL,     [FORMAT_BOOL] = PULL_BOOL, [FORMAT_UINT] = PULL_INT,
        [FORMAT_INT] = PULL_INT,   [FORMAT_FLOAT] = PULL_FLOAT, [FORMAT_STR] = PULL_TEXT,  [FORMAT_BIN] = PULL_TEXT,
        [FORMAT_EXT] = PULL_EXT,   [FORMAT_ARRAY] = PULL_ARRAY, [FORMAT_MAP] = PULL_MAP,
    };
    struct value value;
    return look(pull, &value) ? (enum pull_type)types[value.format.kind] : PULL_END;
}

int pull_nil(struct pull *pull)
{
    struct value value;
    if (!look(pull, &value) || value.format.kind != FORMAT_NIL) return -1;
    pull->at = value.body + value.count;
    return 0;
}

int pull_bool(struct pull *pull, bool *ret)
{
    struct value value;
    if (!look(pull, &value) || value.format.kind != FORMAT_BOOL) return -1;
    *ret = *pull->at == 0xc3;
    pull->at = value.body + value.count;
    return 0;
}

/* The value of an unsigned format; the fixint is its own first byte. */
static uint64_t unsigned_of(const struct pull *pull, const struct value *value)
{
    return value->count > 0 ? format_load(value->body, value->count) : *pull->at;
}

static int64_t signed_of(const struct pull *pull, const struct value *value)
{
    switch (value->count) {
    case 0: return (int8_t)*pull->at;
    case 1: return (int8_t)format_load(value->body, 1);
    case 2: return (int16_t)format_load(value->body, 2);
    case 4: return (int32_t)format_load(value->body, 4);
    default: return (int64_t)format_load(value->body, 8);
    }
}

static double float_of(const struct value *value)
{
    uint64_t bits = format_load(value->body, value->count);
    if (value->count == 4) {
        uint32_t half = (uint32_t)bits;
        float single;
        memcpy(&single, &half, sizeof single);
        return (double)single;
    }

    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

int pull_int(struct pull *pull, int64_t *ret)
{
    struct value value;
    int64_t number;
    if (!look(pull, &value)) return -1;

    switch (value.format.kind) {
    case FORMAT_UINT:
        if (unsigned_of(pull, &value) > (uint64_t)EXACT_MAX) return -1;
        number = (int64_t)unsigned_of(pull, &value);
        break;
    case FORMAT_INT:
        number = signed_of(pull, &value);
        if (number < -EXACT_MAX || number > EXACT_MAX) return -1;
        break;
    case FORMAT_FLOAT: {
        double whole = float_of(&value);
        /* Written so that NaN fails the comparison, before anything is converted. */
        if (!(whole >= -(double)EXACT_MAX && whole <= (double)EXACT_MAX)) return -1;
        number = (int64_t)whole;
        if ((double)number != whole) return -1;
        break;
    }
    default: return -1;
    }

    *ret = number;
    pull->at = value.body + value.count;
    return 0;
}

int pull_long_uint64(struct pull *pull, uint64_t *ret)
{
    struct value value;
    size_t here = (size_t)(pull->end - pull->at);
    if (here > sizeof *ret && (*pull->at & 0xfc) == 0xcc) { /* uint 8 to 64, with more behind it: most ids */
        unsigned size = 1U << (*pull->at & 3);
        *ret = format_load(pull->at + 1, size);
        pull->at += 1 + size;
        return 0;
    }

    if (!look(pull, &value)) return -1;
    if (value.format.kind == FORMAT_UINT) {
        *ret = unsigned_of(pull, &value);
    } else if (value.format.kind == FORMAT_INT && signed_of(pull, &value) >= 0) {
        *ret = (uint64_t)signed_of(pull, &value);
    } else {
        return -1;
    }
    pull->at = value.body + value.count;
    return 0;
}

int pull_msgid(struct pull *pull, uint64_t *ret)
{
    struct value value;
    if (pull_uint64(pull, ret) == 0) return 0;
    if (!look(pull, &value) || value.format.kind != FORMAT_FLOAT) return -1;

    /* Written so that NaN fails the comparison, before anything is converted. 2^53 itself is exact, and -0.0 is 0. */
    double number = float_of(&value);
    if (!(number >= 0 && number <= (double)EXACT_MAX + 1)) return -1;
    uint64_t whole = (uint64_t)number;
    if ((double)whole != number) return -1;

    *ret = whole;
    pull->at = value.body + value.count;
    return 0;
}

int pull_long_text(struct pull *pull, struct slice *ret)
{
    struct value value;
    if (!look(pull, &value) || (value.format.kind != FORMAT_STR && value.format.kind != FORMAT_BIN)) return -1;
    *ret = (struct slice){value.body, value.count};
    pull->at = value.body + value.count;
    return 0;
}

/* Enter a container: its values come next. */
static int enter(struct pull *pull, enum format_kind kind, uint32_t *ret_n)
{
    struct value value;
    if (!look(pull, &value) || value.format.kind != kind) return -1;
    *ret_n = value.count;
    pull->at = value.body;
    return 0;
}

int pull_long_array(struct pull *pull, uint32_t *ret_n)
{
    return enter(pull, FORMAT_ARRAY, ret_n);
}

int pull_map(struct pull *pull, uint32_t *ret_n)
{
    return enter(pull, FORMAT_MAP, ret_n);
}

int pull_skip(struct pull *pull)
{
    struct pull at = *pull;
    /* Cannot overflow: look() allows a container only as many values as bytes are left. */
    for (uint64_t n = 1; n > 0; n--) {
        struct value value;
        if (!look(&at, &value)) return -1;

        at.at = value.body;
        if (value.format.kind == FORMAT_ARRAY)
            n += value.count;
        else if (value.format.kind == FORMAT_MAP)
            n += (uint64_t)value.count * 2;
        else
            at.at += value.count;
    }
    *pull = at;
    return 0;
}

bool pull_is_bin(const struct pull *pull)
{
    struct value value;
    return look(pull, &value) && value.format.kind == FORMAT_BIN;
}
