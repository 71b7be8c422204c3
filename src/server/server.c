/*
 * server.c: accepting, draining, closing.
 *
 * Over max_connections nothing is accepted: the connection waits in the kernel's queue (libuv stops
 * to poll as long as it is not accepted), and server_tick_end() takes it once one has closed. The
 * same holds if the tick's work is done (sessions.h), but for the first ACCEPTS_LEAST; and without memory for
 * a session. On the control socket, the connection that was idle for longest gives way to the one that waits.
 */
#include "server/server.h"

#include <sys/resource.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "server/access.h"
#include "server/late_answer.h"
#include "server/server_counters.h"
#include "server/session_input.h"
#include "server/session_output.h"
#include "server/sessions_tick.h"

COUNTERS_DEFINE(server, SERVER_COUNTERS);
COUNTERS_DEFINE(control, CONTROL_COUNTERS);

enum {
    BACKLOG = 4096,
    ACCEPTS_LEAST = 8,                    /* in a tick, however much else is to be done */
    SPARE_FDS = 64 + CONTROL_CONNECTIONS, /* of the process's limit: the store, name lookups, the log, reloads */
    SPARE_FDS_LEAST = 24,                 /* of a low one: 17 are open from the start */
    CONTROL_SHARE = 8,                    /* of the spare ones of a low limit: this part is the control socket's */
};

/* Where connections come in. */
struct acceptor {
    struct server *server; /* not owned */
    struct session_group group;
    uint32_t max;           /* connections */
    uv_pipe_t listeners[2]; /* the one that accepts, and the one before it while it closes */
    bool in_use[2];         /* not closed yet */
    unsigned at;            /* which of the two accepts */
    bool is_listening;      /* the listener is open */
    bool accept_waits;      /* a connection waits with libuv until we take it */
    bool counted_pause;     /* this wait is in accept_pauses already */
    uint32_t n_accepted;    /* in this tick */
};

struct server {
    struct sessions sessions;
    struct acceptor acceptors[N_SERVER_ENDPOINTS];
    bool has_accepted; /* in this tick, or a connection waits to be */
    uv_timer_t drain_timer;
    unsigned n_open; /* our handles that are not closed yet, sessions aside */
    void (*on_drained)(void *arg);
    void *on_drained_arg;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static const struct connection_counts data_counts = {
    .open = &server_counters.connections,
    .accepted = &server_counters.connections_accepted,
    .accept_pauses = &server_counters.accept_pauses,
    .closed_broken = &server_counters.connections_closed_broken,
    .closed_slow = &server_counters.connections_closed_slow,
    .closed_unread = &server_counters.connections_closed_unread,
    .closed_idle = &server_counters.connections_closed_idle,
};

static const struct connection_counts control_counts = {
    .open = &control_counters.control_connections,
    .accepted = &control_counters.control_connections_accepted,
    .accept_pauses = &control_counters.control_accept_pauses,
    .closed_broken = &control_counters.control_connections_closed,
    .closed_slow = &control_counters.control_connections_closed,
    .closed_unread = &control_counters.control_connections_closed,
    .closed_idle = &control_counters.control_connections_closed,
};

static const struct session_group groups[N_SERVER_ENDPOINTS] = {
    [SERVER_DATA] = {.role = ROLE_CLIENT, .counts = &data_counts},
    [SERVER_CONTROL] = {.role = ROLE_ADMIN, .counts = &control_counts, .outlives_drain = true},
};

static void maybe_ended(struct server *server);

static void on_gone(struct sessions *sessions)
{
    maybe_ended(CONTAINER_OF(sessions, struct server, sessions));
}

/* Each endpoint's connections: what the settings say, or what the process's descriptors allow. */
static void set_caps(struct server *server, const struct server_options *options)
{
    const uint32_t max_connections = options->max_connections;
    const rlim_t wanted = SPARE_FDS + (rlim_t)options->n_store_files;
    struct acceptor *data = &server->acceptors[SERVER_DATA], *control = &server->acceptors[SERVER_CONTROL];
    struct rlimit limit;
    data->max = max_connections;
    control->max = CONTROL_CONNECTIONS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)max_connections + wanted) return;

    rlim_t spare = limit.rlim_cur / 2; /* if less than wanted: a connection without a descriptor is reset */
    if (spare > wanted) spare = wanted;
    if (spare < SPARE_FDS_LEAST) spare = SPARE_FDS_LEAST;
    if (spare < SPARE_FDS) control->max = (uint32_t)spare / CONTROL_SHARE;
    rlim_t left = limit.rlim_cur > spare ? limit.rlim_cur - spare : 1;
    if (left >= max_connections) return;

    data->max = (uint32_t)left;
    log_warning("caps.max_connections is %u and the limit of open files %llu: at most %u connections are accepted; "
                "raise LimitNOFILE= or lower the setting",
                max_connections, (unsigned long long)limit.rlim_cur, data->max);
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
    for (size_t i = 0; i < N_SERVER_ENDPOINTS; i++) {
        server->acceptors[i].server = server;
        server->acceptors[i].group = groups[i];
        list_init(&server->acceptors[i].group.open);
    }
    set_caps(server, options);
    server->n_open = 3; /* the drain timer, and the two of the sessions */
    return server;
}

