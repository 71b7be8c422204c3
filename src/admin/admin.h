/*
 * admin.h: the door for those who watch: a listener for HTTP that shows numbers and changes nothing.
 *
 *   admin.c     accepting, the cap and the lifetime of connections; a tick's share of their work
 *   http.c      one request and its answer: the bytes of both
 *   routes.c    what it is answered with: its method, its Host, its path; the short pages
 *   metrics.c   the page of metrics, from the counters' rows
 *
 * No key of a client is shown, and nothing can be changed: a page that some browser was led to must do no harm. So
 * methods other than GET and HEAD are refused, and names in Host that are not known.
 *
 * A connection is for one request. It ends admin.timeout after it was accepted, whatever it does, and a new one takes
 * the place of the oldest if there are admin.max_connections: so neither idle nor slow peers keep a probe waiting. All
 * of them together have a small part of a tick's time, so that checks do not wait for them either.
 *
 * A build can leave HTTP out (RL_HTTP=OFF, absent.c). The page of metrics stays: ratelimitctl asks for it, too.
 */
#ifndef RL_ADMIN_ADMIN_H
#define RL_ADMIN_ADMIN_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/clock.h"
#include "policy/policy.h"

struct admin;

enum admin_phase { ADMIN_STARTING, ADMIN_READY, ADMIN_DRAINING };

/* What the daemon is like now. */
struct admin_view {
    enum admin_phase phase;
    const char *store; /* "memory" or "redis"; static */
    bool is_store_up;  /* it decides checks */
    /* Of Redis: "ready", or what is wrong, if only for some checks; valid until the next view. */
    const char *store_status;
    int64_t store_since_us; /* CLOCK_MONOTONIC: it is, since then */
    int64_t started_us;     /* CLOCK_MONOTONIC, as the next one */
    int64_t configured_us;  /* the configuration in force was read */
    bool reload_failed;     /* the last reload was refused */
    bool has_redis_clock;   /* Redis has answered a batch: */
    int64_t redis_ahead_us; /* its clock less ours, at the middle of that round trip */
    uint32_t n_named;       /* policies with series of their own in the metrics */
    struct policy_set *policies;
};

struct admin_options {
    uint32_t max_connections;
    uint32_t timeout_ms;
    const char *allow_hosts; /* one a line; NULL: none. Copied */
    bool is_local;           /* on a Unix socket, where no browser comes: any Host will do */
    const char *hiredis_version;
    void (*look)(void *arg, struct admin_view *ret_view); /* also updates the counters that are computed when asked */
    void *arg;
};

/* NULL without memory. */
struct admin *admin_new(uv_loop_t *loop, struct clock *clock, const struct admin_options *options);
/* Accepts on a listening descriptor, which is taken over, and no longer on the one before. 0, or a libuv error. */
int admin_listen(struct admin *admin, int fd);
void admin_set_options(struct admin *admin, const struct admin_options *options); /* a reload */
/* Closes everything, at once; on_closed once, then it is gone. */
void admin_close(struct admin *admin, void (*on_closed)(void *arg), void *arg);

#endif
