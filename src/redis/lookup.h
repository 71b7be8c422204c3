/*
 * redis/lookup.h: the addresses of a name. hiredis' own lookup would block the loop.
 */
#ifndef RL_REDIS_LOOKUP_H
#define RL_REDIS_LOOKUP_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct redis_lookup_request;

struct redis_lookup {
    struct redis_lookup_request *request; /* NULL = none runs */
    /* NULL = `all` has one address or more, which are freed afterwards; else what was wrong. */
    void (*on_done)(struct redis_lookup *lookup, const char *fault, const struct addrinfo *all);
};

/* NULL, or what is wrong: then on_done does not run. One runs at a time: a resolver that hangs must not get all helper
 * threads. */
const char *redis_lookup_start(struct redis_lookup *lookup, uv_loop_t *loop, const char *host);
/* The n-th address, round and round, as digits. NULL, or what is wrong with it. */
const char *redis_lookup_nth(const struct addrinfo *all, uint32_t nth, char ret_host[NI_MAXHOST], bool *ret_is_v6);
/* The owner goes. A lookup that has begun keeps the loop alive until the resolver gives up, but on_done does not run.
 */
void redis_lookup_fini(struct redis_lookup *lookup);

#endif
