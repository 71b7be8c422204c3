/* test_config_cluster.c: settings of a Redis Cluster, and what does not go with one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/config_text.h"

#define CLUSTER(more)                                                                                                  \
    "store:\n  type: redis\n  redis:\n    topology: cluster\n    addresses: [\"a:1\", \"[::1]:2\"]\n" more
#define PLAIN "policies:\n  p: {algorithm: gcra, limit: 1, window: 1s}\n"

static void a_cluster_has_several_addresses_and_256_buckets(void **state)
{
    (void)state;
    struct config *config = config_of(PLAIN CLUSTER(""));
    assert_int_equal(config->store_redis_topology, TOPOLOGY_CLUSTER);
    assert_string_equal(config->store_redis_addresses, "a:1\n[::1]:2");
    assert_int_equal(config->store_redis_buckets, 256);
    config_free(config);
    config_free(config_of(PLAIN CLUSTER("    buckets: 1000\n    database: 0\n")));
}

static const struct {
    const char *text;
    uint32_t line;
    const char *says;
} refused[] = {
    {PLAIN CLUSTER("    database: 3\n"), 8, "store.redis.database: is not 0, and a cluster has no other database"},
    {PLAIN CLUSTER("    buckets: 1001\n"), 8, "store.redis.buckets: '1001' is too large; write 1 to 1000"},
    {PLAIN CLUSTER("    buckets: 0\n"), 8, "store.redis.buckets: '0' is too small; write 1 to 1000"},
    {PLAIN CLUSTER("    calls: node\n"), 8, "store.redis.calls: 'node' is not known; write one of: auto slot"},
    {PLAIN CLUSTER("    master_name: m\n"), 8, "store.redis.master_name: has no effect without topology: sentinel"},
    {PLAIN "store:\n  type: redis\n  redis:\n    topology: cluster\n    addresses: [\"unix:/x\"]\n", 7,
     "'unix:/x': a cluster names its servers by host and port; write host:port"},
    {PLAIN "store:\n  type: redis\n  redis:\n    topology: cluster\n", 4, "store.redis.addresses: is needed"},
    {PLAIN "store:\n  type: redis\n  redis:\n    addresses: [\"a:1\", \"b:1\"]\n", 6,
     "or topology: cluster if they are a cluster's"},
    {"policies:\n  q: {algorithm: gcra, limit: 1, window: 1s}\n"
     "  p: {compat: window-start-millis, limit: 1, window: 1s}\n" CLUSTER(""),
     3, "policies.p: is compat: window-start-millis, whose script makes the key's name out of Redis' clock"},
    {"policies:\n  p: {algorithm: fixed-window-algo, limit: 1, window: 1s}\n" CLUSTER(""), 2,
     "policies.p: is compat: rlaas-fixed"},
};

static void what_a_cluster_cannot_do_is_refused(void **state)
{
    (void)state;
    char line[512];
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct faults faults;
        assert_null(config_from(refused[i].text, &faults));
        faults_line(line, sizeof line, "F", &faults.items[0]);
        if (faults.n != 1 || faults.items[0].line != refused[i].line || strstr(line, refused[i].says) == NULL)
            fail_msg("%s: %zu faults: %s", refused[i].text, faults.n, line);
        faults_fini(&faults);
    }
}

static void other_presets_go_with_a_cluster(void **state)
{
    (void)state;
    config_free(config_of("policies:\n  a: {compat: first-hit, limit: 1, window: 1s}\n"
                          "  b: {compat: rlaas-sliding, limit: 1, window: 1s}\n" CLUSTER("")));
}

#define TENANTS(by)                                                                                                    \
    "policies:\n  p:\n    key_format: '{tenant}:{user}'\n    limits:\n"                                                \
    "      - {name: user, algorithm: gcra, limit: 1, window: 1s}\n"                                                    \
    "      - {name: more, algorithm: gcra, limit: 9, window: 1s, by: " by "}\n"

static void a_policy_whose_counters_are_all_on_one_server_is_a_warning(void **state)
{
    (void)state;
    struct faults faults;
    struct config *config = config_from(TENANTS("[]") CLUSTER(""), &faults);
    assert_non_null(config);
    assert_int_equal(faults.n, 1);
    assert_int_equal(faults.items[0].code, FAULT_WARNING);
    assert_int_equal(faults.items[0].line, 2);
    assert_non_null(strstr(faults.items[0].text, "policies.p: counts by no part of the key in common (by)"));
    config_free(config);
    faults_fini(&faults);
    config_free(config_of(TENANTS("[tenant]") CLUSTER("")));
    config_free(config_of(TENANTS("[]") "store: {type: redis, redis: {addresses: [\"h:1\"]}}\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cluster_has_several_addresses_and_256_buckets),
        cmocka_unit_test(what_a_cluster_cannot_do_is_refused),
        cmocka_unit_test(other_presets_go_with_a_cluster),
        cmocka_unit_test(a_policy_whose_counters_are_all_on_one_server_is_a_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
