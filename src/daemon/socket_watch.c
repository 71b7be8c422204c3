#include "daemon/socket_watch.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "daemon/service.h"

enum { REASON_MAX = 512 };

int socket_watch_open(struct socket_watch *watch, const struct config *config, const char *path)
{
    char reason[REASON_MAX];
    int fd = service_listen_fd(), status = -1;
    *watch = (struct socket_watch){.listener = {.fd = -1, .lock_fd = -1},
                                   .options = {.path = path != NULL ? path : config->listen_socket,
                                               .mode = (unsigned)config->listen_mode,
                                               .group = config->listen_group},
                                   .is_own = fd == -1};

    if (fd == -2)
        snprintf(reason, sizeof reason, "the service manager passed several sockets; let it pass one");
    else
        status = fd >= 0 ? listener_adopt(&watch->listener, fd, reason, sizeof reason)
                         : listener_open(&watch->listener, &watch->options, reason, sizeof reason);
    if (status < 0) log_error("%s", reason);
    return status;
}

bool socket_watch_look(struct socket_watch *watch)
{
    static const char *const news[] = {
        [SOCKET_FINE] = "the socket is as it should be again",
        [SOCKET_DELETED] = "the socket's file was deleted; making it again",
        [SOCKET_REPLACED] =
            "the socket's file was replaced by somebody else's and is left to them; nobody new reaches this daemon",
        [SOCKET_CHMODDED] = "the socket's permissions were changed; they stay so",
    };
    const struct listener *listener = &watch->listener;
    const char *path = watch->options.path;
    if (!watch->is_own) return false;

    struct stat st;
    enum socket_watch_view now = SOCKET_FINE;
    if (lstat(path, &st) < 0)
        now = SOCKET_DELETED;
    else if (listener->lock_fd < 0 || st.st_dev != listener->dev || st.st_ino != listener->ino)
        now = SOCKET_REPLACED;
    else if ((st.st_mode & 0777) != watch->options.mode)
        now = SOCKET_CHMODDED;

    bool is_news = now != watch->seen;
    watch->seen = now;
    if (is_news) log_line(now == SOCKET_FINE ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "%s: %s", path, news[now]);
    if (now != SOCKET_DELETED) return false;

    char reason[REASON_MAX];
    listener_close(&watch->listener); /* its lock; the descriptor is the server's */
    if (listener_open(&watch->listener, &watch->options, reason, sizeof reason) >= 0) return true;
    if (is_news) log_error("%s", reason);
    return false;
}

void socket_watch_close(struct socket_watch *watch)
{
    listener_close(&watch->listener);
    watch->is_own = false;
}
