/*
 * turn_pack.c: a turn as the arguments of one EVALSHA. The format, little-endian (lua/core.lua has
 * the same text; change both):
 *
 *   numkeys
 *   KEYS     each key once: those read by MGET first, then the others; in the order of the runs
 *   ARGV[1]  <I4 nonce> <I7 latest, us, 0 = none> <H keys read by MGET> <B runs> <H groups>, then the runs, then the
 * groups run    <B algorithm> <B form> <H keys> <I7 a> <I7 b> <I7 c> <I7 d>, and by form 0: one check of cost 1 on each
 * key      1: + <I4 checks> <I7 cost> per key; 0 checks = a peek 2: the keys are charged by groups       3: the keys
 * are forgotten group  <B members> <I4 checks>, and per member <H key, from 1> <I7 cost>: all or nothing, in this order
 *
 * A key with one item of one member goes the plain way (form 0 or 1), any other by groups.
 */
#include <stdio.h>

#include "base/check.h"
#include "store/turn_steps.h"

enum {
    HEADER_SIZE = 4 + 7 + 2 + 1 + 2,
    RUN_SIZE = 2 + 2 + 4 * 7,
    COUNT_SIZE = 4 + 7,
    GROUP_SIZE = 1 + 4,
    MEMBER_SIZE = 2 + 7
};

/* A cost above every limit is denied whatever its size, and this keeps the script's counts exact. */
#define COST_CAP ((INT64_C(1) << 34) + 1)
/* More than any room: a bucket that lets wait may have room for a cost above its capacity. */
#define COST_NEVER (INT64_C(1) << 53)

uint8_t *turn_put(uint8_t *to, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) to[i] = (uint8_t)(value >> 8 * i);
    return to + size;
}

static uint64_t capped(int64_t cost)
{
    return (uint64_t)(cost < COST_CAP ? cost : COST_CAP);
}

uint64_t turn_cost(const struct limit *limit, int64_t cost)
{
    return limit->max_wait_us > 0 && cost > limit->full ? (uint64_t)COST_NEVER : capped(cost);
}

uint8_t *turn_put_constants(uint8_t *to, const struct turn_run *run)
{
    const struct constants *constants = &run->constants;
    to = turn_put(turn_put(to, (uint64_t)constants->a, 7), (uint64_t)constants->b, 7);
    return turn_put(turn_put(to, (uint64_t)constants->c, 7), (uint64_t)constants->d, 7);
}

static enum form form_of(const struct turn *turn, const struct turn_key *key)
{
    if (turn->resets) return FORM_RESET;
    if (turn_key_in_groups(key)) return FORM_GROUPS;
    if (key->n_items == 0) return FORM_COUNTS;
    const struct turn_item *item = turn_item(turn, key->last_item);
    return item->count == 1 && turn_member(turn, item->first_member)->cost == 1 ? FORM_ONES : FORM_COUNTS;
}

static bool read_by_mget(const struct turn_key *key, enum form form)
{
    const struct algo_ops *ops = limit_ops(key->limit);
    bool has_own_way = ops->plain && form <= FORM_COUNTS;
    return ops->kind == STATE_STRING && !ops->is_compat && !has_own_way;
}

/* Have the keys the same constants? */
static bool runs_with(const struct turn_key *a, const struct turn_key *b)
{
    return a->limit == b->limit && a->phase_ms == b->phase_ms && a->max_wait_us == b->max_wait_us;
}

/* Give the keys from `from` on that belong to the same run their places. */
static void gather_run(struct turn *turn, const enum form *forms, int64_t wall_us, uint32_t from, uint32_t *n_placed)
{
    const struct turn_key *first = &turn->keys[from];
    struct turn_run *run = &turn->runs[turn->n_runs];
    *run = (struct turn_run){.limit = first->limit, .form = forms[from]};
    limit_constants(&run->constants, first->limit, first->phase_ms, first->max_wait_us, wall_us);
    if (limit_ops(run->limit)->has_wait && run->form != FORM_RESET) turn->waits = true;
    for (uint32_t i = from; i < turn->n_keys; i++) {
        struct turn_key *key = &turn->keys[i];
        if (!runs_with(key, first) || forms[i] != run->form) continue;
        key->run = (uint16_t)turn->n_runs;
        turn->place[i] = (uint16_t)*n_placed;
        turn->order[(*n_placed)++] = (uint16_t)i;
        run->n_keys++;
    }
    turn->n_runs++;
}

