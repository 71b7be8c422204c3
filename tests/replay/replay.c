/*
 * replay.c: replays a trace of checks and prints every field of every decision, either of the C
 * algorithms on the memory store, or of the script in a real Redis with the decoder of its reply. The
 * reference model (Python) compares its own answers with this output.
 *
 *   replay memory
 *   replay redis SOCKET [MAX_KEYS [MERGE [IN_FLIGHT]]]      defaults 64 1 32; with IN_FLIGHT 1, it answers a tick
 * before it reads the next one; with IN_FLIGHT 0, each step before the next one, and the cache of denials is on
 *
 * Standard input, fields separated by spaces:
 *
 *   policy NAME N [KEY_FORMAT|- [debt] [merge_back]]    then N lines:
 *   limit NAME|- ALGORITHM LIMIT WINDOW_US BURST COUNT_DENIED [MAX_WAIT_US [PHASE [by=PART,PART...] [counts=checks]
 *                                              [penalty=MS,FACTOR,MS,MS]]]
 *                                              ALGORITHM as configured, or first_hit, or compat:PRESET; with
 *                                              calendar_window WINDOW_US is UNIT,ZONE,WEEKDAY or
 *                                              UNIT,ZONE,MM-DD
 *   override POLICY KEYS LIMIT|- ...           other numbers for some keys: of each limit of a policy; - = its own.
 *                                              KEYS: a key, a pattern, or cidr/PART/NETWORK,NETWORK...; PART -: all
 *   skew SKEW_US                               from here on, the host's clock is ahead of Redis' by this much
 *   tick NOW_US                                the steps up to `end` are one event loop tick at that time
 *   POLICY KEY check|peek COST [MAX_WAIT_US]     default: the policy's wait
 *   POLICY KEY most UNITS                      at_most
 *   POLICY KEY refund UNITS
 *   POLICY KEY undo UNITS MADE_US LEVEL          takes back a charge of that time as if it had not been; LEVEL: only
 * from a bucket that has it still, drained since then; 0 = from any POLICY KEY reset 0 POLICY KEY reserve UNITS ID
 * TTL_MS POLICY KEY settle USED ID 0                  ID of an earlier reserve, admitted or not POLICY KEY merge UNITS
 * ID TTL_MS             into its one limit; the first of an ID says when it was drawn POLICY KEY sweep 0 give back the
 * units of ended reservations; no line of output slot acquire|release|renew POLICY KEY SLOT   of the policy's
 * concurrency limits; a new SLOT for each acquire all N POLICY KEY COST ...                  a check of N keys, all or
 * nothing; no counter twice
 *   ... id=ID keep=MS                          for check, most and all: a request id, and how long it is remembered
 *   end
 *
 * Policies may be defined again between ticks: later steps use the new ones, as after a reload. Redis
 * gets the time of the tick. It should be in the future (e.g. from 4000000000000000), because Redis
 * deletes keys whose expiry has passed. Compat presets use the real time of Redis.
 *
 * Standard output, one line per step except sweeps, in order (a refund and an undo have ` refunded UNITS` at their
 * end):
 *
 *   allowed limit remaining retry_after_ms reset_after_ms delay_ms granted bound_by    (a limit's name, or -; before it
 *                                            `penalty` if the pause of one denies)
 *   ... policy/limit | allowed limit remaining retry_after_ms reset_after_ms delay_ms granted | ...      for `all`,
 *                                            first the combined answer, then each limit's
 *   ... | refunded charged ended             for `settle` and `merge`
 *   removed 0|1
 *   found 0|1                                release and renew
 *   error                                    the key has a value of another type
 *
 * Exit code 0; 2 with a line on standard error if the trace or the settings are wrong.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "limit/calendar.h"
#include "policy/policy.h"
#include "redis/deny_cache.h"
#include "replay/script_call.h"
#include "store/memory_store.h"

enum {
    STEPS_MAX = 10000,
    KEY_SIZE = 64,
    POLICIES_MAX = 4096,
    RESERVATIONS_MAX = 256,
    IN_FLIGHT_MAX = 32,
    OVERRIDES_MAX = 8,
    DENIED_MAX = 4096
};

struct step {
    struct op op;
    struct op_member members[POLICY_LIMITS_MAX];
    struct op_reservation reservation;
    bool is_all;
    char record[POLICY_LIMITS_MAX * 4 * KEY_SIZE];
    char slot[SLOT_ID_LEN];
    char keys[POLICY_LIMITS_MAX][KEY_SIZE];
    uint8_t ids[POLICY_LIMITS_MAX][2]
               [KEY_SIZE]; /* joined parts of a key: a limit's id, and the id that all limits share */
};

