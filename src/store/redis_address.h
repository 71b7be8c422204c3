/*
 * redis_address.h: "unix:/path", "host:port" or "[v6 address]:port" taken apart; pure.
 *
 * A name is only looked up where it is no numeric address, and never by hiredis, whose lookup
 * blocks.
 */
#ifndef RL_STORE_REDIS_ADDRESS_H
#define RL_STORE_REDIS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

enum { REDIS_HOST_MAX = 253, REDIS_PATH_MAX = 107 };

struct redis_address {
    bool is_unix;
    bool is_numeric;               /* host needs no lookup */
    bool is_v6;                    /* where is_numeric */
    char path[REDIS_PATH_MAX + 1]; /* where is_unix */
    char host[REDIS_HOST_MAX + 1]; /* else; without brackets */
    uint16_t port;
};

/* NULL, or what is wrong and what to write instead (static). */
const char *redis_address_parse(const char *text, struct redis_address *ret);

#endif
