#include "daemon/gate.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "server/service.h"

enum { BACKLOG = 4096, REASON_MAX = 512 };

int gate_open(struct gate *gate, const struct config *config, const char *path)
{
    char reason[REASON_MAX];
    int fd = service_listen_fd(), status = -1;
    *gate = (struct gate){.listener = {.fd = -1, .lock_fd = -1},
                          .options = {.path = path != NULL ? path : config->listen_socket,
                                      .mode = (unsigned)config->listen_mode,
                                      .group = config->listen_group,
                                      .backlog = BACKLOG},
                          .is_own = fd == -1};
    if (fd == -2)
        snprintf(reason, sizeof reason, "the service manager passed several sockets; let it pass one");
    else
        status = fd >= 0 ? listener_adopt(&gate->listener, fd, reason, sizeof reason)
                         : listener_open(&gate->listener, &gate->options, reason, sizeof reason);
    if (status < 0) log_error("%s", reason);
    return status;
}

static enum gate_view view(const struct gate *gate)
{
    struct stat st;
    const struct listener *listener = &gate->listener;
    if (lstat(gate->options.path, &st) < 0) return GATE_DELETED;
    if (listener->lock_fd < 0 || st.st_dev != listener->dev || st.st_ino != listener->ino) return GATE_REPLACED;
    return (st.st_mode & 0777) == gate->options.mode ? GATE_FINE : GATE_CHMODDED;
}

static void tell(const struct gate *gate, enum gate_view now)
{
    const char *path = gate->options.path;
    switch (now) {
    case GATE_FINE: log_info("%s: the socket is as it should be again", path); break;
    case GATE_DELETED: log_warning("%s: the socket's file was deleted; making it again", path); break;
    case GATE_REPLACED:
        log_warning(
            "%s: the socket's file was replaced by somebody else's and is left to them; nobody new reaches this "
            "daemon",
            path);
        break;
    case GATE_CHMODDED: log_warning("%s: the socket's permissions were changed; they stay so", path); break;
    }
}

bool gate_look(struct gate *gate)
{
    char reason[REASON_MAX];
    if (!gate->is_own) return false;
    enum gate_view now = view(gate);
    bool is_news = now != gate->seen;
    if (is_news) tell(gate, now);
    gate->seen = now;
    if (now != GATE_DELETED) return false;
    listener_close(&gate->listener); /* its lock; the descriptor is the server's */
    if (listener_open(&gate->listener, &gate->options, reason, sizeof reason) < 0) {
        if (is_news) log_error("%s", reason);
        return false;
    }
    return true;
}

void gate_close(struct gate *gate)
{
    listener_close(&gate->listener);
    gate->is_own = false;
}
