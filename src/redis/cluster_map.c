/*
 * cluster_map.c: the two forms of the answer.
 *
 *   CLUSTER SHARDS   of each shard a map: "slots" [from, to, ...], "nodes" [a map each: "port", "role", "endpoint" ...]
 *   CLUSTER SLOTS    of each range of slots: from, to, its master [host, port, id, more], its replicas likewise
 */
#include "redis/cluster_map.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

enum { ITEMS_MAX = 1 << 20, PORT_MAX = 65535 };

/* ---- addresses ---- */

const char *cluster_address(char ret[CLUSTER_ADDRESS_SIZE], struct slice host, int64_t port,
                            const struct cluster_sender *sender)
{
    if (host.len == 0 || slice_is(host, "?")) host = slice_of(sender->host);
    if (port < 1 || port > PORT_MAX) return "a port is not a number from 1 to 65535";
    if (host.len > REDIS_HOST_MAX) return "a host's name is longer than 253 bytes";
    for (size_t i = 0; i < host.len; i++)
        if (host.data[i] <= ' ' || host.data[i] > '~' || strchr("/[]", host.data[i]) != NULL)
            return "a host has a character that no host has";

    char address[CLUSTER_ADDRESS_SIZE];
    struct redis_address parsed;
    bool is_v6 = memchr(host.data, ':', host.len) != NULL;
    snprintf(address, sizeof address, is_v6 ? "[%.*s]:%u" : "%.*s:%u", (int)host.len, (const char *)host.data,
             (unsigned)port);
    const char *fault = redis_address_parse(address, &parsed);
    if (fault != NULL) return fault;
    if (is_v6 && !parsed.is_v6) return "a host has a colon and is no IPv6 address";
    memcpy(ret, address, sizeof address);
    return NULL;
}

/* ---- the reply's items ---- */

struct reading {
    const uint8_t *at, *end;
    const struct cluster_sender *sender;
    struct cluster_map *map;
    uint64_t hashes[CLUSTER_NODES_MAX]; /* of the addresses in the map */
    const char *command;
    char *fault;
};

/* False, for the caller to return. */
__attribute__((format(printf, 2, 3))) static bool refuse(struct reading *reading, const char *format, ...)
{
    va_list args;
    int n = snprintf(reading->fault, CLUSTER_FAULT_SIZE, "CLUSTER %s: ", reading->command);
    va_start(args, format);
    vsnprintf(reading->fault + n, CLUSTER_FAULT_SIZE - (size_t)n, format, args);
    va_end(args);
    return false;
}

struct item {
    enum { ITEM_NIL, ITEM_TEXT, ITEM_INTEGER, ITEM_ARRAY } type;
    int64_t number;    /* or how many items follow */
    struct slice text; /* points into the reply */
};

static bool malformed(struct reading *reading)
{
    refuse(reading, "its answer is not built as one");
    return false;
}

/* One item, of an array its head. */
static bool next_item(struct reading *reading, struct item *ret)
{
    const uint8_t *line = reading->at;
    const uint8_t *cr = reading->end - line >= 4 ? memchr(line, '\r', (size_t)(reading->end - line) - 1) : NULL;
    if (cr == NULL || cr[1] != '\n') return malformed(reading);
    reading->at = cr + 2;
    *ret = (struct item){.type = ITEM_TEXT};
    if (line[0] == '+') {
        ret->text = (struct slice){line + 1, (size_t)(cr - line) - 1};
        return true;
    }

    bool is_negative = line[1] == '-';
    const uint8_t *digit = line + 1 + is_negative;
    if (strchr(":$*", line[0]) == NULL || line[0] == '\0' || digit == cr || cr - digit > 10) return malformed(reading);
    int64_t number = 0;
    for (; digit < cr; digit++) {
        if (*digit < '0' || *digit > '9') return malformed(reading);
        number = number * 10 + *digit - '0';
    }
    ret->number = is_negative ? -number : number;
    ret->type = line[0] == ':' ? ITEM_INTEGER : is_negative ? ITEM_NIL : line[0] == '$' ? ITEM_TEXT : ITEM_ARRAY;
    if (ret->type == ITEM_ARRAY) return number <= ITEMS_MAX || malformed(reading);
    if (ret->type != ITEM_TEXT) return true;

    if (number > reading->end - reading->at - 2) return malformed(reading);
    ret->text = (struct slice){reading->at, (size_t)number};
    reading->at += number + 2;
    return true;
}

