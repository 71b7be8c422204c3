/*
 * tree.h: settings as a tree of maps, lists and texts: of a YAML file, or of a message that brought a policy's.
 *
 * The configuration needs little of YAML, and what it does not need is refused by name: anchors
 * and aliases (which would let ten lines unfold into a billion), tags, several documents, keys that
 * are not text, duplicate keys. Depth is bounded, and with it every recursion over the tree.
 *
 * In a tree that came in a message, maps are sorted by key and numbers are written out in one way, so that settings
 * that are equal make equal trees: what packed_tree_write() says of one is the same in every daemon.
 */
#ifndef RL_CONFIG_TREE_H
#define RL_CONFIG_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"
#include "config/faults.h"

enum { YAML_TREE_DEPTH_MAX = 16, PACKED_TREE_DEPTH_MAX = 8 };

enum tree_kind {
    TREE_TEXT,
    TREE_LIST,
    TREE_MAP,
    TREE_REFUSED, /* a fault has been recorded for it: say nothing more */
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

/* The root, or NULL where the syntax is broken (or memory short), with the fault recorded. An empty file is an empty
 * map. Faults may have been added to a tree that is returned. */
struct tree_node *yaml_tree_parse(const char *bytes, size_t len, struct faults *faults);
void tree_free(struct tree_node *node);                             /* NULL is fine */
void tree_append(struct tree_node *parent, struct tree_node *node); /* as the last of its members */

/* The packed map `map`, a whole value; `name` is what a fault calls it. NULL with a fault recorded; free it with
 * tree_free(). */
struct tree_node *packed_tree_read(struct slice map, const char *name, struct faults *faults);

/* The tree as bytes, the same for equal trees and for no others, to the end of `out`. 0, or -1 without memory. */
int packed_tree_write(const struct tree_node *node, struct buffer *out);

#endif
