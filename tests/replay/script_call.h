/*
 * script_call.h: calls of the script in a real Redis, for the programs that compare it or measure it. Every failure
 * ends the program.
 */
#ifndef RL_TESTS_SCRIPT_CALL_H
#define RL_TESTS_SCRIPT_CALL_H

#include <stdnoreturn.h>

#include <hiredis/hiredis.h>

#include "redis/batch.h"

/* Exit status 2, with a line on standard error that begins with the program's name. */
noreturn void die(const char *what);

/* The caller's; the script is loaded, behind the Lua in the environment's RL_BEFORE_SCRIPT. */
redisContext *script_connect(const char *socket);

/* Puts a call into the output buffer: hiredis writes it before it waits for a reply. `wall_us` is the host's clock,
 * `now_us` the time for the script; 0 = Redis' own clock. */
void script_append(redisContext *redis, struct batch *batch, uint32_t nonce, int64_t wall_us, int64_t now_us);

redisReply *script_reply(redisContext *redis); /* the next array; the caller's */

/* Answers the ops of the batch from the next reply, and empties the batch. */
void script_answer(redisContext *redis, struct batch *batch, uint32_t nonce);
void script_empty(struct batch *batch); /* takes the ops out, whatever their answers */

#endif
