/*
 * fuzz_cluster.c: any bytes as the map of a cluster, or as a redirect.
 *
 * What is accepted can be used: every hash slot has nobody, or a node with an address that the settings would take as
 * well; what is refused has a reason. The first byte of the input chooses the form, and what kind of server was asked.
 */
#include <string.h>

#include "base/assert.h"
#include "redis/cluster_map.h"

static struct cluster_map map;

static void expect_address(const char *text)
{
    struct redis_address address;
    CHECK(redis_address_parse(text, &address) == NULL && !address.is_unix && address.port > 0);
    CHECK(strlen(text) < CLUSTER_ADDRESS_SIZE && strchr(text, '\n') == NULL);
}

static void read_map(enum cluster_form form, struct slice bytes, const struct cluster_sender *sender)
{
    char fault[CLUSTER_FAULT_SIZE] = "";
    if (!cluster_map_read(&map, form, bytes, sender, fault)) {
        CHECK(fault[0] != '\0');
        return;
    }
    CHECK(map.n_nodes > 0 && map.n_nodes <= CLUSTER_NODES_MAX);
    for (uint32_t i = 0; i < map.n_nodes; i++) expect_address(map.address[i]);
    for (size_t i = 0; i < HASH_SLOTS; i++) CHECK(map.owner[i] == CLUSTER_NONE || map.owner[i] < map.n_nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const struct cluster_sender senders[] = {{.host = "10.0.0.9"}, {.host = "fd00::9", .is_tls = true}};
    const struct cluster_sender *sender = &senders[data[0] >> 1 & 1];
    const struct slice bytes = {data + 1, size - 1};
    struct cluster_redirect redirect;
    if (data[0] & 4) {
        if (cluster_redirect_read(bytes, sender, &redirect) != NULL) return 0;
        CHECK(redirect.hash_slot < HASH_SLOTS);
        expect_address(redirect.address);
    } else {
        read_map(data[0] & 1 ? CLUSTER_SLOTS : CLUSTER_SHARDS, bytes, sender);
    }
    return 0;
}
