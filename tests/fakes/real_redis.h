/*
 * real_redis.h: a real redis-server on a temporary Unix socket (or a free TCP port), for one test.
 *
 * It always ends with the test process, and stores nothing on disk.
 */
#ifndef RL_TESTS_REAL_REDIS_H
#define RL_TESTS_REAL_REDIS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct real_redis {
    pid_t pid; /* 0 = not running */
    char folder[64];
    char path[96];
    char address[128]; /* "unix:..." or "127.0.0.1:port" */
    uint16_t port;     /* 0 = Unix socket only */
};

bool real_redis_is_installed(void);

/* For a main() that needs a server: prints a message if there is none. Ignores SIGPIPE. */
bool real_redis_is_missing(void);

/* Make the folder and the address; nothing runs yet. */
void real_redis_init(struct real_redis *redis, bool over_tcp);
/* Run it with further arguments ("--maxclients", "1", NULL); returns once it answers. Fails the test if it does
 * not. */
void real_redis_start(struct real_redis *redis, const char *const *args);
/* The same, but does not wait for an answer. */
void real_redis_launch(struct real_redis *redis, const char *const *args);
void real_redis_signal(struct real_redis *redis, int signal);
void real_redis_kill(struct real_redis *redis); /* SIGKILL, and wait; not running is fine */
void real_redis_fini(struct real_redis *redis); /* kill, and remove the folder */

/* A connection that has answered a PING; redisFree() it. Fails the test if it cannot connect. */
struct redisContext *real_redis_connect(const struct real_redis *redis);

/* One command as the default user, its reply in integer form (status OK = 1, string = its number), -1 on an error
 * reply. Fails the test if the server is not reachable. */
long long real_redis_command(struct real_redis *redis, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
