/*
 * ratelimitd.c: the daemon's wiring: arguments, start, the turn of the loop, signals, reload, stop.
 *
 *   arguments ─▶ configuration ─▶ socket ─▶ store ─▶ engine ─▶ server ─▶ READY
 *
 *   one turn    uv polls: bytes in (server ─▶ engine ─▶ store), replies of the store, timers, signals
 *               uv_check, and uv_prepare for what timers made:
 *                   clock_update ─ engine_expire ─ engine_flush ─ server_turn_end ─ arm the deadline timer
 *
 *   stop        server_drain ─▶ slots given back ─▶ server_close ─▶ engine_close (and its store) ─▶ our own handles ─▶
 * uv_run returns
 *
 * Everything lives in one `struct daemon` on main's stack. Exit status: 0 clean stop, 1 failure while running, 2 usage,
 * 3 configuration, 4 the socket cannot be had.
 */
#include <signal.h>
#include <stdio.h>

#include <uv.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/log.h"
#include "config/config_print.h"
#include "config/inline_policies.h"
#include "daemon/arguments.h"
#include "daemon/gate.h"
#include "daemon/options.h"
#include "daemon/process.h"
#include "daemon/redis_watch.h"
#include "server/service.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    FIRST_ATTEMPT_MS = 200, /* how long READY waits for the first connection to Redis */
    TICK_MS = 1000,         /* the watch over the socket's file and over Redis */
    RELOAD_FAULTS_SHOWN = 20,
};

struct daemon {
    struct arguments arguments;
    struct config *config;  /* owned; of the last good reload */
    struct config *started; /* owned; the same until the first reload: what cannot change stays as it says */
    struct clock clock;
    uv_loop_t loop;
    struct gate gate;
    struct memory_store *memory; /* the engine's; NULL with Redis */
    struct redis_store *redis;   /* the engine's; NULL with memory */
    struct engine *engine;       /* owned */
    struct server *server;       /* owned */
    struct inline_policies inline_policies;
    struct store store; /* owned until the engine takes it over; then its ops are NULL */
    uint64_t random_seed;
    int exit_status;
    bool is_ready, is_draining, is_drained, is_closing;
    int64_t drain_until_us; /* CLOCK_MONOTONIC */
    bool turn_ran;          /* since the last word to the watchdog */
    struct redis_watch redis_watch;
    int64_t armed_us; /* for which deadline the timer runs; INT64_MAX = it does not */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_timer_t deadline, tick, first_attempt, watchdog, last_slots;
    uv_signal_t signals[4];
};

/* Configuration */

static void show_faults(const char *file, const struct faults *faults)
{
    char line[2048];
    for (size_t i = 0; i < faults->n; i++)
        fprintf(stderr, "%s\n", faults_line(line, sizeof line, file, &faults->items[i]));
}

/* -1 to go on, else the exit status. */
static int configure(struct daemon *daemon)
{
    const struct arguments *arguments = &daemon->arguments;
    struct faults faults;
    faults_init(&faults);
    bool is_trial = arguments->check_config || arguments->print_config;
    daemon->config =
        arguments->config_path != NULL ? config_load(arguments->config_path, is_trial, &faults) : config_default();
    show_faults(arguments->config_path, &faults);
    faults_fini(&faults);
    daemon->started = daemon->config;
    if (daemon->config == NULL) return arguments->config_path != NULL ? EXIT_CONFIG : EXIT_RUNNING;
    if (arguments->test_clock && daemon->config->store_type == STORE_TYPE_REDIS) {
        fprintf(stderr, "ratelimitd: --test-clock is for the memory store; Redis has a clock of its own\n");
        return EXIT_USAGE;
    }
    if (arguments->print_config) config_print(stdout, daemon->config);
    if (arguments->check_config && !arguments->print_config) puts("the configuration is correct");
    return is_trial ? EXIT_CLEAN : -1;
}

static struct server_options server_options(struct daemon *daemon)
{
    struct server_options options =
        options_server(daemon->config, (enum store_type)daemon->started->store_type, daemon->arguments.test_clock);
    if (daemon->arguments.config_path == NULL) options.inline_access = INLINE_OWN_USER;
    options.find_inline = inline_policies_find;
    options.find_inline_arg = &daemon->inline_policies;
    return options;
}

