/*
 * listener.h: the daemon's own Unix socket: mode and group set before it can be seen, a stale
 * one replaced without a gap, a live one respected; or a descriptor passed by the service manager.
 *
 * libuv gets the finished descriptor, because its own bind truncates long paths, cannot set a group,
 * and unlinks a successor's socket on close.
 */
#ifndef RL_DAEMON_LISTENER_H
#define RL_DAEMON_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { SOCKET_PATH_MAX = 107 };

struct listener_options {
    const char *path;
    unsigned mode; /* permission bits, e.g. 0660 */
    bool has_group;
    gid_t group; /* to give it to; else it is left as it is */
};

struct listener {
    int fd;      /* listening, non-blocking, close-on-exec; -1 once it is handed on */
    int lock_fd; /* -1 for an activation descriptor */
    dev_t dev;   /* of the file at `path`, as we made it */
    ino_t ino;
    char path[SOCKET_PATH_MAX + 1]; /* for an activation descriptor only to be shown */
};

/* 0; or LISTENER_FAULT, or LISTENER_LATER if another ratelimitd has the path and is about to end; with one line of what
 * is wrong and what to do in `text`. */
enum { LISTENER_FAULT = -1, LISTENER_LATER = -2 };
int listener_open(struct listener *ret, const struct listener_options *options, char *text, size_t size);
/* Take descriptor `fd` (from socket activation) after checking that it is a listening AF_UNIX stream socket. */
int listener_adopt(struct listener *ret, int fd, char *text, size_t size);
/* The path stays ours until listener_close(), but not for long: a daemon that is refused it meanwhile gets
 * LISTENER_LATER. */
void listener_leave(const struct listener *listener);
/* Remove the path if it is still ours (same inode), release the lock, close fd if not handed over. */
void listener_close(struct listener *listener);

#endif