static struct policy *policies[POLICIES_MAX];                /* owned; later ones hide earlier ones */
static size_t n_policies, n_sealed;                          /* the second: those that ticks may use */
static struct step *steps;                                   /* owned; steps whose answers are not printed yet */
static struct op_reservation reservations[RESERVATIONS_MAX]; /* the latest ones, by their ids */
static size_t n_steps, n_decided;                            /* decided or in flight */
static int64_t tick_us = -1;                                 /* the time of the tick that is being read */

static struct clock replay_clock = {.manual = true, .frozen = true};
static struct memory_store *memory; /* owned; NULL in Redis mode */
static struct store memory_handle;
static redisContext *redis;                  /* owned */
static struct batch *batches[IN_FLIGHT_MAX]; /* owned */
static size_t n_in_flight;                   /* batches that were sent, with nonces from first_nonce on */
static uint32_t first_nonce = 1;
static size_t in_flight_max = IN_FLIGHT_MAX;
static int64_t skew_us;
static struct deny_cache denied; /* owned */
static bool has_denied;

static char *next_word(char **line)
{
    char *word = strtok_r(NULL, " \n", line);
    if (word == NULL) die("a line is too short");
    return word;
}

static int64_t next_number(char **line)
{
    return strtoll(next_word(line), NULL, 10);
}

static int64_t optional_number(char **line, int64_t without)
{
    const char *word = strtok_r(NULL, " \n", line);
    return word != NULL ? strtoll(word, NULL, 10) : without;
}

static int algo_named(const char *name)
{
    if (strncmp(name, "compat:", 7) == 0) return compat_of_name(name + 7);
    return strcmp(name, "first_hit") == 0 ? ALGO_FIRST_HIT : algo_of_name(name);
}

/* by=PART,PART...: the parts that the limit counts by. */
static void read_by(struct limit *limit, char *by)
{
    const struct key_format *format = limit->policy->format;
    char *more;
    if (strncmp(by, "by=", 3) != 0 || format == NULL) die("by= and parts of the key_format expected");
    for (char *name = strtok_r(by + 3, ",", &more); name != NULL; name = strtok_r(NULL, ",", &more)) {
        int part = key_format_find(format, slice_of(name));
        if (part < 0) die("no such part");
        limit->parts |= (key_parts)(1U << part);
    }
    limit->shared = limit->parts != key_format_all(format);
}

static int place_among(const char *word, const char *words)
{
    int place = 0;
    const char *at = strstr(words, word);
    if (at == NULL) die("no such unit or weekday");
    for (; words < at; words++) place += *words == ' ';
    return place;
}

/* UNIT,ZONE,WEEKDAY; or UNIT,ZONE,MM-DD with an anchor */
static struct calendar *calendar_named(const char *text)
{
    char unit[16], zone[64], weekday[16];
    struct calendar *calendar;
    if (sscanf(text, "%15[^,],%63[^,],%15s", unit, zone, weekday) != 3) die("no UNIT,ZONE,WEEKDAY");
    int month, day;
    bool is_day = sscanf(weekday, "%d-%d", &month, &day) == 2;
    enum calendar_unit number = (enum calendar_unit)place_among(unit, CALENDAR_UNITS);
    if (calendar_get(zone, number, is_day ? 0 : place_among(weekday, CALENDAR_WEEKDAYS), true, &calendar) != 0)
        die("no such time zone");
    return is_day ? calendar_anchored(calendar, month, day) : calendar;
}

