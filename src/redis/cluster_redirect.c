#include "redis/cluster_redirect.h"

#include <string.h>

enum { SLOT_DIGITS = 5, PORT_DIGITS = 5 };

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
    const char *fault = cluster_address(redirect.address, host, number_of(colon + 1, end, PORT_DIGITS), sender);
    if (fault == NULL) *ret = redirect;
    return fault;
}
