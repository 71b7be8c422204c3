/*
 * turn.c: gathering a loop turn's ops.
 *
 * Every op's keys are found or added in the turn's small table, and the op becomes an *item*, what
 * the script is asked for, or joins one:
 *
 *   a check joins its key's last item where that has the same cost, merging is on and denials are
 *   not counted: k equal checks in a row admit exactly the first floor(room / cost) of them, as one
 *   after another would;
 *   a peek needs no item: the answer follows from the key's state at that place in the order; only
 *   a log's peek is an item, because a denial's retry needs a look-up in the log.
 *
 * Items keep their order, and a key's items are never reordered. turn_pack.c makes the call of
 * them, turn_replay.c the answers.
 */
#include "store/turn_private.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/counters.h"
#include "base/hash.h"
#include "store/turn_steps.h"

struct turn *turn_new(const char *key_prefix, uint32_t max_keys, bool merge)
{
    struct turn *turn = mem_zalloc(sizeof *turn);
    if (turn == NULL) return NULL;
    turn->prefix = mem_strdup(key_prefix);
    if (turn->prefix == NULL) {
        mem_free(turn);
        return NULL;
    }
    turn->prefix_len = strlen(key_prefix);
    list_init(&turn->ops);
    buffer_init(&turn->key_bytes, 0);
    buffer_init(&turn->packet, 0);
    turn_set_merge(turn, max_keys, merge);
    return turn;
}

void turn_free(struct turn *turn)
{
    if (turn == NULL) return;
    CHECK(turn->n_ops == 0);
    buffer_fini(&turn->key_bytes);
    buffer_fini(&turn->packet);
    mem_free(turn->items.at);
    mem_free(turn->members.at);
    mem_free(turn->entries.at);
    mem_free(turn->op_keys.at);
    mem_free(turn->prefix);
    mem_free(turn);
}

void turn_clear(struct turn *turn)
{
    CHECK(turn->n_ops == 0);
    turn->n_keys = turn->n_extras = turn->n_runs = 0;
    turn->in_steps = false;
    turn->items.n = turn->members.n = turn->entries.n = turn->op_keys.n = 0;
    memset(turn->slots, 0, sizeof turn->slots);
    buffer_truncate(&turn->key_bytes, 0);
    turn->packed = false;
}

void turn_set_merge(struct turn *turn, uint32_t max_keys, bool merge)
{
    CHECK(max_keys >= 1 && max_keys <= TURN_KEYS_MAX);
    turn->max_keys = max_keys;
    turn->merge = merge;
}

void turn_set_steps(struct turn *turn)
{
    turn->always_in_steps = true;
}

size_t turn_n_ops(const struct turn *turn)
{
    return turn->n_ops;
}

size_t turn_n_keys(const struct turn *turn)
{
    return turn->n_keys;
}

void turn_take_ops(struct turn *turn, struct list *to)
{
    list_append(to, &turn->ops);
    turn->n_ops = 0;
}

static int vec_reserve(struct vec *vec, size_t more, size_t size)
{
    if (vec->n + more <= vec->cap) return 0;
    size_t cap = vec->cap == 0 ? TURN_KEYS_MAX : vec->cap * 2;
    while (cap < vec->n + more) cap *= 2;
    void *at = mem_realloc(vec->at, cap * size);
    if (at == NULL) return -1;
    vec->at = at;
    vec->cap = cap;
    return 0;
}

size_t turn_key_bytes(const struct turn *turn, const struct op *op)
{
    size_t bytes = 0;
    for (uint16_t i = 0; i < op->n_members; i++)
        bytes += turn->prefix_len + TURN_TAG_LEN + op->members[i].limit->key_head_len + op->members[i].key.len;
    return bytes;
}

/* Room for everything one op can add, so that nothing fails half way. */
static int reserve(struct turn *turn, const struct op *op)
{
    if (buffer_reserve(&turn->key_bytes, turn_key_bytes(turn, op)) == NULL) return -1;
    if (turn->in_steps && turn_steps_reserve(turn, op) < 0) return -1;
    if (vec_reserve(&turn->items, 1, sizeof(struct turn_item)) < 0) return -1;
    if (vec_reserve(&turn->members, op->n_members, sizeof(struct turn_member)) < 0) return -1;
    if (vec_reserve(&turn->entries, 1, sizeof(struct turn_entry)) < 0) return -1;
    return vec_reserve(&turn->op_keys, op->n_members, sizeof(uint16_t));
}

