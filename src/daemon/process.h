/*
 * process.h: what the daemon sets once for its whole process: signals, allocator, seeds, limits.
 */
#ifndef RL_DAEMON_PROCESS_H
#define RL_DAEMON_PROCESS_H

#include <stdint.h>

/* Before anything is hashed and before the loop exists. Returns a random number for the store's jitter. */
uint64_t process_set_up(void);
void process_raise_open_files(int64_t n_connections);

#endif
