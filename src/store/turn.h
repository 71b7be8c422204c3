/*
 * turn.h: one loop turn's ops as one script call, and the script's reply as their answers; pure
 * functions over bytes, the twin of lua/core.lua. The wire format is drawn at the head of turn.c.
 *
 *   turn_add(op) ... turn_add(op)   until it says "full", or the turn ends
 *   turn_args()                     the EVALSHA's numkeys, KEYS and ARGV
 *   turn_replay(reply)              fills every op's members in the order they were added
 *
 * Ops on one key share one place in KEYS whatever their policies, costs and order; equal checks of
 * one key are counted together where `merge` allows. A turn is reused: turn_clear() keeps its memory.
 *
 * A turn whose first op needs more than that goes in steps (turn_steps.h): its ops one after the other. Plain checks
 * and peeks join such a turn as steps; what needs steps does not join any other.
 */
#ifndef RL_STORE_TURN_H
#define RL_STORE_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "store/store.h"

enum {
    TURN_KEYS_MAX = 64,
    TURN_ARGS_MAX = 1 + TURN_KEYS_MAX + 128 + 1, /* numkeys, KEYS with those of single steps, ARGV[1] */
};

struct turn;

struct turn *turn_new(const char *key_prefix, uint32_t max_keys, bool merge); /* NULL without memory */
void turn_free(struct turn *turn);
void turn_clear(struct turn *turn); /* must hold no ops */
void turn_set_merge(struct turn *turn, uint32_t max_keys, bool merge);
void turn_set_steps(struct turn *turn); /* every turn from now on goes in steps, needed or not, but for resets */

/* 0: the op is inside (its link is used, in order). 1: it does not fit this turn any more (keys, runs, or a kind that
 * must not share a call): send this one first. -1: no memory, nothing changed. */
int turn_add(struct turn *turn, struct op *op);
size_t turn_n_ops(const struct turn *turn);
size_t turn_n_keys(const struct turn *turn);

/* KEYS and ARGV in the order of EVALSHA after the digest: ret_args[0] is numkeys in decimal. Valid until the turn
 * changes. `nonce` travels in the packed turn and comes back as the last integer; `wall_us` is the host's clock, from
 * which a calendar's edges follow. Returns their number, 0 without memory. A test may append the time in us, in
 * decimal. `latest_us` (0 = none) is the server's time after which the script does nothing. An empty turn is fine: the
 * script answers that it works. */
size_t turn_args(struct turn *turn, uint32_t nonce, int64_t wall_us, int64_t latest_us, const struct slice **ret_args);

/* How many integers the reply must have at least and may have at most. */
void turn_reply_bounds(const struct turn *turn, size_t *ret_min, size_t *ret_max);

/* Give every op its answer from the n integers of the reply to the last turn_args(): op->outcome is OP_DECIDED, or
 * OP_STORE_ERROR where one of the op's own keys holds a foreign type (nothing was charged then, and the other ops are
 * fine). 0; 1 where the script began too late and did nothing; or -1 when the integers make no sense. With 1 and -1 no
 * op has an answer that counts. Counts redis_bad_values. */
int turn_replay(struct turn *turn, const int64_t *reply, size_t n, uint32_t nonce);
int64_t turn_now_us(const struct turn *turn); /* the server's, from the last reply that made sense */

/* Take the ops out, in order, onto `to` (for done, or for a resend). */
void turn_take_ops(struct turn *turn, struct list *to);

/* The script's text and lower-case SHA1, embedded at build time. */
extern const char turn_script[];
extern const size_t turn_script_len;
extern const char turn_script_sha1[41];

#endif
