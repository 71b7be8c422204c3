/* redis/lookup.c: a name's addresses, from getaddrinfo in a thread of libuv; for redis/link.c and redis/round.c. */
#include "redis/lookup.h"

#include "base/alloc.h"
#include "base/assert.h"

/* It ends when the resolver likes, and so outlives its owner. */
struct redis_lookup_request {
    uv_getaddrinfo_t request;
    struct redis_lookup *lookup; /* NULL once that is gone */
};

static void on_resolved(uv_getaddrinfo_t *uv, int status, struct addrinfo *all)
{
    struct redis_lookup_request *request = CONTAINER_OF(uv, struct redis_lookup_request, request);
    struct redis_lookup *lookup = request->lookup;
    mem_free(request);
    if (lookup != NULL) {
        lookup->request = NULL;
        const char *fault = status < 0 ? uv_strerror(status) : NULL;
        if (status == 0 && all == NULL) fault = "the name has no address";
        lookup->on_done(lookup, fault, all);
    }
    uv_freeaddrinfo(all);
}

const char *redis_lookup_start(struct redis_lookup *lookup, uv_loop_t *loop, const char *host)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (lookup->request != NULL) return "the lookup of another name is still running";
    struct redis_lookup_request *request = mem_alloc(sizeof *request);
    if (request == NULL) return uv_strerror(UV_ENOMEM);
    request->lookup = lookup;
    int status = uv_getaddrinfo(loop, &request->request, on_resolved, host, NULL, &hints);
    if (status < 0) {
        mem_free(request);
        return uv_strerror(status);
    }
    lookup->request = request;
    return NULL;
}

const char *redis_lookup_nth(const struct addrinfo *all, uint32_t nth, char ret_host[NI_MAXHOST], bool *ret_is_v6)
{
    uint32_t n_all = 0;
    for (const struct addrinfo *it = all; it != NULL; it = it->ai_next) n_all++;
    CHECK(n_all > 0);
    const struct addrinfo *picked = all;
    for (uint32_t i = nth % n_all; i > 0; i--) picked = picked->ai_next;

    *ret_is_v6 = picked->ai_family == AF_INET6;
    int status = getnameinfo(picked->ai_addr, picked->ai_addrlen, ret_host, NI_MAXHOST, NULL, 0, NI_NUMERICHOST);
    return status != 0 ? gai_strerror(status) : NULL;
}

void redis_lookup_fini(struct redis_lookup *lookup)
{
    if (lookup->request == NULL) return;
    lookup->request->lookup = NULL;
    uv_cancel((uv_req_t *)&lookup->request->request); /* if it has not begun; else it frees itself at its end */
    lookup->request = NULL;
}
