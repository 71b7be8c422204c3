/*
 * server_world.h: a server on a real loop and a real socket in a temporary directory, over an
 * engine on a frozen clock; and clients that the test plays itself, byte by byte if it likes.
 *
 * Nothing here waits: a local socket has what was written to it at once, so a turn of the loop
 * either finds work or there is none.
 */
#ifndef RL_TESTS_SERVER_WORLD_H
#define RL_TESTS_SERVER_WORLD_H

#include <uv.h>

#include "fakes/engine_world.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "server/listener.h"
#include "server/server.h"

struct server_world {
    struct engine_world engine; /* its clock, its scripted store */
    uv_loop_t loop;
    uv_check_t check;
    uv_prepare_t prepare;
    char directory[64];
    struct listener listener;
    struct server *server; /* NULL once closed */
    int n_drained;
};

extern const struct server_options server_world_options;

/* Policies: `login` 5 per 10 s (fixed window), `api` a bucket of 1000000 per second, `closed` limit 0, and `strict`
 * with on_failure: error. */
void server_world_open(struct server_world *world, const struct server_options *options);        /* scripted store */
void server_world_open_memory(struct server_world *world, const struct server_options *options); /* memory store */
/* Server, engine, loop: expects that nothing is left of any of them. */
void server_world_close(struct server_world *world);
void server_world_close_server(struct server_world *world); /* the first part of it; twice is fine */
void server_world_turn(struct server_world *world);         /* one turn of the loop */
void server_world_turns(struct server_world *world, int n);
void server_world_drain(struct server_world *world, uint32_t timeout_ms);

struct client {
    struct server_world *world;
    int fd;
    struct buffer in;
    bool is_reading; /* false: what the server writes stays in the socket */
};

/* What came back. */
struct heard {
    bool has_msgid;
    uint64_t msgid;
    char error[300];    /* "" for a result */
    struct pull result; /* into `bytes` */
    uint8_t bytes[70000];
};

void client_open(struct client *client, struct server_world *world);
void client_close(struct client *client);
void client_half_close(struct client *client);
/* All of it, turning the loop where the socket is full; returns what went through. */
size_t client_send(struct client *client, const void *bytes, size_t len);

/*
 * A request with n parameters, described by a character each: s str, b bin (both a C string), i integer, n nil,
 * [ and { a list and a map of that many (pairs), whose values come next; f a float.
 */
void client_ask(struct client *client, uint64_t msgid, const char *method, uint32_t n, const char *format, ...);
void client_build(struct buffer *out, uint64_t msgid, const char *method, uint32_t n, const char *format, ...);

/* 1: a message. 0: nothing came in a hundred turns. -1: the server has closed. */
int client_hear(struct client *client, struct heard *ret);
/* The one answer to the last request: fails the test where there is none. */
void client_answer(struct client *client, struct heard *ret);
bool client_is_closed(struct client *client); /* nothing more came but the end */

/* A decision in map form, read field by field. */
struct heard_decision {
    bool allowed;
    int64_t limit, remaining, retry_after_ms, reset_after_ms;
    int64_t granted; /* -1 where left out */
    char source[16], reason[16];
    uint32_t n_fields;
};

struct heard_decision heard_decision(struct pull *result);
bool heard_find(struct pull *result, const char *name); /* in a map: its value comes next; false where it has none */
void heard_text(struct pull *result, char *out, size_t size);

#endif
