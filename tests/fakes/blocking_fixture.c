#include "fakes/blocking_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void open_fixture(struct blocking_fixture *fixture, bool lists_features)
{
    daemon_start(&fixture->daemon, 16);
    fixture->daemon.lists_features = lists_features;
    assert_int_equal(ratelimit_open(fixture->daemon.path, &fixture->client), RATELIMIT_OK);
    assert_int_equal(ratelimit_ping(fixture->client, SHORT_MS), RATELIMIT_TIMEOUT);
    daemon_accept(&fixture->daemon);
    uint64_t hello = daemon_expect(&fixture->daemon, "hello");
    uint64_t ping = daemon_expect(&fixture->daemon, "ping");
    daemon_answer_hello(&fixture->daemon, hello);
    fixture->next_msgid = (hello > ping ? hello : ping) + 1;
}

void blocking_fixture_open(struct blocking_fixture *fixture)
{
    open_fixture(fixture, false);
}

void blocking_fixture_open_with_features(struct blocking_fixture *fixture)
{
    open_fixture(fixture, true);
}

void blocking_fixture_close(struct blocking_fixture *fixture)
{
    ratelimit_close(fixture->client);
    daemon_stop(&fixture->daemon);
}
