/*
 * yaml_tree.h: a YAML file as a tree of maps, lists and texts that know their lines (libyaml).
 *
 * The configuration needs little of YAML, and what it does not need is refused by name: anchors
 * and aliases (which would let ten lines unfold into a billion), tags, several documents, keys that
 * are not text, duplicate keys. Depth is bounded, and with it every recursion over the tree.
 */
#ifndef RL_CONFIG_YAML_TREE_H
#define RL_CONFIG_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/faults.h"

enum { YAML_TREE_DEPTH_MAX = 16 };

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
void yaml_tree_free(struct tree_node *node);                             /* NULL is fine */
void yaml_tree_append(struct tree_node *parent, struct tree_node *node); /* as the last of its members */

#endif
