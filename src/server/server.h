/*
 * server.h: the client's side: listening sockets, sessions, methods.
 *
 *   endpoint   where it listens: descriptors that it is handed (daemon/listener.h), each with its own cap of
 *              connections, beyond which accepting pauses, and with the role of who connects there
 *   session    one per connection: bytes in, whole messages to methods, answers out, one write a tick
 *   methods    one table row per method (methods.c)
 *
 * The server owns its sessions, not the engine. server_tick_end() is called in uv_check and
 * uv_prepare, after engine_flush(): it writes what the tick has answered.
 */
#ifndef RL_SERVER_SERVER_H
#define RL_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "server/server_options.h"

struct server;

/* NULL without memory. */
struct server *server_new(uv_loop_t *loop, struct clock *clock, struct engine *engine,
                          const struct server_options *options);
/* Start to accept on a listening descriptor (taken over), in place of the endpoint's one before, if any. 0 or a
 * negative libuv error; UV_EBUSY (nothing has happened) in the very tick of the call before. */
int server_listen(struct server *server, enum server_endpoint at, int fd);
/* Reload. max_frame and max_depth hold for connections to come, everything else at once. */
void server_set_options(struct server *server, const struct server_options *options);

/* For `stats` and `explain`; without it they say nothing of it. */
void server_set_store_trouble(struct server *server, store_trouble_fn *trouble, void *arg);

/* Who makes the page of metrics; without it the method is not there. */
void server_set_metrics(struct server *server, metrics_part_fn *part, void *arg);

/* The answer of all requests with this ticket, whose bytes are taken over (late_answer.h). */
void server_answer_late(struct server *server, uint64_t ticket, struct buffer *result);

void server_tick_end(struct server *server);
void server_look(struct server *server); /* each second: what is still to be logged */
/* Close who was idle, or did not read, for too long. A timer of the sessions does it; tests, which have no real time,
 * call this. */
void server_sweep(struct server *server);

/* Stop accepting, read no further frames, answer what is in flight; on_drained once every session has ended, or after
 * timeout_ms, when the rest was closed. The control socket stays open: of its sessions only those end that wait for an
 * answer or hold slots, and from now on none of them is decided anything. */
void server_drain(struct server *server, uint32_t timeout_ms, void (*on_drained)(void *arg), void *arg);
/* Close everything, at once; on_closed once, then the server is gone. A drain ends here, without on_drained. */
void server_close(struct server *server, void (*on_closed)(void *arg), void *arg);

#endif
