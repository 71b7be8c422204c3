/*
 * flood_fixture.h: a server with one polite client and some that flood it. Requests go into the sockets without a tick,
 * so a test counts what each tick does with them.
 */
#ifndef RL_FAKES_FLOOD_FIXTURE_H
#define RL_FAKES_FLOOD_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "engine/check.h"
#include "fakes/server_fixture.h"
#include "server/server_counters.h"

enum { FLOODS_MAX = 40 };

static struct server_fixture fixture;
static struct client polite, floods[FLOODS_MAX];
static int n_floods;
static struct heard heard;

/* With n floods, on the memory store or the scripted one. */
static inline void flood_fixture_open(const struct server_options *options, bool memory, int n)
{
    (memory ? server_fixture_open_memory : server_fixture_open)(&fixture, options);
    n_floods = n;
    client_open(&polite, &fixture);
    for (int i = 0; i < n_floods; i++) client_open(&floods[i], &fixture);
    server_fixture_ticks(&fixture, n_floods + 2); /* libuv may accept one a tick */
}

static inline int flood_fixture_close(void **state)
{
    (void)state;
    client_close(&polite);
    for (int i = 0; i < n_floods; i++) client_close(&floods[i]);
    server_fixture_close(&fixture);
    return 0;
}

/* Into the socket, all of it; no tick runs. */
static inline void put(struct client *client, const struct buffer *bytes)
{
    assert_int_equal(send(client->fd, buffer_data(bytes), buffer_len(bytes), MSG_NOSIGNAL), buffer_len(bytes));
}

/* The same, and frees the bytes. */
static inline void put_built(struct client *client, struct buffer *bytes)
{
    put(client, bytes);
    buffer_fini(bytes);
}

static inline void put_check(struct client *client, uint64_t msgid, const char *key)
{
    struct buffer out;
    buffer_init(&out, 0);
    client_build(&out, msgid, "check", 2, "ss", "api", key);
    put_built(client, &out);
}

/* The keys of the checks that the scripted store holds. */
static inline struct slice key_of(struct list *link)
{
    return CONTAINER_OF(LIST_ITEM(link, struct op, link), struct check, op)->key;
}

static inline size_t n_held_of(const char *key)
{
    size_t n = 0;
    LIST_FOREACH (link, &fixture.engine.scripted.held) n += slice_is(key_of(link), key);
    return n;
}

static inline bool has_answer(const struct client *client)
{
    uint8_t byte;
    return recv(client->fd, &byte, 1, MSG_PEEK) == 1;
}

#endif
