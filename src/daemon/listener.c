/*
 * listener.c: the steps of listener_open(), in the order that leaves no gap.
 *
 *   open the directory   everything after goes through its descriptor, so a renamed directory cannot mislead us
 *   lock  <base>.lock    two daemons that start together: one wins, before anything is touched
 *   probe <base>         only a socket without a server may be replaced
 *   make  .rl-<hash>     mode by fchmod before bind, group, listen: complete before it has its name
 *   rename to <base>     clients find the old socket or the new one, never none and never a half-made one
 *
 * A symbolic link is never followed for the socket or the lock (for the directories above them it is).
 * The lock file stays behind: removing it would let two daemons hold locks on two files of one name.
 */
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

enum { TEMP_NAME_MAX = 32, LOCK_NAME_MAX = SOCKET_PATH_MAX + 6, BACKLOG = 4096 };

/* What listener_open() works on; lives for that call only. */
struct opening {
    const struct listener_options *options;
    const char *base; /* the path's last part */
    int dir_fd;       /* owned */
    char temp[TEMP_NAME_MAX];
    char *text;
    size_t size;
    bool is_left; /* another ratelimitd has the path and is about to end */
};

/* In the lock file of a daemon that is about to end. */
static const char leaving[] = "leaving";

static int __attribute__((format(printf, 2, 3))) fail(const struct opening *opening, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(opening->text, opening->size, format, args);
    va_end(args);
    return -1;
}

static int check_path(struct opening *opening)
{
    const char *path = opening->options->path;
    size_t len = strlen(path);
    if (len == 0) return fail(opening, "the socket's path is empty; write one, e.g. /run/ratelimitd/ratelimitd.sock");
    if (len > SOCKET_PATH_MAX)
        return fail(opening, "%s: the path is %zu bytes long and a Unix socket's may have %d; choose a shorter one",
                    path, len, SOCKET_PATH_MAX);

    const char *slash = strrchr(path, '/');
    opening->base = slash != NULL ? slash + 1 : path;
    if (opening->base[0] == '\0' || strcmp(opening->base, ".") == 0 || strcmp(opening->base, "..") == 0)
        return fail(opening, "%s: this names a directory; add the socket's own name to it", path);
    return 0;
}

/* A user who may remove files in the directory could put another socket in our place. */
static int open_directory(struct opening *opening)
{
    const char *path = opening->options->path;
    char dir[SOCKET_PATH_MAX + 1] = "."; /* if the path has none */
    struct stat st;
    size_t len = (size_t)(opening->base - path);
    if (len > 0) {
        memcpy(dir, path, len);
        dir[len > 1 ? len - 1 : len] = '\0'; /* without its last slash, but for the root's */
    }

    opening->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (opening->dir_fd < 0 && errno == ENOENT)
        return fail(opening, "%s: the directory %s does not exist; create it, or choose another path", path, dir);
    if (opening->dir_fd < 0)
        return fail(opening, "%s: the directory %s cannot be opened: %s", path, dir, strerror(errno));
    if (fstat(opening->dir_fd, &st) == 0 && (st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
        return fail(
            opening,
            "%s: every user may write to the directory %s and could replace the socket; take that right away "
            "(chmod o-w), or let only owners remove files (chmod +t; in Kubernetes `emptyDir: {medium: Memory}`)",
            path, dir);
    return 0;
}

static int fail_by_permission(const struct opening *opening, const char *what, const char *name)
{
    if (errno == EACCES || errno == EPERM || errno == EROFS)
        return fail(opening,
                    "%s: %s %s: %s; let the user that runs ratelimitd write to its directory, or choose another path",
                    opening->options->path, what, name, strerror(errno));
    return fail(opening, "%s: %s %s: %s", opening->options->path, what, name, strerror(errno));
}

/* The lock's descriptor, or -1. */
static int take_lock(struct opening *opening)
{
    char name[LOCK_NAME_MAX];
    struct stat st;
    snprintf(name, sizeof name, "%s.lock", opening->base);

    int fd = openat(opening->dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ELOOP)
        return fail(opening, "%s: the lock file %s is a symbolic link; remove it", opening->options->path, name);
    if (fd < 0) return fail_by_permission(opening, "cannot open the lock file", name);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return fail(opening, "%s: the lock file %s is not a regular file; remove it", opening->options->path, name);
    }

    fchmod(fd, 0600); /* whatever the umask took, so that the next start can open it; another's file stays as it is */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        char word[sizeof leaving] = "";
        opening->is_left = pread(fd, word, sizeof word, 0) > 0 && memcmp(word, leaving, sizeof word) == 0;
        close(fd);
        if (opening->is_left)
            return fail(opening, "%s: in use by another ratelimitd, which is about to end", opening->options->path);
        return fail(opening, "%s: in use by another ratelimitd (it holds %s); stop that one, or choose another path",
                    opening->options->path, name);
    }
    if (ftruncate(fd, 0) != 0) log_debug("%s: cannot empty the lock file: %s", opening->options->path, strerror(errno));
    return fd;
}

/* 0 if a process accepts at the path, else an errno. A non-blocking connect never waits, even for a full backlog. */
static int probe(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;

    int error = connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0 ? errno : 0;
    close(fd);
    return error;
}

