#include "store/op_queue.h"

#include "base/alloc.h"
#include "base/assert.h"

enum {
    CLIENTS_EXPECTED = 16384, /* places of the table; more clients than this make its chains longer */
    IDLE_MAX = 1024,
};

struct client {
    struct list link; /* in the queue's ring, passed or idle */
    struct map_node node;
    struct list ops;  /* oldest first */
    uint32_t n_taken; /* weight, of its present share; what is beyond it is owed */
};

int op_queue_init(struct op_queue *queue)
{
    *queue = (struct op_queue){0};
    list_init(&queue->ring);
    list_init(&queue->passed);
    list_init(&queue->idle);
    return map_init(&queue->by_number, CLIENTS_EXPECTED);
}

void op_queue_fini(struct op_queue *queue)
{
    CHECK(queue->n == 0 && list_empty(&queue->ring) && list_empty(&queue->passed));

    for (struct list *it; (it = list_pop_front(&queue->idle)) != NULL;) mem_free(LIST_ITEM(it, struct client, link));
    map_fini(&queue->by_number);
}

static struct client *find_client(const struct op_queue *queue, uint64_t number)
{
    if (queue->last != NULL && queue->last->node.hash == number) return queue->last;
    struct map_node *node = map_first(&queue->by_number, number); /* a number is its own hash */
    return node != NULL ? CONTAINER_OF(node, struct client, node) : NULL;
}

/* The client of this number, in the ring, at its end if it is new; NULL without memory. */
static struct client *find_or_add(struct op_queue *queue, uint64_t number)
{
    struct client *client = find_client(queue, number);
    if (client == NULL) {
        struct list *idle = list_pop_front(&queue->idle);
        queue->n_idle -= idle != NULL;
        client = idle != NULL ? LIST_ITEM(idle, struct client, link) : mem_zalloc(sizeof *client);
        if (client == NULL) return NULL;

        list_init(&client->ops);
        client->n_taken = 0;
        list_push_back(&queue->ring, &client->link);
        map_insert(&queue->by_number, &client->node, number);
    }
    queue->last = client;
    return client;
}

int op_queue_add(struct op_queue *queue, struct op *op)
{
    struct client *client = find_or_add(queue, op->client);
    if (client == NULL) return -1;

    list_push_back(&client->ops, &op->link);
    op->is_queued = true;
    queue->n++;
    return 0;
}

int op_queue_put_back(struct op_queue *queue, struct op *op)
{
    struct client *client = find_or_add(queue, op->client);
    if (client == NULL) return -1;

    list_push_front(&client->ops, &op->link); /* before the first */
    op->is_queued = true;
    queue->n++;
    client->n_taken -= op->weight < client->n_taken ? op->weight : client->n_taken;
    list_remove(&client->link);
    list_push_front(&queue->ring, &client->link);
    return 0;
}

struct op *op_queue_next(struct op_queue *queue)
{
    if (list_empty(&queue->ring)) return NULL;

    struct client *first = LIST_ITEM(queue->ring.next, struct client, link);
    while (first->n_taken >= OP_QUEUE_SHARE) { /* a turn of a client that owes pays for a share */
        first->n_taken -= OP_QUEUE_SHARE;
        list_remove(&first->link);
        list_push_back(&queue->ring, &first->link);
        first = LIST_ITEM(queue->ring.next, struct client, link);
    }
    return LIST_ITEM(first->ops.next, struct op, link);
}

size_t op_queue_list(const struct op_queue *queue, struct op **ret_ops, size_t max)
{
    size_t n = 0;
    LIST_FOREACH (link, &queue->ring) {
        const struct client *client = LIST_ITEM(link, struct client, link);
        struct list *it = client->ops.next;
        for (size_t share = OP_QUEUE_SHARE; share > 0 && it != &client->ops; share--, it = it->next) {
            if (n == max) return n;
            ret_ops[n++] = LIST_ITEM(it, struct op, link);
        }
    }
    return n;
}

void op_queue_pass(struct op_queue *queue)
{
    list_push_back(&queue->passed, list_pop_front(&queue->ring));
}

void op_queue_resume(struct op_queue *queue)
{
    list_append(&queue->passed, &queue->ring);
    list_append(&queue->ring, &queue->passed);
}

/* It has no ops any more. */
static void remove_client(struct op_queue *queue, struct client *client)
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

void op_queue_take(struct op_queue *queue, struct op *op)
{
    CHECK(queue->n > 0);
    struct client *first = LIST_ITEM(queue->ring.next, struct client, link);
    struct client *client =
        !list_empty(&queue->ring) && first->node.hash == op->client ? first : find_client(queue, op->client);
    CHECK(client != NULL);

    list_remove(&op->link);
    op->is_queued = false;
    queue->n--;
    if (client == first) client->n_taken += op->weight;
    if (list_empty(&client->ops)) remove_client(queue, client);
}
