/* account.c: names and numbers of users and groups, for the readers of the configuration (config/). */
#include "base/account.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"

enum {
    SPACE_LEAST = 4096,
    SPACE_MAX = 4 << 20, /* bytes of what a look-up brings along, such as all members of a group */
};

/* Looks a name up. 0; ERANGE: it needs more space; another errno, or -1: there is none. */
typedef int look_up_fn(const char *name, char *space, size_t size, uint32_t *ret);

static int look_up_user(const char *name, char *space, size_t size, uint32_t *ret)
{
    struct passwd user, *found = NULL;
    int status = getpwnam_r(name, &user, space, size, &found);
    if (status == 0 && found != NULL) *ret = found->pw_uid;
    return status == 0 && found == NULL ? -1 : status;
}

static int look_up_group(const char *name, char *space, size_t size, uint32_t *ret)
{
    struct group group, *found = NULL;
    int status = getgrnam_r(name, &group, space, size, &found);
    if (status == 0 && found != NULL) *ret = found->gr_gid;
    return status == 0 && found == NULL ? -1 : status;
}

static bool find(look_up_fn *look_up, const char *name, uint32_t *ret)
{
    int status = ERANGE;
    for (size_t size = SPACE_LEAST; status == ERANGE && size <= SPACE_MAX; size *= 4) {
        char *space = mem_alloc(size);
        if (space == NULL) return false;
        status = look_up(name, space, size, ret);
        mem_free(space);
    }
    if (status == 0) return true;

    char *end;
    errno = 0;
    unsigned long number = strtoul(name, &end, 10);
    if (name[0] < '0' || name[0] > '9' || *end != '\0' || errno != 0 || number >= UINT32_MAX) return false;
    *ret = (uint32_t)number;
    return true;
}

bool account_user(const char *name, uid_t *ret)
{
    return find(look_up_user, name, ret);
}

bool account_group(const char *name, gid_t *ret)
{
    return find(look_up_group, name, ret);
}
