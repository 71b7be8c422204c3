#include "daemon/reload.h"

#include <inttypes.h>
#include <malloc.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/log_key.h"
#include "daemon/daemon.h"
#include "daemon/options.h"
#include "daemon/process.h"
#include "daemon/service.h"
#include "daemon/status.h"

COUNTERS_DEFINE(reload, RELOAD_COUNTERS);

enum { RELOAD_FAULTS_SHOWN = 20, TRIM_BYTES = 16 << 20, INLINE_FREED_AT_ONCE = 1000 };

/* ---- in the thread ---- */

static void read_in_thread(uv_work_t *work)
{
    struct daemon *daemon = work->data;
    struct reload *reload = &daemon->reload;
    const struct config *before = daemon->config;
    reload->next = config_load(daemon->arguments.config_path, CONFIG_RELOAD, &reload->faults);
    if (reload->next != NULL && !reload->next->has_policies && before->has_policies) {
        faults_add(
            &reload->faults, 0, "policies",
            "there are none in this file, and %zu are in force; write the whole file and reload again. To remove the "
            "last policy, restart",
            before->policies->n);
        config_free(reload->next);
        reload->next = NULL;
    }
    if (reload->next != NULL) {
        policy_set_share_counts(reload->next->policies, before->policies);
        policy_set_name(reload->next->policies, (size_t)reload->next->admin_metrics_policies);
    }
}

static void free_unreferenced(struct reload *reload)
{
    for (struct list *it; (it = list_pop_front(&reload->unreferenced)) != NULL;)
        policy_set_unref(LIST_ITEM(it, struct policy_set, link));
}

static void free_in_thread(uv_work_t *work)
{
    struct daemon *daemon = work->data;
    struct reload *reload = &daemon->reload;
    faults_fini(&reload->faults);
    free_unreferenced(reload);
    malloc_trim(0); /* gives the system back what was freed */
}

/* ---- on the loop ---- */

static void start_phase(struct daemon *daemon, enum reload_phase phase, uv_work_cb work, uv_after_work_cb after)
{
    struct reload *reload = &daemon->reload;
    reload->phase = phase;
    reload->work.data = daemon;
    CHECK(uv_queue_work(&daemon->loop, &reload->work, work, after) == 0);
}

static void warn_of_restart(const char *path)
{
    bool renames = strcmp(path, "store.redis.buckets") == 0;
    log_warning("reload: %s has changed and needs a restart%s; until then it stays as it was", path,
                renames ? ", which starts all counters in Redis afresh" : "");
}

/* Hand every part the values that may change while it runs. */
static void apply(struct daemon *daemon, struct config *next)
{
    for (const struct setting *setting = daemon_settings; setting < daemon_settings + N_SETTINGS; setting++)
        if (!(setting->uses & USE_RELOAD) && !setting_equal(setting, daemon->started, next))
            warn_of_restart(setting->name);
    if (next->store_memory_max_keys > daemon->started->store_memory_max_keys)
        warn_of_restart("store.memory.max_keys beyond what it was at start");

    /* Keep the policies in force until their last check has ended. */
    list_push_back(&daemon->reload.retired, &daemon->config->policies->link);
    daemon->config->policies = NULL;
    if (daemon->config != daemon->started) config_free(daemon->config);
    daemon->config = next;
    log_debug("reload: %zu policies in force, %zu will be", engine_policies(daemon->engine)->n, next->policies->n);

    log_set_level((enum log_level)next->log_level);
    log_keys_set((enum log_keys)next->keys_in_log, next->keys_secret);
    process_raise_open_files(options_open_files(next));

    struct server_options for_server = options_server(next, (enum store_type)daemon->started->store_type,
                                                      &daemon->arguments, &daemon->inline_policies);
    struct engine_options for_engine = options_engine(next);
    server_set_options(daemon->server, &for_server);
    engine_set_options(daemon->engine, &for_engine);
    admin_door_set_options(daemon, next);
    (void)inline_policies_configure(&daemon->inline_policies, (size_t)next->inline_max_policies,
                                    config_policy_defaults(next));

    if (daemon->memory != NULL) memory_store_set_max_keys(daemon->memory, (uint64_t)next->store_memory_max_keys);
    if (daemon->redis != NULL && next->store_type == STORE_TYPE_REDIS) {
        struct redis_options for_redis = options_redis(next, daemon->random_seed);
        redis_store_set_options(daemon->redis, &for_redis);
        redis_check_again(&daemon->redis_check);
    }
    config_forget_secrets(next);
    engine_set_policies(daemon->engine, policy_set_ref(next->policies));
    policy_set_move_counts(next->policies);
}

