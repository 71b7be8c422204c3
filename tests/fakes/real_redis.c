#include "fakes/real_redis.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

enum { START_TRIES = 2000, TRY_MS = 5, MAX_ARGS = 40 };

bool real_redis_is_installed(void)
{
    return system("command -v redis-server > /dev/null") == 0;
}

bool real_redis_is_missing(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (real_redis_is_installed()) return false;
    puts("skipped: redis-server is not installed");
    return true;
}

static uint16_t free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    close(fd);
    return ntohs(address.sin_port);
}

void real_redis_init(struct real_redis *redis, bool over_tcp)
{
    memset(redis, 0, sizeof(*redis));
    snprintf(redis->folder, sizeof(redis->folder), "/tmp/rl-redis-XXXXXX");
    assert_non_null(mkdtemp(redis->folder));
    snprintf(redis->path, sizeof(redis->path), "%s/redis.sock", redis->folder);
    redis->port = over_tcp ? free_port() : 0;
    if (over_tcp)
        snprintf(redis->address, sizeof(redis->address), "127.0.0.1:%d", redis->port);
    else
        snprintf(redis->address, sizeof(redis->address), "unix:%s", redis->path);
}

static void become_redis(const struct real_redis *redis, const char *const *args)
{
    char port[8];
    snprintf(port, sizeof(port), "%d", redis->port);
    const char *argv[MAX_ARGS] = {
        "redis-server", "--port", port, "--bind",       "127.0.0.1", "--unixsocket",           redis->path, "--dir",
        redis->folder,  "--save", "",   "--appendonly", "no",        "--enable-debug-command", "yes"};
    size_t n = 15;
    for (; args != NULL && *args != NULL && n < MAX_ARGS - 1; args++) argv[n++] = *args;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

void real_redis_launch(struct real_redis *redis, const char *const *args)
{
    assert_int_equal(redis->pid, 0);
    unlink(redis->path);
    redis->pid = fork();
    assert_true(redis->pid >= 0);
    if (redis->pid == 0) become_redis(redis, args);
}

/* Any answer but "max number of clients": there may be no right to PING, or a script may be running. */
static bool is_answered(redisContext *context)
{
    redisReply *reply = redisCommand(context, "PING");
    bool answered = reply != NULL && (reply->type == REDIS_REPLY_STATUS || strncmp(reply->str, "ERR max", 7) != 0);
    freeReplyObject(reply);
    return answered;
}

struct redisContext *real_redis_connect(const struct real_redis *redis)
{
    for (int i = 0; i < START_TRIES; i++) {
        redisContext *context = redisConnectUnix(redis->path);
        if (context != NULL && context->err == 0 && is_answered(context)) return context;
        redisFree(context);
        poll(NULL, 0, TRY_MS);
    }
    fail_msg("redis-server at %s does not answer", redis->path);
    return NULL;
}

void real_redis_start(struct real_redis *redis, const char *const *args)
{
    real_redis_launch(redis, args);
    redisFree(real_redis_connect(redis));
}

void real_redis_signal(struct real_redis *redis, int signal)
{
    assert_int_equal(kill(redis->pid, signal), 0);
}

void real_redis_kill(struct real_redis *redis)
{
    if (redis->pid == 0) return;
    kill(redis->pid, SIGKILL);
    while (waitpid(redis->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    redis->pid = 0;
}

void real_redis_fini(struct real_redis *redis)
{
    real_redis_kill(redis);
    unlink(redis->path);
    rmdir(redis->folder);
}

static long long number_of(const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_INTEGER: return reply->integer;
    case REDIS_REPLY_STATUS: return 1;
    case REDIS_REPLY_STRING: return strtoll(reply->str, NULL, 10);
    case REDIS_REPLY_ARRAY: return (long long)reply->elements;
    default: return -1;
    }
}

long long real_redis_command(struct real_redis *redis, const char *format, ...)
{
    redisContext *context = real_redis_connect(redis);
    va_list args;
    va_start(args, format);
    redisReply *reply = redisvCommand(context, format, args);
    va_end(args);
    if (reply == NULL) fail_msg("redis-server at %s: %s", redis->path, context->errstr);
    long long number = number_of(reply);
    freeReplyObject(reply);
    redisFree(context);
    return number;
}