/* Sort the keys into runs, those read by MGET first; returns how many those are. */
static uint32_t arrange(struct turn *turn, int64_t wall_us)
{
    enum form forms[TURN_KEYS_MAX] = {FORM_ONES};
    bool placed[TURN_KEYS_MAX] = {false};
    uint32_t n_placed = 0, n_mget = 0;
    turn->n_runs = 0;
    turn->waits = false;
    for (uint32_t i = 0; i < turn->n_keys; i++) forms[i] = form_of(turn, &turn->keys[i]);
    for (int mget = 1; mget >= 0; mget--) {
        for (uint32_t i = 0; i < turn->n_keys; i++) {
            if (placed[i] || read_by_mget(&turn->keys[i], forms[i]) != mget) continue;
            uint32_t before = n_placed;
            gather_run(turn, forms, wall_us, i, &n_placed);
            for (uint32_t j = before; j < n_placed; j++) placed[turn->order[j]] = true;
        }
        if (mget) n_mget = n_placed;
    }
    CHECK(n_placed == turn->n_keys);
    return n_mget;
}

static uint8_t *put_count(const struct turn *turn, uint8_t *to, const struct turn_key *key)
{
    uint64_t count = 0, cost = 0; /* a mere look, where it has no item */
    if (key->n_items > 0) {
        const struct turn_item *item = turn_item(turn, key->last_item);
        count = item->count;
        cost = capped(turn_member(turn, item->first_member)->cost);
    }
    return turn_put(turn_put(to, count, 4), cost, 7);
}

static uint8_t *put_runs(const struct turn *turn, uint8_t *to)
{
    const uint16_t *next = turn->order;
    for (uint32_t r = 0; r < turn->n_runs; r++) {
        const struct turn_run *run = &turn->runs[r];
        to = turn_put(turn_put(turn_put(to, run->limit->algo, 1), run->form, 1), run->n_keys, 2);
        to = turn_put_constants(to, run);
        for (uint16_t i = 0; i < run->n_keys; i++, next++) {
            if (run->form == FORM_COUNTS) to = put_count(turn, to, &turn->keys[*next]);
        }
    }
    return to;
}

static bool goes_by_groups(const struct turn *turn, const struct turn_item *item)
{
    return turn_key_in_groups(&turn->keys[turn_member(turn, item->first_member)->key]);
}

static uint8_t *put_groups(const struct turn *turn, uint8_t *to, uint32_t *ret_n)
{
    uint32_t n = 0;
    for (size_t i = 0; i < turn->items.n; i++) {
        const struct turn_item *item = turn_item(turn, i);
        if (!goes_by_groups(turn, item)) continue;
        to = turn_put(turn_put(to, item->n_members, 1), item->count, 4);
        for (uint16_t j = 0; j < item->n_members; j++) {
            const struct turn_member *member = turn_member(turn, item->first_member + j);
            to = turn_put(turn_put(to, turn->place[member->key] + 1U, 2),
                          turn_cost(turn->keys[member->key].limit, member->cost), 7);
        }
        n++;
    }
    *ret_n = n;
    return to;
}

static int pack(struct turn *turn, uint32_t nonce, int64_t wall_us, int64_t latest_us)
{
    size_t most = HEADER_SIZE + turn->n_keys * (size_t)(RUN_SIZE + COUNT_SIZE) + turn->items.n * GROUP_SIZE +
                  turn->members.n * MEMBER_SIZE;
    buffer_truncate(&turn->packet, 0);
    uint8_t *start = buffer_reserve(&turn->packet, most);
    if (start == NULL) return -1;
    uint32_t n_mget = arrange(turn, wall_us), n_groups;
    CHECK(turn->n_runs <= UINT8_MAX);
    uint8_t *end = put_groups(turn, put_runs(turn, start + HEADER_SIZE), &n_groups);
    CHECK(n_groups <= UINT16_MAX && (size_t)(end - start) <= most);
    uint8_t *head = turn_put(turn_put(start, nonce, 4), (uint64_t)latest_us, 7);
    turn_put(turn_put(turn_put(head, n_mget, 2), turn->n_runs, 1), n_groups, 2);
    buffer_grew(&turn->packet, (size_t)(end - start));
    return 0;
}

struct slice turn_numkeys(struct turn *turn, uint32_t n)
{
    int len = snprintf(turn->numkeys, sizeof turn->numkeys, "%u", (unsigned)n);
    return (struct slice){(const uint8_t *)turn->numkeys, (size_t)len};
}

size_t turn_args(struct turn *turn, uint32_t nonce, int64_t wall_us, int64_t latest_us, const struct slice **ret_args)
{
    if (turn->in_steps) return turn_steps_args(turn, nonce, wall_us, latest_us, ret_args);
    if (pack(turn, nonce, wall_us, latest_us) < 0) return 0;
    size_t n = 0;
    turn->args[n++] = turn_numkeys(turn, turn->n_keys);
    for (uint32_t i = 0; i < turn->n_keys; i++) {
        const struct turn_key *key = &turn->keys[turn->order[i]];
        turn->args[n++] = (struct slice){buffer_data(&turn->key_bytes) + key->start, key->len};
    }
    turn->args[n++] = (struct slice){buffer_data(&turn->packet), buffer_len(&turn->packet)};
    turn->packed = true;
    *ret_args = turn->args;
    return n;
}
