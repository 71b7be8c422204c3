/* complain.c: errors and their hints, on standard error, for every command. */
#include "ctl/complain.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "client/blocking.h"
#include "ctl/control_socket.h"
#include "ctl/json.h"
#include "ctl/text.h"

enum { NAME_SIZE = 64, PATH_SIZE = sizeof((struct sockaddr_un){0}.sun_path) };

static bool in_json;

void complain_in_json(void)
{
    in_json = true;
}

void complain_object(const char *code, const char *message)
{
    if (!in_json) return;
    fputs("{\"error\": ", stdout);
    json_text(stdout, slice_of(code));
    fputs(", \"message\": ", stdout);
    json_text(stdout, slice_of(message));
    fputs("}\n", stdout);
}

enum exit_code complain_usage(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);

    const char *message = text != NULL ? text : "no memory";
    fprintf(stderr, "ratelimitctl: %s\n", message);
    complain_object("USAGE", message);
    free(text);
    return EXIT_USAGE;
}

enum exit_code usage_error(const char *what, const char *which)
{
    return complain_usage("%s%s%s; try ratelimitctl --help", what, which[0] != '\0' ? ": " : "", which);
}

/* What keeps this user out of a file that asks for the permission bit `needed` (of others, an octal digit). */
static void print_owner(FILE *out, const struct stat *status, unsigned needed, const char *setting)
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

    if (group_helps && status->st_gid == 0) /* no user should join that one to ask a question */
        fprintf(out,
                " belongs to group root, mode %04o: set listen.group and listen.mode, or name another socket with -s",
                mode);
    else if (group_helps)
        fprintf(out, " belongs to group %s, mode %04o: add this user to the group and log in again", name, mode);
    else
        fprintf(out, " belongs to user %s, mode %04o, which gives the group no access: %s", name, mode, setting);
}

/* This user may not connect to the daemon's socket: prints who owns the socket or the directory that refuses it, and
 * what to do about it. */
static void explain_no_access(FILE *out, const char *socket_path)
{
    char path[PATH_SIZE];
    struct stat status;
    snprintf(path, sizeof path, "%s", socket_path);

    fputs("cannot connect to ", out);
    text_print(out, slice_of(path));
    fputs(": permission denied; ", out);
    if (stat(path, &status) == 0) {
        fputs("it", out);
        size_t len = strlen(path), suffix_len = strlen(CONTROL_SOCKET_SUFFIX);
        bool is_control = len > suffix_len && strcmp(path + len - suffix_len, CONTROL_SOCKET_SUFFIX) == 0;
        print_owner(out, &status, 2,
                    is_control ? "run this as that user, or set control.mode" : "set listen.group and listen.mode");
        return;
    }

    /* The first directory above it that this user may not enter. */
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(path, X_OK) != 0 && errno == EACCES && stat(path, &status) == 0) {
            fputs("the directory ", out);
            text_print(out, slice_of(path));
            print_owner(out, &status, 1, "let its group enter it");
            return;
        }
        *slash = '/';
    }
    fputs("this user has no permission to inspect it", out);
}

enum exit_code complain(const struct link *link, enum ratelimit_status status, const char *code, const char *error)
{
    static const char *const codes[] = {
        [RATELIMIT_TIMEOUT] = "TIMEOUT",    [RATELIMIT_LOST] = "LOST",
        [RATELIMIT_PROTOCOL] = "PROTOCOL",  [RATELIMIT_UNREACHABLE] = "UNREACHABLE",
        [RATELIMIT_BAD_ARGUMENT] = "USAGE", [RATELIMIT_NO_MEMORY] = "NO_MEMORY",
    };
    /* A code that came before the daemon closed is about what was asked here: there was nothing else on this
     * connection. */
    bool is_refusal = status == RATELIMIT_REFUSED || (status == RATELIMIT_LOST && code[0] != '\0');
    if (is_refusal) {
        size_t code_len = strlen(code);
        fputs("ratelimitctl: ", stderr);
        text_print_sentence(stderr, slice_of(error));
        fputc('\n', stderr);
        complain_object(code, error + (code_len > 0 ? code_len + strlen(": ") : 0));
        return EXIT_REFUSED;
    }

    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out != NULL) {
        int connect_errno = status == RATELIMIT_UNREACHABLE ? link->connect_errno : 0;
        if (connect_errno == EACCES) {
            explain_no_access(out, link->address.sun_path);
        } else {
            text_print(out, slice_of(error));
            if (status == RATELIMIT_TIMEOUT || status == RATELIMIT_LOST)
                fputs("; the request was sent and may have taken effect", out);
            else if (connect_errno != 0)
                fputs("; is ratelimitd running, and is this its socket? Set another with -s or $RATELIMIT_SOCKET", out);
        }
        fclose(out);
    }
    const char *known = (size_t)status < N_OF(codes) ? codes[status] : NULL;
    fprintf(stderr, "ratelimitctl: %s\n", text != NULL ? text : error);
    complain_object(known != NULL ? known : "UNREACHABLE", text != NULL ? text : error);
    free(text);
    return status == RATELIMIT_BAD_ARGUMENT ? EXIT_USAGE : EXIT_UNREACHABLE;
}

enum exit_code call_or_complain(struct ratelimit *client, const char *method, const struct buffer *params,
                                int64_t timeout_ms, struct pull *ret)
{
    const void *result;
    size_t len;
    enum ratelimit_status status =
        ratelimit_call(client, method, buffer_data(params), buffer_len(params), (uint32_t)timeout_ms, &result, &len);
    if (status != RATELIMIT_OK)
        return complain(blocking_link(client), status, ratelimit_error_code(client), ratelimit_error(client));
    *ret = pull_of(result, len);
    return EXIT_DONE;
}

enum exit_code map_or_complain(struct ratelimit *client, const char *method, const struct buffer *params,
                               int64_t timeout_ms, struct pull *ret)
{
    enum exit_code code = call_or_complain(client, method, params, timeout_ms, ret);
    return code != EXIT_DONE || pull_type(ret) == PULL_MAP ? code : complain_answer(client);
}

enum exit_code complain_answer(const struct ratelimit *client)
{
    return complain(blocking_link(client), RATELIMIT_PROTOCOL, "", "the daemon's answer is not valid for this command");
}

enum exit_code complain_open(enum ratelimit_status status)
{
    return usage_error(status == RATELIMIT_BAD_ARGUMENT
                           ? "the socket's path (of -s, or $RATELIMIT_SOCKET) is empty or over 107 bytes"
                           : ratelimit_status_text(status),
                       "");
}
