/*
 * nearest.h: which of the known names did somebody mean who wrote another one?
 */
#ifndef RL_CONFIG_NEAREST_H
#define RL_CONFIG_NEAREST_H

#include <stddef.h>

struct nearest {
    const char *written;
    const char *name; /* the best so far; NULL while none is near enough */
    size_t distance;
};

struct nearest nearest_to(const char *written);
void nearest_offer(struct nearest *nearest, const char *name); /* `name` lives as long as `nearest` is used */

#endif
