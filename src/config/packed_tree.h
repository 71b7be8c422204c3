/*
 * packed_tree.h: the settings of a policy that came in a message, as the tree that a file would have made of them.
 *
 * Maps are sorted by key and numbers are written out in one way, so that settings that are equal make equal trees: what
 * packed_tree_write() says of one is the same in every daemon. Depth is bounded, and with it every recursion.
 */
#ifndef RL_CONFIG_PACKED_TREE_H
#define RL_CONFIG_PACKED_TREE_H

#include "base/buffer.h"
#include "base/slice.h"
#include "config/yaml_tree.h"

enum { PACKED_TREE_DEPTH_MAX = 8 };

/* The packed map `map`, a whole value; `name` is what a fault calls it. NULL with a fault recorded; free it with
 * yaml_tree_free(). */
struct tree_node *packed_tree_read(struct slice map, const char *name, struct faults *faults);

/* The tree as bytes, the same for equal trees and for no others, to the end of `out`. 0, or -1 without memory. */
int packed_tree_write(const struct tree_node *node, struct buffer *out);

#endif
