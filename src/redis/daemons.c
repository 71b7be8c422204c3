/* redis/daemons.c: the set in Redis of the daemons that are alive, for redis/store.c (`local` shares by it). */
#include "redis/daemons.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/units.h"
#include "store/store_key.h"

enum {
    LIVE_MS = 30000, /* a member that was not refreshed for this time does not count */
    SOON_US = 3000000,
    LATER_US = 10000000,
    WORDS_MAX = 4,   /* of a command */
    WORD_MAX = 24,   /* the command itself */
    SHOWN_MAX = 128, /* bytes of a foreign member */
};

/* What every member begins with, and no other. */
#define MEMBER_HEAD "ratelimitd:"

static const char *key_of(const struct redis_daemons *daemons, char out[STORE_OWN_KEY_MAX])
{
    return store_key_own(daemons->options->key_prefix, 0, "daemons", out);
}

/* ---- what the replies report ---- */

static void take_time(struct redis_daemons *daemons, const struct redis_reader *reply)
{
    daemons->now_us = redis_reader_time_us(reply);
    daemons->has_failed |= daemons->now_us == 0;
}

static void take_members(struct redis_daemons *daemons, const struct redis_reader *reply)
{
    char key[STORE_OWN_KEY_MAX];
    for (size_t at = 0; at < reply->text_len; at += strlen(reply->text + at) + 1) {
        const char *member = reply->text + at;
        if (strncmp(member, MEMBER_HEAD, strlen(MEMBER_HEAD)) == 0) continue;
        snprintf(daemons->found, sizeof daemons->found,
                 "the sorted set %s has a member that no daemon wrote, %.*s; delete that key", key_of(daemons, key),
                 SHOWN_MAX, member);
        return;
    }
}

static void begin_counting(struct redis_daemons *daemons)
{
    daemons->highest = 0;
    daemons->fall_us = daemons->clock->mono_us + (int64_t)LIVE_MS * MS_US;
}

static void take_count(struct redis_daemons *daemons, const struct redis_reader *reply)
{
    if (reply->type != REDIS_INTEGER || reply->integers[0] < 1 || reply->integers[0] > UINT32_MAX) return;
    uint32_t n = (uint32_t)reply->integers[0];
    if (daemons->clock->mono_us >= daemons->fall_us) {
        if (daemons->highest > 0) daemons->n = daemons->highest;
        begin_counting(daemons);
    }
    if (n > daemons->highest) daemons->highest = n;
    if (n > daemons->n) daemons->n = n;
}

/* ---- steps ---- */

static void refresh(struct redis_daemons *daemons);

static void on_reply(struct redis_call *call, const struct redis_reader *reply)
{
    const struct daemons_step *step = CONTAINER_OF(call, struct daemons_step, call);
    struct redis_daemons *daemons = step->daemons;
    enum daemons_phase phase = daemons->phase;
    if (reply == NULL) {
        daemons->has_failed = true;
    } else if (redis_reader_is_error(reply)) {
        /* The fault names the way out. */
        char key[STORE_OWN_KEY_MAX], right[WORD_MAX] = "";
        for (size_t i = 0; i < sizeof right - 1 && step->command[i] != '\0'; i++)
            right[i] = (char)(step->command[i] | 0x20);
        daemons->has_failed = true;
        if (strncmp(reply->text, "WRONGTYPE", strlen("WRONGTYPE")) == 0)
            snprintf(daemons->found, sizeof daemons->found, "the key %s holds a value of another type; delete that key",
                     key_of(daemons, key));
        else if (redis_error_is_about_key(reply->text))
            snprintf(daemons->found, sizeof daemons->found, "user %s may not use the key %s; run: ACL SETUSER %s ~%s:*",
                     redis_options_user(daemons->options), key_of(daemons, key), redis_options_user(daemons->options),
                     daemons->options->key_prefix);
        else if (redis_error_of(redis_reader_text(reply)) == REDIS_ERROR_NOPERM)
            snprintf(daemons->found, sizeof daemons->found,
                     "user %s may not run %s on the key %s; run: ACL SETUSER %s +%s",
                     redis_options_user(daemons->options), step->command, key_of(daemons, key),
                     redis_options_user(daemons->options), right);
    } else if (!daemons->has_failed && step->take != NULL) {
        step->take(daemons, reply);
    }

    if (--daemons->n_waiting > 0) return;
    daemons->phase = DAEMONS_IDLE;
    bool has_fault = daemons->found[0] != '\0';
    if (!daemons->is_wanted) return;
    if (has_fault || !daemons->has_failed) memcpy(daemons->fault, daemons->found, sizeof daemons->fault);
    if (phase == DAEMONS_LOOKING && !has_fault && !daemons->has_failed) refresh(daemons);
}

