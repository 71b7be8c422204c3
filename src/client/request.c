#include "client/request.h"

#include "base/alloc.h"
#include "base/check.h"

enum {
    REQUESTS_KEPT = 4096, /* in the pool; the daemon takes as many from one connection before it pauses */
    BYTES_KEPT = 1024     /* bytes of storage that one in the pool keeps */
};

void request_pool_init(struct request_pool *pool)
{
    list_init(&pool->free);
    pool->n = 0;
}

void request_pool_fini(struct request_pool *pool)
{
    for (struct list *link; (link = list_pop_front(&pool->free)) != NULL; pool->n--) {
        struct request *request = LIST_ITEM(link, struct request, link);
        request_fini(request);
        mem_free(request);
    }
}

void request_init(struct request *request, enum request_kind kind)
{
    struct buffer bytes = request->bytes;
    *request = (struct request){.kind = kind, .bytes = bytes};
    list_init(&request->link);
}

void request_fini(struct request *request)
{
    buffer_fini(&request->bytes);
}

struct request *request_new(struct request_pool *pool, enum request_kind kind)
{
    struct list *link = list_pop_front(&pool->free);
    struct request *request = link != NULL ? LIST_ITEM(link, struct request, link) : mem_zalloc(sizeof *request);
    if (request == NULL) return NULL;
    if (link != NULL) pool->n--;
    request_init(request, kind);
    return request;
}

void request_release(struct request_pool *pool, struct request *request)
{
    if (pool->n >= REQUESTS_KEPT) {
        request_fini(request);
        mem_free(request);
        return;
    }
    buffer_truncate(&request->bytes, 0);
    buffer_shrink(&request->bytes, BYTES_KEPT);
    list_push_back(&pool->free, &request->link);
    pool->n++;
}

static struct packer start(struct request *request, uint64_t msgid, const char *method, uint32_t n_params)
{
    struct packer packer = packer_of(&request->bytes);
    buffer_truncate(&request->bytes, 0);
    request->msgid = msgid;
    rpc_pack_request(&packer, msgid, method, n_params);
    return packer;
}

int request_pack_hello(struct request *request, uint64_t msgid, bool as_maps)
{
    struct packer packer = start(request, msgid, "hello", 1);
    pack_map(&packer, 1);
    pack_text(&packer, "decision");
    pack_text(&packer, as_maps ? "map" : "array");
    return packer.failed ? -1 : 0;
}

int request_pack_check(struct request *request, uint64_t msgid, const char *method, const struct ratelimit_item *item)
{
    struct packer packer = start(request, msgid, method, 3);
    pack_text(&packer, item->policy);
    pack_str(&packer, (struct slice){item->key, item->key_len});
    pack_int(&packer, item->cost);
    request->cost = item->cost;
    return packer.failed ? -1 : 0;
}

int request_pack_other(struct request *request, uint64_t msgid, const char *method, struct slice params)
{
    uint32_t n;
    if (params.len == 0) return start(request, msgid, method, 0).failed ? -1 : 0;
    struct pull pull = pull_of(params.data, params.len);
    CHECK(pull_array(&pull, &n) == 0);
    if (start(request, msgid, method, n).failed) return -1;
    return buffer_append(&request->bytes, pull.at, (size_t)(pull.end - pull.at));
}
