/*
 * yaml_tree.h: a YAML file as a tree that knows its lines (libyaml).
 *
 * The configuration needs little of YAML. Each of the following is refused by name: anchors
 * and aliases (which would let ten lines unfold into a billion), tags, several documents, keys that
 * are not text, duplicate keys.
 */
#ifndef RL_CONFIG_YAML_TREE_H
#define RL_CONFIG_YAML_TREE_H

#include "policy/tree.h"

enum { YAML_TREE_DEPTH_MAX = 16 };

/* The root, or NULL with the fault recorded if the syntax is broken or memory is short. An empty file is an empty map.
 * A tree may be returned although faults were recorded. */
struct tree_node *yaml_tree_parse(const char *bytes, size_t len, struct faults *faults);

#endif
