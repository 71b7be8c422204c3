/*
 * turn_steps.c: a turn in steps, packed and read. The format, little-endian (lua/steps.lua has the
 * same text; change both):
 *
 *   numkeys
 *   KEYS     each state's key once, then the keys that belong to one step alone (notes ...)
 *   ARGV[1]  <I4 nonce> <I7 latest, us, 0 = none> <H 65535> <B runs> <H steps>, then the runs, then the steps
 *     run    <B algorithm> <I7 a> <I7 b> <I7 c> <I7 d>
 *     step   <B kind> <B members>, per member <B run, from 1> <H key, from 1> <I7 cost>, then the kind's own fields
 *   reply    per step: s1 and s2 of each member, as seen before it (and after what the step itself gave back first);
 *            -1, 0 for a foreign type, where nothing of the step is done and nothing more is said; then what its kind
 *            says. | now in us | malformed values met, which count as fresh | nonce
 *
 * A run is a limit with a wait and a phase: its constants travel once. A turn is bounded in members, so that the
 * script is through in a millisecond or so, and the reply, which has two integers for each of them
 * and a few more, is far below what is taken from a server.
 */
#include "store/turn_steps.h"

#include "base/check.h"
#include "base/counters.h"

enum {
    HEADER_SIZE = 4 + 7 + 2 + 1 + 2,
    IN_STEPS = 0xffff, /* in place of the keys read by MGET */
    RUN_SIZE = 1 + 4 * 7,
    STEP_SIZE = 1 + 1,
    MEMBER_SIZE = 1 + 2 + 7,
    FOREIGN = -1, /* an s1 */
    N_LAST = 3,   /* integers behind the steps' */
    N_STATES = 2, /* integers that every member has */
};

#define STEP(id, name, ops) extern const struct step_ops ops;
#include "store/step.def"
#undef STEP

static const struct step_ops *const table[N_STEP_KINDS] = {
#define STEP(id, name, ops) [STEP_##id] = &ops,
#include "store/step.def"
#undef STEP
};

static enum step_kind kind_of(const struct op *op)
{
    switch (op->kind) {
    case OP_PEEK: return STEP_PEEK;
    case OP_REFUND: return STEP_REFUND;
    case OP_RESERVE: return STEP_RESERVE;
    case OP_SETTLE: return STEP_SETTLE;
    case OP_SWEEP: return STEP_SWEEP;
    case OP_ACQUIRE: return STEP_ACQUIRE;
    case OP_RELEASE: return STEP_RELEASE;
    case OP_RENEW: return STEP_RENEW;
    default: return STEP_CHECK;
    }
}

bool turn_steps_needed(const struct op *op)
{
    return op->kind > OP_RESET || op->at_most > 0 || op->note.len > 0;
}

static const struct step_ops *ops_of(const struct op *op)
{
    return table[kind_of(op)];
}

static struct step_needs needs_of(const struct op *op)
{
    const struct step_ops *ops = ops_of(op);
    return ops->needs != NULL ? ops->needs(op) : (struct step_needs){0};
}

/* ---- gathering ---- */

bool turn_steps_fit(const struct turn *turn, const struct op *op)
{
    if (turn->members.n + op->n_members > TURN_STEP_MEMBERS_MAX) return false;
    if (turn->n_runs + op->n_members > TURN_KEYS_MAX) return false;
    return turn->n_extras + needs_of(op).n_extras <= TURN_EXTRAS_MAX;
}

int turn_steps_reserve(struct turn *turn, const struct op *op)
{
    struct step_needs needs = needs_of(op);
    size_t bytes = needs.extra_bytes + needs.n_extras * (turn->prefix_len + TURN_TAG_LEN);
    return buffer_reserve(&turn->key_bytes, turn_key_bytes(turn, op) + bytes) != NULL ? 0 : -1;
}

void turn_steps_extra(struct turn *turn, const struct op_member *member, struct slice head, struct slice name)
{
    CHECK(turn->n_extras < TURN_EXTRAS_MAX);
    uint8_t *start = buffer_reserve(&turn->key_bytes, turn->prefix_len + TURN_TAG_LEN + head.len + name.len);
    CHECK(start != NULL); /* reserved before */
    uint8_t *at = turn_put_tag(turn, start, member);
    if (head.len > 0) memcpy(at, head.data, head.len);
    memcpy(at + head.len, name.data, name.len);
    struct turn_extra *extra = &turn->extras[turn->n_extras++];
    *extra = (struct turn_extra){.start = (uint32_t)buffer_len(&turn->key_bytes),
                                 .len = (uint32_t)((size_t)(at - start) + head.len + name.len)};
    buffer_grew(&turn->key_bytes, extra->len);
}

