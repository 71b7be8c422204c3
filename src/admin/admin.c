/* admin.c: accepts connections for HTTP, gives each its share of a tick, and ends it in time; for ratelimitd.c. */
#include "admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admin/admin_counters.h"
#include "admin/http.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "base/log.h"

COUNTERS_DEFINE(admin, ADMIN_COUNTERS);

enum {
    WORK_US = 60,           /* of a tick's time; a piece that has begun is finished */
    ACCEPTS_PER_TICK = 2,   /* each takes some 20 us */
    ACCEPT_AGAIN_MS = 1000, /* after an error of accept(), such as no descriptor */
};

/* Its work is done in pieces: a read, a part of an answer. So the loop decides how many a tick has time for. */
struct connection {
    struct list link; /* in admin->connections: the oldest first */
    struct list due;  /* in admin->due: it can go on now; unlinked: it waits for its peer */
    struct admin *admin;
    int fd; /* owned */
    struct http http;
    uv_poll_t ready; /* for `fd` */
    int64_t accepted_us;
};

struct admin {
    uv_loop_t *loop;
    struct clock *clock;
    struct routes routes;
    int fd;               /* that listens; owned; -1: none */
    uv_poll_t acceptable; /* that descriptor */
    uv_idle_t work;       /* active while a connection is due: a little of it in each tick */
    uv_timer_t timer;     /* the oldest connection's time is over, or accepting goes on */
    struct list connections;
    struct list due;
    uint32_t n;           /* connections */
    int64_t accept_at_us; /* accepting pauses until then; 0: it does not */
    unsigned n_open;      /* handles that are not closed yet */
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void on_work(uv_idle_t *idle);
static void arm(struct admin *admin);
static void handle_closed(struct admin *admin);

/* ---- connections ---- */

static struct connection *oldest(const struct admin *admin)
{
    return list_empty(&admin->connections) ? NULL : LIST_ITEM(admin->connections.next, struct connection, link);
}

static void on_connection_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    struct admin *admin = connection->admin;
    mem_free(connection);
    handle_closed(admin);
}

/* Whatever it was about; its descriptor is closed when this returns. */
static void end(struct connection *connection)
{
    struct admin *admin = connection->admin;
    list_remove(&connection->link);
    list_remove(&connection->due);
    admin->n--;
    admin_counters.admin_connections--;
    uv_close((uv_handle_t *)&connection->ready, on_connection_closed);
    http_fini(&connection->http);
    close(connection->fd);
}

static void cut(struct connection *connection)
{
    admin_counters.admin_connections_cut++;
    end(connection);
}

static void set_due(struct connection *connection)
{
    struct admin *admin = connection->admin;
    list_remove(&connection->due);
    list_push_back(&admin->due, &connection->due);
    uv_idle_start(&admin->work, on_work);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    uv_poll_stop(poll); /* until the next piece has found out what to wait for */
    set_due(poll->data);
}

/* A connection that can begin; NULL without memory or descriptors, and then fd is closed. */
static struct connection *connection_new(struct admin *admin, int fd)
{
    const int on = 1;
    struct connection *connection = mem_zalloc(sizeof *connection);
    if (connection == NULL) goto err_close;
    if (http_init(&connection->http, &admin->routes, fd) != 0) goto err_free;
    if (uv_poll_init(admin->loop, &connection->ready, fd) != 0) goto err_fini;
    connection->fd = fd;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* a Unix socket has none */
    return connection;

err_fini:
    http_fini(&connection->http);
err_free:
    mem_free(connection);
err_close:
    close(fd);
    return NULL;
}

/* At the cap the oldest make place. */
static void begin(struct admin *admin, int fd)
{
    while (admin->n >= admin->routes.options.max_connections) cut(oldest(admin));
    struct connection *connection = connection_new(admin, fd);
    if (connection == NULL) {
        log_sampled(LOG_LEVEL_WARNING, "admin.listen: no memory or descriptors for a connection");
        return;
    }

    connection->admin = admin;
    connection->accepted_us = admin->clock->mono_us;
    connection->ready.data = connection;
    list_init(&connection->due);
    list_push_back(&admin->connections, &connection->link);
    admin->n++;
    admin->n_open++;
    admin_counters.admin_connections++;
    set_due(connection);
}

/* ---- a tick's work ---- */

