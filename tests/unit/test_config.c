/* test_config.c: a configuration file becomes values, or every one of its faults with its line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "fakes/config_text.h"
#include "policy/reading.h"

/* What is accepted */

static void without_a_file_there_is_one_policy_on_the_memory_store(void **state)
{
    (void)state;
    struct config *config = config_of("");
    assert_int_equal(config->store_type, STORE_TYPE_MEMORY);
    assert_int_equal(config->policies->n, 1);
    const struct limit *limit = config_limit(config, "default");
    assert_int_equal(limit->algo, ALGO_BUCKET);
    assert_int_equal(limit->limit, 100);
    assert_int_equal(limit->window_us, 1000000);
    assert_int_equal(limit->burst, 100);
    config_free(config);
}

static void the_default_policy_stands_in_only_for_a_missing_list(void **state)
{
    (void)state;
    struct config *config = config_of("");
    assert_non_null(policy_find(config->policies, slice_of("default")));
    config_free(config);
    config = config_of("listen: {socket: /tmp/x.sock}\n");
    assert_non_null(policy_find(config->policies, slice_of("default")));
    config_free(config);
    config = config_of("policies: {}\n");
    assert_int_equal(config->policies->n, 0);
    config_free(config);
    config = config_of("policies:\n");
    assert_int_equal(config->policies->n, 0);
    config_free(config);
    config = config_of("policies:\n  a: {algorithm: fixed_window, limit: 1, window: 1s}\n");
    assert_null(policy_find(config->policies, slice_of("default")));
    config_free(config);
}

static void the_defaults_are_those_of_the_interface(void **state)
{
    (void)state;
    struct config *config = config_of("");
    assert_string_equal(config->listen_socket, "/run/ratelimitd/ratelimitd.sock");
    assert_int_equal(config->listen_mode, 0660);
    assert_null(config->listen_group);
    assert_int_equal(config->caps_max_key, 1024);
    assert_int_equal(config->caps_max_frame, 65536);
    assert_int_equal(config->caps_max_depth, 8);
    assert_int_equal(config->caps_max_connections, 10000);
    assert_int_equal(config->caps_max_inflight, 65536);
    assert_int_equal(config->caps_max_inflight_per_connection, 4096);
    assert_int_equal(config->store_memory_max_keys, 1000000);
    assert_string_equal(config->store_redis_key_prefix, "rl");
    assert_int_equal(config->store_redis_batch_max_keys, 64);
    assert_true(config->store_redis_merge);
    assert_int_equal(config->store_redis_reconnect_min_ms, 50);
    assert_int_equal(config->store_redis_reconnect_max_ms, 500);
    assert_int_equal(config->store_redis_reconnect_refused_max_ms, 800);
    assert_int_equal(config->defaults_deadline_ms, 20);
    assert_int_equal(config->defaults_on_failure, ON_FAILURE_LOCAL);
    assert_int_equal(config->defaults_local_share, LIVE_SHARE);
    assert_int_equal(config_redis_stall_ms(config), 250);
    config_free(config);
}

static void a_whole_file_becomes_values(void **state)
{
    (void)state;
    struct config *config =
        config_of("listen:\n  socket: /tmp/a.sock\n  mode: \"0600\"\n  group: root\n"
                  "caps: {max_key: 2KiB, max_depth: 6}\n"
                  "store:\n  type: redis\n  redis:\n    addresses: [\"[::1]:6379\"]\n    merge: false\n"
                  "    database: 3\n    reconnect: {min: 1ms, max: 2s}\n"
                  "defaults: {deadline: 200ms, on_failure: deny}\n"
                  "log: {level: debug}\n"
                  "policies:\n"
                  "  login: {algorithm: fixed_window, limit: 5, window: 10s, count_denied: true}\n"
                  "  first: {algorithm: fixed_window, start: first_hit, limit: 5, window: 10s}\n"
                  "  api: {algorithm: gcra, limit: 100, window: 1m, burst: 20, on_failure: allow}\n"
                  "  log: {algorithm: sliding_log, limit: 7, window: 500us, deadline: 5ms}\n"
                  "  never: {algorithm: token_bucket, limit: 0, window: 1s}\n"
                  "  count: {algorithm: sliding_counter, limit: 9, window: 1m}\n"
                  "  queue: {algorithm: leaky_bucket, limit: 9, window: 1m, max_wait: 1500us}\n");
    assert_string_equal(config->listen_group, "root");
    assert_int_equal(config->caps_max_key, 2048);
    assert_int_equal(config->store_type, STORE_TYPE_REDIS);
    assert_string_equal(config->store_redis_addresses, "[::1]:6379");
    assert_false(config->store_redis_merge);
    assert_int_equal(config->store_redis_reconnect_max_ms, 2000);
    assert_int_equal(config_redis_stall_ms(config), 600);
    assert_int_equal(config->log_level, 3);
    assert_int_equal(config->policies->n, 7);
    assert_int_equal(config_limit(config, "login")->algo, ALGO_FIXED_WINDOW);
    assert_true(config_limit(config, "login")->count_denied);
    assert_int_equal(config_limit(config, "login")->policy->deadline_ms, 200);
    assert_int_equal(config_limit(config, "login")->policy->on_failure, ON_FAILURE_DENY);
    assert_int_equal(config_limit(config, "first")->algo, ALGO_FIRST_HIT);
    assert_int_equal(config_limit(config, "api")->burst, 20);
    assert_int_equal(config_limit(config, "api")->policy->on_failure, ON_FAILURE_ALLOW);
    assert_int_equal(config_limit(config, "log")->window_us, 500);
    assert_int_equal(config_limit(config, "log")->policy->deadline_ms, 5);
    assert_int_equal(config_limit(config, "never")->limit, 0);
    assert_int_equal(config_limit(config, "count")->algo, ALGO_SLIDING_COUNTER);
    assert_int_equal(config_limit(config, "queue")->algo, ALGO_LEAKY_BUCKET);
    assert_int_equal(config_limit(config, "queue")->burst, 9);
    assert_int_equal(config_limit(config, "queue")->max_wait_us, 1500);
    config_free(config);
}

static void a_policy_has_up_to_16_limits(void **state)
{
    (void)state;
    struct config *config =
        config_of("policies:\n  search:\n    limits:\n"
                  "      - {name: second, algorithm: token_bucket, limit: 10, window: 1s, burst: 3}\n"
                  "      - {name: day, algorithm: fixed_window, start: first_hit, limit: 50, window: 1d}\n"
                  "    on_failure: allow\n    deadline: 7ms\n");
    const struct policy *policy = policy_find(config->policies, slice_of("search"));
    assert_int_equal(policy->n_limits, 2);
    assert_int_equal(policy->on_failure, ON_FAILURE_ALLOW);
    assert_int_equal(policy->deadline_ms, 7);
    assert_string_equal(policy->limits[0].name, "second");
    assert_int_equal(policy->limits[0].full, 3);
    assert_int_equal(policy->limits[1].algo, ALGO_FIRST_HIT);
    assert_string_equal(policy->limits[1].key_head, "fh1:search/day:");
    config_free(config);

    char text[2048] = "policies:\n  p:\n    limits:\n";
    for (int i = 0; i < POLICY_LIMITS_MAX; i++)
        sprintf(text + strlen(text), "      - {name: l%d, algorithm: gcra, limit: 1, window: 1s}\n", i);
    config = config_of(text);
    assert_int_equal(policy_find(config->policies, slice_of("p"))->n_limits, 16);
    config_free(config);
}

