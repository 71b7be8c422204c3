#include "fakes/blocking_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void blocking_world_open(struct blocking_world *world)
{
    daemon_start(&world->daemon, 16);
    assert_int_equal(ratelimit_open(world->daemon.path, &world->client), RATELIMIT_OK);
    assert_int_equal(ratelimit_ping(world->client, SHORT_MS), RATELIMIT_TIMEOUT);
    daemon_accept(&world->daemon);
    uint64_t hello = daemon_expect(&world->daemon, "hello");
    uint64_t ping = daemon_expect(&world->daemon, "ping");
    daemon_answer_hello(&world->daemon, hello);
    world->next_msgid = (hello > ping ? hello : ping) + 1;
}

void blocking_world_close(struct blocking_world *world)
{
    ratelimit_close(world->client);
    daemon_stop(&world->daemon);
}
