/* peer.h: who is at the other end of a connection. */
#ifndef RL_SERVER_PEER_H
#define RL_SERVER_PEER_H

#include <sys/types.h>

/* Whose process is at the other end, as the kernel recorded it when the connection was opened. */
struct peer {
    uid_t uid; /* (uid_t)-1 if the kernel does not report it */
    gid_t gid;
    pid_t pid; /* 0 if it is in a namespace of processes that we do not see */
};

#endif
