/*
 * script_load.c: what the script costs Redis: batches of ops as the daemon packs them, sent to a server of one's own,
 * whose main thread's processor time is read before and after. script.py asks for one workload after the other.
 *
 *   rl_script SOCKET      on standard input a workload's name a line; on standard output its microseconds per op
 *
 * Every answer is a run of its own: the server is emptied, every key is asked for once, then the batches are timed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "policy/policy.h"
#include "replay/script_call.h"

enum { OPS_MAX = 64, MEMBERS_MAX = 2, N_KEYS = 30000, TEXT_SIZE = 24, OPS_A_RUN = 12000, PIPELINE = 50 };

struct ask {
    struct op op;
    struct op_member members[MEMBERS_MAX];
    struct op_reservation reservation;
    char key[TEXT_SIZE], record[TEXT_SIZE];
};

static redisContext *redis; /* owned */
static struct batch *batch; /* owned */
static struct ask asks[OPS_MAX];
static size_t n_asks;
static uint64_t random_state, serial;
static struct policy *api, *burst, *login, *feed, *audit, *attack, *abuse, *pair, *tenant, *quota; /* owned */
static int64_t made_us[OPS_A_RUN]; /* of reservations, by their ids - 1 */

static uint64_t below(uint64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (random_state >> 33) % n;
}

/* ---- policies --------------------------------------------------------------------------------------------------- */

struct numbers {
    enum algo algo;
    int64_t limit, window_us;
};

static struct policy *policy_of(const char *name, uint16_t n, const struct numbers *numbers)
{
    struct diag diag;
    struct policy *policy = policy_new(name, n);
    CHECK(policy != NULL);
    for (uint16_t i = 0; i < n; i++) {
        struct limit *limit = &policy->limits[i];
        if (n > 1) snprintf(limit->name, sizeof limit->name, "l%u", (unsigned)i);
        limit->algo = numbers[i].algo;
        limit->limit = numbers[i].limit;
        limit->window_us = numbers[i].window_us;
        CHECK(policy_prepare_limit(limit, NULL, &diag) == 0);
    }
    policy_seal(policy);
    return policy;
}

static void make_policies(void)
{
    const int64_t minute = 60000000;
    api = policy_of("api", 1, (struct numbers[]){{ALGO_BUCKET, 1000000, minute}});
    burst = policy_of("burst", 1, (struct numbers[]){{ALGO_BUCKET, 500000, minute}});
    login = policy_of("login", 1, (struct numbers[]){{ALGO_FIXED_WINDOW, 1000000, minute}});
    feed = policy_of("feed", 1, (struct numbers[]){{ALGO_SLIDING_COUNTER, 1000000, minute}});
    audit = policy_of("audit", 1, (struct numbers[]){{ALGO_SLIDING_LOG, 100, minute}});
    attack = policy_of("attack", 1, (struct numbers[]){{ALGO_FIXED_WINDOW, 3, 10 * minute}});
    abuse = policy_of("abuse", 1, (struct numbers[]){{ALGO_BUCKET, 3, 60 * minute}});
    pair =
        policy_of("pair", 2, (struct numbers[]){{ALGO_BUCKET, 1000000, minute}, {ALGO_FIXED_WINDOW, 1000000, minute}});
    tenant = policy_of("tenant", 2, (struct numbers[]){{ALGO_BUCKET, 1000000, minute}, {ALGO_BUCKET, 500000, minute}});
    quota =
        policy_of("quota", 2, (struct numbers[]){{ALGO_BUCKET, 1000000, minute}, {ALGO_FIXED_WINDOW, 1000000, minute}});
}

/* ---- workloads -------------------------------------------------------------------------------------------------- */

static struct ask *ask(const struct policy *policy, enum op_kind kind, int64_t cost)
{
    struct ask *next = &asks[n_asks++];
    *next = (struct ask){.op = {.kind = kind, .n_members = policy->n_limits, .members = next->members}};
    snprintf(next->key, sizeof next->key, "user%06d", (int)below(N_KEYS));
    for (uint16_t i = 0; i < policy->n_limits; i++)
        next->members[i] = (struct op_member){.limit = &policy->limits[i], .key = slice_of(next->key), .cost = cost};
    list_init(&next->op.link);
    return next;
}

