/* options.c: settings into the options of each module, for the start and reload.c. */
#include "daemon/options.h"

#include "redis/servers.h"

/* The shortest deadline of the defaults and the policies. */
static uint32_t shortest_deadline_ms(const struct config *config)
{
    uint32_t shortest_ms = (uint32_t)config->defaults_deadline_ms;
    for (size_t i = 0; i < config->policies->n; i++) {
        const struct policy *policy = config->policies->in_order[i];
        if (!policy->unlimited && policy->deadline_ms < shortest_ms) shortest_ms = policy->deadline_ms;
    }
    return shortest_ms;
}

struct redis_options options_redis(const struct config *config, uint64_t random_seed)
{
    const enum redis_topology topology = (enum redis_topology)config->store_redis_topology;
    return (struct redis_options){
        .topology = topology,
        .address = config->store_redis_addresses,
        .username = config->store_redis_username,
        .password = config->redis_password,
        .key_prefix = config->store_redis_key_prefix,
        .n_shards = (uint32_t)config->store_redis_buckets,
        .tls = config->redis_tls,
        .master_name = topology == TOPOLOGY_SENTINEL ? config->store_redis_master_name : NULL,
        .sentinel_username = config->store_redis_sentinel_username,
        .sentinel_password = config->sentinel_password,
        .sentinel_tls = config->sentinel_tls,
        .database = (int)config->store_redis_database,
        .batch_max_keys = (uint32_t)config->store_redis_batch_max_keys,
        .by_slot = config->store_redis_calls == REDIS_CALLS_SLOT,
        .merge = config->store_redis_merge,
        .deny_max_keys = (uint64_t)config->store_redis_deny_cache_max_keys,
        .deny_max_age_ms = (uint32_t)config->store_redis_deny_cache_max_age_ms,
        .window = (uint32_t)config->store_redis_window,
        .max_inflight = (uint32_t)config->store_redis_max_inflight,
        .deadline_ms = (uint32_t)config->defaults_deadline_ms,
        .max_output = (uint64_t)config->store_redis_max_output,
        .stall_ms = (uint32_t)config_redis_stall_ms(config),
        .breaker_errors = (uint32_t)config->store_redis_breaker_errors,
        .breaker_late = (uint32_t)config->store_redis_breaker_late,
        .breaker_late_ms = shortest_deadline_ms(config),
        .breaker_probe_every_ms = (uint32_t)config->store_redis_breaker_probe_every_ms,
        .backoff_min_ms = (uint32_t)config->store_redis_reconnect_min_ms,
        .backoff_max_ms = (uint32_t)config->store_redis_reconnect_max_ms,
        .refused_max_ms = (uint32_t)config->store_redis_reconnect_refused_max_ms,
        .is_server_held = config->is_store_held,
        .random_seed = random_seed,
    };
}

struct engine_options options_engine(const struct config *config, const struct arguments *arguments)
{
    return (struct engine_options){
        .max_inflight = (uint32_t)config->caps_max_inflight,
        .local_max_keys = (uint64_t)config->store_memory_max_keys,
        .shadow_default = config->defaults_shadow,
        .is_exact = arguments->test_limits,
        .slots = {.max = (uint32_t)config->caps_max_slots,
                  .max_per_owner = (uint32_t)config->caps_max_slots_per_connection},
    };
}

/* Descriptors for servers of Redis, if they may be many. */
static uint32_t files_of_store(const struct config *config)
{
    bool is_cluster = config->store_type == STORE_TYPE_REDIS && config->store_redis_topology == TOPOLOGY_CLUSTER;
    return is_cluster ? REDIS_SERVERS_FILES_MAX : 0;
}

struct server_options options_server(const struct config *config, enum store_type store,
                                     const struct arguments *arguments, struct inline_policies *inline_policies)
{
    struct server_options options = {
        .max_key = (uint32_t)config->caps_max_key,
        .max_frame = (uint32_t)config->caps_max_frame,
        .max_depth = (uint32_t)config->caps_max_depth,
        .max_connections = (uint32_t)config->caps_max_connections,
        .n_store_files = files_of_store(config),
        .max_inflight_per_connection = (uint32_t)config->caps_max_inflight_per_connection,
        .max_output = (uint64_t)config->listen_max_output,
        .max_output_total = (uint64_t)config->listen_max_output_total,
        .idle_timeout_ms = (uint32_t)config->listen_idle_timeout_ms,
        .write_stall_ms = (uint32_t)config->listen_write_stall_ms,
        .access = config->access,
        .inline_access = config->inline_allow ? INLINE_EVERYBODY : INLINE_NOBODY,
        .denials = (enum denials)config->log_denials,
        .denials_per_second = (uint32_t)config->log_denials_per_second,
        .watch = {.top_keys = (uint32_t)config->top_keys,
                  .top_window_us = config->top_window_ms * 1000,
                  .top_granted = config->top_granted,
                  .n_denials = (uint32_t)config->denials_entries,
                  .n_slow = (uint32_t)config->slowlog_entries,
                  .slow_us = config->slowlog_threshold_ms * 1000},
        .inline_policies = inline_policies,
        .test_clock = arguments->test_clock,
        .test_limits = arguments->test_limits,
        .store_name = store == STORE_TYPE_REDIS ? "redis" : "memory",
        .hiredis_version = RL_HIREDIS_VERSION,
        .configured_us = config->read_us,
        .config_path = arguments->config_path,
        .config_hash = config->hash,
        .n_shards = (uint32_t)config->store_redis_buckets,
    };
    if (arguments->config_path == NULL) options.inline_access = INLINE_OWN_USER;
    snprintf(options.key_prefix, sizeof options.key_prefix, "%s", config->store_redis_key_prefix);
    return options;
}

struct memory_options options_memory(const struct config *config, const struct arguments *arguments)
{
    return (struct memory_options){.max_keys = (uint64_t)config->store_memory_max_keys,
                                   .max_bytes = (uint64_t)config->store_memory_max_bytes,
                                   .sweep = !arguments->test_clock || arguments->test_limits,
                                   .exact = arguments->test_limits,
                                   .counted = true};
}

int64_t options_open_files(const struct config *config)
{
    int64_t n_http = 2 * config->admin_max_connections; /* each has an epoll descriptor, too */
    return config->caps_max_connections + CONTROL_CONNECTIONS + n_http + files_of_store(config);
}