static void start_reading(struct daemon *daemon);

static void on_freed(uv_work_t *work, int status)
{
    struct daemon *daemon = work->data;
    struct reload *reload = &daemon->reload;
    (void)status;
    reload->phase = RELOAD_IDLE;
    reload->peak_bytes = mem_in_use();

    if (!reload->again || daemon->phase >= DAEMON_DRAINING) return;
    reload->again = false;
    start_reading(daemon);
}

static void start_freeing(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    size_t n_free = 0, n_used = 0;
    LIST_FOREACH (it, &reload->retired) {
        if (LIST_ITEM(it, struct policy_set, link)->n_refs > 1) {
            n_used++;
            continue;
        }
        list_remove(it);
        list_push_back(&reload->unreferenced, it);
        n_free++;
    }

    if (n_free + n_used > 0)
        log_debug("reload: of the replaced sets of policies %zu go now, and checks still use %zu", n_free, n_used);
    start_phase(daemon, RELOAD_FREEING, free_in_thread, on_freed);
}

static void on_read(uv_work_t *work, int status)
{
    struct daemon *daemon = work->data;
    struct reload *reload = &daemon->reload;
    const char *file = daemon->arguments.config_path;
    char line[1024];
    reload->phase = RELOAD_IDLE;
    if (status < 0 || daemon->phase >= DAEMON_DRAINING) return; /* what there is stays for reload_fini() */
    clock_update(&daemon->clock);

    const struct faults *faults = &reload->faults;
    log_debug("reload: the file was read, with %zu mistakes", faults->n_errors);
    for (size_t i = 0; i < faults->n && i < RELOAD_FAULTS_SHOWN; i++)
        log_line(faults->items[i].code == FAULT_WARNING ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR, "%s",
                 faults_line(line, sizeof line, file, &faults->items[i]));
    if (faults->n > RELOAD_FAULTS_SHOWN)
        log_error("%s: and %zu more; ratelimitd --check-config -c %s shows them all", file,
                  faults->n - RELOAD_FAULTS_SHOWN, file);

    struct config *next = reload->next;
    reload->next = NULL;
    if (next != NULL) {
        apply(daemon, next);
        reload_counters.reloads++;
        reload->was_refused = false;
        log_info("reload: %s read again, %zu policies", file, next->policies->n);
    } else {
        reload_counters.reload_failures++;
        reload->was_refused = true;
        log_error("reload: %s is not correct; the configuration stays as it was", file);
    }

    if (!reload->again) status_report(daemon, service_ready);
    start_freeing(daemon);
}

static void start_reading(struct daemon *daemon)
{
    log_debug("reload: reading %s", daemon->arguments.config_path);
    start_phase(daemon, RELOAD_READING, read_in_thread, on_read);
}

void reload_init(struct daemon *daemon)
{
    list_init(&daemon->reload.retired);
    list_init(&daemon->reload.unreferenced);
    faults_init(&daemon->reload.faults);
}

void reload_file(struct daemon *daemon)
{
    if (daemon->reload.phase == RELOAD_IDLE) {
        start_reading(daemon);
        return;
    }
    daemon->reload.again = true;
    log_debug("reload: one is under way; the file is read again after it");
}

void reload_look(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    inline_policies_free_replaced(&daemon->inline_policies, INLINE_FREED_AT_ONCE);
    if (reload->phase != RELOAD_IDLE || daemon->phase == DAEMON_CLOSING) return;

    uint64_t bytes = mem_in_use();
    if (bytes > reload->peak_bytes) reload->peak_bytes = bytes;
    bool has_work = reload->peak_bytes - bytes > TRIM_BYTES;
    if (has_work)
        log_debug("memory: %" PRIu64 " MiB were in use and %" PRIu64 " are; what is free goes back to the system",
                  reload->peak_bytes >> 20, bytes >> 20);
    LIST_FOREACH (it, &reload->retired)
        if (LIST_ITEM(it, struct policy_set, link)->n_refs == 1) has_work = true;
    if (has_work) start_freeing(daemon);
}

void reload_fini(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    list_append(&reload->unreferenced, &reload->retired);
    free_unreferenced(reload);
    config_free(reload->next);
    faults_fini(&reload->faults);
}