/* `words` end with the first NULL. */
static void send_step(struct redis_daemons *daemons, void (*take)(struct redis_daemons *, const struct redis_reader *),
                      const char *const words[WORDS_MAX])
{
    struct slice args[WORDS_MAX];
    struct daemons_step *step = &daemons->steps[daemons->n_waiting];
    size_t n = 0;
    CHECK(daemons->n_waiting < DAEMONS_STEPS_MAX);
    for (; n < WORDS_MAX && words[n] != NULL; n++) args[n] = slice_of(words[n]);

    *step =
        (struct daemons_step){.call = {.on_reply = on_reply}, .daemons = daemons, .take = take, .command = words[0]};
    if (redis_link_send(daemons->link, &step->call, args, n) < 0)
        daemons->has_failed = true; /* the others are answered */
    else
        daemons->n_waiting++;
}

/* A step's words. */
#define WORDS(...) ((const char *const[WORDS_MAX]){__VA_ARGS__})

static void refresh(struct redis_daemons *daemons)
{
    char buffer[STORE_OWN_KEY_MAX], now[24], oldest[24], before[26], newest[24];
    const char *key = key_of(daemons, buffer);
    int64_t now_ms = daemons->now_us / MS_US;
    snprintf(now, sizeof now, "%" PRId64, now_ms);
    snprintf(oldest, sizeof oldest, "%" PRId64, now_ms - LIVE_MS);
    snprintf(before, sizeof before, "(%" PRId64, now_ms - LIVE_MS);
    snprintf(newest, sizeof newest, "%" PRId64, now_ms + LIVE_MS); /* later ones are of a clock that has stepped back */

    daemons->is_member = true;
    send_step(daemons, NULL, WORDS("ZREMRANGEBYSCORE", key, "-inf", before));
    send_step(daemons, NULL, WORDS("ZADD", key, now, daemons->name));
    send_step(daemons, NULL, WORDS("PEXPIREAT", key, newest));
    send_step(daemons, take_count, WORDS("ZCOUNT", key, oldest, newest));
    daemons->phase = daemons->n_waiting > 0 ? DAEMONS_REFRESHING : DAEMONS_IDLE;
}

static void on_left(struct redis_call *call, const struct redis_reader *reply)
{
    (void)reply;
    CONTAINER_OF(call, struct daemons_step, call)->daemons->is_leaving = false;
}

void redis_daemons_leave(struct redis_daemons *daemons)
{
    char key[STORE_OWN_KEY_MAX];
    daemons->is_wanted = false;
    if (!daemons->is_member || daemons->is_leaving) return;

    const struct slice args[] = {slice_of("ZREM"), slice_of(key_of(daemons, key)), slice_of(daemons->name)};
    daemons->leave = (struct daemons_step){.call = {.on_reply = on_left}, .daemons = daemons};
    daemons->is_leaving = redis_link_send(daemons->link, &daemons->leave.call, args, N_OF(args)) == 0;
    daemons->is_member = false; /* if it was not sent: it goes with its age */
    redis_link_flush(daemons->link);
}

/* ---- its owner's ---- */

void redis_daemons_init(struct redis_daemons *daemons, struct redis_link *link, const struct clock *clock,
                        const struct redis_options *options)
{
    char client[REDIS_CLIENT_NAME_MAX];
    *daemons = (struct redis_daemons){.link = link, .clock = clock, .options = options};

    /* Two daemons of one host and pid are in containers of their own. */
    uint64_t own = hash_stable(HASH_STABLE_START, &options->random_seed, sizeof options->random_seed);
    snprintf(daemons->name, sizeof daemons->name, "%s:%08" PRIx32, redis_client_name(client), (uint32_t)own);
}

void redis_daemons_on_ready(struct redis_daemons *daemons)
{
    daemons->since_us = daemons->clock->mono_us;
    daemons->next_us = 0;
    begin_counting(daemons);
}

void redis_daemons_look(struct redis_daemons *daemons, bool is_wanted)
{
    int64_t now_us = daemons->clock->mono_us;
    if (!is_wanted) {
        redis_daemons_leave(daemons);
        daemons->fault[0] = '\0';
        return;
    }

    if (!daemons->is_wanted) redis_daemons_on_ready(daemons);
    daemons->is_wanted = true;
    if (daemons->phase != DAEMONS_IDLE || now_us < daemons->next_us || !redis_link_is_ready(daemons->link)) return;

    bool is_young = now_us < daemons->since_us + (int64_t)LIVE_MS * MS_US;
    daemons->next_us = now_us + (is_young ? SOON_US : LATER_US);

    /* Foreign members are at an end where their scores are no times of now. */
    char buffer[STORE_OWN_KEY_MAX];
    const char *key = key_of(daemons, buffer);
    daemons->has_failed = false;
    daemons->found[0] = '\0';
    send_step(daemons, take_time, WORDS("TIME"));
    send_step(daemons, take_members, WORDS("ZRANGE", key, "0", "15"));
    send_step(daemons, take_members, WORDS("ZRANGE", key, "-16", "-1"));
    daemons->phase = daemons->n_waiting > 0 ? DAEMONS_LOOKING : DAEMONS_IDLE;

    redis_link_flush(daemons->link);
}