/* The masks of policy_setting.c: a preset that is not in COMPATS would be taken for a native algorithm. */
static void only_presets_take_a_key_prefix(void **state)
{
    (void)state;
    for (int i = 0; i < N_ALGOS; i++) {
        assert_int_equal((policy_settings[FIELD_KEY_PREFIX].algos >> i) & 1U, algo_table[i]->is_compat);
        assert_int_equal((policy_settings[FIELD_LIMIT].algos >> i) & 1U, 1);
    }
}

/* What is refused */

#define SENTINEL(addresses, more)                                                                                      \
    "store:\n  type: redis\n  redis:\n    topology: sentinel\n    addresses: " addresses "\n    " more "\n"
#define TLS(value)         "store:\n  type: redis\n  redis:\n    addresses: [\"h:1\"]\n    tls: " value "\n"
#define POLICY(settings)   "policies:\n  p:\n" settings
#define VALID              "    limit: 1\n    window: 1s\n"
#define LIMITS(limits)     POLICY("    limits:\n      - " limits "\n")
#define CANDIDATE(text)    POLICY("    algorithm: gcra\n" VALID text)
#define LIMIT_A            "{name: a, algorithm: gcra, limit: 1, window: 1s}"
#define CALENDAR(settings) POLICY("    algorithm: calendar_window\n    limit: 1\n" settings)

