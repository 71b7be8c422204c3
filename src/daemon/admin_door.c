/* admin_door.c: shows admin/ the state of the engine, the store and the server, for endpoints.c. */
#include "daemon/admin_door.h"

#include <string.h>

#include "admin/metrics.h"
#include "daemon/daemon.h"
#include "daemon/status.h"

/* ---- what it is shown ---- */

static void look(void *arg, struct admin_view *view)
{
    struct daemon *daemon = arg;
    struct redis_store *redis = daemon->redis;
    static char why[STATUS_WHY_MAX]; /* until the next view */
    engine_update_counters(daemon->engine);
    *view = (struct admin_view){
        .phase = daemon->phase == DAEMON_STARTING ? ADMIN_STARTING
                 : daemon->phase == DAEMON_READY  ? ADMIN_READY
                                                  : ADMIN_DRAINING,
        .store = redis != NULL ? "redis" : "memory",
        .is_store_up = true,
        .store_status = "ready",
        .started_us = daemon->started_us,
        .configured_us = daemon->config->read_us,
        .reload_failed = daemon->reload.was_refused,
        .policies = engine_policies(daemon->engine),
        .n_named = (uint32_t)daemon->config->admin_metrics_policies,
    };
    if (redis == NULL) return;
    view->has_redis_clock = redis_store_clock(redis, &view->redis_ahead_us);
    view->is_store_up = status_redis(daemon, why, &view->store_since_us);
    if (why[0] != '\0') view->store_status = why;
}

int admin_door_metrics(void *arg, uint64_t *from, struct buffer *text)
{
    const struct daemon *daemon = arg;
    struct admin_view view;
    look(arg, &view);
    return metrics_part(&view, &daemon->clock, RL_HIREDIS_VERSION, from, text);
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

/* ---- from start to stop ---- */

int admin_door_start(struct daemon *daemon)
{
    if (daemon->started->admin_listen == NULL) return 0;
    struct admin_options options = options_of(daemon, daemon->config);
    daemon->admin = admin_new(&daemon->loop, &daemon->clock, &options);
    return daemon->admin != NULL ? endpoints_listen(daemon, ENDPOINT_HTTP) : -1;
}

void admin_door_set_options(struct daemon *daemon, const struct config *config)
{
    if (daemon->admin == NULL) return;
    struct admin_options options = options_of(daemon, config);
    admin_set_options(daemon->admin, &options);
}

void admin_door_close(struct daemon *daemon, void (*on_closed)(void *arg))
{
    struct admin *admin = daemon->admin;
    daemon->admin = NULL;
    if (admin != NULL)
        admin_close(admin, on_closed, daemon);
    else
        on_closed(daemon);
}
