/* all_counters.h: the counters of all modules that a test may link, registered as the daemon does, and all zero again.
 */
#ifndef RL_FAKES_ALL_COUNTERS_H
#define RL_FAKES_ALL_COUNTERS_H

void all_counters_reset(void);

#endif
