/* network.c: reads addresses and networks, and makes the ranges in which network_set_find() looks one up. See network.h. */
#include "policy/network.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

enum { ADDRESS_LEN = 128, IPV4_LEN = 32, IPV4_AT = ADDRESS_LEN - IPV4_LEN };

#define NO_OWNER UINT32_MAX

/* ::ffff:0:0/96, which is a network without owner in each part's ranges: so IPv4 is not in ::/0. */
static const unsigned __int128 ipv4_first = (unsigned __int128)0xffff << IPV4_LEN;

/* ---- one network ----------------------------------------------------------------------------------------------- */

static unsigned __int128 host_bits(unsigned len)
{
    return len >= ADDRESS_LEN ? 0 : ~(unsigned __int128)0 >> len;
}

static bool is_ipv4(struct address address)
{
    return address.bits >> IPV4_LEN == 0xffff;
}

static bool parse_four(const uint8_t *at, const uint8_t *end, uint32_t *ret)
{
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) {
        if (i > 0 && (at == end || *at++ != '.')) return false;
        const uint8_t *first = at;
        unsigned byte = 0;
        while (at < end && (unsigned)*at - '0' < 10 && at - first < 3) byte = 10 * byte + ((unsigned)*at++ - '0');
        if (at == first || byte > 255 || (*first == '0' && at - first > 1)) return false;
        bits = bits << 8 | byte;
    }
    *ret = bits;
    return at == end;
}

/* One more than the value of a hexadecimal digit; else 0. */
static const uint8_t digits[UINT8_MAX + 1] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

/* Eight groups of up to four digits; `::` stands for all groups that are missing, at least one. The last two may be an
 * IPv4 address. */
static bool parse_six(const uint8_t *at, const uint8_t *end, unsigned __int128 *ret)
{
    enum { N_GROUPS = 8, NONE = N_GROUPS };
    unsigned n = 0, gap = NONE; /* groups; those before the `::` */
    unsigned __int128 bits = 0;
    while (at < end) {
        const uint8_t *first = at;
        unsigned group = 0;
        uint32_t four;
        while (at < end && at - first < 4 && digits[*at] > 0) group = group << 4 | (digits[*at++] - 1U);
        if (at < end && *at == '.' && n <= N_GROUPS - 2 && parse_four(first, end, &four)) {
            bits = bits << IPV4_LEN | four;
            n += 2;
            break;
        }
        if (at > first) {
            bits = bits << 16 | group;
            if (++n > N_GROUPS) return false;
            if (at == end) break;
        }

        /* a colon and a group, or two colons and perhaps a group */
        bool is_gap = end - at >= 2 && at[0] == ':' && at[1] == ':';
        if (*at != ':' || (is_gap && gap != NONE) || (!is_gap && (at == first || at + 1 == end))) return false;
        if (is_gap) gap = n;
        at += is_gap ? 2 : 1;
        if (at < end && *at == ':') return false;
    }
    if ((n == N_GROUPS) != (gap == NONE) || n > N_GROUPS) return false;

    unsigned n_low = gap == NONE ? 0 : 16 * (n - gap), n_missing = 16 * (N_GROUPS - n);
    unsigned __int128 low = bits & (((unsigned __int128)1 << n_low) - 1);
    *ret = n == 0 ? 0 : (bits - low) << n_missing | low;
    return true;
}

/* inet_pton() reads the same, and takes twice as long: a check of a policy with networks spends most of it here. */
bool address_parse(struct slice text, struct address *ret)
{
    const uint8_t *end = text.data + text.len;
    uint32_t four;
    if (text.len >= INET6_ADDRSTRLEN) return false;
    if (memchr(text.data, ':', text.len) != NULL) return parse_six(text.data, end, &ret->bits);
    if (!parse_four(text.data, end, &four)) return false;
    ret->bits = ipv4_first | four;
    return true;
}

/* Up to three digits behind the slash, or -1. */
static int read_len(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n == 0 || n > 3 || text[n] != '\0' || (n > 1 && text[0] == '0') ? -1 : (int)strtol(text, NULL, 10);
}

/* Were there bits behind it? They are 0 now. */
static bool set_len(struct network *network, unsigned len)
{
    unsigned __int128 before = network->first.bits;
    network->len = (uint8_t)len;
    network->first.bits &= ~host_bits(len);
    return network->first.bits != before;
}

