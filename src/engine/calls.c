/* calls.c: a map of calls by client and msgid: slots.c and reservations.c fill it, give_back.c looks into it. */
#include "engine/calls.h"

#include "base/assert.h"
#include "base/hash.h"

enum { CALLS_EXPECTED = 65536 };

void calls_fini(struct calls *calls)
{
    CHECK(calls->map.n == 0);
    if (calls->map.slots != NULL) map_fini(&calls->map);
}

/* A peer chooses its msgids. */
static uint64_t call_hash(uint64_t client, uint64_t msgid)
{
    const uint64_t name[] = {client, msgid};
    return hash_keyed(name, sizeof name);
}

struct call *calls_find(const struct calls *calls, uint64_t client, uint64_t msgid)
{
    if (calls->map.n == 0) return NULL;
    struct map_node *node = map_first(&calls->map, call_hash(client, msgid));
    for (; node != NULL; node = map_next_same(node)) {
        struct call *call = CONTAINER_OF(node, struct call, node);
        if (call->client == client && call->msgid == msgid) return call;
    }
    return NULL;
}

void calls_add(struct calls *calls, struct call *call, uint64_t client, uint64_t msgid)
{
    /* Only one is inside for each msgid: many of one hash would make a chain that is walked at every removal. */
    struct call *earlier = calls_find(calls, client, msgid);
    if (earlier != NULL) calls_remove(calls, earlier);
    calls_remove(calls, call);

    call->client = client;
    call->msgid = msgid;
    if (calls->map.slots == NULL && map_init(&calls->map, CALLS_EXPECTED) < 0) return;
    map_insert(&calls->map, &call->node, call_hash(client, msgid));
    call->is_inside = true;
}

void calls_remove(struct calls *calls, struct call *call)
{
    if (!call->is_inside) return;
    map_remove(&calls->map, &call->node);
    call->is_inside = false;
}
