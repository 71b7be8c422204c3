/* users.c: asks the kernel once for the namespace of users, for the rules of access. */
#include "base/users.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_initial_namespace;

/* The initial namespace has one row, which leaves every number as it is. */
void users_look(const char *uid_map)
{
    char row[128], *at = row;
    FILE *file = fopen(uid_map, "re");
    is_initial_namespace = false;
    if (file == NULL) return;
    if (fgets(row, sizeof row, file) != NULL) {
        unsigned long inside = strtoul(at, &at, 10);
        unsigned long outside = strtoul(at, &at, 10);
        is_initial_namespace = inside == 0 && outside == 0 && strtoul(at, &at, 10) == UINT32_MAX;
    }
    fclose(file);
}

bool users_is_ambiguous(uint32_t id)
{
    return id == USERS_OVERFLOW_ID && !is_initial_namespace;
}
