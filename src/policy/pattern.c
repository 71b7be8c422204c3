/* pattern.c: matches keys, and looks patterns up by their anchors, for override.c and access.c. */
#include "policy/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

/* ---- one pattern ---- */

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
bool pattern_matches(struct slice pattern, struct slice key)
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

/* ---- anchors ---- */

enum place { PLACE_START, PLACE_END, PLACE_INSIDE };

enum {
    EDGE_MAX = 63,     /* bytes of an anchor at the start or end: a bit in a mask */
    INSIDE_MAX = 4,    /* bytes of one inside */
    INSIDE_PRICE = 16, /* for its look-ups at every byte of a key: it must save so many times as many comparisons */
    COUNTS_PER_PATTERN = 16,
};

struct anchor {
    enum place place;
    size_t len;
    uint64_t hash;
};

/* Not keyed: an author of patterns could at most make the search as slow as trying them all. */
static const uint64_t hash_start[] = {
    [PLACE_START] = UINT64_C(0x9e3779b97f4a7c15),
    [PLACE_END] = UINT64_C(0xc2b2ae3d27d4eb4f),
    [PLACE_INSIDE] = UINT64_C(0x165667b19e3779f9),
};

static inline uint64_t hash_step(uint64_t hash, uint8_t byte)
{
    hash = (hash ^ byte) * UINT64_C(0x9fb21c651e98df25);
    return hash ^ hash >> 32;
}

/* The hash of the last `len` of the bytes in `window`. */
static inline uint64_t hash_inside(uint32_t window, size_t len)
{
    uint64_t bytes = window & UINT32_MAX >> (8 * (INSIDE_MAX - len));
    uint64_t hash = (hash_start[PLACE_INSIDE] ^ bytes ^ (uint64_t)len << 32) * UINT64_C(0x9fb21c651e98df25);
    return hash ^ hash >> 32;
}

/* What the patterns of a set offer as anchors: first they are counted, by their hashes, then the least one is chosen.
 * Two with one count seem more frequent than they are, which does no harm. */
struct census {
    uint32_t *counts; /* owned; NULL without memory */
    size_t mask;
    bool is_counted;
    uint64_t least; /* the price of `chosen` */
    struct anchor chosen;
};

static void consider_anchor(struct census *census, enum place place, size_t len, uint64_t hash)
{
    uint32_t *count = census->counts != NULL ? &census->counts[hash & census->mask] : NULL;
    if (!census->is_counted) {
        if (count != NULL) ++*count;
        return;
    }

    uint64_t price = count != NULL ? *count : 1;
    if (place == PLACE_INSIDE) price *= INSIDE_PRICE;
    if (price >= census->least) return;
    census->least = price;
    census->chosen = (struct anchor){place, len, hash};
}

/* The bytes at the start or the end of a text that has none but stars is an anchor, too: an empty one. */
static void consider_all(struct census *census, const struct pattern *pattern)
{
    const uint8_t *text = pattern->text.data;
    size_t len = pattern->text.len, n_start = 0, n_end = 0, run = 0;
    uint64_t start = hash_start[PLACE_START], end = hash_start[PLACE_END];
    uint32_t window = 0;
    while (n_start < len && n_start < EDGE_MAX && text[n_start] != '*') start = hash_step(start, text[n_start++]);
    while (n_end < len && n_end < EDGE_MAX && text[len - 1 - n_end] != '*')
        end = hash_step(end, text[len - 1 - n_end++]);

    if (n_start > 0 || pattern->n_literal == 0) consider_anchor(census, PLACE_START, n_start, start);
    if (n_end > 0) consider_anchor(census, PLACE_END, n_end, end);

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '*') {
            run = 0;
            continue;
        }
        window = window << 8 | text[i];
        if (run < INSIDE_MAX) run++;
        bool is_last = i + 1 == len || text[i + 1] == '*';
        if (run == INSIDE_MAX || is_last) consider_anchor(census, PLACE_INSIDE, run, hash_inside(window, run));
    }
}

/* ---- the set ---- */

int pattern_set_init(struct pattern_set *set, size_t cap)
{
    *set = (struct pattern_set){.by_rank = mem_alloc(cap * sizeof(struct pattern *)), .cap = cap};
    if (set->by_rank != NULL && map_init(&set->by_anchor, cap) == 0) return 0;
    mem_free(set->by_rank);
    return -1;
}

void pattern_set_fini(struct pattern_set *set)
{
    map_fini(&set->by_anchor);
    mem_free(set->by_rank);
}

