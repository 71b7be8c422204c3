#include "base/users.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_initial_namespace;

/* The initial namespace has one row, which leaves every number as it is. */
void users_look(const char *uid_map)
{
    uint32_t inside, outside, n;
    FILE *file = fopen(uid_map, "re");
    is_initial_namespace = false;
    if (file == NULL) return;
    if (fscanf(file, "%" SCNu32 " %" SCNu32 " %" SCNu32, &inside, &outside, &n) == 3)
        is_initial_namespace = inside == 0 && outside == 0 && n == UINT32_MAX;
    fclose(file);
}

bool users_is_ambiguous(uint32_t id)
{
    return id == USERS_OVERFLOW_ID && !is_initial_namespace;
}
