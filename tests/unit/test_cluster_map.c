/* test_cluster_map.c: maps and redirects, as honest servers write them, and as broken or hostile ones do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "redis/cluster_map.h"

static const struct cluster_sender plain = {.host = "10.0.0.9"}, secure = {.host = "redis.example", .is_tls = true};
static struct cluster_map map;
static char fault[CLUSTER_FAULT_SIZE];

/* ---- replies, written as JSON is: lists, "texts", numbers, null ---- */

static char resp[1 << 20];

static const char *put_value(const char *json, char **to);

static const char *put_list(const char *json, char **to)
{
    char head[16], *end = *to;
    size_t n = 0;
    for (json++; *json != ']'; n++) {
        json = put_value(json, &end);
        json += strspn(json, ", \n");
    }
    int len = sprintf(head, "*%zu\r\n", n);
    memmove(*to + len, *to, (size_t)(end - *to));
    memcpy(*to, head, (size_t)len);
    *to = end + len;
    return json + 1;
}

static const char *put_value(const char *json, char **to)
{
    json += strspn(json, " ");
    if (*json == '[') return put_list(json, to);
    if (*json == 'n') {
        *to += sprintf(*to, "$-1\r\n");
        return json + strlen("null");
    }
    size_t len = *json == '"' ? strcspn(json + 1, "\"") : strspn(json, "-0123456789");
    if (*json == '"') {
        *to += sprintf(*to, "$%zu\r\n%.*s\r\n", len, (int)len, json + 1);
        return json + len + 2;
    }
    *to += sprintf(*to, ":%.*s\r\n", (int)len, json);
    return json + len;
}

static struct slice reply_of(const char *json)
{
    char *end = resp;
    (void)put_value(json, &end);
    return (struct slice){(const uint8_t *)resp, (size_t)(end - resp)};
}

static void read_shards(const char *json, const struct cluster_sender *sender)
{
    if (!cluster_map_read(&map, CLUSTER_SHARDS, reply_of(json), sender, fault)) fail_msg("refused: %s", fault);
}

static void read_slots(const char *json, const struct cluster_sender *sender)
{
    if (!cluster_map_read(&map, CLUSTER_SLOTS, reply_of(json), sender, fault)) fail_msg("refused: %s", fault);
}

static void refuse(enum cluster_form form, const char *json, const char *why)
{
    if (cluster_map_read(&map, form, reply_of(json), &plain, fault)) fail_msg("accepted: %s", json);
    if (strstr(fault, why) == NULL) fail_msg("%s: %s", json, fault);
}

static void expect_owner(uint32_t hash_slot, const char *address)
{
    if (address == NULL) {
        assert_int_equal(map.owner[hash_slot], CLUSTER_NONE);
        return;
    }
    assert_in_range(map.owner[hash_slot], 0, map.n_nodes - 1);
    assert_string_equal(map.address[map.owner[hash_slot]], address);
}

/* ---- honest ones ---- */

static void masters_of_shards_own_their_ranges(void **state)
{
    (void)state;
    read_shards("[[\"slots\", [0, 5460, 10000, 10000], \"nodes\", ["
                "  [\"id\", \"a\", \"port\", 7002, \"ip\", \"10.0.0.2\", \"endpoint\", \"10.0.0.2\", \"role\", "
                "   \"replica\", \"replication-offset\", 7, \"health\", \"online\"],"
                "  [\"id\", \"b\", \"port\", 7001, \"ip\", \"10.0.0.1\", \"endpoint\", \"10.0.0.1\", \"role\", "
                "   \"master\", \"replication-offset\", 7, \"health\", \"fail\"]]],"
                " [\"slots\", [5461, 9999], \"nodes\", ["
                "  [\"id\", \"c\", \"port\", 7003, \"tls-port\", 8003, \"ip\", \"fd00::1\", \"endpoint\", \"fd00::1\", "
                "   \"role\", \"master\", \"health\", \"online\"]]],"
                " [\"slots\", [], \"nodes\", ["
                "  [\"id\", \"d\", \"port\", 7004, \"endpoint\", \"10.0.0.4\", \"role\", \"master\"]]]]",
                &plain);
    assert_int_equal(map.n_nodes, 2); /* one without slots is of no concern */
    expect_owner(0, "10.0.0.1:7001");
    expect_owner(5460, "10.0.0.1:7001");
    expect_owner(10000, "10.0.0.1:7001");
    expect_owner(5461, "[fd00::1]:7003");
    expect_owner(9999, "[fd00::1]:7003");
    expect_owner(10001, NULL);
    expect_owner(16383, NULL);
}