static void read_limit(struct limit *limit, char *text)
{
    struct diag diag;
    char *line;
    if (fgets(text, 1024, stdin) == NULL || strcmp(strtok_r(text, " \n", &line), "limit") != 0) die("limit expected");
    const char *name = next_word(&line);
    snprintf(limit->name, sizeof limit->name, "%s", strcmp(name, "-") == 0 ? "" : name);
    int algo = algo_named(next_word(&line));
    if (algo < 0) die("no such algorithm");
    limit->algo = (enum algo)algo;
    limit->limit = next_number(&line);
    if (algo == ALGO_CALENDAR_WINDOW)
        limit->calendar = calendar_named(next_word(&line));
    else
        limit->window_us = next_number(&line);
    limit->burst = next_number(&line);
    limit->count_denied = next_number(&line) != 0;
    limit->max_wait_us = optional_number(&line, 0);
    limit->phase = optional_number(&line, 0) != 0;
    for (char *word; (word = strtok_r(NULL, " \n", &line)) != NULL;) {
        struct penalty *penalty = &limit->penalty;
        if (strcmp(word, "counts=checks") == 0)
            limit->counts_checks = true;
        else if (sscanf(word, "penalty=%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64, &penalty->time_ms,
                        &penalty->factor, &penalty->max_ms, &penalty->forget_ms) != 4)
            read_by(limit, word);
    }
    if (policy_prepare_limit(limit, NULL, &diag) != 0) die(diag.text);
}

static void read_policy(char **line, char *text)
{
    char name[NAME_MAX_LEN + 1];
    snprintf(name, sizeof name, "%s", next_word(line));
    int64_t n_limits = next_number(line);
    if (n_limits < 1 || n_limits > POLICY_LIMITS_MAX || n_policies == POLICIES_MAX) die("too many limits or policies");
    struct policy *policy = policy_new(name, (uint16_t)n_limits);
    if (policy == NULL) die("no memory");
    const char *format = strtok_r(NULL, " \n", line);
    if (format != NULL && strcmp(format, "-") == 0) format = NULL;
    if (format != NULL && (policy->format = mem_zalloc(sizeof *policy->format)) == NULL) die("no memory");
    if (format != NULL && key_format_parse(policy->format, format) != NULL) die("no key_format");
    bool debt = false, merge_back = false;
    for (const char *word; (word = strtok_r(NULL, " \n", line)) != NULL;) {
        debt |= strcmp(word, "debt") == 0;
        merge_back |= strcmp(word, "merge_back") == 0;
    }
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        policy->limits[i].debt = debt;
        policy->limits[i].merge_back = merge_back;
        read_limit(&policy->limits[i], text);
    }
    policies[n_policies++] = policy;
}

static struct policy *policy_named(const char *name)
{
    for (size_t i = n_policies; i-- > 0;)
        if (strcmp(policies[i]->name, name) == 0) return policies[i];
    die("no such policy");
    return NULL;
}

/* Those that were read since the last tick. */
static void seal_policies(void)
{
    for (; n_sealed < n_policies; n_sealed++) {
        struct overrides *overrides = policies[n_sealed]->overrides;
        if (overrides != NULL && network_set_seal(&overrides->networks) < 0) die("no memory");
        policy_seal(policies[n_sealed]);
    }
}

/* PART/NETWORK,NETWORK...; returns the part. */
static int add_networks(struct policy *policy, char *text)
{
    const char *name = strsep(&text, "/"), *one;
    int part = strcmp(name, "-") == 0 ? 0 : key_format_find(policy->format, slice_of(name));
    while ((one = strsep(&text, ",")) != NULL) {
        char wrong[NETWORK_WRONG_MAX];
        struct network network;
        if (!network_parse(one, &network, wrong)) die(wrong);
        network.part = (uint8_t)part;
        network.override = (uint32_t)policy->overrides->n;
        network.line = 0;
        if (network_set_add(&policy->overrides->networks, &network) < 0) die("no memory");
    }
    return part;
}