static void check(const struct policy *policy)
{
    (void)ask(policy, OP_CHECK, 1);
}

static void check_once(const struct policy *policy)
{
    struct ask *next = ask(policy, OP_CHECK, 1);
    snprintf(next->record, sizeof next->record, "note1:%012" PRIu64, ++serial);
    next->op.record = slice_of(next->record);
    next->op.record_ms = 60000;
}

static void many(const struct policy *policy, int n)
{
    for (int i = 0; i < n; i++) check(policy);
}

static void mixed(int n)
{
    const struct policy *const some[] = {api, burst, login, feed};
    for (int i = 0; i < n; i++) check(some[below(4)]);
}

/* n keys, each used `times` times at the same cost, or a few times at several costs. */
static void again(int n, int times)
{
    for (int i = 0; i < n; i++) {
        int left = times > 0 ? times : 1 + (int)below(3);
        int64_t cost = times > 0 || below(3) > 0 ? 1 : 5;
        size_t first = n_asks;
        for (; left > 0; left--) {
            struct ask *next = ask(api, OP_CHECK, cost);
            memcpy(next->key, asks[first].key, sizeof next->key);
            next->members[0].key = slice_of(next->key);
        }
    }
}

static void shared(int n)
{
    for (int i = 0; i < n; i++) {
        struct ask *next = ask(tenant, OP_CHECK, 1);
        next->members[1].key = slice_of("acme");
        next->members[0].shard_id = next->members[1].shard_id = slice_of("acme");
    }
}

static void reserve(int n)
{
    for (int i = 0; i < n; i++) {
        struct ask *next = ask(quota, OP_RESERVE, 1);
        snprintf(next->key, sizeof next->key, "user%06" PRIu64, ++serial % N_KEYS); /* settle() uses them again */
        for (int j = 0; j < 2; j++) next->members[j].key = next->members[j].reservations_key = slice_of(next->key);
        next->reservation = (struct op_reservation){.id = serial, .units = 1, .ttl_ms = 90000};
        next->op.reservation = &next->reservation;
    }
}

static void settle(int n)
{
    size_t first = n_asks;
    reserve(n);
    for (size_t i = first; i < n_asks; i++) {
        asks[i].op.kind = OP_SETTLE;
        asks[i].members[0].cost = asks[i].members[1].cost = 0;
        asks[i].reservation.made_us = made_us[asks[i].reservation.id - 1];
        asks[i].reservation.actual = 1;
    }
}

