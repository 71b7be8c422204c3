/* server_counters.h: what the server and its sessions count. */
#ifndef RL_SERVER_SERVER_COUNTERS_H
#define RL_SERVER_SERVER_COUNTERS_H

#include "base/counters.h"

#define SERVER_COUNTERS(COUNTER, GAUGE)                                                                                \
    COUNTER(connections_accepted, "client connections accepted")                                                       \
    COUNTER(connections_closed_broken, "client connections closed because their bytes were no MessagePack-RPC")        \
    COUNTER(connections_closed_slow, "client connections closed because they did not read their answers")              \
    COUNTER(connections_closed_unread, "client connections closed because listen.max_output_total was reached and "    \
                                       "they had taken nothing for the longest time")                                  \
    COUNTER(connections_closed_idle, "client connections closed because they were idle")                               \
    COUNTER(accept_pauses, "times accepting stopped because caps.max_connections was reached")                         \
    COUNTER(read_pauses, "times reading from a connection stopped because it had too much in flight or unread")        \
    COUNTER(requests, "requests received", COUNTED_BY_LABEL)                                                           \
    COUNTER(notifications, "notifications received")                                                                   \
    COUNTER(request_errors, "requests answered with an error", COUNTED_BY_LABEL)                                       \
    GAUGE(connections, "client connections open now")                                                                  \
    GAUGE(unread_bytes, "bytes of answers that clients have not read now, without those in the sockets")

COUNTERS_DECLARE(server, SERVER_COUNTERS);

/* The control socket's connections, which are not among those above. */
#define CONTROL_COUNTERS(COUNTER, GAUGE)                                                                               \
    COUNTER(control_connections_accepted, "connections to the control socket accepted")                                \
    COUNTER(control_connections_closed, "connections to the control socket closed because of broken bytes, unread "    \
                                        "answers, or idleness")                                                        \
    COUNTER(control_accept_pauses, "times accepting stopped because the control socket had all its connections")       \
    GAUGE(control_connections, "connections to the control socket open now")

COUNTERS_DECLARE(control, CONTROL_COUNTERS);

#endif