/* 0 if the path is free or its socket has no server any more. */
static int check_present(const struct opening *opening)
{
    const char *path = opening->options->path;
    struct stat st;
    if (fstatat(opening->dir_fd, opening->base, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : fail_by_permission(opening, "cannot look at", opening->base);
    if (!S_ISSOCK(st.st_mode))
        return fail(opening, "%s: there is %s at this path; move it away, or choose another path", path,
                    S_ISLNK(st.st_mode) ? "a symbolic link" : "something that is no socket");

    int error = probe(path);
    if (error == ECONNREFUSED || error == ENOENT) return 0;
    if (error == 0 || error == EAGAIN)
        return fail(opening, "%s: in use: a process accepts connections there; stop it, or choose another path", path);
    return fail(opening,
                "%s: there is a socket at this path and it cannot be seen whether it is in use: %s; remove it "
                "if it is not, or choose another path",
                path, strerror(error));
}

/* Bind to the temporary name; the umask would take bits from the mode that fchmod has set. */
static int bind_temporary(struct opening *opening, int fd)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    uint64_t hash = hash_stable(HASH_STABLE_START, opening->base, strlen(opening->base));
    snprintf(opening->temp, sizeof opening->temp, ".rl-%016llx", (unsigned long long)hash);
    snprintf(addr.sun_path, sizeof addr.sun_path, "/proc/self/fd/%d/%s", opening->dir_fd, opening->temp);

    unlinkat(opening->dir_fd, opening->temp, 0); /* of a start that was killed half-way; the lock makes it ours */
    mode_t old = umask(0);
    int rc = bind(fd, (struct sockaddr *)&addr, sizeof addr);
    int error = errno;
    umask(old);
    errno = error;
    return rc == 0 ? 0 : fail_by_permission(opening, "cannot create", opening->temp);
}

static int set_group(const struct opening *opening)
{
    const struct listener_options *options = opening->options;
    if (!options->has_group) return 0;
    if (fchownat(opening->dir_fd, opening->temp, (uid_t)-1, options->group, AT_SYMLINK_NOFOLLOW) == 0) return 0;
    return fail(
        opening,
        "%s: cannot give the socket to the group %u (listen.group): %s; make ratelimitd's user a member of it, or "
        "let the service manager's socket unit make the socket",
        options->path, (unsigned)options->group, strerror(errno));
}

/* The listening descriptor under its name, or -1. */
static int make_socket(struct opening *opening, struct listener *listener)
{
    struct stat st;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail(opening, "%s: cannot make a socket: %s", opening->options->path, strerror(errno));
    if (fchmod(fd, opening->options->mode & 0777) != 0) {
        fail(opening, "%s: cannot set the socket's mode: %s", opening->options->path, strerror(errno));
        goto err_close;
    }
    if (bind_temporary(opening, fd) != 0) goto err_close;
    if (set_group(opening) != 0) goto err_unlink;

    if (listen(fd, BACKLOG) != 0 || fstatat(opening->dir_fd, opening->temp, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        fail_by_permission(opening, "cannot listen on", opening->temp);
        goto err_unlink;
    }
    if (renameat(opening->dir_fd, opening->temp, opening->dir_fd, opening->base) != 0) {
        fail_by_permission(opening, "cannot rename the new socket to", opening->base);
        goto err_unlink;
    }
    listener->dev = st.st_dev;
    listener->ino = st.st_ino;
    return fd;

err_unlink:
    unlinkat(opening->dir_fd, opening->temp, 0);
err_close:
    close(fd);
    return -1;
}

int listener_open(struct listener *ret, const struct listener_options *options, char *text, size_t size)
{
    struct opening opening = {.options = options, .base = "", .dir_fd = -1, .text = text, .size = size};
    struct listener listener = {.fd = -1, .lock_fd = -1};
    CHECK(options->path != NULL && size > 0);
    if (check_path(&opening) != 0 || open_directory(&opening) != 0) goto err_directory;
    listener.lock_fd = take_lock(&opening);
    if (listener.lock_fd < 0) goto err_directory;
    if (check_present(&opening) != 0) goto err_lock;
    listener.fd = make_socket(&opening, &listener);
    if (listener.fd < 0) goto err_lock;

    close(opening.dir_fd);
    memcpy(listener.path, options->path, strlen(options->path) + 1);
    *ret = listener;
    return 0;

err_lock:
    close(listener.lock_fd);
err_directory:
    if (opening.dir_fd >= 0) close(opening.dir_fd);
    return opening.is_left ? LISTENER_LATER : LISTENER_FAULT;
}

static int int_option(int fd, int option)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

int listener_adopt(struct listener *ret, int fd, char *text, size_t size)
{
    struct sockaddr_un addr = {0};
    socklen_t len = sizeof addr;
    if (int_option(fd, SO_DOMAIN) != AF_UNIX || int_option(fd, SO_TYPE) != SOCK_STREAM ||
        int_option(fd, SO_ACCEPTCONN) != 1) {
        snprintf(text, size,
                 "socket activation: descriptor %d is no listening Unix stream socket; the socket unit needs "
                 "ListenStream= with a path, and Accept=no",
                 fd);
        return -1;
    }

    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        snprintf(text, size, "socket activation: descriptor %d cannot be set up: %s", fd, strerror(errno));
        return -1;
    }

    *ret = (struct listener){.fd = fd, .lock_fd = -1};
    if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0) memcpy(ret->path, addr.sun_path, SOCKET_PATH_MAX);
    return 0;
}

void listener_leave(const struct listener *listener)
{
    if (listener->lock_fd >= 0 && pwrite(listener->lock_fd, leaving, sizeof leaving, 0) < 0)
        log_debug("%s: cannot write to the lock file: %s", listener->path, strerror(errno));
}

void listener_close(struct listener *listener)
{
    struct stat st;
    bool made_by_us = listener->lock_fd >= 0;
    if (made_by_us && lstat(listener->path, &st) == 0 && st.st_dev == listener->dev && st.st_ino == listener->ino)
        unlink(listener->path);
    if (made_by_us) close(listener->lock_fd);
    if (listener->fd >= 0) close(listener->fd);
    listener->fd = listener->lock_fd = -1;
}