/* The turn of the loop */

static void on_deadline(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    daemon->armed_us = INT64_MAX; /* on_prepare expires what is due and arms the timer again */
}

/* libuv counts whole milliseconds from its own, older now: rounded up, and a timer that comes early is armed again. */
static void arm_deadline(struct daemon *daemon)
{
    int64_t at_us = engine_next_deadline(daemon->engine);
    if (at_us == daemon->armed_us) return;
    daemon->armed_us = at_us;
    if (at_us == INT64_MAX) {
        uv_timer_stop(&daemon->deadline);
        return;
    }
    int64_t left_us = at_us - daemon->clock.mono_us;
    uv_timer_start(&daemon->deadline, on_deadline, left_us > 0 ? (uint64_t)(left_us + 999) / 1000 : 1, 0);
}

static void begin_close(struct daemon *daemon, int exit_status);

/* Every connection has ended: the slots that they held have to reach the store before its connection closes. */
static void close_when_left(struct daemon *daemon)
{
    if (engine_slots(daemon->engine)->n == 0) begin_close(daemon, EXIT_CLEAN);
}

static void end_turn(struct daemon *daemon)
{
    if (daemon->is_closing) return;
    clock_update(&daemon->clock);
    engine_expire(daemon->engine);
    engine_flush(daemon->engine);
    server_turn_end(daemon->server);
    arm_deadline(daemon);
    daemon->turn_ran = true;
    if (daemon->is_drained) close_when_left(daemon);
}

static void on_check(uv_check_t *check)
{
    end_turn(check->data);
}

static void on_prepare(uv_prepare_t *prepare)
{
    end_turn(prepare->data);
}

/* Stop */

/* Where libuv lets go of a signal its default is back: one more SIGTERM would make a clean stop a death by signal. */
static void close_signals(struct daemon *daemon)
{
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &before);
    for (size_t i = 0; i < N_OF(daemon->signals); i++) {
        int number = daemon->signals[i].signum;
        uv_close((uv_handle_t *)&daemon->signals[i], NULL);
        signal(number, SIG_IGN);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Store, engine and server are gone: what is left are the handles of struct daemon. One of theirs that is still open
 * would keep uv_run() from returning, or uv_loop_close() from succeeding. */
static void on_engine_closed(void *arg)
{
    struct daemon *daemon = arg;
    daemon->engine = NULL;
    uv_handle_t *handles[] = {(uv_handle_t *)&daemon->check,         (uv_handle_t *)&daemon->prepare,
                              (uv_handle_t *)&daemon->deadline,      (uv_handle_t *)&daemon->tick,
                              (uv_handle_t *)&daemon->first_attempt, (uv_handle_t *)&daemon->watchdog,
                              (uv_handle_t *)&daemon->last_slots};
    for (size_t i = 0; i < N_OF(handles); i++) uv_close(handles[i], NULL);
    close_signals(daemon);
}

static void on_server_closed(void *arg)
{
    struct daemon *daemon = arg;
    daemon->server = NULL;
    if (daemon->engine != NULL)
        engine_close(daemon->engine, on_engine_closed, daemon);
    else if (daemon->store.ops != NULL)
        store_close(&daemon->store, on_engine_closed, daemon);
    else
        on_engine_closed(daemon);
}

static void begin_close(struct daemon *daemon, int exit_status)
{
    if (daemon->is_closing) return;
    daemon->is_draining = daemon->is_closing = true;
    daemon->exit_status = exit_status;
    if (daemon->server != NULL)
        server_close(daemon->server, on_server_closed, daemon);
    else
        on_server_closed(daemon);
}

static void on_last_slots_timeout(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    log_info("%u slots could not be given back: their leases end by themselves", engine_slots(daemon->engine)->n);
    begin_close(daemon, EXIT_CLEAN);
}

static void on_drained(void *arg)
{
    struct daemon *daemon = arg;
    clock_update(&daemon->clock);
    int64_t left_us = daemon->drain_until_us - daemon->clock.mono_us;
    slots_stop(engine_slots(daemon->engine));
    daemon->is_drained = true;
    uv_timer_start(&daemon->last_slots, on_last_slots_timeout, left_us > 0 ? (uint64_t)left_us / 1000 : 0, 0);
    close_when_left(daemon);
}

static void on_stop_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
    if (daemon->is_draining) {
        log_info("%s again: ending at once", name);
        begin_close(daemon, EXIT_CLEAN);
        return;
    }
    log_info("%s: draining, with %zu checks in flight", name, engine_n_live(daemon->engine));
    daemon->is_draining = true;
    service_stopping();
    clock_update(&daemon->clock);
    daemon->drain_until_us = daemon->clock.mono_us + daemon->config->drain_timeout_ms * 1000;
    server_drain(daemon->server, (uint32_t)daemon->config->drain_timeout_ms, on_drained, daemon);
    gate_close(&daemon->gate); /* so that the next daemon can have the path while this one drains */
}

