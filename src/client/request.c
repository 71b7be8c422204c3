/* request.c: makes a request out of a pool and packs it, for call.c and exchange.c. */
#include "client/request.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "client/decode.h"
#include "client/flow.h"
#include "client/long_key.h"
#include "client/names.h"

enum {
    REQUESTS_KEPT = 4096, /* in the pool; the daemon takes as many from one connection before it pauses */
    BYTES_KEPT = 1024,    /* bytes of storage that one in the pool keeps */
    MEMBERS_KEPT =
        REQUEST_MEMBERS_MAX + 1, /* decisions that it keeps space for: those of a check_all, and that on all */
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
    memset(request, 0, offsetof(struct request, bytes));
    request->kind = kind;
    list_init(&request->link);
}

void request_fini(struct request *request)
{
    buffer_fini(&request->bytes);
    buffer_fini(&request->names);
    buffer_fini(&request->check);
    mem_free(request->members);
}

struct request *request_new(struct request_pool *pool)
{
    struct list *link = list_pop_front(&pool->free);
    struct request *request = link != NULL ? LIST_ITEM(link, struct request, link) : mem_zalloc(sizeof *request);
    if (request == NULL) return NULL;
    if (link != NULL) pool->n--;

    request_init(request, REQUEST_OTHER);
    return request;
}

void request_release(struct request_pool *pool, struct request *request)
{
    CHECK(list_empty(&request->link));
    if (pool->n >= REQUESTS_KEPT) {
        request_fini(request);
        mem_free(request);
        return;
    }

    struct buffer *const storage[] = {&request->bytes, &request->names, &request->check};
    for (size_t i = 0; i < N_OF(storage); i++) {
        buffer_truncate(storage[i], 0);
        buffer_shrink(storage[i], BYTES_KEPT);
    }
    if (request->members_cap > MEMBERS_KEPT) {
        mem_free(request->members);
        request->members = NULL;
        request->members_cap = 0;
    }
    list_push_back(&pool->free, &request->link);
    pool->n++;
}

int request_reserve_members(struct request *request, size_t n)
{
    if (n <= request->members_cap) return 0;
    struct ratelimit_decision *members = mem_realloc(request->members, n * sizeof *members);
    if (members == NULL) return -1;
    request->members = members;
    request->members_cap = n;
    return 0;
}

static struct packer start_message(struct request *request, const char *method, uint32_t n_params)
{
    struct packer packer = packer_of(&request->bytes);
    buffer_truncate(&request->bytes, 0);
    rpc_pack_request(&packer, request->msgid, method, n_params);
    return packer;
}

int request_pack_hello(struct request *request, bool as_maps, bool describes)
{
    struct packer packer = start_message(request, "hello", 1);
    pack_map(&packer, 1U + describes);
    pack_text_field(&packer, "decision", as_maps ? "map" : "array");
    if (describes) pack_bool_field(&packer, "describe", true);
    return packer.failed ? -1 : 0;
}

int request_pack_abandon(struct request *request)
{
    buffer_truncate(&request->bytes, 0);
    struct packer packer = packer_of(&request->bytes);
    pack_array(&packer, 3);
    pack_uint(&packer, RPC_NOTIFICATION);
    pack_text(&packer, "abandon");
    pack_array(&packer, 1);
    pack_uint(&packer, request->msgid);
    return packer.failed ? -1 : 0;
}

/* What every question begins with; with settings their name is noted, behind those of the items before. */
static void pack_target(struct request *request, struct packer *packer, const struct ratelimit_item *item, size_t i)
{
    const char *at;
    uint8_t buffer[LONG_KEY_SIZE];
    struct flow_name name = {.is_left_out = !request->sends_names};

    if (request->wrong == NULL && item->policy[0] == '{') {
        request->wrong = flow_pack(packer, item->policy, &name, &at);
        if (name.text[0] != '\0' && names_note(&request->names, &request->n_names, i, name.text) != 0)
            packer->failed = true;
    } else {
        pack_text(packer, item->policy);
    }
    pack_str(packer, long_key_shortened((struct slice){item->key, item->key_len}, buffer));
}

