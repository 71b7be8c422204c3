/*
 * server_fixture.h: a fixture with a server on a real event loop and a real socket in a temporary directory, with an
 * engine on a frozen clock; and clients whose bytes the test controls.
 *
 * Nothing here waits: a local socket delivers bytes at once, so a tick of the loop finds all the work that there is.
 */
#ifndef RL_TESTS_SERVER_FIXTURE_H
#define RL_TESTS_SERVER_FIXTURE_H

#include <uv.h>

#include "daemon/listener.h"
#include "fakes/engine_fixture.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "server/server.h"

struct server_fixture {
    struct engine_fixture engine; /* its clock, its scripted store */
    uv_loop_t loop;
    uv_check_t check;
    uv_prepare_t prepare;
    char directory[64];
    struct listener listener;
    struct listener control; /* once server_fixture_open_control() was called */
    struct server *server;   /* NULL once closed */
    int n_drained;
};

extern const struct server_options server_fixture_options;

/* Policies: `login` 5 per 10 s (fixed window), `api` a bucket of 1000000 per second, `closed` limit 0, and `strict`
 * with on_failure: error. */
void server_fixture_open(struct server_fixture *fixture, const struct server_options *options); /* scripted store */
void server_fixture_open_memory(struct server_fixture *fixture,
                                const struct server_options *options); /* memory store */
void server_fixture_open_control(struct server_fixture *fixture);      /* the control socket, too */
/* Closes server, engine and loop, and checks that nothing is left of them. */
void server_fixture_close(struct server_fixture *fixture);
void server_fixture_close_server(struct server_fixture *fixture); /* the first part of it; may be called twice */
void server_fixture_tick(struct server_fixture *fixture);         /* one tick of the loop */
void server_fixture_ticks(struct server_fixture *fixture, int n);
void server_fixture_drain(struct server_fixture *fixture, uint32_t timeout_ms);

struct client {
    struct server_fixture *fixture;
    int fd;
    struct buffer in;
    bool is_reading; /* false: what the server writes stays in the socket */
};

/* One answer. */
struct heard {
    bool has_msgid;
    uint64_t msgid;
    char error[300];    /* "" for a result */
    struct pull result; /* into `bytes` */
    uint8_t bytes[70000];
};

void client_open(struct client *client, struct server_fixture *fixture);
void client_open_control(struct client *client, struct server_fixture *fixture);
void client_close(struct client *client);
void client_half_close(struct client *client);
/* Sends all bytes, and runs the loop if the socket is full; returns the number of sent bytes. */
size_t client_send(struct client *client, const void *bytes, size_t len);

/*
 * A request with n parameters, described by a character each: s str, b bin (both a C string), i integer, n nil,
 * [ and { a list and a map of that many (pairs), whose values come next; f a float.
 */
void client_ask(struct client *client, uint64_t msgid, const char *method, uint32_t n, const char *format, ...);
void client_build(struct buffer *out, uint64_t msgid, const char *method, uint32_t n, const char *format, ...);

/* 1: a message. 0: nothing came in a hundred ticks. -1: the server has closed. */
int client_hear(struct client *client, struct heard *ret);
/* The only answer to the last request; fails the test if there is none. */
void client_answer(struct client *client, struct heard *ret);
void client_assert_served(struct client *client); /* asks `ping`, and gets a result */
bool client_is_closed(struct client *client);     /* the connection ended without further bytes */

/* A decision in map form, read field by field. */
struct heard_decision {
    bool allowed;
    int64_t limit, remaining, retry_after_ms, reset_after_ms;
    int64_t granted; /* -1 if absent */
    char source[16], reason[16];
    uint32_t n_fields;
};

struct heard_decision heard_decision(struct pull *result);
bool heard_find(struct pull *result, const char *name); /* in a map: moves to its value; false if it is absent */
void heard_text(struct pull *result, char *out, size_t size);

#endif
