/*
 * process.h: what the daemon sets once for its whole process: signals, allocator, seeds, limits.
 */
#ifndef RL_DAEMON_PROCESS_H
#define RL_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* First of all: /dev/null in place of a standard descriptor that is closed, else the socket would become standard error
 * and the log would be written to it. */
void process_open_standard_descriptors(void);
/* Before anything is hashed and before the loop exists. Returns a random number for the store's jitter. */
uint64_t process_set_up(void);
/* Towards what so many connections need; the server caps them where that is more than the system allows. 0, or -1 with
 * the reason logged where it allows too few to serve anybody. */
int process_raise_open_files(int64_t n_connections);

/* The signals that the daemon handles wait (true), or come, those that waited first (false). Between the socket's
 * appearance and the handlers they wait: whoever sees the socket may want to stop the daemon. */
void process_hold_signals(bool hold);

#endif
