#include "base/group.h"

#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { MEMBERS_MAX = 4 << 20 }; /* bytes of a group's members, which the look-up brings along */

bool group_find(const char *name, gid_t *ret)
{
    struct group group, *found = NULL;
    int status = ERANGE;
    for (size_t size = 4096; status == ERANGE && size <= MEMBERS_MAX; size *= 4) {
        char *space = mem_alloc(size);
        if (space == NULL) return false;
        status = getgrnam_r(name, &group, space, size, &found);
        if (status == 0 && found != NULL) *ret = found->gr_gid;
        mem_free(space);
    }
    if (found != NULL) return true;

    char *end;
    errno = 0;
    unsigned long number = strtoul(name, &end, 10);
    if (name[0] < '0' || name[0] > '9' || *end != '\0' || errno != 0 || number >= UINT32_MAX) return false;
    *ret = (gid_t)number;
    return true;
}
