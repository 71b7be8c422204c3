/*
 * process.h: what the daemon sets once for its whole process: signals, allocator, seeds, limits.
 */
#ifndef RL_DAEMON_PROCESS_H
#define RL_DAEMON_PROCESS_H

#include <stdint.h>

/* Call this first. It opens /dev/null for each closed standard descriptor: otherwise the socket could become standard
 * error, and the log would be written to it. */
void process_open_standard_descriptors(void);
/* Before anything is hashed and before the loop exists. Returns a random number for the store's jitter. */
uint64_t process_set_up(void);
/* Raises the limit of open files for this many connections, as far as the system allows; the server then caps the
 * connections. 0, or -1 with the reason logged if the limit is too low to serve clients. */
int process_raise_open_files(int64_t n_connections);

#endif
