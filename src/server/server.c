/*
 * server.c: accepting, draining, closing.
 *
 * Over max_connections nothing is accepted: the connection waits in the kernel's queue (libuv stops
 * to poll as long as it is not accepted), and server_tick_end() takes it once one has closed. The
 * same holds if the tick's work is done (sessions.h), but for the first ACCEPTS_LEAST; and without memory for
 * a session.
 */
#include "server/server.h"

#include <sys/resource.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "server/server_counters.h"
#include "server/session.h"
#include "server/sessions.h"

COUNTERS_DEFINE(server, SERVER_COUNTERS);

enum {
    BACKLOG = 4096,
    ACCEPTS_LEAST = 16,   /* in a tick, however much else is to be done */
    SPARE_FDS = 64,       /* of the process's limit, for the store, name lookups, the log and reloads */
    SPARE_FDS_LEAST = 24, /* of a low one: 15 are open from the start */
};

struct server {
    struct sessions sessions;
    uv_pipe_t listeners[2]; /* the one that accepts, and the one before it while it closes */
    bool in_use[2];         /* not closed yet */
    unsigned at;            /* which of the two accepts */
    uv_timer_t drain_timer;
    bool is_listening;     /* the listener is open */
    bool accept_waits;     /* a connection waits with libuv until we take it */
    bool counted_pause;    /* this wait is in accept_pauses already */
    uint32_t n_accepted;   /* in this tick */
    unsigned n_open;       /* our handles that are not closed yet, sessions aside */
    uint32_t max_sessions; /* max_connections, or what the process's descriptors allow */
    void (*on_drained)(void *arg);
    void *on_drained_arg;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void maybe_ended(struct server *server);

static void on_gone(struct sessions *sessions)
{
    maybe_ended(CONTAINER_OF(sessions, struct server, sessions));
}

static uint32_t sessions_allowed(uint32_t max_connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)max_connections + SPARE_FDS)
        return max_connections;

    rlim_t spare = limit.rlim_cur / 2; /* if less than SPARE_FDS: a connection without a descriptor is reset */
    if (spare > SPARE_FDS) spare = SPARE_FDS;
    if (spare < SPARE_FDS_LEAST) spare = SPARE_FDS_LEAST;
    rlim_t left = limit.rlim_cur > spare ? limit.rlim_cur - spare : 1;
    if (left >= max_connections) return max_connections;

    uint32_t allowed = (uint32_t)left;
    log_warning("caps.max_connections is %u and the limit of open files %llu: at most %u connections are accepted; "
                "raise LimitNOFILE= or lower the setting",
                max_connections, (unsigned long long)limit.rlim_cur, allowed);
    return allowed;
}

struct server *server_new(uv_loop_t *loop, struct clock *clock, struct engine *engine,
                          const struct server_options *options)
{
    struct server *server = mem_zalloc(sizeof *server);
    if (server == NULL) return NULL;
    if (sessions_init(&server->sessions, loop, clock, engine, options) != 0) {
        mem_free(server);
        return NULL;
    }

    uv_timer_init(loop, &server->drain_timer);
    server->drain_timer.data = server;
    server->sessions.on_gone = on_gone;
    server->max_sessions = sessions_allowed(options->max_connections);
    server->n_open = 3; /* the drain timer, and the two of the sessions */
    return server;
}

void server_set_options(struct server *server, const struct server_options *options)
{
    if (options->max_connections != server->sessions.options.max_connections)
        server->max_sessions = sessions_allowed(options->max_connections);
    struct server_options next = *options;
    memcpy(next.key_prefix, server->sessions.options.key_prefix, sizeof next.key_prefix); /* the store's, which stays */
    server->sessions.options = next;
    denial_log_set(&server->sessions.denials, next.denials, next.denials_per_second);
    if (options->idle_timeout_ms > 0) sessions_arm_sweep(&server->sessions);
}

