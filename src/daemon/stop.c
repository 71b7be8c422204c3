/* stop.c: the steps of the end, each begun by the one before. */
#include "daemon/stop.h"

#include <signal.h>

#include "base/assert.h"
#include "base/log.h"
#include "daemon/admin_door.h"
#include "daemon/service.h"

/* The last close callback stops uv_run(), which would otherwise wait for a thread's work. */
static void on_handle_closed(uv_handle_t *handle)
{
    struct daemon *daemon = handle->data;
    if (--daemon->n_closing == 0) uv_stop(&daemon->loop);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    struct daemon *daemon = arg;
    int number = handle->type == UV_SIGNAL ? ((uv_signal_t *)handle)->signum : 0;
    if (handle->data != daemon) return; /* a part has left it open: run_loop() finds it */

    daemon->n_closing++;
    uv_close(handle, on_handle_closed);
    if (number > 0) signal(number, SIG_IGN);
}

/* Store, engine and server are gone: what is left are the handles of struct daemon. One of theirs that is still open
 * would keep uv_run() from returning, or uv_loop_close() from succeeding. */
static void on_engine_closed(void *arg)
{
    struct daemon *daemon = arg;
    CHECK(daemon->phase == DAEMON_CLOSING && daemon->server == NULL);
    daemon->engine = NULL;

    /* When libuv releases a signal, its default action is back: a second SIGTERM would end a clean stop half-way. */
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &before);
    uv_walk(&daemon->loop, close_handle, daemon);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void on_server_closed(void *arg)
{
    struct daemon *daemon = arg;
    daemon->server = NULL;
    engine_close(daemon->engine, on_engine_closed, daemon);
}

/* It shows what the others have, so it goes first. */
static void on_admin_closed(void *arg)
{
    struct daemon *daemon = arg;
    server_close(daemon->server, on_server_closed, daemon);
}

void stop_now(struct daemon *daemon, int exit_status)
{
    if (daemon->phase == DAEMON_CLOSING) return;
    daemon->phase = DAEMON_CLOSING;
    daemon->exit_status = exit_status;

    uv_timer_stop(&daemon->last_slots);
    admin_door_close(daemon, on_admin_closed);
}

static void stop_without_slots(struct daemon *daemon)
{
    const struct slots *slots = engine_slots(daemon->engine);
    uint32_t n = slots->n_given_up + slots->n;
    if (n > 0) log_info("%u slots could not be given back: their leases end by themselves", n);
    stop_now(daemon, EXIT_CLEAN);
}

/* Every connection has ended: the slots that they held, and leased units, have to reach the store before its
 * connection closes. */
void stop_when_left(struct daemon *daemon)
{
    CHECK(daemon->phase == DAEMON_DRAINED);
    if (!engine_holds_any(daemon->engine)) stop_without_slots(daemon);
}

static void on_last_slots_timeout(uv_timer_t *timer)
{
    stop_without_slots(timer->data);
}

static void on_drained(void *arg)
{
    struct daemon *daemon = arg;
    clock_update(&daemon->clock);
    int64_t left_us = daemon->drain_until_us - daemon->clock.mono_us;
    engine_stop(daemon->engine);
    daemon->phase = DAEMON_DRAINED;
    uv_timer_start(&daemon->last_slots, on_last_slots_timeout, left_us > 0 ? (uint64_t)left_us / 1000 : 0, 0);
    stop_when_left(daemon);
}

void stop_on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
    if (daemon->phase >= DAEMON_DRAINING) {
        log_info("%s again: ending at once", name);
        stop_now(daemon, EXIT_CLEAN);
        return;
    }

    log_info("%s: draining, with %zu checks in flight", name, engine_n_live(daemon->engine));
    daemon->phase = DAEMON_DRAINING;
    service_stopping();
    clock_update(&daemon->clock);
    daemon->drain_until_us = daemon->clock.mono_us + daemon->config->drain_timeout_ms * 1000;
    server_drain(daemon->server, (uint32_t)daemon->config->drain_timeout_ms, on_drained, daemon);
    endpoints_drain(daemon);
}
