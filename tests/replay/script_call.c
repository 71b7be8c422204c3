#include "replay/script_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

noreturn void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(2);
}

static char digest[41]; /* of the script that is called */

redisContext *script_connect(const char *socket)
{
    redisContext *redis = redisConnectUnix(socket);
    if (redis == NULL || redis->err) die("cannot connect to Redis");

    const char *before = getenv("RL_BEFORE_SCRIPT"); /* Lua that goes before it */
    char *text;
    if (asprintf(&text, "%s%s", before != NULL ? before : "", batch_script) < 0) die("no memory");
    redisReply *reply = redisCommand(redis, "SCRIPT LOAD %s", text);
    free(text);

    if (reply == NULL) die("lost Redis");
    if (reply->type != REDIS_REPLY_STRING || reply->len != sizeof digest - 1) die(reply->str);
    memcpy(digest, reply->str, sizeof digest);
    if (before == NULL && strcmp(digest, batch_script_sha1) != 0) die(digest);
    freeReplyObject(reply);
    return redis;
}

void script_append(redisContext *redis, struct batch *batch, uint32_t nonce, int64_t wall_us, int64_t now_us)
{
    const struct slice *args;
    const char *argv[2 + BATCH_ARGS_MAX + 1] = {"EVALSHA", digest};
    size_t lens[2 + BATCH_ARGS_MAX + 1] = {7, 40}, argc = 2;
    char now_text[24];

    size_t n = batch_args(batch, nonce, wall_us, 0, &args);
    if (n == 0) die("no memory");
    for (size_t i = 0; i < n; i++) argv[argc] = (const char *)args[i].data, lens[argc++] = args[i].len;
    if (now_us != 0) {
        lens[argc] = (size_t)snprintf(now_text, sizeof now_text, "%" PRId64, now_us);
        argv[argc++] = now_text;
    }

    if (redisAppendCommandArgv(redis, (int)argc, argv, lens) != REDIS_OK) die("no memory");
}

redisReply *script_reply(redisContext *redis)
{
    redisReply *reply;
    if (redisGetReply(redis, (void **)&reply) != REDIS_OK) die("lost Redis");
    if (reply->type != REDIS_REPLY_ARRAY) die(reply->str != NULL ? reply->str : "no array");
    return reply;
}

void script_answer(redisContext *redis, struct batch *batch, uint32_t nonce)
{
    static int64_t integers[BATCH_REPLY_MAX];
    redisReply *reply = script_reply(redis);
    if (reply->elements > BATCH_REPLY_MAX) die("the reply is too long");

    for (size_t i = 0; i < reply->elements; i++) integers[i] = reply->element[i]->integer;
    if (batch_replay(batch, integers, reply->elements, nonce) < 0) die("invalid reply");
    freeReplyObject(reply);
    script_empty(batch);
}

void script_empty(struct batch *batch)
{
    struct list ops;
    list_init(&ops);
    batch_take_ops(batch, &ops);
    while (list_pop_front(&ops) != NULL) continue;
    batch_clear(batch);
}