/* One connection after another, a piece each, until the time is over: the others go first in the next tick. */
static void on_work(uv_idle_t *idle)
{
    struct admin *admin = idle->data;
    clock_update(admin->clock);
    int64_t until_us = clock_mono_us() + WORK_US;
    do {
        struct list *first = list_pop_front(&admin->due);
        if (first == NULL) break;
        struct connection *connection = LIST_ITEM(first, struct connection, due);
        switch (http_run(&connection->http)) {
        case HTTP_GOES_ON: set_due(connection); break;
        case HTTP_READS: uv_poll_start(&connection->ready, UV_READABLE, on_ready); break;
        case HTTP_WRITES: uv_poll_start(&connection->ready, UV_WRITABLE, on_ready); break;
        case HTTP_OVER: end(connection); break;
        }
    } while (!list_empty(&admin->due) && clock_mono_us() < until_us);
    if (list_empty(&admin->due)) uv_idle_stop(idle);
    arm(admin);
}

/* ---- accepting ---- */

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct admin *admin = poll->data;
    (void)status, (void)events;
    clock_update(admin->clock);

    for (int i = 0; i < ACCEPTS_PER_TICK; i++) {
        int fd = accept4(admin->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) break;
            log_sampled(LOG_LEVEL_WARNING, "admin.listen: connections cannot be accepted: %s", strerror(errno));
            admin->accept_at_us = admin->clock->mono_us + ACCEPT_AGAIN_MS * 1000;
            uv_poll_stop(&admin->acceptable);
            break;
        }
        begin(admin, fd);
    }
    arm(admin);
}

/* ---- the timer ---- */

static int64_t ends_us(const struct admin *admin, const struct connection *connection)
{
    return connection->accepted_us + (int64_t)admin->routes.options.timeout_ms * 1000;
}

static void on_timer(uv_timer_t *timer)
{
    struct admin *admin = timer->data;
    struct connection *first;
    clock_update(admin->clock);
    while ((first = oldest(admin)) != NULL && ends_us(admin, first) <= admin->clock->mono_us) cut(first);
    if (admin->accept_at_us > 0 && admin->accept_at_us <= admin->clock->mono_us) {
        admin->accept_at_us = 0;
        uv_poll_start(&admin->acceptable, UV_READABLE, on_acceptable);
    }
    arm(admin);
}

static void arm(struct admin *admin)
{
    const struct connection *first = oldest(admin);
    int64_t at_us = first != NULL ? ends_us(admin, first) : INT64_MAX, now_us = admin->clock->mono_us;
    if (admin->accept_at_us > 0 && admin->accept_at_us < at_us) at_us = admin->accept_at_us;

    if (at_us == INT64_MAX)
        uv_timer_stop(&admin->timer);
    else
        uv_timer_start(&admin->timer, on_timer, at_us > now_us ? (uint64_t)(at_us - now_us + 999) / 1000 : 0, 0);
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
    list_init(&admin->due);
    admin->routes.clock = clock;
    admin_set_options(admin, options);
    uv_idle_init(loop, &admin->work);
    uv_timer_init(loop, &admin->timer);
    admin->work.data = admin->timer.data = admin;
    admin->n_open = 2;
    return admin;
}

int admin_listen(struct admin *admin, int fd)
{
    CHECK(fd >= 0 && admin->on_closed == NULL);
    if (admin->fd >= 0) { /* the handle goes on with another descriptor */
        uv_poll_stop(&admin->acceptable);
        int rc = dup3(fd, admin->fd, O_CLOEXEC) < 0 ? uv_translate_sys_error(errno) : 0;
        close(fd);
        return rc != 0 ? rc : uv_poll_start(&admin->acceptable, UV_READABLE, on_acceptable);
    }

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
    CHECK(options->max_connections > 0 && options->look != NULL);
    char *copy = options->allow_hosts != NULL ? mem_strdup(options->allow_hosts) : NULL;
    mem_free(admin->routes.allow_hosts); /* without memory for the new ones no name is known, which is safe */
    admin->routes.allow_hosts = copy;
    admin->routes.options = *options;
    admin->routes.options.allow_hosts = NULL;
}

static void handle_closed(struct admin *admin)
{
    if (--admin->n_open > 0) return;

    void (*on_closed)(void *arg) = admin->on_closed;
    void *arg = admin->on_closed_arg;
    if (admin->fd >= 0) close(admin->fd);
    mem_free(admin->routes.allow_hosts);
    mem_free(admin);
    on_closed(arg);
}

static void on_handle_closed(uv_handle_t *handle)
{
    handle_closed(handle->data);
}

void admin_close(struct admin *admin, void (*on_closed)(void *arg), void *arg)
{
    CHECK(admin->on_closed == NULL);
    admin->on_closed = on_closed;
    admin->on_closed_arg = arg;
    while (!list_empty(&admin->connections)) end(oldest(admin));
    uv_close((uv_handle_t *)&admin->work, on_handle_closed);
    uv_close((uv_handle_t *)&admin->timer, on_handle_closed);
    if (admin->fd >= 0) uv_close((uv_handle_t *)&admin->acceptable, on_handle_closed);
}