void server_answer_late(struct server *server, uint64_t ticket, struct buffer *result)
{
    late_answers_end(&server->sessions, ticket, result);
}

void server_set_options(struct server *server, const struct server_options *options)
{
    struct server_options next = *options;
    next.n_store_files = server->sessions.options.n_store_files;                          /* the store stays as it is */
    memcpy(next.key_prefix, server->sessions.options.key_prefix, sizeof next.key_prefix); /* the store's, which stays */
    next.n_shards = server->sessions.options.n_shards;
    if (next.max_connections != server->sessions.options.max_connections) set_caps(server, &next);
    server->sessions.options = next;
    access_set_rules(&server->sessions, next.access);
    denial_log_set(&server->sessions.denials, next.denials, next.denials_per_second);
    if (watch_set(&server->sessions.watch, &next.watch) != 0)
        log_warning(
            "no memory for top.keys, denials.entries or slowlog.entries as they are set: they stay as they were");
    if (options->idle_timeout_ms > 0) sessions_arm_sweep(&server->sessions);
}

static void count_pause(struct acceptor *acceptor)
{
    if (acceptor->counted_pause) return;
    acceptor->counted_pause = true;
    ++*acceptor->group.counts->accept_pauses;
    if (acceptor->group.role == ROLE_ADMIN) {
        log_sampled(
            LOG_LEVEL_WARNING,
            "%zu connections to the control socket are open, as many as it has, and none is idle; new ones wait",
            acceptor->group.n);
        return;
    }
    bool is_as_set = acceptor->max == acceptor->server->sessions.options.max_connections;
    log_sampled(LOG_LEVEL_WARNING, "%zu connections are open, as many as caps.max_connections%s; new ones wait",
                acceptor->group.n, is_as_set ? " allows" : " and the limit of open files allow");
}

/* Accept the connection that waits, if it may be now. */
static void try_accept(struct acceptor *acceptor)
{
    struct sessions *sessions = &acceptor->server->sessions;
    acceptor->accept_waits = acceptor->server->has_accepted = true;
    if (acceptor->n_accepted >= ACCEPTS_LEAST && sessions_is_tick_spent(sessions)) return;
    if (acceptor->group.n >= acceptor->max) {
        bool gives_way = acceptor->group.role == ROLE_ADMIN && session_give_way(sessions, &acceptor->group);
        if (!gives_way) count_pause(acceptor);
        return;
    }

    int rc = session_accept(sessions, &acceptor->group, (uv_stream_t *)&acceptor->listeners[acceptor->at]);
    if (rc == UV_ENOMEM) { /* the sweeper's timer brings a tick in which to try again */
        log_sampled(LOG_LEVEL_WARNING, "no memory for a connection: it waits");
        sessions_arm_sweep(sessions);
        return;
    }
    if (rc != 0) log_sampled(LOG_LEVEL_WARNING, "a connection could not be accepted: %s", uv_strerror(rc));
    acceptor->n_accepted++;
    acceptor->accept_waits = acceptor->counted_pause = false;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct acceptor *acceptor = stream->data;
    if (status != 0) {
        log_sampled(LOG_LEVEL_WARNING, "connections cannot be accepted: %s", uv_strerror(status));
        return;
    }
    clock_update(acceptor->server->sessions.clock);
    try_accept(acceptor);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct server *server = handle->data;
    server->n_open--;
    maybe_ended(server);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct acceptor *acceptor = handle->data;
    acceptor->in_use[handle == (uv_handle_t *)&acceptor->listeners[1]] = false;
    acceptor->server->n_open--;
    maybe_ended(acceptor->server);
}

static void stop_listening(struct acceptor *acceptor)
{
    if (!acceptor->is_listening) return;
    acceptor->is_listening = acceptor->accept_waits = false;
    uv_close((uv_handle_t *)&acceptor->listeners[acceptor->at], on_listener_closed);
}

