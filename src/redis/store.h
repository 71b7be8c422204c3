/*
 * redis/store.h: counters in Redis or Valkey, asked by EVALSHA of what a tick has gathered.
 *
 * Who does what, each for the one above it:
 *
 *   redis_store     what the engine asks of a store: the deny cache, the op's server, `done`
 *   redis_servers   one server, or a cluster: which server has which keys, and ops that are sent on to another one
 *   redis_node      one server: may it be asked (connection, breaker)? Is it well again (probe)?
 *   redis_batches   its ops: which wait, which are on their way, and what becomes of them
 *   batch_call      one EVALSHA with its batch (batch.h)
 *   redis_link      its address: connect, handshake (redis_handshake), backoff, another address after a reload
 *   redis_trial     other settings of the server after a reload, proved on a connection of their own
 *   redis_dial      from an address to a connection: the lookup of its name
 *   redis_conn      one connection: bytes out, replies in (redis_reader)
 *
 * The Redis user needs (a lint check holds the rights against lua/):
 *   ACL SETUSER ratelimit on >PASSWORD resetkeys ~rl:* -@all +hello +auth +client|setname +select +script|load +evalsha
 *     +time +mget +get +set +setrange +incrby +decrby +exists +del +pexpireat +lindex +llen +lrange +lrem +ltrim
 *     +rpush +zadd +zcount +zrange +zrangebyscore +zrem +zremrangebyscore +zrevrange +zscore
 * for the warnings about its version and about eviction
 *     +info
 * in a cluster
 *     +asking +cluster|shards +cluster|slots
 * and, with compat policies, ~PREFIX:* for each one's foreign prefix and
 *     +expire +pexpire +pttl
 * With +script|load the password's holder can run any script on these keys, so keep the server patched.
 */
#ifndef RL_REDIS_STORE_H
#define RL_REDIS_STORE_H

#include <uv.h>

#include "base/clock.h"
#include "redis/options.h"
#include "redis/self_test.h"
#include "store/store.h"

struct redis_store;

/* NULL without memory. `clock` outlives the store. Starts to connect in the next tick. */
struct redis_store *redis_store_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options);
struct store redis_store_handle(struct redis_store *redis);

bool redis_store_ready(const struct redis_store *redis);
/* Called once when the first connection attempt has ended, well or not (the daemon waits for it, a little, before it
 * says READY). */
void redis_store_on_first_attempt(struct redis_store *redis, void (*callback)(void *arg), void *arg);
/* One line for people: "ready", or why not, e.g. "connection refused (unix:/run/redis.sock)". Valid until the next
 * call. */
const char *redis_store_status(const struct redis_store *redis);
/* Why the breaker is open (in a cluster one of them) and Redis is not asked, any bytes; NULL = it is closed. Valid
 * until the next call. */
const char *redis_store_breaker(struct redis_store *redis);
/* False: no batch was answered yet. Else Redis' clock less ours, at the middle of the last batch's round trip. */
bool redis_store_clock(const struct redis_store *redis, int64_t *ret_ahead_us);
/* CLOCK_MONOTONIC: Redis has shown without any check that it works, by a handshake or a probe; 0 = not yet. */
int64_t redis_store_proven_us(const struct redis_store *redis);
/* Once a second: is_counting: the daemons that share this Redis are counted, this one among them (redis/daemons.h). */
void redis_store_look(struct redis_store *redis, bool is_counting);
/* For tests: what the last look has sent is not answered yet. */
bool redis_store_is_counting(const struct redis_store *redis);
/* Their number, as it was last seen; 0 = it is not known. *ret_fault: why it cannot be, any bytes; "" = it can. */
uint32_t redis_store_n_daemons(const struct redis_store *redis, const char **ret_fault);
/* What Redis refused last. */
struct redis_refusal {
    const char *text;   /* its error reply, in which a server may write anything; "" = there was none */
    const char *policy; /* the one policy that it is about: other policies' batches may be fine; "" = it is about all */
    int64_t at_us;      /* CLOCK_MONOTONIC */
};
struct redis_refusal redis_store_refusal(const struct redis_store *redis);
/* Ops so far that met a key of another type, and the last of them for the log, `policy login limit login key #3f2a...`;
 * "" = there was none. */
enum { REDIS_FOREIGN_MAX = 512 };
const char *redis_store_foreign(const struct redis_store *redis, uint64_t *ret_n);

/* Of a cluster: a master that takes only calls with the keys of one hash slot, and that was not returned before; its
 * words, any bytes. NULL: there is none. Both valid until the next call. */
const char *redis_store_by_slot(struct redis_store *redis, const char **ret_address);

/* As redis_sentinel_text(); "" without Sentinels. */
void redis_store_sentinels(const struct redis_store *redis, char *out, size_t size);
/* Why the n-th Sentinel, from 0, was passed over the last time, any bytes; "" = it was not. NULL: there is no n-th. */
const char *redis_store_passed(const struct redis_store *redis, uint32_t nth);
/* As redis_self_test_start(), of one ready server; on_done runs once. */
int redis_store_self_test(struct redis_store *redis, bool with_compat,
                          void (*on_done)(void *arg, const struct redis_facts *facts), void *arg);
/* Reload. Another address, user, password, database or TLS is proved first, on a second connection (redis_trial),
 * while a ready one decides; then it is moved to, and no check is lost by it. In a cluster, with Sentinels and without
 * a ready connection it is moved to at once. The key prefix stays as it was. */
void redis_store_set_options(struct redis_store *redis, const struct redis_options *options);
/* As long as other settings are not proved: "A decides, B: REASON; the old connection goes on"; else "". Valid until
 * the next call. */
enum { REDIS_TRIAL_TEXT_MAX = 1024 };
const char *redis_store_trial(struct redis_store *redis);
/* How many have been proved and taken, and a line about the last. */
const char *redis_store_taken(const struct redis_store *redis, uint64_t *ret_n);

#endif
