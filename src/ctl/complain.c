#include "ctl/complain.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ctl/json.h"
#include "ctl/text.h"

enum { NAME_SIZE = 64, PATH_SIZE = sizeof((struct sockaddr_un){0}.sun_path) };

enum exit_code usage_error(const char *what, const char *which)
{
    fprintf(stderr, "ratelimitctl: %s%s%s; try ratelimitctl --help\n", what, which[0] != '\0' ? ": " : "", which);
    return EXIT_USAGE;
}

/* What keeps this user out of a file that asks for the permission bit `needed` (of others, an octal digit). */
static void print_owner(const struct stat *status, unsigned needed, const char *setting)
{
    char name[NAME_SIZE];
    unsigned mode = (unsigned)status->st_mode & 07777;
    bool group_helps = (mode >> 3 & needed) == needed;
    const struct group *group = group_helps ? getgrgid(status->st_gid) : NULL;
    const struct passwd *user = group_helps ? NULL : getpwuid(status->st_uid);
    if (group != NULL || user != NULL)
        snprintf(name, sizeof name, "%s", group != NULL ? group->gr_name : user->pw_name);
    else
        snprintf(name, sizeof name, "%u", (unsigned)(group_helps ? status->st_gid : status->st_uid));

    if (group_helps)
        fprintf(stderr, " belongs to group %s, mode %04o: add this user to the group and log in again", name, mode);
    else
        fprintf(stderr, " belongs to user %s, mode %04o, which gives the group no access: %s", name, mode, setting);
}

/* This user may not connect to the daemon's socket: prints who owns the socket or the directory that refuses it, and
 * what to do about it. */
static void explain_no_access(const char *socket_path)
{
    char path[PATH_SIZE];
    struct stat status;
    snprintf(path, sizeof path, "%s", socket_path);

    fputs("cannot connect to ", stderr);
    text_print(stderr, slice_of(path));
    fputs(": permission denied; ", stderr);
    if (stat(path, &status) == 0) {
        fputs("it", stderr);
        print_owner(&status, 2, "set listen.group and listen.mode");
        return;
    }

    /* The first directory above it that this user may not enter. */
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(path, X_OK) != 0 && errno == EACCES && stat(path, &status) == 0) {
            fputs("the directory ", stderr);
            text_print(stderr, slice_of(path));
            print_owner(&status, 1, "let its group enter it");
            return;
        }
        *slash = '/';
    }
    fputs("this user has no permission to inspect it", stderr);
}

enum exit_code complain(const struct link *link, enum ratelimit_status status, const char *code, const char *error,
                        bool json)
{
    /* A code that came before the daemon closed is about what was asked here: there was nothing else on this
     * connection. */
    bool is_lost = status == RATELIMIT_LOST;
    bool is_refusal = status == RATELIMIT_REFUSED || (is_lost && code[0] != '\0');
    int connect_errno = status == RATELIMIT_UNREACHABLE ? link->connect_errno : 0;

    fputs("ratelimitctl: ", stderr);
    if (is_refusal) {
        text_print_sentence(stderr, slice_of(error));
    } else if (connect_errno == EACCES) {
        explain_no_access(link->address.sun_path);
    } else {
        text_print(stderr, slice_of(error));
        if (status == RATELIMIT_TIMEOUT || is_lost)
            fputs("; the request was sent and may have taken effect", stderr);
        else if (connect_errno != 0)
            fputs("; is ratelimitd running, and is this its socket? Set another with -s or $RATELIMIT_SOCKET", stderr);
    }
    fputc('\n', stderr);

    if (status == RATELIMIT_BAD_ARGUMENT) return EXIT_USAGE;
    if (!is_refusal) return EXIT_UNREACHABLE;
    if (json) {
        size_t code_len = strlen(code);
        fputs("{\"error\": ", stdout);
        json_text(stdout, slice_of(code));
        fputs(", \"message\": ", stdout);
        json_text(stdout, slice_of(error + (code_len > 0 ? code_len + strlen(": ") : 0)));
        fputs("}\n", stdout);
    }
    return EXIT_REFUSED;
}

enum exit_code complain_open(enum ratelimit_status status)
{
    return usage_error(status == RATELIMIT_BAD_ARGUMENT
                           ? "the socket's path (of -s, or $RATELIMIT_SOCKET) is empty or over 107 bytes"
                           : ratelimit_status_text(status),
                       "");
}