/* Reload */

static void status_text(const struct daemon *daemon, char *out, size_t size)
{
    size_t n = engine_policies(daemon->engine)->n;
    if (daemon->redis != NULL)
        snprintf(out, size, "%zu %s, Redis: %s", n, n == 1 ? "policy" : "policies", redis_store_status(daemon->redis));
    else
        snprintf(out, size, "%zu %s, memory store", n, n == 1 ? "policy" : "policies");
}

static void tell_ready(struct daemon *daemon)
{
    char status[256];
    status_text(daemon, status, sizeof status);
    service_ready(status);
}

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
    struct server_options for_server = server_options(daemon);
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

static void reload(struct daemon *daemon)
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

static void on_reload_signal(uv_signal_t *handle, int number)
{
    (void)number;
    struct daemon *daemon = handle->data;
    if (daemon->is_draining || !daemon->is_ready) return;
    service_reloading();
    clock_update(&daemon->clock);
    if (daemon->arguments.config_path != NULL)
        reload(daemon);
    else
        log_info("SIGHUP: started without -c, so there is no file to read again");
    tell_ready(daemon);
}

static void on_upgrade_signal(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    log_warning("SIGUSR2: upgrade without a restart is not built yet; going on");
}

/* Ready, and while running */

static void on_watchdog(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    if (daemon->turn_ran) service_watchdog();
    daemon->turn_ran = false;
}

/* 0, or -1 with the reason logged. */
static int listen_on_gate(struct daemon *daemon)
{
    int error = server_listen(daemon->server, daemon->gate.listener.fd);
    daemon->gate.listener.fd = -1;
    if (error < 0) log_error("%s: cannot accept connections: %s", daemon->gate.listener.path, uv_strerror(error));
    return error < 0 ? -1 : 0;
}

static void on_tick(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    char status[256];
    if (daemon->redis != NULL && redis_watch_look(&daemon->redis_watch, daemon->redis)) {
        status_text(daemon, status, sizeof status);
        service_status(status);
    }
    if (!daemon->is_draining && gate_look(&daemon->gate) && listen_on_gate(daemon) < 0)
        begin_close(daemon, EXIT_RUNNING);
}

static void become_ready(struct daemon *daemon)
{
    char status[256];
    if (daemon->is_ready || daemon->is_draining) return;
    daemon->is_ready = true;
    uv_timer_stop(&daemon->first_attempt);
    if (listen_on_gate(daemon) < 0) {
        begin_close(daemon, EXIT_RUNNING);
        return;
    }
    uv_timer_start(&daemon->tick, on_tick, TICK_MS, TICK_MS);
    if (service_watchdog_ms() > 0)
        uv_timer_start(&daemon->watchdog, on_watchdog, service_watchdog_ms(), service_watchdog_ms());
    if (daemon->redis != NULL) redis_watch_start(&daemon->redis_watch, daemon->redis);
    status_text(daemon, status, sizeof status);
    log_info("ready on %s: %s", daemon->gate.listener.path, status);
    log_set_level((enum log_level)daemon->config->log_level);
    service_ready(status);
}

static void on_first_attempt(void *arg)
{
    become_ready(arg);
}

static void on_first_attempt_timeout(uv_timer_t *timer)
{
    become_ready(timer->data);
}

/* Start */