static uint8_t *append(uint8_t *to, const void *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

/* The bucket spreads a policy's keys over a cluster's slots, and keeps together what one check asks for. */
uint8_t *turn_put_tag(const struct turn *turn, uint8_t *to, const struct op_member *member)
{
    to = append(to, turn->prefix, turn->prefix_len);
    store_key_tag(member, (char *)to);
    return to + STORE_TAG_LEN;
}

/* prefix:{bNNN}:head key. Compat keys are the foreign ones. */
static void write_key(struct turn *turn, struct turn_key *key, const struct op_member *member)
{
    const struct limit *limit = key->limit;
    struct slice id = member->key;
    uint8_t *start = buffer_reserve(&turn->key_bytes, turn->prefix_len + TURN_TAG_LEN + limit->key_head_len + id.len);
    CHECK(start != NULL); /* reserved before */
    uint8_t *at = limit_ops(limit)->is_compat ? start : turn_put_tag(turn, start, member);
    at = append(at, limit->key_head, limit->key_head_len);
    at = append(at, id.data, id.len);
    key->start = buffer_len(&turn->key_bytes);
    key->len = (size_t)(at - start);
    buffer_grew(&turn->key_bytes, key->len);
}

/*
 * Two limits never share a native key (the head names policy and limit), but two compat policies
 * may: their keys are compared whole. The head counts too, so that one table holds both.
 */
static bool same_key(const struct turn *turn, const struct turn_key *key, const struct limit *limit, struct slice id)
{
    size_t len = limit->key_head_len + id.len;
    bool compat = limit_ops(limit)->is_compat;
    if (compat != limit_ops(key->limit)->is_compat) return false;
    size_t tag_len = compat ? 0 : turn->prefix_len + TURN_TAG_LEN;
    const uint8_t *bytes = buffer_data(&turn->key_bytes) + key->start + tag_len;
    return key->len == tag_len + len && memcmp(bytes, limit->key_head, limit->key_head_len) == 0 &&
           memcmp(bytes + limit->key_head_len, id.data, id.len) == 0;
}

static uint8_t *slot_of(struct turn *turn, const struct limit *limit, struct slice id, uint64_t hash)
{
    size_t at = hash % TURN_SLOTS;
    for (; turn->slots[at] != 0; at = (at + 1) % TURN_SLOTS) {
        const struct turn_key *key = &turn->keys[turn->slots[at] - 1];
        if (key->hash == hash && same_key(turn, key, limit, id)) break;
    }
    return &turn->slots[at];
}

/* Whether the op may join this turn: its kind, its keys' limits, and room for new keys. */
static bool fits(struct turn *turn, const struct op *op)
{
    if (turn->n_ops == 0) return true;
    if (turn->resets != (op->kind == OP_RESET)) return false;
    if (!turn->in_steps && turn_steps_needed(op)) return false;
    if (turn->members.n + op->n_members > TURN_MEMBERS_MAX) return false;
    uint32_t n_new = 0;
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct op_member *member = &op->members[i];
        uint8_t slot = *slot_of(turn, member->limit, member->key, turn->hashes[i]);
        /* a key's constants are its run's: those of one limit (after a reload there may be another) and one wait */
        const struct turn_key *key = slot != 0 ? &turn->keys[slot - 1] : NULL;
        bool is_other = key != NULL && (key->limit != member->limit || key->max_wait_us != member->max_wait_us);
        if (is_other && !turn->in_steps) return false;
        n_new += slot == 0;
    }
    if (turn->n_keys + n_new > turn->max_keys) return false;
    return !turn->in_steps || turn_steps_fit(turn, op);
}

static uint16_t find_or_add(struct turn *turn, const struct op_member *member, uint64_t hash)
{
    uint8_t *slot = slot_of(turn, member->limit, member->key, hash);
    if (*slot != 0) return (uint16_t)(*slot - 1);
    CHECK(turn->n_keys < TURN_KEYS_MAX);
    struct turn_key *key = &turn->keys[turn->n_keys];
    *key = (struct turn_key){
        .limit = member->limit,
        .phase_ms = limit_phase(member->limit, member->key),
        .max_wait_us = member->max_wait_us,
        .hash = hash,
        .alone = true,
    };
    write_key(turn, key, member);
    *slot = (uint8_t)++turn->n_keys;
    return (uint16_t)(turn->n_keys - 1);
}

