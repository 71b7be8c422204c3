#include "ctl/access.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ctl/text.h"

enum { NAME_SIZE = 64, PATH_SIZE = sizeof((struct sockaddr_un){0}.sun_path) };

/* The path in "cannot connect to PATH: Permission denied", in a locale whose words these are. */
static bool find_path(const char *error, char path[PATH_SIZE])
{
    static const char before[] = "cannot connect to ";
    size_t before_len = sizeof before - 1, len = strlen(error);
    const char *reason = strerror(EACCES);
    size_t after_len = strlen(": ") + strlen(reason);
    if (strncmp(error, before, before_len) != 0 || len <= before_len + after_len) return false;
    if (strcmp(error + len - strlen(reason), reason) != 0) return false;

    size_t path_len = len - before_len - after_len;
    if (path_len >= PATH_SIZE) return false;
    memcpy(path, error + before_len, path_len);
    path[path_len] = '\0';
    return true;
}

static const char *group_name(gid_t gid, char name[NAME_SIZE])
{
    const struct group *group = getgrgid(gid);
    if (group != NULL)
        snprintf(name, NAME_SIZE, "%s", group->gr_name);
    else
        snprintf(name, NAME_SIZE, "%u", (unsigned)gid);
    return name;
}

static const char *user_name(uid_t uid, char name[NAME_SIZE])
{
    const struct passwd *user = getpwuid(uid);
    if (user != NULL)
        snprintf(name, NAME_SIZE, "%s", user->pw_name);
    else
        snprintf(name, NAME_SIZE, "%u", (unsigned)uid);
    return name;
}

/* What keeps this user out of a file that asks for the permission bit `needed` (of others, an octal digit). */
static void print_owner(FILE *out, const struct stat *status, unsigned needed, const char *setting)
{
    char name[NAME_SIZE];
    unsigned mode = (unsigned)status->st_mode & 07777;
    bool helps = (mode >> 3 & needed) == needed; /* to be in the group */
    if (helps)
        fprintf(out, " belongs to group %s, mode %04o: add this user to the group and log in again",
                group_name(status->st_gid, name), mode);
    else
        fprintf(out, " belongs to user %s, mode %04o, which gives the group no access: %s",
                user_name(status->st_uid, name), mode, setting);
}

/* The first directory above `path` that this user may not enter; cut off there. */
static bool find_closed_directory(char *path, struct stat *ret)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(path, X_OK) != 0 && errno == EACCES && stat(path, ret) == 0) return true;
        *slash = '/';
    }
    return false;
}

bool access_explain(FILE *out, const char *error)
{
    char path[PATH_SIZE];
    struct stat status;
    if (!find_path(error, path)) return false;

    fputs("cannot connect to ", out);
    text_print(out, slice_of(path));
    fputs(": permission denied; ", out);

    if (stat(path, &status) == 0) {
        fputs("it", out);
        print_owner(out, &status, 2, "set listen.group and listen.mode");
    } else if (find_closed_directory(path, &status)) {
        fputs("the directory ", out);
        text_print(out, slice_of(path));
        print_owner(out, &status, 1, "let its group enter it");
    } else {
        fputs("this user has no permission to inspect it", out);
    }
    return true;
}
