#include "daemon/reload.h"

#include "base/counters.h"
#include "base/log.h"
#include "daemon/options.h"
#include "daemon/process.h"

enum { RELOAD_FAULTS_SHOWN = 20 };

static void log_faults(const char *file, const struct faults *faults)
{
    char line[1024];
    for (size_t i = 0; i < faults->n && i < RELOAD_FAULTS_SHOWN; i++)
        log_line(faults->items[i].is_warning ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR, "%s",
                 faults_line(line, sizeof line, file, &faults->items[i]));
    if (faults->n > RELOAD_FAULTS_SHOWN)
        log_error("%s: and %zu more; ratelimitd --check-config -c %s shows them all", file,
                  faults->n - RELOAD_FAULTS_SHOWN, file);
}

static void on_restart_needed(const char *path, void *arg)
{
    (void)arg;
    log_warning("reload: %s has changed and needs a restart; until then it stays as it was", path);
}

/* Hand every part the values that may change while it runs. */
static void apply(struct daemon *daemon, struct config *next)
{
    config_each_restart(daemon->started, next, on_restart_needed, NULL);
    if (next->store_memory_max_keys > daemon->started->store_memory_max_keys)
        on_restart_needed("store.memory.max_keys beyond what it was at start", NULL);
    if (daemon->config != daemon->started)
        config_free(daemon->config);
    else
        config_strip(daemon->started);
    daemon->config = next;
    log_set_level((enum log_level)next->log_level);
    process_raise_open_files(next->caps_max_connections);
    struct server_options for_server = options_server(next, (enum store_type)daemon->started->store_type,
                                                      &daemon->arguments, &daemon->inline_policies);
    struct engine_options for_engine = options_engine(next);
    server_set_options(daemon->server, &for_server);
    engine_set_options(daemon->engine, &for_engine);
    inline_policies_configure(&daemon->inline_policies, next);
    if (daemon->memory != NULL) memory_store_set_max_keys(daemon->memory, (uint64_t)next->store_memory_max_keys);
    if (daemon->redis != NULL && next->store_type == STORE_TYPE_REDIS) {
        struct redis_options for_redis = options_redis(next, daemon->random_seed);
        redis_store_set_options(daemon->redis, &for_redis);
        config_forget_password(next);
    }
    engine_set_policies(daemon->engine, policy_set_ref(next->policies));
}

void reload_file(struct daemon *daemon)
{
    const char *file = daemon->arguments.config_path;
    struct faults faults;
    faults_init(&faults);
    struct config *next = config_load(file, false, &faults);
    log_faults(file, &faults);
    faults_fini(&faults);
    if (next == NULL) {
        counters.reload_failures++;
        log_error("reload: %s is not correct; the configuration stays as it was", file);
        return;
    }
    apply(daemon, next);
    process_trim();
    counters.reloads++;
    log_info("reload: %s read again, %zu policies", file, next->policies->n);
}
