/*
 * blocking_fixture.h: a fixture with the blocking client, and a scripted daemon at the other end.
 *
 * Nothing runs at the same time as the client: the test writes the daemon's answer into the socket before the call.
 * This works because the client counts its msgids.
 */
#ifndef RL_FAKES_BLOCKING_FIXTURE_H
#define RL_FAKES_BLOCKING_FIXTURE_H

#include "client/ratelimit.h"
#include "fakes/scripted_daemon.h"

enum { SHORT_MS = 50, LONG_MS = 60000 }; /* for calls without an answer, and with one */

struct blocking_fixture {
    struct scripted_daemon daemon;
    struct ratelimit *client;
    uint64_t next_msgid;
};

/* A client with a connection: its first call is not answered, and its second will have the number `next_msgid`. */
void blocking_fixture_open(struct blocking_fixture *fixture);
void blocking_fixture_open_with_features(struct blocking_fixture *fixture); /* that hello lists */
void blocking_fixture_close(struct blocking_fixture *fixture);

#endif
