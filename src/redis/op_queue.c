/* op_queue.c: ops that wait for one server, served in rounds by weight; for redis/batches.c. */
#include "redis/op_queue.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "redis/batch.h"

enum {
    CLIENTS_EXPECTED = 16384, /* places of the table; more clients than this make its chains longer */
    IDLE_MAX = 1024,
    N_KEY_LISTS = 1024,                           /* a power of two */
    FRESH_PER_OTHER = 128,                        /* while both wait: weight of the fresh ones for one of the ring */
    FRESH_MAX = FRESH_PER_OTHER * OP_QUEUE_SHARE, /* goes before the ring at once: what a turn of it pays for */
};

/* In the queue's `fresh`, `ring`, `done` or `passed` if it has ops. Without ops: in `ring` or `done` if it owes, in
 * `recent` if it took something, but less than its share in this round. */
struct client {
    struct list link;
    struct map_node node;
    struct list ops;  /* oldest first */
    size_t n_others;  /* of these: those that are no single checks */
    uint32_t round;   /* to which n_taken belongs */
    uint32_t n_taken; /* weight, in that round; what is beyond a share is owed */
};

int op_queue_init(struct op_queue *queue)
{
    *queue = (struct op_queue){0};
    list_init(&queue->fresh);
    list_init(&queue->ring);
    list_init(&queue->done);
    list_init(&queue->passed);
    list_init(&queue->recent);
    list_init(&queue->idle);
    queue->by_key = mem_alloc(N_KEY_LISTS * sizeof *queue->by_key);
    if (queue->by_key == NULL) return -1;
    for (size_t i = 0; i < N_KEY_LISTS; i++) list_init(&queue->by_key[i]);
    if (map_init(&queue->by_number, CLIENTS_EXPECTED) == 0) return 0;
    mem_free(queue->by_key);
    return -1;
}

void op_queue_fini(struct op_queue *queue)
{
    CHECK(queue->n == 0 && queue->by_number.n == 0);

    for (struct list *it; (it = list_pop_front(&queue->idle)) != NULL;) mem_free(LIST_ITEM(it, struct client, link));
    map_fini(&queue->by_number);
    mem_free(queue->by_key);
}

/* ---- clients ---- */

static struct client *find_client(const struct op_queue *queue, uint64_t number)
{
    if (queue->last != NULL && queue->last->node.hash == number) return queue->last;
    struct map_node *node = map_first(&queue->by_number, number); /* a number is its own hash */
    return node != NULL ? CONTAINER_OF(node, struct client, node) : NULL;
}

/* It has no ops any more, and what it took counts no longer. */
static void forget_client(struct op_queue *queue, struct client *client)
{
    list_remove(&client->link);
    map_remove(&queue->by_number, &client->node);
    if (queue->last == client) queue->last = NULL;
    if (queue->n_idle >= IDLE_MAX) {
        mem_free(client);
        return;
    }
    list_push_front(&queue->idle, &client->link); /* its memory is warm: the first to be used again */
    queue->n_idle++;
}

static void forget_all(struct op_queue *queue, struct list *clients)
{
    while (!list_empty(clients)) forget_client(queue, LIST_ITEM(clients->next, struct client, link));
}

/* Each round since then has paid for a share. */
static inline void note_round(const struct op_queue *queue, struct client *client)
{
    if (client->round == queue->round) return;
    uint64_t paid = (uint64_t)(queue->round - client->round) * OP_QUEUE_SHARE;
    client->n_taken -= paid < client->n_taken ? (uint32_t)paid : client->n_taken;
    client->round = queue->round;
}

static void move_client(struct client *client, struct list *to)
{
    list_remove(&client->link);
    list_push_back(to, &client->link);
}

/* Apart, as what follows an op that was taken: not for each op, so that most save no registers for it. */
static __attribute__((noinline)) struct client *add_client(struct op_queue *queue, uint64_t number)
{
    struct list *idle = list_pop_front(&queue->idle);
    queue->n_idle -= idle != NULL;
    struct client *client = idle != NULL ? LIST_ITEM(idle, struct client, link) : mem_zalloc(sizeof *client);
    if (client == NULL) return NULL;

    list_init(&client->ops);
    client->n_taken = 0;
    client->round = queue->round;
    list_push_back(&queue->fresh, &client->link);
    map_insert(&queue->by_number, &client->node, number);
    return client;
}

