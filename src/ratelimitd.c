/*
 * ratelimitd.c: the daemon's wiring: configuration, start, the end of each tick, signals.
 *
 *   arguments ─▶ configuration ─▶ socket ─▶ store ─▶ engine ─▶ server ─▶ READY
 *
 *   one tick    uv polls: bytes in (server ─▶ engine ─▶ store), replies of the store, signals
 *               uv_check: engine_expire ─ engine_flush ─ server_tick_end ─ arm the deadline timer
 *               timers, close callbacks, sessions with more to take
 *               uv_prepare: the same, if one of those ran: each reads the clock first
 *
 * Everything lives in one `struct daemon` on main's stack; daemon/stop.h says how it ends. Exit status: 0 clean
 * stop, 1 failure while running, 2 usage, 3 configuration, 4 the socket cannot be bound.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "admin/admin_counters.h"
#include "base/assert.h"
#include "base/latency.h"
#include "base/log.h"
#include "base/log_key.h"
#include "daemon/admin_door.h"
#include "daemon/daemon.h"
#include "daemon/options.h"
#include "daemon/process.h"
#include "daemon/reload.h"
#include "daemon/service.h"
#include "daemon/status.h"
#include "daemon/stop.h"
#include "engine/engine_counters.h"
#include "engine/failure.h"
#include "redis/counters.h"
#include "server/methods.h"
#include "server/server_counters.h"
#include "server/session_output.h"
#include "store/memory_counters.h"

enum {
    FIRST_ATTEMPT_MS = 200, /* how long READY waits for the first connection to Redis */
    SECOND_MS = 1000,       /* between looks at the socket's file and at Redis */
};

/* ---- Configuration ---- */

/* -1 to go on, else the exit status. */
static int configure(struct daemon *daemon)
{
    const struct arguments *arguments = &daemon->arguments;
    const char *file = arguments->config_path;
    enum config_use use = arguments->check_config || arguments->print_config ? CONFIG_DRY_RUN
                          : arguments->test_limits                           ? CONFIG_TEST
                                                                             : CONFIG_START;
    char line[2048];
    struct faults faults;

    faults_init(&faults);
    struct config *config = file != NULL ? config_load(file, use, &faults) : config_parse("", 0, use, &faults);
    daemon->started = daemon->config = config;
    for (size_t i = 0; i < faults.n; i++)
        fprintf(stderr, "%s\n", faults_line(line, sizeof line, file != NULL ? file : "ratelimitd", &faults.items[i]));
    faults_fini(&faults);
    if (config == NULL) return file != NULL ? EXIT_CONFIG : EXIT_RUNNING;

    if (arguments->test_clock && config->store_type == STORE_TYPE_REDIS) {
        fprintf(stderr, "ratelimitd: --test-clock is for the memory store; Redis has a clock of its own\n");
        return EXIT_USAGE;
    }
    if (arguments->print_config) { /* as it would run: -s beats the file */
        char *configured = config->listen_socket;
        if (arguments->socket_path != NULL) config->listen_socket = (char *)arguments->socket_path;
        config_print(stdout, config);
        config->listen_socket = configured;
    } else if (arguments->check_config) {
        puts("the configuration is correct");
    }
    return use == CONFIG_DRY_RUN ? EXIT_CLEAN : -1;
}

/* ---- The tick: one iteration of the loop ---- */

static void on_deadline(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    clock_update(&daemon->clock);
    daemon->armed_us = INT64_MAX; /* the end of the tick expires what is due and arms the timer again */
}

static bool is_tick_empty(const struct daemon *daemon)
{
    return daemon->clock.n_updates == daemon->n_ended;
}

static void end_tick(struct daemon *daemon)
{
    if (daemon->phase == DAEMON_CLOSING) return;
    engine_expire(daemon->engine);
    engine_flush(daemon->engine);
    server_tick_end(daemon->server);

    /* The timer only moves to an earlier time. If it fires and nothing is due, as most deadlines are gone by then,
     * it is armed for the next one: once a deadline's length, not at every check. libuv counts whole milliseconds from
     * its own, older now: rounded up, and a timer that comes early is armed again. What is due already is more than one
     * tick may answer: the next one follows at once. */
    int64_t at_us = engine_next_deadline(daemon->engine);
    if (at_us < daemon->armed_us) {
        int64_t left_us = at_us - daemon->clock.mono_us;
        daemon->armed_us = at_us;
        uv_timer_start(&daemon->deadline, on_deadline, left_us > 0 ? (uint64_t)(left_us + 999) / 1000 : 0, 0);
    }

    latency_tick_ended(daemon->clock.tick_us, clock_mono_us());
    daemon->clock.tick_us = 0;
    daemon->n_ended = daemon->clock.n_updates;
    daemon->tick_ended = true;
    if (daemon->phase == DAEMON_DRAINED) stop_when_left(daemon);
}

