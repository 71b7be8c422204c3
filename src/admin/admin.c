#include "admin/admin.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <microhttpd.h>

#include "admin/admin_counters.h"
#include "admin/routes.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "base/log.h"

COUNTERS_DEFINE(admin, ADMIN_COUNTERS);

enum {
    ACCEPTS_PER_TICK = 8,
    CONNECTIONS_MOST = 1024,      /* for libmicrohttpd; ours is max_connections */
    CONNECTION_BYTES = 32 * 1024, /* of a request's header and of what is being sent */
    ACCEPT_AGAIN_MS = 1000,       /* after an error of accept(), such as no descriptor */
};

struct connection {
    struct list link; /* in admin->connections: the oldest first; not once it is cut */
    int fd;           /* libmicrohttpd's */
    int64_t accepted_us;
    bool is_cut;
};

struct admin {
    uv_loop_t *loop;
    struct clock *clock;
    struct routes routes;
    struct MHD_Daemon *mhd;  /* owned */
    int fd;                  /* that listens; owned; -1: none */
    uv_poll_t acceptable;    /* that descriptor */
    uv_poll_t ready;         /* libmicrohttpd's epoll descriptor, of all its connections */
    uv_timer_t timer;        /* libmicrohttpd has work left over, or the oldest connection's time is over */
    struct list connections; /* those that are not cut */
    uint32_t n;              /* of them */
    int64_t accept_at_us;    /* accepting pauses until then; 0: it does not */
    unsigned n_open;         /* handles that are not closed yet */
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- connections ---- */

static void forget(struct admin *admin, struct connection *connection)
{
    list_remove(&connection->link);
    admin->n--;
    admin_counters.admin_connections--;
}

/* libmicrohttpd sees the end of its socket and closes it, soon but not always at once: it counts no more from here on.
 */
static void cut(struct admin *admin, struct connection *connection)
{
    forget(admin, connection);
    connection->is_cut = true;
    admin_counters.admin_connections_cut++;
    shutdown(connection->fd, SHUT_RDWR);
}

static struct connection *oldest(const struct admin *admin)
{
    return list_empty(&admin->connections) ? NULL : LIST_ITEM(admin->connections.next, struct connection, link);
}

static void on_connection(void *cls, struct MHD_Connection *mhd_connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct admin *admin = cls;
    struct connection *connection = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (connection == NULL) return;
        if (!connection->is_cut) forget(admin, connection);
        mem_free(connection);
        return;
    }

    int fd = MHD_get_connection_info(mhd_connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    connection = mem_zalloc(sizeof *connection);
    if (connection == NULL) { /* one that could not be cut later */
        shutdown(fd, SHUT_RDWR);
        return;
    }
    while (admin->n >= admin->routes.options.max_connections) cut(admin, oldest(admin));
    *connection = (struct connection){.fd = fd, .accepted_us = admin->clock->mono_us};
    list_init(&connection->link);
    list_push_back(&admin->connections, &connection->link);
    *context = connection;
    admin->n++;
    admin_counters.admin_connections++;
}

/* ---- libmicrohttpd's work, and when there is more of it ---- */

static void on_timer(uv_timer_t *timer);

static int64_t ends_us(const struct admin *admin, const struct connection *connection)
{
    return connection->accepted_us + (int64_t)admin->routes.options.timeout_ms * 1000;
}

static void arm(struct admin *admin)
{
    MHD_UNSIGNED_LONG_LONG ms;
    const struct connection *first = oldest(admin);
    int64_t at_us = INT64_MAX, now_us = admin->clock->mono_us;
    if (MHD_get_timeout(admin->mhd, &ms) == MHD_YES) at_us = now_us + (int64_t)(ms < 60000 ? ms : 60000) * 1000;
    if (first != NULL && ends_us(admin, first) < at_us) at_us = ends_us(admin, first);
    if (admin->accept_at_us > 0 && admin->accept_at_us < at_us) at_us = admin->accept_at_us;

    if (at_us == INT64_MAX)
        uv_timer_stop(&admin->timer);
    else
        uv_timer_start(&admin->timer, on_timer, at_us > now_us ? (uint64_t)(at_us - now_us + 999) / 1000 : 0, 0);
}

/* A part of what each connection can do: one read, one piece of an answer. The rest is due at once, in the next tick.
 */
static void run(struct admin *admin)
{
    struct connection *first;
    while ((first = oldest(admin)) != NULL && ends_us(admin, first) <= admin->clock->mono_us) cut(admin, first);
    MHD_run(admin->mhd);
    arm(admin);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct admin *admin = poll->data;
    (void)status, (void)events;
    clock_update(admin->clock);
    run(admin);
}

/* ---- accepting ---- */

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct admin *admin = poll->data;
    (void)status, (void)events;
    clock_update(admin->clock);