/* Of a policy that no tick has used. */
static void read_override(char **line)
{
    struct policy *policy = policy_named(next_word(line)), *variant = policy_variant(policy, false);
    char *keys = next_word(line);
    struct diag diag;
    enum override_kind kind = strchr(keys, '*') != NULL ? OVERRIDE_OF_PATTERN : OVERRIDE_OF_KEY;
    int part = 0;
    if (variant == NULL) die("no memory");
    for (size_t i = 0; i < n_sealed; i++)
        if (policies[i] == policy) die("an override after its policy's first tick");
    for (uint16_t i = 0; i < variant->n_limits; i++) {
        const char *number = next_word(line);
        if (strcmp(number, "-") != 0) variant->limits[i].limit = strtoll(number, NULL, 10);
        if (policy_prepare_limit(&variant->limits[i], NULL, &diag) != 0) die(diag.text);
    }

    if (policy->overrides == NULL) policy->overrides = overrides_new(OVERRIDES_MAX);
    if (policy->overrides == NULL || policy->overrides->n == OVERRIDES_MAX) die("too many overrides");
    if (strncmp(keys, "cidr/", 5) == 0) {
        kind = OVERRIDE_OF_NETWORKS;
        part = add_networks(policy, keys + 5);
    }
    if (overrides_add(policy->overrides, keys, kind, part, variant) < 0) die("no memory");
}

static void on_done(struct op *op, enum op_outcome outcome)
{
    op->outcome = outcome;
}

static struct step *next_step(enum op_kind kind)
{
    if (n_steps == STEPS_MAX) die("too many steps in a tick");
    struct step *step = &steps[n_steps++];
    step->is_all = false;
    step->record[0] = '\0';
    step->op = (struct op){.kind = kind, .members = step->members, .done = on_done};
    list_init(&step->op.link);
    return step;
}

/* A refund of the policy is of units: what other limits took stays. */
static int64_t cost_at(const struct step *step, const struct limit *limit, int64_t cost)
{
    if (step->op.kind != OP_REFUND) return limit_cost(limit, cost);
    bool is_undo = step->op.reservation != NULL, is_named = limit->name[0] == '\0';
    return is_undo || is_named || !limit_takes_one(limit) ? cost : 0;
}

static void add_members(struct step *step, const struct policy *policy, const char *key, int64_t cost,
                        int64_t max_wait_us)
{
    struct key_split split;
    struct slice shard_id = {0};
    char *kept = step->keys[step->op.n_members];
    if (step->op.n_members + policy->n_limits > POLICY_LIMITS_MAX) die("too many limits in one step");
    if (snprintf(kept, KEY_SIZE, "%s", key) >= KEY_SIZE) die("too long a key");
    policy = policy_for_key(policy, slice_of(kept));
    if (policy->format != NULL && !key_format_split(policy->format, slice_of(kept), &split)) die("no such key");
    if (policy->plan.shares)
        shard_id = key_format_id(policy->format, &split, policy->plan.shard_parts, step->ids[step->op.n_members][1]);
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        if (step->op.kind == OP_RESET && limit->shared) continue;
        uint8_t *id_buffer = step->ids[step->op.n_members][0];
        step->members[step->op.n_members++] = (struct op_member){
            .limit = limit,
            .key = limit->shared ? key_format_id(policy->format, &split, limit->parts, id_buffer) : slice_of(kept),
            .shard_id = shard_id,
            .reservations_key = policy->plan.reserves ? slice_of(kept) : (struct slice){NULL, 0},
            .cost = cost_at(step, limit, cost),
            .max_wait_us = limit_max_wait(&policy->limits[i], max_wait_us),
        };
    }
}

static enum op_kind kind_named(const char *name)
{
    static const struct {
        const char *name;
        enum op_kind kind;
    } kinds[] = {{"check", OP_CHECK},   {"peek", OP_PEEK},   {"reset", OP_RESET},   {"reserve", OP_RESERVE},
                 {"settle", OP_SETTLE}, {"sweep", OP_SWEEP}, {"refund", OP_REFUND}, {"undo", OP_REFUND},
                 {"most", OP_CHECK},    {"merge", OP_SETTLE}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0) return kinds[i].kind;
    die("no such kind of step");
    return OP_CHECK;
}

/* Optional fields of a step: a wait, and a request id with the time to keep it. */
static void read_options(struct step *step, char **line, int64_t *max_wait_us)
{
    for (const char *word; (word = strtok_r(NULL, " \n", line)) != NULL;) {
        size_t len = strlen(step->record);
        if (strncmp(word, "id=", 3) == 0)
            snprintf(step->record + len, sizeof step->record - len, " %s", word + 3);
        else if (strncmp(word, "keep=", 5) == 0)
            step->op.record_ms = (uint32_t)strtoul(word + 5, NULL, 10);
        else
            *max_wait_us = strtoll(word, NULL, 10);
    }
    if (step->op.record_ms > 0) step->op.record = slice_of(step->record);
}

