/*
 * network.h: addresses by network, and a set of networks that finds the longest one that has an address.
 *
 * An address is what inet_pton() takes, whole, without a zone. IPv4 addresses are kept in their IPv6 form,
 * ::ffff:a.b.c.d, in which keys and networks may be written too. A network has addresses of its own family alone: ::/0
 * has no IPv4 address.
 *
 * Two networks are disjoint, or one is in the other. So a sealed set is a list of disjoint ranges, each with the
 * longest network that it is in, and a look-up is one binary search for the last edge that is not above the address:
 *
 *   10.0.0.0/8        |--------------------------|
 *   10.1.0.0/16              |-------|
 *   edges         -   /8     /16     /8          -
 *
 * A key may have addresses in several parts: each has its own ranges. The longest network of all parts counts, and of
 * two alike the one that was added first.
 */
#ifndef RL_POLICY_NETWORK_H
#define RL_POLICY_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "limit/key_format.h"

enum { NETWORKS_MAX = 100000 /* of a policy */, NETWORK_TEXT_MAX = 64, NETWORK_WRONG_MAX = 224 };

struct address {
    unsigned __int128 bits;
};

struct network {
    struct address first;
    uint8_t len;       /* of the prefix, in the IPv6 form: 0 to 128 */
    uint8_t part;      /* of the key; 0 if the whole key is the address */
    uint32_t override; /* its index */
    uint32_t line;     /* of the file */
};

struct range_owner {
    uint32_t override; /* UINT32_MAX: none */
    uint8_t len;
};

struct network_set {
    struct network *networks; /* owned; sorted by part, address and length once sealed */
    size_t n, cap;
    key_parts parts;                   /* that have networks */
    struct address *edges;             /* owned; of all parts, in their order */
    struct range_owner *owners;        /* owned; of the range behind each edge */
    size_t starts[KEY_PARTS_MAX + 1U]; /* of each part's edges */
};

bool address_parse(struct slice text, struct address *ret);

/* Only address, length and nothing else of *ret are set. False: `wrong` has what is wrong with the text, and what to
 * write instead. */
bool network_parse(const char *text, struct network *ret, char wrong[NETWORK_WRONG_MAX]);
/* As it is written best, e.g. 10.0.0.0/8 for ::ffff:10.0.0.0/104; returns `out`. */
const char *network_print(const struct network *network, char out[NETWORK_TEXT_MAX]);
bool network_is_same(const struct network *a, const struct network *b); /* of the same part? */

void network_set_fini(struct network_set *set);                              /* of a set that began as zeros */
int network_set_add(struct network_set *set, const struct network *network); /* 0, or -1 without memory */
int network_set_seal(struct network_set *set);                               /* the same; after the last one */
/* The network that counts for the key, without its line. NULL as format: the whole key is an address, or none. */
bool network_set_find(const struct network_set *set, const struct key_format *format, struct slice key,
                      struct network *ret);

#endif
