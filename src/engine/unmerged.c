#include "engine/unmerged.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "engine/engine_counters.h"

void unmerged_init(struct unmerged *unmerged, size_t max)
{
    *unmerged = (struct unmerged){.max = max};
    list_init(&unmerged->waiting);
}

void unmerged_fini(struct unmerged *unmerged)
{
    while (!list_empty(&unmerged->waiting))
        unmerged_remove(unmerged, LIST_ITEM(unmerged->waiting.next, struct unmerged_counter, link));
    CHECK(unmerged->n == 0);
    if (unmerged->map.slots != NULL) map_fini(&unmerged->map);
}

/* ---- names ---- */

struct slice unmerged_policy(const struct unmerged_counter *counter)
{
    return (struct slice){counter->bytes, counter->policy_len};
}

struct slice unmerged_key(const struct unmerged_counter *counter)
{
    return (struct slice){counter->bytes + counter->policy_len, counter->key_len};
}

struct slice unmerged_id(const struct unmerged_counter *counter)
{
    return (struct slice){counter->bytes + counter->policy_len + counter->key_len, counter->id_len};
}

struct slice unmerged_shard_id(const struct unmerged_counter *counter)
{
    if (!counter->has_shard_id) return (struct slice){NULL, 0};
    return (struct slice){counter->bytes + counter->policy_len + counter->key_len + counter->id_len,
                          counter->shard_id_len};
}

/* ---- entries ---- */

/* One limit of a check. */
struct wanted {
    const struct check *check;
    const struct op_member *member; /* its id and shard */
    uint32_t n_daemons;
    uint16_t limit_no;
    uint64_t hash;
};

static struct wanted wanted_of(const struct check *first, const struct check *one, uint16_t i, uint32_t n_daemons)
{
    const struct op_member *member = &first->op.members[first->n_all > 1 ? one->member_index[i] : i];
    return (struct wanted){
        .check = one,
        .member = member,
        .n_daemons = n_daemons,
        .limit_no = i, /* no limit of 0 is asked, and none of them is left out */
        .hash = hash_keyed(member->key.data, member->key.len) ^ one->plan->limits[i].head_hash,
    };
}

/* A reset may be of one limit. */
static uint16_t number_of(const struct check *check, const struct op_member *member)
{
    return (uint16_t)(member->limit - check->plan->limits);
}

static struct unmerged_counter *find(const struct unmerged *unmerged, const struct wanted *wanted)
{
    const struct policy *policy = wanted->check->plan->policy;
    struct map_node *node = unmerged->n > 0 ? map_first(&unmerged->map, wanted->hash) : NULL;
    for (; node != NULL; node = map_next_same(node)) {
        struct unmerged_counter *counter = CONTAINER_OF(node, struct unmerged_counter, node);
        if (counter->version == policy->version && counter->limit_no == wanted->limit_no &&
            slice_eq(unmerged_policy(counter), slice_of(policy->name)) &&
            slice_eq(unmerged_id(counter), wanted->member->key))
            return counter;
    }
    return NULL;
}

static uint8_t *append(uint8_t *to, struct slice from)
{
    if (from.data != NULL) memcpy(to, from.data, from.len);
    return to + from.len;
}

static uint32_t server_of(const struct unmerged *unmerged)
{
    return unmerged->store != NULL ? store_server(unmerged->store) : 0;
}

bool unmerged_is_others(const struct unmerged *unmerged, const struct unmerged_counter *counter)
{
    return counter->server != server_of(unmerged);
}

/* NULL: it is full, or memory is short. */
static struct unmerged_counter *add(struct unmerged *unmerged, const struct wanted *wanted)
{
    const struct policy *policy = wanted->check->plan->policy;
    const struct slice name = slice_of(policy->name), key = wanted->check->key, id = wanted->member->key,
                       shard_id = wanted->member->shard_id;
    if (unmerged->n >= unmerged->max) return NULL;
    if (unmerged->map.slots == NULL && map_init(&unmerged->map, unmerged->max) < 0) return NULL;
    struct unmerged_counter *counter = mem_alloc(sizeof *counter + name.len + key.len + id.len + shard_id.len);
    if (counter == NULL) return NULL;

    *counter = (struct unmerged_counter){
        .server = server_of(unmerged),
        .version = policy->version,
        .n_daemons = wanted->n_daemons,
        .limit_no = wanted->limit_no,
        .has_shard_id = shard_id.data != NULL,
        .policy_len = name.len,
        .key_len = key.len,
        .id_len = id.len,
        .shard_id_len = shard_id.len,
    };
    append(append(append(append(counter->bytes, name), key), id), shard_id);
    map_insert(&unmerged->map, &counter->node, wanted->hash);
    list_push_back(&unmerged->waiting, &counter->link);
    engine_counters.merge_back_waiting = ++unmerged->n;
    return counter;
}

void unmerged_remove(struct unmerged *unmerged, struct unmerged_counter *counter)
{
    map_remove(&unmerged->map, &counter->node);
    list_remove(&counter->link);
    engine_counters.merge_back_waiting = --unmerged->n;
    mem_free(counter);
}

/* What came back of units that are in the store already stays charged there. */
static void change(struct unmerged *unmerged, const struct wanted *wanted, int64_t units)
{
    struct unmerged_counter *counter = find(unmerged, wanted);
    bool is_waiting = counter != NULL && !list_empty(&counter->link);
    if (is_waiting && unmerged_is_others(unmerged, counter)) {
        engine_counters.merge_back_dropped += (uint64_t)(counter->units + counter->sent);
        unmerged_remove(unmerged, counter);
        counter = NULL;
    }
    if (counter == NULL && units > 0) counter = add(unmerged, wanted);
    if (counter == NULL) {
        engine_counters.merge_back_dropped += units > 0 ? (uint64_t)units : 0;
        return;
    }
    counter->units = counter->units + units > 0 ? counter->units + units : 0;
    if (units > 0 && wanted->n_daemons < counter->n_daemons) counter->n_daemons = wanted->n_daemons;
}

void unmerged_add(struct unmerged *unmerged, const struct check *check, uint32_t n_daemons)
{
    CHECK_FOREACH (one, check) {
        int64_t units = one->decision.granted;
        for (uint16_t i = 0; one->plan->merges_back && units > 0 && i < one->n_limits; i++) {
            const struct wanted wanted = wanted_of(check, one, i, n_daemons);
            change(unmerged, &wanted, units);
        }
    }
}

void unmerged_settled(struct unmerged *unmerged, const struct check *check, int64_t units, uint32_t n_daemons)
{
    for (uint16_t i = 0; check->plan->merges_back && i < check->n_limits; i++) {
        const struct wanted wanted = wanted_of(check, check, i, n_daemons);
        change(unmerged, &wanted, units);
    }
}

void unmerged_forget(struct unmerged *unmerged, const struct check *check)
{
    for (uint16_t i = 0; i < check->n_limits; i++) {
        const struct op_member *member = &check->op.members[i];
        struct wanted wanted = {.check = check, .member = member, .limit_no = number_of(check, member)};
        wanted.hash = hash_keyed(member->key.data, member->key.len) ^ check->plan->limits[wanted.limit_no].head_hash;
        struct unmerged_counter *counter = find(unmerged, &wanted);
        if (counter == NULL) continue;
        counter->units = 0;
        if (!list_empty(&counter->link)) unmerged_remove(unmerged, counter);
    }
}
