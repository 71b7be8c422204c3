/*
 * cluster_map.c: the two forms of the map, for cluster_watch.c, and redirects, for cluster.c.
 *
 *   CLUSTER SHARDS   of each shard a map: "slots" [from, to, ...], "nodes" [a map each: "port", "role", "endpoint" ...]
 *   CLUSTER SLOTS    of each range of slots: from, to, its master [host, port, id, more], its replicas likewise
 */
#include "redis/cluster_map.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

enum { ITEMS_MAX = 1 << 20, PORT_MAX = 65535, SLOT_DIGITS = 5, PORT_DIGITS = 5 };

/* ---- addresses ---- */

/* Host and port as one address: with brackets where the host needs them; an empty host, or "?", is the sender's. NULL,
 * or what is wrong with it (static). */
static const char *address_of(char ret[CLUSTER_ADDRESS_SIZE], struct slice host, int64_t port,
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
    const char *fault = address_of(address, host, port, reading->sender);
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
        for (; n_slots > 1; n_slots -= 2) {
            int64_t from, to;
            if (!next_integer(reading, &from) || !next_integer(reading, &to)) return false;
            if (node != CLUSTER_NONE && !take_range(reading, from, to, node)) return false;
        }
        if (n_slots != 0) return malformed(reading);
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

/* ---- redirects ---- */

/* The digits, one to `most` of them. -1: they are none. */
static int64_t number_of(const uint8_t *at, const uint8_t *end, int most)
{
    int64_t number = 0;
    if (at == end || end - at > most) return -1;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return -1;
        number = number * 10 + *at - '0';
    }
    return number;
}

const char *cluster_redirect_read(struct slice error, const struct cluster_sender *sender, struct cluster_redirect *ret)
{
    const uint8_t *end = error.data + error.len, *slot = NULL;
    bool is_ask = false;
    if (error.len > 6 && memcmp(error.data, "MOVED ", 6) == 0) slot = error.data + 6;
    if (error.len > 4 && memcmp(error.data, "ASK ", 4) == 0) {
        slot = error.data + 4;
        is_ask = true;
    }
    if (slot == NULL) return "a redirect without words";

    const uint8_t *space = memchr(slot, ' ', (size_t)(end - slot));
    const uint8_t *colon = space != NULL ? memrchr(space, ':', (size_t)(end - space)) : NULL;
    if (colon == NULL) return "a redirect without host and port";
    int64_t hash_slot = number_of(slot, space, SLOT_DIGITS);
    if (hash_slot < 0 || hash_slot >= HASH_SLOTS) return "a redirect of no hash slot";

    struct cluster_redirect redirect = {.is_ask = is_ask, .hash_slot = (uint16_t)hash_slot};
    const struct slice host = {space + 1, (size_t)(colon - space) - 1};
    const char *fault = address_of(redirect.address, host, number_of(colon + 1, end, PORT_DIGITS), sender);
    if (fault == NULL) *ret = redirect;
    return fault;
}

/* ---- the hash slot of a key ---- */

