#include "fakes/shared_store.h"

#include "base/assert.h"
#include "store/memory_store.h"

void shared_store_init(struct shared_store *shared, int64_t wall_us)
{
    *shared = (struct shared_store){.clock = {.frozen = true, .mono_us = 1, .wall_us = wall_us}};
    struct memory_options options = {.max_keys = 10000, .sweep = true};
    struct memory_store *memory = memory_store_new(&shared->clock, &options);
    CHECK(memory != NULL);
    shared->memory = memory_store_handle(memory);
}

static void on_closed(void *arg)
{
    (void)arg;
}

void shared_store_fini(struct shared_store *shared)
{
    store_close(&shared->memory, on_closed, NULL);
}

static void decide(struct shared_store *shared, struct op *op)
{
    if (shared->before_run != NULL) shared->before_run(op);
    CHECK(shared->memory.ops->submit(shared->memory.impl, op) == SUBMIT_DECIDED);
    op->source = SOURCE_REDIS;
    op->sent = true;
    if (shared->on_run != NULL) shared->on_run(op);
}

static enum submit submit(void *impl, struct op *op)
{
    struct shared_link *link = impl;
    if (link->is_down) return SUBMIT_DOWN;
    link->n_asked++;
    op->server = link->server;
    if (link->is_direct) {
        decide(link->shared, op);
        return SUBMIT_DECIDED;
    }
    list_push_back(&link->sent, &op->link);
    link->n_sent++;
    return SUBMIT_PENDING;
}

static void flush(void *impl)
{
    (void)impl;
}

static void close_link(void *impl, void (*callback)(void *arg), void *arg)
{
    struct shared_link *link = impl;
    shared_link_run(link, link->n_sent); /* what was flushed has arrived; its replies have not */
    shared_link_lose(link);
    callback(arg);
}

static const struct store_ops link_ops = {.submit = submit, .flush = flush, .close = close_link};

void shared_link_init(struct shared_link *link, struct shared_store *shared, bool is_direct)
{
    *link = (struct shared_link){.shared = shared, .is_direct = is_direct};
    list_init(&link->sent);
    list_init(&link->replied);
}

struct store shared_link_handle(struct shared_link *link)
{
    return (struct store){.ops = &link_ops, .impl = link, .source = SOURCE_REDIS, .server = &link->server};
}

void shared_link_run(struct shared_link *link, size_t n)
{
    for (struct list *it; n > 0 && (it = list_pop_front(&link->sent)) != NULL; n--) {
        decide(link->shared, LIST_ITEM(it, struct op, link));
        list_push_back(&link->replied, it);
        link->n_sent--;
        link->n_replied++;
    }
}

void shared_link_reply(struct shared_link *link, size_t n)
{
    for (struct list *it; n > 0 && (it = list_pop_front(&link->replied)) != NULL; n--) {
        struct op *op = LIST_ITEM(it, struct op, link);
        link->n_replied--;
        op->done(op, OP_DECIDED);
    }
}

void shared_link_lose(struct shared_link *link)
{
    struct list lost;
    list_init(&lost);
    list_append(&lost, &link->replied);
    list_append(&lost, &link->sent);
    link->n_sent = link->n_replied = 0;
    for (struct list *it; (it = list_pop_front(&lost)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->sent = true;
        op->done(op, OP_DOWN);
    }
}
