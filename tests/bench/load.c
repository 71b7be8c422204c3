/*
 * load.c: load on the daemon, or on Redis directly, for bench.py.
 *
 *   load -s SOCKET  -p POLICY [-a]          check requests in MessagePack-RPC (-a: decisions as arrays)
 *   load -r ADDRESS -e SHA -g "A B C"       EVALSHA SHA 1 KEY A B C on Redis; ADDRESS is a path or host:port
 *   both: -c CONNECTIONS -d DEPTH -t SECONDS | -n REQUESTS  -k KEYS  -z EXPONENT (Zipf; 0 = uniform)  -x PREFIX  -i
 * SEED -f   CONNECTIONS forked processes, one blocking call at a time each; -r then uses hiredis' blocking API
 *   -s: -o CHECKS_PER_SECOND   an open loop
 *
 * One line of JSON comes out. Every connection keeps DEPTH requests under way; a reply releases the next request. In an
 * open loop checks are due at a steady rate, on one connection after another, and a check is measured from then, also
 * if it waits because DEPTH of its connection are under way.
 * Requests are patched into a template, replies are skipped over rather than decoded, and keys come from a table
 * drawn before the start, so that the generator costs as little as it can: it shares the machine with what it measures.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "bench/wire.h"

enum {
    KEY_DIGITS = 7,
    MAX_REQUEST = 512,   /* bytes */
    READ_SIZE = 1 << 18, /* bytes */
    N_DRAWN = 1 << 20,   /* keys drawn in advance; a power of two */
};

struct options {
    const char *socket;
    const char *redis;
    const char *sha;
    const char *script_args;
    const char *policy;
    const char *prefix;
    bool arrays;
    bool forked;
    unsigned n_connections;
    unsigned depth;
    unsigned n_keys;
    double seconds;
    double per_second;   /* of an open loop; 0 = a closed one */
    uint64_t n_requests; /* 0 = until the seconds are over */
    double zipf;
    uint64_t seed;
};

/* The results, in memory shared with forked workers. */
struct tally {
    uint64_t n_done;
    uint64_t n_allowed;
    uint64_t n_denied;
    uint64_t n_errors;
    struct wire_histogram latency;
};

struct connection {
    int fd;
    uint8_t *in; /* owned */
    size_t in_len;
    uint8_t *out; /* owned; space for DEPTH requests */
    size_t out_len;
    int64_t *sent_ns; /* owned; by msgid, or in order for Redis */
    uint32_t *idle;   /* owned; slots for the next requests of an open loop */
    unsigned n_idle;
    unsigned oldest; /* Redis answers in order: the slot of the next reply */
    uint32_t draw;   /* the index of the next key in `drawn` */
};

static struct options opt = {.n_connections = 1, .depth = 1, .n_keys = 100000, .seconds = 1, .prefix = "k", .seed = 1};
static uint8_t template[MAX_REQUEST];
static size_t template_len, key_at, msgid_at;
static uint32_t *drawn; /* owned */
static uint64_t n_sent;

/* ---- keys ---- */

