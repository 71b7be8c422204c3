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

enum { PEER_PROGRAM_MAX = 16 };

/* The name of the process, for people: it proves nothing, since a process can change it. Into `out`, any bytes; "?" if
 * it has ended or is not seen. /proc is memory: reading it does not wait. */
void peer_program(pid_t pid, char out[PEER_PROGRAM_MAX]);

#endif
