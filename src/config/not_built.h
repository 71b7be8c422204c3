/*
 * not_built.h: not_built.def as a question: is this a name of the interface that this version lacks?
 */
#ifndef RL_CONFIG_NOT_BUILT_H
#define RL_CONFIG_NOT_BUILT_H

/* What to do instead, or NULL where the path is not in the table. `value` is NULL for the setting as a whole. */
const char *not_built(const char *path, const char *value);

#endif