/* The client of this number; NULL without memory. One without ops gets a place for the next one. */
static struct client *find_or_add(struct op_queue *queue, uint64_t number)
{
    struct client *client = find_client(queue, number);
    if (client == NULL) {
        client = add_client(queue, number);
        if (client == NULL) return NULL;
    } else if (list_empty(&client->ops)) {
        note_round(queue, client);
        if (client->n_taken < OP_QUEUE_SHARE) move_client(client, &queue->fresh);
    }
    queue->last = client;
    return client;
}

/* ---- ops ---- */

int op_queue_add(struct op_queue *queue, struct op *op)
{
    struct client *client = find_or_add(queue, op->client);
    if (client == NULL) return -1;

    list_push_back(&client->ops, &op->link);
    list_init(&op->same_key);
    if (op_is_single_check(op))
        list_push_back(op_queue_checks_of(queue, batch_key_hash(&op->members[0])), &op->same_key);
    else
        client->n_others++;
    op->is_queued = true;
    queue->n++;
    return 0;
}

int op_queue_put_back(struct op_queue *queue, struct op *op)
{
    struct client *client = find_or_add(queue, op->client);
    if (client == NULL) return -1;

    list_push_front(&client->ops, &op->link); /* before the first */
    if (op_is_single_check(op))
        list_push_front(op_queue_checks_of(queue, batch_key_hash(&op->members[0])), &op->same_key);
    else
        client->n_others++;
    op->is_queued = true;
    queue->n++;
    client->n_taken -= op->weight < client->n_taken ? op->weight : client->n_taken;
    list_remove(&client->link);
    list_push_front(&queue->fresh, &client->link);
    return 0;
}

/* The first client that is next, whether or not it has ops or a share left; NULL: there is none. */
static struct client *first_client(struct op_queue *queue)
{
    bool is_fresh = !list_empty(&queue->fresh);
    if (!is_fresh || queue->n_fresh >= FRESH_MAX) {
        if (list_empty(&queue->ring) && !list_empty(&queue->done)) {
            /* All had their turn. */
            queue->round++;
            list_append(&queue->ring, &queue->done);
            forget_all(queue, &queue->recent);
        }

        is_fresh &= list_empty(&queue->ring);
        if (!is_fresh && list_empty(&queue->ring)) return NULL;
    }
    queue->is_fresh = is_fresh;
    return LIST_ITEM(is_fresh ? queue->fresh.next : queue->ring.next, struct client, link);
}

static struct op *offer(struct op_queue *queue, struct client *client)
{
    queue->served = client;
    queue->next = LIST_ITEM(client->ops.next, struct op, link);
    return queue->next;
}

/* Apart, so that the usual case saves no registers for it. */
static __attribute__((noinline)) struct op *pass_turns(struct op_queue *queue)
{
    for (struct client *client; (client = first_client(queue)) != NULL;) {
        note_round(queue, client);
        if (client->n_taken >= OP_QUEUE_SHARE)
            move_client(client, &queue->done);
        else if (list_empty(&client->ops)) /* it has paid */
            forget_client(queue, client);
        else
            return offer(queue, client);
    }
    return NULL;
}

struct op *op_queue_next(struct op_queue *queue)
{
    if (queue->n == 0) return NULL;
    if (list_empty(&queue->fresh) || queue->n_fresh >= FRESH_MAX) return pass_turns(queue);

    struct client *client = LIST_ITEM(queue->fresh.next, struct client, link);
    if (client->round != queue->round || client->n_taken >= OP_QUEUE_SHARE) return pass_turns(queue);
    queue->is_fresh = true;
    return offer(queue, client);
}

struct list *op_queue_checks_of(const struct op_queue *queue, uint64_t hash)
{
    return &queue->by_key[(hash ^ hash >> 32) % N_KEY_LISTS];
}