static void on_check(uv_check_t *check)
{
    struct daemon *daemon = check->data;
    if (is_tick_empty(daemon)) clock_update(&daemon->clock);
    end_tick(daemon);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct daemon *daemon = prepare->data;
    if (!is_tick_empty(daemon)) end_tick(daemon);
}

/* ---- Signals ---- */

static void on_reload_signal(uv_signal_t *handle, int number)
{
    (void)number;
    struct daemon *daemon = handle->data;
    if (daemon->phase != DAEMON_READY) return;

    if (daemon->arguments.config_path != NULL && !daemon->arguments.test_limits) {
        reload_file(daemon);
    } else {
        service_reloading();
        log_info("SIGHUP: started without -c, or for tests, so there is no file to read again");
        status_report(daemon, service_ready);
    }
}

static void on_upgrade_signal(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    log_warning("SIGUSR2: upgrade without a restart is not built yet; going on");
}

static const struct {
    int number;
    uv_signal_cb callback;
} signals[] = {
    {SIGTERM, stop_on_signal}, {SIGINT, stop_on_signal}, {SIGHUP, on_reload_signal}, {SIGUSR2, on_upgrade_signal}};

/* Blocks (true) or unblocks (false) the signals that the daemon handles. They are blocked until the handlers are ready,
 * because the daemon may be stopped as soon as the socket exists. */
static void hold_signals(bool hold)
{
    sigset_t handled;
    sigemptyset(&handled);
    for (size_t i = 0; i < N_OF(signals); i++) sigaddset(&handled, signals[i].number);
    pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &handled, NULL);
}

/* ---- Ready, and while running ---- */

static void on_watchdog(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    if (daemon->tick_ended) service_watchdog();
    daemon->tick_ended = false;
}

/* Counts the daemons if a policy's local share depends on their number. The number that was seen counts on while none
 * does: a reload forgets inline policies, and their next check may come in the same outage. */
static void look_at_daemons(struct daemon *daemon)
{
    const char *fault;
    size_t n_live = engine_policies(daemon->engine)->n_live_shares + daemon->inline_policies.n_live_shares;
    redis_store_look(daemon->redis, n_live > 0);
    if (n_live > 0)
        engine_set_n_daemons(daemon->engine, redis_store_n_daemons(daemon->redis, &fault));
    else
        engine_counters.live_daemons = 0;
}

static void look_at_redis(struct daemon *daemon)
{
    look_at_daemons(daemon);
    const struct failure *failure = engine_failure(daemon->engine);
    struct failure_view view = {
        .now_us = daemon->clock.mono_us,
        .last_us = failure->last_us,
        .decided_us = failure->decided_us,
        .n_repeated = failure->n_repeated,
        .proven_us = redis_store_proven_us(daemon->redis),
        .breaker = redis_store_breaker(daemon->redis),
        .n = {[CAUSE_STORE_ERROR] = engine_counters.failure_store_error,
              [CAUSE_BREAKER] = engine_counters.failure_breaker,
              [CAUSE_DEADLINE] = engine_counters.failure_deadline,
              [CAUSE_OVERLOAD] = engine_counters.failure_overload,
              [CAUSE_DOWN] = engine_counters.failure_down},
        .n_answers =
            {
#define ON_FAILURE(ID, word, ...) [ON_FAILURE_##ID] = engine_counters.failure_##word,
#include "policy/on_failure.def"
#undef ON_FAILURE
            },
        .status = redis_store_status(daemon->redis),
        .is_ready = redis_store_ready(daemon->redis),
        .refusal = redis_store_refusal(daemon->redis),
        .policies = engine_policies(daemon->engine),
    };

    if (view.is_ready && view.breaker == NULL)
        daemon->trouble_us = 0;
    else if (daemon->trouble_us == 0)
        daemon->trouble_us = view.now_us;
    redis_check_look(&daemon->redis_check, daemon->redis, view.policies);
    bool is_news = redis_watch_look(&daemon->redis_watch, daemon->redis);
    bool lacked_right = failure_watch_lacks_right(&daemon->failure_watch);
    bool has_changed = failure_watch_look(&daemon->failure_watch, &view);
    lacked_right |= failure_watch_lacks_right(&daemon->failure_watch);
    if (has_changed && lacked_right) redis_check_rights(&daemon->redis_check);
    if (has_changed || is_news) status_report(daemon, service_status);
}

static void on_second(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    log_report_dropped();
    service_retry();
    clock_update(&daemon->clock);
    if (daemon->server != NULL) server_look(daemon->server);
    reload_look(daemon);

    if (daemon->redis != NULL) look_at_redis(daemon);
    if (daemon->phase == DAEMON_READY && endpoints_look(daemon) < 0) stop_now(daemon, EXIT_RUNNING);
}

