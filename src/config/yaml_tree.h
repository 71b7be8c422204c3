/*
 * yaml_tree.h: a YAML file as a tree that knows its lines (libyaml).
 *
 * The configuration needs little of YAML, and what it does not need is refused by name: anchors
 * and aliases (which would let ten lines unfold into a billion), tags, several documents, keys that
 * are not text, duplicate keys.
 */
#ifndef RL_CONFIG_YAML_TREE_H
#define RL_CONFIG_YAML_TREE_H

#include "policy/tree.h"

enum { YAML_TREE_DEPTH_MAX = 16 };

/* The root, or NULL where the syntax is broken (or memory short), with the fault recorded. An empty file is an empty
 * map. Faults may have been added to a tree that is returned. */
struct tree_node *yaml_tree_parse(const char *bytes, size_t len, struct faults *faults);

#endif