/* Each file has this fault on this line, and no other. */
static const struct {
    const char *text;
    uint32_t line;
    const char *says;
} refused[] = {
    /* keys */
    {"listn:\n  socket: /x\n", 1, "listn: no such setting; did you mean listen?"},
    {"listen:\n  sokcet: /x\n", 2, "listen.sokcet: no such setting; did you mean socket?"},
    {"policy: {}\n", 1, "policy: no such setting; did you mean policies?"},
    {"key_prefix: x\n", 1, "key_prefix: no such setting here; did you mean store.redis.key_prefix"},
    {"listen.socket: /x\n", 1, "listen.socket: no such setting here; did you mean listen.socket"},
    {"zzz: 1\n", 1, "zzz: no such setting; ratelimitd.yaml(5) lists them all"},
    {"1\n", 1, "yaml: is not a map of settings"},
    {"listen: /x\n", 1, "listen: is not a map of settings"},
    {"listen: [socket]\n", 1, "listen: is not a map of settings"},
    {"\"a\\tb\": 1\n", 1, "a\\x09b: no such setting"},
    /* values */
    {"listen: {socket: x.sock}\n", 1, "listen.socket: is not absolute"},
    {"listen: {mode: rw}\n", 1, "listen.mode: 'rw' is not a file mode"},
    {"listen: {idle_timeout: 20}\n", 1, "listen.idle_timeout: '20' is a duration without its unit"},
    {"listen: {write_stall: 500us}\n", 1, "listen.write_stall: '500us' is finer than a millisecond"},
    {"listen: {max_output: 1KiB}\n", 1, "listen.max_output: '1KiB' is too small; write 4KiB to 1GiB"},
    {"listen: {group: }\n", 1, "listen.group: has no value"},
    {"listen: {group: [a]}\n", 1, "listen.group: a list where one value is expected"},
    {"listen:\n  group: \"a\\nb\"\n", 2, "listen.group: has a control character"},
    {"caps: {max_key: 1024}\n", 1, "caps.max_key: '1024' is a size without its unit"},
    {"caps: {max_connections: 0}\n", 1, "caps.max_connections: '0' is too small; write 1 to 1000000"},
    {"caps: {max_connections: many}\n", 1, "caps.max_connections: 'many' is not a whole number"},
    {"caps:\n  max_key: 64KiB\n", 2, "caps.max_frame: is too small for a check"},
    {"listen: {group: no-such-group}\n", 1, "listen.group: there is no group 'no-such-group' on this machine; create"},
    {"listen: {group: 4294967295}\n", 1, "listen.group: there is no group '4294967295'"},
    {"store: {type: valkey}\n", 1, "store.type: 'valkey' is not known; did you mean redis?"},
    {"store: {type: disk}\n", 1, "store.type: 'disk' is not known; write one of: memory redis"},
    {"store:\n  type: redis\n", 2, "store.redis.addresses: is needed"},
    {"store:\n  type: memory\n  redis:\n    merge: yes\n", 4, "store.redis.merge: 'yes' is neither true nor false"},
    {"store:\n  type: memory\n  redis:\n    batch_max_keys: 65\n", 4,
     "store.redis.batch_max_keys: '65' is too large; write 1 to 64"},
    {"store:\n  type: memory\n  redis:\n    key_prefix: \"a{b}\"\n", 4, "store.redis.key_prefix: has a brace"},
    {"store:\n  type: memory\n  redis:\n    reconnect: {min: 1s}\n", 4, "store.redis.reconnect: min is above max"},
    {"store:\n  type: memory\n  redis:\n    addresses: x\n", 4, "store.redis.addresses: is not a list"},
    {"store:\n  type: memory\n  redis:\n    addresses: [\"a:1\", \"b:1\"]\n", 4,
     "store.redis.addresses: has 2 entries; write exactly 1, or topology: sentinel if they are Sentinels"},
    {"store:\n  type: memory\n  redis:\n    addresses: []\n", 4, "store.redis.addresses: has 0 entries"},
    {SENTINEL("[\"a:1\", \"b:1\"]", ""), 4,
     "store.redis.master_name: is needed with topology: sentinel; write the name"},
    {SENTINEL("[\"a:1\", \"unix:/x\"]", "master_name: m"), 5,
     "'unix:/x': a Sentinel has no Unix socket; write host:port"},
    {SENTINEL("[\"a:1\", \"b\"]", "master_name: m"), 5, "'b': no port; write host:port"},
    {SENTINEL("[\"a:1\"]", "sentinel: {password_file: /nowhere/x}\n    master_name: m"), 6,
     "store.redis.sentinel.password_file: /nowhere/x: No such file"},
    {SENTINEL("[\"a:1\"]", "sentinel: {username: u}\n    master_name: m"), 6,
     "store.redis.sentinel.username: is of no use without a password; write store.redis.sentinel.password_file"},
    {SENTINEL("[\"a:1\"]", "sentinel: {tls: {}}\n    master_name: m"), 6,
     "store.redis.sentinel.tls: is empty, and so would change nothing; write ca_file: system"},
    {SENTINEL("[\"a:1\"]", "sentinel: {tls: {ca_file: /nowhere}}\n    master_name: m"), 6,
     "store.redis.sentinel.tls.ca_file: /nowhere: No such file or directory; "},
    {SENTINEL("[\"a:1\"]", "sentinel: {tls: {ca_file: system, cert_file: /x}}\n    master_name: m"), 6,
     "store.redis.sentinel.tls.cert_file: needs its key; write key_file as well"},
    {SENTINEL("[\"a:1\"]", "sentinel: {tls: {server_name: .x}}\n    master_name: m"), 6,
     "store.redis.sentinel.tls.server_name: '.x' is no host; "},
    {SENTINEL("[\"a:1\"]", "sentinel: {plain_text: true, tls: {ca_file: system}}\n    master_name: m"), 6,
     "store.redis.sentinel.plain_text: does not go with store.redis.sentinel.tls; leave one of the two out"},
    {"store:\n  type: memory\n  redis:\n    sentinel: {tls: {verify: ca}}\n", 4,
     "store.redis.sentinel.tls.verify: has no effect without topology: sentinel"},
    {"store:\n  type: memory\n  redis:\n    master_name: m\n", 4,
     "store.redis.master_name: has no effect without topology: sentinel"},
    {"store:\n  type: memory\n  redis:\n    sentinel: {username: u}\n", 4,
     "store.redis.sentinel.username: has no effect without topology: sentinel"},
    {"store:\n  type: memory\n  redis:\n    addresses: [localhost]\n", 4, "'localhost': no port; write host:port"},
    {"store:\n  type: memory\n  redis:\n    addresses: [\"unix:redis.sock\"]\n", 4,
     "the path after unix: must be absolute"},
    {"store:\n  type: memory\n  redis:\n    addresses: [/run/redis.sock]\n", 4,
     "no port; write host:port or unix:/path"},
    {"store:\n  type: memory\n  redis:\n    addresses: [\"h:0\"]\n", 4, "the port must be a number from 1 to 65535"},
    {"store:\n  type: memory\n  redis:\n    addresses: [\"::1:6379\"]\n", 4, "an IPv6 address needs brackets"},
    {"store:\n  type: memory\n  redis:\n    addresses: [\"redis://h:1\"]\n", 4, "is a URL"},
    {"store:\n  type: memory\n  redis:\n    password: secret\n", 4,
     "store.redis.password: a password does not belong in this file"},
    {"store:\n  type: redis\n  redis: {addresses: [\"h:1\"], username: u}\n", 3, "store.redis.username: is of no use"},
    {"store:\n  type: redis\n  redis: {addresses: [\"h:1\"], password_file: /nowhere/x}\n", 3, "No such file"},
    {"defaults: {deadline: 0}\n", 1, "defaults.deadline: '0' is too small; write 1ms to 1h"},
    {"defaults: {on_failure: open}\n", 1, "'open' is not known; did you mean allow?"},
    {"defaults: {on_failure: fail_closed}\n", 1, "'fail_closed' is not known; did you mean deny?"},
    {"defaults: {on_failure: ignore}\n", 1, "'ignore' is not known; write one of: allow deny local error"},
    {"log: {level: wraning}\n", 1, "log.level: 'wraning' is not known; did you mean warning?"},
    {"log: {denials: all}\n", 1, "log.denials: 'all' is not known; write one of: off first sampled"},
    {"log: {denials_per_second: 0}\n", 1, "log.denials_per_second: '0' is too small; write 1 to 1000"},
    {"keys: {in_log: plain}\n", 1, "keys.in_log: 'plain' is not known; write one of: none hash clear"},
    {"keys:\n  secret_file: /nowhere/x\n", 2, "keys.secret_file: /nowhere/x: No such file"},
    {"keys:\n  secret_file: /dev/null\n", 2, "keys.secret_file: /dev/null is not a regular file"},
    {"store:\n  type: memory\n  redis: {host: h}\n", 3,
     "store.redis.host: no such setting; write addresses: [\"HOST:PORT\"]"},
    {"store:\n  type: memory\n  redis: {port: 1}\n", 3,
     "store.redis.port: no such setting; write addresses: [\"HOST:PORT\"]"},
    {"store:\n  redis: {addresses: [\"h:1\"]}\n", 2, "store.redis.addresses: has no effect without store.type"},
    {"store:\n  redis:\n    merge: false\n    addresses: [\"h:1\"]\n", 3, "add the line `type: redis` below store:"},
    {POLICY("    algorithm: sliding_window\n" VALID), 3, "did you mean sliding_counter or sliding_log?"},
    {POLICY("    algorithm: fixed_window\n    limit: 5/m\n    window: 1s\n"), 4,
     "policies.p.limit: '5/m' is a rate; write limit: 5 with window: 1m"},
    {POLICY("    algorithm: fixed_window\n    limit: 100/90s\n    window: 1s\n"), 4,
     "write limit: 100 with window: 90s"},
    {POLICY("    algorithm: fixed_window\n    limit: 5/x\n    window: 1s\n"), 4, "'5/x' is not a whole number"},
    /* what later versions have */
    {"store: {type: redis, redis: {addresses: [\"localhost:1\"], breaker: {errors: -1}}}\n", 1,
     "store.redis.breaker.errors: "},
    {"store: {type: redis, redis: {addresses: [\"localhost:1\"], breaker: {probe_every: 1us}}}\n", 1,
     "store.redis.breaker.probe_every: "},
    {"store: {type: redis, redis: {addresses: [\"localhost:1\"], breaker: {probe_every: 1ms}}}\n", 1,
     "store.redis.breaker.probe_every: "},
    {TLS("{}"), 5, "store.redis.tls: is empty, and so would leave the connection in plain text; write ca_file: system"},
    {TLS(""), 5, "store.redis.tls: is empty, "},
    {TLS("true"), 5, "store.redis.tls: is not a map of settings"},
    {TLS("{ca_file: system, cert_file: /x}"), 5, "store.redis.tls.cert_file: needs its key; write key_file as well"},
    {TLS("{ca_file: system, key_file: /x}"), 5,
     "store.redis.tls.key_file: needs its certificate; write cert_file as well"},
    {TLS("{certfile: /x}"), 5, "store.redis.tls.certfile: no such setting; did you mean cert_file?"},
    {TLS("{server_name: .redis.example}"), 5,
     "store.redis.tls.server_name: '.redis.example' is no host; write its whole"},
    {TLS("{server_name: '*.redis.example'}"), 5, "store.redis.tls.server_name: '*.redis.example' is no host; "},
    {TLS("{server_name: redis..example}"), 5, "store.redis.tls.server_name: 'redis..example' is no host; "},
    {TLS("{server_name: \"redis.example:6380\"}"), 5, "store.redis.tls.server_name: 'redis.example:6380' is no host; "},
    {TLS("{server_name: \"[::1]\"}"), 5, "without *, port or brackets"},
    {TLS("{verify: perhaps}"), 5, "store.redis.tls.verify: 'perhaps' is "},
    {TLS("{ca_file: /nowhere}"), 5, "store.redis.tls.ca_file: /nowhere: No such file or directory; "},
    {TLS("{ca_file: /dev/null}"), 5, "store.redis.tls.ca_file: /dev/null is not a regular file; "},
    {"store:\n  type: redis\n  redis:\n    addresses: [\"unix:/x\"]\n    tls: {verify: none}\n", 5,
     "store.redis.tls: does not go with a Unix socket"},
    {"store: {type: redis, redis: {addresses: \"h:1\"}}\n", 1, /* as it said "write (null)" */
     "store.redis.addresses: is not a list; write it in brackets, e.g. [\"127.0.0.1:6379\"]"},
    {"inline: {allow: yes please}\n", 1, "inline.allow: 'yes please' is "},
    {"inline: {max_policies: 0}\n", 1, "inline.max_policies: '0' is too small; write 1 to 1000000"},
    {"admin: {listen: 127.0.0.1}\n", 1, "admin.listen: '127.0.0.1' is no address to listen on; "},
    {"admin: {allow_hosts: a.example}\n", 1, "admin.allow_hosts: is not a list; write names in brackets"},
    {"admin: {allow_hosts: [a, {b: c}]}\n", 1, "admin.allow_hosts: a map where one value is expected; "},
    {"defaults: {idempotency_window: 8d}\n", 1, "defaults.idempotency_window: "},
    {POLICY("    algorithm: fixed_window\n    shadow: perhaps\n" VALID), 4, "policies.p.shadow: "},
    /* candidates */
    {CANDIDATE("    candidate: 5\n"), 6, "policies.p.candidate: is not a list; "},
    {CANDIDATE("    candidate: []\n"), 6, "policies.p.candidate: has 0 entries; write 1 to 16"},
    {CANDIDATE("    candidate: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\n"), 6,
     "policies.p.candidate: has 16 entries; write 1 to 15, because a policy has at most 16 limits"},
    {CANDIDATE("    candidate:\n      - {algorithm: gcra, limit: 1, window: 1s}\n"), 7,
     "policies.p.candidate[0].name: is missing; "},
    {CANDIDATE("    candidate:\n      - " LIMIT_A "\n      - " LIMIT_A "\n"), 8,
     "policies.p.candidate[1].name: 'a' is the name of candidate[0] already; "},
    {CANDIDATE("    candidate:\n      - {name: a, compat: first-hit, limit: 1, window: 1s}\n"), 7,
     "policies.p.candidate[0].compat: shares another system's keys"},
    {CANDIDATE("    candidate:\n      - {name: a, algorithm: gcra, limit: 1, window: 1s, shadow: true}\n"), 7,
     "policies.p.candidate[0].shadow: is the policy's"},
    {CANDIDATE("    candidate:\n      - {name: a, algorithm: gcra, limit: 1, window: 0}\n"), 7,
     "policies.p.candidate[0].window: '0' is no time at all"},
    /* lists of limits */
    {LIMITS("{name: day, limit: 1, window: 1s}"), 4, "policies.p.limits[0].algorithm: is missing; "},
    {LIMITS("{name: day, algorithm: gcra, window: 1s}"), 4, "policies.p.limits[0].limit: is missing; "},
    {LIMITS("{algorithm: gcra, limit: 1, window: 1s}"), 4, "policies.p.limits[0].name: is missing; "},
    {LIMITS("{name: a/b, algorithm: gcra, limit: 1, window: 1s}"), 4, "limits[0].name: 'a/b' is not a name; "},
    {LIMITS(LIMIT_A "\n      - {name: a, algorithm: gcra, limit: 1, window: 1s}"), 5,
     "policies.p.limits[1].name: 'a' is the name of limits[0] already; "},
    {LIMITS("{name: a, compat: first-hit, limit: 1, window: 1s}"), 4,
     "policies.p.limits[0].compat: shares another system's keys"},
    {LIMITS("{name: a, algorithm: fixed-window-algo, limit: 1, window: 1s}"), 4,
     "policies.p.limits[0].algorithm: shares another system's keys"},
    {LIMITS("{name: a, algorithm: gcra, limit: 1, window: 1s, on_failure: deny}"), 4,
     "policies.p.limits[0].on_failure: is the policy's"},
    {LIMITS("{name: a, algorithm: gcra, limit: 1, window: 1s, by: [x]}"), 4,
     "policies.p.limits[0].by: needs key_format; "},
    {LIMITS("{name: a, algorithm: gcra, limit: 1, window: 1s, limt: 3}"), 4, "did you mean limit?"},
    {LIMITS("{name: a, algorithm: gcra, limit: 1, window: 1s, zzz: 3}"), 4, "no such setting; a limit has name, "},
    {LIMITS("{name: a, algorithm: gcra, limit: 9007199254740991, window: 1s}"), 4, "policies.p.limits[0].limit: "},
    {LIMITS("{name: a, algorithm: gcra, limit: 0, window: 1s, burst: 2}"), 4,
     "policies.p.limits[0].burst: means nothing with limit: 0"},
    {LIMITS("5"), 4, "policies.p.limits[0]: is not a map; write {name: "},
    {LIMITS(LIMIT_A) "    window: 1s\n", 5, "policies.p.window: does not go with limits; "},
    {LIMITS(LIMIT_A) "    compat: first-hit\n", 5, "policies.p.compat: does not go with limits; "},
    {LIMITS(LIMIT_A) "    local_share: 0\n", 5,
     "policies.p.local_share: '0' is neither live nor a number from 1 to 1000000; write one of the two"},
    {LIMITS(LIMIT_A) "    local_share: -1\n", 5, "policies.p.local_share: '-1' is neither live nor a number"},
    {LIMITS(LIMIT_A) "    local_share: lively\n", 5, "policies.p.local_share: 'lively' is neither live nor a number"},
    {LIMITS(LIMIT_A) "    local_share: 2\n    on_failure: deny\n", 5,
     "policies.p.local_share: is for on_failure: local, and this policy's is deny; leave it out, or write on_failure: "
     "local"},
    {LIMITS("{name: a, algorithm: gcra, limit: 1, window: 1s, local_share: 2}"), 4,
     "policies.p.limits[0].local_share: is the policy's"},
    {"defaults: {local_share: 0}\n", 1, "defaults.local_share: '0' is neither live nor a number from 1 to 1000000"},
    {"defaults: {local_share: 1000001}\n", 1, "defaults.local_share: '1000001' is neither live nor a number"},
    {LIMITS(LIMIT_A) "    merge_back: true\n    on_failure: deny\n", 5,
     "policies.p.merge_back: is for on_failure: local, and this policy's is deny; leave it out, or write on_failure: "
     "local"},
    {LIMITS(LIMIT_A) "    merge_back: often\n", 5, "policies.p.merge_back: 'often' is"},
    {LIMITS("{name: a, algorithm: gcra, limit: 1, window: 1s, merge_back: true}"), 4,
     "policies.p.limits[0].merge_back: is the policy's"},
    {LIMITS("{name: a, algorithm: concurrency, limit: 1}") "    merge_back: true\n", 4,
     "policies.p.limits[0]: merge_back is not for policies with a concurrency limit, whose slots are held and not used "
     "up; leave one of them out"},
    {LIMITS("{name: a, algorithm: leaky_bucket, limit: 1, window: 1s, max_wait: 1s}") "    merge_back: true\n", 4,
     "policies.p.limits[0]: merge_back is not for policies with max_wait, where later checks wait for the units that "
     "are charged; leave one of them out"},
    {POLICY("    algorithm: fixed_window\n    lease: 1h\n" VALID), 4, "policies.p.lease: "},
    {POLICY("    algorithm: fixed_window\n    lease: 1s\n    count_denied: true\n" VALID), 4,
     "policies.p.lease: is not for limits with count_denied"},
    {POLICY("    algorithm: fixed_window\n    lease: 1s\n    counts: checks\n" VALID), 5,
     "policies.p.counts: must be units with lease, which takes units ahead; leave one of them out"},
    {POLICY("    algorithm: fixed_window\n    counts: requests\n" VALID), 4, "policies.p.counts: 'requests' is "},
    {POLICY("    algorithm: concurrency\n    limit: 1\n    counts: checks\n"), 5,
     "policies.p.counts: is not a setting of concurrency; leave it out (it belongs to policies without compat, and not "
     "to "
     "concurrency"},
    {POLICY("    compat: first-hit\n    counts: checks\n" VALID), 4,
     "policies.p.counts: is not a setting of first-hit"},
    {LIMITS(LIMIT_A) "    counts: checks\n", 5, "policies.p.counts: does not go with limits"},
    {POLICY("    algorithm: sliding_log\n    lease: 1s\n" VALID), 4,
     "policies.p.lease: is not a setting of sliding_log"},
    {POLICY("    algorithm: leaky_bucket\n    lease: 1s\n" VALID), 4,
     "policies.p.lease: is not a setting of leaky_bucket"},
    {POLICY("    algorithm: gcra\n    lease: 1s\n    shadow: true\n" VALID), 5,
     "policies.p.shadow: is not for policies with lease"},
    {LIMITS(LIMIT_A) "    lease: 1s\n", 5, "policies.p.lease: does not go with limits"},
    {LIMITS("{name: a, algorithm: gcra, limit: 1, window: 1s, lease: 1s}\n"
            "      - {name: b, algorithm: gcra, limit: 1, window: 1s}"),
     3, "policies.p.limits: has several limits, and lease is for policies of one"},
    {POLICY("    algorithm: gcra\n    lease: 1s\n    candidate: [{name: c, algorithm: gcra, limit: 1, window: "
            "1s}]\n" VALID),
     5, "policies.p.candidate: is not for policies with lease"},
    {LIMITS(LIMIT_A) "    name: a\n", 5, "policies.p.name: names one of several limits"},
    {POLICY("    limits: []\n"), 3, "policies.p.limits: has 0 entries; write 1 to 16"},
    {POLICY("    limits: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]\n"), 3, "has 17 entries"},
    {POLICY("    limits: {a: 1}\n"), 3, "policies.p.limits: is not a list; "},
    {POLICY("    limits: 5\n"), 3, "policies.p.limits: is not a list; "},
    /* policies */
    {"policies: [a]\n", 1, "policies: is not a map"},
    {"policies:\n  \"a b\": {algorithm: fixed_window, limit: 1, window: 1s}\n", 2, "policies.a b: is not a name"},
    {"policies:\n  p: 5\n", 2, "policies.p: is not a map of settings"},
    {POLICY(VALID), 2, "policies.p.algorithm: is missing; write algorithm: and one of token_bucket, fixed_window"},
    {POLICY("    algorithm: fixed-window\n" VALID), 3, "'fixed-window' is not known; did you mean fixed_window?"},
    {POLICY("    algorithm: magic\n" VALID), 3, "'magic' is not known; write one of token_bucket, fixed_window"},
    {POLICY("    algorithm: fixed_window\n    window: 1s\n"), 2, "policies.p.limit: is missing; "},
    {POLICY("    algorithm: fixed_window\n    limit: 1\n"), 2, "policies.p.window: is missing; "},
    {POLICY("    algorithm: fixed_window\n    limit: 1\n    window: 0\n"), 5,
     "policies.p.window: '0' is no time at all"},
    {POLICY("    algorithm: fixed_window\n    limit: 1\n    window: 10\n"), 5, "'10' is a duration without its unit"},
    {POLICY("    algorithm: fixed_window\n    limit: -1\n    window: 1s\n"), 4, "'-1' is not a whole number"},
    {POLICY("    algorithm: fixed_window\n    limit: 9007199254740991\n    window: 1s\n"), 4, "policies.p.limit: "},
    {POLICY("    algorithm: fixed_window\n    burst: 5\n" VALID), 4,
     "policies.p.burst: is not a setting of fixed_window; leave it out (it belongs to token_bucket, gcra and "
     "leaky_bucket)"},
    {POLICY("    algorithm: token_bucket\n    start: aligned\n" VALID), 4, "it belongs to fixed_window)"},
    {POLICY("    algorithm: gcra\n    count_denied: true\n" VALID), 4, "it belongs to fixed_window and sliding_log)"},
    {POLICY("    algorithm: token_bucket\n    max_wait: 1s\n" VALID), 4, "it belongs to leaky_bucket)"},
    {POLICY("    algorithm: leaky_bucket\n    max_wait: 5\n" VALID), 4, "'5' is a duration without its unit"},
    {POLICY("    algorithm: leaky_bucket\n    max_wait: 100000d\n" VALID), 4,
     "policies.p.max_wait: cannot be counted exactly with this limit, window and burst; write at most "
     "999999999000000us"},
    {POLICY("    algorithm: leaky_bucket\n    limit: 0\n    window: 1s\n    max_wait: 1s\n"), 6,
     "policies.p.max_wait: with limit 0 means nothing"},
    {POLICY("    algorithm: sliding_counter\n    key_prefix: x\n" VALID), 4, "it belongs to compat policies)"},
    {POLICY("    algorithm: sliding_counter\n    limit: 200000000\n    window: 1d\n"), 4,
     "policies.p.limit: 200000000 cannot be counted exactly with this window; write limit: 0 to 104249991"},
    {POLICY("    algorithm: fixed_window\n    key_prefix: x\n" VALID), 4, "it belongs to compat policies)"},
    {POLICY("    algorithm: fixed_window\n    start: never\n" VALID), 4, "write one of: aligned first_hit"},
    {POLICY("    algorithm: fixed_window\n    phase: maybe\n" VALID), 4,
     "policies.p.phase: 'maybe' is neither true nor"},
    {POLICY("    algorithm: fixed_window\n    start: first_hit\n    phase: true\n" VALID), 5,
     "policies.p.phase: is for windows that all begin at once, of which this policy has none; leave it out, or write "},
    {POLICY("    compat: first-hit\n    phase: true\n" VALID), 4, "policies.p.phase: is for windows that all begin at"},
    {LIMITS(LIMIT_A) "    phase: true\n", 5, "policies.p.phase: is for windows that all begin at once"},
    {LIMITS("{name: a, algorithm: fixed_window, limit: 1, window: 1s, phase: true}"), 4,
     "policies.p.limits[0].phase: is the policy's, not a limit's; write it next to limits"},
    /* calendars */
    {CALENDAR("    window: 1d\n"), 5, "policies.p.window: '1d' is not known; write one of: hour day week month year"},
    {CALENDAR("    timezone: UTC\n"), 2,
     "policies.p.window: is missing; write how long a window is, e.g. window: 10s, "},
    {CALENDAR("    window: day\n    timezone: Europe/Berln\n"), 6,
     "policies.p.timezone: 'Europe/Berln' is not known; did you mean Europe/Berlin?"},
    {CALENDAR("    window: day\n    timezone: berlin\n"), 6, "'berlin' is not known; did you mean Europe/Berlin?"},
    {CALENDAR("    window: day\n    timezone: Mitteleuropaeische Zeit/Standard\n"), 6,
     "is not among the time zones of this system (/usr/share/zoneinfo); write a name such as Europe/Berlin, or install "
     "tzdata (old names: tzdata-legacy)"},
    {CALENDAR("    window: day\n    timezone: [UTC]\n"), 6, "policies.p.timezone: "},
    {CALENDAR("    window: week\n    week_start: mon\n"), 6, "'mon' is not known; write one of: monday tuesday"},
    {CALENDAR("    window: day\n    week_start: monday\n"), 6,
     "policies.p.week_start: is of no use with this window; leave it out, or write window: week"},
    {CALENDAR("    window: day\n    burst: 3\n"), 6, "policies.p.burst: is not a setting of calendar_window"},
    {CALENDAR("    window: day\n    count_denied: true\n"), 6,
     "policies.p.count_denied: is not a setting of calendar_"},
    {CALENDAR("    window: day\n    start: aligned\n"), 6, "policies.p.start: is not a setting of calendar_window"},
    {CALENDAR("    window: day\n    phase: true\n"), 6, "policies.p.phase: is for windows that all begin at once"},
    {CALENDAR("    window: day\n    overrides: [{key: a, window: 1d}]\n"), 6,
     "policies.p.overrides[0].window: is the same for every key with calendar_window; override its limit"},
    {POLICY("    algorithm: fixed_window\n    limit: 1\n    window: day\n"), 5,
     "policies.p.window: 'day' is a window of calendar_window; write that algorithm, or a duration, e.g. 1h or 1d"},
    {POLICY("    algorithm: fixed_window\n    timezone: UTC\n" VALID), 4, "it belongs to calendar_window)"},
    {POLICY("    algorithm: fixed_window\n    week_start: monday\n" VALID), 4, "it belongs to calendar_window"},
    {POLICY("    algorithm: token_bucket\n    limit: 0\n    window: 1s\n    burst: 5\n"), 6,
     "policies.p.burst: means nothing with limit: 0"},
    {POLICY("    algorithm: token_bucket\n    burst: 0\n" VALID), 4, "policies.p.burst: '0' is too small"},
    {POLICY("    algorithm: fixed_window\n    deadline: 0\n" VALID), 4, "policies.p.deadline: '0' is too small"},
    {POLICY("    algorithm: fixed_window\n    limt: 3\n" VALID), 4,
     "policies.p.limt: no such setting; did you mean limit?"},
    {POLICY("    algorithm: fixed_window\n    zzz: 3\n" VALID), 4, "policies.p.zzz: no such setting; a policy has"},
    {"policies:\n  p: {algorithm: fixed_window, limit: 1, window: 1s}\n  p: {}\n", 3, "policies.p: is written twice"},
};