/* An item with all that is in it. */
static bool skip_item(struct reading *reading)
{
    struct item item;
    for (int64_t left = 1; left > 0; left--) {
        if (!next_item(reading, &item)) return false;
        if (item.type == ITEM_ARRAY) left += item.number;
    }
    return true;
}

static bool next_array(struct reading *reading, int64_t *ret_n)
{
    struct item item;
    if (!next_item(reading, &item)) return false;
    if (item.type != ITEM_ARRAY) return malformed(reading);
    *ret_n = item.number;
    return true;
}

static bool next_text(struct reading *reading, struct slice *ret)
{
    struct item item;
    if (!next_item(reading, &item)) return false;
    if (item.type != ITEM_TEXT) return malformed(reading);
    *ret = item.text;
    return true;
}

/* Redis 7.0.0 writes the slots of CLUSTER SHARDS as texts. */
static bool next_integer(struct reading *reading, int64_t *ret)
{
    struct item item;
    if (!next_item(reading, &item)) return false;
    for (size_t i = 0; item.type == ITEM_TEXT && i < item.text.len; i++) {
        if (item.text.data[i] < '0' || item.text.data[i] > '9' || i > 9) return malformed(reading);
        item.number = (i == 0 ? 0 : item.number) * 10 + item.text.data[i] - '0';
    }
    if (item.type == ITEM_ARRAY || item.type == ITEM_NIL) return malformed(reading);
    *ret = item.number;
    return true;
}

/* ---- the map ---- */

/* The number of the node with this address, which is new perhaps. */
static bool take_node(struct reading *reading, struct slice host, int64_t port, uint16_t *ret_node)
{
    struct cluster_map *map = reading->map;
    char address[CLUSTER_ADDRESS_SIZE];
    const char *fault = cluster_address(address, host, port, reading->sender);
    if (fault != NULL) return refuse(reading, "%s", fault);

    uint64_t hash = hash_keyed(address, strlen(address));
    for (uint32_t i = 0; i < map->n_nodes; i++) {
        if (reading->hashes[i] != hash || strcmp(map->address[i], address) != 0) continue;
        *ret_node = (uint16_t)i;
        return true;
    }
    if (map->n_nodes == CLUSTER_NODES_MAX) return refuse(reading, "more than %d masters", CLUSTER_NODES_MAX);
    reading->hashes[map->n_nodes] = hash;
    memcpy(map->address[map->n_nodes], address, sizeof address);
    *ret_node = (uint16_t)map->n_nodes++;
    return true;
}

static bool take_range(struct reading *reading, int64_t from, int64_t to, uint16_t node)
{
    if (from < 0 || to >= HASH_SLOTS || from > to)
        return refuse(reading, "%lld to %lld is no range of hash slots", (long long)from, (long long)to);
    for (int64_t i = from; i <= to; i++) {
        if (reading->map->owner[i] != CLUSTER_NONE)
            return refuse(reading, "hash slot %lld is named twice", (long long)i);
        reading->map->owner[i] = node;
    }
    return true;
}

/* ---- CLUSTER SHARDS ---- */

struct shard_node {
    struct slice host, ip;
    int64_t port, tls_port;
    bool is_master, is_online;
};

static bool read_shard_node(struct reading *reading, struct shard_node *ret)
{
    int64_t n;
    if (!next_array(reading, &n)) return false;
    *ret = (struct shard_node){.is_online = true};
    for (; n > 1; n -= 2) {
        struct slice name;
        struct item value;
        if (!next_text(reading, &name)) return false;
        const uint8_t *at = reading->at;
        if (!next_item(reading, &value)) return false;
        reading->at = at;
        if (!skip_item(reading)) return false;

        if (slice_is(name, "endpoint")) ret->host = value.text;
        if (slice_is(name, "ip")) ret->ip = value.text;
        if (slice_is(name, "port")) ret->port = value.number;
        if (slice_is(name, "tls-port")) ret->tls_port = value.number;
        if (slice_is(name, "role")) ret->is_master = slice_is(value.text, "master");
        if (slice_is(name, "health")) ret->is_online = slice_is(value.text, "online");
    }
    return n == 0 || malformed(reading);
}