    for (int i = 0; i < ACCEPTS_PER_TICK; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t len = sizeof peer;
        int fd = accept4(admin->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) break;
            log_sampled(LOG_LEVEL_WARNING, "admin.listen: connections cannot be accepted: %s", strerror(errno));
            admin->accept_at_us = admin->clock->mono_us + ACCEPT_AGAIN_MS * 1000;
            uv_poll_stop(&admin->acceptable);
            break;
        }
        if (MHD_add_connection(admin->mhd, fd, (struct sockaddr *)&peer, len) != MHD_YES) /* it has closed fd */
            log_sampled(LOG_LEVEL_WARNING, "admin.listen: no memory for a connection");
    }
    run(admin);
}

static void on_timer(uv_timer_t *timer)
{
    struct admin *admin = timer->data;
    clock_update(admin->clock);
    if (admin->accept_at_us > 0 && admin->accept_at_us <= admin->clock->mono_us) {
        admin->accept_at_us = 0;
        uv_poll_start(&admin->acceptable, UV_READABLE, on_acceptable);
    }
    run(admin);
}

/* ---- beginning and end ---- */

struct admin *admin_new(uv_loop_t *loop, struct clock *clock, const struct admin_options *options)
{
    struct admin *admin = mem_zalloc(sizeof *admin);
    if (admin == NULL) return NULL;
    admin->loop = loop;
    admin->clock = clock;
    admin->fd = -1;
    list_init(&admin->connections);
    admin->routes.clock = clock;
    admin_set_options(admin, options);

    admin->mhd =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, routes_answer, &admin->routes,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_NOTIFY_CONNECTION,
                         on_connection, admin, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        admin->mhd != NULL ? MHD_get_daemon_info(admin->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (info == NULL || uv_poll_init(loop, &admin->ready, info->epoll_fd) != 0) {
        if (admin->mhd != NULL) MHD_stop_daemon(admin->mhd);
        mem_free(admin->routes.allow_hosts);
        mem_free(admin);
        return NULL;
    }
    uv_timer_init(loop, &admin->timer);
    admin->ready.data = admin->timer.data = admin->acceptable.data = admin;
    admin->n_open = 2;
    uv_poll_start(&admin->ready, UV_READABLE, on_ready);
    return admin;
}

int admin_listen(struct admin *admin, int fd)
{
    CHECK(admin->fd < 0);
    int rc = uv_poll_init(admin->loop, &admin->acceptable, fd);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    admin->fd = fd;
    admin->n_open++;
    admin->acceptable.data = admin;
    return uv_poll_start(&admin->acceptable, UV_READABLE, on_acceptable);
}

void admin_set_options(struct admin *admin, const struct admin_options *options)
{
    char *copy = options->allow_hosts != NULL ? mem_strdup(options->allow_hosts) : NULL;
    mem_free(admin->routes.allow_hosts); /* without memory for the new ones no name is known, which is safe */
    admin->routes.allow_hosts = copy;
    admin->routes.options = *options;
    admin->routes.options.allow_hosts = NULL;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct admin *admin = handle->data;
    if (--admin->n_open > 0) return;

    void (*on_closed)(void *arg) = admin->on_closed;
    void *arg = admin->on_closed_arg;
    MHD_stop_daemon(admin->mhd); /* with all its connections; after the handle of its descriptor */
    CHECK(admin->n == 0);
    if (admin->fd >= 0) close(admin->fd);
    mem_free(admin->routes.allow_hosts);
    mem_free(admin);
    on_closed(arg);
}

void admin_close(struct admin *admin, void (*on_closed)(void *arg), void *arg)
{
    CHECK(admin->on_closed == NULL);
    admin->on_closed = on_closed;
    admin->on_closed_arg = arg;
    uv_close((uv_handle_t *)&admin->ready, on_handle_closed);
    uv_close((uv_handle_t *)&admin->timer, on_handle_closed);
    if (admin->fd >= 0) uv_close((uv_handle_t *)&admin->acceptable, on_handle_closed);
}