static void each_fault_is_reported_with_its_line_and_its_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct faults faults;
        char line[512];
        assert_null(config_from(refused[i].text, &faults));
        assert_true(faults.n > 0);
        faults_line(line, sizeof line, "F", &faults.items[0]);
        if (faults.n != 1 || faults.items[0].line != refused[i].line || strstr(line, refused[i].says) == NULL)
            fail_msg("%s: %zu faults: %s", refused[i].text, faults.n, line);
        faults_fini(&faults);
    }
}

static void every_fault_of_a_file_is_reported_in_order(void **state)
{
    (void)state;
    struct faults faults;
    assert_null(config_from("policies:\n  a: {algorithm: fixed_window, limit: x, window: 1}\n  b: {limit: 1}\n"
                            "listen: {mode: z}\nzzz: 1\n",
                            &faults));
    static const uint32_t lines[] = {2, 2, 3, 3, 4, 5};
    assert_int_equal(faults.n, sizeof lines / sizeof lines[0]);
    for (size_t i = 0; i < faults.n; i++) assert_int_equal(faults.items[i].line, lines[i]);
    char line[256];
    assert_string_equal(faults_line(line, sizeof line, "f.yaml", &faults.items[0]),
                        "f.yaml:2: policies.a.limit: 'x' is not a whole number; write digits only, e.g. 100");
    faults_fini(&faults);
}

