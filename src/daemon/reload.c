/* reload.c: the thread that reads, and what the loop takes over from it, one module after another. */
#include "daemon/reload.h"

#include <inttypes.h>
#include <malloc.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/log_key.h"
#include "base/units.h"
#include "config/config_diff.h"
#include "config/config_mark.h"
#include "config/cut.h"
#include "daemon/admin_door.h"
#include "daemon/daemon.h"
#include "daemon/options.h"
#include "daemon/process.h"
#include "daemon/reload_answer.h"
#include "daemon/service.h"
#include "daemon/status.h"

COUNTERS_DEFINE(reload, RELOAD_COUNTERS);

enum {
    ASKED_AT_ONCE = 2000,
    RELOAD_FAULTS_SHOWN = 20,
    RELOAD_CHANGES_SHOWN = 20,
    RESTLESS_LOOKS = 5, /* that find another change each, until the log says so */
    TRIM_BYTES = 16 << 20,
    INLINE_FREED_AT_ONCE = 1000
};

/* ---- in the thread ---- */

static void drop_next(struct reload *reload)
{
    config_free(reload->next);
    reload->next = NULL;
}

/* The files are being written again since the last look: what was read of them may be a half. */
static bool has_changed_again(struct reload *reload, const char *path, const struct config *before)
{
    uint64_t seen = config_mark(path, reload->next != NULL ? reload->next : before, true);
    reload->has_changed = seen != reload->seen;
    if (!reload->has_changed) return false;
    reload->seen = seen;
    drop_next(reload);
    return true;
}

/* A look finds a change to read if the one before has found the same: in the files that the new configuration names,
 * too. */
static void look(struct reload *reload, const char *path, const struct config *in_force)
{
    reload->has_changed = false;
    if (config_mark(path, in_force, false) == reload->mark) {
        reload->seen = reload->n_restless = 0;
        return;
    }

    struct faults faults;
    faults_init(&faults);
    struct config *next = config_load(path, CONFIG_RELOAD, &faults);
    uint64_t seen = config_mark(path, next != NULL ? next : in_force, true);
    config_free(next);
    faults_fini(&faults);

    reload->has_changed = seen == reload->seen;
    reload->n_restless = reload->has_changed ? 0 : reload->n_restless + 1;
    reload->seen = seen;
}

static void read_configuration(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    const struct config *before = daemon->config;
    const char *path = daemon->arguments.config_path;
    uint64_t mark = config_mark(path, before, false); /* what changes while the file is read is another change */

    reload->next = config_load(path, CONFIG_RELOAD, &reload->faults);
    if (reload->task == RELOAD_WATCHED && has_changed_again(reload, path, before)) return;
    if (reload->next != NULL && config_is_cut(before, reload->next, &reload->faults)) drop_next(reload);
    if (reload->next != NULL) {
        config_diff(&reload->changes, before, daemon->started, reload->next);
        if (config_hold_store(reload->next, before, daemon->started) < 0) {
            faults_no_memory(&reload->faults, 0, NULL, "out of memory; give the daemon more");
            drop_next(reload);
        }
    }
    if (reload->next != NULL) reload->next->hash = config_hash(reload->next, daemon->started);
    if (reload->task == RELOAD_DRY_RUN) return;

    bool same_files = reload->next == NULL || config_same_files(before, reload->next);
    reload->mark = same_files ? mark : config_mark(path, reload->next, false);
    if (reload->next == NULL) return;
    policy_set_share_counts(reload->next->policies, before->policies);
    policy_set_name(reload->next->policies, (size_t)reload->next->admin_metrics_policies);
}

