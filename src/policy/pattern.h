/*
 * pattern.h: keys by pattern, and a set of patterns that finds the one that counts for a key without trying them all.
 *
 * A `*` stands for any run of bytes, also none. Of several patterns that match a key, the most specific one counts: the
 * one with more bytes other than `*`, then the one added first.
 *
 * Each pattern of a set has an *anchor*, a text that every key has that it matches: the bytes before its first star, at
 * the key's start; those behind its last star, at the key's end; or up to four neighbouring bytes of any of its texts,
 * somewhere. It is the one that the fewest other patterns have, too. A search looks up what the key has in these places
 * and compares it with the patterns found there alone, with each at most once.
 *
 *   partner:*          start     partner:
 *   *:admin            end       :admin
 *   tenant:*:u17       end       :u17        if many patterns begin with tenant:
 *   *beta*             inside    beta
 *
 * What remains linear: patterns that have all these texts in common, such as `*1*2*` and `*2*1*`, are tried one after
 * another. Patterns with an anchor inside take a look-up for every byte of the key.
 */
#ifndef RL_POLICY_PATTERN_H
#define RL_POLICY_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/slice.h"

bool pattern_matches(struct slice pattern, struct slice key);

struct pattern {
    struct map_node node; /* by the anchor */
    struct slice text;    /* not owned */
    size_t n_literal;     /* bytes that are no `*` */
    size_t rank;          /* in the set: 0 is the most specific */
};

struct pattern_set {
    struct pattern **by_rank; /* owned; the patterns are not. As added, until the set is sealed */
    size_t n, cap;
    struct map by_anchor;
    uint64_t starts, ends; /* bit n: a pattern has an anchor of n bytes there */
    unsigned insides;
};

int pattern_set_init(struct pattern_set *set, size_t cap); /* 0, or -1 without memory */
void pattern_set_fini(struct pattern_set *set);

/* At most cap of them; `pattern` and `text` stay where they are. */
void pattern_set_add(struct pattern_set *set, struct pattern *pattern, struct slice text);
/* Once, after the last one and before the first search. Without memory for it the anchors are not the best. */
void pattern_set_seal(struct pattern_set *set);

/* The pattern that counts for the key, or NULL. */
const struct pattern *pattern_set_find(const struct pattern_set *set, struct slice key);
/* For tests, which bound it: the number of patterns that this compares with the key. */
size_t pattern_set_n_compared(const struct pattern_set *set, struct slice key);

#endif
