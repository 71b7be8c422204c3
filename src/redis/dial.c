/* redis/dial.c: getaddrinfo in a thread of libuv, then a connection (redis/conn.h); for redis/link.c and redis/round.c. */
#include "redis/dial.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"

enum {
    LATE_US = 60 * 1000000, /* how long the address of a late lookup is good for */
    STEPS_PER_SECOND = 20,  /* that are logged */
};

/* It ends when the resolver likes, and so outlives its owner. */
struct redis_dial_lookup {
    uv_getaddrinfo_t request;
    struct redis_dial *dial; /* NULL once that is gone */
};

static void open_conn(struct redis_dial *dial, const char *host, bool is_v6)
{
    const struct redis_address *address = &dial->address;
    const struct redis_endpoint tcp = {.host = host,
                                       .port = address->port,
                                       .is_v6 = is_v6,
                                       .user_timeout_ms = dial->user_timeout_ms,
                                       .tls = *dial->tls,
                                       .name = address->host};
    const struct redis_endpoint local = {.path = address->path};
    int status = redis_conn_open(dial->conn, dial->loop, address->is_unix ? &local : &tcp);
    dial->on_dialed(dial, status < 0 ? dial->conn->error : NULL);
}

/* The n-th of the addresses, round and round. NULL, or what is wrong with it. */
static const char *take_nth(struct redis_dial *dial, const struct addrinfo *all)
{
    uint32_t n_all = 0;
    for (const struct addrinfo *it = all; it != NULL; it = it->ai_next) n_all++;
    if (n_all == 0) return "the name has no address";
    const struct addrinfo *picked = all;
    for (uint32_t i = dial->nth % n_all; i > 0; i--) picked = picked->ai_next;

    dial->is_found_v6 = picked->ai_family == AF_INET6;
    int status =
        getnameinfo(picked->ai_addr, picked->ai_addrlen, dial->found, sizeof dial->found, NULL, 0, NI_NUMERICHOST);
    return status != 0 ? gai_strerror(status) : NULL;
}

static void on_resolved(uv_getaddrinfo_t *uv, int status, struct addrinfo *all)
{
    struct redis_dial_lookup *lookup = CONTAINER_OF(uv, struct redis_dial_lookup, request);
    struct redis_dial *dial = lookup->dial;
    const char *fault = NULL;
    if (dial != NULL) fault = status < 0 ? uv_strerror(status) : take_nth(dial, all);
    uv_freeaddrinfo(all);
    mem_free(lookup);
    if (dial == NULL) return;

    clock_update(dial->conn->clock);
    dial->lookup = NULL;
    if (fault != NULL) dial->found[0] = '\0';
    if (!dial->is_awaited) {
        dial->late_us = dial->conn->clock->mono_us;
        return;
    }
    dial->is_awaited = false;
    if (fault != NULL)
        dial->on_dialed(dial, fault);
    else
        open_conn(dial, dial->found, dial->is_found_v6);
}

/* NULL: on_resolved() follows; else why not. */
static const char *look_up(struct redis_dial *dial)
{
    static struct log_site steps = {.most = STEPS_PER_SECOND};
    const char *name = dial->address.host;
    if (dial->lookup != NULL)
        return strcmp(dial->name, name) == 0 ? NULL : "the lookup of another name is still running";
    dial->late_us = 0;
    dial->found[0] = '\0';
    memcpy(dial->name, name, sizeof dial->name);

    struct redis_dial_lookup *lookup = mem_alloc(sizeof *lookup);
    if (lookup == NULL) return uv_strerror(UV_ENOMEM);
    lookup->dial = dial;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int status = uv_getaddrinfo(dial->loop, &lookup->request, on_resolved, name, NULL, &hints);
    if (status < 0) {
        mem_free(lookup);
        return uv_strerror(status);
    }
    dial->lookup = lookup;
    log_limited(&steps, LOG_LEVEL_DEBUG, "Redis: looking up %s", name);
    return NULL;
}

void redis_dial_init(struct redis_dial *dial, uv_loop_t *loop, struct redis_conn *conn, struct redis_tls *const *tls,
                     void (*on_dialed)(struct redis_dial *dial, const char *fault))
{
    *dial = (struct redis_dial){.loop = loop, .conn = conn, .tls = tls, .on_dialed = on_dialed};
}

void redis_dial_start(struct redis_dial *dial, uint32_t user_timeout_ms)
{
    const struct redis_address *address = &dial->address;
    dial->user_timeout_ms = user_timeout_ms;
    dial->is_awaited = false;
    if (address->is_unix || address->is_numeric) {
        open_conn(dial, address->host, address->is_v6);
        return;
    }

    /* A name: by what a late lookup has found, once; else it is looked up. */
    bool is_late = dial->late_us > 0 && dial->conn->clock->mono_us - dial->late_us < LATE_US;
    if (is_late && dial->found[0] != '\0' && strcmp(dial->name, address->host) == 0) {
        dial->late_us = 0;
        open_conn(dial, dial->found, dial->is_found_v6);
        return;
    }
    const char *fault = look_up(dial);
    dial->is_awaited = fault == NULL;
    if (fault != NULL) dial->on_dialed(dial, fault);
}

void redis_dial_give_up(struct redis_dial *dial)
{
    dial->is_awaited = false;
}

const char *redis_dial_found(const struct redis_dial *dial)
{
    return dial->address.is_unix || dial->address.is_numeric ? "" : dial->found;
}

void redis_dial_fini(struct redis_dial *dial)
{
    if (dial->lookup == NULL) return;
    dial->lookup->dial = NULL;
    uv_cancel((uv_req_t *)&dial->lookup->request); /* if it has not begun; else it frees itself at its end */
    dial->lookup = NULL;
}
