/* endpoints.c: opens, replaces and closes what the daemon listens on, for the start, reload.c and stop.c. */
#include "daemon/endpoints.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/service.h"

#define CONTROL_SUFFIX ".control"

enum { REASON_MAX = 512 };

/* More than come at once: the system lets a peer beyond it try again after a second, which is late for a probe. Those
 * that are kept are accepted within some hundred ticks. */
enum { HTTP_BACKLOG = 512 };

/* ---- what each row does by itself ---- */

static struct listener_options data_options(struct daemon *daemon, struct endpoint *endpoint)
{
    const struct config *config = daemon->started;
    const char *path = daemon->arguments.socket_path;
    endpoint->is_used = endpoint->is_required = true;
    return (struct listener_options){.path = path != NULL ? path : config->listen_socket,
                                     .mode = (unsigned)config->listen_mode,
                                     .has_group = config->listen_group != NULL,
                                     .group = config->listen_gid};
}

/* By default next to the data socket, wherever that came from. */
static struct listener_options control_options(struct daemon *daemon, struct endpoint *endpoint)
{
    const struct config *config = daemon->started;
    const char *data = daemon->endpoints[ENDPOINT_DATA].listener.path; /* "" of an abstract one that was passed */
    const char *path = config->control_socket;
    endpoint->is_required = path != NULL || service_listen_fd(SERVICE_CONTROL) != SERVICE_FD_NONE;
    endpoint->is_used = endpoint->is_required || (data[0] != '\0' && !daemon->arguments.test_limits);
    snprintf(endpoint->path, sizeof endpoint->path, "%s" CONTROL_SUFFIX, data);
    return (struct listener_options){.path = path != NULL ? path : endpoint->path,
                                     .mode = (unsigned)config->control_mode};
}

static struct listener_options http_options(struct daemon *daemon, struct endpoint *endpoint)
{
    const struct config *config = daemon->started;
    struct listen_address address;
    endpoint->is_used = config->admin_listen != NULL;
    bool is_unix =
        endpoint->is_used && listen_address_parse(&address, config->admin_listen) && address.unix_path != NULL;
    return (struct listener_options){.path = is_unix ? address.unix_path : NULL,
                                     .mode = (unsigned)config->listen_mode,
                                     .has_group = config->listen_group != NULL,
                                     .group = config->listen_gid};
}

static const struct row {
    const char *setting;
    struct listener_options (*options)(struct daemon *daemon, struct endpoint *endpoint);
    enum server_endpoint server; /* that takes the descriptor over; not of HTTP */
    int passed;                  /* enum service_socket; -1: the service manager passes none */
    bool outlives_drain;
} rows[N_ENDPOINTS] = {
    [ENDPOINT_DATA] = {"listen.socket", data_options, SERVER_DATA, SERVICE_DATA, false},
    [ENDPOINT_CONTROL] = {"control.socket", control_options, SERVER_CONTROL, SERVICE_CONTROL, true},
    [ENDPOINT_HTTP] = {"admin.listen", http_options, N_SERVER_ENDPOINTS, -1, true},
};

/* ---- opening ---- */