int server_listen(struct server *server, enum server_endpoint at, int fd)
{
    struct acceptor *acceptor = &server->acceptors[at];
    unsigned next = acceptor->at ^ 1;
    if (acceptor->in_use[next]) return UV_EBUSY;
    stop_listening(acceptor);

    uv_pipe_t *listener = &acceptor->listeners[next];
    uv_pipe_init(server->sessions.loop, listener, 0);
    listener->data = acceptor;
    acceptor->at = next;
    acceptor->is_listening = acceptor->in_use[next] = true;
    server->n_open++;

    int rc = uv_pipe_open(listener, fd);
    if (rc == 0) rc = uv_listen((uv_stream_t *)listener, BACKLOG, on_connection);
    if (rc != 0) stop_listening(acceptor);
    return rc;
}

void server_set_store_trouble(struct server *server, store_trouble_fn *trouble, void *arg)
{
    server->sessions.store_trouble = trouble;
    server->sessions.store_trouble_arg = arg;
}

void server_set_metrics(struct server *server, metrics_part_fn *part, void *arg)
{
    server->sessions.metrics_part = part;
    server->sessions.metrics_arg = arg;
}

void server_tick_end(struct server *server)
{
    sessions_tick_end(&server->sessions);
    if (!server->has_accepted) return; /* as in nearly every tick */

    server->has_accepted = false;
    for (size_t i = 0; i < N_SERVER_ENDPOINTS; i++) {
        struct acceptor *acceptor = &server->acceptors[i];
        acceptor->n_accepted = 0;
        if (acceptor->accept_waits) try_accept(acceptor);
    }
}

void server_look(struct server *server)
{
    denial_log_look(&server->sessions.near, server->sessions.clock->mono_us);
    denial_log_look(&server->sessions.denials, server->sessions.clock->mono_us);
    watch_look(&server->sessions.watch, server->sessions.clock->mono_us);
    error_log_look(&server->sessions.errors, server->sessions.clock->mono_us);
}

void server_sweep(struct server *server)
{
    sessions_sweep(&server->sessions);
}

/* The end is arithmetic: each thing that closes comes by here, and the last one is it. */
static void maybe_ended(struct server *server)
{
    if (server->on_drained != NULL && server->acceptors[SERVER_DATA].group.n + server->sessions.n_draining == 0) {
        void (*on_drained)(void *arg) = server->on_drained;
        server->on_drained = NULL;
        uv_timer_stop(&server->drain_timer);
        on_drained(server->on_drained_arg);
        return;
    }

    if (server->on_closed == NULL || server->sessions.n + server->n_open > 0) return;
    void (*on_closed)(void *arg) = server->on_closed;
    void *arg = server->on_closed_arg;
    sessions_fini(&server->sessions);
    mem_free(server);
    on_closed(arg);
}

static void on_drain_timeout(uv_timer_t *timer)
{
    struct server *server = timer->data;
    size_t n = server->sessions.n_draining;
    if (n > 0) log_info("%zu connections had not ended when the drain timed out: closing them", n);
    LIST_FOREACH (link, &server->sessions.all) {
        struct session *session = LIST_ITEM(link, struct session, link);
        if (session->is_draining) session_close(session, SESSION_STOPPING);
    }
    maybe_ended(server);
}

void server_drain(struct server *server, uint32_t timeout_ms, void (*on_drained)(void *arg), void *arg)
{
    struct sessions *sessions = &server->sessions;
    CHECK(server->on_drained == NULL && server->on_closed == NULL);
    server->on_drained = on_drained;
    server->on_drained_arg = arg;
    stop_listening(&server->acceptors[SERVER_DATA]);
    sessions->draining = true;
    late_answers_refuse(sessions);
    LIST_FOREACH (link, &sessions->all) {
        struct session *session = LIST_ITEM(link, struct session, link);
        bool ends = !session->group->outlives_drain || session_is_busy(session) || session->slots.n > 0;
        if (ends) session_drain(session);
    }

    bool is_drained = sessions->n_draining == 0; /* the timer reports it, never this call */
    uv_timer_start(&server->drain_timer, on_drain_timeout, is_drained ? 0 : timeout_ms, 0);
}

void server_close(struct server *server, void (*on_closed)(void *arg), void *arg)
{
    CHECK(server->on_closed == NULL);
    server->on_drained = NULL;
    server->on_closed = on_closed;
    server->on_closed_arg = arg;
    for (size_t i = 0; i < N_SERVER_ENDPOINTS; i++) stop_listening(&server->acceptors[i]);
    LIST_FOREACH (link, &server->sessions.all) session_close(LIST_ITEM(link, struct session, link), SESSION_STOPPING);

    server->sessions.runner.data = server->sessions.sweeper.data = server; /* no other callback of theirs runs */
    uv_close((uv_handle_t *)&server->drain_timer, on_handle_closed);
    uv_close((uv_handle_t *)&server->sessions.runner, on_handle_closed);
    uv_close((uv_handle_t *)&server->sessions.sweeper, on_handle_closed);
}