static void draw_keys(void)
{
    double *upto = malloc(opt.n_keys * sizeof *upto); /* cumulated weight */
    drawn = malloc(N_DRAWN * sizeof *drawn);
    if (!upto || !drawn) wire_die("malloc");
    double sum = 0;
    for (unsigned i = 0; i < opt.n_keys; i++) upto[i] = sum += 1 / pow(i + 1, opt.zipf);
    for (unsigned i = 0; i < N_DRAWN; i++) {
        double at = (double)(wire_random(&opt.seed) >> 11) / (double)(1ULL << 53) * sum;
        unsigned low = 0, high = opt.n_keys - 1;
        while (low < high) {
            unsigned middle = (low + high) / 2;
            if (upto[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        drawn[i] = low;
    }
    free(upto);
}

/* ---- requests ---- */

static void put(const void *bytes, size_t len)
{
    if (template_len + len > sizeof template) wire_die("request too long");
    memcpy(template + template_len, bytes, len);
    template_len += len;
}

static void put_str(const char *text, size_t len)
{
    uint8_t head[2] = {0xd9, (uint8_t)len};
    put(head, 2);
    put(text, len);
}

/* [0, msgid, "check", [policy, key]] with space for a 32-bit msgid and a key of fixed length. */
static void make_check_template(void)
{
    char key[64];
    int n = snprintf(key, sizeof key, "%s%0*d", opt.prefix, KEY_DIGITS, 0);
    put("\x94\x00\xce", 3);
    msgid_at = template_len;
    put("\0\0\0\0", 4);
    put_str("check", 5);
    put("\x92", 1);
    put_str(opt.policy, strlen(opt.policy));
    put_str(key, (size_t)n);
    key_at = template_len - KEY_DIGITS;
}

static void put_bulk(const char *text)
{
    char head[32];
    put(head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", strlen(text)));
    put(text, strlen(text));
    put("\r\n", 2);
}

static unsigned split_args(char *copy, char **args, unsigned max)
{
    unsigned n = 0;
    for (char *word = strtok(copy, " "); word && n < max; word = strtok(NULL, " ")) args[n++] = word;
    return n;
}

static void make_redis_template(void)
{
    char key[64], head[32], copy[256];
    char *args[16];
    snprintf(key, sizeof key, "%s%0*d", opt.prefix, KEY_DIGITS, 0);
    snprintf(copy, sizeof copy, "%s", opt.script_args);
    unsigned n = split_args(copy, args, 16);
    put(head, (size_t)snprintf(head, sizeof head, "*%u\r\n", 4 + n));
    put_bulk("EVALSHA");
    put_bulk(opt.sha);
    put_bulk("1");
    put_bulk(key);
    key_at = template_len - 2 - KEY_DIGITS;
    for (unsigned i = 0; i < n; i++) put_bulk(args[i]);
}

static void write_key(uint8_t *at, uint32_t key)
{
    for (int i = KEY_DIGITS - 1; i >= 0; i--, key /= 10) at[i] = (uint8_t)('0' + key % 10);
}

static void add_request(struct connection *c, uint32_t slot, int64_t now)
{
    uint8_t *at = c->out + c->out_len;
    memcpy(at, template, template_len);
    write_key(at + key_at, drawn[c->draw++ & (N_DRAWN - 1)]);
    if (!opt.redis)
        for (int i = 0; i < 4; i++) at[msgid_at + (size_t)i] = (uint8_t)(slot >> (24 - 8 * i));
    c->sent_ns[slot] = now;
    c->out_len += template_len;
    n_sent++;
}

/* ---- replies ---- */

/* From [1, msgid, error, result]: the msgid, and the outcome (1 allowed, 0 denied, -1 error). */
static int read_answer(const uint8_t *at, size_t len, uint32_t *ret_msgid)
{
    const uint8_t *msgid = at + 2;
    size_t n = wire_value_length(msgid, len - 2);
    *ret_msgid = n == 1 ? *msgid : (uint32_t)wire_big_endian(msgid + 1, (unsigned)n - 1);
    const uint8_t *error = msgid + n;
    if (*error != 0xc0) return -1;
    const uint8_t *result = error + 1;
    if ((*result & 0xf0) == 0x90 || *result == 0xdc) return result[*result == 0xdc ? 3 : 1] == 0xc3;
    /* A map's first key is "allowed" (8 bytes with its head). */
    return result[(*result == 0xde ? 3 : 1) + 8] == 0xc3;
}

/* The length of the integer or error reply at `at`, 0 while incomplete. */
static size_t line_length(const uint8_t *at, size_t len)
{
    const uint8_t *end = memchr(at, '\n', len);
    return end ? (size_t)(end - at) + 1 : 0;
}

static void note(struct tally *tally, int outcome, int64_t ns)
{
    tally->n_done++;
    if (outcome < 0)
        tally->n_errors++;
    else if (outcome)
        tally->n_allowed++;
    else
        tally->n_denied++;
    wire_histogram_add(&tally->latency, ns);
}

/* The next complete reply in [at, at + len): its length, its slot and its outcome. */
static size_t next_reply(struct connection *c, const uint8_t *at, size_t len, uint32_t *ret_slot, int *ret_outcome)
{
    size_t n;
    if (opt.redis) {
        n = line_length(at, len);
        if (n == 0) return 0;
        *ret_slot = c->oldest;
        c->oldest = (c->oldest + 1) % opt.depth;
        *ret_outcome = at[0] != ':' ? -1 : at[1] != '-'; /* a denial of the scripts is negative */
        return n;
    }
    n = wire_value_length(at, len);
    if (n > 0) *ret_outcome = read_answer(at, n, ret_slot);
    return n;
}

/* ---- connections ---- */

static void connection_open(struct connection *c, unsigned number)
{
    *c = (struct connection){.fd = wire_open(opt.redis ? opt.redis : opt.socket), .draw = number * 7919};
    c->in = malloc(READ_SIZE);
    c->out = malloc(opt.depth * template_len);
    c->sent_ns = calloc(opt.depth, sizeof *c->sent_ns);
    c->idle = malloc(opt.depth * sizeof *c->idle);
    if (!c->in || !c->out || !c->sent_ns || !c->idle) wire_die("malloc");
    for (; c->n_idle < opt.depth; c->n_idle++) c->idle[c->n_idle] = c->n_idle;
    if (opt.arrays) wire_hello(c->fd);
}

static bool may_send(int64_t now, int64_t end)
{
    return opt.n_requests ? n_sent < opt.n_requests : now < end;
}

static void write_out(struct connection *c)
{
    wire_write(c->fd, c->out, c->out_len);
    c->out_len = 0;
}

/* Reads once, counts every complete reply, and in a closed loop sends a new request for each. Returns how many fewer
 * are under way. */
static unsigned exchange(struct connection *c, struct tally *tally, int64_t end)
{
    ssize_t n = read(c->fd, c->in + c->in_len, READ_SIZE - c->in_len);
    if (n <= 0) wire_die("read");
    c->in_len += (size_t)n;
    int64_t now = wire_now_ns();
    size_t at = 0, len;
    uint32_t slot;
    int outcome;
    unsigned n_replies = 0, n_new = 0;
    while (at < c->in_len && (len = next_reply(c, c->in + at, c->in_len - at, &slot, &outcome)) > 0) {
        at += len;
        note(tally, outcome, now - c->sent_ns[slot]);
        n_replies++;
        if (opt.per_second > 0) {
            c->idle[c->n_idle++] = slot;
        } else if (may_send(now, end)) {
            add_request(c, slot, now);
            n_new++;
        }
    }
    memmove(c->in, c->in + at, c->in_len - at);
    c->in_len -= at;
    write_out(c);
    return n_replies - n_new;
}

static struct connection *open_all(int epoll)
{
    struct connection *connections = calloc(opt.n_connections, sizeof *connections);
    if (epoll < 0 || !connections) wire_die("epoll");
    for (unsigned i = 0; i < opt.n_connections; i++) {
        connection_open(&connections[i], i);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) != 0) wire_die("epoll_ctl");
    }
    return connections;
}

static void close_all(struct connection *connections)
{
    for (unsigned i = 0; i < opt.n_connections; i++) {
        close(connections[i].fd);
        free(connections[i].in);
        free(connections[i].out);
        free(connections[i].sent_ns);
        free(connections[i].idle);
    }
    free(connections);
}

static void run_closed(int epoll, struct connection *connections, struct tally *tally)
{
    int64_t start = wire_now_ns(), end = start + (int64_t)(opt.seconds * 1e9);
    uint64_t n_flying = 0;
    for (unsigned i = 0; i < opt.n_connections; i++) {
        for (unsigned slot = 0; slot < opt.depth && may_send(start, end); slot++, n_flying++)
            add_request(&connections[i], slot, wire_now_ns());
        write_out(&connections[i]);
    }

    struct epoll_event events[64];
    while (n_flying > 0) {
        int n = epoll_wait(epoll, events, 64, 10000);
        if (n == 0) wire_die("no reply for ten seconds");
        for (int i = 0; i < n; i++) n_flying -= exchange(events[i].data.ptr, tally, end);
    }
}

/* What is due now, as far as its connection has a slot. Returns when the next one is due; INT64_MAX = after a reply. */
static int64_t send_due(struct connection *connections, int64_t start, uint64_t n_checks)
{
    int64_t now = wire_now_ns(), due = INT64_MAX;
    uint64_t first = n_sent;
    while (n_sent < n_checks) {
        struct connection *c = &connections[n_sent % opt.n_connections];
        due = c->n_idle > 0 ? start + (int64_t)((double)n_sent * 1e9 / opt.per_second) : INT64_MAX;
        if (due > now) break;
        add_request(c, c->idle[--c->n_idle], due);
    }

    uint64_t n_used = n_sent - first < opt.n_connections ? n_sent - first : opt.n_connections;
    for (uint64_t i = 0; i < n_used; i++) write_out(&connections[(first + i) % opt.n_connections]);
    return n_sent < n_checks ? due : INT64_MAX;
}

static void run_open(int epoll, struct connection *connections, struct tally *tally)
{
    uint64_t n_checks = (uint64_t)(opt.per_second * opt.seconds);
    int64_t start = wire_now_ns();
    struct epoll_event events[64];
    while (tally->n_done < n_checks) {
        int64_t due = send_due(connections, start, n_checks), wait = due - wire_now_ns();
        if (wait < 0) wait = 0;
        if (due == INT64_MAX) wait = INT64_C(10000000000);
        struct timespec most = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
        int n = epoll_pwait2(epoll, events, 64, &most, NULL);
        if (n == 0 && due == INT64_MAX) wire_die("no reply for ten seconds");
        for (int i = 0; i < n; i++) exchange(events[i].data.ptr, tally, 0);
    }
}

static void run_multiplexed(struct tally *tally)
{
    int epoll = epoll_create1(0);
    struct connection *connections = open_all(epoll);
    prctl(PR_SET_TIMERSLACK, 1UL); /* else a timer may be 50 us late */
    if (opt.per_second > 0)
        run_open(epoll, connections, tally);
    else
        run_closed(epoll, connections, tally);
    close_all(connections);
    close(epoll);
}

/* ---- one blocking call at a time ---- */

static redisContext *hiredis_open(void)
{
    char host[128];
    const char *colon = strrchr(opt.redis, ':');
    redisContext *context;
    if (colon) {
        snprintf(host, sizeof host, "%.*s", (int)(colon - opt.redis), opt.redis);
        context = redisConnect(host, atoi(colon + 1));
    } else {
        context = redisConnectUnix(opt.redis);
    }
    if (!context || context->err) wire_die(opt.redis);
    return context;
}

static void hiredis_worker(struct tally *tally, unsigned number)
{
    redisContext *context = hiredis_open();
    char key[64], copy[256];
    char *args[16] = {0};
    const char *argv[20] = {"EVALSHA", opt.sha, "1", key};
    snprintf(copy, sizeof copy, "%s", opt.script_args);
    unsigned n_args = split_args(copy, args, 16);
    for (unsigned i = 0; i < n_args; i++) argv[4 + i] = args[i];
    uint32_t draw = number * 7919;
    int64_t now = wire_now_ns(), end = now + (int64_t)(opt.seconds * 1e9);
    while (now < end) {
        snprintf(key, sizeof key, "%s%0*u", opt.prefix, KEY_DIGITS, drawn[draw++ & (N_DRAWN - 1)]);
        redisReply *reply = redisCommandArgv(context, 4 + (int)n_args, argv, NULL);
        if (!reply) wire_die("redisCommandArgv");
        int64_t then = wire_now_ns();
        note(tally, reply->type != REDIS_REPLY_INTEGER ? -1 : reply->integer >= 0, then - now);
        freeReplyObject(reply);
        now = then;
    }
    redisFree(context);
}

static void daemon_worker(struct tally *tally, unsigned number)
{
    struct connection c;
    connection_open(&c, number);
    int64_t end = wire_now_ns() + (int64_t)(opt.seconds * 1e9);
    add_request(&c, 0, wire_now_ns());
    write_out(&c);
    while (exchange(&c, tally, end) == 0) {
    }
    close(c.fd);
}

static void add_tally(struct tally *sum, const struct tally *one)
{
    const uint64_t *from = (const uint64_t *)one;
    uint64_t *to = (uint64_t *)sum;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++) to[i] += from[i];
}

static void run_forked(struct tally *tally)
{
    struct tally *shared =
        mmap(NULL, opt.n_connections * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) wire_die("mmap");
    for (unsigned i = 0; i < opt.n_connections; i++) {
        pid_t pid = fork();
        if (pid < 0) wire_die("fork");
        if (pid > 0) continue;
        if (opt.redis)
            hiredis_worker(&shared[i], i);
        else
            daemon_worker(&shared[i], i);
        _exit(0);
    }
    for (unsigned i = 0; i < opt.n_connections; i++) {
        int status;
        if (wait(&status) < 0 || status != 0) exit(1);
    }
    for (unsigned i = 0; i < opt.n_connections; i++) add_tally(tally, &shared[i]);
    munmap(shared, opt.n_connections * sizeof *shared);
}

/* ---- the report ---- */

static void parse(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "s:r:e:g:p:x:ac:d:k:t:n:z:i:fo:")) != -1) {
        switch (option) {
        case 's': opt.socket = optarg; break;
        case 'r': opt.redis = optarg; break;
        case 'e': opt.sha = optarg; break;
        case 'g': opt.script_args = optarg; break;
        case 'p': opt.policy = optarg; break;
        case 'x': opt.prefix = optarg; break;
        case 'a': opt.arrays = true; break;
        case 'c': opt.n_connections = (unsigned)atoi(optarg); break;
        case 'd': opt.depth = (unsigned)atoi(optarg); break;
        case 'k': opt.n_keys = (unsigned)atoi(optarg); break;
        case 't': opt.seconds = atof(optarg); break;
        case 'n': opt.n_requests = strtoull(optarg, NULL, 10); break;
        case 'z': opt.zipf = atof(optarg); break;
        case 'i': opt.seed = strtoull(optarg, NULL, 10); break;
        case 'f': opt.forked = true; break;
        case 'o': opt.per_second = atof(optarg); break;
        default: exit(2);
        }
    }
    bool daemon = opt.socket && opt.policy && strlen(opt.policy) < 128;
    bool redis = opt.redis && opt.sha && opt.script_args;
    bool is_open = opt.per_second > 0;
    if (daemon == redis || (is_open && (redis || opt.forked || opt.n_requests > 0)) || !opt.n_connections ||
        !opt.depth || !opt.n_keys || strlen(opt.prefix) > 32) {
        fprintf(stderr, "load: see the top of tests/bench/load.c\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct tally tally;
    parse(argc, argv);
    draw_keys();
    if (opt.redis)
        make_redis_template();
    else
        make_check_template();
    int64_t start = wire_now_ns();
    if (opt.forked)
        run_forked(&tally);
    else
        run_multiplexed(&tally);
    double seconds = (double)(wire_now_ns() - start) / 1e9;
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"per_second\": %.1f, \"allowed\": %llu, \"denied\": %llu, "
           "\"errors\": %llu, \"p50_us\": %.2f, \"p99_us\": %.2f}\n",
           (unsigned long long)tally.n_done, seconds, (double)tally.n_done / seconds,
           (unsigned long long)tally.n_allowed, (unsigned long long)tally.n_denied, (unsigned long long)tally.n_errors,
           wire_histogram_us(&tally.latency, 0.5), wire_histogram_us(&tally.latency, 0.99));
    free(drawn);
    return tally.n_errors > 0;
}
