/*
 * options.h: the options of each part of the daemon, from the configuration. The parts do not know the configuration,
 * and it does not know them.
 */
#ifndef RL_DAEMON_OPTIONS_H
#define RL_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "daemon/arguments.h"
#include "engine/engine.h"
#include "policy/inline_policies.h"
#include "redis/options.h"
#include "server/server.h"
#include "store/memory_store.h"

/* Texts in the results are the configuration's. `store` is the one that was started with. */
struct redis_options options_redis(const struct config *config, uint64_t random_seed);
struct memory_options options_memory(const struct config *config, const struct arguments *arguments);
struct engine_options options_engine(const struct config *config, const struct arguments *arguments);
struct server_options options_server(const struct config *config, enum store_type store,
                                     const struct arguments *arguments, struct inline_policies *inline_policies);
/* Descriptors that connections may take: of clients, of HTTP, and to the nodes of a cluster. */
int64_t options_open_files(const struct config *config);

#endif
