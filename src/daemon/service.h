/*
 * service.h: what the service manager and the daemon say to each other (sd_notify and socket
 * activation protocols, without libsystemd). Without NOTIFY_SOCKET or LISTEN_FDS everything here does nothing.
 */
#ifndef RL_DAEMON_SERVICE_H
#define RL_DAEMON_SERVICE_H

#include <stdint.h>

enum { SERVICE_FD_NONE = -1, SERVICE_FD_SEVERAL = -2, SERVICE_FD_CLOSED = -3 };
enum service_socket { SERVICE_DATA, SERVICE_CONTROL, N_SERVICE_SOCKETS };

/* Read and unset NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES. Call once,
 * before anything opens a descriptor that lasts: it could get the number of one that was promised and not passed. */
void service_init(void);
/* The activation descriptor (close-on-exec set) that LISTEN_FDNAMES calls `control`, or the one of any other name or
 * none; else one of SERVICE_FD_*. */
int service_listen_fd(enum service_socket which);
/* Half the watchdog's interval in ms, or 0 without one. */
uint64_t service_watchdog_ms(void);

/* None of these waits. The first three are kept while the service manager does not read; service_retry(), called now
 * and then, sends what is kept. */
void service_ready(const char *status); /* READY=1 and STATUS= */
void service_reloading(void);           /* RELOADING=1 and MONOTONIC_USEC=; follow it with service_ready() */
void service_stopping(void);            /* STOPPING=1 */
void service_retry(void);
void service_watchdog(void);             /* WATCHDOG=1 */
void service_status(const char *status); /* STATUS= */

#endif