/* Each of these limits has two independent faults; both are reported. */
static void the_second_fault_of_one_limit_is_reported_with_the_first(void **state)
{
    (void)state;
    static const struct {
        const char *limit, *first, *second;
    } limits[] = {
        {"{algorithm: fixed_window, limit: 9007199254740991, window: 1500us}", "p.window: must be whole milliseconds",
         "p.limit: must be 0 to "},
        {"{algorithm: fixed_window, limit: x, window: 1500us}", "p.limit: 'x' is not", "p.window: must be whole"},
        {"{algorithm: sliding_log, limit: 99999999999, window: 10}", "p.window: '10' is a duration",
         "p.limit: must be 0"},
        {"{algorithm: concurrency, limit: 99999999999, slot_ttl: 1ms}", "p.limit: must be 0", "p.slot_ttl: must be 1s"},
        {"{algorithm: concurrency, limit: 99999999999, window: 1s}", "p.window: is not a setting",
         "p.limit: must be 0"},
        {"{algorithm: token_bucket, limit: 5, window: 1s, start: aligned, burst: 9007199254740990}",
         "p.start: is not a setting", "p.burst: 9007199254740990 (default: limit) cannot be counted exactly"},
        {"{algorithm: leaky_bucket, limit: 5, window: 1s, burst: 9007199254740990, max_wait: 100000d}",
         "p.burst: 9007199254740990 (default: limit) cannot be counted", "p.max_wait: cannot be counted exactly"},
        {"{compat: first-hit, limit: 9007199254740990, window: 1500ms}", "p.window: must be whole seconds",
         "p.limit: must be 0 to"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char text[256];
        struct faults faults;
        snprintf(text, sizeof text, "store: {type: redis, redis: {addresses: [\"h:1\"]}}\npolicies:\n  p: %s\n",
                 limits[i].limit);
        assert_null(config_from(text, &faults));
        if (faults.n != 2 || strstr(faults.items[0].text, limits[i].first) == NULL ||
            strstr(faults.items[1].text, limits[i].second) == NULL)
            fail_msg("%s: %zu faults: %s; %s", text, faults.n, faults.items[0].text,
                     faults.n > 1 ? faults.items[1].text : "");
        faults_fini(&faults);
    }
}

/* A fault that only follows from another wrong value is not reported. */
static void a_fault_that_follows_from_another_is_not_reported(void **state)
{
    (void)state;
    static const char *const limits[] = {
        "{algorithm: token_bucket, limit: x, window: 1s, burst: 9007199254740990}",
        "{algorithm: token_bucket, limit: 5, window: 10, burst: 9007199254740990}",
        "{algorithm: fixed_window, limit: 5, window: 1s, burst: 3}",
        "{algorithm: token_bucket, limit: 5, window: 1s, start: first_hit}",
        "{algorithm: token_bucket, limit: 0, window: 1s, burst: 3}",
        "{algorithm: calendar_window, limit: 5, window: day, timezone: Europe/Berln}",
        "{algorithm: gcra, limit: 5, window: 1s, key_prefix: x}",
        "{algorithm: gcra, limit: 5, window: 1s, key_prefix: ''}",
        "{algorithm: gcra, limit: 5, window: 1s, start: never}",
        "{algorithm: sliding_log, limit: 5, window: 1s, burst: x}",
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char text[256];
        struct faults faults;
        snprintf(text, sizeof text, "policies:\n  p: %s\n", limits[i]);
        assert_null(config_from(text, &faults));
        if (faults.n != 1) fail_msg("%s: %zu faults: %s", text, faults.n, faults.items[1].text);
        faults_fini(&faults);
    }
}

static void settings_of_redis_may_be_written_with_a_memory_store(void **state)
{
    (void)state;
    struct config *config = config_of("store:\n  redis: {addresses: [\"h:1\"], merge: false}\n  type: memory\n");
    assert_int_equal(config->store_type, STORE_TYPE_MEMORY);
    config_free(config);
    config_free(config_of("store:\n  redis: {}\n"));
    config_free(config_of("store:\n  memory: {max_keys: 5}\n"));
}

static void a_socket_path_has_at_most_107_bytes(void **state)
{
    (void)state;
    char text[256];
    struct faults faults;
    snprintf(text, sizeof text, "listen:\n  socket: /%0106d\n", 0);
    config_free(config_of(text));
    snprintf(text, sizeof text, "listen:\n  socket: /%0107d\n", 0);
    assert_null(config_from(text, &faults));
    assert_non_null(strstr(faults.items[0].text, "is 108 bytes long; write 1 to 107 bytes"));
    faults_fini(&faults);
}

/* Printing */

static void what_is_printed_parses_back_to_the_same(void **state)
{
    (void)state;
    static const char *const files[] = {
        "",
        "policies: {}\n",
        "store: {type: memory, redis: {addresses: [\"h:1\"], tls: {verify: ca, server_name: redis, ca_file: "
        "system}}}\n",
        "store: {type: memory, redis: {addresses: [\"h:1\"], tls: {verify: full}}}\n",
        "store: {type: memory, redis: {topology: sentinel, master_name: m, addresses: [\"h:1\"], sentinel: "
        "{plain_text: "
        "true}}}\n",
        "store: {type: memory, redis: {topology: sentinel, master_name: m, addresses: [\"h:1\"], sentinel: {tls: "
        "{verify: ca}}}}\n",
        "listen: {socket: '/tmp/a \"b\" \\c.sock', group: \"0\"}\nstore:\n  type: memory\n  redis:\n    addresses: "
        "[\"unix:/x\"]\n"
        "    key_prefix: \"#1\"\n"
        "    username: u\n    password_file: ${CREDENTIALS_DIRECTORY}/redis\ncaps: {max_key: 1025B}\n"
        "policies:\n  \"1.0\": {algorithm: fixed_window, limit: 5, window: 10s, count_denied: true}\n"
        "  null: {algorithm: fixed_window, start: first_hit, limit: 5, window: 10s}\n"
        "  api: {algorithm: gcra, limit: 100, window: 90s, burst: 20, on_failure: allow}\n"
        "  log: {algorithm: sliding_log, limit: 7, window: 1500us, deadline: 5ms}\n"
        "  count: {algorithm: sliding_counter, limit: 9, window: 1m}\n"
        "  queue: {algorithm: leaky_bucket, limit: 9, window: 1m, burst: 2, max_wait: 1500us}\n"
        "  still: {algorithm: leaky_bucket, limit: 0, window: 1m}\n"
        "  never: {algorithm: token_bucket, limit: 0, window: 1s}\n"
        "  search:\n    on_failure: allow\n    limits:\n      - {name: second, algorithm: gcra, limit: 10, window: 1s, "
        "burst: 3}\n      - {name: \"null\", algorithm: sliding_log, limit: 7, window: 1m, count_denied: true}\n"
        "      - {name: never, algorithm: fixed_window, start: first_hit, limit: 0, window: 1h}\n"
        "  one: {limits: [{name: day, algorithm: fixed_window, limit: 5, window: 1d}]}\n"
        "  day: {algorithm: calendar_window, limit: 5, window: day}\n"
        "  week: {algorithm: calendar_window, limit: 5, window: week, timezone: Asia/Kolkata, week_start: sunday}\n"
        "  spread: {algorithm: fixed_window, limit: 5, window: 10s, phase: true}\n"
        "  both: {limits: [{name: a, algorithm: gcra, limit: 5, window: 1s}, {name: b, algorithm: fixed_window, limit: "
        "5, "
        "window: 1s}], phase: true}\n"
        "  tried: {algorithm: gcra, limit: 5, window: 1d, shadow: true, candidate: [{name: a, algorithm: "
        "sliding_log, limit: 3, window: 1d}, {name: b, algorithm: leaky_bucket, limit: 3, window: 1d, max_wait: 1s}]}\n"
        "  twice: {limits: [{name: a, algorithm: gcra, limit: 5, window: 1d}], candidate: [{name: a, algorithm: gcra, "
        "limit: "
        "6, window: 1d}]}\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct config *first = config_of(files[i]);
        char *once = text_of(first);
        struct config *second = config_of(once);
        char *twice = text_of(second);
        assert_string_equal(once, twice);
        assert_int_equal(first->policies->n, second->policies->n);
        for (size_t j = 0; j < first->policies->n; j++)
            assert_int_equal(first->policies->in_order[j]->version, second->policies->in_order[j]->version);
        for (size_t j = 0; j < N_SETTINGS; j++) {
            assert_true(setting_equal(&daemon_settings[j], first, second));
            assert_non_null(strstr(once, strrchr(daemon_settings[j].name, '.') + 1));
        }
        config_free(first);
        config_free(second);
        free(once);
        free(twice);
    }
}

static void a_reload_names_what_needs_a_restart(void **state)
{
    (void)state;
    char names[512] = "";
    struct config *was = config_of("");
    struct config *is = config_of("listen: {socket: /x, idle_timeout: 9s}\nstore:\n  type: memory\n  redis: "
                                  "{key_prefix: k, database: 2, merge: false}\n");
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (!(daemon_settings[i].uses & USE_RELOAD) && !setting_equal(&daemon_settings[i], was, is))
            strcat(strcat(names, daemon_settings[i].name), " ");
    assert_string_equal(names, "listen.socket store.redis.key_prefix ");
    config_free(was);
    config_free(is);
}

/* Secrets */

struct secret_file {
    char path[64];
    char yaml[256];
};

static struct secret_file secret_file(const char *content, mode_t mode)
{
    struct secret_file file = {.path = "/tmp/rl-secret-XXXXXX"};
    int fd = mkstemp(file.path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    snprintf(file.yaml, sizeof file.yaml,
             "store:\n  type: redis\n  redis:\n    addresses: [\"h:1\"]\n    password_file: %s\n", file.path);
    return file;
}

static void a_password_comes_from_its_file_without_the_newline(void **state)
{
    (void)state;
    struct secret_file file = secret_file("s3cret\n", 0640);
    struct config *config = config_of(file.yaml);
    assert_string_equal(config->redis_password, "s3cret");
    char *text = text_of(config);
    assert_null(strstr(text, "s3cret"));
    free(text);
    config_free(config);
    unlink(file.path);
}

static void the_secret_of_hashed_keys_is_read_and_never_printed(void **state)
{
    (void)state;
    struct secret_file file = secret_file("s3cret\n", 0600);
    char yaml[256];
    snprintf(yaml, sizeof yaml, "keys: {secret_file: %s}\n", file.path);
    struct config *config = config_of(yaml);
    assert_string_equal(config->keys_secret, "s3cret");
    char *text = text_of(config);
    assert_null(strstr(text, "s3cret"));
    assert_non_null(strstr(text, file.path));
    free(text);
    config_forget_secrets(config);
    assert_null(config->keys_secret);
    config_free(config);

    struct faults faults;
    assert_int_equal(truncate(file.path, 0), 0);
    assert_null(config_from(yaml, &faults));
    assert_non_null(strstr(faults.items[0].text, "holds no secret; write it into the file"));
    faults_fini(&faults);
    unlink(file.path);
}

static void a_password_file_may_be_a_symbolic_link(void **state)
{
    (void)state;
    struct secret_file file = secret_file("a b", 0600);
    char link[80], yaml[256];
    snprintf(link, sizeof link, "%s.link", file.path);
    assert_int_equal(symlink(file.path, link), 0);
    snprintf(yaml, sizeof yaml, "store:\n  type: redis\n  redis: {addresses: [\"h:1\"], password_file: %s}\n", link);
    struct config *config = config_of(yaml);
    assert_string_equal(config->redis_password, "a b");
    config_free(config);
    unlink(link);
    unlink(file.path);
}

static void a_password_that_everybody_may_read_is_a_warning(void **state)
{
    (void)state;
    struct secret_file file = secret_file("x", 0644);
    struct faults faults;
    struct config *config = config_from(file.yaml, &faults);
    assert_non_null(config);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.items[0].code, FAULT_WARNING);
    assert_int_equal(faults.items[0].line, 5);
    assert_non_null(strstr(faults.items[0].text, "can be read by everybody"));
    faults_fini(&faults);
    config_free(config);
    unlink(file.path);
}

static void what_is_no_password_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        mode_t mode;
        const char *says;
    } table[] = {{"x", 0602, "can be written by everybody"},
                 {"", 0600, "holds no password"},
                 {"\n", 0600, "holds no password"},
                 {"a\nb\n", 0600, "more than one line"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct secret_file file = secret_file(table[i].content, table[i].mode);
        struct faults faults;
        assert_null(config_from(file.yaml, &faults));
        assert_non_null(strstr(faults.items[0].text, table[i].says));
        faults_fini(&faults);
        unlink(file.path);
    }
}

