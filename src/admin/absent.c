/*
 * absent.c: in place of this folder's files that need HTTP in a build without it (RL_HTTP=OFF). The configuration
 * refuses admin.listen then, so nothing of this is ever called. The page of metrics is there: ratelimitctl asks for it.
 */
#include "admin/admin.h"

#include "admin/admin_counters.h"
#include "base/assert.h"

COUNTERS_DEFINE(admin, ADMIN_COUNTERS);

struct admin *admin_new(uv_loop_t *loop, struct clock *clock, const struct admin_options *options)
{
    (void)loop, (void)clock, (void)options;
    return NULL;
}

int admin_listen(struct admin *admin, int fd)
{
    (void)admin, (void)fd;
    return UV_ENOTSUP;
}

void admin_set_options(struct admin *admin, const struct admin_options *options)
{
    (void)admin, (void)options;
}

void admin_close(struct admin *admin, void (*on_closed)(void *arg), void *arg)
{
    (void)admin, (void)on_closed, (void)arg;
    CHECK(!"there is none");
}
