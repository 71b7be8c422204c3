/*
 * daemon.h: everything that lives from start to stop, on main's stack. Only for ratelimitd.c and this folder.
 */
#ifndef RL_DAEMON_DAEMON_H
#define RL_DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "admin/admin.h"
#include "base/clock.h"
#include "config/config.h"
#include "daemon/arguments.h"
#include "daemon/endpoints.h"
#include "daemon/failure_watch.h"
#include "daemon/redis_check.h"
#include "daemon/redis_watch.h"
#include "daemon/reload.h"
#include "engine/engine.h"
#include "policy/inline_policies.h"
#include "redis/store.h"
#include "server/server.h"
#include "store/memory_store.h"

/* It only moves on, and may skip some. */
enum daemon_phase {
    DAEMON_STARTING, /* no client can connect yet */
    DAEMON_READY,    /* accepting */
    DAEMON_DRAINING, /* SIGTERM came: each connection ends once its requests are answered */
    DAEMON_DRAINED,  /* all connections have ended; their slots are given back to the store */
    DAEMON_CLOSING,  /* handles close, one after another (stop.h) */
};

struct daemon {
    struct arguments arguments;
    struct config *config;  /* owned; of the last good reload */
    struct config *started; /* owned; the configuration at start, whose unchangeable settings stay in force */
    struct clock clock;
    uv_loop_t loop;
    struct endpoint endpoints[N_ENDPOINTS];
    struct admin *admin;         /* owned; NULL: admin.listen is not set */
    struct memory_store *memory; /* the engine's; NULL with Redis */
    struct redis_store *redis;   /* the engine's; NULL with memory */
    struct engine *engine;       /* owned */
    struct server *server;       /* owned */
    struct inline_policies inline_policies;
    uint64_t random_seed;
    int exit_status;
    enum daemon_phase phase;
    int64_t started_us; /* CLOCK_MONOTONIC, as the next one */
    int64_t drain_until_us;
    bool tick_ended; /* since the watchdog was last notified */
    struct redis_watch redis_watch;
    struct redis_check redis_check;
    struct failure_watch failure_watch; /* with Redis */
    /* CLOCK_MONOTONIC: Redis was found without a connection, or behind the breaker; 0 = it is not */
    int64_t trouble_us;
    struct reload reload;
    int64_t armed_us; /* when the timer `deadline` fires; INT64_MAX = it does not run */
    uint64_t n_ended; /* clock.n_updates at the end of the last tick */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_timer_t deadline, second, first_attempt, watchdog, last_slots;
    uv_signal_t signals[4];
    unsigned n_closing; /* handles above whose close callback is still to come */
};

#endif