static void systemd_says_where_credentials_are(void **state)
{
    (void)state;
    static const char yaml[] = "store:\n  type: redis\n  redis:\n    addresses: [\"h:1\"]\n"
                               "    password_file: ${CREDENTIALS_DIRECTORY}/redis-password\n";
    struct faults faults;
    unsetenv("CREDENTIALS_DIRECTORY");
    assert_null(config_from(yaml, &faults));
    assert_non_null(strstr(faults.items[0].text, "CREDENTIALS_DIRECTORY is not set"));
    faults_fini(&faults);

    faults_init(&faults);
    struct config *config = config_parse(yaml, sizeof yaml - 1, CONFIG_DRY_RUN, &faults);
    assert_non_null(config); /* a trial outside the service */
    assert_int_equal(faults.n, 1);
    config_free(config);
    faults_fini(&faults);

    char directory[] = "/tmp/rl-cred-XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/redis-password", directory);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("pw\n", out);
    fclose(out);
    chmod(path, 0400);
    setenv("CREDENTIALS_DIRECTORY", directory, 1);
    config = config_of(yaml);
    assert_string_equal(config->redis_password, "pw");
    config_free(config);
    unsetenv("CREDENTIALS_DIRECTORY");
    unlink(path);
    rmdir(directory);
}

