#include "fakes/placed_store.h"

#include "base/assert.h"

void placed_init(struct placed_store *placed, const struct clock *clock)
{
    const struct memory_options options = {.max_keys = 10000};
    *placed = (struct placed_store){.clock = clock, .server = 5, .memory = memory_store_new(clock, &options)};
    CHECK(placed->memory != NULL);
    placed->inside = memory_store_handle(placed->memory);
    list_init(&placed->held);
}

static uint32_t on_place_of(void *store, const struct op_member *member)
{
    (void)store;
    CHECK(member->key.len > 0 && member->key.data[0] >= 'a' && member->key.data[0] <= 'z');
    return member->key.data[0] - 'a';
}

static enum submit on_submit(void *store, struct op *op)
{
    struct placed_store *placed = store;
    uint32_t place = on_place_of(store, &op->members[0]);
    CHECK(op->n_members > 0);
    for (uint16_t i = 1; i < op->n_members; i++) CHECK(on_place_of(store, &op->members[i]) == place);

    placed->n_submitted++;
    if (placed->is_closed || placed->is_down[place]) return SUBMIT_DOWN;
    if (placed->decides_at_once) return placed->inside.ops->submit(placed->inside.impl, op);
    op->sent = !placed->holds_unsent;
    op->server = placed->server;
    list_push_back(&placed->held, &op->link);
    placed->n_held++;
    return SUBMIT_PENDING;
}

static void on_flush(void *store)
{
    struct placed_store *placed = store;
    placed->n_flushed++;
}

static bool on_withdraw(void *store, struct op *op)
{
    struct placed_store *placed = store;
    if (op->sent) return false;
    list_remove(&op->link);
    placed->n_held--;
    return true;
}

static void on_close(void *store, void (*on_closed)(void *arg), void *arg)
{
    struct placed_store *placed = store;
    placed->is_closed = true;
    while (placed->n_held > 0) placed_end(placed, 0, OP_DOWN);
    memory_store_free(placed->memory);
    on_closed(arg);
}

struct store placed_handle(struct placed_store *placed)
{
    static const struct store_ops ops = {
        .submit = on_submit, .place_of = on_place_of, .flush = on_flush, .withdraw = on_withdraw, .close = on_close};
    return (struct store){.ops = &ops, .impl = placed, .source = SOURCE_REDIS, .server = &placed->server};
}

struct op *placed_held(const struct placed_store *placed, size_t i)
{
    struct list *it = placed->held.next;
    CHECK(i < placed->n_held);
    while (i-- > 0) it = it->next;
    return LIST_ITEM(it, struct op, link);
}

void placed_decide(struct placed_store *placed, size_t i)
{
    struct op *op = placed_held(placed, i);
    struct list link = op->link;
    op->sent = true;
    enum submit status = placed->inside.ops->submit(placed->inside.impl, op);
    op->source = SOURCE_REDIS;
    op->link = link;
    CHECK(status == SUBMIT_DECIDED);
}

void placed_end(struct placed_store *placed, size_t i, enum op_outcome outcome)
{
    struct op *op = placed_held(placed, i);
    list_remove(&op->link);
    placed->n_held--;
    op->done(op, outcome);
}

void placed_reply(struct placed_store *placed, size_t i)
{
    placed_decide(placed, i);
    placed_end(placed, i, OP_DECIDED);
}

void placed_reply_all(struct placed_store *placed)
{
    while (placed->n_held > 0) placed_reply(placed, 0);
}
