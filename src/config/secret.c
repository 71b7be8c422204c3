/* secret.c: reads a file with a secret, and refuses one that others can write, for config.c and tls_files.c. */
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
#include "base/assert.h"

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

/* A descriptor of the file, whose whole path is in `path` then; -1 with the fault recorded, or if a trial cannot know. */
static int open_file(const char *written, bool is_public, bool is_dry_run, const struct where *where,
                     char path[PATH_MAX])
{
    struct stat status;
    CHECK(written != NULL && where->faults != NULL);
    if (expand(written, is_dry_run, where, path, PATH_MAX) != 0) return -1;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        faults_add(where->faults, where->line, where->key, "%s: %s; write the path of a file the daemon may read", path,
                   strerror(errno));
        return -1;
    }

    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        faults_add(where->faults, where->line, where->key, "%s is not a regular file; write the path of one", path);
        goto err_close;
    }
    if (status.st_mode & S_IWOTH) {
        faults_add(where->faults, where->line, where->key, "%s can be written by everybody; chmod o-w it", path);
        goto err_close;
    }
    if (!is_public && (status.st_mode & S_IROTH))
        faults_warn(where->faults, where->line, where->key, "%s can be read by everybody; chmod o-r it", path);
    return fd;

err_close:
    close(fd);
    return -1;
}

char *secret_read(const char *what, const char *path, bool is_dry_run, uint32_t line, const char *key,
                  struct faults *faults)
{
    char full[PATH_MAX];
    struct where where = {what, line, key, faults};
    int fd = open_file(path, false, is_dry_run, &where, full);
    if (fd < 0) return NULL;

    char bytes[SECRET_MAX + 2], *secret = NULL;
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0 && bytes[n - 1] == '\n') n--;
    if (n > 0 && bytes[n - 1] == '\r') n--;
    size_t len = n > 0 ? (size_t)n : 0;

    if (len == 0)
        faults_add(faults, line, key, "%s holds no %s; write it into the file", full, what);
    else if (len >= SECRET_MAX)
        faults_add(faults, line, key, "%s is longer than a %s may be (%d bytes); write the path of the right file",
                   full, what, SECRET_MAX - 1);
    else if (memchr(bytes, '\0', len) != NULL || memchr(bytes, '\n', len) != NULL)
        faults_add(faults, line, key, "%s holds more than one line of text; write one", full);
    else if ((secret = mem_alloc(len + 1)) == NULL)
        faults_no_memory(faults, line, key, "out of memory; give the daemon more");

    if (secret != NULL) {
        memcpy(secret, bytes, len);
        secret[len] = '\0';
    }
    explicit_bzero(bytes, sizeof bytes);
    close(fd);
    return secret;
}

static char *read_text(int fd, const char *path, const struct where *where)
{
    size_t cap = SECRET_TEXT_MAX + 1, len = 0;
    char *text = mem_alloc(cap);
    if (text == NULL) {
        faults_no_memory(where->faults, where->line, where->key, "out of memory; give the daemon more");
        return NULL;
    }

    ssize_t n;
    while (len < cap && ((n = read(fd, text + len, cap - len)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) len += (size_t)n;
    const char *wrong = NULL;
    if (n < 0 && errno != EINTR)
        wrong = strerror(errno);
    else if (len == cap)
        wrong = "is too long";
    else if (len == 0)
        wrong = "is empty";
    else if (memchr(text, '\0', len) != NULL)
        wrong = "is not text";
    if (wrong == NULL) {
        text[len] = '\0';
        return text;
    }

    faults_add(where->faults, where->line, where->key, "%s %s; write the path of a %s", path, wrong, where->what);
    explicit_bzero(text, len);
    mem_free(text);
    return NULL;
}

char *secret_read_text(const char *what, const char *path, bool is_public, bool is_dry_run, uint32_t line,
                       const char *key, struct faults *faults)
{
    char full[PATH_MAX];
    struct where where = {what, line, key, faults};
    int fd = open_file(path, is_public, is_dry_run, &where, full);
    if (fd < 0) return NULL;
    char *text = read_text(fd, full, &where);
    close(fd);
    return text;
}

bool secret_path(const char *path, char *out, size_t size)
{
    struct faults faults;
    const struct where where = {.what = "file", .faults = &faults};
    CHECK(path != NULL && size > 0);
    faults_init(&faults);
    bool is_known = expand(path, true, &where, out, size) == 0;
    faults_fini(&faults);
    return is_known;
}

void secret_free(char *secret)
{
    if (secret != NULL) explicit_bzero(secret, strlen(secret));
    mem_free(secret);
}