/* 0, or -1 without memory. */
static int make_store(struct daemon *daemon)
{
    const struct config *config = daemon->config;
    if (config->store_type == STORE_TYPE_REDIS) {
        struct redis_options options = options_redis(config, daemon->random_seed);
        daemon->redis = redis_store_new(&daemon->loop, &daemon->clock, &options);
        config_forget_password(daemon->config);
        if (daemon->redis == NULL) return -1;
        daemon->store = redis_store_handle(daemon->redis);
        return 0;
    }
    struct memory_options options = options_memory(config, daemon->arguments.test_clock);
    daemon->memory = memory_store_new(&daemon->clock, &options);
    if (daemon->memory == NULL) return -1;
    daemon->store = memory_store_handle(daemon->memory);
    return 0;
}

static int make_parts(struct daemon *daemon)
{
    if (inline_policies_init(&daemon->inline_policies) < 0 || make_store(daemon) < 0) return -1;
    inline_policies_configure(&daemon->inline_policies, daemon->config);
    struct engine_options for_engine = options_engine(daemon->config);
    struct policy_set *policies = policy_set_ref(daemon->config->policies);
    daemon->engine = engine_new(&daemon->clock, daemon->store, policies, &for_engine);
    if (daemon->engine == NULL) {
        policy_set_unref(policies);
        return -1;
    }
    daemon->store.ops = NULL;
    struct server_options for_server = server_options(daemon);
    daemon->server = server_new(&daemon->loop, &daemon->clock, daemon->engine, &for_server);
    return daemon->server != NULL ? 0 : -1;
}

static void make_handles(struct daemon *daemon)
{
    static const struct {
        int number;
        uv_signal_cb callback;
    } signals[] = {
        {SIGTERM, on_stop_signal}, {SIGINT, on_stop_signal}, {SIGHUP, on_reload_signal}, {SIGUSR2, on_upgrade_signal}};
    uv_timer_t *timers[] = {&daemon->deadline, &daemon->tick, &daemon->first_attempt, &daemon->watchdog,
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
}

static void start_turns(struct daemon *daemon)
{
    uv_check_start(&daemon->check, on_check);
    uv_prepare_start(&daemon->prepare, on_prepare);
    uv_unref((uv_handle_t *)&daemon->check);
    uv_unref((uv_handle_t *)&daemon->prepare);
    if (daemon->redis == NULL) {
        become_ready(daemon);
        return;
    }
    redis_store_on_first_attempt(daemon->redis, on_first_attempt, daemon);
    uv_timer_start(&daemon->first_attempt, on_first_attempt_timeout, FIRST_ATTEMPT_MS, 0);
}

/* From a loop to its end. Returns the exit status. */
static int run(struct daemon *daemon)
{
    make_handles(daemon);
    if (make_parts(daemon) == 0) {
        start_turns(daemon);
    } else {
        log_error("out of memory at start; lower store.memory.max_keys, or give the daemon more");
        begin_close(daemon, EXIT_RUNNING);
    }
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    inline_policies_fini(&daemon->inline_policies);
    gate_close(&daemon->gate);
    if (uv_loop_close(&daemon->loop) == 0) return daemon->exit_status;
    log_error("BUG: something was still open at the end");
    return EXIT_RUNNING;
}

static int serve(struct daemon *daemon)
{
    process_raise_open_files(daemon->config->caps_max_connections);
    clock_update(&daemon->clock);
    if (daemon->arguments.test_clock) {
        log_warning("--test-clock: time starts at 0 and moves only by the method test_clock; not for production");
        daemon->clock.manual = true;
        daemon->clock.wall_us = 0;
    }
    if (gate_open(&daemon->gate, daemon->config, daemon->arguments.socket_path) < 0) return EXIT_SOCKET;
    int error = uv_loop_init(&daemon->loop);
    if (error == 0) return run(daemon);
    log_error("cannot start: %s", uv_strerror(error));
    gate_close(&daemon->gate);
    return EXIT_RUNNING;
}

int main(int argc, char **argv)
{
    struct daemon daemon = {.gate.listener = {.fd = -1, .lock_fd = -1}};
    service_init();
    daemon.random_seed = process_set_up();
    int status = arguments_read(argc, argv, &daemon.arguments);
    if (status < 0) status = configure(&daemon);
    if (status < 0) status = serve(&daemon);
    if (daemon.config != daemon.started) config_free(daemon.config);
    config_free(daemon.started);
    return status;
}
