/* async.c: the asynchronous client from new to free, and what the caller's event loop waits for. calls.c makes calls;
 * exchange.c sends them and handles the answers. */
#include "client/async.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "client/exchange.h"

enum { MSGID_SLOTS = 4096 /* of the table of sent calls; more calls make its chains longer */ };

static const char *path_or_default(const char *path)
{
    if (path != NULL) return path;
    path = secure_getenv("RATELIMIT_SOCKET");
    return path != NULL && path[0] != '\0' ? path : RATELIMIT_DEFAULT_SOCKET;
}

enum ratelimit_status ratelimit_async_new(const char *path, struct ratelimit_async **ret_client)
{
    struct ratelimit_async *client = mem_zalloc(sizeof *client);
    enum ratelimit_status status = RATELIMIT_NO_MEMORY;
    if (client == NULL) return status;
    if (link_init(&client->connection, path_or_default(path)) != 0) {
        status = RATELIMIT_BAD_ARGUMENT;
        goto err_client;
    }
    if (origin_init(&client->origin) != 0) goto err_client;
    if (map_init(&client->by_msgid, MSGID_SLOTS) != 0) goto err_origin;
    list_init(&client->waiting);
    list_init(&client->sent);
    list_init(&client->ending);
    list_init(&client->orphans);
    heap_init(&client->deadlines);
    buffer_init(&client->id, 0);
    request_pool_init(&client->pool);
    request_init(&client->hello, REQUEST_HELLO);
    decode_order_init(&client->order);
    client->max_frame = RATELIMIT_REQUEST_MAX;
    client->next_msgid = 1;
    client->backoff_us = EXCHANGE_BACKOFF_MIN_US;
    *ret_client = client;
    return RATELIMIT_OK;

err_origin:
    origin_fini(&client->origin);
err_client:
    mem_free(client);
    return status;
}

void async_use_maps(struct ratelimit_async *client)
{
    client->maps = true;
}

void ratelimit_async_describe(struct ratelimit_async *client)
{
    client->describes = true;
}

const char *async_fault(const struct ratelimit_async *client)
{
    return client->fault;
}

void async_drop_orphans(struct ratelimit_async *client)
{
    exchange_drop_orphans(client);
}

struct clock *async_clock(struct ratelimit_async *client)
{
    return &client->clock;
}

static void destroy(struct ratelimit_async *client)
{
    client->busy = client->dying = true;
    exchange_cancel(client);
    request_fini(&client->hello);
    request_pool_fini(&client->pool);
    mem_free(client->members);
    buffer_fini(&client->id);
    heap_fini(&client->deadlines);
    map_fini(&client->by_msgid);
    link_fini(&client->connection);
    origin_fini(&client->origin);
    mem_free(client);
}

void ratelimit_async_free(struct ratelimit_async *client)
{
    if (client == NULL) return;
    client->dying = true;
    if (client->busy) return;
    exchange_leave_parent(client);
    destroy(client);
}

void ratelimit_async_process(struct ratelimit_async *client, short revents)
{
    if (client->busy) return;
    client->busy = true;
    exchange_leave_parent(client);
    clock_update(&client->clock);
    exchange_turn(client, revents);
    if (client->connection.fd >= 0 && !client->dying) exchange_tell(client, ratelimit_async_events(client));
    client->busy = false;
    if (client->dying) destroy(client);
}

/* ---- What the caller's loop waits for ---- */

int ratelimit_async_fd(const struct ratelimit_async *client)
{
    return client->connection.fd;
}

short ratelimit_async_events(const struct ratelimit_async *client)
{
    if (client->connection.fd < 0) return 0;
    return client->stuck ? POLLIN | POLLOUT : POLLIN;
}

int ratelimit_async_next_timeout_ms(const struct ratelimit_async *client)
{
    struct heap_node *first = heap_min(&client->deadlines);
    int64_t at_us = first != NULL ? first->at_us : INT64_MAX;
    if (!list_empty(&client->waiting)) {
        if (client->connection.fd < 0 && client->retry_at_us < at_us) at_us = client->retry_at_us;
        if (client->connection.fd >= 0 && !client->stuck) return 0;
    }
    if (at_us == INT64_MAX) return -1;
    struct clock clock = client->clock;
    clock_update(&clock);
    int64_t wait_ms = at_us > clock.mono_us ? (at_us - clock.mono_us + 999) / 1000 : 0;
    return wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
}

void ratelimit_async_watch(struct ratelimit_async *client, ratelimit_watch_fn *on_change, void *arg)
{
    client->on_change = on_change;
    client->on_change_arg = arg;
    client->told_events = 0;
}

size_t ratelimit_async_pending(const struct ratelimit_async *client)
{
    return client->n_pending;
}
