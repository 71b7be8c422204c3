/*
 * turn_replay.c: the script's reply as every op's answer.
 *
 *   reply    s1 of each key in KEYS' order (resets: 1 there was a state, 0 not; -1: a foreign type) | s2 of each
 *            key whose algorithm has one, same order | now in us | a wait in us for each denied check of
 *            a log, in the script's order | malformed values met | nonce
 *
 * The script says what it saw; here the same decisions are made again by the same arithmetic, in the
 * same order. First the items are walked as the script walked them (plain keys, then groups), only
 * to know which waits belong to whom and that the reply has the right length; nothing of an op is
 * touched before that. Then the ops are answered in the order they were added. A state that no script leaves makes its
 * ops OP_STORE_ERROR: the server lies, and so would every answer that follows from it.
 */
#include "base/check.h"
#include "base/counters.h"
#include "store/turn_steps.h"

enum {
    FOREIGN = -1,  /* an s1 */
    TOO_LATE = -2, /* the first of N_TOO_LATE integers: the turn began too late and did nothing */
    N_TOO_LATE = 3,
};

/* The keys' states while the decisions are made; by index into turn->keys. */
struct states {
    struct run runs[TURN_KEYS_MAX]; /* by run */
    int64_t s1[TURN_KEYS_MAX];
    int64_t s2[TURN_KEYS_MAX];
    int64_t now_us;                  /* of the script */
    bool implausible[TURN_KEYS_MAX]; /* as the reply says them, before any decision */
    bool any_implausible;
};

static size_t n_s2(const struct turn *turn)
{
    size_t n = 0;
    for (uint32_t r = 0; r < turn->n_runs && !turn->resets; r++) {
        if (limit_ops(turn->runs[r].limit)->has_s2) n += turn->runs[r].n_keys;
    }
    return n;
}

void turn_reply_bounds(const struct turn *turn, size_t *ret_min, size_t *ret_max)
{
    CHECK(turn->packed);
    if (turn->in_steps) {
        turn_steps_bounds(turn, ret_min, ret_max);
        return;
    }
    *ret_min = turn->n_keys + n_s2(turn) + 3;
    *ret_max = *ret_min + turn->members.n;
}

static bool in_range(int64_t value, int64_t least)
{
    return value >= least && value <= TURN_EXACT_MAX;
}

static const struct run *run_of(const struct turn *turn, const struct states *states, uint16_t key)
{
    return &states->runs[turn->keys[key].run];
}

static void judge_state(const struct turn *turn, struct states *states, uint16_t key)
{
    const struct algo_ops *ops = limit_ops(turn->keys[key].limit);
    bool plausible =
        states->s1[key] == FOREIGN || ops->plausible(run_of(turn, states, key), states->s1[key], states->s2[key]);
    states->implausible[key] = !plausible;
    states->any_implausible |= !plausible;
}

/* s1, s2 and now; -1 where one of them is impossible. */
static int read_states(const struct turn *turn, const int64_t *reply, struct states *states)
{
    const int64_t *s2 = reply + turn->n_keys;
    int64_t now = s2[n_s2(turn)];
    if (!in_range(now, 0)) return -1;
    states->now_us = now;
    states->any_implausible = false;
    for (uint32_t r = 0; r < turn->n_runs; r++)
        limit_run(&states->runs[r], turn->runs[r].limit, &turn->runs[r].constants, now);
    for (uint32_t i = 0; i < turn->n_keys; i++) {
        uint16_t key = turn->order[i];
        states->s1[key] = reply[i];
        states->s2[key] = !turn->resets && limit_ops(turn->keys[key].limit)->has_s2 ? *s2++ : 0;
        if (!in_range(states->s1[key], FOREIGN) || !in_range(states->s2[key], 0)) return -1;
        if (!turn->resets) judge_state(turn, states, key);
    }
    return 0;
}

static bool any_implausible(const struct turn *turn, const struct states *states, const struct turn_entry *entry,
                            uint16_t n)
{
    for (uint16_t i = 0; i < n && states->any_implausible; i++) {
        if (states->implausible[turn_op_key(turn, entry->keys_at + i)]) return true;
    }
    return false;
}

static int64_t fits(const struct turn *turn, const struct states *states, uint16_t key, int64_t cost, int64_t k)
{
    return limit_fits(run_of(turn, states, key), states->s1[key], states->s2[key], cost, k);
}

static void charge(const struct turn *turn, struct states *states, const struct turn_member *member, int64_t units)
{
    if (units == 0) return;
    const struct limit *limit = turn->keys[member->key].limit;
    limit_ops(limit)->charge(run_of(turn, states, member->key), &states->s1[member->key], &states->s2[member->key],
                             units);
}

/* As the script walked this item: its charges, and the waits it sent. -1 where the reply has too few. */
static int walk_item(const struct turn *turn, struct states *states, const struct turn_item *item,
                     const int64_t **waits, const int64_t *end)
{
    struct turn_member *members = turn_member(turn, item->first_member);
    int64_t k = item->count, asked = k > 0 ? k : 1, fit = asked;
    for (uint16_t i = 0; i < item->n_members; i++) {
        if (states->s1[members[i].key] == FOREIGN) return 0;
        int64_t of_this = fits(turn, states, members[i].key, members[i].cost, asked);
        if (of_this < fit) fit = of_this;
    }
    for (uint16_t i = 0; i < item->n_members; i++) {
        const struct limit *limit = turn->keys[members[i].key].limit;
        members[i].wait = 0;
        if (fit < asked && limit_ops(limit)->has_wait && members[i].cost > 0) {
            if (*waits == end || **waits < 1 || **waits > limit->window_us) return -1;
            members[i].wait = *(*waits)++;
        }
        int64_t admitted = fit < k ? fit : k;
        charge(turn, states, &members[i], (limit->count_denied ? k : admitted) * members[i].cost); /* counted: k <= 1 */
    }
    return 0;
}

