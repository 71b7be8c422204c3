/* redis/self_test.c: one call of each command that checks need, for redis/store.c. */
#include "redis/self_test.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"
#include "redis/handshake.h"
#include "store/store_key.h"

enum { ARGS_MAX = 5, SCRATCH_MS = 60000 };

enum need { ALWAYS, FOR_COMPAT, IN_CLUSTER };

/* `@s`, `@l` and `@z` are scratch keys of one type each, `@t` is a time a minute from now. A command of one row needs
 * no other to succeed: only a refusal for want of a right counts. ASKING concerns the command behind it, which must
 * name no key. CLUSTER is not tried: its reply is long, and without a map there is no node to test. */
static const struct {
    const char *args[ARGS_MAX];
    enum need need;
} commands[] = {
    {{"TIME"}, ALWAYS},
    {{"SET", "@s", "1", "PX", "60000"}, ALWAYS},
    {{"GET", "@s"}, ALWAYS},
    {{"MGET", "@s"}, ALWAYS},
    {{"SETRANGE", "@s", "0", "1"}, ALWAYS},
    {{"INCRBY", "@s", "1"}, ALWAYS},
    {{"DECRBY", "@s", "1"}, ALWAYS},
    {{"EXISTS", "@s"}, ALWAYS},
    {{"RPUSH", "@l", "x"}, ALWAYS},
    {{"PEXPIREAT", "@l", "@t"}, ALWAYS},
    {{"LINDEX", "@l", "0"}, ALWAYS},
    {{"LLEN", "@l"}, ALWAYS},
    {{"LRANGE", "@l", "0", "0"}, ALWAYS},
    {{"LTRIM", "@l", "0", "0"}, ALWAYS},
    {{"LREM", "@l", "0", "x"}, ALWAYS},
    {{"ZADD", "@z", "1", "x"}, ALWAYS},
    {{"PEXPIREAT", "@z", "@t"}, ALWAYS},
    {{"ZCOUNT", "@z", "0", "1"}, ALWAYS},
    {{"ZRANGE", "@z", "0", "0"}, ALWAYS},
    {{"ZRANGEBYSCORE", "@z", "0", "1"}, ALWAYS},
    {{"ZREVRANGE", "@z", "0", "0"}, ALWAYS},
    {{"ZSCORE", "@z", "x"}, ALWAYS},
    {{"ZREM", "@z", "x"}, ALWAYS},
    {{"ZREMRANGEBYSCORE", "@z", "0", "1"}, ALWAYS},
    {{"EXPIRE", "@s", "60"}, FOR_COMPAT},
    {{"PEXPIRE", "@s", "60000"}, FOR_COMPAT},
    {{"PTTL", "@s"}, FOR_COMPAT},
    {{"DEL", "@s", "@l", "@z"}, ALWAYS},
    {{"ASKING"}, IN_CLUSTER},
    {{"INFO", "server"}, ALWAYS},
    {{"INFO", "memory"}, ALWAYS},
};
_Static_assert(N_OF(commands) <= SELF_TEST_CALLS_MAX, "a call for each command");

/* The value of a line "NAME:VALUE" of INFO. */
static void take_info(char ret[SELF_TEST_WORD_MAX], struct slice text, const char *name)
{
    const char *at = memmem(text.data, text.len, name, strlen(name));
    if (at == NULL) return;
    at += strlen(name);
    const char *end = (const char *)text.data + text.len;
    size_t len = 0;
    while (at + len < end && len < SELF_TEST_WORD_MAX - 1 && at[len] > ' ' && at[len] <= '~') len++;
    memcpy(ret, at, len);
    ret[len] = '\0';
}

