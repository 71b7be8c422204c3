#include "engine/check_pool.h"

#include "base/alloc.h"
#include "base/check.h"

enum {
    SLAB_CHECKS = 64,
    KEEP_KEY = 4096, /* a longer key's storage is not kept in the pool: 65536 of them would be the whole memory */
};

struct check_slab {
    struct check_slab *next;
    struct check checks[SLAB_CHECKS];
};

void check_pool_init(struct check_pool *pool)
{
    *pool = (struct check_pool){0};
    list_init(&pool->idle);
}

void check_pool_fini(struct check_pool *pool)
{
    CHECK(pool->n_out == 0);
    for (struct check_slab *slab = pool->slabs, *next; slab != NULL; slab = next) {
        next = slab->next;
        for (size_t i = 0; i < SLAB_CHECKS; i++) {
            mem_free(slab->checks[i].big_key);
            mem_free(slab->checks[i].big_members);
            mem_free(slab->checks[i].ids);
            mem_free(slab->checks[i].note_bytes);
        }
        mem_free(slab);
    }
    check_pool_init(pool);
}

static int add_slab(struct check_pool *pool)
{
    struct check_slab *slab = mem_zalloc(sizeof *slab);
    if (slab == NULL) return -1;
    slab->next = pool->slabs;
    pool->slabs = slab;
    for (size_t i = 0; i < SLAB_CHECKS; i++) list_push_back(&pool->idle, &slab->checks[i].link);
    return 0;
}

/* Where `len` bytes of key can stand; NULL without memory. */
static uint8_t *key_room(struct check *check, size_t len)
{
    if (len <= CHECK_INLINE_KEY) return check->inline_key;
    if (len <= check->big_cap) return check->big_key;
    uint8_t *bytes = mem_realloc(check->big_key, len);
    if (bytes == NULL) return NULL;
    check->big_key = bytes;
    check->big_cap = len;
    return bytes;
}

struct check *check_pool_take(struct check_pool *pool, struct slice key)
{
    if (list_empty(&pool->idle) && add_slab(pool) < 0) return NULL;
    struct check *check = LIST_ITEM(pool->idle.next, struct check, link);
    uint8_t *bytes = key_room(check, key.len);
    if (bytes == NULL) return NULL;
    list_remove(&check->link);
    pool->n_out++;
    memset(check, 0, offsetof(struct check, link));
    deadline_init(&check->deadline);
    if (key.len > 0) memcpy(bytes, key.data, key.len);
    check->key = (struct slice){bytes, key.len};
    check->members = check->inline_members;
    return check;
}

void check_pool_return(struct check_pool *pool, struct check *check)
{
    CHECK(pool->n_out > 0 && list_empty(&check->link) && !deadline_is_set(&check->deadline) && !check->store_holds);
    if (check->big_cap > KEEP_KEY) {
        mem_free(check->big_key);
        check->big_key = NULL;
        check->big_cap = 0;
    }
    if (check->note_cap > KEEP_KEY) {
        mem_free(check->note_bytes);
        check->note_bytes = NULL;
        check->note_cap = 0;
    }
    if (check->ids_cap > KEEP_KEY) {
        mem_free(check->ids);
        check->ids = NULL;
        check->ids_cap = 0;
    }
    pool->n_out--;
    list_push_back(pool->idle.next, &check->link); /* before the first: the list is a stack */
}

int check_reserve_ids(struct check *first)
{
    for (struct check *one = first; one != NULL; one = check_after(first, one)) {
        size_t len = one->policy->n_joined * one->key.len;
        if (len <= one->ids_cap) continue;
        uint8_t *ids = mem_realloc(one->ids, len);
        if (ids == NULL) return -1;
        one->ids = ids;
        one->ids_cap = len;
    }
    return 0;
}

int check_reserve_members(struct check *check, size_t n)
{
    CHECK(n <= POLICY_LIMITS_MAX);
    if (n <= CHECK_INLINE_MEMBERS) return 0;
    if (check->big_members == NULL) check->big_members = mem_alloc(POLICY_LIMITS_MAX * sizeof *check->big_members);
    if (check->big_members == NULL) return -1;
    check->members = check->big_members;
    return 0;
}