static void become_ready(void *arg)
{
    struct daemon *daemon = arg;
    if (daemon->phase != DAEMON_STARTING) return;
    daemon->phase = DAEMON_READY;
    uv_timer_stop(&daemon->first_attempt);
    if (endpoints_listen(daemon, ENDPOINT_DATA) < 0) {
        stop_now(daemon, EXIT_RUNNING);
        return;
    }
    (void)endpoints_listen(daemon, ENDPOINT_CONTROL);
    uv_timer_start(&daemon->second, on_second, SECOND_MS, SECOND_MS);
    if (service_watchdog_ms() > 0)
        uv_timer_start(&daemon->watchdog, on_watchdog, service_watchdog_ms(), service_watchdog_ms());

    /* redis_watch.h reports why Redis is not connected yet. */
    size_t n = engine_policies(daemon->engine)->n;
    const char *store = daemon->redis == NULL              ? "memory store"
                        : redis_store_ready(daemon->redis) ? "Redis: ready"
                                                           : "Redis: not connected yet";
    log_info("ready on %s: %zu %s, %s", daemon->endpoints[ENDPOINT_DATA].listener.path, n,
             n == 1 ? "policy" : "policies", store);
    log_set_level((enum log_level)daemon->config->log_level);

    if (daemon->redis != NULL) {
        redis_watch_start(&daemon->redis_watch, daemon->redis, engine_policies(daemon->engine));
        redis_check_again(&daemon->redis_check);
        redis_check_look(&daemon->redis_check, daemon->redis, engine_policies(daemon->engine));
        look_at_daemons(daemon);
        failure_watch_start(&daemon->failure_watch, daemon->clock.mono_us);
        if (!redis_store_ready(daemon->redis)) daemon->trouble_us = daemon->started_us;
    }
    status_report(daemon, service_ready);
}

static void on_first_attempt_timeout(uv_timer_t *timer)
{
    become_ready(timer->data);
}

/* ---- Start ---- */

/* Store, engine and server. 0, or -1 without memory: then the process is about to end. */
static int make_parts(struct daemon *daemon)
{
    struct store store;
    struct config *config = daemon->config;
    struct server_options for_server = options_server(config, (enum store_type)daemon->started->store_type,
                                                      &daemon->arguments, &daemon->inline_policies);
    struct engine_options for_engine = options_engine(config, &daemon->arguments);
    for_server.late = (struct late_source){reload_ask, daemon};

    /* A level above info takes effect only after the line "ready"; debug at once, so that it shows the start. */
    log_keys_set((enum log_keys)config->keys_in_log, (enum log_keys)config->keys_in_views, config->keys_secret);
    if (config->log_level > LOG_LEVEL_INFO) log_set_level((enum log_level)config->log_level);

    inline_policies_init(&daemon->inline_policies);
    if (inline_policies_configure(&daemon->inline_policies, (size_t)config->inline_max_policies,
                                  config_policy_defaults(config)) < 0)
        return -1;

    if (config->store_type == STORE_TYPE_REDIS) {
        struct redis_options for_redis = options_redis(config, daemon->random_seed);
        daemon->redis = redis_store_new(&daemon->loop, &daemon->clock, &for_redis);
        if (daemon->redis == NULL) return -1;
        store = redis_store_handle(daemon->redis);
    } else {
        struct memory_options for_memory = options_memory(config, &daemon->arguments);
        daemon->memory = memory_store_new(&daemon->clock, &for_memory);
        if (daemon->memory == NULL) return -1;
        store = memory_store_handle(daemon->memory);
    }
    config_forget_secrets(config);

    daemon->engine = engine_new(&daemon->clock, store, policy_set_ref(config->policies), &for_engine);
    if (daemon->engine == NULL) return -1;
    engine_set_inline_policies(daemon->engine, &daemon->inline_policies);
    daemon->server = server_new(&daemon->loop, &daemon->clock, daemon->engine, &for_server);
    if (daemon->server == NULL) return -1;
    server_set_store_trouble(daemon->server, status_trouble, daemon);
    server_set_metrics(daemon->server, admin_door_metrics, daemon);
    return admin_door_start(daemon);
}