static void name_record(struct step *step, const struct policy *policy, const char *key)
{
    size_t len = strlen(step->record);
    snprintf(step->record + len, sizeof step->record - len, "%s %s ", policy->name, key);
}

static void set_at_most(struct op *op, int64_t most)
{
    op->at_most = most;
    for (uint16_t i = 0; i < op->n_members; i++)
        if (op->members[i].limit->max_cost < op->at_most) op->at_most = op->members[i].limit->max_cost;
    if (op->at_most < 1) die("a store never gets at_most 0");
}

/* The ID and the time limit after a reserve, settle or merge. */
static void read_reservation(struct step *step, int64_t units, bool is_merge, char **line)
{
    uint64_t id = (uint64_t)next_number(line);
    int64_t ttl_ms = next_number(line);
    struct op_reservation *known = &reservations[id % RESERVATIONS_MAX];
    if (step->op.kind == OP_RESERVE || (is_merge && known->id != id))
        *known = (struct op_reservation){.id = id, .units = units, .made_us = tick_us, .ttl_ms = ttl_ms};
    else if (known->id != id)
        die("unknown reservation");
    step->reservation = *known;
    if (step->op.kind == OP_SETTLE) step->reservation.actual = units;
    if (is_merge) step->reservation.units = 0;
    step->reservation.is_merge = is_merge;
    step->op.reservation = &step->reservation;
}

static void read_step(const char *first, char **line)
{
    const struct policy *policy = policy_named(first);
    char key[KEY_SIZE];
    snprintf(key, sizeof key, "%s", next_word(line));
    const char *kind = next_word(line);
    bool is_most = strcmp(kind, "most") == 0, is_undo = strcmp(kind, "undo") == 0;
    struct step *step = next_step(kind_named(kind));
    int64_t cost = next_number(line), max_wait_us = INT64_MAX;
    if (step->op.kind == OP_REFUND && cost < 1) die("a store never gets a refund of 0 units");
    if (step->op.kind == OP_RESERVE || step->op.kind == OP_SETTLE)
        read_reservation(step, cost, strcmp(kind, "merge") == 0, line);
    if (step->op.kind == OP_SETTLE) cost = 0;
    if (is_undo) {
        step->reservation.made_us = next_number(line);
        step->reservation.level = next_number(line);
        step->op.reservation = &step->reservation;
    }
    name_record(step, policy, key);
    read_options(step, line, &max_wait_us);
    add_members(step, policy, key, is_most ? 1 : cost, max_wait_us);
    if (is_most) set_at_most(&step->op, cost);
}

/* Keep only the concurrency limits. */
static void keep_slotted(struct op *op)
{
    uint16_t n = 0;
    for (uint16_t i = 0; i < op->n_members; i++)
        if (op->members[i].limit->algo == ALGO_CONCURRENCY) op->members[n++] = op->members[i];
    op->n_members = n;
}

static void read_slot_step(char **line)
{
    const char *kind = next_word(line);
    struct step *step = next_step(strcmp(kind, "acquire") == 0   ? OP_ACQUIRE
                                  : strcmp(kind, "release") == 0 ? OP_RELEASE
                                                                 : OP_RENEW);
    const struct policy *policy = policy_named(next_word(line));
    add_members(step, policy, next_word(line), 1, INT64_MAX);
    if (step->op.kind != OP_ACQUIRE) keep_slotted(&step->op);
    memset(step->slot, '.', sizeof step->slot);
    const char *slot = next_word(line);
    if (strlen(slot) > sizeof step->slot) die("too long a slot");
    memcpy(step->slot, slot, strlen(slot));
    step->op.slot = step->slot;
}

static void read_all_step(char **line)
{
    struct step *step = next_step(OP_CHECK);
    int64_t no_wait;
    step->is_all = true;
    for (int64_t n = next_number(line); n > 0; n--) {
        const struct policy *policy = policy_named(next_word(line));
        const char *key = next_word(line);
        name_record(step, policy, key);
        add_members(step, policy, key, next_number(line), INT64_MAX);
    }
    read_options(step, line, &no_wait);
}

