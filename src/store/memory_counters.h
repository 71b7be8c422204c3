/* memory_counters.h: what the memory store counts. */
#ifndef RL_STORE_MEMORY_COUNTERS_H
#define RL_STORE_MEMORY_COUNTERS_H

#include "base/counters.h"

#define MEMORY_COUNTERS(COUNTER, GAUGE)                                                                                \
    COUNTER(memory_evicted, "keys evicted from the memory store because it was full")                                  \
    COUNTER(memory_refused, "slots and reservations refused because they have half of the memory store")               \
    COUNTER(memory_expired, "keys swept from the memory store after they had expired")                                 \
    GAUGE(memory_keys, "keys in the memory store now")                                                                 \
    GAUGE(memory_bytes, "bytes of keys and states in the memory store now")

COUNTERS_DECLARE(memory, MEMORY_COUNTERS);

#endif
