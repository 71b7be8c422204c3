/* all_counters.h: registers the counters of all modules that a test may link, like the daemon, and resets them to 0. */
#ifndef RL_FAKES_ALL_COUNTERS_H
#define RL_FAKES_ALL_COUNTERS_H

void all_counters_reset(void);

#endif
