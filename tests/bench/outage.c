/*
 * outage.c: checks at a steady rate, whatever becomes of Redis, for outage.py.
 *
 *   outage -s SOCKET  -p POLICY      over the daemon: 16 connections
 *   outage -r SOCKET  -l FILE -m async   on Redis: hiredis' asynchronous context, its own timeout, one connection
 *   outage -r SOCKET  -l FILE -m sync    on Redis: hiredis' blocking calls with timeouts, 64 processes with a
 * connection each all: -n CHECKS_PER_SECOND -t SECONDS -k KEYS
 *
 * The programs on Redis do what a careful user would write: EVALSHA of the script in FILE, EVAL where it is missing, a
 * time limit of DEADLINE_MS for the connect and for each call, a new connection after an error, and "allowed" if there
 * is no answer. A check is measured from the moment it was due, not from when somebody had time for it. One line of
 * JSON comes out.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/adapters/poll.h>
#include <hiredis/hiredis.h>

#include "bench/wire.h"

enum {
    DEADLINE_MS = 20,
    LATE_NS = 25 * 1000 * 1000, /* the deadline and 5 ms */
    RETRY_NS = 50 * 1000 * 1000,
    N_CONNECTIONS = 16,
    N_PROCESSES = 64,
    READ_SIZE = 1 << 18,
    MAX_SCRIPT = 8192,
};

/* One check, in memory shared with the processes. */
struct check {
    int64_t due_ns;
    int64_t took_ns;
    int64_t behind_ns; /* over the daemon: how long after due_ns it was sent, because this program had no turn */
    uint32_t n_answers;
    bool is_by_redis, is_allowed;
};

static const char *socket_path, *redis_path, *policy = "p", *mode = "async";
static unsigned per_second = 200, n_keys = 64;
static double seconds = 5;
static size_t n_checks;
static struct check *checks; /* owned */
static char script[MAX_SCRIPT], sha[64];
static uint64_t most_kib; /* of memory, all processes */

static void answered(struct check *check, bool is_by_redis, bool is_allowed)
{
    if (check->n_answers++ > 0) return;
    check->took_ns = wire_now_ns() - check->due_ns;
    check->is_by_redis = is_by_redis;
    check->is_allowed = is_allowed;
}

/* Not getrusage(): its peak is inherited from the program that started this one. */
static uint64_t peak_kib(void)
{
    char line[128];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) wire_die("/proc/self/status");
    while (fgets(line, sizeof line, file) != NULL && sscanf(line, "VmHWM: %lu", &kib) != 1) {
    }
    fclose(file);
    return kib;
}

