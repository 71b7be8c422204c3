#include "engine/reservations.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "engine/engine_counters.h"
#include "store/store.h"

/* The store rounds its time down to milliseconds. */
enum { ROUNDING_US = 1000 };

void reservations_init(struct reservations *reservations)
{
    *reservations = (struct reservations){0};
    heap_init(&reservations->ends);
}

static struct reservation *first_of(const struct reservations *reservations)
{
    struct heap_node *node = heap_min(&reservations->ends);
    return node != NULL ? CONTAINER_OF(node, struct reservation, node) : NULL;
}

static void take_out(struct reservations *reservations, struct reservation *reservation)
{
    heap_remove(&reservations->ends, &reservation->node);
    map_remove(&reservations->by_id, &reservation->in_map);
    engine_counters.reservations = --reservations->n;
}

void reservations_fini(struct reservations *reservations)
{
    for (struct reservation *first; (first = first_of(reservations)) != NULL;) {
        take_out(reservations, first);
        reservation_free(first);
    }
    heap_fini(&reservations->ends);
    if (reservations->by_id.slots != NULL) map_fini(&reservations->by_id);
}

void reservation_free(struct reservation *reservation)
{
    mem_free(reservation);
}

/* 0, or -1 where it is full or memory is short. */
static int put_in(struct reservations *reservations, struct reservation *reservation, int64_t at_us)
{
    if (reservations->n >= RESERVATIONS_MAX) return -1;
    if (reservations->by_id.slots == NULL && map_init(&reservations->by_id, RESERVATIONS_MAX) < 0) return -1;
    if (heap_push(&reservations->ends, &reservation->node, at_us) < 0) return -1;

    map_insert(&reservations->by_id, &reservation->in_map, reservation->id);
    engine_counters.reservations = ++reservations->n;
    return 0;
}

bool reservations_add(struct reservations *reservations, uint64_t id, const char *policy, struct slice key,
                      int64_t now_us, int64_t ttl_ms)
{
    struct reservation *made = mem_zalloc(sizeof *made + key.len);
    if (made == NULL) return false;

    int64_t end_us = now_us + ttl_ms * 1000 + ROUNDING_US;
    made->id = id;
    made->until_us = end_us + RESERVATION_GRACE_MS * INT64_C(1000);
    memcpy(made->policy, policy, strlen(policy) + 1);
    made->key_len = key.len;
    memcpy(made->key, key.data, key.len);
    if (put_in(reservations, made, end_us) == 0) return true;
    reservation_free(made);
    return false;
}

void reservations_forget(struct reservations *reservations, uint64_t id)
{
    if (reservations->n == 0) return;
    struct map_node *node = map_first(&reservations->by_id, id);
    if (node == NULL) return;

    struct reservation *found = CONTAINER_OF(node, struct reservation, in_map);
    CHECK(found->id == id); /* an id is its own hash */
    take_out(reservations, found);
    reservation_free(found);
}

int64_t reservations_next_us(const struct reservations *reservations)
{
    const struct reservation *first = first_of(reservations);
    return first != NULL ? first->node.at_us : INT64_MAX;
}

struct reservation *reservations_take(struct reservations *reservations, int64_t now_us)
{
    struct reservation *first = first_of(reservations);
    if (first == NULL || first->node.at_us > now_us) return NULL;
    take_out(reservations, first);
    return first;
}

void reservations_retry(struct reservations *reservations, struct reservation *reservation, int64_t at_us)
{
    if (at_us >= reservation->until_us || put_in(reservations, reservation, at_us) < 0) reservation_free(reservation);
}
