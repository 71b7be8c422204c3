/*
 * server.h: the client's side: listening sockets, sessions, methods.
 *
 *   endpoint   where it listens: descriptors that it is handed (daemon/listener.h), each with its own cap of
 *              connections, beyond which accepting pauses, and with the role of who connects there
 *   session    one per connection: bytes in, whole messages to methods, answers out, one write a tick
 *   methods    one table row per method (methods.c)
 *
 * The server owns its sessions, not the engine. server_tick_end() is called in uv_check and
 * uv_prepare, after engine_flush(): it writes what the tick has answered.
 */
#ifndef RL_SERVER_SERVER_H
#define RL_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/slice.h"
#include "engine/engine.h"
#include "proto/error.h"
#include "server/denial_log.h"
#include "server/late_answer.h"
#include "server/watch.h"

struct access;
struct inline_policies;
struct server;

/* Who may write a policy out in place of its name. */
enum inline_access { INLINE_NOBODY, INLINE_OWN_USER /* the user that the daemon runs as */, INLINE_EVERYBODY };

/* Where it listens. The control socket's connections are served while the others are as many as may be, and during the
 * drain. */
enum server_endpoint { SERVER_DATA, SERVER_CONTROL, N_SERVER_ENDPOINTS };

enum { CONTROL_CONNECTIONS = 16 }; /* of the control socket, at once; beyond, the longest idle gives way */

struct server_options {
    uint32_t max_key;   /* bytes */
    uint32_t max_frame; /* bytes */
    uint32_t max_depth;
    uint32_t max_connections;             /* of the data socket */
    uint32_t n_store_files;               /* descriptors that the store may take besides the usual few */
    uint32_t max_inflight_per_connection; /* checks; beyond: reading pauses */
    uint64_t max_output;                  /* bytes unread by a peer; at half of it reading from it pauses */
    uint64_t max_output_total;            /* the same of all peers together; beyond it the slowest is closed */
    uint32_t idle_timeout_ms;             /* without a request for this time: close; 0 = never */
    uint32_t write_stall_ms;              /* output waiting and none taken for this time: close; 0 = never */
    struct access *access; /* not owned; NULL: everybody is a client, root and the daemon's own user admins */
    enum inline_access inline_access;
    struct inline_policies *inline_policies; /* not owned; used if inline_access allows it */
    enum denials denials;
    uint32_t denials_per_second; /* lines of denial_log.h */
    struct watch_options watch;
    bool test_clock;             /* the methods test_clock and test_store exist */
    bool test_limits;            /* and the clock goes forward only */
    const char *store_name;      /* "memory" or "redis", for `version`; static */
    const char *hiredis_version; /* for `version`; static */
    int64_t configured_us;       /* CLOCK_MONOTONIC: these settings were read, for `version` */
    const char *config_path;     /* NULL: there is none; as long as the server */
    uint64_t config_hash;        /* of the configuration in force */
    struct late_source late;     /* who makes the answers of reload and config */
    char key_prefix[65];         /* of the keys in Redis, without the colon, for `explain` */
    uint32_t n_shards;           /* likewise */
};

/* Appends a part of the page of metrics to `text`, from *from on, which is 0 at first; *from is then where the next
 * part begins. 1: there is one; 0: there is none; -1: no memory. */
typedef int metrics_part_fn(void *arg, uint64_t *from, struct buffer *text);

/* NULL without memory. */
struct server *server_new(uv_loop_t *loop, struct clock *clock, struct engine *engine,
                          const struct server_options *options);
/* Start to accept on a listening descriptor (taken over), in place of the endpoint's one before, if any. 0 or a
 * negative libuv error; UV_EBUSY (nothing has happened) in the very tick of the call before. */
int server_listen(struct server *server, enum server_endpoint at, int fd);
/* Reload. max_frame and max_depth hold for connections to come, everything else at once. */
void server_set_options(struct server *server, const struct server_options *options);

/* "down for 3m 12s: WRONGPASS ...", printable: why the store does not decide, if only some checks. False: it does. */
enum { STORE_TROUBLE_MAX = 1664 };
typedef bool store_trouble_fn(void *arg, char out[STORE_TROUBLE_MAX]);
/* For `stats` and `explain`; without it they say nothing of it. */
void server_set_store_trouble(struct server *server, store_trouble_fn *trouble, void *arg);

/* Who makes the page of metrics; without it the method is not there. */
void server_set_metrics(struct server *server, metrics_part_fn *part, void *arg);

/* The answer of all requests with this ticket, whose bytes are taken over (late_answer.h). */
void server_answer_late(struct server *server, uint64_t ticket, struct buffer *result);

void server_tick_end(struct server *server);
void server_look(struct server *server); /* each second: what is still to be logged */
/* Close who was idle, or did not read, for too long; the server's own timer calls it, and tests do. */
void server_sweep(struct server *server);

/* Stop accepting, read no further frames, answer what is in flight; on_drained once every session has ended, or after
 * timeout_ms, when the rest was closed. The control socket stays open: of its sessions only those end that wait for an
 * answer or hold slots, and from now on none of them is decided anything. */
void server_drain(struct server *server, uint32_t timeout_ms, void (*on_drained)(void *arg), void *arg);
/* Close everything, at once; on_closed once, then the server is gone. A drain under way ends here, without on_drained.
 */
void server_close(struct server *server, void (*on_closed)(void *arg), void *arg);

#endif