static bool is_same_run(const struct turn_run *a, const struct turn_run *b)
{
    return a->limit == b->limit && a->phase_ms == b->phase_ms && a->max_wait_us == b->max_wait_us;
}

static uint16_t find_or_add_run(struct turn *turn, const struct op_member *member)
{
    struct turn_run run = {
        .limit = member->limit,
        .phase_ms = limit_phase(member->limit, member->key),
        .max_wait_us = member->max_wait_us,
    };
    for (uint32_t i = 0; i < turn->n_runs; i++)
        if (is_same_run(&turn->runs[i], &run)) return (uint16_t)i;
    CHECK(turn->n_runs < TURN_KEYS_MAX);
    turn->runs[turn->n_runs] = run;
    return (uint16_t)turn->n_runs++;
}

void turn_steps_add(struct turn *turn, const struct op *op, struct turn_entry *entry)
{
    entry->item = (uint32_t)turn->members.n;
    entry->extra = (uint16_t)turn->n_extras;
    for (uint16_t i = 0; i < op->n_members; i++) {
        *turn_member(turn, turn->members.n++) = (struct turn_member){
            .key = turn_op_key(turn, entry->keys_at + i),
            .cost = op->members[i].cost,
            .run = find_or_add_run(turn, &op->members[i]),
        };
    }
    if (ops_of(op)->add_extras != NULL) ops_of(op)->add_extras(turn, op);
}

/* ---- packing ---- */

static uint8_t *put_step(const struct turn *turn, const struct turn_entry *entry, const struct op *op, uint8_t *to)
{
    to = turn_put(turn_put(to, kind_of(op), 1), op->n_members, 1);
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct turn_member *member = turn_member(turn, entry->item + i);
        to = turn_put(turn_put(to, member->run + 1U, 1), member->key + 1U, 2);
        to = turn_put(to, turn_cost(turn->runs[member->run].limit, member->cost), 7);
    }
    if (ops_of(op)->put_fields == NULL) return to;
    return ops_of(op)->put_fields(op, (uint16_t)(turn->n_keys + entry->extra + 1), to);
}

static uint8_t *put_steps(const struct turn *turn, uint8_t *to)
{
    const struct turn_entry *entry = turn_entry(turn, 0);
    LIST_FOREACH (link, &turn->ops) {
        to = put_step(turn, entry++, LIST_ITEM(link, struct op, link), to);
    }
    return to;
}

static size_t packet_size(const struct turn *turn)
{
    size_t size = HEADER_SIZE + turn->n_runs * (size_t)RUN_SIZE + turn->members.n * MEMBER_SIZE;
    LIST_FOREACH (link, &turn->ops) {
        size += STEP_SIZE + needs_of(LIST_ITEM(link, struct op, link)).field_bytes;
    }
    return size;
}

static int pack(struct turn *turn, uint32_t nonce, int64_t wall_us, int64_t latest_us)
{
    size_t most = packet_size(turn);
    buffer_truncate(&turn->packet, 0);
    uint8_t *start = buffer_reserve(&turn->packet, most), *to = start;
    if (start == NULL) return -1;
    CHECK(turn->n_runs <= UINT8_MAX && turn->n_ops <= UINT16_MAX);
    to = turn_put(turn_put(to, nonce, 4), (uint64_t)latest_us, 7);
    to = turn_put(turn_put(turn_put(to, IN_STEPS, 2), turn->n_runs, 1), turn->n_ops, 2);
    for (uint32_t i = 0; i < turn->n_runs; i++) {
        struct turn_run *run = &turn->runs[i];
        limit_constants(&run->constants, run->limit, run->phase_ms, run->max_wait_us, wall_us);
        to = turn_put_constants(turn_put(to, run->limit->algo, 1), run);
    }
    to = put_steps(turn, to);
    CHECK((size_t)(to - start) <= most);
    buffer_grew(&turn->packet, (size_t)(to - start));
    return 0;
}

