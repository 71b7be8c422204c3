/* method.c: the rows of methods.def by name and by role, for server/ and for the rules of access (policy/). */
#include "proto/method.h"

static const struct {
    const char *name;
    enum role role;
} rows[N_METHODS] = {
#define METHOD(name, role, ...) [METHOD_##name] = {#name, ROLE_##role},
#include "proto/methods.def"
#undef METHOD
};

#define METHOD(name, role, ...) _Static_assert(ROLE_##role > ROLE_NONE, #name " needs a role");
#include "proto/methods.def"
#undef METHOD

const char *method_name(enum method method)
{
    return rows[method].name;
}

enum role method_role(enum method method)
{
    return rows[method].role;
}

enum method method_find(struct slice name)
{
    size_t at = 0;
    while (at < N_METHODS && !slice_is(name, rows[at].name)) at++;
    return (enum method)at;
}

method_set methods_of_role(enum role role)
{
    method_set set = 0;
    for (size_t i = 0; i < N_METHODS; i++)
        if (rows[i].role <= role) set |= (method_set)1 << i;
    return set;
}
