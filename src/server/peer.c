#include "server/peer.h"

#include <sys/socket.h>

void peer_ask(struct peer *peer, const uv_pipe_t *pipe)
{
    struct ucred credentials;
    socklen_t len = sizeof credentials;
    uv_os_fd_t fd;
    *peer = (struct peer){.is_asked = true, .uid = (uid_t)-1};
    if (uv_fileno((const uv_handle_t *)pipe, &fd) != 0) return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) != 0) return;
    peer->uid = credentials.uid;
    peer->pid = credentials.pid;
}
