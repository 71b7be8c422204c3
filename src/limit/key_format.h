/*
 * key_format.h: a key made of parts, `{tenant}:{user}`, and counters that belong to some of them only.
 *
 * A format alternates literals and parts; it may begin with a literal and ends with a part. A key is
 * split at the first occurrence of each literal, the last part takes the rest, and no part is empty.
 *
 * A counter of some parts goes by an *id*: these parts in the format's order, each but the last with
 * the literal that follows it in the format; all parts: the whole key. The id tells the parts apart: no
 * part holds the literal behind it, so the first occurrence of that literal ends the part, in the id
 * as in the key. Neighbouring parts are a piece of the key as it is; others are joined in
 * memory that the caller has.
 */
#ifndef RL_LIMIT_KEY_FORMAT_H
#define RL_LIMIT_KEY_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum { KEY_PARTS_MAX = 16, KEY_FORMAT_MAX = 255 };

/* A set of parts: bit i is the i-th of the format. */
typedef uint16_t key_parts;

struct key_format {
    char text[KEY_FORMAT_MAX + 1]; /* as configured */
    uint8_t n_parts;               /* 1 to KEY_PARTS_MAX */
    struct slice start;            /* the literal that it begins with, in `text`; mostly empty */
    struct slice names[KEY_PARTS_MAX];
    struct slice literals[KEY_PARTS_MAX]; /* behind each part; of the last: empty */
};

struct key_split {
    struct slice key;
    struct slice parts[KEY_PARTS_MAX]; /* n_parts of them, within the key */
};

/* NULL, or what is wrong with `text` and what to write instead (static). The format must not move. */
const char *key_format_parse(struct key_format *format, const char *text);
int key_format_find(const struct key_format *format, struct slice name); /* the part's index, or -1 */

static inline key_parts key_format_all(const struct key_format *format)
{
    return (key_parts)((1U << format->n_parts) - 1);
}

/* False: the key does not fit the format. */
bool key_format_split(const struct key_format *format, struct slice key, struct key_split *ret);
bool key_format_takes(const struct key_format *format, struct slice key); /* does it fit? */

/* The parts that are equal in all keys that fit and begin with `start`: those that it holds whole, each with the
 * literal that ends it. `acme` alone begins the key acme2:bob, too. */
key_parts key_format_fixed(const struct key_format *format, struct slice start);

bool key_format_is_joined(const struct key_format *format, key_parts parts); /* key_format_id() needs space for them */
/* The id of these parts. `space` has at least as many bytes as the key; it is used only if the parts must be joined. */
struct slice key_format_id(const struct key_format *format, const struct key_split *split, key_parts parts,
                           uint8_t *space);
/* Does every key have the same id of these parts in both formats? NULL: a format without parts. */
bool key_format_same_ids(const struct key_format *a, key_parts parts_a, const struct key_format *b, key_parts parts_b);
/* Are these parts equal in both keys? */
bool key_format_same(const struct key_split *a, const struct key_split *b, key_parts parts);

#endif