bool op_queue_has_others(const struct op_queue *queue, const struct op *op)
{
    return find_client(queue, op->client)->n_others > 0;
}

void op_queue_mark_slots(const struct op_queue *queue, bool *has_ops)
{
    const struct list *const lists[] = {&queue->fresh, &queue->ring, &queue->done, &queue->passed};
    for (size_t i = 0; i < N_OF(lists) && queue->n > 0; i++) {
        LIST_FOREACH (link, lists[i]) {
            const struct list *ops = &LIST_ITEM(link, struct client, link)->ops;
            LIST_FOREACH (it, ops) has_ops[LIST_ITEM(it, struct op, link)->hash_slot] = true;
        }
    }
}

void op_queue_pass(struct op_queue *queue, const struct op *op)
{
    struct client *client = find_client(queue, op->client);
    CHECK(client != NULL);
    move_client(client, &queue->passed);
}

void op_queue_resume(struct op_queue *queue)
{
    list_append(&queue->passed, &queue->fresh);
    list_append(&queue->fresh, &queue->passed);
}

/* No op waits: what each client took does not matter any more. */
static void forget_everyone(struct op_queue *queue)
{
    struct list *const lists[] = {&queue->fresh, &queue->ring, &queue->done, &queue->passed, &queue->recent};
    for (size_t i = 0; i < N_OF(lists); i++) forget_all(queue, lists[i]);
}

/* Its last op was taken. */
static __attribute__((noinline)) void end_turn(struct op_queue *queue, struct client *client)
{
    if (queue->n > 0) { /* who owes stays, and another one's next op is before the others' */
        if (client->n_taken == 0)
            forget_client(queue, client);
        else if (client->n_taken < OP_QUEUE_SHARE)
            move_client(client, &queue->recent);
        return;
    }
    queue->n_fresh = 0;
    forget_client(queue, client);
    if (queue->by_number.n > 0) forget_everyone(queue);
}

/* The client's, which keeps its place. */
static inline void take_out(struct op_queue *queue, struct client *client, struct op *op)
{
    list_remove(&op->link);
    list_remove(&op->same_key);
    client->n_others -= !op_is_single_check(op);
    op->is_queued = false;
    queue->next = NULL;
    queue->n--;
}

void op_queue_take(struct op_queue *queue, struct op *op)
{
    CHECK(queue->n > 0);
    bool is_next = op == queue->next;
    struct client *client = is_next ? queue->served : find_client(queue, op->client);
    CHECK(client != NULL);

    take_out(queue, client, op);

    if (is_next) {
        /* `op` goes to Redis. */
        client->n_taken += op->weight;
        if (queue->is_fresh) {
            if (queue->n_fresh < FRESH_MAX) queue->n_fresh += op->weight;
        } else {
            uint64_t paid = (uint64_t)op->weight * FRESH_PER_OTHER;
            queue->n_fresh -= paid < queue->n_fresh ? (uint32_t)paid : queue->n_fresh;
        }
        if (client->n_taken >= OP_QUEUE_SHARE) move_client(client, &queue->done);
    }

    if (list_empty(&client->ops)) end_turn(queue, client);
}

__attribute__((noinline)) void op_queue_take_slots(struct op_queue *queue, const bool *is_wanted, struct list *to)
{
    struct list *const lists[] = {&queue->fresh, &queue->ring, &queue->done, &queue->passed};
    if (queue->n == 0) return;
    for (size_t i = 0; i < N_OF(lists); i++) {
        LIST_FOREACH (link, lists[i]) {
            struct client *client = LIST_ITEM(link, struct client, link);
            bool had_ops = !list_empty(&client->ops);
            LIST_FOREACH (it, &client->ops) {
                struct op *op = LIST_ITEM(it, struct op, link);
                if (!is_wanted[op->hash_slot]) continue;
                take_out(queue, client, op);
                list_push_back(to, &op->link);
            }
            if (had_ops && list_empty(&client->ops) && queue->n > 0) end_turn(queue, client); /* else all end below */
        }
    }
    if (queue->n == 0) {
        queue->n_fresh = 0;
        forget_everyone(queue);
    }
}