/* Could this op be charged? A cost above the limit is only looked at, unless denials are counted. */
static bool charges(const struct op *op)
{
    if (op->kind != OP_CHECK) return false;
    if (op->n_members > 1) return true;
    const struct op_member *only = &op->members[0];
    return only->cost > 0 && (only->cost <= only->limit->full || only->limit->count_denied);
}

static bool needs_item(const struct op *op)
{
    if (op->kind == OP_RESET) return false;
    if (charges(op) || op->n_members > 1) return true;
    const struct op_member *only = &op->members[0];
    return limit_ops(only->limit)->has_wait && only->cost > 0 && only->cost <= only->limit->full;
}

/* The item that an op of one member may join; NO_ITEM where there is none. */
static uint32_t joinable(const struct turn *turn, const struct op *op, const struct turn_key *key)
{
    if (op->n_members > 1 || key->n_items == 0) return NO_ITEM;
    const struct turn_item *last = turn_item(turn, key->last_item);
    if (last->n_members > 1 || turn_member(turn, last->first_member)->cost != op->members[0].cost) return NO_ITEM;
    bool charge = charges(op);
    if (charge != (last->count > 0)) return NO_ITEM;
    if (charge && (!turn->merge || !limit_ops(key->limit)->merges || key->limit->count_denied)) return NO_ITEM;
    return last->count < UINT32_MAX ? key->last_item : NO_ITEM;
}

static uint32_t add_item(struct turn *turn, const struct op *op, uint32_t keys_at)
{
    uint32_t index = (uint32_t)turn->items.n++;
    *turn_item(turn, index) = (struct turn_item){
        .count = charges(op),
        .first_member = (uint32_t)turn->members.n,
        .n_members = op->n_members,
    };
    for (uint16_t i = 0; i < op->n_members; i++) {
        uint16_t at = turn_op_key(turn, keys_at + i);
        struct turn_key *key = &turn->keys[at];
        key->n_items++;
        key->last_item = index;
        if (op->n_members > 1) key->alone = false;
        *turn_member(turn, turn->members.n++) = (struct turn_member){.key = at, .cost = op->members[i].cost};
    }
    return index;
}

static uint32_t item_of(struct turn *turn, const struct op *op, uint32_t keys_at)
{
    if (!needs_item(op)) return NO_ITEM;
    uint32_t item = joinable(turn, op, &turn->keys[turn_op_key(turn, keys_at)]);
    if (item == NO_ITEM) return add_item(turn, op, keys_at);
    if (charges(op)) {
        turn_item(turn, item)->count++;
        counters.redis_merged++;
    }
    return item;
}

static void hash_keys(struct turn *turn, const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++)
        turn->hashes[i] = hash_keyed(op->members[i].key.data, op->members[i].key.len);
}

int turn_add(struct turn *turn, struct op *op)
{
    CHECK(op->n_members >= 1 && op->n_members <= TURN_KEYS_MAX);
    hash_keys(turn, op);
    if (!fits(turn, op)) return 1;
    turn->resets = op->kind == OP_RESET;
    if (turn->n_ops == 0) turn->in_steps = !turn->resets && (turn->always_in_steps || turn_steps_needed(op));
    if (reserve(turn, op) < 0) return -1;
    turn->packed = false;
    uint32_t keys_at = (uint32_t)turn->op_keys.n;
    for (uint16_t i = 0; i < op->n_members; i++) {
        ((uint16_t *)turn->op_keys.at)[turn->op_keys.n++] = find_or_add(turn, &op->members[i], turn->hashes[i]);
    }
    struct turn_entry entry = {.keys_at = keys_at};
    if (turn->in_steps)
        turn_steps_add(turn, op, &entry);
    else
        entry.item = item_of(turn, op, keys_at);
    *turn_entry(turn, turn->entries.n++) = entry;
    list_push_back(&turn->ops, &op->link);
    turn->n_ops++;
    return 0;
}
