#include "fakes/scripted_store.h"

#include "base/assert.h"

bool scripted_has_places;

void scripted_init(struct scripted_store *scripted)
{
    *scripted = (struct scripted_store){
        .decision = {.allowed = true, .limit = 10, .remaining = 9, .reset_after_ms = 1000, .granted = 1},
        .removed = true,
        .found = true,
    };
    list_init(&scripted->held);
}

static void fill(const struct scripted_store *scripted, struct op *op)
{
    op->source = scripted->decision.source;
    for (size_t i = 0; i < op->n_members; i++) {
        op->members[i].decision = scripted->decision;
        op->members[i].decision.of = op->members[i].limit;
        op->members[i].removed = scripted->removed;
        op->members[i].found = scripted->found;
    }
    if (op->kind == OP_RESERVE) op->reservation->held = scripted->decision.allowed;
    if (op->kind == OP_SETTLE) op->reservation->ended = false;
}

static enum submit on_submit(void *store, struct op *op)
{
    struct scripted_store *scripted = store;
    CHECK(!scripted->closed && op->n_members > 0);
    scripted->n_submitted++;
    switch (scripted->mode) {
    case SCRIPTED_HOLD: break;
    case SCRIPTED_DECIDE: fill(scripted, op); return SUBMIT_DECIDED;
    case SCRIPTED_REFUSE_DOWN: return SUBMIT_DOWN;
    case SCRIPTED_REFUSE_OVERLOAD: return SUBMIT_OVERLOAD;
    case SCRIPTED_REFUSE_BREAKER: return SUBMIT_BREAKER;
    }
    op->sent = !scripted->holds_unsent;
    list_push_back(&scripted->held, &op->link);
    scripted->n_held++;
    return SUBMIT_PENDING;
}

static void on_flush(void *store)
{
    struct scripted_store *scripted = store;
    CHECK(!scripted->closed);
    scripted->n_flushed++;
}

static bool on_withdraw(void *store, struct op *op)
{
    struct scripted_store *scripted = store;
    if (op->sent) return false;
    list_remove(&op->link);
    scripted->n_held--;
    return true;
}

static void end(struct scripted_store *scripted, struct op *op, enum op_outcome outcome)
{
    list_remove(&op->link);
    scripted->n_held--;
    if (outcome == OP_DECIDED) fill(scripted, op);
    op->done(op, outcome);
}

struct op *scripted_held(struct scripted_store *scripted, size_t i)
{
    CHECK(i < scripted->n_held);
    struct list *at = scripted->held.next;
    while (i-- > 0) at = at->next;
    return LIST_ITEM(at, struct op, link);
}

void scripted_end(struct scripted_store *scripted, size_t i, enum op_outcome outcome)
{
    end(scripted, scripted_held(scripted, i), outcome);
}

void scripted_end_all(struct scripted_store *scripted, enum op_outcome outcome)
{
    while (scripted->n_held > 0) scripted_end(scripted, 0, outcome);
}

void scripted_reply_twice(struct scripted_store *scripted)
{
    struct op *op = scripted_held(scripted, 0);
    end(scripted, op, OP_DECIDED);
    op->done(op, OP_DECIDED);
}

void scripted_finish_close(struct scripted_store *scripted)
{
    scripted->closed = true;
    scripted_end_all(scripted, OP_DOWN);
    scripted->on_closed(scripted->on_closed_arg);
}

static void on_close(void *store, void (*on_closed)(void *arg), void *arg)
{
    struct scripted_store *scripted = store;
    scripted->on_closed = on_closed;
    scripted->on_closed_arg = arg;
    if (!scripted->holds_close) scripted_finish_close(scripted);
}

static uint32_t on_place_of(void *store, const struct op_member *member)
{
    (void)store;
    return member->key.data[0];
}

struct store scripted_handle(struct scripted_store *scripted)
{
    static const struct store_ops ops = {
        .submit = on_submit, .flush = on_flush, .withdraw = on_withdraw, .close = on_close};
    static const struct store_ops with_places = {
        .submit = on_submit, .place_of = on_place_of, .flush = on_flush, .withdraw = on_withdraw, .close = on_close};
    return (struct store){.ops = scripted_has_places ? &with_places : &ops, .impl = scripted, .source = SOURCE_REDIS};
}
