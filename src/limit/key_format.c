/* key_format.c: splits keys at a format's literals, for the policies that have one, and for their limits. */
#include "limit/key_format.h"

#include <stdio.h>

#include "base/assert.h"

int key_format_find(const struct key_format *format, struct slice name)
{
    for (int i = 0; i < format->n_parts; i++)
        if (slice_eq(format->names[i], name)) return i;
    return -1;
}

/* From `at` up to a brace or the end. */
static struct slice piece_at(const char *at)
{
    return (struct slice){(const uint8_t *)at, strcspn(at, "{}")};
}

const char *key_format_parse(struct key_format *format, const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    *format = (struct key_format){0};
    if (strlen(text) > KEY_FORMAT_MAX) return "is longer than 255 bytes; write a shorter one";
    snprintf(format->text, sizeof format->text, "%s", text);
    const char *at = format->text;
    format->start = piece_at(at);
    at += format->start.len;

    while (*at != '\0') {
        if (*at == '}') return "has a } without a { before it; write it like {tenant}:{user}";
        struct slice name = piece_at(++at);
        size_t n_letters = strspn(at, letters);
        at += name.len;
        if (*at != '}') return "has a { without its }; write it like {tenant}:{user}";
        at++;
        if (n_letters == 0 || n_letters != name.len)
            return "has a part with an invalid name; write letters, digits, dots, dashes or underscores";
        if (key_format_find(format, name) >= 0) return "has two parts of one name; give each its own";
        if (format->n_parts == KEY_PARTS_MAX) return "has more than 16 parts; write fewer";

        struct slice literal = piece_at(at);
        char next = at[literal.len];
        if (next == '{' && literal.len == 0)
            return "has two parts with nothing between them; write a literal such as :";
        if (next == '\0' && literal.len > 0) return "ends in a literal, but the last part takes the rest; leave it out";
        at += literal.len;
        format->names[format->n_parts] = name;
        format->literals[format->n_parts++] = literal;
    }
    return format->n_parts > 0 ? NULL : "has no parts; write it like {tenant}:{user}";
}

bool key_format_split(const struct key_format *format, struct slice key, struct key_split *ret)
{
    const uint8_t *at = key.data, *end = key.data + key.len;
    ret->key = key;
    if (key.len < format->start.len) return false;
    if (format->start.len > 0 && memcmp(at, format->start.data, format->start.len) != 0) return false;
    at += format->start.len;

    for (int i = 0; i < format->n_parts; i++) {
        struct slice literal = format->literals[i];
        bool is_last = i == format->n_parts - 1;
        const uint8_t *stop = is_last ? end : memmem(at, (size_t)(end - at), literal.data, literal.len);
        if (stop == NULL || stop == at) return false;
        ret->parts[i] = (struct slice){at, (size_t)(stop - at)};
        at = stop + literal.len;
    }
    return true;
}

bool key_format_takes(const struct key_format *format, struct slice key)
{
    struct key_split split;
    return key_format_split(format, key, &split);
}

/* The last part is never fixed: the key may go on. */
key_parts key_format_fixed(const struct key_format *format, struct slice start)
{
    key_parts fixed = 0;
    const uint8_t *at = start.data, *end = start.data + start.len;
    if (start.len < format->start.len) return 0;
    if (format->start.len > 0 && memcmp(at, format->start.data, format->start.len) != 0) return 0;
    at += format->start.len;

    for (int i = 0; i < format->n_parts - 1; i++) {
        struct slice literal = format->literals[i];
        const uint8_t *stop = memmem(at, (size_t)(end - at), literal.data, literal.len);
        if (stop == NULL) break;
        fixed |= (key_parts)(1U << i);
        at = stop + literal.len;
    }
    return fixed;
}

/* Are they a piece of the key (or none, or all of it)? */
bool key_format_is_joined(const struct key_format *format, key_parts parts)
{
    if (parts == 0 || parts == key_format_all(format)) return false;
    unsigned run = parts >> __builtin_ctz(parts);
    return (run & (run + 1)) != 0;
}

struct slice key_format_id(const struct key_format *format, const struct key_split *split, key_parts parts,
                           uint8_t *space)
{
    if (parts == key_format_all(format)) return split->key;
    if (parts == 0) return (struct slice){split->key.data, 0};
    if (!key_format_is_joined(format, parts)) {
        const struct slice *first = &split->parts[__builtin_ctz(parts)];
        const struct slice *last = &split->parts[31 - __builtin_clz((unsigned)parts)];
        return (struct slice){first->data, (size_t)(last->data + last->len - first->data)};
    }

    uint8_t *at = space;
    const struct slice *literal = NULL;
    for (int i = 0; i < format->n_parts; i++) {
        if (!(parts & 1U << i)) continue;
        if (literal != NULL) at = (uint8_t *)mempcpy(at, literal->data, literal->len);
        at = (uint8_t *)mempcpy(at, split->parts[i].data, split->parts[i].len);
        literal = &format->literals[i];
    }
    CHECK((size_t)(at - space) <= split->key.len);
    return (struct slice){space, (size_t)(at - space)};
}

bool key_format_same(const struct key_split *a, const struct key_split *b, key_parts parts)
{
    for (int i = 0; parts >> i != 0; i++)
        if (parts & 1U << i && !slice_eq(a->parts[i], b->parts[i])) return false;
    return true;
}

bool key_format_same_ids(const struct key_format *a, key_parts parts_a, const struct key_format *b, key_parts parts_b)
{
    bool is_whole_a = a == NULL || parts_a == key_format_all(a), is_whole_b = b == NULL || parts_b == key_format_all(b);
    if (is_whole_a || is_whole_b) return is_whole_a && is_whole_b;
    if (parts_a == 0 || parts_b == 0) return parts_a == parts_b;

    if (parts_a != parts_b || a->n_parts != b->n_parts || !slice_eq(a->start, b->start)) return false;
    for (int i = 0; i < a->n_parts; i++)
        if (!slice_eq(a->literals[i], b->literals[i])) return false;
    return true;
}