bool network_parse(const char *text, struct network *ret, char wrong[NETWORK_WRONG_MAX])
{
    char other[NETWORK_TEXT_MAX], alone[NETWORK_TEXT_MAX];
    const char *slash = strchrnul(text, '/');
    bool is_short = memchr(text, ':', (size_t)(slash - text)) == NULL; /* IPv4 in its own form */
    struct network network = {.len = ADDRESS_LEN};
    if (!address_parse((struct slice){(const uint8_t *)text, (size_t)(slash - text)}, &network.first)) {
        snprintf(wrong, NETWORK_WRONG_MAX,
                 "is no network; write an address and how many of its bits count, e.g. 10.0.0.0/8 or 2001:db8::/32");
        return false;
    }

    network_print(&network, alone);
    bool is_four = is_ipv4(network.first);
    int least = is_four && !is_short ? IPV4_AT : 0, most = is_short ? IPV4_LEN : ADDRESS_LEN;
    int len = *slash == '/' ? read_len(slash + 1) : most;
    if (len < least || len > most) {
        if (is_four && len >= 0 && len <= IPV4_LEN) set_len(&network, (unsigned)len + IPV4_AT);
        snprintf(wrong, NETWORK_WRONG_MAX, "has no length from %d to %d behind the slash; write %s, for instance",
                 least, most, network_print(&network, other));
        return false;
    }

    if (set_len(&network, (unsigned)(is_short ? len + IPV4_AT : len))) {
        snprintf(wrong, NETWORK_WRONG_MAX, "has bits set behind the first %d; write %s, or %s for this address alone",
                 len, network_print(&network, other), alone);
        return false;
    }
    ret->first = network.first;
    ret->len = network.len;
    return true;
}

const char *network_print(const struct network *network, char out[NETWORK_TEXT_MAX])
{
    uint8_t bytes[sizeof(struct in6_addr)];
    char text[INET6_ADDRSTRLEN];
    bool is_four = is_ipv4(network->first);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(network->first.bits >> (ADDRESS_LEN - 8 * (i + 1)));
    inet_ntop(is_four ? AF_INET : AF_INET6, is_four ? bytes + IPV4_AT / 8 : bytes, text, sizeof text);
    snprintf(out, NETWORK_TEXT_MAX, "%s/%d", text, network->len - (is_four ? IPV4_AT : 0));
    return out;
}

bool network_is_same(const struct network *a, const struct network *b)
{
    return a->part == b->part && a->first.bits == b->first.bits && a->len == b->len;
}

/* ---- the set --------------------------------------------------------------------------------------------------- */

void network_set_fini(struct network_set *set)
{
    mem_free(set->networks);
    mem_free(set->edges);
    mem_free(set->owners);
}

int network_set_add(struct network_set *set, const struct network *network)
{
    if (set->n == set->cap) {
        size_t cap = set->cap > 0 ? 2 * set->cap : 16;
        struct network *networks = mem_realloc(set->networks, cap * sizeof *networks);
        if (networks == NULL) return -1;
        set->networks = networks;
        set->cap = cap;
    }
    set->networks[set->n++] = *network;
    set->parts |= (key_parts)(1U << network->part);
    return 0;
}