static void with_tls_the_port_for_tls_counts(void **state)
{
    (void)state;
    read_shards("[[\"slots\", [0, 16383], \"nodes\", [[\"port\", 7001, \"tls-port\", 8001, \"endpoint\", "
                "\"a.example\", \"role\", \"master\", \"health\", \"online\"]]]]",
                &secure);
    expect_owner(7, "a.example:8001");
    if (cluster_map_read(&map, CLUSTER_SHARDS,
                         reply_of("[[\"slots\", [0, 1], \"nodes\", [[\"port\", 7001, \"endpoint\", \"a.example\", "
                                  "\"role\", \"master\", \"health\", \"online\"]]]]"),
                         &secure, fault))
        fail_msg("a master without a port for TLS was accepted");
}

static void of_two_masters_of_a_shard_the_living_one_counts(void **state)
{
    (void)state;
    read_shards("[[\"slots\", [0, 16383], \"nodes\", ["
                "  [\"port\", 7001, \"endpoint\", \"10.0.0.1\", \"role\", \"master\", \"health\", \"fail\"],"
                "  [\"port\", 7002, \"endpoint\", \"10.0.0.2\", \"role\", \"master\", \"health\", \"online\"]]]]",
                &plain);
    expect_owner(1, "10.0.0.2:7002");
}

static void a_shard_without_a_master_leaves_its_slots_to_nobody(void **state)
{
    (void)state;
    read_shards("[[\"slots\", [0, 99], \"nodes\", [[\"port\", 7001, \"endpoint\", \"10.0.0.1\", \"role\", "
                "\"replica\", \"health\", \"online\"]]],"
                " [\"slots\", [100, 100], \"nodes\", [[\"port\", 7002, \"endpoint\", \"10.0.0.2\", \"role\", "
                "\"master\", \"health\", \"online\"]]]]",
                &plain);
    expect_owner(99, NULL);
    expect_owner(100, "10.0.0.2:7002");
}

static void slots_name_the_master_first(void **state)
{
    (void)state;
    read_slots("[[0, 5460, [\"10.0.0.1\", 7001, \"id\"], [\"10.0.0.2\", 7002, \"id\"]],"
               " [5461, 5461, [\"::1\", 7003, \"id\", [\"ip\", \"::2\"]]],"
               " [5462, 16383, [\"10.0.0.1\", 7001, \"id\", []]]]",
               &plain);
    assert_int_equal(map.n_nodes, 2);
    expect_owner(5460, "10.0.0.1:7001");
    expect_owner(5461, "[::1]:7003");
    expect_owner(16383, "10.0.0.1:7001");
}

static void an_empty_host_is_the_one_that_was_asked(void **state)
{
    (void)state;
    static const char *const hosts[] = {"\"\"", "null", "\"?\""};
    for (size_t i = 0; i < 3; i++) {
        char json[256];
        snprintf(json, sizeof json, "[[0, 16383, [%s, 7001, \"id\"]]]", hosts[i]);
        read_slots(json, &plain);
        expect_owner(0, "10.0.0.9:7001");
        snprintf(json, sizeof json,
                 "[[\"slots\", [0, 16383], \"nodes\", [[\"port\", 1, \"tls-port\", 7001, \"endpoint\", %s, \"role\", "
                 "\"master\", \"health\", \"online\"]]]]",
                 hosts[i]);
        read_shards(json, &secure);
        expect_owner(0, "redis.example:7001");
    }
    const struct cluster_sender v6 = {.host = "fd00::7"};
    read_slots("[[0, 16383, [\"\", 7001, \"id\"]]]", &v6);
    expect_owner(0, "[fd00::7]:7001");
}

