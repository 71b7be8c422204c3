/*
 * fake_redis.h: a Redis server whose replies the test controls, in the test's own event loop.
 *
 * It answers HELLO, AUTH, CLIENT, SELECT and SCRIPT LOAD correctly, unless the test sets a handler. Every EVALSHA goes
 * to the test's function, which answers with raw bytes, later, or never.
 */
#ifndef RL_TESTS_FAKE_REDIS_H
#define RL_TESTS_FAKE_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "base/slice.h"

struct fake_redis;
struct fake_client;

typedef void fake_handler(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n);

union fake_socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tcp_t tcp;
};

struct fake_redis {
    union fake_socket listener;
    char folder[64];
    char path[96];
    char address[128];      /* "unix:..." or "127.0.0.1:port" */
    uint16_t port;          /* 0 = it has a Unix socket */
    const char *sha1;       /* what SCRIPT LOAD returns */
    fake_handler *on_hello; /* NULL = a good answer; also AUTH */
    fake_handler *on_load;  /* NULL = a good answer */
    fake_handler *on_evalsha;
    fake_handler *on_other;      /* NULL = +OK: any other command */
    void *arg;                   /* the test's */
    size_t n_connections;        /* ever */
    size_t n_evalsha;            /* ever */
    size_t n_loads;              /* ever */
    struct fake_client *clients; /* open now */
};

void fake_redis_init(struct fake_redis *fake, uv_loop_t *loop, const char *sha1, fake_handler *on_evalsha);
void fake_redis_init_tcp(struct fake_redis *fake, uv_loop_t *loop, const char *sha1, fake_handler *on_evalsha);
void fake_redis_close(struct fake_redis *fake); /* the loop must then run until it is empty */

void fake_reply(struct fake_client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fake_reply_bytes(struct fake_client *client, const void *bytes, size_t len);
void fake_hang_up(struct fake_client *client); /* after the bytes that were sent */

struct fake_redis *fake_of(const struct fake_client *client); /* the server that it is a client of */

/* The nonce of a call: its last argument, in decimal (link_fixture.h) ... */
unsigned fake_nonce(const struct slice *args, size_t n);
/* ... or the first four bytes of a batch's packet, little-endian (batch.h). */
unsigned fake_batch_nonce(const struct slice *args, size_t n);
/* Is it the empty batch that proves a connection? */
bool fake_is_canary(const struct slice *args);

#endif
