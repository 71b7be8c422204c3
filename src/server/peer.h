/*
 * peer.h: whose process is at the other end of a connection, as the kernel recorded it when that was opened.
 */
#ifndef RL_SERVER_PEER_H
#define RL_SERVER_PEER_H

#include <stdbool.h>
#include <sys/types.h>

#include <uv.h>

struct peer {
    bool is_asked; /* the kernel; else nothing is known yet */
    uid_t uid;     /* (uid_t)-1 where the kernel does not say */
    pid_t pid;     /* 0 where it is in a namespace of processes that we do not see */
};

void peer_ask(struct peer *peer, const uv_pipe_t *pipe);

#endif
