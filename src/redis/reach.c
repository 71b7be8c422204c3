/* redis/reach.c: tries whether a node takes calls with keys of several hash slots; for redis/node.c, cluster.c and
 * batches.c. */
#include "redis/reach.h"

#include <stdio.h>
#include <string.h>

#include "redis/batches.h"
#include "redis/counters.h"
#include "store/store_key.h"

static void set_reach(struct redis_batches *batches, enum redis_reach_of of)
{
    redis_counters.redis_by_slot += (uint64_t)(of == REACH_SLOT) - (batches->reach.of == REACH_SLOT);
    batches->reach.of = of;
}

void redis_reach_forget(struct redis_batches *batches)
{
    if (batches->slots == NULL) return;
    batches->reach.is_set = batches->options->by_slot;
    set_reach(batches, batches->reach.is_set ? REACH_SLOT : REACH_UNKNOWN);
}

void redis_reach_options_changed(struct redis_batches *batches)
{
    if (batches->slots == NULL || batches->options->by_slot == batches->reach.is_set) return;
    redis_reach_forget(batches);
    redis_reach_ask(batches);
}

void redis_reach_refused(struct redis_batches *batches, const char *why)
{
    struct redis_reach *reach = &batches->reach;
    set_reach(batches, REACH_SLOT);
    if (strcmp(reach->text, why) == 0) return; /* of the connection before: it has been reported */
    snprintf(reach->text, sizeof reach->text, "%.*s", (int)sizeof reach->text - 1, why);
    reach->is_news = true;
}

/* If it is one of the two that load calls with keys of several slots wrongly. */
static bool refuse_valkey(struct redis_batches *batches, const char *version)
{
    if (strcmp(version, "9.0.0") != 0 && strcmp(version, "9.0.1") != 0) return false;
    char why[REDIS_TEXT_MAX];
    snprintf(why, sizeof why, "Valkey %s would load such calls wrongly from its append-only file; 9.0.2 does not",
             version);
    redis_reach_refused(batches, why);
    return true;
}

static void on_info(struct redis_call *call, const struct redis_reader *reply)
{
    static const char field[] = "valkey_version:";
    struct redis_batches *batches = CONTAINER_OF(call, struct redis_batches, reach.info);
    if (reply == NULL || redis_reader_is_error(reply) || batches->reach.of != REACH_UNKNOWN) return;
    struct slice text = redis_reader_text(reply);
    const char *at = memmem(text.data, text.len, field, sizeof field - 1);
    if (at == NULL) return;

    at += sizeof field - 1;
    size_t n = 0, left = text.len - (size_t)(at - (const char *)text.data);
    while (n < left && n < 15 && (at[n] == '.' || (at[n] >= '0' && at[n] <= '9'))) n++;
    char version[16];
    snprintf(version, sizeof version, "%.*s", (int)n, at);
    refuse_valkey(batches, version);
}

static void on_canary(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_batches *batches = CONTAINER_OF(call, struct redis_batches, reach.canary);
    batches->reach.is_asking = false;
    if (reply == NULL || batches->reach.of != REACH_UNKNOWN) return;

    if (!redis_reader_is_error(reply)) {
        bool is_good = redis_reader_is_integers(reply) &&
                       batch_replay(batches->canary, reply->integers, reply->n_integers, batches->reach.nonce) == 0;
        if (is_good)
            set_reach(batches, REACH_NODE);
        else
            redis_reach_refused(batches, "an answer that makes no sense");
        return;
    }
    /* Any other class says that it runs nothing at present, or not for this user. */
    if (redis_error_of(redis_reader_text(reply)) == REDIS_ERROR_OTHER) redis_reach_refused(batches, reply->text);
}

void redis_reach_ask(struct redis_batches *batches)
{
    struct redis_reach *reach = &batches->reach;
    if (batches->slots == NULL || reach->of != REACH_UNKNOWN || reach->is_asking) return;
    if (batches->other_shard < 0 || !redis_link_is_ready(batches->link)) return;

    static const char valkey[] = "valkey ";
    const char *server = redis_link_server(batches->link);
    if (strncmp(server, valkey, sizeof valkey - 1) == 0 && refuse_valkey(batches, server + sizeof valkey - 1)) return;

    char keys[2][STORE_OWN_KEY_MAX];
    const uint32_t shards[] = {(uint32_t)batches->shard, (uint32_t)batches->other_shard};
    const struct slice *of_batch;
    reach->nonce = ++batches->last_nonce;
    if (batch_args(batches->canary, reach->nonce, batches->clock->wall_us, 0, &of_batch) == 0) return;
    const struct slice info[] = {slice_of("INFO"), slice_of("server")};
    struct slice args[] = {
        slice_of("EVALSHA"),
        batches->script.sha1,
        slice_of("0"),
        slice_of(store_key_own(batches->options->key_prefix, shards[0], "scratch", keys[0])),
        slice_of(store_key_own(batches->options->key_prefix, shards[1], "scratch", keys[1])),
        of_batch[1], /* behind its number of keys: the packet */
    };
    reach->info.on_reply = on_info;
    reach->canary.on_reply = on_canary;
    /* A server before HELLO, and a Valkey that calls itself Redis, may be a faulty one all the same. */
    if ((server[0] == '\0' || strcmp(server, "redis 7.2.4") == 0) &&
        redis_link_send(batches->link, &reach->info, info, N_OF(info)) < 0)
        return;
    reach->is_asking = redis_link_send(batches->link, &reach->canary, args, N_OF(args)) == 0;
}