static void a_node_whose_name_is_not_known_yet_has_its_address(void **state)
{
    (void)state;
    read_slots("[[0, 16383, [\"?\", 7001, \"id\", [\"ip\", \"10.0.0.3\"]]]]", &plain);
    expect_owner(0, "10.0.0.3:7001");
    read_shards("[[\"slots\", [0, 16383], \"nodes\", [[\"port\", 7001, \"ip\", \"10.0.0.3\", \"endpoint\", \"?\", "
                "\"role\", \"master\", \"health\", \"online\"]]]]",
                &plain);
    expect_owner(0, "10.0.0.3:7001");
}

static void slots_as_texts_are_numbers_too(void **state)
{
    (void)state;
    read_shards("[[\"slots\", [\"0\", \"16383\"], \"nodes\", [[\"port\", 7001, \"endpoint\", \"h\", \"role\", "
                "\"master\", \"health\", \"online\"]]]]",
                &plain);
    expect_owner(16383, "h:7001");
}

static void every_other_slot_may_be_a_range_of_its_own(void **state)
{
    (void)state;
    static char json[1 << 20];
    char *to = json;
    to += sprintf(to, "[");
    for (int i = 0; i < HASH_SLOTS; i++) to += sprintf(to, "[%d, %d, [\"h\", %d]],", i, i, 7000 + i % 2);
    sprintf(to, "]");
    read_slots(json, &plain);
    expect_owner(16382, "h:7000");
    expect_owner(16383, "h:7001");
}

/* ---- others ---- */

static void a_map_with_impossible_ranges_is_refused(void **state)
{
    (void)state;
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"h\", 1]], [10, 11, [\"i\", 1]]]", "hash slot 10 is named twice");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"h\", 1]], [3, 3, [\"h\", 1]]]", "hash slot 3 is named twice");
    refuse(CLUSTER_SLOTS, "[[7, 3, [\"h\", 1]]]", "7 to 3 is no range of hash slots");
    refuse(CLUSTER_SLOTS, "[[-1, 3, [\"h\", 1]]]", "-1 to 3 is no range");
    refuse(CLUSTER_SLOTS, "[[0, 16384, [\"h\", 1]]]", "0 to 16384 is no range");
    refuse(CLUSTER_SLOTS, "[[9999999999, 9999999999, [\"h\", 1]]]", "is no range");
    refuse(CLUSTER_SHARDS, "[[\"slots\", [1], \"nodes\", [[\"port\", 1, \"endpoint\", \"h\", \"role\", \"master\"]]]]",
           "not built as one");
}

static void a_map_with_impossible_addresses_is_refused(void **state)
{
    (void)state;
    char json[512];
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"h\", 0]]]", "port");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"h\", -1]]]", "port");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"h\", 65536]]]", "port");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"h\", 4294967297]]]", "port");
    snprintf(json, sizeof json, "[[0, 10, [\"%0300d\", 1]]]", 7);
    refuse(CLUSTER_SLOTS, json, "longer than 253 bytes");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"unix:/run/redis.sock\", 1]]]", "character");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"/run/redis.sock\", 1]]]", "character");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"a b\", 1]]]", "character");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"a\nb\", 1]]]", "character");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\"a:b\", 1]]]", "IPv6");
    refuse(CLUSTER_SLOTS, "[[0, 10, [\".\", 1]]]", "dot");
    assert_false(cluster_map_read(
        &map, CLUSTER_SLOTS, (struct slice){(const uint8_t *)"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$3\r\na\0b\r\n:1\r\n", 39},
        &plain, fault));
}