static void gather(const char *name)
{
    n_asks = 0;
    if (strcmp(name, "a 64 buckets") == 0) many(api, 64);
    if (strcmp(name, "b 64 fixed windows") == 0) many(login, 64);
    if (strcmp(name, "c 64 sliding counters") == 0) many(feed, 64);
    if (strcmp(name, "d 64 mixed, 4 policies") == 0) mixed(64);
    if (strcmp(name, "d8 8 mixed") == 0) mixed(8);
    if (strcmp(name, "e1 1 key x 64") == 0) again(1, 64);
    if (strcmp(name, "e8 8 keys x 8") == 0) again(8, 8);
    if (strcmp(name, "e9 16 keys, counts and costs differ") == 0) again(16, 0);
    if (strcmp(name, "f 32 x 2 limits") == 0) many(pair, 32);
    if (strcmp(name, "f2 32 x (own, shared)") == 0) shared(32);
    if (strcmp(name, "g 1 bucket") == 0) check(api);
    if (strcmp(name, "g1 1 fixed window") == 0) check(login);
    if (strcmp(name, "g8 8 buckets") == 0) many(api, 8);
    for (int i = 0; strcmp(name, "h 16 request ids") == 0 && i < 16; i++) check_once(api);
    if (strcmp(name, "i 60 buckets, 4 request ids") == 0) many(api, 60);
    if (strcmp(name, "i2 60 fixed windows, 4 request ids") == 0) many(login, 60);
    for (int i = 0; name[0] == 'i' && i < 4; i++) check_once(api);
    if (strcmp(name, "j 64 logs of 100") == 0) many(audit, 64);
    if (strcmp(name, "k 64 fixed windows, denied") == 0) many(attack, 64);
    if (strcmp(name, "l 64 buckets, denied") == 0) many(abuse, 64);
    if (strcmp(name, "r1 1 reserve") == 0) reserve(1);
    if (strcmp(name, "r16 16 reserves") == 0) reserve(16);
    if (strcmp(name, "s1 1 settle") == 0) settle(1);
    if (strcmp(name, "s16 16 settles") == 0) settle(16);
    if (n_asks == 0) die("no such workload");
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

/* Reads one call's reply; returns the script's time. */
static int64_t receive(void)
{
    redisReply *reply = script_reply(redis);
    int64_t now_us = reply->element[reply->elements - 3]->integer;
    freeReplyObject(reply);
    return now_us;
}

/* Sends all ops in as many calls as needed; returns the number of calls. */
static int send_asks(void)
{
    int n_calls = 0;
    for (size_t at = 0; at < n_asks; n_calls++) {
        while (at < n_asks && batch_add(batch, &asks[at].op) == 0) at++;
        script_append(redis, batch, 1, INT64_C(1700000000000000), 0);
        script_empty(batch);
    }
    return n_calls;
}

/* Runs OPS_A_RUN ops of a workload, or 1500 batches, many at a time; returns the number of ops. */
static size_t run(const char *name, uint64_t seed)
{
    size_t n_ops = 0;
    int n_batches = 0;
    random_state = seed;
    while (n_ops + OPS_MAX <= OPS_A_RUN && n_batches < 1500) {
        int n_calls[PIPELINE];
        size_t ends[PIPELINE];
        int n = 0;
        for (; n < PIPELINE && n_ops + OPS_MAX <= OPS_A_RUN; n++) {
            gather(name);
            n_calls[n] = send_asks();
            ends[n] = n_ops += n_asks;
        }
        size_t at = ends[0] - n_asks;
        for (int i = 0; i < n; i++) {
            int64_t now_us = 0;
            while (n_calls[i]-- > 0) now_us = receive();
            for (; name[0] == 'r' && at < ends[i]; at++) made_us[at] = now_us;
        }
        n_batches += n;
    }
    return n_ops;
}

static double cpu_us(void)
{
    redisReply *reply = redisCommand(redis, "INFO cpu");
    if (reply == NULL || reply->str == NULL) die("no INFO");
    double sum = 0;
    static const char *const names[] = {"used_cpu_sys_main_thread:", "used_cpu_user_main_thread:"};
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(reply->str, names[i]);
        if (at == NULL) die("this server does not report the time of its main thread");
        sum += atof(at + strlen(names[i]));
    }
    freeReplyObject(reply);
    return sum * 1e6;
}

static double measure(const char *name)
{
    enum { SEED = 5 };
    char reserving[TEXT_SIZE * 4];
    bool is_denied = strstr(name, "denied") != NULL;
    freeReplyObject(redisCommand(redis, "FLUSHALL"));
    serial = 0;
    for (int i = 0; i < (is_denied ? 5 : 1); i++) (void)run(name, SEED);
    if (name[0] == 's') { /* a settlement needs a reservation */
        freeReplyObject(redisCommand(redis, "FLUSHALL"));
        snprintf(reserving, sizeof reserving, "%s",
                 strcmp(name, "s1 1 settle") == 0 ? "r1 1 reserve" : "r16 16 reserves");
        serial = 0;
        (void)run(reserving, SEED);
        serial = 0;
    }
    double before = cpu_us();
    size_t n = run(name, SEED);
    return (cpu_us() - before) / (double)n;
}

int main(int argc, char **argv)
{
    char name[128];
    if (argc != 2) die("usage: rl_script SOCKET");
    redis = script_connect(argv[1]);
    batch = batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, BATCH_KEYS_MAX, true);
    if (batch == NULL) die("no memory");
    make_policies();
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        printf("%.4f\n", measure(name));
        fflush(stdout);
    }
    struct policy *const all[] = {api, burst, login, feed, audit, attack, abuse, pair, tenant, quota};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) policy_free(all[i]);
    batch_free(batch);
    redisFree(redis);
    return 0;
}
