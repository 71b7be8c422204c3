#include "config/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define CREDENTIALS "${CREDENTIALS_DIRECTORY}"

struct where {
    const char *what;
    uint32_t line;
    const char *key;
    struct faults *faults;
};

/* 0; 1 if this is a trial and the directory is unknown; -1 with the fault recorded. */
static int expand(const char *path, bool is_dry_run, const struct where *where, char *out, size_t size)
{
    const char *rest = path, *directory = "";
    if (strncmp(path, CREDENTIALS, strlen(CREDENTIALS)) == 0) {
        rest = path + strlen(CREDENTIALS);
        directory = getenv("CREDENTIALS_DIRECTORY");
        if (directory == NULL && is_dry_run) {
            faults_warn(where->faults, where->line, where->key,
                        "CREDENTIALS_DIRECTORY is not set here, so the file was not checked; the service sets it");
            return 1;
        }
    }

    if (directory == NULL) {
        faults_add(where->faults, where->line, where->key,
                   "CREDENTIALS_DIRECTORY is not set; run under systemd with LoadCredential=, or write the whole path");
        return -1;
    }
    if (strstr(rest, "${") != NULL) {
        faults_add(where->faults, where->line, where->key,
                   "only %s is replaced, at the start; write the rest of the path out", CREDENTIALS);
        return -1;
    }
    if ((size_t)snprintf(out, size, "%s%s", directory, rest) < size) return 0;
    faults_add(where->faults, where->line, where->key, "the path is too long; write a shorter one");
    return -1;
}

static char *read_from(int fd, const char *path, const struct where *where)
{
    char bytes[SECRET_MAX + 2], *secret = NULL;
    struct stat status;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        faults_add(where->faults, where->line, where->key, "%s is not a regular file; write the path of one", path);
        return NULL;
    }
    if (status.st_mode & S_IWOTH) {
        faults_add(where->faults, where->line, where->key, "%s can be written by everybody; chmod o-w it", path);
        return NULL;
    }
    if (status.st_mode & S_IROTH)
        faults_warn(where->faults, where->line, where->key, "%s can be read by everybody; chmod o-r it", path);

    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0 && bytes[n - 1] == '\n') n--;
    if (n > 0 && bytes[n - 1] == '\r') n--;
    size_t len = n > 0 ? (size_t)n : 0;

    if (len == 0)
        faults_add(where->faults, where->line, where->key, "%s holds no %s; write it into the file", path, where->what);
    else if (len >= SECRET_MAX)
        faults_add(where->faults, where->line, where->key,
                   "%s is longer than a %s may be (%d bytes); write the path of the right file", path, where->what,
                   SECRET_MAX - 1);
    else if (memchr(bytes, '\0', len) != NULL || memchr(bytes, '\n', len) != NULL)
        faults_add(where->faults, where->line, where->key, "%s holds more than one line of text; write one", path);
    else if ((secret = mem_alloc(len + 1)) == NULL)
        faults_no_memory(where->faults, where->line, where->key, "out of memory; give the daemon more");

    if (secret != NULL) {
        memcpy(secret, bytes, len);
        secret[len] = '\0';
    }
    explicit_bzero(bytes, sizeof bytes);
    return secret;
}

char *secret_read(const char *what, const char *path, bool is_dry_run, uint32_t line, const char *key,
                  struct faults *faults)
{
    char full[PATH_MAX];
    struct where where = {what, line, key, faults};
    if (expand(path, is_dry_run, &where, full, sizeof full) != 0) return NULL;

    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        faults_add(faults, line, key, "%s: %s; write the path of a file the daemon may read", full, strerror(errno));
        return NULL;
    }

    char *secret = read_from(fd, full, &where);
    close(fd);
    return secret;
}

void secret_free(char *secret)
{
    if (secret != NULL) explicit_bzero(secret, strlen(secret));
    mem_free(secret);
}
