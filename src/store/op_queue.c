#include "store/op_queue.h"

#include "base/alloc.h"
#include "base/assert.h"

enum {
    PARTIES_EXPECTED = 16384, /* places of the table; more parties than this make its chains longer */
    IDLE_MAX = 1024,
};

struct party {
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
    return map_init(&queue->by_number, PARTIES_EXPECTED);
}

void op_queue_fini(struct op_queue *queue)
{
    CHECK(queue->n == 0 && list_empty(&queue->ring) && list_empty(&queue->passed));

    for (struct list *it; (it = list_pop_front(&queue->idle)) != NULL;) mem_free(LIST_ITEM(it, struct party, link));
    map_fini(&queue->by_number);
}

static struct party *find_party(const struct op_queue *queue, uint64_t number)
{
    if (queue->last != NULL && queue->last->node.hash == number) return queue->last;
    struct map_node *node = map_first(&queue->by_number, number); /* a number is its own hash */
    return node != NULL ? CONTAINER_OF(node, struct party, node) : NULL;
}

/* The party of this number, in the ring, at its end if it is new; NULL without memory. */
static struct party *find_or_add(struct op_queue *queue, uint64_t number)
{
    struct party *party = find_party(queue, number);
    if (party == NULL) {
        struct list *idle = list_pop_front(&queue->idle);
        queue->n_idle -= idle != NULL;
        party = idle != NULL ? LIST_ITEM(idle, struct party, link) : mem_zalloc(sizeof *party);
        if (party == NULL) return NULL;

        list_init(&party->ops);
        party->n_taken = 0;
        list_push_back(&queue->ring, &party->link);
        map_insert(&queue->by_number, &party->node, number);
    }
    queue->last = party;
    return party;
}

int op_queue_add(struct op_queue *queue, struct op *op)
{
    struct party *party = find_or_add(queue, op->party);
    if (party == NULL) return -1;

    list_push_back(&party->ops, &op->link);
    op->is_queued = true;
    queue->n++;
    return 0;
}

int op_queue_put_back(struct op_queue *queue, struct op *op)
{
    struct party *party = find_or_add(queue, op->party);
    if (party == NULL) return -1;

    list_push_front(&party->ops, &op->link); /* before the first */
    op->is_queued = true;
    queue->n++;
    party->n_taken -= op->weight < party->n_taken ? op->weight : party->n_taken;
    list_remove(&party->link);
    list_push_front(&queue->ring, &party->link);
    return 0;
}

struct op *op_queue_first(struct op_queue *queue)
{
    if (list_empty(&queue->ring)) return NULL;

    struct party *first = LIST_ITEM(queue->ring.next, struct party, link);
    while (first->n_taken >= OP_QUEUE_SHARE) { /* a turn of a party that owes pays for a share */
        first->n_taken -= OP_QUEUE_SHARE;
        list_remove(&first->link);
        list_push_back(&queue->ring, &first->link);
        first = LIST_ITEM(queue->ring.next, struct party, link);
    }
    return LIST_ITEM(first->ops.next, struct op, link);
}

size_t op_queue_list(const struct op_queue *queue, struct op **ret_ops, size_t max)
{
    size_t n = 0;
    LIST_FOREACH (link, &queue->ring) {
        const struct party *party = LIST_ITEM(link, struct party, link);
        struct list *it = party->ops.next;
        for (size_t share = OP_QUEUE_SHARE; share > 0 && it != &party->ops; share--, it = it->next) {
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
static void remove_party(struct op_queue *queue, struct party *party)
{
    list_remove(&party->link);
    map_remove(&queue->by_number, &party->node);
    if (queue->last == party) queue->last = NULL;
    if (queue->n_idle >= IDLE_MAX) {
        mem_free(party);
        return;
    }
    list_push_front(&queue->idle, &party->link); /* its memory is warm: the first to be used again */
    queue->n_idle++;
}

void op_queue_take(struct op_queue *queue, struct op *op)
{
    CHECK(queue->n > 0);
    struct party *first = LIST_ITEM(queue->ring.next, struct party, link);
    struct party *party =
        !list_empty(&queue->ring) && first->node.hash == op->party ? first : find_party(queue, op->party);
    CHECK(party != NULL);

    list_remove(&op->link);
    op->is_queued = false;
    queue->n--;
    if (party == first) party->n_taken += op->weight;
    if (list_empty(&party->ops)) remove_party(queue, party);
}