/* A network comes before those that it has in it. */
static int by_place(const void *left, const void *right)
{
    const struct network *a = left, *b = right;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    if (a->first.bits != b->first.bits) return a->first.bits < b->first.bits ? -1 : 1;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

/* A part's ranges, while an address goes up from 0: the networks that it is in, each in the one before. */
struct sweep {
    struct network_set *set;
    size_t start, n; /* edges */
    struct {
        struct range_owner owner;
        unsigned __int128 last;
    } open[ADDRESS_LEN + 2];
    size_t depth;
};

/* From `at` on, the innermost network that is open counts. */
static void put_edge(struct sweep *sweep, unsigned __int128 at)
{
    struct network_set *set = sweep->set;
    if (sweep->n == sweep->start || set->edges[sweep->n - 1].bits != at) sweep->n++;
    set->edges[sweep->n - 1].bits = at;
    set->owners[sweep->n - 1] =
        sweep->depth > 0 ? sweep->open[sweep->depth - 1].owner : (struct range_owner){.override = NO_OWNER};
}

/* Those that end before `at`. */
static void close_networks(struct sweep *sweep, unsigned __int128 at)
{
    while (sweep->depth > 0 && sweep->open[sweep->depth - 1].last < at)
        put_edge(sweep, sweep->open[--sweep->depth].last + 1);
}

static void open_network(struct sweep *sweep, uint32_t override, unsigned __int128 first, uint8_t len)
{
    close_networks(sweep, first);
    CHECK(sweep->depth < N_OF(sweep->open));
    sweep->open[sweep->depth].owner = (struct range_owner){override, len};
    sweep->open[sweep->depth++].last = first | host_bits(len);
    put_edge(sweep, first);
}

/* Returns the first network behind those of the part. */
static size_t sweep_part(struct sweep *sweep, size_t part, size_t next)
{
    const struct network *networks = sweep->set->networks;
    bool is_past_ipv4 = false;
    sweep->start = sweep->set->starts[part] = sweep->n;
    sweep->depth = 0;
    if (!(sweep->set->parts >> part & 1U)) return next;

    put_edge(sweep, 0);
    for (; next < sweep->set->n && networks[next].part == part; next++) {
        if (!is_past_ipv4 && networks[next].first.bits >= ipv4_first) {
            open_network(sweep, NO_OWNER, ipv4_first, IPV4_AT);
            is_past_ipv4 = true;
        }
        open_network(sweep, networks[next].override, networks[next].first.bits, networks[next].len);
    }
    if (!is_past_ipv4) open_network(sweep, NO_OWNER, ipv4_first, IPV4_AT);
    close_networks(sweep, ~(unsigned __int128)0);
    return next;
}

int network_set_seal(struct network_set *set)
{
    if (set->n == 0) return 0;
    const size_t most = 2 * set->n + 3 * KEY_PARTS_MAX; /* of a part its start, and two of ipv4_first */
    struct sweep sweep = {.set = set};
    qsort(set->networks, set->n, sizeof set->networks[0], by_place);
    set->edges = mem_alloc(most * sizeof set->edges[0]);
    set->owners = mem_alloc(most * sizeof set->owners[0]);
    if (set->edges == NULL || set->owners == NULL) return -1;

    for (size_t part = 0, next = 0; part < KEY_PARTS_MAX; part++) next = sweep_part(&sweep, part, next);
    set->starts[KEY_PARTS_MAX] = sweep.n;
    CHECK(sweep.n <= most);
    return 0;
}

/* ---- the look-up ----------------------------------------------------------------------------------------------- */

/* That of the last edge which is not above the address; the first one is 0. In quarters, as memory is read in parallel and
 * takes most of the time. */
static struct range_owner owner_of(const struct network_set *set, size_t part, struct address address)
{
    const struct address *base = set->edges + set->starts[part];
    size_t n = set->starts[part + 1] - set->starts[part];
    for (size_t quarter; n > 3; n -= 3 * quarter) {
        quarter = n / 4;
        size_t passed = (base[quarter].bits <= address.bits) + (base[2 * quarter].bits <= address.bits) +
                        (base[3 * quarter].bits <= address.bits);
        base += passed * quarter;
    }
    while (n > 1 && base[1].bits <= address.bits) base++, n--;
    return set->owners[base - set->edges];
}

bool network_set_find(const struct network_set *set, const struct key_format *format, struct slice key,
                      struct network *ret)
{
    struct key_split split;
    int longest = -1;
    split.parts[0] = key;
    if (set->n == 0 || (format != NULL && !key_format_split(format, key, &split))) return false;

    for (unsigned parts = set->parts; parts != 0; parts &= parts - 1) {
        const uint8_t part = (uint8_t)__builtin_ctz(parts);
        struct address address;
        if (!address_parse(split.parts[part], &address)) continue;

        struct range_owner owner = owner_of(set, part, address);
        int len = is_ipv4(address) ? owner.len - IPV4_AT : owner.len;
        if (owner.override == NO_OWNER || len < longest || (len == longest && owner.override > ret->override)) continue;
        longest = len;
        *ret = (struct network){{address.bits & ~host_bits(owner.len)}, owner.len, part, owner.override, 0};
    }
    return longest >= 0;
}