/* Those that are not at their default; the cost only if it is one of them, and not replaced by at_most. */
static void pack_options(struct packer *packer, const struct ratelimit_options *options, bool has_cost)
{
    const struct {
        const char *name;
        bool is_set;
        int64_t value;
    } numbers[] = {
        {"cost", has_cost && options->at_most == 0, options->cost},
        {"at_most", options->at_most > 0, options->at_most},
        {"max_wait_ms", options->max_wait_ms >= 0, options->max_wait_ms},
        {"deadline_ms", options->deadline_ms > 0, options->deadline_ms},
        {"ttl_ms", options->ttl_ms > 0, options->ttl_ms},
    };
    enum { N_NUMBERS = N_OF(numbers) };
    uint32_t n = options->request_id != NULL;
    for (int i = 0; i < N_NUMBERS; i++) n += numbers[i].is_set;

    pack_map(packer, n);
    for (int i = 0; i < N_NUMBERS; i++)
        if (numbers[i].is_set) pack_int_field(packer, numbers[i].name, numbers[i].value);
    if (options->request_id != NULL) {
        pack_text(packer, "request_id");
        pack_bin(packer, (struct slice){options->request_id, options->request_id_len});
    }
}

/* [[policy, key, cost], ...], and space for their answers. -1 without memory. */
static int pack_list(struct request *request, struct packer *packer, const struct ratelimit_item *items, size_t n)
{
    if (request_reserve_members(request, n) != 0) return -1;
    request->n_members = n;

    pack_array(packer, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        pack_array(packer, 3);
        pack_target(request, packer, &items[i], i);
        pack_int(packer, items[i].cost);
        request->members[i].granted = items[i].cost;
        request->cost += items[i].cost >= 0 && items[i].cost <= EXACT_MAX ? items[i].cost : 0;
    }
    return 0;
}

int request_pack(struct request *request, const struct question *question, unsigned features)
{
    bool is_one = question->about == ABOUT_ITEM, has_units = question->units != NULL;
    struct packer packer = start_message(request, question->method, 1U + is_one + has_units + question->has_options);
    request->cost = question->granted;
    request->sends_names = question->about != ABOUT_ID && features & FEATURE_NAME;

    if (is_one)
        pack_target(request, &packer, question->items, 0);
    else if (question->about == ABOUT_ID)
        pack_text(&packer, question->id);
    else if (pack_list(request, &packer, question->items, question->n_items) != 0)
        return -1;

    if (has_units) pack_int(&packer, *question->units);
    if (question->has_options) pack_options(&packer, question->options, question_has_cost(question));
    return packer.failed ? -1 : 0;
}

int request_pack_other(struct request *request, const char *method, struct slice params)
{
    uint32_t n = 0;
    struct pull values = {0};
    if (params.len > 0) {
        values = pull_of(params.data, params.len);
        CHECK(pull_array(&values, &n) == 0);
    }
    struct packer packer = start_message(request, method, n);
    if (packer.failed) return -1;
    return buffer_append(&request->bytes, values.at, (size_t)(values.end - values.at));
}

/* The map of a policy's settings comes next, as flow_pack() writes it. Its name is taken out of the bytes. */
static void drop_name(struct buffer *bytes, struct pull *pull)
{
    enum { COUNT_AT = 1 }; /* of the map, in two bytes */
    uint8_t *map = (uint8_t *)pull->at;
    uint32_t n, n_left;
    struct slice name;
    CHECK(pull_map(pull, &n) == 0);
    n_left = n;

    for (; n > 0; n--) {
        uint8_t *entry = (uint8_t *)pull->at;
        CHECK(pull_text(pull, &name) == 0 && pull_skip(pull) == 0);
        if (!slice_is(name, "name")) continue;
        size_t len = (size_t)(pull->at - entry);
        memmove(entry, pull->at, (size_t)(pull->end - pull->at));
        buffer_truncate(bytes, buffer_len(bytes) - len);
        *pull = (struct pull){entry, pull->end - len};
        n_left--;
    }
    map[COUNT_AT] = (uint8_t)(n_left >> 8);
    map[COUNT_AT + 1] = (uint8_t)n_left;
}

void request_drop_names(struct request *request)
{
    struct rpc_request message;
    uint32_t n_items = 1, n_parts;
    if (!request->sends_names || buffer_len(&request->names) == 0) return;
    request->sends_names = false;
    CHECK(rpc_parse_request(buffer_data(&request->bytes), buffer_len(&request->bytes), &message) == RPC_OK);

    bool is_list = pull_array(&message.params, &n_items) == 0;
    for (; n_items > 0; n_items--) {
        if (is_list) CHECK(pull_array(&message.params, &n_parts) == 0 && n_parts == 3);
        if (pull_type(&message.params) == PULL_MAP)
            drop_name(&request->bytes, &message.params);
        else
            CHECK(pull_skip(&message.params) == 0);
        for (int i = 1; is_list && i < 3; i++) CHECK(pull_skip(&message.params) == 0);
    }
}