static void receive_all(void)
{
    for (size_t i = 0; i < n_in_flight; i++) script_answer(redis, batches[i], first_nonce + (uint32_t)i);
    first_nonce += (uint32_t)n_in_flight;
    n_in_flight = 0;
}

/* Sends the present batch: it is full, or its tick ends. Redis runs several batches in one round trip. */
static void close_batch(int64_t now_us)
{
    uint32_t nonce = first_nonce + (uint32_t)n_in_flight;
    script_append(redis, batches[n_in_flight++], nonce, now_us + skew_us, now_us);
    if (n_in_flight == in_flight_max) receive_all();
}

/* Every step alone, unless the cache of denials has its answer. A clock that steps back is one of the cases in which
 * the cache may be wrong until its entries are too old. */
static void run_with_cache(int64_t now_us)
{
    if (now_us < replay_clock.mono_us) deny_cache_clear(&denied);
    replay_clock.mono_us = now_us;
    replay_clock.wall_us = now_us + skew_us;
    for (size_t i = n_decided; i < n_steps; i++) {
        struct op *op = &steps[i].op;
        op->outcome = OP_DECIDED;
        if (deny_cache_decide(&denied, op, &replay_clock)) continue;

        deny_cache_submitted(&denied, op);
        if (batch_add(batches[0], op) != 0) die("an op that fits no batch");
        close_batch(now_us);
        if (op->outcome == OP_DECIDED) deny_cache_learn(&denied, op, now_us, replay_clock.wall_us);
        deny_cache_ended(&denied, op);
    }
}

static void run_in_redis(int64_t now_us)
{
    for (size_t i = n_decided; i < n_steps; i++) {
        int status = batch_add(batches[n_in_flight], &steps[i].op);
        if (status > 0) {
            close_batch(now_us);
            status = batch_add(batches[n_in_flight], &steps[i].op);
        }
        if (status != 0) die("an op that fits no batch");
    }
    if (batch_n_ops(batches[n_in_flight]) > 0) close_batch(now_us);
}

static void run_in_memory(int64_t now_us)
{
    replay_clock.wall_us = replay_clock.mono_us = now_us;
    for (size_t i = n_decided; i < n_steps; i++) {
        if (store_submit(&memory_handle, &steps[i].op) != SUBMIT_DECIDED) die("memory did not decide");
        steps[i].op.outcome = OP_DECIDED;
    }
}

static void print_bound(const struct step *step, const struct limit *bound)
{
    if (bound == NULL || (step->op.n_members == 1 && !step->is_all))
        printf("-");
    else if (step->is_all)
        printf("%s%s%s", bound->policy->name, bound->name[0] != '\0' ? "/" : "", bound->name);
    else
        printf("%s", bound->name);
}

static void print_fields(const struct decision *decision)
{
    printf("%d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, decision->allowed,
           decision->limit, decision->remaining, decision->retry_after_ms, decision->reset_after_ms, decision->delay_ms,
           decision->granted);
    printf(" of %" PRId64 " %" PRId64 " %" PRId64, decision->of->limit, decision->window_ms, decision->of_reset_ms);
    if (decision->reason == REASON_PENALTY) printf(" penalty");
}

static void print_decision(const struct step *step)
{
    struct decision members[POLICY_LIMITS_MAX], all;
    for (uint16_t i = 0; i < step->op.n_members; i++) members[i] = step->members[i].decision;
    if (step->is_all || step->op.kind == OP_ACQUIRE)
        decision_combine(&all, members, step->op.n_members);
    else
        decision_combine_units(&all, members, step->op.n_members);
    for (uint16_t i = 1; i < step->op.n_members && !step->is_all; i++) /* not the one that a limit was charged */
        if (all.granted > 0 && members[i].granted > all.granted) all.granted = members[i].granted;
    print_fields(&all);
    printf(" ");
    print_bound(step, all.bound_by);
    for (uint16_t i = 0; i < step->op.n_members && step->is_all; i++) {
        if (members[i].allowed) members[i].retry_after_ms = 0;
        printf(" | ");
        print_fields(&members[i]);
    }
    int64_t refunded = 0;
    for (uint16_t i = 0; i < step->op.n_members && step->op.kind == OP_REFUND; i++)
        if (step->members[i].refunded > refunded) refunded = step->members[i].refunded;
    if (step->op.kind == OP_REFUND) printf(" refunded %" PRId64, refunded);
    if (step->op.kind == OP_SETTLE)
        printf(" | %" PRId64 " %" PRId64 " %d", step->reservation.refunded, step->reservation.charged,
               step->reservation.ended);
    puts("");
}