/* Accept the connection that waits, if it may be now. */
static void try_accept(struct server *server)
{
    struct sessions *sessions = &server->sessions;
    server->accept_waits = true;
    if (server->n_accepted >= ACCEPTS_LEAST && sessions_is_tick_spent(sessions)) return;
    if (sessions->n >= server->max_sessions) {
        if (server->counted_pause) return;
        server_counters.accept_pauses++;
        server->counted_pause = true;
        log_sampled(LOG_LEVEL_WARNING, "%zu connections are open, as many as caps.max_connections%s; new ones wait",
                    sessions->n,
                    server->max_sessions < sessions->options.max_connections ? " and the limit of open files allow"
                                                                             : " allows");
        return;
    }

    int rc = session_accept(sessions, (uv_stream_t *)&server->listeners[server->at]);
    if (rc == UV_ENOMEM) { /* the sweeper's timer brings a tick in which to try again */
        log_sampled(LOG_LEVEL_WARNING, "no memory for a connection: it waits");
        sessions_arm_sweep(sessions);
        return;
    }
    if (rc != 0) log_sampled(LOG_LEVEL_WARNING, "a connection could not be accepted: %s", uv_strerror(rc));
    server->n_accepted++;
    server->accept_waits = server->counted_pause = false;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct server *server = stream->data;
    if (status != 0) {
        log_sampled(LOG_LEVEL_WARNING, "connections cannot be accepted: %s", uv_strerror(status));
        return;
    }
    clock_update(server->sessions.clock);
    try_accept(server);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct server *server = handle->data;
    server->n_open--;
    maybe_ended(server);
}

static void on_sessions_handle_closed(uv_handle_t *handle)
{
    struct server *server = CONTAINER_OF(handle->data, struct server, sessions);
    server->n_open--;
    maybe_ended(server);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct server *server = handle->data;
    server->in_use[handle == (uv_handle_t *)&server->listeners[1]] = false;
    on_handle_closed(handle);
}

static void stop_listening(struct server *server)
{
    if (!server->is_listening) return;
    server->is_listening = server->accept_waits = false;
    uv_close((uv_handle_t *)&server->listeners[server->at], on_listener_closed);
}

int server_listen(struct server *server, int fd)
{
    unsigned next = server->at ^ 1;
    if (server->in_use[next]) return UV_EBUSY;
    stop_listening(server);

    uv_pipe_t *listener = &server->listeners[next];
    uv_pipe_init(server->sessions.loop, listener, 0);
    listener->data = server;
    server->at = next;
    server->is_listening = server->in_use[next] = true;
    server->n_open++;

    int rc = uv_pipe_open(listener, fd);
    if (rc == 0) rc = uv_listen((uv_stream_t *)listener, BACKLOG, on_connection);
    if (rc != 0) stop_listening(server);
    return rc;
}

void server_tick_end(struct server *server)
{
    sessions_tick_end(&server->sessions);
    server->n_accepted = 0;
    if (server->accept_waits) try_accept(server);
}

void server_look(struct server *server)
{
    denial_log_look(&server->sessions.denials, server->sessions.clock->mono_us);
}

void server_sweep(struct server *server)
{
    sessions_sweep(&server->sessions);
}

/* The end is arithmetic: each thing that closes comes by here, and the last one is it. */
static void maybe_ended(struct server *server)
{
    if (server->sessions.n > 0) return;

    if (server->on_drained != NULL) {
        void (*on_drained)(void *arg) = server->on_drained;
        server->on_drained = NULL;
        uv_timer_stop(&server->drain_timer);
        on_drained(server->on_drained_arg);
        return;
    }

    if (server->on_closed == NULL || server->n_open > 0) return;
    void (*on_closed)(void *arg) = server->on_closed;
    void *arg = server->on_closed_arg;
    sessions_fini(&server->sessions);
    mem_free(server);
    on_closed(arg);
}

static void on_drain_timeout(uv_timer_t *timer)
{
    struct server *server = timer->data;
    if (server->sessions.n > 0)
        log_info("%zu connections had not ended when the drain timed out: closing them", server->sessions.n);
    sessions_close_all(&server->sessions);
    maybe_ended(server);
}

void server_drain(struct server *server, uint32_t timeout_ms, void (*on_drained)(void *arg), void *arg)
{
    CHECK(server->on_drained == NULL && server->on_closed == NULL);
    server->on_drained = on_drained;
    server->on_drained_arg = arg;
    stop_listening(server);
    sessions_drain(&server->sessions);
    bool nobody = server->sessions.n == 0; /* then the timer, because on_drained never runs within this call */
    uv_timer_start(&server->drain_timer, on_drain_timeout, nobody ? 0 : timeout_ms, 0);
}

void server_close(struct server *server, void (*on_closed)(void *arg), void *arg)
{
    CHECK(server->on_closed == NULL);
    server->on_drained = NULL;
    server->on_closed = on_closed;
    server->on_closed_arg = arg;
    stop_listening(server);
    sessions_close_all(&server->sessions);

    uv_close((uv_handle_t *)&server->drain_timer, on_handle_closed);
    uv_close((uv_handle_t *)&server->sessions.runner, on_sessions_handle_closed);
    uv_close((uv_handle_t *)&server->sessions.sweeper, on_sessions_handle_closed);
}
