#include "client/call.h"

#include "base/alloc.h"
#include "base/check.h"

enum {
    CALLS_KEPT = 4096,  /* calls the pool keeps; the daemon takes as many from one connection before it pauses */
    REQUEST_KEPT = 1024 /* bytes of request storage a pooled call keeps */
};

void call_pool_init(struct call_pool *pool)
{
    list_init(&pool->free);
    pool->n = 0;
}

void call_pool_fini(struct call_pool *pool)
{
    for (struct list *link; (link = list_pop_front(&pool->free)) != NULL; pool->n--) {
        struct call *call = LIST_ITEM(link, struct call, link);
        call_fini(call);
        mem_free(call);
    }
}

void call_init(struct call *call, enum call_kind kind)
{
    struct buffer request = call->request;
    *call = (struct call){.kind = kind, .request = request};
    list_init(&call->link);
}

void call_fini(struct call *call)
{
    buffer_fini(&call->request);
}

struct call *call_new(struct call_pool *pool, enum call_kind kind)
{
    struct list *link = list_pop_front(&pool->free);
    struct call *call = link != NULL ? LIST_ITEM(link, struct call, link) : mem_zalloc(sizeof *call);
    if (call == NULL) return NULL;
    if (link != NULL) pool->n--;
    call_init(call, kind);
    return call;
}

void call_release(struct call_pool *pool, struct call *call)
{
    if (pool->n >= CALLS_KEPT) {
        call_fini(call);
        mem_free(call);
        return;
    }
    buffer_truncate(&call->request, 0);
    buffer_shrink(&call->request, REQUEST_KEPT);
    list_push_back(&pool->free, &call->link);
    pool->n++;
}

static struct packer start(struct call *call, uint64_t msgid, const char *method, uint32_t n_params)
{
    struct packer packer = packer_of(&call->request);
    buffer_truncate(&call->request, 0);
    call->msgid = msgid;
    rpc_pack_request(&packer, msgid, method, n_params);
    return packer;
}

int call_pack_hello(struct call *call, uint64_t msgid, bool as_maps)
{
    struct packer packer = start(call, msgid, "hello", 1);
    pack_map(&packer, 1);
    pack_text(&packer, "decision");
    pack_text(&packer, as_maps ? "map" : "array");
    return packer.failed ? -1 : 0;
}

int call_pack_check(struct call *call, uint64_t msgid, const char *method, const struct ratelimit_item *item)
{
    struct packer packer = start(call, msgid, method, 3);
    pack_text(&packer, item->policy);
    pack_str(&packer, (struct slice){item->key, item->key_len});
    pack_int(&packer, item->cost);
    call->cost = item->cost;
    return packer.failed ? -1 : 0;
}

int call_pack_other(struct call *call, uint64_t msgid, const char *method, struct slice params)
{
    struct pull pull = pull_of(params.data, params.len);
    uint32_t n = 0;
    if (params.len > 0) CHECK(pull_array(&pull, &n) == 0);
    struct packer packer = start(call, msgid, method, n);
    if (packer.failed) return -1;
    return buffer_append(&call->request, pull.at, (size_t)(pull.end - pull.at));
}
