#include "daemon/admin_door.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/listen_address.h"
#include "base/log.h"
#include "daemon/daemon.h"

enum { REASON_MAX = 512, BACKLOG = 64 };

/* ---- what it is shown ---- */

static void look(void *arg, struct admin_view *view)
{
    struct daemon *daemon = arg;
    struct redis_store *redis = daemon->redis;
    engine_update_counters(daemon->engine);
    *view = (struct admin_view){
        .phase = daemon->phase == DAEMON_STARTING ? ADMIN_STARTING
                 : daemon->phase == DAEMON_READY  ? ADMIN_READY
                                                  : ADMIN_DRAINING,
        .store = redis != NULL ? "redis" : "memory",
        .is_store_up = redis == NULL || (redis_store_ready(redis) && redis_store_breaker(redis) == NULL),
        .store_status = redis != NULL ? redis_store_status(redis) : "ready",
        .started_us = daemon->started_us,
        .configured_us = daemon->config->read_us,
        .reload_failed = daemon->reload.was_refused,
        .policies = engine_policies(daemon->engine),
        .n_named = (uint32_t)daemon->config->admin_metrics_policies,
    };
    if (redis != NULL) view->has_redis_clock = redis_store_clock(redis, &view->redis_ahead_us);
    if (redis != NULL && redis_store_ready(redis) && !view->is_store_up)
        view->store_status = redis_store_breaker(redis);
}

static struct admin_options options_of(struct daemon *daemon, const struct config *config)
{
    const char *listen = daemon->started->admin_listen; /* a change needs a restart */
    return (struct admin_options){
        .max_connections = (uint32_t)config->admin_max_connections,
        .timeout_ms = (uint32_t)config->admin_timeout_ms,
        .allow_hosts = config->admin_allow_hosts,
        .is_local = strncmp(listen, "unix:", 5) == 0,
        .hiredis_version = RL_HIREDIS_VERSION,
        .look = look,
        .arg = daemon,
    };
}

/* ---- its socket ---- */

/* A listening descriptor, or -1 with the reason. */
static int open_ip(const struct listen_address *address, char reason[REASON_MAX])
{
    const int on = 1, off = 0;
    int family = address->ip.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off); /* [::] is every address */
        if (bind(fd, (const struct sockaddr *)&address->ip, address->len) == 0 && listen(fd, BACKLOG) == 0) return fd;
    }
    snprintf(reason, REASON_MAX, "%s", strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static int open_unix(struct daemon *daemon, const char *path, char reason[REASON_MAX])
{
    const struct config *config = daemon->started;
    struct listener_options options = {
        .path = path, .mode = (unsigned)config->listen_mode, .group = config->listen_group};
    if (listener_open(&daemon->admin_door.listener, &options, reason, REASON_MAX) < 0) return -1;
    int fd = daemon->admin_door.listener.fd;
    daemon->admin_door.listener.fd = -1; /* the admin's */
    return fd;
}

static void open_door(struct daemon *daemon)
{
    struct admin_door *door = &daemon->admin_door;
    const char *text = daemon->started->admin_listen;
    char reason[REASON_MAX], bound[LISTEN_ADDRESS_TEXT_MAX];
    struct listen_address address;
    if (!listen_address_parse(&address, text)) return; /* the configuration has refused it */

    bool is_unix = address.unix_path != NULL;
    int fd = is_unix ? open_unix(daemon, address.unix_path, reason) : open_ip(&address, reason);
    if (fd >= 0) {
        if (!is_unix) text = listen_address_of(fd, bound);
        int error = admin_listen(door->admin, fd);
        door->is_open = true;
        if (error == 0)
            log_info("admin.listen: HTTP on %s", text);
        else
            log_error("admin.listen: %s: cannot accept connections: %s", text, uv_strerror(error));
        return;
    }
    if (!door->is_reported)
        log_warning("admin.listen: %s: %s; checks are served, and it is tried again each second", text, reason);
    door->is_reported = true;
}

/* ---- from start to stop ---- */

int admin_door_start(struct daemon *daemon)
{
    struct admin_door *door = &daemon->admin_door;
    *door = (struct admin_door){.listener = {.fd = -1, .lock_fd = -1}};
    if (daemon->started->admin_listen == NULL) return 0;

    struct admin_options options = options_of(daemon, daemon->config);
    door->admin = admin_new(&daemon->loop, &daemon->clock, &options);
    if (door->admin == NULL) return -1;
    open_door(daemon);
    return 0;
}

void admin_door_look(struct daemon *daemon)
{
    const struct admin_door *door = &daemon->admin_door;
    if (door->admin != NULL && !door->is_open && daemon->phase == DAEMON_READY) open_door(daemon);
}

void admin_door_set_options(struct daemon *daemon, const struct config *config)
{
    if (daemon->admin_door.admin == NULL) return;
    struct admin_options options = options_of(daemon, config);
    admin_set_options(daemon->admin_door.admin, &options);
}

void admin_door_close(struct daemon *daemon, void (*on_closed)(void *arg))
{
    struct admin_door *door = &daemon->admin_door;
    struct admin *admin = door->admin;
    listener_close(&door->listener);
    door->admin = NULL;
    if (admin != NULL)
        admin_close(admin, on_closed, daemon);
    else
        on_closed(daemon);
}
