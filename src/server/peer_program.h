/*
 * peer_program.h: the name of a peer's process, for people: it proves nothing, since a process can change it.
 */
#ifndef RL_SERVER_PEER_PROGRAM_H
#define RL_SERVER_PEER_PROGRAM_H

#include <sys/types.h>

enum { PEER_PROGRAM_MAX = 16 };

/* Into `out`, any bytes; "?" if it has ended or is not seen. /proc is memory: reading it does not wait. */
void peer_program(pid_t pid, char out[PEER_PROGRAM_MAX]);

#endif