static void what_is_no_map_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "\"OK\"",
        "7",
        "null",
        "[\"OK\"]",
        "[7]",
        "[null]",
        "[[0]]",
        "[[0, 1, 2]]",
        "[[0, 1, [\"h\"]]]",
        "[[0, 1, [\"h\", \"x\"]]]",
        "[[0, 1, [7, 7]]]",
        "[[0, 1, [[], 7]]]",
        "[[[], 1, [\"h\", 7]]]",
        "[[0, 1, [\"h\", 7, \"id\", 7]]]",
        "[[0, 1, [\"h\", 7, \"id\", [\"ip\"]]]]",
        "[[\"slots\"]]",
        "[[\"slots\", []]]",
        "[[\"slots\", 7, \"nodes\", []]]",
        "[[\"slots\", [0, 1], \"nodes\", 7]]",
        "[[\"slots\", [0, 1], \"nodes\", [7]]]",
        "[[\"slots\", [0, 1], \"nodes\", [[7, 7]]]]",
        "[[\"slots\", [0, []], \"nodes\", [[\"port\", 1, \"endpoint\", \"h\", \"role\", \"master\"]]]]",
        "[[\"nodes\", [0, 1], \"nodes\", []]]",
        "[[\"slots\", [0, 1], \"nodes\", [], 7]]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        refuse(CLUSTER_SHARDS, wrong[i], "CLUSTER SHARDS: ");
        refuse(CLUSTER_SLOTS, wrong[i], "CLUSTER SLOTS: ");
    }
    refuse(CLUSTER_SHARDS, "[]", "no hash slot has a master; complete the cluster with redis-cli --cluster");
    refuse(CLUSTER_SLOTS, "[]", "no hash slot has a master");
}

static void a_map_of_too_many_masters_is_refused(void **state)
{
    (void)state;
    static char json[1 << 16];
    char *to = json;
    to += sprintf(to, "[");
    for (int i = 0; i < CLUSTER_NODES_MAX; i++) to += sprintf(to, "[%d, %d, [\"h\", %d]],", i, i, i + 1);
    sprintf(to, "]");
    read_slots(json, &plain);
    assert_int_equal(map.n_nodes, CLUSTER_NODES_MAX);
    sprintf(to, "[300, 300, [\"i\", 1]]]");
    refuse(CLUSTER_SLOTS, json, "more than 256 masters");
}

/* A reply that ends anywhere, or has any byte wrong, is refused or is another map; nothing is read beyond it. */
static void a_map_that_is_cut_or_garbled_does_no_harm(void **state)
{
    (void)state;
    static const char *const replies[] = {
        "[[0, 10, [\"h\", 7001, \"id\", [\"ip\", \"h\"]], [\"i\", 7002, \"id\"]], [11, 12, [\"\", 7003]]]",
        "[[\"slots\", [0, 9], \"nodes\", [[\"port\", 1, \"endpoint\", \"h\", \"role\", \"master\"]]]]"};
    for (int form = CLUSTER_SHARDS; form <= CLUSTER_SLOTS; form++) {
        for (size_t i = 0; i < 2; i++) {
            struct slice whole = reply_of(replies[i]);
            for (size_t len = 0; len < whole.len; len++) {
                uint8_t *copy = malloc(len + 1); /* so that the sanitizer sees a byte too many */
                memcpy(copy, whole.data, len);
                assert_false(cluster_map_read(&map, form, (struct slice){copy, len}, &plain, fault));
                free(copy);
            }
            for (size_t at = 0; at < whole.len; at++) {
                for (const char *byte = "*$:+-0917\r\n\xff"; *byte != '\0'; byte++) {
                    uint8_t *copy = malloc(whole.len);
                    memcpy(copy, whole.data, whole.len);
                    copy[at] = (uint8_t)*byte;
                    (void)cluster_map_read(&map, form, (struct slice){copy, whole.len}, &plain, fault);
                    free(copy);
                }
            }
        }
    }
}

/* ---- redirects ---- */

static struct cluster_redirect redirect;