static void take_reply(struct redis_self_test *test, const char *const *args, const struct redis_reader *reply)
{
    struct slice text = redis_reader_text(reply);
    bool is_info = strcmp(args[0], "INFO") == 0;
    if (redis_reader_is_error(reply)) {
        bool lacks_right = redis_error_of(text) == REDIS_ERROR_NOPERM;
        if (lacks_right && redis_error_is_about_key(reply->text)) {
            snprintf(test->facts.keys, sizeof test->facts.keys, "~%s:*", test->key_prefix);
        } else if (lacks_right && !is_info) {
            char right[SELF_TEST_WORD_MAX];
            size_t at = strlen(test->facts.missing);
            snprintf(right, sizeof right, "%s+%s", at > 0 ? " " : "", args[0]);
            for (char *c = right; *c != '\0'; c++)
                if (*c >= 'A' && *c <= 'Z') *c += 'a' - 'A';
            if (strstr(test->facts.missing, right + (at > 0)) == NULL)
                snprintf(test->facts.missing + at, sizeof test->facts.missing - at, "%s", right);
        }
        return;
    }

    int64_t now_us = strcmp(args[0], "TIME") == 0 ? redis_reader_time_us(reply) : 0;
    if (now_us > 0) test->facts.ahead_us = now_us - test->clock->wall_us;
    if (is_info) {
        take_info(test->facts.version, text, "redis_version:");
        take_info(test->facts.eviction, text, "maxmemory_policy:");
    }
}

static void end_test(struct redis_self_test *test)
{
    test->on_done(test->arg, test->is_lost ? NULL : &test->facts);
}

static void on_round_reply(struct redis_call *call, const struct redis_reader *reply);

static void send_round(struct redis_self_test *test)
{
    const struct slice time = slice_of("TIME");
    test->round.on_reply = on_round_reply;
    if (redis_link_send(test->link, &test->round, &time, 1) == 0) {
        test->n_sent++;
        redis_link_flush(test->link); /* a link on trial has no node that does it each tick */
        return;
    }
    test->is_lost = true;
    end_test(test);
}

/* Any answer has come all the way. */
static void on_round_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_self_test *test = CONTAINER_OF(call, struct redis_self_test, round);
    int64_t took_us = test->clock->mono_us - call->sent_us;
    test->n_answered++;
    test->is_lost = reply == NULL;
    if (test->n_rounds++ == 0 || took_us < test->facts.round_trip_us) test->facts.round_trip_us = took_us;
    if (test->is_lost || test->n_rounds == SELF_TEST_ROUNDS)
        end_test(test);
    else
        send_round(test);
}

static void on_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct self_test_step *step = CONTAINER_OF(call, struct self_test_step, call);
    struct redis_self_test *test = step->test;
    test->n_answered++;
    test->is_lost |= reply == NULL;
    if (reply != NULL) take_reply(test, commands[step->command].args, reply);
    if (test->n_answered < test->n_sent) return;
    if (test->is_lost)
        end_test(test);
    else
        send_round(test);
}

int redis_self_test_start(struct redis_self_test *test, struct redis_link *link, struct clock *clock,
                          const struct redis_options *options, uint32_t shard, bool with_compat,
                          void (*on_done)(void *arg, const struct redis_facts *facts), void *arg)
{
    char keys[3][STORE_OWN_KEY_MAX], until[24];
    static const char types[] = "slz", *const names[] = {"scratch:s", "scratch:l", "scratch:z"};
    if (test->n_answered < test->n_sent) return -1;
    *test = (struct redis_self_test){
        .link = link, .key_prefix = options->key_prefix, .clock = clock, .on_done = on_done, .arg = arg};
    snprintf(test->facts.user, sizeof test->facts.user, "%s", redis_options_user(options));
    for (size_t i = 0; i < N_OF(keys); i++) store_key_own(options->key_prefix, shard, names[i], keys[i]);
    snprintf(until, sizeof until, "%" PRId64, clock->wall_us / MS_US + SCRATCH_MS);

    for (size_t i = 0; i < N_OF(commands); i++) {
        if (commands[i].need == FOR_COMPAT && !with_compat) continue;
        if (commands[i].need == IN_CLUSTER && options->topology != TOPOLOGY_CLUSTER) continue;
        struct slice args[ARGS_MAX];
        size_t n = 0;
        for (; n < ARGS_MAX && commands[i].args[n] != NULL; n++) {
            const char *word = commands[i].args[n];
            if (word[0] == '@') word = word[1] == 't' ? until : keys[strchr(types, word[1]) - types];
            args[n] = slice_of(word);
        }

        struct self_test_step *step = &test->steps[test->n_sent];
        *step = (struct self_test_step){.call = {.on_reply = on_reply}, .test = test, .command = i};
        if (redis_link_send(link, &step->call, args, n) < 0) {
            test->is_lost = true;
            return test->n_sent > 0 ? 0 : -1; /* those that were sent are answered */
        }
        test->n_sent++;
    }
    redis_link_flush(link);
    return 0;
}