static void make_handles(struct daemon *daemon)
{
    uv_timer_t *timers[] = {&daemon->deadline, &daemon->second, &daemon->first_attempt, &daemon->watchdog,
                            &daemon->last_slots};
    for (size_t i = 0; i < N_OF(timers); i++) {
        uv_timer_init(&daemon->loop, timers[i]);
        timers[i]->data = daemon;
    }
    for (size_t i = 0; i < N_OF(signals); i++) {
        uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        uv_signal_start(&daemon->signals[i], signals[i].callback, signals[i].number);
    }
    uv_check_init(&daemon->loop, &daemon->check);
    uv_prepare_init(&daemon->loop, &daemon->prepare);
    daemon->check.data = daemon->prepare.data = daemon;
    daemon->armed_us = INT64_MAX;
    reload_init(daemon);
}

static void count_handle(uv_handle_t *handle, void *arg)
{
    (void)handle;
    ++*(unsigned *)arg;
}

/* Runs the loop until the stop is complete. Returns the exit status. */
static int run_loop(struct daemon *daemon)
{
    make_handles(daemon);
    hold_signals(false);
    if (make_parts(daemon) < 0) {
        log_error("out of memory at start; lower store.memory.max_keys, or give the daemon more");
        endpoints_close(daemon);
        return EXIT_RUNNING;
    }

    uv_check_start(&daemon->check, on_check);
    uv_prepare_start(&daemon->prepare, on_prepare);
    uv_unref((uv_handle_t *)&daemon->check);
    uv_unref((uv_handle_t *)&daemon->prepare);
    if (daemon->redis != NULL) {
        redis_store_on_first_attempt(daemon->redis, become_ready, daemon);
        uv_timer_start(&daemon->first_attempt, on_first_attempt_timeout, FIRST_ATTEMPT_MS, 0);
    } else {
        become_ready(daemon);
    }
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    endpoints_close(daemon);
    if (uv_loop_close(&daemon->loop) == 0) {
        reload_fini(daemon);
        inline_policies_fini(&daemon->inline_policies);
        return daemon->exit_status;
    }

    /* Only a thread may still be at work, and it cannot be stopped: a name lookup may take the resolver's timeout, a
     * reload a second. Everything else is closed, so the process ends. */
    unsigned n_open = 0;
    uv_walk(&daemon->loop, count_handle, &n_open);
    if (n_open > 0)
        log_error("BUG: something was still open at the end");
    else
        log_info("ending without waiting for a %s", daemon->reload.phase == RELOAD_IDLE ? "name lookup" : "reload");
    _exit(n_open > 0 ? EXIT_RUNNING : daemon->exit_status);
}

/* Sets up the loop and runs the daemon. Returns the exit status. */
static int serve(struct daemon *daemon)
{
    const struct config *config = daemon->config;
    policy_set_name(config->policies, (size_t)config->admin_metrics_policies);
    policy_set_move_counts(config->policies);
    if (config->policies->n == 0 && !config->inline_allow) /* allowed, since a reload may bring some; rarely meant */
        log_warning("%s: policies is empty: every check is answered UNKNOWN_POLICY; write a policy below it and reload",
                    daemon->arguments.config_path);
    if (process_raise_open_files(options_open_files(config)) < 0) return EXIT_RUNNING;

    if (daemon->arguments.test_limits) log_set_level(LOG_LEVEL_ERROR); /* nor that it is ready */
    clock_update(&daemon->clock);
    daemon->started_us = daemon->clock.mono_us;
    if (daemon->arguments.test_clock) {
        if (!daemon->arguments.test_limits)
            log_warning("--test-clock: time starts at 0 and moves only by the method test_clock; not for production");
        daemon->clock.manual = true;
        daemon->clock.wall_us = 0;
    }

    hold_signals(true);
    endpoints_init(daemon);
    if (endpoints_open(daemon) < 0) return EXIT_SOCKET;
    int error = uv_loop_init(&daemon->loop);
    if (error == 0) return run_loop(daemon);
    log_error("cannot start: %s", uv_strerror(error));
    endpoints_close(daemon);
    return EXIT_RUNNING;
}

int main(int argc, char **argv)
{
    struct daemon daemon = {0};
    static struct counter_group *const groups[] = {&log_counter_group,
                                                   &server_counter_group,
                                                   &control_counter_group,
                                                   &inline_counter_group,
                                                   &engine_counter_group,
                                                   &slots_counter_group,
                                                   &memory_counter_group,
                                                   &redis_counter_group,
                                                   &reload_counter_group,
                                                   &admin_counter_group,
                                                   NULL};
    process_open_standard_descriptors();
    service_init();
    log_open();
    static const struct counter_family *const families[] = {&methods_asked, &session_errors, NULL};
    counters_groups = groups;
    counters_families = families;
    daemon.random_seed = process_set_up();

    int status = arguments_read(argc, argv, &daemon.arguments);
    if (status < 0) status = configure(&daemon);
    if (status < 0) status = serve(&daemon);

    if (daemon.config != daemon.started) config_free(daemon.config);
    config_free(daemon.started);
    return status;
}