static void redirect_to(const char *text, const struct cluster_sender *sender, bool is_ask, uint16_t hash_slot,
                        const char *address)
{
    const char *why = cluster_redirect_read(slice_of(text), sender, &redirect);
    if (why != NULL) fail_msg("%s: %s", text, why);
    assert_int_equal(redirect.is_ask, is_ask);
    assert_int_equal(redirect.hash_slot, hash_slot);
    assert_string_equal(redirect.address, address);
}

static void redirects_name_a_slot_and_a_server(void **state)
{
    (void)state;
    redirect_to("MOVED 3999 127.0.0.1:6381", &plain, false, 3999, "127.0.0.1:6381");
    redirect_to("ASK 16383 redis-2.example:6381", &plain, true, 16383, "redis-2.example:6381");
    redirect_to("MOVED 0 ::1:6381", &plain, false, 0, "[::1]:6381");
    redirect_to("MOVED 0 2001:db8::7:1:6381", &plain, false, 0, "[2001:db8::7:1]:6381");
    redirect_to("MOVED 3999 :6381", &plain, false, 3999, "10.0.0.9:6381");
    redirect_to("ASK 3999 ?:6381", &secure, true, 3999, "redis.example:6381");
}

static void a_redirect_to_nowhere_is_refused(void **state)
{
    (void)state;
    char long_host[400];
    snprintf(long_host, sizeof long_host, "MOVED 1 %0300d:6379", 7);
    const char *const wrong[] = {"",
                                 "MOVED",
                                 "MOVED ",
                                 "ASK",
                                 "ASK ",
                                 "MOVED 1",
                                 "MOVED 1 ",
                                 "MOVED 1 h",
                                 "MOVED 1 h:",
                                 "MOVED  h:1",
                                 "MOVED x h:1",
                                 "MOVED -1 h:1",
                                 "MOVED 16384 h:1",
                                 "MOVED 99999999999999999999 h:1",
                                 "MOVED 1 h:0",
                                 "MOVED 1 h:65536",
                                 "MOVED 1 h:99999999999999999999",
                                 "MOVED 1 h:1 more",
                                 "MOVED 1 h h:1",
                                 "MOVED 1 a:b:1",
                                 "MOVED 1 unix:/x:1",
                                 "MOVED 1 [::1]:1",
                                 "moved 1 h:1",
                                 "MOVEDX 1 h:1",
                                 "ERR MOVED 1 h:1",
                                 long_host};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t len = strlen(wrong[i]);
        uint8_t *copy = malloc(len + 1);
        memcpy(copy, wrong[i], len);
        redirect = (struct cluster_redirect){.hash_slot = 77};
        if (cluster_redirect_read((struct slice){copy, len}, &plain, &redirect) == NULL)
            fail_msg("accepted: %s", wrong[i]);
        assert_int_equal(redirect.hash_slot, 77);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masters_of_shards_own_their_ranges),
        cmocka_unit_test(with_tls_the_port_for_tls_counts),
        cmocka_unit_test(of_two_masters_of_a_shard_the_living_one_counts),
        cmocka_unit_test(a_shard_without_a_master_leaves_its_slots_to_nobody),
        cmocka_unit_test(slots_name_the_master_first),
        cmocka_unit_test(an_empty_host_is_the_one_that_was_asked),
        cmocka_unit_test(a_node_whose_name_is_not_known_yet_has_its_address),
        cmocka_unit_test(slots_as_texts_are_numbers_too),
        cmocka_unit_test(every_other_slot_may_be_a_range_of_its_own),
        cmocka_unit_test(a_map_with_impossible_ranges_is_refused),
        cmocka_unit_test(a_map_with_impossible_addresses_is_refused),
        cmocka_unit_test(what_is_no_map_is_refused),
        cmocka_unit_test(a_map_of_too_many_masters_is_refused),
        cmocka_unit_test(a_map_that_is_cut_or_garbled_does_no_harm),
        cmocka_unit_test(redirects_name_a_slot_and_a_server),
        cmocka_unit_test(a_redirect_to_nowhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