/* CRC-16/XMODEM (polynomial 0x1021) of each byte. */
static const uint16_t crc_of[256] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad,
    0xe1ce, 0xf1ef, 0x1231, 0x0210, 0x3273, 0x2252, 0x52b5, 0x4294, 0x72f7, 0x62d6, 0x9339, 0x8318, 0xb37b, 0xa35a,
    0xd3bd, 0xc39c, 0xf3ff, 0xe3de, 0x2462, 0x3443, 0x0420, 0x1401, 0x64e6, 0x74c7, 0x44a4, 0x5485, 0xa56a, 0xb54b,
    0x8528, 0x9509, 0xe5ee, 0xf5cf, 0xc5ac, 0xd58d, 0x3653, 0x2672, 0x1611, 0x0630, 0x76d7, 0x66f6, 0x5695, 0x46b4,
    0xb75b, 0xa77a, 0x9719, 0x8738, 0xf7df, 0xe7fe, 0xd79d, 0xc7bc, 0x48c4, 0x58e5, 0x6886, 0x78a7, 0x0840, 0x1861,
    0x2802, 0x3823, 0xc9cc, 0xd9ed, 0xe98e, 0xf9af, 0x8948, 0x9969, 0xa90a, 0xb92b, 0x5af5, 0x4ad4, 0x7ab7, 0x6a96,
    0x1a71, 0x0a50, 0x3a33, 0x2a12, 0xdbfd, 0xcbdc, 0xfbbf, 0xeb9e, 0x9b79, 0x8b58, 0xbb3b, 0xab1a, 0x6ca6, 0x7c87,
    0x4ce4, 0x5cc5, 0x2c22, 0x3c03, 0x0c60, 0x1c41, 0xedae, 0xfd8f, 0xcdec, 0xddcd, 0xad2a, 0xbd0b, 0x8d68, 0x9d49,
    0x7e97, 0x6eb6, 0x5ed5, 0x4ef4, 0x3e13, 0x2e32, 0x1e51, 0x0e70, 0xff9f, 0xefbe, 0xdfdd, 0xcffc, 0xbf1b, 0xaf3a,
    0x9f59, 0x8f78, 0x9188, 0x81a9, 0xb1ca, 0xa1eb, 0xd10c, 0xc12d, 0xf14e, 0xe16f, 0x1080, 0x00a1, 0x30c2, 0x20e3,
    0x5004, 0x4025, 0x7046, 0x6067, 0x83b9, 0x9398, 0xa3fb, 0xb3da, 0xc33d, 0xd31c, 0xe37f, 0xf35e, 0x02b1, 0x1290,
    0x22f3, 0x32d2, 0x4235, 0x5214, 0x6277, 0x7256, 0xb5ea, 0xa5cb, 0x95a8, 0x8589, 0xf56e, 0xe54f, 0xd52c, 0xc50d,
    0x34e2, 0x24c3, 0x14a0, 0x0481, 0x7466, 0x6447, 0x5424, 0x4405, 0xa7db, 0xb7fa, 0x8799, 0x97b8, 0xe75f, 0xf77e,
    0xc71d, 0xd73c, 0x26d3, 0x36f2, 0x0691, 0x16b0, 0x6657, 0x7676, 0x4615, 0x5634, 0xd94c, 0xc96d, 0xf90e, 0xe92f,
    0x99c8, 0x89e9, 0xb98a, 0xa9ab, 0x5844, 0x4865, 0x7806, 0x6827, 0x18c0, 0x08e1, 0x3882, 0x28a3, 0xcb7d, 0xdb5c,
    0xeb3f, 0xfb1e, 0x8bf9, 0x9bd8, 0xabbb, 0xbb9a, 0x4a75, 0x5a54, 0x6a37, 0x7a16, 0x0af1, 0x1ad0, 0x2ab3, 0x3a92,
    0xfd2e, 0xed0f, 0xdd6c, 0xcd4d, 0xbdaa, 0xad8b, 0x9de8, 0x8dc9, 0x7c26, 0x6c07, 0x5c64, 0x4c45, 0x3ca2, 0x2c83,
    0x1ce0, 0x0cc1, 0xef1f, 0xff3e, 0xcf5d, 0xdf7c, 0xaf9b, 0xbfba, 0x8fd9, 0x9ff8, 0x6e17, 0x7e36, 0x4e55, 0x5e74,
    0x2e93, 0x3eb2, 0x0ed1, 0x1ef0,
};

uint16_t hash_slot_of(const uint8_t *key, size_t len)
{
    const uint8_t *open = len > 0 ? memchr(key, '{', len) : NULL;
    const uint8_t *close = open != NULL ? memchr(open, '}', len - (size_t)(open - key)) : NULL;
    if (close != NULL && close > open + 1) {
        key = open + 1;
        len = (size_t)(close - key);
    }

    uint16_t crc = 0;
    for (size_t i = 0; i < len; i++) crc = (uint16_t)(crc << 8 ^ crc_of[(crc >> 8 ^ key[i]) & 0xff]);
    return crc % HASH_SLOTS;
}