/* A listening descriptor for an IP address, or -1 with the reason. */
static int open_ip(const struct listen_address *address, const char *text, char reason[REASON_MAX])
{
    const int on = 1, off = 0;
    int family = address->ip.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off); /* [::] is every address */
        if (bind(fd, (const struct sockaddr *)&address->ip, address->len) == 0 && listen(fd, HTTP_BACKLOG) == 0)
            return fd;
    }
    snprintf(reason, REASON_MAX, "%s: %s", text, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static bool is_same_file(const char *path, const char *other)
{
    struct stat a, b;
    return lstat(path, &a) == 0 && lstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Another endpoint has this path, perhaps written in another way: the lock would say that another daemon has it. */
static bool is_taken(const struct daemon *daemon, enum endpoint_id id, char reason[REASON_MAX])
{
    const char *path = daemon->endpoints[id].options.path;
    for (int other = 0; other < N_ENDPOINTS; other++) {
        const struct endpoint *endpoint = &daemon->endpoints[other];
        if (other == (int)id || !endpoint->is_open || !is_same_file(path, endpoint->listener.path)) continue;
        snprintf(reason, REASON_MAX, "%s (%s) and %s (%s) are the same file; write another path for one of them",
                 rows[id].setting, path, rows[other].setting, endpoint->listener.path);
        return true;
    }
    return false;
}

/* 0, LISTENER_FAULT or LISTENER_LATER; the last two with the reason. */
static int open_listener(struct daemon *daemon, enum endpoint_id id, char reason[REASON_MAX])
{
    struct endpoint *endpoint = &daemon->endpoints[id];
    CHECK(!endpoint->is_open);
    int passed = rows[id].passed >= 0 ? service_listen_fd((enum service_socket)rows[id].passed) : SERVICE_FD_NONE;
    endpoint->is_own = passed == SERVICE_FD_NONE && endpoint->options.path != NULL;
    if (passed >= 0) return listener_adopt(&endpoint->listener, passed, reason, REASON_MAX);
    if (passed == SERVICE_FD_CLOSED) {
        snprintf(
            reason, REASON_MAX,
            "socket activation: LISTEN_FDS promises a socket%s that is not open; let the service manager pass it, or "
            "unset LISTEN_FDS",
            id == ENDPOINT_CONTROL ? " named control" : "");
        return LISTENER_FAULT;
    }
    if (passed == SERVICE_FD_SEVERAL) {
        snprintf(reason, REASON_MAX, "the service manager passed several sockets %s; let it pass one",
                 id == ENDPOINT_CONTROL ? "named control" : "that are not named control");
        return LISTENER_FAULT;
    }
    if (endpoint->is_own && is_taken(daemon, id, reason)) return LISTENER_FAULT;
    if (endpoint->is_own) return listener_open(&endpoint->listener, &endpoint->options, reason, REASON_MAX);

    struct listen_address address;
    const char *text = daemon->started->admin_listen;
    if (!listen_address_parse(&address, text)) return LISTENER_FAULT; /* the configuration has refused it */
    endpoint->listener.fd = open_ip(&address, text, reason);
    if (endpoint->listener.fd < 0) return LISTENER_FAULT;
    listen_address_of(endpoint->listener.fd, endpoint->listener.path);
    return 0;
}

/* 0, or -1 with the reason logged. What may be missing counts as 0, and its reason is logged once. */
static int open_endpoint(struct daemon *daemon, enum endpoint_id id)
{
    struct endpoint *endpoint = &daemon->endpoints[id];
    char reason[REASON_MAX];
    int status = open_listener(daemon, id, reason);
    endpoint->is_open = status == 0;
    if (status == 0) return 0;
    bool is_fatal = id == ENDPOINT_DATA || (status == LISTENER_FAULT && daemon->phase == DAEMON_STARTING);
    if (endpoint->is_required && is_fatal) {
        log_error("%s", reason);
        return -1;
    }

    bool is_activated = service_listen_fd(SERVICE_DATA) >= 0;
    if (!endpoint->is_reported)
        log_warning("%s: %s; checks are served, and it is tried again each second%s", rows[id].setting, reason,
                    id == ENDPOINT_CONTROL && is_activated ? ". Under systemd, ratelimitd-control.socket makes it"
                                                           : "");
    endpoint->is_reported = true;
    return 0;
}

void endpoints_init(struct daemon *daemon)
{
    for (int id = 0; id < N_ENDPOINTS; id++)
        daemon->endpoints[id] = (struct endpoint){.listener = {.fd = -1, .lock_fd = -1}};
}

int endpoints_open(struct daemon *daemon)
{
    for (int id = 0; id < N_ENDPOINTS; id++) {
        struct endpoint *endpoint = &daemon->endpoints[id];
        endpoint->options = rows[id].options(daemon, endpoint);
        if (id == ENDPOINT_HTTP || !endpoint->is_used || open_endpoint(daemon, (enum endpoint_id)id) == 0) continue;
        endpoints_close(daemon);
        return -1;
    }
    return 0;
}

/* ---- listening ---- */

int endpoints_listen(struct daemon *daemon, enum endpoint_id id)
{
    struct endpoint *endpoint = &daemon->endpoints[id];
    const struct row *row = &rows[id];
    if (endpoint->is_used && !endpoint->is_open && open_endpoint(daemon, id) != 0) return -1;
    if (!endpoint->is_open) return 0;

    int fd = endpoint->listener.fd;
    int error = id == ENDPOINT_HTTP ? admin_listen(daemon->admin, fd) : server_listen(daemon->server, row->server, fd);
    endpoint->listener.fd = -1;
    if (error < 0) {
        log_error("%s: %s: cannot accept connections: %s", row->setting, endpoint->listener.path, uv_strerror(error));
        return id == ENDPOINT_DATA ? -1 : 0;
    }
    if (id == ENDPOINT_HTTP)
        log_info("admin.listen: HTTP on %s%s", endpoint->is_own ? "unix:" : "", endpoint->listener.path);
    else if (endpoint->is_reported)
        log_info("%s: %s is open", row->setting, endpoint->listener.path);
    endpoint->is_reported = false;
    return 0;
}

/* ---- the watch ---- */

/* True: its file was deleted and has been made again. */
static bool watch_file(struct endpoint *endpoint)
{
    static const char *const news[] = {
        [FILE_FINE] = "the socket is as it should be again",
        [FILE_DELETED] = "the socket's file was deleted; making it again",
        [FILE_REPLACED] =
            "the socket's file was replaced by somebody else's and is left to them; nobody new reaches this daemon",
        [FILE_CHMODDED] = "the socket's permissions were changed; they stay so",
    };
    const struct listener *listener = &endpoint->listener;
    const char *path = endpoint->options.path;

    struct stat st;
    enum endpoint_file now = FILE_FINE;
    if (lstat(path, &st) < 0)
        now = FILE_DELETED;
    else if (listener->lock_fd < 0 || st.st_dev != listener->dev || st.st_ino != listener->ino)
        now = FILE_REPLACED;
    else if ((st.st_mode & 0777) != endpoint->options.mode)
        now = FILE_CHMODDED;

    bool is_news = now != endpoint->seen;
    endpoint->seen = now;
    if (is_news) log_line(now == FILE_FINE ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "%s: %s", path, news[now]);
    if (now != FILE_DELETED) return false;

    char reason[REASON_MAX];
    listener_close(&endpoint->listener); /* its lock; the descriptor is handed on */
    if (listener_open(&endpoint->listener, &endpoint->options, reason, sizeof reason) == 0) return true;
    if (is_news) log_error("%s", reason);
    return false;
}

int endpoints_look(struct daemon *daemon)
{
    for (int id = 0; id < N_ENDPOINTS; id++) {
        struct endpoint *endpoint = &daemon->endpoints[id];
        bool must_listen = endpoint->is_used && !endpoint->is_open;
        if (endpoint->is_open && endpoint->is_own) must_listen = watch_file(endpoint);
        if (must_listen && endpoints_listen(daemon, (enum endpoint_id)id) != 0 && id == ENDPOINT_DATA) return -1;
    }
    return 0;
}

/* ---- the end ---- */

void endpoints_drain(struct daemon *daemon)
{
    for (int id = 0; id < N_ENDPOINTS; id++) {
        struct endpoint *endpoint = &daemon->endpoints[id];
        if (rows[id].outlives_drain)
            listener_leave(&endpoint->listener);
        else
            listener_close(&endpoint->listener);
    }
}

void endpoints_close(struct daemon *daemon)
{
    for (int id = 0; id < N_ENDPOINTS; id++) listener_close(&daemon->endpoints[id].listener);
}
