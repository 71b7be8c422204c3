#include "daemon/socket_watch.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "server/service.h"

enum { BACKLOG = 4096, REASON_MAX = 512 };

int socket_watch_open(struct socket_watch *watch, const struct config *config, const char *path)
{
    char reason[REASON_MAX];
    int fd = service_listen_fd(), status = -1;
    *watch = (struct socket_watch){.listener = {.fd = -1, .lock_fd = -1},
                                   .options = {.path = path != NULL ? path : config->listen_socket,
                                               .mode = (unsigned)config->listen_mode,
                                               .group = config->listen_group,
                                               .backlog = BACKLOG},
                                   .is_own = fd == -1};
    if (fd == -2)
        snprintf(reason, sizeof reason, "the service manager passed several sockets; let it pass one");
    else
        status = fd >= 0 ? listener_adopt(&watch->listener, fd, reason, sizeof reason)
                         : listener_open(&watch->listener, &watch->options, reason, sizeof reason);
    if (status < 0) log_error("%s", reason);
    return status;
}

static enum socket_watch_view view(const struct socket_watch *watch)
{
    struct stat st;
    const struct listener *listener = &watch->listener;
    if (lstat(watch->options.path, &st) < 0) return SOCKET_DELETED;
    if (listener->lock_fd < 0 || st.st_dev != listener->dev || st.st_ino != listener->ino) return SOCKET_REPLACED;
    return (st.st_mode & 0777) == watch->options.mode ? SOCKET_FINE : SOCKET_CHMODDED;
}

static void report(const struct socket_watch *watch, enum socket_watch_view now)
{
    const char *path = watch->options.path;
    switch (now) {
    case SOCKET_FINE: log_info("%s: the socket is as it should be again", path); break;
    case SOCKET_DELETED: log_warning("%s: the socket's file was deleted; making it again", path); break;
    case SOCKET_REPLACED:
        log_warning(
            "%s: the socket's file was replaced by somebody else's and is left to them; nobody new reaches this "
            "daemon",
            path);
        break;
    case SOCKET_CHMODDED: log_warning("%s: the socket's permissions were changed; they stay so", path); break;
    }
}

bool socket_watch_look(struct socket_watch *watch)
{
    char reason[REASON_MAX];
    if (!watch->is_own) return false;
    enum socket_watch_view now = view(watch);
    bool is_news = now != watch->seen;
    if (is_news) report(watch, now);
    watch->seen = now;
    if (now != SOCKET_DELETED) return false;
    listener_close(&watch->listener); /* its lock; the descriptor is the server's */
    if (listener_open(&watch->listener, &watch->options, reason, sizeof reason) < 0) {
        if (is_news) log_error("%s", reason);
        return false;
    }
    return true;
}

void socket_watch_close(struct socket_watch *watch)
{
    listener_close(&watch->listener);
    watch->is_own = false;
}
