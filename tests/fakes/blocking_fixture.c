#include "fakes/blocking_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void blocking_fixture_open(struct blocking_fixture *fixture)
{
    daemon_start(&fixture->daemon, 16);
    assert_int_equal(ratelimit_open(fixture->daemon.path, &fixture->client), RATELIMIT_OK);
    assert_int_equal(ratelimit_ping(fixture->client, SHORT_MS), RATELIMIT_TIMEOUT);
    daemon_accept(&fixture->daemon);
    uint64_t hello = daemon_expect(&fixture->daemon, "hello");
    uint64_t ping = daemon_expect(&fixture->daemon, "ping");
    daemon_answer_hello(&fixture->daemon, hello);
    fixture->next_msgid = (hello > ping ? hello : ping) + 1;
}

void blocking_fixture_close(struct blocking_fixture *fixture)
{
    ratelimit_close(fixture->client);
    daemon_stop(&fixture->daemon);
}