static void plan(void)
{
    n_checks = (size_t)(per_second * seconds);
    checks = mmap(NULL, n_checks * sizeof *checks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (checks == MAP_FAILED) wire_die("mmap");
    int64_t begin = wire_now_ns() + 100 * 1000 * 1000;
    for (size_t i = 0; i < n_checks; i++) checks[i].due_ns = begin + (int64_t)((double)i * 1e9 / per_second);
}

static int64_t end_ns(void)
{
    return checks[n_checks - 1].due_ns +
           (int64_t)3 * 1000 * 1000 * 1000; /* what is not answered by then never will be */
}

/* ---- over the daemon ---- */

struct connection {
    uint8_t in[READ_SIZE];
    size_t in_len;
};

static size_t put_check(uint8_t *out, size_t i)
{
    uint8_t *at = out;
    *at++ = 0x94, *at++ = 0, *at++ = 0xce;
    for (int shift = 24; shift >= 0; shift -= 8) *at++ = (uint8_t)(i >> shift);
    *at++ = 0xa5, memcpy(at, "check", 5), at += 5;
    *at++ = 0x92;
    *at++ = (uint8_t)(0xa0 | strlen(policy)), memcpy(at, policy, strlen(policy)), at += strlen(policy);
    char key[16];
    snprintf(key, sizeof key, "k%07zu", i % n_keys);
    *at++ = 0xa8, memcpy(at, key, 8), at += 8;
    return (size_t)(at - out);
}

/* [1, msgid, nil, {"allowed": ..., "source": "...", ...}] */
static void take_answer(const uint8_t *at, size_t len)
{
    size_t n = wire_value_length(at + 2, len - 2);
    size_t i = n == 1 ? at[2] : (size_t)wire_big_endian(at + 3, (unsigned)n - 1);
    if (i >= n_checks) wire_die("an answer to nothing");
    const uint8_t *source = memmem(at, len, "source", 6), *allowed = memmem(at, len, "allowed", 7);
    if (source == NULL || allowed == NULL) wire_die("an error");
    bool is_by_redis = memcmp(source + 7, "redis", 5) == 0 || memcmp(source + 7, "deny_cache", 10) == 0;
    answered(&checks[i], is_by_redis, allowed[7] == 0xc3);
}

static void receive(struct connection *connection, int fd)
{
    ssize_t n = read(fd, connection->in + connection->in_len, READ_SIZE - connection->in_len);
    if (n <= 0) wire_die("read");
    connection->in_len += (size_t)n;
    size_t at = 0, len;
    while (at < connection->in_len && (len = wire_value_length(connection->in + at, connection->in_len - at)) > 0) {
        take_answer(connection->in + at, len);
        at += len;
    }
    memmove(connection->in, connection->in + at, connection->in_len - at);
    connection->in_len -= at;
}

/* How long to wait for what comes next, in ms: the next check's time, or the end. */
static int wait_ms(size_t next, int64_t end)
{
    int64_t until = next < n_checks ? checks[next].due_ns : end;
    int64_t left = until - wire_now_ns();
    return left <= 0 ? 0 : left < 1000000 ? 1 : (int)(left / 1000000);
}

static size_t count_answered(size_t from)
{
    while (from < n_checks && checks[from].n_answers > 0) from++;
    return from;
}

static void run_daemon(void)
{
    static struct connection connections[N_CONNECTIONS];
    struct pollfd polled[N_CONNECTIONS];
    for (int i = 0; i < N_CONNECTIONS; i++) polled[i] = (struct pollfd){.fd = wire_open(socket_path), .events = POLLIN};

    size_t next = 0, done = 0;
    while ((done = count_answered(done)) < n_checks && wire_now_ns() < end_ns()) {
        for (; next < n_checks && checks[next].due_ns <= wire_now_ns(); next++) {
            uint8_t request[128];
            checks[next].behind_ns = wire_now_ns() - checks[next].due_ns;
            wire_write(polled[next % N_CONNECTIONS].fd, request, put_check(request, next));
        }
        if (poll(polled, N_CONNECTIONS, wait_ms(next, end_ns())) < 0) wire_die("poll");
        for (int i = 0; i < N_CONNECTIONS; i++)
            if (polled[i].revents != 0) receive(&connections[i], polled[i].fd);
    }
}

/* ---- on Redis, asynchronously ---- */

static redisAsyncContext *async; /* NULL: there is no connection */
static int64_t retry_ns;

static void key_of(char ret[16], size_t i)
{
    snprintf(ret, 16, "u%07zu", i % n_keys);
}

static bool is_noscript(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

static void on_reply(redisAsyncContext *context, void *answer, void *arg)
{
    struct check *check = arg;
    const redisReply *reply = answer;
    if (reply != NULL && is_noscript(reply)) {
        char key[16];
        key_of(key, (size_t)(check - checks));
        if (redisAsyncCommand(context, on_reply, arg, "EVAL %s 1 %s 100000000 86400000", script, key) == REDIS_OK)
            return;
    }
    bool is_by_redis = reply != NULL && reply->type == REDIS_REPLY_INTEGER;
    answered(check, is_by_redis, !is_by_redis || reply->integer >= 0);
}

static void on_gone(const redisAsyncContext *context, int status)
{
    (void)context, (void)status;
    async = NULL;
    retry_ns = wire_now_ns() + RETRY_NS;
}

static void on_connected(const redisAsyncContext *context, int status)
{
    if (status != REDIS_OK) on_gone(context, status);
}

static void connect_async(void)
{
    redisOptions options = {0};
    struct timeval limit = {.tv_usec = DEADLINE_MS * 1000};
    REDIS_OPTIONS_SET_UNIX(&options, redis_path);
    options.connect_timeout = options.command_timeout = &limit;
    async = redisAsyncConnectWithOptions(&options);
    if (async == NULL) wire_die("redisAsyncConnect");
    if (async->err) {
        redisAsyncFree(async);
        on_gone(NULL, REDIS_ERR);
        return;
    }
    redisPollAttach(async);
    redisAsyncSetConnectCallback(async, on_connected);
    redisAsyncSetDisconnectCallback(async, on_gone);
}

static void run_async(void)
{
    size_t next = 0, done = 0;
    while ((done = count_answered(done)) < n_checks && wire_now_ns() < end_ns()) {
        if (async == NULL && wire_now_ns() >= retry_ns) connect_async();
        for (; next < n_checks && checks[next].due_ns <= wire_now_ns(); next++) {
            char key[16];
            key_of(key, next);
            int sent = async == NULL ? REDIS_ERR
                                     : redisAsyncCommand(async, on_reply, &checks[next],
                                                         "EVALSHA %s 1 %s 100000000 86400000", sha, key);
            if (sent != REDIS_OK) answered(&checks[next], false, true);
        }
        double wait = wait_ms(next, end_ns()) / 1e3;
        if (async != NULL)
            (void)redisPollTick(async, wait);
        else
            poll(NULL, 0, wait > 0.001 ? 1 : 0);
    }
}

/* ---- on Redis, one blocking call at a time ---- */

static redisContext *connect_blocking(void)
{
    struct timeval limit = {.tv_usec = DEADLINE_MS * 1000};
    redisContext *context = redisConnectUnixWithTimeout(redis_path, limit);
    if (context != NULL && context->err == 0 && redisSetTimeout(context, limit) == REDIS_OK) return context;
    if (context != NULL) redisFree(context);
    return NULL;
}

static redisReply *call_blocking(redisContext *context, const char *key)
{
    redisReply *reply = redisCommand(context, "EVALSHA %s 1 %s 100000000 86400000", sha, key);
    if (reply == NULL || !is_noscript(reply)) return reply;
    freeReplyObject(reply);
    return redisCommand(context, "EVAL %s 1 %s 100000000 86400000", script, key);
}

static void work(size_t from)
{
    redisContext *context = connect_blocking();
    for (size_t i = from; i < n_checks; i += N_PROCESSES) {
        struct timespec due = {.tv_sec = checks[i].due_ns / 1000000000, .tv_nsec = checks[i].due_ns % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        if (wire_now_ns() > end_ns()) break;
        if (context == NULL) context = connect_blocking();
        char key[16];
        key_of(key, i);
        redisReply *reply = context != NULL ? call_blocking(context, key) : NULL;
        bool is_by_redis = reply != NULL && reply->type == REDIS_REPLY_INTEGER;
        answered(&checks[i], is_by_redis, !is_by_redis || reply->integer >= 0);
        freeReplyObject(reply);
        if (context != NULL && context->err != 0) {
            redisFree(context);
            context = NULL;
        }
    }
    if (context != NULL) redisFree(context);
}

static void run_blocking(void)
{
    uint64_t *peaks_kib =
        mmap(NULL, N_PROCESSES * sizeof *peaks_kib, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (peaks_kib == MAP_FAILED) wire_die("mmap");
    for (size_t i = 0; i < N_PROCESSES; i++) {
        pid_t pid = fork();
        if (pid < 0) wire_die("fork");
        if (pid > 0) continue;
        work(i);
        peaks_kib[i] = peak_kib();
        _exit(0);
    }
    int status;
    while (wait(&status) > 0) {
    }
    for (size_t i = 0; i < N_PROCESSES; i++) most_kib += peaks_kib[i];
}

/* ---- the script, options, the report ---- */

static void load_script(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) wire_die(path);
    size_t n = fread(script, 1, sizeof script - 1, file);
    fclose(file);
    script[n] = '\0';
    redisContext *context = connect_blocking();
    redisReply *reply = context != NULL ? redisCommand(context, "SCRIPT LOAD %s", script) : NULL;
    if (reply == NULL || reply->type != REDIS_REPLY_STRING) wire_die("SCRIPT LOAD");
    snprintf(sha, sizeof sha, "%s", reply->str);
    freeReplyObject(reply);
    redisFree(context);
}

static int by_time(const void *a, const void *b)
{
    const struct check *one = a, *other = b;
    return (one->took_ns > other->took_ns) - (one->took_ns < other->took_ns);
}

static void report(void)
{
    size_t n_late = 0, n_late_sent = 0, n_unanswered = 0, n_twice = 0, n_by_redis = 0, n_allowed = 0;
    int64_t last_failure_ns = 0;
    for (size_t i = 0; i < n_checks; i++) {
        const struct check *check = &checks[i];
        n_unanswered += check->n_answers == 0;
        n_twice += check->n_answers > 1;
        n_late += check->took_ns > LATE_NS;
        n_late_sent += check->took_ns - check->behind_ns > LATE_NS;
        n_by_redis += check->is_by_redis;
        n_allowed += check->is_by_redis && check->is_allowed;
        if (!check->is_by_redis) last_failure_ns = check->due_ns;
    }
    if (most_kib == 0) most_kib = peak_kib();
    qsort(checks, n_checks, sizeof *checks, by_time);
    printf("{\"checks\": %zu, \"late\": %zu, \"late_sent\": %zu, \"unanswered\": %zu, \"twice\": %zu, \"by_redis\": "
           "%zu, \"allowed\": %zu, "
           "\"p999_ms\": %.2f, \"max_ms\": %.2f, \"last_failure_ns\": %lld, \"kib\": %llu}\n",
           n_checks, n_late, n_late_sent, n_unanswered, n_twice, n_by_redis, n_allowed,
           (double)checks[n_checks * 999 / 1000].took_ns / 1e6, (double)checks[n_checks - 1].took_ns / 1e6,
           (long long)last_failure_ns, (unsigned long long)most_kib);
}

int main(int argc, char **argv)
{
    const char *script_path = NULL;
    int option;
    while ((option = getopt(argc, argv, "s:r:p:l:m:n:t:k:")) != -1) {
        switch (option) {
        case 's': socket_path = optarg; break;
        case 'r': redis_path = optarg; break;
        case 'p': policy = optarg; break;
        case 'l': script_path = optarg; break;
        case 'm': mode = optarg; break;
        case 'n': per_second = (unsigned)atoi(optarg); break;
        case 't': seconds = atof(optarg); break;
        case 'k': n_keys = (unsigned)atoi(optarg); break;
        default: return 2;
        }
    }
    if ((socket_path == NULL) == (redis_path == NULL) || strlen(policy) > 31 ||
        (redis_path != NULL && script_path == NULL))
        return 2;

    signal(SIGPIPE, SIG_IGN);
    if (redis_path != NULL) load_script(script_path);
    plan();
    if (socket_path != NULL)
        run_daemon();
    else if (strcmp(mode, "sync") == 0)
        run_blocking();
    else
        run_async();
    report();
    return 0;
}
