/*
 * sessions_tick.h: what all connections do in a tick, in which order, and how much of it (sessions.h).
 */
#ifndef RL_SERVER_SESSIONS_TICK_H
#define RL_SERVER_SESSIONS_TICK_H

#include "server/sessions.h"

/* 0, or -1 without memory. The two handles are open afterwards: close them, then fini. */
int sessions_init(struct sessions *sessions, uv_loop_t *loop, struct clock *clock, struct engine *engine,
                  const struct server_options *options);
void sessions_fini(struct sessions *sessions);

void sessions_tick_end(struct sessions *sessions);
void sessions_sweep(struct sessions *sessions);     /* close who was idle, or did not read, for too long */
void sessions_arm_sweep(struct sessions *sessions); /* look at who is stalled or idle in a while */

#endif