static void print_found(const struct step *step)
{
    bool found = true;
    for (uint16_t i = 0; i < step->op.n_members; i++) found &= step->members[i].found;
    printf("found %d\n", found);
}

static void print_step(const struct step *step)
{
    bool removed = false;
    if (step->op.kind == OP_SWEEP) return;
    if (step->op.outcome != OP_DECIDED) {
        puts("error");
    } else if (step->op.kind == OP_RESET) {
        for (uint16_t i = 0; i < step->op.n_members; i++) removed |= step->members[i].removed;
        printf("removed %d\n", removed);
    } else if (step->op.kind == OP_RELEASE || step->op.kind == OP_RENEW) {
        print_found(step);
    } else {
        print_decision(step);
    }
}

static void print_steps(void)
{
    receive_all();
    for (size_t i = 0; i < n_steps; i++) print_step(&steps[i]);
    fflush(stdout);
    n_steps = n_decided = 0;
}

static void run_tick(int64_t now_us)
{
    if (has_denied)
        run_with_cache(now_us);
    else if (redis != NULL)
        run_in_redis(now_us);
    else
        run_in_memory(now_us);
    n_decided = n_steps;
    if (n_in_flight == 0 || n_steps > STEPS_MAX / 2) print_steps();
}

static void replay_trace(void)
{
    char text[1024], *line;
    while (fgets(text, sizeof text, stdin) != NULL) {
        const char *first = strtok_r(text, " \n", &line);
        if (first == NULL || first[0] == '#') continue;
        if (strcmp(first, "policy") == 0) {
            char more[1024];
            read_policy(&line, more);
        } else if (strcmp(first, "override") == 0) {
            read_override(&line);
        } else if (strcmp(first, "tick") == 0) {
            tick_us = next_number(&line);
            seal_policies();
        } else if (strcmp(first, "skew") == 0) {
            skew_us = next_number(&line);
        } else if (strcmp(first, "end") == 0) {
            run_tick(tick_us);
        } else if (strcmp(first, "slot") == 0) {
            read_slot_step(&line);
        } else if (strcmp(first, "all") == 0) {
            read_all_step(&line);
        } else {
            read_step(first, &line);
        }
    }
    print_steps();
}

static void open_store(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "memory") == 0) {
        memory = memory_store_new(&replay_clock, &(struct memory_options){.max_keys = 100000});
        if (memory == NULL) die("no memory");
        memory_handle = memory_store_handle(memory);
        return;
    }
    if (argc < 3 || strcmp(argv[1], "redis") != 0)
        die("usage: replay memory | replay redis SOCKET [MAX_KEYS [MERGE [IN_FLIGHT]]]");
    redis = script_connect(argv[2]);
    if (argc > 5) in_flight_max = (size_t)atoi(argv[5]);
    if (in_flight_max > IN_FLIGHT_MAX) die("IN_FLIGHT up to 32");
    has_denied = in_flight_max == 0;
    if (has_denied) in_flight_max = 1;
    deny_cache_set_options(&denied, has_denied ? DENIED_MAX : 0, INT64_MAX);
    uint32_t max_keys = argc > 3 ? (uint32_t)atoi(argv[3]) : BATCH_KEYS_MAX;
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        batches[i] =
            batch_new(&(struct store_key_scheme){"rl", STORE_SHARDS}, max_keys, argc < 5 || atoi(argv[4]) != 0);
        if (batches[i] == NULL) die("no memory");
    }
}

int main(int argc, char **argv)
{
    steps = mem_zalloc(STEPS_MAX * sizeof *steps);
    if (steps == NULL) die("no memory");
    open_store(argc, argv);
    replay_trace();
    deny_cache_fini(&denied);
    if (redis != NULL) redisFree(redis);
    if (memory != NULL) memory_store_free(memory);
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) batch_free(batches[i]);
    for (size_t i = 0; i < n_policies; i++) policy_free(policies[i]);
    mem_free(steps);
    return 0;
}