static void work_in_thread(uv_work_t *work)
{
    struct daemon *daemon = work->data;
    struct reload *reload = &daemon->reload;
    const char *path = daemon->arguments.config_path;
    switch (reload->task) {
    case RELOAD_FILE:
    case RELOAD_WATCHED:
    case RELOAD_DRY_RUN:
        read_configuration(daemon);
        reload_answer_pack(&reload->answer, reload, path);
        break;
    case RELOAD_SHOW: reload_answer_pack_config(&reload->answer, daemon->config, daemon->started, path); break;
    case RELOAD_LOOK: look(reload, path, daemon->config); break;
    case N_RELOAD_TASKS: break;
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
    changes_fini(&reload->changes);
    buffer_fini(&reload->answer);
    drop_next(reload);
    free_unreferenced(reload);
    malloc_trim(0); /* gives the system back what was freed */
}

/* ---- on the loop ---- */

static void start_phase(struct daemon *daemon, enum reload_phase phase, uv_work_cb work, uv_after_work_cb after)
{
    struct reload *reload = &daemon->reload;
    CHECK(reload->phase == RELOAD_IDLE);
    reload->phase = phase;
    reload->work.data = daemon;
    CHECK(uv_queue_work(&daemon->loop, &reload->work, work, after) == 0);
}

static void warn_of_restart(const struct changes *changes, const struct change *change)
{
    const char *path = change->values[0].name;
    char text[CHANGE_TEXT_MAX];
    bool renames = strcmp(path, "store.redis.buckets") == 0 || strcmp(path, "store.redis.key_prefix") == 0;
    if (change->held_by != NULL)
        log_warning("reload: %s", changes_text(changes, change, text));
    else
        log_warning("reload: %s has changed and needs a restart%s; until then it stays as it was", path,
                    renames ? ", which starts all counters in Redis afresh" : "");
}

/* Hand every part the values that may change while it runs. */
static void apply(struct daemon *daemon, struct config *next)
{
    /* Keep the policies in force until their last check has ended. */
    list_push_back(&daemon->reload.retired, &daemon->config->policies->link);
    daemon->config->policies = NULL;
    if (daemon->config != daemon->started) config_free(daemon->config);
    daemon->config = next;
    log_debug("reload: %zu policies in force, %zu will be", engine_policies(daemon->engine)->n, next->policies->n);

    log_set_level((enum log_level)next->log_level);
    log_keys_set((enum log_keys)next->keys_in_log, (enum log_keys)next->keys_in_views, next->keys_secret);
    process_raise_open_files(options_open_files(next));

    struct server_options for_server = options_server(next, (enum store_type)daemon->started->store_type,
                                                      &daemon->arguments, &daemon->inline_policies);
    struct engine_options for_engine = options_engine(next, &daemon->arguments);
    for_server.late = (struct late_source){reload_ask, daemon};
    server_set_options(daemon->server, &for_server);
    engine_set_options(daemon->engine, &for_engine);
    admin_door_set_options(daemon, next);
    (void)inline_policies_configure(&daemon->inline_policies, (size_t)next->inline_max_policies,
                                    config_policy_defaults(next));

    if (daemon->memory != NULL) memory_store_set_max_keys(daemon->memory, (uint64_t)next->store_memory_max_keys);
    if (daemon->redis != NULL) {
        struct redis_options for_redis = options_redis(next, daemon->random_seed);
        redis_store_set_options(daemon->redis, &for_redis);
        redis_check_again(&daemon->redis_check);
        redis_watch_trial_again(&daemon->redis_watch);
    }
    config_forget_secrets(next);
    engine_set_policies(daemon->engine, policy_set_ref(next->policies));
    policy_set_move_counts(next->policies);
}

static void start_next(struct daemon *daemon);

static void on_freed(uv_work_t *work, int status)
{
    struct daemon *daemon = work->data;
    struct reload *reload = &daemon->reload;
    (void)status;
    reload->phase = RELOAD_IDLE;
    reload->peak_bytes = mem_in_use();

    start_next(daemon);
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

/* What needs a restart is a warning, and comes first. */
static void log_changes(const struct changes *changes)
{
    char text[CHANGE_TEXT_MAX];
    size_t n_shown = 0, n_quiet = changes->n_all - changes->n_restart;
    for (size_t i = 0; i < changes->n; i++)
        if (changes->items[i].needs_restart) warn_of_restart(changes, &changes->items[i]);
    for (size_t i = 0; i < changes->n && n_shown < RELOAD_CHANGES_SHOWN; i++) {
        if (changes->items[i].needs_restart) continue;
        log_info("reload: %s", changes_text(changes, &changes->items[i], text));
        n_shown++;
    }
    if (n_quiet > n_shown) log_info("reload: and %zu more changes", n_quiet - n_shown);
    for (size_t i = 0; i < changes->n_copies; i++)
        log_info("reload: %s", changes_copy_text(changes, &changes->copies[i], text));
}

static void take_effect(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    const char *file = daemon->arguments.config_path;
    struct config *next = reload->next;
    CHECK(reload->phase == RELOAD_IDLE);

    const struct faults *faults = &daemon->reload.faults;
    char line[1024];
    log_debug("reload: the file was read, with %zu mistakes", faults->n_errors);
    for (size_t i = 0; i < faults->n && i < RELOAD_FAULTS_SHOWN; i++)
        log_line(faults->items[i].code == FAULT_WARNING ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR, "%s",
                 faults_line(line, sizeof line, file, &faults->items[i]));
    if (faults->n > RELOAD_FAULTS_SHOWN)
        log_error("%s: and %zu more; ratelimitd --check-config -c %s shows them all", file,
                  faults->n - RELOAD_FAULTS_SHOWN, file);

    reload->next = NULL;
    reload->was_refused = next == NULL;
    if (next == NULL) {
        reload_counters.reload_failures++;
        log_error("reload: %s is not correct; the configuration stays as it was", file);
        return;
    }

    log_changes(&reload->changes);
    apply(daemon, next);
    reload_counters.reloads++;
    size_t n = next->policies->n;
    log_info("reload: %s read again, %zu %s", file, n, n == 1 ? "policy" : "policies");
}

static uint64_t want(struct daemon *daemon, enum reload_task task);

static void on_looked(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    const char *path = daemon->arguments.config_path;
    if (reload->n_restless == RESTLESS_LOOKS)
        log_warning("reload: each of the last %d looks found another change in %s, or in a file that it names; it is "
                    "read once two looks find the same",
                    RESTLESS_LOOKS, path);
    if (!reload->has_changed) {
        start_next(daemon);
        return;
    }
    log_info("reload: %s, or a file that it names, has changed", path);
    service_reloading();
    want(daemon, RELOAD_WATCHED);
}

/* The next task may begin within: all that is asked of the one that has ended is asked before. */
static void on_worked(uv_work_t *work, int status)
{
    struct daemon *daemon = work->data;
    struct reload *reload = &daemon->reload;
    reload->phase = RELOAD_IDLE;
    if (status < 0 || daemon->phase >= DAEMON_DRAINING) return; /* what there is stays for reload_fini() */
    clock_update(&daemon->clock);

    if (reload->task == RELOAD_LOOK) {
        on_looked(daemon);
        return;
    }

    bool takes_effect = reload->task <= RELOAD_WATCHED;
    if (reload->task == RELOAD_WATCHED && reload->has_changed)
        log_info("reload: %s, or a file that it names, is being written again; it is read once that has ended",
                 daemon->arguments.config_path);
    else if (takes_effect)
        take_effect(daemon);
    server_answer_late(daemon->server, reload->ticket, &reload->answer);
    bool is_last = reload->wanted[RELOAD_FILE] == 0 && reload->wanted[RELOAD_WATCHED] == 0;
    if (takes_effect && is_last) status_report(daemon, service_ready);
    start_freeing(daemon);
}

static void start_next(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    size_t task = 0;
    while (task < N_RELOAD_TASKS && reload->wanted[task] == 0) task++;
    if (task == N_RELOAD_TASKS || daemon->phase >= DAEMON_DRAINING) return;

    reload->task = (enum reload_task)task;
    reload->ticket = reload->wanted[task];
    reload->wanted[task] = 0;
    if (task <= RELOAD_DRY_RUN) log_debug("reload: reading %s", daemon->arguments.config_path);
    changes_init(&reload->changes, daemon->clock.wall_us, daemon->redis != NULL);
    start_phase(daemon, RELOAD_READING, work_in_thread, on_worked);
}

/* Returns its ticket. */
static uint64_t want(struct daemon *daemon, enum reload_task task)
{
    struct reload *reload = &daemon->reload;
    if (reload->wanted[task] == 0) reload->wanted[task] = ++reload->n_tickets;
    uint64_t ticket = reload->wanted[task];
    if (reload->phase == RELOAD_IDLE)
        start_next(daemon);
    else
        log_debug("reload: another one is under way; this one follows it");
    return ticket;
}

void reload_init(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    CHECK(daemon->config != NULL && daemon->config == daemon->started);
    list_init(&reload->retired);
    list_init(&reload->unreferenced);
    faults_init(&reload->faults);
    buffer_init(&reload->answer, RELOAD_ANSWER_MAX);
    daemon->config->hash = config_hash(daemon->config, daemon->started);
    if (daemon->arguments.config_path != NULL)
        reload->mark = config_mark(daemon->arguments.config_path, daemon->config, false);
}

void reload_file(struct daemon *daemon)
{
    service_reloading();
    want(daemon, RELOAD_FILE);
}

uint64_t reload_ask(void *arg, enum late_kind kind)
{
    struct daemon *daemon = arg;
    if (kind == LATE_CONFIG) return want(daemon, RELOAD_SHOW);
    if (daemon->arguments.config_path == NULL) return 0;
    if (kind == LATE_RELOAD) service_reloading();
    return want(daemon, kind == LATE_RELOAD ? RELOAD_FILE : RELOAD_DRY_RUN);
}

void reload_look(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    inline_policies_free_replaced(&daemon->inline_policies, INLINE_FREED_AT_ONCE);
    policy_set_note_asked(engine_policies(daemon->engine), &reload->asked_cursor, ASKED_AT_ONCE,
                          daemon->clock.mono_us / (60 * SECOND_US));
    if (reload->phase != RELOAD_IDLE || daemon->phase == DAEMON_CLOSING) return;

    uint64_t bytes = mem_in_use();
    if (bytes > reload->peak_bytes) reload->peak_bytes = bytes;
    bool has_work = reload->peak_bytes - bytes > TRIM_BYTES;
    if (has_work)
        log_debug("memory: %" PRIu64 " MiB were in use and %" PRIu64 " are; what is free goes back to the system",
                  reload->peak_bytes >> 20, bytes >> 20);
    LIST_FOREACH (it, &reload->retired)
        if (LIST_ITEM(it, struct policy_set, link)->n_refs == 1) has_work = true;
    if (has_work) {
        start_freeing(daemon);
        return;
    }

    /* Last, for it may want to look each time; in the thread, for a file system may hang. */
    int64_t every_ms = daemon->config->reload_watch_ms, now_us = daemon->clock.mono_us;
    if (every_ms == 0 || daemon->arguments.config_path == NULL || daemon->phase != DAEMON_READY) return;
    if (now_us < reload->look_us) return;
    reload->look_us = now_us + every_ms * 1000;
    want(daemon, RELOAD_LOOK);
}

void reload_fini(struct daemon *daemon)
{
    struct reload *reload = &daemon->reload;
    list_append(&reload->unreferenced, &reload->retired);
    free_unreferenced(reload);
    config_free(reload->next);
    faults_fini(&reload->faults);
    changes_fini(&reload->changes);
    buffer_fini(&reload->answer);
}