void pattern_set_add(struct pattern_set *set, struct pattern *pattern, struct slice text)
{
    CHECK(set->n < set->cap);
    *pattern = (struct pattern){.text = text, .rank = set->n};
    for (size_t i = 0; i < text.len; i++) pattern->n_literal += text.data[i] != '*';
    set->by_rank[set->n++] = pattern;
}

static int by_specificity(const void *left, const void *right)
{
    const struct pattern *a = *(const struct pattern *const *)left, *b = *(const struct pattern *const *)right;
    if (a->n_literal != b->n_literal) return a->n_literal > b->n_literal ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank; /* in the order they were added */
}

void pattern_set_seal(struct pattern_set *set)
{
    CHECK(set->by_anchor.n == 0);
    if (set->n == 0) return;
    qsort(set->by_rank, set->n, sizeof set->by_rank[0], by_specificity);
    for (size_t i = 0; i < set->n; i++) set->by_rank[i]->rank = i;

    size_t n_counts = COUNTS_PER_PATTERN; /* a power of two */
    while (n_counts < set->n * COUNTS_PER_PATTERN) n_counts *= 2;
    struct census census = {.counts = mem_zalloc(n_counts * sizeof census.counts[0]), .mask = n_counts - 1};
    for (size_t i = 0; i < set->n; i++) consider_all(&census, set->by_rank[i]);
    census.is_counted = true;

    /* The most specific one comes last, and so first in its chain. */
    for (size_t i = set->n; i-- > 0;) {
        const struct anchor *anchor = &census.chosen;
        census.least = UINT64_MAX;
        consider_all(&census, set->by_rank[i]);
        map_insert(&set->by_anchor, &set->by_rank[i]->node, anchor->hash);
        switch (anchor->place) {
        case PLACE_START: set->starts |= UINT64_C(1) << anchor->len; break;
        case PLACE_END: set->ends |= UINT64_C(1) << anchor->len; break;
        case PLACE_INSIDE: set->insides |= 1U << anchor->len; break;
        }
    }
    mem_free(census.counts);
}

/* ---- the search ---- */

struct search {
    const struct pattern_set *set;
    struct slice key;
    const struct pattern *best; /* so far */
    size_t n_compared;
};

/* With the patterns of one anchor, the most specific first. */
static void compare_anchored(struct search *search, uint64_t hash)
{
    struct map_node *node = map_first(&search->set->by_anchor, hash);
    for (; node != NULL; node = map_next_same(node)) {
        const struct pattern *pattern = CONTAINER_OF(node, struct pattern, node);
        if (search->best != NULL && search->best->rank < pattern->rank) return;

        search->n_compared++;
        if (!pattern_matches(pattern->text, search->key)) continue;
        search->best = pattern;
        return;
    }
}

/* With the anchors of each of these lengths at the key's start, or at its end. */
static inline void compare_edge(struct search *search, enum place place, uint64_t lens)
{
    const struct slice key = search->key;
    uint64_t hash = hash_start[place];
    for (size_t len = 0; lens != 0; lens &= lens - 1) {
        const size_t next = (size_t)__builtin_ctzll(lens);
        if (next > key.len) return;
        for (; len < next; len++) hash = hash_step(hash, key.data[place == PLACE_START ? len : key.len - 1 - len]);
        compare_anchored(search, hash);
    }
}

static void compare_insides(struct search *search)
{
    const struct slice key = search->key;
    uint32_t window = 0;
    for (size_t i = 0; i < key.len; i++) {
        window = window << 8 | key.data[i];
        for (unsigned lens = search->set->insides; lens != 0; lens &= lens - 1) {
            const size_t len = (size_t)__builtin_ctz(lens);
            if (len > i + 1) break;

            const uint64_t hash = hash_inside(window, len);
            if (map_first(&search->set->by_anchor, hash) == NULL) continue;
            /* a text that the key repeats, as in aaaa, was looked up where it came first */
            if (memmem(key.data, i, key.data + (i + 1 - len), len) == NULL) compare_anchored(search, hash);
        }
    }
}

static struct search search_all(const struct pattern_set *set, struct slice key)
{
    struct search search = {.set = set, .key = key};
    compare_edge(&search, PLACE_START, set->starts);
    compare_edge(&search, PLACE_END, set->ends);
    if (set->insides != 0) compare_insides(&search);
    return search;
}

const struct pattern *pattern_set_find(const struct pattern_set *set, struct slice key)
{
    return search_all(set, key).best;
}

size_t pattern_set_n_compared(const struct pattern_set *set, struct slice key)
{
    return search_all(set, key).n_compared;
}
