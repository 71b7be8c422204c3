/*
 * method.h: the methods of the protocol, listed once in methods.def with the role that each needs. A row without a role
 * does not compile, and one with ROLE_NONE does not either.
 */
#ifndef RL_PROTO_METHOD_H
#define RL_PROTO_METHOD_H

#include <stdint.h>

#include "base/role.h"
#include "base/slice.h"

enum method {
#define METHOD(name, ...) METHOD_##name,
#include "proto/methods.def"
#undef METHOD
    N_METHODS
};

typedef uint64_t method_set; /* bit n: enum method n */
_Static_assert(N_METHODS <= 64, "a method_set has a bit for each method");

const char *method_name(enum method method);
enum role method_role(enum method method);  /* the least that may call it */
enum method method_find(struct slice name); /* N_METHODS: there is none */
method_set methods_of_role(enum role role); /* that it may call */

#endif
