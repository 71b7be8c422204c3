/*
 * endpoints.h: what the daemon listens on: a table of three rows, each a listener with its protocol and the role of who
 * connects there.
 *
 *   data      MessagePack-RPC   clients             there must be one, or the daemon does not start
 *   control   MessagePack-RPC   admins              the same if control.socket is set
 *   http      HTTP              those who watch     only if admin.listen is set
 *
 * A socket from the service manager beats -s, which beats the settings. What there need not be, and what another daemon
 * still has that is about to end, is reported once and tried again each second: clients are served meanwhile, and a
 * successor starts while its predecessor drains.
 *
 * The file of a socket of our own may be deleted or replaced while the daemon runs. Then no client could connect any
 * more, and nothing would report it. So this looks once a second: it makes a deleted file again, leaves a replaced one
 * alone, and logs either once.
 */
#ifndef RL_DAEMON_ENDPOINTS_H
#define RL_DAEMON_ENDPOINTS_H

#include <stdbool.h>

#include "daemon/listener.h"

struct daemon;

enum endpoint_id { ENDPOINT_DATA, ENDPOINT_CONTROL, ENDPOINT_HTTP, N_ENDPOINTS };
enum endpoint_file { FILE_FINE, FILE_DELETED, FILE_REPLACED, FILE_CHMODDED };

struct endpoint {
    struct listener listener;
    struct listener_options options; /* of a Unix socket; the path is argv's, the settings' at start, or the next: */
    char path[SOCKET_PATH_MAX + 16]; /* the control socket's by default */
    bool is_used;                    /* the settings ask for it */
    bool is_required;                /* without it the daemon does not start */
    bool is_own;                     /* its file is ours, not the service manager's */
    bool is_open;                    /* its descriptor is in `listener`, or listening */
    bool is_reported;                /* why it is not */
    enum endpoint_file seen;         /* at the last look */
};

void endpoints_init(struct daemon *daemon);
/* At start, before anything else: data and control socket. 0, or -1 with the reason logged. */
int endpoints_open(struct daemon *daemon);
/* Accept connections there, if it is used. 0, or -1 with the reason logged if there must be one. */
int endpoints_listen(struct daemon *daemon, enum endpoint_id id);
/* Each second while ready. -1: a socket that there must be is gone for good, with the reason logged. */
int endpoints_look(struct daemon *daemon);
void endpoints_drain(struct daemon *daemon); /* so that a successor gets the data socket, and waits for the others */
void endpoints_close(struct daemon *daemon); /* may be called twice */

#endif