/* Its master; CLUSTER_NONE: it has none. After a failover two nodes of a shard may bear that name. */
static bool read_shard_nodes(struct reading *reading, uint16_t *ret_node)
{
    int64_t n;
    struct shard_node master = {.is_master = false};
    if (!next_array(reading, &n)) return false;
    for (; n > 0; n--) {
        struct shard_node node;
        if (!read_shard_node(reading, &node)) return false;
        if (node.is_master && (!master.is_master || (node.is_online && !master.is_online))) master = node;
    }

    *ret_node = CLUSTER_NONE;
    if (!master.is_master) return true;
    if (slice_is(master.host, "?")) master.host = master.ip; /* it should have a name of its own, and has none yet */
    return take_node(reading, master.host, reading->sender->is_tls ? master.tls_port : master.port, ret_node);
}

static bool read_shard_ranges(struct reading *reading, int64_t n, uint16_t node)
{
    for (; n > 1; n -= 2) {
        int64_t from, to;
        if (!next_integer(reading, &from) || !next_integer(reading, &to)) return false;
        if (node != CLUSTER_NONE && !take_range(reading, from, to, node)) return false;
    }
    return n == 0 || malformed(reading);
}

static bool read_shard(struct reading *reading)
{
    int64_t n, n_slots = 0;
    const uint8_t *slots = NULL, *nodes = NULL;
    if (!next_array(reading, &n)) return false;
    for (; n > 1; n -= 2) {
        struct slice name;
        if (!next_text(reading, &name)) return false;
        if (slice_is(name, "slots")) slots = reading->at;
        if (slice_is(name, "nodes")) nodes = reading->at;
        if (!skip_item(reading)) return false;
    }
    if (n != 0 || slots == NULL || nodes == NULL) return malformed(reading);

    const uint8_t *behind = reading->at;
    uint16_t node;
    reading->at = slots;
    if (!next_array(reading, &n_slots)) return false;
    slots = reading->at;
    if (n_slots > 0) { /* else the node is of no concern */
        reading->at = nodes;
        if (!read_shard_nodes(reading, &node)) return false;
        reading->at = slots;
        if (!read_shard_ranges(reading, n_slots, node)) return false;
    }
    reading->at = behind;
    return true;
}

/* ---- CLUSTER SLOTS ---- */

/* The value of "ip" in what a node has more; else none. */
static bool read_ip(struct reading *reading, struct slice *ret_ip)
{
    int64_t n;
    struct slice name, value;
    if (!next_array(reading, &n)) return false;
    for (; n > 1; n -= 2) {
        if (!next_text(reading, &name) || !next_text(reading, &value)) return false;
        if (slice_is(name, "ip")) *ret_ip = value;
    }
    return n == 0 || malformed(reading);
}

static bool read_range(struct reading *reading)
{
    int64_t n, from, to, n_of_node, port;
    uint16_t node = CLUSTER_NONE;
    struct item host;
    if (!next_array(reading, &n) || !next_integer(reading, &from) || !next_integer(reading, &to)) return false;
    if (n < 3 || !next_array(reading, &n_of_node) || n_of_node < 2) return n < 3 ? true : malformed(reading);
    if (!next_item(reading, &host) || host.type == ITEM_ARRAY || host.type == ITEM_INTEGER) return malformed(reading);
    if (!next_integer(reading, &port)) return false;

    struct slice ip = {0};
    for (int64_t i = 2; i < n_of_node; i++)
        if (!(i == 3 ? read_ip(reading, &ip) : skip_item(reading))) return false;
    for (int64_t i = 3; i < n; i++)
        if (!skip_item(reading)) return false;
    return take_node(reading, slice_is(host.text, "?") ? ip : host.text, port, &node) &&
           take_range(reading, from, to, node);
}

bool cluster_map_read(struct cluster_map *map, enum cluster_form form, struct slice reply,
                      const struct cluster_sender *sender, char fault[CLUSTER_FAULT_SIZE])
{
    const bool is_shards = form == CLUSTER_SHARDS;
    int64_t n;
    struct reading reading = {.at = reply.data,
                              .end = reply.data + reply.len,
                              .sender = sender,
                              .map = map,
                              .command = is_shards ? "SHARDS" : "SLOTS",
                              .fault = fault};
    map->n_nodes = 0;
    for (size_t i = 0; i < HASH_SLOTS; i++) map->owner[i] = CLUSTER_NONE;

    if (!next_array(&reading, &n)) return false;
    for (; n > 0; n--)
        if (!(is_shards ? read_shard(&reading) : read_range(&reading))) return false;
    if (reading.at != reading.end) return malformed(&reading);
    return map->n_nodes > 0 ||
           refuse(&reading, "no hash slot has a master; complete the cluster with redis-cli --cluster");
}
