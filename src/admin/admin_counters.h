/* admin_counters.h: what the listener for HTTP counts. */
#ifndef RL_ADMIN_ADMIN_COUNTERS_H
#define RL_ADMIN_ADMIN_COUNTERS_H

#include "base/counters.h"

#define ADMIN_COUNTERS(COUNTER, GAUGE)                                                                                 \
    COUNTER(admin_requests, "HTTP requests that were answered")                                                        \
    COUNTER(admin_connections_cut, "HTTP connections ended by admin.timeout, or by a newer one at the cap of "         \
                                   "admin.max_connections")                                                            \
    GAUGE(admin_connections, "HTTP connections open now")

COUNTERS_DECLARE(admin, ADMIN_COUNTERS);

#endif
