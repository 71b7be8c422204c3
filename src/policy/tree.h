/*
 * tree.h: settings as a tree of maps, lists and texts, from a YAML file (config/yaml_tree.h) or from a message with an
 * inline policy.
 *
 * In a tree from a message, maps are sorted by key and numbers are written in one way, so that equal settings give
 * equal trees, for which tree_write() writes the same bytes in every daemon. The depth is bounded, and so is every
 * recursion over a tree.
 */
#ifndef RL_POLICY_TREE_H
#define RL_POLICY_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"
#include "policy/faults.h"

enum { TREE_DEPTH_MAX = 8 /* of a message */ };

enum tree_kind {
    TREE_TEXT,
    TREE_LIST,
    TREE_MAP,
    TREE_REFUSED, /* its fault is recorded: record no other */
};

struct tree_node {
    enum tree_kind kind;
    uint32_t line;                  /* of the key for a member of a map, else of the value */
    bool is_null;                   /* a text that is empty, `~` or `null`, without quotes */
    char *key;                      /* owned; NULL outside maps */
    char *text;                     /* owned; TREE_TEXT only, free of NUL bytes */
    struct tree_node *first, *last; /* owned; the members, as written */
    struct tree_node *next;
};

void tree_free(struct tree_node *node);                             /* NULL is fine */
void tree_append(struct tree_node *parent, struct tree_node *node); /* as the last of its members */

/* Takes the member `key` out of a map; the caller frees it. NULL: it has none. */
struct tree_node *tree_take(struct tree_node *map, const char *key);

size_t tree_count(const struct tree_node *node); /* of its members */
/* The n members of a map sorted by key, equal keys by line. mem_free() it; NULL without memory. */
struct tree_node **tree_by_key(const struct tree_node *map, size_t n);

/* The packed map `map`, a whole value; `name` is what a fault calls it. NULL with a fault recorded; free it with
 * tree_free(). */
struct tree_node *tree_unpack(struct slice map, const char *name, struct faults *faults);

/* Appends the tree as bytes to `out`: the same bytes for equal trees only. 0, or -1 without memory. */
int tree_write(const struct tree_node *node, struct buffer *out);

#endif
