#include "policy/override.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/hash.h"
#include "policy/policy.h"

struct overrides *overrides_new(size_t cap)
{
    struct overrides *overrides = mem_zalloc(sizeof *overrides);
    if (overrides == NULL) return NULL;

    overrides->cap = cap;
    overrides->items = mem_zalloc(cap * sizeof *overrides->items);
    overrides->patterns = mem_alloc(cap * sizeof *overrides->patterns);
    if (overrides->items != NULL && overrides->patterns != NULL && map_init(&overrides->by_text, cap) == 0)
        return overrides;

    mem_free(overrides->items);
    mem_free(overrides->patterns);
    mem_free(overrides);
    return NULL;
}

void overrides_free(struct overrides *overrides)
{
    if (overrides == NULL) return;

    for (size_t i = 0; i < overrides->n; i++) mem_free(overrides->items[i].text);
    map_fini(&overrides->by_text);
    mem_free(overrides->patterns);
    mem_free(overrides->items);
    mem_free(overrides);
}

static int by_specificity(const void *left, const void *right)
{
    const struct override *a = *(const struct override *const *)left, *b = *(const struct override *const *)right;
    if (a->n_literal != b->n_literal) return a->n_literal > b->n_literal ? -1 : 1;
    return a < b ? -1 : a > b; /* in the order they were written */
}

void overrides_sort(struct overrides *overrides)
{
    if (overrides->n_patterns > 1)
        qsort(overrides->patterns, overrides->n_patterns, sizeof overrides->patterns[0], by_specificity);
}

int overrides_add(struct overrides *overrides, const char *text, bool is_pattern, struct policy *variant)
{
    CHECK(overrides->n < overrides->cap);
    struct override *item = &overrides->items[overrides->n];
    *item = (struct override){.text = mem_strdup(text), .is_pattern = is_pattern, .variant = variant};
    if (item->text == NULL) return -1;

    for (const char *at = text; *at != '\0'; at++) item->n_literal += *at != '*';
    variant->override = item->text;
    overrides->n++;
    map_insert(&overrides->by_text, &item->node, hash_keyed(text, strlen(text)));
    if (is_pattern) overrides->patterns[overrides->n_patterns++] = item;
    return 0;
}

const struct override *overrides_written(const struct overrides *overrides, struct slice text, bool is_pattern)
{
    struct map_node *node = map_first(&overrides->by_text, hash_keyed(text.data, text.len));
    for (; node != NULL; node = map_next_same(node)) {
        const struct override *item = CONTAINER_OF(node, struct override, node);
        if (item->is_pattern == is_pattern && slice_is(text, item->text)) return item;
    }
    return NULL;
}

static bool starts_with(struct slice text, struct slice start)
{
    return text.len >= start.len && memcmp(text.data, start.data, start.len) == 0;
}

static struct slice without_start(struct slice text, size_t len)
{
    return (struct slice){text.data + len, text.len - len};
}

/* The key must begin with the text before the first star and end with the text after the last one. The pieces in
 * between must follow each other in the rest: each is taken at its first match, which leaves the most for the others.
 */
bool override_matches(struct slice pattern, struct slice key)
{
    const uint8_t *star = memchr(pattern.data, '*', pattern.len);
    if (star == NULL) return slice_eq(pattern, key);
    struct slice piece = {pattern.data, (size_t)(star - pattern.data)};
    if (!starts_with(key, piece)) return false;

    for (;;) {
        key = without_start(key, piece.len);
        pattern = without_start(pattern, piece.len + 1);
        star = memchr(pattern.data, '*', pattern.len);
        if (star == NULL) break;

        piece.len = (size_t)(star - pattern.data);
        const uint8_t *found = memmem(key.data, key.len, pattern.data, piece.len);
        if (found == NULL) return false;
        key = without_start(key, (size_t)(found - key.data));
    }
    return key.len >= pattern.len && starts_with(without_start(key, key.len - pattern.len), pattern);
}

const struct policy *overrides_find(const struct overrides *overrides, struct slice key)
{
    const struct override *exact = overrides_written(overrides, key, false);
    if (exact != NULL) return exact->variant;

    for (size_t i = 0; i < overrides->n_patterns; i++) {
        const struct override *pattern = overrides->patterns[i];
        if (override_matches(slice_of(pattern->text), key)) return pattern->variant;
    }
    return NULL;
}