size_t turn_steps_args(struct turn *turn, uint32_t nonce, int64_t wall_us, int64_t latest_us,
                       const struct slice **ret_args)
{
    if (pack(turn, nonce, wall_us, latest_us) < 0) return 0;
    const uint8_t *bytes = buffer_data(&turn->key_bytes);
    size_t n = 0;
    turn->args[n++] = turn_numkeys(turn, turn->n_keys + turn->n_extras);
    for (uint32_t i = 0; i < turn->n_keys; i++)
        turn->args[n++] = (struct slice){bytes + turn->keys[i].start, turn->keys[i].len};
    for (uint32_t i = 0; i < turn->n_extras; i++)
        turn->args[n++] = (struct slice){bytes + turn->extras[i].start, turn->extras[i].len};
    turn->args[n++] = (struct slice){buffer_data(&turn->packet), buffer_len(&turn->packet)};
    turn->packed = true;
    *ret_args = turn->args;
    return n;
}

/* ---- the reply ---- */

void turn_steps_bounds(const struct turn *turn, size_t *ret_min, size_t *ret_max)
{
    *ret_min = turn->members.n * N_STATES + N_LAST;
    *ret_max = *ret_min;
    LIST_FOREACH (link, &turn->ops) {
        const struct op *op = LIST_ITEM(link, struct op, link);
        *ret_max += op->n_members + needs_of(op).n_integers; /* a log's wait, and its own */
    }
}

int step_take(struct step_walk *walk, int64_t least, int64_t most, int64_t *ret)
{
    if (walk->at == walk->end || *walk->at < least || *walk->at > most) return -1;
    *ret = *walk->at++;
    return 0;
}

const struct run *step_run(const struct step_walk *walk, const struct turn_entry *entry, uint16_t i)
{
    return &walk->runs[turn_member(walk->turn, entry->item + i)->run];
}

void step_doubt(struct step_walk *walk, struct op *op)
{
    op->outcome = OP_STORE_ERROR;
    walk->any_implausible = true;
}

void step_judge_states(struct step_walk *walk, const struct turn_entry *entry, const int64_t *states, struct op *op)
{
    for (uint16_t i = 0; i < op->n_members; i++) {
        const struct run *run = step_run(walk, entry, i);
        if (!limit_ops(run->limit)->plausible(run, states[2 * i], states[2 * i + 1])) step_doubt(walk, op);
    }
}

/* 0, 1 where a member is foreign, -1 where an integer makes no sense. */
static int take_states(struct step_walk *walk, uint16_t n_members)
{
    bool foreign = false;
    for (uint16_t i = 0; i < n_members; i++) {
        int64_t s1, s2;
        if (step_take(walk, FOREIGN, TURN_EXACT_MAX, &s1) < 0 || step_take(walk, 0, TURN_EXACT_MAX, &s2) < 0) return -1;
        foreign |= s1 == FOREIGN;
        walk->n_foreign += s1 == FOREIGN;
    }
    return foreign;
}

static int answer(struct step_walk *walk, const struct turn_entry *entry, struct op *op)
{
    const int64_t *states = walk->at;
    int foreign = take_states(walk, op->n_members);
    if (foreign < 0) return -1;
    op->outcome = foreign ? OP_STORE_ERROR : OP_DECIDED;
    return foreign ? 0 : ops_of(op)->answer(walk, entry, states, op);
}

int turn_steps_replay(struct turn *turn, const int64_t *reply, size_t n)
{
    const int64_t *last = reply + n - N_LAST;
    struct step_walk walk = {.turn = turn, .at = reply, .end = last, .now_us = last[0]};
    if (walk.now_us < 0 || walk.now_us > TURN_EXACT_MAX) return -1;
    for (uint32_t i = 0; i < turn->n_runs; i++)
        limit_run(&walk.runs[i], turn->runs[i].limit, &turn->runs[i].constants, walk.now_us);
    const struct turn_entry *entry = turn_entry(turn, 0);
    LIST_FOREACH (link, &turn->ops) {
        if (answer(&walk, entry++, LIST_ITEM(link, struct op, link)) < 0) return -1;
    }
    if (walk.at != walk.end) return -1;
    turn_count_bad_values(turn, (uint64_t)last[1] + walk.n_foreign);
    counters.redis_bad_replies += walk.any_implausible;
    turn->now_us = walk.now_us;
    return 0;
}