/* Files and memory */

static void a_file_is_read_or_the_error_is_reported(void **state)
{
    (void)state;
    struct faults faults;
    char line[256];
    faults_init(&faults);
    assert_null(config_load("/nowhere/x.yaml", CONFIG_START, &faults));
    assert_string_equal(
        faults_line(line, sizeof line, "/nowhere/x.yaml", &faults.items[0]),
        "/nowhere/x.yaml: cannot be read: No such file or directory; write the path of a readable file");
    faults_fini(&faults);
    faults_init(&faults);
    assert_null(config_load("/tmp", CONFIG_START, &faults));
    assert_non_null(strstr(faults.items[0].text, "Is a directory"));
    faults_fini(&faults);
    struct secret_file file = secret_file("policies: {}\n", 0602);
    faults_init(&faults);
    assert_null(config_load(file.path, CONFIG_START, &faults));
    assert_non_null(strstr(faults.items[0].text, "can be written by everybody"));
    faults_fini(&faults);
    chmod(file.path, 0644);
    faults_init(&faults);
    struct config *config = config_load(file.path, CONFIG_START, &faults);
    assert_non_null(config);
    config_free(config);
    faults_fini(&faults);
    unlink(file.path);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] =
        "listen: {group: root}\nstore:\n  type: memory\n  redis:\n    addresses: [\"h:1\"]\npolicies:\n"
        "  a: {algorithm: fixed_window, limit: 1, window: 1s}\n"
        "  b: {algorithm: token_bucket, limit: 1, window: 1s}\n";
    bool succeeded = false;
    for (uint64_t nth = 1; nth < 1000 && !succeeded; nth++) {
        struct faults faults;
        faults_init(&faults);
        mem_fail_nth(nth);
        struct config *config = config_parse(text, sizeof text - 1, CONFIG_START, &faults);
        succeeded = config != NULL && faults.n_errors == 0;
        assert_true(succeeded || faults.n_errors > 0);
        mem_fail_nth(0);
        assert_true(config == NULL || succeeded);
        config_free(config);
        faults_fini(&faults);
    }
    assert_true(succeeded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_there_is_one_policy_on_the_memory_store),
        cmocka_unit_test(a_policy_has_up_to_16_limits),
        cmocka_unit_test(the_default_policy_stands_in_only_for_a_missing_list),
        cmocka_unit_test(the_defaults_are_those_of_the_interface),
        cmocka_unit_test(a_whole_file_becomes_values),
        cmocka_unit_test(only_presets_take_a_key_prefix),
        cmocka_unit_test(each_fault_is_reported_with_its_line_and_its_key),
        cmocka_unit_test(every_fault_of_a_file_is_reported_in_order),
        cmocka_unit_test(the_second_fault_of_one_limit_is_reported_with_the_first),
        cmocka_unit_test(a_fault_that_follows_from_another_is_not_reported),
        cmocka_unit_test(settings_of_redis_may_be_written_with_a_memory_store),
        cmocka_unit_test(a_socket_path_has_at_most_107_bytes),
        cmocka_unit_test(what_is_printed_parses_back_to_the_same),
        cmocka_unit_test(a_reload_names_what_needs_a_restart),
        cmocka_unit_test(a_password_comes_from_its_file_without_the_newline),
        cmocka_unit_test(the_secret_of_hashed_keys_is_read_and_never_printed),
        cmocka_unit_test(a_password_file_may_be_a_symbolic_link),
        cmocka_unit_test(a_password_that_everybody_may_read_is_a_warning),
        cmocka_unit_test(what_is_no_password_is_refused),
        cmocka_unit_test(systemd_says_where_credentials_are),
        cmocka_unit_test(a_file_is_read_or_the_error_is_reported),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