static int walk_items(const struct turn *turn, struct states *states, const int64_t *waits, const int64_t *end)
{
    for (uint32_t i = 0; i < turn->n_keys; i++) {
        const struct turn_key *key = &turn->keys[turn->order[i]];
        if (key->n_items == 0 || turn_key_in_groups(key)) continue;
        if (walk_item(turn, states, turn_item(turn, key->last_item), &waits, end) < 0) return -1;
    }
    for (size_t i = 0; i < turn->items.n; i++) {
        const struct turn_item *item = turn_item(turn, i);
        if (!turn_key_in_groups(&turn->keys[turn_member(turn, item->first_member)->key])) continue;
        if (walk_item(turn, states, item, &waits, end) < 0) return -1;
    }
    return waits == end ? 0 : -1;
}

static bool any_foreign(const struct turn *turn, const struct states *states, const struct turn_entry *entry,
                        uint16_t n)
{
    for (uint16_t i = 0; i < n; i++) {
        if (states->s1[turn_op_key(turn, entry->keys_at + i)] == FOREIGN) return true;
    }
    return false;
}

static bool all_have_room(const struct turn *turn, const struct states *states, const struct turn_entry *entry,
                          const struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        if (fits(turn, states, turn_op_key(turn, entry->keys_at + i), op->members[i].cost, 1) == 0) return false;
    }
    return true;
}

static void answer_op(const struct turn *turn, struct states *states, const struct turn_entry *entry, struct op *op)
{
    bool admitted = all_have_room(turn, states, entry, op);
    op->now_us = states->now_us;
    for (uint16_t i = 0; i < op->n_members; i++) {
        uint16_t key = turn_op_key(turn, entry->keys_at + i);
        int64_t wait =
            entry->item == NO_ITEM ? 0 : turn_member(turn, turn_item(turn, entry->item)->first_member + i)->wait;
        int64_t s1 = states->s1[key], s2 = states->s2[key];
        op->members[i].seen1 = s1;
        op->members[i].seen2 = s2;
        limit_decide(run_of(turn, states, key), &s1, &s2, op->members[i].cost, admitted, wait,
                     &op->members[i].decision);
        if (op->kind != OP_CHECK) continue;
        states->s1[key] = s1;
        states->s2[key] = s2;
    }
    op->outcome = OP_DECIDED;
}

static void answer_reset(const struct turn *turn, struct states *states, const struct turn_entry *entry, struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        int64_t *there = &states->s1[turn_op_key(turn, entry->keys_at + i)];
        op->members[i].removed = *there == 1;
        *there = 0; /* the next reset of this key finds nothing */
    }
    op->outcome = OP_DECIDED;
}

static void answer_ops(const struct turn *turn, struct states *states)
{
    const struct turn_entry *entry = turn_entry(turn, 0);
    LIST_FOREACH (link, &turn->ops) {
        struct op *op = LIST_ITEM(link, struct op, link);
        if (any_foreign(turn, states, entry, op->n_members))
            op->outcome = OP_STORE_ERROR;
        else if (turn->resets)
            answer_reset(turn, states, entry, op);
        else
            answer_op(turn, states, entry, op); /* the others of its keys follow it all the same */
        if (any_implausible(turn, states, entry, op->n_members)) op->outcome = OP_STORE_ERROR;
        entry++;
    }
}

static uint64_t n_foreign(const struct turn *turn, const int64_t *reply)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < turn->n_keys; i++) n += reply[i] == FOREIGN;
    return n;
}

/* Only logs send waits; without them the walk would find nothing but the reply's length. */
static int spread_waits(const struct turn *turn, const struct states *states, const int64_t *waits, const int64_t *end)
{
    if (!turn->waits) return waits == end ? 0 : -1;
    struct states walked = *states;
    return walk_items(turn, &walked, waits, end);
}

/* The script may meet one value several times, and a server may say anything. */
void turn_count_bad_values(const struct turn *turn, uint64_t n)
{
    uint64_t n_keys = turn->n_keys + turn->n_extras;
    counters.redis_bad_values += n < n_keys ? n : n_keys;
}

int turn_replay(struct turn *turn, const int64_t *reply, size_t n, uint32_t nonce)
{
    size_t least, most;
    struct states states;
    if (n == N_TOO_LATE && reply[0] == TOO_LATE) {
        if (reply[2] != nonce || !in_range(reply[1], 0)) return -1;
        turn->now_us = reply[1];
        return 1;
    }
    turn_reply_bounds(turn, &least, &most);
    if (n < least || n > most || reply[n - 1] != nonce || !in_range(reply[n - 2], 0)) return -1;
    if (turn->in_steps) return turn_steps_replay(turn, reply, n);
    if (read_states(turn, reply, &states) < 0) return -1;
    if (spread_waits(turn, &states, reply + least - 2, reply + n - 2) < 0) return -1;
    turn_count_bad_values(turn, (uint64_t)reply[n - 2] + n_foreign(turn, reply));
    counters.redis_bad_replies += states.any_implausible;
    answer_ops(turn, &states);
    turn->now_us = states.now_us;
    return 0;
}

int64_t turn_now_us(const struct turn *turn)
{
    return turn->now_us;
}
